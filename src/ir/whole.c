/*
 * Finding a product of whole arrays in the tile IR. In: a kernel, as it was lowered or after any pass. Out: its operands by
 * the directions of the product (rows, columns, k), or what stands against it.
 *
 * Walked from the store backwards: conversions that round once, a row that is added, the sums, the loop over k, the `dot`,
 * and through turns and masks to the loads. A mask may test that an element lies inside; that its bound is the array's is
 * asked of the numbers of a launch (whole_numbers.c). Whatever else the kernel does makes it something else than a product.
 * SPDX-License-Identifier: MIT
 */
#include "ir/whole.h"

#include "ir/scalar.h"

#include <string.h>

typedef struct search {
    whole_product *w;
    const tile_kernel *k;
    arena *memory;
    const tile_op *load_of[2];
    value carried; /* the loop's counter */
    const char *why;
} search;

static bool refuse(search *s, const char *why)
{
    if (!s->why) s->why = why;
    return false;
}

static bool is_number(const search *s, value v, double wanted)
{
    number n;
    const tile_op *op = tile_def(s->k, v);
    while (op && op->code == OP_BROADCAST) op = tile_def(s->k, v = op->operands[0]);
    if (!tile_is_constant(s->k, v, &n)) return false;
    return dtype_is_float(tile_type_of(s->k, v).elem) ? n.f == wanted : (double)n.i == wanted;
}

/* A position along a direction: the same scalar for all arrays. */
static bool take_start(search *s, int direction, value start, int64_t length)
{
    whole_product *w = s->w;
    value known = is_number(s, start, 0) ? 0 : start;
    if (length < 1) return refuse(s, "a tile has no constant size");
    if (!w->tile[direction]) {
        w->tile[direction] = length;
        w->starts[direction] = known;
    }
    return (w->tile[direction] == length && w->starts[direction] == known) ||
           refuse(s, "its operands and its result are not cut into the same tiles");
}

/* The array of a load or a store whose tile has two last axes, along these directions. `at`: where each axis of the
 * access has gone to in the tile; -1: it is left out. */
static bool take_array(search *s, const tile_op *op, tile_type type, const int *direction_of, whole_array *out)
{
    const access *x = &op->attr.access;
    const tile_param *p = &s->k->params[x->array];
    int operand = x->first_index;
    *out = (whole_array){.param = x->array, .axes = {-1, -1, -1}};
    if (x->mask_count) return refuse(s, "an access has a mask of its own");
    if (p->digits) return refuse(s, "an operand is gathered");
    for (int axis = 0; axis < x->rank; axis++) {
        value index = op->operands[operand];
        if (x->kind[axis] == INDEX_SCALAR) {
            out->picked[axis] = index;
            operand++;
            continue;
        }
        if (x->kind[axis] != INDEX_SLICE) return refuse(s, "an operand is looked up by indices");
        int tile_axis = x->result_axis[axis], direction = direction_of[tile_axis];
        if (direction < 0) return refuse(s, "a tile has more axes than a product");
        if (!is_number(s, op->operands[operand + 1], 1)) return refuse(s, "an operand is read in steps");
        if (!take_start(s, direction, index, type.dims[tile_axis])) return false;
        out->axes[direction] = axis;
        operand += 2;
    }
    return true;
}

/* Does the mask keep what lies inside along the directions of its axes, and nothing else? */
static bool take_mask(search *s, value mask, const int *direction_of, int depth)
{
    const tile_op *op = tile_def(s->k, mask);
    number n;
    if (depth > 16) return refuse(s, "an operand has a mask that is no bound");
    if (tile_is_constant(s->k, mask, &n) && n.i) return true;
    if (op && op->code == OP_AND)
        return take_mask(s, op->operands[0], direction_of, depth + 1) &&
               take_mask(s, op->operands[1], direction_of, depth + 1);
    if (op && op->code == OP_BROADCAST) return take_mask(s, op->operands[0], direction_of, depth + 1);
    if (!op || op->code != OP_BOUND || !tile_type_of(s->k, mask).rank)
        return refuse(s, "an operand has a mask that is no bound");
    int direction = direction_of[op->attr.index];
    value start = is_number(s, op->operands[0], 0) ? 0 : op->operands[0];
    if (direction < 0 || !is_number(s, op->operands[1], 1) || start != s->w->starts[direction])
        return refuse(s, "an operand has a mask of other elements");
    whole_bound bound = {direction, op->operands[2]};
    ARENA_PUSH(s->memory, s->w->bounds, s->w->bound_count, s->w->bound_capacity, bound);
    return true;
}

