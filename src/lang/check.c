/*
 * Names and structure of a file, without types: what every name means, that parameters and clauses make sense, that
 * calls do not go in circles. In: a file that parsed without errors. Out: diagnostics.
 *
 * Types, shapes and constants need an instance and are found in lowering; what is found here holds for all instances,
 * so it is said once, and before anything runs.
 * SPDX-License-Identifier: MIT
 */
#include "lang/check.h"
#include "lang/fault.h"

#define ENOUGH_ERRORS 200
#define EXPANSION_LIMIT 1e5
#define SUGGESTION_LIMIT 2000

bool checker_tired(const checker *c)
{
    return c->d->errors >= ENOUGH_ERRORS;
}

symbol *checker_find(const checker *c, const char *name)
{
    return map_get(c->names, name);
}

void checker_open(checker *c)
{
    c->scope++;
}

static void warn_unused(checker *c, const symbol *s)
{
    bool silent = s->used || c->in_tensor || s->kind == SYMBOL_EXTENT || s->kind == SYMBOL_LOOP;
    silent |= c->d->errors > c->errors_before; /* what was to use it may be what is wrong */
    if (silent || c->node->item->kind == AST_RAW) return;
    const char *what = s->is_param ? "parameter" : s->kind == SYMBOL_CONSTANT ? "constant" : "variable";
    diagnose(c->d, W602, s->at, "remove it", "%s `%s` is never used", what, s->name);
}

void checker_close(checker *c)
{
    while (c->stack_count && c->stack[c->stack_count - 1]->scope == c->scope) {
        symbol *s = c->stack[--c->stack_count];
        warn_unused(c, s);
        map_set(c->names, s->name, s->hidden);
    }
    c->scope--;
}

symbol *checker_declare(checker *c, const char *name, symbol_kind kind, place at, const ast *node)
{
    symbol *old = checker_find(c, name);
    bool parameter = old && old->is_param && c->scope == 2 && old->scope == 1; /* at the top of the body */
    if (old && (old->scope == c->scope || parameter)) {
        diagnose(c->d, E202, at, "choose another name", "`%s` is already %s (at line %d)", name,
                 parameter ? "a parameter" : "declared in this scope", old->at.line);
        return NULL;
    }
    symbol *s = ARENA_NEW(c->memory, symbol);
    *s = (symbol){.name = name, .kind = kind, .at = at, .node = node, .hidden = old, .scope = c->scope};
    map_set(c->names, name, s);
    ARENA_PUSH(c->memory, c->stack, c->stack_count, c->stack_capacity, s);
    return s;
}

void checker_unknown(checker *c, const char *name, place at, bool call)
{
    if (map_get(c->reported, name)) return; /* once an item is enough */
    map_set(c->reported, name, c);
    const char *list[SUGGESTION_LIMIT];
    int count = 0;
    for (int i = c->stack_count - 1; i >= 0 && count < SUGGESTION_LIMIT; i--)
        if (!call || c->stack[i]->kind == SYMBOL_FUNCTION) list[count++] = c->stack[i]->name;
    for (int i = 0; i < c->node_count && count < SUGGESTION_LIMIT; i++)
        if (c->nodes[i].item->kind == (call ? AST_FUNCTION : AST_CONSTANT) ||
            (call && c->in_tensor && c->nodes[i].item->kind != AST_CONSTANT))
            list[count++] = c->nodes[i].item->name;
    for (int i = 0; i < builtin_count && call && count < SUGGESTION_LIMIT; i++)
        if (builtins[i].name[0] != '@' && (builtins[i].class != BUILTIN_TENSOR || c->in_tensor))
            list[count++] = builtins[i].name;
    const char *near = suggest_name(name, list, count);
    const char *habit = habit_advice(name);
    if (c->node && item_is_spread(c->node->item) && spread_axis_number(name) >= 0)
        habit = "an axis of `[...]` has its name outside alone: write `extent(x, 0)`";
    fault_unknown(c->d, at, call, name,
                  habit  ? habit
                  : near ? arena_print(c->memory, "did you mean `%s`?", near)
                         : NULL);
}

bool function_is_scalar(const ast *function)
{
    if (!function->type || function->is_tile) return false;
    for (int i = 0; i < function->list.count; i++) {
        const ast *param = function->list.items[i];
        if (param->is_tile || (param->word[0] && strcmp(param->word, "const"))) return false;
    }
    return true;
}

