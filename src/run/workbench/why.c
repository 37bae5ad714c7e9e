/*
 * Why each variant exists. In: every variant that is made. Out: one line per variant in a file beside the cache, and
 * for `show --why` the list for one kernel with what each has that the nearest earlier one has not. A line: file,
 * kernel, device, constants, facts, with tabs between. Lines are appended whole; a file that grew too long loses its
 * older half. A damaged line is skipped. SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "run/compile/cache.h"
#include "run/run.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define RECORD_LIMIT_BYTES ((size_t)1 << 20)

/* Calls for each word of a space-separated list; returns the next one, or NULL at the end. */
static const char *next_word(const char *list, size_t *length)
{
    list += strspn(list, " ");
    *length = strcspn(list, " ");
    return *length ? list : NULL;
}

/* The word of `list` with the same part before '=' (the whole word where there is none), or NULL. */
static const char *find_word(const char *list, const char *word, size_t length, size_t *found_length)
{
    size_t name = strcspn(word, "= ");
    if (name > length) name = length;
    for (const char *w = list; (w = next_word(w, found_length)); w += *found_length) {
        size_t other = strcspn(w, "= ");
        if (other == name && !memcmp(w, word, name)) return w;
    }
    return NULL;
}

/* Visits what differs; counts, and writes where out is given. */
static int differences(const char *facts, const char *earlier, text *out)
{
    int count = 0;
    size_t length, other_length;
    for (const char *w = facts; (w = next_word(w, &length)); w += length) {
        const char *other = find_word(earlier, w, length, &other_length);
        if (other && other_length == length && !memcmp(w, other, length)) continue;
        const char *gap = count++ ? ", " : "";
        const char *value = memchr(w, '=', length);
        if (out && other && value) {
            const char *old = (const char *)memchr(other, '=', other_length) + 1;
            text_print(out, "%s%.*s is %.*s instead of %.*s", gap, (int)(value - w), w, (int)(w + length - value - 1),
                       value + 1, (int)(other + other_length - old), old);
        } else if (out) {
            text_print(out, "%swith %.*s", gap, (int)length, w);
        }
    }
    for (const char *w = earlier; (w = next_word(w, &length)); w += length) {
        if (find_word(facts, w, length, &other_length)) continue;
        const char *gap = count++ ? ", " : "";
        if (out) text_print(out, "%swithout %.*s", gap, (int)length, w);
    }
    if (!count && out) text_add(out, "nothing differs");
    return count;
}

void facts_differ(const char *facts, const char *earlier, text *out)
{
    differences(facts, earlier, out);
}

int facts_distance(const char *facts, const char *earlier)
{
    return differences(facts, earlier, NULL);
}

static bool record_path(qn_context *context, char *path, size_t size)
{
    if (context->no_cache) return false;
    return snprintf(path, size, "%s/variants.log", cache_folder(context_cache(context))) < (int)size;
}

/* The file that a record names: absolute where it exists. */
static void file_of(const kernel_entry *entry, char *path)
{
    if (!realpath(entry->module->path, path)) snprintf(path, PATH_MAX, "%s", entry->module->path);
}

void why_record(qn_context *context, const kernel_entry *entry, const char *device, const char *constants,
                const char *facts)
{
    char path[PATH_MAX], file[PATH_MAX], *old = NULL;
    size_t old_size = 0;
    if (!record_path(context, path, sizeof(path))) return;
    file_of(entry, file);
    if (strpbrk(file, "\t\n") || strpbrk(constants, "\t\n")) return;
    text line = {0};
    text_print(&line, "%s\t%s\t%s\t%s\t%s\n", file, entry->name, device, constants, facts);
    bool known = false;
    if (file_read_own(path, 4 * RECORD_LIMIT_BYTES, &old, &old_size, NULL) == QN_OK) {
        for (const char *at = old; !known && (at = strstr(at, text_get(&line))); at++)
            known = at == old || at[-1] == '\n';
        if (old_size > RECORD_LIMIT_BYTES) {
            const char *half = strchr(old + old_size / 2, '\n');
            if (half) (void)!file_write(path, half + 1, (size_t)(old + old_size - half - 1), NULL);
        }
        heap_free(old);
    }
    if (!known) (void)file_append_own(path, text_get(&line), line.length); /* losing a line harms nothing */
    text_free(&line);
}

