/*
 * The bars of the CPU device as ratios of one run: kernels that move memory against the best copy of the same bytes,
 * matrix products against the FMA peak and OpenBLAS, exp in cycles, cold and cached starts.
 *
 * Usage: build/bench_cpu [kernels folder]. Each figure is the best of many runs, taken in turns with its ceiling, since
 * other work on the machine only ever makes things slower. The first line says whether two threads had two cores: if
 * the FMA peak of all threads is far below that of one times their number, the run says little.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "ratios.h"

#include <dlfcn.h>
#include <quern/workbench.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *folder = "kernels";
static qn_context *context;
static int below;

static qn_module *load(const char *name)
{
    char path[1024];
    qn_error error;
    qn_module *module;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (qn_module_load_file(context, path, &module, &error)) stop(&error);
    return module;
}

/* A call with its settings "a=1 b=2" and generated inputs; its outputs are allocated by the first run. */
static qn_call *make_call(qn_module *module, const char *kernel, const char *settings)
{
    qn_call *call;
    qn_error error;
    char words[256];
    if (qn_call_new(module, kernel, &call, &error)) stop(&error);
    snprintf(words, sizeof(words), "%s", settings);
    for (char *p = strtok(words, " "); p; p = strtok(NULL, " ")) {
        char *value = strchr(p, '=');
        *value++ = 0;
        if (qn_call_set_text(call, p, value, &error)) stop(&error);
    }
    if (qn_call_generate(call, 7, &error)) stop(&error);
    if (qn_call_run(call, "cpu", &error)) stop(&error);
    return call;
}

static double run_ns(qn_call *call)
{
    qn_error error;
    qn_timing timing;
    if (qn_call_run(call, "cpu", &error)) stop(&error);
    qn_call_timing(call, &timing);
    return (double)timing.kernel_ns;
}

static qn_ceilings ceilings(size_t copy_bytes)
{
    qn_ceilings c;
    qn_error error;
    if (qn_measure(context, "cpu", copy_bytes, &c, &error)) stop(&error);
    return c;
}

static void judge(const char *name, double ratio, double bar)
{
    printf("  %-58s %5.2f (bar %.2f)%s\n", name, ratio, bar, ratio < bar ? "  BELOW" : "");
    below += ratio < bar;
    fflush(stdout);
}

/* The best of several kernels of one operation, which reads and writes `bytes`. */
static void bandwidth(const char *title, const char *file, const char *const *kernels, const char *settings,
                      double bytes, double bar)
{
    qn_module *module = load(file);
    double best_ns[8], copy = 0;
    qn_call *calls[8];
    int count = 0;
    for (; kernels[count]; count++) {
        calls[count] = make_call(module, kernels[count], settings);
        best_ns[count] = 1e18;
    }
    for (int round = 0; round < 3; round++) {
        double measured = ceilings((size_t)(bytes / 2)).copy_gb_per_s;
        if (measured > copy) copy = measured;
        for (int i = 0; i < count; i++)
            for (int run = 0; run < 5; run++) {
                double ns = run_ns(calls[i]);
                if (ns < best_ns[i]) best_ns[i] = ns;
            }
    }
    int best = 0;
    for (int i = 0; i < count; i++) {
        printf("    %-28s %8.3f ms %7.2f GB/s\n", kernels[i], best_ns[i] * 1e-6, bytes / best_ns[i]);
        if (best_ns[i] < best_ns[best]) best = i;
        qn_call_free(calls[i]);
    }
    char line[160];
    snprintf(line, sizeof(line), "%s: %s, of copy %.2f GB/s", title, kernels[best], copy);
    judge(line, bytes / best_ns[best] / copy, bar);
    qn_module_free(module);
}

typedef void sgemm_function(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                            const float *b, int ldb, float beta, float *c, int ldc);

static sgemm_function *find_openblas(int threads)
{
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library) return NULL;
    void *address = dlsym(library, "openblas_set_num_threads");
    void (*set_threads)(int);
    memcpy(&set_threads, &address, sizeof(set_threads));
    if (set_threads) set_threads(threads);
    sgemm_function *gemm;
    address = dlsym(library, "cblas_sgemm");
    memcpy(&gemm, &address, sizeof(gemm));
    return gemm;
}

