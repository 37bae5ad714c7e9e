/*
 * The checks of the reference interpreter: each finding on a small kernel in tile IR, and the right program without it.
 * tests/wrong holds the same at the level of the language.
 * SPDX-License-Identifier: MIT
 */
#include "ir/interp.h"
#include "quiet.h"

#include <stdint.h>
#include <stdlib.h>

static array_view view(void *data, dtype elem, int rank, int64_t a, int64_t b)
{
    array_view v = {.data = data, .elem = elem, .rank = rank};
    if (rank == 1) v.extents[0] = a, v.strides[0] = 1;
    if (rank == 2) v.extents[0] = a, v.extents[1] = b, v.strides[0] = b, v.strides[1] = 1;
    return v;
}

typedef struct outcome {
    qn_status status;
    findings found;
    qn_error error;
    text printed;
} outcome;

static outcome run_with(const char *words, const array_view *arrays, interp_options options)
{
    outcome o = {0};
    arena *memory = arena_new();
    tile_kernel *k = NULL;
    bool given[64] = {0};
    number numbers[64] = {0};
    launch_plan plan = launch_plan_new(memory, 64);
    o.status = tile_read(memory, "t.tile", words, strlen(words), &k, &o.error);
    if (o.status == QN_OK) o.status = tile_verify(k, &o.error);
    if (o.status == QN_OK) o.status = interp_head(k, given, numbers, arrays, 1, &plan, &o.error);
    if (o.status != QN_OK) {
        printf("%s\n", o.error.message);
        test_fail(__FILE__, __LINE__, "the kernel is well formed");
    } else {
        options.check = true;
        o.status = interp_run(k, arrays, &plan, &options, &o.found, &o.error);
        findings_print(&o.found, k, &o.printed);
    }
    arena_free(memory);
    return o;
}

static outcome run(const char *words, const array_view *arrays)
{
    return run_with(words, arrays, (interp_options){0});
}

static void free_outcome(outcome *o)
{
    findings_free(&o->found);
    text_free(&o->printed);
}

/* Exactly one finding, printed so (the advice line is not compared), or none. */
static void expect(outcome o, const char *first_line, int line)
{
    size_t length = strcspn(text_get(&o.printed), "\n");
    char shown[600];
    snprintf(shown, sizeof(shown), "%.*s", (int)length, text_get(&o.printed));
    test_text(shown, first_line, __FILE__, line);
    if (o.found.count != (first_line[0] != 0)) {
        printf("%s", text_get(&o.printed));
        test_fail(__FILE__, line, "the number of findings");
    }
    free_outcome(&o);
}
#define EXPECT_FINDING(outcome, first_line) expect((outcome), (first_line), __LINE__)

#define ONE "head {\n  %1 = const 1 : i64\n  launch 0 %1\n}\n"
#define TWO "head {\n  %1 = const 2 : i64\n  launch 0 %1\n}\n"
#define START "phase {\n  %2 = const 0 : i64\n  %3 = const 1 : i64\n  %4 = arg n : i64\n"

