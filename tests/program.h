/*
 * Runs one kernel of tests/programs under the checking interpreter: arrays are doubles here and the kernel's own types
 * there, programs run in a random order, and any finding fails the test. The expectation is a direct computation over
 * the arrays as they were stored.
 * With QUERN_TEST_DEVICE the same runs go through the library to that device.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_PROGRAM_H
#define QUERN_TESTS_PROGRAM_H

#include "ir/interp.h"
#include "lang/ast.h"
#include "test.h"

#include <quern/quern.h>
#include <stdlib.h>

typedef struct grid {
    const char *name;
    dtype elem;
    int rank;
    int64_t extents[MAX_RANK], count;
    double *v;
} grid;

typedef struct program {
    arena *memory;
    const char *file, *kernel;
    dtype type;
    bindings settings;
    grid *grids[24];
    int grid_count;
    uint64_t seed;
} program;

static const int tile_sizes[] = {1, 3, 4, 8, 32};
static const dtype float_types[] = {DT_F32, DT_F64, DT_BF16, DT_F16};
#define EACH_TYPE(t) \
    for (int t##_index = 0, t; t##_index < COUNT(float_types) && ((t = (int)float_types[t##_index]), 1); t##_index++)
#define EACH_TILE(b) \
    for (int b##_index = 0, b; b##_index < COUNT(tile_sizes) && ((b = tile_sizes[b##_index]), 1); b##_index++)

static uint64_t program_state = 88172645463325252u;
static inline uint64_t random_bits(void)
{
    program_state ^= program_state << 13;
    program_state ^= program_state >> 7;
    program_state ^= program_state << 17;
    return program_state;
}
static inline double random_between(double low, double high)
{
    return low + (high - low) * (double)(random_bits() >> 11) * 0x1p-53;
}
static inline int64_t random_below(int64_t n)
{
    return (int64_t)(random_bits() % (uint64_t)n);
}
static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline program *program_new(const char *file, const char *kernel, dtype type)
{
    arena *memory = arena_new();
    program *p = ARENA_NEW(memory, program);
    *p = (program){.memory = memory, .file = file, .kernel = kernel, .type = type};
    bindings_set(memory, &p->settings, (binding){.name = "T", .kind = BIND_TYPE, .type = type});
    return p;
}

static inline void set_int(program *p, const char *name, int64_t i)
{
    bindings_set(
        p->memory, &p->settings,
        (binding){.name = name, .kind = BIND_INT, .type = DT_I64, .number = {.i = i, .f = (double)i}, .untyped = true});
}
static inline void set_bool(program *p, const char *name, bool b)
{
    bindings_set(p->memory, &p->settings,
                 (binding){.name = name, .kind = BIND_BOOL, .type = DT_BOOL, .number = {.i = b}});
}
static inline void set_float(program *p, const char *name, double f)
{
    bindings_set(p->memory, &p->settings,
                 (binding){.name = name, .kind = BIND_FLOAT, .type = DT_F64, .number = {.f = f}, .untyped = true});
}
static inline void set_function(program *p, const char *name, const char *function)
{
    bindings_set(p->memory, &p->settings, (binding){.name = name, .kind = BIND_FUNCTION, .function = function});
}

#define ARRAY(p, name, elem, ...)                                  \
    array_new((p), (name), (elem), (const int64_t[]){__VA_ARGS__}, \
              sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
static inline grid *array_new(program *p, const char *name, dtype elem, const int64_t *extents, size_t rank)
{
    grid *g = ARENA_NEW(p->memory, grid);
    *g = (grid){.name = name, .elem = elem, .rank = (int)rank, .count = 1};
    for (size_t i = 0; i < rank; i++) {
        g->extents[i] = extents[i];
        g->count *= extents[i];
    }
    g->v = ARENA_ARRAY(p->memory, double, g->count + 1);
    for (int64_t i = 0; i < g->count; i++) g->v[i] = 77;
    p->grids[p->grid_count++] = g;
    return g;
}

/* What the array's type makes of a number. */
static inline double stored(dtype elem, double x)
{
    return dtype_is_float(elem) ? round_to_dtype(elem, x) : x;
}

static inline grid *random_fill(grid *g, double low, double high)
{
    for (int64_t i = 0; i < g->count; i++) g->v[i] = stored(g->elem, random_between(low, high));
    return g;
}
static inline grid *random_integers(grid *g, int64_t below)
{
    for (int64_t i = 0; i < g->count; i++) g->v[i] = (double)random_below(below);
    return g;
}
static inline grid *filled(grid *g, double x)
{
    for (int64_t i = 0; i < g->count; i++) g->v[i] = x;
    return g;
}

