/*
 * Building the tensor graph. In: ops with inputs and attributes. Out: hash-consed nodes: an op with the inputs and
 * attributes of an earlier one is that one. Every rule of shapes and types stands here once; the tensor level, the
 * gradient and the graph passes all build through these functions.
 * Invariants: inputs are older than their node; a failed call changes nothing but graph->error.
 * SPDX-License-Identifier: MIT
 */
#include "ir/graph_build.h"
#include "ir/scalar.h"

#include <string.h>

const graph_op_info graph_ops[GRAPH_CODE_COUNT] = {
#define GRAPH_OP(name, text, class, inputs) [GRAPH_##name] = {text, GRAPH_CLASS_##class, inputs},
#include "ir/graph_ops.def"
#undef GRAPH_OP
};

graph *graph_new(arena *memory)
{
    graph *g = ARENA_NEW(memory, graph);
    g->memory = memory;
    g->node_count = 1;
    g->node_capacity = 256;
    g->nodes = ARENA_ARRAY(memory, graph_node, g->node_capacity);
    g->by_hash.memory = memory;
    g->range_count = 1;
    g->range_capacity = 8;
    g->ranges = ARENA_ARRAY(memory, graph_range, g->range_capacity);
    return g;
}

void graph_truncate(graph *g, int node_count)
{
    int last = g->node_count;
    g->node_count = MAXIMUM(node_count, 1);
    while (last-- > g->node_count) hash_index_remove(&g->by_hash, g->nodes[last].hash, last);
}

int64_t shape_count(const shape *s)
{
    int64_t count = 1;
    for (int k = 0; k < s->rank; k++) count *= s->extents[k];
    return count;
}

bool shape_same(const shape *a, const shape *b)
{
    return a->rank == b->rank && !memcmp(a->extents, b->extents, sizeof(int64_t) * (size_t)a->rank);
}

/* Also of a caller's shape that has more axes than there are. */
void shape_print(const shape *s, text *out)
{
    text_add(out, "[");
    for (int k = 0; k < s->rank && k < GRAPH_RANK; k++)
        text_print(out, "%s%lld", k ? ", " : "", (long long)s->extents[k]);
    text_add(out, s->rank > GRAPH_RANK ? ", ...]" : "]");
}

int64_t graph_size_bytes(const graph *g, node n)
{
    return shape_count(&g->nodes[n].shape) * dtypes[g->nodes[n].elem].size_bytes;
}

node graph_fail(graph *g, const char *op, const char *format, ...)
{
    if (g->status) return 0;
    text words = {0};
    text_add(&words, g->label ? g->label : op);
    if (g->label && strcmp(g->label, op)) text_print(&words, ": %s", op);
    if (g->site.file) text_print(&words, " (%s:%d)", g->site.file, g->site.line);
    text_add(&words, ": ");
    va_list list;
    va_start(list, format);
    text_print_list(&words, format, list);
    va_end(list);
    g->status = error_set(&g->error, QN_BAD_CALL, "%s", text_get(&words));
    text_free(&words);
    return 0;
}

/* ---- nodes ---- */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash ^= word;
    hash *= 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t hash_of(const graph_node *n)
{
    uint64_t h = mix((uint64_t)n->code << 32 | (uint64_t)n->elem, (uint64_t)n->shape.rank);
    for (int k = 0; k < n->shape.rank; k++) h = mix(h, (uint64_t)n->shape.extents[k]);
    for (int i = 0; i < n->input_count; i++) h = mix(h, n->inputs[i]);
    const graph_attr *a = &n->attr;
    h = mix(h, (uint64_t)a->map << 40 ^ (uint64_t)a->fold << 32 ^ (uint64_t)a->axis_set << 16 ^
                   (uint64_t)(unsigned)a->index << 8 ^ (uint64_t)(unsigned)a->axis);
    if (graph_ops[n->code].class == GRAPH_CLASS_MAP) return h;
    for (int k = 0; k < n->shape.rank; k++)
        h = mix(mix(h, (uint64_t)a->start[k] << 8 ^ (uint64_t)(unsigned)a->axes[k]), (uint64_t)a->step[k]);
    h = mix(mix(h, (uint64_t)a->number.i), (uint64_t)a->size << 32 ^ (uint64_t)a->stride << 16 ^ (uint64_t)a->dilation);
    uint64_t bits;
    memcpy(&bits, &a->number.f, sizeof(bits));
    return mix(mix(h, bits), (uint64_t)(uintptr_t)a->storage ^ (uint64_t)a->offset << 1);
}

