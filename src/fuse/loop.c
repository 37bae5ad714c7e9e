/*
 * What a loop group computes, and whether it can. In: a group. Out: its space, maps, outputs, terms and shape.
 *
 * Each op gets its place in the space (loop_space.c); where that needs an axis cut, it is cut and all begins again. The
 * trace from the outputs down proves that each value is needed where it is computed.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/cost.h"
#include "fuse/sizes.h"

#include <string.h>

static bool refuse(builder *b, const char *why)
{
    b->why = why;
    return false;
}

/* ---- the trace ---- */

static bool know_folds(loop *p)
{
    unsigned all = p->outer | p->inner;
    bool rows = false, late = false;
    int scans = 0, folds = 0;
    for (int i = 0; i < p->grp->node_count; i++) {
        node n = p->grp->nodes[i];
        if (!loop_is_fold(p, n)) continue;
        const graph_node *x = graph_get(p->b->g, n);
        int at = loop_local(p, n), from = loop_local(p, x->inputs[0]);
        if (at < 0 || from < 0 || !p->maps[at] || !p->maps[from])
            return refuse(p->b, "a reduction goes over another space");
        unsigned folded = loop_folded_axes(p, n);
        folds++;
        if (loop_is_scan(p, n)) {
            bool whole = folded == p->inner && folded && !(folded & (folded - 1));
            if (!whole || !index_map_same(p->maps[at], p->maps[from]))
                return refuse(p->b, "a scan goes over another space");
            scans++;
            trace_know_fold(p->t, n, p->maps[at], p->maps[from]);
            continue;
        }
        if (folded && folded == p->inner)
            rows = true;
        else if (folded == p->outer || folded == all)
            late = late || folded;
        else if (folded)
            return refuse(p->b, "reductions go over different axes");
        const shape *in = &graph_get(p->b->g, x->inputs[0])->shape;
        affine linear = index_linear(p->maps[from], in, NULL);
        unsigned axes = loop_map_axes(p, p->maps[at]);
        if (axes & folded || !index_is_dense(&p->space, &linear, axes | folded, shape_count(in)))
            return refuse(p->b, "a reduction goes over another space");
        trace_know_fold(p->t, n, p->maps[at], p->maps[from]);
    }
    if (scans && folds > 1) return refuse(p->b, "a scan beside another, or beside a reduction");
    p->shape = scans ? LOOP_SCAN : rows && late ? LOOP_BOTH : rows ? LOOP_ROW : late ? LOOP_COLUMN : LOOP_MAP;
    return true;
}

static bool trace_outputs(loop *p)
{
    const group *grp = p->grp;
    p->outputs = ARENA_ARRAY(p->b->memory, lower_output, grp->write_count);
    p->output_count = 0;
    unsigned all = p->outer | p->inner;
    for (int i = 0; i < grp->write_count; i++) {
        node n = grp->writes[i];
        const graph_node *x = graph_get(p->b->g, n);
        int at = loop_local(p, n);
        if (!p->maps[at]) return refuse(p->b, "results have unrelated shapes");
        unsigned axes = loop_map_axes(p, p->maps[at]);
        int64_t count = shape_count(&x->shape);
        affine linear = index_linear(p->maps[at], &x->shape, NULL);
        if (!count) continue;
        if (!index_is_turned_dense(&p->space, &linear, axes, count))
            return refuse(p->b, "a result is a part of the space that the group runs over");
        if (axes && axes != all && axes != p->outer && axes != p->inner)
            return refuse(p->b, "results have unrelated shapes");
        lower_output *out = &p->outputs[p->output_count++];
        out->n = n;
        out->map = *p->maps[at];
        out->term = trace_node(p->t, n, p->maps[at]);
        if (!out->term) return p->t->cut_axis < 0 ? refuse(p->b, p->t->why) : false;
    }
    return true;
}

