/*
 * Calls: casts, builtins, random numbers, print, assert, assume; functions of the file are in lower_function.c,
 * reductions and dot in lower_fold.c. In: a call of the tree. Out: a term (void for those that only act).
 * SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

#include <string.h>

static bool is_word(const char *word, const char *other)
{
    return !strcmp(word, other);
}

static bool is_plain(walk *w, const term *t, place at)
{
    if (t->kind == TERM_CONSTANT || t->kind == TERM_VALUE) return true;
    if (!is_error(t)) term_convert(w, t, DT_F32, at);
    return false;
}

bool constant_argument(walk *w, const ast *node, int64_t *out)
{
    term t = lower_expression(w, node);
    if (is_error(&t)) return false;
    if (t.kind == TERM_CONSTANT && !t.rank && t.constant.kind == BIND_INT) {
        *out = t.constant.number.i;
        return true;
    }
    diagnose(w->d, E217, node->at, "use a number or a `const` parameter", "not a compile-time constant");
    return false;
}

bool named_argument(const ast *call, const char *name, const ast **out)
{
    for (int i = 0; i < call->list.count; i++)
        if (call->list.items[i]->kind == AST_NAMED && is_word(call->list.items[i]->name, name)) {
            *out = call->list.items[i];
            return true;
        }
    return false;
}

/* One elementwise op over operands of one type. */
static term apply(walk *w, op_code code, const term *arguments, int count, place at)
{
    term out = {.kind = TERM_VALUE};
    value operands[3];
    for (int i = 0; i < count; i++) {
        if (!shape_join(w, &out, &arguments[i], &out, at)) return term_error();
        operands[i] = term_value(w, &arguments[i]);
        bounds_add_all(w, &out.bounds, &arguments[i].bounds);
    }
    w->at = at;
    out.value = build(w, code, operands, count);
    out.elem = tile_type_of(w->k, out.value).elem;
    return out;
}

/* Brings all to one type: the joint one, as a float if `as_float`. */
static bool join_all(walk *w, term *arguments, int count, bool as_float, place at)
{
    for (int i = 1; i < count; i++)
        if (!term_join(w, &arguments[0], &arguments[i], at)) return false;
    for (int i = 1; i < count; i++)
        if (!term_join(w, &arguments[0], &arguments[i], at)) return false;
    for (int i = 0; i < count; i++) {
        bool untyped = arguments[i].kind == TERM_CONSTANT && arguments[i].constant.untyped;
        if (as_float)
            arguments[i] = term_as_float(w, &arguments[i]);
        else if (untyped && arguments[i].elem == DT_F64)
            arguments[i] = term_cast(w, &arguments[i], DT_F32, 0);
        else if (count == 1)
            arguments[i] = term_promote(w, &arguments[i]);
    }
    return true;
}

static term lower_cdiv(walk *w, const term *a, const term *b, place at)
{
    term one = term_of_constant(constant_int(1));
    if (dtype_is_float(a->elem) || dtype_is_float(b->elem)) {
        fault_integers(w->d, at, "cdiv");
        return term_error();
    }
    term sum = lower_binary(w, "+", a, b, at);
    sum = lower_binary(w, "-", &sum, &one, at);
    return lower_binary(w, "/", &sum, b, at);
}

term lower_builtin(walk *w, const builtin *b, const char *name, term *arguments, int count, place at)
{
    bool constant = true;
    for (int i = 0; i < count; i++) {
        if (!is_plain(w, &arguments[i], at)) return term_error();
        constant = constant && arguments[i].kind == TERM_CONSTANT && !arguments[i].rank;
    }
    w->at = at;
    if (constant) {
        binding numbers[3], out;
        error_code fault;
        for (int i = 0; i < count; i++) numbers[i] = arguments[i].constant;
        if (constant_call(name, numbers, count, &out, &fault)) {
            if (!fault) return term_of_constant(out);
            fault_constant(w->d, fault, at);
            return term_error();
        }
    }
    if (is_word(name, "where")) return lower_where(w, &arguments[0], &arguments[1], &arguments[2], at);
    if (is_word(name, "cdiv")) return lower_cdiv(w, &arguments[0], &arguments[1], at);
    if (is_word(name, "clamp")) {
        if (!join_all(w, arguments, 3, false, at)) return term_error();
        term low = apply(w, OP_MAX, arguments, 2, at);
        term pair[] = {low, arguments[2]};
        return is_error(&low) ? low : apply(w, OP_MIN, pair, 2, at);
    }
    if (is_word(name, "tf32")) {
        if (dtype_is_integer(arguments[0].elem) || arguments[0].elem == DT_F64) {
            fault_tf32(w->d, at, arguments[0].elem);
            return term_error();
        }
        arguments[0] = term_as_float(w, &arguments[0]);
        return apply(w, OP_TF32, arguments, 1, at);
    }
    bool keeps_integers = is_word(name, "abs") || is_word(name, "sign") || is_word(name, "min") ||
                          is_word(name, "max") || is_word(name, "minimum") || is_word(name, "maximum");
    if (!join_all(w, arguments, count, !keeps_integers, at)) return term_error();
    return apply(w, b->op, arguments, count, at);
}

