/*
 * dot in CUDA text. In: a DOT op whose operands are slices of arrays or kept tiles. Out: calls of the prelude's products.
 *
 * A slice (perhaps transposed, perhaps with its own bounds selected to 0) is not copied: pointer and strides go to the
 * product, and its bounds shorten m, n and k. Everything else is read from its own memory. A product works on tiles of
 * TM x TN sums in registers, fed through a room in shared memory; f16 and bf16 go to the matrix units where there are
 * any, all else is multiplied and added. The sums are then added to the result's buffer, which already holds the third
 * operand, or is written afresh. Where a loop does nothing with an accumulator but add products to it, its sums stay in
 * registers from before the loop until after it.
 * All threads of the team run this text; barriers around it are the caller's.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/gather.h"
#include "emit/cuda/nest.h"

#include <inttypes.h>
#include <string.h>

enum {
    ASK_TILE = 128 * 64
}; /* sums of a tile from which on few blocks run at once, and what follows is asked for ahead */

static const char *truth(bool holds)
{
    return holds ? "true" : "false";
}

/* The class of the prelude that is this product of these operands. Of an operand: `inner` if its elements lie side by side
 * along k, `global` if it is an array's. */
static const char *product_type(emitter *e, const tile_op *op, const product *p, const matrix *left,
                                const matrix *right)
{
    int rank = tile_type_of(e->k, op->operands[0]).rank;
    if (p->kind == PRODUCT_FMA)
        return arena_print(e->memory, "%s<%d, %d, %d, %d, %d, %d>", need(e, "product_fma_%s", memory_name(p->elem)),
                           p->rows, p->columns, p->down, p->across, MINIMUM(p->rows / p->down, 4),
                           MINIMUM(p->columns / p->across, 4));
    bool inner[2] = {left->unit[rank - 1] || !left->unit[rank - 2], right->unit[rank - 2] || !right->unit[rank - 1]};
    if (p->kind == PRODUCT_THIN) {
        bool turned = p->rows > p->columns;
        return arena_print(e->memory, "%s<%d, %d, %d, %d, %s, %s, %s>",
                           need(e, "product_thin_%s", memory_name(p->elem)), turned ? p->columns : p->rows,
                           turned ? p->rows : p->columns, p->threads, p->stages, truth(turned), truth(inner[turned]),
                           truth(inner[!turned]));
    }
    tile_op *load;
    bool swapped, global[2];
    for (int i = 0; i < 2; i++) global[i] = dot_operand_is_direct(e->survey, op->operands[i], &load, &swapped);
    const char *places =
        arena_print(e->memory, "%s, %s, %s, %s", truth(inner[0]), truth(inner[1]), truth(global[0]), truth(global[1]));
    const char *scale = p->scaled < 0 ? "" : p->scaled ? ", dot_scale<false>" : ", dot_scale<true>";
    if (p->kind == PRODUCT_RING)
        return arena_print(e->memory, "%s<%d, %d, %d, %d, %s, %d, %d%s>", need(e, "product_f32"), p->rows, p->columns,
                           p->down, p->across, places, p->stages, p->chunks, scale);
    return arena_print(e->memory, "%s<%d, %d, %d, %d, %d, %s, %d, %d%s>",
                       need(e, "product_%s", p->tf32 ? "tf32" : memory_name(p->elem)), p->rows, p->columns, p->down,
                       p->across, p->threads, places, p->stages, p->chunks, scale);
}

static const char *room_name(emitter *e)
{
    return buffer_touch(e, e->cuda->spread->product_room);
}

static const char *sum_type(dtype t)
{
    return t == DT_F64 ? "double" : t == DT_I8 || t == DT_U8 ? "int" : "float";
}

