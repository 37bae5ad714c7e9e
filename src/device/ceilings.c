/*
 * Measures the machine's ceilings. In: the library made from ceilings_source, a size. Out: copy and read bandwidth, FMA
 * peak, products of narrow types. Each is the best of several methods, thread counts and repetitions, since a ceiling is what the machine can do,
 * not what it happens to do while somebody else uses it.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/ceilings.h"
#include "device/cpu/compiler.h"

#include "device/failure.h"
#include "emit/prelude.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The FMA peak is what holds for some milliseconds, as long as a product takes: shorter bursts run at a higher clock. */
enum { PIECE = 1 << 17, FMA_STEPS = 4000, FMA_PER_STEP = 12, FMA_PIECES = 512 };

static void source_of_loops(text *out)
{
    text_add(out,
             "/* The measuring loops of Quern: copies, reads, multiply-adds. */\n"
             "#if defined(__AVX512F__)\n"
             "enum { BYTES = 64 };\n"
             "#elif defined(__AVX__)\n"
             "enum { BYTES = 32 };\n"
             "#else\n"
             "enum { BYTES = 16 };\n"
             "#endif\n"
             "typedef float vector __attribute__((vector_size(BYTES), may_alias));\n"
             "int vector_bytes(void) { return BYTES; }\n"
             "void copy_plain(char *to, const char *from, long count)\n"
             "{\n"
             "    for (long i = 0; i < count; i += 4 * BYTES)\n"
             "        for (int j = 0; j < 4; j++) *(vector *)(to + i + j * BYTES) = *(const vector *)(from + i + j * "
             "BYTES);\n"
             "}\n"
             "void copy_around(char *to, const char *from, long count)\n"
             "{\n"
             "#ifdef __SSE2__\n"
             "    for (long i = 0; i < count; i += 4 * BYTES)\n"
             "        for (int j = 0; j < 4; j++) {\n"
             "            vector v = *(const vector *)(from + i + j * BYTES);\n"
             "#ifdef __AVX__\n"
             "            __asm__ volatile(\"vmovntps %1, %0\" : \"=m\"(*(vector *)(to + i + j * BYTES)) : \"x\"(v));\n"
             "#else\n"
             "            __asm__ volatile(\"movntps %1, %0\" : \"=m\"(*(vector *)(to + i + j * BYTES)) : \"x\"(v));\n"
             "#endif\n"
             "        }\n"
             "    __asm__ volatile(\"sfence\" ::: \"memory\");\n"
             "#else\n"
             "    copy_plain(to, from, count);\n"
             "#endif\n"
             "}\n"
             "void copy_string(char *to, const char *from, long count)\n"
             "{\n"
             "#if defined(__x86_64__)\n"
             "    __asm__ volatile(\"rep movsb\" : \"+D\"(to), \"+S\"(from), \"+c\"(count) : : \"memory\");\n"
             "#else\n"
             "    copy_plain(to, from, count);\n"
             "#endif\n"
             "}\n");
    text_add(out, "void read_all(char *to, const char *from, long count)\n"
                  "{\n"
                  "    vector s[4] = {0};\n"
                  "    for (long i = 0; i < count; i += 4 * BYTES)\n"
                  "        for (int j = 0; j < 4; j++) s[j] += *(const vector *)(from + i + j * BYTES);\n"
                  "    *(vector *)to = (s[0] + s[1]) + (s[2] + s[3]);\n"
                  "}\n"
                  "#define EACH(F) F(a) F(b) F(c) F(d) F(e) F(f) F(g) F(h) F(i) F(j) F(k) F(l)\n"
                  "#define MAKE(s) vector s = {0};\n"
                  "#if defined(__x86_64__)\n"
                  "#define STEP(s) s += x * y; __asm__ volatile(\"\" : \"+x\"(s));\n"
                  "#else\n"
                  "#define STEP(s) s += x * y;\n"
                  "#endif\n"
                  "#define SUM(s) sum += s;\n"
                  "float multiply_add(long count, vector *start)\n"
                  "{\n"
                  "    vector x = start[0], y = start[1], sum = {0};\n"
                  "    EACH(MAKE)\n"
                  "    for (long n = 0; n < count; n++) { EACH(STEP) }\n"
                  "    EACH(SUM)\n"
                  "    return sum[0];\n"
                  "}\n");
    text_add(out,
             "typedef double wide __attribute__((vector_size(BYTES)));\n"
             "#define MAKE_WIDE(s) wide s = {0};\n"
             "float multiply_add_f64(long count, vector *start)\n"
             "{\n"
             "    wide x = (wide)start[0], y = (wide)start[1], sum = {0};\n"
             "    EACH(MAKE_WIDE)\n"
             "    for (long n = 0; n < count; n++) { EACH(STEP) }\n"
             "    EACH(SUM)\n"
             "    return (float)sum[0];\n"
             "}\n"
             "typedef int bits __attribute__((vector_size(BYTES)));\n"
             "/* 2^x: the whole part goes into the exponent, a polynomial takes the rest. */\n"
             "static inline vector power(vector x)\n"
             "{\n"
             "    vector whole = x + 12582912.0f;\n"
             "    vector f = x - (whole - 12582912.0f);\n"
             "    vector p = ((((1.3333558e-3f * f + 9.6181291e-3f) * f + 5.5504109e-2f) * f + 2.4022651e-1f) * f\n"
             "                + 6.9314718e-1f) * f + 1.0f;\n"
             "    return (vector)((bits)p + ((bits)whole << 23));\n"
             "}\n"
             "float exponentials(long count, vector *start)\n"
             "{\n"
             "    vector a = start[0], b = -start[0], c = start[1] * 0.5f, d = start[1] * -0.25f;\n"
             "    for (long n = 0; n < count; n++) {\n"
             "        a = power(a) * -0.5f; b = power(b) * -0.5f; c = power(c) * -0.5f; d = power(d) * -0.5f;\n"
             "    }\n"
             "    return (a + b + c + d)[0];\n"
             "}\n"
             "/* A long chain for each vector, N of them in step; what comes is asked for, results go around the "
             "caches. */\n"
             "#if defined(__AVX__)\n"
             "#define OUT(p, v) __asm__ volatile(\"vmovntps %1, %0\" : \"=m\"(*(vector *)(p)) : \"x\"(v))\n"
             "#define OUT_END __asm__ volatile(\"sfence\" ::: \"memory\")\n"
             "#else\n"
             "#define OUT(p, v) (*(vector *)(p) = (v))\n"
             "#define OUT_END\n"
             "#endif\n"
             "#define CHAIN(N) \\\n"
             "    void chain_##N(char *to, const char *from, long count, long near, long far) \\\n"
             "    { \\\n"
             "        for (long i = 0; i < count; i += N * BYTES) { \\\n"
             "            vector v[N]; \\\n"
             "            for (int j = 0; j < N; j++) { \\\n"
             "                __builtin_prefetch(from + i + j * BYTES + far, 0, 2); \\\n"
             "                __builtin_prefetch(from + i + j * BYTES + near, 0, 3); \\\n"
             "                v[j] = *(const vector *)(from + i + j * BYTES); \\\n"
             "            } \\\n"
             "            for (int j = 0; j < N; j++) v[j] = v[j] / (1.0f + power(v[j] * -2.3f)); \\\n"
             "            for (int j = 0; j < N; j++) OUT(to + i + j * BYTES, v[j]); \\\n"
             "        } \\\n"
             "        OUT_END; \\\n"
             "    }\n"
             "CHAIN(1) CHAIN(2) CHAIN(4)\n"
             "void write_plain(char *to, const char *from, long count)\n"
             "{\n"
             "    vector v = {1};\n"
             "    for (long i = 0; i < count; i += 4 * BYTES)\n"
             "        for (int j = 0; j < 4; j++) *(vector *)(to + i + j * BYTES) = v;\n"
             "}\n"
             "void write_around(char *to, const char *from, long count)\n"
             "{\n"
             "#if defined(__AVX__)\n"
             "    vector v = {1};\n"
             "    for (long i = 0; i < count; i += 4 * BYTES)\n"
             "        for (int j = 0; j < 4; j++)\n"
             "            __asm__ volatile(\"vmovntps %1, %0\" : \"=m\"(*(vector *)(to + i + j * BYTES)) : \"x\"(v));\n"
             "    __asm__ volatile(\"sfence\" ::: \"memory\");\n"
             "#else\n"
             "    write_plain(to, from, count);\n"
             "#endif\n"
             "}\n");
}

