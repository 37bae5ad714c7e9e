/*
 * Convolutions on matrix units (schedule/fed_gather.c): the CUDA text for sm_90a on emu, against ref. One operand is laid
 * out anew, the other gathered by the warps that fill the ring: windows, strides, dilations, padding, groups, one to three
 * axes, transposed ones, gradients, bf16, f16 and f32 as terms. And what the assembler makes of the text: no spills.
 * Data are small whole numbers, so that sums are exact in every order.
 * SPDX-License-Identifier: MIT
 */
#include "device/cuda/cubin.h"
#include "device/cuda/nvrtc.h"
#include "ir/tile.h"
#include "share.h"
#include "test.h"

#include <quern/nn.h>
#include <quern/workbench.h>
#include <stdlib.h>

static qn_context *context;
static const char *tested = "emu"; /* or QUERN_TEST_DEVICE */
static bool rounds;                /* operands, to tf32; their numbers have more bits than bf16 */

typedef struct convolution {
    const char *name;
    qn_dtype elem;
    bool transposed;
    int64_t images, channels, outputs; /* of all groups */
    int axes;
    int64_t extent[3], size[3];
    qn_conv_options options;
    bool last; /* channels last in memory */
} convolution;

typedef enum wanted { FORWARD, BY_IMAGE, BY_WEIGHT } wanted;

static qn_tensor scaled(qn_tape *tape, qn_dtype elem, qn_shape s, int seed, int scale)
{
    int64_t count = 1;
    for (int i = 0; i < s.rank; i++) count *= s.extents[i];
    size_t size = (size_t)dtypes[elem].size_bytes;
    char *data = malloc((size_t)count * size + 1);
    for (int64_t i = 0; i < count; i++) {
        double x = (double)((i * (7 + seed) + i / (3 + seed) + i / 64) % 5 - 2) * scale;
        element_write((dtype)elem, data + (size_t)i * size, (number){.f = x});
    }
    qn_tensor t = qn_from_memory(tape, data, elem, s);
    free(data);
    return t;
}

static qn_tensor numbers(qn_tape *tape, qn_dtype elem, qn_shape s, int seed)
{
    return scaled(tape, elem, s, seed, 1);
}

/* The image with its channels last in memory, and first where it is looked at. */
static qn_tensor image(qn_tape *tape, const convolution *c, qn_shape s)
{
    if (!c->last) return scaled(tape, c->elem, s, 0, rounds ? 257 : 1);
    qn_shape moved = s;
    for (int i = 1; i + 1 < s.rank; i++) moved.extents[i] = s.extents[i + 1];
    moved.extents[s.rank - 1] = s.extents[1];
    qn_tensor t = numbers(tape, c->elem, moved, 0);
    for (int i = s.rank - 1; i > 1; i--) t = qn_transpose(t, i - 1, i);
    return t;
}

