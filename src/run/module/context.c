/*
 * Contexts and devices. In: options and the environment. Out: a context with every driver opened (an absent device says
 * so in its description), the log switches of QUERN_LOG, and aligned memory for arrays.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/cuda/nvtx.h"
#include "run/compile/cache.h"
#include "run/compile/edited.h"
#include "run/evaluate/realize.h"
#include "run/compile/tune.h"

#include <quern/device.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#define HUGE_BYTES ((size_t)2 << 20)

/* A file whose raw text was told about. */
struct raw_file {
    struct raw_file *next;
    char path[];
};

/* QUERN_LOG=graph,fusion,guards,compile,cache,launch,code */
static qn_status log_from_environment(unsigned *log, qn_error *error)
{
    static const struct {
        const char *word;
        unsigned bit;
    } words[] = {{"compile", LOG_COMPILE}, {"cache", LOG_CACHE},   {"launch", LOG_LAUNCH}, {"code", LOG_CODE},
                 {"graph", LOG_GRAPH},     {"fusion", LOG_FUSION}, {"guards", LOG_GUARDS}, {"all", ~0u}};
    *log = 0;
    const char *list = environment_get("QUERN_LOG");
    for (const char *p = list ? list : ""; *p;) {
        size_t length = strcspn(p, ",");
        bool known = !length;
        for (int i = 0; i < COUNT(words); i++) {
            if (strlen(words[i].word) != length || memcmp(p, words[i].word, length)) continue;
            *log |= words[i].bit;
            known = true;
        }
        if (!known)
            return error_set(
                error, QN_BAD_CALL,
                "QUERN_LOG has no `%.*s`; it knows compile, cache, launch, code, graph, fusion, guards and "
                "all, with commas between them",
                (int)MINIMUM(length, 60), p);
        p += length + (p[length] == ',');
    }
    return QN_OK;
}

/* QUERN_LIBRARY=never|tuned|always */
static qn_status library_from_environment(library_use *use, qn_error *error)
{
    static const char *const words[] = {
        [LIBRARY_TUNED] = "tuned", [LIBRARY_NEVER] = "never", [LIBRARY_ALWAYS] = "always"};
    const char *word = environment_get("QUERN_LIBRARY");
    *use = LIBRARY_TUNED;
    for (int i = 0; word && i < COUNT(words); i++) {
        if (strcmp(word, words[i]) != 0) continue;
        *use = (library_use)i;
        return QN_OK;
    }
    return word && *word ? error_set(error, QN_BAD_CALL, "QUERN_LIBRARY is never, tuned or always, not `%.60s`", word)
                         : QN_OK;
}

/* Where a program that gave no function of its own sees what it asked QUERN_LOG for. */
static void print_to_stderr(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "%s\n", line);
}

static void add_slot(qn_context *c, const driver *driver, int number)
{
    device_slot *s = &c->slots[c->slot_count];
    char folder[3072];
    bool kept = !c->no_cache && cache_place(c->cache_folder, folder, sizeof(folder));
    device_options wanted = {.threads = c->threads,
                             .number = number,
                             .print = c->print,
                             .print_user = c->user,
                             .folder = kept ? folder : NULL};
    s->driver = driver;
    s->device = driver->open(&wanted);
    snprintf(s->name, sizeof(s->name), number ? "%s:%d" : "%s", driver->name, number);
    c->slot_count++;
}

const device_about *slot_about(qn_context *context, int slot)
{
    device_slot *s = &context->slots[slot];
    lock_take(&context->about_lock);
    if (!s->known) {
        s->driver->about(s->device, &s->about);
        s->known = true;
    }
    lock_give(&context->about_lock);
    return &s->about;
}

int context_library_wish(const qn_context *context, int wish)
{
    return context->library == LIBRARY_NEVER ? 0 : !wish && context->library == LIBRARY_ALWAYS ? 1 : wish;
}

int context_library(const qn_context *context, int slot, int wish)
{
    const device_slot *s = &context->slots[slot];
    int wanted = context_library_wish(context, wish);
    return wanted && s->driver->library && s->driver->library(s->device, NULL) ? wanted : 0;
}

