/*
 * The grammar of the tile IR. In: a kernel. Out: QN_OK, or the first broken rule with the op it was found at.
 *
 * One walk, outer before inner: every value is defined once and before its uses, in a block that encloses them; every
 * op has the operands, element types, shapes and regions that ops.def and docs/tile-ir.md ask for. The per-op rules of
 * memory, control and head are in verify_ops.c. Nothing is changed, and a broken kernel of any kind is survived.
 * SPDX-License-Identifier: MIT
 */
#include "ir/verify.h"

#include <string.h>

bool verify_fail(verifier *v, const char *format, ...)
{
    if (v->failed) return false;
    v->failed = true;
    text words = {0};
    va_list list;
    va_start(list, format);
    text_print_list(&words, format, list);
    va_end(list);
    text line = {0};
    if (v->op) tile_print_op(v->k, v->op, &line);
    error_set(v->error, QN_FAILED, "kernel %s: %s%s%s", v->k->name ? v->k->name : "", text_get(&words),
              v->op ? "\n    " : "", text_get(&line));
    text_free(&words);
    text_free(&line);
    return false;
}

bool verify_is_scalar(const verifier *v, value x, const char *kinds)
{
    tile_type type = tile_type_of(v->k, x);
    return type.rank == 0 && verify_elem_in(type.elem, kinds);
}

bool verify_elem_in(dtype elem, const char *kinds)
{
    char letter = dtype_is_float(elem) ? 'F' : elem == DT_BOOL ? 'B' : 'I';
    return strchr(kinds, letter) != NULL;
}

bool verify_fits(const tile_type *from, const tile_type *to)
{
    if (!from->rank) return true;
    if (from->rank != to->rank) return false;
    for (int i = 0; i < to->rank; i++)
        if (from->dims[i] != 1 && from->dims[i] != to->dims[i]) return false;
    return true;
}

/* Types of results and region arguments, before they are in scope themselves. */
static bool check_type(verifier *v, const tile_type *type)
{
    if ((int)type->elem < 0 || type->elem >= DT_COUNT) return verify_fail(v, "a type has no element type");
    if (type->rank < 0 || type->rank > MAX_RANK) return verify_fail(v, "a type has rank %d", type->rank);
    int run_time = 0;
    for (int i = 0; i < type->rank; i++) {
        if (type->dims[i] >= 0) continue;
        run_time++;
        int64_t extent = -type->dims[i];
        if (extent >= v->k->value_count || !v->in_scope[extent])
            return verify_fail(v, "the extent of axis %d is not defined here", i);
        tile_type of = tile_type_of(v->k, (value)extent);
        if (of.rank || of.elem != DT_I64) return verify_fail(v, "the extent of axis %d is not an i64 scalar", i);
    }
    if (run_time > 1) return verify_fail(v, "a tile has two run-time axes");
    return true;
}

static bool define(verifier *v, const value *values, int count, const tile_op *op)
{
    for (int i = 0; i < count; i++) {
        value x = values[i];
        if (!x || x >= (value)v->k->value_count) return verify_fail(v, "value number %u does not exist", x);
        if (v->defined[x]) return verify_fail(v, "a value is defined twice");
        if (v->k->values[x].op != op) return verify_fail(v, "a value does not point at the op that defines it");
        if (!check_type(v, &v->k->values[x].type)) return false;
    }
    for (int i = 0; i < count; i++) {
        v->defined[values[i]] = 1;
        v->in_scope[values[i]] = 1;
        v->scope[v->scope_count++] = values[i];
    }
    return true;
}

static bool check_elementwise(verifier *v, const tile_op *op)
{
    const op_info *info = &ops[op->code];
    const tile_kernel *k = v->k;
    tile_type result = tile_type_of(k, op->results[0]), shape = tile_type_of(k, op->operands[0]);
    dtype first = shape.elem;
    for (int i = 1; i < op->operand_count; i++) {
        tile_type other = tile_type_of(k, op->operands[i]);
        if (!tile_broadcast(&shape, &other, &shape)) return verify_fail(v, "the operands' shapes do not broadcast");
    }
    if (!tile_shape_same(&shape, &result)) return verify_fail(v, "the result does not have the operands' joint shape");
    dtype second = op->operand_count > 1 ? tile_type_of(k, op->operands[1]).elem : first;
    dtype third = op->operand_count > 2 ? tile_type_of(k, op->operands[2]).elem : first;
    switch (op->code) {
    case OP_SELECT:
        if (first != DT_BOOL) return verify_fail(v, "the condition of select is not bool");
        if (second != third || result.elem != second) return verify_fail(v, "the arms of select differ in type");
        return true;
    case OP_PHILOX:
        if (first != DT_U64 || second != DT_U64 || third != DT_I64 || result.elem != DT_U32)
            return verify_fail(v, "philox takes u64, u64, i64 and gives u32");
        if (op->attr.index < 0 || op->attr.index > 3) return verify_fail(v, "philox has words 0 to 3");
        return true;
    case OP_SHL:
    case OP_SHR:
        if (!dtype_is_integer(second)) return verify_fail(v, "a shift count is an integer");
        break;
    case OP_TF32:
        if (first != DT_F32) return verify_fail(v, "tf32 takes f32");
        break;
    case OP_BITCAST:
        if (dtypes[first].size_bytes != dtypes[result.elem].size_bytes)
            return verify_fail(v, "bitcast changes the width");
        break;
    default:
        if (second != first || third != first) return verify_fail(v, "the operands differ in element type");
    }
    if (info->result == RESULT_SAME && result.elem != first)
        return verify_fail(v, "the result does not have the operand's element type");
    if (info->result == RESULT_BOOL && result.elem != DT_BOOL) return verify_fail(v, "the result is not bool");
    return true;
}

