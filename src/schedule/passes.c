/*
 * Groups and passes as a team of a GPU goes through them. In: a group of the plan, or an op that becomes one. Out: which of
 * its axes are rows, what an axis is to the threads, which values were met, where the result of a fold lies.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/view.h"

place place_nowhere(void)
{
    place at;
    for (int i = 0; i < MAX_RANK; i++) at.axis[i] = NO_AXIS;
    return at;
}

int axis_level(const nest_view *n, int axis)
{
    return n->role[axis] == ROLE_ROW ? LEVEL_ROW : n->role[axis] == ROLE_INNER ? LEVEL_CHUNK : LEVEL_ELEMENT;
}

void view_remember(nest_view *n, value v, place at, int level, const void *of)
{
    met_value entry = {v, at, level, of};
    ARENA_PUSH(n->survey->memory, n->met, n->met_count, n->met_capacity, entry);
}

const met_value *view_met(const nest_view *n, value v, const place *at)
{
    int rank = n->survey->k->values[v].type.rank;
    for (int i = n->met_count - 1; i >= 0; i--)
        if (n->met[i].v == v && place_same(&n->met[i].at, at, rank)) return &n->met[i];
    return NULL;
}

void view_forget(nest_view *n, int level)
{
    int kept = 0;
    for (int i = 0; i < n->met_count; i++)
        if (n->met[i].level <= level) n->met[kept++] = n->met[i];
    n->met_count = kept;
}

/* The axes that a fold keeps, when they are not the outer ones. */
static bool is_column_fold(const survey *e, const group *g, unsigned *rows)
{
    if (g->pass_count != 1 || g->passes[0].sink_count != 1) return false;
    const sink *s = &g->passes[0].sinks[0];
    if (s->kind != SINK_REDUCE || s->fold_axis != NO_AXIS) return false;
    tile_type type = tile_type_of(e->k, s->v);
    place own = place_own(&type);
    *rows = 0;
    for (int i = 0; i < type.rank; i++)
        if (own.axis[i] != NO_AXIS && !(s->op->attr.axis_set >> i & 1)) *rows |= 1u << own.axis[i];
    return true;
}

void view_take_layout(nest_view *n, pass_layout *l)
{
    n->layout = l;
    n->has_rows = l->row_axes != 0;
    n->has_inner = l->row_axes != (1u << l->loop_count) - 1;
    int last = -1;
    for (int axis = 0; axis < l->loop_count; axis++) {
        n->role[axis] = l->row_axes >> axis & 1 ? ROLE_ROW : ROLE_INNER;
        if (n->role[axis] == ROLE_INNER) last = axis;
    }
    if (last >= 0) n->role[last] = ROLE_VECTOR;
}

unsigned group_rows(const survey *e, const group *g, bool *column_fold)
{
    unsigned rows = (1u << g->outer) - 1;
    *column_fold = is_column_fold(e, g, &rows);
    return rows;
}

bool pass_is_fast(const pass_nest *pass, unsigned rows, bool column_fold)
{
    return column_fold && pass->loop_count && rows >> (pass->loop_count - 1) & 1;
}

value sink_stored_value(const survey *e, const sink *s)
{
    const tile_op *op = tile_def(e->k, s->v);
    if (s->kind != SINK_STORE || !value_is_virtual(e, s->v) || op->code != OP_CONVERT) return s->v;
    dtype from = tile_type_of(e->k, op->operands[0]).elem, to = tile_type_of(e->k, s->v).elem;
    return from == DT_F32 && dtype_is_narrow(to) ? op->operands[0] : s->v;
}

place fold_result_place(const survey *e, const sink *s)
{
    tile_type type = tile_type_of(e->k, s->v), result = tile_type_of(e->k, s->result);
    place own = place_own(&type), at = place_nowhere();
    for (int i = 0; i < result.rank; i++)
        if (result.dims[i] != 1) at.axis[i] = own.axis[i];
    return at;
}

const group *fold_group_of(const survey *e, tile_op *op, fold_group *f)
{
    tile_type type = tile_type_of(e->k, op->operands[0]);
    f->sink =
        (sink){.kind = SINK_REDUCE, .op = op, .v = op->operands[0], .result = op->results[0], .fold_axis = NO_AXIS};
    f->pass = (pass_nest){.sinks = &f->sink, .sink_count = 1};
    f->pass.loop_count = loops_of(&type, f->pass.loops);
    f->group = (group){.passes = &f->pass, .pass_count = 1};
    return &f->group;
}

bool scan_is_row(const survey *e, const tile_op *op, int64_t loops[MAX_RANK])
{
    tile_type type = tile_type_of(e->k, op->results[0]);
    return loops_of(&type, loops) == 1 && type.dims[op->attr.index] != 1 && dtypes[type.elem].size_bytes >= 4;
}

bool home_is_alias(const survey *e, value v)
{
    const tile_op *op = tile_def(e->k, v);
    return op && op->code == OP_RESHAPE && tile_is_buffered(e, v);
}

bool home_is_here(const nest_view *n, value v, const place *at)
{
    tile_type type = tile_type_of(n->survey->k, v);
    place own = place_own(&type);
    int64_t loops[MAX_RANK];
    return !home_is_alias(n->survey, v) && n->layout && n->has_inner &&
           loops_of(&type, loops) == n->layout->loop_count && place_same(&own, at, type.rank);
}

int64_t layout_count_of(const pass_layout *l, unsigned axes)
{
    int64_t count = 1;
    for (int axis = 0; axis < l->loop_count; axis++) {
        if (!(axes >> axis & 1)) continue;
        if (l->loops[axis] < 0) return -1;
        count *= l->loops[axis];
    }
    return count;
}

void layout_tests(const survey *e, const pass_layout *l, bool rows, bool *chunks, bool *elements)
{
    unsigned axes = ((1u << l->loop_count) - 1) & ~l->row_axes;
    int64_t count = layout_count_of(l, axes), last = 0;
    int threads = e->spread->team.threads;
    int inner = l->row_fast ? threads / MAXIMUM(l->inner_threads, 1) : l->inner_threads ? l->inner_threads : threads;
    bool exact = count >= 0 && l->repeats && inner && (int64_t)l->repeats * inner * l->vector == count;
    for (int axis = 0; axis < l->loop_count; axis++)
        if (axes >> axis & 1) last = l->loops[axis];
    int64_t divisor = count >= 0 ? count : last >= 0 ? last : facts_of(e->facts, (value)-last).divisor;
    *chunks = rows || !exact || l->shifted;
    *elements = divisor % l->vector != 0 || l->shifted;
}
