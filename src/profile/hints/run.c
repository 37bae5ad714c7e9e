/*
 * Rules about a run: what happens between kernels. In: the records of a profile, the host's and the device's. Out: hints.
 * docs/hints.md explains each.
 * SPDX-License-Identifier: MIT
 */
#include "profile/hints/hints.h"
#include "profile/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RULE_OF_RUN(name)                                   \
    void rule_##name(const hint_input *in, hint_list *out); \
    void rule_##name(const hint_input *in, hint_list *out)

static const char from_records[] = "the records of the host";
static const char from_device[] = "the records of the device";

static double duration_ns(const record *r)
{
    return (double)(r->end_ns - r->start_ns);
}

static const char *duration_text(const hint_input *in, double ns)
{
    text t = {0};
    text_add_duration(&t, ns);
    const char *kept = arena_copy_text(in->memory, text_get(&t), t.length);
    text_free(&t);
    return kept;
}

/* ---- launches ---- */

static int compare_starts(const void *left, const void *right)
{
    const device_record *a = *(const device_record *const *)left, *b = *(const device_record *const *)right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    return a->start_ns < b->start_ns ? -1 : a->start_ns > b->start_ns;
}

/* What ran on the first device that did anything, in the order of its start; all its streams together. */
static const device_record **in_order(const hint_input *in, int64_t *count)
{
    const qn_profile *p = in->profile;
    const device_record **all = ARENA_ARRAY(in->memory, const device_record *, p->device_count + 1);
    for (int64_t i = 0; i < p->device_count; i++) all[i] = &p->device_kept[i];
    if (p->device_count) qsort(all, (size_t)p->device_count, sizeof(*all), compare_starts);
    *count = 0;
    while (*count < p->device_count && all[*count]->device == all[0]->device) ++*count;
    return all;
}

static bool is_wait(const record *r)
{
    return r->kind == RECORD_WAIT || (r->kind == RECORD_COPY && r->b == 1);
}

