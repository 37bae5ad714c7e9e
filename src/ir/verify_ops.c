/*
 * The rules of the ops whose result is written out: shape, fold, memory, control, effect, head. Each function gets an
 * op whose operands exist, are in scope and are as many as ops.def says, and whose results have well-formed types.
 * SPDX-License-Identifier: MIT
 */
#include "ir/verify.h"

#include <string.h>

static int64_t constant_count(const tile_type *type)
{
    int64_t count = 1;
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i] < 0 || __builtin_mul_overflow(count, type->dims[i], &count)) return -1;
    return count;
}

static bool check_permute(verifier *v, const tile_op *op, const tile_type *from, const tile_type *to)
{
    unsigned seen = 0;
    if (from->rank != to->rank) return verify_fail(v, "permute changes the rank");
    for (int i = 0; i < to->rank; i++) {
        int axis = op->attr.axes[i];
        if (axis < 0 || axis >= from->rank || seen >> axis & 1)
            return verify_fail(v, "this is not an order of the axes");
        seen |= 1u << axis;
        if (from->dims[axis] != to->dims[i])
            return verify_fail(v, "axis %d has not the extent of the operand's axis %d", i, axis);
    }
    return true;
}

bool verify_shape_op(verifier *v, const tile_op *op)
{
    tile_type to = tile_type_of(v->k, op->results[0]), from = tile_type_of(v->k, op->operands[0]);
    if (op->code == OP_BOUND) {
        for (int i = 0; i < 3; i++)
            if (!verify_is_scalar(v, op->operands[i], "I")) return verify_fail(v, "bound takes integer scalars");
        if (to.elem != DT_BOOL) return verify_fail(v, "the result is not bool");
        return !to.rank || verify_one_axis(v, op, &to);
    }
    if (from.elem != to.elem) return verify_fail(v, "the result does not have the operand's element type");
    switch (op->code) {
    case OP_BROADCAST:
        if (!verify_fits(&from, &to)) return verify_fail(v, "the operand does not broadcast to the result's shape");
        return true;
    case OP_RESHAPE:
        if (constant_count(&from) >= 0 && constant_count(&from) == constant_count(&to)) return true;
        if (!tile_reshape_only_units(&from, &to)) return verify_fail(v, "reshape changes the number of elements");
        return true;
    default: return check_permute(v, op, &from, &to);
    }
}

static bool check_reduce(verifier *v, const tile_op *op)
{
    tile_type from = tile_type_of(v->k, op->operands[0]), to = tile_type_of(v->k, op->results[0]);
    fold_kind fold = op->attr.fold;
    unsigned all = (1u << from.rank) - 1, axes = op->attr.axis_set;
    if ((int)fold < 0 || fold >= FOLD_COUNT) return verify_fail(v, "this fold does not exist");
    if (!axes || axes & ~all) return verify_fail(v, "reduce over axes that are not there");
    bool position = fold == FOLD_ARGMAX || fold == FOLD_ARGMIN;
    if (position && (axes & (axes - 1))) return verify_fail(v, "%s over several axes", fold_names[fold]);
    if ((fold == FOLD_ANY || fold == FOLD_ALL) != (from.elem == DT_BOOL) &&
        !(position || fold == FOLD_MAX || fold == FOLD_MIN))
        return verify_fail(v, "%s of this element type", fold_names[fold]);
    if (to.elem != (position ? DT_I64 : from.elem)) return verify_fail(v, "the result has the wrong element type");
    if (!to.rank && axes == all) return true;
    tile_type shape = from;
    for (int i = 0; i < from.rank; i++)
        if (axes >> i & 1) shape.dims[i] = 1;
    if (!tile_shape_same(&shape, &to))
        return verify_fail(v, "the result has not the operand's shape with 1 for the axes that go");
    return true;
}