/* ---- parameters ---- */

static symbol_kind param_kind_of(const ast *param)
{
    if (param->is_tile) return SYMBOL_TILE;
    if (param->is_function) return SYMBOL_FUNCTION;
    if (!strcmp(param->word, "const")) return SYMBOL_CONSTANT;
    if (!strcmp(param->word, "in")) return SYMBOL_IN;
    if (!strcmp(param->word, "out")) return SYMBOL_OUT;
    if (!strcmp(param->word, "inout")) return SYMBOL_INOUT;
    if (!strcmp(param->word, "scratch")) return SYMBOL_SCRATCH;
    return param->is_tensor ? SYMBOL_TENSOR : SYMBOL_SCALAR;
}

static void check_param_form(checker *c, const ast *item, const ast *param)
{
    bool array = param_kind_of(param) <= SYMBOL_TENSOR, tensor = item->kind == AST_TENSOR;
    if (!tensor && param_kind_of(param) == SYMBOL_TENSOR)
        diagnose(c->d, E104, param->from, "say how the array is used",
                 "expected `in`, `out`, `inout` or `scratch` before the array `%s`", param->name);
    if (tensor && (param->is_tile || (param->word[0] && strcmp(param->word, "const"))))
        diagnose(c->d, E104, param->from, "results are returned", "the parameter `%s` of a tensor function has no `%s`",
                 param->name, param->is_tile ? "tile" : param->word);
    if (param->is_tile && (item->kind == AST_KERNEL || item->kind == AST_RAW))
        diagnose(c->d, E104, param->from, "take an array and slice it",
                 "expected an array or a scalar, found the tile `%s`", param->name);
    if (!tensor && param->has_spread)
        diagnose(c->d, E104, param->at,
                 item->kind == AST_FUNCTION ? "take a tile: `tile T x` has any rank" : "name every extent, as in `[n]`",
                 "`[...]` in the parameter `%s`: only tensor functions take arrays of any rank", param->name);
    if (!tensor && param->is_tensor && !param->list.count && !param->has_spread)
        diagnose(c->d, E104, param->at, "name the extent: `[n]`; an array of rank 0 has no brackets at all",
                 "expected an extent of `%s`, found `]`", param->name);
    if (array && param->left && strcmp(param->word, "out"))
        diagnose(c->d, E104, param->left->from, "remove it",
                 "only `out` arrays have an initial value, and `%s` is not one", param->name);
    if (item->kind == AST_FUNCTION && array && param->left)
        diagnose(c->d, E104, param->left->from, "remove it", "an array parameter of a function has no initial value");
}

static int find_param(const ast *item, const char *name)
{
    int at = 0;
    while (at < item->list.count && strcmp(item->list.items[at]->name, name) != 0) at++;
    return at;
}

/* A default that depends on itself, by way of other parameters. The path is at most as long as the list. */
static bool depends(const ast *item, const ast *node, const char *on, bool *seen)
{
    if (!node) return false;
    if (node->kind == AST_NAME) {
        if (!strcmp(node->name, on)) return true;
        int at = find_param(item, node->name);
        const ast *param = at < item->list.count ? item->list.items[at] : NULL;
        if (!param || !param->left || param->is_function || seen[at]) return false;
        seen[at] = true;
        return depends(item, param->left, on, seen);
    }
    const ast *children[] = {node->left, node->right, node->third};
    for (int i = 0; i < COUNT(children); i++)
        if (depends(item, children[i], on, seen)) return true;
    for (int i = 0; i < node->list.count; i++)
        if (depends(item, node->list.items[i], on, seen)) return true;
    return false;
}

static void check_function_default(checker *c, const ast *param)
{
    const char *name = param->left->name;
    const call_node *item = map_get(c->items, name);
    const builtin *b = builtin_find(name);
    int wanted = param->list.count;
    if (item && item->item->kind == AST_FUNCTION) {
        if (item->item->list.count != wanted)
            diagnose(c->d, E213, param->left->at, NULL, "`%s` takes %d argument%s, `%s` is called with %d", name,
                     item->item->list.count, item->item->list.count == 1 ? "" : "s", param->name, wanted);
        else if (!function_is_scalar(item->item))
            diagnose(c->d, E213, param->left->at, "name a scalar function", "`%s` is not a scalar function", name);
    } else if (item || !b) {
        checker_unknown(c, name, param->left->at, true);
    } else if (b->class != BUILTIN_ELEMENTWISE || wanted < b->least || wanted > b->most) {
        diagnose(c->d, E213, param->left->at, "name a scalar function", "`%s` is not a function of %d number%s", name,
                 wanted, wanted == 1 ? "" : "s");
    }
}