/* All elements, as double; NULL: it failed, which is printed. */
static double *run(const convolution *c, wanted what, const char *device, int64_t *count)
{
    qn_tape *tape;
    qn_error error = {0};
    EXPECT(qn_tape_new(context, device, &tape, &error) == QN_OK);
    if (rounds)
        qn_tape_set_tf32(tape, true);
    else
        qn_tape_set_products(tape, QN_PRODUCTS_TERMS);
    int64_t groups = c->options.groups ? c->options.groups : 1;
    qn_shape x = {2 + c->axes, {c->images, c->channels}};
    qn_shape w = {2 + c->axes,
                  {c->transposed ? c->channels : c->outputs, (c->transposed ? c->outputs : c->channels) / groups}};
    for (int i = 0; i < c->axes; i++) {
        x.extents[2 + i] = c->extent[i];
        w.extents[2 + i] = c->size[i];
    }
    qn_tensor given[2] = {image(tape, c, x), numbers(tape, c->elem, w, 1)};
    qn_tensor bias = numbers(tape, c->elem, QN_SHAPE(c->outputs), 2);
    qn_tensor y = c->transposed ? qn_conv_transpose(given[0], given[1], bias, &c->options)
                                : qn_relu(qn_conv(given[0], given[1], bias, &c->options));
    if (what != FORWARD) {
        qn_tensor seed = numbers(tape, c->elem, qn_tensor_shape(y), 3), gradient;
        y = c->transposed ? y : qn_conv(given[0], given[1], bias, &c->options);
        qn_grad_from(&y, &seed, 1, &given[what - 1], 1, &gradient);
        y = gradient;
    }
    y = qn_cast(y, QN_F32);
    qn_shape s = qn_tensor_shape(y);
    *count = 1;
    for (int i = 0; i < s.rank; i++) *count *= s.extents[i];
    float *read = malloc(sizeof(float) * (size_t)*count + 1);
    double *out = malloc(sizeof(double) * (size_t)*count + 1);
    bool good = qn_tensor_read(y, read, sizeof(float) * (size_t)*count, &error) == QN_OK;
    if (!good) printf("%s on %s: %s\n", c->name, device, error.message);
    for (int64_t i = 0; good && i < *count; i++) out[i] = read[i];
    free(read);
    qn_tape_free(tape);
    if (good) return out;
    free(out);
    return NULL;
}

static void compare(const convolution *c, wanted what)
{
    int64_t count[2];
    double *values[2] = {run(c, what, rounds ? "cpu" : "ref", &count[0]), run(c, what, tested, &count[1])};
    EXPECT(values[0] && values[1] && count[0] == count[1]);
    int64_t wrong = 0;
    for (int64_t i = 0; values[0] && values[1] && i < count[0]; i++)
        if (values[0][i] != values[1][i] && !wrong++)
            printf("%s, %d: element %d of %d is %g, not %g\n", c->name, what, (int)i, (int)count[0], values[1][i],
                   values[0][i]);
    if (wrong) printf("%s, %d: %d of %d are wrong\n", c->name, what, (int)wrong, (int)count[0]);
    EXPECT(!wrong);
    free(values[0]);
    free(values[1]);
}

static const convolution cases[] = {
    {"plain", QN_F32, false, 2, 5, 40, 2, {9, 11}, {3, 3}, {.padding = {1, 1}}, false},
    {"halves", QN_BF16, false, 2, 8, 70, 2, {9, 11}, {3, 3}, {.padding = {1, 1}}, false},
    {"f16", QN_F16, false, 1, 19, 33, 2, {12, 12}, {2, 5}, {.stride = {2, 1}}, false},
    {"dilated",
     QN_F32,
     false,
     1,
     7,
     66,
     2,
     {14, 13},
     {3, 2},
     {.stride = {1, 2}, .dilation = {2, 3}, .padding = {2, 0}},
     false},
    {"groups", QN_F32, false, 2, 12, 80, 2, {8, 9}, {3, 3}, {.padding = {1, 2}, .groups = 2}, false},
    {"beyond", QN_BF16, false, 1, 16, 32, 2, {4, 5}, {3, 3}, {.padding = {5, 6}}, false},
    {"line", QN_F32, false, 3, 9, 35, 1, {70}, {4}, {.stride = {3}, .padding = {2}}, false},
    {"space", QN_F16, false, 1, 3, 34, 3, {5, 6, 7}, {3, 2, 3}, {.padding = {1, 1, 1}}, false},
    {"last", QN_BF16, false, 2, 24, 72, 2, {7, 9}, {3, 3}, {.padding = {1, 1}}, true},
    {"last_f32", QN_F32, false, 1, 20, 40, 2, {7, 9}, {3, 3}, {.padding = {1, 1}}, true},
    {"transposed", QN_F32, true, 1, 9, 40, 2, {7, 6}, {3, 3}, {.stride = {2, 2}, .padding = {1, 1}}, false},
    {"spread",
     QN_BF16,
     true,
     1,
     8,
     40,
     2,
     {7, 6},
     {3, 3},
     {.stride = {3, 3}, .dilation = {2, 2}, .padding = {1, 1}},
     false},
};