static bool check_leaf(verifier *v, const tile_op *op)
{
    tile_type result = tile_type_of(v->k, op->results[0]);
    if (op->code == OP_IOTA) {
        if (!dtype_is_integer(result.elem)) return verify_fail(v, "iota gives integers");
        return verify_one_axis(v, op, &result);
    }
    if (result.rank) return verify_fail(v, "the result is not a scalar");
    if (op->code == OP_ARG) {
        int p = op->attr.index;
        if (p < 0 || p >= v->k->param_count || v->k->params[p].kind < PARAM_SCALAR)
            return verify_fail(v, "arg does not name a scalar parameter or an extent");
        if (v->k->params[p].elem != result.elem) return verify_fail(v, "the result does not have the parameter's type");
        return true;
    }
    if (op->code == OP_CONST) return true;
    if (result.elem != DT_I64) return verify_fail(v, "the result is not i64");
    if (op->code != OP_UNITS && (op->attr.index < 0 || op->attr.index > 2))
        return verify_fail(v, "launch axes are 0 to 2");
    return true;
}

bool verify_one_axis(verifier *v, const tile_op *op, const tile_type *type)
{
    if (op->attr.index < 0 || op->attr.index >= type->rank)
        return verify_fail(v, "axis %d of a tile of rank %d", op->attr.index, type->rank);
    for (int i = 0; i < type->rank; i++)
        if (i != op->attr.index && type->dims[i] != 1)
            return verify_fail(v, "another axis than %d is not 1", op->attr.index);
    return true;
}

static bool check_operands(verifier *v, const tile_op *op)
{
    const op_info *info = &ops[op->code];
    if (op->operand_count < 0 || (info->count >= 0 && op->operand_count != info->count))
        return verify_fail(v, "%s takes %d operands, not %d", info->text, info->count, op->operand_count);
    for (int i = 0; i < op->operand_count; i++) {
        value x = op->operands[i];
        if (!x || x >= (value)v->k->value_count || !v->defined[x])
            return verify_fail(v, "operand %d is not defined before this op", i);
        if (!v->in_scope[x]) return verify_fail(v, "operand %d is defined in a block that does not enclose this op", i);
        if (v->map_depth && tile_type_of(v->k, x).rank) return verify_fail(v, "operand %d is a tile inside map", i);
    }
    /* The varied ones mix masks, indices and values: their own rules say what each may be. */
    if (info->count > 0 && op->code != OP_SELECT)
        for (int i = 0; i < op->operand_count; i++)
            if (!verify_elem_in(tile_type_of(v->k, op->operands[i]).elem, info->types))
                return verify_fail(v, "operand %d has an element type that %s does not take", i, info->text);
    return true;
}

bool tile_op_is_of_head(const tile_op *op)
{
    const op_info *info = &ops[op->code];
    bool host = info->class == CLASS_HEAD || op->code == OP_ASSUME || op->code == OP_IF || op->code == OP_YIELD;
    return op->code != OP_PROGRAM && op->code != OP_PROGRAMS && (host || info->pure);
}

static bool check_place(verifier *v, const tile_op *op)
{
    const op_info *info = &ops[op->code];
    if (v->in_head) {
        if (!tile_op_is_of_head(op)) return verify_fail(v, "%s in the head", info->text);
    } else if (info->class == CLASS_HEAD) {
        return verify_fail(v, "%s outside the head", info->text);
    }
    if (v->map_depth && (info->class == CLASS_MEMORY || info->class == CLASS_EFFECT || info->class == CLASS_FOLD ||
                         op->code == OP_MAP || op->code == OP_IOTA))
        return verify_fail(v, "%s inside map", info->text);
    return true;
}

