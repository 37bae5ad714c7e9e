/*
 * Joining parts of late folds. In: the folds, and what each program of the phase before has left of its rows. Out: scratch
 * arrays, and phases: a program for a block of the last kept axis, or one for a fold that keeps nothing; then what follows
 * from the joined values. Pairs (pair.c) are joined after the folds that they wait for.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/column_parts.h"
#include "fuse/sizes.h"

#define JOIN_COLUMNS FUSE_SIZE(64)
#define JOIN_BLOCK FUSE_SIZE(2048)

/* Sums of a CPU's programs go in blocks of so many turns; a GPU has programs for all turns and no registers for more. */
int parts_sum_levels(const loop *p)
{
    return p->b->options->gpu ? 0 : 1;
}

/* So do a CPU's parts, of which there are more with every thread: a row of a tile for each program. */
#define JOIN_SUM_BLOCK FUSE_SIZE(32)
static int join_levels(const loop *p, const parts *c)
{
    int64_t turns = (c->part_count + c->join_rows - 1) / c->join_rows;
    if (!parts_sum_levels(p) || turns <= JOIN_SUM_BLOCK) return 0;
    return turns <= JOIN_SUM_BLOCK * JOIN_SUM_BLOCK ? 1 : 2;
}

dtype parts_elem(const loop *p, int fold)
{
    return p->t->terms[p->t->terms[fold].inputs[0]].elem;
}

value parts_identity(const loop *p, lowering *l, tile_block *b, int fold)
{
    dtype elem = parts_elem(p, fold);
    return lower_number(l, b, elem, fold_identity(p->t->terms[fold].fold, elem));
}

value parts_identity_beside(lowering *l, tile_block *b, pair_kind kind)
{
    number none = kind == PAIR_EXPONENTS ? fold_identity(FOLD_MAX, DT_F32) : (number){.f = 0};
    return lower_number(l, b, DT_F32, none);
}

void parts_find(const loop *p, lowering *l, parts *c)
{
    for (int i = 1; i < p->t->term_count; i++) {
        const term *x = &p->t->terms[i];
        if (x->kind != TERM_FOLD || !x->folded || (x->folded == p->inner && p->inner)) continue;
        if (c->count == LOWER_ARRAYS - 1 || x->fold == FOLD_ARGMAX || x->fold == FOLD_ARGMIN) {
            l->why = "a position along axes that do not lie together";
            return;
        }
        c->kept[c->count] = x->axes & p->inner;
        c->kinds[c->count] = x->fold;
        c->folds[c->count++] = i;
    }
    c->carried = c->count;
    bool squares = false;
    for (int i = 0; i < c->count && loop_carries_pairs(p); i++) {
        if (!loop_find_pair(p, c->folds[i], &c->pairs[i])) continue;
        if (c->carried > LOWER_ARRAYS - 2) {
            l->why = "too many reductions at once";
            return;
        }
        squares |= c->pairs[i].kind == PAIR_SQUARES;
        c->kinds[c->carried] = FOLD_MAX; /* nothing is added up in blocks */
        c->beside_at[i] = c->carried++;
    }
    if (squares) {
        c->kinds[c->carried] = FOLD_MAX;
        c->count_at = c->carried++;
    }
}

static void scratch_of(const loop *p, lowering *l, parts *c, const char *name, const int *kept, int kept_count)
{
    c->part_param = lower_scalar(l, arena_print(l->memory, "%ss", name), c->part_count);
    value head_parts = lower_scalar_value(l, l->k->head, c->part_param);
    for (int i = 0; i < c->count; i++) {
        value extents[MAX_RANK] = {head_parts};
        int rank = 1;
        for (int k = 0; k < kept_count && c->kept[i] && rank < MAX_RANK; k++)
            extents[rank++] = lower_head_extent(l, kept[k]);
        dtype elem = parts_elem(p, c->folds[i]);
        c->scratch[i] = lower_scratch(l, arena_print(l->memory, "%s%d", name, i), elem, extents, rank);
        if (!c->pairs[i].kind) continue;
        c->beside[i] = lower_scratch(l, arena_print(l->memory, "%s%d_beside", name, i), DT_F32, extents, rank);
        if (c->pairs[i].kind == PAIR_SQUARES && !c->counts)
            c->counts = lower_scratch(l, arena_print(l->memory, "%s_rows", name), DT_F32, extents, rank);
    }
}

