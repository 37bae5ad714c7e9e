/*
 * One phase of a kernel, analysed and run to text. In: a phase of tile IR and a target. Out: its body, its team, layouts and
 * kept tiles, in e->cuda.
 *
 * survey.c sees its passes and kept tiles, layout.c chooses, then its text is written. A phase of one program may go on in the last block of the phase before it (cuda_phase_join).
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/access_notes.h"
#include "emit/cuda/phase.h"
#include "emit/cuda/survey.h"

static void count_uses(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    emitter *e = context;
    for (int i = 0; i < op->operand_count; i++) e->uses[op->operands[i]]++;
    if (op->code == OP_STORE || op->code == OP_ATOMIC) e->written[op->attr.access.array] = true;
    if (op->code == OP_LOAD || op->code == OP_ATOMIC) e->read[op->attr.access.array] = true;
    bool position = op->code == OP_REDUCE && (op->attr.fold == FOLD_ARGMAX || op->attr.fold == FOLD_ARGMIN);
    if (position) e->cuda->has_position = true;
}

static void count_writes(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    emitter *e = context;
    if (op->code == OP_STORE || op->code == OP_ATOMIC) e->written[op->attr.access.array] = true;
}

static void mark_products(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    if (op->code == OP_DOT) cuda_dot_mark(context, op);
}

static _Atomic int64_t walks;

int64_t cuda_walks(void)
{
    return walks;
}

/* Tables by value and by array, and the survey. */
static void see_phase(emitter *e, int phase)
{
    const tile_kernel *k = e->k;
    cuda_state *c = e->cuda;
    int count = k->value_count;
    e->uses = ARENA_ARRAY(e->memory, int, count);
    e->force = ARENA_ARRAY(e->memory, bool, count);
    e->rounds = ARENA_ARRAY(e->memory, bool, count);
    e->seen = ARENA_ARRAY(e->memory, int, count);
    e->seen_at = ARENA_ARRAY(e->memory, place, count);
    e->at_launch = ARENA_ARRAY(e->memory, signed char, count);
    e->seen_now = 0;
    e->buffer_of = ARENA_ARRAY(e->memory, int, count);
    e->written = ARENA_ARRAY(e->memory, bool, k->param_count + 1);
    e->read = ARENA_ARRAY(e->memory, bool, k->param_count + 1);
    e->loaded_in = arena_alloc(e->memory, sizeof(*e->loaded_in) * (size_t)count);
    e->array_used = ARENA_ARRAY(e->memory, bool, k->param_count + 1);
    e->buffers = NULL;
    e->buffer_count = e->buffer_capacity = 0;
    e->time = e->pass_number = e->dot_room = 0;
    c->resident = ARENA_ARRAY(e->memory, const char *, count);
    e->has_assert = e->prints = false;
    e->phase = phase;
    ARENA_PUSH(e->memory, e->buffers, e->buffer_count, e->buffer_capacity, (buffer){0});
    tile_walk((tile_kernel *)k, k->phases[phase], count_uses, e);
    if (c->before) tile_walk((tile_kernel *)k, k->phases[phase - 1], count_writes, e); /* in this launch */
    tile_walk((tile_kernel *)k, k->phases[phase], mark_products, e);
    survey_phase(e, k->phases[phase]);
    c->product_room = e->dot_room;
}

/* Statements of the whole program, in *body. */
static void put_phase(emitter *e, int phase, text *body)
{
    cuda_state *c = e->cuda;
    walks++;
    e->time = e->line = e->pass_number = e->serial = e->dot_room = 0;
    e->has_assert = false;
    e->array_used = ARENA_ARRAY(e->memory, bool, e->k->param_count + 1);
    c->resident = ARENA_ARRAY(e->memory, const char *, e->k->value_count);
    c->hazards = c->now = c->log = c->left = (hazards){0};
    c->in_map = false;
    c->group = c->barriers = c->loop_barriers = 0;
    c->fold_room = c->column_room = c->broadcast_room = c->online_room = false;
    c->online_count = 0;
    if (e->notes) e->notes->count = e->notes->from;
    text_clear(body);
    e->out = body;
    e->depth = 3;
    cuda_block(e, e->k->phases[phase]);
}

static int count_ops(const tile_block *b)
{
    int count = b->op_count;
    for (int i = 0; i < b->op_count; i++)
        for (int r = 0; r < b->ops[i]->region_count; r++) count += count_ops(b->ops[i]->regions[r]);
    return count;
}

static qn_status analyse(emitter *e, int phase, const cuda_target *target, const cuda_state *before, text *body,
                         qn_error *error)
{
    cuda_state *c = ARENA_NEW(e->memory, cuda_state);
    e->cuda = c;
    c->target = target;
    c->before = before;
    c->team = (team){.kind = TEAM_BLOCK, .row_param = -1};
    c->kept = ARENA_ARRAY(e->memory, kept, e->k->value_count + 16);
    /* Passes: at most one for each op, and again for each value that is kept. */
    c->loads = arena_alloc(e->memory,
                           sizeof(*c->loads) * (size_t)(2 * count_ops(e->k->phases[phase]) + 2 * e->k->value_count));
    see_phase(e, phase);
    for (;;) {
        QN_TRY(layout_decide(e, error));
        put_phase(e, phase, body);
        bool wide = c->team.kind == TEAM_LANES && c->team.threads > 32;
        if (!wide || (!c->barriers && !e->has_assert && !c->broadcast_room)) return QN_OK;
        c->no_wide = true;
    }
}

qn_status cuda_phase(emitter *e, int phase, const cuda_target *target, text *body, qn_error *error)
{
    return analyse(e, phase, target, NULL, body, error);
}

/* ---- a phase of one program, by the last block of the phase before ---- */

static bool has_one_program(const tile_kernel *k, int phase)
{
    for (int i = 0; i < k->head->op_count; i++) {
        const tile_op *op = k->head->ops[i];
        if (op->code != OP_LAUNCH || op->attr.index != phase) continue;
        for (int axis = 0; axis < op->operand_count; axis++) {
            number count;
            if (!tile_is_constant(k, op->operands[axis], &count) || count.i != 1) return false;
        }
        return true;
    }
    return false;
}

/* What the block cannot do: hold scratch memory, multiply, share rows among a number of threads that it does not know. */
static bool suits_a_block(const cuda_state *c)
{
    int64_t shared = c->shared_bytes + (int64_t)c->slot_bytes * c->team.block;
    if (c->has_dot || shared > c->target->shared_bytes - SHARED_FOR_FOLDS) return false;
    for (int i = 1; i < c->kept_count; i++)
        if (c->kept[i].touched && c->kept[i].kind == HOME_SCRATCH) return false;
    for (int i = 0; i < c->layout_count && !c->team.threads; i++)
        if (c->layouts[i]->row_axes) return false;
    return true;
}

qn_status cuda_phase_join(emitter *e, int phase, const cuda_target *target, text *body, bool *joined, qn_error *error)
{
    const cuda_state *before = e->cuda;
    *joined = false;
    if (!has_one_program(e->k, phase) || before->team.kind > TEAM_BLOCK || before->team.block < 32) return QN_OK;
    QN_TRY(analyse(e, phase, target, NULL, body, error)); /* by itself it would have: */
    const team *own = &e->cuda->team;
    if (own->kind > TEAM_BLOCK || (own->kind == TEAM_BLOCK && own->block > 2 * before->team.block)) return QN_OK;
    QN_TRY(analyse(e, phase, target, before, body, error));
    *joined = suits_a_block(e->cuda);
    return QN_OK;
}
