/*
 * Scans down columns in one read and one write. In: a fold, a type, how many columns. Out: a kernel for a GPU in which each
 * program has some rows of some columns in registers, tells others what they fold to, and waits for what came before.
 *
 * Parts are told apart by groups. A program waits for those before it in its group, each of which tells its fold before it
 * waits for anything, and for one number of the group before: the fold of all up to its end, which the group's last program
 * tells. So what is added to what depends on extents alone, and the chain is as short as there are groups. Programs begin in
 * their order, which is why none waits for ever. Bits of a word say who has told: `met`.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/order.h"

#define CHAIN_ROWS 32        /* of columns, that a program has at once */
#define CHAIN_COLUMNS 512    /* a vector a thread */
#define CHAIN_LEFT 128       /* of the rows that are left */
#define CHAIN_GROUP_ROWS 512 /* of the programs of a group: each reads what those before it in its group left */

typedef struct chain {
    arena *memory;
    const char *name, *type, *inside; /* of the function, of elements, of what is computed */
    fold_kind fold;
    int wide, rows; /* columns and rows of a program */
    int group;      /* programs */
} chain;

static const char *combined(const chain *c, const char *a, const char *b)
{
    return order_combined(c->memory, c->fold, c->inside, a, b);
}

/* What changes nothing, to the bit, of results that have `own`, the first element, in them. */
static const char *nothing(const chain *c, const char *own, dtype elem)
{
    if (c->fold != FOLD_SUM && c->fold != FOLD_PROD) return own;
    const char *number = c->fold == FOLD_PROD ? "1" : dtype_is_float(elem) ? "-0.0" : "0";
    return arena_print(c->memory, "like(%s, %s)", own, number);
}

static const char *wait_text(const chain *c, const char *place, const char *bits)
{
    return arena_print(c->memory, "while ((atomic_or(%s, 0) & %s) != %s) {}", place, bits, bits);
}

static const char *row_text(const chain *c, int row)
{
    return arena_print(c->memory, c->type == c->inside ? "w%d" : "f32(w%d)", row);
}

