/*
 * Puts the prelude together. In: names of functions. Out: C text with the vector types and those functions, each after
 * what it needs, each once.
 * A name is looked up among the parts (templates over types, see prelude_parts.h); conversions and the f64x16 forms of
 * functions that exist on f64x8 are written here by rule.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_parts.h"

#include <string.h>

typedef struct type_row {
    const char *type, *c, *value, *integer, *signed_name, *unsigned_name, *bits;
    const char *instruction, *suffix, *operands, *round, *mantissa, *bias;
    const char *sum, *sum_c; /* the type that dot adds up in */
} type_row;

static const type_row type_rows[] = {
    {"f32", "float", "float", "int", "i32", "u32", "32", "ss", "f", "%1, %1, ", "0x1p23f", "23", "127", "f32", "float"},
    {"f64", "double", "double", "long", "i64", "u64", "64", "sd", "", "%1, %1, ", "0x1p52", "52", "1023", "f64",
     "double"},
    {"f32x16", "float", "f32x16", "i32x16", "i32", "u32", "32", "ps", "f", "%1, ", "0x1p23f", "23", "127", "", ""},
    {"f64x8", "double", "f64x8", "i64x8", "i64", "u64", "64", "pd", "", "%1, ", "0x1p52", "52", "1023", "", ""},
    {"i8", "signed char", "signed char", "signed char", "i8", "u8", "8", "", "", "", "", "", "", "i32", "int"},
    {"i16", "short", "short", "short", "i16", "u16", "16", "", "", "", "", "", "", "", ""},
    {"i32", "int", "int", "int", "i32", "u32", "32", "", "", "", "", "", "", "", ""},
    {"i64", "long", "long", "long", "i64", "u64", "64", "", "", "", "", "", "", "", ""},
    {"u8", "unsigned char", "unsigned char", "signed char", "i8", "u8", "8", "", "", "", "", "", "", "i32", "int"},
    {"u16", "unsigned short", "unsigned short", "short", "i16", "u16", "16", "", "", "", "", "", "", "", ""},
    {"u32", "unsigned int", "unsigned int", "int", "i32", "u32", "32", "", "", "", "", "", "", "", ""},
    {"u64", "unsigned long", "unsigned long", "long", "i64", "u64", "64", "", "", "", "", "", "", "", ""},
    {"f16", "unsigned short", "", "", "", "", "16", "", "", "", "", "", "", "f32", "float"},
    {"bf16", "unsigned short", "", "", "", "", "16", "", "", "", "", "", "", "f32", "float"},
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
    default: return NULL;
    }
}

static void expand(const prelude_set *set, const char *template, const char *type, text *out)
{
    for (const char *p = template; *p;) {
        size_t plain = strcspn(p, "$");
        text_add_bytes(out, p, plain);
        p += plain;
        if (!*p) break;
        const char *words = p[1] == 't' ? type : p[1] ? set->variable(type, p[1]) : NULL;
        text_add(out, words ? words : "$");
        p += words ? 2 : 1;
    }
}

/* Whether `name` is `pattern` with $t (at most once) replaced by a word of `types`; the word is copied to `type`. */
static bool name_matches(const char *name, const char *pattern, const char *types, char type[16])
{
    const char *hole = strstr(pattern, "$t");
    *type = 0;
    if (!hole) return !strcmp(name, pattern);
    size_t before = (size_t)(hole - pattern), length = strlen(name), after = strlen(hole + 2);
    if (length <= before + after || strncmp(name, pattern, before)) return false;
    if (strcmp(name + length - after, hole + 2)) return false;
    size_t middle = length - before - after;
    for (const char *word = types; *word;) {
        size_t size = strcspn(word, " ");
        if (size == middle && size < 16 && !strncmp(word, name + before, size)) {
            memcpy(type, word, size);
            type[size] = 0;
            return true;
        }
        word += size + (word[size] == ' ');
    }
    return false;
}

static const prelude_part *find_part(const prelude_set *set, const char *name, char type[16])
{
    for (int i = 0; set->tables[i]; i++)
        for (const prelude_part *p = set->tables[i]; p->name; p++)
            if (name_matches(name, p->name, p->types, type)) return p;
    return NULL;
}

static bool other_text(const char *name, text *needs, text *out);

static const prelude_part *const tables_for_c[] = {prelude_core_parts, prelude_memory_parts,     prelude_math_parts,
                                                   prelude_exp_parts,  prelude_activation_parts, prelude_tanh_parts,
                                                   prelude_dot_parts,  prelude_gather_parts,     NULL};
static const prelude_set set_for_c = {tables_for_c, variable, other_text};

/* exp_f64x16 from exp_f64x8: the two halves. */
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

static bool emit_needs(job *j, const char *needs)
{
    bool good = true;
    while (*needs && good) {
        size_t size = strcspn(needs, " ");
        if (size) good = emit_name(j, arena_copy_text(j->memory, needs, size));
        needs += size + (needs[size] == ' ');
    }
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
    if (good && emit_needs(j, text_get(&needs))) {
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
