/*
 * Shadows: what the programs of a phase did to each element of the arrays they may write.
 *
 * In: the places of an access. Out: R702 (read of what nothing wrote), R703 (never written), R704 (race), R705 (two
 * elements of one store meet). A place is a position in the array's own index space, so that strided views cost no
 * more than dense ones; an axis of stride 0 is folded into one place, and a view that overlaps itself in another way
 * is shadowed by its memory. A phase begins with a fresh range of program serials: older marks mean nothing.
 * SPDX-License-Identifier: MIT
 */
#include "ir/interp_state.h"

#include <stdlib.h>
#include <string.h>

static void *table(interp *s, int64_t count, size_t size)
{
    void *memory = calloc((size_t)count + 1, size); /* pages that are never touched cost nothing */
    if (!memory) interp_no_memory(s, ((size_t)count + 1) * size);
    return memory;
}

/* Whether different indices (on axes whose stride is not 0) always lie apart. */
static bool injective(const array_view *a)
{
    int axes[MAX_RANK], count = 0;
    for (int axis = 0; axis < a->rank; axis++) {
        if (a->extents[axis] <= 1 || a->strides[axis] == 0) continue;
        int at = count++;
        for (; at > 0 && llabs(a->strides[axes[at - 1]]) > llabs(a->strides[axis]); at--) axes[at] = axes[at - 1];
        axes[at] = axis;
    }
    int64_t reach = 0; /* of the axes with smaller strides */
    for (int k = 0; k < count; k++) {
        int64_t stride = llabs(a->strides[axes[k]]);
        if (stride <= reach) return false;
        reach += stride * (a->extents[axes[k]] - 1);
    }
    return true;
}

static void shadow_make(const array_view *a, shadow *known)
{
    known->tracked = true;
    for (int axis = 0; axis < a->rank; axis++) known->overlaps |= a->strides[axis] == 0 && a->extents[axis] > 1;
    known->count = 1;
    if (injective(a)) {
        for (int axis = a->rank - 1; axis >= 0; axis--) {
            bool folded = a->strides[axis] == 0 && a->extents[axis] > 0;
            known->strides[axis] = folded ? 0 : known->count;
            if (!folded) known->count *= a->extents[axis];
        }
    } else {
        known->overlaps = known->by_memory = true;
        for (int axis = 0; axis < a->rank; axis++) {
            int64_t reach = a->strides[axis] * (a->extents[axis] - 1);
            known->strides[axis] = a->strides[axis];
            known->count += llabs(reach);
            if (reach < 0) known->base -= reach;
        }
    }
    known->same_as_memory = known->base == 0;
    for (int axis = 0; axis < a->rank; axis++) known->same_as_memory &= known->strides[axis] == a->strides[axis];
}

void shadows_make(interp *s)
{
    const tile_kernel *k = s->kernel;
    s->shadows = heap_array((size_t)k->param_count + 1, sizeof(shadow));
    for (int p = 0; p < k->param_count; p++) {
        const tile_param *param = &k->params[p];
        if (param->kind != PARAM_OUT && param->kind != PARAM_INOUT && param->kind != PARAM_SCRATCH) continue;
        shadow *known = &s->shadows[p];
        shadow_make(&s->arrays[p], known);
        if (param->digits) known->same_as_memory = false;
        known->needs_write = param->kind == PARAM_SCRATCH || (param->kind == PARAM_OUT && !param->has_initial);
        if (known->needs_write) known->written = table(s, known->count, 1);
    }
}

void shadows_free(interp *s)
{
    for (int p = 0; s->shadows && p < s->kernel->param_count; p++) {
        shadow *known = &s->shadows[p];
        heap_free(known->written);
        heap_free(known->writer);
        heap_free(known->readers);
        heap_free(known->atomics);
        heap_free(known->stamp);
        heap_free(known->birth);
    }
    heap_free(s->shadows);
    s->shadows = NULL;
}

void shadow_index(const interp *s, int array, int64_t place, text *out)
{
    const shadow *known = &s->shadows[array];
    const array_view *a = &s->arrays[array];
    if (known->by_memory) text_print(out, " at offset %lld", (long long)(place - known->base));
    for (int axis = 0; axis < a->rank && !known->by_memory; axis++) {
        int64_t step = known->strides[axis];
        int64_t index = step ? place / step % (a->extents[axis] ? a->extents[axis] : 1) : 0;
        text_print(out, "[%lld]", (long long)index);
    }
}

