/*
 * Tensor functions from text: shared by test_function.c and test_function_programs.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_FUNCTION_TEXT_H
#define QUERN_TESTS_FUNCTION_TEXT_H

#include "test.h"
#include "traced.h"
#include "ir/interp.h"

static double noise(int seed, int64_t i)
{
    uint64_t x = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u + (uint64_t)seed * 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 32;
    return (double)(x >> 11) * 0x1p-53 * 2 - 1;
}

/* Floats get noise, integers 0, 1, 2, 0, ... */
static void fill(traced *t)
{
    for (int i = 0; i < t->item->list.count; i++) {
        if (!t->arguments[i]) continue;
        dtype elem = graph_get(t->tape->graph, t->arguments[i])->elem;
        for (int64_t k = 0; k < t->counts[i]; k++) {
            number n = {.f = noise(i, k), .i = k % 3};
            element_write(elem, (char *)t->data[i] + k * dtypes[elem].size_bytes, n);
        }
    }
}

static void show_errors(traced *t)
{
    text words = {0};
    diagnostics_print(&t->d, t->file, false, &words);
    printf("%s\n", text_get(&words));
    text_free(&words);
}

static traced *start(const char *words, const char *function)
{
    traced *t = traced_open("test.qn", words);
    if (!traced_bind(t, function)) {
        show_errors(t);
        EXPECT(!"it binds");
    } else {
        fill(t);
    }
    return t;
}

static float *floats(const traced *t, const char *name)
{
    for (int i = 0; i < t->item->list.count; i++)
        if (!strcmp(t->item->list.items[i]->name, name)) return t->data[i];
    return NULL;
}

static graph_tensor *compute(traced *t, bool gradient)
{
    qn_error error;
    static graph_tensor out[FUNCTION_RESULTS];
    memset(out, 0, sizeof(out));
    if (!t->tape || !traced_run(t, gradient)) {
        show_errors(t);
        EXPECT(!"it traces");
        return out;
    }
    if (graph_interpret(t->tape->graph, t->results, t->count, NULL, true, t->memory, out, &error) != QN_OK) {
        printf("%s\n", error.message);
        EXPECT(!"it computes");
    }
    return out;
}

static bool has_shape(const graph_tensor *x, int rank, int64_t a, int64_t b, int64_t c)
{
    int64_t all[] = {a, b, c};
    if (x->shape.rank != rank) return false;
    for (int k = 0; k < rank; k++)
        if (x->shape.extents[k] != all[k]) return false;
    return true;
}

static double at(const graph_tensor *x, int64_t i)
{
    return dtype_is_float(x->elem) ? x->elements[i].f : (double)x->elements[i].i;
}

/* One expression over float x[3][4], float y[4] and i64 k[5]. */
static traced *expression(const char *words, graph_tensor *out)
{
    char source[1024];
    snprintf(source, sizeof(source), "tensor f(float x[m][n], float y[n], i64 k[q]) { return %s; }\n", words);
    traced *t = start(source, "f");
    graph_tensor *all = compute(t, false);
    *out = all[0];
    return t;
}

#endif
