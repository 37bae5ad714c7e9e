/*
 * dot and scan, and positions folded across rows. In: an op whose operands are slices of arrays or kept tiles.
 * Out: calls of the prelude's packed products, or plain loops over a buffer.
 *
 * A dot operand that is a slice (perhaps transposed, perhaps with its own bounds selected to 0) is not copied: pointer
 * and strides go to the product, and its bounds shorten m, n and k. Everything else is read from its buffer.
 * SPDX-License-Identifier: MIT
 */
#include "emit/emit_c_nest.h"

#include <inttypes.h>
#include <string.h>

/* ---- which operands need no copy ---- */

static bool bound_is_own(const emitter *e, const tile_op *bound, const tile_op *load)
{
    const struct access *a = &load->attr.access;
    emitter *scratch = (emitter *)e;
    int operand = a->first_index;
    for (int axis = 0; axis < a->rank; axis++) {
        if (a->kind[axis] == INDEX_SLICE && a->result_axis[axis] == bound->attr.index) {
            constraint own = constraint_of_axis(scratch, load->operands[operand], a->array, axis);
            constraint c = constraint_of_bound(scratch, bound);
            number x, y;
            bool same_step = load->operands[operand + 1] == bound->operands[1] ||
                             (tile_is_constant(e->k, load->operands[operand + 1], &x) &&
                              tile_is_constant(e->k, bound->operands[1], &y) && x.i == y.i);
            return same_step && own.start == c.start && own.kind == c.kind && own.number == c.number;
        }
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    return false;
}

static bool mask_is_own(const emitter *e, value mask, const tile_op *load)
{
    const tile_op *op = value_is_virtual(e, mask) ? tile_def(e->k, mask) : NULL;
    if (!op) return false;
    if (op->code == OP_AND) return mask_is_own(e, op->operands[0], load) && mask_is_own(e, op->operands[1], load);
    if (op->code == OP_BROADCAST) return mask_is_own(e, op->operands[0], load);
    return op->code == OP_BOUND && bound_is_own(e, op, load);
}

static bool is_zero_tile(const emitter *e, value v)
{
    number n;
    while (tile_def(e->k, v) && tile_def(e->k, v)->code == OP_BROADCAST) v = tile_def(e->k, v)->operands[0];
    if (!tile_is_constant(e->k, v, &n)) return false;
    return dtype_is_float(tile_type_of(e->k, v).elem) ? n.f == 0 : n.i == 0;
}

bool dot_operand_is_direct(const emitter *e, value v, tile_op **load, bool *swapped)
{
    *swapped = false;
    tile_op *op = value_is_virtual(e, v) ? tile_def(e->k, v) : NULL;
    int rank = e->k->values[v].type.rank;
    if (op && op->code == OP_PERMUTE && op->attr.axes[rank - 1] == rank - 2 && op->attr.axes[rank - 2] == rank - 1) {
        *swapped = true;
        v = op->operands[0];
        op = value_is_virtual(e, v) ? tile_def(e->k, v) : NULL;
    }
    value mask = 0;
    if (op && op->code == OP_SELECT && is_zero_tile(e, op->operands[2])) {
        mask = op->operands[0];
        tile_type whole = tile_type_of(e->k, v), part = tile_type_of(e->k, op->operands[1]);
        if (!tile_shape_same(&whole, &part)) return false;
        v = op->operands[1];
        op = value_is_virtual(e, v) ? tile_def(e->k, v) : NULL;
    }
    if (!op || op->code != OP_LOAD || op->attr.access.mask_count) return false;
    const struct access *a = &op->attr.access;
    int operand = a->first_index;
    for (int axis = 0; axis < a->rank; axis++) {
        if (a->kind[axis] == INDEX_TILE && e->k->values[op->operands[operand]].type.rank) return false;
        if (a->kind[axis] == INDEX_SLICE && !a->safe[axis]) {
            number step;
            if (!tile_is_constant(e->k, op->operands[operand + 1], &step) || step.i < 1) return false;
        }
        operand += a->kind[axis] == INDEX_SLICE ? 2 : 1;
    }
    *load = op;
    return !mask || mask_is_own(e, mask, op);
}

/* ---- an operand as pointer and strides ---- */

static void add_term(emitter *e, const char **sum, const char *term)
{
    *sum = arena_print(e->memory, "%s + %s", *sum, term);
}

static matrix direct_matrix(emitter *e, tile_op *load)
{
    const struct access *a = &load->attr.access;
    const tile_param *p = &e->k->params[a->array];
    matrix m = {.pointer = arena_print(e->memory, "%s_array", p->name)};
    e->array_used[a->array] = true;
    for (int i = 0; i < MAX_RANK; i++) m.strides[i] = "0L";
    int operand = a->first_index;
    for (int axis = 0; axis < a->rank; axis++) {
        value start = load->operands[operand];
        const char *first = emit_name(e, start), *stride = stride_text(e, a->array, axis);
        const char *extent = arena_print(e->memory, "%s_extent%d", p->name, axis);
        add_term(e, &m.pointer, arena_print(e->memory, "%s * %s", first, stride));
        if (a->kind[axis] != INDEX_SLICE) {
            if (!a->safe[axis]) {
                const char *test = arena_print(e->memory, "(unsigned long)%s < (unsigned long)%s", first, extent);
                m.ok = m.ok ? arena_print(e->memory, "%s && %s", m.ok, test) : test;
            }
            operand++;
            continue;
        }
        int to = a->result_axis[axis];
        const char *step = emit_name(e, load->operands[operand + 1]);
        m.strides[to] =
            is_one(e, load->operands[operand + 1]) ? stride : arena_print(e->memory, "(%s * %s)", step, stride);
        if (!a->safe[axis]) {
            bool one = is_one(e, load->operands[operand + 1]);
            if (facts_of(e->facts, start).low < 0)
                m.limits[to][0] = one ? arena_print(e->memory, "-%s", first)
                                      : arena_print(e->memory, "(-%s + %s - 1) / %s", first, step, step);
            m.limits[to][1] = one ? arena_print(e->memory, "%s - %s", extent, first)
                                  : arena_print(e->memory, "(%s > %s ? (%s - %s + %s - 1) / %s : 0)", extent, first,
                                                extent, first, step, step);
        }
        operand += 2;
    }
    return m;
}

static matrix buffer_matrix(emitter *e, value v)
{
    tile_type type = tile_type_of(e->k, v);
    matrix m = {.pointer = buffer_name(e, v)};
    const char *stride = "1L";
    for (int axis = type.rank - 1; axis >= 0; axis--) {
        m.strides[axis] = type.dims[axis] == 1 ? "0L" : stride;
        if (type.dims[axis] != 1) stride = arena_print(e->memory, "%s * %s", stride, extent_text(e, type.dims[axis]));
    }
    return m;
}

matrix dot_operand_matrix(emitter *e, value v)
{
    tile_op *load, *op = tile_def(e->k, v);
    bool swapped;
    int rank = e->k->values[v].type.rank;
    matrix m, turned;
    if (dot_operand_is_direct(e, v, &load, &swapped)) {
        m = direct_matrix(e, load);
        if (!swapped) return m;
        turned = m;
        for (int i = 0; i < 2; i++) {
            turned.strides[rank - 1 - i] = m.strides[rank - 2 + i];
            memcpy(turned.limits[rank - 1 - i], m.limits[rank - 2 + i], sizeof(m.limits[0]));
        }
        return turned;
    }
    if (!value_is_virtual(e, v)) return buffer_matrix(e, v);
    CHECK(op->code == OP_PERMUTE);
    m = turned = buffer_matrix(e, op->operands[0]);
    for (int i = 0; i < rank; i++) turned.strides[i] = m.strides[op->attr.axes[i]];
    return turned;
}

void dot_put_limit(emitter *e, const char *name, const matrix *m, int axis)
{
    const char *first = m->limits[axis][0], *last = m->limits[axis][1];
    if (first) put(e, "if (%s > %s_first) %s_first = %s;", first, name, name, first);
    if (last) put(e, "if (%s < %s_last) %s_last = %s;", last, name, name, last);
}

void emit_dot(emitter *e, tile_op *op)
{
    value a = op->operands[0], b = op->operands[1], result = op->results[0];
    tile_type ta = tile_type_of(e->k, a), tb = tile_type_of(e->k, b), tc = tile_type_of(e->k, result);
    int rank = tc.rank;
    int number = buffer_for(e, result);
    int64_t m = ta.dims[rank - 2], k = ta.dims[rank - 1], n = tb.dims[rank - 1];
    int room = buffer_for_dot(e, m, n, k);
    const char *sum = buffer_touch(e, number);
    matrix left = dot_operand_matrix(e, a), right = dot_operand_matrix(e, b);
    buffer_prepare(e, number);
    buffer_prepare(e, room);
    put(e, "{");
    e->depth++;
    put(e, "long m_first = 0, m_last = %s, n_first = 0, n_last = %s, k_first = 0, k_last = %s;", extent_text(e, m),
        extent_text(e, n), extent_text(e, k));
    dot_put_limit(e, "m", &left, rank - 2);
    dot_put_limit(e, "k", &left, rank - 1);
    dot_put_limit(e, "k", &right, rank - 2);
    dot_put_limit(e, "n", &right, rank - 1);
    if (left.ok) put(e, "if (!(%s)) k_last = 0;", left.ok);
    if (right.ok) put(e, "if (!(%s)) k_last = 0;", right.ok);
    const char *count = extent_text(e, tc.dims[rank - 1]);
    const char *size = arena_print(e->memory, "%s * %s", extent_text(e, tc.dims[rank - 2]), count);
    if (op->operand_count < 3) {
        const char *all = rank == 3 ? arena_print(e->memory, "%s * %s", size, extent_text(e, tc.dims[0])) : size;
        put(e, "__builtin_memset(%s, 0, sizeof(*%s) * (%s));", sum, sum, all);
    }
    if (rank == 3) {
        put(e, "for (long batch = 0; batch < %s; batch++)", extent_text(e, tc.dims[0]));
        e->depth++;
        for (int side = 0; side < 2; side++) {
            matrix *of = side ? &right : &left;
            add_term(e, &of->pointer, arena_print(e->memory, "batch * %s", of->strides[0]));
        }
    }
    const char *origin = rank == 3 ? arena_print(e->memory, "%s + batch * (%s)", sum, size) : sum;
    const char *inside = "";
    if (rank == 3) {
        for (int side = 0; side < 2; side++) {
            const matrix *of = side ? &right : &left;
            if (of->limits[0][0]) inside = arena_print(e->memory, "%s && batch >= %s", inside, of->limits[0][0]);
            if (of->limits[0][1]) inside = arena_print(e->memory, "%s && batch < %s", inside, of->limits[0][1]);
        }
    }
    put(e, "if (m_first < m_last && n_first < n_last && k_first < k_last%s)", inside);
    e->depth++;
    put(e, "%s(%s + m_first * %s + k_first * %s, %s, %s,", need(e, "dot_%s", memory_name(ta.elem)), left.pointer,
        left.strides[rank - 2], left.strides[rank - 1], left.strides[rank - 2], left.strides[rank - 1]);
    put(e, "    %s + k_first * %s + n_first * %s, %s, %s,", right.pointer, right.strides[rank - 2],
        right.strides[rank - 1], right.strides[rank - 2], right.strides[rank - 1]);
    put(e, "    %s + m_first * %s + n_first, %s, m_last - m_first, n_last - n_first, k_last - k_first, (char *)%s);",
        origin, count, count, buffer_touch(e, room));
    e->depth -= rank == 3 ? 3 : 2;
    put(e, "}");
}

/* ---- scan, and argmax across rows: one axis of a buffer ---- */

/* The buffer as [outer][length][inner] around one axis. */
static void split_at(emitter *e, const tile_type *type, int axis, const char **outer, const char **inner)
{
    *outer = *inner = "1L";
    for (int i = 0; i < type->rank; i++) {
        if (i == axis || type->dims[i] == 1) continue;
        const char **side = i < axis ? outer : inner;
        *side = arena_print(e->memory, "%s * %s", *side, extent_text(e, type->dims[i]));
    }
}

static const char *from_memory(emitter *e, dtype t, const char *place)
{
    if (t == DT_F16 || t == DT_BF16)
        return arena_print(e->memory, "%s(%s)", need(e, "%s_to_f32", memory_name(t)), place);
    return place;
}

static const char *to_memory(emitter *e, dtype t, const char *words)
{
    if (t == DT_F16 || t == DT_BF16)
        return arena_print(e->memory, "%s(%s)", need(e, "f32_to_%s", memory_name(t)), words);
    return words;
}

void emit_scan(emitter *e, tile_op *op)
{
    value result = op->results[0];
    tile_type type = tile_type_of(e->k, result);
    int axis = op->attr.index;
    dtype t = type.elem;
    fold_kind fold = op->attr.fold;
    const char *outer, *inner, *length = extent_text(e, type.dims[axis]);
    split_at(e, &type, axis, &outer, &inner);
    bool rows = !strcmp(inner, "1L");
    put(e, "for (long o = 0; o < %s; o++) {", outer);
    e->depth++;
    put(e, "%s *const row = %s + o * (%s) * (%s);", memory_type(t), buffer_name(e, result), length, inner);
    if (rows) {
        const char *m = memory_name(t);
        put(e, "%s carry = %s;", scalar_c_type(t), number_text(e, t, fold_identity(fold, t)));
        put(e, "long s = 0;");
        put(e, "for (; s + 16 <= %s; s += 16) {", length);
        const char *scanned =
            arena_print(e->memory, "%s(%s(row + s))", need(e, "scan_%s_%sx16", fold_names[fold], register_name(t)),
                        need(e, "load_%sx16", m));
        put(e, "    const %s x = %s;", vector_c_type(t), fold_step(e, fold, t, splat(e, t, "carry"), scanned, true));
        put(e, "    %s(row + s, x);", need(e, "store_%sx16", m));
        put(e, "    carry = x[15];");
        put(e, "}");
        put(e, "for (; s < %s; s++) {", length);
        put(e, "    carry = %s;", fold_step(e, fold, t, "carry", from_memory(e, t, "row[s]"), false));
        put(e, "    row[s] = %s;", to_memory(e, t, "carry"));
        put(e, "}");
    } else {
        put(e, "for (long s = 1; s < %s; s++)", length);
        put(e, "    for (long i = 0; i < %s; i++)", inner);
        const char *before = from_memory(e, t, arena_print(e->memory, "row[(s - 1) * (%s) + i]", inner));
        const char *place = arena_print(e->memory, "row[s * (%s) + i]", inner);
        put(e, "        %s = %s;", place,
            to_memory(e, t, fold_step(e, fold, t, before, from_memory(e, t, place), false)));
    }
    e->depth--;
    put(e, "}");
}

void emit_fold_buffer(emitter *e, tile_op *op)
{
    value from = op->operands[0], result = op->results[0];
    tile_type type = tile_type_of(e->k, from);
    dtype t = type.elem;
    int axis = 0, folded = 0;
    for (int i = 0; i < type.rank; i++)
        if (op->attr.axis_set >> i & 1) axis = i, folded++;
    const char *outer, *inner, *length = extent_text(e, type.dims[axis]);
    split_at(e, &type, axis, &outer, &inner);
    if (folded > 1) { /* over everything, in order */
        length = outer = inner = "1L";
        for (int i = 0; i < type.rank; i++)
            length = arena_print(e->memory, "%s * %s", length, extent_text(e, type.dims[i]));
    }
    bool most = op->attr.fold == FOLD_ARGMAX, scalar = !tile_type_of(e->k, result).rank;
    if (scalar) put(e, "long %s;", emit_name(e, result));
    put(e, "for (long o = 0; o < %s; o++)", outer);
    put(e, "    for (long i = 0; i < %s; i++) {", inner);
    e->depth += 2;
    put(e, "%s best = 0;", scalar_c_type(t));
    put(e, "long at = -1;");
    put(e, "for (long s = 0; s < %s; s++) {", length);
    const char *place = arena_print(e->memory, "%s[(o * (%s) + s) * (%s) + i]", buffer_name(e, from), length, inner);
    put(e, "    const %s x = %s;", scalar_c_type(t), from_memory(e, t, place));
    put(e, "    if (at < 0 || x %s best%s) best = x, at = s;", most ? ">" : "<",
        dtype_is_float(t) ? " || (x != x && best == best)" : "");
    put(e, "}");
    if (scalar)
        put(e, "%s = at;", emit_name(e, result));
    else
        put(e, "%s[o * (%s) + i] = at;", buffer_name(e, result), inner);
    e->depth -= 2;
    put(e, "    }");
}
