/*
 * Runs commands with failures on order (shim.c) and looks at how they end. In: a list of commands, a folder of its own,
 * seconds. Out: a line for every finding, and the counts.
 *
 * Each command first runs undisturbed, then once for every operation of every kind that it was seen to do: that one
 * fails, or it and all after it. Where the seconds do not suffice the cases are spread evenly over commands, kinds and
 * numbers. Always: no signal, an end in time, words on stderr where the status is not 0, the same results where it is 0,
 * and no file that an undisturbed run does not leave.
 *
 * A line of the list: NAME WHAT COMMAND..., WHAT being `same` (stdout and files are compared), `loose` (numbers on stdout
 * may differ: times), either with `-cold` (an empty cache) or `-tells` (what fails is told on stdout) or
 * `-or-ref` (the program takes the best device and says which: without a compiler `ref` in place of `cpu`, all else the same). {q} is the quern program, {r} the root of the tree, {b}
 * the folder of built programs; the command runs in an empty folder of its own.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_COMMANDS 64
#define MOST_WORDS 40
#define LIMIT_S 180 /* a busy machine takes a minute for what compiles everything anew */

typedef struct fault {
    const char *kind;
    bool sticky;
} fault;
static const fault faults[] = {{"memory", false}, {"memory", true}, {"file", false},
                               {"file", true},    {"child", false}, {"child", true}};
enum { FAULTS = sizeof(faults) / sizeof(faults[0]) };

typedef struct command {
    char *line, *words[MOST_WORDS];
    int word_count;
    bool same, cold, tells, or_ref;
    char *output, *files, *left; /* of the undisturbed run */
    long counts[FAULTS], next[FAULTS], step[FAULTS];
} command;

static const char *quern, *root, *built, *shim, *work;
static command commands[MOST_COMMANDS];
static int command_count;
static long cases, findings, refused, survived;
static double started;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *path_of(const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", work, name) < 0) abort();
    return path;
}

static void remove_all(const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char *inner = NULL;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (asprintf(&inner, "%s/%s", path, e->d_name) < 0) abort();
        remove_all(inner);
        free(inner);
    }
    if (d) closedir(d);
    remove(path);
}

static char *read_all(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    char *words = NULL;
    size_t length = 0, got = 1;
    while (f && got) {
        words = realloc(words, length + 65537);
        if (!words) abort();
        got = fread(words + length, 1, 65536, f);
        length += got;
    }
    if (f) fclose(f);
    if (!words) words = calloc(1, 1);
    words[length] = 0;
    if (size) *size = length;
    return words;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names under a folder, sorted, a line each; with `contents`, a hash of each file. */
static void list_files(const char *path, const char *below, bool contents, FILE *out)
{
    char *names[512];
    int count = 0;
    DIR *d = opendir(path);
    for (struct dirent *e = d ? readdir(d) : NULL; e && count < 512; e = readdir(d))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) names[count++] = strdup(e->d_name);
    if (d) closedir(d);
    qsort(names, (size_t)count, sizeof(*names), by_name);
    for (int i = 0; i < count; i++) {
        char *inner = NULL, *shown = NULL;
        struct stat about;
        if (asprintf(&inner, "%s/%s", path, names[i]) < 0 || asprintf(&shown, "%s/%s", below, names[i]) < 0) abort();
        if (!lstat(inner, &about) && S_ISDIR(about.st_mode)) {
            fprintf(out, "%s/\n", shown);
            list_files(inner, shown, contents, out);
        } else {
            fprintf(out, "%s", shown);
            if (contents) {
                size_t size;
                char *words = read_all(inner, &size);
                uint64_t hash = 1469598103934665603u;
                for (size_t k = 0; k < size; k++) hash = (hash ^ (unsigned char)words[k]) * 1099511628211u;
                fprintf(out, " %llx", (unsigned long long)hash);
                free(words);
            }
            fputc('\n', out);
        }
        free(inner);
        free(shown);
        free(names[i]);
    }
}

static char *listed(const char *folder, bool contents)
{
    char *words = NULL;
    size_t size;
    FILE *out = open_memstream(&words, &size);
    list_files(folder, "", contents, out);
    fclose(out);
    return words;
}

