/*
 * A profile as rows of slices. In: what a profile kept. Out: one row for each thread, each thread's calls into devices,
 * each stream and each device that runs on the host's threads; the kernels with their sums; the memory over time.
 *
 * A KERNEL record of a host's thread is device work of "cpu", "ref" or "emu". Slices that overlap lie in lanes, the
 * earlier above. Where there are more slices than a file should have, the shortest are left out and counted; sums are of
 * all.
 * SPDX-License-Identifier: MIT
 */
#include "profile/owners.h"
#include "profile/report/report.h"
#include "target/target.h"

#include <math.h>
#include <quern/device.h>
#include <stdlib.h>
#include <string.h>

enum { ORDER_STEPS, ORDER_THREAD, ORDER_API, ORDER_STREAM, ORDER_HOST_DEVICE, ORDER_WORKER, MOST_LANES = 64 };

/* ---- rows ---- */

static report_row *row_of(report_model *m, int order, uint32_t number, const char *group, int *at)
{
    for (int i = 0; i < m->row_count; i++) {
        report_row *row = &m->rows[i];
        *at = i;
        if (row->order == order && row->number == number && !strcmp(row->group, group)) return NULL;
    }
    report_row row = {.name = group, .group = group, .order = order, .number = number};
    ARENA_PUSH(m->memory, m->rows, m->row_count, m->row_capacity, row);
    *at = m->row_count - 1;
    return &m->rows[*at];
}

/* Threads that nobody named differ by their number. */
static const char *thread_words(report_model *m, uint32_t thread)
{
    const char *name = record_thread_name(thread);
    return strcmp(name, "thread") != 0 ? name : arena_print(m->memory, "thread %u", thread);
}

static int row_of_record(report_model *m, const record *r)
{
    const record_facts *f = record_facts_of(r);
    report_row *new = NULL;
    int at;
    switch (r->kind) {
    case RECORD_STEP: row_of(m, ORDER_STEPS, 0, "steps", &at); break;
    case RECORD_KERNEL: row_of(m, ORDER_HOST_DEVICE, r->thread, f ? f->device : "cpu", &at); break;
    case RECORD_LAUNCH:
    case RECORD_COPY:
    case RECORD_WAIT:
        new = row_of(m, ORDER_API, r->thread, "API", &at);
        if (new) new->name = arena_print(m->memory, "%s: API", thread_words(m, r->thread));
        break;
    case RECORD_WORK:
        new = row_of(m, ORDER_WORKER, r->thread, "pool", &at);
        if (new) new->name = arena_print(m->memory, "%s: pool", thread_words(m, r->thread));
        break;
    default:
        new = row_of(m, ORDER_THREAD, r->thread, "threads", &at);
        if (new) new->name = thread_words(m, r->thread);
    }
    return at;
}

static int row_of_stream(report_model *m, const char *device, uint32_t stream)
{
    int at;
    report_row *new = row_of(m, ORDER_STREAM, stream, device, &at);
    if (new) new->name = arena_print(m->memory, "%s stream %u", device, stream);
    return at;
}

static const char *device_name(report_model *m, const device_record *r)
{
    if (r->facts && r->facts->device) return r->facts->device;
    return r->device ? arena_print(m->memory, "cuda:%u", r->device) : "cuda";
}

/* ---- kernels and devices ---- */

static int device_of(report_model *m, const char *name)
{
    for (int i = 0; i < m->device_count; i++)
        if (!strcmp(m->devices[i].name, name)) return i;
    if (m->device_count == COUNT(m->devices)) return 0;
    m->devices[m->device_count] = (report_device){.name = name, .blocks_per_unit = NAN, .occupancy = NAN};
    return m->device_count++;
}

static double launch_bytes(const record_facts *f)
{
    return f ? f->read_bytes + f->written_bytes : NAN;
}

