/*
 * Wrong calls of the tensor API: each gives the empty handle and exactly this message, with the op, the shapes and the
 * place of the call; nothing crashes, and the tape goes on when the error has been fetched.
 * SPDX-License-Identifier: MIT
 */
#include "tensor.h"

static qn_tensor m, v, e, i64s, b; /* [2, 3], [4], [0, 3], integers [4], bools [2, 3] */

static void open_tape(void)
{
    tape_open();
    m = qn_zeros(tape, QN_F32, QN_SHAPE(2, 3));
    v = qn_zeros(tape, QN_F32, QN_SHAPE(4));
    e = qn_zeros(tape, QN_F32, QN_SHAPE(0, 3));
    i64s = qn_zeros(tape, QN_I64, QN_SHAPE(4));
    b = qn_zeros(tape, QN_BOOL, QN_SHAPE(2, 3));
}

/* The message of the tape without the file's folder, and nothing left of it. */
static void expect_message(const char *expected, int line)
{
    qn_error error = {.message = "no error"};
    char text[4096], place[64];
    qn_status status = qn_tape_error(tape, &error);
    snprintf(place, sizeof(place), "test_tensor_errors.c:%d", line);
    const char *open = strstr(error.message, " ("), *found = strstr(error.message, place);
    if (open && found && open < found)
        snprintf(text, sizeof(text), "%.*s (%s", (int)(open - error.message), error.message, "HERE");
    else
        snprintf(text, sizeof(text), "%s", error.message);
    if (open && found && open < found)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s", found + strlen(place));
    test_text(text, expected, __FILE__, line);
    if (!status || qn_tape_error(tape, &error)) test_fail(__FILE__, line, "one error, fetched once");
}
#define WRONG(call, message)               \
    do {                                   \
        EXPECT(!qn_tensor_valid(call));    \
        expect_message(message, __LINE__); \
    } while (0)
#define WRONG_VOID(call, message)          \
    do {                                   \
        call;                              \
        expect_message(message, __LINE__); \
    } while (0)

TEST(handles)
{
    open_tape();
    qn_tensor gone = qn_neg(m), inside;
    qn_release(gone);
    EXPECT(!qn_tensor_valid(gone));
    WRONG(qn_add(m, gone), "add (HERE): an operand was released, or its scope has ended");
    qn_tensor reused = qn_exp(m); /* takes the slot of `gone`: the old handle still is not good */
    EXPECT(reused.slot == gone.slot && reused.stamp != gone.stamp);
    WRONG(qn_exp(gone), "exp (HERE): an operand was released, or its scope has ended");
    qn_release(gone); /* of a released handle: nothing */
    EXPECT(qn_tensor_valid(reused));
    qn_scope_begin(tape);
    inside = qn_neg(m);
    qn_scope_end(tape);
    WRONG(qn_neg(inside), "neg (HERE): an operand was released, or its scope has ended");
    WRONG(qn_add(m, QN_NONE), "add (HERE): an operand is the empty tensor");
    qn_tape *first = tape;
    tape_open();
    qn_tensor other = qn_zeros(tape, QN_F32, QN_SHAPE(2, 3));
    WRONG(qn_add(other, m), "add (HERE): the operands belong to different tapes");
    tape_close();
    tape = first;
    EXPECT(!qn_tensor_valid(qn_add(QN_NONE, QN_NONE)));
    EXPECT(!qn_tensor_valid((qn_tensor){tape, 999, 1}));
    EXPECT(qn_tensor_rank(gone) == 0 && qn_tensor_count(gone) == 0 && qn_tensor_extent(m, 7) == 0);
    EXPECT(qn_tape_error(NULL, NULL) == QN_BAD_CALL);
    WRONG_VOID(qn_scope_end(tape), "scope_end (HERE): no scope was begun");
    tape_close();
}

TEST(the_first_error_stays)
{
    open_tape();
    qn_tensor x = qn_matmul(m, m);
    int line = __LINE__ - 1;
    EXPECT(!qn_tensor_valid(qn_exp(x)));
    EXPECT(!qn_tensor_valid(qn_add(m, m))); /* until it is fetched, nothing is made */
    EXPECT(!qn_tensor_valid(qn_reshape(m, QN_SHAPE(7))));
    expect_message("matmul (HERE): [2, 3] and [2, 3] do not multiply", line);
    EXPECT(qn_tensor_valid(qn_add(m, m)));
    tape_close();
}

