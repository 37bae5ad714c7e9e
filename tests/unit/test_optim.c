/*
 * The optimisers' graph code, interpreted in double over several steps, against plain loops of the formulas that
 * PyTorch documents; updates of few rows against updates of all; clipping; that nothing of a table's size is made
 * where a gradient names rows, and that indices are sorted once.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/fuse.h"
#include "tensor/optim.h"
#include "ir/graph_interp.h"
#include "test.h"

#define N 12
#define ROWS 4
#define STEPS 5

/* Parameters [ROWS][N / ROWS] with state, as the loops have them. */
typedef struct plain {
    double p[N], a[N], b[N]; /* parameter, first state, second state */
} plain;

static double random_number(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return 2 * ((double)(*state >> 11) / (double)(1ull << 53)) - 1;
}

/* One step of element i: PyTorch's documented loops, spelled out. */
static void plain_element(qn_optimizer_kind kind, const qn_optimizer_options *o, int t, plain *s, int i, double d,
                          double row_mean)
{
    double p = s->p[i];
    if (kind == QN_ADAMW)
        p -= o->rate * o->weight_decay * p;
    else
        d += o->weight_decay * p;
    if (kind == QN_SGD) {
        if (o->momentum != 0) {
            s->a[i] = t > 1 ? o->momentum * s->a[i] + (1 - o->dampening) * d : d;
            d = o->nesterov ? d + o->momentum * s->a[i] : s->a[i];
        }
        p -= o->rate * d;
    } else if (kind == QN_ADAM || kind == QN_ADAMW) {
        s->a[i] = o->beta1 * s->a[i] + (1 - o->beta1) * d;
        s->b[i] = o->beta2 * s->b[i] + (1 - o->beta2) * d * d;
        double mean = s->a[i] / (1 - pow(o->beta1, t)), square = s->b[i] / (1 - pow(o->beta2, t));
        p -= o->rate * mean / (sqrt(square) + o->epsilon);
    } else {
        s->a[i] += kind == QN_ADAGRAD ? d * d : row_mean;
        p -= o->rate / (1 + (t - 1) * o->rate_decay) * d / (sqrt(s->a[i]) + o->epsilon);
    }
    s->p[i] = p;
}

static void plain_step(qn_optimizer_kind kind, const qn_optimizer_options *o, int t, plain *s, const double *d,
                       const bool *touched)
{
    int row = N / ROWS;
    for (int r = 0; r < ROWS; r++) {
        if (touched && !touched[r]) continue;
        double mean = 0;
        for (int k = 0; k < row; k++) {
            double full = d[r * row + k] + o->weight_decay * s->p[r * row + k];
            mean += full * full / row;
        }
        for (int k = 0; k < row; k++) plain_element(kind, o, t, s, r * row + k, d[r * row + k], mean);
    }
}

typedef struct machine {
    arena *memory;
    graph *g;
    optim_step step;
    optim_values old;
    double p[N], a[N], b[N], rate, steps;
} machine;

/* A graph whose leaves read the machine's numbers. */
static void machine_begin(machine *m, qn_optimizer_kind kind, const qn_optimizer_options *o, int t)
{
    m->memory = arena_new();
    m->g = graph_new(m->memory);
    m->rate = o->rate;
    m->steps = t;
    shape s = {2, {ROWS, N / ROWS}}, state = optim_state_shape(kind, &s);
    m->step = (optim_step){.g = m->g, .kind = kind, .options = *o};
    m->step.rate = graph_leaf(m->g, DT_F64, &(shape){0}, NULL, 0, &m->rate);
    m->step.steps = graph_leaf(m->g, DT_F64, &(shape){0}, NULL, 0, &m->steps);
    m->old.parameter = graph_leaf(m->g, DT_F64, &s, NULL, 0, m->p);
    m->old.state[0] = graph_leaf(m->g, DT_F64, &state, NULL, 0, m->a);
    m->old.state[1] = graph_leaf(m->g, DT_F64, &state, NULL, 0, m->b);
}

