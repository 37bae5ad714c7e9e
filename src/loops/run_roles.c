/*
 * Products with roles, run on numbers. In: a program of the recipe `fed` whose operands come by bulk copies, arrays and a
 * launch. Out: what it writes, or what is wrong with its order (loops/check.c, which calls back from here).
 *
 * One block has all tiles. Everything is as late as the program allows: a copy lands when its stage is waited for, a product
 * reads its stage and adds to the sums when a release says that it is over. Sums begin as no number at all where the first
 * product is to overwrite them. The epilogue computes what each store takes, element by element, as the interpreter does.
 * SPDX-License-Identifier: MIT
 */
#include "loops/run.h"
#include "loops/worker.h"

#include <math.h>

enum { MOST_PENDING = 64 };

typedef struct pending_product {
    int group, stage, walk;
    bool overwrites;
} pending_product;

typedef struct noted_tile { /* scalars, as the roles computed them for this tile */
    cell *scalars;
} noted_tile;

typedef struct role_sim {
    sim sim;
    const schedule *s;
    double *ring[SCHED_MOST_OPERANDS]; /* [stage][row or column][k] */
    double *sums, *totals;             /* [group][row][column]; totals: where steps are summed up apart */
    sim_copy copies[MOST_PENDING];
    pending_product products[MOST_PENDING];
    int copy_count, product_count;
} role_sim;

static int rows_of(const schedule *s)
{
    return s->choice.turns ? s->choice.tile[0] : s->choice.tile[0] / s->choice.groups;
}

/* Where a group's sums begin; its first row of the tile. */
static int64_t sums_at(const schedule *s, int group)
{
    return (int64_t)group * rows_of(s) * s->choice.tile[1];
}

static int first_row(const schedule *s, int group)
{
    return s->choice.turns ? 0 : group * rows_of(s);
}

/* ---- as the roles' loops are unrolled ---- */

sim_copy *sim_note_copy(sim *s, const loop_node *n)
{
    const struct access *a = &n->op->attr.access;
    sim_copy *c = ARENA_NEW(s->memory, sim_copy);
    *c = (sim_copy){.operand = n->number[1], .box = n->number[0]};
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        c->start[axis] = s->scalars[n->op->operands[operand]].i;
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    return c;
}

static int count_tiles(void *context)
{
    const role_sim *r = context;
    const int64_t *programs = r->sim.plan->programs[r->s->phase];
    return (int)(programs[0] * programs[1] * programs[2]);
}

static void begin_tile(void *context, int tile)
{
    role_sim *r = context;
    const int64_t *programs = r->sim.plan->programs[r->s->phase];
    r->sim.at[0] = tile % programs[0];
    r->sim.at[1] = tile / programs[0] % programs[1];
    r->sim.at[2] = tile / programs[0] / programs[1];
}

static void compute_scalar(void *context, const loop_node *n)
{
    role_sim *r = context;
    if ((n->code != LOOP_LET && n->code != LOOP_LOAD) || tile_type_of(r->s->kernel, n->op->results[0]).rank) return;
    if (n->op->code == OP_LOAD)
        sim_access(&r->sim, n->op);
    else
        sim_scalar(&r->sim, n->op);
}

/* How often a loop runs; the step that begins where there is none is outside of everything. */
static int begin_round(void *context, const loop_node *n, int round)
{
    enum { NOWHERE = 1 << 30 };
    role_sim *r = context;
    cell *scalars = r->sim.scalars;
    int64_t first = scalars[n->op->operands[0]].i, limit = scalars[n->op->operands[1]].i;
    int64_t step = scalars[n->op->operands[2]].i, count;
    if (n->code == LOOP_STEPS || n->code == LOOP_TURN) {
        int64_t each = n->number[1] ? (int64_t)n->number[0] * n->number[1] : n->number[0];
        step = n->number[0];
        count = first < limit ? (limit - first + each - 1) / each * MAXIMUM(n->number[1], 1) : 1;
        if (first >= limit) first = NOWHERE;
    } else {
        count = first < limit ? (limit - first + step - 1) / step : 0;
    }
    if (round >= 0) scalars[n->op->regions[0]->args[0]].i = first + round * step;
    return (int)count;
}

