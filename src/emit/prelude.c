/*
 * Puts the prelude together. In: names of functions. Out: C text with the vector types and those functions, each after
 * what it needs, each once.
 * A name is looked up among the parts (templates over types, in the files of prelude/c); conversions and the f64x16 forms of
 * functions that exist on f64x8 are written here by rule.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_parts.h"

#include <string.h>

typedef struct type_row {
    const char *type, *c, *value, *integer, *signed_name, *unsigned_name, *bits;
    const char *instruction, *suffix, *operands, *round, *mantissa, *bias;
    const char *sum, *sum_c;   /* the type that dot adds up in */
    const char *word, *word_c; /* what panels of dot are made of */
} type_row;

static const type_row type_rows[] = {
    {"f32", "float", "float", "int", "i32", "u32", "32", "ss", "f", "%1, %1, ", "0x1p23f", "23", "127", "f32", "float",
     "f32", "float"},
    {"f64", "double", "double", "long", "i64", "u64", "64", "sd", "", "%1, %1, ", "0x1p52", "52", "1023", "f64",
     "double", "f64", "double"},
    {"f32x16", "float", "f32x16", "i32x16", "i32", "u32", "32", "ps", "f", "%1, ", "0x1p23f", "23", "127", "", "", "",
     ""},
    {"f64x8", "double", "f64x8", "i64x8", "i64", "u64", "64", "pd", "", "%1, ", "0x1p52", "52", "1023", "", "", "", ""},
    {"i8", "signed char", "signed char", "signed char", "i8", "u8", "8", "", "", "", "", "", "", "i32", "int", "i16x2",
     "int"},
    {"i16", "short", "short", "short", "i16", "u16", "16", "", "", "", "", "", "", "", "", "", ""},
    {"i32", "int", "int", "int", "i32", "u32", "32", "", "", "", "", "", "", "", "", "", ""},
    {"i64", "long", "long", "long", "i64", "u64", "64", "", "", "", "", "", "", "", "", "", ""},
    {"u8", "unsigned char", "unsigned char", "signed char", "i8", "u8", "8", "", "", "", "", "", "", "i32", "int",
     "i16x2", "int"},
    {"u16", "unsigned short", "unsigned short", "short", "i16", "u16", "16", "", "", "", "", "", "", "", "", "", ""},
    {"u32", "unsigned int", "unsigned int", "int", "i32", "u32", "32", "", "", "", "", "", "", "", "", "", ""},
    {"u64", "unsigned long", "unsigned long", "long", "i64", "u64", "64", "", "", "", "", "", "", "", "", "", ""},
    {"f16", "unsigned short", "", "", "", "u16", "16", "", "", "", "", "", "", "f32", "float", "f32", "float"},
    {"bf16", "unsigned short", "", "", "", "u16", "16", "", "", "", "", "", "", "f32", "float", "bf16x2",
     "dot_word_bf16x2"},
    {"f8e4m3", "unsigned char", "", "", "", "u8", "8", "", "", "", "", "", "", "f32", "float", "f32", "float"},
    {"bf16x2", "dot_word_bf16x2", "", "", "", "", "", "", "", "", "", "", "", "f32", "float", "", ""},
    {"i16x2", "int", "", "", "", "", "", "", "", "", "", "", "", "i32", "int", "", ""},
};

static const type_row *row_of(const char *type)
{
    for (int i = 0; i < COUNT(type_rows); i++)
        if (!strcmp(type_rows[i].type, type)) return &type_rows[i];
    return NULL;
}

static const char *variable(const char *type, char letter)
{
    const type_row *row = row_of(type);
    if (!row) return NULL;
    switch (letter) {
    case 'c': return row->c;
    case 'v': return row->value;
    case 'i': return row->integer;
    case 'j': return row->signed_name;
    case 'u': return row->unsigned_name;
    case 'b': return row->bits;
    case 'p': return row->instruction;
    case 'f': return row->suffix;
    case 'w': return row->operands;
    case 'R': return row->round;
    case 'M': return row->mantissa;
    case 'X': return row->bias;
    case 'k': return row->sum;
    case 'a': return row->sum_c;
    case 'q': return row->word;
    case 'e': return row->word_c;
    default: return NULL;
    }
}

