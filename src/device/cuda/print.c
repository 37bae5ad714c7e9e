/*
 * Printed lines of CUDA kernels. In: a ring of words (its form is in emit/cuda/prelude.h) and the kernel whose print
 * statements it came from. Out: the same lines that the other devices print. What the ring says is checked against its
 * own size, since a kernel that went wrong may have left anything there.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/print.h"

#include "emit/cuda/prelude.h"
#include "ir/interp.h"

#include <stdlib.h>
#include <string.h>

typedef struct print_search {
    int64_t wanted, seen;
    const tile_op *found;
    int phase, found_phase;
} print_search;

static void find_print(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    print_search *s = context;
    if (op->code != OP_PRINT) return;
    if (s->seen++ == s->wanted) {
        s->found = op;
        s->found_phase = s->phase;
    }
}

static print_search search(const tile_kernel *k, int64_t number)
{
    print_search s = {.wanted = number};
    for (; s.phase < k->phase_count; s.phase++) tile_walk((tile_kernel *)k, k->phases[s.phase], find_print, &s);
    return s;
}

bool cuda_prints(const tile_kernel *k)
{
    return search(k, 0).found != NULL;
}

void cuda_print_reset(int64_t *ring, int64_t words)
{
    ring[0] = words - CUDA_PRINT_HEAD;
    ring[1] = 0;
}

/* A tile of a record: rank, extents, elements. False: it does not fit the record. */
static bool take_tile(const int64_t **at, const int64_t *end, dtype elem, interp_tile *out)
{
    *out = (interp_tile){.type = {.elem = elem}, .count = 1};
    if (*at >= end || **at < 0 || **at > MAX_RANK) return false;
    out->type.rank = (int)*(*at)++;
    if (end - *at < out->type.rank) return false;
    for (int axis = 0; axis < out->type.rank; axis++) {
        out->type.dims[axis] = *(*at)++;
        if (out->type.dims[axis] < 0 || __builtin_mul_overflow(out->count, out->type.dims[axis], &out->count))
            return false;
    }
    if (out->count > end - *at) return false;
    out->elements = heap_array((size_t)out->count + 1, sizeof(number));
    for (int64_t i = 0; i < out->count; i++) {
        int64_t bits = *(*at)++;
        if (dtype_is_float(elem))
            memcpy(&out->elements[i].f, &bits, sizeof(bits));
        else
            out->elements[i].i = bits;
    }
    return true;
}

/* Validity as bytes of the value's shape; NULL if its shape does not broadcast to that. */
static uint8_t *spread_validity(const interp_tile *valid, const interp_tile *t)
{
    uint8_t *shown = heap_new((size_t)t->count + 1);
    int skip = t->type.rank - valid->type.rank;
    for (int64_t i = 0; i < t->count; i++) {
        int64_t rest = i, at = 0, step = 1;
        for (int axis = t->type.rank - 1; axis >= 0; axis--) {
            CHECK(t->type.dims[axis] > 0); /* or there are no elements */
            int64_t index = rest % t->type.dims[axis];
            rest /= t->type.dims[axis];
            if (axis < skip) continue;
            int64_t extent = valid->type.dims[axis - skip];
            if (extent > 1) at += index * step;
            step *= extent;
        }
        shown[i] = skip < 0 || at >= valid->count || valid->elements[at].i != 0;
    }
    return shown;
}

/* The values that a record shows, then a validity for each where the op has them. False: the record is broken. */
static bool take_values(const tile_kernel *k, const tile_op *op, const int64_t *at, const int64_t *end,
                        interp_tile *values, uint8_t **shown)
{
    int count = op->attr.count;
    for (int i = 0; i < count; i++)
        if (!take_tile(&at, end, tile_type_of(k, op->operands[i]).elem, &values[i])) return false;
    for (int i = 0; i < count && op->operand_count == 2 * count; i++) {
        interp_tile valid;
        bool good = take_tile(&at, end, DT_BOOL, &valid);
        if (good) shown[i] = spread_validity(&valid, &values[i]);
        heap_free(valid.elements);
        if (!good) return false;
    }
    return true;
}

static int launch_rank(const tile_kernel *k, int phase)
{
    for (int i = 0; i < k->head->op_count; i++) {
        const tile_op *op = k->head->ops[i];
        if (op->code == OP_LAUNCH && op->attr.index == phase) return op->operand_count;
    }
    return 1;
}

static bool show_record(const tile_kernel *k, const int64_t *record, const int64_t *end, text *line)
{
    print_search s = search(k, record[1]);
    if (!s.found) return false;
    text_print(line, "%s (program ", k->name);
    int rank = launch_rank(k, s.found_phase);
    for (int axis = 0; axis < rank; axis++) text_print(line, axis ? ", %lld" : "%lld", (long long)record[2 + axis]);
    text_print(line, "), line %d: ", s.found->line);
    int next = 0, count = s.found->attr.count;
    interp_tile *values = heap_array((size_t)count + 1, sizeof(*values));
    uint8_t **shown = heap_array((size_t)count + 1, sizeof(*shown));
    bool good = take_values(k, s.found, record + CUDA_PRINT_FIELDS, end, values, shown);
    for (const char *c = s.found->attr.words ? s.found->attr.words : ""; *c && good; c++) {
        if (c[0] != '{' || c[1] != '}' || next >= count) {
            text_add_bytes(line, c, 1);
            continue;
        }
        c++;
        interp_show_tile(&values[next], shown[next], line);
        next++;
    }
    for (int i = 0; i < count; i++) {
        heap_free(values[i].elements);
        heap_free(shown[i]);
    }
    heap_free(values);
    heap_free(shown);
    return good;
}

void cuda_print_drain(int64_t *ring, int64_t words, const tile_kernel *k, void (*print)(void *user, const char *line),
                      void *user)
{
    int64_t room = words - CUDA_PRINT_HEAD, asked = ring[1], at = 0;
    const int64_t *records = ring + CUDA_PRINT_HEAD;
    while (print && at < MINIMUM(asked, room)) {
        int64_t length = records[at];
        if (length < CUDA_PRINT_FIELDS || length > room - at) break; /* the one that found no room */
        text line = {0};
        if (show_record(k, records + at, records + at + length, &line)) print(user, text_get(&line));
        text_free(&line);
        at += length;
    }
    if (print && asked > room) print(user, "(more was printed than there is room for; the rest is lost)");
    memset(ring + CUDA_PRINT_HEAD, 0, sizeof(int64_t) * (size_t)MINIMUM(MAXIMUM(asked, 0), room));
    cuda_print_reset(ring, words);
}