TEST(arithmetic)
{
    open_tape();
    WRONG(qn_add(m, v), "add (HERE): shapes [2, 3] and [4] do not broadcast");
    WRONG(qn_where(b, m, v), "where (HERE): shapes [2, 3], [4] and [2, 3] do not broadcast");
    WRONG(qn_where(m, m, m), "where (HERE): the condition is f32, not bool");
    WRONG(qn_and(m, m), "and (HERE): it does not take f32: cast to a type it takes");
    WRONG(qn_not(m), "not (HERE): it does not take f32: cast to a type it takes");
    WRONG(qn_neg(b), "neg (HERE): it does not take bool: cast to a type it takes");
    WRONG(qn_maximum_scalar(qn_neg(b), 1), "neg (HERE): it does not take bool: cast to a type it takes");
    WRONG(qn_shl(m, i64s), "shl (HERE): shapes [2, 3] and [4] do not broadcast");
    WRONG(qn_add(qn_zeros(tape, QN_U64, QN_SHAPE(4)), i64s),
          "add (HERE): u64 and signed integers have no common type: cast one");
    WRONG(qn_bitcast(m, QN_F64), "bitcast (HERE): f32 and f64 have different sizes");
    tape_close();
}

TEST(making)
{
    open_tape();
    WRONG(qn_zeros(tape, QN_F32, QN_SHAPE(2, -3)), "zeros (HERE): axis 1 has the extent -3");
    WRONG(qn_zeros(tape, (qn_dtype)99, QN_SHAPE(2)), "zeros (HERE): 99 is not a type");
    WRONG(qn_zeros(tape, QN_F32, (qn_shape){.rank = 9}), "zeros (HERE): rank 9 is not between 0 and 8");
    WRONG(qn_full(tape, QN_F32, QN_SHAPE(1LL << 40, 1LL << 40), 0),
          "full (HERE): [1099511627776, 1099511627776] has more elements than a tensor can have");
    WRONG(qn_arange(tape, QN_F32, 0, 1, 0), "arange (HERE): from 0 to 1 by 0 is not a sequence");
    WRONG(qn_arange(tape, QN_I32, 0, 1, 0.5), "arange (HERE): from 0 by 0.5: i32 needs whole numbers");
    WRONG(qn_arange(tape, QN_BOOL, 0, 1, 1), "arange (HERE): it does not give bool");
    WRONG(qn_linspace(tape, QN_I64, 0, 1, 3), "linspace (HERE): it gives floats, not i64");
    WRONG(qn_rand(tape, QN_I64, QN_SHAPE(3)), "rand (HERE): it gives floats, not i64");
    WRONG(qn_randn(tape, QN_BOOL, QN_SHAPE(3)), "randn (HERE): it gives floats, not bool");
    WRONG(qn_from_memory(tape, NULL, QN_F32, QN_SHAPE(3)), "from_memory (HERE): the data is NULL");
    WRONG(qn_wrap_memory(tape, NULL, QN_F32, QN_SHAPE(3), NULL, NULL, NULL), "wrap_memory (HERE): the data is NULL");
    WRONG(qn_from_buffer(tape, NULL, 0, QN_F32, QN_SHAPE(3), NULL), "from_buffer (HERE): the buffer is NULL");
    qn_error error;
    qn_buffer *buffer;
    EXPECT(!qn_buffer_new(tensor_context, 16, &buffer, &error));
    WRONG(qn_from_buffer(tape, buffer, 2, QN_F32, QN_SHAPE(3), NULL),
          "from_buffer (HERE): elements 2 to 5 of a buffer of 4");
    WRONG(qn_from_buffer(tape, buffer, 0, QN_F32, QN_SHAPE(3), (int64_t[]){-1}),
          "from_buffer (HERE): elements -2 to 1 of a buffer of 4");
    qn_buffer_release(buffer);
    EXPECT(!qn_tensor_valid(qn_load_npy(tape, "nowhere.npy")));
    EXPECT(qn_tape_error(tape, &error) == QN_BAD_FILE);
    EXPECT(strstr(error.message, "nowhere.npy") && !strncmp(error.message, "load_npy (", 10));
    EXPECT(!qn_tensor_valid(qn_zeros(NULL, QN_F32, QN_SHAPE(3))));
    tape_close();
}

