/*
 * The parser: trees of small sources, the appendix of the language's specification, limits, and sources that want to
 * do harm. Messages are tested by test_errors.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"
#include "tree.h"

#include <dirent.h>
#include <locale.h>
#include <stdlib.h>

static ast_file *parse(arena *memory, const char *words, size_t length, diagnostics *d)
{
    *d = (diagnostics){.memory = memory};
    return lang_parse(memory, "test.qn", words, length, d);
}

/* The canonical text of `x = EXPRESSION;` with every operation in parentheses. */
static void show(const ast *node, text *out)
{
    switch (node->kind) {
    case AST_BINARY:
        text_add(out, "(");
        show(node->left, out);
        text_add(out, node->word);
        show(node->right, out);
        text_add(out, ")");
        break;
    case AST_CONDITIONAL:
        text_add(out, "(");
        show(node->left, out);
        text_add(out, "?");
        show(node->right, out);
        text_add(out, ":");
        show(node->third, out);
        text_add(out, ")");
        break;
    case AST_UNARY:
        text_print(out, "(%s", node->word);
        show(node->left, out);
        text_add(out, ")");
        break;
    case AST_CALL:
        show(node->left, out);
        text_add(out, "(");
        for (int i = 0; i < node->list.count; i++) {
            if (i) text_add(out, ",");
            show(node->list.items[i], out);
        }
        text_add(out, ")");
        break;
    case AST_NAMED:
        text_print(out, "%s=", node->name);
        if (node->left) show(node->left, out);
        for (int i = 0; i < node->list.count; i++) {
            text_add(out, i ? "," : "{");
            show(node->list.items[i], out);
        }
        if (node->is_set) text_add(out, "}");
        break;
    case AST_INDEX:
        show(node->left, out);
        for (int i = 0; i < node->list.count; i++) {
            const ast *s = node->list.items[i];
            text_add(out, "[");
            if (s->left) show(s->left, out);
            if (s->is_slice) text_add(out, ":");
            if (s->right) show(s->right, out);
            if (s->third) text_add(out, ":");
            if (s->third) show(s->third, out);
            text_add(out, "]");
        }
        break;
    case AST_NAME: text_add(out, node->name); break;
    default: text_add(out, node->word); break;
    }
}

static void expect_expression(const char *source, const char *expected)
{
    arena *memory = arena_new();
    diagnostics d;
    char *words = arena_print(memory, "kernel k(in T x[n])  launch (1)\n{\n    y = %s;\n}\n", source);
    ast_file *file = parse(memory, words, strlen(words), &d);
    text out = {0};
    if (d.errors || file->items.count != 1) {
        diagnostics_print(&d, file, false, &out);
        test_fail(__FILE__, __LINE__, text_get(&out));
    } else {
        const ast *body = file->items.items[0]->phases.items[0]->body;
        EXPECT(body->list.count == 1 && body->list.items[0]->kind == AST_ASSIGN);
        show(body->list.items[0]->right, &out);
        EXPECT_TEXT(text_get(&out), expected);
    }
    text_free(&out);
    arena_free(memory);
}

TEST(precedence)
{
    expect_expression("a + b * c - d", "((a+(b*c))-d)");
    expect_expression("a << 1 + b", "(a<<(1+b))");
    expect_expression("a < b == c > d", "((a<b)==(c>d))");
    expect_expression("a | b ^ c & d", "(a|(b^(c&d)))");
    expect_expression("a || b && c", "(a||(b&&c))");
    expect_expression("-a * !b", "((-a)*(!b))");
    expect_expression("-x[0]", "(-x[0])");
    expect_expression("- -~a", "(-(-(~a)))");
    expect_expression("a / b / c % d", "(((a/b)/c)%d)");
    expect_expression("a ? b : c ? d : e", "(a?b:(c?d:e))");
    expect_expression("a || b ? c + 1 : d", "((a||b)?(c+1):d)");
    expect_expression("(a + b) * c", "((a+b)*c)");
}

