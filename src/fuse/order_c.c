/*
 * Order on a CPU by kernels written in C. In: an ARGSORT, its first k positions, or additions by index to single numbers.
 * Out: other nodes around a call of such a kernel.
 *
 * Rows are sorted by the digits of their keys, 8 bits a pass, the lowest first; a digit that all of a row share takes no
 * pass, so indices of a small table take one. The bits of a key rise with its value; NaN is above all, -0 is 0. The first k
 * of a row are kept in order, and what comes is compared with the last of them. Numbers are added in the order they come
 * in, in parts that depend on the sizes alone; the parts are added up like any array. All threads take rows or parts.
 * SPDX-License-Identifier: MIT
 */
#include "fuse/order.h"
#include "ir/graph_build.h"

enum {
    SHORT_ROW = 32,
    MOST_KEPT = 64,
    FEWEST_ADDED = 4,       /* of them a number of the base each, or fewer */
    PROGRAM_NUMBERS = 8192, /* that a thread takes at once */
    MOST_PARTS = 16
};

/* KEY, DIGITS and key_of come before. */
static const char keys_text[] = "#include <stdlib.h>\n"
                                "#include <string.h>\n"
                                "typedef unsigned %s KEY;\n"
                                "static inline KEY key_of(%s v)\n"
                                "{\n"
                                "    KEY bits;\n"
                                "%s"
                                "    return %sbits;\n"
                                "}\n";
static const char float_key[] =
    "    if (v == 0) v = 0;\n"
    "    memcpy(&bits, &v, sizeof(bits));\n"
    "    bits = bits >> (8 * sizeof(KEY) - 1) ? ~bits : bits | (KEY)1 << (8 * sizeof(KEY) - 1);\n"
    "    if (v != v) bits = ~(KEY)0;\n";
static const char signed_key[] = "    bits = (KEY)v ^ (KEY)1 << (8 * sizeof(KEY) - 1);\n";
static const char unsigned_key[] = "    bits = (KEY)v;\n";

static const char sort_source[] =
    "c sort_rows(in %s x[rows][n], out i64 y[rows][n]) launch (cdiv(rows, %d))\n"
    "\"\"\"\n"
    "%s"
    "typedef struct item { KEY key; unsigned at; } item;\n"
    "static void insert_all(const %s *x, long *y, long n)\n"
    "{\n"
    "    for (long i = 0; i < n; i++) y[i] = i;\n"
    "    for (long step = n > %d ? n / 2 : 1; step; step /= 2) /* long ones from afar first */\n"
    "        for (long i = step; i < n; i++) {\n"
    "            const long at = y[i];\n"
    "            const KEY key = key_of(x[at]);\n"
    "            long j = i;\n"
    "            for (; j >= step; y[j] = y[j - step], j -= step) {\n"
    "                const KEY before = key_of(x[y[j - step]]);\n"
    "                if (before < key || (before == key && y[j - step] < at)) break;\n"
    "            }\n"
    "            y[j] = at;\n"
    "        }\n"
    "}\n"
    "static void sort_row(const %s *x, long *y, long n, item *a, item *b)\n"
    "{\n"
    "    static const int digits = sizeof(KEY);\n"
    "    unsigned counts[sizeof(KEY)][256];\n"
    "    memset(counts, 0, sizeof(counts));\n"
    "    for (long i = 0; i < n; i++) {\n"
    "        const KEY key = key_of(x[i]);\n"
    "        a[i] = (item){key, (unsigned)i};\n"
    "        for (int d = 0; d < digits; d++) counts[d][key >> 8 * d & 255]++;\n"
    "    }\n"
    "    for (int d = 0; d < digits; d++) {\n"
    "        if (counts[d][a[0].key >> 8 * d & 255] == (unsigned long)n) continue;\n"
    "        unsigned sum = 0;\n"
    "        for (int i = 0; i < 256; i++) {\n"
    "            const unsigned count = counts[d][i];\n"
    "            counts[d][i] = sum;\n"
    "            sum += count;\n"
    "        }\n"
    "        for (long i = 0; i < n; i++) b[counts[d][a[i].key >> 8 * d & 255]++] = a[i];\n"
    "        item *other = a;\n"
    "        a = b;\n"
    "        b = other;\n"
    "    }\n"
    "    for (long i = 0; i < n; i++) y[i] = a[i].at;\n"
    "}\n"
    "void sort_rows(const %s *x, long *y, long rows, long n, long program)\n"
    "{\n"
    "    item *room = n > %d ? malloc(2 * (unsigned long)n * sizeof(item)) : 0;\n"
    "    for (long r = program * %d; r < rows && r < (program + 1) * %d; r++)\n"
    "        if (room)\n"
    "            sort_row(x + r * n, y + r * n, n, room, room + n);\n"
    "        else /* short, or no memory */\n"
    "            insert_all(x + r * n, y + r * n, n);\n"
    "    free(room);\n"
    "}\n"
    "\"\"\"\n";

