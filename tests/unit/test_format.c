/*
 * The formatter: canonical text of small sources; and for every program and kernel there is, formatting keeps the tree,
 * the tokens and the comments, and formatting twice is formatting once.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"
#include "tree.h"

#include "lang/parse.h"

#include <dirent.h>
#include <stdlib.h>

static bool format(arena *memory, const char *words, size_t length, text *out, text *tree, int *comments)
{
    diagnostics d = {.memory = memory};
    ast_file *file = lang_parse(memory, "test.qn", words, length, &d);
    if (d.errors) {
        diagnostics_print(&d, file, false, out);
        return false;
    }
    lang_format(file, out);
    if (tree) tree_print_file(file, tree);
    if (comments) *comments = file->comment_count;
    return true;
}

static void expect_format(const char *source, const char *expected, int line)
{
    arena *memory = arena_new();
    text once = {0}, twice = {0};
    format(memory, source, strlen(source), &once, NULL, NULL);
    test_text(text_get(&once), expected, __FILE__, line);
    format(memory, text_get(&once), once.length, &twice, NULL, NULL);
    test_text(text_get(&twice), expected, __FILE__, line);
    text_free(&once);
    text_free(&twice);
    arena_free(memory);
}
#define EXPECT_FORMAT(source, expected) expect_format(source, expected, __LINE__)

TEST(expressions)
{
    EXPECT_FORMAT("const float A=-1+2*(3-x)/ +4;", "const float A = -1 + 2 * (3 - x) / +4;\n");
    EXPECT_FORMAT("const int A=a?b:c;", "const int A = a ? b : c;\n");
    EXPECT_FORMAT("const int A= - - x- -y;", "const int A = - -x - -y;\n");
    EXPECT_FORMAT("float f(float x){return g(x,axis={0,1})[i:B:2][ : ][ ];}",
                  "float f(float x) { return g(x, axis = {0, 1})[i : B : 2][:][]; }\n");
    EXPECT_FORMAT("void f(tile float v){print(\"a\\t\\\"{}\\\\\",v);}",
                  "void f(tile float v) { print(\"a\\t\\\"{}\\\\\", v); }\n");
}

TEST(statements)
{
    EXPECT_FORMAT(
        "void f(inout tile float v)\n{\nint a=1,b=2;if(a<b)a=b;else{b=a;}\n\n\n"
        "for(int i=0;i<3;i+=2){a++;}\nwhile(a>0)\na--;\n;}",
        "void f(inout tile float v)\n{\n    int a = 1, b = 2;\n    if (a < b) a = b;\n    else {\n        b = a;\n"
        "    }\n\n    for (int i = 0; i < 3; i += 2) {\n        a++;\n    }\n    while (a > 0)\n        a--;\n"
        "    ;\n}\n");
    EXPECT_FORMAT("void f(inout tile float v){if(a){b=1;}else if(c){b=2;}else b=3;}",
                  "void f(inout tile float v)\n{\n    if (a) {\n        b = 1;\n    } else if (c) {\n        b = 2;\n"
                  "    } else b = 3;\n}\n");
}

TEST(items)
{
    EXPECT_FORMAT("kernel k(in T x[n],out T y[n])launch(n){y[program(0)]=x[program(0)];}\nthen\nlaunch(1){}",
                  "kernel k(in T x[n], out T y[n])  launch (n)  { y[program(0)] = x[program(0)]; }\n"
                  "then launch (1)  { }\n");
    EXPECT_FORMAT("kernel k(in T x[n])\nlaunch(n)tune(B in{1,2})if(B>1)precise{}",
                  "kernel k(in T x[n])\n    launch (n) tune (B in {1, 2}) if (B > 1) precise  { }\n");
    EXPECT_FORMAT(
        "const int A=1;\nconst int B=2;\nfloat f(float x){return x;}float g(float x){return x;}\n"
        "float h(float x)\n{return x;}",
        "const int A = 1;\nconst int B = 2;\nfloat f(float x) { return x; }\nfloat g(float x) { return x; }\n\n"
        "float h(float x)\n{\n    return x;\n}\n");
    EXPECT_FORMAT("c f(in float x[n])launch(n)\"\"\"\n  raw {;\n\"\"\"\n",
                  "c f(in float x[n])  launch (n)\n\"\"\"\n  raw {;\n\"\"\"\n");
    EXPECT_FORMAT(
        "cuda f<T,N*2,\"a b\",-1>(in T x[n],const int N=2)launch(n)block(N,2)shared(4*N)options(\"-a\",\"-b\")"
        "types(T in{float})from\"f.cu\";",
        "cuda f<T, N * 2, \"a b\", -1>(in T x[n], const int N = 2)  launch (n) block (N, 2) shared (4 * N) options "
        "(\"-a\", "
        "\"-b\")\n    types (T in {float}) from \"f.cu\";\n");
    EXPECT_FORMAT("bench b(n=1,T in{float})on cpu(n=2)input(x=ramp()){a,eager b,c(B=1)}",
                  "bench b (n = 1, T in {float}) on cpu (n = 2) input (x = ramp()) { a, eager b, c(B = 1) }\n");
}

TEST(comments)
{
    EXPECT_FORMAT("// top\n\n\nconst int A=1;// a\n/* b */const int B=2;\n\n// end\n",
                  "// top\n\nconst int A = 1; // a\n/* b */\nconst int B = 2;\n\n// end\n");
    EXPECT_FORMAT(
        "float f(float x, // the x\nfloat y) // the y\n{ // open\n// own\nreturn x+ // sum\ny;\n// last\n} // end",
        "float f(float x, // the x\n        float y) // the y\n{ // open\n    // own\n    return x + // sum\n"
        "        y;\n    // last\n} // end\n");
    EXPECT_FORMAT("void f(inout tile float v)\n{\n  v = 1;        // one\n  v = v + 1;    // two\n}",
                  "void f(inout tile float v)\n{\n    v = 1;      // one\n    v = v + 1;  // two\n}\n");
    EXPECT_FORMAT("const int A = /* in */ 3 /* behind */;\n", "const int A = /* in */ 3; /* behind */\n");
    EXPECT_FORMAT("// only\n", "// only\n");
    EXPECT_FORMAT("", "");
}

