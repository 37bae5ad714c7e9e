/*
 * The C emitter. Golden texts for small kernels (tests/text/c; QUERN_BLESS=1 rewrites them), and execution: every
 * kernel of tests/programs is lowered, emitted, compiled by the system's compiler and compared with the interpreter, at
 * odd and even sizes, with tiles that do not divide them, for each element type, and on views of every kind.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"

#include "emit/emit.h"
#include "lang/ast.h"

#include <dlfcn.h>
#include <stdlib.h>

enum { VIEW_FACTS, VIEW_PLAIN, VIEW_GAPS, VIEW_BACKWARDS, VIEW_TURNED, VIEW_COUNT };

static uint64_t random_state;

static double random_unit(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 40) / 16777216.0;
}

/* "T=f32 n=37 BLOCK=8 eps=0.5 @id=7": settings by name; @array: integers in [0, 7). */
typedef struct setting {
    char name[32], words[32];
} setting;

static int read_settings(const char *words, setting *list)
{
    int count = 0, used;
    while (sscanf(words, " %31[^=]=%31s%n", list[count].name, list[count].words, &used) == 2) {
        words += used;
        count++;
    }
    return count;
}

static const char *find_setting(const setting *list, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i].name, name)) return list[i].words;
    return NULL;
}

static tile_kernel *lower(arena *memory, const char *path, const char *name, const setting *list, int count)
{
    char *words;
    size_t length;
    qn_error error;
    if (file_read(path, 1 << 24, &words, &length, &error) != QN_OK) {
        printf("%s\n", error.message);
        return NULL;
    }
    diagnostics found = {.memory = memory};
    ast_file *file = lang_parse(memory, path, words, length, &found);
    const ast *kernel = ast_find(file, name);
    tile_kernel *k = NULL;
    if (kernel) {
        lang_given given = {.units = 2};
        for (int i = 0; i < count; i++) {
            binding b = {.name = list[i].name, .untyped = true};
            dtype t;
            char *end;
            if (list[i].name[0] == '@') continue;
            if (dtype_from_text(list[i].words, &t)) {
                b.kind = BIND_TYPE;
                b.type = t;
            } else if (b.number.i = strtoll(list[i].words, &end, 0), !*end) {
                b.kind = BIND_INT;
                b.number.f = (double)b.number.i;
            } else if (b.number.f = strtod(list[i].words, &end), !*end) {
                b.kind = BIND_FLOAT;
            } else {
                b.kind = !strcmp(list[i].words, "true") || !strcmp(list[i].words, "false") ? BIND_BOOL : BIND_FUNCTION;
                b.number.i = list[i].words[0] == 't';
                b.function = list[i].words;
            }
            bindings_set(memory, &given.settings, b);
        }
        bindings constants = {0}, extents = {0};
        if (!lang_instantiate(file, kernel, &given, &found, memory, &constants, &extents) ||
            !lang_lower(file, kernel, &constants, memory, &found, &k))
            k = NULL;
    }
    if (!k) {
        text out = {0};
        diagnostics_print(&found, file, false, &out);
        printf("%s %s does not lower\n%s", path, name, text_get(&out));
        text_free(&out);
    }
    free(words);
    return k;
}

static bool is_array(const tile_param *p)
{
    return p->kind != PARAM_SCALAR && p->kind != PARAM_EXTENT;
}

/* ---- compiled code ---- */

typedef struct compiled {
    void *library;
    char path[64];
} compiled;

static bool compile(const char *words, compiled *out)
{
    static int serial;
    static unsigned long long stamp;
    char source[64];
    qn_error error;
    if (!stamp) stamp = (unsigned long long)clock_now_ns();
    snprintf(source, sizeof(source), "/tmp/quern_emit_%llx_%d.c", stamp, serial);
    snprintf(out->path, sizeof(out->path), "/tmp/quern_emit_%llx_%d.so", stamp, serial++);
    if (file_write(source, words, strlen(words), &error) != QN_OK) return false;
    const char *const arguments[] = {"cc",
                                     "-std=gnu11",
                                     "-O1",
                                     "-march=native",
                                     "-fno-math-errno",
                                     "-fno-trapping-math",
                                     "-ffp-contract=fast",
                                     "-fwrapv",
                                     "-w",
                                     "-shared",
                                     "-fPIC",
                                     "-o",
                                     out->path,
                                     source,
                                     "-lm",
                                     NULL};
    text output = {0};
    int code = 1;
    if (process_run(arguments, &output, &code, &error) != QN_OK || code) {
        printf("%.3000s\n", text_get(&output));
        printf("kept: %s\n", source);
        text_free(&output);
        return false;
    }
    text_free(&output);
    if (!environment_get("QUERN_KEEP"))
        remove(source);
    else
        printf("kept: %s\n", source);
    out->library = dlopen(out->path, RTLD_NOW | RTLD_LOCAL);
    remove(out->path);
    if (!out->library) printf("%s\n", dlerror());
    return out->library != NULL;
}

