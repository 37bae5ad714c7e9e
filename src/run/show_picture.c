/*
 * A picture of a plan, as SVG. In: a fused plan and its results. Out: every kernel as a box with its ops in it, arrays
 * that are read above each kernel that reads them, results below, and lines along which values flow: inside a box
 * they stay in registers, between boxes they go through memory.
 *
 * Layout: kernels stand in layers by the longest way from the inputs; within a layer by where what they read stands.
 * Ops inside a box are laid out the same way, in rows. A line that passes rows goes down beside them, and boxes are drawn
 * over lines, so that no line crosses words.
 * SPDX-License-Identifier: MIT
 */
#include "run/show_graph.h"

#include <stdlib.h>
#include <string.h>

enum { OP_WIDTH = 128, OP_HEIGHT = 36, GAP_X = 16, GAP_Y = 26, MARGIN = 14, HEADER = 42, LAYER_GAP = 56, LETTER = 7 };
enum { LANES = 5, LANE = 7 }; /* beside the rows of a kernel, on each side */

typedef enum item_kind { ITEM_INPUT, ITEM_KERNEL, ITEM_RESULT } item_kind;

typedef struct picture_op {
    node n;
    int row;
    double x, y; /* of its top left corner, in its item */
} picture_op;

typedef struct item {
    item_kind kind;
    node n;     /* of an input or a result */
    int number; /* of a kernel or a result */
    int layer;
    double x, y, width, height, order;
    picture_op *ops;
    int op_count;
    int *in_row, rows;
    int lanes[2]; /* taken on the left and on the right */
} item;

