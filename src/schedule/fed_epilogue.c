/*
 * What follows the product. In: a phase whose product is known. Out: its stores, and for every value that they need
 * which of its axes run along the rows and the columns of the sums.
 *
 * All of it must be computed element by element: an element of a store needs the sum at its own place, and of other
 * tiles the element in its row and column. Then it is done on the sums where they are, in registers.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/fed.h"

enum { NOWHERE = -1 };

static bool same_place(sched_place a, sched_place b)
{
    return a.row == b.row && a.column == b.column;
}

/* The place of an operand, from that of the result; docs/tile-ir.md: extents of 1 broadcast. */
static sched_place place_of_operand(const tile_kernel *k, const tile_op *op, int operand, sched_place at)
{
    tile_type from = tile_type_of(k, op->operands[operand]);
    sched_place place = {NOWHERE, NOWHERE};
    signed char *const to[2] = {&place.row, &place.column};
    const signed char along[2] = {at.row, at.column};
    if (!from.rank) return place;
    if (op->code == OP_RESHAPE) { /* unit axes come and go: the others keep their order */
        tile_type whole = tile_type_of(k, op->results[0]);
        for (int i = 0, j = 0; i < from.rank; i++) {
            if (from.dims[i] == 1) continue;
            while (whole.dims[j] == 1) j++;
            for (int side = 0; side < 2; side++)
                if (along[side] == j) *to[side] = (signed char)i;
            j++;
        }
        return place;
    }
    for (int side = 0; side < 2; side++)
        if (along[side] >= 0 && from.dims[along[side]] != 1) *to[side] = along[side];
    return place;
}

static bool op_is_elementwise(const tile_kernel *k, const tile_op *op)
{
    switch (ops[op->code].class) {
    case CLASS_LEAF:
    case CLASS_UNARY:
    case CLASS_BINARY:
    case CLASS_COMPARE:
    case CLASS_TERNARY: return true;
    case CLASS_SHAPE: {
        if (op->code != OP_RESHAPE) return op->code == OP_BOUND || op->code == OP_BROADCAST;
        tile_type from = tile_type_of(k, op->operands[0]), to = tile_type_of(k, op->results[0]);
        return tile_reshape_only_units(&from, &to);
    }
    case CLASS_MEMORY: return op->code == OP_LOAD;
    default: return false;
    }
}

/* Every use of a value must be at one place: then it is computed once for each element. */
static bool need(fed_work *w, value v, sched_place at)
{
    schedule *s = w->s;
    const tile_kernel *k = s->kernel;
    if (s->needed[v]) return same_place(s->places[v], at) || fed_refuse(w, "a tile is used at two places at once");
    s->needed[v] = true;
    s->places[v] = at;
    if (v == s->sums)
        return (at.row == 0 && at.column == 1) || fed_refuse(w, "the sums are used in another order than their own");
    const tile_op *op = tile_def(k, v);
    if (!op || !op_is_elementwise(k, op))
        return fed_refuse(w, "what follows the product is not computed element by element");
    for (int i = 0; i < op->operand_count; i++)
        if (!need(w, op->operands[i], place_of_operand(k, op, i, at))) return false;
    return true;
}

/* The two axes of a stored tile that are longer than 1 are the sums' own. */
static bool find_store(fed_work *w, const tile_op *op)
{
    schedule *s = w->s;
    tile_type type = tile_type_of(s->kernel, op->operands[0]), sums = tile_type_of(s->kernel, s->sums);
    sched_place at = {NOWHERE, NOWHERE};
    for (int i = 0, found = 0; i < type.rank; i++) {
        if (type.dims[i] == 1) continue;
        if (found == 2 || type.dims[i] != sums.dims[found])
            return fed_refuse(w, "a result has another shape than the product");
        *(found++ ? &at.column : &at.row) = (signed char)i;
    }
    if (at.column < 0) return fed_refuse(w, "a result has another shape than the product");
    if (s->store_count == SCHED_MOST_STORES) return fed_refuse(w, "it stores too many tiles");
    s->stores[s->store_count++] = (sched_store){.op = op, .map = -1};
    for (int i = 0; i < op->operand_count; i++)
        if (!need(w, op->operands[i], place_of_operand(s->kernel, op, i, at))) return false;
    return true;
}

