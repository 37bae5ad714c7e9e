/*
 * Many kernels on `emu` with few runs of the compiler: calls are bound and their text is emitted one by one, then many
 * texts are compiled as one, each in a namespace, on all cores.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_BATCH_H
#define QUERN_TESTS_BATCH_H

#include "emit/cuda/emit.h"
#include "run/run.h"
#include "test.h"
#include "passes/passes.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { BATCH_TEXTS = 12, BATCH_VARIANTS = MAX_VARIANTS };

typedef struct batch_kernel { /* a variant */
    arena *memory;
    const instance *instance;
    tile_kernel *kernel;
    text source;
    int unit;                   /* the file it went to */
    struct cuda_layout *layout; /* the program's once there is one */
    program *program;
} batch_kernel;

typedef struct batch {
    qn_context *context;
    int slot;
    char folder[64];
    batch_kernel **kernels;
    int count, capacity;
    int unit_count, next_unit;
    char *failures[512]; /* of units: what the compiler said, or NULL */
    pthread_mutex_t lock;
} batch;

static inline bool batch_open(batch *b, qn_context *context)
{
    qn_error error;
    *b = (batch){.context = context};
    snprintf(b->folder, sizeof(b->folder), "/tmp/quern-batch-XXXXXX");
    pthread_mutex_init(&b->lock, NULL);
    return mkdtemp(b->folder) && context_slot(context, "emu", &b->slot, &error) == QN_OK;
}

/* From now on text is compiled in the checked mode, or not; before anything is added. */
static inline void batch_check(batch *b, bool checked)
{
    const device_slot *s = &b->context->slots[b->slot];
    s->driver->set_checked(s->device, checked);
}

static inline bool batch_same_facts(const tile_kernel *k, const tile_facts *facts)
{
    for (int i = 0; i < k->param_count; i++)
        if (memcmp(&k->params[i].facts, &facts[i], sizeof(facts[i]))) return false;
    return true;
}

/* The variant for a call that is bound for emu; emitted now if it is new. NULL: the error says why. */
static inline batch_kernel *batch_add(batch *b, qn_call *call, qn_error *error)
{
    const device_slot *s = &b->context->slots[b->slot];
    tile_facts facts[MAX_PARAMS];
    memset(facts, 0, sizeof(facts));
    launch_facts(call, facts);
    int variants = 0;
    for (int i = 0; i < b->count; i++) {
        if (b->kernels[i]->instance != call->instance) continue;
        if (batch_same_facts(b->kernels[i]->kernel, facts)) return b->kernels[i];
        if (++variants == BATCH_VARIANTS) return b->kernels[i]; /* which assumes nothing */
    }
    for (int i = 0; i < MAX_PARAMS && variants == BATCH_VARIANTS - 1; i++) facts[i] = (tile_facts){.size_class = -1};
    batch_kernel *k = calloc(1, sizeof(*k));
    k->memory = arena_new();
    k->instance = call->instance;
    k->kernel = tile_clone(call->instance->kernel, k->memory);
    k->kernel->name = arena_print(k->memory, "%s_v%d", k->kernel->name, b->count);
    for (int i = 0; i < k->kernel->param_count; i++)
        memcpy(&k->kernel->params[i].facts, &facts[i], sizeof(facts[i])); /* with its padding: they are compared so */
    if (passes_run(k->kernel, NULL, NULL, NULL, error) != QN_OK ||
        s->driver->emit(s->device, k->kernel, &k->source, &k->layout, error) != QN_OK) {
        text_free(&k->source);
        arena_free(k->memory);
        free(k);
        return NULL;
    }
    if (b->count == b->capacity) {
        b->capacity = b->capacity ? 2 * b->capacity : 64;
        b->kernels = realloc(b->kernels, sizeof(*b->kernels) * (size_t)b->capacity);
    }
    k->unit = b->count / BATCH_TEXTS;
    b->kernels[b->count++] = k;
    return k;
}

static inline void batch_path(const batch *b, int unit, char *path, size_t size)
{
    snprintf(path, size, "%s/%d.so", b->folder, unit);
}

