/*
 * Kernels from text of the language, and views of three axes. In: source, or a node with where it lies. Out: tile IR, or
 * an argument.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/order.h"
#include "lang/ast.h"

#include <string.h>

tile_kernel *fuse_from_source(arena *memory, const char *name, const char *source)
{
    diagnostics d = {.memory = memory};
    ast_file *file = lang_parse(memory, name, source, strlen(source), &d);
    if (!d.errors) lang_check(file, &d);
    const ast *kernel = d.errors ? NULL : ast_find(file, name);
    lang_given given = {0};
    bindings constants = {0}, extents = {0};
    tile_kernel *k = NULL;
    if (!kernel || !lang_instantiate(file, kernel, &given, &d, memory, &constants, &extents) ||
        !lang_lower(file, kernel, &constants, memory, &d, &k)) {
        text words = {0};
        diagnostics_print(&d, file, false, &words);
        base_check_failed(text_get(&words), name, 0);
    }
    return k;
}

fuse_view fuse_view_row_major(const graph *g, node n)
{
    const shape *s = &graph_get(g, n)->shape;
    fuse_view v = {.base = n};
    strides_set_row_major(s->rank, s->extents, v.strides);
    return v;
}

/* Axes first..last-1 as one; false: no single stride walks through them. */
static bool merge_axes(const shape *s, const int64_t *strides, int first, int last, int64_t *extent, int64_t *stride)
{
    return strides_join(last - first, s->extents + first, strides + first, extent, stride);
}

bool fuse_view_middle(const graph *g, node n, const fuse_view *view, int axis, int axes, fuse_argument *out)
{
    const shape *s = &graph_get(g, n)->shape;
    *out = (fuse_argument){.base = view->base, .rank = 3, .offset = view->offset};
    return merge_axes(s, view->strides, 0, axis, &out->extents[0], &out->strides[0]) &&
           merge_axes(s, view->strides, axis, axis + axes, &out->extents[1], &out->strides[1]) &&
           merge_axes(s, view->strides, axis + axes, s->rank, &out->extents[2], &out->strides[2]);
}

/* Kernels of ours that are written in CUDA or C know no strides. */
static bool is_row_major(const graph *g, node n, const fuse_view *view)
{
    const shape *s = &graph_get(g, n)->shape;
    return strides_are_row_major(s->rank, s->extents, view->strides);
}

bool fuse_view_suits(const graph *g, node n, int input, const fuse_view *view)
{
    const graph_node *of = graph_get(g, n);
    const char *source = of->code == GRAPH_KERNEL ? of->attr.kernel->source : NULL;
    if (of->code == GRAPH_KERNEL)
        return !source || (strncmp(source, "cuda ", 5) != 0 && strncmp(source, "c ", 2) != 0) ||
               is_row_major(g, of->inputs[input], view);
    bool takes = of->code == GRAPH_TAKE_ADD;
    if (of->code == GRAPH_RUN_SUM) {
        fuse_argument rows;
        return fuse_view_middle(g, of->inputs[input], view, 0, 1, &rows);
    }
    int axis = takes && (input == 1 || input == 3) ? 0 : of->attr.axis, axes = 1;
    if (takes && input == 1) axes = graph_get(g, of->inputs[1])->shape.rank;
    if (takes && input == 2) axes = graph_get(g, of->inputs[2])->shape.rank - of->shape.rank + 1;
    fuse_argument unused;
    return fuse_view_middle(g, of->inputs[input], view, axis, axes, &unused);
}

fuse_kernel fuse_kernel_of(arena *memory, const graph *g, node n, const char *name, int argument_count)
{
    fuse_kernel k = {.name = name, .argument_count = argument_count, .node_count = 1, .write_count = 1};
    k.arguments = ARENA_ARRAY(memory, fuse_argument, argument_count);
    k.nodes = ARENA_ARRAY(memory, node, 1);
    k.writes = ARENA_ARRAY(memory, node, 1);
    k.nodes[0] = k.writes[0] = n;
    k.written_bytes = graph_size_bytes(g, n);
    const graph_node *of = graph_get(g, n);
    for (int i = 0; i < of->input_count; i++) k.read_bytes += graph_size_bytes(g, of->inputs[i]);
    k.flops = dtype_is_float(of->elem) ? shape_count(&of->shape) : 0;
    return k;
}
