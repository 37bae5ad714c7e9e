/*
 * Finds loops of two chained products; chained.h has the idea.
 *
 * Loads of operands are slices of whole rows that begin at the loop's count (what it walks through) or do not depend on
 * it (the left operand). Their own bounds count as zeros, which the copy engine fills in. Rows beyond the array's end are
 * computed and not stored. Masks of scores must be comparisons of positions, so that steps they leave whole are known.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/chained.h"

#include <string.h>

enum { HOPPER = 90, GROUP_ROWS = 64, MOST_DEPTH = 128, PHASE_BYTES = 8, MAP_RANK = 5, MOST_STAGES = 4 };

typedef struct search {
    chained *c;
    const char *why;
} search;

static bool refuse(search *w, const char *why)
{
    if (!w->why) w->why = why;
    return false;
}

static const tile_op *def(const chained *c, value v)
{
    return tile_def(c->kernel, v);
}

static bool is_number(const chained *c, value v, int64_t n)
{
    number x;
    return tile_is_constant(c->kernel, v, &x) && x.i == n;
}

static bool is_zero(const chained *c, value v)
{
    number n;
    while (def(c, v) && def(c, v)->code == OP_BROADCAST) v = def(c, v)->operands[0];
    return tile_is_constant(c->kernel, v, &n) && n.f == 0 && n.i == 0;
}

chained_kind chained_kind_of(const chained *c, value v)
{
    tile_type t = tile_type_of(c->kernel, v);
    if (!t.rank) return CHAINED_SCALAR;
    if (t.rank == 1) return t.dims[0] == c->rows ? CHAINED_ROW : CHAINED_COLUMN;
    if (t.dims[1] == 1) return CHAINED_ROW;
    if (t.dims[0] == 1) return CHAINED_COLUMN;
    /* Scores and sums may have the same shape: what the loop carries, or comes after it, is sums. */
    const tile_block *body = c->loop->regions[0];
    for (int i = 0; i < body->op_count; i++)
        for (int r = 0; r < body->ops[i]->result_count; r++)
            if (body->ops[i]->results[r] == v && body->ops[i] != c->second &&
                !(c->second->operand_count > 2 && c->second->operands[2] == v))
                return CHAINED_SCORE;
    return CHAINED_SUM;
}

bool chained_is_row_test(const chained *c, value v)
{
    const tile_op *op = def(c, v);
    return op && ops[op->code].class == CLASS_COMPARE && chained_kind_of(c, v) == CHAINED_ROW &&
           tile_type_of(c->kernel, op->operands[0]).elem == DT_F32;
}

/* ---- operands ---- */

static bool is_own_bound(const chained *c, const tile_op *bound, const tile_op *load)
{
    const struct access *a = &load->attr.access;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        if (a->kind[axis] == INDEX_SLICE && a->result_axis[axis] == bound->attr.index) {
            const tile_op *extent = def(c, bound->operands[2]);
            int param = c->kernel->params[a->array].extent_param[axis];
            return load->operands[operand] == bound->operands[0] && is_number(c, bound->operands[1], 1) && param >= 0 &&
                   extent && extent->code == OP_ARG && extent->attr.index == param;
        }
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    return false;
}

static bool is_own_mask(const chained *c, value mask, const tile_op *load)
{
    const tile_op *op = def(c, mask);
    if (!op) return false;
    if (op->code == OP_AND) return is_own_mask(c, op->operands[0], load) && is_own_mask(c, op->operands[1], load);
    if (op->code == OP_BROADCAST) return is_own_mask(c, op->operands[0], load);
    return op->code == OP_BOUND && is_own_bound(c, op, load);
}

