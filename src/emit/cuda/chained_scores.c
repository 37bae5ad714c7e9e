/*
 * Arithmetic of the recipe `chained` on registers. In: values of the loop. Out: text of passes over a step's scores.
 *
 * `x` is an element of a thread's part of the scores or sums, `h` which of its two fixed rows it is in, `column` its
 * moving row. A value with one number a fixed row is an array of two; one a moving row is read from the step's vectors,
 * two neighbours at once. Exponentials of differences are powers of two, with factors folded into one multiplication.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/chained_parts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const double log2_of_e = 1.44269504088896340736;

void chained_begin_pass(chained_printer *p)
{
    memset(p->known, 0, sizeof(bool) * (size_t)p->e->k->value_count);
}

static const char *mask_text(chained_printer *p, value v)
{
    static const char *const signs[] = {"<", "<=", ">", ">="};
    const chained *c = p->c;
    emitter *e = p->e;
    unsigned bits = 0;
    const char *words = NULL;
    CHECK(chained_mask(c, v, &bits));
    for (int i = 0; i < c->condition_count && p->masked; i++) {
        const chained_condition *q = &c->conditions[i];
        if (!(bits >> i & 1)) continue;
        const char *one = q->limit ? arena_print(e->memory, "column < edge%d", i)
                                   : arena_print(e->memory, "column %s edge%d + h * 8", signs[q->compare - OP_LT], i);
        words = words ? arena_print(e->memory, "%s && %s", words, one) : one;
    }
    return words;
}

/* Where masks begin or end within the step: positions are small beside 2^31 (the copy engine takes no others). */
static void print_edges(chained_printer *p)
{
    emitter *e = p->e;
    for (int i = 0; i < p->c->condition_count && p->masked; i++) {
        const chained_condition *q = &p->c->conditions[i];
        const tile_op *limit = q->limit ? tile_def(e->k, q->limit) : NULL;
        if (limit && limit->code != OP_ARG) { /* a length from anywhere */
            const char *far = arena_print(e->memory, "%s - %s", emit_name(e, q->limit), emit_name(e, q->moving));
            put(e, "const int edge%d = %s < 0 ? 0 : %s > %d ? %d : (int)(%s);", i, far, far, p->c->columns,
                p->c->columns, far);
            continue;
        }
        put(e, "const int edge%d = (int)(%s%s - %s);", i, emit_name(e, q->limit ? q->limit : q->fixed),
            q->limit ? "" : arena_print(e->memory, " + row + %" PRId64, q->more), emit_name(e, q->moving));
    }
}

static bool is_mask(const chained_printer *p, const tile_op *op)
{
    unsigned bits;
    return op->code == OP_SELECT && tile_type_of(p->e->k, op->operands[0]).rank &&
           !chained_is_row_test(p->c, op->operands[0]) && chained_mask(p->c, op->operands[0], &bits);
}

static bool is_product_of_scores(const chained_printer *p, value v)
{
    for (int i = 0; i < p->c->product_count; i++)
        if (p->c->products[i].dot->results[0] == v) return true;
    return false;
}

/* x * factor, as far as factors are constants. */
static value without_factor(const chained_printer *p, value v, double *factor)
{
    const tile_op *op = tile_def(p->e->k, v);
    number n;
    while (op && op->code == OP_MUL && !is_product_of_scores(p, v) && !(p->late && v == p->c->cut)) {
        int side = tile_is_constant(p->e->k, op->operands[1], &n) ? 0 : 1;
        if (side && !tile_is_constant(p->e->k, op->operands[0], &n)) break;
        *factor *= n.f;
        v = op->operands[side];
        op = tile_def(p->e->k, v);
    }
    return v;
}

static const char *float_text(emitter *e, double x)
{
    return cuda_number(e, DT_F32, (number){.f = x});
}

/* exp(x - y), also of a masked x: 2^(x * f - y * log2 e); NULL: it is something else. */
static const char *power_text(chained_printer *p, const tile_op *op)
{
    emitter *e = p->e;
    const tile_op *difference = op->code == OP_EXP ? tile_def(e->k, op->operands[0]) : NULL;
    if (!difference || difference->code != OP_SUB || chained_kind_of(p->c, difference->results[0]) != CHAINED_SCORE)
        return NULL;
    chained_kind kind = chained_kind_of(p->c, difference->operands[1]);
    if (kind != CHAINED_FIXED && kind != CHAINED_MOVING) return NULL;
    value x = difference->operands[0];
    const tile_op *masked = tile_def(e->k, x);
    const char *mask = NULL;
    number other;
    if (masked && is_mask(p, masked)) {
        if (!tile_is_constant(e->k, masked->operands[2], &other) || other.f != -INFINITY) return NULL;
        mask = mask_text(p, masked->operands[0]);
        x = masked->operands[1];
    }
    double factor = log2_of_e;
    x = without_factor(p, x, &factor);
    const char *below = chained_element(p, difference->operands[1]);
    const char *power = arena_print(e->memory, "%s * %s - %s * %s", chained_element(p, x), float_text(e, factor), below,
                                    float_text(e, log2_of_e));
    if (mask) power = arena_print(e->memory, "%s ? %s : %s", mask, power, float_text(e, -INFINITY));
    return arena_print(e->memory, "%s(%s)", need(e, "ex2_approx"), power);
}

