/*
 * Expressions: operators by precedence, calls, brackets. In: tokens. Out: a tree, never NULL (a number 0 stands where
 * an error was).
 * SPDX-License-Identifier: MIT
 */
#include "lang/parse.h"

static const struct {
    const char *word;
    int level; /* the higher the tighter */
} binary_operators[] = {{"||", 1}, {"&&", 2}, {"|", 3},  {"^", 4},  {"&", 5},  {"==", 6}, {"!=", 6},
                        {"<", 7},  {"<=", 7}, {">", 7},  {">=", 7}, {"<<", 8}, {">>", 8}, {"+", 9},
                        {"-", 9},  {"*", 10}, {"/", 10}, {"%", 10}, {"@", 10}};

static int level_of(const parser *p)
{
    if (p->now.kind != TOKEN_OPERATOR) return 0;
    for (int i = 0; i < COUNT(binary_operators); i++)
        if (!strcmp(p->now.word, binary_operators[i].word)) return binary_operators[i].level;
    return 0;
}

static ast *nothing(parser *p)
{
    ast *node = parser_node(p, AST_NUMBER, p->now.at);
    node->word = "0";
    node->height = 1;
    return node;
}

void parse_set(parser *p, ast_list *list)
{
    parser_expect(p, "{", "a set is `{a, b, c}`");
    if (p->panic) return;
    do parser_push(p, list, parse_expression(p));
    while (parser_accept(p, ","));
    parser_expect(p, "}", NULL);
}

void parse_expressions(parser *p, ast_list *list)
{
    parser_expect(p, "(", NULL);
    if (p->panic) return;
    do parser_push(p, list, parse_expression(p));
    while (parser_accept(p, ","));
    parser_expect(p, ")", NULL);
}

void parse_extents(parser *p, ast_list *list)
{
    place open = p->now.at;
    while (parser_accept(p, "[")) {
        parser_push(p, list, parse_expression(p));
        parser_expect(p, "]", NULL);
    }
    if (list->count > ARRAY_RANK)
        parser_error(p, E105, open, "flatten some axes into one", "%d axes; the limit is %d", list->count, ARRAY_RANK);
}

static bool is_generic_here(const parser *p, const char *word)
{
    for (int i = 0; i < p->generic_count; i++)
        if (!strcmp(p->generics[i], word)) return true;
    return false;
}

/* `(float)x` and what else may follow a type in parentheses only in C. */
static bool starts_operand(const parser *p)
{
    return p->now.kind == TOKEN_NAME || p->now.kind == TOKEN_NUMBER || parser_is(p, "(");
}

static ast *parse_c_cast(parser *p, ast *type, place at)
{
    if (p->panic) return type;
    at.end_column = p->end_column;
    diagnose(p->d, E110, at, arena_print(p->file->memory, "write `%s(x)`", type->word),
             "a cast is not written in parentheses");
    return parse_postfix(p);
}

static ast *parse_primary(parser *p)
{
    token t = p->now;
    if (p->panic) return nothing(p);
    ast *node = parser_node(p, AST_NAME, t.at);
    switch (t.kind) {
    case TOKEN_NUMBER:
        node->kind = AST_NUMBER;
        node->number = t.number;
        node->is_float = t.is_float;
        node->is_typed = t.is_typed;
        node->word = t.word;
        break;
    case TOKEN_STRING:
        node->kind = AST_STRING;
        node->words = t.word;
        node->length = t.length;
        break;
    case TOKEN_TYPE:
        node->kind = AST_TYPE_NAME;
        node->word = t.word;
        break;
    case TOKEN_NAME:
        if (is_generic_here(p, t.word)) {
            node->kind = AST_TYPE_NAME;
            node->word = t.word;
            node->is_generic = true;
        }
        node->name = t.word;
        break;
    default:
        if (parser_is(p, "true") || parser_is(p, "false")) {
            node->kind = AST_BOOL;
            node->number.i = parser_is(p, "true");
            node->word = t.word;
            break;
        }
        if (parser_accept(p, "(")) {
            bool cast = p->now.kind == TOKEN_TYPE && p->next.kind == TOKEN_OPERATOR && !strcmp(p->next.word, ")");
            node = parse_expression(p);
            node->parenthesised = true;
            node->from = t.at;
            parser_expect(
                p, ")",
                "there are no tuples: tensors are arguments, `concat(a, b, axis = 0)`, axes a set, `axis = {0, 1}`");
            return cast && starts_operand(p) ? parse_c_cast(p, node, t.at) : node;
        }
        parser_unexpected(p, "an expression",
                          parser_is(p, "++") || parser_is(p, "--") ? "`++` and `--` are statements: write `x++;`"
                          : parser_is(p, "=")                      ? "assignment is a statement; `==` compares"
                                                                   : NULL);
        return nothing(p);
    }
    parser_advance(p);
    return parser_done(p, node);
}

