/*
 * The passes on real programs: every kernel of tests/programs is lowered, run by the interpreter as it is and after
 * each prefix of the pipeline, with the facts that hold for its sizes, and must write the same numbers and give no new
 * finding. While it runs, every integer is compared with what the facts say of it, and every access with its `safe`
 * marks. The pipeline run on its own result changes nothing, and its time is reported.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"

#include "ir/interp.h"
#include "lang/ast.h"
#include "passes/facts.h"

#include <stdlib.h>

/* "n=37 BLOCK=8 eps=0.5 @id=7 @start=..40": settings by name; @array: integers in [0, 7), or rising to 40. */
typedef struct program {
    const char *file, *kernel, *settings;
} program;

static const program programs[] = {
    {"a01_pointwise", "add", "n=37 BLOCK=8"},
    {"a01_pointwise", "add", "n=64 BLOCK=16"},
    {"a01_pointwise", "add", "n=1 BLOCK=8"},
    {"a01_pointwise", "gelu_tile", "n=100 BLOCK=32"},
    {"a02_softmax", "softmax_three", "rows=5 cols=100 BLOCK=32"},
    {"a02_softmax", "softmax_three", "rows=3 cols=64 BLOCK=16"},
    {"a02_softmax", "softmax_three", "rows=3 cols=7 BLOCK=3"},
    {"a02_softmax", "softmax_online", "rows=5 cols=101 BLOCK=32"},
    {"a02_softmax", "softmax_row", "rows=4 cols=77"},
    {"a02_softmax", "softmax_row", "rows=3 cols=1"},
    {"a02_softmax", "softmax_short", "rows=13 cols=20 R=4"},
    {"a02_softmax", "softmax_batched", "B=2 L=3 D=33"},
    {"a03_norms", "layer_norm", "rows=5 cols=70 eps=0.01"},
    {"a03_norms", "layer_norm", "rows=1 cols=16 eps=0.01"},
    {"a03_norms", "layer_norm_welford", "rows=5 cols=70 eps=0.01 BLOCK=32"},
    {"a03_norms", "rms_norm_backward", "rows=7 cols=50 P=3 BC=16 eps=0.01"},
    {"a04_reductions", "cross_entropy", "B=5 V=37 @target=37"},
    {"a04_reductions", "sum_tree", "n=103"},
    {"a04_reductions", "sum_atomic", "n=103 BLOCK=16"},
    {"a04_reductions", "sum_two_step", "n=203 P=5 BLOCK=16"},
    {"a04_reductions", "argmax_rows", "rows=7 cols=37 R=4"},
    {"a04_reductions", "cumsum_rows", "rows=3 cols=53"},
    {"a04_reductions", "cumsum_long", "n=103 BLOCK=16"},
    {"a04_reductions", "histogram", "n=100 BLOCK=16"},
    {"a04_reductions", "topk", "rows=3 cols=40 K=4"},
    {"a05_matmul", "matmul_naive", "M=7 N=35 K=20 BN=16"},
    {"a05_matmul", "matmul", "M=17 N=21 K=29 BM=8 BN=16 BK=8"},
    {"a05_matmul", "matmul", "M=16 N=32 K=16 BM=8 BN=16 BK=16"},
    {"a05_matmul", "matmul_grouped", "M=17 N=21 K=29 BM=8 BN=8 BK=8 G=2"},
    {"a05_matmul", "matmul_abt", "B=2 M=19 N=23 K=17 BM=8 BN=16 BK=8"},
    {"a05_matmul", "linear_act", "M=19 N=23 K=17 BM=8 BN=16 BK=8"},
    {"a05_matmul", "matmul_split", "M=19 N=23 K=40 SPLIT=2 BM=8 BN=16 BK=8"},
    {"a05_matmul", "lora", "M=19 N=23 K=17 R=4 alpha=0.5 BM=8 BN=16 BK=8"},
    {"a06_convolution", "conv2d", "B=2 C=5 H=9 W=11 O=6 R=3 S=3 PAD=1 STRIDE=2 BO=4 BQ=4 BC=3"},
    {"a06_convolution", "conv2d", "B=1 C=2 H=6 W=5 O=3 R=2 S=3 PAD=2 STRIDE=1 BO=4 BQ=8 BC=8"},
    {"a06_convolution", "conv2d_gather", "B=2 C=3 H=7 W=6 O=5 R=3 S=3 PAD=1 STRIDE=1 BM=8 BO=4 BK=8"},
    {"a06_convolution", "blur", "H=19 W=45 BH=4 BW=32"},
    {"a06_convolution", "transpose_tile", "M=37 N=45 B=16"},
    {"a07_embeddings", "embed", "B=21 F=3 V=40 W=44 E=8 COL=16 BB=8 @id=40 @base=20 @size=5+1"},
    {"a07_embeddings", "embed_exact", "n=70 V=31 BLOCK=16 @id=70 @token=..60"},
    {"a07_embeddings", "embed_backward", "n=37 V=9 E=5 BLOCK=8 @id=9"},
    {"a07_embeddings", "embed_bag", "n=40 B=5 B1=6 V=11 E=20 @id=11 @start=..40"},
    {"a08_attention", "attention", "B=2 H=2 L=13 S=17 D=8 scale=0.4 BM=8 BN=8"},
    {"a08_attention", "attention", "B=1 H=2 L=19 S=19 D=16 scale=0.4 BM=8 BN=4 CAUSAL=true"},
    {"a08_attention", "attention_delta", "B=2 H=2 L=13 D=8 BM=4"},
    {"a08_attention", "attention_backward_kv", "B=1 H=2 L=13 S=11 D=8 scale=0.4 BM=8 BN=8"},
    {"a08_attention", "attention_backward_q", "B=1 H=2 L=13 S=13 D=8 scale=0.4 BM=8 BN=8 CAUSAL=true"},
    {"a08_attention", "rope", "B=2 L=11 H=2 D=16 BL=4"},
    {"a09_inplace", "bias_act", "M=7 N=45 m=0.5 BM=4 BN=32"},
    {"a09_inplace", "bias_act", "M=1 N=48 m=0.5 BM=4 BN=16"},
    {"a09_inplace", "dropout", "n=100 p=0.3 seed=7 offset=11 BLOCK=32"},
    {"a09_inplace", "adam", "n=100 rate=0.1 b1=0.9 b2=0.99 eps=0.001 step=3 BLOCK=32"},
    {"a09_inplace", "mandelbrot", "H=10 W=21 limit=30 BH=4 BW=16"},
};

