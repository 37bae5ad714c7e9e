/*
 * The loops of a pass around its chunks, as CUDA text. In: a nest whose statements are gathered by level. Out: the row's
 * statements, with the loads of several chunks asked for together, kept tiles in registers written out and those in slots
 * in a loop.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"

#include <string.h>

/* Many single elements of a row: their positions, if they were known to be those of the pass before, would be kept in
 * registers from pass to pass, beside the elements. */
static bool forgets_positions(const pass_layout *l)
{
    return l->vector == 1 && l->repeats >= 16 && !l->inner_threads && !l->row_fast;
}

/* A long row whose loads all come before, or has none: a branch costs less than a choice for each element. */
bool fold_is_guarded(const cnest *n)
{
    return n->in && n->slotted && (!n->loads || n->slot != words_zero);
}

/* Repeats in registers are written out; those in slots go in a loop, which makes a shorter text. Early loads of kept
 * tiles come before all else; others stand in front of their own chunk. */
static void put_split(cnest *n, text *to, const char *positions, const char *body, bool apart)
{
    enum { SLOTS_AT_ONCE = 6 };
    emitter *e = n->e;
    const char *stages[2] = {text_get(&n->early), body};
    for (int stage = 0; stage < (apart ? 2 : 1); stage++) {
        for (int part = 0; part < 2; part++) {
            int first = part ? n->split : 0, last = part ? n->view.layout->repeats : n->split, depth = 2;
            if (first == last) continue;
            add_lines(to, part ? arena_print(e->memory, "#pragma unroll %d\n", SLOTS_AT_ONCE) : "#pragma unroll\n", 0);
            add_lines(to, arena_print(e->memory, "for (int r = %d; r < %d; r++) {\n", first, last), 1);
            add_lines(to, positions, depth);
            add_lines(to, text_get(&n->arrays), depth);
            if (n->chunk_guard && !n->in) add_lines(to, arena_print(e->memory, "if (%s) {\n", n->chunk_guard), depth++);
            add_lines(to, stages[stage], depth);
            if (!apart) {
                if (n->copies) add_lines(to, "copy_commit();\ncopy_wait<0>();\n", depth);
                add_lines(to, body, depth);
            }
            if (n->chunk_guard && !n->in) add_lines(to, "}\n", --depth);
            add_lines(to, "}\n", 1);
        }
        if (apart && n->copies && !stage) add_lines(to, "copy_commit();\ncopy_wait<0>();\n", 1);
    }
}

static void put_element_loop(cnest *n, text *body, const char *elements)
{
    enum { SHORT_LOOSE = 256 };
    const pass_layout *l = n->view.layout;
    if (l->vector == 1) {
        text_add(body, fold_is_guarded(n) ? "{\n" : "");
        text_add(body, elements);
        text_add(body, fold_is_guarded(n) ? "}\n" : "");
        return;
    }
    /* Only the first and the last vector of a row have to be asked; short rows have few others. */
    if (n->loose && n->asks_inside && dimension_bound(n->e->survey, l->loops[0]) > SHORT_LOOSE) {
        for (int all = 1; all >= 0; all--) {
            text_add(body, all ? "if (whole) {\n#pragma unroll\n" : "} else {\n#pragma unroll\n");
            text_print(body, "    for (int v = 0; v < %d; v++) {\n        const int inside = %s;\n", l->vector,
                       all ? "1" : n->element_guard);
            add_lines(body, elements, 2);
            text_add(body, "    }\n");
        }
        text_add(body, "}\n");
        return;
    }
    text_add(body, "#pragma unroll\n");
    text_print(body, "for (int v = 0; v < %d; v++) {\n", l->vector);
    if (n->loose) {
        if (n->asks_inside) text_print(body, "    const int inside = %s;\n", n->element_guard);
        add_lines(body, elements, 1);
    } else if (n->element_guard) {
        text_print(body, "    if (%s) {\n", n->element_guard);
        add_lines(body, elements, 2);
        text_add(body, "    }\n");
    } else {
        add_lines(body, elements, 1);
    }
    text_add(body, "}\n");
}

/* The elements of a chunk. Where a test holds for one position of the row, the other chunks go without it. */
static void put_elements(cnest *n, text *body)
{
    const char *elements = text_get(&n->level[LEVEL_ELEMENT]);
    if (!*elements) return;
    if (fold_is_guarded(n)) text_add(body, "if (in)\n");
    if (!n->hit_count) {
        put_element_loop(n, body, elements);
        return;
    }
    text without = {0}, lines = {0};
    size_t from = 0;
    for (int i = 0; i < n->hit_count; i++) {
        text_add_bytes(&without, elements + from, n->hits[i].first - from);
        text_add(&without, "false");
        from = n->hits[i].first + n->hits[i].length;
    }
    text_add(&without, elements + from);
    text_print(body, "if ((unsigned)%s < %du) {\n", n->hit_rest, n->view.layout->vector);
    put_element_loop(n, &lines, elements);
    add_lines(body, text_get(&lines), 1);
    text_clear(&lines);
    text_add(body, "} else {\n");
    put_element_loop(n, &lines, text_get(&without));
    add_lines(body, text_get(&lines), 1);
    text_add(body, "}\n");
    text_free(&without);
    text_free(&lines);
}

