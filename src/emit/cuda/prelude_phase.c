/*
 * What sm_90 adds to the prelude of CUDA texts and is written by rule: copies of boxes with any number of axes, matrix
 * products of four warps (wgmma) of any width. What does not depend on such a number stands in prelude/cuda/phase.cuh.
 * In: names. Out: text; every function has two bodies, inline PTX and the call that emu's header knows.
 * SPDX-License-Identifier: MIT
 */
#include "emit/cuda/prelude_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- by rule: copies of boxes with 2 to 5 axes ---- */

static const char axes[][2] = {"x", "y", "z", "u", "v"};

/* `bulk_in_3d`, `bulk_in_3d_to` (to the same place in the blocks of `mask`), `bulk_out_3d` */
static bool bulk_text(const char *name, text *needs, text *out)
{
    bool in = !strncmp(name, "bulk_in_", 8), to = in && strlen(name) == 13 && !strcmp(name + 10, "_to");
    const char *digit = in ? name + 8 : !strncmp(name, "bulk_out_", 9) ? name + 9 : "";
    int count = *digit - '0';
    if (count < 2 || count > 5 || digit[1] != 'd' || (digit[2] && !to)) return false;
    text parameters = {0}, list = {0}, numbers = {0}, inputs = {0}, mask = {0};
    int first = in ? 3 : 2;
    for (int i = 0; i < count; i++) {
        text_print(&parameters, ", int %s", axes[i]);
        text_print(&list, "%s%s", i ? ", " : "", axes[i]);
        text_print(&numbers, "%s%%%d", i ? ", " : "", first + i);
        text_print(&inputs, ", \"r\"(%s)", axes[i]);
    }
    text_add(needs, in ? "phases" : "bulk_groups");
    if (to) text_print(&mask, ", %%%d", first + count);
    if (in) {
        text_print(out,
                   "INLINE void %s(void *to, const tensor_map *map, unsigned long long *bar%s%s WHERE)\n{\n"
                   "#ifdef QUERN_EMU\n"
                   "    const int place[] = {%s};\n"
                   "    emu_bulk_in(to, map, bar, place, %d, %s, file, line);\n"
                   "#else\n",
                   name, text_get(&parameters), to ? ", unsigned short mask" : "", text_get(&list), count,
                   to ? "mask" : "0");
        text_print(
            out,
            "    asm volatile(\"cp.async.bulk.tensor.%dd.shared::cluster.global.mbarrier::complete_tx::bytes%s \"\n"
            "                 \"[%%0], [%%1, {%s}], [%%2]%s;\" ::\"r\"(shared_address(to)), \"l\"(map),\n"
            "                 \"r\"(shared_address(bar))%s%s\n"
            "                 : \"memory\");\n",
            count, to ? ".multicast::cluster" : "", text_get(&numbers), text_get(&mask), text_get(&inputs),
            to ? ", \"h\"(mask)" : "");
    } else {
        text_print(out,
                   "INLINE void %s(const tensor_map *map, const void *from%s WHERE)\n{\n"
                   "#ifdef QUERN_EMU\n"
                   "    const int place[] = {%s};\n"
                   "    emu_bulk_out(map, from, place, %d, file, line);\n"
                   "#else\n",
                   name, text_get(&parameters), text_get(&list), count);
        text_print(
            out,
            "    asm volatile(\"cp.async.bulk.tensor.%dd.global.shared::cta.bulk_group [%%0, {%s}], [%%1];\" ::\n"
            "                 \"l\"(map), \"r\"(shared_address(from))%s\n"
            "                 : \"memory\");\n",
            count, text_get(&numbers), text_get(&inputs));
    }
    text_add(out, "#endif\n}\n");
    text_free(&parameters);
    text_free(&list);
    text_free(&numbers);
    text_free(&inputs);
    text_free(&mask);
    return true;
}

/* `bulk_windows_4d`: a column of places of an array whose map has windows; an offset for each axis between channels and
 * images. */
static bool windows_text(const char *name, text *needs, text *out)
{
    if (strncmp(name, "bulk_windows_", 13)) return false;
    int rank = name[13] - '0', count = 2 * rank - 2;
    if (rank < 3 || rank > 5 || strcmp(name + 14, "d")) return false;
    text parameters = {0}, list = {0}, numbers = {0}, offsets = {0}, inputs = {0};
    for (int i = 0; i < count; i++) {
        bool offset = i >= rank;
        text_print(&parameters, ", int at%d", i);
        text_print(&list, "%sat%d", i ? ", " : "", i);
        text_print(offset ? &offsets : &numbers, "%s%%%d", i && i != rank ? ", " : "", 3 + i);
        text_print(&inputs, offset ? ", \"h\"((unsigned short)at%d)" : ", \"r\"(at%d)", i);
    }
    text_add(needs, "phases");
    text_print(
        out,
        "INLINE void %s(void *to, const tensor_map *map, unsigned long long *bar%s WHERE)\n{\n"
        "#ifdef QUERN_EMU\n"
        "    const int place[] = {%s};\n"
        "    emu_bulk_in(to, map, bar, place, %d, 0, file, line);\n"
        "#else\n"
        "    asm volatile(\"cp.async.bulk.tensor.%dd.shared::cluster.global.im2col.mbarrier::complete_tx::bytes \"\n"
        "                 \"[%%0], [%%1, {%s}], [%%2], {%s};\" ::\"r\"(shared_address(to)), \"l\"(map),\n"
        "                 \"r\"(shared_address(bar))%s\n"
        "                 : \"memory\");\n"
        "#endif\n}\n",
        name, text_get(&parameters), text_get(&list), count, rank, text_get(&numbers), text_get(&offsets),
        text_get(&inputs));
    text_free(&parameters);
    text_free(&list);
    text_free(&numbers);
    text_free(&offsets);
    text_free(&inputs);
    return true;
}

