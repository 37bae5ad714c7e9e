/*
 * Steps of chained products as CUDA C: loops, copies, waits, products, and the results behind them. One function a node.
 *
 * With folds the rings of what scores (`keys`) and of what is summed up (`values`) go on apart; without, all rings have one
 * stage.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/chained_parts.h"

#include <inttypes.h>

enum { LINE = CHAINED_LINE, LANES = 32 };

static int line_units(int lines) /* of descriptors, 16 bytes */
{
    return lines * LINE / 16;
}

int chained_operand_bytes(const chained *c, int operand)
{
    const chained_operand *o = &c->operands[operand];
    return (o->moves ? c->columns : c->rows) * chained_boxes(o->depth) * LINE;
}

static int stage_units(const chained *c, int operand)
{
    return line_units(c->columns * chained_boxes(c->operands[operand].depth));
}

/* Before `stage` and `parity` of an operand's ring. */
static const char *cursor(const chained_printer *p, int operand)
{
    if (!p->multiplies || !p->c->folds) return "";
    return operand == p->c->products[0].moving ? "keys_" : "values_";
}

/* ---- copies ---- */

static const char *index_name(chained_printer *p, const tile_op *op, int axis)
{
    const struct access *a = &op->attr.access;
    int operand = a->first_index;
    for (int k = 0; k < axis; k++) operand += a->kind[k] == INDEX_SLICE ? 2 : 1;
    return emit_name(p->e, op->operands[operand]);
}

/* Coordinates of box `box` of rows, innermost first. */
static const char *box_place(chained_printer *p, const tile_op *op, const char *added, int box)
{
    emitter *e = p->e;
    int rank = op->attr.access.rank;
    const char *words = arena_print(e->memory, "%d, (int)(%s%s)", box * 64, index_name(p, op, rank - 2), added);
    for (int axis = rank - 3; axis >= 0; axis--)
        words = arena_print(e->memory, "%s, (int)%s", words, index_name(p, op, axis));
    return words;
}

/* The rows of an operand into its room, or a stage of its ring. */
void chained_print_bulk_in(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    int box = n->number[0], i = n->number[1];
    bool moves = p->c->operands[i].moves;
    const char *room = moves ? arena_print(e->memory, "ring%d_room + stage * %d", i, chained_operand_bytes(p->c, i))
                             : arena_print(e->memory, "fixed%d_room", i);
    put(e, "%s(%s + %d, &call.maps[%d], %s, %s);", need(e, "bulk_in_%dd", n->op->attr.access.rank), room,
        box * (moves ? p->c->columns : p->c->rows) * LINE, i,
        moves ? arena_print(e->memory, "full%d + stage", i) : "fixed_full", box_place(p, n->op, "", box));
}

/* Numbers of a step's rows: asked for before the stage is free, written to it by the lanes. */
void chained_print_vectors(chained_printer *p, bool ask)
{
    emitter *e = p->e;
    const chained *c = p->c;
    for (int i = 0; i < c->vector_count; i++) {
        const tile_op *op = c->vectors[i];
        for (int part = 0; part < (c->columns + LANES - 1) / LANES && ask; part++) {
            const char *test = "", *row = arena_print(e->memory, "lane + %d", part * LANES);
            const char *pointer = chained_row_pointer(p, op, row, &test);
            put(e, "const float next%d_%d = %s ? %s(%s) : 0;", i, part, *test ? test : "true",
                need(e, "read_%s", memory_name(e->k->params[op->attr.access.array].elem)), pointer);
        }
        for (int part = 0; part < (c->columns + LANES - 1) / LANES && !ask; part++) {
            bool half = (part + 1) * LANES > c->columns;
            put(e, "%svectors_room[stage * %d + %d + lane] = next%d_%d;", half ? "if (lane < 16) " : "",
                c->vector_count * c->columns, i * c->columns + part * LANES, i, part);
        }
    }
}

/* ---- products ---- */

