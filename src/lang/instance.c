/*
 * One instance of a kernel. In: what the caller gave (arrays, settings by name). Out: its generic types, its `const`
 * parameters, and the extents that are known. A constant is the caller's value, else an extent of a given array, else
 * its default, else the first candidate of `tune` whose condition holds. Constants may use each other in any order;
 * a circle is an error.
 * SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

#include <string.h>

typedef struct instance {
    const ast_file *file;
    const ast *kernel;
    const lang_given *given;
    diagnostics *d;
    arena *memory;
    bindings *constants, *extents;
    bool *busy; /* by parameter: its default is being evaluated */
    bool good;
} instance;

static void fault(instance *n, error_code code, place at, const char *advice, const char *message)
{
    diagnose(n->d, code, at, advice, "%s", message);
    n->good = false;
}

const ast *param_find(const ast *kernel, const char *name)
{
    for (int i = 0; i < kernel->list.count; i++)
        if (!strcmp(kernel->list.items[i]->name, name)) return kernel->list.items[i];
    return NULL;
}

bool param_is_constant(const ast *param)
{
    return !strcmp(param->word, "const");
}

bool param_is_array(const ast *param)
{
    return !param_is_constant(param) && (param->is_tensor || param->word[0]);
}

/* A bare name in an array's brackets that is no parameter is an extent. */
bool name_is_extent(const ast *kernel, const char *name)
{
    if (param_find(kernel, name)) return false;
    for (int i = 0; i < kernel->list.count; i++) {
        const ast *param = kernel->list.items[i];
        if (param_is_constant(param)) continue;
        for (int k = 0; k < param->list.count; k++)
            if (param->list.items[k]->kind == AST_NAME && !strcmp(param->list.items[k]->name, name)) return true;
    }
    return false;
}

static const ast *clause_find(const ast *kernel, const char *word)
{
    for (int i = 0; i < kernel->clauses.count; i++)
        if (!strcmp(kernel->clauses.items[i]->word, word)) return kernel->clauses.items[i];
    return NULL;
}

static const ast *setting_find(const ast *clause, const char *name)
{
    for (int i = 0; clause && i < clause->list.count; i++) {
        const ast *setting = clause->list.items[i];
        if (setting->kind == AST_SETTING && !strcmp(setting->name, name)) return setting;
    }
    return NULL;
}

static const given_array *array_given(const instance *n, const char *name)
{
    for (int i = 0; i < n->given->array_count; i++)
        if (!strcmp(n->given->arrays[i].name, name)) return &n->given->arrays[i];
    return NULL;
}

static const char *type_name(dtype t)
{
    return t == DT_F32 ? "float" : t == DT_F64 ? "double" : dtypes[t].text;
}

/* The types a set lists; false if `type` is not among them. `first` is the first of them. */
static bool types_allow(const ast *set, dtype type, dtype *first)
{
    bool found = false;
    for (int i = set->list.count; i-- > 0;) {
        const ast *item = set->list.items[i];
        dtype t;
        const char *word = item->kind == AST_TYPE_NAME || item->kind == AST_TYPE ? item->word : item->name;
        if (!word || !dtype_from_text(word, &t)) continue;
        *first = t;
        found |= t == type;
    }
    return found;
}

