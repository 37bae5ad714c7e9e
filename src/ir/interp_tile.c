/*
 * Tiles of the interpreter: their memory, and the ops that only move elements.
 *
 * Buffers come in powers of two and go back to a list of their size, so that a launch of many programs allocates only
 * what its largest program needs at once. Moving is one table of source positions, applied to all that a tile carries.
 * SPDX-License-Identifier: MIT
 */
#include "ir/interp_state.h"

#include <stdlib.h>
#include <string.h>

typedef struct buffer_head {
    _Alignas(16) struct buffer_head *next;
    struct buffer_head *next_of_all;
    int class;
} buffer_head;

void *buffer_take(interp *s, size_t size_bytes)
{
    size_t need = size_bytes + sizeof(buffer_head);
    int class = 6;
    while (class < BUFFER_CLASSES && ((size_t)1 << class) < need) class ++;
    if (class == BUFFER_CLASSES || need < size_bytes) interp_no_memory(s, size_bytes);
    buffer_head *head = s->free_buffers[class];
    if (head) {
        s->free_buffers[class] = head->next;
    } else {
        head = s->no_memory ? malloc((size_t)1 << class) : heap_new((size_t)1 << class);
        if (!head) interp_no_memory(s, (size_t)1 << class);
        head->class = class;
        head->next_of_all = s->all_buffers;
        s->all_buffers = head;
    }
    return head + 1;
}

void buffer_give(interp *s, void *buffer)
{
    if (!buffer) return;
    buffer_head *head = (buffer_head *)buffer - 1;
    head->next = s->free_buffers[head->class];
    s->free_buffers[head->class] = head;
}

tile *tile_make(interp *s, const tile_type *type)
{
    tile *t = s->free_tiles;
    if (t) {
        s->free_tiles = t->next;
    } else {
        t = heap_new(sizeof(tile));
        t->next_of_all = s->all_tiles;
        s->all_tiles = t;
    }
    t->type = *type;
    t->count = interp_type_count(type);
    t->cells = t->count > 1 ? buffer_take(s, sizeof(cell) * (size_t)t->count) : &t->one;
    t->one.i = 0;
    t->poison = NULL;
    t->birth = NULL;
    t->plain = NULL;
    t->uses = 1;
    return t;
}

tile *tile_scalar(interp *s, dtype elem, cell c)
{
    tile_type type = scalar_type(elem);
    tile *t = tile_make(s, &type);
    t->one = c;
    return t;
}

tile *tile_keep(tile *t)
{
    t->uses++;
    return t;
}

void tile_drop(interp *s, tile *t)
{
    if (!t || --t->uses) return;
    if (t->cells != &t->one) buffer_give(s, t->cells);
    buffer_give(s, t->poison);
    buffer_give(s, t->birth);
    buffer_give(s, t->plain);
    t->next = s->free_tiles;
    s->free_tiles = t;
}

void tile_free_buffers(interp *s)
{
    for (tile *t = s->all_tiles; t;) {
        tile *next = t->next_of_all;
        heap_free(t);
        t = next;
    }
    for (buffer_head *head = s->all_buffers; head;) {
        buffer_head *next = head->next_of_all;
        heap_free(head);
        head = next;
    }
}

tile *tile_gather(interp *s, const tile *t, const tile_type *type, const int64_t *from, int64_t n)
{
    tile_type shape = *type;
    shape.elem = t->type.elem;
    tile *r = tile_make(s, &shape);
    CHECK(r->count == n);
    for (int64_t j = 0; j < n; j++) r->cells[j] = t->cells[from[j]];
    if (t->poison) {
        r->poison = buffer_take(s, (size_t)n);
        for (int64_t j = 0; j < n; j++) r->poison[j] = t->poison[from[j]];
    }
    if (t->birth) {
        r->birth = buffer_take(s, sizeof(int32_t) * (size_t)n);
        for (int64_t j = 0; j < n; j++) r->birth[j] = t->birth[from[j]];
    }
    return r;
}

