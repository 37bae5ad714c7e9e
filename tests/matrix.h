/*
 * The matrix of tests/cases.def: its cases in groups, the kernel of a group, its data and what counts as agreement.
 * Cases of one class and type go into one kernel of several outputs, since compiling costs more than running.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_MATRIX_H
#define QUERN_TESTS_MATRIX_H

#include "base/base.h"
#include "ir/tile.h"
#include "share.h"
#include "test.h"

#include <quern/quern.h>
#include <stdlib.h>

typedef enum case_class {
    CLASS_OF_MAP,
    CLASS_OF_ROW,
    CLASS_OF_ALONG,
    CLASS_OF_DOWN,
    CLASS_OF_BLOCK,
    CLASSES
} case_class;

typedef struct matrix_case {
    case_class class;
    const char *name, *expression, *types, *result;
    double low, high, scale;
} matrix_case;

static const matrix_case cases_of_matrix[] = {
#define MAP(name, ...) {CLASS_OF_MAP, #name, __VA_ARGS__},
#define ROW(name, ...) {CLASS_OF_ROW, #name, __VA_ARGS__},
#define ALONG(name, ...) {CLASS_OF_ALONG, #name, __VA_ARGS__},
#define DOWN(name, ...) {CLASS_OF_DOWN, #name, __VA_ARGS__},
#define BLOCK(name, ...) {CLASS_OF_BLOCK, #name, __VA_ARGS__},
#include "cases.def"
};

enum { GROUP = 8 }; /* outputs of one kernel */

typedef struct shape {
    int64_t rows, columns;
    bool every_type; /* false: only for f32, since each new fact about a shape compiles again */
} shape;

static inline bool takes(const matrix_case *c, dtype t)
{
    for (const char *p = c->types; *p; p++) {
        if (*p == 'A' && t != DT_BOOL) return true;
        if (*p == 'F' && dtype_is_float(t)) return true;
        if (*p == 'f' && (t == DT_F32 || t == DT_F64)) return true;
        if (*p == 'I' && dtype_is_integer(t)) return true;
        if (*p == 'S' && dtypes[t].kind == KIND_INT) return true;
    }
    return false;
}

static inline const char *result_type(const matrix_case *c, dtype t)
{
    if (!strcmp(c->result, "T")) return dtypes[t].text;
    if (strcmp(c->result, "sum")) return c->result;
    if (dtype_is_float(t)) return t == DT_F64 ? "f64" : "f32";
    return dtypes[t].kind == KIND_UINT ? "u64" : "i64";
}

static inline void write_kernel(text *out, const char *name, const matrix_case *const *group, int count, dtype t)
{
    static const char *const result_shape[CLASSES] = {"[n]", "[rows]", "[rows][cols]", "[cols]", "[rows][cols]"};
    static const char *const place[CLASSES] = {"[i : B]", "[r]", "[r][:]", "[j : B]", "[i : 5][j : 9]"};
    case_class class = group[0]->class;
    const char *type = dtypes[t].text;
    if (class == CLASS_OF_MAP)
        text_print(out, "kernel %s(in %s a[n], in %s b[n]", name, type, type);
    else
        text_print(out, "kernel %s(in %s x[rows][cols]", name, type);
    for (int k = 0; k < count; k++) text_print(out, ", out %s y%d%s", result_type(group[k], t), k, result_shape[class]);
    switch (class) {
    case CLASS_OF_MAP:
        text_print(out,
                   ", const int B = 100) launch (cdiv(n, B))\n{\n    int i = program(0) * B;\n"
                   "    tile %s p = a[i : B], q = b[i : B];\n",
                   type);
        break;
    case CLASS_OF_ROW:
    case CLASS_OF_ALONG:
        text_print(out, ") launch (rows)\n{\n    int r = program(0);\n    tile %s v = x[r][:];\n", type);
        break;
    case CLASS_OF_DOWN:
        text_print(out,
                   ", const int B = 24) launch (cdiv(cols, B))\n{\n    int j = program(0) * B;\n    tile %s w = x[:][j "
                   ": B];\n",
                   type);
        break;
    default:
        text_print(out,
                   ") launch (cdiv(rows, 5), cdiv(cols, 9))\n{\n    int i = program(0) * 5, j = program(1) * 9;\n    "
                   "tile %s t = x[i : 5][j : 9];\n",
                   type);
        break;
    }
    for (int k = 0; k < count; k++) {
        const char *result = result_type(group[k], t);
        text_print(out, "    y%d%s = %s(%s);\n", k, place[class], result, group[k]->expression);
    }
    text_add(out, "}\n");
}

static uint64_t random_state;

static inline double random_unit(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53;
}

static inline void fill(void *data, dtype t, int64_t count, double low, double high, bool special)
{
    static const double specials[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1e-40, -1e-40};
    if (dtypes[t].kind == KIND_UINT && low < 0) low = 0;
    for (int64_t i = 0; i < count; i++) {
        double x = low + (high - low) * random_unit();
        if (special && random_unit() < 0.2) x = specials[(int)(random_unit() * COUNT(specials))];
        number n = {.f = x, .i = 0};
        if (!dtype_is_float(t)) n.i = (int64_t)floor(x);
        element_write(t, (char *)data + i * dtypes[t].size_bytes, n);
    }
}