static void run_compiled(const tile_kernel *k, const compiled *c, const array_view *arrays, const launch_plan *plan,
                         cpu_report *report)
{
    cpu_array infos[64];
    for (int p = 0; p < k->param_count; p++) {
        infos[p].data = arrays[p].data;
        memcpy(infos[p].extents, arrays[p].extents, sizeof(infos[p].extents));
        memcpy(infos[p].strides, arrays[p].strides, sizeof(infos[p].strides));
    }
    char symbol[128];
    int phases = k->raw_language ? 1 : k->phase_count;
    snprintf(symbol, sizeof(symbol), "%s_scratch_bytes", k->name);
    cpu_scratch *scratch_bytes;
    *(void **)&scratch_bytes = dlsym(c->library, symbol);
    for (int phase = 0; phase < phases; phase++) {
        cpu_launch launch = {.arrays = infos, .scalars = plan->scalars_bits, .report = report};
        memcpy(launch.programs, plan->programs[phase], sizeof(launch.programs));
        if (k->raw_once) launch.programs[0] = launch.programs[1] = launch.programs[2] = 1;
        snprintf(symbol, sizeof(symbol), "%s_phase%d", k->name, phase);
        cpu_phase *run;
        *(void **)&run = dlsym(c->library, symbol);
        EXPECT(run && scratch_bytes);
        if (!run || !scratch_bytes) return;
        void *scratch = aligned_alloc(64, (scratch_bytes(&launch) + 127) / 64 * 64);
        int64_t count = launch.programs[0] * launch.programs[1] * launch.programs[2];
        run(&launch, 0, count / 2, scratch); /* in two pieces, as two workers would */
        run(&launch, count / 2, count, scratch);
        free(scratch);
    }
}

/* ---- arrays ---- */

typedef struct held {
    char *bytes;
    size_t size;
} held;

static int64_t element_count(const array_view *a)
{
    int64_t count = 1;
    for (int i = 0; i < a->rank; i++) count *= a->extents[i];
    return count;
}

/* Element number n of the view, counted row-major. */
static void *element_at(const array_view *a, int64_t n)
{
    int64_t offset = 0;
    for (int i = a->rank - 1; i >= 0; i--) {
        offset += n % a->extents[i] * a->strides[i];
        n /= a->extents[i];
    }
    return (char *)a->data + offset * dtypes[a->elem].size_bytes;
}

static held make_array(array_view *a, int view)
{
    int64_t stride = 1, order[MAX_RANK];
    for (int i = 0; i < a->rank; i++) order[i] = view == VIEW_TURNED ? i : a->rank - 1 - i;
    for (int i = 0; i < a->rank; i++) {
        int64_t axis = order[i];
        a->strides[axis] = stride * (view == VIEW_GAPS ? 2 : 1);
        stride = a->strides[axis] * MAXIMUM(a->extents[axis], 1) + (view == VIEW_GAPS ? 3 : 0);
    }
    held h = {.size = (size_t)(stride + 16) * (size_t)dtypes[a->elem].size_bytes};
    h.bytes = aligned_alloc(64, (h.size + 63) / 64 * 64);
    memset(h.bytes, 0x5a, h.size);
    int64_t origin = 0;
    for (int i = 0; i < a->rank && view == VIEW_BACKWARDS; i++) {
        origin += a->strides[i] * MAXIMUM(a->extents[i] - 1, 0);
        a->strides[i] = -a->strides[i];
    }
    a->data = h.bytes + origin * dtypes[a->elem].size_bytes;
    return h;
}

static void fill_random(const array_view *a, const char *range)
{
    int64_t count = element_count(a);
    for (int64_t n = 0; n < count; n++) {
        double u = random_unit();
        number x = {.f = 4 * u - 2, .i = a->elem == DT_BOOL ? u > 0.5 : (int64_t)(u * (a->elem == DT_U8 ? 256 : 5))};
        if (range && strstr(range, "..")) { /* in order, for offsets and sorted tokens */
            double last = atof(range + 2);
            x.i = (int64_t)(last * (double)n / (double)MAXIMUM(count - 1, 1));
        } else if (range && strchr(range, '+')) {
            x.f = u + 0.1;
        } else if (range) {
            x.i = (int64_t)(u * atof(range));
        }
        element_write(a->elem, element_at(a, n), x);
    }
}

static double tolerance_of(dtype t)
{
    return t == DT_F64 || t == DT_F32 ? 5e-5 : t == DT_F16 ? 5e-3 : t == DT_BF16 ? 3e-2 : 0;
}

