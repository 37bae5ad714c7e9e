/*
 * A loop program as text: one node a line, bodies indented. For `show --stage loops`.
 * SPDX-License-Identifier: MIT
 */
#include "loops/spread.h"

#include <inttypes.h>

static void print_nodes(const loop_program *p, const loop_node *n, int depth, text *out);

/* A list that does not stand in the order of execution: what it is, then its nodes. */
static void print_list(const loop_program *p, const char *what, const loop_node *n, int depth, text *out)
{
    if (!n) return;
    text_print(out, "%*s%s {\n", 2 * depth, "", what);
    print_nodes(p, n, depth + 1, out);
    text_print(out, "%*s}\n", 2 * depth, "");
}

/* ---- of a product with roles ---- */

static void print_fed(const loop_program *p, const loop_node *n, text *out)
{
    const schedule *s = p->schedule;
    switch (n->code) {
    case LOOP_ROLE: text_print(out, " %s", (n->number[0] ? &s->multiply : &s->fill)->name); break;
    case LOOP_BULK_IN:
        text_print(out, " %s, box %d of %%%u", s->operands[n->number[1]].ring.name, n->number[0], n->op->results[0]);
        break;
    case LOOP_TURN:
    case LOOP_FOR:
    case LOOP_STEPS: text_print(out, " %%%u by %d", n->op->regions[0]->args[0], n->number[0]); break;
    case LOOP_LET:
    case LOOP_LOAD:
        text_print(out, " ");
        tile_print_op(s->kernel, n->op, out);
        break;
    case LOOP_KEEP:
    case LOOP_STORE:
    case LOOP_OUT:
    case LOOP_OUT_ROWS:
        text_print(out, " %s", s->kernel->params[n->op->attr.access.array].name);
        if (n->operand) text_print(out, " = %%%u", n->operand);
        break;
    case LOOP_WAIT: text_add(out, n->number[0] ? " empty" : " full"); break;
    default:
        if (n->number[0]) text_print(out, " %d", n->number[0]);
        break;
    }
}

/* ---- of chained products ---- */

static const char *registers_name(int which)
{
    return which == LOOPS_SCORES    ? "scores"
           : which == LOOPS_MORE    ? "more"
           : which == LOOPS_NOTHING ? "nothing"
                                    : "sums";
}

static void print_chained(const loop_program *p, const loop_node *n, text *out)
{
    static const char *const steps[] = {"all", "first", "lower", "whole", "last", "others"};
    static const char *const who[] = {"thread", "warp", "lane", "group"};
    const chained *c = p->chained;
    switch (n->code) {
    case LOOP_ROLE: text_add(out, n->number[0] ? " multiply" : " fill"); break;
    case LOOP_ONE:
    case LOOP_BARRIER: text_print(out, " %s", who[n->number[0]]); break;
    case LOOP_STEPS:
        text_print(out, " %%%u by %d, %s", n->op->regions[0]->args[0], n->number[0], steps[n->number[1]]);
        break;
    case LOOP_BULK_IN: text_print(out, " box %d of %%%u", n->number[0], n->op->results[0]); break;
    case LOOP_MATRIX:
        text_print(out, " %s %%%u", n->number[0] == LOOPS_SUM ? "sum" : "scores",
                   (n->number[0] == LOOPS_SUM ? c->sums[n->number[1]].dot : c->products[n->number[1]].dot)->results[0]);
        break;
    case LOOP_MATRIX_WAIT: text_print(out, " %d, %s", n->number[0], registers_name(n->number[1])); break;
    case LOOP_EXPECT: text_print(out, " %d", n->number[0]); break;
    case LOOP_WAIT: text_add(out, n->number[0] ? " empty" : " full"); break;
    case LOOP_RANGE_END:
    case LOOP_CARRY:
    case LOOP_RESULT:
    case LOOP_YIELD: text_print(out, " %d", n->number[0]); break;
    case LOOP_PAIRS: text_add(out, n->number[0] ? " late" : " early"); break;
    case LOOP_KEEP:
        text_print(out, " %s = %%%u", n->number[0] < 0 ? registers_name(n->number[0]) : "weights", n->operand);
        break;
    case LOOP_FOLD_BEGIN:
    case LOOP_FOLD:
    case LOOP_FOLD_END:
    case LOOP_SCALE: text_print(out, " %%%u", n->operand ? n->operand : n->op->results[0]); break;
    case LOOP_LET:
    case LOOP_LOAD:
    case LOOP_STORE:
    case LOOP_OUT:
    case LOOP_OUT_SEND:
        text_add(out, " ");
        tile_print_op(c->kernel, n->op, out);
        break;
    default: break;
    }
    bool rings = n->code == LOOP_WAIT || n->code == LOOP_APART || n->code == LOOP_HELD || n->code == LOOP_WAIT_AHEAD ||
                 n->code == LOOP_EXPECT || n->code == LOOP_RELEASE || n->code == LOOP_RING_NEXT;
    if (rings && n->number[1] >= 0) text_print(out, " of %%%u", c->operands[n->number[1]].load->results[0]);
    if (n->element && n->element->conditions) text_add(out, ", masked");
}