static bool check_result_count(verifier *v, const tile_op *op)
{
    const op_info *info = &ops[op->code];
    if (info->class == CLASS_CONTROL && info->result != RESULT_NONE) return true; /* as many as are carried */
    int want = info->result != RESULT_NONE;
    if (op->result_count != want)
        return verify_fail(v, "%s has %d results, not %d", info->text, want, op->result_count);
    return true;
}

static bool check_block(verifier *v, const tile_block *b, op_code last);

/* Everything but the regions. */
static bool check_op(verifier *v, const tile_op *op)
{
    if (op->code <= OP_NONE || op->code >= OP_COUNT) return verify_fail(v, "op code %d does not exist", (int)op->code);
    const op_info *info = &ops[op->code];
    if (!check_place(v, op) || !check_operands(v, op) || !check_result_count(v, op)) return false;
    for (int i = 0; i < op->result_count; i++) { /* extents of the result must be known before it is */
        value x = op->results[i];
        if (!x || x >= (value)v->k->value_count) return verify_fail(v, "value number %u does not exist", x);
        if (!check_type(v, &v->k->values[x].type)) return false;
        if (v->map_depth && tile_type_of(v->k, x).rank) return verify_fail(v, "a tile inside map");
    }
    int regions = op->code == OP_WHILE || op->code == OP_IF ? 2 : op->code == OP_FOR || op->code == OP_MAP ? 1 : 0;
    if (op->region_count != regions)
        return verify_fail(v, "%s has %d regions, not %d", info->text, regions, op->region_count);
    switch (info->class) {
    case CLASS_LEAF: return check_leaf(v, op);
    case CLASS_UNARY:
    case CLASS_BINARY:
    case CLASS_COMPARE:
    case CLASS_TERNARY: return check_elementwise(v, op);
    case CLASS_SHAPE: return verify_shape_op(v, op);
    case CLASS_FOLD: return verify_fold_op(v, op);
    case CLASS_MEMORY: return verify_memory_op(v, op);
    case CLASS_CONTROL: return verify_control_op(v, op);
    case CLASS_EFFECT: return verify_effect_op(v, op);
    case CLASS_HEAD: return verify_head_op(v, op);
    }
    return true;
}

static bool check_regions(verifier *v, const tile_op *op)
{
    v->map_depth += op->code == OP_MAP;
    for (int r = 0; r < op->region_count; r++) {
        int outside = v->scope_count;
        if (!define(v, op->regions[r]->args, op->regions[r]->arg_count, NULL)) return false;
        if (!check_block(v, op->regions[r], op->code == OP_WHILE && r == 0 ? OP_CONDITION : OP_YIELD)) return false;
        v->op = op;
        if (!verify_yield(v, op, r)) return false;
        while (v->scope_count > outside) v->in_scope[v->scope[--v->scope_count]] = 0;
    }
    v->map_depth -= op->code == OP_MAP;
    return true;
}

/* `last`: the op that must end the block, OP_NONE for none. */
static bool check_block(verifier *v, const tile_block *b, op_code last)
{
    for (int i = 0; i < b->op_count; i++) {
        const tile_op *op = v->op = b->ops[i];
        if (!check_op(v, op)) return false;
        bool ends = op->code == OP_YIELD || op->code == OP_CONDITION;
        if (ends && (i + 1 < b->op_count || op->code != last))
            return verify_fail(v, "%s in the wrong place", ops[op->code].text);
        if (op->region_count && !check_regions(v, op)) return false;
        v->op = op;
        if (!define(v, op->results, op->result_count, op)) return false;
    }
    if (last != OP_NONE && (!b->op_count || b->ops[b->op_count - 1]->code != last))
        return verify_fail(v, "a region does not end in %s", ops[last].text);
    return true;
}

static bool check_digits(verifier *v, const tile_param *p)
{
    const param_digits *d = p->digits;
    if (p->kind > PARAM_INOUT) return verify_fail(v, "%s has digits but is no array of the caller", p->name);
    if (d->guard_count < 0 || d->guard_count > GUARDS_MOST || (d->guard_count && p->kind != PARAM_IN))
        return verify_fail(v, "%s has guards but is written, or too many", p->name);
    for (int a = 0; a < p->rank; a++) {
        if (d->axes[a].count < 1 || d->axes[a].count > DIGITS_MOST)
            return verify_fail(v, "axis %d of %s has %d digits", a, p->name, d->axes[a].count);
        for (int i = 1; i < d->axes[a].count; i++)
            if (d->axes[a].extent[i] < 1) return verify_fail(v, "axis %d of %s has an empty digit", a, p->name);
    }
    return true;
}