TEST(r701_index_and_gather)
{
    float x[4] = {1, 2, 3, 4}, y[4];
    int64_t ids[4] = {0, 3, 4, -1};
    array_view arrays[] = {view(x, DT_F32, 1, 4, 0), view(ids, DT_I64, 1, 4, 0), view(y, DT_F32, 1, 4, 0), {0}};
    static const char *const gather =
        "kernel t file \"t.qn\"\n  param x in f32 [n]\n  param ids in i64 [n]\n  param y out f32 [n]\n  param n extent "
        "i64\n" ONE START "  %5 = load ids[%2:%3 @0] : i64[4]\n  %6 = load x[tile %5] : f32[4] ; 5:9\n"
        "  %7 = ge %5, %2 : bool[4]\n  %8 = lt %5, %4 : bool[4]\n  %9 = and %7, %8 : bool[4]\n  %10 = const 0 : f32\n"
        "  %11 = select %9, %6, %10 : f32[4]\n  store y[%2:%3 @0] = %11\n}\n";
    EXPECT_FINDING(run(gather, arrays),
                   "t.qn:5:9: R701: index 4 is outside axis 0 of `x`, whose extent is 4 (program 0; 2 times)");
    /* the same, masked: silent */
    static const char *const kept =
        "kernel t file \"t.qn\"\n  param x in f32 [n]\n  param ids in i64 [n]\n  param y out f32 [n]\n  param n extent "
        "i64\n" ONE START "  %5 = load ids[%2:%3 @0] : i64[4]\n"
        "  %7 = ge %5, %2 : bool[4]\n  %8 = lt %5, %4 : bool[4]\n  %9 = and %7, %8 : bool[4]\n  %10 = const 0 : f32\n"
        "  %6 = load x[tile %5] mask %9 : f32[4] ; 5:9\n"
        "  %11 = select %9, %6, %10 : f32[4]\n  store y[%2:%3 @0] = %11\n}\n";
    EXPECT_FINDING(run(kept, arrays), "");
    EXPECT(y[0] == 1 && y[1] == 4 && y[2] == 0 && y[3] == 0);
    static const char *const scalar =
        "kernel t file \"t.qn\"\n  param x in f32 [n]\n  param y inout f32 [n]\n  param n extent i64\n" ONE START
        "  %5 = load x[%4] : f32 ; 3:1\n  store y[%4] = %5 ; 3:9\n  store y[%2] = %5\n}\n";
    array_view two[] = {view(x, DT_F32, 1, 4, 0), view(y, DT_F32, 1, 4, 0), {0}};
    EXPECT_FINDING(run(scalar, two),
                   "t.qn:3:1: R701: index 4 is outside axis 0 of `x`, whose extent is 4 (program 0; 2 times)");
    EXPECT(y[0] == 0); /* a scalar outside reads 0 */
}

TEST(r702_and_r703_unwritten)
{
    float y[6] = {0};
    array_view arrays[] = {view(y, DT_F32, 1, 3, 0), {0}};
    static const char *const reads =
        "kernel t file \"t.qn\"\n  param y out f32 [n]\n  param n extent i64\n" ONE START
        "  %5 = const 1 : f32\n  store y[%2] = %5\n  %6 = load y[%2:%3 @0] : f32[%4] ; 4:3\n"
        "  store y[%2:%3 @0] = %6\n}\n";
    EXPECT_FINDING(run(reads, arrays), "t.qn:4:3: R702: `y[1]` is read, but nothing wrote it (program 0; 2 times)");
    static const char *const misses =
        "kernel t file \"t.qn\"\n  param y out f32 [n] ; 2:7\n  param n extent i64\n" ONE START
        "  %5 = const 1 : f32\n  store y[%3] = %5\n}\n";
    EXPECT_FINDING(run(misses, arrays),
                   "t.qn:2:7: R703: 2 of 3 elements of `y` were never written; the first is `y[0]`");
    array_view strided[] = {view(y + 4, DT_F32, 1, 3, 0), {0}};
    strided[0].strides[0] = -2;
    EXPECT_FINDING(run(misses, strided),
                   "t.qn:2:7: R703: 2 of 3 elements of `y` were never written; the first is `y[0]`");
    int64_t only = 0;
    EXPECT_FINDING(run_with(misses, arrays, (interp_options){.only_programs = &only, .only_count = 1}), "");
    static const char *const initial =
        "kernel t file \"t.qn\"\n  param y out f32 [n] initial 7 ; 2:7\n  param n extent i64\n" ONE START
        "  %5 = load y[%3] : f32\n  store y[%2] = %5\n}\n";
    EXPECT_FINDING(run(initial, arrays), "");
    EXPECT(y[0] == 7 && y[2] == 7);
}

#define RACE_HEAD                                                                                                \
    "kernel t file \"t.qn\"\n  param y inout i32 [n]\n  param z inout i32 [n]\n  param n extent i64\n" TWO START \
    "  %5 = program 0 : i64\n  %6 = const 1 : i32\n"

