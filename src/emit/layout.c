/*
 * Chooses teams, layouts and homes. In: what the first run of the emitter saw of a phase. Out: the team that runs a
 * program, a layout for each kind of pass, a home for each kept tile.
 *
 * The team follows the largest pass: some lanes of a warp where the tile is small, a block where it is not, a cluster
 * or the whole grid for rows that no block can hold. Constant tiles have a constant number of threads; for rows whose
 * length is an argument the number of threads is chosen at the launch, so that one text serves a class of lengths.
 * SPDX-License-Identifier: MIT
 */
#include "emit/layout.h"

#include <inttypes.h>
#include <string.h>

enum {
    TINY_ROW = 40,     /* the shortest class */
    SHORT_ROW = 1024,  /* a warp holds it */
    BLOCK_ROW = 16384, /* the registers of a block hold it, with another block beside it */
    LANES_BLOCK = 128, /* threads of a block of several teams */
    WIDE_TEAM = 256,   /* the most threads of a program in which no thread needs another */
    MOST_UNROLLED =
        64,         /* elements of a thread that are written out; of rows in registers and slots as many as it has */
    IN_FLIGHT = 32, /* registers for loads before their use */
    MOST_IN_FLIGHT = 4,      /* chunks, unless they go to kept registers */
    MOST_TURNED = 16,        /* ... of single elements */
    SLOT_REGISTERS = 16,     /* words of a thread in registers when the rest is in shared memory */
    LARGEST_BOUND = 1 << 30, /* bytes of a kept tile whose length only the program knows */
    MOST_STAGES = 16,        /* of a product's ring, that `tune` may ask for */
    LIGHT_PASS = 6           /* weight of passes that 32 registers are enough for */
};

static int64_t power_above(int64_t x)
{
    int64_t p = 1;
    while (p < x) p *= 2;
    return p;
}

static int64_t round_up(int64_t x, int64_t by)
{
    return (x + by - 1) / by * by;
}

/* ---- what the first run sees ---- */

