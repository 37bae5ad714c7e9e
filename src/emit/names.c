/*
 * Names of what is declared once at a level of a nest. In: the words of an expression. Out: the name that stands for them
 * where they were declared before.
 * SPDX-License-Identifier: MIT
 */
#include "emit/nest.h"

const char *names_find(const level_names *n, int level, const char *words)
{
    return n->of[level] ? map_get(n->of[level], words) : NULL;
}

void names_add(emitter *e, level_names *n, int level, const char *words, const char *name)
{
    if (!n->of[level]) n->of[level] = map_new(e->memory);
    map_set(n->of[level], words, (void *)name);
}

void names_forget(level_names *n, int level)
{
    for (int i = level + 1; i < COUNT(n->of); i++) n->of[i] = NULL;
}
