/*
 * The recipe `fed`: which numbers a product gets on a Hopper GPU. In: a phase of tile IR and a machine. Out: a schedule,
 * or why there is none.
 *
 * The tile is the program's own: fusion and the author chose it. 128 x 256 with four stages of 64 k fills shared memory
 * and registers of a unit; smaller tiles leave room for two blocks, so that one stores while the other multiplies.
 * Results go through shared memory to bulk stores, 64 columns at a time: stores of a thread's own elements, 4 to 8
 * bytes each, cost up to a third of a short product.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/fed.h"
#include "target/target.h"

enum {
    GROUP_ROWS = 64,
    GROUP_WARPS = 4,
    MOST_COLUMNS = 256,
    MOST_SUMS = 128, /* registers of a thread */
    MOST_STAGES = 8, /* where nobody wishes more */
    MOST_WISHED = 16,
    ENOUGH_STAGES = 4,
    STAGES_BESIDE_LOADS = 3,
    FILL_REGISTERS = 24,
    MULTIPLY_REGISTERS = 240,
    GATHER_REGISTERS = 136, /* of two groups and one that gathers: what the others leave */
    BESIDE_REGISTERS = 184,
    WIDE_WARPS = 8, /* that fill: while some wait for memory others compute */
    WIDE_REGISTERS = 104,
    SQUARES_LINES = 16, /* of a warp that turns 4 x 4 elements a thread */
    BESIDE_WIDE_REGISTERS = 152,
    ALONE_WIDE_REGISTERS = 128, /* the same of one group */
    BESIDE_ALONE_REGISTERS = 240,
    MOST_LAG = 3,    /* steps of copies that a gathering thread has on their way beside the last */
    RUN = 8,         /* rows of tiles that take turns over all columns: what they read stays in the cache */
    MOST_RUN = 1024, /* a wish for more is one for all: times a launch's columns it stays a number of 32 bits */
    NEAR = 4,        /* elements between columns that are still stored by row */
    CHUNK_COLUMNS = 64,
    WARP_ROWS = 16,
    BLOCK_OVERHEAD_BYTES = 1024, /* of shared memory, that the system takes */
    PHASE_BYTES = 8,
    AHEAD_REGISTERS = 32
};

bool fed_refuse(fed_work *w, const char *why)
{
    if (!w->why) w->why = why;
    return false;
}

bool fed_array_is_bulk(const tile_param *p)
{
    return p->kind < PARAM_SCALAR && !p->digits && p->facts.bulk && p->rank >= 2 && p->rank <= SCHED_MAP_RANK;
}

int fed_map_add(schedule *s, sched_map map)
{
    CHECK(s->map_count < SCHED_MOST_MAPS);
    s->maps[s->map_count] = map;
    return s->map_count++;
}

/* Matrix units of Hopper; those of other widths than 16 bits take operands that lie along k alone. */
static bool choose_matrix(fed_work *w)
{
    schedule *s = w->s;
    dtype a = tile_type_of(s->kernel, s->operands[0].source).elem;
    bool rounds = true, along = true;
    for (int i = 0; i < s->operand_count; i++) {
        const sched_operand *o = &s->operands[i];
        if (tile_type_of(s->kernel, o->source).elem != a) return fed_refuse(w, "its operands are of two types");
        rounds &= o->rounds;
        along &= o->along_k;
    }
    dtype sums = tile_type_of(s->kernel, s->sums).elem;
    if (sums != (a == DT_I8 ? DT_I32 : DT_F32)) return fed_refuse(w, "its sums are not f32");
    if (a == DT_F32 && !rounds) return fed_refuse(w, "its operands are f32 that are not to be rounded to tf32");
    if (!dtype_is_narrow(a) && a != DT_F32 && a != DT_I8)
        return fed_refuse(w, "its operands are none of bf16, f16, f8e4m3, tf32 and i8");
    s->turns = dtypes[a].size_bytes == 2;
    if (!s->turns && !along)
        return fed_refuse(w, "the matrix units take tf32, f8e4m3 and i8 only where both operands lie along k");
    s->matrix = a == DT_F32 ? "tf32" : a == DT_I8 ? "s8" : a == DT_F8E4M3 ? "e4m3" : dtypes[a].text;
    s->choice.tile[2] = SCHED_LINE_BYTES / dtypes[a].size_bytes;
    for (int i = 0; i < s->walk_count; i++) {
        const sched_walk *k = &s->walks[i];
        if (k->step % s->choice.tile[2] && !k->ends_with_k)
            return fed_refuse(w, "its steps of k are no multiple of 128 bytes");
        if (s->apart && k->step != s->choice.tile[2])
            return fed_refuse(w, "it adds up products of other steps of k than 128 bytes");
    }
    return true;
}

