/*
 * The recipe `chained` as CUDA C. In: its schedule (schedule/chained.h). Out: one __global__ function.
 *
 * Names in the text: `call` the parameter, `frame` the rest of it; `room` the left operand's and later the result's
 * lines; `scores` and `sums` the registers of the products, `weights` the packed left operand of the second; `x` an
 * element of either and `h` which of the thread's two rows it is in. A value with one number a row is an array of two.
 * SPDX-License-Identifier: MIT
 */
#include "emit/emit_cuda_chained.h"

#include <inttypes.h>
#include <string.h>

enum { LINE = SCHED_LINE_BYTES, EIGHT_LINES = 8 * LINE };

typedef struct printer {
    emitter *e;
    const chained *c;
    bool masked;  /* this step's masks may leave something out */
    bool *known;  /* by value: printed in the pass at hand */
    bool *rows;   /* by value: an array of two that stands already */
    bool after;   /* behind the loop */
    bool *folded; /* by value: a fold that has been printed */
} printer;

/* ---- one element ---- */

static const char *element(printer *p, value v);

static const char *mask_text(printer *p, value v)
{
    const chained *c = p->c;
    emitter *e = p->e;
    unsigned bits = 0;
    const char *words = NULL;
    CHECK(chained_mask(c, v, &bits));
    for (int i = 0; i < c->condition_count && p->masked; i++) {
        const chained_condition *q = &c->conditions[i];
        if (!(bits >> i & 1)) continue;
        const char *column = arena_print(e->memory, "(%s + column)", emit_name(e, q->column));
        const char *one = q->limit ? arena_print(e->memory, "%s < %s", column, emit_name(e, q->limit))
                                   : arena_print(e->memory, "%s %s %s + row + h * 8", column,
                                                 q->compare == OP_LE ? "<=" : "<", emit_name(e, q->row));
        words = words ? arena_print(e->memory, "%s && %s", words, one) : one;
    }
    return words;
}

/* Printed as a declaration, once in each pass; its name. */
static const char *virtual_element(printer *p, value v)
{
    emitter *e = p->e;
    const tile_op *op = tile_def(e->k, v);
    const char *name = emit_name(e, v), *operands[3] = {0};
    if (p->known[v]) return name;
    p->known[v] = true;
    if (op->code == OP_BROADCAST || op->code == OP_RESHAPE) return element(p, op->operands[0]);
    bool narrows = op->code == OP_CONVERT && tile_type_of(e->k, v).elem == p->c->elem;
    if (op->code == OP_SELECT && tile_type_of(e->k, op->operands[0]).rank &&
        !chained_is_row_test(p->c, op->operands[0])) {
        const char *mask = mask_text(p, op->operands[0]), *yes = element(p, op->operands[1]);
        if (mask)
            put(e, "const float %s = %s ? %s : %s;", name, mask, yes, element(p, op->operands[2]));
        else
            put(e, "const float %s = %s;", name, yes);
        return name;
    }
    for (int i = 0; i < op->operand_count && i < 3; i++) operands[i] = element(p, op->operands[i]);
    /* What is rounded to the type of the operands is packed in that type anyway. */
    put(e, "const float %s = %s;", name, narrows ? operands[0] : cuda_expression(e, op, operands));
    return name;
}

static const char *element(printer *p, value v)
{
    emitter *e = p->e;
    const chained *c = p->c;
    if (v == c->first->results[0]) return "scores[x]";
    if (v == c->loop->results[c->carried]) return "sums[x]";
    switch (chained_kind_of(c, v)) {
    case CHAINED_SCALAR: return emit_name(e, v);
    case CHAINED_ROW: {
        const tile_op *op = tile_def(e->k, v);
        if (p->rows[v] || !op) return arena_print(e->memory, "%s[h]", emit_name(e, v));
        return element(p, op->operands[0]); /* a broadcast scalar */
    }
    default: return virtual_element(p, v);
    }
}

static void begin_pass(printer *p)
{
    memset(p->known, 0, sizeof(bool) * (size_t)p->e->k->value_count);
}

/* ---- rows ---- */

