/*
 * The tools of rewrite.h. In: a kernel and one op at a time. Out: new blocks in the place of the old ones.
 * SPDX-License-Identifier: MIT
 */
#include "passes/rewrite.h"

#include <string.h>

rewriter rewrite_start(tile_kernel *k)
{
    rewriter r = {.k = k, .scratch = arena_new(), .to_count = 2 * k->value_count};
    r.to = ARENA_ARRAY(r.scratch, value, r.to_count);
    return r;
}

value rewrite_find(const rewriter *r, value v)
{
    while (v < (value)r->to_count && r->to[v]) v = r->to[v];
    return v;
}

void rewrite_replace(rewriter *r, value from, value to)
{
    if (from >= (value)r->to_count) {
        int count = 2 * r->k->value_count;
        value *grown = ARENA_ARRAY(r->scratch, value, count);
        memcpy(grown, r->to, sizeof(value) * (size_t)r->to_count);
        r->to = grown;
        r->to_count = count;
    }
    to = rewrite_find(r, to);
    CHECK(from != to);
    r->to[from] = to;
    if (!r->k->values[to].name) r->k->values[to].name = r->k->values[from].name;
    r->changed = true;
}

static void find_extents(rewriter *r, value v)
{
    tile_type *type = &r->k->values[v].type;
    for (int i = 0; i < type->rank; i++) {
        if (type->dims[i] >= 0) continue;
        number n;
        value extent = rewrite_find(r, (value)-type->dims[i]);
        int64_t now = tile_is_constant(r->k, extent, &n) ? MAXIMUM(n.i, 0) : -(int64_t)extent;
        r->changed |= now != type->dims[i];
        type->dims[i] = now;
    }
}

void rewrite_operands(rewriter *r, tile_op *op)
{
    for (int i = 0; i < op->operand_count; i++) op->operands[i] = rewrite_find(r, op->operands[i]);
    for (int i = 0; i < op->result_count; i++) find_extents(r, op->results[i]);
    for (int i = 0; i < op->region_count; i++)
        for (int a = 0; a < op->regions[i]->arg_count; a++) find_extents(r, op->regions[i]->args[a]);
}

void rewrite_keep(rewriter *r, tile_op *op)
{
    ARENA_PUSH(r->k->memory, r->out.items, r->out.count, r->out.capacity, op);
}

value rewrite_emit(rewriter *r, op_code code, const value *operands, int count, tile_type type)
{
    tile_op *op = tile_op_new(r->k, code, operands, count);
    if (r->at) {
        op->line = r->at->line;
        op->column = r->at->column;
    }
    rewrite_keep(r, op);
    r->changed = true;
    return tile_result(r->k, op, type);
}

bool number_same(number a, number b)
{
    uint64_t bits_a, bits_b;
    memcpy(&bits_a, &a.f, sizeof(bits_a));
    memcpy(&bits_b, &b.f, sizeof(bits_b));
    return a.i == b.i && bits_a == bits_b;
}

value rewrite_constant(rewriter *r, dtype elem, number n)
{
    for (int i = 0; i < r->constants.count; i++) {
        const tile_op *op = r->constants.items[i];
        if (tile_type_of(r->k, op->results[0]).elem == elem && number_same(op->attr.number, n)) return op->results[0];
    }
    tile_op *op = tile_op_new(r->k, OP_CONST, NULL, 0);
    op->attr.number = n;
    ARENA_PUSH(r->k->memory, r->constants.items, r->constants.count, r->constants.capacity, op);
    r->changed = true;
    return tile_result(r->k, op, scalar_type(elem));
}

value rewrite_integer(rewriter *r, int64_t n)
{
    return rewrite_constant(r, DT_I64, (number){.i = n});
}

value rewrite_fit(rewriter *r, value v, tile_type type)
{
    tile_type from = tile_type_of(r->k, v);
    return tile_shape_same(&from, &type) ? v : rewrite_emit(r, OP_BROADCAST, &v, 1, type);
}

value rewrite_bool(rewriter *r, bool truth, tile_type shape)
{
    shape.elem = DT_BOOL;
    return rewrite_fit(r, rewrite_constant(r, DT_BOOL, (number){.i = truth}), shape);
}

