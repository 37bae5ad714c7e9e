/*
 * The declaration of a raw kernel against the function of its text. In: parameters and text. Out: the function, or E508
 * in the words of the .qn file. Types are compared by their spellings, after macros of constants and arguments of a
 * template have been put in.
 * SPDX-License-Identifier: MIT
 */
#include "emit/raw.h"

#include <string.h>

/* Several spellings of one type, the first is ours. */
static const char *const spellings[DT_COUNT][8] = {
    [DT_F32] = {"float"},
    [DT_F64] = {"double"},
    [DT_F16] = {"half", "f16", "_Float16", "unsigned short", "uint16_t", "__half"},
    [DT_BF16] = {"bfloat", "bf16", "__bf16", "unsigned short", "uint16_t", "__nv_bfloat16", "nv_bfloat16"},
    [DT_I8] = {"signed char", "int8_t", "char"},
    [DT_I16] = {"short", "int16_t", "short int"},
    [DT_I32] = {"int", "int32_t", "signed int", "signed"},
    [DT_I64] = {"long", "int64_t", "long int", "long long", "ptrdiff_t", "ssize_t", "intptr_t", "long long int"},
    [DT_U8] = {"unsigned char", "uint8_t"},
    [DT_U16] = {"unsigned short", "uint16_t", "unsigned short int"},
    [DT_U32] = {"unsigned int", "uint32_t", "unsigned"},
    [DT_U64] = {"unsigned long", "uint64_t", "unsigned long int", "unsigned long long", "size_t", "uintptr_t"},
    [DT_BOOL] = {"bool", "_Bool"},
};

static bool type_fits(const char *found, dtype elem, bool array)
{
    for (int i = 0; i < 8 && spellings[elem][i]; i++) {
        size_t length = strlen(spellings[elem][i]);
        if (!strncmp(found, spellings[elem][i], length) && !strcmp(found + length, array ? " *" : "")) return true;
    }
    return false;
}

bool raw_type_of(const char *type, dtype *elem, bool *array)
{
    for (int t = 0; t < DT_COUNT; t++)
        for (int pointer = 0; pointer < 2; pointer++)
            if (type_fits(type, (dtype)t, pointer)) {
                *elem = (dtype)t;
                *array = pointer;
                return true;
            }
    return false;
}

static bool is_array(const tile_param *p)
{
    return p->kind != PARAM_SCALAR && p->kind != PARAM_EXTENT;
}

static const char *words_of(const tile_kernel *k)
{
    return strcmp(k->raw_language, "c") ? "CUDA" : "C";
}

/* "gemm" of "gemm<float, 16>", else the kernel's name. */
static size_t function_name(const tile_kernel *k, const char **name)
{
    *name = k->raw_instance ? k->raw_instance : k->name;
    return k->raw_instance ? strcspn(k->raw_instance, "<") : strlen(k->name);
}

static qn_status find(const tile_kernel *k, raw_function *out, qn_error *error)
{
    const char *at = k->raw_source, *file = k->file ? k->file : "?", *name;
    size_t length = function_name(k, &name);
    while (raw_next_function(&at, out))
        if (out->name.length == length && !memcmp(out->name.start, name, length)) break;
    if (!out->name.length || out->name.length != length || memcmp(out->name.start, name, length))
        return error_set(
            error, QN_BAD_SOURCE,
            "%s: error E508: the text of `%s %s` defines no function %.*s\n    give the function the kernel's name",
            file, k->raw_language, k->name, (int)length, name);
    if (!strcmp(k->raw_language, "c")) return QN_OK;
    if (!out->global.length)
        return error_set(
            error, QN_BAD_SOURCE,
            "%s: error E508: the function %.*s of `cuda %s` is not a kernel\n    write `__global__` before "
            "it",
            file, (int)length, name, k->name);
    if (!out->template_count == !k->raw_instance) return QN_OK;
    if (k->raw_instance)
        return error_set(error, QN_BAD_SOURCE,
                         "%s: error E508: `cuda %s` gives template arguments, but the function %.*s is not a template\n"
                         "    remove them",
                         file, k->name, (int)length, name);
    return error_set(error, QN_BAD_SOURCE,
                     "%s: error E508: the function %s of `cuda %s` is a template\n    name its arguments: `cuda "
                     "%s<float>(...)`",
                     file, k->name, k->name, k->name);
}

/* Kinds of numbers that a call converts into each other: integers of any width, floats of any width. */
static bool number_fits(const char *type, dtype elem)
{
    dtype found;
    bool array;
    if (!raw_type_of(type, &found, &array) || array) return false;
    return dtype_is_float(found) == dtype_is_float(elem);
}

/* A text that was not written for Quern: its parameters are found by their names, in whatever order, and its numbers may
 * be narrower than ours. Every array must be there; an extent or a scalar that the text does without is not passed. */