static bool compare(const char *what, const tile_param *p, const array_view *expected, const array_view *actual)
{
    int64_t count = element_count(expected), wrong = 0;
    for (int64_t n = 0; n < count; n++) {
        number x = element_read(p->elem, element_at(expected, n)), y = element_read(p->elem, element_at(actual, n));
        bool same;
        if (dtype_is_float(p->elem)) {
            double tolerance = tolerance_of(p->elem) * fmax(1, fabs(x.f));
            /* x * 0 at minus infinity: a NaN, or the limit, as the device likes. */
            bool limit = strstr(p->name, "lu_") && isnan(x.f) && y.f == 0;
            same = limit || x.f == y.f || (isnan(x.f) && isnan(y.f)) || fabs(x.f - y.f) <= tolerance;
        } else {
            same = x.i == y.i;
        }
        if (!same && !wrong++)
            printf("%s: %s element %lld: expected %.9g, got %.9g\n", what, p->name, (long long)n,
                   dtype_is_float(p->elem) ? x.f : (double)x.i, dtype_is_float(p->elem) ? y.f : (double)y.i);
    }
    if (wrong) printf("%s: %lld of %lld elements of %s differ\n", what, (long long)wrong, (long long)count, p->name);
    return !wrong;
}

/* Promises that the arrays of VIEW_FACTS keep. */
static void set_facts(tile_kernel *k, int view, const setting *list, int count)
{
    for (int p = 0; p < k->param_count; p++) {
        tile_facts facts = {.size_class = -1};
        if (view == VIEW_FACTS && is_array(&k->params[p])) facts.last_unit = facts.contiguous = facts.small = true;
        if (view == VIEW_FACTS && k->params[p].kind == PARAM_OUT) facts.streams = true;
        const char *given = find_setting(list, count, k->params[p].name);
        if (view == VIEW_FACTS && is_array(&k->params[p])) facts.aligned = k->params[p].rank < 2;
        if (view == VIEW_FACTS && given && k->params[p].kind == PARAM_EXTENT) facts.by16 = atoll(given) % 16 == 0;
        k->params[p].facts = facts;
    }
}

static void run_view(const char *what, const tile_kernel *k, const compiled *code, const launch_plan *plan,
                     const setting *list, int count, int view);

/* Lowers, emits and compiles once, and runs on some views: from..to of the enum. */
static void run_case(const char *path, const char *name, const char *words, int from, int to)
{
    char what[256];
    int view = from;
    snprintf(what, sizeof(what), "%s %s view %d", name, words, view);
    setting list[32];
    int count = read_settings(words, list);
    arena *memory = arena_new();
    tile_kernel *k = lower(memory, path, name, list, count);
    EXPECT(k != NULL);
    if (!k) {
        arena_free(memory);
        return;
    }
    set_facts(k, view, list, count);
    qn_error error;
    qn_status status;
    text source = {0};
    status = from == VIEW_FACTS ? passes_run(k, NULL, NULL, NULL, &error) : QN_OK; /* both forms must be right */
    if (status == QN_OK) status = emit_c(k, NULL, &source, &error);
    if (status != QN_OK) printf("%s: %s\n", what, error.message);
    EXPECT(status == QN_OK);
    /* The head says what every extent is, once all arrays look like outputs. */
    tile_kernel *blank = tile_clone(k, memory);
    array_view arrays[1][64] = {0};
    bool given[64] = {false};
    number numbers[64] = {0};
    for (int p = 0; p < k->param_count; p++) {
        arrays[0][p].elem = k->params[p].elem;
        arrays[0][p].rank = k->params[p].rank;
        if (is_array(&k->params[p])) {
            blank->params[p].kind = PARAM_OUT;
            continue;
        }
        const char *setting = find_setting(list, count, k->params[p].name);
        given[p] = setting != NULL;
        if (setting) numbers[p] = (number){.i = atoll(setting), .f = atof(setting)};
    }
    static launch_plan plan;
    status = interp_head(blank, given, numbers, arrays[0], 2, &plan, &error);
    if (status != QN_OK) printf("%s: %s\n", what, error.message);
    EXPECT(status == QN_OK);
    compiled code = {0};
    bool ready = status == QN_OK && compile(text_get(&source), &code);
    if (!ready) printf("%s: not compiled\n", what);
    EXPECT(ready);
    for (; ready && view <= to; view++) {
        int failures = test_failures_of_case;
        snprintf(what, sizeof(what), "%s %s view %d", name, words, view);
        run_view(what, k, &code, &plan, list, count, view);
        if (test_failures_of_case == failures || !environment_get("QUERN_KEEP")) continue;
        char kept[64];
        snprintf(kept, sizeof(kept), "/tmp/quern_wrong_%s.c", name);
        (void)file_write(kept, text_get(&source), source.length, &error);
        printf("kept: %s\n", kept);
    }
    if (code.library) dlclose(code.library);
    text_free(&source);
    arena_free(memory);
}

