/*
 * What timings depend on, as data: see environment.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_MEASURE_ENVIRONMENT_H
#define QUERN_PROFILE_MEASURE_ENVIRONMENT_H

#include "run/run.h"

#include <quern/bench.h>

void environment_fill(arena *memory, qn_context *context, int slot, qn_environment *out);
const char *time_words(arena *memory); /* now, in UTC: 2026-01-31T12:00:00Z */
const char *held_words(unsigned held); /* of HELD_BY_*: "power limit, heat" */

#endif
