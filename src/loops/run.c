/*
 * The programs of spreads, run: what their nodes mean, without any text. In: a program, arrays, a launch and how many
 * threads a team has. Out: what it writes, or what is wrong with it.
 *
 * Threads take their turns pass by pass; a node runs where its level says, once a group, a row, a chunk or an element,
 * and its value stays in the thread's registers. What a printer relies on is asked here: each position of a pass has
 * exactly one thread, what is not tested is inside, a kept tile in registers is read by the thread that wrote it, an access
 * that was proved to be inside is, and two threads that touch the same memory, one of them writing, meet in between.
 * Sums are taken in order, in double: results differ from those of a GPU by rounding.
 * SPDX-License-Identifier: MIT
 */
#include "loops/run.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- memory that threads share ---- */

static bool fail(sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(sim *s, const char *format, ...)
{
    if (s->why->length) return false;
    va_list list;
    va_start(list, format);
    text_print_list(s->why, format, list);
    va_end(list);
    return false;
}

/* Atomics do not wait for each other. */
static void note_touch(sim *s, sim_touch *t, bool writes, bool atomic, const char *what)
{
    int thread = s->thread;
    bool other_wrote = t->written == s->epoch && (t->writer != thread || thread == SIM_MANY) && !(atomic && t->atomic);
    bool other_read = t->read == s->epoch && (t->reader != thread || thread == SIM_MANY);
    if (other_wrote || (writes && other_read))
        fail(s, "%s: two threads touch an element, and nothing stands between", what);
    if (writes) {
        t->written = s->epoch;
        t->writer = thread;
        t->atomic = atomic;
    } else {
        t->reader = t->read == s->epoch && t->reader != thread ? SIM_MANY : thread;
        t->read = s->epoch;
    }
}

sim_tile *kept_tile(sim *s, value v)
{
    survey *e = s->program->survey;
    int number = buffer_for(e, v);
    sim_tile *t = &s->tiles[number];
    tile_type type = tile_type_of(e->k, v);
    int64_t count = 1;
    for (int i = 0; i < type.rank; i++) {
        if (type.dims[i] < 0) type.dims[i] = s->scalars[-type.dims[i]].i;
        count *= type.dims[i];
    }
    if (t->room < count) {
        t->cells = ARENA_ARRAY(s->memory, cell, count);
        t->touches = ARENA_ARRAY(s->memory, sim_touch, count);
        t->room = count;
    }
    t->type = type;
    t->kept = &s->program->spread->kept[number];
    return t;
}

static int64_t offset_in(sim *s, const sim_tile *t, const place *at)
{
    int64_t offset = 0;
    for (int i = 0; i < t->type.rank; i++) {
        int64_t index = at->axis[i] == NO_AXIS ? 0 : s->position[(int)at->axis[i]];
        offset = offset * t->type.dims[i] + index;
    }
    return offset < t->room ? offset : 0;
}

static cell kept_read(sim *s, value v, const place *at)
{
    sim_tile *t = kept_tile(s, v);
    int64_t offset = offset_in(s, t, at);
    sim_touch *of = &t->touches[offset];
    if (t->kept->kind != HOME_REGISTERS)
        note_touch(s, of, false, false, "a kept tile");
    else if (s->thread != SIM_MANY && of->writer != s->thread)
        fail(s, "%%%u: thread %d reads registers of thread %d", v, s->thread, of->writer);
    return t->cells[offset];
}

static void kept_write(sim *s, value v, const place *at, cell c)
{
    sim_tile *t = kept_tile(s, v);
    int64_t offset = offset_in(s, t, at);
    sim_touch *of = &t->touches[offset];
    math_round(t->type.elem, 1, &c);
    if (t->kept->kind != HOME_REGISTERS)
        note_touch(s, of, true, false, "a kept tile");
    else if (s->thread != SIM_MANY)
        of->writer = s->thread;
    t->cells[offset] = c;
}

/* ---- values ---- */

static cell eval(sim *s, value v, place at);

/* The element of an array that an access reaches from this position; NULL: none. */
static void *element_of(sim *s, const tile_op *op, place at, bool writes)
{
    const tile_kernel *k = s->program->survey->k;
    const struct access *a = &op->attr.access;
    const array_view *array = &s->arrays[a->array];
    int64_t offset = 0;
    bool inside = true;
    for (int i = op->operand_count - a->mask_count; i < op->operand_count; i++)
        inside &= eval(s, op->operands[i], place_of_operand(s->program->survey, op, i, &at)).i != 0;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        bool slice = a->kind[axis] == INDEX_SLICE;
        place of = place_of_operand(s->program->survey, op, operand, &at);
        int64_t index = eval(s, op->operands[operand], of).i;
        if (slice) {
            int loop = at.axis[a->result_axis[axis]];
            index += (loop == NO_AXIS ? 0 : s->position[loop]) * eval(s, op->operands[operand + 1], of).i;
        }
        bool here = index >= 0 && index < array->extents[axis];
        if (a->safe[axis] && inside && !here)
            fail(s, "%s: index %" PRId64 " of axis %d is not inside, but was proved to be", k->params[a->array].name,
                 index, axis);
        inside &= here;
        offset += index * array->strides[axis];
        operand += slice ? 2 : 1;
    }
    if (!inside) return NULL;
    int64_t slot = offset - s->firsts[a->array];
    if (s->touches[a->array] && slot >= 0 && slot < s->spans[a->array])
        note_touch(s, &s->touches[a->array][slot], writes, op->code == OP_ATOMIC, k->params[a->array].name);
    return (char *)array->data + offset * dtypes[array->elem].size_bytes;
}