/* The new values into the machine's numbers. */
static void machine_end(machine *m, const optim_values *new)
{
    int count = 1 + optim_state_count(m->step.kind, &m->step.options);
    node wanted[3] = {new->parameter, new->state[0], new->state[1]};
    graph_tensor got[3];
    qn_error error = {0};
    EXPECT(m->g->status == QN_OK);
    if (m->g->status) printf("%s\n", m->g->error.message);
    if (m->g->status || graph_interpret(m->g, wanted, count, NULL, true, m->memory, got, &error)) {
        EXPECT_TEXT(error.message, "");
    } else {
        double *to[3] = {m->p, m->a, m->b};
        for (int i = 0; i < count; i++)
            for (int64_t k = 0; k < got[i].count; k++) to[i][k] = got[i].elements[k].f;
    }
    arena_free(m->memory);
}

static node numbers(graph *g, shape s, double *data)
{
    return graph_leaf(g, DT_F64, &s, NULL, 0, data);
}

static void compare(const char *name, const machine *m, const plain *s)
{
    for (int i = 0; i < N; i++) {
        if (fabs(m->p[i] - s->p[i]) < 1e-12) continue;
        printf("%s: parameter %d is %.15g, not %.15g\n", name, i, m->p[i], s->p[i]);
        EXPECT(!"the parameters agree");
        return;
    }
}

typedef struct setup {
    const char *name;
    qn_optimizer_kind kind;
    qn_optimizer_options o;
} setup;

static const setup SETUPS[] = {
    {"sgd", QN_SGD, {.rate = 0.1}},
    {"sgd with decay", QN_SGD, {.rate = 0.1, .weight_decay = 0.05}},
    {"sgd with momentum", QN_SGD, {.rate = 0.1, .momentum = 0.9, .weight_decay = 0.01}},
    {"sgd with dampening", QN_SGD, {.rate = 0.1, .momentum = 0.9, .dampening = 0.4}},
    {"sgd of Nesterov", QN_SGD, {.rate = 0.1, .momentum = 0.8, .nesterov = true, .weight_decay = 0.01}},
    {"adam", QN_ADAM, {.rate = 0.01, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8}},
    {"adam with decay", QN_ADAM, {.rate = 0.01, .beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.1}},
    {"adamw", QN_ADAMW, {.rate = 0.01, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1}},
    {"adam without means", QN_ADAM, {.rate = 0.01, .beta1 = 0, .beta2 = 0, .epsilon = 1e-3}},
    {"adagrad", QN_ADAGRAD, {.rate = 0.1, .epsilon = 1e-10, .rate_decay = 0.3, .weight_decay = 0.02}},
    {"adagrad from a sum", QN_ADAGRAD, {.rate = 0.1, .epsilon = 1e-10, .initial_sum = 0.5}},
    {"row-wise adagrad", QN_ROW_ADAGRAD, {.rate = 0.1, .epsilon = 1e-8}},
    {"row-wise adagrad with decay", QN_ROW_ADAGRAD, {.rate = 0.1, .epsilon = 1e-8, .weight_decay = 0.1}},
};

static void start(const setup *c, machine *m, plain *s, uint64_t *random)
{
    for (int i = 0; i < N; i++) m->p[i] = s->p[i] = random_number(random);
    for (int i = 0; i < N; i++) m->a[i] = s->a[i] = c->kind >= QN_ADAGRAD ? c->o.initial_sum : 0;
    for (int i = 0; i < N; i++) m->b[i] = s->b[i] = 0;
}

TEST(every_kind_against_its_formula)
{
    for (int c = 0; c < COUNT(SETUPS); c++) {
        uint64_t random = 99991 + (uint64_t)c;
        machine m = {0};
        plain s;
        start(&SETUPS[c], &m, &s, &random);
        for (int t = 1; t <= STEPS; t++) {
            double d[N];
            for (int i = 0; i < N; i++) d[i] = random_number(&random);
            machine_begin(&m, SETUPS[c].kind, &SETUPS[c].o, t);
            optim_values new = optim_update(&m.step, &m.old, numbers(m.g, (shape){2, {ROWS, N / ROWS}}, d));
            machine_end(&m, &new);
            plain_step(SETUPS[c].kind, &SETUPS[c].o, t, &s, d, NULL);
            compare(SETUPS[c].name, &m, &s);
        }
    }
}

