/*
 * A profile from start to stop. In: records from the rings. Out: sums by kind and name, and the records themselves up
 * to a limit. A collector thread empties the rings every few milliseconds, so that a long run needs no more memory than
 * its limit; sums go on when the limit is reached.
 *
 * Records of a thread come in the order of their ends, so what is nested in a span is known when the span comes: its
 * own time is the rest. Steps are the caller's: the schedule says which are thrown away.
 * SPDX-License-Identifier: MIT
 */
#include "profile/device_side.h"

#include "base/range.h"
#include "device/cuda/nvtx.h"

#include "profile/bench/outputs.h"
#include "profile/trace.h"
#include "run/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COLLECT_MS = 10, CLOCK_TURNS = 25 };
static const int64_t usual_records = 1000000;

/* ---- sums ---- */

static int chain_of(const qn_profile *p, const record *r)
{
    uint64_t hash = ((uint64_t)(uintptr_t)r->name * 31 + (uint64_t)(uintptr_t)r->detail) * 31 + r->kind;
    return (int)((hash ^ hash >> 17) % COUNT(p->chains));
}

int session_find_sum(const qn_profile *p, const record *r)
{
    int i = p->chains[chain_of(p, r)];
    while (i >= 0 &&
           (p->sums[i].sum.name != r->name || p->sums[i].sum.detail != r->detail || p->sums[i].kind != r->kind))
        i = p->sums[i].next;
    return i;
}

static sum_entry *sum_of(qn_profile *p, const record *r)
{
    int found = session_find_sum(p, r), *chain = &p->chains[chain_of(p, r)];
    if (found >= 0) return &p->sums[found];
    if (p->sum_count == p->sum_capacity) {
        int capacity = p->sum_capacity ? 2 * p->sum_capacity : 64;
        sum_entry *grown = realloc(p->sums, sizeof(*grown) * (size_t)capacity);
        if (!grown) return NULL;
        p->sums = grown;
        p->sum_capacity = capacity;
    }
    sum_entry *e = &p->sums[p->sum_count];
    *e = (sum_entry){.kind = r->kind, .next = *chain};
    e->sum = (qn_profile_sum){
        .name = r->name, .kind = record_kinds[r->kind].text, .detail = r->detail, .least_ns = INT64_MAX};
    *chain = p->sum_count++;
    return e;
}

static void add_to_sums(qn_profile *p, const record *r, int64_t self_ns)
{
    sum_entry *e = sum_of(p, r);
    if (!e) return;
    qn_profile_sum *s = &e->sum;
    int64_t time_ns = r->end_ns - r->start_ns;
    s->calls++;
    s->total_ns += time_ns;
    s->self_ns += self_ns;
    s->least_ns = s->calls > 1 ? MINIMUM(s->least_ns, time_ns) : time_ns;
    s->most_ns = MAXIMUM(s->most_ns, time_ns);
    if (r->kind == RECORD_COPY || r->kind == RECORD_ALLOCATE || r->kind == RECORD_FREE) s->bytes += r->a;
    const record_facts *f = record_facts_of(r);
    if (!f) return;
    s->bytes += (int64_t)(f->read_bytes + f->written_bytes);
    s->flops += isnan(f->flops) ? 0 : (int64_t)f->flops;
}

/* The thread's own time in this span; what it is nested in learns of it. */
static int64_t own_time(qn_profile *p, const record *r)
{
    int64_t time_ns = r->end_ns - r->start_ns;
    session_thread *t = &p->threads[r->thread % MOST_THREADS];
    int depth = MINIMUM(r->depth, MOST_DEPTH - 1);
    if (time_ns == 0) return 0;
    int64_t nested_ns = t->nested_ns[depth + 1];
    t->nested_ns[depth + 1] = 0;
    /* A share of a job is the own time of who asked for it; what is nested in the share is nested in that. */
    t->nested_ns[depth] += r->kind == RECORD_WORK ? nested_ns : time_ns;
    return MAXIMUM(time_ns - nested_ns, 0);
}

/* The list with room for one more, or as it was where the profile's limit or the memory ends. */
static void *with_room(const qn_profile *p, void *items, size_t item_bytes, int64_t count, int64_t *capacity)
{
    int64_t most = p->options.most_records > 0 ? p->options.most_records : usual_records;
    if (count < *capacity || *capacity >= most) return items;
    int64_t wanted = MINIMUM(*capacity ? 2 * *capacity : 4096, most);
    void *grown = realloc(items, item_bytes * (size_t)wanted);
    if (!grown) return items;
    *capacity = wanted;
    return grown;
}

static void keep(qn_profile *p, const record *r)
{
    p->kept = with_room(p, p->kept, sizeof(*p->kept), p->kept_count, &p->kept_capacity);
    if (p->kept_count == p->kept_capacity)
        p->lost++;
    else
        p->kept[p->kept_count++] = *r;
}

