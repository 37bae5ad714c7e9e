/*
 * The record of timings: tune.log beside the compiled binaries. In: a key, a configuration, a time. Out: the fastest
 * configuration for a call.
 *
 * One line a timing, only ever appended, with tabs between key, configuration and nanoseconds; a damaged line is
 * skipped. The file is read once a context, at the first call of a kernel that has a `tune` clause. A record is a wish:
 * where it does not fit a call, the call goes on as if there were none.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "run/compile/tune.h"
#include "run/compile/cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BOOK_LIMIT_BYTES ((size_t)16 << 20)

typedef struct tune_entry {
    const char *kernel, *key, *configuration; /* key: its hash */
    double median_ns;
} tune_entry;

struct tune_book {
    arena *memory;
    tune_entry *entries;
    int count, capacity;
};

bool tune_lists(const kernel_entry *entry, const char *name)
{
    if (tile_knob_find(name) != KNOB_COUNT && !entry_param(entry, name, NULL)) return true;
    for (int i = 0; entry->item && i < entry->item->clauses.count; i++) {
        const ast *clause = entry->item->clauses.items[i];
        if (strcmp(clause->word, "tune") != 0) continue;
        for (int k = 0; k < clause->list.count; k++)
            if (!strcmp(clause->list.items[k]->name, name)) return true;
    }
    return false;
}

/* ---- the key ---- */

static const char *value_words(const binding *b, arena *memory)
{
    switch (b->kind) {
    case BIND_TYPE: return arena_print(memory, "%s=%s", b->name, dtypes[b->type].text);
    case BIND_FUNCTION: return arena_print(memory, "%s=%s", b->name, b->function);
    case BIND_FLOAT: return arena_print(memory, "%s=%.17g", b->name, b->number.f);
    default: return arena_print(memory, "%s=%lld", b->name, (long long)b->number.i);
    }
}

/* 1000 and 1024 to 10, 1025 to 11. */
static const char *bucket_words(const binding *b, arena *memory)
{
    int bits = 0;
    while (bits < 62 && ((int64_t)1 << bits) < b->number.i) bits++;
    return arena_print(memory, "%s~%d", b->name, bits);
}

