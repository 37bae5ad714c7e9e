/*
 * Functions, expanded where they are called (section 11).
 *
 * A scalar function on scalars, and every tile function, is lowered like a block of its own with uniform control flow.
 * A scalar function on tiles is applied element by element: without loops its statements become elementwise ops and its
 * branches selects, with loops it becomes a `map` region over scalars. Its arguments' bounds are set aside meanwhile
 * and the result is valid where all of them are. SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

#include <string.h>

enum { FEW_ARGUMENTS = 4 };

/* Calls nest deep and most have few arguments: the others lie in the arena. */
#define ARGUMENT_TERMS(w, name, count)    \
    term name##_few[FEW_ARGUMENTS] = {0}, \
         *name = (count) <= FEW_ARGUMENTS ? name##_few : ARENA_ARRAY((w)->memory, term, (count))

bool tree_has(const ast *node, ast_kind kind)
{
    if (!node) return false;
    if (node->kind == kind) return true;
    const ast *parts[] = {node->left, node->right, node->third, node->body, node->other};
    for (int i = 0; i < COUNT(parts); i++)
        if (tree_has(parts[i], kind)) return true;
    for (int i = 0; i < node->list.count; i++)
        if (tree_has(node->list.items[i], kind)) return true;
    return false;
}

/* Loops in the function or in those it calls. */
static bool function_loops(walk *w, const ast *node, int depth)
{
    if (!node || depth > CALL_DEPTH_LIMIT) return false;
    if (node->kind == AST_FOR || node->kind == AST_WHILE) return true;
    if (node->kind == AST_CALL && node->left->kind == AST_NAME) {
        const ast *item = ast_find(w->file, node->left->name);
        if (item && item->kind == AST_FUNCTION && function_loops(w, item->body, depth + 1)) return true;
    }
    const ast *parts[] = {node->left, node->right, node->third, node->body, node->other};
    for (int i = 0; i < COUNT(parts); i++)
        if (function_loops(w, parts[i], depth)) return true;
    for (int i = 0; i < node->list.count; i++)
        if (function_loops(w, node->list.items[i], depth)) return true;
    return false;
}

static bool returns_in_loop(const ast *node, bool inside)
{
    if (!node) return false;
    if (node->kind == AST_RETURN) return inside;
    inside |= node->kind == AST_FOR || node->kind == AST_WHILE;
    if (returns_in_loop(node->body, inside) || returns_in_loop(node->other, inside)) return true;
    for (int i = 0; node->kind == AST_BLOCK && i < node->list.count; i++)
        if (returns_in_loop(node->list.items[i], inside)) return true;
    return false;
}

static bool is_array_param(const ast *param)
{
    return !param->is_tile && !param_is_constant(param) && (param->list.count > 0 || param->word[0]);
}

static bool is_scalar_function(const ast *function)
{
    if (!function->type || function->is_tile) return false;
    for (int i = 0; i < function->list.count; i++) {
        const ast *param = function->list.items[i];
        if (param->is_tile || is_array_param(param)) return false;
    }
    return true;
}

/* What a call changes in the walk, and puts back. */
typedef struct frame {
    int scope_first, scope_end, symbol_count, variable_count;
    target *target;
    bool elementwise, at_top, in_index;
    value path;
    place at;
} frame;

static frame frame_open(walk *w)
{
    frame f = {w->scope_first, w->scope_end, w->symbol_count, w->variable_count, w->target,
               w->elementwise, w->at_top,    w->in_index,     w->path,           w->at};
    w->at_top = false;
    return f;
}

static void frame_enter(walk *w, const frame *f)
{
    w->scope_first = f->symbol_count;
    w->scope_end = -1;
}

static void frame_close(walk *w, const frame *f)
{
    w->scope_first = f->scope_first;
    w->scope_end = f->scope_end;
    w->symbol_count = f->symbol_count;
    w->variable_count = f->variable_count;
    w->target = f->target;
    w->elementwise = f->elementwise;
    w->at_top = f->at_top;
    w->in_index = f->in_index;
    w->path = f->path;
    w->at = f->at;
}