/* A line of `after` that `before` has not; NULL: none. */
static char *new_line(const char *after, const char *before)
{
    for (const char *at = after; *at;) {
        size_t length = strcspn(at, "\n");
        bool found = false;
        for (const char *b = before; *b && !found;) {
            size_t other = strcspn(b, "\n");
            found = other == length && !strncmp(b, at, length);
            b += other + (b[other] == '\n');
        }
        if (!found) return strndup(at, length);
        at += length + (at[length] == '\n');
    }
    return NULL;
}

/* A folder for each command: what one makes is no finding of another. */
static const char *cache_of(const command *c)
{
    static char name[300];
    snprintf(name, sizeof(name), "cache-%s", c->line);
    return name;
}

/* Gives the wait status; -1: it did not end. */
static int run(const command *c, int number, long at)
{
    char *cell = path_of("cell"), *temporary = path_of("tmp"), *count = path_of("count"), *cache = path_of(cache_of(c));
    char *out = path_of("out"), *err = path_of("err"), words[32];
    char *cold = path_of("cold");
    remove_all(cell), remove_all(temporary), remove_all(cold);
    mkdir(cell, 0700), mkdir(temporary, 0700), mkdir(cold, 0700);
    remove(count);
    pid_t child = fork();
    if (!child) {
        setpgid(0, 0);
        if (chdir(cell)) _exit(120);
        int o = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600), e = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        int in = open("/dev/null", O_RDONLY);
        dup2(in, 0), dup2(o, 1), dup2(e, 2);
        close(in), close(o), close(e);
        snprintf(words, sizeof(words), "%ld", at);
        setenv("TMPDIR", temporary, 1);
        setenv("QUERN_CACHE", c->cold ? cold : cache, 1);
        setenv("QUERN_COLOR", "0", 1);
        if (number >= 0) {
            const char *slash = strrchr(c->words[0], '/');
            setenv("LD_PRELOAD", shim, 1);
            setenv("FAULT_KIND", faults[number].kind, 1);
            setenv("FAULT_AT", words, 1);
            setenv("FAULT_COUNT", count, 1);
            setenv("FAULT_WHO", slash ? slash + 1 : c->words[0], 1);
            if (faults[number].sticky) setenv("FAULT_STICKY", "1", 1);
        }
        execvp(c->words[0], c->words);
        _exit(121);
    }
    int status = -1;
    double limit = now_s() + LIMIT_S;
    while (waitpid(child, &status, WNOHANG) != child) {
        if (now_s() > limit) {
            kill(-child, SIGKILL);
            waitpid(child, &status, 0);
            status = -1;
            break;
        }
        usleep(1000);
    }
    free(cell), free(temporary), free(count), free(cache), free(out), free(err), free(cold);
    return status;
}

/* Takes the whole entries of a cache, a library and its key, out of a list of files: which ones a run keeps depends on the
 * compiler it found and on how far it came. */
static void drop_entries(char *all, const char *cache)
{
    char *to = all;
    for (char *line = all, *end; *line; line = end) {
        end = strchr(line, '\n');
        end = end ? end + 1 : line + strlen(line);
        size_t length = (size_t)(end - line) - (end[-1] == '\n');
        bool library = length > 3 && !strncmp(line + length - 3, ".so", 3);
        bool key = length > 4 && !strncmp(line + length - 4, ".key", 4), whole = false;
        if (!strncmp(line, "cache/quern-", 12) && (library || key)) {
            char *other = NULL;
            int stem = (int)(length - 6) - (library ? 3 : 4);
            if (asprintf(&other, "%s/%.*s%s", cache, stem, line + 6, library ? ".key" : ".so") < 0) abort();
            whole = !access(other, F_OK);
            free(other);
        }
        if (!whole) to = (char *)memmove(to, line, (size_t)(end - line)) + (end - line);
    }
    *to = 0;
}

/* Names of TensorBoard's files have the time and the process in them. */
static void mask_numbers(char *all)
{
    static const char mark[] = "events.out.tfevents.";
    for (char *at = all; (at = strstr(at, mark));) {
        char *to = at += sizeof(mark) - 1; /* runs of digits are as long as they are: one stands for all */
        for (; *at && *at != '\n'; at++)
            if (*at < '0' || *at > '9' || at[1] < '0' || at[1] > '9') *to++ = *at >= '0' && *at <= '9' ? '0' : *at;
        memmove(to, at, strlen(at) + 1);
        at = to;
    }
}

