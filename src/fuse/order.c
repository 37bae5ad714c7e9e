/*
 * Scans and sorting along an axis. In: a node and where its input lies. Out: a kernel.
 *
 * A scan along the last axis is one program a row; along another one a program carries a block of columns down the axis;
 * few long rows are shared out by blocks, few columns by a GPU's programs that are chained (order_chain.c).
 * Sorting ranks blocks by counting (who comes before me?), then merges runs of doubled length, each element finding its
 * new place by bisection in the other run: stable, and n log^2 n comparisons in log n phases of full width. Keys travel
 * with their positions in scratch arrays; the last phase writes the positions alone.
 * NaN comes after all numbers going up, before them going down.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/cost.h"
#include "fuse/order.h"
#include "fuse/sizes.h"

#define SORT_BLOCK 64
#define SORT_BLOCK_GPU ((int)FUSE_SIZE(256))
#define LARGEST_STEPS 15 /* a kernel has at most 16 phases */
#define LARGEST_BLOCK (1 << 24)
#define COLUMNS 64
#define COLUMNS_GPU ((int)FUSE_SIZE(128))
#define SCAN_BLOCK ((int)FUSE_SIZE(4096))
#define LONG_ROW 65536
#define LONG_ROW_GPU FUSE_SIZE(8192)
#define LONG_CHAIN FUSE_SIZE(1 << 17) /* elements of a row from which on pieces of it are chained on a GPU */
#define FEW_ROWS 64
#define BLOCK_ROW FUSE_SIZE(16384) /* the registers of a GPU's block hold it, with another block beside it */
#define BLOCK_STEP ((int)FUSE_SIZE(8192))
#define SCAN_AT_ONCE 16    /* rows of columns whose loads are on their way together */
#define SCAN_PROGRAMS 7    /* of columns, of each multiprocessor: below, they are chained */
#define SCAN_CHAIN 128     /* rows from which on they are */
#define SCAN_TILE_BYTES 32 /* of a row of a program that holds all rows at once: what memory hands out at a time */
#define SCAN_TILE_ROWS 512
#define SCAN_TILES 4        /* such programs, of each multiprocessor, that run at once */
#define SCAN_TRIP_NS 600    /* a load that others wait for */
#define SCAN_TILE_TRIP 1024 /* elements that a block loads before it waits */
#define SCAN_CHAIN_ROWS 32  /* of one program of a chain; the rest is a launch of its own, row after row */
#define SCAN_LANES_NS 60    /* 32 rows, added up by the lanes of a warp */

/* A view [before][axis][after] as [before][after][axis]. */
static fuse_argument axis_last(fuse_argument a)
{
    int64_t extent = a.extents[1], stride = a.strides[1];
    a.extents[1] = a.extents[2];
    a.strides[1] = a.strides[2];
    a.extents[2] = extent;
    a.strides[2] = stride;
    return a;
}

/* ---- scan ---- */

static const char *const scan_functions[FOLD_COUNT] = {
    [FOLD_SUM] = "cumsum", [FOLD_PROD] = "cumprod", [FOLD_MAX] = "cummax", [FOLD_MIN] = "cummin"};

static const char scan_rows_source[] = "kernel scan_%s(in %s x[A][B][n], out %s y[A][B][n]) launch (B, A)\n"
                                       "{\n"
                                       "    int b = program(0), a = program(1);\n"
                                       "    tile %s v = %s(x[a][b][:]);\n"
                                       "    y[a][b][:] = %s(v);\n"
                                       "}\n";

/* Rows that no block holds: block after block, each behind what came before. */
static const char scan_blocks_source[] =
    "kernel scan_%s(in %s x[A][B][n], out %s y[A][B][n]) launch (min(n, 1) * B, A)\n"
    "{\n"
    "    int b = program(0), a = program(1);\n"
    "    tile %s first = %s(x[a][b][0 : %d]);\n"
    "    y[a][b][0 : %d] = %s(first);\n"
    "    %s w = %s(first);\n"
    "    for (int p = %d; p < n; p += %d) {\n"
    "        tile %s some = %s(x[a][b][p : %d]);\n"
    "        tile %s v = %s(some);\n"
    "        y[a][b][p : %d] = %s;\n"
    "        %s all = %s(some);\n"
    "        w = %s;\n"
    "    }\n"
    "}\n";