static const char select_source[] =
    "c select_rows(in %s x[rows][n], out i64 y[rows][k]) launch (cdiv(rows, %d))\n"
    "\"\"\"\n"
    "%s"
    "void select_rows(const %s *x, long *y, long rows, long n, long k, long program)\n"
    "{\n"
    "    const long first = program * %d, last = first + %d < rows ? first + %d : rows;\n"
    "    x += first * n, y += first * k;\n"
    "    for (long r = first; r < last; r++, x += n, y += k) {\n"
    "        KEY best[%d], worst = ~(KEY)0;\n"
    "        long count = 0;\n"
    "        for (long i = 0; i < n; i++) {\n"
    "            const KEY key = key_of(x[i]);\n"
    "            if (count == k && key >= worst) continue;\n"
    "            long j = count < k ? count++ : k - 1;\n"
    "            for (; j > 0 && best[j - 1] > key; j--) best[j] = best[j - 1], y[j] = y[j - 1];\n"
    "            best[j] = key;\n"
    "            y[j] = i;\n"
    "            worst = best[count - 1];\n"
    "        }\n"
    "    }\n"
    "}\n"
    "\"\"\"\n";

/* Each program has places of its own; how many there are depends on the sizes alone, and so do the sums. */
static const char add_source[] =
    "c add_numbers(in i64 index[n], in %s updates[n], out %s y[parts][V]) launch (parts)\n"
    "\"\"\"\n"
    "void add_numbers(const long *index, const %s *updates, %s *y, long n, long parts, long V, long program)\n"
    "{\n"
    "    const long each = (n + parts - 1) / parts, first = program * each, last = first + each < n ? first + each : "
    "n;\n"
    "    y += program * V;\n"
    "    for (long i = 0; i < V; i++) y[i] = 0;\n"
    "    for (long i = first; i < last; i++)\n"
    "        if ((unsigned long)index[i] < (unsigned long)V) y[index[i]] += updates[i];\n"
    "}\n"
    "\"\"\"\n";

static const char *c_type(dtype elem)
{
    return elem == DT_F32   ? "float"
           : elem == DT_F64 ? "double"
           : elem == DT_I32 ? "int"
           : elem == DT_U32 ? "unsigned"
           : elem == DT_U64 ? "unsigned long"
                            : "long";
}

/* The axis last and all others as one, of a type that has keys of 32 or 64 bits. */
typedef struct rows_of {
    node x;
    dtype wide;
    shape turned;
    int back[GRAPH_RANK];
    const char *keys;
} rows_of;

