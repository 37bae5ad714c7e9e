/*
 * The rules of typing.h.
 *
 * A number without a type takes the promoted type of what it meets, and must fit it; a float number lifts an integer to
 * `float`. Among tensors, those with axes decide; a scalar or a tensor of rank 0 counts only if its kind (bool, integer,
 * float) is higher than theirs.
 * SPDX-License-Identifier: MIT
 */
#include "lang/typing.h"
#include "lang/fault.h"
#include "lang/lower.h"

#include <string.h>

static bool is_word(const char *word, const char *other)
{
    return !strcmp(word, other);
}

op_code operator_code(const char *word)
{
    static const struct {
        const char *word;
        op_code code;
    } table[] = {
        {"+", OP_ADD}, {"-", OP_SUB}, {"*", OP_MUL},  {"/", OP_DIV},  {"%", OP_MOD},  {"&", OP_AND},
        {"|", OP_OR},  {"^", OP_XOR}, {"<<", OP_SHL}, {">>", OP_SHR}, {"<", OP_LT},   {"<=", OP_LE},
        {">", OP_GT},  {">=", OP_GE}, {"==", OP_EQ},  {"!=", OP_NE},  {"&&", OP_AND}, {"||", OP_OR},
    };
    for (int i = 0; i < COUNT(table); i++)
        if (is_word(table[i].word, word)) return table[i].code;
    return OP_NONE;
}

fold_kind fold_code(const char *name)
{
    static const struct {
        const char *name;
        fold_kind fold;
    } table[] = {{"sum", FOLD_SUM},       {"mean", FOLD_SUM},      {"count", FOLD_SUM},  {"prod", FOLD_PROD},
                 {"max", FOLD_MAX},       {"min", FOLD_MIN},       {"any", FOLD_ANY},    {"all", FOLD_ALL},
                 {"argmax", FOLD_ARGMAX}, {"argmin", FOLD_ARGMIN}, {"cumsum", FOLD_SUM}, {"cumprod", FOLD_PROD},
                 {"cummax", FOLD_MAX},    {"cummin", FOLD_MIN}};
    for (int i = 0; i < COUNT(table); i++)
        if (is_word(table[i].name, name)) return table[i].fold;
    return FOLD_COUNT;
}

bool typing_untyped(const typed *x)
{
    return x->constant && x->constant->untyped;
}

dtype typing_alone(const binding *number)
{
    return number->kind == BIND_FLOAT ? DT_F32 : number->kind == BIND_BOOL ? DT_BOOL : DT_I64;
}

/* The type as it stands in a sentence. */
static const char *kind_text(arena *memory, const typed *x)
{
    if (typing_untyped(x)) return x->constant->kind == BIND_FLOAT ? "a float" : "an integer";
    return arena_print(memory, "`%s`", type_text(x->type));
}

static bool fits(diagnostics *d, arena *memory, const typed *x, dtype to, place at)
{
    if (!x->constant || constant_fits(x->constant, to)) return true;
    diagnose(d, E103, at, "use a wider type, or a smaller number", "the number %s does not fit `%s`",
             constant_text(memory, x->constant), type_text(to));
    return false;
}

/* 0 bool, 1 integer, 2 float. */
static int kind_rank(dtype type)
{
    return dtype_is_float(type) ? 2 : type == DT_BOOL ? 0 : 1;
}

/* Of two tensors: a float before an integer before a bool, then the wider one; f16 with bf16 is f32. */
static bool tensors_join(dtype a, dtype b, dtype *out)
{
    *out = a;
    if (a == b) return true;
    if (kind_rank(a) != kind_rank(b)) {
        *out = kind_rank(a) > kind_rank(b) ? a : b;
        return true;
    }
    int a_bytes = dtypes[a].size_bytes, b_bytes = dtypes[b].size_bytes;
    if (dtype_is_float(a)) {
        *out = a_bytes == b_bytes ? DT_F32 : a_bytes > b_bytes ? a : b;
        return true;
    }
    if (dtypes[a].kind != dtypes[b].kind) return type_join(a, b, out);
    *out = a_bytes > b_bytes ? a : b;
    return true;
}

static int weight(typing_rules rules, const typed *x)
{
    return typing_untyped(x) ? 0 : rules == TYPING_TENSOR && x->has_axes ? 2 : 1;
}

bool typing_join(diagnostics *d, arena *memory, typing_rules rules, const typed *x, int count, place at, dtype *out)
{
    int best = 0;
    bool begun = false;
    dtype last = DT_COUNT;
    for (int i = 0; i < count; i++) best = MAXIMUM(best, weight(rules, &x[i]));
    for (int round = best; round >= 0; round--) /* the heaviest decide, the others may lift the kind */
        for (int i = 0; i < count; i++) {
            if (weight(rules, &x[i]) != round) continue;
            dtype type = round ? x[i].type : typing_alone(x[i].constant), before = *out;
            bool heavy = round == best;
            if (heavy && begun) {
                bool good =
                    rules == TYPING_KERNEL && round ? type_join(before, type, out) : tensors_join(before, type, out);
                if (!good) fault_join(d, at, count == 2 ? last : before, type);
                if (!good) return false;
                continue;
            }
            last = type;
            if (heavy)
                *out = rules == TYPING_KERNEL && round ? type_promote(type) : type;
            else if (kind_rank(type) > kind_rank(*out))
                *out = round || kind_rank(type) == 2 ? type : DT_I32; /* a number beside bools: as in kernels */
            begun = true;
        }
    for (int i = 0; i < count; i++)
        if (weight(rules, &x[i]) < best && !fits(d, memory, &x[i], *out, at)) return false;
    return true;
}

