/*
 * Which extents a kernel's code depends on. In: a lowered kernel. Out: for each scalar or extent parameter whether a
 * tile is as long as it, and whether it bounds slices along the last axis of an array, which are read and written in
 * vectors. Facts of other extents (the number of rows, of programs, of turns of a loop) would make variants that differ
 * in nothing: they are dropped, so that a new batch size compiles nothing.
 * A number that a mask ends at (a padded image's width) is known by what divides it alone.
 * That an array can be copied in bulk is a fact where the kernel multiplies, and where it says more than `aligned`.
 * A tile may also be as long as a number that no array has (a window of something padded): that one decides how many
 * threads take it, as any other.
 * An extent that only short arrays of one axis have (a loss for each row) is not worth a variant for each class either.
 * SPDX-License-Identifier: MIT
 */
#include "run/run.h"

/* A row of as many is one block's; one that is not a multiple of 16 may need a lane more at both ends. */
enum { CPU_CLASS_SHORT = 3, GPU_CLASS_SHORT = 9, SHORT_EXTENT = 16384, SHORT_UNALIGNED = 16368 };

static int parameter_of(const tile_kernel *k, int64_t dim)
{
    const tile_op *op = dim < 0 ? tile_def(k, (value)-dim) : NULL;
    return op && op->code == OP_ARG ? op->attr.index : -1;
}

static void use_access(const tile_kernel *k, const tile_op *op, uint8_t *uses)
{
    const access *a = &op->attr.access;
    const tile_param *p = &k->params[a->array];
    int last = a->rank - 1;
    if (last < 0 || p->extent_param[last] < 0 || a->kind[last] == INDEX_SCALAR) return;
    uses[p->extent_param[last]] |= EXTENT_BOUNDS;
}

/* What a load is masked by: where a padded array ends, along the last axis of the tile. */
static void use_mask(const tile_kernel *k, value mask, int *ways, uint8_t *uses)
{
    const tile_op *op = tile_def(k, mask);
    if (--*ways < 0) return;
    if (op && op->code == OP_AND) {
        use_mask(k, op->operands[0], ways, uses);
        use_mask(k, op->operands[1], ways, uses);
    }
    if (!op || op->code != OP_BOUND) return;
    int p = parameter_of(k, -(int64_t)op->operands[2]), rank = tile_type_of(k, mask).rank;
    if (p >= 0 && rank && op->attr.index == rank - 1) uses[p] |= EXTENT_OF_MASK;
}

static void use_op(tile_kernel *k, tile_block *block, tile_op *op, void *context)
{
    uint8_t *uses = context;
    (void)block;
    for (int r = 0; r < op->result_count; r++) {
        tile_type type = tile_type_of(k, op->results[r]);
        for (int axis = 0; axis < type.rank; axis++) {
            int p = parameter_of(k, type.dims[axis]);
            if (p >= 0) uses[p] |= EXTENT_OF_TILE;
        }
    }
    if (ops[op->code].class == CLASS_MEMORY) use_access(k, op, uses);
    if (op->code == OP_LOAD)
        for (int i = op->operand_count - op->attr.access.mask_count, ways = TILE_MOST_WAYS; i < op->operand_count; i++)
            use_mask(k, op->operands[i], &ways, uses);
    for (int p = 0; p < k->param_count && op->code == OP_DOT; p++)
        if (k->params[p].kind < PARAM_SCALAR) uses[p] |= ARRAY_OF_PRODUCT;
}

void extent_uses(tile_kernel *k, uint8_t *uses)
{
    for (int p = 0; p < k->param_count; p++) uses[p] = 0;
    for (int i = 0; i < k->phase_count; i++) tile_walk(k, k->phases[i], use_op, uses);
    for (int a = 0; a < k->param_count; a++)
        for (int axis = 0; axis < k->params[a].rank; axis++) {
            /* How many parts wait in scratch memory follows the sizes: a new batch size compiles nothing. */
            int parts = k->params[a].kind == PARAM_SCRATCH ? parameter_of(k, -(int64_t)k->params[a].extents[axis]) : -1;
            if (parts >= 0) uses[parts] &= (uint8_t)~EXTENT_OF_MASK;
            int p = k->params[a].extent_param[axis];
            if (p < 0) continue;
            uses[p] |= EXTENT_OF_ARRAY;
            if (k->params[a].rank > 1) uses[p] |= EXTENT_OF_MATRIX;
        }
}

void extent_facts(const tile_kernel *k, const uint8_t *uses, const launch_plan *plan, tile_facts *facts)
{
    for (int p = 0; p < k->param_count; p++) {
        tile_facts *f = &facts[p];
        f->bulk &= (uses[p] & ARRAY_OF_PRODUCT) != 0 || !f->aligned;
        bool is_extent = k->params[p].kind == PARAM_EXTENT || (uses[p] & (EXTENT_OF_ARRAY | EXTENT_OF_TILE));
        if (k->params[p].kind < PARAM_SCALAR) continue;
        if (!is_extent) {
            f->size_class = -1;
            continue;
        }
        bool along = uses[p] & (EXTENT_OF_TILE | EXTENT_BOUNDS);
        bool is_short = uses[p] & EXTENT_OF_ARRAY && !(uses[p] & EXTENT_OF_MATRIX);
        is_short &= plan->scalars_bits[p] <= (f->by16 ? SHORT_EXTENT : SHORT_UNALIGNED);
        f->one &= along && !is_short;
        f->by16 &= along && !is_short;
        f->by8 &= along && !is_short;
        f->by4 &= along && !is_short;
        if (!(uses[p] & EXTENT_OF_TILE))
            f->size_class = -1;
        else if (is_short && f->size_class >= 0)
            f->size_class = f->size_class < 6 ? CPU_CLASS_SHORT : GPU_CLASS_SHORT;
    }
}
