/*
 * Text to the tensor graph. In: the form of docs/tensor-graph.md, from anyone. Out: nodes, or an error that names the
 * line. A line is read whole and then built by the functions that everybody builds with, so a graph that was read obeys
 * every rule of shapes and types; the type that the line names must be the one that came out.
 * A leaf's storage is its number as a pointer. A kernel has a name and the types of its outputs, and nothing to run.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph.h"
#include "ir/scan.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
    scanner scan;
    graph *g;
    node *nodes; /* by number in the text */
    int number_limit;
} reader;

/* One line, while it is read. */
typedef struct line {
    int number; /* of the node it defines */
    int line;
    graph_code code;
    op_code map;
    fold_kind fold;
    bool word;     /* "descending", "tf32" stood there */
    int64_t index; /* what stood before the inputs */
    int64_t axis, size, stride, dilation, offset;
    int64_t lists[2][GRAPH_RANK]; /* strides; order, axes; start and step */
    int list_counts[2];
    token constant;
    const char *name;
    node *inputs;
    int input_count, input_capacity;
    dtype elem[16]; /* of the result; of a kernel's outputs */
    shape shape[16];
    int type_count;
    graph_site site;
    const char *label;
} line;

static bool read_input(reader *r, node *n)
{
    const token *t = &r->scan.token;
    if (t->kind != TOKEN_VALUE)
        return scan_fail(&r->scan, "expected a node such as %%3, found %s", scan_describe(&r->scan));
    if (t->integer >= r->number_limit || !r->nodes[t->integer])
        return scan_fail(&r->scan, "%s is not defined above", scan_describe(&r->scan));
    *n = r->nodes[t->integer];
    return scan_next(&r->scan);
}

static bool read_inputs(reader *r, line *l)
{
    if (r->scan.token.kind != TOKEN_VALUE) return !r->scan.failed;
    do {
        node n;
        if (!read_input(r, &n)) return false;
        ARENA_PUSH(r->g->memory, l->inputs, l->input_count, l->input_capacity, n);
    } while (scan_accept(&r->scan, ","));
    return !r->scan.failed;
}

static bool read_far(reader *r, int64_t *out)
{
    return scan_integer(&r->scan, -LARGEST_EXTENT, LARGEST_EXTENT, out);
}

/* "word (1, 0, 2)" */
static bool read_list(reader *r, line *l, int which, const char *word)
{
    int *count = &l->list_counts[which];
    if (!scan_expect(&r->scan, word) || !scan_expect(&r->scan, "(")) return false;
    while (!scan_is(&r->scan, ")")) {
        if (*count == GRAPH_RANK) return scan_fail(&r->scan, "more than %d axes", GRAPH_RANK);
        if (!read_far(r, &l->lists[which][(*count)++])) return false;
        if (!scan_accept(&r->scan, ",")) break;
    }
    return scan_expect(&r->scan, ")");
}

static bool read_named(reader *r, const char *word, int64_t *out)
{
    return scan_expect(&r->scan, word) && read_far(r, out);
}

static bool read_axis(reader *r, line *l)
{
    return scan_expect(&r->scan, "axis") && scan_integer(&r->scan, -1, GRAPH_RANK, &l->axis);
}

static bool read_op_name(reader *r, line *l)
{
    for (int i = 1; i < GRAPH_CODE_COUNT; i++)
        if (i != GRAPH_MAP && scan_is(&r->scan, graph_ops[i].text)) l->code = (graph_code)i;
    for (int i = 1; i < OP_COUNT && !l->code; i++) {
        bool elementwise = ops[i].class >= CLASS_UNARY && ops[i].class <= CLASS_TERNARY;
        if (!elementwise || !scan_is(&r->scan, ops[i].text)) continue;
        l->code = GRAPH_MAP;
        l->map = (op_code)i;
    }
    if (!l->code) return scan_fail(&r->scan, "%s is no op of a graph", scan_describe(&r->scan));
    return scan_next(&r->scan);
}

