/*
 * The C emitter, by execution: every kernel of tests/programs, and kernels for what is special in the emitter, at odd
 * and even sizes, with tiles that do not divide them, for each element type, and on views of every kind.
 * SPDX-License-Identifier: MIT
 */
#include "emitted.h"
#include "share.h"

#define PROGRAMS QUERN_ROOT "/tests/programs/"

typedef struct run {
    const char *file, *kernel, *settings;
} run;

static const run runs[] = {
    {"a01_pointwise.qn", "add", "n=1000 BLOCK=64"},
    {"a01_pointwise.qn", "add", "n=37 BLOCK=8"},
    {"a01_pointwise.qn", "add", "n=0 BLOCK=8"},
    {"a01_pointwise.qn", "add", "n=1 BLOCK=1"},
    {"a01_pointwise.qn", "gelu_tile", "n=1000 BLOCK=128"},
    {"a01_pointwise.qn", "gelu_tile", "n=1600 BLOCK=128"},
    {"a02_softmax.qn", "softmax_row", "rows=3 cols=208"},
    {"a02_softmax.qn", "softmax_three", "rows=3 cols=128 BLOCK=64"},
    {"a02_softmax.qn", "softmax_three", "rows=5 cols=100 BLOCK=32"},
    {"a02_softmax.qn", "softmax_three", "rows=3 cols=7 BLOCK=3"},
    {"a02_softmax.qn", "softmax_online", "rows=5 cols=101 BLOCK=32"},
    {"a02_softmax.qn", "softmax_row", "rows=4 cols=77"},
    {"a02_softmax.qn", "softmax_row", "rows=3 cols=1"},
    {"a02_softmax.qn", "softmax_short", "rows=13 cols=20 R=4"},
    {"a02_softmax.qn", "softmax_batched", "B=2 L=3 D=33"},
    {"a02_softmax.qn", "softmax_batched", "B=3 L=4 D=48"},
    {"a03_norms.qn", "layer_norm", "rows=5 cols=70 eps=0.01"},
    {"a03_norms.qn", "layer_norm", "rows=2 cols=320 eps=0.01"},
    {"a03_norms.qn", "layer_norm", "rows=2 cols=325 eps=0.01"},
    {"a03_norms.qn", "layer_norm_welford", "rows=5 cols=70 eps=0.01 BLOCK=32"},
    {"a03_norms.qn", "rms_norm_backward", "rows=7 cols=50 P=3 BC=16 eps=0.01"},
    {"a04_reductions.qn", "cross_entropy", "B=5 V=37 @target=37"},
    {"a04_reductions.qn", "sum_tree", "n=1003"},
    {"a04_reductions.qn", "sum_atomic", "n=1003 BLOCK=64"},
    {"a04_reductions.qn", "sum_two_step", "n=1003 P=5 BLOCK=32"},
    {"a04_reductions.qn", "argmax_rows", "rows=7 cols=37 R=4"},
    {"a04_reductions.qn", "cumsum_rows", "rows=3 cols=53"},
    {"a04_reductions.qn", "cumsum_long", "n=103 BLOCK=16"},
    {"a04_reductions.qn", "histogram", "n=1000 BLOCK=64"},
    {"a04_reductions.qn", "topk", "rows=3 cols=40 K=4"},
    {"a05_matmul.qn", "matmul_naive", "M=7 N=35 K=20 BN=16"},
    {"a05_matmul.qn", "matmul", "M=37 N=45 K=29 BM=16 BN=32 BK=8"},
    {"a05_matmul.qn", "matmul_grouped", "M=37 N=45 K=29 BM=16 BN=16 BK=8 G=2"},
    {"a05_matmul.qn", "matmul_abt", "B=2 M=19 N=23 K=17 BM=8 BN=16 BK=8"},
    {"a05_matmul.qn", "linear_act", "M=19 N=23 K=17 BM=8 BN=16 BK=8"},
    {"a05_matmul.qn", "matmul_split", "M=19 N=23 K=40 SPLIT=2 BM=8 BN=16 BK=8"},
    {"a05_matmul.qn", "lora", "M=19 N=23 K=17 R=4 alpha=0.5 BM=8 BN=16 BK=8"},
    {"a06_convolution.qn", "conv2d", "B=2 C=5 H=9 W=11 O=6 R=3 S=3 PAD=1 STRIDE=2 BO=4 BQ=4 BC=3"},
    {"a06_convolution.qn", "conv2d", "B=1 C=2 H=6 W=5 O=3 R=2 S=3 PAD=2 STRIDE=1 BO=4 BQ=8 BC=8"},
    {"a06_convolution.qn", "conv2d_gather", "B=2 C=3 H=7 W=6 O=5 R=3 S=3 PAD=1 STRIDE=1 BM=8 BO=4 BK=8"},
    {"a06_convolution.qn", "blur", "H=19 W=45 BH=4 BW=32"},
    {"a06_convolution.qn", "transpose_tile", "M=37 N=45 B=16"},
    {"a07_embeddings.qn", "embed", "B=21 F=3 V=40 W=44 E=8 COL=16 BB=8 @id=40 @base=20 @size=5"},
    {"a07_embeddings.qn", "embed_exact", "n=70 V=31 BLOCK=16 @id=70 @token=..60"},
    {"a07_embeddings.qn", "embed_backward", "n=37 V=9 E=5 BLOCK=8 @id=9"},
    {"a07_embeddings.qn", "embed_bag", "n=40 B=5 B1=6 V=11 E=20 @id=11 @start=..40"},
    {"a08_attention.qn", "attention", "B=2 H=2 L=13 S=17 D=8 scale=0.4 BM=8 BN=8"},
    {"a08_attention.qn", "attention", "B=1 H=2 L=19 S=19 D=16 scale=0.4 BM=8 BN=4 CAUSAL=true"},
    {"a08_attention.qn", "attention_delta", "B=2 H=2 L=13 D=8 BM=4"},
    {"a08_attention.qn", "attention_backward_kv", "B=1 H=2 L=13 S=11 D=8 scale=0.4 BM=8 BN=8"},
    {"a08_attention.qn", "attention_backward_q", "B=1 H=2 L=13 S=13 D=8 scale=0.4 BM=8 BN=8 CAUSAL=true"},
    {"a08_attention.qn", "rope", "B=2 L=11 H=2 D=16 BL=4"},
    {"a09_inplace.qn", "bias_act", "M=7 N=45 m=0.5 BM=4 BN=32"},
    {"a09_inplace.qn", "dropout", "n=300 p=0.3 seed=7 offset=11 BLOCK=64"},
    {"a09_inplace.qn", "adam", "n=100 rate=0.1 b1=0.9 b2=0.99 eps=0.001 step=3 BLOCK=32 @v=+"},
    {"a09_inplace.qn", "mandelbrot", "H=10 W=21 limit=30 BH=4 BW=16"},
};

