/*
 * The program of a spread as CUDA text: scalars and control flow. In: nodes (loops/spread.c). Out: statements that all
 * threads of the team run, one case for each kind of node.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"

#include <string.h>

const char *barrier_text(emitter *e)
{
    const team *team = &e->cuda->spread->team;
    if (team->kind == TEAM_LANES) return team->threads == 1 ? "" : "__syncwarp(team_mask);";
    if (team->kind == TEAM_BLOCK) return "__syncthreads();";
    if (team->kind == TEAM_CLUSTER)
        return arena_print(e->memory, "cluster_meet(met), %s();", need(e, "cluster_barrier"));
    return arena_print(e->memory, "%s(team_word, team_blocks);", need(e, "grid_barrier"));
}

void put_barrier(emitter *e)
{
    if (*barrier_text(e)) put(e, "%s", barrier_text(e));
}

/* ---- scalars ---- */

static const char *argument_text(emitter *e, int parameter)
{
    const tile_param *p = &e->k->params[parameter];
    const char *word = arena_print(e->memory, "frame.%s", p->name);
    if (dtype_is_float(p->elem))
        return arena_print(e->memory, "(%s)%s", cuda_register_type(p->elem), word); /* a double in the frame */
    if (p->elem == DT_BOOL) return arena_print(e->memory, "%s != 0", word);
    return p->elem == DT_I64 ? word : arena_print(e->memory, "(%s)%s", cuda_register_type(p->elem), word);
}

/* What thread 0 has, to all. */
static void put_broadcast(emitter *e, dtype t, const char *name)
{
    const team *team = &e->cuda->spread->team;
    if (team->kind == TEAM_LANES && team->threads == 1) return;
    e->cuda->broadcast_room = true;
    const char *room = arena_print(e->memory, "*(%s *)&broadcast_room[%s]", cuda_register_type(t),
                                   team->kind == TEAM_LANES ? "team_in_block" : "0");
    put(e, "if (thread == 0) %s = %s;", room, name);
    put_barrier(e);
    put(e, "%s = %s;", name, room);
    put_barrier(e);
}

/* A load, store or atomic of one element: a group without loops. */
static void scalar_access(emitter *e, const tile_op *op, bool waits)
{
    cnest n = {.e = e, .c = e->cuda, .view = {.survey = e->survey, .spread = e->cuda->spread}};
    n.slot = n.repeat = words_zero;
    if (n.c->spread->team.threads != 1) n.lead = "thread == 0";
    place at = place_nowhere();
    value result = op->result_count ? op->results[0] : 0;
    caddress a = cuda_access(&n, op, at);
    creg r = {0};
    const char *old = NULL;
    if (op->code == OP_LOAD) {
        r = cuda_load(&n, 0, a, 0);
    } else if (op->code == OP_STORE) {
        cuda_store(&n, a, cuda_value(&n, op->operands[0], at));
    } else {
        creg expected = op->attr.atomic == ATOMIC_CAS ? cuda_value(&n, op->operands[1], at) : r;
        if (e->survey->uses[result]) {
            old = fresh_name(e, result);
            cput(&n, LEVEL_ROW, "%s %s = 0;", cuda_register_type(a.elem), old);
        }
        cuda_atomic(&n, a, op, cuda_value(&n, op->operands[0], at), expected, old);
        r.words = old;
    }
    bool ordered = op->flags & F_ORDERED;
    const char *fence = n.lead ? "if (thread == 0) __threadfence();" : "__threadfence();";
    if (waits) put_barrier(e);
    if (ordered && !old) put(e, "%s", fence);
    add_lines(e->out, text_get(&n.level[LEVEL_GROUP]), e->depth);
    add_lines(e->out, text_get(&n.level[LEVEL_ROW]), e->depth);
    if (ordered && old) put(e, "%s", fence);
    if (old) put_broadcast(e, a.elem, old);
    if (result && (op->code == OP_LOAD || old)) emit_declare(e, result, r.words);
    text_free(&n.level[LEVEL_GROUP]);
    text_free(&n.level[LEVEL_ROW]);
}

void cuda_scalar_op(emitter *e, const tile_op *op)
{
    value result = op->result_count ? op->results[0] : 0;
    const char *operands[3] = {0};
    for (int i = 0; i < op->operand_count && i < 3; i++) operands[i] = emit_name(e, op->operands[i]);
    if (op->code == OP_PROGRAMS && e->cuda->spread->before) { /* the frame has those of the phase that is launched */
        emit_declare(e, result, "1L");
        return;
    }
    if (emit_plain_scalar(e, op, operands)) return;
    switch (op->code) {
    case OP_ARG: emit_declare(e, result, argument_text(e, op->attr.index)); return;
    case OP_UNITS: emit_declare(e, result, "frame.units"); return;
    default: emit_declare(e, result, cuda_expression(e, op, operands)); return;
    }
}

/* A region of scalars, once. */
static void print_scalar_map(emitter *e, const loop_node *n)
{
    const tile_block *region = n->op->regions[0];
    emit_declare_arms(e, n->op);
    put(e, "{");
    e->depth++;
    for (int i = 0; i < n->op->operand_count; i++) emit_declare(e, region->args[i], emit_name(e, n->op->operands[i]));
    print_spread_nodes(e, n->body);
    emit_assign_arm(e, n->op, region);
    e->depth--;
    put(e, "}");
}