static char *left_over(const command *c, bool disturbed)
{
    char *folders[] = {path_of("tmp"), path_of(c->cold ? "cold" : cache_of(c)), path_of("cell")}, *all = NULL;
    size_t size;
    FILE *out = open_memstream(&all, &size);
    for (int i = 0; i < 3; i++) {
        list_files(folders[i], i == 0 ? "tmp" : i == 1 ? "cache" : "cell", false, out);
    }
    fclose(out);
    if (disturbed) drop_entries(all, folders[1]);
    mask_numbers(all);
    for (int i = 0; i < 3; i++) free(folders[i]);
    return all;
}

static void finding(const command *c, int number, long at, const char *what)
{
    findings++;
    char *err = path_of("err"), *said = read_all(err, NULL);
    printf("FINDING %s: %s %s%ld: %s; stderr: %.200s\n", c->line, faults[number].kind,
           faults[number].sticky ? ">=" : "", at, what, said);
    fflush(stdout);
    free(err);
    free(said);
}

/* The same words, but for the device. */
static bool same_on_ref(const char *output, const char *undisturbed)
{
    while (*output && *undisturbed) {
        bool device = !strncmp(undisturbed, "cpu", 3) && !strncmp(output, "ref", 3);
        if (!device && *output != *undisturbed) return false;
        output += device ? 3 : 1;
        undisturbed += device ? 3 : 1;
    }
    return *output == *undisturbed;
}

static void look(const command *c, int number, long at)
{
    int status = run(c, number, at);
    char *out = path_of("out"), *err = path_of("err"), *cell = path_of("cell"), words[200];
    char *output = read_all(out, NULL), *said = read_all(err, NULL), *files = listed(cell, true),
         *left = left_over(c, true);
    cases++;
    if (status == -1) {
        finding(c, number, at, "it did not end");
    } else if (WIFSIGNALED(status)) {
        snprintf(words, sizeof(words), "signal %d", WTERMSIG(status));
        finding(c, number, at, words);
    } else if (WEXITSTATUS(status) >= 90) {
        snprintf(words, sizeof(words), "status %d", WEXITSTATUS(status));
        finding(c, number, at, words);
    } else if (WEXITSTATUS(status)) {
        refused++;
        if (!*said && !(c->tells && *output)) finding(c, number, at, "a status without a word");
    } else {
        survived++;
        if (c->same && strcmp(output, c->output) && !(c->or_ref && same_on_ref(output, c->output)))
            finding(c, number, at, "success, and another output");
        if (c->same && strcmp(files, c->files)) finding(c, number, at, "success, and other files");
    }
    char *more = new_line(left, c->left);
    if (more) {
        snprintf(words, sizeof(words), "it left %.150s", more);
        finding(c, number, at, words);
        /* What a shared cache keeps now is no finding of the next case. */
        char *cache = path_of(cache_of(c));
        if (!c->cold && !strncmp(more, "cache", 5)) {
            char *inner = NULL;
            if (asprintf(&inner, "%s%s", cache, more + 5) < 0) abort();
            remove_all(inner);
            free(inner);
        }
        free(cache);
    }
    free(out), free(err), free(cell), free(output), free(said), free(files), free(left), free(more);
}

static char *expand(const char *word)
{
    char *out = NULL;
    size_t size;
    FILE *f = open_memstream(&out, &size);
    for (; *word; word++) {
        const char *with = !strncmp(word, "{q}", 3)   ? quern
                           : !strncmp(word, "{r}", 3) ? root
                           : !strncmp(word, "{b}", 3) ? built
                                                      : NULL;
        if (with) {
            fputs(with, f);
            word += 2;
        } else {
            fputc(*word, f);
        }
    }
    fclose(f);
    return out;
}