static bool choose_tile(fed_work *w)
{
    schedule *s = w->s;
    sched_choice *c = &s->choice;
    tile_type sums = tile_type_of(s->kernel, s->sums);
    int64_t rows = sums.dims[0], columns = sums.dims[1];
    c->groups = rows == GROUP_ROWS ? 1 : 2;
    if ((rows != GROUP_ROWS && rows != 2 * GROUP_ROWS && rows != 4 * GROUP_ROWS) || columns < CHUNK_COLUMNS ||
        columns % CHUNK_COLUMNS || columns > MOST_COLUMNS)
        return fed_refuse(w, "its tile is not of 64, 128 or 256 rows and 64, 128, 192 or 256 columns");
    int64_t whole = rows * columns / (32 * GROUP_WARPS);
    c->turns = s->kernel->knobs[KNOB_TURNS] && !sched_warps_fill(s) && c->groups > 1 && !s->apart &&
               s->walk_count == 1 && s->walks[0].loop_count == 1 && whole <= MOST_SUMS;
    if (!c->turns && whole / c->groups * (s->apart ? 2 : 1) > MOST_SUMS)
        return fed_refuse(w, "its tile has more sums than two groups have registers for");
    c->tile[0] = (int)rows;
    c->tile[1] = (int)columns;
    c->order = s->kernel->knobs[KNOB_GROUP] ? MINIMUM(s->kernel->knobs[KNOB_GROUP], MOST_RUN) : RUN;
    return true;
}

static void choose_copies(schedule *s)
{
    static const char *const names[2][SCHED_MOST_OPERANDS] = {
        {"a_ring", "a1_ring", "a2_ring", "a3_ring", "a4_ring", "a5_ring", "a6_ring", "a7_ring"},
        {"b_ring", "b1_ring", "b2_ring", "b3_ring", "b4_ring", "b5_ring", "b6_ring", "b7_ring"}};
    int counts[2] = {0};
    for (int i = 0; i < s->operand_count; i++) {
        sched_operand *o = &s->operands[i];
        const struct access *a = &o->load->attr.access;
        dtype elem = tile_type_of(s->kernel, o->source).elem;
        int size = s->choice.tile[o->side], line = SCHED_LINE_BYTES / dtypes[elem].size_bytes;
        if (o->gathered && s->turns) o->along_k = s->gather.along_k;
        o->box_size = o->along_k ? size : line;
        o->boxes = size / o->box_size;
        sched_map map = {.array = a->array, .elem = elem, .rank = a->rank, .rounds = o->rounds};
        for (int axis = 0; axis < a->rank; axis++)
            map.box[axis] = axis == o->k_axis ? s->choice.tile[2] : axis == o->tile_axis ? o->box_size : 1;
        if (o->windows)
            map = (sched_map){
                .array = a->array, .elem = elem, .rank = 2, .box = {size, line}, .rounds = o->rounds, .windows = o->windows};
        o->map = sched_by_warps(o) ? -1 : fed_map_add(s, map);
        o->ring.name = names[o->side][o->walk ? 0 : counts[o->side]++];
        o->ring.stage_bytes = (int64_t)size * s->choice.tile[2] * dtypes[elem].size_bytes;
        o->ring.lines = (int)(o->ring.stage_bytes / SCHED_LINE_BYTES);
    }
}

