/*
 * Calls: arguments by name. In: numbers, types, functions, views of memory. Out: settings and views kept in the call;
 * what they mean together is bind.c's business. Every setter compares with what is there, so that setting the same
 * thing again costs no new binding, and a new pointer to the same shape costs only a look at the facts.
 * SPDX-License-Identifier: MIT
 */
#include "run/module/function.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

qn_call *call_new(kernel_entry *entry, qn_context *context)
{
    qn_call *c = heap_new(sizeof(*c));
    c->kernel = entry;
    c->context = context;
    c->memory = arena_new();
    c->argument_count = entry->param_count;
    c->arguments = ARENA_ARRAY(c->memory, argument, entry->param_count + 1);
    return c;
}

qn_status qn_call_new(qn_module *module, const char *kernel, qn_call **out, qn_error *error)
{
    HEAP_ENTER(error);
    if (!module || !kernel || !out) return error_set(error, QN_BAD_CALL, "qn_call_new: an argument is NULL");
    *out = NULL;
    qn_mode mode;
    qn_products products;
    const char *spelled = kernel;
    kernel = function_name(spelled, &mode, &products);
    kernel_entry *entry = module->cuda_source && strchr(kernel, '<') ? cuda_module_instance(module, kernel, error)
                                                                     : module_find(module, kernel, error);
    if (!entry) return QN_BAD_CALL;
    if (kernel != spelled && !(entry->item && entry->item->kind == AST_TENSOR))
        return error_set(error, QN_BAD_CALL, "`%s`: `%s` is a kernel; only tensor functions have modes", spelled,
                         kernel);
    *out = call_new(entry, module->context);
    (*out)->mode = mode;
    (*out)->products = products;
    return QN_OK;
}

void qn_call_free(qn_call *call)
{
    if (!call || heap_is_stopped()) return;
    function_run_free(call);
    call_release_device(call);
    for (int i = 0; i < call->argument_count; i++) {
        argument_free_owned(&call->arguments[i]);
        qn_buffer_release(call->arguments[i].buffer);
    }
    arena_free(call->memory);
    heap_free(call);
}

void call_unbind(qn_call *call)
{
    call->bound = call->staged = call->all_direct = false;
    call->variant = NULL;
    call->facts = NULL;
}

/* The entry's own spelling of a name, or NULL with E505. */
static const char *known_name(qn_call *call, const char *name, bool array, qn_error *error)
{
    if (!call) {
        error_set(error, QN_BAD_CALL, "a setting%s%s: the call is NULL", name ? " of " : "", name ? name : "");
        return NULL;
    }
    const kernel_entry *e = call->kernel;
    if (!name) {
        error_set(error, QN_BAD_CALL, "a setting of kernel `%s` has no name", e->name);
        return NULL;
    }
    for (int i = 0; i < e->name_count; i++)
        if (!strcmp(e->names[i], name)) return e->names[i];
    tile_knob knob = tile_knob_find(name);
    bool function = e->item && e->item->kind == AST_TENSOR;
    bool has = function ? knob == KNOB_TILE || knob == KNOB_LIBRARY : knob < KNOB_TILE;
    if (has && e->item && !array) return tile_knobs[knob];
    int axis = e->spread >= 0 ? spread_axis_number(name) : -1;
    if (axis >= 0) { /* of `[...]`, which has more axes from now on */
        call->kernel = function_spread(call->kernel, axis + 1);
        call_unbind(call);
        return known_name(call, name, array, error);
    }
    const char **fit = ARENA_ARRAY(call->memory, const char *, e->name_count + 1); /* of the kind that is wanted */
    int fit_count = 0;
    for (int i = 0; i < e->name_count; i++) {
        const parameter *p = entry_param(e, e->names[i], NULL);
        if ((p && p->rank >= 0) == array) fit[fit_count++] = e->names[i];
    }
    const char *near = suggest_name(name, fit, fit_count);
    char advice[600];
    if (near) {
        snprintf(advice, sizeof(advice), "did you mean `%s`?", near);
    } else {
        int used = snprintf(advice, sizeof(advice), "its names are");
        for (int i = 0; i < e->name_count && used < (int)sizeof(advice); i++)
            used += snprintf(advice + used, sizeof(advice) - (size_t)used, "%s `%s`", i ? "," : "", e->names[i]);
    }
    place nowhere = {0};
    entry_error(e, QN_BAD_CALL, E505, nowhere, advice, error, "%s `%s` has no setting `%s`",
                e->item && e->item->kind == AST_TENSOR ? "tensor function" : "kernel", e->name, name);
    return NULL;
}

