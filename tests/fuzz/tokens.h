/*
 * Changes of .qn files that exchange a token for another of its kind: names, numbers, types, operators. Many of the results
 * still parse and check, so that what stands behind the checker is tried too.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_FUZZ_TOKENS_H
#define QUERN_TESTS_FUZZ_TOKENS_H

#include "lang/parse.h"

#include <string.h>

static uint64_t tokens_state = 0x9e3779b97f4a7c15;

static inline uint64_t tokens_random(void)
{
    tokens_state ^= tokens_state << 13;
    tokens_state ^= tokens_state >> 7;
    tokens_state ^= tokens_state << 17;
    return tokens_state;
}

static inline size_t tokens_below(size_t limit)
{
    return limit ? (size_t)(tokens_random() % limit) : 0;
}

static inline void tokens_seed(uint64_t seed)
{
    tokens_state = (seed + 1) * 0x9e3779b97f4a7c15;
}

static const char *const tokens_operators[] = {"+", "-",  "*", "/",  "%", "<", "<=", "==", "&&", "||",
                                               "&", ">>", "=", "+=", "?", ":", ",",  "!",  "~"};
static const char *const tokens_numbers[] = {
    "0", "1", "2", "-1", "3", "16", "64", "1.5", "inf", "true", "1e9", "16777217", "0x7fffffffffffffff"};
static const char *const tokens_types[] = {"float",  "int",  "i32", "u8",  "u64", "bool",
                                           "double", "bf16", "T",   "f16", "u32"};

static inline const char *tokens_pick(const char *const *list, int count)
{
    return count ? list[tokens_below((size_t)count)] : "0";
}

static inline const char *tokens_other(const token *t, const char *const *names, int name_count)
{
    switch (t->kind) {
    case TOKEN_NAME:
        if (builtin_find(t->word)) return builtins[tokens_below((size_t)builtin_count)].name;
        return tokens_below(8) ? tokens_pick(names, name_count) : tokens_pick(tokens_numbers, COUNT(tokens_numbers));
    case TOKEN_NUMBER:
        return tokens_below(2) ? tokens_pick(tokens_numbers, COUNT(tokens_numbers)) : tokens_pick(names, name_count);
    case TOKEN_TYPE: return tokens_pick(tokens_types, COUNT(tokens_types));
    case TOKEN_OPERATOR:
        if (t->word[0] == '[') return tokens_below(2) ? "[] [" : "[:] [";
        if (t->word[0] == '(') return tokens_below(2) ? "(1 + " : "(axis = 1, ";
        return strchr(";{}])", t->word[0]) ? NULL : tokens_pick(tokens_operators, COUNT(tokens_operators));
    default: return NULL;
    }
}

static inline void tokens_swap(const char *source, size_t size_bytes, text *out)
{
    arena *memory = arena_new();
    diagnostics d = {.memory = memory};
    ast_file file = {.memory = memory, .text = arena_copy_text(memory, source, size_bytes), .length = size_bytes};
    lexer x;
    lex_start(&x, &file, 0, &d);
    const char *names[512];
    int name_count = 0;
    lexer ahead = x;
    for (token t = lex_next(&ahead); t.kind != TOKEN_END; t = lex_next(&ahead))
        if (t.kind == TOKEN_NAME && name_count < COUNT(names)) names[name_count++] = t.word;
    size_t rare = 20 + tokens_below(60);
    for (token t = lex_next(&x); t.kind != TOKEN_END; t = lex_next(&x)) {
        const char *other = tokens_below(rare) ? NULL : tokens_other(&t, names, name_count);
        text_add(out, " ");
        if (other)
            text_add(out, other);
        else if (t.kind == TOKEN_STRING)
            text_add_quoted(out, t.word, t.length);
        else if (t.kind == TOKEN_RAW)
            text_print(out, "\"\"\"%s\"\"\"", t.word);
        else
            text_add(out, t.word);
    }
    arena_free(memory);
}

#endif
