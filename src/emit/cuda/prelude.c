/*
 * Puts the CUDA prelude together. In: names of functions. Out: text with those functions, each after what it needs.
 * Templates over types are in prelude/cuda; conversions, bitcasts and vectors of memory are written by rule.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/prelude_parts.h"

#include <string.h>

typedef struct type_row {
    const char *type, *value, *memory, *unsigned_type, *signed_type, *bits, *shuffled, *suffix, *word;
    const char *least, *greatest;
} type_row;

static const char least_f32[] = "real_f32((int)0xff800000)", greatest_f32[] = "real_f32(0x7f800000)";

static const type_row type_rows[] = {
    {"f32", "float", "float", "unsigned", "int", "32", "float", "f", "unsigned", least_f32, greatest_f32},
    {"tf32", "float", "float", "unsigned", "int", "32", "float", "f", "unsigned", least_f32, greatest_f32},
    {"f64", "double", "double", "unsigned long", "long", "64", "double", "", "unsigned long long",
     "real_f64((long)0xfff0000000000000)", "real_f64(0x7ff0000000000000)"},
    {"f16", "float", "unsigned short", "unsigned short", "short", "16", "float", "f", "", least_f32, greatest_f32},
    {"bf16", "float", "unsigned short", "unsigned short", "short", "16", "float", "f", "", least_f32, greatest_f32},
    {"f8e4m3", "float", "unsigned char", "unsigned char", "signed char", "8", "float", "f", "", "-448.0f", "448.0f"},
    {"i8", "signed char", "signed char", "unsigned char", "signed char", "8", "int", "", "", "-128", "127"},
    {"i16", "short", "short", "unsigned short", "short", "16", "int", "", "", "-32768", "32767"},
    {"i32", "int", "int", "unsigned", "int", "32", "int", "", "unsigned", "(-2147483647 - 1)", "2147483647"},
    {"i64", "long", "long", "unsigned long", "long", "64", "long long", "", "unsigned long long",
     "(-9223372036854775807 - 1)", "9223372036854775807"},
    {"u8", "unsigned char", "unsigned char", "unsigned char", "signed char", "8", "int", "", "", "0", "255"},
    {"u16", "unsigned short", "unsigned short", "unsigned short", "short", "16", "int", "", "", "0", "65535"},
    {"u32", "unsigned", "unsigned", "unsigned", "int", "32", "int", "", "unsigned", "0", "4294967295u"},
    {"u64", "unsigned long", "unsigned long", "unsigned long", "long", "64", "long long", "", "unsigned long long", "0",
     "18446744073709551615u"},
    {"bool", "bool", "unsigned char", "unsigned char", "signed char", "8", "int", "", "", "0", "1"},
};

static const type_row *row_of(const char *type, size_t length)
{
    for (int i = 0; i < COUNT(type_rows); i++)
        if (strlen(type_rows[i].type) == length && !strncmp(type_rows[i].type, type, length)) return &type_rows[i];
    return NULL;
}

static const char *identity(const char *fold, const type_row *row)
{
    if (!strncmp(fold, "prod", 4) || !strncmp(fold, "all", 3)) return "1";
    if (!strncmp(fold, "max", 3)) return row->least;
    return strncmp(fold, "min", 3) ? "0" : row->greatest;
}

static const char *variable(const char *type, char letter)
{
    const char *line = strchr(type, '_'), *own = line ? line + 1 : type;
    const type_row *row = row_of(own, strlen(own));
    if (!row) return NULL;
    switch (letter) {
    case 'y': return row->type;
    case 'v': return row->value;
    case 'm': return row->memory;
    case 'u': return row->unsigned_type;
    case 'i': return row->signed_type;
    case 'b': return row->bits;
    case 's': return row->shuffled;
    case 'f': return row->suffix;
    case 'w': return row->word;
    case 'c': return row->type[0] == 'f' && row->bits[0] == '6' ? "d" : "f";
    case 'e': return row->bits[0] == '1' ? "unsigned short" : "unsigned";
    case 'k': return !strcmp(row->type, "f64") ? "double" : row->value[0] == 'f' ? "float" : "int";
    case 'g': return strncmp(type, "max", 3) ? "<" : ">";
    case 'o': return identity(type, row);
    default: return NULL;
    }
}

static bool is_float(const type_row *row)
{
    return row->value[0] == 'f' || row->value[0] == 'd';
}

/* bitcast_<from>_<to> between types of equal width. Floats below 32 bits are rounded again: their registers are wider. */
static bool bitcast_text(const char *name, text *needs, text *out)
{
    if (strncmp(name, "bitcast_", 8)) return false;
    const char *from_word = name + 8, *to_word = strchr(from_word, '_');
    if (!to_word) return false;
    const type_row *from = row_of(from_word, (size_t)(to_word - from_word)),
                   *to = row_of(to_word + 1, strlen(to_word + 1));
    if (!from || !to || strcmp(from->bits, to->bits)) return false;
    const char *bits = "x";
    char inner[64];
    if (is_float(from)) {
        bool half = strlen(from->memory) > strlen("double"); /* an unsigned integer */
        text_print(needs, half ? "f32_to_%s " : "real_%s ", from->type);
        snprintf(inner, sizeof(inner), half ? "f32_to_%s(x)" : "bits_%s(x)", from->type);
        bits = inner;
    }
    text_print(out, "INLINE %s %s(%s x) { return ", to->value, name, from->value);
    if (!strcmp(to->type, "bool"))
        text_print(out, "(%s) != 0; }\n", bits);
    else if (is_float(to)) {
        bool half = strlen(to->memory) > strlen("double");
        text_print(needs, half ? "%s_to_f32" : "real_%s", to->type);
        text_print(out, half ? "%s_to_f32((%s)%s); }\n" : "real_%s((%s)%s); }\n", to->type,
                   half ? to->unsigned_type : to->signed_type, bits);
    } else {
        text_print(out, "(%s)%s; }\n", to->value, bits);
    }
    return true;
}

static bool other_text(const char *name, text *needs, text *out)
{
    size_t length = strlen(name);
    if (length > 3 && !strcmp(name + length - 3, "x16") && !strncmp(name, "convert_", 8)) return false;
    return prelude_convert(name, needs, out) || bitcast_text(name, needs, out) || cuda_memory_text(name, needs, out) ||
           cuda_phase_text(name, needs, out);
}

static prelude_part parts[PRELUDE_PARTS_MOST];
static int part_count;

static void read_parts(void)
{
    part_count = prelude_read((const char *)prelude_cuda_files, parts, COUNT(parts));
}

static const prelude_part *all_parts(int *count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_parts);
    *count = part_count;
    return parts;
}

bool prelude_cuda_emit(const char *const *names, int count, text *out, const char **unknown)
{
    static const prelude_set set = {all_parts, variable, other_text};
    text_add(out, "#define INLINE static __device__ __forceinline__\n");
    return prelude_assemble(&set, names, count, out, unknown);
}
