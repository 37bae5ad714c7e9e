/*
 * Binding a call. In: settings and arrays as the caller gave them. Out: the instance (constants and types fixed,
 * lowered once and kept), the launch plan that the kernel's head computes, and complete views of every array: the
 * caller's, and for outputs and scratch that were not given memory of the call, kept and reused from run to run.
 * Nothing is compiled here. Every mistake of the caller ends as an E5xx text.
 * SPDX-License-Identifier: MIT
 */
#include "base/record.h"
#include "emit/raw/raw.h"
#include "run/module/function.h"
#include "run/compile/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_array(const tile_param *p)
{
    return p->kind < PARAM_SCALAR;
}

/* "T=f32 BLOCK=1024 act=relu": what makes one instance differ from another. */
static void key_print(const bindings *constants, text *out)
{
    for (int i = 0; i < constants->count; i++) {
        const binding *b = &constants->items[i];
        if (!strncmp(b->name, "number ", 7)) continue; /* a float of a tensor function: no shape depends on it */
        text_print(out, "%s%s=", i ? " " : "", b->name);
        switch (b->kind) {
        case BIND_TYPE: text_add(out, dtypes[b->type].text); break;
        case BIND_FUNCTION: text_add(out, b->function); break;
        case BIND_FLOAT: text_add_double(out, b->number.f); break;
        case BIND_BOOL: text_add(out, b->number.i ? "true" : "false"); break;
        case BIND_INT: text_print(out, "%lld", (long long)b->number.i); break;
        }
    }
}

/* Knobs are settings that no constant of the language is; a blank in their names keeps them apart. */
static const char *const knobs[KNOB_COUNT] = {"knob warps", "knob group",  "knob stages", "knob cluster",
                                              "knob turns", "knob blocks", "knob library", "knob tile"};

static void add_knobs(arena *memory, const bindings *settings, bindings *constants)
{
    for (int i = 0; i < KNOB_COUNT; i++) {
        const binding *b = bindings_find(settings, tile_knobs[i]);
        if (!b || b->kind != BIND_INT || bindings_find(constants, tile_knobs[i])) continue;
        binding knob = *b;
        knob.name = knobs[i];
        bindings_set(memory, constants, knob);
    }
}

static int knob_of(const bindings *constants, int number)
{
    const binding *b = bindings_find(constants, knobs[number]);
    return b && b->number.i > 0 && b->number.i < 1 << 20 ? (int)b->number.i : 0;
}

typedef struct lowering {
    kernel_entry *entry;
    const bindings *constants;
    const char *key;
    instance *made;
} lowering;

static qn_status lower(void *context, qn_error *error)
{
    const lowering *l = context;
    kernel_entry *entry = l->entry;
    const bindings *constants = l->constants;
    instance *i = l->made;
    i->key = arena_copy_text(i->memory, l->key, strlen(l->key));
    for (int k = 0; k < constants->count; k++) {
        binding b = constants->items[k];
        b.name = arena_copy_text(i->memory, b.name, strlen(b.name));
        if (b.kind == BIND_FUNCTION) b.function = arena_copy_text(i->memory, b.function, strlen(b.function));
        if (!strchr(b.name, ' ')) bindings_set(i->memory, &i->constants, b);
    }
    if (entry->dump) {
        i->kernel = entry->dump;
    } else {
        diagnostics d = {.memory = i->memory};
        bool good = entry->item->kind == AST_TENSOR
                        ? function_signature(entry, i, constants, &d)
                        : lang_lower(entry->module->file, entry->item, &i->constants, i->memory, &d, &i->kernel);
        if (d.count) diagnostics_print(&d, entry->module->file, false, &i->warnings);
        if (!good && heap_is_short()) return heap_refuse(error); /* what could not be lowered may have had no memory */
        if (!good) { /* a tensor function is traced with the caller's shapes: what does not fit is the caller's */
            bool call = entry->item->kind == AST_TENSOR && d.count && d.items[0].code / 100 == 5;
            return diagnostics_error(&d, entry->module->file, call ? QN_BAD_CALL : QN_BAD_SOURCE, error);
        }
        CHECK(i->kernel);
        for (int k = 0; k < KNOB_COUNT; k++) i->kernel->knobs[k] = knob_of(constants, k);
        if (i->kernel->param_count > MAX_PARAMS && entry->item->kind != AST_TENSOR) {
            place nowhere = {0};
            return entry_error(entry, QN_BAD_SOURCE, E105, nowhere, "split it", error,
                               "kernel `%s` has more than %d parameters and extents", entry->name, MAX_PARAMS);
        }
    }
    i->uses = ARENA_ARRAY(i->memory, uint8_t, i->kernel->param_count + 1);
    extent_uses(i->kernel, i->uses);
    return QN_OK;
}

