/*
 * Numbers do not depend on the locale of the host program. The test makes a locale with a decimal comma (a file of its
 * own: no system needs to have one installed), sets it, and then runs kernels with constants, prints, dumps read back,
 * settings, graphs and number texts: all as in the locale "C".
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "test.h"

#include <locale.h>
#include <quern/tensor.h>
#include <quern/workbench.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool has_comma;

/* What localedef would write for LC_NUMERIC: a magic number, the offsets of six fields, the fields. */
static bool write_locale(const char *folder)
{
    struct {
        uint32_t magic, count, at[6];
        char point[4], thousands[4], grouping[4];
        uint32_t point_wide, thousands_wide;
        char codeset[8];
    } file = {.magic = 0x20031115 ^ LC_NUMERIC,
              .count = 6,
              .point = ",",
              .thousands = ".",
              .grouping = "\3\3",
              .point_wide = ',',
              .thousands_wide = '.',
              .codeset = "UTF-8"};
    for (uint32_t i = 0; i < 6; i++) file.at[i] = 32 + 4 * i;
    char path[200];
    snprintf(path, sizeof(path), "%s/xx_XX", folder);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/xx_XX/LC_NUMERIC", folder);
    return file_write(path, &file, sizeof(file), NULL) == QN_OK;
}

static void set_comma(void)
{
    char folder[] = "/tmp/quern-locale-XXXXXX", path[100];
    if (!mkdtemp(folder) || !write_locale(folder)) return;
    setenv("LOCPATH", folder, 1);
    char words[16] = "";
    if (setlocale(LC_NUMERIC, "xx_XX")) snprintf(words, sizeof(words), "%.1f", 0.5);
    has_comma = !strcmp(words, "0,5");
    snprintf(path, sizeof(path), "%s/xx_XX/LC_NUMERIC", folder);
    unlink(path);
    snprintf(path, sizeof(path), "%s/xx_XX", folder);
    rmdir(path);
    rmdir(folder);
}

TEST(the_comma_is_there)
{
    set_comma();
    if (!has_comma) printf("note: skipped test_locale: this C library does not read a locale from $LOCPATH\n");
}

TEST(numbers_and_text)
{
    char words[64], *end;
    text t = {0};
    plain_print(words, sizeof(words), "%g %.2f %e", 0.5, 1.25, 1e-3);
    EXPECT_TEXT(words, "0.5 1.25 1.000000e-03");
    EXPECT(number_parse("0.75x", &end) == 0.75 && *end == 'x');
    EXPECT(number_parse("1,5", &end) == 1 && *end == ',');
    text_add_double(&t, 0.1);
    text_print(&t, " %g", 0.5);
    EXPECT_TEXT(text_get(&t), "0.1 0.5");
    text_free(&t);
    qn_error error;
    error_set(&error, QN_FAILED, "%.3f", 0.125);
    EXPECT_TEXT(error.message, "0.125");
    if (!has_comma) return;
    snprintf(words, sizeof(words), "%g", 0.5); /* the host's own is as it was */
    EXPECT_TEXT(words, "0,5");
}

static char printed[4000];

static void keep_print(void *user, const char *line)
{
    (void)user;
    snprintf(printed + strlen(printed), sizeof(printed) - strlen(printed), "%s\n", line);
}

static const char *const sources[] = {
    "kernel k(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B)) { y[program(0)*B:B] = "
    "x[program(0)*B:B] * -0.5; }",
    "kernel k(in float x[n], out float y[n], const int B = 64) launch (cdiv(n, B)) { y[program(0)*B:B] = "
    "x[program(0)*B:B] - 0.5; }",
    "kernel k(in float x[n], out float y[n]) launch (n) { y[program(0)] = x[program(0)] > 0.5 ? x[program(0)] : -1.5; "
    "}",
    "kernel k(in float x[n], out float y[n]) launch (n) { y[program(0)] = max(x[program(0)], -2.5) * 1.1e-3; }",
    "kernel k(in float x[n], out float y[n]) launch (n) { float s = -0.5; for (int i = 0; i < 3; i++) s = s * -1.5; "
    "y[program(0)] = s; }",
    "kernel k(in float x[n], out float y[n], float by = 0.25) launch (n) { y[program(0)] = by * x[program(0)]; "
    "print(\"{} {}\", by, x[0:2]); }",
};
static const float expected[] = {-0.625f, 0.75f, 1.25f, 1.25f * 1.1e-3f, 1.6875f, 0.3125f};

