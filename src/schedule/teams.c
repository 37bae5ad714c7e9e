/*
 * Chooses teams, layouts and homes. In: the survey of a phase. Out: the team that runs a
 * program, a layout for each kind of pass, a home for each kept tile (homes.c).
 *
 * The team follows the largest pass: some lanes of a warp where the tile is small, a block where it is not, a cluster
 * or the whole grid for rows that no block can hold. Constant tiles have a constant number of threads; for rows whose
 * length is an argument the number of threads is chosen at the launch, so that one text serves a class of lengths.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/spread_parts.h"

#include <inttypes.h>
#include <string.h>

enum {
    TINY_ROW = 40,     /* the shortest class */
    SHORT_ROW = 1024,  /* a warp holds it */
    BLOCK_ROW = 16384, /* the registers of a block hold it, with another block beside it */
    LANES_BLOCK = 128, /* threads of a block of several teams */
    FEW_SHARE = 8,     /* elements of a thread where there are few programs */
    WIDE_TEAM = 256,   /* the most threads of a program in which no thread needs another */
    MOST_TURNED = 16,  /* ... of single elements */
    MOST_KEPT = 128,   /* registers of a thread for kept tiles of a constant size, where more threads can share them */
    MOST_STAGES = 16   /* of a product's ring, that `tune` may ask for */
};

static int64_t power_above(int64_t x)
{
    int64_t p = 1;
    while (p < x) p *= 2;
    return p;
}

/* ---- what the survey sees ---- */

static pass_layout *find(const spread *c, const int64_t *loops, int count, unsigned row_axes, bool row_fast)
{
    for (int i = 0; i < c->layout_count; i++) {
        pass_layout *l = c->layouts[i];
        if (l->loop_count == count && l->row_axes == row_axes && (l->row_fast == row_fast || l->turned) &&
            !memcmp(l->loops, loops, sizeof(int64_t) * (size_t)count))
            return l;
    }
    return NULL;
}

pass_layout *layout_find(const spread *c, const int64_t *loops, int count, unsigned row_axes, bool row_fast)
{
    pass_layout *l = find(c, loops, count, row_axes, row_fast);
    CHECK(l);
    return l;
}

pass_layout *layout_note(survey *e, const int64_t *loops, int count, unsigned row_axes, bool row_fast)
{
    spread *c = e->spread;
    pass_layout *l = find(c, loops, count, row_axes, row_fast);
    if (l) return l;
    l = ARENA_NEW(e->memory, pass_layout);
    *l = (pass_layout){.loop_count = count,
                       .row_axes = row_axes,
                       .row_fast = row_fast,
                       .vector = 1,
                       .want_vector = 1,
                       .want_shift = 1,
                       .first_group = c->group,
                       .nested = c->nesting > 1,
                       .number = c->layout_count};
    memcpy(l->loops, loops, sizeof(int64_t) * (size_t)count);
    l->leader = l;
    ARENA_PUSH(e->memory, c->layouts, c->layout_count, c->layout_capacity, l);
    return l;
}

static pass_layout *leader_of(pass_layout *l)
{
    while (l->leader != l) l = l->leader;
    return l;
}

void layout_same_rows(pass_layout *a, pass_layout *b)
{
    leader_of(b)->leader = leader_of(a);
}

void layout_know_buffers(survey *e)
{
    e->spread->kept_count = MAXIMUM(e->spread->kept_count, e->buffer_count);
}

void layout_touch(survey *e, int buffer, const pass_layout *own)
{
    kept *k = &e->spread->kept[buffer];
    layout_know_buffers(e);
    if (!own) {
        k->elsewhere = true;
        if (!k->why) k->why = "read at another place than its own";
    } else if (k->layout && k->layout != own) {
        k->elsewhere = true;
        if (!k->why) k->why = "touched in two layouts";
    }
    if (own) k->layout = own;
    if (k->touched && k->group != e->spread->group) k->many_groups = true;
    k->touched = true;
    k->group = e->spread->group;
}

void layout_touch_elsewhere(survey *e, int buffer, const char *why)
{
    kept *k = &e->spread->kept[buffer];
    layout_know_buffers(e);
    k->touched = k->elsewhere = k->many_groups = k->plain = true;
    k->why = why;
}