static void *note(void *context, const loop_node *n, bool first)
{
    role_sim *r = context;
    if (n->code == LOOP_BULK_IN) return sim_note_copy(&r->sim, n);
    if (n->code == LOOP_MATRIX) {
        pending_product *p = ARENA_NEW(r->sim.memory, pending_product);
        bool overwrites = n->number[0] == LOOPS_FROM_ZERO || (n->number[0] == LOOPS_ADD_LATER && first);
        *p = (pending_product){.walk = n->number[1], .overwrites = overwrites};
        return p;
    }
    if (n->code != LOOP_CHUNKS) return NULL;
    int count = r->s->kernel->value_count;
    noted_tile *t = ARENA_NEW(r->sim.memory, noted_tile);
    t->scalars = ARENA_ARRAY(r->sim.memory, cell, count);
    for (int v = 0; v < count; v++) t->scalars[v] = r->sim.scalars[v];
    return t;
}

/* ---- as they run ---- */

static double *stage_of(role_sim *r, int operand, int stage)
{
    const int *tile = r->s->choice.tile;
    return r->ring[operand] + (int64_t)stage * tile[r->s->operands[operand].side] * tile[2];
}

static void land(role_sim *r, const sim_copy *c)
{
    const sched_operand *o = &r->s->operands[c->operand];
    const array_view *array = &r->sim.arrays[o->load->attr.access.array];
    const int *tile = r->s->choice.tile;
    for (int i = c->box * o->box_size; i < (c->box + 1) * o->box_size && i < tile[o->side]; i++)
        for (int k = 0; k < tile[2]; k++) {
            int64_t offset = 0;
            bool inside = true;
            for (int axis = 0; axis < array->rank; axis++) {
                int64_t at = c->start[axis] + (axis == o->k_axis ? k : axis == o->tile_axis ? i : 0);
                inside &= at >= 0 && at < array->extents[axis];
                offset += at * array->strides[axis];
            }
            cell x = {0};
            if (inside) x = cell_read(array->elem, (char *)array->data + offset * dtypes[array->elem].size_bytes);
            double number = dtype_is_float(array->elem) ? x.f : (double)x.i;
            if (o->rounds) {
                cell rounded = {0};
                math_unary(OP_TF32, DT_F32, 1, &(cell){.f = number}, 0, &rounded);
                number = rounded.f;
            }
            stage_of(r, c->operand, c->stage)[i * tile[2] + k] = number;
        }
}

static void multiply(role_sim *r, const pending_product *p)
{
    const schedule *s = r->s;
    const int *tile = s->choice.tile;
    const sched_walk *walk = &s->walks[p->walk];
    double *sums = r->sums + sums_at(s, p->group);
    for (int i = 0; i < rows_of(s) * tile[1] && p->overwrites; i++) sums[i] = 0;
    for (int i = walk->first_product; i < walk->first_product + walk->product_count; i++) {
        const double *left = stage_of(r, s->products[i].left, p->stage) + (int64_t)first_row(s, p->group) * tile[2];
        const double *right = stage_of(r, s->products[i].right, p->stage);
        for (int row = 0; row < rows_of(s); row++)
            for (int column = 0; column < tile[1]; column++)
                for (int k = 0; k < tile[2]; k++)
                    sums[row * tile[1] + column] += left[row * tile[2] + k] * right[column * tile[2] + k];
    }
}

static void products_over(role_sim *r, int group, int left)
{
    int own = 0, kept = 0;
    for (int i = 0; i < r->product_count; i++) own += r->products[i].group == group;
    for (int i = 0; i < r->product_count; i++) {
        const pending_product p = r->products[i];
        if (p.group == group && own-- > left)
            multiply(r, &p);
        else
            r->products[kept++] = p;
    }
    r->product_count = kept;
}