static void expand(const prelude_set *set, prelude_span template, const char *type, text *out)
{
    const char *end = template.start + template.length;
    for (const char *p = template.start; p < end;) {
        const char *hole = memchr(p, '$', (size_t)(end - p));
        text_add_bytes(out, p, (size_t)((hole ? hole : end) - p));
        if (!hole) break;
        char letter = hole + 1 < end ? hole[1] : 0;
        const char *words = letter == 't' ? type : letter ? set->variable(type, letter) : NULL;
        text_add(out, words ? words : "$");
        p = hole + (words ? 2 : 1);
    }
}

/* Whether `name` is the part's with $t (at most once) replaced by a word of its types; the word is copied to `type`. */
static bool name_matches(const char *name, const prelude_part *part, char type[16])
{
    size_t length = strlen(name), size = part->name.length, before = 0;
    const char *pattern = part->name.start;
    *type = 0;
    while (before < size && pattern[before] != '$') before++;
    if (before == size) return length == size && !memcmp(name, pattern, size);
    size_t after = size - before - 2;
    if (length <= before + after || memcmp(name, pattern, before) ||
        memcmp(name + length - after, pattern + before + 2, after))
        return false;
    size_t middle = length - before - after;
    const char *at = part->types.start;
    for (prelude_span word; prelude_word(&at, part->types.start + part->types.length, &word);)
        if (word.length == middle && middle < 16 && !memcmp(word.start, name + before, middle)) {
            memcpy(type, word.start, middle);
            type[middle] = 0;
            return true;
        }
    return false;
}

static const prelude_part *find_part(const prelude_set *set, const char *name, char type[16])
{
    int count;
    const prelude_part *parts = set->parts(&count);
    for (int i = 0; i < count; i++)
        if (name_matches(name, &parts[i], type)) return &parts[i];
    return NULL;
}

static bool other_text(const char *name, text *needs, text *out);

static prelude_part parts_for_c[PRELUDE_PARTS_MOST];
static int part_count;

static void read_parts(void)
{
    part_count = prelude_read((const char *)prelude_c_files, parts_for_c, COUNT(parts_for_c));
}

static const prelude_part *all_parts(int *count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_parts);
    *count = part_count;
    return parts_for_c;
}

static const prelude_set set_for_c = {all_parts, variable, other_text};

/* `exp_f64x16` from `exp_f64x8`: the two halves. */
static bool halves_text(const char *name, text *needs, text *out)
{
    char narrow[64], type[16];
    size_t length = strlen(name);
    if (length < 8 || length > 60 || strcmp(name + length - 7, "_f64x16")) return false;
    snprintf(narrow, sizeof(narrow), "%.*s_f64x8", (int)length - 7, name);
    if (!find_part(&set_for_c, narrow, type)) return false;
    static const char *const two[] = {"pow_f64x8", "min_f64x8", "max_f64x8", "mod_f64x8"};
    int count = strcmp(narrow, "fma_f64x8") ? 1 : 3;
    for (int i = 0; i < COUNT(two); i++)
        if (!strcmp(narrow, two[i])) count = 2;
    static const char *const parameters[] = {"", "f64x16 a", "f64x16 a, f64x16 b", "f64x16 a, f64x16 b, f64x16 c"};
    static const char *const pairs[] = {"", "x = {a}", "x = {a}, y = {b}", "x = {a}, y = {b}, z = {c}"};
    static const char *const halves[] = {"", "x.half[h]", "x.half[h], y.half[h]", "x.half[h], y.half[h], z.half[h]"};
    text_add(needs, narrow);
    text_print(out,
               "INLINE f64x16 %s(%s)\n{\n    union { f64x16 whole; f64x8 half[2]; } %s;\n"
               "    for (int h = 0; h < 2; h++) x.half[h] = %s(%s);\n    return x.whole;\n}\n",
               name, parameters[count], pairs[count], narrow, halves[count]);
    return true;
}

static bool other_text(const char *name, text *needs, text *out)
{
    return prelude_convert(name, needs, out) || halves_text(name, needs, out);
}

