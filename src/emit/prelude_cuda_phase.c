/*
 * What sm_90 adds to the prelude of CUDA texts: counted phases (mbarriers), copies of boxes by the copy engine, matrix
 * products of four warps (wgmma), and the little that goes with them. Written for roles: one warp asks for copies, others
 * multiply.
 *
 * In: names. Out: text; every function has two bodies, inline PTX and the call that emu's header knows (device/
 * emu_text_async.c). A `phase` is 8 bytes of shared memory. A tensor map is what the host encoded, 128 bytes of the
 * frame, which is then a `const __grid_constant__` parameter. Functions of emu take the caller's line besides, so that
 * who waits for ever is told with the line of the kernel.
 * SPDX-License-Identifier: MIT
 */
#include "emit/prelude_cuda_parts.h"

#include <stdlib.h>
#include <string.h>

const prelude_part cuda_phase_parts[] = {
    {"tensor_map", "", "",
     "/* An array as the copy engine sees it; the host fills it. */\n"
     "struct __align__(64) tensor_map { unsigned long long words[16]; };\n"
     "#ifdef QUERN_EMU\n"
     "#define WHERE , EMU_WHERE\n"
     "#define WHERE_ONLY EMU_WHERE\n"
     "#else\n"
     "#define WHERE\n"
     "#define WHERE_ONLY\n"
     "#endif\n"
     "INLINE unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }\n"},
    {"phases", "", "tensor_map",
     "/* A phase ends when `count` threads have arrived and the bytes that were announced have come. */\n"
     "INLINE void phase_init(unsigned long long *bar, int count WHERE)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    emu_phase(bar, EMU_PHASE_INIT, count, file, line);\n"
     "#else\n"
     "    asm volatile(\"mbarrier.init.shared::cta.b64 [%0], %1;\" ::\"r\"(shared_address(bar)), \"r\"(count) : "
     "\"memory\");\n"
     "#endif\n"
     "}\n"
     "/* What phase_init wrote is seen by the copy engine and the cluster; a barrier of the block follows. */\n"
     "INLINE void phases_ready()\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    emu_phase(0, EMU_PHASE_READY, 0, \"\", 0);\n"
     "#else\n"
     "    asm volatile(\"fence.mbarrier_init.release.cluster;\" ::: \"memory\");\n"
     "#endif\n"
     "}\n"
     "/* Arrives, and announces bytes of copies. */\n"
     "INLINE void phase_expect(unsigned long long *bar, int bytes WHERE)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    emu_phase(bar, EMU_PHASE_EXPECT, bytes, file, line);\n"
     "#else\n"
     "    asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\" ::\"r\"(shared_address(bar)), "
     "\"r\"(bytes)\n"
     "                 : \"memory\");\n"
     "#endif\n"
     "}\n"
     "INLINE void phase_arrive(unsigned long long *bar WHERE)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    emu_phase(bar, EMU_PHASE_ARRIVE, 0, file, line);\n"
     "#else\n"
     "    asm volatile(\"mbarrier.arrive.shared::cta.b64 _, [%0];\" ::\"r\"(shared_address(bar)) : \"memory\");\n"
     "#endif\n"
     "}\n"
     "/* The same at the phase of another block of the cluster. */\n"
     "INLINE void phase_arrive_at(unsigned long long *bar, unsigned rank WHERE)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    emu_phase(emu_cluster_map(bar, rank), EMU_PHASE_ARRIVE, 0, file, line);\n"
     "#else\n"
     "    asm volatile(\"{\\n.reg .b32 a;\\nmapa.shared::cluster.u32 a, %0, %1;\\n\"\n"
     "                 \"mbarrier.arrive.shared::cluster.b64 _, [a];\\n}\" ::\"r\"(shared_address(bar)), \"r\"(rank)\n"
     "                 : \"memory\");\n"
     "#endif\n"
     "}\n"
     "/* Until the phase of this parity has ended: of a new barrier 1 has, 0 has not. Without a trap, which would take "
     "the\n"
     " * roles their register budgets. */\n"
     "INLINE void phase_wait(unsigned long long *bar, int parity WHERE)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    emu_phase(bar, EMU_PHASE_WAIT, parity, file, line);\n"
     "#else\n"
     "    const unsigned at = shared_address(bar);\n"
     "    unsigned done;\n"
     "    do\n"
     "        asm volatile(\"{\\n.reg .pred p;\\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\n\"\n"
     "                     \"selp.u32 %0, 1, 0, p;\\n}\"\n"
     "                     : \"=r\"(done)\n"
     "                     : \"r\"(at), \"r\"(parity)\n"
     "                     : \"memory\");\n"
     "    while (!done);\n"
     "#endif\n"
     "}\n"},
    {"bulk_groups", "", "tensor_map",
     "/* Ordinary writes of this thread to shared memory are seen by copies and products from here on. */\n"
     "INLINE void fence_async()\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    emu_fence_async();\n"
     "#else\n"
     "    asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");\n"
     "#endif\n"
     "}\n"
     "INLINE void map_prefetch(const tensor_map *map)\n"
     "{\n"
     "#ifndef QUERN_EMU\n"
     "    asm volatile(\"prefetch.tensormap [%0];\" ::\"l\"(map) : \"memory\");\n"
     "#endif\n"
     "}\n"
     "INLINE void bulk_commit()\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    emu_bulk_commit();\n"
     "#else\n"
     "    asm volatile(\"cp.async.bulk.commit_group;\" ::: \"memory\");\n"
     "#endif\n"
     "}\n"
     "/* All but the last PENDING groups of this thread's copies out have read shared memory; bulk_wait: and have "
     "arrived. */\n"
     "template <int PENDING> INLINE void bulk_wait_read(WHERE_ONLY)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    emu_bulk_wait(PENDING, file, line);\n"
     "#else\n"
     "    asm volatile(\"cp.async.bulk.wait_group.read %0;\" ::\"n\"(PENDING) : \"memory\");\n"
     "#endif\n"
     "}\n"
     "template <int PENDING> INLINE void bulk_wait(WHERE_ONLY)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    emu_bulk_wait(PENDING, file, line);\n"
     "#else\n"
     "    asm volatile(\"cp.async.bulk.wait_group %0;\" ::\"n\"(PENDING) : \"memory\");\n"
     "#endif\n"
     "}\n"},
    {"matrix_groups", "", "tensor_map",
     "/* A matrix in shared memory for a product: 64 bits. SWIZZLE 128, 64, 32 or 0 bytes; offsets in bytes, as\n"
     " * docs/cuda.md lays out. Steps inside a tile are added to it, in units of 16 bytes. */\n"
     "template <int SWIZZLE>\n"
     "INLINE unsigned long long matrix_descriptor(const void *first, unsigned leading_bytes, unsigned stride_bytes)\n"
     "{\n"
     "    const unsigned kind = SWIZZLE == 128 ? 1 : SWIZZLE == 64 ? 2 : SWIZZLE == 32 ? 3 : 0;\n"
     "    const unsigned low = (shared_address(first) & 0x3ffff) >> 4 | (leading_bytes >> 4) << 16;\n"
     "    return (unsigned long long)(stride_bytes >> 4 | kind << 30) << 32 | low;\n"
     "}\n"
     "/* Registers of the sums and of a left operand are ready for products. */\n"
     "INLINE void matrix_fence()\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    emu_matrix_wait(EMU_MATRIX_FENCE, \"\", 0);\n"
     "#else\n"
     "    asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n"
     "#endif\n"
     "}\n"
     "INLINE void matrix_commit()\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    emu_matrix_commit();\n"
     "#else\n"
     "    asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n"
     "#endif\n"
     "}\n"
     "/* All but the last PENDING groups of products are done. */\n"
     "template <int PENDING> INLINE void matrix_wait(WHERE_ONLY)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    emu_matrix_wait(PENDING, file, line);\n"
     "#else\n"
     "    asm volatile(\"wgmma.wait_group.sync.aligned %0;\" ::\"n\"(PENDING) : \"memory\");\n"
     "#endif\n"
     "}\n"
     "/* Uses of the sums stay on their side of this point. */\n"
     "template <int N> INLINE void matrix_keep(float (&sums)[N])\n"
     "{\n"
     "#ifndef QUERN_EMU\n"
     "#pragma unroll\n"
     "    for (int i = 0; i < N; i++) asm volatile(\"\" : \"+f\"(sums[i])::\"memory\");\n"
     "#endif\n"
     "}\n"
     "template <int N> INLINE void matrix_keep(int (&sums)[N])\n"
     "{\n"
     "#ifndef QUERN_EMU\n"
     "#pragma unroll\n"
     "    for (int i = 0; i < N; i++) asm volatile(\"\" : \"+r\"(sums[i])::\"memory\");\n"
     "#endif\n"
     "}\n"},
    {"matrix_at", "", "matrix_groups",
     "/* A descriptor so many 16 bytes further on: the upper half stays a constant, which saves instructions. */\n"
     "INLINE unsigned long long matrix_at(unsigned long long place, unsigned step)\n"
     "{\n"
     "    return (place & 0xffffffff00000000) | ((unsigned)place + step);\n"
     "}\n"},
    {"pair_f32", "", "", "struct __align__(8) pair_f32 { float at[2]; };\n"},
    {"pack_bf16", "", "f32_to_bf16",
     "/* Two neighbours, rounded, in one register. */\n"
     "INLINE unsigned pack_bf16(float low, float high)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    return f32_to_bf16(low) | (unsigned)f32_to_bf16(high) << 16;\n"
     "#else\n"
     "    unsigned both;\n"
     "    asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(both) : \"f\"(high), \"f\"(low));\n"
     "    return both;\n"
     "#endif\n"
     "}\n"},
    {"unpack_bf16", "", "real_f32",
     "/* Both of a register, as f32. */\n"
     "INLINE void unpack_bf16(float *x, unsigned both)\n"
     "{\n"
     "    x[0] = real_f32((int)(both << 16));\n"
     "    x[1] = real_f32((int)(both & 0xffff0000));\n"
     "}\n"},
    {"unpack_f16", "", "f16_to_f32",
     "INLINE void unpack_f16(float *x, unsigned both)\n"
     "{\n"
     "    x[0] = f16_to_f32((unsigned short)both);\n"
     "    x[1] = f16_to_f32((unsigned short)(both >> 16));\n"
     "}\n"},
    {"pack_f16", "", "f32_to_f16",
     "INLINE unsigned pack_f16(float low, float high)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    return f32_to_f16(low) | (unsigned)f32_to_f16(high) << 16;\n"
     "#else\n"
     "    unsigned both;\n"
     "    asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(both) : \"f\"(high), \"f\"(low));\n"
     "    return both;\n"
     "#endif\n"
     "}\n"},
    {"store_matrices", "", "tensor_map",
     "/* Four 8x8 matrices of 16-bit elements to shared memory: lane l gives the address of row l % 8 of matrix l / 8. "
     "*/\n"
     "INLINE void store_matrices(void *row, unsigned r0, unsigned r1, unsigned r2, unsigned r3)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    struct shown { unsigned short *row; unsigned r[4]; } mine = {(unsigned short *)row, {r0, r1, r2, r3}};\n"
     "    const shown *all = (const shown *)emu_warp_gather(&mine, sizeof(mine));\n"
     "    const int lane = threadIdx.x % 32;\n"
     "    unsigned short *const to = mine.row;\n"
     "    for (int i = 0; i < 8; i++)\n"
     "        to[i] = (unsigned short)(all[lane % 8 * 4 + i / 2].r[lane / 8] >> i % 2 * 16);\n"
     "#else\n"
     "    asm volatile(\"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, "
     "%4};\" ::\"r\"(shared_address(row)),\n"
     "                 \"r\"(r0), \"r\"(r1), \"r\"(r2), \"r\"(r3)\n"
     "                 : \"memory\");\n"
     "#endif\n"
     "}\n"},
    {"roles", "", "tensor_map",
     "/* How many registers a thread of this warp group may have from here on. */\n"
     "template <int COUNT> INLINE void registers_more()\n"
     "{\n"
     "#ifndef QUERN_EMU\n"
     "    asm volatile(\"setmaxnreg.inc.sync.aligned.u32 %0;\" ::\"n\"(COUNT));\n"
     "#endif\n"
     "}\n"
     "template <int COUNT> INLINE void registers_less()\n"
     "{\n"
     "#ifndef QUERN_EMU\n"
     "    asm volatile(\"setmaxnreg.dec.sync.aligned.u32 %0;\" ::\"n\"(COUNT));\n"
     "#endif\n"
     "}\n"
     "/* A barrier of some warps: 1 to 15 (0 is the block's), and how many threads come. */\n"
     "INLINE void barrier_named(int number, int threads WHERE)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    emu_barrier(number, threads, file, line);\n"
     "#else\n"
     "    asm volatile(\"bar.sync %0, %1;\" ::\"r\"(number), \"r\"(threads) : \"memory\");\n"
     "#endif\n"
     "}\n"
     "INLINE void barrier_named_arrive(int number, int threads WHERE)\n"
     "{\n"
     "#ifdef QUERN_EMU\n"
     "    emu_barrier_arrive(number, threads, file, line);\n"
     "#else\n"
     "    asm volatile(\"bar.arrive %0, %1;\" ::\"r\"(number), \"r\"(threads) : \"memory\");\n"
     "#endif\n"
     "}\n"
     "/* The number of this thread's warp, the same for all its lanes as far as the compiler sees. */\n"
     "INLINE int warp_number() { return __shfl_sync(~0u, (int)threadIdx.x / 32, 0); }\n"},
    {0},
};

/* ---- by rule: copies of boxes with 2 to 5 axes ---- */

static const char axes[][2] = {"x", "y", "z", "u", "v"};

/* bulk_in_3d, bulk_in_3d_to (to the same place in the blocks of `mask`), bulk_out_3d */
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

/* bulk_windows_4d: a column of places of an array whose map has windows; an offset for each axis between channels and
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
