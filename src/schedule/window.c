/*
 * Windows: loads of a pass that lie beside each other along its vector axis (the elements of a pool, a stencil, a
 * depthwise filter). In: the sinks of a pass. Out: sets of such loads; cuda/window.c gives each an array of registers.
 *
 * Members of a window read one array with the same indices but for the start along its last axis, where they differ by
 * constants, and under the same tests. A position that the mask leaves out has the value that a `select` would give it,
 * so nothing is asked again for each member.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/view.h"

#include <math.h>
#include <string.h>

enum { WINDOW_STEP = 4, WINDOW_SPAN = 32, WINDOW_LEAST = 8 };

typedef struct member {
    const tile_op *load;
    place at;
    value fill; /* what a position outside counts as; 0: zero */
    int window; /* -1: none */
    int64_t offset;
} member;

struct windows {
    member *members;
    int member_count, member_capacity;
    window *items;
    int count, capacity;
};

/* start = base + offset */
static void take_apart(const survey *e, value start, value *base, int64_t *offset)
{
    const tile_op *op = tile_def(e->k, start);
    number n;
    *base = start;
    *offset = 0;
    if (tile_is_constant(e->k, start, &n)) {
        *base = 0;
        *offset = n.i;
    } else if (op && op->code == OP_ADD) {
        for (int i = 0; i < 2; i++) {
            if (!tile_is_constant(e->k, op->operands[i], &n)) continue;
            *base = op->operands[1 - i];
            *offset = n.i;
        }
    }
}

/* The load below a conversion that changes nothing in registers; NULL: something else. */
static const tile_op *load_below(const survey *e, value v)
{
    const tile_op *op = tile_def(e->k, v);
    if (!op || !value_is_virtual(e, v) || e->uses[v] != 1) return NULL;
    if (op->code == OP_CONVERT && tile_type_of(e->k, v).elem == DT_F32) {
        dtype from = tile_type_of(e->k, op->operands[0]).elem;
        if (from != DT_F16 && from != DT_BF16 && from != DT_F32) return NULL;
        if (!value_is_virtual(e, op->operands[0]) || e->uses[op->operands[0]] != 1) return NULL;
        op = tile_def(e->k, op->operands[0]);
    }
    return op && op->code == OP_LOAD ? op : NULL;
}

/* The load whose elements outside its mask this select replaces by a constant; NULL: it is another select. */
const tile_op *window_padded_load(const survey *e, const tile_op *op)
{
    number n;
    if (op->code != OP_SELECT || !dtype_is_float(tile_type_of(e->k, op->results[0]).elem)) return NULL;
    const tile_op *fill = tile_def(e->k, op->operands[2]), *load = load_below(e, op->operands[1]);
    while (fill && fill->code == OP_BROADCAST) fill = tile_def(e->k, fill->operands[0]);
    if (!load || !fill || !tile_is_constant(e->k, fill->results[0], &n)) return NULL;
    dtype elem = tile_type_of(e->k, load->results[0]).elem;
    if (elem == DT_F64 || isnan(n.f) || round_to_dtype(elem, n.f) != n.f) return NULL; /* no word holds it */
    int count = load->attr.access.mask_count;
    return count == 1 && load->operands[load->operand_count - 1] == op->operands[0] ? load : NULL;
}

/* The conditions of a mask: one that runs along the vector axis, at most, and others. False: something else. */
static bool take_mask(const nest_view *n, window *w, value mask, place at)
{
    survey *e = n->survey;
    const tile_op *op = tile_def(e->k, mask);
    number truth;
    if (op && op->code == OP_AND)
        return take_mask(n, w, op->operands[0], place_of_operand(e, op, 0, &at)) &&
               take_mask(n, w, op->operands[1], place_of_operand(e, op, 1, &at));
    while (op && op->code == OP_BROADCAST) {
        mask = op->operands[0];
        op = tile_def(e->k, mask);
    }
    if (op && tile_is_constant(e->k, mask, &truth)) return truth.i != 0;
    if (!e->k->values[mask].type.rank) {
        if (w->part_count == (int)(sizeof(w->parts) / sizeof(w->parts[0]))) return false;
        w->parts[w->part_count++] = mask;
        return true;
    }
    if (!op || op->code != OP_BOUND || at.axis[op->attr.index] != w->loop || w->bound) return false;
    w->bound = op;
    return true;
}

