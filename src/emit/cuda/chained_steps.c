/*
 * The loop of the recipe `chained`. In: its schedule. Out: text of the multiplying groups between their scalars and
 * their results.
 *
 * With folds (a softmax): the next step's scores are asked for together with this step's sum, and the arithmetic runs
 * under the latter. Without: functions of the first product of scores run under the second one, the rest under the early
 * sums, and the late sums under the next step's scores.
 * Work of the matrix units ends in the order in which it was asked for: a wait counts what may still run.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/chained_parts.h"

#include <inttypes.h>

enum { LINE = CHAINED_LINE };

static int line_units(int lines) /* of descriptors, 16 bytes */
{
    return lines * LINE / 16;
}

static int stage_units(const chained *c, int operand)
{
    return line_units(c->columns * chained_boxes(c->operands[operand].depth));
}

/* scores = fixed rows times the moving rows of a stage. */
static void print_scores(chained_printer *p, int number, const char *stage)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const chained_product *m = &c->products[number];
    put(e, "matrix_fence();");
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < %d; i++)", c->operands[m->fixed].depth / 16);
    put(e, "    %s(%s, matrix_at(fixed%d_place, i / 4 * %d + i %% 4 * 2),",
        need(e, "wgmma_%s_n%d", dtypes[c->elem].text, c->columns), number ? "more" : "scores", m->fixed,
        line_units(c->rows));
    put(e, "        matrix_at(lines%d_place, %s * %d + i / 4 * %d + i %% 4 * 2), i);", m->moving, stage,
        stage_units(c, m->moving), line_units(c->columns));
    put(e, "matrix_commit();");
}

/* sums += weights times the moving rows of a stage. */
static void print_sum(chained_printer *p, int number, const char *stage)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const chained_sum *s = &c->sums[number];
    put(e, "matrix_fence();");
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < %d; i++)", c->columns / 16);
    put(e, "    %s<1>(sums%d, weights%d[i * 4], weights%d[i * 4 + 1], weights%d[i * 4 + 2], weights%d[i * 4 + 3],",
        need(e, "wgmma_%s_n%d_ra", dtypes[c->elem].text, s->width), number, number, number, number, number);
    put(e, "        matrix_at(turned%d_place, %s * %d + i * 128), i ? 1 : add);", s->moving, stage,
        stage_units(c, s->moving));
    put(e, "matrix_commit();");
}

/* ---- with folds ---- */

static void print_release(const chained_printer *p, const char *which)
{
    emitter *e = p->e;
    int operand = which[0] == 'k' ? p->c->products[0].moving : p->c->sums[0].moving;
    put(e, "if (threadIdx.x %% 128 == 0) phase_arrive(empty%d + %s_stage);", operand, which);
    put(e, "if (++%s_stage == %d) %s_stage = 0, %s_parity ^= 1;", which, p->c->stages, which, which);
}

static void print_pack(chained_printer *p)
{
    emitter *e = p->e;
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < %d; i++) weights0[i] = %s(scores[2 * i], scores[2 * i + 1]);", p->c->columns / 4,
        chained_pack_name(e, p->c->elem));
}

/* The wait for what the next step begins with stands before that for this step's product: the assembler moves a wait for
 * products up to the last branch before it. Where registers are few it lets exponentials sink over that branch, too, unless the
 * phase's address is computed from their sum, of which `none` leaves nothing. */
static void print_ahead(chained_printer *p)
{
    const chained *c = p->c;
    const char *after = "";
    if (c->lane_sum && c->sums[0].width > 64) {
        const char *sum = emit_name(p->e, c->loop->regions[0]->args[1 + c->lane_carried]);
        after = arena_print(p->e->memory, " + (%s(%s[0] + %s[1]) & none)", need(p->e, "bits_f32"), sum, sum);
    }
    put(p->e, "if (%s + %d < %s) phase_wait(full%d + keys_stage%s, keys_parity);",
        emit_name(p->e, p->c->loop->regions[0]->args[0]), p->c->columns, p->end, p->c->products[0].moving, after);
}

static void print_values(chained_printer *p)
{
    put(p->e, "phase_wait(full%d + values_stage, values_parity);", p->c->sums[0].moving);
    print_sum(p, 0, "values_stage");
}

static void print_step(chained_printer *p, bool masked, const char *more)
{
    emitter *e = p->e;
    const chained *c = p->c;
    p->masked = masked;
    text_add(e->out, "#pragma unroll 1\n");
    put(e, "for (; at < %s%s; at += %d) {", p->end, more, c->columns);
    e->depth++;
    put(e, "const long %s = at;", emit_name(e, c->loop->regions[0]->args[0]));
    print_scores(p, 0, "keys_stage");
    print_values(p);
    put(e, "add = 1;");
    put(e, "matrix_wait<1>();");
    put(e, "matrix_keep(scores);");
    print_release(p, "keys");
    chained_print_softmax(p);
    print_ahead(p);
    put(e, "matrix_wait<0>();");
    put(e, "matrix_keep(sums0);");
    print_release(p, "values");
    print_pack(p);
    if (c->sums[0].scale) {
        const char *scale = emit_name(e, c->sums[0].scale);
        put(e, "if (__any_sync(~0u, %s[0] != 1 || %s[1] != 1))", scale, scale);
        text_add(e->out, "#pragma unroll\n");
        put(e, "    for (int x = 0; x < %d; x++) sums0[x] *= %s[x / 2 %% 2];", c->sums[0].width / 2, scale);
    }
    e->depth--;
    put(e, "}");
}

