/*
 * Scalars and control flow of generated CUDA.
 *
 * In: a block. Out: statements that all threads of the team run. Scalars are computed by every thread, so conditions
 * are the same in all; a scalar is stored by one. What is open of memory that was touched goes through branches and
 * around loops here; cuda/hazard.c says where a barrier stands.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"

#include <string.h>

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
static void scalar_access(emitter *e, tile_op *op)
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
    hazard_commit(e);
    add_lines(e->out, text_get(&n.level[LEVEL_GROUP]), e->depth);
    add_lines(e->out, text_get(&n.level[LEVEL_ROW]), e->depth);
    if (old) put_broadcast(e, a.elem, old);
    if (result && (op->code == OP_LOAD || old)) emit_declare(e, result, r.words);
    text_free(&n.level[LEVEL_GROUP]);
    text_free(&n.level[LEVEL_ROW]);
}

void cuda_scalar_op(emitter *e, tile_op *op)
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
    case OP_LOAD:
    case OP_STORE:
    case OP_ATOMIC: scalar_access(e, op); return;
    case OP_ASSERT: {
        const char *bad = arena_print(e->memory, "!%s", operands[0]);
        for (int i = 1; i < op->operand_count; i++)
            bad = arena_print(e->memory, "%s && %s", bad, emit_name(e, op->operands[i]));
        text lines = {0};
        cuda_failure(e, &lines, op->line, bad, true);
        add_lines(e->out, text_get(&lines), e->depth);
        text_free(&lines);
        return;
    }
    default: emit_declare(e, result, cuda_expression(e, op, operands)); return;
    }
}

/* ---- control flow ---- */

static void emit_for(emitter *e, tile_op *op)
{
    cuda_state *c = e->cuda;
    tile_block *body = op->regions[0];
    const value *carried = body->args + 1;
    size_t place = cuda_dot_enter(e, op);
    int begin = e->survey->time, barriers = c->loop_barriers, logged = c->log.count;
    const hazards outside = hazards_copy(e, &c->hazards); /* counts where the loop makes no trip */
    c->loop_barriers = c->barriers;
    emit_declare_variables(e, carried, op->operands + 3, op->result_count);
    const cuda_state around = *c;
    text inside = {0}, *out = e->out;
    c->ahead = NULL;
    c->ahead_count = c->ahead_capacity = 0;
    e->out = &inside; /* its loads are known before the loop's head is put */
    e->depth++;
    cuda_block(e, body);
    emit_assign(e, emit_last_op(body), carried);
    buffer_loop_ends(e->survey, begin);
    hazard_loop_ends(e, op, logged);
    hazards_join(e, &c->hazards, &outside);
    e->depth--;
    e->out = out;
    home_put_loop(e, op, &inside, c->ahead, c->ahead_count);
    text_free(&inside);
    c->ahead = around.ahead;
    c->ahead_count = around.ahead_count;
    c->ahead_capacity = around.ahead_capacity;
    c->loop_barriers = barriers;
    cuda_dot_leave(e, op, place);
    emit_declare_results(e, op, carried);
}

static void emit_while(emitter *e, tile_op *op)
{
    cuda_state *c = e->cuda;
    tile_block *test = op->regions[0], *body = op->regions[1];
    int begin = e->survey->time, barriers = c->loop_barriers, logged = c->log.count;
    const hazards outside = hazards_copy(e, &c->hazards); /* counts where the loop makes no trip */
    c->loop_barriers = c->barriers;
    emit_declare_variables(e, test->args, op->operands, op->result_count);
    put(e, "for (;;) {");
    e->depth++;
    cuda_block(e, test);
    const hazards tested = hazards_copy(e, &c->hazards);
    put(e, "if (!%s) break;", emit_name(e, emit_last_op(test)->operands[0]));
    put(e, "%s(); /* C++ may drop a loop that does nothing but go on */", need(e, "go_on"));
    for (int i = 0; i < body->arg_count; i++)
        if (!emit_is_tile(e, body->args[i])) emit_declare(e, body->args[i], emit_name(e, test->args[i]));
    cuda_block(e, body);
    emit_assign(e, emit_last_op(body), test->args);
    buffer_loop_ends(e->survey, begin);
    hazard_loop_ends(e, op, logged);
    hazards_join(e, &c->hazards, &outside);
    hazards_join(e, &c->hazards, &tested);
    c->loop_barriers = barriers;
    e->depth--;
    put(e, "}");
    emit_declare_results(e, op, test->args);
}

