/*
 * Sorting, selecting and adding by index as a GPU does it, on emu ($QUERN_TEST_DEVICE: elsewhere) against the interpreter:
 * rows shorter and longer than a run, more rows than a grid is wide, equal keys, NaN, infinities and both zeros; the
 * first k of rows that are read in parts; one index that occurs all the time; counting. Then the same on the CPU.
 * SPDX-License-Identifier: MIT
 */
#include "share.h"
#include "tensor.h"

#include <math.h>
#include <string.h>

static unsigned seed = 1;

static int draw(int limit)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (unsigned)limit);
}

/* Few different numbers, so that many are equal. */
static qn_tensor numbers(qn_dtype elem, qn_shape shape, int different)
{
    int64_t count = 1;
    for (int k = 0; k < shape.rank; k++) count *= shape.extents[k];
    double *values = malloc(sizeof(double) * (size_t)(count + 1));
    bool real = elem == QN_F32 || elem == QN_BF16 || elem == QN_F64;
    for (int64_t i = 0; i < count; i++) {
        int what = real ? draw(40) : 40;
        values[i] = what == 0 ? NAN : what == 1 ? INFINITY : what == 2 ? -INFINITY : what == 3 ? -0.0 : draw(different);
        if (what > 3 && elem != QN_U8 && elem != QN_BOOL) values[i] -= different / 2;
    }
    float *data = malloc(sizeof(float) * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++) data[i] = (float)values[i];
    qn_tensor x = qn_cast(qn_from_memory(tape, data, QN_F32, shape), elem);
    free(values);
    free(data);
    return x;
}

static void all_values(qn_tensor t)
{
    int64_t count = qn_tensor_count(t);
    double *values = malloc(sizeof(double) * (size_t)(count + 1));
    EXPECT(tensor_values(t, values, count) == count);
    free(values);
}

static void begin(void)
{
    if (!getenv("QUERN_TEST_DEVICE")) setenv("QUERN_TEST_DEVICE", "emu", 1);
    tensor_on_device = true;
    tape_open();
}

TEST(sorting)
{
    static const struct {
        qn_shape shape;
        int axis;
        qn_dtype elem;
    } cases[] = {
        {{1, {1}}, 0, QN_F32},       {{1, {2}}, 0, QN_F32},      {{2, {5, 3}}, 1, QN_F32},
        {{2, {300, 7}}, 1, QN_I32},  {{2, {9, 257}}, 1, QN_F32}, {{3, {3, 40, 5}}, 1, QN_F32},
        {{2, {70, 6}}, 0, QN_BF16},  {{1, {9000}}, 0, QN_F32},   {{2, {66000, 2}}, 1, QN_U8},
        {{2, {2, 2049}}, 1, QN_I32}, {{1, {17}}, 0, QN_BOOL},    {{2, {3, 70}}, 1, QN_I64},
        {{2, {40, 3}}, 0, QN_F64},
    };
    for (int i = 0; i < COUNT(cases); i += share_of_few("cases"))
        for (int down = 0; down < (cases[i].shape.extents[0] > 65535 ? 1 : 2); down++) { /* more than a grid: once */
            begin();
            qn_tensor places, x = numbers(cases[i].elem, cases[i].shape, 50);
            all_values(qn_sort(x, cases[i].axis, down, &places));
            all_values(places);
            tape_close();
        }
}

TEST(selecting)
{
    static const struct {
        int64_t shape[2], k;
        int axis;
        qn_dtype elem;
    } cases[] = {
        {{5, 100}, 8, 1, QN_F32},  {{3, 129}, 1, 1, QN_F32}, {{2, 5000}, 32, 1, QN_I32}, {{1, 9001}, 5, 1, QN_F32},
        {{40, 6}, 3, 0, QN_F32},   {{4, 20}, 10, 1, QN_F32}, {{3, 70}, 33, 1, QN_F32},   {{2, 4}, 0, 1, QN_F32},
        {{66000, 5}, 2, 1, QN_U8}, {{7, 65}, 7, 1, QN_BF16},
    };
    for (int i = 0; i < COUNT(cases); i += share_of_few("cases"))
        for (int largest = 0; largest < (cases[i].shape[0] > 65535 ? 1 : 2); largest++) {
            begin();
            qn_tensor places, x = numbers(cases[i].elem, QN_SHAPE(cases[i].shape[0], cases[i].shape[1]), 30);
            all_values(qn_topk(x, cases[i].k, cases[i].axis, largest, &places));
            all_values(places);
            tape_close();
        }
}