/* May a tile at such a place be moved as boxes of 16 rows and 128 bytes? */
static bool access_is_bulk(const schedule *s, const tile_op *op, sched_place at)
{
    const struct access *a = &op->attr.access;
    const tile_param *p = &s->kernel->params[a->array];
    int row = -1, column = -1, size = dtypes[p->elem].size_bytes;
    if (!fed_array_is_bulk(p) || a->mask_count || (size != 2 && size != 4)) return false;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        bool slice = a->kind[axis] == INDEX_SLICE;
        number step;
        if (tile_type_of(s->kernel, op->operands[operand]).rank) return false;
        if (slice && (!tile_is_constant(s->kernel, op->operands[operand + 1], &step) || step.i != 1)) return false;
        if (slice && a->result_axis[axis] == at.row) row = axis;
        if (slice && a->result_axis[axis] == at.column) column = axis;
        operand += slice ? 2 : 1;
    }
    return row >= 0 && column == a->rank - 1;
}

static bool store_is_bulk(const schedule *s, const sched_store *store)
{
    return access_is_bulk(s, store->op, s->places[store->op->operands[0]]);
}

/* Boxes of a warp's rows of a chunk. */
static int add_box(schedule *s, const tile_op *op, sched_place at, int columns)
{
    const struct access *a = &op->attr.access;
    sched_map map = {.array = a->array, .elem = s->kernel->params[a->array].elem, .rank = a->rank};
    for (int axis = 0; axis < a->rank; axis++)
        map.box[axis] = a->kind[axis] == INDEX_SLICE && a->result_axis[axis] == at.row ? WARP_ROWS : 1;
    map.box[a->rank - 1] = columns;
    return fed_map_add(s, map);
}

/* Whole tiles of 16 bits that the epilogue reads: a thread's own loads would be of 4 bytes, and waited for. */
static void choose_loads(schedule *s)
{
    const tile_block *block = s->kernel->phases[s->phase];
    int rows = s->choice.tile[0] / (s->choice.turns ? 1 : s->choice.groups);
    int64_t bytes = (int64_t)rows / 64 * s->choice.tile[1] / CHUNK_COLUMNS * WARP_ROWS * SCHED_LINE_BYTES;
    for (int i = 0; i < block->op_count && s->load_count < SCHED_MOST_LOADS && !sched_warps_fill(s); i++) {
        const tile_op *op = block->ops[i];
        if (op->code != OP_LOAD || !s->needed[op->results[0]]) continue;
        sched_place at = s->places[op->results[0]];
        dtype elem = s->kernel->params[op->attr.access.array].elem;
        if (at.row < 0 || at.column < 0 || (elem != DT_BF16 && elem != DT_F16) || !access_is_bulk(s, op, at)) continue;
        s->loads[s->load_count] = (sched_load){op, -1, s->load_count * bytes};
        s->load_count++;
    }
    s->in = (sched_room){.name = "in", .stages = s->choice.groups * GROUP_WARPS, .stage_bytes = s->load_count * bytes};
}

/* Columns of a row that lie side by side, of an array that no bulk copy walks: rows of the room leave it by ordinary
 * stores of whole warps, which a thread's own elements would make in pieces. */
static bool store_is_by_row(const schedule *s, const sched_store *store)
{
    const tile_op *op = store->op;
    const struct access *a = &op->attr.access;
    const tile_param *p = &s->kernel->params[a->array];
    int column = s->places[op->operands[0]].column, size = dtypes[p->elem].size_bytes;
    if (a->mask_count || (size != 2 && size != 4) || (p->elem == DT_BOOL)) return false;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        bool slice = a->kind[axis] == INDEX_SLICE;
        number step;
        if (tile_type_of(s->kernel, op->operands[operand]).rank) return false;
        if (slice && (!tile_is_constant(s->kernel, op->operands[operand + 1], &step) || step.i != 1)) return false;
        if (slice && a->result_axis[axis] == column) {
            const axis_digits *d = p->digits ? &p->digits->axes[axis] : NULL;
            return d ? d->stride[d->count - 1] > 0 && d->stride[d->count - 1] <= NEAR
                     : axis == a->rank - 1 && p->facts.last_unit;
        }
        operand += slice ? 2 : 1;
    }
    return false;
}