static int by_words(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void tune_key(const qn_call *call, int slot, const bindings *constants, const bindings *extents, text *out)
{
    const device_slot *s = &call->context->slots[slot];
    entry_source(call->kernel, out);
    text_print(out, "\ndevice %s %s\nversion " QN_VERSION "\n", s->name, slot_about(call->context, slot)->description);
    if (s->driver->tool) s->driver->tool(s->device, out);
    arena *memory = arena_new();
    const char **words =
        ARENA_ARRAY(memory, const char *, constants->count + extents->count + call->settings.count + 1);
    int count = 0;
    for (int i = 0; i < constants->count; i++)
        if (!tune_lists(call->kernel, constants->items[i].name))
            words[count++] = value_words(&constants->items[i], memory);
    for (int i = 0; i < extents->count; i++) words[count++] = bucket_words(&extents->items[i], memory);
    for (int i = 0; i < call->settings.count; i++) { /* whole scalars decide how much there is to do */
        const binding *b = &call->settings.items[i];
        const parameter *p = entry_param(call->kernel, b->name, NULL);
        if (p && !p->constant && p->rank < 0 && b->kind == BIND_INT) words[count++] = bucket_words(b, memory);
    }
    /* In the order of names: it must not matter whether an extent came from an array or from a setting. */
    qsort(words, (size_t)count, sizeof(words[0]), by_words);
    text_add(out, "shape");
    for (int i = 0; i < count; i++) text_print(out, " %s", words[i]);
    arena_free(memory);
}

qn_status tune_key_of(qn_call *call, int slot, text *out, qn_error *error)
{
    arena *memory = arena_new();
    bindings constants = {0}, extents = {0};
    qn_status status = call_constants(call, &call->settings, slot_about(call->context, slot)->units, memory, &constants,
                                      &extents, error);
    if (status == QN_OK) tune_key(call, slot, &constants, &extents, out);
    arena_free(memory);
    return status;
}

/* ---- the book ---- */

static bool book_path(qn_context *context, char *path, size_t size)
{
    if (context->no_cache) return false;
    return snprintf(path, size, "%s/tune.log", cache_folder(context_cache(context))) < (int)size;
}

static void book_put(struct tune_book *book, tune_entry e)
{
    for (int i = 0; i < book->count; i++) {
        tune_entry *old = &book->entries[i];
        if (strcmp(old->key, e.key) != 0 || strcmp(old->configuration, e.configuration) != 0) continue;
        old->median_ns = e.median_ns;
        return;
    }
    e.kernel = arena_copy_text(book->memory, e.kernel, strlen(e.kernel));
    e.key = arena_copy_text(book->memory, e.key, strlen(e.key));
    e.configuration = arena_copy_text(book->memory, e.configuration, strlen(e.configuration));
    ARENA_PUSH(book->memory, book->entries, book->count, book->capacity, e);
}

/* "kernel \t key \t configuration \t time" */
static void read_line(struct tune_book *book, char *line)
{
    char *fields[4];
    for (int i = 0; i < COUNT(fields); i++) {
        fields[i] = line;
        line = line ? strchr(line, '\t') : NULL;
        if (line) *line++ = 0;
        if (!line && i + 1 < COUNT(fields)) return;
    }
    char *end;
    double median_ns = number_parse(fields[3], &end);
    if (line || end == fields[3] || *end || !isfinite(median_ns) || !(median_ns > 0) || strlen(fields[1]) != 32) return;
    book_put(book, (tune_entry){fields[0], fields[1], fields[2], median_ns});
}

static struct tune_book *book_open(qn_context *context)
{
    if (context->book) return context->book;
    struct tune_book *book = heap_new(sizeof(*book));
    context->book = book;
    book->memory = arena_new();
    char path[4096], *words = NULL;
    size_t size;
    if (book_path(context, path, sizeof(path)) && file_read_own(path, BOOK_LIMIT_BYTES, &words, &size, NULL) == QN_OK)
        for (char *line = words, *end; (end = strchr(line, '\n')); line = end + 1) {
            *end = 0;
            read_line(book, line);
        }
    heap_free(words);
    return book;
}

void tune_book_free(struct tune_book *book)
{
    if (!book) return;
    arena_free(book->memory);
    heap_free(book);
}

void tune_forget(qn_context *context)
{
    tune_book_free(context->book);
    context->book = NULL;
}

/* The kernel's name is the first word of its key's first line. */
static void key_hash(const char *key, char hex[33])
{
    hash_to_hex(hash_bytes(key, strlen(key)), hex);
}

bool tune_record(qn_context *context, const char *key, const char *configuration, double median_ns)
{
    char hex[33], path[4096], kernel[256];
    key_hash(key, hex);
    snprintf(kernel, sizeof(kernel), "%.*s", (int)strcspn(key, "\n"), key);
    lock_take(&context->lock);
    book_put(book_open(context), (tune_entry){kernel, hex, configuration, median_ns});
    bool kept = false;
    if (book_path(context, path, sizeof(path))) {
        text line = {0};
        text_print(&line, "%s\t%s\t%s\t%.1f\n", kernel, hex, configuration, median_ns);
        kept = file_append_own(path, text_get(&line), line.length) && cache_lasts(context_cache(context));
        text_free(&line);
    }
    lock_give(&context->lock);
    return kept;
}

bool tune_knows(qn_context *context, const char *kernel)
{
    bool known = false;
    lock_take(&context->lock);
    const struct tune_book *book = context->no_cache ? NULL : book_open(context);
    for (int i = 0; book && i < book->count && !known; i++) known = !strcmp(book->entries[i].kernel, kernel);
    lock_give(&context->lock);
    return known;
}

/* ---- choosing ---- */

/* The next "NAME=NUMBER" of a configuration; false at its end. */
static bool next_pair(const char **at, char name[128], int64_t *number)
{
    const char *p = *at + strspn(*at, " ");
    size_t length = strcspn(p, "= ");
    char *end;
    if (!length || p[length] != '=' || length >= 128) return false;
    memcpy(name, p, length);
    name[length] = 0;
    *number = strtoll(p + length + 1, &end, 10);
    *at = end;
    return true;
}

static bool agrees(const char *configuration, const bindings *settings)
{
    char name[128];
    int64_t number;
    for (const char *at = configuration; next_pair(&at, name, &number);) {
        const binding *b = bindings_find(settings, name);
        if (b && (b->kind != BIND_INT || b->number.i != number)) return false;
    }
    return true;
}

bool tune_best(qn_context *context, const char *key, const bindings *settings, text *configuration)
{
    char hex[33];
    key_hash(key, hex);
    const tune_entry *best = NULL;
    lock_take(&context->lock);
    const struct tune_book *book = book_open(context);
    for (int i = 0; i < book->count; i++) {
        const tune_entry *e = &book->entries[i];
        if (strcmp(e->key, hex) != 0 || (best && e->median_ns >= best->median_ns)) continue;
        if (agrees(e->configuration, settings)) best = e;
    }
    if (best) text_add(configuration, best->configuration);
    lock_give(&context->lock);
    return best != NULL;
}

bool tune_settings(const qn_call *call, int slot, const bindings *constants, const bindings *extents, arena *memory,
                   bindings *settings)
{
    text key = {0}, configuration = {0};
    bool added = false;
    tune_key(call, slot, constants, extents, &key);
    if (tune_best(call->context, text_get(&key), &call->settings, &configuration)) {
        char name[128];
        int64_t number;
        for (int i = 0; i < call->settings.count; i++) bindings_set(memory, settings, call->settings.items[i]);
        for (const char *at = text_get(&configuration); next_pair(&at, name, &number);) {
            if (bindings_find(settings, name) || !tune_lists(call->kernel, name)) continue;
            binding b = {.name = arena_copy_text(memory, name, strlen(name)), .kind = BIND_INT, .type = DT_I64};
            b.number.i = number;
            bindings_set(memory, settings, b);
            added = true;
        }
        if (added)
            context_log(call->context, LOG_COMPILE, "compile: %s is tuned: %s", call->kernel->name,
                        text_get(&configuration));
    }
    text_free(&key);
    text_free(&configuration);
    return added;
}