void parts_make_scratch(const loop *p, lowering *l, parts *c, const int *kept, int kept_count)
{
    scratch_of(p, l, c, "part", kept, kept_count);
    if (!p->b->options->gpu || !kept_count || c->part_count <= PARTS_MOST) return;
    for (int i = 0; i < c->count; i++)
        if (!c->kept[i]) return;
    c->gathered = ARENA_NEW(l->memory, parts);
    *c->gathered = *c;
    c->gathered->counts = 0;
    c->gathered->part_count = (c->part_count + PARTS_TOGETHER - 1) / PARTS_TOGETHER;
    scratch_of(p, l, c->gathered, "whole", kept, kept_count);
}

bool parts_is_late(const loop *p, int i)
{
    return p->late[p->outputs[i].term];
}

static bool output_is_wide(const loop *p, int i)
{
    for (int k = 0; k < p->outputs[i].map.rank; k++)
        if (affine_axes(&p->outputs[i].map.axes[k], p->t->atom_axes) & p->inner) return true;
    return false;
}

/* ---- joining ---- */

/* What parts add to a fold; about: of a pair, what is known by then. */
static value load_part(lowering *l, frame *f, const parts *c, int i, value about, const value *at, const int *axis,
                       const bool *safe)
{
    pair_state part = {lower_load_array(l, f, c->scratch[i], at, axis, safe), 0};
    pair_kind kind = c->pairs[i].kind;
    if (!kind) return part.fold;
    part.beside = lower_load_array(l, f, c->beside[i], at, axis, safe);
    value count = kind == PAIR_SQUARES ? lower_load_array(l, f, c->counts, at, axis, safe) : 0;
    return pair_join(l, f, kind, about, count, &part);
}

/* The joined value of a fold that keeps nothing, in any frame: a block of parts at a time. */
static value join_scalar(const loop *p, lowering *l, frame *f, const parts *c, int i, value part_count)
{
    const term *x = &p->t->terms[c->folds[i]];
    value about = c->pairs[i].kind ? lower_term(l, f, c->pairs[i].about) : 0;
    frame *whole = lower_frame(l, f, f->block);
    whole->rank = 1;
    whole->dims[0] = JOIN_BLOCK;
    value carried = lower_broadcast(l, whole, parts_identity(p, l, f->block, c->folds[i]), 1), sum;
    lower_for loop = lower_for_begin(l, lower_integer(l, f->block, 0), part_count,
                                     lower_integer(l, f->block, JOIN_BLOCK), &carried, 1);
    frame *g = lower_frame(l, whole, loop.body);
    g->rank = 1;
    g->dims[0] = JOIN_BLOCK;
    int axis = 0;
    bool safe = false;
    value some = load_part(l, g, c, i, about, &loop.index, &axis, &safe);
    value next = lower_combine(l, g, x->fold, loop.carried[0], some, 0);
    next = lower_keep_beyond(l, g, loop.index, part_count, next, loop.carried[0]);
    lower_for_end(l, f->block, &loop, &next, &sum);
    return lower_reduce(l, whole, sum, x->fold, x->n, 1, true);
}

static void join_scalars(const loop *p, lowering *l, frame *f, const parts *c, value part_count)
{
    for (int pairs = 0; pairs < 2; pairs++)
        for (int i = 0; i < c->count; i++)
            if (!c->kept[i] && (c->pairs[i].kind != PAIR_NONE) == pairs)
                lower_bind(f, c->folds[i], join_scalar(p, l, f, c, i, part_count));
}

static void join_phase_scalars(const loop *p, lowering *l, const parts *c)
{
    lower_phase(l);
    frame *f = lower_frame(l, NULL, NULL);
    value one = lower_integer(l, l->k->head, 1);
    lower_phase_launch(l, l->k->phase_count - 1, &one, 1);
    join_scalars(p, l, f, c, lower_scalar_value(l, l->phase, c->part_param));
    for (int i = 0; i < p->output_count; i++)
        if (parts_is_late(p, i) && !output_is_wide(p, i))
            lower_store(l, f, &p->outputs[i], lower_term(l, f, p->outputs[i].term));
}

