/*
 * Types, names, numbers and elementwise ops as C expressions.
 *
 * In: an op and the texts of its operands, all scalars or all vectors of 16 lanes. Out: one C expression; the prelude
 * functions that it calls are noted in the emitter. Vectors follow prelude.h: 16-bit floats are f32 in registers, bool
 * is mask16 (int as a scalar).
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/text.h"
#include "emit/nest.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *need(emitter *e, const char *format, ...)
{
    text words = {0};
    va_list list;
    va_start(list, format);
    text_print_list(&words, format, list);
    va_end(list);
    const char *name = map_get(e->name_set, text_get(&words));
    if (!name) {
        name = arena_copy_text(e->memory, text_get(&words), words.length);
        map_set(e->name_set, name, (void *)name);
        ARENA_PUSH(e->memory, e->names, e->name_count, e->name_capacity, name);
    }
    text_free(&words);
    return name;
}

const char *register_name(dtype t)
{
    return dtype_is_narrow(t) ? "f32" : dtypes[t].text;
}

const char *memory_name(dtype t)
{
    return dtypes[t].text;
}

const char *memory_type(dtype t)
{
    if (dtype_is_narrow(t)) return dtypes[t].size_bytes == 1 ? "unsigned char" : "unsigned short";
    return t == DT_BOOL ? "unsigned char" : dtypes[t].c_name;
}

const char *scalar_c_type(dtype t)
{
    if (dtype_is_narrow(t)) return "float";
    return t == DT_BOOL ? "int" : dtypes[t].c_name;
}

const char *vector_c_type(dtype t)
{
    static const char *const types[DT_COUNT] = {
        [DT_F32] = "f32x16", [DT_F64] = "f64x16", [DT_F16] = "f32x16",  [DT_BF16] = "f32x16",  [DT_I8] = "i8x16",
        [DT_I16] = "i16x16", [DT_I32] = "i32x16", [DT_I64] = "i64x16",  [DT_U8] = "u8x16",     [DT_U16] = "u16x16",
        [DT_U32] = "u32x16", [DT_U64] = "u64x16", [DT_BOOL] = "mask16", [DT_F8E4M3] = "f32x16"};
    return types[t];
}

const char *number_text(emitter *e, dtype t, number n)
{
    if (dtype_is_float(t)) {
        bool wide = t == DT_F64;
        double x = round_to_dtype(t, n.f);
        if (isnan(x)) return wide ? "__builtin_nan(\"\")" : "__builtin_nanf(\"\")";
        if (isinf(x)) return arena_print(e->memory, "%s__builtin_inf%s()", x < 0 ? "-" : "", wide ? "" : "f");
        char digits[64];
        plain_literal(digits, sizeof(digits), x, wide);
        return arena_print(e->memory, signbit(x) ? "(%s)" : "%s", digits);
    }
    switch (t) {
    case DT_I64:
        if (n.i == INT64_MIN) return "(-9223372036854775807L - 1)";
        return arena_print(e->memory, n.i < 0 ? "(%" PRId64 "L)" : "%" PRId64 "L", n.i);
    case DT_U64: return arena_print(e->memory, "%" PRIu64 "UL", (uint64_t)n.i);
    case DT_U32: return arena_print(e->memory, "%" PRIu32 "U", (uint32_t)n.i);
    case DT_BOOL: return n.i ? "1" : "0";
    case DT_I32:
        if (n.i == INT32_MIN) return "(-2147483647 - 1)";
        return arena_print(e->memory, n.i < 0 ? "(%" PRId64 ")" : "%" PRId64, n.i);
    default: return arena_print(e->memory, "((%s)%" PRId64 ")", dtypes[t].c_name, integer_wrap(t, n.i));
    }
}

const char *emit_name(emitter *e, value v)
{
    if (e->value_text && e->value_text[v]) {
        if (e->value_named) e->value_named[v] = true;
        return e->value_text[v];
    }
    number n;
    if (tile_is_constant(e->k, v, &n)) return (e->cuda ? cuda_number : number_text)(e, tile_type_of(e->k, v).elem, n);
    const char *name = e->k->values[v].name;
    return name ? arena_print(e->memory, "%s_%u", name, v) : arena_print(e->memory, "t%u", v);
}

const char *extent_text(emitter *e, int64_t dim)
{
    return dim < 0 ? emit_name(e, (value)-dim) : arena_print(e->memory, "%" PRId64 "L", dim);
}

const char *splat(emitter *e, dtype t, const char *scalar)
{
    return arena_print(e->memory, "%s(%s)", need(e, "splat_%sx16", register_name(t)), scalar);
}

/* One function of the prelude. */
static const char *call(emitter *e, const char *function, const char *const *operands, int count)
{
    text words = {0};
    text_print(&words, "%s(", function);
    for (int i = 0; i < count; i++) text_print(&words, "%s%s", i ? ", " : "", operands[i]);
    text_add(&words, ")");
    const char *result = arena_copy_text(e->memory, text_get(&words), words.length);
    text_free(&words);
    return result;
}

