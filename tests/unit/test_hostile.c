/*
 * Hostile words at every place where words of others reach generated text: paths, #line, names, print formats, source
 * lines, call sites, raw paths. For each, the C or CUDA text has the same tokens as with harmless words (a small lexer
 * of C, with spliced lines and trigraphs, says so), and where it is compiled and run, what the words tried did not
 * happen. Names of tile IR dumps are checked like names in sources.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "test.h"

#include "emit/cuda/emit.h"
#include "emit/raw/raw.h"
#include "run/workbench/show.h"

#include <quern/tensor.h>
#include <quern/workbench.h>
#include <stdlib.h>

#define RUNS                                                                                                  \
    "int setenv(const char *, const char *, int); static void __attribute__((constructor)) q(void) { setenv(" \
    "\"QUERN_RAN\", \"1\", 1); } "

static const char *const hostile[] = {
    "a */ " RUNS "/*",
    "a *\\\n/ " RUNS "/*",
    "a *\\\r/ " RUNS "/*",
    "a *?\?/\n/ " RUNS "/*",
    "a\n" RUNS "\n/*",
    "a\r" RUNS "\r",
    "a \"); " RUNS "(\"",
    "a\"\n" RUNS "\n#line 1 \"b",
    "a\\\" \n" RUNS "\n",
    "a?\?/\"\n" RUNS "\n//",
    "a\\",
    "a?\?/",
    "a\\\n",
    "*",
    "/",
    "/*",
    "a // b",
    "%n%n%s%s%99999999d%hhn",
    "a\x01\x02\x1b[31m\x7f\x80\xff\xfe\xc0\xaf\xed\xa0\x80",
    "a\xe2\x80\xae"
    "b\xe2\x80\xa8"
    "c\xc2\x9b"
    "31m",
    "a\f\v\b#define kernel 1\n#pragma GCC poison int\n#include \"/etc/passwd\"\n",
    "{}{}{}",
};

static bool ran(void)
{
    bool did = getenv("QUERN_RAN") != NULL;
    unsetenv("QUERN_RAN");
    return did;
}

/* ---- tokens of C ---- */

/* Trigraphs and spliced lines first, as a compiler does (clang ends a line at \r too). */
static void plain_lines(const char *words, bool trigraphs, text *out)
{
    text first = {0};
    for (const char *c = words; *c; c++) {
        bool slash = trigraphs && c[0] == '?' && c[1] == '?' && c[2] == '/';
        text_add_bytes(&first, slash ? "\\" : c, 1);
        if (slash) c += 2;
    }
    for (const char *c = text_get(&first); *c; c++) {
        if (c[0] == '\\' && (c[1] == '\n' || c[1] == '\r'))
            c += c[1] == '\r' && c[2] == '\n' ? 2 : 1;
        else
            text_add_bytes(out, c, 1);
    }
    text_free(&first);
}

/* Without comments and what strings hold; lines that #line begins lose their file. */
static void tokens(const char *words, bool trigraphs, text *out)
{
    text lines = {0};
    plain_lines(words, trigraphs, &lines);
    for (const char *c = text_get(&lines); *c;) {
        if (c[0] == '/' && c[1] == '*') {
            const char *end = strstr(c + 2, "*/");
            c = end ? end + 2 : c + strlen(c);
        } else if (c[0] == '/' && c[1] == '/') {
            while (*c && *c != '\n' && *c != '\r') c++;
        } else if (*c == '"' || *c == '\'') {
            char quote = *c++;
            while (*c && *c != quote && *c != '\n') c += c[0] == '\\' && c[1] ? 2 : 1;
            text_add(out, *c == quote ? "\"\" " : "OPEN ");
            c += *c == quote;
        } else if (strchr(" \t\f\v\n", *c)) {
            c++;
        } else {
            text_add_bytes(out, c, 1);
            c++;
        }
    }
    text_free(&lines);
}

static void expect_same(const char *hostile_text, const char *harmless_text, const char *where, int number)
{
    for (int trigraphs = 0; trigraphs < 2; trigraphs++) {
        text a = {0}, b = {0};
        tokens(hostile_text, trigraphs, &a);
        tokens(harmless_text, trigraphs, &b);
        if (strcmp(text_get(&a), text_get(&b))) {
            printf("%s: hostile words %d get out\n", where, number);
            test_fail(__FILE__, __LINE__, "other tokens");
        }
        text_free(&a);
        text_free(&b);
    }
    for (const unsigned char *c = (const unsigned char *)hostile_text; *c; c++)
        if ((*c < 32 && *c != '\n') || *c == 127) {
            printf("%s: hostile words %d leave a control byte\n", where, number);
            test_fail(__FILE__, __LINE__, "a control byte");
            return;
        }
}

