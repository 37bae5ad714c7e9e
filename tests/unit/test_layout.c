/*
 * Teams, layouts and homes that are chosen for a GPU, and the shapes of launches: pure, no device is needed. The sizes
 * are those of the benchmarks; what is expected is what measurements on an H200 asked for.
 * SPDX-License-Identifier: MIT
 */
#include "test.h"

#include "launch_of.h"

static const cuda_target *h200(void)
{
    static cuda_target target;
    target = cuda_target_default(90);
    return &target;
}

static cuda_shape shape(const char *file, const char *name, const char *settings, int phase, const cuda_target *target)
{
    cuda_shape s = {0};
    qn_error error;
    launch_of l = launch_make(file, name, settings, target);
    EXPECT(l.kernel);
    if (l.kernel && cuda_geometry(l.kernel, phase, &l.plan, l.arrays, target, &s, &error) != QN_OK)
        test_fail(__FILE__, __LINE__, error.message);
    launch_free(&l);
    return s;
}

/* Does --stage layout say it? What it says is shown when that is not as `expected`. */
static bool layout_tells(const char *file, const char *name, const char *settings, const char *words, bool expected)
{
    qn_error error;
    text out = {0};
    launch_of l = launch_make(file, name, settings, h200());
    bool found =
        l.kernel && emit_layout_print(l.kernel, h200(), &out, &error) == QN_OK && strstr(text_get(&out), words);
    if (found != expected) printf("%s\n", text_get(&out));
    text_free(&out);
    launch_free(&l);
    return found;
}

static bool layout_says(const char *file, const char *name, const char *settings, const char *words)
{
    return layout_tells(file, name, settings, words, true);
}

TEST(elementwise)
{
    cuda_shape s = shape("kernels/gelu.qn", "gelu_tile", "n=268435456", 0, h200());
    EXPECT(s.threads == 128 && s.grid[0] == 262144 && !s.shared_bytes && !s.cooperative);
    s = shape("kernels/gelu.qn", "gelu_element", "n=1000", 0, h200());
    EXPECT(s.threads == 128 && s.grid[0] == 8); /* a program for each thread */
    EXPECT(layout_says("kernels/gelu.qn", "gelu_tile", "n=268435456", "vectors of 4"));
    EXPECT(layout_says("kernels/bias_act.qn", "bias_act", "T=bf16 M=262144 N=1024", "vectors of 8"));
    EXPECT(layout_says("kernels/gelu.qn", "gelu_tile", "n=268435457", "vectors of 4")); /* the end is taken apart */
}

TEST(rows_by_length)
{
    const char *file = "kernels/softmax.qn", *name = "softmax_row";
    cuda_shape s = shape(file, name, "T=f32 rows=131072 cols=256", 0, h200());
    EXPECT(s.threads == 128 && s.grid[0] == 131072 / 8); /* 16 lanes a row */
    s = shape(file, name, "T=f32 rows=131072 cols=200", 0, h200());
    EXPECT(s.grid[0] == 131072 / 8);
    s = shape(file, name, "T=f32 rows=131072 cols=32", 0, h200());
    EXPECT(s.grid[0] == 131072 / 32); /* 4 lanes a row, two vectors each */
    s = shape(file, name, "T=f32 rows=65536 cols=1024", 0, h200());
    EXPECT(s.threads == 128 && s.grid[0] == 65536 / 4);
    s = shape(file, name, "T=f32 rows=16384 cols=16384", 0, h200());
    EXPECT(s.threads == 512 && s.grid[0] == 16384 && s.cluster == 1 && !s.shared_bytes);
    s = shape(file, name, "T=f32 rows=16384 cols=4096", 0, h200());
    EXPECT(s.threads == 128 && s.grid[0] == 16384);
    s = shape(file, name, "T=bf16 rows=16384 cols=16384", 0, h200());
    EXPECT(s.threads == 256 && !s.shared_bytes);
    s = shape(file, name, "T=f32 rows=8192 cols=65536", 0, h200());
    EXPECT(s.threads == 1024 && s.cluster == 1 && s.shared_bytes == 12 * 16 * 1024);
    s = shape(file, name, "T=f32 rows=1024 cols=262144", 0, h200());
    EXPECT(s.threads == 512 && s.cluster == 8 && s.grid[0] == 8192 && s.shared_bytes == 12 * 16 * 512);
}

