/*
 * A loop program whose nodes are left out one by one: loops/check.c misses each that its order rests on. For test_loops and
 * test_scores.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_LEAVE_OUT_H
#define QUERN_TESTS_LEAVE_OUT_H

#include "test.h"

#include "loops/loops.h"

/* What a program's order rests on. OUT_WAIT and OUT_SEND count where copies leave by themselves (number[1]). */
static bool orders(const loop_program *p, const loop_node *n)
{
    switch (n->code) {
    case LOOP_WAIT: /* where all rings of chained products go on together, who may fill one may fill all */
        return !p->chained || p->chained->folds || !n->number[0] || n->number[1] == p->chained->products[0].moving;
    case LOOP_EXPECT:
    case LOOP_BULK_IN:
    case LOOP_RING_NEXT:
    case LOOP_FILLED:
    case LOOP_FILLED_LAST:
    case LOOP_RELEASE:
    case LOOP_TURN:
    case LOOP_TURN_WAIT:
    case LOOP_TURN_END:
    case LOOP_IN_ASK:
    case LOOP_IN_WAIT:
    case LOOP_WAIT_AHEAD:
    case LOOP_BARRIER:
    case LOOP_OUT_END: return true;
    /* Where each step ends with a wait, the one behind the last orders nothing: it makes the compiler read sums behind it. */
    case LOOP_MATRIX_WAIT: return !p->chained->drained || n->number[1] != LOOPS_SUMS;
    case LOOP_OUT_WAIT: return n->number[1] != 0;
    default: return false;
    }
}

static void collect(const loop_program *p, loop_node **from, loop_node ***list, int *count, int most)
{
    for (loop_node **n = from; *n; n = &(*n)->next) {
        if (orders(p, *n) && *count < most) list[(*count)++] = n;
        collect(p, &(*n)->body, list, count, most);
    }
}

static int left_out, found; /* so far */

/* The program is in order, and nothing that its order rests on can be left out. */
static void leave_out_each(loop_program *program, arena *memory, const char *label)
{
    loop_node **places[96];
    int count = 0;
    text why = {0};
    bool good = loops_check(program, memory, &why);
    if (!good) printf("%s: %s\n", label, text_get(&why));
    EXPECT(good);
    collect(program, &program->first, places, &count, COUNT(places));
    EXPECT(count > 6);
    for (int i = 0; i < count; i++) {
        loop_node *kept = *places[i];
        *places[i] = kept->next;
        text_clear(&why);
        bool missed = !loops_check(program, memory, &why) && why.length;
        if (!missed) printf("%s: nobody misses node %d, %s %d\n", label, i, loop_names[kept->code], kept->number[0]);
        EXPECT(missed);
        left_out++;
        found += missed;
        *places[i] = kept;
    }
    text_free(&why);
}

#endif
