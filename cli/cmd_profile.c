/*
 * `quern profile`: where the time goes. Of a kernel or a tensor function, which runs here a few times; or of any program
 * that uses Quern, which is started with QUERN_PROFILE set: it leaves its table in a folder of ours when it closes its
 * context, and this prints it.
 *
 * What can be wrong with the options or the files is found before anything runs.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <quern/profile.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* ---- what to write, in the words of QUERN_PROFILE ---- */

typedef struct words {
    char text[8192];
    size_t length;
    bool too_long;
} words;

static void add(words *w, const char *text, bool quoted)
{
    for (; *text; text++) {
        bool special = quoted && (*text == ',' || *text == '\\' || *text == '%');
        if (w->length + 3 > sizeof(w->text)) {
            w->too_long = true;
            return;
        }
        if (special) w->text[w->length++] = '\\';
        w->text[w->length++] = *text;
    }
    w->text[w->length] = 0;
}

static void add_setting(words *w, const char *key, const char *value)
{
    if (!value) return;
    if (w->length) add(w, ",", false);
    add(w, key, false);
    add(w, "=", false);
    add(w, value, true);
}

/* From the root, as the program may go to another folder. */
static void add_path(words *w, const char *key, const char *path)
{
    char here[4096], whole[8192];
    if (!path) return;
    if (path[0] != '/' && getcwd(here, sizeof(here))) {
        snprintf(whole, sizeof(whole), "%s/%s", here, path);
        path = whole;
    }
    add_setting(w, key, path);
}

static void add_whole(words *w, const char *key, long number)
{
    char digits[32];
    snprintf(digits, sizeof(digits), "%ld", number);
    add_setting(w, key, digits);
}

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

static bool collect_words(const command *self, const arguments *given, words *w, schedule *plan)
{
    char room[2000];
    static const char *const keys[] = {"wait", "warmup", "active", "repeat"};
    add_path(w, "trace", given->trace);
    add_path(w, "tensorboard", given->tensorboard);
    add_path(w, "folded", given->folded);
    add_path(w, "json", given->json);
    add_path(w, "csv", given->csv);
    add_path(w, "report", given->report);
    if (given->report) add_setting(w, "command", typed_words(self, given, room, sizeof(room)));
    add_setting(w, "by", given->by);
    add_setting(w, "sort", given->sort);
    add_setting(w, "format", given->format);
    if (given->rows) add_whole(w, "rows", (long)given->rows);
    if (given->nodes) add_whole(w, "nodes", 1);
    if (given->nvtx) add_whole(w, "nvtx", 1);
    if (!given->schedule) return true;
    if (!read_schedule(given->schedule, plan)) return false;
    for (int i = 0; i < 4; i++) add_whole(w, keys[i], plan->numbers[i]);
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

typedef struct gathered {
    char *text;
    size_t length;
} gathered;

static void gather(void *user, const char *text, size_t length)
{
    gathered *g = user;
    g->text = memory_or_exit(g->text, g->length + length + 1);
    memcpy(g->text + g->length, text, length);
    g->length += length;
    g->text[g->length] = 0;
}

static void print_hints(const char *text, size_t length)
{
    if (!length) return;
    printf("\nhints\n");
    write_safely(stdout, text, length);
}

/* One of the names that the library has checked. */
static int choice(const char *word, const char *const *names, int count)
{
    for (int i = 0; word && i < count; i++)
        if (!strcmp(word, names[i])) return i;
    return 0;
}

/* ---- counters and stalls, for the terminal and for the report ---- */

/* Files beside the profile that the report reads; removed at the end. */
typedef struct kept_files {
    char counters[4096], stalls[4096]; /* empty: there is none */
} kept_files;

static bool open_temporary(char *path, size_t size)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, size, "%s/quern-counters-XXXXXX", folder && *folder ? folder : "/tmp");
    int file = mkstemp(path);
    if (file < 0) {
        complain("cannot make a file like %s: %s", path, strerror(errno));
        *path = 0;
        return false;
    }
    close(file);
    return true;
}

static bool write_whole(const char *path, const char *text, size_t length)
{
    FILE *to = !strcmp(path, "-") ? stdout : fopen(path, "wb");
    bool good = to && fwrite(text, 1, length, to) == length;
    if (to && to != stdout) good &= !fclose(to);
    if (!good) complain("cannot write %s: %s", path, strerror(errno));
    return good;
}

