/*
 * Copies by the copy engine, phases and products of four warps, as hand-written text on the prelude's functions: a
 * product of 64 x 64 x 128 with a filling warp, a ring of two stages and a multiplying group runs in emu and is right,
 * for both ways b may lie and with the left operand in registers; with one wait, fence or arrival left out it is found,
 * with the line. The same text compiles for sm_90a without spills.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "device/cuda/cubin.h"
#include "device/emu/unit.h"
#include "device/cuda/nvrtc.h"
#include "device/cuda/tensor_map.h"
#include "emit/cuda/prelude.h"
#include "ir/tile.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 100, COLUMNS = 72, DEPTH = 160, TILE = 64 };

static compiler cpp;
static emu_engine *engine;

/* One block a tile of 64 x 64; warp 4 fills, warps 0 to 3 multiply. K of b: [k][n] where TURNED, else [n][k]. */
static const char kernel[] =
    "struct frame_of { tensor_map a, b, c; int steps; };\n"
    "extern \"C\" __global__ void __launch_bounds__(160) product(const __grid_constant__ frame_of frame)\n"
    "{\n"
    "    extern __shared__ __align__(1024) unsigned char room[];\n"
    "    unsigned long long *const full = (unsigned long long *)(room + 40960), *const empty = full + 2;\n"
    "    const int warp = warp_number(), lane = threadIdx.x % 32;\n"
    "    if (threadIdx.x == 0) {\n"
    "        for (int i = 0; i < 2; i++) {\n"
    "            phase_init(full + i, 1);\n"
    "            phase_init(empty + i, 1);\n"
    "        }\n"
    "        phases_ready();\n"
    "    }\n"
    "    __syncthreads();\n"
    "    const int row = blockIdx.x * 64, column = blockIdx.y * 64;\n"
    "    if (warp == 4) {\n"
    "        if (lane == 0)\n"
    "            for (int step = 0; step < frame.steps; step++) {\n"
    "                const int stage = step % 2, parity = step / 2 % 2;\n"
    "                phase_wait(empty + stage, parity ^ 1); // wait_empty\n"
    "                phase_expect(full + stage, 16384);\n"
    "                bulk_in_2d(room + stage * 8192, &frame.a, full + stage, step * 64, row);\n"
    "                if (TURNED)\n"
    "                    bulk_in_2d(room + 16384 + stage * 8192, &frame.b, full + stage, column, step * 64);\n"
    "                else\n"
    "                    bulk_in_2d(room + 16384 + stage * 8192, &frame.b, full + stage, step * 64, column);\n"
    "            }\n"
    "        return;\n"
    "    }\n"
    "    float sums[32];\n"
    "    for (int step = 0; step < frame.steps; step++) {\n"
    "        const int stage = step % 2, parity = step / 2 % 2;\n"
    "        phase_wait(full + stage, parity); // wait_full\n"
    "        const unsigned long long a = matrix_descriptor<128>(room + stage * 8192, 16, 1024),\n"
    "                                 b = matrix_descriptor<128>(room + 16384 + stage * 8192, 8192, 1024);\n"
    "#if IN_REGISTERS\n"
    "        unsigned left[4][4];\n"
    "        for (int k = 0; k < 4; k++)\n"
    "            for (int r = 0; r < 4; r++) {\n"
    "                const int line = warp * 16 + lane / 4 + r % 2 * 8, chunk = k * 2 + r / 2;\n"
    "                left[k][r] = *(const unsigned *)(room + stage * 8192 + line * 128 + ((chunk ^ (line & 7)) << 4) "
    "+\n"
    "                                                 lane % 4 * 4);\n"
    "            }\n"
    "#endif\n"
    "        matrix_fence();\n"
    "        for (int k = 0; k < 4; k++)\n"
    "#if IN_REGISTERS\n"
    "            wgmma_bf16_n64_ra<TURNED>(sums, left[k][0], left[k][1], left[k][2], left[k][3], b + k * (TURNED ? 128 "
    ": 2),\n"
    "                                      step + k);\n"
    "#else\n"
    "            wgmma_bf16_n64<0, TURNED>(sums, a + k * 2, b + k * (TURNED ? 128 : 2), step + k);\n"
    "#endif\n"
    "        matrix_commit();\n"
    "        matrix_wait<0>(); // wait_matrix\n"
    "        barrier_named(1, 128);\n"
    "        if (threadIdx.x == 0) phase_arrive(empty + stage); // arrive\n"
    "    }\n"
    "    unsigned char *const out = room + 32768 + warp * 2048;\n"
    "    for (int chunk = 0; chunk < 8; chunk += 2) {\n"
    "        const int line = lane & 15, at = chunk + (lane >> 4);\n"
    "        const float *d = sums + chunk * 4;\n"
    "        store_matrices(out + line * 128 + ((at ^ (line & 7)) << 4), pack_bf16(d[0], d[1]), pack_bf16(d[2], "
    "d[3]),\n"
    "                       pack_bf16(d[4], d[5]), pack_bf16(d[6], d[7]));\n"
    "    }\n"
    "    fence_async(); // fence\n"
    "    __syncwarp();\n"
    "    if (lane == 0) {\n"
    "        bulk_out_2d(&frame.c, out, column, row + warp * 16);\n"
    "        bulk_commit();\n"
    "        bulk_wait_read<0>(); // wait_out\n"
    "    }\n"
    "}\n";

