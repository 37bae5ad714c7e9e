/*
 * The declaration of a raw kernel against the function of its text. In: parameters and text. Out: the function, or E508
 * in the words of the .qn file. Types are compared by their spellings, after macros of constants and arguments of a
 * template have been put in.
 * SPDX-License-Identifier: MIT
 */
#include "emit/raw/raw.h"

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
    [DT_F8E4M3] = {"unsigned char", "uint8_t", "__nv_fp8_e4m3", "__nv_fp8_storage_t"},
};

static bool type_fits(const char *found, dtype elem, bool array)
{
    for (int i = 0; i < 8 && spellings[elem][i]; i++) {
        size_t length = strlen(spellings[elem][i]);
        if (!strncmp(found, spellings[elem][i], length) && !strcmp(found + length, array ? " *" : "")) return true;
    }
    return false;
}

/* Wider words over an array: its own type by two or four, words of 8 and 16 bytes, or nothing said. */
static bool is_wide(const char *found, dtype elem)
{
    static const char *const any[] = {"void",  "float2", "float4",  "int2",      "int4",
                                      "uint2", "uint4",  "double2", "longlong2", "ulonglong2"};
    static const char *const own[DT_COUNT][4] = {
        [DT_F32] = {"float3"},
        [DT_F16] = {"half2", "__half2"},
        [DT_BF16] = {"__nv_bfloat162", "nv_bfloat162"},
        [DT_I8] = {"char2", "char4"},
        [DT_U8] = {"uchar2", "uchar4", "uchar3"},
        [DT_I16] = {"short2", "short4"},
        [DT_U16] = {"ushort2", "ushort4"},
        [DT_I64] = {"long2", "long4"},
        [DT_F64] = {"double4"},
    };
    size_t length = strlen(found);
    if (length < 3 || strcmp(found + length - 2, " *")) return false;
    for (int i = 0; i < COUNT(any); i++)
        if (strlen(any[i]) == length - 2 && !strncmp(found, any[i], length - 2)) return true;
    for (int i = 0; i < 4 && own[elem][i]; i++)
        if (strlen(own[elem][i]) == length - 2 && !strncmp(found, own[elem][i], length - 2)) return true;
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

/* Host code that came along with a kernel: the first such words, and their line. */
static const char *host_words(const char *source, int *line)
{
    static const char *const signs[] = {
        "<<<",       "torch::",   "cudaMalloc", "cudaMemcpy", "cudaDeviceSynchronize", "PYBIND11_MODULE",
        "int main(", "int main ("};
    *line = 0;
    for (const char *c = source, *next; *(next = raw_skip_blank(c));) {
        for (; c < next; c++) *line += *c == '\n';
        for (int i = 0; i < COUNT(signs); i++)
            if (!strncmp(c, signs[i], strlen(signs[i]))) return signs[i];
        if (*c == '"') {
            for (c++; *c && *c != '"' && *c != '\n';) c += c[0] == '\\' && c[1] ? 2 : 1;
            c += *c == '"';
        } else if (raw_is_name(*c)) {
            while (raw_is_name(*c)) c++;
        } else {
            c++;
        }
    }
    return NULL;
}

static qn_status find(const tile_kernel *k, raw_function *out, qn_error *error)
{
    const char *at = k->raw_source, *file = k->file ? k->file : "?", *name;
    size_t length = function_name(k, &name);
    while (raw_next_function(&at, out))
        if (out->name.length == length && !memcmp(out->name.start, name, length)) break;
    if (!out->name.length || out->name.length != length || memcmp(out->name.start, name, length))
        return error_diagnose(error, QN_BAD_SOURCE, E508, file, 0, 0,
                              "the text of `%s %s` defines no function %.*s\n    give the function the kernel's name",
                              k->raw_language, k->name, (int)length, name);
    if (!strcmp(k->raw_language, "c")) return QN_OK;
    int line;
    const char *host = host_words(k->raw_source, &line);
    if (host)
        return error_diagnose(error, QN_BAD_SOURCE, E508, k->raw_path ? k->raw_path : file, k->raw_line + line, 0,
                              "the text of `cuda %s` has host code: `%s`\n    keep the `__global__` and `__device__` "
                              "functions; `launch (...) block (...)` launches, `quern run` and the C library copy",
                              k->name, host);
    if (!out->global.length)
        return error_diagnose(error, QN_BAD_SOURCE, E508, file, 0, 0,
                              "the function %.*s of `cuda %s` is not a kernel\n    write `__global__` before "
                              "it",
                              (int)length, name, k->name);
    if (!out->template_count == !k->raw_instance) return QN_OK;
    if (k->raw_instance)
        return error_diagnose(error, QN_BAD_SOURCE, E508, file, 0, 0,
                              "`cuda %s` gives template arguments, but the function %.*s is not a template\n"
                              "    remove them",
                              k->name, (int)length, name);
    return error_diagnose(error, QN_BAD_SOURCE, E508, file, 0, 0,
                          "the function %s of `cuda %s` is a template\n    name its arguments: `cuda "
                          "%s<float>(...)`",
                          k->name, k->name, k->name);
}

/* Kinds of numbers that a call converts into each other: integers of any width, floats of any width. */
static bool number_fits(const char *type, dtype elem)
{
    dtype found;
    bool array;
    if (!raw_type_of(type, &found, &array) || array) return false;
    return dtype_is_float(found) == dtype_is_float(elem);
}

/* One parameter of the text for one of the kernel; loose: a pointer that needs a cast of its own. A template's own
 * arguments are deduced from what is passed, so nothing is cast there. */
static bool parameter_fits(const tile_kernel *k, const tile_param *p, const raw_parameter *found, const char *type,
                           bool *loose)
{
    *loose = false;
    if (!is_array(p)) return number_fits(type, p->elem);
    bool cuda = !strcmp(k->raw_language, "cuda") && !k->raw_instance, same = type_fits(type, p->elem, true);
    bool wide = p->elem == DT_I64 || p->elem == DT_U64; /* `long` or `long long`: as the text's headers have it */
    *loose = cuda && (!same || wide || (p->kind == PARAM_IN && !found->is_const));
    return same || (cuda && is_wide(type, p->elem));
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
        good =
            p && count < passed && !used[which] && parameter_fits(k, p, &parameter, text_get(&type), &f->loose[count]);
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
            bool array = p && is_array(p), ignored, *loose = found < COUNT(out->loose) ? &out->loose[found] : &ignored;
            if (p ? !parameter_fits(k, p, &parameter, text_get(&type), loose)
                  : !type_fits(text_get(&type), elem, array))
                status = error_diagnose(error, QN_BAD_SOURCE, E508, file, p ? p->line : 0, p ? p->column : 0,
                                        "declared parameter %d (%s) is `%s%s`, source has `%s`\n    make the "
                                        "declaration and the %s text agree",
                                        found + 1, p ? p->name : "a program number", spellings[elem][0],
                                        array ? " *" : "", text_get(&type), words_of(k));
        }
        found++;
        if (*c == ',') c = raw_skip_blank(c + 1);
    }
    text_free(&parameter.type);
    text_free(&type);
    if (status == QN_OK && found != expected)
        status = error_diagnose(error, QN_BAD_SOURCE, E508, file, 0, 0,
                                "`%s %s` declares %d parameters (arrays and scalars, then extents as "
                                "long%s), its text has %d\n"
                                "    make the declaration and the %s text agree",
                                k->raw_language, k->name, expected, extra ? ", then program numbers as long" : "",
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
    if (!extra && match_names(k, out)) return QN_OK;
    memset(out->loose, 0, sizeof(out->loose));
    qn_status status = match_places(k, extra, out, &wrong);
    if (status == QN_OK) return QN_OK;
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
