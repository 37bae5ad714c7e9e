/*
 * Wrong kernels: every file of tests/wrong is run under the checking interpreter at the sizes of its first line, and
 * must give exactly the findings that line names: "// expect R704 line 7, R703 line 2 with n=40 rows=9".
 * Inputs come from the bench block of the file, where there is one.
 * SPDX-License-Identifier: MIT
 */
#include "run/run.h"
#include "test.h"

#include <dirent.h>
#include <stdlib.h>

typedef struct expectation {
    int codes[8], lines[8], count;
    char settings[16][64];
    int setting_count;
} expectation;

static bool read_expectation(const char *path, expectation *e)
{
    char *words;
    size_t size;
    qn_error error;
    memset(e, 0, sizeof(*e));
    if (file_read(path, 1 << 20, &words, &size, &error) != QN_OK) return false;
    words[strcspn(words, "\n")] = 0;
    bool good = !strncmp(words, "// expect ", 10);
    char *settings = strstr(words, " with ");
    if (settings) *settings = 0;
    char *rest = NULL;
    for (char *part = good ? strtok_r(words + 10, ",", &rest) : NULL; part; part = strtok_r(NULL, ",", &rest)) {
        while (*part == ' ') part++;
        good &= (*part == 'R' || *part == 'E') &&
                sscanf(part + 1, "%d line %d", &e->codes[e->count], &e->lines[e->count]) == 2;
        e->count++;
    }
    rest = NULL;
    for (char *part = settings ? strtok_r(settings + 6, " ", &rest) : NULL; part; part = strtok_r(NULL, " ", &rest))
        snprintf(e->settings[e->setting_count++], 64, "%s", part);
    free(words);
    return good;
}

static bool set_all(qn_call *call, const expectation *e, qn_error *error)
{
    for (int i = 0; i < e->setting_count; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s", e->settings[i]);
        char *value = strchr(name, '=');
        if (!value) return false;
        *value++ = 0;
        if (qn_call_set_text(call, name, value, error) != QN_OK) return false;
    }
    return true;
}

static void compare(const char *path, const expectation *e, const findings *found, const tile_kernel *k)
{
    bool same = e->count == found->count;
    for (int i = 0; i < e->count; i++) {
        bool there = false;
        for (int j = 0; j < found->count; j++)
            there |= found->items[j].code == e->codes[i] && found->items[j].line == e->lines[i];
        same &= there;
    }
    if (same) return;
    text words = {0};
    findings_print(found, k, &words);
    printf("%s: expected", path);
    for (int i = 0; i < e->count; i++) printf(" %d line %d", e->codes[i], e->lines[i]);
    printf(", found:\n%s", text_get(&words));
    text_free(&words);
    test_fail(__FILE__, __LINE__, path);
}

static void check_file(qn_context *context, const char *path)
{
    expectation e;
    qn_error error = {0};
    qn_module *module = NULL;
    qn_call *call = NULL;
    if (!read_expectation(path, &e)) {
        test_fail(__FILE__, __LINE__, path);
        return;
    }
    bool good = qn_module_load_file(context, path, &module, &error) == QN_OK &&
                qn_call_new(module, qn_module_kernel_name(module, 0), &call, &error) == QN_OK &&
                set_all(call, &e, &error) && qn_call_generate(call, 1, &error) == QN_OK;
    int slot;
    if (good && context_slot(context, "ref", &slot, &error) == QN_OK) {
        findings found = {0};
        interp_options interp = {.check = true, .units = 1, .step_limit = 100000};
        launch_options options = {.interp = &interp, .found = &found};
        qn_status status = call_launch(call, slot, &options, &error);
        bool fails = e.codes[0] == 507 || !strcmp(strrchr(path, '/'), "/waits.qn");
        if (status != (fails ? QN_FAILED : QN_OK)) {
            printf("%s: %s: %s\n", path, qn_status_name(status), error.message);
            test_fail(__FILE__, __LINE__, "the launch");
        } else {
            compare(path, &e, &found, call->variant->kernel);
        }
        findings_free(&found);
    } else {
        printf("%s: %s\n", path, error.message);
        test_fail(__FILE__, __LINE__, "the kernel is accepted");
    }
    qn_call_free(call);
    qn_module_free(module);
}

TEST(every_wrong_kernel_is_found)
{
    const char *folder = QUERN_ROOT "/tests/wrong";
    DIR *entries = opendir(folder);
    EXPECT(entries);
    if (!entries) return;
    qn_context *context;
    qn_context_options options = {.no_cache = true};
    EXPECT(qn_context_open(&options, &context, NULL) == QN_OK);
    int files = 0;
    for (struct dirent *entry; (entry = readdir(entries));) {
        char path[1024];
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".qn")) continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        check_file(context, path);
        files++;
    }
    closedir(entries);
    EXPECT(files >= 28);
    printf("note: %d wrong kernels, each found by ref\n", files);
    qn_context_close(context);
}

TEST_MAIN(CASE(every_wrong_kernel_is_found))
