/*
 * Compiling in several threads at once: different variants side by side, the same one only once. A compiler that sleeps
 * makes the difference visible on any machine.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "quiet.h"
#include "run/run.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <quern/workbench.h>
#include <sys/stat.h>

#define CALLS 6
#define SLEEP_MS 400

static const char source[] = "kernel twice(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B))\n"
                             "{ y[program(0) * B : B] = 2 * x[program(0) * B : B]; }\n";

static qn_error error;
static float x[1000];
static char folder[] = "/tmp/quern-parallel-XXXXXX";

/* The system's compiler, after a while, with a note of how many there are. */
static bool slow_compiler(void)
{
    char path[200], words[600], real[1024];
    if (!program_find("cc", real, sizeof(real)) || !mkdtemp(folder)) return false;
    snprintf(path, sizeof(path), "%s/slow-cc-1", folder);
    snprintf(words, sizeof(words),
             "#!/bin/sh\nhere=$(dirname \"$0\")\n: >\"$here/running.$$\"\nsleep %d.%03d\n"
             "ls \"$here\"/running.* | wc -l >>\"$here/together\"\n%.200s \"$@\"\n"
             "code=$?\nrm -f \"$here/running.$$\"\nexit $code\n",
             SLEEP_MS / 1000, SLEEP_MS % 1000, real);
    if (file_write(path, words, strlen(words), NULL) || chmod(path, 0700)) return false;
    setenv("QUERN_CC", path, 1);
    return true;
}

static qn_call *call_of(qn_module *module, int block)
{
    qn_call *call;
    int64_t extent = 1000;
    EXPECT(qn_call_new(module, "twice", &call, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 1, &extent, NULL, &error) == QN_OK);
    EXPECT(qn_call_set_int(call, "B", block, &error) == QN_OK);
    return call;
}

/* Compiles CALLS calls in as many threads; the blocks are 16, 32, ... or all the same. Gives the time in ms. */
static double compile_all(bool different, int64_t *compiles)
{
    qn_context *context;
    qn_module *module;
    compile_job jobs[CALLS] = {0};
    int slot;
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true, .threads = 1}, &context, &error) == QN_OK);
    EXPECT(qn_module_load_text(context, "twice.qn", source, &module, &error) == QN_OK);
    EXPECT(context_slot(context, "cpu", &slot, &error) == QN_OK);
    for (int i = 0; i < CALLS; i++)
        jobs[i] = (compile_job){.call = call_of(module, different ? 16 << i : 64), .slot = slot};
    int64_t start = clock_now_ns();
    calls_compile(jobs, CALLS, CALLS);
    double time_ms = (double)(clock_now_ns() - start) * 1e-6;
    *compiles = context->compiles;
    for (int i = 0; i < CALLS; i++) {
        qn_array y;
        EXPECT(jobs[i].status == QN_OK);
        if (jobs[i].status) printf("%s\n", jobs[i].error.message);
        int64_t before = context->compiles;
        EXPECT(qn_call_run(jobs[i].call, "cpu", &error) == QN_OK && context->compiles == before);
        EXPECT(qn_call_get(jobs[i].call, "y", &y, &error) == QN_OK && ((float *)y.data)[999] == 2 * x[999]);
        qn_call_free(jobs[i].call);
    }
    qn_module_free(module);
    qn_context_close(context);
    return time_ms;
}

TEST(different_variants_side_by_side)
{
    int64_t compiles;
    double time_ms = compile_all(true, &compiles);
    EXPECT(compiles == CALLS);
    EXPECT(time_ms < (CALLS - 1) * SLEEP_MS); /* one after another takes more than CALLS times as long */
    if (time_ms >= (CALLS - 1) * SLEEP_MS) printf("%.0f ms\n", time_ms);
}

TEST(the_same_variant_once)
{
    int64_t compiles;
    compile_all(false, &compiles);
    EXPECT(compiles == 1);
}

