/*
 * What the files of `quern profile` share: cmd_profile.c (the options, a kernel that runs here), profile_program.c (a program
 * that is started), profile_files.c (what is written).
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_CLI_PROFILE_PARTS_H
#define QUERN_CLI_PROFILE_PARTS_H

#include "cli.h"

#include <quern/profile.h>

/* Settings in the words of QUERN_PROFILE. */
typedef struct profile_words {
    char text[8192];
    size_t length;
    bool too_long;
} profile_words;

/* profile_files.c */
void profile_add(profile_words *w, const char *text, bool quoted);
void profile_add_setting(profile_words *w, const char *key, const char *value); /* value: or NULL, nothing */
void profile_add_path(profile_words *w, const char *key, const char *path); /* from the root; path: or NULL, nothing */
void profile_add_whole(profile_words *w, const char *key, long number);

/* Files beside the profile that the report reads; removed at the end. */
typedef struct profile_kept {
    char counters[4096], stalls[4096]; /* empty: there is none */
} profile_kept;
void profile_remove_kept(const profile_kept *kept);
bool profile_open_temporary(char *path, size_t size);
bool profile_write_whole(const char *path, const char *text, size_t length); /* "-": to stdout */

/* Text that comes in parts; on the heap. */
typedef struct profile_text {
    char *text;
    size_t length;
} profile_text;
void profile_gather(void *text, const char *part, size_t length); /* a qn_write */
void profile_print_hints(const char *text, size_t length);

bool profile_counts_wanted(const arguments *given);

/* profile_program.c */
int profile_program(const arguments *given, profile_words *outputs);

#endif
