/*
 * Memory inside a loop nest: bounds, addresses, loads, stores, atomics.
 *
 * In: an access (or a buffer) and its place in the loops. Out: an address, and the statements that use it. What does
 * not differ between lanes is computed at its own level; lanes side by side are vector loads and stores, lanes at a
 * distance or at an index are gathered. An element outside its array is never touched: the test is dropped only where
 * the loops guarantee it (constraints), or where the access is marked safe. SPDX-License-Identifier: MIT
 */
#include "emit/c/nest.h"

#include <inttypes.h>
#include <string.h>

static bool is_zero(const emitter *e, value v)
{
    number n;
    return tile_is_constant(e->k, v, &n) && n.i == 0;
}

/* ---- constraints ---- */

constraint constraint_of_axis(emitter *e, value start, int array, int axis)
{
    limit l = limit_of_axis(e->survey, start, array, axis);
    e->array_used[array] = true;
    return (constraint){.start = start, .kind = l.kind, .number = l.number, .array = array, .axis = axis};
}

constraint constraint_of_bound(emitter *e, const tile_op *bound)
{
    limit l = limit_of_bound(e->survey, bound);
    return (constraint){
        .start = l.start, .kind = l.kind, .number = l.number, .array = -1, .extent = bound->operands[2]};
}

const char *constraint_extent(emitter *e, const constraint *c)
{
    if (c->array < 0) return emit_name(e, c->extent);
    if (c->kind == EXTENT_NUMBER) return arena_print(e->memory, "%" PRId64 "L", c->number);
    return array_extent(e, c->array, c->axis);
}

static bool constraint_same(const emitter *e, const constraint *a, const constraint *b)
{
    if (a->kind != b->kind || a->number != b->number) return false;
    number x, y;
    return a->start == b->start ||
           (tile_is_constant(e->k, a->start, &x) && tile_is_constant(e->k, b->start, &y) && x.i == y.i);
}

static bool in_list(const emitter *e, const constraints *list, const constraint *c)
{
    for (int i = 0; i < list->count; i++)
        if (constraint_same(e, &list->items[i], c)) return true;
    return false;
}

bool constraint_known(const nest *n, int axis, const constraint *c)
{
    return in_list(n->e, &n->known[axis], c);
}

static reg share_test(nest *n, int level, const char *words)
{
    return (reg){nest_share(n, level, "const int", words), level, false};
}

reg constraint_test(nest *n, int axis, const constraint *c, value step)
{
    emitter *e = n->e;
    reg truth = {"1", 0, true};
    const char *start = emit_name(e, c->start), *stride = emit_name(e, step);
    if (axis == NO_AXIS)
        return share_test(
            n, 0, arena_print(e->memory, "(unsigned long)%s < (unsigned long)%s", start, constraint_extent(e, c)));
    if (is_one(e->survey, step) && constraint_known(n, axis, c)) return truth;
    if (!level_is_vector(n, axis + 1))
        return share_test(n, axis + 1,
                          arena_print(e->memory, "(unsigned long)(%s + i%d * %s) < (unsigned long)%s", start, axis,
                                      stride, constraint_extent(e, c)));
    if (is_one(e->survey, step)) {
        if (!n->partial) {
            if (!in_list(e, &n->inside, c))
                ARENA_PUSH(e->memory, n->inside.items, n->inside.count, n->inside.capacity, *c);
            return truth;
        }
        e->needs_lanes = true;
        need(e, "first_mask");
        return nest_define(n, 0, DT_BOOL, axis + 1,
                           arena_print(e->memory, "lanes_between(-%s - %s, %s - %s - %s)", start, n->position,
                                       constraint_extent(e, c), start, n->position));
    }
    return nest_define(n, 0, DT_BOOL, axis + 1,
                       arena_print(e->memory, "%s((u64x16)((%s() + %s) * %s + %s), %s((unsigned long)%s))",
                                   need(e, "lt_u64x16"), need(e, "iota_i64x16"), n->position, stride, start,
                                   need(e, "splat_u64x16"), constraint_extent(e, c)));
}

/* ---- addresses ---- */

