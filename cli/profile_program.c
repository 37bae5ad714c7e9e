/*
 * `quern profile -- PROGRAM`: any program that uses Quern, started with QUERN_PROFILE set. It leaves its table, its state and
 * its hints in a folder of ours when it closes its context; this prints them, and says what became of it.
 * SPDX-License-Identifier: MIT
 */
#include "profile_parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

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
            if (text && kind == 3) profile_print_hints(text, strlen(text));
            if (text && (kind == 1 || (kind == 2 && given->memory))) {
                if (kind == 2) printf("\n");
                write_safely(stdout, text, strlen(text));
            }
            free(text);
        }
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
        free(names[i]);
    }
    rmdir(folder);
}

static volatile sig_atomic_t running;

static void pass_on(int number)
{
    if (running > 0) kill((pid_t)running, number);
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
    /* Ctrl-C reaches the program by itself, other signals are passed on; it writes what there is. */
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction before[3];
    running = child;
    for (int i = 0; i < 3; i++)
        sigaction(numbers[i], &(struct sigaction){.sa_handler = i ? pass_on : SIG_IGN}, &before[i]);
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) continue;
    for (int i = 0; i < 3; i++) sigaction(numbers[i], &before[i], NULL);
    running = 0;
    return state;
}

/* A run of its own, as counting runs kernels again and so has no times: what the program prints then is not shown. */
static void count_program(const arguments *given, char *counters_text, size_t size, profile_kept *kept)
{
    profile_words outputs = {.length = 0};
    if (!profile_open_temporary(counters_text, size) || !profile_open_temporary(kept->counters, sizeof(kept->counters)))
        return;
    profile_add_setting(&outputs, "count", counters_text);
    profile_add_setting(&outputs, "count_json", kept->counters);
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
        (void)profile_write_whole(given->counters_json, json, strlen(json));
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

int profile_program(const arguments *given, profile_words *outputs)
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
        profile_add(outputs, ",", false);
        profile_add(outputs, kinds[i], false);
        snprintf(path, sizeof(path), "%s/%s.", folder, kinds[i]);
        profile_add(outputs, "=", false);
        profile_add(outputs, path, true);
        profile_add(outputs, "%p.txt", false);
    }
    if (text) profile_add_setting(outputs, "hints_most", "3");
    if (outputs->too_long) {
        complain("the paths of the profile's files are too long together");
        rmdir(folder);
        return EXIT_WRONG_CALL;
    }
    char counters_text[4096] = "";
    profile_kept kept = {{0}, {0}};
    if (profile_counts_wanted(given)) count_program(given, counters_text, sizeof(counters_text), &kept);
    if (*kept.counters && given->report) profile_add_setting(outputs, "counters", kept.counters);
    child_story story = {0};
    int state = run_program(given, outputs->text, false);
    print_folder(folder, given, &story);
    if (*counters_text) {
        char *counted = read_whole_file(counters_text);
        if (counted && *counted) print_safely(stdout, "\n%s", counted);
        free(counted);
        unlink(counters_text);
    }
    profile_remove_kept(&kept);
    if (state == -1) return EXIT_WRONG_CALL;
    int status = tell_story(given, &story, state);
    if (story.finished < story.statuses || !story.statuses) {
        remove_parts(given->trace);
        remove_parts(given->folded);
        remove_parts(given->json);
        remove_parts(given->csv);
        remove_parts(given->report);
    }
    return status;
}
