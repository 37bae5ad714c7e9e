/*
 * A picture of a plan, as SVG. In: a fused plan and its results. Out: every kernel as a box with its ops in it, arrays
 * that are read above each kernel that reads them, results below, and lines along which values flow: inside a box
 * they stay in registers, between boxes they go through memory.
 *
 * Two layered drawings (layered.h), one in the other. A kernel's ops stand in rows; values that come from memory enter at
 * its upper edge, each at one place, those that go there leave at its lower edge. Kernels and arrays stand in layers by
 * the longest way from the inputs; a kernel may stand mirrored, or be arranged anew so that its places suit the order of
 * what it is joined to. Lines run between rows and through ports of their own, so that none runs over words.
 * SPDX-License-Identifier: MIT
 */
#include "run/evaluate/layered.h"
#include "run/workbench/show_graph.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_WIDTH = 128, OP_HEIGHT = 36, GAP_X = 14, GAP_Y = 24, MARGIN = 14, LAYER_GAP = 44, LETTER = 8, LINE = 15 };
enum { SMALL_LETTER = 6, ROUND = 30, FACT_LINES = 5, TURNS = 3 };
#define PORT_WIDTH 2.0
#define LEAST_SCALE 0.33 /* below it letters of 12 pixels are mere dots */

typedef enum item_kind { ITEM_INPUT, ITEM_KERNEL, ITEM_RESULT } item_kind;

/* A value at a kernel's edge. */
typedef struct port {
    node n;
    int at;   /* its node of the kernel's drawing */
    double x; /* from the left edge of the box */
} port;

typedef struct item {
    item_kind kind;
    node n;     /* of an input or a result */
    int number; /* of a kernel or a result */
    int layer;
    int at; /* its node of the whole drawing */
    double x, y, width, height;
    /* Of a kernel: */
    node *ops;
    int *rows, op_count, row_count;
    port *entries, *exits;
    int entry_count, exit_count;
    layered inside; /* its first nodes are the ops */
    int64_t crossings;
    double title_width;
    bool mirrored;
} item;

typedef struct picture {
    const fuse_plan *plan;
    const graph *g;
    arena *memory;
    item *items;
    int count;
    int *writer;   /* by node: 1 + the kernel that leaves it in memory; 0: none */
    bool *is_read; /* by node: another kernel, or the caller, reads it */
    int layers;
    int op_width;                          /* the longest type fits */
    double width, height, *tops, *bottoms; /* of each layer */
    layered whole;
    text *out;
} picture;

static void add_escaped(text *out, const char *words)
{
    text_add_escaped(out, ESCAPE_PAGE, words, strlen(words));
}

static bool is_shown(const graph_node *x)
{
    return graph_ops[x->code].class != GRAPH_CLASS_LEAF;
}

static void type_words(const graph *g, node n, text *out)
{
    const graph_node *x = graph_get(g, n);
    text_print(out, "%s ", dtypes[x->elem].text);
    shape_print(&x->shape, out);
}

static int op_of(const item *box, node n)
{
    for (int i = 0; i < box->op_count; i++)
        if (box->ops[i] == n) return i;
    return -1;
}

static port *port_of(port *ports, int count, node n)
{
    for (int i = 0; i < count; i++)
        if (ports[i].n == n) return &ports[i];
    return NULL;
}

/* ---- what there is ---- */

static void collect_ops(picture *p, item *box)
{
    const fuse_kernel *k = &p->plan->kernels[box->number];
    int inputs = 0;
    box->ops = ARENA_ARRAY(p->memory, node, k->node_count + 1);
    box->rows = ARENA_ARRAY(p->memory, int, k->node_count + 1);
    for (int i = 0; i < k->node_count; i++) {
        const graph_node *x = graph_get(p->g, k->nodes[i]);
        if (!is_shown(x)) continue;
        int row = 0;
        for (int a = 0; a < x->input_count; a++) {
            int from = op_of(box, x->inputs[a]);
            if (from >= 0) row = MAXIMUM(row, box->rows[from] + 1);
        }
        box->ops[box->op_count] = k->nodes[i];
        box->rows[box->op_count++] = row;
        box->row_count = MAXIMUM(box->row_count, row + 1);
        inputs += x->input_count;
    }
    box->entries = ARENA_ARRAY(p->memory, port, inputs + 1);
    box->exits = ARENA_ARRAY(p->memory, port, k->write_count + 1);
}

