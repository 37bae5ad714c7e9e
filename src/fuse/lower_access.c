/*
 * Loads and stores. In: an access of a term, an output, an array of the builder's own. Out: the load's value, or the store
 * in the frame's block; the arrays become parameters of the kernel.
 *
 * An array that is read at coordinates which are affine and inside becomes a strided view over exactly the kernel axes
 * it depends on, the widest stride first. Under a pad, a concat or a gather it is a view over its own axes, and indices
 * are computed; what lies outside is not touched, by the rules of the IR.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/lower_parts.h"

#include <stdlib.h>
#include <string.h>

/* An access under construction: its operands and the tile axes it reaches. */
typedef struct reach {
    access access;
    value operands[3 + 3 * MAX_RANK];
    int operand_count;
    unsigned tile_axes;
    int64_t line; /* elements of all rows of the tile, which are one line of memory; 0: they are not */
} reach;

static void reach_scalar(reach *r, value at, bool safe)
{
    int i = r->access.rank++;
    r->access.kind[i] = INDEX_SCALAR;
    r->access.safe[i] = safe;
    r->operands[r->operand_count++] = at;
}

static void reach_slice(lowering *l, frame *f, reach *r, value start, value step, int tile_axis, bool safe)
{
    int i = r->access.rank++;
    r->access.kind[i] = INDEX_SLICE;
    r->access.result_axis[i] = tile_axis;
    r->access.safe[i] = safe;
    r->operands[r->operand_count++] = start ? start : lower_integer(l, f->block, 0);
    r->operands[r->operand_count++] = step ? step : lower_integer(l, f->block, 1);
    r->tile_axes |= 1u << tile_axis;
}

static void reach_tile(lowering *l, reach *r, value at)
{
    int i = r->access.rank++;
    tile_type type = tile_type_of(l->k, at);
    r->access.kind[i] = INDEX_TILE;
    r->operands[r->operand_count++] = at;
    for (int k = 0; k < type.rank; k++)
        if (type.dims[k] != 1) r->tile_axes |= 1u << k;
}

static int by_stride(const void *a, const void *b)
{
    const int64_t *x = a, *y = b; /* stride, kernel axis */
    int64_t p = llabs(x[0]), q = llabs(y[0]);
    return p != q ? (p < q ? 1 : -1) : x[1] < y[1] ? -1 : x[1] > y[1];
}

/* Places of one array that differ by constants (the elements of a window): axes of the view, each with a literal index. */
typedef struct family {
    int count;
    int64_t strides[GRAPH_RANK], extents[GRAPH_RANK], at[GRAPH_RANK];
} family;

/* Do two maps differ in their constants alone? */
static bool are_neighbours(const index_map *a, const index_map *b)
{
    for (int k = 0; k < a->rank; k++) {
        affine x = a->axes[k];
        x.constant = b->axes[k].constant;
        if (!affine_same(&x, &b->axes[k])) return false;
    }
    return true;
}

static bool is_whole(const term *x)
{
    bool whole = !x->guarded;
    for (int k = 0; k < x->map->rank; k++) whole &= !affine_has_atoms(&x->map->axes[k]);
    return whole;
}

/* The family of an access; *place becomes that of its first member. */
static family family_of(const lowering *l, const term *x, affine *place)
{
    family all = {0};
    int64_t low[GRAPH_RANK], high[GRAPH_RANK];
    int rank = x->map->rank;
    if (l->t->unroll == UNROLL_NONE) return all;
    for (int k = 0; k < rank; k++) low[k] = high[k] = x->map->axes[k].constant;
    for (int i = 1; i < l->t->term_count; i++) {
        const term *y = &l->t->terms[i];
        if (y->kind != TERM_ACCESS || y->n != x->n || !is_whole(y) || !are_neighbours(x->map, y->map)) continue;
        for (int k = 0; k < rank; k++) {
            low[k] = MINIMUM(low[k], y->map->axes[k].constant);
            high[k] = MAXIMUM(high[k], y->map->axes[k].constant);
        }
    }
    index_map first = *x->map;
    for (int k = 0; k < rank; k++) {
        if (low[k] == high[k]) continue;
        index_map unit = {.rank = rank};
        unit.axes[k].constant = 1;
        const index_map zero = {.rank = rank};
        all.strides[all.count] = lower_place(l, x->n, &unit).constant - lower_place(l, x->n, &zero).constant;
        all.extents[all.count] = high[k] - low[k] + 1;
        all.at[all.count++] = first.axes[k].constant - low[k];
        first.axes[k].constant = low[k];
    }
    *place = lower_place(l, x->n, &first);
    return all;
}