/* Kernels that fusion calls have one text for all sizes: what they give tells calls of the same inputs apart. */
static bool same_kernel(const graph_kernel *a, const graph_kernel *b)
{
    if (a->identity != b->identity || a->output_count != b->output_count) return false;
    for (int i = 0; i < a->output_count; i++)
        if (a->output_elem[i] != b->output_elem[i] || !shape_same(&a->output_shape[i], &b->output_shape[i]))
            return false;
    return true;
}

static bool same_node(const graph_node *a, const graph_node *b)
{
    /* What arithmetic does not name is zero. */
    size_t named_bytes = graph_ops[a->code].class == GRAPH_CLASS_MAP ? offsetof(graph_attr, axes) : sizeof(graph_attr);
    return a->hash == b->hash && a->code == b->code && a->elem == b->elem && shape_same(&a->shape, &b->shape) &&
           a->input_count == b->input_count &&
           (!a->input_count || !memcmp(a->inputs, b->inputs, sizeof(node) * (size_t)a->input_count)) &&
           (a->code == GRAPH_KERNEL ? same_kernel(a->attr.kernel, b->attr.kernel)
                                    : !memcmp(&a->attr, &b->attr, named_bytes));
}

static uint64_t any_hash_of(const graph_node *n)
{
    return n->code == GRAPH_KERNEL ? mix(n->attr.kernel->identity, n->inputs ? n->inputs[0] : 0) : hash_of(n);
}

void graph_compact(graph *g, int first, node *renamed)
{
    int last = g->node_count;
    graph_truncate(g, first);
    for (int i = first; i < last; i++) {
        if (!renamed[i - first]) continue;
        graph_node *n = &g->nodes[g->node_count];
        *n = g->nodes[i];
        node *inputs = (node *)n->inputs; /* the graph's own copy */
        for (int k = 0; k < n->input_count; k++)
            if ((int)inputs[k] >= first) inputs[k] = renamed[(int)inputs[k] - first];
        n->hash = any_hash_of(n);
        hash_index_add(&g->by_hash, n->hash, g->node_count);
        renamed[i - first] = (node)g->node_count++;
    }
}

/* The node of this description: an earlier equal one, or a new one. Its inputs are copied. */
node graph_intern(graph *g, graph_node *n)
{
    if (g->status) return 0;
    n->hash = any_hash_of(n);
    for (int at = 0, old; (old = hash_index_next(&g->by_hash, n->hash, &at)) >= 0;)
        if (same_node(&g->nodes[old], n)) return (node)old;
    if (g->node_count == g->node_capacity)
        g->nodes = arena_grow(g->memory, g->nodes, (size_t)g->node_count, &g->node_capacity, sizeof(graph_node));
    node *inputs = n->input_count ? ARENA_ARRAY(g->memory, node, n->input_count) : NULL;
    if (inputs) memcpy(inputs, n->inputs, sizeof(node) * (size_t)n->input_count);
    n->inputs = inputs;
    n->site = g->site;
    n->label = g->label;
    hash_index_add(&g->by_hash, n->hash, g->node_count);
    g->nodes[g->node_count] = *n;
    return (node)g->node_count++;
}

/* True when every input is there; else the call is silently nothing: the error is recorded already. */
bool graph_given(const node *inputs, int count)
{
    for (int i = 0; i < count; i++)
        if (!inputs[i]) return false;
    return true;
}

graph_node graph_like(const graph *g, graph_code code, node x, const node *inputs, int count)
{
    return (graph_node){
        .code = code, .elem = g->nodes[x].elem, .shape = g->nodes[x].shape, .inputs = inputs, .input_count = count};
}

const char *graph_shape_words(graph *g, const shape *s)
{
    text t = {0};
    shape_print(s, &t);
    const char *words = arena_copy_text(g->memory, text_get(&t), t.length);
    text_free(&t);
    return words;
}
bool graph_shape_fits(graph *g, const char *op, const shape *s)
{
    int64_t count = 1;
    if (s->rank < 0 || s->rank > GRAPH_RANK)
        return graph_fail(g, op, "rank %d is not between 0 and %d", s->rank, GRAPH_RANK), false;
    for (int k = 0; k < s->rank; k++) {
        if (s->extents[k] < 0)
            return graph_fail(g, op, "axis %d has the extent %lld", k, (long long)s->extents[k]), false;
        if (s->extents[k] > LARGEST_EXTENT || __builtin_mul_overflow(count, MAXIMUM(s->extents[k], 1), &count) ||
            count > LARGEST_EXTENT)
            return graph_fail(g, op, "%s has more elements than a tensor can have", graph_shape_words(g, s)), false;
    }
    return true;
}