int context_slots(qn_context *context)
{
    lock_take(&context->about_lock);
    int first = context->counted ? context->slot_count : 0, last = context->slot_count;
    context->counted = true;
    for (int i = first; i < last; i++) {
        const device_slot *s = &context->slots[i];
        int count = s->driver->count ? s->driver->count(s->device) : 1;
        for (int number = 1; number < count && context->slot_count < MAX_DEVICES; number++)
            add_slot(context, s->driver, number);
    }
    int count = context->slot_count;
    lock_give(&context->about_lock);
    return count;
}

int context_cheap_slot(qn_context *context)
{
    int found = -1;
    for (int i = 0; i < context->slot_count; i++) {
        const device_slot *s = &context->slots[i];
        if (s->driver->count && !s->known) continue; /* one that may take its time */
        if (found < 0 && slot_about(context, i)->available) found = i;
    }
    CHECK(found >= 0); /* ref is always there */
    return found;
}

qn_status context_open(const qn_context_options *options, qn_context **out, qn_error *error)
{
    HEAP_ENTER(error);
    if (!out) return error_set(error, QN_BAD_CALL, "qn_context_open: the place for the context is NULL");
    *out = NULL;
    const qn_context_options defaults = {0};
    if (!options) options = &defaults;
    if (options->threads < 0)
        return error_set(error, QN_BAD_CALL, "qn_context_open: %d threads; give 0 for all cores", options->threads);
    unsigned log;
    library_use library;
    QN_TRY(log_from_environment(&log, error));
    QN_TRY(library_from_environment(&library, error));
    if (options->keep_folder) QN_TRY(folder_open(options->keep_folder, error));
    qn_context *c = calloc(1, sizeof(*c));
    if (!c) return error_set(error, QN_NO_MEMORY, "no memory for a context");
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->about_lock, NULL);
    pthread_mutex_init(&c->log_lock, NULL);
    pthread_cond_init(&c->compiled, NULL);
    c->no_cache = options->no_cache;
    c->allow_raw = options->allow_raw;
    c->print = options->print;
    c->user = options->user;
    c->log = log;
    const char *sync = environment_get("QUERN_SYNC");
    c->one_by_one = sync && strcmp(sync, "0") != 0;
    if (log && !c->print) c->print = print_to_stderr;
    if (options->verbose) c->log |= LOG_COMPILE | LOG_CODE;
    const char *dump_folder = environment_get("QUERN_DUMP_DIR"), *tune = environment_get("QUERN_TUNE");
    const char *nvtx = environment_get("QUERN_NVTX");
    if (nvtx && strcmp(nvtx, "0") != 0) nvtx_open();
    c->no_tune = tune && !strcmp(tune, "off");
    c->library = library;
    if (options->keep_folder) dump_folder = options->keep_folder;
    if (dump_folder) {
        c->dump_folder = heap_copy_text(dump_folder);
    }
    if (options->cache_folder) {
        c->cache_folder = heap_copy_text(options->cache_folder);
    }
    c->threads = options->threads;
    for (int i = 0; drivers[i]; i++) {
        CHECK(i < MAX_DEVICES);
        add_slot(c, drivers[i], 0);
    }
    *out = c;
    return QN_OK;
}

void context_close(qn_context *context)
{
    context->closing = true;
    store_free(context);
    for (int i = 0; i < context->slot_count; i++) context->slots[i].driver->close(context->slots[i].device);
    tune_book_free(context->book);
    edited_free(context->edited);
    cache_close(context->cache);
    for (struct raw_file *f = context->raw_files, *next; f; f = next) {
        next = f->next;
        heap_free(f);
    }
    pthread_cond_destroy(&context->compiled);
    pthread_mutex_destroy(&context->log_lock);
    pthread_mutex_destroy(&context->lock);
    pthread_mutex_destroy(&context->about_lock);
    heap_free(context->cache_folder);
    heap_free(context->dump_folder);
    heap_free(context->input);
    heap_free(context);
}