static cell load(sim *s, const tile_op *op, place at)
{
    void *from = element_of(s, op, at, false);
    return from ? cell_read(s->arrays[op->attr.access.array].elem, from) : (cell){0};
}

cell sim_apply(const tile_op *op, dtype from, dtype to, const cell *x)
{
    cell r = {0};
    switch (op->code) {
    case OP_CONVERT: math_convert(from, to, false, 1, x, 0, &r); return r;
    case OP_BITCAST: math_bitcast(from, to, 1, x, 0, &r); return r;
    case OP_SELECT: return x[0].i ? x[1] : x[2];
    case OP_PHILOX: {
        uint32_t words[4];
        philox_words((uint64_t)x[0].i, (uint64_t)x[1].i, (uint64_t)x[2].i, words);
        r.i = words[op->attr.index & 3];
        return r;
    }
    case OP_FMA:
        r.f = from == DT_F32 ? (double)fmaf((float)x[0].f, (float)x[1].f, (float)x[2].f) : fma(x[0].f, x[1].f, x[2].f);
        break;
    default:
        if (ops[op->code].class == CLASS_UNARY)
            math_unary(op->code, from, 1, x, 0, &r);
        else if (ops[op->code].class == CLASS_BINARY)
            math_binary(op->code, from, 1, x, 0, x + 1, 0, &r);
        else
            math_compare(op->code, from, 1, x, 0, x + 1, 0, &r);
    }
    if (to != DT_BOOL) math_round(to, 1, &r);
    return r;
}

/* From its operands, at the place where the thread is. */
static cell compute(sim *s, const tile_op *op, value v, place at)
{
    survey *e = s->program->survey;
    const tile_kernel *k = e->k;
    cell x[3], r = {0};
    int64_t pos = 0;
    switch (op->code) {
    case OP_CONST: {
        number n;
        tile_is_constant(k, v, &n);
        if (dtype_is_float(tile_type_of(k, v).elem))
            r.f = n.f;
        else
            r.i = n.i;
        return r;
    }
    case OP_IOTA:
    case OP_BOUND:
        if (at.axis[op->attr.index] != NO_AXIS) pos = s->position[(int)at.axis[op->attr.index]];
        if (op->code == OP_IOTA) return (cell){.i = pos};
        pos = s->scalars[op->operands[0]].i + pos * s->scalars[op->operands[1]].i;
        return (cell){.i = pos >= 0 && pos < s->scalars[op->operands[2]].i};
    case OP_BROADCAST:
    case OP_RESHAPE:
    case OP_PERMUTE:
    case OP_REDUCE: return eval(s, op->operands[0], place_of_operand(e, op, 0, &at));
    case OP_LOAD: return load(s, op, at);
    default: break;
    }
    CHECK(op->operand_count <= 3);
    for (int i = 0; i < op->operand_count; i++) x[i] = eval(s, op->operands[i], place_of_operand(e, op, i, &at));
    return sim_apply(op, tile_type_of(k, op->operands[0]).elem, tile_type_of(k, v).elem, x);
}

