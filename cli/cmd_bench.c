/*
 * `quern bench`: every variant of an operation, checked and timed. `quern devices`: what there is to run on, and its
 * measured ceilings. `quern cache`: the compiled objects.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int command_bench(const command *self, const arguments *given)
{
    progress_line line = {.terminal = isatty(STDERR_FILENO)};
    int status = EXIT_WRONG_CALL;
    qn_error error;
    qn_bench_options options = {.bench = given->words.count > 1 ? given->words.items[1] : NULL,
                                .device = given->device,
                                .settings = {given->settings.items, given->settings.count},
                                .json_path = given->json,
                                .seconds = given->seconds,
                                .seed = given->seed,
                                .progress = true,
                                .hints = given->hints,
                                .colour = colours_wanted(stdout)};
    (void)self;
    for (int i = 0; i < given->settings.count; i++)
        if (setting_name_length("set", given->settings.items[i]) < 0) return EXIT_WRONG_CALL;
    qn_context *context = open_context(given, &status);
    if (!context) return status;
    choose_device(context, given);
    qn_status result =
        qn_bench_file(context, given->words.items[0], &options, write_result, write_progress, &line, &error);
    write_result(&line, "", 0);
    status = result == QN_OK ? EXIT_OK : result == QN_FINDING ? EXIT_FINDING : report_error(&error);
    close_context(context);
    return status;
}

static int measure(qn_context *context, const char *device, bool everything)
{
    qn_error error;
    qn_ceilings ceilings;
    if (qn_measure(context, device, (size_t)512 << 20, &ceilings, &error) != QN_OK) return report_error(&error);
    printf("  copy        %8.1f GB/s (read and written bytes, 512 MiB)\n", ceilings.copy_gb_per_s);
    if (!everything) return EXIT_OK;
    printf("  read        %8.1f GB/s\n", ceilings.read_gb_per_s);
    bool cpu = !strcmp(device, "cpu") || !strcmp(device, "ref");
    printf("  multiply-add %7.1f GFLOP/s on one %s, %.1f on %d (f32)\n", ceilings.fma_one_gflop_per_s,
           cpu ? "thread" : "multiprocessor", ceilings.fma_all_gflop_per_s, ceilings.threads);
    if (cpu && ceilings.threads > 1 && ceilings.fma_all_gflop_per_s < 1.3 * ceilings.fma_one_gflop_per_s)
        printf("  %d threads were hardly faster than one: they shared a core, or the machine was busy\n",
               ceilings.threads);
    return EXIT_OK;
}

static void print_details(qn_context *context, const char *device)
{
    char *words = qn_device_details(context, device);
    for (char *line = strtok(words, "\n"); line; line = strtok(NULL, "\n")) printf("  %s\n", line);
    free(words);
}

int command_devices(const command *self, const arguments *given)
{
    int status = EXIT_WRONG_CALL;
    qn_context *context = open_context(given, &status);
    (void)self;
    if (!context) return status;
    status = EXIT_OK;
    const char *best = qn_device_best(context);
    for (int i = 0; i < qn_device_count(context); i++) {
        qn_device_info info;
        qn_device_get(context, i, &info);
        if (given->device && strcmp(given->device, info.name) != 0) continue;
        printf("%-5s %s%s%s\n", info.name, info.available ? "" : "not available: ", info.description,
               !strcmp(best, info.name) ? " (the default)" : "");
        if (info.note[0]) printf("      %s\n", info.note);
        if (!info.available) continue;
        print_details(context, info.name);
        /* A GPU is measured in a moment; the processor only if asked for. */
        bool gpu = !strncmp(info.name, "cuda", 4);
        if (gpu || (given->measure && strcmp(info.name, "ref") != 0)) {
            fflush(stdout);
            int measured = measure(context, info.name, given->measure);
            if (measured > status) status = measured;
        }
    }
    qn_context_close(context);
    return status;
}

int command_cache(const command *self, const arguments *given)
{
    static const char *const verbs[] = {"list", "clear"};
    const char *verb = given->words.items[0];
    int status = EXIT_WRONG_CALL;
    qn_error error;
    if (strcmp(verb, "list") != 0 && strcmp(verb, "clear") != 0) {
        const char *near = nearest_word(verb, verbs, 2);
        complain("`quern %s` knows list and clear, not `%s`%s%s%s", self->name, verb, near ? "; did you mean `" : "",
                 near ? near : "", near ? "`?" : "");
        return EXIT_WRONG_CALL;
    }
    qn_context *context = open_context(given, &status);
    if (!context) return status;
    if (!strcmp(verb, "list")) {
        status = qn_cache_list(context, write_to_stdout, NULL, &error) == QN_OK ? EXIT_OK : report_error(&error);
    } else {
        int64_t files = 0, bytes = 0;
        status = qn_cache_clear(context, &files, &bytes, &error) == QN_OK ? EXIT_OK : report_error(&error);
        if (status == EXIT_OK) printf("removed %" PRId64 " files, %.1f MB\n", files, (double)bytes * 1e-6);
    }
    qn_context_close(context);
    return status;
}
