/*
 * The picture of a fused plan, read as a reader sees it: its lines are sampled, and what crosses, what runs over words or
 * through a box that it does not belong to, and what leaves the page is counted.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "test.h"

#include <math.h>
#include <quern/quern.h>
#include <quern/workbench.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_LINES = 2000, MOST_RECTANGLES = 2000, MOST_POINTS = 64, STEPS = 20 };

typedef struct line {
    int value, count;
    double x[MOST_POINTS], y[MOST_POINTS];
} line;

typedef struct rectangle {
    char look[24];
    double x, y, width, height;
} rectangle;

static line lines[MOST_LINES];
static rectangle rectangles[MOST_RECTANGLES];
static int line_count, rectangle_count;
static double page_width, page_height;
static qn_error error;

static void keep(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

static void add_point(line *l, double x, double y)
{
    if (l->count < MOST_POINTS) l->x[l->count] = x, l->y[l->count++] = y;
}

static void read_line(const char *at, line *l)
{
    double x = 0, y = 0;
    *l = (line){.value = atoi(strstr(at, "data-value=\"") + 12)};
    for (at = strstr(at, " d=\"") + 4; *at && *at != '"';) {
        char *end, verb = *at++;
        if (verb == ' ') continue;
        double n[6] = {0};
        for (int i = 0; i < (verb == 'C' ? 6 : verb == 'M' ? 2 : 1); i++) n[i] = strtod(at, &end), at = end;
        if (verb == 'M') add_point(l, x = n[0], y = n[1]);
        if (verb == 'V') add_point(l, x, y = n[0]);
        for (int i = 1; verb == 'C' && i <= STEPS; i++) {
            double t = (double)i / STEPS, u = 1 - t;
            add_point(l, u * u * u * x + 3 * u * u * t * n[0] + 3 * u * t * t * n[2] + t * t * t * n[4],
                      u * u * u * y + 3 * u * u * t * n[1] + 3 * u * t * t * n[3] + t * t * t * n[5]);
        }
        if (verb == 'C') x = n[4], y = n[5];
    }
}

static double attribute(const char *at, const char *name)
{
    char words[32];
    snprintf(words, sizeof(words), " %s=\"", name);
    const char *found = strstr(at, words);
    return found ? strtod(found + strlen(words), NULL) : NAN;
}

static void read_picture(const char *svg)
{
    line_count = rectangle_count = 0;
    page_width = attribute(svg, "width");
    page_height = attribute(svg, "height");
    for (const char *at = svg; (at = strstr(at, "<path ")); at++)
        if (line_count < MOST_LINES) read_line(at, &lines[line_count++]);
    for (const char *at = svg; (at = strstr(at, "<rect class=\"")); at++) {
        rectangle *r = &rectangles[rectangle_count++];
        snprintf(r->look, sizeof(r->look), "%.*s", (int)strcspn(at + 13, "\""), at + 13);
        r->x = attribute(at, "x"), r->y = attribute(at, "y");
        r->width = attribute(at, "width"), r->height = attribute(at, "height");
    }
    for (const char *at = svg; (at = strstr(at, "<text class=\""));
         at++) { /* words: as wide as their letters at most */
        const char *words = strchr(at, '>') + 1;
        bool left = !strncmp(at + 13, "title", 5) || !strncmp(at + 13, "facts", 5);
        if (!left) continue; /* others stand in boxes */
        rectangle *r = &rectangles[rectangle_count++];
        *r = (rectangle){"words", attribute(at, "x"), attribute(at, "y") - 10, 7.5 * (double)strcspn(words, "<"), 12};
    }
}

static double side(double ax, double ay, double bx, double by, double cx, double cy)
{
    return (bx - ax) * (cy - ay) - (by - ay) * (cx - ax);
}

static bool cross(const line *a, const line *b)
{
    for (int i = 0; i + 1 < a->count; i++)
        for (int k = 0; k + 1 < b->count; k++) {
            if (side(a->x[i], a->y[i], a->x[i + 1], a->y[i + 1], b->x[k], b->y[k]) *
                        side(a->x[i], a->y[i], a->x[i + 1], a->y[i + 1], b->x[k + 1], b->y[k + 1]) <
                    0 &&
                side(b->x[k], b->y[k], b->x[k + 1], b->y[k + 1], a->x[i], a->y[i]) *
                        side(b->x[k], b->y[k], b->x[k + 1], b->y[k + 1], a->x[i + 1], a->y[i + 1]) <
                    0)
                return true;
        }
    return false;
}

static int crossings(void)
{
    int count = 0;
    for (int i = 0; i < line_count; i++)
        for (int k = i + 1; k < line_count; k++)
            count += lines[i].value != lines[k].value && cross(&lines[i], &lines[k]);
    return count;
}

