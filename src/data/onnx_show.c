/*
 * An ONNX model to look at. In: its graph. Out: a table of what is computed, or a picture as SVG.
 *
 * The picture: nodes in layers by the longest way from the inputs, drawn so that few lines cross (run/evaluate/layered.h) and none
 * runs through a box; parameters stand in the box that reads them, with their shapes; lines go along which values flow. The file's words are data: what no page or terminal should obey is escaped.
 * SPDX-License-Identifier: MIT
 */
#include "data/onnx.h"
#include "run/evaluate/layered.h"

#include <quern/workbench.h>

#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT_BYTES ((size_t)2 << 30) /* protobuf's own */
enum { BOX_WIDTH = 190, LINE = 15, GAP_X = 24, GAP_Y = 44, MARGIN = 24, MOST_LETTERS = 30, MOST_PARAMETERS = 4 };
enum { MOST_LINES = MOST_PARAMETERS + 2 };
#define LEAST_SCALE 0.33 /* below it letters of 12 pixels are mere dots */

typedef struct box {
    const char *look; /* its class of the style */
    const char *lines[MOST_LINES];
    int line_count, layer;
    double x, y;
} box;

typedef struct picture {
    const onnx_graph *g;
    text *out;
    box *boxes; /* inputs, then nodes, then outputs */
    int count;
    double width, height, *tops, *bottoms; /* of each layer */
    layered drawing;                       /* its first nodes are the boxes */
} picture;

/* Words of the file that no terminal obeys, on one line. */
static const char *harmless(const onnx_graph *g, const char *words)
{
    text safe = {0};
    text_add_escaped(&safe, ESCAPE_SCREEN, words, strlen(words));
    char *copy = arena_copy_text(g->memory, text_get(&safe), safe.length);
    for (char *p = copy; *p; p++)
        if (*p == '\n' || *p == '\t') *p = ' ';
    text_free(&safe);
    return copy;
}

static const char *type_words(const onnx_graph *g, const onnx_value *v)
{
    text words = {0};
    text_add(&words, onnx_elem_name(v->elem));
    if (v->rank >= 0) text_add(&words, " [");
    for (int k = 0; k < v->rank; k++) text_print(&words, "%s%s", k ? ", " : "", v->axes[k]);
    if (v->rank >= 0) text_add(&words, "]");
    const char *copy = harmless(g, text_get(&words));
    text_free(&words);
    return copy;
}

/* ---- table ---- */

static void print_values(const onnx_graph *g, const char *title, onnx_value *const *values, int count, text *out)
{
    for (int i = 0; i < count; i++)
        text_print(out, "%-8s %s  %s\n", i ? "" : title, harmless(g, values[i]->name), type_words(g, values[i]));
}

void onnx_print(const onnx_graph *g, text *out)
{
    text_print(out, "model    %s, opset %lld, %d nodes, %lld parameters",
               *g->name ? harmless(g, g->name) : "without a name", (long long)g->opset, g->node_count,
               (long long)g->parameter_count);
    if (*g->producer) text_print(out, ", from %s", harmless(g, g->producer));
    text_add(out, "\n");
    print_values(g, "inputs", g->inputs, g->input_count, out);
    print_values(g, "outputs", g->outputs, g->output_count, out);
    for (int i = 0; i < g->node_count; i++) {
        const onnx_node *n = &g->nodes[i];
        text_print(out, "%-8s %-18s ", i ? "" : "nodes", harmless(g, n->op));
        for (int a = 0; a < n->input_count; a++) {
            const onnx_value *v = n->inputs[a];
            if (a) text_add(out, ", ");
            if (v) text_add(out, harmless(g, v->name));
            if (v && v->is_initializer) text_print(out, " %s", type_words(g, v));
        }
        text_add(out, " -> ");
        for (int a = 0; a < n->output_count; a++)
            text_print(out, "%s%s", a ? ", " : "", n->outputs[a] ? harmless(g, n->outputs[a]->name) : "");
        text_add(out, "\n");
    }
}

/* ---- picture ---- */

static void add_page(text *out, const char *words)
{
    int letters = 0;
    for (const char *p = words; *p; letters++) {
        if (letters == MOST_LETTERS) {
            text_add(out, "\xe2\x80\xa6");
            return;
        }
        int length = MAXIMUM(utf8_length(p, strlen(p)), 1);
        text_add_escaped(out, ESCAPE_PAGE, p, (size_t)length);
        p += length;
    }
}