TEST(r704_races)
{
    int32_t y[2] = {0, 0}, z[2] = {0, 0};
    array_view arrays[] = {view(y, DT_I32, 1, 2, 0), view(z, DT_I32, 1, 2, 0), {0}, {0}};
    EXPECT_FINDING(
        run(RACE_HEAD "  store y[%2] = %6 ; 6:3\n}\n", arrays),
        "t.qn:6:3: R704: race on `y[0]`: program 1 writes it here, program 0 writes it on line 6 (program 1)");
    /* program 1 reads what program 0 writes, in either order */
    static const char *const read_write =
        RACE_HEAD "  %7 = load y[%2] : i32 ; 6:3\n  store z[%5] = %7\n  %8 = eq %5, %2 : bool\n"
                  "  if %8 {\n    store y[%2] = %6 ; 8:5\n    yield\n  } else {\n    yield\n  }\n}\n";
    EXPECT_FINDING(
        run(read_write, arrays),
        "t.qn:6:3: R704: race on `y[0]`: program 1 reads it here, program 0 writes it on line 8 (program 1)");
    int64_t order[2] = {1, 0};
    EXPECT_FINDING(
        run_with(read_write, arrays, (interp_options){.only_programs = order, .only_count = 2}),
        "t.qn:8:5: R704: race on `y[0]`: program 0 writes it here, program 1 reads it on line 6 (program 0)");
    /* the writer's own read does not hide the other reader */
    EXPECT_FINDING(run(RACE_HEAD "  store y[%5] = %6\n  %7 = load y[%5] : i32\n  store z[%5] = %7\n}\n", arrays), "");
    /* atomics among themselves are fine, with plain access they are not */
    EXPECT_FINDING(run(RACE_HEAD "  %7 = atomic add y[%2] = %6 : i32 ; 6:3\n}\n", arrays), "");
    outcome o = run(RACE_HEAD "  %7 = atomic add y[%2] = %6 : i32 ; 6:3\n  %8 = load y[%2] : i32 ; 7:3\n}\n", arrays);
    EXPECT(o.found.count == 2);
    EXPECT_TEXT(o.found.items[0].message,
                "race on `y[0]`: program 1 updates it by an atomic here, program 0 reads it on line 7");
    EXPECT_TEXT(o.found.items[1].message,
                "race on `y[0]`: program 1 reads it here, program 0 updates it by an atomic on line 6");
    free_outcome(&o);
    /* in another phase it is no race */
    EXPECT_FINDING(
        run("kernel t file \"t.qn\"\n  param y inout i32 [n]\n  param n extent i64\n"
            "head {\n  %1 = const 1 : i64\n  launch 0 %1\n  launch 1 %1\n}\nphase {\n  %2 = const 0 : i64\n  %3 = "
            "const 5 : i32\n"
            "  store y[%2] = %3\n}\nphase {\n  %4 = const 0 : i64\n  %5 = load y[%4] : i32\n  store y[%4] = %5\n}\n",
            (array_view[]){view(y, DT_I32, 1, 2, 0), {0}}),
        "");
    /* elements of a broadcast view are one place */
    arrays[0].strides[0] = 0;
    EXPECT_FINDING(
        run(RACE_HEAD "  store y[%5] = %6 ; 6:3\n}\n", arrays),
        "t.qn:6:3: R704: race on `y[0]`: program 1 writes it here, program 0 writes it on line 6 (program 1)");
}

TEST(r704_is_found_in_any_order)
{
    int32_t y[2] = {0, 0}, z[2];
    array_view arrays[] = {view(y, DT_I32, 1, 2, 0), view(z, DT_I32, 1, 2, 0), {0}, {0}};
    for (uint64_t seed = 1; seed < 8; seed++) {
        outcome o = run_with(RACE_HEAD "  store y[%2] = %6 ; 6:3\n}\n", arrays, (interp_options){.order_seed = seed});
        EXPECT(o.found.count == 1 && o.found.items[0].code == 704);
        EXPECT(o.found.items[0].programs[0][0] + o.found.items[0].programs[1][0] == 1);
        free_outcome(&o);
    }
}