TEST(postfix)
{
    expect_expression("x[c ? a : b : n]", "x[(c?a:b):n]");
    expect_expression("x[][:][i][a : n][a : n : s]", "x[][:][i][a:n][a:n:s]");
    expect_expression("sum(x, axis = {0, 1})", "sum(x,axis={0,1})");
    expect_expression("max(x, axis = -1)", "max(x,axis=(-1))");
    expect_expression("grad(f, w)(x)", "grad(f,w)(x)");
    expect_expression("(i + iota(n))[:][]", "(i+iota(n))[:][]");
    expect_expression("f()[0](1)", "f()[0](1)");
    expect_expression("T(bitcast(u32, x))", "T(bitcast(u32,x))");
    expect_expression("0x1F + .5 + 1e-5 + 0.5f + 0b101", "((((0x1F+.5)+1e-5)+0.5f)+0b101)");
}

static const ast *first_item(arena *memory, const char *words, diagnostics *d)
{
    ast_file *file = parse(memory, words, strlen(words), d);
    EXPECT(!d->errors && file->items.count >= 1);
    return file->items.items[0];
}

TEST(numbers)
{
    arena *memory = arena_new();
    diagnostics d;
    const ast *n = first_item(memory, "const int A = 9223372036854775807;", &d)->left;
    EXPECT(!n->is_float && n->number.i == INT64_MAX);
    n = first_item(memory, "const int A = 0xffffffffffffffff;", &d)->left;
    EXPECT(!n->is_float && n->number.i == -1);
    n = first_item(memory, "const float A = 0.1;", &d)->left;
    EXPECT(n->is_float && !n->is_typed && n->number.f == 0.1);
    n = first_item(memory, "const float A = 2.5e3f;", &d)->left;
    EXPECT(n->is_float && n->is_typed && n->number.f == 2500);
    n = first_item(memory, "const int A = 0b1010;", &d)->left;
    EXPECT(n->number.i == 10);
    /* A caller's locale with a decimal comma changes nothing. */
    const char *old = setlocale(LC_NUMERIC, "de_DE.UTF-8");
    n = first_item(memory, "const float A = 1.5;", &d)->left;
    EXPECT(n->number.f == 1.5);
    if (old) setlocale(LC_NUMERIC, "C");
    arena_free(memory);
}

TEST(items)
{
    arena *memory = arena_new();
    diagnostics d;
    const ast *k = first_item(memory,
                              "kernel k(in T x[n][2 * m], out float y = 0, scratch i32 s[4], inout T z, float a = 1,\n"
                              "         const int B = 3, const float act(float, T) = relu)\n"
                              "    launch (n, 2) tune (B in {1, 2}, warps in {4}) if (B > 1) types (T in {float})\n"
                              "    precise gradient (g)\n{ }\nthen launch (1) { return; }\n",
                              &d);
    EXPECT(k->kind == AST_KERNEL && k->list.count == 7 && k->clauses.count == 5 && k->phases.count == 2);
    EXPECT_TEXT(k->list.items[0]->word, "in");
    EXPECT(k->list.items[0]->list.count == 2 && k->list.items[0]->type->is_generic);
    EXPECT(k->list.items[1]->left && k->list.items[1]->list.count == 0);
    EXPECT_TEXT(k->list.items[4]->word, "");
    EXPECT(k->list.items[6]->is_function && k->list.items[6]->list.count == 2);
    EXPECT_TEXT(k->list.items[6]->left->name, "relu");
    EXPECT(k->phases.items[0]->list.count == 2 && k->phases.items[1]->list.count == 1);
    EXPECT(k->clauses.items[1]->left && k->clauses.items[1]->list.count == 2);
    EXPECT_TEXT(k->clauses.items[4]->name, "g");

    const ast *raw = first_item(
        memory, "cuda r(in float x[n]) launch (1) block (256) shared (n)\n\"\"\"\na \"b\" \\n\n\"\"\"\n", &d);
    EXPECT(raw->kind == AST_RAW && raw->clauses.count == 3 && raw->text_line == 2 && !raw->is_path);
    EXPECT_TEXT(raw->words, "\na \"b\" \\n\n");
    raw = first_item(memory, "c r(in float x[n]) from \"a\\\"b.c\";", &d);
    EXPECT(raw->is_path && raw->length == 5);
    EXPECT_TEXT(raw->words, "a\"b.c");
    raw = first_item(memory,
                     "cuda r<T, (N > 2), N + 1, \"a::b\">(in T x[n], const int N = 2) launch (1) block (N)\n"
                     "options (\"-G\") \"\"\"\"\"\"",
                     &d);
    EXPECT(raw->left && raw->left->list.count == 4 && raw->clauses.count == 3 && !d.errors);
    EXPECT(raw->left->list.items[0]->kind == AST_TYPE_NAME && raw->left->list.items[0]->is_generic);
    EXPECT(raw->left->list.items[1]->parenthesised && raw->left->list.items[2]->kind == AST_BINARY);
    EXPECT(raw->left->list.items[3]->kind == AST_STRING && raw->clauses.items[2]->list.items[0]->kind == AST_STRING);

    const ast *b = first_item(memory,
                              "bench b (n = 1 << 4, T in {float, bf16}) input (x = normal(0, 1)) tolerance (1, 2)\n"
                              "{ eager, eager f, g(B = 2), strict h }\n",
                              &d);
    EXPECT(b->kind == AST_BENCH && b->clauses.count == 3 && b->list.count == 4);
    EXPECT_TEXT(b->clauses.items[0]->word, "settings");
    EXPECT_TEXT(b->list.items[0]->name, "eager");
    EXPECT_TEXT(b->list.items[1]->word, "eager");
    EXPECT(b->list.items[2]->list.count == 1);

    /* Words with a meaning only where the grammar asks for them. */
    const ast *c = first_item(memory,
                              "kernel block(in float c[types], out float from[axis], float input)  launch (axis)\n"
                              "{\n    from[0] = c[0] + input;\n    float cuda = 3, eager = cuda;\n}\n",
                              &d);
    EXPECT(c->list.count == 3);
    arena_free(memory);
}

