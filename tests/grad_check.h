/*
 * Gradients against central differences. A `trial` owns a graph with leaves of doubles; trial_check differentiates the
 * sum of an output weighted by fixed random numbers, and compares every element of every gradient with the difference
 * quotient of the graph's own interpretation, in double and without rounding; then once more for the gradient itself.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_GRAD_CHECK_H
#define QUERN_TESTS_GRAD_CHECK_H

#include "ir/graph_interp.h"
#include "tensor/grad.h"
#include "test.h"

#include <stdlib.h>

#define TRIAL_INPUTS 4

typedef struct trial {
    arena *memory;
    graph *g;
    node inputs[TRIAL_INPUTS]; /* doubles, differentiated */
    double *data[TRIAL_INPUTS];
    int input_count;
    uint64_t random;
    const char *name;
    const graph_memory *where; /* NULL: the leaves' storages are addresses */
} trial;

static inline trial trial_new(const char *name)
{
    trial t = {.memory = arena_new(), .random = 88172645463325252u, .name = name};
    t.g = graph_new(t.memory);
    return t;
}

static inline void trial_end(trial *t)
{
    if (t->g->status) printf("%s: %s\n", t->name, t->g->error.message);
    EXPECT(t->g->status == QN_OK);
    arena_free(t->memory);
}

static inline double trial_random(trial *t, double low, double high)
{
    t->random ^= t->random << 13;
    t->random ^= t->random >> 7;
    t->random ^= t->random << 17;
    return low + (high - low) * ((double)(t->random >> 11) / (double)(1ull << 53));
}

static inline node trial_numbers(trial *t, const shape *s, double low, double high, double **data)
{
    int64_t count = shape_count(s);
    *data = ARENA_ARRAY(t->memory, double, count + 1);
    for (int64_t i = 0; i < count; i++) (*data)[i] = trial_random(t, low, high);
    return graph_leaf(t->g, DT_F64, s, NULL, 0, *data);
}

/* One more input: random numbers between low and high. */
static inline node trial_input(trial *t, shape s, double low, double high)
{
    int i = t->input_count++;
    return t->inputs[i] = trial_numbers(t, &s, low, high, &t->data[i]);
}

static inline node trial_index(trial *t, shape s, int64_t limit)
{
    int64_t count = shape_count(&s), *data = ARENA_ARRAY(t->memory, int64_t, count + 1);
    for (int64_t i = 0; i < count; i++) data[i] = (int64_t)trial_random(t, 0, (double)limit);
    return graph_leaf(t->g, DT_I64, &s, NULL, 0, data);
}

static inline bool trial_values(trial *t, const node *wanted, int count, graph_tensor *out, arena *memory)
{
    qn_error error;
    if (!graph_interpret(t->g, wanted, count, t->where, true, memory, out, &error)) return true;
    printf("%s: %s\n", t->name, error.message);
    EXPECT(!"interpreted");
    return false;
}

static inline double trial_scalar(trial *t, node n)
{
    arena *memory = arena_new();
    graph_tensor value;
    double x = trial_values(t, &n, 1, &value, memory) && value.count == 1 ? value.elements[0].f : NAN;
    arena_free(memory);
    return x;
}

/* sum(x * random numbers), so that every element's gradient is its own. */
static inline node trial_weigh(trial *t, node x)
{
    if (!x) return 0;
    shape s = t->g->nodes[x].shape;
    double *data;
    node weights = trial_numbers(t, &s, 0.5, 1.5, &data);
    node product = graph_binary(t->g, OP_MUL, graph_convert(t->g, x, DT_F64), weights);
    return graph_reshape(t->g, graph_reduce(t->g, FOLD_SUM, product, (1u << s.rank) - 1), &(shape){0});
}

static inline void trial_compare(trial *t, node loss, const node *gradients, const char *order)
{
    const double h = 1e-5;
    for (int i = 0; i < t->input_count; i++) {
        const graph_node *x = graph_get(t->g, t->inputs[i]), *d = graph_get(t->g, gradients[i]);
        EXPECT(shape_same(&x->shape, &d->shape) && x->elem == d->elem);
        arena *memory = arena_new();
        graph_tensor got;
        int64_t count = shape_count(&x->shape);
        bool good = trial_values(t, &gradients[i], 1, &got, memory);
        for (int64_t k = 0; k < count && good; k++) {
            double at = t->data[i][k];
            t->data[i][k] = at + h;
            double above = trial_scalar(t, loss);
            t->data[i][k] = at - h;
            double below = trial_scalar(t, loss);
            t->data[i][k] = at;
            double wanted = (above - below) / (2 * h), actual = got.elements[k].f;
            if (fabs(actual - wanted) <= 2e-5 * (1 + fabs(wanted))) continue;
            printf("%s, order %s, input %d, element %lld: gradient %.9g, difference quotient %.9g\n", t->name, order, i,
                   (long long)k, actual, wanted);
            EXPECT(!"the gradient agrees");
            break;
        }
        arena_free(memory);
    }
}

/* orders: 1, or 2 to check the gradient's gradient too. */
static inline void trial_check(trial *t, node output, int orders)
{
    node loss = trial_weigh(t, output), first[TRIAL_INPUTS], second[TRIAL_INPUTS], sum = 0;
    if (!graph_gradient(t->g, loss, t->inputs, t->input_count, first)) return;
    trial_compare(t, loss, first, "1");
    if (orders < 2) return;
    for (int i = 0; i < t->input_count; i++) {
        node part = trial_weigh(t, first[i]);
        sum = sum ? graph_binary(t->g, OP_ADD, sum, part) : part;
    }
    if (!graph_gradient(t->g, sum, t->inputs, t->input_count, second)) return;
    trial_compare(t, sum, second, "2");
}

#endif
