/*
 * Constant expressions. In: an expression of the tree and the names that are bound. Out: a number with its type.
 *
 * Numbers and expressions of numbers alone are untyped: exact 64-bit integers or doubles. A bound name has a type, and
 * arithmetic with it follows the language's promotions, wraps at the width of an integer and rounds to a float type.
 * The arithmetic itself (constant_unary, constant_binary, constant_call) also serves lowering, which folds what it
 * meets. A function returns NULL or the code of the diagnostic that describes the fault. SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"
#include "ir/interp_state.h"
#include "ir/scalar.h"

#include <stdlib.h>
#include <limits.h>
#include <math.h>
#include <string.h>

enum { MAX_DEPTH = 64 }; /* of file constants that use each other */

const binding *bindings_find(const bindings *b, const char *name)
{
    for (int i = 0; b && i < b->count; i++)
        if (!strcmp(b->items[i].name, name)) return &b->items[i];
    return NULL;
}

void bindings_set(arena *memory, bindings *b, binding item)
{
    for (int i = 0; i < b->count; i++)
        if (!strcmp(b->items[i].name, item.name)) {
            b->items[i] = item;
            return;
        }
    ARENA_PUSH(memory, b->items, b->count, b->capacity, item);
}

binding constant_int(int64_t i)
{
    return (binding){.kind = BIND_INT, .type = DT_I64, .number = {.i = i, .f = (double)i}, .untyped = true};
}

binding constant_float(double f)
{
    return (binding){.kind = BIND_FLOAT, .type = DT_F64, .number = {.f = f}, .untyped = true};
}

binding constant_bool(bool b)
{
    return (binding){.kind = BIND_BOOL, .type = DT_BOOL, .number = {.i = b}};
}

static double as_double(const binding *b)
{
    if (b->kind == BIND_FLOAT) return b->number.f;
    return scalar_widen(b->type, b->number.i);
}

bool constant_truth(const binding *b)
{
    return b->kind == BIND_FLOAT ? b->number.f != 0 : b->number.i != 0;
}

binding constant_cast(const binding *from, dtype type)
{
    binding out = {.name = from->name, .type = type};
    if (dtype_is_float(type)) {
        out.kind = BIND_FLOAT;
        out.number.f = round_to_dtype(type, as_double(from));
    } else if (type == DT_BOOL) {
        out.kind = BIND_BOOL;
        out.number.i = constant_truth(from);
    } else {
        out.kind = BIND_INT;
        out.number.i =
            from->kind == BIND_FLOAT ? scalar_truncate(type, from->number.f) : integer_wrap(type, from->number.i);
    }
    return out;
}

bool constant_fits(const binding *from, dtype type)
{
    if (from->kind != BIND_INT || !dtype_is_integer(type)) return true;
    return scalar_fits(from->untyped ? DT_I64 : from->type, type, from->number.i) ||
           (type == DT_U64 && from->pattern && from->untyped);
}

error_code constant_convert(const binding *from, dtype type, binding *out)
{
    if (from->kind == BIND_FLOAT && !dtype_is_float(type)) return type == DT_BOOL ? E207 : E205;
    if (from->kind == BIND_INT && type == DT_BOOL) return E207;
    if (!constant_fits(from, type)) return E103;
    *out = constant_cast(from, type);
    return ERROR_NONE;
}

/* Brings two operands to one type. Untyped ones follow the other; two untyped ones stay untyped. */
static error_code join(const binding *a, const binding *b, binding *x, binding *y, dtype *type, bool *untyped)
{
    *untyped = a->untyped && b->untyped;
    if (*untyped) {
        *type = a->kind == BIND_FLOAT || b->kind == BIND_FLOAT ? DT_F64 : DT_I64;
    } else if (a->untyped || b->untyped) {
        const binding *free = a->untyped ? a : b, *fixed = a->untyped ? b : a;
        *type = type_promote(fixed->type);
        if (free->kind == BIND_FLOAT && !dtype_is_float(*type)) *type = DT_F32;
        if (!constant_fits(free, *type)) return E103;
    } else if (!type_join(a->type, b->type, type)) {
        return E206;
    }
    *x = constant_cast(a, *type);
    *y = constant_cast(b, *type);
    return ERROR_NONE;
}