/* A slice [start : rows][0 : depth] of whole rows, straight from an array; start 0: does not follow the loop. */
static const tile_op *find_load(search *w, value v, bool turned, value start, int *depth)
{
    const chained *c = w->c;
    const tile_op *op = def(c, v);
    if (turned) {
        if (!op || op->code != OP_PERMUTE || op->attr.axes[0] != 1) return refuse(w, "an operand is not in rows"), NULL;
        op = def(c, op->operands[0]);
    }
    value mask = 0;
    if (op && op->code == OP_SELECT && is_zero(c, op->operands[2])) {
        mask = op->operands[0];
        op = def(c, op->operands[1]);
    }
    if (!op || op->code != OP_LOAD || op->attr.access.mask_count)
        return refuse(w, "an operand is not read straight from an array"), NULL;
    if (mask && !is_own_mask(c, mask, op)) return refuse(w, "an operand is masked by more than its bounds"), NULL;
    const struct access *a = &op->attr.access;
    const tile_param *p = &c->kernel->params[a->array];
    tile_type type = tile_type_of(c->kernel, op->results[0]);
    if (!p->facts.bulk || a->rank < 2 || a->rank + 1 > MAP_RANK)
        return refuse(w, "an array is not laid out for bulk copies"), NULL;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        value at = op->operands[operand];
        bool slice = axis >= a->rank - 2;
        if ((a->kind[axis] == INDEX_SLICE) != slice || tile_type_of(c->kernel, at).rank)
            return refuse(w, "an operand is not a slice of rows"), NULL;
        if (slice && !is_number(c, op->operands[operand + 1], 1)) return refuse(w, "an operand has gaps"), NULL;
        if (axis == a->rank - 2 && (start ? at != start : at == c->loop->regions[0]->args[0]))
            return refuse(w, "an operand does not follow the loop"), NULL;
        if (axis == a->rank - 1 && !is_number(c, at, 0)) return refuse(w, "an operand is not whole rows"), NULL;
        operand += slice ? 2 : 1;
    }
    number whole;
    bool known = p->extents[a->rank - 1] && tile_is_constant(c->kernel, p->extents[a->rank - 1], &whole);
    *depth = (int)type.dims[1];
    if (!known || whole.i != *depth || *depth % GROUP_ROWS || *depth > MOST_DEPTH)
        return refuse(w, "rows are not of 64 or 128 elements"), NULL;
    return op;
}

/* ---- masks ---- */

/* start + iota along the rows (axis 0) or columns (1). */
static bool find_position(const chained *c, value v, int *axis, value *start)
{
    const tile_op *op = def(c, v);
    tile_type type = tile_type_of(c->kernel, v);
    if (!op || type.rank != 2) return false;
    *axis = type.dims[0] == 1 ? 1 : 0;
    if (op->code == OP_RESHAPE) op = def(c, op->operands[0]);
    if (!op || op->code != OP_ADD) return false;
    for (int i = 0; i < 2; i++) {
        const tile_op *iota = def(c, op->operands[i]);
        if (iota && iota->code == OP_RESHAPE) iota = def(c, iota->operands[0]);
        if (!iota || iota->code != OP_IOTA || tile_type_of(c->kernel, op->operands[!i]).rank) continue;
        *start = op->operands[!i];
        return true;
    }
    return false;
}

static bool add_condition(chained *c, chained_condition condition, unsigned *bits)
{
    int at = 0;
    while (at < c->condition_count && c->conditions[at].of != condition.of) at++;
    if (at == CHAINED_MOST_CONDITIONS) return false;
    if (at == c->condition_count) c->conditions[c->condition_count++] = condition;
    *bits |= 1u << at;
    return true;
}

static bool find_mask(chained *c, value v, unsigned *bits)
{
    const tile_op *op = def(c, v);
    value j = c->loop->regions[0]->args[0];
    if (!op) return false;
    switch (op->code) {
    case OP_AND: return find_mask(c, op->operands[0], bits) && find_mask(c, op->operands[1], bits);
    case OP_BROADCAST: return find_mask(c, op->operands[0], bits);
    case OP_BOUND: {
        tile_type type = tile_type_of(c->kernel, v);
        if (type.rank != 2 || !is_number(c, op->operands[1], 1)) return false;
        if (op->attr.index == 0) return true; /* rows that do not exist are not stored */
        return op->operands[0] == j &&
               add_condition(c, (chained_condition){.of = v, .column = j, .limit = op->operands[2]}, bits);
    }
    case OP_LE:
    case OP_LT:
    case OP_GE:
    case OP_GT: {
        int left, right;
        value a, b;
        if (!find_position(c, op->operands[0], &left, &a) || !find_position(c, op->operands[1], &right, &b))
            return false;
        bool below = op->code == OP_LE || op->code == OP_LT;
        /* Only "columns up to a row": steps before it are whole. */
        if (left == right || (left == 1) != below || (left == 1 ? a : b) != j) return false;
        bool equal = op->code == OP_LE || op->code == OP_GE;
        return add_condition(
            c, (chained_condition){.of = v, .column = j, .row = left == 1 ? b : a, .compare = equal ? OP_LE : OP_LT},
            bits);
    }
    default: return false;
    }
}

bool chained_mask(const chained *c, value v, unsigned *conditions)
{
    chained copy = *c;
    *conditions = 0;
    return find_mask(&copy, v, conditions) && copy.condition_count == c->condition_count;
}

/* ---- the phase ---- */