/* What a kernel reads from memory: arrays of the caller, and what kernels before it wrote. */
static void collect_entries(picture *p, item *box)
{
    for (int i = 0; i < box->op_count; i++) {
        const graph_node *x = graph_get(p->g, box->ops[i]);
        for (int a = 0; a < x->input_count; a++) {
            node n = x->inputs[a];
            if (op_of(box, n) >= 0 || port_of(box->entries, box->entry_count, n)) continue;
            if (graph_get(p->g, n)->code != GRAPH_LEAF && !p->writer[n]) continue;
            box->entries[box->entry_count++] = (port){.n = n};
            p->is_read[n] = true;
            int from = graph_get(p->g, n)->code == GRAPH_LEAF ? 0 : p->writer[n];
            if (from) box->layer = MAXIMUM(box->layer, p->items[from - 1].layer + 2);
        }
    }
}

static void fit_types(picture *p)
{
    p->op_width = LEAST_WIDTH;
    for (int k = 0; k < p->plan->kernel_count; k++)
        for (int i = 0; i < p->plan->kernels[k].node_count; i++) {
            text type = {0};
            type_words(p->g, p->plan->kernels[k].nodes[i], &type);
            p->op_width = MAXIMUM(p->op_width, (int)type.length * SMALL_LETTER + 10);
            text_free(&type);
        }
}

static item *add_array(picture *p, item_kind kind, node n, int number, int layer)
{
    item *it = &p->items[p->count++];
    *it = (item){
        .kind = kind, .n = n, .number = number, .layer = layer, .width = p->op_width + ROUND, .height = OP_HEIGHT};
    return it;
}

static void collect(picture *p, const node *results, int count)
{
    const fuse_plan *plan = p->plan;
    int most = plan->kernel_count + count;
    for (int k = 0; k < plan->kernel_count; k++)
        for (int i = 0; i < plan->kernels[k].node_count; i++)
            most += graph_get(p->g, plan->kernels[k].nodes[i])->input_count;
    fit_types(p);
    p->items = ARENA_ARRAY(p->memory, item, most + 1);
    p->writer = ARENA_ARRAY(p->memory, int, p->g->node_count + 1);
    p->is_read = ARENA_ARRAY(p->memory, bool, p->g->node_count + 1);
    for (int k = 0; k < plan->kernel_count; k++) {
        const fuse_kernel *kernel = &plan->kernels[k];
        item *box = &p->items[p->count++];
        *box = (item){.kind = ITEM_KERNEL, .number = k, .layer = 1};
        collect_ops(p, box);
        collect_entries(p, box);
        for (int w = 0; w < kernel->write_count; w++) p->writer[kernel->writes[w]] = k + 1;
    }
    for (int i = 0; i < count; i++) p->is_read[results[i]] = true;
    for (int k = 0; k < plan->kernel_count; k++) {
        item *box = &p->items[k];
        for (int w = 0; w < plan->kernels[k].write_count; w++) {
            node n = plan->kernels[k].writes[w];
            if (p->is_read[n] && op_of(box, n) >= 0 && p->writer[n] == k + 1)
                box->exits[box->exit_count++] = (port){.n = n};
        }
        for (int e = 0; e < box->entry_count; e++)
            if (graph_get(p->g, box->entries[e].n)->code == GRAPH_LEAF)
                add_array(p, ITEM_INPUT, box->entries[e].n, k, box->layer - 1);
    }
    for (int i = 0; i < count; i++) {
        int from = p->writer[results[i]];
        add_array(p, ITEM_RESULT, results[i], i, from ? p->items[from - 1].layer + 1 : 1);
    }
    for (int i = 0; i < p->count; i++) p->layers = MAXIMUM(p->layers, p->items[i].layer + 1);
}

