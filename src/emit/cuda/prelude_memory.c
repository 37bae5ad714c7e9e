/*
 * Memory in the CUDA prelude: vectors of up to 16 bytes between memory and an array of registers, by rule from a name
 * (`load_bf16x8_constant`), on top of the few functions of prelude/cuda/memory.cuh that move 32-bit words.
 * No cache hints: they were measured and cost more than they gave (docs/decisions/008-no-cache-hints.md).
 * The plain ones are C, so that the compiler sees which memory a pointer is of; the others are for global memory only.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/prelude_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct memory_type {
    const char *type, *memory, *value;
    int size_bytes;
} memory_type;

static const memory_type memory_types[] = {
    {"f32", "float", "float", 4},
    {"f64", "double", "double", 8},
    {"f16", "unsigned short", "float", 2},
    {"bf16", "unsigned short", "float", 2},
    {"i8", "signed char", "signed char", 1},
    {"i16", "short", "short", 2},
    {"i32", "int", "int", 4},
    {"i64", "long", "long", 8},
    {"u8", "unsigned char", "unsigned char", 1},
    {"u16", "unsigned short", "unsigned short", 2},
    {"u32", "unsigned", "unsigned", 4},
    {"u64", "unsigned long", "unsigned long", 8},
    {"bool", "unsigned char", "bool", 1},
    {"f8e4m3", "unsigned char", "float", 1},
};

/* Element k of the words w as a register. */
static void put_unpacked(const memory_type *t, int k, text *out)
{
    int per_word = 4 / t->size_bytes, word = per_word ? k / per_word : 2 * k;
    text_print(out, "    r[%d] = ", k);
    if (!strcmp(t->type, "f64"))
        text_print(out, "real_f64((long)((unsigned long)w[%d] << 32 | w[%d]));\n", word + 1, word);
    else if (t->size_bytes == 8)
        text_print(out, "(%s)((unsigned long)w[%d] << 32 | w[%d]);\n", t->value, word + 1, word);
    else if (!strcmp(t->type, "f32"))
        text_print(out, "real_f32((int)w[%d]);\n", word);
    else if (!strcmp(t->type, "bf16"))
        text_print(out, k % 2 ? "real_f32((int)(w[%d] & 0xffff0000));\n" : "real_f32((int)(w[%d] << 16));\n", word);
    else if (!strcmp(t->type, "f16"))
        text_print(out, k % 2 ? "f16_to_f32((unsigned short)(w[%d] >> 16));\n" : "f16_to_f32((unsigned short)w[%d]);\n",
                   word);
    else if (!strcmp(t->type, "f8e4m3"))
        text_print(out, "f8e4m3_to_f32((unsigned char)(w[%d] >> %d));\n", word, k % 4 * 8);
    else if (!strcmp(t->type, "bool"))
        text_print(out, "(w[%d] >> %d & 0xff) != 0;\n", word, k % 4 * 8);
    else {
        CHECK(per_word > 0);
        text_print(out, "(%s)(w[%d] >> %d);\n", t->value, word, k % per_word * t->size_bytes * 8);
    }
}

/* What that calls. */
static const char *unpacker_of(const memory_type *t)
{
    if (!strcmp(t->type, "f16")) return " f16_to_f32";
    if (!strcmp(t->type, "f8e4m3")) return " f8e4m3_to_f32";
    return t->value[0] == 'd' ? " real_f64" : t->value[0] == 'f' ? " real_f32" : "";
}

