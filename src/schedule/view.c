/*
 * What an access allows, by rules without text. In: an access and its place in the loops of a pass. Out: how deep it
 * depends on them, how many of its elements move at once, what tests it needs. spread_survey.c notes it before anything is
 * chosen, cuda/access.c prints by it.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/view.h"

enum { FAR_POSITIONS = 1 << 29 };

/* Does a vector of 16 bytes that begins at a multiple of its elements lie at a multiple of 16 bytes? */
bool has_vectors(const tile_param *p)
{
    return p->facts.aligned || (p->facts.bulk && p->facts.last_unit);
}

int64_t power_of_two(int64_t divisor)
{
    return divisor ? divisor & -divisor : 64;
}

int64_t limit_divisor(const survey *e, const limit *l)
{
    if (l->kind == EXTENT_NUMBER) return power_of_two(l->number);
    if (l->kind == EXTENT_PARAM) return facts_divisor(&e->k->params[l->number].facts);
    return l->kind == EXTENT_VALUE ? power_of_two(facts_of(e->facts, (value)l->number).divisor) : 1;
}

static value through_spread(const survey *e, value v)
{
    const tile_op *op = tile_def(e->k, v);
    while (op && (op->code == OP_BROADCAST || op->code == OP_RESHAPE)) {
        v = op->operands[0];
        op = tile_def(e->k, v);
    }
    return v;
}

value digit_by(const survey *e, const tile_op *op)
{
    return through_spread(e, op->operands[1]);
}

bool digit_look(const nest_view *n, value v, const place *at, digit *out)
{
    const survey *e = n->survey;
    const tile_op *op = tile_def(e->k, v);
    if (!op || !value_is_virtual(e, v) || !n->layout || tile_type_of(e->k, v).rank != 1) return false;
    if (op->code == OP_IOTA) {
        int axis = at->axis[op->attr.index];
        if (axis == NO_AXIS || n->role[axis] != ROLE_VECTOR) return false;
        if (dimension_bound(e, n->layout->loops[axis]) > INT32_MAX) return false;
        *out = (digit){axis, true, 64};
        return true;
    }
    if (op->code != OP_DIV && op->code != OP_MOD) return false;
    value by = digit_by(e, op);
    if (tile_type_of(e->k, by).rank || facts_of(e->facts, by).low < 0) return false;
    if (!digit_look(n, op->operands[0], at, out)) return false;
    if (out->side_by_side) out->divisor = MINIMUM(out->divisor, power_of_two(facts_of(e->facts, by).divisor));
    out->side_by_side &= op->code == OP_MOD;
    return true;
}

bool access_is_digit(const nest_view *n, const tile_op *op, int axis, int operand, place at, digit *out)
{
    const struct access *access = &op->attr.access;
    if (access->kind[axis] != INDEX_TILE || !access->safe[axis] || n->spread->machine.checked) return false;
    place of_index = place_of_operand(n->survey, op, operand, &at);
    return digit_look(n, op->operands[operand], &of_index, out);
}

bool place_test_look(const nest_view *n, const tile_op *op, place at, place_test *out)
{
    const survey *e = n->survey;
    if (ops[op->code].class != CLASS_COMPARE || !n->layout) return false;
    for (int side = 0; side < 2; side++) {
        const tile_op *iota = tile_def(e->k, op->operands[side]), *spread = tile_def(e->k, op->operands[1 - side]);
        value other = spread && spread->code == OP_BROADCAST ? spread->operands[0] : op->operands[1 - side];
        tile_type type = tile_type_of(e->k, other);
        if (!iota || iota->code != OP_IOTA || type.rank || (type.elem != DT_I64 && type.elem != DT_I32)) continue;
        int axis = place_of_operand(e, op, side, &at).axis[iota->attr.index];
        if (axis == NO_AXIS || dimension_bound(e, n->layout->loops[axis]) > FAR_POSITIONS) continue;
        *out = (place_test){side, axis, other};
        return true;
    }
    return false;
}

/* Of a value that was met at this place. */
static int level_met(const nest_view *n, value v, place at)
{
    if (!n->survey->k->values[v].type.rank) return LEVEL_GROUP;
    const met_value *met = view_met(n, v, &at);
    CHECK(met);
    return met->level;
}

/* 1, -1; 0: any other stride, or one that is not known. */
static int unit_stride(const tile_param *p, int axis)
{
    if (axis != p->rank - 1) return 0;
    return p->facts.last_unit || p->facts.contiguous ? 1 : p->facts.backwards ? -1 : 0;
}