static qn_status instance_make(kernel_entry *entry, const bindings *constants, const char *key, instance **out,
                               qn_error *error)
{
    instance *i = calloc(1, sizeof(*i));
    if (!i) return error_set(error, QN_NO_MEMORY, "no memory for an instance");
    i->memory = arena_new();
    qn_status status = heap_try(lower, &(lowering){entry, constants, key, i}, error);
    if (status)
        instance_free(i, entry->module->context);
    else
        *out = i;
    return status;
}

qn_status entry_instance(kernel_entry *entry, const bindings *constants, instance **out, qn_error *error)
{
    qn_context *context = entry->module->context;
    text key = {0};
    key_print(constants, &key);
    lock_take(&context->lock);
    instance *i = entry->instances;
    while (i && strcmp(i->key, text_get(&key))) i = i->next;
    qn_status status = QN_OK;
    if (!i) {
        int64_t start = clock_now_ns();
        status = instance_make(entry, constants, text_get(&key), &i, error);
        if (!status) {
            CHECK(i);
            i->owner = entry;
            i->next = entry->instances;
            entry->instances = i;
            context_log(context, LOG_COMPILE, "compile: %s lowered for %s in %.3f ms", entry->name,
                        *i->key ? i->key : "no constants", (double)(clock_now_ns() - start) * 1e-6);
        }
    }
    lock_give(&context->lock);
    text_free(&key);
    *out = i;
    return status;
}

static bool present(const argument *a)
{
    return a->given || a->generated;
}

static qn_status check_present(const qn_call *call, qn_error *error)
{
    for (int i = 0; i < call->kernel->param_count; i++) {
        const parameter *p = &call->kernel->params[i];
        if ((p->kind != PARAM_IN && p->kind != PARAM_INOUT) || present(&call->arguments[i])) continue;
        return entry_error(call->kernel, QN_BAD_CALL, E505, p->at, "set it before the run", error,
                           "array `%s` of kernel `%s` is not given", p->name, call->kernel->name);
    }
    return QN_OK;
}

qn_status call_constants(const qn_call *call, const bindings *settings, int units, arena *memory, bindings *constants,
                         bindings *extents, qn_error *error)
{
    const kernel_entry *e = call->kernel;
    given_array *arrays = ARENA_ARRAY(memory, given_array, e->param_count + 1);
    lang_given given = {.settings = *settings, .arrays = arrays, .units = units};
    for (int i = 0; i < e->param_count; i++) {
        const argument *a = &call->arguments[i];
        if (e->params[i].rank < 0 || !present(a)) continue;
        given_array *g = &arrays[given.array_count++];
        *g = (given_array){.name = e->params[i].name, .elem = a->view.elem, .rank = a->view.rank, .has_extents = true};
        memcpy(g->extents, a->view.extents, sizeof(g->extents));
    }
    diagnostics d = {.memory = memory};
    if (lang_instantiate(e->module->file, e->item, &given, &d, memory, constants, extents) && !d.errors) return QN_OK;
    return diagnostics_error(&d, e->module->file, QN_BAD_CALL, error);
}

static int units_of(const qn_call *call, int slot)
{
    return call->assumed_units ? call->assumed_units : slot_about(call->context, slot)->units;
}

qn_status call_instance(qn_call *call, int slot, instance **out, qn_error *error)
{
    kernel_entry *e = call->kernel;
    int units = units_of(call, slot);
    bindings constants = {0}, extents = {0};
    if (e->dump) return entry_instance(e, &constants, out, error);
    arena *memory = arena_new();
    qn_status status = call_constants(call, &call->settings, units, memory, &constants, &extents, error);
    bool done = false;
    if (status == QN_OK && !call->context->no_tune && tune_knows(call->context, e->name)) {
        /* Constants that the caller leaves open are as the fastest recorded configuration has them. */
        bindings settings = {0}, tuned = {0}, same = {0};
        done = tune_settings(call, slot, &constants, &extents, memory, &settings) &&
               call_constants(call, &settings, units, memory, &tuned, &same, NULL) == QN_OK;
        if (done) add_knobs(memory, &settings, &tuned);
        if (done && call_is_function(call)) function_key(call, memory, &extents, &tuned);
        done = done && entry_instance(e, &tuned, out, NULL) == QN_OK;
    }
    if (status == QN_OK && !done) add_knobs(memory, &call->settings, &constants);
    if (status == QN_OK && !done && call_is_function(call)) function_key(call, memory, &extents, &constants);
    if (status == QN_OK && !done) status = entry_instance(e, &constants, out, error);
    arena_free(memory);
    return status;
}