TEST(movement)
{
    open_tape();
    qn_tensor parts[2], deep = qn_zeros(tape, QN_F32, QN_SHAPE(1, 1, 1, 1, 1, 1, 1, 1));
    WRONG(qn_reshape(m, QN_SHAPE(4, 2)), "reshape (HERE): [2, 3] has 6 elements, [4, 2] has 8");
    WRONG(qn_reshape(m, QN_SHAPE(4, -1)), "reshape (HERE): [2, 3] has 6 elements, which [4, -1] does not divide");
    WRONG(qn_reshape(m, QN_SHAPE(-1, -1)), "reshape (HERE): [-1, -1]: only one extent can be left open");
    WRONG(qn_reshape(e, QN_SHAPE(0, -1)), "reshape (HERE): [0, 3] has 0 elements, which [0, -1] does not divide");
    WRONG(qn_reshape(m, QN_SHAPE(-2, 3)), "reshape (HERE): axis 0 has the extent -2");
    WRONG(qn_permute(m, QN_AXES(0)), "permute (HERE): 1 axes for a tensor of shape [2, 3]");
    WRONG(qn_permute(m, QN_AXES(0, 0)), "permute (HERE): the axes are not an order of all 2 axes of [2, 3]");
    WRONG(qn_permute(m, QN_AXES(0, 2)), "permute (HERE): axis 2 is not one of a tensor of shape [2, 3]");
    WRONG(qn_transpose(m, 0, -3), "transpose (HERE): axis -3 is not one of a tensor of shape [2, 3]");
    WRONG(qn_expand(m, QN_SHAPE(4, 3)), "expand (HERE): [2, 3] does not expand to [4, 3]");
    WRONG(qn_expand(m, QN_SHAPE(3)), "expand (HERE): [2, 3] does not expand to [3]");
    WRONG(qn_expand(m, QN_SHAPE(-1, 2, 3)), "expand (HERE): axis 0 has the extent -1");
    WRONG(qn_slice(m, 2, 0, 1, 1), "slice (HERE): axis 2 is not one of a tensor of shape [2, 3]");
    WRONG(qn_slice(m, 0, 0, 1, 0), "slice (HERE): the step is 0");
    WRONG(qn_index(m, 1, 3), "index (HERE): position 3 is not in axis 1 of [2, 3]");
    WRONG(qn_index(m, 1, -4), "index (HERE): position -4 is not in axis 1 of [2, 3]");
    WRONG(qn_flip(m, QN_AXES(1, -1)), "flip (HERE): axis -1 is given twice");
    WRONG(qn_squeeze(m, QN_AXES(5)), "squeeze (HERE): axis 5 is not one of a tensor of shape [2, 3]");
    WRONG(qn_unsqueeze(m, 4), "unsqueeze (HERE): axis 4 does not fit between the axes of [2, 3]");
    WRONG(qn_unsqueeze(deep, 0), "unsqueeze (HERE): [1, 1, 1, 1, 1, 1, 1, 1] has no room for one more axis");
    WRONG(qn_flatten(m, 1, 0), "flatten (HERE): axis 1 does not come before axis 0");
    WRONG(qn_window(m, 1, 4, 1, 1), "window (HERE): a window of 4 elements, 1 apart, does not fit axis 1 of [2, 3]");
    WRONG(qn_window(m, 1, 0, 1, 1), "window (HERE): size 0, stride 1 and dilation 1 must be at least 1");
    WRONG(qn_window(deep, 1, 1, 1, 1), "window (HERE): [1, 1, 1, 1, 1, 1, 1, 1] has no room for one more axis");
    WRONG(qn_pad(m, QN_SHAPE(1), QN_SHAPE(1), 0),
          "pad (HERE): padding before 1 and after 1 axes of a tensor of shape [2, 3]");
    WRONG(qn_pad(v, QN_SHAPE(-3), QN_SHAPE(-3), 0), "pad (HERE): axis 0 has the extent -2");
    WRONG(qn_pad(v, QN_SHAPE(QN_END), QN_SHAPE(1), 0), "pad (HERE): the padding of axis 0 is out of range");
    WRONG(qn_concat((qn_tensor[]){m, v}, 2, 0), "concat (HERE): f32 [2, 3] and f32 [4] do not join along axis 0");
    WRONG(qn_concat((qn_tensor[]){m, m}, 2, 2), "concat (HERE): axis 2 is not one of a tensor of shape [2, 3]");
    WRONG(qn_stack((qn_tensor[]){m, v}, 2, 0), "stack (HERE): shapes [2, 3] and [4] differ");
    WRONG(qn_stack((qn_tensor[]){m, m}, 2, 9), "stack (HERE): axis 9 does not fit between the axes of [2, 3]");
    EXPECT(!qn_tensor_valid(qn_concat(NULL, 0, 0)));
    WRONG_VOID(qn_split(v, 0, (int64_t[]){1, 2}, 2, parts),
               "split (HERE): the 2 sizes do not add up to the 4 of axis 0 of [4]");
    WRONG_VOID(qn_split(v, 0, (int64_t[]){5, -1}, 2, parts),
               "split (HERE): the 2 sizes do not add up to the 4 of axis 0 of [4]");
    EXPECT(!qn_tensor_valid(parts[0]));
    WRONG_VOID(qn_chunk(v, 0, 0, parts), "chunk (HERE): 0 chunks: at least 1");
    WRONG(qn_repeat(m, QN_SHAPE(2)), "repeat (HERE): 1 counts for a tensor of shape [2, 3]");
    WRONG(qn_repeat(m, QN_SHAPE(2, -1)), "repeat (HERE): axis 1 has the extent -1");
    tape_close();
}

