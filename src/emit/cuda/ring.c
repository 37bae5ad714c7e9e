/*
 * The ring of a fed product, as CUDA C: boxes that the copy engine brings, the products on them, and when a stage is free
 * again. In: nodes of a loop program. Out: text.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/loops_parts.h"

#include <inttypes.h>

const char *box_coordinates(loop_printer *p, const tile_op *op, const char *const *added)
{
    emitter *e = p->e;
    const struct access *a = &op->attr.access;
    const char *words = "";
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        const char *index = emit_name(e, op->operands[operand]);
        if (added[axis]) index = arena_print(e->memory, "(%s + %s)", index, added[axis]);
        words = arena_print(e->memory, ", (int)%s%s", index, words);
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    return words;
}

/* What an axis of a load begins with. */
static const char *start_of(emitter *e, const tile_op *load, int wanted)
{
    const struct access *a = &load->attr.access;
    int operand = a->first_index;
    for (int axis = 0; axis < wanted; axis++) operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    return emit_name(e, load->operands[operand]);
}

/* The first place of the tile and the element of the window that this k is of; beyond k an image that is not there. */
static void print_windows_in(loop_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const sched_operand *o = &p->s->operands[n->number[1]];
    const sched_windows *x = o->windows;
    const axis_digits *k = &e->k->params[o->load->attr.access.array].digits->axes[x->k_axis];
    const char *coordinates = "", *offsets = "";
    int64_t places = 1;
    put(e, "const unsigned place%d_k = (unsigned)%s;", n->number[1], start_of(e, o->load, x->k_axis));
    put(e, "const unsigned place%d_at = (unsigned)%s;", n->number[1], start_of(e, o->load, x->tile_axis));
    for (int i = 0; i < x->axis_count; i++) {
        const sched_window_axis *a = &x->axes[i];
        coordinates = arena_print(e->memory, "%s, (int)(place%d_at / %" PRId64 " %% %" PRId64 ") * %d + %" PRId64,
                                  coordinates, n->number[1], places, a->count, a->step, sched_window_lower(a));
        places *= a->count;
        int64_t inner = 1;
        for (int digit = k->count - 1; digit > a->digit && a->digit >= 0; digit--) inner *= k->extent[digit];
        const char *tap =
            a->digit < 0 ? "0"
                         : arena_print(e->memory, "(int)(place%d_k / %" PRId64 " %% %d)", n->number[1], inner, a->taps);
        if (a->apart < 0) tap = arena_print(e->memory, "(%d - %s)", a->taps - 1, tap);
        offsets = arena_print(e->memory, "%s, %s * %d", offsets, tap, a->apart < 0 ? -a->apart : a->apart);
    }
    const char *group = "";
    if (x->group_axis >= 0)
        group = arena_print(e->memory, " + (int)%s * %" PRId64, start_of(e, o->load, x->group_axis), x->group_stride);
    put(e, "%s(%s + stage * %" PRId64 ", &call.maps[%d], full + stage,", need(e, "bulk_windows_%dd", x->axis_count + 2),
        o->ring.name, o->ring.stage_bytes, o->map);
    put(e,
        "    (int)(place%d_k %% %" PRId64 ")%s%s, place%d_k < %" PRId64 " ? (int)(place%d_at / %" PRId64 ") : %d%s);",
        n->number[1], x->channels, group, coordinates, n->number[1], x->depth, n->number[1], places, NOWHERE, offsets);
}

void print_bulk_in(loop_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const sched_operand *o = &p->s->operands[n->number[1]];
    if (o->windows) {
        print_windows_in(p, n);
        return;
    }
    const char *added[MAX_RANK] = {0};
    if (n->number[0]) added[o->tile_axis] = arena_print(e->memory, "%d", n->number[0] * o->box_size);
    put(e, "%s(%s + stage * %" PRId64 " + %" PRId64 ", &call.maps[%d], full + stage%s);",
        need(e, "bulk_in_%dd", o->load->attr.access.rank), o->ring.name, o->ring.stage_bytes,
        o->ring.stage_bytes / o->boxes * n->number[0], o->map, box_coordinates(p, n->op, added));
}

/* 32 bytes of k further on, in units of 16 bytes. */
static int step_of(const sched_operand *o)
{
    return (o->along_k ? 32 : 16 * LINE) / 16;
}