/* A fixed operand to registers, as the left operand of products: 16 of its elements are four registers. */
void chained_print_held(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const chained *c = p->c;
    int depth = c->operands[n->number[1]].depth;
    need(e, "load_matrices");
    put(e, "unsigned held[%d];", depth / 4);
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < %d; i++)", depth / 16);
    put(e, "    load_matrices(fixed%d_room + i / 4 * %d + (warp_row + lane %% 16) * %d +", n->number[1], c->rows * LINE,
        LINE);
    put(e, "            (((i %% 4 * 2 + lane / 16) ^ lane %% 8) << 4),");
    put(e, "        held[i * 4], held[i * 4 + 1], held[i * 4 + 2], held[i * 4 + 3]);");
}

/* scores = fixed rows times the moving rows of a stage. */
static void print_scores(chained_printer *p, int number)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const chained_product *m = &c->products[number];
    put(e, "for (int i = 0; i < %d; i++)", c->operands[m->fixed].depth / 16);
    if (c->held)
        put(e, "    %s<0>(scores, held[i * 4], held[i * 4 + 1], held[i * 4 + 2], held[i * 4 + 3],",
            need(e, "wgmma_%s_n%d_ra", dtypes[c->elem].text, c->columns));
    else
        put(e, "    %s(%s, matrix_at(fixed%d_place, i / 4 * %d + i %% 4 * 2),",
            need(e, "wgmma_%s_n%d", dtypes[c->elem].text, c->columns), number ? "more" : "scores", m->fixed,
            line_units(c->rows));
    put(e, "        matrix_at(lines%d_place, %sstage * %d + i / 4 * %d + i %% 4 * 2), i);", m->moving,
        cursor(p, m->moving), stage_units(c, m->moving), line_units(c->columns));
}

/* sums += weights times the moving rows of a stage. */
static void print_sum(chained_printer *p, int number)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const chained_sum *s = &c->sums[number];
    put(e, "for (int i = 0; i < %d; i++)", c->columns / 16);
    put(e, "    %s<1>(sums%d, weights%d[i * 4], weights%d[i * 4 + 1], weights%d[i * 4 + 2], weights%d[i * 4 + 3],",
        need(e, "wgmma_%s_n%d_ra", dtypes[c->elem].text, s->width), number, number, number, number, number);
    put(e, "        matrix_at(turned%d_place, %sstage * %d + i * 128), i ? 1 : add);", s->moving, cursor(p, s->moving),
        stage_units(c, s->moving));
}

void chained_print_matrix(chained_printer *p, const loop_node *n)
{
    put(p->e, "matrix_fence();");
    text_add(p->e->out, "#pragma unroll\n");
    if (n->number[0] == LOOPS_SUM)
        print_sum(p, n->number[1]);
    else
        print_scores(p, n->number[1]);
    put(p->e, "matrix_commit();");
}

void chained_print_matrix_wait(chained_printer *p, const loop_node *n)
{
    put(p->e, "matrix_wait<%d>();", n->number[0]);
    if (n->number[1] == LOOPS_SCORES) put(p->e, "matrix_keep(scores);");
    if (n->number[1] == LOOPS_MORE) put(p->e, "matrix_keep(more);");
    for (int i = 0; i < p->c->sum_count && n->number[1] == LOOPS_SUMS; i++) put(p->e, "matrix_keep(sums%d);", i);
}

/* ---- rings ---- */

void chained_print_wait(chained_printer *p, const loop_node *n)
{
    const char *of = cursor(p, n->number[1]);
    if (n->number[1] == LOOPS_FIXED)
        put(p->e, "phase_wait(fixed_full, 0);");
    else
        put(p->e, "phase_wait(%s%d + %sstage, %sparity);", n->number[0] ? "empty" : "full", n->number[1], of, of);
}

/* The wait for what the next step begins with stands before that for this step's product: the assembler moves a wait for
 * products up to the last branch before it. Where registers are few it lets exponentials sink over that branch, too, unless the
 * phase's address is computed from their sum, of which `none` leaves nothing. The first step has no product that runs, and an
 * address that differs from thread to thread there would make stages differ in all steps that follow, for all the assembler
 * knows, so that each product would fetch its descriptors out of vector registers. */
