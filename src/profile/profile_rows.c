/*
 * The rows of a profile's tables. In: its sums, the nesting of its kept records for what only that tells (device time and
 * memory of what encloses launches), and whose the device's time is (owners.h: operations, ranges). Out: rows by op, by op
 * and shape, by kernel or by range.
 *
 * The time of a kernel that runs on the host's own threads counts as time of the host and of the device "cpu".
 * SPDX-License-Identifier: MIT
 */
#include "profile/owners.h"
#include "profile/profile_table.h"
#include "profile/measure/roofs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_shown(const sum_entry *e, qn_table_by by)
{
    bool runs = e->kind == RECORD_KERNEL || e->kind == RECORD_LAUNCH || e->kind == RECORD_COPY;
    switch (by) {
    case QN_BY_KERNEL: return runs;
    case QN_BY_RANGE: return e->kind == RECORD_RANGE || e->kind == RECORD_STEP;
    default:
        return e->kind != RECORD_SHARE && e->kind != RECORD_ALLOCATE && e->kind != RECORD_FREE &&
               e->kind != RECORD_WORK;
    }
}

static bool is_same(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static row *row_of(view *v, const sum_entry *e)
{
    bool shapes = v->options.by == QN_BY_OP_AND_SHAPE;
    for (int i = 0; i < v->row_count; i++) {
        row *r = &v->rows[i];
        if (r->kind == e->sum.kind && is_same(r->name, e->sum.name) && (!shapes || is_same(r->shapes, e->sum.detail)))
            return r;
    }
    row fresh = {.name = e->sum.name, .kind = e->sum.kind, .shapes = e->sum.detail, .roofline = NAN};
    ARENA_PUSH(v->memory, v->rows, v->row_count, v->row_capacity, fresh);
    return &v->rows[v->row_count - 1];
}

/* ---- whose device time is whose ---- */

static const char outside_ranges[] = "(outside ranges)";

static struct name_row *find_name(const struct names *t, const char *name)
{
    uint64_t at = ((uint64_t)(uintptr_t)name * 0x9e3779b97f4a7c15u >> 32) % (uint64_t)t->size;
    while (t->items[at].row && t->items[at].name != name) at = (at + 1) % (uint64_t)t->size;
    return &t->items[at];
}

static row *row_named(view *v, struct names *t, const char *name, record_kind kind)
{
    if (2 * t->used >= t->size) {
        struct names grown = {.size = 4 * t->size + 256, .used = t->used};
        grown.items = ARENA_ARRAY(v->memory, struct name_row, grown.size);
        for (int i = 0; i < t->size; i++)
            if (t->items[i].row) *find_name(&grown, t->items[i].name) = t->items[i];
        *t = grown;
    }
    struct name_row *found = find_name(t, name);
    if (!found->row) {
        row *r = row_of(v, &(sum_entry){.sum = {.name = name, .kind = record_kinds[kind].text}});
        *found = (struct name_row){name, (int)(r - v->rows) + 1};
        t->used++;
    }
    return &v->rows[found->row - 1];
}

static void add_owned(void *user, const owned *o)
{
    view *v = user;
    const char *names[RANGE_DEPTH];
    int64_t time_ns = o->end_ns - o->start_ns;
    if (v->options.by == QN_BY_KERNEL) return;
    int count = owners_ranges(v->profile, v->nesting, o, names);
    for (int i = 0; i < count; i++) {
        bool again = false; /* a range inside one of its name: the time is in both, and once in their row */
        for (int k = i + 1; k < count; k++) again |= names[k] == names[i];
        row *r = row_named(v, &v->ranges, names[i], RECORD_RANGE);
        if (i == count - 1) r->device_self_ns += time_ns;
        if (!again) r->device_total_ns += time_ns;
        if (!again && i >= o->common) r->estimated_ns += time_ns;
    }
    if (!count && v->options.by == QN_BY_RANGE) {
        row *r = row_named(v, &v->ranges, outside_ranges, RECORD_RANGE);
        r->device_self_ns += time_ns;
        r->device_total_ns += time_ns;
        if (o->shared_between_ranges) r->estimated_ns += time_ns;
    }
    if (!o->op || v->options.by == QN_BY_RANGE) return;
    row *r = row_named(v, &v->operations, o->op, RECORD_OP);
    r->device_calls++;
    r->device_self_ns += time_ns;
    r->device_total_ns += time_ns;
    if (o->shared) r->estimated_ns += time_ns;
}

static void add_owners(view *v, const nesting *n)
{
    v->nesting = n;
    qn_error ignored; /* without memory there are no times of owners */
    (void)!owners_visit(v->profile, n, add_owned, v, &ignored);
}

/* What the kept records alone know, by sum. */
static void add_nested(const qn_profile *p, const nesting *n, int64_t *device_ns, int64_t *memory_bytes)
{
    for (int64_t i = 0; i < n->count; i++) {
        int at = session_find_sum(p, &p->kept[i]);
        if (at < 0) continue;
        device_ns[at] += n->device_total_ns[i];
        memory_bytes[at] += n->memory_bytes[i];
    }
}

/* A graph that was timed as a whole opens as its kernels: each has the part of its time that its bytes and FLOPs are of
 * the graph's. */
static void open_graphs(view *v)
{
    const qn_profile *p = v->profile;
    for (int64_t i = 0; i < p->device_count; i++) {
        const device_record *d = &p->device_kept[i];
        const record_facts *f = d->kind == DEVICE_GRAPH ? d->facts : NULL;
        if (!f || !f->part_count) continue;
        double sum = 0, time_ns = (double)(d->end_ns - d->start_ns);
        int64_t given_ns = 0;
        for (int k = 0; k < f->part_count; k++) sum += owners_cost(f->parts[k]);
        for (int k = 0; k < f->part_count; k++) {
            const record_facts *part = f->parts[k];
            row *r = row_of(v, &(sum_entry){.sum = {.name = part->kernel,
                                                    .detail = part->shapes,
                                                    .kind = record_kinds[RECORD_LAUNCH].text}});
            int64_t share_ns = (int64_t)(time_ns * owners_cost(part) / sum);
            if (!r->device_self_ns) r->bytes = r->flops = 0; /* of the capture, which ran nothing */
            r->device_self_ns += share_ns;
            r->device_total_ns += share_ns;
            r->estimated_ns += share_ns;
            r->device_calls++;
            r->bytes += part->read_bytes + part->written_bytes;
            r->flops += isfinite(part->flops) ? part->flops : 0;
            if (!r->device) r->device = part->device;
            if (!r->source) r->source = owners_source(v->memory, part);
            r->fused |= part->ops != NULL;
            given_ns += share_ns;
        }
        row *whole = row_of(
            v, &(sum_entry){.sum = {.name = f->kernel, .detail = f->shapes, .kind = record_kinds[RECORD_LAUNCH].text}});
        whole->device_self_ns = MAXIMUM(whole->device_self_ns - given_ns, 0);
        whole->bytes = whole->flops = 0;
    }
}

void table_make_rows(view *v, const nesting *n)
{
    const qn_profile *p = v->profile;
    int *numbers = ARENA_ARRAY(v->memory, int, p->sum_count + 1); /* of rows, plus 1 */
    int64_t *device_ns = ARENA_ARRAY(v->memory, int64_t, p->sum_count + 1);
    int64_t *memory_bytes = ARENA_ARRAY(v->memory, int64_t, p->sum_count + 1);
    add_nested(p, n, device_ns, memory_bytes);
    for (int i = 0; i < p->sum_count; i++) {
        const sum_entry *e = &p->sums[i];
        bool kernel = e->kind == RECORD_KERNEL, starts = e->kind == RECORD_LAUNCH || e->kind == RECORD_COPY;
        int64_t device_self_ns = kernel ? e->sum.total_ns : e->sum.device_ns;
        if (e->kind != RECORD_WORK) v->self_total_ns += e->sum.self_ns;
        v->device_total_ns += device_self_ns;
        if (!is_shown(e, v->options.by)) continue;
        row *r = row_of(v, e);
        numbers[i] = (int)(r - v->rows) + 1;
        r->calls += e->sum.calls;
        r->self_ns += e->sum.self_ns;
        r->total_ns += e->sum.total_ns;
        r->device_calls += kernel ? e->sum.calls : e->device_calls;
        r->device_self_ns += device_self_ns;
        /* The kernels of a graph stand in rows of their own; the launch of the graph has them nested. */
        if (e->kind != RECORD_RANGE)
            r->device_total_ns += kernel   ? device_self_ns
                                  : starts ? MAXIMUM(device_self_ns, device_ns[i])
                                           : device_ns[i];
        r->memory_bytes += memory_bytes[i];
        if (kernel || starts) r->bytes += (double)e->sum.bytes;
        r->flops += (double)e->sum.flops;
    }
    add_owners(v, n);
    if (v->options.by == QN_BY_KERNEL) open_graphs(v);
    v->rows_of = ARENA_ARRAY(v->memory, row *, p->sum_count + 1);
    for (int i = 0; i < p->sum_count; i++) v->rows_of[i] = numbers[i] ? &v->rows[numbers[i] - 1] : NULL;
}

/* The facts of each sum's launches, which are the same for all of them. */
static const record_facts **facts_by_sum(const view *v)
{
    const qn_profile *p = v->profile;
    const record_facts **facts = ARENA_ARRAY(v->memory, const record_facts *, p->sum_count + 1);
    for (int64_t i = 0; i < p->kept_count + p->device_count; i++) {
        bool host = i < p->kept_count;
        const record_facts *f = host ? record_facts_of(&p->kept[i]) : p->device_kept[i - p->kept_count].facts;
        if (!f) continue;
        uint16_t kind = host ? p->kept[i].kind : RECORD_LAUNCH;
        int at = session_find_sum(p, &(record){.name = f->kernel, .detail = f->shapes, .kind = kind});
        if (at >= 0 && !facts[at]) facts[at] = f;
    }
    return facts;
}

/* Devices, and how near kernels came to what those were measured to do: of several shapes, weighted by their time. */
void table_add_devices(view *v)
{
    const qn_profile *p = v->profile;
    const record_facts **facts = facts_by_sum(v);
    qn_roofline roof;
    const char *of = NULL; /* the device of `roof` */
    bool known = false;
    for (int i = 0; i < p->sum_count; i++) {
        const sum_entry *e = &p->sums[i];
        row *r = v->rows_of[i];
        const char *bound = NULL;
        if (!facts[i] || !r) continue;
        if (!r->device) r->device = facts[i]->device;
        if (!r->source) r->source = owners_source(v->memory, facts[i]);
        r->fused |= facts[i]->ops != NULL;
        bool kernel = e->kind == RECORD_KERNEL;
        double time_ns = (double)(kernel ? e->sum.total_ns : e->sum.device_ns);
        int64_t calls = kernel ? e->sum.calls : e->device_calls;
        if (facts[i]->device != of) known = p->context && qn_roofline_find(p->context, facts[i]->device, &roof);
        of = facts[i]->device;
        double share = known && calls ? roof_share(&roof, facts[i], time_ns / (double)calls, &bound) : NAN;
        if (isnan(share)) continue;
        if (time_ns > r->longest_ns) r->bound = bound;
        r->longest_ns = fmax(r->longest_ns, time_ns);
        r->roof_ns += time_ns;
        r->roofline = (isnan(r->roofline) ? 0 : r->roofline) + share * time_ns;
    }
    for (int i = 0; i < v->row_count; i++) v->rows[i].roofline /= v->rows[i].roof_ns;
}