/* By term: it stands between a fold and one that need not wait for it, and is never computed (pair.c). */
static bool *inside_pairs(const loop *p)
{
    bool *inside = ARENA_ARRAY(p->b->memory, bool, p->t->term_count);
    loop_pair found;
    for (int i = 1; i < p->t->term_count && loop_carries_pairs(p); i++)
        if (loop_find_pair(p, i, &found)) inside[p->t->terms[i].inputs[0]] = inside[found.less] = true;
    return inside;
}

/* Which terms wait for late folds, and whether the phases can have it so. */
static bool part_phases(loop *p)
{
    const trace *t = p->t;
    unsigned all = p->outer | p->inner;
    const bool *skipped = inside_pairs(p);
    loop_pair pair;
    bool *row_fold = ARENA_ARRAY(p->b->memory, bool, t->term_count); /* needs the program of its row */
    p->late = ARENA_ARRAY(p->b->memory, bool, t->term_count);
    for (int i = 1; i < t->term_count; i++) {
        const term *x = &t->terms[i];
        for (int k = 0; k < x->input_count; k++) {
            p->late[i] |= p->late[x->inputs[k]];
            row_fold[i] |= row_fold[x->inputs[k]];
        }
        for (int a = 0; a < t->atom_count; a++) {
            bool used = x->kind != TERM_CONSTANT && x->kind != TERM_OP && x->index.factor[SPACE_AXES + a];
            for (int k = 0; x->map && k < x->map->rank; k++) used |= x->map->axes[k].factor[SPACE_AXES + a] != 0;
            if (!used || t->atoms[a] >= i) continue;
            p->late[i] |= p->late[t->atoms[a]];
            row_fold[i] |= row_fold[t->atoms[a]];
        }
        if (x->kind == TERM_FOLD && x->folded) {
            bool is_late = x->folded != p->inner || !p->inner;
            bool waits = is_late && p->late[i];
            if (waits && loop_carries_pairs(p) && loop_find_pair(p, i, &pair)) waits = p->late[pair.source];
            if (waits) return refuse(p->b, "a reduction of a reduction over the same rows");
            if (is_late && p->shape == LOOP_COLUMN && p->inner && !(x->axes & p->inner))
                return refuse(p->b, "a reduction over everything beside one over rows");
            p->late[i] |= is_late;
            row_fold[i] = !is_late;
            if (is_late) continue;
            if (p->late[i]) return refuse(p->b, "it needs all rows before the first is done");
        }
        if (p->late[i] && !skipped[i] && (x->axes & p->outer) && p->outer != 0 && x->axes & ~p->inner)
            return refuse(p->b, "it needs all rows before the first is done");
        if (p->late[i] && row_fold[i]) return refuse(p->b, "it needs all rows before the first is done");
    }
    for (int i = 0; i < p->output_count; i++) {
        /* A value of an inner axis that no late fold made would be written by every program. */
        unsigned axes = loop_map_axes(p, &p->outputs[i].map);
        if (p->late[p->outputs[i].term] && axes & p->outer)
            return refuse(p->b, "it needs all rows before the first is done");
        if ((p->shape == LOOP_COLUMN || p->shape == LOOP_BOTH) && !p->late[p->outputs[i].term] && axes != all &&
            !(p->shape == LOOP_BOTH && axes == p->outer))
            return refuse(p->b, "a small result beside a reduction over many rows");
        if ((p->shape == LOOP_MAP || p->shape == LOOP_SCAN) && axes != all)
            return refuse(p->b, "a small result beside a large one");
        if (p->shape == LOOP_ROW && axes != all && axes != p->outer)
            return refuse(p->b, "a column beside rows would be computed by each of them");
    }
    return true;
}

/* ---- what it costs ---- */