/* The largest tensor that some op on the way to `wanted` makes out of nothing or by arithmetic, in elements. */
static int64_t largest_computed(const graph *g, const node *wanted, int count)
{
    arena *memory = arena_new();
    node *order = ARENA_ARRAY(memory, node, g->node_count);
    int order_count = graph_order(g, wanted, count, order);
    int64_t largest = 0;
    for (int i = 0; i < order_count; i++) {
        const graph_node *n = graph_get(g, order[i]);
        if (n->code == GRAPH_LEAF || n->code == GRAPH_FULL ||
            (n->code == GRAPH_TAKE_ADD && !n->attr.axis && graph_get(g, n->inputs[0])->code == GRAPH_LEAF))
            continue; /* what is there, and what is changed in place */
        largest = MAXIMUM(largest, shape_count(&n->shape));
    }
    arena_free(memory);
    return largest;
}

/* Rows 2, 0, 2, 2 of four: row 2 three times, rows 1 and 3 never. */
static void of_rows(const setup *c, bool lazy)
{
    int row = N / ROWS;
    static int64_t index[4] = {2, 0, 2, 2};
    bool touched[ROWS] = {true, false, true, false};
    uint64_t random = 4711;
    machine m = {0};
    plain s;
    start(c, &m, &s, &random);
    qn_optimizer_options o = c->o;
    o.lazy_rows = lazy;
    for (int t = 1; t <= STEPS; t++) {
        double updates[N], d[N] = {0};
        for (int i = 0; i < N; i++) updates[i] = random_number(&random);
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < row; k++) d[index[i] * row + k] += updates[i * row + k];
        machine_begin(&m, c->kind, &o, t);
        graph *g = m.g;
        /* Two embeddings of one table: [2, 0] and [[2], [2]]. */
        node zero = graph_full_double(g, DT_F64, &(shape){2, {ROWS, row}}, 0);
        node first = graph_leaf(g, DT_I64, &(shape){1, {2}}, NULL, 0, index);
        node second = graph_leaf(g, DT_I64, &(shape){2, {2, 1}}, NULL, 0, index + 2);
        node gradient = graph_take_add(g, zero, first, numbers(g, (shape){2, {2, row}}, updates), 0);
        gradient = graph_take_add(g, gradient, second, numbers(g, (shape){3, {2, 1, row}}, updates + 2 * row), 0);
        optim_values new = optim_update(&m.step, &m.old, gradient);
        machine_end(&m, &new);
        plain_step(c->kind, &o, t, &s, d, lazy ? touched : NULL);
        compare(c->name, &m, &s);
    }
}

TEST(gradients_of_rows)
{
    for (int c = 0; c < COUNT(SETUPS); c++) {
        of_rows(&SETUPS[c], false);
        of_rows(&SETUPS[c], true);
    }
}

/* Kernels of the plan that sort. */
static int count_sorts(graph *g, const node *wanted, int count, arena *memory)
{
    fuse_leaf *leaves = ARENA_ARRAY(memory, fuse_leaf, g->node_count);
    for (int n = 1; n < g->node_count; n++) {
        leaves[n].given = graph_get(g, (node)n)->code == GRAPH_LEAF;
        memcpy(leaves[n].strides, graph_get(g, (node)n)->attr.strides, sizeof(leaves[n].strides));
    }
    fuse_options options = {.units = 2};
    fuse_plan *plan;
    qn_error error = {0};
    int sorts = 0;
    if (fuse_plan_make(g, leaves, wanted, count, NULL, 0, &options, memory, &plan, &error)) {
        EXPECT_TEXT(error.message, "");
        return -1;
    }
    for (int k = 0; k < plan->kernel_count; k++)
        for (int i = 0; i < plan->kernels[k].node_count; i++)
            sorts += graph_get(g, plan->kernels[k].nodes[i])->code == GRAPH_ARGSORT;
    return sorts;
}

