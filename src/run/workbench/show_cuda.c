/*
 * The stages of CUDA: layout, text, PTX, machine code. In: a kernel and an architecture; no GPU is needed, and for layout
 * and text no NVRTC either. Out: the stage, PTX and machine code with a line for each kernel that says what it costs:
 * registers, shared memory, spills, and how many blocks a multiprocessor holds.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/cubin.h"
#include "device/cuda/cuda.h"
#include "device/cuda/nvrtc.h"
#include "emit/raw/raw.h"
#include "run/workbench/show.h"

#include <stdlib.h>
#include <string.h>

static const char *const stages[] = {"layout", "schedule", "choices", "loops", "cuda", "ptx", "sass", "hints"};

bool show_is_cuda(const char *stage)
{
    for (int i = 0; i < COUNT(stages); i++)
        if (!strcmp(stage, stages[i])) return true;
    return false;
}

qn_status show_cuda_target(qn_context *context, const char *device, const char *arch, show_request *r, qn_error *error)
{
    int number = 0;
    if (device && !target_runs_cuda(device))
        return error_set(error, QN_BAD_CALL, "the device %s has no stage `%s`: it is one of cuda", device, r->stage);
    if (arch && !arch_from_words(arch, &number))
        return error_set(error, QN_BAD_CALL, "`%s` is no GPU architecture; write one such as sm_90a", arch);
    if (arch && number < 75)
        return error_set(error, QN_BAD_CALL, "architecture %d is too old: 75 is the first that is supported", number);
    /* A device that runs this text, for the kernel's settings; the cpu will do. */
    bool there = context_slot(context, device ? device : "cuda", &r->slot, NULL) == QN_OK;
    const device_slot *s = &context->slots[there ? r->slot : 0];
    if (!there && context_slot(context, "ref", &r->slot, NULL) == QN_BAD_CALL) r->slot = 0;
    if (there && !arch && target_is_gpu(s->driver->name))
        r->target = ((const cuda_device *)s->device)->target;
    else
        r->target = cuda_target_default(number ? number : NVRTC_DEFAULT_ARCH);
    if (number) r->target.arch = number;
    return QN_OK;
}

/* ---- what it costs ---- */

static void put_usage(const show_request *r, const tile_kernel *k, const nvrtc_output *o, int phase, text *out)
{
    char symbol[300], arch[16];
    cubin_usage usage;
    cuda_shape shape = {0};
    snprintf(symbol, sizeof(symbol), "%.250s_phase%d", k->name, phase);
    arch_name(r->target.arch, arch);
    if (!cubin_read(o->cubin.data, o->cubin.length, symbol, &usage)) return;
    cubin_read_log(text_get(&o->log), symbol, &usage);
    bool shaped =
        r->planned && cuda_geometry(k, phase, &r->call->plan, r->call->views, &r->target, &shape, NULL) == QN_OK;
    int threads = shaped ? shape.threads : usage.most_threads;
    text_print(out, "// %s for %s: %d registers, %lld bytes of shared memory", symbol, arch, usage.registers,
               (long long)usage.shared_bytes + (long long)shape.shared_bytes);
    if (usage.spill_bytes > 0)
        text_print(out, ", SPILLS %lld bytes", (long long)usage.spill_bytes);
    else if (usage.local_bytes > 0)
        text_print(out, ", %lld bytes of local memory", (long long)usage.local_bytes);
    else
        text_add(out, ", no spills");
    text_print(out, ", %lld bytes of code\n", (long long)usage.code_bytes);
    if (threads <= 0) return;
    occupancy o2 = occupancy_of(r->target.arch, &usage, threads, shape.shared_bytes);
    text_print(out, "// %d threads a block%s", threads, shaped ? "" : " at most");
    if (shaped && shape.cluster > 1) text_print(out, ", clusters of %d", shape.cluster);
    if (shaped && shape.cooperative) text_add(out, ", cooperative");
    int64_t blocks = shape.grid[0] * shape.grid[1] * shape.grid[2];
    if (shaped) text_print(out, ", %lld block%s", (long long)blocks, blocks == 1 ? "" : "s");
    text_print(out, "; a multiprocessor holds %d (%d of %d warps, occupancy %d%%), limited by %s\n", o2.blocks,
               o2.warps, o2.most_warps, 100 * o2.warps / o2.most_warps, o2.limit);
}