/* How rows of columns are scanned: several at a time, so that their loads are on their way together. */
typedef struct column_scan {
    arena *memory;
    const char *name, *type, *inside; /* of the function, of elements, of what is computed */
    fold_kind fold;
    int block, rows; /* columns of a program; rows at a time */
} column_scan;

const char *order_combined(arena *memory, fold_kind fold, const char *inside, const char *a, const char *b)
{
    static const char *const words[FOLD_COUNT] = {[FOLD_SUM] = "%s(%s + %s)",
                                                  [FOLD_PROD] = "%s(%s * %s)",
                                                  [FOLD_MAX] = "%s(max(%s, %s))",
                                                  [FOLD_MIN] = "%s(min(%s, %s))"};
    return arena_print(memory, words[fold], inside, a, b); /* integers wrap */
}

/* v goes on with rows 1 .. n, and is written after each. */
static void put_rows(text *t, const column_scan *c)
{
    for (int count = c->rows; count; count = count > 1 ? 1 : 0) {
        if (count > 1)
            text_print(t, "    for (int i = 1; i < n - %d; i += %d) {\n", count - 1, count);
        else if (c->rows > 1)
            text_print(t, "    for (int i = 1 + max(n - 1, 0) / %d * %d; i < n; i++) {\n", c->rows, c->rows);
        else
            text_add(t, "    for (int i = 1; i < n; i++) {\n");
        for (int k = 0; k < count; k++)
            text_print(t, "        tile %s w%d = %s(x[a][i + %d][b : %d]);\n", c->inside, k, c->inside, k, c->block);
        for (int k = 0; k < count; k++)
            text_print(t, "        tile %s v%d = %s;\n", c->inside, k,
                       order_combined(c->memory, c->fold, c->inside, k ? arena_print(c->memory, "v%d", k - 1) : "v",
                                      arena_print(c->memory, "w%d", k)));
        for (int k = 0; k < count; k++) text_print(t, "        y[a][i + %d][b : %d] = v%d;\n", k, c->block, k);
        text_print(t, "        v = v%d;\n    }\n", count - 1);
    }
}

/* The first row is the start: no identity is needed, and what is scanned stays as it is to the bit. */
static const char *scan_columns_source(const column_scan *c)
{
    text t = {0};
    text_print(&t,
               "kernel scan_%s(in %s x[A][n][B], out %s y[A][n][B]) launch (min(n, 1) * cdiv(B, %d), A)\n"
               "{\n"
               "    int b = program(0) * %d, a = program(1);\n"
               "    tile %s v = %s(x[a][0][b : %d]);\n"
               "    y[a][0][b : %d] = v;\n",
               c->name, c->type, c->type, c->block, c->block, c->inside, c->inside, c->block, c->block);
    put_rows(&t, c);
    text_add(&t, "}\n");
    const char *source = arena_print(c->memory, "%s", text_get(&t));
    text_free(&t);
    return source;
}

/* All rows of a few columns at once, scanned by the lanes of warps. */
static const char scan_tile_source[] =
    "kernel scan_%s(in %s x[A][n][B], out %s y[A][n][B]) launch (min(n, 1) * cdiv(B, %d), A)\n"
    "{\n"
    "    int b = program(0) * %d, a = program(1);\n"
    "    tile %s v = %s(x[a][0 : %d][b : %d]);\n"
    "    y[a][0 : %d][b : %d] = %s(v, axis = 0);\n"
    "}\n";

/* Rows of such a program, a power of two; 0: columns go down in steps, or are chained. Few columns
 * leave a GPU idle while it waits for launches and for one row after another: that is what is estimated. */