typedef struct step { /* a mask or a rounding on the way from a load to the product */
    value mask;
    int direction_of[MAX_RANK];
} step;

/* From an operand of the dot down to its load. Its last two axes lie along `first` and `second`. */
static bool take_operand(search *s, value v, int first, int second, whole_array *out, bool *rounded)
{
    enum { MOST_STEPS = 8 };
    step steps[MOST_STEPS];
    int step_count = 0, direction_of[MAX_RANK];
    tile_type type = tile_type_of(s->k, v);
    if (type.rank < 2) return refuse(s, "an operand is no matrix");
    for (int i = 0; i < MAX_RANK; i++) direction_of[i] = -1;
    direction_of[type.rank - 2] = first;
    direction_of[type.rank - 1] = second;
    for (int i = 0; i < type.rank - 2; i++)
        if (type.dims[i] != 1) return refuse(s, "one program computes several products");
    for (;;) {
        const tile_op *op = tile_def(s->k, v);
        if (!op) return refuse(s, "an operand is no load");
        if (op->code == OP_LOAD) {
            s->load_of[first == WHOLE_DEPTH] = op;
            if (!take_array(s, op, tile_type_of(s->k, v), direction_of, out)) return false;
            break;
        }
        if (op->code == OP_TF32) {
            *rounded = true;
        } else if (op->code == OP_SELECT && !(op->flags & F_ASSIGN) && is_number(s, op->operands[2], 0)) {
            if (step_count == MOST_STEPS) return refuse(s, "an operand has too many masks");
            steps[step_count].mask = op->operands[0];
            memcpy(steps[step_count++].direction_of, direction_of, sizeof(direction_of));
            v = op->operands[1];
            continue;
        } else if (op->code == OP_PERMUTE) {
            int from[MAX_RANK];
            for (int i = 0; i < MAX_RANK; i++) from[i] = -1;
            for (int i = 0; i < tile_type_of(s->k, v).rank; i++) from[op->attr.axes[i]] = direction_of[i];
            memcpy(direction_of, from, sizeof(from));
        } else if (op->code != OP_CONVERT || tile_type_of(s->k, op->operands[0]).elem != tile_type_of(s->k, v).elem) {
            return refuse(s, "an operand is computed as it is read");
        }
        v = op->operands[0];
    }
    for (int i = 0; i < step_count; i++)
        if (!take_mask(s, steps[i].mask, steps[i].direction_of, 0)) return false;
    return true;
}

static bool take_dot(search *s, const tile_op *dot)
{
    whole_product *w = s->w;
    bool rounded[2] = {false, false};
    w->dot = dot;
    w->elem = tile_type_of(s->k, dot->operands[0]).elem;
    w->sum = tile_type_of(s->k, dot->results[0]).elem;
    if (!take_operand(s, dot->operands[0], WHOLE_ROWS, WHOLE_DEPTH, &w->left, &rounded[0])) return false;
    if (!take_operand(s, dot->operands[1], WHOLE_DEPTH, WHOLE_COLUMNS, &w->right, &rounded[1])) return false;
    if (rounded[0] != rounded[1]) return refuse(s, "one operand alone is rounded to tf32");
    w->tf32 = rounded[0];
    return true;
}

/* The dot that makes a value from what is there before it, in any of the forms in which it is written. */
static const tile_op *find_dot(const search *s, value v, value *before)
{
    const tile_op *op = tile_def(s->k, v);
    *before = 0;
    if (op && op->code == OP_ADD)
        for (int i = 0; i < 2; i++) {
            const tile_op *dot = tile_def(s->k, op->operands[i]);
            if (!dot || dot->code != OP_DOT || dot->operand_count > 2) continue;
            *before = op->operands[1 - i];
            return dot;
        }
    if (!op || op->code != OP_DOT) return NULL;
    if (op->operand_count > 2) *before = op->operands[2];
    return op;
}

