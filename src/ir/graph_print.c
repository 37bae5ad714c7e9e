/*
 * The tensor graph to text. In: a graph and the nodes that are wanted. Out: the form of docs/tensor-graph.md, one node
 * a line, which graph_read.c reads back. Nodes are numbered in the order in which they are printed and storages in the
 * order in which they are met, so equal graphs print equally whatever their history.
 * SPDX-License-Identifier: MIT
 */
#include "ir/form.h"
#include "ir/graph.h"

#include <stdlib.h>
#include <string.h>

typedef struct printer {
    const graph *g;
    text *out;
    const int *numbers;  /* of nodes; NULL: the graph's own */
    const int *storages; /* of nodes that are leaves; NULL: 1 */
} printer;

static void print_node_name(const printer *p, node n)
{
    text_print(p->out, "%%%d", p->numbers ? p->numbers[n] : (int)n);
}

static void print_type(dtype elem, const shape *s, text *out)
{
    text_add(out, dtypes[elem].text);
    if (s->rank) shape_print(s, out);
}

static void print_list(const printer *p, const char *word, const int64_t *items, int count)
{
    text_print(p->out, " %s (", word);
    for (int i = 0; i < count; i++) text_print(p->out, "%s%lld", i ? ", " : "", (long long)items[i]);
    text_add(p->out, ")");
}

/* What stands between the op's name and its inputs. */
static void print_before(const printer *p, node at)
{
    const graph_node *n = graph_get(p->g, at);
    switch (n->code) {
    case GRAPH_LEAF:
        text_print(p->out, " %d", p->storages ? p->storages[at] : 1);
        if (!strides_are_row_major(n->shape.rank, n->shape.extents, n->attr.strides))
            print_list(p, "strides", n->attr.strides, n->shape.rank);
        if (n->attr.offset) text_print(p->out, " offset %lld", (long long)n->attr.offset);
        break;
    case GRAPH_FULL:
        text_add(p->out, " ");
        form_print_number(n->elem, n->attr.number, p->out);
        break;
    case GRAPH_MAP:
    case GRAPH_DETACH:
    case GRAPH_KEEP:
    case GRAPH_AGAIN:
        if (n->attr.index) text_print(p->out, " %d", n->attr.index);
        break;
    case GRAPH_RESULT: text_print(p->out, " %d", n->attr.index); break;
    case GRAPH_REDUCE:
    case GRAPH_SCAN: text_print(p->out, " %s", fold_names[n->attr.fold]); break;
    case GRAPH_ARGSORT: text_add(p->out, n->attr.index ? " descending" : ""); break;
    case GRAPH_DOT: text_print(p->out, "%s%s", n->attr.index ? " " : "", product_way_words[n->attr.index]); break;
    case GRAPH_KERNEL:
        text_add(p->out, " ");
        text_add_quoted(p->out, n->attr.kernel->name, strlen(n->attr.kernel->name));
        break;
    default: break;
    }
}

/* What stands after its inputs. */
static void print_after(const printer *p, const graph_node *n)
{
    const graph_attr *a = &n->attr;
    int64_t items[GRAPH_RANK];
    int count = 0;
    switch (n->code) {
    case GRAPH_PERMUTE:
        for (; count < n->shape.rank; count++) items[count] = a->axes[count];
        print_list(p, "order", items, count);
        break;
    case GRAPH_REDUCE:
        for (int k = 0; k < n->shape.rank; k++)
            if (a->axis_set >> k & 1) items[count++] = k;
        print_list(p, "axes", items, count);
        break;
    case GRAPH_SLICE:
    case GRAPH_PAD:
        print_list(p, "start", a->start, n->shape.rank);
        print_list(p, "step", a->step, n->shape.rank);
        if (n->code == GRAPH_SLICE) break;
        text_add(p->out, " fill ");
        form_print_number(n->elem, a->number, p->out);
        break;
    case GRAPH_WINDOW:
        text_print(p->out, " axis %d size %lld stride %lld dilation %lld", a->axis, (long long)a->size,
                   (long long)a->stride, (long long)a->dilation);
        break;
    case GRAPH_CONCAT:
    case GRAPH_SCAN:
    case GRAPH_ARGSORT:
    case GRAPH_TAKE:
    case GRAPH_GATHER:
    case GRAPH_GATHER_ADD: text_print(p->out, " axis %d", a->axis); break;
    case GRAPH_TAKE_ADD: text_print(p->out, a->index ? " axis %d firsts" : " axis %d", a->axis); break;
    default: break;
    }
}

static void print_types(const printer *p, const graph_node *n)
{
    const graph_kernel *k = n->attr.kernel;
    text_add(p->out, " : ");
    if (n->code != GRAPH_KERNEL) print_type(n->elem, &n->shape, p->out);
    for (int i = 0; n->code == GRAPH_KERNEL && i < k->output_count; i++) {
        if (i) text_add(p->out, ", ");
        print_type(k->output_elem[i], &k->output_shape[i], p->out);
    }
}

static void print_line(const printer *p, node at)
{
    const graph_node *n = graph_get(p->g, at);
    print_node_name(p, at);
    text_print(p->out, " = %s", n->code == GRAPH_MAP ? ops[n->attr.map].text : graph_ops[n->code].text);
    print_before(p, at);
    for (int i = 0; i < n->input_count; i++) {
        text_add(p->out, i ? ", " : " ");
        print_node_name(p, n->inputs[i]);
    }
    print_after(p, n);
    print_types(p, n);
    if (n->label || n->site.file) text_add(p->out, " ;");
    if (n->label) text_print(p->out, " %s", n->label);
    if (n->site.file) text_print(p->out, " %s:%d", n->site.file, n->site.line);
}

void graph_print_node(const graph *g, node n, text *out)
{
    print_line(&(printer){g, out, NULL, NULL}, n);
}

void graph_print(const graph *g, const node *roots, int root_count, text *out)
{
    arena *scratch = arena_new();
    node *order = ARENA_ARRAY(scratch, node, g->node_count);
    int *numbers = ARENA_ARRAY(scratch, int, g->node_count), *storages = ARENA_ARRAY(scratch, int, g->node_count);
    int count = graph_order(g, roots, root_count, order), met = 0;
    for (int i = 0; i < count; i++) {
        const graph_node *n = graph_get(g, order[i]);
        numbers[order[i]] = i + 1;
        if (n->code != GRAPH_LEAF) continue;
        int same = 0;
        while (same < i && (!storages[order[same]] || graph_get(g, order[same])->attr.storage != n->attr.storage))
            same++;
        storages[order[i]] = same < i ? storages[order[same]] : ++met;
    }
    printer p = {g, out, numbers, storages};
    for (int i = 0; i < count; i++) {
        print_line(&p, order[i]);
        text_add(out, "\n");
    }
    text_add(out, "return");
    for (int i = 0; i < root_count; i++) {
        text_add(out, i ? ", " : " ");
        print_node_name(&p, roots[i]);
    }
    text_add(out, "\n");
    arena_free(scratch);
}