static binding finish(dtype type, bool untyped, int64_t i, double f)
{
    binding out = {.type = type, .untyped = untyped};
    if (dtype_is_float(type)) {
        out.kind = BIND_FLOAT;
        out.number.f = untyped ? f : round_to_dtype(type, f);
    } else {
        out.kind = BIND_INT;
        out.number.i = integer_wrap(type, i);
    }
    return out;
}

static bool is_word(const char *word, const char *other)
{
    return !strcmp(word, other);
}

static error_code compare(const char *word, const binding *x, const binding *y, dtype type, binding *out)
{
    int order;
    bool unordered = false;
    if (dtype_is_float(type)) {
        unordered = isnan(x->number.f) || isnan(y->number.f);
        order = x->number.f < y->number.f ? -1 : x->number.f > y->number.f;
    } else {
        order = scalar_raw(OP_LT, type, x->number.i, y->number.i) ? -1 : x->number.i != y->number.i;
    }
    bool truth = is_word(word, "<")    ? order < 0
                 : is_word(word, "<=") ? order <= 0
                 : is_word(word, ">")  ? order > 0
                 : is_word(word, ">=") ? order >= 0
                 : is_word(word, "==") ? order == 0
                                       : order != 0;
    *out = constant_bool(unordered ? is_word(word, "!=") : truth);
    return ERROR_NONE;
}

static bool is_comparison(const char *word)
{
    return word[0] == '=' || word[0] == '!' || ((word[0] == '<' || word[0] == '>') && word[1] != word[0]);
}

static error_code shift(const char *word, const binding *a, const binding *b, binding *out)
{
    if (a->kind == BIND_FLOAT || b->kind == BIND_FLOAT) return E211;
    dtype type = !a->untyped ? type_promote(a->type) : b->untyped ? DT_I64 : type_promote(b->type);
    if (!constant_fits(a, type)) return E103;
    int64_t i = scalar_raw(word[0] == '<' ? OP_SHL : OP_SHR, type, integer_wrap(type, a->number.i), b->number.i);
    *out = finish(type, a->untyped && b->untyped, i, 0);
    return ERROR_NONE;
}

static op_code arithmetic_of(const char *word)
{
    static const char words[] = "+-*/%&|^";
    static const op_code codes[] = {OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_MOD, OP_AND, OP_OR, OP_XOR};
    const char *at = strchr(words, word[0]);
    CHECK(at && *at && !word[1]);
    return codes[at - words];
}

error_code constant_binary(const char *word, const binding *a, const binding *b, binding *out)
{
    if (is_word(word, "&&") || is_word(word, "||")) {
        if (a->kind == BIND_FLOAT || b->kind == BIND_FLOAT) return E210;
        bool x = constant_truth(a), y = constant_truth(b);
        *out = constant_bool(word[0] == '&' ? x && y : x || y);
        return ERROR_NONE;
    }
    if (is_word(word, "<<") || is_word(word, ">>")) return shift(word, a, b, out);
    binding x, y;
    dtype type;
    bool untyped;
    bool bits = is_word(word, "&") || is_word(word, "|") || is_word(word, "^");
    if (bits && a->kind == BIND_BOOL && b->kind == BIND_BOOL) {
        bool p = a->number.i, q = b->number.i;
        *out = constant_bool(word[0] == '&' ? p && q : word[0] == '|' ? p || q : p != q);
        return ERROR_NONE;
    }
    error_code fault = join(a, b, &x, &y, &type, &untyped);
    if (fault) return fault;
    if (is_comparison(word)) return compare(word, &x, &y, type, out);
    if (dtype_is_float(type)) {
        double p = x.number.f, q = y.number.f, r;
        if (is_word(word, "+"))
            r = p + q;
        else if (is_word(word, "-"))
            r = p - q;
        else if (is_word(word, "*"))
            r = p * q;
        else if (is_word(word, "/"))
            r = p / q;
        else if (is_word(word, "%"))
            r = p - q * floor(p / q);
        else
            return E211;
        *out = finish(type, untyped, 0, r);
        return ERROR_NONE;
    }
    op_code code = arithmetic_of(word);
    int64_t p = x.number.i, q = y.number.i, r = scalar_raw(code, type, p, q);
    if ((code == OP_DIV || code == OP_MOD) && q == 0) return E219;
    if (untyped && scalar_overflows(code, type, p, q)) return E103; /* untyped integers are exact: they never wrap */
    *out = finish(type, untyped, r, 0);
    out->pattern =
        untyped && r < 0 && (a->pattern || b->pattern) && (word[0] == '&' || word[0] == '|' || word[0] == '^');
    return ERROR_NONE;
}

