/*
 * print: the line that the interpreter would write, put together in the generated C and handed to launch->print.
 * In: a PRINT op whose tiles are kept. Out: statements that call the helpers of print_text.
 * SPDX-License-Identifier: MIT
 */
#include "emit/c/nest.h"

#include <string.h>

/* Elements by the number of their dtype; `valid` is a byte per element with its own steps, or NULL. */
const char print_text[] =
    "typedef struct { char words[4000]; long used; } line_info;\n"
    "static void line_words(line_info *line, const char *words)\n"
    "{\n"
    "    while (*words && line->used < 3999) line->words[line->used++] = *words++;\n"
    "    line->words[line->used] = 0;\n"
    "}\n"
    "static void line_element(line_info *line, int type, const void *data, long at)\n"
    "{\n"
    "    char words[64];\n"
    "    switch (type) {\n"
    "    case 0: snprintf(words, 64, \"%.6g\", (double)((const float *)data)[at]); break;\n"
    "    case 1: snprintf(words, 64, \"%.10g\", ((const double *)data)[at]); break;\n"
    "    case 2: snprintf(words, 64, \"%.6g\", (double)f16_to_f32(((const unsigned short *)data)[at])); break;\n"
    "    case 3: snprintf(words, 64, \"%.6g\", (double)bf16_to_f32(((const unsigned short *)data)[at])); break;\n"
    "    case 4: snprintf(words, 64, \"%d\", ((const signed char *)data)[at]); break;\n"
    "    case 5: snprintf(words, 64, \"%d\", ((const short *)data)[at]); break;\n"
    "    case 6: snprintf(words, 64, \"%d\", ((const int *)data)[at]); break;\n"
    "    case 7: snprintf(words, 64, \"%ld\", ((const long *)data)[at]); break;\n"
    "    case 8: snprintf(words, 64, \"%d\", ((const unsigned char *)data)[at]); break;\n"
    "    case 9: snprintf(words, 64, \"%d\", ((const unsigned short *)data)[at]); break;\n"
    "    case 10: snprintf(words, 64, \"%u\", ((const unsigned int *)data)[at]); break;\n"
    "    case 11: snprintf(words, 64, \"%lu\", ((const unsigned long *)data)[at]); break;\n"
    "    case 13: snprintf(words, 64, \"%.6g\", (double)f8e4m3_to_f32(((const unsigned char *)data)[at])); break;\n"
    "    default: snprintf(words, 64, \"%s\", ((const unsigned char *)data)[at] ? \"true\" : \"false\"); break;\n"
    "    }\n"
    "    line_words(line, words);\n"
    "}\n"
    "static void line_tile(line_info *line, int type, const void *data, long at, int rank, const long *extents,\n"
    "                      const unsigned char *valid, const long *valid_steps)\n"
    "{\n"
    "    if (!rank) {\n"
    "        if (valid && !*valid) line_words(line, \"\\xc2\\xb7\");\n"
    "        else line_element(line, type, data, at);\n"
    "        return;\n"
    "    }\n"
    "    long inner = 1, front = rank == 1 ? 6 : 3, back = rank == 1 ? 2 : 1;\n"
    "    for (int i = 1; i < rank; i++) inner *= extents[i];\n"
    "    line_words(line, \"[\");\n"
    "    for (long i = 0; i < extents[0]; i++) {\n"
    "        if (i) line_words(line, \" \");\n"
    "        if (extents[0] > front + back + 1 && i == front) {\n"
    "            line_words(line, \"... \");\n"
    "            i = extents[0] - back;\n"
    "        }\n"
    "        line_tile(line, type, data, at + i * inner, rank - 1, extents + 1, valid ? valid + i * valid_steps[0] : "
    "valid,\n"
    "                  valid_steps + 1);\n"
    "    }\n"
    "    line_words(line, \"]\");\n"
    "}\n";