/* "An argument never narrows." */
static term convert_argument(walk *w, const term *t, dtype to, const char *name, place at)
{
    if (is_error(t)) return *t;
    if (t->kind == TERM_ARRAY || t->kind == TERM_VOID) return term_convert(w, t, to, at);
    typed x = term_typed(t);
    if (!typing_argument(w->d, w->memory, &x, to, name, at)) return term_error();
    return term_cast(w, t, to, F_IMPLICIT);
}

/* Binds the generic types of a function to those of its arguments. */
static bool bind_generics(walk *w, const ast *function, const term *arguments, place at)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < function->list.count; i++) {
            const ast *param = function->list.items[i];
            const term *t = &arguments[i];
            if (!param->type || !param->type->is_generic || is_error(t)) continue;
            bool untyped = t->kind == TERM_CONSTANT && t->constant.untyped;
            if (untyped != (pass == 1)) continue;
            dtype type = untyped ? typing_alone(&t->constant) : t->elem;
            symbol *s = symbol_find(w, param->type->word);
            if (s && s->kind == SYMBOL_TYPE) {
                if (untyped || s->type == type) continue;
                fault_generic(w->d, at, param->type->word, s->type, type);
                return false;
            }
            symbol_push(w, (symbol){.name = param->type->word, .kind = SYMBOL_TYPE, .type = type});
        }
    }
    return true;
}

static void bind_variable(walk *w, const char *name, const term *t, bool follows)
{
    variable *v = variable_new(w, name, t->elem);
    v->now = *t;
    v->now.value = term_value(w, t);
    v->now.kind = TERM_VALUE;
    v->follows = follows;
    v->is_set = true;
    symbol_push(w, (symbol){.name = name, .kind = SYMBOL_VARIABLE, .variable = v});
}

/* The body of a function whose parameters are bound; gives its result. */
static term run_body(walk *w, const ast *function, dtype type, bool follows)
{
    target *here = ARENA_NEW(w->memory, target);
    here->function = function;
    here->live = variable_new(w, NULL, DT_BOOL);
    here->live->now = term_of_value(w, build_bool(w, true));
    here->live->is_set = here->live->follows = true;
    if (function->type) {
        here->result = variable_new(w, NULL, type);
        here->result->follows = true;
        if (!follows && returns_in_loop(function->body, false)) {
            if (function->is_tile) {
                diagnose(w->d, E404, function->at, "assign the tile to a variable and return it at the end",
                         "a tile is returned inside a loop");
                return term_error();
            }
            here->result->now = term_of_value(w, build_number(w, (number){0}, type));
            here->result->is_set = true;
        }
    }
    w->target = here;
    lower_block(w, function->body);
    if (!function->type) return (term){.kind = TERM_VOID};
    return here->result->is_set ? here->result->now : term_error();
}

static term run_uniform(walk *w, const ast *function, const term *arguments, dtype type)
{
    for (int i = 0; i < function->list.count; i++)
        if (!param_is_constant(function->list.items[i]))
            bind_variable(w, function->list.items[i]->name, &arguments[i], false);
    w->elementwise = false;
    w->path = 0;
    return run_body(w, function, type, false);
}

static term run_elementwise(walk *w, const ast *function, const term *arguments, dtype type)
{
    for (int i = 0; i < function->list.count; i++) {
        term t = arguments[i];
        t.bounds = (bound_list){0};
        if (!param_is_constant(function->list.items[i])) bind_variable(w, function->list.items[i]->name, &t, true);
    }
    w->elementwise = true;
    return run_body(w, function, type, true);
}

static term run_map(walk *w, const ast *function, const term *arguments, dtype type, const term *shape)
{
    tile_block *region = tile_block_new(w->k), *outer;
    value operands[MAX_PARAMS] = {0};
    int count = 0, mark, barrier = w->cons_barrier;
    bool in_map = w->in_map;
    for (int i = 0; i < function->list.count; i++)
        if (!param_is_constant(function->list.items[i])) operands[count++] = term_value(w, &arguments[i]);
    outer = block_enter(w, region, &mark);
    w->cons_barrier = w->cons_count;
    w->in_map = true;
    w->elementwise = false;
    w->path = 0;
    for (int i = 0, n = 0; i < function->list.count; i++) {
        if (param_is_constant(function->list.items[i])) continue;
        value inside = tile_block_arg(w->k, region, scalar_type(tile_type_of(w->k, operands[n++]).elem));
        value_name(w, inside, function->list.items[i]->name);
        term t = term_of_value(w, inside);
        bind_variable(w, function->list.items[i]->name, &t, false);
    }
    term result = run_body(w, function, type, false);
    if (!is_error(&result)) {
        value v = term_value(w, &result);
        op_append(w, op_make(w, OP_YIELD, &v, 1));
    }
    w->cons_barrier = barrier;
    w->in_map = in_map;
    block_leave(w, outer, mark);
    if (is_error(&result)) return result;
    tile_op *op = op_make(w, OP_MAP, operands, count);
    op->regions[0] = region;
    op->region_count = 1;
    term out = {.kind = TERM_VALUE, .elem = type};
    term_set_shape(&out, shape);
    out.value = tile_result(w->k, op, term_type(shape, type));
    op_append(w, op);
    return out;
}

