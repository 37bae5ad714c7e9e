/*
 * The product that suits a dot. In: a DOT op and the threads of a block. Out: its tile of sums, how warps or threads share
 * it, the steps of k that are on their way, the room in shared memory. No text: cuda/dot.c names the class of the prelude.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/product.h"

enum {
    MOST_SUMS = 128,
    MOST_FMA_SUMS = 128,
    MOST_RING_SUMS = 64,
    RING_BYTES = 72 * 1024,
    MOST_STAGES = 8,
    OTHER_BYTES = 32 * 1024, /* of shared memory, that a wish for a longer ring leaves */
    FMA_STEP = 8,
    GATHER_STEP = 8,
    ROWS_EACH = 8,
    SHORT_STEP = 64, /* bytes of k */
    LINE_APART = 32, /* bytes behind a line of a step */
    THIN_THREADS = 256,
    THIN_SUMS = 1024
};

static int64_t power_above(int64_t n, int64_t least, int64_t most)
{
    while (least < n && least < most) least *= 2;
    return least;
}

/* Steps of k that are in the room or on their way: a wish of `tune` as far as there is room for it (apart_bytes: between the lines of
 * a stage), or as many as fit. */
static int ring_stages(const survey *e, int64_t stage_bytes, int64_t apart_bytes, int64_t ring_bytes)
{
    int64_t most = (e->spread->machine.shared_bytes - OTHER_BYTES) / (stage_bytes + apart_bytes);
    if (e->k->knobs[KNOB_STAGES]) return (int)MAXIMUM(2, MINIMUM(e->k->knobs[KNOB_STAGES], most));
    return (int)MAXIMUM(3, MINIMUM(ring_bytes / stage_bytes, MOST_STAGES));
}

/* Small tiles are about latency: wide steps, unless the operands' own are short, and many of them on their way at once. */
static void take_ring(const survey *e, product *p, int64_t ring_bytes)
{
    p->chunks = p->rows + p->columns <= 128 && !p->is_short ? 8 : 4;
    int64_t stage = (int64_t)(p->rows + p->columns) * p->chunks * 16;
    int64_t apart = dtypes[p->elem].size_bytes == 4 ? 2 * p->chunks * 4 * LINE_APART : 0; /* of operands that lie across k */
    p->stages = ring_stages(e, stage, apart, ring_bytes);
    p->room_bytes = (stage + apart + (p->scaled < 0 ? 0 : p->chunks * 16)) * p->stages;
}

static void matrix_product(const survey *e, int64_t m, int64_t n, product *p)
{
    int64_t rows = power_above(m, 16, 128), columns = power_above(n, 16, 256);
    while (rows * columns > MOST_SUMS * p->threads) *(columns >= rows ? &columns : &rows) /= 2;
    int64_t down = 1, across = 1;
    while (down * across * 64 <= p->threads) {
        bool more_down = down * 32 <= rows, more_across = across * 32 <= columns;
        if (more_down && (rows / down >= columns / across || !more_across))
            down *= 2;
        else if (more_across)
            across *= 2;
        else
            break;
    }
    p->kind = PRODUCT_MATRIX;
    p->rows = (int)rows;
    p->columns = (int)columns;
    p->down = (int)down;
    p->across = (int)across;
    p->sums = (int)(rows * columns / (down * across * 32));
    take_ring(e, p, RING_BYTES);
}

static void fma_product(const survey *e, int64_t m, int64_t n, product *p)
{
    int across = 16, down = p->threads / 16, most = p->elem == DT_F64 ? 64 : 256;
    int64_t rows = power_above(m, down, MAXIMUM(most / 2, down)), columns = power_above(n, across, most);
    int sums = e->spread->machine.arch < 80 ? MOST_FMA_SUMS / 2 : MOST_FMA_SUMS;
    while (rows * columns > sums * p->threads) *(columns > across ? &columns : &rows) /= 2;
    p->kind = PRODUCT_FMA;
    p->rows = (int)rows;
    p->columns = (int)columns;
    p->down = down;
    p->across = across;
    p->sums = (int)(rows * columns / p->threads);
    p->room_bytes = 2 * FMA_STEP * (rows + columns + 8) * (p->elem == DT_F64 ? 8 : 4);
}

