/*
 * Findings of the checking interpreter: one entry per kind and source line, counted, printed with the source and
 * advice. SPDX-License-Identifier: MIT
 */
#include "ir/interp_state.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    int code;
    const char *advice;
} advices[] = {
    {507, "the assert names what the kernel needs: check the arguments, or the kernel's own arithmetic"},
    {701, "leave such elements out with keep(index, index >= 0 && index < extent), or check the input"},
    {702, "write the element first, or give the array an initial value (out ... = 0)"},
    {703, "let the launch cover every element, declare the array `inout`, or give it an initial value (= 0)"},
    {704, "use an atomic, let one program own the element, or read in another launch (`then launch`)"},
    {705, "make the indices of one store differ, or use an atomic"},
    {706, "guard the operation that made it (for example subtract the maximum, or add an epsilon)"},
    {707, "use a wider type, or guard the divisor"},
    {708, "use fill(..., 0) for the value where the slice sticks out, or declare the tile inside the loop"},
    {709, "check the argument; a program must not wait for another one"},
};

void findings_free(findings *f)
{
    heap_free(f->items);
    memset(f, 0, sizeof(*f));
}

static finding *find(findings *f, int code, const tile_op *op)
{
    for (int i = 0; i < f->count; i++)
        if (f->items[i].code == code && f->items[i].line == op->line) return &f->items[i];
    return NULL;
}

bool interp_again(interp *s, int code, const tile_op *op)
{
    finding *known = find(s->found, code, op);
    if (known) known->times++;
    return known != NULL;
}

finding *interp_report(interp *s, int code, const tile_op *op, const char *format, ...)
{
    findings *f = s->found;
    if (f->count == f->capacity) {
        f->capacity = f->capacity ? 2 * f->capacity : 8;
        f->items = heap_resize(f->items, sizeof(finding) * (size_t)f->capacity);
    }
    finding *item = &f->items[f->count++];
    *item = (finding){.code = code, .line = op->line, .column = op->column, .times = 1};
    for (int axis = 0; axis < 3; axis++) {
        item->programs[0][axis] = s->program[axis];
        item->programs[1][axis] = -1;
    }
    va_list list;
    va_start(list, format);
    plain_print_list(item->message, sizeof(item->message), format, list);
    va_end(list);
    return item;
}

static void print_source(const tile_kernel *k, int line, int column, text *out)
{
    if (!k->source_lines || line < 1 || line > k->source_line_count) return;
    const char *words = k->source_lines[line - 1];
    text_print(out, "%s\n", words);
    for (int i = 1; i < column && words[i - 1]; i++) text_add(out, words[i - 1] == '\t' ? "\t" : " ");
    text_add(out, "^\n");
}

void findings_print(const findings *f, const tile_kernel *k, text *out)
{
    int rank = 1; /* of the launch: how many program numbers are worth showing */
    for (int i = 0; i < k->head->op_count; i++)
        if (k->head->ops[i]->code == OP_LAUNCH) rank = MAXIMUM(rank, k->head->ops[i]->operand_count);
    for (int i = 0; i < f->count; i++) {
        const finding *item = &f->items[i];
        int line = item->line;
        const char *path = tile_place(k, &line);
        text_print(out, "%s:%d:%d: %c%d: %s", path, line, item->column, item->code < 700 ? 'E' : 'R', item->code,
                   item->message);
        const char *separator = " (";
        if (item->programs[0][0] >= 0) {
            text_print(out, "%sprogram %lld", separator, (long long)item->programs[0][0]);
            for (int axis = 1; axis < rank; axis++) text_print(out, ", %lld", (long long)item->programs[0][axis]);
            separator = "; ";
        }
        if (item->times > 1) {
            text_print(out, "%s%lld times", separator, (long long)item->times);
            separator = "; ";
        }
        text_add(out, separator[0] == ';' ? ")\n" : "\n");
        print_source(k, item->line, item->column, out);
        for (int a = 0; a < COUNT(advices); a++)
            if (advices[a].code == item->code) text_print(out, "  %s\n", advices[a].advice);
    }
}
