/*
 * One phase of a kernel that is spread over threads. In: a phase of tile IR and a target. Out: what was chosen for it and
 * the program that is built from that, in e->cuda; then, printed, its body.
 *
 * schedule/ sees its passes and kept tiles and chooses, loops/ builds. A phase of one program may go on in the last block of
 * the phase before it (cuda_phase_join).
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/access_notes.h"
#include "emit/cuda/phase.h"

static _Atomic int64_t walks;

int64_t cuda_walks(void)
{
    return walks;
}

void cuda_phase_body(emitter *e, int phase, text *body)
{
    cuda_state *c = e->cuda;
    walks++;
    e->phase = phase;
    e->line = e->serial = 0;
    arrays_forget(e);
    c->resident = ARENA_ARRAY(e->memory, const char *, e->k->value_count);
    if (e->notes) e->notes->count = e->notes->from;
    text_clear(body);
    e->out = body;
    e->depth = 3;
    print_spread_nodes(e, c->program.first);
}

static qn_status analyse(emitter *e, int phase, const cuda_target *target, const spread *before, qn_error *error)
{
    const sched_machine machine = cuda_machine(target);
    cuda_state *c = ARENA_NEW(e->memory, cuda_state);
    e->cuda = c;
    c->target = target;
    qn_status status = loops_spread(e->survey, phase, &machine, before, e->memory, &c->program, error);
    c->spread = e->survey->spread;
    return status;
}

qn_status cuda_phase(emitter *e, int phase, const cuda_target *target, qn_error *error)
{
    return analyse(e, phase, target, NULL, error);
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
static bool suits_a_block(const spread *c)
{
    int64_t shared = c->shared_bytes + (int64_t)c->slot_bytes * c->team.block;
    if (c->has_dot || shared > c->machine.shared_bytes - SHARED_FOR_FOLDS) return false;
    for (int i = 1; i < c->kept_count; i++)
        if (c->kept[i].touched && c->kept[i].kind == HOME_SCRATCH) return false;
    for (int i = 0; i < c->layout_count && !c->team.threads; i++)
        if (c->layouts[i]->row_axes) return false;
    return true;
}

qn_status cuda_phase_join(emitter *e, int phase, const cuda_target *target, bool *joined, qn_error *error)
{
    const spread *before = e->cuda->spread;
    *joined = false;
    if (!has_one_program(e->k, phase) || before->team.kind > TEAM_BLOCK || before->team.block < 32) return QN_OK;
    QN_TRY(analyse(e, phase, target, NULL, error)); /* by itself it would have: */
    const team *own = &e->cuda->spread->team;
    if (own->kind > TEAM_BLOCK || (own->kind == TEAM_BLOCK && own->block > 2 * before->team.block)) return QN_OK;
    QN_TRY(analyse(e, phase, target, before, error));
    *joined = suits_a_block(e->cuda->spread);
    return QN_OK;
}
