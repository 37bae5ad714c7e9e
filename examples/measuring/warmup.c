/*
 * Warm-up: the first call pays for what later ones find ready. The square of a matrix, call by call: the first compiles
 * (or finds the binary in the cache), loads it and touches new memory; the second is what the program will see.
 * Build: cc warmup.c $(pkg-config --cflags --libs quern)
 * SPDX-License-Identifier: MIT
 */
#include <quern/bench.h>
#include <quern/try.h>
#include <stdio.h>
#include <stdlib.h>

static const char square[] = "kernel square(in float x[n], out float y[n], const int BLOCK = 1024)\n"
                             "    launch (cdiv(n, BLOCK))\n"
                             "{\n"
                             "    int i = program(0) * BLOCK;\n"
                             "    y[i : BLOCK] = x[i : BLOCK] * x[i : BLOCK];\n"
                             "}\n";

static void run(void *user)
{
    qn_error error;
    if (qn_call_run(user, NULL, &error)) fprintf(stderr, "%s\n", error.message);
}

int main(void)
{
    const int64_t n = 2048 * 2048;
    qn_error error;
    qn_context *context;
    qn_module *module;
    qn_call *call;
    qn_bench_time time;
    QN_MUST(qn_context_open(&(qn_context_options){.no_cache = true}, &context, &error),
            error); /* as on a new machine */
    QN_MUST(qn_module_load_text(context, "square.qn", square, &module, &error), error);
    QN_MUST(qn_call_new(module, "square", &call, &error), error);
    QN_MUST(qn_call_set_int(call, "n", n, &error), error);
    QN_MUST(qn_call_generate(call, 1, &error), error);
    QN_MUST(qn_bench(run, call, &(qn_time_options){.seconds = 0.3, .calls = 1}, &time, &error), error);
    printf("first call   %10.3f ms\n", time.first_ns * 1e-6);
    printf("median       %10.3f ms of %d calls, after %d thrown away\n", time.median_ns * 1e-6, time.sample_count,
           time.warmup_count);
    printf("a mean over 10 calls with the first would read %.3f ms, %.0f times the truth\n",
           (time.first_ns + 9 * time.median_ns) * 1e-7, (time.first_ns / time.median_ns + 9) / 10);
    bool seen = time.first_ns > 3 * time.median_ns;
    qn_bench_time_free(&time);
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
    return seen ? 0 : 1;
}
