/*
 * Types, numbers and elementwise ops as CUDA C++ expressions on registers.
 *
 * In: an op and the texts of its operands (names or literals). Out: one expression; the prelude functions that it calls
 * are noted in the emitter. f16 and bf16 are float in registers and always hold a value of their format: what computes
 * in them is rounded where it is computed. `precise` ops call the precise forms and their products do not fuse.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/text.h"

#include <inttypes.h>
#include <math.h>

const char *cuda_register_type(dtype t)
{
    return t == DT_BOOL ? "bool" : dtype_is_narrow(t) ? "float" : scalar_c_type(t);
}

const char *cuda_memory_type(dtype t)
{
    return memory_type(t);
}

const char *cuda_number(emitter *e, dtype t, number n)
{
    double x = dtype_is_float(t) ? round_to_dtype(t, n.f) : 0;
    if (t == DT_BOOL) return n.i ? "true" : "false";
    if (!dtype_is_float(t) || isfinite(x)) return number_text(e, t, n);
    bool wide = t == DT_F64;
    need(e, wide ? "real_f64" : "real_f32");
    if (isnan(x)) return wide ? "real_f64(0x7ff8000000000000)" : "real_f32(0x7fc00000)";
    if (x > 0) return wide ? "real_f64(0x7ff0000000000000)" : "real_f32(0x7f800000)";
    return wide ? "real_f64((long)0xfff0000000000000)" : "real_f32((int)0xff800000)";
}

static bool is_precise(const emitter *e, const tile_op *op)
{
    return e->k->precise || op->flags & F_PRECISE;
}

static const char *call(emitter *e, const char *function, const char *const *operands, int count)
{
    const char *words = arena_print(e->memory, "%s(%s", function, operands[0]);
    for (int i = 1; i < count; i++) words = arena_print(e->memory, "%s, %s", words, operands[i]);
    return arena_print(e->memory, "%s)", words);
}

/* Is the integer result known to stay inside its type, so that plain C arithmetic says the same? */
static bool cannot_overflow(const emitter *e, const tile_op *op)
{
    dtype t = tile_type_of(e->k, op->results[0]).elem;
    if (op->flags & F_INDEX) return true;
    if (!e->facts) return false;
    integer_fact f = facts_of(e->facts, op->results[0]);
    int64_t high = t == DT_I32 ? INT32_MAX : INT64_MAX;
    return f.low > -high - 1 && f.high < high;
}

/* + - * and the bit operations. Small integers wrap by a cast, i32 and i64 by functions unless they cannot overflow. */
static const char *infix(emitter *e, const tile_op *op, dtype t, const char *sign, const char *const *operands)
{
    bool arithmetic = op->code == OP_ADD || op->code == OP_SUB || op->code == OP_MUL;
    if (dtype_is_float(t) && op->code == OP_MUL && is_precise(e, op))
        return call(e, need(e, "mul_exact_%s", register_name(t)), operands, 2);
    if (arithmetic && (t == DT_I32 || t == DT_I64) && !cannot_overflow(e, op))
        return call(e, need(e, "%s_%s", ops[op->code].text, register_name(t)), operands, 2);
    if (dtypes[t].size_bytes < 4 && t != DT_BOOL && !dtype_is_float(t))
        return arena_print(e->memory, "(%s)(%s %s %s)", cuda_register_type(t), operands[0], sign, operands[1]);
    if (t == DT_BOOL) sign = op->code == OP_AND ? "&&" : op->code == OP_OR ? "||" : "!=";
    return arena_print(e->memory, "%s %s %s", operands[0], sign, operands[1]);
}

static const char *converted(emitter *e, dtype from, dtype to, const char *operand)
{
    bool widens = to == DT_F32 && dtype_is_narrow(from);
    if (from == to || widens) return operand;
    if (to == DT_BOOL) return arena_print(e->memory, "%s != 0", operand);
    if (from == DT_BOOL && !dtype_is_narrow(to))
        return arena_print(e->memory, "(%s)%s", cuda_register_type(to), operand);
    return arena_print(e->memory, "%s(%s)", need(e, "convert_%s_%s", register_name(from), memory_name(to)), operand);
}

/* Functions that have a precise form of their own: those that are costly. */
static bool has_precise_form(op_code code)
{
    return (ops[code].class == CLASS_UNARY && ops[code].costly) || code == OP_DIV || code == OP_POW;
}

/* Ops whose result on values of a 16-bit format may need rounding to it. */
static bool rounds(op_code code)
{
    switch (code) {
    case OP_NEG:
    case OP_ABS:
    case OP_SIGN:
    case OP_FLOOR:
    case OP_CEIL:
    case OP_ROUND:
    case OP_RELU:
    case OP_MIN:
    case OP_MAX:
    case OP_SELECT:
    case OP_CONVERT:
    case OP_BITCAST: return false;
    default: return true;
    }
}

/* Is a quotient or a remainder of such operands that of 32 bits? Those of 64 take ten times as long. */
static bool is_short(const emitter *e, const tile_op *op, dtype t)
{
    if (t != DT_I64 || !e->facts || (op->code != OP_DIV && op->code != OP_MOD)) return false;
    integer_fact of = facts_of(e->facts, op->operands[0]), by = facts_of(e->facts, op->operands[1]);
    return of.low >= 0 && of.high <= INT32_MAX && by.low >= 0;
}