static int compare_times(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

/* When the host's waits ended, in order. */
static int64_t *ends_of_waits(const hint_input *in, int64_t *count)
{
    const qn_profile *p = in->profile;
    *count = 0;
    for (int64_t i = 0; i < p->kept_count; i++) *count += is_wait(&p->kept[i]);
    int64_t *ends = ARENA_ARRAY(in->memory, int64_t, *count + 1), at = 0;
    for (int64_t i = 0; i < p->kept_count; i++)
        if (is_wait(&p->kept[i])) ends[at++] = p->kept[i].end_ns;
    if (at) qsort(ends, (size_t)at, sizeof(*ends), compare_times);
    return ends;
}

static bool host_waited(const int64_t *ends, int64_t count, int64_t from_ns, int64_t to_ns)
{
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (ends[middle] < from_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ends[low] <= to_ns;
}

RULE_OF_RUN(launch_bound)
{
    /* A node of a graph follows the one before it so soon. */
    const double graph_gap_ns = 1000, longest_gap_ns = 50000;
    int64_t count, gaps = 0, wait_count;
    const device_record **all = in_order(in, &count);
    const int64_t *waits = ends_of_waits(in, &wait_count);
    double lost_ns = 0, gap_ns = 0, kernel_ns = 0;
    int64_t busy_to = 0;
    const record_facts *shortest = NULL;
    for (int64_t i = 0; i < count; i++) {
        const device_record *r = all[i];
        bool follows = i && all[i - 1]->kind == DEVICE_KERNEL;
        double gap = (double)(r->start_ns - busy_to), last = i ? (double)(busy_to - all[i - 1]->start_ns) : 0;
        /* The gap is longer than the kernel before it, nobody waited: the next launch was not there yet. */
        if (follows && r->kind == DEVICE_KERNEL && !r->graph && gap > 0 && gap < longest_gap_ns && gap > last / 2 &&
            !host_waited(waits, wait_count, busy_to, r->start_ns)) {
            gaps++;
            gap_ns += gap;
            kernel_ns += last;
            lost_ns += fmax(gap - graph_gap_ns, 0);
            if (r->facts) shortest = r->facts;
        }
        busy_to = MAXIMUM(busy_to, r->end_ns);
    }
    if (gaps < 8) return;
    hint_of_run(
        out, HINT_launch_bound, shortest, lost_ns / in->wall_ns, from_device,
        "%lld kernels of %s on average follow each other after gaps of %s: the host launches them more slowly than "
        "the device runs them; in a graph the gaps are about a microsecond",
        (long long)gaps, duration_text(in, kernel_ns / (double)gaps), duration_text(in, gap_ns / (double)gaps));
}

/* ---- waits ---- */

/* The innermost range, op or step around a record, for "who". */
static const char *around(const qn_profile *p, const record *r)
{
    const record *best = NULL;
    for (int64_t i = 0; i < p->kept_count; i++) {
        const record *o = &p->kept[i];
        bool names = o->kind == RECORD_RANGE || o->kind == RECORD_OP;
        if (!names || o->thread != r->thread || o->start_ns > r->start_ns || o->end_ns < r->end_ns) continue;
        if (!best || o->depth > best->depth) best = o;
    }
    return best ? best->name : NULL;
}

/* Idle time of the device from `at` until the next thing starts on it; 0: nothing does. */
static double idle_after(const device_record *const *all, int64_t count, int64_t at)
{
    int64_t low = 0, high = count;
    while (low < high) { /* the first that starts after it */
        int64_t middle = (low + high) / 2;
        if (all[middle]->start_ns < at)
            low = middle + 1;
        else
            high = middle;
    }
    if (low >= count) return 0;
    if (low && all[low - 1]->end_ns > at) return 0; /* it still works */
    return (double)(all[low]->start_ns - at);
}

RULE_OF_RUN(host_waits)
{
    const qn_profile *p = in->profile;
    int64_t count, waits = 0, named = 0;
    const device_record **all = in_order(in, &count);
    const char *who = NULL, *what = NULL;
    double waited_ns = 0, idle_ns = 0;
    for (int64_t i = 0; i < p->kept_count; i++) {
        const record *r = &p->kept[i];
        if (!is_wait(r)) continue;
        waits++;
        waited_ns += duration_ns(r);
        idle_ns += idle_after(all, count, r->end_ns);
        const char *name = named < 64 ? around(p, r) : NULL; /* a few are enough to say who */
        if (name) who = name;
        named++;
        what = r->detail ? r->detail : r->name;
    }
    /* One at the end of a step is how a step is timed; the device idles only where it is followed by more work. */
    if (waits < 4 || !count) return;
    hint_of_run(
        out, HINT_host_waits, NULL, idle_ns / in->wall_ns, "the records of the host and of the device",
        "%lld times the host waited (%s%s%s%s%s), %s in all; afterwards the device was idle for %s until new work "
        "arrived",
        (long long)waits, what, who ? " in " : "", who ? "\"" : "", who ? who : "", who ? "\"" : "",
        duration_text(in, waited_ns), duration_text(in, idle_ns));
}

/* ---- fusion ---- */

/* Does the kernel write (or read) the number-th array? Without its IR: the last is the output. */
static bool touches(const record_facts *f, int number, int count, bool writes)
{
    const variant *v = f->variant;
    int at = 0;
    for (int i = 0; v && i < v->kernel->param_count; i++) {
        param_kind kind = v->kernel->params[i].kind;
        if (kind != PARAM_IN && kind != PARAM_OUT && kind != PARAM_INOUT) continue;
        if (at++ == number) return writes ? kind != PARAM_IN : kind != PARAM_OUT;
    }
    return writes ? number == count - 1 : number < count - 1;
}

static bool same_shape(const shape_words *a, const shape_words *b)
{
    return a->view.elem == b->view.elem && a->view.rank == b->view.rank &&
           !memcmp(a->view.extents, b->view.extents, sizeof(int64_t) * (size_t)a->view.rank);
}

/* Bytes of the largest array that `first` writes and `second` reads, by shape; 0: none fits. */
static double passed_on(const record_facts *first, const record_facts *second)
{
    shape_words from[16], to[16];
    int from_count = shapes_read(first->shapes, from, 16), to_count = shapes_read(second->shapes, to, 16);
    double best = 0;
    for (int i = 0; i < from_count; i++) {
        if (!touches(first, i, from_count, true)) continue;
        for (int k = 0; k < to_count; k++)
            if (touches(second, k, to_count, false) && same_shape(&from[i], &to[k]))
                best = fmax(best, shape_bytes(&from[i]));
    }
    return best;
}

/* Few operations a byte: it can join its neighbour. Products keep to themselves. What the tensor level made (it has ops)
 * is fused as far as it can be within an evaluation, and cannot be across two: there is nothing to try. */
static bool is_light(const record_facts *f)
{
    if (f->product || f->ops) return false;
    double bytes = f->read_bytes + f->written_bytes;
    return bytes > 0 && !(f->flops > 50 * bytes);
}

typedef struct pair {
    const record_facts *first, *second;
    int64_t times;
} pair;

static void count_pair(const hint_input *in, pair **pairs, int *count, int *capacity, const record_facts *first,
                       const record_facts *second)
{
    for (int i = 0; i < *count; i++)
        if ((*pairs)[i].first == first && (*pairs)[i].second == second) {
            (*pairs)[i].times++;
            return;
        }
    pair new = {first, second, 1};
    if (*count < 256) ARENA_PUSH(in->memory, *pairs, *count, *capacity, new);
}

/* Of a sequence that repeats, the way from its end to its beginning: the second of the pair leads to the first by pairs
 * that are there more often. */
static bool is_turned(const pair *pairs, int count, const pair *t, arena *memory)
{
    bool *met = ARENA_ARRAY(memory, bool, count + 1);
    const record_facts **open = ARENA_ARRAY(memory, const record_facts *, count + 1);
    int open_count = 0;
    open[open_count++] = t->second;
    while (open_count) {
        const record_facts *at = open[--open_count];
        for (int i = 0; i < count; i++) {
            if (met[i] || pairs[i].first != at || pairs[i].times <= t->times) continue;
            if (pairs[i].second == t->first) return true;
            met[i] = true;
            open[open_count++] = pairs[i].second;
        }
    }
    return false;
}

static const hint_kernel *kernel_of(const hint_input *in, const record_facts *f)
{
    for (int i = 0; i < in->kernel_count; i++)
        if (in->kernels[i].facts == f) return &in->kernels[i];
    return NULL;
}

RULE_OF_RUN(missed_fusion)
{
    const qn_profile *p = in->profile;
    pair *pairs = NULL;
    int count = 0, capacity = 0;
    const record *last[MOST_THREADS + 1] = {0};
    for (int64_t i = 0; i < p->kept_count; i++) {
        const record *r = &p->kept[i];
        const record_facts *f = record_facts_of(r);
        if (!f || r->thread > MOST_THREADS) continue;
        const record *before = last[r->thread];
        last[r->thread] = r;
        if (before) count_pair(in, &pairs, &count, &capacity, record_facts_of(before), f);
    }
    double gain_ns = 0, passed = 0, most = 0;
    int found = 0;
    const pair *best = NULL;
    for (int i = 0; i < count; i++) {
        const pair *t = &pairs[i];
        const hint_kernel *a = kernel_of(in, t->first), *b = kernel_of(in, t->second);
        if (!a || !b || a == b || t->times < 2 || 2 * t->times < MINIMUM(a->calls, b->calls)) continue;
        if (!is_light(t->first) || !is_light(t->second) || is_turned(pairs, count, t, in->memory)) continue;
        double bytes = passed_on(t->first, t->second);
        double moved =
            t->first->read_bytes + t->first->written_bytes + t->second->read_bytes + t->second->written_bytes;
        double here_ns = (double)t->times * (a->median_ns + b->median_ns) * 2 * bytes / moved;
        if (!(here_ns > 0)) continue;
        found++;
        gain_ns += here_ns;
        passed += 2 * bytes * (double)t->times;
        if (here_ns > most) best = t;
        most = fmax(most, here_ns);
    }
    if (!best) return;
    hint_of_run(out, HINT_missed_fusion, best->second, fmin(gain_ns / in->wall_ns, 1),
                "the order of launches and their shapes: true where the second reads what the first wrote",
                "`%s` runs right after `%s`, %lld times%s: what passes between them is written and read again, %.3g MB "
                "in the run",
                best->second->kernel, best->first->kernel, (long long)best->times,
                found == 1  ? ""
                : found < 3 ? ", and there is another pair like it"
                            : arena_print(in->memory, ", and there are %d more pairs like it", found - 1),
                passed * 1e-6);
}

/* ---- copies ---- */

RULE_OF_RUN(avoidable_copies)
{
    const qn_profile *p = in->profile;
    int64_t copies[2] = {0}, launches = 0;
    double bytes[2] = {0}, spent_ns = 0;
    const record_facts *at = NULL;
    for (int64_t i = 0; i < p->kept_count; i++) {
        const record *r = &p->kept[i];
        if (r->kind == RECORD_LAUNCH) {
            launches++;
            at = record_facts_of(r) ? record_facts_of(r) : at;
        }
        if (r->kind != RECORD_COPY || r->b < 0 || r->b > 1) continue;
        copies[r->b]++;
        bytes[r->b] += (double)r->a;
        spent_ns += duration_ns(r);
    }
    /* One load of the data and one result are no hint: copies that come back with each launch are. */
    if (launches < 4 || copies[0] + copies[1] < launches) return;
    hint_of_run(out, HINT_avoidable_copies, at, spent_ns / in->wall_ns, from_records,
                "%lld launches came with %lld copies to the device (%.3g MB) and %lld from it (%.3g MB), %s in all",
                (long long)launches, (long long)copies[0], bytes[0] * 1e-6, (long long)copies[1], bytes[1] * 1e-6,
                duration_text(in, spent_ns));
}

RULE_OF_RUN(pageable)
{
    const qn_profile *p = in->profile;
    const double large_bytes = 1 << 20;
    double link = in->machine.link_gb_per_s > 0 ? in->machine.link_gb_per_s : 25, bytes = 0, spent_ns = 0;
    int64_t copies = 0;
    for (int64_t i = 0; i < p->kept_count; i++) {
        const record *r = &p->kept[i];
        if (r->kind != RECORD_COPY || r->b < 0 || r->b > 1 || (double)r->a < large_bytes) continue;
        bytes += (double)r->a;
        spent_ns += duration_ns(r);
        copies++;
    }
    if (!copies || bytes / spent_ns > link / 2) return;
    hint_of_run(
        out, HINT_pageable, NULL, (spent_ns - bytes / link) / in->wall_ns, from_records,
        "%lld large copies between host and device ran at %.1f GB/s; from pinned memory the link gives about %.0f",
        (long long)copies, bytes / spent_ns, link);
}

/* ---- clocks ---- */

RULE_OF_RUN(power_capped)
{
    const hint_machine *m = &in->machine;
    if (!(m->clock_mhz > 0) || !(m->promised_clock_mhz > 0) || m->clock_mhz > 0.93 * m->promised_clock_mhz) return;
    double share = 0;
    for (int i = 0; i < in->kernel_count; i++)
        if (in->kernels[i].total_ns > 0) share += in->kernels[i].total_ns / in->wall_ns;
    hint_of_run(out, HINT_power_capped, NULL, fmin(share, 1) * (1 - m->clock_mhz / m->promised_clock_mhz),
                "clocks read from the device while it ran", "the clock was %.0f MHz where %.0f are possible%s%s",
                m->clock_mhz, m->promised_clock_mhz, m->clock_reason ? ": " : "",
                m->clock_reason ? m->clock_reason : "");
}

/* ---- compilation ---- */

RULE_OF_RUN(recompiles)
{
    const qn_profile *p = in->profile;
    for (int i = 0; i < p->sum_count; i++) {
        const sum_entry *e = &p->sums[i];
        int64_t compiles = 0;
        double spent_ns = 0;
        bool first = true;
        if (e->kind != RECORD_COMPILE) continue;
        for (int k = 0; k < p->sum_count; k++) {
            const sum_entry *o = &p->sums[k];
            if (o->kind != RECORD_COMPILE || strcmp(o->sum.name, e->sum.name)) continue;
            compiles += o->sum.calls;
            spent_ns += (double)o->sum.total_ns;
            first &= k >= i;
        }
        if (!first || compiles < 3) continue;
        hint_of_run(out, HINT_recompiles, NULL, spent_ns * (double)(compiles - 1) / (double)compiles / in->wall_ns,
                    from_records,
                    "`%s` was compiled %lld times in one run, %s in all: once for each set of constants, "
                    "types and size classes",
                    e->sum.name, (long long)compiles, duration_text(in, spent_ns));
    }
}

RULE_OF_RUN(cold_cache)
{
    const qn_profile *p = in->profile;
    int64_t compiles = 0, hits = 0;
    double spent_ns = 0;
    for (int i = 0; i < p->sum_count; i++) {
        const sum_entry *e = &p->sums[i];
        if (e->kind == RECORD_CACHE) hits += e->sum.calls;
        if (e->kind != RECORD_COMPILE) continue;
        compiles += e->sum.calls;
        spent_ns += (double)e->sum.total_ns;
    }
    if (!compiles) return;
    double gain = fmin(spent_ns / in->wall_ns, 1); /* several threads compile at once */
    if (gain < 0.05) return;
    hint_of_run(
        out, HINT_cold_cache, NULL, gain, from_records,
        "%lld kernel%s compiled while the profile ran (%lld came from the cache), %s in all: a second run does not pay "
        "this",
        (long long)compiles, compiles == 1 ? " was" : "s were", (long long)hits, duration_text(in, spent_ns));
}

/* ---- threads of the CPU ---- */

RULE_OF_RUN(threads_idle)
{
    const qn_profile *p = in->profile;
    double kernels_ns = 0, work_ns = 0, few_ns = 0;
    const record_facts *worst = NULL;
    int threads = 0;
    for (int i = 0; i < in->kernel_count; i++) {
        const hint_kernel *k = &in->kernels[i];
        if (!k->facts->device || target_find(k->facts->device)->language != TARGET_C || k->machine.units < 2) continue;
        threads = k->machine.units;
        kernels_ns += k->total_ns;
        if (k->facts->programs >= k->machine.units) continue;
        few_ns += k->total_ns;
        if (!worst || k->total_ns > kernel_of(in, worst)->total_ns) worst = k->facts;
    }
    if (!threads || !(kernels_ns > 0)) return;
    for (int64_t i = 0; i < p->kept_count; i++)
        if (p->kept[i].kind == RECORD_WORK) work_ns += duration_ns(&p->kept[i]);
    /* A kernel that one thread runs leaves no records of work. */
    double busy = fmin((work_ns + few_ns) / (kernels_ns * threads), 1);
    if (busy > 0.7) return;
    /* Kernels of few programs are to blame where most of what was lost was lost in them. */
    if (few_ns * (threads - 1) < (kernels_ns * threads - work_ns - few_ns) / 2) worst = NULL;
    hint_of_run(out, HINT_threads_idle, worst, kernels_ns * (1 - busy) / in->wall_ns, "the records of the thread pool",
                "while kernels ran, %.0f%% of the time of %d threads was work: %s%s%s", 100 * busy, threads,
                worst ? "`" : "", worst ? worst->kernel : "",
                worst ? "` has fewer programs than there are threads"
                      : "there are programs enough, so they differ in size, or other processes hold the processors");
}
