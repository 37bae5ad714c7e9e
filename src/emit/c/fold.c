/*
 * Folds inside a pass. In: a fold's operand for 16 positions. Out: the statements that add it to accumulators (or,
 * where the loops do not end with the folded axes, to the result's buffer), and that finish the result.
 * SPDX-License-Identifier: MIT
 */
#include "emit/c/nest.h"

#include <string.h>

/* A fold whose result is kept in a buffer, because the loops do not end with the folded axes. */
bool is_fold_in_buffer(const sink *s)
{
    return s->kind == SINK_REDUCE && s->fold_axis == NO_AXIS;
}

/* Which loop axes are folded by this sink. */
static unsigned folded_loops(const emitter *e, const sink *s)
{
    tile_type type = tile_type_of(e->k, s->v);
    place own = place_own(&type);
    unsigned set = 0;
    for (int i = 0; i < type.rank; i++)
        if (s->op->attr.axis_set >> i & 1 && own.axis[i] != NO_AXIS) set |= 1u << own.axis[i];
    return set;
}

/* Of those around the loop of vectors the longest; NO_AXIS: too few turns for blocks, or no sum of floats. */
int block_axis(const emitter *e, const pass_nest *pass, const sink *s, int outer)
{
    if (outer || !is_fold_in_buffer(s) || s->op->attr.fold != FOLD_SUM || tile_type_of(e->k, s->v).elem != DT_F32)
        return NO_AXIS;
    unsigned folded = folded_loops(e, s);
    int longest = NO_AXIS;
    for (int axis = 0; axis < pass->loop_count - 1; axis++) {
        if (!(folded >> axis & 1)) continue;
        int64_t extent = pass->loops[axis];
        if (extent < 0) return axis;
        if (longest == NO_AXIS || extent > pass->loops[longest]) longest = axis;
    }
    return longest != NO_AXIS && pass->loops[longest] > SUM_CHAIN ? longest : NO_AXIS;
}

static const char *element_count(emitter *e, const tile_type *type)
{
    const char *count = "";
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i] != 1)
            count = arena_print(e->memory, "%s%s%s", count, *count ? " * " : "", extent_text(e, type->dims[i]));
    return *count ? count : "1";
}

void put_buffer_blocks(nest *n, const sink *s, int axis, const char *first, text *out)
{
    emitter *e = n->e;
    tile_type type = tile_type_of(e->k, s->result), from = tile_type_of(e->k, s->v);
    place own = place_own(&from);
    unsigned folded = folded_loops(e, s);
    int64_t inside = 1, period = SUM_CHAIN;
    for (int i = axis + 1; i < n->loops - 1; i++)
        if (folded >> i & 1 && n->pass->loops[i] > 0) inside = MINIMUM(inside * n->pass->loops[i], SUM_CHAIN);
    while (period > 1 && period * inside > SUM_CHAIN) period /= 2;
    const char *name = buffer_name(e, s->result), *count = element_count(e, &type), *offset = "";
    const char *turn = arena_print(e->memory, first == words_zero ? "i%d" : "(i%d - %s)", axis, first);
    text_print(out, "if (%s %% %ldL == %ldL) {\n", turn, (long)period, (long)period - 1);
    text_print(out, "    const int full = %s / %ldL %% %d == %d;\n", turn, (long)period, SUM_BLOCKS, SUM_BLOCKS - 1);
    text_print(out, "    float *const block = %s + %s, *const blocks = block + %s;\n", name, count, count);
    for (int i = 0; i < type.rank; i++) {
        if (type.dims[i] == 1) continue;
        int loop = own.axis[i];
        const char *letter = loop < axis ? "i" : "f", *extent = extent_text(e, type.dims[i]);
        if (loop > axis) text_print(out, "    for (long f%d = 0; f%d < %s; f%d++)\n", loop, loop, extent, loop);
        if (*offset) offset = arena_print(e->memory, "(%s) * %s + ", offset, extent);
        offset = arena_print(e->memory, "%s%s%d", offset, letter, loop);
    }
    text_print(out, "    {\n        const long at = %s;\n        block[at] += %s[at], %s[at] = 0;\n", offset, name,
               name);
    text_add(out, "        if (full) blocks[at] += block[at], block[at] = 0;\n    }\n}\n");
}

void put_buffer_sum(nest *n, const sink *s)
{
    tile_type type = tile_type_of(n->e->k, s->result);
    const char *name = buffer_name(n->e, s->result), *count = element_count(n->e, &type);
    put_at(n, n->outer, "for (long f = 0; f < %s; f++) %s[f] += %s[%s + f] + %s[2 * %s + f];", count, name, name, count,
           name, count);
}

