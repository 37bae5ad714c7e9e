/*
 * dot and scan, and positions folded across rows. In: an op whose operands are slices of arrays or kept tiles.
 * Out: calls of the prelude's packed products, or plain loops over a buffer.
 *
 * A dot operand that is a slice (perhaps transposed, perhaps with its own bounds selected to 0) is not copied: pointer
 * and strides go to the product, and its bounds shorten m, n and k. Everything else is read from its buffer.
 * SPDX-License-Identifier: MIT
 */
#include "emit/c/nest.h"

#include <inttypes.h>
#include <string.h>

/* ---- an operand as pointer and strides ---- */

static void add_term(emitter *e, const char **sum, const char *term)
{
    *sum = arena_print(e->memory, "%s + %s", *sum, term);
}

/* Of an array with digits: what one axis says that is not a slice, or where a slice begins. */
static void add_digits(emitter *e, matrix *m, int axis, int to, const char *first)
{
    const axis_digits *d = &m->digits->axes[axis];
    if (to >= 0) {
        m->digit_axis[to] = axis;
        m->starts[to] = first;
        return;
    }
    const char *sum = digits_sum(e, d, d->stride, first);
    if (sum) add_term(e, &m->pointer, sum);
    for (int g = 0; g < m->digits->guard_count; g++) {
        sum = digits_sum(e, d, d->guard[g], first);
        if (sum) add_term(e, &m->first[g], sum);
    }
}

