/*
 * The text of generated CUDA: what it must say for the accesses, barriers and guards of small kernels. That it computes
 * the right thing is tested where it runs (the matrix and the programs, on emu and on a GPU).
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "test.h"

#include "launch_of.h"

#include <quern/quern.h>

static text emitted;

/* The kernels alone, without the prelude. */
static const char *emit_text(const char *file, const char *name, const char *settings, bool checked)
{
    cuda_target target = cuda_target_default(90);
    target.checked = checked;
    qn_error error;
    launch_of l = launch_make(file, name, settings, &target);
    text_clear(&emitted);
    if (l.kernel && emit_cuda(l.kernel, &target, &emitted, NULL, &error) != QN_OK)
        test_fail(__FILE__, __LINE__, error.message);
    launch_free(&l);
    const char *kernels = strstr(text_get(&emitted), "extern \"C\" __global__");
    EXPECT(kernels);
    return kernels ? kernels : "";
}

TEST(frame)
{
    emit_text("kernels/softmax.qn", "softmax_row", "T=bf16 rows=4 cols=64", false);
    static const char *const fields[] = {"struct softmax_row_frame",
                                         "unsigned short *x_array",
                                         "x_extent0, x_extent1",
                                         "x_stride0, x_stride1",
                                         "*y_array",
                                         "long rows;",
                                         "long cols;",
                                         "long programs[3]",
                                         "long *report",
                                         "char *scratch",
                                         "unsigned *sync",
                                         "long *print",
                                         "long units"};
    const char *at = text_get(&emitted);
    for (int i = 0; i < COUNT(fields) && at; i++) {
        at = strstr(at, fields[i]);
        EXPECT(at); /* in this order */
    }
}

TEST(vectors)
{
    const char *t = emit_text("kernels/gelu.qn", "gelu_tile", "n=268435456", false);
    EXPECT(test_count(t, "load_f32x4_constant_if(") == 1 && test_count(t, "store_f32x4_if(") == 1);
    EXPECT(!strstr(t, "__syncthreads") && !strstr(t, "for (long program"));
    t = emit_text("kernels/bias_act.qn", "bias_act", "T=bf16 M=262144 N=1024", false);
    EXPECT(strstr(t, "load_bf16x8_if(") && strstr(t, "store_bf16x8_if(")); /* x is read and written */
    EXPECT(strstr(t, "load_bf16x8_constant_if("));                         /* bias is only read */
    t = emit_text("kernels/gelu.qn", "gelu_tile", "n=4097", false);
    EXPECT(strstr(t, "load_f32x4") && strstr(t, "else for (int v = 0; v < 4; v++)")); /* over the end: one by one */
    t = emit_text("kernels/softmax.qn", "softmax_row", "T=f32 rows=8 cols=333", false);
    EXPECT(strstr(t, "const int shift0 = ") && strstr(t, "load_f32x4")); /* rows of 333 floats begin anywhere */
}

TEST(barriers)
{
    const char *t = emit_text("kernels/transpose.qn", "transpose_tile", "T=f32 M=8192 N=8192", false);
    EXPECT(test_count(t, "__syncthreads();") == 1);
    t = emit_text("kernels/softmax.qn", "softmax_row", "T=f32 rows=64 cols=1000", false);
    EXPECT(!strstr(t, "__syncthreads") && strstr(t, "lanes_fold_max_f32"));
    t = emit_text("kernels/layernorm.qn", "layer_norm", "T=f32 rows=64 cols=10000", false);
    EXPECT(strstr(t, "block_fold_sum_f32") && strstr(t, "fold_turn ^= 1;"));
    t = emit_text("kernels/layernorm.qn", "layer_norm", "T=f32 rows=64 cols=200000", false);
    EXPECT(strstr(t, "cluster_fold_sum_f32") && strstr(t, "copy_async(") && strstr(t, "copy_wait<0>"));
    t = emit_text("kernels/sum.qn", "sum_tree", "n=1073741824", false);
    EXPECT(strstr(t, "grid_fold_sum_f32") && strstr(t, "for (; c < n_")); /* the rest of a row no chip holds */
}

TEST(launches)
{
    /* A phase of one program is for the last block of the phase before. */
    const char *t = emit_text("kernels/sum.qn", "sum_two_step", "n=67108864", false);
    EXPECT(test_count(t, "__global__") == 2 && test_count(t, "&& grid_last(frame.sync)) {") == 1);
    /* What this launch wrote is not read as if it were constant. */
    const char *join = strstr(t, "grid_last"), *next = join ? strstr(join, "__global__") : NULL;
    EXPECT(next && !memmem(join, (size_t)(next - join), "_constant", 9));
    t = emit_text("kernels/layernorm.qn", "layer_norm_split", "T=f32 rows=64 cols=4194304", false);
    EXPECT(test_count(t, "__global__") == 3 && !strstr(t, "grid_last"));
    /* All that touches memory waits for the launch before. */
    EXPECT(test_count(t, "if (grid_begin() == 0 && ") == 3 && test_count(t, "grid_call();") == 3);
}

