/*
 * Raw CUDA kernels as text: what is read from the user's text, the refusals in exact words, the text that is compiled,
 * included files, options, limits of a launch, and that NVRTC takes it all for every architecture it knows. Where NVRTC
 * is not installed the cases that need it are skipped, and say so.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/nvrtc.h"
#include "emit/raw/raw.h"
#include "lang/ast.h"
#include "test.h"

#include <stdlib.h>

#define FOLDER QUERN_ROOT "/tests/text/raw"

/* A kernel of a text, T bound to `type`. */
static tile_kernel *lower_text(arena *memory, const char *path, const char *words, const char *name, dtype type)
{
    diagnostics d = {.memory = memory};
    ast_file *file = lang_parse(memory, path, words, strlen(words), &d);
    lang_check(file, &d);
    const ast *item = d.errors ? NULL : ast_find(file, name);
    lang_given given = {.units = 2};
    bindings constants = {0}, extents = {0};
    tile_kernel *k = NULL;
    for (int i = 0; item && i < item->list.count; i++)
        if (item->list.items[i]->type->is_generic)
            bindings_set(memory, &given.settings, (binding){.name = "T", .kind = BIND_TYPE, .type = type});
    bool good = item && lang_instantiate(file, item, &given, &d, memory, &constants, &extents) &&
                lang_lower(file, item, &constants, memory, &d, &k);
    text out = {0};
    diagnostics_print(&d, file, false, &out);
    if (!good) printf("%s: %s\n", name, text_get(&out));
    text_free(&out);
    return good ? k : NULL;
}

static tile_kernel *lower_file(arena *memory, const char *name, dtype type)
{
    char *words = NULL;
    size_t length;
    qn_error error;
    if (file_read(FOLDER "/kernels.qn", 1 << 20, &words, &length, &error) != QN_OK) return NULL;
    tile_kernel *k = lower_text(memory, FOLDER "/kernels.qn", words, name, type);
    free(words);
    return k;
}

TEST(functions_of_a_text)
{
    static const char words[] = "#define f(x) (x)\n"
                                "struct __align__(8) pair { float a; float twice(int n) { return n * a; } };\n"
                                "namespace { __device__ float helper(float x) { return f(x); } }\n"
                                "extern \"C\" {\n"
                                "__global__ void __launch_bounds__(128, 4)\n"
                                "first(const float *__restrict__ x, unsigned int const n, float *const y = 0) {}\n"
                                "}\n"
                                "// __global__ void gone(int n) {}\n"
                                "template <typename A, int N = (1 > 2), class B = A>\n"
                                "static __global__ void second(const A (&x)[N], B y) { if (y) first(0, 1); }\n"
                                "__global__ void third(void);\n";
    static const struct {
        const char *name;
        bool global;
        int templates;
        const char *bounds;
    } expected[] = {{"helper", false, 0, ""},
                    {"first", true, 0, "__launch_bounds__(128, 4)"},
                    {"second", true, 3, ""},
                    {"third", true, 0, ""}};
    const char *at = words;
    raw_function f;
    int count = 0;
    for (; raw_next_function(&at, &f) && count < COUNT(expected); count++) {
        EXPECT(f.name.length == strlen(expected[count].name));
        EXPECT(!strncmp(f.name.start, expected[count].name, f.name.length));
        EXPECT((f.global.length > 0) == expected[count].global && f.template_count == expected[count].templates);
        EXPECT(f.bounds.length == strlen(expected[count].bounds) &&
               !strncmp(f.bounds.length ? f.bounds.start : "", expected[count].bounds, f.bounds.length));
        if (count == 2) EXPECT(*f.template_names[1].start == 'N' && *f.template_names[2].start == 'B');
        if (count != 1) continue;
        static const char *const types[] = {"float *", "unsigned int", "float *"};
        static const char names[] = "xny";
        const char *c = f.parameters;
        for (int i = 0; i < 3; i++) {
            raw_parameter p = {0};
            raw_read_parameter(&c, &p);
            EXPECT_TEXT(text_get(&p.type), types[i]);
            EXPECT(p.name.length == 1 && *p.name.start == names[i] && p.is_const == (i < 2));
            EXPECT(*c == (i < 2 ? ',' : ')'));
            c++;
            text_free(&p.type);
        }
    }
    EXPECT(count == COUNT(expected));
}

