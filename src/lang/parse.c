/*
 * Tokens to a tree: items, parameters and clauses. In: the text of a file. Out: an ast_file, with diagnostics.
 *
 * Recursive descent with two tokens of lookahead. After an error the parser is silent (`panic`) until the statement or
 * item is over, then goes on, so that several errors are found in one run; a tree with errors is only good for more
 * checks of names. Depth is bounded twice: nesting of the source (the parser's stack) and height of the tree (everyone
 * else's).
 * SPDX-License-Identifier: MIT
 */
#include "lang/parse.h"

#include <ctype.h>
#include <string.h>

static void note_generic(parser *p, const char *word)
{
    for (int i = 0; i < p->generic_count; i++)
        if (!strcmp(p->generics[i], word)) return;
    if (p->generic_count < COUNT(p->generics)) p->generics[p->generic_count++] = word;
}

/* "(" [ setting { "," setting } ] ")" */
static void parse_settings(parser *p, ast_list *list)
{
    parser_expect(p, "(", NULL);
    if (parser_accept(p, ")")) return;
    do {
        ast *setting = parser_node(p, AST_SETTING, p->now.at);
        if (list->count && p->now.kind == TOKEN_NUMBER)
            parser_unexpected(p, "the name of a setting", "several values are `NAME in {a, b}`");
        setting->name = parser_expect_name(p, "the name of a setting", &setting->at);
        if (parser_accept(p, "in")) {
            setting->is_set = true;
            parse_set(p, &setting->list);
        } else if (parser_expect(p, "=", "a setting is `NAME = value` or `NAME in {a, b}`")) {
            if (parser_is(p, "{")) parser_unexpected(p, "a value", "several values are `NAME in {a, b}`");
            setting->left = parse_expression(p);
        }
        parser_push(p, list, parser_done(p, setting));
    } while (parser_accept(p, ","));
    parser_expect(p, ")", NULL);
}

/* The brackets of a parameter: extents, at most one `[...]`, or `[]` alone: a tensor of rank 0. */
static void parse_axes_of(parser *p, ast *param)
{
    place open = p->now.at;
    param->is_tensor = parser_is(p, "[");
    while (parser_accept(p, "[")) {
        place at = p->now.at;
        if (parser_accept(p, "...")) {
            if (param->has_spread)
                parser_error(p, E104, at, "one `[...]` stands for all axes that are not named", "`%s` has two `[...]`",
                             param->name);
            param->has_spread = true;
            param->spread_at = param->list.count;
        } else if (!parser_is(p, "]") || param->list.count || param->has_spread) {
            parser_push(p, &param->list, parse_expression(p));
        } else {
            parser_expect(p, "]", NULL);
            if (parser_is(p, "["))
                parser_error(p, E104, at, "name every extent, as in `[n]`, or write `[...]` for any axes",
                             "expected an extent of `%s`, found `]`", param->name);
            if (!parser_is(p, "[")) return;
            continue;
        }
        for (bool told = false; parser_is(p, ","); told = true) { /* `x[n, m]` is read as it was meant */
            if (!told) parser_tell_comma(p, "write `x[n][m]`, one bracket for each axis");
            parser_advance(p);
            parser_push(p, &param->list, parse_expression(p));
        }
        parser_expect(p, "]", NULL);
    }
    if (param->list.count > ARRAY_RANK)
        parser_error(p, E105, open, "flatten some axes into one", "%d axes; the limit is %d", param->list.count,
                     ARRAY_RANK);
}

