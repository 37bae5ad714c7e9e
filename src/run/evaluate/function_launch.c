/*
 * Running a tensor function. In: a call. Out: its results are in their arrays. The call has a tape on the device; its
 * arrays are leaves over their own memory, each result is a variable whose home is the result's array, so that the last
 * kernel writes there. The first launch traces the function and makes its plan, which serves every later launch with
 * arrays of these shapes, wherever they lie and on whichever stream. When a launch on the device's own stream finds the
 * same arrays and numbers as the one before, the step is recorded, and from then on replayed.
 * SPDX-License-Identifier: MIT
 */
#include "run/module/function.h"
#include "run/evaluate/realize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct function_run {
    qn_tape *tape;
    int slot;
    qn_plan *plan;       /* recorded; NULL before */
    function_plan *open; /* of `planned`; NULL: none yet */
    /* By tile parameter, as many as `room`. */
    int room;
    array_view *planned;
    qn_buffer **buffers; /* while the function is traced */
    array_view *views;   /* those of the last launch */
    instance *instance;
    uint64_t numbers; /* a hash of the call's settings then */
} function_run;

void function_run_free(qn_call *call)
{
    function_run *r = call->run;
    if (!r) return;
    qn_plan_free(r->plan);
    function_plan_free(r->open);
    qn_tape_free(r->tape);
    heap_free(r->planned);
    heap_free(r->buffers);
    heap_free(r->views);
    heap_free(r);
    call->run = NULL;
}

static qn_status open_run(qn_call *call, int slot, qn_error *error)
{
    int tile = call->instance->kernel->knobs[KNOB_TILE], library = call->instance->kernel->knobs[KNOB_LIBRARY];
    if (call->run && call->run->slot == slot && call->run->tape->mode == call->mode && call->run->tape->tile == tile &&
        call->run->tape->library == library)
        return QN_OK;
    function_run_free(call);
    function_run *r = calloc(1, sizeof(*r));
    if (!r) return error_set(error, QN_NO_MEMORY, "no memory for a tensor function");
    r->slot = slot;
    call->run = r;
    QN_TRY(qn_tape_new(call->context, call->context->slots[slot].name, &r->tape, error));
    qn_tape_set_mode(r->tape, call->mode);
    qn_tape_set_products(r->tape, call->products);
    r->tape->tile = tile;
    r->tape->library = library;
    return QN_OK;
}

/* Place for the arrays of the call's instance; what was known of another one is forgotten with it. */
static void make_room(const qn_call *call)
{
    function_run *r = call->run;
    int count = call->instance->kernel->param_count;
    if (count <= r->room) return;
    heap_free(r->planned);
    heap_free(r->buffers);
    heap_free(r->views);
    r->room = count;
    r->planned = heap_array((size_t)count, sizeof(*r->planned));
    r->buffers = heap_array((size_t)count, sizeof(*r->buffers));
    r->views = heap_array((size_t)count, sizeof(*r->views));
    function_plan_free(r->open);
    r->open = NULL;
    r->instance = NULL;
}

static uint64_t settings_hash(const qn_call *call)
{
    text words = {0};
    for (int i = 0; i < call->settings.count; i++) {
        const binding *b = &call->settings.items[i];
        text_print(&words, "%s=%lld,%a;", b->name, (long long)b->number.i, b->number.f);
    }
    uint64_t hash = hash_bytes(text_get(&words), words.length).low;
    text_free(&words);
    return hash;
}

/* A storage over the memory of an array; *offset: of its first element. */
static qn_status wrap(qn_call *call, const array_view *v, storage **out, int64_t *offset, qn_error *error)
{
    const device_slot *s = &call->context->slots[call->slot];
    int64_t low, high, size = dtypes[v->elem].size_bytes;
    qn_buffer *buffer = NULL;
    view_reach(v, &low, &high);
    QN_TRY(qn_buffer_wrap_on(call->context, s->name, (char *)v->data + low * size, (size_t)((high - low) * size), NULL,
                             NULL, &buffer, error));
    buffer->anywhere = true;
    buffer->element_bytes = (uint8_t)size;
    *out = storage_of_buffer(buffer);
    *offset = -low;
    return QN_OK;
}

static shape shape_of(const array_view *v)
{
    shape s = {.rank = v->rank};
    for (int k = 0; k < v->rank; k++) s.extents[k] = v->extents[k];
    return s;
}