bool graph_axis_fits(graph *g, const char *op, node x, int axis)
{
    int rank = g->nodes[x].shape.rank;
    if (axis >= 0 && axis < rank) return true;
    graph_fail(g, op, "axis %d is not one of a tensor of shape %s", axis, WORDS(x));
    return false;
}

/* ---- leaves ---- */

node graph_leaf(graph *g, dtype elem, const shape *s, const int64_t *strides, int64_t offset, void *storage)
{
    if (!graph_shape_fits(g, "leaf", s)) return 0;
    graph_node n = {.code = GRAPH_LEAF, .elem = elem, .shape = *s, .attr = {.storage = storage, .offset = offset}};
    if (strides)
        memcpy(n.attr.strides, strides, sizeof(int64_t) * (size_t)s->rank);
    else
        strides_set_row_major(s->rank, s->extents, n.attr.strides);
    return graph_intern(g, &n);
}

node graph_full(graph *g, dtype elem, const shape *s, number value)
{
    if (!graph_shape_fits(g, "full", s)) return 0;
    graph_node n = {.code = GRAPH_FULL, .elem = elem, .shape = *s, .attr.number = value};
    return graph_intern(g, &n);
}

node graph_full_double(graph *g, dtype elem, const shape *s, double x)
{
    return graph_full(g, elem, s, scalar_from_double(elem, x));
}

node graph_iota(graph *g, int64_t count)
{
    shape s = {1, {count}};
    if (!graph_shape_fits(g, "iota", &s)) return 0;
    graph_node n = {.code = GRAPH_IOTA, .elem = DT_I64, .shape = s};
    return graph_intern(g, &n);
}

/* ---- elementwise ---- */

static bool accepts(op_code code, dtype elem)
{
    char kind = dtype_is_float(elem) ? 'F' : elem == DT_BOOL ? 'B' : 'I';
    return strchr(ops[code].types, kind) != NULL;
}

node graph_map_index(graph *g, op_code code, int index, dtype elem, const node *inputs, int count)
{
    if (!graph_given(inputs, count)) return 0;
    CHECK(ops[code].class >= CLASS_UNARY && ops[code].class <= CLASS_TERNARY && ops[code].count == count);
    int first = code == OP_SELECT; /* the condition has a type of its own */
    bool free_types = code == OP_SHL || code == OP_SHR || code == OP_PHILOX;
    for (int i = 1; i < count; i++) {
        if (!shape_same(&g->nodes[inputs[0]].shape, &g->nodes[inputs[i]].shape))
            return graph_fail(g, ops[code].text, "shapes %s and %s differ", WORDS(inputs[0]), WORDS(inputs[i]));
        if (i > first && !free_types && g->nodes[inputs[first]].elem != g->nodes[inputs[i]].elem)
            return graph_fail(g, ops[code].text, "types %s and %s differ: cast one",
                              dtypes[g->nodes[inputs[first]].elem].text, dtypes[g->nodes[inputs[i]].elem].text);
    }
    dtype operand = g->nodes[inputs[first]].elem;
    if (code == OP_SELECT && g->nodes[inputs[0]].elem != DT_BOOL)
        return graph_fail(g, ops[code].text, "the condition is %s, not bool", dtypes[g->nodes[inputs[0]].elem].text);
    if (!accepts(code, operand))
        return graph_fail(g, ops[code].text, "it does not take %s: cast to a type it takes", dtypes[operand].text);
    graph_node n = graph_like(g, GRAPH_MAP, inputs[first], inputs, count);
    n.attr.map = code;
    n.attr.index = index;
    switch (ops[code].result) {
    case RESULT_SAME: break;
    case RESULT_BOOL: n.elem = DT_BOOL; break;
    default: n.elem = code == OP_SELECT ? operand : elem; break;
    }
    if (code == OP_BITCAST && dtypes[n.elem].size_bytes != dtypes[operand].size_bytes)
        return graph_fail(g, "bitcast", "%s and %s have different sizes", dtypes[operand].text, dtypes[n.elem].text);
    return graph_intern(g, &n);
}

