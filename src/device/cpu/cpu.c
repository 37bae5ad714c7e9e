/*
 * The `cpu` device: C text through the system's compiler, loaded with dlopen, run by the thread pool.
 *
 * In: kernels that went through the pipeline, and launches. A program is a loaded library with one function per phase;
 * a launch hands out program numbers to the pool's workers, each with scratch memory of its own that is kept and grown
 * between launches, so that a launch in the steady state allocates nothing. A failed assert comes back in a report.
 * Launches may come from several threads: the pool runs one job at a time, which also keeps the scratch private.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/cpu/cpu.h"
#include "device/ceilings.h"
#include "device/failure.h"
#include "passes/passes.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LARGE_PAGE_BYTES ((uint64_t)2 << 20)

/* ---- the device ---- */

static device *cpu_open(const device_options *options)
{
    cpu_device *d = heap_new(sizeof(*d));
    d->driver = &driver_cpu;
    if (options) d->options = *options;
    d->threads = d->options.threads > 0 ? d->options.threads : cpu_count();
    d->options.folder = d->folder = d->options.folder ? strdup(d->options.folder) : NULL;
    d->numbers = cpu_numbers_find(d->folder);
    pthread_mutex_init(&d->lock, NULL);
    compiler_find(&d->compiler);
    return (device *)d;
}

static void cpu_close(device *base)
{
    cpu_device *d = (cpu_device *)base;
    pool_free(d->pool);
    for (int i = 0; d->memory && i < d->threads; i++) heap_free(d->memory[i].data);
    heap_free(d->memory);
    free(d->folder);
    pthread_mutex_destroy(&d->lock);
    heap_free(d);
}

static void cpu_about(const device *base, device_about *about)
{
    const cpu_device *d = (const cpu_device *)base;
    *about = (device_about){.available = d->compiler.path[0] != 0, .units = d->threads};
    char processor[128];
    processor_name(processor, sizeof(processor));
    if (about->available)
        snprintf(about->description, sizeof(about->description), "%.80s, %d thread%s, %d-bit vectors, compiler %.100s",
                 processor, d->threads, d->threads == 1 ? "" : "s", 8 * processor_vector_bytes(), d->compiler.name);
    else
        compiler_missing(&d->compiler, about->description, sizeof(about->description));
    if (about->available && d->compiler.wanted[0])
        snprintf(about->note, sizeof(about->note),
                 "`%.80s` of $%s cannot be run and was not used; the compiler is %.100s", d->compiler.wanted,
                 d->compiler.wanted_by, d->compiler.path);
}

static cpu_numbers numbers_of(const cpu_device *d)
{
    pthread_mutex_t *lock = &((cpu_device *)d)->lock;
    pthread_mutex_lock(lock);
    cpu_numbers n = d->numbers;
    pthread_mutex_unlock(lock);
    return n;
}

static qn_status cpu_adapt(device *base, const char *loops_path, qn_error *error)
{
    cpu_device *d = (cpu_device *)base;
    cpu_numbers found;
    QN_TRY(ceilings_numbers(loops_path, d->threads, &found, error));
    pthread_mutex_lock(&d->lock);
    d->numbers = found;
    pthread_mutex_unlock(&d->lock);
    cpu_numbers_keep(d->folder, &found);
    return QN_OK;
}

static void cpu_describe(device *base, text *out)
{
    cpu_numbers n = numbers_of((const cpu_device *)base);
    text_print(out, "text reads %d and %d bytes ahead, %d bodies in step, writes around the caches from %.0f MB (%s)\n",
               n.near_bytes, n.far_bytes, n.bodies, (double)n.stream_bytes / 1048576,
               n.measured ? "measured on this machine" : "as usual: --measure finds what is best here");
}

static void cpu_tool(const device *base, text *out)
{
    compiler_describe(&((const cpu_device *)base)->compiler, out);
}

static qn_status cpu_emit(const device *base, const tile_kernel *k, text *out, struct cuda_layout **layout,
                          qn_error *error)
{
    const cpu_numbers n = numbers_of((const cpu_device *)base);
    const emit_options options = {.near_bytes = n.near_bytes,
                                  .far_bytes = n.far_bytes,
                                  .bodies = n.bodies,
                                  .l1_bytes = (int)processor_cache_bytes(1),
                                  .l2_bytes = (int)processor_cache_bytes(2),
                                  .vector_bytes = processor_vector_bytes(),
                                  .vector_registers = processor_vector_registers()};
    return emit_c(k, &options, out, error);
}