/* A scalar, the register that a node before has left, or what a node computes on its way. */
static cell eval(sim *s, value v, place at)
{
    survey *e = s->program->survey;
    const tile_op *op = tile_def(e->k, v);
    int rank = e->k->values[v].type.rank;
    if (op && op->code == OP_CONST) return compute(s, op, v, at);
    if (!rank) return s->scalars[v];
    for (int i = s->known_count - 1; i >= 0; i--)
        if (s->known[i].v == v && place_same(&s->known[i].at, &at, rank) && s->known[i].level <= s->level)
            return s->registers[s->thread >= 0 ? s->thread * s->most_known + i : i];
    if (!value_is_virtual(e, v)) return kept_read(s, v, &at);
    return compute(s, op, v, at);
}

cell sim_element(sim *s, value v)
{
    place at = place_nowhere();
    for (int i = 0; i < MAX_RANK; i++) at.axis[i] = (signed char)i;
    return eval(s, v, at);
}

void sim_set_element(sim *s, value v, cell c)
{
    place at = place_nowhere();
    for (int i = 0; i < MAX_RANK; i++) at.axis[i] = (signed char)i;
    kept_write(s, v, &at, c);
}

void sim_scalar(sim *s, const tile_op *op)
{
    survey *e = s->program->survey;
    place nowhere = place_nowhere();
    const tile_param *p;
    cell r = {0};
    s->thread = SIM_MANY;
    switch (op->code) {
    case OP_ARG:
        p = &e->k->params[op->attr.index];
        if (dtype_is_float(p->elem))
            memcpy(&r.f, &s->plan->scalars_bits[op->attr.index], sizeof(r.f));
        else
            r.i = s->plan->scalars_bits[op->attr.index];
        break;
    case OP_PROGRAM: r.i = s->at[op->attr.index]; break;
    case OP_PROGRAMS: r.i = s->plan->programs[s->program->phase][op->attr.index]; break;
    case OP_UNITS: r.i = 132; break;
    case OP_ASSUME: return;
    case OP_BOUND:
        r.i = s->scalars[op->operands[0]].i >= 0 && s->scalars[op->operands[0]].i < s->scalars[op->operands[2]].i;
        break;
    default: r = compute(s, op, op->results[0], nowhere); break;
    }
    s->scalars[op->results[0]] = r;
}

void sim_access(sim *s, const tile_op *op)
{
    place nowhere = place_nowhere();
    dtype elem = s->arrays[op->attr.access.array].elem;
    s->thread = op->code == OP_LOAD ? SIM_MANY : 0;
    void *to = element_of(s, op, nowhere, op->code != OP_LOAD);
    cell old = to ? cell_read(elem, to) : (cell){0};
    if (op->code != OP_STORE) s->scalars[op->results[0]] = old;
    if (op->code == OP_LOAD || !to) return;
    cell x = eval(s, op->operands[0], nowhere), expected = x;
    if (op->code == OP_ATOMIC && op->attr.atomic == ATOMIC_CAS) expected = eval(s, op->operands[1], nowhere);
    cell_write(elem, to, op->code == OP_STORE ? x : cell_atomic(op->attr.atomic, elem, old, x, expected));
}

void sim_store_number(sim *s, const tile_op *op, cell x)
{
    tile_type type = tile_type_of(s->program->survey->k, op->operands[0]);
    s->thread = 0;
    void *to = element_of(s, op, place_own(&type), true);
    if (to) cell_write(s->arrays[op->attr.access.array].elem, to, x);
}

void sim_store(sim *s, const tile_op *op)
{
    tile_type type = tile_type_of(s->program->survey->k, op->operands[0]);
    s->thread = 0;
    sim_store_number(s, op, eval(s, op->operands[0], place_own(&type)));
}

cell sim_load(sim *s, const tile_op *op)
{
    tile_type type = tile_type_of(s->program->survey->k, op->results[0]);
    s->thread = 0;
    return load(s, op, place_own(&type));
}

/* ---- passes ---- */

static int64_t extent_of(const sim *s, int64_t dim)
{
    return dim < 0 ? s->scalars[-dim].i : dim;
}

/* The positions of some axes, from their flat index. */
static void take_apart(sim *s, const pass_layout *l, unsigned axes, int64_t flat)
{
    for (int axis = l->loop_count - 1; axis >= 0; axis--) {
        if (!(axes >> axis & 1)) continue;
        int64_t extent = extent_of(s, l->loops[axis]);
        s->position[axis] = extent ? flat % extent : 0;
        flat = extent ? flat / extent : 0;
    }
}