node graph_map(graph *g, op_code code, dtype elem, const node *inputs, int count)
{
    return graph_map_index(g, code, 0, elem, inputs, count);
}

node graph_unary(graph *g, op_code code, node x)
{
    return graph_map(g, code, DT_F32, &x, 1);
}

node graph_binary(graph *g, op_code code, node a, node b)
{
    return graph_map(g, code, DT_F32, (node[]){a, b}, 2);
}

node graph_select(graph *g, node condition, node a, node b)
{
    return graph_map(g, OP_SELECT, DT_F32, (node[]){condition, a, b}, 3);
}

node graph_convert(graph *g, node x, dtype elem)
{
    return !x || g->nodes[x].elem == elem ? x : graph_map(g, OP_CONVERT, elem, &x, 1);
}

node graph_same(graph *g, graph_code code, node x, int index)
{
    if (!x) return 0;
    CHECK(code == GRAPH_DETACH || code == GRAPH_KEEP || code == GRAPH_AGAIN);
    graph_node n = graph_like(g, code, x, &x, 1);
    n.attr.index = index;
    return graph_intern(g, &n);
}

/* ---- movement ---- */

node graph_reshape(graph *g, node x, const shape *s)
{
    if (!x || !graph_shape_fits(g, "reshape", s)) return 0;
    if (shape_count(s) != shape_count(&g->nodes[x].shape))
        return graph_fail(g, "reshape", "%s has %lld elements, %s has %lld", WORDS(x),
                          (long long)shape_count(&g->nodes[x].shape), graph_shape_words(g, s),
                          (long long)shape_count(s));
    if (g->nodes[x].code == GRAPH_RESHAPE) x = g->nodes[x].inputs[0];
    if (shape_same(s, &g->nodes[x].shape)) return x;
    graph_node n = graph_like(g, GRAPH_RESHAPE, x, &x, 1);
    n.shape = *s;
    return graph_intern(g, &n);
}

node graph_permute(graph *g, node x, const int *axes)
{
    if (!x) return 0;
    graph_node n = graph_like(g, GRAPH_PERMUTE, x, &x, 1);
    unsigned seen = 0;
    bool moves = false;
    for (int k = 0; k < n.shape.rank; k++) {
        if (axes[k] < 0 || axes[k] >= n.shape.rank || seen >> axes[k] & 1)
            return graph_fail(g, "permute", "the axes are not an order of all %d axes of %s", n.shape.rank, WORDS(x));
        seen |= 1u << axes[k];
        n.attr.axes[k] = axes[k];
        n.shape.extents[k] = g->nodes[x].shape.extents[axes[k]];
        moves |= axes[k] != k;
    }
    return moves ? graph_intern(g, &n) : x;
}

node graph_expand(graph *g, node x, const shape *s)
{
    if (!x || !graph_shape_fits(g, "expand", s)) return 0;
    graph_node n = graph_like(g, GRAPH_EXPAND, x, &x, 1);
    bool fits = n.shape.rank == s->rank;
    for (int k = 0; k < s->rank && fits; k++) fits = n.shape.extents[k] == s->extents[k] || n.shape.extents[k] == 1;
    if (!fits) return graph_fail(g, "expand", "%s does not expand to %s", WORDS(x), graph_shape_words(g, s));
    if (shape_same(s, &n.shape)) return x;
    n.shape = *s;
    return graph_intern(g, &n);
}

/* count elements from `start`, `step` apart: are they all of an axis of that extent? Says so without overflow. */
static bool lies_inside(int64_t start, int64_t step, int64_t count, int64_t extent)
{
    if (start < 0 || start >= extent) return false;
    if (count == 1) return true;
    if (!step || step <= -extent || step >= extent) return false;
    int64_t room = step > 0 ? extent - 1 - start : start; /* beyond the first one */
    return (count - 1) <= room / (step > 0 ? step : -step);
}

node graph_slice(graph *g, node x, const int64_t *start, const int64_t *step, const shape *s)
{
    if (!x || !graph_shape_fits(g, "slice", s)) return 0;
    graph_node n = graph_like(g, GRAPH_SLICE, x, &x, 1);
    if (s->rank != n.shape.rank) return graph_fail(g, "slice", "%s does not have %d axes", WORDS(x), s->rank);
    bool whole = true;
    for (int k = 0; k < s->rank; k++) {
        int64_t extent = n.shape.extents[k], count = s->extents[k];
        if (count && !lies_inside(start[k], step[k], count, extent))
            return graph_fail(g, "slice", "%lld elements from %lld by %lld of axis %d do not lie in %s",
                              (long long)count, (long long)start[k], (long long)step[k], k, WORDS(x));
        n.attr.start[k] = s->extents[k] ? start[k] : 0;
        n.attr.step[k] = s->extents[k] > 1 ? step[k] : 1;
        whole &= s->extents[k] == extent && n.attr.start[k] == 0 && n.attr.step[k] == 1;
        n.shape.extents[k] = s->extents[k];
    }
    return whole ? x : graph_intern(g, &n);
}

