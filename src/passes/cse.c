/*
 * cse: equal computations are done once.
 * requires: nothing. keeps: everything. breaks: nothing.
 *
 * In: any kernel. Out: an op whose like stands before it, in the same block or one around it, gives way to that one.
 * Pure ops are alike when code, operands, attributes and type agree; flags that only matter to the checking
 * interpreter do not count. A load is alike if, besides, nothing in between can have written its array: each array
 * has a version that every store and atomic to it raises, and a loop that writes it raises at both of its ends (arrays
 * of one launch do not overlap). The one that stays keeps its own `safe` marks: those of the other may hold only where
 * it stood.
 * SPDX-License-Identifier: MIT
 */
#include "passes/pass_list.h"
#include "passes/rewrite.h"

#include <string.h>

typedef struct entry {
    tile_op *op;
    uint64_t hash;
    int version; /* of the array, for loads */
    int next;    /* entry with the same bucket, or -1 */
} entry;

typedef struct table {
    arena *memory;
    entry *entries;
    int count, capacity;
    int *buckets;
    uint64_t bucket_mask;
    int versions[64]; /* by array; parameters are at most 64 */
    int last_version;
} table;

static uint64_t mix(uint64_t hash, uint64_t part)
{
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

static unsigned flags_that_matter(const tile_op *op)
{
    return op->flags & ~(unsigned)(F_ASSIGN | F_IMPLICIT | F_INDEX);
}

static uint64_t hash_op(const tile_kernel *k, const tile_op *op)
{
    tile_type type = tile_type_of(k, op->results[0]);
    uint64_t hash = mix(mix((uint64_t)op->code, type.elem), flags_that_matter(op)), bits, sum = 0;
    memcpy(&bits, &op->attr.number.f, sizeof(bits));
    hash = mix(mix(mix(hash, bits), (uint64_t)op->attr.number.i), (uint64_t)op->attr.index);
    for (int i = 0; i < type.rank; i++) hash = mix(hash, (uint64_t)type.dims[i]);
    for (int i = 0; i < op->operand_count; i++) { /* a sum, so that the order of commutative operands is nothing */
        uint64_t part = mix(7, op->operands[i]);
        sum += ops[op->code].commutative ? part : mix(part, (uint64_t)i);
    }
    return mix(hash, sum);
}

static bool same_access(const access *a, const access *b)
{
    if (a->array != b->array || a->rank != b->rank || a->mask_count != b->mask_count) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->kind[i] != b->kind[i] || (a->kind[i] == INDEX_SLICE && a->result_axis[i] != b->result_axis[i]))
            return false;
    return true;
}

static bool same_operands(const tile_op *a, const tile_op *b)
{
    if (a->operand_count != b->operand_count) return false;
    if (ops[a->code].commutative && a->operands[0] == b->operands[1] && a->operands[1] == b->operands[0]) return true;
    return !a->operand_count || !memcmp(a->operands, b->operands, sizeof(value) * (size_t)a->operand_count);
}

static bool same_op(const tile_kernel *k, const tile_op *a, const tile_op *b)
{
    if (a->code != b->code || flags_that_matter(a) != flags_that_matter(b) || !same_operands(a, b)) return false;
    tile_type first = tile_type_of(k, a->results[0]), second = tile_type_of(k, b->results[0]);
    if (!tile_type_same(&first, &second)) return false;
    switch (a->code) {
    case OP_CONST: return number_same(a->attr.number, b->attr.number);
    case OP_LOAD: return same_access(&a->attr.access, &b->attr.access);
    case OP_REDUCE: return a->attr.fold == b->attr.fold && a->attr.axis_set == b->attr.axis_set;
    case OP_SCAN: return a->attr.fold == b->attr.fold && a->attr.index == b->attr.index;
    case OP_PERMUTE: return !memcmp(a->attr.axes, b->attr.axes, sizeof(int) * (size_t)first.rank);
    default: return a->attr.index == b->attr.index;
    }
}

/* The entry that computes the same, or NULL after adding the op. */
static tile_op *find_or_add(table *t, const tile_kernel *k, tile_op *op)
{
    uint64_t hash = hash_op(k, op);
    int version = op->code == OP_LOAD ? t->versions[op->attr.access.array] : 0;
    for (int i = t->buckets[hash & t->bucket_mask]; i >= 0; i = t->entries[i].next) {
        const entry *e = &t->entries[i];
        if (e->hash == hash && e->version == version && same_op(k, e->op, op)) return e->op;
    }
    entry fresh = {op, hash, version, t->buckets[hash & t->bucket_mask]};
    t->buckets[hash & t->bucket_mask] = t->count;
    ARENA_PUSH(t->memory, t->entries, t->count, t->capacity, fresh);
    return NULL;
}

static void raise_written(table *t, const tile_kernel *k, const tile_block *b)
{
    for (int p = 0; p < k->param_count; p++)
        if (k->params[p].kind < PARAM_SCALAR && k->params[p].kind != PARAM_IN && block_writes(b, p))
            t->versions[p] = ++t->last_version;
}

static void forget(table *t, int count)
{
    while (t->count > count) {
        const entry *e = &t->entries[--t->count];
        t->buckets[e->hash & t->bucket_mask] = e->next;
    }
}

static void cse_op(rewriter *r, tile_op *op, void *context)
{
    table *t = context;
    if (op->code == OP_STORE || op->code == OP_ATOMIC) t->versions[op->attr.access.array] = ++t->last_version;
    bool loops = op->code == OP_FOR || op->code == OP_WHILE;
    for (int i = 0; i < op->region_count && loops; i++) raise_written(t, r->k, op->regions[i]);
    for (int i = 0; i < op->region_count; i++) {
        int outside = t->count;
        rewrite_block(r, op->regions[i], cse_op, context);
        forget(t, outside);
    }
    for (int i = 0; i < op->region_count; i++) raise_written(t, r->k, op->regions[i]);
    bool candidate = (ops[op->code].pure && !op->region_count && op->result_count == 1) || op->code == OP_LOAD;
    tile_op *before = candidate ? find_or_add(t, r->k, op) : NULL;
    if (!before) {
        rewrite_keep(r, op);
        return;
    }
    rewrite_replace(r, op->results[0], before->results[0]);
}

bool pass_cse(tile_kernel *k)
{
    rewriter r = rewrite_start(k);
    table t = {.memory = r.scratch, .bucket_mask = 255};
    while (t.bucket_mask < (uint64_t)k->value_count) t.bucket_mask = 2 * t.bucket_mask + 1;
    t.buckets = ARENA_ARRAY(r.scratch, int, (int)t.bucket_mask + 1);
    memset(t.buckets, -1, sizeof(int) * (t.bucket_mask + 1));
    rewrite_block(&r, k->head, cse_op, &t);
    forget(&t, 0);
    for (int i = 0; i < k->phase_count; i++) {
        rewrite_block(&r, k->phases[i], cse_op, &t);
        forget(&t, 0);
    }
    return rewrite_finish(&r);
}