TEST(untouched_rows_are_neither_read_nor_written)
{
    for (int c = 0; c < COUNT(SETUPS); c++) {
        arena *memory = arena_new();
        graph *g = graph_new(memory);
        shape table = {2, {100000, 8}}, state = optim_state_shape(SETUPS[c].kind, &table);
        double number = 0;
        int64_t index = 0;
        optim_step step = {.g = g, .kind = SETUPS[c].kind, .options = SETUPS[c].o};
        step.options.lazy_rows = true;
        step.rate = step.steps = graph_leaf(g, DT_F64, &(shape){0}, NULL, 0, &number);
        node p = graph_leaf(g, DT_F32, &table, NULL, 0, &step), d;
        optim_values old = {p,
                            {graph_leaf(g, DT_F32, &state, NULL, 0, &old), graph_leaf(g, DT_F32, &state, NULL, 0, &d)}};
        node rows = graph_take(g, p, graph_leaf(g, DT_I64, &(shape){1, {50}}, NULL, 0, &index), 0);
        node loss = graph_reduce(g, FOLD_SUM, graph_binary(g, OP_MUL, rows, rows), 3);
        EXPECT(graph_gradient(g, loss, &p, 1, &d));
        optim_values new = optim_update(&step, &old, d);
        int count = 1 + optim_state_count(step.kind, &step.options);
        EXPECT(largest_computed(g, (node[]){new.parameter, new.state[0], new.state[1]}, count) <= 50 * 8);
        EXPECT(g->status == QN_OK);
        EXPECT(count_sorts(g, (node[]){new.parameter, new.state[0], new.state[1]}, count, memory) == 1);
        arena_free(memory);
    }
}

/* ---- clipping ---- */

static void interpret(graph *g, node n, arena *memory, double *out)
{
    graph_tensor got;
    qn_error error = {0};
    if (graph_interpret(g, &n, 1, NULL, true, memory, &got, &error)) {
        EXPECT_TEXT(error.message, "");
        return;
    }
    for (int64_t i = 0; i < got.count; i++) out[i] = got.elements[i].f;
}

TEST(clipping_by_norm)
{
    double limits[] = {1, 100};
    for (int c = 0; c < 2; c++) {
        arena *memory = arena_new();
        graph *g = graph_new(memory);
        double a[3] = {3, 0, 4}, b[4] = {12, -1, 5, 1}, out[8], norm;
        int64_t index[2] = {1, 1};
        node zero = graph_full_double(g, DT_F64, &(shape){2, {3, 2}}, 0);
        node rows = graph_leaf(g, DT_I64, &(shape){1, {2}}, NULL, 0, index);
        node list[3] = {numbers(g, (shape){1, {3}}, a), 0,
                        graph_take_add(g, zero, rows, numbers(g, (shape){2, {2, 2}}, b), 0)};
        node total = optim_clip_norm(g, list, 3, limits[c]);
        interpret(g, total, memory, &norm);
        double expected = sqrt(25 + 17 * 17); /* the two rows are one: {17, 0} */
        double factor = fmin(limits[c] / (expected + 1e-6), 1);
        EXPECT_NEAR(norm, expected, 1e-9);
        EXPECT(list[1] == 0);
        interpret(g, list[0], memory, out);
        for (int i = 0; i < 3; i++) EXPECT_NEAR(out[i], a[i] * factor, 1e-9);
        interpret(g, list[2], memory, out);
        double dense[6] = {0, 0, 17, 0, 0, 0};
        for (int i = 0; i < 6; i++) EXPECT_NEAR(out[i], dense[i] * factor, 1e-9);
        sparse_rows found;
        EXPECT(sparse_rows_find(g, list[2], &found));
        arena_free(memory);
    }
}

TEST(clipping_by_value)
{
    arena *memory = arena_new();
    graph *g = graph_new(memory);
    double a[3] = {3, -0.5, -4}, b[4] = {2, -1, -1.5, -1}, out[8];
    int64_t index[2] = {1, 1};
    node zero = graph_full_double(g, DT_F64, &(shape){2, {3, 2}}, 0);
    node rows = graph_leaf(g, DT_I64, &(shape){1, {2}}, NULL, 0, index);
    node list[2] = {numbers(g, (shape){1, {3}}, a),
                    graph_take_add(g, zero, rows, numbers(g, (shape){2, {2, 2}}, b), 0)};
    optim_clip_value(g, list, 2, 1);
    double clipped[3] = {1, -0.5, -1}, dense[6] = {0, 0, 0.5, -1, 0, 0};
    interpret(g, list[0], memory, out);
    for (int i = 0; i < 3; i++) EXPECT_NEAR(out[i], clipped[i], 1e-12);
    interpret(g, list[1], memory, out);
    for (int i = 0; i < 6; i++) EXPECT_NEAR(out[i], dense[i], 1e-12);
    arena_free(memory);
}

TEST_MAIN(CASE(every_kind_against_its_formula), CASE(gradients_of_rows),
          CASE(untouched_rows_are_neither_read_nor_written), CASE(clipping_by_norm), CASE(clipping_by_value))
