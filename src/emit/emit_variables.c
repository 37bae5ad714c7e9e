/*
 * Scalars that regions carry, as variables of C or CUDA. In: the ops of control flow. Out: declarations, assignments and
 * the head of a `for`, the same in both languages but for the type of a bool. Tiles have buffers or registers of their
 * own and are passed over here.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"

static const char *type_of(const emitter *e, value v)
{
    dtype t = tile_type_of(e->k, v).elem;
    return e->cuda && t == DT_BOOL ? "bool" : scalar_c_type(t);
}

bool emit_is_tile(const emitter *e, value v)
{
    return e->k->values[v].type.rank != 0;
}

const tile_op *emit_last_op(const tile_block *b)
{
    return b->ops[b->op_count - 1];
}

void emit_declare(emitter *e, value v, const char *words)
{
    put(e, "const %s %s = %s;", type_of(e, v), emit_name(e, v), words);
}

void emit_assign(emitter *e, const tile_op *yield, const value *targets)
{
    int count = 0;
    for (int i = 0; i < yield->operand_count; i++)
        if (!emit_is_tile(e, yield->operands[i]) && yield->operands[i] != targets[i]) count++;
    bool direct = count <= 1;
    for (int i = 0; i < yield->operand_count && !direct; i++)
        if (!emit_is_tile(e, yield->operands[i]) && yield->operands[i] != targets[i])
            put(e, "const %s next_%u = %s;", type_of(e, targets[i]), targets[i], emit_name(e, yield->operands[i]));
    for (int i = 0; i < yield->operand_count; i++) {
        if (emit_is_tile(e, yield->operands[i]) || yield->operands[i] == targets[i]) continue;
        if (direct)
            put(e, "%s = %s;", emit_name(e, targets[i]), emit_name(e, yield->operands[i]));
        else
            put(e, "%s = next_%u;", emit_name(e, targets[i]), targets[i]);
    }
}

void emit_declare_variables(emitter *e, const value *variables, const value *starts, int count)
{
    for (int i = 0; i < count; i++)
        if (!emit_is_tile(e, variables[i]))
            put(e, "%s %s = %s;", type_of(e, variables[i]), emit_name(e, variables[i]), emit_name(e, starts[i]));
}

void emit_declare_results(emitter *e, const tile_op *op, const value *variables)
{
    for (int i = 0; i < op->result_count; i++)
        if (!emit_is_tile(e, op->results[i])) emit_declare(e, op->results[i], emit_name(e, variables[i]));
}

void emit_declare_arms(emitter *e, const tile_op *op)
{
    for (int i = 0; i < op->result_count; i++)
        if (!emit_is_tile(e, op->results[i]))
            put(e, "%s %s;", type_of(e, op->results[i]), emit_name(e, op->results[i]));
}

void emit_assign_arm(emitter *e, const tile_op *op, const tile_block *arm)
{
    for (int i = 0; i < op->result_count; i++)
        if (!emit_is_tile(e, op->results[i]))
            put(e, "%s = %s;", emit_name(e, op->results[i]), emit_name(e, emit_last_op(arm)->operands[i]));
}

void emit_for_head(emitter *e, const tile_op *op)
{
    const char *first = emit_name(e, op->operands[0]), *limit = emit_name(e, op->operands[1]);
    const char *step = emit_name(e, op->operands[2]), *i = emit_name(e, op->regions[0]->args[0]);
    bool down = op->flags & F_DOWN;
    const char *guard = "";
    if (!tile_is_constant(e->k, op->operands[2], NULL))
        guard = arena_print(e->memory, "%s %s 0 && ", step, down ? "<" : ">");
    put(e, "for (long %s = %s; %s%s %s %s; %s += %s) {", i, first, guard, i, down ? ">" : "<", limit, i, step);
}

static void scalar_map(emitter *e, const tile_op *op)
{
    tile_block *region = op->regions[0];
    emit_declare_arms(e, op);
    put(e, "{");
    e->depth++;
    for (int i = 0; i < op->operand_count; i++) emit_declare(e, region->args[i], emit_name(e, op->operands[i]));
    emit_block(e, region);
    emit_assign_arm(e, op, region);
    e->depth--;
    put(e, "}");
}

bool emit_plain_scalar(emitter *e, const tile_op *op, const char *const *operands)
{
    value result = op->result_count ? op->results[0] : 0;
    int axis = op->attr.index;
    switch (op->code) {
    case OP_CONST:
    case OP_ASSUME: return true;
    case OP_PROGRAM: /* an axis that the launch has not is always at 0 */
        emit_declare(e, result, axis < launch_axes(e->k, e->phase) ? arena_print(e->memory, "program%d", axis) : "0");
        return true;
    case OP_PROGRAMS:
        emit_declare(e, result, arena_print(e->memory, e->cuda ? "frame.programs[%d]" : "launch->programs[%d]", axis));
        return true;
    case OP_BOUND:
        emit_declare(e, result,
                     arena_print(e->memory, "(unsigned long)%s < (unsigned long)%s", operands[0], operands[2]));
        return true;
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_PERMUTE:
    case OP_REDUCE: emit_declare(e, result, operands[0]); return true;
    case OP_MAP: scalar_map(e, op); return true;
    default: return false;
    }
}