typedef struct setting {
    char name[32], words[32];
} setting;

typedef struct run { /* one program with its arguments */
    arena *memory;
    uint64_t variation; /* 0: the settings as they stand; else other sizes */
    const program *what;
    setting settings[32];
    int setting_count;
    tile_kernel *k;
    launch_plan plan;
    array_view arrays[64]; /* as they are before a launch */
    int64_t sizes[64];     /* in bytes */
} run;

static const char *find_setting(const run *r, const char *name)
{
    for (int i = 0; i < r->setting_count; i++)
        if (!strcmp(r->settings[i].name, name)) return r->settings[i].words;
    return NULL;
}

static binding bind(const setting *s)
{
    binding b = {.name = s->name, .untyped = true, .kind = BIND_INT};
    char *end;
    b.number.i = strtoll(s->words, &end, 0);
    b.number.f = (double)b.number.i;
    if (*end) {
        b.kind = BIND_FLOAT;
        b.number.f = strtod(s->words, &end);
    }
    if (*end) b = (binding){.name = s->name, .kind = BIND_BOOL, .number.i = !strcmp(s->words, "true")};
    return b;
}

static bool lower(run *r)
{
    char path[500], *words;
    size_t length;
    qn_error error;
    snprintf(path, sizeof(path), QUERN_ROOT "/tests/programs/%s.qn", r->what->file);
    if (file_read(path, 1 << 20, &words, &length, &error) != QN_OK) return false;
    diagnostics found = {.memory = r->memory};
    ast_file *file = lang_parse(r->memory, path, words, length, &found);
    const ast *kernel = ast_find(file, r->what->kernel);
    lang_given given = {.units = 2};
    for (int i = 0; i < r->setting_count; i++)
        if (r->settings[i].name[0] != '@') bindings_set(r->memory, &given.settings, bind(&r->settings[i]));
    bindings constants = {0}, extents = {0};
    bool good = kernel && lang_instantiate(file, kernel, &given, &found, r->memory, &constants, &extents) &&
                lang_lower(file, kernel, &constants, r->memory, &found, &r->k);
    if (!good) {
        text out = {0};
        diagnostics_print(&found, file, false, &out);
        printf("%s does not lower\n%s", r->what->kernel, text_get(&out));
        text_free(&out);
    }
    free(words);
    return good;
}

