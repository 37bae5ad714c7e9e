/*
 * Loads across the lines of an array, turned over. In: a load whose lanes are far apart while its neighbours along the loop around
 * lie side by side, both loops of constant extents. Out: a call before that loop that copies all of it in blocks (prelude: turn_),
 * and loads of whole vectors from the copy. Each line of memory is read once then, and whole.
 * Only where the limits of both loops keep inside the array, so that what is copied is what the loops would have read.
 * SPDX-License-Identifier: MIT
 */
#include "emit/c/nest.h"

#include <inttypes.h>

enum {
    TURN_ROWS = 16,
    TURN_BYTES = 32 << 10
}; /* fewer rows are no block; the copy and what it is made of stay in L1 or L2 */

/* The address of the first element of both loops, as text at the level of the loop around, and the distance of lanes. */
static const char *turned_base(nest *n, const tile_op *op, place at, int row, const char **stride)
{
    emitter *e = n->e;
    const struct access *a = &op->attr.access;
    const char *base = arena_print(e->memory, "%s_array", e->k->params[a->array].name);
    bool rows = false;
    *stride = NULL;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        value start = op->operands[operand++];
        bool slice = a->kind[axis] == INDEX_SLICE;
        if (e->k->values[start].type.rank) return NULL;
        if (slice && !is_one(e->survey, op->operands[operand++])) return NULL;
        int loop = slice ? at.axis[a->result_axis[axis]] : NO_AXIS;
        const char *by = stride_text(e, a->array, axis);
        constraint c = constraint_of_axis(e, start, a->array, axis);
        if (!a->safe[axis] && (loop == NO_AXIS || !constraint_known(n, loop, &c))) return NULL;
        base = arena_print(e->memory, "%s + %s * %s", base, emit_name(e, start), by);
        if (loop == row) {
            if (by != words_one) return NULL;
            rows = true;
        } else if (loop != NO_AXIS && level_is_vector(n, loop + 1)) {
            if (by == words_one || *stride) return NULL;
            *stride = by;
        } else if (loop != NO_AXIS) {
            base = arena_print(e->memory, "%s + i%d * %s", base, loop, by);
        }
    }
    return rows && *stride ? base : NULL;
}

bool turned_load(nest *n, const tile_op *op, place at, address *result)
{
    emitter *e = n->e;
    int vector = n->loops - 1, row = vector - 1;
    const tile_param *p = &e->k->params[op->attr.access.array];
    if (!n->firsts || row < n->outer || p->digits || op->attr.access.mask_count || p->elem == DT_BOOL) return false;
    int64_t rows = n->pass->loops[row], columns = n->pass->loops[vector];
    int64_t width = columns < 16 ? columns : (columns + 15) / 16 * 16;
    if (rows < TURN_ROWS || columns < 0 || rows * width * dtypes[p->elem].size_bytes > TURN_BYTES) return false;
    const char *stride, *base = turned_base(n, op, at, row, &stride);
    if (!base) return false;
    e->array_used[op->attr.access.array] = true;
    /* Two copies are one only where all of this is the same: tiles of other axes of an array begin at one place, too. */
    const char *copied = arena_print(e->memory, "%" PRId64 "L, %s, %s, %s, %s, %s, %s", width, base, stride,
                                     n->firsts[row], n->lasts[row], n->firsts[vector], n->lasts[vector]);
    const char *name = names_find(&n->names, row, copied);
    if (!name) {
        name = fresh_name(e, 0);
        put_at(n, row, "%s %s[%" PRId64 "] __attribute__((aligned(64)));", memory_type(p->elem), name, rows * width);
        put_at(n, row, "%s(%s, %s);", need(e, "turn_%s", memory_name(p->elem)), name, copied);
        names_add(e, &n->names, row, copied, name);
    }
    const char *line = arena_print(e->memory, "%s + i%d * %" PRId64 "L", name, row, width);
    *result = (address){.elem = p->elem, .stride = words_one, .base = line, .level = n->loops};
    result->pointer = arena_print(e->memory, "%s + %s", line, n->position);
    return true;
}
