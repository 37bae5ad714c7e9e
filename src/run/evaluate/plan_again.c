/*
 * Runs of a plan that repeat themselves. In: the addresses of a run. Out: one call of the driver for all of its launches,
 * where they lay at the same addresses often enough before. A step that gives back what it made finds its memory where it
 * was, so a loop launches the same kernels with the same arguments each time; a driver starts a recording of them in less
 * time than one of them. Invariant: a recording is replayed for the addresses that it was made with alone, on the device's
 * own stream, and while nobody looks at single launches.
 * SPDX-License-Identifier: MIT
 */
#include "base/record.h"
#include "run/evaluate/realize.h"

#include <string.h>

enum { REPEATS = 16, MOST_RECORDINGS = 4 }; /* a recording takes as long as some hundred launches */

struct plan_again {
    char **bases;
    int repeats, recordings;
    device_graph *graph; /* NULL: not yet, or none can be had */
};

static void drop(plan_again *a, const driver *d)
{
    if (a->graph) d->streams->graph_close(a->graph);
    a->graph = NULL;
}

void plan_again_free(plan_again *a, const driver *d)
{
    if (!a) return;
    drop(a, d);
    heap_free(a->bases);
    heap_free(a);
}

/* As many of the last runs as `repeats` had these addresses. `alone`: a run that is never replayed is none of them, but one that
 * moves the steps elsewhere may give back what a recording of them holds. */
static void note(plan *p, const driver *d, char *const *bases, bool alone)
{
    plan_again *a = p->again;
    size_t bytes = sizeof(char *) * (size_t)(1 + p->buffer_count + p->result_count);
    if (!a && alone) return;
    if (!a) {
        a = p->again = heap_new(sizeof(*a));
        a->bases = heap_new(bytes);
    }
    if (!memcmp(a->bases, bases, bytes)) {
        if (a->repeats <= REPEATS && !alone) a->repeats++;
        return;
    }
    memcpy(a->bases, bases, bytes);
    a->repeats = 0;
    drop(a, d);
}

/* The addresses that were noted, for all steps: those behind one that failed never had them. */
static qn_status prepare_steps(const plan *p, qn_context *context, int slot)
{
    qn_error unread;
    for (int i = 0; i < p->step_count; i++) {
        step_address(&p->steps[i], p->again->bases);
        QN_TRY(step_prepare(&p->steps[i], context, slot, &unread));
    }
    return QN_OK;
}

static qn_status record_steps(const plan *p, qn_context *context, int slot, device_stream *stream, device_graph **out)
{
    const driver_streams *streams = context->slots[slot].driver->streams;
    qn_error unread;
    QN_TRY(streams->capture(stream, &unread));
    qn_status status = QN_OK;
    for (int i = 0; i < p->step_count && status == QN_OK; i++)
        status = step_run(&p->steps[i], context, slot, stream, NULL, &unread);
    qn_status end = streams->capture_end(stream, out, &unread);
    if (status != QN_OK && end == QN_OK) {
        streams->graph_close(*out);
        *out = NULL;
    }
    return status == QN_OK ? end : status;
}

/* Where it fails the launches are made one by one, as before, and tell what is wrong. */
static void make_recording(const plan *p, qn_context *context, int slot)
{
    plan_again *a = p->again;
    const device_slot *s = &context->slots[slot];
    device_stream *stream = NULL;
    qn_error unread;
    if (a->recordings++ >= MOST_RECORDINGS || prepare_steps(p, context, slot) != QN_OK) return;
    if (s->driver->streams->open(s->device, &stream, &unread) != QN_OK) return;
    if (record_steps(p, context, slot, stream, &a->graph) != QN_OK) {
        a->graph = NULL;
        a->recordings = MOST_RECORDINGS;
    }
    s->driver->streams->close(stream);
}

bool plan_again_run(plan *p, qn_context *context, int slot, const device_stream *stream, char *const *bases)
{
    qn_error unread;
    const device_slot *s = &context->slots[slot];
    const driver_streams *streams = s->driver->streams;
    if (!streams || !p->step_count) return false;
    bool alone = stream || context->counter || context->log & LOG_LAUNCH || context->one_by_one || record_is_on();
    note(p, s->driver, bases, alone);
    if (alone) return false;
    if (p->again->repeats == REPEATS) make_recording(p, context, slot);
    if (!p->again->graph) return false;
    if (streams->replay(p->again->graph, NULL, &unread) == QN_OK) return true;
    drop(p->again, s->driver); /* its start takes memory that launches need not; where more is wrong, they tell of it */
    return false;
}