TEST(r705_elements_meet)
{
    float y[4] = {0};
    int64_t ids[3] = {0, 2, 0};
    static const char *const scatter =
        "kernel t file \"t.qn\"\n  param ids in i64 [m]\n  param y inout f32 [n]\n  param n extent i64\n  param m "
        "extent i64\n" ONE START
        "  %5 = load ids[%2:%3 @0] : i64[3]\n  %6 = const 1 : f32\n  %7 = broadcast %6 : f32[3]\n"
        "  store y[tile %5] = %7 ; 5:3\n}\n";
    array_view arrays[] = {view(ids, DT_I64, 1, 3, 0), view(y, DT_F32, 1, 4, 0), {0}, {0}};
    EXPECT_FINDING(run(scatter, arrays), "t.qn:5:3: R705: two elements of this store meet at `y[0]` (program 0)");
    ids[2] = 1;
    EXPECT_FINDING(run(scatter, arrays), "");
    arrays[1].strides[0] = 0;
    EXPECT_FINDING(run(scatter, arrays),
                   "t.qn:5:3: R705: two elements of this store meet at `y[0]` (program 0; 2 times)");
}

TEST(r705_a_view_that_overlaps_itself)
{
    float y[8] = {0};
    static const char *const fill =
        "kernel t file \"t.qn\"\n  param y out f32 [n, m]\n  param n extent i64\n  param m extent i64\n" ONE START
        "  %6 = const 1 : f32\n  %7 = broadcast %6 : f32[2, 2]\n  store y[%2:%3 @0, %2:%3 @1] = %7 ; 5:3\n}\n";
    array_view arrays[] = {view(y + 4, DT_F32, 2, 2, 2), {0}, {0}};
    EXPECT_FINDING(run(fill, arrays), "");
    arrays[0].strides[0] = 1; /* y[0][1] is y[1][0] */
    EXPECT_FINDING(run(fill, arrays), "t.qn:5:3: R705: two elements of this store meet at `y at offset 1` (program 0)");
    arrays[0].strides[0] = -1; /* y[1][1] is y[0][0] */
    EXPECT_FINDING(run(fill, arrays), "t.qn:5:3: R705: two elements of this store meet at `y at offset 0` (program 0)");
}

#define UNARY_HEAD                                                                                          \
    "kernel t file \"t.qn\"\n  param x in f32 [n]\n  param y out f32 [n]\n  param n extent i64\n" ONE START \
    "  %5 = load x[%2:%3 @0] : f32[%4]\n"

TEST(r706_births)
{
    float x[3] = {1, 0, 4}, y[3];
    array_view arrays[] = {view(x, DT_F32, 1, 3, 0), view(y, DT_F32, 1, 3, 0), {0}};
    static const char *const logarithm =
        UNARY_HEAD "  %6 = log %5 : f32[%4] ; 5:3\n  %7 = const 2 : f32\n  %8 = mul %6, %7 : f32[%4] ; 6:3\n"
                   "  store y[%2:%3 @0] = %8 ; 7:3\n}\n";
    outcome o = run(logarithm, arrays);
    EXPECT(o.found.count == 1 && o.found.items[0].other_line == 5);
    EXPECT_FINDING(o, "t.qn:7:3: R706: -infinity stored in `y[1]`; born on line 5 from `log` (program 0)");
    x[1] = -INFINITY; /* what comes with the input is no finding, but the NaN made from it is */
    EXPECT_FINDING(run(UNARY_HEAD "  store y[%2:%3 @0] = %5 ; 7:3\n}\n", arrays), "");
    EXPECT_FINDING(run(logarithm, arrays),
                   "t.qn:7:3: R706: NaN stored in `y[1]`; born on line 5 from `log` (program 0)");
    x[1] = NAN;
    EXPECT_FINDING(run(logarithm, arrays), "");
    /* an intermediate infinity is no finding; the reduction that overflows is */
    x[1] = 3e38f;
    EXPECT_FINDING(run(UNARY_HEAD
                       "  %6 = const -inf : f32\n  %7 = max %5, %6 : f32[%4]\n  store y[%2:%3 @0] = %7 ; 7:3\n}\n",
                       arrays),
                   "");
    x[0] = 3e38f;
    EXPECT_FINDING(run(UNARY_HEAD "  %6 = reduce sum %5 axes (0) : f32 ; 5:3\n  %7 = broadcast %6 : f32[%4]\n  store "
                                  "y[%2:%3 @0] = %7 ; 7:3\n}\n",
                       arrays),
                   "t.qn:7:3: R706: infinity stored in `y[0]`; born on line 5 from `reduce` (program 0; 3 times)");
    EXPECT_FINDING(
        run(UNARY_HEAD
            "  %6 = const inf : f32 ; 5:3\n  %7 = broadcast %6 : f32[%4]\n  store y[%2:%3 @0] = %7 ; 7:3\n}\n",
            arrays),
        "t.qn:7:3: R706: infinity stored in `y[0]`; it is the constant on line 5 (program 0; 3 times)");
}