/* Constants and function constants among the parameters of a function. */
static bool bind_constant_param(walk *w, const ast *param, const ast *argument, const term *t)
{
    if (param->is_function) {
        const char *name = argument && argument->kind == AST_NAME ? argument->name : NULL;
        symbol s = {.name = param->name, .kind = SYMBOL_FUNCTION, .item = param, .function = name};
        if (name)
            symbol_push(w, s);
        else
            fault_needs_function(w->d, argument ? argument->at : param->at, param->name);
        return name != NULL;
    }
    if (is_error(t)) return false;
    if (t->kind != TERM_CONSTANT || t->rank) {
        fault_not_constant(w->d, argument ? argument->at : param->at, param->name, NULL);
        return false;
    }
    symbol_push(w, (symbol){.name = param->name, .kind = SYMBOL_TERM, .term = *t});
    return true;
}

/* A scalar function over evaluated arguments. `call` names the arguments of constants; it may be NULL. */
static term apply_scalar(walk *w, const ast *function, const term *given, int count, const ast *call, place at)
{
    ARGUMENT_TERMS(w, arguments, count);
    term shape = {0};
    bound_list bounds = {0};
    dtype type;
    if (count != function->list.count || count > MAX_PARAMS) {
        fault_argument_count(w->d, at, function->name, function->list.count, function->list.count, count);
        return term_error();
    }
    if (w->call_depth >= CALL_DEPTH_LIMIT) {
        fault_call_depth(w->d, at, function->name);
        return term_error();
    }
    frame f = frame_open(w);
    frame_enter(w, &f);
    bool good = bind_generics(w, function, given, at), tiles = false;
    for (int i = 0; i < count; i++) {
        const ast *param = function->list.items[i], *argument = call ? call->list.items[i] : NULL;
        dtype to;
        if (param->is_function) {
            good = bind_constant_param(w, param, argument, &given[i]) && good;
            continue;
        }
        if (!resolve_type(w, param->type, &to))
            good = false;
        else
            arguments[i] = convert_argument(w, &given[i], to, param->name, argument ? argument->at : at);
        if (!good || is_error(&arguments[i])) {
            good = false;
            continue;
        }
        if (param_is_constant(param)) {
            good = bind_constant_param(w, param, argument, &arguments[i]) && good;
            continue;
        }
        good = shape_join(w, &shape, &arguments[i], &shape, at) && good;
        tiles |= arguments[i].rank > 0;
        bounds_add_all(w, &bounds, &arguments[i].bounds);
    }
    good = good && resolve_type(w, function->type, &type);
    term out = term_error();
    w->call_depth++;
    if (good && !tiles)
        out = run_uniform(w, function, arguments, type);
    else if (good && function_loops(w, function->body, 0))
        out = run_map(w, function, arguments, type, &shape);
    else if (good)
        out = run_elementwise(w, function, arguments, type);
    w->call_depth--;
    frame_close(w, &f);
    if (is_error(&out) || !tiles) return out;
    out = shape_broadcast(w, &out, &shape);
    out.bounds = bounds;
    return out;
}