/* ---- sizes ---- */

bool row_parameter(const survey *e, int64_t dim, int *param)
{
    if (dim >= 0) return false;
    const tile_op *op = tile_def(e->k, (value)-dim);
    if (!op || op->code != OP_ARG) return false;
    *param = op->attr.index;
    return true;
}

int64_t dimension_bound(const survey *e, int64_t dim)
{
    if (dim >= 0) return dim;
    int64_t high = facts_of(e->facts, (value)-dim).high;
    return high > (int64_t)1 << 40 ? INT64_MAX : MAXIMUM(high, 0);
}

int64_t layout_positions(const survey *e, const pass_layout *l, bool rows)
{
    int64_t count = 1;
    for (int axis = 0; axis < l->loop_count; axis++) {
        if ((l->row_axes >> axis & 1) != rows) continue;
        int64_t bound = dimension_bound(e, l->loops[axis]);
        if (bound == INT64_MAX || __builtin_mul_overflow(count, bound, &count)) return INT64_MAX;
    }
    return count;
}

static int64_t all_positions(const survey *e, const pass_layout *l)
{
    int64_t rows = layout_positions(e, l, true), inner = layout_positions(e, l, false), all;
    if (rows == INT64_MAX || inner == INT64_MAX || __builtin_mul_overflow(rows, inner, &all)) return INT64_MAX;
    return all;
}

/* The only inner axis, if there is only one. */
int layout_single_inner(const pass_layout *l)
{
    int found = -1;
    for (int axis = 0; axis < l->loop_count; axis++) {
        if (l->row_axes >> axis & 1) continue;
        if (found >= 0) return -1;
        found = axis;
    }
    return found;
}

/* Rows as long as an argument says, each of which may begin anywhere. Where rows go with others that are aligned (the
 * gain of a norm), these are put together of two vectors each, which costs more where a vector has but two elements. */
static bool can_shift(const survey *e, const pass_layout *l)
{
    int param, axis = layout_single_inner(l);
    if (axis < 0 || l->loop_count != 1 || l->row_fast || l->digits || e->spread->machine.checked || e->spread->before)
        return false;
    bool pairs = l->want_shift < 4 && l->want_vector > 1;
    return l->lead && !l->even && l->want_shift > 1 && !pairs && row_parameter(e, l->loops[axis], &param);
}

static void choose_vector(const survey *e, pass_layout *l)
{
    int last = -1;
    for (int axis = 0; axis < l->loop_count; axis++)
        if (!(l->row_axes >> axis & 1)) last = axis;
    /* Windows come by vectors where results go so too: stores of single elements would lie a vector apart, unless threads
     * exchange them first. */
    bool windows = l->windows && !l->narrow_stores;
    int want = windows ? MAXIMUM(l->want_vector, l->want_window) : l->want_vector;
    l->vector = MINIMUM(want, 8);
    if (l->digits) l->vector = MINIMUM(l->vector, l->digits);
    l->shifted = false;
    if (last < 0 || l->row_fast || e->spread->machine.checked) l->vector = 1;
    if (can_shift(e, l)) {
        l->vector = MINIMUM(l->want_shift, 8);
        l->shifted = true;
        return;
    }
    /* Elements of a vector that are loaded one by one lie a vector apart in neighbouring threads: most accesses decide. */
    int wide = l->wide + (windows ? l->windows : 0), narrow = l->narrow + (windows ? 0 : l->windows + l->spread_stores);
    if (narrow > 2 && narrow > wide) l->vector = 1;
    if (last < 0 || l->vector == 1) return;
    int64_t dim = l->loops[last];
    if (layout_single_inner(l) >= 0 && !l->row_axes) return; /* a last part of a vector is taken apart */
    int64_t divisor = dim >= 0 ? dim : facts_of(e->facts, (value)-dim).divisor;
    while (l->vector > 1 && divisor % l->vector) l->vector /= 2;
}

static void choose_spread(pass_layout *l)
{
    l->spreads = l->spread_stores && l->windows && !l->narrow_stores && l->vector > 1 && !l->shifted;
}