static inline void program_fail(const program *p, const char *what)
{
    printf("%s:%s (", p->file, p->kernel);
    for (int i = 0; i < p->settings.count; i++) {
        const binding *b = &p->settings.items[i];
        if (b->kind == BIND_TYPE)
            printf("%s=%s ", b->name, dtypes[b->type].text);
        else if (b->kind == BIND_INT)
            printf("%s=%lld ", b->name, (long long)b->number.i);
    }
    for (int i = 0; i < p->grid_count; i++) {
        printf("%s", p->grids[i]->name);
        for (int k = 0; k < p->grids[i]->rank; k++) printf("[%lld]", (long long)p->grids[i]->extents[k]);
        printf(" ");
    }
    printf("): %s\n", what);
    test_failures_of_case++;
}

static inline void *to_memory(program *p, const grid *g)
{
    size_t size = (size_t)dtypes[g->elem].size_bytes;
    char *data = arena_alloc(p->memory, (size_t)(g->count + 1) * size);
    for (int64_t i = 0; i < g->count; i++)
        element_write(g->elem, data + (size_t)i * size, (number){.i = (int64_t)g->v[i], .f = g->v[i]});
    return data;
}

static inline bool program_lower(program *p, tile_kernel **k)
{
    char *text_of_file;
    size_t size;
    qn_error error = {0};
    const char *path =
        arena_print(p->memory, "%s/tests/%s%s.qn", QUERN_ROOT, strchr(p->file, '/') ? "" : "programs/", p->file);
    if (file_read(path, 1 << 24, &text_of_file, &size, &error) != QN_OK) {
        program_fail(p, error.message);
        return false;
    }
    diagnostics d = {.memory = p->memory};
    ast_file *file = lang_parse(p->memory, path, text_of_file, size, &d);
    free(text_of_file);
    lang_check(file, &d);
    const ast *kernel = ast_find(file, p->kernel);
    bindings constants = {0}, extents = {0};
    given_array arrays[24];
    lang_given given = {.arrays = arrays, .units = 3};
    bool generic = false;
    for (int i = 0; kernel && i < kernel->list.count; i++)
        generic |= kernel->list.items[i]->type && kernel->list.items[i]->type->is_generic;
    for (int i = 0; i < p->settings.count; i++)
        if (generic || p->settings.items[i].kind != BIND_TYPE)
            bindings_set(p->memory, &given.settings, p->settings.items[i]);
    for (int i = 0; i < p->grid_count; i++) {
        given_array a = {
            .name = p->grids[i]->name, .elem = p->grids[i]->elem, .rank = p->grids[i]->rank, .has_extents = true};
        memcpy(a.extents, p->grids[i]->extents, sizeof(a.extents));
        arrays[given.array_count++] = a;
    }
    bool good = kernel && !d.errors && lang_instantiate(file, kernel, &given, &d, p->memory, &constants, &extents) &&
                lang_lower(file, kernel, &constants, p->memory, &d, k);
    if (d.count) {
        text out = {0};
        diagnostics_print(&d, file, false, &out);
        if (!good) program_fail(p, text_get(&out));
        text_free(&out);
    }
    if (!kernel) program_fail(p, "there is no such kernel");
    return good;
}

/* One context and the modules of it, for runs on a device. */
static inline qn_module *program_module(const char *path, qn_error *error)
{
    static qn_context *context;
    static struct {
        char *path;
        qn_module *module;
    } known[32];
    static int count;
    for (int i = 0; i < count; i++)
        if (!strcmp(known[i].path, path)) return known[i].module;
    if ((!context && qn_context_open(NULL, &context, error) != QN_OK) || count == COUNT(known) ||
        qn_module_load_file(context, path, &known[count].module, error) != QN_OK)
        return NULL;
    known[count].path = strdup(path);
    return known[count++].module;
}

static inline qn_status program_set(qn_call *call, const binding *b, qn_error *error)
{
    switch (b->kind) {
    case BIND_TYPE: return qn_call_set_type(call, b->name, (qn_dtype)b->type, error);
    case BIND_FUNCTION: return qn_call_set_function(call, b->name, b->function, error);
    case BIND_FLOAT: return qn_call_set_float(call, b->name, b->number.f, error);
    default: return qn_call_set_int(call, b->name, b->number.i, error);
    }
}

static inline void grid_read(grid *g, const void *data)
{
    for (int64_t e = 0; e < g->count; e++) {
        number x = element_read(g->elem, (const char *)data + (size_t)e * (size_t)dtypes[g->elem].size_bytes);
        g->v[e] = dtype_is_float(g->elem) ? x.f : (double)x.i;
    }
}

