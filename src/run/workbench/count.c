/*
 * Counting what a launch does, from the IR as it was lowered: floating-point operations, and element operations for
 * judging what the interpreter can afford.
 *
 * All programs of a small launch, or some spread over each phase and those at its edges, are walked with their scalar
 * integers evaluated, so that extents, trip counts and branches on scalars are exact; the trips of a loop between its
 * first and its last are taken to be like the middle one. A loop or branch that depends on data makes the count
 * unknown. One per elementwise float operation or function, two per multiply-add, and only for elements that exist and
 * are wanted (lanes.c): a tile that stands over the edge of an array counts for what lies inside.
 * SPDX-License-Identifier: MIT
 */
#include "run/workbench/count.h"
#include "ir/scalar.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool counter_read(const counter *c, value v, int64_t *out)
{
    if (!c->known[v]) return false;
    *out = c->values[v];
    return true;
}

static void set_value(counter *c, value v, int64_t x)
{
    c->values[v] = x;
    c->known[v] = true;
}

void counter_extents(counter *c, const tile_type *type, int64_t extents[MAX_RANK])
{
    for (int i = 0; i < type->rank; i++) {
        extents[i] = type->dims[i];
        if (extents[i] < 0 && !counter_read(c, (value)-type->dims[i], &extents[i])) {
            c->uncertain = true;
            extents[i] = 1;
        }
        extents[i] = MAXIMUM(extents[i], 0);
    }
}

static double elements(counter *c, const tile_type *type)
{
    int64_t extents[MAX_RANK];
    double count = 1;
    counter_extents(c, type, extents);
    for (int i = 0; i < type->rank; i++) count *= (double)extents[i];
    return count;
}

/* One scalar integer or bool operation, as the language has it. False: it is none of those or an operand is unknown. */
static bool evaluate(const counter *c, const tile_op *op, int64_t *out)
{
    int64_t x[3] = {0};
    if (op->operand_count > 3) return false;
    if (op->code == OP_SELECT) {
        if (!counter_read(c, op->operands[0], &x[0])) return false;
        return counter_read(c, op->operands[x[0] ? 1 : 2], out);
    }
    for (int i = 0; i < op->operand_count; i++)
        if (!counter_read(c, op->operands[i], &x[i])) return false;
    switch (op->code) {
    case OP_CONST: *out = op->attr.number.i; return true;
    case OP_ARG: *out = c->plan->scalars_bits[op->attr.index]; return true;
    case OP_PROGRAM: *out = c->program[op->attr.index]; return true;
    case OP_PROGRAMS: *out = c->plan->programs[c->phase][op->attr.index]; return true;
    case OP_UNITS: *out = c->units; return true;
    default: return scalar_of_op(c->k, op, x, out);
    }
}

/* Of the elements that exist and that somebody wants: never of the rest of a tile at the edge of an array. */
static double flops_of(counter *c, const tile_op *op)
{
    if (!op->operand_count || !op->result_count) return 0;
    bool is_float = dtype_is_float(tile_type_of(c->k, op->operands[0]).elem);
    switch (ops[op->code].class) {
    case CLASS_UNARY:
        return is_float && op->code != OP_CONVERT && op->code != OP_BITCAST && op->code != OP_ISNAN &&
                       op->code != OP_ISINF
                   ? lanes_counted(c, op->results[0])
                   : 0;
    case CLASS_BINARY: return is_float ? lanes_counted(c, op->results[0]) : 0;
    case CLASS_TERNARY: return op->code == OP_FMA ? 2 * lanes_counted(c, op->results[0]) : 0;
    case CLASS_FOLD: return op->code == OP_DOT ? 2 * lanes_folded(c, op) : is_float ? lanes_folded(c, op) : 0;
    default: return 0;
    }
}

