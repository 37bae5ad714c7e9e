/*
 * The shape of a launch. In: a kernel, a target, the extents and counts of a launch. Out: blocks, threads, shared
 * memory, scratch. What the text decided is noted in a cuda_layout while it is written (cuda/emit.c); only numbers that
 * the launch brings are computed here, by the same formulas as in the text.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/phase.h"
#include "emit/raw/raw.h"
#include "ir/scalar.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEW_BLOCKS = 2 };

typedef struct phase_shape {
    team team;
    int64_t shared_bytes;  /* of a team */
    int64_t scratch_bytes; /* of a team, constant part */
    bool has_scratch;
    int least_blocks, slot_bytes;
    bool joined; /* the last block of the phase before runs it */
    int64_t
        carries; /* bytes of shared memory of the phase that this one's last block goes on with; -1: there is none */
    int *sized;  /* buffers whose size comes from the launch */
    int sized_count, sized_capacity;
    buffer *buffers;
    const cuda_map *maps;
    int map_count;
    const schedule *schedule; /* NULL: the fields above say it all */
    const chained *chained;   /* likewise */
} phase_shape;

struct cuda_layout {
    arena *memory;
    const tile_kernel *kernel;
    cuda_target target;
    int phase_count;
    phase_shape phases[MAX_PHASES];
};

cuda_target cuda_target_default(int arch)
{
    cuda_target t = {.arch = arch ? arch : 90, .registers = 65536};
    switch (t.arch) {
    case 75:
        t.multiprocessors = 40;
        t.shared_bytes = 64 * 1024;
        t.l2_bytes = 4 << 20;
        break;
    case 80:
        t.multiprocessors = 108;
        t.shared_bytes = 163 * 1024;
        t.l2_bytes = 40 << 20;
        break;
    case 86:
    case 89:
    case 120:
        t.multiprocessors = t.arch == 86 ? 84 : t.arch == 89 ? 128 : 170;
        t.shared_bytes = 99 * 1024;
        t.l2_bytes = t.arch == 86 ? 6 << 20 : 72 << 20;
        break;
    default: /* an H200, and for newer ones as much */
        t.multiprocessors = 132;
        t.shared_bytes = 227 * 1024;
        t.l2_bytes = 60 << 20;
        break;
    }
    return t;
}

static cuda_target complete(const cuda_target *target)
{
    cuda_target standard = cuda_target_default(target ? target->arch : 0);
    if (!target) return standard;
    cuda_target t = *target;
    if (!t.arch) t.arch = standard.arch;
    if (!t.multiprocessors) t.multiprocessors = standard.multiprocessors;
    if (!t.shared_bytes) t.shared_bytes = standard.shared_bytes;
    if (!t.registers) t.registers = standard.registers;
    if (!t.l2_bytes) t.l2_bytes = standard.l2_bytes;
    return t;
}

cuda_layout *cuda_layout_open(const tile_kernel *k, const cuda_target *target)
{
    arena *memory = arena_new();
    cuda_layout *l = ARENA_NEW(memory, cuda_layout);
    CHECK(k->raw_language || k->phase_count <= MAX_PHASES);
    *l = (cuda_layout){.memory = memory, .kernel = k, .target = complete(target), .phase_count = k->phase_count};
    return l;
}

arena *cuda_layout_memory(cuda_layout *l)
{
    return l->memory;
}

const cuda_target *cuda_layout_target(const cuda_layout *l)
{
    return &l->target;
}

void cuda_layout_note(cuda_layout *l, int phase, const emitter *e)
{
    const cuda_state *c = e->cuda;
    phase_shape *s = &l->phases[phase];
    *s = (phase_shape){.team = c->spread->team,
                       .shared_bytes = c->spread->shared_bytes,
                       .buffers = e->survey->buffers,
                       .least_blocks = c->spread->least_blocks,
                       .slot_bytes = c->spread->slot_bytes,
                       .carries = -1};
    for (int i = 1; i < c->spread->kept_count; i++) {
        if (!c->spread->kept[i].touched || c->spread->kept[i].kind != HOME_SCRATCH) continue;
        s->has_scratch = true;
        if (c->spread->kept[i].bytes)
            s->scratch_bytes += (c->spread->kept[i].bytes + 255) / 256 * 256;
        else
            ARENA_PUSH(l->memory, s->sized, s->sized_count, s->sized_capacity, i);
    }
}

