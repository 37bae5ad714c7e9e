/*
 * dot in CUDA text. In: a DOT op whose operands are slices of arrays or kept tiles. Out: calls of the prelude's products.
 *
 * A slice (perhaps transposed, perhaps with its own bounds selected to 0) is not copied: pointer and strides go to the
 * product, and its bounds shorten m, n and k. Everything else is read from its own memory. The result is added into
 * its buffer, which already holds the third operand, or is cleared here.
 * All threads of the team run this text; barriers around it are the caller's.
 * SPDX-License-Identifier: MIT
 */
#include "emit/emit_cuda_text.h"

/* The first and last position of each of m, n, k that both operands have. */
static void put_limits(emitter *e, const matrix *left, const matrix *right, int rank, const int64_t extents[3])
{
    put(e, "long m_first = 0, m_last = %s, n_first = 0, n_last = %s, k_first = 0, k_last = %s;",
        extent_text(e, extents[0]), extent_text(e, extents[1]), extent_text(e, extents[2]));
    dot_put_limit(e, "m", left, rank - 2);
    dot_put_limit(e, "k", left, rank - 1);
    dot_put_limit(e, "k", right, rank - 2);
    dot_put_limit(e, "n", right, rank - 1);
    if (left->ok) put(e, "if (!(%s)) k_last = 0;", left->ok);
    if (right->ok) put(e, "if (!(%s)) k_last = 0;", right->ok);
}

/* What the batch number must satisfy for both operands to have it; "" if it always does. */
static const char *batch_test(emitter *e, const matrix *left, const matrix *right)
{
    const char *words = "";
    for (int side = 0; side < 2; side++) {
        const matrix *of = side ? right : left;
        if (of->limits[0][0]) words = arena_print(e->memory, "%s && batch >= %s", words, of->limits[0][0]);
        if (of->limits[0][1]) words = arena_print(e->memory, "%s && batch < %s", words, of->limits[0][1]);
    }
    return words;
}

void emit_cuda_dot(emitter *e, tile_op *op)
{
    value a = op->operands[0], b = op->operands[1], result = op->results[0];
    tile_type ta = tile_type_of(e->k, a), tb = tile_type_of(e->k, b), tc = tile_type_of(e->k, result);
    int rank = tc.rank;
    const int64_t extents[3] = {ta.dims[rank - 2], tb.dims[rank - 1], ta.dims[rank - 1]};
    matrix left = dot_operand_matrix(e, a), right = dot_operand_matrix(e, b), sum = dot_operand_matrix(e, result);
    put(e, "{");
    e->depth++;
    put_limits(e, &left, &right, rank, extents);
    const char *inside = "";
    if (rank == 3) {
        inside = batch_test(e, &left, &right);
        put(e, "for (long batch = 0; batch < %s; batch++) {", extent_text(e, tc.dims[0]));
        e->depth++;
        left.pointer = arena_print(e->memory, "%s + batch * %s", left.pointer, left.strides[0]);
        right.pointer = arena_print(e->memory, "%s + batch * %s", right.pointer, right.strides[0]);
        sum.pointer = arena_print(e->memory, "%s + batch * (%s)", sum.pointer, sum.strides[0]);
    }
    if (*inside) put(e, "const long k_end = 1%s ? k_last : k_first;", inside);
    put(e, "%s(%s, %s, %s,", need(e, "dot_plain_%s", memory_name(ta.elem)), left.pointer, left.strides[rank - 2],
        left.strides[rank - 1]);
    put(e, "    %s, %s, %s,", right.pointer, right.strides[rank - 2], right.strides[rank - 1]);
    put(e, "    %s, %s, %s, %s, m_first, m_last, n_first, n_last, k_first, %s, %s, thread, threads);", sum.pointer,
        sum.strides[rank - 2], extent_text(e, extents[0]), extent_text(e, extents[1]), *inside ? "k_end" : "k_last",
        op->operand_count < 3 ? "true" : "false");
    if (rank == 3) {
        e->depth--;
        put(e, "}");
    }
    e->depth--;
    put(e, "}");
}
