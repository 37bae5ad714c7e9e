/* A program outside the tree that links with Quern. SPDX-License-Identifier: MIT */
#include <quern/quern.h>
#include <stdio.h>

int main(void)
{
    qn_error error;
    qn_context *context;
    if (qn_context_open(NULL, &context, &error)) return fprintf(stderr, "%s\n", error.message), 1;
    printf("Quern %s runs on %s\n", qn_version(), qn_device_best(context));
    qn_context_close(context);
    return 0;
}