static void choose_stores(schedule *s)
{
    int64_t bytes = 0;
    for (int n = 0; n < s->store_count; n++) {
        sched_store *store = &s->stores[n];
        const struct access *a = &store->op->attr.access;
        store->by_row = !store_is_bulk(s, store) && store_is_by_row(s, store);
        if (!store->by_row && !store_is_bulk(s, store)) continue;
        dtype elem = s->kernel->params[a->array].elem;
        store->box_size = SCHED_LINE_BYTES / dtypes[elem].size_bytes;
        store->boxes = CHUNK_COLUMNS / store->box_size;
        store->box_bytes = WARP_ROWS * SCHED_LINE_BYTES;
        store->offset = bytes;
        bytes += store->boxes * store->box_bytes;
        if (store->by_row) continue;
        store->map = add_box(s, store->op, s->places[store->op->operands[0]], store->box_size);
    }
    s->out = (sched_room){.name = "out", .stages = s->choice.groups * GROUP_WARPS, .stage_bytes = bytes};
}

/* As many stages as there is room for; smaller tiles leave half of it to a second block. */
static bool find_stages(schedule *s, const sched_machine *machine, int least)
{
    sched_choice *c = &s->choice;
    int64_t step = 0;
    for (int i = 0; i < s->operand_count; i++) step += s->operands[i].walk ? 0 : s->operands[i].ring.stage_bytes;
    int64_t out = s->out.stage_bytes * s->out.stages, in = s->in.stage_bytes * s->in.stages;
    int64_t phases = 2 * PHASE_BYTES * MOST_WISHED;
    for (c->blocks = 2; c->blocks; c->blocks--) {
        if (s->kernel->knobs[KNOB_BLOCKS] == 1 && c->blocks > 1) continue;
        int64_t room = machine->shared_bytes / c->blocks - (c->blocks - 1) * BLOCK_OVERHEAD_BYTES - phases;
        for (s->out_buffers = 2; s->out_buffers; s->out_buffers--) {
            int64_t stages = (room - in - out * s->out_buffers) / step;
            if (c->blocks > 1 &&
                (s->multiply.registers || stages < MAXIMUM(ENOUGH_STAGES, s->kernel->knobs[KNOB_STAGES])))
                continue;
            if (s->out_buffers > 1 && stages < ENOUGH_STAGES) continue;
            if (stages < least) continue;
            c->stages = (int)MINIMUM(stages, s->kernel->knobs[KNOB_STAGES] ? MAXIMUM(s->kernel->knobs[KNOB_STAGES], 2)
                                                                           : MOST_STAGES);
            s->out.stage_bytes *= s->out_buffers;
            return true;
        }
    }
    return false;
}

static bool choose_stages(fed_work *w, const sched_machine *machine)
{
    schedule *s = w->s;
    if (s->load_count && !find_stages(s, machine, STAGES_BESIDE_LOADS)) s->load_count = 0;
    if (s->load_count) {
        for (int i = 0; i < s->load_count; i++)
            s->loads[i].map = add_box(s, s->loads[i].op, s->places[s->loads[i].op->results[0]], CHUNK_COLUMNS);
        return true;
    }
    s->in = (sched_room){0};
    return find_stages(s, machine, 2) || fed_refuse(w, "its tile does not fit into shared memory twice");
}

static void place_rooms(schedule *s)
{
    int64_t offset = 0;
    for (int i = 0; i < s->operand_count; i++) {
        sched_room *ring = &s->operands[i].ring;
        ring->stages = s->choice.stages;
        for (int first = 0; s->operands[i].walk && first < i; first++)
            if (!s->operands[first].walk && s->operands[first].side == s->operands[i].side)
                *ring = s->operands[first].ring;
        if (s->operands[i].walk) continue;
        ring->offset = offset;
        offset += ring->stage_bytes * ring->stages;
    }
    s->in.offset = offset;
    s->in.lines = (int)(s->in.stage_bytes / SCHED_LINE_BYTES);
    offset += s->in.stage_bytes * s->in.stages;
    s->out.offset = offset;
    s->out.lines = (int)(s->out.stage_bytes / SCHED_LINE_BYTES);
    offset += s->out.stage_bytes * s->out.stages;
    s->phases_offset = offset;
    s->shared_bytes = offset + PHASE_BYTES * (2 * s->choice.stages + s->in.stages);
}