TEST(each_failure_is_its_own)
{
    qn_context *context;
    qn_module *module;
    int slot;
    compile_job jobs[2] = {0};
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true, .threads = 1}, &context, &error) == QN_OK);
    EXPECT(qn_module_load_text(context, "twice.qn", source, &module, &error) == QN_OK);
    EXPECT(context_slot(context, "cpu", &slot, &error) == QN_OK);
    jobs[0].call = call_of(module, 64);
    EXPECT(qn_call_new(module, "twice", &jobs[1].call, &error) == QN_OK); /* its array is missing */
    jobs[0].slot = jobs[1].slot = slot;
    calls_compile(jobs, 2, 2);
    EXPECT(jobs[0].status == QN_OK);
    EXPECT(jobs[1].status == QN_BAD_CALL && strstr(jobs[1].error.message, "array `x` of kernel `twice` is not given"));
    qn_call_free(jobs[0].call);
    qn_call_free(jobs[1].call);
    qn_module_free(module);
    qn_context_close(context);
}

/* How many compilers ran at once since it was asked last. */
static int most_together(void)
{
    char path[200];
    int most = 0, count;
    snprintf(path, sizeof(path), "%s/together", folder);
    FILE *file = fopen(path, "r");
    while (file && fscanf(file, "%d", &count) == 1) most = MAXIMUM(most, count);
    if (file) fclose(file);
    remove(path);
    return most;
}

static void ignore_text(void *user, const char *words, size_t length)
{
    (void)user, (void)words, (void)length;
}

/* A tensor function is compiled for each of the sizes that `check` tries: side by side, though they run one by one. */
TEST(cases_of_check_side_by_side)
{
    qn_context *context;
    char path[200];
    snprintf(path, sizeof(path), "%s/cases.qn", folder);
    FILE *file = fopen(path, "w");
    EXPECT(file && fputs("tensor f(float x[n]) { return x * float(n); }\n", file) >= 0 && !fclose(file));
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true, .threads = 1}, &context, &error) == QN_OK);
    qn_check_options options = {.device = "cpu"};
    most_together(); /* of the tests before */
    EXPECT(qn_check_file(context, path, &options, ignore_text, NULL, &error) == QN_OK);
    EXPECT(cpu_count() < 2 || most_together() >= 3); /* a plan's own are two at most */
    qn_context_close(context);
    remove(path);
}

TEST(opening)
{
    EXPECT(slow_compiler());
    for (int i = 0; i < 1000; i++) x[i] = (float)i;
}

static _Atomic bool has_measured;

static void *measure(void *context)
{
    qn_ceilings ceilings;
    qn_error own;
    EXPECT(qn_measure(context, "cpu", 1 << 16, &ceilings, &own) == QN_OK);
    has_measured = true;
    return NULL;
}

static void ignore(void *user, const char *words, size_t length)
{
    (void)user, (void)words, (void)length;
}

/* Who looks at the cache does not wait for a compiler that another thread runs. */
TEST(looking_does_not_wait)
{
    qn_context *context;
    pthread_t thread;
    int64_t files, bytes;
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true, .threads = 1}, &context, &error) == QN_OK);
    EXPECT(pthread_create(&thread, NULL, measure, context) == 0);
    nanosleep(&(struct timespec){.tv_nsec = SLEEP_MS / 4 * 1000000L}, NULL); /* the compiler sleeps longer */
    EXPECT(qn_cache_list(context, ignore, NULL, &error) == QN_OK);
    EXPECT(qn_cache_clear(context, &files, &bytes, &error) == QN_OK);
    EXPECT_QUICK(!has_measured);
    pthread_join(thread, NULL);
    EXPECT(has_measured);
    qn_context_close(context);
}

TEST(closing)
{
    char command[200];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    EXPECT(system(command) == 0);
}

TEST_MAIN(CASE(opening), CASE(different_variants_side_by_side), CASE(the_same_variant_once),
          CASE(each_failure_is_its_own), CASE(cases_of_check_side_by_side), CASE(looking_does_not_wait), CASE(closing))