static void run_view(const char *what, const tile_kernel *k, const compiled *code, const launch_plan *plan,
                     const setting *list, int count, int view)
{
    array_view arrays[2][64] = {0};
    held memory_of[2][64] = {0};
    qn_error error;
    random_state = 12345;
    for (int p = 0; p < k->param_count; p++) {
        if (!is_array(&k->params[p])) continue;
        char at[40];
        snprintf(at, sizeof(at), "@%s", k->params[p].name);
        array_view *a = &arrays[0][p];
        a->elem = k->params[p].elem;
        a->rank = k->params[p].rank;
        memcpy(a->extents, plan->extents[p], sizeof(a->extents));
        memory_of[0][p] = make_array(a, k->params[p].kind == PARAM_SCRATCH ? VIEW_PLAIN : view);
        fill_random(a, find_setting(list, count, at));
        if (k->params[p].has_initial)
            for (int64_t n = element_count(a) - 1; n >= 0; n--)
                element_write(k->params[p].elem, element_at(a, n), k->params[p].initial);
        arrays[1][p] = *a;
        memory_of[1][p].bytes = malloc(memory_of[0][p].size + 64);
        char *aligned = (char *)(((uintptr_t)memory_of[1][p].bytes + 63) & ~(uintptr_t)63);
        memcpy(aligned, memory_of[0][p].bytes, memory_of[0][p].size);
        arrays[1][p].data = aligned + ((char *)a->data - memory_of[0][p].bytes);
    }
    interp_options options = {.units = 2};
    findings found = {0};
    qn_status status = interp_run(k, arrays[0], plan, &options, &found, &error);
    if (status != QN_OK) printf("%s: ref: %s\n", what, error.message);
    EXPECT(status == QN_OK);
    findings_free(&found);
    cpu_report report = {0};
    run_compiled(k, code, arrays[1], plan, &report);
    EXPECT(!report.failed);
    for (int p = 0; p < k->param_count; p++) {
        if (!is_array(&k->params[p])) continue;
        if (k->params[p].kind != PARAM_SCRATCH) EXPECT(compare(what, &k->params[p], &arrays[0][p], &arrays[1][p]));
        free(memory_of[0][p].bytes);
        free(memory_of[1][p].bytes);
    }
}

#define PROGRAMS QUERN_ROOT "/tests/programs/"

typedef struct run {
    const char *file, *kernel, *settings;
} run;