typedef struct terms {  /* of an address under construction */
    const char *offset; /* NULL: none yet */
    int level;
    const char *ok;
    int ok_level, ok_count;
    const char *mask;
} terms;

static void add_offset(emitter *e, terms *t, const char *index, const char *stride, int level)
{
    const char *term = stride == words_one ? index : arena_print(e->memory, "%s * %s", index, stride);
    t->offset = t->offset ? arena_print(e->memory, "%s + %s", t->offset, term) : term;
    t->level = MAXIMUM(t->level, level);
}

static void add_test(nest *n, terms *t, reg r)
{
    emitter *e = n->e;
    if (r.truth) return;
    if (level_is_vector(n, r.level)) {
        t->mask = t->mask ? arena_print(e->memory, "(%s & %s)", t->mask, r.words) : r.words;
        return;
    }
    t->ok = t->ok ? arena_print(e->memory, "%s & %s", t->ok, r.words) : r.words;
    t->ok_level = MAXIMUM(t->ok_level, r.level);
    t->ok_count++;
}

/* Pointer and condition get names at their own level, so that the inner loops only add to them. */
static address finish(nest *n, const terms *t, dtype elem, const char *base, const char *stride, const char *index)
{
    emitter *e = n->e;
    address a = {.elem = elem, .stride = stride, .index = index, .mask = t->mask, .ok = t->ok};
    a.base = a.pointer = base;
    if (t->offset)
        a.base = a.pointer = nest_share(n, t->level, arena_print(e->memory, "%s *const", memory_type(elem)),
                                        arena_print(e->memory, "%s + (%s)", base, t->offset));
    if (t->ok_count > 1) a.ok = nest_share(n, t->ok_level, "const int", t->ok);
    a.level = MAXIMUM(t->level, t->ok_level);
    if (stride == words_one)
        a.pointer = arena_print(e->memory, "%s + %s", a.pointer, n->position);
    else if (stride)
        a.pointer = arena_print(e->memory, "%s + %s * (%s)", a.pointer, n->position, stride);
    if (stride || index || t->mask) a.level = n->loops;
    return a;
}

/* One axis with an index that may be a tile. Gives the lane index's text if it differs from lane to lane. */
static const char *add_index(nest *n, terms *t, const tile_op *op, int array, int axis, int operand, place at)
{
    emitter *e = n->e;
    value v = op->operands[operand];
    dtype elem = tile_type_of(e->k, v).elem;
    place from = place_of_operand(e->survey, op, operand, &at);
    reg r = nest_value(n, v, from);
    constraint c = constraint_of_axis(e, v, array, axis);
    bool safe = op->attr.access.safe[axis];
    if (!level_is_vector(n, r.level)) {
        if (!safe)
            add_test(n, t,
                     share_test(n, r.level,
                                arena_print(e->memory, "(unsigned long)%s < (unsigned long)%s", r.words,
                                            constraint_extent(e, &c))));
        if (!is_zero(e, v)) add_offset(e, t, r.words, stride_text(e, array, axis), r.level);
        return NULL;
    }
    const char *wide = r.words;
    if (elem != DT_I64)
        wide = arena_print(e->memory, "%s(%s)", need(e, "convert_%s_i64x16", register_name(elem)), r.words);
    if (!safe)
        add_test(n, t,
                 nest_define(n, 0, DT_BOOL, n->loops,
                             arena_print(e->memory, "%s((u64x16)%s, %s((unsigned long)%s))", need(e, "lt_u64x16"), wide,
                                         need(e, "splat_u64x16"), constraint_extent(e, &c))));
    const char *stride = stride_text(e, array, axis);
    return stride == words_one ? wide : arena_print(e->memory, "%s * %s", wide, stride);
}

