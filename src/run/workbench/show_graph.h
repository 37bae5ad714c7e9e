/*
 * Inside `show`: tensor functions. SPDX-License-Identifier: MIT
 */
#ifndef QUERN_RUN_WORKBENCH_SHOW_GRAPH_H
#define QUERN_RUN_WORKBENCH_SHOW_GRAPH_H

#include "fuse/fuse.h"
#include "run/workbench/show.h"

bool show_is_graph(const char *stage); /* graph, fusion, memory: stages of tensor functions alone */
/* Any stage of a tensor function; stages of kernels for each kernel that it becomes. */
qn_status show_function(qn_context *context, kernel_entry *entry, qn_mode mode, qn_products products,
                        const qn_show_options *options, const show_taker *taker, text *out, qn_error *error);

/* show_picture.c: SVG. names: of leaves, by storage less 1. */
void show_picture(const fuse_plan *plan, const node *results, int count, const char *const *names, int name_count,
                  text *out);

#endif