static ast *parse_param(parser *p)
{
    static const char *const words[] = {"in", "out", "inout", "scratch", "const"};
    ast *param = parser_node(p, AST_PARAM, p->now.at);
    param->blank_before = p->now.blank_before;
    for (int i = 0; i < COUNT(words) && !param->word[0]; i++)
        if (parser_accept(p, words[i])) param->word = words[i];
    bool is_const = !strcmp(param->word, "const");
    if (parser_is(p, "tile")) {
        if (param->word[0] && strcmp(param->word, "inout"))
            parser_error(p, E104, p->now.at, "a tile parameter is `tile T x` or `inout tile T x`", "`%s` before `tile`",
                         param->word);
        parser_accept(p, "tile");
        param->is_tile = true;
    }
    param->type = parse_type(p);
    if (param->type->is_generic) note_generic(p, param->type->word);
    parser_no_pointer(p);
    param->name = parser_expect_name(p, "the name of a parameter", &param->at);
    if (is_const && parser_accept(p, "(")) {
        param->is_function = true;
        do parser_push(p, &param->list, parse_type(p));
        while (parser_accept(p, ","));
        parser_expect(p, ")", NULL);
        if (parser_accept(p, "=")) {
            ast *name = parser_node(p, AST_NAME, p->now.at);
            name->name = parser_expect_name(p, "the name of a function", &name->at);
            param->left = parser_done(p, name);
        }
        return parser_done(p, param);
    }
    if (is_const && parser_is(p, "["))
        parser_unexpected(p, "`=`, `,` or `)`",
                          "an array that is read is `in float x[n]`, one that is written `out float y[n]`");
    if (!is_const && !param->is_tile) parse_axes_of(p, param);
    if (!param->is_tile && parser_accept(p, "=")) param->left = parse_expression(p);
    return parser_done(p, param);
}

static void parse_params(parser *p, ast *item)
{
    place open = p->now.at;
    parser_expect(p, "(", NULL);
    if (parser_accept(p, ")")) return;
    do parser_push(p, &item->list, parse_param(p));
    while (parser_accept(p, ","));
    parser_expect(p, ")", NULL);
    int limit = item->kind == AST_TENSOR ? TENSOR_PARAM_LIMIT : MAX_PARAMS;
    if (item->list.count > limit)
        parser_error(p, E105, open, "split it", "%d parameters; the limit is %d", item->list.count, limit);
}

void parser_recover_body(parser *p)
{
    if (!p->panic) return;
    bool in_set = false;
    while (p->now.kind != TOKEN_END && !parser_is(p, ";") && !parser_is(p, "}") && !parser_is(p, "kernel") &&
           !parser_is(p, "tensor") && !parser_is(p, "bench") && (in_set || !parser_is(p, "{"))) {
        in_set = parser_is(p, "in") || (parser_is(p, "=") && p->next.kind == TOKEN_OPERATOR);
        parser_advance(p);
        if (!in_set || !parser_is(p, "{")) continue;
        while (p->now.kind != TOKEN_END && !parser_is(p, "}")) parser_advance(p); /* a set: `in {64, 128}` */
        if (parser_is(p, "}")) parser_advance(p);
        in_set = false;
    }
    if (parser_is(p, "{")) p->panic = false;
}

/* A clause that is a word and "(" expr { "," expr } ")"; the word is consumed here. */
static ast *parse_clause(parser *p, const char *word)
{
    ast *clause = parser_node(p, AST_CLAUSE, p->now.at);
    clause->word = word;
    parser_advance(p);
    parse_expressions(p, &clause->list);
    return parser_done(p, clause);
}

static ast *parse_settings_clause(parser *p, const char *word, bool has_word)
{
    ast *clause = parser_node(p, AST_CLAUSE, p->now.at);
    clause->word = word;
    if (has_word) parser_advance(p);
    parse_settings(p, &clause->list);
    if (!strcmp(word, "tune") && parser_accept(p, "if")) {
        parser_expect(p, "(", NULL);
        clause->left = parse_expression(p);
        parser_expect(p, ")", NULL);
    }
    return parser_done(p, clause);
}

static ast *parse_gradient(parser *p)
{
    ast *clause = parser_node(p, AST_CLAUSE, p->now.at);
    clause->word = "gradient";
    parser_advance(p);
    parser_expect(p, "(", NULL);
    clause->name = parser_expect_name(p, "the name of a kernel or tensor function", &clause->at);
    parser_expect(p, ")", NULL);
    return parser_done(p, clause);
}