/* One axis of an array with digits. Gives the lanes' distances if they differ. */
static const char *add_digits(nest *n, terms *t, const tile_op *op, int axis, int operand, place at)
{
    emitter *e = n->e;
    const struct access *a = &op->attr.access;
    const axis_digits *d = &e->k->params[a->array].digits->axes[axis];
    bool slice = a->kind[axis] == INDEX_SLICE;
    int loop = slice ? at.axis[a->result_axis[axis]] : NO_AXIS;
    const char *position = emit_name(e, op->operands[operand]);
    if (slice && !a->safe[axis]) {
        constraint c = constraint_of_axis(e, op->operands[operand], a->array, axis);
        add_test(n, t, constraint_test(n, loop, &c, op->operands[operand + 1]));
    }
    if (loop != NO_AXIS && level_is_vector(n, loop + 1)) {
        const char *count = extent_text(e, tile_type_of(e->k, op->operands[0]).dims[a->result_axis[axis]]);
        const char *table = nest_share(n, 0, "const long *const", gather_places(e, d, position, count));
        return arena_print(e->memory, n->partial ? "%s(%s + %s, lanes)" : "%s(%s + %s)",
                           need(e, n->partial ? "load_part_i64x16" : "load_i64x16"), table, n->position);
    }
    if (loop != NO_AXIS) position = arena_print(e->memory, "(%s + i%d)", position, loop);
    const char *sum = digits_sum(e, d, d->stride, position);
    if (sum) add_offset(e, t, arena_print(e->memory, "(%s)", sum), words_one, loop == NO_AXIS ? 0 : loop + 1);
    return NULL;
}

address access_address(nest *n, const tile_op *op, place at)
{
    emitter *e = n->e;
    const struct access *a = &op->attr.access;
    const tile_param *p = &e->k->params[a->array];
    terms t = {0};
    const char *lane_stride = NULL, *index = NULL;
    bool aligned = false;
    e->array_used[a->array] = true;
    int operand = a->first_index;
    if (p->digits && p->digits->origin)
        add_offset(e, &t, arena_print(e->memory, "%" PRId64 "L", p->digits->origin), words_one, 0);
    for (int axis = 0; axis < a->rank; axis++) {
        if (p->digits) {
            const char *lanes = add_digits(n, &t, op, axis, operand, at);
            operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
            if (lanes) index = index ? arena_print(e->memory, "%s + %s", index, lanes) : lanes;
            continue;
        }
        if (a->kind[axis] != INDEX_SLICE) {
            const char *lanes = add_index(n, &t, op, a->array, axis, operand++, at);
            if (lanes) index = index ? arena_print(e->memory, "%s + %s", index, lanes) : lanes;
            continue;
        }
        value start = op->operands[operand], step = op->operands[operand + 1];
        operand += 2;
        int loop = at.axis[a->result_axis[axis]];
        constraint c = constraint_of_axis(e, start, a->array, axis);
        if (!a->safe[axis]) add_test(n, &t, constraint_test(n, loop, &c, step));
        if (is_zero(e, start) && loop == NO_AXIS) continue;
        const char *stride = stride_text(e, a->array, axis);
        if (!is_zero(e, start)) add_offset(e, &t, emit_name(e, start), stride, 0);
        if (loop == NO_AXIS) continue;
        const char *by = is_one(e->survey, step) ? stride
                         : stride == words_one   ? emit_name(e, step)
                                                 : arena_print(e->memory, "%s * %s", emit_name(e, step), stride);
        if (level_is_vector(n, loop + 1)) {
            bool last = axis == a->rank - 1 && p->facts.aligned && is_one(e->survey, step);
            aligned = last && facts_of(e->facts, start).divisor % 16 == 0;
            lane_stride = by;
        } else
            add_offset(e, &t, arena_print(e->memory, "i%d", loop), by, loop + 1);
    }
    for (int i = op->operand_count - a->mask_count; i < op->operand_count; i++)
        add_test(n, &t, nest_value(n, op->operands[i], place_of_operand(e->survey, op, i, &at)));
    if (index && lane_stride) { /* a slice and an index along the same lanes */
        index =
            arena_print(e->memory, "%s + (%s() + %s) * (%s)", index, need(e, "iota_i64x16"), n->position, lane_stride);
        lane_stride = NULL;
    }
    if (index) {
        reg r = nest_define(n, 0, DT_I64, n->loops, index);
        index = r.words;
    }
    address result = finish(n, &t, p->elem, arena_print(e->memory, "%s_array", p->name), lane_stride, index);
    result.aligned = aligned;
    return result;
}