static void ring_product(const survey *e, int64_t m, int64_t n, product *p)
{
    int across = p->threads >= 64 ? 16 : 8, down = p->threads / across;
    int64_t rows = power_above(m, MAXIMUM(down, 4), MAXIMUM(128, down)), columns = power_above(n, across, 128);
    while (rows * columns > MOST_RING_SUMS * p->threads) *(columns > across ? &columns : &rows) /= 2;
    p->kind = PRODUCT_RING;
    p->rows = (int)rows;
    p->columns = (int)columns;
    p->down = down;
    p->across = across;
    p->sums = (int)(rows * columns / p->threads);
    take_ring(e, p, RING_BYTES / 2);
}

static bool is_direct(const survey *e, const tile_op *op)
{
    tile_op *load;
    bool swapped;
    return dot_operand_is_direct(e, op->operands[0], &load, &swapped) &&
           dot_operand_is_direct(e, op->operands[1], &load, &swapped);
}

/* Few rows (or columns) by what is read once: eight warps that take turns along k, each with the whole tile. */
static bool thin_product(const survey *e, const tile_op *op, int64_t m, int64_t n, product *p)
{
    int64_t few = power_above(MINIMUM(m, n), 16, 32), many = power_above(MAXIMUM(m, n), 16, 64);
    int threads = e->k->knobs[KNOB_WARPS] * 32;
    if (threads != THIN_THREADS || few < MINIMUM(m, n) || many < MAXIMUM(m, n)) return false;
    if (few * many < threads || few * many > THIN_SUMS || !is_direct(e, op)) return false;
    p->kind = PRODUCT_THIN;
    p->threads = threads;
    p->rows = (int)(m > n ? many : few);
    p->columns = (int)(m > n ? few : many);
    p->sums = (int)(few * many / threads);
    p->stages = few + many <= 32 ? 4 : 2;
    p->room_bytes = few * many * 4 * (threads / 32);
    return true;
}

static int scaled_side(const survey *e, const tile_op *op)
{
    tile_op *load;
    bool swapped;
    for (int side = 0; side < 2; side++)
        if (e->scales[op->operands[side]] && dot_operand_is_direct(e, op->operands[side], &load, &swapped)) return side;
    return -1;
}

bool product_choose(const survey *e, const tile_op *op, int threads, product *out)
{
    const spread *c = e->spread;
    if (c->team.kind != TEAM_BLOCK || threads < 32 || threads % 32) return false;
    tile_type ta = tile_type_of(e->k, op->operands[0]), tb = tile_type_of(e->k, op->operands[1]);
    int64_t m = dimension_bound(e, ta.dims[ta.rank - 2]), n = dimension_bound(e, tb.dims[ta.rank - 1]);
    bool halves = ta.elem == DT_F16 || ta.elem == DT_BF16;
    *out = (product){.elem = ta.elem, .tf32 = e->rounds[op->operands[0]], .threads = threads};
    out->scaled = scaled_side(e, op);
    int64_t depth = ta.dims[ta.rank - 1];
    out->is_short = depth > 0 && depth * dtypes[ta.elem].size_bytes <= SHORT_STEP;
    if (halves && c->machine.arch >= 80 && thin_product(e, op, m, n, out)) return true;
    if (out->tf32 || (halves && c->machine.arch >= 80))
        matrix_product(e, m, n, out);
    else if (ta.elem == DT_F32 && c->machine.arch >= 80)
        ring_product(e, m, n, out);
    else
        fma_product(e, m, n, out);
    return true;
}

void product_room(survey *e, int64_t bytes)
{
    if (!e->dot_room) {
        buffer b = {.elem = DT_U8, .shape = {.elem = DT_U8, .rank = 1, .dims = {bytes}}};
        ARENA_PUSH(e->memory, e->buffers, e->buffer_count, e->buffer_capacity, b);
        e->dot_room = e->buffer_count - 1;
    }
    buffer *room = &e->buffers[e->dot_room];
    room->shape.dims[0] = MAXIMUM(room->shape.dims[0], bytes);
}

/* Is the operand rounded to tf32 before it is turned or cut? */
static bool is_rounded(const survey *e, value v)
{
    const tile_op *op = tile_def(e->k, v);
    while (op && (op->code == OP_PERMUTE || op->code == OP_SELECT))
        op = tile_def(e->k, op->operands[op->code == OP_SELECT ? 1 : 0]);
    return op && op->code == OP_TF32;
}

