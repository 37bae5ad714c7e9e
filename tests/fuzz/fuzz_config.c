/*
 * Reads bytes as the configuration of a recommender. Whatever they are: an error with words, or a configuration that is
 * the same when it is printed and read again. Built by tools/fuzz (`tools/fuzz config`). SPDX-License-Identifier: MIT
 */
#include "base/base.h"

#include <quern/dlrm.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_dlrm_config config = qn_dlrm_defaults(), again = qn_dlrm_defaults();
    qn_error error = {0};
    char *words = malloc(size + 1);
    if (!words) return 0;
    memcpy(words, data, size);
    words[size] = 0;
    if (qn_dlrm_config_parse("fuzz", words, &config, &error)) {
        CHECK(strlen(error.message) > 0);
    } else {
        char *printed = qn_dlrm_config_text(&config), *twice;
        CHECK(printed && !qn_dlrm_config_parse("again", printed, &again, &error));
        CHECK((twice = qn_dlrm_config_text(&again)) && !strcmp(printed, twice));
        free(printed);
        free(twice);
    }
    free(words);
    return 0;
}