pass_layout *layout_find(emitter *e, const int64_t *loops, int count, unsigned row_axes, bool row_fast)
{
    cuda_state *c = e->cuda;
    for (int i = 0; i < c->layout_count; i++) {
        pass_layout *l = c->layouts[i];
        if (l->loop_count == count && l->row_axes == row_axes && (l->row_fast == row_fast || l->turned) &&
            !memcmp(l->loops, loops, sizeof(int64_t) * (size_t)count))
            return l;
    }
    CHECK(c->deciding);
    pass_layout *l = ARENA_NEW(e->memory, pass_layout);
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
    l->inner_threads = row_fast; /* a part of one thread, so that the first run takes the same way */
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

void layout_know_buffers(emitter *e)
{
    e->cuda->kept_count = MAXIMUM(e->cuda->kept_count, e->buffer_count);
}

void layout_touch(emitter *e, int buffer, const pass_layout *own)
{
    kept *k = &e->cuda->kept[buffer];
    layout_know_buffers(e);
    if (!own) {
        k->elsewhere = true;
        if (!k->why) k->why = "read at another place than its own";
    } else if (k->layout && k->layout != own) {
        k->elsewhere = true;
        if (!k->why) k->why = "touched in two layouts";
    }
    if (own) k->layout = own;
    if (k->touched && k->group != e->cuda->group) k->many_groups = true;
    k->touched = true;
    k->group = e->cuda->group;
}

void layout_touch_elsewhere(emitter *e, int buffer, const char *why)
{
    kept *k = &e->cuda->kept[buffer];
    layout_know_buffers(e);
    k->touched = k->elsewhere = k->many_groups = k->plain = true;
    k->why = why;
}

/* ---- sizes ---- */

bool row_parameter(const emitter *e, int64_t dim, int *param)
{
    if (dim >= 0) return false;
    const tile_op *op = tile_def(e->k, (value)-dim);
    if (!op || op->code != OP_ARG) return false;
    *param = op->attr.index;
    return true;
}

int64_t dimension_bound(const emitter *e, int64_t dim)
{
    if (dim >= 0) return dim;
    int64_t high = facts_of(e->facts, (value)-dim).high;
    return high > (int64_t)1 << 40 ? INT64_MAX : MAXIMUM(high, 0);
}

int64_t layout_positions(const emitter *e, const pass_layout *l, bool rows)
{
    int64_t count = 1;
    for (int axis = 0; axis < l->loop_count; axis++) {
        if ((l->row_axes >> axis & 1) != rows) continue;
        int64_t bound = dimension_bound(e, l->loops[axis]);
        if (bound == INT64_MAX || __builtin_mul_overflow(count, bound, &count)) return INT64_MAX;
    }
    return count;
}

static int64_t all_positions(const emitter *e, const pass_layout *l)
{
    int64_t rows = layout_positions(e, l, true), inner = layout_positions(e, l, false), all;
    if (rows == INT64_MAX || inner == INT64_MAX || __builtin_mul_overflow(rows, inner, &all)) return INT64_MAX;
    return all;
}

/* The only inner axis, if there is only one. */
static int single_inner(const pass_layout *l)
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
static bool can_shift(const emitter *e, const pass_layout *l)
{
    int param, axis = single_inner(l);
    if (axis < 0 || l->loop_count != 1 || l->row_fast || l->digits || e->cuda->target->checked || e->cuda->before)
        return false;
    bool pairs = l->want_shift < 4 && l->want_vector > 1;
    return l->lead && !l->even && l->want_shift > 1 && !pairs && row_parameter(e, l->loops[axis], &param);
}

static void choose_vector(const emitter *e, pass_layout *l)
{
    int last = -1;
    for (int axis = 0; axis < l->loop_count; axis++)
        if (!(l->row_axes >> axis & 1)) last = axis;
    l->vector = MINIMUM(l->want_vector, 8);
    if (l->digits) l->vector = MINIMUM(l->vector, l->digits);
    l->shifted = false;
    if (last < 0 || l->row_fast || e->cuda->target->checked) l->vector = 1;
    if (can_shift(e, l)) {
        l->vector = MINIMUM(l->want_shift, 8);
        l->shifted = true;
        return;
    }
    /* Elements of a vector that are loaded one by one lie a vector apart in neighbouring threads: most accesses decide. */
    if (l->narrow > 2 && l->narrow > l->wide) l->vector = 1;
    if (last < 0 || l->vector == 1) return;
    int64_t dim = l->loops[last];
    if (single_inner(l) >= 0 && !l->row_axes) return; /* a last part of a vector is taken apart */
    int64_t divisor = dim >= 0 ? dim : facts_of(e->facts, (value)-dim).divisor;
    while (l->vector > 1 && divisor % l->vector) l->vector /= 2;
}

/* Rows that lie across memory: neighbouring threads take neighbouring rows, in all passes that share the loop. */
static void choose_turned(const emitter *e)
{
    const cuda_state *c = e->cuda;
    for (int i = 0; i < c->layout_count; i++) {
        pass_layout *l = c->layouts[i];
        int rows = 0, inner = 0;
        if (!l->row_axes || l->row_fast) continue;
        for (int k = 0; k < c->layout_count; k++) {
            if (leader_of(c->layouts[k]) != leader_of(l)) continue;
            rows += c->layouts[k]->along_rows;
            inner += c->layouts[k]->along_inner;
        }
        l->turned = rows > inner;
    }
    for (int i = 0; i < c->layout_count; i++) c->layouts[i]->row_fast |= c->layouts[i]->turned;
}

/* ---- the team ---- */

typedef struct survey { /* of all passes of the phase */
    const pass_layout *largest;
    int64_t positions; /* of the largest; INT64_MAX: unbounded */
    bool rows;         /* some pass has rows */
    bool kept, memory; /* there are kept tiles; some cannot be in registers */
    int row_param;     /* of the largest, or -1 */
    bool only_row;     /* ... and nothing else makes its size */
} survey;

static survey look(const emitter *e)
{
    const cuda_state *c = e->cuda;
    survey s = {.positions = 0, .row_param = -1};
    for (int i = 0; i < c->layout_count; i++) {
        const pass_layout *l = c->layouts[i];
        s.rows |= l->row_axes != 0;
        if (!l->loop_count) continue;
        int64_t positions = all_positions(e, l);
        if (s.largest && positions <= s.positions) continue;
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
static bool may_be_large(const emitter *e, const survey *s)
{
    const cuda_state *c = e->cuda;
    return !s->rows && !s->memory && !c->has_dot && !c->has_scan && !c->has_position && !c->needs_broadcast &&
           !e->has_assert && !e->prints && !c->no_large;
}

static void choose_constant_team(const emitter *e, const survey *s)
{
    cuda_state *c = e->cuda;
    team *t = &c->team;
    bool alone = !c->any_fold && !s->memory && !c->has_dot && !c->has_scan && !c->no_wide;
    int vector = s->largest->vector, repeats = (vector > 1 ? 4 : 8) / (alone ? 2 : 1);
    int64_t threads = power_above((s->positions + vector * repeats - 1) / (vector * repeats));
    t->reason = "constant tile";
    if (s->largest->turned) { /* a row in a thread, or in few */
        int64_t rows = layout_positions(e, s->largest, true), inner = layout_positions(e, s->largest, false);
        threads = power_above(inner <= ROW_REGISTERS ? MINIMUM(rows, 256)
                                                     : (s->positions + ROW_REGISTERS - 1) / ROW_REGISTERS);
    }
    if (c->has_dot) {
        t->kind = TEAM_BLOCK;
        t->threads = s->positions <= 4096 ? 128 : 256;
    } else if (alone) {
        t->kind = TEAM_LANES;
        t->threads = (int)MINIMUM(MAXIMUM(threads, 1), WIDE_TEAM);
        t->reason = "constant tile, no thread needs another";
    } else if (threads <= 32 || (!s->largest->turned && (c->any_fold || c->has_scan) &&
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

static int live_registers(const emitter *e, int number, const int *registers);

/* Words of kept tiles that each element of the row has at once. */
static int words_of_row(const emitter *e)
{
    const cuda_state *c = e->cuda;
    int most = 0, *words = ARENA_ARRAY(e->memory, int, c->kept_count + 1);
    for (int i = 1; i < c->kept_count; i++)
        if (c->kept[i].touched && !c->kept[i].elsewhere && !c->kept[i].pinned)
            words[i] = MAXIMUM(dtypes[e->buffers[i].elem].size_bytes / 4, 1);
    for (int i = 1; i < c->kept_count; i++)
        if (words[i]) most = MAXIMUM(most, live_registers(e, i, words));
    return most;
}

/* Is the longest row shorter than its bound by what a shift may take? A class of lengths sees to that where they are no
 * multiples of 16 (cuda_choose_facts); a bound that comes from elsewhere does not. */
static bool leaves_room(const emitter *e, const survey *s)
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
static void choose_row_team(const emitter *e, const survey *s)
{
    cuda_state *c = e->cuda;
    team *t = &c->team;
    const cuda_target *target = c->target;
    bool streams = !c->any_fold && !s->memory && !s->kept && !c->has_scan;
    bool short_elements =
        s->largest->vector == 8 && words_of_row(e) == 1; /* one tile of them: as many bytes hold twice as much */
    int vector = s->largest->vector;
    t->over = s->largest->shifted ? vector - 1 : 0;
    t->row_param = s->row_param;
    t->bound = s->positions;
    t->share = vector == 8 && words_of_row(e) <= 2 ? 2 * ROW_REGISTERS : ROW_REGISTERS;
    if (streams) t->share = 2 * MAXIMUM(vector, 2);
    int64_t long_row = 2 * ROW_REGISTERS * MOST_THREADS; /* a block holds it in registers and shared memory */
    bool roomy = target->shared_bytes >= 200 * 1024;
    int64_t whole_chip = (int64_t)target->multiprocessors * long_row / 2;
    int wish = e->k->knob_cluster; /* of `tune`: followed where so many blocks hold the row */
    bool clusters = !streams && roomy && target->arch >= 90 && wish != 1 && may_be_large(e, s);
    if (clusters && wish > 1 && s->positions > SHORT_ROW && s->positions <= wish * long_row) {
        t->kind = TEAM_CLUSTER;
        t->block = MOST_THREADS;
        t->cluster = wish;
        t->share = s->positions <= wish * long_row / 2 ? ROW_REGISTERS : 2 * ROW_REGISTERS;
        t->reason = "as many blocks as `cluster` asks for";
    } else if (s->positions <= 256 || (s->positions <= SHORT_ROW && !streams)) {
        t->kind = TEAM_LANES;
        t->share = streams ? MAXIMUM(t->share, 8) : s->positions <= 256 ? 16 : ROW_REGISTERS;
        if (t->over && s->positions <= TINY_ROW) t->share = 8; /* or most of a thread has nothing to do */
        t->reason = "short rows, several in a block";
    } else if (s->positions <= BLOCK_ROW && (!streams || s->positions <= SHORT_ROW)) {
        t->kind = TEAM_BLOCK;
        t->block = (int)MINIMUM(MAXIMUM((s->positions + t->share - 1) / t->share, 128), 512);
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
        int share = words_of_row(e) > 1 ? ROW_REGISTERS : 2 * ROW_REGISTERS;
        t->share = s->positions <= whole_chip && roomy ? share : 0;
        t->one_team = !t->share;
        t->reason = t->share ? "as many blocks as hold a row" : "the whole chip on one row";
    } else {
        t->kind = TEAM_BLOCK;
        t->threads = streams ? 256 : 512;
        t->share = 0;
        t->reason = streams ? "rows that nothing holds" : "long rows, read again where they are needed again";
    }
    if (t->over && t->share && !leaves_room(e, s)) t->share += vector; /* the longest row still fits */
}

static void choose_team(const emitter *e)
{
    cuda_state *c = e->cuda;
    survey s = look(e);
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
    } else if (s.positions < (int64_t)1 << 24) {
        choose_constant_team(e, &s);
    } else {
        t->kind = TEAM_BLOCK;
        t->threads = 256;
        t->reason = "a tile of run-time size";
    }
    if (e->k->knob_warps && t->kind == TEAM_BLOCK && t->threads) { /* a wish of `tune` */
        int most = c->has_dot ? 256 : MOST_THREADS; /* more than a product's room is made for is of no use */
        t->threads = 32;
        while (t->threads < 32 * e->k->knob_warps && t->threads < most) t->threads *= 2;
    }
    if (t->kind == TEAM_LANES)
        t->block = MAXIMUM(t->threads, LANES_BLOCK);
    else if (t->threads)
        t->block = t->threads;
}

/* ---- layouts ---- */

static int part_threads(const emitter *e, const pass_layout *l)
{
    const team *t = &e->cuda->team;
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

static void choose_parts(const emitter *e)
{
    cuda_state *c = e->cuda;
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

static void choose_repeats(const emitter *e, pass_layout *l)
{
    const team *t = &e->cuda->team;
    int64_t inner = layout_positions(e, l, false);
    int axis = single_inner(l), param = -1;
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

int layout_unroll(const emitter *e, const pass_layout *l)
{
    const cuda_state *c = e->cuda;
    if (c->deciding) return 1;
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

/* ---- homes ---- */

/* The most bytes of a kept tile; INT64_MAX: not known before the launch. */
static int64_t buffer_bound(const emitter *e, int number, int pad)
{
    const buffer *b = &e->buffers[number];
    int64_t bytes = dtypes[b->elem].size_bytes;
    for (int i = 0; i < b->shape.rank; i++) {
        int64_t bound = dimension_bound(e, b->shape.dims[i]);
        if (bound == INT64_MAX || __builtin_mul_overflow(bytes, bound + (i == b->shape.rank - 1 ? pad : 0), &bytes))
            return INT64_MAX;
    }
    return round_up(bytes, 16);
}

static int register_budget(const team *t)
{
    int threads = t->kind == TEAM_LANES ? t->block : t->block ? t->block : MOST_THREADS;
    if (t->kind == TEAM_GRID && t->share) threads *= 2;  /* of two blocks that share a multiprocessor */
    if (t->kind == TEAM_CLUSTER) threads = MOST_THREADS; /* of one block or two */
    return threads > 512 ? 40 : threads > 256 ? 96 : 160;
}

/* Is the tile alive at this time and, where it lives in one group alone, in this pass of it? What is last read where
 * another is written makes room. */
static bool is_alive(const buffer *b, int time, int pass)
{
    if (b->first == time && b->last == time)
        return b->first_pass <= pass && (b->last_pass > pass || b->first_pass == pass);
    return b->first <= time && (b->last > time || b->first == time);
}

/* Registers of kept tiles that live at some time of `number`. */
static int live_registers(const emitter *e, int number, const int *registers)
{
    const buffer *b = &e->buffers[number];
    int most = 0, last_pass = b->first == b->last ? b->last_pass : b->first_pass;
    for (int time = b->first; time <= b->last; time++) {
        for (int pass = b->first_pass; pass <= last_pass; pass++) {
            int sum = 0;
            for (int i = 1; i < e->cuda->kept_count; i++)
                if (registers[i] && is_alive(&e->buffers[i], time, pass)) sum += registers[i];
            most = MAXIMUM(most, sum);
        }
    }
    return most;
}

/* How many blocks a multiprocessor should hold: what their kept registers leave room for. */
static int resident_blocks(const emitter *e)
{
    const cuda_state *c = e->cuda;
    if (c->team.kind == TEAM_GRID && c->team.share) return 2;              /* a block of each team */
    if (c->team.kind == TEAM_GRID) return c->weight <= LIGHT_PASS ? 4 : 2; /* all are there at once */
    if (!c->live_registers || !c->team.block || e->dot_room) return 1; /* the sums of a product are not counted here */
    int early = 0, vector = 1;                                         /* of loads before their use */
    for (int i = 0; i <= e->pass_number; i++) early = MAXIMUM(early, c->loads[i].early);
    for (int i = 0; i < c->layout_count; i++) vector = MAXIMUM(vector, c->layouts[i]->vector);
    int live = c->live_registers; /* rows of 16-bit floats are packed, the vectors that come beside them are not */
    if (early && vector == 8) live = MAXIMUM(live, c->team.share);
    int others = live >= 2 * ROW_REGISTERS ? 16 + early * vector : c->team.block >= 512 ? 32 : 40;
    if (c->team.over && early) others += 8; /* two ways to load, and what tells them apart */
    if (early > MOST_IN_FLIGHT) /* many loads beside each other (rows of a column's sum): all are on their way */
        others = MAXIMUM(others, 24 + MINIMUM(IN_FLIGHT, early * vector * MOST_IN_FLIGHT));
    int registers = (int)round_up(live + others, 8);
    return (int)MAXIMUM(MINIMUM(65536 / (registers * c->team.block), 2048 / c->team.block), 1);
}

/* Registers of some repeats of a kept tile: 16-bit floats lie two in each. */
static int home_registers(const emitter *e, int number, const pass_layout *l, int repeats)
{
    dtype t = e->buffers[number].elem;
    int words = MAXIMUM(dtypes[t].size_bytes / 4, 1) * repeats * l->vector;
    return (t == DT_F16 || t == DT_BF16) && l->vector > 1 ? words / 2 : words;
}

static bool slots_fit(const emitter *e, int bytes)
{
    const cuda_state *c = e->cuda;
    int64_t room = c->target->shared_bytes - SHARED_FOR_FOLDS - (c->has_scan ? SHARED_FOR_SCANS : 0) - c->shared_bytes;
    if (c->team.kind == TEAM_GRID) room /= 2;
    return (int64_t)(c->slot_bytes + bytes) * c->team.block <= room;
}

/* A row that a loop loads, in slots: the next trip's comes while this trip's is used. */
static bool try_ahead(emitter *e, int number)
{
    cuda_state *c = e->cuda;
    kept *k = &c->kept[number];
    const pass_layout *l = k->layout;
    k->comes_ahead = false;
    if (!k->ahead || k->elsewhere || !l || !l->repeats || l->row_axes || k->ahead < l->vector || l->shifted)
        return false;
    if (c->team.kind != TEAM_BLOCK || c->team.row_param < 0 || c->target->arch < 80 || c->target->checked) return false;
    int axis = single_inner(l), bytes = l->vector * dtypes[e->buffers[number].elem].size_bytes;
    if (axis < 0 || l->loops[axis] >= 0 || facts_of(e->facts, (value)-l->loops[axis]).divisor % l->vector) return false;
    int slots = 2 * l->repeats * bytes;
    if (bytes != 16 || !slots_fit(e, slots)) return false;
    k->comes_ahead = true;
    k->in_registers = 0;
    k->slots_before = c->slot_bytes;
    c->slot_bytes += slots;
    return true;
}

/* Some vectors of each thread in registers, the others in slots of shared memory that no other thread touches. */
static void try_slots(emitter *e, int number, int *registers)
{
    cuda_state *c = e->cuda;
    kept *k = &c->kept[number];
    const pass_layout *l = k->layout;
    int bytes = l->vector * dtypes[e->buffers[number].elem].size_bytes;
    int in_registers = SLOT_REGISTERS / MAXIMUM(home_registers(e, number, l, 1), 1);
    if (c->team.kind == TEAM_LANES || l->row_axes || bytes < 4 || bytes > 16 || !in_registers ||
        in_registers >= l->repeats)
        return;
    int slots = (l->repeats - in_registers) * bytes;
    if (!slots_fit(e, slots)) return;
    registers[number] = home_registers(e, number, l, in_registers);
    if (live_registers(e, number, registers) > register_budget(&c->team)) {
        registers[number] = 0;
        return;
    }
    k->in_registers = in_registers;
    k->slots_before = c->slot_bytes;
    c->slot_bytes += slots;
}

/* What must lie in shared memory must fit for all teams of a block: as many teams as that allows. */
static void fit_teams(emitter *e)
{
    cuda_state *c = e->cuda;
    team *t = &c->team;
    int64_t pinned = 0, room = c->target->shared_bytes - SHARED_FOR_FOLDS - 8 * MOST_THREADS * 2;
    for (int i = 1; i < c->kept_count; i++)
        if (c->kept[i].touched && c->kept[i].pinned) pinned += buffer_bound(e, i, 0);
    while (t->kind == TEAM_LANES && t->threads && t->block > t->threads && pinned * (t->block / t->threads) > room)
        t->block /= 2;
}

static qn_status choose_homes(emitter *e, qn_error *error)
{
    cuda_state *c = e->cuda;
    const team *t = &c->team;
    int *registers = ARENA_ARRAY(e->memory, int, c->kept_count + 1);
    bool several = t->kind == TEAM_GRID && t->share && words_of_row(e) > 1; /* no tile takes the registers of all */
    fit_teams(e);
    int teams = t->kind == TEAM_LANES ? t->block / MAXIMUM(t->threads, 1) : 1;
    if (t->kind == TEAM_LANES && !t->threads) teams = t->block;
    int64_t room = (c->target->shared_bytes - SHARED_FOR_FOLDS - 8 * MOST_THREADS * 2) / teams / 16 * 16;
    if (t->kind > TEAM_BLOCK) room = 0;
    c->shared_bytes = 0;
    c->slot_bytes = 0;
    c->live_registers = 0;
    for (int i = 1; i < c->kept_count; i++) {
        kept *k = &c->kept[i];
        if (!k->touched || !k->pinned) continue;
        k->kind = HOME_SHARED;
        k->bytes = buffer_bound(e, i, 0);
        k->offset = c->shared_bytes;
        c->shared_bytes += k->bytes;
    }
    for (int i = 1; i < c->kept_count; i++) {
        kept *k = &c->kept[i];
        if (!k->touched || k->pinned) continue;
        const pass_layout *l = k->layout;
        if (try_ahead(e, i)) {
            k->kind = HOME_REGISTERS;
            continue;
        }
        bool fits = !k->elsewhere && l && l->repeats && !(l->row_axes && k->many_groups);
        k->in_registers = fits ? l->repeats : 0;
        if (fits) {
            registers[i] = home_registers(e, i, l, l->repeats);
            bool packed = registers[i] < l->repeats * l->vector; /* chunks are unpacked beside it */
            int budget = register_budget(t) - (packed ? 2 * l->vector : 0);
            if (registers[i] > MOST_UNROLLED * 2 || live_registers(e, i, registers) > budget || several) {
                registers[i] = 0;
                try_slots(e, i, registers);
            }
        }
        if (registers[i]) {
            k->kind = HOME_REGISTERS;
            c->live_registers = MAXIMUM(c->live_registers, live_registers(e, i, registers));
            continue;
        }
        if (t->kind > TEAM_BLOCK) {
            c->no_large = true;
            return QN_OK;
        }
        const tile_type *shape = &e->buffers[i].shape;
        k->pad = 0;
        if (k->across && !k->plain && shape->rank > 1 && shape->dims[shape->rank - 1] > 1)
            k->pad = MAXIMUM(4 / dtypes[e->buffers[i].elem].size_bytes, 1);
        k->bytes = buffer_bound(e, i, k->pad);
        if (k->bytes <= room - c->shared_bytes - (int64_t)c->slot_bytes * t->block) {
            k->kind = HOME_SHARED;
            k->offset = c->shared_bytes;
            c->shared_bytes += k->bytes;
        } else {
            bool at_launch = true, run_time = false;
            for (int axis = 0; axis < shape->rank; axis++) {
                if (shape->dims[axis] >= 0) continue;
                run_time = true;
                at_launch &= extent_at_launch(e, (value)-shape->dims[axis]);
            }
            k->kind = HOME_SCRATCH;
            k->pad = 0;
            k->bytes = buffer_bound(e, i, 0);
            if (run_time && !at_launch && k->bytes > LARGEST_BOUND)
                return error_set(error, QN_FAILED,
                                 "kernel `%s`: a tile that has to be kept has a length which is only known inside the "
                                 "program, without a bound; `assume` one, or take it in blocks",
                                 e->k->name);
            if (run_time && at_launch) k->bytes = 0; /* from the extents */
        }
    }
    return QN_OK;
}

/* Wishes that nothing could follow are mistakes. */
static qn_status check_knobs(const emitter *e, qn_error *error)
{
    int cluster = e->k->knob_cluster, stages = e->k->knob_stages;
    if (cluster & (cluster - 1) || cluster > MOST_CLUSTER)
        return error_set(error, QN_BAD_CALL, "kernel `%s`: cluster = %d: a cluster has 1, 2, 4 or 8 blocks", e->k->name,
                         cluster);
    if (stages == 1 || stages > MOST_STAGES)
        return error_set(error, QN_BAD_CALL, "kernel `%s`: stages = %d: a product has 2 to %d steps on their way",
                         e->k->name, stages, MOST_STAGES);
    return QN_OK;
}

/* While some blocks find out where their next elements lie, others multiply: as many as their sums and rooms allow. */
static int gathering_blocks(const cuda_state *c)
{
    enum { GATHERING_THREADS = 512 };
    int64_t rooms = c->target->shared_bytes / MAXIMUM(c->shared_bytes + SHARED_FOR_FOLDS, 1);
    return (int)MAXIMUM(1, MINIMUM(GATHERING_THREADS / MAXIMUM(c->team.block, 1), rooms));
}

qn_status layout_decide(emitter *e, qn_error *error)
{
    cuda_state *c = e->cuda;
    QN_TRY(check_knobs(e, error));
    choose_turned(e);
    for (;;) {
        bool large = c->no_large;
        for (int i = 0; i < c->layout_count; i++) choose_vector(e, c->layouts[i]);
        choose_team(e);
        choose_parts(e);
        for (int i = 0; i < c->layout_count; i++) choose_repeats(e, c->layouts[i]);
        QN_TRY(choose_homes(e, error));
        c->least_blocks = c->gathers ? gathering_blocks(c) : resident_blocks(e);
        if (large == c->no_large) return QN_OK;
    }
}
