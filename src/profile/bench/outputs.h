/*
 * The files that a profile leaves: see outputs.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_BENCH_OUTPUTS_H
#define QUERN_PROFILE_BENCH_OUTPUTS_H

#include "profile/session.h"

typedef struct profile_outputs profile_outputs;
/* Reads p->options.outputs: opens the trace, makes sure that the other files can be written, sets the schedule. Nothing
 * is left if it fails. */
qn_status outputs_open(qn_profile *p, qn_error *error);
/* Writes all of them when the profile has stopped. The first failure is told; the others are written. */
qn_status outputs_write(qn_profile *p, qn_error *error);
void outputs_free(qn_profile *p); /* what was not written is not left behind */

#endif
