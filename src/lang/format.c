/*
 * `quern fmt`: the tree in canonical form. In: a file without errors. Out: text that parses to the same tree.
 *
 * A line is built whole in a buffer, with the points where it may break, and laid out when it is complete: on one line
 * if it fits, else broken at the outermost points, aligned inside the bracket. Comments are flushed in front of the
 * token that they stood in front of, so they keep their place between tokens; a comment at the end of a line keeps its
 * column if the code leaves it free. What depends on the source's own lines (blank lines, one-line bodies, a clause
 * beside its header) reproduces itself, so that formatting twice changes nothing.
 * SPDX-License-Identifier: MIT
 */
#include "lang/ast.h"

#include <string.h>

#define WIDTH 120
#define INDENT 4

typedef struct breakpoint {
    int at;      /* offset in the line */
    int weight;  /* the smallest is broken first */
    int group;   /* offset behind the open bracket, -1: none */
    bool forced; /* after a comment to the end of the line */
} breakpoint;

typedef struct printer {
    const ast_file *file;
    text *out;
    text line;    /* the logical line being built */
    text hoisted; /* comments that cannot stay inside it */
    breakpoint *breaks;
    int break_count, break_capacity;
    arena *memory;      /* of the breakpoints */
    int indent;         /* of the line being built */
    int group, nesting; /* the innermost open bracket */
    int next_comment;
    int code_end; /* length of out behind the last code or comment that more can be appended to */
} printer;

static void statement(printer *p, const ast *node);
static void expression(printer *p, const ast *node);

/* ---- lines ---- */

static void add(printer *p, const char *words)
{
    text_add(&p->line, words);
}

static void may_break(printer *p, int weight, bool forced)
{
    breakpoint b = {.at = (int)p->line.length, .weight = p->nesting * 32 + weight, .group = p->group, .forced = forced};
    ARENA_PUSH(p->memory, p->breaks, p->break_count, p->break_capacity, b);
}

typedef struct saved_group {
    int group, nesting;
} saved_group;

static saved_group open_group(printer *p, const char *bracket)
{
    saved_group saved = {p->group, p->nesting};
    add(p, bracket);
    p->group = (int)p->line.length;
    p->nesting++;
    return saved;
}

static void close_group(printer *p, saved_group saved, const char *bracket)
{
    add(p, bracket);
    p->group = saved.group;
    p->nesting = saved.nesting;
}

static void spaces(text *t, int count)
{
    for (int i = 0; i < count; i++) text_add(t, " ");
}

static int column_of(const text *t)
{
    int column = 0;
    while ((size_t)column < t->length && t->data[t->length - 1 - (size_t)column] != '\n') column++;
    return column;
}

/* The column of an offset, given the lines laid out so far: starts[k] stands at columns[k]. */
static int offset_column(const int *starts, const int *columns, int count, int offset)
{
    int k = count - 1;
    while (k > 0 && starts[k] > offset) k--;
    return columns[k] + offset - starts[k];
}

/* Which breakpoint ends the line that begins at `start`; -1 if the rest fits or nothing helps. */
static int choose_break(const printer *p, int first, int start, int column, int length, const int *indents)
{
    int end = length;
    for (int i = first; i < p->break_count; i++)
        if (p->breaks[i].forced && p->breaks[i].at > start) {
            end = p->breaks[i].at;
            break;
        }
    int best = -1;
    bool fits = column + end - start <= WIDTH;
    for (int i = first; i < p->break_count; i++) {
        const breakpoint *b = &p->breaks[i];
        if (b->at <= start || b->at > end) continue;
        if (b->forced) {
            if (best < 0) best = i;
            continue;
        }
        if (fits || b->at >= end || column + b->at - start <= indents[i]) continue;
        if (column + b->at - start > WIDTH) {
            if (best < 0) best = i; /* too long in any case: as early as possible */
            break;
        }
        if (best < 0 || b->weight <= p->breaks[best].weight) best = i;
    }
    return best;
}

