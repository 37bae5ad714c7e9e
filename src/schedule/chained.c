/*
 * Finds loops of chained products; chained.h has the idea.
 *
 * Loads of operands are slices of whole rows that begin at the loop's count (moving ones) or do not depend on it (fixed
 * ones). Their own bounds count as zeros, which the copy engine fills in. Fixed rows beyond the array's end are computed
 * and not stored. Masks of scores must be comparisons of positions, so that steps they leave whole are known.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/chained.h"
#include "target/target.h"

#include <string.h>

enum { GROUP_ROWS = 64, MOST_DEPTH = 256, PHASE_BYTES = 8, MAP_RANK = 5, MOST_STAGES = 4 };
/* Long programs of so many heads before the short ones of any: what they read stays in the cache together. */
enum { MOST_BESIDE = 4 };
enum {
    MOST_HELD = 192
}; /* registers of a thread with those of a fixed operand: more would not be there for addresses */
/* Of a thread: scores, weights and sums; the rest is for addresses and numbers of rows. */
enum { MOST_COLUMNS = 128, MOST_IN_FLIGHT = 200, MOST_REGISTERS = 224, MOST_GROUPS = 3, MOST_OF_THREE = 128 };

typedef struct search {
    chained *c;
    unsigned char *needs; /* by value: bits of the products that it is computed from */
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

bool chained_is_zero(const chained *c, value v)
{
    number n;
    while (def(c, v) && def(c, v)->code == OP_BROADCAST) v = def(c, v)->operands[0];
    return tile_is_constant(c->kernel, v, &n) && n.f == 0 && n.i == 0;
}

int chained_boxes(int depth)
{
    return (depth + 63) / 64;
}

bool chained_is_product(const chained *c, const tile_op *op)
{
    for (int i = 0; i < c->product_count; i++)
        if (c->products[i].dot == op) return true;
    for (int i = 0; i < c->sum_count; i++)
        if (c->sums[i].dot == op) return true;
    return false;
}

/* A sum's dot, or what scales it before: elements of sums inside the loop. */
static bool is_of_sums(const chained *c, value v)
{
    for (int i = 0; i < c->sum_count; i++) {
        const tile_op *dot = c->sums[i].dot;
        if (dot->results[0] == v || (dot->operand_count > 2 && dot->operands[2] == v)) return true;
    }
    return false;
}

static int sum_below(const chained *c, value v, bool *seen)
{
    for (int i = 0; i < c->sum_count; i++)
        if (c->loop->results[c->sums[i].carried] == v) return i;
    const tile_op *op = def(c, v);
    int sum = -1;
    if (seen[v]) return -1;
    seen[v] = true;
    for (int i = 0; op && op != c->loop && i < op->operand_count && sum < 0; i++)
        if (tile_type_of(c->kernel, op->operands[i]).rank) sum = sum_below(c, op->operands[i], seen);
    return sum;
}

int chained_sum_of(const chained *c, value v)
{
    bool *seen = heap_array((size_t)c->kernel->value_count, sizeof(bool));
    int sum = sum_below(c, v, seen);
    heap_free(seen);
    return sum;
}

chained_kind chained_kind_of(const chained *c, value v)
{
    tile_type t = tile_type_of(c->kernel, v);
    if (!t.rank) return CHAINED_SCALAR;
    if (t.rank == 1) return t.dims[0] == c->rows ? CHAINED_FIXED : CHAINED_MOVING;
    if (t.dims[0] == 1 || t.dims[1] == 1) return (t.dims[1] == 1) == !c->turned ? CHAINED_FIXED : CHAINED_MOVING;
    /* Scores and sums may have the same shape: what the loop carries, or comes after it, is sums. */
    const tile_block *body = c->loop->regions[0];
    for (int i = 0; i < body->op_count; i++)
        for (int r = 0; r < body->ops[i]->result_count; r++)
            if (body->ops[i]->results[r] == v && !is_of_sums(c, v)) return CHAINED_SCORE;
    return CHAINED_SUM;
}

/* Behind the loop one number a fixed row is [rows][1] in turned loops, too. */
static bool is_row_of_sums(const chained *c, value v)
{
    tile_type t = tile_type_of(c->kernel, v);
    return t.rank == 1 ? t.dims[0] == c->rows : t.rank == 2 && t.dims[1] == 1 && t.dims[0] == c->rows;
}

bool chained_is_row_test(const chained *c, value v)
{
    const tile_op *op = def(c, v);
    return op && ops[op->code].class == CLASS_COMPARE && chained_kind_of(c, v) == CHAINED_FIXED &&
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

static bool is_own_mask(const chained *c, value mask, const tile_op *load, int *ways)
{
    const tile_op *op = def(c, mask);
    if (!op || --*ways < 0) return false;
    if (op->code == OP_AND)
        return is_own_mask(c, op->operands[0], load, ways) && is_own_mask(c, op->operands[1], load, ways);
    if (op->code == OP_BROADCAST) return is_own_mask(c, op->operands[0], load, ways);
    return op->code == OP_BOUND && is_own_bound(c, op, load);
}

/* A slice [start : rows][0 : depth] of whole rows, straight from an array. The operand's number; -1: refused. */
static int find_operand(search *w, value v, bool turned, int lines[2])
{
    chained *c = w->c;
    const tile_op *op = def(c, v);
    if (turned) {
        if (!op || op->code != OP_PERMUTE || op->attr.axes[0] != 1) return refuse(w, "an operand is not in rows"), -1;
        op = def(c, op->operands[0]);
    }
    value mask = 0;
    if (op && op->code == OP_SELECT && chained_is_zero(c, op->operands[2])) {
        mask = op->operands[0];
        op = def(c, op->operands[1]);
    }
    if (!op || op->code != OP_LOAD || op->attr.access.mask_count)
        return refuse(w, "an operand is not read straight from an array"), -1;
    int ways = TILE_MOST_WAYS;
    if (mask && !is_own_mask(c, mask, op, &ways)) return refuse(w, "an operand is masked by more than its bounds"), -1;
    for (int i = 0; i < c->operand_count; i++)
        if (c->operands[i].load == op) return i;
    const struct access *a = &op->attr.access;
    const tile_param *p = &c->kernel->params[a->array];
    tile_type type = tile_type_of(c->kernel, op->results[0]);
    chained_operand o = {.load = op};
    if (!p->facts.bulk || p->digits || a->rank < 2 || a->rank > MAP_RANK)
        return refuse(w, "an array is not laid out for bulk copies"), -1;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        value at = op->operands[operand];
        bool slice = axis >= a->rank - 2;
        if ((a->kind[axis] == INDEX_SLICE) != slice || tile_type_of(c->kernel, at).rank)
            return refuse(w, "an operand is not a slice of rows"), -1;
        if (slice && !is_number(c, op->operands[operand + 1], 1)) return refuse(w, "an operand has gaps"), -1;
        if (axis == a->rank - 2) o.moves = at == c->loop->regions[0]->args[0];
        if (axis == a->rank - 1 && !is_number(c, at, 0)) return refuse(w, "an operand is not whole rows"), -1;
        operand += slice ? 2 : 1;
    }
    number whole;
    bool known = p->extents[a->rank - 1] && tile_is_constant(c->kernel, p->extents[a->rank - 1], &whole);
    o.depth = (int)type.dims[1];
    if (!known || whole.i != o.depth || o.depth % 16 || o.depth > MOST_DEPTH)
        return refuse(w, "rows are not of 16 to 256 elements, in sixteens"), -1;
    if (c->operand_count == CHAINED_MOST_OPERANDS) return refuse(w, "it has too many operands"), -1;
    if (!lines[o.moves]) lines[o.moves] = (int)type.dims[0];
    if (lines[o.moves] != type.dims[0]) return refuse(w, "operands differ in rows"), -1;
    if (!c->operand_count) c->elem = p->elem;
    if (p->elem != c->elem) return refuse(w, "operands differ in type"), -1;
    c->operands[c->operand_count] = o;
    return c->operand_count++;
}

/* ---- products ---- */

static bool add_sum(search *w, const tile_op *op, int carried)
{
    chained *c = w->c;
    const tile_block *body = c->loop->regions[0];
    if (c->sum_count == CHAINED_MOST_SUMS) return refuse(w, "the loop has more than two sums");
    chained_sum s = {.dot = op, .carried = carried, .store = -1};
    if (op->operand_count < 3) return refuse(w, "a product's sums are not carried");
    value sums = body->args[1 + carried], added = op->operands[2];
    const tile_op *scaled = def(c, added);
    if (added != sums) {
        if (!scaled || scaled->code != OP_MUL) return refuse(w, "the sums are changed between the steps");
        for (int i = 0; i < 2; i++)
            if (scaled->operands[i] == sums) s.scale = scaled->operands[!i];
        tile_type type = tile_type_of(c->kernel, s.scale ? s.scale : sums);
        if (!s.scale || type.rank != 2 || type.dims[1] != 1) return refuse(w, "the sums are changed between the steps");
    }
    c->sums[c->sum_count++] = s;
    return true;
}

static bool find_products(search *w)
{
    chained *c = w->c;
    const tile_block *body = c->loop->regions[0];
    const tile_op *yield = body->ops[body->op_count - 1];
    for (int i = 0; i < body->op_count; i++) {
        const tile_op *op = body->ops[i];
        if (op->region_count) return refuse(w, "there is a loop or a branch in the loop");
        if (op->code != OP_DOT) continue;
        int carried = -1;
        for (int y = 0; y < yield->operand_count; y++)
            if (yield->operands[y] == op->results[0]) carried = y;
        if (carried >= 0) {
            if (!add_sum(w, op, carried)) return false;
            continue;
        }
        if (op->operand_count > 2 && !chained_is_zero(c, op->operands[2]))
            return refuse(w, "a product of scores adds to something");
        if (c->product_count == CHAINED_MOST_PRODUCTS)
            return refuse(w, "the loop has more than two products of scores");
        c->products[c->product_count++].dot = op;
    }
    return c->product_count && (c->sum_count || refuse(w, "the loop has no two products"));
}

static bool find_operands(search *w)
{
    chained *c = w->c;
    int lines[2] = {0};
    number step;
    for (int i = 0; i < c->product_count; i++) {
        chained_product *p = &c->products[i];
        int left = find_operand(w, p->dot->operands[0], false, lines);
        int right = left < 0 ? -1 : find_operand(w, p->dot->operands[1], true, lines);
        if (right < 0) return false;
        bool turned = c->operands[left].moves;
        if (turned == c->operands[right].moves || (i && turned != c->turned))
            return refuse(w, "operands do not follow the loop");
        c->turned = turned;
        p->fixed = turned ? right : left;
        p->moving = turned ? left : right;
        if (tile_type_of(c->kernel, p->dot->results[0]).elem != DT_F32) return refuse(w, "its sums are not f32");
    }
    c->rows = lines[0];
    c->columns = lines[1];
    if (c->rows % GROUP_ROWS || c->rows > MOST_GROUPS * GROUP_ROWS || c->columns % 16 || c->columns > MOST_COLUMNS)
        return refuse(w, "its tile is not of 64, 128 or 192 fixed rows and up to 128 moving ones, in sixteens");
    if (!tile_is_constant(c->kernel, c->loop->operands[2], &step) || step.i != c->columns)
        return refuse(w, "the steps of the loop are not whole tiles");
    for (int i = 0; i < c->sum_count; i++) {
        chained_sum *s = &c->sums[i];
        s->weights = s->dot->operands[0];
        if (c->turned) {
            const tile_op *op = def(c, s->weights);
            if (!op || op->code != OP_PERMUTE || op->attr.axes[0] != 1) return refuse(w, "weights are not turned");
            s->weights = op->operands[0];
        }
        s->moving = find_operand(w, s->dot->operands[1], false, lines);
        if (s->moving < 0) return false;
        if (!c->operands[s->moving].moves) return refuse(w, "operands do not follow the loop");
        s->width = c->operands[s->moving].depth;
        if (tile_type_of(c->kernel, s->dot->results[0]).elem != DT_F32) return refuse(w, "its sums are not f32");
    }
    return c->elem == DT_BF16 || c->elem == DT_F16 || refuse(w, "its operands are neither bf16 nor f16");
}

static bool is_operand(const chained *c, const tile_op *op)
{
    for (int i = 0; i < c->operand_count; i++) {
        const tile_op *load = c->operands[i].load;
        value v = load->results[0];
        if (op == load) return true;
        for (int o = 0; o < op->operand_count; o++) /* its mask's select, and that turned */
            if (op->operands[o] == v || (def(c, op->operands[o]) && def(c, op->operands[o])->code == OP_SELECT &&
                                         def(c, op->operands[o])->operands[1] == v))
                return true;
    }
    for (int i = 0; i < c->sum_count; i++) /* weights, turned */
        if (c->sums[i].dot->operands[0] == op->results[0] && op->code == OP_PERMUTE) return true;
    return false;
}

/* One number a row, from an array, for rows of the program or of a step. */
static bool is_vector(const chained *c, const tile_op *op)
{
    const struct access *a = &op->attr.access;
    tile_type type = tile_type_of(c->kernel, op->results[0]);
    if (op->code != OP_LOAD || a->mask_count || type.elem != DT_F32 || type.rank != 2) return false;
    int slices = 0;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        if (a->kind[axis] == INDEX_SLICE) {
            slices++;
            if (!is_number(c, op->operands[operand + 1], 1)) return false;
        }
        if (tile_type_of(c->kernel, op->operands[operand]).rank) return false;
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    return slices == 1 && (type.dims[0] == 1) != (type.dims[1] == 1);
}

bool chained_is_table(const chained *c, const tile_op *op)
{
    const struct access *a = &op->attr.access;
    if (op->code != OP_LOAD || a->mask_count || c->kernel->params[a->array].digits) return false;
    tile_type type = tile_type_of(c->kernel, op->results[0]);
    int moving = 0, fixed = 0;
    for (int axis = 0, operand = a->first_index; axis < a->rank; axis++) {
        value at = op->operands[operand];
        bool slice = a->kind[axis] == INDEX_SLICE;
        if (tile_type_of(c->kernel, at).rank || (slice && !is_number(c, op->operands[operand + 1], 1))) return false;
        if (slice) ++*(at == c->loop->regions[0]->args[0] ? &moving : &fixed);
        operand += slice ? 2 : 1;
    }
    int rows = c->turned ? c->columns : c->rows, columns = c->turned ? c->rows : c->columns;
    if (type.elem == DT_BOOL) { /* or a truth for each moving row, or each fixed one */
        int down = c->turned ? moving : fixed, across = c->turned ? fixed : moving;
        return type.rank == 2 && moving + fixed && moving < 2 && fixed < 2 && type.dims[0] == (down ? rows : 1) &&
               type.dims[1] == (across ? columns : 1);
    }
    return moving == 1 && fixed == 1 && type.rank == 2 && type.dims[0] == rows && type.dims[1] == columns &&
           (type.elem == DT_F32 || type.elem == DT_BF16 || type.elem == DT_F16);
}

/* All that the loop computes besides: element by element, folds of rows, masks of positions. */
static bool check_op(search *w, const tile_op *op)
{
    chained *c = w->c;
    tile_type type = tile_type_of(c->kernel, op->results[0]);
    unsigned bits = 0;
    if (!type.rank) return op->code != OP_LOAD || refuse(w, "the loop reads more than its operands");
    if (chained_is_row_test(c, op->results[0])) return true;
    if (chained_is_table(c, op)) return true;
    if (op->code == OP_LOAD) {
        if (!is_vector(c, op) || chained_kind_of(c, op->results[0]) != CHAINED_MOVING ||
            c->vector_count == CHAINED_MOST_VECTORS)
            return refuse(w, "the loop reads more than its operands and numbers of rows");
        c->vectors[c->vector_count++] = op;
        return true;
    }
    if (!dtype_is_float(type.elem)) return true; /* positions and what compares them: looked at where they are used */
    switch (ops[op->code].class) {
    case CLASS_UNARY:
    case CLASS_BINARY:
    case CLASS_TERNARY: break;
    case CLASS_FOLD:
        if (op->code == OP_REDUCE && !c->turned && op->attr.axis_set == 2 && c->product_count == 1 &&
            c->sum_count == 1 && (op->attr.fold == FOLD_MAX || op->attr.fold == FOLD_SUM) &&
            chained_kind_of(c, op->operands[0]) == CHAINED_SCORE) {
            c->folds = true;
            break;
        }
        return refuse(w, "the loop has another fold than of rows");
    default:
        if (op->code == OP_BROADCAST && !tile_type_of(c->kernel, op->operands[0]).rank) break;
        return refuse(w, "the loop does more than arithmetic");
    }
    for (int o = 0; o < op->operand_count; o++) {
        value v = op->operands[o];
        tile_type from = tile_type_of(c->kernel, v);
        if (from.rank == 1) return refuse(w, "a tile of one axis is used");
        if (from.elem != DT_BOOL || !from.rank || chained_is_row_test(c, v)) continue;
        if (op->code != OP_SELECT || o) return refuse(w, "a mask is used as a number");
        if (!chained_find_mask(c, v, &bits) && !chained_is_truth(c, v))
            return refuse(w, "a mask is neither of positions nor of an array");
    }
    return true;
}

static bool check_body(search *w)
{
    const chained *c = w->c;
    const tile_block *body = c->loop->regions[0];
    for (int i = 0; i + 1 < body->op_count; i++)
        if (!chained_is_product(c, body->ops[i]) && !is_operand(c, body->ops[i]) && !check_op(w, body->ops[i]))
            return false;
    chained_sum *sum = &w->c->sums[0];
    if (c->folds && sum->moving == c->products[0].moving) { /* a ring of its own: the two are not at the same step */
        if (c->operand_count == CHAINED_MOST_OPERANDS) return refuse(w, "it has too many operands");
        w->c->operands[c->operand_count] = c->operands[sum->moving];
        sum->moving = w->c->operand_count++;
    }
    if (c->folds && c->vector_count) return refuse(w, "the loop reads more than its operands");
    const tile_op *yield = body->ops[body->op_count - 1];
    if (!c->folds && yield->operand_count != c->sum_count) return refuse(w, "it carries more than sums");
    return true;
}

/* ---- order ---- */

/* Which product of scores comes first: the one that functions are computed from. What remains of its scores is one tile. */
static bool find_order(search *w)
{
    chained *c = w->c;
    const tile_block *body = c->loop->regions[0];
    unsigned char *needs = w->needs;
    for (int i = 0; i < c->product_count; i++) needs[c->products[i].dot->results[0]] = (unsigned char)(1 << i);
    int first = 0;
    for (int i = 0; i + 1 < body->op_count; i++) {
        const tile_op *op = body->ops[i];
        if (chained_is_product(c, op) || !op->result_count) continue;
        for (int o = 0; o < op->operand_count; o++) needs[op->results[0]] |= needs[op->operands[o]];
        if (op->code == OP_EXP && needs[op->results[0]] == 2) first = 1;
    }
    unsigned char early = (unsigned char)(1 << first);
    for (int i = 0; i < c->sum_count; i++) c->sums[i].late = needs[c->sums[i].weights] != early;
    if (c->product_count == 1) return true;
    if (first) {
        chained_product other = c->products[0];
        c->products[0] = c->products[1];
        c->products[1] = other;
    }
    for (int i = 0; i + 1 < body->op_count; i++) {
        const tile_op *op = body->ops[i];
        if (chained_is_product(c, op) || !op->result_count || needs[op->results[0]] != 3) continue;
        for (int o = 0; o < op->operand_count; o++) {
            value v = op->operands[o];
            if (needs[v] != early || v == c->cut || tile_type_of(c->kernel, v).elem == DT_BOOL) continue;
            if (c->cut) return refuse(w, "two products of scores meet more than once");
            c->cut = v;
        }
    }
    return c->cut || refuse(w, "two products of scores do not meet");
}

/* ---- around the loop ---- */

static bool add_store(search *w, const tile_op *op)
{
    chained *c = w->c;
    const struct access *a = &op->attr.access;
    const tile_param *p = &c->kernel->params[a->array];
    int sum = chained_sum_of(c, op->operands[0]);
    bool row = is_row_of_sums(c, op->operands[0]);
    if (a->mask_count || c->store_count == CHAINED_MOST_STORES || (sum < 0 && !row))
        return refuse(w, "a store is not of rows");
    if (!row) {
        if (c->sums[sum].store >= 0 || p->elem != c->elem || !p->facts.bulk || p->digits || a->rank > MAP_RANK ||
            a->kind[a->rank - 1] != INDEX_SLICE || a->kind[a->rank - 2] != INDEX_SLICE)
            return refuse(w, "its result is not laid out for bulk copies");
        c->sums[sum].store = c->store_count;
    } else if (c->turned) {
        return refuse(w, "a store is not of rows");
    }
    c->stores[c->store_count++] = op;
    return true;
}

static bool check_around(search *w)
{
    chained *c = w->c;
    const tile_block *block = c->kernel->phases[c->phase];
    bool after = false;
    for (int i = 0; i < block->op_count; i++) {
        const tile_op *op = block->ops[i];
        if (op == c->loop) {
            after = true;
            continue;
        }
        if (op->code == OP_STORE) {
            if (!after) return refuse(w, "a store is not of rows");
            if (!add_store(w, op)) return false;
            continue;
        }
        bool effect =
            op->region_count || op->code == OP_ATOMIC || (ops[op->code].class == CLASS_EFFECT && op->code != OP_ASSUME);
        if (effect) return refuse(w, "there is more than one loop");
        if (!op->result_count || !tile_type_of(c->kernel, op->results[0]).rank) continue;
        if (op->code == OP_LOAD && !is_operand(c, op)) {
            bool truth = tile_type_of(c->kernel, op->results[0]).elem == DT_BOOL;
            if (!after && truth && chained_is_table(c, op)) continue;
            if (after || !is_vector(c, op) || chained_kind_of(c, op->results[0]) != CHAINED_FIXED)
                return refuse(w, "it reads more than its operands and numbers of rows");
        }
        if (!after) continue;
        op_class class = ops[op->code].class;
        if (class != CLASS_UNARY && class != CLASS_BINARY && class != CLASS_TERNARY && op->code != OP_BROADCAST &&
            op->code != OP_RESHAPE)
            return refuse(w, "what follows the loop is not computed element by element");
        if (!dtype_is_float(tile_type_of(c->kernel, op->results[0]).elem))
            return refuse(w, "there are masks behind the loop");
    }
    for (int i = 0; i < c->sum_count; i++)
        if (c->sums[i].store < 0) return refuse(w, "its sums are not stored");
    return true;
}

/* ---- rooms ---- */

/* Are numbers, truths or draws of scores on their way beside the products? They want the registers that the fixed operand could have. */
static bool has_company(const chained *c)
{
    const tile_block *body = c->loop->regions[0];
    for (int i = 0; i < body->op_count; i++) {
        const tile_op *op = body->ops[i];
        if (op->code == OP_PHILOX || (op->code == OP_LOAD && !is_operand(c, op))) return true;
    }
    return false;
}

static bool lay_out(search *w, const sched_machine *machine)
{
    chained *c = w->c;
    c->groups = c->rows / GROUP_ROWS;
    c->threads = c->groups * 128 + 128;
    int registers = c->product_count * c->columns / 2;
    for (int i = 0; i < c->sum_count; i++) registers += c->sums[i].width / 2 + c->columns / 4;
    c->drained = registers > MOST_IN_FLIGHT;
    for (int i = 0; i < c->condition_count; i++)
        c->falls |= !c->conditions[i].limit && (c->conditions[i].compare == OP_LT || c->conditions[i].compare == OP_LE);
    c->beside = MOST_BESIDE;
    c->held = c->folds && c->groups < 3 && !has_company(c) &&
              registers + c->operands[c->products[0].fixed].depth / 4 <= MOST_HELD;
    if (registers > (c->groups > 2 ? MOST_OF_THREE : MOST_REGISTERS))
        return refuse(w, "its scores and sums do not fit into registers");
    for (c->stages = MOST_STAGES; c->stages > 1; c->stages--) {
        int64_t at = 0;
        int fixed = 0, moving = 0;
        for (int i = 0; i < c->operand_count; i++) { /* a sum leaves through the room of a fixed operand */
            chained_operand *o = &c->operands[i];
            if (o->moves) continue;
            int width = fixed < c->sum_count ? c->sums[fixed].width : 0;
            o->offset = at;
            at += (int64_t)c->rows * chained_boxes(MAXIMUM(o->depth, width)) * SCHED_LINE_BYTES;
            fixed++;
        }
        for (int i = 0; i < c->operand_count; i++) {
            chained_operand *o = &c->operands[i];
            if (!o->moves) continue;
            o->offset = at;
            at += c->stages * (int64_t)c->columns * chained_boxes(o->depth) * SCHED_LINE_BYTES;
            moving++;
        }
        if (fixed < c->sum_count) return refuse(w, "it has more sums than fixed operands");
        c->vectors_offset = at;
        at += (int64_t)c->stages * c->vector_count * c->columns * (int64_t)sizeof(float);
        c->phases_offset = at;
        c->shared_bytes = at + (1 + 2 * moving * c->stages) * PHASE_BYTES;
        if (c->shared_bytes <= machine->shared_bytes) return true;
    }
    return refuse(w, "its rooms do not fit into shared memory");
}

const chained *chained_phase(const tile_kernel *k, int phase, const sched_machine *machine, arena *memory,
                             const char **why)
{
    chained *c = ARENA_NEW(memory, chained);
    search w = {.c = c, .needs = ARENA_ARRAY(memory, unsigned char, k->value_count)};
    *c = (chained){.kernel = k, .phase = phase};
    const tile_block *block = k->phases[phase];
    int loops = 0;
    for (int i = 0; i < block->op_count; i++)
        if (block->ops[i]->region_count) {
            loops++;
            if (block->ops[i]->code == OP_FOR && !(block->ops[i]->flags & F_DOWN)) c->loop = block->ops[i];
        }
    bool suits = machine->arch == TARGET_HOPPER && loops == 1 && c->loop;
    suits = suits && find_products(&w) && find_operands(&w) && check_body(&w) && find_order(&w) && check_around(&w) &&
            lay_out(&w, machine);
    *why = w.why;
    if (suits) chained_find_linear(c);
    if (suits) chained_find_slack(c, memory);
    return suits ? c : NULL;
}
