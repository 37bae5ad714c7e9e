/*
 * Compiling a variant. In: an instance and the facts of a launch. Out: a loaded program. The IR is cloned, goes through
 * the pipeline with the facts in its parameters, becomes text, and the text becomes a binary through the cache. A
 * driver without text (ref) loads the IR as it was lowered, so that the truth does not depend on any pass. The
 * context's lock is not held: any number of threads compile at once. SPDX-License-Identifier: MIT
 */
#include "base/record.h"
#include "emit/cuda/emit.h"
#include "run/compile/cache.h"
#include "run/workbench/dump.h"
#include "run/compile/edited.h"
#include "passes/passes.h"

#include <stdlib.h>
#include <string.h>

struct cache *context_cache(qn_context *context)
{
    if (!context->cache) context->cache = cache_open(context->cache_folder, context->no_cache);
    return context->cache;
}

typedef struct assembly {
    const device_slot *slot;
    const char *source;
    int64_t time_ns;
} assembly;

static qn_status assemble(void *context, const char *path, qn_error *error)
{
    assembly *a = context;
    int64_t start = clock_now_ns();
    qn_status status = a->slot->driver->assemble(a->slot->device, a->source, path, error);
    a->time_ns = clock_now_ns() - start;
    return status;
}

/* Lines that are comments make no other binary: where in the user's program an op was asked for, for one. */
static void add_code(text *key, const char *source)
{
    for (const char *line = source, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        const char *first = line + strspn(line, " ");
        const char *close = first[0] == '/' && first[1] == '*' ? strstr(first, "*/") : NULL;
        bool comment = close && close + 2 == end;
        end += *end == '\n';
        if (!comment) text_add_bytes(key, line, (size_t)(end - line));
    }
}

typedef struct emission {
    const device_slot *slot;
    const tile_kernel *kernel;
    text *source;
    struct cuda_layout **layout;
} emission;

static qn_status emit(void *context, qn_error *error)
{
    const emission *e = context;
    return e->slot->driver->emit(e->slot->device, e->kernel, e->source, e->layout, error);
}

typedef struct transformation {
    const instance *from;
    const tile_facts *facts;
    variant *to;
    dump *dump;
    int slot;
} transformation;

static qn_status transform(void *context, qn_error *error)
{
    const transformation *t = context;
    tile_kernel *k = t->to->kernel = tile_clone(t->from->kernel, t->to->memory);
    for (int i = 0; i < k->param_count; i++) k->params[i].facts = t->facts[i];
    k->knobs[KNOB_LIBRARY] = context_library(t->dump->context, t->slot, k->knobs[KNOB_LIBRARY]);
    dump_begin(t->dump, t->dump->context, k);
    if (k->raw_language) return QN_OK;
    QN_TRY(passes_run(k, NULL, t->dump->wanted ? dump_stage : NULL, t->dump, error));
    return edited_follow(t->dump->context, t->slot, k, error);
}

/* Text and binary of a kernel that went through the pipeline. */
static qn_status build(qn_context *context, int slot, variant *v, dump *d, char *path, size_t path_size,
                       struct cuda_layout **layout, qn_error *error)
{
    const device_slot *s = &context->slots[slot];
    text source = {0}, key = {0};
    CHECK(s->driver->emit);
    qn_status status = heap_try(emit, &(emission){s, v->kernel, &source, layout}, error);
    if (status == QN_OK) {
        text_print(&key, "device %s, ABI %d\n", s->driver->name, CPU_ABI_VERSION);
        if (s->driver->tool) s->driver->tool(s->device, &key);
        text_add(&key, "\n");
        if (v->kernel->raw_language)
            text_add_bytes(&key, text_get(&source), source.length); /* whose lines are the user's */
        else
            add_code(&key, text_get(&source));
        context_log(context, LOG_CODE, "code: %s for %s\n%s", v->kernel->name, s->driver->name, text_get(&source));
        assembly work = {.slot = s, .source = text_get(&source)};
        int64_t from = record_begin();
        status = cache_get(context->cache, v->kernel->name, text_get(&key), key.length, assemble, &work, path,
                           path_size, &v->from_cache, error);
        if (from)
            record_end(from, v->from_cache ? RECORD_CACHE : RECORD_COMPILE, record_name(v->kernel->name), NULL, 0,
                       v->from_cache, slot);
        dump_end(d, slot, v->kernel->name, text_get(&source), source.length, status == QN_OK ? path : NULL);
        if (status == QN_OK) {
            _Atomic int64_t *counter = v->from_cache ? &context->cache_hits : &context->compiles;
            ++*counter;
            context_log(context, LOG_CACHE, "cache: %s %s", v->from_cache ? "found" : "made", path);
        }
    }
    text_free(&source);
    text_free(&key);
    return status;
}

static qn_status compile(qn_context *context, int slot, const instance *from, const tile_facts *facts, variant *v,
                         dump *d, qn_error *error)
{
    const device_slot *s = &context->slots[slot];
    char path[4096];
    struct cuda_layout *layout = NULL;
    int64_t start = clock_now_ns();
    if (s->driver->emit) {
        d->context = context;
        QN_TRY(heap_try(transform, &(transformation){from, facts, v, d, slot}, error));
        qn_status built = build(context, slot, v, d, path, sizeof(path), &layout, error);
        if (built != QN_OK) {
            cuda_layout_free(layout);
            return built;
        }
    } else {
        v->kernel = from->kernel;
    }
    int64_t loading = clock_now_ns();
    if (!v->from_cache) v->compile_ns = loading - start;
    qn_status status = s->driver->load(s->device, v->kernel, s->driver->emit ? path : NULL, layout, &v->program, error);
    if (status && s->driver->emit && (v->from_cache || cache_lost(path))) {
        status = build(context, slot, v, d, path, sizeof(path), NULL, error);
        if (status == QN_OK) status = s->driver->load(s->device, v->kernel, path, layout, &v->program, error);
    }
    if (status != QN_OK) cuda_layout_free(layout);
    QN_TRY(status);
    if (s->driver->emit) v->binary_path = arena_copy_text(v->memory, path, strlen(path));
    v->load_ns = clock_now_ns() - (v->from_cache ? start : loading);
    return QN_OK;
}

qn_status variant_compile(qn_context *context, int slot, const instance *from, const tile_facts *facts, variant **out,
                          qn_error *error)
{
    variant *v = calloc(1, sizeof(*v));
    if (!v) return error_set(error, QN_NO_MEMORY, "no memory for a variant");
    v->memory = arena_new();
    dump d = {0};
    qn_status status = compile(context, slot, from, facts, v, &d, error);
    dump_free(&d);
    if (status == QN_OK) {
        context_log(context, LOG_COMPILE, "compile: %s for %s, %s%.1f ms", v->kernel->name,
                    context->slots[slot].driver->name, v->from_cache ? "from the cache in " : "",
                    (double)(v->compile_ns + v->load_ns) * 1e-6);
        *out = v;
    } else {
        arena_free(v->memory);
        heap_free(v);
    }
    return status;
}
