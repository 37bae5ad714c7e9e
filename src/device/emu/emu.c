/*
 * The `emu` device: CUDA text on the CPU. In: the bytes that NVRTC gets, generated or the user's; launches. Out: what a
 * GPU would compute, slowly, and what it would not tell: barrier divergence, and in the checked mode races between
 * its threads and accesses outside of arrays, with their lines. It is for correctness, not for speed.
 *
 * The text is compiled as C++ (emu/unit.c) and its threads run as coroutines (emu/engine.c). Arrays are the host's. In
 * the checked mode they are copied between wide margins, so that an index that is too large meets a margin and not the
 * next array. Text and geometry are those for the usual GPU, an H200: what runs here is what would run there.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/facts.h"
#include "device/cuda/frame.h"
#include "device/cuda/print.h"
#include "device/device.h"
#include "device/emu/unit.h"
#include "device/failure.h"
#include "device/cuda/tensor_map.h"
#include "emit/raw/raw.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 256
#define FEW_BLOCKS 4 /* of a cooperative launch that is right with any number */

typedef struct emu_device {
    const driver *driver;
    device_options options;
    compiler compiler;
    emu_engine *engine;
    cuda_target target;
    bool checked;
    emu_order order;
    pthread_mutex_t print_lock;
} emu_device;

typedef struct emu_program {
    const driver *driver;
    emu_device *device;
    const tile_kernel *kernel;
    emu_library library;
    cuda_layout *layout; /* NULL: a raw kernel */
    emu_entry *entries[MAX_PHASES];
    int phase_count;
} emu_program;

/* ---- the device ---- */

static device *emu_open(const device_options *options)
{
    emu_device *d = heap_new(sizeof(*d));
    d->driver = &driver_emu;
    if (options) d->options = *options;
    d->engine = emu_engine_new(d->options.threads > 0 ? d->options.threads : cpu_count());
    d->target = cuda_target_default(0);
    pthread_mutex_init(&d->print_lock, NULL);
    compiler_find_cpp(&d->compiler);
    return (device *)d;
}

static void emu_close(device *base)
{
    emu_device *d = (emu_device *)base;
    emu_engine_free(d->engine);
    pthread_mutex_destroy(&d->print_lock);
    heap_free(d);
}

static void emu_about(const device *base, device_about *about)
{
    const emu_device *d = (const emu_device *)base;
    *about = (device_about){
        .available = d->compiler.path[0] != 0, .units = d->target.multiprocessors, .arch = d->target.arch};
    if (about->available)
        snprintf(about->description, sizeof(about->description),
                 "runs CUDA text on the CPU, for checking it; compiler %.100s", d->compiler.name);
    else
        snprintf(about->description, sizeof(about->description),
                 "no C++ compiler on PATH: install g++ (apt-get install g++) or clang, or set QUERN_CXX");
    if (about->available && d->compiler.wanted[0])
        snprintf(about->note, sizeof(about->note),
                 "`%.80s` of $%s cannot be run and was not used; the compiler is %.100s", d->compiler.wanted,
                 d->compiler.wanted_by, d->compiler.path);
}

static void emu_set_checked(device *base, bool checked)
{
    emu_device *d = (emu_device *)base;
    d->checked = d->target.line_directives = checked;
}

void emu_vary(device *base, int units, emu_order order)
{
    emu_device *d = (emu_device *)base;
    d->target.multiprocessors = units;
    d->order = order;
}

static void emu_choose_facts(const device *base, tile_kernel *k, const array_view *arrays, const launch_plan *plan)
{
    cuda_choose_facts(k, arrays, plan);
}

static qn_status emu_emit(const device *base, const tile_kernel *k, text *out, cuda_layout **layout, qn_error *error)
{
    return emit_cuda(k, &((const emu_device *)base)->target, out, layout, error);
}

static qn_status emu_schedule(const device *base, const tile_kernel *k, text *out, qn_error *error)
{
    return emit_schedule_print(k, &((const emu_device *)base)->target, false, out, error);
}

