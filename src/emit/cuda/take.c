/*
 * Warps that take an operand of a product, as CUDA C. In: nodes of a loop program and its schedule. Out: text.
 *
 * A stage of the ring is lines of 128 bytes, 64 elements of what is computed: along k, lines of rows or columns; else boxes
 * of lines of k. A thread has 4 neighbours (16 bytes in memory, 8 in the ring) of lines that are a multiple of eight apart, so
 * that its place in a line, swizzled, is the same in all of them. Sixteen threads read 256 bytes side by side. What is rounded to tf32
 * goes another way (take_rounded.c).
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/fill.h"

#include <inttypes.h>

enum { NOWHERE = 1 << 30 };

/* Lines from one of a thread to its next. */
static int lines_apart(const schedule *s)
{
    return 2 * s->fill.warps;
}

/* The first row or column, and the first k, of a thread. */
static const char *own_place(const sched_take *t)
{
    return t->along_k ? "taker / 16" : "taker % 16 * 4";
}

static const char *own_k(const sched_take *t)
{
    return t->along_k ? "taker % 16 * 4" : "taker / 16";
}

static const char *start_of(emitter *e, const tile_op *load, int wanted)
{
    const struct access *a = &load->attr.access;
    int operand = a->first_index;
    for (int axis = 0; axis < wanted; axis++) operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    return emit_name(e, load->operands[operand]);
}

/* Asks for a step of a side that begins at k; next: if there is such a step. */
static void put_ask(emitter *e, const schedule *s, int side, const char *k, bool next)
{
    const sched_take *t = &s->takes[side];
    int array = t->load->attr.access.array;
    const char *inner = array_extent(e, array, t->along_k ? t->k_axis : t->tile_axis);
    const char *own = arena_print(e->memory, "take%d_left", side);
    const char *left = arena_print(e->memory, "%s - (%s) - %s", array_extent(e, array, t->k_axis), k, own_k(t));
    const char *line = stride_text(e, array, t->along_k ? t->tile_axis : t->k_axis);
    const char *from =
        arena_print(e->memory, "take%d_raw, take%d + (%s) * %s", side, side, k, stride_text(e, array, t->k_axis));
    const char *whole = t->whole ? "true" : "false";
    put(e, "%s<%d, %d, %s, %s>(%s,", need(e, "take_ask"), t->vectors, lines_apart(s), t->along_k ? "true" : "false",
        whole, from);
    put(e, "    %s, %s%s, %s, %s);", line, next ? "step + 1 == steps ? 0 : " : "", t->along_k ? own : left,
        t->along_k ? left : own, inner);
}

void print_take_begin(emitter *e, const schedule *s, const loop_node *n)
{
    if (s->takes[0].rounds || s->takes[1].rounds) {
        print_rounded_take_begin(e, s, n);
        return;
    }
    const char *from = emit_name(e, n->op->operands[0]), *limit = emit_name(e, n->op->operands[1]);
    put(e, "const int taker = filler * 32 + lane;");
    put(e, "const int take_to = taker / 16 * %d + ((taker %% 16 / 2 ^ taker / 16 %% 8) * 16 + taker %% 2 * 8);",
        SCHED_LINE_BYTES);
    put(e, "const long take_start = %s < %s ? %s : %d;", from, limit, from, NOWHERE);
    for (int side = 0; side < 2; side++) {
        const sched_take *t = &s->takes[side];
        if (!t->load) continue;
        const struct access *a = &t->load->attr.access;
        const char *name = e->k->params[a->array].name, *start = start_of(e, t->load, t->tile_axis);
        const char *own = own_place(t), *place = arena_print(e->memory, "%s_array", name);
        e->array_used[a->array] = true;
        for (int axis = 0; axis < a->rank; axis++)
            if (axis != t->k_axis)
                place = arena_print(e->memory, "%s + ((long)%s%s%s) * %s", place, start_of(e, t->load, axis),
                                    axis == t->tile_axis ? " + " : "", axis == t->tile_axis ? own : "",
                                    stride_text(e, a->array, axis));
        put(e, "const float *const take%d = %s + (long)(%s) * %s;", side, place, own_k(t),
            stride_text(e, a->array, t->k_axis));
        put(e, "const long take%d_left = %s - %s - %s;", side, array_extent(e, a->array, t->tile_axis), start, own);
        put(e, "unsigned take%d_raw[%d][4];", side, t->vectors);
        put_ask(e, s, side, "take_start", false);
    }
}

/* The values of a step into their rings. */
static void put_side(emitter *e, const schedule *s, int side)
{
    const sched_take *t = &s->takes[side];
    const fill_source from = {t->load, t->needed, arena_print(e->memory, "take%d_raw[i][half * 2 + v]", side)};
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < %d; i++) {", t->vectors);
    e->depth++;
    for (int n = 0; n < s->operand_count; n++)
        if (s->operands[n].taken && s->operands[n].side == side) put(e, "unsigned words%d[2];", n);
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int half = 0; half < 2; half++) {");
    e->depth++;
    fill_put_values(e, s, &from);
    for (int n = 0; n < s->operand_count; n++) {
        const sched_operand *o = &s->operands[n];
        if (!o->taken || o->side != side) continue;
        const tile_op *op = tile_def(e->k, o->source);
        bool rounded = op->code == OP_CONVERT && tile_type_of(e->k, op->operands[0]).elem == DT_F32;
        const char *name = emit_name(e, o->source);
        if (rounded)
            put(e, "words%d[half] = %s_both;", n, name);
        else
            put(e, "words%d[half] = %s(%s_pair[0], %s_pair[1]);", n, need(e, "pack_%s", s->matrix), name, name);
    }
    e->depth--;
    put(e, "}");
    for (int n = 0; n < s->operand_count; n++)
        if (s->operands[n].taken && s->operands[n].side == side)
            put(e, "%s(%s + stage * %" PRId64 " + take_to + i * %d, words%d);", need(e, "store_words2"),
                s->operands[n].ring.name, s->operands[n].ring.stage_bytes, lines_apart(s) * SCHED_LINE_BYTES, n);
    e->depth--;
    put(e, "}");
}

void print_take(emitter *e, const schedule *s, const loop_node *n)
{
    if (s->takes[0].rounds || s->takes[1].rounds) {
        print_rounded_take(e, s);
        return;
    }
    for (int side = 0; side < 2; side++) {
        const sched_take *t = &s->takes[side];
        if (!t->load) continue;
        put_side(e, s, side);
        const char *next = arena_print(e->memory, "%s + %d", start_of(e, t->load, t->k_axis), n->number[0]);
        put_ask(e, s, side, next, true);
    }
}