/* A maximum of x * f is that of x, times f: the element of x; f is left in *factor. */
static const char *folded_element(chained_printer *p, const tile_op *fold, double *factor)
{
    emitter *e = p->e;
    value x = fold->operands[0];
    const tile_op *masked = tile_def(e->k, x);
    const char *mask = NULL;
    double own = 1;
    number other;
    *factor = 1;
    if (fold->attr.fold != FOLD_MAX) return chained_element(p, x);
    if (masked && is_mask(p, masked)) {
        if (!tile_is_constant(e->k, masked->operands[2], &other) || other.f != -INFINITY) return chained_element(p, x);
        mask = mask_text(p, masked->operands[0]);
        x = masked->operands[1];
    }
    value inner = without_factor(p, x, &own);
    if (own > 0 && isfinite(own)) {
        x = inner;
        *factor = own;
    }
    const char *element = chained_element(p, x);
    return mask ? arena_print(e->memory, "(%s ? %s : %s)", mask, element, float_text(e, -INFINITY)) : element;
}

/* A number of an array for this score, straight from there; of neighbours along memory both at once, which the compiler then
 * asks for once. Places outside are brought inside, without a branch: what is read there is masked, or of no row. */
static void print_table(chained_printer *p, const tile_op *op)
{
    emitter *e = p->e;
    const struct access *a = &op->attr.access;
    const tile_param *param = &e->k->params[a->array];
    const char *pointer = arena_print(e->memory, "%s_array", param->name), *name = emit_name(e, op->results[0]);
    bool pairs = param->facts.bulk;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        bool slice = a->kind[axis] == INDEX_SLICE;
        if (axis == a->rank - 1) pairs &= slice && op->operands[operand] == p->c->loop->regions[0]->args[0];
        operand += slice ? 2 : 1;
    }
    e->array_used[a->array] = true;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        value at = op->operands[operand];
        bool slice = a->kind[axis] == INDEX_SLICE, moves = at == p->c->loop->regions[0]->args[0];
        const char *index = emit_name(e, at);
        if (slice)
            index = arena_print(e->memory, "(%s + %s)", index,
                                !moves  ? "(row + h * 8)"
                                : pairs ? "(column - x % 2)"
                                        : "column");
        if (slice && (!moves || p->masked))
            index = arena_print(e->memory, "%s(%s, %s - %d)", need(e, "min_i64"), index,
                                array_extent(e, a->array, axis), moves && pairs ? 2 : 1);
        operand += slice ? 2 : 1;
        pointer = arena_print(e->memory, "%s + %s * %s", pointer, index, stride_text(e, a->array, axis));
    }
    const char *type = cuda_register_type(param->elem);
    if (!pairs) {
        put(e, "const %s %s = %s(%s);", type, name, need(e, "read_%s", memory_name(param->elem)), pointer);
        return;
    }
    put(e, "%s %s_pair[2];", type, name);
    put(e, "%s(%s_pair, %s);", need(e, "load_%sx2", memory_name(param->elem)), name, pointer);
    put(e, "const %s %s = %s_pair[x %% 2];", type, name, name);
}

/* Where a score lies along one of its axes; NULL: the value is something else. */
static const char *where_text(chained_printer *p, value v)
{
    emitter *e = p->e;
    int axis;
    value start;
    int64_t more;
    if (dtype_is_float(tile_type_of(e->k, v).elem) || !chained_find_position(p->c, v, &axis, &start, &more))
        return NULL;
    return arena_print(e->memory, "(%s + %s + %" PRId64 "L)", emit_name(e, start),
                       axis == (p->c->turned ? 0 : 1) ? "column" : "(row + h * 8)", more);
}