void cuda_layout_note_join(cuda_layout *l, int phase, const emitter *e)
{
    phase_shape *s = &l->phases[phase];
    s->carries = e->cuda->spread->shared_bytes + (int64_t)e->cuda->spread->slot_bytes * s->team.block;
}

sched_machine cuda_machine(const cuda_target *target)
{
    const cuda_target whole = complete(target);
    return (sched_machine){whole.arch, whole.multiprocessors, whole.shared_bytes, whole.checked};
}

static int maps_of_schedule(const schedule *from, cuda_map *maps)
{
    for (int i = 0; i < from->map_count; i++) {
        const sched_map *m = &from->maps[i];
        maps[i] = (cuda_map){.param = m->array, .rank = m->rank, .swizzle = SCHED_LINE_BYTES, .rounds = m->rounds};
        maps[i].windows = m->windows;
        for (int axis = 0; axis < m->rank; axis++) {
            maps[i].axes[axis] = (cuda_map_axis){.axis = m->rank - 1 - axis, .step = 1};
            maps[i].box[axis] = m->box[m->rank - 1 - axis];
        }
    }
    return from->map_count;
}

/* Boxes of 64 elements of `lines` rows. */
static cuda_map map_of_rows(const tile_op *op, int lines)
{
    const struct access *a = &op->attr.access;
    cuda_map m = {.param = a->array, .rank = a->rank, .swizzle = SCHED_LINE_BYTES};
    for (int at = 0; at < a->rank; at++) {
        m.axes[at] = (cuda_map_axis){.axis = a->rank - 1 - at, .step = 1};
        m.box[at] = at == 0 ? 64 : at == 1 ? lines : 1;
    }
    return m;
}

static int maps_of_chained(const chained *c, cuda_map *maps)
{
    int count = 0;
    for (int i = 0; i < c->operand_count; i++)
        maps[count++] = map_of_rows(c->operands[i].load, c->operands[i].moves ? c->columns : c->rows);
    for (int i = 0; i < c->sum_count; i++) maps[count++] = map_of_rows(c->stores[c->sums[i].store], 16);
    return count;
}

void cuda_layout_note_roles(cuda_layout *l, const loop_program *program)
{
    const schedule *s = program->schedule;
    cuda_map *maps = ARENA_ARRAY(l->memory, cuda_map, s ? s->map_count : CUDA_MOST_MAPS);
    int count = s ? maps_of_schedule(s, maps) : maps_of_chained(program->chained, maps);
    l->phases[program->phase] =
        (phase_shape){.schedule = s, .chained = program->chained, .maps = maps, .map_count = count, .carries = -1};
}

/* As many blocks as run at once, each with one program after the other. */
static qn_status schedule_shape(const cuda_layout *l, const schedule *s, const launch_plan *plan, cuda_shape *out,
                                qn_error *error)
{
    int64_t programs = plan->programs[s->phase][0] * plan->programs[s->phase][1] * plan->programs[s->phase][2];
    if (programs > GPU_GRID_X)
        return error_set(error, QN_FAILED, "kernel `%s`: %lld programs are more than a launch can have",
                         l->kernel->name, (long long)programs);
    int64_t blocks = MINIMUM(programs, (int64_t)l->target.multiprocessors * s->choice.blocks);
    *out = (cuda_shape){.grid = {blocks, 1, 1}, .threads = s->threads, .cluster = 1, .shared_bytes = s->shared_bytes};
    return QN_OK;
}