static int scan_tile_rows(const fuse_options *options, const fuse_argument *to, int wide, bool chained)
{
    int64_t n = to->extents[1], programs = to->extents[0] * ((to->extents[2] + wide - 1) / wide);
    if (!options->gpu || n > SCAN_TILE_ROWS || programs > (int64_t)SCAN_TILES * MAXIMUM(options->units, 1)) return 0;
    int rows = 32, launches = chained ? 2 + (n % SCAN_CHAIN_ROWS != 0) : 1;
    while (rows < n) rows *= 2;
    int64_t in_steps = (n - 1) / SCAN_AT_ONCE + (n - 1) % SCAN_AT_ONCE, in_chain = 2 + n % SCAN_CHAIN_ROWS;
    double steps_ns = (double)(1 + (chained ? in_chain : in_steps)) * SCAN_TRIP_NS;
    double tile_ns = (double)((int64_t)rows * wide / SCAN_TILE_TRIP + 1) * SCAN_TRIP_NS + rows / 32.0 * SCAN_LANES_NS;
    /* Programs that share a multiprocessor share what it loads, too. */
    tile_ns *= (double)((programs + options->units - 1) / MAXIMUM(options->units, 1));
    double others_ns = cost_of_bytes(options, 0, 0, launches).time_ns + steps_ns;
    return cost_of_bytes(options, 0, 0, 1).time_ns + tile_ns < others_ns ? rows : 0;
}

/* Few long rows: sums of blocks, their scan, and each block again behind what comes before it. */
static const char scan_long_source[] =
    "kernel scan_%s(in %s x[A][B][n], out %s y[A][B][n], scratch %s part[A * B][cdiv(n, %d)])\n"
    "    launch (cdiv(n, %d), A * B)\n"
    "{\n"
    "    int p = program(0), r = program(1);\n"
    "    part[r][p] = %s(%s(%s(x[r / B][r %% B][p * %d : %d])));\n"
    "}\n"
    "then launch (A * B)\n"
    "{\n"
    "    part[program(0)][:] = %s(part[program(0)][:]);\n"
    "}\n"
    "then launch (cdiv(n, %d), A * B)\n"
    "{\n"
    "    int p = program(0), r = program(1);\n"
    "    tile %s v = %s(%s(x[r / B][r %% B][p * %d : %d]));\n"
    "    if (p > 0) {\n"
    "        %s w = part[r][p - 1];\n"
    "        v = %s;\n"
    "    }\n"
    "    y[r / B][r %% B][p * %d : %d] = v;\n"
    "}\n";

