/*
 * Timing. Variants take turns, one launch each a round, so that a change of the machine's clock or load meets them all.
 * Every launch takes the next of several copies of the arrays, so that it finds its data cold: neither the round before
 * nor the variant before has touched it since the caches were last filled with other things. A variant ends when its
 * median is known well or its time is spent; the others go on.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench/bench.h"
#include "device/cpu/compiler.h"

#include <math.h>
#include <stdlib.h>

static const size_t most_copies_bytes = (size_t)1 << 30;
/* A sample on a stream: launches in a row between two events, three or more, until about this long: what one leaves in
 * the cache to be written is paid for by the next. Elsewhere launches are timed one by one, and a sample is the mean of
 * as many as make the clock's own steps small. */
static const double stream_sample_ns = 2e6, launch_sample_ns = 2e4;
static const double precision = 0.005;   /* of the median, relative */
static const double point_seconds = 0.2; /* at each point of a sweep, of which there are many */
enum { MOST_COPIES = 65536, MOST_TURNS = 64, MOST_LAUNCHES = 256, MOST_READY = 2048, HOT_SAMPLES = 5 };

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

/* One launch after the other on a device whose launches wait, each on the next copy of the arrays (`hot`: all on the
 * first). */
static bool sample_launches(bench *b, bench_variant *v, int calls, bool hot, double *ns)
{
    qn_error error;
    *ns = 0;
    for (int i = 0; i < calls; i++) {
        qn_timing timing;
        int copy = hot ? 0 : (int)(b->turn++ % b->arrays.copy_count);
        qn_status status = arrays_attach(&b->arrays, v->call, copy, &error);
        if (status == QN_OK) status = call_launch(v->call, b->slot, NULL, &error);
        if (status != QN_OK) {
            variant_end(b, v, VARIANT_FAILED, "%s", error.message);
            return false;
        }
        qn_call_timing(v->call, &timing);
        *ns += (double)timing.kernel_ns;
    }
    *ns /= calls;
    return true;
}

/* On a device with streams: launches in a row, each on other arrays, between two events. */
static qn_status stream_sample(bench *b, bench_variant *v, int count, bool hot, double *ns, qn_error *error)
{
    const device_slot *s = &b->context->slots[b->slot];
    const driver_streams *streams = s->driver->streams;
    QN_TRY(streams->event_record(b->events[0], NULL, error));
    for (int i = 0; i < count; i++)
        QN_TRY(call_submit(v->turns[hot ? 0 : b->turn++ % v->turn_count], b->slot, NULL, error));
    QN_TRY(streams->event_record(b->events[1], NULL, error));
    QN_TRY(streams->event_elapsed(b->events[0], b->events[1], ns, error));
    *ns /= count;
    return s->driver->memory->settle(s->device, error);
}

static bool sample_stream(bench *b, bench_variant *v, int calls, bool hot, double *ns)
{
    qn_error error;
    if (stream_sample(b, v, MAXIMUM(calls, 3), hot, ns, &error) == QN_OK) return true;
    variant_end(b, v, VARIANT_FAILED, "%s", error.message);
    return false;
}

typedef struct variants_race {
    bench *bench;
    bench_variant **variants;
} variants_race;

static bool sample(void *user, int arm, int calls, double *ns, double *spent_ns)
{
    variants_race *r = user;
    int64_t start_ns = clock_now_ns();
    bench_variant *v = r->variants[arm];
    bool good =
        v->turns ? sample_stream(r->bench, v, calls, false, ns) : sample_launches(r->bench, v, calls, false, ns);
    *spent_ns = (double)(clock_now_ns() - start_ns);
    return good;
}

static double clock_mhz(void *user)
{
    bench *b = ((variants_race *)user)->bench;
    const device_slot *s = &b->context->slots[b->slot];
    device_health health;
    if (!s->driver->memory) return processor_clock_mhz();
    if (!s->driver->health || !s->driver->health(s->device, &health)) return NAN;
    b->held |= health.held;
    return health.clock_mhz;
}

