/*
 * Schedules that the user has changed: of kernels by name, followed when such a kernel is compiled.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_COMPILE_EDITED_H
#define QUERN_RUN_COMPILE_EDITED_H

#include "run/run.h"

/* Sets the knobs of a kernel that went through the pipeline as its edited schedule has them, if there is one; an error where
 * the device cannot run what it says. */
qn_status edited_follow(qn_context *context, int slot, tile_kernel *k, qn_error *error);
void edited_free(struct edited_schedule *all); /* NULL is fine */

#endif
