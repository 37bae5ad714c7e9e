/*
 * Files that are written piece by piece. In: bytes. Out: the file, whole, or nothing and a reason.
 *
 * What is not a regular file (a pipe, a terminal, /dev/null) has no name to be given at the end: it is written as it
 * comes.
 * SPDX-License-Identifier: MIT
 */
#include "profile/sink.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 16 };

struct sink {
    char *path, *aside; /* aside NULL: it is written where it is */
    FILE *file;
    deflate *packer; /* NULL: as it is */
    int64_t written;
    int failed; /* errno of the first failure */
};

static void sink_free(sink *s)
{
    if (!s) return;
    deflate_close(s->packer);
    heap_free(s->path);
    heap_free(s->aside);
    heap_free(s);
}

qn_status sink_open(const char *path, sink **out, qn_error *error)
{
    struct stat about;
    *out = NULL;
    size_t length = strlen(path);
    sink *s = calloc(1, sizeof(*s));
    if (!s) return error_set(error, QN_NO_MEMORY, "no memory to write %s", path);
    bool packed = length > 3 && !strcmp(path + length - 3, ".gz"), there = !stat(path, &about);
    s->path = strdup(path);
    if (packed) s->packer = deflate_open();
    if (!there || S_ISREG(about.st_mode)) s->aside = malloc(length + 64);
    if (!s->path || (packed && !s->packer) || ((!there || S_ISREG(about.st_mode)) && !s->aside)) {
        sink_free(s);
        return error_set(error, QN_NO_MEMORY, "no memory to write %s", path);
    }
    if (s->aside) snprintf(s->aside, length + 64, "%s.%d.%llu.part", path, (int)getpid(), number_unique());
    s->file = there && S_ISDIR(about.st_mode) ? (errno = EISDIR, NULL) : fopen(s->aside ? s->aside : path, "wb");
    if (!s->file) {
        int reason = errno;
        sink_free(s);
        return error_set(error, QN_BAD_FILE, "cannot write %s: %s", path, strerror(reason));
    }
    *out = s;
    return QN_OK;
}

static void write_out(sink *s, const char *bytes, size_t count)
{
    if (s->failed || !count) return;
    errno = 0;
    if (fwrite(bytes, 1, count, s->file) != count) s->failed = errno ? errno : EIO;
    s->written += (int64_t)count;
}

void sink_add(sink *s, const char *bytes, size_t count)
{
    if (!s->packer) {
        write_out(s, bytes, count);
        return;
    }
    deflate_add(s->packer, bytes, count);
    text *packed = deflate_output(s->packer);
    if (packed->length < PIECE) return;
    write_out(s, packed->data, packed->length);
    text_clear(packed);
}

int64_t sink_bytes(const sink *s)
{
    return s->written + (s->packer ? (int64_t)deflate_output(s->packer)->length : 0);
}

qn_status sink_close(sink *s, bool whole, qn_error *error)
{
    qn_status status = QN_OK;
    if (!s) return QN_OK;
    if (whole && s->packer) {
        deflate_end(s->packer);
        const text *packed = deflate_output(s->packer);
        write_out(s, packed->data, packed->length);
    }
    if (fclose(s->file) && !s->failed) s->failed = errno;
    if (whole && !s->failed && s->aside && rename(s->aside, s->path)) s->failed = errno;
    if (s->aside && (!whole || s->failed)) unlink(s->aside);
    if (s->failed)
        status =
            error_set(error, QN_BAD_FILE, "cannot write %s: %s; nothing is left there", s->path, strerror(s->failed));
    sink_free(s);
    return status;
}

qn_status sink_probe(const char *path, qn_error *error)
{
    struct stat about;
    if (!stat(path, &about) && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode)) return QN_OK;
    sink *s;
    QN_TRY(sink_open(path, &s, error));
    return sink_close(s, false, error);
}