static void print_row(printer *p, const tile_op *op)
{
    emitter *e = p->e;
    value v = op->results[0];
    const char *operands[3] = {0};
    begin_pass(p);
    if (op->code == OP_BROADCAST && !p->after && !tile_def(e->k, op->operands[0])) return;
    for (int i = 0; i < op->operand_count && i < 3; i++) operands[i] = element(p, op->operands[i]);
    const char *expression =
        op->code == OP_BROADCAST || op->code == OP_RESHAPE ? operands[0] : cuda_expression(e, op, operands);
    put(e, "%s %s[2];", cuda_register_type(tile_type_of(e->k, v).elem), emit_name(e, v));
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int h = 0; h < 2; h++) %s[h] = %s;", emit_name(e, v), expression);
    p->rows[v] = true;
}

/* Do all rows that a score is computed from stand already? */
static bool is_ready(const printer *p, value v)
{
    const chained *c = p->c;
    const tile_op *op = tile_def(c->kernel, v);
    chained_kind kind = chained_kind_of(c, v);
    if (kind == CHAINED_SCALAR || v == c->first->results[0]) return true;
    if (tile_type_of(c->kernel, v).elem == DT_BOOL && !chained_is_row_test(c, v)) return true;
    if (kind == CHAINED_ROW) return p->rows[v] || !op || op->code == OP_BROADCAST;
    for (int i = 0; op && i < op->operand_count; i++)
        if (!is_ready(p, op->operands[i])) return false;
    return true;
}

/* ---- passes over the scores ---- */

static void print_pass(printer *p, int from, bool *weights_done)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const tile_block *body = c->loop->regions[0];
    const tile_op *folds[8];
    int count = 0;
    for (int i = from; i < body->op_count && count < 8; i++) {
        const tile_op *op = body->ops[i];
        if (op->code == OP_REDUCE && !p->folded[op->results[0]] && is_ready(p, op->operands[0])) folds[count++] = op;
    }
    bool weights = !*weights_done && is_ready(p, c->weights);
    for (int i = 0; i < count; i++) {
        number identity = fold_identity(folds[i]->attr.fold, DT_F32);
        const char *start = cuda_number(e, DT_F32, identity);
        put(e, "float %s[2] = {%s, %s};", emit_name(e, folds[i]->results[0]), start, start);
    }
    begin_pass(p);
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int x = 0; x < %d; x++) {", c->columns / 2);
    e->depth++;
    put(e, "const int h = x / 2 %% 2, column = x / 4 * 8 + lane %% 4 * 2 + x %% 2;");
    put(e, "(void)column;");
    for (int i = 0; i < count; i++) {
        const char *name = arena_print(e->memory, "%s[h]", emit_name(e, folds[i]->results[0]));
        put(e, "%s = %s;", name,
            cuda_fold_step(e, folds[i]->attr.fold, DT_F32, name, element(p, folds[i]->operands[0])));
    }
    if (weights) put(e, "scores[x] = %s;", element(p, c->weights));
    e->depth--;
    put(e, "}");
    *weights_done |= weights;
    for (int i = 0; i < count; i++) {
        value v = folds[i]->results[0];
        p->folded[v] = p->rows[v] = true;
        text_add(e->out, "#pragma unroll\n");
        put(e, "for (int h = 0; h < 2; h++) {");
        for (int far = 1; far < 3; far++) {
            const char *own = arena_print(e->memory, "%s[h]", emit_name(e, v));
            const char *other = arena_print(e->memory, "__shfl_xor_sync(~0u, %s[h], %d)", emit_name(e, v), far);
            put(e, "    %s = %s;", own, cuda_fold_step(e, folds[i]->attr.fold, DT_F32, own, other));
        }
        put(e, "}");
    }
}

