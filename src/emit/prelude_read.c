/*
 * The prelude's files as parts. In: the text of a folder of prelude/, as the build embeds it. Out: its parts.
 *
 *   //@ part load_$t            a part begins, by this name
 *   //@ for f32 f64             the types it is instantiated for, where its name has a $t
 *   //@ needs lanes_$t words    parts that come before it; may stand on several lines
 *   text, up to the next empty line
 *
 * What stands outside of parts is for the reader. Parts point into the text: nothing is allocated.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_parts.h"

#include <string.h>

static bool begins(const char *line, const char *words)
{
    return !strncmp(line, words, strlen(words));
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    CHECK(end); /* the build's files end with a line */
    return end + 1;
}

/* The lines that begin with `words`, in whole: prelude_word passes over what they begin with. */
static prelude_span lines_of(const char **at, const char *words)
{
    prelude_span s = {*at, 0};
    while (begins(*at, words)) *at = next_line(*at);
    s.length = (size_t)(*at - s.start);
    return s;
}

int prelude_read(const char *text, prelude_part *parts, int most)
{
    int count = 0;
    for (const char *at = text; *at;) {
        if (!begins(at, "//@ part ")) {
            at = next_line(at);
            continue;
        }
        CHECK(count < most);
        prelude_part *p = &parts[count++];
        p->name = (prelude_span){at + 9, strcspn(at + 9, " \n")};
        at = next_line(at);
        p->types = lines_of(&at, "//@ for ");
        p->needs = lines_of(&at, "//@ needs ");
        p->text.start = at;
        while (*at && *at != '\n') at = next_line(at);
        p->text.length = (size_t)(at - p->text.start);
    }
    return count;
}

bool prelude_word(const char **at, const char *end, prelude_span *word)
{
    for (const char *p = *at; p < end;) {
        size_t size = 0;
        while (p + size < end && p[size] != ' ' && p[size] != '\n') size++;
        if (size == 3 && !memcmp(p, "//@", 3)) { /* and the word after it, for or needs */
            p += 4;
            while (p < end && *p != ' ') p++;
        } else if (size) {
            *word = (prelude_span){p, size};
            *at = p + size;
            return true;
        } else {
            p++;
        }
    }
    return false;
}

const prelude_part *prelude_find(const prelude_part *parts, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (parts[i].name.length == strlen(name) && !memcmp(parts[i].name.start, name, parts[i].name.length))
            return &parts[i];
    return NULL;
}
