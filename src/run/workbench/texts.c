/*
 * Texts of kernels, kept for reports. In: a kernel of a variant. Out: the lines of its source that matter and its
 * generated text, each line with the source line it came from; PTX and SASS on demand.
 *
 * Generated text has a comment with a source line in front of what came from it; annotated PTX has headings, SASS the
 * marks of NVIDIA's disassembler. The prelude is left out: the text begins at the kernel.
 * SPDX-License-Identifier: MIT
 */
#include "run/workbench/texts.h"

#include "base/record.h"
#include "device/cuda/cubin.h"
#include "device/cuda/nvrtc.h"
#include "run/workbench/show.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SOURCE_LINES = 300, AROUND = 12 };

/* ---- reading lines ---- */

/* A comment in front of what came from line 24: "24: y[i] = x;". */
static bool read_comment(const char *words, int *line)
{
    int used = 0;
    return sscanf(words, "/* %d: %n", line, &used) == 1 && used;
}

/* "// kernels/gelu.qn:24: y[i] = x;" */
static bool read_heading(const char *words, int *line)
{
    if (strncmp(words, "// ", 3) != 0) return false;
    for (const char *at = strchr(words, ':'); at; at = strchr(at + 1, ':')) {
        int used = 0;
        if (sscanf(at, ":%d:%n", line, &used) == 1 && used) return true;
    }
    return false;
}

/* `//## File "/x/gelu.qn", line 24 inlined at "/x/y.qn", line 30`: the first that is the user's. */
static bool read_mark(const char *words, const char *file, int *line)
{
    const char *at = strstr(words, "//## File"), *base = strrchr(file, '/');
    base = base ? base + 1 : file;
    for (at = at ? strstr(at, base) : NULL; at; at = strstr(at + 1, base))
        if (sscanf(at + strlen(base), "\", line %d", line) == 1) return true;
    return false;
}

static kernel_text *new_stage(kernel_texts *t, const char *stage)
{
    CHECK(t->stage_count < COUNT(t->stages));
    kernel_text *s = &t->stages[t->stage_count++];
    s->stage = stage;
    return s;
}

static void add_stage(kernel_texts *t, const char *stage, const char *words)
{
    kernel_text *s = new_stage(t, stage);
    bool ptx = !strcmp(stage, "ptx"), sass = !strcmp(stage, "sass");
    int line = 0;
    for (const char *p = words; *p;) {
        size_t length = strcspn(p, "\n");
        const char *own = arena_copy_text(t->memory, p, length), *first = own + strspn(own, " \t");
        int found;
        p += length + (p[length] == '\n');
        bool marks = sass  ? read_mark(first, t->file ? t->file : "?", &found)
                     : ptx ? read_heading(first, &found)
                           : read_comment(first, &found);
        if (marks) line = found;
        if (sass && !strncmp(first, "//##", 4)) continue; /* the marks themselves say nothing to a reader */
        if (*own == '}') line = 0;
        text_line item = {own, line};
        ARENA_PUSH(t->memory, s->lines, s->count, s->capacity, item);
    }
}

/* ---- from a kernel ---- */

static void lines_of(const tile_block *body, int *first, int *last)
{
    for (int i = 0; i < body->op_count; i++) {
        const tile_op *op = body->ops[i];
        if (op->line > 0) {
            *first = MINIMUM(*first, op->line);
            *last = MAXIMUM(*last, op->line);
        }
        for (int r = 0; r < op->region_count; r++) lines_of(op->regions[r], first, last);
    }
}

/* All of a short file; of a long one what the kernel's operations came from, and some lines around. */
static void add_source(kernel_texts *t, const tile_kernel *k)
{
    int first = 1, last = k->source_line_count;
    if (!k->source_lines) return;
    if (last > MOST_SOURCE_LINES) {
        int low = last, high = 0;
        for (int i = 0; i < k->phase_count; i++) lines_of(k->phases[i], &low, &high);
        first = high ? MAXIMUM(low - AROUND, 1) : 1;
        last = MINIMUM(high ? high + AROUND : MOST_SOURCE_LINES, last);
        last = MINIMUM(last, first + 2 * MOST_SOURCE_LINES);
    }
    for (int i = first; i <= last; i++) {
        const char *words = k->source_lines[i - 1];
        text_line line = {arena_copy_text(t->memory, words, strlen(words)), i};
        ARENA_PUSH(t->memory, t->source, t->source_count, t->source_capacity, line);
    }
}