static bool find_products(search *w)
{
    chained *c = w->c;
    const tile_block *body = c->loop->regions[0];
    for (int i = 0; i < body->op_count; i++) {
        const tile_op *op = body->ops[i];
        if (op->region_count) return refuse(w, "there is a loop or a branch in the loop");
        if (op->code != OP_DOT) continue;
        if (c->second) return refuse(w, "the loop has more than two products");
        *(c->first ? &c->second : &c->first) = op;
    }
    if (!c->second) return refuse(w, "the loop has no two products");
    const tile_op *yield = body->ops[body->op_count - 1];
    c->carried = -1;
    for (int i = 0; i < yield->operand_count; i++)
        if (yield->operands[i] == c->second->results[0]) c->carried = i;
    if (c->carried < 0 || c->second->operand_count < 3) return refuse(w, "the second product's sums are not carried");
    if (c->first->operand_count > 2 && !is_zero(c, c->first->operands[2]))
        return refuse(w, "the first product adds to something");
    value sums = body->args[1 + c->carried], added = c->second->operands[2];
    const tile_op *scaled = def(c, added);
    if (added == sums) return true;
    if (!scaled || scaled->code != OP_MUL) return refuse(w, "the sums are changed between the steps");
    for (int i = 0; i < 2; i++)
        if (scaled->operands[i] == sums) c->scale = scaled->operands[!i];
    tile_type type = tile_type_of(c->kernel, c->scale ? c->scale : sums);
    return (c->scale && type.rank == 2 && type.dims[1] == 1) || refuse(w, "the sums are changed between the steps");
}

static bool find_operands(search *w)
{
    chained *c = w->c;
    value j = c->loop->regions[0]->args[0];
    int keys = 0;
    tile_type scores = tile_type_of(c->kernel, c->first->results[0]),
              sums = tile_type_of(c->kernel, c->second->results[0]);
    c->rows = (int)scores.dims[0];
    c->columns = (int)scores.dims[1];
    c->width = (int)sums.dims[1];
    number step;
    if (scores.elem != DT_F32 || sums.elem != DT_F32) return refuse(w, "its sums are not f32");
    if ((c->rows != GROUP_ROWS && c->rows != 2 * GROUP_ROWS) || (c->columns != 64 && c->columns != 128))
        return refuse(w, "its tile is not of 64 or 128 rows and columns");
    if (!tile_is_constant(c->kernel, c->loop->operands[2], &step) || step.i != c->columns)
        return refuse(w, "the steps of the loop are not whole tiles");
    c->left = find_load(w, c->first->operands[0], false, 0, &c->depth);
    c->keys = c->left ? find_load(w, c->first->operands[1], true, j, &keys) : NULL;
    int width = 0;
    c->values = c->keys ? find_load(w, c->second->operands[1], false, j, &width) : NULL;
    if (!c->values) return false;
    c->weights = c->second->operands[0];
    c->elem = c->kernel->params[c->left->attr.access.array].elem;
    for (int i = 0; i < 2; i++) {
        const tile_op *load = i ? c->values : c->keys;
        if (c->kernel->params[load->attr.access.array].elem != c->elem) return refuse(w, "operands differ in type");
    }
    return c->elem == DT_BF16 || c->elem == DT_F16 || refuse(w, "its operands are neither bf16 nor f16");
}

static bool is_operand(const chained *c, const tile_op *op)
{
    for (int i = 0; i < 3; i++) {
        const tile_op *load = i == 0 ? c->left : i == 1 ? c->keys : c->values;
        value v = load->results[0];
        if (op == load) return true;
        for (int o = 0; o < op->operand_count; o++) /* its mask's select, and that turned */
            if (op->operands[o] == v || (def(c, op->operands[o]) && def(c, op->operands[o])->code == OP_SELECT &&
                                         def(c, op->operands[o])->operands[1] == v))
                return true;
    }
    return false;
}

/* All that the loop computes besides: element by element, folds of rows, masks of positions. */
static bool check_body(search *w)
{
    chained *c = w->c;
    const tile_block *body = c->loop->regions[0];
    for (int i = 0; i + 1 < body->op_count; i++) {
        const tile_op *op = body->ops[i];
        if (op == c->first || op == c->second || is_operand(c, op)) continue;
        tile_type type = tile_type_of(c->kernel, op->results[0]);
        unsigned bits = 0;
        if (!type.rank) {
            if (op->code == OP_LOAD) return refuse(w, "the loop reads more than its operands");
            continue;
        }
        if (chained_is_row_test(c, op->results[0])) continue;
        if (!dtype_is_float(type.elem)) {
            if (type.elem == DT_BOOL && type.rank == 2 && !find_mask(c, op->results[0], &bits))
                return refuse(w, "a mask is no comparison of positions");
            continue; /* positions: only masks use them */
        }
        switch (ops[op->code].class) {
        case CLASS_UNARY:
        case CLASS_BINARY:
        case CLASS_TERNARY: break;
        case CLASS_FOLD:
            if (op->code == OP_REDUCE && op->attr.axis_set == 2 &&
                (op->attr.fold == FOLD_MAX || op->attr.fold == FOLD_SUM) &&
                chained_kind_of(c, op->operands[0]) == CHAINED_SCORE)
                break;
            return refuse(w, "the loop has another fold than of rows");
        default:
            if (op->code == OP_BROADCAST && !tile_type_of(c->kernel, op->operands[0]).rank) break;
            return refuse(w, "the loop does more than arithmetic");
        }
        for (int o = 0; o < op->operand_count; o++) {
            value v = op->operands[o];
            tile_type from = tile_type_of(c->kernel, v);
            if (from.rank == 1) return refuse(w, "a tile of one axis is used");
            if (from.elem == DT_BOOL && from.rank && !chained_is_row_test(c, v) && op->code != OP_SELECT)
                return refuse(w, "a mask is used as a number");
        }
    }
    return true;
}

