/*
 * A scan along the last axis, with the arithmetic before and after it. In: a loop group with one scan and no reduction.
 * Out: a kernel in which a program takes a row: all at once where a block of a GPU holds it, else in steps, each behind
 * what came before. What comes before the first step adds nothing, to the bit.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/loop.h"
#include "fuse/sizes.h"

#define SCAN_ROW FUSE_SIZE(16384) /* the registers of a block hold it, with another block beside it */
#define SCAN_STEP FUSE_SIZE(8192)
#define SCAN_SHORT FUSE_SIZE(64)   /* rows up to here ... */
#define SCAN_TOGETHER 4            /* ... so many a program, of */
#define SCAN_MANY FUSE_SIZE(32768) /* or more */

static value nothing(lowering *l, tile_block *b, fold_kind fold, dtype elem)
{
    if (fold == FOLD_SUM && dtype_is_float(elem)) return lower_number(l, b, elem, (number){.f = -0.0});
    return lower_number(l, b, elem, fold_identity(fold, elem));
}

static qn_status in_steps(const loop *p, lowering *l, frame *row, int inner, int scan, fuse_kernel *out,
                          qn_error *error)
{
    const term *x = &p->t->terms[scan];
    dtype elem = p->t->terms[x->inputs[0]].elem;
    value before = nothing(l, row->block, x->fold, elem), next, end;
    lower_for loop = lower_for_begin(l, lower_integer(l, row->block, 0), lower_extent(l, inner),
                                     lower_integer(l, row->block, SCAN_STEP), &before, 1);
    frame *f = lower_frame(l, row, loop.body);
    f->rank = 1;
    f->dims[0] = SCAN_STEP;
    frame_tile(f, inner, 0, loop.index, true);
    value some = lower_fill(l, f, lower_broadcast(l, f, lower_term(l, f, x->inputs[0]), 1), x->fold);
    lower_bind(f, scan, lower_combine(l, f, x->fold, loop.carried[0], lower_scan(l, f, some, x), x->n));
    for (int i = 0; i < p->output_count; i++) lower_store(l, f, &p->outputs[i], lower_term(l, f, p->outputs[i].term));
    lower_checks(l, f);
    next = lower_combine(l, f, x->fold, loop.carried[0], lower_reduce(l, f, some, x->fold, x->n, 1, true), 0);
    lower_for_end(l, row->block, &loop, &next, &end);
    return lower_finish(l, out, error);
}

/* Short rows leave a thread one vector: several rows at once, where they come out even. */
static int rows_together(const loop *p, const lowering *l, int inner, const int *outer, int outer_count)
{
    int64_t rows = 1;
    for (int i = 0; i < outer_count; i++) rows *= l->extents[outer[i]];
    bool many = p->b->options->gpu && outer_count && rows >= SCAN_MANY && l->extents[inner] <= SCAN_SHORT;
    return many && l->extents[outer[outer_count - 1]] % SCAN_TOGETHER == 0 ? SCAN_TOGETHER : 1;
}

qn_status scan_kernel(const loop *p, fuse_kernel *out, qn_error *error)
{
    lowering *l = loop_begin(p);
    int outer[SPACE_AXES], inner[SPACE_AXES], scan = 0;
    int outer_count = loop_axes(p, l, p->outer, outer);
    int64_t blocks[SPACE_AXES];
    value starts[SPACE_AXES];
    CHECK(loop_axes(p, l, p->inner, inner) == 1);
    for (int i = 1; i < p->t->term_count; i++)
        if (p->t->terms[i].scan) scan = i;
    for (int i = 0; i < outer_count; i++) blocks[i] = 1;
    int rows = rows_together(p, l, inner[0], outer, outer_count);
    if (rows > 1) blocks[outer_count - 1] = rows;
    lower_phase(l);
    frame *f = lower_frame(l, NULL, NULL), *each[SCAN_TOGETHER];
    loop_programs(l, f, outer, blocks, outer_count, 0, 0, starts);
    if (l->extents[inner[0]] > SCAN_ROW) return in_steps(p, l, f, inner[0], scan, out, error);
    for (int r = 0; r < rows; r++) {
        frame *g = each[r] = lower_frame(l, f, f->block);
        g->rank = 1;
        g->dims[0] = -(int64_t)lower_extent(l, inner[0]);
        frame_tile(g, inner[0], 0, 0, false);
        if (rows == 1) continue;
        value place = lower_integer(l, f->block, r), last = starts[outer_count - 1];
        frame_scalar(g, outer[outer_count - 1], lower_op(l, f->block, OP_ADD, DT_I64, (value[]){last, place}, 2, 0));
    }
    for (int r = 0; r < rows; r++) /* all rows are on their way before the first is stored */
        for (int i = 0; i < p->output_count; i++) lower_term(l, each[r], p->outputs[i].term);
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < p->output_count; i++)
            lower_store(l, each[r], &p->outputs[i], lower_term(l, each[r], p->outputs[i].term));
        lower_checks(l, each[r]);
    }
    return lower_finish(l, out, error);
}
