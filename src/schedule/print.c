/*
 * A schedule as text: one decision a line, with the tile IR's numbers of values. For `show --stage schedule` and tests.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/schedule.h"

#include <inttypes.h>

static void print_role(const sched_role *r, text *out)
{
    text_print(out, "  role %-8s warps %d", r->name, r->warps);
    if (r->registers) text_print(out, " registers %d", r->registers);
    text_add(out, r->one_thread ? " one thread\n" : "\n");
}

static void print_room(const sched_room *r, const char *stages, text *out)
{
    text_print(out, "  room %-8s %d lines of %d bytes, %d %s ; %" PRId64 " bytes at %" PRId64 "\n", r->name, r->lines,
               SCHED_LINE_BYTES, r->stages, stages, r->stage_bytes * r->stages, r->offset);
}

static void print_box(const schedule *s, int map, text *out)
{
    const sched_map *m = &s->maps[map];
    text_print(out, "%s[", s->kernel->params[m->array].name);
    if (m->windows) {
        text_print(out, "%d places, %d]", m->box[0], m->box[1]);
        return;
    }
    for (int i = 0; i < m->rank; i++) text_print(out, "%s%d", i ? ", " : "", m->box[i]);
    text_add(out, "]");
}

void schedule_print(const schedule *s, text *out)
{
    const sched_choice *c = &s->choice;
    text_print(out, "launch of phase %d: fed tile=%dx%dx%d stages=%d groups=%d order=%d blocks=%d%s\n", s->phase,
               c->tile[0], c->tile[1], c->tile[2], c->stages, c->groups, c->order, c->blocks,
               c->turns ? " in turns" : "");
    print_role(&s->fill, out);
    print_role(&s->multiply, out);
    for (int i = 0; i < s->operand_count; i++)
        if (!s->operands[i].walk) print_room(&s->operands[i].ring, "stages", out);
    if (s->in.stage_bytes) print_room(&s->in, "warps", out);
    if (s->out.stage_bytes) print_room(&s->out, "warps", out);
    for (int i = 0; i < s->operand_count; i++) {
        const sched_operand *o = &s->operands[i];
        if (o->gathered) {
            text_print(out, "  gather %%%u from %s", o->source, s->kernel->params[o->load->attr.access.array].name);
        } else if (o->taken) {
            const tile_op *factor = s->takes[o->side].factor;
            text_print(out, "  take %%%u from %s, %d times 16 bytes a thread", o->source,
                       s->kernel->params[o->load->attr.access.array].name, s->takes[o->side].vectors);
            if (factor) text_print(out, ", times %s by line", s->kernel->params[factor->attr.access.array].name);
        } else {
            text_print(out, "  copy %%%u bulk ", o->load->results[0]);
            print_box(s, o->map, out);
            text_print(out, " x %d", o->boxes);
        }
        if (o->gathered && s->gather.by_chunk) text_add(out, " by 16 bytes");
        if (o->gathered && s->gather.by_chunk && !s->gather.rounds) text_print(out, ", %d steps ahead", s->gather.lag);
        text_print(out, " > %s, along %s\n", o->ring.name, o->along_k ? "k" : o->side ? "columns" : "rows");
    }
    for (int i = 0; i < s->product_count; i++) {
        const sched_product *p = &s->products[i];
        text_print(out, "  dot %%%u wgmma_%s n %d %s %s\n", p->dot->results[0], s->matrix, c->tile[1],
                   s->operands[p->left].ring.name, s->operands[p->right].ring.name);
    }
    for (int i = 0; i < s->walk_count; i++)
        text_print(out, "  loops %d%s%s\n", s->walks[i].loop_count,
                   s->walks[i].ends_with_k ? ", the last to the end of the operands" : "",
                   i ? ", going on with the sums" : "");
    for (int i = 0; i < s->load_count; i++) {
        text_print(out, "  load %%%u bulk ", s->loads[i].op->results[0]);
        print_box(s, s->loads[i].map, out);
        text_add(out, " > in, before the products\n");
    }
    text_print(out, "  home %%%u registers %d%s\n", s->sums,
               c->tile[0] * c->tile[1] / ((c->turns ? 1 : c->groups) * 128),
               s->apart ? ", and as many for the sums of a step" : "");
    if (s->rolled) text_add(out, "  epilogue in a loop over parts of the sums: written out, its instructions would not be kept\n");
    for (int n = 0; n < s->store_count; n++) {
        const sched_store *store = &s->stores[n];
        text_print(out, "  store %s ", s->kernel->params[store->op->attr.access.array].name);
        if (store->map < 0) {
            text_add(out, store->by_row ? "by row\n" : "by element\n");
        } else {
            text_add(out, "bulk ");
            print_box(s, store->map, out);
            text_print(out, " x %d, %d buffer%s\n", store->boxes, s->out_buffers, s->out_buffers == 1 ? "" : "s");
        }
    }
    text_print(out, "  shape grid min(programs, %d a unit), threads %d, shared %" PRId64 ", maps %d\n", c->blocks,
               s->threads, s->shared_bytes, s->map_count);
}
