/*
 * Tuning: the candidates of a clause, the record of timings and who may use it, and what `tune` says. Needs the cpu
 * device for all but the record's own rules.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "run/compile/tune.h"
#include "test.h"

#include <stdlib.h>

static const char source[] =
    "float twice(float x) { return 2 * x; }\n"
    "kernel scale(in T x[r][n], out T y[r][n], const int A = 64, const int B = 128) launch (r, cdiv(n, B))\n"
    "    tune (A in {16, 64}, B in {64, 128, 256}, warps in {4, 8}) if (A < B) types (T in {float, bf16})\n"
    "{ y[program(0)][program(1) * B : B] = T(twice(float(x[program(0)][program(1) * B : B])) + 0 * A); }\n"
    "kernel plain(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))\n"
    "{ y[program(0) * B : B] = x[program(0) * B : B]; }\n";

static qn_error error;
static char folder[] = "/tmp/quern-tune-XXXXXX", path[100];
static float x[1 << 16];

static qn_context *open_with(const char *tune)
{
    qn_context *context;
    if (tune)
        setenv("QUERN_TUNE", tune, 1);
    else
        unsetenv("QUERN_TUNE");
    EXPECT(qn_context_open(&(qn_context_options){.cache_folder = folder, .threads = 1}, &context, &error) == QN_OK);
    return context;
}

static qn_module *load(qn_context *context, const char *words)
{
    qn_module *module;
    EXPECT(qn_module_load_text(context, "scale.qn", words, &module, &error) == QN_OK);
    return module;
}

static qn_call *call_of(qn_module *module, int64_t r, int64_t n)
{
    qn_call *call;
    int64_t extents[] = {r, n};
    EXPECT(qn_call_new(module, "scale", &call, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 2, extents, NULL, &error) == QN_OK);
    return call;
}

/* The constants with which a call of this size runs on the cpu, "A=64 B=128"; with B fixed where it is not 0. */
static const char *chosen(qn_context *context, const char *words, int64_t r, int64_t n, int b)
{
    static char result[64];
    int slot;
    instance *i;
    qn_module *module = load(context, words);
    qn_call *call = call_of(module, r, n);
    if (b) EXPECT(qn_call_set_int(call, "B", b, &error) == QN_OK);
    context_slot(context, "cpu", &slot, NULL);
    qn_status status = call_instance(call, slot, &i, &error);
    EXPECT(status == QN_OK);
    const binding *a = status ? NULL : bindings_find(&i->constants, "A");
    const binding *block = status ? NULL : bindings_find(&i->constants, "B");
    snprintf(result, sizeof(result), "A=%lld B=%lld", a ? (long long)a->number.i : 0,
             block ? (long long)block->number.i : 0);
    qn_call_free(call);
    qn_module_free(module);
    return result;
}

/* Keeps a timing for calls of this size, given by arrays or by settings. */
static void keep(qn_context *context, int64_t r, int64_t n, bool by_settings, const char *configuration, double time_ns)
{
    int slot;
    text key = {0};
    qn_module *module = load(context, source);
    qn_call *call;
    if (by_settings) {
        EXPECT(qn_call_new(module, "scale", &call, &error) == QN_OK);
        EXPECT(qn_call_set_int(call, "n", n, &error) == QN_OK);
        EXPECT(qn_call_set_int(call, "r", r, &error) == QN_OK);
        EXPECT(qn_call_set_type(call, "T", QN_F32, &error) == QN_OK);
    } else {
        call = call_of(module, r, n);
    }
    context_slot(context, "cpu", &slot, NULL);
    EXPECT(tune_key_of(call, slot, &key, &error) == QN_OK);
    tune_record(context, text_get(&key), configuration, time_ns);
    text_free(&key);
    qn_call_free(call);
    qn_module_free(module);
}