static term lower_cast(walk *w, const ast *call)
{
    dtype to;
    if (call->list.count != 1 || call->list.items[0]->kind == AST_NAMED) {
        fault_argument_count(w->d, call->at, call->left->word, 1, 1, call->list.count);
        return term_error();
    }
    term t = lower_expression(w, call->list.items[0]);
    if (!is_plain(w, &t, call->list.items[0]->at)) return term_error();
    if (is_word(call->left->word, "tf32")) return lower_builtin(w, NULL, "tf32", &t, 1, call->at);
    if (!resolve_type(w, call->left, &to)) return term_error();
    w->at = call->at;
    return term_cast(w, &t, to, 0);
}

static term lower_bitcast(walk *w, const ast *call)
{
    dtype to;
    const ast *type = call->list.items[0];
    if (type->kind != AST_TYPE_NAME || !resolve_type(w, type, &to)) {
        if (type->kind != AST_TYPE_NAME) fault_bitcast_type(w->d, type->from);
        return term_error();
    }
    term t = lower_expression(w, call->list.items[1]);
    if (!is_plain(w, &t, call->at)) return term_error();
    typed x = term_typed(&t);
    dtype from;
    if (!typing_bitcast(w->d, &x, to, call->at, &from)) return term_error();
    t = term_cast(w, &t, from, 0);
    term out = t;
    value v = term_value(w, &t);
    w->at = call->at;
    out.kind = TERM_VALUE;
    out.elem = to;
    out.value = t.elem == to ? v : op_finish(w, op_make(w, OP_BITCAST, &v, 1), term_type(&t, to));
    return out;
}

static value random_word(walk *w, const term *arguments, value offset, int lane, const term *shape)
{
    value operands[] = {term_value(w, &arguments[0]), offset, term_value(w, &arguments[2])};
    tile_op *op = op_make(w, OP_PHILOX, operands, 3);
    op->attr.index = lane;
    return op_finish(w, op, term_type(shape, DT_U32));
}

static value build_float(walk *w, double x)
{
    return build_number(w, (number){.f = x}, DT_F32);
}

term lower_random_call(walk *w, const char *name, term *arguments, int count, place at)
{
    static const dtype types[] = {DT_U64, DT_U64, DT_I64};
    term out = {.kind = TERM_VALUE, .elem = DT_F32};
    int64_t lane = 0;
    for (int i = 0; i < 3; i++) {
        if (!is_plain(w, &arguments[i], at)) return term_error();
        if (dtype_is_float(arguments[i].elem)) {
            fault_integers(w->d, at, name);
            return term_error();
        }
        arguments[i] = term_cast(w, &arguments[i], types[i], 0);
        if (!shape_join(w, &out, &arguments[i], &out, at)) return term_error();
        bounds_add_all(w, &out.bounds, &arguments[i].bounds);
    }
    if (count == 4) {
        if (is_error(&arguments[3])) return term_error();
        lane = arguments[3].kind == TERM_CONSTANT && arguments[3].constant.kind == BIND_INT
                   ? arguments[3].constant.number.i
                   : -1;
        if (lane < 0 || lane > 3) {
            fault_lane(w->d, at);
            return term_error();
        }
    }
    w->at = at;
    value offset = term_value(w, &arguments[1]);
    if (is_word(name, "philox")) {
        out.elem = DT_U32;
        out.value = random_word(w, arguments, offset, (int)lane, &out);
        return out;
    }
    offset = build2(w, OP_DIV, offset, build_number(w, (number){.i = 4}, DT_U64));
    value first = random_word(w, arguments, offset, 0, &out);
    if (is_word(name, "rand")) {
        value high = build2(w, OP_SHR, first, build_number(w, (number){.i = 8}, DT_U32));
        out.value = build2(w, OP_MUL, build_convert(w, high, DT_F32, 0), build_float(w, 0x1p-24));
        return out;
    }
    value second = random_word(w, arguments, offset, 1, &out), unit[2] = {first, second};
    for (int i = 0; i < 2; i++) {
        value scaled = build2(w, OP_MUL, build_convert(w, unit[i], DT_F32, 0), build_float(w, 0x1p-32));
        unit[i] = build2(w, OP_ADD, scaled, build_float(w, 0x1p-33));
    }
    value log = build(w, OP_LOG, &unit[0], 1);
    value radius = build2(w, OP_MUL, build_float(w, -2), log);
    radius = build(w, OP_SQRT, &radius, 1);
    value angle = build2(w, OP_MUL, build_float(w, 6.28318530717958647692), unit[1]);
    out.value = build2(w, OP_MUL, radius, build(w, OP_SIN, &angle, 1));
    return out;
}

