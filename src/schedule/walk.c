/*
 * The tree of virtual values below a sink, and where in the loops each of them is asked for.
 *
 * In: a value and the loop axes that run along its axes. Out: a call for every value that the sink needs. The same
 * rules of places serve planning (plan.c) and emission (c/nest.c), so that they cannot disagree.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/survey.h"

#include <string.h>

int loops_of(const tile_type *type, int64_t loops[MAX_RANK])
{
    int count = 0;
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i] != 1) loops[count++] = type->dims[i];
    return count;
}

place place_own(const tile_type *type)
{
    place at;
    int count = 0;
    for (int i = 0; i < MAX_RANK; i++)
        at.axis[i] = (signed char)(i < type->rank && type->dims[i] != 1 ? count++ : NO_AXIS);
    return at;
}

bool place_same(const place *a, const place *b, int rank)
{
    return !memcmp(a->axis, b->axis, (size_t)rank * sizeof(a->axis[0]));
}

int place_level(const place *at, int rank)
{
    int level = 0;
    for (int i = 0; i < rank; i++) level = MAXIMUM(level, at->axis[i] + 1);
    return level;
}

bool tile_is_buffered(const survey *e, value v)
{
    const tile_op *op = tile_def(e->k, v);
    if (!op) return true;
    switch (op->code) {
    case OP_DOT:
    case OP_SCAN:
    case OP_ATOMIC:
    case OP_FOR:
    case OP_WHILE:
    case OP_IF: return true;
    case OP_RESHAPE: {
        tile_type from = tile_type_of(e->k, op->operands[0]), to = tile_type_of(e->k, v);
        return !tile_reshape_only_units(&from, &to);
    }
    default: return false;
    }
}

bool value_is_virtual(const survey *e, value v)
{
    if (!e->k->values[v].type.rank || e->force[v] || tile_is_buffered(e, v)) return false;
    return tile_def(e->k, v)->code != OP_REDUCE;
}

place place_of_operand(const survey *e, const tile_op *op, int operand, const place *at)
{
    tile_type type = tile_type_of(e->k, op->operands[operand]);
    place from;
    for (int i = 0; i < MAX_RANK; i++) from.axis[i] = NO_AXIS;
    if (op->code == OP_PERMUTE) {
        for (int i = 0; i < type.rank; i++)
            if (type.dims[op->attr.axes[i]] != 1) from.axis[op->attr.axes[i]] = at->axis[i];
        return from;
    }
    if (op->code == OP_RESHAPE) {
        tile_type to = tile_type_of(e->k, op->results[0]);
        for (int i = 0, j = 0; i < type.rank; i++) {
            if (type.dims[i] == 1) continue;
            while (to.dims[j] == 1) j++;
            from.axis[i] = at->axis[j++];
        }
        return from;
    }
    for (int i = 0; i < type.rank; i++)
        if (type.dims[i] != 1) from.axis[i] = at->axis[i];
    return from;
}

/* A value that many others use is met once for each place, so that the walk stays linear. */
static void walk(survey *e, value v, place at, bool expand, walk_visit *visit, void *context)
{
    int rank = e->k->values[v].type.rank;
    if (e->seen[v] == e->seen_now && place_same(&e->seen_at[v], &at, rank)) return;
    e->seen[v] = e->seen_now;
    e->seen_at[v] = at;
    visit(e, v, &at, context);
    if (!expand && !value_is_virtual(e, v)) return;
    const tile_op *op = tile_def(e->k, v);
    for (int i = 0; i < op->operand_count; i++)
        walk(e, op->operands[i], place_of_operand(e, op, i, &at), false, visit, context);
}

void walk_tree(survey *e, value v, place at, walk_visit *visit, void *context)
{
    e->seen_now++;
    walk(e, v, at, false, visit, context);
}

void walk_sink(survey *e, const sink *s, walk_visit *visit, void *context)
{
    tile_type type = tile_type_of(e->k, s->v);
    place at = place_own(&type);
    e->seen_now++;
    if (s->kind == SINK_STORE || s->kind == SINK_ATOMIC || s->kind == SINK_ASSERT) {
        for (int i = 0; i < s->op->operand_count; i++)
            walk(e, s->op->operands[i], place_of_operand(e, s->op, i, &at), false, visit, context);
    } else {
        walk(e, s->v, at, s->kind == SINK_KEEP, visit, context);
    }
}

bool access_same(const survey *e, const tile_op *a, const tile_op *b)
{
    const struct access *x = &a->attr.access, *y = &b->attr.access;
    if (x->array != y->array) return false;
    int i = x->first_index, j = y->first_index;
    for (int axis = 0; axis < x->rank; axis++) {
        if (x->kind[axis] != y->kind[axis]) return false;
        if (x->kind[axis] == INDEX_SLICE && x->result_axis[axis] != y->result_axis[axis]) return false;
        for (int n = x->kind[axis] == INDEX_SLICE ? 2 : 1; n > 0; n--)
            if (a->operands[i++] != b->operands[j++]) return false;
    }
    tile_type s = tile_type_of(e->k, a->code == OP_LOAD ? a->results[0] : a->operands[0]);
    tile_type t = tile_type_of(e->k, b->code == OP_LOAD ? b->results[0] : b->operands[0]);
    return tile_shape_same(&s, &t);
}

static int own_weight(const survey *e, const tile_op *op)
{
    tile_type type = tile_type_of(e->k, op->results[0]);
    switch (op->code) {
    case OP_CONST:
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_PERMUTE: return 0;
    case OP_MAP: return 60;
    case OP_DIV:
    case OP_MOD: return dtype_is_float(type.elem) ? 3 : 12;
    case OP_LOAD:
        for (int axis = 0; axis < op->attr.access.rank; axis++)
            if (op->attr.access.kind[axis] == INDEX_TILE) return 8;
        return 1;
    default: return ops[op->code].costly ? 12 : 1;
    }
}

static int op_weight(const survey *e, const tile_op *op)
{
    int weight = own_weight(e, op);
    for (int i = 0; i < op->operand_count && weight < 1000; i++) weight += value_weight(e, op->operands[i]);
    return weight;
}

int value_weight(const survey *e, value v)
{
    if (!value_is_virtual(e, v)) return e->k->values[v].type.rank ? 1 : 0;
    return op_weight(e, tile_def(e->k, v));
}

int sink_weight(const survey *e, const sink *s)
{
    return s->kind == SINK_KEEP ? op_weight(e, tile_def(e->k, s->v)) : value_weight(e, s->v);
}

bool is_one_plus_tanh(const survey *e, const tile_op *op, int *tanh)
{
    if (op->code != OP_ADD || e->k->precise || op->flags & F_PRECISE) return false;
    for (*tanh = 0; *tanh < 2; ++*tanh) {
        value v = op->operands[*tanh];
        const tile_op *of = value_is_virtual(e, v) && e->uses[v] == 1 ? tile_def(e->k, v) : NULL;
        number one;
        if (of && of->code == OP_TANH && !(of->flags & F_PRECISE) &&
            tile_is_constant(e->k, op->operands[1 - *tanh], &one) && one.f == 1)
            return true;
    }
    return false;
}
