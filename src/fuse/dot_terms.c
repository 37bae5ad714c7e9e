/*
 * Operands of products that are laid out anew first. In: a product whose operands the matrix units do not take as they are.
 * Out: a phase for each such operand that writes it to scratch memory, and loads from there in the loop over K.
 *
 * Products of f32 on matrix units that take bf16: x = high + middle + low, each the nearest bf16 to what is left: 24 bits,
 * as many as f32 has. Of the nine products of two such sums, three are below 2^-24 of the whole and are left out. The
 * others are added up from small to large, so that little is cut off by the matrix units, which do not round; the sum of a
 * step of 64 is then added to the sums of the tile by ordinary additions, which do. The error is less than that of one
 * multiplication and addition after the other (docs/accuracy.md).
 * Where operands may be rounded to tf32, but do not lie as its units take them, two terms and three products: 16 bits, more than
 * the 11 of tf32, and the matrix units may add to the sums of the tile themselves.
 * Terms lie as the operand does, along K or along the other axis; rows are padded to a multiple of 16 bytes with zeros,
 * which bulk copies need. An infinite or undefined number is its own high term; what it is multiplied with may then have a
 * term of zero, and the sum is undefined instead of infinite.
 * Of operands that are gathered (dot_gather.c) the one with fewer lines is laid out anew, along K; the other is split as
 * it is read.
 * A single term is a copy: of an operand whose rows are no multiple of 16 bytes, or, for tf32, one that lies along the
 * other axis than K, which is then turned.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/dot_work.h"
#include "fuse/lower_parts.h"

#include <math.h>

enum { PAD_BYTES = 16, LEAST_BLOCK = 256, MOST_BLOCK = 2048, STEP = 64, TERM_RANK = 4, TURN = 64 };

/* The last ones are those of two terms each. */
static const int pairs[][2] = {{2, 0}, {0, 2}, {1, 1}, {1, 0}, {0, 1}, {0, 0}};

bool dot_has_terms(const dot_work *w)
{
    return w->depth_count == 1 && !w->fold_count && w->tile_axis[0] >= 0 && w->tile_axis[1] >= 0;
}

static int64_t stride_of(const dot_work *w, int side, int axis)
{
    const term *x = &w->t->terms[w->terms[side]];
    const fuse_leaf *leaf = &w->b->leaves[x->n];
    affine place = index_linear(x->map, &graph_get(w->b->g, x->n)->shape, leaf->given ? leaf->strides : NULL);
    return place.factor[w->l->innermost[axis]];
}

static unsigned others_of(const dot_work *w, int side)
{
    unsigned axes = w->whole ? dot_gathered_axes(w, side) : w->t->terms[w->terms[side]].axes, others = 0;
    for (int i = 0; i < w->l->axis_count; i++)
        if (dot_is_program_axis(w, i) && axes >> w->l->innermost[i] & 1) others |= 1u << i;
    return others;
}

static value times(lowering *l, tile_block *b, value x, value y)
{
    return x ? lower_op(l, b, OP_MUL, DT_I64, (value[]){x, y}, 2, 0) : y;
}

/* The number of the program's own matrix among the others. */
static value other_place(dot_work *w, tile_block *b, unsigned others)
{
    value place = 0;
    for (int i = 0; i < w->l->axis_count; i++) {
        if (!(others >> i & 1)) continue;
        if (place) place = times(w->l, b, place, lower_extent(w->l, i));
        place =
            place ? lower_op(w->l, b, OP_ADD, DT_I64, (value[]){place, w->coordinates[i]}, 2, 0) : w->coordinates[i];
    }
    return place ? place : lower_integer(w->l, b, 0);
}

/* Programs: pieces of `block` along the inner axis, of `rows` along the outer one, the other axes, whose coordinates are
 * left in w. */