typedef struct record {
    const char *fields[5]; /* file, kernel, device, constants, facts */
} record;

static bool split(char *line, record *r)
{
    for (int i = 0; i < 5; i++) {
        r->fields[i] = line;
        line = strchr(line, '\t');
        if (!line) return i == 4;
        *line++ = 0;
    }
    return false;
}

static bool same_group(const record *a, const record *b)
{
    return !strcmp(a->fields[2], b->fields[2]) && !strcmp(a->fields[3], b->fields[3]);
}

/* The variants of one instance (constants and types) on one device, in the order in which they were made. A process has
 * at most MAX_VARIANTS of them; the record is of all processes, so the oldest are left out. */
static void print_group(const record *records, int first, int count, const char *name, text *out)
{
    const record *head = &records[first];
    int all = 0;
    for (int i = first; i < count; i++) all += same_group(head, &records[i]);
    text_print(out, "%s on %s, instance %s\n", name, head->fields[2],
               *head->fields[3] ? head->fields[3] : "without constants and types");
    if (all > MAX_VARIANTS)
        text_print(out, "  (the last %d of %d; the others are of earlier runs)\n", MAX_VARIANTS, all);
    bool older = all > MAX_VARIANTS;
    for (; all > MAX_VARIANTS; all -= same_group(head, &records[first++])) continue;
    while (!same_group(head, &records[first])) first++;
    int number = 0;
    for (int i = first; i < count; i++) {
        if (!same_group(head, &records[i])) continue;
        const char *facts = records[i].fields[4], *nearest = NULL;
        int least = 0, nearest_number = 0, before = 0;
        for (int j = first; j < i; j++) {
            if (!same_group(head, &records[j])) continue;
            before++;
            int distance = facts_distance(facts, records[j].fields[4]);
            if (nearest && distance >= least) continue;
            nearest = records[j].fields[4];
            nearest_number = before;
            least = distance;
        }
        text_print(out, "  variant %d assumes %s\n", ++number,
                   *facts ? facts : "nothing, and serves all other launches");
        if (nearest) {
            text_print(out, "    because, unlike variant %d: ", nearest_number);
            facts_differ(facts, nearest, out);
            text_add(out, "\n");
        } else {
            text_add(out, older ? "    because it was the oldest of these\n"
                                : "    because it was the first launch of these constants and types\n");
        }
    }
}

void why_print(qn_context *context, const kernel_entry *entry, text *out)
{
    char path[PATH_MAX], file[PATH_MAX], *words = NULL;
    size_t size;
    lock_take(&context->lock);
    bool there = record_path(context, path, sizeof(path));
    lock_give(&context->lock);
    file_of(entry, file);
    arena *memory = arena_new();
    record *records = NULL;
    int count = 0, capacity = 0;
    if (there && file_read_own(path, 4 * RECORD_LIMIT_BYTES, &words, &size, NULL) == QN_OK)
        for (char *line = words, *end; (end = strchr(line, '\n')); line = end + 1) {
            record r;
            *end = 0;
            if (!split(line, &r) || strcmp(r.fields[0], file) || strcmp(r.fields[1], entry->name)) continue;
            ARENA_PUSH(memory, records, count, capacity, r);
        }
    if (!count)
        text_print(out, "No variant of %s has been compiled with this cache yet: run it, then ask again.\n",
                   entry->name);
    for (int i = 0; i < count; i++) {
        bool first = true;
        for (int j = 0; j < i; j++) first &= !same_group(&records[i], &records[j]);
        if (first) print_group(records, i, count, entry->name, out);
    }
    heap_free(words);
    arena_free(memory);
}

void why_forget(qn_context *context, int64_t *removed_files, int64_t *removed_bytes)
{
    char path[PATH_MAX];
    struct stat about;
    if (!record_path(context, path, sizeof(path)) || stat(path, &about) || remove(path)) return;
    ++*removed_files;
    *removed_bytes += about.st_size;
}
