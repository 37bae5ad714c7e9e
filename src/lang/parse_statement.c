/*
 * Statements. In: tokens. Out: a tree, never NULL (an empty statement stands where an error was).
 * A statement that went wrong is skipped up to its `;` or the `}` of its block.
 * SPDX-License-Identifier: MIT
 */
#include "lang/fault.h"
#include "lang/parse.h"

static ast *parse_statement(parser *p);

ast *parse_constant(parser *p)
{
    ast *node = parser_node(p, AST_CONSTANT, p->now.at);
    parser_advance(p);
    node->type = parse_type(p);
    node->name = parser_expect_name(p, "the name of the constant", &node->at);
    parser_expect(p, "=", "a constant needs a value");
    node->left = parse_expression(p);
    parser_expect(p, ";", NULL);
    return parser_done(p, node);
}

/* Where a statement list must end even if a brace is missing: a word that only items have, at the start of a line. */
static bool at_item(const parser *p)
{
    return p->now.kind == TOKEN_END || parser_is(p, "kernel") || parser_is(p, "tensor") || parser_is(p, "bench") ||
           (p->now.at.column == 1 && (parser_is(p, "void") || parser_is(p, "then")));
}

static void next_statement(parser *p, bool moved)
{
    p->panic = false;
    int depth = 0;
    if (!moved && !at_item(p) && !parser_is(p, "}")) parser_advance(p);
    while (!at_item(p)) {
        if (parser_is(p, "{")) depth++;
        if (parser_is(p, "}") && depth-- <= 0) return;
        bool over = (parser_is(p, ";") || parser_is(p, "}")) && depth <= 0;
        parser_advance(p);
        if (over) return;
    }
}

ast *parse_block(parser *p)
{
    ast *node = parser_node(p, AST_BLOCK, p->now.at);
    place open = p->now.at;
    int nesting = p->nesting;
    parser_expect(p, "{", NULL);
    if (p->panic) return parser_done(p, node);
    while (!parser_is(p, "}") && !at_item(p)) {
        place before = p->now.at;
        parser_push(p, &node->list, parse_statement(p));
        if (!p->panic) continue;
        p->nesting = nesting;
        next_statement(p, p->now.at.line != before.line || p->now.at.column != before.column);
    }
    if (!parser_accept(p, "}"))
        parser_unexpected(p, "`}`", arena_print(p->file->memory, "the block begins at line %d", open.line));
    return parser_done(p, node);
}

static ast *parse_declaration(parser *p)
{
    ast *node = parser_node(p, AST_DECLARE, p->now.at);
    node->is_tile = parser_accept(p, "tile");
    node->type = parse_type(p);
    parser_no_pointer(p);
    do {
        ast *declarator = parser_node(p, AST_DECLARATOR, p->now.at);
        declarator->name = parser_expect_name(p, "the name of a variable", &declarator->at);
        parse_extents(p, &declarator->list);
        if (declarator->list.count && !node->is_tile)
            parser_error(p, E104, declarator->at,
                         arena_print(p->file->memory, "a block of elements is a tile: `tile %s %s[...] = 0;`",
                                     node->type->word, declarator->name),
                         "extents on `%s`, which is not a tile", declarator->name);
        parser_expect(p, "=", "every declaration has a value");
        declarator->left = parse_expression(p);
        parser_push(p, &node->list, parser_done(p, declarator));
    } while (parser_accept(p, ","));
    parser_expect(p, ";", NULL);
    return parser_done(p, node);
}

static bool at_assignment(const parser *p)
{
    static const char *const words[] = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "++", "--"};
    if (p->now.kind != TOKEN_OPERATOR) return false;
    for (int i = 0; i < COUNT(words); i++)
        if (!strcmp(p->now.word, words[i])) return true;
    return false;
}