/* ---- a kernel ---- */

/* The words about a kernel, one line after the other; out: how wide they are. */
static double kernel_words(const picture *p, const item *box, char words[FACT_LINES][200])
{
    const fuse_kernel *k = &p->plan->kernels[box->number];
    const char *const verbs[] = {"reads ", "writes ", "saved "};
    double bytes[] = {(double)k->read_bytes, (double)k->written_bytes, (double)k->saved_bytes};
    size_t longest = 0;
    snprintf(words[0], sizeof(words[0]), "kernel %d", box->number);
    snprintf(words[1], sizeof(words[1]), "%s", k->name);
    for (int i = 0; i < COUNT(verbs); i++) {
        text fact = {0};
        text_add(&fact, verbs[i]);
        fuse_add_bytes(&fact, bytes[i]);
        snprintf(words[2 + i], sizeof(words[0]), "%s", text_get(&fact));
        text_free(&fact);
    }
    for (int i = 0; i < FACT_LINES; i++) longest = MAXIMUM(longest, strlen(words[i]));
    return (double)longest * LETTER;
}

/* Arranges the ops of a kernel. Places at its edges begin in the order that they have; they stay if they are kept. */
static void arrange(picture *p, item *box, bool keep)
{
    layered *l = &box->inside;
    *l = (layered){.memory = p->memory};
    for (int i = 0; i < box->op_count; i++) layered_add(l, box->rows[i] + 1, p->op_width);
    for (int i = 0; i < box->entry_count; i++) box->entries[i].at = layered_add(l, 0, PORT_WIDTH);
    for (int i = 0; i < box->exit_count; i++) box->exits[i].at = layered_add(l, box->row_count + 1, PORT_WIDTH);
    for (int i = 0; i < box->op_count; i++) {
        const graph_node *x = graph_get(p->g, box->ops[i]);
        for (int a = 0; a < x->input_count; a++) {
            int from = op_of(box, x->inputs[a]);
            const port *entry = from < 0 ? port_of(box->entries, box->entry_count, x->inputs[a]) : NULL;
            if (from >= 0)
                layered_join(l, (int)x->inputs[a], from, p->op_width / 2.0, i, p->op_width / 2.0);
            else if (entry)
                layered_join(l, (int)x->inputs[a], entry->at, PORT_WIDTH / 2, i, p->op_width / 2.0);
        }
    }
    for (int i = 0; i < box->exit_count; i++)
        layered_join(l, (int)box->exits[i].n, op_of(box, box->exits[i].n), p->op_width / 2.0, box->exits[i].at,
                     PORT_WIDTH / 2);
    layered_order(l, keep, keep);
    box->crossings = layered_is_large(l) ? 0 : layered_crossings(l);
    char words[FACT_LINES][200];
    box->title_width = kernel_words(p, box, words);
    double inner = layered_place(l, GAP_X), left = 2 * MARGIN + box->title_width;
    box->width = left + inner + MARGIN;
    box->height = MAXIMUM(box->row_count * (OP_HEIGHT + GAP_Y) + GAP_Y, FACT_LINES * LINE + 2 * MARGIN);
    for (int i = 0; i < l->node_count; i++) l->nodes[i].x += left;
    for (int i = 0; i < box->entry_count; i++) box->entries[i].x = l->nodes[box->entries[i].at].x + PORT_WIDTH / 2;
    for (int i = 0; i < box->exit_count; i++) box->exits[i].x = l->nodes[box->exits[i].at].x + PORT_WIDTH / 2;
    box->mirrored = false;
}

