/*
 * Buffers: where kept tiles live. In: values. Out: numbered buffers, their declarations, and the bytes of scratch.
 *
 * A buffer is a 64-byte aligned part of the worker's scratch, row-major in the value's own shape, with room for one
 * vector more. Its size comes from constants and scalar arguments; where an extent is only known inside the program
 * (the length of a slice that was read from memory) the buffer grows on the heap when it is needed.
 * SPDX-License-Identifier: MIT
 */
#include "emit/nest.h"
#include "emit/prelude.h"

int buffer_for(emitter *e, value v)
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

/* Room for packing the operands of a product: what the prelude asks for, and 8 bytes for each step of a run-time axis.
 */
int buffer_for_dot(emitter *e, int64_t m, int64_t n, int64_t k)
{
    int64_t dims[3] = {m, n, k}, run_time = 0;
    for (int i = 0; i < 3; i++) {
        if (dims[i] >= 0) continue;
        run_time = dims[i];
        dims[i] = 1024; /* more than the prelude packs at once */
    }
    int64_t bytes = (int64_t)prelude_dot_scratch_bytes(dims[0], dims[1], dims[2]);
    if (!run_time && e->dot_room) {
        buffer *room = &e->buffers[e->dot_room];
        room->extra_bytes = MAXIMUM(room->extra_bytes, bytes);
        return e->dot_room;
    }
    buffer b = {.elem = DT_F64, .shape = {.elem = DT_F64, .rank = 1, .dims = {run_time}}, .extra_bytes = bytes};
    if (run_time) b.run_time = !extent_at_launch(e, (value)-run_time);
    ARENA_PUSH(e->memory, e->buffers, e->buffer_count, e->buffer_capacity, b);
    if (!run_time) e->dot_room = e->buffer_count - 1;
    return e->buffer_count - 1;
}

bool extent_at_launch(const emitter *e, value v)
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

const char *buffer_bytes(emitter *e, const buffer *b)
{
    int64_t constant = dtypes[b->elem].size_bytes;
    const char *factor = "";
    for (int i = 0; i < b->shape.rank; i++) {
        int64_t dim = b->shape.dims[i];
        if (dim >= 0)
            constant *= dim;
        else
            factor = arena_print(e->memory, "%s(%s > 0 ? %s : 0) * ", factor, extent_text(e, dim), extent_text(e, dim));
    }
    return *factor ? arena_print(e->memory, "((%s%ldL + %ldL) / 64 * 64)", factor, (long)constant,
                                 (long)b->extra_bytes + 255)
                   : arena_print(e->memory, "%ldL", (long)((constant + b->extra_bytes + 255) / 64 * 64));
}

/* The scalar ops that an extent is computed from, once each, in the function NAME_scratch_bytes. */
static void declare_extent(emitter *e, value v, bool *declared)
{
    if (declared[v]) return;
    declared[v] = true;
    const tile_op *op = tile_def(e->k, v);
    for (int i = 0; i < op->operand_count; i++) declare_extent(e, op->operands[i], declared);
    if (op->code != OP_CONST) emit_scalar_op(e, (tile_op *)op);
}

void buffer_scratch(emitter *e, text *out)
{
    text *before = e->out;
    e->out = out;
    bool *declared = ARENA_ARRAY(e->memory, bool, e->k->value_count);
    for (int i = 1; i < e->buffer_count; i++) {
        const buffer *b = &e->buffers[i];
        if (b->run_time) continue;
        for (int axis = 0; axis < b->shape.rank; axis++)
            if (b->shape.dims[axis] < 0) declare_extent(e, (value)-b->shape.dims[axis], declared);
    }
    put(e, "unsigned long bytes = 0;");
    for (int i = 1; i < e->buffer_count; i++)
        if (!e->buffers[i].run_time) put(e, "bytes += %s;", buffer_bytes(e, &e->buffers[i]));
    e->out = before;
}

void buffer_declare_all(emitter *e, text *out)
{
    text *before = e->out;
    e->out = out;
    bool *declared = ARENA_ARRAY(e->memory, bool, e->k->value_count);
    bool open = false;
    for (int i = 1; i < e->buffer_count; i++) {
        const buffer *b = &e->buffers[i];
        if (b->run_time)
            put(e, "%s *b%d = 0;", memory_type(b->elem), i);
        else
            put(e, "%s *restrict b%d;", memory_type(b->elem), i);
        open |= !b->run_time;
    }
    if (open) {
        put(e, "{");
        e->depth++;
        for (int i = 1; i < e->buffer_count; i++)
            for (int axis = 0; axis < e->buffers[i].shape.rank && !e->buffers[i].run_time; axis++)
                if (e->buffers[i].shape.dims[axis] < 0)
                    declare_extent(e, (value)-e->buffers[i].shape.dims[axis], declared);
        put(e, "char *room = scratch;");
        for (int i = 1; i < e->buffer_count; i++) {
            const buffer *b = &e->buffers[i];
            if (b->run_time) continue;
            put(e, "b%d = (%s *)room;", i, memory_type(b->elem));
            put(e, "room += %s;", buffer_bytes(e, b));
        }
        e->depth--;
        put(e, "}");
    }
    e->out = before;
}