/* The caller's number as the parameter's type. */
static qn_status scalar_number(const qn_call *call, const tile_param *p, const binding *b, number *out, qn_error *error)
{
    bool is_float = b->kind == BIND_FLOAT;
    number n = b->number;
    if (dtype_is_float(p->elem)) {
        if (!is_float) n.f = (double)n.i;
        n.f = round_to_dtype(p->elem, n.f);
    } else if (is_float) {
        if (n.f != floor(n.f) || fabs(n.f) > 9e15)
            return entry_error(call->kernel, QN_BAD_CALL, E505, (place){.line = p->line, .column = p->column},
                               "give a whole number", error, "`%s` is %s here, and %g is not", p->name,
                               dtypes[p->elem].text, n.f);
        n.i = (int64_t)n.f;
    }
    *out = n;
    return QN_OK;
}

void argument_free_owned(argument *a)
{
    if (a->owned)
        record_instant(RECORD_FREE, record_host_memory, (int64_t)a->owned_bytes, (int64_t)(uintptr_t)a->owned);
    memory_free(a->owned);
    a->owned = NULL;
    a->owned_bytes = 0;
}

/* Memory of the call for an array that the caller did not give. */
qn_status call_allocate(qn_call *call, int declared, array_view *v, qn_error *error)
{
    argument *a = &call->arguments[declared];
    const char *name = call->kernel->params[declared].name;
    int64_t count = 1, bytes;
    bool fits = true;
    for (int i = v->rank - 1; i >= 0; i--) {
        v->strides[i] = count;
        fits &= v->extents[i] >= 0 && !__builtin_mul_overflow(count, MAXIMUM(v->extents[i], 1), &count);
    }
    for (int i = 0; i < v->rank; i++)
        if (v->extents[i] == 0) count = 0;
    fits &= !__builtin_mul_overflow(count, (int64_t)dtypes[v->elem].size_bytes, &bytes) && bytes < (int64_t)1 << 50;
    if (fits && (size_t)bytes + 1 > a->owned_bytes) {
        argument_free_owned(a);
        a->owned = memory_allocate((size_t)bytes + 1); /* never empty: an array always has an address */
        a->owned_bytes = a->owned ? (size_t)bytes + 1 : 0;
        if (a->owned) memset(a->owned, 0, a->owned_bytes); /* what no program writes is 0, not what lay there before */
        if (a->owned) record_instant(RECORD_ALLOCATE, record_host_memory, bytes + 1, (int64_t)(uintptr_t)a->owned);
    }
    if (!fits || !a->owned) {
        text shape = {0};
        for (int i = 0; i < v->rank; i++) text_print(&shape, "[%lld]", (long long)v->extents[i]);
        error_set(error, QN_NO_MEMORY, "no memory for array `%s` of shape %s and type %s", name, text_get(&shape),
                  dtypes[v->elem].text);
        text_free(&shape);
        return QN_NO_MEMORY;
    }
    v->data = a->owned;
    a->view = *v;
    return QN_OK;
}

/* Two indices for one element, as in an expanded view: which of what is written stays is anybody's guess. Strides that interleave
 * in other ways are taken as they are. */
static bool view_repeats(const array_view *v)
{
    bool repeats = false;
    for (int i = 0; i < v->rank; i++) {
        if (v->extents[i] == 0) return false;
        if (v->extents[i] == 1) continue;
        repeats |= v->strides[i] == 0;
        for (int j = 0; j < i; j++)
            repeats |= v->extents[j] > 1 && (v->strides[i] == v->strides[j] || v->strides[i] == -v->strides[j]);
    }
    return repeats;
}

static qn_status check_overlap(const qn_call *call, const tile_kernel *k, qn_error *error)
{
    for (int i = 0; i < k->param_count; i++) {
        const tile_param *p = &k->params[i];
        if (!is_array(p) || p->kind == PARAM_IN || !call->arguments[call->declared[i]].given) continue;
        if (view_repeats(&call->views[i]))
            return entry_error(call->kernel, QN_BAD_CALL, E504, (place){.line = p->line, .column = p->column},
                               "give memory with a place for each element", error,
                               "array `%s` is written, and several of its indices are one element of memory", p->name);
    }
    for (int i = 0; i < k->param_count; i++)
        for (int j = i + 1; j < k->param_count && is_array(&k->params[i]); j++) {
            if (!is_array(&k->params[j])) continue;
            if (k->params[i].kind == PARAM_IN && k->params[j].kind == PARAM_IN) continue;
            if (!call->arguments[call->declared[i]].given || !call->arguments[call->declared[j]].given) continue;
            if (!views_overlap(&call->views[i], &call->views[j])) continue;
            place at = {.line = k->params[j].line, .column = k->params[j].column};
            bool inout = k->params[i].kind == PARAM_INOUT || k->params[j].kind == PARAM_INOUT;
            return entry_error(call->kernel, QN_BAD_CALL, E504, at,
                               inout ? "give separate memory" : "declare one `inout`, or give separate memory", error,
                               "arrays `%s` and `%s` overlap", k->params[i].name, k->params[j].name);
        }
    return QN_OK;
}

