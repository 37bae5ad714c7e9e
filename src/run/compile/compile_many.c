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
    int count;
    _Atomic int next;
    _Atomic bool is_short; /* of memory: one of the threads was */
} queue;

void call_usual_views(qn_call *call)
{
    const tile_kernel *k = call->instance->kernel;
    for (int p = 0; p < k->param_count; p++) {
        array_view *v = &call->views[p];
        if (k->params[p].kind >= PARAM_SCALAR) continue;
        strides_set_row_major(v->rank, v->extents, v->strides);
        v->data = (void *)4096; /* an address that is aligned; nothing is read */
    }
}

static qn_status compile_one(compile_job *j)
{
    HEAP_ENTER(&j->error);
    qn_call *call = j->call;
    int slot = j->slot;
    if (call_is_function(call)) return function_compile(call, slot, &j->error);
    if (!j->usual) {
        if (!call->bound || call->slot != slot) QN_TRY(call_bind(call, slot, false, &j->error));
        if (!call->variant) QN_TRY(variant_get(call, &call->variant, &j->error));
        j->variant = call->variant;
        return QN_OK;
    }
    QN_TRY(call_bind(call, slot, true, &j->error));
    call_usual_views(call);
    call->slot = slot;
    qn_status status = variant_get(call, &j->variant, &j->error);
    call_unbind(call);
    return status;
}

static void *work(void *context)
{
    queue *q = context;
    for (int i; (i = atomic_fetch_add(&q->next, 1)) < q->count;) {
        compile_job *j = &q->jobs[i];
        j->status = compile_one(j);
        if (heap_take_short()) atomic_store(&q->is_short, true); /* the next one may be luckier */
    }
    return NULL;
}

void calls_compile(compile_job *jobs, int count, int threads)
{
    queue q = {.jobs = jobs, .count = count};
    pthread_t started[MOST_THREADS];
    int running = 0;
    threads = MINIMUM(MINIMUM(threads, count), MOST_THREADS);
    while (running < threads - 1 && !pthread_create(&started[running], NULL, work, &q)) running++;
    work(&q); /* this thread too: it goes on where no other can be started */
    for (int i = 0; i < running; i++) pthread_join(started[i], NULL);
    if (q.is_short) heap_set_short();
}