/* Word i from the registers r. */
static void put_packed(const memory_type *t, int i, text *out)
{
    text_print(out, "    w[%d] = ", i);
    if (t->size_bytes == 8)
        text_print(out, t->value[0] == 'd' ? "(unsigned)(bits_f64(r[%d]) >> %d);\n" : "(unsigned)(r[%d] >> %d);\n",
                   i / 2, i % 2 * 32);
    else if (!strcmp(t->type, "f32"))
        text_print(out, "(unsigned)bits_f32(r[%d]);\n", i);
    else if (!strcmp(t->type, "f16") || !strcmp(t->type, "bf16"))
        text_print(out, "pack_%s(r[%d], r[%d]);\n", t->type, 2 * i, 2 * i + 1);
    else if (t->size_bytes == 4)
        text_print(out, "(unsigned)r[%d];\n", i);
    else if (t->size_bytes == 2)
        text_print(out, "(unsigned short)r[%d] | (unsigned)(unsigned short)r[%d] << 16;\n", 2 * i, 2 * i + 1);
    else if (!strcmp(t->type, "f8e4m3"))
        text_print(out,
                   "f32_to_f8e4m3(r[%d]) | f32_to_f8e4m3(r[%d]) << 8 | f32_to_f8e4m3(r[%d]) << 16 |\n           "
                   "(unsigned)f32_to_f8e4m3(r[%d]) << 24;\n",
                   4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3);
    else
        text_print(out,
                   "(unsigned char)r[%d] | (unsigned)(unsigned char)r[%d] << 8 | (unsigned)(unsigned char)r[%d] << 16 "
                   "|\n           (unsigned)(unsigned char)r[%d] << 24;\n",
                   4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3);
}

/* "bf16x8_constant" to a type, a count and "_constant". */
static const memory_type *parse_vector(const char *words, int *count, const char **kind)
{
    for (int i = 0; i < COUNT(memory_types); i++) {
        const memory_type *t = &memory_types[i];
        size_t length = strlen(t->type);
        if (strncmp(words, t->type, length) || words[length] != 'x') continue;
        char *end;
        long n = strtol(words + length + 1, &end, 10);
        const char *if_at = strstr(end, "_if");
        size_t kind_length = if_at && !if_at[3] ? (size_t)(if_at - end) : strlen(end);
        bool known =
            !kind_length || (kind_length == 9 && !strncmp(end, "_constant", 9)) || !strcmp(end, "_constant_or");
        bool power = n == 1 || n == 2 || n == 4 || n == 8 || n == 16;
        if (!known || !power || n * t->size_bytes > 16) return NULL;
        *count = (int)n;
        *kind = end;
        return t;
    }
    return NULL;
}

/* unpack_<t>x<n>, pack_<t>x<n>: 16-bit floats in registers, two in each. That the words are the same as at the last
 * time is hidden from the compiler, which would keep them unpacked from one use to the next. */
static bool packing_text(const char *name, text *needs, text *out)
{
    bool unpack = !strncmp(name, "unpack_", 7), pack = !strncmp(name, "pack_", 5);
    int count;
    const char *kind;
    const memory_type *t = unpack || pack ? parse_vector(name + (unpack ? 7 : 5), &count, &kind) : NULL;
    if (!t || t->size_bytes != 2 || t->value[0] != 'f' || *kind || count < 2) return false;
    if (pack) {
        text_print(needs, "pack_%s", t->type);
        text_print(out, "INLINE void %s(unsigned *w, const float *r)\n{\n", name);
        for (int i = 0; i < count / 2; i++) put_packed(t, i, out);
    } else {
        text_add(needs, !strcmp(t->type, "f16") ? "f16_to_f32 real_f32" : "real_f32");
        text_print(out, "INLINE void %s(float *r, const unsigned *from)\n{\n    unsigned w[%d];\n", name, count / 2);
        for (int i = 0; i < count / 2; i++) text_print(out, "    w[%d] = from[%d];\n", i, i);
        text_add(out, "#ifndef QUERN_EMU\n");
        for (int i = 0; i < count / 2; i++) text_print(out, "    asm volatile(\"\" : \"+r\"(w[%d]));\n", i);
        text_add(out, "#endif\n");
        for (int k = 0; k < count; k++) put_unpacked(t, k, out);
    }
    text_add(out, "}\n");
    return true;
}

