/*
 * Scans along an axis of a tile. In: a scan op, whose operand lies in the result's own tile. Out: statements that scan it
 * in place.
 *
 * A row over all threads of a team stays in their registers: each thread scans its vectors, the lanes of a warp exchange
 * by shuffles, and what the warps leave of all repeats is scanned at once, between two barriers; lanes of one warp carry it
 * from repeat to repeat. Other tiles lie in memory: a warp takes a line in steps of as many lanes, with a carry.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"

#include <inttypes.h>
#include <string.h>

/* ---- in registers ---- */

/* Beyond its ends a row holds whatever its vectors found there. */
static const char *inside_text(emitter *e, const cnest *n)
{
    if (n->element_guard) return cjoin(e, n->in, "&&", n->element_guard);
    return n->in;
}

static void scan_registers(emitter *e, const loop_node *node, pass_layout *l)
{
    const tile_op *op = node->op;
    value v = op->results[0];
    dtype elem = tile_type_of(e->k, v).elem;
    fold_kind fold = op->attr.fold;
    const team *team = &e->cuda->spread->team;
    const char *c = cuda_register_type(elem), *t = register_name(elem), *name = fold_names[fold];
    const char *none = cuda_number(e, elem, fold_identity(fold, elem));
    bool block = team->kind == TEAM_BLOCK, alone = team->threads == 1;
    const char *lanes = block ? "32" : team->threads ? arena_print(e->memory, "%d", team->threads) : "threads";
    const char *mask = block ? "0xffffffffu" : "team_mask", *scan = need(e, "lanes_scan_%s_%s", name, t);
    cnest n = cuda_nest_of(e, l);
    const char *inside = inside_text(e, &n), *step = cuda_fold_step(e, fold, elem, "scanned[v - 1]", "scanned[v]");
    text lines = {0}, positions = {0}, take = {0}, keep = {0};
    int number = buffer_for(e->survey, v);
    n.repeat = l->repeats == 1 ? words_zero : "r";
    cuda_positions(&n, &positions);
    home_take(&n, &take, number, "scanned");
    home_keep(&n, &keep, number, "scanned");
    if (!block) text_print(&lines, "%s carry = %s;\n", c, none);
    for (int pass = 0; pass < (block ? 2 : 1); pass++) {
        text_add(&lines, "#pragma unroll\n");
        text_print(&lines, "for (int r = 0; r < %d; r++) {\n", l->repeats);
        /* Where a row is shorter than its class the lanes meet no more often than they must. */
        if (!block && l->repeats > 1)
            text_print(&lines, "    if (r * %s * %d >= %s%s) break;\n", lanes, l->vector, extent_text(e, l->loops[0]),
                       l->shifted ? arena_print(e->memory, " + shift%d", l->number) : "");
        if (!pass) add_lines(&lines, text_get(&positions), 1);
        text_print(&lines, "    %s scanned[%d];\n", c, l->vector);
        add_lines(&lines, text_get(&take), 1);
        if (!pass) {
            if (inside)
                text_print(&lines, "    for (int v = 0; v < %d; v++) if (!(%s)) scanned[v] = %s;\n", l->vector, inside,
                           none);
            if (l->vector > 1)
                text_print(&lines, "    for (int v = 1; v < %d; v++) scanned[v] = %s;\n", l->vector, step);
        }
        if (!pass && !alone) {
            text_print(&lines, "    const %s all = %s(scanned[%d], %s, %s);\n", c, scan, l->vector - 1, lanes, mask);
            text_print(&lines, "    const %s before = %s(all, %s, %s);\n", c, need(e, "lanes_before_%s", t), lanes,
                       mask);
            text_print(&lines, "    if ((threadIdx.x & (%s - 1)) != 0)\n", lanes);
            text_print(&lines, "        for (int v = 0; v < %d; v++) scanned[v] = %s;\n", l->vector,
                       cuda_fold_step(e, fold, elem, "before", "scanned[v]"));
        }
        if (!block) {
            text_print(&lines, "    const %s total = %s(scanned[%d], %s, %s);\n", c, need(e, "lanes_last_%s", t),
                       l->vector - 1, lanes, mask);
            text_print(&lines, "    if (r) for (int v = 0; v < %d; v++) scanned[v] = %s;\n", l->vector,
                       cuda_fold_step(e, fold, elem, "carry", "scanned[v]"));
            text_print(&lines, "    carry = %s;\n", cuda_fold_step(e, fold, elem, "carry", "total"));
        } else if (!pass) {
            text_add(&lines,
                     "    if ((threadIdx.x & 31) == 31) scan_parts[r * scan_warps + threadIdx.x / 32] = all;\n");
        } else {
            text_add(&lines, "    const int part = r * scan_warps + threadIdx.x / 32;\n");
            text_print(&lines, "    const %s before = scan_parts[part];\n", c);
            text_print(&lines, "    if (part) for (int v = 0; v < %d; v++) scanned[v] = %s;\n", l->vector,
                       cuda_fold_step(e, fold, elem, "before", "scanned[v]"));
        }
        add_lines(&lines, text_get(&keep), 1);
        text_add(&lines, "}\n");
        if (pass || !block) continue;
        text_print(&lines, "__syncthreads();\n%s(scan_parts, %d * scan_warps);\n__syncthreads();\n",
                   need(e, "scan_parts_%s_%s", name, t), l->repeats);
    }
    put(e, "{");
    e->depth++;
    if (block) {
        put(e, "__shared__ %s scan_parts[%d];", c, l->repeats * (team->block / 32));
        put(e, "const int scan_warps = (int)blockDim.x / 32;");
        if (node->number[1]) put(e, "__syncthreads();");
    }
    add_lines(e->out, text_get(&lines), e->depth);
    e->depth--;
    put(e, "}");
    text_free(&lines);
    text_free(&positions);
    text_free(&take);
    text_free(&keep);
}