static uint64_t random_state;
static double random_unit(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 40) / 16777216.0;
}

static void make_array(run *r, int p)
{
    array_view *a = &r->arrays[p];
    const tile_param *param = &r->k->params[p];
    char name[40];
    int64_t count = 1;
    memcpy(a->extents, r->plan.extents[p], sizeof(a->extents));
    for (int i = a->rank - 1; i >= 0; i--) {
        a->strides[i] = count;
        count *= a->extents[i];
    }
    int size = dtypes[a->elem].size_bytes;
    r->sizes[p] = count * size;
    a->data = arena_alloc(r->memory, (size_t)(count * size + 1));
    snprintf(name, sizeof(name), "@%s", param->name);
    const char *range = find_setting(r, name);
    bool rising = range && !strncmp(range, "..", 2);
    for (int64_t n = 0; n < count; n++) {
        double u = random_unit();
        number x = {.f = 4 * u - 2, .i = (int64_t)(u * (range ? atof(range) : 5))};
        if (a->elem == DT_U8) x.i = (int64_t)(u * 256);
        if (rising) x.i = (int64_t)(atof(range + 2) * (double)n / (double)MAXIMUM(count - 1, 1));
        if (range && strchr(range, '+')) x.i++;
        if (!strcmp(r->what->kernel, "adam")) x.f = u + 0.1;
        element_write(a->elem, (char *)a->data + n * size, x);
    }
}

/* Extents and tile sizes that may be changed without breaking what else the program asks for. */
static bool may_change(const setting *s)
{
    static const char *const names[] = {"n",  "rows", "cols", "M",  "N",  "K",  "L",  "S",  "H",  "W",  "P",    "R",
                                        "BM", "BN",   "BK",   "BC", "BQ", "BO", "BL", "BH", "BW", "BB", "BLOCK"};
    for (int i = 0; i < COUNT(names); i++)
        if (!strcmp(s->name, names[i])) return true;
    return false;
}