static const char *source_of(walk *w, const ast *node)
{
    text words = {0};
    lang_format_expression(node, &words);
    const char *copy = arena_print(w->memory, "%s", text_get(&words));
    text_free(&words);
    return copy;
}

static term lower_print(walk *w, const ast *call)
{
    const ast *format = call->list.items[0];
    if (format->kind != AST_STRING) {
        diagnose(w->d, E213, format->at, "write `print(\"x = {}\", x);`", "the first argument of `print` is a text");
        return term_error();
    }
    int count = call->list.count - 1, holes = 0;
    bool good = true, masked = false;
    for (size_t i = 0; i + 1 < format->length; i++) holes += format->words[i] == '{' && format->words[i + 1] == '}';
    if (holes != count) {
        diagnose(w->d, E213, call->at, "give one value for every `{}`", "`print` has %d `{}` and %d values", holes,
                 count);
        return term_error();
    }
    value *operands = ARENA_ARRAY(w->memory, value, 2 * count + 1);
    term *terms = ARENA_ARRAY(w->memory, term, count + 1);
    for (int i = 0; i < count; i++) {
        terms[i] = lower_expression(w, call->list.items[i + 1]);
        good = is_plain(w, &terms[i], call->list.items[i + 1]->at) && good;
        masked |= terms[i].bounds.count > 0;
    }
    if (!good) return term_error();
    w->at = call->at;
    for (int i = 0; i < count; i++) operands[i] = term_value(w, &terms[i]);
    for (int i = 0; masked && i < count; i++) {
        value mask = mask_of(w, &terms[i]);
        operands[count + i] = mask ? mask : build_bool(w, true);
    }
    tile_op *op = op_make(w, OP_PRINT, operands, masked ? 2 * count : count);
    op->attr.words = arena_copy_text(w->memory, format->words, format->length);
    op->attr.count = count;
    op_append(w, op);
    return (term){.kind = TERM_VOID};
}

static void append_check(walk *w, op_code code, const term *condition, const char *words)
{
    value operands[65];
    int count = 0;
    operands[count++] = term_value(w, condition);
    for (int i = 0; i < condition->bounds.count && count < COUNT(operands); i++)
        operands[count++] = bound_mask(w, condition, &condition->bounds.items[i]);
    tile_op *op = op_make(w, code, operands, count);
    op->attr.words = words;
    op_append(w, op);
}

static term lower_assert(walk *w, const ast *call)
{
    const ast *node = call->list.items[0], *message = call->list.count > 1 ? call->list.items[1] : NULL;
    if (message && message->kind != AST_STRING) {
        diagnose(w->d, E213, message->at, "write `assert(c, \"text\");`", "the second argument of `assert` is a text");
        return term_error();
    }
    term c = lower_expression(w, node);
    c = term_condition(w, &c, node->at);
    if (is_error(&c)) return c;
    w->at = call->at;
    append_check(w, OP_ASSERT, &c,
                 message ? arena_copy_text(w->memory, message->words, message->length) : source_of(w, node));
    return (term){.kind = TERM_VOID};
}

/* Over constants it is decided now, over what the host knows at launch, else in the program. */
static term lower_assume(walk *w, const ast *call)
{
    const ast *node = call->list.items[0];
    const char *words = source_of(w, node);
    term nothing = {.kind = TERM_VOID};
    bool host = w->at_top && !w->in_head && is_host_expression(w, node);
    if (host) { /* the same walk, in the head */
        tile_block *block = w->block;
        int barrier = w->cons_barrier;
        w->cons_barrier = w->cons_count;
        w->in_head = true;
        w->block = w->k->head;
        term c = lower_expression(w, node);
        c = term_condition(w, &c, node->at);
        w->at = call->at;
        if (c.kind == TERM_CONSTANT && !constant_truth(&c.constant))
            fault_assume(w->d, call->at, words);
        else if (c.kind == TERM_VALUE)
            append_check(w, OP_ASSUME, &c, words);
        w->in_head = false;
        block_leave(w, block, w->cons_barrier);
        w->cons_barrier = barrier;
        return nothing;
    }
    term c = lower_expression(w, node);
    c = term_condition(w, &c, node->at);
    if (is_error(&c)) return c;
    w->at = call->at;
    if (c.kind == TERM_CONSTANT && !c.rank) {
        if (!constant_truth(&c.constant)) fault_assume(w->d, call->at, words);
        return nothing;
    }
    append_check(w, OP_ASSUME, &c, words);
    return nothing;
}

