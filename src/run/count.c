/*
 * Counting what a launch does, from the IR as it was lowered: floating-point operations, and element operations for
 * judging what the interpreter can afford.
 *
 * A few programs, spread over each phase, are walked with their scalar integers evaluated, so that extents, trip counts
 * and branches on scalars are exact; the rest of a loop is taken to be like its middle trip. A loop or branch that
 * depends on data makes the count unknown. One per elementwise float operation or function, two per multiply-add.
 * SPDX-License-Identifier: MIT
 */
#include "run/facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct counter {
    const tile_kernel *k;
    const launch_plan *plan;
    int phase, units;
    int64_t program[3];
    int64_t *values; /* scalar integers, by value */
    bool *known;
    double flops, work;
    bool uncertain, atomic;
    launch_visit *visit; /* NULL: nobody asks for single ops */
    void *user;
    double scale; /* programs that the sample stands for */
} counter;

static bool read_value(const counter *c, value v, int64_t *out)
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

static double elements(counter *c, const tile_type *type)
{
    double count = 1;
    for (int i = 0; i < type->rank; i++) {
        int64_t extent = type->dims[i];
        if (extent < 0 && !read_value(c, (value)-extent, &extent)) {
            c->uncertain = true;
            extent = 1;
        }
        count *= (double)MAXIMUM(extent, 0);
    }
    return count;
}