static bool prepare(run *r)
{
    bool given[64] = {false};
    number numbers[64] = {{0}};
    qn_error error;
    const char *words = r->what->settings;
    for (int used; sscanf(words, " %31[^=]=%31s%n", r->settings[r->setting_count].name,
                          r->settings[r->setting_count].words, &used) == 2;
         words += used)
        r->setting_count++;
    static const int sizes[] = {1, 2, 3, 5, 8, 16, 17, 32, 33, 48};
    random_state = r->variation;
    for (int i = 0; i < r->setting_count && r->variation; i++)
        if (may_change(&r->settings[i]))
            snprintf(r->settings[i].words, sizeof(r->settings[i].words), "%d",
                     sizes[(int)(random_unit() * COUNT(sizes))]);
    if (!lower(r)) return false;
    tile_kernel *blank = tile_clone(r->k, r->memory); /* the head computes the extents of outputs */
    for (int p = 0; p < r->k->param_count; p++) {
        r->arrays[p].elem = r->k->params[p].elem;
        r->arrays[p].rank = r->k->params[p].rank;
        if (r->k->params[p].kind < PARAM_SCALAR) {
            blank->params[p].kind = PARAM_OUT;
            continue;
        }
        const char *setting = find_setting(r, r->k->params[p].name);
        given[p] = setting != NULL;
        if (setting) numbers[p] = (number){.i = atoll(setting), .f = atof(setting)};
    }
    r->plan = launch_plan_new(r->memory, blank->param_count);
    if (interp_head(blank, given, numbers, r->arrays, 2, &r->plan, &error) != QN_OK) {
        if (!r->variation) printf("%s: %s\n", r->what->kernel, error.message);
        return false;
    }
    random_state = 12345;
    for (int p = 0; p < r->k->param_count; p++)
        if (r->k->params[p].kind < PARAM_SCALAR) make_array(r, p);
    return true;
}

typedef struct watch {
    const tile_kernel *k;
    const facts *known;
    const launch_plan *plan;
    int wrong;
} watch;

/* One integer value of the running program against its range, divisor and strides. */
static void check_value(watch *w, const interp *state, value v)
{
    interp_tile t;
    dtype elem = tile_type_of(w->k, v).elem;
    if (!dtype_is_integer(elem) || elem == DT_U64 || !interp_value(state, v, &t)) return;
    integer_fact fact = facts_of(w->known, v);
    for (int64_t i = 0; i < t.count; i++) {
        int64_t n = t.elements[i].i;
        if (t.valid && !t.valid[i]) continue;
        bool good = n >= fact.low && n <= fact.high && (fact.divisor ? n % fact.divisor == 0 : n == 0);
        if (!good && !w->wrong++)
            printf("%s: %%%u is %lld, not in %lld .. %lld by %lld\n", w->k->name, v, (long long)n, (long long)fact.low,
                   (long long)fact.high, (long long)fact.divisor);
    }
    int64_t after = 1, step;
    for (int axis = t.type.rank - 1; axis >= 0; after *= t.type.dims[axis--]) {
        if (!facts_stride(w->known, v, axis, &step)) continue;
        for (int64_t i = 0; i + after < t.count; i++) {
            bool inner = i / after % t.type.dims[axis] + 1 < t.type.dims[axis];
            bool both = !t.valid || (t.valid[i] && t.valid[i + after]);
            if (inner && both && t.elements[i + after].i - t.elements[i].i != step && !w->wrong++)
                printf("%s: %%%u does not grow by %lld along axis %d\n", w->k->name, v, (long long)step, axis);
        }
    }
}

/* An axis that is marked safe stays inside its array, for every element that is not masked off. */
static void check_access(watch *w, const interp *state, const tile_op *op)
{
    const access *a = &op->attr.access;
    tile_type shape = tile_type_of(w->k, op->code == OP_LOAD ? op->results[0] : op->operands[0]);
    int operand = a->first_index;
    int64_t lengths[MAX_RANK];
    interp_tile t;
    if (a->mask_count) return; /* what is masked off is not touched, wherever it is */
    for (int i = 0; i < shape.rank; i++) {
        lengths[i] = shape.dims[i];
        if (lengths[i] < 0) lengths[i] = interp_value(state, (value)-shape.dims[i], &t) ? t.elements[0].i : 0;
        if (lengths[i] <= 0) return;
    }
    for (int axis = 0; axis < a->rank; operand += a->kind[axis++] == INDEX_SLICE ? 2 : 1) {
        int64_t extent = w->plan->extents[a->array][axis], last = 0;
        if (!a->safe[axis] || !interp_value(state, op->operands[operand], &t)) continue;
        bool good = true;
        for (int64_t i = 0; i < t.count; i++)
            if (!t.valid || t.valid[i]) good &= t.elements[i].i >= 0 && t.elements[i].i < extent;
        if (a->kind[axis] == INDEX_SLICE) {
            last = t.elements[0].i;
            EXPECT(interp_value(state, op->operands[operand + 1], &t));
            last += (lengths[a->result_axis[axis]] - 1) * t.elements[0].i;
            good &= last >= 0 && last < extent;
        }
        if (!good && !w->wrong++) printf("%s:%d: axis %d is not safe\n", w->k->name, op->line, axis);
    }
}