TEST(r706_travels_through_scratch)
{
    float part[2], y[2];
    static const char *const words =
        "kernel t file \"t.qn\"\n  param part scratch f32 [n]\n  param y out f32 [n]\n  param n extent i64\n"
        "head {\n  %1 = const 1 : i64\n  launch 0 %1\n  launch 1 %1\n}\nphase {\n  %2 = const 0 : i64\n  %3 = const 1 "
        ": i64\n"
        "  %4 = const 0 : f32\n  %5 = const 1 : f32\n  %6 = div %5, %4 : f32 ; 5:3\n  %7 = broadcast %6 : f32[2]\n"
        "  store part[%2:%3 @0] = %7 ; 6:3\n}\n"
        "phase {\n  %12 = const 0 : i64\n  %13 = const 1 : i64\n  %15 = load part[%12:%13 @0] : f32[2]\n"
        "  store y[%12:%13 @0] = %15 ; 9:3\n}\n";
    array_view arrays[] = {view(part, DT_F32, 1, 2, 0), view(y, DT_F32, 1, 2, 0), {0}};
    EXPECT_FINDING(run(words, arrays),
                   "t.qn:9:3: R706: infinity stored in `y[0]`; born on line 5 from `div` (program 0; 2 times)");
}

TEST(r707_integers)
{
    int64_t x[2] = {INT64_MAX, 300}, y[2];
    array_view arrays[] = {view(x, DT_I64, 1, 2, 0), view(y, DT_I64, 1, 2, 0), {0}};
#define WHOLE_HEAD                                                                                          \
    "kernel t file \"t.qn\"\n  param x in i64 [n]\n  param y out i64 [n]\n  param n extent i64\n" ONE START \
    "  %5 = load x[%2:%3 @0] : i64[%4]\n"
    EXPECT_FINDING(run(WHOLE_HEAD "  %6 = add.index %5, %3 : i64[%4] ; 5:3\n  store y[%2:%3 @0] = %6\n}\n", arrays),
                   "t.qn:5:3: R707: index arithmetic overflowed: 9223372036854775807 + 1 in i64 (program 0)");
    EXPECT_FINDING(run(WHOLE_HEAD "  %6 = add %5, %3 : i64[%4] ; 5:3\n  store y[%2:%3 @0] = %6\n}\n", arrays), "");
    EXPECT_FINDING(run(WHOLE_HEAD "  %6 = mod %5, %2 : i64[%4] ; 5:3\n  store y[%2:%3 @0] = %6\n}\n", arrays),
                   "t.qn:5:3: R707: 9223372036854775807 divided by zero; the result is 0 (program 0; 2 times)");
    EXPECT_FINDING(
        run(WHOLE_HEAD
            "  %6 = convert.implicit %5 : i8[%4] ; 5:3\n  %7 = convert %6 : i64[%4]\n  store y[%2:%3 @0] = %7\n}\n",
            arrays),
        "t.qn:5:3: R707: 9223372036854775807 does not fit i8 (program 0; 2 times)");
    EXPECT_FINDING(run(WHOLE_HEAD
                       "  %6 = convert %5 : i8[%4] ; 5:3\n  %7 = convert %6 : i64[%4]\n  store y[%2:%3 @0] = %7\n}\n",
                       arrays),
                   "");
}

