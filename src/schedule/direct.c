/*
 * Products whose operands need no copy. In: an operand of a dot, or a loop. Out: the slice of an array (perhaps transposed,
 * perhaps with its own bounds selected to 0) that the operand is; the dot that the whole loop is.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/survey.h"

bool is_one(const survey *e, value v)
{
    number n;
    return tile_is_constant(e->k, v, &n) && n.i == 1;
}

limit limit_of_axis(const survey *e, value start, int array, int axis)
{
    const tile_param *p = &e->k->params[array];
    const tile_op *made =
        p->extents[axis] ? tile_def(e->k, p->extents[axis]) : NULL; /* of scratch memory, by the head */
    number n;
    if (p->extent_param[axis] >= 0) return (limit){start, EXTENT_PARAM, p->extent_param[axis]};
    if (made && made->code == OP_ARG) return (limit){start, EXTENT_PARAM, made->attr.index};
    if (p->extents[axis] && tile_is_constant(e->k, p->extents[axis], &n)) return (limit){start, EXTENT_NUMBER, n.i};
    return (limit){start, EXTENT_ARRAY, array * 8 + axis};
}

limit limit_of_bound(const survey *e, const tile_op *bound)
{
    value start = bound->operands[0], extent = bound->operands[2];
    const tile_op *op = tile_def(e->k, extent);
    if (op && op->code == OP_ARG) return (limit){start, EXTENT_PARAM, op->attr.index};
    if (op && op->code == OP_CONST) return (limit){start, EXTENT_NUMBER, op->attr.number.i};
    return (limit){start, EXTENT_VALUE, extent};
}