TEST(statements)
{
    arena *memory = arena_new();
    diagnostics d;
    const ast *f = first_item(memory,
                              "tile T f(tile T v, inout tile float w, in T x[n])\n{\n"
                              "    tile T a = v, b[8][n] = 0;\n\n    const int C = 3;\n    w += 1;\n    k++;\n"
                              "    for (int i = 9; i >= 0; i -= 2) { continue; }\n    while (x) break;\n"
                              "    if (a) ; else if (b) { } else c = 1;\n    let (p, q) = g(x);\n    return a, b;\n}\n",
                              &d);
    const ast_list *s = &f->body->list;
    EXPECT(s->count == 9);
    EXPECT(s->items[0]->kind == AST_DECLARE && s->items[0]->is_tile && s->items[0]->list.items[1]->list.count == 2);
    EXPECT(s->items[1]->kind == AST_CONSTANT && s->items[1]->blank_before && !s->items[2]->blank_before);
    EXPECT(s->items[3]->kind == AST_ASSIGN && !s->items[3]->right && !strcmp(s->items[3]->word, "++"));
    EXPECT(s->items[4]->kind == AST_FOR && !strcmp(s->items[4]->word, ">=") && !strcmp(s->items[4]->words, "-="));
    EXPECT(s->items[6]->kind == AST_IF && s->items[6]->other->kind == AST_IF && s->items[6]->other->other);
    EXPECT(s->items[7]->kind == AST_LET && s->items[7]->list.count == 2);
    EXPECT(s->items[8]->kind == AST_RETURN && s->items[8]->list.count == 2);
    EXPECT(s->items[0]->from.line == 3 && s->items[8]->end_line == 12 && f->end_line == 13);
    arena_free(memory);
}

TEST(comments)
{
    arena *memory = arena_new();
    diagnostics d;
    const char *words = "// one\n\n/* two\n */ const int A = 3; // three\n";
    ast_file *file = parse(memory, words, strlen(words), &d);
    EXPECT(!d.count && file->comment_count == 3);
    EXPECT_TEXT(file->comments[0].text, "// one");
    EXPECT(file->comments[1].own_line && file->comments[1].blank_before && file->comments[1].end_line == 4);
    EXPECT(!file->comments[2].own_line && file->comments[2].at.line == 4);
    EXPECT(file->line_count == 5);
    EXPECT_TEXT(file->lines[2], "/* two");
    arena_free(memory);
}

static int check_folder(const char *name, int *kernels)
{
    DIR *folder = opendir(name);
    int count = 0;
    EXPECT(folder);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (!strstr(entry->d_name, ".qn")) continue;
        char path[1024], *words;
        size_t length;
        qn_error error;
        snprintf(path, sizeof(path), "%s/%s", name, entry->d_name);
        EXPECT(file_read(path, 1 << 24, &words, &length, &error) == QN_OK);
        arena *memory = arena_new();
        diagnostics d;
        ast_file *file = parse(memory, words, length, &d);
        lang_check(file, &d);
        text out = {0};
        diagnostics_print(&d, file, false, &out);
        EXPECT_TEXT(text_get(&out), "");
        for (int i = 0; i < file->items.count; i++) *kernels += file->items.items[i]->kind == AST_KERNEL;
        text_free(&out);
        arena_free(memory);
        free(words);
        count++;
    }
    if (folder) closedir(folder);
    return count;
}