accumulator declare_accumulator(nest *n, const sink *s, int count)
{
    emitter *e = n->e;
    accumulator a = {.sink = s,
                     .elem = tile_type_of(e->k, s->v).elem,
                     .name = fresh_name(e, s->kind == SINK_REDUCE ? s->result : 0)};
    if (s->kind == SINK_ASSERT) {
        put_at(n, n->outer, "int %s = 0;", a.name);
        return a;
    }
    const char *identity = number_text(e, a.elem, fold_identity(s->op->attr.fold, a.elem));
    if (is_position(s)) {
        a.position = fresh_name(e, 0);
        put_at(n, n->outer, "%s %s = %s;", scalar_c_type(a.elem), a.name, identity);
        put_at(n, n->outer, "long %s = -1;", a.position);
    } else {
        a.count = count;
        for (int i = 0; i < count; i++) {
            a.more[i] = i ? arena_print(e->memory, "%s_%d", a.name, i) : a.name;
            put_at(n, n->outer, "%s %s = %s;", vector_c_type(a.elem), a.more[i], splat(e, a.elem, identity));
        }
        int64_t extent = n->pass->loops[n->loops - 1];
        bool is_long = n->loops - n->outer > 1 || extent < 0 || extent > 16 * SUM_CHAIN;
        if (n->in_blocks && s->op->attr.fold == FOLD_SUM && dtype_is_float(a.elem) && a.elem != DT_F64 && is_long) {
            a.block = arena_print(e->memory, "%s_block", a.name);
            a.blocks = arena_print(e->memory, "%s_blocks", a.name);
            put_at(n, n->outer, "%s %s = %s, %s = %s;", vector_c_type(a.elem), a.block, splat(e, a.elem, identity),
                   a.blocks, splat(e, a.elem, identity));
        }
    }
    return a;
}

static void fold_position(nest *n, const accumulator *a, reg r)
{
    emitter *e = n->e;
    bool most = a->sink->op->attr.fold == FOLD_ARGMAX, real = dtype_is_float(a->elem);
    const char *words = as_vector(n, a->elem, r);
    dtype t = a->elem;
    if (t == DT_BOOL) {
        words = arena_print(e->memory, "%s & 1", words);
        t = DT_I32;
    }
    reg x = nest_define(n, 0, t, n->loops, words);
    const char *lanes = n->partial ? "lanes" : "16";
    put_at(n, n->loops, "if (%s < 0 || %s(~%s(%s, %s)))", a->position, need(e, "any_mask"),
           need(e, "%s_%sx16", most ? "le" : "ge", register_name(t)), x.words, splat(e, t, a->name));
    put_at(n, n->loops, "    for (long l = 0; l < %s; l++)", lanes);
    const char *unordered =
        real ? arena_print(e->memory, " || (%s[l] != %s[l] && %s == %s)", x.words, x.words, a->name, a->name) : "";
    put_at(n, n->loops, "        if (%s < 0 || %s[l] %s %s%s) %s = %s[l], %s = %s + l;", a->position, x.words,
           most ? ">" : "<", a->name, unordered, a->name, x.words, a->position, n->position);
}

void fold_in_loop(nest *n, const accumulator *a, reg r)
{
    emitter *e = n->e;
    const sink *s = a->sink;
    if (is_position(s)) {
        fold_position(n, a, r);
        return;
    }
    fold_kind fold = s->op->attr.fold;
    const char *x = as_vector(n, a->elem, r);
    if (n->partial) {
        const char *identity = splat(e, a->elem, number_text(e, a->elem, fold_identity(fold, a->elem)));
        x = arena_print(e->memory, "%s(%s(lanes), %s, %s)", need(e, "select_%sx16", register_name(a->elem)),
                        need(e, "first_mask"), x, identity);
    }
    put_at(n, n->loops, "%s = %s;", a->more[n->part], fold_step(e, fold, a->elem, a->more[n->part], x, true));
}

place place_of_result(const nest *n, const sink *s)
{
    tile_type type = tile_type_of(n->e->k, s->result);
    return place_own(&type);
}