error_code constant_unary(const char *word, const binding *a, binding *out)
{
    if (is_word(word, "!")) {
        if (a->kind == BIND_FLOAT) return E210;
        *out = constant_bool(!constant_truth(a));
        return ERROR_NONE;
    }
    if (is_word(word, "~") && a->kind == BIND_FLOAT) return E211;
    dtype type = a->untyped ? a->type : type_promote(a->type);
    int64_t i = a->number.i;
    if (is_word(word, "-")) {
        if (a->untyped && a->kind == BIND_INT && scalar_overflows(OP_NEG, DT_I64, i, 0)) return E103;
        i = scalar_raw(OP_NEG, type, i, 0);
    }
    if (is_word(word, "~")) i = ~i;
    double f = a->kind == BIND_FLOAT ? (is_word(word, "-") ? -a->number.f : a->number.f) : 0;
    *out = finish(type, a->untyped, i, f);
    return ERROR_NONE;
}

/* A function of floats, as the interpreter has it. */
static bool unary_function(const char *name, double x, double *r)
{
    const builtin *f = builtin_find(name);
    bool floats = f && f->op != OP_NONE && ops[f->op].class == CLASS_UNARY && !strcmp(ops[f->op].types, "F");
    if (!floats || ops[f->op].result != RESULT_SAME) return false;
    cell in = {.f = x}, out = {0};
    math_unary(f->op, DT_F64, 1, &in, 0, &out);
    *r = out.f;
    return true;
}

bool constant_call(const char *name, const binding *a, int count, binding *out, error_code *fault)
{
    *fault = ERROR_NONE;
    binding x, y, one = constant_int(1);
    dtype type;
    bool untyped;
    double f;
    if (count == 2 && is_word(name, "cdiv")) {
        if (a[0].kind == BIND_FLOAT || a[1].kind == BIND_FLOAT) *fault = E211;
        if (!*fault) *fault = constant_binary("+", &a[0], &a[1], &x);
        if (!*fault) *fault = constant_binary("-", &x, &one, &y);
        if (!*fault) *fault = constant_binary("/", &y, &a[1], out);
        return true;
    }
    if (count == 2 && (is_word(name, "min") || is_word(name, "max"))) {
        binding less;
        if ((*fault = join(&a[0], &a[1], &x, &y, &type, &untyped))) return true;
        compare("<", &x, &y, type, &less);
        if (dtype_is_float(type) && (isnan(x.number.f) || isnan(y.number.f)))
            *out = isnan(x.number.f) ? x : y;
        else
            *out = (is_word(name, "min") == (less.number.i != 0)) ? x : y;
        out->untyped = untyped;
        return true;
    }
    if (count == 2 && is_word(name, "pow")) {
        if ((*fault = join(&a[0], &a[1], &x, &y, &type, &untyped))) return true;
        if (!dtype_is_float(type)) type = untyped ? DT_F64 : DT_F32;
        *out = finish(type, untyped, 0, pow(as_double(&x), as_double(&y)));
        return true;
    }
    if (count == 1 && is_word(name, "abs")) {
        *out = a[0];
        type = a[0].untyped ? a[0].type : type_promote(a[0].type);
        *out = finish(type, a[0].untyped, scalar_raw(OP_ABS, type, a[0].number.i, 0), fabs(a[0].number.f));
        return true;
    }
    if (count == 1 && unary_function(name, as_double(&a[0]), &f)) {
        type = a[0].untyped ? DT_F64 : dtype_is_float(type_promote(a[0].type)) ? type_promote(a[0].type) : DT_F32;
        *out = finish(type, a[0].untyped, 0, f);
        return true;
    }
    return false;
}