TEST(opening)
{
    EXPECT(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/scale.qn", folder);
    EXPECT(file_write(path, source, strlen(source), &error) == QN_OK);
    for (int i = 0; i < 1 << 16; i++) x[i] = (float)(i % 100);
}

TEST(the_record_is_used)
{
    qn_context *context = open_with(NULL);
    EXPECT_TEXT(chosen(context, source, 16, 1000, 0), "A=64 B=128");
    keep(context, 16, 1000, true, "A=16 B=256", 100);
    keep(context, 16, 1000, false, "A=64 B=64", 50);
    keep(context, 16, 1000, false, "A=16 B=128", 80);
    EXPECT_TEXT(chosen(context, source, 16, 1000, 0), "A=64 B=64");    /* the fastest */
    EXPECT_TEXT(chosen(context, source, 16, 1024, 0), "A=64 B=64");    /* the same bucket */
    EXPECT_TEXT(chosen(context, source, 16, 1025, 0), "A=64 B=128");   /* another */
    EXPECT_TEXT(chosen(context, source, 16, 1000, 256), "A=16 B=256"); /* the fastest that has the caller's B */
    EXPECT_TEXT(chosen(context, source, 16, 1000, 32), "A=64 B=32");   /* there is none */
    keep(context, 16, 1000, false, "A=64 B=64", 90);                   /* measured again */
    EXPECT_TEXT(chosen(context, source, 16, 1000, 0), "A=16 B=128");
    qn_context_close(context);

    context = open_with(NULL); /* another process */
    EXPECT_TEXT(chosen(context, source, 16, 1000, 0), "A=16 B=128");
    qn_context_close(context);
    context = open_with("off");
    EXPECT_TEXT(chosen(context, source, 16, 1000, 0), "A=64 B=128");
    qn_context_close(context);
}

TEST(a_changed_kernel_has_no_record)
{
    char other[sizeof(source)];
    qn_context *context = open_with(NULL);
    memcpy(other, source, sizeof(source));
    *strstr(other, "2 * x") = '3'; /* a function that it uses */
    EXPECT_TEXT(chosen(context, other, 16, 1000, 0), "A=64 B=128");
    memcpy(other, source, sizeof(source));
    *(strstr(other, "kernel plain") + 7) = 'q'; /* its neighbour */
    EXPECT_TEXT(chosen(context, other, 16, 1000, 0), "A=16 B=128");
    qn_context_close(context);
}

TEST(damage_is_skipped)
{
    char log[120], *words;
    size_t size;
    text damaged = {0};
    snprintf(log, sizeof(log), "%s/tune.log", folder);
    EXPECT(file_read(log, 1 << 20, &words, &size, &error) == QN_OK);
    text_add(&damaged, "nonsense\n\t\t\t\nscale\tshort\tA=1\t5\nscale\t0123456789abcdef0123456789abcdef\tA=1\tnan\n");
    text_add(&damaged, words);
    text_add(&damaged, "scale\tcut");
    EXPECT(file_write(log, text_get(&damaged), damaged.length, &error) == QN_OK);
    qn_context *context = open_with(NULL);
    EXPECT_TEXT(chosen(context, source, 16, 1000, 0), "A=16 B=128");
    int64_t files, bytes;
    EXPECT(qn_cache_clear(context, &files, &bytes, &error) == QN_OK);
    EXPECT_TEXT(chosen(context, source, 16, 1000, 0), "A=64 B=128"); /* cleared with the rest */
    qn_context_close(context);
    free(words);
    text_free(&damaged);
}

static void collect(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

static bool has_cpu(void)
{
    qn_context *context = open_with(NULL);
    bool there = !strcmp(qn_device_best(context), "cpu") || !strncmp(qn_device_best(context), "cuda", 4);
    qn_context_close(context);
    if (!there) printf("note: tune: no cpu device here, the timing cases were left out\n");
    return there;
}

TEST(all_candidates_are_timed_and_kept)
{
    if (!has_cpu()) return;
    static const char *const settings[] = {"r=16", "n=1000"};
    char json_path[120], *words;
    size_t size;
    text out = {0}, said = {0};
    snprintf(json_path, sizeof(json_path), "%s/tune.json", folder);
    qn_context *context = open_with(NULL);
    qn_tune_options options = {.device = "cpu",
                               .settings = {settings, 2},
                               .effort = "full",
                               .budget_s = 20,
                               .json_path = json_path,
                               .progress = true};
    qn_status status = qn_tune(context, path, "scale", &options, collect, collect, &out, &error);
    EXPECT(status == QN_OK);
    if (status) printf("%s\n", error.message);
    /* Knobs are none of the cpu's business; A < B leaves five of six, the default among them. */
    EXPECT(strstr(text_get(&out), "scale on cpu (r = 16, n = 1000): 5 of 5 candidates timed in ") != NULL);
    EXPECT(strstr(text_get(&out), "compiling 1 to ") != NULL && strstr(text_get(&out), "timing scale(A = 16, B = 64)"));
    EXPECT(strstr(text_get(&out), "1.00x  ok, the default") != NULL && strstr(text_get(&out), "\nbest: A=") != NULL);
    EXPECT(strstr(text_get(&out), "\nkept: ") != NULL);
    EXPECT(file_read(json_path, 1 << 20, &words, &size, &error) == QN_OK);
    EXPECT(test_count(words, "\"configuration\": \"A=") == 5 && test_count(words, "\"best\": 1") == 1);
    EXPECT(test_count(words, "\"default\": 1") == 1 && test_count(words, "\"median_ns\": null") == 0);
    free(words);

    /* What it found is what a call of like size gets. */
    const char *best = strstr(text_get(&out), "\nbest: ");
    char expected[64] = "";
    if (best) sscanf(best, "\nbest: %15[^ ,\n] %15[^ ,\n]", expected, expected + 20);
    strcat(strcat(expected, " "), expected + 20);
    EXPECT_TEXT(chosen(context, source, 15, 990, 0), expected);
    qn_context_close(context);
    text_free(&out);
    text_free(&said);
}

/* Knobs change the text for a GPU, never the result. */
TEST(knobs_reach_the_text)
{
    static const char product[] = "kernel product(in float a[M][K], in float b[K][N], out float c[M][N])\n"
                                  "    launch (cdiv(M, 16), cdiv(N, 16)) tune (warps in {1, 8, 32}, group in {1, 2})\n"
                                  "{ tile float s[16][16] = 0;\n"
                                  "  for (int k = 0; k < K; k += 16)\n"
                                  "      s += dot(a[program(0) * 16 : 16][k : 16], b[k : 16][program(1) * 16 : 16]);\n"
                                  "  c[program(0) * 16 : 16][program(1) * 16 : 16] = s; }\n";
    static const char *const settings[][2] = {{"warps=1", "group=1"}, {"warps=8", "group=1"}, {"warps=8", "group=2"}};
    static const char *const threads[] = {"const int threads = 32;", "const int threads = 256;",
                                          "const int threads = 256;"};
    char file[120];
    snprintf(file, sizeof(file), "%s/product.qn", folder);
    EXPECT(file_write(file, product, strlen(product), &error) == QN_OK);
    qn_context *context = open_with(NULL);
    for (int i = 0; i < 3; i++) {
        text out = {0};
        qn_show_options options = {.stage = "cuda", .settings = {settings[i], 2}};
        EXPECT(qn_show(context, file, "product", &options, collect, &out, &error) == QN_OK);
        EXPECT(strstr(text_get(&out), threads[i]) != NULL);
        EXPECT((strstr(text_get(&out), "run_rows") != NULL) == (i == 2));
        text_free(&out);
    }
    qn_module *module;
    float a[3][35 * 40], expected = 0;
    for (int i = 0; i < 35 * 40; i++) a[0][i] = a[1][i] = (float)(i % 7 - 3);
    for (int k = 0; k < 40; k++) expected += a[0][34 * 40 + k] * a[1][k * 35 + 33];
    EXPECT(qn_module_load_file(context, file, &module, &error) == QN_OK);
    for (int i = 0; i < 3; i++) {
        qn_call *call;
        const int64_t left[] = {35, 40}, right[] = {40, 35}, both[] = {35, 35};
        EXPECT(qn_call_new(module, "product", &call, &error) == QN_OK);
        EXPECT(qn_call_set_memory(call, "a", a[0], QN_F32, 2, left, NULL, &error) == QN_OK);
        EXPECT(qn_call_set_memory(call, "b", a[1], QN_F32, 2, right, NULL, &error) == QN_OK);
        EXPECT(qn_call_set_memory(call, "c", a[2], QN_F32, 2, both, NULL, &error) == QN_OK);
        EXPECT(qn_call_set_int(call, "warps", i ? 8 : 1, &error) == QN_OK);
        EXPECT(qn_call_set_int(call, "group", i == 2 ? 2 : 1, &error) == QN_OK);
        qn_status status = qn_call_run(call, "emu", &error);
        if (status == QN_NO_DEVICE)
            printf("note: skipped knobs on emu: %s\n", error.message);
        else
            EXPECT(status == QN_OK && a[2][34 * 35 + 33] == expected);
        if (status && status != QN_NO_DEVICE) printf("%s\n", error.message);
        qn_call_free(call);
    }
    qn_module_free(module);
    qn_context_close(context);
}

/* Of a tensor function the tiles of its products are tried; a number of them is a setting like any other. */
TEST(tiles_of_a_function)
{
    static const char function[] = "tensor product(T a[M][K], T b[K][N]) { return matmul(a, b); }\n";
    static const char *const large[] = {"M=1024", "N=1024", "K=1024", "T=bf16", "tile=2"};
    static const char *const small[] = {"M=16", "N=16", "K=16", "T=bf16"};
    char file[120];
    text out = {0};
    snprintf(file, sizeof(file), "%s/function.qn", folder);
    EXPECT(file_write(file, function, strlen(function), &error) == QN_OK);
    qn_context *context = open_with(NULL);
    for (int given = 0; given < 2; given++) {
        qn_show_options options = {.stage = "choices", .arch = "sm_90a", .settings = {large, given ? 5 : 4}};
        text_clear(&out);
        EXPECT(qn_show(context, file, "product", &options, collect, &out, &error) == QN_OK);
        const char *taken = strstr(text_get(&out), "\n  > "), *end = taken ? strchr(taken + 1, '\n') : NULL;
        const char *second = strstr(text_get(&out), "(tile=2)");
        EXPECT(taken && end && second && (second > taken && second < end) == given);
    }
    text_clear(&out);
    qn_tune_options options = {.device = "emu", .settings = {small, 4}, .budget_s = 1};
    qn_status status = qn_tune(context, file, "product", &options, collect, NULL, &out, &error);
    if (status == QN_NO_DEVICE)
        printf("note: skipped tiles on emu: %s\n", error.message);
    else
        EXPECT(status == QN_OK && strstr(text_get(&out), "8 of 8 candidates") &&
               strstr(text_get(&out), "\nbest: tile="));
    qn_context_close(context);
    text_free(&out);
}

/* The message of a tuning that must be refused. */
static const char *refusal(const char *kernel, const char *setting, const char *effort, const char *device)
{
    text out = {0};
    qn_context *context = open_with(NULL);
    qn_tune_options options = {.device = device, .settings = {&setting, setting ? 1 : 0}, .effort = effort};
    qn_status status = qn_tune(context, path, kernel, &options, collect, NULL, &out, &error);
    EXPECT(status == QN_BAD_CALL);
    qn_context_close(context);
    text_free(&out);
    return error.message;
}

TEST(what_cannot_be_tuned_is_told)
{
    if (!has_cpu()) return;
    EXPECT_TEXT(refusal("plain", "n=100", NULL, "cpu"),
                "there is nothing to tune in kernel `plain`: list candidates of its constants, such as `tune (BLOCK in "
                "{256, 1024})`");
    EXPECT_TEXT(refusal("scale", "n=100", "hard", "cpu"), "the effort is quick or full, not `hard`");
    EXPECT_TEXT(refusal("scale", "n=100", NULL, "ref"), "the device ref compiles nothing: there is nothing to tune");
    EXPECT(strstr(refusal("scael", "n=100", NULL, "cpu"), "has no kernel `scael`; did you mean `scale`?"));
    EXPECT(strstr(refusal("scale", "m=100", NULL, "cpu"), "`m`"));
}

TEST(stages_are_dumped)
{
    if (!has_cpu()) return;
    char dump[120], command[200];
    snprintf(dump, sizeof(dump), "%s/dump", folder);
    setenv("QUERN_DUMP_DIR", dump, 1);
    qn_context *context = open_with(NULL);
    qn_module *module = load(context, source);
    qn_call *call = call_of(module, 3, 100);
    EXPECT(qn_call_run(call, "cpu", &error) == QN_OK);
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
    unsetenv("QUERN_DUMP_DIR");
    static const char *const files[] = {"00-lowered.tile", "kernel.c", "kernel.s", "kernel.so"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(command, sizeof(command), "test -s %s/scale-*/%s", dump, files[i]);
        EXPECT(system(command) == 0);
    }
}

static void remember(void *user, const char *line)
{
    text_add(user, line);
    text_add(user, "\n");
}

TEST(the_log_shows_code)
{
    if (!has_cpu()) return;
    text log = {0};
    qn_context *context;
    setenv("QUERN_LOG", "code", 1);
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true, .print = remember, .user = &log}, &context,
                           &error) == QN_OK);
    unsetenv("QUERN_LOG");
    qn_module *module = load(context, source);
    qn_call *call = call_of(module, 3, 100);
    EXPECT(qn_call_run(call, "cpu", &error) == QN_OK);
    EXPECT(strstr(text_get(&log), "code: scale for cpu\n") != NULL && strstr(text_get(&log), "scale_phase0") != NULL);
    EXPECT(!strstr(text_get(&log), "cache: "));
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
    text_free(&log);
}

TEST(closing)
{
    char command[100];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    EXPECT(system(command) == 0);
}

TEST_MAIN(CASE(opening), CASE(the_record_is_used), CASE(a_changed_kernel_has_no_record), CASE(damage_is_skipped),
          CASE(all_candidates_are_timed_and_kept), CASE(knobs_reach_the_text), CASE(tiles_of_a_function),
          CASE(what_cannot_be_tuned_is_told), CASE(stages_are_dumped), CASE(the_log_shows_code), CASE(closing))
