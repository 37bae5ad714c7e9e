/*
 * Notes of memory accesses. In: an access as it is emitted. Out: a note; and what the threads of a warp do at it, found
 * by playing 32 threads through the layout: which sectors of 32 bytes they touch, which banks they meet in.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/access_notes.h"

#include "emit/cuda/loops.h"
#include "emit/cuda/phase.h"
#include "ir/scalar.h"

#include <stdlib.h>
#include <string.h>

/* ---- while a phase is emitted ---- */

typedef struct steps {
    int64_t loop[MAX_RANK], program;
} steps;

/* Adds factor * v as a sum over loop positions and the program's number. False: something else takes part. Scalars other
 * than program numbers are the same for all threads. */
static bool add_steps(const emitter *e, value v, place at, int64_t factor, int *ways, steps *out)
{
    const tile_op *op = tile_def(e->k, v);
    tile_type type = tile_type_of(e->k, v);
    number n;
    int64_t *sum;
    if (!op) return !type.rank;
    if (--*ways < 0) return false;
    switch (op->code) {
    case OP_CONST: return true;
    case OP_IOTA:
        sum = at.axis[op->attr.index] != NO_AXIS ? &out->loop[(int)at.axis[op->attr.index]] : NULL;
        return !sum || !__builtin_add_overflow(*sum, factor, sum);
    case OP_PROGRAM: return op->attr.index || !__builtin_add_overflow(out->program, factor, &out->program);
    case OP_ADD:
    case OP_SUB: {
        place left = place_of_operand(e->survey, op, 0, &at), right = place_of_operand(e->survey, op, 1, &at);
        return add_steps(e, op->operands[0], left, factor, ways, out) &&
               add_steps(e, op->operands[1], right, op->code == OP_SUB ? -factor : factor, ways, out);
    }
    case OP_MUL:
        for (int i = 0; i < 2; i++)
            if (tile_is_constant(e->k, op->operands[i], &n))
                return !__builtin_mul_overflow(factor, n.i, &factor) &&
                       add_steps(e, op->operands[1 - i], place_of_operand(e->survey, op, 1 - i, &at), factor, ways,
                                 out);
        return !type.rank;
    case OP_CONVERT:
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_PERMUTE: return add_steps(e, op->operands[0], place_of_operand(e->survey, op, 0, &at), factor, ways, out);
    default: return !type.rank;
    }
}

static access_note *new_note(const cnest *n)
{
    const emitter *e = n->e;
    const team *team = &n->c->spread->team;
    e->notes->team = team->reason;
    access_note note = {.phase = e->phase,
                        .vector = 1,
                        .width = 1,
                        .line = e->line,
                        .team_threads = team->threads,
                        .lanes = team->kind == TEAM_LANES};
    const pass_layout *l = n->view.layout;
    if (l) {
        note.loop_count = l->loop_count;
        memcpy(note.loops, l->loops, sizeof(l->loops));
        note.row_axes = l->row_axes;
        note.row_fast = l->row_fast;
        note.inner_threads = l->inner_threads;
        note.vector = l->vector;
    }
    access_notes *all = e->notes;
    ARENA_PUSH(all->memory, all->items, all->count, all->capacity, note);
    return &all->items[all->count - 1];
}

void note_access(cnest *n, const tile_op *op, place at, const caddress *a)
{
    emitter *e = n->e;
    if (!e->notes) return;
    const struct access *access = &op->attr.access;
    access_note *note = new_note(n);
    note->op = op;
    if (op->line) note->line = op->line;
    note->elem = a->elem;
    note->width = a->width;
    for (int axis = 0, operand = access->first_index; axis < access->rank; axis++) {
        steps s = {0};
        int ways = TILE_MOST_WAYS;
        if (access->kind[axis] == INDEX_SLICE) {
            number step = {.i = 1};
            int loop = at.axis[access->result_axis[axis]];
            (void)add_steps(e, op->operands[operand], place_nowhere(), 1, &ways, &s);
            if (loop != NO_AXIS && !tile_is_constant(e->k, op->operands[operand + 1], &step)) step.i = 2;
            if (loop != NO_AXIS) s.loop[loop] += step.i;
            operand += 2;
        } else {
            place inner = place_of_operand(e->survey, op, operand, &at);
            if (!add_steps(e, op->operands[operand++], inner, 1, &ways, &s)) note->gathers = true;
        }
        for (int loop = 0; loop < MAX_RANK; loop++) note->steps[loop][axis] = s.loop[loop];
        note->program_steps[axis] = s.program;
    }
}

void note_tile(cnest *n, value v, place at)
{
    emitter *e = n->e;
    if (!e->notes || !n->view.layout) return;
    int number = buffer_for(e->survey, v);
    const kept *home = &n->c->spread->kept[number];
    if (home->kind != HOME_SHARED) return;
    access_note *note = new_note(n);
    tile_type type = tile_type_of(e->k, v);
    int64_t stride = 1;
    note->tile = v;
    note->op = tile_def(e->k, v);
    note->elem = type.elem;
    for (int axis = type.rank - 1; axis >= 0; axis--) {
        if (at.axis[axis] != NO_AXIS) note->steps[(int)at.axis[axis]][0] += stride;
        int64_t extent = type.dims[axis] >= 0 ? type.dims[axis] : 64; /* a length of the launch: some power of two */
        stride *= extent + (axis == type.rank - 1 ? home->pad : 0);
    }
    /* Neighbours go together where the compiler sees them side by side. */
    int most = 16 / dtypes[type.elem].size_bytes, vector = note->vector;
    for (int loop = 0; loop < note->loop_count; loop++)
        if (n->view.role[loop] == ROLE_VECTOR && note->steps[loop][0] == 1 && !home->pad)
            note->width = MINIMUM(vector, most);
}

