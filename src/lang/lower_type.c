/*
 * Types of expressions: promotion, conversion, untyped constants (section 3 of the language).
 * In: terms. Out: terms of the type that was asked for, or a diagnostic and an error term.
 * SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

dtype type_promote(dtype t)
{
    if (dtype_is_narrow(t)) return DT_F32;
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

typed term_typed(const term *t)
{
    return (typed){
        .type = t->elem, .constant = t->kind == TERM_CONSTANT ? &t->constant : NULL, .has_axes = t->rank > 0};
}

term term_convert(walk *w, const term *t, dtype to, place at)
{
    if (is_error(t)) return *t;
    if (t->kind == TERM_ARRAY || t->kind == TERM_VOID) {
        diagnose(w->d, E306, at, "give one bracket for every axis: `[:]` for a whole axis",
                 t->kind == TERM_ARRAY ? "an array is not a value" : "this call gives no value");
        return term_error();
    }
    typed x = term_typed(t);
    if (!typing_convert(w->d, w->memory, &x, to, at)) return term_error();
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

bool term_join(walk *w, term *a, term *b, place at)
{
    if (!is_operand(w, a, at) || !is_operand(w, b, at)) return false;
    dtype type;
    typed both[2] = {term_typed(a), term_typed(b)};
    if (is_untyped(a) && is_untyped(b) && !a->rank && !b->rank) /* still a number: exact */
        type = a->constant.kind == BIND_FLOAT || b->constant.kind == BIND_FLOAT ? DT_F64 : DT_I64;
    else if (!typing_join(w->d, w->memory, TYPING_KERNEL, both, 2, at, &type))
        return false;
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
    typed x = term_typed(t);
    if (!typing_condition(w->d, &x, at)) return term_error();
    return t->elem == DT_BOOL ? *t : term_cast(w, t, DT_BOOL, 0);
}

term term_index(walk *w, const term *t, place at)
{
    if (is_error(t)) return *t;
    if (t->kind == TERM_ARRAY || t->kind == TERM_VOID) return term_convert(w, t, DT_I64, at);
    typed x = term_typed(t);
    if (!typing_index(w->d, w->memory, &x, at)) return term_error();
    return t->rank ? *t : term_cast(w, t, DT_I64, 0);
}