static void product(int size, const char *const *settings, int threads)
{
    qn_module *module = load("matmul.qn");
    sgemm_function *gemm = find_openblas(threads);
    size_t count = (size_t)size * (size_t)size;
    float *a = malloc(4 * count), *b = malloc(4 * count), *c = malloc(4 * count);
    for (size_t i = 0; i < count; i++) a[i] = (float)(i % 7) - 3, b[i] = (float)(i % 5) - 2, c[i] = 0;
    qn_call *calls[8];
    double best_ns[8], blas_ns = 1e18, peak = 0, flops = 2.0 * size * size * size;
    int kernels = 0;
    for (; settings[kernels]; kernels++) {
        char words[200], name[64];
        snprintf(words, sizeof(words), "T=f32 M=%d N=%d K=%d%s", size, size, size, strchr(settings[kernels], ' '));
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(settings[kernels], " "), settings[kernels]);
        calls[kernels] = make_call(module, name, words);
        best_ns[kernels] = 1e18;
    }
    for (int round = 0; round < (size < 2048 ? 32 : 12); round++) {
        if (round % 4 == 0) {
            double measured = ceilings(1 << 20).fma_all_gflop_per_s;
            if (measured > peak) peak = measured;
        }
        for (int i = 0; i < kernels; i++) {
            double ns = run_ns(calls[i]);
            if (ns < best_ns[i]) best_ns[i] = ns;
        }
        double start = now_ns();
        if (gemm) gemm(101, 111, 111, size, size, size, 1, a, size, b, size, 0, c, size);
        double ns = now_ns() - start;
        if (ns < blas_ns) blas_ns = ns;
    }
    double best = best_ns[0];
    for (int i = 0; i < kernels; i++) {
        printf("    %-44s %8.3f ms %7.1f GFLOP/s\n", settings[i], best_ns[i] * 1e-6, flops / best_ns[i]);
        if (best_ns[i] < best) best = best_ns[i];
        qn_call_free(calls[i]);
    }
    char line[160];
    snprintf(line, sizeof(line), "matmul %d: of the FMA peak %.0f GFLOP/s", size, peak);
    judge(line, flops / best / peak, 0.85);
    if (gemm) {
        snprintf(line, sizeof(line), "matmul %d: against OpenBLAS at %.1f GFLOP/s", size, flops / blas_ns);
        judge(line, blas_ns / best, 1.0);
    } else {
        printf("  matmul %d: no libopenblas.so.0 to compare with\n", size);
    }
    free(a);
    free(b);
    free(c);
    qn_module_free(module);
}

/* One dependent addition a cycle: of a register, since newer cores join additions of constants before they run. */
static double clock_ghz(void)
{
    double best = 0;
    for (int round = 0; round < 50; round++) {
        double start = now_ns();
        long x = 0, one = 1;
        for (int i = 0; i < 10000; i++) {
#if defined(__x86_64__)
            __asm__ volatile(".rept 16\n\tadd %1, %0\n\t.endr" : "+r"(x) : "r"(one));
#else
            for (int j = 0; j < 16; j++) {
                x += one;
                __asm__ volatile("" : "+r"(x), "+r"(one));
            }
#endif
        }
        double ghz = 160000 / (now_ns() - start);
        if (ghz > best) best = ghz;
    }
    return best;
}

static void exponential(void)
{
    qn_error error;
    qn_module *module;
    const char *source =
        "kernel exps(in float x[n], out float y[n], int rounds, const int B = 2048) launch (1)\n"
        "{ tile float v = x[0 : B]; for (int r = 0; r < rounds; r++) v = exp(v - 1); y[0 : B] = v; }\n";
    if (qn_module_load_text(context, "exps.qn", source, &module, &error)) stop(&error);
    qn_call *call = make_call(module, "exps", "n=2048 rounds=200");
    double best = 1e18, ghz = 0;
    for (int round = 0; round < 40; round++) {
        double ns = run_ns(call), now = clock_ghz();
        if (ns < best) best = ns;
        if (now > ghz) ghz = now;
    }
    double cycles = best / (200.0 * 2048) * ghz;
    printf("  exp: %.2f cycles an element in L1 at %.2f GHz (bar 1.00)%s\n", cycles, ghz, cycles > 1 ? "  BELOW" : "");
    below += cycles > 1;
    qn_call_free(call);
    qn_module_free(module);
}