/* ---- of a spread ---- */

static void print_pass(const loop_program *p, const loop_pass *pass, text *out)
{
    const tile_kernel *k = p->survey->k;
    const pass_layout *l = pass->layout;
    for (int i = 0; i < l->loop_count; i++) {
        const tile_op *op = l->loops[i] < 0 ? tile_def(k, (value)-l->loops[i]) : NULL;
        if (!op)
            text_print(out, "%s%" PRId64, i ? ", " : " [", l->loops[i]);
        else if (op->code == OP_ARG)
            text_print(out, "%s%s", i ? ", " : " [", k->params[op->attr.index].name);
        else
            text_print(out, "%s%%%u", i ? ", " : " [", (value)-l->loops[i]);
    }
    text_print(out, "%s in vectors of %d", l->loop_count ? "]" : " []", l->vector);
    if (pass->unroll > 1) text_print(out, ", loads of %d at once", pass->unroll);
    if (pass->tests_chunks) text_add(out, pass->predicates ? ", chunks under a condition" : ", chunks in a branch");
    if (pass->tests_elements) text_add(out, pass->loose ? ", elements beyond a row computed" : ", elements tested");
}

static void print_spread(const loop_program *p, const loop_node *n, text *out)
{
    static const char *const levels[] = {"group", "row", "chunk", "element"};
    const tile_kernel *k = p->survey->k;
    switch (n->code) {
    case LOOP_PASS: print_pass(p, n->pass, out); return;
    case LOOP_GROUP: text_add(out, n->group->tests_rows ? ", rows tested" : ""); return;
    case LOOP_READ: text_print(out, " %%%u, %s", n->operand, levels[n->number[0]]); return;
    case LOOP_FOR: text_print(out, " %%%u", n->op->regions[0]->args[0]); return;
    case LOOP_SUMS_LOAD:
    case LOOP_SUMS_STORE: text_print(out, " %%%u", n->operand); return;
    case LOOP_FOLD_JOIN: text_print(out, " %d", n->number[0]); return;
    case LOOP_YIELD:
    case LOOP_WHILE:
    case LOOP_IF:
    case LOOP_BARRIER: return;
    default: break;
    }
    if (n->sink && n->sink->kind != SINK_STORE && n->sink->kind != SINK_ATOMIC) {
        text_print(out, " %%%u", n->sink->result ? n->sink->result : n->sink->v);
        if (n->sink->result && n->sink->result != n->sink->v) text_print(out, " = %%%u", n->sink->v);
        return;
    }
    if (n->sink && n->code == LOOP_HOLD) {
        text_print(out, " %%%u", n->sink->v);
        return;
    }
    text_add(out, " ");
    tile_print_op(k, n->op, out);
    if (n->at && n->operand) text_print(out, ", %s", levels[n->number[0]]);
}

static void print_nodes(const loop_program *p, const loop_node *n, int depth, text *out)
{
    for (; n; n = n->next) {
        if (n->waits) text_print(out, "%*s%s\n", 2 * depth, "", loop_names[LOOP_BARRIER]);
        print_list(p, "before", n->before, depth, out);
        text_print(out, "%*s%s", 2 * depth, "", loop_names[n->code]);
        if (p->schedule)
            print_fed(p, n, out);
        else if (p->chained)
            print_chained(p, n, out);
        else
            print_spread(p, n, out);
        text_add(out, n->body ? " {\n" : "\n");
        print_nodes(p, n->body, depth + 1, out);
        if (n->body) text_print(out, "%*s}\n", 2 * depth, "");
        print_list(p, n->code == LOOP_WHILE ? "do" : "else", n->other, depth, out);
        print_list(p, "after", n->after, depth, out);
    }
}

void loops_print(const loop_program *p, text *out)
{
    print_nodes(p, p->first, 1, out);
    if (p->meets_again) text_print(out, "  %s, before the next program\n", loop_names[LOOP_BARRIER]);
}