static void bind_type(instance *n, const char *name, place at)
{
    if (bindings_find(n->constants, name)) return;
    const binding *setting = bindings_find(&n->given->settings, name);
    const ast *set = setting_find(clause_find(n->kernel, "types"), name);
    bool known = setting && setting->kind == BIND_TYPE;
    dtype type = known ? setting->type : DT_F32, first = DT_F32;
    const char *from = NULL;
    for (int i = 0; i < n->kernel->list.count; i++) {
        const ast *param = n->kernel->list.items[i];
        const given_array *array = array_given(n, param->name);
        if (!array || !param_is_array(param) || !param->type || strcmp(param->type->word, name)) continue;
        if (known && type != array->elem) {
            fault(n, E215, param->at, "cast one of them",
                  from ? arena_print(n->memory, "`%s` is both `%s` (in `%s`) and `%s` (in `%s`)", name, type_name(type),
                                     from, type_name(array->elem), param->name)
                       : arena_print(n->memory, "`%s` is both `%s` (as set) and `%s` (in `%s`)", name, type_name(type),
                                     type_name(array->elem), param->name));
            return;
        }
        known = true;
        type = array->elem;
        from = param->name;
    }
    if (set) types_allow(set, type, &first);
    if (!known) {
        if (n->given->array_count) {
            fault(n, E215, at, arena_print(n->memory, "name it: %s=%s", name, type_name(first)),
                  arena_print(n->memory, "`%s` cannot be inferred from the arrays that were given", name));
            return;
        }
        type = first;
    }
    bool allowed = set ? types_allow(set, type, &first) : dtype_is_float(type);
    if (!allowed) {
        fault(n, E215, at, set ? "choose one of those it lists" : "list it: `types (T in {...})`",
              arena_print(n->memory, "`%s` = `%s` is not in `types`%s", name, type_name(type),
                          set ? "" : " (the floating types, unless the kernel says otherwise)"));
        return;
    }
    bindings_set(n->memory, n->constants, (binding){.name = name, .kind = BIND_TYPE, .type = type});
}

static void bind_types(instance *n)
{
    for (int i = 0; i < n->kernel->list.count; i++) {
        const ast *param = n->kernel->list.items[i];
        if (n->good && param->type && param->type->is_generic) bind_type(n, param->type->word, param->at);
    }
}

static void bind_extent(instance *n, const ast *param, const ast *axis, int64_t extent)
{
    const ast *target = param_find(n->kernel, axis->name);
    if (target && !param_is_constant(target)) return; /* an `int` parameter: checked at launch */
    bindings *into = target ? n->constants : n->extents;
    const binding *old = bindings_find(into, axis->name);
    if (old && old->number.i != extent) {
        fault(n, E502, param->at, "give arrays whose shapes agree",
              arena_print(n->memory, "`%s` is %lld%s%s%s and %lld in `%s`", axis->name, (long long)old->number.i,
                          old->function ? " in `" : "", old->function ? old->function : "", old->function ? "`" : "",
                          (long long)extent, param->name));
        return;
    }
    if (old) return;
    binding b = constant_int(extent);
    b.untyped = false;
    b.name = axis->name;
    b.function = param->name; /* only for the message above */
    bindings_set(n->memory, into, b);
}

/* An axis of `[...]` that broadcasts goes with every extent. */
static bool is_open_unit(const ast *param, const given_array *array, int axis)
{
    bool spread = axis >= param->spread_at && axis < param->spread_at + param->spread_count;
    return spread && array->units >> axis & 1;
}

static void bind_open_units(instance *n)
{
    for (int i = 0; i < n->kernel->list.count && n->good; i++) {
        const ast *param = n->kernel->list.items[i];
        const given_array *array = param->spread_count ? array_given(n, param->name) : NULL;
        for (int k = 0; array && k < array->rank; k++)
            if (is_open_unit(param, array, k) && !bindings_find(n->extents, param->list.items[k]->name))
                bind_extent(n, param, param->list.items[k], 1);
    }
}

static void bind_arrays(instance *n)
{
    for (int i = 0; i < n->kernel->list.count; i++) {
        const ast *param = n->kernel->list.items[i];
        const given_array *array = param_is_array(param) ? array_given(n, param->name) : NULL;
        if (!array) continue;
        if (array->has_extents && array->rank != param->list.count) {
            fault(n, E501, param->at,
                  param->has_spread ? "all `[...]` of a function stand for the same axes: reshape the array"
                                    : "reshape the view",
                  arena_print(n->memory, "array `%s` has %d axes, the parameter %d", param->name, array->rank,
                              param->list.count));
            continue;
        }
        dtype elem;
        if (!param->type->is_generic && dtype_from_text(param->type->word, &elem) && elem != array->elem)
            fault(n, E501, param->at, "convert the array",
                  arena_print(n->memory, "array `%s` holds `%s`, the parameter `%s`", param->name,
                              type_name(array->elem), type_name(elem)));
        for (int k = 0; array->has_extents && k < array->rank; k++)
            if (param->list.items[k]->kind == AST_NAME && !is_open_unit(param, array, k))
                bind_extent(n, param, param->list.items[k], array->extents[k]);
    }
    bind_open_units(n);
    for (int i = 0; i < n->constants->count; i++)
        n->constants->items[i].function =
            n->constants->items[i].kind == BIND_FUNCTION ? n->constants->items[i].function : NULL;
    for (int i = 0; i < n->extents->count; i++) n->extents->items[i].function = NULL;
}

