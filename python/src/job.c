/*
 * Work that may take long, such as compiling. In: a function. Out: its status, as an exception where it failed. It runs on
 * a thread of its own without the GIL; the caller's thread waits, runs Python's signal handlers ten times a second and
 * tells after a second what it waits for. An interrupted job is left to itself: it frees what it has when it ends.
 * SPDX-License-Identifier: MIT
 */
#include "python.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct job {
    pthread_mutex_t lock;
    pthread_cond_t over;
    bool done, abandoned;
    job_function *function;
    void *context;
    void (*abandon)(void *context);
    qn_status status;
    qn_error error;
} job;

static void job_free(job *j)
{
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->over);
    free(j);
}

static void *work(void *user)
{
    job *j = user;
    j->status = j->function(j->context, &j->error);
    pthread_mutex_lock(&j->lock);
    j->done = true;
    bool abandoned = j->abandoned;
    pthread_cond_signal(&j->over);
    pthread_mutex_unlock(&j->lock);
    if (!abandoned) return NULL; /* the waiting thread has it now */
    PyGILState_STATE state = PyGILState_Ensure();
    j->abandon(j->context);
    PyGILState_Release(state);
    job_free(j);
    return NULL;
}

static void tell(const char *what, int *told, int64_t waited_ms)
{
    if (*told || !what || waited_ms < 1000) return;
    *told = 1;
    fprintf(stderr, "quern: %s is being compiled (QUERN_LOG=compile tells more)\n", what);
}

/* Until it is done; false: a signal handler raised. */
static bool wait_for(job *j, const char *what)
{
    int told = 0;
    for (int64_t waited_ms = 0;; waited_ms += 100) {
        struct timespec until;
        bool done;
        Py_BEGIN_ALLOW_THREADS clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        pthread_mutex_lock(&j->lock);
        while (!j->done && pthread_cond_timedwait(&j->over, &j->lock, &until) == 0) continue;
        done = j->done;
        pthread_mutex_unlock(&j->lock);
        Py_END_ALLOW_THREADS if (done) return true;
        tell(what, &told, waited_ms);
        if (PyErr_CheckSignals()) return false;
    }
}

bool job_run(const char *what, job_function *function, void *context, void (*abandon)(void *context))
{
    job *j = calloc(1, sizeof(*j));
    pthread_t thread;
    if (!j) return PyErr_NoMemory(), false;
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->over, NULL);
    j->function = function;
    j->context = context;
    j->abandon = abandon;
    if (pthread_create(&thread, NULL, work, j)) { /* no thread to be had: here, then */
        Py_BEGIN_ALLOW_THREADS j->status = function(context, &j->error);
        Py_END_ALLOW_THREADS
    } else if (!wait_for(j, what)) {
        pthread_mutex_lock(&j->lock);
        bool done = j->done;
        j->abandoned = !done;
        pthread_mutex_unlock(&j->lock);
        if (!done) {
            pthread_detach(thread);
            return false;
        }
        pthread_join(thread, NULL);
        abandon(context);
        job_free(j);
        return false;
    } else {
        pthread_join(thread, NULL);
    }
    bool good = j->status == QN_OK;
    if (!good) {
        raise_error(&j->error);
        abandon(context);
    }
    job_free(j);
    return good;
}