/* Costly functions that are computed more often than their node has elements, over all of the kernel. */
static int64_t repeated_work(const loop *p)
{
    const trace *t = p->t;
    unsigned all = p->outer | p->inner, last = p->space.axis_count ? 1u << (p->space.axis_count - 1) : 0;
    int64_t more = 0, *often = ARENA_ARRAY(p->b->memory, int64_t, p->around.count + 1); /* by local, at all places */
    for (int i = 1; i < t->term_count; i++) {
        const term *x = &t->terms[i];
        if (x->kind != TERM_OP || !x->n || !ops[x->op].costly) continue;
        int64_t times = space_count(&p->space, x->axes);
        /* A row of columns is computed by each program that has these columns. */
        if ((p->shape == LOOP_ROW || p->shape == LOOP_BOTH) && x->axes & p->inner) times = space_count(&p->space, all);
        if (p->shape == LOOP_MAP && x->axes & last) times = MAXIMUM(times, space_count(&p->space, all) / 4);
        int at = loop_local(p, x->n);
        if (at >= 0) often[at] += times;
    }
    for (int i = 0; i < p->around.count; i++)
        more += MAXIMUM(often[i] - shape_count(&graph_get(t->g, p->around.nodes[i])->shape), 0);
    return more;
}

#define REPEATS_GPU FUSE_SIZE((int64_t)1 << 22) /* what takes as long as a launch */
#define REPEATS_CPU ((int64_t)1 << 14)

/* How many values of whole rows wait from one reduction for a later one, or for the results. */
static int rows_held(const loop *p)
{
    const trace *t = p->t;
    int *depth = ARENA_ARRAY(p->b->memory, int, t->term_count), held = 0, deepest = 0;
    int *first = ARENA_ARRAY(p->b->memory, int, t->term_count), *last = ARENA_ARRAY(p->b->memory, int, t->term_count);
    for (int i = 1; i < t->term_count; i++) {
        const term *x = &t->terms[i];
        for (int k = 0; k < x->input_count; k++) depth[i] = MAXIMUM(depth[i], depth[x->inputs[k]]);
        depth[i] += x->kind == TERM_FOLD && x->folded == p->inner;
        deepest = MAXIMUM(deepest, depth[i]);
        first[i] = t->term_count;
        last[i] = -1;
    }
    for (int i = 0; i < p->output_count; i++) first[p->outputs[i].term] = last[p->outputs[i].term] = deepest + 1;
    for (int i = t->term_count - 1; i > 0; i--) {
        const term *x = &t->terms[i];
        if (last[i] < 0) continue;
        bool wide = x->axes & p->inner && x->kind != TERM_FOLD, costly = x->kind == TERM_OP && ops[x->op].costly;
        bool source = x->kind == TERM_ACCESS && x->axes & p->outer;
        held += wide && (costly || source) && last[i] > first[i];
        for (int k = 0; k < x->input_count; k++) { /* what is cheap is computed again when it is needed again */
            int from = x->kind == TERM_FOLD ? depth[i] : MAXIMUM(first[i], depth[i]);
            int to = x->kind == TERM_FOLD ? depth[i] : costly ? from : last[i];
            first[x->inputs[k]] = MINIMUM(first[x->inputs[k]], from);
            last[x->inputs[k]] = MAXIMUM(last[x->inputs[k]], to);
        }
        held += x->kind == TERM_FOLD && p->shape == LOOP_BOTH && x->axes & p->inner; /* carried from row to row */
    }
    return held;
}

#define HELD_BLOCK FUSE_SIZE((int64_t)96 << 10) /* elements that the registers and the shared memory of a block hold */
#define HELD_CLUSTER (8 * HELD_BLOCK)

/* Parameters that the kernel will have, about: an array by its own axes has an extent for each. */
static int parameters(const loop *p)
{
    int count = p->space.axis_count + p->output_count;
    bool *seen = ARENA_ARRAY(p->b->memory, bool, p->around.count + 1); /* by local: it has an array by its own axes */
    for (int i = 1; i < p->t->term_count; i++) {
        const term *x = &p->t->terms[i];
        int at = x->kind == TERM_ACCESS ? loop_local(p, x->n) : -1;
        if (at < 0) continue;
        bool own = x->guarded || p->unroll != UNROLL_NONE; /* elements of a window share one */
        for (int k = 0; k < x->map->rank; k++) own |= affine_has_atoms(&x->map->axes[k]);
        if (own && seen[at]) continue;
        seen[at] |= own;
        count += own ? 1 + x->map->rank : 1;
    }
    return count;
}

