/*
 * The cache of compiled binaries: a folder of content-addressed files, shared by processes. See cache.c for what keeps
 * it whole under concurrent writers and crashes.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_COMPILE_CACHE_H
#define QUERN_RUN_COMPILE_CACHE_H

#include "base/base.h"

typedef struct cache cache;

/* A folder that is not this user's alone counts as one that cannot be written: libraries are loaded from it.
 * folder: NULL for $QUERN_CACHE, else $XDG_CACHE_HOME/quern, else ~/.cache/quern. `temporary`, or a folder that cannot
 * be written: a private folder that cache_close removes. Never fails. */
bool cache_place(const char *folder, char *out, size_t size); /* the folder, before it is made; false: none is known */
cache *cache_open(const char *folder, bool temporary);
void cache_close(cache *c); /* NULL is fine */
const char *cache_folder(const cache *c);
bool cache_lasts(const cache *c); /* the next process finds what is in its folder */
const char *cache_note(const cache *c); /* "", or one line: why nothing is kept although that was asked for */

/* Writes the binary to `path` (aside; the cache renames it). */
typedef qn_status cache_make(void *context, const char *path, qn_error *error);
/* The path of the verified binary of `key` (any text: source, tool, ABI), made with `make` if it is not there.
 * name: a readable part of the file's name. *found: it was there. Thread-safe. */
qn_status cache_get(cache *c, const char *name, const char *key, size_t key_length, cache_make *make, void *context,
                    char *path, size_t path_size, bool *found, qn_error *error);
/* A path that cache_get gave is there no more: somebody cleared the cache just now, and what it had is made again. */
bool cache_lost(const char *path);

/* One line per entry and a total; newest first. */
qn_status cache_list(cache *c, text *out, qn_error *error);
qn_status cache_clear(cache *c, int64_t *removed_files, int64_t *removed_bytes, qn_error *error);

#endif