static int kernel_of(report_model *m, const char *name, const char *device, const record_facts *f, map *known)
{
    char key[400];
    if (f)
        snprintf(key, sizeof(key), "%p", (const void *)f);
    else
        snprintf(key, sizeof(key), "%.300s on %s", name, device);
    void *found = map_get(known, key);
    if (found) return (int)(intptr_t)found - 1;
    report_kernel k = {.name = name,
                       .title = f && f->ops ? owners_source(m->memory, f) : name,
                       .shapes = f ? f->shapes : NULL,
                       .device = device,
                       .facts = f,
                       .file = f ? f->file : NULL,
                       .line = f ? f->line : 0,
                       .device_number = device_of(m, device),
                       .least_ns = INT64_MAX,
                       .blocks = 0,
                       .registers = f ? f->registers : 0,
                       .shared_bytes = f ? f->shared_bytes : 0,
                       .spill_bytes = f ? f->spill_bytes : 0,
                       .bytes = launch_bytes(f),
                       .flops = f ? f->flops : NAN,
                       .roof_share = NAN,
                       .source = -1};
    ARENA_PUSH(m->memory, m->kernels, m->kernel_count, m->kernel_capacity, k);
    map_set(known, arena_copy_text(m->memory, key, strlen(key)), (void *)(intptr_t)m->kernel_count);
    return m->kernel_count - 1;
}

static void kernel_add(report_kernel *k, int64_t time_ns)
{
    k->calls++;
    k->total_ns += time_ns;
    k->least_ns = MINIMUM(k->least_ns, time_ns);
    k->most_ns = MAXIMUM(k->most_ns, time_ns);
}

/* ---- slices ---- */

/* A range of the user's whose name says that data is fetched. */
static bool is_loading(const char *name)
{
    return !strncmp(name, "load", 4) || !strncmp(name, "data", 4);
}

static slice_class class_of(const record *r)
{
    switch (r->kind) {
    case RECORD_KERNEL: return SLICE_KERNEL;
    case RECORD_COPY: return SLICE_COPY;
    case RECORD_RANGE: return is_loading(r->name) ? SLICE_LOADING : SLICE_OTHER;
    case RECORD_STEP:
    case RECORD_WORK: return SLICE_OTHER;
    default: return SLICE_RUNTIME;
    }
}

static bool is_slice(const record *r)
{
    return r->kind != RECORD_ALLOCATE && r->kind != RECORD_FREE && r->kind != RECORD_SHARE;
}

static bool is_opened(const device_record *r)
{
    return r->kind == DEVICE_GRAPH && r->facts && r->facts->part_count;
}

static int64_t count_slices(const qn_profile *p)
{
    int64_t count = p->kept_count + p->device_count;
    for (int64_t i = 0; i < p->device_count; i++)
        if (is_opened(&p->device_kept[i])) count += p->device_kept[i].facts->part_count - 1;
    return count;
}

static void add_host(report_model *m, map *known)
{
    const qn_profile *p = m->profile;
    for (int64_t i = 0; i < p->kept_count; i++) {
        const record *r = &p->kept[i];
        if (!is_slice(r)) continue;
        const record_facts *f = record_facts_of(r);
        report_slice s = {.start_ns = r->start_ns - m->start_ns,
                          .end_ns = r->end_ns - m->start_ns,
                          .name = r->name,
                          .identity = r->identity,
                          .row = row_of_record(m, r),
                          .kernel = -1,
                          .class = (uint8_t)class_of(r),
                          .kind = (uint8_t)r->kind};
        if (r->kind == RECORD_KERNEL) {
            s.kernel = kernel_of(m, r->name, f ? f->device : "cpu", f, known);
            report_kernel *k = &m->kernels[s.kernel];
            kernel_add(k, r->end_ns - r->start_ns);
            if (f) k->blocks = f->programs;
        }
        if (r->kind == RECORD_STEP) {
            report_step step = {.number = r->a, .start_ns = s.start_ns, .end_ns = s.end_ns};
            s.name = arena_print(m->memory, "step %lld", (long long)r->a);
            ARENA_PUSH(m->memory, m->steps, m->step_count, m->step_capacity, step);
        }
        m->slices[m->slice_count++] = s;
    }
}

