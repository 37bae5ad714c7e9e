/*
 * A file that is written piece by piece: aside, under its own name only when it is whole. A name that ends in .gz is
 * compressed on the way. Memory does not grow with the file.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_SINK_H
#define QUERN_PROFILE_SINK_H

#include "base/base.h"

typedef struct sink sink;
/* Fails where nothing can be written there, before any work is done. */
qn_status sink_open(const char *path, sink **out, qn_error *error);
void sink_add(sink *s, const char *bytes, size_t count); /* what fails is told at the end */
int64_t sink_bytes(const sink *s);                       /* on disk, about: what is compressed counts compressed */
/* The file gets its name, or an earlier failure is told and nothing is left. whole false: nothing is left. */
qn_status sink_close(sink *s, bool whole, qn_error *error);
/* Can a file be written there? Leaves nothing. */
qn_status sink_probe(const char *path, qn_error *error);

/* deflate.c */
typedef struct deflate deflate;
deflate *deflate_open(void); /* NULL without memory */
void deflate_close(deflate *d);
void deflate_add(deflate *d, const char *bytes, size_t count);
void deflate_end(deflate *d);
text *deflate_output(deflate *d); /* what came out so far; the caller clears it */

#endif