static double work_of(counter *c, const tile_op *op, double count)
{
    if (ops[op->code].class != CLASS_FOLD) return count;
    tile_type from = tile_type_of(c->k, op->operands[0]);
    if (op->code != OP_DOT) return elements(c, &from);
    from.dims[0] = from.dims[from.rank - 1]; /* results are [batch][m][n]; the last axis of the first operand is k */
    from.rank = 1;
    return 2 * count * elements(c, &from);
}

/* Trips of a loop; the first value of its counter and the step. */
static int64_t trips_of(counter *c, const tile_op *op, int64_t *first, int64_t *step)
{
    int64_t limit;
    if (!counter_read(c, op->operands[0], first) || !counter_read(c, op->operands[1], &limit) ||
        !counter_read(c, op->operands[2], step)) {
        c->uncertain = true;
        *first = 0;
        *step = 1;
        return 1;
    }
    if (*step > 0 && *first < limit)
        return (int64_t)(((uint64_t)limit - (uint64_t)*first + (uint64_t)*step - 1) / (uint64_t)*step);
    if (*step < 0 && *first > limit)
        return (int64_t)(((uint64_t)*first - (uint64_t)limit - (uint64_t)*step - 1) / (0 - (uint64_t)*step));
    return 0;
}

/* Forward: scalars, and which elements exist. Loops are entered at their middle trip; `back` enters them again. */
static void walk(counter *c, const tile_block *block)
{
    for (int i = 0; i < block->op_count; i++) {
        const tile_op *op = block->ops[i];
        int64_t x, first, step, trips;
        if (op->result_count == 1) {
            tile_type type = tile_type_of(c->k, op->results[0]);
            if (!type.rank && !dtype_is_float(type.elem) && evaluate(c, op, &x)) set_value(c, op->results[0], x);
        }
        lanes_of_result(c, op);
        if (op->code == OP_ATOMIC) c->atomic = true;
        for (int region = 0; region < op->region_count; region++)
            for (int k = 0; k < op->regions[region]->arg_count; k++) lanes_all(c, op->regions[region]->args[k]);
        if (op->code == OP_FOR) {
            trips = trips_of(c, op, &first, &step);
            if (!trips) continue;
            set_value(c, op->regions[0]->args[0], first + trips / 2 * step);
        } else if (op->code == OP_IF && counter_read(c, op->operands[0], &x)) {
            if (op->regions[x ? 0 : 1]) walk(c, op->regions[x ? 0 : 1]);
            continue;
        } else if (op->code == OP_IF || op->code == OP_WHILE) {
            c->uncertain = true;
        }
        for (int region = 0; region < op->region_count; region++)
            if (op->regions[region]) walk(c, op->regions[region]);
    }
}

static void back(counter *c, const tile_block *block, double times);

/* What is wanted of the values that a region yields. */
static void want_yields(counter *c, const tile_op *op, const tile_block *region, bool carries)
{
    const tile_op *end = region->op_count ? region->ops[region->op_count - 1] : NULL;
    if (!end || end->code != OP_YIELD) return;
    for (int i = 0; i < end->operand_count && i < op->result_count; i++) {
        value v = end->operands[i];
        lanes_join(c, v, &c->wanted[v], &c->wanted[op->results[i]]);
        if (carries) lanes_join(c, v, &c->wanted[v], &c->carried[region->args[i + 1]]);
    }
}

static void forget_wishes(counter *c, const tile_block *block)
{
    for (int i = 0; i < block->arg_count; i++) lanes_clear(&c->wanted[block->args[i]]);
    for (int i = 0; i < block->op_count; i++) {
        const tile_op *op = block->ops[i];
        for (int k = 0; k < op->result_count; k++) lanes_clear(&c->wanted[op->results[k]]);
        for (int region = 0; region < op->region_count; region++)
            if (op->regions[region]) forget_wishes(c, op->regions[region]);
    }
}

static void back_region(counter *c, const tile_op *op, const tile_block *region, double times)
{
    forget_wishes(c, region);
    want_yields(c, op, region, op->code == OP_FOR);
    back(c, region, times);
}

