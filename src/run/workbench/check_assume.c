/*
 * Sizes for which a kernel's `assume`s hold. In: the item, the values of its extents and constants by name, and which of
 * them may change. Out: the same with as few changes as can be, each as small as can be.
 *
 * Conditions are taken apart at `&&`. `n == expression` gives n its value; any other one moves one of its names to the
 * nearest value that makes it true: up or down a few thousands, then by doubling, to sizes that the interpreter can bear. A condition that speaks of something
 * else (elements, scalars without a value) is not looked at: the launch checks it.
 * SPDX-License-Identifier: MIT
 */
#include "run/run.h"

#include <string.h>

enum { MOST_CONDITIONS = 32, ROUNDS = 4, NEAR = 4096, LARGEST = 1 << 16 };

typedef struct fitting {
    const ast_file *file;
    bindings *sizes;
    const bool *movable;
    int movable_count; /* of the first sizes; defaults of constants follow them */
    int units;
    arena *memory;
} fitting;

/* The constants of the kernel that have a number as their default. */
static void add_defaults(const fitting *f, const ast *item)
{
    for (int i = 0; item && i < item->list.count; i++) {
        const ast *param = item->list.items[i];
        binding value = {0};
        diagnostics d = {.memory = f->memory};
        const char *unbound = NULL;
        if (!param->left || param->is_function || param->list.count || bindings_find(f->sizes, param->name)) continue;
        if (!lang_evaluate(f->file, param->left, f->sizes, f->units, &d, &value, &unbound) || d.errors) continue;
        value.name = param->name;
        bindings_set(f->memory, f->sizes, value);
    }
}

static void add_condition(const ast *node, const ast **conditions, int *count)
{
    if (node->kind == AST_BINARY && !strcmp(node->word, "&&")) {
        add_condition(node->left, conditions, count);
        add_condition(node->right, conditions, count);
    } else if (*count < MOST_CONDITIONS) {
        conditions[(*count)++] = node;
    }
}

static int conditions_of(const ast *item, const ast **conditions)
{
    int count = 0;
    const ast *body = item && item->kind == AST_KERNEL && item->phases.count ? item->phases.items[0]->body : NULL;
    if (item && item->kind == AST_TENSOR) body = item->body;
    for (int i = 0; body && i < body->list.count; i++) {
        const ast *call = body->list.items[i]->kind == AST_CALL_STATEMENT ? body->list.items[i]->left : NULL;
        if (call && call->left->kind == AST_NAME && !strcmp(call->left->name, "assume") && call->list.count)
            add_condition(call->list.items[0], conditions, &count);
    }
    return count;
}

/* False if it speaks of something that is not a size. */
static bool evaluate(const fitting *f, const ast *node, int64_t *out)
{
    diagnostics d = {.memory = f->memory};
    binding value = {0};
    const char *unbound = NULL;
    if (!lang_evaluate(f->file, node, f->sizes, f->units, &d, &value, &unbound) || d.errors) return false;
    *out = value.kind == BIND_FLOAT ? value.number.f != 0 : value.number.i;
    return value.kind == BIND_INT || value.kind == BIND_BOOL || value.kind == BIND_FLOAT;
}

static bool mentions(const ast *node, const char *name)
{
    if (!node) return false;
    if (node->kind == AST_NAME && !strcmp(node->name, name)) return true;
    if (mentions(node->left, name) || mentions(node->right, name) || mentions(node->third, name)) return true;
    for (int i = 0; i < node->list.count; i++)
        if (mentions(node->list.items[i], name)) return true;
    return false;
}

static bool holds(const fitting *f, const ast *condition)
{
    int64_t truth;
    return !evaluate(f, condition, &truth) || truth;
}

static bool try_value(const fitting *f, const ast *condition, int which, int64_t value)
{
    if (value < 1) return false;
    int64_t before = f->sizes->items[which].number.i;
    f->sizes->items[which].number.i = value;
    if (holds(f, condition)) return true;
    f->sizes->items[which].number.i = before;
    return false;
}

/* `n == expression`, either way round. */
static bool equate(const fitting *f, const ast *condition)
{
    if (condition->kind != AST_BINARY || strcmp(condition->word, "==")) return false;
    const ast *sides[] = {condition->left, condition->right};
    for (int s = 0; s < 2; s++) {
        int64_t value;
        for (int i = 0; sides[s]->kind == AST_NAME && i < f->movable_count; i++)
            if (f->movable[i] && !strcmp(f->sizes->items[i].name, sides[s]->name) &&
                !mentions(sides[1 - s], sides[s]->name) && evaluate(f, sides[1 - s], &value) && value >= 0) {
                f->sizes->items[i].number.i = value;
                return true;
            }
    }
    return false;
}

static bool satisfy(const fitting *f, const ast *condition)
{
    if (holds(f, condition) || equate(f, condition)) return true;
    for (int away = 1; away <= NEAR; away++)
        for (int i = 0; i < f->movable_count; i++) {
            if (!f->movable[i] || !mentions(condition, f->sizes->items[i].name)) continue;
            int64_t from = f->sizes->items[i].number.i;
            if (try_value(f, condition, i, from + away) || try_value(f, condition, i, from - away)) return true;
        }
    for (int i = 0; i < f->movable_count; i++) {
        int64_t from = f->sizes->items[i].number.i;
        if (!f->movable[i] || !mentions(condition, f->sizes->items[i].name)) continue;
        for (int64_t value = 2 * (from > 0 ? from : 1); value <= LARGEST; value *= 2)
            if (try_value(f, condition, i, value)) return true;
    }
    return false;
}

void assume_fit(const ast_file *file, const ast *item, bindings *sizes, const bool *movable, int units, arena *memory)
{
    const ast *conditions[MOST_CONDITIONS];
    fitting f = {file, sizes, movable, sizes->count, units, memory};
    int count = conditions_of(item, conditions);
    if (!count) return;
    add_defaults(&f, item);
    for (int round = 0; round < ROUNDS; round++) {
        bool all = true;
        for (int i = 0; i < count; i++) all &= holds(&f, conditions[i]);
        if (all) break;
        for (int i = 0; i < count; i++) satisfy(&f, conditions[i]);
    }
    sizes->count = f.movable_count; /* another item may have other defaults */
}
