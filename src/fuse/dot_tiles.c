/*
 * How large the tiles of a product are, and which products are none. In: a product's sizes. Out: a tile, or other nodes.
 *
 * A CPU wants tiles that fill its second cache; narrow products have fewer columns to share out among threads, so their
 * tiles are smaller. A GPU wants as many programs as it has multiprocessors before it wants large tiles.
 * A product with one row, one column or one step of depth is arithmetic: it becomes multiplications and a sum, which
 * fuse like any others.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/dot.h"
#include "fuse/order.h"
#include "target/target.h"
#include "fuse/sizes.h"

#define MANY_ROWS FUSE_SIZE(4096)
#define SOME_ROWS FUSE_SIZE(512)
#define MANY_PRODUCTS 16
#define CPU_STEP 256
#define FEW_THREADS 4
#define GPU_FOLD_STEP 128
#define GPU_PROGRAMS_EACH 2     /* of a split product, for each multiprocessor */
#define GPU_PART FUSE_SIZE(512) /* the shortest part of a split K */
#define CPU_PART 4096
#define TALL_BLOCKS 3 /* of a narrow product with many rows: while some wait for theirs others multiply ... */
#define FEW_STEPS 64  /* ... where each takes so few steps of depth */
#define GPU_DEEP FUSE_SIZE(8192)     /* from here on parts of K fill the device, however large the tiles are */
#define FED_LEAST FUSE_SIZE(1 << 24) /* multiplications: below, launches are what counts, and small tiles share them */
#define FED_ROWS 32 /* with fewer rows or columns most of a fed tile is empty: it is reading that counts */
#define FED_THIN FUSE_SIZE(1 << 21) /* elements of the operands of such a product */
#define THIN_ROWS 16                /* at 32 along k it took 35 us on an H200, bulk copies 30 at 16 */
#define THIN_DEPTH 256              /* steps of k for eight warps */
#define THIN_ALONG \
    16 /* lines of the long side in a tile, where they lie along k: more tiles than units have room for */
#define THIN_ACROSS 32          /* ... and where they do not: 64 bytes of each step */
#define THIN_UNITS 3            /* quarters of the units that are to have a tile */
#define FED_ALONE_STAGES 12     /* of a small tile that has its multiprocessor for itself: it is reading that counts */
#define FED_ALONE_SPEED 1.1     /* ... and how much faster it is with them than beside another one */
#define FED_RATE 3000           /* multiplications a ns of a multiprocessor, 16 bits */
#define FED_TILE_NS 1200        /* of a program beside its products: the first copies, the results */
#define BEHIND_RATE 85          /* instructions a ns of four warps: of 218 that a multiprocessor could do at once */
#define FED_PART FUSE_SIZE(256) /* the shortest part of a split K */
#define JOIN_NS 3000            /* of the launch that joins parts */
#define JOIN_RATE 2500          /* bytes a ns that it moves */
#define COPY_LEAST FUSE_SIZE(1 << 29) /* multiplications of a product that is worth copies of its operands */
#define COPY_DEPTH 128                /* a shorter product takes no less: its results count */
#define COPY_USES 192 /* of each element of a copied operand of tf32: to copy it takes as long as so many save */
#define COPY_WIDTH 48 /* rows * columns / (rows + columns): how often each operand is read again */
#define GATHER_LEAST FUSE_SIZE(1 << 26) /* multiplications of a product that is gathered for the matrix units */
#define GATHER_ROWS FUSE_SIZE(24)
#define GATHER_DEPTH 16
#define GATHER_ROOM (192 << 10)        /* bytes of shared memory that two steps may have */
#define TERMS_LEAST FUSE_SIZE(1 << 25) /* multiplications of a product whose operands are split */
#define TERMS_NS 2500                  /* of a launch that splits an operand */
#define TAKEN_SPEED 0.77               /* of a product whose operands are split as they are read */
#define MEMORY_RATE 4000               /* bytes a ns */
#define LONG_ROW FUSE_SIZE(1 << 16)    /* numbers of a vector that many rows are multiplied with ... */
#define MOST_PIECE FUSE_SIZE(8192)     /* ... and of a piece of it */
#define PIECE_STEP FUSE_SIZE(8)
#define PIECE_ROWS FUSE_SIZE(64)