void product_mark(survey *e, const tile_op *op)
{
    value a = op->operands[0], b = op->operands[1];
    if (e->spread->machine.arch < 80 || e->uses[a] != 1 || e->uses[b] != 1) return;
    if (is_rounded(e, a) && is_rounded(e, b)) e->rounds[a] = e->rounds[b] = true;
    e->scales[a] = scale_find(e, a, 0);
    if (!e->scales[a]) e->scales[b] = scale_find(e, b, 1);
}

/* The product that carried tile `number` of a loop is for alone; NULL: something else is done with it. */
static tile_op *only_product(const survey *e, const tile_op *loop, int number)
{
    const tile_block *body = loop->regions[0];
    value argument = body->args[number + 1], next = body->ops[body->op_count - 1]->operands[number];
    tile_op *op = tile_def(e->k, next);
    if (!op || op->code != OP_DOT || op->operand_count < 3 || op->operands[2] != argument) return NULL;
    if (gather_is_wanted(e, op)) return NULL;
    if (e->uses[argument] != 1 || e->uses[next] != 1 || tile_type_of(e->k, next).rank != 2) return NULL;
    for (int i = 0; i < body->op_count; i++)
        if (body->ops[i] == op) return op;
    return NULL;
}

void product_each_resident(const survey *e, const tile_op *loop, int threads, product_visit *visit, void *context)
{
    int sums = 0;
    for (int r = 0; r < loop->result_count; r++) {
        tile_op *op = only_product(e, loop, r);
        product p;
        if (!op || !product_choose(e, op, threads, &p)) continue;
        tile_type type = tile_type_of(e->k, op->results[0]);
        if (type.dims[0] < 0 || type.dims[1] < 0 || type.dims[0] > p.rows || type.dims[1] > p.columns) continue;
        sums += p.sums;
        if (sums > MOST_SUMS) return;
        visit(context, op->results[0], loop->regions[0]->args[r + 1], tile_type_of(e->k, op->operands[0]).elem);
    }
}

/* ---- products that gather ---- */

static const tile_param *gathered_param(const survey *e, value v)
{
    tile_op *load;
    bool swapped;
    if (!dot_operand_is_direct(e, v, &load, &swapped)) return NULL;
    const tile_param *p = &e->k->params[load->attr.access.array];
    return p->digits ? p : NULL;
}

bool gather_is_wanted(const survey *e, const tile_op *dot)
{
    return gathered_param(e, dot->operands[0]) || gathered_param(e, dot->operands[1]);
}

bool gather_is_on_units(const survey *e, const tile_op *dot)
{
    return e->spread->machine.arch >= 80 && e->rounds[dot->operands[0]];
}

gather_product gather_choose(const survey *e, const tile_op *dot, int threads)
{
    tile_type ta = tile_type_of(e->k, dot->operands[0]), tb = tile_type_of(e->k, dot->operands[1]);
    int64_t m = dimension_bound(e, ta.dims[0]), n = dimension_bound(e, tb.dims[1]);
    int64_t rows = power_above(m, 16, 256), columns = power_above(n, 16, 256), down, across;
    int most = ta.elem == DT_F64 ? 32 : 64;
    while (rows * columns > (int64_t)most * threads) *(columns >= rows ? &columns : &rows) /= 2;
    if (gather_is_on_units(e, dot)) {
        while (rows * columns < (int64_t)threads * 4) columns *= 2; /* a warp has at least 16 x 8 sums */
        down = across = 1;
        while (down * across * 32 < threads) {
            bool fits_down = rows / down >= 32, fits_across = columns / across >= 16;
            *(fits_down && (rows / down >= columns / across || !fits_across) ? &down : &across) *= 2;
        }
    } else {
        down = rows / MINIMUM(ROWS_EACH, rows);
        while (threads / down > columns) down *= 2;
        across = threads / down;
    }
    gather_product p = {.rows = (int)rows, .columns = (int)columns, .down = (int)down, .across = (int)across};
    p.sums = (int)(rows * columns / threads);
    p.room_bytes = 2 * GATHER_STEP * (rows + columns + 16) * (ta.elem == DT_F64 ? 8 : 4);
    return p;
}