static qn_status cpu_assemble(const device *base, const char *source, const char *binary_path, qn_error *error)
{
    return compiler_run(&((const cpu_device *)base)->compiler, source, binary_path, error);
}

static qn_status cpu_disassemble(const device *base, const char *source, text *out, qn_error *error)
{
    return compiler_show(&((const cpu_device *)base)->compiler, source, out, error);
}

/* ---- facts ---- */

static int class_of(int64_t extent)
{
    static const int64_t limits[] = {64, 1024, 4096, 65536, 1 << 20};
    int class = 0;
    while (class < COUNT(limits) && extent > limits[class]) class ++;
    return class;
}

static void cpu_choose_facts(const device *base, tile_kernel *k, const array_view *arrays, const launch_plan *plan)
{
    const int64_t stream_bytes = numbers_of((const cpu_device *)base).stream_bytes;
    double bytes = 0;
    for (int i = 0; i < k->param_count; i++)
        if (k->params[i].kind < PARAM_SCRATCH)
            bytes += (double)view_count(&arrays[i]) * dtypes[arrays[i].elem].size_bytes;
    for (int i = 0; i < k->param_count; i++) {
        tile_param *p = &k->params[i];
        tile_facts *f = &p->facts;
        if (p->kind == PARAM_SCALAR || p->kind == PARAM_EXTENT) {
            int64_t number = plan->scalars_bits[i];
            if (facts_of_number(p, number)) f->size_class = class_of(number); /* of what is no extent it is dropped */
            continue;
        }
        const array_view *v = &arrays[i];
        *f = (tile_facts){.size_class = -1};
        if (p->digits) continue; /* its strides say nothing */
        f->contiguous = view_is_row_major(v);
        f->last_unit = view_has_unit_lines(v);
        f->aligned = view_is_aligned(v, 64);
        f->small = view_span(v) < (int64_t)1 << 31;
        f->streams = p->kind == PARAM_OUT && bytes > (double)stream_bytes;
    }
}

/* ---- programs ---- */

static bool find_symbol(void *library, const char *kernel, const char *suffix, void *function, size_t size)
{
    char name[400];
    snprintf(name, sizeof(name), "%s_%s", kernel, suffix);
    void *address = dlsym(library, name);
    memcpy(function, &address, size);
    return address != NULL;
}