/* ---- tile IR ---- */

static const char body[] = "  param x in f32 [n] ; 1:19\n  param y out f32 [n] ; 1:35\n  param n extent i64 ; 1:21\n"
                           "head {\n  %1.n = arg n : i64 ; 1:70\n  launch 0 %1 ; 1:57\n}\n"
                           "phase {\n  %8 = program 0 : i64 ; 1:80\n  %13 = load x[%8] : f32 ; 1:100\n"
                           "  %14 = const 2 : f32 ; 1:99\n  %15 = mul %14, %13 : f32 ; 1:99\n"
                           "  store y[%8] = %15 ; 1:96\n  print PRINTED show 0 ; 1:97\n}\n";

/* kernel NAME file FILE, then the body with parameter x called PARAM and what is printed. */
static void dump_of(const char *name, const char *file, const char *printed, text *out)
{
    text_add(out, "kernel ");
    text_add_quoted(out, name, strlen(name));
    text_add(out, " file ");
    text_add_quoted(out, file, strlen(file));
    text_add(out, "\n");
    const char *at = strstr(body, "PRINTED");
    text_add_bytes(out, body, (size_t)(at - body));
    text_add_quoted(out, printed, strlen(printed));
    text_add(out, at + 7);
}

typedef struct emitted {
    text c, cuda, lines;
} emitted;

static bool emit_both(const char *file, const char *printed, const char *const *source_lines, emitted *out)
{
    arena *memory = arena_new();
    text dump = {0};
    tile_kernel *k = NULL;
    qn_error error;
    dump_of("k", file, printed, &dump);
    bool good = tile_read(memory, "dump", text_get(&dump), dump.length, &k, &error) == QN_OK;
    if (!good) printf("%s\n", error.message);
    if (good && source_lines) {
        k->source_lines = (const char **)source_lines;
        k->source_line_count = 1;
    }
    const emit_options options = {.line_directives = true, .vector_bytes = 32, .vector_registers = 16};
    cuda_target target = cuda_target_default(90);
    target.line_directives = true;
    good = good && emit_c(k, &options, &out->c, &error) == QN_OK;
    good = good && emit_cuda(k, &target, &out->cuda, NULL, &error) == QN_OK;
    if (good) show_put_lines(text_get(&out->cuda), file, &out->lines);
    text_free(&dump);
    arena_free(memory);
    return good;
}

static void emitted_free(emitted *e)
{
    text_free(&e->c);
    text_free(&e->cuda);
    text_free(&e->lines);
}

static void compare_emitted(const emitted *a, const emitted *b, const char *where, int number)
{
    expect_same(text_get(&a->c), text_get(&b->c), where, number);
    expect_same(text_get(&a->cuda), text_get(&b->cuda), where, number);
    expect_same(text_get(&a->lines), text_get(&b->lines), where, number);
}

TEST(files_and_lines_of_generated_text)
{
    const char *const plain_line[] = {"y[i] = 2 * x[i];"};
    emitted plain = {0};
    EXPECT(emit_both("a.qn", "said", plain_line, &plain));
    for (int i = 0; i < COUNT(hostile); i++) {
        emitted e = {0};
        EXPECT(emit_both(hostile[i], "said", plain_line, &e));
        compare_emitted(&e, &plain, "file", i);
        emitted_free(&e);
        EXPECT(emit_both("a.qn", "said", &hostile[i], &e));
        compare_emitted(&e, &plain, "source line", i);
        emitted_free(&e);
        if (strstr(hostile[i], "{}")) continue;
        EXPECT(emit_both("a.qn", hostile[i], plain_line, &e));
        compare_emitted(&e, &plain, "print", i);
        emitted_free(&e);
    }
    char *longest = malloc(70001);
    memset(longest, '*', 70000);
    longest[70000] = 0;
    for (int i = 1; i < 70000; i += 2) longest[i] = '/';
    emitted e = {0};
    EXPECT(emit_both(longest, longest, plain_line, &e));
    compare_emitted(&e, &plain, "long", 0);
    emitted_free(&e);
    free(longest);
    emitted_free(&plain);
}