static void remove_kept(const kept_files *kept)
{
    if (*kept->counters) unlink(kept->counters);
    if (*kept->stalls) unlink(kept->stalls);
}

static bool counts_wanted(const arguments *given)
{
    return given->counters || given->counters_json;
}

/* Counts the kernels of one run. */
static qn_status count_here(qn_context *context, qn_call *call, const char *device, const arguments *given,
                            qn_counting **counting, kept_files *kept, qn_error *error)
{
    if (qn_counting_start(context, counting, error) != QN_OK) return error->status;
    qn_status ran = qn_call_run(call, device, error);
    qn_error refusal;
    qn_status status = qn_counting_stop(*counting, &refusal);
    if (ran != QN_OK) return ran;
    if (status != QN_OK) *error = refusal;
    gathered all = {0};
    gather(&all, "", 0);
    qn_counting_print(*counting, true, gather, &all);
    if (given->counters_json && !write_whole(given->counters_json, all.text, all.length)) status = QN_FAILED;
    if (given->report && qn_counting_count(*counting) && open_temporary(kept->counters, sizeof(kept->counters)))
        (void)write_whole(kept->counters, all.text, all.length);
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

static void keep_stalls(const qn_samples *s, kept_files *kept)
{
    char place[600];
    if (!s->count || !open_temporary(kept->stalls, sizeof(kept->stalls))) return;
    FILE *to = fopen(kept->stalls, "w");
    for (int i = 0; to && i < s->count; i++) {
        const qn_line_samples *at = &s->items[i];
        place_of(at, place, sizeof(place));
        for (char *c = place; *c; c++)
            if (*c == '"' || *c == '\\' || (unsigned char)*c < 32) *c = '?';
        fprintf(to,
                "%s\n {\"place\": \"%s\", \"samples\": %lld, \"share_percent\": %.4f, \"reason\": \"%s\", "
                "\"reason_percent\": %.2f}",
                i ? "," : "[", place, (long long)at->samples, 100.0 * (double)at->samples / (double)s->total,
                at->reason, 100.0 * (double)at->reason_samples / (double)at->samples);
    }
    if (to) fprintf(to, "\n]\n");
    if (to) fclose(to);
}

static int print_profile(qn_profile *profile, const arguments *given, const qn_counters *counters)
{
    static const char *const groupings[] = {"op", "shape", "kernel", "range"};
    static const char *const formats[] = {"text", "csv", "json", "markdown"};
    qn_error error;
    gathered hints = {0};
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
    if (qn_profile_hints(profile, &three, gather, &hints, &error) == QN_OK) print_hints(hints.text, hints.length);
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
        printf("  %5.1f %%  %-32s most of it: %s, %.0f %%\n", 100.0 * (double)at->samples / (double)s->total, place,
               at->reason, 100.0 * (double)at->reason_samples / (double)at->samples);
    }
    return EXIT_OK;
}