static const run features[] = {
    {"features.qn", "fold_middle", "A=3 B=5 C=37"},
    {"features.qn", "fold_middle", "A=1 B=4 C=16"},
    {"features.qn", "fold_kinds", "n=50 @x=9"},
    {"features.qn", "argmax_columns", "T=f32 rows=7 cols=37"},
    {"features.qn", "argmax_columns", "T=f16 rows=1 cols=5"},
    {"features.qn", "scan_axes", "A=5 B=37"},
    {"features.qn", "reshapes", "A=6 B=20"},
    {"features.qn", "permutes", "T=f32 A=3 B=17 C=20"},
    {"features.qn", "permutes", "T=bf16 A=3 B=5 C=33"},
    {"features.qn", "swaps", "n=70"},
    {"features.qn", "turns", "B=9"},
    {"features.qn", "turns", "B=33 N=2"},
    {"features.qn", "branches", "n=70"},
    {"features.qn", "slices", "n=100 p=4 @start=..40 @length=..50"},
    {"features.qn", "steps", "T=f32 n=150"},
    {"features.qn", "steps", "T=f64 n=64"},
    {"features.qn", "overlap", "n=50"},
    {"features.qn", "overlap", "n=90"},
    {"features.qn", "atomics", "n=100 m=7 @id=7 @x=20"},
    {"features.qn", "batched", "T=f32 B=3 M=7 N=18 K=9"},
    {"features.qn", "batched", "T=bf16 B=2 M=4 N=5 K=3"},
    {"features.qn", "long_dot", "T=f32 M=19 N=33 K=41"},
    {"features.qn", "deep_dots", "T=f32 M=19 P=27 N=37 K=41 from=3 to=30"},
    {"features.qn", "deep_dots", "T=f32 M=19 P=19 N=32 K=300 from=-5 to=290"},
    {"features.qn", "deep_dots", "T=bf16 M=9 P=9 N=20 K=16 from=16 to=8"},
    {"features.qn", "small_dots", "M=5 N=17 K=9"},
    {"features.qn", "maps", "n=50 @x=30"},
    {"features.qn", "precise_one", "n=50"},
    {"features.qn", "keeps", "n=21 m=70"},
    {"features.qn", "scatters", "n=9 m=40 E=5 @id=..38"},
    {"features.qn", "rank_zero", ""},
    {"features.qn", "costly_rows", "n=21 m=70"},
    {"features.qn", "checks", "n=70"},
    {"features.qn", "small_types", "n=70"},
    {"features.qn", "rows_two", "T=f32 rows=9 cols=64"},
    {"features.qn", "rows_two", "T=bf16 rows=2 cols=96"},
    {"features.qn", "rows_two", "T=f32 rows=1 cols=16"},
    {"features.qn", "rows_four", "T=f32 rows=11 cols=80"},
    {"features.qn", "rows_four", "T=f32 rows=3 cols=48"},
    {"features.qn", "rows_four", "T=f16 rows=6 cols=37"},
    {"features.qn", "rows_far", "T=f32 rows=7 cols=64"},
    {"features.qn", "rows_picked", "T=f32 n=12 rows=9 cols=64 @row=12"},
    {"features.qn", "rows_streamed", "T=f32 rows=5 cols=101"},
    {"features.qn", "rows_streamed", "T=f32 rows=5 cols=192"},
    {"features.qn", "long_chain", "n=1600"},
    {"features.qn", "long_chain", "n=1001"},
};

