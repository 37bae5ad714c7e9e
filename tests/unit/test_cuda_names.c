/*
 * Every name that the CUDA prelude promises exists, and the functions compile with NVRTC for every architecture it
 * knows: the inline assembly too, which only the last step of the compiler reads. Where NVRTC is not installed, that
 * case is skipped and says so.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/nvrtc.h"
#include "emit/cuda/prelude.h"
#include "ir/tile.h"
#include "test.h"

static const char *const numbers[] = {"f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"};
static const char *const elements[] = {"f32", "f64", "f16", "bf16", "i8",  "i16", "i32",
                                       "i64", "u8",  "u16", "u32",  "u64", "bool"};
static const char *const few[] = {"f32", "bf16", "f16", "i8"};

typedef struct name_list {
    arena *memory;
    const char **names;
    int count, capacity;
} name_list;

static void add(name_list *l, const char *format, const char *a, const char *b)
{
    const char *name = arena_print(l->memory, format, a, b);
    ARENA_PUSH(l->memory, l->names, l->count, l->capacity, name);
}

static bool is_integer(const char *t)
{
    return t[0] == 'i' || t[0] == 'u';
}

static int size_of(const char *t)
{
    dtype d = DT_F32;
    EXPECT(dtype_from_text(t, &d));
    return dtypes[d].size_bytes;
}

static void add_scalar_functions(name_list *l)
{
    static const char *const one[] = {"abs",   "sign", "floor", "ceil", "round", "relu",     "isnan",
                                      "isinf", "min",  "max",   "mod",  "fma",   "mul_exact"};
    static const char *const two[] = {"div",  "sqrt",      "rsqrt", "exp",      "exp2", "expm1", "log",
                                      "log2", "log1p",     "sin",   "cos",      "tanh", "erf",   "sigmoid",
                                      "gelu", "gelu_tanh", "silu",  "softplus", "pow"};
    static const char *const of_integers[] = {"abs", "sign", "min", "max", "div", "mod", "shl", "shr"};
    for (int t = 0; t < COUNT(numbers); t++) {
        for (int i = 0; i < COUNT(one) && t < 2; i++) add(l, "%s_%s", one[i], numbers[t]);
        for (int i = 0; i < COUNT(two) && t < 2; i++) {
            add(l, "%s_%s", two[i], numbers[t]);
            add(l, "precise_%s_%s", two[i], numbers[t]);
        }
        for (int i = 0; i < COUNT(of_integers) && t >= 2; i++) add(l, "%s_%s", of_integers[i], numbers[t]);
        for (int m = 0; m < COUNT(elements); m++) add(l, "convert_%s_%s", numbers[t], elements[m]);
    }
    static const char *const single[] = {"tf32_f32", "philox_u32",     "add_i32",   "sub_i64",
                                         "mul_i32",  "pack_f16",       "pack_bf16", "real_f32",
                                         "bits_f64", "report_failure", "print_open"};
    for (int i = 0; i < COUNT(single); i++) add(l, "%s%s", single[i], "");
    for (int a = 0; a < COUNT(elements); a++)
        for (int b = 0; b < COUNT(elements); b++)
            if (size_of(elements[a]) == size_of(elements[b])) add(l, "bitcast_%s_%s", elements[a], elements[b]);
}

static void add_memory(name_list *l, const char *m)
{
    static const char *const counts[] = {"1", "2", "4", "8", "16"};
    static const char *const kinds[] = {"", "_constant"};
    for (int i = 0; i < COUNT(counts); i++)
        for (int k = 0; k < COUNT(kinds); k++) {
            if ((size_of(m) << i) > 16) continue;
            const char *tail = arena_print(l->memory, "%sx%s", m, counts[i]);
            add(l, "load_%s%s", tail, kinds[k]);
            if (k != 1) add(l, "store_%s%s", tail, kinds[k]);
        }
    add(l, "read_%s%s", m, "");
    add(l, "write_%s%s", m, "");
    add(l, "print_%s%s", m, "");
    static const char *const atomics[] = {"add", "min", "max", "exchange", "cas", "and", "or", "xor"};
    for (int i = 0; i < COUNT(atomics); i++)
        if (strcmp(m, "bool") && (i < 5 || is_integer(m))) add(l, "atomic_%s_%s", atomics[i], m);
}

static void add_teams(name_list *l, const char *t)
{
    static const char *const folds[] = {"sum", "prod", "max", "min"};
    static const char *const teams[] = {"lanes_fold", "block_fold", "grid_fold", "lanes_scan", "block_scan"};
    bool half = !strcmp(t, "f16") || !strcmp(t, "bf16");
    for (int f = 0; f < COUNT(folds) && !half; f++) {
        const char *tail = arena_print(l->memory, "%s_%s", folds[f], t);
        for (int i = 0; i < COUNT(teams); i++) add(l, "%s_%s", teams[i], tail);
        if (f < 2) continue;
        add(l, "%s_%s", "lanes_best", tail);
        add(l, "%s_%s", "block_best", tail);
    }
}

TEST(every_name_is_known)
{
    name_list l = {.memory = arena_new()};
    add_scalar_functions(&l);
    for (int i = 0; i < COUNT(elements); i++) add_memory(&l, elements[i]);
    for (int i = 0; i < COUNT(numbers); i++) {
        add_teams(&l, numbers[i]);
        add(&l, "cluster_fold_%s_%s", "sum", numbers[i]);
    }
    add(&l, "block_fold_%s_%s", "any", "bool");
    add(&l, "lanes_best_%s_%s", "max", "bool");
    for (int i = 0; i < l.count; i++) {
        text out = {0};
        const char *unknown = NULL;
        bool known = prelude_cuda_emit(&l.names[i], 1, &out, &unknown);
        if (!known) printf("%s is not known\n", l.names[i]);
        EXPECT(known && strstr(text_get(&out), l.names[i]));
        text_free(&out);
    }
    static const char *const wrong[] = {
        "exp_i32",         "load_f32x8",         "load_f32x3",      "store_f32x4_constant",
        "load_f32x4_fast", "convert_f32_f32x16", "bitcast_f32_i64", "lanes_fold_sum_bool",
        "nothing"};
    for (int i = 0; i < COUNT(wrong); i++) {
        text out = {0};
        const char *unknown = NULL;
        EXPECT(!prelude_cuda_emit(&wrong[i], 1, &out, &unknown) && unknown == wrong[i]);
        text_free(&out);
    }
    arena_free(l.memory);
}

static const char products[] =
    "extern \"C\" __global__ void __launch_bounds__(128) k(const unsigned short *a, const float *b, float *c, long n)\n"
    "{\n"
    "    extern __shared__ __align__(16) unsigned char room[];\n"
    "    dot_range r = {0, 64, 0, n};\n"
    "    typedef product_fma_f32<64, 64, 8, 16, 4, 4> first;\n"
    "    float x[first::COUNT];\n"
    "    dot_resume<first>(x, c, 64, 64, 64, threadIdx.x);\n"
    "    first::add(x, b, n, 1, b, 1, n, r, r, room, threadIdx.x);\n"
    "    dot_finish<first>(x, c, 64, 0, 0, 64, 64, false, threadIdx.x);\n"
    "#if __CUDA_ARCH__ >= 800\n"
    "    typedef product_bf16<64, 64, 2, 2, 128, true, false, true, false, 3, 8> second;\n"
    "    float y[second::COUNT];\n"
    "    dot_resume<second>(y, c, 64, 64, 64, threadIdx.x);\n"
    "    second::add(y, a, n, 1, a, 64, 1, r, r, room, threadIdx.x);\n"
    "    dot_finish<second>(y, c, 64, 0, 0, 64, 64, false, threadIdx.x);\n"
    "#endif\n"
    "}\n";

/* Functions that nobody calls are compiled too when they are neither static nor inline. */
static void compile(nvrtc *n, int arch, const char *source, bool functions)
{
    const char *flags[2]; /* in a hurry: only whether it compiles, to machine code, is the question */
    int count = 0;
    if (functions) flags[count++] = "-rdc=true";
    if (nvrtc_version(n) >= 1300) flags[count++] = "--Ofast-compile=max";
    text words = {0};
    const char *body = strchr(source, '\n'); /* the first line defines INLINE */
    if (functions) text_print(&words, "#define INLINE __device__ __noinline__%s", body);
    nvrtc_options options = {.arch = arch, .flags = flags, .flag_count = count};
    nvrtc_output output = {0};
    qn_error error = {0};
    qn_status status = nvrtc_compile(n, functions ? text_get(&words) : source, "prelude.cu", &options, &output, &error);
    if (status != QN_OK) printf("sm_%d: %s\n", arch, error.message);
    EXPECT(status == QN_OK);
    nvrtc_output_free(&output);
    text_free(&words);
}