TEST(names_are_replaced_as_a_compiler_would)
{
    const char *at = "template <typename T, int N> __global__ void f(T x)";
    raw_function f;
    EXPECT(raw_next_function(&at, &f));
    raw_names names = {
        .constants = "#define T2 half\n#define M 7\n", .function = &f, .instance = "f<pair<int, 2>, 16>"};
    static const char words[] = "T *N, M T2 NT";
    text out = {0};
    raw_substitute(&names, (raw_span){words, sizeof(words) - 1}, &out);
    EXPECT_TEXT(text_get(&out), "pair<int, 2> *16, 7 half NT");
    text_free(&out);
}

static void expect_refusal(const char *declaration, const char *source, const char *expected)
{
    arena *memory = arena_new();
    text words = {0}, out = {0};
    text_print(&words, "cuda %s launch (1) block (1)\n\"\"\"\n%s\n\"\"\"\n", declaration, source);
    tile_kernel *k = lower_text(memory, "a.qn", text_get(&words), "f", DT_F32);
    qn_error error = {0};
    EXPECT(k && emit_raw_cuda(k, NULL, &out, &error) == QN_BAD_SOURCE);
    EXPECT_TEXT(error.message, expected);
    text_free(&words);
    text_free(&out);
    arena_free(memory);
}

TEST(refusals)
{
    expect_refusal(
        "f(in float x[n])", "__global__ void g(const float *x, long n) {}",
        "a.qn: error E508: the text of `cuda f` defines no function f\n    give the function the kernel's name");
    expect_refusal("f(in float x[n])", "void f(const float *x, long n) {}",
                   "a.qn: error E508: the function f of `cuda f` is not a kernel\n    write `__global__` before it");
    expect_refusal(
        "f(in float x[n])", "__global__ void f(const float *y) {}",
        "a.qn: error E508: `cuda f` declares 2 parameters (arrays and scalars, then extents as long), its text "
        "has 1\n    make the declaration and the CUDA text agree, or give the text's parameters the names of the "
        "declaration, in any order");
    expect_refusal(
        "f(in float x[n])", "__global__ void f(const float *x, long n, int m) {}",
        "a.qn: error E508: `cuda f` declares 2 parameters (arrays and scalars, then extents as long), its text "
        "has 3\n    make the declaration and the CUDA text agree, or give the text's parameters the names of the "
        "declaration, in any order");
    expect_refusal("f(in T x[n], out T y[n])", "__global__ void f(const T *x, double *y, long n) {}",
                   "a.qn:1:25: error E508: declared parameter 2 (y) is `float *`, source has `double *`\n    make the "
                   "declaration and the CUDA text agree, or give the text's parameters the names of the declaration, "
                   "in any order");
    expect_refusal("f<float>(in float x[n])", "__global__ void f(const float *x, long n) {}",
                   "a.qn: error E508: `cuda f` gives template arguments, but the function f is not a template\n    "
                   "remove them");
    expect_refusal("f(in float x[n])", "template <typename T> __global__ void f(const T *x, long n) {}",
                   "a.qn: error E508: the function f of `cuda f` is a template\n    name its arguments: `cuda "
                   "f<float>(...)`");
    expect_refusal("f<double>(in float x[n])", "template <typename E> __global__ void f(const E *x, long n) {}",
                   "a.qn:1:25: error E508: declared parameter 1 (x) is `float *`, source has `double *`\n    make the "
                   "declaration and the CUDA text agree, or give the text's parameters the names of the declaration, "
                   "in any order");
}