/* A selection is no sort: what is launched says so. */
TEST(first_of_many_are_selected)
{
    begin();
    qn_tensor x = numbers(QN_F32, QN_SHAPE(4, 1000), 30), order = qn_argsort(x, 1, true);
    all_values(qn_add(qn_slice(order, 1, 0, 4, 1), qn_slice(order, 1, 2, 6, 1))); /* the second begins elsewhere */
    tape_close();
}

static qn_tensor indices(int64_t count, int places, int usual)
{
    int64_t *at = malloc(sizeof(int64_t) * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++) at[i] = draw(3) < usual ? places / 2 : draw(places);
    qn_tensor index = qn_from_memory(tape, at, QN_I64, QN_SHAPE(count));
    free(at);
    return index;
}

TEST(adding)
{
    static const struct {
        int64_t count, width;
        int places, usual;
        qn_dtype elem;
    } cases[] = {
        {1, 1, 1, 0, QN_F32},    {700, 1, 30, 0, QN_F32}, {700, 1, 4, 2, QN_F32},    {2000, 1, 5, 3, QN_F32},
        {1025, 3, 7, 2, QN_F32}, {300, 20, 9, 2, QN_F32}, {900, 2, 40, 1, QN_I32},   {600, 1, 3, 3, QN_BF16},
        {512, 1, 1, 3, QN_F32},  {513, 2, 2, 3, QN_I32},  {16400, 1, 37, 3, QN_F32},
    };
    static float data[40000];
    for (int i = 0; i < COUNT(cases); i += share_of_few("cases"))
        for (int same = 0; same < 2; same++) {
            begin();
            qn_shape shape = QN_SHAPE(cases[i].count, cases[i].width), to = QN_SHAPE(cases[i].places, cases[i].width);
            qn_tensor index = indices(cases[i].count, cases[i].places, cases[i].usual);
            for (int64_t k = 0; k < cases[i].count * cases[i].width; k++) data[k] = (float)(draw(9) - 4);
            qn_tensor updates = same ? qn_full(tape, cases[i].elem, shape, 2)
                                     : qn_cast(qn_from_memory(tape, data, QN_F32, shape), cases[i].elem);
            qn_tensor base = qn_full(tape, cases[i].elem, to, 1);
            all_values(qn_index_add(base, 0, index, updates));
            qn_tensor every = qn_expand(qn_reshape(index, QN_SHAPE(cases[i].count, 1)), shape);
            all_values(qn_scatter_add(base, 0, every, updates));
            tape_close();
        }
}

/* An infinity goes where it was added and nowhere else. */
TEST(counting_infinities)
{
    begin();
    int64_t at[] = {1, 3, 1};
    qn_tensor index = qn_from_memory(tape, at, QN_I64, QN_SHAPE(3));
    EXPECT_TENSOR(
        qn_index_add(qn_full(tape, QN_F32, QN_SHAPE(4), 1), 0, index, qn_full(tape, QN_F32, QN_SHAPE(3), INFINITY)),
        QN_SHAPE(4), 1, INFINITY, 1, INFINITY);
    tape_close();
}

/* Rows are added to a variable where it is: runs shorter and longer than what some lanes add up, up to all of them, rows
 * of any length. */
TEST(adding_in_place)
{
    static const int rows[] = {16, 17, 20, 64, 128};
    enum { PLACES = 700, TABLE = 90 };
    for (int i = 0; i < COUNT(rows); i++)
        for (int skew = 0; skew < 3; skew++) {
            int64_t index[PLACES];
            float *updates = malloc(sizeof(float) * PLACES * (size_t)rows[i]);
            for (int k = 0; k < PLACES; k++) index[k] = skew == 2 ? 5 : skew && draw(2) ? 7 : draw(TABLE);
            for (int k = 0; k < PLACES * rows[i]; k++) updates[k] = (float)(draw(9) - 4);
            float expected[TABLE * 128], found[TABLE * 128];
            for (int k = 0; k < TABLE * rows[i]; k++) expected[k] = (float)(k % 11);
            begin();
            qn_tensor table = qn_variable(qn_from_memory(tape, expected, QN_F32, QN_SHAPE(TABLE, rows[i])));
            EXPECT(qn_eval(tape, NULL, 0, NULL) == QN_OK);
            qn_tensor at = qn_from_memory(tape, index, QN_I64, QN_SHAPE(PLACES));
            qn_tensor more = qn_from_memory(tape, updates, QN_F32, QN_SHAPE(PLACES, rows[i]));
            qn_assign(table, qn_index_add(table, 0, at, more));
            qn_error error = {0};
            bool read = qn_tensor_read(table, found, sizeof(float) * TABLE * (size_t)rows[i], &error) == QN_OK;
            if (!read) printf("%s\n", error.message);
            EXPECT(read);
            for (int k = 0; k < PLACES; k++)
                for (int e = 0; e < rows[i] && index[k] < TABLE; e++)
                    expected[index[k] * rows[i] + e] += updates[k * rows[i] + e];
            int wrong = 0; /* whole numbers: exact in any order */
            for (int k = 0; k < TABLE * rows[i]; k++) wrong += found[k] != expected[k];
            EXPECT(wrong == 0);
            tape_close();
            free(updates);
        }
}