static ast *parse_kernel(parser *p, ast *item)
{
    item->kind = AST_KERNEL;
    parser_advance(p);
    item->name = parser_expect_name(p, "the name of the kernel", &item->at);
    parse_params(p, item);
    ast *phase = parser_node(p, AST_PHASE, p->now.at);
    while (!p->panic && !parser_is(p, "{")) {
        ast *clause;
        if (parser_is(p, "launch")) {
            clause = parse_clause(p, "launch");
            if (!phase->list.count) {
                phase->list = clause->list;
                phase->from = phase->at = clause->from;
            }
        } else if (parser_is(p, "tune")) {
            clause = parse_settings_clause(p, "tune", true);
        } else if (parser_is_name(p, "types")) {
            clause = parse_settings_clause(p, "types", true);
        } else if (parser_is_name(p, "precise")) {
            clause = parser_node(p, AST_CLAUSE, p->now.at);
            clause->word = "precise";
            parser_advance(p);
            clause = parser_done(p, clause);
        } else if (parser_is_name(p, "gradient")) {
            clause = parse_gradient(p);
        } else {
            parser_unexpected(p, "a clause or `{`", "clauses are launch, tune, types, precise and gradient");
            break;
        }
        parser_push(p, &item->clauses, clause);
    }
    parser_recover_body(p);
    phase->body = parse_block(p);
    parser_push(p, &item->phases, parser_done(p, phase));
    while (!p->panic && parser_is(p, "then")) {
        phase = parser_node(p, AST_PHASE, p->now.at);
        phase->blank_before = p->now.blank_before;
        parser_advance(p);
        parser_expect(p, "launch", "a phase begins with `then launch (...)`");
        parse_expressions(p, &phase->list);
        parser_recover_body(p);
        phase->body = parse_block(p);
        parser_push(p, &item->phases, parser_done(p, phase));
    }
    return item;
}

/* `<float, 16>` behind a raw kernel's name, before the parameters say which names are types. */
static ast *parse_template(parser *p)
{
    ast *node = parser_node(p, AST_CLAUSE, p->now.at);
    node->word = "template";
    parser_advance(p);
    do parser_push(p, &node->list, parse_template_argument(p));
    while (parser_accept(p, ","));
    parser_expect(p, ">", "parenthesise a comparison");
    return parser_done(p, node);
}

static void name_types(const parser *p, const ast_list *arguments)
{
    for (int i = 0; i < arguments->count; i++) {
        ast *argument = arguments->items[i];
        for (int k = 0; k < p->generic_count && argument->kind == AST_NAME; k++) {
            if (strcmp(argument->name, p->generics[k])) continue;
            argument->kind = AST_TYPE_NAME;
            argument->word = argument->name;
            argument->is_generic = true;
        }
    }
}

static ast *parse_raw(parser *p, ast *item)
{
    item->kind = AST_RAW;
    item->word = p->now.word;
    parser_advance(p);
    item->name = parser_expect_name(p, "the name of the raw kernel", &item->at);
    if (!p->panic && parser_is(p, "<")) item->left = parse_template(p);
    parse_params(p, item);
    if (item->left) name_types(p, &item->left->list);
    while (!p->panic) {
        const char *word = parser_is(p, "launch")         ? "launch"
                           : parser_is_name(p, "block")   ? "block"
                           : parser_is_name(p, "shared")  ? "shared"
                           : parser_is_name(p, "options") ? "options"
                                                          : NULL;
        bool settings = parser_is(p, "tune") || parser_is_name(p, "types");
        if (parser_is_name(p, "gradient")) {
            parser_push(p, &item->clauses, parse_gradient(p));
            continue;
        }
        if (!word && !settings) break;
        parser_push(p, &item->clauses, word ? parse_clause(p, word) : parse_settings_clause(p, p->now.word, true));
    }
    if (p->panic) return item;
    if (p->now.kind == TOKEN_RAW) {
        item->words = p->now.word;
        item->length = p->now.length;
        item->text_line = p->now.at.line;
        parser_advance(p);
    } else if (parser_is_name(p, "from")) {
        parser_advance(p);
        item->is_path = true;
        if (p->now.kind == TOKEN_STRING) {
            item->words = p->now.word;
            item->length = p->now.length;
            item->text_line = p->now.at.line;
            parser_advance(p);
            parser_expect(p, ";", NULL);
        } else {
            parser_unexpected(p, "the path of a file in quotes", NULL);
        }
    } else {
        parser_unexpected(p, "\"\"\"source\"\"\" or `from \"file\";`", NULL);
    }
    return item;
}