/* Declares parameters and extents; expressions in brackets and defaults see all of them. */
static void check_params(checker *c, const ast *item)
{
    for (int i = 0; i < item->list.count; i++) {
        const ast *param = item->list.items[i];
        check_param_form(c, item, param);
        symbol *s = checker_declare(c, param->name, param_kind_of(param), param->at, param);
        if (s) s->is_param = true;
    }
    for (int i = 0; i < item->list.count; i++) {
        const ast *param = item->list.items[i];
        if (param->is_function) continue;
        for (int k = 0; k < param->list.count; k++) {
            const ast *extent = param->list.items[k];
            if (extent->kind != AST_NAME) continue;
            if (item_is_spread(item) && spread_axis_number(extent->name) >= 0)
                diagnose(c->d, E202, extent->at, "choose another name",
                         "`%s` is the name of an axis of `[...]`, here it is an extent", extent->name);
            symbol *s = checker_find(c, extent->name);
            if (s && symbol_is_array(s)) {
                diagnose(c->d, E202, extent->at, "choose another name for the array or the extent",
                         "`%s` is already an array (at line %d), here it is an extent", s->name, s->at.line);
                continue;
            }
            if (s) s->is_extent = s->used = true;
            if (s || map_get(c->items, extent->name)) continue;
            s = checker_declare(c, extent->name, SYMBOL_EXTENT, extent->at, extent);
            s->is_param = true;
        }
    }
    for (int i = 0; i < item->list.count; i++) {
        const ast *param = item->list.items[i];
        const symbol *same = param->type->is_generic ? checker_find(c, param->type->word) : NULL;
        if (same)
            diagnose(c->d, E202, param->type->at, "choose another name",
                     "`%s` is already a parameter (at line %d), here it is a type", same->name, same->at.line);
        if (!param->is_function) check_expressions(c, &param->list);
        if (!param->left) continue;
        if (param->is_function) {
            check_function_default(c, param);
            continue;
        }
        check_expression(c, param->left);
        if (depends(item, param->left, param->name, ARENA_ARRAY(c->memory, bool, item->list.count)))
            diagnose(c->d, E214, param->left->from, "break the circle with a value",
                     "the default of `%s` depends on itself", param->name);
    }
}

/* ---- items ---- */

static void check_launch_count(checker *c, const ast *clause)
{
    if (clause->list.count > 3)
        diagnose(c->d, E213, clause->at, "fold some axes into one and divide", "`launch` takes 1 to 3 counts, got %d",
                 clause->list.count);
}

/* Clauses that only raw kernels have: each once, and those of a GPU only there. */
static void check_raw(checker *c, const ast *item)
{
    static const char *const words[] = {"block", "shared", "options"};
    bool cuda = !strcmp(item->word, "cuda"), has_block = false;
    for (int i = 0; i < item->clauses.count; i++) {
        const ast *clause = item->clauses.items[i];
        int which = 0;
        while (which < COUNT(words) && strcmp(clause->word, words[which])) which++;
        if (which == COUNT(words)) continue;
        has_block |= which == 0;
        if (!cuda)
            diagnose(c->d, E109, clause->at, "remove it, or write `cuda`",
                     "`%s` belongs to `cuda` kernels, and `%s` is a `%s` kernel", clause->word, item->name, item->word);
        for (int k = 0; k < i; k++)
            if (!strcmp(item->clauses.items[k]->word, clause->word))
                diagnose(c->d, E109, clause->at, "write one", "two `%s` clauses", clause->word);
        if (which == 0 && clause->list.count > 3)
            diagnose(c->d, E213, clause->at, "threads of a block have up to three axes",
                     "`block` takes 1 to 3 counts, got %d", clause->list.count);
        if (which == 1 && clause->list.count > 1)
            diagnose(c->d, E213, clause->at, "one number of bytes for the whole block",
                     "`shared` takes 1 count, got %d", clause->list.count);
        for (int k = 0; which == 2 && k < clause->list.count; k++)
            if (clause->list.items[k]->kind != AST_STRING)
                diagnose(c->d, E104, clause->list.items[k]->from, "such as `options (\"-use_fast_math\")`",
                         "expected an option of the compiler in quotes");
            else if (raw_option_is_of_host(clause->list.items[k]->words, clause->list.items[k]->length))
                diagnose(c->d, W604, clause->list.items[k]->from, "remove it: the GPU and the level are chosen here",
                         "the option `%.*s` is of a host compiler and is left out",
                         (int)MINIMUM(clause->list.items[k]->length, 60), clause->list.items[k]->words);
    }
    if (cuda && !has_block)
        diagnose(c->d, E109, item->at, "say how many threads a block has: `block (256)`",
                 "the kernel `%s` has no `block`", item->name);
    if (!cuda && item->left)
        diagnose(c->d, E109, item->left->from, "remove it: C has no templates",
                 "template arguments of the `%s` kernel `%s`", item->word, item->name);
    for (int i = 0; item->left && i < item->left->list.count; i++) {
        const ast *argument = item->left->list.items[i];
        if (argument->kind != AST_TYPE_NAME && argument->kind != AST_STRING) check_expression(c, argument);
    }
}

