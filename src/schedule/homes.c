/*
 * Homes of kept tiles. In: teams and layouts of a phase. Out: for each tile that outlives its pass whether registers,
 * registers and slots of a thread, shared memory or scratch hold it, and how many blocks of a multiprocessor that leaves
 * room for.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/spread_parts.h"

#include <inttypes.h>
#include <string.h>

enum {
    SLOT_REGISTERS = 16,     /* words of a thread in registers when the rest is in shared memory */
    LARGEST_BOUND = 1 << 30, /* bytes of a kept tile whose length only the program knows */
    LIGHT_PASS = 6,          /* weight of passes that 32 registers are enough for */
    MANY_PLACES = 24         /* loads whose addresses take more registers than what is done with them */
};

static int64_t round_up(int64_t x, int64_t by)
{
    return (x + by - 1) / by * by;
}

/* The most bytes of a kept tile; INT64_MAX: not known before the launch. */
static int64_t buffer_bound(const survey *e, int number, int pad)
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
int layout_live_registers(const survey *e, int number, const int *registers)
{
    const buffer *b = &e->buffers[number];
    int most = 0, last_pass = b->first == b->last ? b->last_pass : b->first_pass;
    for (int time = b->first; time <= b->last; time++) {
        for (int pass = b->first_pass; pass <= last_pass; pass++) {
            int sum = 0;
            for (int i = 1; i < e->spread->kept_count; i++)
                if (registers[i] && is_alive(&e->buffers[i], time, pass)) sum += registers[i];
            most = MAXIMUM(most, sum);
        }
    }
    return most;
}

/* How many blocks a multiprocessor should hold: what their kept registers leave room for. */
int layout_resident_blocks(survey *e)
{
    spread *c = e->spread;
    if (c->team.kind == TEAM_GRID && c->team.share) return 2;              /* a block of each team */
    if (c->team.kind == TEAM_GRID) return c->weight <= LIGHT_PASS ? 4 : 2; /* all are there at once */
    if (!c->live_registers || !c->team.block || e->dot_room) return 1; /* the sums of a product are not counted here */
    int early = 0, vector = 1, places = 0;                             /* of loads before their use */
    for (int i = 0; i <= e->pass_number; i++) early = MAXIMUM(early, c->loads[i].early);
    for (int i = 0; i <= e->pass_number; i++) places = MAXIMUM(places, c->loads[i].places);
    for (int i = 0; i < c->layout_count; i++) vector = MAXIMUM(vector, c->layouts[i]->vector);
    int live = c->live_registers; /* rows of 16-bit floats are packed, the vectors that come beside them are not */
    if (early && vector == 8) live = MAXIMUM(live, c->team.share);
    int others = live >= 2 * ROW_REGISTERS ? 16 + early * vector : c->team.block >= 512 ? 32 : 40;
    if (c->team.over && early) others += 8; /* two ways to load, and what tells them apart */
    if (early >= MOST_IN_FLIGHT) /* many loads beside each other (rows of a column's sum): all are on their way */
        others = MAXIMUM(others, 24 + MAXIMUM(early * vector, MINIMUM(IN_FLIGHT, early * vector * MOST_IN_FLIGHT)));
    c->has_many_places = places > MANY_PLACES;
    if (c->has_many_places) others = MAXIMUM(others, 24 + 2 * places); /* addresses wait in registers, too */
    int registers = MINIMUM((int)round_up(live + others, 8), 255);
    return (int)MAXIMUM(MINIMUM(65536 / (registers * c->team.block), 2048 / c->team.block), 1);
}

/* Registers of some repeats of a kept tile: 16-bit floats lie two in each. */
static int home_registers(const survey *e, int number, const pass_layout *l, int repeats)
{
    dtype t = e->buffers[number].elem;
    int words = MAXIMUM(dtypes[t].size_bytes / 4, 1) * repeats * l->vector;
    return (t == DT_F16 || t == DT_BF16) && l->vector > 1 ? words / 2 : words;
}