/* Everything between the products: rows and passes in order, then what the next step carries. */
static void print_scores(printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const tile_block *body = c->loop->regions[0];
    const tile_op *yield = body->ops[body->op_count - 1];
    bool weights = false;
    for (int i = 0; i + 1 < body->op_count; i++) {
        const tile_op *op = body->ops[i];
        value v = op->result_count ? op->results[0] : 0;
        if (!v || op == c->first || op == c->second) continue;
        p->rows[v] = p->folded[v] = false;
    }
    for (int i = 0; i + 1 < body->op_count; i++) {
        const tile_op *op = body->ops[i];
        value v = op->results[0];
        tile_type type = tile_type_of(e->k, v);
        if (op == c->first || op == c->second || op->code == OP_LOAD) continue;
        if (!type.rank) {
            cuda_scalar_op(e, (tile_op *)op);
            continue;
        }
        if ((!dtype_is_float(type.elem) && !chained_is_row_test(c, v)) || chained_kind_of(c, v) != CHAINED_ROW)
            continue;
        if (op->code == OP_REDUCE) {
            if (!p->folded[v]) print_pass(p, i, &weights);
        } else {
            print_row(p, op);
        }
    }
    if (!weights) print_pass(p, body->op_count, &weights);
    for (int i = 0; i < yield->operand_count; i++) {
        if (i == c->carried || yield->operands[i] == body->args[1 + i]) continue;
        const char *to = emit_name(e, body->args[1 + i]), *from = emit_name(e, yield->operands[i]);
        put(e, "%s[0] = %s[0], %s[1] = %s[1];", to, from, to, from);
    }
}

/* ---- products ---- */

static const char *pack_name(emitter *e, dtype elem)
{
    return need(e, "pack_%s", elem == DT_BF16 ? "bf16" : "f16");
}

static void print_first(printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    put(e, "matrix_fence();");
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < %d; i++)", c->depth / 16);
    put(e, "    %s(scores, left[i][0], left[i][1], left[i][2], left[i][3],",
        need(e, "wgmma_%s_n%d_ra", dtypes[c->elem].text, c->columns));
    put(e, "        matrix_at(keys_place, keys_stage * %d + i / 4 * %d + i %% 4 * 2), i);",
        c->columns * c->depth * 2 / 16, c->columns * LINE / 16);
    put(e, "matrix_commit();");
}

static void print_second(printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    put(e, "phase_wait(values_full + values_stage, values_parity);");
    put(e, "matrix_fence();");
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < %d; i++)", c->columns / 16);
    put(e, "    %s<1>(sums, weights[i * 4], weights[i * 4 + 1], weights[i * 4 + 2], weights[i * 4 + 3],",
        need(e, "wgmma_%s_n%d_ra", dtypes[c->elem].text, c->width));
    put(e, "        matrix_at(values_place, values_stage * %d + i * 128), i ? 1 : add);",
        c->columns * c->width * 2 / 16);
    put(e, "matrix_commit();");
}

static void print_release(const printer *p, const char *which)
{
    emitter *e = p->e;
    put(e, "if (threadIdx.x %% 128 == 0) phase_arrive(%s_empty + %s_stage);", which, which);
    put(e, "if (++%s_stage == %d) %s_stage = 0, %s_parity ^= 1;", which, p->c->stages, which, which);
}

static void print_pack(printer *p)
{
    emitter *e = p->e;
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < %d; i++) weights[i] = %s(scores[2 * i], scores[2 * i + 1]);", p->c->columns / 4,
        pack_name(e, p->c->elem));
}

/* The wait for what the next step begins with stands before that for this step's product: the assembler moves a wait for
 * products up to the last branch before it. */
static void print_ahead(printer *p)
{
    put(p->e, "if (%s + %d < %s) phase_wait(keys_full + keys_stage, keys_parity);",
        emit_name(p->e, p->c->loop->regions[0]->args[0]), p->c->columns, emit_name(p->e, p->c->loop->operands[1]));
}