/* One read of the parts of a block of columns: of all folds that wait for nothing, or of all pairs. */
static void join_columns(const loop *p, lowering *l, frame *f, const parts *c, const value *starts, int kept_count,
                         int last, bool pairs, value part_count)
{
    value carried[LOWER_ARRAYS], next[LOWER_ARRAYS], results[LOWER_ARRAYS], about[LOWER_ARRAYS];
    int which[LOWER_ARRAYS], count = 0;
    fold_kind kinds[LOWER_ARRAYS];
    for (int i = 0; i < c->count; i++) {
        if (!c->kept[i] || (c->pairs[i].kind != PAIR_NONE) != pairs) continue;
        frame wide = *f;
        wide.dims[0] = c->join_rows;
        carried[count] = lower_broadcast(l, &wide, parts_identity(p, l, f->block, c->folds[i]), 3);
        about[count] = pairs ? lower_term(l, f, c->pairs[i].about) : 0;
        kinds[count] = c->kinds[i];
        which[count++] = i;
    }
    if (!count) return;
    lower_sums loop = lower_sums_begin(l, f->block, lower_integer(l, f->block, 0), part_count,
                                       lower_integer(l, f->block, c->join_rows), join_levels(p, c), JOIN_SUM_BLOCK,
                                       carried, kinds, count);
    frame *g = lower_frame(l, f, loop.in.body);
    g->rank = 2;
    g->dims[0] = c->join_rows;
    g->dims[1] = JOIN_COLUMNS;
    frame_tile(g, last, 1, starts[kept_count - 1], true);
    for (int i = 0; i < count; i++) {
        value at[MAX_RANK] = {loop.in.index};
        int axis[MAX_RANK] = {0}, rank = 1;
        bool safe[MAX_RANK] = {false};
        for (int k = 0; k < kept_count; k++, rank++) {
            axis[rank] = k == kept_count - 1 ? 1 : -1;
            safe[rank] = k != kept_count - 1;
            at[rank] = starts[k];
        }
        value v = load_part(l, g, c, which[i], about[i], at, axis, safe);
        fold_kind fold = p->t->terms[c->folds[which[i]]].fold;
        value sum = lower_combine(l, g, fold, loop.in.carried[i], v, 0);
        next[i] = lower_keep_beyond(l, g, loop.in.index, part_count, sum, loop.in.carried[i]);
    }
    lower_sums_end(l, f->block, &loop, next, results);
    for (int i = 0; i < count; i++) {
        /* Columns beyond the end hold nothing that exists; no result of theirs is stored. */
        frame wide = *f;
        wide.dims[0] = c->join_rows;
        const term *x = &p->t->terms[c->folds[which[i]]];
        lower_bind(f, c->folds[which[i]],
                   lower_reduce(l, f, lower_fill(l, &wide, results[i], x->fold), x->fold, x->n, 1, false));
    }
}

/* Columns: every program joins the parts of its block of the last kept axis. */
static void join_phase_columns(const loop *p, lowering *l, const parts *c, const int *kept, int kept_count)
{
    int64_t blocks[SPACE_AXES];
    value starts[SPACE_AXES];
    int last = kept[kept_count - 1];
    lower_phase(l);
    frame *f = lower_frame(l, NULL, NULL);
    for (int i = 0; i < kept_count; i++) blocks[i] = 1;
    blocks[kept_count - 1] = JOIN_COLUMNS;
    loop_programs(l, f, kept, blocks, kept_count, l->k->phase_count - 1, 0, starts);
    value part_count = lower_scalar_value(l, l->phase, c->part_param);
    f->rank = 2;
    f->dims[0] = 1;
    f->dims[1] = JOIN_COLUMNS;
    frame_tile(f, last, 1, starts[kept_count - 1], true);
    join_scalars(p, l, f, c, part_count);
    for (int pairs = 0; pairs < 2; pairs++) join_columns(p, l, f, c, starts, kept_count, last, pairs, part_count);
    for (int i = 0; i < p->output_count; i++)
        if (parts_is_late(p, i) && output_is_wide(p, i))
            lower_store(l, f, &p->outputs[i], lower_term(l, f, p->outputs[i].term));
}