static int profile_call(qn_context *context, qn_call *call, const arguments *given, words *outputs,
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
    kept_files kept = {{0}, {0}};
    bool counts = counts_wanted(given);
    bool warm =
        given->stalls || !counts; /* what is counted is the first run: recording a step runs more than its kernels */
    if (!given->schedule && warm && qn_call_run(call, device, &error) != QN_OK) return report_error(&error);
    /* First: the sampler sees nothing in a process in which the GPU was traced before. */
    qn_status sampled = given->stalls ? qn_call_sample(call, device, &samples, &unsampled) : QN_OK;
    if (given->stalls && sampled == QN_OK && given->report) keep_stalls(&samples, &kept);
    qn_status counted = counts ? count_here(context, call, device, given, &counting, &kept, &uncounted) : QN_OK;
    if (*kept.counters) add_setting(outputs, "counters", kept.counters);
    if (*kept.stalls) add_setting(outputs, "stalls", kept.stalls);
    if (qn_profile_start(context, &(qn_profile_options){.outputs = outputs->text}, &profile, &error) != QN_OK) {
        qn_counting_free(counting);
        remove_kept(&kept);
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
    remove_kept(&kept);
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

static int profile_here(const command *self, const arguments *given, words *outputs, const schedule *plan)
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

/* The whole file, or NULL. On the heap. */
static char *read_whole_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char part[4096];
    gathered all = {0};
    size_t got;
    if (!file) return NULL;
    gather(&all, "", 0);
    while ((got = fread(part, 1, sizeof(part), file)) > 0) gather(&all, part, got);
    fclose(file);
    return all.text;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names in a folder, sorted; on the heap. */
static int list_folder(const char *folder, char **names, int most)
{
    int count = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e = d ? readdir(d) : NULL; e && count < most; e = readdir(d))
        if (e->d_name[0] != '.') names[count++] = strcpy(memory_or_exit(NULL, strlen(e->d_name) + 1), e->d_name);
    if (d) closedir(d);
    qsort(names, (size_t)count, sizeof(*names), by_name);
    return count;
}

/* What a process that was killed leaves beside the file it was writing: PATH.NUMBER.NUMBER.part */
static void remove_parts(const char *path)
{
    char folder[4096], *names[MOST_WORDS];
    if (!path) return;
    snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    const char *base = slash ? path + (slash - folder) + 1 : path;
    snprintf(slash ? slash : folder, slash ? 1 : sizeof(folder), "%s", slash ? "" : ".");
    int count = list_folder(*folder ? folder : "/", names, MOST_WORDS);
    for (int i = 0; i < count; i++) {
        char whole[8192];
        size_t length = strlen(names[i]), own = strlen(base);
        snprintf(whole, sizeof(whole), "%s/%s", folder, names[i]);
        if (length > own + 5 && !strncmp(names[i], base, own) && names[i][own] == '.' &&
            !strcmp(names[i] + length - 5, ".part"))
            unlink(whole);
        free(names[i]);
    }
}

typedef struct child_story {
    int statuses, finished;
    long long kernels;
    bool failed;
} child_story;

/* One status file of the folder: what its process told. */
static void read_status(const char *text, child_story *story)
{
    story->statuses++;
    const char *kernels = strstr(text, "kernels "), *error = strstr(text, "error ");
    if (!kernels) return;
    story->finished++;
    story->kernels += atoll(kernels + 8);
    if (!error) return;
    complain("%.*s", (int)strcspn(error + 6, "\n"), error + 6);
    story->failed = true;
}

static void print_folder(const char *folder, const arguments *given, child_story *story)
{
    static const char *const kinds[] = {"status.", "table.", "memory.", "hints."};
    char *names[MOST_WORDS], path[8192];
    int count = list_folder(folder, names, MOST_WORDS);
    for (int kind = 0; kind < 4; kind++)
        for (int i = 0; i < count; i++) {
            if (strncmp(names[i], kinds[kind], strlen(kinds[kind]))) continue;
            snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
            char *text = read_whole_file(path);
            if (text && kind == 0) read_status(text, story);
            if (text && kind == 3) print_hints(text, strlen(text));
            if (text && (kind == 1 || (kind == 2 && given->memory))) printf("%s%s", kind == 2 ? "\n" : "", text);
            free(text);
        }
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
        free(names[i]);
    }
    rmdir(folder);
}

/* Starts it with QUERN_PROFILE and waits; silent: what it prints goes nowhere; -1: it could not be started. */
static int run_program(const arguments *given, const char *outputs, bool silent)
{
    char *arguments_of[MOST_WORDS + 1];
    pid_t child;
    int state = 0;
    for (int i = 0; i < given->words.count; i++) arguments_of[i] = (char *)given->words.items[i];
    arguments_of[given->words.count] = NULL;
    if (setenv("QUERN_PROFILE", outputs, 1)) return -1;
    fflush(stdout);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (silent) posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    int failed = posix_spawnp(&child, arguments_of[0], &actions, NULL, arguments_of, environ);
    posix_spawn_file_actions_destroy(&actions);
    unsetenv("QUERN_PROFILE");
    if (failed) {
        complain("cannot run %s: %s", arguments_of[0], strerror(failed));
        return -1;
    }
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGINT, &ignore, &before); /* it goes to the program, which writes what there is */
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) continue;
    sigaction(SIGINT, &before, NULL);
    return state;
}