/* The power of two that holds n, within bounds. */
static int tile_for(int64_t n, int least, int most)
{
    while (least < n && least < most) least *= 2;
    return least;
}

static int64_t count_tiles(const dot_sizes *size, int rows, int columns)
{
    return size->products * ((size->rows + rows - 1) / rows) * ((size->columns + columns - 1) / columns);
}

static dot_tiles thin_tiles(dtype elem, const dot_sizes *size)
{
    bool down =
        size->rows > size->columns; /* the rows are the many, and a tile has more of them: the product knows by that */
    return (dot_tiles){.rows = down ? MAXIMUM(size->thin, 2 * THIN_ROWS) : THIN_ROWS,
                       .columns = down ? THIN_ROWS : size->thin,
                       .depth = 128 / dtypes[elem].size_bytes,
                       .warps = 8,
                       .fold_depth = GPU_FOLD_STEP,
                       .parts = 1,
                       .blocks = 2};
}

static dot_tiles gpu_tiles(dtype elem, const dot_sizes *size)
{
    int step = 128 / dtypes[elem].size_bytes, fold = GPU_FOLD_STEP;
    bool halves = elem == DT_F16 || elem == DT_BF16;
    if (size->depth >= GPU_DEEP)
        return (dot_tiles){tile_for(size->rows, 32, 128),
                           tile_for(size->columns, 32, halves ? 256 : 128),
                           step,
                           0,
                           fold,
                           0,
                           0,
                           false,
                           0};
    if (size->columns > 1024 && size->rows <= FED_ROWS)
        return (dot_tiles){tile_for(size->rows, 16, FED_ROWS), 128, step, 4, fold, 0, 0, false, 0};
    if (size->columns > 1024) return (dot_tiles){128, halves ? 256 : 128, step, 0, fold, 0, 0, false, 0};
    if (size->rows > MANY_ROWS) {
        dot_tiles tall = {
            size->columns > 64 ? 128 : 64, tile_for(size->columns, 16, 128), step, 0, fold, 0, 0, false, 0};
        if (size->columns <= FED_ROWS && size->depth <= FEW_STEPS) tall.blocks = TALL_BLOCKS;
        if (tall.blocks && size->depth <= step / 2)
            tall.depth = step / 2, tall.stages = 2, tall.blocks = TALL_BLOCKS + 1;
        return tall;
    }
    if (size->products >= MANY_PRODUCTS) /* they fill the device however large their tiles are */
        return (dot_tiles){
            tile_for(size->rows, 16, 64), tile_for(size->columns, 16, 128), step, 4, fold, 0, 0, false, 0};
    if (size->rows > SOME_ROWS || size->depth > 1024)
        return (dot_tiles){
            tile_for(size->rows, 32, 64), tile_for(size->columns, 16, 64), step, 4, fold, 0, 0, false, 0};
    return (dot_tiles){32, size->columns <= 256 ? 16 : 32, step, 4, fold, 0, 0, false, 0};
}

static double work_of(const dot_sizes *size)
{
    return (double)size->rows * (double)size->columns * (double)size->depth * (double)size->products;
}

static double operands_of(const dot_sizes *size)
{
    return ((double)size->rows + (double)size->columns) * (double)size->depth * (double)size->products;
}

/* Most of a fed tile is empty. */
static bool is_thin(const dot_sizes *size)
{
    return size->rows <= FED_ROWS || size->columns <= FED_ROWS;
}

/* A tile of a fed product. speed: of the largest one's; measured on an H200 at 1024 to 4096 cubed. */
typedef struct fed_tile {
    int rows, columns;
    double speed;
    bool turns; /* one group of warps multiplies while the other one stores */
} fed_tile;

/* One group of warps multiplies, no other block is there, and shared memory has many steps of its tile. */
static bool is_alone(const dot_sizes *size, int64_t units, const fed_tile *t, int64_t parts)
{
    return !size->terms && t->rows == 64 && count_tiles(size, t->rows, t->columns) * parts <= units;
}

/* ns of what follows a tile's product, before the next one of the block begins: the work of one group's warps, or two groups', which
 * wait for themselves. Beside the products of another block or group it costs only what is longer than they are. */