bool raw_runs_on(const char *language, const char *device)
{
    return target_runs_raw(target_find(device), language);
}

static qn_status head_error(const qn_call *call, const qn_error *inner, qn_error *error);

static qn_status check_raw(const qn_call *call, const tile_kernel *k, int slot, qn_error *error)
{
    const char *device = call->context->slots[slot].driver->name;
    bool cuda = strcmp(k->raw_language, "c") != 0;
    if (!raw_runs_on(k->raw_language, device))
        return error_set(error, QN_NO_DEVICE, "raw kernel `%s` is %s text and runs on the device%s, not on %s", k->name,
                         k->raw_language, cuda ? "s cuda and emu" : " cpu", device);
    cuda_shape shape;
    qn_error inner;
    if (cuda && raw_cuda_shape(k, &call->plan, NULL, &shape, &inner) != QN_OK) return head_error(call, &inner, error);
    if (!call->context->allow_raw && !call->kernel->module->is_trusted)
        return error_set(error, QN_BAD_CALL,
                         "raw kernel `%s` would run its text as it is written; allow raw kernels for files you trust",
                         k->name);
    if (!call->kernel->module->is_trusted) context_tell_raw(call->context, call->kernel->module->path);
    for (int i = 0; i < k->param_count; i++) {
        if (!is_array(&k->params[i]) || view_is_row_major(&call->views[i])) continue;
        place at = {.line = k->params[i].line, .column = k->params[i].column};
        return entry_error(call->kernel, QN_BAD_CALL, E501, at, "copy it to contiguous memory first", error,
                           "array `%s` of raw kernel `%s` is not contiguous", k->params[i].name, k->name);
    }
    return QN_OK;
}

/* The head's own words ("error E502: ...") as a diagnostic of this kernel. */
static qn_status head_error(const qn_call *call, const qn_error *inner, qn_error *error)
{
    static const struct {
        error_code code;
        const char *advice;
    } advices[] = {{E501, "reshape the view"},
                   {E502, "give arrays whose shapes agree"},
                   {E503, "call it with arguments for which this holds"},
                   {E505, "set it by name, such as n = 1000"},
                   {E506, "use smaller blocks, or smaller tiles"}};
    const char *words = error_words(inner), *own = strchr(words, '\n'); /* it may have advice of its own */
    for (int i = 0; i < COUNT(advices); i++)
        if (inner->code == (int)advices[i].code)
            return entry_error(call->kernel, inner->status, advices[i].code,
                               (place){.line = inner->line, .column = inner->column},
                               own ? own + 1 + strspn(own + 1, " ") : advices[i].advice, error, "%.*s",
                               (int)strcspn(words, "\n"), words);
    return error_set(error, inner->status, "%s", inner->message);
}

static const char nothing[64]; /* the address of given arrays without elements; never read or written */

static void set_view(qn_call *call, int number, const array_view *v)
{
    call->views[number] = *v;
    if (!v->data) call->views[number].data = (void *)nothing;
}

void call_make_room(qn_call *call, int param_count)
{
    if (call->room && param_count <= call->room) return;
    call->room = MAXIMUM(param_count, 1); /* one without parameters has arrays, too */
    call->declared = ARENA_ARRAY(call->memory, int, call->room);
    call->views = ARENA_ARRAY(call->memory, array_view, call->room);
    call->plan = launch_plan_new(call->memory, call->room);
}

/* Which declared parameter each parameter of the kernel is. */
static void match(qn_call *call, const tile_kernel *k)
{
    call_make_room(call, k->param_count);
    for (int i = 0; i < k->param_count; i++) {
        int number;
        call->declared[i] = entry_param(call->kernel, k->params[i].name, &number) ? number : -1;
    }
}