static const char affine[] = "kernel affine(in float x[rows][cols], in float gain[cols], out float y[rows][cols])\n"
                             "    launch (cdiv(cols, 1024))\n"
                             "{\n"
                             "    int j = program(0) * 1024;\n"
                             "    tile float g = gain[j : 1024];\n"
                             "    for (int r = 0; r < rows; r++)\n"
                             "        y[r][j : 1024] = x[r][j : 1024] * g;\n"
                             "}\n";

/* What each trip of a loop needs of memory is loaded before it. */
TEST(loops)
{
    char path[] = "/tmp/quern-test-XXXXXX";
    qn_error error;
    EXPECT(mkdtemp(path));
    char file[64];
    snprintf(file, sizeof(file), "%s/affine.qn", path);
    EXPECT(file_write(file, affine, sizeof(affine) - 1, &error) == QN_OK);
    const char *t = emit_text(file, "affine", "rows=64 cols=65536", false), *loop = strstr(t, "for (long r_");
    EXPECT(loop && !strstr(loop, "gain_array") && strstr(t, "/* g */"));
    EXPECT(test_count(t, "load_f32x4_constant") == 2);
    remove(file);
    remove(path);
}

TEST(readable)
{
    const char *t = emit_text("kernels/softmax.qn", "softmax_row", "T=f32 rows=64 cols=1000", false);
    EXPECT(strstr(t, "/* 39: v = exp(v - max(v)); */") && strstr(t, "; /* v */"));
    text once = {0};
    text_add(&once, text_get(&emitted));
    emit_text("kernels/softmax.qn", "softmax_row", "T=f32 rows=64 cols=1000", false);
    EXPECT_TEXT(text_get(&emitted), text_get(&once)); /* the same kernel, the same bytes */
    text_free(&once);
}

/* Lines that run backwards go by whole vectors, turned round in registers. */
TEST(backwards)
{
    static const char words[] = "kernel turn\n"
                                "  param n extent i64 by16\n"
                                "  param x in f32 [n] backwards\n"
                                "  param y out f32 [n] contiguous aligned last_unit\n"
                                "head {\n"
                                "  %1.n = arg n : i64\n"
                                "  %2 = const 1024 : i64\n"
                                "  %3 = div %1.n, %2 : i64\n"
                                "  launch 0 %3\n"
                                "}\n"
                                "phase {\n"
                                "  %4 = program 0 : i64\n"
                                "  %5 = const 1024 : i64\n"
                                "  %6 = mul %4, %5 : i64\n"
                                "  %7 = const 1 : i64\n"
                                "  %8 = load x[%6:%7 @0] : f32[1024]\n"
                                "  store y[%6:%7 @0] = %8\n"
                                "}\n";
    arena *memory = arena_new();
    cuda_target target = cuda_target_default(90);
    tile_kernel *k;
    qn_error error = {0};
    text emitted = {0};
    EXPECT(tile_read(memory, "turn.tile", words, sizeof(words) - 1, &k, &error) == QN_OK &&
           emit_cuda(k, &target, &emitted, NULL, &error) == QN_OK);
    if (error.message[0]) printf("%s\n", error.message);
    EXPECT(strstr(text_get(&emitted), "load_f32x4_constant_if(back, ") && strstr(text_get(&emitted), "= back[3];"));
    EXPECT(strstr(text_get(&emitted), "store_f32x4_if("));
    text_free(&emitted);
    arena_free(memory);
}

TEST(checked)
{
    const char *t = emit_text("kernels/softmax.qn", "softmax_row", "T=f32 rows=64 cols=1024", true);
    EXPECT(test_count(t, "checked(") >= 2 && !strstr(t, "x4"));
    t = emit_text("kernels/softmax.qn", "softmax_row", "T=f32 rows=64 cols=1024", false);
    EXPECT(!strstr(t, "checked("));
    text_free(&emitted);
}

/* From the call to the launch: a walk to see, one to write; none to load it or to find the launch's shape. */
TEST(emitted_once)
{
    qn_context *context = NULL;
    qn_module *module = NULL;
    qn_call *call = NULL;
    qn_error error;
    float x[48] = {0}, y[48];
    const int64_t extents[] = {3, 16};
    EXPECT(qn_context_open(&(qn_context_options){.no_cache = true, .threads = 1}, &context, &error) == QN_OK);
    EXPECT(qn_module_load_file(context, QUERN_ROOT "/kernels/softmax.qn", &module, &error) == QN_OK);
    EXPECT(qn_call_new(module, "softmax_row", &call, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "x", x, QN_F32, 2, extents, NULL, &error) == QN_OK);
    EXPECT(qn_call_set_memory(call, "y", y, QN_F32, 2, extents, NULL, &error) == QN_OK);
    int64_t before = cuda_walks();
    EXPECT(qn_call_run(call, "emu", &error) == QN_OK && y[47] == 1.0f / 16);
    EXPECT(cuda_walks() - before == 1);
    EXPECT(qn_call_run(call, "emu", &error) == QN_OK && cuda_walks() - before == 1);
    qn_call_free(call);
    qn_module_free(module);
    qn_context_close(context);
}

TEST_MAIN(CASE(emitted_once), CASE(frame), CASE(vectors), CASE(barriers), CASE(launches), CASE(loops), CASE(readable),
          CASE(checked), CASE(backwards))
