/*
 * One table of ops, many readers: an op of ops.def that one of them does not know is named here, with the place where
 * it is missing. Meaning, C text and gradients are asked for by test_interp, test_emit_ops and test_grad, which walk the
 * table themselves; CUDA text by the cases of tests/cases.def, which run on every device: this test asks for the case.
 * docs/add-an-op.md is the same list in words.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"

#include "ir/interp_state.h"
#include "lang/ast.h"
#include "quern/tensor.h"

#include <string.h>

static const struct {
    op_code code;
    const char *word;
} operators[] = {{OP_NEG, "-p"},    {OP_NOT, "~p"},    {OP_ADD, "p + q"}, {OP_SUB, "p - q"},     {OP_MUL, "p * q"},
                 {OP_DIV, "p / q"}, {OP_MOD, "p % q"}, {OP_AND, "p & q"}, {OP_OR, "p | q"},      {OP_XOR, "p ^ q"},
                 {OP_SHL, "p << "}, {OP_SHR, "p >> "}, {OP_LT, "p < q"},  {OP_LE, "p <= q"},     {OP_GT, "p > q"},
                 {OP_GE, "p >= q"}, {OP_EQ, "p == q"}, {OP_NE, "p != q"}, {OP_CONVERT, "f32(p)"}};
/* Made by other ops of the language: tests of their own compare them (test_random, test_fed). */
static const op_code inner[] = {OP_TF32, OP_PHILOX, OP_BITCAST};

static bool is_inner(op_code code)
{
    for (int i = 0; i < COUNT(inner); i++)
        if (inner[i] == code) return true;
    return false;
}

static bool is_elementwise(op_code code)
{
    return ops[code].class >= CLASS_UNARY && ops[code].class <= CLASS_TERNARY;
}

/* How it is written in a kernel: an operator, or a function's name with its bracket. */
static const char *written(op_code code, char *words, size_t size)
{
    for (int i = 0; i < COUNT(operators); i++)
        if (operators[i].code == code) return operators[i].word;
    for (int i = 0; i < builtin_count; i++) {
        if (builtins[i].op != code) continue;
        snprintf(words, size, "%s(", builtins[i].name);
        return words;
    }
    return NULL;
}

TEST(the_language_names_it)
{
    char words[64];
    for (op_code code = 1; code < OP_COUNT; code++) {
        if (!is_elementwise(code) || is_inner(code) || written(code, words, sizeof(words))) continue;
        printf("%s has no name: src/lang/builtins.c\n", ops[code].text);
        EXPECT(!"named");
    }
}

TEST(every_device_is_asked)
{
    char *cases = NULL, words[64];
    size_t length;
    qn_error error;
    EXPECT(file_read(QUERN_ROOT "/tests/cases.def", 1 << 20, &cases, &length, &error) == QN_OK);
    const char *rows = cases ? strstr(cases, "\nMAP(") : NULL;
    EXPECT(rows != NULL);
    for (op_code code = 1; rows && code < OP_COUNT; code++) {
        const char *word = is_elementwise(code) && !is_inner(code) ? written(code, words, sizeof(words)) : NULL;
        if (!word || strstr(rows, word)) continue;
        printf("%s (`%s`) has no case: tests/cases.def\n", ops[code].text, word);
        EXPECT(!"a case");
    }
    heap_free(cases);
}

TEST(tensors_have_it)
{
#define NAME(name) #name,
    static const char *const functions[] = {QN_UNARY_LIST(NAME)};
#undef NAME
    for (op_code code = 1; code < OP_COUNT; code++) {
        bool found = false;
        if (ops[code].class != CLASS_UNARY || is_inner(code) || code == OP_CONVERT) continue;
        for (int i = 0; i < COUNT(functions); i++) found |= !strcmp(functions[i], ops[code].text);
        if (!found) printf("qn_%s is missing: QN_UNARY_LIST of quern/tensor.h\n", ops[code].text);
        EXPECT(found);
    }
}

/* A function of floats has a value in constant expressions too: the interpreter's. */
TEST(it_has_a_meaning)
{
    for (op_code code = 1; code < OP_COUNT; code++) {
        bool floats = strchr(ops[code].types, 'F') != NULL;
        cell in[2] = {0}, out = {0};
        if (!is_elementwise(code) || is_inner(code) || code == OP_CONVERT || ops[code].class == CLASS_TERNARY) continue;
        in[0].f = in[1].f = 0.5;
        if (!floats) in[0].i = in[1].i = 1;
        dtype t = floats ? DT_F64 : DT_I64;
        if (ops[code].class == CLASS_UNARY) math_unary(code, t, 1, in, 0, &out);
        if (ops[code].class == CLASS_BINARY) math_binary(code, t, 1, in, 0, in + 1, 0, &out);
        if (ops[code].class == CLASS_COMPARE) math_compare(code, t, 1, in, 0, in + 1, 0, &out);
    }
    EXPECT(true); /* one without a meaning has ended the program */
}

TEST_MAIN(CASE(the_language_names_it), CASE(every_device_is_asked), CASE(tensors_have_it), CASE(it_has_a_meaning))