static bool match_names(const tile_kernel *k, raw_function *f)
{
    raw_names names = {.constants = k->raw_constants, .function = f, .instance = k->raw_instance};
    raw_parameter parameter = {0};
    text type = {0};
    bool good = true, used[64] = {false};
    int count = 0, passed = k->param_count - k->raw_hidden;
    if (passed > COUNT(used)) return false;
    for (const char *c = raw_skip_blank(f->parameters); *c && *c != ')' && good;) {
        text_clear(&parameter.type);
        text_clear(&type);
        raw_read_parameter(&c, &parameter);
        raw_substitute(&names, (raw_span){text_get(&parameter.type), parameter.type.length}, &type);
        int which = 0;
        while (which < passed && (strlen(k->params[which].name) != parameter.name.length ||
                                  memcmp(k->params[which].name, parameter.name.start, parameter.name.length)))
            which++;
        const tile_param *p = which < passed ? &k->params[which] : NULL;
        good = p && count < passed && !used[which] &&
               (is_array(p) ? type_fits(text_get(&type), p->elem, true) : number_fits(text_get(&type), p->elem));
        if (!good) break;
        used[which] = true;
        f->order[count++] = which;
        if (*c == ',') c = raw_skip_blank(c + 1);
    }
    for (int i = 0; i < passed; i++) good = good && (used[i] || !is_array(&k->params[i]));
    text_free(&parameter.type);
    text_free(&type);
    f->order_count = good ? count : 0;
    return good;
}

static qn_status match_places(const tile_kernel *k, int extra, raw_function *out, qn_error *error)
{
    const char *file = k->file ? k->file : "?";
    int declared = k->param_count - k->raw_hidden, expected = declared + extra, found = 0;
    raw_names names = {.constants = k->raw_constants, .function = out, .instance = k->raw_instance};
    raw_parameter parameter = {0};
    text type = {0};
    qn_status status = QN_OK;
    for (const char *c = raw_skip_blank(out->parameters); *c && *c != ')' && status == QN_OK;) {
        text_clear(&parameter.type);
        text_clear(&type);
        raw_read_parameter(&c, &parameter);
        raw_substitute(&names, (raw_span){text_get(&parameter.type), parameter.type.length}, &type);
        if (!found && !strcmp(text_get(&type), "void")) break;
        if (found < expected) {
            const tile_param *p = found < declared ? &k->params[found] : NULL;
            dtype elem = p ? p->elem : DT_I64;
            bool array = p && is_array(p);
            if (!type_fits(text_get(&type), elem, array))
                status = error_set(
                    error, QN_BAD_SOURCE,
                    "%s:%d:%d: error E508: declared parameter %d (%s) is `%s%s`, source has `%s`\n    make the "
                    "declaration and the %s text agree",
                    file, p ? p->line : 0, p ? p->column : 0, found + 1, p ? p->name : "a program number",
                    spellings[elem][0], array ? " *" : "", text_get(&type), words_of(k));
        }
        found++;
        if (*c == ',') c = raw_skip_blank(c + 1);
    }
    text_free(&parameter.type);
    text_free(&type);
    if (status == QN_OK && found != expected)
        status = error_set(error, QN_BAD_SOURCE,
                           "%s: error E508: `%s %s` declares %d parameters (arrays and scalars, then extents as "
                           "long%s), its text has %d\n"
                           "    make the declaration and the %s text agree",
                           file, k->raw_language, k->name, expected, extra ? ", then program numbers as long" : "",
                           found, words_of(k));
    for (int i = 0; i < declared && i < COUNT(out->order); i++) out->order[i] = i;
    out->order_count = MINIMUM(declared, COUNT(out->order));
    return status;
}

qn_status raw_check_signature(const tile_kernel *k, int extra, raw_function *out, qn_error *error)
{
    *out = (raw_function){0};
    QN_TRY(find(k, out, error));
    qn_error wrong;
    qn_status status = match_places(k, extra, out, &wrong);
    if (status == QN_OK || (!extra && match_names(k, out))) return QN_OK;
    return error_set(error, status, "%s, or give the text's parameters the names of the declaration, in any order",
                     wrong.message);
}

void raw_put_undefines(const char *constants, text *out)
{
    for (const char *c = constants; c && (c = strstr(c, "#define ")); c++) {
        const char *name = c + 8;
        size_t length = 0;
        while (raw_is_name(name[length])) length++;
        text_print(out, "#undef %.*s\n", (int)length, name);
    }
}

/* The compiler's messages shall name the line of the file that the user wrote. */
void raw_put_line(const tile_kernel *k, text *out)
{
    const char *path = k->raw_path ? k->raw_path : k->name;
    text_add(out, "\n");
    emit_add_line(k->raw_path ? k->raw_line : 1, path, out);
}