bool constant_word(const char *name, binding *out)
{
    if (is_word(name, "inf"))
        *out = constant_float(INFINITY);
    else if (is_word(name, "nan"))
        *out = constant_float(NAN);
    else if (is_word(name, "pi"))
        *out = constant_float(3.14159265358979323846);
    else
        return false;
    return true;
}

binding constant_of_number(const ast *node)
{
    binding out = node->is_float ? constant_float(node->number.f) : constant_int(node->number.i);
    bool digits = node->word && node->word[0] == '0' && node->word[1]; /* 0x or 0b: decimals do not begin with 0 */
    out.pattern = !node->is_float && out.number.i < 0 && digits;
    if (!node->is_typed) return out;
    return constant_cast(&out, DT_F32);
}

const char *constant_text(arena *memory, const binding *b)
{
    if (b->pattern) return arena_print(memory, "0x%llx", (unsigned long long)b->number.i);
    if (b->type == DT_U64 && !b->untyped) return arena_print(memory, "%llu", (unsigned long long)b->number.i);
    return arena_print(memory, "%lld", (long long)b->number.i);
}

const char *constant_fault_text(error_code code)
{
    switch (code) {
    case E103: return "this number does not fit its type";
    case E205: return "float to integer needs a cast";
    case E206: return "operands of different sign";
    case E207: return "not a bool";
    case E210: return "a float is not a condition";
    case E211: return "this operator needs integers";
    case E219: return "division by zero in a constant expression";
    default: return "not a compile-time constant";
    }
}

const char *constant_fault_advice(error_code code)
{
    switch (code) {
    case E103: return "use a wider type, or a smaller number";
    case E205: return "write a cast such as `i32(x)`, or `floor` first";
    case E206: return "cast one of them";
    case E207: return "compare: `x != 0`";
    case E210: return "compare it with something";
    case E211: return "cast the operands to an integer type";
    case E219: return "choose a divisor other than 0, or test it first: `B == 0 ? 1 : n / B`";
    default: return "use numbers, `const` names and the functions over them";
    }
}

typedef struct evaluation {
    const ast_file *file;
    const bindings *known;
    int units, depth;
    diagnostics *d;
    const char **unbound;
} evaluation;

static bool fail(evaluation *e, error_code code, place at)
{
    diagnose(e->d, code, at, constant_fault_advice(code), "%s", constant_fault_text(code));
    return false;
}

static bool evaluate(evaluation *e, const ast *x, binding *out);

static bool evaluate_name(evaluation *e, const ast *x, binding *out)
{
    const binding *bound = bindings_find(e->known, x->name);
    if (bound) {
        *out = *bound;
        if (bound->kind == BIND_TYPE || bound->kind == BIND_FUNCTION) return fail(e, E217, x->at);
        return true;
    }
    const ast *item = ast_find(e->file, x->name);
    if (item && item->kind == AST_CONSTANT) {
        if (e->depth >= MAX_DEPTH) {
            fault_circle(e->d, x->at, x->name);
            return false;
        }
        evaluation inner = *e;
        binding value;
        bindings none = {0};
        dtype type;
        inner.known = &none;
        inner.depth++;
        if (!evaluate(&inner, item->left, &value)) return false;
        if (!item->type || !dtype_from_text(item->type->word, &type)) return fail(e, E217, item->at);
        error_code fault = constant_convert(&value, type, out);
        return fault ? fail(e, fault, item->left->at) : true;
    }
    if (constant_word(x->name, out)) return true;
    if (e->unbound) *e->unbound = x->name;
    return false;
}