/* A graph that was timed as a whole opens as its kernels, one after the other: each has the part of its time that its bytes
 * and FLOPs are of the graph's. */
static void add_graph(report_model *m, const device_record *r, const report_slice *whole, const char *device,
                      map *known)
{
    const record_facts *f = r->facts;
    double sum = 0, before = 0, length_ns = (double)(r->end_ns - r->start_ns);
    for (int k = 0; k < f->part_count; k++) sum += owners_cost(f->parts[k]);
    for (int k = 0; k < f->part_count; k++) {
        const record_facts *part = f->parts[k];
        report_slice s = *whole;
        s.name = part->kernel;
        s.kernel = kernel_of(m, part->kernel, device, part, known);
        s.start_ns = whole->start_ns + (int64_t)(length_ns * before / sum);
        before += owners_cost(part);
        s.end_ns = whole->start_ns + (int64_t)(length_ns * before / sum);
        kernel_add(&m->kernels[s.kernel], s.end_ns - s.start_ns);
        m->kernels[s.kernel].blocks = part->programs;
        m->slices[m->slice_count++] = s;
    }
    m->has_shares |= f->part_count > 1;
}

static void add_device(report_model *m, map *known)
{
    const qn_profile *p = m->profile;
    for (int64_t i = 0; i < p->device_count; i++) {
        const device_record *r = &p->device_kept[i];
        const char *device = device_name(m, r), *name = r->facts ? r->facts->kernel : r->name;
        bool kernel = r->kind == DEVICE_KERNEL || r->kind == DEVICE_GRAPH;
        report_slice s = {.start_ns = r->start_ns - m->start_ns,
                          .end_ns = r->end_ns - m->start_ns,
                          .name = name,
                          .identity = r->identity,
                          .row = row_of_stream(m, device, r->stream),
                          .kernel = -1,
                          .class = kernel ? SLICE_KERNEL : SLICE_COPY,
                          .kind = RECORD_KINDS};
        if (is_opened(r)) {
            add_graph(m, r, &s, device, known);
            continue;
        }
        if (kernel) {
            s.kernel = kernel_of(m, name, device, r->facts, known);
            report_kernel *k = &m->kernels[s.kernel];
            kernel_add(k, r->end_ns - r->start_ns);
            k->blocks = (int64_t)r->grid[0] * r->grid[1] * r->grid[2];
            if (r->registers) k->registers = (int)r->registers;
            if (r->shared_bytes) k->shared_bytes = (int)r->shared_bytes;
        }
        m->slices[m->slice_count++] = s;
    }
}

static int by_row(const void *left, const void *right)
{
    const report_slice *a = left, *b = right;
    if (a->row != b->row) return a->row < b->row ? -1 : 1;
    if (a->start_ns != b->start_ns) return a->start_ns < b->start_ns ? -1 : 1;
    return a->end_ns > b->end_ns ? -1 : a->end_ns < b->end_ns;
}

/* Rows in the order in which they are drawn. */
static void sort_rows(report_model *m)
{
    int *places = ARENA_ARRAY(m->memory, int, m->row_count + 1);
    report_row *sorted = ARENA_ARRAY(m->memory, report_row, m->row_count + 1);
    for (int i = 0; i < m->row_count; i++) {
        const report_row *a = &m->rows[i];
        for (int j = 0; j < m->row_count; j++) {
            const report_row *b = &m->rows[j];
            /* A thread's calls into devices stand under the thread. */
            int rank_a = a->order == ORDER_API ? ORDER_THREAD : a->order;
            int rank_b = b->order == ORDER_API ? ORDER_THREAD : b->order;
            int order = rank_a != rank_b         ? rank_a - rank_b
                        : a->number != b->number ? (a->number < b->number ? -1 : 1)
                        : a->order != b->order   ? a->order - b->order
                                                 : i - j;
            places[i] += order > 0;
        }
    }
    for (int i = 0; i < m->row_count; i++) sorted[places[i]] = m->rows[i];
    for (int64_t i = 0; i < m->slice_count; i++) m->slices[i].row = places[m->slices[i].row];
    m->rows = sorted;
}

