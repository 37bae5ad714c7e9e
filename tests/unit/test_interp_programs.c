/*
 * The reference interpreter on programs: control flow, memory, the head region, poison, prints. Kernels are written as tile
 * IR text. Findings have their own test (test_findings.c).
 * SPDX-License-Identifier: MIT
 */
#include "interp_text.h"

TEST(control_flow)
{
    /* for swaps two carried values; while halves; if picks; a loop downwards; a map with a loop per element */
    static const char *const words =
        "kernel t file \"t.qn\"\n  param y out i64 [n]\n  param n extent i64\n" HEAD_N
        "  %5 = const 5 : i64\n  %6 = const 100 : i64\n  %7 = const 2 : i64\n  %8 = const -1 : i64\n"
        "  %10, %11 = for %2, %5, %3, %2, %6 : i64, i64 with (%12 : i64, %13 : i64, %14 : i64) {\n"
        "    %15 = add %13, %12 : i64\n    yield %14, %15\n  }\n"
        "  %20 = while %6 : i64 with (%21 : i64) {\n    %22 = gt %21, %5 : bool\n    condition %22\n"
        "  } do (%23 : i64) {\n    %24 = div %23, %7 : i64\n    yield %24\n  }\n"
        "  %30 = lt %10, %11 : bool\n"
        "  %31 = if %30 : i64 {\n    yield %20\n  } else {\n    yield %8\n  }\n"
        "  %40 = for.down %5, %2, %8, %2 : i64 with (%41 : i64, %42 : i64) {\n"
        "    %43 = mul %42, %7 : i64\n    %44 = add %43, %41 : i64\n    yield %44\n  }\n"
        "  %50 = iota axis 0 : i64[4]\n"
        "  %51 = map %50 : i64[4] with (%52 : i64) {\n"
        "    %53 = for %2, %52, %3, %3 : i64 with (%54 : i64, %55 : i64) {\n      %56 = mul %55, %7 : i64\n      yield "
        "%56\n    }\n"
        "    yield %53\n  }\n"
        "  store y[%2] = %10\n  store y[%3] = %11\n  store y[%7] = %20\n  %60 = const 3 : i64\n  store y[%60] = %31\n"
        "  %61 = const 4 : i64\n  store y[%61] = %40\n  store y[%5:%3 @0] = %51\n}\n";
    arena *memory = arena_new();
    tile_kernel *k = parse(memory, words);
    int64_t y[9];
    array_view arrays[] = {view(y, DT_I64, 1, 9, 0), {0}};
    findings found = {0};
    EXPECT(k && launch(k, arrays, false, &found, NULL) == QN_OK);
    /* (0,100) -> (100,0) -> (0,101) -> (101,2) -> (2,104) -> (104,6) */
    EXPECT(y[0] == 104 && y[1] == 6);
    EXPECT(y[2] == 3); /* 100 50 25 12 6 3 */
    EXPECT(y[3] == -1);
    EXPECT(y[4] == 5 * 16 + 4 * 8 + 3 * 4 + 2 * 2 + 1);
    EXPECT(y[5] == 1 && y[6] == 2 && y[7] == 4 && y[8] == 8);
    EXPECT(found.count == 0);
    findings_free(&found);
    arena_free(memory);
}

TEST(slices_gathers_and_views)
{
    /* y = x[-1 : 4 : 2] with 0 outside, from a view of negative stride; z = x[ids] from a broadcast one */
    static const char *const words =
        "kernel t file \"t.qn\"\n  param x in f32 [n]\n  param y out f32 [4]\n  param n extent i64\n"
        "head {\n  %1 = const 1 : i64\n  %9 = const 4 : i64\n  extent y \"4\" %9 axis 0\n  launch 0 %1\n}\nphase {\n"
        "  %2 = const -1 : i64\n  %3 = const 2 : i64\n  %4 = const 0 : i64\n  %5 = const 1 : i64\n"
        "  %6 = arg n : i64\n  %7 = const 0 : f32\n"
        "  %10 = load x[%2:%3 @0] : f32[4]\n"
        "  %11 = bound %2, %3, %6 axis 0 : bool[4]\n"
        "  %12 = select %11, %10, %7 : f32[4]\n"
        "  store y[%4:%5 @0] = %12\n}\n";
    arena *memory = arena_new();
    char fixed[2000];
    snprintf(fixed, sizeof(fixed), "%s", words);
    memcpy(strstr(fixed, "[4]\n"), "[_]\n", 4);
    tile_kernel *k = parse(memory, fixed);
    float x[5] = {1, 2, 3, 4, 5}, y[4];
    array_view arrays[] = {view(x + 4, DT_F32, 1, 5, 0), view(y, DT_F32, 1, 4, 0), {0}};
    arrays[0].strides[0] = -1; /* 5 4 3 2 1 */
    findings found = {0};
    EXPECT(k && launch(k, arrays, false, &found, NULL) == QN_OK);
    EXPECT(y[0] == 0 && y[1] == 4 && y[2] == 2 && y[3] == 0);
    arrays[0] = view(x, DT_F32, 1, 5, 0);
    arrays[0].strides[0] = 0;
    EXPECT(k && launch(k, arrays, false, &found, NULL) == QN_OK);
    EXPECT(y[0] == 0 && y[1] == 1 && y[2] == 1 && y[3] == 0);
    EXPECT(found.count == 0);
    findings_free(&found);
    arena_free(memory);
}

