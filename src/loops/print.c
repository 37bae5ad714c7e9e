/*
 * A loop program as text: one node a line, bodies indented. For `show --stage loops`.
 * SPDX-License-Identifier: MIT
 */
#include "loops/loops.h"

static void print_nodes(const loop_program *p, const loop_node *n, int depth, text *out)
{
    for (; n; n = n->next) {
        const schedule *s = p->schedule;
        text_print(out, "%*s%s", 2 * depth, "", loop_names[n->code]);
        switch (n->code) {
        case LOOP_ROLE: text_print(out, " %s", (n->number[0] ? &s->multiply : &s->fill)->name); break;
        case LOOP_BULK_IN:
            text_print(out, " %s, box %d of %%%u", s->operands[n->number[1]].ring.name, n->number[0],
                       n->op->results[0]);
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
        text_add(out, n->body ? " {\n" : "\n");
        print_nodes(p, n->body, depth + 1, out);
        if (n->body) text_print(out, "%*s}\n", 2 * depth, "");
    }
}

void loops_print(const loop_program *p, text *out)
{
    print_nodes(p, p->first, 1, out);
}