/* An assignment, a call, or an expression that does nothing. */
static ast *parse_simple(parser *p)
{
    place from = p->now.at;
    bool prefix = parser_is(p, "-") || parser_is(p, "+") || parser_is(p, "!") || parser_is(p, "~");
    ast *first = prefix ? parse_expression(p) : parse_postfix(p);
    ast *node = parser_node(p, AST_ASSIGN, from);
    if (!p->panic && at_assignment(p)) {
        const ast *base = first->kind == AST_INDEX ? first->left : first;
        if (base->kind != AST_NAME || base->parenthesised || first->parenthesised)
            parser_error(p, E104, p->now.at, "assign to a variable or to an access `x[...]`",
                         "only names and their elements are assigned");
        node->left = first;
        node->at = p->now.at;
        node->word = p->now.word;
        parser_advance(p);
        if (strcmp(node->word, "++") && strcmp(node->word, "--")) node->right = parse_expression(p);
        if (!p->panic && parser_is(p, "="))
            parser_unexpected(p, "`;`", "assignment is a statement: write one for each variable");
        parser_expect(p, ";", NULL);
        return parser_done(p, node);
    }
    if (!p->panic && first->kind == AST_CALL && !first->parenthesised && parser_is(p, ";")) {
        node->kind = AST_CALL_STATEMENT;
        node->left = first;
        parser_expect(p, ";", NULL);
        return parser_done(p, node);
    }
    if (!p->panic && first->kind == AST_NAME && (p->now.kind == TOKEN_NAME || p->now.kind == TOKEN_TYPE)) {
        const char *habit = habit_advice(first->name);
        parser_error(p, E104, first->at, habit ? habit : "types are float, i32, ..., or a generic one such as `T`",
                     "expected a type, found `%s`", first->name);
    }
    if (!prefix) first = parse_binary_rest(p, first);
    parser_expect(p, ";", NULL);
    if (!p->panic) {
        place at = from;
        if (p->end_line == from.line) at.end_column = p->end_column - 1;
        fault_no_effect(p->d, at);
    }
    node->kind = AST_EMPTY;
    return parser_done(p, node);
}

/* The statement that a header in parentheses governs. After an error in the header only a block is read. */
static ast *parse_governed(parser *p, int line)
{
    if (p->panic) {
        while (!at_item(p) && !parser_is(p, "{") && !parser_is(p, "}") && p->now.at.line == line) parser_advance(p);
        p->panic = false;
        if (!parser_is(p, "{")) return parser_node(p, AST_EMPTY, p->now.at);
    }
    return parse_statement(p);
}

static void expect_variable(parser *p, const char *name)
{
    place at = p->now.at;
    const char *found = parser_expect_name(p, arena_print(p->file->memory, "`%.60s`", name), &at);
    if (!p->panic && strcmp(found, name))
        parser_error(p, E104, at, "the three parts of a `for` speak of one variable; otherwise use `while`",
                     "expected `%s`, found `%s`", name, found);
}

static ast *parse_for(parser *p)
{
    static const char *const comparisons[] = {"<", "<=", ">", ">="}, *const steps[] = {"+=", "-=", "++", "--"};
    ast *node = parser_node(p, AST_FOR, p->now.at);
    parser_advance(p);
    parser_expect(p, "(", "a loop is `for (int i = 0; i < n; i++)`");
    if (!p->panic && p->now.kind == TOKEN_TYPE && !strcmp(p->now.word, "int"))
        parser_advance(p);
    else
        parser_unexpected(p, "`int`", "a loop is `for (int i = first; i < bound; i += step)`");
    node->name = parser_expect_name(p, "the loop variable", &node->at);
    parser_expect(p, "=", NULL);
    node->left = parse_expression(p);
    parser_expect(p, ";", NULL);
    expect_variable(p, node->name);
    for (int i = 0; i < COUNT(comparisons); i++)
        if (parser_accept(p, comparisons[i])) {
            node->word = comparisons[i];
            break;
        }
    if (!node->word[0]) parser_unexpected(p, "`<`, `<=`, `>` or `>=`", "for other conditions use `while`");
    node->right = parse_expression(p);
    parser_expect(p, ";", NULL);
    const char *prefix = parser_is(p, "++") || parser_is(p, "--") ? p->now.word : NULL;
    if (prefix) parser_advance(p);
    expect_variable(p, node->name);
    if (prefix) {
        node->words = prefix;
        node->length = 2;
    }
    for (int i = 0; i < COUNT(steps) && !prefix; i++)
        if (parser_accept(p, steps[i])) {
            node->words = steps[i];
            node->length = 2;
            break;
        }
    if (!node->words)
        parser_unexpected(p, "`+=`, `-=`, `++` or `--`", "for other steps use `while`");
    else if (node->words[1] == '=')
        node->third = parse_expression(p);
    parser_expect(p, ")", NULL);
    node->body = parse_governed(p, node->from.line);
    return parser_done(p, node);
}

/* A chain of `else if` is read in a loop and linked afterwards, so that it is tall but not nested. */
static ast *parse_if(parser *p)
{
    ast_list chain = {0};
    ast *last = NULL;
    for (;;) {
        ast *node = parser_node(p, AST_IF, p->now.at);
        parser_advance(p);
        parser_expect(p, "(", "a condition is in parentheses: `if (x > 0) { ... }`");
        node->left = parse_expression(p);
        parser_expect(p, ")", NULL);
        node->body = parse_governed(p, node->from.line);
        parser_push(p, &chain, node);
        if (!parser_accept(p, "else")) break;
        if (parser_is(p, "if")) continue;
        last = parse_statement(p);
        break;
    }
    for (int i = chain.count - 1; i >= 0; i--) {
        chain.items[i]->other = last;
        last = parser_done(p, chain.items[i]);
    }
    return last;
}