static double box_height(const box *b)
{
    return b->line_count * LINE + 12;
}

/* The box whose value this is; NULL: a parameter, or nobody makes it. A node reads only what was made before it. */
static const box *source_of(const picture *p, const onnx_value *v, int before)
{
    if (!v || v->is_initializer) return NULL;
    if (v->producer >= 0) return v->producer < before ? &p->boxes[p->g->input_count + v->producer] : NULL;
    for (int i = 0; i < p->g->input_count; i++)
        if (p->g->inputs[i] == v) return &p->boxes[i];
    return NULL;
}

static void describe_value(const picture *p, box *b, const onnx_value *v, const char *look)
{
    b->look = look;
    b->lines[b->line_count++] = harmless(p->g, v->name);
    b->lines[b->line_count++] = type_words(p->g, v);
}

static void describe_node(const picture *p, box *b, const onnx_node *n)
{
    int parameters = 0;
    b->look = "node";
    b->lines[b->line_count++] = harmless(p->g, n->op);
    for (int a = 0; a < n->input_count; a++) {
        const onnx_value *v = n->inputs[a];
        if (!v || !v->is_initializer) continue;
        if (parameters++ < MOST_PARAMETERS)
            b->lines[b->line_count++] =
                arena_print(p->g->memory, "%s %s", harmless(p->g, v->name), type_words(p->g, v));
    }
    if (parameters > MOST_PARAMETERS)
        b->lines[b->line_count++] = arena_print(p->g->memory, "and %d more", parameters - MOST_PARAMETERS);
}

/* A box stands below what it reads. */
static void place(picture *p, box *b, onnx_value *const *reads, int count, int before)
{
    for (int a = 0; a < count; a++) {
        const box *from = source_of(p, reads[a], before);
        if (from) b->layer = MAXIMUM(b->layer, from->layer + 1);
    }
}

static void join(picture *p, int to, onnx_value *const *reads, int count, int before)
{
    int known = 0, number = 0;
    for (int a = 0; a < count; a++) known += source_of(p, reads[a], before) != NULL;
    for (int a = 0; a < count; a++) {
        const box *from = source_of(p, reads[a], before);
        if (!from) continue;
        int source = (int)(from - p->boxes);
        double end = BOX_WIDTH * (++number) / (known + 1.0);
        layered_join(&p->drawing, source, source, BOX_WIDTH / 2.0, to, end);
    }
}

static void arrange(picture *p)
{
    const onnx_graph *g = p->g;
    int outputs = g->input_count + g->node_count, layers = 1;
    for (int i = 0; i < g->input_count; i++) describe_value(p, &p->boxes[i], g->inputs[i], "input");
    for (int i = 0; i < g->node_count; i++) {
        box *b = &p->boxes[g->input_count + i];
        describe_node(p, b, &g->nodes[i]);
        place(p, b, g->nodes[i].inputs, g->nodes[i].input_count, i);
    }
    for (int i = 0; i < g->output_count; i++) {
        describe_value(p, &p->boxes[outputs + i], g->outputs[i], "output");
        place(p, &p->boxes[outputs + i], &g->outputs[i], 1, g->node_count);
    }
    p->drawing.memory = g->memory;
    for (int i = 0; i < p->count; i++) {
        layered_add(&p->drawing, p->boxes[i].layer, BOX_WIDTH);
        layers = MAXIMUM(layers, p->boxes[i].layer + 1);
    }
    for (int i = 0; i < g->node_count; i++) join(p, g->input_count + i, g->nodes[i].inputs, g->nodes[i].input_count, i);
    for (int i = 0; i < g->output_count; i++) join(p, outputs + i, &g->outputs[i], 1, g->node_count);
    layered_order(&p->drawing, false, false);
    p->width = MAXIMUM(p->width, layered_place(&p->drawing, GAP_X) + 2 * MARGIN);
    p->tops = ARENA_ARRAY(g->memory, double, layers + 1);
    p->bottoms = ARENA_ARRAY(g->memory, double, layers + 1);
    for (int i = 0; i < p->drawing.node_count; i++) p->drawing.nodes[i].x += MARGIN;
    for (int i = 0; i < p->count; i++) {
        box *b = &p->boxes[i];
        b->x = p->drawing.nodes[i].x;
        p->bottoms[b->layer] = MAXIMUM(p->bottoms[b->layer], box_height(b)); /* its height, so far */
    }
    double y = MARGIN;
    for (int r = 0; r < layers; r++) {
        p->tops[r] = y;
        p->bottoms[r] += y;
        y = p->bottoms[r] + GAP_Y;
    }
    for (int i = 0; i < p->count; i++) p->boxes[i].y = p->tops[p->boxes[i].layer];
    p->height = y - GAP_Y + MARGIN;
}