static bool read_before(reader *r, line *l)
{
    scanner *s = &r->scan;
    int fold = 0;
    switch (l->code) {
    case GRAPH_LEAF:
        if (!scan_integer(s, 1, INT32_MAX, &l->index)) return false;
        if (scan_is(s, "strides") && !read_list(r, l, 0, "strides")) return false;
        return !scan_is(s, "offset") || read_named(r, "offset", &l->offset);
    case GRAPH_FULL: return scan_constant_token(s, &l->constant);
    case GRAPH_RESULT: return scan_integer(s, 0, 15, &l->index);
    case GRAPH_REDUCE:
    case GRAPH_SCAN:
        if (!scan_word(s, fold_names, FOLD_COUNT, "a fold such as sum", &fold)) return false;
        l->fold = (fold_kind)fold;
        return true;
    case GRAPH_ARGSORT: l->word = scan_accept(s, "descending"); return !s->failed;
    case GRAPH_DOT:
        for (int way = 1; way < PRODUCT_WAYS; way++)
            if (scan_accept(s, product_way_words[way])) l->index = way;
        return !s->failed;
    case GRAPH_KERNEL:
        if (s->token.kind != TOKEN_STRING) return scan_fail(s, "expected the kernel's name in quotes");
        l->name = scan_unquote(s, r->g->memory);
        return l->name && scan_next(s);
    case GRAPH_MAP:
    case GRAPH_DETACH:
    case GRAPH_KEEP:
    case GRAPH_AGAIN: return s->token.kind != TOKEN_NUMBER || scan_integer(s, 0, INT32_MAX, &l->index);
    default: return true;
    }
}

static bool read_after(reader *r, line *l)
{
    switch (l->code) {
    case GRAPH_PERMUTE: return read_list(r, l, 0, "order");
    case GRAPH_REDUCE: return read_list(r, l, 0, "axes");
    case GRAPH_SLICE: return read_list(r, l, 0, "start") && read_list(r, l, 1, "step");
    case GRAPH_PAD:
        return read_list(r, l, 0, "start") && read_list(r, l, 1, "step") && scan_expect(&r->scan, "fill") &&
               scan_constant_token(&r->scan, &l->constant);
    case GRAPH_WINDOW:
        return read_axis(r, l) && read_named(r, "size", &l->size) && read_named(r, "stride", &l->stride) &&
               read_named(r, "dilation", &l->dilation);
    case GRAPH_CONCAT:
    case GRAPH_SCAN:
    case GRAPH_ARGSORT:
    case GRAPH_TAKE:
    case GRAPH_GATHER:
    case GRAPH_GATHER_ADD: return read_axis(r, l);
    case GRAPH_TAKE_ADD:
        if (!read_axis(r, l)) return false;
        l->index = scan_accept(&r->scan, "firsts");
        return true;
    default: return true;
    }
}

static bool read_type(reader *r, line *l)
{
    if (l->type_count == COUNT(l->shape)) return scan_fail(&r->scan, "more than 16 outputs");
    shape *s = &l->shape[l->type_count];
    if (!scan_elem(&r->scan, &l->elem[l->type_count++])) return false;
    if (!scan_accept(&r->scan, "[")) return !r->scan.failed;
    do {
        if (s->rank == GRAPH_RANK) return scan_fail(&r->scan, "more than %d axes", GRAPH_RANK);
        if (!scan_integer(&r->scan, 0, LARGEST_EXTENT, &s->extents[s->rank++])) return false;
    } while (scan_accept(&r->scan, ","));
    return scan_expect(&r->scan, "]");
}