static void print_step(printer *p, bool masked)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const char *whole = masked ? "" : arena_print(e->memory, " && at + %d <= whole", c->columns);
    p->masked = masked;
    text_add(e->out, "#pragma unroll 1\n");
    put(e, "for (; at < %s%s; at += %d) {", emit_name(e, c->loop->operands[1]), whole, c->columns);
    e->depth++;
    put(e, "const long %s = at;", emit_name(e, c->loop->regions[0]->args[0]));
    print_first(p);
    print_second(p);
    put(e, "add = 1;");
    put(e, "matrix_wait<1>();");
    put(e, "matrix_keep(scores);");
    print_release(p, "keys");
    print_scores(p);
    print_ahead(p);
    put(e, "matrix_wait<0>();");
    put(e, "matrix_keep(sums);");
    print_release(p, "values");
    print_pack(p);
    if (c->scale) {
        const char *scale = emit_name(e, c->scale);
        put(e, "if (__any_sync(~0u, %s[0] != 1 || %s[1] != 1))", scale, scale);
        text_add(e->out, "#pragma unroll\n");
        put(e, "    for (int x = 0; x < %d; x++) sums[x] *= %s[x / 2 %% 2];", c->width / 2, scale);
    }
    e->depth--;
    put(e, "}");
}

static void print_loop(printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const tile_block *body = c->loop->regions[0];
    const char *first = emit_name(e, c->loop->operands[0]), *limit = emit_name(e, c->loop->operands[1]);
    for (int i = 0; i < c->loop->result_count; i++) {
        if (i == c->carried) continue;
        const char *name = emit_name(e, body->args[1 + i]);
        begin_pass(p);
        put(e, "float %s[2];", name);
        put(e, "for (int h = 0; h < 2; h++) %s[h] = %s;", name, element(p, c->loop->operands[3 + i]));
        p->rows[body->args[1 + i]] = true;
    }
    put(e, "float sums[%d];", c->width / 2);
    put(e, "if (%s < %s) {", first, limit);
    e->depth++;
    put(e, "float scores[%d];", c->columns / 2);
    put(e, "unsigned weights[%d];", c->columns / 4);
    put(e, "int add = 0;");
    put(e, "long whole = %s;", limit);
    for (int i = 0; i < c->condition_count; i++) {
        const chained_condition *q = &c->conditions[i];
        const char *end =
            q->limit ? emit_name(e, q->limit)
                     : arena_print(e->memory, "%s + group * 64 + %d", emit_name(e, q->row), q->compare == OP_LE);
        put(e, "whole = %s < whole ? %s : whole;", end, end);
    }
    put(e, "{ /* the first step has no product to hide behind */");
    e->depth++;
    put(e, "const long %s = %s;", emit_name(e, body->args[0]), first);
    put(e, "phase_wait(keys_full + keys_stage, keys_parity);");
    print_first(p);
    put(e, "matrix_wait<0>();");
    put(e, "matrix_keep(scores);");
    print_release(p, "keys");
    p->masked = true;
    print_scores(p);
    print_ahead(p);
    print_pack(p);
    e->depth--;
    put(e, "}");
    put(e, "long at = %s + %d;", first, c->columns);
    print_step(p, false);
    print_step(p, true);
    print_second(p);
    put(e, "matrix_wait<0>();");
    put(e, "matrix_keep(sums);");
    print_release(p, "values");
    e->depth--;
    put(e, "} else {");
    put(e, "    for (int x = 0; x < %d; x++) sums[x] = 0;", c->width / 2);
    put(e, "}");
}

/* ---- results ---- */

static const char *index_name(printer *p, const tile_op *op, int axis)
{
    const struct access *a = &op->attr.access;
    int operand = a->first_index;
    for (int k = 0; k < axis; k++) operand += a->kind[k] == INDEX_SLICE ? 2 : 1;
    return emit_name(p->e, op->operands[operand]);
}

/* Coordinates of a box of whole rows, innermost first: 0, row, half, and the axes before. */
static const char *box_place(printer *p, const tile_op *op, const char *added, const char *half)
{
    emitter *e = p->e;
    int rank = op->attr.access.rank;
    const char *words = arena_print(e->memory, "0, (int)(%s%s), %s", index_name(p, op, rank - 2), added, half);
    for (int axis = rank - 3; axis >= 0; axis--)
        words = arena_print(e->memory, "%s, (int)%s", words, index_name(p, op, axis));
    return words;
}