/* An array argument: its name, or a view of it made of whole axes and scalar indices. */
static array_ref *array_argument(walk *w, const ast *node, const ast *param)
{
    const ast *base = node->kind == AST_INDEX ? node->left : node;
    symbol *s = base->kind == AST_NAME ? symbol_find(w, base->name) : NULL;
    if (!s || s->kind != SYMBOL_ARRAY) {
        diagnose(w->d, E213, node->at, "pass an array's name, or a view of `[:]` and scalar indices",
                 "`%s` is an array parameter", param->name);
        return NULL;
    }
    array_ref *view = ARENA_NEW(w->memory, array_ref);
    *view = *s->array;
    if (node->kind != AST_INDEX) return view;
    if (node->list.count != s->array->rank) {
        fault_brackets(w->d, node->at, base->name, s->array->rank, node->list.count);
        return NULL;
    }
    view->rank = 0;
    for (int i = 0; i < node->list.count; i++) {
        const ast *bracket = node->list.items[i];
        int array_axis = s->array->axis_of[i];
        if (bracket->is_slice && !bracket->left) {
            view->axis_of[view->rank++] = array_axis;
            continue;
        }
        term t = {0};
        if (!bracket->is_slice && bracket->left) {
            t = lower_expression(w, bracket->left);
            t = term_index(w, &t, bracket->left->at);
            if (is_error(&t)) return NULL;
        }
        if (t.kind == TERM_ERROR || t.rank) {
            diagnose(w->d, E213, bracket->at, "pass an array's name, or a view of `[:]` and scalar indices",
                     "a slice or gather is not an array");
            return NULL;
        }
        view->fixed[array_axis] = term_value(w, &t);
    }
    return view;
}

/* Extent names of an array parameter stand for the extents of its argument. */
static bool bind_array(walk *w, const ast *param, array_ref *view, place at)
{
    const tile_param *array = &w->k->params[view->param];
    dtype elem;
    if (view->rank != param->list.count) {
        diagnose(w->d, E306, at, "give `[:]` for whole axes and a scalar index for the others",
                 "array of %d axes for `%s` of %d", view->rank, param->name, param->list.count);
        return false;
    }
    if ((!strcmp(param->word, "out") || !strcmp(param->word, "inout")) && array->kind == PARAM_IN) {
        diagnose(w->d, E204, at, "declare it `inout`", "write to the `in` array `%s` through `%s`", array->name,
                 param->name);
        return false;
    }
    if (!resolve_type(w, param->type, &elem)) return false;
    if (elem != array->elem) {
        diagnose(w->d, E215, at, "declare the parameter with a generic type", "array of `%s` for `%s` of `%s`",
                 type_text(array->elem), param->name, type_text(elem));
        return false;
    }
    axis *axes = array_axes(w, view->param);
    for (int i = 0; i < view->rank; i++) {
        const ast *name = param->list.items[i];
        const axis *a = &axes[view->axis_of[i]];
        if (name->kind != AST_NAME) continue;
        binding b = constant_int(a->extent);
        b.untyped = false;
        term t = a->extent >= 0 ? term_of_constant(b) : term_of_value(w, (value)-a->extent);
        symbol *old = symbol_find(w, name->name);
        if (!old)
            symbol_push(w, (symbol){.name = name->name, .kind = SYMBOL_TERM, .term = t});
        else if (old->kind == SYMBOL_TERM && old->term.kind == TERM_CONSTANT && a->extent >= 0 &&
                 old->term.constant.number.i != a->extent) {
            diagnose(w->d, E302, at, "pass arrays whose shapes agree", "`%s` is %lld and %lld", name->name,
                     (long long)old->term.constant.number.i, (long long)a->extent);
            return false;
        }
    }
    symbol_push(w, (symbol){.name = param->name, .kind = SYMBOL_ARRAY, .array = view});
    return true;
}

static bool bind_tile(walk *w, const ast *param, const ast *argument, const term *given, variable *alias)
{
    dtype to;
    if (is_error(given) || !resolve_type(w, param->type, &to)) return false;
    if (alias) {
        if (alias->elem != to || !alias->now.rank) {
            diagnose(w->d, E215, argument->at, "pass a tile variable of that type",
                     "`inout tile %s %s` needs a tile variable of type `%s`", param->type->word, param->name,
                     type_text(to));
            return false;
        }
        symbol_push(w, (symbol){.name = param->name, .kind = SYMBOL_VARIABLE, .variable = alias});
        return true;
    }
    term t = convert_argument(w, given, to, param->name, argument->at);
    if (is_error(&t)) return false;
    if (param->is_tile != (t.rank > 0)) {
        diagnose(w->d, param->is_tile ? E304 : E305, argument->at,
                 param->is_tile ? "pass a tile" : "reduce it, or declare the parameter `tile`",
                 param->is_tile ? "`%s` is a tile parameter, this is a scalar"
                                : "`%s` is a scalar parameter, this is a tile",
                 param->name);
        return false;
    }
    bind_variable(w, param->name, &t, false);
    return true;
}