/* Many parts of few columns: programs for some of them each come first, so that no program goes through all. */
static void gather_phase(const loop *p, lowering *l, const parts *c, const int *kept, int kept_count)
{
    const parts *to = c->gathered;
    int64_t blocks[SPACE_AXES];
    value starts[SPACE_AXES], at[MAX_RANK], all = 0;
    int axis[MAX_RANK] = {0}, none[MAX_RANK] = {-1};
    bool safe[MAX_RANK] = {false}, inside[MAX_RANK] = {true};
    for (int i = 0; i < kept_count; i++) blocks[i] = i == kept_count - 1 ? JOIN_COLUMNS : 1;
    lower_phase(l);
    frame *f = lower_frame(l, NULL, NULL), *left = lower_frame(l, f, f->block);
    value group = lower_program(l, 0), part_count = lower_scalar_value(l, l->phase, c->part_param);
    loop_programs(l, f, kept, blocks, kept_count, l->k->phase_count - 1,
                  lower_scalar_value(l, l->k->head, to->part_param), starts);
    f->rank = left->rank = 2;
    f->dims[0] = PARTS_TOGETHER;
    left->dims[0] = 1;
    f->dims[1] = left->dims[1] = JOIN_COLUMNS;
    frame_tile(f, kept[kept_count - 1], 1, starts[kept_count - 1], true);
    frame_tile(left, kept[kept_count - 1], 1, starts[kept_count - 1], true);
    value first =
        lower_op(l, f->block, OP_MUL, DT_I64, (value[]){group, lower_integer(l, f->block, PARTS_TOGETHER)}, 2, 0);
    at[0] = first;
    for (int k = 0; k < kept_count; k++) {
        axis[k + 1] = none[k + 1] = k == kept_count - 1 ? 1 : -1;
        safe[k + 1] = inside[k + 1] = k != kept_count - 1;
        at[k + 1] = starts[k];
    }
/* Columns beyond the end hold nothing that exists; they are folded too, and never stored. */
#define SOME(scratch, identity, fold)                                                                      \
    lower_fill(l, f,                                                                                       \
               lower_keep_beyond(l, f, first, part_count, lower_load_array(l, f, scratch, at, axis, safe), \
                                 lower_broadcast(l, f, identity, 3)),                                      \
               fold)
    for (int i = 0; i < c->count; i++) {
        pair_kind kind = c->pairs[i].kind;
        const term *x = &p->t->terms[c->folds[i]];
        pair_state both = {SOME(c->scratch[i], parts_identity(p, l, f->block, c->folds[i]), x->fold), 0};
        value count = 0;
        if (kind) {
            both.beside = SOME(c->beside[i], parts_identity_beside(l, f->block, kind), FOLD_SUM);
            if (kind == PAIR_SQUARES) count = SOME(c->counts, parts_identity_beside(l, f->block, kind), FOLD_SUM);
            value rows = count ? lower_reduce(l, f, count, FOLD_SUM, 0, 1, false) : 0;
            pair_leave(l, f, kind, count, rows, false, &both);
            at[0] = group;
            lower_store_array(l, left, to->beside[i], at, none, inside, both.beside);
            if (count && !all) lower_store_array(l, left, to->counts, at, none, inside, all = rows);
        } else {
            both.fold = lower_reduce(l, f, both.fold, x->fold, x->n, 1, false);
        }
        at[0] = group;
        lower_store_array(l, left, to->scratch[i], at, none, inside, both.fold);
        at[0] = first;
    }
#undef SOME
}

void parts_join(const loop *p, lowering *l, const parts *c, const int *kept, int kept_count)
{
    if (c->gathered) {
        gather_phase(p, l, c, kept, kept_count);
        c = c->gathered;
    }
    bool scalars = false, columns = false;
    for (int i = 0; i < p->output_count; i++) {
        if (!parts_is_late(p, i)) continue;
        if (output_is_wide(p, i))
            columns = true;
        else
            scalars = true;
    }
    if (columns) join_phase_columns(p, l, c, kept, kept_count);
    if (scalars) join_phase_scalars(p, l, c);
}