/* The sums: one step, or a loop over k that adds to nothing. */
static bool take_sums(search *s, value v)
{
    const tile_op *op = tile_def(s->k, v);
    value before;
    if (op && op->code == OP_FOR) {
        const tile_block *body = op->regions[0];
        if (op->result_count != 1 || op->flags & F_DOWN)
            return refuse(s, "its loop does more than to add up a product");
        const tile_op *dot = find_dot(s, body->ops[body->op_count - 1]->operands[0], &before);
        if (!dot || before != body->args[1]) return refuse(s, "its loop does more than to add up a product");
        if (!is_number(s, op->operands[0], 0) || !is_number(s, op->operands[3], 0))
            return refuse(s, "its loop does not begin with nothing at 0");
        for (int i = 0; i < body->op_count; i++) {
            op_code code = body->ops[i]->code;
            if (!ops[code].pure && code != OP_LOAD && code != OP_YIELD)
                return refuse(s, "its loop does more than to add up a product");
        }
        s->w->limit = op->operands[1];
        if (!take_dot(s, dot)) return false;
        if (s->w->starts[WHOLE_DEPTH] != body->args[0] ||
            !is_number(s, op->operands[2], (double)s->w->tile[WHOLE_DEPTH]))
            return refuse(s, "the steps of its loop are not those of k");
        return true;
    }
    const tile_op *dot = find_dot(s, v, &before);
    if (!dot) return refuse(s, "something else than a product is stored");
    if (before && !is_number(s, before, 0)) return refuse(s, "the product is added to something");
    if (!take_dot(s, dot)) return false;
    return !s->w->starts[WHOLE_DEPTH] || refuse(s, "its operands do not begin with k at 0");
}

/* Conversions that round once at most, to what is stored. */
static value drop_conversions(const search *s, value v, dtype stored)
{
    for (const tile_op *op; (op = tile_def(s->k, v)) && op->code == OP_CONVERT; v = op->operands[0]) {
        dtype from = tile_type_of(s->k, op->operands[0]).elem;
        if (from != stored && from != DT_F32) break;
    }
    return v;
}

/* A row of numbers of the stored type, added in f32; as they are: not by way of a type that rounds them. */
static bool take_bias(search *s, value v)
{
    whole_product *w = s->w;
    const tile_op *op;
    while ((op = tile_def(s->k, v)) && (op->code == OP_CONVERT || op->code == OP_BROADCAST)) {
        dtype to = tile_type_of(s->k, v).elem;
        if (to != DT_F32 && to != w->stored) return false;
        v = op->operands[0];
    }
    if (!op || op->code != OP_LOAD) return false;
    tile_type type = tile_type_of(s->k, v);
    int direction_of[MAX_RANK];
    whole_array bias;
    for (int i = 0; i < MAX_RANK; i++) direction_of[i] = -1;
    if (type.rank < 1 || type.elem != w->stored || op->attr.access.rank != 1) return false;
    for (int i = 0; i + 1 < type.rank; i++)
        if (type.dims[i] != 1) return false;
    direction_of[type.rank - 1] = WHOLE_COLUMNS;
    if (!take_array(s, op, type, direction_of, &bias) || bias.axes[WHOLE_COLUMNS] < 0) return false;
    w->bias = bias.param;
    return true;
}

static bool take_stored(search *s, const tile_op *store)
{
    whole_product *w = s->w;
    tile_type type = tile_type_of(s->k, store->operands[0]);
    int direction_of[MAX_RANK];
    for (int i = 0; i < MAX_RANK; i++) direction_of[i] = -1;
    if (type.rank < 2) return refuse(s, "what is stored is no matrix");
    direction_of[type.rank - 2] = WHOLE_ROWS;
    direction_of[type.rank - 1] = WHOLE_COLUMNS;
    for (int i = 0; i < type.rank - 2; i++)
        if (type.dims[i] != 1) return refuse(s, "one program computes several products");
    w->stored = s->k->params[store->attr.access.array].elem;
    value v = drop_conversions(s, store->operands[0], w->stored);
    const tile_op *op = tile_def(s->k, v);
    value before;
    if (op && op->code == OP_ADD && !find_dot(s, v, &before) && tile_type_of(s->k, v).elem == DT_F32) {
        int sums = -1;
        for (int i = 0; i < 2; i++) {
            value inner = drop_conversions(s, op->operands[i], DT_F32);
            const tile_op *from = tile_def(s->k, inner);
            if (from && (from->code == OP_FOR || find_dot(s, inner, &before))) sums = i;
        }
        if (sums < 0) return refuse(s, "something else than a product is stored");
        if (!take_sums(s, op->operands[sums]) || !take_array(s, store, type, direction_of, &w->result)) return false;
        return take_bias(s, op->operands[1 - sums]) || refuse(s, "something is added to the product");
    }
    if (op && op->code != OP_FOR && !find_dot(s, v, &before))
        return refuse(s, "something is computed between the product and its store");
    return take_sums(s, v) && take_array(s, store, type, direction_of, &w->result);
}

