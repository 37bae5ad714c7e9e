/*
 * Settings: of `tune` and `types` clauses and of bench blocks. A setting names something that a kernel has: a constant,
 * an extent, a scalar, a type; a misspelt one would silently do nothing.
 * SPDX-License-Identifier: MIT
 */
#include "lang/check.h"

static const char *const generators[] = {"normal", "uniform", "integers", "constant", "ramp", "permutation"};

static bool is_const_int(const ast *kernel, const char *name)
{
    for (int i = 0; i < kernel->list.count; i++) {
        const ast *param = kernel->list.items[i];
        bool constant = !strcmp(param->word, "const") && !param->is_function;
        if (constant && !strcmp(param->name, name)) return !strcmp(param->type->word, "int");
    }
    return false;
}

static bool is_generic_of(const ast *kernel, const char *name)
{
    for (int i = 0; i < kernel->list.count; i++) {
        const ast *type = kernel->list.items[i]->type;
        if (type->is_generic && !strcmp(type->word, name)) return true;
    }
    return false;
}

static void check_types(checker *c, const ast *kernel, const ast *setting)
{
    if (!is_generic_of(kernel, setting->name))
        diagnose(c->d, E201, setting->at, "`types` lists a generic type of the parameters", "`%s` has no type `%s`",
                 kernel->name, setting->name);
    for (int i = 0; i < setting->list.count; i++)
        if (setting->list.items[i]->kind != AST_TYPE_NAME)
            diagnose(c->d, E104, setting->list.items[i]->from, "such as `float` or `bf16`",
                     "expected a type in `types`");
    if (!setting->is_set) diagnose(c->d, E104, setting->at, "write `T in {float, bf16}`", "expected a set in `types`");
}

void check_settings_of(checker *c, const ast *kernel, const ast *clause)
{
    for (int i = 0; i < clause->list.count; i++) {
        const ast *setting = clause->list.items[i];
        if (!strcmp(clause->word, "types")) {
            check_types(c, kernel, setting);
            continue;
        }
        symbol *s = checker_find(c, setting->name);
        bool constant = is_const_int(kernel, setting->name);
        if (s) s->used = true;
        if (s && !constant)
            diagnose(c->d, E218, setting->at, "only `const int` parameters are tuned",
                     "`tune` names `%s`, which is no `const int`", setting->name);
        else if (!s && tile_knob_find(setting->name) >= KNOB_TILE)
            diagnose(c->d, E218, setting->at,
                     "known are the `const int` parameters and warps, group, stages, cluster, turns, blocks, library",
                     "unknown knob `%s`", setting->name);
        if (setting->left) check_expression(c, setting->left);
        check_expressions(c, &setting->list);
    }
    if (clause->left) check_expression(c, clause->left);
}

/* ---- bench ---- */

typedef struct name_set {
    const char **items;
    int count, capacity;
    map *has;
} name_set;

static void add_name(checker *c, name_set *set, const char *name)
{
    if (map_get(set->has, name)) return;
    map_set(set->has, name, set);
    ARENA_PUSH(c->memory, set->items, set->count, set->capacity, name);
}

/* What settings of this item may name. */
static void add_names(checker *c, name_set *set, const ast *item)
{
    for (int i = 0; i < item->list.count; i++) {
        const ast *param = item->list.items[i];
        add_name(c, set, param->name);
        if (param->type->is_generic) add_name(c, set, param->type->word);
        for (int k = 0; k < param->list.count && !param->is_function; k++)
            if (param->list.items[k]->kind == AST_NAME) add_name(c, set, param->list.items[k]->name);
    }
    for (int k = 0; item_is_spread(item) && k < ARRAY_RANK; k++) add_name(c, set, arena_print(c->memory, "axis_%d", k));
    for (int i = 0; i < KNOB_COUNT; i++) add_name(c, set, tile_knobs[i]);
}

static void check_known(checker *c, const name_set *set, const char *name, place at, const char *what)
{
    if (map_get(set->has, name)) return;
    const char *near = suggest_name(name, set->items, set->count);
    diagnose(c->d, E201, at,
             near ? arena_print(c->memory, "did you mean `%s`?", near) : "settings name what the variants have",
             "%s `%s`", what, name);
}