#define BETWEEN_ROW FUSE_SIZE(1008) /* longer rows belong to several warps */

/* Does the kernel lose more than the joining saves? */
static bool is_worth(loop *p)
{
    const fuse_options *o = p->b->options;
    if (parameters(p) > LOWER_PARAMS - 4) return refuse(p->b, "it would have too many parameters");
    if (repeated_work(p) > (o->gpu ? REPEATS_GPU : REPEATS_CPU))
        return refuse(p->b, "a costly function would be computed many times over");
    if (!o->gpu || (p->shape != LOOP_ROW && p->shape != LOOP_BOTH)) return true;
    int64_t row = space_count(&p->space, p->inner), held = row > 1024 ? rows_held(p) * row : 0;
    if (held > (row > 16384 ? HELD_CLUSTER : HELD_BLOCK) && row <= 1 << 18)
        return refuse(p->b, "its rows would not fit the registers and the shared memory");
    /* Sums of columns stay with their threads while rows begin elsewhere each time: nothing would go by vectors, and all that
     * is held would be too much for single elements. */
    if (p->shape == LOOP_BOTH && row > BETWEEN_ROW && loop_begins_between(p))
        return refuse(p->b, "rows begin between vectors, and sums over rows would keep them from that");
    return true;
}

static bool analyse_once(loop *p)
{
    node fold = loop_main_fold(p), root = fold ? graph_get(p->b->g, fold)->inputs[0] : loop_widest_write(p);
    const shape *s = &graph_get(p->b->g, root)->shape;
    space_init(&p->space, s->extents, s->rank);
    if (p->line && !space_cut(&p->space, p->space.axis_count - 1, p->line)) return refuse(p->b, "a reshape mixes axes");
    bool uncut = fold && (loop_is_position(graph_get(p->b->g, fold)) || loop_is_scan(p, fold)); /* along one axis */
    for (;;) {
        p->t = trace_new(p->b->memory, p->b->g, p->b->in_memory, p->b->options, &p->space);
        p->t->uncut = uncut;
        p->t->leaves = p->b->leaves;
        p->t->unroll = p->unroll;
        memset(p->maps, 0, sizeof(*p->maps) * (size_t)p->around.count);
        bool fine = loop_spread_maps(p) && know_folds(p) && trace_outputs(p);
        if (fine) break;
        if (p->t->cut_axis < 0) return false;
        if (space_cut(&p->space, p->t->cut_axis, p->t->cut_inner)) continue;
        if (p->grp->node_count > 1) return refuse(p->b, "a reshape mixes axes");
        space_init(&p->space, s->extents, s->rank); /* no room for the pieces: quotients instead */
        uncut = true;
    }
    int folds = 0;
    for (int i = 0; i < p->grp->node_count; i++) folds += loop_is_fold(p, p->grp->nodes[i]);
    if (p->b->early && (p->shape == LOOP_BOTH || (p->shape == LOOP_COLUMN && folds > 1)))
        return refuse(p->b, "a fold over all rows joins later");
    return part_phases(p) && (p->grp->node_count == 1 || is_worth(p));
}

#define TURNED_LEAST FUSE_SIZE(257)
#define TURNED_MOST 4096 /* elements of an axis that is not the last one, which a program sees at once */