static bool check_dot(verifier *v, const tile_op *op)
{
    if (op->operand_count != 2 && op->operand_count != 3) return verify_fail(v, "dot takes two or three operands");
    tile_type a = tile_type_of(v->k, op->operands[0]), b = tile_type_of(v->k, op->operands[1]);
    tile_type to = tile_type_of(v->k, op->results[0]);
    if (a.rank != b.rank || a.rank < 2 || a.rank > 3) return verify_fail(v, "dot takes two tiles of rank 2 or 3");
    if (a.elem != b.elem) return verify_fail(v, "the operands differ in element type");
    dtype gives = a.elem == DT_F64 ? DT_F64 : dtype_is_float(a.elem) ? DT_F32 : DT_I32;
    if (!dtype_is_float(a.elem) && a.elem != DT_I8 && a.elem != DT_U8)
        return verify_fail(v, "dot of this element type");
    int m = a.rank - 2, n = a.rank - 1;
    if (a.dims[n] != b.dims[m]) return verify_fail(v, "the inner extents differ");
    tile_type shape = a;
    shape.elem = gives;
    shape.dims[n] = b.dims[n];
    if (a.rank == 3 && a.dims[0] != b.dims[0]) return verify_fail(v, "the batch extents differ");
    if (!tile_type_same(&shape, &to)) return verify_fail(v, "the result has the wrong type");
    if (op->operand_count == 3) {
        tile_type c = tile_type_of(v->k, op->operands[2]);
        if (!tile_type_same(&c, &to)) return verify_fail(v, "the accumulator does not have the result's type");
    }
    return true;
}

bool verify_fold_op(verifier *v, const tile_op *op)
{
    if (op->code == OP_REDUCE) return check_reduce(v, op);
    if (op->code == OP_DOT) return check_dot(v, op);
    tile_type from = tile_type_of(v->k, op->operands[0]), to = tile_type_of(v->k, op->results[0]);
    if (!tile_type_same(&from, &to)) return verify_fail(v, "scan changes the type");
    if (op->attr.index < 0 || op->attr.index >= from.rank)
        return verify_fail(v, "scan along axis %d of %d", op->attr.index, from.rank);
    if ((int)op->attr.fold < 0 || op->attr.fold > FOLD_MIN) return verify_fail(v, "scan takes sum, prod, max or min");
    return true;
}

/* The indices of an access to a tile of type `shape`, starting at operand `next`; false after a fault. */
static bool check_indices(verifier *v, const tile_op *op, const tile_type *shape)
{
    const access *a = &op->attr.access;
    unsigned covered = 0;
    int next = a->first_index, last = op->operand_count - a->mask_count;
    for (int i = 0; i < a->rank; i++) {
        int need = a->kind[i] == INDEX_SLICE ? 2 : 1;
        if (next + need > last) return verify_fail(v, "the access has too few operands");
        for (int n = 0; n < need; n++) {
            tile_type index = tile_type_of(v->k, op->operands[next + n]);
            if (!dtype_is_integer(index.elem)) return verify_fail(v, "an index is not an integer");
            if (a->kind[i] != INDEX_TILE && index.rank)
                return verify_fail(v, "an index, start or step is not a scalar");
            if (a->kind[i] != INDEX_TILE) continue;
            if (!verify_fits(&index, shape)) return verify_fail(v, "an index tile does not broadcast to the access");
            for (int x = 0; x < index.rank; x++)
                if (index.dims[x] != 1) covered |= 1u << x;
        }
        next += need;
        if (a->kind[i] != INDEX_SLICE) continue;
        int axis = a->result_axis[i];
        if (axis < 0 || axis >= shape->rank)
            return verify_fail(v, "a slice stands on axis %d of %d", axis, shape->rank);
        for (int j = 0; j < i; j++)
            if (a->kind[j] == INDEX_SLICE && a->result_axis[j] == axis)
                return verify_fail(v, "two slices stand on axis %d", axis);
        covered |= 1u << axis;
    }
    if (next != last) return verify_fail(v, "the access has %d operands too many", last - next);
    for (int i = 0; i < shape->rank; i++)
        if (shape->dims[i] != 1 && !(covered >> i & 1)) return verify_fail(v, "no index reaches axis %d", i);
    return true;
}

static bool check_masks(verifier *v, const tile_op *op, int first, const tile_type *shape)
{
    for (int i = first; i < op->operand_count; i++) {
        tile_type mask = tile_type_of(v->k, op->operands[i]);
        if (mask.elem != DT_BOOL) return verify_fail(v, "a mask is not bool");
        if (!verify_fits(&mask, shape)) return verify_fail(v, "a mask does not broadcast to what it masks");
    }
    return true;
}