static const char *plain(emitter *e, const tile_op *op, dtype t, const char *const *operands)
{
    const char *name = register_name(t);
    dtype result = tile_type_of(e->k, op->results[0]).elem;
    bool real = dtype_is_float(t), narrow = !real && dtypes[t].size_bytes < 4;
    switch (op->code) {
    case OP_ADD: return infix(e, op, t, "+", operands);
    case OP_SUB: return infix(e, op, t, "-", operands);
    case OP_MUL: return infix(e, op, t, "*", operands);
    case OP_AND: return infix(e, op, t, "&", operands);
    case OP_OR: return infix(e, op, t, "|", operands);
    case OP_XOR: return infix(e, op, t, "^", operands);
    case OP_NEG:
        if (real || t == DT_U32 || t == DT_U64) return arena_print(e->memory, "-%s", operands[0]);
        if (narrow) return arena_print(e->memory, "(%s)-%s", cuda_register_type(t), operands[0]);
        return arena_print(e->memory, "%s(0, %s)", need(e, "sub_%s", name), operands[0]);
    case OP_NOT:
        if (t == DT_BOOL) return arena_print(e->memory, "!%s", operands[0]);
        return narrow ? arena_print(e->memory, "(%s)~%s", cuda_register_type(t), operands[0])
                      : arena_print(e->memory, "~%s", operands[0]);
    case OP_MIN:
    case OP_MAX:
        if (t != DT_BOOL) break;
        return arena_print(e->memory, "%s %s %s", operands[0], op->code == OP_MIN ? "&&" : "||", operands[1]);
    case OP_LT:
    case OP_LE:
    case OP_GT:
    case OP_GE:
    case OP_EQ:
    case OP_NE: {
        static const char *const signs[] = {"<", "<=", ">", ">=", "==", "!="};
        return arena_print(e->memory, "%s %s %s", operands[0], signs[op->code - OP_LT], operands[1]);
    }
    case OP_SELECT: return arena_print(e->memory, "%s ? %s : %s", operands[0], operands[1], operands[2]);
    case OP_CONVERT: return converted(e, t, result, operands[0]);
    case OP_BITCAST:
        if (t == result) return operands[0];
        if ((t == DT_BOOL || result == DT_BOOL) && !dtype_is_narrow(t) && !dtype_is_narrow(result))
            return converted(e, t, result, operands[0]);
        return call(e, need(e, "bitcast_%s_%s", memory_name(t), memory_name(result)), operands, 1);
    case OP_SHL:
    case OP_SHR: {
        const char *both[2] = {operands[0], converted(e, tile_type_of(e->k, op->operands[1]).elem, t, operands[1])};
        return call(e, need(e, "%s_%s", ops[op->code].text, name), both, 2);
    }
    case OP_PHILOX:
        return arena_print(e->memory, "%s(%s, %s, %s, %d)", need(e, "philox_u32"), operands[0], operands[1],
                           operands[2], op->attr.index);
    default: break;
    }
    bool precise = real && is_precise(e, op) && has_precise_form(op->code);
    if (is_short(e, op, t)) {
        bool near = facts_of(e->facts, op->operands[1]).high <= UINT32_MAX; /* what is larger divides like 2^31 */
        const char *both[2] = {arena_print(e->memory, "(unsigned)%s", operands[0]),
                               arena_print(e->memory, near ? "(unsigned)%s" : "%s >> 31 ? 0x80000000u : (unsigned)%s",
                                           operands[1], operands[1])};
        return arena_print(e->memory, "(long)%s", call(e, need(e, "%s_u32", ops[op->code].text), both, 2));
    }
    return call(e, need(e, "%s%s_%s", precise ? "precise_" : "", ops[op->code].text, name), operands,
                op->operand_count);
}

const char *cuda_expression(emitter *e, const tile_op *op, const char *const *operands)
{
    dtype t = tile_type_of(e->k, op->operands[op->code == OP_SELECT ? 1 : 0]).elem;
    dtype result = tile_type_of(e->k, op->results[0]).elem;
    const char *words = plain(e, op, t, operands);
    if (!dtype_is_narrow(result) || !rounds(op->code)) return words;
    return arena_print(e->memory, "%s(%s)", need(e, "convert_f32_%s", memory_name(result)), words);
}

const char *cuda_fold_step(emitter *e, fold_kind fold, dtype t, const char *a, const char *b)
{
    const char *both[2] = {a, b};
    if (t == DT_BOOL) {
        bool all = fold == FOLD_ALL || fold == FOLD_MIN || fold == FOLD_PROD;
        return arena_print(e->memory, "%s %s %s", a, all ? "&&" : "||", b);
    }
    if (dtype_is_float(t) && fold <= FOLD_PROD)
        return arena_print(e->memory, "%s %s %s", a, fold == FOLD_SUM ? "+" : "*", b);
    return call(e, need(e, "step_%s_%s", fold_names[fold], register_name(t)), both, 2);
}
