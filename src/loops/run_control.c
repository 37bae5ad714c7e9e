/*
 * Launches of programs of spreads, run: one program after the other, each by a team of threads. In: what loops/run.c is
 * given. Out: the arrays, as the program leaves them; or what is wrong with it. Loops and branches are the same for all
 * threads of a team; products and scans are done by all of them together.
 * SPDX-License-Identifier: MIT
 */
#include "loops/run.h"

#include <string.h>

enum { MOST_TRIPS = 1 << 20 };

static void wait_for_all(sim *s)
{
    s->epoch++;
}

/* All new values first, then the assignments: a yield may exchange variables. */
static void assign(sim *s, const tile_op *yield, const value *targets)
{
    cell next[64];
    CHECK(yield->operand_count <= 64);
    for (int i = 0; i < yield->operand_count; i++) {
        number n;
        bool constant = tile_is_constant(s->program->survey->k, yield->operands[i], &n);
        next[i] = s->scalars[yield->operands[i]];
        if (constant && dtype_is_float(tile_type_of(s->program->survey->k, yield->operands[i]).elem))
            next[i].f = n.f;
        else if (constant)
            next[i].i = n.i;
    }
    for (int i = 0; i < yield->operand_count; i++)
        if (!tile_type_of(s->program->survey->k, targets[i]).rank) s->scalars[targets[i]] = next[i];
}

static const tile_op *last_of(const tile_block *b)
{
    return b->ops[b->op_count - 1];
}

static void start(sim *s, const value *targets, const value *from, int count)
{
    for (int i = 0; i < count; i++)
        if (!tile_type_of(s->program->survey->k, targets[i]).rank) s->scalars[targets[i]] = s->scalars[from[i]];
}

static void run_for(sim *s, const loop_node *n)
{
    const tile_op *op = n->op;
    const tile_block *body = op->regions[0];
    int64_t step = s->scalars[op->operands[2]].i, limit = s->scalars[op->operands[1]].i, trips = 0;
    bool down = op->flags & F_DOWN;
    start(s, body->args + 1, op->operands + 3, op->result_count);
    sim_nodes(s, n->before);
    for (int64_t i = s->scalars[op->operands[0]].i;
         (down ? step < 0 && i > limit : step > 0 && i < limit) && !s->why->length && trips++ < MOST_TRIPS; i += step) {
        s->scalars[body->args[0]].i = i;
        sim_nodes(s, n->body);
    }
    sim_nodes(s, n->after);
    start(s, op->results, body->args + 1, op->result_count);
}

static void run_while(sim *s, const loop_node *n)
{
    const tile_op *op = n->op;
    const tile_block *test = op->regions[0], *body = op->regions[1];
    start(s, test->args, op->operands, op->result_count);
    for (int64_t trips = 0; trips < MOST_TRIPS && !s->why->length; trips++) {
        sim_nodes(s, n->body);
        if (!s->scalars[last_of(test)->operands[0]].i) break;
        start(s, body->args, test->args, body->arg_count);
        sim_nodes(s, n->other);
    }
    start(s, op->results, test->args, op->result_count);
}

static void run_yield(sim *s, const loop_node *n)
{
    const tile_op *op = n->op;
    if (op->code == OP_IF)
        assign(s, last_of(op->regions[n->number[0]]), op->results);
    else if (op->code == OP_FOR)
        assign(s, last_of(op->regions[0]), op->regions[0]->args + 1);
    else
        assign(s, last_of(op->regions[1]), op->regions[0]->args);
}

/* ---- products and scans ---- */

static int64_t extent_of(const sim *s, int64_t dim)
{
    return dim < 0 ? s->scalars[-dim].i : dim;
}

/* Adds to a kept tile; clear: to zero. */
static void multiply(sim *s, const tile_op *dot, value into, bool clear)
{
    const tile_kernel *k = s->program->survey->k;
    tile_type a = tile_type_of(k, dot->operands[0]), b = tile_type_of(k, dot->operands[1]);
    int rank = a.rank;
    int64_t batches = rank == 3 ? extent_of(s, a.dims[0]) : 1, m = extent_of(s, a.dims[rank - 2]),
            depth = extent_of(s, a.dims[rank - 1]), n = extent_of(s, b.dims[rank - 1]);
    bool real = dtype_is_float(a.elem);
    s->thread = SIM_MANY;
    for (int64_t at = 0; at < batches * m * n; at++) {
        int64_t row = at / n % m, column = at % n;
        s->position[0] = at / n / m;
        s->position[rank - 2] = row;
        s->position[rank - 1] = column;
        cell total = clear ? (cell){0} : kept_tile(s, into)->cells[at];
        for (int64_t x = 0; x < depth; x++) {
            s->position[rank - 2] = row;
            s->position[rank - 1] = x;
            cell left = sim_element(s, dot->operands[0]);
            s->position[rank - 2] = x;
            s->position[rank - 1] = column;
            cell right = sim_element(s, dot->operands[1]);
            if (real)
                total.f += left.f * right.f;
            else
                total.i += left.i * right.i;
        }
        s->position[rank - 2] = row;
        s->position[rank - 1] = column;
        if (s->resident[into]) {
            math_round(kept_tile(s, into)->type.elem, 1, &total);
            kept_tile(s, into)->cells[at] = total;
        } else {
            sim_set_element(s, into, total);
        }
    }
}