void chained_print_wait_ahead(chained_printer *p, const loop_node *n)
{
    const chained *c = p->c;
    const char *after = "";
    if (n->number[0]) {
        const char *sum = emit_name(p->e, n->op->regions[0]->args[1 + c->lane_carried]);
        after = arena_print(p->e->memory, " + (%s(%s[0] + %s[1]) & none)", need(p->e, "bits_f32"), sum, sum);
    }
    put(p->e, "if (%s + %d < %s) phase_wait(full%d + keys_stage%s, keys_parity);",
        emit_name(p->e, n->op->regions[0]->args[0]), c->columns, p->end, n->number[1], after);
}

void chained_print_release(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    bool before = n->number[0] == LOOPS_BEFORE;
    if (n->number[1] != LOOPS_FIXED) {
        put(e, "if (threadIdx.x %% 128 == 0) phase_arrive(empty%d + %sstage);", n->number[1], cursor(p, n->number[1]));
        return;
    }
    if (before)
        put(e, "if (add && threadIdx.x %% 128 == 0) { /* the sums of the step before are done */");
    else
        put(e, "if (threadIdx.x %% 128 == 0) {");
    for (int i = 0; i < p->c->operand_count; i++)
        if (p->c->operands[i].moves) put(e, "    phase_arrive(empty%d + %s);", i, before ? "before" : "stage");
    put(e, "}");
}

void chained_print_ring_begin(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const chained *c = p->c;
    if (!p->multiplies) {
        put(e, "int stage = 0, parity = %d;", n->number[0]);
    } else if (!c->folds) {
        put(e, "int stage = 0, parity = 0, add = 0%s;", c->drained ? "" : ", before = 0");
    } else {
        put(e, "int keys_stage = 0, keys_parity = 0, values_stage = 0, values_parity = 0, add = 0;");
        if (c->lane_sum) put(e, "const int none = (int)gridDim.z - 1; /* 0 */");
    }
}

void chained_print_ring_next(chained_printer *p, const loop_node *n)
{
    const char *of = cursor(p, n->number[1]);
    put(p->e, "if (++%sstage == %d) %sstage = 0, %sparity ^= 1;", of, n->number[0], of, of);
}

/* ---- steps ---- */

/* Where steps begin and end that no mask touches, for the rows of this group. */
void chained_print_range(chained_printer *p)
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

void chained_print_range_end(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const char *before = p->end;
    if (n->number[0] == LOOPS_FIXED) {
        p->end = "end_there";
        put(e, "const long end_there = %s + group * 64 < %s ? %s : 0;", emit_name(e, c->fixed_start),
            emit_name(e, c->fixed_limit), before);
        return;
    }
    const chained_condition *q = &c->conditions[n->number[0]];
    const char *last = arena_print(e->memory, "%s + group * 64 + (%" PRId64 ")", emit_name(e, q->fixed),
                                   q->more + (q->compare == OP_LE) + 63);
    p->end = arena_print(e->memory, "end%d", n->number[0]);
    put(e, "const long %s = %s < %s ? %s : %s;", p->end, last, before, last, before);
}

static void print_first_step(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const char *first = emit_name(e, n->op->operands[0]);
    put(e, "{ /* the first step has no product to hide behind */");
    e->depth++;
    put(e, "const long %s = %s;", emit_name(e, n->op->regions[0]->args[0]), first);
    bool asks = false;
    for (const loop_node *inner = n->body; inner; inner = inner->next) asks |= inner->code == LOOP_IF;
    if (asks) put(e, "const bool masked = %s < whole_from || %s + %d > whole;", first, first, n->number[0]);
    chained_print_nodes(p, n->body);
    e->depth--;
    put(e, "}");
    put(e, "long at = %s + %d;", first, n->number[0]);
    if (!asks) put(e, "(void)whole_from;");
}