enum { LINE_BYTES = 128 /* of channels, that the copy engine brings at once */, MOST_TAPS = 16 };

/* The digits of one kernel axis; neighbours that all sums go through as one are one. */
static axis_digits digits_of(const lowering *l, const affine *place, const affine *guards, int guard_count, int axis)
{
    const space *s = &l->t->space;
    axis_digits d = {0};
    for (int n = 0; n < s->axis_count; n++) {
        int i = l->order[n];
        if (l->axis_of[i] != axis) continue;
        int64_t extent = s->axes[i].extent, last = d.count - 1;
        bool joins = d.count && d.stride[last] == place->factor[i] * extent;
        for (int g = 0; g < guard_count && joins; g++) joins = d.guard[g][last] == guards[g].factor[i] * extent;
        int to = joins ? (int)last : d.count++;
        if (d.count > DIGITS_MOST) return d;
        d.extent[to] = joins ? d.extent[to] * extent : extent;
        d.stride[to] = place->factor[i];
        for (int g = 0; g < guard_count; g++) d.guard[g][to] = guards[g].factor[i];
    }
    return d;
}

/* Elements of windows, before the channels along memory that the copy engine brings at once? */
static bool has_channels(const axis_digits *d, dtype elem)
{
    int last = d->count - 1, line = LINE_BYTES / dtypes[elem].size_bytes;
    return last > 0 && last < DIGITS_MOST && d->stride[last] == 1 && d->extent[last] % line == 0;
}

/* The first digit of an axis is whatever is left: the text is the same for all batches. What the copy engine walks it has to know:
 * elements of windows, and of one image the places that padding ties to it. */
static void forget_first(param_digits *d, int axis_count, dtype elem)
{
    bool channels = false;
    for (int i = 0; i < axis_count; i++) channels |= has_channels(&d->axes[i], elem);
    for (int i = 0; i < axis_count; i++) {
        axis_digits *x = &d->axes[i];
        bool kept = has_channels(x, elem) && x->extent[0] <= MOST_TAPS;
        for (int g = 0; g < d->guard_count && channels; g++) kept |= x->guard[g][0] != 0 && !has_channels(x, elem);
        if (!kept) x->extent[0] = 0;
    }
}

/* A place in memory that counts through kernel axes digit by digit, or exists only where sums lie inside. */
static void reach_digits(lowering *l, frame *f, param_kind kind, node base, const affine *place, const term *inside,
                         int guard_count, reach *r)
{
    param_digits *d = ARENA_NEW(l->memory, param_digits);
    affine guards[GUARDS_MOST];
    int axes[SPACE_AXES];
    d->guard_count = guard_count;
    for (int g = 0; g < guard_count; g++) {
        guards[g] = inside[g].index;
        d->guard_first[g] = guards[g].constant - inside[g].low;
        d->guard_extent[g] = inside[g].high - inside[g].low;
    }
    d->origin = MINIMUM(place->constant, 0);
    fuse_argument view = {.base = base, .offset = place->constant - d->origin};
    for (int i = 0; i < l->axis_count; i++) {
        axis_digits digits = digits_of(l, place, guards, guard_count, i);
        bool used = false;
        if (digits.count > DIGITS_MOST) l->why = "an axis of the product has too many pieces";
        for (int k = 0; k < digits.count; k++) {
            used |= digits.stride[k] != 0;
            for (int g = 0; g < guard_count; g++) used |= digits.guard[g][k] != 0;
        }
        if (!used) continue;
        d->axes[view.rank] = digits;
        view.extents[view.rank] = l->extents[i];
        axes[view.rank++] = i;
    }
    forget_first(d, view.rank, graph_get(l->t->g, base)->elem);
    int64_t step = 1;
    for (int i = view.rank - 1; i >= 0; i--) { /* the positions of what is written lie apart */
        view.strides[i] = kind == PARAM_IN ? 0 : step;
        step *= MAXIMUM(view.extents[i], 1);
    }
    if (l->why) return;
    r->access.array = lower_array(l, kind, base, &view, axes, d);
    if (r->access.array < 0) return;
    for (int i = 0; i < view.rank; i++) {
        const lower_axis *x = &f->axes[axes[i]];
        CHECK(x->set);
        if (x->tile)
            reach_slice(l, f, r, x->start, 0, x->tile_axis, !x->outside);
        else
            reach_scalar(r, x->start, true);
    }
}