/* Source positions of a walk over `shape` whose step on each axis is given. Returns a buffer. */
static int64_t *walk_positions(interp *s, const tile_type *shape, const int64_t *steps, int64_t n)
{
    int64_t index[MAX_RANK] = {0}, at = 0;
    int64_t *from = buffer_take(s, sizeof(int64_t) * (size_t)n);
    for (int64_t j = 0; j < n; j++) {
        from[j] = at;
        for (int axis = shape->rank - 1; axis >= 0; axis--) {
            at += steps[axis];
            if (++index[axis] < shape->dims[axis]) break;
            at -= steps[axis] * shape->dims[axis];
            index[axis] = 0;
        }
    }
    return from;
}

tile *tile_expand(interp *s, const tile *t, const tile_type *shape)
{
    int64_t steps[MAX_RANK] = {0};
    if (s->stop == STOP_NONE && t->type.rank) { /* after a stop the shape may be empty: nothing is moved */
        CHECK(t->type.rank == shape->rank);
        strides_set_row_major(t->type.rank, t->type.dims, steps);
        for (int axis = 0; axis < shape->rank; axis++) {
            if (t->type.dims[axis] == shape->dims[axis]) continue;
            CHECK(t->type.dims[axis] == 1);
            steps[axis] = 0;
        }
    }
    int64_t n = interp_type_count(shape), *from = walk_positions(s, shape, steps, n);
    tile *r = tile_gather(s, t, shape, from, n);
    buffer_give(s, from);
    return r;
}

static tile *permute(interp *s, const tile_op *op, const tile *t, const tile_type *type)
{
    int64_t inner[MAX_RANK] = {0}, steps[MAX_RANK] = {0};
    strides_set_row_major(t->type.rank, t->type.dims, inner);
    for (int axis = 0; axis < type->rank; axis++) steps[axis] = inner[op->attr.axes[axis]];
    int64_t n = interp_type_count(type), *from = walk_positions(s, type, steps, n);
    tile *r = tile_gather(s, t, type, from, n);
    buffer_give(s, from);
    return r;
}

static tile *reshape(interp *s, const tile *t, const tile_type *type)
{
    int64_t n = interp_type_count(type);
    if (n != t->count) {
        interp_stop(s, "internal: reshape of %lld elements to %lld", (long long)t->count, (long long)n);
        return NULL;
    }
    tile *r = tile_make(s, type);
    memcpy(r->cells, t->cells, sizeof(cell) * (size_t)n);
    if (t->poison) r->poison = memcpy(buffer_take(s, (size_t)n), t->poison, (size_t)n);
    if (t->birth) memcpy(birth_table(s, r), t->birth, sizeof(int32_t) * (size_t)n);
    return r;
}

static tile *bound(interp *s, const tile_op *op, const tile_type *type)
{
    int64_t start = interp_integer(s, op->operands[0]), step = interp_integer(s, op->operands[1]),
            extent = interp_integer(s, op->operands[2]);
    tile *r = tile_make(s, type);
    for (int64_t j = 0; j < r->count; j++) {
        int64_t moved, at = 0;
        bool overflow = __builtin_mul_overflow(j, step, &moved) || __builtin_add_overflow(start, moved, &at);
        r->cells[j].i = !overflow && at >= 0 && at < extent;
    }
    return r;
}

tile *interp_shape(interp *s, const tile_op *op)
{
    tile_type type = interp_resolve(s, op->results[0]);
    switch (op->code) {
    case OP_BROADCAST: {
        tile *t = interp_get(s, op->operands[0]);
        return tile_shape_same(&t->type, &type) ? tile_keep(t) : tile_expand(s, t, &type);
    }
    case OP_RESHAPE: return reshape(s, interp_get(s, op->operands[0]), &type);
    case OP_PERMUTE: return permute(s, op, interp_get(s, op->operands[0]), &type);
    case OP_BOUND: return bound(s, op, &type);
    case OP_IOTA: {
        tile *r = tile_make(s, &type);
        for (int64_t j = 0; j < r->count; j++) r->cells[j].i = j;
        math_round(type.elem, r->count, r->cells);
        return r;
    }
    default: CHECK(!"an op that moves elements"); return NULL;
    }
}