static const char *infix(emitter *e, const tile_op *op, dtype t, const char *sign, const char *const *operands,
                         bool vector)
{
    bool narrow = !vector && dtypes[t].size_bytes < 4 && t != DT_BOOL && !dtype_is_float(t);
    bool exact = op->code == OP_MUL && dtype_is_float(t) && (e->k->precise || op->flags & F_PRECISE);
    if (exact)
        return arena_print(e->memory, "%s(%s * %s)", need(e, "exact_%s%s", register_name(t), vector ? "x16" : ""),
                           operands[0], operands[1]);
    if (narrow) return arena_print(e->memory, "(%s)(%s %s %s)", dtypes[t].c_name, operands[0], sign, operands[1]);
    return arena_print(e->memory, "%s %s %s", operands[0], sign, operands[1]);
}

static const char *converted(emitter *e, dtype from, dtype to, const char *operand, bool vector)
{
    if (from == to || (to == DT_F32 && dtype_is_narrow(from))) return operand;
    const char *name = need(e, "convert_%s_%s%s", register_name(from), memory_name(to), vector ? "x16" : "");
    return arena_print(e->memory, "%s(%s)", name, operand);
}

static const char *bitcast(emitter *e, dtype from, dtype to, const char *operand, bool vector)
{
    if (from == DT_BOOL || to == DT_BOOL) { /* registers hold no byte */
        if (from == DT_BOOL) operand = converted(e, from, DT_U8, operand, vector);
        operand = bitcast(e, from == DT_BOOL ? DT_U8 : from, to == DT_BOOL ? DT_U8 : to, operand, vector);
        return to == DT_BOOL ? converted(e, DT_U8, to, operand, vector) : operand;
    }
    const char *lanes = vector ? "x16" : "";
    bool from_half = dtype_is_narrow(from), to_half = dtype_is_narrow(to);
    if (from_half)
        operand = arena_print(e->memory, "%s(%s)", need(e, "f32_to_%s%s", memory_name(from), lanes), operand);
    if (to_half) {
        const char *lane = dtypes[to].size_bytes == 1 ? "u8x16" : "u16x16";
        const char *bits = arena_print(e->memory, "(%s)(%s)", vector ? lane : memory_type(to), operand);
        return arena_print(e->memory, "%s(%s)", need(e, "%s_to_f32%s", memory_name(to), lanes), bits);
    }
    if (vector) return arena_print(e->memory, "(%s)(%s)", vector_c_type(to), operand);
    return arena_print(e->memory, "((union { %s from; %s to; }){.from = %s}).to", memory_type(from), memory_type(to),
                       operand);
}

/* A precise function gives the same bits for a constant as for an element that has its value: what the compiler could
 * find out of an operand (a constant in one arm of a select is enough) it would compute without the processor's fused
 * products, so it must not know. */
static const char *at_run_time(emitter *e, const tile_op *op, int operand, const char *words, bool vector)
{
    dtype t = tile_type_of(e->k, op->operands[operand]).elem;
    bool precise = e->k->precise || op->flags & F_PRECISE;
    if (!precise || !dtype_is_float(t) || op_rounds_correctly(op->code, t)) return words;
    return arena_print(e->memory, "%s(%s)", need(e, "exact_%s%s", register_name(t), vector ? "x16" : ""), words);
}