bool verify_memory_op(verifier *v, const tile_op *op)
{
    const access *a = &op->attr.access;
    const tile_kernel *k = v->k;
    int values = op->code == OP_LOAD ? 0 : op->code == OP_ATOMIC && op->attr.atomic == ATOMIC_CAS ? 2 : 1;
    if (a->array < 0 || a->array >= k->param_count || k->params[a->array].kind >= PARAM_SCALAR)
        return verify_fail(v, "the access does not name an array");
    const tile_param *array = &k->params[a->array];
    if (op->code == OP_ATOMIC && ((int)op->attr.atomic < 0 || op->attr.atomic >= ATOMIC_COUNT))
        return verify_fail(v, "this atomic does not exist");
    if (op->code != OP_LOAD && array->kind == PARAM_IN)
        return verify_fail(v, "a write to the `in` array %s", array->name);
    if (a->rank != array->rank)
        return verify_fail(v, "%s has %d axes, the access %d", array->name, array->rank, a->rank);
    if (a->first_index != values)
        return verify_fail(v, "the indices start at operand %d, not %d", a->first_index, values);
    if (a->mask_count < 0 || op->operand_count < values + a->mask_count)
        return verify_fail(v, "the access has too few operands");
    tile_type shape = tile_type_of(k, op->code == OP_LOAD ? op->results[0] : op->operands[0]);
    if (shape.elem != array->elem) return verify_fail(v, "the value does not have the array's element type");
    if (values == 2) {
        tile_type expected = tile_type_of(k, op->operands[1]);
        if (!tile_type_same(&expected, &shape)) return verify_fail(v, "value and expected value differ in type");
    }
    if (op->code == OP_ATOMIC) {
        tile_type result = tile_type_of(k, op->results[0]);
        if (!tile_type_same(&result, &shape)) return verify_fail(v, "the old value does not have the value's type");
    }
    return check_indices(v, op, &shape) && check_masks(v, op, op->operand_count - a->mask_count, &shape);
}

/* Carried values: operands from `first` on, the region's arguments from `skip` on, and the results. */
static bool check_carried(verifier *v, const tile_op *op, int first, const tile_block *region, int skip)
{
    int count = op->operand_count - first;
    if (op->result_count != count || region->arg_count != count + skip)
        return verify_fail(v, "%d values are carried in, the region takes %d and %d come out", count,
                           region->arg_count - skip, op->result_count);
    for (int i = 0; i < count; i++) {
        value argument = region->args[i + skip];
        if (!argument || argument >= (value)v->k->value_count)
            return verify_fail(v, "a region's argument does not exist");
        tile_type in = tile_type_of(v->k, op->operands[first + i]), inside = tile_type_of(v->k, argument);
        tile_type out = tile_type_of(v->k, op->results[i]);
        if (!tile_type_same(&in, &inside) || !tile_type_same(&in, &out))
            return verify_fail(v, "carried value %d changes its type", i);
    }
    return true;
}

static bool check_for(verifier *v, const tile_op *op)
{
    const tile_block *region = op->regions[0];
    if (op->operand_count < 3) return verify_fail(v, "for takes a first value, a limit and a step");
    for (int i = 0; i < 3; i++)
        if (!verify_is_scalar(v, op->operands[i], "I") ||
            tile_type_of(v->k, op->operands[i]).elem != tile_type_of(v->k, op->operands[0]).elem)
            return verify_fail(v, "first, limit and step are integer scalars of one type");
    if (!region->arg_count || !region->args[0] || region->args[0] >= (value)v->k->value_count)
        return verify_fail(v, "the region of for takes its variable");
    tile_type type = tile_type_of(v->k, region->args[0]), first = tile_type_of(v->k, op->operands[0]);
    if (!tile_type_same(&type, &first)) return verify_fail(v, "the variable does not have the type of the first value");
    return check_carried(v, op, 3, region, 1);
}

static bool check_map(verifier *v, const tile_op *op)
{
    const tile_block *region = op->regions[0];
    tile_type shape = scalar_type(DT_I64);
    if (region->arg_count != op->operand_count) return verify_fail(v, "map takes one argument for each operand");
    for (int i = 0; i < op->operand_count; i++) {
        tile_type operand = tile_type_of(v->k, op->operands[i]);
        if (!tile_broadcast(&shape, &operand, &shape)) return verify_fail(v, "the operands' shapes do not broadcast");
        value argument = region->args[i];
        if (!argument || argument >= (value)v->k->value_count)
            return verify_fail(v, "a region's argument does not exist");
        tile_type inside = tile_type_of(v->k, argument);
        if (inside.rank || inside.elem != operand.elem)
            return verify_fail(v, "argument %d is not an element of its operand", i);
    }
    for (int i = 0; i < op->result_count; i++) {
        tile_type result = tile_type_of(v->k, op->results[i]);
        if (!tile_shape_same(&result, &shape))
            return verify_fail(v, "the result does not have the operands' joint shape");
    }
    return true;
}