/* Printed as a declaration, once in each pass; its name. */
static const char *virtual_element(chained_printer *p, value v)
{
    emitter *e = p->e;
    const tile_op *op = tile_def(e->k, v);
    const char *name = emit_name(e, v), *operands[3] = {0};
    if (p->known[v]) return name;
    const char *position = where_text(p, v);
    if (position) return position;
    if (op->code == OP_BROADCAST || op->code == OP_RESHAPE) return chained_element(p, op->operands[0]);
    p->known[v] = true;
    if (op->code == OP_LOAD) {
        print_table(p, op);
        return name;
    }
    bool narrows = op->code == OP_CONVERT && tile_type_of(e->k, v).elem == p->c->elem;
    const char *power = power_text(p, op);
    if (power) {
        put(e, "const float %s = %s;", name, power);
        return name;
    }
    const char *type = cuda_register_type(tile_type_of(e->k, v).elem);
    if (is_mask(p, op)) {
        const char *mask = mask_text(p, op->operands[0]), *yes = chained_element(p, op->operands[1]);
        if (mask)
            put(e, "const %s %s = %s ? %s : %s;", type, name, mask, yes, chained_element(p, op->operands[2]));
        else
            put(e, "const %s %s = %s;", type, name, yes);
        return name;
    }
    for (int i = 0; i < op->operand_count && i < 3; i++) operands[i] = chained_element(p, op->operands[i]);
    if (op->code == OP_DIV && dtype_is_float(tile_type_of(e->k, v).elem) &&
        chained_kind_of(p->c, op->operands[1]) == CHAINED_FIXED) { /* one division a row */
        put(e, "const float %s = %s * (1 / %s);", name, operands[0], operands[1]);
        return name;
    }
    /* What is rounded to the type of the operands is packed in that type anyway. */
    put(e, "const %s %s = %s;", type, name, narrows ? operands[0] : cuda_expression(e, op, operands));
    return name;
}

const char *chained_element(chained_printer *p, value v)
{
    emitter *e = p->e;
    const chained *c = p->c;
    if (v == c->products[0].dot->results[0] || (p->late && v == c->cut)) return "scores[x]";
    if (c->product_count > 1 && v == c->products[1].dot->results[0]) return "more[x]";
    for (int i = 0; i < c->sum_count; i++)
        if (v == c->loop->results[c->sums[i].carried]) return arena_print(e->memory, "sums%d[x]", i);
    for (int i = 0; i < c->vector_count; i++)
        if (v == c->vectors[i]->results[0]) return arena_print(e->memory, "vector%d.at[x %% 2]", i);
    const tile_op *op = tile_def(e->k, v);
    switch (chained_kind_of(c, v)) {
    case CHAINED_SCALAR: return emit_name(e, v);
    case CHAINED_FIXED:
        if (where_text(p, v)) return where_text(p, v);
        if (chained_is_truth(c, v) || dtype_is_integer(tile_type_of(e->k, v).elem)) return virtual_element(p, v);
        if (p->rows[v] || !op) return arena_print(e->memory, "%s[h]", emit_name(e, v));
        return chained_element(p, op->operands[0]); /* a broadcast scalar */
    default: return virtual_element(p, v);
    }
}

const char *chained_pack_name(emitter *e, dtype elem)
{
    return need(e, "pack_%s", elem == DT_BF16 ? "bf16" : "f16");
}

/* ---- rows ---- */

void chained_print_row(chained_printer *p, const tile_op *op)
{
    emitter *e = p->e;
    value v = op->results[0];
    const char *operands[3] = {0};
    chained_begin_pass(p);
    if (op->code == OP_BROADCAST && !p->after && !tile_def(e->k, op->operands[0])) return;
    for (int i = 0; i < op->operand_count && i < 3; i++) operands[i] = chained_element(p, op->operands[i]);
    const char *expression =
        op->code == OP_BROADCAST || op->code == OP_RESHAPE ? operands[0] : cuda_expression(e, op, operands);
    put(e, "%s %s[2];", cuda_register_type(tile_type_of(e->k, v).elem), emit_name(e, v));
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int h = 0; h < 2; h++) %s[h] = %s;", emit_name(e, v), expression);
    p->rows[v] = true;
}

const char *chained_row_pointer(chained_printer *p, const tile_op *op, const char *row, const char **test)
{
    emitter *e = p->e;
    const struct access *a = &op->attr.access;
    const char *name = e->k->params[a->array].name;
    const char *pointer = arena_print(e->memory, "%s_array", name);
    e->array_used[a->array] = true;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        const char *index = emit_name(e, op->operands[operand]);
        if (a->kind[axis] == INDEX_SLICE) index = arena_print(e->memory, "(%s + %s)", index, row);
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
        pointer = arena_print(e->memory, "%s + %s * %s", pointer, index, stride_text(e, a->array, axis));
        if (!a->safe[axis])
            *test = arena_print(e->memory, "%s%s(unsigned long)%s < (unsigned long)%s", *test, **test ? " && " : "",
                                index, array_extent(e, a->array, axis));
    }
    return pointer;
}

