/*
 * Warps that take an operand of a product and round it to tf32, as CUDA C. In: nodes of a loop program and its schedule. Out: text.
 *
 * A stage of the ring is lines of 128 bytes, 32 elements, all of k: eight threads have a line. Where elements lie along rows or
 * columns a thread loads 4 of them at 4 k and stores 4 lines of 4 k. The elements of the next step are on their way while this one's
 * are stored; steps are counted through an outer loop, too (`take_outer`), so that nothing is waited for where it goes on.
 * Numbers of lines that elements are multiplied with are read as a turn of that loop begins: the first cache, of which the ring leaves
 * little, keeps none from one step to the next. What is turned is on its way to the L2 some steps before.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/fill.h"
#include "emit/cuda/loops_parts.h"

#include <inttypes.h>

enum {
    WORDS = 4 /* of 16 bytes */,
    STEP = 32,
    AHEAD = 4 /* steps that are on their way to the L2: 241 us for 265 without, 128 x 512 x 186624 on an H200 */
};

static bool is_turned(const sched_take *t)
{
    return !t->along_k;
}

/* Lines from one of a thread to its next; where it turns, from four to the next four. */
static int lines_apart(const schedule *s, const sched_take *t)
{
    return (is_turned(t) ? 16 : 4) * s->fill.warps;
}

/* The first row or column, and the first k, of a thread. */
static const char *own_place(const sched_take *t)
{
    return is_turned(t) ? "taker / 8 * 4" : "taker / 8";
}

static const char own_k[] = "taker % 8 * 4";

static const char *line_text(emitter *e, const schedule *s, const sched_take *t)
{
    return is_turned(t) ? arena_print(e->memory, "taker / 8 * 4 + i / 4 * %d + i %% 4", lines_apart(s, t))
                        : arena_print(e->memory, "taker / 8 + i * %d", lines_apart(s, t));
}

/* The loop around that of the steps; NULL: there is none. */
static const tile_op *outer_loop(const schedule *s)
{
    return s->walks[0].loop_count > 1 ? s->walks[0].loops[0] : NULL;
}

/* What a load begins with along an axis; *outer: where the outer loop is. */
static const char *start_of(emitter *e, const schedule *s, const tile_op *load, int wanted, bool *outer)
{
    const struct access *a = &load->attr.access;
    const tile_op *loop = outer_loop(s);
    int operand = a->first_index;
    for (int axis = 0; axis < wanted; axis++) operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    *outer = loop && load->operands[operand] == loop->regions[0]->args[0];
    return *outer ? "take_outer" : emit_name(e, load->operands[operand]);
}

static const char *plus(emitter *e, const char *place, const char *at, int array, int axis)
{
    return arena_print(e->memory, "%s + (long)(%s) * %s", place, at, stride_text(e, array, axis));
}

/* The array behind its last element. */
static const char *end_text(emitter *e, int array, int rank)
{
    const char *end = arena_print(e->memory, "%s_array + 1", e->k->params[array].name);
    for (int axis = 0; axis < rank; axis++)
        end = plus(e, end, arena_print(e->memory, "%s - 1", array_extent(e, array, axis)), array, axis);
    return end;
}

/* What the lines of a thread are multiplied with, as a turn of the outer loop begins: 0 for those outside. */
static void put_factors(emitter *e, const schedule *s, int side)
{
    const sched_take *t = &s->takes[side];
    const struct access *a = &t->factor->attr.access;
    const char *place = arena_print(e->memory, "%s_array", e->k->params[a->array].name), *left = NULL;
    e->array_used[a->array] = true;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        const char *start = emit_name(e, t->factor->operands[operand]);
        bool slice = a->kind[axis] == INDEX_SLICE;
        if (slice) left = arena_print(e->memory, "%s - %s", array_extent(e, a->array, axis), start);
        place = plus(e, place, slice ? arena_print(e->memory, "%s + line", start) : start, a->array, axis);
        operand += slice ? 2 : 1;
    }
    put(e, "if (step == 0) {");
    e->depth++;
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < %d; i++) {", t->vectors);
    e->depth++;
    put(e, "const int line = %s;", line_text(e, s, t));
    put(e, "take%d_factor[i] = line < %s ? *(%s) : 0;", side, left, place);
    e->depth--;
    put(e, "}");
    e->depth--;
    put(e, "}");
}

/* Asks for the next step of a side, if there is one. */
static void put_ask(emitter *e, const schedule *s, int side)
{
    const sched_take *t = &s->takes[side];
    const struct access *a = &t->load->attr.access;
    const char *stride = stride_text(e, a->array, t->k_axis), *whole = t->whole ? "true" : "false";
    const char *own = arena_print(e->memory, "take%d_left", side);
    const char *left = arena_print(e->memory, "take%d_all - take_k", side);
    if (is_turned(t))
        put(e, "%s<%d, %d, %s>(take%d_raw, take%d, %s, take_there ? %s : 0, %s, %s);", need(e, "take_ask_turned"),
            t->vectors, lines_apart(s, t), whole, side, side, stride, left, own,
            array_extent(e, a->array, t->tile_axis));
    else
        put(e, "%s<%d, %d, true, %s>(take%d_raw, take%d, %s, take_there ? %s : 0, %s, %s);", need(e, "take_ask"),
            t->vectors, lines_apart(s, t), whole, side, side, stride_text(e, a->array, t->tile_axis), own, left,
            array_extent(e, a->array, t->k_axis));
    if (is_turned(t))
        put(e, "if (taker < %d) %s(take%d + take%d_far, take%d_end);", s->choice.tile[side], need(e, "take_ahead"),
            side, side, side);
    put(e, "take%d += take%d_on;", side, side);
}