/* The first and last position of each of m, n, k that both operands have. */
static void put_reach(emitter *e, const loop_product *p, const matrix *left, const matrix *right, int rank,
                      const int64_t extents[2], const char *depth)
{
    int scaled = p->product.scaled;
    dot_put_limits(e, left, right, rank, extents, depth);
    if (scaled < 0) return;
    matrix scale = dot_scale_matrix(e, p->dot->operands[scaled]);
    dot_put_limit(e, "k", &scale, scaled ? 0 : 1);
    if (scale.ok) put(e, "if (!(%s)) k_last = 0;", scale.ok);
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

static void put_add(emitter *e, const loop_product *p, const char *class, const char *sums, const matrix *left,
                    const matrix *right, int rank, const char *room, bool parts)
{
    int scaled = p->product.scaled;
    const char *by = "";
    if (scaled >= 0) {
        matrix scale = dot_scale_matrix(e, p->dot->operands[scaled]);
        by = arena_print(e->memory, ", {%s, %s}", scale.pointer, scale.strides[scaled ? 0 : 1]);
    }
    const char *a_row = left->strides[rank - 2], *a_column = left->strides[rank - 1];
    const char *b_row = right->strides[rank - 2], *b_column = right->strides[rank - 1];
    put(e,
        "const dot_range of_a = {m_first%s, m_last%s, k_first, k_last}, of_b = {n_first%s, n_last%s, k_first, k_last};",
        parts ? " - top" : "", parts ? " - top" : "", parts ? " - left" : "", parts ? " - left" : "");
    put(e, "%s::add(%s, %s%s, %s, %s,", class, sums, left->pointer,
        parts ? arena_print(e->memory, " + top * %s", a_row) : "", a_row, a_column);
    put(e, "    %s%s, %s, %s, of_a, of_b, %s, thread%s);", right->pointer,
        parts ? arena_print(e->memory, " + left * %s", b_column) : "", b_row, b_column, room, by);
}

static void put_plain(emitter *e, const tile_op *op, const matrix *left, const matrix *right, const matrix *sum,
                      const int64_t extents[2], bool clear)
{
    tile_type type = tile_type_of(e->k, op->operands[0]);
    int rank = type.rank;
    put(e, "%s(%s, %s, %s,", need(e, "dot_plain_%s", memory_name(type.elem)), left->pointer, left->strides[rank - 2],
        left->strides[rank - 1]);
    put(e, "    %s, %s, %s,", right->pointer, right->strides[rank - 2], right->strides[rank - 1]);
    put(e, "    %s, %s, %s, %s, m_first, m_last, n_first, n_last, k_first, k_last, %s, thread, threads);", sum->pointer,
        sum->strides[rank - 2], extent_text(e, extents[0]), extent_text(e, extents[1]), clear ? "true" : "false");
}

/* Tile by tile; the sums of each go to memory. */
static void put_tiles(emitter *e, const loop_product *of, const matrix *left, const matrix *right, const matrix *sum,
                      const int64_t extents[2], bool clear)
{
    const product *p = &of->product;
    tile_type type = tile_type_of(e->k, of->dot->operands[0]);
    int rank = type.rank;
    const char *room = room_name(e), *m = extent_text(e, extents[0]), *n = extent_text(e, extents[1]);
    put(e, "typedef %s product;", product_type(e, of->dot, p, left, right));
    put(e, "for (long top = 0; top < %s; top += %d)", m, p->rows);
    put(e, "    for (long left = 0; left < %s; left += %d) {", n, p->columns);
    e->depth += 2;
    put(e, "%s sums[product::COUNT];", sum_type(type.elem));
    put(e, "for (int i = 0; i < product::COUNT; i++) sums[i] = 0;");
    put_add(e, of, "product", "sums", left, right, rank, room, true);
    put(e, "%s<product>(sums, %s, %s, top, left, %s, %s, %s, thread);", need(e, "dot_finish"), sum->pointer,
        sum->strides[rank - 2], m, n, clear ? "true" : "false");
    e->depth -= 2;
    put(e, "    }");
}

/* The same where an operand is gathered. */
static void put_gathered(emitter *e, const loop_product *of, const matrix *sum, const int64_t extents[2], bool clear)
{
    const gather_product p = of->gather;
    CHECK(e->cuda->spread->team.kind == TEAM_BLOCK);
    tile_type type = tile_type_of(e->k, of->dot->operands[0]);
    const char *room = room_name(e), *m = extent_text(e, extents[0]), *n = extent_text(e, extents[1]);
    put(e, "for (long top = 0; top < %s; top += %d)", m, p.rows);
    put(e, "    for (long left = 0; left < %s; left += %d) {", n, p.columns);
    e->depth += 2;
    put(e, "typedef %s product;", gather_put(e, of));
    put(e, "%s sums[product::COUNT];", sum_type(type.elem));
    put(e, "for (int i = 0; i < product::COUNT; i++) sums[i] = 0;");
    put(e, "const dot_range of_a = {m_first - top, m_last - top, k_first, k_last};");
    put(e, "const dot_range of_b = {n_first - left, n_last - left, k_first, k_last};");
    put(e, "product::add(sums, gather_a, gather_b, of_a, of_b, %s, thread);", room);
    put(e, "%s<product>(sums, %s, %s, top, left, %s, %s, %s, thread);", need(e, "dot_finish"), sum->pointer,
        sum->strides[0], m, n, clear ? "true" : "false");
    e->depth -= 2;
    put(e, "    }");
}

void emit_cuda_dot(emitter *e, const loop_node *node)
{
    const tile_op *op = node->op;
    const loop_product *of = node->product;
    value result = op->results[0];
    tile_type ta = tile_type_of(e->k, op->operands[0]), tb = tile_type_of(e->k, op->operands[1]);
    int rank = ta.rank;
    const int64_t extents[2] = {ta.dims[rank - 2], tb.dims[rank - 1]};
    matrix left = dot_operand_matrix(e, op->operands[0]), right = dot_operand_matrix(e, op->operands[1]);
    put(e, "{");
    e->depth++;
    put_reach(e, of, &left, &right, rank, extents, extent_text(e, ta.dims[rank - 1]));
    if (of->gathered) {
        matrix sum = dot_operand_matrix(e, result);
        put_gathered(e, of, &sum, extents, op->operand_count < 3);
    } else if (e->cuda->resident[result]) {
        CHECK(of->has_product);
        e->cuda->resident[result] = product_type(e, op, &of->product, &left, &right);
        put_add(e, of, arena_print(e->memory, "product_%u", result), arena_print(e->memory, "sums_%u", result), &left,
                &right, rank, room_name(e), false);
    } else {
        matrix sum = dot_operand_matrix(e, result);
        if (rank == 3) {
            const char *inside = batch_test(e, &left, &right);
            put(e, "const long k_end = k_last;");
            put(e, "for (long batch = 0; batch < %s; batch++) {", extent_text(e, tile_type_of(e->k, result).dims[0]));
            e->depth++;
            if (*inside) put(e, "k_last = 1%s ? k_end : k_first;", inside);
            left.pointer = arena_print(e->memory, "%s + batch * %s", left.pointer, left.strides[0]);
            right.pointer = arena_print(e->memory, "%s + batch * %s", right.pointer, right.strides[0]);
            sum.pointer = arena_print(e->memory, "%s + batch * (%s)", sum.pointer, sum.strides[0]);
        }
        if (of->has_product)
            put_tiles(e, of, &left, &right, &sum, extents, op->operand_count < 3);
        else
            put_plain(e, op, &left, &right, &sum, extents, op->operand_count < 3);
        if (rank == 3) {
            e->depth--;
            put(e, "}");
        }
    }
    e->depth--;
    put(e, "}");
}

/* ---- loops of products ---- */

static const tile_block *block_of(const tile_kernel *k, const tile_op *op, int *at)
{
    for (int p = 0; p < k->phase_count; p++)
        for (*at = 0; *at < k->phases[p]->op_count; ++*at)
            if (k->phases[p]->ops[*at] == op) return k->phases[p];
    return NULL;
}

/* Is the value computed before op `at` of the block? */
static bool is_before(const emitter *e, const tile_block *block, int at, value v)
{
    const tile_op *op = tile_def(e->k, v);
    if (!op || op->code == OP_CONST || op->code == OP_ARG) return true;
    for (int i = 0; i < at; i++)
        if (block->ops[i] == op) return true;
    return false;
}

/* Tiles as large as the product's that are loaded behind it (an optimiser's moments, what is added) are asked for now: the
 * memory brings them into the L2 while the block multiplies. */
static void put_ask_ahead(emitter *e, const tile_op *loop, const tile_type *type)
{
    int at = 0;
    const tile_block *block = type->dims[0] * type->dims[1] < ASK_TILE ? NULL : block_of(e->k, loop, &at);
    for (int i = at + 1; block && i < block->op_count; i++) {
        tile_op *op = block->ops[i], *load;
        bool swapped, known = op->code == OP_LOAD;
        tile_type loaded = known ? tile_type_of(e->k, op->results[0]) : (tile_type){0};
        if (!known || !tile_shape_same(&loaded, type)) continue;
        for (int o = 0; o < op->operand_count; o++) known &= is_before(e, block, at, op->operands[o]);
        if (!known || !dot_operand_is_direct(e->survey, op->results[0], &load, &swapped) || load != op || swapped)
            continue;
        matrix m = dot_operand_matrix(e, op->results[0]);
        if (m.ok || m.digits || m.limits[0][0] || m.limits[1][0] || !m.unit[1]) continue;
        const char *rows = extent_text(e, type->dims[0]), *columns = extent_text(e, type->dims[1]);
        put(e, "%s(%s, %s, %s, %s, %s, %s, thread, threads);", need(e, "ask_rows"), m.pointer, m.strides[0], rows,
            m.limits[0][1] ? m.limits[0][1] : rows, columns, m.limits[1][1] ? m.limits[1][1] : columns);
    }
}

void cuda_loop_of_products(emitter *e, const loop_node *n)
{
    const tile_op *loop = n->op, *dot = n->product->dot;
    bool from_zero = n->number[0];
    tile_type type = tile_type_of(e->k, loop->results[0]);
    put(e, "{");
    e->depth++;
    put_ask_ahead(e, loop, &type);
    dot_put_depth(e, loop);
    matrix left = dot_operand_matrix(e, dot->operands[0]), right = dot_operand_matrix(e, dot->operands[1]);
    matrix sum = dot_operand_matrix(e, dot->results[0]);
    put_reach(e, n->product, &left, &right, 2, type.dims, "depth");
    if (n->product->gathered)
        put_gathered(e, n->product, &sum, type.dims, from_zero);
    else if (n->product->has_product)
        put_tiles(e, n->product, &left, &right, &sum, type.dims, from_zero);
    else
        put_plain(e, dot, &left, &right, &sum, type.dims, from_zero);
    e->depth--;
    put(e, "}");
}

void cuda_sums(emitter *e, value result, value argument, bool load)
{
    tile_type type = tile_type_of(e->k, result);
    const char *memory = buffer_name(e, argument), *n = extent_text(e, type.dims[1]);
    if (!load) {
        put(e, "dot_finish<product_%u>(sums_%u, %s, %s, 0, 0, %s, %s, true, thread);", result, result, memory, n,
            extent_text(e, type.dims[0]), n);
        return;
    }
    need(e, "dot_finish");
    e->cuda->resident[result] = "";
    put(e, "%s sums_%u[product_%u::COUNT];", sum_type(tile_type_of(e->k, tile_def(e->k, result)->operands[0]).elem),
        result, result);
    put(e, "dot_resume<product_%u>(sums_%u, %s, %s, %s, %s, thread);", result, result, memory, n,
        extent_text(e, type.dims[0]), n);
}

void cuda_sums_type(emitter *e, value result)
{
    put(e, "typedef %s product_%u;", e->cuda->resident[result], result);
}

void cuda_ask_ahead(emitter *e, const tile_op *loop)
{
    if (loop->result_count != 1) return;
    tile_type type = tile_type_of(e->k, loop->results[0]);
    put_ask_ahead(e, loop, &type);
}