static qn_status cpu_load(device *base, const tile_kernel *k, const char *binary_path, struct cuda_layout *layout,
                          program **out, qn_error *error)
{
    void *library = dlopen(binary_path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return failure_load(binary_path, error);
    cpu_program *p = heap_new(sizeof(*p));
    p->driver = &driver_cpu;
    p->device = (cpu_device *)base;
    p->kernel = k;
    p->library = library;
    p->phase_count = k->raw_language ? 1 : k->phase_count;
    CHECK(p->phase_count <= MAX_PHASES);
    bool good = find_symbol(library, k->name, "scratch_bytes", &p->scratch_bytes, sizeof(p->scratch_bytes));
    for (int i = 0; i < p->phase_count && good; i++) {
        char suffix[24];
        snprintf(suffix, sizeof(suffix), "phase%d", i);
        good = find_symbol(library, k->name, suffix, &p->phases[i], sizeof(p->phases[i]));
    }
    if (!good) {
        dlclose(library);
        heap_free(p);
        return error_set(error, QN_FAILED, "%s is not the binary of kernel `%s`", binary_path, k->name);
    }
    *out = (program *)p;
    return QN_OK;
}

static void cpu_unload(program *base)
{
    cpu_program *p = (cpu_program *)base;
    dlclose(p->library);
    heap_free(p);
}

/* ---- launches ---- */

pool *cpu_pool(cpu_device *d)
{
    lock_take(&d->lock);
    if (!d->pool) {
        d->memory = heap_array((size_t)d->threads, sizeof(cpu_memory));
        d->pool = pool_new(d->threads);
    }
    lock_give(&d->lock);
    return d->pool;
}

/* Lines of `print` come from many threads; they go out one at a time. */
static void print_line(void *context, const char *line)
{
    cpu_device *d = context;
    lock_take(&d->lock);
    if (d->options.print) d->options.print(d->options.print_user, line);
    lock_give(&d->lock);
}

bool cpu_grow(cpu_memory *m, uint64_t size_bytes)
{
    if (m->size_bytes >= size_bytes) return true;
    heap_free(m->data);
    /* Large pages where it is large: packed panels of products are read all over. */
    uint64_t step = size_bytes > LARGE_PAGE_BYTES / 4 ? LARGE_PAGE_BYTES : 4096;
    uint64_t size = (size_bytes + size_bytes / 4 + step - 1) / step * step;
    m->data = aligned_alloc(step, size);
    m->size_bytes = m->data ? size : 0;
    if (m->data && step == LARGE_PAGE_BYTES) (void)madvise(m->data, size, MADV_HUGEPAGE);
    return m->data != NULL;
}

void cpu_work(void *context, int64_t first, int64_t last, int worker)
{
    cpu_job *j = context;
    cpu_memory *m = &j->device->memory[worker];
    if (j->launch.report->failed) return;
    if (cpu_grow(m, j->scratch_bytes))
        j->phase(&j->launch, first, last, m->data);
    else
        atomic_store(&j->no_memory, true);
}

int64_t cpu_views(const tile_kernel *k, const array_view *arrays, cpu_array *views)
{
    int64_t bytes = 0;
    for (int i = 0; i < k->param_count; i++) {
        if (k->params[i].kind > PARAM_SCRATCH) continue;
        views[i].data = arrays[i].data;
        memcpy(views[i].extents, arrays[i].extents, sizeof(views[i].extents));
        memcpy(views[i].strides, arrays[i].strides, sizeof(views[i].strides));
        bytes += view_count(&arrays[i]) * dtypes[arrays[i].elem].size_bytes;
    }
    return bytes;
}

int64_t cpu_job_make(cpu_program *p, int phase, const cpu_array *views, const launch_plan *plan, cpu_report *report,
                     cpu_job *out)
{
    cpu_device *d = p->device;
    *out = (cpu_job){.device = d,
                     .phase = p->phases[phase],
                     .launch = {.arrays = views,
                                .scalars = plan->scalars_bits,
                                .report = report,
                                .print = d->options.print ? print_line : NULL,
                                .print_context = d}};
    int64_t *programs = out->launch.programs;
    memcpy(programs, plan->programs[phase], sizeof(out->launch.programs));
    if (p->kernel->raw_once) programs[0] = programs[1] = programs[2] = 1;
    out->scratch_bytes = p->scratch_bytes(&out->launch);
    return programs[0] * programs[1] * programs[2];
}

qn_status cpu_job_status(const cpu_program *p, int phase, const cpu_job *j, const launch_plan *plan, qn_error *error)
{
    const cpu_report *report = j->launch.report;
    if (atomic_load(&j->no_memory))
        return error_set(error, QN_NO_MEMORY, "kernel `%s` needs %llu bytes of scratch memory for each thread",
                         p->kernel->name, (unsigned long long)j->scratch_bytes);
    if (!report->failed) return QN_OK;
    if (report->failed == CPU_FAILED_MEMORY)
        return error_set(error, QN_NO_MEMORY, "%s:%d: no memory for a tile whose extent the program computes",
                         p->kernel->file ? p->kernel->file : p->kernel->name, (int)report->line);
    return failure_assert(p->kernel, (int)report->line, report->program, plan->programs[phase], error);
}

static qn_status cpu_launch_program(program *base, const array_view *arrays, const launch_plan *plan,
                                    const launch_options *options, qn_error *error)
{
    cpu_program *p = (cpu_program *)base;
    pool *workers = cpu_pool(p->device);
    cpu_array views[MAX_PARAMS];
    CHECK(p->kernel->param_count <= MAX_PARAMS);
    int64_t bytes = cpu_views(p->kernel, arrays, views);
    cpu_report report = {0};
    (void)options;
    for (int i = 0; i < p->phase_count; i++) {
        cpu_job j;
        int64_t count = cpu_job_make(p, i, views, plan, &report, &j);
        pool_run(workers, count, bytes <= CPU_FEW_BYTES ? count : 1, cpu_work, &j);
        QN_TRY(cpu_job_status(p, i, &j, plan, error));
    }
    return QN_OK;
}

const driver driver_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .about = cpu_about,
    .describe = cpu_describe,
    .adapt = cpu_adapt,
    .choose_facts = cpu_choose_facts,
    .emit = cpu_emit,
    .tool = cpu_tool,
    .assemble = cpu_assemble,
    .disassemble = cpu_disassemble,
    .load = cpu_load,
    .unload = cpu_unload,
    .launch = cpu_launch_program,
    .series_open = cpu_series_open,
    .series_run = cpu_series_run,
    .series_move = cpu_series_move,
    .series_close = cpu_series_close,
};