static void print_row_store(printer *p, const tile_op *op)
{
    emitter *e = p->e;
    const struct access *a = &op->attr.access;
    const char *name = e->k->params[a->array].name;
    const char *pointer = arena_print(e->memory, "%s_array", name), *test = "lane % 4 == 0";
    e->array_used[a->array] = true;
    for (int axis = 0; axis < a->rank; axis++) {
        const char *index = index_name(p, op, axis);
        if (a->kind[axis] == INDEX_SLICE && a->result_axis[axis] == 0)
            index = arena_print(e->memory, "(%s + row + h * 8)", index);
        pointer = arena_print(e->memory, "%s + %s * %s", pointer, index, stride_text(e, a->array, axis));
        if (!a->safe[axis])
            test =
                arena_print(e->memory, "%s && (unsigned long)%s < (unsigned long)%s_extent%d", test, index, name, axis);
    }
    begin_pass(p);
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int h = 0; h < 2; h++)");
    put(e, "    if (%s) %s(%s, %s);", test, need(e, "write_%s", memory_name(e->k->params[a->array].elem)), pointer,
        element(p, op->operands[0]));
}

static void print_results(printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    const tile_block *block = c->kernel->phases[c->phase];
    const tile_op *bulk = c->stores[c->bulk_store];
    bool after = false;
    p->after = true;
    for (int i = 0; i < c->loop->result_count; i++) {
        if (i == c->carried) continue;
        put(e, "float(&%s)[2] = %s;", emit_name(e, c->loop->results[i]),
            emit_name(e, c->loop->regions[0]->args[1 + i]));
        p->rows[c->loop->results[i]] = true;
    }
    for (int i = 0; i < block->op_count; i++) {
        const tile_op *op = block->ops[i];
        after |= op == c->loop;
        if (!after || op == c->loop || !op->result_count) continue;
        chained_kind kind = chained_kind_of(c, op->results[0]);
        if (kind == CHAINED_SCALAR) cuda_scalar_op(e, (tile_op *)op);
        if (kind == CHAINED_ROW) print_row(p, op);
    }
    begin_pass(p);
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int x = 0; x < %d; x++) {", c->width / 2);
    e->depth++;
    put(e, "const int h = x / 2 %% 2;");
    put(e, "(void)h;");
    put(e, "sums[x] = %s;", element(p, bulk->operands[0]));
    e->depth--;
    put(e, "}");
    for (int i = 0; i < c->store_count; i++)
        if (i != c->bulk_store) print_row_store(p, c->stores[i]);
    put(e, "barrier_named(1 + group, 128); /* nobody reads the left operand's room any more */");
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < %d; i += 2) {", c->width / 8);
    need(e, "store_matrices");
    const char *pack = pack_name(e, c->elem);
    put(e, "    const float *d = sums + i * 4;");
    put(e,
        "    store_matrices(room + i / 8 * %d + (warp_row + lane %% 16) * %d + (((i %% 8 + lane / 16) ^ lane %% 8) << "
        "4),",
        c->rows * LINE, LINE);
    put(e, "        %s(d[0], d[1]), %s(d[2], d[3]), %s(d[4], d[5]), %s(d[6], d[7]));", pack, pack, pack, pack);
    put(e, "}");
    need(e, "bulk_groups");
    put(e, "fence_async();");
    put(e, "__syncwarp();");
    put(e, "if (lane == 0) {");
    for (int half = 0; half < c->width / 64; half++)
        put(e, "    %s(&call.maps[3], room + %d + warp_row * %d, %s);",
            need(e, "bulk_out_%dd", bulk->attr.access.rank + 1), half * c->rows * LINE, LINE,
            box_place(p, bulk, " + warp_row", arena_print(e->memory, "%d", half)));
    put(e, "    bulk_commit();");
    put(e, "    bulk_wait_read<0>();");
    put(e, "}");
}

/* ---- the function ---- */

static void print_scalars(printer *p)
{
    const tile_block *block = p->c->kernel->phases[p->c->phase];
    for (int i = 0; i < block->op_count && block->ops[i] != p->c->loop; i++) {
        const tile_op *op = block->ops[i];
        bool scalar = op->result_count == 1 && !tile_type_of(p->e->k, op->results[0]).rank && op->code != OP_CONST;
        if (scalar) cuda_scalar_op(p->e, (tile_op *)op);
    }
}