/* The sum of the launches or copies that it belongs to; of one without, the kernel's, by name and shapes. */
static sum_entry *sum_of_device(qn_profile *p, const device_record *r, const device_launched *l)
{
    bool of_graph = l && l->facts && l->facts->part_count && r->facts && r->facts != l->facts;
    if (l && !of_graph) return sum_of(p, &(record){.name = l->name, .detail = l->detail, .kind = l->kind});
    record_kind kind = r->kind == DEVICE_KERNEL || r->kind == DEVICE_GRAPH ? RECORD_LAUNCH : RECORD_COPY;
    return sum_of(p, &(record){.name = r->facts ? r->facts->kernel : r->name,
                               .detail = r->facts ? r->facts->shapes : NULL,
                               .kind = (uint16_t)kind});
}

void session_add_device(qn_profile *p, const device_record *r)
{
    if (p->phase == PHASE_KEEP) session_keep_device(p, r, NULL);
}

void session_keep_device(qn_profile *p, const device_record *r, const device_launched *l)
{
    sum_entry *e = sum_of_device(p, r, l);
    if (e) e->sum.device_ns += r->end_ns - r->start_ns;
    if (e) e->device_calls++;
    if (p->trace) trace_add_device(p->trace, r);
    if (e && !e->sum.calls) e->sum.least_ns = 0; /* a kernel of a graph: nobody called it by itself */
    p->device_kept = with_room(p, p->device_kept, sizeof(*p->device_kept), p->device_count, &p->device_capacity);
    if (p->device_count == p->device_capacity)
        p->device_lost++;
    else
        p->device_kept[p->device_count++] = *r;
}

static void take(void *user, const record *r)
{
    qn_profile *p = user;
    p->records++;
    int64_t self_ns = own_time(p, r);
    if (r->identity && r->kind != RECORD_SHARE && p->side) device_side_host(p->side, r, p->phase == PHASE_KEEP);
    if (p->phase != PHASE_KEEP) return;
    if (r->kind != RECORD_SHARE) add_to_sums(p, r, self_ns);
    keep(p, r);
    if (p->trace) trace_add(p->trace, r);
}

/* Empties the rings; under the lock. */
static void drain(qn_profile *p)
{
    int64_t until_ns = record_clock_ns();
    record_drain(take, p);
    if (p->trace) trace_settle(p->trace, until_ns);
}

/* ---- the collector ---- */

/* Only of GPUs that are in use already; the lock is not held, since asking may take milliseconds. */
static void look_at_clocks(qn_profile *p)
{
    for (int i = 0; p->context && i < p->context->slot_count; i++) {
        const device_slot *s = &p->context->slots[i];
        device_health health;
        if (!s->driver->health || !s->known || !s->about.available || !s->driver->health(s->device, &health)) continue;
        if (!health.held || !(health.clock_mhz > 0)) continue;
        p->held_samples++;
        p->held_clock_mhz += health.clock_mhz;
        p->most_clock_mhz = health.most_clock_mhz;
        p->held |= health.held;
    }
}

static void *collect(void *user)
{
    qn_profile *p = user;
    lock_take(&p->lock);
    for (int turn = 1; !p->stopping; turn++) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += COLLECT_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&p->wake, &p->lock, &until);
        drain(p);
        if (p->side) device_side_collect(p->side);
        if (turn % CLOCK_TURNS || p->stopping) continue;
        lock_give(&p->lock);
        look_at_clocks(p);
        lock_take(&p->lock);
    }
    lock_give(&p->lock);
    return NULL;
}

static session_phase phase_of(const qn_profile *p, int64_t step, int64_t *cycle)
{
    const qn_profile_options *o = &p->options;
    if (o->active <= 0) return PHASE_KEEP;
    int64_t length = (int64_t)o->wait + o->warmup + o->active, at = step % length;
    *cycle = step / length;
    if (o->repeat > 0 && *cycle >= o->repeat) return PHASE_OFF;
    return at < o->wait ? PHASE_OFF : at < o->wait + o->warmup ? PHASE_WARM : PHASE_KEEP;
}

qn_status qn_profile_start(qn_context *context, const qn_profile_options *options, qn_profile **profile,
                           qn_error *error)
{
    HEAP_ENTER(error);
    if (!profile) return error_set(error, QN_BAD_CALL, "qn_profile_start: there is nowhere to put the profile");
    *profile = NULL;
    if (options && (options->wait < 0 || options->warmup < 0 || options->active < 0 || options->repeat < 0))
        return error_set(error, QN_BAD_CALL,
                         "qn_profile_start: a schedule of %d, %d, %d, %d steps has a negative number", options->wait,
                         options->warmup, options->active, options->repeat);
    qn_profile *p = calloc(1, sizeof(*p));
    if (!p) return error_set(error, QN_NO_MEMORY, "there is no memory for a profile");
    p->context = context;
    if (options) p->options = *options;
    p->device_overhead_share = NAN;
    for (int i = 0; i < COUNT(p->chains); i++) p->chains[i] = -1;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->start_ns = p->step_start_ns = record_clock_ns();
    qn_status status = outputs_open(p, error);
    p->phase = phase_of(p, 0, &p->cycle);
    if (status == QN_OK) status = record_start(p->options.ring_records, error);
    if (p->options.nvtx) nvtx_open();
    if (status == QN_OK) p->side = device_side_open(p);
    if (status == QN_OK && pthread_create(&p->collector, NULL, collect, p)) {
        record_stop();
        status = error_set(error, QN_FAILED, "no thread could be started to collect the profile");
    }
    p->running = status == QN_OK;
    if (status != QN_OK) {
        qn_profile_free(p);
        return status;
    }
    *profile = p;
    return QN_OK;
}