static int64_t count_of(const sim *s, const pass_layout *l, unsigned axes)
{
    int64_t count = 1;
    for (int axis = 0; axis < l->loop_count; axis++)
        if (axes >> axis & 1) count *= extent_of(s, l->loops[axis]);
    return count;
}

static cell *register_of(sim *s, int known)
{
    return &s->registers[s->thread * s->most_known + known];
}

static void know(sim *s, value v, place at, int level)
{
    CHECK(s->known_count < s->most_known);
    s->known[s->known_count++] = (sim_known){v, at, level};
}

static void run_map(sim *s, const loop_node *n, int known)
{
    survey *e = s->program->survey;
    const tile_op *op = n->op;
    int thread = s->thread;
    for (int i = 0; i < op->operand_count; i++)
        s->scalars[op->regions[0]->args[i]] = eval(s, op->operands[i], place_of_operand(e, op, i, n->at));
    sim_nodes(s, n->body);
    s->thread = thread;
    const tile_block *body = op->regions[0];
    for (int r = 0; r < op->result_count; r++)
        *register_of(s, known + r) = eval(s, body->ops[body->op_count - 1]->operands[r], *n->at);
}

static bool is_value(const loop_node *n)
{
    return n->code == LOOP_LET || n->code == LOOP_LOAD || n->code == LOOP_READ || n->code == LOOP_MAP;
}

static void run_value(sim *s, const loop_node *n, int known)
{
    if (n->code == LOOP_MAP)
        run_map(s, n, known);
    else if (n->code == LOOP_READ)
        *register_of(s, known) = kept_read(s, n->operand, n->at);
    else
        *register_of(s, known) = compute(s, n->op, n->operand, *n->at);
}

/* The values of a pass of one level that is not its deepest, in order. */
static void run_level(sim *s, const loop_node *pass, int first_known, int level)
{
    int known = first_known;
    s->level = level;
    for (const loop_node *n = pass->body; n; n = n->next) {
        if (!is_value(n)) continue;
        if (n->number[0] == level) run_value(s, n, known);
        known += n->code == LOOP_MAP ? n->op->result_count : 1;
    }
}

static void run_atomic(sim *s, const sink *k, place at, cell x)
{
    survey *e = s->program->survey;
    dtype elem = s->arrays[k->op->attr.access.array].elem;
    void *to = element_of(s, k->op, at, true);
    cell old = to ? cell_read(elem, to) : (cell){0}, expected = x;
    if (k->op->attr.atomic == ATOMIC_CAS) expected = eval(s, k->op->operands[1], place_of_operand(e, k->op, 1, &at));
    if (to) cell_write(elem, to, cell_atomic(k->op->attr.atomic, elem, old, x, expected));
    if (e->uses[k->result]) kept_write(s, k->result, &at, old);
}

/* One position: what is computed there (level, or deeper), and what is written, in order. flat: its place in the row. */
static void run_position(sim *s, const loop_node *pass, int first_known, int level, int64_t flat, bool leads)
{
    survey *e = s->program->survey;
    cell values[MOST_SINKS];
    int known = first_known;
    s->level = level;
    for (const loop_node *n = pass->body; n; n = n->next) {
        if (is_value(n)) {
            if (level == LEVEL_ELEMENT && n->number[0] == level) run_value(s, n, known);
            known += n->code == LOOP_MAP ? n->op->result_count : 1;
            continue;
        }
        if (!n->sink) continue;
        int i = (int)(n->sink - pass->pass->pass->sinks);
        tile_type type = tile_type_of(e->k, n->sink->v);
        place at = place_own(&type);
        switch (n->code) {
        case LOOP_HOLD: values[i] = eval(s, sink_stored_value(e, n->sink), at); break;
        case LOOP_FETCH: kept_write(s, n->sink->v, &at, load(s, tile_def(e->k, n->sink->v), at)); break;
        case LOOP_STORE: {
            void *to = leads ? element_of(s, n->op, at, true) : NULL;
            if (to) cell_write(s->arrays[n->op->attr.access.array].elem, to, values[i]);
            break;
        }
        case LOOP_HOME:
            if (leads) kept_write(s, n->sink->result, &at, values[i]);
            break;
        case LOOP_ATOMIC:
            if (leads) run_atomic(s, n->sink, at, values[i]);
            break;
        case LOOP_SCALAR: s->scalars[n->sink->result] = values[i]; break;
        case LOOP_FOLD_PAIRS: s->folded[i][flat] = eval(s, n->sink->v, at); break;
        case LOOP_FOLD: s->folded[i][flat] = values[i]; break;
        default: break;
        }
    }
}

