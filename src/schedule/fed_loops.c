/*
 * Finds the product that a phase is about. In: a phase of tile IR. Out: the loops over k around it, outermost first, and
 * for each operand the load that feeds it. A step may have several products, all added up; a second nest of loops may go on
 * with the sums of the first, with operands of its own.
 *
 * A loop belongs to the product if it carries the sums and nothing else. An operand is a load, perhaps transposed, whose
 * elements outside of its array count as zero: a select by the load's own bounds says so, and the copy engine fills in
 * zeros by itself, so the select goes. The last loop steps through k by whole slices; since those adjoin, k may be cut
 * into other steps than the ones that were written.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/fed.h"

static const tile_op *definition(const fed_work *w, value v)
{
    return tile_def(w->s->kernel, v);
}

bool fed_is_number(const fed_work *w, value v, int64_t n)
{
    number x;
    return tile_is_constant(w->s->kernel, v, &x) && x.i == n;
}

bool fed_is_zero_tile(const fed_work *w, value v)
{
    number n;
    while (definition(w, v) && definition(w, v)->code == OP_BROADCAST) v = definition(w, v)->operands[0];
    if (!tile_is_constant(w->s->kernel, v, &n)) return false;
    return dtype_is_float(tile_type_of(w->s->kernel, v).elem) ? n.f == 0 : n.i == 0;
}

/* ---- operands ---- */

/* Is this value the extent of an axis of an array? */
static bool is_extent(const fed_work *w, value v, int array, int axis)
{
    const tile_kernel *k = w->s->kernel;
    const tile_param *p = &k->params[array];
    const tile_op *op = definition(w, v);
    number n;
    if (p->extent_param[axis] >= 0) return op && op->code == OP_ARG && op->attr.index == p->extent_param[axis];
    if (!p->extents[axis]) return false;
    const tile_op *from = definition(w, p->extents[axis]); /* in the head */
    if (from && from->code == OP_ARG) return op && op->code == OP_ARG && op->attr.index == from->attr.index;
    return tile_is_constant(k, p->extents[axis], &n) && fed_is_number(w, v, n.i);
}

/* turned: the mask is of the load's tile with its two axes exchanged. */
static bool bound_is_own(const fed_work *w, const tile_op *bound, const tile_op *load, bool turned)
{
    const struct access *a = &load->attr.access;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        if (a->kind[axis] == INDEX_SLICE &&
            a->result_axis[axis] == (turned ? 1 - bound->attr.index : bound->attr.index))
            return load->operands[operand] == bound->operands[0] && fed_is_number(w, bound->operands[1], 1) &&
                   is_extent(w, bound->operands[2], a->array, axis);
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    return false;
}

static bool mask_is_own(const fed_work *w, value mask, const tile_op *load, bool turned, int *ways)
{
    const tile_op *op = definition(w, mask);
    if (!op || --*ways < 0) return false;
    if (op->code == OP_AND)
        return mask_is_own(w, op->operands[0], load, turned, ways) &&
               mask_is_own(w, op->operands[1], load, turned, ways);
    if (op->code == OP_BROADCAST) return mask_is_own(w, op->operands[0], load, turned, ways);
    return op->code == OP_BOUND && bound_is_own(w, op, load, turned);
}

bool fed_mask_is_own(const fed_work *w, value mask, const tile_op *load, bool turned)
{
    int ways = TILE_MOST_WAYS;
    return mask_is_own(w, mask, load, turned, &ways);
}

