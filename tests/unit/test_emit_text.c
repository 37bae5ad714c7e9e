/*
 * The C emitter's texts: golden ones for small kernels (tests/text/c; QUERN_BLESS=1 rewrites them), and what is neither
 * loops nor arithmetic: print, assert, raw kernels.
 * SPDX-License-Identifier: MIT
 */
#include "emitted.h"

/* The functions of the kernel, without the prelude before them. */
static const char *functions_of(const char *source, const char *name)
{
    char start[80];
    snprintf(start, sizeof(start), "int %s_phase0(", name);
    const char *found = strstr(source, start);
    while (found && found > source && found[-1] != '\n') found--;
    return found ? found : source;
}

TEST(golden_texts)
{
    static const char *const names[] = {"add",         "gelu_tile",   "softmax_row", "softmax_short",
                                        "matmul",      "embed",       "blur",        "softmax_steps",
                                        "gelu_stream", "center_rows", "turned",      "round_once"};
    for (int i = 0; i < COUNT(names); i++) {
        char path[512], *words = NULL, *expected = NULL;
        size_t length;
        qn_error error = {0};
        arena *memory = arena_new();
        tile_kernel *k = NULL;
        text source = {0};
        snprintf(path, sizeof(path), QUERN_ROOT "/tests/text/c/%s.tile", names[i]);
        bool ready = file_read(path, 1 << 20, &words, &length, &error) == QN_OK &&
                     tile_read(memory, path, words, length, &k, &error) == QN_OK &&
                     emit_c(k, NULL, &source, &error) == QN_OK;
        if (!ready) printf("%s: %s\n", names[i], error.message);
        EXPECT(ready);
        snprintf(path, sizeof(path), QUERN_ROOT "/tests/text/c/%s.expected", names[i]);
        const char *actual = functions_of(text_get(&source), names[i]);
        if (environment_get("QUERN_BLESS")) EXPECT(file_write(path, actual, strlen(actual), &error) == QN_OK);
        EXPECT(file_read(path, 1 << 20, &expected, &length, &error) == QN_OK);
        if (expected) EXPECT_TEXT(actual, expected);
        free(words);
        free(expected);
        text_free(&source);
        arena_free(memory);
    }
}

/* ---- print, assert, raw kernels ---- */

static void collect_line(void *context, const char *line)
{
    text_print(context, "%s\n", line);
}

/* Lines of the interpreter and of the compiled kernel; the kernel's inputs are x and h. */
TEST(prints_what_the_interpreter_prints)
{
    arena *memory = arena_new();
    setting list[8];
    int count = read_settings("n=13 BLOCK=8", list);
    tile_kernel *k = lower(memory, QUERN_ROOT "/tests/text/c/features.qn", "prints", list, count);
    text source = {0}, expected = {0}, actual = {0};
    qn_error error;
    compiled code = {0};
    if (k) set_facts(k, VIEW_PLAIN, list, count);
    bool ready = k && emit_c(k, NULL, &source, &error) == QN_OK && compile(text_get(&source), &code);
    EXPECT(ready);
    if (ready) {
        launch_plan plan = launch_plan_new(memory, k->param_count);
        array_view arrays[64] = {0};
        cpu_array infos[64];
        held memory_of[64] = {0};
        random_state = 5;
        for (int p = 0; p < k->param_count; p++) {
            if (!is_array(&k->params[p])) {
                plan.scalars_bits[p] = 13;
                continue;
            }
            arrays[p] = (array_view){.elem = k->params[p].elem, .rank = 1, .extents = {13}};
            plan.extents[p][0] = 13;
            memory_of[p] = make_array(&arrays[p], VIEW_PLAIN);
            fill_random(&arrays[p], NULL);
            infos[p].data = arrays[p].data;
            infos[p].extents[0] = 13;
            infos[p].strides[0] = 1;
        }
        plan.programs[0][0] = plan.programs[0][1] = 2;
        plan.programs[0][2] = 1;
        interp_options options = {.units = 2, .print = collect_line, .print_context = &expected};
        findings found = {0};
        EXPECT(interp_run(k, arrays, &plan, &options, &found, &error) == QN_OK);
        findings_free(&found);
        cpu_report report = {0};
        cpu_launch launch = {.arrays = infos, .scalars = plan.scalars_bits, .programs = {2, 2, 1}, .report = &report};
        launch.print = collect_line;
        launch.print_context = &actual;
        cpu_phase *phase;
        *(void **)&phase = dlsym(code.library, "prints_phase0");
        void *scratch = aligned_alloc(64, 1 << 16);
        phase(&launch, 0, 4, scratch);
        EXPECT(strstr(text_get(&actual), "prints (program 1, 0), line "));
        EXPECT_TEXT(text_get(&actual), text_get(&expected));
        free(scratch);
        for (int p = 0; p < k->param_count; p++) free(memory_of[p].bytes);
        dlclose(code.library);
    }
    text_free(&source);
    text_free(&expected);
    text_free(&actual);
    arena_free(memory);
}

