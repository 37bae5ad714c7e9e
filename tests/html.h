/*
 * A small reader of the report's page, for tests: are its tags well formed and closed, is its data JSON, does it name
 * anything outside itself?
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_HTML_H
#define QUERN_TESTS_HTML_H

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON ---- */

static inline const char *json_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static inline const char *json_string(const char *at)
{
    for (at++; *at != '"'; at++) {
        if ((unsigned char)*at < 0x20) return NULL;
        if (*at == '\\' && !strchr("\"\\/bfnrtu", *++at)) return NULL;
    }
    return at + 1;
}

/* The end of one value, or NULL where it is not JSON. */
static inline const char *json_value(const char *at, int depth)
{
    static const char *const words[] = {"true", "false", "null"};
    at = json_space(at);
    if (depth > 50) return NULL;
    if (*at == '"') return json_string(at);
    if (*at == '[' || *at == '{') {
        bool object = *at == '{';
        char close = object ? '}' : ']';
        at = json_space(at + 1);
        if (*at == close) return at + 1;
        for (;;) {
            if (object) {
                at = json_space(at);
                if (*at != '"' || !(at = json_string(at))) return NULL;
                at = json_space(at);
                if (*at++ != ':') return NULL;
            }
            if (!(at = json_value(at, depth + 1))) return NULL;
            at = json_space(at);
            if (*at == close) return at + 1;
            if (*at++ != ',') return NULL;
        }
    }
    for (int i = 0; i < 3; i++)
        if (!strncmp(at, words[i], strlen(words[i]))) return at + strlen(words[i]);
    char *end;
    if (*at != '-' && !isdigit((unsigned char)*at)) return NULL;
    (void)strtod(at, &end);
    return end > at ? end : NULL;
}

/* ---- HTML ---- */

typedef struct html_page {
    char open[64][24]; /* tags that are not closed yet */
    int depth;
    char message[200]; /* what is wrong; "" */
    const char *data;  /* the JSON */
} html_page;

static inline bool html_wrong(html_page *p, const char *what, const char *at)
{
    if (!p->message[0]) snprintf(p->message, sizeof(p->message), "%s: %.80s", what, at);
    return false;
}

static inline bool html_is_void(const char *name)
{
    static const char *const list[] = {"meta", "input", "br", "wbr", "link", "img"};
    for (int i = 0; i < 5; i++)
        if (!strcmp(list[i], name)) return true;
    return false;
}

/* One tag from `<` on; *after is behind its `>`. */
static inline bool html_tag(html_page *p, const char *from, const char **after)
{
    char name[24] = "";
    bool closing = from[1] == '/';
    const char *at = from + 1 + closing;
    size_t length = strcspn(at, " \n\t/>");
    if (!length || length >= sizeof(name)) return html_wrong(p, "no name of a tag", from);
    memcpy(name, at, length);
    at += length;
    for (;;) {
        at += strspn(at, " \n\t");
        if (*at == '>' || (*at == '/' && at[1] == '>')) break;
        size_t word = strcspn(at, " \n\t=>/\"<");
        if (!word) return html_wrong(p, "an attribute", from);
        const char *attribute = at;
        at += word;
        if (*at != '=') continue;
        if (at[1] != '"') return html_wrong(p, "a value without quotes", from);
        const char *value = at + 2, *end = strchr(value, '"');
        if (!end) return html_wrong(p, "a value without end", from);
        bool reference = (word == 3 && !strncmp(attribute, "src", 3)) || (word == 4 && !strncmp(attribute, "href", 4));
        if (reference && *value != '#') return html_wrong(p, "a reference to the outside", from);
        if (memchr(value, '<', (size_t)(end - value))) return html_wrong(p, "`<` in a value", from);
        at = end + 1;
    }
    bool alone = *at == '/' || html_is_void(name);
    *after = at + (*at == '/' ? 2 : 1);
    if (closing) {
        if (!p->depth || strcmp(p->open[p->depth - 1], name) != 0) return html_wrong(p, "closed but not open", from);
        p->depth--;
    } else if (!alone) {
        if (p->depth == 64) return html_wrong(p, "too deep", from);
        snprintf(p->open[p->depth++], sizeof(p->open[0]), "%s", name);
    }
    return true;
}

/* True if the page is whole; else p->message says what is not. */
static inline bool html_check(html_page *p, const char *page)
{
    *p = (html_page){.depth = 0};
    static const char begin[] = "<!DOCTYPE html>";
    if (strncmp(page, begin, strlen(begin)) != 0) return html_wrong(p, "no document type", page);
    if (strstr(page, "@import") || strstr(page, "url(")) return html_wrong(p, "a style from outside", "");
    if (strstr(page, "fetch(") || strstr(page, "XMLHttpRequest")) return html_wrong(p, "a script that loads", "");
    if (!strstr(page, "default-src 'none'")) return html_wrong(p, "no policy", "");
    for (const char *at = page + strlen(begin); *at;) {
        const char *next = at + strcspn(at, "<>");
        if (*next == '>') return html_wrong(p, "a bare >", next);
        if (!*next) break;
        if (!html_tag(p, next, &at)) return false;
        const char *open = p->depth ? p->open[p->depth - 1] : "";
        if (strcmp(open, "script") != 0 && strcmp(open, "style") != 0) continue;
        if (next[1] == '/') continue;
        char end[16];
        snprintf(end, sizeof(end), "</%s>", open);
        const char *close = strstr(at, end);
        if (!close) return html_wrong(p, "a script or style without end", next);
        if (!strncmp(next, "<script type=\"application/json\"", 31)) {
            const char *stop = json_value(at, 0);
            p->data = at;
            if (!stop || json_space(stop) != close) return html_wrong(p, "the data is not JSON", stop ? stop : at);
            if (memchr(at, '<', (size_t)(close - at))) return html_wrong(p, "`<` in the data", at);
        }
        at = close;
    }
    if (p->depth) return html_wrong(p, "not closed", p->open[p->depth - 1]);
    return true;
}

#endif