static void report_race(interp *s, const tile_op *op, int array, int64_t place, const char *did, touch other,
                        const char *other_did)
{
    if (interp_again(s, 704, op)) return;
    int64_t program[3];
    char here[80], there[80];
    interp_program_of(s, other.program, program);
    text at = {0};
    shadow_index(s, array, place, &at);
    finding *f = interp_report(s, 704, op, "race on `%s%s`: program %s %s here, program %s %s on line %u",
                               s->kernel->params[array].name, text_get(&at), interp_program_text(s, s->program, here),
                               did, interp_program_text(s, program, there), other_did, other.line);
    memcpy(f->programs[1], program, sizeof(program));
    f->other_line = (int)other.line;
    text_free(&at);
}

/* One of the two that is of this phase and another program, or none. */
static touch other_of(const interp *s, const touch two[2])
{
    for (int k = 0; k < 2; k++)
        if (two[k].program >= s->first_serial && two[k].program != s->serial) return two[k];
    return (touch){0, 0};
}

static void note(const interp *s, touch two[2], int line)
{
    touch now = {s->serial, (uint32_t)line};
    if (two[0].program < s->first_serial || two[0].program == s->serial) {
        if (two[0].program < s->first_serial) two[1] = (touch){0, 0};
        two[0] = now;
    } else {
        two[1] = now;
    }
}

/* Has this program heard of what the other did? Programs that have ordered atomics run one after the other, each to its end. */
static bool has_heard(const interp *s, uint32_t other)
{
    return s->ordered && s->ordered[other - s->first_serial] && s->ordered[s->serial - s->first_serial];
}

static bool wrote_other(const interp *s, touch writer)
{
    return writer.program >= s->first_serial && writer.program != s->serial && !has_heard(s, writer.program);
}

void shadow_read(interp *s, const tile_op *op, int array, int64_t count, const int64_t *places, const uint8_t *skip)
{
    shadow *known = &s->shadows[array];
    if (!known->readers) known->readers = table(s, known->count, sizeof(*known->readers));
    for (int64_t j = 0; j < count; j++) {
        if (skip[j]) continue;
        int64_t place = places[j];
        if (known->written && !known->written[place] && !interp_again(s, 702, op)) {
            text at = {0};
            shadow_index(s, array, place, &at);
            interp_report(s, 702, op, "`%s%s` is read, but nothing wrote it", s->kernel->params[array].name,
                          text_get(&at));
            text_free(&at);
        }
        if (known->writer && wrote_other(s, known->writer[place]))
            report_race(s, op, array, place, "reads it", known->writer[place], "writes it");
        if (known->atomics) {
            touch other = other_of(s, known->atomics[place]);
            if (other.program) report_race(s, op, array, place, "reads it", other, "updates it by an atomic");
        }
        note(s, known->readers[place], op->line);
    }
}

void shadow_write(interp *s, const tile_op *op, int array, int64_t count, const int64_t *places, const uint8_t *skip,
                  bool may_meet)
{
    shadow *known = &s->shadows[array];
    if (!known->writer) known->writer = table(s, known->count, sizeof(touch));
    if (may_meet && !known->stamp) known->stamp = table(s, known->count, sizeof(uint32_t));
    uint32_t stamp = ++s->stamp;
    for (int64_t j = 0; j < count; j++) {
        if (skip[j]) continue;
        int64_t place = places[j];
        if (may_meet && known->stamp[place] == stamp && !interp_again(s, 705, op)) {
            text at = {0};
            shadow_index(s, array, place, &at);
            interp_report(s, 705, op, "two elements of this store meet at `%s%s`", s->kernel->params[array].name,
                          text_get(&at));
            text_free(&at);
        }
        if (may_meet) known->stamp[place] = stamp;
        touch *writer = &known->writer[place];
        if (wrote_other(s, *writer)) report_race(s, op, array, place, "writes it", *writer, "writes it");
        if (known->readers) {
            touch other = other_of(s, known->readers[place]);
            if (other.program) report_race(s, op, array, place, "writes it", other, "reads it");
        }
        if (known->atomics) {
            touch other = other_of(s, known->atomics[place]);
            if (other.program) report_race(s, op, array, place, "writes it", other, "updates it by an atomic");
        }
        *writer = (touch){s->serial, (uint32_t)op->line};
        if (known->written) known->written[place] = 1;
    }
}