static double behind_time(const dot_sizes *size, const fed_tile *t, double product, bool alone)
{
    bool two = t->turns || (t->rows == 64 && t->columns <= 128 && !alone);
    int groups = t->turns || t->rows == 64 ? 1 : 2;
    double time = (double)(t->rows * t->columns) * size->behind / (BEHIND_RATE * groups);
    return !two ? time : MAXIMUM(time - product, 0) / 2;
}

/* ns of a fed product: rounds of programs on all units, and joining the parts of K. */
static double fed_time(const dot_sizes *size, int64_t units, const fed_tile *t, int64_t parts)
{
    double rate = FED_RATE * t->speed * size->line / DOT_HALVES_LINE / dot_term_products(size->terms);
    if (size->taken) rate *= TAKEN_SPEED;
    if (is_alone(size, units, t, parts)) rate *= FED_ALONE_SPEED;
    int64_t step = size->line, count = count_tiles(size, t->rows, t->columns);
    int64_t rounds = (count * parts + units - 1) / units, depth = (size->depth + parts - 1) / parts;
    double each = (double)(t->rows * t->columns) * (double)((depth + step - 1) / step * step) / rate;
    if (parts == 1) each += behind_time(size, t, each, is_alone(size, units, t, parts));
    double multiply = (double)rounds * each + (double)(t->turns ? 2 : rounds) * FED_TILE_NS;
    double join = (double)(size->rows * size->columns * size->products) * (double)(parts + 1) * 4 / JOIN_RATE;
    int bytes = size->taken ? 4 : size->terms ? 2 * size->terms : 128 / size->line;
    double read = size->windows ? 0 : operands_of(size) * bytes / MEMORY_RATE; /* windows share their elements */
    int64_t busy = MINIMUM(units, count * parts); /* half of them can read as fast as all */
    read *= MAXIMUM(1, 0.5 * (double)units / (double)busy);
    return MAXIMUM(multiply, read) + MINIMUM(multiply, read) / 8 + (parts > 1 ? JOIN_NS + join : 0);
}

int dot_fed_candidates(const fuse_options *options, const dot_sizes *size, dot_candidate *out)
{
    static const fed_tile tiles[DOT_CANDIDATES] = {
        {128, 256, 1, false},   {128, 128, 0.95, false}, {128, 128, 0.92, true}, {128, 64, 0.65, false},
        {64, 128, 0.62, false}, {64, 256, 0.75, false},  {64, 64, 0.45, false}};
    int64_t units = MAXIMUM(options->units, 1);
    int count = 0;
    for (int i = 0; i < COUNT(tiles); i++) {
        const fed_tile *t = &tiles[i];
        bool many =
            size->terms || size->taken; /* three terms of each do not fit twice, nor registers of those who read */
        if (many && (t->turns || t->rows + t->columns > 256)) continue;
        dot_candidate *best = &out[count++];
        *best = (dot_candidate){0};
        for (int64_t parts = 1; parts == 1 || (!t->turns && parts <= units && size->depth / parts >= FED_PART);
             parts += MAXIMUM(parts / 8, 1)) {
            double time = fed_time(size, units, t, parts);
            if (best->tiles.rows && time >= best->time_ns) continue;
            int stages = is_alone(size, units, t, parts) ? FED_ALONE_STAGES : 0;
            best->time_ns = time;
            best->tiles = (dot_tiles){t->rows, t->columns, size->line, 0, GPU_FOLD_STEP, parts, stages, t->turns, 0};
        }
    }
    return count;
}

/* Fed by bulk copies: the tile, and the parts of K, that end first, by how fast a multiprocessor is with them. */
static dot_candidate fed_best(const fuse_options *options, const dot_sizes *size)
{
    dot_candidate all[DOT_CANDIDATES];
    int count = dot_fed_candidates(options, size, all), best = 0;
    if (options->tile > 0 && options->tile <= count) return all[options->tile - 1];
    for (int i = 1; i < count; i++)
        if (all[i].time_ns < all[best].time_ns) best = i;
    return all[best];
}

/* A product of f32 is no less accurate as products of the terms that its operands are split into. */
static bool wants_terms(const fuse_options *options, dtype elem, product_way way, const dot_sizes *size)
{
    bool can = options->gpu && options->arch == TARGET_HOPPER && elem == DT_F32 && size->rows > FED_ROWS &&
               size->columns > FED_ROWS;
    if (!can || way == PRODUCT_TERMS) return can;
    return way == PRODUCT_ANY && work_of(size) >= TERMS_LEAST;
}

