/*
 * Contexts and devices. In: options and the environment. Out: a context with every driver opened (an absent device says
 * so in its description), the log switches of QUERN_LOG, and aligned memory for arrays.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "run/cache.h"
#include "run/run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2 << 20)

/* QUERN_LOG=compile,cache,launch */
static unsigned log_from_environment(void)
{
    static const struct {
        const char *word;
        unsigned bit;
    } words[] = {{"compile", LOG_COMPILE}, {"cache", LOG_CACHE}, {"launch", LOG_LAUNCH}, {"all", ~0u}};
    unsigned log = 0;
    const char *list = environment_get("QUERN_LOG");
    for (const char *p = list ? list : ""; *p;) {
        size_t length = strcspn(p, ",");
        for (int i = 0; i < COUNT(words); i++)
            if (strlen(words[i].word) == length && !memcmp(p, words[i].word, length)) log |= words[i].bit;
        p += length + (p[length] == ',');
    }
    return log;
}

qn_status qn_context_open(const qn_context_options *options, qn_context **out, qn_error *error)
{
    if (!out) return error_set(error, QN_BAD_CALL, "qn_context_open: the place for the context is NULL");
    *out = NULL;
    const qn_context_options defaults = {0};
    if (!options) options = &defaults;
    if (options->threads < 0)
        return error_set(error, QN_BAD_CALL, "qn_context_open: %d threads; give 0 for all cores", options->threads);
    qn_context *c = calloc(1, sizeof(*c));
    if (!c) return error_set(error, QN_NO_MEMORY, "no memory for a context");
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->log_lock, NULL);
    pthread_cond_init(&c->compiled, NULL);
    c->no_cache = options->no_cache;
    c->allow_raw = options->allow_raw;
    c->print = options->print;
    c->user = options->user;
    c->log = log_from_environment();
    if (options->cache_folder) {
        c->cache_folder = strdup(options->cache_folder);
        CHECK(c->cache_folder);
    }
    device_options wanted = {.threads = options->threads, .print = options->print, .print_user = options->user};
    for (int i = 0; drivers[i]; i++) {
        CHECK(i < MAX_DEVICES);
        device_slot *s = &c->slots[c->slot_count++];
        s->driver = drivers[i];
        s->device = drivers[i]->open(&wanted);
        drivers[i]->about(s->device, &s->about);
    }
    *out = c;
    return QN_OK;
}

void qn_context_close(qn_context *context)
{
    if (!context) return;
    for (int i = 0; i < context->slot_count; i++) context->slots[i].driver->close(context->slots[i].device);
    cache_close(context->cache);
    pthread_cond_destroy(&context->compiled);
    pthread_mutex_destroy(&context->log_lock);
    pthread_mutex_destroy(&context->lock);
    free(context->cache_folder);
    free(context);
}

int qn_device_count(const qn_context *context)
{
    return context->slot_count;
}

void qn_device_get(const qn_context *context, int number, qn_device_info *info)
{
    memset(info, 0, sizeof(*info));
    info->name = "";
    if (number < 0 || number >= context->slot_count) return;
    const device_slot *s = &context->slots[number];
    info->name = s->driver->name;
    info->available = s->about.available;
    memcpy(info->description, s->about.description, sizeof(info->description));
    memcpy(info->note, s->about.note, sizeof(info->note));
    info->units = s->about.units;
}

const char *qn_device_best(const qn_context *context)
{
    for (int i = 0; i < context->slot_count; i++)
        if (context->slots[i].about.available) return context->slots[i].driver->name;
    return "ref";
}

qn_status context_slot(const qn_context *context, const char *device, int *slot, qn_error *error)
{
    if (!device) device = qn_device_best(context);
    const char *names[MAX_DEVICES];
    for (int i = 0; i < context->slot_count; i++) {
        const device_slot *s = &context->slots[i];
        names[i] = s->driver->name;
        if (strcmp(names[i], device)) continue;
        *slot = i;
        if (s->about.available) return QN_OK;
        return error_set(error, QN_NO_DEVICE, "the device %s is not available: %s", device, s->about.description);
    }
    const char *near = suggest_name(device, names, context->slot_count);
    if (near) return error_set(error, QN_BAD_CALL, "unknown device `%s`; did you mean `%s`?", device, near);
    text list = {0};
    for (int i = 0; i < context->slot_count; i++) text_print(&list, "%s%s", i ? ", " : "", names[i]);
    error_set(error, QN_BAD_CALL, "unknown device `%s`; the devices are %s", device, text_get(&list));
    text_free(&list);
    return QN_BAD_CALL;
}

void context_log(qn_context *context, unsigned kind, const char *format, ...)
{
    if (!(context->log & kind) || !context->print) return;
    text line = {0};
    va_list list;
    va_start(list, format);
    text_print_list(&line, format, list);
    va_end(list);
    pthread_mutex_lock(&context->log_lock);
    context->print(context->user, text_get(&line));
    pthread_mutex_unlock(&context->log_lock);
    text_free(&line);
}

void *memory_allocate(size_t size_bytes)
{
    if (size_bytes > (size_t)1 << 62) return NULL;
    if (size_bytes < 2 * HUGE_BYTES) return aligned_alloc(64, (size_bytes + 64) & ~(size_t)63);
    void *memory = aligned_alloc(HUGE_BYTES, (size_bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
    if (memory) madvise(memory, size_bytes, MADV_HUGEPAGE); /* only a hint */
    return memory;
}

void memory_free(void *memory)
{
    free(memory);
}
