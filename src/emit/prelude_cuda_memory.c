/*
 * Memory in the CUDA prelude: vectors of up to 16 bytes between memory and an array of registers, by rule from a name
 * (load_bf16x8_constant), on top of a few functions that move 32-bit words.
 * No cache hints: they were measured and cost more than they gave (docs/decisions/008-no-cache-hints.md).
 * The plain ones are C, so that the compiler sees which memory a pointer is of; the others are for global memory only.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_cuda_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const prelude_part cuda_memory_parts[] = {
    {"words", "", "",
     "#ifdef QUERN_EMU\n"
     "#define WORDS(bytes) __attribute__((may_alias, aligned(bytes)))\n"
     "#else\n"
     "#define WORDS(bytes) __align__(bytes)\n"
     "#endif\n"
     "struct WORDS(16) words4 { unsigned w[4]; };\n"
     "struct WORDS(8) words2 { unsigned w[2]; };\n"
     "struct WORDS(4) words1 { unsigned w[1]; };\n"},
    {"load_words4", "", "words",
     "INLINE void load_words4(unsigned *w, const void *p)\n"
     "{\n"
     "    const words4 c = *(const words4 *)p;\n"
     "    w[0] = c.w[0], w[1] = c.w[1], w[2] = c.w[2], w[3] = c.w[3];\n"
     "}\n"},
    {"load_words2", "", "words",
     "INLINE void load_words2(unsigned *w, const void *p)\n"
     "{\n"
     "    const words2 c = *(const words2 *)p;\n"
     "    w[0] = c.w[0], w[1] = c.w[1];\n"
     "}\n"},
    {"load_words1", "", "words",
     "INLINE void load_words1(unsigned *w, const void *p) { *w = ((const words1 *)p)->w[0]; }\n"},
    {"store_words4", "", "words",
     "INLINE void store_words4(void *p, const unsigned *w)\n"
     "{\n"
     "    const words4 c = {{w[0], w[1], w[2], w[3]}};\n"
     "    *(words4 *)p = c;\n"
     "}\n"},
    {"store_words2", "", "words",
     "INLINE void store_words2(void *p, const unsigned *w)\n"
     "{\n"
     "    const words2 c = {{w[0], w[1]}};\n"
     "    *(words2 *)p = c;\n"
     "}\n"},
    {"store_words1", "", "words",
     "INLINE void store_words1(void *p, const unsigned *w) { ((words1 *)p)->w[0] = *w; }\n"},
/* Around the plain ones: what the instruction is called, for how the words are used. */
#define LOAD_KIND(kind, instruction)                                                                      \
    {"load_words4_" kind, "", "load_words4",                                                              \
     "INLINE void load_words4_" kind "(unsigned *w, const void *p)\n"                                     \
     "{\n"                                                                                                \
     "#ifdef QUERN_EMU\n"                                                                                 \
     "    load_words4(w, p);\n"                                                                           \
     "#else\n"                                                                                            \
     "    asm(\"" instruction ".v4.u32 {%0, %1, %2, %3}, [%4];\"\n"                                       \
     "        : \"=r\"(w[0]), \"=r\"(w[1]), \"=r\"(w[2]), \"=r\"(w[3]) : \"l\"(p));\n"                    \
     "#endif\n"                                                                                           \
     "}\n"},                                                                                              \
        {"load_words2_" kind, "", "load_words2",                                                          \
         "INLINE void load_words2_" kind "(unsigned *w, const void *p)\n"                                 \
         "{\n"                                                                                            \
         "#ifdef QUERN_EMU\n"                                                                             \
         "    load_words2(w, p);\n"                                                                       \
         "#else\n"                                                                                        \
         "    asm(\"" instruction ".v2.u32 {%0, %1}, [%2];\" : \"=r\"(w[0]), \"=r\"(w[1]) : \"l\"(p));\n" \
         "#endif\n"                                                                                       \
         "}\n"},                                                                                          \
    {                                                                                                     \
        "load_words1_" kind, "", "load_words1",                                                           \
            "INLINE void load_words1_" kind "(unsigned *w, const void *p)\n"                              \
            "{\n"                                                                                         \
            "#ifdef QUERN_EMU\n"                                                                          \
            "    load_words1(w, p);\n"                                                                    \
            "#else\n"                                                                                     \
            "    asm(\"" instruction ".u32 %0, [%1];\" : \"=r\"(*w) : \"l\"(p));\n"                       \
            "#endif\n"                                                                                    \
            "}\n"                                                                                         \
    }
    LOAD_KIND("constant", "ld.global.nc"),
