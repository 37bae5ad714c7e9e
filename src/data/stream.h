/*
 * A file's bytes from its beginning to its end, expanded if it is a gzip file: see stream.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DATA_STREAM_H
#define QUERN_DATA_STREAM_H

#include "data/source.h"

typedef struct stream stream;
/* NULL: no memory, or no zlib for a gzip file. The file must outlive the stream. */
stream *stream_open(const data_file *file, bool gzip);
void stream_close(stream *s);
/* Up to `room` bytes, more than none before the end; 0 at the end; -1: `fault` says what is wrong. */
int64_t stream_read(stream *s, void *to, size_t room, const char **fault);

#endif