int qn_device_count(const qn_context *context)
{
    return context ? context_slots((qn_context *)context) : 0;
}

void qn_device_get(const qn_context *context, int number, qn_device_info *info)
{
    if (!info) return;
    memset(info, 0, sizeof(*info));
    info->name = "";
    if (!context || number < 0 || number >= context_slots((qn_context *)context)) return;
    const device_about *about = slot_about((qn_context *)context, number);
    info->name = context->slots[number].name;
    info->available = about->available;
    info->absent = about->absent;
    memcpy(info->description, about->description, sizeof(info->description));
    memcpy(info->note, about->note, sizeof(info->note));
    info->units = about->units;
}

const char *qn_device_best(const qn_context *context)
{
    for (int i = 0; context && i < context->slot_count; i++)
        if (slot_about((qn_context *)context, i)->available) return context->slots[i].name;
    return "ref";
}

static bool same_name(const char *name, const char *asked)
{
    size_t length = strlen(name);
    return !strcasecmp(name, asked) || (!strncasecmp(name, asked, length) && !strcmp(asked + length, ":0"));
}

static int find_slot(const qn_context *context, int count, const char *device)
{
    for (int i = 0; i < count; i++)
        if (same_name(context->slots[i].name, device)) return i;
    return -1;
}

qn_status context_slot(const qn_context *context, const char *device, int *slot, qn_error *error)
{
    if (!device) device = qn_device_best(context);
    if (same_name("gpu", device)) device = "cuda"; /* as other libraries call it */
    int found = find_slot(context, context->slot_count, device);
    if (found < 0) { /* a second GPU is known only once it was asked for */
        int count = context_slots((qn_context *)context);
        found = find_slot(context, count, device);
    }
    if (found >= 0) {
        const device_about *about = slot_about((qn_context *)context, found);
        *slot = found;
        if (about->available) return QN_OK;
        return error_set(error, QN_NO_DEVICE, "the device %s is not available: %s", device, about->description);
    }
    const char *names[MAX_DEVICES];
    for (int i = 0; i < context->slot_count; i++) names[i] = context->slots[i].name;
    const char *near = suggest_name(device, names, context->slot_count);
    if (near) return error_set(error, QN_BAD_CALL, "unknown device `%s`; did you mean `%s`?", device, near);
    text list = {0};
    for (int i = 0; i < context->slot_count; i++) text_print(&list, "%s%s", i ? ", " : "", names[i]);
    error_set(error, QN_BAD_CALL, "unknown device `%s`; the devices are %s", device, text_get(&list));
    text_free(&list);
    return QN_BAD_CALL;
}

qn_status qn_device_find(const qn_context *context, const char *name, qn_device_info *info, qn_error *error)
{
    HEAP_ENTER(error);
    int slot = 0;
    qn_error inner;
    if (!context || !name || !info) return error_set(error, QN_BAD_CALL, "qn_device_find: an argument is NULL");
    qn_status status = context_slot(context, name, &slot, &inner);
    if (status != QN_OK && status != QN_NO_DEVICE) return error_set(error, status, "%s", inner.message);
    qn_device_get(context, slot, info);
    return QN_OK;
}

char *qn_device_details(qn_context *context, const char *name)
{
    int slot = 0;
    text words = {0};
    qn_error ignored;
    if (context && context_slot(context, name, &slot, &ignored) == QN_OK && context->slots[slot].driver->describe)
        context->slots[slot].driver->describe(context->slots[slot].device, &words);
    return text_hand_over(&words);
}

qn_status qn_device_adopt(qn_context *context, const char *device, void *native, qn_error *error)
{
    HEAP_ENTER(error);
    int slot = 0;
    if (!context) return error_set(error, QN_BAD_CALL, "qn_device_adopt: the context is NULL");
    QN_TRY(context_slot(context, device, &slot, error));
    const device_slot *s = &context->slots[slot];
    if (s->driver->adopt) return s->driver->adopt(s->device, native, error);
    return error_set(error, QN_BAD_CALL, "the device %s takes no context of the host program", s->name);
}