static void check_clauses(checker *c, const ast *item)
{
    const ast *launch = NULL;
    for (int i = 0; i < item->clauses.count; i++) {
        const ast *clause = item->clauses.items[i];
        if (!strcmp(clause->word, "tune") || !strcmp(clause->word, "types")) {
            check_settings_of(c, item, clause);
        } else if (!strcmp(clause->word, "gradient")) {
            const call_node *other = map_get(c->items, clause->name);
            if (!other ||
                (other->item->kind != AST_KERNEL && other->item->kind != AST_RAW && other->item->kind != AST_TENSOR))
                diagnose(c->d, E201, clause->at, "name a kernel or a tensor function of this file",
                         "unknown gradient `%s`", clause->name);
        } else if (strcmp(clause->word, "options")) {
            check_expressions(c, &clause->list);
        }
        if (strcmp(clause->word, "launch")) continue;
        if (launch)
            diagnose(c->d, E109, clause->at, "a second phase is `then launch (...)` behind the body",
                     "two `launch` clauses");
        launch = clause;
        check_launch_count(c, clause);
    }
    bool needed = item->kind == AST_KERNEL || !strcmp(item->word, "cuda");
    if (!launch && needed)
        diagnose(c->d, E109, item->at, "say how many programs run: `launch (cdiv(n, BLOCK))`",
                 "the kernel `%s` has no `launch`", item->name);
}

static void check_outputs(checker *c, const ast *item)
{
    for (int i = 0; i < item->list.count; i++) {
        const symbol *s = checker_find(c, item->list.items[i]->name);
        if (!s || s->kind != SYMBOL_OUT || !s->read || s->written || item->list.items[i]->left) continue;
        diagnose(c->d, E204, s->first_read, "declare it `in` or `inout`",
                 "the `out` array `%s` is read by a kernel that never writes it", s->name);
    }
}

static void check_item(checker *c, call_node *node)
{
    const ast *item = node->item;
    c->node = node;
    c->errors_before = c->d->errors;
    c->in_tensor = item->kind == AST_TENSOR;
    c->in_scalar_function = item->kind == AST_FUNCTION && function_is_scalar(item);
    c->reported = map_new(c->memory);
    checker_open(c);
    if (item->kind == AST_CONSTANT) {
        check_expression(c, item->left);
    } else {
        check_params(c, item);
        check_clauses(c, item);
        if (item->kind == AST_RAW) {
            check_raw(c, item); /* the body is not ours */
        } else if (item->kind == AST_KERNEL) {
            for (int i = 0; i < item->phases.count; i++) {
                const ast *phase = item->phases.items[i];
                if (i) check_expressions(c, &phase->list);
                if (i) check_launch_count(c, phase);
                check_body(c, phase->body);
            }
            check_outputs(c, item);
        } else {
            check_body(c, item->body);
        }
    }
    checker_close(c);
}

/* ---- circles ---- */

