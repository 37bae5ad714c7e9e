/*
 * Schedules as users choose them, on emu. Edited: what `show --stage schedule` prints runs again, with the numbers of its launches changed; what cannot be
 * is refused with what can; a schedule that no kernel had is told. Tuned: numbers that make another schedule are candidates,
 * of a kernel that lists none, and the fastest is used.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "base/base.h"
#include "own_file.h"
#include "test.h"

#include <quern/workbench.h>
#include <stdlib.h>

static qn_context *context;
static qn_error error;
static char folder[] = "/tmp/quern-edited-XXXXXX"; /* what is tuned here is nobody else's */
static const char *const source =
    "kernel product(in bf16 a[M][K], in bf16 b[K][N], out float c[M][N]) launch (cdiv(M, 64), cdiv(N, 64))\n"
    "{\n"
    "    int i = program(0) * 64, j = program(1) * 64;\n"
    "    tile float sum[64][64] = 0;\n"
    "    for (int k = 0; k < K; k += 64)\n"
    "        sum += dot(a[i : 64][k : 64], b[k : 64][j : 64]);\n"
    "    c[i : 64][j : 64] = sum;\n"
    "}\n";
static const char *const sizes[] = {"M=64", "N=128", "K=192"};

static void collect(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

/* The schedule with one part of it replaced. */
static char *schedule_with(const char *part, const char *by)
{
    text out = {0}, edited = {0};
    qn_show_options options = {.stage = "schedule", .device = "emu", .settings = {sizes, COUNT(sizes)}};
    EXPECT(!qn_show(context, own_file("edited.qn"), "product", &options, collect, &out, &error));
    const char *words = text_get(&out), *at = strstr(words, part);
    EXPECT(at != NULL);
    text_add_bytes(&edited, words, at ? (size_t)(at - words) : 0);
    if (at) text_print(&edited, "%s%s", by, at + strlen(part));
    char *copy = strdup(text_get(&edited));
    text_free(&out);
    text_free(&edited);
    return copy;
}

static qn_status run(const char *device, float *c)
{
    qn_module *module;
    qn_call *call;
    static uint16_t a[64 * 192], b[192 * 128]; /* small whole numbers: every order of sums is exact */
    static const uint16_t some[] = {0x3f80, 0xbf80, 0x4000, 0};
    for (int i = 0; i < COUNT(a); i++) a[i] = some[(i * 7 + i / 31) % 4];
    for (int i = 0; i < COUNT(b); i++) b[i] = some[(i * 5 + i / 17) % 4];
    EXPECT(!qn_module_load_text(context, own_file("edited.qn"), source, &module, &error));
    EXPECT(!qn_call_new(module, "product", &call, &error));
    EXPECT(!qn_call_set_memory(call, "a", a, QN_BF16, 2, (int64_t[]){64, 192}, NULL, &error));
    EXPECT(!qn_call_set_memory(call, "b", b, QN_BF16, 2, (int64_t[]){192, 128}, NULL, &error));
    EXPECT(!qn_call_set_memory(call, "c", c, QN_F32, 2, (int64_t[]){64, 128}, NULL, &error));
    qn_status status = qn_call_run(call, device, &error);
    qn_call_free(call);
    qn_module_free(module);
    return status;
}

static void refused(const char *part, const char *by, const char *why)
{
    static float c[64 * 128];
    char *words = schedule_with(part, by);
    EXPECT(!qn_schedule_use(context, words, &error));
    EXPECT(run("emu", c) == QN_BAD_CALL);
    if (!strstr(error.message, why)) printf("%s\n", error.message);
    EXPECT(strstr(error.message, why) != NULL);
    free(words);
}

TEST(an_edited_schedule_runs)
{
    static float expected[64 * 128], got[64 * 128];
    char *words = schedule_with("stages=5 groups=1 order=8 blocks=2", "stages=2 groups=1 order=3 blocks=1");
    EXPECT(!qn_schedule_use(context, words, &error));
    EXPECT(qn_schedule_unused(context) && !strcmp(qn_schedule_unused(context), "product"));
    EXPECT(!run("emu", got));
    EXPECT(!qn_schedule_unused(context));
    EXPECT(!run("ref", expected)); /* which has no schedules */
    EXPECT(!memcmp(expected, got, sizeof(got)));
    free(words);
}

TEST(what_cannot_be_is_told)
{
    static float c[64 * 128];
    refused("stages=5", "stages=40", "what can be is `launch of phase 0: fed tile=64x64x64 stages=");
    refused("tile=64x64x64", "tile=128x64x64", "the tile is the kernel's own");
    refused("along k", "along rows", "the other lines follow");
    refused("launch of phase 0: fed", "launch of phase 0: sideways", "cannot be: `launch of phase 0: sideways");
    refused("order=8", "order=-1", "cannot be: `launch of phase 0: fed tile=64x64x64 stages=5 groups=1 order=-1");
    refused("order=8", "order=2147483647", "cannot be: `launch of phase 0");
    refused("order=8", "order=99999999999999999999", "cannot be: `launch of phase 0");
    refused("order=8", "order=5000",
            "what can be is `launch of phase 0: fed tile=64x64x64 stages=5 groups=1 order=1024");
    EXPECT(run("cpu", c) == QN_BAD_CALL && strstr(error.message, "the device cpu follows none"));
    EXPECT(qn_schedule_use(context, "room a\nschedule product\n", &error) &&
           strstr(error.message, "line 1 is of no schedule"));
    EXPECT(qn_schedule_use(context, "// nothing\n", &error) && strstr(error.message, "no schedule in the text"));
    EXPECT(qn_schedule_use(NULL, "", &error));
    EXPECT(!qn_schedule_use(context, NULL, &error) && !qn_schedule_unused(context));
}

TEST(schedules_are_candidates)
{
    static float c[64 * 128];
    static const char *const fixed[] = {"M=64", "N=128", "K=192", "group=8", "stages=2"};
    text out = {0};
    qn_tune_options options = {.device = "emu", .settings = {fixed, COUNT(fixed)}, .budget_s = 0.2};
    bool good = !qn_tune(context, own_file("edited.qn"), "product", &options, collect, NULL, &out, &error);
    if (!good) printf("%s\n", error.message);
    EXPECT(good && strstr(text_get(&out), "blocks=0") && strstr(text_get(&out), " of 2 candidates"));
    EXPECT(!strstr(text_get(&out), "turns")); /* this tile has one group of warps */
    text_clear(&out);
    options.settings.count = 3;
    options.device = "cpu";
    EXPECT(qn_tune(context, own_file("edited.qn"), "product", &options, collect, NULL, &out, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "there is nothing to tune in kernel `product`") != NULL);
    text_free(&out);
    EXPECT(!run("emu", c)); /* with what was recorded */
}

TEST(opened)
{
    FILE *file = fopen(own_file("edited.qn"), "w");
    if (file) fputs(source, file), fclose(file);
    EXPECT(mkdtemp(folder) != NULL);
    EXPECT(!qn_context_open(&(qn_context_options){.cache_folder = folder}, &context, &error));
}

TEST(closed)
{
    char command[80];
    qn_context_close(context);
    remove(own_file("edited.qn"));
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    EXPECT(system(command) == 0);
}

TEST_MAIN(CASE(opened), CASE(an_edited_schedule_runs), CASE(what_cannot_be_is_told), CASE(schedules_are_candidates),
          CASE(closed))