/* load_<t>x<n>[_constant]_uneven: see LOAD_UNEVEN. */
static bool uneven_text(const char *name, text *needs, text *out)
{
    const char *end = strstr(name, "_uneven");
    if (!end || end[7] || strncmp(name, "load_", 5)) return false;
    char plain[64];
    int count;
    const char *kind;
    snprintf(plain, sizeof(plain), "%.*s", (int)(end - name - 5), name + 5);
    const memory_type *t = parse_vector(plain, &count, &kind);
    if (!t || count * t->size_bytes != 16) return false;
    text_print(needs, "read_%s load_words4%s_uneven", t->type, kind);
    text_add(needs, unpacker_of(t));
    text_print(out, "INLINE void %s(%s *r, const %s *p, int first, int count, int ok)\n{\n", name, t->value, t->memory);
    text_add(out, "#ifdef QUERN_EMU\n");
    text_print(
        out,
        "    for (int k = 0; k < %d; k++) r[k] = ok && first + k >= 0 && first + k < count ? read_%s(p + k) : 0;\n",
        count, t->type);
    text_add(out, "#else\n    unsigned w[4];\n");
    text_print(out, "    load_words4%s_uneven(w, p, first, count, ok, %d);\n", kind, t->size_bytes);
    for (int k = 0; k < count; k++) put_unpacked(t, k, out);
    text_add(out, "#endif\n}\n");
    return true;
}

bool cuda_memory_text(const char *name, text *needs, text *out)
{
    if (strstr(name, "_uneven")) return uneven_text(name, needs, out);
    bool load = !strncmp(name, "load_", 5), store = !strncmp(name, "store_", 6);
    if (!load && !store) return packing_text(name, needs, out);
    int count = 0;
    const char *kind;
    const memory_type *t = parse_vector(name + (load ? 5 : 6), &count, &kind);
    if (!t || (store && !strncmp(kind, "_constant", 9))) return false;
    bool if_ok = strstr(kind, "_if"), or_fill = load && !strcmp(kind, "_constant_or");
    const char *more = or_fill ? ", int ok, unsigned fill" : if_ok ? ", int ok" : "";
    const char *pass = or_fill ? ", ok, fill" : if_ok ? ", ok" : "";
    int bytes = count * t->size_bytes, words = bytes / 4;
    if (load)
        text_print(out, "INLINE void %s(%s *r, const %s *p%s)\n{\n", name, t->value, t->memory, more);
    else
        text_print(out, "INLINE void %s(%s *p, const %s *r%s)\n{\n", name, t->memory, t->value, more);
    if (!words) { /* less than a word: one by one */
        text_print(needs, load ? "read_%s" : "write_%s", t->type);
        const char *test = if_ok ? "ok ? " : "", *zero = if_ok ? " : 0" : "", *only = if_ok ? "if (ok) " : "";
        for (int k = 0; k < count && load; k++)
            text_print(out, "    r[%d] = %sread_%s(p + %d)%s;\n", k, test, t->type, k, zero);
        for (int k = 0; k < count && store; k++)
            text_print(out, "    %swrite_%s(p + %d, r[%d]);\n", only, t->type, k, k);
        text_add(out, "}\n");
        return true;
    }
    text_print(needs, "%s_words%d%s", load ? "load" : "store", words, kind);
    if (store && t->size_bytes < 4 && t->value[0] == 'f')
        text_print(needs, t->size_bytes == 2 ? " pack_%s" : " f32_to_%s", t->type);
    else
        text_add(needs, unpacker_of(t));
    text_print(out, "    unsigned w[%d];\n", words);
    if (load) {
        text_print(out, "    load_words%d%s(w, p%s);\n", words, kind, pass);
        for (int k = 0; k < count; k++) put_unpacked(t, k, out);
    } else {
        for (int i = 0; i < words; i++) put_packed(t, i, out);
        text_print(out, "    store_words%d%s(p, w%s);\n", words, kind, pass);
    }
    text_add(out, "}\n");
    return true;
}
