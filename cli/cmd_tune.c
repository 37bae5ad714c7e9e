/*
 * `quern tune`: the fastest configuration of a kernel, found by timing its candidates.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <string.h>
#include <unistd.h>

int command_tune(const command *self, const arguments *given)
{
    progress_line line = {.terminal = isatty(STDERR_FILENO)};
    int status = EXIT_WRONG_CALL;
    qn_error error;
    qn_tune_options options = {.settings = {given->settings.items, given->settings.count},
                               .effort = given->effort,
                               .budget_s = given->budget_s,
                               .json_path = given->json,
                               .seed = given->seed,
                               .progress = true,
                               .colour = colours_wanted(stdout)};
    for (int i = 0; i < given->settings.count; i++)
        if (setting_name_length("set", given->settings.items[i]) < 0) return EXIT_WRONG_CALL;
    qn_context *context = open_context(given, &status);
    if (!context) return status;
    options.device = choose_device(context, given);
    qn_module *module = open_module(context, given->words.items[0], &status);
    const char *kernel = module ? choose_kernel(module, self, given, &status) : NULL;
    if (kernel) {
        qn_status result =
            qn_tune(context, given->words.items[0], kernel, &options, write_result, write_progress, &line, &error);
        write_result(&line, "", 0);
        status = result == QN_OK ? EXIT_OK : report_error(&error);
    }
    qn_module_free(module);
    close_context(context);
    return status;
}
