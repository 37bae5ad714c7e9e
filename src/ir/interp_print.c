/*
 * Words of the interpreter: print statements, asserts and assumptions, values and programs in messages.
 * SPDX-License-Identifier: MIT
 */
#include "ir/interp_state.h"

#include <stdlib.h>
#include <string.h>

void interp_show_cell(dtype elem, cell c, text *out)
{
    if (elem == DT_F64)
        text_print(out, "%.10g", c.f);
    else if (dtype_is_float(elem))
        text_print(out, "%.6g", c.f);
    else if (elem == DT_BOOL)
        text_add(out, c.i ? "true" : "false");
    else if (elem == DT_U64)
        text_print(out, "%llu", (unsigned long long)c.i);
    else
        text_print(out, "%lld", (long long)c.i);
}

/* One axis of a tile: everything if it is short, else its two ends. Returns the position after it. */
static int64_t show_axis(const interp_tile *t, const uint8_t *shown, int axis, int64_t at, text *out)
{
    if (axis == t->type.rank) {
        cell c;
        if (dtype_is_float(t->type.elem))
            c.f = t->elements[at].f;
        else
            c.i = t->elements[at].i;
        if (shown && !shown[at])
            text_add(out, "\xc2\xb7"); /* a middle dot: no value */
        else
            interp_show_cell(t->type.elem, c, out);
        return at + 1;
    }
    int64_t extent = t->type.dims[axis], inner = 1;
    for (int k = axis + 1; k < t->type.rank; k++) inner *= t->type.dims[k];
    bool last = axis == t->type.rank - 1;
    int64_t front = last ? 6 : 3, back = last ? 2 : 1;
    text_add(out, "[");
    for (int64_t e = 0; e < extent; e++) {
        if (e) text_add(out, " ");
        if (extent > front + back + 1 && e == front) {
            text_add(out, "... ");
            e = extent - back;
        }
        show_axis(t, shown, axis + 1, at + e * inner, out);
    }
    text_add(out, "]");
    return at + extent * inner;
}

void interp_show_tile(const interp_tile *t, const uint8_t *shown, text *out)
{
    show_axis(t, shown, 0, 0, out);
}

static int launch_rank(const tile_kernel *k, int phase)
{
    for (int i = 0; i < k->head->op_count; i++) {
        const tile_op *op = k->head->ops[i];
        if (op->code == OP_LAUNCH && op->attr.index == phase) return op->operand_count;
    }
    return 1;
}

const char *interp_program_text(const interp *s, const int64_t program[3], char words[80])
{
    int rank = launch_rank(s->kernel, s->phase), used = 0;
    for (int axis = 0; axis < rank; axis++)
        used += snprintf(words + used, 80 - (size_t)used, axis ? ", %lld" : "%lld", (long long)program[axis]);
    return words;
}

static void show_value(const interp *s, value v, text *out)
{
    interp_tile t;
    if (interp_value(s, v, &t)) interp_show_tile(&t, t.valid, out);
}

static void causes(const interp *s, value v, uint8_t *seen, int *count, text *out)
{
    const tile_value *info = &s->kernel->values[v];
    if (seen[v] || *count > 6 || !s->slots[v]) return;
    seen[v] = 1;
    const tile_op *op = info->op;
    const char *name = info->name;
    if (op && op->code == OP_ARG) name = s->kernel->params[op->attr.index].name;
    if (name) {
        text_print(out, "%s%s = ", (*count)++ ? ", " : "", name);
        show_value(s, v, out);
        return;
    }
    for (int i = 0; op && !op->region_count && i < op->operand_count; i++) causes(s, op->operands[i], seen, count, out);
}

void interp_show_causes(const interp *s, value v, text *out)
{
    uint8_t *seen = heap_array((size_t)s->kernel->value_count, 1);
    int count = 0;
    const tile_op *op = tile_def(s->kernel, v);
    if (op && !op->region_count && op->operand_count) /* the condition itself is known: it is false */
        for (int i = 0; i < op->operand_count; i++) causes(s, op->operands[i], seen, &count, out);
    else
        causes(s, v, seen, &count, out);
    heap_free(seen);
}