typedef struct picture {
    const fuse_plan *plan;
    const graph *g;
    arena *memory;
    item *items;
    int count;
    int *writer; /* by node: 1 + the kernel that leaves it in memory; 0: none */
    int layers;
    double width, height;
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

static const picture_op *op_of(const item *box, node n)
{
    for (int i = 0; i < box->op_count; i++)
        if (box->ops[i].n == n) return &box->ops[i];
    return NULL;
}

/* ---- what there is ---- */

static void arrange_ops(picture *p, item *box)
{
    const fuse_kernel *k = &p->plan->kernels[box->number];
    int rows = 0, widest = 0, *in_row;
    box->ops = ARENA_ARRAY(p->memory, picture_op, k->node_count + 1);
    for (int i = 0; i < k->node_count; i++) {
        const graph_node *x = graph_get(p->g, k->nodes[i]);
        if (!is_shown(x)) continue;
        picture_op *op = &box->ops[box->op_count];
        op->n = k->nodes[i];
        for (int a = 0; a < x->input_count; a++) {
            const picture_op *from = op_of(box, x->inputs[a]);
            if (from) op->row = MAXIMUM(op->row, from->row + 1);
        }
        rows = MAXIMUM(rows, op->row + 1);
        box->op_count++;
    }
    in_row = ARENA_ARRAY(p->memory, int, rows + 1);
    for (int i = 0; i < box->op_count; i++) in_row[box->ops[i].row]++;
    for (int r = 0; r < rows; r++) widest = MAXIMUM(widest, in_row[r]);
    box->in_row = in_row;
    box->rows = rows;
    int header = LETTER * (int)(strlen(k->name) + 14);
    double inner = widest * (OP_WIDTH + GAP_X) - GAP_X + (rows > 2 ? 2 * LANES * LANE : 0);
    box->width = MAXIMUM(inner, MAXIMUM(header, 310)) + 2 * MARGIN;
    box->height = HEADER + rows * (OP_HEIGHT + GAP_Y) - (rows ? GAP_Y : 0) + MARGIN;
    int *placed = ARENA_ARRAY(p->memory, int, rows + 1);
    for (int i = 0; i < box->op_count; i++) {
        picture_op *op = &box->ops[i];
        double row_width = in_row[op->row] * (OP_WIDTH + GAP_X) - GAP_X;
        op->x = (box->width - row_width) / 2 + placed[op->row]++ * (OP_WIDTH + GAP_X);
        op->y = HEADER + op->row * (OP_HEIGHT + GAP_Y);
    }
}

/* The array as it stands right above a kernel; NULL: not there. */
static const item *input_above(const picture *p, const item *box, node n)
{
    for (int i = p->plan->kernel_count; i < p->count; i++) {
        const item *it = &p->items[i];
        if (it->kind == ITEM_INPUT && it->n == n && it->layer == box->layer - 1) return it;
    }
    return NULL;
}

static void collect(picture *p, const node *results, int count)
{
    const fuse_plan *plan = p->plan;
    int most = plan->kernel_count + count;
    for (int k = 0; k < plan->kernel_count; k++)
        for (int i = 0; i < plan->kernels[k].node_count; i++)
            most += graph_get(p->g, plan->kernels[k].nodes[i])->input_count;
    p->items = ARENA_ARRAY(p->memory, item, most + 1);
    p->writer = ARENA_ARRAY(p->memory, int, p->g->node_count + 1);
    for (int k = 0; k < plan->kernel_count; k++) {
        const fuse_kernel *kernel = &plan->kernels[k];
        item *box = &p->items[p->count++];
        *box = (item){.kind = ITEM_KERNEL, .number = k, .layer = 1};
        arrange_ops(p, box);
        for (int i = 0; i < kernel->node_count; i++) {
            const graph_node *x = graph_get(p->g, kernel->nodes[i]);
            for (int a = 0; a < x->input_count; a++) {
                int from = p->writer[x->inputs[a]];
                if (from && from - 1 != k) box->layer = MAXIMUM(box->layer, p->items[from - 1].layer + 2);
            }
        }
        for (int w = 0; w < kernel->write_count; w++) p->writer[kernel->writes[w]] = k + 1;
    }
    for (int k = 0; k < plan->kernel_count; k++)
        for (int i = 0; i < plan->kernels[k].node_count; i++) {
            const graph_node *x = graph_get(p->g, plan->kernels[k].nodes[i]);
            for (int a = 0; a < x->input_count; a++) {
                node n = x->inputs[a];
                if (graph_get(p->g, n)->code != GRAPH_LEAF || input_above(p, &p->items[k], n)) continue;
                p->items[p->count++] = (item){.kind = ITEM_INPUT, .n = n, .layer = p->items[k].layer - 1};
            }
        }
    for (int i = 0; i < count; i++) {
        int from = p->writer[results[i]];
        p->items[p->count++] =
            (item){.kind = ITEM_RESULT, .n = results[i], .number = i, .layer = from ? p->items[from - 1].layer + 1 : 1};
    }
    for (int i = 0; i < p->count; i++) {
        p->layers = MAXIMUM(p->layers, p->items[i].layer + 1);
        if (p->items[i].kind == ITEM_KERNEL) continue;
        p->items[i].width = OP_WIDTH + 30;
        p->items[i].height = OP_HEIGHT;
    }
}

/* ---- where it stands ---- */

static bool reads(const picture *p, const item *box, node n)
{
    const fuse_kernel *k = &p->plan->kernels[box->number];
    for (int i = 0; i < k->node_count; i++) {
        const graph_node *x = graph_get(p->g, k->nodes[i]);
        for (int a = 0; a < x->input_count; a++)
            if (x->inputs[a] == n) return true;
    }
    return false;
}

/* The middle of what stands above and is connected. */
static void order_item(const picture *p, item *it)
{
    double sum = 0;
    int count = 0;
    for (int i = 0; i < p->count; i++) {
        const item *other = &p->items[i];
        if (other->layer >= it->layer) continue;
        bool linked = false;
        if (it->kind == ITEM_KERNEL && other->kind == ITEM_INPUT)
            linked = reads(p, it, other->n);
        else if (other->kind == ITEM_KERNEL) {
            const fuse_kernel *k = &p->plan->kernels[other->number];
            for (int w = 0; w < k->write_count && !linked; w++)
                linked = it->kind == ITEM_KERNEL ? reads(p, it, k->writes[w]) : it->n == k->writes[w];
        }
        if (!linked) continue;
        sum += other->x + other->width / 2;
        count++;
    }
    it->order = count ? sum / count : 0;
}

static int by_order(const void *a, const void *b)
{
    const item *x = *(item *const *)a, *y = *(item *const *)b;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    return x < y ? -1 : x > y;
}

static void place_items(picture *p)
{
    item **row = ARENA_ARRAY(p->memory, item *, p->count + 1);
    double *widths = ARENA_ARRAY(p->memory, double, p->layers + 1);
    for (int i = 0; i < p->count; i++) widths[p->items[i].layer] += p->items[i].width + 2 * GAP_X;
    for (int l = 0; l < p->layers; l++) p->width = MAXIMUM(p->width, widths[l] + 2 * MARGIN);
    double y = MARGIN;
    for (int l = 0; l < p->layers; l++) {
        int count = 0;
        double tallest = 0, x = (p->width - widths[l]) / 2 + GAP_X;
        for (int i = 0; i < p->count; i++)
            if (p->items[i].layer == l) {
                order_item(p, &p->items[i]);
                row[count++] = &p->items[i];
            }
        if (!count) continue;
        qsort(row, (size_t)count, sizeof(row[0]), by_order);
        for (int i = 0; i < count; i++) {
            row[i]->x = x;
            row[i]->y = y;
            x += row[i]->width + 2 * GAP_X;
            tallest = MAXIMUM(tallest, row[i]->height);
        }
        y += tallest + LAYER_GAP;
    }
    p->height = y - LAYER_GAP + MARGIN;
}

/* ---- drawing ---- */

/* A line from one point to another by way of vertical stretches. */
typedef struct route {
    double x1, y1, x2, y2;
    struct {
        double x, top, bottom;
    } by[2];
    int count;
} route;

/* The line passes rows first .. last - 1 of a kernel: beside them, where the way is shorter. */
static void pass_rows(item *box, int first, int last, route *r, double top, double bottom)
{
    int widest = 0;
    for (int i = first; i < last; i++) widest = MAXIMUM(widest, box->in_row[i]);
    if (!widest) return;
    double middle = box->x + box->width / 2, away = widest * (OP_WIDTH + GAP_X) / 2.0;
    double lean = r->x1 + r->x2 - 2 * middle;
    int side = lean ? lean > 0 : box->lanes[1] < box->lanes[0];
    away += box->lanes[side]++ % LANES * LANE;
    r->by[r->count].x = side ? middle + away : middle - away;
    r->by[r->count].top = top;
    r->by[r->count++].bottom = bottom;
}

static void draw_route(picture *p, const route *r, const char *class)
{
    double x = r->x1, y = r->y1;
    text_print(p->out, "<path class=\"%s\" d=\"M%.0f %.0f", class, x, y);
    for (int i = 0; i <= r->count; i++) {
        double to_x = i < r->count ? r->by[i].x : r->x2, to_y = i < r->count ? r->by[i].top : r->y2;
        double bend = (y + to_y) / 2;
        text_print(p->out, " C%.0f %.0f %.0f %.0f %.0f %.0f", x, bend, to_x, bend, to_x, to_y);
        if (i < r->count) text_print(p->out, " V%.0f", r->by[i].bottom);
        x = to_x;
        y = i < r->count ? r->by[i].bottom : to_y;
    }
    text_add(p->out, "\"/>\n");
}

/* From an op, down out of its kernel if the line ends elsewhere. */
static route route_from(item *box, const picture_op *op, double x2, double y2, bool leaves)
{
    double bottom = box->y + op->y + OP_HEIGHT;
    route r = {.x1 = box->x + op->x + OP_WIDTH / 2.0, .y1 = bottom, .x2 = x2, .y2 = y2};
    if (leaves) pass_rows(box, op->row + 1, box->rows, &r, bottom + GAP_Y, box->y + box->height);
    return r;
}

static void draw_input(picture *p, item *box, const picture_op *op, node n)
{
    double x2 = box->x + op->x + OP_WIDTH / 2.0, y2 = box->y + op->y;
    const picture_op *inner = op_of(box, n);
    if (inner) {
        route r = route_from(box, inner, x2, y2, false);
        pass_rows(box, inner->row + 1, op->row, &r, r.y1 + GAP_Y, y2 - GAP_Y);
        draw_route(p, &r, "inner");
        return;
    }
    const item *from = input_above(p, box, n);
    item *other = !from && p->writer[n] ? &p->items[p->writer[n] - 1] : NULL;
    inner = other ? op_of(other, n) : NULL;
    route r = {.x2 = x2, .y2 = y2};
    if (from) {
        r.x1 = from->x + from->width / 2;
        r.y1 = from->y + from->height;
    } else if (inner) {
        r = route_from(other, inner, x2, y2, true);
    } else {
        return;
    }
    pass_rows(box, 0, op->row, &r, box->y + HEADER, y2 - GAP_Y);
    draw_route(p, &r, "memory");
}

static void draw_lines(picture *p)
{
    for (int k = 0; k < p->plan->kernel_count; k++) {
        item *box = &p->items[k];
        for (int o = 0; o < box->op_count; o++) {
            const graph_node *x = graph_get(p->g, box->ops[o].n);
            for (int a = 0; a < x->input_count; a++) draw_input(p, box, &box->ops[o], x->inputs[a]);
        }
    }
    for (int i = 0; i < p->count; i++) {
        const item *it = &p->items[i];
        if (it->kind != ITEM_RESULT || !p->writer[it->n]) continue;
        item *from = &p->items[p->writer[it->n] - 1];
        const picture_op *op = op_of(from, it->n);
        if (!op) continue;
        route r = route_from(from, op, it->x + it->width / 2, it->y, true);
        draw_route(p, &r, "memory");
    }
}

static void draw_words(picture *p, double x, double y, const char *class, const char *words)
{
    text_print(p->out, "<text class=\"%s\" x=\"%.0f\" y=\"%.0f\">", class, x, y);
    add_escaped(p->out, words);
    text_add(p->out, "</text>\n");
}

static void draw_op(picture *p, const item *box, const picture_op *op)
{
    const graph_node *x = graph_get(p->g, op->n);
    text type = {0};
    double left = box->x + op->x, top = box->y + op->y;
    bool written = p->writer[op->n] == box->number + 1;
    type_words(p->g, op->n, &type);
    text_print(p->out, "<g><title>%%%u %s", op->n, fuse_op_text(x));
    if (x->label) {
        text_add(p->out, " of ");
        add_escaped(p->out, x->label);
    }
    if (x->site.file) {
        text_add(p->out, ", ");
        add_escaped(p->out, x->site.file);
        text_print(p->out, ":%d", x->site.line);
    }
    text_print(p->out, "</title><rect class=\"%s\" x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"%d\" rx=\"5\"/>\n",
               written ? "op written" : "op", left, top, OP_WIDTH, OP_HEIGHT);
    draw_words(p, left + OP_WIDTH / 2.0, top + 15, "name", fuse_op_text(x));
    draw_words(p, left + OP_WIDTH / 2.0, top + 29, "type", text_get(&type));
    text_add(p->out, "</g>\n");
    text_free(&type);
}

static void draw_box(picture *p, const item *box)
{
    text_print(p->out, "<rect class=\"kernel\" x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" rx=\"8\"/>\n",
               box->x, box->y, box->width, box->height);
}

static void draw_kernel(picture *p, const item *box)
{
    const fuse_kernel *k = &p->plan->kernels[box->number];
    char name[200];
    text facts = {0};
    snprintf(name, sizeof(name), "kernel %d: %s", box->number, k->name);
    draw_words(p, box->x + MARGIN, box->y + 18, "title", name);
    text_add(&facts, "reads ");
    fuse_add_bytes(&facts, k->read_bytes);
    text_add(&facts, ", writes ");
    fuse_add_bytes(&facts, k->written_bytes);
    text_add(&facts, ", saved ");
    fuse_add_bytes(&facts, k->saved_bytes);
    draw_words(p, box->x + MARGIN, box->y + 33, "facts", text_get(&facts));
    text_free(&facts);
    for (int i = 0; i < box->op_count; i++) draw_op(p, box, &box->ops[i]);
}

static void draw_array(picture *p, const item *it, const char *const *names, int name_count)
{
    text type = {0};
    char words[64];
    type_words(p->g, it->n, &type);
    text_print(p->out, "<rect class=\"array\" x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" rx=\"18\"/>\n",
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
    place_items(&p);
    text_print(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\">\n",
               p.width, p.height, p.width, p.height);
    text_add(out, "<style>\n"
                  "text { font: 12px sans-serif; fill: #222 }\n"
                  ".name { text-anchor: middle } .type { text-anchor: middle; font-size: 10px; fill: #666 }\n"
                  ".title { font-weight: bold } .facts { font-size: 11px; fill: #666 }\n"
                  ".kernel { fill: #eef3fb; stroke: #4a6fa5 } .op { fill: #fff; stroke: #999 }\n"
                  ".written { stroke: #4a6fa5; stroke-width: 2 } .array { fill: #fff7e0; stroke: #b58900 }\n"
                  "path { fill: none } .inner { stroke: #aaa } .memory { stroke: #b58900; stroke-width: 2 }\n"
                  "</style>\n"
                  "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
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
