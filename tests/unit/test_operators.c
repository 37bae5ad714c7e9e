/*
 * Every binary operator over every pair of element types, as scalars, as tiles and mixed; every cast and every bitcast.
 * The types of results and the values are computed here by the rules of the reference (section 3) on their own; what
 * the reference refuses must give its code. All of it runs on `ref`; on `cpu`, and on $QUERN_TEST_DEVICE, runs what depends on
 * a pair of types: shifts, whose count has a type of its own, one operator whose operands meet, casts and bitcasts.
 * Kernels hold a thousand expressions each: compiling costs more than running.
 * SPDX-License-Identifier: MIT
 */
#include "base/base.h"
#include "ir/tile.h"
#include "test.h"

#include <quern/quern.h>
#include <stdlib.h>

enum { LENGTH = 6, MOST_LINES = 4096 };

static const char *const words[] = {"+", "-", "*",  "/",  "%",  "&",  "|",  "^",  "<<",  ">>",
                                    "<", ">", "<=", ">=", "==", "!=", "&&", "||", "min", "max"};

/* ---- the rules, once more ---- */

static dtype promoted(dtype t)
{
    if (dtype_is_float(t)) return t == DT_F64 ? DT_F64 : DT_F32;
    return t == DT_BOOL || dtypes[t].size_bytes < 4 ? DT_I32 : t;
}

static const char *meet(dtype a, dtype b, dtype *out)
{
    a = promoted(a);
    b = promoted(b);
    bool wider = dtypes[a].size_bytes >= dtypes[b].size_bytes, a_float = dtype_is_float(a), b_float = dtype_is_float(b);
    *out = a_float != b_float ? (a_float ? a : b) : wider ? a : b;
    if (a == b || a_float || b_float || dtypes[a].kind == dtypes[b].kind) return NULL;
    return dtypes[a].size_bytes == dtypes[b].size_bytes || a == DT_U64 || b == DT_U64 ? "E206" : NULL;
}

/* NULL or the code of the error; *operand: the type both are converted to, *result: of the whole. */
static const char *rule(const char *word, dtype a, dtype b, dtype *operand, dtype *result)
{
    bool floats = dtype_is_float(a) || dtype_is_float(b), bools = a == DT_BOOL && b == DT_BOOL;
    bool logic = !strcmp(word, "&&") || !strcmp(word, "||"), shift = !strcmp(word, "<<") || !strcmp(word, ">>");
    bool bits = !word[1] && strchr("&|^", word[0]), compares = !shift && strchr("<>=!", word[0]);
    *result = *operand = DT_BOOL;
    if (logic) return floats ? "E210" : NULL;
    if ((bits || shift) && floats) return "E211";
    if (shift) {
        *result = *operand = promoted(a);
        return NULL;
    }
    if (bools && (bits || compares)) return NULL;
    const char *fault = meet(a, b, operand);
    *result = compares ? DT_BOOL : *operand;
    return fault;
}

static number convert(number x, dtype from, dtype to)
{
    number out = {0};
    bool wide = from == DT_U64;
    double f = dtype_is_float(from) ? x.f : wide ? (double)(uint64_t)x.i : (double)x.i;
    if (dtype_is_float(to)) {
        out.f = round_to_dtype(to, f);
    } else if (to == DT_BOOL) {
        out.i = f != 0;
    } else if (!dtype_is_float(from)) {
        out.i = integer_wrap(to, x.i);
    } else { /* values here are small: only the sign can be wrong */
        out.i = integer_wrap(to, dtypes[to].kind == KIND_UINT && f < 0 ? 0 : (int64_t)f);
        if (f > 127 && to == DT_I8) out.i = 127;
    }
    return out;
}

static int64_t floor_divided(int64_t x, int64_t y)
{
    return y ? x / y - (x % y != 0 && (x < 0) != (y < 0)) : 0;
}