/* "; softmax train.c:12" to the end of the line, each part optional; then the line must end. */
static bool read_site(reader *r, line *l)
{
    scanner *s = &r->scan;
    if (scan_is(s, ";")) {
        const char *from = s->next, *to = from;
        while (to < s->end && *to != '\n') to++;
        s->next = to;
        const char *nul = memchr(from, 0, (size_t)(to - from)); /* no words have one */
        if (nul) to = nul;
        while (from < to && *from == ' ') from++;
        while (to > from && (to[-1] == ' ' || to[-1] == '\r')) to--;
        char *words = arena_copy_text(r->g->memory, from, (size_t)(to - from));
        char *colon = strrchr(words, ':'), *end = words;
        long at = colon ? strtol(colon + 1, &end, 10) : 0;
        if (colon && colon > words && end > colon + 1 && !*end && at >= 0 && at <= INT32_MAX) {
            *colon = 0;
            l->site.line = (int)at;
            char *space = strchr(words, ' ');
            if (space) *space++ = 0;
            while (space && *space == ' ') space++;
            l->site.file = space ? space : words; /* a name of nothing: it prints as a label would */
            if (space) l->label = words;
            if (space && !*space) l->site = (graph_site){0};
        } else if (words[0]) {
            l->label = words;
        }
        if (!scan_next(s)) return false;
    }
    if (s->failed || s->token.first_of_line || s->token.kind == TOKEN_END) return !s->failed;
    return scan_fail(s, "expected the end of the line, found %s", scan_describe(s));
}

/* Lists have as many entries as the result has axes. */
static bool lists_fit(reader *r, const line *l)
{
    int count = l->code == GRAPH_PERMUTE || (l->code == GRAPH_LEAF && l->list_counts[0]) ? 1
                : l->code == GRAPH_SLICE || l->code == GRAPH_PAD                         ? 2
                                                                                         : 0;
    for (int i = 0; i < count; i++)
        if (l->list_counts[i] != l->shape[0].rank)
            return scan_fail_at(&r->scan, l->line, "a list has %d entries, the result has %d axes", l->list_counts[i],
                                l->shape[0].rank);
    return true;
}

static bool inputs_fit(reader *r, const line *l)
{
    int count = l->code == GRAPH_MAP ? ops[l->map].count : graph_ops[l->code].inputs;
    if (count >= 0 && l->input_count != count)
        return scan_fail_at(&r->scan, l->line, "%s takes %d inputs, not %d",
                            l->code == GRAPH_MAP ? ops[l->map].text : graph_ops[l->code].text, count, l->input_count);
    for (int i = 0; i < l->input_count; i++)
        if ((graph_get(r->g, l->inputs[i])->code == GRAPH_KERNEL) != (l->code == GRAPH_RESULT))
            return scan_fail_at(&r->scan, l->line, "a kernel has a value only through result, and only it has results");
    return true;
}

static node build_move(reader *r, const line *l)
{
    graph *g = r->g;
    node x = l->inputs[0];
    int axes[GRAPH_RANK];
    number fill;
    if (l->code != GRAPH_CONCAT && l->code != GRAPH_RESHAPE && l->code != GRAPH_WINDOW &&
        graph_get(g, x)->shape.rank != l->shape[0].rank)
        return scan_fail_at(&r->scan, l->line, "%s changes no rank", graph_ops[l->code].text);
    switch (l->code) {
    case GRAPH_RESHAPE: return graph_reshape(g, x, &l->shape[0]);
    case GRAPH_PERMUTE:
        for (int k = 0; k < l->shape[0].rank; k++) axes[k] = (int)MINIMUM(MAXIMUM(l->lists[0][k], -1), GRAPH_RANK);
        return graph_permute(g, x, axes);
    case GRAPH_EXPAND: return graph_expand(g, x, &l->shape[0]);
    case GRAPH_SLICE: return graph_slice(g, x, l->lists[0], l->lists[1], &l->shape[0]);
    case GRAPH_WINDOW: return graph_window(g, x, (int)l->axis, l->size, l->stride, l->dilation);
    case GRAPH_CONCAT: return graph_concat(g, l->inputs, l->input_count, (int)l->axis);
    default:
        return scan_constant(&r->scan, &l->constant, l->elem[0], &fill)
                   ? graph_pad(g, x, l->lists[0], l->lists[1], &l->shape[0], fill)
                   : 0;
    }
}