TEST(reductions)
{
    open_tape();
    WRONG(qn_sum(m, QN_AXES(2), false), "sum (HERE): axis 2 is not one of a tensor of shape [2, 3]");
    WRONG(qn_mean(m, QN_AXES(0, 0), false), "mean (HERE): axis 0 is given twice");
    WRONG(qn_max(e, QN_AXES(0), false), "max (HERE): axis 0 of [0, 3] is empty: there is no max");
    WRONG(qn_min(e, QN_ALL, false), "min (HERE): axis 0 of [0, 3] is empty: there is no min");
    WRONG(qn_argmax(e, QN_AXES(0), false), "argmax (HERE): axis 0 of [0, 3] is empty: there is no argmax");
    WRONG(qn_argmin(e, QN_ALL, false), "argmin (HERE): axis 0 of [0] is empty: there is no argmin");
    WRONG(qn_argmax(m, QN_AXES(0, 1), false), "argmax (HERE): it goes over one axis, not 2");
    WRONG(qn_sum(m, (qn_axes){.count = 9}, false), "sum (HERE): 9 axes: at most 8");
    WRONG(qn_cumsum(m, 3), "cumsum (HERE): axis 3 is not one of a tensor of shape [2, 3]");
    WRONG(qn_cummax(b, 0), "cummax: scan (HERE): it does not take bool: cast it");
    WRONG(qn_sort(m, 2, false, NULL), "sort (HERE): axis 2 is not one of a tensor of shape [2, 3]");
    WRONG(qn_topk(m, 4, 1, true, NULL), "topk (HERE): 4 of axis 1 of [2, 3]");
    WRONG(qn_argsort(qn_scalar(tape, QN_F32, 1), 0, false),
          "argsort (HERE): axis 0 is not one of a tensor of shape []");
    tape_close();
}

TEST(by_index)
{
    open_tape();
    WRONG(qn_gather(m, 0, m), "gather (HERE): the index is f32: it must be an integer");
    WRONG(qn_gather(m, 0, i64s), "gather (HERE): the index [4] does not fit [2, 3] outside axis 0");
    WRONG(qn_gather(m, 0, qn_zeros(tape, QN_I64, QN_SHAPE(2, 4))),
          "gather (HERE): the index [2, 4] does not fit [2, 3] outside axis 0");
    WRONG(qn_index_select(m, 2, i64s), "index_select (HERE): axis 2 is not one of a tensor of shape [2, 3]");
    WRONG(qn_index_select(m, 0, v), "index_select: take (HERE): the index is f32: it must be an integer");
    WRONG(qn_scatter_add(v, 0, i64s, qn_zeros(tape, QN_F32, QN_SHAPE(3))),
          "scatter_add (HERE): the updates [3] are fewer than the index [4]");
    WRONG(qn_scatter_add(v, 0, i64s, i64s),
          "scatter_add: gather_add (HERE): the updates are i64 [4], they should be f32 [4]");
    WRONG(qn_index_add(m, 1, i64s, v),
          "index_add: take_add (HERE): the updates are f32 [4], they should be f32 [2, 4]");
    WRONG(qn_one_hot(v, 3, QN_F32), "one_hot (HERE): the index is f32: it must be an integer");
    WRONG(qn_embedding(v, i64s), "embedding (HERE): the table is [4]: it must have two axes");
    WRONG(qn_embedding(m, v), "embedding: take (HERE): the index is f32: it must be an integer");
    WRONG(qn_embedding_bag(m, i64s, QN_NONE, QN_BAG_SUM),
          "embedding_bag (HERE): it takes index [bags][n], or index [n] and offsets [bags], not [4]");
    WRONG(qn_embedding_bag(m, i64s, m, QN_BAG_SUM),
          "embedding_bag (HERE): it takes index [bags][n], or index [n] and offsets [bags], not [4] and [2, 3]");
    WRONG(qn_embedding_bag(m, i64s, v, QN_BAG_SUM), "embedding_bag (HERE): the offsets are f32: they must be integers");
    tape_close();
}