/* The slices of a load: one along k, that begins where the last loop stands, one along the tile. */
bool fed_find_axes(fed_work *w, sched_operand *o, int k_result, value k)
{
    const struct access *a = &o->load->attr.access;
    o->k_axis = o->tile_axis = -1;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        value start = o->load->operands[operand];
        if (a->kind[axis] != INDEX_SLICE) {
            if (tile_type_of(w->s->kernel, start).rank) return fed_refuse(w, "an operand is gathered by an index");
            if (start == k) return fed_refuse(w, "an operand does not follow k along its slice");
            operand++;
            continue;
        }
        if (!fed_is_number(w, o->load->operands[operand + 1], 1)) return fed_refuse(w, "an operand is read with gaps");
        bool along = a->result_axis[axis] == k_result;
        if (along != (start == k)) return fed_refuse(w, "an operand does not follow k along its slice");
        *(along ? &o->k_axis : &o->tile_axis) = axis;
        operand += 2;
    }
    if (o->k_axis < 0 || o->tile_axis < 0) return fed_refuse(w, "an operand is not a slice of two axes");
    if (o->gathered) return true;
    o->along_k = o->k_axis == a->rank - 1;
    if (!o->along_k && o->tile_axis != a->rank - 1)
        return fed_refuse(w, "an operand has its elements side by side neither along k nor along the tile");
    return true;
}

/* The number of an operand, which is added if it is new. */
static bool add_operand(fed_work *w, const sched_operand *found, int *number)
{
    schedule *s = w->s;
    for (*number = 0; *number < s->operand_count; ++*number)
        if (s->operands[*number].source == found->source && s->operands[*number].side == found->side &&
            s->operands[*number].walk == found->walk && s->operands[*number].rounds == found->rounds)
            return true;
    if (s->operand_count == SCHED_MOST_OPERANDS) return fed_refuse(w, "the products of a step have too many operands");
    s->operands[s->operand_count++] = *found;
    return true;
}

static bool find_gathered(fed_work *w, const tile_op *load, value v, int side, value k, int *number)
{
    sched_operand found = {.load = load, .source = v, .side = side, .gathered = true};
    const tile_op *op = definition(w, v);
    if (op->code == OP_SELECT) op = definition(w, op->operands[1]);
    found.rounds = op && op->code == OP_TF32;
    found.along_k = tile_type_of(w->s->kernel, v).elem == DT_F32; /* the warps put it that way */
    if (found.along_k && w->s->kernel->fills <= 0) return fed_refuse(w, "an operand of other than 16 bits is gathered");
    return fed_find_axes(w, &found, side == 0 ? 1 : 0, k) && fed_add_gather(w, &found) &&
           add_operand(w, &found, number);
}

static bool find_taken(fed_work *w, const tile_op *load, value v, int side, value k, int *number)
{
    sched_operand found = {.load = load, .source = v, .side = side, .taken = true};
    found.rounds = tile_type_of(w->s->kernel, v).elem == DT_F32;
    if (!fed_find_axes(w, &found, side == 0 ? 1 : 0, k) || !fed_add_take(w, &found)) return false;
    found.along_k |= found.rounds; /* the warps put it that way */
    return add_operand(w, &found, number);
}

/* side 0: [m][k], 1: [k][n]. *number: of the operand. */
static bool find_operand(fed_work *w, int walk, int side, value v, value k, int *number)
{
    schedule *s = w->s;
    const tile_kernel *kernel = s->kernel;
    bool swapped = false, rounds = false, swapped_before = false; /* ... the mask */
    value mask = 0;
    const tile_op *op = definition(w, v), *gathered = fed_gathered_load(w, v);
    if (gathered) return find_gathered(w, gathered, v, side, k, number);
    const tile_op *taken = fed_taken_load(w, v, side);
    if (taken) return find_taken(w, taken, v, side, k, number);
    for (; op; op = definition(w, op->operands[op->code == OP_SELECT])) {
        if (op->code == OP_PERMUTE && op->attr.axes[0] == 1) {
            swapped = !swapped;
        } else if (op->code == OP_TF32) {
            rounds = true;
        } else if (op->code == OP_SELECT && !mask && fed_is_zero_tile(w, op->operands[2])) {
            tile_type whole = tile_type_of(kernel, op->results[0]), part = tile_type_of(kernel, op->operands[1]);
            if (!tile_shape_same(&whole, &part)) return fed_refuse(w, "an operand is broadcast");
            mask = op->operands[0];
            swapped_before = swapped;
        } else {
            break;
        }
    }
    if (!op || op->code != OP_LOAD || op->attr.access.mask_count)
        return fed_refuse(w, "an operand is not read straight from an array");
    if (mask && !fed_mask_is_own(w, mask, op, swapped != swapped_before))
        return fed_refuse(w, "an operand is masked by more than its own bounds");
    const tile_param *p = &kernel->params[op->attr.access.array];
    if (!fed_array_is_bulk(p))
        return fed_refuse(w, arena_print(w->memory,
                                         "no bulk copy walks `%s`: its address and strides are to be multiples of 16 "
                                         "bytes, its last stride 1, its axes at most %d",
                                         p->name, SCHED_MAP_RANK));
    sched_operand found = {.load = op, .source = op->results[0], .walk = walk, .side = side, .rounds = rounds};
    if (!fed_find_axes(w, &found, (side == 0) != swapped ? 1 : 0, k)) return false;
    return add_operand(w, &found, number);
}

