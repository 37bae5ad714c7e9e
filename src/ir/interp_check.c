/*
 * What a checking run knows of values: where a NaN or infinity was born (R706), integers that do not fit and divisions
 * by zero (R707), elements that stay from an earlier assignment (R708).
 *
 * A NaN is born where no operand is NaN, an infinity where every operand is finite; else it keeps the birth of the
 * operand it came from. What comes with an input is born there and never reported.
 * SPDX-License-Identifier: MIT
 */
#include "ir/interp_state.h"
#include "ir/scalar.h"

#include <float.h>
#include <math.h>
#include <string.h>

bool has_nonfinite(const tile *t)
{
    bool found = false;
    for (int64_t j = 0; j < t->count; j++) found |= !(fabs(t->cells[j].f) <= DBL_MAX);
    return found;
}

int32_t *birth_table(interp *s, tile *t)
{
    if (!t->birth) {
        t->birth = buffer_take(s, sizeof(int32_t) * (size_t)t->count);
        memset(t->birth, 0, sizeof(int32_t) * (size_t)t->count);
    }
    return t->birth;
}

int32_t birth_of(const tile *t, int64_t at)
{
    return t->birth ? t->birth[at] : 0;
}

int32_t birth_pick(double result, int32_t here, int count, const tile *const *tiles, const int64_t *at)
{
    int32_t infinite = 0;
    for (int k = 0; k < count; k++) {
        if (!dtype_is_float(tiles[k]->type.elem)) continue;
        double x = tiles[k]->cells[at[k]].f;
        if (isnan(x)) return birth_of(tiles[k], at[k]);
        if (isinf(x) && !infinite) infinite = birth_of(tiles[k], at[k]);
    }
    return infinite && !isnan(result) ? infinite : here;
}

void check_births(interp *s, const tile_op *op, tile *r, tile *const *operands)
{
    int32_t *birth = birth_table(s, r);
    int64_t n = r->count;
    for (int64_t j = 0; j < n; j++) {
        double x = r->cells[j].f;
        if (isfinite(x) || (r->poison && r->poison[j])) continue;
        const tile *tiles[3] = {operands[0], operands[0], operands[0]};
        int64_t at[3] = {0, 0, 0};
        int count = 0;
        for (int k = 0; k < op->operand_count; k++) {
            tiles[k] = operands[k];
            at[k] = operands[k]->count == n ? j : 0;
            count++;
        }
        if (op->code == OP_SELECT) {
            int arm = tiles[0]->cells[at[0]].i ? 1 : 2;
            birth[j] = birth_of(tiles[arm], at[arm]);
        } else {
            birth[j] = birth_pick(x, (int32_t)op->results[0], count, tiles, at);
        }
    }
}

static void report_integer(interp *s, const tile_op *op, cell a, cell b, dtype elem)
{
    text shown = {0};
    interp_show_cell(elem, a, &shown);
    if (op->code == OP_CONVERT) {
        interp_report(s, 707, op, "%s does not fit %s", text_get(&shown),
                      dtypes[tile_type_of(s->kernel, op->results[0]).elem].text);
    } else if (op->code == OP_DIV || op->code == OP_MOD) {
        interp_report(s, 707, op, "%s divided by zero; the result is 0", text_get(&shown));
    } else {
        text other = {0};
        interp_show_cell(elem, b, &other);
        const char *sign = op->code == OP_ADD ? "+" : op->code == OP_SUB ? "-" : "*";
        if (op->code == OP_NEG)
            interp_report(s, 707, op, "index arithmetic overflowed: -(%s) in %s", text_get(&shown), dtypes[elem].text);
        else
            interp_report(s, 707, op, "index arithmetic overflowed: %s %s %s in %s", text_get(&shown), sign,
                          text_get(&other), dtypes[elem].text);
        text_free(&other);
    }
    text_free(&shown);
}

void check_integers(interp *s, const tile_op *op, const tile *r, tile *const *operands)
{
    const tile *a = operands[0], *b = operands[1];
    dtype from = a->type.elem, to = r->type.elem;
    bool divides = op->code == OP_DIV || op->code == OP_MOD;
    bool converts = op->code == OP_CONVERT && op->flags & F_IMPLICIT && !dtype_is_float(from) && to != DT_BOOL;
    bool indexes =
        op->flags & F_INDEX && (op->code == OP_ADD || op->code == OP_SUB || op->code == OP_MUL || op->code == OP_NEG);
    if (s->options->any_value || (!divides && !converts && !indexes)) return;
    int64_t n = r->count;
    int sa = a->count == n && n != 1, sb = b->count == n && n != 1;
    for (int64_t j = 0; j < n; j++) {
        cell x = a->cells[j * sa], y = b->cells[j * sb];
        bool wrong = divides    ? y.i == 0
                     : converts ? !scalar_fits(from, to, x.i)
                                : scalar_overflows(op->code, from, x.i, y.i);
        if (wrong && !(r->poison && r->poison[j]) && !interp_again(s, 707, op)) report_integer(s, op, x, y, from);
    }
}