bool fuse_scan_kernel(arena *memory, const graph *g, node n, const fuse_view *input, const fuse_options *options,
                      fuse_kernel *out)
{
    const graph_node *of = graph_get(g, n);
    fuse_argument from, to;
    fuse_view mine = fuse_view_row_major(g, n);
    CHECK(scan_functions[of->attr.fold]);
    if (!fuse_view_middle(g, of->inputs[0], input, of->attr.axis, 1, &from) ||
        !fuse_view_middle(g, n, &mine, of->attr.axis, 1, &to))
        return false;
    const char *name = scan_functions[of->attr.fold], *type = dtypes[of->elem].text;
    const char *inside = dtype_is_narrow(of->elem) ? "f32" : type;
    bool few = to.extents[0] * to.extents[2] <= FEW_ROWS && to.extents[1] >= (options->gpu ? LONG_ROW_GPU : LONG_ROW);
    bool rows = few || to.extents[2] == 1;
    *out = fuse_kernel_of(memory, g, n, name, 2);
    out->arguments[0] = rows ? axis_last(from) : from;
    out->arguments[1] = rows ? axis_last(to) : to;
    static const char *const steps[FOLD_COUNT] = {
        [FOLD_SUM] = "v + w", [FOLD_PROD] = "v * w", [FOLD_MAX] = "max(v, w)", [FOLD_MIN] = "min(v, w)"};
    static const char *const carries[FOLD_COUNT] = {
        [FOLD_SUM] = "w + all", [FOLD_PROD] = "w * all", [FOLD_MAX] = "max(w, all)", [FOLD_MIN] = "min(w, all)"};
    const char *step = arena_print(memory, "%s(%s)", inside, steps[of->attr.fold]), *source; /* integers wrap */
    int block = options->gpu ? COLUMNS_GPU : COLUMNS, part = SCAN_BLOCK;
    int64_t programs = to.extents[0] * ((to.extents[2] + block - 1) / block);
    bool chained = options->gpu && !rows && programs < (int64_t)SCAN_PROGRAMS * MAXIMUM(options->units, 1) &&
                   to.extents[1] >= SCAN_CHAIN;
    column_scan columns = {memory, name, type, inside, of->attr.fold, block, options->gpu ? SCAN_AT_ONCE : 1};
    int wide = SCAN_TILE_BYTES / dtypes[of->elem].size_bytes;
    int tile = rows ? 0 : scan_tile_rows(options, &to, wide, chained);
    if (tile) {
        source = arena_print(memory, scan_tile_source, name, type, type, wide, wide, inside, inside, tile, wide, tile,
                             wide, name);
        out->kernel = fuse_from_source(memory, arena_print(memory, "scan_%s", name), source);
        return true;
    }
    if (chained) {
        out->kernel = fuse_scan_chain(memory, name, of->attr.fold, of->elem, to.extents[2]);
        return true;
    }
    bool word = dtype_is_narrow(of->elem) || dtypes[of->elem].size_bytes == 4;
    if (few && options->gpu && word && to.extents[1] >= LONG_CHAIN) {
        out->kernel = fuse_scan_long(memory, name, of->attr.fold, of->elem, BLOCK_ROW);
        return true;
    }
    if (!rows)
        source = scan_columns_source(&columns);
    else if (few)
        source = arena_print(memory, scan_long_source, name, type, type, inside, part, part, inside,
                             fold_names[of->attr.fold], inside, part, part, name, part, inside, name, inside, part,
                             part, inside, step, part, part);
    else if (options->gpu && to.extents[1] > BLOCK_ROW)
        source = arena_print(memory, scan_blocks_source, name, type, type, inside, inside, BLOCK_STEP, BLOCK_STEP, name,
                             inside, fold_names[of->attr.fold], BLOCK_STEP, BLOCK_STEP, inside, inside, BLOCK_STEP,
                             inside, name, BLOCK_STEP, step, inside, fold_names[of->attr.fold],
                             arena_print(memory, "%s(%s)", inside, carries[of->attr.fold]));
    else
        source = arena_print(memory, scan_rows_source, name, type, type, inside, inside, name);
    out->kernel = fuse_from_source(memory, arena_print(memory, "scan_%s", name), source);
    return true;
}

/* ---- sort ---- */

/* Does a come before b, ties aside? */
static const char *before(arena *memory, dtype elem, bool descending, const char *a, const char *b)
{
    if (descending) {
        const char *swap = a;
        a = b;
        b = swap;
    }
    if (elem == DT_BOOL) return arena_print(memory, "(!%s && %s)", a, b);
    if (!dtype_is_float(elem)) return arena_print(memory, "%s < %s", a, b);
    return arena_print(memory, "(%s < %s || (isnan(%s) && !isnan(%s)))", a, b, b, a);
}

static void rank_phase(text *t, arena *memory, dtype elem, bool descending, int block, bool last)
{
    text_print(t,
               "{\n"
               "    int s = program(0) * %d, r = program(1), a = r / B, b = r %% B;\n"
               "    tile %s v = x[a][b][s : %d];\n"
               "    tile int p = iota(%d);\n"
               "    tile bool less = %s;\n"
               "    tile bool more = %s;\n"
               "    tile int rank = sum(where(less || (!more && p[:][] < p[][:]), 1, 0), axis = 0);\n"
               "    tile int to = like(v, 0);\n"
               "    to = s + rank[0][:];\n",
               block, dtypes[elem].text, block, block, before(memory, elem, descending, "v[:][]", "v[][:]"),
               before(memory, elem, descending, "v[][:]", "v[:][]"));
    if (last)
        text_add(t, "    y[a][b][to] = s + p;\n}\n");
    else
        text_add(t, "    key0[r][to] = v;\n    place0[r][to] = s + p;\n}\n");
}