/* Does a position on this axis add to the place, or to a test? */
static bool digits_move(const param_digits *d, int axis)
{
    const axis_digits *x = &d->axes[axis];
    bool moves = false;
    for (int i = 0; i < x->count; i++) {
        moves |= x->stride[i] != 0;
        for (int g = 0; g < d->guard_count; g++) moves |= x->guard[g][i] != 0;
    }
    return moves;
}

static int position_level(const nest_view *n, int loop)
{
    return loop == NO_AXIS ? LEVEL_GROUP : axis_level(n, loop);
}

static void look_at_index(const nest_view *n, access_view *w, int *index_level, value v, place at)
{
    int level = level_met(n, v, at);
    w->late |= level > LEVEL_ROW;
    w->apart |= level == LEVEL_ELEMENT;
    *index_level = MAXIMUM(*index_level, level);
}

static void look_at_slice(const nest_view *n, access_view *w, const tile_op *op, int axis, int operand, place at)
{
    const survey *e = n->survey;
    const struct access *access = &op->attr.access;
    const tile_param *p = &e->k->params[access->array];
    value start = op->operands[operand];
    int loop = at.axis[access->result_axis[axis]], last = access->rank - 1;
    bool along = loop != NO_AXIS && n->role[loop] == ROLE_VECTOR;
    bool moves = !p->digits || along || !access->safe[axis] || digits_move(p->digits, axis);
    if (moves) w->level = MAXIMUM(w->level, position_level(n, loop));
    if (p->digits) {
        w->apart |= along;
        return;
    }
    if (loop == NO_AXIS) return;
    int by = is_one(e, op->operands[operand + 1]) ? unit_stride(p, axis) : 0;
    if (along && axis == last && ((by == 1 && has_vectors(p)) || (by == -1 && p->facts.backwards))) {
        w->width = (int)MINIMUM(power_of_two(facts_of(e->facts, start).divisor), 64);
        w->back = by == -1;
    }
    w->side_by_side |= along && by == 1;
    if (!by) return;
    w->along_rows += n->role[loop] == ROLE_ROW;
    w->along_inner += n->role[loop] != ROLE_ROW;
}

int tile_level(const nest_view *n, const tile_type *type, const place *at)
{
    int level = LEVEL_GROUP;
    for (int axis = 0; axis < type->rank; axis++) level = MAXIMUM(level, position_level(n, at->axis[axis]));
    return level;
}

/* Its indices; its masks are not looked at. */
static access_view look_at_indices(const nest_view *n, const tile_op *op, place at)
{
    const survey *e = n->survey;
    const struct access *access = &op->attr.access;
    const tile_param *p = &e->k->params[access->array];
    access_view w = {.width = 1};
    int operand = access->first_index, index_level = LEVEL_GROUP;
    for (int axis = 0; axis < access->rank; axis++) {
        digit d;
        w.tested |= !access->safe[axis] && (access->kind[axis] == INDEX_SLICE || !p->digits);
        if (access_is_digit(n, op, axis, operand, at, &d)) {
            w.digits = MINIMUM(w.digits ? w.digits : 64, (int)d.divisor);
            w.level = MAXIMUM(w.level, d.side_by_side ? LEVEL_ELEMENT : LEVEL_CHUNK);
            if (d.side_by_side && unit_stride(p, axis) == 1 && has_vectors(p)) w.width = (int)d.divisor;
            operand++;
        } else if (access->kind[axis] == INDEX_SLICE) {
            look_at_slice(n, &w, op, axis, operand, at);
            operand += 2;
        } else if (p->digits) {
            operand++;
        } else {
            look_at_index(n, &w, &index_level, op->operands[operand], place_of_operand(e, op, operand, &at));
            operand++;
        }
    }
    w.side_by_side &= !w.apart && index_level == LEVEL_GROUP;
    w.level = MAXIMUM(w.level, index_level);
    return w;
}

bool access_is_row(const nest_view *n, const tile_op *op, place at)
{
    const access_view w = look_at_indices(n, op, at);
    return w.side_by_side && !w.late;
}

access_view access_look(const nest_view *n, const tile_op *op, place at)
{
    const survey *e = n->survey;
    const struct access *access = &op->attr.access;
    const tile_param *p = &e->k->params[access->array];
    access_view w = look_at_indices(n, op, at);
    for (int i = op->operand_count - access->mask_count; i < op->operand_count; i++) {
        int level = level_met(n, op->operands[i], place_of_operand(e, op, i, &at));
        w.late |= level > LEVEL_ROW;
        w.apart |= level == LEVEL_ELEMENT;
        w.level = MAXIMUM(w.level, level);
    }
    w.tested |= access->mask_count || (p->digits && p->digits->guard_count);
    w.side_by_side &= !w.apart;
    w.width = w.apart ? 1 : MINIMUM(w.width, 16 / dtypes[p->elem].size_bytes);
    return w;
}