/* `x[r, :]`: reported, and the rest of the bracket is skipped. */
static ast *parse_commas(parser *p, ast *node)
{
    parser_tell_comma(p, "write `x[r][:]`, one bracket for each axis");
    for (int depth = 0; p->now.kind != TOKEN_END && !parser_is(p, ";") && (depth || !parser_is(p, "]"));) {
        depth += parser_is(p, "[") - parser_is(p, "]");
        parser_advance(p);
    }
    parser_expect(p, "]", NULL);
    return parser_done(p, node);
}

/* "[" was consumed. */
static ast *parse_subscript(parser *p, place from)
{
    ast *node = parser_node(p, AST_SUBSCRIPT, from);
    const char *form = "a slice is `[start : length]` or `[start : length : step]`, a whole axis `[:]`";
    if (parser_accept(p, "]")) return parser_done(p, node);
    if (parser_accept(p, "...")) {
        node->is_slice = node->is_spread = true;
        parser_expect(p, "]", "`[...]` stands for as many `[:]` as there are axes without a bracket");
        return parser_done(p, node);
    }
    if (parser_is(p, ":")) {
        node->is_slice = true;
        parser_advance(p);
        if (parser_is(p, ",")) return parse_commas(p, node);
        parser_expect(p, "]",
                      parser_is(p, ":")
                          ? "every second of n elements is `[0 : cdiv(n, 2) : 2]`, backwards `flip(x, axis = 0)`"
                          : form);
        return parser_done(p, node);
    }
    node->left = parse_expression(p);
    if (!p->panic && parser_is(p, ",")) return parse_commas(p, node);
    if (parser_accept(p, ":")) {
        node->is_slice = true;
        if (!p->panic && parser_is(p, "]")) parser_unexpected(p, "the length of the slice", form);
        node->right = parse_expression(p);
        if (parser_accept(p, ":")) node->third = parse_expression(p);
    }
    if (!p->panic && parser_is(p, ",")) return parse_commas(p, node);
    parser_expect(p, "]", NULL);
    habit_slice(p, node);
    return parser_done(p, node);
}

/* `axis = (0, 1)` is the set `{0, 1}`; with one value in them the parentheses are what they always are. */
static void parse_axes(parser *p, ast *node)
{
    place open = p->now.at;
    parser_advance(p);
    ast *first = parse_expression(p);
    if (parser_is(p, ",")) {
        node->is_set = true;
        parser_push(p, &node->list, first);
        while (parser_accept(p, ","))
            if (!parser_is(p, ")")) parser_push(p, &node->list, parse_expression(p));
        parser_expect(p, ")", NULL);
        return;
    }
    parser_expect(p, ")", NULL);
    first->parenthesised = true;
    first->from = open;
    node->left = parse_binary_rest(p, first);
}

static ast *parse_argument(parser *p)
{
    bool named = p->now.kind == TOKEN_NAME && p->next.kind == TOKEN_OPERATOR && !strcmp(p->next.word, "=");
    if (!named) return parse_expression(p);
    ast *node = parser_node(p, AST_NAMED, p->now.at);
    node->name = p->now.word;
    parser_advance(p);
    parser_advance(p);
    if (parser_is(p, "{")) {
        node->is_set = true;
        parse_set(p, &node->list);
    } else if (!strcmp(node->name, "axis") && parser_is(p, "(")) {
        parse_axes(p, node);
    } else {
        node->left = parse_expression(p);
    }
    return parser_done(p, node);
}

/* `sum(x, 1)`: whether that is an axis depends on what the file calls `sum`, which is known at its end. */
static void note_axis(parser *p, ast *call)
{
    if (p->panic || call->list.count < 2 || call->left->kind != AST_NAME || !habit_axis(call->left->name)) return;
    const ast *second = call->list.items[1];
    if (second->kind == AST_UNARY) second = second->left;
    if (call->list.items[0]->kind != AST_NAMED && second->kind == AST_NUMBER && !second->is_float)
        parser_push(p, &p->axis_calls, call);
}

