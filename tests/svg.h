/*
 * Pictures as a reader sees them: the lines of an SVG are sampled, and what crosses, what runs over words or through a box
 * that it does not belong to, and what leaves the page is counted.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_SVG_H
#define QUERN_TESTS_SVG_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static inline void add_point(line *l, double x, double y)
{
    if (l->count < MOST_POINTS) l->x[l->count] = x, l->y[l->count++] = y;
}

static inline void read_line(const char *at, line *l)
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

static inline double attribute(const char *at, const char *name)
{
    char words[32];
    snprintf(words, sizeof(words), " %s=\"", name);
    const char *found = strstr(at, words);
    return found ? strtod(found + strlen(words), NULL) : NAN;
}

static inline void read_picture(const char *svg)
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

static inline double side(double ax, double ay, double bx, double by, double cx, double cy)
{
    return (bx - ax) * (cy - ay) - (by - ay) * (cx - ax);
}

static inline bool cross(const line *a, const line *b)
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

static inline int crossings(void)
{
    int count = 0;
    for (int i = 0; i < line_count; i++)
        for (int k = i + 1; k < line_count; k++)
            count += lines[i].value != lines[k].value && cross(&lines[i], &lines[k]);
    return count;
}

/* Points of lines inside what is no kernel's box, and words or boxes over each other or off the page. */
static inline int collisions(void)
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

#endif
