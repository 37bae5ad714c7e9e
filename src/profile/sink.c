/*
 * Files that are written piece by piece. In: bytes. Out: the file, whole, or nothing and a reason. Where and how is
 * base/aside.c's: aside, links and rights stay, what is no plain file (a pipe, a terminal, /dev/null) is written as it comes.
 * SPDX-License-Identifier: MIT
 */
#include "profile/sink.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PIECE = 1 << 16 };

struct sink {
    file_aside *file;
    text pending;    /* not packed: small pieces go out together */
    deflate *packer; /* NULL: as it is */
    int64_t written;
    qn_status status; /* of the first failure, with its words */
    qn_error error;
};

qn_status sink_open(const char *path, sink **out, qn_error *error)
{
    *out = NULL;
    size_t length = strlen(path);
    sink *s = calloc(1, sizeof(*s));
    bool packed = length > 3 && !strcmp(path + length - 3, ".gz");
    if (s && packed) s->packer = deflate_open();
    qn_status status = s && (!packed || s->packer) ? file_begin(path, &s->file, error)
                                                   : error_set(error, QN_NO_MEMORY, "no memory to write %s", path);
    if (status == QN_OK) {
        *out = s;
        return QN_OK;
    }
    if (s) deflate_close(s->packer);
    heap_free(s);
    return status;
}

/* Of what waits, as soon as it is a piece; or all of it. */
static void write_out(sink *s, text *from, bool all)
{
    if (from->length < (all ? 1 : PIECE)) return;
    if (s->status == QN_OK) s->status = file_append(s->file, from->data, from->length, &s->error);
    s->written += (int64_t)from->length;
    text_clear(from);
}

void sink_add(sink *s, const char *bytes, size_t count)
{
    if (s->packer)
        deflate_add(s->packer, bytes, count);
    else
        text_add_bytes(&s->pending, bytes, count);
    write_out(s, s->packer ? deflate_output(s->packer) : &s->pending, false);
}

int64_t sink_bytes(const sink *s)
{
    return s->written + (int64_t)(s->packer ? deflate_output(s->packer) : &s->pending)->length;
}

qn_status sink_close(sink *s, bool whole, qn_error *error)
{
    if (!s) return QN_OK;
    if (whole && s->packer) deflate_end(s->packer);
    if (whole) write_out(s, s->packer ? deflate_output(s->packer) : &s->pending, true);
    qn_status status = s->status;
    if (!whole || status != QN_OK) {
        qn_error ignored;
        (void)!file_end(s->file, QN_FAILED, &ignored);
    } else {
        status = file_end(s->file, QN_OK, &s->error);
    }
    if (status != QN_OK) (void)!error_set(error, status, "%s; nothing is left there", s->error.message);
    deflate_close(s->packer);
    text_free(&s->pending);
    heap_free(s);
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