void chained_print_fixed(chained_printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const tile_block *block = c->kernel->phases[c->phase];
    for (int i = 0; i < block->op_count && block->ops[i] != c->loop; i++) {
        const tile_op *op = block->ops[i];
        if (!op->result_count) continue;
        value v = op->results[0];
        if (chained_kind_of(c, v) != CHAINED_FIXED || tile_type_of(e->k, v).elem != DT_F32) continue;
        if (op->code != OP_LOAD) {
            if (op->code != OP_BROADCAST) chained_print_row(p, op);
            continue;
        }
        const char *test = "", *pointer = chained_row_pointer(p, op, "row + h * 8", &test);
        const char *read = need(e, "read_%s", memory_name(tile_type_of(e->k, v).elem));
        put(e, "float %s[2];", emit_name(e, v));
        text_add(e->out, "#pragma unroll\n");
        put(e, "for (int h = 0; h < 2; h++) %s[h] = %s ? %s(%s) : 0;", emit_name(e, v), *test ? test : "true", read,
            pointer);
        p->rows[v] = true;
    }
}

/* ---- passes over the scores ---- */

static bool rows_stand(const chained_printer *p, value v, bool *seen)
{
    const chained *c = p->c;
    const tile_op *op = tile_def(c->kernel, v);
    chained_kind kind = chained_kind_of(c, v);
    if (seen[v] || kind == CHAINED_SCALAR || v == c->products[0].dot->results[0]) return true;
    if (!dtype_is_float(tile_type_of(c->kernel, v).elem) && !chained_is_row_test(c, v)) return true;
    if (kind == CHAINED_FIXED) return p->rows[v] || !op || op->code == OP_BROADCAST;
    seen[v] = true; /* who does not stand ends the whole question */
    for (int i = 0; op && i < op->operand_count; i++)
        if (!rows_stand(p, op->operands[i], seen)) return false;
    return true;
}

/* Do all rows that a score is computed from stand already? */
static bool is_ready(const chained_printer *p, value v)
{
    return rows_stand(p, v, ARENA_ARRAY(p->e->memory, bool, p->c->kernel->value_count));
}

static void open_pass(chained_printer *p)
{
    emitter *e = p->e;
    chained_begin_pass(p);
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int x = 0; x < %d; x++) {", p->c->columns / 2);
    e->depth++;
    put(e, "const int h = x / 2 %% 2, column = x / 4 * 8 + lane %% 4 * 2 + x %% 2;");
    put(e, "(void)h, (void)column;");
}

static void close_pass(chained_printer *p)
{
    p->e->depth--;
    put(p->e, "}");
}

void chained_print_exchange(chained_printer *p, value v, fold_kind fold)
{
    emitter *e = p->e;
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int h = 0; h < 2; h++) {");
    for (int far = 1; far < 3; far++) {
        const char *mine = arena_print(e->memory, "%s[h]", emit_name(e, v));
        const char *other = arena_print(e->memory, "__shfl_xor_sync(~0u, %s[h], %d)", emit_name(e, v), far);
        put(e, "    %s = %s;", mine, cuda_fold_step(e, fold, DT_F32, mine, other));
    }
    put(e, "}");
}

static void print_pass(chained_printer *p, int from, bool *weights_done)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const tile_block *body = c->loop->regions[0];
    const tile_op *folds[8];
    double factors[8];
    value own = c->sums[0].weights;
    int count = 0;
    for (int i = from; i < body->op_count && count < 8; i++) {
        const tile_op *op = body->ops[i];
        if (op->code == OP_REDUCE && !p->folded[op->results[0]] && is_ready(p, op->operands[0])) folds[count++] = op;
    }
    bool weights = !*weights_done && is_ready(p, own);
    for (int i = 0; i < count; i++) {
        number identity = fold_identity(folds[i]->attr.fold, DT_F32);
        const char *start = cuda_number(e, DT_F32, identity);
        put(e, "float %s[2] = {%s, %s};", emit_name(e, folds[i]->results[0]), start, start);
    }
    open_pass(p);
    for (int i = 0; i < count; i++) {
        const char *name = arena_print(e->memory, "%s[h]", emit_name(e, folds[i]->results[0]));
        put(e, "%s = %s;", name,
            cuda_fold_step(e, folds[i]->attr.fold, DT_F32, name, folded_element(p, folds[i], &factors[i])));
    }
    if (weights) put(e, "scores[x] = %s;", chained_element(p, own));
    close_pass(p);
    *weights_done |= weights;
    for (int i = 0; i < count; i++) {
        value v = folds[i]->results[0];
        p->folded[v] = p->rows[v] = true;
        if (v == c->lane_sum) continue; /* exchanged behind the loop */
        chained_print_exchange(p, v, folds[i]->attr.fold);
        if (factors[i] != 1)
            put(e, "%s[0] *= %s, %s[1] *= %s;", emit_name(e, v), float_text(e, factors[i]), emit_name(e, v),
                float_text(e, factors[i]));
    }
}