static void launch(dot_work *w, const dot_terms *s, int rows, int block)
{
    lowering *l = w->l;
    tile_block *head = l->k->head;
    value size = lower_integer(l, head, block), rest = 0, count = 0;
    value padded = lower_scalar_value(l, head, s->padded);
    value more = lower_op(l, head, OP_ADD, DT_I64, (value[]){padded, lower_integer(l, head, block - 1)}, 2, 0);
    value counts[3] = {lower_op(l, head, OP_DIV, DT_I64, (value[]){more, size}, 2, 0),
                       rows == 1 ? lower_head_extent(l, s->outer) : lower_head_parts(l, s->outer, rows)};
    for (int i = l->axis_count - 1; i >= 0; i--) {
        if (!(s->others >> i & 1)) continue;
        count = times(l, head, count, lower_head_extent(l, i));
        if (!rest) rest = lower_program(l, 2);
        bool last = !(s->others & ((1u << i) - 1));
        value extent = lower_extent(l, i);
        w->coordinates[i] = last ? rest : lower_op(l, l->phase, OP_MOD, DT_I64, (value[]){rest, extent}, 2, 0);
        if (!last) rest = lower_op(l, l->phase, OP_DIV, DT_I64, (value[]){rest, extent}, 2, 0);
    }
    counts[2] = count;
    lower_phase_launch(l, l->k->phase_count - 1, counts, count ? 3 : 2);
}

/* What is left of x without its nearest bf16; nothing of a number that is not finite. */
static value take_term(lowering *l, tile_block *b, value *x)
{
    value high = lower_convert(l, b, *x, DT_BF16), near = lower_convert(l, b, high, DT_F32);
    value rest = lower_op(l, b, OP_SUB, DT_F32, (value[]){*x, near}, 2, 0);
    value zero = lower_number(l, b, DT_F32, (number){0});
    value size = lower_op(l, b, OP_ABS, DT_F32, &rest, 1, 0),
          most = lower_number(l, b, DT_F32, (number){.f = INFINITY});
    value finite = lower_op(l, b, OP_LT, DT_BOOL, (value[]){size, most}, 2, 0);
    *x = lower_op(l, b, OP_SELECT, DT_F32, (value[]){finite, rest, zero}, 3, 0);
    return high;
}

/* The same of an element that is gathered: done again for every tile, so without a test for what is not finite. */
static value take_gathered(lowering *l, tile_block *b, value *x)
{
    value high = lower_convert(l, b, *x, DT_BF16), near = lower_convert(l, b, high, DT_F32);
    *x = lower_op(l, b, OP_SUB, DT_F32, (value[]){*x, near}, 2, 0);
    return high;
}

/* The operand as it lies in memory. */
static value stored(dot_work *w, frame *f, int side)
{
    const dot_gathered *from = &w->gathered[side];
    return w->whole ? lower_guarded(w->l, f, from->access, from->guards, from->guard_count)
                    : lower_stored(w->l, f, w->terms[side]);
}

/* Does the operand lie along this axis, with everything else a multiple of 16 bytes apart? */
static bool lies_along(const dot_work *w, int side, int axis)
{
    const term *x = &w->t->terms[w->terms[side]];
    int64_t each = PAD_BYTES / dtypes[graph_get(w->b->g, x->n)->elem].size_bytes;
    if (x->kind != TERM_ACCESS || stride_of(w, side, axis) != 1) return false;
    for (int i = 0; i < w->l->axis_count; i++)
        if (i != axis && w->l->extents[i] > 1 && stride_of(w, side, i) % each) return false;
    return true;
}

bool dot_is_slice(const dot_work *w, int side)
{
    const term *x = &w->t->terms[w->terms[side]];
    if (x->kind != TERM_ACCESS || x->guarded || w->gathered[side].guard_count || w->t->guard) return false;
    const fuse_leaf *leaf = &w->b->leaves[x->n];
    affine place = index_linear(x->map, &graph_get(w->b->g, x->n)->shape, leaf->given ? leaf->strides : NULL);
    int64_t each = PAD_BYTES / dtypes[graph_get(w->b->g, x->n)->elem].size_bytes;
    for (int i = 0; i < w->l->axis_count; i++)
        if (!lower_is_linear(w->l, &place, i)) return false;
    return (place.constant + (leaf->given ? leaf->offset : 0)) % each == 0 && lies_along(w, side, w->tile_axis[2]);
}

bool dot_is_taken(const dot_work *w, int side)
{
    const term *x = &w->t->terms[w->terms[side]];
    if (w->whole || x->kind != TERM_ACCESS || x->guarded || w->t->guard) return false;
    return stride_of(w, side, w->tile_axis[2]) == 1 || stride_of(w, side, w->tile_axis[side]) == 1;
}

bool dot_wants_copy(const dot_work *w, int side, bool along_k)
{
    return !lies_along(w, side, w->tile_axis[2]) && (along_k || !lies_along(w, side, w->tile_axis[side]));
}