bool typing_binary(diagnostics *d, arena *memory, typing_rules rules, const char *word, const typed x[2], place at,
                   dtype to[2])
{
    op_code code = operator_code(word);
    bool floats = dtype_is_float(x[0].type) || dtype_is_float(x[1].type);
    bool bools = x[0].type == DT_BOOL && x[1].type == DT_BOOL;
    bool bits = code == OP_AND || code == OP_OR || code == OP_XOR, shift = code == OP_SHL || code == OP_SHR;
    to[0] = to[1] = DT_BOOL;
    if (is_word(word, "&&") || is_word(word, "||"))
        return typing_condition(d, &x[0], at) && typing_condition(d, &x[1], at);
    if ((bits || shift) && floats) {
        fault_integers(d, at, word);
        return false;
    }
    if (bools && (bits || ops[code].class == CLASS_COMPARE)) return true;
    if (shift) { /* the count has a type of its own */
        for (int i = 0; i < 2; i++) {
            const typed *of = typing_untyped(&x[i]) ? &x[1 - i] : &x[i];
            bool stays = rules == TYPING_TENSOR && of->has_axes && of->type != DT_BOOL;
            to[i] = typing_untyped(of) ? DT_I64 : stays ? of->type : type_promote(of->type);
        }
        if (typing_untyped(&x[1])) to[1] = to[0];
        return fits(d, memory, &x[0], to[0], at);
    }
    if (!typing_join(d, memory, rules, x, 2, at, &to[0])) return false;
    if (to[0] == DT_BOOL) to[0] = DT_I32; /* arithmetic on bools */
    to[1] = to[0];
    return true;
}

bool typing_select(diagnostics *d, arena *memory, typing_rules rules, const typed x[2], place at, dtype *out)
{
    bool same = x[0].type == x[1].type && !typing_untyped(&x[0]) && !typing_untyped(&x[1]);
    if (!same) return typing_join(d, memory, rules, x, 2, at, out);
    *out = rules == TYPING_KERNEL && dtype_is_float(x[0].type) ? type_promote(x[0].type) : x[0].type;
    return true;
}

bool typing_convert(diagnostics *d, arena *memory, const typed *x, dtype to, place at)
{
    if (dtype_is_float(x->type) && dtype_is_integer(to)) {
        diagnose(d, E205, at, arena_print(memory, "write `%s(x)`, or `floor` first", type_text(to)),
                 "float to integer needs a cast: %s to `%s`", kind_text(memory, x), type_text(to));
        return false;
    }
    if (to == DT_BOOL && x->type != DT_BOOL) {
        diagnose(d, E207, at, "compare: `x != 0`", "not a bool but %s", kind_text(memory, x));
        return false;
    }
    return fits(d, memory, x, to, at);
}

bool typing_argument(diagnostics *d, arena *memory, const typed *x, dtype to, const char *name, place at)
{
    bool same_kind =
        (dtype_is_float(x->type) && dtype_is_float(to)) || (dtype_is_integer(x->type) && dtype_is_integer(to));
    if (!typing_untyped(x) && same_kind && dtypes[x->type].size_bytes > dtypes[to].size_bytes) {
        fault_narrow(d, at, name, x->type, to);
        return false;
    }
    return typing_convert(d, memory, x, to, at);
}

bool typing_condition(diagnostics *d, const typed *x, place at)
{
    if (!dtype_is_float(x->type)) return true;
    diagnose(d, E210, at, "compare it: `x != 0`", "a float is not a condition");
    return false;
}

bool typing_index(diagnostics *d, arena *memory, const typed *x, place at)
{
    if (dtype_is_integer(x->type)) return true;
    diagnose(d, E209, at,
             x->type == DT_BOOL ? "shapes do not depend on values: `where(condition, x, 0)` keeps the shape"
                                : "use an integer, or cast: `int(x)`",
             "an index must be an integer, not %s", kind_text(memory, x));
    return false;
}

bool typing_bitcast(diagnostics *d, const typed *x, dtype to, place at, dtype *from)
{
    *from = typing_untyped(x) ? typing_alone(x->constant) : x->type;
    if (dtypes[*from].size_bytes == dtypes[to].size_bytes) return true;
    fault_bitcast_width(d, at, *from, to);
    return false;
}

dtype typing_fold(typing_rules rules, const char *name, dtype type)
{
    fold_kind fold = fold_code(name);
    bool scan = !strncmp(name, "cum", 3);
    if (fold == FOLD_ANY || fold == FOLD_ALL) return DT_BOOL;
    if (scan && type == DT_BOOL && (fold == FOLD_MAX || fold == FOLD_MIN)) return DT_I32;
    if (fold != FOLD_SUM && fold != FOLD_PROD) return type;
    if (is_word(name, "count")) return type;
    if (dtype_is_float(type)) return rules == TYPING_TENSOR || type == DT_F64 ? type : DT_F32;
    return dtypes[type].kind == KIND_UINT ? DT_U64 : DT_I64;
}