/* Channels in 64s, last in memory: the copy engine walks the windows (schedule/fed_windows.c). */
static const convolution windows[] = {
    {"w_plain", QN_BF16, false, 3, 64, 72, 2, {7, 9}, {3, 3}, {.padding = {1, 1}}, true},
    {"w_strided", QN_F16, false, 2, 128, 40, 2, {9, 8}, {3, 2}, {.stride = {2, 3}, .padding = {1, 2}}, true},
    {"w_dilated", QN_BF16, false, 2, 64, 40, 2, {11, 10}, {3, 2}, {.dilation = {2, 3}, .padding = {2, 0}}, true},
    {"w_valid", QN_BF16, false, 2, 64, 40, 2, {8, 9}, {3, 2}, {.stride = {1, 2}}, true},
    {"w_line", QN_BF16, false, 3, 64, 40, 1, {50}, {5}, {.stride = {2}, .padding = {3}}, true},
    {"w_space", QN_BF16, false, 2, 64, 40, 3, {4, 5, 6}, {3, 2, 3}, {.padding = {1, 0, 1}}, true},
    {"w_groups", QN_BF16, false, 2, 128, 64, 2, {6, 7}, {3, 3}, {.padding = {1, 1}, .groups = 2}, true},
    {"w_one", QN_BF16, false, 1, 64, 40, 2, {12, 13}, {3, 3}, {.padding = {1, 1}}, true},
    {"w_one_line", QN_BF16, false, 1, 64, 40, 1, {150}, {5}, {.padding = {2}}, true},
    {"w_one_space",
     QN_BF16,
     false,
     1,
     64,
     40,
     3,
     {4, 5, 6},
     {3, 2, 3},
     {.stride = {2, 1, 1}, .padding = {1, 0, 1}},
     true},
    {"w_transposed", QN_BF16, true, 2, 64, 40, 2, {7, 6}, {3, 3}, {.padding = {1, 1}}, true},
    {"w_spread", QN_BF16, true, 2, 64, 40, 2, {7, 6}, {4, 4}, {.stride = {2, 2}, .padding = {1, 1}}, true},
};

static void keep(void *user, const char *words, size_t length)
{
    text_add_bytes(user, words, length);
}

/* Is this convolution fed by copies of windows? */
static bool walks_windows(const char *name, const char *const *settings, int count)
{
    qn_show_options options = {.stage = "schedule", .device = "cuda", .arch = "sm_90a", .settings = {settings, count}};
    text words = {0};
    qn_error error;
    EXPECT(qn_show(context, QUERN_ROOT "/tests/data/gathers.qn", name, &options, keep, &words, &error) == QN_OK);
    bool found = strstr(text_get(&words), " places, 64]") != NULL;
    text_free(&words);
    return found;
}

TEST(windows_of_channels)
{
    static const char *const settings[] = {"N=32", "H=56", "W=56", "KH=3", "KW=3", "O=256", "C=64"};
    static const char *const one[] = {"N=1", "H=256", "W=256", "KH=3", "KW=3", "O=256", "C=64"};
    static const char *const odd[] = {"N=32", "H=56", "W=56", "KH=3", "KW=3", "O=256", "C=40"};
    EXPECT(walks_windows("last", settings, COUNT(settings)));
    EXPECT(walks_windows("last", one, COUNT(one)) && walks_windows("halves", one, COUNT(one)));
    EXPECT(walks_windows("halves", settings, COUNT(settings))); /* from a copy that has its channels last */
    EXPECT(walks_windows("turned", settings, COUNT(settings))); /* moved elements of a product, added up */
    EXPECT(!walks_windows("last", odd, COUNT(odd)) && !walks_windows("halves", odd, COUNT(odd)));
    for (int i = 0; i < COUNT(windows); i += share_of_few("windows")) compare(&windows[i], FORWARD);
    compare(&windows[0], BY_IMAGE);
    compare(&windows[10], BY_IMAGE);
}