static void print_fill(printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    int bytes[2] = {c->columns * c->depth * 2, c->columns * c->width * 2};
    put(e, "if (warp >= %d) { /* fill */", c->groups * 4);
    e->depth++;
    if (c->groups > 1) put(e, "registers_less<24>();");
    put(e, "if (warp == %d && lane == 0) {", c->groups * 4);
    e->depth++;
    print_scalars(p);
    put(e, "phase_expect(left_full, %d);", c->rows * c->depth * 2);
    put(e, "%s(room, &call.maps[0], left_full, %s);", need(e, "bulk_in_%dd", c->left->attr.access.rank + 1),
        box_place(p, c->left, "", "0"));
    put(e, "int stage = 0, parity = 1;");
    put(e, "for (long %s = %s; %s < %s; %s += %d) {", emit_name(e, c->loop->regions[0]->args[0]),
        emit_name(e, c->loop->operands[0]), emit_name(e, c->loop->regions[0]->args[0]),
        emit_name(e, c->loop->operands[1]), emit_name(e, c->loop->regions[0]->args[0]), c->columns);
    e->depth++;
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "values" : "keys";
        const tile_op *load = i ? c->values : c->keys;
        put(e, "phase_wait(%s_empty + stage, parity);", name);
        put(e, "phase_expect(%s_full + stage, %d);", name, bytes[i]);
        put(e, "%s(%s_room + stage * %d, &call.maps[%d], %s_full + stage, %s);",
            need(e, "bulk_in_%dd", load->attr.access.rank + 1), name, bytes[i], 1 + i, name,
            box_place(p, load, "", "0"));
    }
    put(e, "if (++stage == %d) stage = 0, parity ^= 1;", c->stages);
    e->depth--;
    put(e, "}");
    e->depth--;
    put(e, "}");
    e->depth--;
    put(e, "} else { /* multiply */");
}

static void print_multiply(printer *p)
{
    emitter *e = p->e;
    const chained *c = p->c;
    e->depth++;
    if (c->groups > 1) put(e, "registers_more<240>();");
    print_scalars(p);
    put(e, "const int group = warp / 4, warp_row = warp * 16, row = warp_row + lane / 4;");
    put(e, "const unsigned long long keys_place = matrix_descriptor<128>(keys_room, 16, %d),", EIGHT_LINES);
    put(e, "                         values_place = matrix_descriptor<128>(values_room, %d, %d);", c->columns * LINE,
        EIGHT_LINES);
    put(e, "int keys_stage = 0, keys_parity = 0, values_stage = 0, values_parity = 0;");
    put(e, "unsigned left[%d][4];", c->depth / 16);
    put(e, "phase_wait(left_full, 0);");
    need(e, "mma_16");
    text_add(e->out, "#pragma unroll\n");
    put(e, "for (int i = 0; i < %d; i++)", c->depth / 16);
    put(e, "    load_matrices<false>(left[i], room + i / 4 * %d + (warp_row + lane %% 16) * %d +", c->rows * LINE,
        LINE);
    put(e, "                                      (((i %% 4 * 2 + lane / 16) ^ lane %% 8) << 4));");
    print_loop(p);
    print_results(p);
    e->depth--;
    put(e, "}");
}

