/*
 * The cache of compiled binaries. In: a key (everything the binary depends on, as text). Out: the path of a binary that
 * was made from exactly this key.
 *
 * An entry is two files named after the hash of the key: quern-NAME-HASH.so, and quern-NAME-HASH.key with the size and hash of the
 * binary and then the whole key. Both are written aside and renamed, the binary first, so an entry without its .key is
 * not there; on reading, the key is compared in full and the binary's size and hash are verified, and what does not fit
 * is removed and made again. So neither a crash, nor two processes at once, nor damage on the disk can load a wrong
 * binary. Files of other names, and what is no plain file of this user, are never touched; a folder that others own or
 * may write is not used at all, and what a full one cannot take goes to a private one. The .key's date is the time of last use: the least recently used go when the folder outgrows its limit.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "run/compile/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BINARY_LIMIT_BYTES ((size_t)256 << 20)
#define DEFAULT_LIMIT_BYTES ((int64_t)512 << 20)
static const char key_mark[] = "quern 1 ";
#define ROOM_BYTES ((size_t)256 << 10) /* a folder in which so much cannot be written is full */
#define ASIDE_LIFE_S 3600              /* a file aside that is older was left by a crash */

/* A key that is being made: others that ask for it wait, everybody else goes on. */
typedef struct busy_key {
    struct busy_key *next;
    hash128 hash;
} busy_key;

struct cache {
    char folder[3072];
    char note[6400];               /* why the folder that was asked for is not used; or empty */
    bool temporary;                /* `folder` is a private one that goes with the cache */
    char spare[3072];              /* a private folder for what could not be kept in `folder`; or empty */
    int folder_place, spare_place; /* of the private ones, among what a signal must clear up */
    int64_t limit_bytes;
    pthread_mutex_t lock; /* of `busy` and of shrinking */
    pthread_cond_t made;
    busy_key *busy;
};

/* ---- the folder ---- */

/* Libraries are loaded from it: whoever may write there runs code as this user. The folder itself is not changed. */
static bool usable(cache *c)
{
    struct stat about;
    const char *folder = c->folder, *why = NULL;
    if (folder_make(folder, NULL) != QN_OK || stat(folder, &about) || !S_ISDIR(about.st_mode))
        why = "cannot be written";
    else if (about.st_uid != geteuid())
        why = "belongs to another user";
    else if (about.st_mode & (S_IWGRP | S_IWOTH))
        why = "may be written by others";
    else if (access(folder, R_OK | W_OK | X_OK))
        why = "cannot be written";
    if (!why) return true;
    bool open_to_others = why[0] == 'm', others = why[0] == 'b';
    snprintf(c->note, sizeof(c->note), "the cache folder %s %s: compiled kernels are not kept%s%s%s%s", folder, why,
             open_to_others ? " (chmod go-w " : "", open_to_others ? folder : "",
             open_to_others ? ", or set QUERN_CACHE to another folder)" : "",
             others ? " (set QUERN_CACHE to a folder of your own)" : "");
    return false;
}

/* A compiler takes a relative name that begins so for an option. */
static const char *before(const char *folder)
{
    return *folder == '-' ? "./" : "";
}

static bool standard_folder(char *folder, size_t size)
{
    const char *own = environment_get("QUERN_CACHE"), *base = environment_get("XDG_CACHE_HOME");
    const char *home = environment_get("HOME");
    int length = own    ? snprintf(folder, size, "%s%s", before(own), own)
                 : base ? snprintf(folder, size, "%s%s/quern", before(base), base)
                 : home ? snprintf(folder, size, "%s%s/.cache/quern", before(home), home)
                        : -1;
    return length > 0 && (size_t)length < size;
}

/* "512M", "2G", "100000": bytes. */
static int64_t limit_from_environment(void)
{
    const char *words = environment_get("QUERN_CACHE_LIMIT");
    double number;
    char letter;
    if (!words || !number_amount(words, "kKmMgG", &number, &letter)) return DEFAULT_LIMIT_BYTES;
    double unit = letter == 'K' || letter == 'k'   ? 1024.0
                  : letter == 'M' || letter == 'm' ? 1048576.0
                  : letter == 'G' || letter == 'g' ? 1073741824.0
                                                   : 1.0;
    return (int64_t)MINIMUM(number * unit, 9e18);
}

