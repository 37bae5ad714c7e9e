/*
 * Profiles from outside: QUERN_PROFILE=trace=run.json.gz,table=run.txt ./program. In: contexts that open and close. Out:
 * a profile of the first one, written when it closes, when the program ends without closing it, or when a signal that
 * would end it (SIGINT, SIGTERM) comes; later contexts get profiles of their own, numbered.
 *
 * The profile is of the process, as recording is (docs/decisions/010). A signal only wakes a thread, which does the
 * writing and then lets the signal have its way.
 * SPDX-License-Identifier: MIT
 */
#include "profile/measure/counters.h"
#include "profile/session.h"
#include "profile/sink.h"
#include "run/run.h"

#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    qn_counting *counting; /* instead of a profile: `count=FILE` */
    char *count_paths[2];  /* text and JSON; NULL: not wanted */
    qn_profile *profile;   /* that runs; NULL: none */
    qn_context *context;   /* whose opening started it */
    bool writing;          /* a thread is at its files: nobody leaves before they are whole */
    pthread_cond_t written;
    int started;
    bool watched;
    sem_t wake;
    volatile sig_atomic_t signal_number;
} of_process = {.lock = PTHREAD_MUTEX_INITIALIZER, .written = PTHREAD_COND_INITIALIZER};

qn_profile *profile_of_environment(void)
{
    lock_take(&of_process.lock);
    qn_profile *p = of_process.profile;
    lock_give(&of_process.lock);
    return p;
}

/* Stops it and writes its files; once. Who comes meanwhile waits until they are written. */
static void finish(void)
{
    lock_take(&of_process.lock);
    qn_profile *p = of_process.profile;
    qn_context *context = of_process.context;
    of_process.profile = NULL;
    while (!p && of_process.writing) pthread_cond_wait(&of_process.written, &of_process.lock);
    if (p) of_process.writing = true;
    lock_give(&of_process.lock);
    if (!p) return;
    qn_error error;
    if (qn_profile_stop(p, &error) != QN_OK) context_say(context, "QUERN_PROFILE: %s", error.message);
    qn_profile_free(p);
    lock_take(&of_process.lock);
    of_process.writing = false;
    pthread_cond_broadcast(&of_process.written);
    lock_give(&of_process.lock);
}

/* ---- counting: QUERN_PROFILE=count=FILE,count_json=FILE, a run of its own ---- */

static void write_to_sink(void *user, const char *words, size_t length)
{
    sink_add(user, words, length);
}

/* The program's own lines may stand between: each of these is a line. */
static void tell_counted(int counted, const char *kernel)
{
    fprintf(stderr, "quern: %d kernel%s counted, now %s\n", counted, counted == 1 ? "" : "s", kernel);
}

static void finish_counting(void)
{
    lock_take(&of_process.lock);
    qn_counting *c = of_process.counting;
    of_process.counting = NULL;
    lock_give(&of_process.lock);
    if (!c) return;
    qn_error ignored; /* the text says it */
    (void)!qn_counting_stop(c, &ignored);
    for (int i = 0; i < 2; i++) {
        sink *to;
        if (!of_process.count_paths[i] || sink_open(of_process.count_paths[i], &to, NULL) != QN_OK) continue;
        qn_counting_print(c, i == 1, write_to_sink, to);
        (void)!sink_close(to, true, NULL);
    }
    qn_counting_free(c);
}

/* Paths as they are written in the words: a backslash takes the next character as it is. */
static char *path_behind(const char *words, const char *key)
{
    const char *at = strstr(words, key);
    text path = {0};
    while (at && at != words && at[-1] != ',') at = strstr(at + 1, key);
    if (!at) return NULL;
    for (at += strlen(key); *at && *at != ','; at++) {
        if (*at == '\\' && at[1]) at++;
        text_add_bytes(&path, at, 1);
    }
    char *copy = strdup(text_get(&path));
    text_free(&path);
    return copy;
}

static bool start_counting(qn_context *context, const char *words, qn_status *status, qn_error *error)
{
    static const char *const names[] = {"count=", "count_json="};
    bool wanted = of_process.count_paths[0] || of_process.count_paths[1];
    for (int i = 0; i < 2 && !wanted; i++) of_process.count_paths[i] = path_behind(words, names[i]);
    if (!of_process.count_paths[0] && !of_process.count_paths[1]) return false;
    *status = QN_OK;
    if (wanted) return true; /* the first context of the process is counted */
    *status = qn_counting_start(context, &of_process.counting, error);
    if (*status == QN_OK) counting_tell(of_process.counting, tell_counted);
    of_process.context = context;
    atexit(finish_counting);
    return true;
}