/* A type as written, or the one a generic name is bound to. */
static bool type_of(const instance *n, const ast *type, dtype *out)
{
    const binding *b = bindings_find(n->constants, type->word);
    if (b && b->kind == BIND_TYPE) {
        *out = b->type;
        return true;
    }
    return dtype_from_text(type->word, out);
}

static bool is_function_name(const instance *n, const char *name)
{
    const ast *item = ast_find(n->file, name);
    if (item) return item->kind == AST_FUNCTION;
    const builtin *b = builtin_find(name);
    return b && b->class == BUILTIN_ELEMENTWISE;
}

/* The caller's settings: constants at once, extents and scalars as they are; anything else is unknown. */
static void bind_settings(instance *n)
{
    const bindings *settings = &n->given->settings;
    for (int i = 0; i < settings->count; i++) {
        binding b = settings->items[i];
        const ast *param = param_find(n->kernel, b.name);
        if (b.kind == BIND_TYPE) {
            bool used = bindings_find(n->constants, b.name) != NULL;
            for (int p = 0; p < n->kernel->list.count; p++)
                used |= n->kernel->list.items[p]->type && !strcmp(n->kernel->list.items[p]->type->word, b.name);
            if (used) continue;
        } else if (param && param_is_constant(param)) {
            dtype type;
            if (param->is_function) {
                if (b.kind != BIND_FUNCTION || !is_function_name(n, b.function))
                    fault(n, E505, param->at, "name a scalar function of the file or an elementwise builtin",
                          arena_print(n->memory, "`%s` needs the name of a function", b.name));
                else
                    bindings_set(n->memory, n->constants, b);
                continue;
            }
            error_code code = b.kind == BIND_FUNCTION ? E217 : ERROR_NONE;
            binding converted;
            if (!code) code = type_of(n, param->type, &type) ? constant_convert(&b, type, &converted) : E217;
            if (code)
                fault(n, code, param->at, constant_fault_advice(code),
                      arena_print(n->memory, "`%s`: %s", b.name, constant_fault_text(code)));
            else {
                converted.name = param->name;
                bindings_set(n->memory, n->constants, converted);
            }
            continue;
        } else if (param && !param_is_array(param)) {
            continue;
        } else if (name_is_extent(n->kernel, b.name)) {
            if (b.kind == BIND_INT) bindings_set(n->memory, n->extents, b);
            continue;
        } else {
            if (tile_knob_find(b.name) != KNOB_COUNT) continue;
        }
        const char *names[160];
        int count = 0;
        for (int p = 0; p < n->kernel->list.count && count < 150; p++) {
            const ast *other = n->kernel->list.items[p];
            if (!param_is_array(other)) names[count++] = other->name;
            for (int k = 0; k < other->list.count && count < 150; k++)
                if (other->list.items[k]->kind == AST_NAME) names[count++] = other->list.items[k]->name;
        }
        const char *near = suggest_name(b.name, names, count);
        fault(n, E505, n->kernel->at,
              near ? arena_print(n->memory, "did you mean `%s`?", near)
                   : "see the kernel's parameters for the names it knows",
              arena_print(n->memory, "unknown setting `%s`", b.name));
    }
}

static void bind_constant(instance *n, int index);