static inline double relative_tolerance(dtype t)
{
    switch (t) {
    case DT_F64: return 1e-13;
    case DT_F32: return 3e-6;
    case DT_F16: return 2e-3;
    case DT_BF16: return 1.6e-2;
    default: return 0;
    }
}

static inline bool agrees(dtype t, number expected, number actual, double scale)
{
    if (!dtype_is_float(t)) return expected.i == actual.i;
    if (isnan(expected.f)) return isnan(actual.f);
    if (expected.f == actual.f) return true;
    double relative = relative_tolerance(t);
    if (isinf(expected.f) || isinf(actual.f)) return false;
    double least = t == DT_F32 || t == DT_F64 ? 1e-37 : 1e-6;
    return fabs(expected.f - actual.f) <= relative * fabs(expected.f) + relative * scale + least;
}

typedef struct view_kind {
    const char *name;
    int64_t step; /* of the last axis, in elements; negative: reversed */
    int64_t offset;
} view_kind;

static const view_kind views[] = {{"contiguous", 1, 0}, {"unaligned", 1, 1}, {"strided", 3, 0}, {"reversed", -1, 0}};

/* Binds an array of the given kind; data is enough for every view. */
static inline void bind(qn_call *call, const char *name, char *data, dtype t, int rank, const int64_t *extents,
                        view_kind view)
{
    qn_error error;
    int64_t strides[2] = {0, 0}, step = view.step < 0 ? -view.step : view.step;
    strides[rank - 1] = view.step;
    if (rank == 2) strides[0] = extents[1] * step + (step > 1 ? 2 : 0);
    char *first = data + dtypes[t].size_bytes * view.offset;
    if (view.step < 0 && extents[rank - 1]) first += dtypes[t].size_bytes * step * (extents[rank - 1] - 1);
    if (qn_call_set_memory(call, name, first, (qn_dtype)t, rank, extents, strides, &error) != QN_OK) {
        printf("%s\n", error.message);
        EXPECT(!"qn_call_set_memory");
    }
}

static int64_t matrix_compared;

/* One output of a device against that of ref. */
static inline void compare(qn_call *reference, qn_call *call, const matrix_case *c, int k, dtype t, shape s,
                           const char *how)
{
    qn_error error;
    qn_array expected, actual;
    char name[16];
    snprintf(name, sizeof(name), "y%d", k);
    EXPECT(qn_call_get(reference, name, &expected, &error) == QN_OK);
    EXPECT(qn_call_get(call, name, &actual, &error) == QN_OK);
    int64_t count = 1;
    for (int i = 0; i < expected.rank; i++) count *= expected.extents[i];
    matrix_compared++;
    dtype result = (dtype)expected.type;
    /* The remainder by a subnormal is all rounding: nothing to compare. */
    if (!strcmp(how, "special values") && !strcmp(c->name, "mod")) return;
    for (int64_t i = 0; i < count; i++) {
        number e = element_read(result, (char *)expected.data + i * dtypes[result].size_bytes);
        number a = element_read(result, (char *)actual.data + i * dtypes[result].size_bytes);
        if (agrees(result, e, a, c->scale)) continue;
        printf("%s of %s, %lld x %lld, %s: element %lld is %.9g (%lld), ref has %.9g (%lld)\n", c->name, dtypes[t].text,
               (long long)s.rows, (long long)s.columns, how, (long long)i, a.f, (long long)a.i, e.f, (long long)e.i);
        test_fail(__FILE__, __LINE__, "device agrees with ref");
        return;
    }
}

typedef void matrix_group(const matrix_case *const *group, int count, dtype t);
/* Cases that share class, type and data range go together. */
static inline void run_type(dtype t, matrix_group *run)
{
    static int met;
    bool done[COUNT(cases_of_matrix)] = {false};
    for (int i = 0; i < COUNT(cases_of_matrix); i++) {
        if (done[i] || !takes(&cases_of_matrix[i], t)) continue;
        const matrix_case *group[GROUP];
        int count = 0;
        for (int j = i; j < COUNT(cases_of_matrix) && count < GROUP; j++) {
            const matrix_case *c = &cases_of_matrix[j];
            if (done[j] || c->class != cases_of_matrix[i].class || c->low != cases_of_matrix[i].low ||
                c->high != cases_of_matrix[i].high || !takes(c, t))
                continue;
            group[count++] = c;
            done[j] = true;
        }
        if (met++ % share_of("groups of operations") == 0) run(group, count, t);
    }
}

/* One test for each type that has cases: run(type). */
#define TYPE_TEST(name, run) \
    TEST(matrix_##name)      \
    {                        \
        run(DT_##name);      \
    }
#define TEST_EVERY_TYPE(run) \
    TYPE_TEST(F32, run)      \
    TYPE_TEST(F64, run)      \
    TYPE_TEST(F16, run)      \
    TYPE_TEST(BF16, run)     \
    TYPE_TEST(I8, run)       \
    TYPE_TEST(I16, run)      \
    TYPE_TEST(I32, run)      \
    TYPE_TEST(I64, run)      \
    TYPE_TEST(U8, run)       \
    TYPE_TEST(U16, run)      \
    TYPE_TEST(U32, run)      \
    TYPE_TEST(U64, run)

#endif
