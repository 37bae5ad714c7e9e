/*
 * The matrix of tests/cases.def: every op, over shapes and element types, every device against `ref`.
 * Shapes: none, one, odd, a vector's width and one more, many; huge rows; strided, reversed and unaligned views.
 * Most types are compiled at -O1, which takes half the time; one of each width and kind as users have it.
 * Prints how many cases ran on the device: cpu, or $QUERN_TEST_DEVICE.
 * SPDX-License-Identifier: MIT
 */
#include "matrix.h"

#include <strings.h>

/* Of the row classes; MAP uses rows * columns as its length. */
static const shape shapes[] = {{0, 4, true},   {4, 0, false}, {1, 1, false},    {1, 7, true},    {3, 16, false},
                               {2, 17, false}, {5, 33, true}, {1, 1000, false}, {11, 100, true}, {1, 70001, true}};

static qn_context *context, *quick_context;
static const char *device;

static bool run_on(qn_call *call, const char *where, const char *source)
{
    qn_error error;
    qn_status status = qn_call_run(call, where, &error);
    /* Special values make findings (a NaN that was born, a division by zero); the results are there all the same. */
    if (status == QN_OK || status == QN_FINDING) return true;
    printf("on %s: %s\n%s", where, error.message, source);
    test_fail(__FILE__, __LINE__, "qn_call_run");
    return false;
}

static void run_group(const matrix_case *const *group, int count, dtype t)
{
    text source = {0};
    write_kernel(&source, "group", group, count, t);
    qn_error error;
    qn_module *module;
    bool as_users = t == DT_F32 || t == DT_BF16 || t == DT_I32 || t == DT_U8;
    if (qn_module_load_text(as_users ? context : quick_context, "group.qn", text_get(&source), &module, &error) !=
        QN_OK) {
        printf("%s\n%s", error.message, text_get(&source));
        test_fail(__FILE__, __LINE__, "qn_module_load_text");
        text_free(&source);
        return;
    }
    case_class class = group[0]->class;
    const size_t most = 72000 * 4;
    char *a = aligned_alloc(64, most * 8), *b = aligned_alloc(64, most * 8);
    double low = group[0]->low, high = group[0]->high;
    for (int round = 0; round < 2; round++) {
        bool special = round == 1;
        if (special && !dtype_is_float(t)) break;
        random_state = 7 + (uint64_t)t;
        fill(a, t, (int64_t)most, low, high, special);
        fill(b, t, (int64_t)most, low, high, special);
        for (int i = 0; i < COUNT(shapes); i++) {
            shape s = shapes[i];
            /* 8-bit indices and f16 sums have no room for the huge row with specials; ordinary data covers it. */
            if (special && s.columns > 1000) continue;
            if (class == CLASS_OF_ROW && !s.columns)
                continue; /* max and min of nothing is the identity: covered by programs */
            for (int v = 0; v < COUNT(views); v++) {
                if (v && (special || (t != DT_F32 && t != DT_I64 && t != DT_BF16) || s.columns > 1000)) continue;
                qn_call *calls[2];
                bool good = true;
                for (int d = 0; d < 2 && good; d++) {
                    EXPECT(qn_call_new(module, "group", &calls[d], &error) == QN_OK);
                    int64_t extents[2] = {s.rows, s.columns}, length = s.rows * s.columns;
                    if (class == CLASS_OF_MAP) {
                        bind(calls[d], "a", a, t, 1, &length, views[v]);
                        bind(calls[d], "b", b, t, 1, &length, views[v]);
                    } else {
                        bind(calls[d], "x", a, t, 2, extents, views[v]);
                    }
                    good = run_on(calls[d], d ? device : "ref", text_get(&source));
                    if (!good && d) qn_call_free(calls[0]);
                    if (!good) qn_call_free(calls[d]);
                }
                if (!good) goto end;
                for (int k = 0; k < count; k++)
                    compare(calls[0], calls[1], group[k], k, t, s, special ? "special values" : views[v].name);
                qn_call_free(calls[0]);
                qn_call_free(calls[1]);
            }
        }
    }
end:
    free(a);
    free(b);
    qn_module_free(module);
    text_free(&source);
}

/* QUERN_TEST_TYPE=F32: this type alone, so that several processes can share the work. */
static bool wanted(const char *name)
{
    const char *only = environment_get("QUERN_TEST_TYPE");
    return !only || !strcasecmp(only, name);
}

static void run_wanted(dtype type)
{
    if (wanted(dtypes[type].text)) run_type(type, run_group);
}
TEST_EVERY_TYPE(run_wanted)

TEST(open_context)
{
    qn_error error;
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    const char *setting = environment_get("QUERN_CC"), *compiler = environment_get("CC");
    char quick[256];
    snprintf(quick, sizeof(quick), "%s -O1", setting ? setting : compiler ? compiler : "cc");
    setenv("QUERN_CC", quick, 1);
    EXPECT(qn_context_open(NULL, &quick_context, &error) == QN_OK);
    device = environment_get("QUERN_TEST_DEVICE");
    if (!device) device = "cpu";
}

TEST(report)
{
    printf("note: matrix: %lld cases on %s against ref\n", (long long)matrix_compared, device);
    EXPECT(matrix_compared >
           (environment_get("QUERN_TEST_TYPE") ? 300 : 10000) / (2 * share_of("groups of operations")));
    EXPECT(strcmp(device, "ref") != 0); /* which always agrees with itself */
    qn_context_close(context);
    qn_context_close(quick_context);
}

TEST_MAIN(CASE(open_context), CASE(matrix_F32), CASE(matrix_F64), CASE(matrix_F16), CASE(matrix_BF16), CASE(matrix_I8),
          CASE(matrix_I16), CASE(matrix_I32), CASE(matrix_I64), CASE(matrix_U8), CASE(matrix_U16), CASE(matrix_U32),
          CASE(matrix_U64), CASE(report))