/* Is each 4 x 4 of an operand that is turned one thread's, with so many warps? */
static bool has_squares(const schedule *s, int warps)
{
    for (int side = 0; side < 2; side++)
        if (s->takes[side].load && s->takes[side].rounds && !s->takes[side].along_k &&
            s->choice.tile[side] % (SQUARES_LINES * warps))
            return false;
    return true;
}

/* A whole group fetches where registers are to be handed over, and where warps fill; two of these where a thread
 * has few sums, since so many threads begin with 128 registers each, and no second block has room; else a warp will do. */
static void choose_roles(schedule *s)
{
    const sched_choice *c = &s->choice;
    bool by_warps = sched_warps_fill(s), several = c->groups > 1;
    int sums = c->tile[0] * c->tile[1] / (c->groups * GROUP_WARPS * 32);
    bool wide =
        by_warps && sums <= MOST_SUMS / 2 && (several || s->product_count > 1) && has_squares(s, WIDE_WARPS);
    int warps = s->choice.groups * GROUP_WARPS, fill = wide ? WIDE_WARPS : several || by_warps ? GROUP_WARPS : 1;
    int multiply = MULTIPLY_REGISTERS, filling = FILL_REGISTERS;
    if (wide) {
        multiply = several ? BESIDE_WIDE_REGISTERS : BESIDE_ALONE_REGISTERS;
        filling = several ? WIDE_REGISTERS : ALONE_WIDE_REGISTERS;
    } else if (by_warps) {
        multiply = BESIDE_REGISTERS;
        filling = GATHER_REGISTERS;
    }
    bool hand_over = several || wide;
    s->multiply = (sched_role){"multiply", 0, warps, hand_over ? multiply : 0, false};
    s->fill = (sched_role){"fill", warps, fill, hand_over ? filling : 0, !by_warps};
    s->threads = 32 * (warps + fill);
    s->rolled = fed_epilogue_is_long(s);
    s->ahead_registers = by_warps || s->rolled ? 0 : AHEAD_REGISTERS;
}

static bool has_product(const tile_block *b)
{
    for (int i = 0; i < b->op_count; i++) {
        if (b->ops[i]->code == OP_DOT) return true;
        for (int r = 0; r < b->ops[i]->region_count; r++)
            if (has_product(b->ops[i]->regions[r])) return true;
    }
    return false;
}

const schedule *schedule_phase(const tile_kernel *k, int phase, const sched_machine *machine, arena *memory,
                               const char **why)
{
    schedule *s = ARENA_NEW(memory, schedule);
    fed_work w = {.s = s, .memory = memory};
    *s = (schedule){.kernel = k, .phase = phase};
    *why = NULL;
    if (k->raw_language || !has_product(k->phases[phase])) return NULL;
    bool suits = machine->arch == TARGET_HOPPER || fed_refuse(&w, "only Hopper (sm_90a) has matrix units of this kind");
    suits = suits && fed_find_loops(&w) && fed_find_epilogue(&w) && choose_matrix(&w) && choose_tile(&w);
    if (suits && s->gather.load) fed_choose_windows(&w);
    if (suits) choose_roles(s);
    suits = suits && (!s->gather.load || fed_choose_gather(&w)) && (!sched_takes(s) || fed_choose_takes(&w));
    if (suits) {
        choose_copies(s);
        choose_stores(s);
        choose_loads(s);
        suits = choose_stages(&w, machine);
    }
    *why = w.why;
    if (!suits) return NULL;
    place_rooms(s);
    s->gather.lag = s->gather.rounds ? 0 : MINIMUM(s->choice.stages - 2, MOST_LAG); /* a stage is released a step late */
    return s;
}
