/*
 * Additions by index, with results that do not depend on what runs at once. In: TAKE_ADD and GATHER_ADD. Out: graphs and
 * kernels that add the updates of one place one after another, in the order in which they stand.
 *
 * The indices are sorted (stable), so that updates of one place are neighbours. The first of each such run adds the
 * whole run to the base. Rows that are long (TAKE_ADD of an embedding) are added as rows, everything else element by
 * element in lanes; on a GPU both in pieces of runs, so that one index that occurs a million times is no work for one
 * thread. Indices outside add nothing. Where every update is the same number its indices are counted; numbers that are added
 * to few places are added in bins, without sorting. A GATHER_ADD whose indices are the same for every row is a TAKE_ADD.
 * Few updates a line (the gradient of picking one class, the weights of two experts) need no sorting: selections by
 * comparison, which fuse with their neighbours.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/order.h"
#include "ir/graph_build.h"

#include <string.h>

#define LANES 256
#define LANE_PART 256
#define SHORT_ROW 16
#define PART 16
#define JOIN 64
#define WIDE 128
#define FEW_UPDATES 4   /* of a line ... */
#define SHORT_LINE 1024 /* ... all of which is written; a longer one may stay where it is, but for its updates */

/* ---- the graph ---- */

static node spread(graph *g, node x, const shape *to)
{
    return graph_expand(g, x, to);
}

static node slice_of(graph *g, node x, int axis, int64_t at)
{
    shape s = graph_get(g, x)->shape;
    int64_t start[GRAPH_RANK] = {0}, step[GRAPH_RANK];
    for (int k = 0; k < s.rank; k++) step[k] = 1;
    start[axis] = at;
    s.extents[axis] = 1;
    return graph_slice(g, x, start, step, &s);
}

/* base + (position along the axis == index ? update : nothing), for one update after the other */
static node add_few(graph *g, const graph_node *n, int64_t count)
{
    dtype elem = dtype_is_narrow(n->elem) ? DT_F32 : n->elem; /* rounded once */
    node sum = graph_convert(g, n->inputs[0], elem), all = graph_convert(g, n->inputs[1], DT_I64);
    node updates = graph_convert(g, n->inputs[2], elem);
    shape line = {.rank = n->shape.rank};
    for (int k = 0; k < line.rank; k++) line.extents[k] = k == n->attr.axis ? n->shape.extents[k] : 1;
    node positions = graph_reshape(g, graph_iota(g, n->shape.extents[n->attr.axis]), &line);
    for (int64_t i = 0; i < count; i++) {
        node index = slice_of(g, all, n->attr.axis, i), update = slice_of(g, updates, n->attr.axis, i);
        node here = graph_binary(g, OP_EQ, spread(g, positions, &n->shape), spread(g, index, &n->shape));
        sum = graph_select(g, here, graph_binary(g, OP_ADD, sum, spread(g, update, &n->shape)), sum);
    }
    return graph_convert(g, sum, n->elem);
}

/* Integers of rank 1 that do not fall: positions, what was taken in its own order, counts of what holds up to here. */
static bool is_sorted(const graph *g, node n)
{
    const graph_node *x = graph_get(g, n);
    for (;; x = graph_get(g, x->inputs[0])) { /* through what keeps the order */
        if (x->code == GRAPH_RESHAPE && graph_get(g, x->inputs[0])->shape.rank == 1) continue;
        if (x->shape.rank != 1) return false;
        bool sum = x->code == GRAPH_MAP && (x->attr.map == OP_SUB || x->attr.map == OP_ADD);
        if (!sum) break;
        if (graph_get(g, x->inputs[1])->code != GRAPH_FULL) return false;
    }
    if (x->code == GRAPH_IOTA) return true;
    if (x->code == GRAPH_TAKE) {
        const graph_node *order = graph_get(g, x->inputs[1]);
        return order->code == GRAPH_ARGSORT && !order->attr.index && order->inputs[0] == x->inputs[0];
    }
    if (x->code != GRAPH_SCAN || x->attr.fold != FOLD_SUM) return false;
    const graph_node *counted = graph_get(g, x->inputs[0]);
    return counted->code == GRAPH_MAP && counted->attr.map == OP_CONVERT &&
           graph_get(g, counted->inputs[0])->elem == DT_BOOL;
}