bool cache_place(const char *folder, char *out, size_t size)
{
    if (!folder) return standard_folder(out, size);
    int length = snprintf(out, size, "%s%s", before(folder), folder);
    return length > 0 && (size_t)length < size;
}

cache *cache_open(const char *folder, bool temporary)
{
    cache *c = heap_new(sizeof(*c));
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->made, NULL);
    c->limit_bytes = limit_from_environment();
    bool found = !temporary && cache_place(folder, c->folder, sizeof(c->folder));
    if (found && usable(c)) return c;
    if (!temporary && !found)
        snprintf(c->note, sizeof(c->note), "there is no folder for the cache (set QUERN_CACHE or HOME)");
    c->temporary = folder_make_private("quern", c->folder, sizeof(c->folder), &c->folder_place);
    return c;
}

const char *cache_folder(const cache *c)
{
    return c->folder;
}

bool cache_lasts(const cache *c)
{
    return !c->temporary;
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

typedef enum own_kind { NOT_OWN, OWN_KEY, OWN_BINARY, OWN_ASIDE } own_kind;

/* What a file of this name is: quern-KERNEL-HASH.key or .so, or one of those on its way (.so.asideN.N, its source, and
 * .key.N.N.part). Everything else in the folder is somebody else's. *length: of the name without the ending. */
static own_kind own_name(const char *name, size_t *length)
{
    static const char prefix[] = "quern-";
    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0) return NOT_OWN;
    const char *end = strchr(name, '.');
    if (!end || end - name < (ptrdiff_t)sizeof(prefix) + 33 || end[-33] != '-') return NOT_OWN;
    for (int i = -32; i < 0; i++)
        if (!strchr("0123456789abcdef", end[i])) return NOT_OWN;
    *length = (size_t)(end - name);
    if (!strcmp(end, ".key")) return OWN_KEY;
    if (!strcmp(end, ".so")) return OWN_BINARY;
    return !strncmp(end, ".so.aside", 9) || !strncmp(end, ".key.", 5) ? OWN_ASIDE : NOT_OWN;
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
    return lstat(path, about) == 0 && S_ISREG(about->st_mode) && about->st_uid == geteuid();
}

