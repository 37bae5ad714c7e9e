/*
 * `quern profile`: where the time goes. Of a kernel or a tensor function, which runs here a few times; or of any program
 * that uses Quern (profile_program.c).
 *
 * What can be wrong with the options or the files is found before anything runs.
 * SPDX-License-Identifier: MIT
 */
#include "profile_parts.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- what to write, in the words of QUERN_PROFILE ---- */

typedef struct schedule {
    int numbers[4]; /* wait, warmup, active, repeat */
} schedule;

static bool read_schedule(const char *from, schedule *out)
{
    char rest;
    int *n = out->numbers;
    int got = sscanf(from, "%d,%d,%d,%d%c", &n[0], &n[1], &n[2], &n[3], &rest);
    if (got == 3) n[3] = 1;
    if ((got == 3 || got == 4) && n[0] >= 0 && n[1] >= 0 && n[2] >= 1 && n[3] >= 1) return true;
    complain("--schedule takes steps as W,U,A or W,U,A,R (wait, warm up, active, repeat), not `%s`", from);
    return false;
}

static bool collect_words(const command *self, const arguments *given, profile_words *w, schedule *plan)
{
    char room[2000];
    static const char *const keys[] = {"wait", "warmup", "active", "repeat"};
    profile_add_path(w, "trace", given->trace);
    profile_add_path(w, "tensorboard", given->tensorboard);
    profile_add_path(w, "folded", given->folded);
    profile_add_path(w, "json", given->json);
    profile_add_path(w, "csv", given->csv);
    profile_add_path(w, "report", given->report);
    if (given->report) profile_add_setting(w, "command", typed_words(self, given, room, sizeof(room)));
    profile_add_setting(w, "by", given->by);
    profile_add_setting(w, "sort", given->sort);
    profile_add_setting(w, "format", given->format);
    if (given->rows) profile_add_whole(w, "rows", (long)given->rows);
    if (given->nodes) profile_add_whole(w, "nodes", 1);
    if (given->nvtx) profile_add_whole(w, "nvtx", 1);
    if (!given->schedule) return true;
    if (!read_schedule(given->schedule, plan)) return false;
    for (int i = 0; i < 4; i++) profile_add_whole(w, keys[i], plan->numbers[i]);
    return true;
}

/* ---- a kernel, here ---- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static qn_status run_steps(qn_profile *profile, qn_call *call, const char *device, int64_t runs, qn_error *error)
{
    progress_line line = {.terminal = isatty(STDERR_FILENO)};
    double started = now_s(), told = started + 1;
    char text[80];
    qn_status status = QN_OK;
    for (int64_t i = 0; i < runs && status == QN_OK && !interrupted; i++) {
        status = qn_call_run(call, device, error);
        qn_profile_step(profile);
        if (now_s() < told + 1) continue;
        told = now_s();
        int length = snprintf(text, sizeof(text), "run %lld of %lld, %.0f s\n", (long long)i + 1, (long long)runs,
                              told - started);
        write_progress(&line, text, (size_t)length);
    }
    write_result(&line, "", 0);
    return status;
}

/* One of the names that the library has checked. */
static int choice(const char *word, const char *const *names, int count)
{
    for (int i = 0; word && i < count; i++)
        if (!strcmp(word, names[i])) return i;
    return 0;
}

/* ---- counters and stalls, for the terminal and for the report ---- */

/* Counts the kernels of one run. */
static qn_status count_here(qn_context *context, qn_call *call, const char *device, const arguments *given,
                            qn_counting **counting, profile_kept *kept, qn_error *error)
{
    if (qn_counting_start(context, counting, error) != QN_OK) return error->status;
    qn_status ran = qn_call_run(call, device, error);
    qn_error refusal;
    qn_status status = qn_counting_stop(*counting, &refusal);
    if (ran != QN_OK) return ran;
    if (status != QN_OK) *error = refusal;
    profile_text all = {0};
    profile_gather(&all, "", 0);
    qn_counting_print(*counting, true, profile_gather, &all);
    if (given->counters_json && !profile_write_whole(given->counters_json, all.text, all.length)) status = QN_FAILED;
    if (given->report && qn_counting_count(*counting) && profile_open_temporary(kept->counters, sizeof(kept->counters)))
        (void)profile_write_whole(kept->counters, all.text, all.length);
    free(all.text);
    return status;
}