typedef struct job {
    const prelude_set *set;
    arena *memory;
    map *done;
    text *out;
    const char *unknown;
} job;

static bool emit_name(job *j, const char *name);

static bool emit_needs(job *j, const text *needs)
{
    const char *at = text_get(needs), *end = at + strlen(at);
    bool good = true;
    for (prelude_span word; good && prelude_word(&at, end, &word);)
        good = emit_name(j, arena_copy_text(j->memory, word.start, word.length));
    return good;
}

static bool emit_name(job *j, const char *name)
{
    if (map_get(j->done, name)) return true;
    map_set(j->done, name, j);
    char type[16];
    text needs = {0}, body = {0};
    bool good = true;
    const prelude_part *part = find_part(j->set, name, type);
    if (part) {
        expand(j->set, part->needs, type, &needs);
        expand(j->set, part->text, type, &body);
    } else {
        good = j->set->other(name, &needs, &body);
        if (!good) j->unknown = name;
    }
    if (good && emit_needs(j, &needs)) {
        text_add(j->out, text_get(&body));
    } else {
        good = false;
    }
    text_free(&needs);
    text_free(&body);
    return good;
}

static void emit_types(text *out)
{
    static const struct {
        const char *type, *c;
        int size_bytes;
    } rows[] = {{"f32", "float", 4},        {"f64", "double", 8},
                {"i8", "signed char", 1},   {"i16", "short", 2},
                {"i32", "int", 4},          {"i64", "long", 8},
                {"u8", "unsigned char", 1}, {"u16", "unsigned short", 2},
                {"u32", "unsigned int", 4}, {"u64", "unsigned long", 8}};
    for (int lanes = 16; lanes >= 8; lanes /= 2)
        for (int i = 0; i < COUNT(rows); i++) {
            text_print(out, "typedef %s %sx%d __attribute__((vector_size(%d)));\n", rows[i].c, rows[i].type, lanes,
                       lanes * rows[i].size_bytes);
            text_print(out, "typedef %s %sx%d_u __attribute__((vector_size(%d), aligned(%d), may_alias));\n", rows[i].c,
                       rows[i].type, lanes, lanes * rows[i].size_bytes, rows[i].size_bytes);
        }
    text_add(out, "typedef float f32x4 __attribute__((vector_size(16)));\n"
                  "typedef i32x16 mask16;\n"
                  "#define INLINE static inline __attribute__((always_inline, unused))\n"
                  "#define OUTLINE static __attribute__((noinline, unused))\n"
                  "#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)\n"
                  "#define MASK_REGISTERS\n"
                  "#endif\n");
}

bool prelude_assemble(const prelude_set *set, const char *const *names, int count, text *out, const char **unknown)
{
    arena *memory = arena_new();
    job j = {set, memory, map_new(memory), out, NULL};
    bool good = true;
    for (int i = 0; i < count && good; i++) {
        good = emit_name(&j, names[i]);
        if (!good && unknown) {
            *unknown = names[i]; /* the caller's own words outlive this call, a dependency's would not */
        }
    }
    arena_free(memory);
    return good;
}

bool prelude_emit(const char *const *names, int count, text *out, const char **unknown)
{
    emit_types(out);
    return prelude_assemble(&set_for_c, names, count, out, unknown);
}

uint64_t prelude_dot_scratch_bytes(int64_t m, int64_t n)
{
    /* As prelude/c/dot.h and gather.h lay it out, for the largest element (8 bytes) and either size of kernel. */
    uint64_t rows = (uint64_t)MINIMUM(m, 264) + 6;
    uint64_t packed = 6 * 64 + 2 * rows * (256 + 16) + 2 * 64 * 128;
    uint64_t tables = 4 * (rows + (uint64_t)n + 2 * 256);
    uint64_t gathered = 6 * 64 + rows * (256 + 16) + 64 * 256 + 16 + tables;
    uint64_t lines = (rows + 16) * (uint64_t)n + 256 * 16 + (8 + 3) * (uint64_t)n + tables;
    return 8 * (MAXIMUM(MAXIMUM(packed, (uint64_t)n), MAXIMUM(gathered, lines)) + 16);
}
