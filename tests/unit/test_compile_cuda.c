/*
 * Everything that is generated compiles: every kernel of kernels/ and tests/programs as CUDA text, for every architecture
 * that Quern supports and this NVRTC knows, with the facts of a usual launch and with none. A usual run compiles each
 * for one architecture, in turn, to machine code that is not optimised, a quarter of the time; QUERN_TEST_FULL=1
 * everything for all, as users have it. And what came out is what was meant: vector widths of loads and stores, no
 * spills, no local memory. Without NVRTC this is skipped, loudly.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/cuda/cubin.h"
#include "device/cuda/nvrtc.h"
#include "run/run.h"
#include "share.h"
#include "test.h"

#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static const int archs[] = {75, 80, 86, 89, 90, 100, 120};
static const char *const arch_names[] = {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"};

static qn_error error;
static qn_context *context;
static nvrtc *compiler; /* NULL: not installed */
static const char *hurry; /* an option of NVRTC, or NULL: as users have it */

TEST(opening)
{
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true, .allow_raw = true, .threads = 1}, &context,
                           &error) == QN_OK);
    compiler = nvrtc_new();
    if (nvrtc_ready(compiler, &error) == QN_OK) {
        for (int i = 0; i < COUNT(archs); i++)
            if (!nvrtc_knows(compiler, archs[i]))
                printf("note: skipped compiling for %s: NVRTC %d.%d does not know it\n", arch_names[i],
                       nvrtc_version(compiler) / 100, nvrtc_version(compiler) % 100);
        if (!environment_get("QUERN_TEST_FULL") && nvrtc_version(compiler) >= 1300) hurry = "--Ofast-compile=max";
        return;
    }
    printf("note: skipped compiling all generated CUDA: %s\n", error.message);
    nvrtc_free(compiler);
    compiler = NULL;
}