node graph_window(graph *g, node x, int axis, int64_t size, int64_t stride, int64_t dilation)
{
    if (!x || !graph_axis_fits(g, "window", x, axis)) return 0;
    graph_node n = graph_like(g, GRAPH_WINDOW, x, &x, 1);
    int64_t extent = n.shape.extents[axis];
    if (size < 1 || stride < 1 || dilation < 1)
        return graph_fail(g, "window", "size %lld, stride %lld and dilation %lld must be at least 1", (long long)size,
                          (long long)stride, (long long)dilation);
    if (n.shape.rank == GRAPH_RANK) return graph_fail(g, "window", "%s has no room for one more axis", WORDS(x));
    if (!extent || size - 1 > (extent - 1) / dilation)
        return graph_fail(g, "window", "a window of %lld elements, %lld apart, does not fit axis %d of %s",
                          (long long)size, (long long)dilation, axis, WORDS(x));
    n.shape.extents[axis] = (extent - 1 - (size - 1) * dilation) / stride + 1;
    n.shape.extents[n.shape.rank++] = size;
    if (!graph_shape_fits(g, "window", &n.shape)) return 0;
    n.attr.axis = axis;
    n.attr.size = size;
    n.attr.stride = stride;
    n.attr.dilation = dilation;
    return graph_intern(g, &n);
}

node graph_pad(graph *g, node x, const int64_t *before, const int64_t *step, const shape *s, number fill)
{
    if (!x || !graph_shape_fits(g, "pad", s)) return 0;
    graph_node n = graph_like(g, GRAPH_PAD, x, &x, 1);
    if (s->rank != n.shape.rank) return graph_fail(g, "pad", "%s does not have %d axes", WORDS(x), s->rank);
    bool same = true;
    for (int k = 0; k < s->rank; k++) {
        n.attr.start[k] = before ? before[k] : 0;
        n.attr.step[k] = step ? step[k] : 1;
        if (n.attr.step[k] < 1 || n.attr.step[k] > LARGEST_EXTENT)
            return graph_fail(g, "pad", "the step %lld of axis %d is not allowed", (long long)n.attr.step[k], k);
        if (n.attr.start[k] < -LARGEST_EXTENT || n.attr.start[k] > LARGEST_EXTENT)
            return graph_fail(g, "pad", "%lld elements before axis %d are not allowed", (long long)n.attr.start[k], k);
        same &= n.attr.start[k] == 0 && n.attr.step[k] == 1 && s->extents[k] == n.shape.extents[k];
    }
    n.attr.number = fill;
    if (same) return x;
    n.shape = *s;
    return graph_intern(g, &n);
}

node graph_concat(graph *g, const node *inputs, int count, int axis)
{
    if (!graph_given(inputs, count)) return 0;
    if (count < 1) return graph_fail(g, "concat", "there is nothing to join");
    if (!graph_axis_fits(g, "concat", inputs[0], axis)) return 0;
    if (count == 1) return inputs[0];
    graph_node n = graph_like(g, GRAPH_CONCAT, inputs[0], inputs, count);
    for (int i = 1; i < count; i++) {
        const graph_node *other = &g->nodes[inputs[i]];
        bool fits = other->elem == n.elem && other->shape.rank == n.shape.rank;
        for (int k = 0; k < n.shape.rank && fits; k++)
            fits = k == axis || other->shape.extents[k] == n.shape.extents[k];
        if (!fits)
            return graph_fail(g, "concat", "%s %s and %s %s do not join along axis %d", dtypes[n.elem].text,
                              WORDS(inputs[0]), dtypes[other->elem].text, WORDS(inputs[i]), axis);
        n.shape.extents[axis] += other->shape.extents[axis];
    }
    if (!graph_shape_fits(g, "concat", &n.shape)) return 0;
    n.attr.axis = axis;
    return graph_intern(g, &n);
}