/* Chunk after chunk is read and written: what is read of a stored array must be the very elements that are stored. */
static bool check_hazards(fed_work *w, const tile_block *block)
{
    const schedule *s = w->s;
    for (int n = 0; n < s->store_count; n++) {
        const tile_op *store = s->stores[n].op;
        int array = store->attr.access.array;
        for (int i = 0; i < s->operand_count; i++)
            if (s->operands[i].load->attr.access.array == array)
                return fed_refuse(w, "an operand of the product is written");
        for (int other = 0; other < n; other++)
            if (s->stores[other].op->attr.access.array == array) return fed_refuse(w, "an array is stored to twice");
        for (int i = 0; i < block->op_count; i++) {
            const tile_op *load = block->ops[i];
            if (load->code != OP_LOAD || load->attr.access.array != array || !s->needed[load->results[0]]) continue;
            tile_type read = tile_type_of(s->kernel, load->results[0]),
                      written = tile_type_of(s->kernel, store->operands[0]);
            int count = store->operand_count - 1 - store->attr.access.mask_count;
            bool same = tile_shape_same(&read, &written) && load->operand_count >= count;
            for (int o = 0; same && o < count; o++) same = load->operands[o] == store->operands[o + 1];
            if (!same) return fed_refuse(w, "an array is read and written at different places");
        }
    }
    return true;
}

/* What a result of more than bf16, a comparison or an address is computed from. */
static void mark_exact(const fed_work *w, value v, bool *exact)
{
    const tile_op *op = tile_def(w->s->kernel, v);
    if (exact[v]) return;
    exact[v] = true;
    for (int i = 0; op && v != w->s->sums && i < op->operand_count; i++) mark_exact(w, op->operands[i], exact);
}

static void find_near(fed_work *w, const tile_block *block)
{
    schedule *s = w->s;
    const tile_kernel *k = s->kernel;
    bool *exact = ARENA_ARRAY(w->memory, bool, k->value_count);
    for (int n = 0; n < s->store_count; n++)
        for (int i = 0; i < s->stores[n].op->operand_count; i++)
            if (i || k->params[s->stores[n].op->attr.access.array].elem != DT_BF16)
                mark_exact(w, s->stores[n].op->operands[i], exact);
    for (int i = 0; i < block->op_count; i++) {
        const tile_op *op = block->ops[i];
        if (op->result_count != 1 || op->region_count || !s->needed[op->results[0]]) continue;
        if (op->code == OP_LOAD || !dtype_is_float(tile_type_of(k, op->results[0]).elem))
            mark_exact(w, op->results[0], exact);
    }
    s->near = ARENA_ARRAY(w->memory, bool, k->value_count);
    for (int v = 1; v < k->value_count; v++) s->near[v] = s->needed[v] && !exact[v];
}

/* Instructions of all elements that a thread has: beyond what a multiprocessor keeps of them each comes from memory again. (H200:
 * two mish behind 1024 x 8192 x 8192 of tf32 took 180 us beside 320 of the product.) */
bool fed_epilogue_is_long(const schedule *s)
{
    enum { COSTLY = 25, PART = 32, MOST = 6000 };
    const tile_block *block = s->kernel->phases[s->phase];
    int each = 0, parts = s->choice.tile[0] / (s->choice.turns ? 1 : s->choice.groups) / 64 * s->choice.tile[1] / 64;
    for (int i = 0; i < block->op_count; i++) {
        const tile_op *op = block->ops[i];
        if (op->result_count != 1 || op->region_count || !s->needed[op->results[0]]) continue;
        if (!tile_type_of(s->kernel, op->results[0]).rank || op->results[0] == s->sums) continue;
        each += ops[op->code].costly && !s->near[op->results[0]] ? COSTLY : 1;
    }
    return parts > 1 && each * PART * parts > MOST;
}

bool fed_find_epilogue(fed_work *w)
{
    schedule *s = w->s;
    const tile_block *block = s->kernel->phases[s->phase];
    s->places = ARENA_ARRAY(w->memory, sched_place, s->kernel->value_count);
    s->needed = ARENA_ARRAY(w->memory, bool, s->kernel->value_count);
    for (int i = 0; i < block->op_count; i++) {
        const tile_op *op = block->ops[i];
        if (op->code == OP_STORE && !find_store(w, op)) return false;
        if (op->code == OP_ATOMIC || (ops[op->code].class == CLASS_EFFECT && op->code != OP_ASSUME))
            return fed_refuse(w, "it has effects beside its stores");
    }
    if (!s->store_count) return fed_refuse(w, "nothing is stored");
    find_near(w, block);
    return check_hazards(w, block);
}