void emit_cuda_chained(emitter *e, const chained *c, text *functions)
{
    const char *name = e->k->name;
    text body = {0};
    int count = e->k->value_count, axes = launch_axes(e->k, c->phase);
    printer p = {.e = e, .c = c};
    bool falls = false; /* later rows have more to do: they begin first */
    for (int i = 0; i < c->condition_count; i++) falls |= !c->conditions[i].limit;
    e->cuda = ARENA_NEW(e->memory, cuda_state);
    e->phase = c->phase;
    e->line = 0;
    e->uses = ARENA_ARRAY(e->memory, int, count);
    e->array_used = ARENA_ARRAY(e->memory, bool, e->k->param_count + 1);
    p.known = ARENA_ARRAY(e->memory, bool, count);
    p.rows = ARENA_ARRAY(e->memory, bool, count);
    p.folded = ARENA_ARRAY(e->memory, bool, count);
    e->out = &body;
    e->depth = 2;
    need(e, "phases");
    need(e, "roles");
    need(e, "matrix_at");
    print_fill(&p);
    print_multiply(&p);

    e->out = functions;
    e->depth = 0;
    put(e, "struct __align__(64) %s_phase%d_frame {", name, c->phase);
    put(e, "    tensor_map maps[4];");
    put(e, "    %s_frame rest;", name);
    put(e, "};");
    put(e, "extern \"C\" __global__ void __launch_bounds__(%d, 1)", c->threads);
    put(e, "%s_phase%d(const __grid_constant__ %s_phase%d_frame call)", name, c->phase, name, c->phase);
    put(e, "{");
    e->depth = 1;
    put(e, "extern __shared__ __align__(1024) char shared_room[];");
    put(e, "const %s_frame &frame = call.rest;", name);
    need(e, "grid_begin");
    put(e, "grid_call();");
    cuda_put_arrays(e, text_get(&body));
    put(e,
        "char *const room = shared_room, *const keys_room = shared_room + %" PRId64
        ", *const values_room = shared_room + %" PRId64 ";",
        c->keys_offset, c->values_offset);
    put(e, "unsigned long long *const left_full = (unsigned long long *)(shared_room + %" PRId64 ");",
        c->phases_offset);
    put(e, "unsigned long long *const keys_full = left_full + 1, *const keys_empty = keys_full + %d;", c->stages);
    put(e, "unsigned long long *const values_full = keys_empty + %d, *const values_empty = values_full + %d;",
        c->stages, c->stages);
    put(e, "const int warp = warp_number(), lane = threadIdx.x %% 32;");
    put(e, "const long program0 = %s;",
        falls ? "frame.programs[0] - 1 - blockIdx.x % frame.programs[0]" : "blockIdx.x % frame.programs[0]");
    put(e, "const long program1 = %s, program2 = %s;",
        axes > 1 ? "blockIdx.x / frame.programs[0] % frame.programs[1]" : "0",
        axes > 2 ? "blockIdx.x / (frame.programs[0] * frame.programs[1])" : "0");
    put(e, "(void)program1, (void)program2;");
    put(e, "if (threadIdx.x == 0) {");
    put(e, "    phase_init(left_full, 1);");
    put(e, "    for (int i = 0; i < %d; i++) {", c->stages);
    put(e, "        phase_init(keys_full + i, 1), phase_init(keys_empty + i, %d);", c->groups);
    put(e, "        phase_init(values_full + i, 1), phase_init(values_empty + i, %d);", c->groups);
    put(e, "    }");
    put(e, "    phases_ready();");
    put(e, "}");
    put(e, "__syncthreads();");
    put(e, "if (grid_begin() == 0) {");
    text_add(functions, text_get(&body));
    put(e, "}");
    e->depth = 0;
    put(e, "}");
    put(e, "%s", "");
    text_free(&body);
}

int cuda_chained_maps(const chained *c, cuda_map *maps)
{
    const tile_op *const ops_of[4] = {c->left, c->keys, c->values, c->stores[c->bulk_store]};
    const int lines[4] = {c->rows, c->columns, c->columns, 16}, depths[4] = {c->depth, c->depth, c->width, 64};
    for (int i = 0; i < 4; i++) {
        const struct access *a = &ops_of[i]->attr.access;
        cuda_map m = {.param = a->array, .rank = a->rank + 1, .swizzle = LINE};
        m.axes[0] = (cuda_map_axis){.axis = a->rank - 1, .step = 1, .count = 64};
        m.axes[1] = (cuda_map_axis){.axis = a->rank - 2, .step = 1};
        m.axes[2] = (cuda_map_axis){.axis = a->rank - 1, .step = 64};
        m.box[0] = 64;
        m.box[1] = lines[i];
        m.box[2] = depths[i] / 64;
        for (int axis = a->rank - 3, at = 3; axis >= 0; axis--, at++) {
            m.axes[at] = (cuda_map_axis){.axis = axis, .step = 1};
            m.box[at] = 1;
        }
        maps[i] = m;
    }
    return 4;
}