static inline void *batch_work(void *context)
{
    batch *b = context;
    const device_slot *s = &b->context->slots[b->slot];
    for (;;) {
        pthread_mutex_lock(&b->lock);
        int unit = b->next_unit++;
        pthread_mutex_unlock(&b->lock);
        if (unit >= b->unit_count) return NULL;
        text all = {0};
        for (int i = unit * BATCH_TEXTS; i < b->count && i < (unit + 1) * BATCH_TEXTS; i++)
            text_print(&all, "namespace unit%d {\n%s\n}\n", i, text_get(&b->kernels[i]->source));
        char path[128];
        batch_path(b, unit, path, sizeof(path));
        qn_error error;
        if (s->driver->assemble(s->device, text_get(&all), path, &error) != QN_OK)
            b->failures[unit] = strdup(error.message);
        text_free(&all);
    }
}

/* Compiles and loads everything that was added. */
static inline bool batch_build(batch *b)
{
    const device_slot *s = &b->context->slots[b->slot];
    pthread_t threads[64];
    int count = MINIMUM(cpu_count(), 64);
    b->next_unit = 0;
    b->unit_count = (b->count + BATCH_TEXTS - 1) / BATCH_TEXTS;
    CHECK(b->unit_count <= COUNT(b->failures));
    for (int i = 0; i < count; i++) CHECK(!pthread_create(&threads[i], NULL, batch_work, b));
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    bool good = true;
    for (int i = 0; i < b->unit_count; i++) {
        if (!b->failures[i]) continue;
        printf("%s\n", b->failures[i]);
        good = false;
        free(b->failures[i]);
        b->failures[i] = NULL;
        for (int k = i * BATCH_TEXTS; k < b->count && k < (i + 1) * BATCH_TEXTS; k++) b->kernels[k]->unit = -1;
    }
    for (int i = 0; i < b->count; i++) {
        char path[128];
        qn_error error;
        batch_kernel *k = b->kernels[i];
        if (k->unit < 0) continue;
        batch_path(b, k->unit, path, sizeof(path));
        if (s->driver->load(s->device, k->kernel, path, k->layout, &k->program, &error) == QN_OK) continue;
        printf("%s\n", error.message);
        good = false;
    }
    return good;
}

/* What an output holds before the first program, where the kernel says so. Outputs are row-major here. */
static inline void batch_fill(const tile_kernel *k, qn_call *call)
{
    for (int i = 0; i < k->param_count; i++) {
        const tile_param *p = &k->params[i];
        if (!p->has_initial || p->kind != PARAM_OUT) continue;
        int64_t count = 1;
        for (int axis = 0; axis < p->rank; axis++) count *= call->views[i].extents[axis];
        for (int64_t n = 0; n < count; n++)
            element_write(p->elem, (char *)call->views[i].data + n * dtypes[p->elem].size_bytes, p->initial);
    }
}

static inline qn_status batch_launch(batch *b, batch_kernel *k, qn_call *call, qn_error *error)
{
    if (!k->program) return error_set(error, QN_FAILED, "it was not compiled");
    batch_fill(k->kernel, call);
    qn_status status = b->context->slots[b->slot].driver->launch(k->program, call->views, &call->plan, NULL, error);
    call->has_run = true;
    return status;
}

/* Everything that was added is gone; the batch may be filled again. */
static inline void batch_clear(batch *b)
{
    const device_slot *s = &b->context->slots[b->slot];
    for (int i = 0; i < b->count; i++) {
        batch_kernel *k = b->kernels[i];
        if (k->program)
            s->driver->unload(k->program);
        else
            cuda_layout_free(k->layout);
        text_free(&k->source);
        arena_free(k->memory);
        free(k);
    }
    for (int i = 0; i < b->unit_count; i++) {
        char path[128];
        batch_path(b, i, path, sizeof(path));
        remove(path);
    }
    b->count = b->unit_count = 0;
}

static inline void batch_close(batch *b)
{
    batch_clear(b);
    remove(b->folder);
    free(b->kernels);
    pthread_mutex_destroy(&b->lock);
}

#endif