static void emitted(const char *name, dtype type, text *out)
{
    arena *memory = arena_new();
    tile_kernel *k = lower_file(memory, name, type);
    qn_error error = {0};
    bool good = k && emit_raw_cuda(k, NULL, out, &error) == QN_OK;
    if (!good) printf("%s: %s\n", name, error.message);
    EXPECT(good);
    arena_free(memory);
}

static void expect_parts(const char *words, const char *const *parts, int count)
{
    for (int i = 0; i < count; i++) {
        const char *at = strstr(words, parts[i]);
        if (!at) printf("not there, or not in this order: %s\n", parts[i]);
        EXPECT(at != NULL);
        if (at) words = at + strlen(parts[i]);
    }
}

TEST(the_text_that_is_compiled)
{
    text out = {0};
    emitted("scale", DT_F16, &out);
    static const char *const scale[] = {
        "/* Raw kernel scale of ",
        "struct half {",
        "#define T half\n#define PER 2\n",
        "#line 18 \"" FOLDER "/kernels.qn\"\n",
        "__device__ void                                scale(const T *",
        "#line 1 \"generated CUDA\"\n#undef T\n#undef PER\n",
        "extern \"C\" __global__ void __launch_bounds__(2 * 32, 2) scale_phase0(const __grid_constant__ scale_frame "
        "frame)\n",
        "scale((const half *)frame.words[0], (half *)frame.words[3], (float)quern_number(frame.words[6]), "
        "(int)frame.words[7], (long)frame.words[8]);\n"};
    expect_parts(text_get(&out), scale, COUNT(scale));
    text_clear(&out);
    emitted("transpose", DT_F64, &out);
    static const char *const transpose[] = {"__device__ void transpose(const T *x, T *y, long rows, long cols);",
                                            "__launch_bounds__(16 * 16) transpose_phase0(",
                                            "    transpose<double, 16>((const double *)frame.words[0], "};
    EXPECT(!strstr(text_get(&out), "#define T "));
    expect_parts(text_get(&out), transpose, COUNT(transpose));
    text_clear(&out);
    emitted("row_sum", DT_F32, &out);
    static const char *const row_sum[] = {"//option -DSTART=0.0f\n//option --use_fast_math\n/* Raw",
                                          "#line 1 \"" FOLDER "/row_sum.cu\"\n/* cuda_runtime.h */\n",
                                          "#line 1 \"" FOLDER "/folder/tree.cuh\"\n",
                                          "#line 1 \"" FOLDER "/folder/plus.cuh\"\n",
                                          "static __device__ float plus(",
                                          "__device__ void tree(T *part)",
                                          "#line 4 \"" FOLDER "/row_sum.cu\"\n",
                                          "__launch_bounds__(128) row_sum_phase0("};
    expect_parts(text_get(&out), row_sum, COUNT(row_sum));
    EXPECT(!strstr(strstr(text_get(&out), "tree(T *part)") + 1, "tree(T *part)"));
    const char *at = text_get(&out);
    raw_span option;
    EXPECT(raw_next_option(&at, &option) && !strncmp(option.start, "-DSTART=0.0f", option.length));
    EXPECT(raw_next_option(&at, &option) && option.length == strlen("--use_fast_math"));
    EXPECT(!raw_next_option(&at, &option) && !strncmp(at, "/* Raw", 6));
    text_free(&out);
}

TEST(dumps_carry_everything)
{
    static const char *const names[] = {"twice", "scale", "transpose", "row_sum"};
    for (int i = 0; i < COUNT(names); i++) {
        arena *memory = arena_new();
        tile_kernel *k = lower_file(memory, names[i], DT_F32), *again = NULL;
        text first = {0}, second = {0};
        qn_error error = {0};
        tile_print(k, &first);
        EXPECT(tile_read(memory, "dump", text_get(&first), first.length, &again, &error) == QN_OK);
        tile_print(again, &second);
        EXPECT_TEXT(text_get(&second), text_get(&first));
        EXPECT(!strcmp(again->raw_source, k->raw_source) && !again->raw_instance == !k->raw_instance);
        tile_kernel *copy = tile_clone(k, memory); /* a kernel in the store outlives the plan that it came from */
        EXPECT(copy->raw_language != k->raw_language && copy->raw_source != k->raw_source);
        EXPECT(copy->raw_constants != k->raw_constants && (!k->raw_path || copy->raw_path != k->raw_path));
        EXPECT((!k->raw_instance || copy->raw_instance != k->raw_instance) &&
               (!k->raw_options || copy->raw_options != k->raw_options));
        text_free(&first);
        text_free(&second);
        arena_free(memory);
    }
}