void qn_profile_step(qn_profile *profile)
{
    qn_profile *p = profile ? profile : profile_of_environment();
    if (!p || !p->running) return;
    lock_take(&p->lock);
    drain(p);
    int64_t now = record_clock_ns(), cycle = p->cycle;
    if (p->phase == PHASE_KEEP) {
        record step = {.start_ns = p->step_start_ns,
                       .end_ns = now,
                       .name = "step",
                       .a = p->step,
                       .kind = RECORD_STEP,
                       .thread = MOST_THREADS};
        add_to_sums(p, &step, 0);
        keep(p, &step);
        if (p->trace) trace_add(p->trace, &step);
    }
    p->step++;
    p->step_start_ns = now;
    session_phase before = p->phase;
    p->phase = phase_of(p, p->step, &cycle);
    bool ends = before == PHASE_KEEP && (p->phase != PHASE_KEEP || cycle != p->cycle) && p->options.ready;
    if (p->side && ends) device_side_settle(p->side);
    if (p->side) device_side_phase(p->side, p->phase == PHASE_KEEP);
    p->cycle = cycle;
    lock_give(&p->lock);
    if (ends) p->options.ready(p->options.user, p);
}

static void stop_recording(qn_profile *p)
{
    record_stop();
    lock_take(&p->lock);
    p->stopping = true;
    pthread_cond_signal(&p->wake);
    lock_give(&p->lock);
    pthread_join(p->collector, NULL);
    drain(p);
    p->lost += record_dropped();
    p->end_ns = record_clock_ns();
    if (p->side) device_side_finish(p->side);
    p->running = false;
}

qn_status qn_profile_stop(qn_profile *profile, qn_error *error)
{
    HEAP_ENTER(error);
    if (!profile) return error_set(error, QN_BAD_CALL, "qn_profile_stop: the profile is NULL");
    if (!profile->running) return QN_OK;
    stop_recording(profile);
    return outputs_write(profile, error);
}

void qn_profile_interrupted(qn_profile *profile)
{
    if (profile) profile->interrupted = true;
}

void qn_profile_free(qn_profile *profile)
{
    if (!profile || heap_is_stopped()) return;
    if (profile->running) stop_recording(profile);
    outputs_free(profile);
    pthread_mutex_destroy(&profile->lock);
    pthread_cond_destroy(&profile->wake);
    device_side_close(profile->side);
    heap_free(profile->kept);
    heap_free(profile->device_kept);
    heap_free(profile->sums);
    heap_free(profile);
}

/* ---- ranges ---- */

void qn_range_push(const char *name)
{
    range_push(name);
}

void qn_range_pop(void)
{
    range_pop();
}

/* ---- what was found ---- */

int qn_profile_sum_count(const qn_profile *profile)
{
    return profile ? profile->sum_count : 0;
}

void qn_profile_sum_get(const qn_profile *profile, int number, qn_profile_sum *sum)
{
    if (sum)
        *sum = profile && number >= 0 && number < profile->sum_count ? profile->sums[number].sum : (qn_profile_sum){0};
}

bool qn_profile_find(const qn_profile *profile, const char *name, qn_profile_sum *sum)
{
    bool found = false;
    for (int i = 0; profile && name && sum && i < profile->sum_count; i++) {
        const qn_profile_sum *s = &profile->sums[i].sum;
        if (strcmp(s->name, name) || (found && s->total_ns <= sum->total_ns)) continue;
        *sum = *s;
        found = true;
    }
    return found;
}

void qn_profile_get_totals(const qn_profile *profile, qn_profile_totals *totals)
{
    const qn_profile *p = profile;
    if (totals) *totals = (qn_profile_totals){.device_source = ""};
    if (!totals || !profile) return;
    *totals = (qn_profile_totals){.start_ns = p->start_ns,
                                  .end_ns = p->end_ns ? p->end_ns : record_clock_ns(),
                                  .records = p->records,
                                  .kept = p->kept_count,
                                  .dropped = p->lost,
                                  .steps = p->step,
                                  .threads = record_thread_count(),
                                  .device_records = p->device_count,
                                  .device_dropped = p->device_lost,
                                  .device_source = p->device_source,
                                  .device_reason = p->device_reason,
                                  .device_overhead_share = p->device_overhead_share};
}