/* The first failing program is reported, the others run, and nothing after the assert happens in it. */
TEST(assert_stops_its_program)
{
    arena *memory = arena_new();
    setting list[8];
    int count = read_settings("n=70 BLOCK=32", list);
    tile_kernel *k = lower(memory, QUERN_ROOT "/tests/text/c/features.qn", "checks", list, count);
    text source = {0};
    qn_error error;
    compiled code = {0};
    if (k) set_facts(k, VIEW_PLAIN, list, count);
    bool ready = k && emit_c(k, NULL, &source, &error) == QN_OK && compile(text_get(&source), &code);
    EXPECT(ready);
    if (ready) {
        float x[70], y[70];
        for (int i = 0; i < 70; i++) x[i] = (float)i, y[i] = -1;
        x[40] = 100;
        cpu_array infos[64] = {{0}};
        int64_t scalars[64] = {0};
        for (int p = 0; p < k->param_count; p++) {
            scalars[p] = 70;
            infos[p] = (cpu_array){.data = k->params[p].kind == PARAM_IN ? x : y, .extents = {70}, .strides = {1}};
        }
        cpu_report report = {0};
        cpu_launch launch = {.arrays = infos, .scalars = scalars, .programs = {3, 1, 1}, .report = &report};
        cpu_phase *phase;
        *(void **)&phase = dlsym(code.library, "checks_phase0");
        void *scratch = aligned_alloc(64, 1 << 16);
        phase(&launch, 0, 3, scratch);
        EXPECT(report.failed == 1 && report.program[0] == 1 && report.line > 0);
        EXPECT(y[31] == 31 && y[32] == -1 && y[63] == -1 && y[64] == 64);
        free(scratch);
        dlclose(code.library);
    }
    text_free(&source);
    arena_free(memory);
}

static void expect_refusal(const char *name, const char *words)
{
    arena *memory = arena_new();
    tile_kernel *k = lower(memory, QUERN_ROOT "/tests/text/c/features.qn", name, NULL, 0);
    text source = {0};
    qn_error error = {0};
    EXPECT(k && emit_c(k, NULL, &source, &error) == QN_BAD_SOURCE);
    if (!strstr(error.message, words)) printf("%s: %s\n", name, error.message);
    EXPECT(strstr(error.message, "E508") && strstr(error.message, words));
    text_free(&source);
    arena_free(memory);
}

TEST(raw_kernels)
{
    expect_refusal("wrong_type", "declared parameter 1 (x) is `float *`, source has `double *`");
    expect_refusal("wrong_count", "declares 3 parameters");
    expect_refusal("wrong_name", "defines no function wrong_name");
    arena *memory = arena_new();
    setting list[8];
    int count = read_settings("n=3 m=4 by=0.5", list);
    tile_kernel *k = lower(memory, QUERN_ROOT "/tests/text/c/features.qn", "scaled", list, count);
    text source = {0};
    qn_error error = {0};
    compiled code = {0};
    bool ready = k && emit_c(k, NULL, &source, &error) == QN_OK && compile(text_get(&source), &code);
    if (!ready) printf("%s\n", error.message);
    EXPECT(ready);
    if (ready) {
        float x[12];
        double y[3] = {0}, by = 0.5;
        int z[4] = {1, 2, 3, 4};
        for (int i = 0; i < 12; i++) x[i] = (float)i;
        cpu_array infos[6] = {{.data = x}, {.data = y}, {.data = z}};
        int64_t scalars[6] = {0, 0, 0, 0, 3, 4};
        memcpy(&scalars[3], &by, sizeof(by));
        cpu_launch launch = {.arrays = infos, .scalars = scalars, .programs = {3, 1, 1}};
        cpu_phase *phase;
        *(void **)&phase = dlsym(code.library, "scaled_phase0");
        phase(&launch, 0, 3, NULL);
        EXPECT(y[0] == 6 && y[1] == 14 && y[2] == 22 && z[0] == 6);
        dlclose(code.library);
    }
    text_free(&source);
    arena_free(memory);
}

TEST_MAIN(CASE(prints_what_the_interpreter_prints), CASE(assert_stops_its_program), CASE(raw_kernels),
          CASE(golden_texts))