void rewrite_into(rewriter *r, const tile_block *b, rewrite_each *each, void *context)
{
    for (int i = 0; i + 1 < b->op_count; i++) {
        r->at = b->ops[i];
        rewrite_operands(r, b->ops[i]);
        each(r, b->ops[i], context);
    }
}

void rewrite_block(rewriter *r, tile_block *b, rewrite_each *each, void *context)
{
    op_list around = r->out;
    r->out = (op_list){0};
    r->depth++;
    for (int i = 0; i < b->op_count; i++) {
        r->at = b->ops[i];
        rewrite_operands(r, b->ops[i]);
        each(r, b->ops[i], context);
    }
    if (--r->depth == 0 && r->constants.count) {
        for (int i = 0; i < r->out.count; i++)
            ARENA_PUSH(r->k->memory, r->constants.items, r->constants.count, r->constants.capacity, r->out.items[i]);
        r->out = r->constants;
        r->constants = (op_list){0};
    }
    b->ops = r->out.items;
    b->op_count = r->out.count;
    b->op_capacity = r->out.capacity;
    r->out = around;
}

void rewrite_kernel(rewriter *r, rewrite_each *each, void *context)
{
    rewrite_block(r, r->k->head, each, context);
    for (int i = 0; i < r->k->phase_count; i++) rewrite_block(r, r->k->phases[i], each, context);
}

bool rewrite_finish(rewriter *r)
{
    if (r->changed) {
        if (r->to_count < r->k->value_count) {
            value *grown = ARENA_ARRAY(r->scratch, value, r->k->value_count);
            memcpy(grown, r->to, sizeof(value) * (size_t)r->to_count);
            r->to = grown;
        }
        tile_replace_many(r->k, r->to);
    }
    arena_free(r->scratch);
    return r->changed;
}

static value copied(const value *map, value v)
{
    return map[v] ? map[v] : v;
}

static value copy_value(tile_kernel *k, value from, value *map)
{
    tile_type type = tile_type_of(k, from);
    for (int i = 0; i < type.rank; i++)
        if (type.dims[i] < 0) type.dims[i] = -(int64_t)copied(map, (value)-type.dims[i]);
    value v = tile_value_new(k, type);
    k->values[v].name = k->values[from].name;
    map[from] = v;
    return v;
}

tile_block *rewrite_copy(tile_kernel *k, const tile_block *b, value *map)
{
    tile_block *to = tile_block_new(k);
    to->arg_count = b->arg_count;
    to->args = ARENA_ARRAY(k->memory, value, b->arg_count);
    for (int i = 0; i < b->arg_count; i++) to->args[i] = copy_value(k, b->args[i], map);
    for (int i = 0; i < b->op_count; i++) {
        const tile_op *from = b->ops[i];
        tile_op *op = tile_op_new(k, from->code, from->operands, from->operand_count);
        op->flags = from->flags;
        op->line = from->line;
        op->column = from->column;
        op->attr = from->attr;
        op->region_count = from->region_count;
        for (int n = 0; n < op->operand_count; n++) op->operands[n] = copied(map, op->operands[n]);
        for (int n = 0; n < from->region_count; n++) op->regions[n] = rewrite_copy(k, from->regions[n], map);
        op->result_count = from->result_count;
        op->results = ARENA_ARRAY(k->memory, value, from->result_count);
        for (int n = 0; n < from->result_count; n++) {
            op->results[n] = copy_value(k, from->results[n], map);
            k->values[op->results[n]].op = op;
        }
        tile_append(k, to, op);
    }
    return to;
}

tile_op *block_last(const tile_block *b)
{
    return b->ops[b->op_count - 1];
}

bool constant_of(const tile_kernel *k, value v, number *n)
{
    const tile_op *op = tile_def(k, v);
    if (op && op->code == OP_BROADCAST) v = op->operands[0];
    return tile_is_constant(k, v, n);
}

bool block_writes(const tile_block *b, int array)
{
    for (int i = 0; i < b->op_count; i++) {
        const tile_op *op = b->ops[i];
        if ((op->code == OP_STORE || op->code == OP_ATOMIC) && (array < 0 || op->attr.access.array == array))
            return true;
        for (int r = 0; r < op->region_count; r++)
            if (block_writes(op->regions[r], array)) return true;
    }
    return false;
}