static qn_status bind(qn_call *call, int slot, bool inputs_too, qn_error *error)
{
    if (!inputs_too) QN_TRY(check_present(call, error));
    int units = units_of(call, slot);
    instance *found = NULL;
    QN_TRY(call_instance(call, slot, &found, error));
    CHECK(found);
    const tile_kernel *k = found->kernel;
    match(call, k);

    enum { MOST = FUNCTION_PARAMS + FUNCTION_RESULTS + MAX_PARAMS }; /* and extents */
    CHECK(k->param_count <= MOST);
    bool given[MOST];
    number numbers[MOST];
    memset(given, 0, sizeof(given[0]) * (size_t)k->param_count);
    memset(numbers, 0, sizeof(numbers[0]) * (size_t)k->param_count);
    memset(call->views, 0, sizeof(call->views[0]) * (size_t)k->param_count);
    for (int i = 0; i < k->param_count; i++) {
        const tile_param *p = &k->params[i];
        if (is_array(p)) {
            const argument *a = call->declared[i] >= 0 ? &call->arguments[call->declared[i]] : NULL;
            CHECK(a);
            call->views[i] = (array_view){.elem = p->elem, .rank = p->rank};
            if (present(a) && a->view.elem != p->elem)
                return entry_error(call->kernel, QN_BAD_CALL, E501, (place){.line = p->line, .column = p->column},
                                   "convert the array", error,
                                   "array `%s` has elements of type %s, the parameter is %s", p->name,
                                   dtypes[a->view.elem].text, dtypes[p->elem].text);
            if (present(a)) set_view(call, i, &a->view);
            continue;
        }
        const binding *b = bindings_find(&call->settings, p->name);
        if (!b) continue;
        QN_TRY(scalar_number(call, p, b, &numbers[i], error));
        given[i] = true;
    }
    qn_error inner;
    if (interp_head(k, given, numbers, call->views, units, &call->plan, &inner) != QN_OK)
        return head_error(call, &inner, error);

    for (int i = 0; i < k->param_count; i++) {
        const tile_param *p = &k->params[i];
        array_view *v = &call->views[i];
        if (!is_array(p) || v->data) continue;
        memcpy(v->extents, call->plan.extents[i], sizeof(v->extents));
        if (inputs_too) continue;
        if (p->kind == PARAM_SCRATCH && call->context->slots[slot].driver->memory) {
            strides_set_row_major(v->rank, v->extents, v->strides); /* a mirror alone */
            continue;
        }
        QN_TRY(call_allocate(call, call->declared[i], v, error));
        call->arguments[call->declared[i]].allocated = true;
    }
    call->instance = found;
    if (inputs_too) return QN_OK;
    QN_TRY(check_overlap(call, k, error));
    if (k->raw_language) QN_TRY(check_raw(call, k, slot, error));
    call->has_initials = false;
    for (int i = 0; i < k->param_count; i++)
        call->has_initials |= k->params[i].has_initial && k->params[i].kind == PARAM_OUT;
    call->bound = true;
    call->pointers_changed = call->moved = false;
    call->slot = slot;
    return QN_OK;
}

qn_status call_bind(qn_call *call, int slot, bool inputs_too, qn_error *error)
{
    call_unbind(call);
    return bind(call, slot, inputs_too, error);
}

/* Facts of a launch go no further than this. */
static bool same_alignment(const void *a, const void *b)
{
    return ((uintptr_t)a ^ (uintptr_t)b) % 128 == 0;
}

qn_status call_move(qn_call *call, qn_error *error)
{
    const tile_kernel *k = call->instance->kernel;
    bool far = call->context->slots[call->slot].driver->memory != NULL;
    for (int i = 0; i < k->param_count; i++) {
        if (!is_array(&k->params[i]) || k->params[i].kind == PARAM_SCRATCH) continue;
        const argument *a = &call->arguments[call->declared[i]];
        if ((far && call->staged && !a->direct) || a->view.data == call->views[i].data) continue;
        if (!same_alignment(a->view.data, call->views[i].data)) {
            call->variant = NULL;
            call->facts = NULL;
            call->prepared = false;
        }
        set_view(call, i, &a->view);
    }
    QN_TRY(check_overlap(call, k, error));
    call->moved = false;
    return QN_OK;
}

qn_status call_refresh(qn_call *call, qn_error *error)
{
    const tile_kernel *k = call->instance->kernel;
    for (int i = 0; i < k->param_count; i++)
        if (is_array(&k->params[i]) && k->params[i].kind != PARAM_SCRATCH)
            set_view(call, i, &call->arguments[call->declared[i]].view);
    QN_TRY(check_overlap(call, k, error));
    call->pointers_changed = call->moved = call->staged = call->all_direct = false;
    return QN_OK;
}
