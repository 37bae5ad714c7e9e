/*
 * What becomes of the integers of an array. In: a lowered kernel, or the graph of a tensor function, and an array. Out: may
 * they be any number? Not if one
 * reaches an index, the bound of a loop, an extent, a condition of a `while`, an assertion, or a function that gives NaN
 * or infinity for numbers that nobody means: then only the caller knows which are sensible.
 * Followed forward through values, regions and arrays that are written, until nothing new is reached.
 * SPDX-License-Identifier: MIT
 */
#include "run/module/function.h"

#include <string.h>

typedef struct flow {
    const tile_kernel *k;
    bool *from; /* by value: comes from the array */
    bool arrays[MAX_PARAMS];
    bool grows, limited;
} flow;

static void reach(flow *f, value v)
{
    f->grows |= !f->from[v];
    f->from[v] = true;
}

static bool has_domain(op_code code, dtype from, dtype to)
{
    if (code != OP_CONVERT) return ops[code].domain;
    /* the largest number of a short float is below that of most integers */
    return dtype_is_float(to) && dtypes[to].size_bytes < 4 && to != DT_BF16 && dtypes[from].size_bytes > 1;
}

static void follow_block(flow *f, const tile_block *block, const tile_op *of);

static void follow_access(flow *f, const tile_op *op)
{
    const access *a = &op->attr.access;
    for (int i = 0; i < op->operand_count; i++) {
        if (!f->from[op->operands[i]]) continue;
        if (i < a->first_index) {
            f->grows |= !f->arrays[a->array];
            f->arrays[a->array] = true;
        } else if (i < op->operand_count - a->mask_count) {
            f->limited = true;
        }
    }
    for (int i = 0; f->arrays[a->array] && i < op->result_count; i++) reach(f, op->results[i]);
}

static void follow_op(flow *f, const tile_op *op, const tile_op *of)
{
    bool any = false;
    for (int i = 0; i < op->operand_count; i++) any |= f->from[op->operands[i]];
    for (int i = 0; i < op->result_count; i++) {
        tile_type type = tile_type_of(f->k, op->results[i]);
        for (int axis = 0; axis < type.rank; axis++)
            f->limited |= type.dims[axis] < 0 && f->from[(value)-type.dims[axis]];
    }
    if (ops[op->code].class == CLASS_MEMORY) {
        follow_access(f, op);
        return;
    }
    int skipped = op->code == OP_FOR ? 3 : 0;
    dtype to = op->result_count ? tile_type_of(f->k, op->results[0]).elem : DT_BOOL;
    for (int i = 0; i < op->operand_count; i++) {
        if (!f->from[op->operands[i]]) continue;
        f->limited |= i < skipped || op->code == OP_BOUND || op->code == OP_ASSERT || op->code == OP_ASSUME ||
                      op->code == OP_CONDITION || has_domain(op->code, tile_type_of(f->k, op->operands[0]).elem, to);
        /* a region has one argument for each carried operand, a loop its counter before them */
        for (int r = 0; r < op->region_count && op->code != OP_IF; r++) {
            int arg = i - skipped + (op->code == OP_FOR);
            if (i >= skipped && op->regions[r] && arg < op->regions[r]->arg_count) reach(f, op->regions[r]->args[arg]);
        }
        if (op->code == OP_YIELD && of) {
            if (i < of->result_count) reach(f, of->results[i]);
            for (int r = 0; r < of->region_count && (of->code == OP_FOR || of->code == OP_WHILE); r++) {
                int arg = i + (of->code == OP_FOR);
                if (arg < of->regions[r]->arg_count) reach(f, of->regions[r]->args[arg]);
            }
        }
    }
    bool carries = op->code == OP_FOR || op->code == OP_WHILE; /* a loop without a trip gives what it was given */
    for (int i = 0; i < op->result_count; i++)
        if (carries ? f->from[op->operands[i + skipped]] : any && op->code != OP_IF && op->code != OP_MAP)
            reach(f, op->results[i]);
    for (int r = 0; r < op->region_count; r++)
        if (op->regions[r]) follow_block(f, op->regions[r], op);
}

static void follow_block(flow *f, const tile_block *block, const tile_op *of)
{
    for (int i = 0; i < block->op_count; i++) follow_op(f, block->ops[i], of);
}

bool integers_may_be_any(const tile_kernel *k, int array)
{
    flow f = {.k = k, .grows = true};
    if (k->raw_language || !k->phase_count) return false;
    f.from = heap_array((size_t)k->value_count + 1, sizeof(*f.from));
    memset(f.from, 0, (size_t)k->value_count + 1);
    f.arrays[array] = true;
    while (f.grows && !f.limited) {
        f.grows = false;
        for (int phase = 0; phase < k->phase_count; phase++) follow_block(&f, k->phases[phase], NULL);
    }
    heap_free(f.from);
    return !f.limited;
}

/* Nodes come after their inputs, so one walk follows all. */
bool graph_integers_may_be_any(const graph *g, node array)
{
    bool *from = heap_array((size_t)g->node_count + 1, sizeof(*from)), limited = false;
    memset(from, 0, (size_t)g->node_count + 1);
    from[array] = true;
    for (int n = (int)array + 1; n < g->node_count && !limited; n++) {
        const graph_node *x = graph_get(g, (node)n);
        for (int i = 0; i < x->input_count && !limited; i++) {
            if (!from[x->inputs[i]]) continue;
            from[n] = true;
            switch (x->code) {
            case GRAPH_MAP: limited = has_domain(x->attr.map, graph_get(g, x->inputs[0])->elem, x->elem); break;
            case GRAPH_TAKE:
            case GRAPH_GATHER:
            case GRAPH_TAKE_ADD:
            case GRAPH_GATHER_ADD: limited = i == 1; break;
            case GRAPH_RUN_SUM: limited = i != 1; break;
            case GRAPH_KERNEL: limited = true; break; /* what it does with them is not looked at */
            default: break;
            }
        }
    }
    heap_free(from);
    return !limited;
}