static bool evaluate_call(evaluation *e, const ast *x, binding *out)
{
    binding arguments[4];
    int count = x->list.count;
    if (x->left->kind == AST_NAME && is_word(x->left->name, "units") && !count) {
        *out = constant_int(e->units > 0 ? e->units : 1);
        out->untyped = false;
        return true;
    }
    if (count > COUNT(arguments)) return fail(e, E217, x->at);
    for (int i = 0; i < count; i++) {
        if (x->list.items[i]->kind == AST_NAMED) return fail(e, E217, x->at);
        if (!evaluate(e, x->list.items[i], &arguments[i])) return false;
    }
    dtype type;
    if (x->left->kind == AST_TYPE_NAME && count == 1 && dtype_from_text(x->left->word, &type)) {
        *out = constant_cast(&arguments[0], type);
        return true;
    }
    error_code fault = ERROR_NONE;
    if (x->left->kind == AST_NAME && !(ast_find(e->file, x->left->name)) &&
        constant_call(x->left->name, arguments, count, out, &fault))
        return fault ? fail(e, fault, x->at) : true;
    return fail(e, E217, x->at);
}

static bool evaluate(evaluation *e, const ast *x, binding *out)
{
    binding a, b;
    error_code fault = ERROR_NONE;
    switch (x->kind) {
    case AST_NUMBER: *out = constant_of_number(x); return true;
    case AST_BOOL: *out = constant_bool(x->number.i != 0); return true;
    case AST_NAME: return evaluate_name(e, x, out);
    case AST_UNARY:
        if (!evaluate(e, x->left, &a)) return false;
        fault = constant_unary(x->word, &a, out);
        break;
    case AST_BINARY:
        if (!evaluate(e, x->left, &a)) return false;
        if (is_word(x->word, "&&") && a.kind != BIND_FLOAT && !constant_truth(&a)) {
            *out = constant_bool(false);
            return true;
        }
        if (is_word(x->word, "||") && a.kind != BIND_FLOAT && constant_truth(&a)) {
            *out = constant_bool(true);
            return true;
        }
        if (!evaluate(e, x->right, &b)) return false;
        fault = constant_binary(x->word, &a, &b, out);
        break;
    case AST_CONDITIONAL:
        if (!evaluate(e, x->left, &a)) return false;
        if (a.kind == BIND_FLOAT) return fail(e, E210, x->left->at);
        return evaluate(e, constant_truth(&a) ? x->right : x->third, out);
    case AST_CALL: return evaluate_call(e, x, out);
    default: return fail(e, E217, x->at);
    }
    return fault ? fail(e, fault, x->at) : true;
}

const char *lang_setting(arena *memory, const char *words)
{
    char *end;
    const char *start = words + strspn(words, " \t");
    long long base = strtoll(start, &end, 10), value = 1;
    const char *sign = end + strspn(end, " \t");
    size_t length = sign[0] == '^' ? 1 : sign[0] == '*' && sign[1] == '*' ? 2 : 0;
    if (end == start || !length) return words;
    long long exponent = strtoll(sign + length, &end, 10);
    if (end == sign + length || end[strspn(end, " \t")] || exponent < 0 || exponent > 63) return words;
    for (long long i = 0; i < exponent; i++)
        if (__builtin_mul_overflow(value, base, &value)) return words;
    return arena_print(memory, "%lld", value);
}

bool lang_evaluate(const ast_file *file, const ast *expression, const bindings *known, int units, diagnostics *d,
                   binding *out, const char **unbound)
{
    const char *missing = NULL;
    evaluation e = {.file = file, .known = known, .units = units, .d = d, .unbound = &missing};
    bool good = evaluate(&e, expression, out);
    if (unbound) *unbound = good ? NULL : missing;
    return good;
}