/* A run of its own, as counting runs kernels again and so has no times: what the program prints then is not shown. */
static void count_program(const arguments *given, char *counters_text, size_t size, kept_files *kept)
{
    words outputs = {.length = 0};
    if (!open_temporary(counters_text, size) || !open_temporary(kept->counters, sizeof(kept->counters))) return;
    add_setting(&outputs, "count", counters_text);
    add_setting(&outputs, "count_json", kept->counters);
    remark("%s runs twice: once to count its kernels (its output is not shown), then for the profile",
           given->words.items[0]);
    int state = run_program(given, outputs.text, true);
    if (state != 0 && state != -1)
        remark("%s ended with status %d while its kernels were counted", given->words.items[0],
               WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state));
    char *json = read_whole_file(kept->counters);
    if (!json || !*json) { /* it opened no context, or was killed */
        unlink(kept->counters);
        *kept->counters = 0;
    } else if (given->counters_json) {
        (void)write_whole(given->counters_json, json, strlen(json));
    }
    free(json);
}

static int tell_story(const arguments *given, const child_story *story, int state)
{
    const char *program = given->words.items[0];
    int code = WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
    if (WIFSIGNALED(state) && story->finished)
        remark("%s was ended by signal %d (%s): the profile is of what ran until then", program, WTERMSIG(state),
               strsignal(WTERMSIG(state)));
    else if (WIFSIGNALED(state))
        complain("%s was ended by signal %d (%s) before its profile was written; nothing of it is left", program,
                 WTERMSIG(state), strsignal(WTERMSIG(state)));
    else if (!story->statuses)
        complain("%s ended without opening a context of Quern: there is nothing to profile (is it linked with "
                 "libquern?)",
                 program);
    else if (!story->finished)
        complain("%s ended in the middle of its profile (_exit, or a crash of its own making); nothing of it is left",
                 program);
    else if (!story->kernels)
        remark("%s launched no kernel while it was profiled", program);
    if (code) return code;
    return story->finished && !story->failed ? EXIT_OK : EXIT_FINDING;
}

static int profile_program(const arguments *given, words *outputs)
{
    const char *temporary = getenv("TMPDIR");
    char folder[4096], path[8192];
    qn_error error;
    qn_profile *probe;
    /* The words and the files are tried here, so that the program does not run for nothing. */
    if (qn_profile_start(NULL, &(qn_profile_options){.outputs = outputs->text}, &probe, &error) != QN_OK)
        return report_error(&error);
    qn_profile_free(probe);
    snprintf(folder, sizeof(folder), "%s/quern-profile-XXXXXX", temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(folder)) {
        complain("cannot make a folder like %s: %s", folder, strerror(errno));
        return EXIT_WRONG_CALL;
    }
    const char *const kinds[] = {"table", "status", "memory", "hints"};
    bool text = !given->format || !strcmp(given->format, "text");
    for (int i = 0; i < 4; i++) {
        if ((i == 2 && !(given->memory && text)) || (i == 3 && !text)) continue;
        add(outputs, ",", false);
        add(outputs, kinds[i], false);
        snprintf(path, sizeof(path), "%s/%s.", folder, kinds[i]);
        add(outputs, "=", false);
        add(outputs, path, true);
        add(outputs, "%p.txt", false);
    }
    if (text) add_setting(outputs, "hints_most", "3");
    if (outputs->too_long) {
        complain("the paths of the profile's files are too long together");
        rmdir(folder);
        return EXIT_WRONG_CALL;
    }
    char counters_text[4096] = "";
    kept_files kept = {{0}, {0}};
    if (counts_wanted(given)) count_program(given, counters_text, sizeof(counters_text), &kept);
    if (*kept.counters && given->report) add_setting(outputs, "counters", kept.counters);
    child_story story = {0};
    int state = run_program(given, outputs->text, false);
    print_folder(folder, given, &story);
    if (*counters_text) {
        char *counted = read_whole_file(counters_text);
        if (counted && *counted) print_safely(stdout, "\n%s", counted);
        free(counted);
        unlink(counters_text);
    }
    remove_kept(&kept);
    if (state == -1) return EXIT_WRONG_CALL;
    int status = tell_story(given, &story, state);
    if (story.finished < story.statuses || !story.statuses) {
        remove_parts(given->trace);
        remove_parts(given->folded);
        remove_parts(given->json);
        remove_parts(given->csv);
        remove_parts(given->report);
        remove_parts(given->report);
    }
    return status;
}

int command_profile(const command *self, const arguments *given)
{
    words outputs = {.length = 0};
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