/* The first and the last trip can differ from the others, which are taken to be like the middle one. */
static void back_for(counter *c, const tile_op *op, double times)
{
    const tile_block *region = op->regions[0];
    int64_t first, step, trips = trips_of(c, op, &first, &step), at[3] = {trips / 2};
    double weight[3] = {(double)trips};
    int count = trips ? 1 : 0;
    if (trips > 1 && !c->settling && c->depth < 3) {
        count = (int)MINIMUM(trips, 3);
        for (int i = 0; i < 3; i++) weight[i] = 1;
        at[0] = 0;
        at[1] = trips / 2;
        at[count - 1] = trips - 1;
        if (count == 3) weight[1] = (double)trips - 2;
    }
    c->depth++;
    for (int i = 0; i < count; i++) {
        if (count > 1) { /* a single one is where the forward walk left it */
            set_value(c, region->args[0], first + at[i] * step);
            walk(c, region);
        }
        back_region(c, op, region, times * weight[i]);
        for (int k = 1; k < region->arg_count; k++) {
            value arg = region->args[k], start = op->operands[k + 2];
            if (c->settling) lanes_join(c, arg, &c->carried[arg], &c->wanted[arg]);
            lanes_join(c, start, &c->wanted[start], &c->wanted[arg]);
        }
    }
    c->depth--;
    for (int k = 0; k < op->result_count; k++) /* what no trip has changed */
        lanes_join(c, op->operands[k + 3], &c->wanted[op->operands[k + 3]], &c->wanted[op->results[k]]);
    for (int k = 0; k < 3; k++) lanes_want_all(c, op->operands[k]);
}

/* Backward: what is wanted of each value, and with it what counts. */
static void back(counter *c, const tile_block *block, double times)
{
    for (int i = block->op_count - 1; i >= 0; i--) {
        const tile_op *op = block->ops[i];
        int64_t x;
        switch (op->code) {
        case OP_YIELD: continue; /* its operands are wanted as the results of its op are */
        case OP_FOR: back_for(c, op, times); continue;
        case OP_WHILE:
            for (int region = 0; region < 2; region++) {
                forget_wishes(c, op->regions[region]);
                const tile_op *end = op->regions[region]->ops[op->regions[region]->op_count - 1];
                for (int k = 0; k < end->operand_count; k++) lanes_want_all(c, end->operands[k]);
                back(c, op->regions[region], times * 16);
            }
            for (int k = 0; k < op->operand_count; k++) lanes_want_all(c, op->operands[k]);
            continue;
        case OP_MAP: {
            double count = lanes_counted(c, op->results[0]);
            for (int k = 1; k < op->result_count; k++) count = fmax(count, lanes_counted(c, op->results[k]));
            back_region(c, op, op->regions[0], times * count);
            for (int k = 0; k < op->operand_count; k++) lanes_want_all(c, op->operands[k]);
            continue;
        }
        case OP_IF:
            if (counter_read(c, op->operands[0], &x)) {
                if (op->regions[x ? 0 : 1]) back_region(c, op, op->regions[x ? 0 : 1], times);
            } else {
                for (int region = 0; region < op->region_count; region++)
                    if (op->regions[region]) back_region(c, op, op->regions[region], times);
            }
            lanes_want_all(c, op->operands[0]);
            continue;
        default: break;
        }
        lanes_want(c, op);
        if (c->settling) continue;
        value shaped = op->result_count ? op->results[0] : op->operand_count ? op->operands[0] : 0;
        tile_type type = shaped ? tile_type_of(c->k, shaped) : (tile_type){0};
        double count = elements(c, &type), flops = flops_of(c, op);
        c->flops += times * flops;
        c->work += times * (20 + work_of(c, op, count));
        if (c->visit) c->visit(c->user, op, c->scale * times * count, c->scale * times * flops);
    }
}

/* One program. What trips want of each other has to settle before anything counts: two rounds reach from a loop to its
 * carried values and from those to the values that they are made of. */