/* Operands are split as they are read unless so many tiles read each element that it is worth to do that once before. (H200:
 * 4096 cubed 1282 us, split before 1087; 128 x 8192 x 8192 187 and 337; 512 x 4096 x 4096 172 and 181.) */
static bool is_taken(const fuse_options *options, const dot_sizes *size)
{
    dot_sizes before = *size, read = *size;
    before.taken = false;
    read.taken = true;
    double split = 2 * TERMS_NS + operands_of(size) * (4 + 6) / MEMORY_RATE;
    return fed_best(options, &read).time_ns < split + fed_best(options, &before).time_ns;
}

const char *dot_why_not_fed(const fuse_options *options, dtype elem, const dot_sizes *size)
{
    if (size->fed) return NULL;
    if (size->thin) return "few rows or columns: the rest is read once, straight into registers";
    if (!options->gpu) return "a CPU: its tiles fill the second cache";
    if (options->arch != TARGET_HOPPER) return "bulk copies and their matrix units are of sm_90";
    if (elem == DT_F32 && size->rows > FED_ROWS && size->columns > FED_ROWS && work_of(size) < TERMS_LEAST)
        return "of f32, and too few multiplications to split its operands into terms";
    if (!dtype_is_narrow(elem) && elem != DT_F32) return "no matrix unit of bulk copies takes its type";
    if (is_thin(size)) return "few rows or columns, and little to read";
    if (work_of(size) < FED_LEAST) return "too few multiplications: launches are what counts";
    return "what its operands lie like, or what follows it, speaks against it";
}

void dot_choose_way(const fuse_options *options, dtype elem, product_way way, dot_sizes *size)
{
    bool hopper = options->gpu && options->arch == TARGET_HOPPER;
    size->terms = wants_terms(options, elem, way, size) ? DOT_TERMS : 0;
    size->line = size->terms ? DOT_HALVES_LINE : 128 / dtypes[elem].size_bytes;
    size->taken = size->terms && is_taken(options, size);
    size->tf32 = options->gpu && elem == DT_F32 && way == PRODUCT_TF32;
    bool worth = is_thin(size) ? operands_of(size) >= FED_THIN : work_of(size) >= FED_LEAST;
    size->fed = size->terms || (hopper && (dtype_is_narrow(elem) || size->tf32) && worth);
}

void dot_choose_gathered_way(const fuse_options *options, dtype elem, product_way way, dot_sizes *size)
{
    bool halves = elem == DT_F16 || elem == DT_BF16;
    bool can = options->gpu && options->arch == TARGET_HOPPER && (halves || elem == DT_F32);
    bool large = MINIMUM(size->rows, size->columns) >= GATHER_ROWS && size->depth >= GATHER_DEPTH &&
                 work_of(size) >= GATHER_LEAST;
    size->fed = can && (way == PRODUCT_TERMS || (large && (halves || way == PRODUCT_ANY || way == PRODUCT_TF32)));
    size->tf32 = options->gpu && elem == DT_F32 && way == PRODUCT_TF32;
    size->terms = !size->fed || halves || size->tf32 ? 0 : DOT_TERMS;
    size->line = size->terms ? DOT_HALVES_LINE : 128 / dtypes[elem].size_bytes;
}

bool dot_take_thin(const fuse_options *options, dtype elem, bool along, dot_sizes *size)
{
    bool halves = elem == DT_F16 || elem == DT_BF16;
    bool few = MINIMUM(size->rows, size->columns) <= THIN_ROWS;
    if (!halves || !few || size->depth < THIN_DEPTH || operands_of(size) < FED_THIN) return false;
    size->thin = along ? THIN_ALONG : THIN_ACROSS;
    dot_tiles t = thin_tiles(elem, size);
    if (count_tiles(size, t.rows, t.columns) < options->units * THIN_UNITS / 4) size->thin = 0;
    if (size->thin) size->fed = false;
    return size->thin;
}