/* Short rows that all lie in shared memory: whole ones for each thread, unless threads would meet in its banks. */
static bool is_short_in_memory(const survey *e, const pass_layout *l)
{
    enum { SHORT_LEAST = 64 };
    int64_t rows = layout_positions(e, l, true), inner = layout_positions(e, l, false);
    return rows >= SHORT_LEAST && rows <= MOST_THREADS && inner > 1 && inner < 2 * ROW_REGISTERS && inner % 4;
}

/* Rows that lie across memory: neighbouring threads take neighbouring rows, in all passes that share the loop. */
static void choose_turned(const survey *e)
{
    const spread *c = e->spread;
    for (int i = 0; i < c->layout_count; i++) {
        pass_layout *l = c->layouts[i];
        int rows = 0, inner = 0, both = 0;
        bool is_short = false;
        if (!l->row_axes || l->row_fast) continue;
        for (int k = 0; k < c->layout_count; k++) {
            if (leader_of(c->layouts[k]) != leader_of(l)) continue;
            rows += c->layouts[k]->along_rows;
            inner += c->layouts[k]->along_inner;
            both += c->layouts[k]->of_rows;
            is_short |= is_short_in_memory(e, c->layouts[k]);
        }
        l->turned = rows > inner || (!both && is_short);
    }
    for (int i = 0; i < c->layout_count; i++) c->layouts[i]->row_fast |= c->layouts[i]->turned;
}

/* ---- the team ---- */

typedef struct overview { /* of all passes of the phase */
    const pass_layout *largest;
    int64_t positions; /* of the largest; INT64_MAX: unbounded */
    bool rows;         /* some pass has rows */
    bool kept, memory; /* there are kept tiles; some cannot be in registers */
    int row_param;     /* of the largest, or -1 */
    bool only_row;     /* ... and nothing else makes its size */
} overview;

static overview look(const survey *e)
{
    const spread *c = e->spread;
    overview s = {.positions = 0, .row_param = -1};
    for (int i = 0; i < c->layout_count; i++) {
        const pass_layout *l = c->layouts[i];
        s.rows |= l->row_axes != 0;
        if (!l->loop_count) continue;
        int64_t positions = all_positions(e, l);
        bool tie = s.largest && positions == s.positions && l->turned && !s.largest->turned;
        if (s.largest && positions <= s.positions && !tie) continue;
        s.largest = l;
        s.positions = positions;
    }
    for (int i = 1; i < c->kept_count; i++) {
        s.kept |= c->kept[i].touched;
        s.memory |= c->kept[i].touched && c->kept[i].elsewhere;
    }
    if (!s.largest) return s;
    for (int axis = 0; axis < s.largest->loop_count; axis++)
        if (row_parameter(e, s.largest->loops[axis], &s.row_param)) break;
    s.only_row = s.row_param >= 0 && s.largest->loop_count == 1;
    return s;
}

/* May several blocks run one program? Then no tile may lie in the shared memory of one of them. */
static bool may_be_large(const survey *e, const overview *s)
{
    const spread *c = e->spread;
    return !s->rows && !s->memory && !c->has_dot && !c->has_scan && !c->has_position && !c->needs_broadcast &&
           !e->has_assert && !e->prints && !c->no_large;
}

int layout_words_of_row(const survey *e)
{
    const spread *c = e->spread;
    int most = 0, *words = ARENA_ARRAY(e->memory, int, c->kept_count + 1);
    for (int i = 1; i < c->kept_count; i++)
        if (c->kept[i].touched && !c->kept[i].elsewhere && !c->kept[i].pinned)
            words[i] = MAXIMUM(dtypes[e->buffers[i].elem].size_bytes / 4, 1);
    for (int i = 1; i < c->kept_count; i++)
        if (words[i]) most = MAXIMUM(most, layout_live_registers(e, i, words));
    return most;
}