/* Long rows on a GPU: runs are cut into pieces, and the index is given in its order. */
static bool is_in_pieces(const graph_node *n, const fuse_options *options)
{
    int64_t row = 1;
    for (int k = n->attr.axis + 1; k < n->shape.rank; k++) row *= n->shape.extents[k];
    return n->code == GRAPH_TAKE_ADD && !n->attr.index && options->gpu && row >= SHORT_ROW;
}

/* The indices along the axis when they are the same for every other position; 0: they are not. */
static node one_line(graph *g, const graph_node *n)
{
    const graph_node *index = graph_get(g, n->inputs[1]);
    for (int k = 0; k < n->shape.rank; k++)
        if (k != n->attr.axis && index->shape.extents[k] != n->shape.extents[k]) return 0;
    node from = index->code == GRAPH_EXPAND ? index->inputs[0] : n->inputs[1];
    shape line = {1, {index->shape.extents[n->attr.axis]}};
    if (shape_count(&graph_get(g, from)->shape) != line.extents[0]) return 0;
    if (graph_get(g, from)->shape.extents[n->attr.axis] != line.extents[0]) return 0;
    return graph_reshape(g, from, &line);
}

node fuse_scatter_prepare(graph *g, node n, const fuse_options *options)
{
    graph_node of = *graph_get(g, n);
    if (of.code != GRAPH_TAKE_ADD && of.code != GRAPH_GATHER_ADD) return n;
    if (of.input_count == 4 || of.attr.index) return n;
    graph_site site = g->site;
    const char *label = g->label;
    g->site = of.site;
    g->label = of.label;
    node line = of.code == GRAPH_GATHER_ADD && graph_get(g, of.inputs[1])->shape.extents[of.attr.axis] > 1
                    ? one_line(g, &of)
                    : 0;
    node as_rows[] = {of.inputs[0], line, of.inputs[2]};
    if (line) {
        of.code = GRAPH_TAKE_ADD;
        of.inputs = as_rows;
    }
    bool takes = of.code == GRAPH_TAKE_ADD;
    node made = takes && options->cuda_text ? fuse_bins_count(g, &of) : 0;
    if (!made && takes && options->cuda_text) made = fuse_bins_sum(g, &of);
    int64_t each = graph_get(g, of.inputs[1])->shape.extents[takes ? 0 : of.attr.axis];
    bool few = each == 1 || (each > 0 && each <= FEW_UPDATES && of.shape.extents[of.attr.axis] <= SHORT_LINE);
    if (!takes && few) made = add_few(g, &of, each);
    if (!made && options->c_text && !options->check_indices) made = fuse_add_c(g, &of);
    if (!made) {
        node index = of.inputs[1], order, sorted = 0;
        shape all = {1, {shape_count(&graph_get(g, index)->shape)}};
        if (takes) index = graph_reshape(g, index, &all);
        if (is_sorted(g, index)) {
            sorted = index;
            order = graph_iota(g, graph_get(g, index)->shape.extents[0]);
        } else {
            if (options->cuda_text) index = graph_short_index(g, index, of.shape.extents[of.attr.axis]);
            order = graph_argsort(g, index, takes ? 0 : of.attr.axis, false);
            if (options->cuda_text) order = fuse_sort_prepare(g, order, options, &sorted);
            if (options->c_text) order = fuse_sort_c(g, order);
        }
        bool pieces = is_in_pieces(&of, options);
        if (pieces && !sorted) sorted = graph_take(g, index, order, 0);
        node inputs[] = {of.inputs[0], pieces ? sorted : of.inputs[1], of.inputs[2], order};
        of.inputs = inputs;
        of.input_count = 4;
        made = graph_intern(g, &of);
    }
    g->site = site;
    g->label = label;
    return made;
}

/* ---- kernels ---- */

static const char rows_source[] = "kernel take_add(%sin %s index[n], in %s updates[O][n][E], in i64 order[n]%s)\n"
                                  "%s"
                                  "launch (n, O)\n"
                                  "{\n"
                                  "    int p = program(0), o = program(1);\n"
                                  "    int here = index[order[p]], before = index[order[max(p - 1, 0)]];\n"
                                  "    if (here >= 0 && here < V && (p == 0 || before != here)) {\n"
                                  "        tile %s total = %s;\n"
                                  "        for (int q = p; q < n; q++) {\n"
                                  "            int at = order[q], next = index[at];\n"
                                  "            if (next != here) break;\n"
                                  "            total = %s(total + %s(updates[o][at][:]));\n"
                                  "        }\n"
                                  "        y[o][here][:] = %s(total);\n"
                                  "    }\n"
                                  "}\n";