term call_function(walk *w, const ast *function, const ast *call)
{
    int count = call->list.count;
    ARGUMENT_TERMS(w, arguments, count);
    array_ref *arrays[MAX_PARAMS] = {0};
    variable *aliases[MAX_PARAMS] = {0};
    bool scalar = is_scalar_function(function), good = count == function->list.count && count <= MAX_PARAMS;
    for (int i = 0; good && i < count; i++) {
        const ast *param = function->list.items[i], *node = call->list.items[i];
        if (node->kind == AST_NAMED) {
            fault_named_argument(w->d, node->at, function->name, node->name, "give it by position");
            return term_error();
        }
        if (param->is_function) continue;
        if (is_array_param(param)) {
            arrays[i] = array_argument(w, node, param);
            if (!arrays[i]) return term_error();
            arguments[i] = (term){.kind = TERM_ARRAY, .array = arrays[i], .elem = w->k->params[arrays[i]->param].elem};
            continue;
        }
        if (param->is_tile && !strcmp(param->word, "inout")) {
            symbol *s = node->kind == AST_NAME ? symbol_find(w, node->name) : NULL;
            if (!s || s->kind != SYMBOL_VARIABLE) {
                diagnose(w->d, E213, node->at, "assign it to a tile variable first",
                         "`inout tile` parameter `%s` needs a variable", param->name);
                return term_error();
            }
            aliases[i] = s->variable;
        }
        arguments[i] = lower_expression(w, node);
    }
    if (scalar || !good) return apply_scalar(w, function, arguments, count, call, call->at);
    if (w->call_depth >= CALL_DEPTH_LIMIT) {
        fault_call_depth(w->d, call->at, function->name);
        return term_error();
    }
    frame f = frame_open(w);
    frame_enter(w, &f);
    dtype type = DT_F32;
    good = bind_generics(w, function, arguments, call->at);
    for (int i = 0; i < count; i++) {
        const ast *param = function->list.items[i], *node = call->list.items[i];
        if (param_is_constant(param))
            good = bind_constant_param(w, param, node, &arguments[i]) && good;
        else if (arrays[i])
            good = bind_array(w, param, arrays[i], node->at) && good;
        else
            good = bind_tile(w, param, node, &arguments[i], aliases[i]) && good;
    }
    if (function->type) good = good && resolve_type(w, function->type, &type);
    term out = term_error();
    w->call_depth++;
    w->elementwise = false;
    w->path = 0;
    if (good) out = run_body(w, function, type, false);
    w->call_depth--;
    frame_close(w, &f);
    return out;
}

term call_function_constant(walk *w, const symbol *s, const ast *call)
{
    int count = call->list.count;
    ARGUMENT_TERMS(w, arguments, count);
    const ast *param = s->item;
    if (count != param->list.count || count > MAX_PARAMS) {
        fault_argument_count(w->d, call->at, s->name, param->list.count, param->list.count, count);
        return term_error();
    }
    const char *name = s->function;
    for (int i = 0; i < count; i++) {
        dtype to;
        arguments[i] = lower_expression(w, call->list.items[i]);
        if (!resolve_type(w, param->list.items[i], &to)) return term_error();
        arguments[i] = convert_argument(w, &arguments[i], to, s->name, call->list.items[i]->at);
        if (is_error(&arguments[i])) return term_error();
    }
    dtype result;
    if (!resolve_type(w, param->type, &result)) return term_error();
    const ast *item = ast_find(w->file, name);
    const builtin *b = item ? NULL : builtin_find(name);
    term out = term_error();
    if (item && item->kind == AST_FUNCTION && is_scalar_function(item))
        out = apply_scalar(w, item, arguments, count, NULL, call->at);
    else if (b && b->class == BUILTIN_ELEMENTWISE && b->op != OP_BITCAST && count >= b->least && count <= b->most)
        out = lower_builtin(w, b, name, arguments, count, call->at);
    else
        fault_stands_for(w->d, call->at, name, param->name);
    return term_convert(w, &out, result, call->at);
}
