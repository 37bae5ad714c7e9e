/*
 * Random programs over a tape: values made of others, views, variables that are assigned, evaluations here and there,
 * scopes, releases, and steps that are recorded and replayed. Beside it the same program on plain arrays, where a call
 * means what it says at once. Values are small whole numbers, so that both are equal to the bit.
 * QUERN_TAPES=COUNT tries more, QUERN_TAPE_SEED=N starts elsewhere, QUERN_TAPE_OPS=N longer ones.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "share.h"
#include "test.h"

#include <quern/tensor.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES = 14, RANK = 3, MOST = 8192, STEP_CALLS = 12 };

typedef struct value {
    bool live, variable;
    int scope;
    qn_tensor t;
    int rank;
    int64_t extents[RANK], count;
    double *data;
} value;

typedef struct program {
    uint64_t state;
    qn_tape *tape;
    value values[VALUES];
    int scope;
    text words;
} program;

static qn_context *context;
static qn_error error;

static int pick(program *p, int count)
{
    p->state = p->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((p->state >> 33) % (uint64_t)count);
}

static qn_shape shape_of(const value *v)
{
    qn_shape s = {.rank = v->rank};
    for (int k = 0; k < v->rank; k++) s.extents[k] = v->extents[k];
    return s;
}

/* Whole numbers stay between 0 and 6. */
static double small(double x)
{
    return x - 7 * floor(x / 7);
}

static void value_free(value *v)
{
    free(v->data);
    *v = (value){0};
}

static value *slot_for(program *p)
{
    for (int i = 0; i < VALUES; i++)
        if (!p->values[i].live) return &p->values[i];
    return NULL;
}

static value *any_value(program *p, bool variable)
{
    for (int tries = 0; tries < 40; tries++) {
        value *v = &p->values[pick(p, VALUES)];
        if (v->live && (!variable || v->variable)) return v;
    }
    return NULL;
}

static value *value_new(program *p, int rank, const int64_t *extents)
{
    value *v = slot_for(p);
    int64_t count = 1;
    for (int k = 0; k < rank; k++) count *= extents[k];
    if (!v || count > MOST) return NULL;
    *v = (value){.live = true, .scope = p->scope, .rank = rank, .count = count};
    memcpy(v->extents, extents, sizeof(int64_t) * (size_t)rank);
    v->data = calloc((size_t)count + 1, sizeof(double));
    return v;
}

static void coordinates(const value *v, int64_t i, int64_t *at)
{
    for (int k = v->rank - 1; k >= 0; k--) {
        at[k] = i % v->extents[k];
        i /= v->extents[k];
    }
}

static double at(const value *v, const int64_t *where)
{
    int64_t i = 0;
    for (int k = 0; k < v->rank; k++) i = i * v->extents[k] + where[k];
    return v->data[i];
}

static qn_tensor made_small(qn_tensor t)
{
    return qn_sub(t, qn_mul_scalar(qn_floor(qn_mul_scalar(qn_add_scalar(t, 0.5), 1.0 / 7)), 7));
}

/* ---- calls, by number: on the tape, and on arrays ---- */

typedef struct call {
    int kind, a, b, axis, amount, to; /* values by their slots */
} call;

enum { ADD, SUB, MUL, LARGER, TRANSPOSE, SLICE, FLIP, SUM, SCAN, RESHAPE, JOIN, SORT, TAKE, MATMUL, ASSIGN, KINDS };

static const char *const names[] = {"add",    "sub",     "mul",    "maximum", "transpose",    "slice",  "flip",  "sum",
                                    "cumsum", "reshape", "concat", "sort",    "index_select", "matmul", "assign"};

/* What of a call is right for its operands; false: not this one. */
static bool result_shape(const program *p, const call *c, int *rank, int64_t *extents)
{
    const value *a = &p->values[c->a], *b = &p->values[c->b];
    bool same = a->rank == b->rank && !memcmp(a->extents, b->extents, sizeof(int64_t) * (size_t)a->rank);
    *rank = a->rank;
    memcpy(extents, a->extents, sizeof(a->extents));
    if (c->kind < TRANSPOSE || c->kind == ASSIGN) return same;
    if (!a->rank || c->axis >= a->rank) return false;
    int next = (c->axis + 1) % a->rank;
    switch (c->kind) {
    case TRANSPOSE:
        extents[c->axis] = a->extents[next];
        extents[next] = a->extents[c->axis];
        return true;
    case SLICE: extents[c->axis] = (a->extents[c->axis] - c->amount + 1) / 2; return extents[c->axis] > 0;
    case SUM: extents[c->axis] = 1; return true;
    case RESHAPE:
        *rank = 2;
        extents[0] = a->extents[c->axis];
        extents[1] = a->count / MAXIMUM(extents[0], 1);
        return true;
    case JOIN:
        if (!same) return false;
        extents[c->axis] *= 2;
        return true;
    case TAKE: extents[c->axis] = 1 + c->amount; return true;
    case MATMUL:
        if (a->rank != 2 || b->rank != 2 || a->extents[1] != b->extents[0]) return false;
        extents[1] = b->extents[1];
        return true;
    default: return true;
    }
}