static bool same_binding(const binding *a, const binding *b)
{
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case BIND_TYPE: return a->type == b->type;
    /* Bits, not values: constants that print differently are other instances. NOLINTNEXTLINE(*-memory-comparison) */
    case BIND_FLOAT: return !memcmp(&a->number.f, &b->number.f, sizeof(double));
    case BIND_FUNCTION: return !strcmp(a->function, b->function);
    default: return a->number.i == b->number.i;
    }
}

static qn_status set(qn_call *call, binding b)
{
    const binding *old = bindings_find(&call->settings, b.name);
    if (old && same_binding(old, &b)) return QN_OK;
    bindings_set(call->memory, &call->settings, b);
    call_unbind(call);
    return QN_OK;
}

/* What a name stands for: a parameter (and its number), a generic type, or an extent or knob (both false). */
static const parameter *what(const qn_call *call, const char *name, bool *is_type)
{
    const kernel_entry *e = call->kernel;
    *is_type = false;
    const parameter *p = entry_param(e, name, NULL);
    for (int i = 0; i < e->param_count && !p; i++) *is_type |= e->params[i].generic && !strcmp(e->params[i].type, name);
    return p;
}

static qn_status wrong_kind(const qn_call *call, const char *name, const parameter *p, bool is_type, const char *given,
                            qn_error *error)
{
    const char *is = is_type                   ? "a type"
                     : !p                      ? "an extent"
                     : p->rank >= 0            ? "an array"
                     : p->function             ? "a function"
                     : dtype_is_float(p->elem) ? "a float"
                                               : "an integer";
    const char *advice = is_type        ? "give an element type, such as f32"
                         : !p           ? "give an integer"
                         : p->rank >= 0 ? "give memory or a buffer with its shape"
                         : p->function  ? "name a scalar function of the file, or a builtin"
                                        : "give a number that fits";
    place at = p ? p->at : (place){0};
    return entry_error(call->kernel, QN_BAD_CALL, E505, at, advice, error, "`%s` of kernel `%s` is %s, not %s", name,
                       call->kernel->name, is, given);
}

void call_forget_setting(qn_call *call, const char *name)
{
    for (int i = 0; i < call->settings.count; i++) {
        if (strcmp(call->settings.items[i].name, name) != 0) continue;
        call->settings.items[i] = call->settings.items[--call->settings.count];
        call_unbind(call);
        return;
    }
}

qn_status qn_call_set_int(qn_call *call, const char *name, int64_t number, qn_error *error)
{
    HEAP_ENTER(error);
    const char *known = known_name(call, name, false, error);
    if (!known) return QN_BAD_CALL;
    bool is_type;
    const parameter *p = what(call, known, &is_type);
    if (is_type || (p && (p->rank >= 0 || p->function))) return wrong_kind(call, known, p, is_type, "a number", error);
    if (p && !p->generic && dtype_is_float(p->elem))
        return set(call,
                   (binding){.name = known, .kind = BIND_FLOAT, .type = p->elem, .number = {.f = (double)number}});
    if (p && !p->generic && p->elem == DT_BOOL) {
        if (number != 0 && number != 1) return wrong_kind(call, known, p, false, "a number other than 0 and 1", error);
        return set(call, (binding){.name = known, .kind = BIND_BOOL, .type = DT_BOOL, .number = {.i = number}});
    }
    if (p && !p->generic && p->elem != DT_U64 && integer_wrap(p->elem, number) != number) {
        char words[64];
        snprintf(words, sizeof(words), "%lld: that does not fit %s", (long long)number, p->type);
        return wrong_kind(call, known, p, false, words, error);
    }
    if (!p && number < 0) {
        place nowhere = {0};
        return entry_error(call->kernel, QN_BAD_CALL, E505, nowhere, "give zero or more", error, "extent `%s` is %lld",
                           known, (long long)number);
    }
    dtype type = p && !p->generic ? p->elem : DT_I64;
    return set(call, (binding){.name = known, .kind = BIND_INT, .type = type, .number = {.i = number}});
}