/* Names in the value of a setting: other settings, extents and constants. */
static void check_value(checker *c, const name_set *set, const ast *node)
{
    if (!node || checker_tired(c)) return;
    if (node->kind == AST_NAME) {
        const call_node *item = map_get(c->items, node->name);
        bool constant = !strcmp(node->name, "inf") || !strcmp(node->name, "nan") || !strcmp(node->name, "pi");
        bool function = item ? item->item->kind == AST_FUNCTION || item->item->kind == AST_CONSTANT
                             : builtin_find(node->name) != NULL;
        if (!constant && !function) check_known(c, set, node->name, node->at, "unknown name");
    }
    if (node->kind == AST_CALL && node->left->kind == AST_NAME && !builtin_find(node->left->name))
        diagnose(c->d, E212, node->at, NULL, "`%s` cannot be called in a setting", node->left->name);
    if (node->kind != AST_CALL) check_value(c, set, node->left);
    check_value(c, set, node->right);
    check_value(c, set, node->third);
    for (int i = 0; i < node->list.count; i++) check_value(c, set, node->list.items[i]);
}

static void check_input(checker *c, const name_set *set, const ast *setting)
{
    const ast *value = setting->left;
    const char *list = "known are normal, uniform, integers, constant, ramp, permutation";
    bool call = value && value->kind == AST_CALL && value->left->kind == AST_NAME, known = false;
    check_known(c, set, setting->name, setting->at, "no variant has a parameter");
    for (int i = 0; call && i < COUNT(generators); i++) known |= !strcmp(value->left->name, generators[i]);
    if (call && known)
        for (int i = 0; i < value->list.count; i++) check_value(c, set, value->list.items[i]);
    else if (call) {
        const char *near = suggest_name(value->left->name, generators, COUNT(generators));
        diagnose(c->d, E218, value->at, near ? arena_print(c->memory, "did you mean `%s`?", near) : list,
                 "unknown generator `%s`", value->left->name);
    } else
        diagnose(c->d, E218, setting->at, list, "the input of `%s` is not a generator", setting->name);
}

static void check_variant(checker *c, const ast *variant, name_set *all)
{
    const call_node *node = map_get(c->items, variant->name);
    const ast *item = node ? node->item : NULL;
    if (!item || item->kind == AST_CONSTANT || item->kind == AST_FUNCTION) {
        const char *list[2000];
        int count = 0;
        for (int i = 0; i < c->node_count && count < COUNT(list); i++) {
            ast_kind kind = c->nodes[i].item->kind;
            if (kind == AST_KERNEL || kind == AST_TENSOR || kind == AST_RAW) list[count++] = c->nodes[i].item->name;
        }
        const char *near = suggest_name(variant->name, list, count);
        diagnose(c->d, E201, variant->at,
                 near ? arena_print(c->memory, "did you mean `%s`?", near)
                      : "variants are kernels and tensor functions of this file",
                 item ? "`%s` is not a kernel" : "unknown variant `%s`", variant->name);
        return;
    }
    add_names(c, all, item);
    name_set own = {.has = map_new(c->memory)};
    add_names(c, &own, item);
    for (int i = 0; i < variant->list.count; i++) {
        const ast *setting = variant->list.items[i];
        check_known(c, &own, setting->name, setting->at, arena_print(c->memory, "`%s` has nothing named", item->name));
        check_value(c, &own, setting->left);
        for (int k = 0; k < setting->list.count; k++) check_value(c, &own, setting->list.items[k]);
    }
}

static void check_device(checker *c, const ast *clause)
{
    static const char *const devices[] = {"ref", "cpu", "cuda", "emu"};
    for (int i = 0; i < COUNT(devices); i++)
        if (!strcmp(clause->name, devices[i])) return;
    diagnose(c->d, E218, clause->at, "devices are ref, cpu, cuda, emu", "unknown device `%s`", clause->name);
}

void check_bench(checker *c, const ast *bench)
{
    name_set all = {.has = map_new(c->memory)};
    bool broken = false;
    for (int i = 0; i < bench->list.count; i++) {
        int before = c->d->errors;
        check_variant(c, bench->list.items[i], &all);
        broken |= c->d->errors > before;
    }
    if (broken || !bench->list.count) return; /* the names are not all known */
    for (int i = 0; i < bench->clauses.count; i++) {
        const ast *clause = bench->clauses.items[i];
        if (!strcmp(clause->word, "on")) check_device(c, clause);
        for (int k = 0; k < clause->list.count; k++) {
            const ast *entry = clause->list.items[k];
            if (entry->kind != AST_SETTING) {
                check_value(c, &all, entry);
            } else if (!strcmp(clause->word, "input")) {
                check_input(c, &all, entry);
            } else {
                check_known(c, &all, entry->name, entry->at, "no variant has an extent, constant or type");
                check_value(c, &all, entry->left);
                for (int n = 0; n < entry->list.count; n++) check_value(c, &all, entry->list.items[n]);
            }
        }
    }
}