static int by_number(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compute(const program *p, const call *c, const value *to, double *out)
{
    const value *a = &p->values[c->a], *b = &p->values[c->b];
    for (int64_t i = 0; i < to->count; i++) {
        int64_t where[RANK] = {0}, from[RANK];
        double sum = 0;
        coordinates(to, i, where);
        memcpy(from, where, sizeof(from));
        int next = a->rank ? (c->axis + 1) % a->rank : 0;
        switch (c->kind) {
        case ADD: out[i] = small(a->data[i] + b->data[i]); break;
        case SUB: out[i] = small(a->data[i] - b->data[i]); break;
        case MUL: out[i] = small(a->data[i] * b->data[i]); break;
        case LARGER: out[i] = fmax(a->data[i], b->data[i]); break;
        case TRANSPOSE:
            from[c->axis] = where[next];
            from[next] = where[c->axis];
            out[i] = at(a, from);
            break;
        case SLICE:
            from[c->axis] = c->amount + 2 * where[c->axis];
            out[i] = at(a, from);
            break;
        case FLIP:
            from[c->axis] = a->extents[c->axis] - 1 - where[c->axis];
            out[i] = at(a, from);
            break;
        case SUM:
        case SCAN:
            for (int64_t k = 0; k < (c->kind == SUM ? a->extents[c->axis] : where[c->axis] + 1); k++) {
                from[c->axis] = k;
                sum += at(a, from);
            }
            out[i] = small(sum);
            break;
        case RESHAPE: out[i] = a->data[i]; break;
        case JOIN:
            from[c->axis] %= a->extents[c->axis];
            out[i] = at(where[c->axis] < a->extents[c->axis] ? a : b, from);
            break;
        case SORT: {
            int64_t length = a->extents[c->axis];
            double *row = malloc(sizeof(double) * (size_t)length);
            for (int64_t k = 0; k < length; k++) {
                from[c->axis] = k;
                row[k] = at(a, from);
            }
            qsort(row, (size_t)length, sizeof(double), by_number);
            out[i] = row[where[c->axis]];
            free(row);
            break;
        }
        case TAKE:
            from[c->axis] = where[c->axis] * 5 % a->extents[c->axis];
            out[i] = at(a, from);
            break;
        case MATMUL:
            for (int64_t k = 0; k < a->extents[1]; k++)
                sum += a->data[where[0] * a->extents[1] + k] * b->data[k * b->extents[1] + where[1]];
            out[i] = small(sum);
            break;
        default: out[i] = b->data[i];
        }
    }
}

/* A view of a variable would follow what it is assigned. */
static qn_tensor apart(const program *p, const call *c, qn_tensor view)
{
    return p->values[c->a].variable ? made_small(view) : view;
}

static qn_tensor on_tape(const program *p, const call *c, const value *to)
{
    qn_tensor a = p->values[c->a].t, b = p->values[c->b].t, none = {0};
    int rank = p->values[c->a].rank, next = rank ? (c->axis + 1) % rank : 0;
    switch (c->kind) {
    case ADD: return made_small(qn_add(a, b));
    case SUB: return made_small(qn_sub(a, b));
    case MUL: return made_small(qn_mul(a, b));
    case LARGER: return qn_maximum(a, b);
    case TRANSPOSE: return apart(p, c, qn_transpose(a, c->axis, next));
    case SLICE: return apart(p, c, qn_slice(a, c->axis, c->amount, QN_END, 2));
    case FLIP: return apart(p, c, qn_flip(a, QN_AXES(c->axis)));
    case SUM: return made_small(qn_sum(a, QN_AXES(c->axis), true));
    case SCAN: return made_small(qn_cumsum(a, c->axis));
    case RESHAPE: return apart(p, c, qn_reshape(a, shape_of(to)));
    case JOIN: return qn_concat((qn_tensor[]){a, b}, 2, c->axis);
    case SORT: return qn_sort(a, c->axis, false, NULL);
    case TAKE: {
        int64_t index[8];
        for (int i = 0; i <= c->amount; i++) index[i] = i * 5 % p->values[c->a].extents[c->axis];
        return qn_index_select(a, c->axis, qn_from_memory(p->tape, index, QN_I64, QN_SHAPE(c->amount + 1)));
    }
    case MATMUL: return made_small(qn_matmul(a, b));
    default: qn_assign(a, b); return none;
    }
}

static bool draw_call(program *p, call *c)
{
    value *a = any_value(p, false), *b = any_value(p, false);
    *c = (call){.kind = pick(p, KINDS + 4), .axis = pick(p, RANK), .amount = pick(p, 3)};
    if (c->kind >= KINDS) c->kind = ASSIGN;
    if (c->kind == ASSIGN) a = any_value(p, true);
    if (!a || !b || (c->kind == ASSIGN && a == b)) return false;
    c->a = (int)(a - p->values);
    c->b = (int)(b - p->values);
    for (int i = 0; i < VALUES && (c->kind < TRANSPOSE || c->kind == ASSIGN); i++) { /* one that fits */
        value *v = &p->values[(c->b + i) % VALUES];
        int rank;
        int64_t extents[RANK];
        call other = *c;
        other.b = (int)(v - p->values);
        if (!v->live || !result_shape(p, &other, &rank, extents) || (c->kind == ASSIGN && v == a)) continue;
        c->b = other.b;
        break;
    }
    return true;
}

/* The call on both sides; false: it does not fit. `make`: not only its numbers once more. */
static bool perform(program *p, call *c)
{
    int rank;
    int64_t extents[RANK];
    if (!result_shape(p, c, &rank, extents)) return false;
    value *to = c->kind == ASSIGN ? &p->values[c->a] : value_new(p, rank, extents);
    if (!to) return false;
    double *out = calloc((size_t)to->count + 1, sizeof(double));
    compute(p, c, to, out);
    qn_tensor made = on_tape(p, c, to);
    if (c->kind != ASSIGN) to->t = made;
    c->to = (int)(to - p->values);
    free(to->data);
    to->data = out;
    text_print(&p->words, "  v%d = %s v%d v%d axis %d amount %d\n", c->to, names[c->kind], c->a, c->b, c->axis,
               c->amount);
    return true;
}

/* All that there is, before contents change: what was not computed then cannot be any more. */
static bool evaluate(program *p)
{
    qn_tensor all[VALUES];
    int count = 0;
    for (int i = 0; i < VALUES; i++)
        if (p->values[i].live) all[count++] = p->values[i].t;
    text_add(&p->words, "  evaluates\n");
    bool good = qn_eval(p->tape, all, count, &error) == QN_OK;
    if (!good) text_print(&p->words, "%s\n", error.message);
    return good;
}

static bool read_back(program *p, const value *v)
{
    if (!evaluate(p)) return false;
    float *got = malloc(sizeof(float) * (size_t)(v->count + 1));
    bool good = qn_tensor_read(v->t, got, sizeof(float) * (size_t)v->count, &error) == QN_OK;
    text_print(&p->words, "  read v%d\n", (int)(v - p->values));
    if (!good) text_print(&p->words, "%s\n", error.message);
    for (int64_t i = 0; i < v->count && good; i++) {
        good = got[i] == (float)v->data[i];
        if (!good)
            text_print(&p->words, "v%d, element %lld is %g, should be %g\n", (int)(v - p->values), (long long)i,
                       (double)got[i], v->data[i]);
    }
    free(got);
    return good;
}

static void leave_scope(program *p)
{
    text_add(&p->words, "  scope ends\n");
    qn_scope_end(p->tape);
    for (int i = 0; i < VALUES; i++)
        if (p->values[i].live && p->values[i].scope == p->scope) value_free(&p->values[i]);
    p->scope--;
}

/* A step is recorded, and runs some times. */
static bool record_step(program *p)
{
    call calls[STEP_CALLS];
    int count = 0, runs = 1 + pick(p, 3);
    qn_plan *plan = NULL;
    double *before[VALUES] = {0};
    text_print(&p->words, "  records a step, of %d runs\n", runs);
    if (!evaluate(p)) return false;
    if (qn_capture_begin(p->tape, &error)) return text_print(&p->words, "%s\n", error.message), false;
    qn_scope_begin(p->tape);
    p->scope++;
    for (int i = 0; i < VALUES; i++) { /* nothing ran yet */
        const value *v = &p->values[i];
        if (!v->live) continue;
        before[i] = malloc(sizeof(double) * (size_t)(v->count + 1));
        memcpy(before[i], v->data, sizeof(double) * (size_t)v->count);
    }
    for (int tries = 0; tries < 3 * STEP_CALLS && count < STEP_CALLS; tries++) {
        call *c = &calls[count];
        if (draw_call(p, c) && perform(p, c)) count++;
    }
    bool good = qn_eval(p->tape, NULL, 0, &error) == QN_OK && qn_capture_end(p->tape, &plan, &error) == QN_OK;
    for (int i = 0; i < VALUES; i++) {
        if (before[i]) memcpy(p->values[i].data, before[i], sizeof(double) * (size_t)p->values[i].count);
        free(before[i]);
    }
    for (int run = 0; run < runs && good; run++) {
        good = qn_plan_replay(plan, &error) == QN_OK;
        for (int i = 0; i < count; i++) {
            value *to = &p->values[calls[i].to];
            double *out = calloc((size_t)to->count + 1, sizeof(double));
            compute(p, &calls[i], to, out);
            free(to->data);
            to->data = out;
        }
    }
    if (!good) text_print(&p->words, "%s\n", error.message);
    leave_scope(p);
    qn_plan_free(plan);
    return good;
}

static bool run_program(uint64_t seed, const char *device, qn_mode mode, int steps, text *words)
{
    program p = {.state = seed * 0x9e3779b97f4a7c15u + 1};
    bool good = true;
    if (qn_tape_new(context, device, &p.tape, &error)) return false;
    qn_tape_set_mode(p.tape, mode);
    for (int i = 0; i < 4; i++) {
        static const int sizes[] = {1, 2, 3, 4, 4, 5, 8, 17};
        int64_t extents[RANK];
        int rank = 1 + pick(&p, RANK);
        for (int k = 0; k < rank; k++) extents[k] = sizes[pick(&p, COUNT(sizes))];
        if (i % 2) {
            rank = p.values[i - 1].rank;
            memcpy(extents, p.values[i - 1].extents, sizeof(extents));
        }
        value *v = value_new(&p, rank, extents);
        float numbers[MOST];
        for (int64_t k = 0; k < v->count; k++) numbers[k] = (float)(v->data[k] = pick(&p, 7));
        v->t = qn_from_memory(p.tape, numbers, QN_F32, shape_of(v));
        v->variable = i != 3;
        if (v->variable) v->t = qn_variable(v->t);
        text_print(&p.words, "  v%d = %s of rank %d: %lld %lld %lld\n", i, v->variable ? "variable" : "memory", rank,
                   (long long)extents[0], (long long)extents[1], (long long)extents[2]);
    }
    for (int i = 0; i < steps && good; i++) {
        call c;
        value *v;
        switch (pick(&p, 16)) {
        case 0:
            if ((v = any_value(&p, false))) good = read_back(&p, v);
            break;
        case 1: good = evaluate(&p); break;
        case 2:
            if (p.scope < 2) qn_scope_begin(p.tape), p.scope++, text_add(&p.words, "  scope begins\n");
            break;
        case 3:
            if (p.scope) leave_scope(&p);
            break;
        case 4:
            if ((v = any_value(&p, false)) && !v->variable) {
                text_print(&p.words, "  releases v%d\n", (int)(v - p.values));
                qn_release(v->t);
                value_free(v);
            }
            break;
        case 5:
            if (!pick(&p, 2)) good = record_step(&p);
            break;
        default:
            if (draw_call(&p, &c)) perform(&p, &c);
        }
    }
    for (int i = 0; i < VALUES && good; i++)
        if (p.values[i].live) good = read_back(&p, &p.values[i]);
    if (good && qn_tape_error(p.tape, &error)) {
        text_print(&p.words, "%s\n", error.message);
        good = false;
    }
    qn_tape_free(p.tape);
    for (int i = 0; i < VALUES; i++) value_free(&p.values[i]);
    if (!good) text_add(words, text_get(&p.words));
    text_free(&p.words);
    return good;
}

static void try_programs(const char *device, int count)
{
    int first = number_from("QUERN_TAPE_SEED", 1), steps = number_from("QUERN_TAPE_OPS", 30);
    for (int i = 0; i < count && test_failures_of_case < 3; i++) {
        text words = {0};
        qn_mode mode = (first + i) % 5 == 0 ? QN_EAGER : (first + i) % 5 == 1 ? QN_STRICT : QN_FUSED;
        if (!run_program((uint64_t)(first + i), device, mode, steps, &words)) {
            printf("seed %d on %s, mode %d:\n%s", first + i, device, (int)mode, text_get(&words));
            test_fail(__FILE__, __LINE__, "a random program");
        }
        text_free(&words);
    }
}

TEST(on_ref)
{
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    try_programs("ref", count_from("QUERN_TAPES", "random programs", 150));
}

TEST(on_cpu)
{
    try_programs("cpu", count_from("QUERN_TAPES", "random programs", 4));
    qn_context_close(context);
}

TEST_MAIN(CASE(on_ref), CASE(on_cpu))
