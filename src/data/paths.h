/*
 * Words that a user gave as data, as a list of files: see paths.c.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DATA_PATHS_H
#define QUERN_DATA_PATHS_H

#include "base/base.h"

typedef struct path_list {
    char **items;
    int count, capacity;
} path_list;
/* Files stay as they are, folders become their data files by name, patterns what they match. */
qn_status paths_expand(const char *const *words, int count, path_list *list, qn_error *error);
void paths_free(path_list *list);

#endif