bool dot_is_worth_copies(const dot_sizes *size, const bool copies[2])
{
    if (dot_takes_rows_of_k(size) && copies[0] && size->columns < COPY_USES) return false;
    if (dot_takes_rows_of_k(size) && copies[1] && size->rows < COPY_USES) return false;
    double all = (double)size->rows * (double)size->columns;
    double work = all * (double)MAXIMUM(size->depth, COPY_DEPTH) * (double)size->products;
    return work >= COPY_LEAST && all >= COPY_WIDTH * ((double)size->rows + (double)size->columns);
}

/* The matrix units take tf32 along k alone. What lies otherwise and is not worth a copy is turned as it is read; what has its elements
 * side by side neither along k nor along the tile goes as two terms of bf16: 16 bits, more than the 11 of tf32. */
bool dot_is_worth_rough_terms(const fuse_options *options, const dot_sizes *size)
{
    return size->tf32 && wants_terms(options, DT_F32, PRODUCT_ANY, size);
}

void dot_take_rough_terms(dot_sizes *size)
{
    size->terms = DOT_ROUGH_TERMS;
    size->line = DOT_HALVES_LINE;
    size->fed = size->taken = true;
}

dot_tiles dot_choose_tiles(const fuse_options *options, dtype elem, const dot_sizes *size)
{
    if (size->fed) return fed_best(options, size).tiles;
    if (size->thin) return thin_tiles(elem, size);
    if (options->gpu) return gpu_tiles(elem, size);
    bool many = options->units > FEW_THREADS;
    if (size->columns <= 512)
        return (dot_tiles){64, many || size->columns <= 64 ? 64 : 128, CPU_STEP, 0, CPU_STEP, 0, 0, false, 0};
    if (size->columns <= 1024 && many) return (dot_tiles){64, 128, CPU_STEP, 0, CPU_STEP, 0, 0, false, 0};
    return (dot_tiles){128, 256, CPU_STEP, 0, CPU_STEP, 0, 0, false, 0};
}

/* Cycles of a step of 64 k. Gathering costs so many a line, and what the products read of shared memory comes on top:
 * both use the same paths. (H200: 45 a line at 128 x 128 in terms, 33 at 64 x 128, 28 at 256 x 128 of bf16.) Elements that
 * are copied as they lie cost next to nothing, and the products' own speed counts. Then what is stored. */
static dot_tiles gather_fed_tiles(const fuse_options *options, const dot_sizes *size)
{
    static const int sides[] = {256, 128, 64};
    dot_tiles best = {0};
    double least = 0;
    int64_t units = MAXIMUM(options->units, 1);
    bool right = size->rows <= size->columns; /* right: the right operand is gathered */
    for (int i = 0; i < COUNT(sides) * COUNT(sides); i++) {
        int rows = sides[i / COUNT(sides)], columns = sides[i % COUNT(sides)], gathered = right ? columns : rows;
        int groups = rows == 64 ? 1 : 2, sums = rows * columns / (groups * 128) * (size->terms == DOT_TERMS ? 2 : 1);
        int stage_bytes = (rows + columns) * 128 * MAXIMUM(size->terms, 1);
        if (sums > 128 || gathered > 128 || 2 * stage_bytes > GATHER_ROOM) continue;
        double speed = rows >= 128 && columns >= 128 ? 0.95 : rows * columns == 64 * 64 ? 0.45 : 0.65;
        double multiply = rows * columns * 64.0 * dot_term_products(size->terms) * DOT_HALVES_LINE / size->line / 2048;
        double fill = gathered * (size->terms ? 27 : 20);
        double steps = (double)((size->depth + 63) / 64);
        double step = size->by_chunk ? multiply / speed : 0.75 * multiply + fill;
        double each = steps * step + 0.12 * rows * columns + 1500;
        int64_t count = size->products * ((size->rows + rows - 1) / rows) * ((size->columns + columns - 1) / columns);
        double time = (double)((count + units - 1) / units) * each;
        if (best.rows && time >= least) continue;
        least = time;
        best = (dot_tiles){rows, columns, size->line, 0, GPU_FOLD_STEP, 0, 0, false, 0};
    }
    return best;
}

static int64_t count_programs(const dot_tiles *tiles, const dot_sizes *size)
{
    return count_tiles(size, tiles->rows, tiles->columns);
}

