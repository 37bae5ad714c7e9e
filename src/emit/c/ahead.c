/*
 * Reading ahead, in launches larger than the caches. In: an access of a pass as it is emitted, and before that the plan of
 * a loop's body. Out: prefetches beside the loads.
 *
 * What comes from memory is asked for twice: far ahead, over the end of the page where the hardware stops to guess, into
 * the second cache, then into the first. Rows that other stages of a pipeline have read come from the second cache. Where
 * passes run one after another, a row that an earlier pass brought in leaves the memory idle: it can bring the row of the
 * next program, or of the next turn of a loop over rows.
 * SPDX-License-Identifier: MIT
 */
#include "emit/c/nest.h"

#include <inttypes.h>
#include <string.h>

/* Where an access goes in the next program, or in the next turn of the loop around it. */
typedef struct advance {
    int axis; /* -1: nowhere else, or not known */
    int64_t programs;
    const char *words; /* how far, in elements of the axis */
    bool turn;         /* of a loop */
} advance;

/* How much an index grows from one program to the next along axis 0; 0: not at all, or not known. */
static int64_t program_step(const emitter *e, value v)
{
    const tile_op *op = tile_def(e->k, v);
    number factor;
    if (!op) return 0;
    if (op->code == OP_PROGRAM) return op->attr.index == 0;
    if (op->code != OP_MUL) return 0;
    for (int i = 0; i < 2; i++)
        if (tile_is_constant(e->k, op->operands[i], &factor)) return factor.i * program_step(e, op->operands[1 - i]);
    return 0;
}

static advance find_advance(emitter *e, const tile_op *op)
{
    const struct access *access = &op->attr.access;
    int operand = access->first_index;
    for (int axis = 0; axis < access->rank; axis++) {
        value v = op->operands[operand];
        if (e->loop && v == e->loop->regions[0]->args[0])
            return (advance){.axis = axis, .words = emit_name(e, e->loop->operands[2]), .turn = true};
        int64_t step = program_step(e, v);
        if (step)
            return (advance){.axis = axis, .programs = step, .words = arena_print(e->memory, "%" PRId64 "L", step)};
        operand += access->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    return (advance){.axis = -1};
}

/* ---- loops over rows ---- */

enum { MOST_PASSES = 64 };

typedef struct body {
    emitter *e;
    uint64_t *passes; /* by value: the passes that load it */
    int number;
} body;

static void note_load(survey *s, value v, const place *at, void *context)
{
    body *b = context;
    const tile_op *op = tile_def(s->k, v);
    if (value_is_virtual(s, v) && op->code == OP_LOAD && find_advance(b->e, op).turn)
        b->passes[v] |= (uint64_t)1 << b->number;
}

/* Chooses for each row the pass that asks for the next one: not the first that reads it, which may still wait for it; one
 * that writes, for reads and writes go on at the same time; and not one that asks for another row already. */
void ahead_plan(emitter *e, const plan *p)
{
    body b = {.e = e, .passes = ARENA_ARRAY(e->memory, uint64_t, e->k->value_count)};
    uint64_t writing = 0;
    int asked[MOST_PASSES] = {0};
    for (int i = 0; i < p->count; i++) {
        const item *it = &p->items[i];
        bool plain = it->kind == ITEM_SCALAR || (it->kind == ITEM_CONTROL && it->op->code == OP_YIELD);
        if (it->kind != ITEM_GROUP && !plain) return;
        for (int n = 0; it->kind == ITEM_GROUP && n < it->group->pass_count; n++, b.number++) {
            if (b.number == MOST_PASSES) return;
            const pass_nest *pass = &it->group->passes[n];
            for (int s = 0; s < pass->sink_count; s++) {
                if (pass->sinks[s].kind == SINK_STORE) writing |= (uint64_t)1 << b.number;
                walk_sink(e->survey, &pass->sinks[s], note_load, &b);
            }
        }
    }
    for (value v = 1; v < (value)e->k->value_count; v++) {
        uint64_t later = b.passes[v] & (b.passes[v] - 1), wanted = later & writing ? later & writing : later;
        if (!wanted) wanted = b.passes[v];
        int best = -1;
        for (int n = 0; n < b.number; n++)
            if (wanted >> n & 1 && (best < 0 || asked[n] < asked[best])) best = n;
        if (best < 0) continue;
        asked[best]++;
        e->ahead_in[v] = e->survey->pass_number + 1 + best;
    }
}

/* ---- one access ---- */

void access_prefetch(nest *n, const tile_op *op, const address *a)
{
    enum { PAGE_BYTES = 4096 };
    emitter *e = n->e;
    int near_bytes = e->options->near_bytes ? e->options->near_bytes : 512;
    int far_bytes = e->options->far_bytes ? e->options->far_bytes : 8192;
    const struct access *access = &op->attr.access;
    if ((n->partial && !n->single) || !e->prefetches || a->stride != words_one || a->ok) return;
    value loaded = op->results[0];
    int *passes = e->loaded_in[loaded], size_bytes = dtypes[a->elem].size_bytes;
    if (!passes[0]) passes[0] = e->survey->pass_number;
    if (!passes[1] && passes[0] != e->survey->pass_number) passes[1] = e->survey->pass_number;
    advance next = find_advance(e, op);
    if (!next.turn) {
        bool streams = e->pipelined;
        for (int i = 0; i < n->pass->sink_count; i++) streams |= n->pass->sinks[i].kind == SINK_STORE;
        bool from_memory = next.axis >= 0 && passes[0] == e->survey->pass_number && streams;
        if (from_memory) put_at(n, n->loops, "__builtin_prefetch(%s + %d, 0, 2);", a->pointer, far_bytes / size_bytes);
        if (from_memory || e->pipelined)
            put_at(n, n->loops, "__builtin_prefetch(%s + %d, 0, 3);", a->pointer, near_bytes / size_bytes);
        if (e->pipelined || passes[1] != e->survey->pass_number) return;
    } else if (e->ahead_in[loaded] != e->survey->pass_number) {
        return;
    }
    if (next.axis < 0 || next.axis == access->rank - 1) return;
    const char *row = stride_text(e, access->array, next.axis);
    bool adjoin = next.axis == access->rank - 2 && e->k->params[access->array].facts.contiguous;
    if (next.programs == 1 && adjoin) /* short rows: several */
        row = arena_print(e->memory, "(%s < %d ? %d : %s)", row, PAGE_BYTES / size_bytes, PAGE_BYTES / size_bytes, row);
    put_at(n, n->loops, "__builtin_prefetch(%s + %s * %s, 0, 3);", a->pointer, next.words, row);
}
