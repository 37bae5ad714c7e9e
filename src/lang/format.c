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
#include "lang/format.h"

static void settings(printer *p, const ast_list *list)
{
    saved_group saved = print_open(p, "(");
    for (int i = 0; i < list->count; i++) {
        const ast *setting = list->items[i];
        if (i) {
            print_word(p, ", ");
            print_break(p, 0, false);
        }
        print_inline_comments(p, setting->at);
        print_word(p, setting->name);
        print_word(p, setting->is_set ? " in " : " = ");
        if (setting->is_set)
            print_bracketed(p, "{", &setting->list, "}");
        else
            print_expression(p, setting->left);
    }
    print_close(p, saved, ")");
}

static void print_axes(printer *p, const ast *param)
{
    ast_list before = param->list, behind = param->list;
    if (param->is_tensor && !param->list.count && !param->has_spread) print_word(p, "[]");
    before.count = param->has_spread ? param->spread_at : param->list.count;
    if (before.count) behind.items += before.count;
    behind.count -= before.count;
    print_extents(p, &before);
    if (param->has_spread) print_word(p, "[...]");
    print_extents(p, &behind);
}

static void params(printer *p, const ast_list *list)
{
    saved_group saved = print_open(p, "(");
    for (int i = 0; i < list->count; i++) {
        const ast *param = list->items[i];
        if (i) {
            print_word(p, ", ");
            print_break(p, 0, false);
        }
        print_inline_comments(p, param->from);
        if (param->word[0]) text_print(&p->line, "%s ", param->word);
        if (param->is_tile) print_word(p, "tile ");
        print_type(p, param->type);
        print_word(p, " ");
        print_inline_comments(p, param->at);
        print_word(p, param->name);
        if (param->is_function)
            print_bracketed(p, "(", &param->list, ")");
        else
            print_axes(p, param);
        if (!param->left) continue;
        print_word(p, " = ");
        print_expression(p, param->left);
    }
    print_close(p, saved, ")");
}

static void clause_words(printer *p, const ast *clause)
{
    static const char *const with_settings[] = {"tune", "types", "on", "input", "settings"};
    bool has_settings = false;
    for (int i = 0; i < COUNT(with_settings); i++) has_settings |= !strcmp(clause->word, with_settings[i]);
    print_inline_comments(p, clause->from);
    if (strcmp(clause->word, "settings")) print_word(p, clause->word);
    if (!strcmp(clause->word, "precise")) return;
    if (strcmp(clause->word, "settings")) print_word(p, " ");
    if (!strcmp(clause->word, "on")) text_print(&p->line, "%s ", clause->name);
    if (!strcmp(clause->word, "gradient"))
        text_print(&p->line, "(%s)", clause->name);
    else if (has_settings)
        settings(p, &clause->list);
    else
        print_bracketed(p, "(", &clause->list, ")");
    if (!clause->left) return;
    print_word(p, " ");
    print_break(p, 0, false);
    print_word(p, "if ");
    saved_group saved = print_open(p, "(");
    print_expression(p, clause->left);
    print_close(p, saved, ")");
}

/* Behind the header if it stood there and fits, else on a line of its own. */
static void clause_line(printer *p, const ast *clause, int *line)
{
    size_t length = p->line.length, hoisted = p->hoisted.length;
    int break_count = p->break_count, next_comment = p->next_comment;
    bool beside = clause->from.line == *line && !comment_before(p, clause->from);
    if (beside) {
        print_word(p, !strcmp(clause->word, "launch") ? "  " : " ");
        clause_words(p, clause);
        beside = p->indent + (int)p->line.length <= WIDTH;
        if (!beside) {
            p->line.length = length;
            p->line.data[length] = 0;
            p->hoisted.length = hoisted;
            p->break_count = break_count;
            p->next_comment = next_comment;
            p->group = -1;
            p->nesting = 0;
        }
    }
    if (!beside) {
        print_finish(p);
        p->indent = INDENT;
        print_comments(p, clause->from, true);
        clause_words(p, clause);
    }
    *line = clause->end_line;
}