/* A block for each program. */
static qn_status chained_shape(const cuda_layout *l, const chained *c, const launch_plan *plan, cuda_shape *out,
                               qn_error *error)
{
    const int64_t *each = plan->programs[c->phase];
    int64_t programs = each[0] * each[1] * each[2];
    if (programs > GPU_GRID_X)
        return error_set(error, QN_FAILED, "kernel `%s`: %lld programs are more than a launch can have",
                         l->kernel->name, (long long)programs);
    *out = (cuda_shape){.grid = {programs, 1, 1}, .threads = c->threads, .cluster = 1, .shared_bytes = c->shared_bytes};
    return QN_OK;
}

qn_status cuda_layout_new(const tile_kernel *k, const cuda_target *target, cuda_layout **out, qn_error *error)
{
    if (k->raw_language) {
        *out = cuda_layout_open(k, target);
        return QN_OK;
    }
    text dropped = {0};
    qn_status status = emit_cuda(k, target, &dropped, out, error);
    text_free(&dropped);
    return status;
}

void cuda_layout_free(cuda_layout *layout)
{
    if (layout) arena_free(layout->memory);
}

typedef struct evaluation {
    const tile_kernel *k;
    const launch_plan *plan;
    int phase;
    int64_t *known; /* by value */
    bool *is_known;
} evaluation;

/* An extent from the launch's scalars: what extent_at_launch allows. */
static int64_t evaluate(const evaluation *e, value v)
{
    const tile_op *op = tile_def(e->k, v);
    int64_t in[3] = {0}, out;
    if (e->is_known[v]) return e->known[v];
    for (int i = 0; i < op->operand_count && i < COUNT(in); i++) in[i] = evaluate(e, op->operands[i]);
    switch (op->code) {
    case OP_CONST: out = op->attr.number.i; break;
    case OP_ARG: out = e->plan->scalars_bits[op->attr.index]; break;
    case OP_PROGRAMS: out = e->plan->programs[e->phase][op->attr.index]; break;
    default:
        if (!scalar_of_op(e->k, op, in, &out)) out = in[0];
    }
    e->is_known[v] = true;
    return e->known[v] = out;
}

static int64_t scratch_of(const cuda_layout *l, const phase_shape *s, int phase, const launch_plan *plan)
{
    int64_t bytes = s->scratch_bytes;
    if (!s->sized_count) return bytes;
    size_t count = (size_t)l->kernel->value_count;
    evaluation e = {l->kernel, plan, phase, heap_array(count, sizeof(int64_t)), heap_array(count, sizeof(bool))};
    for (int i = 0; i < s->sized_count; i++) {
        const buffer *b = &s->buffers[s->sized[i]];
        int64_t size = dtypes[b->elem].size_bytes;
        for (int axis = 0; axis < b->shape.rank; axis++) {
            int64_t dim = b->shape.dims[axis];
            int64_t extent = dim >= 0 ? dim : evaluate(&e, (value)-dim);
            if (__builtin_mul_overflow(size, MAXIMUM(extent, 0), &size)) size = INT64_MAX;
        }
        if (__builtin_add_overflow(bytes, size / 256 * 256 + 256, &bytes)) bytes = INT64_MAX;
    }
    heap_free(e.known);
    heap_free(e.is_known);
    return bytes;
}

static int64_t power_above(int64_t x)
{
    int64_t p = 1;
    while (p < x) p *= 2;
    return p;
}

/* Does the last block of this phase do the next one? A block waits for its ticket: with many blocks a launch more is
 * the lesser evil. A phase that the one before does has no blocks of its own, so the one after it has a launch again. */
static bool goes_on(const cuda_layout *l, int phase, const launch_plan *plan)
{
    bool on = false;
    for (int i = 0; i <= phase; i++) {
        const phase_shape *s = &l->phases[i];
        int64_t programs = plan->programs[i][0] * plan->programs[i][1] * plan->programs[i][2];
        int teams = s->team.kind == TEAM_LANES && s->team.threads ? s->team.block / s->team.threads : 1;
        on = !on && s->carries >= 0 && programs / teams <= FEW_BLOCKS * (int64_t)l->target.multiprocessors;
    }
    return on;
}