/* `on cpu (n = 1 << 24)`: settings that replace those of the bench on one device. */
static ast *parse_on(parser *p)
{
    ast *clause = parser_node(p, AST_CLAUSE, p->now.at);
    clause->word = "on";
    parser_advance(p);
    clause->name = parser_expect_name(p, "the name of a device", &clause->at);
    parse_settings(p, &clause->list);
    return parser_done(p, clause);
}

static ast *parse_bench(parser *p, ast *item)
{
    static const char *const modes[] = {"eager", "fused", "strict", "fma", "tf32" /* also a type */};
    item->kind = AST_BENCH;
    parser_advance(p);
    item->name = parser_expect_name(p, "the name of the bench", &item->at);
    parser_push(p, &item->clauses, parse_settings_clause(p, "settings", false));
    while (!p->panic && !parser_is(p, "{")) {
        if (parser_is_name(p, "input"))
            parser_push(p, &item->clauses, parse_settings_clause(p, "input", true));
        else if (parser_is_name(p, "on"))
            parser_push(p, &item->clauses, parse_on(p));
        else if (parser_is_name(p, "tolerance"))
            parser_push(p, &item->clauses, parse_clause(p, "tolerance"));
        else if (parser_is_name(p, "bytes"))
            parser_push(p, &item->clauses, parse_clause(p, "bytes"));
        else if (parser_is_name(p, "flops"))
            parser_push(p, &item->clauses, parse_clause(p, "flops"));
        else
            parser_unexpected(p, "a clause or `{`", "clauses are on, input, tolerance, bytes and flops");
    }
    parser_expect(p, "{", NULL);
    if (parser_accept(p, "}")) return item;
    do {
        ast *variant = parser_node(p, AST_VARIANT, p->now.at);
        for (int i = 0; i < COUNT(modes); i++) {
            bool is = (p->now.kind == TOKEN_NAME || p->now.kind == TOKEN_TYPE) && !strcmp(p->now.word, modes[i]);
            if (!is || p->next.kind != TOKEN_NAME) continue;
            variant->word = modes[i];
            parser_advance(p);
            break;
        }
        variant->name = parser_expect_name(p, "the name of a variant", &variant->at);
        if (!p->panic && parser_is(p, "(")) parse_settings(p, &variant->list);
        parser_push(p, &item->list, parser_done(p, variant));
    } while (parser_accept(p, ","));
    parser_expect(p, "}", NULL);
    return item;
}

static ast *parse_function(parser *p, ast *item)
{
    item->kind = AST_FUNCTION;
    if (!parser_accept(p, "void")) {
        item->is_tile = parser_accept(p, "tile");
        item->type = parse_type(p);
        if (item->type->is_generic) note_generic(p, item->type->word);
    }
    item->name = parser_expect_name(p, "the name of the function", &item->at);
    if (parser_is(p, "="))
        parser_unexpected(p, "`(`", "outside functions there are only constants: `const int x = 3;`");
    parse_params(p, item);
    parser_recover_body(p);
    item->body = parse_block(p);
    return item;
}

static bool starts_raw(const parser *p)
{
    return (parser_is_name(p, "c") || parser_is_name(p, "cuda")) && p->next.kind == TOKEN_NAME;
}

