/*
 * Positions and guards of a pass, as CUDA text: which row and which elements a thread has, and when they exist. In: a nest
 * with its layout. Out: declarations of positions, loops over rows, conditions.
 *
 * Loops over rows have the same number of trips in all threads, because folds may hold barriers; a thread without a row
 * goes along under `row_guard`.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"

#include <inttypes.h>
#include <string.h>

const char *position_text(cnest *n, int axis)
{
    if (n->view.role[axis] == ROLE_VECTOR && n->view.layout->vector > 1)
        return arena_print(n->e->memory, "(i%d + v)", axis);
    return arena_print(n->e->memory, "i%d", axis);
}

const char *cuda_product_text(cnest *n, unsigned axes, int after)
{
    int64_t constant = 1;
    const char *factor = NULL;
    for (int axis = after + 1; axis < n->view.layout->loop_count; axis++) {
        if (!(axes >> axis & 1)) continue;
        int64_t dim = n->view.layout->loops[axis];
        if (dim >= 0)
            constant *= dim;
        else
            factor = emit_name(n->e, (value)-dim);
    }
    if (!factor) return constant == 1 ? words_one : arena_print(n->e->memory, "%" PRId64, constant);
    return constant == 1 ? factor : arena_print(n->e->memory, "%" PRId64 " * %s", constant, factor);
}

unsigned cuda_inner_axes(const cnest *n)
{
    return ((1u << n->view.layout->loop_count) - 1) & ~n->view.layout->row_axes;
}

bool cuda_index_is_int(cnest *n, unsigned axes)
{
    int64_t most = 1;
    for (int axis = 0; axis < n->view.layout->loop_count; axis++) {
        if (!(axes >> axis & 1)) continue;
        int64_t bound = dimension_bound(n->e->survey, n->view.layout->loops[axis]);
        if (bound > (int64_t)1 << 29 || (most *= MAXIMUM(bound, 1)) > (int64_t)1 << 29) return false;
    }
    return true;
}

const char *cuda_index_type(cnest *n, unsigned axes)
{
    return cuda_index_is_int(n, axes) ? "int" : "long";
}

static unsigned axes_after(unsigned axes, int axis)
{
    return axes & ~((2u << axis) - 1);
}

/* Coordinates of the axes of a set, from their flat index. Unsigned division by a constant is the short one. A loop has no
 * trip where an axis is empty; outside of one its extent is divided by all the same, as 1. */
static void put_coordinates(cnest *n, text *to, unsigned axes, const char *flat, bool in_loop)
{
    emitter *e = n->e;
    bool outermost = true;
    const char *type = cuda_index_type(n, axes);
    bool narrow = cuda_index_is_int(n, axes), several = axes & (axes - 1);
    if (narrow && several) flat = arena_print(e->memory, "(unsigned)%s", flat);
    for (int axis = 0; axis < n->view.layout->loop_count; axis++) {
        if (!(axes >> axis & 1)) continue;
        const char *stride = cuda_product_text(n, axes, axis), *words = flat;
        const char *as = narrow ? "(unsigned)" : "";
        int64_t dim = n->view.layout->loops[axis];
        if (stride != words_one)
            words = arena_print(e->memory, "%s / %s(%s)", flat, as,
                                in_loop || layout_count_of(n->view.layout, axes_after(axes, axis)) > 0
                                    ? stride
                                    : arena_print(e->memory, "%s ? %s : 1", stride, stride));
        if (!outermost && dim >= 0)
            words = arena_print(e->memory, "%s %% %s%" PRId64, words, as, dim);
        else if (!outermost)
            words = arena_print(e->memory, in_loop ? "%s %% %s%s" : "%s %% %s(%s ? %s : 1)", words, as,
                                extent_text(e, dim), extent_text(e, dim));
        text_print(to, "const %s i%d = %s;\n", type, axis, words);
        outermost = false;
    }
}

static const char *threads_text(const cnest *n)
{
    return n->c->spread->team.threads ? arena_print(n->e->memory, "%d", n->c->spread->team.threads) : "threads";
}

const char *cuda_inner_threads(const cnest *n)
{
    const pass_layout *l = n->view.layout;
    if (l->row_fast) return "part_threads";
    return l->inner_threads ? arena_print(n->e->memory, "%d", l->inner_threads) : threads_text(n);
}

void cuda_rows_begin(cnest *n, const loop_group *g)
{
    static const char *const leads[] = {NULL, "thread == 0", "part_thread == 0", NULL};
    const pass_layout *l = n->view.layout;
    n->lead = leads[g->lead];
    n->row_guard = g->tests_rows ? "row_in" : NULL;
    if (!n->view.has_rows || (!l->inner_threads && !l->row_fast)) return;
    if (l->row_fast)
        cput(n, LEVEL_GROUP, "const int part = thread %% %d, part_thread = thread / %d, part_threads = %s / %d;",
             l->inner_threads, l->inner_threads, threads_text(n), l->inner_threads);
    else
        cput(n, LEVEL_GROUP, "const int part = thread / %d, part_thread = thread %% %d;", l->inner_threads,
             l->inner_threads);
}