/* Where steps begin and end that no mask touches, for the rows of this group. */
static void print_whole(chained_printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    put(e, "long whole = %s;", emit_name(e, c->loop->operands[1]));
    put(e, "long whole_from = %s;", emit_name(e, c->loop->operands[0]));
    for (int i = 0; i < c->condition_count; i++) {
        const chained_condition *q = &c->conditions[i];
        bool below = q->limit || q->compare == OP_LT || q->compare == OP_LE;
        int64_t more = q->more + (q->compare == OP_LE || q->compare == OP_GT) + (below ? 0 : 63);
        const char *end = q->limit
                              ? emit_name(e, q->limit)
                              : arena_print(e->memory, "%s + group * 64 + (%" PRId64 ")", emit_name(e, q->fixed), more);
        if (below)
            put(e, "whole = %s < whole ? %s : whole;", end, end);
        else
            put(e, "whole_from = %s > whole_from ? %s : whole_from;", end, end);
    }
}

static bool has_lower(const chained *c)
{
    for (int i = 0; i < c->condition_count; i++)
        if (!c->conditions[i].limit && c->conditions[i].compare != OP_LT && c->conditions[i].compare != OP_LE)
            return true;
    return false;
}

/* Where the steps of this group's rows end: behind its last row's mask, or at once where it has no row. */
static void print_end(chained_printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    p->end = emit_name(e, c->loop->operands[1]);
    for (int i = 0; i < c->condition_count && c->groups > 1; i++) {
        const chained_condition *q = &c->conditions[i];
        if (q->limit || (q->compare != OP_LT && q->compare != OP_LE)) continue;
        if (!chained_adds_nothing(c, i, e->memory)) continue;
        const char *last = arena_print(e->memory, "%s + group * 64 + (%" PRId64 ")", emit_name(e, q->fixed),
                                       q->more + (q->compare == OP_LE) + 63);
        const char *before = p->end;
        p->end = arena_print(e->memory, "end%d", i);
        p->early = true;
        put(e, "const long %s = %s < %s ? %s : %s;", p->end, last, before, last, before);
    }
    if (!c->fixed_limit || c->groups == 1) return;
    const char *before = p->end;
    p->end = "end_there";
    p->early = true;
    put(e, "const long end_there = %s + group * 64 < %s ? %s : 0;", emit_name(e, c->fixed_start),
        emit_name(e, c->fixed_limit), before);
}

/* Stages of steps that other groups take. */
static void print_rest(chained_printer *p)
{
    emitter *e = p->e;
    if (!p->early) return;
    text_add(e->out, "#pragma unroll 1\n");
    put(e, "for (; at < %s; at += %d) {", emit_name(e, p->c->loop->operands[1]), p->c->columns);
    e->depth++;
    print_release(p, "values");
    put(e, "phase_wait(full%d + keys_stage, keys_parity);", p->c->products[0].moving);
    print_release(p, "keys");
    put(e, "phase_wait(full%d + values_stage, values_parity);", p->c->sums[0].moving);
    e->depth--;
    put(e, "}");
}

static void print_softmax_steps(chained_printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const char *first = emit_name(e, c->loop->operands[0]);
    put(e, "int keys_stage = 0, keys_parity = 0, values_stage = 0, values_parity = 0, add = 0;");
    if (c->lane_sum && c->sums[0].width > 64) put(e, "const int none = (int)gridDim.z - 1; /* 0 */");
    print_whole(p);
    print_end(p);
    put(e, "{ /* the first step has no product to hide behind */");
    e->depth++;
    put(e, "const long %s = %s;", emit_name(e, c->loop->regions[0]->args[0]), first);
    put(e, "phase_wait(full%d + keys_stage, keys_parity);", c->products[0].moving);
    print_scores(p, 0, "keys_stage");
    put(e, "matrix_wait<0>();");
    put(e, "matrix_keep(scores);");
    print_release(p, "keys");
    p->masked = true;
    chained_print_softmax(p);
    print_ahead(p);
    print_pack(p);
    e->depth--;
    put(e, "}");
    put(e, "long at = %s + %d;", first, c->columns);
    if (has_lower(c))
        print_step(p, true, " && at < whole_from");
    else
        put(e, "(void)whole_from;");
    print_step(p, false, arena_print(e->memory, " && at + %d <= whole", c->columns));
    print_step(p, true, "");
    print_values(p);
    put(e, "matrix_wait<0>();");
    put(e, "matrix_keep(sums0);");
    print_rest(p);
}

/* ---- without folds ---- */