static void store_tile(role_sim *r, int group, const noted_tile *t)
{
    const schedule *s = r->s;
    const int *tile = s->choice.tile;
    const double *sums = (s->apart ? r->totals : r->sums) + sums_at(s, group);
    int first = first_row(s, group);
    r->sim.scalars = t->scalars;
    for (int n = 0; n < s->store_count; n++) {
        value v = s->stores[n].op->operands[0];
        tile_type type = tile_type_of(s->kernel, v);
        place own = place_own(&type);
        sched_place at = s->places[v];
        for (int row = first; row < first + rows_of(s); row++)
            for (int column = 0; column < tile[1]; column++) {
                if (at.row >= 0 && own.axis[(int)at.row] != NO_AXIS) r->sim.position[(int)own.axis[(int)at.row]] = row;
                if (at.column >= 0 && own.axis[(int)at.column] != NO_AXIS)
                    r->sim.position[(int)own.axis[(int)at.column]] = column;
                dtype elem = tile_type_of(s->kernel, s->sums).elem;
                double sum = sums[(row - first) * tile[1] + column];
                r->sim.registers[0] = dtype_is_float(elem) ? (cell){.f = sum} : (cell){.i = (int64_t)sum};
                sim_store(&r->sim, s->stores[n].op);
            }
    }
}

static void run_node(void *context, const loop_node *n, int group, int stage, void *noted)
{
    role_sim *r = context;
    const int *tile = r->s->choice.tile;
    int count = rows_of(r->s) * tile[1], kept = 0;
    double *sums = r->sums + sums_at(r->s, group), *totals = r->totals + sums_at(r->s, group);
    switch (n->code) {
    case LOOP_BULK_IN:
        CHECK(r->copy_count < MOST_PENDING);
        r->copies[r->copy_count] = *(const sim_copy *)noted;
        r->copies[r->copy_count++].stage = stage;
        break;
    case LOOP_WAIT:
        if (n->number[0]) break; /* for an empty stage */
        for (int i = 0; i < r->copy_count; i++)
            if (r->copies[i].stage == stage)
                land(r, &r->copies[i]);
            else
                r->copies[kept++] = r->copies[i];
        r->copy_count = kept;
        break;
    case LOOP_MATRIX:
        CHECK(r->product_count < MOST_PENDING);
        r->products[r->product_count] = *(const pending_product *)noted;
        r->products[r->product_count].group = group;
        r->products[r->product_count++].stage = stage;
        break;
    case LOOP_RELEASE: products_over(r, group, n->number[0] == LOOPS_BEFORE); break;
    case LOOP_SUMS_BEGIN:
        for (int i = 0; i < count; i++) sums[i] = n->number[0] && !r->s->apart ? 0 : NAN;
        for (int i = 0; i < count; i++) totals[i] = n->number[0] ? 0 : NAN;
        break;
    case LOOP_ADD_SUMS:
        for (int i = 0; i < count; i++) totals[i] += sums[i];
        break;
    case LOOP_CHUNKS: store_tile(r, group, noted); break;
    default: break;
    }
}

bool loops_sim_roles(const loop_program *p, const array_view *arrays, const launch_plan *plan, int preferred,
                     arena *memory, text *why)
{
    const schedule *s = p->schedule;
    if (p->chained) return loops_sim_chained(p, arrays, plan, preferred, memory, why);
    if (!s || sched_warps_fill(s)) return false;
    for (int i = 0; i < s->operand_count; i++)
        if (s->operands[i].windows) return false;
    survey e;
    loops_survey(s->kernel, memory, &e);
    survey_open(&e, s->phase);
    loop_program of = *p;
    of.survey = &e;
    role_sim r = {.s = s};
    sim_open(&r.sim, &of, arrays, plan, memory, why);
    const int *tile = s->choice.tile;
    for (int i = 0; i < s->operand_count; i++)
        r.ring[i] = ARENA_ARRAY(memory, double, (int64_t)s->choice.stages *tile[s->operands[i].side] * tile[2]);
    r.sums = ARENA_ARRAY(memory, double, sums_at(s, s->choice.groups));
    r.totals = ARENA_ARRAY(memory, double, sums_at(s, s->choice.groups));
    tile_type type = tile_type_of(s->kernel, s->sums);
    sim_known known = {.v = s->sums, .at = place_own(&type)};
    cell sum = {0};
    r.sim.known = &known;
    r.sim.known_count = r.sim.most_known = 1;
    r.sim.registers = &sum;
    const loop_numbers numbers = {.context = &r,
                                  .preferred = preferred % (s->choice.groups + 1),
                                  .tiles = count_tiles,
                                  .begin = begin_tile,
                                  .round = begin_round,
                                  .scalar = compute_scalar,
                                  .note = note,
                                  .run = run_node};
    loops_check_on(p, &numbers, memory, why);
    return true;
}