static term lower_program(walk *w, const ast *call, const char *name)
{
    int64_t index;
    if (!constant_argument(w, call->list.items[0], &index)) return term_error();
    if (index < 0 || index > 2) {
        diagnose(w->d, E309, call->at, "launch axes are 0, 1 and 2", "`%s` of launch axis %lld", name,
                 (long long)index);
        return term_error();
    }
    if (w->in_head) {
        diagnose(w->d, E212, call->at, "use it in the body", "`%s` is not known when a launch is prepared", name);
        return term_error();
    }
    if (index >= w->launch_count) {
        diagnose(w->d, E309, call->at, "axes count from 0; give the launch another count, or leave this out",
                 "`%s(%lld)`, but this launch has %d %s", name, (long long)index, w->launch_count,
                 w->launch_count == 1 ? "axis" : "axes");
        return term_error();
    }
    w->at = call->at;
    return term_of_value(
        w, build_leaf(w, is_word(name, "program") ? OP_PROGRAM : OP_PROGRAMS, (int)index, scalar_type(DT_I64)));
}

static int positional(const ast *call)
{
    int count = 0;
    for (int i = 0; i < call->list.count; i++) count += call->list.items[i]->kind != AST_NAMED;
    return count;
}

static term lower_builtin_call(walk *w, const ast *call, const builtin *b)
{
    const char *name = b->name;
    int count = positional(call);
    bool fold = b->class == BUILTIN_REDUCE || b->class == BUILTIN_SCAN ||
                ((is_word(name, "min") || is_word(name, "max")) && count == 1);
    if (count < b->least || (b->most >= 0 && count > b->most)) {
        fault_argument_count(w->d, call->at, name, b->least, b->most, count);
        return term_error();
    }
    if (count != call->list.count && !fold) {
        diagnose(w->d, E213, call->at, "only reductions and scans take `axis =`", "`%s` takes no named argument", name);
        return term_error();
    }
    if (fold) return lower_fold_call(w, call, name);
    switch (b->class) {
    case BUILTIN_SHAPE: return lower_shape_call(w, call, name);
    case BUILTIN_DOT: return lower_dot(w, call, NULL);
    case BUILTIN_VALIDITY: return lower_validity_call(w, call, name);
    case BUILTIN_ATOMIC: return lower_atomic_call(w, call, name);
    case BUILTIN_PROGRAM: return lower_program(w, call, name);
    case BUILTIN_HOST:
        if (b->most) {
            diagnose(w->d, E212, call->at, "extents have names, those in the parameter's brackets",
                     "`%s` belongs to tensor functions", b->name);
            return term_error();
        }
        return term_of_value(w, build_leaf(w, OP_UNITS, 0, scalar_type(DT_I64)));
    case BUILTIN_STATEMENT:
        if (is_word(name, "print")) return lower_print(w, call);
        return is_word(name, "assert") ? lower_assert(w, call) : lower_assume(w, call);
    case BUILTIN_TENSOR:
        diagnose(w->d, E212, call->at, "use it in a `tensor` function", "`%s` is an operation on tensors, not on tiles",
                 name);
        return term_error();
    default: break;
    }
    if (is_word(name, "bitcast")) return lower_bitcast(w, call);
    term arguments[4] = {0};
    for (int i = 0; i < count && i < COUNT(arguments); i++) arguments[i] = lower_expression(w, call->list.items[i]);
    if (dtype_is_float(arguments[0].elem)) habit_extreme(w->d, w->memory, call, arguments[0].rank);
    if (b->class == BUILTIN_RANDOM) return lower_random_call(w, name, arguments, count, call->at);
    return lower_builtin(w, b, name, arguments, count, call->at);
}

term lower_call(walk *w, const ast *call)
{
    if (call->left->kind == AST_TYPE_NAME) return lower_cast(w, call);
    if (call->left->kind != AST_NAME) {
        fault_not_callable(w->d, call->at, NULL);
        return term_error();
    }
    const char *name = call->left->name;
    symbol *s = symbol_find(w, name);
    if (s && s->kind == SYMBOL_FUNCTION) return call_function_constant(w, s, call);
    const ast *item = ast_find(w->file, name);
    if (item && item->kind == AST_FUNCTION) return call_function(w, item, call);
    const builtin *b = builtin_find(name);
    if (b && !item) return lower_builtin_call(w, call, b);
    fault_called_here(w->d, call->at, name,
                      item ? "launch it from outside" : "call a function of the file or a builtin");
    return term_error();
}