/* ---- control flow ---- */

static void print_for(emitter *e, const loop_node *n)
{
    const value *carried = n->op->regions[0]->args + 1;
    text inside = {0}, around = {0}, *out = e->out;
    if (n->before) e->out = &around; /* the types of its products are known behind it, and stand before */
    print_spread_nodes(e, n->before);
    if (n->before) cuda_ask_ahead(e, n->op);
    emit_declare_variables(e, carried, n->op->operands + 3, n->op->result_count);
    text *to = e->out;
    e->out = &inside;
    e->depth++;
    print_spread_nodes(e, n->body);
    e->depth--;
    e->out = to;
    home_put_loop(e, n->op, &inside, n->ahead, n->number[0]);
    print_spread_nodes(e, n->after);
    e->out = out;
    for (const loop_node *sums = n->before; sums; sums = sums->next) cuda_sums_type(e, sums->operand);
    if (n->before) text_add(out, text_get(&around));
    emit_declare_results(e, n->op, carried);
    text_free(&inside);
    text_free(&around);
}

static void print_while(emitter *e, const loop_node *n)
{
    const tile_block *test = n->op->regions[0], *body = n->op->regions[1];
    emit_declare_variables(e, test->args, n->op->operands, n->op->result_count);
    put(e, "for (;;) {");
    e->depth++;
    print_spread_nodes(e, n->body);
    put(e, "if (!%s) break;", emit_name(e, emit_last_op(test)->operands[0]));
    put(e, "%s(); /* C++ may drop a loop that does nothing but go on */", need(e, "go_on"));
    for (int i = 0; i < body->arg_count; i++)
        if (!emit_is_tile(e, body->args[i])) emit_declare(e, body->args[i], emit_name(e, test->args[i]));
    print_spread_nodes(e, n->other);
    e->depth--;
    put(e, "}");
    emit_declare_results(e, n->op, test->args);
}

static void print_if(emitter *e, const loop_node *n)
{
    emit_declare_arms(e, n->op);
    put(e, "if (%s) {", emit_name(e, n->op->operands[0]));
    e->depth++;
    print_spread_nodes(e, n->body);
    e->depth--;
    if (n->other) put(e, "} else {");
    e->depth++;
    print_spread_nodes(e, n->other);
    e->depth--;
    put(e, "}");
}

static void print_yield(emitter *e, const loop_node *n)
{
    const tile_op *op = n->op;
    if (op->code == OP_IF)
        emit_assign_arm(e, op, op->regions[n->number[0]]);
    else if (op->code == OP_FOR)
        emit_assign(e, emit_last_op(op->regions[0]), op->regions[0]->args + 1);
    else
        emit_assign(e, emit_last_op(op->regions[1]), op->regions[0]->args);
}

static void print_test(emitter *e, const tile_op *op)
{
    text lines = {0};
    const char *bad = arena_print(e->memory, "!%s", emit_name(e, op->operands[0]));
    for (int i = 1; i < op->operand_count; i++)
        bad = arena_print(e->memory, "%s && %s", bad, emit_name(e, op->operands[i]));
    cuda_failure(e, &lines, op->line, bad, true);
    add_lines(e->out, text_get(&lines), e->depth);
    text_free(&lines);
}

void print_spread_nodes(emitter *e, const loop_node *n)
{
    for (; n; n = n->next) {
        bool inside =
            n->code == LOOP_YIELD || n->code == LOOP_GROUP || n->code == LOOP_SUMS_LOAD || n->code == LOOP_SUMS_STORE;
        bool access = n->code == LOOP_LOAD || n->code == LOOP_STORE || n->code == LOOP_ATOMIC;
        if (n->op && !inside && ops[n->op->code].class != CLASS_LEAF) put_line_comment(e, n->op);
        if (n->waits && n->code != LOOP_GROUP && !access) put_barrier(e);
        switch (n->code) {
        case LOOP_BARRIER: put_barrier(e); break;
        case LOOP_LET:
            if (n->op->code == OP_MAP)
                print_scalar_map(e, n);
            else
                cuda_scalar_op(e, n->op);
            break;
        case LOOP_LOAD:
        case LOOP_STORE:
        case LOOP_ATOMIC: scalar_access(e, n->op, n->waits); break;
        case LOOP_TEST: print_test(e, n->op); break;
        case LOOP_GROUP: print_group(e, n); break;
        case LOOP_FOR: print_for(e, n); break;
        case LOOP_WHILE: print_while(e, n); break;
        case LOOP_IF: print_if(e, n); break;
        case LOOP_YIELD: print_yield(e, n); break;
        case LOOP_DOT: emit_cuda_dot(e, n); break;
        case LOOP_PRODUCTS: cuda_loop_of_products(e, n); break;
        case LOOP_SUMS_LOAD:
        case LOOP_SUMS_STORE: cuda_sums(e, n->operand, (value)n->number[0], n->code == LOOP_SUMS_LOAD); break;
        case LOOP_SCAN: print_scan(e, n); break;
        case LOOP_PRINT: cuda_print(e, n->op); break;
        default: CHECK(!"a node of another program");
        }
    }
}