TEST(layers)
{
    open_tape();
    qn_tensor image = qn_zeros(tape, QN_F32, QN_SHAPE(1, 4, 5, 5)), w = qn_zeros(tape, QN_F32, QN_SHAPE(2, 3, 3, 3));
    qn_tensor good = qn_zeros(tape, QN_F32, QN_SHAPE(2, 4, 7, 3)), three = qn_zeros(tape, QN_F32, QN_SHAPE(3));
    WRONG(qn_matmul(m, qn_scalar(tape, QN_F32, 1)), "matmul (HERE): [2, 3] and []: both need an axis");
    WRONG(qn_matmul(b, qn_transpose(b, 0, 1)), "matmul (HERE): it does not take bool: cast it");
    WRONG(qn_outer(m, v), "outer (HERE): [2, 3] and [4]: both must be vectors");
    WRONG(qn_cdist(m, v), "cdist (HERE): [2, 3] and [4]: they should be [..][M][D] and [..][N][D]");
    WRONG(qn_linear(m, m, QN_NONE),
          "linear (HERE): x [2, 3], weight [2, 3]: they should be [..][in], [in][out] and [out]; a weight [out][in] goes "
          "with `transposed = true`, in C through qn_transpose");
    WRONG(qn_linear(v, qn_zeros(tape, QN_F32, QN_SHAPE(4, 2)), v),
          "linear (HERE): x [4], weight [4, 2], bias [4]: they should be [..][in], [in][out] and [out]");
    WRONG(qn_softmax(m, 2), "softmax (HERE): axis 2 is not one of a tensor of shape [2, 3]");
    WRONG(qn_log_softmax(m, -3), "log_softmax (HERE): axis -3 is not one of a tensor of shape [2, 3]");
    WRONG(qn_layer_norm(m, QN_SHAPE(2), QN_NONE, QN_NONE, 1e-5),
          "layer_norm (HERE): [2, 3] does not end in the axes [2]");
    WRONG(qn_layer_norm(m, QN_RANK_0, QN_NONE, QN_NONE, 1e-5), "layer_norm (HERE): [2, 3] does not end in the axes []");
    WRONG(qn_layer_norm(m, QN_SHAPE(3), v, QN_NONE, 1e-5), "layer_norm (HERE): the weight is [4], it should be [3]");
    WRONG(qn_layer_norm(m, QN_SHAPE(3), three, v, 1e-5), "layer_norm (HERE): the bias is [4], it should be [3]");
    WRONG(qn_rms_norm(m, QN_SHAPE(2, 3), three, 1e-5), "rms_norm (HERE): the weight is [3], it should be [2, 3]");
    WRONG(qn_dropout(m, 1.5), "dropout (HERE): p is 1.5: it must be from 0 to 1");
    WRONG(qn_dropout(i64s, 0.5), "dropout (HERE): it does not take i64: cast it");
    const char *weight_text = "conv2d (HERE): x [1, 4, 5, 5], weight [2, 3, 3, 3], groups 1: they should be "
                              "[N][C][H][W], [O][C / groups][KH][KW] and [O]";
    const char *bias_text = "conv2d (HERE): x [1, 4, 5, 5], weight [2, 4, 7, 3], bias [4], groups 1: they should be "
                            "[N][C][H][W], [O][C / groups][KH][KW] and [O]";
    WRONG(qn_conv2d(image, w, QN_NONE, NULL), weight_text);
    WRONG(qn_conv2d(image, good, v, NULL), bias_text);
    WRONG(qn_conv2d(image, good, QN_NONE, NULL),
          "conv2d: window (HERE): a window of 7 elements, 1 apart, does not fit axis 2 of [1, 4, 5, 5]");
    WRONG(qn_conv2d(image, good, QN_NONE, &(qn_conv2d_options){.stride = {-1, 1}}),
          "conv2d (HERE): size 7, stride -1 and dilation 1 must be at least 1, padding 0 at least 0");
    WRONG(qn_max_pool2d(v, 2, 2, NULL), "max_pool2d (HERE): x is [4]: it should be [..][H][W] of at most 6 axes");
    WRONG(qn_max_pool2d(image, 2, 2, &(qn_pool2d_options){.padding = {2, 0}}),
          "max_pool2d (HERE): a padding of 2 is more than half of the window of 2");
    WRONG(qn_max_pool2d(qn_cast(image, QN_I32), 2, 2, NULL), "max_pool2d (HERE): it does not take i32: cast it");
    WRONG(qn_avg_pool2d(image, 0, 2, NULL),
          "avg_pool2d (HERE): size 0, stride 0 and dilation 1 must be at least 1, padding 0 at least 0");
    tape_close();
}