/* Arrays as leaves by tile parameter; results get handles of variables. */
static qn_status make_leaves(qn_call *call, node *by_declared, qn_tensor *outputs, int *output_count, qn_error *error)
{
    const tile_kernel *k = call->instance->kernel;
    qn_tape *tape = call->run->tape;
    *output_count = 0;
    for (int i = 0; i < k->param_count; i++) {
        if (k->params[i].kind >= PARAM_SCALAR) continue;
        const array_view *v = &call->views[i];
        shape s = shape_of(v);
        storage *memory = NULL;
        int64_t offset = 0;
        QN_TRY(wrap(call, v, &memory, &offset, error));
        call->run->buffers[i] = memory->buffer;
        int64_t strides[GRAPH_RANK] = {0};
        memcpy(strides, v->strides, sizeof(strides));
        node leaf = tape_leaf(tape, v->elem, &s, strides, offset, memory);
        if (!leaf) {
            storage_release(memory);
            return qn_tape_error(tape, error);
        }
        if (k->params[i].kind == PARAM_IN) {
            by_declared[call->declared[i]] = leaf;
            tape_handle(tape, leaf); /* a slot keeps it */
            storage_release(memory);
            continue;
        }
        qn_tensor t = tape_handle(tape, leaf);
        tape_slot *slot = tape_slot_of(t);
        memory->written = true;
        slot->variable = true;
        slot->home = memory;
        slot->home_leaf = leaf;
        outputs[(*output_count)++] = t;
    }
    return QN_OK;
}

static qn_status build(qn_call *call, qn_error *error)
{
    qn_tape *tape = call->run->tape;
    node arguments[FUNCTION_PARAMS] = {0}, results[FUNCTION_RESULTS];
    qn_tensor outputs[FUNCTION_RESULTS];
    int output_count = 0, count = 0;
    QN_TRY(make_leaves(call, arguments, outputs, &output_count, error));
    arena *memory = arena_new();
    diagnostics d = {.memory = memory};
    qn_status status = QN_OK;
    int units = slot_about(call->context, call->slot)->units;
    if (!function_in_tape(call->kernel, call->instance, &call->settings, tape, arguments, units, &d, results, &count))
        status = diagnostics_error(&d, call->kernel->module->file, QN_BAD_SOURCE, error);
    for (int i = 0; i < count && status == QN_OK; i++) qn_assign(outputs[i], tape_handle(tape, results[i]));
    arena_free(memory);
    if (status == QN_OK) status = qn_tape_error(tape, error);
    return status;
}

/* Traces and evaluates; record: as a step to be replayed, which runs it the first time as well. */
static qn_status evaluate(qn_call *call, bool record, qn_error *error)
{
    function_run *r = call->run;
    qn_plan_free(r->plan);
    r->plan = NULL;
    qn_scope_begin(r->tape);
    qn_status status = record ? qn_capture_begin(r->tape, error) : QN_OK;
    bool recording = status == QN_OK && record; /* what is assigned before that is no part of the step */
    if (status == QN_OK) status = build(call, error);
    const realizer *made = realize_open(r->tape);
    int64_t making_ns = made->making_ns, loading_ns = made->loading_ns, compiled = made->compiled;
    int64_t start = clock_now_ns();
    if (status == QN_OK) status = qn_eval(r->tape, NULL, 0, error);
    making_ns = made->making_ns - making_ns;
    loading_ns = made->loading_ns - loading_ns;
    call->timing.compile_ns = making_ns - loading_ns;
    call->timing.load_ns = loading_ns;
    call->timing.from_cache = making_ns && made->compiled == compiled;
    if (recording) {
        qn_error unread;
        qn_status end = qn_capture_end(r->tape, &r->plan, status == QN_OK ? error : &unread);
        if (status == QN_OK) status = end;
    }
    start += making_ns; /* the kernels' time is what is left */
    if (status == QN_OK && record) {
        start = clock_now_ns();
        status = qn_plan_replay(r->plan, error);
    }
    const device_slot *s = &call->context->slots[call->slot];
    if (status == QN_OK && s->driver->memory) status = s->driver->memory->settle(s->device, error);
    call->timing.kernel_ns = clock_now_ns() - start;
    qn_scope_end(r->tape);
    return status;
}

