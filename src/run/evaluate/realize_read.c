/*
 * Between tensors and the host. Reading computes what is needed, waits for the device, and gives row-major elements
 * whatever the view; writing gives new contents to a tensor that has memory of its own. Failures of kernels that ran
 * before (an assert) show where the host waits: here.
 * SPDX-License-Identifier: MIT
 */
#include "run/evaluate/realize.h"

#include <quern/workbench.h>
#include <stdlib.h>
#include <string.h>

/* Elements of a view (`base` is the address of offset 0) to or from row-major memory. */
static char *walk(const graph_node *n, const placed *p, int axis, char *base, char *packed, bool out)
{
    size_t size = (size_t)dtypes[n->elem].size_bytes;
    int64_t count = axis < n->shape.rank ? n->shape.extents[axis] : 1;
    bool run = axis == n->shape.rank || (axis == n->shape.rank - 1 && (p->strides[axis] == 1 || count == 1));
    if (run) {
        size_t bytes = (size_t)count * size;
        memcpy(out ? packed : base, out ? base : packed, bytes);
        return packed + bytes;
    }
    for (int64_t i = 0; i < count; i++)
        packed = walk(n, p, axis + 1, base + i * p->strides[axis] * (int64_t)size, packed, out);
    return packed;
}

/* The lowest element of a view that has some, and how many lie from there to the highest. */
static int64_t reach(const graph_node *n, const placed *p, int64_t *low)
{
    int64_t high;
    bool fits = strides_reach(n->shape.rank, n->shape.extents, p->strides, low, &high);
    CHECK(fits);
    *low += p->offset;
    return high + p->offset - *low;
}

static qn_status copy_out(const qn_tape *tape, const graph_node *n, const placed *p, void *host, qn_error *error)
{
    const device_slot *s = &tape->context->slots[tape->realizer->slot];
    int64_t size = dtypes[n->elem].size_bytes, low, count = shape_count(&n->shape);
    if (!count) return QN_OK;
    int64_t span = reach(n, p, &low);
    char *data = storage_data(p->storage);
    if (!s->driver->memory) {
        walk(n, p, 0, data + p->offset * size, host, true);
        return QN_OK;
    }
    char *aside = malloc((size_t)(span * size));
    if (!aside)
        return error_set(error, QN_NO_MEMORY, "no memory to read a tensor of %lld bytes", (long long)span * size);
    qn_status status = s->driver->memory->read(s->device, NULL, aside, data + low * size, (size_t)(span * size), error);
    if (status == QN_OK) walk(n, p, 0, aside + (p->offset - low) * size, host, true);
    heap_free(aside);
    return status;
}

/* The tape of a handle that is good; else the error. */
static qn_status enter(qn_tensor t, const char *function, qn_error *error)
{
    if (!tape_enter(t.tape, function)) return error_set(error, QN_BAD_CALL, "%s: the tensor is empty", function);
    QN_TRY(qn_tape_error(t.tape, error));
    if (!tape_node(t.tape, function, t)) return qn_tape_error(t.tape, error);
    return QN_OK;
}

static qn_status wrong_size(const graph_node *n, const char *function, size_t size_bytes, qn_error *error)
{
    text words = {0};
    shape_print(&n->shape, &words);
    error_set(error, QN_BAD_CALL, "%s: %zu bytes are given; a tensor of shape %s and type %s has %lld", function,
              size_bytes, text_get(&words), dtypes[n->elem].text,
              (long long)(shape_count(&n->shape) * dtypes[n->elem].size_bytes));
    text_free(&words);
    return QN_BAD_CALL;
}

static qn_status settle(const qn_tape *tape, qn_error *error)
{
    const device_slot *s = &tape->context->slots[tape->realizer->slot];
    return s->driver->memory ? s->driver->memory->settle(s->device, error) : QN_OK;
}

static qn_status read(qn_tensor t, const char *function, void *host, size_t size_bytes, qn_error *error)
{
    QN_TRY(enter(t, function, error));
    qn_tape *tape = t.tape;
    const graph_node *n = graph_get(tape->graph, tape->slots[t.slot].node);
    if (size_bytes != (size_t)(shape_count(&n->shape) * dtypes[n->elem].size_bytes))
        return wrong_size(n, function, size_bytes, error);
    if (!host && size_bytes) return error_set(error, QN_BAD_CALL, "%s: %zu bytes at NULL", function, size_bytes);
    if (tape->capturing)
        return error_set(error, QN_BAD_CALL, "%s: no value can be read while a step is recorded: nothing runs",
                         function);
    QN_TRY(realize_slots(tape, &t.slot, 1, error));
    node at = tape->slots[t.slot].node;
    placed where;
    bool there = realize_where(tape, at, &where);
    CHECK(there);
    n = graph_get(tape->graph, at);
    const device_slot *s = &tape->context->slots[tape->realizer->slot];
    if (s->driver->memory && strides_are_row_major(n->shape.rank, n->shape.extents, where.strides)) {
        const char *from = storage_data(where.storage) + where.offset * dtypes[n->elem].size_bytes;
        if (size_bytes) QN_TRY(s->driver->memory->read(s->device, NULL, host, from, size_bytes, error));
    } else {
        QN_TRY(copy_out(tape, n, &where, host, error));
    }
    return settle(tape, error);
}

qn_status qn_tensor_read(qn_tensor t, void *host, size_t size_bytes, qn_error *error)
{
    HEAP_ENTER(error);
    return read(t, "qn_tensor_read", host, size_bytes, error);
}