TEST(layers_of_channels)
{
    open_tape();
    qn_tensor image = qn_zeros(tape, QN_F32, QN_SHAPE(1, 4, 5, 5)), w = qn_zeros(tape, QN_F32, QN_SHAPE(4, 3, 3, 3));
    qn_tensor three = qn_zeros(tape, QN_F32, QN_SHAPE(3)), none = QN_NONE;
    WRONG(qn_conv(m, m, none, NULL), "conv (HERE): x is [2, 3]: it should be [N][C] and one to three more axes");
    WRONG(qn_conv(image, w, none, NULL), "conv (HERE): x [1, 4, 5, 5], weight [4, 3, 3, 3], groups 1: they should be "
                                         "[N][C][H][W], [O][C / groups][KH][KW] and [O]");
    WRONG(qn_conv_transpose(image, w, v, NULL),
          "conv_transpose (HERE): x [1, 4, 5, 5], weight [4, 3, 3, 3], bias [4], groups 1: they should be "
          "[N][C][H][W], [C][O / groups][KH][KW] and [O]");
    WRONG(qn_conv_transpose(image, w, none, &(qn_conv_options){.output_padding = {1, 0}}),
          "conv_transpose (HERE): an output padding of 1 with stride 1 and dilation 1: it must be smaller");
    WRONG(qn_conv_transpose(image, w, none, &(qn_conv_options){.padding = {4, 0}}),
          "conv_transpose (HERE): nothing is left of axis 2 of [1, 4, 5, 5] with a padding of 4");
    WRONG(qn_max_pool(image, QN_SHAPE(1, 1, 1, 1), NULL), "max_pool (HERE): windows of 4 axes: 1 to 3");
    WRONG(qn_avg_pool(image, QN_SHAPE(2), &(qn_pool_options){.dilation = {2}}),
          "avg_pool (HERE): windows of an average have no dilation");
    WRONG(qn_adaptive_avg_pool(image, QN_SHAPE(0)),
          "adaptive_avg_pool (HERE): windows for [0] results over the last axes of [1, 4, 5, 5]");
    WRONG(qn_upsample_nearest(m, QN_SHAPE(2, 2, 2)),
          "upsample_nearest (HERE): the last axes of [2, 3] cannot become [2, 2, 2]");
    WRONG(qn_upsample_linear(qn_cast(m, QN_I32), QN_SHAPE(4), false),
          "upsample_linear (HERE): it does not take i32: cast it");
    WRONG(qn_batch_norm(image, three, v, none, none, false, 0.1, 1e-5, NULL, NULL),
          "batch_norm (HERE): the mean is [3], it should be [4]: one number for each channel of [1, 4, 5, 5]");
    WRONG(qn_batch_norm(image, none, none, none, none, false, 0.1, 1e-5, NULL, NULL),
          "batch_norm (HERE): it is not training: pass the running mean and variance");
    WRONG(qn_group_norm(image, 3, none, none, 1e-5), "group_norm (HERE): 3 groups of the 4 channels of [1, 4, 5, 5]");
    WRONG(qn_instance_norm(v, none, none, 1e-5), "instance_norm (HERE): x is [4]: it should be [N][C][..]");
    WRONG(qn_prelu(m, v),
          "prelu (HERE): x [2, 3], weight [4]: the weight should be [1] or one number for each channel");
    WRONG(qn_glu(m, 1), "glu (HERE): axis 1 of [2, 3] has no two halves");
    tape_close();
}