/* Shapes, types, layouts and alignment, which a plan is made for. */
static bool fits_plan(const qn_call *call)
{
    const function_run *r = call->run;
    const tile_kernel *k = call->instance->kernel;
    for (int i = 0; i < k->param_count; i++) {
        if (k->params[i].kind >= PARAM_SCALAR) continue;
        const array_view *a = &r->planned[i], *b = &call->views[i];
        if (a->elem != b->elem || a->rank != b->rank || memcmp(a->extents, b->extents, sizeof(a->extents)) != 0 ||
            memcmp(a->strides, b->strides, sizeof(a->strides)) != 0)
            return false;
        int64_t low, high, size = dtypes[a->elem].size_bytes;
        view_reach(a, &low, &high);
        uintptr_t was = ((uintptr_t)a->data + (uintptr_t)(low * size)) % 64;
        uintptr_t is = ((uintptr_t)b->data + (uintptr_t)(low * size)) % 64;
        if (size > 1 ? !was != !is : was != is) return false; /* buffer_misalignment */
    }
    return true;
}

/* The plan for the call's shapes as they are, made now if there is none. */
static qn_status make_plan(qn_call *call, qn_error *error)
{
    function_run *r = call->run;
    if (r->open && fits_plan(call)) return QN_OK;
    function_plan_free(r->open);
    r->open = NULL;
    const realizer *made = realize_open(r->tape);
    int64_t making_ns = made->making_ns, loading_ns = made->loading_ns, compiled = made->compiled;
    qn_scope_begin(r->tape);
    qn_status status = build(call, error);
    if (status == QN_OK) status = function_plan_take(call, r->tape, r->buffers, &r->open, error);
    qn_scope_end(r->tape);
    making_ns = made->making_ns - making_ns;
    loading_ns = made->loading_ns - loading_ns;
    call->timing.compile_ns = making_ns - loading_ns;
    call->timing.load_ns = loading_ns;
    call->timing.from_cache = making_ns && made->compiled == compiled;
    memcpy(r->planned, call->views, sizeof(r->planned[0]) * (size_t)call->instance->kernel->param_count);
    return status;
}

/* Everything in its place, and whether the last launch was the same: in the steady state nothing is looked at. */
static qn_status make_ready(qn_call *call, int slot, bool host_allowed, bool *same, qn_error *error)
{
    bool rebound = !call->bound || call->slot != slot;
    bool moved_alone = !rebound && !call->pointers_changed && call->moved && call->staged;
    bool changed = rebound || call->pointers_changed || call->moved || !call->staged;
    if (rebound)
        QN_TRY(call_bind(call, slot, false, error));
    else if (call->pointers_changed)
        QN_TRY(call_refresh(call, error));
    else if (call->moved)
        QN_TRY(call_move(call, error));
    if (!call->staged || (!host_allowed && !call->all_direct)) {
        int64_t start = clock_now_ns();
        QN_TRY(call_stage(call, host_allowed, error));
        call->all_direct = !host_allowed;
        if (call->context->slots[slot].driver->memory) call->timing.allocate_ns = clock_now_ns() - start;
    }
    function_run *before = call->run;
    QN_TRY(open_run(call, slot, error));
    make_room(call);
    function_run *r = call->run;
    size_t views_bytes = sizeof(r->views[0]) * (size_t)call->instance->kernel->param_count;
    *same = r->instance && !changed;
    if (*same) return QN_OK;
    qn_plan_free(r->plan); /* it was for other arrays; should it not have been, it is recorded again */
    r->plan = NULL;
    if (moved_alone && r == before && r->instance) return QN_OK;
    /* Settings, and so numbers, change with a binding alone. */
    uint64_t numbers = rebound || r != before ? settings_hash(call) : r->numbers;
    bool as_planned = r->instance == call->instance && r->numbers == numbers;
    if (!as_planned) {
        function_plan_free(r->open);
        r->open = NULL;
    }
    *same = as_planned && !memcmp(r->views, call->views, views_bytes);
    r->instance = call->instance;
    r->numbers = numbers;
    memcpy(r->views, call->views, views_bytes);
    return QN_OK;
}

static qn_status replay(qn_call *call, qn_error *error)
{
    const device_slot *s = &call->context->slots[call->slot];
    int64_t start = clock_now_ns();
    QN_TRY(qn_plan_replay(call->run->plan, error));
    if (s->driver->memory) QN_TRY(s->driver->memory->settle(s->device, error));
    call->timing.kernel_ns = clock_now_ns() - start;
    return QN_OK;
}

