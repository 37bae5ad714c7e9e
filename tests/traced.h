/*
 * Traces a tensor function with no device: extents are 3, 4, 5, ... in the order in which they are named, `[...]` two
 * axes, generic types float, constants without a value 2; tensors are filled by the caller.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_TRACED_H
#define QUERN_TESTS_TRACED_H

#include "ir/graph_interp.h"
#include "lang/lower.h"
#include "tensor/function.h"

#include <stdlib.h>
#include <string.h>

typedef struct traced {
    arena *memory;
    ast_file *file;
    diagnostics d;
    const ast *item;
    qn_tape *tape;
    bindings constants, known;
    node arguments[64], results[FUNCTION_RESULTS];
    void *data[64]; /* by parameter: elements of its tensor */
    int64_t counts[64];
    int count;
} traced;

static inline traced *traced_open(const char *name, const char *words)
{
    traced *t = calloc(1, sizeof(*t));
    t->memory = arena_new();
    t->d.memory = t->memory;
    t->file = lang_parse(t->memory, name, words, strlen(words), &t->d);
    if (!t->d.errors) lang_check(t->file, &t->d);
    return t;
}

static inline void traced_close(traced *t)
{
    if (t->tape) tape_free(t->tape);
    for (int i = 0; i < 64; i++) free(t->data[i]);
    arena_free(t->memory);
    free(t);
}

static inline void traced_set(traced *t, const char *name, int64_t n)
{
    bindings_set(t->memory, &t->known,
                 (binding){.name = name, .kind = BIND_INT, .type = DT_I64, .number = {.i = n, .f = (double)n}});
}

static inline void traced_extents(traced *t, const ast *item)
{
    int64_t next = 3;
    for (int i = 0; i < item->list.count; i++)
        for (int k = 0; k < item->list.items[i]->list.count && !param_is_constant(item->list.items[i]); k++) {
            const ast *extent = item->list.items[i]->list.items[k];
            if (extent->kind == AST_NAME && name_is_extent(item, extent->name) &&
                !bindings_find(&t->known, extent->name))
                traced_set(t, extent->name, next++);
        }
}

/* Types, constants, extents and leaves. Values set before with traced_set stay. */
static inline bool traced_bind(traced *t, const char *function)
{
    const ast *item = ast_find(t->file, function);
    lang_given given = {.units = 2};
    if (t->d.errors || !item || item->kind != AST_TENSOR) return false;
    item = t->item = lang_spread(t->memory, item, 2, NULL);
    traced_extents(t, item);
    for (int i = 0; i < item->list.count; i++) {
        const ast *param = item->list.items[i];
        const binding *known = bindings_find(&t->known, param->name);
        binding b = {.name = param->name, .kind = BIND_INT, .type = DT_I64, .number.i = known ? known->number.i : 2};
        if (param->type->is_generic)
            bindings_set(t->memory, &given.settings,
                         (binding){.name = param->type->word, .kind = BIND_TYPE, .type = DT_F32});
        if (param_is_constant(param) && !param->is_function && (!param->left || known) &&
            !strcmp(param->type->word, "int"))
            bindings_set(t->memory, &given.settings, b);
    }
    if (!lang_instantiate(t->file, item, &given, &t->d, t->memory, &t->constants, &t->known)) return false;
    t->tape = tape_new(NULL, "", NULL);
    bindings all = {0};
    for (int i = 0; i < t->known.count; i++) bindings_set(t->memory, &all, t->known.items[i]);
    for (int i = 0; i < t->constants.count; i++) bindings_set(t->memory, &all, t->constants.items[i]);
    for (int i = 0; i < item->list.count; i++) {
        const ast *param = item->list.items[i];
        if (!param->is_tensor) continue;
        shape s = {.rank = param->list.count};
        for (int k = 0; k < s.rank; k++) {
            binding b;
            if (!lang_evaluate(t->file, param->list.items[k], &all, 2, &t->d, &b, NULL)) return false;
            s.extents[k] = b.number.i;
        }
        dtype type = DT_F32;
        const binding *generic = bindings_find(&t->constants, param->type->word);
        if (generic)
            type = generic->type;
        else if (!dtype_from_text(param->type->word, &type))
            return false;
        t->counts[i] = shape_count(&s);
        t->data[i] = calloc((size_t)t->counts[i] + 1, 8);
        t->arguments[i] = graph_leaf(t->tape->graph, type, &s, NULL, 0, t->data[i]);
    }
    return true;
}

static inline bool traced_run(traced *t, bool gradient)
{
    function_request r = {.file = t->file,
                          .item = t->item,
                          .constants = &t->constants,
                          .known = &t->known,
                          .arguments = t->arguments,
                          .units = 2,
                          .gradient = gradient};
    return function_trace(t->tape, &r, &t->d, t->results, &t->count);
}

#endif