/* ---- in memory ---- */

/* Pieces of 32 of a line whose loads and lanes need not wait for one another: all of a known length, up to MOST_PIECES. */
static int pieces_together(int64_t dim)
{
    enum { MOST_PIECES = 8, LANES = 32 };
    int together = 1;
    while (dim > 0 && together < MOST_PIECES && dim % (2 * together * LANES) == 0) together *= 2;
    return together;
}

static void put_each(emitter *e, int count)
{
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int u = 0; u < %d; u++) {", count);
    e->depth++;
}

static void end_each(emitter *e)
{
    e->depth--;
    put(e, "}");
}

/* Lines go over the warps of the team (or the team itself, when it is a part of a warp). */
static void scan_memory(emitter *e, const tile_op *op)
{
    value v = op->results[0];
    tile_type type = tile_type_of(e->k, v);
    const team *team = &e->cuda->spread->team;
    int axis = op->attr.index;
    const char *before = NULL, *inner = NULL;
    for (int i = 0; i < type.rank; i++) {
        if (i < axis) before = cjoin(e, before, "*", extent_text(e, type.dims[i]));
        if (i > axis) inner = cjoin(e, inner, "*", extent_text(e, type.dims[i]));
    }
    bool part = team->kind == TEAM_LANES;
    const char *lanes = !part ? "32" : team->threads ? arena_print(e->memory, "%d", team->threads) : "threads";
    const char *t = register_name(type.elem), *m = memory_name(type.elem), *c = cuda_register_type(type.elem);
    put(e, "{");
    e->depth++;
    put(e, "const long inner = %s, count = %s;", inner ? inner : "1", extent_text(e, type.dims[axis]));
    if (part)
        put(e, "const int lane = thread;");
    else
        put(e, "const int lane = thread %% 32;");
    put(e, "for (long line = %s; line < %s%sinner; line += %s) {", part ? "0" : "thread / 32", before ? before : "",
        before ? " * " : "", part ? "1" : "threads / 32");
    e->depth++;
    put(e, "%s *const base = %s + line / inner * count * inner + line %% inner;", memory_type(type.elem),
        buffer_name(e, v));
    fold_kind fold = op->attr.fold;
    put(e, "%s carry = %s;", c, cuda_number(e, type.elem, fold_identity(fold, type.elem)));
    const char *mask = part ? "team_mask" : "0xffffffffu",
               *none = cuda_number(e, type.elem, fold_identity(fold, type.elem));
    bool alone = part && team->threads == 1;
    int together = part ? 1 : pieces_together(type.dims[axis]);
    if (together > 1) {
        /* No piece waits for the one before it but in the last loop. */
        put(e, "for (long first = lane; first < count; first += %d * %s) {", together, lanes);
        e->depth++;
        put(e, "%s x[%d], all[%d];", c, together, together);
        put_each(e, together);
        put(e, "x[u] = %s(base + (first + u * %s) * inner);", need(e, "read_%s", m), lanes);
        end_each(e);
        put_each(e, together);
        put(e, "all[u] = %s(x[u], %s, %s);", need(e, "lanes_fold_%s_%s", fold_names[fold], t), lanes, mask);
        put(e, "x[u] = %s(x[u], %s, %s);", need(e, "lanes_scan_%s_%s", fold_names[fold], t), lanes, mask);
        end_each(e);
        put_each(e, together);
        put(e, "%s(base + (first + u * %s) * inner, %s);", need(e, "write_%s", m), lanes,
            cuda_fold_step(e, fold, type.elem, "carry", "x[u]"));
        put(e, "carry = %s;", cuda_fold_step(e, fold, type.elem, "carry", "all[u]"));
        end_each(e);
    } else {
        put(e, "for (long first = 0; first < count; first += %s) {", lanes);
        e->depth++;
        put(e, "const long at = first + lane;");
        put(e, "%s x = at < count ? %s(base + at * inner) : %s;", c, need(e, "read_%s", m), none);
        if (!alone) {
            put(e, "const %s all = %s(x, %s, %s);", c, need(e, "lanes_fold_%s_%s", fold_names[fold], t), lanes, mask);
            put(e, "x = %s(x, %s, %s);", need(e, "lanes_scan_%s_%s", fold_names[fold], t), lanes, mask);
        }
        put(e, "x = %s;", cuda_fold_step(e, fold, type.elem, "carry", "x"));
        put(e, "if (at < count) %s(base + at * inner, x);", need(e, "write_%s", m));
        put(e, "carry = %s;", alone ? "x" : cuda_fold_step(e, fold, type.elem, "carry", "all"));
    }
    e->depth--;
    put(e, "}");
    e->depth--;
    put(e, "}");
    e->depth--;
    put(e, "}");
}

void print_scan(emitter *e, const loop_node *n)
{
    tile_type type = tile_type_of(e->k, n->op->results[0]);
    int64_t loops[MAX_RANK];
    buffer_touch(e, buffer_for(e->survey, n->op->results[0]));
    if (n->number[0])
        scan_registers(e, n, layout_find(e->cuda->spread, loops, loops_of(&type, loops), 0, false));
    else
        scan_memory(e, n->op);
}
