/*
 * The casts of the language as C text: convert_<from>_<to> and convert_<from>_<to>x16. In: a name. Out: the function.
 * Float to integer truncates, saturates and makes NaN 0; integer to integer wraps; to bool is x != 0; to f16, bf16 and
 * f8e4m3 rounds once to nearest even and stays a float in registers.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_parts.h"

#include <string.h>

typedef struct number_row {
    const char *type, *c;
    int bits;
    char kind;                      /* f, i, u, b */
    const char *low, *high, *above; /* integers: as C constants; above: the first float that is too large */
} number_row;

static const number_row number_rows[] = {
    {"f32", "float", 32, 'f', "", "", ""},
    {"f64", "double", 64, 'f', "", "", ""},
    {"i8", "signed char", 8, 'i', "-128", "127", "0x1p7"},
    {"i16", "short", 16, 'i', "-32768", "32767", "0x1p15"},
    {"i32", "int", 32, 'i', "(-2147483647 - 1)", "2147483647", "0x1p31"},
    {"i64", "long", 64, 'i', "(-9223372036854775807 - 1)", "9223372036854775807", "0x1p63"},
    {"u8", "unsigned char", 8, 'u', "0", "255", "0x1p8"},
    {"u16", "unsigned short", 16, 'u', "0", "65535", "0x1p16"},
    {"u32", "unsigned int", 32, 'u', "0", "4294967295u", "0x1p32"},
    {"u64", "unsigned long", 64, 'u', "0", "18446744073709551615u", "0x1p64"},
    {"bool", "int", 8, 'b', "", "", ""},
};

static const number_row *row_of(const char *type, size_t length)
{
    for (int i = 0; i < COUNT(number_rows); i++)
        if (strlen(number_rows[i].type) == length && !strncmp(number_rows[i].type, type, length))
            return &number_rows[i];
    return NULL;
}

/* To f16, bf16 or f8e4m3. Everything but f32 goes through a double, whose step to f32 rounds to odd, so that only the last
 * rounding counts. */
static bool to_short_float(const number_row *from, const char *to, bool wide, text *needs, text *out)
{
    const char *x16 = wide ? "x16" : "";
    bool is_float = !strcmp(from->type, "f32");
    if (is_float) {
        text_print(needs, "f32_to_%s%s %s_to_f32%s", to, x16, to, x16);
        text_print(out, "INLINE %s convert_f32_%s%s(%s x) { return %s_to_f32%s(f32_to_%s%s(x)); }\n",
                   wide ? "f32x16" : "float", to, x16, wide ? "f32x16" : "float", to, x16, to, x16);
        return true;
    }
    if (wide) {
        text_print(needs, "convert_%s_%s", from->type, to);
        text_print(out,
                   "INLINE f32x16 convert_%s_%sx16(%s%s x)\n{\n    f32x16 r;\n"
                   "    for (int k = 0; k < 16; k++) r[k] = convert_%s_%s(x[k]%s);\n    return r;\n}\n",
                   from->type, to, from->kind == 'b' ? "mask16" : from->type, from->kind == 'b' ? "" : "x16",
                   from->type, to, from->kind == 'b' ? " & 1" : "");
        return true;
    }
    if (strcmp(from->type, "f64")) {
        text_print(needs, "convert_f64_%s", to);
        text_print(out, "INLINE float convert_%s_%s(%s x) { return convert_f64_%s((double)x); }\n", from->type, to,
                   from->c, to);
        return true;
    }
    text_print(needs, "f32_to_%s %s_to_f32 real_f32 abs_f64", to, to);
    text_print(out,
               "INLINE float convert_f64_%s(double x)\n{\n    float y = (float)x;\n"
               "    if (y == x || x != x) return %s_to_f32(f32_to_%s(y));\n"
               "    /* Round to odd: toward zero, and the last bit set because something was cut off. */\n"
               "    int b = bits_f32(y);\n"
               "    if (abs_f64((double)y) > abs_f64(x)) b--;\n"
               "    return %s_to_f32(f32_to_%s(real_f32(b | 1)));\n}\n",
               to, to, to, to, to);
    return true;
}