/* Points of lines inside what is no kernel's box, and words or boxes over each other or off the page. */
static int collisions(void)
{
    int count = 0;
    for (int r = 0; r < rectangle_count; r++) {
        const rectangle *b = &rectangles[r];
        count += b->x < 0 || b->y < 0 || b->x + b->width > page_width || b->y + b->height > page_height;
        if (!strcmp(b->look, "kernel")) continue;
        for (int i = 0; i < line_count; i++)
            for (int k = 0; k < lines[i].count; k++)
                count += lines[i].x[k] > b->x + 1 && lines[i].x[k] < b->x + b->width - 1 && lines[i].y[k] > b->y + 1 &&
                         lines[i].y[k] < b->y + b->height - 1;
        for (int k = r + 1; k < rectangle_count; k++) {
            const rectangle *c = &rectangles[k];
            if (!strcmp(c->look, "kernel")) continue;
            count += b->x < c->x + c->width && c->x < b->x + b->width && b->y < c->y + c->height - 1 &&
                     c->y < b->y + b->height - 1;
        }
    }
    return count;
}

static const char source[] =
    "tensor mlp(float x[B][D], float w1[D][H], float b1[H], float w2[H][E], float b2[E])\n"
    "{\n"
    "    let h = gelu(x @ w1 + b1[][:]);\n"
    "    return h @ w2 + b2[][:];\n"
    "}\n"
    "tensor loss(float x[B][D], float w1[D][H], float b1[H], float w2[H][E], float b2[E], float y[B][E])\n"
    "{\n"
    "    return mse_loss(mlp(x, w1, b1, w2, b2), y);\n"
    "}\n"
    "tensor classes(float x[B][D], float w1[D][H], float b1[H], float w2[H][E], float b2[E], i64 y[B])\n"
    "{\n"
    "    return cross_entropy(mlp(x, w1, b1, w2, b2), y);\n"
    "}\n"
    "tensor deep(float x[B][H], float w[4][H][H], float b[4][H])\n"
    "{\n"
    "    let a = relu(x @ w[0][:][:] + b[0][][:]);\n"
    "    let c = relu(a @ w[1][:][:] + b[1][][:]) + x;\n"
    "    let d = relu(c @ w[2][:][:] + b[2][][:]) + a;\n"
    "    return relu(d @ w[3][:][:] + b[3][][:]) + c;\n"
    "}\n"
    "tensor same(float x[B]) { return x, x + 1; }\n";

static char path[64];
static qn_context *context;

static void draw(const char *name, const char *mode, bool backward)
{
    static const char *const sizes[] = {"B=64", "D=32", "H=128", "E=16"};
    static const char *const hidden[] = {"B=64", "H=128"};
    static const char *const batch[] = {"B=64"};
    char full[64];
    text out = {0};
    qn_show_options options = {.dot = true, .backward = backward, .settings = {sizes, 4}};
    if (!strcmp(name, "deep")) options.settings = (qn_settings){hidden, 2};
    if (!strcmp(name, "same")) options.settings = (qn_settings){batch, 1};
    snprintf(full, sizeof(full), "%s%s", mode, name);
    qn_status status = qn_show(context, path, full, &options, keep, &out, &error);
    if (status != QN_OK) printf("%s\n", error.message);
    EXPECT(status == QN_OK);
    read_picture(text_get(&out));
    text_free(&out);
}

TEST(open_context)
{
    snprintf(path, sizeof(path), "/tmp/quern-picture-XXXXXX.qn");
    int file = mkstemps(path, 3);
    EXPECT(file >= 0 && write(file, source, strlen(source)) == (ssize_t)strlen(source));
    close(file);
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
}

TEST(two_layers)
{
    for (int backward = 0; backward < 2; backward++) {
        draw("mlp", "", backward);
        EXPECT(line_count > 12 && crossings() == 0 && collisions() == 0);
        draw("loss", "", backward);
        EXPECT(line_count > 15 && crossings() == 0 && collisions() == 0);
        draw("classes", "", backward);
        EXPECT(line_count > 20 && crossings() <= backward && collisions() == 0);
    }
}

/* One kernel for each operation: values pass many layers. */
TEST(many_kernels)
{
    draw("loss", "eager ", false);
    EXPECT(line_count > 15 && crossings() == 0 && collisions() == 0);
    draw("loss", "eager ", true);
    EXPECT(line_count > 50 && crossings() <= 1 && collisions() == 0);
}

TEST(ways_around)
{
    draw("deep", "", false);
    EXPECT(line_count > 20 && crossings() == 0 && collisions() == 0);
    draw("deep", "", true);
    EXPECT(line_count > 50 && crossings() <= 24 && collisions() == 0);
    draw("same", "", false); /* a result that is an input */
    EXPECT(line_count > 1 && crossings() == 0 && collisions() == 0);
}

TEST(close_context)
{
    qn_context_close(context);
    unlink(path);
}

TEST_MAIN(CASE(open_context), CASE(two_layers), CASE(many_kernels), CASE(ways_around), CASE(close_context))