text cuda_rows_end(cnest *n)
{
    emitter *e = n->e;
    const pass_layout *l = n->view.layout;
    text all = n->level[LEVEL_GROUP];
    n->level[LEVEL_GROUP] = (text){0};
    if (!n->view.has_rows) {
        text_add(&all, text_get(&n->level[LEVEL_ROW]));
        text_clear(&n->level[LEVEL_ROW]);
        return all;
    }
    const char *rows = cuda_product_text(n, l->row_axes, -1);
    const char *type = cuda_index_type(n, l->row_axes);
    text head = {0};
    if (l->inner_threads || l->row_fast) {
        const char *step = l->row_fast ? arena_print(e->memory, "%d", l->inner_threads)
                           : n->c->spread->team.threads
                               ? arena_print(e->memory, "%d", n->c->spread->team.threads / l->inner_threads)
                               : arena_print(e->memory, "threads / %d", l->inner_threads);
        text_print(&all, "for (%s rows = 0; rows < %s; rows += %s) {\n", type, rows, step);
        text_print(&head, "const %s row = rows + part;\n", type);
        if (n->row_guard) text_print(&head, "const int row_in = row < %s;\n", rows);
    } else {
        text_print(&all, "for (%s row = 0; row < %s; row++) {\n", type, rows);
    }
    put_coordinates(n, &head, l->row_axes, "row", true);
    add_lines(&all, text_get(&head), 1);
    add_lines(&all, text_get(&n->level[LEVEL_ROW]), 1);
    text_add(&all, "}\n");
    text_free(&head);
    text_clear(&n->level[LEVEL_ROW]);
    return all;
}

static int last_axis(const cnest *n, unsigned axes)
{
    int axis = n->view.layout->loop_count - 1;
    while (!(axes >> axis & 1)) axis--;
    return axis;
}

/* Of the place in the space of these axes: that of the only one, or p. */
static const char *position_name(const cnest *n, unsigned axes)
{
    return axes & (axes - 1) ? "p" : arena_print(n->e->memory, "i%d", last_axis(n, axes));
}

void cuda_positions(cnest *n, text *to)
{
    emitter *e = n->e;
    const pass_layout *l = n->view.layout;
    unsigned axes = cuda_inner_axes(n);
    const char *name = position_name(n, axes);
    const char *thread = l->inner_threads || l->row_fast ? "part_thread" : n->forgets ? "here" : "thread";
    const char *spread = n->forgets ? "apart" : cuda_inner_threads(n), *repeat = n->repeat;
    const char *first = l->repeats ? NULL : "c";
    bool several = repeat != words_zero && (l->repeats || n->slot != words_zero);
    const char *index =
        several ? arena_print(e->memory, "%s * %s + %s", l->repeats ? repeat : n->slot, spread, thread) : thread;
    const char *words =
        l->vector > 1 ? arena_print(e->memory, several ? "(%s) * %d" : "%s * %d", index, l->vector) : index;
    if (first) words = arena_print(e->memory, "%s + %s", first, words);
    if (l->shifted) words = arena_print(e->memory, "%s - shift%d", words, l->number);
    text_print(to, "const %s %s = %s;\n", cuda_index_type(n, axes), name, words);
    if (axes & (axes - 1)) put_coordinates(n, to, axes, name, first != NULL);
    const char *count = cuda_product_text(n, axes, -1);
    if (n->in)
        text_print(to, "const int in = %s;\n", n->all_there ? n->row_guard ? n->row_guard : "1" : n->chunk_guard);
    if (n->element_guard && n->all_there)
        text_add(to, "const int whole = 1;\n");
    else if (n->element_guard && l->shifted)
        text_print(to, "const int whole = %s >= 0 && %s <= %s(%s) - %d;\n", name, name,
                   cuda_index_is_int(n, axes) ? "(int)" : "", count, l->vector);
    else if (n->element_guard)
        text_print(to, "const int whole = %s + %d <= %s;\n", name, l->vector, count);
}

void cuda_set_guards(cnest *n)
{
    emitter *e = n->e;
    const pass_layout *l = n->view.layout;
    unsigned axes = cuda_inner_axes(n);
    const char *name = position_name(n, axes), *all = cuda_product_text(n, axes, -1), *count = all;
    bool narrow = cuda_index_is_int(n, axes), chunks, elements;
    layout_tests(e->survey, l, false, &chunks, &elements);
    if (layout_count_of(l, axes) < 0 && narrow) all = arena_print(e->memory, "(int)(%s)", all);
    n->chunk_guard = chunks ? cjoin(e, n->row_guard, "&&", arena_print(e->memory, "%s < %s", name, all)) : n->row_guard;
    n->element_guard = elements ? arena_print(e->memory, "%s + v < %s", name, count) : NULL;
    if (!l->shifted) return;
    n->chunk_guard = arena_print(e->memory, "%s < %s && %s > -%d", name, all, name, l->vector);
    n->element_guard = narrow ? arena_print(e->memory, "(unsigned)(%s + v) < (unsigned)%s", name, all)
                              : arena_print(e->memory, "(unsigned long)(%s + v) < (unsigned long)(%s)", name, all);
}
