/*
 * Ceilings: measured on the processor, kept and found again; a kept file that is damaged counts as none; the GPU's
 * kernels compile where NVRTC is.
 * SPDX-License-Identifier: MIT
 */
#include "device/ceilings.h"
#include "device/cuda/cuda.h"
#include "run/compile/cache.h"
#include "run/run.h"
#include "quiet.h"

#include <dirent.h>
#include <quern/bench.h>
#include <quern/device.h>
#include <quern/workbench.h>
#include <stdlib.h>
#include <string.h>

/* The one file of ceilings in the cache's folder. */
static bool find_file(qn_context *context, char *path, size_t size)
{
    const char *folder = cache_folder(context_cache(context));
    DIR *list = opendir(folder);
    bool found = false;
    for (struct dirent *entry; list && (entry = readdir(list)) && !found;) {
        found = !strncmp(entry->d_name, "roofline-", 9);
        if (found) snprintf(path, size, "%s/%s", folder, entry->d_name);
    }
    if (list) closedir(list);
    return found;
}

static void keep_words(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

/* Do the details of the cpu device, of a context opened now, have these words? */
static bool details_say(const char *wanted)
{
    qn_context *context;
    qn_error error;
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    char *words = qn_device_details(context, "cpu");
    bool found = words && strstr(words, wanted);
    free(words);
    qn_context_close(context);
    return found;
}

TEST(measured_once_and_kept)
{
    qn_context *context;
    qn_error error;
    qn_roofline first, again;
    char folder[] = "/tmp/quern-roofline-XXXXXX", path[4096];
    EXPECT(mkdtemp(folder));
    setenv("QUERN_CACHE", folder, 1);
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    EXPECT(!qn_roofline_find(context, "cpu", &first));
    EXPECT(qn_roofline_get(context, "cpu", false, &first, &error) == QN_OK);
    EXPECT(first.copy_gb_per_s > 0.1 && first.read_gb_per_s > 0.1 && first.write_gb_per_s > 0.1);
    EXPECT(first.inner_gb_per_s > 0.1 && first.cache_gb_per_s > 0.1);
    EXPECT(first.fma_f32_gflop_per_s > 0.1 && first.fma_f64_gflop_per_s > 0.1);
    EXPECT(first.exp_g_per_s > 0.01 && first.exp_g_per_s < first.fma_f32_gflop_per_s);
    EXPECT(first.launch_ns > 1 && first.launch_ns < 1e7 && first.graph_launch_ns > 1);
#ifdef __x86_64__
    __builtin_cpu_init();
    bool pairs = __builtin_cpu_supports("avx512bf16"); /* a second product of bf16 for each lane, or none is told */
    EXPECT(pairs == (first.dot_bf16_gflop_per_s > 0));
    if (pairs) EXPECT_QUICK(first.dot_bf16_gflop_per_s > first.fma_f32_gflop_per_s);
#endif
    EXPECT(first.dot_i8_gflop_per_s > 0.1);
    EXPECT(first.dot_tf32_gflop_per_s == 0 && first.units > 0 && first.measured[0] && first.device[0]);
    EXPECT(qn_roofline_find(context, "cpu", &again) && !strcmp(again.measured, first.measured));
    EXPECT_NEAR(again.copy_gb_per_s, first.copy_gb_per_s, 1e-6 * first.copy_gb_per_s);
    EXPECT(details_say("measured on this machine")); /* how its text is made best, too */
    EXPECT(find_file(context, path, sizeof(path)));
    EXPECT(file_write(path, "copy_gb_per_s what\n", 19, &error) == QN_OK);
    EXPECT(!qn_roofline_find(context, "cpu", &again));
    EXPECT(qn_roofline_get(context, "nowhere", false, &again, &error) == QN_BAD_CALL);
    qn_context_close(context);
    snprintf(path, sizeof(path), "rm -r '%s'", folder);
    EXPECT(system(path) == 0);
}

/* How far text reads ahead and the like: the usual numbers, then those of the machine, for every later context. */
TEST(numbers_of_the_machine)
{
    qn_context *context;
    qn_error error;
    char folder[] = "/tmp/quern-machine-XXXXXX", words[4096];
    EXPECT(mkdtemp(folder));
    setenv("QUERN_CACHE", folder, 1);
    EXPECT(details_say("512 and 8192 bytes ahead, 4 bodies") && details_say("as usual"));
    cpu_numbers other = {.near_bytes = 1024, .far_bytes = 4096, .bodies = 2, .stream_bytes = 48 << 20};
    cpu_numbers_keep(folder, &other);
    EXPECT(details_say("1024 and 4096 bytes ahead, 2 bodies in step, writes around the caches from 48 MB"));
    static const char *const large[] = {"n=1<<26"};
    qn_show_options options = {.stage = "c", .device = "cpu", .settings = {large, 1}};
    text source = {0};
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    EXPECT(qn_show(context, QUERN_ROOT "/kernels/gelu.qn", "gelu_tile", &options, keep_words, &source, &error) ==
           QN_OK);
    EXPECT(test_count(text_get(&source), " + 256, 0, 3)") == 3 && test_count(text_get(&source), " + 1024, 0, 2)") == 3);
    qn_context_close(context);
    text_free(&source);
    other.bodies = 3;
    cpu_numbers_keep(folder, &other); /* no such number */
    EXPECT(details_say("as usual"));
    snprintf(words, sizeof(words), "rm -r '%s'", folder);
    EXPECT(system(words) == 0);
}

TEST(kernels_of_the_gpu_compile)
{
    static const int archs[] = {80, 90};
    nvrtc *compiler = nvrtc_new();
    qn_error error;
    if (nvrtc_ready(compiler, &error) != QN_OK) {
        printf("note: %s\n", error.message);
        nvrtc_free(compiler);
        return;
    }
    for (int i = 0, part = 0; i < COUNT(archs); part++) {
        text source = {0};
        nvrtc_output output = {0};
        nvrtc_options options = {.arch = archs[i]};
        if (!nvrtc_knows(compiler, archs[i]) || !cuda_roofline_source(archs[i], part, &source)) {
            EXPECT(part == 6 || !nvrtc_knows(compiler, archs[i])); /* memory and five types */
            part = -1;
            i++;
            continue;
        }
        bool made = nvrtc_compile(compiler, text_get(&source), "roofline.cu", &options, &output, &error) == QN_OK;
        if (!made) printf("%d: %s\n", archs[i], error.message);
        EXPECT(made);
        if (archs[i] == 90) EXPECT(!part == !strstr(text_get(&output.ptx), "wgmma.mma_async"));
        nvrtc_output_free(&output);
        text_free(&source);
    }
    nvrtc_free(compiler);
}

TEST_MAIN(CASE(measured_once_and_kept), CASE(numbers_of_the_machine), CASE(kernels_of_the_gpu_compile))