static void expect_shape(tile_kernel *k, const int64_t numbers[7], int shared_limit, const char *expected)
{
    launch_plan plan = {0};
    for (int i = 0; i < 3; i++) {
        plan.programs[RAW_GRID][i] = numbers[i];
        plan.programs[RAW_BLOCK][i] = numbers[3 + i];
    }
    plan.programs[RAW_SHARED][0] = numbers[6];
    cuda_shape shape;
    cuda_target target = {.shared_bytes = shared_limit};
    qn_error error = {0};
    qn_status status = raw_cuda_shape(k, &plan, shared_limit ? &target : NULL, &shape, &error);
    EXPECT(status == (*expected ? QN_BAD_CALL : QN_OK));
    EXPECT_TEXT(error.message, expected);
    if (!status) EXPECT(shape.threads == numbers[3] * numbers[4] * numbers[5] && shape.block[1] == numbers[4]);
    if (!status) EXPECT(shape.grid[2] == numbers[2] && shape.shared_bytes == numbers[6] && shape.cluster == 1);
}

TEST(limits_of_a_launch)
{
    arena *memory = arena_new();
    tile_kernel *k = lower_text(
        memory, "a.qn", "cuda f(in float x[n]) launch (n) block (32) shared (64)\n\"\"\"\n\"\"\"\n", "f", DT_F32);
    expect_shape(k, (int64_t[]){9, 8, 7, 16, 8, 4, 4096}, 0, "");
    expect_shape(k, (int64_t[]){0x7fffffff, 65535, 65535, 1024, 1, 1, 232448}, 0, "");
    expect_shape(k, (int64_t[]){1, 1, 1, 256, 256, 1, 0}, 0,
                 "a.qn:1:34: error E506: `f` wants blocks of 256 x 256 x 1 = 65536 threads; a block has 1 to 1024");
    expect_shape(
        k, (int64_t[]){1, 1, 1, 0, 1, 1, 0}, 0,
        "a.qn:1:34: error E506: `f` wants blocks of 0 x 1 x 1 = 0 threads; a block has 1 to 1024, at most 64 on "
        "the third axis");
    expect_shape(
        k, (int64_t[]){1, 1, 1, 1, 1, 65, 0}, 0,
        "a.qn:1:34: error E506: `f` wants blocks of 1 x 1 x 65 = 65 threads; a block has 1 to 1024, at most 64 "
        "on the third axis");
    expect_shape(
        k, (int64_t[]){1, 65536, 1, 32, 1, 1, 0}, 0,
        "a.qn:1:23: error E506: `f` wants 1 x 65536 x 1 blocks; at most 2147483647 x 65535 x 65535 are possible");
    expect_shape(k, (int64_t[]){1, 1, 1, 32, 1, 1, 300000}, 0,
                 "a.qn:1:45: error E506: `f` wants 300000 bytes of shared memory; a block can have 232448");
    expect_shape(k, (int64_t[]){1, 1, 1, 32, 1, 1, 70000}, 65536,
                 "a.qn:1:45: error E506: `f` wants 70000 bytes of shared memory; a block can have 65536");
    arena_free(memory);
}