static void emu_tool(const device *base, text *out)
{
    const emu_device *d = (const emu_device *)base;
    emu_unit_describe(&d->compiler, d->checked, out);
}

static qn_status emu_assemble(const device *base, const char *source, const char *binary_path, qn_error *error)
{
    const emu_device *d = (const emu_device *)base;
    return emu_unit_compile(&d->compiler, source, d->checked, binary_path, error);
}

static qn_status emu_disassemble(const device *base, const char *source, text *out, qn_error *error)
{
    return emu_unit_show(&((const emu_device *)base)->compiler, source, out, error);
}

/* ---- programs ---- */

static void emu_unload(program *base)
{
    emu_program *p = (emu_program *)base;
    emu_library_close(&p->library);
    cuda_layout_free(p->layout);
    heap_free(p);
}

static qn_status emu_load(device *base, const tile_kernel *k, const char *binary_path, cuda_layout *layout,
                          program **out, qn_error *error)
{
    emu_program *p = heap_new(sizeof(*p));
    p->driver = &driver_emu;
    p->device = (emu_device *)base;
    p->kernel = k;
    p->layout = layout;
    p->phase_count = k->raw_language ? 1 : k->phase_count;
    CHECK(p->phase_count <= MAX_PHASES);
    qn_status status = emu_library_open(binary_path, &p->library, error);
    for (int i = 0; i < p->phase_count && status == QN_OK; i++) {
        char name[300];
        snprintf(name, sizeof(name), "%s_phase%d", k->name, i);
        p->entries[i] = emu_library_find(&p->library, name);
        if (!p->entries[i])
            status = error_set(error, QN_FAILED, "%s is not the binary of kernel `%s`", binary_path, k->name);
    }
    if (status != QN_OK) {
        p->layout = NULL; /* still the caller's */
        emu_unload((program *)p);
        return status;
    }
    *out = (program *)p;
    return QN_OK;
}

/* ---- arrays of the checked mode ---- */

typedef struct margins { /* copies of the arrays, each with room around it */
    array_view views[MAX_PARAMS];
    emu_range ranges[EMU_MAX_RANGES];
    int range_count;
    char *memory[MAX_PARAMS], *first[MAX_PARAMS]; /* first: of the host's array */
    size_t bytes[MAX_PARAMS];
} margins;

/* The lowest place of an array with digits that no guard keeps away and the end of the highest, over the axes from `axis` on. */
static void digits_reach(const param_digits *d, const array_view *v, int axis, int64_t place, const int64_t *guards,
                         int64_t *low, int64_t *high)
{
    if (axis < v->rank) {
        for (int64_t at = 0; at < v->extents[axis]; at++) {
            int64_t sums[GUARDS_MOST];
            memcpy(sums, guards, sizeof(sums));
            int64_t moved = digits_place(d, axis, at, sums);
            digits_reach(d, v, axis + 1, place + moved, sums, low, high);
        }
        return;
    }
    for (int g = 0; g < d->guard_count; g++)
        if (guards[g] < 0 || guards[g] >= d->guard_extent[g]) return;
    if (place < *low) *low = place;
    if (place >= *high) *high = place + 1;
}

/* The bytes from the lowest element to the end of the highest. */
static void reach_of(const tile_param *p, const array_view *v, char **first, size_t *bytes)
{
    int64_t low, high, size = dtypes[v->elem].size_bytes;
    view_reach(v, &low, &high);
    if (p->digits && high > low) { /* its strides say nothing */
        low = 0;
        high = 1;
        digits_reach(p->digits, v, 0, p->digits->origin, p->digits->guard_first, &low, &high);
    }
    *first = (char *)v->data + low * size;
    *bytes = (size_t)((high - low) * size);
}

