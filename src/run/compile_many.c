/*
 * Compiling several calls at once. In: calls that are ready to run. Out: each bound, with its variant compiled, or with
 * the reason why not. Threads take the next call when they are done with one; nothing is launched.
 * SPDX-License-Identifier: MIT
 */
#include "run/run.h"

#include <stdatomic.h>

#define MOST_THREADS 64

typedef struct queue {
    compile_job *jobs;
    int count, slot;
    _Atomic int next;
} queue;

static qn_status compile_one(qn_call *call, int slot, qn_error *error)
{
    if (!call->bound || call->slot != slot) QN_TRY(call_bind(call, slot, false, error));
    return call->variant ? QN_OK : variant_get(call, &call->variant, error);
}

static void *work(void *context)
{
    queue *q = context;
    for (int i; (i = atomic_fetch_add(&q->next, 1)) < q->count;) {
        compile_job *j = &q->jobs[i];
        j->status = compile_one(j->call, q->slot, &j->error);
    }
    return NULL;
}

void calls_compile(compile_job *jobs, int count, int slot, int threads)
{
    queue q = {.jobs = jobs, .count = count, .slot = slot};
    pthread_t started[MOST_THREADS];
    int running = 0;
    threads = MINIMUM(MINIMUM(threads, count), MOST_THREADS);
    while (running < threads - 1 && !pthread_create(&started[running], NULL, work, &q)) running++;
    work(&q); /* this thread too: it goes on where no other can be started */
    for (int i = 0; i < running; i++) pthread_join(started[i], NULL);
}