/* The whole chip on one row: two teams where the row is held, all blocks that fit where it is not. */
TEST(whole_chip)
{
    cuda_shape s = shape("kernels/layernorm.qn", "layer_norm", "T=f32 rows=64 cols=4194304", 0, h200());
    EXPECT(s.cooperative && s.grid[0] == 256 && s.threads <= 512 && s.sync_bytes > 0);
    EXPECT((int64_t)s.grid[0] / 2 * s.threads * 64 >= 4194304);
    s = shape("kernels/layernorm.qn", "layer_norm", "T=f32 rows=64 cols=393216", 0, h200());
    EXPECT(s.cooperative && s.grid[0] == 264 && s.threads == 512); /* 22 teams of 12 blocks */
    s = shape("kernels/layernorm.qn", "layer_norm", "T=f32 rows=2 cols=393216", 0, h200());
    EXPECT(s.cooperative && s.grid[0] == 192 && s.threads == 64); /* two rows: the whole chip on them */
    s = shape("kernels/sum.qn", "sum_tree", "n=1073741824", 0, h200());
    EXPECT(s.cooperative && s.grid[0] == 528 && !s.scratch_bytes);
}

/* A GPU without clusters, with little shared memory: other teams, and no more than it has. */
TEST(smaller_devices)
{
    static const int archs[] = {75, 80, 86, 89, 120};
    for (int i = 0; i < COUNT(archs); i++) {
        cuda_target target = cuda_target_default(archs[i]);
        static const char *const sizes[] = {"T=f32 rows=64 cols=65536", "T=f32 rows=64 cols=262144",
                                            "T=f32 rows=64 cols=16384"};
        for (int n = 0; n < COUNT(sizes); n++) {
            cuda_shape s = shape("kernels/softmax.qn", "softmax_row", sizes[n], 0, &target);
            EXPECT(s.shared_bytes <= target.shared_bytes);
            EXPECT(s.threads >= 32 && s.threads <= 1024);
            if (archs[i] < 90) EXPECT(s.cluster == 1);
        }
    }
}

TEST(homes)
{
    const char *row = "T=f32 rows=16384 cols=16384";
    EXPECT(layout_says("kernels/softmax.qn", "softmax_row", row, ": registers"));
    EXPECT(!layout_tells("kernels/gelu.qn", "gelu_tile", "n=4096", "kept tile", false));
    EXPECT(layout_says("kernels/softmax.qn", "softmax_row", "T=f32 rows=64 cols=65536",
                       "registers, 12 vectors of 16 in shared memory"));
    EXPECT(layout_says("kernels/transpose.qn", "transpose_tile", "T=f32 M=8192 N=8192", "rows padded by 1"));
    EXPECT(layout_says("kernels/softmax.qn", "softmax_three", row, ": registers")); /* carried tiles */
}

/* Scratch is sized by the launch's own extents, not by what their types could hold. */
TEST(scratch_of_a_launch)
{
    for (int phase = 0; phase < 3; phase++) {
        cuda_shape s = shape("kernels/layernorm.qn", "layer_norm_split", "T=f32 rows=64 cols=4194304", phase, h200());
        EXPECT(s.scratch_bytes < (int64_t)1 << 30);
    }
}

TEST(no_programs)
{
    cuda_shape s = shape("kernels/gelu.qn", "gelu_tile", "n=0", 0, h200());
    EXPECT(s.grid[0] == 0);
}

/* Few threads with 64 elements of a 16-bit row each, unless they would hold several tiles of it at once. */
TEST(rows_of_several_tiles)
{
    static const char words[] = "kernel three(in bf16 x[rows][cols], in bf16 y[rows][cols], out bf16 z[rows][cols])\n"
                                "    launch (rows)\n"
                                "{\n"
                                "    tile float a = x[program(0)][:], b = y[program(0)][:];\n"
                                "    tile float c = exp(a) * tanh(b), d = tanh(a) * exp(b);\n"
                                "    float s = sum(c), t = sum(d), u = sum(a * b);\n"
                                "    z[program(0)][:] = bf16(c * s + d * t + a * u);\n"
                                "}\n";
    char path[] = "/tmp/quern-test-XXXXXX", file[64];
    qn_error error;
    EXPECT(mkdtemp(path));
    snprintf(file, sizeof(file), "%s/three.qn", path);
    EXPECT(file_write(file, words, sizeof(words) - 1, &error) == QN_OK);
    EXPECT(shape(file, "three", "rows=64 cols=4096", 0, h200()).threads == 128);
    EXPECT(shape("kernels/layernorm.qn", "layer_norm", "T=bf16 rows=64 cols=4096", 0, h200()).threads == 64);
    EXPECT(shape("kernels/softmax.qn", "softmax_row", "T=bf16 rows=64 cols=4096", 0, h200()).threads == 64);
    remove(file);
    remove(path);
}