/* Elements first .. of a row of `count` that begin anywhere: the two aligned vectors around them, put together. What is
 * not the row's may be anything; of a vector that is loaded some element is. */
#define LOAD_UNEVEN(kind)                                                                                           \
    {                                                                                                               \
        "load_words4" kind "_uneven", "", "load_words4" kind "_if",                                                 \
            "INLINE void load_words4" kind                                                                          \
            "_uneven(unsigned *w, const void *p, int first, int count, int ok, int size)\n"                         \
            "{\n"                                                                                                   \
            "    const unsigned at = (unsigned)(unsigned long)p & 15;\n"                                            \
            "    const char *const from = (const char *)p - at;\n"                                                  \
            "    const int begin = first - (int)at / size, each = 16 / size;\n"                                     \
            "    unsigned c[9], d[5];\n"                                                                            \
            "    load_words4" kind "_if(c, from, ok && begin > -each);\n"                                           \
            "    load_words4" kind "_if(c + 4, from + 16, ok && at != 0 && begin + each < count);\n"                \
            "    c[8] = 0;\n"                                                                                       \
            "    for (int k = 0; k < 7; k++) c[k] = at & 8 ? c[k + 2] : c[k];\n"                                    \
            "    for (int k = 0; k < 5; k++) d[k] = at & 4 ? c[k + 1] : c[k];\n"                                    \
            "    for (int k = 0; k < 4; k++) w[k] = size >= 4 ? d[k] : __funnelshift_r(d[k], d[k + 1], (at & 3) * " \
            "8);\n"                                                                                                 \
            "}\n"                                                                                                   \
    }
#define UNEVEN_PARTS LOAD_UNEVEN(""), LOAD_UNEVEN("_constant")
/* Under a condition, without a branch: several of them are in flight together. Zeros where it does not hold. */
#define LOAD_IF(kind, volatile_word, instruction, clobber)                                                       \
    {"load_words4" kind "_if", "", "load_words4",                                                                \
     "INLINE void load_words4" kind "_if(unsigned *w, const void *p, int ok)\n"                                  \
     "{\n"                                                                                                       \
     "#ifdef QUERN_EMU\n"                                                                                        \
     "    w[0] = w[1] = w[2] = w[3] = 0;\n"                                                                      \
     "    if (ok) load_words4(w, p);\n"                                                                          \
     "#else\n"                                                                                                   \
     "    asm" volatile_word "(\"{\\n.reg .pred p;\\nsetp.ne.s32 p, %5, 0;\\n\"\n"                               \
     "        \"mov.u32 %0, 0;\\nmov.u32 %1, 0;\\nmov.u32 %2, 0;\\nmov.u32 %3, 0;\\n\"\n"                        \
     "        \"@p " instruction ".v4.u32 {%0, %1, %2, %3}, [%4];\\n}\"\n"                                       \
     "        : \"=&r\"(w[0]), \"=&r\"(w[1]), \"=&r\"(w[2]), \"=&r\"(w[3]) : \"l\"(p), \"r\"(ok)" clobber ");\n" \
     "#endif\n"                                                                                                  \
     "}\n"},                                                                                                     \
        {"load_words2" kind "_if", "", "load_words2",                                                            \
         "INLINE void load_words2" kind "_if(unsigned *w, const void *p, int ok)\n"                              \
         "{\n"                                                                                                   \
         "#ifdef QUERN_EMU\n"                                                                                    \
         "    w[0] = w[1] = 0;\n"                                                                                \
         "    if (ok) load_words2(w, p);\n"                                                                      \
         "#else\n"                                                                                               \
         "    asm" volatile_word "(\"{\\n.reg .pred p;\\nsetp.ne.s32 p, %3, 0;\\n\"\n"                           \
         "        \"mov.u32 %0, 0;\\nmov.u32 %1, 0;\\n@p " instruction ".v2.u32 {%0, %1}, [%2];\\n}\"\n"         \
         "        : \"=&r\"(w[0]), \"=&r\"(w[1]) : \"l\"(p), \"r\"(ok)" clobber ");\n"                           \
         "#endif\n"                                                                                              \
         "}\n"},                                                                                                 \
    {                                                                                                            \
        "load_words1" kind "_if", "", "load_words1",                                                             \
            "INLINE void load_words1" kind "_if(unsigned *w, const void *p, int ok)\n"                           \
            "{\n"                                                                                                \
            "#ifdef QUERN_EMU\n"                                                                                 \
            "    *w = 0;\n"                                                                                      \
            "    if (ok) load_words1(w, p);\n"                                                                   \
            "#else\n"                                                                                            \
            "    asm" volatile_word "(\"{\\n.reg .pred p;\\nsetp.ne.s32 p, %2, 0;\\n\"\n"                        \
            "        \"mov.u32 %0, 0;\\n@p " instruction ".u32 %0, [%1];\\n}\"\n"                                \
            "        : \"=&r\"(*w) : \"l\"(p), \"r\"(ok)" clobber ");\n"                                         \
            "#endif\n"                                                                                           \
            "}\n"                                                                                                \
    }
    LOAD_IF("", " volatile", "ld.global", " : \"memory\""),
    LOAD_IF("_constant", "", "ld.global.nc", ""),
    UNEVEN_PARTS,