TEST(convolutions)
{
    for (int i = 0; i < COUNT(cases); i += share_of_few("convolutions")) compare(&cases[i], FORWARD);
}

TEST(gradients)
{
    for (int i = 0; i < COUNT(cases); i += 3 * share_of_few("convolutions"))
        for (int what = BY_IMAGE; what <= BY_WEIGHT; what++) compare(&cases[i], (wanted)what);
}

/* Windows that share no element are one product for all of their elements, and one kernel that lays them out. */
TEST(windows_apart_are_one_product)
{
    static const char *const settings[] = {"N=16", "H=64", "W=128", "KH=3", "KW=3", "O=64", "C=32"};
    qn_show_options options = {.stage = "fusion", .device = "cuda", .arch = "sm_90a", .settings = {settings, 7}};
    text words = {0};
    qn_error error;
    int kernels = 0;
    EXPECT(qn_show(context, QUERN_ROOT "/tests/data/gathers.qn", "spread", &options, keep, &words, &error) == QN_OK);
    for (const char *at = text_get(&words); (at = strstr(at, "kernel ")) != NULL; at++)
        kernels += at == text_get(&words) || at[-1] == '\n';
    EXPECT(kernels == 2);
    text_free(&words);
}

/* Forward, the gradient of the weights, that of the image: padding is neither written out for the first two nor cut off behind the
 * last one. */
TEST(padding_is_never_written)
{
    static const char *const settings[] = {"N=32", "H=56", "W=56", "KH=3", "KW=3", "O=64", "C=64"};
    qn_show_options options = {
        .stage = "fusion", .device = "cuda", .arch = "sm_90a", .backward = true, .settings = {settings, 7}};
    text words = {0};
    qn_error error;
    EXPECT(qn_show(context, QUERN_ROOT "/tests/data/gathers.qn", "learnt", &options, keep, &words, &error) == QN_OK);
    EXPECT(strstr(text_get(&words), "kernel 2: dot_") && !strstr(text_get(&words), "kernel 3:"));
    text_free(&words);
}

/* Operands that may be rounded to tf32: lines of k of one product, whatever way they lie. Large enough to be fed. */
static const convolution rounded[] = {
    {"r_chunks", QN_F32, false, 1, 20, 72, 2, {75, 70}, {3, 3}, {.padding = {1, 1}}, false},
    {"r_windows", QN_F32, false, 1, 32, 64, 2, {62, 62}, {3, 3}, {.padding = {1, 1}}, false},
    {"r_last", QN_F32, false, 1, 6, 66, 2, {84, 84}, {5, 5}, {.padding = {2, 2}}, true},
    {"r_lines", QN_F32, false, 1, 7, 70, 2, {75, 76}, {5, 5}, {.padding = {2, 2}}, false},
    {"r_apart",
     QN_F32,
     false,
     2,
     24,
     72,
     2,
     {80, 81},
     {3, 3},
     {.stride = {2, 1}, .dilation = {1, 2}, .groups = 2},
     false},
    {"r_line", QN_F32, false, 3, 48, 64, 1, {1500}, {5}, {.stride = {1}}, false},
    {"r_odd_tap", QN_F32, false, 1, 131, 67, 2, {91, 93}, {1, 1}, {.groups = 1}, false},
    {"r_space", QN_F32, false, 1, 9, 40, 3, {19, 20, 19}, {3, 3, 3}, {.padding = {1, 1, 1}}, false},
    {"r_turned", QN_F32, true, 1, 32, 64, 2, {40, 41}, {4, 4}, {.stride = {2, 2}, .padding = {1, 1}}, false},
    {"r_tap", QN_F32, false, 2, 72, 64, 2, {62, 62}, {1, 1}, {.groups = 1}, false},
};