static bool margins_open(margins *m, const tile_kernel *k, const array_view *arrays)
{
    for (int i = 0; i < k->param_count; i++) {
        const tile_param *p = &k->params[i];
        if (p->kind > PARAM_SCRATCH) continue;
        m->views[i] = arrays[i];
        reach_of(p, &arrays[i], &m->first[i], &m->bytes[i]);
        size_t room = 65536 + (m->bytes[i] + 4095) / 4096 * 4096;
        m->memory[i] = malloc(m->bytes[i] + 2 * room + ALIGNMENT);
        if (!m->memory[i]) return false;
        /* At the same place within a line, so that what was promised of the alignment still holds. */
        uintptr_t place = ((uintptr_t)m->memory[i] + room) & ~(uintptr_t)(ALIGNMENT - 1);
        char *copy = (char *)place + (uintptr_t)m->first[i] % ALIGNMENT;
        memcpy(copy, m->first[i], m->bytes[i]);
        m->views[i].data = copy + ((char *)arrays[i].data - m->first[i]);
        m->ranges[m->range_count++] = (emu_range){.name = p->name,
                                                  .kind = EMU_RANGE_WATCHED,
                                                  .first = (uintptr_t)copy,
                                                  .end = (uintptr_t)copy + m->bytes[i],
                                                  .elem_bytes = dtypes[p->elem].size_bytes,
                                                  .read_only = p->kind == PARAM_IN};
    }
    return true;
}

/* What was written goes back to the host's arrays. */
static void margins_close(margins *m, const tile_kernel *k)
{
    int range = 0;
    for (int i = 0; i < k->param_count; i++) {
        if (k->params[i].kind > PARAM_SCRATCH || !m->memory[i]) continue;
        if (k->params[i].kind != PARAM_IN) memcpy(m->first[i], (void *)m->ranges[range].first, m->bytes[i]);
        range++;
        heap_free(m->memory[i]);
    }
}

static void margins_add(margins *m, const void *memory, size_t bytes, emu_range_kind kind)
{
    if (bytes)
        m->ranges[m->range_count++] =
            (emu_range){.kind = kind, .first = (uintptr_t)memory, .end = (uintptr_t)memory + bytes, .elem_bytes = 1};
}

/* ---- launches ---- */

/* What a kernel printed itself, a line at a time. */
static void print_words(void *context, const char *words)
{
    emu_device *d = context;
    if (!d->options.print) return;
    char line[1024];
    lock_take(&d->print_lock);
    while (*words) {
        size_t length = strcspn(words, "\n");
        snprintf(line, sizeof(line), "%.*s", (int)MINIMUM(length, sizeof(line) - 1), words);
        d->options.print(d->options.print_user, line);
        words += length + (words[length] == '\n');
    }
    lock_give(&d->print_lock);
}

/* The findings as lines "file:line: words (the other on line 12; 5 times)". */
static qn_status findings_error(const emu_program *p, const emu_launch *launch, qn_error *error)
{
    text words = {0}, places[2][EMU_MAX_FINDINGS] = {0};
    bool known[EMU_MAX_FINDINGS] = {0};
    for (int i = 0; i < launch->finding_count; i++) {
        const emu_finding *f = &launch->findings[i];
        text *place = &places[0][i], *other = &places[1][i];
        if (!f->place && f->at.file) {
            const char *slash = strrchr(f->at.file, '/');
            text_print(place, "%s:%d", slash ? slash + 1 : f->at.file, f->at.line);
        }
        if (f->place) (void)emu_library_line(&p->library, f->place, place);
        if (f->other) (void)emu_library_line(&p->library, f->other, other);
        for (int k = 0; k < i && !known[i]; k++) /* an unrolled loop has several places for one line */
            known[i] = !strcmp(text_get(&places[0][k]), text_get(place)) && place->length &&
                       !strcmp(text_get(&places[1][k]), text_get(other)) &&
                       !strncmp(launch->findings[k].words, f->words, 16);
        if (known[i]) continue;
        text_print(&words, "%s%s%s, kernel `%s`", text_get(place), place->length ? ": " : "", f->words,
                   p->kernel->name);
        if (other->length) text_print(&words, "; the other access: %s", text_get(other));
        if (f->times > 1) text_print(&words, " (%lld times)", (long long)f->times);
        text_add(&words, "\n");
    }
    for (int i = 0; i < launch->finding_count; i++) {
        text_free(&places[0][i]);
        text_free(&places[1][i]);
    }
    qn_status status = error_set(error, launch->stopped ? QN_FAILED : QN_FINDING, "%s", text_get(&words));
    text_free(&words);
    return status;
}

