/*
 * Timing. Variants take turns, one launch each a round, so that a change of the machine's clock or load meets them all.
 * Every launch takes the next of several copies of the arrays, so that it finds its data cold: neither the round before
 * nor the variant before has touched it since the caches were last filled with other things. A variant ends when its
 * median is known well or its time is spent; the others go on.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench.h"

#include <math.h>
#include <stdlib.h>

static const double enough = 0.004;       /* the median's own uncertainty, relative */
static const int64_t slow_ns = 200000000; /* such a launch has warmed up long before it ends */
static const size_t most_copies_bytes = (size_t)1 << 30;
/* On a stream: launches in a row between two events, three or more, until about this long: what one leaves in the cache
 * to be written is paid for by the next. */
static const double sample_ns = 2e6;
enum { FEWEST_SAMPLES = 7, MOST_SAMPLES = 2000, MOST_COPIES = 65536, MOST_TURNS = 64, MOST_LAUNCHES = 256 };

static void sizes_of(bench *b, bench_variant *v)
{
    const tile_kernel *k = v->call->instance->kernel;
    double read, written;
    views_bytes(k, v->call->views, &read, &written);
    v->bytes = read + written;
    v->read_share = v->bytes > 0 ? read / v->bytes : 0;
    if (v->has_ir) {
        launch_counts counts;
        launch_count(k, &v->call->plan, slot_about(b->context, b->slot)->units, &counts);
        v->flops = counts.flops;
    }
    if (v->is_function) v->flops = function_flops(v->call);
}

/* `bytes (...)` and `flops (...)` of the block, over everything that has a value in the call. */
static qn_status stated(bench *b, bench_variant *v, const char *word, double *out, qn_error *error)
{
    const ast *clause = clause_of(b->block, word);
    if (!clause || !clause->list.count) return QN_OK;
    bindings known = {0};
    binding value = {0};
    diagnostics d = {.memory = b->memory};
    const char *unbound = NULL;
    call_known(v->call, b->memory, &known);
    bool good = lang_evaluate(b->module->file, clause->list.items[0], &known, slot_about(b->context, b->slot)->units,
                              &d, &value, &unbound) &&
                !d.errors && (value.kind == BIND_INT || value.kind == BIND_FLOAT);
    if (!good)
        return error_set(error, QN_BAD_SOURCE, "%s:%d: `%s` of bench `%s` is not a number%s%s%s", b->module->path,
                         clause->from.line, word, b->block->name, unbound ? ": it needs `" : "", unbound ? unbound : "",
                         unbound ? "`" : "");
    *out = value.kind == BIND_INT ? (double)value.number.i : value.number.f;
    return QN_OK;
}

static void sample_add(bench_variant *v, double time_ns)
{
    if (v->sample_count == v->sample_capacity) {
        v->sample_capacity = v->sample_capacity ? v->sample_capacity * 2 : 64;
        v->samples = realloc(v->samples, sizeof(double) * (size_t)v->sample_capacity);
        CHECK(v->samples);
    }
    v->samples[v->sample_count++] = time_ns;
}

/* Is this variant done? Its median moves by about its half spread over the root of the number of samples. */
static bool done(bench_variant *v, double most_ns)
{
    if (v->status != VARIANT_OK || v->sample_count >= MOST_SAMPLES) return true;
    if (v->sample_count && v->spent_ns >= most_ns) return true;
    if (v->sample_count < FEWEST_SAMPLES || v->spent_ns < most_ns / 8) return false;
    if (v->sample_count % 8) return false; /* sorting is not free */
    v->time = spread_of(v->samples, v->sample_count);
    return spread_relative(&v->time) / sqrt(v->sample_count) < enough;
}

static void launch(bench *b, bench_variant *v, int copy, bool counts)
{
    qn_error error;
    qn_timing timing;
    int64_t start = clock_now_ns();
    qn_status status = arrays_attach(&b->arrays, v->call, copy, &error);
    if (status == QN_OK) status = call_launch(v->call, b->slot, NULL, &error);
    if (status != QN_OK) {
        variant_end(b, v, VARIANT_FAILED, "%s", error.message);
        return;
    }
    qn_call_timing(v->call, &timing);
    if (counts) {
        v->spent_ns += (double)(clock_now_ns() - start);
        sample_add(v, (double)timing.kernel_ns);
    }
}

/* On a device with streams: launches in a row, each on other arrays, between two events. */
static qn_status stream_sample(bench *b, bench_variant *v, int count, double *ns, qn_error *error)
{
    const device_slot *s = &b->context->slots[b->slot];
    const driver_streams *streams = s->driver->streams;
    QN_TRY(streams->event_record(b->events[0], NULL, error));
    for (int i = 0; i < count; i++) QN_TRY(call_submit(v->turns[i % b->arrays.copy_count], b->slot, NULL, error));
    QN_TRY(streams->event_record(b->events[1], NULL, error));
    QN_TRY(streams->event_elapsed(b->events[0], b->events[1], ns, error));
    *ns /= count;
    return s->driver->memory->settle(s->device, error);
}