/* A gathered element costs some additions and comparisons, and serves as many sums as the tile has on the other side:
 * few rows get many columns and the other way round, about 64 sums a thread. Fewer columns where that leaves units idle.
 */
dot_tiles dot_choose_gathered_tiles(const fuse_options *options, const dot_sizes *size)
{
    if (!options->gpu) { /* all rows of a strip, so that each window is packed once */
        dot_tiles c = {
            tile_for(size->rows, 16, 256), tile_for(size->columns, 64, 512), CPU_STEP, 0, CPU_STEP, 0, 0, false, 0};
        while (c.columns > 64 && (c.rows * c.columns > 256 * 256 || count_programs(&c, size) < 2 * options->units))
            c.columns /= 2;
        return c;
    }
    if (size->fed && size->windows) return fed_best(options, size).tiles;
    if (size->fed) return gather_fed_tiles(options, size);
    dot_tiles t = {
        tile_for(size->rows, 16, 128), tile_for(size->columns, 16, 128), 32, 8, GPU_FOLD_STEP, 0, 0, false, 0};
    if (t.rows < 128 && size->columns >= 2 * MANY_ROWS) t.columns = 256;
    if (t.columns < 128 && size->rows >= 2 * MANY_ROWS) t.rows = 256;
    while (t.rows * t.columns > 64 * 64 && count_programs(&t, size) < options->units)
        *(t.columns >= t.rows ? &t.columns : &t.rows) /= 2;
    t.warps = t.rows * t.columns >= 128 * 128 ? 8 : t.rows * t.columns >= 32 * 64 ? 4 : 2;
    return t;
}

/* As many parts as let all units work, each deep enough that joining them is little beside it. */
int64_t dot_choose_parts(const fuse_options *options, const dot_tiles *tiles, const dot_sizes *size)
{
    if (tiles->parts) return tiles->parts;
    int64_t programs = count_programs(tiles, size);
    int64_t wanted = (int64_t)MAXIMUM(options->units, 1) * (options->gpu ? GPU_PROGRAMS_EACH : 1);
    int64_t parts = MINIMUM(wanted / MAXIMUM(programs, 1), size->depth / (options->gpu ? GPU_PART : CPU_PART));
    return MAXIMUM(parts, 1);
}

/* ---- products of rounded operands ---- */

/* The operand before it was rounded, moved as it was; 0: it is not rounded. */
static node before_rounding(graph *g, node n)
{
    const graph_node x = *graph_get(g, n);
    if (x.code == GRAPH_MAP && x.attr.map == OP_TF32) return x.inputs[0];
    if (graph_ops[x.code].class != GRAPH_CLASS_MOVE || x.input_count != 1 || x.code == GRAPH_PAD) return 0;
    node from = before_rounding(g, x.inputs[0]);
    return from ? graph_again(g, n, &from) : 0;
}

node fuse_dot_round(graph *g, node n)
{
    const graph_node dot = *graph_get(g, n);
    if (dot.attr.index == PRODUCT_TF32 || graph_get(g, dot.inputs[0])->elem != DT_F32) return n;
    node left = before_rounding(g, dot.inputs[0]), right = left ? before_rounding(g, dot.inputs[1]) : 0;
    return right ? graph_dot(g, left, right, dot.elem, PRODUCT_TF32) : n;
}

/* ---- thin products ---- */

static node as_type(graph *g, node x, dtype elem)
{
    return graph_convert(g, x, elem);
}

/* The last two axes exchanged. */
static node turn(graph *g, node x)
{
    int axes[GRAPH_RANK], rank = graph_get(g, x)->shape.rank;
    for (int k = 0; k < rank; k++) axes[k] = k;
    axes[rank - 2] = rank - 1;
    axes[rank - 1] = rank - 2;
    return graph_permute(g, x, axes);
}

static bool is_turned(const graph *g, node n)
{
    const graph_node *x = graph_get(g, n);
    int rank = x->shape.rank;
    return x->code == GRAPH_PERMUTE && x->attr.axes[rank - 1] == rank - 2 && x->attr.axes[rank - 2] == rank - 1;
}

/* A row that no first cache holds would come from the second one again for every row of the matrix, as many bytes as the
 * matrix itself: a piece of it by all rows, then the next piece. 0: it is short, or has no such pieces. */