ast *parse_postfix(parser *p)
{
    ast *node = parse_primary(p);
    while (!p->panic) {
        ast *outer;
        if (parser_is(p, "[")) {
            outer = parser_node(p, AST_INDEX, node->from);
            outer->at = node->at;
            outer->left = node;
            while (!p->panic && parser_is(p, "[")) {
                place open = p->now.at;
                parser_advance(p);
                parser_push(p, &outer->list, parse_subscript(p, open));
            }
        } else if (parser_is(p, "(")) {
            outer = parser_node(p, AST_CALL, node->from);
            outer->at = node->at;
            outer->left = node;
            parser_advance(p);
            if (!parser_accept(p, ")")) {
                do parser_push(p, &outer->list, parse_argument(p));
                while (parser_accept(p, ","));
                parser_expect(p, ")", NULL);
            }
            note_axis(p, outer);
        } else {
            break;
        }
        node = parser_done(p, outer);
    }
    return node;
}

static ast *parse_unary(parser *p)
{
    if (p->panic || !(parser_is(p, "-") || parser_is(p, "+") || parser_is(p, "!") || parser_is(p, "~")))
        return parse_postfix(p);
    ast *node = parser_node(p, AST_UNARY, p->now.at);
    node->word = p->now.word;
    parser_advance(p);
    node->left = parser_enter(p) ? parse_unary(p) : nothing(p);
    parser_leave(p);
    return parser_done(p, node);
}

static bool is_comparison(const ast *node)
{
    return node->kind == AST_BINARY && !node->parenthesised && (strchr("<>", node->word[0]) || node->word[1] == '=') &&
           strcmp(node->word, "<<") && strcmp(node->word, ">>");
}

static void check_operands(parser *p, const ast *node)
{
    bool bits = !strcmp(node->word, "&") || !strcmp(node->word, "|") || !strcmp(node->word, "^");
    if (!bits || p->panic) return;
    /* Not a reason to skip what follows: the grammar is kept. */
    if (is_comparison(node->left) || is_comparison(node->right))
        diagnose(p->d, E106, node->at, "add parentheses: comparisons bind tighter than `&`, `^` and `|`",
                 "`%s` with an unparenthesised comparison", node->word);
    const ast *a = node->left, *b = node->right;
    if (!strcmp(node->word, "^") && a->kind == AST_NUMBER && b->kind == AST_NUMBER)
        diagnose(p->d, E107, node->at,
                 !strcmp(a->word, "2") ? arena_print(p->file->memory, "write `1 << %.40s`", b->word)
                                       : "write the number; `^` of bits is not raised to a power",
                 "`%.40s^%.40s` in a constant is exclusive-or", a->word, b->word);
}

/* `x ** 2`: reported, and read as a product. */
static void power_of(parser *p, place at)
{
    at.end_column = at.column + 2;
    diagnose(p->d, E110, at, "write `pow(x, 2)`, or `x * x`", "there is no operator `**`");
    parser_advance(p);
}

/* `a @ b` is a call of the builtin of that name: `matmul` of tensors, `dot` of tiles, whatever the file defines. */
static ast *product_of(parser *p, const ast *binary)
{
    ast *call = parser_node(p, AST_CALL, binary->from), *callee = parser_node(p, AST_NAME, binary->at);
    callee->name = "@";
    call->at = binary->at;
    call->left = parser_done(p, callee);
    parser_push(p, &call->list, binary->left);
    parser_push(p, &call->list, binary->right);
    return call;
}

/* Operators of at least this level, after the operand `left`. */
static ast *climb(parser *p, ast *left, int least)
{
    for (int level; !p->panic && (level = level_of(p)) >= least && level > 0;) {
        ast *node = parser_node(p, AST_BINARY, left->from);
        node->at = p->now.at;
        node->word = p->now.word;
        node->left = left;
        parser_advance(p);
        if (node->word[0] == '*' && parser_is(p, "*")) power_of(p, node->at);
        node->right = climb(p, parse_unary(p), level + 1);
        check_operands(p, node);
        left = parser_done(p, node->word[0] == '@' ? product_of(p, node) : node);
    }
    return left;
}

ast *parse_binary_rest(parser *p, ast *left)
{
    left = climb(p, left, 1);
    if (p->panic || !parser_is(p, "?")) return left;
    ast *node = parser_node(p, AST_CONDITIONAL, left->from);
    node->at = p->now.at;
    node->left = left;
    parser_advance(p);
    node->right = parse_expression(p);
    parser_expect(p, ":", "a conditional is `condition ? a : b`");
    node->third = parse_expression(p);
    return parser_done(p, node);
}

ast *parse_template_argument(parser *p)
{
    ast *node = parser_enter(p) ? climb(p, parse_unary(p), 9) : nothing(p);
    parser_leave(p);
    return node;
}

ast *parse_expression(parser *p)
{
    ast *node = parser_enter(p) ? parse_binary_rest(p, parse_unary(p)) : nothing(p);
    parser_leave(p);
    return node;
}