/* ---- loops ---- */

static const tile_op *yield_of(const tile_block *b)
{
    return b->ops[b->op_count - 1];
}

/* What may stand in a loop beside the product: scalars of starts, and what masks are made of. */
static bool op_is_quiet(const fed_work *w, const tile_op *op)
{
    if (op->region_count || op->code == OP_STORE || op->code == OP_ATOMIC || ops[op->code].class == CLASS_EFFECT)
        return false;
    return op->code != OP_LOAD || tile_type_of(w->s->kernel, op->results[0]).rank;
}

static bool is_loop_of_sums(const fed_work *w, const tile_op *op)
{
    return op->code == OP_FOR && op->result_count == 1 && !(op->flags & F_DOWN) &&
           tile_type_of(w->s->kernel, op->results[0]).rank == 2;
}

/* The one loop of a block that takes the sums on; NULL: there is none. */
static const tile_op *find_inner(const fed_work *w, const tile_block *body)
{
    for (int i = 0; i < body->op_count; i++)
        if (is_loop_of_sums(w, body->ops[i])) return body->ops[i];
    return NULL;
}

static int count_uses(const tile_block *b, value v)
{
    int count = 0;
    for (int i = 0; i < b->op_count; i++) {
        for (int o = 0; o < b->ops[i]->operand_count; o++) count += b->ops[i]->operands[o] == v;
        for (int r = 0; r < b->ops[i]->region_count; r++) count += count_uses(b->ops[i]->regions[r], v);
    }
    return count;
}

/* A loop around another one: it hands the sums on, and does nothing else that is to be seen. */
static bool check_outer(fed_work *w, const tile_block *body, const tile_op *inner)
{
    for (int i = 0; i + 1 < body->op_count; i++)
        if (body->ops[i] != inner && !op_is_quiet(w, body->ops[i]))
            return fed_refuse(w, "the loop over k does more than products");
    bool alone = inner->operands[3] == body->args[1] && yield_of(body)->operands[0] == inner->results[0] &&
                 count_uses(body, body->args[1]) == 1 && count_uses(body, inner->results[0]) == 1;
    return alone || fed_refuse(w, "the loop does more with the sums than to add to them");
}

/* The products of the last loop, from the last one back to the first: each adds to the one before, the first to the
 * sums, or to nothing where their sum is added to the sums afterwards. */
static bool find_products(fed_work *w, sched_walk *walk)
{
    schedule *s = w->s;
    const tile_op *loop = walk->loops[walk->loop_count - 1];
    const tile_block *body = loop->regions[0];
    value sums = body->args[1], v = yield_of(body)->operands[0];
    const tile_op *op = definition(w, v);
    if (op && op->code == OP_ADD && (op->operands[0] == sums || op->operands[1] == sums)) {
        s->apart = true;
        v = op->operands[op->operands[0] == sums];
        op = definition(w, v);
    }
    const tile_op *dots[SCHED_MOST_PRODUCTS];
    walk->first_product = s->product_count;
    while (op && op->code == OP_DOT) {
        if (s->product_count == SCHED_MOST_PRODUCTS) return fed_refuse(w, "a step has too many products");
        if (count_uses(body, v) != 1) return fed_refuse(w, "the loop does more with the sums than to add to them");
        dots[walk->product_count++] = op;
        s->product_count++;
        v = op->operand_count > 2 ? op->operands[2] : 0;
        if (!v || v == sums || (s->apart && fed_is_zero_tile(w, v))) break;
        op = definition(w, v);
    }
    if (!op || op->code != OP_DOT || (v == sums) == s->apart || count_uses(body, sums) != 1)
        return fed_refuse(w, "the loop does more with the sums than to add to them");
    int products = 0;
    for (int i = 0; i + 1 < body->op_count; i++) {
        if (body->ops[i]->code == OP_DOT) products++;
        if (!op_is_quiet(w, body->ops[i])) return fed_refuse(w, "the loop over k does more than products");
    }
    if (products != walk->product_count) return fed_refuse(w, "the loop has products for several sums");
    for (int i = 0; i < products; i++) s->products[walk->first_product + i].dot = dots[products - 1 - i];
    return true;
}