TEST(atomics_give_the_old_value)
{
    static const struct {
        const char *kind;
        dtype elem;
        number start, x, expected;
    } cases[] = {
        {"add", DT_I32, {.i = 5}, {.i = 3}, {.i = 8}},
        {"add", DT_F32, {.f = 5}, {.f = 3}, {.f = 8}},
        {"add", DT_BF16, {.f = 256}, {.f = 1}, {.f = 256}},
        {"min", DT_I32, {.i = 5}, {.i = -3}, {.i = -3}},
        {"max", DT_U32, {.i = 5}, {.i = 4294967295}, {.i = 4294967295}},
        {"max", DT_F64, {.f = 5}, {.f = 7}, {.f = 7}},
        {"and", DT_I32, {.i = 12}, {.i = 10}, {.i = 8}},
        {"or", DT_U64, {.i = 12}, {.i = 10}, {.i = 14}},
        {"xor", DT_I64, {.i = 12}, {.i = 10}, {.i = 6}},
        {"exchange", DT_I32, {.i = 12}, {.i = 10}, {.i = 10}},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        arena *memory = arena_new();
        char words[1000];
        const char *t = dtypes[cases[i].elem].text;
        snprintf(words, sizeof(words),
                 "kernel t file \"t.qn\"\n  param x in %s []\n  param y inout %s []\n  param old out %s []\n"
                 "head {\n  %%1 = const 1 : i64\n  launch 0 %%1\n}\nphase {\n  %%2 = load x[] : %s\n"
                 "  %%3 = atomic %s y[] = %%2 : %s\n  store old[] = %%3\n}\n",
                 t, t, t, t, cases[i].kind, t);
        tile_kernel *k = parse(memory, words);
        uint64_t x = 0, y = 0, old = 0;
        element_write(cases[i].elem, &x, cases[i].x);
        element_write(cases[i].elem, &y, cases[i].start);
        array_view arrays[] = {view(&x, cases[i].elem, 0, 0, 0), view(&y, cases[i].elem, 0, 0, 0),
                               view(&old, cases[i].elem, 0, 0, 0)};
        EXPECT(k && launch(k, arrays, false, NULL, NULL) == QN_OK);
        number after = element_read(cases[i].elem, &y), before = element_read(cases[i].elem, &old);
        EXPECT(after.i == cases[i].expected.i && after.f == cases[i].expected.f);
        EXPECT(before.i == cases[i].start.i && before.f == cases[i].start.f);
        arena_free(memory);
    }
}

