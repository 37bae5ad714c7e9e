/*
 * Hints as text and as JSON. In: a list. Out: for each what it would save, where, what was seen and how, what to try.
 * SPDX-License-Identifier: MIT
 */
#include "profile/hints/hints.h"
#include "profile/profile.h"

#include <math.h>
#include <string.h>

static void put_gain(const hint *h, text *out)
{
    text_print(out, "up to %.0f%% of ", h->gain * 100);
    text_add(out, h->of ? "its time" : "the run");
    if (!(h->gain_ns > 0)) return;
    text_add(out, ", ");
    text_add_duration(out, h->gain_ns);
}

/* Words in lines of 100 columns, indented. */
static void put_wrapped(const char *words, const char *head, text *out)
{
    int column = 4 + (int)strlen(head);
    text_print(out, "    %s", head);
    for (const char *at = words; *at;) {
        int length = (int)strcspn(at, " ");
        if (column + length > 100) {
            text_add(out, "\n        ");
            column = 8;
        }
        text_print(out, "%.*s", length, at);
        column += length + 1;
        at += length;
        while (*at == ' ') at++;
        if (*at && column + (int)strcspn(at, " ") <= 100) text_add(out, " ");
    }
    text_add(out, "\n");
}

void hints_print(const hint_list *list, int most, bool colour, text *out)
{
    int count = most > 0 ? MINIMUM(most, list->count) : list->count;
    for (int i = 0; i < count; i++) {
        const hint *h = &list->items[i];
        text_print(out, "%d. %s%s%s", i + 1, colour ? "\033[1m" : "", h->title, colour ? "\033[0m" : "");
        if (h->kernel) text_print(out, ": %s", h->kernel);
        if (h->file && h->line) text_print(out, " (%s:%d)", h->file, h->line);
        text_add(out, " - ");
        put_gain(h, out);
        text_print(out, " [%s]\n", h->rule);
        put_wrapped(h->what, "", out);
        if (h->evidence) put_wrapped(h->evidence, "seen: ", out);
        put_wrapped(h->advice, "try: ", out);
    }
    if (count < list->count) text_print(out, "%d more with less to win\n", list->count - count);
}

void hints_print_json(const hint_list *list, text *out)
{
    json j = {0};
    for (int i = 0; i < list->count; i++) {
        const hint *h = &list->items[i];
        json_open_object(&j);
        json_text(&j, "rule", h->rule);
        json_text(&j, "title", h->title);
        json_text(&j, "scope", h->of ? "kernel" : "run");
        json_text(&j, "kernel", h->kernel);
        json_text(&j, "device", h->device);
        json_text(&j, "shapes", h->shapes);
        json_text(&j, "file", h->file);
        json_whole(&j, "line", h->line);
        json_number(&j, "gain", h->gain);
        json_number(&j, "gain_ns", h->gain_ns);
        json_number(&j, "gain_share", h->gain_share);
        json_text(&j, "what", h->what);
        json_text(&j, "evidence", h->evidence);
        json_text(&j, "advice", h->advice);
        json_close_object(&j);
    }
    text_add(out, json_finish(&j));
    json_free(&j);
}

qn_status qn_profile_hints(const qn_profile *profile, const qn_hint_options *options, qn_write *write, void *user,
                           qn_error *error)
{
    HEAP_ENTER(error);
    const qn_hint_options all = {0};
    if (!profile || !write) return error_set(error, QN_BAD_CALL, "qn_profile_hints: an argument is NULL");
    if (!options) options = &all;
    arena *memory = arena_new();
    hint_input input;
    hint_list list;
    text out = {0};
    hints_from_profile(profile, options, memory, &input);
    hints_find(&input, &list);
    if (options->json)
        hints_print_json(&list, &out);
    else
        hints_print(&list, options->most, options->colour, &out);
    if (out.length) write(user, text_get(&out), out.length);
    text_free(&out);
    arena_free(memory);
    return QN_OK;
}