static void place_in_lanes(report_model *m)
{
    int64_t ends[MOST_LANES];
    for (int64_t i = 0; i < m->slice_count;) {
        report_row *row = &m->rows[m->slices[i].row];
        row->first = i;
        for (int lane = 0; lane < MOST_LANES; lane++) ends[lane] = INT64_MIN;
        for (; i < m->slice_count && &m->rows[m->slices[i].row] == row; i++) {
            report_slice *s = &m->slices[i];
            int lane = 0;
            while (lane < MOST_LANES - 1 && ends[lane] > s->start_ns) lane++;
            ends[lane] = s->end_ns;
            s->lane = (uint16_t)lane;
            row->lanes = MAXIMUM(row->lanes, lane + 1);
        }
        row->count = i - row->first;
    }
}

static int by_length(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

static void leave_out(report_model *m, int64_t most_slices)
{
    if (m->slice_count <= most_slices) return;
    int64_t *lengths = malloc(sizeof(*lengths) * (size_t)m->slice_count);
    if (!lengths) return;
    for (int64_t i = 0; i < m->slice_count; i++) lengths[i] = m->slices[i].end_ns - m->slices[i].start_ns;
    qsort(lengths, (size_t)m->slice_count, sizeof(*lengths), by_length);
    int64_t least_ns = lengths[m->slice_count - most_slices], equal = 0, kept = 0;
    for (int64_t i = m->slice_count - most_slices; i < m->slice_count && lengths[i] == least_ns; i++) equal++;
    for (int64_t i = 0; i < m->slice_count; i++) {
        int64_t length = m->slices[i].end_ns - m->slices[i].start_ns;
        if (length < least_ns || (length == least_ns && equal-- <= 0)) continue;
        m->slices[kept++] = m->slices[i];
    }
    m->left_out = m->slice_count - kept;
    m->left_out_below_ns = least_ns + 1;
    m->slice_count = kept;
    heap_free(lengths);
}

static void find_medians(report_model *m)
{
    double *times = heap_array((size_t)m->slice_count + 1, sizeof(*times));
    int64_t *next = heap_array((size_t)m->kernel_count + 1, sizeof(*next)), first = 0;
    for (int i = 1; i < m->kernel_count; i++) next[i] = next[i - 1] + m->kernels[i - 1].calls;
    for (int64_t i = 0; i < m->slice_count; i++) {
        const report_slice *s = &m->slices[i];
        if (s->kernel >= 0) times[next[s->kernel]++] = (double)(s->end_ns - s->start_ns);
    }
    for (int i = 0; i < m->kernel_count; first = next[i++])
        m->kernels[i].median_ns = (int64_t)quantile(times + first, (int)(next[i] - first), 0.5);
    heap_free(times);
    heap_free(next);
}

static int by_total(const void *left, const void *right)
{
    const report_kernel *a = left, *b = right;
    if (a->total_ns != b->total_ns) return a->total_ns > b->total_ns ? -1 : 1;
    return a->number - b->number;
}

static void sort_kernels(report_model *m)
{
    int *places = ARENA_ARRAY(m->memory, int, m->kernel_count + 1);
    for (int i = 0; i < m->kernel_count; i++) m->kernels[i].number = i;
    if (m->kernel_count) qsort(m->kernels, (size_t)m->kernel_count, sizeof(*m->kernels), by_total);
    for (int i = 0; i < m->kernel_count; i++) places[m->kernels[i].number] = i;
    for (int64_t i = 0; i < m->slice_count; i++)
        if (m->slices[i].kernel >= 0) m->slices[i].kernel = places[m->slices[i].kernel];
}

/* ---- all of it ---- */

static void find_span(report_model *m)
{
    const qn_profile *p = m->profile;
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (int64_t i = 0; i < p->kept_count; i++) {
        first = MINIMUM(first, p->kept[i].start_ns);
        last = MAXIMUM(last, p->kept[i].end_ns);
    }
    for (int64_t i = 0; i < p->device_count; i++) {
        first = MINIMUM(first, p->device_kept[i].start_ns);
        last = MAXIMUM(last, p->device_kept[i].end_ns);
    }
    m->start_ns = first <= last ? first : p->start_ns;
    m->span_ns = first <= last ? last - first : 0;
}

void model_build(report_model *m, const qn_profile *p, int64_t most_slices)
{
    *m = (report_model){.memory = arena_new(), .profile = p};
    find_span(m);
    m->slices = heap_new(sizeof(*m->slices) * (size_t)(count_slices(p) + 1));
    map *known = map_new(m->memory);
    add_host(m, known);
    add_device(m, known);
    sort_kernels(m);
    sort_rows(m);
    for (int i = 0; i < m->row_count; i++) m->worker_count += m->rows[i].order == ORDER_WORKER;
    qsort(m->slices, (size_t)m->slice_count, sizeof(*m->slices), by_row);
    find_medians(m);
    (void)!memory_timelines_make(p, m->memories, &m->memory_count, NULL); /* no memory: no curves */
    model_split(m);
    leave_out(m, most_slices);
    place_in_lanes(m);
}

void model_free(report_model *m)
{
    memory_timelines_free(m->memories, m->memory_count);
    heap_free(m->slices);
    arena_free(m->memory);
}

/* ---- ceilings ---- */

/* What was kept of an earlier measurement, else the few numbers that take a second. */
static void find_ceilings(report_device *d, qn_context *context)
{
    qn_error ignored;
    if (qn_roofline_find(context, d->name, &d->roofline)) {
        d->measured = true;
        d->ceilings = (qn_ceilings){.copy_gb_per_s = d->roofline.copy_gb_per_s,
                                    .read_gb_per_s = d->roofline.read_gb_per_s,
                                    .fma_one_gflop_per_s = d->roofline.fma_one_gflop_per_s,
                                    .fma_all_gflop_per_s = d->roofline.fma_f32_gflop_per_s,
                                    .threads = d->roofline.units};
        return;
    }
    d->measured = qn_measure(context, d->name, (size_t)256 << 20, &d->ceilings, &ignored) == QN_OK;
    if (d->measured) d->roofline = roofline_from(&d->ceilings);
}

void model_measure(report_model *m, qn_context *context)
{
    for (int i = 0; context && i < m->device_count; i++) {
        report_device *d = &m->devices[i];
        qn_device_info info;
        qn_error ignored;
        if (qn_device_find(context, d->name, &info, &ignored) != QN_OK || !info.available) continue;
        snprintf(d->description, sizeof(d->description), "%s", info.description);
        d->units = info.units;
        if (!target_find(d->name)->timed) continue; /* what they reach says nothing */
        find_ceilings(d, context);
    }
    for (int i = 0; i < m->kernel_count; i++) {
        report_kernel *k = &m->kernels[i];
        const report_device *d = &m->devices[k->device_number];
        if (d->measured)
            k->roof_share = roof_share(&d->roofline, k->facts, (double)k->total_ns / (double)k->calls, &k->bound);
    }
    for (int i = 0; i < m->device_count; i++) {
        report_device *d = &m->devices[i];
        double time = 0, blocks = 0, occupied = 0, occupied_time = 0;
        for (int n = 0; n < m->kernel_count; n++) {
            const report_kernel *k = &m->kernels[n];
            if (k->device_number != i) continue;
            if (k->blocks > 0) {
                time += (double)k->total_ns;
                blocks += (double)k->total_ns * (double)k->blocks;
            }
            if (k->facts && isfinite(k->facts->occupancy)) {
                occupied_time += (double)k->total_ns;
                occupied += (double)k->total_ns * k->facts->occupancy;
            }
        }
        if (time > 0 && d->units > 0) d->blocks_per_unit = blocks / time / d->units;
        if (occupied_time > 0) d->occupancy = occupied / occupied_time;
    }
}
