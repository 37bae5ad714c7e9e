/*
 * `quern fmt`: the canonical form of .qn files, to stdout, back into the files, or only compared.
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct buffer {
    char *data;
    size_t length, capacity;
} buffer;

static void buffer_add(void *user, const char *text, size_t length)
{
    buffer *b = user;
    if (b->length + length + 1 > b->capacity) {
        b->capacity = (b->length + length + 1) * 2;
        b->data = memory_or_exit(b->data, b->capacity);
    }
    if (length) memcpy(b->data + b->length, text, length);
    b->length += length;
    b->data[b->length] = 0;
}

static bool read_file(const char *path, buffer *out)
{
    bool from_input = !strcmp(path, "-");
    FILE *file = from_input ? stdin : open_for_reading(path);
    char block[65536];
    size_t got;
    if (!file) return complain("cannot open %s: %s", path, strerror(errno)), false;
    buffer_add(out, "", 0);
    while ((got = fread(block, 1, sizeof(block), file)) > 0 && out->length <= (16u << 20)) buffer_add(out, block, got);
    bool good = !ferror(file);
    if (!good) complain("cannot read %s: %s", path, strerror(errno));
    if (!from_input) fclose(file);
    if (good && strlen(out->data) != out->length) return complain("%s holds a NUL byte: it is not a text", path), false;
    return good;
}

/* Aside, in a file that was not there, then renamed: a crash leaves the old file. A link stays one, and rights stay. */
static bool replace_file(const char *link, const buffer *text)
{
    char path[PATH_MAX], aside[PATH_MAX + 32];
    struct stat about;
    if (!realpath(link, path) || stat(path, &about))
        return complain("cannot find %s: %s", link, strerror(errno)), false;
    snprintf(aside, sizeof(aside), "%s.%d.quern-fmt", path, (int)getpid());
    int number = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *file = number < 0 ? NULL : fdopen(number, "wb");
    if (!file) return complain("cannot write %s: %s", aside, strerror(errno)), false;
    bool good = !fchmod(number, about.st_mode & 07777) && fwrite(text->data, 1, text->length, file) == text->length;
    good = !fclose(file) && good;
    good = good && !rename(aside, path);
    if (!good) {
        complain("cannot write %s: %s", path, strerror(errno));
        remove(aside);
    }
    return good;
}

static int format_one(const char *path, const arguments *given)
{
    buffer source = {0}, result = {0};
    qn_error error;
    int status = EXIT_OK;
    if (!read_file(path, &source)) {
        status = EXIT_WRONG_CALL;
    } else if (qn_format_text(path, source.data, buffer_add, &result, &error) != QN_OK) {
        status = report_error(&error);
    } else {
        bool same = source.length == result.length && !memcmp(source.data, result.data, source.length);
        if (given->check && !same) {
            print_safely(stdout, "%s\n", path);
            status = EXIT_FINDING;
        } else if (!given->check && given->write && strcmp(path, "-") != 0) {
            if (!same && !replace_file(path, &result)) status = EXIT_WRONG_CALL;
        } else if (!given->check) {
            write_data(NULL, result.data, result.length);
        }
    }
    free(source.data);
    free(result.data);
    return status;
}

int command_fmt(const command *self, const arguments *given)
{
    int worst = EXIT_OK;
    if (given->check && given->write) {
        complain("--check and --write contradict each other: take one (see `quern %s --help`)", self->name);
        return EXIT_WRONG_CALL;
    }
    for (int i = 0; i < given->words.count; i++) {
        int status = format_one(given->words.items[i], given);
        if (status > worst) worst = status;
    }
    return worst;
}