static void choose_constant_team(const survey *e, const overview *s)
{
    spread *c = e->spread;
    team *t = &c->team;
    bool alone = !c->any_fold && !s->memory && !c->has_dot && !c->has_scan && !c->no_wide;
    int vector = s->largest->vector, repeats = (vector > 1 ? 4 : 8) / (alone ? 2 : 1);
    if (alone && e->k->few) repeats = 1;
    /* Of many tiles at once each thread has room for little. */
    int words = s->largest->row_axes ? 0 : layout_words_of_row(e);
    while (repeats > 1 && words * vector * repeats > MOST_KEPT) repeats /= 2;
    int64_t threads = power_above((s->positions + vector * repeats - 1) / (vector * repeats));
    t->reason = "constant tile";
    if (s->largest->turned) { /* a row in a thread, or in few */
        int64_t rows = layout_positions(e, s->largest, true), inner = layout_positions(e, s->largest, false);
        threads = power_above(inner <= ROW_REGISTERS ? MINIMUM(rows, 256)
                                                     : (s->positions + ROW_REGISTERS - 1) / ROW_REGISTERS);
    }
    if (e->k->few && !alone && c->any_fold) threads = MAXIMUM(threads, power_above(s->positions / FEW_SHARE));
    if (c->has_dot) {
        t->kind = TEAM_BLOCK;
        t->threads = s->positions <= 4096 ? 128 : 256;
    } else if (alone) {
        t->kind = TEAM_LANES;
        t->threads = (int)MINIMUM(MAXIMUM(threads, 1), WIDE_TEAM);
        t->reason = "constant tile, no thread needs another";
    } else if (threads <= 32 || (!e->k->few && !s->largest->turned && (c->any_fold || c->has_scan) &&
                                 s->positions <= 32 * ROW_REGISTERS && !s->memory)) {
        t->kind = TEAM_LANES;
        t->threads = (int)MINIMUM(MAXIMUM(threads, 1), 32);
    } else {
        t->kind = TEAM_BLOCK;
        t->threads = (int)MINIMUM(
            MAXIMUM(threads, 64),
            s->positions > (s->largest->turned ? 8192 : 16384) && !(s->largest->turned && !s->kept) ? 1024 : 512);
    }
}

/* Bytes of the widest elements that are kept. */
static int kept_bytes(const survey *e)
{
    const spread *c = e->spread;
    int most = 0;
    for (int i = 1; i < c->kept_count; i++)
        if (c->kept[i].touched) most = MAXIMUM(most, dtypes[e->buffers[i].elem].size_bytes);
    return most;
}

/* Is the longest row shorter than its bound by what a shift may take? A class of lengths sees to that where they are no
 * multiples of 16 (cuda_choose_facts); a bound that comes from elsewhere does not. */
static bool leaves_room(const survey *e, const overview *s)
{
    enum { FIRST_CLASS = 6 };
    const tile_facts *f = &e->k->params[s->row_param].facts;
    bool limit = f->size_class >= FIRST_CLASS && size_class_holds(f->size_class, s->positions) &&
                 !size_class_holds(f->size_class, s->positions + 16);
    return limit && !f->by16;
}

/* A row that nobody writes leaves its multiprocessor nothing to do while it is folded, unless another block is loading:
 * then a cluster of smaller blocks has it.
 * Few threads with much data each: 32 elements a thread, 64 of the short formats unless several tiles are held at once.
 * Where nothing is kept, no thread needs more than two vectors. */