static void place_of(const qn_line_samples *at, char *place, size_t size)
{
    if (at->file && at->line)
        snprintf(place, size, "%s:%d", at->file, at->line);
    else
        snprintf(place, size, "%s", at->file ? at->file : "(of no line)");
}

static void keep_stalls(const qn_samples *s, profile_kept *kept)
{
    profile_text all = {0};
    if (!s->count || !profile_open_temporary(kept->stalls, sizeof(kept->stalls))) return;
    qn_samples_json(s, profile_gather, &all);
    (void)profile_write_whole(kept->stalls, all.text, all.length);
    free(all.text);
}

static int print_profile(qn_profile *profile, const arguments *given, const qn_counters *counters)
{
    static const char *const groupings[] = {"op", "shape", "kernel", "range"};
    static const char *const formats[] = {"text", "csv", "json", "markdown"};
    qn_error error;
    profile_text hints = {0};
    qn_table_options table = {.by = (qn_table_by)choice(given->by, groupings, 4),
                              .format = (qn_table_format)choice(given->format, formats, 4),
                              .sort = given->sort,
                              .rows = given->rows > 1000000 ? 1000000 : (int)given->rows,
                              .width = terminal_width(stdout)};
    if (qn_profile_table(profile, &table, table.format == QN_TABLE_TEXT ? write_to_stdout : write_data, NULL, &error) !=
        QN_OK)
        return report_error(&error);
    if (given->memory && table.format == QN_TABLE_TEXT) {
        printf("\n");
        if (qn_profile_memory(profile, write_to_stdout, NULL, &error) != QN_OK) return report_error(&error);
    }
    if (table.format != QN_TABLE_TEXT) return EXIT_OK;
    const qn_hint_options three = {.most = 3, .colour = colours_wanted(stdout), .counters = counters};
    if (qn_profile_hints(profile, &three, profile_gather, &hints, &error) == QN_OK)
        profile_print_hints(hints.text, hints.length);
    free(hints.text);
    return EXIT_OK;
}

static int print_stalls(const qn_samples *s, qn_status sampled, const qn_error *error)
{
    if (sampled != QN_OK) {
        print_safely(stdout, "\nstalls\n  %s\n", error->message);
        return sampled == QN_FAILED ? report_error(error) : EXIT_OK;
    }
    printf("\nstalls: %lld samples of warps, %lld dropped\n", (long long)s->total, (long long)s->dropped);
    for (int i = 0; i < s->count; i++) {
        const qn_line_samples *at = &s->items[i];
        char place[600];
        place_of(at, place, sizeof(place));
        print_safely(stdout, "  %5.1f %%  %-32s most of it: %s, %.0f %%\n",
                     100.0 * (double)at->samples / (double)s->total, place, at->reason,
                     100.0 * (double)at->reason_samples / (double)at->samples);
    }
    return EXIT_OK;
}