/* Rows of the frame that lie one behind the other: its two axes are one axis of the view. axes: stride and kernel axis, the
 * widest first. */
static bool reach_line(lowering *l, frame *f, param_kind kind, node base, const affine *place, int64_t (*axes)[2],
                       int count, reach *r)
{
    if (!f->lines || count < 2) return false;
    int order[MAX_RANK], row = (int)axes[count - 2][1], inner = (int)axes[count - 1][1];
    const lower_axis *x = &f->axes[row], *y = &f->axes[inner];
    if (!x->tile || x->tile_axis != 0 || !y->tile || y->tile_axis != 1 || axes[count - 1][0] != 1 ||
        axes[count - 2][0] != f->dims[1])
        return false;
    fuse_argument view = {.base = base, .rank = count - 1, .offset = place->constant};
    for (int i = 0; i < count - 2; i++) {
        order[i] = (int)axes[i][1];
        view.extents[i] = l->extents[order[i]];
        view.strides[i] = axes[i][0];
    }
    order[count - 2] = -1;
    view.extents[count - 2] = l->extents[row] * f->dims[1];
    view.strides[count - 2] = 1;
    r->access.array = lower_array(l, kind, base, &view, order, NULL);
    if (r->access.array < 0) return true;
    for (int i = 0; i < count - 2; i++) reach_scalar(r, f->axes[order[i]].start, true);
    value length = lower_integer(l, f->block, f->dims[1]);
    value start = lower_op(l, f->block, OP_MUL, DT_I64, (value[]){x->start, length}, 2, 0);
    reach_slice(l, f, r, start, 0, 0, false);
    r->tile_axes = 3;
    r->line = f->dims[0] * f->dims[1];
    return true;
}

/* Everything of a place in memory that depends on kernel axes alone: one strided view. */
static void reach_view(lowering *l, frame *f, param_kind kind, node base, const affine *place, const family *near,
                       reach *r)
{
    int64_t axes[SPACE_AXES][2];
    int count = 0, order[MAX_RANK], first = near ? near->count : 0;
    for (int i = 0; i < l->axis_count; i++) {
        if (lower_is_linear(l, place, i)) continue;
        reach_digits(l, f, kind, base, place, NULL, 0, r);
        return;
    }
    for (int i = 0; i < l->axis_count; i++) {
        int64_t stride = lower_axis_factor(l, place, i);
        if (!stride) continue;
        axes[count][0] = stride;
        axes[count++][1] = i;
    }
    qsort(axes, (size_t)count, sizeof(axes[0]), by_stride);
    if (!first && reach_line(l, f, kind, base, place, axes, count, r)) return;
    if (first + count > MAX_RANK) {
        l->why = "a window has more axes than an array can have";
        return;
    }
    fuse_argument view = {.base = base, .rank = first + count, .offset = place->constant};
    for (int i = 0; i < first; i++) {
        order[i] = -1;
        view.extents[i] = near->extents[i];
        view.strides[i] = near->strides[i];
    }
    for (int i = 0; i < count; i++) {
        order[first + i] = (int)axes[i][1];
        view.extents[first + i] = l->extents[order[first + i]];
        view.strides[first + i] = axes[i][0];
    }
    r->access.array = lower_array(l, kind, base, &view, order, NULL);
    if (r->access.array < 0) return;
    for (int i = 0; i < first; i++) reach_scalar(r, lower_integer(l, f->block, near->at[i]), true);
    for (int i = first; i < first + count; i++) {
        const lower_axis *x = &f->axes[order[i]];
        CHECK(x->set);
        if (x->tile && x->digit) {
            reach_tile(l, r, x->digit);
            r->access.safe[r->access.rank - 1] = true;
        } else if (x->tile)
            reach_slice(l, f, r, x->start, 0, x->tile_axis, !x->outside);
        else
            reach_scalar(r, x->start, true);
    }
}