static const run runs[] = {
    {"a01_pointwise.qn", "add", "n=1000 BLOCK=64"},
    {"a01_pointwise.qn", "add", "n=37 BLOCK=8"},
    {"a01_pointwise.qn", "add", "n=0 BLOCK=8"},
    {"a01_pointwise.qn", "add", "n=1 BLOCK=1"},
    {"a01_pointwise.qn", "gelu_tile", "n=1000 BLOCK=128"},
    {"a01_pointwise.qn", "gelu_tile", "n=1600 BLOCK=128"},
    {"a02_softmax.qn", "softmax_row", "rows=3 cols=208"},
    {"a02_softmax.qn", "softmax_three", "rows=3 cols=128 BLOCK=64"},
    {"a02_softmax.qn", "softmax_three", "rows=5 cols=100 BLOCK=32"},
    {"a02_softmax.qn", "softmax_three", "rows=3 cols=7 BLOCK=3"},
    {"a02_softmax.qn", "softmax_online", "rows=5 cols=101 BLOCK=32"},
    {"a02_softmax.qn", "softmax_row", "rows=4 cols=77"},
    {"a02_softmax.qn", "softmax_row", "rows=3 cols=1"},
    {"a02_softmax.qn", "softmax_short", "rows=13 cols=20 R=4"},
    {"a02_softmax.qn", "softmax_batched", "B=2 L=3 D=33"},
    {"a03_norms.qn", "layer_norm", "rows=5 cols=70 eps=0.01"},
    {"a03_norms.qn", "layer_norm", "rows=2 cols=320 eps=0.01"},
    {"a03_norms.qn", "layer_norm", "rows=2 cols=325 eps=0.01"},
    {"a03_norms.qn", "layer_norm_welford", "rows=5 cols=70 eps=0.01 BLOCK=32"},
    {"a03_norms.qn", "rms_norm_backward", "rows=7 cols=50 P=3 BC=16 eps=0.01"},
    {"a04_reductions.qn", "cross_entropy", "B=5 V=37 @target=37"},
    {"a04_reductions.qn", "sum_tree", "n=1003"},
    {"a04_reductions.qn", "sum_atomic", "n=1003 BLOCK=64"},
    {"a04_reductions.qn", "sum_two_step", "n=1003 P=5 BLOCK=32"},
    {"a04_reductions.qn", "argmax_rows", "rows=7 cols=37 R=4"},
    {"a04_reductions.qn", "cumsum_rows", "rows=3 cols=53"},
    {"a04_reductions.qn", "cumsum_long", "n=103 BLOCK=16"},
    {"a04_reductions.qn", "histogram", "n=1000 BLOCK=64"},
    {"a04_reductions.qn", "topk", "rows=3 cols=40 K=4"},
    {"a05_matmul.qn", "matmul_naive", "M=7 N=35 K=20 BN=16"},
    {"a05_matmul.qn", "matmul", "M=37 N=45 K=29 BM=16 BN=32 BK=8"},
    {"a05_matmul.qn", "matmul_grouped", "M=37 N=45 K=29 BM=16 BN=16 BK=8 G=2"},
    {"a05_matmul.qn", "matmul_abt", "B=2 M=19 N=23 K=17 BM=8 BN=16 BK=8"},
    {"a05_matmul.qn", "linear_act", "M=19 N=23 K=17 BM=8 BN=16 BK=8"},
    {"a05_matmul.qn", "matmul_split", "M=19 N=23 K=40 SPLIT=2 BM=8 BN=16 BK=8"},
    {"a05_matmul.qn", "lora", "M=19 N=23 K=17 R=4 alpha=0.5 BM=8 BN=16 BK=8"},
    {"a06_convolution.qn", "conv2d", "B=2 C=5 H=9 W=11 O=6 R=3 S=3 PAD=1 STRIDE=2 BO=4 BQ=4 BC=3"},
    {"a06_convolution.qn", "conv2d", "B=1 C=2 H=6 W=5 O=3 R=2 S=3 PAD=2 STRIDE=1 BO=4 BQ=8 BC=8"},
    {"a06_convolution.qn", "conv2d_gather", "B=2 C=3 H=7 W=6 O=5 R=3 S=3 PAD=1 STRIDE=1 BM=8 BO=4 BK=8"},
    {"a06_convolution.qn", "blur", "H=19 W=45 BH=4 BW=32"},
    {"a06_convolution.qn", "transpose_tile", "M=37 N=45 B=16"},
    {"a07_embeddings.qn", "embed", "B=21 F=3 V=40 W=44 E=8 COL=16 BB=8 @id=40 @base=20 @size=5"},
    {"a07_embeddings.qn", "embed_exact", "n=70 V=31 BLOCK=16 @id=70 @token=..60"},
    {"a07_embeddings.qn", "embed_backward", "n=37 V=9 E=5 BLOCK=8 @id=9"},
    {"a07_embeddings.qn", "embed_bag", "n=40 B=5 B1=6 V=11 E=20 @id=11 @start=..40"},
    {"a08_attention.qn", "attention", "B=2 H=2 L=13 S=17 D=8 scale=0.4 BM=8 BN=8"},
    {"a08_attention.qn", "attention", "B=1 H=2 L=19 S=19 D=16 scale=0.4 BM=8 BN=4 CAUSAL=true"},
    {"a08_attention.qn", "attention_delta", "B=2 H=2 L=13 D=8 BM=4"},
    {"a08_attention.qn", "attention_backward_kv", "B=1 H=2 L=13 S=11 D=8 scale=0.4 BM=8 BN=8"},
    {"a08_attention.qn", "attention_backward_q", "B=1 H=2 L=13 S=13 D=8 scale=0.4 BM=8 BN=8 CAUSAL=true"},
    {"a08_attention.qn", "rope", "B=2 L=11 H=2 D=16 BL=4"},
    {"a09_inplace.qn", "bias_act", "M=7 N=45 m=0.5 BM=4 BN=32"},
    {"a09_inplace.qn", "dropout", "n=300 p=0.3 seed=7 offset=11 BLOCK=64"},
    {"a09_inplace.qn", "adam", "n=100 rate=0.1 b1=0.9 b2=0.99 eps=0.001 step=3 BLOCK=32 @v=+"},
    {"a09_inplace.qn", "mandelbrot", "H=10 W=21 limit=30 BH=4 BW=16"},
};

static const run features[] = {
    {"features.qn", "fold_middle", "A=3 B=5 C=37"},
    {"features.qn", "fold_middle", "A=1 B=4 C=16"},
    {"features.qn", "fold_kinds", "n=50 @x=9"},
    {"features.qn", "argmax_columns", "T=f32 rows=7 cols=37"},
    {"features.qn", "argmax_columns", "T=f16 rows=1 cols=5"},
    {"features.qn", "scan_axes", "A=5 B=37"},
    {"features.qn", "reshapes", "A=6 B=20"},
    {"features.qn", "permutes", "T=f32 A=3 B=17 C=20"},
    {"features.qn", "permutes", "T=bf16 A=3 B=5 C=33"},
    {"features.qn", "swaps", "n=70"},
    {"features.qn", "turns", "B=9"},
    {"features.qn", "turns", "B=33 N=2"},
    {"features.qn", "branches", "n=70"},
    {"features.qn", "slices", "n=100 p=4 @start=..40 @length=..50"},
    {"features.qn", "steps", "T=f32 n=150"},
    {"features.qn", "steps", "T=f64 n=64"},
    {"features.qn", "overlap", "n=50"},
    {"features.qn", "overlap", "n=90"},
    {"features.qn", "atomics", "n=100 m=7 @id=7 @x=20"},
    {"features.qn", "batched", "T=f32 B=3 M=7 N=18 K=9"},
    {"features.qn", "batched", "T=bf16 B=2 M=4 N=5 K=3"},
    {"features.qn", "long_dot", "T=f32 M=19 N=33 K=41"},
    {"features.qn", "deep_dots", "T=f32 M=19 P=27 N=37 K=41 from=3 to=30"},
    {"features.qn", "deep_dots", "T=f32 M=19 P=19 N=32 K=300 from=-5 to=290"},
    {"features.qn", "deep_dots", "T=bf16 M=9 P=9 N=20 K=16 from=16 to=8"},
    {"features.qn", "small_dots", "M=5 N=17 K=9"},
    {"features.qn", "maps", "n=50 @x=30"},
    {"features.qn", "precise_one", "n=50"},
    {"features.qn", "keeps", "n=21 m=70"},
    {"features.qn", "scatters", "n=9 m=40 E=5 @id=..38"},
    {"features.qn", "rank_zero", ""},
    {"features.qn", "costly_rows", "n=21 m=70"},
    {"features.qn", "checks", "n=70"},
    {"features.qn", "small_types", "n=70"},
};