TEST(long_lines)
{
    EXPECT_FORMAT(
        "kernel a_kernel_with_a_long_name(in float first_array[n], in float second_array[n], out float third_array[n], "
        "const int BLOCK = 1024) launch (cdiv(n, BLOCK)) { }\n",
        "kernel a_kernel_with_a_long_name(in float first_array[n], in float second_array[n], out float "
        "third_array[n],\n"
        "                                 const int BLOCK = 1024)\n    launch (cdiv(n, BLOCK))  { }\n");
    EXPECT_FORMAT("const float A = some_function_name(first_argument_of_it, second_argument_of_it) * 2 + "
                  "another_function_name(third_argument_of_it, fourth);\n",
                  "const float A = some_function_name(first_argument_of_it, second_argument_of_it) * 2 +\n"
                  "    another_function_name(third_argument_of_it, fourth);\n");
}

/* Words of the tokens, one a line. */
static void tokens(arena *memory, const char *words, size_t length, text *out)
{
    diagnostics d = {.memory = memory};
    ast_file file = {.memory = memory, .text = arena_copy_text(memory, words, length), .length = length};
    lexer x;
    lex_start(&x, &file, 0, &d);
    for (token t = lex_next(&x); t.kind != TOKEN_END; t = lex_next(&x)) text_print(out, "%s\n", t.word);
}

static void round_trip(const char *path)
{
    char *words;
    size_t length;
    qn_error error;
    if (file_read(path, 1 << 24, &words, &length, &error) != QN_OK) {
        test_fail(path, 1, error.message);
        return;
    }
    arena *memory = arena_new();
    text once = {0}, twice = {0}, tree = {0}, tree_again = {0}, before = {0}, after = {0};
    int comments = 0, comments_again = 0;
    bool good = format(memory, words, length, &once, &tree, &comments);
    good = good && format(memory, text_get(&once), once.length, &twice, &tree_again, &comments_again);
    if (!good) test_fail(path, 1, "does not parse");
    test_text(text_get(&twice), text_get(&once), path, 1);
    test_text(text_get(&tree_again), text_get(&tree), path, 1);
    if (comments != comments_again) test_fail(path, 1, "a comment was lost");
    tokens(memory, words, length, &before);
    tokens(memory, text_get(&once), once.length, &after);
    test_text(text_get(&after), text_get(&before), path, 1);
    text *all[] = {&once, &twice, &tree, &tree_again, &before, &after};
    for (int i = 0; i < COUNT(all); i++) text_free(all[i]);
    arena_free(memory);
    free(words);
}

TEST(round_trips)
{
    static const char *const folders[] = {QUERN_ROOT "/tests/programs", QUERN_ROOT "/kernels"};
    int count = 0;
    for (int i = 0; i < COUNT(folders); i++) {
        DIR *folder = opendir(folders[i]);
        for (struct dirent *entry; folder && (entry = readdir(folder));) {
            if (!strstr(entry->d_name, ".qn")) continue;
            char path[1024];
            snprintf(path, sizeof(path), "%s/%s", folders[i], entry->d_name);
            round_trip(path);
            count++;
        }
        if (folder) closedir(folder);
    }
    EXPECT(count >= 10);
}

TEST_MAIN(CASE(expressions), CASE(statements), CASE(items), CASE(comments), CASE(long_lines), CASE(round_trips))