static bool check_op(void *context, interp *state, const tile_op *op, const int64_t program_number[3])
{
    watch *w = context;
    for (int i = 0; i < op->operand_count; i++) check_value(w, state, op->operands[i]);
    if (ops[op->code].class == CLASS_MEMORY) check_access(w, state, op);
    return true;
}

/* Runs a form of the kernel on copies of the arrays; the number of findings. */
static int execute(run *r, const tile_kernel *k, array_view *after)
{
    findings found = {0};
    qn_error error;
    watch w = {.k = k, .known = facts_compute(k, r->memory), .plan = &r->plan};
    interp_options options = {.units = 2, .check = true, .order_seed = 3, .hook = check_op, .hook_context = &w};
    memcpy(after, r->arrays, sizeof(r->arrays));
    for (int p = 0; p < k->param_count; p++) {
        if (k->params[p].kind >= PARAM_SCALAR) continue;
        after[p].data = arena_alloc(r->memory, (size_t)r->sizes[p] + 1);
        memcpy(after[p].data, r->arrays[p].data, (size_t)r->sizes[p]);
    }
    qn_status status = interp_run(k, after, &r->plan, &options, &found, &error);
    if (status != QN_OK) printf("%s: %s\n", k->name, error.message);
    EXPECT(status == QN_OK);
    EXPECT(w.wrong == 0);
    int count = found.count;
    for (int i = 0; i < count; i++)
        printf("%s:%d: R%d: %s\n", k->name, found.items[i].line, found.items[i].code, found.items[i].message);
    findings_free(&found);
    return count;
}

static void tell_facts(run *r, tile_kernel *k)
{
    static const int64_t limits[] = {64, 1024, 4096, 65536, 1 << 20};
    for (int p = 0; p < k->param_count; p++) {
        tile_facts *f = &k->params[p].facts;
        *f = (tile_facts){.size_class = -1};
        if (k->params[p].kind < PARAM_SCALAR) {
            f->last_unit = f->contiguous = f->small = true;
        } else if (dtype_is_integer(k->params[p].elem)) {
            int64_t n = r->plan.scalars_bits[p];
            f->one = n == 1;
            f->by16 = n % 16 == 0;
            for (int c = COUNT(limits) - 1; c >= 0 && k->params[p].kind == PARAM_EXTENT; c--)
                if (n <= limits[c]) f->size_class = c;
        }
    }
}

static bool same_results(const run *r, const array_view *a, const array_view *b)
{
    for (int p = 0; p < r->k->param_count; p++) {
        if (r->k->params[p].kind != PARAM_OUT && r->k->params[p].kind != PARAM_INOUT) continue;
        if (memcmp(a[p].data, b[p].data, (size_t)r->sizes[p])) return false;
    }
    return true;
}

