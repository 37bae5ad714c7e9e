/*
 * What both kinds of `quern profile` share: the words of QUERN_PROFILE that say what to write, and the files beside the
 * profile that its report reads.
 * SPDX-License-Identifier: MIT
 */
#include "profile_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void profile_add(profile_words *w, const char *text, bool quoted)
{
    for (; *text; text++) {
        bool special = quoted && (*text == ',' || *text == '\\' || *text == '%');
        if (w->length + 3 > sizeof(w->text)) {
            w->too_long = true;
            return;
        }
        if (special) w->text[w->length++] = '\\';
        w->text[w->length++] = *text;
    }
    w->text[w->length] = 0;
}

void profile_add_setting(profile_words *w, const char *key, const char *value)
{
    if (!value) return;
    if (w->length) profile_add(w, ",", false);
    profile_add(w, key, false);
    profile_add(w, "=", false);
    profile_add(w, value, true);
}

void profile_add_path(profile_words *w, const char *key, const char *path)
{
    char here[4096], whole[8192];
    if (!path) return;
    if (path[0] != '/' && getcwd(here, sizeof(here))) {
        snprintf(whole, sizeof(whole), "%s/%s", here, path);
        path = whole;
    }
    profile_add_setting(w, key, path);
}

void profile_add_whole(profile_words *w, const char *key, long number)
{
    char digits[32];
    snprintf(digits, sizeof(digits), "%ld", number);
    profile_add_setting(w, key, digits);
}

void profile_gather(void *user, const char *text, size_t length)
{
    profile_text *g = user;
    g->text = memory_or_exit(g->text, g->length + length + 1);
    memcpy(g->text + g->length, text, length);
    g->length += length;
    g->text[g->length] = 0;
}

void profile_print_hints(const char *text, size_t length)
{
    if (!length) return;
    printf("\nhints\n");
    write_safely(stdout, text, length);
}

bool profile_open_temporary(char *path, size_t size)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, size, "%s/quern-counters-XXXXXX", folder && *folder ? folder : "/tmp");
    int file = mkstemp(path);
    if (file < 0) {
        complain("cannot make a file like %s: %s", path, strerror(errno));
        *path = 0;
        return false;
    }
    close(file);
    return true;
}

bool profile_write_whole(const char *path, const char *text, size_t length)
{
    qn_error error;
    bool out = !strcmp(path, "-"), good = out && fwrite(text, 1, length, stdout) == length;
    if (out && !good) complain("cannot write %s: %s", path, strerror(errno));
    if (!out && !(good = qn_file_write(path, text, length, &error) == QN_OK)) complain("%s", error.message);
    return good;
}

void profile_remove_kept(const profile_kept *kept)
{
    if (*kept->counters) unlink(kept->counters);
    if (*kept->stalls) unlink(kept->stalls);
}

bool profile_counts_wanted(const arguments *given)
{
    return given->counters || given->counters_json;
}