TEST(names_of_dumps)
{
    arena *memory = arena_new();
    static const char *const more[] = {"../x", "a b", "a.b", "1a", "", "a;b", "a\xc3\xa9"};
    char long_name[300];
    memset(long_name, 'a', sizeof(long_name));
    long_name[299] = 0;
    for (int i = 0; i < COUNT(hostile) + COUNT(more) + 1; i++) {
        const char *name = i < COUNT(hostile)                 ? hostile[i]
                           : i < COUNT(hostile) + COUNT(more) ? more[i - COUNT(hostile)]
                                                              : long_name;
        tile_kernel *k;
        qn_error error;
        text dump = {0}, quoted = {0};
        dump_of(name, "a.qn", "said", &dump);
        EXPECT(tile_read(memory, "dump", text_get(&dump), dump.length, &k, &error) == QN_BAD_FILE);
        EXPECT(strstr(error.message, "no name of a kernel"));
        text_add_quoted(&quoted, name, strlen(name));
        text_clear(&dump);
        text_print(&dump,
                   "kernel k\n  param %s in f32 [n]\n  param n extent i64\nhead {\n  %%1 = arg n : i64\n  launch 0 "
                   "%%1\n}\nphase {\n}\n",
                   text_get(&quoted));
        EXPECT(tile_read(memory, "dump", text_get(&dump), dump.length, &k, &error) == QN_BAD_FILE);
        EXPECT(strstr(error.message, "no name of a parameter"));
        text_free(&dump);
        text_free(&quoted);
    }
    arena_free(memory);
}

/* ---- what runs ---- */

static qn_error error;

static qn_status run(qn_context *context, const char *device, const char *name, const char *source)
{
    qn_module *module = NULL;
    qn_call *call = NULL;
    float x[3] = {1, 2, 3}, y[3] = {0};
    int64_t n = 3;
    qn_status status = qn_module_load_text(context, name, source, &module, &error);
    if (status == QN_OK) status = qn_call_new(module, qn_module_kernel_name(module, 0), &call, &error);
    if (status == QN_OK) status = qn_call_set_memory(call, "x", x, QN_F32, 1, &n, NULL, &error);
    if (status == QN_OK) status = qn_call_set_memory(call, "y", y, QN_F32, 1, &n, NULL, &error);
    if (status == QN_OK) status = qn_call_run(call, device, &error);
    if (status == QN_OK && y[2] != 6) status = QN_FAILED;
    qn_call_free(call);
    qn_module_free(module);
    return status;
}

static char last_line[8000];

static void keep_line(void *user, const char *line)
{
    (void)user;
    snprintf(last_line, sizeof(last_line), "%s", line);
}

static const char twice[] = "kernel k(in float x[n], out float y[n]) launch (n) { y[program(0)] = 2 * x[program(0)]; }";

TEST(paths_and_prints_that_run)
{
    qn_context_options options = {.no_cache = true, .print = keep_line};
    qn_context *context = NULL;
    EXPECT(qn_context_open(&options, &context, &error) == QN_OK);
    static const char *const devices[] = {"ref", "cpu", "emu"};
    for (int d = 0; d < COUNT(devices); d++) {
        qn_device_info info;
        if (qn_device_find(context, devices[d], &info, &error) != QN_OK || !info.available) {
            printf("note: skipped hostile words on %s: it is not there\n", devices[d]);
            continue;
        }
        int step = !strcmp(devices[d], "emu") ? 9 : 1; /* each text costs it a second */
        for (int i = 0; i < COUNT(hostile); i += step) {
            text dump = {0};
            qn_status status = run(context, devices[d], hostile[i], twice);
            if (status != QN_OK) printf("%s, path %d: %s\n", devices[d], i, error.message);
            EXPECT(status == QN_OK && !ran());
            dump_of("k", hostile[i], hostile[i], &dump);
            status = run(context, devices[d], "a.tile", text_get(&dump));
            if (status != QN_OK) printf("%s, dump %d: %s\n", devices[d], i, error.message);
            EXPECT(status == QN_OK && !ran());
            EXPECT(strstr(last_line, hostile[i])); /* to the caller it is what it is */
            text_free(&dump);
        }
    }
    qn_context_close(context);
}

