/*
 * The arrays of one point. All variants work on the same memory, matched by name, so that they see the same numbers at
 * the same addresses and a comparison of two variants is a comparison of one array with another.
 * SPDX-License-Identifier: MIT
 */
#include "profile/bench/bench.h"

#include <string.h>

static bench_array *find(const bench_arrays *a, const char *name)
{
    for (int i = 0; i < a->count; i++)
        if (!strcmp(a->items[i].name, name)) return (bench_array *)&a->items[i];
    return NULL;
}

static void shape_print(dtype elem, int rank, const int64_t *extents, text *out)
{
    text_add(out, dtypes[elem].text);
    for (int i = 0; i < rank; i++) text_print(out, "[%lld]", (long long)extents[i]);
}

bool arrays_add(bench_arrays *a, const qn_call *call, char *why, size_t why_size)
{
    const tile_kernel *k = call->instance->kernel;
    for (int i = 0; i < k->param_count; i++) {
        const tile_param *p = &k->params[i];
        const array_view *v = &call->views[i];
        if (p->kind != PARAM_IN && p->kind != PARAM_OUT && p->kind != PARAM_INOUT) continue;
        bench_array *known = find(a, p->name);
        if (known && (known->elem != v->elem || known->rank != v->rank ||
                      memcmp(known->extents, v->extents, sizeof(int64_t) * (size_t)v->rank) != 0)) {
            text words = {0};
            text_print(&words, "array `%s` is ", p->name);
            shape_print(v->elem, v->rank, v->extents, &words);
            text_add(&words, " here and ");
            shape_print(known->elem, known->rank, known->extents, &words);
            text_add(&words, " in the reference");
            snprintf(why, why_size, "%s", text_get(&words));
            text_free(&words);
            return false;
        }
        if (!known) {
            CHECK(a->count < COUNT(a->items));
            known = &a->items[a->count++];
            *known = (bench_array){.name = p->name, .elem = v->elem, .rank = v->rank, .count = 1};
            for (int axis = 0; axis < v->rank; axis++) {
                known->extents[axis] = v->extents[axis];
                known->count *= v->extents[axis];
            }
            known->size_bytes = (size_t)known->count * (size_t)dtypes[v->elem].size_bytes;
        }
        known->reads |= p->kind != PARAM_OUT;
        known->writes |= p->kind != PARAM_IN;
    }
    return true;
}

static void *allocate(size_t size_bytes, qn_error *error)
{
    void *memory = memory_allocate(size_bytes + 64);
    if (!memory) error_set(error, QN_NO_MEMORY, "no memory for an array of %.1f MB", (double)size_bytes * 1e-6);
    return memory;
}

void *array_copy(const bench_array *array, int copy)
{
    if (array->device) return array->device + (size_t)copy * array->stride_bytes;
    return copy ? array->others + (size_t)(copy - 1) * array->stride_bytes : array->first;
}

/* Copies lie 64 bytes further apart than they must, so that they do not all begin in the same cache set. */
qn_status arrays_allocate(bench_arrays *a, int copies, qn_error *error)
{
    for (int i = 0; i < a->count; i++) {
        bench_array *array = &a->items[i];
        if (!array->first && !(array->first = allocate(array->size_bytes, error))) return QN_NO_MEMORY;
        array->stride_bytes = ((array->size_bytes + 63) & ~(size_t)63) + 64;
        if (copies > 1 && !array->others &&
            !(array->others = allocate(array->stride_bytes * (size_t)(copies - 1), error)))
            return QN_NO_MEMORY;
        if (array->writes && !array->expected && !(array->expected = allocate(array->size_bytes, error)))
            return QN_NO_MEMORY;
        if (array->writes && array->reads && !array->before && !(array->before = allocate(array->size_bytes, error)))
            return QN_NO_MEMORY;
    }
    a->copy_count = copies;
    return QN_OK;
}

static const ast *generator_of(const ast *block, const char *name)
{
    const ast *clause = clause_of(block, "input");
    for (int i = 0; clause && i < clause->list.count; i++)
        if (!strcmp(clause->list.items[i]->name, name)) return clause->list.items[i]->left;
    return NULL;
}