/* Left becomes right; the words stay on the left. */
static void mirror(item *box)
{
    double left = 2 * MARGIN + box->title_width, sum = left + box->width - MARGIN;
    layered *l = &box->inside;
    for (int i = 0; i < l->node_count; i++) l->nodes[i].x = sum - l->nodes[i].x - l->nodes[i].width;
    for (int i = 0; i < box->entry_count; i++) box->entries[i].x = sum - box->entries[i].x;
    for (int i = 0; i < box->exit_count; i++) box->exits[i].x = sum - box->exits[i].x;
    box->mirrored = !box->mirrored;
}

/* ---- the whole ---- */

static void join_all(picture *p)
{
    layered *l = &p->whole;
    for (int i = 0; i < p->count; i++) {
        item *it = &p->items[i];
        if (it->kind == ITEM_INPUT) {
            const item *box = &p->items[it->number];
            const port *to = port_of(box->entries, box->entry_count, it->n);
            layered_join(l, (int)it->n, it->at, it->width / 2, box->at, to->x);
            continue;
        }
        for (int e = 0; e < (it->kind == ITEM_KERNEL ? it->entry_count : 1); e++) {
            node n = it->kind == ITEM_KERNEL ? it->entries[e].n : it->n;
            if (graph_get(p->g, n)->code == GRAPH_LEAF || !p->writer[n]) continue;
            const item *from = &p->items[p->writer[n] - 1];
            const port *exit = port_of(from->exits, from->exit_count, n);
            double to_at = it->kind == ITEM_KERNEL ? it->entries[e].x : it->width / 2;
            if (exit) layered_join(l, (int)n, from->at, exit->x, it->at, to_at);
        }
    }
}

/* The drawing of the whole, made of the items as they are, in the order that it had. */
static void make_whole(picture *p)
{
    layered old = p->whole;
    p->whole = (layered){.memory = p->memory};
    for (int i = 0; i < p->count; i++) p->items[i].at = layered_add(&p->whole, p->items[i].layer, p->items[i].width);
    join_all(p);
    for (int i = 0; i < old.node_count && old.node_count == p->whole.node_count; i++)
        p->whole.nodes[i].order = old.nodes[i].order;
}

static int64_t crossings_of_whole(picture *p)
{
    layered *l = &p->whole;
    for (int i = 0; i < l->link_count; i++) { /* the links stay, their ports move */
        layered_link *k = &l->links[i];
        const item *from = k->from < p->count ? &p->items[k->from] : NULL;
        const item *to = k->to < p->count ? &p->items[k->to] : NULL;
        const port *exit = from ? port_of(from->exits, from->exit_count, (node)k->value) : NULL;
        const port *entry = to ? port_of(to->entries, to->entry_count, (node)k->value) : NULL;
        if (exit) k->from_at = exit->x;
        if (entry) k->to_at = entry->x;
    }
    return layered_crossings(l);
}

typedef struct wish {
    double key;
    port what;
} wish;