static bool is_generic(const char *kernel)
{
    static const char *const fixed[] = {"gelu_tile",   "sum_tree",    "sum_atomic", "sum_two_step",
                                        "cumsum_rows", "cumsum_long", "histogram",  "topk",
                                        "blur",        "embed_exact", "adam",       "mandelbrot"};
    for (int i = 0; i < COUNT(fixed); i++)
        if (!strcmp(kernel, fixed[i])) return false;
    return true;
}

/* each, first: of the runs; views from..to. */
static void run_all(dtype t, int from, int to, int each, int first)
{
    const char *only = environment_get("QUERN_ONLY");
    /* Their scalar functions take float: a double argument would narrow (E213). */
    static const char *const float_only[] = {"softmax_batched", "linear_act", "lora", "bias_act"};
    for (int i = first; i < COUNT(runs); i += each) {
        char settings[256], path[512];
        bool generic = is_generic(runs[i].kernel), skip = only && strcmp(only, runs[i].kernel);
        for (int f = 0; f < COUNT(float_only); f++) skip |= t == DT_F64 && !strcmp(float_only[f], runs[i].kernel);
        if (skip || (!generic && t != DT_F32)) continue;
        snprintf(settings, sizeof(settings), "%s%s %s", generic ? "T=" : "", generic ? dtypes[t].text : "",
                 runs[i].settings);
        snprintf(path, sizeof(path), "%s%s", PROGRAMS, runs[i].file);
        run_case(path, runs[i].kernel, settings, from, to);
    }
}

TEST(programs_with_facts)
{
    run_all(DT_F32, VIEW_FACTS, VIEW_FACTS, 1, 0);
}

TEST(programs_on_views)
{
    run_all(DT_F32, VIEW_PLAIN, VIEW_TURNED, 1, 0);
}

TEST(programs_f64)
{
    run_all(DT_F64, VIEW_PLAIN, VIEW_PLAIN, 2, 0);
    run_all(DT_F64, VIEW_FACTS, VIEW_FACTS, 2, 1);
}

TEST(programs_16_bits)
{
    run_all(DT_F16, VIEW_FACTS, VIEW_FACTS, 2, 0);
    run_all(DT_BF16, VIEW_FACTS, VIEW_FACTS, 2, 1);
    run_all(DT_BF16, VIEW_GAPS, VIEW_GAPS, 6, 0);
}

TEST(features_of_the_language)
{
    const char *only = environment_get("QUERN_ONLY");
    for (int i = 0; i < COUNT(features); i++) {
        if (only && strcmp(only, features[i].kernel)) continue;
        run_case(QUERN_ROOT "/tests/text/c/features.qn", features[i].kernel, features[i].settings, VIEW_FACTS,
                 VIEW_FACTS);
        run_case(QUERN_ROOT "/tests/text/c/features.qn", features[i].kernel, features[i].settings, VIEW_PLAIN,
                 VIEW_TURNED);
    }
}

/* ---- every op on every element type ---- */

typedef struct op_case {
    op_code code;
    dtype from, to; /* to: of the result */
} op_case;

static bool op_takes(op_code code, dtype t)
{
    const char *kinds = ops[code].types;
    return strchr(kinds, dtype_is_float(t) ? 'F' : t == DT_BOOL ? 'B' : 'I') != NULL;
}