/* A key that is ours begins with our head. */
static bool has_head(const cache *c, const char *name)
{
    char path[3400], *words = NULL;
    size_t size = 0;
    snprintf(path, sizeof(path), "%s/%.255s", c->folder, name);
    bool good = file_read_own(path, BINARY_LIMIT_BYTES, &words, &size, NULL) == QN_OK &&
                (size < sizeof(key_mark) - 1 ? !memcmp(words, key_mark, size) : !strncmp(words, key_mark, 6));
    heap_free(words);
    return good;
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
        size_t length = 0;
        own_kind kind = own_name(d->d_name, &length);
        if (kind == NOT_OWN || !file_about(c, d->d_name, "", &about)) continue;
        bool is_key = kind == OWN_KEY, is_aside = kind == OWN_ASIDE;
        char name[256];
        snprintf(name, sizeof(name), "%.*s", (int)length, d->d_name);
        bool whole = is_key && file_about(c, name, ".so", &binary);
        bool orphan = is_aside || (is_key && !whole) || (kind == OWN_BINARY && !file_about(c, name, ".key", &binary));
        if (orphan && now - about.st_mtime > ASIDE_LIFE_S && (!is_key || has_head(c, d->d_name))) {
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

static void shrink(const cache *c, int64_t limit_bytes)
{
    int count;
    entry *entries = read_entries(c, &count);
    int64_t total = 0;
    for (int i = 0; i < count; i++) {
        total += entries[i].size_bytes;
        if (total > limit_bytes && i > 0)
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
    snprintf(head, 96, "%s%zu %s\n", key_mark, size, hex);
}

/* Is there a whole, undamaged entry for this very key? */
static bool verify(const char *binary_path, const char *key_path, const char *key, size_t key_length)
{
    char *stored = NULL, *binary = NULL;
    size_t stored_size = 0, binary_size = 0;
    bool good = file_read_own(key_path, BINARY_LIMIT_BYTES, &stored, &stored_size, NULL) == QN_OK;
    good = good && file_read_own(binary_path, BINARY_LIMIT_BYTES, &binary, &binary_size, NULL) == QN_OK;
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
    lock_take(&c->lock);
    for (bool waits = true; waits;) {
        waits = false;
        for (const busy_key *k = c->busy; k; k = k->next)
            waits |= k->hash.low == key->hash.low && k->hash.high == key->hash.high;
        if (waits) pthread_cond_wait(&c->made, &c->lock);
    }
    key->next = c->busy;
    c->busy = key;
    lock_give(&c->lock);
}

static void busy_leave(cache *c, busy_key *key, bool shrinks)
{
    lock_take(&c->lock);
    if (shrinks) shrink(c, c->limit_bytes);
    busy_key **at = &c->busy;
    while (*at != key) at = &(*at)->next;
    *at = key->next;
    pthread_cond_broadcast(&c->made);
    lock_give(&c->lock);
}

/* Nothing is there, or a plain file of ours that may be replaced. */
static bool is_free(const char *path)
{
    struct stat about;
    return lstat(path, &about) ? errno == ENOENT : S_ISREG(about.st_mode) && about.st_uid == geteuid();
}

/* Whether something can still be written: a compiler that fails on a full disk does not say so in a way to rely on. */
static bool has_room(const char *folder, const char *hex)
{
    char path[3500];
    static const char nothing[4096];
    snprintf(path, sizeof(path), "%s/quern-room-%s.so.aside%ld.%llu", folder, hex, (long)getpid(), number_unique());
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool good = file >= 0;
    for (size_t i = 0; good && i < ROOM_BYTES; i += sizeof(nothing))
        good = write(file, nothing, sizeof(nothing)) == (ssize_t)sizeof(nothing);
    if (file >= 0) good &= close(file) == 0;
    if (file >= 0) unlink(path);
    return good;
}

/* The private folder for what `folder` cannot take; made when it is first needed. NULL: there is none. */
static const char *spare_folder(cache *c, const char *why)
{
    lock_take(&c->lock);
    if (!c->spare[0] && !folder_make_private("quern", c->spare, sizeof(c->spare), &c->spare_place)) c->spare[0] = 0;
    if (!c->note[0] && !c->temporary)
        snprintf(c->note, sizeof(c->note), "the cache folder %s %s: not everything that was compiled is kept",
                 c->folder, why);
    lock_give(&c->lock);
    return c->spare[0] ? c->spare : NULL;
}

/* One entry in one folder. */
typedef struct place {
    char path[3500], key_path[3500], aside[3500];
} place;

static bool place_of(const char *folder, const char *name, const char *hex, place *out)
{
    snprintf(out->key_path, sizeof(out->key_path), "%s/quern-%.100s-%s.key", folder, name, hex);
    snprintf(out->path, sizeof(out->path), "%s/quern-%.100s-%s.so", folder, name, hex);
    int length = snprintf(out->aside, sizeof(out->aside), "%s/quern-%.100s-%s.so.aside%ld.%llu", folder, name, hex,
                          (long)getpid(), number_unique());
    return length > 0 && (size_t)length + 16 < sizeof(out->aside);
}

static qn_status make_at(const place *at, const char *key, size_t key_length, cache_make *make, void *context,
                         qn_error *error)
{
    unlink(at->key_path); /* damaged, or of another key with this hash: gone before anybody else reads it */
    qn_status status = make_entry(at->aside, at->path, at->key_path, key, key_length, make, context, error);
    if (status != QN_OK) unlink(at->aside);
    return status;
}

/* Where the folder is the trouble, not the work: less in it, then another one. */
static qn_status make_somewhere(cache *c, const char *name, const char *hex, place *at, const char *key,
                                size_t key_length, cache_make *make, void *context, qn_error *error)
{
    const char *why = "holds something else where a file should be";
    if (is_free(at->path) && is_free(at->key_path)) {
        qn_status status = make_at(at, key, key_length, make, context, error);
        if (status == QN_OK || has_room(c->folder, hex)) return status;
        lock_take(&c->lock);
        if (!c->temporary) shrink(c, c->limit_bytes / 4);
        lock_give(&c->lock);
        if (has_room(c->folder, hex)) status = make_at(at, key, key_length, make, context, error);
        if (status == QN_OK) return status;
        why = "is full, or cannot be written any more";
    }
    const char *spare = spare_folder(c, why);
    if (!spare || !place_of(spare, name, hex, at))
        return error_set(error, QN_BAD_FILE, "the cache folder %s %s, and no temporary folder can be made (TMPDIR)",
                         c->folder, why);
    return make_at(at, key, key_length, make, context, error);
}

qn_status cache_get(cache *c, const char *name, const char *key, size_t key_length, cache_make *make, void *context,
                    char *path, size_t path_size, bool *found, qn_error *error)
{
    char hex[33];
    place at;
    busy_key busy = {.hash = hash_bytes(key, key_length)};
    hash_to_hex(busy.hash, hex);
    if (!place_of(c->folder, name, hex, &at))
        return error_set(error, QN_BAD_FILE, "the cache folder's name is too long: %s", c->folder);
    busy_enter(c, &busy);
    *found = verify(at.path, at.key_path, key, key_length);
    qn_status status = QN_OK;
    if (*found)
        (void)utimensat(AT_FDCWD, at.key_path, NULL, AT_SYMLINK_NOFOLLOW); /* the time of last use */
    else
        status = make_somewhere(c, name, hex, &at, key, key_length, make, context, error);
    busy_leave(c, &busy, !*found && status == QN_OK && !c->temporary);
    if (status == QN_OK && (size_t)snprintf(path, path_size, "%s", at.path) >= path_size)
        status = error_set(error, QN_BAD_FILE, "the cache folder's name is too long: %s", c->folder);
    return status;
}

bool cache_lost(const char *path)
{
    struct stat about;
    return stat(path, &about) != 0 && errno == ENOENT;
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

/* Records beside the entries: of variants, of timings, of what torch's programs run as (python/quern/choice.py). */
static bool is_record(const char *name)
{
    return !strcmp(name, "variants.log") || !strcmp(name, "tune.log") || !strcmp(name, "torch.log");
}

/* A file on its way, of a process that is still there: NAME.so.asidePID.N..., NAME.key.PID.N.part. */
static bool is_being_made(const char *name)
{
    const char *number = strstr(name, ".so.aside");
    number = number ? number + 9 : strstr(name, ".key.") + 5;
    long process = strtol(number, NULL, 10);
    return process > 0 && process < INT_MAX && (kill((pid_t)process, 0) == 0 || errno == EPERM);
}

/* Every file that is ours, whole or not, but what a compiler is about to leave; nothing else in the folder is touched. */
qn_status cache_clear(cache *c, int64_t *removed_files, int64_t *removed_bytes, qn_error *error)
{
    *removed_files = *removed_bytes = 0;
    DIR *folder = opendir(c->folder);
    if (!folder) return error_set(error, QN_BAD_FILE, "cannot open %s: %s", c->folder, strerror(errno));
    qn_status status = QN_OK;
    for (struct dirent *d; (d = readdir(folder));) {
        struct stat about;
        size_t length;
        own_kind kind = own_name(d->d_name, &length);
        if (kind == NOT_OWN && !is_record(d->d_name)) continue;
        if (kind == OWN_ASIDE && is_being_made(d->d_name)) continue;
        if (!file_about(c, d->d_name, "", &about) || (kind == OWN_KEY && !has_head(c, d->d_name))) continue;
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
    if (c->temporary) folder_remove_private(c->folder, c->folder_place);
    if (c->spare[0]) folder_remove_private(c->spare, c->spare_place);
    pthread_cond_destroy(&c->made);
    pthread_mutex_destroy(&c->lock);
    heap_free(c);
}