/* Wishes of `tune`. */
TEST(knobs)
{
    qn_error error;
    cuda_shape s = {0};
    text out = {0};
    launch_of l = launch_make("kernels/softmax.qn", "softmax_row", "T=f32 rows=64 cols=16384", h200());
    EXPECT(l.kernel);
    for (int cluster = 1; cluster <= 8; cluster *= 2) {
        l.kernel->knobs[KNOB_CLUSTER] = cluster;
        EXPECT(cuda_geometry(l.kernel, 0, &l.plan, l.arrays, h200(), &s, &error) == QN_OK && s.cluster == cluster);
        EXPECT(s.grid[0] == 64 * cluster && s.threads * cluster * 32 == 16384);
    }
    l.kernel->knobs[KNOB_CLUSTER] = 3;
    EXPECT(cuda_geometry(l.kernel, 0, &l.plan, l.arrays, h200(), &s, &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "1, 2, 4 or 8"));
    launch_free(&l);
    l = launch_make("kernels/matmul.qn", "matmul_tiled", "T=f32 M=256 N=256 K=256 BM=64 BN=64", h200());
    EXPECT(l.kernel); /* a ring as long as is wished for leaves 32 KB, whatever lies between its lines: the sums are there */
    l.kernel->knobs[KNOB_STAGES] = 16;
    EXPECT(cuda_geometry(l.kernel, 0, &l.plan, l.arrays, h200(), &s, &error) == QN_OK);
    EXPECT(s.shared_bytes > 150 * 1024 && s.shared_bytes <= h200()->shared_bytes - 16 * 1024);
    launch_free(&l);
    l = launch_make("bench/gpu.qn", "product", "T=bf16 M=256 N=256 K=256", h200());
    EXPECT(l.kernel);
    int64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        l.kernel->knobs[KNOB_STAGES] = i ? 6 : 2;
        EXPECT(cuda_geometry(l.kernel, 0, &l.plan, l.arrays, h200(), &s, &error) == QN_OK);
        bytes[i] = s.shared_bytes;
        text_clear(&out);
        EXPECT(emit_cuda(l.kernel, h200(), &out, NULL, &error) == QN_OK);
        EXPECT(strstr(text_get(&out), i ? "true, true, 6, " : "true, true, 2, "));
    }
    EXPECT(bytes[1] > 2 * bytes[0]);
    l.kernel->knobs[KNOB_STAGES] = 1;
    EXPECT(emit_cuda(l.kernel, h200(), &out, NULL, &error) == QN_BAD_CALL && strstr(error.message, "2 to 16"));
    launch_free(&l);
    text_free(&out);
}

/* No launch has more threads than the bounds that its text promises. */
TEST(launch_bounds)
{
    static const char *const settings[] = {"T=f32 M=1 N=1 K=1 BM=1 BN=1 BK=1", "T=bf16 M=3 N=2 K=5 BM=1 BN=1 BK=1",
                                           "T=f32 M=100 N=60 K=32 BM=4 BN=2 BK=8",
                                           "T=f32 M=300 N=200 K=64 BM=64 BN=64 BK=32"};
    qn_error error;
    for (int i = 0; i < COUNT(settings); i++) {
        cuda_shape s = shape("kernels/matmul.qn", "matmul_tiled", settings[i], 0, h200());
        launch_of l = launch_make("kernels/matmul.qn", "matmul_tiled", settings[i], h200());
        text out = {0};
        int bound = 0;
        EXPECT(l.kernel && emit_cuda(l.kernel, h200(), &out, NULL, &error) == QN_OK);
        const char *words = strstr(text_get(&out), "__launch_bounds__(");
        EXPECT(words && sscanf(words, "__launch_bounds__(%d", &bound) == 1);
        EXPECT(s.threads <= bound && s.shared_bytes <= h200()->shared_bytes);
        text_free(&out);
        launch_free(&l);
    }
}

/* Packed rows of 16-bit floats leave room for the vectors beside them: with three blocks they would be spilled. */
TEST(room_beside_packed_rows)
{
    qn_error error;
    launch_of l = launch_make("kernels/layernorm.qn", "layer_norm", "T=bf16 rows=64 cols=4096", h200());
    text out = {0};
    EXPECT(l.kernel && emit_cuda(l.kernel, h200(), &out, NULL, &error) == QN_OK);
    EXPECT(strstr(text_get(&out), "__launch_bounds__(256, 2)") != NULL);
    text_free(&out);
    launch_free(&l);
    cuda_shape s = shape("kernels/layernorm.qn", "layer_norm", "T=bf16 rows=64 cols=65536", 0, h200());
    EXPECT(s.threads == 1024 && s.shared_bytes == 4 * 16 * 1024); /* half of the row in slots */
}

TEST_MAIN(CASE(launch_bounds), CASE(room_beside_packed_rows), CASE(elementwise), CASE(rows_by_length), CASE(whole_chip),
          CASE(smaller_devices), CASE(homes), CASE(scratch_of_a_launch), CASE(no_programs), CASE(rows_of_several_tiles),
          CASE(knobs))