static bool check_program(const program *what, uint64_t variation)
{
    run *r = calloc(1, sizeof(run));
    array_view before[64], after[64];
    qn_error error;
    r->memory = arena_new();
    r->what = what;
    r->variation = variation;
    bool ready = prepare(r);
    EXPECT(ready || variation);
    int findings_before = ready ? execute(r, r->k, before) : 0;
    EXPECT(findings_before == 0);
    for (int stage = 0; ready && stage < 2 * pass_count; stage++) {
        if (variation && stage % pass_count != pass_count - 1) continue; /* the whole pipeline is enough */
        tile_kernel *k = tile_clone(r->k, r->memory);
        k->split_loops = stage >= pass_count;
        tell_facts(r, k);
        qn_status status = passes_run(k, passes[stage % pass_count].name, NULL, NULL, &error);
        if (status != QN_OK) printf("%s %s: %s\n", what->kernel, what->settings, error.message);
        EXPECT(status == QN_OK);
        if (status != QN_OK) break;
        int found = execute(r, k, after);
        bool same = same_results(r, before, after);
        if (found != findings_before || !same)
            printf("%s %s after %s: %d findings, %s\n", what->kernel, what->settings, passes[stage % pass_count].name,
                   found, same ? "same" : "other results");
        EXPECT(found == findings_before && same);
        if (!same) {
            text out = {0};
            tile_print(k, &out);
            printf("%s", text_get(&out));
            text_free(&out);
            break;
        }
    }
    arena_free(r->memory);
    free(r);
    return ready;
}

TEST(programs_keep_their_results)
{
    for (int i = 0; i < COUNT(programs); i++) check_program(&programs[i], 0);
}

TEST(programs_of_other_sizes_keep_their_results)
{
    int ran = 0;
    for (int i = 0; i < COUNT(programs); i++)
        for (int variation = 1; variation <= 3; variation++)
            ran += check_program(&programs[i], (uint64_t)(i * 10 + variation) * 7919);
    EXPECT(ran > 2 * COUNT(programs));
}

static void any_change(void *context, const tile_kernel *k, const char *name, bool changed, int64_t time_ns)
{
    if (!changed) return;
    printf("%s: pass %s changes its own result\n", k->name, name);
    *(bool *)context = true;
}

TEST(the_pipeline_is_done_after_one_run)
{
    for (int i = 0; i < COUNT(programs); i++) {
        run *r = calloc(1, sizeof(run));
        qn_error error;
        bool changed = false;
        r->memory = arena_new();
        r->what = &programs[i];
        EXPECT(prepare(r));
        tell_facts(r, r->k);
        r->k->split_loops = i % 2;
        EXPECT(passes_run(r->k, NULL, NULL, NULL, &error) == QN_OK);
        EXPECT(passes_run(r->k, NULL, any_change, &changed, &error) == QN_OK);
        EXPECT(!changed);
        arena_free(r->memory);
        free(r);
    }
}

static void add_time(void *context, const tile_kernel *k, const char *name, bool changed, int64_t time_ns)
{
    *(int64_t *)context += time_ns;
}

TEST(the_pipeline_is_fast)
{
    static const char *const names[] = {"gelu_tile", "softmax_row", "softmax_three", "attention", "conv2d_gather"};
    for (int n = 0; n < COUNT(names); n++) {
        int at = 0;
        while (strcmp(programs[at].kernel, names[n])) at++;
        run *r = calloc(1, sizeof(run));
        r->memory = arena_new();
        r->what = &programs[at];
        EXPECT(prepare(r));
        int64_t best_ns = INT64_MAX;
        qn_error error;
        for (int i = 0; i < 20; i++) {
            int64_t time_ns = 0;
            tile_kernel *k = tile_clone(r->k, r->memory);
            tell_facts(r, k);
            EXPECT(passes_run(k, NULL, add_time, &time_ns, &error) == QN_OK);
            best_ns = MINIMUM(best_ns, time_ns);
        }
        printf("note: the passes take %.3f ms for %s\n", (double)best_ns * 1e-6, names[n]);
        EXPECT(best_ns < 10000000); /* ten times what it should be: the machine may be busy or sanitized */
        arena_free(r->memory);
        free(r);
    }
}

TEST_MAIN(CASE(programs_keep_their_results), CASE(programs_of_other_sizes_keep_their_results),
          CASE(the_pipeline_is_done_after_one_run), CASE(the_pipeline_is_fast))
