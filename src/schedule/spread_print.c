/*
 * A spread in words, for `show --stage schedule` and `--stage layout`. In: what spread_decide chose for a phase. Out: its
 * team, the layout of each pass over it, the home of every kept tile and, where that is not registers, why.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/spread.h"

#include <inttypes.h>

static void print_dims(const tile_kernel *k, const int64_t *dims, int count, text *out)
{
    for (int i = 0; i < count; i++) {
        const tile_op *op = dims[i] < 0 ? tile_def(k, (value)-dims[i]) : NULL;
        if (!op)
            text_print(out, "[%" PRId64 "]", dims[i]);
        else if (op->code == OP_ARG)
            text_print(out, "[%s]", k->params[op->attr.index].name);
        else
            text_add(out, "[?]");
    }
}

static void print_team(const tile_kernel *k, const spread *c, text *out)
{
    static const char *const names[] = {[TEAM_LANES] = "some threads of a block",
                                        [TEAM_BLOCK] = "a block",
                                        [TEAM_CLUSTER] = "a cluster of blocks",
                                        [TEAM_GRID] = "all blocks together"};
    const team *t = &c->team;
    text_print(out, "  team: %s (%s)\n", names[t->kind], t->reason ? t->reason : "");
    if (t->threads)
        text_print(out, "  threads: %d a program", t->threads);
    else if (t->row_param >= 0)
        text_print(out, "  threads: as `%s` asks for when launched, %d elements of a row each",
                   k->params[t->row_param].name, t->share);
    else
        text_add(out, "  threads: as the launch asks for");
    text_print(out, ", %d a block%s\n", t->block, t->threads && t->kind == TEAM_LANES ? "" : " at most");
    if (t->bound > 0 && t->bound < INT64_MAX && t->row_param >= 0)
        text_print(out, "  rows of up to %" PRId64 " elements\n", t->bound);
    if (t->kind == TEAM_GRID && t->one_team) text_add(out, "  programs at once: 1\n");
}

static void print_pass(const tile_kernel *k, const pass_layout *l, text *out)
{
    text_add(out, "  pass over ");
    print_dims(k, l->loops, l->loop_count, out);
    text_print(out, ": vectors of %d", l->vector);
    if (l->inner_threads)
        text_print(out, ", %d threads along a row", l->inner_threads);
    else
        text_add(out, ", all threads along a row");
    if (l->repeats)
        text_print(out, ", %d time%s", l->repeats, l->repeats == 1 ? "" : "s");
    else
        text_add(out, ", in a loop");
    if (l->row_axes) {
        text_add(out, "; rows are axis");
        for (int i = 0; i < l->loop_count; i++)
            if (l->row_axes >> i & 1) text_print(out, " %d", i);
    }
    if (l->row_fast) text_add(out, ", neighbouring threads on neighbouring rows");
    text_add(out, "\n");
}

static void print_kept(const survey *e, int number, text *out)
{
    static const char *const names[] = {
        [HOME_SHARED] = "shared memory", [HOME_REGISTERS] = "registers", [HOME_SCRATCH] = "scratch in global memory"};
    const kept *home = &e->spread->kept[number];
    const buffer *b = &e->buffers[number];
    text_print(out, "  kept tile %s", dtypes[b->elem].text);
    print_dims(e->k, b->shape.dims, b->shape.rank, out);
    text_print(out, ": %s", home->comes_ahead ? "" : names[home->kind]);
    if (home->kind != HOME_REGISTERS && home->bytes) text_print(out, ", %" PRId64 " bytes", home->bytes);
    if (home->kind == HOME_REGISTERS && home->comes_ahead)
        text_add(out, "slots in shared memory, the next trip's row on its way");
    else if (home->kind == HOME_REGISTERS && home->in_registers < home->layout->repeats)
        text_print(out, ", %d vectors of %d in shared memory", home->layout->repeats - home->in_registers,
                   home->layout->repeats);
    if (home->kind == HOME_SHARED && home->pad) text_print(out, ", rows padded by %d", home->pad);
    if (home->kind != HOME_REGISTERS && home->why) text_print(out, " (%s)", home->why);
    text_add(out, "\n");
}

void spread_print(const survey *e, text *out)
{
    const spread *c = e->spread;
    print_team(e->k, c, out);
    for (int i = 0; i < c->layout_count; i++) print_pass(e->k, c->layouts[i], out);
    for (int i = 1; i < c->kept_count; i++)
        if (c->kept[i].touched) print_kept(e, i, out);
}