TEST(parts_and_letters)
{
    open_tape();
    qn_tensor pair[2] = {m, m}, pieces[3];
    WRONG(qn_tril(v, 0), "tril (HERE): x is [4]: it should have at least two axes");
    WRONG(qn_diagonal(m, 0, 1, -1), "diagonal (HERE): axis 1 is given twice");
    WRONG(qn_roll(m, QN_SHAPE(1, 2), QN_AXES(0)), "roll (HERE): 2 shifts for 1 axes");
    WRONG(qn_roll(m, (qn_shape){.rank = 99}, (qn_axes){.count = 99}), "roll (HERE): 99 axes: at most 8");
    WRONG((qn_unbind(m, 0, 3, pieces), pieces[0]), "unbind (HERE): 3 pieces of axis 0 of [2, 3]");
    WRONG(qn_masked_fill(m, m, 0), "masked_fill (HERE): the mask is f32, not bool");
    WRONG(qn_bmm(m, m), "bmm (HERE): [2, 3] and [2, 3]: they should be [B][M][K] and [B][K][N]");
    WRONG(qn_addmm(m, v, v, 1, 1), "addmm (HERE): [4] and [4]: they should be [M][K] and [K][N]");
    WRONG(qn_einsum("ij,jk->ik", pair, 2), "einsum (HERE): \"ij,jk->ik\": a letter stands for two extents");
    WRONG(qn_einsum("ij->ik", pair, 1), "einsum (HERE): \"ij->ik\": a letter of the result is in no operand");
    WRONG(qn_einsum("i,j->ij", pair, 2), "einsum (HERE): \"i,j->ij\": an operand has other axes than letters");
    WRONG(qn_einsum("ij", pair, 2), "einsum (HERE): \"ij\": there are more operands than letters");
    WRONG(qn_index_copy(m, 0, i64s, m),
          "index_copy (HERE): the index is [4] and the updates are [2, 3], they should be [n] and [4, 3]");
    WRONG(qn_index_put(m, &v, 1, v, false), "index_put (HERE): the index is f32: it must be an integer");
    WRONG(qn_index_put(m, (qn_tensor[]){i64s, i64s, i64s}, 3, v, false),
          "index_put (HERE): 3 indices for a tensor of shape [2, 3]");
    tape_close();
}

TEST(losses)
{
    open_tape();
    WRONG(qn_huber_loss(m, m, -1, QN_MEAN), "huber_loss (HERE): its corner is at -1: it cannot be negative");
    WRONG(qn_nll_loss(m, i64s, QN_MEAN, QN_NO_INDEX),
          "nll_loss (HERE): logits [2, 3] and target [4]: they should be [N][C][..] and [N][..]");
    WRONG(qn_mse_loss(m, v, QN_MEAN), "mse_loss (HERE): shapes [2, 3] and [4] do not broadcast");
    WRONG(qn_bce_with_logits(m, v, QN_MEAN), "bce_with_logits (HERE): logits [2, 3] and target [4] differ");
    WRONG(qn_cross_entropy(m, i64s, QN_MEAN, -100),
          "cross_entropy (HERE): logits [2, 3] and target [4]: they should be [N][C][..] and [N][..]");
    WRONG(qn_cross_entropy(m, qn_zeros(tape, QN_F32, QN_SHAPE(2)), QN_MEAN, -100),
          "cross_entropy (HERE): the target is f32: it must be an integer");
    WRONG(qn_scaled_dot_product_attention(m, v, m, QN_NONE, false, 0),
          "scaled_dot_product_attention (HERE): q [2, 3], k [4], v [2, 3]: they should be [..][L][E], [..][S][E] and "
          "[..][S][D]");
    WRONG(qn_scaled_dot_product_attention(m, m, m, v, false, 0),
          "scaled_dot_product_attention: add (HERE): shapes [2, 2] and [4] do not broadcast");
    qn_tensor whole = qn_cast(m, QN_I32);
    WRONG(qn_scaled_dot_product_attention(whole, whole, whole, QN_NONE, false, 0),
          "scaled_dot_product_attention (HERE): it does not take i32: cast it");
    tape_close();
}