/* On a GPU a long run is no work for one program. Runs are cut where positions are multiples of PART: each piece is added
 * up at once; a run of one piece is done then. Pieces of longer runs wait: the one a run begins with in `tail`, those it
 * goes on with in `head`, and the second phase adds JOIN of them at a time, in order. */
static const char pieces_source[] =
    "kernel take_add(%sin %s index[n], in %s updates[O][n][E], in i64 order[n]%s,\n"
    "                scratch %s head[O][cdiv(n, PART)][E], scratch %s tail[O][cdiv(n, PART)][E],\n"
    "                const int PART = %d, const int JOIN = %d, const int WIDE = %d)\n"
    "%s"
    "launch (n, cdiv(E, WIDE), O)\n"
    "{\n"
    "    int p = program(0), e = program(1) * WIDE, o = program(2), end = min(p / PART * PART + PART, n);\n"
    "    int here = index[p], before = index[max(p - 1, 0)], behind = index[min(end, n - 1)];\n"
    "    bool first = p == 0 || before != here;\n"
    "    if (here >= 0 && here < V && (first || p %% PART == 0)) {\n"
    "        tile bool mine = index[p : PART] == here && p + iota(PART) < end;\n"
    "        tile %s total = %s(sum(updates[o][keep(order[p : PART], mine)][e : WIDE], axis = 0)[0][:]);\n"
    "        if (first && (end == n || behind != here))\n"
    "            y[o][here][e : WIDE] = %s(%stotal);\n"
    "        else if (first)\n"
    "            tail[o][p / PART][e : WIDE] = total;\n"
    "        else\n"
    "            head[o][p / PART][e : WIDE] = total;\n"
    "    }\n"
    "}\n"
    "then launch (n / PART, cdiv(E, WIDE), O)\n"
    "{\n"
    "    int c = program(0), e = program(1) * WIDE, o = program(2), last = c * PART + PART - 1, parts = cdiv(n, "
    "PART);\n"
    "    int here = index[last], behind = index[min(last + 1, n - 1)], before = index[max(c * PART - 1, 0)];\n"
    "    if (here >= 0 && here < V && last + 1 < n && behind == here && (c == 0 || before != here)) {\n"
    "        tile %s total = tail[o][c][e : WIDE];\n"
    "        int d = c + 1;\n"
    "        while (d < parts) {\n"
    "            tile int k = keep(d + iota(JOIN), d + iota(JOIN) < parts);\n"
    "            tile bool mine = index[k * PART] == here;\n"
    "            total = %s(total + %s(sum(head[o][keep(k, mine)][e : WIDE], axis = 0)[0][:]));\n"
    "            d = all(mine) ? d + JOIN : parts;\n"
    "        }\n"
    "        y[o][here][e : WIDE] = %s(%stotal);\n"
    "    }\n"
    "}\n";

/* Of equal neighbours the first alone counts: no place is met twice. */
static const char firsts_source[] = "kernel take_add(%sin %s index[n], in %s updates[O][n][E]%s)\n"
                                    "%s"
                                    "launch (n, O)\n"
                                    "{\n"
                                    "    int p = program(0), o = program(1);\n"
                                    "    int here = index[p], before = index[max(p - 1, 0)];\n"
                                    "    if (here >= 0 && here < V && (p == 0 || before != here))\n"
                                    "        y[o][here][:] = %s(%s%s(updates[o][p][:]));\n"
                                    "}\n";

static const char rows_copy[] = "launch (V, O)\n"
                                "{\n"
                                "    int v = program(0), o = program(1);\n"
                                "    y[o][v][:] = base[o][v][:];\n"
                                "}\n"
                                "then ";