static void collect(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

/* ---- everything ---- */

typedef struct unit {
    char *label;
    text source;
    int arch;
    bool good;
    qn_error error;
} unit;

static unit *units;
static int unit_count, unit_capacity;
static _Atomic int next_unit;

static void add_unit(const char *label, const char *source, size_t length, int arch)
{
    if (unit_count == unit_capacity) {
        unit_capacity = unit_capacity ? 2 * unit_capacity : 256;
        units = realloc(units, sizeof(*units) * (size_t)unit_capacity);
        CHECK(units);
    }
    unit *u = &units[unit_count++];
    *u = (unit){.label = strdup(label), .arch = arch};
    text_add_bytes(&u->source, source, length);
}

/* The kernels of a tensor function stand one below the other, each under its number. */
static void add_units(const char *label, const text *source, int arch)
{
    for (const char *at = text_get(source); *at;) {
        const char *next = strstr(at + 1, "\n// kernel ");
        size_t length = next ? (size_t)(next + 1 - at) : strlen(at);
        add_unit(label, at, length, arch);
        at += length;
    }
}

static void *compile_units(void *unused)
{
    (void)unused;
    for (int i; (i = atomic_fetch_add(&next_unit, 1)) < unit_count;) {
        unit *u = &units[i];
        nvrtc_output o = {0};
        nvrtc_options options = {.arch = u->arch, .flags = &hurry, .flag_count = hurry != NULL};
        u->good = nvrtc_compile(compiler, text_get(&u->source), "kernel.cu", &options, &o, &u->error) == QN_OK;
        nvrtc_output_free(&o);
    }
    return NULL;
}

/* Settings that give every extent a size, and constants that have no value one. */
static int sizes_of(const kernel_entry *e, const char *size, char settings[][80], const char **list)
{
    int count = 0;
    for (int i = 0; i < e->name_count && count < 32; i++) {
        const parameter *p = entry_param(e, e->names[i], NULL);
        bool generic = false;
        for (int k = 0; k < e->param_count; k++)
            generic |= e->params[k].generic && !strcmp(e->params[k].type, e->names[i]);
        bool open = p && p->constant && !p->function && e->item && !e->item->list.items[p - e->params]->left;
        static const char *const knobs[] = {"warps", "stages", "group", "cluster"};
        for (int k = 0; k < COUNT(knobs); k++) generic |= !strcmp(knobs[k], e->names[i]);
        if (generic || (p && !open)) continue;
        snprintf(settings[count], 80, "%.60s=%s", e->names[i], open ? "16" : size);
        list[count] = settings[count];
        count++;
    }
    return count;
}

/* The CUDA text of a kernel; tries a few sizes, since some kernels take only certain ones. */
static bool text_of(const char *path, const kernel_entry *e, const char *arch, bool sized, text *out)
{
    static const char *const sizes[] = {"1024", "64", "16", "4", "1"};
    char settings[32][80];
    const char *list[32];
    for (int i = 0; i < COUNT(sizes); i++) {
        int count = sizes_of(e, sizes[i], settings, list);
        if (!sized) { /* only what has no value */
            int kept = 0;
            for (int k = 0; k < count; k++)
                if (strstr(list[k], "=16") && entry_param(e, strndupa(list[k], strcspn(list[k], "=")), NULL))
                    list[kept++] = list[k];
            count = kept;
        }
        qn_show_options options = {.stage = "cuda", .arch = arch, .settings = {list, count}};
        text_clear(out);
        if (qn_show(context, path, e->name, &options, collect, out, &error) == QN_OK) return true;
    }
    return false;
}

static void add_kernel(const char *path, const kernel_entry *e, int *kernels)
{
    text source = {0};
    bool full = environment_get("QUERN_TEST_FULL") != NULL;
    for (int sized = 1; sized >= 0; sized--)
        for (int a = 0; a < COUNT(archs); a++) {
            /* Without facts: the oldest and the one that has everything. */
            bool wanted = full ? sized || archs[a] == 75 || archs[a] == 90 : sized && a == *kernels % COUNT(archs);
            if (!wanted || !nvrtc_knows(compiler, archs[a])) continue;
            char label[300];
            snprintf(label, sizeof(label), "%s %s for %s%s", strrchr(path, '/') + 1, e->name, arch_names[a],
                     sized ? "" : ", nothing assumed");
            bool good = text_of(path, e, arch_names[a], sized, &source);
            EXPECT(good);
            if (!good) printf("%s: %s\n", label, error.message);
            if (good) add_units(label, &source, archs[a]);
        }
    ++*kernels;
    text_free(&source);
}

TEST(everything_compiles_everywhere)
{
    static const char *const folders[] = {QUERN_ROOT "/kernels/*.qn", QUERN_ROOT "/tests/programs/*.qn",
                                          QUERN_ROOT "/bench/*.qn"};
    int kernels = 0, bad = 0, met = 0;
    if (!compiler) return;
    int share = share_of("kernels compiled by NVRTC");
    for (int f = 0; f < COUNT(folders); f++) {
        glob_t found;
        EXPECT(glob(folders[f], 0, NULL, &found) == 0);
        for (size_t i = 0; i < found.gl_pathc; i++) {
            qn_module *module;
            EXPECT(qn_module_load_file(context, found.gl_pathv[i], &module, &error) == QN_OK);
            for (int k = 0; k < module->kernel_count; k++) {
                const kernel_entry *e = &module->kernels[k];
                if (e->item->kind == AST_RAW && strcmp(e->item->word, "cuda") != 0) continue;
                if (met++ % share == 0) add_kernel(found.gl_pathv[i], e, &kernels);
            }
            qn_module_free(module);
        }
        globfree(&found);
    }
    pthread_t threads[64];
    int count = MINIMUM(cpu_count(), COUNT(threads));
    for (int i = 0; i < count; i++) EXPECT(pthread_create(&threads[i], NULL, compile_units, NULL) == 0);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < unit_count; i++) {
        unit *u = &units[i];
        if (!u->good && bad++ < 5) printf("%s: %s\n", u->label, u->error.message);
        free(u->label);
        text_free(&u->source);
    }
    EXPECT(bad == 0);
    EXPECT(kernels > 60 / share); /* of the library and of the tests */
    printf("note: compile: %d kernels, %d texts, %d refused\n", kernels, unit_count, bad);
    free(units);
}

/* ---- what came out ---- */

typedef struct expectation {
    const char *file, *kernel;
    const char *settings[6];
    const char *has[4];   /* parts of PTX that must be there */
    const char *lacks[4]; /* and must not */
} expectation;