typedef struct part_of {
    int64_t part, thread, threads, parts; /* which row of those done together; of so many threads along it */
} part_of;

static part_of part_for(const sim *s, const pass_layout *l, int thread)
{
    int64_t of = l->inner_threads;
    if (l->row_axes && l->row_fast && of) return (part_of){thread % of, thread / of, s->threads / of, of};
    if (l->row_axes && of) return (part_of){thread / of, thread % of, of, s->threads / of};
    return (part_of){0, thread, s->threads, 1};
}

static void run_chunks(sim *s, const loop_node *pass, int first_known, const part_of *p, uint8_t *seen)
{
    const loop_pass *of = pass->pass;
    const pass_layout *l = of->layout;
    unsigned axes = ((1u << l->loop_count) - 1) & ~l->row_axes;
    int64_t count = count_of(s, l, axes), shift = l->shifted && count ? 1 : 0, step = p->threads * l->vector;
    int64_t repeats = l->repeats ? l->repeats : (count + shift + step - 1) / step;
    for (int64_t r = 0; r < repeats && !s->why->length; r++) {
        int64_t first = (r * p->threads + p->thread) * l->vector - shift;
        if (first >= count || first <= -l->vector) {
            if (!of->tests_chunks) fail(s, "a chunk at %" PRId64 " of %" PRId64 " is not tested", first, count);
            continue;
        }
        bool begun = false;
        for (int64_t at = first; at < first + l->vector; at++) {
            if (at < 0 || at >= count) {
                if (!of->tests_elements) fail(s, "an element at %" PRId64 " of %" PRId64 " is not tested", at, count);
                continue;
            }
            take_apart(s, l, axes, at);
            if (!begun) run_level(s, pass, first_known, LEVEL_CHUNK);
            begun = true;
            run_position(s, pass, first_known, LEVEL_ELEMENT, at, true);
            if (seen[at]++) fail(s, "position %" PRId64 " has two threads", at);
        }
    }
}

/* Where the best of a row is: along the one folded axis, or over the whole tile in order. */
static int64_t fold_position(sim *s, const sink *k)
{
    tile_type type = tile_type_of(s->program->survey->k, k->v);
    place own = place_own(&type);
    unsigned folded = k->op->attr.axis_set;
    bool one = folded && !(folded & (folded - 1));
    int64_t at = 0;
    for (int i = 0; i < type.rank; i++) {
        if (one && !(folded >> i & 1)) continue;
        at = at * extent_of(s, type.dims[i]) + (own.axis[i] == NO_AXIS ? 0 : s->position[(int)own.axis[i]]);
    }
    return at;
}

static void end_fold(sim *s, const loop_node *pass, const sink *k, int64_t row, const bool *has_row)
{
    survey *e = s->program->survey;
    const pass_layout *l = pass->pass->layout;
    unsigned axes = ((1u << l->loop_count) - 1) & ~l->row_axes;
    int64_t count = count_of(s, l, axes);
    int i = (int)(k - pass->pass->pass->sinks);
    fold_kind fold = k->op->attr.fold;
    bool place_of_best = fold == FOLD_ARGMAX || fold == FOLD_ARGMIN;
    dtype elem = tile_type_of(e->k, k->v).elem;
    cell r = place_of_best ? (cell){0} : math_identity(fold, elem), best = {0};
    if (k->kind == SINK_ASSERT) return;
    take_apart(s, l, l->row_axes, row);
    for (int64_t at = 0; at < count; at++) {
        cell x = s->folded[i][at];
        take_apart(s, l, axes, at);
        if (!place_of_best) {
            r = math_fold(fold, elem, r, x);
        } else if (!at || math_beats(fold, elem, x, best)) {
            best = x;
            r.i = fold_position(s, k);
        }
    }
    if (!place_of_best) math_round(elem, 1, &r);
    if (!tile_type_of(e->k, k->result).rank) {
        s->scalars[k->result] = r;
        return;
    }
    place at = fold_result_place(e, k);
    bool written = false;
    int known = s->known_count - 1;
    while (known >= 0 && !(s->known[known].v == k->result && s->known[known].level == LEVEL_ROW)) known--;
    CHECK(known >= 0);
    for (s->thread = 0; s->thread < s->threads; s->thread++) {
        if (!has_row[s->thread]) continue;
        *register_of(s, known) = r;
        if (e->force[k->result] && !written) kept_write(s, k->result, &at, r);
        written = true;
    }
}