/* The loads of some chunks, and what is done with them. */
static void put_stages(cnest *n, text *to, const text *body, const char *positions, bool chunks, int depth)
{
    emitter *e = n->e;
    const pass_layout *l = n->view.layout;
    add_lines(to, text_get(&n->arrays), depth);
    int inner = depth;
    const text *stages[2] = {&n->early, body};
    for (int stage = n->early_used ? 0 : 1; stage < 2; stage++) {
        if (!stages[stage]->length) continue;
        inner = depth;
        if (chunks) {
            add_lines(to, "#pragma unroll\n", 0);
            add_lines(to, arena_print(e->memory, "for (int u = 0; u < %d; u++) {\n", n->unroll), inner++);
            if (l->repeats)
                add_lines(to, n->unroll == l->repeats ? "const int r = u;\n" : "const int r = c + u;\n", inner);
        }
        if (chunks || stage == (n->early_used ? 0 : 1)) add_lines(to, positions, inner);
        bool branch = n->chunk_guard && !n->in && !(n->all_there && !n->row_guard);
        if (branch) add_lines(to, arena_print(e->memory, "if (%s) {\n", n->chunk_guard), inner++);
        add_lines(to, text_get(stages[stage]), inner);
        if (branch) add_lines(to, "}\n", --inner);
        if (chunks) add_lines(to, "}\n", --inner);
        if (n->copies && !stage) add_lines(to, "copy_commit();\ncopy_wait<0>();\n", depth);
    }
}

/* Sums of floats over rows of any length: those of some chunks are added up before they join the others, so that an error
 * grows with the number of such sums and not with that of elements. */
static void put_sums(cnest *n, text *to, bool begin, int depth)
{
    emitter *e = n->e;
    for (int i = 0; i < n->view.pass->sink_count; i++) {
        const cfold *f = &n->folds[i];
        if (!f->name || f->position || n->view.pass->sinks[i].kind != SINK_REDUCE ||
            n->view.pass->sinks[i].op->attr.fold != FOLD_SUM || !dtype_is_float(f->elem))
            continue;
        const char *line = begin ? arena_print(e->memory, "const %s before_%s = %s;\n%s = 0;\n",
                                               cuda_register_type(f->elem), f->name, f->name, f->name)
                                 : arena_print(e->memory, "%s = before_%s + %s;\n", f->name, f->name, f->name);
        add_lines(to, line, depth);
    }
}

void cuda_chunks(cnest *n)
{
    emitter *e = n->e;
    const pass_layout *l = n->view.layout;
    text *to = &n->level[LEVEL_ROW], body = {0}, positions = {0};
    n->forgets = forgets_positions(l);
    cuda_positions(n, &positions);
    text_add(&body, text_get(&n->level[LEVEL_CHUNK]));
    put_elements(n, &body);
    text_add(&body, text_get(&n->late));
    bool chunks = n->slot != words_zero; /* several in flight */
    int depth = 1;
    text_add(to, "{\n");
    if (n->forgets)
        text_print(to,
                   "    int here = thread, apart = %s;\n"
                   "#ifndef QUERN_EMU\n"
                   "    asm volatile(\"\" : \"+r\"(here), \"+r\"(apart));\n"
                   "#endif\n",
                   cuda_inner_threads(n));
    if (n->slotted) {
        put_split(n, to, text_get(&positions), text_get(&body), chunks);
        text_add(to, "}\n");
        text_free(&body);
        text_free(&positions);
        return;
    }
    if (!l->repeats) {
        const char *step =
            arena_print(e->memory, "%s * %d", cuda_inner_threads(n), l->vector * (chunks ? n->unroll : 1));
        const char *count = cuda_product_text(n, cuda_inner_axes(n), -1);
        const char *type = cuda_index_type(n, cuda_inner_axes(n));
        if (l->shifted) count = arena_print(e->memory, "%s + shift%d", count, l->number);
        if (chunks && !l->shifted) { /* without tests as long as all of them are there: loads do not wait for those */
            text full = {0};
            n->all_there = true;
            cuda_positions(n, &full);
            add_lines(to, arena_print(e->memory, "%s c = 0;\n", type), depth);
            add_lines(to, arena_print(e->memory, "for (; c <= %s - %s; c += %s) {\n", count, step, step), depth++);
            put_sums(n, to, true, depth);
            put_stages(n, to, &body, text_get(&full), chunks, depth);
            put_sums(n, to, false, depth);
            add_lines(to, "}\n", --depth);
            n->all_there = false;
            text_free(&full);
            add_lines(to, arena_print(e->memory, "for (; c < %s; c += %s) {\n", count, step), depth++);
        } else {
            add_lines(to, arena_print(e->memory, "for (%s c = 0; c < %s; c += %s) {\n", type, count, step), depth++);
        }
    } else if (n->repeat != words_zero && !(chunks && n->unroll == l->repeats)) {
        /* A chunk with many loads keeps memory busy by itself; more of them at once would take the registers of others. */
        bool full = l->wide + l->narrow + l->windows > FULL_CHUNK && !e->cuda->spread->live_registers;
        add_lines(to, full ? "#pragma unroll 1\n" : "#pragma unroll\n", 0);
        const char *loop = chunks
                               ? arena_print(e->memory, "for (int c = 0; c < %d; c += %d) {\n", l->repeats, n->unroll)
                               : arena_print(e->memory, "for (int r = 0; r < %d; r++) {\n", l->repeats);
        add_lines(to, loop, depth++);
    }
    put_stages(n, to, &body, text_get(&positions), chunks, depth);
    while (--depth) add_lines(to, "}\n", depth);
    text_add(to, "}\n");
    text_free(&body);
    text_free(&positions);
}