static int list_ops(op_case *list)
{
    int count = 0;
    for (dtype t = 0; t < DT_COUNT; t++) {
        for (op_code code = OP_NONE; code < OP_COUNT; code++) {
            op_class class = ops[code].class;
            if (class != CLASS_UNARY && class != CLASS_BINARY && class != CLASS_COMPARE && class != CLASS_TERNARY)
                continue;
            bool half = t == DT_F16 || t == DT_BF16;
            if (!op_takes(code, t) || (half && code != OP_CONVERT && code != OP_BITCAST && code != OP_SELECT)) continue;
            if (code == OP_TF32 && t != DT_F32) continue;
            if (code == OP_PHILOX && t != DT_I64) continue;
            for (dtype to = 0; to < DT_COUNT; to++) {
                bool same = dtypes[to].size_bytes == dtypes[t].size_bytes && t != DT_BOOL && to != DT_BOOL;
                bool fits = code == OP_CONVERT                ? to != t
                            : code == OP_BITCAST              ? same && to != t
                            : code == OP_PHILOX               ? to == DT_U32
                            : ops[code].result == RESULT_BOOL ? to == DT_BOOL
                                                              : to == t;
                if (fits) list[count++] = (op_case){code, t, to};
            }
        }
    }
    return count;
}

static tile_param array_param(const char *name, param_kind kind, dtype elem, int extent)
{
    tile_param p = {.name = name, .kind = kind, .elem = elem, .rank = 1};
    p.facts.size_class = -1;
    for (int i = 0; i < MAX_RANK; i++) p.extent_param[i] = -1;
    p.extent_param[0] = extent;
    return p;
}

static value constant(tile_kernel *k, tile_block *b, dtype t, int64_t i, double f)
{
    tile_op *op = tile_op_new(k, OP_CONST, NULL, 0);
    op->attr.number = (number){.i = i, .f = f};
    tile_append(k, b, op);
    return tile_result(k, op, scalar_type(t));
}

/* Loads three inputs of a type, applies one op and stores: on whole arrays, or (scalars) one element a program. */
static tile_kernel *op_kernel(arena *memory, const op_case *list, int count, bool scalars)
{
    tile_kernel *k = tile_kernel_new(memory, "op_matrix", "op_matrix");
    tile_param extent = {.name = "n", .kind = PARAM_EXTENT, .elem = DT_I64, .facts = {.size_class = -1}};
    int n = tile_param_add(k, extent);
    tile_block *b = tile_block_new(k);
    k->phases = ARENA_ARRAY(memory, tile_block *, 1);
    k->phases[0] = b;
    k->phase_count = 1;
    value counts[2];
    for (int i = 0; i < 2; i++) {
        tile_op *arg = tile_op_new(k, OP_ARG, NULL, 0);
        arg->attr.index = n;
        tile_append(k, i ? b : k->head, arg);
        counts[i] = tile_result(k, arg, scalar_type(DT_I64));
    }
    value one = constant(k, k->head, DT_I64, 1, 1);
    tile_op *launch = tile_op_new(k, OP_LAUNCH, scalars ? &counts[0] : &one, 1);
    tile_append(k, k->head, launch);
    value start = constant(k, b, DT_I64, 0, 0), step = constant(k, b, DT_I64, 1, 1);
    if (scalars) {
        tile_op *program = tile_op_new(k, OP_PROGRAM, NULL, 0);
        tile_append(k, b, program);
        start = tile_result(k, program, scalar_type(DT_I64));
    }
    value inputs[DT_COUNT][3] = {{0}};
    for (int c = 0; c < count; c++) {
        int operands = ops[list[c].code].count;
        value values[3];
        for (int i = 0; i < operands; i++) {
            dtype t = list[c].code == OP_SELECT && i == 0  ? DT_BOOL
                      : list[c].code == OP_PHILOX && i < 2 ? DT_U64
                                                           : list[c].from;
            if (!inputs[t][i]) {
                int p = tile_param_add(k, array_param(arena_print(memory, "%s_%d", dtypes[t].text, i), PARAM_IN, t, n));
                value indices[2] = {start, step};
                tile_op *load = tile_op_new(k, OP_LOAD, indices, scalars ? 1 : 2);
                load->attr.access = (struct access){.array = p, .rank = 1};
                load->attr.access.kind[0] = scalars ? INDEX_SCALAR : INDEX_SLICE;
                tile_type type = scalar_type(t);
                if (!scalars) type = (tile_type){.elem = t, .rank = 1, .dims = {-(int64_t)counts[1]}};
                tile_append(k, b, load);
                inputs[t][i] = tile_result(k, load, type);
            }
            values[i] = inputs[t][i];
        }
        if (list[c].code == OP_PHILOX && !scalars) { /* seed and offset are scalars */
            values[0] = constant(k, b, DT_U64, 77, 0);
            values[1] = constant(k, b, DT_U64, 5000000000, 0);
        }
        tile_op *op = tile_op_new(k, list[c].code, values, operands);
        op->attr.index = 2;
        tile_type type = tile_type_of(k, values[operands - 1]);
        type.elem = list[c].to;
        tile_append(k, b, op);
        value result = tile_result(k, op, type);
        int p = tile_param_add(k, array_param(arena_print(memory, "%s_%s_%s", ops[list[c].code].text,
                                                          dtypes[list[c].from].text, dtypes[list[c].to].text),
                                              PARAM_OUT, list[c].to, n));
        value stored[3] = {result, start, step};
        tile_op *store = tile_op_new(k, OP_STORE, stored, scalars ? 2 : 3);
        store->attr.access = (struct access){.array = p, .rank = 1, .first_index = 1};
        store->attr.access.kind[0] = scalars ? INDEX_SCALAR : INDEX_SLICE;
        tile_append(k, b, store);
    }
    return k;
}