/* Reading what a failed call gave, or what was made from it, tells what failed; and so does every way to read. */
TEST(reading_tells_the_first_error)
{
    open_tape();
    qn_error error;
    double item;
    float data[4];
    char place[64];
    char *words = NULL;
    qn_comparison comparison;
    for (int way = 0; way < 11; way++) {
        snprintf(place, sizeof(place), "test_tensor_errors.c:%d", __LINE__ + 1);
        qn_tensor wrong = qn_sum(qn_exp(qn_matmul(m, v)), QN_ALL, false);
        EXPECT(!qn_tensor_valid(wrong));
        qn_status status = way == 0   ? qn_tensor_read(wrong, data, sizeof(data), &error)
                           : way == 1 ? qn_tensor_item(wrong, &item, &error)
                           : way == 2 ? qn_tensor_save_npy(wrong, "/nowhere/x.npy", &error)
                           : way == 3 ? qn_eval(tape, &wrong, 1, &error)
                           : way == 4 ? qn_tensor_text(wrong, NULL, &words, &error)
                           : way == 5 ? qn_tensor_print(wrong, NULL, &error)
                           : way == 6 ? qn_tensor_compare(wrong, m, 0, 0, &comparison, &error)
                           : way == 7 ? qn_tensor_compare(m, wrong, 0, 0, &comparison, &error)
                           : way == 8 ? qn_tensor_write(wrong, data, sizeof(data), &error)
                           : way == 9 ? qn_tensor_read(qn_variable(wrong), data, sizeof(data), &error)
                                      : qn_tensor_read(qn_add(m, qn_relu(wrong)), data, sizeof(data), &error);
        EXPECT(status == QN_BAD_CALL && strstr(error.message, "matmul (") && strstr(error.message, place));
        EXPECT(strstr(error.message, "[2, 3] and [4]"));
        EXPECT(qn_tape_error(tape, &error) == QN_OK); /* told once */
        EXPECT(qn_tensor_item(wrong, &item, &error) == QN_BAD_CALL && strstr(error.message, "empty tensor"));
        WRONG(qn_neg(wrong), "neg (HERE): an operand is the empty tensor");
    }
    qn_tensor gradient = {0};
    qn_grad(qn_exp(m), &m, 1, &gradient); /* of six numbers */
    EXPECT(qn_tensor_read(gradient, data, sizeof(data), &error) == QN_BAD_CALL);
    EXPECT(strstr(error.message, "grad (") && strstr(error.message, "test_tensor_errors.c:") &&
           strstr(error.message, "[2, 3]"));
    qn_tensor ones = qn_ones(tape, QN_F32, QN_SHAPE(5)), of = qn_exp(m);
    qn_grad_from(&of, &ones, 1, &m, 1, &gradient);
    EXPECT(qn_tensor_read(gradient, data, sizeof(data), &error) == QN_BAD_CALL && strstr(error.message, "grad ("));
    EXPECT(qn_tensor_item((qn_tensor){0}, &item, &error) == QN_BAD_CALL);
    EXPECT_TEXT(error.message, "qn_tensor_item: the tensor is empty");
    tape_close();
}

TEST(variables)
{
    open_tape();
    WRONG_VOID(qn_assign(m, m), "assign (HERE): the tensor is not a variable: make it one with qn_variable");
    qn_tensor w = qn_variable(m);
    WRONG_VOID(qn_assign(w, v), "assign (HERE): a value of shape [4] for a variable of shape [2, 3]");
    tape_close();
}

/* More than the machine has: an error with its own status, and the tape goes on. */
TEST(exhausted_memory)
{
#ifndef __SANITIZE_ADDRESS__ /* which ends the process instead */
    open_tape();
    qn_error error;
    qn_shape huge = QN_SHAPE(1LL << 46);
    EXPECT(!qn_tensor_valid(qn_empty(tape, QN_F32, huge)));
    EXPECT(qn_tape_error(tape, &error) == QN_NO_MEMORY && strstr(error.message, "empty (") &&
           strstr(error.message, "bytes"));
    EXPECT(!qn_tensor_valid(qn_variable(qn_zeros(tape, QN_F32, huge))));
    EXPECT(qn_tape_error(tape, &error) == QN_NO_MEMORY && strstr(error.message, "variable ("));
    EXPECT(qn_tensor_valid(qn_neg(m)));
    tape_close();
#endif
}

TEST_MAIN(CASE(handles), CASE(the_first_error_stays), CASE(arithmetic), CASE(making), CASE(movement), CASE(reductions),
          CASE(by_index), CASE(layers), CASE(layers_of_channels), CASE(parts_and_letters), CASE(losses),
          CASE(reading_tells_the_first_error), CASE(variables), CASE(exhausted_memory))