qn_status qn_tensor_item(qn_tensor t, double *value, qn_error *error)
{
    HEAP_ENTER(error);
    char bytes[8];
    QN_TRY(enter(t, "qn_tensor_item", error));
    const graph_node *n = graph_get(t.tape->graph, t.tape->slots[t.slot].node);
    dtype elem = n->elem;
    if (shape_count(&n->shape) != 1)
        return error_set(error, QN_BAD_CALL, "qn_tensor_item: the tensor has %lld elements, not one",
                         (long long)shape_count(&n->shape));
    if (!value) return error_set(error, QN_BAD_CALL, "qn_tensor_item: the place for the number is NULL");
    QN_TRY(read(t, "qn_tensor_item", bytes, (size_t)dtypes[elem].size_bytes, error));
    number x = element_read(elem, bytes);
    *value = dtype_is_float(elem) ? x.f : elem == DT_U64 ? (double)(uint64_t)x.i : (double)x.i;
    return QN_OK;
}

qn_status qn_tensor_save_npy(qn_tensor t, const char *path, qn_error *error)
{
    HEAP_ENTER(error);
    QN_TRY(enter(t, "qn_tensor_save_npy", error));
    if (!path) return error_set(error, QN_BAD_CALL, "qn_tensor_save_npy: the path is NULL");
    const graph_node *n = graph_get(t.tape->graph, t.tape->slots[t.slot].node);
    qn_array array = {.type = (qn_dtype)n->elem, .rank = n->shape.rank};
    for (int k = 0; k < n->shape.rank; k++) array.extents[k] = n->shape.extents[k];
    strides_set_row_major(array.rank, array.extents, array.strides);
    size_t bytes = (size_t)(shape_count(&n->shape) * dtypes[n->elem].size_bytes);
    array.data = malloc(bytes + 1);
    if (!array.data) return error_set(error, QN_NO_MEMORY, "no memory to read a tensor of %zu bytes", bytes);
    qn_status status = read(t, "qn_tensor_save_npy", array.data, bytes, error);
    if (status == QN_OK) status = qn_npy_write(path, &array, error);
    heap_free(array.data);
    return status;
}

/* The leaf that a handle reads; 0: it has no memory of its own. */
static node leaf_of(const qn_tape *tape, uint32_t slot)
{
    const tape_slot *s = &tape->slots[slot];
    if (s->variable) return s->home_leaf;
    return graph_get(tape->graph, s->node)->code == GRAPH_LEAF ? s->node : 0;
}

/* Nodes made from a leaf come after it. */
static bool may_be_used(const graph *g, node leaf)
{
    for (int n = (int)leaf + 1; n < g->node_count; n++)
        if (graph_get(g, (node)n)->code != GRAPH_LEAF) return true;
    return false;
}

/* A leaf that nothing was made from keeps its identity: a loop of writes and replays makes no nodes. */
static void was_written(qn_tape *tape, uint32_t slot, node leaf)
{
    const tape_slot *s = &tape->slots[slot];
    if (s->variable && s->node != leaf)
        tape_assigned(tape, slot); /* the assignment that was pending is overwritten */
    else if (may_be_used(tape->graph, leaf))
        tape_overwritten(tape, leaf);
}

qn_status qn_tensor_write(qn_tensor t, const void *host, size_t size_bytes, qn_error *error)
{
    HEAP_ENTER(error);
    QN_TRY(enter(t, "qn_tensor_write", error));
    qn_tape *tape = t.tape;
    node leaf = leaf_of(tape, t.slot);
    if (!leaf)
        return error_set(error, QN_BAD_CALL,
                         "qn_tensor_write: the tensor is computed and has no memory of its own to write; make it with "
                         "qn_empty, qn_from_memory or qn_variable");
    const graph_node *n = graph_get(tape->graph, leaf);
    const placed where = *tape_placed(tape, leaf);
    if (size_bytes != (size_t)(shape_count(&n->shape) * dtypes[n->elem].size_bytes))
        return wrong_size(n, "qn_tensor_write", size_bytes, error);
    if (!host && size_bytes) return error_set(error, QN_BAD_CALL, "qn_tensor_write: %zu bytes at NULL", size_bytes);
    realize_open(tape);
    const device_slot *s = &tape->context->slots[tape->realizer->slot];
    int64_t size = dtypes[n->elem].size_bytes, low;
    if (!size_bytes) return QN_OK;
    if (strides_are_row_major(n->shape.rank, n->shape.extents, where.strides)) {
        QN_TRY(tape_storage_write(tape, where.storage, where.offset * size, host, (int64_t)size_bytes, error));
    } else if (!s->driver->memory) {
        walk(n, &where, 0, storage_data(where.storage) + where.offset * size, (char *)host, false);
    } else { /* what lies between the elements stays as it is */
        int64_t span = reach(n, &where, &low);
        char *aside = malloc((size_t)(span * size)), *at = storage_data(where.storage) + low * size;
        if (!aside) return error_set(error, QN_NO_MEMORY, "no memory to write a tensor of %zu bytes", size_bytes);
        qn_status status = s->driver->memory->read(s->device, NULL, aside, at, (size_t)(span * size), error);
        if (status == QN_OK) walk(n, &where, 0, aside + (where.offset - low) * size, (char *)host, false);
        if (status == QN_OK)
            status = s->driver->memory->write(s->device, NULL, at, aside, (size_t)(span * size), error);
        heap_free(aside);
        QN_TRY(status);
    }
    was_written(tape, t.slot, leaf);
    return QN_OK;
}