static int64_t divide_down(int64_t a, int64_t b)
{
    if (b == 0 || (a == INT64_MIN && b == -1)) return 0;
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

/* One scalar integer or bool operation, as the language has it. False: it is none of those or an operand is unknown. */
static bool evaluate(const counter *c, const tile_op *op, int64_t *out)
{
    int64_t x[3] = {0};
    if (op->operand_count > 3) return false;
    if (op->code == OP_SELECT) {
        if (!read_value(c, op->operands[0], &x[0])) return false;
        return read_value(c, op->operands[x[0] ? 1 : 2], out);
    }
    for (int i = 0; i < op->operand_count; i++)
        if (!read_value(c, op->operands[i], &x[i])) return false;
    switch (op->code) {
    case OP_CONST: *out = op->attr.number.i; return true;
    case OP_ARG: *out = c->plan->scalars_bits[op->attr.index]; return true;
    case OP_PROGRAM: *out = c->program[op->attr.index]; return true;
    case OP_PROGRAMS: *out = c->plan->programs[c->phase][op->attr.index]; return true;
    case OP_UNITS: *out = c->units; return true;
    case OP_NEG: *out = (int64_t)(0 - (uint64_t)x[0]); return true;
    case OP_NOT: *out = tile_type_of(c->k, op->operands[0]).elem == DT_BOOL ? !x[0] : ~x[0]; return true;
    case OP_ABS: *out = x[0] < 0 ? (int64_t)(0 - (uint64_t)x[0]) : x[0]; return true;
    case OP_CONVERT: *out = x[0]; return true;
    case OP_ADD: *out = (int64_t)((uint64_t)x[0] + (uint64_t)x[1]); return true;
    case OP_SUB: *out = (int64_t)((uint64_t)x[0] - (uint64_t)x[1]); return true;
    case OP_MUL: *out = (int64_t)((uint64_t)x[0] * (uint64_t)x[1]); return true;
    case OP_DIV: *out = divide_down(x[0], x[1]); return true;
    case OP_MOD: *out = (int64_t)((uint64_t)x[0] - (uint64_t)divide_down(x[0], x[1]) * (uint64_t)x[1]); return true;
    case OP_MIN: *out = MINIMUM(x[0], x[1]); return true;
    case OP_MAX: *out = MAXIMUM(x[0], x[1]); return true;
    case OP_AND: *out = x[0] & x[1]; return true;
    case OP_OR: *out = x[0] | x[1]; return true;
    case OP_XOR: *out = x[0] ^ x[1]; return true;
    case OP_SHL: *out = (int64_t)((uint64_t)x[0] << (x[1] & 63)); return true;
    case OP_SHR: *out = x[0] >> (x[1] & 63); return true;
    case OP_LT: *out = x[0] < x[1]; return true;
    case OP_LE: *out = x[0] <= x[1]; return true;
    case OP_GT: *out = x[0] > x[1]; return true;
    case OP_GE: *out = x[0] >= x[1]; return true;
    case OP_EQ: *out = x[0] == x[1]; return true;
    case OP_NE: *out = x[0] != x[1]; return true;
    default: return false;
    }
}

static double flops_of(counter *c, const tile_op *op, double results)
{
    tile_type from = op->operand_count ? tile_type_of(c->k, op->operands[0]) : (tile_type){0};
    bool is_float = op->operand_count && dtype_is_float(from.elem);
    switch (ops[op->code].class) {
    case CLASS_UNARY:
        return is_float && op->code != OP_CONVERT && op->code != OP_BITCAST && op->code != OP_ISNAN &&
                       op->code != OP_ISINF
                   ? results
                   : 0;
    case CLASS_BINARY: return is_float ? results : 0;
    case CLASS_TERNARY: return op->code == OP_FMA ? 2 * results : 0;
    case CLASS_FOLD:
        if (op->code != OP_DOT) return is_float ? elements(c, &from) : 0;
        /* results are [batch][m][n]; the last axis of the first operand is k */
        from.dims[0] = from.dims[from.rank - 1];
        from.rank = 1;
        return 2 * results * elements(c, &from);
    default: return 0;
    }
}

static void walk(counter *c, const tile_block *block, double times);

static void walk_for(counter *c, const tile_op *op, double times)
{
    int64_t first, limit, step, trips = 0;
    if (!read_value(c, op->operands[0], &first) || !read_value(c, op->operands[1], &limit) ||
        !read_value(c, op->operands[2], &step)) {
        c->uncertain = true;
        first = 0;
        step = trips = 1;
    } else if (step > 0 && first < limit) {
        trips = (int64_t)(((uint64_t)limit - (uint64_t)first + (uint64_t)step - 1) / (uint64_t)step);
    } else if (step < 0 && first > limit) {
        trips = (int64_t)(((uint64_t)first - (uint64_t)limit - (uint64_t)step - 1) / (0 - (uint64_t)step));
    }
    if (!trips) return;
    set_value(c, op->regions[0]->args[0], first + (trips / 2) * step);
    walk(c, op->regions[0], times * (double)trips);
}

static void walk(counter *c, const tile_block *block, double times)
{
    for (int i = 0; i < block->op_count; i++) {
        const tile_op *op = block->ops[i];
        int64_t x;
        if (op->result_count == 1) {
            tile_type type = tile_type_of(c->k, op->results[0]);
            if (!type.rank && !dtype_is_float(type.elem) && evaluate(c, op, &x)) set_value(c, op->results[0], x);
        }
        switch (op->code) {
        case OP_FOR: walk_for(c, op, times); continue;
        case OP_WHILE:
            c->uncertain = true;
            walk(c, op->regions[0], times * 16);
            walk(c, op->regions[1], times * 16);
            continue;
        case OP_MAP: {
            tile_type type = tile_type_of(c->k, op->results[0]);
            walk(c, op->regions[0], times * elements(c, &type));
            continue;
        }
        case OP_IF:
            if (read_value(c, op->operands[0], &x)) {
                if (op->regions[x ? 0 : 1]) walk(c, op->regions[x ? 0 : 1], times);
                continue;
            }
            c->uncertain = true;
            for (int region = 0; region < op->region_count; region++) walk(c, op->regions[region], times);
            continue;
        case OP_ATOMIC: c->atomic = true; break;
        default: break;
        }
        value shaped = op->result_count ? op->results[0] : op->operand_count ? op->operands[0] : 0;
        tile_type type = shaped ? tile_type_of(c->k, shaped) : (tile_type){0};
        double count = elements(c, &type), flops = flops_of(c, op, count);
        c->flops += times * flops;
        c->work += times * (20 + MAXIMUM(count, flops));
        if (c->visit) c->visit(c->user, op, c->scale * times * count, c->scale * times * flops);
    }
}

void launch_count_each(const tile_kernel *k, const launch_plan *plan, int units, launch_visit *visit, void *user,
                       launch_counts *out)
{
    counter c = {.k = k, .plan = plan, .units = units, .visit = visit, .user = user};
    *out = (launch_counts){.separable = k->phase_count == 1};
    c.values = heap_array((size_t)k->value_count + 1, sizeof(*c.values));
    c.known = heap_array((size_t)k->value_count + 1, sizeof(*c.known));
    for (int phase = 0; phase < k->phase_count; phase++) {
        const int64_t *counts = plan->programs[phase];
        double programs = (double)counts[0] * (double)counts[1] * (double)counts[2], flops = 0;
        int samples = (int)MINIMUM(programs, 33);
        if (!phase) out->programs = programs;
        c.phase = phase;
        for (int sample = 0; sample < samples; sample++) {
            int64_t number = samples > 1 ? (int64_t)((programs - 1) * sample / (samples - 1)) : 0;
            c.program[0] = number % counts[0];
            c.program[1] = number / counts[0] % counts[1];
            c.program[2] = number / counts[0] / counts[1];
            memset(c.known, 0, (size_t)k->value_count + 1);
            c.flops = c.work = 0;
            c.scale = programs / samples;
            walk(&c, k->phases[phase], 1);
            flops += c.flops;
            if (!phase) out->work += c.work / samples;
        }
        if (samples) out->flops += flops * (programs / samples);
    }
    if (c.uncertain || !k->phase_count) out->flops = NAN;
    if (c.atomic) out->separable = false;
    heap_free(c.values);
    heap_free(c.known);
}

void launch_count(const tile_kernel *k, const launch_plan *plan, int units, launch_counts *out)
{
    launch_count_each(k, plan, units, NULL, NULL, out);
}