qn_status emit_access_notes(const tile_kernel *k, const cuda_target *target, access_notes *out, qn_error *error)
{
    if (k->raw_language) return QN_OK;
    arena *memory = arena_new();
    emit_options options = {0};
    emitter e = {.k = k, .options = &options, .memory = memory, .notes = out};
    e.name_set = map_new(memory);
    survey survey;
    loops_survey(k, memory, &survey);
    e.survey = &survey;
    e.facts = survey.facts;
    text body = {0};
    qn_status status = QN_OK;
    for (int p = 0; p < k->phase_count && status == QN_OK; p++) {
        const char *why[2];
        const sched_machine machine = cuda_machine(target);
        loop_program program;
        out->from = out->count;
        if (loops_roles(k, p, &machine, memory, &program, why)) continue;
        status = cuda_phase(&e, p, target, error);
        if (status == QN_OK) cuda_phase_body(&e, p, &body);
    }
    text_free(&body);
    arena_free(memory);
    return status;
}

/* ---- a warp ---- */

enum { LANES = 32, SECTOR_BYTES = 32, BANKS = 32, WORD_BYTES = 4, LARGE = 1 << 20 };

/* Element of the array that thread `lane` starts at, relative to thread 0's. */
static int64_t element_of(const access_note *n, const int64_t *extents, const int64_t *strides, int lane)
{
    int team = n->lanes && n->team_threads && n->team_threads < LANES ? n->team_threads : LANES;
    int64_t program = lane / team, thread = lane % team, inner = thread, row = 0, at = 0;
    if (n->row_axes && n->inner_threads) {
        inner = n->row_fast ? thread / n->inner_threads : thread % n->inner_threads;
        row = n->row_fast ? thread % n->inner_threads : thread / n->inner_threads;
    }
    inner *= n->vector;
    int64_t position[MAX_RANK] = {0};
    for (int loop = n->loop_count - 1; loop >= 0; loop--) {
        int64_t extent = extents[loop] > 0 ? extents[loop] : LARGE;
        int64_t *index = n->row_axes >> loop & 1 ? &row : &inner;
        position[loop] = *index % extent;
        *index /= extent;
    }
    for (int axis = 0; axis < MAX_RANK; axis++) {
        int64_t steps = program * n->program_steps[axis];
        for (int loop = 0; loop < n->loop_count; loop++) steps += position[loop] * n->steps[loop][axis];
        at += steps * strides[axis];
    }
    return at;
}

/* How far the elements of a thread's vector are apart. */
static int64_t vector_step(const access_note *n, const int64_t *strides)
{
    int last = -1;
    for (int loop = 0; loop < n->loop_count; loop++)
        if (!(n->row_axes >> loop & 1)) last = loop;
    int64_t step = 0;
    for (int axis = 0; last >= 0 && axis < MAX_RANK; axis++) step += n->steps[last][axis] * strides[axis];
    return step;
}

static int compare_numbers(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

static int count_distinct(int64_t *numbers, int count)
{
    int distinct = 0;
    qsort(numbers, (size_t)count, sizeof(*numbers), compare_numbers);
    for (int i = 0; i < count; i++) distinct += !i || numbers[i] != numbers[i - 1];
    return distinct;
}

/* The most words of one bank that the threads of one turn ask for. */
static int count_ways(const access_note *n, const int64_t *elements, int64_t step)
{
    int size = dtypes[n->elem].size_bytes, bytes = size * n->width, most = 1;
    int together = bytes > WORD_BYTES ? LANES * WORD_BYTES / bytes : LANES; /* threads of one turn */
    for (int first = 0; first < LANES; first += together) {
        int64_t words[LANES * 4];
        int count = 0, in_bank[BANKS] = {0};
        for (int lane = first; lane < first + together; lane++)
            for (int v = 0; v < n->width && count < COUNT(words); v++)
                words[count++] = scalar_raw(OP_DIV, DT_I64, (elements[lane] + v * step) * size, WORD_BYTES);
        int distinct = 0;
        qsort(words, (size_t)count, sizeof(*words), compare_numbers);
        for (int i = 0; i < count; i++)
            if (!i || words[i] != words[i - 1]) words[distinct++] = words[i];
        for (int i = 0; i < distinct; i++) {
            int asked = ++in_bank[(words[i] % BANKS + BANKS) % BANKS];
            most = MAXIMUM(most, asked);
        }
    }
    return most;
}

void note_measure(const access_note *n, const int64_t *extents, const int64_t *strides, warp_access *out)
{
    int64_t elements[LANES], sectors[LANES * 16], bytes[LANES * 16], step = vector_step(n, strides);
    int size = dtypes[n->elem].size_bytes, count = 0, vector = MINIMUM(n->vector, 16);
    for (int lane = 0; lane < LANES; lane++) elements[lane] = element_of(n, extents, strides, lane);
    for (int lane = 0; lane < LANES; lane++)
        for (int v = 0; v < vector; v++, count++) {
            bytes[count] = (elements[lane] + v * step) * size;
            sectors[count] = scalar_raw(OP_DIV, DT_I64, bytes[count], SECTOR_BYTES);
        }
    int distinct = count_distinct(bytes, count);
    *out = (warp_access){.sectors = count_distinct(sectors, count),
                         .least = (double)(distinct * size + SECTOR_BYTES - 1) / SECTOR_BYTES,
                         .stride = elements[1] - elements[0],
                         .ways = 1,
                         .possible_width = n->width};
    out->least = (double)(int64_t)out->least;
    if (n->tile) out->ways = count_ways(n, elements, step);
    if (step == 1) out->possible_width = MAXIMUM(n->width, MINIMUM(vector, 16 / size));
}
