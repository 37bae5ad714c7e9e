/*
 * Making ops while lowering. In: an op code and operands. Out: a value, the same one for an equal pure scalar op (or
 * mask) that dominates this place: equal extent expressions must be one value, since run-time axes match by value.
 *
 * Parameters and extents live at the entry of a phase, whatever the block that first needs them, so that every later
 * block finds the same value. A `map` region is closed: nothing outside it is found.
 * SPDX-License-Identifier: MIT
 */
#include "lang/lower.h"

#include <string.h>

tile_op *op_make(walk *w, op_code code, const value *operands, int count)
{
    tile_op *op = tile_op_new(w->k, code, operands, count);
    op->line = w->at.line;
    op->column = w->at.column;
    if (w->k->precise && dtype_is_float(count ? tile_type_of(w->k, operands[count - 1]).elem : DT_I64))
        op->flags |= F_PRECISE;
    return op;
}

void op_append(walk *w, tile_op *op)
{
    tile_append(w->k, w->block, op);
}

static uint64_t mix(uint64_t hash, uint64_t x)
{
    hash = (hash ^ x) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t op_hash(const tile_op *op, const tile_type *type)
{
    uint64_t hash = mix(op->code, (uint64_t)type->elem);
    uint64_t bits;
    memcpy(&bits, &op->attr.number.f, sizeof(bits));
    hash = mix(mix(hash, (uint64_t)op->attr.number.i), bits);
    hash = mix(mix(hash, (uint64_t)op->attr.index), (uint64_t)type->rank);
    for (int i = 0; i < op->operand_count; i++) hash = mix(hash, op->operands[i]);
    for (int i = 0; i < type->rank; i++) hash = mix(hash, (uint64_t)type->dims[i]);
    return hash;
}

static bool op_equal(const walk *w, const tile_op *op, const tile_type *type, value v)
{
    const tile_op *other = tile_def(w->k, v);
    if (other->code != op->code || (other->flags | F_INDEX) != (op->flags | F_INDEX) ||
        other->operand_count != op->operand_count)
        return false;
    if (!tile_type_same(type, &w->k->values[v].type)) return false;
    if (op->operand_count && memcmp(op->operands, other->operands, sizeof(value) * (size_t)op->operand_count))
        return false;
    /* Bits, not values: -0.0 is not 0.0 here, and a NaN equals itself. NOLINTNEXTLINE(*-memory-comparison) */
    return !memcmp(&op->attr.number, &other->attr.number, sizeof(number)) && op->attr.index == other->attr.index &&
           !memcmp(op->attr.axes, other->attr.axes, sizeof(op->attr.axes));
}

/* Scalars, masks and what moves axes; costly ops keep their own lines. */
static bool is_shared(const walk *w, const tile_op *op, const tile_type *type)
{
    const op_info *info = &ops[op->code];
    if (!info->pure || info->costly || info->class == CLASS_FOLD || op->region_count) return false;
    if (type->elem == DT_BOOL || op->code == OP_RESHAPE || op->code == OP_BROADCAST || op->code == OP_CONVERT)
        return true;
    for (int i = 0; i < op->operand_count; i++)
        if (tile_type_of(w->k, op->operands[i]).rank) return false;
    return true;
}

static value find_equal(walk *w, const tile_op *op, const tile_type *type, uint64_t hash)
{
    if (!w->in_map && !w->in_head)
        for (int i = 0; i < w->entry_value_count; i++)
            if (op_equal(w, op, type, w->entry_values[i])) return w->entry_values[i];
    if (w->at_entry) return 0;
    for (int i = w->cons_heads[hash % CONS_BUCKETS]; i > w->cons_barrier; i = w->cons[i - 1].next)
        if (w->cons[i - 1].hash == hash && op_equal(w, op, type, w->cons[i - 1].value)) return w->cons[i - 1].value;
    return 0;
}

static void remember(walk *w, value v, uint64_t hash)
{
    if (w->at_entry) {
        if (w->block != w->entry_block) return;
        ARENA_PUSH(w->memory, w->entry_values, w->entry_value_count, w->entry_value_capacity, v);
        return;
    }
    cons_entry entry = {.hash = hash, .value = v, .next = w->cons_heads[hash % CONS_BUCKETS]};
    ARENA_PUSH(w->memory, w->cons, w->cons_count, w->cons_capacity, entry);
    w->cons_heads[hash % CONS_BUCKETS] = w->cons_count;
}

value op_finish(walk *w, tile_op *op, tile_type type)
{
    bool shared = is_shared(w, op, &type);
    uint64_t hash = 0;
    if (shared) {
        hash = op_hash(op, &type);
        value old = find_equal(w, op, &type, hash);
        if (old) {
            tile_def(w->k, old)->flags |= op->flags & F_INDEX;
            return old;
        }
    }
    value v = tile_result(w->k, op, type);
    op_append(w, op);
    if (shared) remember(w, v, hash);
    return v;
}

tile_block *block_enter(walk *w, tile_block *inner, int *mark)
{
    tile_block *outer = w->block;
    *mark = w->cons_count;
    w->block = inner;
    return outer;
}

void block_leave(walk *w, tile_block *outer, int mark)
{
    while (w->cons_count > mark) {
        cons_entry *last = &w->cons[--w->cons_count];
        w->cons_heads[last->hash % CONS_BUCKETS] = last->next;
    }
    w->block = outer;
}

void entry_begin(walk *w, entry_state *saved)
{
    *saved = (entry_state){w->block,    w->entry_block, w->scope_first, w->scope_end,
                           w->at_entry, w->elementwise, w->in_index,    w->path};
    w->scope_first = 0;
    w->scope_end = w->kernel_symbols;
    w->elementwise = w->in_index = false;
    w->path = 0;
    if (w->in_head || w->at_entry) return;
    w->at_entry = true;
    w->block = w->entry_block = tile_block_new(w->k);
}

void entry_end(walk *w, const entry_state *saved)
{
    if (!w->in_head && !saved->at_entry) {
        tile_block *made = w->block;
        for (int i = 0; i < made->op_count; i++) tile_insert(w->k, w->phase_block, w->entry_count++, made->ops[i]);
    }
    w->block = saved->block;
    w->entry_block = saved->entry_block;
    w->scope_first = saved->scope_first;
    w->scope_end = saved->scope_end;
    w->at_entry = saved->at_entry;
    w->elementwise = saved->elementwise;
    w->in_index = saved->in_index;
    w->path = saved->path;
}

value build(walk *w, op_code code, const value *operands, int count)
{
    tile_op *op = op_make(w, code, operands, count);
    tile_type type = tile_infer(w->k, code, operands, count);
    if (w->in_index && dtype_is_integer(type.elem) &&
        (code == OP_ADD || code == OP_SUB || code == OP_MUL || code == OP_NEG))
        op->flags |= F_INDEX;
    return op_finish(w, op, type);
}

value build2(walk *w, op_code code, value a, value b)
{
    return build(w, code, (value[]){a, b}, 2);
}

value build_select(walk *w, value condition, value a, value b, unsigned flags)
{
    value operands[] = {condition, a, b};
    tile_type c = tile_type_of(w->k, condition), x = tile_type_of(w->k, a), y = tile_type_of(w->k, b), type;
    CHECK(tile_broadcast(&x, &y, &type) && tile_broadcast(&type, &c, &type));
    type.elem = x.elem;
    tile_op *op = op_make(w, OP_SELECT, operands, 3);
    op->flags = flags;
    return op_finish(w, op, type);
}

value build_convert(walk *w, value v, dtype to, unsigned flags)
{
    tile_type type = tile_type_of(w->k, v);
    if (type.elem == to) return v;
    number n;
    if (!type.rank && tile_is_constant(w->k, v, &n)) {
        binding b = {.kind = dtype_is_float(type.elem) ? BIND_FLOAT
                             : type.elem == DT_BOOL    ? BIND_BOOL
                                                       : BIND_INT,
                     .type = type.elem,
                     .number = n};
        if (!(flags & F_IMPLICIT) || constant_fits(&b, to)) return build_number(w, constant_cast(&b, to).number, to);
    }
    type.elem = to;
    tile_op *op = op_make(w, OP_CONVERT, &v, 1);
    op->flags = flags;
    return op_finish(w, op, type);
}

value build_shape(walk *w, op_code code, value v, tile_type type)
{
    tile_type old = tile_type_of(w->k, v);
    type.elem = old.elem;
    if (tile_type_same(&old, &type)) return v;
    return op_finish(w, op_make(w, code, &v, 1), type);
}

value build_number(walk *w, number n, dtype type)
{
    tile_op *op = op_make(w, OP_CONST, NULL, 0);
    if (dtype_is_float(type))
        op->attr.number.f = round_to_dtype(type, n.f);
    else
        op->attr.number.i = type == DT_BOOL ? n.i != 0 : integer_wrap(type, n.i);
    return op_finish(w, op, scalar_type(type));
}

value build_integer(walk *w, int64_t i)
{
    return build_number(w, (number){.i = i}, DT_I64);
}

value build_bool(walk *w, bool b)
{
    return build_number(w, (number){.i = b}, DT_BOOL);
}

value build_leaf(walk *w, op_code code, int index, tile_type type)
{
    entry_state saved;
    bool scalar = !type.rank;
    if (scalar) entry_begin(w, &saved);
    tile_op *op = op_make(w, code, NULL, 0);
    op->attr.index = index;
    value v = op_finish(w, op, type);
    if (scalar) entry_end(w, &saved);
    return v;
}

value build_argument(walk *w, int param)
{
    if (w->in_head) return head_value(w, param, w->at);
    if (!w->arguments[param]) {
        w->arguments[param] = build_leaf(w, OP_ARG, param, scalar_type(w->k->params[param].elem));
        value_name(w, w->arguments[param], w->k->params[param].name);
    }
    return w->arguments[param];
}

bool value_constant(const walk *w, value v, int64_t *out)
{
    number n;
    if (!tile_is_constant(w->k, v, &n) || dtype_is_float(tile_type_of(w->k, v).elem)) return false;
    *out = n.i;
    return true;
}

bool value_same(const walk *w, value a, value b)
{
    int64_t x, y;
    return a == b || (a && b && value_constant(w, a, &x) && value_constant(w, b, &y) && x == y);
}

bool bool_known(const walk *w, value v, bool *out)
{
    int64_t i;
    if (tile_type_of(w->k, v).rank || !value_constant(w, v, &i)) return false;
    *out = i != 0;
    return true;
}

/* Extents, and `int` parameters that are the extent of an array: the launch has checked them. */
static bool is_extent(const walk *w, int param)
{
    if (w->k->params[param].kind == PARAM_EXTENT) return true;
    for (int i = 0; i < w->k->param_count; i++)
        for (int axis = 0; axis < w->k->params[i].rank; axis++)
            if (w->k->params[i].extent_param[axis] == param) return true;
    return false;
}

static bool nonnegative(const walk *w, value v, int depth)
{
    const tile_op *op = tile_def(w->k, v);
    int64_t i;
    if (value_constant(w, v, &i)) return i >= 0;
    if (depth > 8) return false;
    for (int n = 0; !op && n < w->loop_count; n++)
        if (w->loops[n].variable == v) return w->loops[n].up && nonnegative(w, w->loops[n].first, depth + 1);
    if (!op) return false;
    switch (op->code) {
    case OP_PROGRAM:
    case OP_PROGRAMS:
    case OP_UNITS: return true;
    case OP_ARG: return is_extent(w, op->attr.index);
    case OP_ADD:
    case OP_MUL:
    case OP_MIN:
    case OP_DIV: return nonnegative(w, op->operands[0], depth + 1) && nonnegative(w, op->operands[1], depth + 1);
    case OP_MAX: return nonnegative(w, op->operands[0], depth + 1) || nonnegative(w, op->operands[1], depth + 1);
    default: return false;
    }
}

bool value_nonnegative(const walk *w, value v)
{
    return nonnegative(w, v, 0);
}

/* A value of the head and one of a phase: the same expression over parameters and constants? */
static bool same_expression(const walk *w, value head, value body, int depth)
{
    const tile_op *a = tile_def(w->k, head), *b = tile_def(w->k, body);
    if (!a || !b || depth > 8) return false;
    if (a->code == OP_DEFAULT || a->code == OP_ARG) return b->code == OP_ARG && a->attr.index == b->attr.index;
    if (a->code != b->code || !ops[a->code].pure || a->region_count || a->operand_count != b->operand_count)
        return false;
    if (a->code == OP_CONST) return value_same(w, head, body);
    if (!a->operand_count) return false;
    for (int i = 0; i < a->operand_count; i++)
        if (!same_expression(w, a->operands[i], b->operands[i], depth + 1)) return false;
    return true;
}

bool value_below(const walk *w, value v, value extent)
{
    const tile_op *op = tile_def(w->k, v);
    int64_t i, e;
    if (value_constant(w, v, &i)) return value_constant(w, extent, &e) && i < e;
    if (!op) {
        for (int n = 0; n < w->loop_count; n++)
            if (w->loops[n].variable == v) return w->loops[n].up && value_same(w, w->loops[n].limit, extent);
        return false;
    }
    if (op->code != OP_PROGRAM || op->attr.index >= w->launch_count) return false;
    const term *count = &w->launch[op->attr.index];
    if (count->kind == TERM_CONSTANT) return value_constant(w, extent, &e) && count->constant.number.i <= e;
    return count->kind == TERM_VALUE && same_expression(w, count->value, extent, 0);
}

void value_set_depth(walk *w, value v, int depth)
{
    if ((int)v >= w->value_depth_capacity) {
        int capacity = MAXIMUM(64, 2 * (int)v);
        int *grown = ARENA_ARRAY(w->memory, int, capacity);
        if (w->value_depth_capacity) memcpy(grown, w->value_depth, sizeof(int) * (size_t)w->value_depth_capacity);
        w->value_depth = grown;
        w->value_depth_capacity = capacity;
    }
    w->value_depth[v] = depth;
}

static int depth_of(const walk *w, value v, int budget)
{
    int depth = (int)v < w->value_depth_capacity ? w->value_depth[v] : 0;
    const tile_op *op = tile_def(w->k, v);
    for (int i = 0; op && budget > 0 && i < op->operand_count; i++)
        depth = MAXIMUM(depth, depth_of(w, op->operands[i], budget - 1));
    return depth;
}

int value_loop_depth(const walk *w, value v)
{
    return v ? depth_of(w, v, 12) : 0;
}

void value_name(walk *w, value v, const char *name)
{
    if (!w->k->values[v].name) w->k->values[v].name = name;
}