void ceilings_source(text *out)
{
    /* The prelude's own step of a product of narrow types: one element a lane where the processor has no instruction for two. */
    const char *const names[] = {"dot_word_bf16x2", "dot_word_i16x2"}, *unknown;
    CHECK(prelude_emit(names, COUNT(names), out, &unknown));
    source_of_loops(out);
    static const struct {
        const char *name, *word, *sum;
    } pairs[] = {{"bf16", "bf16x2", "f32"}, {"i8", "i16x2", "i32"}};
    text_add(out, "#if defined(__x86_64__)\n"
                  "#define HERE(s) __asm__ volatile(\"\" : \"+x\"(s))\n"
                  "#else\n"
                  "#define HERE(s)\n"
                  "#endif\n");
    for (int i = 0; i < COUNT(pairs); i++) {
        const char *name = pairs[i].name, *word = pairs[i].word, *sum = pairs[i].sum;
        text_print(out,
                   "#define MAKE_%s(s) dot_%sv s = {0};\n"
                   "#define STEP_%s(s) s = dot_add_%s(s, x, y); HERE(s);\n"
                   "int deep_%s(void) { return DOT_%s_DEEP; }\n"
                   "float multiply_add_%s(long count, vector *start)\n"
                   "{\n"
                   "    dot_words_%s x = *(dot_words_%s *)start, y = x;\n"
                   "    dot_%sv sum = {0};\n"
                   "    EACH(MAKE_%s)\n",
                   name, sum, name, word, name, word, name, word, word, sum, name);
        text_print(out,
                   "    for (long n = 0; n < count; n++) { EACH(STEP_%s) }\n"
                   "    EACH(SUM)\n"
                   "    return (float)sum[0];\n"
                   "}\n",
                   name);
    }
}