qn_status qn_call_set_float(qn_call *call, const char *name, double number, qn_error *error)
{
    HEAP_ENTER(error);
    const char *known = known_name(call, name, false, error);
    if (!known) return QN_BAD_CALL;
    bool is_type;
    const parameter *p = what(call, known, &is_type);
    if (is_type || !p || p->rank >= 0 || p->function || (!p->generic && !dtype_is_float(p->elem))) {
        bool whole = number == floor(number) && fabs(number) < 9e15;
        if (whole && !is_type && (!p || (p->rank < 0 && !p->function)))
            return qn_call_set_int(call, known, (int64_t)number, error);
        return wrong_kind(call, known, p, is_type, "a float", error);
    }
    dtype type = p->generic ? DT_F64 : p->elem;
    return set(call, (binding){.name = known, .kind = BIND_FLOAT, .type = type, .number = {.f = number}});
}

qn_status qn_call_set_type(qn_call *call, const char *name, qn_dtype type, qn_error *error)
{
    HEAP_ENTER(error);
    const char *known = known_name(call, name, false, error);
    if (!known) return QN_BAD_CALL;
    bool is_type;
    const parameter *p = what(call, known, &is_type);
    if (!is_type) return wrong_kind(call, known, p, is_type, "a type", error);
    if ((int)type < 0 || (int)type >= DT_COUNT)
        return error_set(error, QN_BAD_CALL, "%d is not an element type", (int)type);
    return set(call, (binding){.name = known, .kind = BIND_TYPE, .type = (dtype)type});
}

qn_status qn_call_set_function(qn_call *call, const char *name, const char *function, qn_error *error)
{
    HEAP_ENTER(error);
    const char *known = known_name(call, name, false, error);
    if (!known) return QN_BAD_CALL;
    bool is_type;
    const parameter *p = what(call, known, &is_type);
    if (!p || !p->function) return wrong_kind(call, known, p, is_type, "a function", error);
    if (!function) return error_set(error, QN_BAD_CALL, "qn_call_set_function: the function's name is NULL");
    const binding *old = bindings_find(&call->settings, known);
    if (old && old->kind == BIND_FUNCTION && !strcmp(old->function, function)) return QN_OK;
    const char *copy = arena_copy_text(call->memory, function, strlen(function));
    return set(call, (binding){.name = known, .kind = BIND_FUNCTION, .function = copy});
}

/* What to write instead of words that are no number. */
static const char *number_advice(const char *words)
{
    size_t digits = strspn(words, "0123456789.");
    if (digits && words[digits] == '_') return "write the digits without `_`";
    if (digits && words[digits] && strchr("kKmMgG", words[digits]))
        return "a thousand is 1000 or 1 << 10, a million 1e6 or 1 << 20";
    return "write a number or an expression of numbers, such as 1 << 20";
}

/* Reads `words` as a constant expression over what is set so far. */
static qn_status evaluate(qn_call *call, const char *name, const char *words, binding *out, qn_error *error)
{
    arena *memory = arena_new();
    char *line = arena_print(memory, "const double setting = %s;", lang_setting(memory, words));
    diagnostics d = {.memory = memory};
    ast_file *file = lang_parse(memory, name, line, strlen(line), &d);
    const char *unbound = NULL;
    bool good = !d.errors && file->items.count == 1 && file->items.items[0]->kind == AST_CONSTANT &&
                lang_evaluate(file, file->items.items[0]->left, &call->settings, cpu_count(), &d, out, &unbound) &&
                !d.errors;
    qn_status status = QN_OK;
    place nowhere = {0};
    if (!good && unbound)
        status = entry_error(call->kernel, QN_BAD_CALL, E505, nowhere, "set that name first, or write a number", error,
                             "`%s = %s` needs `%s`, which is not set", name, words, unbound);
    else if (!good)
        status = entry_error(call->kernel, QN_BAD_CALL, E505, nowhere, number_advice(words), error,
                             "`%s` of `%s` is not a number%s%s", words, name, d.count ? ": " : "",
                             d.count ? d.items[0].message : "");
    arena_free(memory);
    return status;
}