static bool read_commands(const char *path, const char *only)
{
    FILE *f = fopen(path, "r");
    char line[4096];
    if (!f) return false;
    while (fgets(line, sizeof(line), f) && command_count < MOST_COMMANDS) {
        line[strcspn(line, "\n")] = 0;
        if (!line[0] || line[0] == '#') continue;
        command *c = &commands[command_count];
        *c = (command){0};
        char *at = line, *name = strsep(&at, " "), *what = strsep(&at, " ");
        if (only && !strstr(name, only)) continue;
        c->line = strdup(name);
        c->same = !strncmp(what, "same", 4);
        c->cold = strstr(what, "-cold") != NULL;
        c->tells = strstr(what, "-tells") != NULL;
        c->or_ref = strstr(what, "-or-ref") != NULL;
        for (char *word; (word = strsep(&at, " ")) && c->word_count + 1 < MOST_WORDS;)
            if (*word) c->words[c->word_count++] = expand(word);
        command_count++;
    }
    fclose(f);
    return true;
}

/* The undisturbed run, and how many operations of each kind there are. */
static bool prepare(command *c)
{
    if (!c->cold) (void)run(c, -1, 0); /* fills the cache */
    int status = run(c, 0, 0);
    char *out = path_of("out"), *cell = path_of("cell"), *count = path_of("count");
    c->output = read_all(out, NULL);
    c->files = listed(cell, true);
    c->left = left_over(c, false);
    bool good = WIFEXITED(status) && !WEXITSTATUS(status);
    if (!good) {
        char *err = path_of("err"), *said = read_all(err, NULL);
        printf("FINDING %s: it fails undisturbed: %.300s\n", c->line, said);
        free(err), free(said);
        findings++;
    }
    if (good) {
        char *words = read_all(count, NULL), *at = words;
        for (int i = 0; i < FAULTS; i += 2) c->counts[i] = c->counts[i + 1] = strtol(at, &at, 10);
        free(words);
    }
    free(out), free(cell), free(count);
    return good;
}

int main(int count, char **words)
{
    double seconds = 0;
    const char *list = NULL, *only = NULL;
    long seed = 1;
    for (int i = 1; i + 1 < count; i += 2) {
        const char *value = words[i + 1];
        if (!strcmp(words[i], "--quern")) quern = value;
        if (!strcmp(words[i], "--root")) root = value;
        if (!strcmp(words[i], "--built")) built = value;
        if (!strcmp(words[i], "--shim")) shim = value;
        if (!strcmp(words[i], "--work")) work = value;
        if (!strcmp(words[i], "--list")) list = value;
        if (!strcmp(words[i], "--only")) only = value;
        if (!strcmp(words[i], "--seconds")) seconds = atof(value);
        if (!strcmp(words[i], "--seed")) seed = atol(value);
    }
    if (!quern || !root || !built || !shim || !work || !list || !read_commands(list, only)) {
        fprintf(stderr, "usage: fault_driver --quern Q --root R --built B --shim S --work FOLDER --list FILE "
                        "[--seconds N] [--seed N] [--only WORD]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    started = now_s();
    long total = 0;
    for (int i = 0; i < command_count; i++) {
        command *c = &commands[i];
        if (!prepare(c)) continue;
        for (int k = 0; k < FAULTS; k++) total += c->counts[k];
    }
    /* Round after round, one number of each; the numbers go through all of a kind in steps that meet every one. */
    uint64_t state = (uint64_t)seed * 6364136223846793005u + 1442695040888963407u;
    started = now_s();
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < command_count; i++)
            for (int k = 0; k < FAULTS; k++) {
                command *c = &commands[i];
                long n = c->counts[k];
                if (c->next[k] >= n || (seconds > 0 && now_s() - started > seconds)) continue;
                if (!c->step[k]) {
                    state = state * 6364136223846793005u + 1442695040888963407u;
                    c->step[k] = 1 + (long)((state >> 33) % (uint64_t)n); /* where it begins */
                }
                long stride = n > 8 ? (long)((double)n * 0.6180339887) | 1 : 1, a = stride, b = n;
                while (b) { /* a step that has a factor in common would not meet all */
                    long rest = a % b;
                    a = b;
                    b = rest;
                }
                if (a != 1) stride = 1;
                look(c, k, 1 + (c->step[k] + c->next[k]++ * stride) % n);
                more = true;
            }
    }
    printf("%ld of %ld cases of %d commands in %.0f s: %ld refused, %ld survived, %ld findings\n", cases, total,
           command_count, now_s() - started, refused, survived, findings);
    printf("%ld passed, %ld failed\n", cases - (findings < cases ? findings : cases), findings);
    return findings != 0;
}