/* The call site of a tensor operation, which stands at the top of the fused kernel. */
TEST(sites_that_run)
{
    qn_context_options options = {.no_cache = true};
    qn_context *context = NULL;
    qn_tape *tape = NULL;
    EXPECT(qn_context_open(&options, &context, &error) == QN_OK);
    EXPECT(qn_tape_new(context, NULL, &tape, &error) == QN_OK);
    for (int i = 0; i < COUNT(hostile); i += 3) {
        float out[3] = {0}, x[3] = {1, 2, 3};
        qn_tensor a = qn_from_memory(tape, x, QN_F32, QN_SHAPE(3));
        (qn_here)(hostile[i], 7);
        qn_tensor b = (qn_exp)((qn_mul_scalar)(a, i + 0.5));
        EXPECT((qn_tensor_read)(b, out, sizeof(out), &error) == QN_OK);
        EXPECT(!ran());
        EXPECT_NEAR(out[0], expf((float)i + 0.5f), 1e-3 * expf((float)i + 0.5f));
        qn_release(a);
        qn_release(b);
    }
    qn_tape_free(tape);
    qn_context_close(context);
}

/* A raw kernel's own file: #line names it. */
TEST(raw_paths)
{
    for (int i = 0; i < COUNT(hostile); i++) {
        tile_kernel k = {.name = "k", .raw_path = hostile[i], .raw_line = 3, .raw_constants = "", .raw_source = ""};
        text line = {0}, plain = {0};
        raw_put_line(&k, &line);
        k.raw_path = "a.cu";
        raw_put_line(&k, &plain);
        expect_same(text_get(&line), text_get(&plain), "raw #line", i);
        text_free(&line);
        text_free(&plain);
    }
}

/* ---- escaping itself ---- */

static const char *escaped(escape_place place, const char *words)
{
    static text t;
    text_clear(&t);
    text_add_escaped(&t, place, words, strlen(words));
    return text_get(&t);
}

TEST(places)
{
    EXPECT_TEXT(escaped(ESCAPE_COMMENT, "a */ b /* c \\"), "a * / b / * c \\");
    EXPECT_TEXT(escaped(ESCAPE_COMMENT, "a**//b"), "a** //b");
    EXPECT_TEXT(escaped(ESCAPE_COMMENT, "caf\xc3\xa9\n"), "caf\xc3\xa9\\x0a");
    EXPECT_TEXT(escaped(ESCAPE_STRING, "a\"b\\c\n?\?/1\x1b"
                                       "1"),
                "a\\\"b\\\\c\\n?\\?/1\\0331");
    EXPECT_TEXT(escaped(ESCAPE_PAGE, "<a href='x'>&\"\n\x1b\xff"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\n\\x1b\\xff");
    EXPECT_TEXT(escaped(ESCAPE_SCREEN, "a\n\tb\x1b[2J\r\xff"), "a\n\tb\\x1b[2J\\x0d\\xff");
    EXPECT_TEXT(escaped(ESCAPE_SCREEN, "\xe2\x80\xae \xe2\x81\xa6 \xc2\x9b \xd8\x9c"),
                "\\xe2\\x80\\xae \\xe2\\x81\\xa6 \\xc2\\x9b \\xd8\\x9c");
    EXPECT_TEXT(escaped(ESCAPE_SCREEN, "\xf0\x9f\x8c\xbe \xe4\xb8\xad"), "\xf0\x9f\x8c\xbe \xe4\xb8\xad");
    error_set(&error, QN_FAILED, "file %s", "a\x1b]0;title\x07");
    EXPECT_TEXT(error.message, "file a\\x1b]0;title\\x07");
    char many[5000];
    memset(many, '\x1b', sizeof(many));
    many[4999] = 0;
    error_set(&error, QN_FAILED, "%s", many);
    EXPECT(strlen(error.message) < sizeof(error.message) && !strchr(error.message, '\x1b'));
    error_set(&error, QN_FAILED, "%.4090s%s", many, "abcdefgh");
    EXPECT(strlen(error.message) < sizeof(error.message) && !strchr(error.message, '\x1b'));
}

TEST_MAIN(CASE(places), CASE(files_and_lines_of_generated_text), CASE(names_of_dumps), CASE(paths_and_prints_that_run),
          CASE(sites_that_run), CASE(raw_paths))
