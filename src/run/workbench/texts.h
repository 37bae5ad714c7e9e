/*
 * A kernel's texts side by side: what the user wrote, what became of it, line for line. For reports, which are written
 * when the kernel itself may be gone.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_WORKBENCH_TEXTS_H
#define QUERN_RUN_WORKBENCH_TEXTS_H

#include "run/run.h"

/* What a text says beside its words: the line of the source that a line of it came from. */
typedef struct text_line {
    const char *words;
    int source_line; /* 0: of none */
} text_line;

typedef struct kernel_text {
    const char *stage; /* "c", "cuda", "tile", "ptx", "sass" */
    text_line *lines;
    int count, capacity;
} kernel_text;

typedef struct kernel_texts {
    arena *memory;    /* all of it */
    const char *file; /* NULL: the lines are operations that were fused */
    const char *name;
    text_line *source; /* source_line counts from 1 */
    int source_count, source_capacity;
    kernel_text stages[3];
    int stage_count;
    const char *whole; /* of CUDA: all of the text, for its compiler */
    bool raw;
} kernel_texts;

/* Source and generated text of a kernel that went through the pipeline; NULL: there is none. */
kernel_texts *texts_make(qn_context *context, int slot, const tile_kernel *k);
/* Adds PTX, and SASS where the tools are there, for the GPU at the slot (another device: for the usual GPU). Takes about
 * a second. Fails where there is no NVRTC. */
qn_status texts_compile(kernel_texts *t, qn_context *context, int slot, qn_error *error);
void texts_free(kernel_texts *t);

/* The variant goes: records that know it keep its texts instead. */
void texts_retire(qn_context *context, int slot, const variant *v);

#endif
