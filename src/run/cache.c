/*
 * The cache of compiled binaries. In: a key (everything the binary depends on, as text). Out: the path of a binary that
 * was made from exactly this key.
 *
 * An entry is two files named after the hash of the key: NAME-HASH.so, and NAME-HASH.key with the size and hash of the
 * binary and then the whole key. Both are written aside and renamed, the binary first, so an entry without its .key is
 * not there; on reading, the key is compared in full and the binary's size and hash are verified, and what does not fit
 * is removed and made again. So neither a crash, nor two processes at once, nor damage on the disk can load a wrong
 * binary. The .key's date is the time of last use: the least recently used go when the folder outgrows its limit.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "run/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BINARY_LIMIT_BYTES ((size_t)256 << 20)
#define DEFAULT_LIMIT_BYTES ((int64_t)512 << 20)
#define ASIDE_LIFE_S 3600 /* a file aside that is older was left by a crash */

/* A key that is being made: others that ask for it wait, everybody else goes on. */
typedef struct busy_key {
    struct busy_key *next;
    hash128 hash;
} busy_key;

struct cache {
    char folder[3072];
    char note[3200]; /* why the folder that was asked for is not used; or empty */
    bool temporary;
    int64_t limit_bytes;
    pthread_mutex_t lock; /* of `busy` and of shrinking */
    pthread_cond_t made;
    busy_key *busy;
    _Atomic unsigned counter;
};

/* ---- the folder ---- */

static bool usable(const char *folder)
{
    struct stat about;
    if (folder_make(folder, NULL) != QN_OK || stat(folder, &about) || !S_ISDIR(about.st_mode)) return false;
    if (about.st_uid == geteuid() && (about.st_mode & 077)) (void)chmod(folder, 0700);
    return access(folder, R_OK | W_OK | X_OK) == 0;
}

static bool standard_folder(char *folder, size_t size)
{
    const char *own = environment_get("QUERN_CACHE"), *base = environment_get("XDG_CACHE_HOME");
    const char *home = environment_get("HOME");
    int length = own    ? snprintf(folder, size, "%s", own)
                 : base ? snprintf(folder, size, "%s/quern", base)
                 : home ? snprintf(folder, size, "%s/.cache/quern", home)
                        : -1;
    return length > 0 && (size_t)length < size;
}

/* "512M", "2G", "100000": bytes. */
static int64_t limit_from_environment(void)
{
    const char *words = environment_get("QUERN_CACHE_LIMIT");
    if (!words) return DEFAULT_LIMIT_BYTES;
    char *end;
    errno = 0;
    double number = number_parse(words, &end);
    double unit = *end == 'K' || *end == 'k'   ? 1024.0
                  : *end == 'M' || *end == 'm' ? 1048576.0
                  : *end == 'G' || *end == 'g' ? 1073741824.0
                                               : 1.0;
    if (end == words || errno || !(number >= 0) || number * unit > 9e18) return DEFAULT_LIMIT_BYTES;
    return (int64_t)(number * unit);
}

cache *cache_open(const char *folder, bool temporary)
{
    cache *c = heap_new(sizeof(*c));
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->made, NULL);
    c->limit_bytes = limit_from_environment();
    bool found = !temporary;
    if (found && folder) {
        int length = snprintf(c->folder, sizeof(c->folder), "%s", folder);
        found = length > 0 && (size_t)length < sizeof(c->folder);
    } else if (found) {
        found = standard_folder(c->folder, sizeof(c->folder));
    }
    if (found && usable(c->folder)) return c;
    if (!temporary && found)
        snprintf(c->note, sizeof(c->note), "the cache folder %s cannot be written: compiled kernels are not kept",
                 c->folder);
    else if (!temporary)
        snprintf(c->note, sizeof(c->note), "there is no folder for the cache (set QUERN_CACHE or HOME)");
    const char *base = environment_get("TMPDIR");
    if (!base || strlen(base) > 2000) base = "/tmp";
    snprintf(c->folder, sizeof(c->folder), "%s/quern-XXXXXX", base);
    c->temporary = mkdtemp(c->folder) != NULL;
    return c;
}

const char *cache_folder(const cache *c)
{
    return c->folder;
}

const char *cache_note(const cache *c)
{
    return c->note;
}

/* ---- entries ---- */

typedef struct entry {
    char name[256];     /* without .key */
    int64_t size_bytes; /* of both files */
    struct timespec used;
} entry;

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length > tail && !strcmp(name + length - tail, end);
}