/* Sums go to registers before a loop, and back behind it: their buffer is touched then, by all threads. */
static void move_sums(sim *s, const loop_node *n)
{
    bool load = n->code == LOOP_SUMS_LOAD;
    const sim_tile *t = kept_tile(s, (value)n->number[0]);
    int64_t columns = t->type.dims[1];
    s->thread = SIM_MANY;
    for (int64_t at = 0; at < t->type.dims[0] * columns; at++) {
        s->position[0] = at / columns;
        s->position[1] = at % columns;
        if (load)
            sim_element(s, (value)n->number[0]);
        else
            sim_set_element(s, (value)n->number[0], t->cells[at]);
    }
    s->resident[n->operand] = load;
}

static void run_products(sim *s, const loop_node *n)
{
    const tile_op *op = n->op;
    const tile_block *body = op->regions[0];
    int64_t step = s->scalars[op->operands[2]].i, limit = s->scalars[op->operands[1]].i;
    bool clear = n->number[0];
    sim_tile *sums = kept_tile(s, body->args[1]);
    if (clear) memset(sums->cells, 0, sizeof(cell) * (size_t)sums->room); /* where the loop makes no trip */
    for (int64_t i = s->scalars[op->operands[0]].i; step > 0 && i < limit; i += step) {
        s->scalars[body->args[0]].i = i;
        for (int at = 0; at < body->op_count; at++) {
            const tile_op *in = body->ops[at];
            bool scalar =
                in->result_count == 1 && !in->region_count && !tile_type_of(s->program->survey->k, in->results[0]).rank;
            if (scalar && in->code != OP_CONST) sim_scalar(s, in);
        }
        multiply(s, n->product->dot, body->args[1], clear);
        clear = false;
        for (int64_t at = 0; at < sums->room; at++)
            sums->touches[at].written = 0; /* one product: its steps are its own */
    }
}

static void run_scan(sim *s, const tile_op *op)
{
    sim_tile *t = kept_tile(s, op->results[0]);
    int64_t outer = 1, inner = 1, length = t->type.dims[op->attr.index];
    for (int i = 0; i < t->type.rank; i++)
        *(i < op->attr.index ? &outer : &inner) *= i == op->attr.index ? 1 : t->type.dims[i];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++)
            for (int64_t x = 1; x < length; x++) {
                cell *to = &t->cells[(o * length + x) * inner + i];
                *to = math_fold(op->attr.fold, t->type.elem, to[-inner], *to);
                math_round(t->type.elem, 1, to);
            }
}

/* ---- nodes ---- */

static void run_scalar_map(sim *s, const loop_node *n)
{
    start(s, n->op->regions[0]->args, n->op->operands, n->op->operand_count);
    sim_nodes(s, n->body);
    assign(s, last_of(n->op->regions[0]), n->op->results);
}

void sim_nodes(sim *s, const loop_node *n)
{
    for (; n && !s->why->length; n = n->next) {
        if (n->waits) wait_for_all(s);
        switch (n->code) {
        case LOOP_BARRIER: wait_for_all(s); break;
        case LOOP_LET:
            if (n->op->code == OP_MAP)
                run_scalar_map(s, n);
            else
                sim_scalar(s, n->op);
            break;
        case LOOP_LOAD:
        case LOOP_STORE:
        case LOOP_ATOMIC:
            sim_access(s, n->op);
            if (n->code == LOOP_ATOMIC && s->program->survey->uses[n->op->results[0]]) wait_for_all(s);
            break;
        case LOOP_GROUP: sim_group(s, n); break;
        case LOOP_FOR: run_for(s, n); break;
        case LOOP_WHILE: run_while(s, n); break;
        case LOOP_IF: sim_nodes(s, s->scalars[n->op->operands[0]].i ? n->body : n->other); break;
        case LOOP_YIELD: run_yield(s, n); break;
        case LOOP_DOT: multiply(s, n->op, n->op->results[0], n->op->operand_count < 3); break;
        case LOOP_PRODUCTS: run_products(s, n); break;
        case LOOP_SCAN: run_scan(s, n->op); break;
        case LOOP_SUMS_LOAD:
        case LOOP_SUMS_STORE: move_sums(s, n); break;
        default: break; /* TEST, PRINT: nothing that counts here */
        }
    }
}