static void source_of(bool turned, bool in_registers, const char *left_out, text *out)
{
    static const char *const names[] = {"phases",         "bulk_in_2d", "bulk_out_2d",       "matrix_groups",
                                        "wgmma_bf16_n64", "pack_bf16",  "wgmma_bf16_n64_ra", "roles",
                                        "store_matrices"};
    const char *unknown = NULL;
    EXPECT(prelude_cuda_emit(names, COUNT(names), out, &unknown));
    text_print(out, "#define TURNED %d\n#define IN_REGISTERS %d\n", turned, in_registers);
    char mark[64];
    snprintf(mark, sizeof(mark), "// %s\n", left_out ? left_out : "");
    const char *end = left_out ? strstr(kernel, mark) : NULL;
    EXPECT(!left_out || end);
    if (!end) {
        text_add(out, kernel);
        return;
    }
    const char *start = end; /* the statement on that line goes, the line stays */
    while (start[-1] != '\n') start--;
    text_add_bytes(out, kernel, (size_t)(start - kernel));
    text_add(out, "            ;");
    text_add(out, end);
}

typedef struct frame_of {
    _Alignas(64) int64_t maps[3][CUDA_MAP_WORDS];
    int steps;
} frame_of;

static uint16_t bits_of(float x)
{
    return bf16_from_double(x);
}

/* Runs it; gives the largest error, and what was found. */
static double run(bool turned, bool in_registers, const char *left_out, bool checked, text *found)
{
    text source = {0};
    source_of(turned, in_registers, left_out, &source);
    char folder[] = "/tmp/quern-phases-XXXXXX", path[64];
    EXPECT(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/product.so", folder);
    qn_error error = {0};
    emu_library library = {0};
    qn_status status = emu_unit_compile(&cpp, text_get(&source), checked, path, &error);
    if (status == QN_OK) status = emu_library_open(path, &library, &error);
    if (status != QN_OK) printf("%s\n", error.message);
    EXPECT(status == QN_OK);
    text_free(&source);
    if (status != QN_OK) return INFINITY;
    uint16_t *a = aligned_alloc(64, ROWS * DEPTH * 2), *b = aligned_alloc(64, DEPTH * COLUMNS * 2),
             *c = aligned_alloc(64, ROWS * COLUMNS * 2);
    for (int i = 0; i < ROWS * DEPTH; i++) a[i] = bits_of((float)((i * 37) % 17 - 8) / 8);
    for (int i = 0; i < DEPTH * COLUMNS; i++) b[i] = bits_of((float)((i * 53) % 23 - 11) / 8);
    memset(c, 0xff, ROWS * COLUMNS * 2);
    cuda_map plain = {.rank = 2, .axes = {{1, 1, 0}, {0, 1, 0}}, .box = {64, 64}, .swizzle = 128};
    cuda_map out = plain;
    out.box[1] = 16;
    array_view va = {.data = a, .elem = DT_BF16, .rank = 2, .extents = {ROWS, DEPTH}, .strides = {DEPTH, 1}};
    array_view vb =
        turned
            ? (array_view){.data = b, .elem = DT_BF16, .rank = 2, .extents = {DEPTH, COLUMNS}, .strides = {COLUMNS, 1}}
            : (array_view){.data = b, .elem = DT_BF16, .rank = 2, .extents = {COLUMNS, DEPTH}, .strides = {DEPTH, 1}};
    array_view vc = {.data = c, .elem = DT_BF16, .rank = 2, .extents = {ROWS, COLUMNS}, .strides = {COLUMNS, 1}};
    frame_of frame = {.steps = (DEPTH + 63) / 64};
    map_numbers numbers;
    const struct {
        const cuda_map *map;
        const array_view *view;
    } maps[] = {{&plain, &va}, {&plain, &vb}, {&out, &vc}};
    for (int i = 0; i < 3; i++) {
        EXPECT(map_numbers_of(maps[i].map, maps[i].view, &numbers, &error) == QN_OK);
        map_for_emu(&numbers, frame.maps[i]);
    }
    void *arguments[] = {&frame};
    emu_range ranges[] = {{.first = library.first, .end = library.end, .elem_bytes = 1}};
    emu_launch launch = {.entry = emu_library_find(&library, "product"),
                         .arguments = arguments,
                         .grid = {(ROWS + 63) / 64, (COLUMNS + 63) / 64, 1},
                         .block = {160, 1, 1},
                         .shared_bytes = 40960 + 64,
                         .touch = library.touch,
                         .dynamic = library.dynamic,
                         .library_address = (const void *)library.first,
                         .checked = checked,
                         .ranges = ranges,
                         .range_count = 1};
    EXPECT(emu_engine_run(engine, &launch, &error) == QN_OK);
    double worst = 0;
    for (int i = 0; i < launch.finding_count; i++) {
        text_print(found, "%d: %s\n", launch.findings[i].at.line, launch.findings[i].words);
        worst = INFINITY;
    }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            double want = 0;
            for (int k = 0; k < DEPTH; k++)
                want +=
                    bf16_to_double(a[i * DEPTH + k]) * bf16_to_double(turned ? b[k * COLUMNS + j] : b[j * DEPTH + k]);
            double off = fabs(bf16_to_double(c[i * COLUMNS + j]) - want) / fmax(fabs(want), 1);
            if (!(off <= worst)) worst = off;
        }
    heap_free(a);
    heap_free(b);
    heap_free(c);
    emu_library_close(&library);
    remove(path);
    remove(folder);
    return worst;
}

