/*
 * The example of quern/quern.h as a whole program: double five numbers on the best device there is.
 * Build: cc first.c $(pkg-config --cflags --libs quern)
 * SPDX-License-Identifier: MIT
 */
#include <quern/quern.h>
#include <stdio.h>

static int fail(const qn_error *error)
{
    fprintf(stderr, "%s\n", error->message);
    return 1;
}

int main(void)
{
    qn_error error;
    qn_context *context;
    qn_module *module;
    qn_call *call;
    float x[5] = {1, 2, 3, 4, 5}, y[5];
    int64_t extent = 5;
    if (qn_context_open(NULL, &context, &error)) return fail(&error);
    if (qn_module_load_text(context, "twice.qn",
                            "kernel twice(in T x[n], out T y[n], const int B = 64) launch (cdiv(n, B))"
                            "{ y[program(0) * B : B] = 2 * x[program(0) * B : B]; }",
                            &module, &error))
        return fail(&error);
    if (qn_call_new(module, "twice", &call, &error)) return fail(&error);
    if (qn_call_set_memory(call, "x", x, QN_F32, 1, &extent, NULL, &error)) return fail(&error);
    if (qn_call_set_memory(call, "y", y, QN_F32, 1, &extent, NULL, &error)) return fail(&error);
    if (qn_call_run(call, qn_device_best(context), &error)) return fail(&error);
    printf("on %s: %g %g %g %g %g\n", qn_device_best(context), y[0], y[1], y[2], y[3], y[4]);
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
    return 0;
}
