/*
 * Golden diagnostics: every tests/errors/NAME.qn is parsed, checked and, where that finds no error, each of its kernels
 * is instantiated (generic types are float, constants without a value 16) and lowered, each of its tensor functions
 * traced (traced.h has the sizes); what is printed must be NAME.expected. QUERN_BLESS=1 writes the files instead, for a person to read before committing them.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"
#include "instance.h"
#include "traced.h"

#include <dirent.h>
#include <stdlib.h>

#define FOLDER QUERN_ROOT "/tests/errors"

/* Codes that a golden file must show. */
static const error_code codes[] = {E101, E102, E103, E104, E105, E106, E107, E108, E109, E110, E111, E201, E202,
                                   E203, E204, E208, E212, E213, E214, E216, E218, E402, E403, E404, W602, W603,
                                   W604, E205, E206, E207, E209, E210, E211, E215, E217, E219, E301, E302, E303,
                                   E304, E305, E306, E307, E308, E309, E310, E311, E312, E313, E314, E401, E503,
                                   E508, W601, E315, E317, E318, E405, E502, E505, E509};
static bool seen[COUNT(codes)];

/* Each on its own: a mistake ends a trace. */
static void trace_item(const char *name, const char *words, const char *function, diagnostics *d)
{
    traced *t = traced_open(name, words);
    if (traced_bind(t, function)) traced_run(t, false);
    for (int i = 0; i < t->d.count; i++) {
        const diagnostic *one = &t->d.items[i];
        if (!error_code_is_warning(one->code)) diagnose(d, one->code, one->at, one->advice, "%s", one->message);
    }
    traced_close(t);
}

static void diagnostics_of(const char *name, const char *words, size_t length, text *out)
{
    arena *memory = arena_new();
    diagnostics d = {.memory = memory};
    ast_file *file = lang_parse(memory, name, words, length, &d);
    lang_check(file, &d);
    bool sound = !d.errors;
    for (int i = 0; i < file->items.count && sound; i++)
        if (file->items.items[i]->kind == AST_KERNEL || file->items.items[i]->kind == AST_RAW)
            instance_lower(file, file->items.items[i], memory, &d);
    for (int i = 0; i < file->items.count && sound; i++)
        if (file->items.items[i]->kind == AST_TENSOR) trace_item(name, words, file->items.items[i]->name, &d);
    diagnostics_print(&d, file, false, out);
    for (int i = 0; i < d.count; i++)
        for (int k = 0; k < COUNT(codes); k++) seen[k] |= d.items[i].code == codes[k];
    arena_free(memory);
}

static void run_file(const char *name)
{
    char path[1024], expected_path[1024];
    snprintf(path, sizeof(path), FOLDER "/%s", name);
    snprintf(expected_path, sizeof(expected_path), FOLDER "/%.*s.expected", (int)strlen(name) - 3, name);
    char *words = NULL, *expected = NULL;
    size_t length = 0, expected_length = 0;
    qn_error error;
    if (file_read(path, 1 << 24, &words, &length, &error) != QN_OK) {
        printf("%s\n", error.message);
        test_failed++;
        return;
    }
    text actual = {0};
    diagnostics_of(name, words, length, &actual);
    if (environment_get("QUERN_BLESS")) {
        EXPECT(file_write(expected_path, text_get(&actual), actual.length, &error) == QN_OK);
    } else if (file_read(expected_path, 1 << 24, &expected, &expected_length, &error) != QN_OK) {
        test_fail(path, 1, error.message);
    } else {
        test_text(text_get(&actual), expected, path, 1);
    }
    text_free(&actual);
    free(words);
    free(expected);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int main(int argc, char **argv)
{
    DIR *folder = opendir(FOLDER);
    char **names = NULL;
    int count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 3, ".qn")) continue;
        names = realloc(names, sizeof(*names) * (size_t)(count + 1));
        names[count++] = strdup(entry->d_name);
    }
    if (folder) closedir(folder);
    if (count) qsort(names, (size_t)count, sizeof(*names), compare);
    for (int i = 0; i < count; i++) {
        if (argc < 2 || !strcmp(argv[1], names[i])) {
            test_failures_of_case = 0;
            run_file(names[i]);
            if (test_failures_of_case)
                test_failed++;
            else
                test_passed++;
        }
        free(names[i]);
    }
    free(names);
    for (int k = 0; k < COUNT(codes) && argc < 2; k++) {
        if (seen[k]) continue;
        printf("no file of tests/errors shows %s\n", error_code_text(codes[k]));
        test_failed++;
    }
    printf("%d passed, %d failed\n", test_passed, test_failed);
    return test_failed != 0;
}
