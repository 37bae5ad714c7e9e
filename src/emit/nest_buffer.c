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
    if (!run_time && e->survey->dot_room) {
        buffer *room = &e->survey->buffers[e->survey->dot_room];
        room->extra_bytes = MAXIMUM(room->extra_bytes, bytes);
        return e->survey->dot_room;
    }
    buffer b = {.elem = DT_F64, .shape = {.elem = DT_F64, .rank = 1, .dims = {run_time}}, .extra_bytes = bytes};
    if (run_time) b.run_time = !extent_at_launch(e->survey, (value)-run_time);
    ARENA_PUSH(e->memory, e->survey->buffers, e->survey->buffer_count, e->survey->buffer_capacity, b);
    if (!run_time) e->survey->dot_room = e->survey->buffer_count - 1;
    return e->survey->buffer_count - 1;
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
    return buffer_touch(e, buffer_for(e->survey, v));
}

const char *buffer_touch(emitter *e, int number)
{
    buffer_use(e->survey, number);
    return arena_print(e->memory, "b%d", number);
}

void buffer_prepare(emitter *e, int number)
{
    const buffer *b = &e->survey->buffers[number];
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

/* Of two whose sizes depend on arguments: the same bytes, whatever those are? */
static bool same_bytes(const buffer *a, const buffer *b)
{
    int64_t constants[2] = {dtypes[a->elem].size_bytes * (1 + a->more), dtypes[b->elem].size_bytes * (1 + b->more)};
    int64_t factors[2][MAX_RANK] = {{0}};
    for (int side = 0; side < 2; side++) {
        const tile_type *shape = side ? &b->shape : &a->shape;
        for (int i = 0, count = 0; i < shape->rank; i++) {
            if (shape->dims[i] >= 0)
                constants[side] = times(constants[side], shape->dims[i]);
            else
                factors[side][count++] = shape->dims[i];
        }
    }
    return !constant_bytes(b) && constants[0] == constants[1] && a->extra_bytes == b->extra_bytes &&
           !memcmp(factors[0], factors[1], sizeof(factors[0]));
}

/* Buffers that never live at once share a slot: of constant sizes, or of the same size. */
static void assign_slots(emitter *e)
{
    for (int i = 1; i < e->survey->buffer_count; i++) {
        buffer *b = &e->survey->buffers[i];
        b->slot = 0;
        if (!b->first || b->run_time) continue;
        for (int j = 1; j < i && !b->slot; j++) { /* a slot is named after its first buffer */
            if (e->survey->buffers[j].slot != j) continue;
            bool fits =
                constant_bytes(b) ? constant_bytes(&e->survey->buffers[j]) != 0 : same_bytes(b, &e->survey->buffers[j]);
            for (int k = j; k < i && fits; k++)
                if (e->survey->buffers[k].slot == j && e->survey->buffers[k].last >= b->first &&
                    e->survey->buffers[k].first <= b->last)
                    fits = false;
            if (fits) b->slot = j;
        }
        if (!b->slot) b->slot = i;
        e->survey->buffers[b->slot].shared |= b->slot != i;
    }
}

/* What a slot needs: the most of its buffers. */
static const char *slot_bytes(emitter *e, int slot)
{
    int64_t most = 0;
    for (int i = slot; i < e->survey->buffer_count; i++)
        if (e->survey->buffers[i].slot == slot) most = MAXIMUM(most, constant_bytes(&e->survey->buffers[i]));
    return most ? arena_print(e->memory, "%ldL", (long)most) : buffer_bytes(e, &e->survey->buffers[slot]);
}

static void declare_extents(emitter *e)
{
    bool *declared = ARENA_ARRAY(e->memory, bool, e->k->value_count);
    for (int i = 1; i < e->survey->buffer_count; i++)
        for (int axis = 0; axis < e->survey->buffers[i].shape.rank && e->survey->buffers[i].slot; axis++)
            if (e->survey->buffers[i].shape.dims[axis] < 0)
                declare_extent(e, (value)-e->survey->buffers[i].shape.dims[axis], declared);
}

void buffer_scratch(emitter *e, const char *first, text *out)
{
    text *before = e->out;
    e->out = out;
    declare_extents(e);
    put(e, "unsigned long bytes = %s;", first ? first : "0");
    for (int i = 1; i < e->survey->buffer_count; i++)
        if (e->survey->buffers[i].slot == i) put(e, "bytes += %s;", slot_bytes(e, i));
    e->out = before;
}

void buffer_declare_all(emitter *e, const char *first, text *out)
{
    text *before = e->out;
    bool open = false;
    e->out = out;
    assign_slots(e);
    for (int i = 1; i < e->survey->buffer_count; i++) {
        const buffer *b = &e->survey->buffers[i];
        if (b->run_time)
            put(e, "%s *b%d = 0;", memory_type(b->elem), i);
        else if (b->slot)
            put(e, "%s *%sb%d;", memory_type(b->elem), e->survey->buffers[b->slot].shared ? "" : "restrict ", i);
        open |= b->slot != 0;
    }
    if (open) {
        put(e, "{");
        e->depth++;
        declare_extents(e);
        put(e, first ? "char *room = (char *)scratch + %s;" : "char *room = scratch;", first);
        for (int slot = 1; slot < e->survey->buffer_count; slot++) {
            if (e->survey->buffers[slot].slot != slot) continue;
            for (int i = slot; i < e->survey->buffer_count; i++)
                if (e->survey->buffers[i].slot == slot)
                    put(e, "b%d = (%s *)room;", i, memory_type(e->survey->buffers[i].elem));
            put(e, "room += %s;", slot_bytes(e, slot));
        }
        e->depth--;
        put(e, "}");
    }
    e->out = before;
}