TEST(the_product_is_right)
{
    for (int way = 0; way < 4; way++) {
        text found = {0};
        double worst = run(way & 1, way & 2, NULL, way % 3 == 0, &found);
        if (!(worst < 4e-3)) printf("way %d: %g %s\n", way, worst, text_get(&found));
        EXPECT(worst < 4e-3);
        text_free(&found);
    }
}

TEST(what_is_left_out_is_found)
{
    static const struct {
        const char *left_out, *found;
    } cases[] = {
        {"wait_full", "no wait: a product of shared memory that a copy still fills"},
        {"wait_empty", "that a copy still fills"},
        {"wait_matrix", "too early: a copy into shared memory that the product"},
        {"arrive", "nobody can go on: "},
        {"fence", "no fence: a copy that "},
        {"wait_out", "no wait: a thread ends with a copy out"},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        text found = {0};
        (void)run(i & 1, false, cases[i].left_out, true, &found);
        if (!strstr(text_get(&found), cases[i].found)) printf("%s: \"%s\"\n", cases[i].left_out, text_get(&found));
        EXPECT(strstr(text_get(&found), cases[i].found) != NULL);
        text_free(&found);
    }
}

TEST(the_text_is_for_the_gpu)
{
    qn_error error;
    nvrtc *n = nvrtc_new();
    if (nvrtc_ready(n, &error) != QN_OK) {
        printf("note: skipped the GPU's text: %s\n", error.message);
        nvrtc_free(n);
        return;
    }
    for (int way = 0; way < 4; way++) {
        text source = {0};
        nvrtc_output o = {0};
        cubin_usage usage = {0};
        source_of(way & 1, way & 2, NULL, &source);
        qn_status status =
            nvrtc_compile(n, text_get(&source), "product.cu", &(nvrtc_options){.arch = 90, .usage = true}, &o, &error);
        if (status != QN_OK) printf("%s\n", error.message);
        EXPECT(status == QN_OK);
        EXPECT(!strstr(text_get(&o.log), "C75")); /* products one after another, or registers ignored */
        EXPECT(cubin_read_log(text_get(&o.log), "product", &usage) && usage.spill_bytes == 0);
        EXPECT(strstr(text_get(&o.ptx), "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16") != NULL);
        EXPECT(strstr(text_get(&o.ptx), "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group") != NULL);
        nvrtc_output_free(&o);
        text_free(&source);
    }
    nvrtc_free(n);
}

