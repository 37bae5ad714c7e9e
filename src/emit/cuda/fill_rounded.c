/*
 * Warps that gather an operand of f32 and round it to tf32, as CUDA C. In: nodes of a loop program and its schedule. Out: text.
 *
 * The matrix units take tf32 in lines of k alone: 32 elements, 128 bytes. Three ways to fill them, by how elements lie:
 *   by chunk       four neighbours along k at an address of 16 bytes: a lane loads them at once and stores them at once;
 *   along k        a lane stays at one k and the warp goes from line to line, a word each;
 *   along lines    a lane stays at one line of each 32 (its neighbours are other lanes'), takes four k of it one after the other
 *                  and stores them at once: so they are turned without another exchange.
 * A step is short (32 k of one product), so the elements of two are on their way, in registers of their own: even steps and odd
 * ones are branches with the same text.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/fill.h"

#include <inttypes.h>

enum { WORDS = 4 /* of 16 bytes */, LINE_WORDS = SCHED_LINE_BYTES / 4, STEPS = 2 /* that are on their way */ };

/* Asks for the step that begins at k, into the registers `raw[buffer]`. */
static void put_ask(emitter *e, const schedule *s, int buffer, const char *k)
{
    const sched_gather *g = &s->gather;
    const char *type = fill_place_type(e, s);
    put(e, "{");
    e->depth++;
    if (g->by_chunk)
        put(e, "const %s here = k_place(%s + lane %% 8 * %d);", type, k, WORDS);
    else if (g->along_k)
        put(e, "const %s here = k_place(%s + lane);", type, k);
    else
        put(e, "const %s walk = k_place(%s + filler * %d + lane %% %d);", type, k, g->warp_lines, g->warp_lines);
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int row = 0; row < %d; row++)%s", g->by_chunk || g->along_k ? g->rows : g->warp_lines,
        g->by_chunk || g->along_k ? "" : " {");
    if (g->by_chunk) {
        put(e, "    gather_take4(raw[%d][row], gather_base, lines[row], here, gather_extents);", buffer);
    } else if (g->along_k) {
        put(e, "    gather_take(raw[%d][row], gather_base, gather_pass(walk, row), here, gather_extents);", buffer);
    } else { /* a place is handed round once for all lines of a lane */
        put(e, "    const %s here = gather_pass(walk, row);", type);
        text_add(e->out, "#pragma unroll\n");
        put(e, "    for (int box = 0; box < %d; box++)", g->boxes);
        put(e, "        gather_take(raw[%d][box * %d + row], gather_base, lines[box], here, gather_extents);", buffer,
            g->warp_lines);
        put(e, "}");
    }
    e->depth--;
    put(e, "}");
}

void print_rounded_begin(emitter *e, const schedule *s)
{
    const sched_gather *g = &s->gather;
    const char *type = fill_place_type(e, s), *start = fill_start_of(e, s, g->tile_axis);
    need(e, "tf32_f32");
    if (g->by_chunk) {
        need(e, "gather_take4");
        put(e, "%s lines[%d];", type, g->rows);
        text_add(e->out, "#pragma unroll\n");
        put(e, "for (int row = 0; row < %d; row++)", g->rows);
        put(e, "    lines[row] = line_place(%s + filler * %d + row * 4 + lane / 8);", start, g->warp_lines);
    } else if (g->along_k) {
        put(e, "const %s walk = line_place(%s + filler * %d + lane %% %d);", type, start, g->warp_lines, g->warp_lines);
    } else {
        put(e, "%s lines[%d];", type, g->boxes);
        text_add(e->out, "#pragma unroll\n");
        put(e, "for (int box = 0; box < %d; box++) lines[box] = line_place(%s + box * %d + lane);", g->boxes, start,
            LINE_WORDS);
    }
    if (g->by_chunk)
        put(e, "unsigned raw[%d][%d][%d];", STEPS, g->rows, WORDS);
    else
        put(e, "float raw[%d][%d];", STEPS, g->rows);
    for (int step = 0; step < STEPS; step++)
        put_ask(e, s, step, arena_print(e->memory, "gather_start + %d", step * s->choice.tile[2]));
}

/* One step's elements into the ring. */
static void put_step(emitter *e, const schedule *s, const sched_operand *o, int buffer)
{
    const sched_gather *g = &s->gather;
    const char *ring = arena_print(e->memory, "%s + stage * %" PRId64, o->ring.name, o->ring.stage_bytes);
    bool words = g->by_chunk || !g->along_k;
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int row = 0; row < %d; row%s) {", g->rows, words && !g->by_chunk ? " += 4" : "++");
    e->depth++;
    if (g->by_chunk) {
        put(e, "const int line = filler * %d + row * 4 + lane / 8, chunk = lane %% 8;", g->warp_lines);
    } else if (g->along_k) {
        put(e, "const int line = filler * %d + row, chunk = lane / 4;", g->warp_lines);
    } else {
        put(e, "const int line = row / %d * %d + lane, chunk = (filler * %d + row %% %d) / 4;", g->warp_lines, LINE_WORDS,
            g->warp_lines, g->warp_lines);
    }
    const char *to = arena_print(e->memory, "%s + line * %d + (chunk ^ line %% 8) * 16", ring, SCHED_LINE_BYTES);
    if (words) {
        const char *from = g->by_chunk ? arena_print(e->memory, "real_f32((int)raw[%d][row][i])", buffer)
                                       : arena_print(e->memory, "raw[%d][row + i]", buffer);
        put(e, "unsigned words[%d];", WORDS);
        put(e, "for (int i = 0; i < %d; i++) words[i] = (unsigned)bits_f32(tf32_f32(%s));", WORDS, from);
        put(e, "%s(%s, words);", need(e, "store_words4"), to);
    } else {
        put(e, "*(float *)(%s + lane %% 4 * 4) = tf32_f32(raw[%d][row]);", to, buffer);
    }
    e->depth--;
    put(e, "}");
}

void print_rounded(emitter *e, const schedule *s)
{
    const char *k = fill_start_of(e, s, s->gather.k_axis);
    for (int step = 0; step < STEPS; step++) {
        put(e, step ? "} else {" : "if (step %% 2 == 0) {");
        e->depth++;
        for (int i = 0; i < s->operand_count; i++)
            if (s->operands[i].gathered) put_step(e, s, &s->operands[i], step);
        put_ask(e, s, step, arena_print(e->memory, "%s + %d", k, STEPS * s->choice.tile[2]));
        e->depth--;
    }
    put(e, "}");
}