static matrix direct_matrix(emitter *e, tile_op *load)
{
    const struct access *a = &load->attr.access;
    const tile_param *p = &e->k->params[a->array];
    matrix m = {.pointer = arena_print(e->memory, "%s_array", p->name), .digits = p->digits};
    e->array_used[a->array] = true;
    for (int i = 0; i < MAX_RANK; i++) m.strides[i] = "0L", m.digit_axis[i] = -1, m.starts[i] = "0L";
    if (p->digits && p->digits->origin)
        add_term(e, &m.pointer, arena_print(e->memory, "%" PRId64 "L", p->digits->origin));
    for (int g = 0; p->digits && g < p->digits->guard_count; g++)
        m.first[g] = arena_print(e->memory, "%" PRId64 "L", p->digits->guard_first[g]);
    int operand = a->first_index;
    for (int axis = 0; axis < a->rank; axis++) {
        value start = load->operands[operand];
        const char *first = emit_name(e, start), *stride = p->digits ? "0L" : stride_text(e, a->array, axis);
        const char *extent = a->safe[axis] ? NULL : array_extent(e, a->array, axis);
        if (p->digits)
            add_digits(e, &m, axis, a->kind[axis] == INDEX_SLICE ? a->result_axis[axis] : -1, first);
        else
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
        bool one = is_one(e->survey, load->operands[operand + 1]);
        m.strides[to] = one ? stride : arena_print(e->memory, "(%s * %s)", step, stride);
        m.unit[to] = one && stride == words_one;
        if (!a->safe[axis]) {
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
    bool innermost = true;
    for (int axis = type.rank - 1; axis >= 0; axis--) {
        m.strides[axis] = type.dims[axis] == 1 ? "0L" : stride;
        m.unit[axis] = type.dims[axis] != 1 && innermost;
        innermost &= type.dims[axis] == 1;
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
    if (dot_operand_is_direct(e->survey, v, &load, &swapped)) {
        m = direct_matrix(e, load);
        if (!swapped) return m;
        turned = m;
        for (int i = 0; i < 2; i++) {
            turned.strides[rank - 1 - i] = m.strides[rank - 2 + i];
            turned.unit[rank - 1 - i] = m.unit[rank - 2 + i];
            turned.starts[rank - 1 - i] = m.starts[rank - 2 + i];
            turned.digit_axis[rank - 1 - i] = m.digit_axis[rank - 2 + i];
            memcpy(turned.limits[rank - 1 - i], m.limits[rank - 2 + i], sizeof(m.limits[0]));
        }
        return turned;
    }
    if (!value_is_virtual(e->survey, v)) return buffer_matrix(e, v);
    CHECK(op->code == OP_PERMUTE);
    m = turned = buffer_matrix(e, op->operands[0]);
    for (int i = 0; i < rank; i++) {
        turned.strides[i] = m.strides[op->attr.axes[i]];
        turned.unit[i] = m.unit[op->attr.axes[i]];
    }
    return turned;
}

matrix dot_scale_matrix(emitter *e, value v)
{
    return direct_matrix(e, e->survey->scales[v]);
}

void dot_put_limit(emitter *e, const char *name, const matrix *m, int axis)
{
    const char *first = m->limits[axis][0], *last = m->limits[axis][1];
    if (first) put(e, "if (%s > %s_first) %s_first = %s;", first, name, name, first);
    if (last) put(e, "if (%s < %s_last) %s_last = %s;", last, name, name, last);
}

void dot_put_limits(emitter *e, const matrix *left, const matrix *right, int rank, const int64_t extents[2],
                    const char *depth)
{
    put(e, "long m_first = 0, m_last = %s, n_first = 0, n_last = %s, k_first = 0, k_last = %s;",
        extent_text(e, extents[0]), extent_text(e, extents[1]), depth);
    dot_put_limit(e, "m", left, rank - 2);
    dot_put_limit(e, "k", left, rank - 1);
    dot_put_limit(e, "k", right, rank - 2);
    dot_put_limit(e, "n", right, rank - 1);
    if (left->ok) put(e, "if (!(%s)) k_last = 0;", left->ok);
    if (right->ok) put(e, "if (!(%s)) k_last = 0;", right->ok);
}

static void put_product_limits(emitter *e, const tile_op *op, const matrix *left, const matrix *right,
                               const char *depth)
{
    tile_type type = tile_type_of(e->k, op->results[0]);
    dot_put_limits(e, left, right, type.rank, type.dims + type.rank - 2, depth);
}

/* A call of `function` of the prelude with the operands from their first elements that count, and `rest`. */
static void put_call(emitter *e, const char *function, dtype elem, const matrix *left, const matrix *right, int rank,
                     const char *rest)
{
    const char *type = memory_name(elem);
    if (left->digits || right->digits) {
        put(e, "{");
        e->depth++;
        gather_put_operands(e, need(e, "gather_%s_%s", function, type), left, right);
        put(e, "    %s", rest);
        e->depth--;
        put(e, "}");
        return;
    }
    function = need(e, "%s_%s", function, type);
    const char *m = left->strides[rank - 2], *k = left->strides[rank - 1];
    put(e, "%s(%s + m_first * %s + k_first * %s, %s, %s,", function, left->pointer, m, k, m, k);
    k = right->strides[rank - 2];
    const char *n = right->strides[rank - 1];
    put(e, "    %s + k_first * %s + n_first * %s, %s, %s,", right->pointer, k, n, k, n);
    put(e, "    %s", rest);
}

/* op's buffer += its product, within the limits. */
static void put_product(emitter *e, const tile_op *op, matrix left, matrix right, int room)
{
    tile_type ta = tile_type_of(e->k, op->operands[0]), tc = tile_type_of(e->k, op->results[0]);
    int rank = tc.rank;
    const char *sum = buffer_name(e, op->results[0]), *count = extent_text(e, tc.dims[rank - 1]);
    const char *size = arena_print(e->memory, "%s * %s", extent_text(e, tc.dims[rank - 2]), count);
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
    put_call(e, "dot", ta.elem, &left, &right, rank,
             arena_print(
                 e->memory,
                 "%s + m_first * %s + n_first, %s, m_last - m_first, n_last - n_first, k_last - k_first, (char *)%s);",
                 origin, count, count, buffer_touch(e, room)));
    e->depth -= rank == 3 ? 2 : 1;
}

static int room_for(emitter *e, const tile_op *op)
{
    tile_type ta = tile_type_of(e->k, op->operands[0]), tb = tile_type_of(e->k, op->operands[1]);
    return buffer_for_dot(e, ta.dims[ta.rank - 2], tb.dims[tb.rank - 1]);
}

void emit_dot(emitter *e, tile_op *op)
{
    value a = op->operands[0], b = op->operands[1], result = op->results[0];
    tile_type tc = tile_type_of(e->k, result);
    int rank = tc.rank, number = buffer_for(e->survey, result), room = room_for(e, op);
    matrix left = dot_operand_matrix(e, a), right = dot_operand_matrix(e, b);
    buffer_prepare(e, number);
    buffer_prepare(e, room);
    put(e, "{");
    e->depth++;
    put_product_limits(e, op, &left, &right, extent_text(e, tile_type_of(e->k, a).dims[rank - 1]));
    if (op->operand_count < 3) {
        const char *sum = buffer_touch(e, number), *all = extent_text(e, tc.dims[0]);
        for (int i = 1; i < rank; i++) all = arena_print(e->memory, "%s * %s", all, extent_text(e, tc.dims[i]));
        put(e, "__builtin_memset(%s, 0, sizeof(*%s) * (%s));", sum, sum, all);
    }
    put_product(e, op, left, right, room);
    e->depth--;
    put(e, "}");
}

/* ---- a loop of products ---- */

/* The loop's variable stands still at its first value, and the product is as deep as all turns together. */
void dot_put_depth(emitter *e, const tile_op *loop)
{
    number step;
    CHECK(tile_is_constant(e->k, loop->operands[2], &step));
    const char *k = emit_name(e, loop->regions[0]->args[0]), *limit = emit_name(e, loop->operands[1]);
    put(e, "const long %s = %s;", k, emit_name(e, loop->operands[0]));
    put(e, "const long depth = %s < %s ? (%s - %s + %" PRId64 "L) / %" PRId64 "L * %" PRId64 "L : 0;", k, limit, limit,
        k, step.i - 1, step.i, step.i);
}

/* Limits and the call for a loop whose sums are kept in their buffer. */
static void put_loop_product(emitter *e, tile_op *dot, int room)
{
    matrix left = dot_operand_matrix(e, dot->operands[0]), right = dot_operand_matrix(e, dot->operands[1]);
    put_product(e, dot, left, right, room);
}

static void begin_loop_product(emitter *e, const tile_op *loop, tile_op *dot, int *room)
{
    e->survey->buffer_of[dot->results[0]] = buffer_for(e->survey, loop->regions[0]->args[1]);
    *room = room_for(e, dot);
    buffer_prepare(e, *room);
    put(e, "{");
    e->depth++;
    dot_put_depth(e, loop);
    matrix left = dot_operand_matrix(e, dot->operands[0]), right = dot_operand_matrix(e, dot->operands[1]);
    put_product_limits(e, dot, &left, &right, "depth");
}

void emit_loop_of_products(emitter *e, const tile_op *loop, tile_op *dot)
{
    int room;
    begin_loop_product(e, loop, dot, &room);
    put_loop_product(e, dot, room);
    e->depth--;
    put(e, "}");
}

/* The last block of depth goes straight to the array where its elements lie side by side and the operands reach as far
 * as it does; otherwise everything as it was written. */
void emit_stored_loop(emitter *e, const item *items)
{
    tile_op *loop = items[1].op, *dot = loop_is_product(e->survey, loop),
            *store = items[2].group->passes[0].sinks[0].op;
    tile_type type = tile_type_of(e->k, loop->results[0]);
    static const char *const names[] = {"m", "n"};
    int room;
    put_line_comment(e, loop);
    begin_loop_product(e, loop, dot, &room);
    matrix left = dot_operand_matrix(e, dot->operands[0]), right = dot_operand_matrix(e, dot->operands[1]);
    matrix out = direct_matrix(e, store);
    const char *fits = "k_first < k_last";
    for (int axis = 0; axis < 2; axis++) {
        const char *name = names[axis];
        put(e, "long %s_count = %s;", name, extent_text(e, type.dims[axis]));
        const char *first = out.limits[axis][0], *last = out.limits[axis][1];
        if (last) put(e, "if (%s < %s_count) %s_count = %s;", last, name, name, last);
        fits = arena_print(e->memory, "%s && %s_first == 0 && %s_count <= %s_last", fits, name, name, name);
        if (first) fits = arena_print(e->memory, "%s && %s <= 0", fits, first);
    }
    if (!out.unit[1]) fits = arena_print(e->memory, "%s && %s == 1", fits, out.strides[1]);
    if (out.ok) fits = arena_print(e->memory, "%s && %s", fits, out.ok);
    put(e, "if (%s) {", fits);
    e->depth++;
    dtype elem = tile_type_of(e->k, dot->operands[0]).elem;
    put_call(e, "dot_into", elem, &left, &right, 2,
             arena_print(e->memory, "%s, %s, %s, %s, m_count, n_count, k_last - k_first, (char *)%s);",
                         buffer_name(e, dot->results[0]), extent_text(e, type.dims[1]), out.pointer, out.strides[0],
                         buffer_touch(e, room)));
    e->depth--;
    put(e, "} else {");
    e->depth++;
    emit_group(e, items[0].group);
    e->survey->time++;
    put_loop_product(e, dot, room);
    e->survey->time++;
    emit_group(e, items[2].group);
    e->depth--;
    put(e, "}");
    e->depth--;
    put(e, "}");
}

/* ---- scan, and argmax across rows: one axis of a buffer ---- */

/* The buffer as [outer][length][inner] around one axis; true: inner is one element. */
static bool split_at(emitter *e, const tile_type *type, int axis, const char **outer, const char **inner)
{
    bool last = true;
    *outer = *inner = "1L";
    for (int i = 0; i < type->rank; i++) {
        if (i == axis || type->dims[i] == 1) continue;
        const char **side = i < axis ? outer : inner;
        *side = arena_print(e->memory, "%s * %s", *side, extent_text(e, type->dims[i]));
        last &= i < axis;
    }
    return last;
}

static const char *from_memory(emitter *e, dtype t, const char *place)
{
    if (dtype_is_narrow(t)) return arena_print(e->memory, "%s(%s)", need(e, "%s_to_f32", memory_name(t)), place);
    return place;
}

static const char *to_memory(emitter *e, dtype t, const char *words)
{
    if (dtype_is_narrow(t)) return arena_print(e->memory, "%s(%s)", need(e, "f32_to_%s", memory_name(t)), words);
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
    bool rows = split_at(e, &type, axis, &outer, &inner);
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