static const char lanes_source[] =
    "kernel gather_add(%sin %s index[A][n][B], in %s updates[A][n][B], in i64 order[A][n][B]%s)\n"
    "%s"
    "launch (cdiv(n * B, %d), A)\n"
    "{\n"
    "    int a = program(1);\n"
    "    tile int k = program(0) * %d + iota(%d), p = keep(k / B, k < n * B), b = k %% B;\n"
    "    tile int here = index[a][order[a][p][b]][b];\n"
    "    tile int before = index[a][order[a][keep(p - 1, p > 0)][b]][b];\n"
    "    tile bool inside = here >= 0 && here < V;\n"
    "    tile bool first = inside && (p == 0 || fill(before, -1) != here);\n"
    "    tile %s total = like(here, %s(0));\n"
    "%s"
    "    tile int q = like(here, 0);\n"
    "    q = p;\n"
    "    tile bool on = like(here, false);\n"
    "    on = first;\n"
    "    while (any(on)) {\n"
    "        tile int at = order[a][keep(q, on)][b];\n"
    "        total = %s(total + %s(updates[a][at][b]));\n"
    "        q = q + 1;\n"
    "        tile int next = index[a][order[a][keep(q, on && q < n)][b]][b];\n"
    "        on = on && q < n && fill(next, -1) == here;\n"
    "    }\n"
    "    y[a][keep(here, first)][b] = %s(total);\n"
    "}\n";

/* On a GPU a lane adds up at most LANE_PART elements: a run is cut where positions are multiples of that. The piece a run
 * begins with waits in `tail`, those it goes on with in `head`, and the second phase adds them in order. */
static const char lane_pieces_source[] =
    "kernel gather_add(%sin %s index[A][n][B], in %s updates[A][n][B], in i64 order[A][n][B]%s,\n"
    "                  scratch %s head[A][cdiv(n, PART)][B], scratch %s tail[A][cdiv(n, PART)][B],\n"
    "                  const int PART = %d, const int LANES = %d)\n"
    "%s"
    "launch (cdiv(n * B, LANES), A)\n"
    "{\n"
    "    int a = program(1);\n"
    "    tile int k = program(0) * LANES + iota(LANES), p = keep(k / B, k < n * B), b = k %% B;\n"
    "    tile int here = index[a][order[a][p][b]][b];\n"
    "    tile int before = index[a][order[a][keep(p - 1, p > 0)][b]][b];\n"
    "    tile bool inside = here >= 0 && here < V;\n"
    "    tile bool first = inside && (p == 0 || fill(before, -1) != here);\n"
    "    tile bool begins = first || (inside && p %% PART == 0);\n"
    "    tile %s total = like(here, %s(0));\n"
    "    tile int q = like(here, 0);\n"
    "    q = p;\n"
    "    tile bool on = like(here, false), more = like(here, false);\n"
    "    on = begins;\n"
    "    while (any(on)) {\n"
    "        tile int at = order[a][keep(q, on)][b];\n"
    "        total = %s(total + %s(updates[a][at][b]));\n"
    "        q = q + 1;\n"
    "        tile int next = index[a][order[a][keep(q, on && q < n)][b]][b];\n"
    "        on = on && q < n && fill(next, -1) == here;\n"
    "        more = more || (on && q %% PART == 0);\n"
    "        on = on && q %% PART != 0;\n"
    "    }\n"
    "    tile int whole = keep(here, first && !more);\n"
    "    y[a][whole][b] = %s(%stotal);\n"
    "    tail[a][keep(p / PART, first && more)][b] = total;\n"
    "    head[a][keep(p / PART, begins && !first)][b] = total;\n"
    "}\n"
    "then launch (cdiv(n / PART * B, LANES), A)\n"
    "{\n"
    "    int a = program(1), parts = cdiv(n, PART);\n"
    "    tile int k = program(0) * LANES + iota(LANES), c = keep(k / B, k < n / PART * B), b = k %% B;\n"
    "    tile int last = c * PART + PART - 1;\n"
    "    tile int here = index[a][order[a][last][b]][b];\n"
    "    tile int behind = index[a][order[a][keep(last + 1, last + 1 < n)][b]][b];\n"
    "    tile int before = index[a][order[a][keep(c * PART - 1, c > 0)][b]][b];\n"
    "    tile bool first = here >= 0 && here < V && last + 1 < n && fill(behind, -1) == here && (c == 0 || "
    "fill(before, -1) != here);\n"
    "    tile %s total = like(here, %s(0));\n"
    "    total = fill(tail[a][keep(c, first)][b], 0);\n"
    "    tile int d = like(here, 0);\n"
    "    d = c + 1;\n"
    "    tile bool on = like(here, false);\n"
    "    on = first;\n"
    "    while (any(on)) {\n"
    "        total = %s(total + fill(head[a][keep(d, on)][b], 0));\n"
    "        d = d + 1;\n"
    "        tile int next = index[a][order[a][keep(d * PART, on && d < parts)][b]][b];\n"
    "        on = on && d < parts && fill(next, -1) == here;\n"
    "    }\n"
    "    tile int whole = keep(here, first);\n"
    "    y[a][whole][b] = %s(%stotal);\n"
    "}\n";

