/*
 * Kernels' texts on the page: see report/sources.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_REPORT_SOURCES_H
#define QUERN_PROFILE_REPORT_SOURCES_H

#include "profile/report/report.h"
#include "run/workbench/texts.h"

typedef struct source_item {
    const char *title, *about, *missing; /* missing: why a text is not there; NULL: nothing is missing */
    const void *key;                     /* what it is the text of */
    int line;                            /* where the kernel begins; 0: not known */
    kernel_texts *texts;
    bool owned;
} source_item;
typedef struct source_list { /* zero-initialise but for the memory */
    arena *memory;
    source_item *items;
    int count, capacity, left_out;
} source_list;

void sources_of_model(report_model *m, source_list *list);              /* and sets the kernels' numbers */
int sources_add(source_list *list, const source_item *item);            /* its number */
void sources_compile(source_list *list, qn_context *context, int slot); /* PTX and SASS, within some seconds */
void sources_put(const source_list *list, text *out);
void sources_free(source_list *list);

#endif