static void draw_lines(const picture *p)
{
    for (int i = 0; i < p->drawing.link_count; i++) {
        const layered_link *k = &p->drawing.links[i];
        const layered_node *from = &p->drawing.nodes[k->from], *to = &p->drawing.nodes[k->to];
        double x = from->x + k->from_at, end = to->x + k->to_at;
        double y = from->passes ? p->tops[from->rank] : p->boxes[k->from].y + box_height(&p->boxes[k->from]);
        double top = p->bottoms[from->rank], below = p->tops[to->rank], bend = (top + below) / 2;
        text_print(p->out, "<path data-value=\"%d\" d=\"M%.1f %.1f V%.1f C%.1f %.1f %.1f %.1f %.1f %.1f\"/>\n",
                   k->value, x, y, top, x, bend, end, bend, end, below);
    }
}

static void draw_box(const picture *p, const box *b)
{
    text_print(p->out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" rx=\"6\"/>\n", b->look,
               b->x, b->y, BOX_WIDTH, box_height(b));
    for (int i = 0; i < b->line_count; i++) {
        text_print(p->out, "<text%s x=\"%.1f\" y=\"%.1f\">", i ? " class=\"small\"" : "", b->x + BOX_WIDTH / 2.0,
                   b->y + 17 + i * LINE);
        add_page(p->out, b->lines[i]);
        text_add(p->out, "</text>\n");
    }
}

void onnx_picture(const onnx_graph *g, text *out)
{
    picture p = {.g = g, .out = out, .count = g->input_count + g->node_count + g->output_count};
    p.boxes = ARENA_ARRAY(g->memory, box, p.count + 1);
    p.width = BOX_WIDTH + 2 * MARGIN;
    arrange(&p);
    text_print(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\">\n"
               "<style>\n"
               "text { font: 600 12px sans-serif; fill: #222; text-anchor: middle } .small { font: 10px sans-serif; "
               "fill: #555 }\n"
               "path { fill: none; stroke: #8795a8; stroke-width: 1.5 } .node { fill: #eef3fb; stroke: #4a6fa5 }\n"
               ".input { fill: #fff7e0; stroke: #b58900 } .output { fill: #e9f7ec; stroke: #3a8a4d }\n"
               "svg { max-width: 100%%; height: auto } svg:root { min-width: %.0fpx; background: #fff } #sheet { fill: "
               "#fff }\n" /* on a small screen it scrolls before it is too small to read */
               "@media (prefers-color-scheme: dark) { svg:root { background: #14171a } #sheet { fill: #14171a } text { "
               "fill: #e6e8ea } .small { fill: "
               "#9aa3ad }\n"
               ".node { fill: #1e2a3a } .input { fill: #3a3010 } .output { fill: #15301d } }\n"
               "</style>\n<rect id=\"sheet\" width=\"100%%\" height=\"100%%\"/>\n<title>",
               p.width, p.height, p.width, p.height, LEAST_SCALE * p.width);
    add_page(out, *g->name ? harmless(g, g->name) : "an ONNX model");
    text_add(out, "</title>\n");
    draw_lines(&p);
    for (int i = 0; i < p.count; i++) draw_box(&p, &p.boxes[i]);
    text_add(out, "</svg>\n");
}

QN_API qn_status qn_show_onnx(const char *path, bool picture, qn_write *write, void *user, qn_error *error)
{
    HEAP_ENTER(error);
    if (!path || !write) return error_set(error, QN_BAD_CALL, "qn_show_onnx needs a path and a function that writes");
    char *bytes;
    size_t size;
    QN_TRY(file_read(path, FILE_LIMIT_BYTES, &bytes, &size, error));
    arena *memory = arena_new();
    onnx_graph g;
    qn_status status = onnx_read(memory, path, bytes, size, &g, error);
    text out = {0};
    if (status == QN_OK) (picture ? onnx_picture : onnx_print)(&g, &out);
    if (status == QN_OK) write(user, text_get(&out), out.length);
    text_free(&out);
    arena_free(memory);
    heap_free(bytes);
    return status;
}