bool verify_control_op(verifier *v, const tile_op *op)
{
    switch (op->code) {
    case OP_FOR: return check_for(v, op);
    case OP_WHILE: return check_carried(v, op, 0, op->regions[0], 0) && check_carried(v, op, 0, op->regions[1], 0);
    case OP_IF:
        if (!verify_is_scalar(v, op->operands[0], "IB"))
            return verify_fail(v, "the condition is not a bool or integer scalar");
        if (op->regions[0]->arg_count || op->regions[1]->arg_count)
            return verify_fail(v, "a region of if has arguments");
        return true;
    case OP_MAP: return check_map(v, op);
    case OP_CONDITION:
        if (op->operand_count != 1 || !verify_is_scalar(v, op->operands[0], "B"))
            return verify_fail(v, "condition takes one bool scalar");
        return true;
    default: return true; /* yield: verify_yield knows whose it is */
    }
}

bool verify_yield(verifier *v, const tile_op *op, int region)
{
    const tile_block *b = op->regions[region];
    const tile_op *last = b->ops[b->op_count - 1];
    if (last->code == OP_CONDITION) return true;
    if (last->operand_count != op->result_count)
        return verify_fail(v, "region %d yields %d values for %d results", region, last->operand_count,
                           op->result_count);
    for (int i = 0; i < op->result_count; i++) {
        tile_type inside = tile_type_of(v->k, last->operands[i]), result = tile_type_of(v->k, op->results[i]);
        bool same = op->code == OP_MAP ? !inside.rank && inside.elem == result.elem : tile_type_same(&inside, &result);
        if (!same) return verify_fail(v, "region %d yields value %d in another type than the result's", region, i);
    }
    return true;
}

bool verify_effect_op(verifier *v, const tile_op *op)
{
    if (op->code == OP_PRINT) {
        int count = op->attr.count;
        if (count < 0 || (op->operand_count != count && op->operand_count != 2 * count))
            return verify_fail(v, "print shows %d values and has %d operands", count, op->operand_count);
        if (!op->attr.words) return verify_fail(v, "print has no format");
        for (int i = count; i < op->operand_count; i++) {
            tile_type mask = tile_type_of(v->k, op->operands[i]), shown = tile_type_of(v->k, op->operands[i - count]);
            if (mask.elem != DT_BOOL) return verify_fail(v, "a mask is not bool");
            if (!verify_fits(&mask, &shown)) return verify_fail(v, "a mask does not broadcast to what it masks");
        }
        return true;
    }
    if (!op->operand_count) return verify_fail(v, "%s has no condition", ops[op->code].text);
    tile_type condition = tile_type_of(v->k, op->operands[0]);
    if (condition.elem != DT_BOOL) return verify_fail(v, "the condition is not bool");
    return check_masks(v, op, 1, &condition);
}

bool verify_head_op(verifier *v, const tile_op *op)
{
    const tile_kernel *k = v->k;
    int index = op->attr.index;
    for (int i = 0; i < op->operand_count; i++)
        if (tile_type_of(k, op->operands[i]).rank) return verify_fail(v, "the head works on scalars");
    switch (op->code) {
    case OP_DEFAULT: {
        if (index < 0 || index >= k->param_count || k->params[index].kind < PARAM_SCALAR)
            return verify_fail(v, "default does not name a scalar parameter");
        tile_type operand = tile_type_of(k, op->operands[0]), result = tile_type_of(k, op->results[0]);
        if (operand.elem != k->params[index].elem || !tile_type_same(&operand, &result))
            return verify_fail(v, "the default does not have the parameter's type");
        return true;
    }
    case OP_EXTENT:
        if (index < 0 || index >= k->param_count || k->params[index].kind >= PARAM_SCALAR)
            return verify_fail(v, "extent does not name an array");
        if (op->attr.axes[0] < 0 || op->attr.axes[0] >= k->params[index].rank)
            return verify_fail(v, "axis %d of %s", op->attr.axes[0], k->params[index].name);
        return true;
    default: /* launch */
        if (op->operand_count < 1 || op->operand_count > 3) return verify_fail(v, "launch takes one to three counts");
        for (int i = 0; i < op->operand_count; i++)
            if (!verify_is_scalar(v, op->operands[i], "I")) return verify_fail(v, "a count is not an integer scalar");
        if (index < 0 || index >= (k->raw_language ? RAW_LAUNCHES : k->phase_count))
            return verify_fail(v, "phase %d does not exist", index);
        return true;
    }
}
