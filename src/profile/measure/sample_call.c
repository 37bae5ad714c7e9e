/*
 * qn_call_sample: where the warps of a kernel wait, by lines of its source. In: a call on a GPU. Out: lines with samples, most
 * first, and what was waited for there.
 *
 * Of a tensor function, whose kernels fusion wrote, the places are kernels: what each is made of.
 *
 * The kernel runs as it is. Which line an instruction came from, a twin knows: the same text, compiled once more with
 * line numbers, which changes no instruction (their sizes are compared).
 * SPDX-License-Identifier: MIT
 */
#include "base/json.h"
#include "device/cuda/cubin.h"
#include "device/cuda/cuda.h"
#include "profile/owners.h"
#include "profile/measure/sampling.h"
#include "run/run.h"
#include "run/workbench/show.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_LINES = 512, MOST_STALLS = 32, INSTRUCTION_BYTES = 16 };

static const struct stall {
    const char *name, *reason;
} stalls[] = {
#define COUNTER(name, unit, scale, metric, other)
#define STALL(name, reason) {name, reason},
#include "profile/measure/counters.def"
};

typedef struct line_sum {
    int line; /* 0: not known */
    int64_t samples, by_stall[MOST_STALLS];
} line_sum;

typedef struct lines {
    cuda_api api;
    nvrtc_output twin;
    bool same; /* the twin has the same instructions */
    const char *kernel;
    /* Of a tensor function instead: its kernels by name, and what is said of each. */
    const char *const *kernels, **titles;
    int kernel_count;
    line_sum sums[MOST_LINES];
    int count;
    char function[512]; /* the last that was looked up: */
    int *instructions, instruction_count;
} lines;

/* -1: of generated text that no line was written for. */
static int line_at(lines *l, const char *function, uint64_t offset)
{
    cupti_pc_line at = {.size = SIZE_UP_TO(cupti_pc_line, folder),
                        .cubin = l->twin.cubin.data,
                        .function = function,
                        .cubin_bytes = l->twin.cubin.length,
                        .offset = offset};
    if (l->api.cuptiGetSassToSourceCorrelation(&at)) return 0;
    bool generated = at.file && !strcmp(at.file, "kernel.cu");
    heap_free(at.file);
    heap_free(at.folder);
    return generated ? -1 : (int)at.line;
}

/* The lines of all instructions of a function. What is of a function of the prelude (an exponential, a product) counts
 * for the written line before it. */
static void map_function(lines *l, const char *function)
{
    cubin_usage usage;
    l->instruction_count = 0;
    snprintf(l->function, sizeof(l->function), "%s", function);
    if (!cubin_read(l->twin.cubin.data, l->twin.cubin.length, function, &usage)) return;
    int count = (int)(usage.code_bytes / INSTRUCTION_BYTES), last = 0;
    int *grown = realloc(l->instructions, sizeof(int) * (size_t)(count + 1));
    if (!grown) return;
    l->instructions = grown;
    for (int i = 0; i < count; i++) {
        int line = line_at(l, function, (uint64_t)i * INSTRUCTION_BYTES);
        l->instructions[i] = last = line > 0 ? line : last;
    }
    l->instruction_count = count;
}

static int line_of(lines *l, const char *function, uint64_t offset)
{
    if (!l->same || !l->api.cuptiGetSassToSourceCorrelation) return 0;
    if (strcmp(l->function, function) != 0) map_function(l, function);
    uint64_t number = offset / INSTRUCTION_BYTES;
    return number < (uint64_t)l->instruction_count ? l->instructions[number] : 0;
}

/* "smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued": the longest reason in it; -1: none of ours. */
static int stall_of(const char *reason)
{
    int best = -1;
    size_t length = 0;
    for (int i = 0; i < COUNT(stalls); i++)
        if (strlen(stalls[i].reason) > length && strstr(reason, stalls[i].reason)) {
            best = i;
            length = strlen(stalls[i].reason);
        }
    return best;
}

/* "NAME_phase0": the number of the kernel; -1: somebody else's. */
static int kernel_of(const lines *l, const char *function)
{
    for (int i = 0; i < l->kernel_count; i++) {
        size_t length = strlen(l->kernels[i]);
        if (!strncmp(function, l->kernels[i], length) && !strncmp(function + length, "_phase", 6)) return i;
    }
    return -1;
}