TEST(the_head_binds_checks_and_refuses)
{
    static const char *const words =
        "kernel t file \"t.qn\"\n  param x in f32 [n]\n  param y out f32 [_ = %3]\n"
        "  param eps scalar f32 default\n  param n extent i64\n"
        "head {\n  %1 = arg n : i64\n  %2 = const 2 : i64\n  %3 = mul %1, %2 : i64\n"
        "  extent y \"2 * n\" %3 axis 0\n  %4 = const 0.5 : f32\n  %5 = default eps %4 : f32\n"
        "  %6 = const 0 : i64\n  %7 = mod %1, %2 : i64\n  %8 = eq %7, %6 : bool\n"
        "  assume \"n % 2 == 0\" %8 ; 3:5\n  %9 = units : i64\n  launch 0 %1, %9\n}\nphase {\n}\n";
    arena *memory = arena_new();
    tile_kernel *k = parse(memory, words);
    if (!k) return;
    float x[6], y[12];
    bool given[64] = {0};
    number numbers[64] = {0};
    launch_plan plan = launch_plan_new(memory, k->param_count);
    qn_error error = {0};
    array_view arrays[] = {view(x, DT_F32, 1, 4, 0), view(NULL, DT_F32, 1, 0, 0), {0}, {0}};
    EXPECT(interp_head(k, given, numbers, arrays, 7, &plan, &error) == QN_OK);
    EXPECT(plan.extents[1][0] == 8 && plan.programs[0][0] == 4 && plan.programs[0][1] == 7 && plan.programs[0][2] == 1);
    EXPECT(plan.scalars_bits[3] == 4);
    double eps;
    memcpy(&eps, &plan.scalars_bits[2], sizeof(eps));
    EXPECT(eps == 0.5);
    given[2] = true;
    numbers[2].f = 0.1;
    EXPECT(interp_head(k, given, numbers, arrays, 7, &plan, &error) == QN_OK);
    memcpy(&eps, &plan.scalars_bits[2], sizeof(eps));
    EXPECT(eps == 0.1f);
    arrays[1] = view(y, DT_F32, 1, 12, 0);
    EXPECT(interp_head(k, given, numbers, arrays, 7, &plan, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "error E502: axis 0 of `y` has extent 12, expected `2 * n` = 8");
    arrays[0] = view(x, DT_F32, 1, 5, 0);
    arrays[1] = view(NULL, DT_F32, 1, 0, 0);
    EXPECT(interp_head(k, given, numbers, arrays, 7, &plan, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "t.qn:3:5: error E503: assume is false: n % 2 == 0 with n = 5");
    arrays[0].elem = DT_F64;
    EXPECT(interp_head(k, given, numbers, arrays, 7, &plan, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "E501") != NULL);
    arena_free(memory);
}

TEST(poison_stops_where_it_must)
{
    /* the load sticks out and is reduced without a select: a mistake of lowering, told as such */
    static const char *const words =
        "kernel t file \"t.qn\"\n  param x in f32 [n]\n  param y out f32 []\n  param n extent i64\n" HEAD_N
        "  %5 = load x[%3:%3 @0] : f32[4] ; 7:9\n  %6 = reduce sum %5 axes (0) : f32 ; 8:2\n  store y[] = %6\n}\n";
    arena *memory = arena_new();
    tile_kernel *k = parse(memory, words);
    float x[4] = {1, 2, 3, 4}, y;
    array_view arrays[] = {view(x, DT_F32, 1, 4, 0), view(&y, DT_F32, 0, 0, 0), {0}};
    qn_error error = {0};
    EXPECT(k && launch(k, arrays, false, NULL, &error) == QN_FAILED);
    EXPECT_TEXT(error.message,
                "t.qn:8:2: internal: a masked-off element reached a reduction in `reduce` (program 0): this "
                "tile IR was edited so that its masks do not fit, or lowering is wrong");
    arena_free(memory);
}

TEST(false_and_anything_is_false)
{
    /* poison & false is false, poison | true is true: a select by them takes the other arm and stores */
    static const char *const words =
        "kernel t file \"t.qn\"\n  param x in i32 [n]\n  param y out i32 [n]\n  param n extent i64\n" HEAD_N
        "  %5 = load x[%3:%3 @0] : i32[4]\n  %6 = bound %3, %3, %4 axis 0 : bool[4]\n"
        "  %7 = const 0 : i32\n  %8 = gt %5, %7 : bool[4]\n  %9 = and %8, %6 : bool[4]\n"
        "  %10 = not %6 : bool[4]\n  %11 = or %10, %8 : bool[4]\n  %12 = and %9, %11 : bool[4]\n"
        "  %13 = select %12, %5, %7 : i32[4]\n  store y[%2:%3 @0] = %13\n}\n";
    arena *memory = arena_new();
    tile_kernel *k = parse(memory, words);
    int32_t x[4] = {9, 1, -2, 3}, y[4];
    array_view arrays[] = {view(x, DT_I32, 1, 4, 0), view(y, DT_I32, 1, 4, 0), {0}};
    EXPECT(k && launch(k, arrays, false, NULL, NULL) == QN_OK);
    EXPECT(y[0] == 1 && y[1] == 0 && y[2] == 3 && y[3] == 0);
    arena_free(memory);
}

static void keep_line(void *context, const char *line)
{
    text *t = context;
    text_add(t, line);
    text_add(t, "\n");
}

TEST(prints)
{
    static const char *const words = "kernel show file \"t.qn\"\n  param x in f32 [n]\n  param n extent i64\n" HEAD_N
                                     "  %5 = load x[%3:%3 @0] : f32[4]\n  %6 = bound %3, %3, %4 axis 0 : bool[4]\n"
                                     "  %7 = const true : bool\n  %8 = iota axis 0 : i64[20]\n"
                                     "  print \"v = {} n = {} i = {}\" show 3 %5, %4, %8, %6, %7, %7 ; 9:3\n}\n";
    arena *memory = arena_new();
    tile_kernel *k = parse(memory, words);
    float x[3] = {1, 2.5, -1};
    array_view arrays[] = {view(x, DT_F32, 1, 3, 0), {0}};
    bool given[2] = {0};
    number numbers[2] = {0};
    launch_plan plan = launch_plan_new(memory, 2);
    text out = {0};
    interp_options options = {.check = true, .print = keep_line, .print_context = &out};
    EXPECT(k && interp_head(k, given, numbers, arrays, 1, &plan, NULL) == QN_OK);
    EXPECT(k && interp_run(k, arrays, &plan, &options, NULL, NULL) == QN_OK);
    EXPECT_TEXT(text_get(&out),
                "show (program 0), line 9: v = [2.5 -1 \xc2\xb7 \xc2\xb7] n = 3 i = [0 1 2 3 4 5 ... 18 19]\n");
    text_free(&out);
    arena_free(memory);
}

TEST_MAIN(CASE(control_flow), CASE(slices_gathers_and_views), CASE(atomics_give_the_old_value),
          CASE(the_head_binds_checks_and_refuses), CASE(poison_stops_where_it_must), CASE(false_and_anything_is_false),
          CASE(prints))
