/*
 * `quern bench`: every variant of an operation, checked and timed. `quern devices`: what there is to run on, and its
 * measured ceilings. `quern cache`: the compiled objects.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <quern/bench.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int command_bench(const command *self, const arguments *given)
{
    progress_line line = {.terminal = isatty(STDERR_FILENO)};
    int status = EXIT_WRONG_CALL;
    qn_error error;
    char typed[2000];
    qn_bench_options options = {.bench = given->words.count > 1 ? given->words.items[1] : NULL,
                                .device = given->device,
                                .settings = {given->settings.items, given->settings.count},
                                .json_path = given->json,
                                .sweeps = {given->sweeps.items, given->sweeps.count},
                                .csv_path = given->csv,
                                .plot_path = given->plot,
                                .against_path = given->against,
                                .force = given->force,
                                .strict = given->strict,
                                .margin = given->margin_percent * 0.01,
                                .report_path = given->report,
                                .command = typed_words(self, given, typed, sizeof(typed)),
                                .seconds = given->seconds,
                                .seed = given->seed,
                                .progress = true,
                                .hints = given->hints,
                                .width = terminal_width(stdout),
                                .colour = colours_wanted(stdout)};
    for (int i = 0; i < given->settings.count; i++)
        if (setting_name_length("set", given->settings.items[i]) < 0) return EXIT_WRONG_CALL;
    qn_context *context = open_context(given, &status);
    if (!context) return status;
    choose_device(context, given);
    qn_status result =
        qn_bench_file(context, given->words.items[0], &options, write_result, write_progress, &line, &error);
    write_result(&line, "", 0);
    status = result == QN_OK ? EXIT_OK : report_error(&error);
    close_context(context);
    return status;
}

static void print_line(const char *name, double number, const char *unit)
{
    if (number > 0) printf("  %-16s %10.*f %s\n", name, number < 100 ? 2 : 1, number, unit);
}

static void print_roofline(const qn_roofline *r, bool gpu)
{
    print_line("copy", r->copy_gb_per_s, "GB/s (read and written bytes)");
    print_line("read", r->read_gb_per_s, "GB/s");
    print_line("write", r->write_gb_per_s, "GB/s");
    print_line(gpu ? "L2" : "second cache", r->cache_gb_per_s, "GB/s, read");
    print_line(gpu ? "shared memory" : "first cache", r->inner_gb_per_s, "GB/s, read");
    print_line("multiply-add", r->fma_f32_gflop_per_s, "GFLOP/s (f32)");
    print_line("", r->fma_one_gflop_per_s, gpu ? "GFLOP/s on one multiprocessor" : "GFLOP/s on one thread");
    print_line("", r->fma_f64_gflop_per_s, "GFLOP/s (f64)");
    print_line("matrix units", r->dot_f16_gflop_per_s * 1e-3, "TFLOP/s (f16)");
    print_line(gpu ? "" : "products", r->dot_bf16_gflop_per_s * 1e-3, "TFLOP/s (bf16)");
    print_line("", r->dot_tf32_gflop_per_s * 1e-3, "TFLOP/s (tf32)");
    print_line("", r->dot_f8_gflop_per_s * 1e-3, "TFLOP/s (f8)");
    print_line(gpu || r->dot_bf16_gflop_per_s > 0 ? "" : "products", r->dot_i8_gflop_per_s * 1e-3, "TOP/s (i8)");
    print_line("exp", r->exp_g_per_s, "billions a second");
    print_line("launch", r->launch_ns * 1e-3, gpu ? "us, empty kernels in a row" : "us, handing work to all threads");
    print_line("", r->graph_launch_ns * 1e-3, "us in a recorded sequence");
    print_line("from the host", r->host_to_device_gb_per_s, "GB/s, pinned");
    print_line("to the host", r->device_to_host_gb_per_s, "GB/s, pinned");
    print_line("clock", r->clock_mhz, "MHz");
    if (!gpu && r->units > 1 && r->fma_f32_gflop_per_s < 1.3 * r->fma_one_gflop_per_s)
        printf("  %d threads were hardly faster than one: they shared a core, or the machine was busy\n", r->units);
}

/* What is kept of this device is shown; it is measured if that is asked for, and a GPU also at the first sight. */
static int show_ceilings(qn_context *context, const char *device, bool measure)
{
    qn_error error;
    qn_roofline roofline;
    bool gpu = !strncmp(device, "cuda", 4);
    if (!measure && qn_roofline_find(context, device, &roofline)) {
        printf("  ceilings, measured at %s (again: --measure)\n", roofline.measured);
    } else if (measure) {
        fflush(stdout);
        if (qn_roofline_get(context, device, true, &roofline, &error) != QN_OK) return report_error(&error);
    } else if (gpu) {
        qn_ceilings quick;
        fflush(stdout);
        if (qn_measure(context, device, (size_t)512 << 20, &quick, &error) != QN_OK) return report_error(&error);
        print_line("copy", quick.copy_gb_per_s, "GB/s (read and written bytes, 512 MiB)");
        return EXIT_OK;
    } else {
        return EXIT_OK;
    }
    print_roofline(&roofline, gpu);
    return EXIT_OK;
}

static void print_details(qn_context *context, const char *device)
{
    char *words = qn_device_details(context, device);
    if (!words) return;
    for (char *line = strtok(words, "\n"); line; line = strtok(NULL, "\n")) printf("  %s\n", line);
    free(words);
}

static void write_file(void *to, const char *words, size_t length)
{
    fwrite(words, 1, length, to);
}

static int write_devices(qn_context *context, const arguments *given)
{
    whole_file all;
    FILE *to = whole_begin(&all, given->json);
    if (!to) return EXIT_WRONG_CALL;
    qn_devices_json(context, given->device, write_file, to);
    return whole_end(&all, given->json) ? EXIT_OK : EXIT_FINDING;
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
        if (!strcmp(info.name, "ref") || !strcmp(info.name, "emu")) continue;
        int shown = show_ceilings(context, info.name, given->measure);
        if (shown > status) status = shown;
    }
    int written = given->json ? write_devices(context, given) : EXIT_OK;
    if (written > status) status = written;
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
        const char *near = nearest_word(verb, verbs, 2), *advice = cache_advice(verb);
        complain("`quern %s` knows list and clear, not `%s`%s%s%s", self->name, verb,
                 advice ? ": "
                 : near ? "; did you mean `"
                        : "",
                 advice ? advice
                 : near ? near
                        : "",
                 near && !advice ? "`?" : "");
        return EXIT_WRONG_CALL;
    }
    qn_context *context = open_context(given, &status);
    if (!context) return status;
    if (!strcmp(verb, "list")) {
        status = qn_cache_list(context, write_to_stdout, NULL, &error) == QN_OK ? EXIT_OK : report_error(&error);
    } else {
        int64_t files = 0, bytes = 0;
        status = qn_cache_clear(context, &files, &bytes, &error) == QN_OK ? EXIT_OK : report_error(&error);
        const char *note = qn_cache_note(context);
        if (status == EXIT_OK) printf("removed %" PRId64 " files, %.1f MB\n", files, (double)bytes * 1e-6);
        if (status == EXIT_OK && *note) { /* it is not the folder that was meant */
            remark("%s", note);
            status = EXIT_FINDING;
        }
    }
    qn_context_close(context);
    return status;
}
