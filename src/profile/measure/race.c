/*
 * Things that take turns. In: arms and a sampler. Out: samples of each, with the round in which they were taken.
 *
 * First a warm-up, until clocks and times have settled. Then rounds of one sample for each arm that still needs some, in
 * an order that changes from round to round (a block of rounds is a Latin square begun at random: every arm is as often
 * before another as after it). An arm is done when its median and its ratio to the first arm are known well enough, or
 * its time is spent; the first goes on as long as another needs it for comparison. Arms are looked at ever more rarely,
 * so that a verdict is not the luckiest of many.
 * SPDX-License-Identifier: MIT
 */
#include "profile/measure/timing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_SAMPLES = 20, MOST_SAMPLES = 4000, WARM_WINDOW = 5, MOST_WARM = 200 };
static const double warm_ns = 1e8, most_warm_ns = 1e9; /* busy time before the first sample: at least, at most */
static const double slow_ns = 2e8;                     /* such a call has warmed up long before it ends */
static const double settled = 0.02;                    /* how far the median of the last few may still move */

void race_arm_free(race_arm *arm)
{
    heap_free(arm->time.samples_ns);
    heap_free(arm->time.sample_rounds);
    *arm = (race_arm){0};
}

static void keep(race_arm *arm, double ns, int round)
{
    qn_bench_time *t = &arm->time;
    if (t->sample_count == arm->capacity) {
        arm->capacity = arm->capacity ? arm->capacity * 2 : 64;
        t->samples_ns = heap_resize(t->samples_ns, sizeof(double) * (size_t)arm->capacity);
        t->sample_rounds = heap_resize(t->sample_rounds, sizeof(int) * (size_t)arm->capacity);
    }
    t->samples_ns[t->sample_count] = ns;
    t->sample_rounds[t->sample_count++] = round;
}

static double share(double a, double b)
{
    return fabs(a / b - 1);
}

/* Has an arm's time settled? The median of its last few against that of the few before. */
static bool is_settled(const double *times, int count)
{
    double now[WARM_WINDOW], before[WARM_WINDOW];
    if (count < 2 * WARM_WINDOW) return false;
    memcpy(now, times + count - WARM_WINDOW, sizeof(now));
    memcpy(before, times + count - 2 * WARM_WINDOW, sizeof(before));
    return share(quantile(now, WARM_WINDOW, 0.5), quantile(before, WARM_WINDOW, 0.5)) < settled;
}

/* How many calls make a sample. Arms about as long as the first take as many as it: what a sample costs besides its
 * calls then falls on both alike. */
static void choose_calls(race *r)
{
    const race_arm *base = NULL;
    for (int i = 0; i < r->count; i++) {
        race_arm *arm = r->arms[i];
        if (arm->out || arm->time.sample_count) continue;
        double calls = r->sample_ns > 0 ? r->sample_ns / fmax(arm->one_ns, 1) : 1;
        if (r->most_calls && calls > r->most_calls) calls = r->most_calls;
        arm->calls = calls > 1e6 ? 1000000 : calls > 1 ? (int)calls : 1;
        if (r->fixed_calls) arm->calls = r->fixed_calls;
        if (!base)
            base = arm;
        else if (arm->one_ns < 2 * base->one_ns && base->one_ns < 2 * arm->one_ns)
            arm->calls = base->calls;
    }
}

