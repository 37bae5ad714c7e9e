/*
 * Effects and scans. In: ops whose tiles are kept in memory. Out: statements for all threads of the team: a failed
 * assert reports and ends the program, `print` puts a record into the device's ring, a scan runs along lines of a kept
 * tile, each line by one warp.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/nest.h"

#include <inttypes.h>
#include <string.h>

const char *cuda_leave_label(const emitter *e)
{
    return e->cuda->spread->before ? "last_program" : "next_program";
}

void cuda_failure(emitter *e, text *to, int line, const char *bad, bool uniform)
{
    const team *team = &e->cuda->spread->team;
    bool alone = team->kind == TEAM_LANES && team->threads == 1;
    const char *any = uniform || alone           ? bad
                      : team->kind == TEAM_LANES ? arena_print(e->memory, "__any_sync(team_mask, %s)", bad)
                                                 : arena_print(e->memory, "__syncthreads_or(%s)", bad);
    text_print(to, "if (%s) {\n", any);
    text_print(to, "    %s%s(frame.report, 1, %d, program0, program1, program2);\n", alone ? "" : "if (thread == 0) ",
               need(e, "report_failure"), line);
    text_print(to, "    goto %s;\n}\n", cuda_leave_label(e));
}

/* ---- print ---- */

typedef struct print_count {
    const tile_op *wanted;
    int number, found;
} print_count;

static void count_print(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    print_count *c = context;
    if (op->code != OP_PRINT) return;
    if (op == c->wanted) c->found = c->number;
    c->number++;
}

/* Which PRINT of the kernel it is, in order. */
static int print_number(const emitter *e, const tile_op *op)
{
    print_count c = {.wanted = op};
    for (int p = 0; p < e->k->phase_count; p++) tile_walk((tile_kernel *)e->k, e->k->phases[p], count_print, &c);
    return c.found;
}

static const char *elements_text(emitter *e, const tile_type *type)
{
    const char *words = NULL;
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i] != 1) words = cjoin(e, words, "*", extent_text(e, type->dims[i]));
    return words ? words : "1";
}

static void put_shown(emitter *e, value v)
{
    tile_type type = tile_type_of(e->k, v);
    put(e, "*record++ = %d;", type.rank);
    for (int i = 0; i < type.rank; i++) put(e, "*record++ = %s;", extent_text(e, type.dims[i]));
    if (type.rank)
        put(e, "record = %s(record, %s, %s);", need(e, "print_%s", memory_name(type.elem)), buffer_name(e, v),
            elements_text(e, &type));
    else
        put(e, "*record++ = %s(%s);", need(e, "print_word_%s", register_name(type.elem)), emit_name(e, v));
}

void cuda_print(emitter *e, const tile_op *op)
{
    const char *words = "5";
    for (int i = 0; i < op->operand_count; i++) {
        tile_type type = tile_type_of(e->k, op->operands[i]);
        words = arena_print(e->memory, "%s + %d + %s", words, type.rank + 1, elements_text(e, &type));
    }
    bool alone = e->cuda->spread->team.kind == TEAM_LANES && e->cuda->spread->team.threads == 1;
    put(e, "if (frame.print%s) {", alone ? "" : " && thread == 0");
    e->depth++;
    put(e, "long *record = %s(frame.print, %s, %d, program0, program1, program2);", need(e, "print_open"), words,
        print_number(e, op));
    put(e, "if (record) {");
    e->depth++;
    for (int i = 0; i < op->operand_count; i++) put_shown(e, op->operands[i]);
    e->depth--;
    put(e, "}");
    e->depth--;
    put(e, "}");
}
