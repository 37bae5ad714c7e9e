/*
 * One fused kernel on host memory, in the checking interpreter, and its results against the meaning of the graph.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_FUSE_KERNEL_H
#define QUERN_TESTS_FUSE_KERNEL_H

#include "fuse/fuse.h"
#include "ir/graph_interp.h"
#include "ir/interp.h"
#include "test.h"

#include <quern/quern.h>

static uint64_t kernel_random_state = 1;
static inline double kernel_uniform(void)
{
    kernel_random_state = kernel_random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(kernel_random_state >> 40) / 16777216.0;
}

/* A leaf with numbers of its own; among floats some are whole, so that there are ties. */
static inline node kernel_leaf(arena *memory, graph *g, dtype elem, shape s, double low, double high)
{
    int64_t count = shape_count(&s);
    char *data = arena_alloc(memory, (size_t)(count + 1) * (size_t)dtypes[elem].size_bytes);
    for (int64_t i = 0; i < count; i++) {
        double x = low + (high - low) * kernel_uniform();
        if (dtype_is_float(elem) && kernel_uniform() < 0.3) x = (double)(int64_t)x;
        element_write(elem, data + i * dtypes[elem].size_bytes, (number){.f = x, .i = (int64_t)x});
    }
    return graph_leaf(g, elem, &s, NULL, 0, data);
}

/* Of a random graph: any value may come out; strips that stick out write outside, which does nothing. Nothing is printed. */
static bool kernel_of_any_graph;

static inline bool kernel_found(const findings *f)
{
    for (int i = 0; i < f->count; i++)
        if (!kernel_of_any_graph || f->items[i].code != 701) return true;
    return false;
}

/* data: by node, the memory of what is not a leaf. False: the interpreter found something, which is printed. */
static inline bool kernel_run(arena *memory, const graph *g, const fuse_kernel *k, void *const *data)
{
    array_view arrays[64] = {0};
    bool given[64] = {false};
    number numbers[64] = {{0}};
    int argument = 0, scalar = 0;
    for (int p = 0; p < k->kernel->param_count; p++) {
        const tile_param *param = &k->kernel->params[p];
        arrays[p].elem = param->elem;
        arrays[p].rank = param->rank;
        if (param->kind == PARAM_SCALAR) {
            given[p] = true;
            numbers[p] = k->scalars[scalar++];
        }
        if (param->kind > PARAM_INOUT) continue;
        const fuse_argument *a = &k->arguments[argument++];
        void *base = data[a->base] ? data[a->base] : graph_get(g, a->base)->attr.storage;
        EXPECT(a->rank == param->rank && base);
        arrays[p].data = (char *)base + a->offset * dtypes[param->elem].size_bytes;
        for (int axis = 0; axis < a->rank; axis++) {
            arrays[p].extents[axis] = a->extents[axis];
            arrays[p].strides[axis] = a->strides[axis];
        }
    }
    EXPECT(argument == k->argument_count && scalar == k->scalar_count);
    launch_plan plan = launch_plan_new(memory, k->kernel->param_count);
    qn_error error = {0};
    if (interp_head(k->kernel, given, numbers, arrays, 2, &plan, &error) != QN_OK) {
        printf("%s\n", error.message);
        return false;
    }
    for (int p = 0; p < k->kernel->param_count; p++) {
        if (k->kernel->params[p].kind != PARAM_SCRATCH) continue;
        int64_t count = 1;
        for (int axis = arrays[p].rank - 1; axis >= 0; axis--) {
            arrays[p].extents[axis] = plan.extents[p][axis];
            arrays[p].strides[axis] = count;
            count *= plan.extents[p][axis];
        }
        arrays[p].data = arena_alloc(memory, (size_t)(count + 1) * 8);
    }
    findings found = {0};
    interp_options options = {.check = true, .units = 2, .order_seed = 7};
    if (kernel_of_any_graph) /* there are programs that wait for those before them */
        options = (interp_options){.check = true, .units = 2, .any_value = true, .step_limit = 1 << 22};
    bool good = interp_run(k->kernel, arrays, &plan, &options, &found, &error) == QN_OK && !kernel_found(&found);
    if (!good && kernel_of_any_graph) {
        text t = {0};
        findings_print(&found, k->kernel, &t);
        printf("%s %s\n", error.message, text_get(&t));
        text_free(&t);
    } else if (!good) {
        text t = {0};
        findings_print(&found, k->kernel, &t);
        tile_print(k->kernel, &t);
        printf("%s %s\n", error.message, text_get(&t));
        text_free(&t);
    }
    findings_free(&found);
    return good;
}

/* The same on a device of a context. */
static inline bool kernel_run_on(qn_context *context, const char *device, const graph *g, const fuse_kernel *k,
                                 void *const *data)
{
    text words = {0};
    qn_error error = {0};
    qn_module *module = NULL;
    qn_call *call = NULL;
    tile_print(k->kernel, &words);
    bool good = qn_module_load_text(context, "fused.tile", text_get(&words), &module, &error) == QN_OK &&
                qn_call_new(module, k->kernel->name, &call, &error) == QN_OK;
    int argument = 0, scalar = 0;
    for (int p = 0; good && p < k->kernel->param_count; p++) {
        const tile_param *param = &k->kernel->params[p];
        if (param->kind == PARAM_SCALAR) {
            number n = k->scalars[scalar++];
            good = (dtype_is_float(param->elem) ? qn_call_set_float(call, param->name, n.f, &error)
                                                : qn_call_set_int(call, param->name, n.i, &error)) == QN_OK;
        }
        if (param->kind > PARAM_INOUT) continue;
        const fuse_argument *a = &k->arguments[argument++];
        void *base = data[a->base] ? data[a->base] : graph_get(g, a->base)->attr.storage;
        good = qn_call_set_memory(call, param->name, (char *)base + a->offset * dtypes[param->elem].size_bytes,
                                  (qn_dtype)param->elem, a->rank, a->extents, a->strides, &error) == QN_OK;
    }
    good = good && qn_call_run(call, device, &error) == QN_OK;
    if (!good) printf("%s\n", error.message);
    if (call) qn_call_free(call);
    if (module) qn_module_free(module);
    text_free(&words);
    return good;
}

/* Memory for each node that the kernel writes. */
static inline void kernel_allocate(arena *memory, const graph *g, const fuse_kernel *k, void **data)
{
    for (int i = 0; i < k->write_count; i++)
        data[k->writes[i]] = arena_alloc(memory, (size_t)graph_size_bytes(g, k->writes[i]) + 8);
}

static inline void kernel_expect(arena *memory, const graph *g, node n, const void *result, double tolerance)
{
    graph_tensor expected;
    qn_error error = {0};
    if (graph_interpret(g, &n, 1, NULL, false, memory, &expected, &error) != QN_OK) {
        printf("%s\n", error.message);
        EXPECT(false);
        return;
    }
    int wrong = 0;
    for (int64_t i = 0; i < expected.count && wrong < 3; i++) {
        number x = element_read(expected.elem, (const char *)result + i * dtypes[expected.elem].size_bytes);
        bool same = dtype_is_float(expected.elem)
                        ? fabs(x.f - expected.elements[i].f) <= tolerance * (1 + fabs(expected.elements[i].f)) ||
                              (isnan(x.f) && isnan(expected.elements[i].f))
                        : x.i == expected.elements[i].i;
        if (!same)
            printf("element %lld: %g %lld instead of %g %lld (%d)\n", (long long)i, x.f, (long long)x.i,
                   expected.elements[i].f, (long long)expected.elements[i].i, ++wrong);
        EXPECT(same);
    }
}

#endif