static bool check_params(verifier *v)
{
    const tile_kernel *k = v->k;
    for (int i = 0; i < k->param_count; i++) {
        const tile_param *p = &k->params[i];
        const char *name = p->name ? p->name : "";
        if (!*name) return verify_fail(v, "parameter %d has no name", i);
        for (int j = 0; j < i; j++)
            if (!strcmp(k->params[j].name, name)) return verify_fail(v, "two parameters are called %s", name);
        if ((int)p->kind < 0 || p->kind > PARAM_EXTENT) return verify_fail(v, "parameter %s has no kind", name);
        if ((int)p->elem < 0 || p->elem >= DT_COUNT) return verify_fail(v, "parameter %s has no element type", name);
        if (p->rank < 0 || p->rank > MAX_RANK || (p->kind >= PARAM_SCALAR && p->rank))
            return verify_fail(v, "parameter %s has rank %d", name, p->rank);
        if (p->kind == PARAM_EXTENT && p->elem != DT_I64) return verify_fail(v, "extent %s is not i64", name);
        for (int a = 0; a < p->rank; a++) {
            int extent = p->extent_param[a];
            if (extent < -1 || extent >= k->param_count || (extent >= 0 && k->params[extent].kind < PARAM_SCALAR))
                return verify_fail(v, "axis %d of %s is bound by something that is no scalar", a, name);
            if (p->extents[a] && p->extents[a] >= (value)k->value_count)
                return verify_fail(v, "axis %d of %s has an extent that does not exist", a, name);
        }
        if (p->digits && !check_digits(v, p)) return false;
    }
    return true;
}

/* After the head: the extents of parameters are its values, and every phase is launched once. */
static bool check_head_end(verifier *v)
{
    const tile_kernel *k = v->k;
    for (int i = 0; i < k->param_count; i++) {
        for (int a = 0; a < k->params[i].rank; a++) {
            value x = k->params[i].extents[a];
            if (x && (!v->in_scope[x] || !verify_is_scalar(v, x, "I")))
                return verify_fail(v, "axis %d of %s has an extent that is no integer of the head", a,
                                   k->params[i].name);
        }
    }
    int phases = k->phase_count;
    if (k->raw_language) phases = k->raw_once ? 0 : !strcmp(k->raw_language, "cuda") ? RAW_LAUNCHES : 1;
    for (int phase = 0; phase < phases; phase++) {
        int launches = 0;
        for (int i = 0; i < k->head->op_count; i++)
            launches += k->head->ops[i]->code == OP_LAUNCH && k->head->ops[i]->attr.index == phase;
        if (launches != 1) return verify_fail(v, "phase %d is launched %d times", phase, launches);
    }
    return true;
}

static bool check_kernel(verifier *v)
{
    const tile_kernel *k = v->k;
    if (!k->head) return verify_fail(v, "there is no head");
    if (k->raw_language && k->phase_count) return verify_fail(v, "a raw kernel has phases");
    if (k->raw_hidden < 0 || k->raw_hidden > k->param_count)
        return verify_fail(v, "a raw kernel hides %d of %d parameters", k->raw_hidden, k->param_count);
    if (k->phase_count < 0 || k->phase_count > 16) return verify_fail(v, "%d phases, of at most 16", k->phase_count);
    if (k->param_count > 64) return verify_fail(v, "%d parameters, of at most 64", k->param_count);
    if (!check_params(v)) return false;
    v->in_head = true;
    if (!check_block(v, k->head, OP_NONE)) return false;
    v->op = NULL;
    if (!check_head_end(v)) return false;
    v->in_head = false;
    while (v->scope_count) v->in_scope[v->scope[--v->scope_count]] = 0; /* the host's values end here */
    for (int i = 0; i < k->phase_count; i++) {
        v->op = NULL;
        if (k->phases[i]->arg_count) return verify_fail(v, "phase %d has arguments", i);
        if (!check_block(v, k->phases[i], OP_NONE)) return false;
        while (v->scope_count) v->in_scope[v->scope[--v->scope_count]] = 0;
    }
    return true;
}

qn_status tile_verify(const tile_kernel *k, qn_error *error)
{
    arena *scratch = arena_new();
    verifier v = {.k = k, .error = error};
    v.in_scope = arena_alloc(scratch, (size_t)k->value_count);
    v.defined = arena_alloc(scratch, (size_t)k->value_count);
    v.scope = ARENA_ARRAY(scratch, value, k->value_count);
    bool good = check_kernel(&v);
    arena_free(scratch);
    return good ? QN_OK : QN_FAILED;
}