static int profile_call(qn_context *context, qn_call *call, const arguments *given, profile_words *outputs,
                        const schedule *plan)
{
    const char *device = choose_device(context, given);
    const int *n = plan->numbers;
    int64_t runs = given->runs ? given->runs : n[2] ? (int64_t)(n[0] + n[1] + n[2]) * n[3] : 10;
    qn_error error;
    qn_profile *profile;
    struct sigaction act = {.sa_handler = on_interrupt}, before;
    static qn_samples samples;
    qn_error unsampled, uncounted;
    qn_counting *counting = NULL;
    profile_kept kept = {{0}, {0}};
    bool counts = profile_counts_wanted(given);
    bool warm =
        given->stalls || !counts; /* what is counted is the first run: recording a step runs more than its kernels */
    if (!given->schedule && warm && qn_call_run(call, device, &error) != QN_OK) return report_error(&error);
    /* First: the sampler sees nothing in a process in which the GPU was traced before. */
    qn_status sampled = given->stalls ? qn_call_sample(call, device, &samples, &unsampled) : QN_OK;
    if (given->stalls && sampled == QN_OK && given->report) keep_stalls(&samples, &kept);
    qn_status counted = counts ? count_here(context, call, device, given, &counting, &kept, &uncounted) : QN_OK;
    /* A tensor function is recorded when it runs again as it did, which is not what the runs after that cost; but what memory
     * it takes is taken then. */
    if (!given->schedule && !given->memory && qn_call_run(call, device, &error) != QN_OK) {
        qn_counting_free(counting);
        profile_remove_kept(&kept);
        return report_error(&error);
    }
    if (*kept.counters) profile_add_setting(outputs, "counters", kept.counters);
    if (*kept.stalls) profile_add_setting(outputs, "stalls", kept.stalls);
    if (qn_profile_start(context, &(qn_profile_options){.outputs = outputs->text}, &profile, &error) != QN_OK) {
        qn_counting_free(counting);
        profile_remove_kept(&kept);
        return report_error(&error);
    }
    sigaction(SIGINT, &act, &before);
    qn_status status = run_steps(profile, call, device, runs, &error);
    sigaction(SIGINT, &before, NULL);
    if (interrupted) qn_profile_interrupted(profile);
    qn_error unwritten;
    qn_status written = qn_profile_stop(profile, &unwritten);
    int exit_status = status == QN_OK ? EXIT_OK : report_error(&error);
    if (interrupted) remark("interrupted: the profile is of what ran until then");
    profile_remove_kept(&kept);
    bool one = qn_counting_count(counting) == 1;
    int printed = print_profile(profile, given, one ? &qn_counting_get(counting, 0)->counters : NULL);
    if (exit_status == EXIT_OK) exit_status = printed;
    if (counts && exit_status == EXIT_OK && (!given->counters_json || strcmp(given->counters_json, "-") != 0)) {
        printf("\n");
        qn_counting_print(counting, false, write_to_stdout, NULL);
    }
    if (counts && counted != QN_OK && uncounted.status != QN_NO_DEVICE) exit_status = report_error(&uncounted);
    qn_counting_free(counting);
    if (exit_status == EXIT_OK && given->stalls) exit_status = print_stalls(&samples, sampled, &unsampled);
    if (written != QN_OK) exit_status = report_error(&unwritten);
    qn_profile_free(profile);
    return exit_status;
}

static int profile_here(const command *self, const arguments *given, profile_words *outputs, const schedule *plan)
{
    int status = EXIT_WRONG_CALL;
    qn_module *module = NULL;
    qn_call *call = NULL;
    char room[512];
    input_files *inputs = memory_or_exit(NULL, sizeof(*inputs));
    const char *first = given->words.items[0], *end = strrchr(first, '.');
    bool source = end && (!strcmp(end, ".qn") || !strcmp(end, ".tile"));
    if (!source && strcmp(first, "-") && !access(first, X_OK)) {
        complain("`%s` is a program: put -- before it, quern profile [options] -- %s", first, first);
        free(inputs);
        return EXIT_WRONG_CALL;
    }
    if (given->words.count > 2) {
        complain("`quern profile` takes a file and a kernel; a program stands after --");
        free(inputs);
        return EXIT_WRONG_CALL;
    }
    qn_context *context = open_context(given, &status);
    if (context) module = open_module(context, given->words.items[0], &status);
    const char *kernel = module ? choose_kernel(module, self, given, &status) : NULL;
    if (kernel) kernel = spell_kernel(module, kernel, given, room, sizeof(room), &status);
    const char *device = kernel ? wanted_device(context, given, &status) : NULL;
    if (device) call = prepare_call(module, kernel, given, device, inputs, &status);
    if (call) status = profile_call(context, call, given, outputs, plan);
    qn_call_free(call);
    input_files_free(inputs);
    free(inputs);
    qn_module_free(module);
    close_context(context);
    return status;
}

/* ---- a program ---- */

int command_profile(const command *self, const arguments *given)
{
    profile_words outputs = {.length = 0};
    schedule plan = {{0}};
    if (given->separated && given->separated_at) {
        complain("a program stands after --, with the options before it: quern profile --by kernel -- ./program");
        return EXIT_WRONG_CALL;
    }
    if (!collect_words(self, given, &outputs, &plan)) return EXIT_WRONG_CALL;
    if (outputs.too_long) {
        complain("the paths of the profile's files are too long together");
        return EXIT_WRONG_CALL;
    }
    if (given->separated && given->stalls) {
        complain(
            "--stalls samples a kernel or tensor function of a file: quern profile FILE NAME --stalls. Of a program, "
            "--counters names what the warps of each kernel wait for most; `ncu --section SourceCounters %s` shows "
            "its lines",
            given->words.items[0]);
        return EXIT_WRONG_CALL;
    }
    return given->separated ? profile_program(given, &outputs) : profile_here(self, given, &outputs, &plan);
}