/* Evaluates over what is bound so far, binding constants that are met on the way. */
static bool evaluate_bound(instance *n, const ast *expression, binding *out)
{
    for (int tries = 0; tries <= n->kernel->list.count; tries++) {
        bindings known = {0};
        for (int i = 0; i < n->extents->count; i++) bindings_set(n->memory, &known, n->extents->items[i]);
        for (int i = 0; i < n->constants->count; i++) bindings_set(n->memory, &known, n->constants->items[i]);
        const char *unbound = NULL;
        int errors = n->d->errors;
        if (lang_evaluate(n->file, expression, &known, n->given->units, n->d, out, &unbound)) return true;
        if (n->d->errors > errors || !unbound) {
            n->good = false;
            return false;
        }
        int index = -1;
        for (int p = 0; p < n->kernel->list.count; p++)
            if (!strcmp(n->kernel->list.items[p]->name, unbound) && param_is_constant(n->kernel->list.items[p]))
                index = p;
        if (index >= 0) {
            bind_constant(n, index);
            if (!n->good) return false;
            continue;
        }
        bool extent = name_is_extent(n->kernel, unbound);
        place at = expression->from.line ? expression->from : expression->at;
        if (extent)
            fault_extent_missing(n->d, at, unbound);
        else
            fault_depends(n->d, at, unbound, "use `const` parameters and numbers");
        n->good = false;
        return false;
    }
    return false;
}

/* Candidates of `tune` count only where there is no default. */
static const ast *tune_candidate(instance *n, const ast *param)
{
    for (int i = 0; i < n->kernel->clauses.count; i++) {
        const ast *clause = n->kernel->clauses.items[i];
        const ast *setting = !strcmp(clause->word, "tune") ? setting_find(clause, param->name) : NULL;
        if (setting && setting->is_set && setting->list.count) return setting->list.items[0];
        if (setting && setting->left) return setting->left;
    }
    return NULL;
}

static void bind_constant(instance *n, int index)
{
    const ast *param = n->kernel->list.items[index];
    if (bindings_find(n->constants, param->name)) return;
    const ast *source = param->left ? param->left : tune_candidate(n, param);
    if (!source) {
        fault_no_default(n->d, param->at, "constant", param->name);
        n->good = false;
        return;
    }
    if (param->is_function) {
        if (source->kind != AST_NAME || !is_function_name(n, source->name)) {
            fault(n, E212, source->at, "name a scalar function of the file or an elementwise builtin",
                  arena_print(n->memory, "the default of `%s` is not a function", param->name));
            return;
        }
        bindings_set(n->memory, n->constants,
                     (binding){.name = param->name, .kind = BIND_FUNCTION, .function = source->name});
        return;
    }
    if (n->busy[index]) {
        fault_circle(n->d, param->at, param->name);
        n->good = false;
        return;
    }
    n->busy[index] = true;
    binding b, converted;
    dtype type;
    if (evaluate_bound(n, source, &b)) {
        error_code code = type_of(n, param->type, &type) ? constant_convert(&b, type, &converted) : E217;
        if (code)
            fault(n, code, source->at, constant_fault_advice(code), constant_fault_text(code));
        else {
            converted.name = param->name;
            bindings_set(n->memory, n->constants, converted);
        }
    }
    n->busy[index] = false;
}

bool lang_instantiate(const ast_file *file, const ast *kernel, const lang_given *given, diagnostics *d, arena *memory,
                      bindings *constants, bindings *extents)
{
    instance n = {.file = file,
                  .kernel = kernel,
                  .given = given,
                  .d = d,
                  .memory = memory,
                  .constants = constants,
                  .extents = extents,
                  .good = true};
    n.busy = ARENA_ARRAY(memory, bool, kernel->list.count + 1);
    bind_types(&n);
    bind_settings(&n);
    if (n.good) bind_arrays(&n);
    for (int i = 0; n.good && i < kernel->list.count; i++)
        if (param_is_constant(kernel->list.items[i])) bind_constant(&n, i);
    return n.good;
}