bool dot_lies_well(const dot_work *w, int side)
{
    if (w->tile_axis[2] < 0) return false;
    return lies_along(w, side, w->tile_axis[2]) || (w->tile_axis[side] >= 0 && lies_along(w, side, w->tile_axis[side]));
}

static frame *copy_frame(dot_work *w, const dot_terms *s)
{
    frame *f = lower_frame(w->l, NULL, w->l->phase);
    for (int i = 0; i < w->l->axis_count; i++)
        if (s->others >> i & 1) frame_scalar(f, i, w->coordinates[i]);
    return f;
}

static value start_of(lowering *l, int program, int block)
{
    value at = lower_program(l, program);
    return block == 1 ? at
                      : lower_op(l, l->phase, OP_MUL, DT_I64, (value[]){at, lower_integer(l, l->phase, block)}, 2, 0);
}

/* A square of the operand, read as it lies and written the other way round. */
static void copy_turned(dot_work *w, const dot_terms *s, int side)
{
    lowering *l = w->l;
    launch(w, s, TURN, TURN);
    value inner = start_of(l, 0, TURN), outer = start_of(l, 1, TURN);
    frame *from = copy_frame(w, s), *to = copy_frame(w, s);
    from->rank = to->rank = 2;
    for (int i = 0; i < 2; i++) from->dims[i] = to->dims[i] = TURN;
    frame_tile(from, s->inner, 0, inner, true);
    frame_tile(from, s->outer, 1, outer, true);
    value x = lower_convert(l, l->phase, lower_stored(l, from, w->terms[side]), s->elem);
    x = lower_fill(l, from, lower_broadcast(l, from, x, 3), FOLD_SUM);
    tile_op *turn = tile_op_new(l->k, OP_PERMUTE, &x, 1);
    turn->attr.axes[0] = 1;
    turn->attr.axes[1] = 0;
    value y = tile_result(l->k, turn, frame_type(to, s->elem, 3));
    tile_append(l->k, l->phase, turn);
    value at[TERM_RANK] = {lower_integer(l, l->phase, 0), other_place(w, l->phase, s->others), outer, inner};
    lower_store_array(l, to, s->param, at, (int[]){-1, -1, 0, 1}, (bool[]){true, true, false, false}, y);
}

/* Rows of the operand, each by programs of their own, as they lie. */
static void copy_rows(dot_work *w, const dot_terms *s, int side, int block)
{
    lowering *l = w->l;
    launch(w, s, 1, block);
    frame *f = copy_frame(w, s);
    value start = start_of(l, 0, block), row = lower_program(l, 1);
    f->rank = 1;
    f->dims[0] = block;
    frame_scalar(f, s->outer, row);
    frame_tile(f, s->inner, 0, start, true);
    value x = lower_convert(l, l->phase, stored(w, f, side), s->count > 1 ? DT_F32 : s->elem);
    x = lower_fill(l, f, lower_broadcast(l, f, x, 1), FOLD_SUM);
    value other = other_place(w, l->phase, s->others);
    for (int t = 0; t < s->count; t++) {
        value at[TERM_RANK] = {lower_integer(l, l->phase, t), other, row, start};
        lower_store_array(l, f, s->param, at, (int[]){-1, -1, -1, 0}, (bool[]){true, true, true, false},
                          s->count > 1 ? take_term(l, l->phase, &x) : x);
    }
}

void dot_make_terms(dot_work *w, int side, int count, dtype elem)
{
    lowering *l = w->l;
    tile_block *head = l->k->head;
    dot_terms *s = &w->split[side];
    int own = w->tile_axis[side], depth = w->tile_axis[2], block = LEAST_BLOCK;
    bool turns = dtypes[elem].size_bytes == 2; /* either order will do */
    bool lies = w->whole || stride_of(w, side, depth) == 1 || stride_of(w, side, own) != 1, along = !turns || lies;
    *s = (dot_terms){.count = count,
                     .elem = elem,
                     .outer = along ? own : depth,
                     .inner = along ? depth : own,
                     .others = others_of(w, side)};
    int pad = PAD_BYTES / dtypes[elem].size_bytes;
    int64_t extent = (l->extents[s->inner] + pad - 1) / pad * pad;
    while (block < extent && block < MOST_BLOCK) block *= 2;
    s->padded = lower_scalar(l, side ? "right_padded" : "left_padded", extent);
    value matrices = lower_integer(l, head, 1);
    for (int i = 0; i < l->axis_count; i++)
        if (s->others >> i & 1) matrices = times(l, head, matrices, lower_head_extent(l, i));
    value extents[TERM_RANK] = {lower_integer(l, head, count), matrices, lower_head_extent(l, s->outer),
                                lower_scalar_value(l, head, s->padded)};
    s->param = lower_scratch(l, side ? "right_terms" : "left_terms", elem, extents, TERM_RANK);
    lower_phase(l);
    if (along && !lies)
        copy_turned(w, s, side);
    else
        copy_rows(w, s, side, block);
    for (int i = 0; i < l->axis_count; i++)
        if (s->others >> i & 1) w->coordinates[i] = 0;
}