/* What is given with strides is read with them: columns of rows, every other number. */
TEST(given_with_strides)
{
    static const char text[] = "tensor first(float x[N][D]) { let (v, i) = topk(x, 2, axis = 1); return v; }\n"
                               "tensor order(float x[N][D]) { return argsort(x, axis = 1); }\n";
    static const char *const devices[] = {"emu", "cpu"};
    enum { ROWS = 33, LENGTH = 300 };
    static float data[2 * ROWS * LENGTH], first[2][ROWS * 2];
    static int64_t order[2][ROWS * LENGTH];
    for (int i = 0; i < COUNT(data); i++) data[i] = (float)(i * 7919LL % 10007);
    qn_module *module;
    qn_call *call;
    qn_error error;
    qn_context *context;
    EXPECT(!qn_context_open(NULL, &context, &error));
    EXPECT(!qn_module_load_text(context, "first.qn", text, &module, &error));
    for (int d = -1; d < COUNT(devices); d++)
        for (int k = 0; k < 2; k++) {
            EXPECT(!qn_call_new(module, k ? "order" : "first", &call, &error));
            EXPECT(!qn_call_set_memory(call, "x", data, QN_F32, 2, (int64_t[]){ROWS, LENGTH}, (int64_t[]){2, 2 * ROWS},
                                       &error)); /* turned, every other number */
            void *out = k ? (void *)order[d >= 0] : first[d >= 0];
            EXPECT(!qn_call_set_memory(call, "result0", out, k ? QN_I64 : QN_F32, 2, (int64_t[]){ROWS, k ? LENGTH : 2},
                                       NULL, &error));
            EXPECT(!qn_call_run(call, d < 0 ? "ref" : devices[d], &error));
            if (d >= 0)
                EXPECT(k ? !memcmp(order[0], order[1], sizeof(order[0]))
                         : !memcmp(first[0], first[1], sizeof(first[0])));
            qn_call_free(call);
        }
    qn_module_free(module);
    qn_context_close(context);
}

/* Two selections of one row, two sums by one index: one text, and each as long as it was asked to be. */
TEST(of_several_lengths)
{
    begin();
    qn_tensor places, longer, x = numbers(QN_F32, QN_SHAPE(5, 300), 30), index = indices(5000, 7, 1);
    qn_tensor least = qn_topk(x, 2, 1, true, &places), more = qn_topk(x, 3, 1, true, &longer);
    all_values(qn_concat((qn_tensor[]){least, more}, 2, 1));
    all_values(qn_concat((qn_tensor[]){places, longer}, 2, 1));
    qn_tensor ones = qn_ones(tape, QN_F32, QN_SHAPE(5000));
    qn_tensor few = qn_index_add(qn_zeros(tape, QN_F32, QN_SHAPE(7)), 0, index, ones);
    qn_tensor many = qn_index_add(qn_zeros(tape, QN_F32, QN_SHAPE(900)), 0, index, ones);
    all_values(qn_concat((qn_tensor[]){few, many}, 2, 0));
    tape_close();
}

/* By kernels in C. */
TEST(on_a_cpu)
{
    const char *device = getenv("QUERN_TEST_DEVICE");
    if (device && strcmp(device, "emu") != 0) return;
    setenv("QUERN_TEST_DEVICE", "cpu", 1);
    sorting();
    selecting();
    adding();
    of_several_lengths();
    setenv("QUERN_TEST_DEVICE", "emu", 1);
}

TEST_MAIN(CASE(sorting), CASE(selecting), CASE(first_of_many_are_selected), CASE(adding), CASE(counting_infinities),
          CASE(adding_in_place), CASE(given_with_strides), CASE(of_several_lengths), CASE(on_a_cpu))
