/*
 * Kernels through the C emitter: lowered, emitted, compiled by the system's compiler, run on views of every kind, and
 * compared with the interpreter. For the tests test_emit*.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_EMITTED_H
#define QUERN_TESTS_EMITTED_H

#include "test.h"

#include "emit/emit.h"
#include "lang/ast.h"
#include "passes/passes.h"

#include <dlfcn.h>
#include <stdlib.h>

enum { VIEW_FACTS, VIEW_PLAIN, VIEW_GAPS, VIEW_BACKWARDS, VIEW_TURNED, VIEW_COUNT };

static uint64_t random_state;

static inline double random_unit(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 40) / 16777216.0;
}

/* "T=f32 n=37 BLOCK=8 eps=0.5 @id=7": settings by name; @array: integers in [0, 7). */
typedef struct setting {
    char name[32], words[32];
} setting;

static inline int read_settings(const char *words, setting *list)
{
    int count = 0, used;
    while (sscanf(words, " %31[^=]=%31s%n", list[count].name, list[count].words, &used) == 2) {
        words += used;
        count++;
    }
    return count;
}

static inline const char *find_setting(const setting *list, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i].name, name)) return list[i].words;
    return NULL;
}

static inline tile_kernel *lower(arena *memory, const char *path, const char *name, const setting *list, int count)
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

static inline bool is_array(const tile_param *p)
{
    return p->kind != PARAM_SCALAR && p->kind != PARAM_EXTENT;
}

/* ---- compiled code ---- */

typedef struct compiled {
    void *library;
    char path[64];
} compiled;

static inline bool compile(const char *words, compiled *out)
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

static inline void run_compiled(const tile_kernel *k, const compiled *c, const array_view *arrays,
                                const launch_plan *plan, cpu_report *report)
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

static inline int64_t element_count(const array_view *a)
{
    int64_t count = 1;
    for (int i = 0; i < a->rank; i++) count *= a->extents[i];
    return count;
}

/* Element number n of the view, counted row-major. */
static inline void *element_at(const array_view *a, int64_t n)
{
    int64_t offset = 0;
    for (int i = a->rank - 1; i >= 0; i--) {
        offset += n % a->extents[i] * a->strides[i];
        n /= a->extents[i];
    }
    return (char *)a->data + offset * dtypes[a->elem].size_bytes;
}

static inline held make_array(array_view *a, int view)
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

static inline void fill_random(const array_view *a, const char *range)
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

static inline double tolerance_of(dtype t)
{
    return t == DT_F64 || t == DT_F32 ? 5e-5 : t == DT_F16 ? 5e-3 : t == DT_BF16 ? 3e-2 : 0;
}

static inline bool compare(const char *what, const tile_param *p, const array_view *expected, const array_view *actual)
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

/* Do rows begin at multiples of 64 bytes? Where the extent of the last axis is a setting. */
static inline bool rows_are_aligned(const tile_kernel *k, const tile_param *p, const setting *list, int count)
{
    int last = p->rank ? p->extent_param[p->rank - 1] : -1;
    const char *extent = last >= 0 ? find_setting(list, count, k->params[last].name) : NULL;
    return p->rank < 2 || (extent && atoll(extent) * dtypes[p->elem].size_bytes % 64 == 0);
}

static inline int class_of(int64_t extent)
{
    return extent <= 64 ? 0 : extent <= 1024 ? 1 : extent <= 4096 ? 2 : 3;
}

/* Promises that the arrays of VIEW_FACTS keep. */
static inline void set_facts(tile_kernel *k, int view, const setting *list, int count)
{
    for (int p = 0; p < k->param_count; p++) {
        tile_param *param = &k->params[p];
        param->facts = (tile_facts){.size_class = -1};
        if (view != VIEW_FACTS) continue;
        const char *given = find_setting(list, count, param->name);
        if (is_array(param)) {
            param->facts.last_unit = param->facts.contiguous = param->facts.small = true;
            param->facts.aligned = rows_are_aligned(k, param, list, count);
        }
        if (param->kind == PARAM_OUT) param->facts.streams = true;
        if (given && param->kind == PARAM_EXTENT) {
            param->facts.by16 = atoll(given) % 16 == 0;
            param->facts.size_class = class_of(atoll(given));
        }
    }
}

static inline void run_view(const char *what, const tile_kernel *k, const compiled *code, const launch_plan *plan,
                            const setting *list, int count, int view);

/* Lowers, emits and compiles once, and runs on some views: from..to of the enum. */
static inline void run_case(const char *path, const char *name, const char *words, int from, int to)
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
    launch_plan plan = launch_plan_new(memory, k->param_count);
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

static inline void run_view(const char *what, const tile_kernel *k, const compiled *code, const launch_plan *plan,
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

#endif