static node build_fold(reader *r, const line *l)
{
    graph *g = r->g;
    unsigned axis_set = 0;
    switch (l->code) {
    case GRAPH_REDUCE:
        for (int i = 0; i < l->list_counts[0]; i++) {
            if (l->lists[0][i] < 0 || l->lists[0][i] >= GRAPH_RANK)
                return scan_fail_at(&r->scan, l->line, "an axis is 0 to %d", GRAPH_RANK - 1);
            axis_set |= 1u << l->lists[0][i];
        }
        return graph_reduce(g, l->fold, l->inputs[0], axis_set);
    case GRAPH_SCAN: return graph_scan(g, l->fold, l->inputs[0], (int)l->axis);
    case GRAPH_ARGSORT: return graph_argsort(g, l->inputs[0], (int)l->axis, l->word);
    default: return graph_dot(g, l->inputs[0], l->inputs[1], l->elem[0], (product_way)l->index);
    }
}

static node build_kernel(reader *r, const line *l)
{
    graph_kernel *k = ARENA_NEW(r->g->memory, graph_kernel);
    k->name = l->name;
    k->output_count = l->type_count;
    memcpy(k->output_elem, l->elem, sizeof(k->output_elem));
    memcpy(k->output_shape, l->shape, sizeof(k->output_shape));
    text words = {0};
    text_add(&words, l->name);
    text_add_bytes(&words, (const char *)k->output_elem, sizeof(k->output_elem));
    text_add_bytes(&words, (const char *)k->output_shape, sizeof(k->output_shape));
    k->identity = hash_bytes(text_get(&words), words.length).low;
    text_free(&words);
    return graph_kernel_call(r->g, k, l->inputs, l->input_count);
}

static node build(reader *r, const line *l)
{
    graph *g = r->g;
    const node *in = l->inputs;
    number n;
    switch (l->code) {
    case GRAPH_LEAF:
        return graph_leaf(g, l->elem[0], &l->shape[0], l->list_counts[0] ? l->lists[0] : NULL, l->offset,
                          (void *)(uintptr_t)l->index);
    case GRAPH_FULL:
        return scan_constant(&r->scan, &l->constant, l->elem[0], &n) ? graph_full(g, l->elem[0], &l->shape[0], n) : 0;
    case GRAPH_IOTA: return graph_iota(g, l->shape[0].rank ? l->shape[0].extents[0] : 0);
    case GRAPH_MAP: return graph_map_index(g, l->map, (int)l->index, l->elem[0], in, l->input_count);
    case GRAPH_DETACH:
    case GRAPH_KEEP:
    case GRAPH_AGAIN: return graph_same(g, l->code, in[0], (int)l->index);
    case GRAPH_TAKE: return graph_take(g, in[0], in[1], (int)l->axis);
    case GRAPH_GATHER: return graph_gather(g, in[0], in[1], (int)l->axis);
    case GRAPH_TAKE_ADD:
        if (!l->index) return graph_take_add(g, in[0], in[1], in[2], (int)l->axis);
        if (l->axis || graph_get(g, in[1])->shape.rank != 1)
            return scan_fail_at(&r->scan, l->line, "firsts are those of an index of one axis, added along axis 0");
        return graph_take_add_firsts(g, in[0], in[1], in[2]);
    case GRAPH_RUN_SUM: return graph_run_sum(g, in[0], in[1], in[2]);
    case GRAPH_GATHER_ADD: return graph_gather_add(g, in[0], in[1], in[2], (int)l->axis);
    case GRAPH_KERNEL: return build_kernel(r, l);
    case GRAPH_RESULT:
        if (l->index >= graph_get(g, in[0])->attr.kernel->output_count)
            return scan_fail_at(&r->scan, l->line, "the kernel has no output %lld", (long long)l->index);
        return graph_result(g, in[0], (int)l->index);
    default:
        if (graph_ops[l->code].class == GRAPH_CLASS_FOLD) return build_fold(r, l);
        if (!l->input_count) return scan_fail_at(&r->scan, l->line, "there is nothing to join");
        return build_move(r, l);
    }
}