/* A kernel that calls every product once, to see that the assembler knows them. */
TEST(every_product_assembles)
{
    static const char *const types[] = {"bf16", "f16", "tf32", "e4m3", "s8"};
    qn_error error;
    nvrtc *n = nvrtc_new();
    if (nvrtc_ready(n, &error) != QN_OK) {
        printf("note: skipped: %s\n", error.message);
        nvrtc_free(n);
        return;
    }
    text source = {0}, calls = {0};
    char words[2 * COUNT(types)][32], copies[12][24];
    const char *names[2 * COUNT(types) + 14];
    int count = 0;
    for (int i = 0; i < 2 * COUNT(types); i++) {
        snprintf(words[i], sizeof(words[i]), "wgmma_%s_n32%s", types[i / 2], i % 2 ? "_ra" : "");
        names[count++] = words[i];
        text_print(&calls, "    %s(%s, %s, b, 1);\n", words[i], i / 2 == 4 ? "whole" : "real",
                   i % 2 ? "x, x, x, x" : "a");
    }
    for (int i = 0; i < 12; i++) {
        static const char *const forms[] = {"bulk_in_%dd", "bulk_in_%dd_to", "bulk_out_%dd"};
        static const char *const more[] = {"", ", 2", ", 2, 3", ", 2, 3, 4"};
        text name = {0};
        text_print(&name, forms[i / 4], 2 + i % 4);
        snprintf(copies[i], sizeof(copies[i]), "%s", text_get(&name));
        text_free(&name);
        names[count++] = copies[i];
        text_print(&calls, "    %s(%s, 0, 1%s%s);\n", copies[i], i < 8 ? "room, &frame.map, bar" : "&frame.map, room",
                   more[i % 4], i / 4 == 1 ? ", 3" : "");
    }
    names[count++] = "roles";
    const char *unknown = NULL;
    EXPECT(prelude_cuda_emit(names, count, &source, &unknown));
    text_print(
        &source,
        "struct frame_of { tensor_map map; };\n"
        "extern \"C\" __global__ void __launch_bounds__(128) all(const __grid_constant__ frame_of frame, float *y)\n"
        "{\n"
        "    extern __shared__ __align__(1024) char room[];\n"
        "    unsigned long long *bar = (unsigned long long *)room;\n"
        "    float real[16];\n"
        "    int whole[16];\n"
        "    unsigned x = threadIdx.x;\n"
        "    for (int i = 0; i < 16; i++) real[i] = whole[i] = i;\n"
        "    const unsigned long long a = matrix_descriptor<64>(room, 16, 512),\n"
        "                             b = matrix_descriptor<32>(room, 16, 256);\n"
        "    map_prefetch(&frame.map);\n"
        "    phase_arrive_at(bar, 1);\n"
        "    bulk_wait<0>();\n"
        "    registers_less<40>();\n"
        "    registers_more<232>();\n"
        "    barrier_named_arrive(2, 128);\n"
        "    matrix_fence();\n"
        "%s"
        "    matrix_commit();\n"
        "    matrix_wait<0>();\n"
        "    matrix_keep(real);\n"
        "    matrix_keep(whole);\n"
        "    for (int i = 0; i < 16; i++) y[threadIdx.x * 16 + i] = real[i] + whole[i];\n"
        "}\n",
        text_get(&calls));
    nvrtc_output o = {0};
    qn_status status = nvrtc_compile(n, text_get(&source), "all.cu", &(nvrtc_options){.arch = 90}, &o, &error);
    if (status != QN_OK) printf("%s\n", error.message);
    EXPECT(status == QN_OK);
    nvrtc_output_free(&o);
    text_free(&source);
    text_free(&calls);
    nvrtc_free(n);
}

/* Every function of the rule exists for its widths and for nothing else. */
TEST(names_by_rule)
{
    static const struct {
        const char *name;
        bool good;
    } cases[] = {{"wgmma_bf16_n8", true},      {"wgmma_f16_n256_ra", true}, {"wgmma_tf32_n96", true},
                 {"wgmma_e4m3_n128_ra", true}, {"wgmma_s8_n128", true},     {"wgmma_s8_n40", false},
                 {"wgmma_bf16_n12", false},    {"wgmma_bf16_n264", false},  {"wgmma_f32_n64", false},
                 {"bulk_in_5d_to", true},      {"bulk_in_3d", true},        {"bulk_out_5d", true},
                 {"bulk_in_1d", false},        {"bulk_out_2d_to", false},   {"bulk_in_6d", false}};
    for (int i = 0; i < COUNT(cases); i++) {
        text out = {0};
        const char *unknown = NULL;
        EXPECT(prelude_cuda_emit(&cases[i].name, 1, &out, &unknown) == cases[i].good);
        text_free(&out);
    }
}

TEST(open_engine)
{
    compiler_find_cpp(&cpp);
    EXPECT(cpp.path[0]);
    engine = emu_engine_new(2);
}

TEST(close_engine)
{
    emu_engine_free(engine);
}

TEST_MAIN(CASE(open_engine), CASE(the_product_is_right), CASE(what_is_left_out_is_found), CASE(the_text_is_for_the_gpu),
          CASE(every_product_assembles), CASE(names_by_rule), CASE(close_engine))