/* The step that is asked for next. */
static void put_place(emitter *e, const schedule *s)
{
    const tile_op *loop = outer_loop(s);
    put(e, "const bool take_there = take_outer < %s;", loop ? emit_name(e, loop->operands[1]) : "1");
    put(e, "const long take_k = (long)take_step * %d;", STEP);
}

static void put_next_place(emitter *e, const schedule *s)
{
    const tile_op *loop = outer_loop(s);
    put(e, "if (++take_step == take_steps) {");
    put(e, "    take_step = 0;");
    put(e, "    take_outer += %s;", loop ? emit_name(e, loop->operands[2]) : "1");
    for (int side = 0; side < 2 && loop; side++)
        if (s->takes[side].load) put(e, "    take%d += take%d_over;", side, side);
    put(e, "}");
}

static void put_side_begin(emitter *e, const schedule *s, int side)
{
    const tile_op *loop = outer_loop(s);
    const sched_take *t = &s->takes[side];
    const struct access *a = &t->load->attr.access;
    const char *place = arena_print(e->memory, "%s_array", e->k->params[a->array].name), *own = own_place(t);
    const char *over = "0", *stride = stride_text(e, a->array, t->k_axis);
    bool outer;
    e->array_used[a->array] = true;
    for (int axis = 0; axis < a->rank; axis++) {
        const char *start = start_of(e, s, t->load, axis, &outer);
        if (axis == t->k_axis) start = arena_print(e->memory, "take_start + %s", own_k);
        if (axis == t->tile_axis) start = arena_print(e->memory, "%s + %s", start, own);
        if (outer) over = plus(e, over, emit_name(e, loop->operands[2]), a->array, axis);
        place = plus(e, place, start, a->array, axis);
    }
    put(e, "const float *take%d = %s;", side, place);
    put(e, "const long take%d_on = %s * %d;", side, stride, STEP);
    if (loop) put(e, "const long take%d_over = %s - take_steps * take%d_on;", side, over, side);
    put(e, "const long take%d_all = %s - take_start - %s;", side, array_extent(e, a->array, t->k_axis), own_k);
    put(e, "const long take%d_left = %s - %s - %s;", side, array_extent(e, a->array, t->tile_axis),
        start_of(e, s, t->load, t->tile_axis, &outer), own);
    put(e, "unsigned take%d_raw[%d][%d];", side, t->vectors, WORDS);
    if (t->factor) put(e, "float take%d_factor[%d];", side, t->vectors);
    if (!is_turned(t)) return;
    int lines = s->choice.tile[side] / STEP; /* a thread for each of the 128 bytes of a step */
    put(e, "const float *const take%d_end = %s;", side, end_text(e, a->array, a->rank));
    put(e, "const long take%d_far = (%d + taker / %d - %s) * %s + taker %% %d * %d - %s;", side, AHEAD * STEP, lines,
        own_k, stride, lines, STEP, own);
}

void print_rounded_take_begin(emitter *e, const schedule *s, const loop_node *n)
{
    const tile_op *loop = outer_loop(s);
    const char *from = emit_name(e, n->op->operands[0]), *limit = emit_name(e, n->op->operands[1]);
    put(e, "const int taker = filler * 32 + lane;");
    put(e, "const long take_start = %s < %s ? %s : %d;", from, limit, from, NOWHERE);
    put(e, "const int take_steps = %s;", steps_text(e, n));
    put(e, "long take_outer = %s;", loop ? emit_name(e, loop->operands[0]) : "0");
    put(e, "int take_step = 0;");
    for (int side = 0; side < 2; side++)
        if (s->takes[side].load) put_side_begin(e, s, side);
    put(e, "{");
    e->depth++;
    put_place(e, s);
    for (int side = 0; side < 2; side++)
        if (s->takes[side].load) put_ask(e, s, side);
    put_next_place(e, s);
    e->depth--;
    put(e, "}");
}

/* The elements of a step of a side into its ring. */
static void put_step(emitter *e, const schedule *s, int side)
{
    const sched_take *t = &s->takes[side];
    const char *from = is_turned(t) ? "i / 4 * 4 + w][i % 4" : "i][w";
    bool outer;
    if (t->factor) { /* beyond the end of k zeros, whatever they are multiplied with */
        put(e, "const int take%d_k = (int)(%s - %s) - %s;", side,
            array_extent(e, t->load->attr.access.array, t->k_axis), start_of(e, s, t->load, t->k_axis, &outer), own_k);
        put_factors(e, s, side);
    }
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < %d; i++) {", t->vectors);
    e->depth++;
    put(e, "const int line = %s;", line_text(e, s, t));
    put(e, "unsigned words[%d];", WORDS);
    put(e, "for (int w = 0; w < %d; w++)", WORDS);
    const char *raw = arena_print(e->memory, "real_f32((int)take%d_raw[%s])", side, from);
    if (t->factor) raw = arena_print(e->memory, "w < take%d_k ? %s * take%d_factor[i] : 0", side, raw, side);
    put(e, "    words[w] = (unsigned)bits_f32(%s(%s));", need(e, "tf32_f32"), raw);
    for (int n = 0; n < s->operand_count; n++)
        if (s->operands[n].taken && s->operands[n].side == side)
            put(e, "%s(%s + stage * %" PRId64 " + line * %d + (taker %% 8 ^ line %% 8) * 16, words);",
                need(e, "store_words4"), s->operands[n].ring.name, s->operands[n].ring.stage_bytes, SCHED_LINE_BYTES);
    e->depth--;
    put(e, "}");
}

void print_rounded_take(emitter *e, const schedule *s)
{
    put_place(e, s);
    for (int side = 0; side < 2; side++) {
        if (!s->takes[side].load) continue;
        put_step(e, s, side);
        put_ask(e, s, side);
    }
    put_next_place(e, s);
}