static node add_rows_in_pieces(graph *g, node matrix, node row)
{
    const shape all = graph_get(g, matrix)->shape;
    int64_t rows = all.extents[0], depth = all.extents[1], piece = 0;
    if (all.rank != 2 || depth < LONG_ROW || rows < PIECE_ROWS) return 0;
    for (int64_t each = MOST_PIECE; !piece && each >= MOST_PIECE / 4; each -= PIECE_STEP)
        if (depth % each == 0) piece = each;
    if (!piece) return 0;
    shape cut = {.rank = 3, .extents = {rows, depth / piece, piece}},
          line = {.rank = 3, .extents = {depth / piece, 1, piece}};
    node x = graph_permute(g, graph_reshape(g, matrix, &cut), (int[]){1, 0, 2});
    const shape turned = graph_get(g, x)->shape;
    x = graph_binary(g, OP_MUL, x, graph_expand(g, graph_reshape(g, row, &line), &turned));
    x = graph_reduce(g, FOLD_SUM, graph_reduce(g, FOLD_SUM, x, 1u << 2), 1u << 0);
    return graph_reshape(g, x, &(shape){.rank = 2, .extents = {rows, 1}});
}

/* Rows of a matrix by one row: [M][K] * [1][K]. */
static node add_rows(graph *g, node matrix, node row, bool gpu)
{
    const shape all = graph_get(g, matrix)->shape;
    node pieces = gpu ? add_rows_in_pieces(g, matrix, row) : 0;
    if (pieces) return pieces;
    node x = graph_binary(g, OP_MUL, matrix, graph_expand(g, row, &all));
    return graph_reduce(g, FOLD_SUM, x, 1u << (all.rank - 1));
}

/* Columns of a matrix by one column: [K][N] * [K][1]. */
static node add_columns(graph *g, node matrix, node column)
{
    const shape all = graph_get(g, matrix)->shape;
    node x = graph_binary(g, OP_MUL, graph_expand(g, column, &all), matrix);
    return graph_reduce(g, FOLD_SUM, x, 1u << (all.rank - 2));
}

/* A matrix that was turned is taken as it lies: rows where it has rows. */
node fuse_dot_prepare(graph *g, node n, const fuse_options *options)
{
    const graph_node of = *graph_get(g, n);
    if (of.code != GRAPH_DOT) return n;
    int rank = of.shape.rank, m = rank - 2, c = rank - 1;
    CHECK(m >= 0);
    node left = of.inputs[0], right = of.inputs[1];
    int64_t depth = graph_get(g, left)->shape.extents[c];
    if (of.shape.extents[m] != 1 && of.shape.extents[c] != 1 && depth > 1) return n;
    if (!depth) return graph_full(g, of.elem, &of.shape, (number){0});
    if (of.shape.extents[m] == 1 && of.shape.extents[c] > 1 && depth > 1 && !is_turned(g, right)) {
        /* down the columns of a large matrix: the copy engine reads them faster than a fold */
        dot_sizes size = {.rows = 1, .columns = of.shape.extents[c], .depth = depth, .products = 1};
        dot_choose_way(options, graph_get(g, left)->elem, PRODUCT_ANY, &size);
        if (rank == 2 && size.fed) return n;
    }
    graph_site site = g->site;
    const char *label = g->label;
    g->site = of.site;
    g->label = of.label ? of.label : "dot";
    dtype from = graph_get(g, left)->elem;
    dtype sum = from == DT_F64 ? DT_F64 : from == DT_I8 || from == DT_U8 ? DT_I32 : DT_F32;
    left = as_type(g, left, sum);
    right = as_type(g, right, sum);
    node made;
    if (depth == 1)
        made = graph_binary(g, OP_MUL, graph_expand(g, left, &of.shape), graph_expand(g, right, &of.shape));
    else if (of.shape.extents[c] == 1)
        made = is_turned(g, of.inputs[0]) ? turn(g, add_columns(g, turn(g, left), right))
                                          : add_rows(g, left, turn(g, right), options->gpu);
    else
        made = is_turned(g, of.inputs[1]) ? turn(g, add_rows(g, turn(g, right), left, options->gpu))
                                          : add_columns(g, right, turn(g, left));
    made = as_type(g, made, of.elem);
    g->site = site;
    g->label = label;
    return made;
}
