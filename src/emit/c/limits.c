/*
 * The limits of loops. In: the sinks of a pass. Out: for each loop axis the bounds outside which no sink does anything,
 * which become the ends of the loop, and whether these ends are multiples of 16.
 * SPDX-License-Identifier: MIT
 */
#include "emit/c/nest.h"

#include <string.h>

static void add_constraints(emitter *e, value mask, place at, int axis, int *ways, constraints *list)
{
    if (!value_is_virtual(e->survey, mask) || --*ways < 0)
        return; /* with fewer of them a loop is longer than it need be */
    const tile_op *op = tile_def(e->k, mask);
    switch (op->code) {
    case OP_AND:
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_PERMUTE:
        for (int i = 0; i < op->operand_count; i++)
            add_constraints(e, op->operands[i], place_of_operand(e->survey, op, i, &at), axis, ways, list);
        return;
    case OP_BOUND:
        if (at.axis[op->attr.index] == axis && is_one(e->survey, op->operands[1]))
            ARENA_PUSH(e->memory, list->items, list->count, list->capacity, constraint_of_bound(e, op));
        return;
    default: return;
    }
}

static void add_mask_constraints(emitter *e, value mask, place at, int axis, constraints *list)
{
    int ways = TILE_MOST_WAYS;
    add_constraints(e, mask, at, axis, &ways, list);
}

static bool is_identity(const emitter *e, value v, fold_kind fold)
{
    number n, identity;
    while (tile_def(e->k, v) && tile_def(e->k, v)->code == OP_BROADCAST) v = tile_def(e->k, v)->operands[0];
    if (!tile_is_constant(e->k, v, &n)) return false;
    dtype t = tile_type_of(e->k, v).elem;
    identity = fold_identity(fold, t);
    return dtype_is_float(t) ? n.f == identity.f : n.i == identity.i;
}

bool is_position(const sink *s)
{
    return s->kind == SINK_REDUCE && (s->op->attr.fold == FOLD_ARGMAX || s->op->attr.fold == FOLD_ARGMIN);
}

/* Along one loop axis: outside of these the sink does nothing. */
static constraints sink_constraints(emitter *e, const sink *s, int axis)
{
    constraints list = {0};
    tile_type type = tile_type_of(e->k, s->v);
    place at = place_own(&type);
    const tile_op *op = s->op;
    if (s->kind == SINK_STORE || (s->kind == SINK_ATOMIC && !e->survey->uses[s->result])) {
        int operand = op->attr.access.first_index;
        for (int i = 0; i < op->attr.access.rank; i++) {
            if (op->attr.access.kind[i] != INDEX_SLICE) {
                operand++;
                continue;
            }
            if (at.axis[op->attr.access.result_axis[i]] == axis && !op->attr.access.safe[i] &&
                is_one(e->survey, op->operands[operand + 1]))
                ARENA_PUSH(e->memory, list.items, list.count, list.capacity,
                           constraint_of_axis(e, op->operands[operand], op->attr.access.array, i));
            operand += 2;
        }
        for (int i = op->operand_count - op->attr.access.mask_count; i < op->operand_count; i++)
            add_mask_constraints(e, op->operands[i], place_of_operand(e->survey, op, i, &at), axis, &list);
    } else if (s->kind == SINK_ASSERT) {
        for (int i = 1; i < op->operand_count; i++)
            add_mask_constraints(e, op->operands[i], place_of_operand(e->survey, op, i, &at), axis, &list);
    } else if (s->kind == SINK_REDUCE || s->kind == SINK_COPY) {
        const tile_op *select = value_is_virtual(e->survey, s->v) ? tile_def(e->k, s->v) : NULL;
        if (!select || select->code != OP_SELECT || is_position(s)) return list;
        value old = select->operands[2];
        bool nothing = s->kind == SINK_REDUCE ? is_identity(e, old, op->attr.fold)
                                              : !value_is_virtual(e->survey, old) && e->survey->buffer_of[old] &&
                                                    e->survey->buffer_of[old] == e->survey->buffer_of[s->result] &&
                                                    tile_type_same(&type, &e->k->values[old].type);
        if (nothing)
            add_mask_constraints(e, select->operands[0], place_of_operand(e->survey, select, 0, &at), axis, &list);
    }
    return list;
}

/* Those that all sinks of some passes share. */
constraints common_constraints(nest *n, const pass_nest *passes, int count, int axis)
{
    emitter *e = n->e;
    constraints common = {0};
    bool first = true;
    for (int p = 0; p < count; p++) {
        for (int s = 0; s < passes[p].sink_count; s++) {
            constraints own = sink_constraints(e, &passes[p].sinks[s], axis);
            if (first) {
                common = own;
            } else {
                constraints both = {0};
                n->known[axis] = own;
                for (int i = 0; i < common.count; i++)
                    if (constraint_known(n, axis, &common.items[i]))
                        ARENA_PUSH(e->memory, both.items, both.count, both.capacity, common.items[i]);
                common = both;
            }
            first = false;
        }
    }
    return common;
}

static bool is_multiple(const emitter *e, value v)
{
    return facts_of(e->facts, v).divisor % 16 == 0;
}

static bool starts_inside(const emitter *e, const constraint *c)
{
    return facts_of(e->facts, c->start).low >= 0;
}

/* Are both ends of the loop multiples of 16, whatever the arguments? */
bool limits_are_even(const emitter *e, const constraints *list, int64_t extent)
{
    if (extent >= 0 ? extent % 16 != 0 : !is_multiple(e, (value)-extent)) return false;
    for (int i = 0; i < list->count; i++) {
        const constraint *c = &list->items[i];
        if (!is_multiple(e, c->start) || !starts_inside(e, c)) return false;
        bool even = (c->kind == EXTENT_NUMBER && c->number % 16 == 0) ||
                    (c->kind == EXTENT_PARAM && e->k->params[c->number].facts.by16) ||
                    (c->kind == EXTENT_VALUE && is_multiple(e, (value)c->number));
        if (!even) return false;
    }
    return true;
}

/* Declares the limits of a loop at a level: texts of the first and the end. */
void put_limits(nest *n, int level, const constraints *list, const char *extent, const char **first, const char **last)
{
    emitter *e = n->e;
    *first = words_zero;
    *last = extent;
    if (!list->count) return;
    int number = ++e->serial;
    *last = arena_print(e->memory, "last%d", number);
    put_at(n, level, "long %s = %s;", *last, extent);
    for (int i = 0; i < list->count; i++) {
        const char *start = emit_name(e, list->items[i].start), *end = constraint_extent(e, &list->items[i]);
        put_at(n, level, "if (%s - %s < %s) %s = %s - %s;", end, start, *last, *last, end, start);
        if (starts_inside(e, &list->items[i])) continue;
        if (*first == words_zero) {
            *first = arena_print(e->memory, "first%d", number);
            put_at(n, level, "long %s = 0;", *first);
        }
        put_at(n, level, "if (-%s > %s) %s = -%s;", start, *first, *first, start);
    }
}