static number value_of(const char *word, dtype a, dtype b, number x, number y)
{
    dtype t, result;
    rule(word, a, b, &t, &result);
    bool shift = !strcmp(word, "<<") || !strcmp(word, ">>");
    int64_t count = y.i;
    x = convert(x, a, t);
    y = convert(y, b, t);
    number out = {0};
    bool less = dtype_is_float(t) ? x.f < y.f : t == DT_U64 ? (uint64_t)x.i < (uint64_t)y.i : x.i < y.i;
    bool equal = dtype_is_float(t) ? x.f == y.f : x.i == y.i;
    if (shift) {
        count &= dtypes[t].size_bytes * 8 - 1;
        out.i = word[0] == '<' ? (int64_t)((uint64_t)x.i << count)
                : t == DT_U64  ? (int64_t)((uint64_t)x.i >> count)
                               : x.i >> count;
    } else if (!strcmp(word, "&&")) {
        out.i = x.i && y.i;
    } else if (!strcmp(word, "||")) {
        out.i = x.i || y.i;
    } else if (!strcmp(word, "min")) {
        out = less ? x : y;
    } else if (!strcmp(word, "max")) {
        out = less ? y : x;
    } else if (strchr("<>=!", word[0])) {
        bool or_equal = word[1] == '=';
        out.i = word[0] == '<'   ? less || (or_equal && equal)
                : word[0] == '>' ? !less && (or_equal || !equal)
                                 : equal == (word[0] == '=');
    } else if (dtype_is_float(t)) {
        out.f = word[0] == '+'   ? x.f + y.f
                : word[0] == '-' ? x.f - y.f
                : word[0] == '*' ? x.f * y.f
                : word[0] == '/' ? x.f / y.f
                                 : x.f - y.f * floor(x.f / y.f);
        out.f = round_to_dtype(t, out.f);
    } else {
        uint64_t p = (uint64_t)x.i, q = (uint64_t)y.i;
        int64_t quotient = t == DT_U64 ? (int64_t)(q ? p / q : 0) : floor_divided(x.i, y.i);
        out.i = word[0] == '+'   ? (int64_t)(p + q)
                : word[0] == '-' ? (int64_t)(p - q)
                : word[0] == '*' ? (int64_t)(p * q)
                : word[0] == '/' ? quotient
                : word[0] == '%' ? (y.i ? (int64_t)(p - (uint64_t)quotient * q) : 0)
                : word[0] == '&' ? x.i & y.i
                : word[0] == '|' ? x.i | y.i
                                 : x.i ^ y.i;
    }
    if (!dtype_is_float(result)) out.i = integer_wrap(result, out.i);
    return out;
}

/* ---- programs ---- */

typedef enum form { BOTH_SCALARS, BOTH_TILES, SCALAR_TILE, TILE_SCALAR, FORMS } form;

typedef struct line { /* one result of a kernel */
    const char *word; /* "cast", "bitcast" or an operator */
    dtype a, b, result;
    form form;
} line;

static line lines[MOST_LINES];
static int line_count, compared;
static qn_context *context;

static number input(dtype t, bool second, int64_t i)
{
    static const double first[LENGTH] = {1, 5, -3, 0, 100, 7}, other[LENGTH] = {2, 3, 1, 35, 7, -2};
    double x = second ? other[i] : first[i];
    if (dtype_is_float(t)) return (number){.f = round_to_dtype(t, x)};
    return (number){.i = t == DT_BOOL ? x > 2 : integer_wrap(t, (int64_t)x)};
}

static const char *expression_of(const line *l, text *out)
{
    bool a_scalar = l->form == BOTH_SCALARS || l->form == SCALAR_TILE;
    bool b_scalar = l->form == BOTH_SCALARS || l->form == TILE_SCALAR;
    const char *at = l->form == BOTH_SCALARS ? "[i]" : "[1]", *a = a_scalar ? at : "[:]", *b = b_scalar ? at : "[:]";
    if (!strcmp(l->word, "cast"))
        text_print(out, "%s(a%s)", dtypes[l->b].text, a);
    else if (!strcmp(l->word, "bitcast"))
        text_print(out, "bitcast(%s, a%s)", dtypes[l->b].text, a);
    else if (l->word[0] == 'm')
        text_print(out, "%s(a%s, b%d%s)", l->word, a, l->b, b);
    else
        text_print(out, "a%s %s b%d%s", a, l->word, l->b, b);
    return text_get(out);
}