/* Text that is cut, doubled and broken anywhere is read to its end, and refused or not, without harm. */
TEST(broken_text)
{
    static const char whole[] =
        "#include \"folder/tree.cuh\"\ntemplate <typename T, int N = 3> __global__ void "
        "__launch_bounds__(N * (2 + 1)) f(const T *__restrict__ x /* a */, float y[4][N], long n)\n"
        "{ __shared__ T s[N]; if (x[0] > '\\'') s[0] = \"\\\"(\"; }\nextern \"C\" {\n"
        "__global__ void g(int (*h)(int), unsigned char const n = (1, 2)) { } // end\n}\n";
    static const char spice[] = "(){}[]<>\"'/*\\#,;=\n_T ";
    unsigned state = 1;
    int found = 0, taken = 0;
    for (int round = 0; round < 4000; round++) {
        char words[2 * sizeof(whole)];
        memcpy(words, whole, sizeof(whole));
        for (int change = round % 5; change >= 0; change--) {
            state = state * 1664525 + 1013904223;
            size_t length = strlen(words), at = (state >> 8) % (length + 1);
            if (state % 3 == 0)
                memmove(words + at, words + at + (at < length), length - at + (at == length));
            else if (at < length)
                words[at] = spice[state % (sizeof(spice) - 1)];
            if (state % 31 == 0) words[at] = 0;
        }
        arena *memory = arena_new();
        raw_function f;
        for (const char *at = words; raw_next_function(&at, &f); found++) {
            const char *c = f.parameters;
            for (int i = 0; i < 8 && *c && *c != ')'; i++) {
                raw_parameter p = {0};
                raw_read_parameter(&c, &p);
                text_free(&p.type);
                if (*c == ',') c++;
            }
        }
        EXPECT(raw_expand(memory, words, FOLDER "/a.cu", 1, true, true) != NULL);
        tile_kernel *k = tile_kernel_new(memory, "f", "a.qn");
        k->raw_language = "cuda";
        k->raw_source = words;
        k->raw_instance = round % 2 ? "f<float, 16>" : "f<(";
        text out = {0};
        qn_error error = {0};
        taken += emit_raw_cuda(k, NULL, &out, &error) == QN_OK;
        EXPECT(out.length || *error.message);
        text_free(&out);
        arena_free(memory);
    }
    EXPECT(found > 2000 && taken < 4000);
}

/* ---- with NVRTC ---- */

static nvrtc *installed(const char *what)
{
    qn_error error;
    nvrtc *n = nvrtc_new();
    if (nvrtc_ready(n, &error) == QN_OK) return n;
    printf("note: skipped %s: %s\n", what, error.message);
    nvrtc_free(n);
    return NULL;
}

TEST(nvrtc_takes_them)
{
    nvrtc *n = installed("nvrtc_takes_them");
    static const char *const names[] = {"twice", "scale", "transpose", "row_sum"};
    static const dtype types[] = {DT_F32, DT_F16, DT_BF16, DT_F64, DT_I32};
    for (int i = 0; n && i < COUNT(names); i++)
        for (int t = 0; t < (i == 2 ? COUNT(types) : i == 1 ? 4 : 1); t++)
            for (int a = 0; a < nvrtc_arch_count(n); a++) {
                int arch = nvrtc_arch_get(n, a);
                if (arch < 75 || (t && arch != 75 && arch != 90)) continue;
                text out = {0};
                emitted(names[i], types[t], &out);
                nvrtc_output o = {0};
                qn_error error = {0};
                nvrtc_options options = {.arch = arch, .usage = true};
                bool good = nvrtc_compile(n, text_get(&out), names[i], &options, &o, &error) == QN_OK;
                if (!good) printf("%s for %d: %s\n", names[i], arch, error.message);
                EXPECT(good && !strstr(text_get(&o.log), "warning") && !strstr(text_get(&o.ptx), "call.uni"));
                nvrtc_output_free(&o);
                text_free(&out);
            }
    nvrtc_free(n);
}