static void lay_out(printer *p)
{
    int length = (int)p->line.length, count = 1, start = 0, first = 0;
    int *starts = ARENA_ARRAY(p->memory, int, p->break_count + 1),
        *columns = ARENA_ARRAY(p->memory, int, p->break_count + 1);
    int *indents = ARENA_ARRAY(p->memory, int, p->break_count + 1);
    columns[0] = p->indent;
    spaces(p->out, p->indent);
    for (;;) {
        for (int i = first; i < p->break_count; i++) {
            int group = p->breaks[i].group;
            indents[i] = group < 0 ? p->indent + INDENT : offset_column(starts, columns, count, group);
            if (indents[i] > WIDTH / 2) indents[i] = p->indent + INDENT;
        }
        int chosen = choose_break(p, first, start, columns[count - 1], length, indents);
        int end = chosen < 0 ? length : p->breaks[chosen].at, last = end;
        while (last > start && p->line.data[last - 1] == ' ') last--;
        text_add_bytes(p->out, p->line.data + start, (size_t)(last - start));
        if (chosen < 0 || end >= length) break;
        text_add(p->out, "\n");
        spaces(p->out, indents[chosen]);
        starts[count] = start = end;
        columns[count++] = indents[chosen];
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

/* ---- comments ---- */

static bool before(place a, place b)
{
    return a.line < b.line || (a.line == b.line && a.column < b.column);
}

static const ast_comment *next_comment_before(const printer *p, place at)
{
    if (p->next_comment >= p->file->comment_count) return NULL;
    const ast_comment *comment = &p->file->comments[p->next_comment];
    return before(comment->at, at) ? comment : NULL;
}

/* Inside a line: in front of the token at this place. */
static void inline_comments(printer *p, place at)
{
    const ast_comment *comment;
    while ((comment = next_comment_before(p, at))) {
        p->next_comment++;
        if (strchr(comment->text, '\n')) {
            spaces(&p->hoisted, p->indent);
            text_print(&p->hoisted, "%s\n", comment->text);
            continue;
        }
        char last = p->line.length ? p->line.data[p->line.length - 1] : ' ';
        if (last != ' ' && last != '(' && last != '[') add(p, " ");
        add(p, comment->text);
        add(p, " ");
        if (comment->text[1] == '/') may_break(p, 0, true);
    }
}

/* Between lines: behind the line before if they stood there, else on lines of their own. */
static void comments_until(printer *p, place at, bool first)
{
    const ast_comment *comment;
    while ((comment = next_comment_before(p, at))) {
        p->next_comment++;
        text *out = p->out;
        if (!comment->own_line && out->length && out->data[out->length - 1] == '\n' &&
            (int)out->length == p->code_end) {
            out->length--;
            int column = column_of(out);
            spaces(out, MAXIMUM(1, comment->at.column - 1 - column));
            text_print(out, "%s\n", comment->text);
            p->code_end = strchr(comment->text, '\n') ? -1 : (int)out->length;
        } else {
            if (comment->blank_before && !first) text_add(out, "\n");
            spaces(out, p->indent);
            text_print(out, "%s\n", comment->text);
            p->code_end = -1;
        }
        first = false;
    }
}

static bool has_comment_between(const printer *p, place from, int line, int column)
{
    for (int i = p->next_comment; i < p->file->comment_count; i++) {
        place at = p->file->comments[i].at;
        if (!before(at, (place){.line = line, .column = column})) return false;
        if (!before(at, from)) return true;
    }
    return false;
}

/* ---- expressions ---- */

static void list_of(printer *p, const ast_list *list)
{
    for (int i = 0; i < list->count; i++) {
        if (i) {
            add(p, ", ");
            may_break(p, 0, false);
        }
        expression(p, list->items[i]);
    }
}

static void bracketed(printer *p, const char *open, const ast_list *list, const char *close)
{
    saved_group saved = open_group(p, open);
    list_of(p, list);
    close_group(p, saved, close);
}

static void subscript(printer *p, const ast *node)
{
    inline_comments(p, node->from);
    saved_group saved = open_group(p, "[");
    if (node->left) expression(p, node->left);
    if (node->is_slice) {
        add(p, node->left ? " : " : ":");
        if (node->right) expression(p, node->right);
        if (node->third) {
            add(p, " : ");
            expression(p, node->third);
        }
    }
    close_group(p, saved, "]");
}

/* Where a long expression breaks first. */
static int operator_weight(const char *word)
{
    static const char *const levels[] = {"||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %"};
    for (int i = 0; i < COUNT(levels); i++) {
        const char *found = strstr(levels[i], word);
        size_t length = strlen(word);
        for (; found; found = strstr(found + 1, word)) {
            bool starts = found == levels[i] || found[-1] == ' ';
            if (starts && (found[length] == ' ' || !found[length])) return i + 3;
        }
    }
    return 31;
}

static void expression_inside(printer *p, const ast *node)
{
    switch (node->kind) {
    case AST_NUMBER:
    case AST_BOOL:
    case AST_TYPE_NAME:
    case AST_TYPE:
        inline_comments(p, node->at);
        add(p, node->word);
        break;
    case AST_NAME:
        inline_comments(p, node->at);
        add(p, node->name);
        break;
    case AST_STRING:
        inline_comments(p, node->at);
        text_add_quoted(&p->line, node->words, node->length);
        break;
    case AST_UNARY:
        inline_comments(p, node->at);
        add(p, node->word);
        /* `- -x` must not become `--x` */
        if (node->left->kind == AST_UNARY && !node->left->parenthesised && !strcmp(node->left->word, node->word))
            add(p, " ");
        expression(p, node->left);
        break;
    case AST_BINARY:
        expression(p, node->left);
        inline_comments(p, node->at);
        if (p->line.length && p->line.data[p->line.length - 1] != ' ') add(p, " ");
        add(p, node->word);
        add(p, " ");
        may_break(p, operator_weight(node->word), false);
        expression(p, node->right);
        break;
    case AST_CONDITIONAL:
        expression(p, node->left);
        add(p, " ? ");
        may_break(p, 2, false);
        expression(p, node->right);
        add(p, " : ");
        may_break(p, 2, false);
        expression(p, node->third);
        break;
    case AST_CALL:
        expression(p, node->left);
        bracketed(p, "(", &node->list, ")");
        break;
    case AST_NAMED:
        inline_comments(p, node->at);
        add(p, node->name);
        add(p, " = ");
        if (node->is_set)
            bracketed(p, "{", &node->list, "}");
        else
            expression(p, node->left);
        break;
    case AST_INDEX:
        expression(p, node->left);
        for (int i = 0; i < node->list.count; i++) subscript(p, node->list.items[i]);
        break;
    default: CHECK(!"an expression");
    }
}

static void expression(printer *p, const ast *node)
{
    if (!node->parenthesised) {
        expression_inside(p, node);
        return;
    }
    inline_comments(p, node->from);
    saved_group saved = open_group(p, "(");
    expression_inside(p, node);
    close_group(p, saved, ")");
}

/* ---- statements ---- */

static void type_word(printer *p, const ast *type)
{
    inline_comments(p, type->at);
    add(p, type->word);
}

static void extents(printer *p, const ast_list *list)
{
    for (int i = 0; i < list->count; i++) {
        saved_group saved = open_group(p, "[");
        expression(p, list->items[i]);
        close_group(p, saved, "]");
    }
}

static void finish(printer *p)
{
    end_line(p);
    p->code_end = (int)p->out->length;
}

static void statements(printer *p, const ast *block)
{
    p->indent += INDENT;
    for (int i = 0; i < block->list.count; i++) {
        const ast *node = block->list.items[i];
        int behind = p->next_comment;
        comments_until(p, node->from, i == 0);
        bool moved = p->next_comment > behind && p->code_end < 0;
        if (node->blank_before && (i || moved)) text_add(p->out, "\n");
        statement(p, node);
    }
    comments_until(p, (place){.line = block->end_line, .column = block->end_column - 1}, !block->list.count);
    p->indent -= INDENT;
}

/* The line so far gets the brace, then the statements, then the closing brace, which begins the next line. */
static void brace_block(printer *p, const ast *block)
{
    inline_comments(p, block->from);
    if (p->line.length && p->line.data[p->line.length - 1] != ' ') add(p, " ");
    add(p, "{");
    finish(p);
    statements(p, block);
    add(p, "}");
}

static bool is_simple(const ast *node)
{
    return node->kind == AST_ASSIGN || node->kind == AST_CALL_STATEMENT || node->kind == AST_BREAK ||
           node->kind == AST_CONTINUE || node->kind == AST_RETURN || node->kind == AST_DECLARE ||
           node->kind == AST_EMPTY || node->kind == AST_LET || node->kind == AST_CONSTANT;
}

static void simple(printer *p, const ast *node)
{
    inline_comments(p, node->from);
    switch (node->kind) {
    case AST_EMPTY: break;
    case AST_BREAK: add(p, "break"); break;
    case AST_CONTINUE: add(p, "continue"); break;
    case AST_CALL_STATEMENT: expression(p, node->left); break;
    case AST_ASSIGN:
        expression(p, node->left);
        inline_comments(p, node->at);
        if (node->right) {
            if (p->line.data[p->line.length - 1] != ' ') add(p, " ");
            add(p, node->word);
            add(p, " ");
            expression(p, node->right);
        } else {
            add(p, node->word);
        }
        break;
    case AST_DECLARE:
        if (node->is_tile) add(p, "tile ");
        type_word(p, node->type);
        add(p, " ");
        for (int i = 0; i < node->list.count; i++) {
            const ast *declarator = node->list.items[i];
            if (i) {
                add(p, ", ");
                may_break(p, 0, false);
            }
            inline_comments(p, declarator->at);
            add(p, declarator->name);
            extents(p, &declarator->list);
            add(p, " = ");
            p->nesting++; /* a list breaks between declarators first */
            expression(p, declarator->left);
            p->nesting--;
        }
        break;
    case AST_CONSTANT:
        add(p, "const ");
        type_word(p, node->type);
        add(p, " ");
        inline_comments(p, node->at);
        add(p, node->name);
        add(p, " = ");
        expression(p, node->left);
        break;
    case AST_RETURN:
        add(p, "return");
        if (node->list.count) add(p, " ");
        list_of(p, &node->list);
        break;
    case AST_LET:
        add(p, "let ");
        if (node->is_set)
            bracketed(p, "(", &node->list, ")");
        else
            expression(p, node->list.items[0]);
        add(p, " = ");
        expression(p, node->left);
        break;
    default: CHECK(!"a simple statement");
    }
    add(p, ";");
}

/* How far the line would reach with this statement behind it; the line itself stays as it is. */
static int width_with(printer *p, const ast *node)
{
    size_t length = p->line.length;
    int break_count = p->break_count, next_comment = p->next_comment, group = p->group;
    add(p, " ");
    simple(p, node);
    int width = p->indent + (int)p->line.length;
    p->line.length = length;
    p->line.data[length] = 0;
    p->break_count = break_count;
    p->next_comment = next_comment;
    p->group = group;
    return width;
}

/* The statement under an if, for or while; afterwards a line is open if it was a block. */
static bool governed(printer *p, const ast *node, int header_line)
{
    if (node->kind == AST_BLOCK) {
        brace_block(p, node);
        return true;
    }
    bool comments = has_comment_between(p, (place){0}, node->end_line, node->end_column);
    if (is_simple(node) && node->from.line == header_line && !comments && width_with(p, node) <= WIDTH) {
        add(p, " ");
        simple(p, node);
        finish(p);
        return false;
    }
    finish(p);
    p->indent += INDENT;
    comments_until(p, node->from, true);
    statement(p, node);
    p->indent -= INDENT;
    return false;
}

static void if_statement(printer *p, const ast *node)
{
    for (;;) {
        inline_comments(p, node->from);
        add(p, "if ");
        saved_group saved = open_group(p, "(");
        expression(p, node->left);
        close_group(p, saved, ")");
        bool open = governed(p, node->body, node->left->end_line);
        if (!node->other) {
            if (open) finish(p);
            return;
        }
        if (open && next_comment_before(p, node->other->from)) {
            finish(p);
            open = false;
        }
        if (!open) comments_until(p, node->other->from, true);
        add(p, open ? " else" : "else");
        if (node->other->kind != AST_IF) {
            if (governed(p, node->other, node->other->from.line)) finish(p);
            return;
        }
        add(p, " ");
        node = node->other;
    }
}

static void statement(printer *p, const ast *node)
{
    if (is_simple(node)) {
        simple(p, node);
        finish(p);
        return;
    }
    bool open = false;
    switch (node->kind) {
    case AST_BLOCK: brace_block(p, node), open = true; break;
    case AST_IF: if_statement(p, node); break;
    case AST_WHILE: {
        add(p, "while ");
        saved_group saved = open_group(p, "(");
        expression(p, node->left);
        close_group(p, saved, ")");
        open = governed(p, node->body, node->left->end_line);
        break;
    }
    case AST_FOR: {
        add(p, "for ");
        saved_group saved = open_group(p, "(");
        add(p, "int ");
        inline_comments(p, node->at);
        add(p, node->name);
        add(p, " = ");
        expression(p, node->left);
        add(p, "; ");
        may_break(p, 0, false);
        text_print(&p->line, "%s %s ", node->name, node->word);
        expression(p, node->right);
        add(p, "; ");
        may_break(p, 0, false);
        text_print(&p->line, "%s%s%.2s", node->name, node->third ? " " : "", node->words);
        if (node->third) {
            add(p, " ");
            expression(p, node->third);
        }
        close_group(p, saved, ")");
        const ast *last = node->third ? node->third : node->right;
        open = governed(p, node->body, last->end_line);
        break;
    }
    default: CHECK(!"a statement");
    }
    if (open) finish(p);
}

/* ---- items ---- */

static void settings(printer *p, const ast_list *list)
{
    saved_group saved = open_group(p, "(");
    for (int i = 0; i < list->count; i++) {
        const ast *setting = list->items[i];
        if (i) {
            add(p, ", ");
            may_break(p, 0, false);
        }
        inline_comments(p, setting->at);
        add(p, setting->name);
        add(p, setting->is_set ? " in " : " = ");
        if (setting->is_set)
            bracketed(p, "{", &setting->list, "}");
        else
            expression(p, setting->left);
    }
    close_group(p, saved, ")");
}

static void params(printer *p, const ast_list *list)
{
    saved_group saved = open_group(p, "(");
    for (int i = 0; i < list->count; i++) {
        const ast *param = list->items[i];
        if (i) {
            add(p, ", ");
            may_break(p, 0, false);
        }
        inline_comments(p, param->from);
        if (param->word[0]) text_print(&p->line, "%s ", param->word);
        if (param->is_tile) add(p, "tile ");
        type_word(p, param->type);
        add(p, " ");
        inline_comments(p, param->at);
        add(p, param->name);
        if (param->is_function)
            bracketed(p, "(", &param->list, ")");
        else
            extents(p, &param->list);
        if (!param->left) continue;
        add(p, " = ");
        expression(p, param->left);
    }
    close_group(p, saved, ")");
}

static void clause_words(printer *p, const ast *clause)
{
    static const char *const with_settings[] = {"tune", "types", "on", "input", "settings"};
    bool has_settings = false;
    for (int i = 0; i < COUNT(with_settings); i++) has_settings |= !strcmp(clause->word, with_settings[i]);
    inline_comments(p, clause->from);
    if (strcmp(clause->word, "settings")) add(p, clause->word);
    if (!strcmp(clause->word, "precise")) return;
    if (strcmp(clause->word, "settings")) add(p, " ");
    if (!strcmp(clause->word, "on")) text_print(&p->line, "%s ", clause->name);
    if (!strcmp(clause->word, "gradient"))
        text_print(&p->line, "(%s)", clause->name);
    else if (has_settings)
        settings(p, &clause->list);
    else
        bracketed(p, "(", &clause->list, ")");
    if (!clause->left) return;
    add(p, " ");
    may_break(p, 0, false);
    add(p, "if ");
    saved_group saved = open_group(p, "(");
    expression(p, clause->left);
    close_group(p, saved, ")");
}

/* Behind the header if it stood there and fits, else on a line of its own. */
static void clause_line(printer *p, const ast *clause, int *line)
{
    size_t length = p->line.length;
    int break_count = p->break_count, next_comment = p->next_comment;
    bool beside = clause->from.line == *line && !next_comment_before(p, clause->from);
    if (beside) {
        add(p, !strcmp(clause->word, "launch") ? "  " : " ");
        clause_words(p, clause);
        beside = p->indent + (int)p->line.length <= WIDTH;
        if (!beside) {
            p->line.length = length;
            p->line.data[length] = 0;
            p->break_count = break_count;
            p->next_comment = next_comment;
            p->group = -1;
            p->nesting = 0;
        }
    }
    if (!beside) {
        finish(p);
        p->indent = INDENT;
        comments_until(p, clause->from, true);
        clause_words(p, clause);
    }
    *line = clause->end_line;
}

/* The body of an item: on the header's line if it was one statement there and fits, else with braces at the margin. */
static void item_body(printer *p, const ast *block, int header_line, const char *gap)
{
    bool one_line = block->from.line == header_line && block->end_line == header_line && block->list.count <= 1 &&
                    (!block->list.count || is_simple(block->list.items[0])) &&
                    !has_comment_between(p, (place){0}, block->end_line, block->end_column);
    if (one_line) {
        int width = p->indent + (int)p->line.length;
        if (block->list.count) width = width_with(p, block->list.items[0]);
        one_line = width + (int)strlen(gap) + 4 <= WIDTH;
    }
    if (one_line) {
        add(p, gap);
        add(p, block->list.count ? "{ " : "{ }");
        if (block->list.count) {
            simple(p, block->list.items[0]);
            add(p, " }");
        }
        p->indent = 0;
        finish(p);
        return;
    }
    finish(p);
    p->indent = 0;
    comments_until(p, block->from, true);
    add(p, "{");
    finish(p);
    statements(p, block);
    add(p, "}");
    finish(p);
}

static void kernel_item(printer *p, const ast *item)
{
    text_print(&p->line, "kernel %s", item->name);
    params(p, &item->list);
    int line = item->list.count ? item->list.items[item->list.count - 1]->end_line : item->at.line;
    for (int i = 0; i < item->clauses.count; i++) clause_line(p, item->clauses.items[i], &line);
    for (int i = 0; i < item->phases.count; i++) {
        const ast *phase = item->phases.items[i];
        if (i) {
            comments_until(p, phase->from, false);
            add(p, "then launch ");
            bracketed(p, "(", &phase->list, ")");
            if (phase->list.count) line = phase->list.items[phase->list.count - 1]->end_line;
        }
        item_body(p, phase->body, line, "  ");
    }
}

static void raw_item(printer *p, const ast *item)
{
    text_print(&p->line, "%s %s", item->word, item->name);
    params(p, &item->list);
    int line = item->list.count ? item->list.items[item->list.count - 1]->end_line : item->at.line;
    for (int i = 0; i < item->clauses.count; i++) clause_line(p, item->clauses.items[i], &line);
    if (item->is_path) {
        add(p, " from ");
        text_add_quoted(&p->line, item->words, item->length);
        add(p, ";");
        finish(p);
    } else {
        finish(p);
        comments_until(p, (place){.line = item->text_line, .column = 1}, true);
        text_add(p->out, "\"\"\"");
        text_add_bytes(p->out, item->words, item->length);
        text_add(p->out, "\"\"\"\n");
        p->code_end = (int)p->out->length;
    }
    p->indent = 0;
}

static void bench_item(printer *p, const ast *item)
{
    text_print(&p->line, "bench %s ", item->name);
    for (int i = 0; i < item->clauses.count; i++) {
        if (i) {
            add(p, " ");
            may_break(p, 1, false);
        }
        clause_words(p, item->clauses.items[i]);
    }
    add(p, " ");
    may_break(p, 0, false);
    saved_group saved = open_group(p, "{ ");
    for (int i = 0; i < item->list.count; i++) {
        const ast *variant = item->list.items[i];
        if (i) {
            add(p, ", ");
            may_break(p, 0, false);
        }
        inline_comments(p, variant->from);
        if (variant->word[0]) text_print(&p->line, "%s ", variant->word);
        add(p, variant->name);
        if (variant->list.count) settings(p, &variant->list);
    }
    close_group(p, saved, item->list.count ? " }" : "}");
    finish(p);
}

static void item_text(printer *p, const ast *item)
{
    int header = item->list.count ? item->list.items[item->list.count - 1]->end_line : item->at.line;
    switch (item->kind) {
    case AST_KERNEL: kernel_item(p, item); break;
    case AST_RAW: raw_item(p, item); break;
    case AST_BENCH: bench_item(p, item); break;
    case AST_CONSTANT:
        simple(p, item);
        finish(p);
        break;
    case AST_TENSOR:
    case AST_FUNCTION:
        if (item->kind == AST_TENSOR)
            add(p, "tensor ");
        else if (!item->type)
            add(p, "void ");
        if (item->is_tile) add(p, "tile ");
        if (item->type) {
            type_word(p, item->type);
            add(p, " ");
        }
        inline_comments(p, item->at);
        add(p, item->name);
        params(p, &item->list);
        item_body(p, item->body, header, " ");
        break;
    default: CHECK(!"an item");
    }
}

void lang_format(const ast_file *file, text *out)
{
    printer p = {.file = file, .out = out, .memory = arena_new(), .group = -1, .code_end = -1};
    bool tall_before = false;
    for (int i = 0; i < file->items.count; i++) {
        const ast *item = file->items.items[i];
        /* Comments behind the last item stay there; those above this one come with it. */
        place first = item->from;
        while (p.next_comment < file->comment_count && !file->comments[p.next_comment].own_line &&
               before(file->comments[p.next_comment].at, first) && p.code_end >= 0)
            comments_until(&p,
                           (place){.line = file->comments[p.next_comment].at.line,
                                   .column = file->comments[p.next_comment].at.column + 1},
                           true);
        const ast_comment *above = next_comment_before(&p, item->from);
        bool blank = above ? above->blank_before : item->blank_before;
        text piece = {0}, *whole = p.out;
        p.out = &piece;
        p.code_end = -1;
        comments_until(&p, item->from, true);
        if (above && item->blank_before) text_add(&piece, "\n");
        size_t body = piece.length;
        item_text(&p, item);
        const char *feed = strchr(piece.data + body, '\n');
        bool tall = feed && feed[1];
        p.out = whole;
        if (whole->length && (blank || tall || tall_before)) text_add(whole, "\n");
        if (p.code_end >= 0) p.code_end += (int)whole->length;
        text_add_bytes(whole, text_get(&piece), piece.length);
        text_free(&piece);
        tall_before = tall;
    }
    comments_until(&p, (place){.line = file->line_count + 1, .column = 1}, !out->length);
    text_free(&p.line);
    text_free(&p.hoisted);
    arena_free(p.memory);
}

void lang_format_expression(const ast *node, text *out)
{
    static const ast_file no_comments;
    printer p = {.file = &no_comments, .out = out, .memory = arena_new(), .group = -1, .code_end = -1};
    expression(&p, node);
    text_add_bytes(out, text_get(&p.line), p.line.length);
    text_free(&p.line);
    arena_free(p.memory);
}