/* The programs of the specification, and the kernels that come with Quern: they parse and check without a word. */
TEST(programs)
{
    int kernels = 0;
    EXPECT(check_folder(QUERN_ROOT "/tests/programs", &kernels) >= 10);
    EXPECT(kernels >= 43);
    EXPECT(check_folder(QUERN_ROOT "/kernels", &kernels) > 0);
}

static int errors_of(const char *words, size_t length, const char *code)
{
    arena *memory = arena_new();
    diagnostics d;
    ast_file *file = parse(memory, words, length, &d);
    lang_check(file, &d);
    int count = 0;
    for (int i = 0; i < d.count; i++) count += !strcmp(error_code_text(d.items[i].code), code);
    text out = {0};
    diagnostics_print(&d, file, true, &out);
    text_free(&out);
    arena_free(memory);
    return count;
}

static char *repeat(const char *first, const char *piece, int count, const char *last)
{
    text t = {0};
    text_add(&t, first);
    for (int i = 0; i < count; i++) text_add(&t, piece);
    text_add(&t, last);
    return t.data;
}

static void expect_code(char *words, const char *code)
{
    EXPECT(errors_of(words, strlen(words), code) > 0);
    free(words);
}

TEST(limits)
{
    const char *open = "kernel k(inout float x[n])  launch (1) { x[0] = ", *close = "; }";
    EXPECT(errors_of("", 0, "E104") == 0);
    expect_code(repeat(open, "(", 100000, ""), "E105");
    expect_code(repeat(open, "x[", 100000, ""), "E105");
    expect_code(repeat(open, "f(", 100000, ""), "E105");
    expect_code(repeat(open, "-", 100000, "1; }"), "E104");
    expect_code(repeat(open, "- ", 100000, "1; }"), "E105");
    expect_code(repeat(open, "1 ? 2 : ", 100000, "1; }"), "E105");
    expect_code(repeat(open, "1 + ", 100000, "1; }"), "E105");
    expect_code(repeat(open, "1", 100000, close), "E103");
    expect_code(repeat(open, "a", 100000, close), "E105");
    expect_code(repeat("kernel k() launch (1) ", "{", 100000, ""), "E105");
    expect_code(repeat("kernel k() launch (1) {", "if (1) ", 100000, ";}"), "E105");
    expect_code(repeat("kernel k(int a) launch (1) {", "if (a) ; else ", 5000, ";}"), "E105");
    expect_code(repeat("kernel k(int a) launch (1) {", "for (int i = 0; i < 1; i++) ", 5000, ";}"), "E105");
    expect_code(repeat("bench b (n in {1", ", 1", 100000, "}) { nothing }"), "E201");
    expect_code(repeat("", "kernel ", 100000, ""), "E104");
    expect_code(repeat("", "$ ", 100000, ""), "E101");
    expect_code(repeat("", "@ ", 100000, ""), "E110");
    expect_code(repeat(open, "1 @ ", 100000, "1; }"), "E105");
    expect_code(repeat(open, "x.", 100000, "y; }"), "E105");
    expect_code(repeat("", "\"", 100000, ""), "E104");
    expect_code(repeat("const int A = 3;", " ", (16 << 20) + 1, ""), "E105");
}

/* Many names and many uses must not take quadratic time: this ends in well under a second, or the test stands still. */
TEST(large)
{
    text t = {0};
    text_add(&t, "kernel k(inout float x[n])  launch (1)\n{\n");
    for (int i = 0; i < 20000; i++) text_print(&t, "    float v%d = x[%d];\n    x[%d] = v%d;\n", i, i, i, i);
    text_add(&t, "}\n");
    for (int i = 0; i < 20000; i++) text_print(&t, "float call_%d(float y) { return call_%d(y); }\n", i, i / 2);
    EXPECT(errors_of(t.data, t.length, "E214") == 1);
    text_free(&t);
}

TEST_MAIN(CASE(precedence), CASE(postfix), CASE(numbers), CASE(items), CASE(statements), CASE(comments), CASE(programs),
          CASE(limits), CASE(large))