/* ---- what the host has to compute ---- */

static bool is_scalar_of_launch(const tile_op *op)
{
    return op->code == OP_CONST || op->code == OP_ARG || op->code == OP_PROGRAM || op->code == OP_PROGRAMS;
}

/* The ops of the phase that these values need; inputs stand before what they are for. */
static bool take_scalars(search *s, const tile_block *block)
{
    whole_product *w = s->w;
    const whole_array *arrays[] = {&w->left, &w->right, &w->result};
    bool *needed = ARENA_ARRAY(s->memory, bool, s->k->value_count);
    if (w->limit) {
        needed[w->limit] = true;
        w->starts[WHOLE_DEPTH] = 0;
    }
    for (int i = 0; i < 2; i++) needed[w->starts[i]] = true;
    for (int i = 0; i < w->bound_count; i++) needed[w->bounds[i].limit] = true;
    for (int i = 0; i < COUNT(arrays); i++)
        for (int axis = 0; axis < MAX_RANK; axis++) needed[arrays[i]->picked[axis]] = true;
    needed[0] = false;
    for (int i = block->op_count - 1; i >= 0; i--) {
        const tile_op *op = block->ops[i];
        if (op->result_count != 1 || !needed[op->results[0]]) continue;
        int64_t unread, zeros[3] = {0, 0, 0};
        if (tile_type_of(s->k, op->results[0]).rank || op->operand_count > 3 ||
            (!is_scalar_of_launch(op) && !scalar_of_op(s->k, op, zeros, &unread)))
            return refuse(s, "where its tiles lie is not computed from the launch alone");
        for (int n = 0; n < op->operand_count; n++) needed[op->operands[n]] = true;
        ARENA_PUSH(s->memory, w->scalars, w->scalar_count, w->scalar_capacity, op);
        needed[op->results[0]] = false;
    }
    for (int v = 1; v < s->k->value_count; v++)
        if (needed[v]) return refuse(s, "where its tiles lie is not computed from the launch alone");
    for (int i = 0; i < w->scalar_count / 2; i++) {
        const tile_op *op = w->scalars[i];
        w->scalars[i] = w->scalars[w->scalar_count - 1 - i];
        w->scalars[w->scalar_count - 1 - i] = op;
    }
    return true;
}

static bool find(search *s)
{
    const tile_kernel *k = s->k;
    const tile_op *store = NULL, *loop = NULL;
    whole_product *w = s->w;
    if (k->raw_language) return refuse(s, "a raw kernel is text");
    if (k->phase_count != 1) return refuse(s, "it has several phases");
    for (int i = 0; i < k->phases[0]->op_count; i++) {
        const tile_op *op = k->phases[0]->ops[i];
        bool again = (op->code == OP_STORE && store) || (op->code == OP_FOR && loop);
        if (op->code == OP_STORE) store = op;
        if (op->code == OP_FOR) loop = op;
        bool known = ops[op->code].pure || op->code == OP_LOAD || op->code == OP_STORE || op->code == OP_FOR ||
                     op->code == OP_ASSUME;
        if (again || !known) return refuse(s, "it does more than one product");
    }
    if (!store) return refuse(s, "nothing is stored");
    if (!take_stored(s, store)) return false;
    if (w->result.param == w->left.param || w->result.param == w->right.param)
        return refuse(s, "its result is one of its operands");
    for (int i = 0; i < WHOLE_DIRECTIONS; i++) /* no array has an axis along it: one element */
        if (!w->tile[i]) w->tile[i] = 1;
    return take_scalars(s, k->phases[0]);
}

const whole_product *whole_find(const tile_kernel *k, arena *memory, const char **why)
{
    whole_product *w = ARENA_NEW(memory, whole_product);
    *w = (whole_product){.kernel = k, .bias = -1};
    search s = {.w = w, .k = k, .memory = memory};
    bool found = find(&s);
    if (why) *why = found ? NULL : s.why;
    return found ? w : NULL;
}