/* One pass, for the rows that begin at `base`. */
static void run_pass(sim *s, const loop_node *pass, int first_known, int64_t base, int64_t rows, bool tests_rows,
                     loop_lead lead)
{
    const pass_layout *l = pass->pass->layout;
    unsigned axes = ((1u << l->loop_count) - 1) & ~l->row_axes;
    int64_t count = count_of(s, l, axes), parts = part_for(s, l, 0).parts;
    bool inner = axes != 0, *has_row = ARENA_ARRAY(s->memory, bool, s->threads);
    CHECK(pass->pass->pass->sink_count <= MOST_SINKS);
    for (int i = 0; i < pass->pass->pass->sink_count; i++) s->folded[i] = ARENA_ARRAY(s->memory, cell, count + 1);
    for (int64_t part = 0; part < parts && base + part < rows && !s->why->length; part++) {
        uint8_t *seen = ARENA_ARRAY(s->memory, uint8_t, count + 1);
        memset(has_row, 0, sizeof(bool) * (size_t)s->threads);
        for (s->thread = 0; s->thread < s->threads; s->thread++) {
            part_of p = part_for(s, l, s->thread);
            if (p.part != part || (lead == LEAD_ALONE && s->thread)) continue;
            has_row[s->thread] = true;
            take_apart(s, l, l->row_axes, base + part);
            run_level(s, pass, first_known, LEVEL_ROW);
            if (inner) {
                run_chunks(s, pass, first_known, &p, seen);
            } else {
                run_position(s, pass, first_known, LEVEL_ROW, 0, lead == LEAD_EACH || p.thread == 0);
            }
        }
        for (int64_t at = 0; inner && at < count && !s->why->length; at++)
            if (!seen[at]) fail(s, "position %" PRId64 " has no thread", at);
        for (const loop_node *n = pass->body; n; n = n->next)
            if (n->code == LOOP_FOLD_END) end_fold(s, pass, n->sink, base + part, has_row);
    }
    if (base + parts > rows && !tests_rows && parts > 1) fail(s, "a row beyond the last is not tested");
}

void sim_group(sim *s, const loop_node *group)
{
    int count = 0, passes = 0, *first;
    for (const loop_node *p = group->body; p; p = p->next, passes++)
        for (const loop_node *n = p->body; n; n = n->next) count += n->op ? 1 + n->op->result_count : 1;
    first = ARENA_ARRAY(s->memory, int, passes + 1);
    s->known = ARENA_ARRAY(s->memory, sim_known, count + 1);
    s->most_known = count + 1;
    s->registers = ARENA_ARRAY(s->memory, cell, (int64_t)(count + 1) * s->threads);
    const pass_layout *l = group->body->pass->layout;
    int64_t rows = count_of(s, l, l->row_axes), parts = part_for(s, l, 0).parts;
    for (int64_t base = 0; base < rows && !s->why->length; base += parts) {
        int number = 0;
        s->known_count = 0;
        for (const loop_node *p = group->body; p && !s->why->length; p = p->next, number++) {
            for (int i = 0; i < s->known_count; i++) /* chunks and elements of the pass before are no more */
                if (s->known[i].level > LEVEL_ROW) s->known[i].v = 0;
            first[number] = s->known_count;
            for (const loop_node *n = p->body; n; n = n->next) {
                if (n->code == LOOP_MAP)
                    for (int r = 0; r < n->op->result_count; r++) know(s, n->op->results[r], *n->at, n->number[0]);
                else if (is_value(n))
                    know(s, n->operand, *n->at, n->number[0]);
            }
            int threads = group->group->lead == LEAD_ALONE ? 1 : s->threads;
            for (s->thread = 0; s->thread < threads; s->thread++) run_level(s, p, first[number], LEVEL_GROUP);
            for (const loop_node *n = p->body; n; n = n->next)
                if (n->code == LOOP_FOLD_END && n->sink->kind == SINK_REDUCE &&
                    tile_type_of(s->program->survey->k, n->sink->result).rank)
                    know(s, n->sink->result, fold_result_place(s->program->survey, n->sink), LEVEL_ROW);
            run_pass(s, p, first[number], base, rows, group->group->tests_rows, group->group->lead);
        }
    }
    s->known_count = 0;
    s->level = LEVEL_COUNT;
}