/* Are there columns for all of a GPU? Then nothing has to be joined. */
static bool has_enough_columns(const loop *p)
{
    enum { COLUMNS_OF_PROGRAM = 128, PROGRAMS_OF_UNIT = 4 };
    const fuse_options *o = p->b->options;
    unsigned last = 1u << (p->space.axis_count - 1);
    int64_t programs = space_count(&p->space, p->inner) / COLUMNS_OF_PROGRAM;
    return o->gpu && p->inner & last && !(p->outer & (p->outer - 1)) &&
           p->space.axes[p->space.axis_count - 1].extent >= COLUMNS_OF_PROGRAM &&
           space_count(&p->space, p->outer) >= TURNED_LEAST && space_count(&p->space, p->outer) <= TURNED_MOST &&
           programs >= PROGRAMS_OF_UNIT * (int64_t)o->units;
}

/* Few short columns: a program that has all rows of some of them needs no second launch that joins them. */
static bool is_one_launch(const loop *p)
{
    enum { COLUMNS_OF_PROGRAM = 16 };
    unsigned last = 1u << (p->space.axis_count - 1);
    return p->inner & last && !(p->outer & (p->outer - 1)) && space_count(&p->space, p->outer) <= LOOP_SHORT_COLUMNS &&
           p->space.axes[p->space.axis_count - 1].extent >= COLUMNS_OF_PROGRAM &&
           loop_is_few(p, space_count(&p->space, p->inner) / COLUMNS_OF_PROGRAM);
}

/* Is something computed along the columns that all of them share (a mask of the rows)? It has threads of its own, and what is
 * folded with it would wait in memory for them. */
static bool computes_beside_columns(const loop *p)
{
    unsigned last = 1u << (p->space.axis_count - 1);
    for (int i = 1; i < p->t->term_count; i++) {
        const term *x = &p->t->terms[i];
        if (x->kind == TERM_OP && x->axes & p->inner && !(x->axes & last)) return true;
    }
    return false;
}

/* The lines that rows are cut into which are longer than what the registers of a GPU hold; 0: they are not cut. */
static int64_t line_of_row(const loop *p)
{
    const int64_t LONGEST = FUSE_SIZE(16384);
    int last = p->space.axis_count - 1;
    const fuse_options *o = p->b->options;
    if (!o->gpu || o->mode != FUSE_FUSED || p->shape != LOOP_ROW || p->turned || last < 0 || p->inner != 1u << last)
        return 0;
    int64_t row = p->space.axes[last].extent, line = LONGEST;
    if (row <= LOOP_CUT_CHIP || space_count(&p->space, p->outer) >= o->units) return 0;
    for (int i = 1; i < p->t->term_count; i++) {
        const term *x = &p->t->terms[i];
        if (x->kind == TERM_FOLD && (x->fold == FOLD_ARGMAX || x->fold == FOLD_ARGMIN)) return 0;
    }
    while (line >= LOOP_CUT_LINE && row % line) line /= 2;
    return line >= LOOP_CUT_LINE ? line : 0;
}

/* Reductions over another axis than the last are column folds; where one waits for another that does not do, or where
 * that is as good, a program takes some columns from top to bottom. */
static bool analyse(loop *p)
{
    if (!locals_gather(p->b, p->grp, &p->around)) return refuse(p->b, "the kernel would be too long");
    p->maps = ARENA_ARRAY(p->b->memory, index_map *, p->around.count + 1);
    bool fine = analyse_once(p);
    if (fine && line_of_row(p)) {
        loop whole = *p;
        p->line = line_of_row(p);
        if (!analyse_once(p)) *p = whole;
        return true;
    }
    bool columns_alone = p->shape == LOOP_COLUMN && p->inner, enough = columns_alone && has_enough_columns(p);
    bool few = columns_alone && fine && !enough && is_one_launch(p);
    if (fine && !enough && !few) return true;
    const char *why = p->b->why;
    loop columns = *p;
    if (p->shape != LOOP_COLUMN || !p->inner || (!fine && space_count(&p->space, p->outer) > TURNED_MOST)) return false;
    p->turned = true;
    p->short_columns = few;
    if (analyse_once(p) && !(fine && computes_beside_columns(p))) return true;
    if (!fine) return refuse(p->b, why);
    *p = columns;
    return true;
}