static void choose_row_team(const survey *e, const overview *s)
{
    spread *c = e->spread;
    team *t = &c->team;
    const sched_machine *target = &c->machine;
    bool streams = !c->any_fold && !s->memory && !s->kept && !c->has_scan;
    bool short_elements =
        s->largest->vector == 8 && layout_words_of_row(e) == 1; /* one tile of them: as many bytes hold twice as much */
    int vector = s->largest->vector;
    t->over = s->largest->shifted ? vector - 1 : 0;
    t->row_param = s->row_param;
    t->bound = s->positions;
    t->share = vector == 8 && layout_words_of_row(e) <= 2 ? 2 * ROW_REGISTERS : ROW_REGISTERS;
    if (streams) t->share = 2 * MAXIMUM(vector, 2);
    /* Rows of words of 8 bytes that come one by one: as many registers hold half as many. */
    bool pairs = vector == 1 && s->positions <= BLOCK_ROW && s->positions > SHORT_ROW && kept_bytes(e) > 4;
    if (pairs) t->share = ROW_REGISTERS / 2;
    int64_t long_row = 2 * ROW_REGISTERS * MOST_THREADS; /* a block holds it in registers and shared memory */
    bool roomy = target->shared_bytes >= 200 * 1024;
    int64_t whole_chip = (int64_t)target->units * long_row / 2;
    int wish = e->k->knobs[KNOB_CLUSTER]; /* of `tune`: followed where so many blocks hold the row */
    bool few = e->k->few && !streams && !s->memory && !c->has_scan; /* a block for each, however short */
    bool clusters = !streams && roomy && target->arch >= 90 && wish != 1 && may_be_large(e, s);
    if (clusters && wish > 1 && s->positions > SHORT_ROW && s->positions <= wish * long_row) {
        t->kind = TEAM_CLUSTER;
        t->block = MOST_THREADS;
        t->cluster = wish;
        t->share = s->positions <= wish * long_row / 2 ? ROW_REGISTERS : 2 * ROW_REGISTERS;
        t->reason = "as many blocks as `cluster` asks for";
    } else if (few && s->positions > 256 && s->positions <= SHORT_ROW) {
        t->kind = TEAM_BLOCK;
        t->block = (int)MINIMUM(power_above((s->positions + vector - 1) / vector), WIDE_TEAM);
        t->share = (int)((s->positions + t->block * vector - 1) / (t->block * vector)) * vector;
        t->reason = "few short rows, each for a block";
    } else if (s->positions <= 256 || (s->positions <= SHORT_ROW && !streams)) {
        t->kind = TEAM_LANES;
        t->share = streams ? MAXIMUM(t->share, 8) : s->positions <= 256 ? 16 : ROW_REGISTERS;
        if (s->positions <= TINY_ROW)
            t->share = t->over ? 8 : 2 * MAXIMUM(vector, 4); /* or threads have nothing to do */
        t->reason = "short rows, several in a block";
    } else if (s->positions <= BLOCK_ROW && (!streams || s->positions <= SHORT_ROW)) {
        t->kind = TEAM_BLOCK;
        t->block = (int)MINIMUM(MAXIMUM((s->positions + t->share - 1) / t->share, 128), pairs ? MOST_THREADS : 512);
        t->reason = "a row for each block";
    } else if (!streams && roomy && s->positions <= long_row && !s->memory &&
               !(clusters && s->kept && !c->stores_rows)) {
        t->kind = TEAM_BLOCK;
        t->block = MOST_THREADS;
        t->share = 2 * ROW_REGISTERS;
        t->reason = "a long row for each block, partly in shared memory";
    } else if (clusters && s->positions <= MOST_CLUSTER * long_row / 2) {
        t->kind = TEAM_CLUSTER;
        /* Two blocks share a multiprocessor: while one exchanges, the other loads. */
        t->block = vector == 4 || short_elements ? MOST_THREADS / 2 : MOST_THREADS;
        t->share = short_elements ? 4 * ROW_REGISTERS : 2 * ROW_REGISTERS;
        t->reason = "rows too long for one block";
    } else if (!streams && may_be_large(e, s) && (s->positions <= whole_chip || c->any_fold)) {
        t->kind = TEAM_GRID;
        t->block = 512;
        /* Several tiles of a row: each thread has room for less of each, and there are blocks for that. */
        int share = layout_words_of_row(e) > 1 ? ROW_REGISTERS : 2 * ROW_REGISTERS;
        t->share = s->positions <= whole_chip && roomy ? share : 0;
        t->one_team = !t->share;
        t->reason = t->share ? "as many blocks as hold a row" : "the whole chip on one row";
    } else {
        t->kind = TEAM_BLOCK;
        t->threads = streams ? 256 : 512;
        t->share = 0;
        t->reason = streams ? "rows that nothing holds" : "long rows, read again where they are needed again";
    }
    /* The longest row still fits; and one that is as long as so many warps hold, which a shift makes longer than that, needs
     * no further warp for its last elements. */
    bool held = t->kind == TEAM_BLOCK && s->positions <= BLOCK_ROW && !streams;
    if (t->over && t->share && (held || !leaves_room(e, s))) t->share += vector;
}