static const char *columns_source(const chain *c, dtype elem)
{
    text t = {0};
    text_print(
        &t,
        "kernel scan_%s(in %s x[A][n][B], out %s y[A][n][B], scratch %s part[A][cdiv(n, %d)][B],\n"
        "    scratch %s upto[A][cdiv(n, %d)][B], scratch i64 met[A][cdiv(n, %d)][cdiv(B, %d)])\n"
        "    launch (cdiv(n, %d), A)\n"
        "{\n"
        "    met[program(1)][program(0)][:] = 0;\n"
        "}\n"
        "then launch (cdiv(B, %d), n / %d, A)\n"
        "{\n"
        "    int c = program(0), t = program(1), a = program(2), b = c * %d, i = t * %d, g = t / %d, k = t %% %d;\n"
        "    assume(i + %d <= n);\n",
        c->name, c->type, c->type, c->inside, c->rows, c->inside, c->rows * c->group, c->rows * c->group, c->wide,
        c->rows * c->group, c->wide, c->rows, c->wide, c->rows, c->group, c->group, c->rows);
    for (int r = 0; r < c->rows; r++)
        text_print(&t, "    tile %s w%d = x[a][i + %d][b : %d];\n", c->type, r, r, c->wide); /* 16 bits stay so */
    /* Two by two: rows are what is kept, and no running sum is needed before the stores. */
    for (int step = 1; step < c->rows; step *= 2)
        for (int r = 0; r < c->rows; r += 2 * step) {
            const char *a = row_text(c, r), *b = row_text(c, r + step);
            if (step > 1) {
                a = arena_print(c->memory, "s%d_%d", step, r);
                b = arena_print(c->memory, "s%d_%d", step, r + step);
            }
            text_print(&t, "    tile %s s%d_%d = %s;\n", c->inside, 2 * step, r, combined(c, a, b));
        }
    const char *last = arena_print(c->memory, "s%d_0", c->rows);
    const char *all_told = arena_print(c->memory, "%lld", 1LL << c->group);
    text_print(&t,
               "    part[a][t][b : %d] = %s;\n"
               "    atomic_or(met[a][g][c], 1 << k);\n"
               "    tile %s u = %s;\n"
               "    if (k > 0) {\n"
               "        int before = (1 << k) - 1;\n"
               "        %s\n"
               "        u = part[a][t - k][b : %d];\n"
               "        for (int q = t - k + 1; q < t - 1; q += 2) { /* two on their way at once */\n"
               "            tile %s one = part[a][q][b : %d], other = part[a][q + 1][b : %d];\n"
               "            u = %s;\n"
               "        }\n"
               "        if (k %% 2 == 0) u = %s;\n"
               "    }\n"
               "    if (g > 0) {\n"
               "        %s\n"
               "        tile %s f = upto[a][g - 1][b : %d];\n"
               "        u = %s;\n"
               "    }\n"
               "    if (k == %d || i + %d > n) {\n"
               "        upto[a][g][b : %d] = %s;\n"
               "        atomic_or(met[a][g][c], %s);\n"
               "    }\n",
               c->wide, last, c->inside, nothing(c, row_text(c, 0), elem), wait_text(c, "met[a][g][c]", "before"),
               c->wide, c->inside, c->wide, c->wide, combined(c, combined(c, "u", "one"), "other"),
               combined(c, "u", arena_print(c->memory, "part[a][t - 1][b : %d]", c->wide)),
               wait_text(c, "met[a][g - 1][c]", all_told), c->inside, c->wide, combined(c, "f", "u"), c->group - 1,
               2 * c->rows, c->wide, combined(c, "u", last), all_told);
    text_print(&t, "    tile %s v0 = %s;\n", c->inside, row_text(c, 0));
    for (int r = 1; r < c->rows; r++)
        text_print(&t, "    tile %s v%d = %s;\n", c->inside, r,
                   combined(c, arena_print(c->memory, "v%d", r - 1), row_text(c, r)));
    for (int r = 0; r < c->rows; r++)
        text_print(&t, "    y[a][i + %d][b : %d] = %s;\n", r, c->wide,
                   combined(c, "u", arena_print(c->memory, "v%d", r)));
    text_print(&t,
               "}\n"
               "then launch (min(n %% %d, 1) * cdiv(B, %d), A)\n"
               "{\n"
               "    int a = program(1), b = program(0) * %d, first = n / %d * %d;\n"
               "    tile %s v = upto[a][(first - 1) / %d][b : %d];\n"
               "    for (int i = first; i < n; i++) {\n"
               "        v = %s;\n"
               "        y[a][i][b : %d] = v;\n"
               "    }\n"
               "}\n",
               c->rows, CHAIN_LEFT, CHAIN_LEFT, c->rows, c->rows, c->inside, c->rows * c->group, CHAIN_LEFT,
               combined(c, "v", arena_print(c->memory, "%s(x[a][i][b : %d])", c->inside, CHAIN_LEFT)), CHAIN_LEFT);
    const char *source = arena_print(c->memory, "%s", text_get(&t));
    text_free(&t);
    return source;
}

static void mark(tile_kernel *k, tile_block *b, tile_op *op, void *context)
{
    (void)k, (void)b, (void)context;
    if (op->code == OP_ATOMIC) op->flags |= F_ORDERED;
}

tile_kernel *fuse_scan_chain(arena *memory, const char *function, fold_kind fold, dtype elem, int64_t columns)
{
    const char *type = dtypes[elem].text;
    bool narrow =
        dtype_is_narrow(elem); /* its vectors are of twice as many columns: half the rows fill the registers */
    chain c = {.memory = memory, .name = function, .type = type, .inside = narrow ? "f32" : type, .fold = fold};
    c.wide = narrow ? 2 * CHAIN_COLUMNS : CHAIN_COLUMNS;
    c.rows = narrow ? CHAIN_ROWS / 2 : CHAIN_ROWS;
    c.group = CHAIN_GROUP_ROWS / c.rows;
    while (c.wide > CHAIN_LEFT && c.wide / 2 >= columns) c.wide /= 2;
    tile_kernel *k = fuse_from_source(memory, arena_print(memory, "scan_%s", function), columns_source(&c, elem));
    for (int i = 0; i < k->phase_count; i++) tile_walk(k, k->phases[i], mark, NULL);
    return k;
}