/* The counters of warps that could not issue are part of those of all: they would count twice. */
static void take(void *user, const char *function, uint64_t offset, const char *reason, uint32_t samples)
{
    lines *l = user;
    int stall = stall_of(reason), line, at = 0;
    if (stall < 0 || strstr(reason, "not_issued")) return;
    if (l->kernel_count) {
        line = kernel_of(l, function) + 1;
        if (!line) return;
    } else {
        if (strncmp(function, l->kernel, strlen(l->kernel)) != 0) return;
        line = line_of(l, function, offset);
    }
    while (at < l->count && l->sums[at].line != line) at++;
    if (at == MOST_LINES) return;
    if (at == l->count) l->sums[l->count++] = (line_sum){.line = line};
    l->sums[at].samples += samples;
    l->sums[at].by_stall[stall] += samples;
}

/* ---- the twin ---- */

static bool same_code(const nvrtc_output *twin, const char *path, const tile_kernel *k)
{
    char *image = NULL, symbol[512];
    size_t size = 0;
    qn_error ignored;
    cubin_usage own, other;
    bool same = file_read(path, (size_t)1 << 30, &image, &size, &ignored) == QN_OK;
    for (int phase = 0; same && phase < (k->raw_language ? 1 : k->phase_count); phase++) {
        snprintf(symbol, sizeof(symbol), "%.400s_phase%d", k->name, phase);
        same = cubin_read(image, size, symbol, &own) &&
               cubin_read(twin->cubin.data, twin->cubin.length, symbol, &other) && own.code_bytes == other.code_bytes;
    }
    heap_free(image);
    return same;
}

static qn_status make_twin(lines *l, const cuda_device *d, const variant *v, qn_error *error)
{
    text source = {0}, lined = {0};
    nvrtc_options options = {.arch = d->target.arch, .line_info = true};
    qn_status status = d->driver->emit((const device *)d, v->kernel, &source, NULL, error);
    if (status == QN_OK) {
        show_put_lines(text_get(&source), v->kernel->file ? v->kernel->file : "kernel.cu", &lined);
        status = nvrtc_compile(d->compiler, text_get(&lined), "kernel.cu", &options, &l->twin, error);
    }
    text_free(&source);
    text_free(&lined);
    if (status == QN_OK) l->same = v->binary_path && same_code(&l->twin, v->binary_path, v->kernel);
    return status;
}

/* ---- the call ---- */

static const char saw_nothing[] = "stall samples: the sampler saw nothing; CUPTI samples only where it did nothing "
                                  "before: take them first, before any "
                                  "profile or counters, and of one kernel in a process";

typedef struct sampled {
    qn_call *call;
    const device_slot *slot;
} sampled;

static qn_status run(void *user, qn_error *error)
{
    const sampled *s = user;
    for (int i = 0; i < 10; i++) QN_TRY(s->slot->driver->submit(s->call->ready, NULL, error));
    return s->slot->driver->finish(s->call->ready, error);
}

static int by_samples(const void *a, const void *b)
{
    int64_t x = ((const line_sum *)a)->samples, y = ((const line_sum *)b)->samples;
    return (x < y) - (x > y);
}

static void fill(lines *l, const char *file, qn_samples *out)
{
    qsort(l->sums, (size_t)l->count, sizeof(l->sums[0]), by_samples);
    for (int i = 0; i < l->count; i++) {
        const line_sum *s = &l->sums[i];
        int most = 0;
        for (int k = 1; k < COUNT(stalls); k++)
            if (s->by_stall[k] > s->by_stall[most]) most = k;
        out->total += s->samples;
        if (out->count < QN_MOST_LINES)
            out->items[out->count++] = (qn_line_samples){.file = l->kernel_count ? l->titles[s->line - 1]
                                                                 : s->line       ? file
                                                                                 : NULL,
                                                         .line = l->kernel_count ? 0 : s->line,
                                                         .samples = s->samples,
                                                         .reason = stalls[most].name,
                                                         .reason_samples = s->by_stall[most]};
    }
}

/* ---- a tensor function ---- */

typedef struct watched { /* first: the context knows it as a counter of launches */
    launch_counter hook;
    arena *memory;
    const char *kernels[MOST_LINES], *titles[MOST_LINES];
    int count;
} watched;

static void watch_launch(launch_counter *hook, int slot, const record_facts *f, const tile_kernel *k,
                         const array_view *views, launch_again *again, void *user)
{
    watched *w = (watched *)hook;
    for (int i = 0; i < w->count; i++)
        if (!strcmp(w->kernels[i], k->name)) return;
    if (w->count == MOST_LINES) return;
    const char *source = f ? owners_source(w->memory, f) : NULL;
    int at = w->count++;
    w->kernels[at] = arena_copy_text(w->memory, k->name, strlen(k->name));
    w->titles[at] = source ? source : w->kernels[at];
    (void)slot, (void)views, (void)again, (void)user;
}

