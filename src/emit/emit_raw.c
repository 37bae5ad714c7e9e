/*
 * Raw C kernels: the user's text inside the same ABI as a compiled kernel.
 *
 * In: parameters, a text and a name. Out: the text with its constants as macros, and after it one phase function that
 * calls NAME: arrays as pointers, scalars by value, extents as long, then the program numbers if it has a launch.
 * The text's own parameter list is read and compared with the declaration first (E508): no C compiler would say so in
 * the words of the .qn file.
 * SPDX-License-Identifier: MIT
 */
#include "emit/nest.h"
#include "emit/prelude.h"

#include <ctype.h>
#include <string.h>

/* ---- the signature in the text ---- */

static const char *skip_blank(const char *c)
{
    for (;;) {
        if (isspace((unsigned char)*c)) {
            c++;
        } else if (c[0] == '/' && c[1] == '/') {
            while (*c && *c != '\n') c++;
        } else if (c[0] == '/' && c[1] == '*') {
            const char *end = strstr(c + 2, "*/");
            if (!end) return c + strlen(c);
            c = end + 2;
        } else {
            return c;
        }
    }
}

static const char *skip_quoted(const char *c)
{
    char quote = *c++;
    while (*c && *c != quote) c += c[0] == '\\' && c[1] ? 2 : 1;
    return *c ? c + 1 : c;
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The "(" of NAME's parameter list at the outermost level, or NULL. */
static const char *find_parameters(const char *source, const char *name)
{
    int depth = 0;
    for (const char *c = skip_blank(source); *c; c = skip_blank(c)) {
        if (*c == '#') {
            while (*c && *c != '\n') c += c[0] == '\\' && c[1] ? 2 : 1;
            continue;
        }
        if (*c == '"' || *c == '\'') {
            c = skip_quoted(c);
        } else if (is_name(*c)) {
            const char *start = c;
            while (is_name(*c)) c++;
            const char *after = skip_blank(c);
            if (!depth && (size_t)(c - start) == strlen(name) && !memcmp(start, name, strlen(name)) && *after == '(')
                return after;
        } else {
            if (*c == '{' || *c == '(') depth++;
            if (*c == '}' || *c == ')') depth--;
            c++;
        }
    }
    return NULL;
}

/* Several spellings of one type, the first is ours. */
static const char *const spellings[][8] = {
    [DT_F32] = {"float"},
    [DT_F64] = {"double"},
    [DT_F16] = {"half", "f16", "_Float16", "unsigned short", "uint16_t"},
    [DT_BF16] = {"bfloat", "bf16", "__bf16", "unsigned short", "uint16_t"},
    [DT_I8] = {"signed char", "int8_t", "char"},
    [DT_I16] = {"short", "int16_t", "short int"},
    [DT_I32] = {"int", "int32_t"},
    [DT_I64] = {"long", "int64_t", "long int", "long long", "ptrdiff_t", "ssize_t", "intptr_t"},
    [DT_U8] = {"unsigned char", "uint8_t"},
    [DT_U16] = {"unsigned short", "uint16_t", "unsigned short int"},
    [DT_U32] = {"unsigned int", "uint32_t", "unsigned"},
    [DT_U64] = {"unsigned long", "uint64_t", "unsigned long int", "unsigned long long", "size_t", "uintptr_t"},
    [DT_BOOL] = {"bool", "_Bool"},
};

/* One parameter of the text as "type" or "type *": qualifiers and the name are dropped. */
static const char *read_parameter(const char *c, text *type)
{
    const char *words[16];
    size_t lengths[16];
    int count = 0, pointers = 0, depth = 0;
    for (c = skip_blank(c); *c && (depth || (*c != ',' && *c != ')')); c = skip_blank(c)) {
        if (is_name(*c) && !depth) {
            const char *start = c;
            while (is_name(*c)) c++;
            static const char *const dropped[] = {"const",        "volatile", "restrict", "__restrict",
                                                  "__restrict__", "register", "struct"};
            bool drop = false;
            for (int i = 0; i < COUNT(dropped); i++)
                drop |= (size_t)(c - start) == strlen(dropped[i]) && !memcmp(start, dropped[i], strlen(dropped[i]));
            if (!drop && count < COUNT(words)) {
                words[count] = start;
                lengths[count++] = (size_t)(c - start);
            }
            continue;
        }
        if (*c == '*' && !depth) pointers++;
        if (*c == '[' && !depth++)
            pointers++;
        else if (*c == '(' || (*c == '[' && depth > 1))
            depth++;
        if (*c == ']' || *c == ')') depth--;
        c++;
    }
    static const char *const type_words[] = {"unsigned", "signed", "char", "short", "int", "long", "float", "double"};
    bool last_is_type = false;
    for (int i = 0; i < COUNT(type_words) && count; i++)
        last_is_type |=
            lengths[count - 1] == strlen(type_words[i]) && !memcmp(words[count - 1], type_words[i], lengths[count - 1]);
    int used = count > 1 && !last_is_type ? count - 1 : count;
    for (int i = 0; i < used; i++) {
        if (i) text_add(type, " ");
        text_add_bytes(type, words[i], lengths[i]);
    }
    if (pointers) text_add(type, " ");
    for (int i = 0; i < pointers; i++) text_add(type, "*");
    return c;
}

static bool type_fits(const char *found, dtype elem, bool array)
{
    for (int i = 0; i < 8 && spellings[elem][i]; i++) {
        size_t length = strlen(spellings[elem][i]);
        if (!strncmp(found, spellings[elem][i], length) && !strcmp(found + length, array ? " *" : "")) return true;
    }
    return false;
}

static bool is_array(const tile_param *p)
{
    return p->kind != PARAM_SCALAR && p->kind != PARAM_EXTENT;
}

static int program_numbers(const tile_kernel *k)
{
    return k->raw_once ? 0 : launch_axes(k, 0);
}

static qn_status check_signature(const tile_kernel *k, qn_error *error)
{
    const char *file = k->file ? k->file : "?";
    const char *c = find_parameters(k->raw_source, k->name);
    if (!c)
        return error_set(
            error, QN_BAD_SOURCE,
            "%s: error E508: the text of `c %s` defines no function %s\n    give the function the kernel's name", file,
            k->name, k->name);
    int expected = k->param_count + program_numbers(k), found = 0;
    c = skip_blank(c + 1);
    text type = {0};
    qn_status status = QN_OK;
    while (*c && *c != ')' && status == QN_OK) {
        text_clear(&type);
        c = read_parameter(c, &type);
        if (!found && !strcmp(text_get(&type), "void")) break;
        if (found < expected) {
            const tile_param *p = found < k->param_count ? &k->params[found] : NULL;
            dtype elem = p ? p->elem : DT_I64;
            bool array = p && is_array(p);
            if (!type_fits(text_get(&type), elem, array))
                status = error_set(
                    error, QN_BAD_SOURCE,
                    "%s:%d:%d: error E508: declared parameter %d (%s) is `%s%s`, source has `%s`\n    make the "
                    "declaration and the C text agree",
                    file, p ? p->line : 0, p ? p->column : 0, found + 1, p ? p->name : "a program number",
                    spellings[elem][0], array ? " *" : "", text_get(&type));
        }
        found++;
        if (*c == ',') c = skip_blank(c + 1);
    }
    text_free(&type);
    if (status == QN_OK && found != expected)
        status = error_set(error, QN_BAD_SOURCE,
                           "%s: error E508: `c %s` declares %d parameters (arrays and scalars, then extents as "
                           "long%s), its text has %d\n"
                           "    make the declaration and the C text agree",
                           file, k->name, expected, program_numbers(k) ? ", then program numbers as long" : "", found);
    return status;
}

/* ---- the unit ---- */

static void put_undefines(const char *constants, text *out)
{
    for (const char *c = constants; c && (c = strstr(c, "#define ")); c++) {
        const char *name = c + 8;
        size_t length = 0;
        while (is_name(name[length])) length++;
        text_print(out, "#undef %.*s\n", (int)length, name);
    }
}

/* The compiler's messages shall name the line of the file that the user wrote. */
static void put_line(const tile_kernel *k, text *out)
{
    const char *path = k->raw_path ? k->raw_path : k->name;
    text_print(out, "\n#line %d \"", k->raw_path ? k->raw_line : 1);
    for (; *path; path++) {
        if (*path == '"' || *path == '\\') text_add(out, "\\");
        text_add_bytes(out, *path == '\n' ? " " : path, 1);
    }
    text_add(out, "\"\n");
}

qn_status emit_raw_c(const tile_kernel *k, text *out, qn_error *error)
{
    if (strcmp(k->raw_language, "c"))
        return error_set(error, QN_NO_DEVICE, "kernel %s is written in %s: it needs a device that runs that", k->name,
                         k->raw_language);
    QN_TRY(check_signature(k, error));
    const char *names[] = {"raw_types"}, *unknown;
    text_print(out, "/* Raw kernel %s%s%s. */\n", k->name, k->file ? " of " : "", k->file ? k->file : "");
    CHECK(prelude_emit(names, 1, out, &unknown));
    if (k->raw_constants) text_add(out, k->raw_constants);
    put_line(k, out);
    text_print(out, "%s\n#line 1 \"generated C\"\n", k->raw_source);
    put_undefines(k->raw_constants, out);
    text_add(out,
             "typedef struct { void *data; long extents[6], strides[6]; } quern_array;\n"
             "typedef struct { const quern_array *arrays; const long *scalars; long programs[3]; } quern_launch;\n");
    text_print(
        out, "int %s_phase0(const quern_launch *launch, long first, long last, void *scratch)\n{\n    (void)scratch;\n",
        k->name);
    text_add(out, "    for (long program = first; program < last; program++)\n");
    text_print(out, "        %s(", k->name);
    for (int p = 0; p < k->param_count; p++) {
        const tile_param *param = &k->params[p];
        if (p) text_add(out, ", ");
        if (is_array(param))
            text_print(out, "launch->arrays[%d].data", p);
        else if (dtype_is_float(param->elem))
            text_print(out, "((union { long bits; double number; }){.bits = launch->scalars[%d]}).number", p);
        else
            text_print(out, "launch->scalars[%d]", p);
    }
    static const char *const programs[] = {"program % launch->programs[0]",
                                           "program / launch->programs[0] % launch->programs[1]",
                                           "program / launch->programs[0] / launch->programs[1]"};
    for (int i = 0; i < program_numbers(k) && i < COUNT(programs); i++) text_print(out, ", %s", programs[i]);
    text_add(out, ");\n    return 0;\n}\n");
    text_print(out,
               "unsigned long %s_scratch_bytes(const quern_launch *launch)\n{\n    (void)launch;\n    return 0;\n}\n",
               k->name);
    return QN_OK;
}