static void scalar_text(const number_row *from, const number_row *to, text *out)
{
    text_print(out, "INLINE %s convert_%s_%s(%s x)", to->c, from->type, to->type, from->c);
    if (to->kind == 'b')
        text_add(out, " { return x != 0; }\n");
    else if (from->kind == 'f' && to->kind != 'f')
        text_print(out, " { return x != x ? 0 : x <= (%s)%s ? %s : x >= (%s)%s ? %s : (%s)x; }\n", from->c, to->low,
                   to->low, from->c, to->above, to->high, to->c);
    else
        text_print(out, " { return (%s)x; }\n", to->c);
}

static void vector_text(const number_row *from, const number_row *to, text *needs, text *out)
{
    const char *parameter = from->kind == 'b' ? "mask16" : from->type, *x16 = from->kind == 'b' ? "" : "x16";
    if (to->kind == 'b' && from->kind == 'b') {
        text_add(out, "INLINE mask16 convert_bool_boolx16(mask16 x) { return x; }\n");
    } else if (to->kind == 'b') {
        text_print(needs, "ne_%sx16", from->type);
        text_print(out, "INLINE mask16 convert_%s_boolx16(%sx16 x) { return ne_%sx16(x, (%sx16){0}); }\n", from->type,
                   from->type, from->type, from->type);
    } else if (from->kind == 'f' && to->kind != 'f' && (to->bits < 32 || !strcmp(to->type, "i32"))) {
        /* Clamped as floats, then through i32, all in registers; the top of i32 is no float, so it is set after. */
        const char *t = from->type;
        bool top = to->bits == 32;
        text_print(needs, "select_%sx16 lt_%sx16 gt_%sx16 eq_%sx16 splat_%sx16 select_i32x16", t, t, t, t, t);
        text_print(out,
                   "INLINE %sx16 convert_%s_%sx16(%sx16 x)\n{\n"
                   "    %sx16 low = splat_%sx16((%s)%s), high = splat_%sx16((%s)%s);\n"
                   "    mask16 over = gt_%sx16(x, high);\n"
                   "    %sx16 y = select_%sx16(lt_%sx16(x, low), low, select_%sx16(over, high, x));\n"
                   "    y = select_%sx16(eq_%sx16(x, x), y, (%sx16){0});\n"
                   "    i32x16 r = __builtin_convertvector(y, i32x16);\n",
                   to->type, t, to->type, t, t, t, from->c, to->low, t, from->c,
                   top ? (from->bits == 32 ? "2147483520" : "2147483647") : to->high, t, t, t, t, t, t, t, t);
        if (top)
            text_add(out, "    return select_i32x16(over, (i32x16){0} + 2147483647, r);\n}\n");
        else
            text_print(out, "    return __builtin_convertvector(r, %sx16);\n}\n", to->type);
    } else if (from->kind == 'f' && to->kind != 'f') {
        text_print(needs, "convert_%s_%s", from->type, to->type);
        text_print(out,
                   "INLINE %sx16 convert_%s_%sx16(%sx16 x)\n{\n    %sx16 r;\n"
                   "    for (int k = 0; k < 16; k++) r[k] = convert_%s_%s(x[k]);\n    return r;\n}\n",
                   to->type, from->type, to->type, from->type, to->type, from->type, to->type);
    } else {
        text_print(out, "INLINE %sx16 convert_%s_%sx16(%s%s x) { return __builtin_convertvector(x%s, %sx16); }\n",
                   to->type, from->type, to->type, parameter, x16, from->kind == 'b' ? " & 1" : "", to->type);
    }
}

bool prelude_convert(const char *name, text *needs, text *out)
{
    if (strncmp(name, "convert_", 8)) return false;
    const char *from_word = name + 8, *to_word = strchr(from_word, '_');
    if (!to_word) return false;
    const number_row *from = row_of(from_word, (size_t)(to_word - from_word));
    to_word++;
    size_t length = strlen(to_word);
    bool wide = length > 3 && !strcmp(to_word + length - 3, "x16");
    if (wide) length -= 3;
    if (!from) return false;
    static const char *const narrow[] = {"f16", "bf16", "f8e4m3"};
    for (int i = 0; i < COUNT(narrow); i++)
        if (strlen(narrow[i]) == length && !strncmp(to_word, narrow[i], length))
            return to_short_float(from, narrow[i], wide, needs, out);
    const number_row *to = row_of(to_word, length);
    if (!to) return false;
    if (wide)
        vector_text(from, to, needs, out);
    else
        scalar_text(from, to, out);
    return true;
}