typedef struct scene { /* memory of one launch besides its arrays */
    _Alignas(64) int64_t frame[CUDA_FRAME_MOST_WORDS];
    cuda_report report;
    void *scratch, *sync;
    int64_t *ring;
} scene;

static qn_status run_phase(emu_program *p, int phase, const array_view *arrays, const launch_plan *plan, scene *s,
                           margins *m, qn_error *error)
{
    const tile_kernel *k = p->kernel;
    emu_device *d = p->device;
    cuda_shape shape = {0};
    if (k->raw_language)
        QN_TRY(raw_cuda_shape(k, plan, &d->target, &shape, error));
    else
        QN_TRY(cuda_shape_of(p->layout, phase, plan, &shape, error));
    if (shape.fewer) shape.grid[0] = MINIMUM(shape.grid[0], FEW_BLOCKS); /* they all live at once */
    int64_t blocks = shape.grid[0] * shape.grid[1] * shape.grid[2];
    if (!blocks) return QN_OK;
    size_t scratch = ((size_t)shape.scratch_bytes + ALIGNMENT) & ~(size_t)(ALIGNMENT - 1);
    size_t sync = ((size_t)shape.sync_bytes + ALIGNMENT) & ~(size_t)(ALIGNMENT - 1);
    heap_free(s->scratch);
    heap_free(s->sync);
    s->scratch = aligned_alloc(ALIGNMENT, scratch);
    s->sync = aligned_alloc(ALIGNMENT, sync);
    if (!s->scratch || !s->sync)
        return error_set(error, QN_NO_MEMORY, "kernel `%s` needs %lld bytes of scratch memory", k->name,
                         (long long)shape.scratch_bytes);
    memset(s->scratch, 0xff, scratch); /* NaN: what nobody wrote shows */
    memset(s->sync, 0, sync);
    s->report = (cuda_report){0};
    cuda_tail tail = {.report = &s->report,
                      .scratch = shape.scratch_bytes ? s->scratch : NULL,
                      .sync = shape.sync_bytes ? s->sync : NULL,
                      .print = s->ring,
                      .units = d->target.multiprocessors};
    const cuda_map *maps = NULL;
    int map_count = cuda_layout_maps(p->layout, phase, &maps);
    int64_t *frame = s->frame + map_count * CUDA_MAP_WORDS;
    for (int i = 0; i < map_count; i++) {
        map_numbers numbers;
        QN_TRY(map_numbers_of(&maps[i], &arrays[maps[i].param], &numbers, error));
        map_for_emu(&numbers, s->frame + i * CUDA_MAP_WORDS);
    }
    cuda_frame_arguments(k, arrays, plan, frame);
    cuda_frame_tail(k, plan, phase, &tail, frame);
    void *arguments[] = {s->frame};
    emu_launch launch = {.entry = p->entries[phase],
                         .arguments = arguments,
                         .block = {(uint32_t)shape.threads, 1, 1},
                         .cluster_blocks = shape.cluster,
                         .cooperative = shape.cooperative,
                         .shared_bytes = (size_t)shape.shared_bytes,
                         .touch = p->library.touch,
                         .dynamic = p->library.dynamic,
                         .library_address = (const void *)p->library.first,
                         .print = print_words,
                         .print_context = d,
                         .order = d->order,
                         .checked = p->library.checked};
    for (int i = 0; i < 3; i++) {
        launch.grid[i] = (uint32_t)shape.grid[i];
        if (shape.block[0]) launch.block[i] = (uint32_t)shape.block[i];
    }
    int ranges = m ? m->range_count : 0;
    if (m) {
        margins_add(m, s->scratch, (size_t)shape.scratch_bytes, EMU_RANGE_WATCHED);
        margins_add(m, s->sync, (size_t)shape.sync_bytes, EMU_RANGE_SYNC);
        margins_add(m, &s->report, sizeof(s->report), EMU_RANGE_OTHER);
        margins_add(m, s->ring, s->ring ? (size_t)CUDA_PRINT_WORDS * sizeof(int64_t) : 0, EMU_RANGE_OTHER);
        margins_add(m, (const void *)p->library.first, p->library.end - p->library.first, EMU_RANGE_OTHER);
        launch.ranges = m->ranges;
        launch.range_count = m->range_count;
    }
    qn_status status = emu_engine_run(d->engine, &launch, error);
    if (m) m->range_count = ranges;
    QN_TRY(status);
    if (s->ring) {
        lock_take(&d->print_lock);
        cuda_print_drain(s->ring, CUDA_PRINT_WORDS, k, d->options.print, d->options.print_user);
        lock_give(&d->print_lock);
    }
    if (launch.finding_count) return findings_error(p, &launch, error);
    if (s->report.failed == CUDA_FAILED_BOUNDS)
        return failure_bounds(k, (int)s->report.line, s->report.program, plan->programs[phase], s->report.array,
                              s->report.index, error);
    if (s->report.failed)
        return failure_assert(k, (int)s->report.line, s->report.program, plan->programs[phase], error);
    return QN_OK;
}