/* In turns, until all have settled, and long enough for the clock to rise. Calls grow until they fill a sample. */
static void warm_up(race *r, double budget_ns)
{
    double *times = heap_array((size_t)(r->count * MOST_WARM), sizeof(double));
    double spent = 0, least = fmin(warm_ns, budget_ns / 4), most = fmin(most_warm_ns, budget_ns / 2) * r->count;
    for (int turn = 0; turn < MOST_WARM; turn++) {
        bool more = false;
        for (int i = 0; i < r->count; i++) {
            race_arm *arm = r->arms[i];
            double *mine = times + i * MOST_WARM, ns = 0, wall = 0;
            int count = arm->time.warmup_count;
            bool enough = arm->out || arm->time.sample_count || arm->one_ns > slow_ns;
            enough |= arm->one_ns > 0 && spent > most; /* without any idea of its time, calls could not be chosen */
            enough |= spent > least && is_settled(mine, count);
            if (enough) continue;
            int calls = arm->one_ns > 0 ? (int)fmin(fmax(r->sample_ns / fmax(arm->one_ns, 1), 1), 4.0 * arm->calls) : 1;
            if (r->most_calls) calls = MINIMUM(calls, r->most_calls);
            arm->calls = r->fixed_calls ? r->fixed_calls : calls;
            if (!r->sample(r->user, i, arm->calls, &ns, &wall)) {
                arm->out = true;
                continue;
            }
            mine[count] = ns;
            arm->time.warmup_count++;
            if (!count) arm->time.first_ns = ns;
            arm->one_ns = count < 2 ? ns : quantile((double[]){mine[count], mine[count - 1], mine[count - 2]}, 3, 0.5);
            spent += wall;
            more = true;
        }
        if (!more) break;
    }
    heap_free(times);
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void shuffle(int *order, int count, uint64_t *state)
{
    for (int i = 0; i < count; i++) order[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int k = (int)(next_random(state) % (uint64_t)(i + 1)), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

/* Known well enough, or its time is spent? */
static bool has_enough(race *r, race_arm *arm, double budget_ns)
{
    qn_bench_time *t = &arm->time;
    if (arm->out || t->sample_count >= MOST_SAMPLES) return true;
    if (t->sample_count && arm->spent_ns >= budget_ns) return true;
    if (t->sample_count < LEAST_SAMPLES || t->sample_count < arm->next_look) return false;
    arm->next_look = t->sample_count + t->sample_count / 4;
    time_summarise(t, r->precision);
    if (!t->converged) return false;
    if (arm == r->arms[0]) return true;
    qn_bench_comparison c = compare_rounds(&r->arms[0]->time, t, r->margin);
    return c.verdict != QN_AMBIGUOUS;
}

static int first_round(const race *r)
{
    int round = 0;
    for (int i = 0; i < r->count; i++) {
        const qn_bench_time *t = &r->arms[i]->time;
        if (t->sample_count) round = MAXIMUM(round, t->sample_rounds[t->sample_count - 1] + 1);
    }
    return round;
}

typedef struct clocks {
    double *items;
    int count, capacity;
    double since_ns;
} clocks;

/* Not after every sample: asking takes a little while. */
static void read_clock(const race *r, clocks *c, double spent_ns)
{
    c->since_ns += spent_ns;
    if (!r->clock_mhz || (c->count && c->since_ns < 1e7)) return;
    double mhz = r->clock_mhz(r->user);
    c->since_ns = 0;
    if (!(mhz > 0)) return;
    if (c->count == c->capacity) {
        c->capacity = c->capacity ? 2 * c->capacity : 64;
        c->items = heap_resize(c->items, sizeof(double) * (size_t)c->capacity);
    }
    c->items[c->count++] = mhz;
}

static void run_rounds(race *r, double budget_ns, clocks *c)
{
    int *order = heap_array((size_t)r->count, sizeof(int)), round = first_round(r);
    uint64_t state = r->seed + 1;
    for (int turn = 0;; turn++, round++) {
        int needed = 0;
        if (turn % r->count == 0) shuffle(order, r->count, &state);
        for (int i = 1; i < r->count; i++) {
            r->arms[i]->done = r->arms[i]->done || has_enough(r, r->arms[i], budget_ns);
            needed += !r->arms[i]->done;
        }
        race_arm *base = r->arms[0];
        bool spent = base->out || base->time.sample_count >= MOST_SAMPLES ||
                     (base->time.sample_count && base->spent_ns >= 2 * budget_ns);
        base->done = spent || (!needed && (base->done || has_enough(r, base, budget_ns)));
        if (base->done && !needed) break;
        for (int i = 0; i < r->count; i++) {
            int number = order[(i + turn) % r->count];
            race_arm *arm = r->arms[number];
            double ns = 0, wall = 0;
            if (arm->done) continue;
            if (!r->sample(r->user, number, arm->calls, &ns, &wall)) {
                arm->out = arm->done = true;
                continue;
            }
            keep(arm, ns, round);
            arm->time.calls_per_sample = arm->calls;
            arm->spent_ns += wall;
            read_clock(r, c, wall);
        }
    }
    heap_free(order);
}

void race_run(race *r)
{
    double budget_ns = (r->seconds > 0 ? r->seconds : 1) * 1e9;
    clocks c = {0};
    if (r->precision <= 0) r->precision = 0.005;
    if (r->margin <= 0) r->margin = 0.01;
    if (r->count < 1) return;
    for (int i = 0; i < r->count; i++) {
        race_arm *arm = r->arms[i];
        arm->done = false;
        if (!arm->time.sample_count) {
            double first_ns = arm->time.first_ns;
            arm->time = time_unknown();
            if (first_ns > 0) arm->time.first_ns = first_ns;
        }
    }
    warm_up(r, budget_ns);
    choose_calls(r);
    run_rounds(r, budget_ns, &c);
    sort_samples(c.items, c.count);
    for (int i = 0; i < r->count; i++) {
        qn_bench_time *t = &r->arms[i]->time;
        time_summarise(t, r->precision);
        t->clock_mhz = sorted_quantile(c.items, c.count, 0.5);
        t->clock_low_mhz = c.count ? c.items[0] : NAN;
        t->clock_high_mhz = c.count ? c.items[c.count - 1] : NAN;
    }
    heap_free(c.items);
}