static int newer_first(const void *a, const void *b)
{
    const struct timespec *x = &((const entry *)a)->used, *y = &((const entry *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? 1 : -1;
    return x->tv_nsec < y->tv_nsec ? 1 : x->tv_nsec > y->tv_nsec ? -1 : 0;
}

static bool file_about(const cache *c, const char *name, const char *end, struct stat *about)
{
    char path[3400];
    snprintf(path, sizeof(path), "%s/%.255s%s", c->folder, name, end);
    return stat(path, about) == 0 && S_ISREG(about->st_mode);
}

/* Whole entries, newest first, on the heap. Files that belong to none and are old go away. */
static entry *read_entries(const cache *c, int *count)
{
    *count = 0;
    DIR *folder = opendir(c->folder);
    if (!folder) return NULL;
    entry *entries = NULL;
    int capacity = 0;
    time_t now = time(NULL);
    for (struct dirent *d; (d = readdir(folder));) {
        struct stat about, binary;
        bool is_key = ends_with(d->d_name, ".key"), is_binary = ends_with(d->d_name, ".so");
        bool is_aside = strstr(d->d_name, ".aside");
        if ((!is_key && !is_binary && !is_aside) || !file_about(c, d->d_name, "", &about)) continue;
        char name[256];
        snprintf(name, sizeof(name), "%.*s", (int)(strlen(d->d_name) - (is_key ? 4 : 3)), d->d_name);
        bool whole = is_key && file_about(c, name, ".so", &binary);
        bool orphan = is_aside || (is_key && !whole) || (is_binary && !file_about(c, name, ".key", &binary));
        if (orphan && now - about.st_mtime > ASIDE_LIFE_S) {
            char path[3400];
            snprintf(path, sizeof(path), "%s/%s", c->folder, d->d_name);
            unlink(path);
        }
        if (!whole || is_aside) continue;
        if (*count == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            entry *more = heap_resize(entries, (size_t)capacity * sizeof(entry));
            entries = more;
        }
        entry *e = &entries[(*count)++];
        memcpy(e->name, name, sizeof(e->name));
        e->size_bytes = about.st_size + binary.st_size;
        e->used = about.st_mtim;
    }
    closedir(folder);
    if (*count) qsort(entries, (size_t)*count, sizeof(entry), newer_first);
    return entries;
}

/* The key first: an entry without it does not count. */
static bool remove_entry(const cache *c, const char *name)
{
    char path[3400];
    snprintf(path, sizeof(path), "%s/%.255s.key", c->folder, name);
    bool good = unlink(path) == 0;
    snprintf(path, sizeof(path), "%s/%.255s.so", c->folder, name);
    return unlink(path) == 0 && good;
}

static void shrink(const cache *c)
{
    int count;
    entry *entries = read_entries(c, &count);
    int64_t total = 0;
    for (int i = 0; i < count; i++) {
        total += entries[i].size_bytes;
        if (total > c->limit_bytes && i > 0)
            remove_entry(c, entries[i].name); /* the newest stays: it is about to be loaded */
    }
    heap_free(entries);
}

/* ---- reading and writing ---- */

/* The head of a .key file: what the binary must be. */
static void key_head(char head[96], const char *binary, size_t size)
{
    char hex[33];
    hash_to_hex(hash_bytes(binary, size), hex);
    snprintf(head, 96, "quern 1 %zu %s\n", size, hex);
}

/* Is there a whole, undamaged entry for this very key? */
static bool verify(const char *binary_path, const char *key_path, const char *key, size_t key_length)
{
    char *stored = NULL, *binary = NULL;
    size_t stored_size = 0, binary_size = 0;
    bool good = file_read(key_path, BINARY_LIMIT_BYTES, &stored, &stored_size, NULL) == QN_OK;
    good = good && file_read(binary_path, BINARY_LIMIT_BYTES, &binary, &binary_size, NULL) == QN_OK;
    if (good) {
        char head[96];
        key_head(head, binary, binary_size);
        size_t length = strlen(head);
        good = stored_size == length + key_length && !memcmp(stored, head, length) &&
               !memcmp(stored + length, key, key_length);
    }
    heap_free(stored);
    heap_free(binary);
    return good;
}

static qn_status make_entry(const char *aside, const char *binary_path, const char *key_path, const char *key,
                            size_t key_length, cache_make *make, void *context, qn_error *error)
{
    QN_TRY(make(context, aside, error));
    char *binary = NULL;
    size_t size = 0;
    QN_TRY(file_read(aside, BINARY_LIMIT_BYTES, &binary, &size, error));
    char head[96];
    key_head(head, binary, size);
    heap_free(binary);
    text words = {0};
    text_add(&words, head);
    text_add_bytes(&words, key, key_length);
    qn_status status = QN_OK;
    if (chmod(aside, 0600) || rename(aside, binary_path))
        status = error_set(error, QN_BAD_FILE, "cannot write %s: %s", binary_path, strerror(errno));
    /* A crash here leaves a binary without its key: it will be made again. */
    if (status == QN_OK) status = file_write(key_path, text_get(&words), words.length, error);
    text_free(&words);
    return status;
}

static void busy_enter(cache *c, busy_key *key)
{
    pthread_mutex_lock(&c->lock);
    for (bool waits = true; waits;) {
        waits = false;
        for (const busy_key *k = c->busy; k; k = k->next)
            waits |= k->hash.low == key->hash.low && k->hash.high == key->hash.high;
        if (waits) pthread_cond_wait(&c->made, &c->lock);
    }
    key->next = c->busy;
    c->busy = key;
    pthread_mutex_unlock(&c->lock);
}

static void busy_leave(cache *c, busy_key *key, bool shrinks)
{
    pthread_mutex_lock(&c->lock);
    if (shrinks) shrink(c);
    busy_key **at = &c->busy;
    while (*at != key) at = &(*at)->next;
    *at = key->next;
    pthread_cond_broadcast(&c->made);
    pthread_mutex_unlock(&c->lock);
}

qn_status cache_get(cache *c, const char *name, const char *key, size_t key_length, cache_make *make, void *context,
                    char *path, size_t path_size, bool *found, qn_error *error)
{
    char hex[33], key_path[3500], aside[3500];
    busy_key busy = {.hash = hash_bytes(key, key_length)};
    hash_to_hex(busy.hash, hex);
    snprintf(key_path, sizeof(key_path), "%s/%.100s-%s.key", c->folder, name, hex);
    if ((size_t)snprintf(path, path_size, "%s/%.100s-%s.so", c->folder, name, hex) >= path_size)
        return error_set(error, QN_BAD_FILE, "the cache folder's name is too long: %s", c->folder);
    busy_enter(c, &busy);
    *found = verify(path, key_path, key, key_length);
    qn_status status = QN_OK;
    if (*found) {
        (void)utimensat(AT_FDCWD, key_path, NULL, 0); /* the time of last use */
    } else {
        unlink(key_path); /* damaged, or of another key with this hash: gone before anybody else reads it */
        snprintf(aside, sizeof(aside), "%s/%.100s-%s.so.aside%ld.%u", c->folder, name, hex, (long)getpid(),
                 atomic_fetch_add(&c->counter, 1));
        status = make_entry(aside, path, key_path, key, key_length, make, context, error);
        if (status != QN_OK) unlink(aside);
    }
    busy_leave(c, &busy, !*found && status == QN_OK && !c->temporary);
    return status;
}

/* ---- the user's view ---- */

static void add_age(text *out, double seconds)
{
    static const struct {
        double seconds;
        const char *word;
    } units[] = {{86400, "days"}, {3600, "hours"}, {60, "minutes"}, {1, "seconds"}};
    for (int i = 0; i < COUNT(units); i++)
        if (seconds >= 2 * units[i].seconds || i == COUNT(units) - 1) {
            text_print(out, "%4.0f %s ago", seconds / units[i].seconds, units[i].word);
            return;
        }
}

qn_status cache_list(cache *c, text *out, qn_error *error)
{
    if (c->note[0]) {
        text_print(out, "%s\n", c->note);
        return QN_OK;
    }
    int count;
    entry *entries = read_entries(c, &count);
    int64_t total = 0;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; i++) {
        total += entries[i].size_bytes;
        text_print(out, "%-60s %8.1f KB  used ", entries[i].name, (double)entries[i].size_bytes / 1024);
        add_age(out, MAXIMUM((double)(now.tv_sec - entries[i].used.tv_sec), 0.0));
        text_add(out, "\n");
    }
    text_print(out, "%d binar%s, %.1f MB of %.0f MB, in %s\n", count, count == 1 ? "y" : "ies", (double)total / 1048576,
               (double)c->limit_bytes / 1048576, c->folder);
    heap_free(entries);
    return QN_OK;
}

/* Every file that is ours, whole or not; nothing else in the folder is touched. */
qn_status cache_clear(cache *c, int64_t *removed_files, int64_t *removed_bytes, qn_error *error)
{
    *removed_files = *removed_bytes = 0;
    DIR *folder = opendir(c->folder);
    if (!folder) return error_set(error, QN_BAD_FILE, "cannot open %s: %s", c->folder, strerror(errno));
    qn_status status = QN_OK;
    for (struct dirent *d; (d = readdir(folder));) {
        struct stat about;
        if (!ends_with(d->d_name, ".key") && !ends_with(d->d_name, ".so") && !strstr(d->d_name, ".so.aside") &&
            strcmp(d->d_name, "variants.log") && strcmp(d->d_name, "tune.log"))
            continue;
        if (!file_about(c, d->d_name, "", &about)) continue;
        char path[3400];
        snprintf(path, sizeof(path), "%s/%s", c->folder, d->d_name);
        if (unlink(path) == 0) {
            ++*removed_files;
            *removed_bytes += about.st_size;
        } else if (errno != ENOENT && status == QN_OK) {
            status = error_set(error, QN_BAD_FILE, "cannot remove %s: %s", path, strerror(errno));
        }
    }
    closedir(folder);
    return status;
}

void cache_close(cache *c)
{
    if (!c) return;
    if (c->temporary) {
        int64_t files, bytes;
        (void)cache_clear(c, &files, &bytes, NULL);
        rmdir(c->folder);
    }
    pthread_cond_destroy(&c->made);
    pthread_mutex_destroy(&c->lock);
    heap_free(c);
}