typedef void copy_loop(char *to, const char *from, long count);
typedef float fma_loop(long count, void *start);

typedef struct job {
    copy_loop *copy;
    fma_loop *fma;
    char *to;
    const char *from;
    _Alignas(64) float start[32];
} job;

static void copy_pieces(void *context, int64_t first, int64_t last, int worker)
{
    job *j = context;
    j->copy(j->to + first * PIECE, j->from + first * PIECE, (long)((last - first) * PIECE));
}

static void fma_pieces(void *context, int64_t first, int64_t last, int worker)
{
    job *j = context;
    for (int64_t i = first; i < last; i++) (void)j->fma(FMA_STEPS, j->start);
}

/* The least time of a job over repetitions: at least three, and more while they are short. */
static double least_within_ns(double budget_ns, pool *p, int64_t count, pool_work *work, void *context)
{
    double least = 1e18, spent = 0;
    for (int i = 0; i < 3 || (i < 200 && spent < budget_ns); i++) {
        int64_t start_ns = clock_now_ns();
        pool_run(p, count, 1, work, context);
        double ns = (double)(clock_now_ns() - start_ns);
        spent += ns;
        if (ns < least) least = ns;
    }
    return least;
}

static double least_ns(pool *p, int64_t count, pool_work *work, void *context)
{
    return least_within_ns(8e7, p, count, work, context);
}

typedef void any_function(void);

/* POSIX lets an object pointer hold a function's address, and C has no cast for it. */
static any_function *find(void *library, const char *name)
{
    void *address = dlsym(library, name);
    any_function *function = NULL;
    memcpy(&function, &address, sizeof(function));
    return function;
}

static void measure(job *j, copy_loop *const *copies, copy_loop *read_all, int lanes, pool *const *pools,
                    int64_t pieces, ceilings *out)
{
    double bytes = (double)pieces * PIECE;
    *out = (ceilings){0};
    for (int t = 0; t < 2; t++) {
        if (t && pool_threads(pools[1]) == 1) break;
        for (int i = 0; i < 3; i++) {
            j->copy = copies[i];
            out->copy_gb_per_s = MAXIMUM(out->copy_gb_per_s, 2 * bytes / least_ns(pools[t], pieces, copy_pieces, j));
        }
        j->copy = read_all;
        out->read_gb_per_s = MAXIMUM(out->read_gb_per_s, bytes / least_ns(pools[t], pieces, copy_pieces, j));
    }
    for (int t = 0; t < 2; t++) {
        int64_t count = FMA_PIECES * pool_threads(pools[t]);
        double flops = 2.0 * lanes * FMA_PER_STEP * FMA_STEPS * (double)count;
        double rate = flops / least_ns(pools[t], count, fma_pieces, j);
        *(t ? &out->fma_all_gflop_per_s : &out->fma_one_gflop_per_s) = rate;
    }
}

