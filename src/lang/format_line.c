/*
 * Lines and comments of `quern fmt`. In: words, with the points where a line may break. Out: laid out lines.
 *
 * A line is built whole and laid out when it is complete: as it is if it fits, else broken at the outermost points and
 * aligned inside the bracket they belong to.
 * SPDX-License-Identifier: MIT
 */
#include "lang/format.h"

void print_word(printer *p, const char *words)
{
    text_add(&p->line, words);
}

/* `space.name` for a name of an imported file. */
void print_name(printer *p, const char *name)
{
    for (int i = 0; i < p->file->space_count; i++) {
        size_t length = strlen(p->file->spaces[i]);
        if (strncmp(name, p->file->spaces[i], length) || strncmp(name + length, "__", 2)) continue;
        text_print(&p->line, "%s.%s", p->file->spaces[i], name + length + 2);
        return;
    }
    print_word(p, name);
}

void print_break(printer *p, int weight, bool forced)
{
    breakpoint b = {.at = (int)p->line.length, .weight = p->nesting * 32 + weight, .group = p->group, .forced = forced};
    ARENA_PUSH(p->memory, p->breaks, p->break_count, p->break_capacity, b);
}

saved_group print_open(printer *p, const char *bracket)
{
    saved_group saved = {p->group, p->nesting};
    print_word(p, bracket);
    p->group = (int)p->line.length;
    p->nesting++;
    return saved;
}

void print_close(printer *p, saved_group saved, const char *bracket)
{
    print_word(p, bracket);
    p->group = saved.group;
    p->nesting = saved.nesting;
}

void print_spaces(text *t, int count)
{
    for (int i = 0; i < count; i++) text_add(t, " ");
}

static int column_of(const text *t)
{
    int column = 0;
    while ((size_t)column < t->length && t->data[t->length - 1 - (size_t)column] != '\n') column++;
    return column;
}

/* The lines laid out so far: the part of the buffer from starts[k] stands at columns[k]. */
typedef struct layout {
    int *starts, *columns;
    int count;
} layout;

static int break_column(const printer *p, const layout *l, const breakpoint *b)
{
    if (b->group < 0) return p->indent + INDENT;
    int low = 0, high = l->count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (l->starts[middle] <= b->group)
            low = middle;
        else
            high = middle - 1;
    }
    int column = l->columns[low] + b->group - l->starts[low];
    return column > WIDTH / 2 ? p->indent + INDENT : column;
}

/* Which breakpoint, from `first` on, ends the last line of the layout; -1 if the rest fits or nothing helps. */
static int choose_break(const printer *p, const layout *l, int first)
{
    int start = l->starts[l->count - 1], limit = start + WIDTH - l->columns[l->count - 1], best = -1;
    bool fits = (int)p->line.length <= limit;
    for (int i = first; i < p->break_count; i++) {
        const breakpoint *b = &p->breaks[i];
        if (b->at <= start) continue;
        if (b->forced && b->at <= limit + 1) return i; /* the blank behind a comment does not count */
        if (b->forced || b->at > limit) {
            if (best < 0) best = i; /* too long in any case: as early as possible */
            break;
        }
        bool helps = l->columns[l->count - 1] + b->at - start > break_column(p, l, b);
        if (!fits && helps && (best < 0 || b->weight <= p->breaks[best].weight)) best = i;
    }
    return best;
}

static void lay_out(printer *p)
{
    int start = 0, first = 0;
    layout l = {.starts = ARENA_ARRAY(p->memory, int, p->break_count + 1),
                .columns = ARENA_ARRAY(p->memory, int, p->break_count + 1),
                .count = 1};
    l.columns[0] = p->indent;
    print_spaces(p->out, p->indent);
    for (;;) {
        int chosen = choose_break(p, &l, first);
        int end = chosen < 0 ? (int)p->line.length : p->breaks[chosen].at, last = end;
        while (last > start && p->line.data[last - 1] == ' ') last--;
        text_add_bytes(p->out, p->line.data + start, (size_t)(last - start));
        if (chosen < 0 || end >= (int)p->line.length) break;
        int column = break_column(p, &l, &p->breaks[chosen]);
        text_add(p->out, "\n");
        print_spaces(p->out, column);
        l.starts[l.count] = start = end;
        l.columns[l.count++] = column;
        first = chosen + 1;
    }
}

/* Ends the logical line: lays it out with its line feed. */
static void end_line(printer *p)
{
    text_add_bytes(p->out, text_get(&p->hoisted), p->hoisted.length);
    text_clear(&p->hoisted);
    if (p->line.length) {
        lay_out(p);
        text_add(p->out, "\n");
    }
    text_clear(&p->line);
    p->break_count = 0;
    p->group = -1;
    p->nesting = 0;
}

void print_finish(printer *p)
{
    end_line(p);
    p->code_end = (int)p->out->length;
}

bool place_before(place a, place b)
{
    return a.line < b.line || (a.line == b.line && a.column < b.column);
}

const ast_comment *comment_before(const printer *p, place at)
{
    if (p->next_comment >= p->file->comment_count) return NULL;
    const ast_comment *comment = &p->file->comments[p->next_comment];
    return place_before(comment->at, at) ? comment : NULL;
}

/* Inside a line: in front of the token at this place. */
void print_inline_comments(printer *p, place at)
{
    const ast_comment *comment;
    while ((comment = comment_before(p, at))) {
        p->next_comment++;
        if (strchr(comment->text, '\n')) {
            print_spaces(&p->hoisted, p->indent);
            text_print(&p->hoisted, "%s\n", comment->text);
            continue;
        }
        char last = p->line.length ? p->line.data[p->line.length - 1] : ' ';
        bool to_end = comment->text[1] == '/';
        if (last != ' ' && (to_end || (last != '(' && last != '['))) print_word(p, " ");
        print_word(p, comment->text);
        print_word(p, " ");
        if (to_end) print_break(p, 0, true);
    }
}

/* Blanks in front of it in the source: one or two are a habit, more are a column. */
static int source_gap(const printer *p, const ast_comment *comment)
{
    const char *line = p->file->lines[comment->at.line - 1];
    int gap = 0;
    while (gap < comment->at.column - 1 && line[comment->at.column - 2 - gap] == ' ') gap++;
    return gap;
}

/* Between lines: behind the line before if they stood there, else on lines of their own. */
void print_comments(printer *p, place at, bool first)
{
    const ast_comment *comment;
    while ((comment = comment_before(p, at))) {
        p->next_comment++;
        text *out = p->out;
        if (!comment->own_line && out->length && out->data[out->length - 1] == '\n' &&
            (int)out->length == p->code_end) {
            out->length--;
            int gap = source_gap(p, comment), column = column_of(out);
            print_spaces(out, gap <= 2 ? MAXIMUM(gap, 1) : MAXIMUM(1, comment->at.column - 1 - column));
            text_print(out, "%s\n", comment->text);
            bool open = comment->text[1] == '*' && !strchr(comment->text, '\n'); /* more may follow */
            p->code_end = open ? (int)out->length : -1;
        } else {
            if (comment->blank_before && !first) text_add(out, "\n");
            print_spaces(out, p->indent);
            text_print(out, "%s\n", comment->text);
            p->code_end = -1;
        }
        first = false;
    }
}

bool comment_between(const printer *p, place from, int line, int column)
{
    for (int i = p->next_comment; i < p->file->comment_count; i++) {
        place at = p->file->comments[i].at;
        if (!place_before(at, (place){.line = line, .column = column})) return false;
        if (!place_before(at, from)) return true;
    }
    return false;
}