/* ---- few long rows ---- */

/* What changes nothing of results that it is folded into, as text. */
static const char *identity_text(fold_kind fold, dtype elem)
{
    bool real = dtype_is_float(elem), most = fold == FOLD_MAX;
    if (fold == FOLD_SUM || fold == FOLD_PROD) return fold == FOLD_SUM ? "0" : "1";
    if (real) return most ? "-inf" : "inf";
    if (elem == DT_U32) return most ? "0" : "4294967295";
    return most ? "-2147483648" : "2147483647";
}

/* As above, along rows: a program has a piece of a row. A word has what a piece folds to and a bit that says so, which needs no order
 * of other accesses. Group g of a row has 64 of them: the fold of all before it, then one a piece. Pieces of all rows take turns, so
 * that rows are chained side by side. */
static const char long_source[] =
    "kernel scan_%s(in %s x[A][B][n], out %s y[A][B][n], scratch i64 told[A * B][cdiv(n, %d) * 64 + 64])\n"
    "    launch (A * B)\n"
    "{\n"
    "    told[program(0)][:] = 0;\n"
    "}\n"
    "then launch (A * B, cdiv(n, %d))\n"
    "{\n"
    "    int r = program(0), t = program(1), g = t / 63, k = t %% 63;\n"
    "    tile %s w = %s(%s(x[r / B][r %% B][t * %d : %d])); /* the one tile that is held */\n"
    "    %s all = %s(%s(where(iota(%d) == %d, w, %s)));\n"
    "    atomic_exchange(told[r][g * 64 + 1 + k], (1 << 32) | i64(bitcast(u32, all)));\n"
    "    if (t > 0) {\n"
    "        tile bool mine = iota(64) <= k && (iota(64) > 0 || g > 0);\n"
    "        tile i64 words = atomic_or(told[r][g * 64 : 64], 0);\n"
    "        while (any(mine && (words >> 32) == 0)) words = atomic_or(told[r][g * 64 : 64], 0);\n"
    "        %s before = %s(%s(where(mine, bitcast(%s, u32(words & 4294967295)), %s)));\n"
    "        if (k == 62) atomic_exchange(told[r][g * 64 + 64], (1 << 32) | i64(bitcast(u32, %s)));\n"
    "        y[r / B][r %% B][t * %d : %d] = %s;\n"
    "    } else {\n"
    "        y[r / B][r %% B][0 : %d] = w;\n"
    "    }\n"
    "}\n";

tile_kernel *fuse_scan_long(arena *memory, const char *function, fold_kind fold, dtype elem, int piece)
{
    bool narrow = dtype_is_narrow(elem);
    const char *type = dtypes[elem].text, *inside = narrow ? "f32" : type, *name = fold_names[fold];
    const char *none = arena_print(memory, "%s(%s)", inside, identity_text(fold, narrow ? DT_F32 : elem));
    const char *source = arena_print(memory, long_source, function, type, type, 63 * piece, piece, inside, function,
                                     inside, piece, piece, inside, inside, name, piece, piece - 1, none, inside, inside,
                                     name, inside, none, order_combined(memory, fold, inside, "before", "all"), piece,
                                     piece, order_combined(memory, fold, inside, "before", "w"), piece);
    tile_kernel *k = fuse_from_source(memory, arena_print(memory, "scan_%s", function), source);
    k->knobs[KNOB_BLOCKS] = 2; /* one loads or stores while the other waits */
    return k;
}