TEST(rounded_operands_are_one_product)
{
    static const struct {
        const char *channels, *height, *width, *words;
    } texts[] = {{"C=64", "KH=3", "KW=3", " places, 32]"}, {"C=32", "KH=3", "KW=3", " places, 32]"},
                 {"C=96", "KH=3", "KW=3", " places, 32]"}, {"C=16", "KH=3", "KW=3", " by 16 bytes > "},
                 {"C=3", "KH=3", "KW=3", "  gather "},     {"C=64", "KH=1", "KW=1", "  take "}};
    for (int i = 0; i < COUNT(texts); i++) {
        const char *settings[] = {"N=16",  texts[i].channels, "H=256",       "W=256",
                                  "O=128", texts[i].height,   texts[i].width};
        qn_show_options options = {.stage = "schedule", .device = "cuda", .arch = "sm_90a", .settings = {settings, 7}};
        text words = {0};
        qn_error error;
        EXPECT(qn_show(context, QUERN_ROOT "/tests/data/gathers.qn", "rounded", &options, keep, &words, &error) ==
               QN_OK);
        EXPECT(test_count(text_get(&words), "wgmma_tf32") == 1 && strstr(text_get(&words), texts[i].words));
        text_free(&words);
    }
    bool all = strcmp(tested, "emu") != 0; /* each is 70 million multiplications */
    rounds = true;
    for (int i = 0; i < COUNT(rounded); i += all ? 1 : 3 * share_of_few("rounded")) {
        compare(&rounded[i], FORWARD);
        if (all) compare(&rounded[i], BY_IMAGE);
        if (all || !i) compare(&rounded[i], BY_WEIGHT);
    }
    rounds = false;
}

/* Products release a stage a step late: copies that were more than all stages but two ahead would wait for ever. */
TEST(copies_leave_two_stages)
{
    static const char *const channels[] = {"C=8", "C=48", "C=200"};
    for (int i = 0; i < COUNT(channels); i++) {
        const char *settings[] = {"N=32", "H=56", "W=56", "KH=3", "KW=3", channels[i], "O=256"};
        qn_show_options options = {.stage = "schedule", .device = "cuda", .arch = "sm_90a", .settings = {settings, 7}};
        text words = {0};
        qn_error error;
        int stages = 0, ahead = 0;
        EXPECT(qn_show(context, QUERN_ROOT "/tests/data/gathers.qn", "last", &options, keep, &words, &error) == QN_OK);
        const char *at = strstr(text_get(&words), "stages="), *by = strstr(text_get(&words), "by 16 bytes, ");
        EXPECT(at && by && sscanf(at, "stages=%d", &stages) == 1 && sscanf(by, "by 16 bytes, %d", &ahead) == 1);
        EXPECT(stages >= 2 && ahead <= stages - 2);
        text_free(&words);
    }
}

/* What the assembler makes of a product's text; false: there is none, which is said. */
static bool assemble(const char *name, const char *const *settings, const char *symbol, cubin_usage *usage)
{
    static bool told;
    nvrtc *n = nvrtc_new();
    qn_error error;
    if (nvrtc_ready(n, &error) != QN_OK) {
        if (!told) printf("note: skipped what the assembler says: %s\n", error.message);
        told = true;
        nvrtc_free(n);
        return false;
    }
    qn_show_options options = {.stage = "cuda", .device = "cuda", .arch = "sm_90a", .settings = {settings, 7}};
    text source = {0};
    nvrtc_output o = {0};
    bool good = qn_show(context, QUERN_ROOT "/tests/data/gathers.qn", name, &options, keep, &source, &error) == QN_OK &&
                nvrtc_compile(n, text_get(&source), "gathers.cu", &(nvrtc_options){.arch = 90, .usage = true}, &o,
                              &error) == QN_OK;
    if (!good) printf("%s: %s\n", name, error.message);
    EXPECT(good && cubin_read(o.cubin.data, o.cubin.length, symbol, usage));
    EXPECT(!strstr(text_get(&o.log), "(C75"));
    EXPECT(good && strstr(text_get(&o.ptx), "wgmma.mma_async"));
    nvrtc_output_free(&o);
    text_free(&source);
    nvrtc_free(n);
    return true;
}