void interp_print_op(interp *s, const tile_op *op)
{
    text line = {0};
    char program[80];
    int at = op->line;
    const char *path = tile_place(s->kernel, &at);
    bool imported = at != op->line;
    text_print(&line, "%s (program %s), %s%sline %d: ", s->kernel->name, interp_program_text(s, s->program, program),
               imported ? path : "", imported ? ", " : "", at);
    int next = 0, count = op->attr.count;
    bool has_valid = op->operand_count == 2 * count;
    for (const char *c = op->attr.words ? op->attr.words : ""; *c; c++) {
        if (c[0] != '{' || c[1] != '}' || next >= count) {
            text_add_bytes(&line, c, 1);
            continue;
        }
        c++;
        interp_tile t;
        if (!interp_value(s, op->operands[next], &t)) continue;
        uint8_t *shown = NULL;
        if (has_valid) {
            tile *valid = interp_get(s, op->operands[count + next]);
            tile *full = valid->count == t.count ? tile_keep(valid) : tile_expand(s, valid, &t.type);
            shown = buffer_take(s, (size_t)t.count);
            for (int64_t j = 0; j < t.count; j++) shown[j] = full->cells[j].i != 0;
            tile_drop(s, full);
        }
        interp_show_tile(&t, shown ? shown : t.valid, &line);
        buffer_give(s, shown);
        next++;
    }
    if (s->options->print) s->options->print(s->options->print_context, text_get(&line));
    text_free(&line);
}

/* The first element that the masks leave in and for which the condition is false; -1: none. */
static int64_t first_false(interp *s, const tile_op *op)
{
    tile *condition = interp_get(s, op->operands[0]);
    tile_type shape = condition->type;
    for (int k = 1; k < op->operand_count; k++) {
        tile_type mask = interp_get(s, op->operands[k])->type;
        CHECK(tile_broadcast(&shape, &mask, &shape));
    }
    int64_t n = interp_type_count(&shape), found = -1;
    uint8_t *skip = buffer_take(s, (size_t)n);
    memset(skip, 0, (size_t)n);
    for (int k = op->operand_count - 1; k >= 0; k--) {
        tile *full = tile_expand(s, interp_get(s, op->operands[k]), &shape);
        for (int64_t j = 0; j < n; j++) {
            if (skip[j]) continue;
            if (full->poison && full->poison[j]) interp_poisoned(s, "an assert");
            if (k == 0 && !full->cells[j].i && found < 0) found = j;
            skip[j] |= !full->cells[j].i;
        }
        tile_drop(s, full);
    }
    buffer_give(s, skip);
    return found;
}

void interp_assert(interp *s, const tile_op *op)
{
    if (op->code == OP_ASSUME && !s->check && !s->head) return;
    int64_t at = first_false(s, op);
    if (at < 0 || s->stop != STOP_NONE) return;
    const char *words = op->attr.words ? op->attr.words : "";
    text why = {0};
    interp_show_causes(s, op->operands[0], &why);
    if (s->head) { /* refused before anything runs */
        s->stop = STOP_LAUNCH;
        s->status = error_diagnose(s->error, QN_BAD_CALL, E503, s->kernel->file, op->line, op->column,
                                   "assume is false: %s%s%s", words, why.length ? " with " : "", text_get(&why));
    } else if (op->code == OP_ASSUME) {
        if (!interp_again(s, 709, op)) {
            interp_report(s, 709, op, "assume is false: %s%s%s", words, why.length ? " with " : "", text_get(&why));
        }
    } else {
        char program[80];
        if (!interp_again(s, 507, op))
            interp_report(s, 507, op, "assert failed: %s%s%s", words, why.length ? " with " : "", text_get(&why));
        int line = op->line;
        const char *path = tile_place(s->kernel, &line);
        if (!s->asserted)
            s->status = error_diagnose(
                s->error, QN_FAILED, E507, path, line, op->column, "assert failed in program %s: %s%s%s",
                interp_program_text(s, s->program, program), words, why.length ? " with " : "", text_get(&why));
        s->asserted = true;
        s->stop = STOP_PROGRAM;
    }
    text_free(&why);
}
