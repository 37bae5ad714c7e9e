/*
 * Types of expressions: promotion, conversion, untyped constants (section 3 of the language).
 * In: terms. Out: terms of the type that was asked for, or a diagnostic and an error term.
 * SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

dtype type_promote(dtype t)
{
    if (t == DT_F16 || t == DT_BF16) return DT_F32;
    if (t == DT_BOOL || (dtype_is_integer(t) && dtypes[t].size_bytes < 4)) return DT_I32;
    return t;
}

bool type_join(dtype a, dtype b, dtype *out)
{
    a = type_promote(a);
    b = type_promote(b);
    if (a == b) {
        *out = a;
        return true;
    }
    bool a_float = dtype_is_float(a), b_float = dtype_is_float(b);
    int a_bytes = dtypes[a].size_bytes, b_bytes = dtypes[b].size_bytes;
    if (a_float != b_float)
        *out = a_float ? a : b;
    else if (a_float || dtypes[a].kind == dtypes[b].kind)
        *out = a_bytes >= b_bytes ? a : b;
    else if (a_bytes == b_bytes || a == DT_U64 || b == DT_U64)
        return false;
    else
        *out = a_bytes > b_bytes ? a : b;
    return true;
}

const char *type_text(dtype t)
{
    return t == DT_F32 ? "float" : t == DT_F64 ? "double" : dtypes[t].text;
}

term term_error(void)
{
    return (term){.kind = TERM_ERROR};
}

bool is_error(const term *t)
{
    return t->kind == TERM_ERROR;
}

term term_of_value(walk *w, value v)
{
    tile_type type = tile_type_of(w->k, v);
    term t = {.kind = TERM_VALUE, .elem = type.elem, .value = v, .rank = type.rank};
    for (int i = 0; i < type.rank; i++) t.axes[i].extent = type.dims[i];
    return t;
}

term term_of_constant(binding b)
{
    return (term){.kind = TERM_CONSTANT, .constant = b, .elem = b.type};
}

value term_value(walk *w, const term *t)
{
    if (t->kind == TERM_VALUE) return t->value;
    CHECK(t->kind == TERM_CONSTANT);
    value v = build_number(w, t->constant.number, t->elem);
    return t->rank ? build_shape(w, OP_BROADCAST, v, term_type(t, t->elem)) : v;
}

term term_cast(walk *w, const term *t, dtype to, unsigned flags)
{
    term out = *t;
    if (is_error(t)) return out;
    out.elem = to;
    if (t->kind == TERM_CONSTANT) {
        out.constant = constant_cast(&t->constant, to);
        return out;
    }
    if (t->value) out.value = build_convert(w, t->value, to, flags);
    return out;
}

/* The type as it stands in a sentence. */
static const char *kind_text(walk *w, const term *t)
{
    if (t->kind == TERM_CONSTANT && t->constant.untyped)
        return t->constant.kind == BIND_FLOAT ? "a float" : "an integer";
    return arena_print(w->memory, "`%s`", type_text(t->elem));
}

term term_convert(walk *w, const term *t, dtype to, place at)
{
    if (is_error(t)) return *t;
    if (t->kind == TERM_ARRAY || t->kind == TERM_VOID) {
        diagnose(w->d, "E306", at, "give one bracket for every axis: `[:]` for a whole axis",
                 t->kind == TERM_ARRAY ? "an array is not a value" : "this call gives no value");
        return term_error();
    }
    if (dtype_is_float(t->elem) && dtype_is_integer(to)) {
        diagnose(w->d, "E205", at, arena_print(w->memory, "write `%s(x)`, or `floor` first", type_text(to)),
                 "float to integer needs a cast: %s to `%s`", kind_text(w, t), type_text(to));
        return term_error();
    }
    if (to == DT_BOOL && t->elem != DT_BOOL) {
        diagnose(w->d, "E207", at, "compare: `x != 0`", "not a bool but %s", kind_text(w, t));
        return term_error();
    }
    if (t->kind == TERM_CONSTANT && !constant_fits(&t->constant, to)) {
        diagnose(w->d, "E103", at, "use a wider type, or a smaller number", "the number %s does not fit `%s`",
                 constant_text(w->memory, &t->constant), type_text(to));
        return term_error();
    }
    return term_cast(w, t, to, F_IMPLICIT);
}

static bool is_untyped(const term *t)
{
    return t->kind == TERM_CONSTANT && t->constant.untyped;
}

static bool is_operand(walk *w, term *t, place at)
{
    if (t->kind == TERM_CONSTANT || t->kind == TERM_VALUE) return true;
    *t = term_convert(w, t, DT_F32, at); /* says what is wrong with arrays and void */
    return false;
}

/* The type an operand takes beside `other`. */
static bool follow(walk *w, term *free, dtype other, dtype *type, place at)
{
    *type = type_promote(other);
    if (free->constant.kind == BIND_FLOAT && !dtype_is_float(*type)) *type = DT_F32;
    if (constant_fits(&free->constant, *type)) return true;
    diagnose(w->d, "E103", at, "use a wider type, or a smaller number", "the number %s does not fit `%s`",
             constant_text(w->memory, &free->constant), type_text(*type));
    return false;
}

bool term_join(walk *w, term *a, term *b, place at)
{
    if (!is_operand(w, a, at) || !is_operand(w, b, at)) return false;
    dtype type;
    if (is_untyped(a) && is_untyped(b)) {
        type = a->constant.kind == BIND_FLOAT || b->constant.kind == BIND_FLOAT ? DT_F64 : DT_I64;
        if (a->rank || b->rank)
            type = type == DT_F64 ? DT_F32 : DT_I64; /* filled tiles are float unless told otherwise */
    } else if (is_untyped(a)) {
        if (!follow(w, a, b->elem, &type, at)) return false;
    } else if (is_untyped(b)) {
        if (!follow(w, b, a->elem, &type, at)) return false;
    } else if (!type_join(a->elem, b->elem, &type)) {
        diagnose(w->d, "E206", at, "cast one of them", "`%s` with `%s`", type_text(a->elem), type_text(b->elem));
        return false;
    }
    *a = term_cast(w, a, type, 0);
    *b = term_cast(w, b, type, 0);
    return true;
}

term term_promote(walk *w, const term *t)
{
    if (is_error(t) || is_untyped(t)) return *t;
    return term_cast(w, t, type_promote(t->elem), 0);
}

term term_as_float(walk *w, const term *t)
{
    if (is_error(t)) return *t;
    dtype type = is_untyped(t) ? DT_F32 : type_promote(t->elem);
    return term_cast(w, t, dtype_is_float(type) ? type : DT_F32, 0);
}

term term_condition(walk *w, const term *t, place at)
{
    if (is_error(t)) return *t;
    if (t->kind == TERM_ARRAY || t->kind == TERM_VOID) return term_convert(w, t, DT_BOOL, at);
    if (dtype_is_float(t->elem)) {
        diagnose(w->d, "E210", at, "compare it: `x != 0`", "a float is not a condition");
        return term_error();
    }
    return t->elem == DT_BOOL ? *t : term_cast(w, t, DT_BOOL, 0);
}

term term_index(walk *w, const term *t, place at)
{
    if (is_error(t)) return *t;
    if (t->kind == TERM_ARRAY || t->kind == TERM_VOID) return term_convert(w, t, DT_I64, at);
    if (!dtype_is_integer(t->elem)) {
        diagnose(w->d, "E209", at, "use an integer, or cast: `int(x)`", "an index must be an integer, not %s",
                 kind_text(w, t));
        return term_error();
    }
    return t->rank ? *t : term_cast(w, t, DT_I64, 0);
}