qn_status qn_call_set_text(qn_call *call, const char *name, const char *words, qn_error *error)
{
    HEAP_ENTER(error);
    const char *known = known_name(call, name, false, error);
    if (!known) return QN_BAD_CALL;
    if (!words || !words[strspn(words, " \t\n")])
        return error_set(error, QN_BAD_CALL, "setting `%s` has no value; write %s=VALUE", known, known);
    bool is_type;
    const parameter *p = what(call, known, &is_type);
    if (p && p->function) return qn_call_set_function(call, known, words, error);
    if (p && p->rank >= 0) return wrong_kind(call, known, p, is_type, "a number", error);
    if (is_type) {
        qn_dtype type;
        if (qn_dtype_from_name(words, &type)) return qn_call_set_type(call, known, type, error);
        text advice = {0};
        if (!strncmp(words, "f8", 2)) text_add(&advice, "no device supports other 8-bit floats than f8e4m3 yet; ");
        const char *names[DT_COUNT + 2];
        for (int i = 0; i < DT_COUNT; i++) names[i] = dtypes[i].text;
        names[DT_COUNT] = "float";
        names[DT_COUNT + 1] = "double";
        const char *near = suggest_name(words, names, DT_COUNT + 2);
        if (near && strlen(words) <= strlen(near) + 1) text_print(&advice, "did you mean `%s`? ", near);
        text_add(&advice, "the types are");
        for (int i = 0; i < DT_COUNT; i++) text_print(&advice, "%s %s", i ? "," : "", dtypes[i].text);
        place nowhere = {0};
        entry_error(call->kernel, QN_BAD_CALL, E505, nowhere, text_get(&advice), error,
                    "`%s` of `%s` is not an element type", words, known);
        text_free(&advice);
        return QN_BAD_CALL;
    }
    binding b = {0};
    QN_TRY(evaluate(call, known, words, &b, error));
    if (b.kind == BIND_FLOAT) return qn_call_set_float(call, known, b.number.f, error);
    if (b.kind == BIND_INT || b.kind == BIND_BOOL) return qn_call_set_int(call, known, b.number.i, error);
    return wrong_kind(call, known, p, is_type, "a number", error);
}

/* Shape rules that need no other argument: rank, element type, extents and strides that address memory. */
static qn_status check_view(const qn_call *call, const parameter *p, const array_view *v, qn_error *error)
{
    const char *unit = v->rank == 1 ? "axis" : "axes";
    bool open = function_spread_axes(call->kernel, (int)(p - call->kernel->params), v->rank) == -2;
    if (v->rank != p->rank && !p->result)
        return entry_error(call->kernel, QN_BAD_CALL, E501, p->at, "reshape the view", error,
                           open ? "array `%s` has %d %s, the parameter has at least %d"
                                : "array `%s` has %d %s, the parameter has %d",
                           p->name, v->rank, unit, open ? p->rank - call->kernel->spread : p->rank);
    if (!p->generic && !p->result && v->elem != p->elem)
        return entry_error(call->kernel, QN_BAD_CALL, E501, p->at,
                           "convert the array, or declare the parameter generic", error,
                           "array `%s` has elements of type %s, the parameter is %s", p->name, dtypes[v->elem].text,
                           dtypes[p->elem].text);
    int64_t low, high, count = view_count(v);
    for (int i = 0; i < v->rank; i++)
        if (v->extents[i] < 0)
            return entry_error(call->kernel, QN_BAD_CALL, E502, p->at, "give zero or more", error,
                               "axis %d of `%s` has extent %lld", i, p->name, (long long)v->extents[i]);
    if (!strides_reach(v->rank, v->extents, v->strides, &low, &high) || count >= INT64_MAX / 2)
        return entry_error(call->kernel, QN_BAD_CALL, E502, p->at, NULL, error,
                           "the extents and strides of `%s` do not fit in memory", p->name);
    if (!v->data && count)
        return error_set(error, QN_BAD_CALL, "array `%s` has elements but its memory is NULL", p->name);
    if ((uintptr_t)v->data % (uintptr_t)dtypes[v->elem].size_bytes)
        return entry_error(call->kernel, QN_BAD_CALL, E501, p->at, "copy it to aligned memory", error,
                           "array `%s` of %s does not begin at a multiple of %d bytes", p->name, dtypes[v->elem].text,
                           dtypes[v->elem].size_bytes);
    return QN_OK;
}