TEST(r708_stale_elements)
{
    float x[6] = {1, 2, 3, 4, 5, 6}, y[1];
    array_view arrays[] = {view(x, DT_F32, 1, 6, 0), view(y, DT_F32, 0, 0, 0), {0}};
    /* v = x[k : 4] in a loop over 6 elements: the second trip leaves two of the first */
#define STALE(new)                                                                                         \
    "kernel t file \"t.qn\"\n  param x in f32 [n]\n  param y out f32 []\n  param n extent i64\n" ONE START \
    "  %5 = const 4 : i64\n  %6 = const 0 : f32\n  %7 = broadcast %6 : f32[4]\n"                           \
    "  %8.v = for %2, %4, %5, %7 : f32[4] with (%9 : i64, %10.v : f32[4]) {\n"                             \
    "    %11 = load x[%9:%3 @0] : f32[4]\n    %12 = bound %9, %3, %4 axis 0 : bool[4]\n"                   \
    "    %14 = add %11, %10.v : f32[4]\n"                                                                  \
    "    %13.v = select.assign %12, " new ", %10.v : f32[4] ; 6:5\n    yield %13.v\n  }\n"                 \
                                          "  %20 = reduce sum %8.v axes (0) : f32\n  store y[] = %20\n}\n"
    EXPECT_FINDING(run(STALE("%11"), arrays), "t.qn:6:5: R708: `v` keeps element 2 (3) of an earlier assignment, where "
                                              "the new value is invalid (program 0; 2 times)");
    EXPECT_FINDING(run(STALE("%14"), arrays), ""); /* v += x[k : 4] reads v: what stays is meant to */
    EXPECT(y[0] == 21);
}

TEST(r709_and_e507)
{
    int64_t y[2];
    array_view arrays[] = {view(y, DT_I64, 1, 2, 0), {0}};
#define OUT_HEAD                                                                      \
    "kernel t file \"t.qn\"\n  param y out i64 [n]\n  param n extent i64\n" TWO START \
    "  %5.p = program 0 : i64\n  store y[%5.p] = %4\n"
    EXPECT_FINDING(run(OUT_HEAD "  %6 = eq %5.p, %2 : bool\n  assume \"p == 0\" %6 ; 5:3\n}\n", arrays),
                   "t.qn:5:3: R709: assume is false: p == 0 with p = 1 (program 1)");
    outcome o = run(OUT_HEAD "  %6 = eq %5.p, %2 : bool\n  assert \"p == 0\" %6 ; 5:3\n}\n", arrays);
    EXPECT(o.status == QN_FAILED);
    EXPECT_TEXT(o.error.message, "t.qn:5:3: error E507: assert failed in program 1: p == 0 with p = 1");
    EXPECT_FINDING(o, "t.qn:5:3: E507: assert failed: p == 0 with p = 1 (program 1)");
    EXPECT_FINDING(run(OUT_HEAD "  for %2, %4, %2 with (%7 : i64) { ; 5:3\n    yield\n  }\n}\n", arrays),
                   "t.qn:5:3: R709: the step 0 of the loop has the wrong sign: no iteration runs (program 0; 2 times)");
    o = run_with(OUT_HEAD "  %6 = const true : bool\n  %7 = while %2 : i64 with (%8 : i64) {\n    condition %6 ; 5:3\n "
                          " } do (%9 : i64) {\n    yield %9\n  }\n}\n",
                 arrays, (interp_options){.step_limit = 1000});
    EXPECT(o.status == QN_FAILED);
    EXPECT(o.found.count == 1 && o.found.items[0].code == 709);
    free_outcome(&o);
    /* tiles: all elements that the masks leave in */
    o = run(OUT_HEAD "  %6 = iota axis 0 : i64[3]\n  %7 = lt %6, %4 : bool[3]\n  assert \"i < n\" %7, %7\n  assert \"i "
                     "< n\" %7 ; 6:3\n}\n",
            arrays);
    EXPECT(o.status == QN_FAILED && o.found.count == 1 && o.found.items[0].line == 6 && o.found.items[0].times == 2);
    free_outcome(&o);
}

