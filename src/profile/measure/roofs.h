/*
 * How near a kernel comes to what the machine can: see roofs.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_MEASURE_ROOFS_H
#define QUERN_PROFILE_MEASURE_ROOFS_H

#include "base/record.h"

#include <quern/bench.h>

/* The share of the nearest ceiling that one launch of `time_ns` reaches, and which that is: "memory", "compute",
 * "tensor cores" or "products" (of a CPU). NAN, and NULL: not known. */
double roof_share(const qn_roofline *r, const record_facts *f, double time_ns, const char **bound);
/* The same of arithmetic alone: "compute", or what limit_is_products knows for what is faster than multiply-adds could be.
 * `shapes` tells the types; NULL: not known. */
double compute_share(const qn_roofline *r, const char *shapes, double gflop_per_s, const char **bound);
bool limit_is_products(const char *limit);
bool share_is_above(double share); /* shown as more than 100 %: no kernel does that, so the page says why */
/* The name of a limit as every table and page shows it: with the reason where the share of it is above 100 %. `limit` is
 * a bound of roof_share or a limit of a bench; NULL stays NULL. */
extern const char above_words[]; /* why a share may be more than 100 % */
const char *limit_words(double share, const char *limit);
qn_roofline roofline_from(const qn_ceilings *c); /* what little they tell; 0 where nothing */

#endif