static void merge_phase(text *t, arena *memory, dtype elem, bool descending, int block, int step, bool last)
{
    int64_t run = (int64_t)block << step;
    int from = step & 1;
    text_print(t,
               "then launch (cdiv(n, %d), A * B)\n"
               "{\n"
               "    int s = program(0) * %d, r = program(1), pair = s / %lld * %lld;\n"
               "    int middle = min(pair + %lld, n), end = min(pair + %lld, n);\n"
               "    bool left = s < pair + %lld;\n"
               "    int other = left ? middle : pair, own = left ? pair : middle;\n"
               "    tile %s v = key%d[r][s : %d];\n"
               "    tile int low = like(v, other), high = like(v, left ? end : middle);\n"
               "    for (int i = 0; i <= %d; i++) {\n"
               "        tile int half = (low + high) / 2;\n"
               "        tile %s w = key%d[r][keep(half, low < high)];\n"
               "        tile bool passes = left ? %s : !(%s);\n"
               "        low = where(passes, half + 1, low);\n"
               "        high = where(passes, high, half);\n"
               "    }\n"
               "    tile int to = pair + (s + iota(%d) - own) + (low - other);\n",
               block, block, 2LL * run, 2LL * run, (long long)run, 2LL * run, (long long)run, dtypes[elem].text, from,
               block, __builtin_ctzll((unsigned long long)run), dtypes[elem].text, from,
               before(memory, elem, descending, "w", "v"), before(memory, elem, descending, "v", "w"), block);
    if (last)
        text_print(t, "    y[r / B][r %% B][to] = place%d[r][s : %d];\n}\n", from, block);
    else
        text_print(t, "    key%d[r][to] = v;\n    place%d[r][to] = place%d[r][s : %d];\n}\n", !from, !from, from,
                   block);
}

bool fuse_argsort_kernel(arena *memory, const graph *g, node n, const fuse_view *input, const fuse_options *options,
                         fuse_kernel *out)
{
    const graph_node *of = graph_get(g, n);
    fuse_argument from, to;
    fuse_view mine = fuse_view_row_major(g, n);
    if (!fuse_view_middle(g, of->inputs[0], input, of->attr.axis, 1, &from) ||
        !fuse_view_middle(g, n, &mine, of->attr.axis, 1, &to))
        return false;
    dtype elem = graph_get(g, of->inputs[0])->elem;
    int block = options->gpu ? SORT_BLOCK_GPU : SORT_BLOCK, steps = 0;
    while (block < LARGEST_BLOCK && (int64_t)block << LARGEST_STEPS < to.extents[1]) block *= 2;
    if ((int64_t)block << LARGEST_STEPS < to.extents[1]) return false; /* no machine has the memory */
    while ((int64_t)block << steps < to.extents[1]) steps++;
    *out = fuse_kernel_of(memory, g, n, "argsort", 2);
    out->arguments[0] = axis_last(from);
    out->arguments[1] = axis_last(to);
    text t = {0};
    const char *type = dtypes[elem].text;
    text_print(&t, "kernel argsort(in %s x[A][B][n], out i64 y[A][B][n]", type);
    for (int side = 0; side < MINIMUM(steps, 2); side++)
        text_print(&t, ", scratch %s key%d[A * B][n], scratch i64 place%d[A * B][n]", type, side, side);
    text_print(&t, ") launch (cdiv(n, %d), A * B)\n", block);
    rank_phase(&t, memory, elem, of->attr.index, block, !steps);
    for (int step = 0; step < steps; step++)
        merge_phase(&t, memory, elem, of->attr.index, block, step, step == steps - 1);
    out->kernel = fuse_from_source(memory, "argsort", text_get(&t));
    text_free(&t);
    return true;
}