static void count_program(counter *c, const tile_block *block)
{
    memset(c->known, 0, (size_t)c->k->value_count + 1);
    c->flops = c->work = 0;
    walk(c, block);
    for (int v = 0; v <= c->k->value_count; v++) lanes_clear(&c->carried[v]);
    for (int round = 0; round < 3; round++) {
        c->settling = round < 2;
        forget_wishes(c, block);
        back(c, block, 1);
    }
}

/* Where along an axis of `count` programs samples lie, and how many programs each stands for. The first and the last
 * stand for themselves: they are what differs at the edges of arrays. */
static int sample_axis(int64_t count, int inner, int64_t *at, double *weight)
{
    int samples = 0;
    if (count <= inner + 2) {
        for (int64_t i = 0; i < count; i++) {
            at[samples] = i;
            weight[samples++] = 1;
        }
        return samples;
    }
    for (int i = 0; i < inner + 2; i++) {
        bool edge = !i || i == inner + 1;
        int64_t from = (count - 2) / inner * (i - 1) + (count - 2) % inner * (i - 1) / inner + 1;
        int64_t to = (count - 2) / inner * i + (count - 2) % inner * i / inner + 1;
        at[i] = !i ? 0 : edge ? count - 1 : from + (to - from) / 2;
        weight[i] = edge ? 1 : (double)(to - from); /* whole numbers: sums stay exact */
    }
    return inner + 2;
}

void launch_count_each(const tile_kernel *k, const launch_plan *plan, int units, launch_visit *visit, void *user,
                       launch_counts *out)
{
    enum { MOST = 130 };
    size_t values = (size_t)k->value_count + 1;
    counter c = {.k = k, .plan = plan, .units = units, .visit = visit, .user = user};
    *out = (launch_counts){.separable = k->phase_count == 1};
    c.values = heap_array(values, sizeof(*c.values));
    c.known = heap_array(values, sizeof(*c.known));
    c.exist = heap_array(values, sizeof(*c.exist));
    c.wanted = heap_array(values, sizeof(*c.wanted));
    c.carried = heap_array(values, sizeof(*c.carried));
    c.ramps = heap_array(values, sizeof(*c.ramps));
    for (int phase = 0; phase < k->phase_count; phase++) {
        const int64_t *counts = plan->programs[phase];
        double programs = (double)counts[0] * (double)counts[1] * (double)counts[2];
        int64_t at[3][MOST];
        double weight[3][MOST];
        int samples[3], axes = (counts[0] > 1) + (counts[1] > 1) + (counts[2] > 1);
        int inner = programs <= 128 ? 128 : axes == 1 ? 31 : axes == 2 ? 5 : 2;
        for (int i = 0; i < 3; i++) samples[i] = sample_axis(counts[i], inner, at[i], weight[i]);
        if (!phase) out->programs = programs;
        c.phase = phase;
        for (int z = 0; z < samples[2]; z++)
            for (int y = 0; y < samples[1]; y++)
                for (int x = 0; x < samples[0]; x++) {
                    c.program[0] = at[0][x];
                    c.program[1] = at[1][y];
                    c.program[2] = at[2][z];
                    c.scale = weight[0][x] * weight[1][y] * weight[2][z];
                    count_program(&c, k->phases[phase]);
                    out->flops += c.flops * c.scale;
                    if (!phase) out->work += c.work * c.scale / programs;
                }
    }
    if (c.uncertain || !k->phase_count) out->flops = NAN;
    if (c.atomic) out->separable = false;
    heap_free(c.values);
    heap_free(c.known);
    heap_free(c.exist);
    heap_free(c.wanted);
    heap_free(c.carried);
    heap_free(c.ramps);
}

void launch_count(const tile_kernel *k, const launch_plan *plan, int units, launch_counts *out)
{
    launch_count_each(k, plan, units, NULL, NULL, out);
}