static qn_status run_function(void *user, qn_error *error)
{
    const sampled *s = user;
    for (int i = 0; i < 10; i++) QN_TRY(call_launch(s->call, (int)(s->slot - s->call->context->slots), NULL, error));
    return QN_OK;
}

static qn_status sample_function(qn_call *call, int slot, qn_samples *samples, qn_error *error)
{
    const device_slot *s = &call->context->slots[slot];
    cuda_device *d = (cuda_device *)s->device;
    watched *w = heap_new(sizeof(*w));
    lines *l = heap_new(sizeof(*l));
    *w = (watched){.hook = {record_identity(), watch_launch}, .memory = arena_new()};
    launch_counter *before = call->context->counter;
    call->context->counter = &w->hook;
    qn_status status = call_launch(call, slot, NULL, error);
    call->context->counter = before;
    l->kernels = w->kernels;
    l->titles = w->titles;
    l->kernel_count = w->count;
    bool pushed;
    if (status == QN_OK) status = cuda_enter(d, &pushed, error);
    if (status == QN_OK) {
        sampled user = {call, s};
        status = sampling_gpu(d->context, run_function, &user, take, l, &samples->dropped, error);
        cuda_leave(d, pushed);
    }
    if (status == QN_OK && !l->count) status = error_set(error, QN_NO_DEVICE, "%s", saw_nothing);
    if (status == QN_OK) fill(l, NULL, samples);
    for (int i = 0; i < samples->count; i++) { /* they outlive this */
        qn_line_samples *at = &samples->items[i];
        if (at->file) at->file = arena_copy_text(call->memory, at->file, strlen(at->file));
    }
    arena_free(w->memory);
    heap_free(w);
    heap_free(l);
    return status;
}

qn_status qn_call_sample(qn_call *call, const char *device, qn_samples *samples, qn_error *error)
{
    HEAP_ENTER(error);
    int slot;
    if (!call || !samples) return error_set(error, QN_BAD_CALL, "qn_call_sample: an argument is NULL");
    *samples = (qn_samples){0};
    QN_TRY(context_slot(call->context, device, &slot, error));
    const device_slot *s = &call->context->slots[slot];
    if (s->driver != &driver_cuda)
        return error_set(error, QN_BAD_CALL, "stall samples are of a kernel on a GPU; `%s` is on %s",
                         call->kernel->name, s->name);
    if (call_is_function(call)) return sample_function(call, slot, samples, error);
    QN_TRY(call_launch(call, slot, NULL, error));
    cuda_device *d = (cuda_device *)s->device;
    lines *l = calloc(1, sizeof(*l));
    bool pushed;
    if (!l) return error_set(error, QN_NO_MEMORY, "there is no memory for stall samples");
    l->kernel = call->variant->kernel->name;
    qn_status status = cuda_api_open(&l->api, CUDA_LIBRARY_CUPTI, error);
    if (status == QN_OK) status = make_twin(l, d, call->variant, error);
    if (status == QN_OK) status = cuda_enter(d, &pushed, error);
    if (status == QN_OK) {
        sampled user = {call, s};
        status = sampling_gpu(d->context, run, &user, take, l, &samples->dropped, error);
        cuda_leave(d, pushed);
    }
    if (status == QN_OK && !l->count) status = error_set(error, QN_NO_DEVICE, "%s", saw_nothing);
    if (status == QN_OK) fill(l, call->variant->kernel->file, samples);
    nvrtc_output_free(&l->twin);
    cuda_api_close(&l->api);
    heap_free(l->instructions);
    heap_free(l);
    return status;
}

void qn_samples_json(const qn_samples *samples, qn_write *write, void *user)
{
    json out = {0};
    text place = {0};
    if (!samples || !write) return;
    for (int i = 0; i < samples->count; i++) {
        const qn_line_samples *at = &samples->items[i];
        text_clear(&place);
        text_add(&place, at->file ? at->file : "(of no line)");
        if (at->file && at->line) text_print(&place, ":%d", at->line);
        json_open_object(&out);
        json_text(&out, "place", text_get(&place));
        json_whole(&out, "samples", at->samples);
        json_number(&out, "share_percent", 100.0 * (double)at->samples / (double)MAXIMUM(samples->total, 1));
        json_text(&out, "reason", at->reason);
        json_number(&out, "reason_percent", 100.0 * (double)at->reason_samples / (double)MAXIMUM(at->samples, 1));
        json_close_object(&out);
    }
    const char *list = json_finish(&out);
    write(user, list, strlen(list));
    json_free(&out);
    text_free(&place);
}