/* ---- the stages ---- */

/* Generated text has a comment with the source line in front of what came from it; every line below such a comment gets
 * that number, so that it stays right over loops and blocks. */
void show_put_lines(const char *source, const char *file, text *out)
{
    int line = 0, own = 0;
    for (const char *p = source; *p;) {
        size_t length = strcspn(p, "\n");
        const char *words = p + strspn(p, " ");
        int number, used = 0;
        own++;
        if (sscanf(words, "/* %d: %n", &number, &used) == 1 && used) line = number;
        if (!strncmp(p, "extern \"C\"", 10)) {
            line = 0;
            text_print(out, "#line %d \"kernel.cu\"\n", own);
        }
        if (line && *words != '#' && *words != '\n') emit_add_line(line, file, out);
        text_print(out, "%.*s\n", (int)length, p);
        p += length + (p[length] == '\n');
    }
}

qn_status show_compile(show_request *r, const char *source, nvrtc_output *o, qn_error *error)
{
    nvrtc_options options = {.arch = r->target.arch, .usage = true, .line_info = r->annotate};
    nvrtc *compiler = nvrtc_new();
    qn_status status = nvrtc_ready(compiler, error); /* opening the library is not part of the time below */
    int64_t start = clock_now_ns();
    if (status == QN_OK) status = nvrtc_compile(compiler, source, "kernel.cu", &options, o, error);
    show_time(&r->times, "compile", "", clock_now_ns() - start);
    nvrtc_free(compiler);
    return status;
}

static qn_status show_compiled(show_request *r, const tile_kernel *k, const char *source, text *out, qn_error *error)
{
    nvrtc_output o = {0};
    qn_status status = show_compile(r, source, &o, error);
    int phases = k->raw_language ? 1 : k->phase_count;
    for (int i = 0; i < phases && status == QN_OK; i++) put_usage(r, k, &o, i, out);
    if (status == QN_OK && !strcmp(r->stage, "sass"))
        status = cubin_disassemble(o.cubin.data, o.cubin.length, r->annotate, out, error);
    else if (status == QN_OK && r->annotate)
        show_annotated(text_get(&o.ptx), k, out);
    else if (status == QN_OK)
        text_add_bytes(out, text_get(&o.ptx), o.ptx.length);
    nvrtc_output_free(&o);
    return status;
}

qn_status show_cuda(show_request *r, const tile_kernel *k, text *out, qn_error *error)
{
    if (k->raw_language && strcmp(k->raw_language, "cuda") != 0)
        return error_set(error, QN_BAD_CALL, "raw kernel `%s` is %s text: it has no stage `%s`", k->name,
                         k->raw_language, r->stage);
    if (!strcmp(r->stage, "layout") && k->raw_language)
        return error_set(error, QN_BAD_CALL, "raw kernel `%s` is laid out as it is written: it has no stage `layout`",
                         k->name);
    if (!strcmp(r->stage, "layout")) return emit_layout_print(k, &r->target, out, error);
    bool loops = !strcmp(r->stage, "loops"), choices = !strcmp(r->stage, "choices");
    if (choices && !k->raw_language) show_library(r, k, out);
    if (loops || choices || !strcmp(r->stage, "schedule"))
        return emit_schedule_print(k, &r->target, loops, out, error);
    text source = {0};
    int64_t start = clock_now_ns();
    qn_status status = emit_cuda(k, &r->target, &source, NULL, error);
    show_time(&r->times, "emit", "", clock_now_ns() - start);
    if (status == QN_OK && !strcmp(r->stage, "hints"))
        status = show_look(r, k, text_get(&source), error);
    else if (status == QN_OK && !strcmp(r->stage, "cuda"))
        text_add_bytes(out, text_get(&source), source.length);
    else if (status == QN_OK && r->annotate && !k->raw_language && k->file) {
        text lined = {0};
        show_put_lines(text_get(&source), k->file, &lined);
        status = show_compiled(r, k, text_get(&lined), out, error);
        text_free(&lined);
    } else if (status == QN_OK) {
        status = show_compiled(r, k, text_get(&source), out, error);
    }
    text_free(&source);
    return status;
}