void shadow_atomic(interp *s, const tile_op *op, int array, int64_t count, const int64_t *places, const uint8_t *skip)
{
    shadow *known = &s->shadows[array];
    if (!known->atomics) known->atomics = table(s, known->count, sizeof(*known->atomics));
    if (s->ordered && op->flags & F_ORDERED) s->ordered[s->serial - s->first_serial] = 1;
    for (int64_t j = 0; j < count; j++) {
        if (skip[j]) continue;
        int64_t place = places[j];
        if (known->written && !known->written[place] && op->attr.atomic != ATOMIC_EXCHANGE &&
            !interp_again(s, 702, op)) {
            text at = {0};
            shadow_index(s, array, place, &at);
            interp_report(s, 702, op, "the atomic reads `%s%s`, but nothing wrote it", s->kernel->params[array].name,
                          text_get(&at));
            text_free(&at);
        }
        if (known->writer && wrote_other(s, known->writer[place]))
            report_race(s, op, array, place, "updates it by an atomic", known->writer[place], "writes it");
        if (known->readers) {
            touch other = other_of(s, known->readers[place]);
            if (other.program) report_race(s, op, array, place, "updates it by an atomic", other, "reads it");
        }
        note(s, known->atomics[place], op->line);
        if (known->written) known->written[place] = 1;
    }
}

const int32_t *shadow_births(const interp *s, int array)
{
    return s->shadows ? s->shadows[array].birth : NULL;
}

void shadow_set_births(interp *s, int array, int64_t count, const int64_t *places, const uint8_t *skip,
                       const tile *from)
{
    shadow *known = &s->shadows[array];
    if (!known->birth && !from->birth) return;
    if (!known->birth) known->birth = table(s, known->count, sizeof(int32_t));
    for (int64_t j = 0; j < count; j++)
        if (!skip[j]) known->birth[places[j]] = birth_of(from, j);
}

bool interp_written(const interp *state, int array, const int64_t *index)
{
    const shadow *known = state->shadows ? &state->shadows[array] : NULL;
    if (!known || !known->written) return true;
    int64_t place = known->base;
    for (int axis = 0; axis < state->arrays[array].rank; axis++) place += index[axis] * known->strides[axis];
    return known->written[place];
}

bool shadow_next(const array_view *a, int64_t index[MAX_RANK])
{
    for (int axis = a->rank - 1; axis >= 0; axis--) {
        if (++index[axis] < a->extents[axis]) return true;
        index[axis] = 0;
    }
    return false;
}

void shadow_unwritten(interp *s)
{
    const tile_kernel *k = s->kernel;
    for (int p = 0; p < k->param_count; p++) {
        const shadow *known = &s->shadows[p];
        const array_view *a = &s->arrays[p];
        const char *name = k->params[p].name;
        if (k->params[p].kind != PARAM_OUT || !known->written) continue;
        int64_t missing = 0, first[MAX_RANK], index[MAX_RANK] = {0}, total = 1;
        for (int axis = 0; axis < a->rank; axis++) total *= a->extents[axis];
        if (!total || (!known->by_memory && !memchr(known->written, 0, (size_t)known->count))) continue;
        do {
            int64_t place = known->base;
            for (int axis = 0; axis < a->rank; axis++) place += index[axis] * known->strides[axis];
            if (known->written[place]) continue;
            if (!missing++) memcpy(first, index, sizeof(first));
        } while (shadow_next(a, index));
        if (!missing) continue;
        text at = {0};
        for (int axis = 0; axis < a->rank; axis++) text_print(&at, "[%lld]", (long long)first[axis]);
        tile_op place = {.line = k->params[p].line, .column = k->params[p].column};
        if (!interp_again(s, 703, &place)) {
            finding *f =
                interp_report(s, 703, &place, "%lld of %lld elements of `%s` were never written; the first is `%s%s`",
                              (long long)missing, (long long)total, name, name, text_get(&at));
            for (int axis = 0; axis < 3; axis++)
                f->programs[0][axis] = f->programs[1][axis] = -1; /* no program did it */
        }
        text_free(&at);
    }
}