const char *expression(emitter *e, const tile_op *op, const char *const *operands, bool vector)
{
    dtype t = tile_type_of(e->k, op->operands[op->code == OP_SELECT ? 1 : 0]).elem;
    dtype result = tile_type_of(e->k, op->results[0]).elem;
    const char *lanes = vector ? "x16" : "", *name = register_name(t);
    bool number_like = t != DT_BOOL;
    switch (op->code) {
    case OP_ADD: return infix(e, op, t, "+", operands, vector);
    case OP_SUB: return infix(e, op, t, "-", operands, vector);
    case OP_MUL: return infix(e, op, t, "*", operands, vector);
    case OP_DIV:
        if (dtype_is_float(t)) return infix(e, op, t, "/", operands, vector);
        break;
    case OP_AND: return infix(e, op, t, "&", operands, vector);
    case OP_OR: return infix(e, op, t, "|", operands, vector);
    case OP_XOR: return infix(e, op, t, "^", operands, vector);
    case OP_NEG:
        if (!vector && dtypes[t].size_bytes < 4 && !dtype_is_float(t))
            return arena_print(e->memory, "(%s)-%s", dtypes[t].c_name, operands[0]);
        return arena_print(e->memory, "-%s", operands[0]);
    case OP_NOT:
        if (!number_like && !vector) return arena_print(e->memory, "!%s", operands[0]);
        if (!vector && dtypes[t].size_bytes < 4)
            return arena_print(e->memory, "(%s)~%s", dtypes[t].c_name, operands[0]);
        return arena_print(e->memory, "~%s", operands[0]);
    case OP_MIN:
    case OP_MAX:
        if (!number_like) return infix(e, op, t, op->code == OP_MIN ? "&" : "|", operands, vector);
        break;
    case OP_LT:
    case OP_LE:
    case OP_GT:
    case OP_GE:
    case OP_EQ:
    case OP_NE: {
        if (!vector) {
            static const char *const signs[] = {"<", "<=", ">", ">=", "==", "!="};
            return arena_print(e->memory, "%s %s %s", operands[0], signs[op->code - OP_LT], operands[1]);
        }
        if (number_like) break;
        /* Masks are 0 and -1: as numbers the order of false and true turns round. */
        static const op_code turned[] = {OP_GT, OP_GE, OP_LT, OP_LE, OP_EQ, OP_NE};
        return call(e, need(e, "%s_i32x16", ops[turned[op->code - OP_LT]].text), operands, 2);
    }
    case OP_SELECT:
        if (!vector) return arena_print(e->memory, "%s ? %s : %s", operands[0], operands[1], operands[2]);
        return call(e, need(e, "select_%sx16", name), operands, 3);
    case OP_CONVERT: return converted(e, t, result, operands[0], vector);
    case OP_BITCAST: return bitcast(e, t, result, operands[0], vector);
    case OP_SHL:
    case OP_SHR: {
        dtype of_count = tile_type_of(e->k, op->operands[1]).elem;
        const char *both[2] = {operands[0], converted(e, of_count, t, operands[1], vector)};
        return call(e, need(e, "%s_%s%s", ops[op->code].text, name, lanes), both, 2);
    }
    case OP_PHILOX:
        return arena_print(e->memory, "%s(%s, %s, %s, %d)", need(e, "philox_u32%s", lanes), operands[0], operands[1],
                           operands[2], op->attr.index);
    default: break;
    }
    const char *hidden[3];
    for (int i = 0; i < op->operand_count; i++) hidden[i] = at_run_time(e, op, i, operands[i], vector);
    return call(e, need(e, "%s_%s%s", ops[op->code].text, name, lanes), hidden, op->operand_count);
}

const char *fold_step(emitter *e, fold_kind fold, dtype t, const char *a, const char *b, bool vector)
{
    const char *lanes = vector ? "x16" : "";
    if (t == DT_BOOL) {
        bool both = fold == FOLD_ALL || fold == FOLD_MIN || fold == FOLD_PROD;
        return arena_print(e->memory, "%s %s %s", a, both ? "&" : "|", b);
    }
    if (fold == FOLD_SUM) return arena_print(e->memory, "%s + %s", a, b);
    if (fold == FOLD_PROD) return arena_print(e->memory, "%s * %s", a, b);
    const char *name = need(e, "%s_%s%s", fold == FOLD_MAX ? "max" : "min", register_name(t), lanes);
    return arena_print(e->memory, "%s(%s, %s)", name, a, b);
}

const char *fold_lanes(emitter *e, fold_kind fold, dtype t, const char *v)
{
    if (t == DT_BOOL) {
        bool both = fold == FOLD_ALL || fold == FOLD_MIN || fold == FOLD_PROD;
        return arena_print(e->memory, "%s(%s)", need(e, both ? "all_mask" : "any_mask"), v);
    }
    return arena_print(e->memory, "%s(%s)", need(e, "fold_%s_%sx16", fold_names[fold], register_name(t)), v);
}