address buffer_address(nest *n, value v, place at)
{
    emitter *e = n->e;
    tile_type type = tile_type_of(e->k, v);
    terms t = {0};
    const char *lane_stride = NULL;
    int64_t constant = 1;
    const char *factor = NULL;
    for (int axis = type.rank - 1; axis >= 0; axis--) {
        const char *stride = !factor ? constant == 1 ? words_one : arena_print(e->memory, "%" PRId64 "L", constant)
                             : constant == 1 ? factor
                                             : arena_print(e->memory, "%" PRId64 "L * %s", constant, factor);
        int loop = at.axis[axis];
        if (loop != NO_AXIS && level_is_vector(n, loop + 1))
            lane_stride = stride;
        else if (loop != NO_AXIS)
            add_offset(e, &t, arena_print(e->memory, "i%d", loop), stride, loop + 1);
        if (type.dims[axis] >= 0)
            constant *= type.dims[axis];
        else
            factor = emit_name(e, (value)-type.dims[axis]);
    }
    return finish(n, &t, type.elem, buffer_name(e, v), lane_stride, NULL);
}

/* ---- loads and stores ---- */

static const char *scalar_load(emitter *e, const address *a)
{
    if (dtype_is_narrow(a->elem))
        return arena_print(e->memory, "%s(*(%s))", need(e, "%s_to_f32", memory_name(a->elem)), a->pointer);
    return arena_print(e->memory, a->elem == DT_BOOL ? "(*(%s) != 0)" : "*(%s)", a->pointer);
}

/* The lanes that run and may touch memory; NULL: all 16. */
static const char *active_mask(nest *n, const address *a)
{
    emitter *e = n->e;
    if (!n->partial) return a->mask;
    const char *first = arena_print(e->memory, "%s(lanes)", need(e, "first_mask"));
    return a->mask ? arena_print(e->memory, "(%s & %s)", a->mask, first) : first;
}

static const char *all_or(emitter *e, const char *mask)
{
    return mask ? mask : splat(e, DT_BOOL, "1");
}

reg address_load(nest *n, value named, address a)
{
    emitter *e = n->e;
    const char *m = memory_name(a.elem), *words;
    if (!a.stride && !a.index) {
        words = scalar_load(e, &a);
        if (a.ok) words = arena_print(e->memory, "%s ? %s : 0", a.ok, words);
        if (!a.mask) return nest_define(n, named, a.elem, a.level, words);
        words = arena_print(e->memory, "%s(%s, %s, %s)", need(e, "select_%sx16", register_name(a.elem)), a.mask,
                            splat(e, a.elem, words), splat(e, a.elem, "0"));
        return nest_define(n, named, a.elem, n->loops, words);
    }
    const char *mask = active_mask(n, &a);
    if (a.index) {
        words =
            arena_print(e->memory, "%s(%s, %s, %s)", need(e, "gather_%sx16", m), a.pointer, a.index, all_or(e, mask));
    } else if (a.stride != words_one) {
        words = arena_print(e->memory, "%s(%s, %s, %s)", need(e, "load_stride_%sx16", m), a.pointer, a.stride,
                            all_or(e, mask));
    } else if (a.mask) {
        words = arena_print(e->memory, "%s(%s, %s)", need(e, "load_mask_%sx16", m), a.pointer, mask);
    } else if (n->partial) {
        words = arena_print(e->memory, "%s(%s, lanes)", need(e, "load_part_%sx16", m), a.pointer);
    } else {
        words = arena_print(e->memory, "%s(%s)", need(e, "load_%sx16", m), a.pointer);
    }
    if (a.ok) words = arena_print(e->memory, "%s ? %s : (%s){0}", a.ok, words, vector_c_type(a.elem));
    return nest_define(n, named, a.elem, n->loops, words);
}