/* In large pages, like the buffers of the library. */
static char *take(size_t size_bytes)
{
    enum { LARGE = 2 << 20 };
    size_t size = (size_bytes + LARGE - 1) / LARGE * LARGE;
    char *memory = aligned_alloc(LARGE, size);
    if (memory) (void)madvise(memory, size, MADV_HUGEPAGE);
    return memory;
}

static qn_status no_arrays(size_t size_bytes, qn_error *error)
{
    return error_set(error, QN_NO_MEMORY, "no memory for two arrays of %zu bytes", size_bytes);
}

static qn_status other_library(const char *binary_path, qn_error *error)
{
    return error_set(error, QN_FAILED, "%s is not the library of the measuring loops", binary_path);
}

qn_status ceilings_measure(const char *binary_path, int threads, size_t copy_bytes, ceilings *out, qn_error *error)
{
    void *library = dlopen(binary_path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return failure_load(binary_path, error);
    job j = {0};
    static const char *const copy_names[] = {"copy_plain", "copy_around", "copy_string"};
    copy_loop *copies[COUNT(copy_names)] = {0};
    bool good = true;
    for (int i = 0; i < COUNT(copy_names); i++) {
        // cppcheck-suppress legacyUninitvar ; an array of pointers to functions is not one of functions
        copies[i] = (copy_loop *)find(library, copy_names[i]);
        good &= copies[i] != NULL;
    }
    copy_loop *read_all = (copy_loop *)find(library, "read_all");
    int (*vector_bytes)(void) = (int (*)(void))find(library, "vector_bytes");
    j.fma = (fma_loop *)find(library, "multiply_add");
    good &= read_all && j.fma && vector_bytes;
    int64_t pieces = (int64_t)MAXIMUM(copy_bytes / PIECE, (size_t)1);
    size_t size = (size_t)pieces * PIECE;
    char *from = take(size), *to = take(size);
    qn_status status = QN_OK;
    if (!good)
        status = other_library(binary_path, error);
    else if (!from || !to)
        status = no_arrays(size, error);
    if (status == QN_OK && from && to) {
        memset(from, 0, size);
        memset(to, 0, size);
        for (int i = 0; i < 32; i++) j.start[i] = 1;
        j.from = from;
        j.to = to;
        pool *pools[2] = {pool_new(1), pool_new(threads)};
        measure(&j, copies, read_all, vector_bytes() / 4, pools, pieces, out);
        pool_free(pools[0]);
        pool_free(pools[1]);
    }
    heap_free(from);
    heap_free(to);
    dlclose(library);
    return status;
}

/* ---- the roofline ---- */

/* Each worker reads a part of its own again and again: what a cache gives. */
enum { CACHE_READS = 16 };

typedef struct cache_job {
    copy_loop *read;
    char *memory;
    size_t part_bytes; /* of each worker */
    int turns;
} cache_job;

static void cache_pieces(void *context, int64_t first, int64_t last, int worker)
{
    cache_job *j = context;
    _Alignas(64) char sink[64];
    for (int64_t i = first; i < last; i++)
        for (int k = 0; k < j->turns; k++)
            j->read(sink, j->memory + (size_t)worker * j->part_bytes, (long)j->part_bytes);
}

static void no_work(void *context, int64_t first, int64_t last, int worker)
{
}

static double cache_rate(pool *p, copy_loop *read, char *memory, size_t part_bytes)
{
    enum { ALIGNED = 4096 };
    cache_job j = {
        .read = read, .memory = memory, .part_bytes = MAXIMUM(part_bytes / ALIGNED * ALIGNED, (size_t)ALIGNED)};
    j.turns = (int)MAXIMUM(((size_t)8 << 20) / j.part_bytes, (size_t)1);
    int64_t count = (int64_t)CACHE_READS * pool_threads(p);
    return (double)j.part_bytes * j.turns * (double)count / least_ns(p, count, cache_pieces, &j);
}

/* Products that an instruction takes two at a time; 0: there is none. */
static double pairs_rate(void *library, const char *type, pool *p, int lanes, job *j)
{
    char name[40];
    snprintf(name, sizeof(name), "deep_%s", type);
    int (*deep)(void) = (int (*)(void))find(library, name);
    snprintf(name, sizeof(name), "multiply_add_%s", type);
    j->fma = (fma_loop *)find(library, name);
    if (!j->fma || !deep || deep() < 2) return 0;
    int64_t count = FMA_PIECES * pool_threads(p);
    return 2.0 * deep() * lanes * FMA_PER_STEP * FMA_STEPS * (double)count / least_ns(p, count, fma_pieces, j);
}

static void measure_more(void *library, pool *p, char *from, char *to, int64_t pieces, int lanes, qn_roofline *out)
{
    job j = {.from = from, .to = to};
    for (int i = 0; i < 32; i++) j.start[i] = 0.5f;
    static const char *const writes[] = {"write_plain", "write_around"};
    for (int i = 0; i < COUNT(writes); i++) {
        j.copy = (copy_loop *)find(library, writes[i]);
        out->write_gb_per_s =
            MAXIMUM(out->write_gb_per_s, (double)pieces * PIECE / least_ns(p, pieces, copy_pieces, &j));
    }
    copy_loop *read_all = (copy_loop *)find(library, "read_all");
    out->cache_gb_per_s = cache_rate(p, read_all, from, processor_cache_bytes(2) / 2);
    out->inner_gb_per_s = cache_rate(p, read_all, from, processor_cache_bytes(1) / 2);
    int64_t count = FMA_PIECES * pool_threads(p);
    j.fma = (fma_loop *)find(library, "multiply_add_f64");
    out->fma_f64_gflop_per_s = lanes * FMA_PER_STEP * FMA_STEPS * (double)count /
                               least_ns(p, count, fma_pieces, &j); /* half the lanes, twice */
    j.fma = (fma_loop *)find(library, "exponentials");
    out->exp_g_per_s = 4.0 * lanes * FMA_STEPS * (double)count / least_ns(p, count, fma_pieces, &j);
    out->dot_bf16_gflop_per_s = pairs_rate(library, "bf16", p, lanes, &j);
    out->dot_i8_gflop_per_s = pairs_rate(library, "i8", p, lanes, &j);
    out->launch_ns = least_ns(p, pool_threads(p), no_work, NULL);
    enum { JOBS = 256 };
    pool_job *jobs = heap_aligned(64, sizeof(pool_job) * JOBS);
    double least = 1e18;
    for (int round = 0; round < 20; round++) {
        memset(jobs, 0, sizeof(pool_job) * JOBS);
        for (int i = 0; i < JOBS; i++) {
            jobs[i].work = no_work;
            jobs[i].count = pool_threads(p);
            jobs[i].grain = 1;
        }
        int64_t start_ns = clock_now_ns();
        pool_run_jobs(p, jobs, JOBS);
        least = MINIMUM(least, (double)(clock_now_ns() - start_ns) / JOBS);
    }
    out->graph_launch_ns = least;
    heap_free(jobs);
}

qn_status ceilings_roofline(const char *binary_path, int threads, size_t bytes, qn_roofline *out, qn_error *error)
{
    ceilings basic = {0};
    QN_TRY(ceilings_measure(binary_path, threads, bytes, &basic, error));
    out->copy_gb_per_s = basic.copy_gb_per_s;
    out->read_gb_per_s = basic.read_gb_per_s;
    out->fma_f32_gflop_per_s = basic.fma_all_gflop_per_s;
    out->fma_one_gflop_per_s = basic.fma_one_gflop_per_s;
    void *library = dlopen(binary_path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return failure_load(binary_path, error);
    /* The caches' parts of all workers lie in the same memory. */
    size_t parts = (size_t)threads * processor_cache_bytes(2);
    int64_t pieces = (int64_t)(MAXIMUM(bytes, parts) / PIECE + 1);
    size_t size = (size_t)pieces * PIECE;
    char *from = take(size), *to = take(size);
    qn_status status = from && to ? QN_OK : no_arrays(size, error);
    if (status == QN_OK) {
        int (*vector_bytes)(void) = (int (*)(void))find(library, "vector_bytes");
        memset(from, 0, size);
        memset(to, 0, size);
        pool *p = pool_new(threads);
        measure_more(library, p, from, to, pieces, vector_bytes() / 4, out);
        pool_free(p);
    }
    heap_free(from);
    heap_free(to);
    dlclose(library);
    return status;
}

/* ---- the numbers of a processor ---- */

typedef void chain_loop(char *to, const char *from, long count, long near, long far);

typedef struct chain_job {
    chain_loop *chain;
    char *to;
    const char *from;
    const cpu_numbers *with;
} chain_job;

static void chain_pieces(void *context, int64_t first, int64_t last, int worker)
{
    const chain_job *j = context;
    j->chain(j->to + first * PIECE, j->from + first * PIECE, (long)((last - first) * PIECE), j->with->near_bytes,
             j->with->far_bytes);
}

/* Another choice has to be so much faster than the usual one: what is no faster is noise. */
#define FASTER 0.97
#define CHOICE_NS 2e7

static void choose_distances(chain_job *j, pool *p, int64_t pieces, cpu_numbers *best)
{
    static const int distances[][2] = {{256, 2048}, {1024, 4096}, {1024, 8192}, {2048, 16384}};
    j->with = best;
    double least = FASTER * least_within_ns(CHOICE_NS, p, pieces, chain_pieces, j);
    for (int i = 0; i < COUNT(distances); i++) {
        cpu_numbers tried = *best;
        tried.near_bytes = distances[i][0];
        tried.far_bytes = distances[i][1];
        j->with = &tried;
        double time = least_within_ns(CHOICE_NS, p, pieces, chain_pieces, j);
        if (time >= least) continue;
        least = time;
        *best = tried;
    }
}

static void choose_bodies(chain_job *j, pool *p, int64_t pieces, chain_loop *const *loops, cpu_numbers *best)
{
    double least = 1e18;
    j->with = best;
    for (int i = 2; i >= 0; i--) { /* 4, 2, 1 */
        j->chain = loops[i];
        double time = least_within_ns(CHOICE_NS, p, pieces, chain_pieces, j);
        if (time >= least) continue;
        least = FASTER * time;
        best->bodies = 1 << i;
    }
}

/* From which size on, and for every larger one, it is faster to write around the caches. */
static void choose_stream(pool *p, copy_loop *plain, copy_loop *around, char *to, const char *from, int64_t pieces,
                          cpu_numbers *best)
{
    job j = {.to = to, .from = from};
    for (int64_t count = pieces; count * PIECE >= 1 << 20; count /= 2) {
        j.copy = plain;
        double time = least_within_ns(CHOICE_NS, p, count, copy_pieces, &j);
        j.copy = around;
        if (least_within_ns(CHOICE_NS, p, count, copy_pieces, &j) > FASTER * time) return;
        best->stream_bytes = 2 * count * PIECE / 4 * 3; /* between this size and the one that did not win */
    }
}

qn_status ceilings_numbers(const char *binary_path, int threads, cpu_numbers *out, qn_error *error)
{
    enum { BYTES = 64 << 20 };
    void *library = dlopen(binary_path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return failure_load(binary_path, error);
    static const char *const names[] = {"chain_1", "chain_2", "chain_4"};
    chain_loop *loops[COUNT(names)] = {0};
    bool good = true;
    for (int i = 0; i < COUNT(names); i++) {
        // cppcheck-suppress legacyUninitvar ; an array of pointers to functions is not one of functions
        loops[i] = (chain_loop *)find(library, names[i]);
        good &= loops[i] != NULL;
    }
    copy_loop *plain = (copy_loop *)find(library, "copy_plain"), *around = (copy_loop *)find(library, "copy_around");
    char *from = take(BYTES), *to = take(BYTES);
    qn_status status = QN_OK;
    if (!good || !plain || !around)
        status = other_library(binary_path, error);
    else if (!from || !to)
        status = no_arrays(BYTES, error);
    if (status == QN_OK) {
        memset(from, 0, BYTES);
        memset(to, 0, BYTES);
        pool *p = pool_new(threads);
        chain_job j = {.chain = loops[2], .to = to, .from = from};
        *out = cpu_numbers_usual();
        choose_distances(&j, p, BYTES / PIECE, out);
        choose_bodies(&j, p, BYTES / PIECE, loops, out);
        choose_stream(p, plain, around, to, from, BYTES / PIECE, out);
        out->measured = true;
        pool_free(p);
    }
    heap_free(from);
    heap_free(to);
    dlclose(library);
    return status;
}