qn_status qn_device_wait(qn_context *context, const char *device, qn_error *error)
{
    HEAP_ENTER(error);
    int slot = 0;
    if (!context) return error_set(error, QN_BAD_CALL, "qn_device_wait: the context is NULL");
    QN_TRY(context_slot(context, device, &slot, error));
    const device_slot *s = &context->slots[slot];
    return s->driver->memory ? s->driver->memory->settle_all(s->device, error) : QN_OK;
}

qn_status qn_device_memory(qn_context *context, const char *device, qn_memory_statistics *out, qn_error *error)
{
    HEAP_ENTER(error);
    int slot = 0;
    if (!context || !out) return error_set(error, QN_BAD_CALL, "qn_device_memory: an argument is NULL");
    memset(out, 0, sizeof(*out));
    QN_TRY(context_slot(context, device, &slot, error));
    const device_slot *s = &context->slots[slot];
    if (!s->driver->memory) return QN_OK;
    memory_statistics now;
    s->driver->memory->statistics(s->device, &now);
    *out = (qn_memory_statistics){.used_bytes = now.used_bytes,
                                  .kept_bytes = now.kept_bytes,
                                  .peak_bytes = now.peak_bytes,
                                  .allocations = now.allocations,
                                  .system_allocations = now.system_allocations,
                                  .free_bytes = now.free_bytes,
                                  .total_bytes = now.total_bytes};
    return QN_OK;
}

qn_status qn_device_trim(qn_context *context, const char *device, qn_error *error)
{
    HEAP_ENTER(error);
    int slot = 0;
    if (!context) return error_set(error, QN_BAD_CALL, "qn_device_trim: the context is NULL");
    QN_TRY(context_slot(context, device, &slot, error));
    const device_slot *s = &context->slots[slot];
    if (s->driver->memory) s->driver->memory->trim(s->device);
    return QN_OK;
}

static void say(qn_context *context, const char *format, va_list list)
{
    text line = {0};
    text_print_list(&line, format, list);
    lock_take(&context->log_lock);
    context->print(context->user, text_get(&line));
    lock_give(&context->log_lock);
    text_free(&line);
}

void context_log(qn_context *context, unsigned kind, const char *format, ...)
{
    if (!(context->log & kind) || !context->print) return;
    va_list list;
    va_start(list, format);
    say(context, format, list);
    va_end(list);
}

void context_tell_raw(qn_context *context, const char *path)
{
    lock_take(&context->log_lock);
    struct raw_file *f = context->raw_files;
    while (f && strcmp(f->path, path) != 0) f = f->next;
    bool known = f != NULL;
    if (!known) {
        f = heap_new(sizeof(*f) + strlen(path) + 1);
        strcpy(f->path, path);
        f->next = context->raw_files;
        context->raw_files = f;
    }
    lock_give(&context->log_lock);
    if (!known)
        context_say(context,
                    "note: %s has raw kernels: their text is compiled and runs as it is, with all rights of "
                    "this program",
                    path);
}

void context_say(qn_context *context, const char *format, ...)
{
    if (!context->print) return;
    va_list list;
    va_start(list, format);
    say(context, format, list);
    va_end(list);
}

/* All that this machine has. A system that promises more gives it until the first use, and then ends the process. */
static size_t machine_bytes(void)
{
    struct sysinfo about;
    if (sysinfo(&about)) return (size_t)1 << 46;
    return ((size_t)about.totalram + (size_t)about.totalswap) * (size_t)about.mem_unit;
}

void *memory_allocate(size_t size_bytes)
{
    if (size_bytes > (size_t)1 << 30 && size_bytes > machine_bytes()) return NULL;
    if (size_bytes < 2 * HUGE_BYTES) return aligned_alloc(64, (size_bytes + 64) & ~(size_t)63);
    void *memory = aligned_alloc(HUGE_BYTES, (size_bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
    if (memory) madvise(memory, size_bytes, MADV_HUGEPAGE); /* only a hint */
    return memory;
}

void memory_free(void *memory)
{
    heap_free(memory);
}