void print_matrix(loop_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    const schedule *s = p->s;
    const char *first = n->number[0] == LOOPS_ADD         ? "1"
                        : n->number[0] == LOOPS_FROM_ZERO ? "q != 0"
                                                          : "q ? 1 : before >= 0";
    put(e, "matrix_fence();");
    const sched_walk *walk = &s->walks[n->number[1]];
    for (int i = walk->first_product; i < walk->first_product + walk->product_count; i++) {
        const sched_operand *a = &s->operands[s->products[i].left], *b = &s->operands[s->products[i].right];
        text_add(e->out, "#pragma unroll\n");
        put(e, "for (int q = 0; q < %d; q++)", LINE / 32);
        text_add(e->out, "#pragma unroll\n");
        put(e, "    for (int m = 0; m < %d; m++)", rows_of_group(s) / 64);
        const char *turns = s->turns ? arena_print(e->memory, "<%d, %d>", !a->along_k, !b->along_k) : "";
        put(e, "        %s%s(sums[m], matrix_at(place%d, stage * %d + m * %d + q * %d),",
            need(e, "wgmma_%s_n%d", s->matrix, s->choice.tile[1]), turns, s->products[i].left,
            (int)a->ring.stage_bytes / 16, GROUP_BYTES / 16, step_of(a));
        put(e, "            matrix_at(place%d, stage * %d + q * %d), %s);", s->products[i].right,
            (int)b->ring.stage_bytes / 16, step_of(b), i > walk->first_product ? "1" : first);
    }
    put(e, "matrix_commit();");
}

void print_release(loop_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    if (n->number[0] == LOOPS_BEFORE) {
        put(e, "if (before >= 0) {");
        put(e, "    matrix_wait<1>();");
        put(e, "    if (threadIdx.x %% 128 == 0) phase_arrive(empty + before);");
        put(e, "}");
        put(e, "before = stage;");
        return;
    }
    put(e, "matrix_wait<0>();");
    for (int m = 0; m < rows_of_group(p->s) / 64; m++) put(e, "matrix_keep(sums[%d]);", m);
    if (n->number[0] == LOOPS_THIS)
        put(e, "if (threadIdx.x %% 128 == 0) phase_arrive(empty + stage);");
    else
        put(e, "if (before >= 0 && threadIdx.x %% 128 == 0) phase_arrive(empty + before);");
}

void print_sums_begin(loop_printer *p, const loop_node *n)
{
    emitter *e = p->e;
    int blocks = rows_of_group(p->s) / 64, count = p->s->choice.tile[1] / 2;
    const char *name = n->number[1] ? "totals" : "sums";
    const char *type = cuda_register_type(tile_type_of(e->k, p->s->sums).elem);
    put(e, "%s %s[%d][%d];", type, name, blocks, count);
    if (n->number[0])
        put(e, "for (int i = 0; i < %d; i++) %s[i / %d][i %% %d] = 0;", blocks * count, name, count, count);
    if (n->number[1])
        put(e, "%s sums[%d][%d];", type, blocks, count);
    else
        put(e, "int before = -1;");
}

void print_add_sums(loop_printer *p)
{
    int blocks = rows_of_group(p->s) / 64, count = p->s->choice.tile[1] / 2;
    text_add(p->e->out, "#pragma unroll\n");
    put(p->e, "for (int i = 0; i < %d; i++) totals[i / %d][i %% %d] += sums[i / %d][i %% %d];", blocks * count, count,
        count, count, count);
}

void print_in_ask(loop_printer *p)
{
    emitter *e = p->e;
    const schedule *s = p->s;
    int chunks = s->choice.tile[1] / CHUNK, parts = rows_of_group(s) / 64 * chunks;
    put(e, "__syncwarp();");
    put(e, "if (lane == 0) {");
    open_brace(e);
    put(e, "phase_expect(in_full + warp, %" PRId64 ");", s->in.stage_bytes);
    put(e, "for (int part = 0; part < %d; part++) {", parts);
    open_brace(e);
    put(e, "const int first_row = warp_row + part / %d * 64, first_column = part %% %d * %d;", chunks, chunks, CHUNK);
    for (int i = 0; i < s->load_count; i++) {
        const tile_op *op = s->loads[i].op;
        const struct access *a = &op->attr.access;
        const char *added[MAX_RANK] = {0};
        for (int axis = 0; axis < a->rank; axis++)
            if (a->kind[axis] == INDEX_SLICE && a->result_axis[axis] == s->places[op->results[0]].row)
                added[axis] = "first_row";
        added[a->rank - 1] = "first_column";
        put(e, "%s(in_room + warp * %" PRId64 " + %" PRId64 " + part * %d, &call.maps[%d], in_full + warp%s);",
            need(e, "bulk_in_%dd", a->rank), s->in.stage_bytes, s->loads[i].offset, 16 * LINE, s->loads[i].map,
            box_coordinates(p, op, added));
    }
    close_brace(e);
    close_brace(e);
}