static void choose_team(const survey *e)
{
    spread *c = e->spread;
    overview s = look(e);
    c->team = (team){.row_param = -1, .bound = s.positions};
    team *t = &c->team;
    if (c->before) {
        const team *all = &c->before->team;
        t->kind = TEAM_BLOCK;
        t->threads = all->kind == TEAM_LANES ? all->block : all->threads;
        t->block = all->block;
        t->reason = "the last block of the phase before";
        return;
    }
    if (!s.largest) {
        t->kind = TEAM_LANES;
        t->threads = 1;
        t->reason = "scalars alone: a program for each thread";
    } else if (s.only_row && !c->has_dot) {
        choose_row_team(e, &s);
        if (s.memory && t->kind == TEAM_LANES && !t->threads) t->threads = 32;
        if (s.rows && t->kind == TEAM_LANES) t->threads = 32;
        if (c->has_scan && t->kind == TEAM_LANES && !t->threads) { /* lanes that the text knows meet without a loop */
            int64_t vectors = (s.positions + t->over + s.largest->vector - 1) / s.largest->vector;
            t->threads = (int)MINIMUM(power_above(vectors), 32);
        }
    } else if (s.positions < (int64_t)1 << 24) {
        choose_constant_team(e, &s);
    } else {
        t->kind = TEAM_BLOCK;
        t->threads = 256;
        t->reason = "a tile of run-time size";
    }
    if (e->k->knobs[KNOB_WARPS] && t->kind == TEAM_BLOCK && t->threads) { /* a wish of `tune` */
        int most = c->has_dot ? 256 : MOST_THREADS; /* more than a product's room is made for is of no use */
        t->threads = 32;
        while (t->threads < 32 * e->k->knobs[KNOB_WARPS] && t->threads < most) t->threads *= 2;
    }
    if (t->kind == TEAM_LANES)
        t->block = MAXIMUM(t->threads, LANES_BLOCK);
    else if (t->threads)
        t->block = t->threads;
}

/* ---- layouts ---- */

static int part_threads(const survey *e, const pass_layout *l)
{
    const team *t = &e->spread->team;
    int64_t rows = layout_positions(e, l, true), inner = layout_positions(e, l, false);
    int most = t->threads && t->threads < 32 ? t->threads : 32;
    if (l->row_fast) {
        int64_t wide = t->threads ? t->threads : 32;
        return (int)MINIMUM(wide, power_above(MINIMUM(rows, 1024)));
    }
    if (inner > 2048 && (!t->threads || t->threads > 32)) return 0;
    int64_t want = power_above((inner + l->vector * 4 - 1) / (l->vector * 4));
    if (t->threads && rows < INT64_MAX)
        while (want < most && want * rows < t->threads) want *= 2;
    return (int)MINIMUM(MAXIMUM(want, 1), most);
}

static void choose_parts(const survey *e)
{
    spread *c = e->spread;
    for (int i = 0; i < c->layout_count; i++) c->layouts[i]->inner_threads = 0;
    for (int i = 0; i < c->layout_count; i++) {
        pass_layout *l = c->layouts[i], *leader = leader_of(l);
        if (!l->row_axes) continue;
        if (layout_positions(e, l, false) == 1 && l != leader) continue;
        int parts = part_threads(e, l);
        if (leader->inner_threads >= 0)
            leader->inner_threads = parts && leader->inner_threads >= 0 ? MAXIMUM(leader->inner_threads, parts) : -1;
    }
    for (int i = 0; i < c->layout_count; i++) {
        pass_layout *l = c->layouts[i];
        if (l->row_axes) l->inner_threads = leader_of(l)->inner_threads;
    }
    for (int i = 0; i < c->layout_count; i++) c->layouts[i]->inner_threads = MAXIMUM(c->layouts[i]->inner_threads, 0);
}

static void choose_repeats(const survey *e, pass_layout *l)
{
    const team *t = &e->spread->team;
    int64_t inner = layout_positions(e, l, false);
    int axis = layout_single_inner(l), param = -1;
    l->repeats = 0;
    if (inner == INT64_MAX) return;
    int64_t threads = l->inner_threads;
    if (l->row_fast)
        threads = t->threads && l->inner_threads ? t->threads / l->inner_threads : 0;
    else if (!threads)
        threads = t->threads;
    int64_t repeats = 0;
    if (threads) {
        int64_t over = l->shifted ? l->vector - 1 : 0;
        repeats = (inner + over + threads * l->vector - 1) / (threads * l->vector);
    } else if (t->share && axis >= 0 && !l->row_axes && row_parameter(e, l->loops[axis], &param) &&
               param == t->row_param) {
        l->repeats = MAXIMUM(t->share / l->vector, 1);
        return;
    }
    if (repeats * l->vector <= MOST_UNROLLED) l->repeats = (int)repeats; /* 0: a loop */
}