static void run(qn_context *context, const char *device, const char *name, const char *source, float wanted)
{
    qn_error error;
    qn_module *module = NULL;
    qn_call *call = NULL;
    float x[3] = {1.25f, 2.5f, -1}, y[3] = {0};
    int64_t n = 3;
    qn_status status = qn_module_load_text(context, name, source, &module, &error);
    if (status == QN_OK) status = qn_call_new(module, qn_module_kernel_name(module, 0), &call, &error);
    if (status == QN_OK) status = qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error);
    if (status == QN_OK) status = qn_call_set_memory(call, "y", y, QN_F32, 1, &n, NULL, &error);
    if (status == QN_OK) status = qn_call_run(call, device, &error);
    if (status != QN_OK) printf("%s: %s\n", device, error.message);
    EXPECT(status == QN_OK);
    EXPECT_NEAR(y[0], wanted, 1e-9);
    qn_call_free(call);
    qn_module_free(module);
}

TEST(kernels)
{
    static const char *const devices[] = {"ref", "cpu", "emu"};
    qn_context_options options = {.no_cache = true, .print = keep_print};
    qn_context *context = NULL;
    qn_error error;
    EXPECT(qn_context_open(&options, &context, &error) == QN_OK);
    for (int d = 0; d < COUNT(devices); d++) {
        qn_device_info info;
        if (qn_device_find(context, devices[d], &info, &error) != QN_OK || !info.available) continue;
        bool slow = !strcmp(devices[d], "emu"); /* each text costs it a second */
        for (int i = slow ? COUNT(sources) - 1 : 0; i < COUNT(sources); i++) {
            printed[0] = 0;
            run(context, devices[d], "k.qn", sources[i], expected[i]);
            if (i + 1 < COUNT(sources)) continue;
            EXPECT(strstr(printed, "0.25 [1.25 2.5]"));
            EXPECT(!strstr(printed, "0,25"));
        }
    }
    qn_context_close(context);
}

static void keep_shown(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

/* A dump of what was lowered, read back; and a setting as words. */
TEST(dumps_and_settings)
{
    qn_context_options options = {.no_cache = true};
    qn_context *context = NULL;
    qn_module *module = NULL;
    qn_error error;
    text dump = {0};
    char path[64];
    EXPECT(qn_context_open(&options, &context, &error) == QN_OK);
    snprintf(path, sizeof(path), "/tmp/quern-locale-%d.qn", (int)getpid());
    EXPECT(file_write(path, sources[0], strlen(sources[0]), NULL) == QN_OK);
    EXPECT(qn_show(context, path, "k", &(qn_show_options){.stage = "tile"}, keep_shown, &dump, &error) == QN_OK);
    unlink(path);
    EXPECT(strstr(text_get(&dump), "-0.5") && !strstr(text_get(&dump), "0,5"));
    run(context, "ref", "k.tile", text_get(&dump), expected[0]);
    text_free(&dump);
    EXPECT(qn_module_load_text(context, "k.qn", sources[5], &module, &error) == QN_OK);
    qn_call *call = NULL;
    float x[2] = {1, 1}, y[2] = {0};
    int64_t n = 2;
    EXPECT(qn_call_new(module, "k", &call, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "y", y, QN_F32, 1, &n, NULL, &error) == QN_OK);
    EXPECT(qn_call_set_text(call, "by", "1.5", &error) == QN_OK);
    EXPECT(qn_call_run(call, "ref", &error) == QN_OK);
    EXPECT_NEAR(y[1], 1.5, 0);
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
}

TEST(tensors)
{
    qn_context_options options = {.no_cache = true};
    qn_context *context = NULL;
    qn_error error;
    EXPECT(qn_context_open(&options, &context, &error) == QN_OK);
    qn_tape *tape = NULL;
    EXPECT(qn_tape_new(context, NULL, &tape, &error) == QN_OK);
    qn_tensor x = qn_full(tape, QN_F32, QN_SHAPE(4), 2.5);
    qn_tensor y = qn_add(qn_mul(x, qn_scalar(tape, QN_F32, -0.5)), qn_scalar(tape, QN_F32, 0.125));
    float out[4] = {0};
    EXPECT(qn_tensor_read(y, out, sizeof(out), &error) == QN_OK);
    EXPECT_NEAR(out[3], -1.125, 0);
    qn_tape_free(tape);
    qn_context_close(context);
}

TEST_MAIN(CASE(the_comma_is_there), CASE(numbers_and_text), CASE(kernels), CASE(dumps_and_settings), CASE(tensors))