TEST(a_finding_is_printed_with_source_and_advice)
{
    arena *memory = arena_new();
    tile_kernel *k = tile_kernel_new(memory, "t", "t.qn");
    const char *lines[] = {"first", "\ty[i] = x;"};
    k->source_lines = lines;
    k->source_line_count = 2;
    finding item = {
        .code = 705, .line = 2, .column = 4, .times = 3, .message = "two meet", .programs = {{1, 2, 3}, {-1, -1, -1}}};
    findings f = {&item, 1, 1};
    text out = {0};
    findings_print(&f, k, &out);
    EXPECT_TEXT(text_get(&out), "t.qn:2:4: R705: two meet (program 1; 3 times)\n\ty[i] = x;\n\t  ^\n"
                                "  make the indices of one store differ, or use an atomic\n");
    text_free(&out);
    arena_free(memory);
}

TEST(softmax_of_512_rows_is_checked_in_time)
{
    static const char *const words =
        "kernel softmax file \"t.qn\"\n  param x in f32 [rows, n]\n  param y out f32 [rows, n]\n  param rows extent "
        "i64\n  param n extent i64\n"
        "head {\n  %1 = arg rows : i64\n  launch 0 %1\n}\n" START
        "  %5 = program 0 : i64\n  %6 = load x[%5, %2:%3 @0 safe] : f32[%4]\n"
        "  %7 = reduce max %6 axes (0) : f32\n  %8 = sub %6, %7 : f32[%4]\n  %9 = exp %8 : f32[%4]\n"
        "  %10 = reduce sum %9 axes (0) : f32\n  %11 = div %9, %10 : f32[%4]\n  store y[%5, %2:%3 @0 safe] = %11\n}\n";
    enum { N = 512 };
    float *x = malloc(sizeof(float) * N * N), *y = malloc(sizeof(float) * N * N);
    for (int i = 0; i < N * N; i++) x[i] = (float)(i % 977) / 100;
    array_view arrays[] = {view(x, DT_F32, 2, N, N), view(y, DT_F32, 2, N, N), {0}, {0}};
    int64_t start = clock_now_ns();
    EXPECT_FINDING(run(words, arrays), "");
    double seconds = (double)(clock_now_ns() - start) * 1e-9;
    printf("note: a 512x512 softmax is checked in %.3f s\n", seconds);
    EXPECT_QUICK(seconds < 1 || getenv("QUERN_SLOW")); /* sanitizers say so */
    double sum = 0;
    for (int i = 0; i < N; i++) sum += y[5 * N + i];
    EXPECT_NEAR(sum, 1, 1e-5);
    free(x);
    free(y);
}

TEST(many_programs_reuse_memory)
{
    static const char *const words =
        "kernel t file \"t.qn\"\n  param y out f32 [n]\n  param n extent i64\nhead {\n  %1 = arg n : i64\n  launch 0 "
        "%1\n}\n" START "  %5 = program 0 : i64\n  %6 = convert %5 : f32\n  %7 = broadcast %6 : f32[64]\n  %8 = reduce "
        "max %7 axes (0) : f32\n"
        "  store y[%5] = %8\n}\n";
    enum { N = 100000 };
    float *y = malloc(sizeof(float) * N);
    array_view arrays[] = {view(y, DT_F32, 1, N, 0), {0}};
    EXPECT_FINDING(run_with(words, arrays, (interp_options){.order_seed = 3}), "");
    EXPECT(y[99999] == 99999 && y[0] == 0);
    free(y);
}

TEST_MAIN(CASE(r701_index_and_gather), CASE(r702_and_r703_unwritten), CASE(r704_races),
          CASE(r704_is_found_in_any_order), CASE(r705_elements_meet), CASE(r705_a_view_that_overlaps_itself),
          CASE(r706_births), CASE(r706_travels_through_scratch), CASE(r707_integers), CASE(r708_stale_elements),
          CASE(r709_and_e507), CASE(a_finding_is_printed_with_source_and_advice),
          CASE(softmax_of_512_rows_is_checked_in_time), CASE(many_programs_reuse_memory))