/* Registers of the roles are handed over by hand: what does not fit is put into memory, and only the assembler tells. */
TEST(the_assembler_is_content)
{
    static const struct {
        const char *name, *symbol, *channels, *outputs;
        int put_away; /* bytes, of what is computed once for a tile: eight warps that fill leave 128 registers a thread */
    } texts[] = {
        {"plain", "dot_relu_phase1", "C=64", "O=128", 0},      {"plain", "dot_relu_phase1", "C=8", "O=64", 0},
        {"halves", "dot_reshape_phase1", "C=204", "O=256", 0}, {"last", "dot_permute_phase0", "C=200", "O=256", 0},
        {"last", "dot_permute_phase0", "C=256", "O=256", 0},   {"rounded", "dot_reshape_phase1", "C=18", "O=128", 0},
        {"rounded", "dot_reshape_phase1", "C=18", "O=64", 0}};
    for (int i = 0; i < COUNT(texts); i++) {
        const char *settings[] = {"N=32", "H=56", "W=56", "KH=3", "KW=3", texts[i].channels, texts[i].outputs};
        cubin_usage usage = {0};
        if (!assemble(texts[i].name, settings, texts[i].symbol, &usage)) return;
        if (usage.local_bytes)
            printf("%s, %s: %d bytes put away\n", texts[i].name, texts[i].channels, (int)usage.local_bytes);
        EXPECT(usage.local_bytes <= texts[i].put_away);
    }
}

/* Beyond 2^31 elements places are divided as 64 bits: once for the columns of a chunk, not for each of its elements. */
TEST(places_of_results_are_found_once)
{
    static const char *const settings[] = {"N=16", "C=18", "H=1024", "W=1024", "O=128", "KH=3", "KW=3"};
    cubin_usage usage = {0};
    if (!assemble("rounded", settings, "dot_reshape_phase1", &usage)) return;
    EXPECT(usage.code_bytes < 40000 && !usage.local_bytes);
}

TEST(open_context)
{
    qn_error error;
    EXPECT(qn_context_open(NULL, &context, &error) == QN_OK);
    if (getenv("QUERN_TEST_DEVICE")) tested = getenv("QUERN_TEST_DEVICE");
}

TEST(close_context)
{
    qn_context_close(context);
}

/* An outer product of rows is read as its rows, which an outer loop multiplies with its numbers. */
TEST(what_is_multiplied_as_it_is_taken)
{
    const char *settings[] = {"B=64", "D=64", "N=128", "P=4096"};
    text words = {0};
    qn_error error;
    qn_show_options options = {.stage = "choices", .device = "cuda", .arch = "sm_90a", .settings = {settings, 4}};
    EXPECT(qn_show(context, QUERN_ROOT "/tests/data/fed.qn", "outer_rows", &options, keep, &words, &error) == QN_OK);
    EXPECT(strstr(text_get(&words), "rounded to tf32 as they are read\ntaken: fed"));
    EXPECT(strstr(text_get(&words), ", 4 times 16 bytes a thread, times x1 by line > a_ring, along k"));
    EXPECT(strstr(text_get(&words), "loops 2"));
    text_free(&words);
}

TEST_MAIN(CASE(open_context), CASE(what_is_multiplied_as_it_is_taken), CASE(convolutions), CASE(windows_of_channels),
          CASE(gradients), CASE(windows_apart_are_one_product), CASE(padding_is_never_written),
          CASE(copies_leave_two_stages), CASE(rounded_operands_are_one_product), CASE(the_assembler_is_content),
          CASE(places_of_results_are_found_once), CASE(close_context))