static void print_scalars_of_step(chained_printer *p)
{
    const tile_block *body = p->c->loop->regions[0];
    for (int i = 0; i + 1 < body->op_count; i++)
        if (!tile_type_of(p->e->k, body->ops[i]->results[0]).rank) cuda_scalar_op(p->e, body->ops[i]);
}

void chained_print_softmax(chained_printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const tile_block *body = c->loop->regions[0];
    const tile_op *yield = body->ops[body->op_count - 1];
    bool weights = false;
    for (int i = 0; i + 1 < body->op_count; i++) {
        const tile_op *op = body->ops[i];
        value v = op->result_count ? op->results[0] : 0;
        if (!v || chained_is_product(c, op)) continue;
        p->rows[v] = p->folded[v] = false;
    }
    print_scalars_of_step(p);
    print_edges(p);
    for (int i = 0; i + 1 < body->op_count; i++) {
        const tile_op *op = body->ops[i];
        value v = op->results[0];
        tile_type type = tile_type_of(e->k, v);
        if (chained_is_product(c, op) || op->code == OP_LOAD || !type.rank) continue;
        if ((!dtype_is_float(type.elem) && !chained_is_row_test(c, v)) || chained_kind_of(c, v) != CHAINED_FIXED)
            continue;
        if (op->code == OP_REDUCE) {
            if (!p->folded[v]) print_pass(p, i, &weights);
        } else {
            chained_print_row(p, op);
        }
    }
    if (!weights) print_pass(p, body->op_count, &weights);
    for (int i = 0; i < yield->operand_count; i++) {
        if (i == c->sums[0].carried || yield->operands[i] == body->args[1 + i]) continue;
        const char *to = emit_name(e, body->args[1 + i]), *from = emit_name(e, yield->operands[i]);
        put(e, "%s[0] = %s[0], %s[1] = %s[1];", to, from, to, from);
    }
}

/* ---- passes without folds ---- */

/* Two neighbours at once: they share their vectors' pair and become one register. */
void chained_print_weights(chained_printer *p, bool late)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const tile_block *body = c->loop->regions[0];
    p->late = late;
    print_scalars_of_step(p);
    print_edges(p);
    if (!late)
        for (int i = 0; i + 1 < body->op_count; i++) {
            const tile_op *op = body->ops[i];
            if (chained_kind_of(c, op->results[0]) == CHAINED_FIXED && op->code != OP_LOAD &&
                dtype_is_float(tile_type_of(e->k, op->results[0]).elem))
                chained_print_row(p, op);
        }
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int pair = 0; pair < %d; pair++) {", c->columns / 4);
    e->depth++;
    for (int i = 0; i < c->vector_count; i++)
        put(e, "const pair_f32 vector%d = *(const pair_f32 *)(vectors + %d + pair / 2 * 8 + lane %% 4 * 2);", i,
            i * c->columns);
    for (int i = 0; i < c->sum_count; i++)
        if (c->sums[i].late == late) put(e, "float weight%d[2];", i);
    chained_begin_pass(p);
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int side = 0; side < 2; side++) {");
    e->depth++;
    put(e, "const int x = pair * 2 + side, h = pair %% 2, column = pair / 2 * 8 + lane %% 4 * 2 + side;");
    put(e, "(void)h, (void)column;");
    const char *kept = !late && c->cut ? chained_element(p, c->cut) : NULL;
    for (int i = 0; i < c->sum_count; i++)
        if (c->sums[i].late == late) put(e, "weight%d[side] = %s;", i, chained_element(p, c->sums[i].weights));
    if (kept) put(e, "scores[x] = %s;", kept);
    e->depth--;
    put(e, "}");
    for (int i = 0; i < c->sum_count; i++)
        if (c->sums[i].late == late)
            put(e, "weights%d[pair] = %s(weight%d[0], weight%d[1]);", i, chained_pack_name(e, c->elem), i, i);
    close_pass(p);
    p->late = false;
}