static ast *parse_let(parser *p)
{
    ast *node = parser_node(p, AST_LET, p->now.at);
    parser_advance(p);
    bool several = parser_accept(p, "(");
    do {
        ast *name = parser_node(p, AST_NAME, p->now.at);
        name->name = parser_expect_name(p, "a name", &name->at);
        parser_push(p, &node->list, parser_done(p, name));
    } while (several && parser_accept(p, ","));
    if (several) parser_expect(p, ")", NULL);
    node->is_set = several;
    parser_expect(p, "=", parser_is(p, ",") ? "several results are `let (a, b) = f(x);`" : NULL);
    node->left = parse_expression(p);
    parser_expect(p, ";", NULL);
    return parser_done(p, node);
}

static ast *parse_return(parser *p)
{
    ast *node = parser_node(p, AST_RETURN, p->now.at);
    parser_advance(p);
    if (parser_accept(p, ";")) return parser_done(p, node);
    do parser_push(p, &node->list, parse_expression(p));
    while (parser_accept(p, ","));
    parser_expect(p, ";", NULL);
    return parser_done(p, node);
}

static ast *parse_word(parser *p, ast_kind kind)
{
    ast *node = parser_node(p, kind, p->now.at);
    parser_advance(p);
    if (kind != AST_EMPTY) parser_expect(p, ";", NULL);
    return parser_done(p, node);
}

/* `++i;` is `i++;`: as a statement they are the same. */
static ast *parse_prefix(parser *p)
{
    ast *node = parser_node(p, AST_ASSIGN, p->now.at);
    node->word = p->now.word;
    parser_advance(p);
    node->left = parse_postfix(p);
    node->at = node->from;
    const ast *base = node->left->kind == AST_INDEX ? node->left->left : node->left;
    if (base->kind != AST_NAME || base->parenthesised)
        parser_error(p, E104, base->at, "assign to a variable or to an access `x[...]`",
                     "only names and their elements are assigned");
    parser_expect(p, ";", NULL);
    return parser_done(p, node);
}

static ast *parse_by_kind(parser *p)
{
    if (parser_is(p, "{")) return parse_block(p);
    if (parser_is(p, ";")) return parse_word(p, AST_EMPTY);
    if (parser_is(p, "if")) return parse_if(p);
    if (parser_is(p, "for")) return parse_for(p);
    if (parser_is(p, "while")) {
        ast *node = parser_node(p, AST_WHILE, p->now.at);
        parser_advance(p);
        parser_expect(p, "(", "a condition is in parentheses: `while (x > 0) { ... }`");
        node->left = parse_expression(p);
        parser_expect(p, ")", NULL);
        node->body = parse_governed(p, node->from.line);
        return parser_done(p, node);
    }
    if (parser_is(p, "break")) return parse_word(p, AST_BREAK);
    if (parser_is(p, "continue")) return parse_word(p, AST_CONTINUE);
    if (parser_is(p, "return")) return parse_return(p);
    if (parser_is(p, "let")) return parse_let(p);
    if (parser_is(p, "const")) return parse_constant(p);
    if (parser_is(p, "tile") || (parser_at_type(p) && p->next.kind == TOKEN_NAME)) return parse_declaration(p);
    bool pointer = p->now.kind == TOKEN_TYPE && p->next.kind == TOKEN_OPERATOR && !strcmp(p->next.word, "*");
    if (pointer) return parse_declaration(p);
    if (parser_is(p, "++") || parser_is(p, "--")) return parse_prefix(p);
    if (p->now.kind == TOKEN_KEYWORD && !parser_is(p, "true") && !parser_is(p, "false")) {
        parser_unexpected(p, "a statement", parser_is(p, "else") ? "this `else` has no `if`" : NULL);
        return parser_node(p, AST_EMPTY, p->now.at);
    }
    return parse_simple(p);
}

static ast *parse_statement(parser *p)
{
    bool blank = p->now.blank_before;
    ast *node = NULL;
    if (parser_enter(p) && !p->panic) node = parse_by_kind(p);
    parser_leave(p);
    if (!node) node = parser_done(p, parser_node(p, AST_EMPTY, p->now.at));
    node->blank_before = blank;
    return node;
}