int layout_unroll(const survey *e, const pass_layout *l)
{
    const spread *c = e->spread;
    int early = c->loads[e->pass_number].early, direct = c->loads[e->pass_number].direct;
    if (!early && !direct) return 1;
    if (early && c->slot_bytes && l->repeats) return 1;
    for (int i = 1; i < c->kept_count && c->slot_bytes && l->repeats; i++) /* a tile that got no registers after all */
        if (c->kept[i].loaded_in == e->pass_number && c->kept[i].kind != HOME_REGISTERS) return 1;
    int room = c->live_registers >= ROW_REGISTERS || c->slot_bytes ? IN_FLIGHT / 4 : IN_FLIGHT;
    if (e->dot_room && !c->slot_bytes)
        room = 2 * IN_FLIGHT; /* after a product few blocks are there, and its registers */
    int at_once = l->turned ? MOST_TURNED : MOST_IN_FLIGHT;
    int most = early ? MINIMUM(room / (early * l->vector), at_once) : MOST_UNROLLED;
    if (!l->repeats) return MAXIMUM(MINIMUM(most, at_once), 1);
    int unroll = l->repeats;
    while (unroll > 1 && (unroll > most || l->repeats % unroll)) unroll--;
    return unroll;
}

/* Wishes that nothing could follow are mistakes. */
static qn_status check_knobs(const survey *e, qn_error *error)
{
    int cluster = e->k->knobs[KNOB_CLUSTER], stages = e->k->knobs[KNOB_STAGES];
    if (cluster & (cluster - 1) || cluster > MOST_CLUSTER)
        return error_set(error, QN_BAD_CALL, "kernel `%s`: cluster = %d: a cluster has 1, 2, 4 or 8 blocks", e->k->name,
                         cluster);
    if (stages == 1 || stages > MOST_STAGES)
        return error_set(error, QN_BAD_CALL, "kernel `%s`: stages = %d: a product has 2 to %d steps on their way",
                         e->k->name, stages, MOST_STAGES);
    return QN_OK;
}

/* While some blocks find out where their next elements lie, or wait for them, others multiply: as many as their sums and rooms
 * allow, or fewer where there is a wish. 0: the product has none, and nothing to find out. */
static int product_blocks(const survey *e)
{
    enum { MOST_THREADS = 512 };
    const spread *c = e->spread;
    int wish = e->dot_room ? e->k->knobs[KNOB_BLOCKS] : 0;
    if (!c->gathers && !wish) return 0;
    int64_t rooms = c->machine.shared_bytes / MAXIMUM(c->shared_bytes + SHARED_FOR_FOLDS, 1);
    int64_t most = MAXIMUM(1, MINIMUM(MOST_THREADS / MAXIMUM(c->team.block, 1), rooms));
    return (int)(wish ? MINIMUM(wish, most) : most);
}

qn_status spread_decide(survey *e, qn_error *error)
{
    spread *c = e->spread;
    QN_TRY(check_knobs(e, error));
    choose_turned(e);
    for (;;) {
        bool large = c->no_large;
        for (int i = 0; i < c->layout_count; i++) choose_vector(e, c->layouts[i]);
        for (int i = 0; i < c->layout_count; i++) choose_spread(c->layouts[i]);
        choose_team(e);
        choose_parts(e);
        for (int i = 0; i < c->layout_count; i++) choose_repeats(e, c->layouts[i]);
        QN_TRY(layout_choose_homes(e, error));
        int blocks = product_blocks(e);
        if (!blocks && c->has_scan) blocks = e->k->knobs[KNOB_BLOCKS];
        c->least_blocks = blocks ? blocks : layout_resident_blocks(e);
        if (large == c->no_large) return QN_OK;
    }
}