#define STORE_IF(kind, instruction)                                                                                   \
    {"store_words4" kind "_if", "", "store_words4",                                                                   \
     "INLINE void store_words4" kind "_if(void *p, const unsigned *w, int ok)\n"                                      \
     "{\n"                                                                                                            \
     "#ifdef QUERN_EMU\n"                                                                                             \
     "    if (ok) store_words4(p, w);\n"                                                                              \
     "#else\n"                                                                                                        \
     "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.s32 p, %5, 0;\\n@p " instruction                                 \
     ".v4.u32 [%0], {%1, %2, %3, %4};\\n}\"\n"                                                                        \
     "        :: \"l\"(p), \"r\"(w[0]), \"r\"(w[1]), \"r\"(w[2]), \"r\"(w[3]), \"r\"(ok) : \"memory\");\n"            \
     "#endif\n"                                                                                                       \
     "}\n"},                                                                                                          \
        {"store_words2" kind "_if", "", "store_words2",                                                               \
         "INLINE void store_words2" kind "_if(void *p, const unsigned *w, int ok)\n"                                  \
         "{\n"                                                                                                        \
         "#ifdef QUERN_EMU\n"                                                                                         \
         "    if (ok) store_words2(p, w);\n"                                                                          \
         "#else\n"                                                                                                    \
         "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.s32 p, %3, 0;\\n@p " instruction                             \
         ".v2.u32 [%0], {%1, %2};\\n}\"\n"                                                                            \
         "        :: \"l\"(p), \"r\"(w[0]), \"r\"(w[1]), \"r\"(ok) : \"memory\");\n"                                  \
         "#endif\n"                                                                                                   \
         "}\n"},                                                                                                      \
    {                                                                                                                 \
        "store_words1" kind "_if", "", "store_words1",                                                                \
            "INLINE void store_words1" kind "_if(void *p, const unsigned *w, int ok)\n"                               \
            "{\n"                                                                                                     \
            "#ifdef QUERN_EMU\n"                                                                                      \
            "    if (ok) store_words1(p, w);\n"                                                                       \
            "#else\n"                                                                                                 \
            "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.s32 p, %2, 0;\\n@p " instruction ".u32 [%0], %1;\\n}\"\n" \
            "        :: \"l\"(p), \"r\"(*w), \"r\"(ok) : \"memory\");\n"                                              \
            "#endif\n"                                                                                                \
            "}\n"                                                                                                     \
    }
    STORE_IF("", "st.global"),
    /* A vector that a row's edge goes through may be loaded whole: it is in one piece of memory with the row's own. Not
     * where somebody watches memory. */
    {"at_edge", "", "",
     "#ifdef QUERN_EMU\n"
     "INLINE int at_edge(int whole) { return whole; }\n"
     "#else\n"
     "INLINE int at_edge(int) { return 1; }\n"
     "#endif\n"},
    /* One element. */
    {"read_$t", CUDA_NUMBERS, "", "INLINE $v read_$t(const $m *p) { return *p; }\n"},
    /* Of what nobody writes, under a condition and without a branch. */
    {"read_if_$t", "f32 i32 u32", "load_words1_constant_if",
     "INLINE $v read_if_$t(const $m *p, int ok)\n"
     "{\n"
     "    union { unsigned word; $v number; } x;\n"
     "    load_words1_constant_if(&x.word, p, ok);\n"
     "    return x.number;\n"
     "}\n"},
    {"read_if_$t", "f64 i64 u64", "load_words2_constant_if",
     "INLINE $v read_if_$t(const $m *p, int ok)\n"
     "{\n"
     "    union { unsigned words[2]; $v number; } x;\n"
     "    load_words2_constant_if(x.words, p, ok);\n"
     "    return x.number;\n"
     "}\n"},
    {"read_if_$t", "f16 bf16", "$t_to_f32",
     "INLINE float read_if_$t(const $m *p, int ok)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    return ok ? $t_to_f32(*p) : 0;\n"
     "#else\n"
     "    unsigned short half;\n"
     "    asm(\"{\\n.reg .pred p;\\nsetp.ne.s32 p, %2, 0;\\n\"\n"
     "        \"mov.u16 %0, 0;\\n@p ld.global.nc.u16 %0, [%1];\\n}\"\n"
     "        : \"=&h\"(half) : \"l\"(p), \"r\"(ok));\n"
     "    return $t_to_f32(half);\n"
     "#endif\n"
     "}\n"},
    {"write_$t", CUDA_NUMBERS, "", "INLINE void write_$t($m *p, $v x) { *p = x; }\n"},
    {"read_$t", "f16 bf16", "$t_to_f32", "INLINE float read_$t(const $m *p) { return $t_to_f32(*p); }\n"},
    {"write_$t", "f16 bf16", "f32_to_$t", "INLINE void write_$t($m *p, float x) { *p = f32_to_$t(x); }\n"},
    {"read_bool", "", "", "INLINE bool read_bool(const unsigned char *p) { return *p != 0; }\n"},
    {"write_bool", "", "", "INLINE void write_bool(unsigned char *p, bool x) { *p = x; }\n"},
    {0},
};

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
    else if (!strcmp(t->type, "bool"))
        text_print(out, "(w[%d] >> %d & 0xff) != 0;\n", word, k % 4 * 8);
    else {
        CHECK(per_word > 0);
        text_print(out, "(%s)(w[%d] >> %d);\n", t->value, word, k % per_word * t->size_bytes * 8);
    }
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
        bool known = !kind_length || (kind_length == 9 && !strncmp(end, "_constant", 9));
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
    text_add(needs, !strcmp(t->type, "f16") ? " f16_to_f32"
                    : t->value[0] == 'd'    ? " real_f64"
                    : t->value[0] == 'f'    ? " real_f32"
                                            : "");
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
    bool if_ok = strstr(kind, "_if");
    const char *more = if_ok ? ", int ok" : "", *pass = if_ok ? ", ok" : "";
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
    const char *value = !strcmp(t->type, "f16") && load ? " f16_to_f32"
                        : t->value[0] == 'd'            ? " real_f64"
                        : t->value[0] == 'f'            ? " real_f32"
                                                        : "";
    text_add(needs, value);
    if (store && t->size_bytes == 2 && t->value[0] == 'f') text_print(needs, " pack_%s", t->type);
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