void sim_open(sim *s, const loop_program *p, const array_view *arrays, const launch_plan *plan, arena *memory,
              text *why)
{
    const tile_kernel *k = p->survey->k;
    *s = (sim){.program = p, .arrays = arrays, .plan = plan, .memory = memory, .why = why, .level = LEVEL_COUNT};
    s->scalars = ARENA_ARRAY(memory, cell, k->value_count);
    s->resident = ARENA_ARRAY(memory, bool, k->value_count);
    s->touches = ARENA_ARRAY(memory, sim_touch *, k->param_count + 1);
    s->firsts = ARENA_ARRAY(memory, int64_t, k->param_count + 1);
    s->spans = ARENA_ARRAY(memory, int64_t, k->param_count + 1);
    for (value v = 1; v < (value)k->value_count; v++) {
        number n;
        if (!tile_is_constant(k, v, &n)) continue;
        if (dtype_is_float(tile_type_of(k, v).elem))
            s->scalars[v].f = n.f;
        else
            s->scalars[v].i = n.i;
    }
}

static bool run_programs(const loop_program *p, const array_view *arrays, const launch_plan *plan, int threads,
                         arena *memory, text *why)
{
    survey *e = p->survey;
    const int64_t *programs = plan->programs[p->phase];
    sim s;
    sim_open(&s, p, arrays, plan, memory, why);
    s.threads = threads;
    for (int i = 0; i < e->k->param_count; i++) {
        if (e->k->params[i].kind >= PARAM_SCALAR || !e->written[i]) continue;
        int64_t low = 0, high = 0;
        for (int axis = 0; axis < arrays[i].rank; axis++) {
            int64_t reach = (arrays[i].extents[axis] - 1) * arrays[i].strides[axis];
            *(reach < 0 ? &low : &high) += arrays[i].extents[axis] ? reach : 0;
        }
        s.firsts[i] = low;
        s.spans[i] = high - low + 1;
        s.touches[i] = ARENA_ARRAY(memory, sim_touch, s.spans[i]);
    }
    s.epoch = 1;
    for (s.at[2] = 0; s.at[2] < programs[2]; s.at[2]++)
        for (s.at[1] = 0; s.at[1] < programs[1]; s.at[1]++)
            for (s.at[0] = 0; s.at[0] < programs[0] && !why->length; s.at[0]++) {
                s.tiles = ARENA_ARRAY(memory, sim_tile, e->k->value_count + 16);
                wait_for_all(&s);
                sim_nodes(&s, p->first);
            }
    return !why->length;
}

/* ---- a phase of a kernel ---- */

static void collect(loop_node *n, loop_node **list, int *count, int most)
{
    for (; n; n = n->next) {
        if ((n->waits || n->code == LOOP_BARRIER) && *count < most) list[(*count)++] = n;
        loop_node *const lists[] = {n->body, n->other, n->before, n->after};
        for (int i = 0; i < COUNT(lists); i++) collect(lists[i], list, count, most);
    }
}

/* How many threads run a program of this launch. */
static int team_threads(const spread *c, const launch_plan *plan)
{
    const team *t = &c->team;
    int64_t row = t->row_param >= 0 ? plan->scalars_bits[t->row_param] : 0;
    int64_t needed = t->share ? (row + t->over + t->share - 1) / t->share : t->block, lanes = 1;
    if (t->threads) return t->threads;
    if (t->kind != TEAM_LANES) return (int)MAXIMUM((needed + 31) / 32 * 32, 32);
    while (lanes < 32 && lanes < needed) lanes *= 2;
    return (int)lanes;
}

int loops_sim(const tile_kernel *k, int phase, const sched_machine *machine, const array_view *arrays,
              const launch_plan *plan, int without, arena *memory, text *why)
{
    enum { MOST = 256 };
    survey e = {.k = k, .memory = memory, .facts = facts_compute(k, memory)};
    loop_program program;
    loop_node *list[MOST];
    int count = 0;
    qn_error error;
    if (loops_spread(&e, phase, machine, NULL, memory, &program, &error) != QN_OK) {
        text_add(why, error.message);
        return -1;
    }
    collect(program.first, list, &count, MOST);
    if (without >= 0 && without < count) {
        list[without]->waits = false;
        if (list[without]->code == LOOP_BARRIER) list[without]->code = LOOP_PRINT; /* which does nothing here */
    }
    run_programs(&program, arrays, plan, team_threads(program.spread, plan), memory, why);
    return count;
}
