/*
 * Which files are meant. In: files, folders, patterns. Out: files, in the order given, those of a folder or a pattern
 * sorted so that day_2 comes before day_10. SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "data/paths.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static qn_status add(path_list *list, const char *path, qn_error *error)
{
    if (list->count == list->capacity) {
        int capacity = list->capacity ? list->capacity * 2 : 16;
        char **items = realloc(list->items, sizeof(*items) * (size_t)capacity);
        if (!items) return error_set(error, QN_NO_MEMORY, "no memory for a list of files");
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count] = strdup(path);
    if (!list->items[list->count]) return error_set(error, QN_NO_MEMORY, "no memory for a list of files");
    list->count++;
    return QN_OK;
}

void paths_free(path_list *list)
{
    for (int i = 0; i < list->count; i++) free(list->items[i]);
    free(list->items);
    *list = (path_list){0};
}

static int by_name(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

static bool ends(const char *name, const char *ending)
{
    size_t length = strlen(name), tail = strlen(ending);
    return length >= tail && !strcmp(name + length - tail, ending);
}

/* What is beside the data in a folder (_SUCCESS, .crc files, notes) is left alone. */
static bool looks_like_data(const char *name)
{
    if (name[0] == '.' || name[0] == '_') return false;
    return ends(name, ".parquet") || ends(name, ".parq") || ends(name, ".tsv") || ends(name, ".txt") ||
           ends(name, ".gz") || (!strncmp(name, "day_", 4) && !strchr(name, '.'));
}

static qn_status add_folder(path_list *list, const char *path, qn_error *error)
{
    DIR *folder = opendir(path);
    if (!folder) return error_set(error, QN_BAD_FILE, "cannot open the folder %s: %s", path, strerror(errno));
    int before = list->count;
    qn_status status = QN_OK;
    for (struct dirent *entry; !status && (entry = readdir(folder));) {
        if (!looks_like_data(entry->d_name)) continue;
        text name = {0};
        text_print(&name, "%s/%s", path, entry->d_name);
        struct stat about;
        if (!stat(text_get(&name), &about) && S_ISREG(about.st_mode)) status = add(list, text_get(&name), error);
        text_free(&name);
    }
    closedir(folder);
    if (!status && list->count == before)
        return error_set(error, QN_BAD_FILE,
                         "the folder %s has no data: no *.parquet, *.tsv, *.txt, *.gz or day_* file", path);
    qsort(list->items + before, (size_t)(list->count - before), sizeof(*list->items), by_name);
    return status;
}

static qn_status add_pattern(path_list *list, const char *word, qn_error *error)
{
    glob_t found = {0};
    int before = list->count;
    qn_status status = QN_OK;
    if (glob(word, 0, NULL, &found)) status = error_set(error, QN_BAD_FILE, "no file is called %s", word);
    for (size_t i = 0; !status && i < found.gl_pathc; i++) {
        struct stat about;
        if (!stat(found.gl_pathv[i], &about) && S_ISREG(about.st_mode)) status = add(list, found.gl_pathv[i], error);
    }
    globfree(&found);
    if (!status && list->count == before) status = error_set(error, QN_BAD_FILE, "no file is called %s", word);
    if (!status) qsort(list->items + before, (size_t)(list->count - before), sizeof(*list->items), by_name);
    return status;
}

qn_status paths_expand(const char *const *words, int count, path_list *list, qn_error *error)
{
    qn_status status = QN_OK;
    *list = (path_list){0};
    for (int i = 0; i < count && !status; i++) {
        struct stat about;
        if (!words[i] || !*words[i])
            status = error_set(error, QN_BAD_CALL, "the name of a data file is empty");
        else if (!stat(words[i], &about))
            status = S_ISDIR(about.st_mode) ? add_folder(list, words[i], error) : add(list, words[i], error);
        else if (strpbrk(words[i], "*?["))
            status = add_pattern(list, words[i], error);
        else
            status = error_set(error, QN_BAD_FILE, "cannot open %s: %s", words[i], strerror(errno));
    }
    if (status) paths_free(list);
    return status;
}