/* Index tiles of elements that do not exist are not looked at. */
static void reach_existing(lowering *l, frame *f, reach *r)
{
    bool tiles = false;
    for (int i = 0; i < r->access.rank; i++) tiles |= r->access.kind[i] == INDEX_TILE;
    value mask = tiles ? lower_mask_of(l, f, r->tile_axes) : 0;
    if (!mask) return;
    r->operands[r->operand_count++] = mask;
    r->access.mask_count++;
}

/* Under a pad or a concat a coordinate may lie outside: what is selected away later is not read now. */
static void reach_guard(lowering *l, frame *f, reach *r)
{
    int operand = 0, rank = r->access.rank;
    for (int i = 0; i < rank; i++) {
        value at = r->operands[operand];
        operand += r->access.kind[i] == INDEX_SLICE ? 2 : 1;
        if (r->access.kind[i] == INDEX_SLICE || r->access.safe[i]) continue;
        value extent = lower_scalar_value(l, f->block, l->k->params[r->access.array].extent_param[i]);
        value zero = lower_integer(l, f->block, 0);
        value low = lower_op(l, f->block, OP_GE, DT_BOOL, (value[]){at, zero}, 2, 0);
        value high = lower_op(l, f->block, OP_LT, DT_BOOL, (value[]){at, extent}, 2, 0);
        r->operands[r->operand_count++] = lower_op(l, f->block, OP_AND, DT_BOOL, (value[]){low, high}, 2, 0);
        r->access.mask_count++;
    }
}

/* Does the condition say that the coordinate lies inside an axis of this extent? */
static bool says_inside(const trace *t, int condition, const affine *a, int64_t extent)
{
    const term *x = &t->terms[condition];
    if (x->kind == TERM_INSIDE) return x->low >= 0 && x->high <= extent && affine_same(&x->index, a);
    if (x->kind != TERM_OP || x->op != OP_AND) return false;
    return says_inside(t, x->inputs[0], a, extent) || says_inside(t, x->inputs[1], a, extent);
}

/* An axis of a view for an access by computed indices: of the node, with its own coordinate, or a kernel axis. */
typedef struct own_axis {
    int64_t stride, extent;
    int axis, kernel_axis; /* one of them is -1 */
} own_axis;

static int by_own_stride(const void *a, const void *b)
{
    const own_axis *x = a, *y = b;
    int64_t p = llabs(x->stride), q = llabs(y->stride);
    if (p != q) return p < q ? 1 : -1;
    return x->axis != y->axis ? (x->axis < y->axis ? -1 : 1) : x->kernel_axis - y->kernel_axis;
}

static int own_axes_of(const lowering *l, const term *x, own_axis *list, int64_t *offset)
{
    const graph_node *n = graph_get(l->t->g, x->n);
    const affine zero = {0};
    index_map unit = {.rank = n->shape.rank};
    affine inside = lower_inside_place(l, x);
    int count = 0;
    *offset = lower_place(l, x->n, &unit).constant;
    for (int i = 0; i < l->axis_count; i++) {
        int64_t stride = lower_axis_factor(l, &inside, i);
        if (stride) list[count++] = (own_axis){stride, l->extents[i], -1, i};
    }
    for (int k = 0; k < n->shape.rank; k++) {
        if (lower_axis_is_inside(l, x, k)) continue;
        if (n->shape.extents[k] == 1 && affine_same(&x->map->axes[k], &zero)) continue;
        unit.axes[k].constant = 1;
        list[count++] = (own_axis){lower_place(l, x->n, &unit).constant - *offset, n->shape.extents[k], k, -1};
        unit.axes[k].constant = 0;
    }
    qsort(list, (size_t)count, sizeof(*list), by_own_stride);
    return count;
}