static number matrix_input(dtype t, int64_t n, int which)
{
    static const double special[] = {0,    -0.0,  1,     -1,   INFINITY, -INFINITY, NAN, 0.5,   -2.5,
                                     1e30, -1e30, 1e-30, 88.5, -104,     3e9,       300, 70000, -129};
    static const int64_t whole[] = {0,          1,         -1,        2,     3,      7,     -7,        127,
                                    -128,       255,       256,       32767, -32768, 65535, INT32_MAX, INT32_MIN,
                                    UINT32_MAX, INT64_MAX, INT64_MIN, 31,    33,     64};
    int64_t at = which == 0 ? n : which == 1 ? n * 7 + 3 : n * 5 + 11;
    number x = {.f = special[at % COUNT(special)], .i = whole[at % COUNT(whole)]};
    if (n > 150) x.f = (random_unit() - 0.5) * 8;
    if (n > 150) x.i = (int64_t)(random_unit() * 1e6) - 500000;
    x.i = t == DT_BOOL ? x.i & 1 : integer_wrap(t, x.i);
    return x;
}

static void run_matrix(const op_case *list, int count, bool scalars)
{
    arena *memory = arena_new();
    tile_kernel *k = op_kernel(memory, list, count, scalars);
    qn_error error = {0};
    qn_status status = tile_verify(k, &error);
    text source = {0};
    if (status == QN_OK) status = emit_c(k, NULL, &source, &error);
    if (status != QN_OK) printf("%s\n", error.message);
    EXPECT(status == QN_OK);
    compiled code = {0};
    bool ready = status == QN_OK && compile(text_get(&source), &code);
    EXPECT(ready);
    if (ready) {
        static launch_plan plan;
        enum { SIZE = 250 };
        memset(&plan, 0, sizeof(plan));
        plan.scalars_bits[0] = SIZE;
        plan.programs[0][0] = scalars ? SIZE : 1;
        plan.programs[0][1] = plan.programs[0][2] = 1;
        array_view arrays[2][64] = {0};
        random_state = 99;
        for (int p = 1; p < k->param_count; p++) {
            dtype t = k->params[p].elem;
            for (int side = 0; side < 2; side++) {
                arrays[side][p] = (array_view){.elem = t, .rank = 1, .extents = {SIZE}, .strides = {1}};
                arrays[side][p].data = calloc(SIZE + 16, 8);
            }
            plan.extents[p][0] = SIZE;
            const char *name = k->params[p].name;
            for (int64_t n = 0; n < SIZE && k->params[p].kind == PARAM_IN; n++) {
                number x = matrix_input(t, n, name[strlen(name) - 1] - '0');
                for (int side = 0; side < 2; side++) element_write(t, element_at(&arrays[side][p], n), x);
            }
        }
        interp_options options = {.units = 2};
        findings found = {0};
        EXPECT(interp_run(k, arrays[0], &plan, &options, &found, &error) == QN_OK);
        findings_free(&found);
        cpu_report report = {0};
        run_compiled(k, &code, arrays[1], &plan, &report);
        for (int p = 1; p < k->param_count; p++) {
            EXPECT(compare(scalars ? "scalars" : "vectors", &k->params[p], &arrays[0][p], &arrays[1][p]));
            free(arrays[0][p].data);
            free(arrays[1][p].data);
        }
        dlclose(code.library);
    }
    text_free(&source);
    arena_free(memory);
}

TEST(every_op_on_every_type)
{
    static op_case list[1000];
    int count = list_ops(list);
    enum { STEP = 44 };
    for (int i = 0; i < count; i += STEP) {
        run_matrix(list + i, MINIMUM(STEP, count - i), false);
        run_matrix(list + i, MINIMUM(STEP, count - i), true);
    }
    EXPECT(count > 400);
    printf("note: %d ops on element types, as vectors and as scalars\n", count);
}

/* ---- golden texts ---- */

/* The functions of the kernel, without the prelude before them. */
static const char *functions_of(const char *source, const char *name)
{
    char start[80];
    snprintf(start, sizeof(start), "\nint %s_phase0", name);
    const char *found = strstr(source, start);
    return found ? found + 1 : source;
}

TEST(golden_texts)
{
    static const char *const names[] = {"add", "gelu_tile", "softmax_row", "softmax_short", "matmul", "embed", "blur"};
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
        static launch_plan plan;
        memset(&plan, 0, sizeof(plan));
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
          CASE(golden_texts), CASE(every_op_on_every_type), CASE(features_of_the_language), CASE(programs_with_facts),
          CASE(programs_on_views), CASE(programs_f64), CASE(programs_16_bits))
