/*
 * The debugger, by scripts: tests/debug/NAME.script holds commands, its first line "# FILE.qn KERNEL n=10 ..." says
 * what to run (inputs are ramps unless the file's bench says otherwise); NAME.expected is what the session writes.
 * QUERN_BLESS=1 rewrites the expected texts.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "test.h"

#include <dirent.h>
#include <quern/workbench.h>
#include <stdlib.h>

#define FOLDER QUERN_ROOT "/tests/debug"

typedef struct session {
    char *next; /* of the script */
    text output;
} session;

static bool read_line(void *user, const char *prompt, char *line, size_t size)
{
    session *s = user;
    if (!*s->next) return false;
    size_t length = strcspn(s->next, "\n");
    snprintf(line, size, "%.*s", (int)length, s->next);
    s->next += length + (s->next[length] == '\n');
    text_print(&s->output, "%s%s\n", prompt, line); /* as it would look on a terminal */
    return true;
}

static void write_text(void *user, const char *words, size_t length)
{
    text_add_bytes(&((session *)user)->output, words, length);
}

/* The first line of the script: the call. NULL with a message printed. */
static qn_call *make_call(qn_context *context, char *header, qn_module **module)
{
    qn_error error = {0};
    qn_call *call = NULL;
    char *rest = NULL, path[512];
    strtok_r(header, " \n", &rest); /* the # */
    const char *file = strtok_r(NULL, " \n", &rest), *kernel = strtok_r(NULL, " \n", &rest);
    if (!file || !kernel) return NULL;
    char *data;
    size_t size;
    snprintf(path, sizeof(path), FOLDER "/%s", file);
    /* loaded as text, so that messages name the file without its folder */
    bool good = file_read(path, 1 << 20, &data, &size, &error) == QN_OK;
    if (good) {
        good = qn_module_load_text(context, file, data, module, &error) == QN_OK &&
               qn_call_new(*module, kernel, &call, &error) == QN_OK;
        free(data);
    }
    for (char *word; good && (word = strtok_r(NULL, " \n", &rest));) {
        char *value = strchr(word, '=');
        if (!value) break;
        *value++ = 0;
        good = qn_call_set_text(call, word, value, &error) == QN_OK;
    }
    if (good) good = qn_call_generate(call, 1, &error) == QN_OK;
    if (good) return call;
    printf("%s: %s\n", path, error.message);
    qn_call_free(call);
    return NULL;
}

static void run_script(qn_context *context, const char *name)
{
    char path[600], expected_path[600];
    char *script, *expected = NULL;
    size_t size;
    qn_error error = {0};
    snprintf(path, sizeof(path), FOLDER "/%s.script", name);
    snprintf(expected_path, sizeof(expected_path), FOLDER "/%s.expected", name);
    if (file_read(path, 1 << 20, &script, &size, &error) != QN_OK) {
        test_fail(__FILE__, __LINE__, path);
        return;
    }
    session s = {.next = strchr(script, '\n')};
    *s.next++ = 0; /* the first line stands alone */
    qn_module *module = NULL;
    qn_call *call = make_call(context, script, &module);
    if (!call) {
        test_fail(__FILE__, __LINE__, path);
    } else {
        if (qn_debug(call, read_line, write_text, &s, &error) != QN_OK) {
            printf("%s: %s\n", path, error.message);
            test_fail(__FILE__, __LINE__, path);
        }
        if (getenv("QUERN_BLESS")) {
            EXPECT(file_write(expected_path, text_get(&s.output), s.output.length, &error) == QN_OK);
        } else if (file_read(expected_path, 1 << 20, &expected, &size, &error) == QN_OK) {
            if (strcmp(expected, text_get(&s.output))) printf("%s:\n", path);
            EXPECT_TEXT(text_get(&s.output), expected);
            free(expected);
        } else {
            test_fail(__FILE__, __LINE__, expected_path);
        }
    }
    text_free(&s.output);
    qn_call_free(call);
    qn_module_free(module);
    free(script);
}

TEST(every_script_gives_its_text)
{
    DIR *entries = opendir(FOLDER);
    EXPECT(entries);
    if (!entries) return;
    qn_context *context;
    qn_context_options options = {.no_cache = true};
    EXPECT(qn_context_open(&options, &context, NULL) == QN_OK);
    int scripts = 0;
    for (struct dirent *entry; (entry = readdir(entries));) {
        char name[300];
        snprintf(name, sizeof(name), "%s", entry->d_name);
        char *dot = strrchr(name, '.');
        if (!dot || strcmp(dot, ".script")) continue;
        *dot = 0;
        run_script(context, name);
        scripts++;
    }
    closedir(entries);
    EXPECT(scripts >= 5);
    qn_context_close(context);
}

TEST_MAIN(CASE(every_script_gives_its_text))
