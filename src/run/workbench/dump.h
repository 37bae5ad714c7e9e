/*
 * The stages of a compilation as files, where QUERN_DUMP_DIR asks for them.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_WORKBENCH_DUMP_H
#define QUERN_RUN_WORKBENCH_DUMP_H

#include "run/run.h"

typedef struct dump_text {
    const char *name, *words;
    size_t length;
} dump_text;

typedef struct dump {
    qn_context *context;
    bool wanted;
    arena *memory;
    dump_text *texts;
    int count, capacity;
} dump;

void dump_begin(dump *d, qn_context *context, const tile_kernel *k);
/* A passes_observer: keeps the IR if the pass changed it. */
void dump_stage(void *context, const tile_kernel *k, const char *name, bool changed, int64_t time_ns);
/* Writes everything. binary_path: NULL if there is none, as when the compiler refused the text. */
void dump_end(dump *d, int slot, const char *kernel, const char *source, size_t length, const char *binary_path);
void dump_free(dump *d);

#endif