/* ---- signals ---- */

static void on_signal(int number)
{
    of_process.signal_number = number;
    sem_post(&of_process.wake);
}

static void *watch(void *unused)
{
    (void)unused;
    while (sem_wait(&of_process.wake)) continue;
    int number = of_process.signal_number;
    lock_take(&of_process.lock);
    qn_profile_interrupted(of_process.profile);
    lock_give(&of_process.lock);
    finish();
    qn_clear_up();
    signal(number, SIG_DFL);
    raise(number);
    return NULL;
}

/* Only signals that would end the program: who handles them himself closes his contexts. */
static void watch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    pthread_t thread;
    if (of_process.watched || sem_init(&of_process.wake, 0, 0) || pthread_create(&thread, NULL, watch, NULL)) return;
    pthread_detach(thread);
    of_process.watched = true;
    for (int i = 0; i < COUNT(numbers); i++) {
        struct sigaction now;
        if (sigaction(numbers[i], NULL, &now) || now.sa_handler != SIG_DFL) continue;
        now = (struct sigaction){.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigaction(numbers[i], &now, NULL);
    }
}

/* ---- contexts ---- */

/* The files of the second profile are run.2.json and run.2.txt: the number stands before the last part that has a dot. */
static void number_files(const char *words, int number, text *out)
{
    static const char *const files[] = {
        "trace=", "folded=", "table=", "csv=", "json=", "markdown=", "memory=", "hints=", "report=", "status="};
    if (number < 2) {
        text_add(out, words);
        return;
    }
    while (*words) {
        size_t length = 0;
        while (words[length] && words[length] != ',') length += words[length] == '\\' && words[length + 1] ? 2 : 1;
        size_t end = length;
        for (size_t i = length; i > 0 && words[i - 1] != '/' && words[i - 1] != '='; i--)
            if (words[i - 1] == '.') end = i - 1;
        bool path = false;
        for (int i = 0; i < COUNT(files); i++) path |= !strncmp(words, files[i], strlen(files[i]));
        text_add_bytes(out, words, path ? end : length);
        if (path) text_print(out, ".%d%.*s", number, (int)(length - end), words + end);
        words += length;
        if (*words) text_add_bytes(out, words++, 1);
    }
}

static qn_status opened(qn_context *context, qn_error *error)
{
    const char *words = environment_get("QUERN_PROFILE");
    if (!words) return QN_OK;
    qn_status status = QN_OK;
    text outputs = {0};
    lock_take(&of_process.lock);
    if (!start_counting(context, words, &status, error) && !of_process.profile) {
        qn_error inner;
        number_files(words, of_process.started + 1, &outputs);
        status = qn_profile_start(context, &(qn_profile_options){.outputs = text_get(&outputs)}, &of_process.profile,
                                  &inner);
        if (status == QN_OK) {
            if (!of_process.started++) atexit(finish);
            of_process.context = context;
            watch_signals();
        } else if (record_is_on()) {
            status = QN_OK; /* the program has a profile of its own: that one goes on */
        } else {
            error_set(error, status, "QUERN_PROFILE: %s", inner.message);
        }
    }
    lock_give(&of_process.lock);
    text_free(&outputs);
    return status;
}

static void closing(const qn_context *context)
{
    lock_take(&of_process.lock);
    bool counted = of_process.counting && of_process.context == context;
    bool ends = (of_process.profile || of_process.writing) && of_process.context == context;
    lock_give(&of_process.lock);
    if (counted) finish_counting();
    if (ends) finish();
}

qn_status qn_context_open(const qn_context_options *options, qn_context **out, qn_error *error)
{
    HEAP_ENTER(error);
    QN_TRY(context_open(options, out, error));
    qn_status status = opened(*out, error);
    if (status != QN_OK) {
        qn_context_close(*out);
        *out = NULL;
    }
    return status;
}

void qn_context_close(qn_context *context)
{
    if (!context || heap_is_stopped()) return;
    closing(context);
    context_close(context);
}
