/*
 * What layout.c and layout_homes.c share.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_EMIT_CUDA_LAYOUT_PARTS_H
#define QUERN_EMIT_CUDA_LAYOUT_PARTS_H

#include "emit/cuda/layout.h"

enum {
    MOST_UNROLLED =
        64,            /* elements of a thread that are written out; of rows in registers and slots as many as it has */
    IN_FLIGHT = 32,    /* registers for loads before their use */
    MOST_IN_FLIGHT = 4 /* chunks, unless they go to kept registers */
};

/* layout.c */
int layout_words_of_row(const emitter *e); /* words of kept tiles that each element of the row has at once */
int layout_single_inner(const pass_layout *l);
/* layout_homes.c */
int layout_live_registers(const emitter *e, int number, const int *registers);
int layout_resident_blocks(const emitter *e);
qn_status layout_choose_homes(emitter *e, qn_error *error);

#endif