int launch_axes(const tile_kernel *k, int phase)
{
    for (int i = 0; i < k->head->op_count; i++)
        if (k->head->ops[i]->code == OP_LAUNCH && k->head->ops[i]->attr.index == phase)
            return k->head->ops[i]->operand_count;
    return 1;
}

static void put_words(emitter *e, const char *words, size_t length)
{
    if (!length) return;
    text quoted = {0};
    text_add_escaped(&quoted, ESCAPE_STRING, words, length);
    put(e, "line_words(&line, \"%s\");", text_get(&quoted));
    text_free(&quoted);
}

static void put_value(emitter *e, value v, value valid)
{
    tile_type type = tile_type_of(e->k, v);
    put(e, "{");
    e->depth++;
    text extents = {0}, steps = {0};
    if (!type.rank) {
        bool half = dtype_is_narrow(type.elem);
        put(e, "const %s x = %s;", type.elem == DT_BOOL ? "unsigned char" : scalar_c_type(type.elem), emit_name(e, v));
        if (valid) put(e, "const unsigned char valid = %s;", emit_name(e, valid));
        put(e, "line_tile(&line, %d, &x, 0, 0, 0, %s, 0);", half ? DT_F32 : type.elem, valid ? "&valid" : "0");
    } else {
        tile_type of_valid = valid ? tile_type_of(e->k, valid) : scalar_type(DT_BOOL);
        const char *step = "1";
        const char *all[MAX_RANK] = {0};
        for (int i = type.rank - 1; i >= 0; i--) {
            bool unit = !of_valid.rank || of_valid.dims[i] == 1;
            all[i] = unit ? "0" : step;
            if (!unit) step = arena_print(e->memory, "%s * %s", step, extent_text(e, of_valid.dims[i]));
        }
        for (int i = 0; i < type.rank; i++) {
            text_print(&extents, "%s%s", i ? ", " : "", extent_text(e, type.dims[i]));
            text_print(&steps, "%s%s", i ? ", " : "", all[i]);
        }
        put(e, "const long extents[] = {%s}, steps[] = {%s};", text_get(&extents), text_get(&steps));
        const char *bytes = "0";
        if (valid && of_valid.rank) bytes = buffer_name(e, valid);
        if (valid && !of_valid.rank) {
            put(e, "const unsigned char valid = %s;", emit_name(e, valid));
            bytes = "&valid";
        }
        put(e, "line_tile(&line, %d, %s, 0, %d, extents, %s, steps);", type.elem, buffer_name(e, v), type.rank, bytes);
    }
    text_free(&extents);
    text_free(&steps);
    e->depth--;
    put(e, "}");
}

void emit_print(emitter *e, tile_op *op)
{
    e->survey->prints = true;
    need(e, "f16_to_f32");
    need(e, "bf16_to_f32");
    need(e, "f8e4m3_to_f32");
    put(e, "if (launch->print) {");
    e->depth++;
    put(e, "line_info line = {.used = 0};");
    int rank = launch_axes(e->k, e->phase);
    put(e, "line.used = snprintf(line.words, 400, \"%s (program %s), line %d: \", %s);", e->k->name,
        rank == 1   ? "%ld"
        : rank == 2 ? "%ld, %ld"
                    : "%ld, %ld, %ld",
        op->line,
        rank == 1   ? "program0"
        : rank == 2 ? "program0, program1"
                    : "program0, program1, program2");
    const char *words = op->attr.words ? op->attr.words : "", *from = words;
    int next = 0, count = op->attr.count;
    bool has_valid = op->operand_count == 2 * count;
    for (const char *c = words; *c; c++) {
        if (c[0] != '{' || c[1] != '}' || next >= count) continue;
        put_words(e, from, (size_t)(c - from));
        from = ++c + 1;
        put_value(e, op->operands[next], has_valid ? op->operands[count + next] : 0);
        next++;
    }
    put_words(e, from, strlen(from));
    put(e, "launch->print(launch->print_context, line.words);");
    e->depth--;
    put(e, "}");
}