static bool begin(graph *g, node x, int axis, bool descending, rows_of *s)
{
    const shape whole = graph_get(g, x)->shape;
    dtype elem = graph_get(g, x)->elem;
    int64_t length = whole.extents[axis], count = shape_count(&whole);
    if (count < 2 || length < 2 || length > INT32_MAX) return false;
    x = fuse_axis_last(g, x, axis, s->back);
    s->turned = graph_get(g, x)->shape;
    bool halves = dtype_is_narrow(elem), small = dtypes[elem].size_bytes < 4 && !halves;
    s->wide = halves ? DT_F32 : small ? DT_I32 : elem;
    s->x = graph_convert(g, graph_reshape(g, x, &(shape){2, {count / length, length}}), s->wide);
    s->keys = arena_print(g->memory, keys_text, dtypes[s->wide].size_bytes == 8 ? "long" : "int", c_type(s->wide),
                          dtype_is_float(s->wide)                  ? float_key
                          : s->wide == DT_I32 || s->wide == DT_I64 ? signed_key
                                                                   : unsigned_key,
                          descending ? "~" : "");
    return true;
}

static node finish(graph *g, const rows_of *s, node positions, int64_t count)
{
    shape turned = s->turned;
    turned.extents[turned.rank - 1] = count;
    return graph_permute(g, graph_reshape(g, positions, &turned), s->back);
}

/* Rows of one program: enough work to be handed to a thread. */
static int rows_at_once(int64_t length)
{
    return (int)MAXIMUM(PROGRAM_NUMBERS / length, 1);
}

node fuse_sort_c(graph *g, node n)
{
    const graph_node of = *graph_get(g, n);
    rows_of s;
    if (!begin(g, of.inputs[0], of.attr.axis, of.attr.index, &s)) return n;
    const shape rows = graph_get(g, s.x)->shape;
    const char *type = c_type(s.wide);
    int each = rows_at_once(rows.extents[1]);
    const char *source = arena_print(g->memory, sort_source, dtypes[s.wide].text, each, s.keys, type, SHORT_ROW, type,
                                     type, SHORT_ROW, each, each);
    return finish(g, &s, fuse_source_call(g, "sort_rows", source, DT_I64, &rows, &s.x, 1), rows.extents[1]);
}

node fuse_select_c(graph *g, node x, int axis, bool descending, int64_t count)
{
    rows_of s;
    int64_t length = graph_get(g, x)->shape.extents[axis];
    if (count < 1 || count > MOST_KEPT || length <= 2 * count || !begin(g, x, axis, descending, &s)) return 0;
    int64_t rows = graph_get(g, s.x)->shape.extents[0];
    int each = rows_at_once(length);
    const char *source = arena_print(g->memory, select_source, dtypes[s.wide].text, each, s.keys, c_type(s.wide), each,
                                     each, each, MOST_KEPT);
    return finish(g, &s, fuse_source_call(g, "select_rows", source, DT_I64, &(shape){2, {rows, count}}, &s.x, 1),
                  count);
}

node fuse_add_c(graph *g, const graph_node *n)
{
    int64_t bins = n->shape.extents[n->attr.axis], count = shape_count(&graph_get(g, n->inputs[1])->shape);
    bool numbers = n->elem == DT_F32 || n->elem == DT_F64 || n->elem == DT_I32 || n->elem == DT_I64;
    if (!numbers || shape_count(&n->shape) != bins || shape_count(&graph_get(g, n->inputs[2])->shape) != count ||
        !count || bins > FEWEST_ADDED * count)
        return 0;
    const shape line = {1, {count}}, all = {1, {bins}};
    int64_t parts = MAXIMUM(MINIMUM(MINIMUM(count / (4 * bins), count / PROGRAM_NUMBERS), MOST_PARTS), 1);
    node inputs[2] = {graph_convert(g, graph_reshape(g, n->inputs[1], &line), DT_I64),
                      graph_reshape(g, n->inputs[2], &line)};
    const char *text = dtypes[n->elem].text, *type = c_type(n->elem);
    const char *source = arena_print(g->memory, add_source, text, text, type, type);
    node sums = fuse_source_call(g, "add_numbers", source, n->elem, &(shape){2, {parts, bins}}, inputs, 2);
    sums = parts > 1 ? graph_reduce(g, FOLD_SUM, sums, 1) : sums;
    sums = graph_reshape(g, sums, &all);
    return graph_reshape(g, graph_binary(g, OP_ADD, graph_reshape(g, n->inputs[0], &all), sums), &n->shape);
}