/* The kernel of lines[from..]; results as 64 bits each. */
static void kernel_of(dtype a, bool scalars, int from, text *out)
{
    text_print(out, "kernel k(in %s a[n]", dtypes[a].text);
    for (int b = 0; b < DT_COUNT; b++) text_print(out, ", in %s b%d[n]", dtypes[b].text, b);
    text_print(out, ", out i64 y[%d][n]) launch (%s)\n{\n", line_count - from, scalars ? "n" : "1");
    if (scalars) text_add(out, "    int i = program(0);\n");
    for (int k = from; k < line_count; k++) {
        text words_of = {0};
        const char *e = expression_of(&lines[k], &words_of);
        text_print(out, "    y[%d]%s = ", k - from, scalars ? "[i]" : "[:]");
        text_print(out, dtype_is_float(lines[k].result) ? "bitcast(i64, double(%s));\n" : "i64(%s);\n", e);
        text_free(&words_of);
    }
    text_add(out, "}\n");
}

static bool agrees(const line *l, int64_t i, int64_t got)
{
    bool a_fixed = l->form == SCALAR_TILE, b_fixed = l->form == TILE_SCALAR;
    number x = input(l->a, false, a_fixed ? 1 : i), y = input(l->b, true, b_fixed ? 1 : i), want;
    if (!strcmp(l->word, "cast")) {
        want = convert(x, l->a, l->b);
    } else if (!strcmp(l->word, "bitcast")) {
        unsigned char bytes[8] = {0};
        element_write(l->a, bytes, x);
        want = element_read(l->b, bytes);
    } else {
        want = value_of(l->word, l->a, l->b, x, y);
    }
    if (!dtype_is_float(l->result)) return got == want.i;
    double f;
    memcpy(&f, &got, sizeof(f));
    return f == want.f || (isnan(f) && isnan(want.f)) || fabs(f - want.f) <= 2e-7 * fabs(want.f);
}

static void run_lines(dtype a, bool scalars, int from, const char *device)
{
    text source = {0};
    qn_error error;
    qn_module *module = NULL;
    qn_call *call = NULL;
    char data[DT_COUNT + 1][LENGTH * 8];
    int64_t n = LENGTH, shape[2] = {line_count - from, n}, *y = calloc((size_t)shape[0] * LENGTH, 8);
    kernel_of(a, scalars, from, &source);
    bool good = qn_module_load_text(context, "operators.qn", text_get(&source), &module, &error) == QN_OK &&
                qn_call_new(module, "k", &call, &error) == QN_OK;
    for (int p = 0; p <= DT_COUNT && good; p++) {
        dtype t = p == DT_COUNT ? a : (dtype)p;
        char name[16];
        snprintf(name, sizeof(name), p == DT_COUNT ? "a" : "b%d", p);
        for (int64_t i = 0; i < n; i++)
            element_write(t, data[p] + i * dtypes[t].size_bytes, input(t, p != DT_COUNT, i));
        good = qn_call_set_memory(call, name, data[p], (qn_dtype)t, 1, &n, NULL, &error) == QN_OK;
    }
    good = good && qn_call_set_memory(call, "y", y, QN_I64, 2, shape, NULL, &error) == QN_OK;
    qn_status status = good ? qn_call_run(call, device, &error) : QN_FAILED;
    if (status != QN_OK && status != QN_FINDING) {
        printf("%s, a of %s: %s\n", device, dtypes[a].text, error.message);
        test_fail(__FILE__, __LINE__, "a kernel of operators");
    }
    for (int k = from; k < line_count && (status == QN_OK || status == QN_FINDING); k++) {
        for (int64_t i = 0; i < n; i++) {
            compared++;
            if (agrees(&lines[k], i, y[(k - from) * n + i])) continue;
            text words_of = {0};
            printf("%s: %s with a of %s, b of %s, element %lld: got %lld (as bits)\n", device,
                   expression_of(&lines[k], &words_of), dtypes[lines[k].a].text, dtypes[lines[k].b].text, (long long)i,
                   (long long)y[(k - from) * n + i]);
            text_free(&words_of);
            test_fail(__FILE__, __LINE__, "the value");
            break;
        }
    }
    qn_call_free(call);
    qn_module_free(module);
    text_free(&source);
    free(y);
}

static void add(const char *word, dtype a, dtype b, form f)
{
    dtype operand, result = b;
    bool moves = strstr(word, "cast") != NULL;
    if (!moves && rule(word, a, b, &operand, &result)) return;
    CHECK(line_count < MOST_LINES);
    lines[line_count++] = (line){word, a, b, result, f};
}