static bool is_generic(const char *kernel)
{
    static const char *const fixed[] = {"gelu_tile",   "sum_tree",    "sum_atomic", "sum_two_step",
                                        "cumsum_rows", "cumsum_long", "histogram",  "topk",
                                        "blur",        "embed_exact", "adam",       "mandelbrot"};
    for (int i = 0; i < COUNT(fixed); i++)
        if (!strcmp(kernel, fixed[i])) return false;
    return true;
}

/* each, first: of the runs; views from..to. */
static void run_all(dtype t, int from, int to, int each, int first)
{
    const char *only = environment_get("QUERN_ONLY");
    /* Their scalar functions take float: a double argument would narrow (E213). */
    static const char *const float_only[] = {"softmax_batched", "linear_act", "lora", "bias_act"};
    for (int i = first; i < COUNT(runs); i += each * share_of_few("programs")) {
        char settings[256], path[512];
        bool generic = is_generic(runs[i].kernel), skip = only && strcmp(only, runs[i].kernel);
        for (int f = 0; f < COUNT(float_only); f++) skip |= t == DT_F64 && !strcmp(float_only[f], runs[i].kernel);
        if (skip || (!generic && t != DT_F32)) continue;
        snprintf(settings, sizeof(settings), "%s%s %s", generic ? "T=" : "", generic ? dtypes[t].text : "",
                 runs[i].settings);
        snprintf(path, sizeof(path), "%s%s", PROGRAMS, runs[i].file);
        run_case(path, runs[i].kernel, settings, from, to);
    }
}

TEST(programs_with_facts)
{
    run_all(DT_F32, VIEW_FACTS, VIEW_FACTS, 1, 0);
}

TEST(programs_on_views)
{
    run_all(DT_F32, VIEW_PLAIN, VIEW_TURNED, 1, 0);
}

TEST(programs_f64)
{
    run_all(DT_F64, VIEW_PLAIN, VIEW_PLAIN, 2, 0);
    run_all(DT_F64, VIEW_FACTS, VIEW_FACTS, 2, 1);
}

TEST(programs_16_bits)
{
    run_all(DT_F16, VIEW_FACTS, VIEW_FACTS, 2, 0);
    run_all(DT_BF16, VIEW_FACTS, VIEW_FACTS, 2, 1);
    run_all(DT_BF16, VIEW_GAPS, VIEW_GAPS, 6, 0);
}

TEST(features_of_the_language)
{
    const char *only = environment_get("QUERN_ONLY");
    for (int i = 0; i < COUNT(features); i += share_of_few("programs")) {
        if (only && strcmp(only, features[i].kernel)) continue;
        run_case(QUERN_ROOT "/tests/text/c/features.qn", features[i].kernel, features[i].settings, VIEW_FACTS,
                 VIEW_FACTS);
        run_case(QUERN_ROOT "/tests/text/c/features.qn", features[i].kernel, features[i].settings, VIEW_PLAIN,
                 VIEW_TURNED);
    }
}

TEST_MAIN(CASE(features_of_the_language), CASE(programs_with_facts), CASE(programs_on_views), CASE(programs_f64),
          CASE(programs_16_bits))
