/*
 * Tables of a survey, and buffers: places of kept tiles, numbered, in a value's own shape.
 *
 * In: a phase; values. Out: who is used how often, which arrays are read and written; a buffer for a value, and when each
 * is first and last used. Its size comes from constants and scalar arguments, or is only known inside the program.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/survey.h"

static void count_uses(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    survey *e = context;
    for (int i = 0; i < op->operand_count; i++) e->uses[op->operands[i]]++;
    if (op->code == OP_STORE || op->code == OP_ATOMIC) e->written[op->attr.access.array] = true;
    if (op->code == OP_LOAD || op->code == OP_ATOMIC) e->read[op->attr.access.array] = true;
}

void survey_open(survey *e, int phase)
{
    const tile_kernel *k = e->k;
    int count = k->value_count;
    e->uses = ARENA_ARRAY(e->memory, int, count);
    e->force = ARENA_ARRAY(e->memory, bool, count);
    e->rounds = ARENA_ARRAY(e->memory, bool, count);
    e->scales = ARENA_ARRAY(e->memory, tile_op *, count);
    e->seen = ARENA_ARRAY(e->memory, int, count);
    e->seen_at = ARENA_ARRAY(e->memory, place, count);
    e->at_launch = ARENA_ARRAY(e->memory, signed char, count);
    e->buffer_of = ARENA_ARRAY(e->memory, int, count);
    e->written = ARENA_ARRAY(e->memory, bool, k->param_count + 1);
    e->read = ARENA_ARRAY(e->memory, bool, k->param_count + 1);
    e->buffers = NULL;
    e->buffer_count = e->buffer_capacity = 0;
    ARENA_PUSH(e->memory, e->buffers, e->buffer_count, e->buffer_capacity, (buffer){0});
    e->seen_now = e->time = e->pass_number = e->dot_room = 0;
    e->has_assert = e->prints = false;
    tile_walk((tile_kernel *)k, k->phases[phase], count_uses, e);
}

int buffer_for(survey *e, value v)
{
    if (e->buffer_of[v]) return e->buffer_of[v];
    const tile_op *op = tile_def(e->k, v);
    if (op && op->code == OP_RESHAPE && tile_is_buffered(e, v)) return e->buffer_of[v] = buffer_for(e, op->operands[0]);
    tile_type shape = tile_type_of(e->k, v);
    buffer b = {.elem = shape.elem, .shape = shape};
    for (int i = 0; i < shape.rank; i++)
        if (shape.dims[i] < 0 && !extent_at_launch(e, (value)-shape.dims[i])) b.run_time = true;
    ARENA_PUSH(e->memory, e->buffers, e->buffer_count, e->buffer_capacity, b);
    return e->buffer_of[v] = e->buffer_count - 1;
}

static bool is_at_launch(const survey *e, value v)
{
    const tile_op *op = tile_def(e->k, v);
    if (!op || e->k->values[v].type.rank) return false;
    if (op->code == OP_CONST || op->code == OP_ARG || op->code == OP_PROGRAMS) return true;
    op_class class = ops[op->code].class;
    if (class != CLASS_UNARY && class != CLASS_BINARY && class != CLASS_COMPARE && class != CLASS_TERNARY) return false;
    for (int i = 0; i < op->operand_count; i++)
        if (!extent_at_launch(e, op->operands[i])) return false;
    return true;
}

bool extent_at_launch(const survey *e, value v)
{
    if (!e->at_launch[v]) e->at_launch[v] = is_at_launch(e, v) ? 1 : -1;
    return e->at_launch[v] > 0;
}

void buffer_use(survey *e, int number)
{
    buffer *b = &e->buffers[number];
    if (!b->first) b->first = e->time, b->first_pass = e->pass_number;
    b->last = e->time;
    b->last_pass = e->pass_number;
}

void buffer_loop_ends(survey *e, int begin)
{
    for (int i = 1; i < e->buffer_count; i++)
        if (e->buffers[i].first && e->buffers[i].first <= begin && e->buffers[i].last > begin)
            e->buffers[i].last = e->time;
}