static void launch_many(bench *b, bench_variant *v, bool counts)
{
    qn_error error;
    double ns = 0;
    int64_t start = clock_now_ns();
    double one = v->sample_count ? v->samples[v->sample_count - 1] : (double)v->call->timing.kernel_ns;
    int count = (int)MINIMUM(MAXIMUM(sample_ns / MAXIMUM(one, 1000.0), 3.0), (double)MOST_LAUNCHES);
    if (stream_sample(b, v, counts ? count : 3, &ns, &error) != QN_OK) {
        variant_end(b, v, VARIANT_FAILED, "%s", error.message);
        return;
    }
    if (counts) {
        v->spent_ns += (double)(clock_now_ns() - start);
        sample_add(v, ns);
    }
}

size_t bench_cache_bytes(const bench *b)
{
    size_t own = slot_about(b->context, b->slot)->cache_bytes;
    return own ? own : cache_size_bytes();
}

/* As many as exceed the last cache four times; fewer where that takes too much memory or too many of them. */
static int copies_needed(bench *b)
{
    size_t set = 0, cache = bench_cache_bytes(b), copies = 1;
    size_t most = b->context->slots[b->slot].driver->memory ? MOST_TURNS : MOST_COPIES;
    for (int i = 0; i < b->arrays.count; i++) set += b->arrays.items[i].size_bytes;
    if (set && set < 4 * cache) copies = (MINIMUM(4 * cache, most_copies_bytes) + set - 1) / set;
    copies = MINIMUM(MAXIMUM(copies, (size_t)1), most);
    b->arrays.in_cache = set * copies < 2 * cache;
    return (int)copies;
}

/* One call for each copy of the arrays, launched once so that everything is ready. */
static qn_status make_turns(bench *b, bench_variant *v, qn_error *error)
{
    const device_slot *s = &b->context->slots[b->slot];
    for (int i = 0; i < 2; i++)
        if (!b->events[i]) QN_TRY(s->driver->streams->event_open(s->device, &b->events[i], error));
    v->turns = ARENA_ARRAY(b->memory, qn_call *, b->arrays.copy_count);
    for (int i = 0; i < b->arrays.copy_count; i++) {
        QN_TRY(plan_call(b, v, &b->at, &v->turns[i], error));
        QN_TRY(arrays_attach(&b->arrays, v->turns[i], i, error));
        QN_TRY(call_submit(v->turns[i], b->slot, NULL, error));
    }
    return s->driver->memory->settle(s->device, error);
}

void clock_close(bench *b)
{
    for (int k = 0; k < b->variant_count; k++)
        for (int i = 0; b->variants[k].turns && i < b->arrays.copy_count; i++) qn_call_free(b->variants[k].turns[i]);
    for (int i = 0; i < 2; i++) {
        if (b->events[i]) b->context->slots[b->slot].driver->streams->event_close(b->events[i]);
        b->events[i] = NULL;
    }
}

qn_status clock_prepare(bench *b, qn_error *error)
{
    bool filled = false;
    for (int i = 0; i < b->variant_count; i++) {
        bench_variant *v = &b->variants[i];
        if (v->status != VARIANT_OK) continue;
        if (!filled) { /* once, with what the first knows; every variant has the same inputs */
            const device_slot *s = &b->context->slots[b->slot];
            int copies = copies_needed(b);
            QN_TRY(arrays_allocate(&b->arrays, s->driver->memory ? 1 : copies, error));
            QN_TRY(arrays_fill(b, &b->arrays, v->call, error));
            if (s->driver->memory) QN_TRY(arrays_upload(&b->arrays, s, copies, error));
            filled = true;
        }
        if (b->context->slots[b->slot].driver->streams) QN_TRY(make_turns(b, v, error));
        sizes_of(b, v);
        QN_TRY(stated(b, v, "bytes", &v->bytes, error));
        QN_TRY(stated(b, v, "flops", &v->flops, error));
    }
    return QN_OK;
}

void clock_variants(bench *b)
{
    double most_ns = (b->options->seconds > 0 ? b->options->seconds : 1) * 1e9;
    int64_t turn = 0;
    for (int i = 0; i < b->variant_count; i++) {
        bench_variant *v = &b->variants[i];
        if (v->status != VARIANT_OK) continue;
        bench_say(b, "timing %s", v->label);
        if (v->turns)
            launch_many(b, v, false);
        else if (v->call->timing.kernel_ns < slow_ns)
            launch(b, v, 0, false); /* warm-up, beyond the run that was checked */
    }
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < b->variant_count; i++) {
            bench_variant *v = &b->variants[i];
            if (done(v, most_ns)) continue;
            if (v->turns)
                launch_many(b, v, true);
            else
                launch(b, v, (int)(turn++ % b->arrays.copy_count), true);
            more = true;
        }
    }
    for (int i = 0; i < b->variant_count; i++)
        b->variants[i].time = spread_of(b->variants[i].samples, b->variants[i].sample_count);
}
