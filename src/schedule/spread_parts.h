/*
 * What teams.c and homes.c share.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_SCHEDULE_SPREAD_PARTS_H
#define QUERN_SCHEDULE_SPREAD_PARTS_H

#include "schedule/spread.h"

enum {
    MOST_UNROLLED =
        64,            /* elements of a thread that are written out; of rows in registers and slots as many as it has */
    IN_FLIGHT = 32,    /* registers for loads before their use */
    MOST_IN_FLIGHT = 4 /* chunks, unless they go to kept registers */
};

/* teams.c */
int layout_words_of_row(const survey *e); /* words of kept tiles that each element of the row has at once */
int layout_single_inner(const pass_layout *l);
/* homes.c */
int layout_live_registers(const survey *e, int number, const int *registers);
int layout_resident_blocks(survey *e);
qn_status layout_choose_homes(survey *e, qn_error *error);

#endif