static bool bound_is_own(const survey *e, const tile_op *bound, const tile_op *load)
{
    const struct access *a = &load->attr.access;
    int operand = a->first_index;
    for (int axis = 0; axis < a->rank; axis++) {
        if (a->kind[axis] == INDEX_SLICE && a->result_axis[axis] == bound->attr.index) {
            limit own = limit_of_axis(e, load->operands[operand], a->array, axis);
            limit c = limit_of_bound(e, bound);
            number x, y;
            bool same_step = load->operands[operand + 1] == bound->operands[1] ||
                             (tile_is_constant(e->k, load->operands[operand + 1], &x) &&
                              tile_is_constant(e->k, bound->operands[1], &y) && x.i == y.i);
            return same_step && own.start == c.start && own.kind == c.kind && own.number == c.number;
        }
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    return false;
}

static bool mask_is_own(const survey *e, value mask, const tile_op *load, int *ways)
{
    const tile_op *op = value_is_virtual(e, mask) ? tile_def(e->k, mask) : NULL;
    if (!op || --*ways < 0) return false;
    if (op->code == OP_AND)
        return mask_is_own(e, op->operands[0], load, ways) && mask_is_own(e, op->operands[1], load, ways);
    if (op->code == OP_BROADCAST) return mask_is_own(e, op->operands[0], load, ways);
    return op->code == OP_BOUND && bound_is_own(e, op, load);
}

static bool is_zero_tile(const survey *e, value v)
{
    number n;
    while (tile_def(e->k, v) && tile_def(e->k, v)->code == OP_BROADCAST) v = tile_def(e->k, v)->operands[0];
    if (!tile_is_constant(e->k, v, &n)) return false;
    return dtype_is_float(tile_type_of(e->k, v).elem) ? n.f == 0 : n.i == 0;
}

/* What computes a virtual value, behind the rounding that the product does itself. */
static tile_op *definition_of_operand(const survey *e, value *v, bool rounded)
{
    tile_op *op = value_is_virtual(e, *v) ? tile_def(e->k, *v) : NULL;
    if (!op || op->code != OP_TF32 || !rounded) return op;
    *v = op->operands[0];
    return value_is_virtual(e, *v) ? tile_def(e->k, *v) : NULL;
}

/* What is multiplied with a scale that the product knows of. */
static tile_op *before_scale(const survey *e, const tile_op *op, const tile_op *scale)
{
    const tile_op *second = tile_def(e->k, op->operands[1]);
    bool last = second == scale || (second->code == OP_BROADCAST && tile_def(e->k, second->operands[0]) == scale);
    value v = op->operands[last ? 0 : 1];
    return value_is_virtual(e, v) ? tile_def(e->k, v) : NULL;
}

bool dot_operand_is_direct(const survey *e, value v, tile_op **load, bool *swapped)
{
    *swapped = false;
    bool rounded = e->rounds[v];
    const tile_op *scale = e->scales[v];
    tile_op *op = definition_of_operand(e, &v, rounded);
    int rank = e->k->values[v].type.rank;
    if (op && op->code == OP_PERMUTE && op->attr.axes[rank - 1] == rank - 2 && op->attr.axes[rank - 2] == rank - 1) {
        *swapped = true;
        v = op->operands[0];
        op = definition_of_operand(e, &v, rounded);
    }
    value mask = 0;
    if (op && op->code == OP_SELECT && is_zero_tile(e, op->operands[2])) {
        mask = op->operands[0];
        tile_type whole = tile_type_of(e->k, v), part = tile_type_of(e->k, op->operands[1]);
        if (!tile_shape_same(&whole, &part)) return false;
        v = op->operands[1];
        op = definition_of_operand(e, &v, rounded);
    }
    if (op && op->code == OP_MUL && scale) op = before_scale(e, op, scale);
    if (!op || op->code != OP_LOAD || op->attr.access.mask_count) return false;
    const struct access *a = &op->attr.access;
    int operand = a->first_index;
    for (int axis = 0; axis < a->rank; axis++) {
        if (a->kind[axis] == INDEX_TILE && e->k->values[op->operands[operand]].type.rank) return false;
        if (a->kind[axis] == INDEX_SLICE && !a->safe[axis]) {
            number step;
            if (!tile_is_constant(e->k, op->operands[operand + 1], &step) || step.i < 1) return false;
        }
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    *load = op;
    int ways = TILE_MOST_WAYS;
    return !mask || mask_is_own(e, mask, op, &ways);
}

static bool is_of_block(const tile_block *b, value v)
{
    for (int i = 0; i < b->arg_count; i++)
        if (b->args[i] == v) return true;
    for (int i = 0; i < b->op_count; i++)
        for (int j = 0; j < b->ops[i]->result_count; j++)
            if (b->ops[i]->results[j] == v) return true;
    return false;
}

/* A load that the loop moves along one axis of its tile only, by the whole tile in each turn. */
static bool load_follows(const survey *e, const tile_op *load, const tile_block *body, int axis)
{
    const struct access *a = &load->attr.access;
    bool found = false;
    for (int i = 0, operand = a->first_index; i < a->rank; i++) {
        value start = load->operands[operand];
        if (a->kind[i] == INDEX_SLICE && a->result_axis[i] == axis)
            found = start == body->args[0] && is_one(e, load->operands[operand + 1]);
        else if (is_of_block(body, start))
            return false;
        operand += a->kind[i] == INDEX_SLICE ? 2 : 1;
    }
    return found && !e->written[a->array];
}

static bool operand_follows(const survey *e, value v, const tile_block *body, int axis)
{
    tile_op *load;
    bool swapped;
    if (!dot_operand_is_direct(e, v, &load, &swapped)) return false;
    if (swapped) axis = 1 - axis;
    return load_follows(e, load, body, axis) && (!e->scales[v] || load_follows(e, e->scales[v], body, axis));
}

tile_op *loop_is_product(const survey *e, const tile_op *loop)
{
    if (loop->code != OP_FOR || loop->result_count != 1 || loop->flags & F_DOWN) return NULL;
    const tile_block *body = loop->regions[0];
    tile_op *dot = NULL;
    for (int i = 0; i < body->op_count; i++) {
        tile_op *op = body->ops[i];
        if (op->code == OP_DOT && !dot)
            dot = op;
        else if (op->code != OP_YIELD && op->code != OP_LOAD && op->code != OP_BOUND && op->code != OP_AND &&
                 op->code != OP_SELECT && op->code != OP_BROADCAST && op->code != OP_PERMUTE && op->code != OP_CONST &&
                 op->code != OP_TF32 &&
                 op->code != OP_MUL /* of an operand, which it makes no slice unless it is its scale */)
            return NULL;
    }
    const tile_op *yield = body->ops[body->op_count - 1];
    if (!dot || yield->operands[0] != dot->results[0] || dot->operand_count != 3 || dot->operands[2] != body->args[1] ||
        e->uses[body->args[1]] != 1 || e->k->values[dot->results[0]].type.rank != 2)
        return NULL;
    number step;
    bool whole = tile_is_constant(e->k, loop->operands[2], &step) && step.i > 0 &&
                 e->k->values[dot->operands[0]].type.dims[1] == step.i;
    return whole && operand_follows(e, dot->operands[0], body, 1) && operand_follows(e, dot->operands[1], body, 0)
               ? dot
               : NULL;
}

const sink *item_only_sink(const item *it)
{
    const group *g = it->kind == ITEM_GROUP ? it->group : NULL;
    return g && g->pass_count == 1 && g->passes[0].sink_count == 1 ? &g->passes[0].sinks[0] : NULL;
}

bool loop_starts_at_zero(const survey *e, const item *items)
{
    const tile_op *loop = items[1].kind == ITEM_CONTROL ? items[1].op : NULL;
    const sink *fill = item_only_sink(&items[0]);
    return loop && fill && loop_is_product(e, loop) && fill->kind == SINK_COPY &&
           fill->result == loop->regions[0]->args[1] && is_zero_tile(e, fill->v);
}