static const char lanes_copy[] =
    "launch (cdiv(V * B, %d), A)\n"
    "{\n"
    "    int a = program(1);\n"
    "    tile int k = program(0) * %d + iota(%d), v = keep(k / B, k < V * B), b = k %% B;\n"
    "    y[a][v][b] = base[a][v][b];\n"
    "}\n"
    "then ";

typedef enum scatter_base { BASE_ZERO, BASE_COPIED, BASE_WRITTEN_OVER } scatter_base;

typedef enum scatter_form { FORM_LANES, FORM_LANE_PIECES, FORM_ROWS, FORM_PIECES, FORM_FIRSTS } scatter_form;

static tile_kernel *scatter_text(arena *memory, scatter_form form, int64_t width, const char *type,
                                 const char *index_type, const char *inside, scatter_base base)
{
    bool rows = form >= FORM_ROWS;
    const char *axes = rows ? "[O][V][E]" : "[A][V][B]", *from = base == BASE_COPIED ? "base" : "y", *before = "";
    const char *after = arena_print(memory, ", out %s y%s%s", type, axes, base == BASE_ZERO ? " = 0" : "");
    if (base == BASE_COPIED) before = arena_print(memory, "in %s base%s, ", type, axes);
    if (base == BASE_WRITTEN_OVER) {
        before = arena_print(memory, "inout %s y%s, ", type, axes);
        after = "";
    }
    const char *copy = "", *start;
    if (rows) {
        if (base == BASE_COPIED) copy = rows_copy;
        int wide = SHORT_ROW;
        while (wide < width && wide < WIDE) wide *= 2;
        start = base == BASE_ZERO ? "" : arena_print(memory, "%s(%s[o][here][e : WIDE]) + ", inside, from);
        const char *whole = base == BASE_ZERO ? "" : arena_print(memory, "%s(%s[o][here][:]) + ", inside, from);
        if (form == FORM_FIRSTS)
            return fuse_from_source(
                memory, "take_add",
                arena_print(memory, firsts_source, before, index_type, type, after, copy, type, whole, inside));
        if (form == FORM_PIECES)
            return fuse_from_source(memory, "take_add",
                                    arena_print(memory, pieces_source, before, index_type, type, after, inside, inside,
                                                PART, JOIN, wide, copy, inside, inside, type, start, inside, inside,
                                                inside, type, start));
        start = base == BASE_ZERO ? arena_print(memory, "like(updates[o][order[p]][:], %s(0))", inside)
                                  : arena_print(memory, "%s(%s[o][here][:])", inside, from);
        return fuse_from_source(memory, "take_add",
                                arena_print(memory, rows_source, before, index_type, type, after, copy, inside, start,
                                            inside, inside, type));
    }
    if (base == BASE_COPIED) copy = arena_print(memory, lanes_copy, LANES, LANES, LANES);
    if (form == FORM_LANE_PIECES) {
        start = base == BASE_ZERO ? "" : arena_print(memory, "%s(%s[a][whole][b]) + ", inside, from);
        return fuse_from_source(memory, "gather_add",
                                arena_print(memory, lane_pieces_source, before, index_type, type, after, inside, inside,
                                            LANE_PART, LANES, copy, inside, inside, inside, inside, type, start, inside,
                                            inside, inside, type, start));
    }
    start =
        base == BASE_ZERO ? "" : arena_print(memory, "    total = %s(%s[a][keep(here, first)][b]);\n", inside, from);
    return fuse_from_source(memory, "gather_add",
                            arena_print(memory, lanes_source, before, index_type, type, after, copy, LANES, LANES,
                                        LANES, inside, inside, start, inside, inside, type));
}

static bool is_row_major(const fuse_argument *a)
{
    return strides_are_row_major(a->rank, a->extents, a->strides);
}

