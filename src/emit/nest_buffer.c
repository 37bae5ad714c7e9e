/*
 * Buffers: where kept tiles live. In: values. Out: numbered buffers, their declarations, and the bytes of scratch.
 *
 * A buffer is a 64-byte aligned part of the worker's scratch, row-major in the value's own shape, with room for one
 * vector more. Its size comes from constants and scalar arguments; where an extent is only known inside the program
 * (the length of a slice that was read from memory) the buffer grows on the heap when it is needed.
 * Emission notes when each buffer is first and last named; those that never live at once share their place.
 * SPDX-License-Identifier: MIT
 */
#include "emit/nest.h"
#include "emit/prelude.h"

#include <string.h>

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
int buffer_for_dot(emitter *e, int64_t m, int64_t n)
{
    int64_t dims[2] = {m, n}, run_time = 0;
    for (int i = 0; i < 2; i++) {
        if (dims[i] >= 0) continue;
        run_time = dims[i];
        dims[i] = 1024; /* more than the prelude packs at once */
    }
    int64_t bytes = (int64_t)prelude_dot_scratch_bytes(dims[0], dims[1]);
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

static bool is_at_launch(const emitter *e, value v)
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

bool extent_at_launch(const emitter *e, value v)
{
    if (!e->at_launch[v]) e->at_launch[v] = is_at_launch(e, v) ? 1 : -1;
    return e->at_launch[v] > 0;
}

#define MOST_BYTES ((int64_t)1 << 56) /* more than any memory; so are sums of a few of them, and no overflow */

static int64_t times(int64_t bytes, int64_t extent)
{
    return __builtin_mul_overflow(bytes, extent, &bytes) || bytes > MOST_BYTES ? MOST_BYTES : bytes;
}

/* 0: it depends on arguments. */
static int64_t constant_bytes(const buffer *b)
{
    int64_t bytes = dtypes[b->elem].size_bytes * (1 + b->more);
    for (int i = 0; i < b->shape.rank; i++) {
        if (b->shape.dims[i] < 0) return 0;
        bytes = times(bytes, b->shape.dims[i]);
    }
    return (bytes + b->extra_bytes + 255) / 64 * 64;
}

const char *buffer_bytes(emitter *e, const buffer *b)
{
    int64_t constant = dtypes[b->elem].size_bytes * (1 + b->more);
    const char *factor = "";
    int open = 0;
    if (constant_bytes(b)) return arena_print(e->memory, "%ldL", (long)constant_bytes(b));
    for (int i = 0; i < b->shape.rank; i++) {
        int64_t dim = b->shape.dims[i];
        const char *extent = extent_text(e, dim);
        if (dim >= 0)
            constant = times(constant, dim);
        else
            factor = arena_print(e->memory, "%s%s(%s, ", factor, need(e, "room_of"), extent), open++;
    }
    const char *room = arena_print(e->memory, "%s%ldL%.*s", factor, (long)constant, open, "))))))))))))");
    return arena_print(e->memory, "((%s + %ldL) / 64 * 64)", room, (long)b->extra_bytes + 255);
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

const char *buffer_name(emitter *e, value v)
{
    return buffer_touch(e, buffer_for(e, v));
}

const char *buffer_touch(emitter *e, int number)
{
    buffer *b = &e->buffers[number];
    if (!b->first) b->first = e->time, b->first_pass = e->pass_number;
    b->last = e->time;
    b->last_pass = e->pass_number;
    return arena_print(e->memory, "b%d", number);
}

void buffer_loop_ends(emitter *e, int begin)
{
    for (int i = 1; i < e->buffer_count; i++)
        if (e->buffers[i].first && e->buffers[i].first <= begin && e->buffers[i].last > begin)
            e->buffers[i].last = e->time;
}

void buffer_prepare(emitter *e, int number)
{
    const buffer *b = &e->buffers[number];
    if (!b->run_time) return;
    const char *name = buffer_touch(e, number);
    put(e, "{");
    e->depth++;
    put(e, "void *grown = realloc(%s, %s);", name, buffer_bytes(e, b));
    put(e, "if (!grown) {");
    e->depth++;
    emit_failure(e, CPU_FAILED_MEMORY, e->line);
    e->depth--;
    put(e, "}");
    put(e, "%s = grown;", name);
    e->depth--;
    put(e, "}");
}

/* Buffers that never live at once share a slot: of constant sizes, or of the same size. */
static void assign_slots(emitter *e)
{
    for (int i = 1; i < e->buffer_count; i++) {
        buffer *b = &e->buffers[i];
        b->slot = 0;
        if (!b->first || b->run_time) continue;
        for (int j = 1; j < i && !b->slot; j++) { /* a slot is named after its first buffer */
            if (e->buffers[j].slot != j) continue;
            bool fits = constant_bytes(b) ? constant_bytes(&e->buffers[j]) != 0
                                          : !strcmp(buffer_bytes(e, b), buffer_bytes(e, &e->buffers[j]));
            for (int k = j; k < i && fits; k++)
                if (e->buffers[k].slot == j && e->buffers[k].last >= b->first && e->buffers[k].first <= b->last)
                    fits = false;
            if (fits) b->slot = j;
        }
        if (!b->slot) b->slot = i;
        e->buffers[b->slot].shared |= b->slot != i;
    }
}

/* What a slot needs: the most of its buffers. */
static const char *slot_bytes(emitter *e, int slot)
{
    int64_t most = 0;
    for (int i = slot; i < e->buffer_count; i++)
        if (e->buffers[i].slot == slot) most = MAXIMUM(most, constant_bytes(&e->buffers[i]));
    return most ? arena_print(e->memory, "%ldL", (long)most) : buffer_bytes(e, &e->buffers[slot]);
}

static void declare_extents(emitter *e)
{
    bool *declared = ARENA_ARRAY(e->memory, bool, e->k->value_count);
    for (int i = 1; i < e->buffer_count; i++)
        for (int axis = 0; axis < e->buffers[i].shape.rank && e->buffers[i].slot; axis++)
            if (e->buffers[i].shape.dims[axis] < 0) declare_extent(e, (value)-e->buffers[i].shape.dims[axis], declared);
}

void buffer_scratch(emitter *e, text *out)
{
    text *before = e->out;
    e->out = out;
    declare_extents(e);
    put(e, "unsigned long bytes = 0;");
    for (int i = 1; i < e->buffer_count; i++)
        if (e->buffers[i].slot == i) put(e, "bytes += %s;", slot_bytes(e, i));
    e->out = before;
}

void buffer_declare_all(emitter *e, text *out)
{
    text *before = e->out;
    bool open = false;
    e->out = out;
    assign_slots(e);
    for (int i = 1; i < e->buffer_count; i++) {
        const buffer *b = &e->buffers[i];
        if (b->run_time)
            put(e, "%s *b%d = 0;", memory_type(b->elem), i);
        else if (b->slot)
            put(e, "%s *%sb%d;", memory_type(b->elem), e->buffers[b->slot].shared ? "" : "restrict ", i);
        open |= b->slot != 0;
    }
    if (open) {
        put(e, "{");
        e->depth++;
        declare_extents(e);
        put(e, "char *room = scratch;");
        for (int slot = 1; slot < e->buffer_count; slot++) {
            if (e->buffers[slot].slot != slot) continue;
            for (int i = slot; i < e->buffer_count; i++)
                if (e->buffers[i].slot == slot) put(e, "b%d = (%s *)room;", i, memory_type(e->buffers[i].elem));
            put(e, "room += %s;", slot_bytes(e, slot));
        }
        e->depth--;
        put(e, "}");
    }
    e->out = before;
}