/* What a device has to know of a pair of types. */
static void add_pair(dtype a, dtype b, form f)
{
    add("<<", a, b, f);
    add(">>", a, b, f);
    add(words[(a + 3 * b) % 4], a, b, f);
    if (f > BOTH_TILES) return;
    add("cast", a, b, f);
    if (dtypes[a].size_bytes == dtypes[b].size_bytes) add("bitcast", a, b, f);
}

static void run_on(const char *device, bool everything)
{
    compared = 0;
    for (int a = 0; a < DT_COUNT; a++)
        for (int scalars = 0; scalars < 2; scalars++) {
            line_count = 0;
            for (int b = 0; b < DT_COUNT; b++)
                for (form f = 0; f < FORMS; f++) {
                    if ((f == BOTH_SCALARS) != scalars) continue;
                    add_pair((dtype)a, (dtype)b, f);
                    for (int w = 0; everything && w < COUNT(words); w++) add(words[w], (dtype)a, (dtype)b, f);
                }
            run_lines((dtype)a, scalars, 0, device);
        }
    printf("note: operators: %d values on %s\n", compared, device);
    EXPECT(compared > (everything ? 40000 : 8000));
}

TEST(on_ref)
{
    run_on("ref", true);
}

TEST(on_cpu)
{
    run_on("cpu", false);
}

TEST(on_another) /* QUERN_TEST_DEVICE=emu: the CUDA text, which takes longer to compile */
{
    const char *device = environment_get("QUERN_TEST_DEVICE");
    if (device) run_on(device, false);
}

TEST(refused)
{
    int count = 0;
    for (int a = 0; a < DT_COUNT; a++)
        for (int b = 0; b < DT_COUNT; b++)
            for (int w = 0; w < COUNT(words); w++) {
                dtype operand, result;
                const char *code = rule(words[w], (dtype)a, (dtype)b, &operand, &result);
                if (!code) continue;
                line l = {words[w], (dtype)a, (dtype)b, result, w % 2 ? BOTH_TILES : TILE_SCALAR};
                text source = {0}, words_of = {0};
                qn_error error;
                qn_module *module = NULL;
                text_print(&source, "kernel k(in %s a[n], in %s b%d[n], out bool y[n]) launch (1) { y[:] = bool(%s); }",
                           dtypes[a].text, dtypes[b].text, b, expression_of(&l, &words_of));
                qn_status status = qn_module_load_text(context, "refused.qn", text_get(&source), &module, &error);
                qn_call *call = NULL;
                int64_t n = 1;
                char data[3][8] = {{0}};
                char name[8];
                snprintf(name, sizeof(name), "b%d", b);
                if (status == QN_OK) status = qn_call_new(module, "k", &call, &error);
                const char *names[] = {"a", name, "y"};
                const qn_dtype types[] = {(qn_dtype)a, (qn_dtype)b, QN_BOOL};
                for (int p = 0; p < 3 && status == QN_OK; p++)
                    status = qn_call_set_memory(call, names[p], data[p], types[p], 1, &n, NULL, &error);
                if (status == QN_OK) status = qn_call_run(call, "ref", &error);
                if (status == QN_OK || !strstr(error.message, code)) {
                    printf("%s: wanted %s, got %s\n", text_get(&source), code,
                           status == QN_OK ? "nothing" : error.message);
                    test_fail(__FILE__, __LINE__, "a refusal");
                }
                count++;
                qn_call_free(call);
                qn_module_free(module);
                text_free(&source);
                text_free(&words_of);
            }
    EXPECT(count > 500);
}

TEST(open_context)
{
    qn_error error;
    const char *setting = environment_get("QUERN_CC"), *compiler = environment_get("CC");
    char quick[256]; /* the text is looked at, not its speed */
    snprintf(quick, sizeof(quick), "%s -O1", setting ? setting : compiler ? compiler : "cc");
    setenv("QUERN_CC", quick, 1);
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
}

TEST(close_context)
{
    qn_context_close(context);
}

TEST_MAIN(CASE(open_context), CASE(on_ref), CASE(on_cpu), CASE(on_another), CASE(refused), CASE(close_context))