qn_status cuda_shape_of(const cuda_layout *l, int phase, const launch_plan *plan, cuda_shape *out, qn_error *error)
{
    if (l->kernel->raw_language) return raw_cuda_shape(l->kernel, plan, &l->target, out, error);
    const phase_shape *s = &l->phases[phase];
    if (s->schedule) return schedule_shape(l, s->schedule, plan, out, error);
    if (s->chained) return chained_shape(l, s->chained, plan, out, error);
    const team *t = &s->team;
    int64_t programs = plan->programs[phase][0] * plan->programs[phase][1] * plan->programs[phase][2];
    int64_t row = t->row_param >= 0 ? plan->scalars_bits[t->row_param] : 0, blocks = 1;
    bool joins = goes_on(l, phase, plan);
    cuda_shape shape = {.grid = {1, 1, 1}, .cluster = 1};
    if (phase && goes_on(l, phase - 1, plan)) {
        *out = (cuda_shape){.grid = {0, 1, 1}, .threads = 32, .cluster = 1};
        return QN_OK;
    }
    int64_t needed = t->share ? (row + t->over + t->share - 1) / t->share : 0; /* threads that hold a row */
    int teams = 1;
    switch (t->kind) {
    case TEAM_LANES: {
        int64_t lanes = t->threads ? t->threads : MINIMUM(power_above(needed), 32);
        shape.threads = t->block;
        teams = (int)(t->block / lanes);
        CHECK(teams > 0);
        if (programs && programs < teams && !joins) { /* a small block starts sooner */
            shape.threads = (int)MINIMUM(MAXIMUM((programs * lanes + 31) / 32 * 32, 32), t->block);
            teams = (int)(shape.threads / lanes);
        }
        blocks = (programs + teams - 1) / teams;
        break;
    }
    case TEAM_BLOCK:
        shape.threads = t->threads ? t->threads : (int)MINIMUM(MAXIMUM((needed + 31) / 32 * 32, 32), t->block);
        blocks = programs;
        break;
    case TEAM_CLUSTER:
        while (shape.cluster < MOST_CLUSTER && shape.cluster * t->block < needed) shape.cluster *= 2;
        if (t->cluster) shape.cluster = t->cluster;
        shape.threads = (int)MAXIMUM(((needed + shape.cluster - 1) / shape.cluster + 31) / 32 * 32, 32);
        shape.threads = MINIMUM(shape.threads, t->block);
        blocks = programs * shape.cluster;
        break;
    case TEAM_GRID: {
        shape.threads = t->block;
        shape.cooperative = true;
        shape.fewer = !t->share; /* the row is not held: blocks take the next part of it */
        blocks = (int64_t)l->target.multiprocessors * s->least_blocks; /* the launch bounds make room for them */
        int64_t at_once = 1;
        if (!t->one_team) { /* as many blocks as hold a row, of as many rows as there are blocks for */
            int64_t of_team = MAXIMUM((needed + t->block - 1) / t->block, 1);
            at_once = MAXIMUM(MINIMUM(blocks / of_team, programs), 1);
            of_team = blocks / at_once;
            shape.threads = (int)((needed + of_team - 1) / of_team + 31) / 32 * 32;
            shape.threads = MINIMUM(MAXIMUM(shape.threads, 32), t->block);
            int64_t step = (int64_t)t->share * shape.threads;
            of_team = MAXIMUM((row + t->over + step - 1) / step, 1);
            blocks = of_team * at_once;
        }
        shape.sync_bytes = 128 * at_once + 2 * 8 * blocks;
        break;
    }
    }
    if (s->has_scratch && t->kind <= TEAM_BLOCK) {
        int64_t resident = (int64_t)l->target.multiprocessors * 4;
        blocks = MINIMUM(blocks, resident);
        int64_t one = scratch_of(l, s, phase, plan);
        if (__builtin_mul_overflow(one, blocks * teams, &shape.scratch_bytes))
            return error_set(error, QN_NO_MEMORY, "kernel `%s` needs more scratch memory than there is",
                             l->kernel->name);
    }
    int64_t most = GPU_GRID_X / shape.cluster * shape.cluster;
    shape.grid[0] = programs ? MINIMUM(blocks, most) : joins; /* with nothing to do it is the last block */
    if (blocks > most) shape.grid[1] = (blocks + most - 1) / most;
    if (shape.grid[1] > GPU_GRID_YZ)
        return error_set(error, QN_FAILED, "kernel `%s`: %lld programs are more than a launch can have",
                         l->kernel->name, (long long)programs);
    shape.shared_bytes = s->shared_bytes * teams + (int64_t)s->slot_bytes * shape.threads;
    if (joins) {
        shape.shared_bytes = MAXIMUM(shape.shared_bytes, s->carries);
        shape.ticket = true;
        shape.sync_bytes = 128;
    }
    *out = shape;
    return QN_OK;
}