/* ---- by rule: products of four warps ---- */

typedef struct wgmma_row {
    const char *type, *ptx; /* ptx: sums and operands of the instruction's name */
    int k;                  /* elements of 32 bytes */
    bool turns, scales;     /* operands may be stored the other way round; they may be negated */
} wgmma_row;

static const wgmma_row wgmma_rows[] = {
    {"bf16", "f32.bf16.bf16", 16, true, true}, {"f16", "f32.f16.f16", 16, true, true},
    {"tf32", "f32.tf32.tf32", 8, false, true}, {"e4m3", "f32.e4m3.e4m3", 32, false, true},
    {"s8", "s32.s8.s8", 32, false, false},
};

static void put_registers(text *out, int first, int count)
{
    for (int i = 0; i < count; i++)
        text_print(out, "%s%%%d%s", i ? ", " : "", first + i, i % 16 == 15 && i + 1 < count ? "\"\n        \"" : "");
}

/* wgmma_bf16_n128<TURN_A, TURN_B>(sums, a, b, add): sums[64][n] = a[64][k] * b[k][n], added to them where add is not 0.
 * _ra: a is in four registers of each thread. Without turns both lie in lines of k; turned in lines of m or n. */
static bool wgmma_text(const char *name, text *needs, text *out)
{
    const wgmma_row *row = NULL;
    if (strncmp(name, "wgmma_", 6)) return false;
    const char *rest = name + 6;
    for (int i = 0; i < COUNT(wgmma_rows) && !row; i++) {
        size_t length = strlen(wgmma_rows[i].type);
        if (!strncmp(rest, wgmma_rows[i].type, length) && !strncmp(rest + length, "_n", 2)) {
            row = &wgmma_rows[i];
            rest += length + 2;
        }
    }
    if (!row) return false;
    char *end;
    long n = strtol(rest, &end, 10);
    bool registers = !strcmp(end, "_ra");
    if (n < 8 || n > 256 || n % 8 || (*end && !registers)) return false;
    if (row->type[0] == 's' && n > 32 && n % 16) return false; /* integers: fewer widths */
    int sums = (int)n / 2;
    const char *type = row->type[0] == 's' ? "int" : "float", *letter = row->type[0] == 's' ? "r" : "f";
    text_add(needs, "matrix_groups");
    if (row->turns) text_print(out, "template <%sint TURN_B = 0>\n", registers ? "" : "int TURN_A = 0, ");
    text_print(out, "INLINE void %s(%s (&sums)[%d], %s, unsigned long long b, int add WHERE)\n{\n", name, type, sums,
               registers ? "unsigned a0, unsigned a1, unsigned a2, unsigned a3" : "unsigned long long a");
    text_add(out, "#ifdef QUERN_EMU\n");
    if (registers) text_add(out, "    const unsigned a[4] = {a0, a1, a2, a3};\n");
    text_print(out, "    emu_matrix(EMU_MATRIX_%s, %ld, sums, %s, b, add, %s, %s, file, line);\n#else\n", row->type, n,
               registers ? "0, (const unsigned *)emu_warp_gather(a, 16)" : "a, 0",
               registers || !row->turns ? "0" : "TURN_A", row->turns ? "TURN_B" : "0");
    int last = sums + (registers ? 5 : 2);
    text_print(out,
               "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.b32 p, %%%d, 0;\\n\"\n"
               "        \"wgmma.mma_async.sync.aligned.m64n%ldk%d.%s {",
               last, n, row->k, row->ptx);
    put_registers(out, 0, sums);
    text_add(out, "}, \"\n        \"");
    if (registers) {
        text_add(out, "{");
        put_registers(out, sums, 4);
        text_add(out, "}");
    } else {
        text_print(out, "%%%d", sums);
    }
    text_print(out, ", %%%d, p%s", last - 1, row->scales ? ", 1, 1" : "");
    if (row->turns && !registers) text_print(out, ", %%%d", last + 1);
    if (row->turns) text_print(out, ", %%%d", last + (registers ? 1 : 2));
    text_add(out, ";\\n}\\n\"\n        : ");
    for (int i = 0; i < sums; i++)
        text_print(out, "%s\"+%s\"(sums[%d])%s", i ? ", " : "", letter, i,
                   i % 8 == 7 && i + 1 < sums ? "\n        " : "");
    text_print(out, "\n        : %s, \"l\"(b), \"r\"(add)",
               registers ? "\"r\"(a0), \"r\"(a1), \"r\"(a2), \"r\"(a3)" : "\"l\"(a)");
    if (row->turns) text_print(out, "%s, \"n\"(TURN_B)", registers ? "" : ", \"n\"(TURN_A)");
    text_add(out, ");\n#endif\n}\n");
    return true;
}

bool cuda_phase_text(const char *name, text *needs, text *out)
{
    return bulk_text(name, needs, out) || windows_text(name, needs, out) || wgmma_text(name, needs, out);
}