static void expect_message(nvrtc *n, const char *clauses, const char *source, const char *expected)
{
    arena *memory = arena_new();
    text words = {0}, out = {0};
    text_print(&words, "cuda f(in float x[n]) launch (1) block (1) %s\n\"\"\"\n%s\n\"\"\"\n", clauses, source);
    tile_kernel *k = lower_text(memory, "a.qn", text_get(&words), "f", DT_F32);
    qn_error error = {0};
    nvrtc_output o = {0};
    EXPECT(k && emit_raw_cuda(k, NULL, &out, &error) == QN_OK);
    qn_status status = nvrtc_compile(n, text_get(&out), "f", &(nvrtc_options){.arch = 90}, &o, &error);
    EXPECT((status != QN_OK) == (*expected != 0));
    if (status && !strstr(error.message, expected)) printf("%s", error.message);
    EXPECT(!status || strstr(error.message, expected));
    nvrtc_output_free(&o);
    text_free(&words);
    text_free(&out);
    arena_free(memory);
}

TEST(messages_name_the_users_lines)
{
    nvrtc *n = installed("messages_name_the_users_lines");
    if (!n) return;
    expect_message(n, "", "__global__ void f(const float *x, long n)\n{\n    float y = nowhere;\n}",
                   "a.qn:5: error: identifier \"nowhere\" is undefined");
    expect_message(n, "", "#include \"gone.cuh\"\n__global__ void f(const float *x, long n) {}", "a.qn:3:");
    expect_message(n, "options (\"-DWORD=float y = 1\")", "__global__ void f(const float *x, long n) { WORD; }", "");
    expect_message(n, "options (\"-std=c++20\", \"-use_fast_math\", \"-DFIRST=1\", \"-DSECOND=2\", \"-use_fast_math\")",
                   "template <typename A> concept Any = true;\n__global__ void f(const float *x, long n) {}", "");
    expect_message(n, "options (\"--no-such-option\")", "__global__ void f(const float *x, long n) {}",
                   "no-such-option");
    expect_message(n, "",
                   "__global__ void f(const float *x, long n) { volatile __shared__ float s[20000]; s[n] = x[0]; }",
                   "error E506: kernel `f` declares 80000 bytes of shared memory; at most 49152 are possible, and more "
                   "only as `extern __shared__` with `shared (...)`");
    nvrtc_free(n);
}

static bool is_there(const char *path)
{
    FILE *file = fopen(path, "r");
    if (file) fclose(file);
    return file != NULL;
}

/* With the toolkit's folder its own headers are read, and get on with the types that stand in for them. */
TEST(headers_of_the_toolkit)
{
    static const char folder[] = "/usr/local/cuda/include";
    nvrtc *n = installed("headers_of_the_toolkit");
    if (n && !is_there("/usr/local/cuda/include/cuda_fp16.h")) {
        printf("note: skipped headers_of_the_toolkit: there are none in %s\n", folder);
    } else if (n) {
        static const char *const headers[] = {"#include <cuda_fp16.h>", "#include <cuda_bf16.h>",
                                              "#include <cuda_fp16.h>\n#include <cuda_bf16.h>",
                                              "#include <cuda_fp8.h>"};
        char options[80], source[400];
        snprintf(options, sizeof(options), "options (\"-I%s\")", folder);
        for (int i = 0; i < COUNT(headers); i++) {
            snprintf(source, sizeof(source),
                     "%s\n__global__ void f(const float *x, long n) { volatile float y = __half2float(%s) + "
                     "__bfloat162float(__float2bfloat16(2.0f)); }",
                     headers[i], i ? "__hadd(__float2half(x[0]), __float2half(1.0f))" : "__float2half(x[0])");
            expect_message(n, options, source, "");
        }
    }
    nvrtc_free(n);
}

TEST_MAIN(CASE(functions_of_a_text), CASE(names_are_replaced_as_a_compiler_would), CASE(refusals),
          CASE(the_text_that_is_compiled), CASE(dumps_carry_everything), CASE(limits_of_a_launch), CASE(broken_text),
          CASE(nvrtc_takes_them), CASE(messages_name_the_users_lines), CASE(headers_of_the_toolkit))