static void reach_coordinate(lowering *l, frame *f, const affine *a, bool inside, reach *r)
{
    value start;
    int tile_axis;
    int64_t step;
    bool simple = lower_affine_parts(l, f, a, &start, &tile_axis, &step);
    bool taken = tile_axis >= 0 && r->tile_axes >> tile_axis & 1; /* two slices cannot share an axis */
    if (!simple || taken)
        reach_tile(l, r, lower_affine(l, f, a));
    else if (tile_axis >= 0)
        reach_slice(l, f, r, start, lower_size(l, f->block, step), tile_axis, inside);
    else
        reach_scalar(r, start ? start : lower_integer(l, f->block, 0), inside);
}

/* Each axis of the node that may be left by its own coordinate; the others together, along kernel axes. */
static void reach_own(lowering *l, frame *f, param_kind kind, const term *x, reach *r)
{
    own_axis list[SPACE_AXES + GRAPH_RANK];
    int kernel_axes[MAX_RANK], count;
    fuse_argument view = {.base = x->n};
    count = view.rank = own_axes_of(l, x, list, &view.offset);
    if (count > MAX_RANK) {
        l->why = "an access has more axes than an array can have";
        return;
    }
    for (int i = 0; i < count; i++) {
        kernel_axes[i] = list[i].kernel_axis;
        view.extents[i] = list[i].extent;
        view.strides[i] = list[i].stride;
    }
    r->access.array = lower_array(l, kind, x->n, &view, kernel_axes, NULL);
    if (r->access.array < 0) return;
    for (int i = 0; i < count; i++) {
        const lower_axis *along = list[i].axis < 0 ? &f->axes[list[i].kernel_axis] : NULL;
        CHECK(!along || along->set);
        if (!along) {
            const affine *a = &x->map->axes[list[i].axis];
            bool inside = !affine_has_atoms(a),
                 known = f->inside || (f->rows_inside && lower_is_same_for_tile(l, f, a));
            inside &= known || (x->input_count && says_inside(l->t, x->inputs[0], a, list[i].extent));
            reach_coordinate(l, f, a, inside, r);
        } else if (along->digit) {
            reach_tile(l, r, along->digit);
            r->access.safe[r->access.rank - 1] = true;
        } else if (!along->tile)
            reach_scalar(r, along->start, true);
        else if (r->tile_axes >> along->tile_axis & 1)
            reach_tile(l, r, lower_sum(l, f->block, along->start, lower_iota(l, f, along->tile_axis)));
        else
            reach_slice(l, f, r, along->start, 0, along->tile_axis, !along->outside);
    }
    if (x->guarded && !x->input_count) reach_guard(l, f, r);
    reach_existing(l, f, r);
    if (x->input_count && !f->inside) {
        value mask = lower_term(l, f, x->inputs[0]);
        tile_type type = tile_type_of(l->k, mask);
        r->tile_axes |= lower_own_axes(&type);
        r->operands[r->operand_count++] = mask;
        r->access.mask_count++;
    }
}

/* Do neighbours in memory lie along the first axis of a frame that turns such loads? */
static bool is_turned(const frame *f, const reach *r)
{
    int last = r->access.rank - 1;
    if (!f->turns || f->rank != 2 || r->tile_axes != 3 || r->access.mask_count) return false;
    for (int i = 0; i <= last; i++)
        if (r->access.kind[i] == INDEX_TILE) return false;
    return r->access.kind[last] == INDEX_SLICE && r->access.result_axis[last] == 0;
}

/* The same elements, in another shape. */
static value reshape(lowering *l, frame *f, value v, tile_type type)
{
    tile_op *op = tile_op_new(l->k, OP_RESHAPE, &v, 1);
    value y = tile_result(l->k, op, type);
    tile_append(l->k, f->block, op);
    return y;
}

static tile_type line_type(dtype elem, int64_t count)
{
    tile_type type = scalar_type(elem);
    type.rank = 1;
    type.dims[0] = count;
    return type;
}