/* Whether `v` is computed from `old`: then the assignment reads the variable, and what stays is meant to stay. */
static bool op_depends(const tile_kernel *k, const tile_op *op, value old, uint8_t *seen);

static bool depends(const tile_kernel *k, value v, value old, uint8_t *seen)
{
    if (v == old) return true;
    const tile_op *op = tile_def(k, v);
    if (!op || seen[v]) return false;
    seen[v] = 1;
    return op_depends(k, op, old, seen);
}

static bool op_depends(const tile_kernel *k, const tile_op *op, value old, uint8_t *seen)
{
    for (int i = 0; i < op->operand_count; i++)
        if (depends(k, op->operands[i], old, seen)) return true;
    for (int r = 0; r < op->region_count; r++)
        for (int i = 0; i < op->regions[r]->op_count; i++)
            if (op_depends(k, op->regions[r]->ops[i], old, seen)) return true;
    return false;
}

static int8_t how_assigned(interp *s, const tile_op *op)
{
    const tile_kernel *k = s->kernel;
    uint8_t *seen = buffer_take(s, (size_t)k->value_count);
    memset(seen, 0, (size_t)k->value_count);
    bool reads = depends(k, op->operands[1], op->operands[2], seen);
    buffer_give(s, seen);
    if (reads) return ASSIGN_READS;
    const char *name = k->values[op->results[0]].name, *old_name = k->values[op->operands[2]].name;
    return name && old_name && strcmp(name, old_name) != 0 ? ASSIGN_COPY : ASSIGN_PLAIN;
}

void check_assignment(interp *s, const tile_op *op, tile *r, tile *const *operands)
{
    value result = op->results[0];
    if (!s->assigned[result]) s->assigned[result] = how_assigned(s, op);
    if (s->assigned[result] == ASSIGN_READS) return;
    const tile *mask = operands[0], *before = operands[2];
    int64_t n = r->count;
    int sm = mask->count == n && n != 1, sb = before->count == n && n != 1;
    const uint8_t *was = before->plain && s->assigned[result] == ASSIGN_PLAIN ? before->plain : NULL;
    r->plain = buffer_take(s, (size_t)n + 1);
    for (int64_t j = 0; j < n; j++) {
        bool skip = (mask->poison && mask->poison[j * sm]) || (r->poison && r->poison[j]);
        bool writes = mask->cells[j * sm].i != 0;
        bool stays = was && !writes && was[j * sb];
        r->plain[j] = !skip && (writes || stays);
        if (stays && !skip && !interp_again(s, 708, op)) {
            const char *name = s->kernel->values[result].name;
            text shown = {0};
            interp_show_cell(r->type.elem, r->cells[j], &shown);
            interp_report(s, 708, op,
                          "`%s` keeps element %lld (%s) of an earlier assignment, where the new value is invalid",
                          name ? name : "the variable", (long long)j, text_get(&shown));
            text_free(&shown);
        }
    }
}

void check_stored(interp *s, const tile_op *op, int array, const tile *t, const uint8_t *skip, const int64_t *places)
{
    const tile_kernel *k = s->kernel;
    if (s->options->any_value) return;
    if (k->params[array].kind == PARAM_SCRATCH) return; /* not part of the result; the birth travels with it */
    for (int64_t j = 0; j < t->count; j++) {
        int32_t birth = birth_of(t, j);
        if (birth <= 0 || skip[j] || interp_again(s, 706, op)) continue;
        const tile_op *source = tile_def(k, (value)birth);
        double x = t->cells[j].f;
        text place = {0};
        shadow_index(s, array, places[j], &place);
        const char *what = isnan(x) ? "NaN" : x > 0 ? "infinity" : "-infinity";
        int line = source ? source->line : 0;
        finding *f;
        if (source && source->code == OP_CONST) {
            f = interp_report(s, 706, op, "%s stored in `%s%s`; it is the constant on line %d", what,
                              k->params[array].name, text_get(&place), line);
        } else {
            f = interp_report(s, 706, op, "%s stored in `%s%s`; born on line %d from `%s`", what, k->params[array].name,
                              text_get(&place), line, source ? ops[source->code].text : "?");
        }
        f->other_line = line;
        text_free(&place);
    }
}