/* What there is to unroll. */
static unroll_kind most_unrolled(const builder *b, const group *grp)
{
    unroll_kind most = UNROLL_NONE;
    for (int i = 0; i < grp->node_count; i++) {
        node n = grp->nodes[i];
        if (b->in_memory[n] || !fold_is_small(b->g, n)) continue;
        if (fold_is_window(b->g, b->in_memory, n))
            most = MAXIMUM(most, UNROLL_WINDOWS);
        else if (fold_is_worth_a_text(b->g, b->in_memory, n))
            most = UNROLL_ALL;
    }
    return most;
}

/* In columns of a few elements, as of a window, threads of a GPU have more to join than to fold: estimates do not say that,
 * so such a fold has to be much faster than the chain. Rows of a line are read and folded once, and so are those whose results
 * are rows again, where every thread of a row would have its own chain: of equal ones the better. */
static double joining(const loop *p)
{
    if (loop_is_line(p) || loop_writes_rows(p)) return 0.9;
    return p->b->options->gpu && p->shape == LOOP_COLUMN && space_count(&p->space, p->outer) <= 64 ? 2 : 1;
}

/* Small folds as chains of terms or as folds of the space: of what can be, the one that takes the shortest time. */
loop *loop_analyse(builder *b, const group *grp)
{
    loop *best = NULL;
    b->why = grp->write_count ? NULL : "nothing of it is needed";
    if (!grp->write_count) return NULL;
    for (int unroll = most_unrolled(b, grp); unroll >= UNROLL_NONE; unroll--) {
        loop *p = ARENA_NEW(b->memory, loop);
        p->b = b;
        p->grp = grp;
        p->unroll = (unroll_kind)unroll;
        if (!analyse(p)) continue;
        loop *strips = loop_strip(p);
        if (strips) p = strips;
        fuse_cost cost = cost_of_loop(p);
        if (best && cost.time_ns * joining(p) >= b->cost.time_ns) continue;
        b->cost = cost;
        best = p;
    }
    return best;
}

/* ---- what the builders share ---- */

int loop_axes(const loop *p, const lowering *l, unsigned axes, int *out)
{
    int count = 0;
    for (int i = 0; i < p->space.axis_count; i++) {
        if (!(axes >> i & 1)) continue;
        bool there = false;
        for (int k = 0; k < count; k++) there |= out[k] == l->axis_of[i];
        if (!there) out[count++] = l->axis_of[i];
    }
    return count;
}

lowering *loop_begin(const loop *p)
{
    int classes[SPACE_AXES];
    for (int i = 0; i < p->space.axis_count; i++) classes[i] = p->inner >> i & 1;
    if (p->line) classes[p->space.axis_count - 1] = 2; /* lines stay apart */
    return lower_begin(p->t, p->b->leaves, p->b->options, classes, p->outputs, p->output_count, NULL);
}

bool loop_is_row_fold(const loop *p, const term *x)
{
    return x->kind == TERM_FOLD && x->folded && x->folded == p->inner;
}

int *loop_fold_depths(const loop *p)
{
    int *depth = ARENA_ARRAY(p->b->memory, int, p->t->term_count);
    for (int i = 1; i < p->t->term_count; i++) {
        const term *x = &p->t->terms[i];
        for (int k = 0; k < x->input_count; k++) depth[i] = MAXIMUM(depth[i], depth[x->inputs[k]]);
        depth[i] += loop_is_row_fold(p, x);
    }
    return depth;
}

bool *loop_needed(const loop *p)
{
    const trace *t = p->t;
    bool *needed = ARENA_ARRAY(p->b->memory, bool, t->term_count);
    for (int i = 0; i < p->output_count; i++) needed[p->outputs[i].term] = true;
    for (int i = t->term_count - 1; i > 0; i--)
        for (int k = 0; needed[i] && k < t->terms[i].input_count; k++) needed[t->terms[i].inputs[k]] = true;
    return needed;
}