static value load(lowering *l, frame *f, reach *r, dtype elem)
{
    bool turned = is_turned(f, r);
    tile_type type = frame_type(f, elem, r->tile_axes), own = r->line ? line_type(elem, r->line) : type;
    for (int i = 0; turned && i < 2; i++) own.dims[i] = type.dims[1 - i];
    for (int i = 0; turned && i < r->access.rank; i++)
        if (r->access.kind[i] == INDEX_SLICE) r->access.result_axis[i] = 1 - r->access.result_axis[i];
    tile_op *op = tile_op_new(l->k, OP_LOAD, r->operands, r->operand_count);
    op->attr.access = r->access;
    value v = tile_result(l->k, op, own);
    tile_append(l->k, f->block, op);
    if (r->line) return reshape(l, f, v, type);
    if (!turned) return v;
    tile_op *turn = tile_op_new(l->k, OP_PERMUTE, &v, 1);
    turn->attr.axes[0] = 1;
    turn->attr.axes[1] = 0;
    value y = tile_result(l->k, turn, type);
    tile_append(l->k, f->block, turn);
    return y;
}

value lower_load_term(lowering *l, frame *f, const term *x)
{
    const graph_node *n = graph_get(l->t->g, x->n);
    reach r = {0};
    affine place = lower_place(l, x->n, x->map);
    if (is_whole(x)) {
        family near = family_of(l, x, &place);
        reach_view(l, f, PARAM_IN, x->n, &place, &near, &r);
    } else {
        reach_own(l, f, PARAM_IN, x, &r);
    }
    if (l->why) return lower_number(l, f->block, n->elem, (number){0});
    return load(l, f, &r, n->elem);
}

static void store(lowering *l, frame *f, reach *r, value v, node n)
{
    memmove(r->operands + 1, r->operands, sizeof(value) * (size_t)r->operand_count);
    r->operands[0] = lower_broadcast(l, f, v, r->tile_axes);
    if (r->line) r->operands[0] = reshape(l, f, r->operands[0], line_type(tile_type_of(l->k, v).elem, r->line));
    r->access.first_index = 1;
    tile_op *op = tile_op_new(l->k, OP_STORE, r->operands, r->operand_count + 1);
    op->attr.access = r->access;
    lower_note(l, op, n);
    tile_append(l->k, f->block, op);
}

void lower_store(lowering *l, frame *f, const lower_output *out, value v)
{
    const graph_node *x = graph_get(l->t->g, out->n);
    affine place = index_linear(&out->map, &x->shape, NULL);
    reach r = {0};
    if (l->t->strip_axes) {
        term written = {.kind = TERM_ACCESS, .n = out->n, .map = &out->map, .inputs = {out->within}};
        written.input_count = out->within != 0;
        reach_own(l, f, PARAM_OUT, &written, &r);
    } else {
        reach_view(l, f, PARAM_OUT, out->n, &place, NULL, &r);
    }
    if (l->why) return;
    store(l, f, &r, lower_convert(l, f->block, v, x->elem), out->n);
}

static void reach_array(lowering *l, frame *f, int param, const value *scalar, const int *axis, const bool *safe,
                        reach *r)
{
    r->access.array = param;
    for (int i = 0; i < l->k->params[param].rank; i++) {
        if (axis[i] < 0)
            reach_scalar(r, scalar[i], safe[i]);
        else
            reach_slice(l, f, r, scalar[i], 0, axis[i], safe[i]);
    }
}

value lower_load_array(lowering *l, frame *f, int param, const value *scalar, const int *axis, const bool *safe)
{
    reach r = {0};
    reach_array(l, f, param, scalar, axis, safe, &r);
    return load(l, f, &r, l->k->params[param].elem);
}

void lower_store_array(lowering *l, frame *f, int param, const value *scalar, const int *axis, const bool *safe,
                       value v)
{
    reach r = {0};
    reach_array(l, f, param, scalar, axis, safe, &r);
    store(l, f, &r, v, 0);
}

value lower_guarded(lowering *l, frame *f, int id, const int *guards, int guard_count)
{
    const term *x = &l->t->terms[id];
    dtype elem = graph_get(l->t->g, x->n)->elem;
    affine place = lower_place(l, x->n, x->map);
    term inside[GUARDS_MOST];
    reach r = {0};
    CHECK(guard_count <= GUARDS_MOST);
    for (int g = 0; g < guard_count; g++) inside[g] = l->t->terms[guards[g]];
    reach_digits(l, f, PARAM_IN, x->n, &place, inside, guard_count, &r);
    if (l->why) return lower_number(l, f->block, elem, (number){0});
    return load(l, f, &r, elem);
}