/* Where the kernel itself begins: after the functions of the prelude. */
static const char *after_prelude(const char *words, bool cuda)
{
    for (const char *line = words; *line;) {
        const char *next = line + strcspn(line, "\n");
        next += *next == '\n';
        if (cuda ? !strncmp(line, "extern \"C\"", 10) : strstr(line, "_phase0") && strstr(line, "_phase0") < next)
            return line;
        line = next;
    }
    return words;
}

kernel_texts *texts_make(qn_context *context, int slot, const tile_kernel *k)
{
    const device_slot *s = &context->slots[slot];
    text words = {0};
    bool cuda = target_runs_cuda(s->name);
    if (s->driver->emit) {
        if (s->driver->emit(s->device, k, &words, NULL, NULL) != QN_OK) text_clear(&words);
    } else {
        tile_print(k, &words);
    }
    if (!words.length && !k->source_lines) {
        text_free(&words);
        return NULL;
    }
    arena *memory = arena_new();
    kernel_texts *t = ARENA_NEW(memory, kernel_texts);
    t->memory = memory;
    t->file = k->file ? arena_copy_text(memory, k->file, strlen(k->file)) : NULL;
    t->name = arena_copy_text(memory, k->name, strlen(k->name));
    t->raw = k->raw_language != NULL;
    add_source(t, k);
    const char *stage = !s->driver->emit ? "tile" : cuda ? "cuda" : "c", *all = text_get(&words);
    if (words.length) add_stage(t, stage, t->raw || !s->driver->emit ? all : after_prelude(all, cuda));
    if (cuda && words.length) t->whole = arena_copy_text(memory, all, words.length);
    text_free(&words);
    return t;
}

/* ---- compiled ---- */

qn_status texts_compile(kernel_texts *t, qn_context *context, int slot, qn_error *error)
{
    if (!t->whole) return QN_OK;
    text lined = {0}, ptx = {0}, sass = {0};
    nvrtc_output made = {0};
    const char *device = context->slots[slot].name;
    show_request r = {.stage = "ptx", .annotate = true};
    qn_status status = show_cuda_target(context, target_is_gpu(device) ? device : NULL, NULL, &r, error);
    const char **lines = ARENA_ARRAY(t->memory, const char *, t->source_count + 1);
    int line_count = t->source_count && t->source[0].source_line == 1 ? t->source_count : 0;
    for (int i = 0; i < line_count; i++) lines[i] = t->source[i].words;
    const tile_kernel about = {
        .name = t->name, .file = t->file, .source_lines = line_count ? lines : NULL, .source_line_count = line_count};
    if (t->file && !t->raw)
        show_put_lines(t->whole, t->file, &lined);
    else
        text_add(&lined, t->whole);
    if (status == QN_OK) status = show_compile(&r, text_get(&lined), &made, error);
    if (status == QN_OK) {
        if (t->file)
            show_annotated(text_get(&made.ptx), &about, &ptx);
        else
            text_add_bytes(&ptx, text_get(&made.ptx), made.ptx.length);
        add_stage(t, "ptx", text_get(&ptx));
        if (cubin_disassemble(made.cubin.data, made.cubin.length, true, &sass, NULL) == QN_OK)
            add_stage(t, "sass", text_get(&sass));
    }
    nvrtc_output_free(&made);
    text_free(&r.times.out);
    text_free(&lined);
    text_free(&ptx);
    text_free(&sass);
    return status;
}

void texts_free(kernel_texts *t)
{
    if (t) arena_free(t->memory);
}

void texts_retire(qn_context *context, int slot, const variant *v)
{
    if (!record_facts_know(v)) return;
    kernel_texts *t = context->closing ? NULL : texts_make(context, slot, v->kernel);
    record_facts_retire(v, t);
}