TEST(every_architecture_compiles_it)
{
    qn_error error;
    nvrtc *n = nvrtc_new();
    if (nvrtc_ready(n, &error) != QN_OK) {
        printf("note: skipped the prelude on every architecture: %s\n", error.message);
        nvrtc_free(n);
        return;
    }
    static const int arches[] = {75, 80, 86, 89, 90, 100, 120};
    for (int i = 0; i < COUNT(arches); i++) {
        if (!nvrtc_knows(n, arches[i])) {
            printf("note: this NVRTC does not know sm_%d\n", arches[i]);
            continue;
        }
        name_list l = {.memory = arena_new()};
        static const char *const math[] = {"exp",   "log",         "sin",         "tanh",     "erf",   "sigmoid",
                                           "gelu",  "gelu_tanh",   "pow",         "sqrt",     "rsqrt", "div",
                                           "log1p", "expm1",       "min",         "max",      "round", "mod",
                                           "silu",  "precise_exp", "precise_div", "mul_exact"};
        for (int k = 0; k < COUNT(math); k++) add(&l, "%s_%s", math[k], "f32");
        for (int k = 0; k < COUNT(few); k++) add_memory(&l, few[k]);
        add_teams(&l, "f32");
        add_teams(&l, "i64");
        add(&l, "block_fold_%s_%s", "any", "bool");
        add(&l, "report_failure%s%s", "", "");
        if (arches[i] >= 90) add(&l, "cluster_fold_%s_%s", "sum", "f32");
        text source = {0};
        const char *unknown = NULL;
        EXPECT(prelude_cuda_emit(l.names, l.count, &source, &unknown));
        compile(n, arches[i], text_get(&source), true);
        text_clear(&source);
        static const char *const parts[] = {"product_fma_f32", "product_bf16", "dot_finish"};
        EXPECT(prelude_cuda_emit(parts, COUNT(parts), &source, &unknown));
        text_add(&source, products);
        compile(n, arches[i], text_get(&source), false);
        text_free(&source);
        arena_free(l.memory);
    }
    nvrtc_free(n);
}

TEST_MAIN(CASE(every_name_is_known), CASE(every_architecture_compiles_it))
