/*
 * An optimiser over the parameters of a tree. In: patterns of names with options. Out: an optimiser whose groups hold
 * each parameter that is not frozen once. Frozen ones are not in it, so no gradient of theirs is ever asked for.
 * SPDX-License-Identifier: MIT
 */
#include "model/model.h"

#include <fnmatch.h>

typedef struct sorting {
    qn_model *model;
    const qn_model_group *groups;
    int group_count, group; /* the group that is being filled; 0: what no pattern matches */
    qn_tensor *into;        /* NULL: they are only counted */
    int count, met;         /* met: parameters that the pattern matches at all, frozen ones too */
} sorting;

static void sort_one(void *user, model_tensor *t)
{
    sorting *s = user;
    if (t->buffer) return;
    int first = 0;
    for (int i = s->group_count; i > 0; i--)
        if (!fnmatch(s->groups[i - 1].pattern, model_relative(s->model, t->path), 0)) first = i;
    if (s->group && !fnmatch(s->groups[s->group - 1].pattern, model_relative(s->model, t->path), 0)) s->met++;
    if (first != s->group || t->frozen) return;
    if (s->into) s->into[s->count] = t->value;
    s->count++;
}

qn_optimizer *qn_model_optimizer(qn_model *model, qn_optimizer_kind kind, const qn_optimizer_options *options,
                                 const qn_model_group *groups, int group_count)
{
    if (!model || !tape_enter(model->tape, "optimizer") || model->tape->graph->status) return NULL;
    graph *g = model->tape->graph;
    if (group_count < 0) return graph_fail(g, "optimizer", "%d groups", group_count), NULL;
    if (!tape_array(model->tape, "optimizer", groups, group_count)) return NULL;
    for (int i = 0; i < group_count; i++)
        if (!groups[i].pattern) return graph_fail(g, "optimizer", "the pattern of group %d is NULL", i + 1), NULL;
    arena *memory = arena_new();
    qn_optimizer_group *out = ARENA_ARRAY(memory, qn_optimizer_group, group_count + 1);
    int total = 0;
    for (int i = 0; i <= group_count && !g->status; i++) {
        sorting s = {.model = model, .groups = groups, .group_count = group_count, .group = i};
        model_each(model, sort_one, &s);
        if (i && !s.met)
            graph_fail(g, "optimizer", "no parameter matches `%s`; qn_model_print shows their names",
                       groups[i - 1].pattern);
        s.into = ARENA_ARRAY(memory, qn_tensor, s.count + 1);
        s.count = 0;
        model_each(model, sort_one, &s);
        out[i] = (qn_optimizer_group){i ? groups[i - 1].kind : kind,
                                      i         ? groups[i - 1].options
                                      : options ? *options
                                                : qn_optimizer_defaults(kind),
                                      s.into, s.count};
        total += s.count;
    }
    if (!g->status && !total) graph_fail(g, "optimizer", "the model has no parameters that are not frozen");
    int scope = model->tape->scope;
    model->tape->scope = 0; /* its variables live as long as it does */
    qn_optimizer *optimizer = g->status ? NULL : qn_optimizer_new_groups(model->tape, out, group_count + 1);
    model->tape->scope = scope;
    arena_free(memory);
    return optimizer;
}