bool fuse_scatter_kernel(arena *memory, const graph *g, node n, const fuse_view *inputs, const fuse_options *options,
                         fuse_kernel *out)
{
    const graph_node *of = graph_get(g, n);
    bool takes = of->code == GRAPH_TAKE_ADD, has_base = inputs[0].base != 0;
    int axis = of->attr.axis, index_rank = graph_get(g, of->inputs[2])->shape.rank - of->shape.rank + 1;
    int index_axes = takes ? graph_get(g, of->inputs[1])->shape.rank : 1; /* 1 where it is sorted */
    fuse_argument base = {0}, index, updates, order, result;
    fuse_view mine = fuse_view_row_major(g, n);
    bool firsts = of->input_count == 3;
    CHECK(of->input_count == 4 || (takes && of->attr.index));
    if ((has_base && !fuse_view_middle(g, of->inputs[0], &inputs[0], axis, 1, &base)) ||
        !fuse_view_middle(g, of->inputs[1], &inputs[1], takes ? 0 : axis, index_axes, &index) ||
        !fuse_view_middle(g, of->inputs[2], &inputs[2], axis, takes ? index_rank : 1, &updates) ||
        (!firsts && !fuse_view_middle(g, of->inputs[3], &inputs[3], takes ? 0 : axis, 1, &order)) ||
        !fuse_view_middle(g, n, &mine, axis, 1, &result))
        return false;
    bool rows = firsts || (takes && result.extents[2] >= SHORT_ROW);
    scatter_form lanes = options->gpu ? FORM_LANE_PIECES : FORM_LANES;
    scatter_form form = firsts ? FORM_FIRSTS : is_in_pieces(of, options) ? FORM_PIECES : rows ? FORM_ROWS : lanes;
    const char *type = dtypes[of->elem].text, *index_type = dtypes[graph_get(g, of->inputs[1])->elem].text;
    const char *inside = dtype_is_narrow(of->elem) ? "f32" : type;
    *out = fuse_kernel_of(memory, g, n, graph_ops[of->code].text, 4 - firsts + has_base);
    fuse_argument *to = out->arguments;
    if (has_base) *to++ = base;
    if (rows) {
        index = (fuse_argument){.base = index.base,
                                .rank = 1,
                                .offset = index.offset,
                                .extents = {index.extents[1]},
                                .strides = {index.strides[1]}};
        if (!firsts)
            order = (fuse_argument){.base = order.base,
                                    .rank = 1,
                                    .offset = order.offset,
                                    .extents = {order.extents[1]},
                                    .strides = {order.strides[1]}};
    } else if (takes) { /* the same indices for every element of a row */
        for (int k = 0; k < 3; k += 2) {
            index.extents[k] = order.extents[k] = updates.extents[k];
            index.strides[k] = order.strides[k] = 0;
        }
    }
    *to++ = index;
    *to++ = updates;
    if (!firsts) *to++ = order;
    *to = result;
    out->kernel =
        scatter_text(memory, form, result.extents[2], type, index_type, inside, has_base ? BASE_COPIED : BASE_ZERO);
    if (has_base) {
        bool cuda = form == FORM_PIECES && base.extents[0] == 1 && is_row_major(&base) && is_row_major(&updates) &&
                    is_row_major(&index) && is_row_major(&order) &&
                    fuse_scatter_cuda_suits(options, of->elem, order.extents[0], result.extents[2]);
        out->over =
            cuda ? fuse_scatter_cuda(memory, SCATTER_ADD_ROWS, graph_get(g, of->inputs[1])->elem, result.extents[2])
                 : scatter_text(memory, form, result.extents[2], type, index_type, inside, BASE_WRITTEN_OVER);
        out->over_read = 0;
        out->over_write = 4 - firsts;
    }
    return true;
}

/* ---- sums of runs ---- */

static const char run_rows_source[] =
    "kernel run_sum(in %s index[n], in %s updates[n][E], in i64 order[n], out %s y[n][E])\n"
    "launch (n)\n"
    "{\n"
    "    int p = program(0), here = index[p], before = index[max(p - 1, 0)];\n"
    "    tile %s total = like(updates[p][:], %s(0));\n"
    "    if (p == 0 || before != here) {\n"
    "        for (int q = p; q < n; q++) {\n"
    "            if (index[q] != here) break;\n"
    "            total = %s(total + %s(updates[order[q]][:]));\n"
    "        }\n"
    "    }\n"
    "    y[p][:] = %s(total);\n"
    "}\n";