static inline bool program_run_on(program *p, const char *device)
{
    qn_error error = {0};
    char *path =
        arena_print(p->memory, "%s/tests/%s%s.qn", QUERN_ROOT, strchr(p->file, '/') ? "" : "programs/", p->file);
    qn_module *module = program_module(path, &error);
    qn_call *call = NULL;
    void *data[24];
    qn_status status = module ? qn_call_new(module, p->kernel, &call, &error) : QN_FAILED;
    for (int i = 0; i < p->settings.count && status == QN_OK; i++) {
        /* The type is set for every program; not every kernel is generic. */
        qn_status one = program_set(call, &p->settings.items[i], &error);
        if (p->settings.items[i].kind != BIND_TYPE) status = one;
    }
    for (int i = 0; i < p->grid_count && status == QN_OK; i++) {
        grid *g = p->grids[i];
        data[i] = to_memory(p, g);
        status = qn_call_set_memory(call, g->name, data[i], (qn_dtype)g->elem, g->rank, g->extents, NULL, &error);
    }
    if (status == QN_OK) status = qn_call_run(call, device, &error);
    for (int i = 0; i < p->grid_count && status == QN_OK; i++) grid_read(p->grids[i], data[i]);
    if (status != QN_OK) program_fail(p, error.message);
    qn_call_free(call);
    return status == QN_OK;
}

/* Runs it and reads the arrays back. */
static inline bool program_run(program *p)
{
    const char *device = getenv("QUERN_TEST_DEVICE");
    if (device) return program_run_on(p, device);
    tile_kernel *k = NULL;
    if (!program_lower(p, &k)) return false;
    array_view views[64] = {0};
    bool given[64] = {0};
    number numbers[64] = {0};
    launch_plan *plan = ARENA_NEW(p->memory, launch_plan);
    *plan = launch_plan_new(p->memory, k->param_count);
    qn_error error = {0};
    for (int i = 0; i < k->param_count; i++) {
        const tile_param *param = &k->params[i];
        if (param->kind >= PARAM_SCALAR) {
            const binding *b = bindings_find(&p->settings, param->name);
            given[i] = b != NULL;
            if (b)
                numbers[i] = dtype_is_float(param->elem)
                                 ? (number){.f = round_to_dtype(
                                                param->elem, b->kind == BIND_FLOAT ? b->number.f : (double)b->number.i)}
                                 : b->number;
            continue;
        }
        views[i].elem = param->elem;
        views[i].rank = param->rank;
        for (int n = 0; n < p->grid_count; n++) {
            grid *g = p->grids[n];
            if (strcmp(g->name, param->name)) continue;
            views[i].data = to_memory(p, g);
            int64_t stride = 1;
            for (int axis = g->rank; axis-- > 0;) {
                views[i].extents[axis] = g->extents[axis];
                views[i].strides[axis] = stride;
                stride *= g->extents[axis];
            }
        }
    }
    if (interp_head(k, given, numbers, views, 3, plan, &error) != QN_OK) {
        program_fail(p, error.message);
        return false;
    }
    for (int i = 0; i < k->param_count; i++) {
        if (k->params[i].kind >= PARAM_SCALAR || views[i].data) continue;
        int64_t stride = 1;
        for (int axis = k->params[i].rank; axis-- > 0;) {
            views[i].extents[axis] = plan->extents[i][axis];
            views[i].strides[axis] = stride;
            stride *= plan->extents[i][axis];
        }
        views[i].data = arena_alloc(p->memory, (size_t)(stride + 1) * 8);
    }
    findings found = {0};
    interp_options options = {.check = true, .order_seed = random_bits() | 1, .units = 3};
    qn_status status = interp_run(k, views, plan, &options, &found, &error);
    if (status != QN_OK) program_fail(p, error.message);
    if (found.count) {
        text out = {0};
        findings_print(&found, k, &out);
        program_fail(p, text_get(&out));
        text_free(&out);
    }
    bool good = status == QN_OK && !found.count;
    findings_free(&found);
    for (int i = 0; i < k->param_count; i++)
        for (int n = 0; k->params[i].kind < PARAM_SCALAR && n < p->grid_count; n++) {
            grid *g = p->grids[n];
            if (!strcmp(g->name, k->params[i].name)) grid_read(g, views[i].data);
        }
    return good;
}

static inline double tolerance_of(dtype a, dtype b)
{
    double worst = 2e-5;
    if (a == DT_F16 || b == DT_F16) worst = 5e-3;
    if (a == DT_BF16 || b == DT_BF16) worst = 3e-2;
    return worst;
}

/* Floats within a tolerance relative to the element and the array's largest; integers exactly. */
static inline void expect_array(program *p, const grid *g, const double *want)
{
    double scale = 1, rel = dtype_is_float(g->elem) ? tolerance_of(p->type, g->elem) : 0;
    for (int64_t i = 0; i < g->count; i++)
        if (isfinite(want[i])) scale = fmax(scale, fabs(want[i]));
    for (int64_t i = 0; i < g->count; i++) {
        if (fabs(g->v[i] - want[i]) <= rel * (fabs(want[i]) + scale) || g->v[i] == want[i]) continue;
        program_fail(p, arena_print(p->memory, "%s: element %lld is %.9g, expected %.9g", g->name, (long long)i,
                                    g->v[i], want[i]));
        return;
    }
}

static inline void program_free(program *p)
{
    arena_free(p->memory);
}

#define NEW(p, count) ARENA_ARRAY((p)->memory, double, (count) + 1)

#endif