void put_sum_blocks(nest *n, const accumulator *all, int count, const char *filled, text *out)
{
    emitter *e = n->e;
    bool any = false;
    for (int i = 0; i < count; i++) any |= all[i].block != NULL;
    if (!any) return;
    text_print(out, "if (%s >= %d) {\n    %s = 0;\n", filled, SUM_CHAIN, filled);
    for (int round = 0; round < 2; round++) { /* then, every SUM_BLOCKS of them, one level higher */
        if (round)
            text_print(out, "    if (++%s_blocks == %d) {\n        %s_blocks = 0;\n", filled, SUM_BLOCKS, filled);
        for (int i = 0; i < count; i++) {
            const accumulator *a = &all[i];
            if (!a->block) continue;
            const char *zero = splat(e, a->elem, number_text(e, a->elem, (number){0}));
            if (round) {
                text_print(out, "        %s = %s + %s, %s = %s;\n", a->blocks, a->blocks, a->block, a->block, zero);
                continue;
            }
            for (int half = a->count / 2; half > 0; half /= 2)
                for (int k = 0; k < half; k++)
                    text_print(out, "    %s = %s + %s, %s = %s;\n", a->more[k], a->more[k], a->more[k + half],
                               a->more[k + half], zero);
            text_print(out, "    %s = %s + %s, %s = %s;\n", a->block, a->block, a->name, a->name, zero);
        }
        if (round) text_add(out, "    }\n");
    }
    text_add(out, "}\n");
}

/* The result of a fold is a scalar at the level of the outer loops. */
void finish_fold(nest *n, const accumulator *a)
{
    emitter *e = n->e;
    const sink *s = a->sink;
    fold_kind fold = s->op->attr.fold;
    for (int half = a->count / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            put_at(n, n->outer, "%s = %s;", a->more[i],
                   fold_step(e, fold, a->elem, a->more[i], a->more[i + half], true));
    if (a->block) put_at(n, n->outer, "%s = %s + %s + %s;", a->name, a->name, a->block, a->blocks);
    const char *words = is_position(s) ? a->position : fold_lanes(e, fold, a->elem, a->name);
    if (!tile_type_of(e->k, s->result).rank) {
        put_at(n, n->outer, "%s = %s;", emit_name(e, s->result), words);
        return;
    }
    reg r = nest_define(n, s->result, tile_type_of(e->k, s->result).elem, n->outer, words);
    place at = place_of_result(n, s);
    nest_remember(n, s->result, at, r);
}

/* Stores a fold's result of the outer loops for other groups. */
void keep_fold(nest *n, const sink *s)
{
    if (!n->e->survey->force[s->result]) return;
    bool vector = n->vector;
    int loops = n->loops;
    place at = place_of_result(n, s);
    n->vector = false;
    n->loops = n->outer;
    reg r = nest_value(n, s->result, at);
    address_store(n, buffer_address(n, s->result, at), r, false);
    n->vector = vector;
    n->loops = loops;
}

/* Axes of the operand's place that remain in the result. */
void fold_into_buffer(nest *n, const sink *s, reg r)
{
    emitter *e = n->e;
    dtype t = tile_type_of(e->k, s->v).elem;
    tile_type type = tile_type_of(e->k, s->v), result = tile_type_of(e->k, s->result);
    place own = place_own(&type), at;
    for (int i = 0; i < MAX_RANK; i++) at.axis[i] = i < result.rank && result.dims[i] != 1 ? own.axis[i] : NO_AXIS;
    address a = buffer_address(n, s->result, at);
    fold_kind fold = s->op->attr.fold;
    if (a.stride) {
        reg old = address_load(n, s->result, a);
        address_store(n, a, (reg){fold_step(e, fold, t, old.words, as_vector(n, t, r), true), n->loops, false}, false);
        return;
    }
    const char *x = as_vector(n, t, r);
    if (n->partial)
        x = arena_print(e->memory, "%s(%s(lanes), %s, %s)", need(e, "select_%sx16", register_name(t)),
                        need(e, "first_mask"), x, splat(e, t, number_text(e, t, fold_identity(fold, t))));
    x = fold_lanes(e, fold, t, x);
    a.level = n->loops;
    n->vector = false;
    reg old = address_load(n, s->result, a);
    address_store(n, a, (reg){fold_step(e, fold, t, old.words, x, false), n->loops, false}, false);
    n->vector = true;
}

void put_fill(nest *n, const sink *s)
{
    emitter *e = n->e;
    tile_type type = tile_type_of(e->k, s->result);
    dtype t = tile_type_of(e->k, s->v).elem;
    const char *count = element_count(e, &type);
    if (e->survey->buffers[buffer_for(e->survey, s->result)].more) count = arena_print(e->memory, "3 * %s", count);
    const char *identity = number_text(e, t, fold_identity(s->op->attr.fold, t));
    if (dtype_is_narrow(t)) identity = arena_print(e->memory, "%s(%s)", need(e, "f32_to_%s", memory_name(t)), identity);
    put_at(n, 0, "for (long f = 0; f < %s; f++) %s[f] = %s;", count, buffer_name(e, s->result), identity);
}