/* The window that a load is of, alone so far. False: of none. */
static bool window_begin(const nest_view *n, const tile_op *load, const place *at, window *w)
{
    survey *e = n->survey;
    const struct access *access = &load->attr.access;
    const tile_param *p = &e->k->params[access->array];
    int operand = access->first_index, last = access->rank - 1;
    number step;
    *w = (window){.load = load, .at = *at, .members = 1, .axis = last};
    if (last < 0 || p->digits || e->written[access->array] || !dtype_is_float(p->elem)) return false;
    if (dtypes[p->elem].size_bytes < 2) return false; /* shared words are of two or fewer elements */
    if (access->kind[last] != INDEX_SLICE || !(p->facts.last_unit || p->facts.contiguous)) return false;
    for (int axis = 0; axis < last; axis++) {
        if (access->kind[axis] == INDEX_TILE) return false;
        if (access->kind[axis] == INDEX_SLICE) {
            int loop = at->axis[access->result_axis[axis]];
            if (loop != NO_AXIS && n->role[loop] == ROLE_VECTOR) return false;
        }
        operand += access->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    w->loop = at->axis[access->result_axis[last]];
    if (w->loop == NO_AXIS || n->role[w->loop] != ROLE_VECTOR) return false;
    if (!tile_is_constant(e->k, load->operands[operand + 1], &step) || step.i < 1 || step.i > WINDOW_STEP) return false;
    w->step = step.i;
    take_apart(e, load->operands[operand], &w->base, &w->low);
    w->high = w->low;
    for (int i = load->operand_count - access->mask_count; i < load->operand_count; i++)
        if (!take_mask(n, w, load->operands[i], place_of_operand(e, load, i, at))) return false;
    if (!w->bound) return true;
    value base;
    int64_t offset;
    number by;
    take_apart(e, w->bound->operands[0], &base, &offset);
    return base == w->base && offset == w->low && access->safe[last] &&
           tile_is_constant(e->k, w->bound->operands[1], &by) && by.i == w->step;
}

static bool window_same(const survey *e, const window *a, const window *b)
{
    const struct access *x = &a->load->attr.access, *y = &b->load->attr.access;
    if (x->array != y->array || a->base != b->base || a->step != b->step || a->fill != b->fill ||
        a->part_count != b->part_count || !a->bound != !b->bound || x->safe[a->axis] != y->safe[a->axis] ||
        memcmp(a->parts, b->parts, sizeof(a->parts[0]) * (size_t)a->part_count) ||
        memcmp(&a->at, &b->at, sizeof(a->at)))
        return false;
    if (a->bound && a->bound->operands[2] != b->bound->operands[2]) {
        limit c = limit_of_bound(e, a->bound), d = limit_of_bound(e, b->bound);
        if (c.kind != d.kind || c.number != d.number) return false;
    }
    int i = x->first_index, j = y->first_index;
    for (int axis = 0; axis < a->axis; axis++) {
        if (x->kind[axis] != y->kind[axis] || x->safe[axis] != y->safe[axis]) return false;
        if (x->kind[axis] == INDEX_SLICE && x->result_axis[axis] != y->result_axis[axis]) return false;
        for (int k = x->kind[axis] == INDEX_SLICE ? 2 : 1; k > 0; k--)
            if (a->load->operands[i++] != b->load->operands[j++]) return false;
    }
    return true;
}

static void note_load(survey *e, value v, const place *at, void *context)
{
    const nest_view *n = context;
    struct windows *all = n->windows;
    const tile_op *op = tile_def(e->k, v);
    if (!op || !e->k->values[v].type.rank || !value_is_virtual(e, v)) return;
    const tile_op *padded = window_padded_load(e, op);
    if (padded) { /* it is met later */
        const tile_op *fill = tile_def(e->k, op->operands[2]);
        while (fill->code == OP_BROADCAST) fill = tile_def(e->k, fill->operands[0]);
        member m = {.load = padded, .at = place_of_operand(e, op, 1, at), .fill = fill->results[0], .window = -2};
        ARENA_PUSH(e->memory, all->members, all->member_count, all->member_capacity, m);
        return;
    }
    if (op->code != OP_LOAD) return;
    member *m = NULL;
    for (int i = 0; i < all->member_count && !m; i++)
        if (all->members[i].load == op && place_same(&all->members[i].at, at, MAX_RANK)) m = &all->members[i];
    if (m && m->window != -2) return;
    if (!m) {
        member new = {.load = op, .at = *at};
        ARENA_PUSH(e->memory, all->members, all->member_count, all->member_capacity, new);
        m = &all->members[all->member_count - 1];
    }
    window w;
    m->window = -1;
    if (!window_begin(n, op, at, &w)) return;
    w.fill = m->fill;
    m->offset = w.low;
    for (m->window = 0; m->window < all->count; m->window++)
        if (window_same(e, &all->items[m->window], &w)) break;
    if (m->window == all->count) {
        ARENA_PUSH(e->memory, all->items, all->count, all->capacity, w);
        return;
    }
    window *to = &all->items[m->window];
    to->members++;
    to->low = MINIMUM(to->low, w.low);
    to->high = MAXIMUM(to->high, w.high);
}

void windows_find(nest_view *n)
{
    survey *e = n->survey;
    const pass_layout *l = n->layout;
    n->windows = NULL;
    if (!n->has_inner || n->has_rows || n->spread->machine.checked || l->row_fast) return;
    for (int axis = 0; axis < l->loop_count; axis++)
        if (l->loops[axis] < 0 || l->loops[axis] % (axis == l->loop_count - 1 ? WINDOW_LEAST : 1)) return;
    n->windows = ARENA_NEW(e->memory, struct windows);
    for (int i = 0; i < n->pass->sink_count; i++) walk_sink(e, &n->pass->sinks[i], note_load, n);
}

limit window_limit(const survey *e, const window *w)
{
    return w->bound ? limit_of_bound(e, w->bound) : limit_of_axis(e, w->base, w->load->attr.access.array, w->axis);
}

/* 1: they may differ. */
int window_width(const nest_view *n, const window *w)
{
    survey *e = n->survey;
    const struct access *access = &w->load->attr.access;
    const tile_param *p = &e->k->params[access->array];
    int64_t divisor = w->base ? power_of_two(facts_of(e->facts, w->base).divisor) : 64;
    limit l = window_limit(e, w);
    divisor = MINIMUM(divisor, limit_divisor(e, &l));
    return has_vectors(p) ? (int)MINIMUM(divisor, 16 / dtypes[p->elem].size_bytes) : 1;
}

/* Is there more than one load, and do they read together no more than each for itself would? Far apart and by large steps
 * (dilated, strided windows) a line has more elements than all that is asked for. */
static bool window_shares(const nest_view *n, const window *w)
{
    int64_t span = w->high - w->low, vector = window_width(n, w);
    return w->members > 1 && span > 0 && span < WINDOW_SPAN && w->step * (vector - 1) + span + 1 <= w->members * vector;
}

window *window_of(const nest_view *n, const tile_op *load, const place *at, int64_t *offset)
{
    const struct windows *all = n->windows;
    for (int i = 0; all && i < all->member_count; i++) {
        const member *m = &all->members[i];
        if (m->load != load || !place_same(&m->at, at, MAX_RANK) || m->window < 0) continue;
        window *w = &all->items[m->window];
        *offset = m->offset;
        return window_shares(n, w) ? w : NULL;
    }
    return NULL;
}

int window_vector(const nest_view *n, const tile_op *load, const place *at)
{
    int64_t offset;
    const window *w = window_of(n, load, at, &offset);
    return w ? window_width(n, w) : 0;
}

bool store_may_spread(const nest_view *n, const tile_op *op)
{
    if (op->code != OP_STORE || !n->windows || op->attr.access.mask_count) return false;
    return !n->survey->read[op->attr.access.array] && dtype_is_float(n->survey->k->params[op->attr.access.array].elem);
}