static qn_status set_view(qn_call *call, const char *name, void *data, qn_dtype type, int rank, const int64_t *extents,
                          const int64_t *strides, qn_buffer *buffer, qn_error *error)
{
    const char *known = known_name(call, name, true, error);
    if (!known) return QN_BAD_CALL;
    int number;
    const parameter *p = entry_param(call->kernel, known, &number);
    if (!p || p->rank < 0) {
        bool is_type;
        p = what(call, known, &is_type);
        return wrong_kind(call, known, p, is_type, "an array", error);
    }
    if ((int)type < 0 || (int)type >= DT_COUNT)
        return error_set(error, QN_BAD_CALL, "array `%s`: %d is not an element type", known, (int)type);
    int axes = function_spread_axes(call->kernel, number, rank);
    if (axes >= 0 && axes != call->kernel->spread && axes <= ARRAY_RANK) {
        call->kernel = function_spread(call->kernel, axes);
        p = &call->kernel->params[number];
        call_unbind(call);
    }
    if (rank < 0 || rank > ARRAY_RANK || (rank && !extents))
        return error_set(error, QN_BAD_CALL, "array `%s`: %d axes%s; give 0 to %d with their extents", known, rank,
                         rank && !extents ? " without extents" : "", ARRAY_RANK);
    array_view v = {.data = data, .elem = (dtype)type, .rank = rank};
    for (int i = 0; i < rank; i++) v.extents[i] = extents[i];
    if (strides)
        for (int i = 0; i < rank; i++) v.strides[i] = strides[i];
    else
        strides_set_row_major(rank, extents, v.strides);
    QN_TRY(check_view(call, p, &v, error));

    if (buffer) {
        int64_t low, high, size = dtypes[v.elem].size_bytes;
        view_reach(&v, &low, &high);
        int64_t offset = (char *)data - (char *)buffer->data;
        int64_t first = offset + low * size, end = offset + high * size;
        if (first < 0 || end > (int64_t)buffer->size_bytes)
            return entry_error(call->kernel, QN_BAD_CALL, E502, p->at, "check the offset, extents and strides", error,
                               "array `%s` needs bytes %lld to %lld of a buffer of %zu", known, (long long)first,
                               (long long)end, buffer->size_bytes);
    }

    argument *a = &call->arguments[number];
    if (a->buffer != buffer) {
        qn_buffer_retain(buffer);
        qn_buffer_release(a->buffer);
        a->buffer = buffer;
    }
    bool same = a->given && a->view.elem == v.elem && a->view.rank == v.rank &&
                !memcmp(a->view.extents, v.extents, sizeof(v.extents)) &&
                !memcmp(a->view.strides, v.strides, sizeof(v.strides));
    if (same && a->view.data != data) call->pointers_changed = true;
    if (!same) call_unbind(call);
    a->given = true;
    a->generated = a->allocated = false;
    a->view = v;
    return QN_OK;
}

qn_status qn_call_set_memory(qn_call *call, const char *name, void *data, qn_dtype type, int rank,
                             const int64_t *extents, const int64_t *strides, qn_error *error)
{
    HEAP_ENTER(error);
    return set_view(call, name, data, type, rank, extents, strides, NULL, error);
}