void chained_print_steps(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const tile_block *body = n->op->regions[0];
    const char *at = emit_name(e, body->args[0]), *first = emit_name(e, n->op->operands[0]);
    const char *limit = emit_name(e, n->op->operands[1]);
    int which = n->number[1], step = n->number[0];
    for (int i = 0; i + 1 < body->op_count; i++)
        if (body->ops[i]->result_count && !chained_is_product(c, body->ops[i]))
            p->rows[body->ops[i]->results[0]] = false;
    if (which == LOOPS_FIRST_STEP) {
        print_first_step(p, n);
        return;
    }
    if (p->multiplies) text_add(e->out, "#pragma unroll 1\n");
    if (!p->multiplies)
        put(e, "for (long %s = %s; %s < %s; %s += %d) {", at, first, at, limit, at, step);
    else if (which == LOOPS_ALL_STEPS)
        put(e, "for (long at = %s; at < %s; at += %d) {", first, limit, step);
    else
        put(e, "for (; at < %s%s; at += %d) {", which == LOOPS_OTHERS_STEPS ? limit : p->end,
            which == LOOPS_LOWER_STEPS   ? " && at < whole_from"
            : which == LOOPS_WHOLE_STEPS ? arena_print(e->memory, " && at + %d <= whole", step)
                                         : "",
            step);
    e->depth++;
    if (p->multiplies && which != LOOPS_OTHERS_STEPS) put(e, "const long %s = at;", at);
    if (p->multiplies && which == LOOPS_ALL_STEPS && c->condition_count)
        put(e, "const bool masked = at < whole_from || at + %d > whole;", step);
    if (p->multiplies && which == LOOPS_ALL_STEPS && c->vector_count)
        put(e, "const float *const vectors = vectors_room + stage * %d;", c->vector_count * c->columns);
    chained_print_nodes(p, n->body);
    e->depth--;
    put(e, "}");
}

/* ---- results ---- */

void chained_print_row_store(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const char *test = "lane % 4 == 0", *pointer = chained_row_pointer(p, n->op, "row + h * 8", &test);
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int h = 0; h < 2; h++)");
    put(e, "    if (%s) %s(%s, %s);", test,
        need(e, "write_%s", memory_name(e->k->params[n->op->attr.access.array].elem)), pointer,
        chained_element(p, n->operand));
}

/* A sum into the room of a fixed operand, each warp for itself. */
void chained_print_out(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const chained *c = p->c;
    int number = n->number[0], width = c->sums[number].width;
    const char *pack = chained_pack_name(e, c->elem);
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int x = 0; x < %d; x++) {", width / 2);
    e->depth++;
    put(e, "const int h = x / 2 %% 2;");
    put(e, "(void)h;");
    chained_print_nodes(p, n->body);
    put(e, "sums%d[x] = %s;", number, chained_element(p, n->operand));
    e->depth--;
    put(e, "}");
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < %d; i += 2) {", width / 8);
    need(e, "store_matrices");
    put(e, "    const float *d = sums%d + i * 4;", number);
    put(e, "    store_matrices(fixed%d_room + i / 8 * %d + (warp_row + lane %% 16) * %d +", n->number[1],
        c->rows * LINE, LINE);
    put(e, "            (((i %% 8 + lane / 16) ^ lane %% 8) << 4),");
    put(e, "        %s(d[0], d[1]), %s(d[2], d[3]), %s(d[4], d[5]), %s(d[6], d[7]));", pack, pack, pack, pack);
    put(e, "}");
}

void chained_print_out_send(chained_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const chained *c = p->c;
    int number = n->number[0], operand = n->number[1];
    need(e, "bulk_groups");
    put(e, "fence_async();");
    put(e, "__syncwarp();");
    put(e, "if (lane == 0) {");
    for (int box = 0; box < chained_boxes(c->sums[number].width); box++)
        put(e, "    %s(&call.maps[%d], fixed%d_room + %d + warp_row * %d, %s);",
            need(e, "bulk_out_%dd", n->op->attr.access.rank), c->operand_count + number, operand, box * c->rows * LINE,
            LINE, box_place(p, n->op, " + warp_row", box));
    put(e, "    bulk_commit();");
    put(e, "}");
}