static value bound(lowering *l, frame *f, int tile_axis, value start, value extent)
{
    tile_op *op = tile_op_new(l->k, OP_BOUND, (value[]){start, lower_integer(l, f->block, 1), extent}, 3);
    op->attr.index = tile_axis;
    value v = tile_result(l->k, op, frame_type(f, DT_BOOL, 1u << tile_axis));
    tile_append(l->k, f->block, op);
    return v;
}

/* A term of an operand as the product takes it: 0 where there is nothing. */
value dot_load_term(dot_work *w, frame *f, int side, int which)
{
    lowering *l = w->l;
    const dot_terms *s = &w->split[side];
    int depth = w->tile_axis[2], depth_axis = side ? 0 : 1; /* of the tile */
    value starts[2] = {w->starts[side], w->coordinates[depth]};
    bool along = s->inner == depth;
    value outer = starts[!along], inner = starts[along];
    int outer_axis = along ? 1 - depth_axis : depth_axis, inner_axis = 1 - outer_axis;
    value at[TERM_RANK] = {lower_integer(l, f->block, which), other_place(w, f->block, s->others), outer, inner};
    value x = lower_load_array(l, f, s->param, at, (int[]){-1, -1, outer_axis, inner_axis},
                               (bool[]){true, true, false, false});
    value mask = lower_op(l, f->block, OP_AND, DT_BOOL,
                          (value[]){bound(l, f, outer_axis, outer, lower_extent(l, s->outer)),
                                    bound(l, f, inner_axis, inner, lower_scalar_value(l, f->block, s->padded))},
                          2, 0);
    value zero = lower_number(l, f->block, s->elem, (number){0});
    return lower_op(l, f->block, OP_SELECT, s->elem, (value[]){mask, x, zero}, 3, 0);
}

static void find_terms(dot_work *w, frame *f, int side, value *terms)
{
    lowering *l = w->l;
    bool read = !w->split[side].count; /* split as it is read, for every tile again */
    value x = read ? lower_fill(l, f, lower_broadcast(l, f, stored(w, f, side), 3), FOLD_SUM) : 0;
    for (int t = 0; t < w->term_count; t++) {
        bool tests = !t && !w->whole; /* what is left of a finite number is finite */
        if (read) terms[t] = tests ? take_term(l, f->block, &x) : take_gathered(l, f->block, &x);
        if (!read) terms[t] = dot_load_term(w, f, side, t);
    }
}

value dot_add_terms(dot_work *w, tile_block *block, value carried)
{
    lowering *l = w->l;
    frame *frames[2] = {dot_frame_over(w, block, 0, 2), dot_frame_over(w, block, 2, 1)};
    bool exact = w->term_count == DOT_TERMS;
    value terms[2][DOT_TERMS], step = exact ? 0 : carried;
    CHECK(w->tiles.depth == STEP);
    for (int side = 0; side < 2; side++) find_terms(w, frames[side], side, terms[side]);
    for (int i = COUNT(pairs) - dot_term_products(w->term_count); i < COUNT(pairs); i++) {
        value operands[3] = {terms[0][pairs[i][0]], terms[1][pairs[i][1]], step};
        tile_op *op = tile_op_new(l->k, OP_DOT, operands, step ? 3 : 2);
        op->line = lower_line(l, w->dot);
        op->column = 1;
        step = tile_result(l->k, op, tile_type_of(l->k, carried));
        tile_append(l->k, block, op);
    }
    return exact ? lower_op(l, block, OP_ADD, DT_F32, (value[]){carried, step}, 2, 0) : step;
}