static void add_space(parser *p, const char *name)
{
    ARENA_PUSH(p->file->memory, p->file->spaces, p->file->space_count, p->file->space_capacity, name);
}

/* `import "folder/helpers.qn";` is the name space `helpers`, `import "helpers.qn" as h;` is `h`. It must be known before
 * the token behind the `;` is read, which may be a name in it. */
static void parse_import(parser *p)
{
    ast *node = parser_node(p, AST_IMPORT, p->now.at);
    node->blank_before = p->now.blank_before;
    parser_advance(p);
    if (p->now.kind != TOKEN_STRING) {
        parser_unexpected(p, "the path of a file in quotes", "write `import \"helpers.qn\";`");
        return;
    }
    node->at = p->now.at;
    node->words = p->now.word;
    node->length = p->now.length;
    const char *path = arena_copy_text(p->file->memory, node->words, node->length), *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path, *dot = strchr(base, '.');
    node->name = arena_copy_text(p->file->memory, base, dot ? (size_t)(dot - base) : strlen(base));
    bool given = p->next.kind == TOKEN_NAME && !strcmp(p->next.word, "as");
    bool plain = *node->name != 0;
    for (const char *c = node->name; *c; c++)
        plain &= *c == '_' || (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                 (c > node->name && *c >= '0' && *c <= '9');
    if (!plain && !given) {
        parser_error(p, E111, p->now.at, "give it one: `import \"my-file.qn\" as mine;`",
                     "`%.100s` is no name for a name space", node->name);
        return;
    }
    if (!given) add_space(p, node->name);
    parser_advance(p);
    if (given) {
        parser_advance(p);
        if (p->now.kind == TOKEN_NAME) add_space(p, p->now.word);
        node->is_set = true;
        node->name = parser_expect_name(p, "the name of the name space", &(place){0});
    }
    parser_expect(p, ";", NULL);
    if (p->panic) return;
    for (int i = 0; i < p->file->imports.count; i++)
        if (!strcmp(p->file->imports.items[i]->name, node->name)) {
            diagnose(p->d, E202, node->at, "give one of them another name with `as`",
                     "the name space `%.100s` is already there (at line %d)", node->name,
                     p->file->imports.items[i]->at.line % FOREIGN_LINES);
            return;
        }
    if (p->file->items.count && !p->file->imports.count)
        diagnose(p->d, E111, node->at, "put it before everything else", "an `import` stands at the top of the file");
    parser_push(p, &p->file->imports, parser_done(p, node));
    import_file(p, node);
}

static ast *parse_item(parser *p)
{
    ast *item = parser_node(p, AST_FUNCTION, p->now.at);
    item->blank_before = p->now.blank_before;
    p->generic_count = 0;
    if (parser_is(p, "kernel"))
        parse_kernel(p, item);
    else if (parser_is(p, "tensor")) {
        item->kind = AST_TENSOR;
        parser_advance(p);
        item->name = parser_expect_name(p, "the name of the tensor function", &item->at);
        parse_params(p, item);
        parser_recover_body(p);
        item->body = parse_block(p);
    } else if (parser_is(p, "bench"))
        parse_bench(p, item);
    else if (parser_is(p, "const")) {
        bool blank = item->blank_before;
        item = parse_constant(p);
        item->blank_before = blank;
        return item;
    } else if (starts_raw(p))
        parse_raw(p, item);
    else if (parser_is(p, "void") || parser_is(p, "tile") || p->now.kind == TOKEN_TYPE ||
             (parser_at_type(p) && p->next.kind == TOKEN_NAME))
        parse_function(p, item);
    else if (parser_is(p, "import")) {
        parse_import(p);
        return NULL;
    } else if (parser_is(p, "@")) {
        if (p->next.kind == TOKEN_NAME && strchr(p->next.word, '.')) p->panic = true; /* `@triton.jit`: was said */
        parser_error(p, E110, p->now.at,
                     "a kernel is `kernel name(in float x[n], out float y[n]) launch (...) { ... }`",
                     "there are no decorators");
        return NULL;
    } else {
        parser_unexpected(p, "kernel, tensor, bench, const, c, cuda or a function", NULL);
        return NULL;
    }
    return parser_done(p, item);
}

/* After an error: on to a word that begins an item and stands at the start of a line. */
static void next_item(parser *p, bool moved)
{
    p->panic = false;
    p->nesting = 0;
    if (!moved && p->now.kind != TOKEN_END) parser_advance(p);
    while (p->now.kind != TOKEN_END) {
        bool word = p->now.kind == TOKEN_KEYWORD || p->now.kind == TOKEN_TYPE || p->now.kind == TOKEN_NAME;
        if (parser_is(p, "kernel") || parser_is(p, "tensor") || parser_is(p, "bench")) return;
        if (word && p->now.at.column == 1 && !parser_is(p, "then")) return;
        parser_advance(p);
    }
}

void parser_add_item(parser *p, ast *item)
{
    ast_file *file = p->file;
    parser_push(p, &file->items, item);
    if (item->kind != AST_BENCH) {
        if (item->name && !map_get(file->by_name, item->name)) map_set(file->by_name, item->name, item);
        return;
    }
    for (int i = 0; i < item->list.count; i++) {
        const char *kernel = item->list.items[i]->name;
        if (kernel && !map_get(file->benches, kernel)) map_set(file->benches, kernel, item);
    }
}

/* `sum(x, 1)` becomes `sum(x, axis = 1)`, unless the file has a `sum` of its own. */
static void name_axes(parser *p)
{
    for (int i = 0; i < p->axis_calls.count; i++) {
        ast *call = p->axis_calls.items[i], *value = call->list.items[1];
        if (map_get(p->file->by_name, call->left->name)) continue;
        ast *named = parser_node(p, AST_NAMED, value->from);
        named->name = habit_axis(call->left->name);
        named->left = value;
        named->height = value->height + 1;
        named->end_line = value->end_line;
        named->end_column = value->end_column;
        call->list.items[1] = named;
    }
}

static ast_file *parse_file(arena *memory, ast_file *root, ast_file *importer, const char *path, const char *words,
                            size_t length, diagnostics *d)
{
    ast_file *file = ARENA_NEW(memory, ast_file);
    file->memory = memory;
    file->by_name = map_new(memory);
    file->benches = map_new(memory);
    file->path = arena_copy_text(memory, path, strlen(path));
    if (!d->memory) d->memory = memory;
    if (length > FILE_LIMIT_BYTES) {
        diagnose(d, E105, (place){.line = 1, .column = 1}, "split it", "the file has %zu bytes; the limit is %u",
                 length, FILE_LIMIT_BYTES);
        words = "";
        length = 0;
    }
    file->text = arena_copy_text(memory, words, length);
    file->length = length;
    file->importer = importer;
    parser p = {.file = file, .d = d};
    if (root) ARENA_PUSH(memory, root->sources, root->source_count, root->source_capacity, file);
    lex_start(&p.lex, file, root ? root->source_count * FOREIGN_LINES : 0, d);
    p.now = lex_next(&p.lex);
    p.next = lex_next(&p.lex);
    while (p.now.kind != TOKEN_END) {
        place before = p.now.at;
        ast *item = parse_item(&p);
        if (item) parser_add_item(&p, item);
        if (p.panic) next_item(&p, p.now.at.line != before.line || p.now.at.column != before.column);
    }
    name_axes(&p);
    return file;
}

ast_file *lang_parse(arena *memory, const char *path, const char *words, size_t length, diagnostics *d)
{
    return parse_file(memory, NULL, NULL, path, words, length, d);
}

ast_file *lang_parse_imported(ast_file *root, ast_file *importer, const char *path, const char *words, size_t length,
                              diagnostics *d)
{
    return parse_file(root->memory, root, importer, path, words, length, d);
}