static void print_weights(chained_printer *p, bool late)
{
    emitter *e = p->e;
    p->masked = true;
    if (p->c->condition_count) {
        put(e, "if (masked) {");
        e->depth++;
    }
    chained_print_weights(p, late);
    if (!p->c->condition_count) return;
    e->depth--;
    put(e, "} else {");
    e->depth++;
    p->masked = false;
    chained_print_weights(p, late);
    e->depth--;
    put(e, "}");
}

/* The sums of this kind, each a group of work of its own; how many. */
static int print_sums(chained_printer *p, bool late)
{
    int count = 0;
    for (int i = 0; i < p->c->sum_count; i++) {
        if (p->c->sums[i].late != late) continue;
        print_sum(p, i, "stage");
        count++;
    }
    return count;
}

static void print_free(chained_printer *p, const char *stage)
{
    emitter *e = p->e;
    for (int i = 0; i < p->c->operand_count; i++)
        if (p->c->operands[i].moves) put(e, "    phase_arrive(empty%d + %s);", i, stage);
}

static void print_plain_steps(chained_printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const char *first = emit_name(e, c->loop->operands[0]), *limit = emit_name(e, c->loop->operands[1]);
    put(e, "int stage = 0, parity = 0, add = 0%s;", c->drained ? "" : ", before = 0");
    if (c->condition_count) print_whole(p);
    text_add(e->out, "#pragma unroll 1\n");
    put(e, "for (long at = %s; at < %s; at += %d) {", first, limit, c->columns);
    e->depth++;
    put(e, "const long %s = at;", emit_name(e, c->loop->regions[0]->args[0]));
    if (c->condition_count) put(e, "const bool masked = at < whole_from || at + %d > whole;", c->columns);
    if (c->vector_count)
        put(e, "const float *const vectors = vectors_room + stage * %d;", c->vector_count * c->columns);
    bool waited[CHAINED_MOST_OPERANDS] = {0};
    for (int i = 0; i < c->product_count; i++) {
        int moving = c->products[i].moving;
        if (!waited[moving]) put(e, "phase_wait(full%d + stage, parity);", moving);
        waited[moving] = true;
        print_scores(p, i, "stage");
    }
    put(e, "matrix_wait<%d>();", c->product_count - 1);
    put(e, "matrix_keep(scores);");
    if (!c->drained) {
        put(e, "if (add && threadIdx.x %% 128 == 0) { /* the sums of the step before are done */");
        print_free(p, "before");
        put(e, "}");
    }
    print_weights(p, false);
    for (int i = 0; i < c->sum_count; i++) {
        if (!waited[c->sums[i].moving]) put(e, "phase_wait(full%d + stage, parity);", c->sums[i].moving);
        waited[c->sums[i].moving] = true;
    }
    int early = print_sums(p, false);
    if (c->product_count > 1) {
        put(e, "matrix_wait<%d>();", early);
        put(e, "matrix_keep(more);");
        print_weights(p, true);
        (void)print_sums(p, true);
    }
    if (c->drained) {
        put(e, "matrix_wait<0>();");
        put(e, "if (threadIdx.x %% 128 == 0) {");
        print_free(p, "stage");
        put(e, "}");
        put(e, "add = 1;");
    } else {
        put(e, "before = stage, add = 1;");
    }
    put(e, "if (++stage == %d) stage = 0, parity ^= 1;", c->stages);
    e->depth--;
    put(e, "}");
    put(e, "matrix_wait<0>();");
    for (int i = 0; i < c->sum_count; i++) put(e, "matrix_keep(sums%d);", i);
}

void chained_print_loop(chained_printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const tile_block *body = c->loop->regions[0];
    const char *first = emit_name(e, c->loop->operands[0]), *limit = emit_name(e, c->loop->operands[1]);
    for (int i = 0; i < c->loop->result_count; i++) {
        bool sum = false;
        for (int s = 0; s < c->sum_count; s++) sum |= c->sums[s].carried == i;
        if (sum) continue;
        const char *name = emit_name(e, body->args[1 + i]);
        chained_begin_pass(p);
        put(e, "float %s[2];", name);
        put(e, "for (int h = 0; h < 2; h++) %s[h] = %s;", name, chained_element(p, c->loop->operands[3 + i]));
        p->rows[body->args[1 + i]] = true;
    }
    for (int i = 0; i < c->sum_count; i++) put(e, "float sums%d[%d];", i, c->sums[i].width / 2);
    put(e, "if (%s < %s) {", first, limit);
    e->depth++;
    put(e, "float scores[%d];", c->columns / 2);
    if (c->product_count > 1) put(e, "float more[%d];", c->columns / 2);
    for (int i = 0; i < c->sum_count; i++) put(e, "unsigned weights%d[%d];", i, c->columns / 4);
    if (c->folds)
        print_softmax_steps(p);
    else
        print_plain_steps(p);
    e->depth--;
    put(e, "} else {");
    for (int i = 0; i < c->sum_count; i++)
        put(e, "    for (int x = 0; x < %d; x++) sums%d[x] = 0;", c->sums[i].width / 2, i);
    put(e, "}");
}