/* Are all elements drawn alike? Then a large array may repeat a part of itself. */
static bool is_random(const ast *generator)
{
    return !generator ||
           (generator->name && (!strcmp(generator->name, "normal") || !strcmp(generator->name, "uniform")));
}

/* For a GPU: the first part is generated, the rest repeats it, since the host would take seconds for a billion. */
static qn_status fill_array(bench *b, const bench_array *array, const ast *generator, const bindings *known,
                            qn_error *error)
{
    enum { PART = (1 << 22) + 1021 }; /* not a multiple of any block: its copies meet programs differently */
    array_view view = view_row_major(array->first, array->elem, array->rank, array->extents);
    bool repeats = b->context->slots[b->slot].driver->memory && array->count > 2 * PART && is_random(generator) &&
                   dtype_is_float(array->elem);
    if (repeats) {
        view.rank = 1;
        view.extents[0] = PART;
        view.strides[0] = 1;
    }
    QN_TRY(input_fill(b->module->file, generator, known, slot_about(b->context, b->slot)->units, array->name,
                      b->options->seed, &view, error));
    size_t part = (size_t)PART * (size_t)dtypes[array->elem].size_bytes;
    for (size_t done = part; repeats && done < array->size_bytes; done += part)
        memcpy((char *)array->first + done, array->first, MINIMUM(part, array->size_bytes - done));
    return QN_OK;
}

qn_status arrays_fill(bench *b, bench_arrays *a, const qn_call *call, qn_error *error)
{
    arena *memory = arena_new();
    bindings known = {0};
    qn_status status = QN_OK;
    call_known(call, memory, &known);
    for (int i = 0; i < a->count && status == QN_OK; i++) {
        bench_array *array = &a->items[i];
        if (!array->reads) continue;
        status = fill_array(b, array, generator_of(b->block, array->name), &known, error);
        if (status != QN_OK) break;
        for (int copy = 1; copy < a->copy_count; copy++)
            memcpy(array_copy(array, copy), array->first, array->size_bytes);
        if (array->before) memcpy(array->before, array->first, array->size_bytes);
    }
    arena_free(memory);
    return status;
}

void arrays_reset(bench_arrays *a)
{
    for (int i = 0; i < a->count; i++) {
        bench_array *array = &a->items[i];
        if (!array->writes) continue;
        if (array->before)
            memcpy(array->first, array->before, array->size_bytes);
        else
            memset(array->first, UNWRITTEN, array->size_bytes);
    }
}

qn_status arrays_attach(const bench_arrays *a, qn_call *call, int copy, qn_error *error)
{
    const kernel_entry *entry = call->kernel;
    for (int i = 0; i < entry->param_count; i++) {
        const parameter *p = &entry->params[i];
        const bench_array *array = p->rank >= 0 ? find(a, p->name) : NULL;
        if (!array) continue;
        QN_TRY(qn_call_set_memory(call, p->name, array_copy(array, copy), (qn_dtype)array->elem, array->rank,
                                  array->extents, NULL, error));
    }
    return QN_OK;
}

qn_status arrays_upload(bench_arrays *a, const device_slot *slot, int copies, qn_error *error)
{
    const driver_memory *memory = slot->driver->memory;
    a->slot = slot;
    a->copy_count = copies;
    for (int i = 0; i < a->count; i++) {
        bench_array *array = &a->items[i];
        void *data = NULL;
        array->stride_bytes = (array->size_bytes + 1023) / 512 * 512;
        QN_TRY(memory->allocate(slot->device, array->stride_bytes * (size_t)copies, &data, error));
        array->device = data;
        for (int copy = 0; copy < copies && array->reads; copy++)
            QN_TRY(memory->write(slot->device, NULL, array_copy(array, copy), array->first, array->size_bytes, error));
    }
    return memory->settle(slot->device, error);
}

void arrays_free(bench_arrays *a)
{
    for (int i = 0; i < a->count; i++) {
        if (a->items[i].device) a->slot->driver->memory->release(a->slot->device, a->items[i].device);
        memory_free(a->items[i].first);
        memory_free(a->items[i].others);
        memory_free(a->items[i].before);
        memory_free(a->items[i].expected);
    }
    *a = (bench_arrays){0};
}