void address_store(nest *n, address a, reg r, bool stream)
{
    emitter *e = n->e;
    const char *m = memory_name(a.elem), *guard = a.ok ? arena_print(e->memory, "if (%s) ", a.ok) : "";
    if (!n->vector) {
        const char *words = r.truth ? "1" : r.words;
        if (dtype_is_narrow(a.elem)) words = arena_print(e->memory, "%s(%s)", need(e, "f32_to_%s", m), words);
        if (a.mask) guard = arena_print(e->memory, "if (%s) ", a.mask);
        put_at(n, n->loops, "%s*(%s) = %s;", guard, a.pointer, words);
        return;
    }
    const char *x = as_vector(n, a.elem, r), *mask = active_mask(n, &a);
    if (stream && a.ok) guard = arena_print(e->memory, "if (!%s) {} else ", a.ok); /* an else of its own may follow */
    if (a.index)
        put_at(n, n->loops, "%s%s(%s, %s, %s, %s);", guard, need(e, "scatter_%sx16", m), a.pointer, a.index, x,
               all_or(e, mask));
    else if (a.stride != words_one)
        put_at(n, n->loops, "%s%s(%s, %s, %s, %s);", guard, need(e, "store_stride_%sx16", m), a.pointer,
               a.stride ? a.stride : "0", x, all_or(e, mask));
    else if (a.mask)
        put_at(n, n->loops, "%s%s(%s, %s, %s);", guard, need(e, "store_mask_%sx16", m), a.pointer, x, mask);
    else if (n->single && stream) {
        put_at(n, n->loops, "%sif (lanes == 16) %s(%s, %s);", guard, need(e, "stream_%sx16", m), a.pointer, x);
        put_at(n, n->loops, "else %s(%s, %s, lanes);", need(e, "store_part_%sx16", m), a.pointer, x);
    } else if (n->partial)
        put_at(n, n->loops, "%s%s(%s, %s, lanes);", guard, need(e, "store_part_%sx16", m), a.pointer, x);
    else if (stream && a.aligned && n->from_zero)
        put_at(n, n->loops, "%s%s(__builtin_assume_aligned(%s, %d), %s);", guard, need(e, "stream_%sx16", m), a.pointer,
               MINIMUM(64, 16 * dtypes[a.elem].size_bytes), x);
    else
        put_at(n, n->loops, "%s%s(%s, %s);", guard, need(e, stream ? "stream_%sx16" : "store_%sx16", m), a.pointer, x);
    if (!stream || a.stride != words_one || a.mask) return;
    e->streams = true;
    if (!n->stream_base && !a.aligned) n->stream_base = a.base;
}

void address_atomic(nest *n, address a, const tile_op *op, reg r, reg expected, bool kept, const char *old)
{
    emitter *e = n->e;
    int array = op->attr.access.array;
    bool compare = op->attr.atomic == ATOMIC_CAS, counted = e->counted[array].elements > 0;
    const char *name =
        need(e, counted ? "own_%s_%s" : "atomic_%s_%s", atomic_names[op->attr.atomic], memory_name(a.elem));
    const char *own = counted ? arena_print(e->memory, "%s_own, ", e->k->params[array].name) : "";
    if (!n->vector) {
        put_at(n, n->loops, "%s%s%s%s(%s%s, %s%s%s);", a.ok ? arena_print(e->memory, "if (%s) ", a.ok) : "",
               kept ? old : "", kept ? " = " : "", name, own, a.pointer, compare ? expected.words : "",
               compare ? ", " : "", r.words);
        return;
    }
    const char *mask = active_mask(n, &a);
    reg x = nest_define(n, 0, a.elem, n->loops, as_vector(n, a.elem, r));
    reg y = compare ? nest_define(n, 0, a.elem, n->loops, as_vector(n, a.elem, expected)) : x;
    reg lanes = mask ? nest_define(n, 0, DT_BOOL, n->loops, mask) : x;
    const char *where = a.index    ? arena_print(e->memory, "%s + %s[l]", a.pointer, a.index)
                        : a.stride ? arena_print(e->memory, "%s + l * (%s)", a.pointer, a.stride)
                                   : a.pointer;
    const char *guard = a.ok ? arena_print(e->memory, "if (%s) ", a.ok) : "";
    put_at(n, n->loops, "%sfor (int l = 0; l < 16; l++)", guard);
    put_at(n, n->loops, "    %s%s%s%s%s(%s%s, %s%s%s[l]);", mask ? "if (" : "", mask ? lanes.words : "",
           mask ? "[l]) " : "", kept ? arena_print(e->memory, "%s[l] = ", old) : "", name, own, where,
           compare ? arena_print(e->memory, "%s[l]", y.words) : "", compare ? ", " : "", x.words);
}