static void emit_if(emitter *e, tile_op *op)
{
    cuda_state *c = e->cuda;
    const hazards before = hazards_copy(e, &c->hazards);
    hazards after = {0};
    emit_declare_arms(e, op);
    put(e, "if (%s) {", emit_name(e, op->operands[0]));
    for (int r = 0; r < op->region_count; r++) {
        tile_block *arm = op->regions[r];
        bool empty = arm->op_count == 1 && !op->result_count;
        c->hazards.count = 0;
        hazards_join(e, &c->hazards, &before);
        if (r && empty) break;
        if (r) put(e, "} else {");
        e->depth++;
        cuda_block(e, arm);
        emit_assign_arm(e, op, arm);
        e->depth--;
        hazards_join(e, &after, &c->hazards);
    }
    hazards_join(e, &c->hazards, &after);
    put(e, "}");
}

static void emit_dot_item(emitter *e, tile_op *op)
{
    for (int i = 0; i < 2; i++) {
        tile_op *load;
        bool swapped;
        value v = op->operands[i];
        if (dot_operand_is_direct(e->survey, v, &load, &swapped)) {
            dot_note_reads(e, v, load);
            continue;
        }
        tile_op *def = tile_def(e->k, v);
        if (def && def->code == OP_PERMUTE && value_is_virtual(e->survey, v)) v = def->operands[0];
        hazard_buffer(e, buffer_for(e->survey, v), false);
    }
    if (!e->cuda->resident[op->results[0]]) {
        int result = buffer_for(e->survey, op->results[0]);
        hazard_buffer(e, result, true);
    }
    hazard_commit(e);
    emit_cuda_dot(e, op);
}

void cuda_block(emitter *e, const tile_block *b)
{
    cuda_state *c = e->cuda;
    online *outer = c->spread->online;
    int outer_count = c->spread->online_count;
    const block_plan *known = spread_plan(c->spread, b);
    CHECK(known);
    const plan p = known->plan;
    c->spread->nesting++;
    c->spread->online = known->online;
    c->spread->online_count = known->online_count;
    for (int i = 0; i < p.count; i++) {
        item *it = &p.items[i];
        e->survey->time++;
        CHECK(it->op || it->kind == ITEM_GROUP);
        op_code code = it->op ? it->op->code : OP_NONE;
        if (it->op && ops[code].class != CLASS_LEAF && code != OP_YIELD && code != OP_CONDITION)
            put_line_comment(e, it->op);
        switch (it->kind) {
        case ITEM_SCALAR: cuda_scalar_op(e, it->op); break;
        case ITEM_GROUP:
            if (i + 1 == p.count || !loop_starts_at_zero(e->survey, it)) cuda_group(e, it->group);
            break;
        case ITEM_DOT: emit_dot_item(e, it->op); break;
        case ITEM_SCAN: cuda_scan(e, it->op); break;
        case ITEM_FOLD: {
            fold_group f;
            cuda_group(e, fold_group_of(e->survey, it->op, &f));
            break;
        }
        case ITEM_EFFECT: cuda_print(e, it->op); break;
        case ITEM_CONTROL:
            if (loop_is_product(e->survey, it->op))
                cuda_loop_of_products(e, it->op, loop_is_product(e->survey, it->op),
                                      i && loop_starts_at_zero(e->survey, it - 1));
            else if (it->op->code == OP_FOR)
                emit_for(e, it->op);
            else if (it->op->code == OP_WHILE)
                emit_while(e, it->op);
            else if (it->op->code == OP_IF)
                emit_if(e, it->op);
            break;
        }
    }
    c->spread->nesting--;
    c->spread->online = outer;
    c->spread->online_count = outer_count;
}