/* Arrays that are new: the plan with their addresses. */
static qn_status run_open(qn_call *call, qn_error *error)
{
    const device_slot *s = &call->context->slots[call->slot];
    function_run *r = call->run;
    QN_TRY(make_plan(call, error));
    if (function_plan_has_indices(r->open)) return evaluate(call, false, error);
    int64_t start = clock_now_ns();
    QN_TRY(function_plan_run(r->open, call, r->tape, NULL, error));
    if (s->driver->memory) QN_TRY(s->driver->memory->settle(s->device, error));
    call->timing.kernel_ns = clock_now_ns() - start;
    return QN_OK;
}

qn_status function_launch(qn_call *call, int slot, qn_error *error)
{
    bool same;
    QN_TRY(make_ready(call, slot, true, &same, error));
    bool far = call->context->slots[slot].driver->memory != NULL;
    int64_t start = clock_now_ns();
    if (far) QN_TRY(call_copy_in(call, NULL, error));
    if (far) call->timing.copy_in_ns = clock_now_ns() - start;
    /* What is recorded is not looked at again: indices of the host may have other values at the same place. */
    if (call->run->open && function_plan_has_indices(call->run->open)) same = false;
    if (same && call->run->plan)
        QN_TRY(replay(call, error));
    else if (same)
        QN_TRY(evaluate(call, true, error));
    else
        QN_TRY(run_open(call, error));
    start = clock_now_ns();
    if (far) QN_TRY(call_copy_out(call, NULL, error));
    if (far) call->timing.copy_out_ns = clock_now_ns() - start;
    call->has_run = true;
    return QN_OK;
}

qn_status function_compile(qn_call *call, int slot, qn_error *error)
{
    bool same;
    QN_TRY(make_ready(call, slot, true, &same, error));
    return make_plan(call, error);
}

qn_status function_submit(qn_call *call, int slot, device_stream *stream, qn_error *error)
{
    bool same;
    QN_TRY(make_ready(call, slot, false, &same, error));
    if (!stream && same) { /* what is repeated as it is on the device's own stream is recorded */
        QN_TRY(call->run->plan ? qn_plan_replay(call->run->plan, error) : evaluate(call, true, error));
    } else {
        QN_TRY(make_plan(call, error));
        QN_TRY(function_plan_run(call->run->open, call, call->run->tape, stream, error));
    }
    call->has_run = true;
    return QN_OK;
}

qn_status function_scratch(qn_call *call, int slot, int64_t *size_bytes, qn_error *error)
{
    bool same;
    QN_TRY(make_ready(call, slot, false, &same, error));
    QN_TRY(make_plan(call, error));
    *size_bytes = function_plan_scratch(call->run->open);
    return QN_OK;
}

static const plan *latest_plan(const qn_call *call)
{
    const realizer *r = call->run && call->run->tape ? call->run->tape->realizer : NULL;
    const plan *latest = NULL;
    for (int i = 0; r && i < r->table_size; i++)
        for (const plan *p = r->table[i]; p; p = p->next)
            if (!latest || p->last_used > latest->last_used) latest = p;
    return latest;
}

double function_flops(const qn_call *call)
{
    const plan *latest = latest_plan(call);
    double flops = 0;
    for (int i = 0; latest && i < latest->fused->kernel_count; i++) {
        if (!latest->fused->kernels[i].kernel) return NAN; /* a kernel of the file */
        flops += (double)latest->fused->kernels[i].flops;
    }
    return latest ? flops : NAN;
}

int function_kernels(const qn_call *call)
{
    const plan *latest = latest_plan(call);
    return latest ? latest->kernel_count : 0;
}

const char *function_library(const qn_call *call, const char **why)
{
    const plan *latest = latest_plan(call);
    const driver *d = call->context->slots[call->slot].driver;
    *why = d->launch_library ? "none of its kernels is one product of whole arrays" : "the device has none";
    for (int i = 0; d->launch_library && latest && i < latest->step_count; i++) {
        const plan_step *s = &latest->steps[i];
        if (!s->is_ready || s->variant->kernel->knobs[KNOB_LIBRARY] <= 0) continue;
        const char *name = d->launch_library(s->ready, why);
        if (name) return name;
    }
    return NULL;
}