static const char run_pieces_source[] =
    "kernel run_sum(in %s index[n], in %s updates[n][E], in i64 order[n], out %s y[n][E],\n"
    "               scratch %s head[cdiv(n, PART)][E], scratch %s tail[cdiv(n, PART)][E],\n"
    "               const int PART = %d, const int JOIN = %d, const int WIDE = %d)\n"
    "launch (n, cdiv(E, WIDE))\n"
    "{\n"
    "    int p = program(0), e = program(1) * WIDE, end = min(p / PART * PART + PART, n);\n"
    "    int here = index[p], before = index[max(p - 1, 0)], behind = index[min(end, n - 1)];\n"
    "    bool first = p == 0 || before != here;\n"
    "    if (first || p %% PART == 0) {\n"
    "        tile bool mine = index[p : PART] == here && p + iota(PART) < end;\n"
    "        tile %s total = %s(sum(updates[keep(order[p : PART], mine)][e : WIDE], axis = 0)[0][:]);\n"
    "        if (first && (end == n || behind != here))\n"
    "            y[p][e : WIDE] = %s(total);\n"
    "        else if (first)\n"
    "            tail[p / PART][e : WIDE] = total;\n"
    "        else\n"
    "            head[p / PART][e : WIDE] = total;\n"
    "    }\n"
    "    if (!first) y[p][e : WIDE] = %s(0);\n"
    "}\n"
    "then launch (n / PART, cdiv(E, WIDE))\n"
    "{\n"
    "    int c = program(0), e = program(1) * WIDE, last = c * PART + PART - 1, parts = cdiv(n, PART);\n"
    "    int here = index[last], behind = index[min(last + 1, n - 1)], before = index[max(c * PART - 1, 0)];\n"
    "    if (last + 1 < n && behind == here && (c == 0 || before != here)) {\n"
    "        tile %s total = tail[c][e : WIDE];\n"
    "        int d = c + 1;\n"
    "        while (d < parts) {\n"
    "            tile int k = keep(d + iota(JOIN), d + iota(JOIN) < parts);\n"
    "            tile bool mine = index[k * PART] == here;\n"
    "            total = %s(total + %s(sum(head[keep(k, mine)][e : WIDE], axis = 0)[0][:]));\n"
    "            d = all(mine) ? d + JOIN : parts;\n"
    "        }\n"
    "        int p = last;\n"
    "        while (p > c * PART && index[max(p - 1, 0)] == here) p = p - 1;\n"
    "        y[p][e : WIDE] = %s(total);\n"
    "    }\n"
    "}\n";

bool fuse_run_sum_kernel(arena *memory, const graph *g, node n, const fuse_view *inputs, const fuse_options *options,
                         fuse_kernel *out)
{
    const graph_node *of = graph_get(g, n);
    fuse_argument parts[4];
    fuse_view mine = fuse_view_row_major(g, n);
    for (int i = 0; i < 4; i++) {
        node from = i < 3 ? of->inputs[i] : n;
        fuse_argument a;
        if (!fuse_view_middle(g, from, i < 3 ? &inputs[i] : &mine, 0, 1, &a)) return false;
        parts[i] = (fuse_argument){.base = a.base, .rank = i % 2 ? 2 : 1, .offset = a.offset};
        for (int k = 0; k < parts[i].rank; k++) {
            parts[i].extents[k] = a.extents[k + 1];
            parts[i].strides[k] = a.strides[k + 1];
        }
    }
    const char *type = dtypes[of->elem].text, *index_type = dtypes[graph_get(g, of->inputs[0])->elem].text;
    const char *inside = dtype_is_narrow(of->elem) ? "f32" : type, *source;
    int wide = SHORT_ROW;
    while (wide < parts[3].extents[1] && wide < WIDE) wide *= 2;
    if (options->gpu)
        source = arena_print(memory, run_pieces_source, index_type, type, type, inside, inside, PART, JOIN, wide,
                             inside, inside, type, type, inside, inside, inside, type);
    else
        source = arena_print(memory, run_rows_source, index_type, type, type, inside, inside, inside, inside, type);
    *out = fuse_kernel_of(memory, g, n, "run_sum", 4);
    memcpy(out->arguments, parts, sizeof(parts));
    bool cuda = fuse_scatter_cuda_suits(options, of->elem, parts[3].extents[0], parts[3].extents[1]);
    for (int i = 0; i < 4; i++) cuda = cuda && is_row_major(&parts[i]);
    out->kernel =
        cuda ? fuse_scatter_cuda(memory, SCATTER_RUN_SUMS, graph_get(g, of->inputs[0])->elem, parts[3].extents[1])
             : fuse_from_source(memory, "run_sum", source);
    return true;
}