/* The first launch of a kernel in a fresh context: cold, then from the cache. */
static void starts(const char *file, const char *kernel, const char *settings)
{
    char cache[] = "/tmp/quern-bench-XXXXXX";
    if (!mkdtemp(cache)) return;
    double cold = 1e18, cached = 1e18;
    for (int round = 0; round < 5; round++) {
        qn_context_options options = {.cache_folder = cache};
        qn_context *kept = context;
        qn_error error;
        int64_t files, bytes;
        for (int warm = 0; warm < 2; warm++) {
            double start = now_ns();
            if (qn_context_open(&options, &context, &error)) stop(&error);
            qn_module *module = load(file);
            qn_call *call = make_call(module, kernel, settings);
            double ns = now_ns() - start;
            if (!warm && ns < cold) cold = ns;
            if (warm && ns < cached) cached = ns;
            qn_call_free(call);
            qn_module_free(module);
            if (warm && qn_cache_clear(context, &files, &bytes, &error)) stop(&error);
            qn_context_close(context);
        }
        context = kept;
    }
    printf("  %s: %.1f ms cold (bar 100)%s, %.2f ms from the cache (bar 5)%s\n", kernel, cold * 1e-6,
           cold > 1e8 ? "  BELOW" : "", cached * 1e-6, cached > 5e6 ? "  BELOW" : "");
    below += (cold > 1e8) + (cached > 5e6);
    char command[64];
    snprintf(command, sizeof(command), "rm -r %s", cache);
    if (system(command)) printf("  %s was not removed\n", cache);
}

int main(int argc, char **argv)
{
    if (argc > 1) folder = argv[1];
    qn_error error;
    if (qn_context_open(NULL, &context, &error)) stop(&error);
    qn_ceilings first = ceilings(64 << 20);
    printf("%d threads: FMA peak %.1f and %.1f GFLOP/s, ratio %.2f%s\n", first.threads, first.fma_one_gflop_per_s,
           first.fma_all_gflop_per_s, first.fma_all_gflop_per_s / first.fma_one_gflop_per_s,
           first.fma_all_gflop_per_s < 0.85 * first.threads * first.fma_one_gflop_per_s ? ": the cores are shared"
                                                                                        : "");
    const double n = 1 << 25;
    bandwidth("gelu", "gelu.qn", (const char *const[]){"gelu_tile", "gelu_sigmoid", "gelu_builtin", NULL}, "n=33554432",
              8 * n, 0.9);
    bandwidth("square", "square.qn", (const char *const[]){"square_multiply", "square_fma", NULL}, "n=33554432", 8 * n,
              0.9);
    bandwidth("act(x + bias + 0.5 y)", "bias_act.qn", (const char *const[]){"bias_act_row", "bias_act", NULL},
              "T=f32 M=8192 N=4096", 12 * n, 0.9);
    for (int columns = 256; columns <= 16384; columns *= 4) {
        char settings[64], title[32];
        snprintf(settings, sizeof(settings), "T=f32 rows=%d cols=%d", (1 << 25) / columns, columns);
        snprintf(title, sizeof(title), "softmax %d", columns);
        bandwidth(title, "softmax.qn", (const char *const[]){"softmax_row", "softmax_online", "softmax_three", NULL},
                  settings, 8 * n, 0.75);
    }
    bandwidth("layer norm", "layernorm.qn", (const char *const[]){"layer_norm", "layer_norm_three", NULL},
              "T=f32 rows=8192 cols=4096", 8 * n, 0.75);
    static const char *const products[] = {"matmul_tiled BM=128 BN=256 BK=256", "matmul_tiled BM=256 BN=512 BK=256",
                                           "matmul_tiled BM=264 BN=512 BK=512", NULL};
    product(1024, products, first.threads);
    product(2048, products, first.threads);
    exponential();
    starts("gelu.qn", "gelu_tile", "n=4096");
    starts("softmax.qn", "softmax_row", "T=f32 rows=16 cols=1024");
    qn_context_close(context);
    printf("%d below their bars\n", below);
    return 0;
}