static const expectation expectations[] = {
    {"gelu.qn", "gelu_tile", {"n=1048576"}, {".v4.u32", "st.global"}, {"ld.local", "st.local", "bar.sync"}},
    {"square.qn", "square_multiply", {"n=1048576"}, {".v4.u32", "st.global"}, {"ld.local", "bar.sync"}},
    {"bias_act.qn", "bias_act", {"M=4096", "N=1024"}, {".v4.u32"}, {"ld.local", "bar.sync"}},
    {"bias_act.qn", "bias_act", {"M=4096", "N=1024", "T=bf16"}, {".v4.u32"}, {"ld.local", "bar.sync"}},
    {"softmax.qn", "softmax_row", {"rows=4096", "cols=1024"}, {".v4.u32", "shfl.sync"}, {"ld.local"}},
    {"softmax.qn", "softmax_row", {"rows=4096", "cols=16384"}, {".v4.u32", "shfl.sync", "bar.sync"}, {"ld.local"}},
    {"layernorm.qn", "layer_norm", {"rows=4096", "cols=4096"}, {".v4.u32", "shfl.sync"}, {"ld.local"}},
    {"layernorm.qn", "layer_norm", {"rows=4096", "cols=4096", "T=bf16"}, {".v4.u32", "shfl.sync"}, {"ld.local"}},
    {"transpose.qn", "transpose_tile", {"M=8192", "N=8192"}, {"st.shared", "ld.shared"}, {"ld.local"}},
    {"sum.qn", "sum_two_step", {"n=67108864"}, {".v4.u32"}, {"ld.local"}},
};

static int setting_count(const char *const *settings)
{
    int count = 0;
    while (count < 6 && settings[count]) count++;
    return count;
}

TEST(the_ptx_is_what_was_meant)
{
    if (!compiler || !nvrtc_knows(compiler, 90)) return;
    for (int i = 0; i < COUNT(expectations); i++) {
        const expectation *x = &expectations[i];
        char path[300];
        text out = {0};
        snprintf(path, sizeof(path), QUERN_ROOT "/kernels/%s", x->file);
        qn_show_options options = {
            .stage = "ptx", .arch = "sm_90a", .settings = {x->settings, setting_count(x->settings)}};
        bool good = qn_show(context, path, x->kernel, &options, collect, &out, &error) == QN_OK;
        EXPECT(good);
        if (!good) printf("%s %s: %s\n", x->file, x->kernel, error.message);
        for (int k = 0; k < COUNT(x->has) && x->has[k] && good; k++)
            if (!strstr(text_get(&out), x->has[k])) {
                printf("%s %s %s: no %s\n", x->file, x->kernel, x->settings[0], x->has[k]);
                test_fail(__FILE__, __LINE__, x->has[k]);
            }
        for (int k = 0; k < COUNT(x->lacks) && x->lacks[k] && good; k++)
            if (strstr(text_get(&out), x->lacks[k])) {
                printf("%s %s %s: has %s\n", x->file, x->kernel, x->settings[0], x->lacks[k]);
                test_fail(__FILE__, __LINE__, x->lacks[k]);
            }
        /* Nothing touches global memory before the launch before has ended. */
        static const char *const touches[] = {"ld.global", "st.global", "cp.async", "atom.", "red.", "ld.volatile"};
        const char *wait = strstr(text_get(&out), "griddepcontrol.wait");
        EXPECT(!good || wait);
        for (int k = 0; k < COUNT(touches) && good; k++) {
            const char *first = strstr(text_get(&out), touches[k]);
            EXPECT(!first || wait < first);
        }
        /* The head tells what it costs. */
        if (good && (!strstr(text_get(&out), ", no spills, ") || !strstr(text_get(&out), "occupancy "))) {
            printf("%s %s: %.200s\n", x->file, x->kernel, text_get(&out));
            test_fail(__FILE__, __LINE__, "no spills");
        }
        text_free(&out);
    }
}

TEST(closing)
{
    nvrtc_free(compiler);
    qn_context_close(context);
}

TEST_MAIN(CASE(opening), CASE(everything_compiles_everywhere), CASE(the_ptx_is_what_was_meant), CASE(closing))