qn_status qn_call_set_buffer(qn_call *call, const char *name, qn_buffer *buffer, size_t offset_elements, qn_dtype type,
                             int rank, const int64_t *extents, const int64_t *strides, qn_error *error)
{
    HEAP_ENTER(error);
    if (!buffer)
        return error_set(error, QN_BAD_CALL, "qn_call_set_buffer: the buffer of `%s` is NULL", name ? name : "");
    size_t size = qn_dtype_size_bytes(type), offset_bytes;
    if (__builtin_mul_overflow(offset_elements, size, &offset_bytes) || offset_bytes > buffer->size_bytes)
        return error_set(error, QN_BAD_CALL, "array `%s` starts beyond its buffer of %zu bytes", name ? name : "",
                         buffer->size_bytes);
    return set_view(call, name, (char *)buffer->data + offset_bytes, type, rank, extents, strides, buffer, error);
}

qn_status qn_call_move(qn_call *call, const int *params, void *const *addresses, int count, qn_error *error)
{
    if (!call || count < 0 || (count && (!params || !addresses)))
        return error_set(error, QN_BAD_CALL, "qn_call_move: an argument is NULL");
    const kernel_entry *e = call->kernel;
    for (int i = 0, number = 0, at = -1; i < count; i++) {
        if (i && params[i] <= params[i - 1])
            return error_set(error, QN_BAD_CALL, "qn_call_move: parameters are numbered in order, each once");
        for (; number < e->param_count && at < params[i]; number++) at += e->params[number].kind != PARAM_SCRATCH;
        argument *a = at == params[i] && at >= 0 ? &call->arguments[number - 1] : NULL;
        if (!a || !a->given || a->buffer)
            return error_set(error, QN_BAD_CALL,
                             "qn_call_move: parameter %d of `%s` is not an array that qn_call_set_memory gave",
                             params[i], e->name);
        if ((uintptr_t)addresses[i] % (uintptr_t)dtypes[a->view.elem].size_bytes || (!addresses[i] && a->view.data))
            return error_set(error, QN_BAD_CALL, "array `%s` of %s does not begin at a multiple of %d bytes",
                             e->params[number - 1].name, dtypes[a->view.elem].text, dtypes[a->view.elem].size_bytes);
        if (a->view.data == addresses[i]) continue;
        a->view.data = addresses[i];
        call->moved = true;
    }
    return QN_OK;
}

qn_status qn_call_get(const qn_call *call, const char *name, qn_array *array, qn_error *error)
{
    HEAP_ENTER(error);
    if (!array) return error_set(error, QN_BAD_CALL, "qn_call_get: the place for the array is NULL");
    int number;
    const parameter *p = call && name ? entry_param(call->kernel, name, &number) : NULL;
    if (!p)
        return known_name((qn_call *)call, name, true, error) /* which says what is wrong */
                   ? error_set(error, QN_BAD_CALL, "`%s` is not an array", name)
                   : QN_BAD_CALL;
    const char *known = p->name;
    if (p->rank < 0) return error_set(error, QN_BAD_CALL, "`%s` is not an array", known);
    const argument *a = &call->arguments[number];
    const array_view *v = &a->view;
    if (p->kind == PARAM_SCRATCH || (!a->given && !a->generated && !a->allocated))
        return error_set(error, QN_BAD_CALL, "array `%s` is there after a run, or once it is set", known);
    if (v->rank > ARRAY_RANK)
        return error_set(error, QN_BAD_CALL, "array `%s` has %d axes; those of at most %d can be handed out", known,
                         v->rank, ARRAY_RANK);
    *array = (qn_array){.data = v->data, .type = (qn_dtype)v->elem, .rank = v->rank};
    memcpy(array->extents, v->extents, sizeof(array->extents));
    memcpy(array->strides, v->strides, sizeof(array->strides));
    return QN_OK;
}

void qn_call_timing(const qn_call *call, qn_timing *timing)
{
    if (timing) *timing = call ? call->timing : (qn_timing){0};
}