static bool find_stores(search *w)
{
    chained *c = w->c;
    const tile_block *block = c->kernel->phases[c->phase];
    bool after = false;
    c->bulk_store = -1;
    for (int i = 0; i < block->op_count; i++) {
        const tile_op *op = block->ops[i];
        if (op == c->loop) {
            after = true;
            continue;
        }
        if (op->code == OP_STORE) {
            const struct access *a = &op->attr.access;
            chained_kind kind = chained_kind_of(c, op->operands[0]);
            if (!after || a->mask_count || c->store_count == CHAINED_MOST_STORES ||
                (kind != CHAINED_SUM && kind != CHAINED_ROW))
                return refuse(w, "a store is not of rows");
            const tile_param *p = &c->kernel->params[a->array];
            if (kind == CHAINED_SUM) {
                if (c->bulk_store >= 0 || p->elem != c->elem || !p->facts.bulk || a->rank + 1 > MAP_RANK ||
                    a->kind[a->rank - 1] != INDEX_SLICE || a->kind[a->rank - 2] != INDEX_SLICE)
                    return refuse(w, "its result is not laid out for bulk copies");
                c->bulk_store = c->store_count;
            }
            c->stores[c->store_count++] = op;
            continue;
        }
        bool effect =
            op->region_count || op->code == OP_ATOMIC || (ops[op->code].class == CLASS_EFFECT && op->code != OP_ASSUME);
        if (effect) return refuse(w, "there is more than one loop");
        if (!after || !op->result_count || !tile_type_of(c->kernel, op->results[0]).rank) continue;
        op_class class = ops[op->code].class;
        if (class != CLASS_UNARY && class != CLASS_BINARY && class != CLASS_TERNARY && op->code != OP_BROADCAST &&
            op->code != OP_RESHAPE)
            return refuse(w, "what follows the loop is not computed element by element");
        if (!dtype_is_float(tile_type_of(c->kernel, op->results[0]).elem))
            return refuse(w, "there are masks behind the loop");
    }
    return c->bulk_store >= 0 || refuse(w, "its sums are not stored");
}

const chained *chained_phase(const tile_kernel *k, int phase, const sched_machine *machine, arena *memory,
                             const char **why)
{
    chained *c = ARENA_NEW(memory, chained);
    search w = {.c = c};
    *c = (chained){.kernel = k, .phase = phase};
    const tile_block *block = k->phases[phase];
    int loops = 0;
    for (int i = 0; i < block->op_count; i++)
        if (block->ops[i]->region_count) {
            loops++;
            if (block->ops[i]->code == OP_FOR && !(block->ops[i]->flags & F_DOWN)) c->loop = block->ops[i];
        }
    bool suits = machine->arch == HOPPER && loops == 1 && c->loop && c->loop->result_count > 1;
    suits = suits && find_products(&w) && find_operands(&w) && check_body(&w) && find_stores(&w);
    *why = w.why;
    if (!suits) return NULL;
    int64_t line = (int64_t)dtypes[c->elem].size_bytes;
    c->groups = c->rows / GROUP_ROWS;
    c->threads = c->groups * 128 + 128;
    for (c->stages = MOST_STAGES; c->stages > 1; c->stages--) {
        c->keys_offset = (int64_t)c->rows * MAXIMUM(c->depth, c->width) * line;
        c->values_offset = c->keys_offset + c->stages * (int64_t)c->columns * c->depth * line;
        c->phases_offset = c->values_offset + c->stages * (int64_t)c->columns * c->width * line;
        c->shared_bytes = c->phases_offset + (1 + 4 * c->stages) * PHASE_BYTES;
        if (c->shared_bytes <= machine->shared_bytes) break;
    }
    if (c->stages < 2) {
        *why = "its rooms do not fit into shared memory";
        return NULL;
    }
    return c;
}