static bool check_step(fed_work *w, sched_walk *walk)
{
    schedule *s = w->s;
    const tile_op *loop = walk->loops[walk->loop_count - 1];
    const sched_product *product = &s->products[walk->first_product];
    const sched_operand *left = &s->operands[product->left];
    number step;
    if (!tile_is_constant(s->kernel, loop->operands[2], &step) ||
        tile_type_of(s->kernel, product->dot->operands[0]).dims[1] != step.i)
        return fed_refuse(w, "the slices of k do not adjoin");
    walk->step = (int)step.i;
    walk->ends_with_k = is_extent(w, loop->operands[1], left->load->attr.access.array, left->k_axis);
    return true;
}

/* The nest of loops that begins with op. */
static bool find_walk(fed_work *w, const tile_op *op)
{
    schedule *s = w->s;
    int number = s->walk_count++;
    sched_walk *walk = &s->walks[number];
    s->sums = op->results[0];
    while (op) {
        const tile_op *inner = find_inner(w, op->regions[0]);
        if (walk->loop_count == SCHED_MOST_LOOPS) return fed_refuse(w, "too many loops are around the product");
        walk->loops[walk->loop_count++] = op;
        if (inner && !check_outer(w, op->regions[0], inner)) return false;
        op = inner;
    }
    if (!find_products(w, walk)) return false;
    value k = walk->loops[walk->loop_count - 1]->regions[0]->args[0];
    for (int i = 0; i < walk->product_count; i++) {
        sched_product *p = &s->products[walk->first_product + i];
        if (!find_operand(w, number, 0, p->dot->operands[0], k, &p->left) ||
            !find_operand(w, number, 1, p->dot->operands[1], k, &p->right))
            return false;
    }
    return check_step(w, walk);
}

bool fed_find_loops(fed_work *w)
{
    schedule *s = w->s;
    const tile_block *block = s->kernel->phases[s->phase];
    for (int i = 0; i < block->op_count; i++) {
        const tile_op *x = block->ops[i];
        if (!x->region_count) continue;
        bool goes_on = s->walk_count && x->code == OP_FOR && x->operand_count > 3 && x->operands[3] == s->sums &&
                       count_uses(block, s->sums) == 1;
        if (!is_loop_of_sums(w, x) || s->walk_count == SCHED_MOST_WALKS || (s->walk_count && !goes_on))
            return fed_refuse(w, "there is more than one loop around a product");
        if (!s->walk_count && !fed_is_zero_tile(w, x->operands[3]))
            return fed_refuse(w, "the sums do not begin at zero");
        if (!find_walk(w, x)) return false;
    }
    if (!s->walk_count) return fed_refuse(w, "the product is in no loop over k");
    if (s->walk_count > 1 && (s->apart || sched_warps_fill(s) || s->product_count != s->walk_count))
        return fed_refuse(w, "a second product goes on with sums that are made of several");
    if (s->gather.load && sched_takes(s)) return fed_refuse(w, "one operand is gathered, another one computed");
    if (s->gather.load && s->walks[0].loop_count > 1)
        return fed_refuse(w, "an operand is gathered in several loops");
    return !sched_takes(s) || fed_check_taken_loops(w);
}