static bool slots_fit(const survey *e, int bytes)
{
    const spread *c = e->spread;
    int64_t room = c->machine.shared_bytes - SHARED_FOR_FOLDS - (c->has_scan ? SHARED_FOR_SCANS : 0) - c->shared_bytes;
    if (c->team.kind == TEAM_GRID) room /= 2;
    return (int64_t)(c->slot_bytes + bytes) * c->team.block <= room;
}

/* A row that a loop loads, in slots: the next trip's comes while this trip's is used. */
static bool try_ahead(survey *e, int number)
{
    spread *c = e->spread;
    kept *k = &c->kept[number];
    const pass_layout *l = k->layout;
    k->comes_ahead = false;
    if (!k->ahead || k->elsewhere || !l || !l->repeats || l->row_axes || k->ahead < l->vector || l->shifted)
        return false;
    if (c->team.kind != TEAM_BLOCK || c->team.row_param < 0 || c->machine.arch < 80 || c->machine.checked) return false;
    int axis = layout_single_inner(l), bytes = l->vector * dtypes[e->buffers[number].elem].size_bytes;
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
static void try_slots(survey *e, int number, int *registers)
{
    spread *c = e->spread;
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
    if (layout_live_registers(e, number, registers) > register_budget(&c->team)) {
        registers[number] = 0;
        return;
    }
    k->in_registers = in_registers;
    k->slots_before = c->slot_bytes;
    c->slot_bytes += slots;
}

/* What must lie in shared memory must fit for all teams of a block: as many teams as that allows. */
static void fit_teams(survey *e)
{
    spread *c = e->spread;
    team *t = &c->team;
    int64_t pinned = 0, room = c->machine.shared_bytes - SHARED_FOR_FOLDS - 8 * MOST_THREADS * 2;
    for (int i = 1; i < c->kept_count; i++)
        if (c->kept[i].touched && c->kept[i].pinned) pinned += buffer_bound(e, i, 0);
    while (t->kind == TEAM_LANES && t->threads && t->block > t->threads && pinned * (t->block / t->threads) > room)
        t->block /= 2;
}

qn_status layout_choose_homes(survey *e, qn_error *error)
{
    spread *c = e->spread;
    const team *t = &c->team;
    int *registers = ARENA_ARRAY(e->memory, int, c->kept_count + 1);
    bool several =
        t->kind == TEAM_GRID && t->share && layout_words_of_row(e) > 1; /* no tile takes the registers of all */
    fit_teams(e);
    int teams = t->kind == TEAM_LANES ? t->block / MAXIMUM(t->threads, 1) : 1;
    if (t->kind == TEAM_LANES && !t->threads) teams = t->block;
    int64_t room = (c->machine.shared_bytes - SHARED_FOR_FOLDS - 8 * MOST_THREADS * 2) / teams / 16 * 16;
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
            if (registers[i] > MOST_UNROLLED * 2 || layout_live_registers(e, i, registers) > budget || several) {
                registers[i] = 0;
                try_slots(e, i, registers);
            }
        }
        if (registers[i]) {
            k->kind = HOME_REGISTERS;
            c->live_registers = MAXIMUM(c->live_registers, layout_live_registers(e, i, registers));
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

bool home_has_slots(const spread *c, int number)
{
    const kept *k = &c->kept[number];
    return k->kind == HOME_REGISTERS && k->in_registers < k->layout->repeats;
}

bool home_is_packed(const survey *e, int number)
{
    const kept *k = &e->spread->kept[number];
    dtype t = e->buffers[number].elem;
    return k->kind == HOME_REGISTERS && k->in_registers && (t == DT_F16 || t == DT_BF16) && k->layout->vector > 1;
}

bool home_is_opened(const survey *e, int number)
{
    return home_has_slots(e->spread, number) || home_is_packed(e, number);
}

bool home_comes_ahead(const survey *e, value v)
{
    const kept *k = &e->spread->kept[e->buffer_of[v]];
    return k->kind == HOME_REGISTERS && k->comes_ahead;
}

bool spread_loops_over_programs(const spread *c)
{
    if (c->team.kind == TEAM_GRID) return true;
    for (int i = 1; i < c->kept_count; i++)
        if (c->kept[i].touched && c->kept[i].kind == HOME_SCRATCH) return true;
    return false;
}