void loop_lower_folds(const loop *p, lowering *l, frame *f)
{
    const trace *t = p->t;
    const int *depth = loop_fold_depths(p);
    const bool *needed = loop_needed(p);
    int deepest = 0;
    for (int i = 1; i < t->term_count; i++) deepest = MAXIMUM(deepest, needed[i] ? depth[i] : 0);
    for (int stage = 1; stage <= deepest; stage++)
        for (int i = 1; i < t->term_count; i++)
            if (needed[i] && depth[i] == stage && loop_is_row_fold(p, &t->terms[i])) lower_term(l, f, i);
}

bool loop_is_few(const loop *p, int64_t programs)
{
    enum { FEW_OF_UNIT = 2 }; /* blocks that a multiprocessor has at once, with room to spare */
    return p->b->options->gpu && programs <= (int64_t)FEW_OF_UNIT * p->b->options->units;
}

void loop_wish_of_few(const loop *p, lowering *l, int64_t programs)
{
    l->k->few |= loop_is_few(p, programs);
}

void loop_programs(lowering *l, frame *f, const int *axes, const int64_t *blocks, int count, int phase,
                   value first_count, value *starts)
{
    value counts[3];
    int used = 0, room = first_count ? 2 : 3;
    tile_block *head = l->k->head;
    if (first_count) counts[used++] = first_count;
    /* The last axis is the fastest; what has no launch axis of its own shares the last one. */
    value sizes[SPACE_AXES] = {0};
    for (int i = 0; i < count; i++) sizes[i] = lower_head_parts(l, axes[i], blocks[i]);
    int shared = MAXIMUM(count - room, 0) + 1; /* axes 0 .. shared-1 share one launch axis */
    for (int i = count - 1; i >= shared; i--) {
        value id = lower_program(l, used);
        counts[used++] = sizes[i];
        starts[i] = id;
    }
    if (count) {
        value id = lower_program(l, used), total = sizes[0];
        for (int i = 1; i < shared && i < count; i++)
            total = lower_op(l, head, OP_MUL, DT_I64, (value[]){total, sizes[i]}, 2, 0);
        counts[used++] = total;
        for (int i = MINIMUM(shared, count) - 1; i > 0; i--) {
            value size = lower_extent(l, axes[i]);
            if (blocks[i] != 1) {
                value rest = lower_integer(l, l->phase, blocks[i] - 1), block = lower_integer(l, l->phase, blocks[i]);
                size = lower_op(l, l->phase, OP_ADD, DT_I64, (value[]){size, rest}, 2, 0);
                size = lower_op(l, l->phase, OP_DIV, DT_I64, (value[]){size, block}, 2, 0);
            }
            starts[i] = lower_op(l, l->phase, OP_MOD, DT_I64, (value[]){id, size}, 2, 0);
            id = lower_op(l, l->phase, OP_DIV, DT_I64, (value[]){id, size}, 2, 0);
        }
        starts[0] = id;
    }
    for (int i = 0; i < count; i++) {
        if (blocks[i] != 1)
            starts[i] = lower_op(l, l->phase, OP_MUL, DT_I64,
                                 (value[]){starts[i], lower_integer(l, l->phase, blocks[i])}, 2, 0);
        else
            frame_scalar(f, axes[i], starts[i]);
    }
    if (!used) counts[used++] = lower_integer(l, head, 1);
    lower_phase_launch(l, phase, counts, used);
}

bool loop_build(builder *b, const group *grp, fuse_kernel *out, qn_error *error)
{
    const loop *p = loop_analyse(b, grp);
    if (!p || !out) return p;
    switch (p->shape) {
    case LOOP_MAP: return map_kernel(p, out, error) == QN_OK;
    case LOOP_ROW: return row_kernel(p, out, error) == QN_OK;
    case LOOP_COLUMN: return column_kernel(p, out, error) == QN_OK;
    case LOOP_SCAN: return scan_kernel(p, out, error) == QN_OK;
    default: return both_kernel(p, out, error) == QN_OK;
    }
}