int cuda_layout_maps(const cuda_layout *l, int phase, const cuda_map **maps)
{
    if (!l) return 0;
    *maps = l->phases[phase].maps;
    return l->phases[phase].map_count;
}

qn_status cuda_geometry(const tile_kernel *k, int phase, const launch_plan *plan, const array_view *arrays,
                        const cuda_target *target, cuda_shape *out, qn_error *error)
{
    (void)arrays;
    cuda_layout *l;
    QN_TRY(cuda_layout_new(k, target, &l, error));
    qn_status status = cuda_shape_of(l, phase, plan, out, error);
    cuda_layout_free(l);
    return status;
}

/* ---- facts ---- */

static int class_of(int64_t extent)
{
    static const int64_t limits[] = {40, 256, 1024, 16384, 65536, 262144, 1 << 22};
    int class = 0;
    while (class < COUNT(limits) && extent > limits[class]) class ++;
    return class + 6;
}

/* The farthest position or place in memory of an array with digits, whatever its guards keep away. */
static int64_t digits_reach(const param_digits *d, const array_view *v)
{
    double reach = fabs((double)d->origin), most = 0;
    for (int axis = 0; axis < v->rank; axis++) {
        const axis_digits *x = &d->axes[axis];
        double inner = 1;
        for (int i = x->count - 1; i > 0; i--) {
            reach += fabs((double)x->stride[i]) * (double)x->extent[i];
            inner *= (double)x->extent[i];
        }
        reach += fabs((double)x->stride[0]) * ((double)v->extents[axis] / inner + 1);
        most = fmax(most, (double)v->extents[axis]);
    }
    return (int64_t)fmin(fmax(most, reach), 0x1p62);
}

void cuda_choose_facts(tile_kernel *k, const array_view *arrays, const launch_plan *plan)
{
    for (int i = 0; i < k->param_count; i++) {
        tile_param *p = &k->params[i];
        tile_facts *f = &p->facts;
        if (p->kind == PARAM_SCALAR || p->kind == PARAM_EXTENT) {
            int64_t number = plan->scalars_bits[i];
            if (!facts_of_number(p, number)) continue;
            f->by8 = !f->by16 && number % 8 == 0;
            f->by4 = !f->by16 && !f->by8 && number % 4 == 0;
            /* Rows that begin anywhere reach over both ends of their vectors, which has to fit too. Of what is no extent
             * the caller drops it. */
            f->size_class = class_of(f->by16 || number > INT64_MAX - 7 ? number : number + 7);
            continue;
        }
        const array_view *v = &arrays[i];
        *f = (tile_facts){.size_class = -1};
        if (p->digits) { /* its strides say nothing; small: positions and distances fit 32 bits */
            f->small = digits_reach(p->digits, v) < (int64_t)1 << 31;
            f->bulk = (uintptr_t)v->data % 16 == 0;
            continue;
        }
        f->contiguous = view_is_row_major(v);
        f->last_unit = view_has_unit_lines(v);
        f->aligned = view_is_aligned(v, 64);
        f->bulk = view_is_bulk(v);
        f->backwards = view_is_backwards(v);
        f->small = view_span(v) < (int64_t)1 << 31;
    }
}