static int by_wish(const void *a, const void *b)
{
    const wish *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* Puts the ports of an edge into the order of what they are joined to. */
static void follow_neighbours(picture *p, item *box, bool above)
{
    port *ports = above ? box->entries : box->exits;
    int count = above ? box->entry_count : box->exit_count;
    wish *wishes = ARENA_ARRAY(p->memory, wish, count + 1);
    const layered *l = &p->whole;
    for (int i = 0; i < count; i++) {
        double sum = 0;
        int known = 0;
        for (int k = 0; k < l->link_count; k++) {
            const layered_link *link = &l->links[k];
            if (link->value != (int)ports[i].n || (above ? link->to : link->from) != box->at) continue;
            const layered_node *other = &l->nodes[above ? link->from : link->to];
            sum += other->order + (above ? link->from_at : link->to_at) / (other->width + 1);
            known++;
        }
        wishes[i] = (wish){known ? sum / known : i, ports[i]};
    }
    qsort(wishes, (size_t)count, sizeof(*wishes), by_wish);
    for (int i = 0; i < count; i++) ports[i] = wishes[i].what;
}

static port *copy_ports(picture *p, const port *from, int count)
{
    port *copy = ARENA_ARRAY(p->memory, port, count + 1);
    if (count) memcpy(copy, from, sizeof(*copy) * (size_t)count);
    return copy;
}

/* What crosses inside a kernel and outside, when those around it have made room for it. */
static int64_t settle_around(picture *p, const item *box)
{
    crossings_of_whole(p);
    layered_sift(&p->whole, box->layer - 1, box->layer + 1);
    return layered_crossings(&p->whole) + box->crossings;
}

/* A kernel as it is, mirrored, or arranged anew: what crosses least, inside and outside. */
static void improve(picture *p, item *box)
{
    int64_t least = crossings_of_whole(p) + box->crossings;
    item old = *box;
    for (int form = 0; form < 3 && least; form++) {
        int *orders = layered_keep(&p->whole);
        if (form == 1) {
            mirror(box);
        } else {
            box->entries = copy_ports(p, old.entries, old.entry_count);
            box->exits = copy_ports(p, old.exits, old.exit_count);
            follow_neighbours(p, box, true);
            follow_neighbours(p, box, false);
            arrange(p, box, form == 0);
        }
        int64_t now = settle_around(p, box);
        if (now < least) {
            least = now;
            old = *box;
            continue;
        }
        if (form == 1)
            mirror(box);
        else
            *box = old;
        layered_take(&p->whole, orders);
        crossings_of_whole(p);
    }
}

static void place_all(picture *p)
{
    for (int k = 0; k < p->plan->kernel_count; k++) arrange(p, &p->items[k], false);
    make_whole(p);
    layered_order(&p->whole, false, false);
    for (int turn = 0; turn < TURNS && !layered_is_large(&p->whole); turn++) {
        for (int k = 0; k < p->plan->kernel_count; k++) improve(p, &p->items[k]);
        make_whole(p);
        layered_order(&p->whole, false, false);
    }
    p->width = layered_place(&p->whole, 2 * GAP_X) + 2 * MARGIN;
    p->tops = ARENA_ARRAY(p->memory, double, p->layers + 1);
    p->bottoms = ARENA_ARRAY(p->memory, double, p->layers + 1);
    for (int i = 0; i < p->whole.node_count; i++) p->whole.nodes[i].x += MARGIN;
    double y = MARGIN;
    for (int r = 0; r < p->layers; r++) {
        double tallest = 0;
        for (int i = 0; i < p->count; i++) {
            item *it = &p->items[i];
            if (it->layer != r) continue;
            it->x = p->whole.nodes[it->at].x;
            it->y = y;
            tallest = MAXIMUM(tallest, it->height);
        }
        p->tops[r] = y;
        p->bottoms[r] = y + tallest;
        y += tallest + LAYER_GAP;
    }
    p->height = y - LAYER_GAP + MARGIN;
}

/* ---- drawing ---- */

/* Down to where the gap between two rows begins, then across it. */
static void draw_line(picture *p, int value, const char *class, double x1, double y1, double gap_top, double x2,
                      double gap_bottom, double y2)
{
    double bend = (gap_top + gap_bottom) / 2;
    text_print(p->out, "<path class=\"%s\" data-value=\"%d\" d=\"M%.1f %.1f", class, value, x1, y1);
    if (gap_top > y1) text_print(p->out, " V%.1f", gap_top);
    if (x1 == x2)
        text_print(p->out, " V%.1f", gap_bottom);
    else
        text_print(p->out, " C%.1f %.1f %.1f %.1f %.1f %.1f", x1, bend, x2, bend, x2, gap_bottom);
    if (y2 > gap_bottom) text_print(p->out, " V%.1f", y2);
    text_add(p->out, "\"/>\n");
}

/* Whether a link of a kernel's drawing is on the way to or from memory. */
static bool is_memory(const item *box, int link)
{
    const layered *l = &box->inside;
    const layered_link *k = &l->links[link];
    for (int i = 0; i < box->entry_count; i++)
        if (box->entries[i].n == (node)k->value) return true;
    for (int i = 0; i < box->exit_count; i++) {
        if (box->exits[i].n != (node)k->value) continue;
        for (int at = box->exits[i].at; at >= 0;) { /* back from the edge */
            int back = -1;
            for (int j = 0; j < l->link_count; j++)
                if (l->links[j].value == k->value && l->links[j].to == at) back = j;
            if (back == link) return true;
            at = back >= 0 && l->nodes[l->links[back].from].passes ? l->links[back].from : -1;
        }
    }
    return false;
}

static void draw_inside(picture *p, const item *box)
{
    const layered *l = &box->inside;
    int last = box->row_count + 1;
    for (int i = 0; i < l->link_count; i++) {
        const layered_link *k = &l->links[i];
        const layered_node *from = &l->nodes[k->from], *to = &l->nodes[k->to];
        double above = box->y + (from->rank ? GAP_Y + (from->rank - 1) * (OP_HEIGHT + GAP_Y) : 0);
        double below = to->rank == last ? box->y + box->height : box->y + GAP_Y + (to->rank - 1) * (OP_HEIGHT + GAP_Y);
        double bottom = from->rank ? above + OP_HEIGHT : above, gap_bottom = to->rank == last ? bottom + GAP_Y : below;
        draw_line(p, k->value, is_memory(box, i) ? "memory" : "inner", box->x + from->x + from->width / 2,
                  from->passes ? above : bottom, bottom, box->x + to->x + to->width / 2, gap_bottom, below);
    }
}

static void draw_lines(picture *p)
{
    const layered *l = &p->whole;
    for (int i = 0; i < l->link_count; i++) {
        const layered_link *k = &l->links[i];
        const layered_node *from = &l->nodes[k->from], *to = &l->nodes[k->to];
        double above = from->passes ? p->tops[from->rank] : p->items[k->from].y + p->items[k->from].height;
        draw_line(p, k->value, "memory", from->x + k->from_at, above, p->bottoms[from->rank], to->x + k->to_at,
                  p->tops[to->rank], p->tops[to->rank]);
    }
    for (int k = 0; k < p->plan->kernel_count; k++) draw_inside(p, &p->items[k]);
}

static void draw_words(picture *p, double x, double y, const char *class, const char *words)
{
    text_print(p->out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    add_escaped(p->out, words);
    text_add(p->out, "</text>\n");
}

static void draw_op(picture *p, const item *box, int op)
{
    node n = box->ops[op];
    const graph_node *x = graph_get(p->g, n);
    text type = {0};
    double left = box->x + box->inside.nodes[op].x, top = box->y + GAP_Y + box->rows[op] * (OP_HEIGHT + GAP_Y);
    bool written = p->writer[n] == box->number + 1;
    type_words(p->g, n, &type);
    text_print(p->out, "<g><title>%%%u %s", n, fuse_op_text(x));
    if (x->label) {
        text_add(p->out, " of ");
        add_escaped(p->out, x->label);
    }
    if (x->site.file) {
        text_add(p->out, ", ");
        add_escaped(p->out, x->site.file);
        text_print(p->out, ":%d", x->site.line);
    }
    text_print(p->out, "</title><rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"5\"/>\n",
               written ? "op written" : "op", left, top, p->op_width, OP_HEIGHT);
    draw_words(p, left + p->op_width / 2.0, top + 15, "name", fuse_op_text(x));
    draw_words(p, left + p->op_width / 2.0, top + 29, "type", text_get(&type));
    text_add(p->out, "</g>\n");
    text_free(&type);
}

static void draw_box(picture *p, const item *box)
{
    text_print(p->out, "<rect class=\"kernel\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"8\"/>\n",
               box->x, box->y, box->width, box->height);
}

static void draw_kernel(picture *p, const item *box)
{
    char words[FACT_LINES][200];
    kernel_words(p, box, words);
    for (int i = 0; i < FACT_LINES; i++)
        draw_words(p, box->x + MARGIN, box->y + MARGIN + 10 + i * LINE, i < 2 ? "title" : "facts", words[i]);
    for (int i = 0; i < box->op_count; i++) draw_op(p, box, i);
}

static void draw_array(picture *p, const item *it, const char *const *names, int name_count)
{
    text type = {0};
    char words[64];
    type_words(p->g, it->n, &type);
    text_print(p->out, "<rect class=\"array\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"18\"/>\n",
               it->x, it->y, it->width, it->height);
    int64_t number = (int64_t)(intptr_t)graph_get(p->g, it->n)->attr.storage;
    if (it->kind == ITEM_RESULT)
        snprintf(words, sizeof(words), "result %d", it->number);
    else if (number > 0 && number <= name_count && names[number - 1])
        snprintf(words, sizeof(words), "%s", names[number - 1]);
    else
        snprintf(words, sizeof(words), "%%%u", it->n);
    draw_words(p, it->x + it->width / 2, it->y + 15, "name", words);
    draw_words(p, it->x + it->width / 2, it->y + 29, "type", text_get(&type));
    text_free(&type);
}

void show_picture(const fuse_plan *plan, const node *results, int count, const char *const *names, int name_count,
                  text *out)
{
    picture p = {.plan = plan, .g = plan->graph, .memory = arena_new(), .out = out};
    collect(&p, results, count);
    place_all(&p);
    text_print(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\">\n"
        "<style>\n"
        "svg:root { min-width: %.0fpx; background: #fff }\n", /* on a small screen it scrolls before it is too small */
        p.width, p.height, p.width, p.height, LEAST_SCALE * p.width);
    text_add(out, "text { font: 12px sans-serif; fill: #222 }\n"
                  ".name { text-anchor: middle } .type { text-anchor: middle; font-size: 10px; fill: #666 }\n"
                  ".title { font-weight: bold } .facts { font-size: 11px; fill: #666 }\n"
                  ".kernel { fill: #eef3fb; stroke: #4a6fa5 } .op { fill: #fff; stroke: #999 }\n"
                  ".written { stroke: #4a6fa5; stroke-width: 2 } .array { fill: #fff7e0; stroke: #b58900 }\n"
                  "path { fill: none } .inner { stroke: #aaa } .memory { stroke: #b58900; stroke-width: 2 }\n"
                  "svg { max-width: 100%; height: auto } #sheet { fill: #fff }\n"
                  "@media (prefers-color-scheme: dark) { svg:root { background: #14171a } #sheet { fill: #14171a }\n"
                  "text { fill: #e6e8ea }\n"
                  ".type, .facts { fill: #9aa3ad } .kernel { fill: #1c2530 } .op { fill: #14171a; stroke: #6b747e }\n"
                  ".written { stroke: #6cb2ff } .array { fill: #3a3010 } .inner { stroke: #6b747e } }\n"
                  "</style>\n"
                  "<rect id=\"sheet\" width=\"100%\" height=\"100%\"/>\n");
    for (int i = 0; i < p.count; i++)
        if (p.items[i].kind == ITEM_KERNEL) draw_box(&p, &p.items[i]);
    draw_lines(&p);
    for (int i = 0; i < p.count; i++) {
        if (p.items[i].kind == ITEM_KERNEL)
            draw_kernel(&p, &p.items[i]);
        else
            draw_array(&p, &p.items[i], names, name_count);
    }
    text_add(out, "</svg>\n");
    arena_free(p.memory);
}