/* The node's type is the one that the line names. */
static bool type_fits(reader *r, const line *l, node n)
{
    const graph_node *made = graph_get(r->g, n);
    if (made->code == GRAPH_KERNEL || (made->elem == l->elem[0] && shape_same(&made->shape, &l->shape[0]))) return true;
    text words = {0};
    shape_print(&made->shape, &words);
    scan_fail_at(&r->scan, l->line, "%%%d is %s%s", l->number, dtypes[made->elem].text, text_get(&words));
    text_free(&words);
    return false;
}

static bool read_line(reader *r)
{
    scanner *s = &r->scan;
    line l = {.line = s->token.line};
    if (s->token.kind != TOKEN_VALUE)
        return scan_fail(s, "expected a node such as %%3 or return, found %s", scan_describe(s));
    if (s->token.integer < 1 || s->token.integer >= r->number_limit)
        return scan_fail(s, "this node's number is not allowed");
    l.number = (int)s->token.integer;
    if (r->nodes[l.number]) return scan_fail(s, "%%%d is defined twice", l.number);
    if (!scan_next(s) || !scan_expect(s, "=") || !read_op_name(r, &l) || !read_before(r, &l) || !read_inputs(r, &l) ||
        !read_after(r, &l) || !scan_expect(s, ":"))
        return false;
    do {
        if (!read_type(r, &l)) return false;
    } while (l.code == GRAPH_KERNEL && scan_accept(s, ","));
    if (!read_site(r, &l) || !inputs_fit(r, &l) || !lists_fit(r, &l)) return false;
    r->g->site = l.site;
    r->g->label = l.label;
    node n = build(r, &l);
    if (s->failed) return false;
    if (!n) return scan_fail_at(s, l.line, "%s", r->g->error.message);
    r->nodes[l.number] = n;
    return type_fits(r, &l, n);
}

static bool read_graph(reader *r, node **roots, int *root_count)
{
    int capacity = 0;
    if (!scan_next(&r->scan)) return false;
    while (!scan_is(&r->scan, "return"))
        if (!read_line(r)) return false;
    if (!scan_next(&r->scan)) return false;
    while (r->scan.token.kind != TOKEN_END) {
        node n;
        if (!read_input(r, &n)) return false;
        if (graph_get(r->g, n)->code == GRAPH_KERNEL) return scan_fail(&r->scan, "a kernel has no value itself");
        ARENA_PUSH(r->g->memory, *roots, *root_count, capacity, n);
        if (!scan_accept(&r->scan, ",")) break;
    }
    if (r->scan.failed || r->scan.token.kind == TOKEN_END) return !r->scan.failed;
    return scan_fail(&r->scan, "expected the end of the text, found %s", scan_describe(&r->scan));
}

qn_status graph_read(graph *g, const char *file, const char *words, size_t length, node **roots, int *root_count,
                     qn_error *error)
{
    *roots = NULL;
    *root_count = 0;
    if (length > (size_t)64 << 20) return error_set(error, QN_BAD_FILE, "%s: larger than 64 MiB", file);
    arena *scratch = arena_new();
    reader r = {.scan = {.file = file, .next = words, .end = words + length, .line = 1, .error = error}, .g = g};
    r.number_limit = (int)MAXIMUM(length, 65536) + 1;
    r.nodes = ARENA_ARRAY(scratch, node, r.number_limit);
    bool good = read_graph(&r, roots, root_count);
    g->site = (graph_site){0};
    g->label = NULL;
    g->status = QN_OK;
    arena_free(scratch);
    return good ? QN_OK : QN_BAD_FILE;
}