static void add_constant_edges(checker *c, call_node *node, const ast *expression)
{
    if (!expression) return;
    if (expression->kind == AST_NAME) {
        const call_node *other = map_get(c->items, expression->name);
        if (other && other->item->kind == AST_CONSTANT)
            ARENA_PUSH(c->memory, node->edges, node->edge_count, node->edge_capacity,
                       ((call_edge){.to = (int)(other - c->nodes), .at = expression->at}));
    }
    const ast *children[] = {expression->left, expression->right, expression->third};
    for (int i = 0; i < COUNT(children); i++) add_constant_edges(c, node, children[i]);
    for (int i = 0; i < expression->list.count; i++) add_constant_edges(c, node, expression->list.items[i]);
}

static void report_circle(checker *c, const int *path, int depth, const call_edge *edge)
{
    text words = {0};
    int first = 0;
    while (path[first] != edge->to) first++;
    const ast *item = c->nodes[edge->to].item;
    for (int i = first; i <= depth; i++) {
        if (i - first == 8 && depth - i > 1) {
            text_add(&words, "... → ");
            i = depth;
        }
        text_print(&words, "%s → ", c->nodes[path[i]].item->name);
    }
    bool constant = item->kind == AST_CONSTANT;
    diagnose(c->d, E214, edge->at, constant ? "give one of them a number" : "use a loop", "%s: %s%s",
             constant ? "a constant that depends on itself" : "recursion", text_get(&words), item->name);
    text_free(&words);
}

static void follow_calls(checker *c, int at, int *path, int depth)
{
    call_node *node = &c->nodes[at];
    node->state = 1;
    node->size = 1;
    path[depth] = at;
    for (int i = 0; i < node->edge_count && !checker_tired(c); i++) {
        const call_edge *edge = &node->edges[i];
        call_node *to = &c->nodes[edge->to];
        if (to->state == 1) {
            report_circle(c, path, depth, edge);
            continue;
        }
        if (to->state == 0 && depth < CALL_DEPTH_LIMIT) follow_calls(c, edge->to, path, depth + 1);
        if (to->state == 0 || to->height >= CALL_DEPTH_LIMIT) {
            diagnose(c->d, E105, edge->at, "split it", "calls nested deeper than %d", CALL_DEPTH_LIMIT);
            break;
        }
        node->height = MAXIMUM(node->height, to->height + 1);
        bool small = node->size <= EXPANSION_LIMIT;
        node->size += to->size;
        if (small && node->size > EXPANSION_LIMIT && to->size <= EXPANSION_LIMIT)
            diagnose(c->d, E105, edge->at, "functions are expanded where they are called: split it",
                     "`%s` expands to more than %.0f calls", node->item->name, EXPANSION_LIMIT);
    }
    node->state = 2;
}

static void check_circles(checker *c)
{
    int path[CALL_DEPTH_LIMIT + 2] = {0};
    for (int i = 0; i < c->node_count; i++)
        if (c->nodes[i].item->kind == AST_CONSTANT) add_constant_edges(c, &c->nodes[i], c->nodes[i].item->left);
    for (int i = 0; i < c->node_count && !checker_tired(c); i++)
        if (c->nodes[i].state == 0) follow_calls(c, i, path, 0);
}

void lang_check(const ast_file *file, diagnostics *d)
{
    if (d->errors) return; /* the tree is not whole */
    checker c = {
        .file = file, .d = d, .memory = file->memory, .names = map_new(file->memory), .items = map_new(file->memory)};
    map *benches = map_new(c.memory);
    c.nodes = ARENA_ARRAY(c.memory, call_node, file->items.count + 1);
    for (int i = 0; i < file->items.count && !checker_tired(&c); i++) {
        const ast *item = file->items.items[i];
        map *space = item->kind == AST_BENCH ? benches : c.items;
        const ast *old = map_get(space, item->name);
        if (old && space == c.items) old = ((const call_node *)old)->item;
        if (old) {
            diagnose(d, E202, item->at, "choose another name", "`%s` is already declared in this file (at line %d)",
                     item->name, old->at.line);
            continue;
        }
        c.nodes[c.node_count].item = item;
        map_set(space, item->name, item->kind == AST_BENCH ? (void *)item : &c.nodes[c.node_count]);
        if (item->kind != AST_BENCH) c.node_count++;
    }
    for (int i = 0; i < c.node_count && !checker_tired(&c); i++) check_item(&c, &c.nodes[i]);
    check_circles(&c);
    for (int i = 0; i < file->items.count && !checker_tired(&c); i++)
        if (file->items.items[i]->kind == AST_BENCH) check_bench(&c, file->items.items[i]);
}