/* A few launches on arrays that the caches still hold: how much the copies matter. */
static void take_hot(bench *b, bench_variant *v)
{
    double times[HOT_SAMPLES];
    const race_arm *arm = &v->arm;
    v->hot_ns = NAN;
    if (b->arrays.copy_count < 2 || !arm->time.sample_count) return;
    for (int i = -1; i < HOT_SAMPLES; i++) { /* the first fetches them */
        double ns;
        bool good =
            v->turns ? sample_stream(b, v, arm->calls, true, &ns) : sample_launches(b, v, arm->calls, true, &ns);
        if (!good) return;
        if (i >= 0) times[i] = ns;
    }
    v->hot_ns = quantile(times, HOT_SAMPLES, 0.5);
}

size_t bench_cache_bytes(const bench *b)
{
    size_t own = slot_about(b->context, b->slot)->cache_bytes;
    return own ? own : processor_cache_bytes(3);
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

/* How many calls of a function with so many kernels stay ready beside those of the other variants: a device keeps what belongs
 * to a launch, and a recorded function has its launches twice. */
static int turns_of(const bench *b, int kernels)
{
    return MAXIMUM(2, MOST_READY / (2 * MAXIMUM(kernels, 1) * b->variant_count));
}

/* One call for each copy of the arrays, launched so that everything is ready: a tensor function is recorded at its second launch,
 * which takes hundreds of times as long as those after it. */
static qn_status make_turns(bench *b, bench_variant *v, qn_error *error)
{
    const device_slot *s = &b->context->slots[b->slot];
    int most = b->arrays.copy_count;
    for (int i = 0; i < 2; i++)
        if (!b->events[i]) QN_TRY(s->driver->streams->event_open(s->device, &b->events[i], error));
    v->turns = ARENA_ARRAY(b->memory, qn_call *, b->arrays.copy_count);
    for (int i = 0; i < most; i++) {
        QN_TRY(plan_call(b, v, &b->at, &v->turns[i], error));
        v->turn_count = i + 1;
        QN_TRY(arrays_attach(&b->arrays, v->turns[i], i, error));
        for (int k = 0; k < (v->is_function ? 2 : 1); k++) QN_TRY(call_submit(v->turns[i], b->slot, NULL, error));
        if (!i && v->is_function) most = MINIMUM(most, turns_of(b, function_kernels(v->turns[0])));
    }
    return s->driver->memory->settle(s->device, error);
}

void clock_close(bench *b)
{
    for (int k = 0; k < b->variant_count; k++)
        for (int i = 0; i < b->variants[k].turn_count; i++) qn_call_free(b->variants[k].turns[i]);
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
    variants_race state = {.bench = b, .variants = ARENA_ARRAY(b->memory, bench_variant *, b->variant_count + 1)};
    race_arm **arms = ARENA_ARRAY(b->memory, race_arm *, b->variant_count + 1);
    bool streams = false;
    int count = 0;
    for (int i = 0; i < b->variant_count; i++) {
        bench_variant *v = &b->variants[i];
        if (v->status != VARIANT_OK) continue;
        bench_say(b, "timing %s", v->label);
        streams |= v->turns != NULL;
        if (!v->arm.time.sample_count && v->arm.time.first_ns > 0) v->arm.one_ns = v->arm.time.first_ns;
        state.variants[count] = v;
        arms[count++] = &v->arm;
    }
    race r = {.sample = sample,
              .clock_mhz = clock_mhz,
              .user = &state,
              .arms = arms,
              .count = count,
              .seconds = b->options->seconds > 0    ? b->options->seconds
                         : b->options->sweeps.count ? point_seconds
                                                    : 0,
              .precision = precision,
              .margin = b->options->margin,
              .sample_ns = streams ? stream_sample_ns : launch_sample_ns,
              .most_calls = streams ? MOST_LAUNCHES : 0,
              .seed = b->options->seed};
    /* benches that share a GPU time in turns */
    int turn = target_is_gpu(b->device) ? turn_take(environment_get("QUERN_GPU_LOCK")) : -1;
    race_run(&r);
    for (int i = 0; i < count; i++) take_hot(b, state.variants[i]);
    turn_leave(turn);
    for (int i = 1; i < count; i++) {
        bench_variant *v = state.variants[i];
        v->first = compare_rounds(&arms[0]->time, &arms[i]->time, r.margin);
        v->first.against = state.variants[0]->label;
    }
}