/* The body of an item: on the header's line if it was one statement there and fits, else with braces at the margin. */
static void item_body(printer *p, const ast *block, int header_line, const char *gap)
{
    bool one_line = block->from.line == header_line && block->end_line == header_line && block->list.count <= 1 &&
                    (!block->list.count || statement_is_simple(block->list.items[0])) &&
                    !comment_between(p, (place){0}, block->end_line, block->end_column);
    if (one_line) {
        int width = p->indent + (int)p->line.length;
        if (block->list.count) width = print_width(p, block->list.items[0]);
        one_line = width + (int)strlen(gap) + 4 <= WIDTH;
    }
    if (one_line) {
        print_word(p, gap);
        print_word(p, block->list.count ? "{ " : "{ }");
        if (block->list.count) {
            print_simple(p, block->list.items[0]);
            print_word(p, " }");
        }
        print_finish(p);
        p->indent = 0;
        return;
    }
    print_finish(p);
    p->indent = 0;
    print_comments(p, block->from, true);
    print_word(p, "{");
    print_finish(p);
    print_statements(p, block);
    print_word(p, "}");
    print_finish(p);
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
            print_comments(p, phase->from, false);
            print_word(p, "then launch ");
            print_bracketed(p, "(", &phase->list, ")");
            if (phase->list.count) line = phase->list.items[phase->list.count - 1]->end_line;
        }
        item_body(p, phase->body, line, "  ");
    }
}

static void raw_item(printer *p, const ast *item)
{
    text_print(&p->line, "%s %s", item->word, item->name);
    if (item->left) print_bracketed(p, "<", &item->left->list, ">");
    params(p, &item->list);
    int line = item->list.count ? item->list.items[item->list.count - 1]->end_line : item->at.line;
    for (int i = 0; i < item->clauses.count; i++) clause_line(p, item->clauses.items[i], &line);
    if (item->is_path) {
        print_word(p, " from ");
        text_add_quoted(&p->line, item->words, item->length);
        print_word(p, ";");
        print_finish(p);
    } else {
        print_finish(p);
        print_comments(p, (place){.line = item->text_line, .column = 1}, true);
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
            print_word(p, " ");
            print_break(p, 1, false);
        }
        clause_words(p, item->clauses.items[i]);
    }
    print_word(p, " ");
    print_break(p, 0, false);
    saved_group saved = print_open(p, "{ ");
    for (int i = 0; i < item->list.count; i++) {
        const ast *variant = item->list.items[i];
        if (i) {
            print_word(p, ", ");
            print_break(p, 0, false);
        }
        print_inline_comments(p, variant->from);
        if (variant->word[0]) text_print(&p->line, "%s ", variant->word);
        print_name(p, variant->name);
        if (variant->list.count) settings(p, &variant->list);
    }
    print_close(p, saved, item->list.count ? " }" : "}");
    print_finish(p);
}

static void item_text(printer *p, const ast *item)
{
    int header = item->list.count ? item->list.items[item->list.count - 1]->end_line : item->at.line;
    switch (item->kind) {
    case AST_KERNEL: kernel_item(p, item); break;
    case AST_RAW: raw_item(p, item); break;
    case AST_BENCH: bench_item(p, item); break;
    case AST_IMPORT:
        print_word(p, "import ");
        text_add_quoted(&p->line, item->words, item->length);
        if (item->is_set) text_print(&p->line, " as %s", item->name);
        print_word(p, ";");
        print_finish(p);
        break;
    case AST_CONSTANT:
        print_simple(p, item);
        print_finish(p);
        break;
    case AST_TENSOR:
    case AST_FUNCTION:
        if (item->kind == AST_TENSOR)
            print_word(p, "tensor ");
        else if (!item->type)
            print_word(p, "void ");
        if (item->is_tile) print_word(p, "tile ");
        if (item->type) {
            print_type(p, item->type);
            print_word(p, " ");
        }
        print_inline_comments(p, item->at);
        print_word(p, item->name);
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
    for (int i = 0; i < file->imports.count + file->items.count; i++) {
        const ast *item = i < file->imports.count ? file->imports.items[i] : file->items.items[i - file->imports.count];
        if (ast_is_imported(item) && !file->importer) continue; /* it stands in its own file */
        /* Comments behind the last item stay there; those above this one come with it. */
        place first = item->from;
        while (p.next_comment < file->comment_count && !file->comments[p.next_comment].own_line &&
               place_before(file->comments[p.next_comment].at, first) && p.code_end >= 0)
            print_comments(&p,
                           (place){.line = file->comments[p.next_comment].at.line,
                                   .column = file->comments[p.next_comment].at.column + 1},
                           true);
        const ast_comment *above = comment_before(&p, item->from);
        bool blank = above ? above->blank_before : item->blank_before;
        text piece = {0}, *whole = p.out;
        p.out = &piece;
        p.code_end = -1;
        print_comments(&p, item->from, true);
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
    print_comments(&p, (place){.line = file->line_count + 1, .column = 1}, !out->length);
    text_free(&p.line);
    text_free(&p.hoisted);
    arena_free(p.memory);
}

void lang_format_expression(const ast *node, text *out)
{
    static const ast_file no_comments;
    printer p = {.file = &no_comments, .out = out, .memory = arena_new(), .group = -1, .code_end = -1};
    print_expression(&p, node);
    text_add_bytes(out, text_get(&p.line), p.line.length);
    text_free(&p.line);
    arena_free(p.memory);
}
