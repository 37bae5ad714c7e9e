/*
 * `[...]` of a tensor function's parameters: any number of axes, the same for all of them. In: the function as written
 * and how many axes a call has there. Out: the same function with that many extents in their place, called `axis_0`,
 * `axis_1`, ...; everything behind sees an ordinary function. A function without `[...]` is its own answer.
 * SPDX-License-Identifier: MIT
 */
#include "lang/ast.h"

#include <stdlib.h>
#include <string.h>

bool item_is_spread(const ast *item)
{
    for (int i = 0; item && i < item->list.count; i++)
        if (item->list.items[i]->has_spread) return true;
    return false;
}

int spread_axis_number(const char *name)
{
    char *end;
    if (strncmp(name, "axis_", 5) != 0 || name[5] < '0' || name[5] > '9') return -1;
    long number = strtol(name + 5, &end, 10);
    return *end || number >= ARRAY_RANK ? -1 : (int)number;
}

int spread_fixed(const ast *param)
{
    return param->list.count - param->spread_count;
}

const ast *lang_spread(arena *memory, const ast *item, int count, const bool *bare)
{
    if (!item_is_spread(item)) return item;
    ast *copy = ARENA_NEW(memory, ast);
    *copy = *item;
    copy->list.items = ARENA_ARRAY(memory, ast *, item->list.count + 1);
    for (int i = 0; i < item->list.count; i++) {
        ast *param = item->list.items[i];
        copy->list.items[i] = param;
        if (!param->has_spread) continue;
        int axes = bare && bare[i] ? 0 : count, fixed = spread_fixed(param), at = 0;
        ast *spread = ARENA_NEW(memory, ast);
        *spread = *param;
        spread->spread_count = axes;
        spread->list = (ast_list){.items = ARENA_ARRAY(memory, ast *, fixed + axes + 1), .count = fixed + axes};
        for (int k = 0; k < fixed + axes; k++) {
            bool own = k < param->spread_at || k >= param->spread_at + axes;
            if (own) { /* of the item as written, or of one that has other axes there */
                if (at == param->spread_at) at += param->spread_count;
                spread->list.items[k] = param->list.items[at++];
                continue;
            }
            ast *name = ARENA_NEW(memory, ast);
            *name = (ast){.kind = AST_NAME, .at = param->at, .from = param->at};
            name->name = arena_print(memory, "axis_%d", k - param->spread_at);
            spread->list.items[k] = name;
        }
        copy->list.items[i] = spread;
    }
    return copy;
}