static qn_status emu_launch_program(program *base, const array_view *arrays, const launch_plan *plan,
                                    const launch_options *options, qn_error *error)
{
    (void)options;
    emu_program *p = (emu_program *)base;
    const tile_kernel *k = p->kernel;
    CHECK(k->param_count <= MAX_PARAMS);
    scene *s = aligned_alloc(_Alignof(scene), sizeof(scene)); /* the frame of a kernel with maps is aligned */
    if (s) memset(s, 0, sizeof(*s));
    margins *m = p->library.checked ? calloc(1, sizeof(*m)) : NULL;
    qn_status status = QN_OK;
    if (!s || (p->library.checked && !m) || (m && !margins_open(m, k, arrays)))
        status = error_set(error, QN_NO_MEMORY, "no memory for the arrays of kernel `%s` between margins", k->name);
    CHECK(s || status != QN_OK);
    if (status == QN_OK && cuda_prints(k) && p->device->options.print) {
        s->ring = malloc((size_t)CUDA_PRINT_WORDS * sizeof(int64_t));
        if (s->ring)
            cuda_print_reset(s->ring, CUDA_PRINT_WORDS);
        else
            status = error_set(error, QN_NO_MEMORY, "no memory for what kernel `%s` prints", k->name);
    }
    for (int i = 0; i < p->phase_count && status == QN_OK; i++)
        status = run_phase(p, i, m ? m->views : arrays, plan, s, m, error);
    if (m) margins_close(m, k);
    heap_free(m);
    if (s) {
        heap_free(s->scratch);
        heap_free(s->sync);
        heap_free(s->ring);
    }
    heap_free(s);
    return status;
}

static void emu_facts(program *base, const launch_plan *plan, record_facts *out)
{
    const emu_program *p = (const emu_program *)base;
    cuda_facts_of(p->kernel, p->layout, &p->device->target, plan, NULL, out);
}

const driver driver_emu = {
    .name = "emu",
    .open = emu_open,
    .close = emu_close,
    .about = emu_about,
    .choose_facts = emu_choose_facts,
    .set_checked = emu_set_checked,
    .emit = emu_emit,
    .schedule = emu_schedule,
    .tool = emu_tool,
    .assemble = emu_assemble,
    .disassemble = emu_disassemble,
    .load = emu_load,
    .unload = emu_unload,
    .launch = emu_launch_program,
    .facts = emu_facts,
};
