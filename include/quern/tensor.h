/*
 * Tensors: array code without kernels. Calls build a graph and compute nothing; reading a tensor (or qn_eval) compiles
 * what is needed into a few fused kernels and runs them. docs/tensor.md is the guide; layers and losses: <quern/nn.h>;
 * optimisers: <quern/train.h>.
 *
 * Example (y = gelu(x @ w), read back):
 *     qn_error error;
 *     qn_context *context;
 *     qn_tape *tape;
 *     float numbers[6] = {1, 2, 3, 4, 5, 6}, out[4];
 *     if (qn_context_open(NULL, &context, &error)) return 1;
 *     if (qn_tape_new(context, "cpu", &tape, &error)) return 1;
 *     qn_tensor x = qn_from_memory(tape, numbers, QN_F32, QN_SHAPE(2, 3));
 *     qn_tensor w = qn_transpose(x, 0, 1);
 *     qn_tensor y = qn_gelu(qn_matmul(x, w));
 *     if (qn_tensor_read(y, out, sizeof(out), &error)) { fprintf(stderr, "%s\n", error.message); return 1; }
 *     if (out[0] < 13.99 || out[0] > 14.01) return 1;
 *     qn_tape_free(tape);
 *     qn_context_close(context);
 *
 * Errors: a wrong call gives the empty handle, a call with an empty handle gives an empty handle, and the tape keeps the
 * first message (op, shapes, file and line); qn_eval, every way to read and qn_tape_error report it and forget it.
 * Axes: negative ones count from the end. Types: operands of different types meet as in PyTorch (float before integer
 * before bool, then the wider; f16 with bf16 gives f32; a tensor of rank 0 does not widen one with axes).
 * A tape and its tensors belong to one thread at a time.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TENSOR_H
#define QUERN_TENSOR_H

#include <quern/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QN_TENSOR_RANK 8

typedef struct qn_tape qn_tape;
typedef struct qn_plan qn_plan;

/* A handle, passed by value; {0} is the empty one. It is good until it is released or its scope ends. */
typedef struct qn_tensor {
    qn_tape *tape;
    uint32_t slot, stamp;
} qn_tensor;
#ifdef __cplusplus
#define QN_NONE (qn_tensor{})
#else
#define QN_NONE ((qn_tensor){0})
#endif

typedef struct qn_shape {
    int rank;
    int64_t extents[QN_TENSOR_RANK];
} qn_shape;
typedef struct qn_axes {
    int count; /* 0: all of them */
    int axes[QN_TENSOR_RANK];
} qn_axes;

typedef enum qn_mode {
    QN_FUSED, /* as few kernels as pay; values between operations keep the wider type */
    QN_EAGER, /* one kernel for each operation */
    QN_STRICT /* fused, rounding as eager */
} qn_mode;

/* ---- tapes: the tensors of one line of work on one device ---- */

/* device NULL: the best one. */
QN_API QN_MUST_CHECK qn_status qn_tape_new(qn_context *context, const char *device, qn_tape **tape, qn_error *error);
QN_API void qn_tape_free(qn_tape *tape); /* with all its tensors; NULL is fine */
/* The stream that the tape's evaluations and replays run on: launches and copies on it come in their order, events on it tell
 * when they are done, qn_stream_native gives it to other libraries (quern/device.h). Free it before the tape. */
struct qn_stream;
QN_API QN_MUST_CHECK qn_status qn_tape_stream(qn_tape *tape, struct qn_stream **stream, qn_error *error);
QN_API void qn_tape_set_mode(qn_tape *tape, qn_mode mode);
QN_API void qn_tape_set_tf32(qn_tape *tape, bool allow); /* QN_PRODUCTS_TF32, or QN_PRODUCTS_ANY; off */
/* How products of f32 are computed from now on. */
typedef enum qn_products {
    QN_PRODUCTS_ANY, /* in the fastest way that is at least as accurate as multiplying and adding in f32 (the default) */
    QN_PRODUCTS_TF32, /* operands may be rounded to 10 bits of mantissa where the device has tf32 */
    QN_PRODUCTS_FMA,  /* by f32 multiplications and additions alone */
    QN_PRODUCTS_TERMS /* by sums of products of bf16 wherever the device can, even where that takes longer */
} qn_products;
QN_API void qn_tape_set_products(qn_tape *tape, qn_products products);
/* Indices of gather, index_select, embedding are tested on the device; off (debug builds: on). */
QN_API void qn_tape_set_check_indices(qn_tape *tape, bool check);
QN_API qn_status qn_tape_error(qn_tape *tape, qn_error *error); /* the first error, which is forgotten; or QN_OK */
/* Leaving a scope releases what was made inside; variables of outside stay. */
QN_API void qn_scope_begin(qn_tape *tape);
QN_API void qn_scope_end(qn_tape *tape);
QN_API qn_tensor qn_keep(qn_tensor t); /* lifts it one scope out */
QN_API void qn_release(qn_tensor t);   /* the handle is not good any more; what was made from it is */
/* Where the next calls stand in the user's program; the macros at the end of this header say it. */
QN_API void qn_here(const char *file, int line);

/* ---- facts ---- */

QN_API bool qn_tensor_valid(qn_tensor t); /* neither empty nor released; records no error, as all of these */
QN_API qn_dtype qn_tensor_dtype(qn_tensor t);
QN_API int qn_tensor_rank(qn_tensor t);
QN_API qn_shape qn_tensor_shape(qn_tensor t);
QN_API int64_t qn_tensor_extent(qn_tensor t, int axis);
QN_API int64_t qn_tensor_count(qn_tensor t);                 /* elements */
QN_API qn_shape qn_tensor_strides(qn_tensor t);              /* in elements, as PyTorch would have them */
QN_API bool qn_tensor_is_view(qn_tensor t);                  /* it shares the memory of another tensor */
QN_API bool qn_tensor_same_memory(qn_tensor a, qn_tensor b); /* both are views of one tensor, or one and its view */

/* ---- evaluation ---- */

/* Computes the tensors and all pending assignments; results stay on the device. */
QN_API QN_MUST_CHECK qn_status qn_eval(qn_tape *tape, const qn_tensor *tensors, int count, qn_error *error);
/* Computes it if need be and copies it out, row-major; size_bytes must be that of the whole tensor. */
QN_API QN_MUST_CHECK qn_status qn_tensor_read(qn_tensor t, void *host, size_t size_bytes, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_tensor_item(qn_tensor t, double *value, qn_error *error); /* of one element */
/* New contents of a tensor that has memory (from memory, empty, a variable). Tensors made from its old contents and not
 * computed yet can not be computed any more. */
QN_API QN_MUST_CHECK qn_status qn_tensor_write(qn_tensor t, const void *host, size_t size_bytes, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_tensor_save_npy(qn_tensor t, const char *path, qn_error *error);

/* The elements as NumPy prints them, then type and shape. Zeros are the defaults: 4 digits after the point, tensors of more
 * than 1000 elements with 3 at each end of an axis and `...` between, lines of 100 characters. options may be NULL. */
typedef struct qn_print_options {
    int precision, threshold, edge, width;
} qn_print_options;
QN_API QN_MUST_CHECK qn_status qn_tensor_text(qn_tensor t, const qn_print_options *options, char **words,
                                              qn_error *error); /* malloc'd */
QN_API QN_MUST_CHECK qn_status qn_tensor_print(qn_tensor t, const qn_print_options *options, qn_error *error);
/* Two tensors of one shape, of any types and tapes, element by element: |a - b| <= absolute + relative * |b|, NaN equal to
 * NaN, infinities to themselves. */
typedef struct qn_comparison {
    int64_t count, beyond;         /* elements; those beyond the tolerance, mismatches of NaN and infinity included */
    int64_t nan_mismatches;        /* NaN on one side alone */
    int64_t infinity_mismatches;   /* infinite on one side alone, or of another sign */
    double absolute, relative;     /* the largest errors among finite elements */
    int64_t worst[QN_TENSOR_RANK]; /* the element farthest beyond (or nearest to) the tolerance, and there: */
    double a, b, worst_absolute, worst_relative;
    double worst_ulp; /* in units of the last place of the narrower type of floats; NAN of integers */
    int rank;
} qn_comparison;
QN_API QN_MUST_CHECK qn_status qn_tensor_compare(qn_tensor a, qn_tensor b, double relative, double absolute,
                                                 qn_comparison *out, qn_error *error);
QN_API char *qn_comparison_text(const qn_comparison *comparison); /* a line or two, malloc'd */

/* A step as a plan: what is evaluated between begin and end is recorded and replayed with almost no host cost. */
QN_API QN_MUST_CHECK qn_status qn_capture_begin(qn_tape *tape, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_capture_end(qn_tape *tape, qn_plan **plan, qn_error *error);
QN_API QN_MUST_CHECK qn_status qn_plan_replay(qn_plan *plan, qn_error *error);
/* The plan reads another buffer (on the tape's device) in place of this input from now on. */
QN_API QN_MUST_CHECK qn_status qn_plan_swap(qn_plan *plan, qn_tensor input, qn_buffer *buffer, qn_error *error);
QN_API void qn_plan_free(qn_plan *plan); /* NULL is fine */
typedef struct qn_plan_facts {
    int kernels, nodes;
    int64_t workspace_bytes, peak_bytes;
} qn_plan_facts;
QN_API void qn_plan_info(const qn_plan *plan, qn_plan_facts *facts);

/* ---- gradients ---- */

/* Of a loss of one element for each input; gradients get handles of the inputs' shapes and types. */
QN_API void qn_grad(qn_tensor loss, const qn_tensor *inputs, int count, qn_tensor *gradients);
/* From several outputs of any shape; seeds[k], of the shape and type of outputs[k], is what arrives there. */
QN_API void qn_grad_from(const qn_tensor *outputs, const qn_tensor *seeds, int output_count, const qn_tensor *inputs,
                         int count, qn_tensor *gradients);
QN_API qn_tensor qn_checkpoint(qn_tensor t); /* kept for the backward; what lies between checkpoints is recomputed */
QN_API qn_tensor qn_detach(qn_tensor t);     /* the same value; gradients stop here */

/* A kernel or tensor function of a module as an op. inputs: its in and inout arrays in order, then its scalars (rank 0;
 * or in the settings). outputs: its out and inout arrays in order, new tensors; a function's results. settings: "BLOCK =
 * 64, n = 5" for constants, extents and scalars, or NULL. The module must live as long as the tape. */
QN_API void qn_call_kernel(qn_module *module, const char *kernel, const char *settings, const qn_tensor *inputs,
                           int input_count, qn_tensor *outputs, int output_count);

/* ---- making tensors ---- */

QN_API qn_tensor qn_empty(qn_tape *tape, qn_dtype type, qn_shape shape); /* zeroed memory of its own, to be written */
QN_API qn_tensor qn_full(qn_tape *tape, qn_dtype type, qn_shape shape, double value);
QN_API qn_tensor qn_zeros(qn_tape *tape, qn_dtype type, qn_shape shape);
QN_API qn_tensor qn_ones(qn_tape *tape, qn_dtype type, qn_shape shape);
QN_API qn_tensor qn_scalar(qn_tape *tape, qn_dtype type, double value); /* rank 0 */
QN_API qn_tensor qn_arange(qn_tape *tape, qn_dtype type, double start, double stop, double step);
QN_API qn_tensor qn_linspace(qn_tape *tape, qn_dtype type, double start, double stop, int64_t count);
QN_API qn_tensor qn_eye(qn_tape *tape, qn_dtype type, int64_t rows, int64_t columns);
/* Philox4x32-10; on small tensors the numbers of PyTorch on CUDA. Each call advances the tape's offset by 4. */
QN_API void qn_seed(qn_tape *tape, uint64_t seed);
QN_API qn_tensor qn_rand(qn_tape *tape, qn_dtype type, qn_shape shape);  /* in [0, 1) */
QN_API qn_tensor qn_randn(qn_tape *tape, qn_dtype type, qn_shape shape); /* mean 0, deviation 1 */
/* The same from a seed alone: the tape's own seed and offset neither matter nor move. */
QN_API qn_tensor qn_rand_seeded(qn_tape *tape, uint64_t seed, qn_dtype type, qn_shape shape);
QN_API qn_tensor qn_randn_seeded(qn_tape *tape, uint64_t seed, qn_dtype type, qn_shape shape);
QN_API qn_tensor qn_random_state(qn_tape *tape); /* {seed, offset}, u64[2]: a variable, to save and restore */
QN_API qn_tensor qn_from_memory(qn_tape *tape, const void *data, qn_dtype type, qn_shape shape); /* copied now */
/* The caller's memory, not copied where the device uses the host's memory; strides in elements or NULL: row-major. The
 * deleter (may be NULL) runs when nothing needs the data any more. */
QN_API qn_tensor qn_wrap_memory(qn_tape *tape, void *data, qn_dtype type, qn_shape shape, const int64_t *strides,
                                qn_deleter *deleter, void *user);
/* Memory on the tape's device, retained, not copied. */
QN_API qn_tensor qn_from_buffer(qn_tape *tape, qn_buffer *buffer, int64_t offset_elements, qn_dtype type,
                                qn_shape shape, const int64_t *strides);
QN_API qn_tensor qn_load_npy(qn_tape *tape, const char *path);
/* A variable has memory of its own and a handle that follows qn_assign: later calls read the new value; the memory
 * changes at the next evaluation, after all that reads the old value. */
QN_API qn_tensor qn_variable(qn_tensor initial);
QN_API void qn_assign(qn_tensor variable, qn_tensor value); /* of equal shape; converted to the variable's type */

/* ---- arithmetic: shapes broadcast, types meet ---- */

QN_API qn_tensor qn_add(qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_sub(qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_mul(qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_div(qn_tensor a, qn_tensor b);       /* integers give f32 */
QN_API qn_tensor qn_floor_div(qn_tensor a, qn_tensor b); /* rounds down, keeps integers */
QN_API qn_tensor qn_mod(qn_tensor a, qn_tensor b);       /* the divisor's sign */
QN_API qn_tensor qn_pow(qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_maximum(qn_tensor a, qn_tensor b); /* NaN if an operand is */
QN_API qn_tensor qn_minimum(qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_and(qn_tensor a, qn_tensor b); /* bools, or bits of integers */
QN_API qn_tensor qn_or(qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_xor(qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_shl(qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_shr(qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_eq(qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_ne(qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_lt(qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_le(qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_gt(qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_ge(qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_fma(qn_tensor a, qn_tensor b, qn_tensor c); /* a * b + c */
QN_API qn_tensor qn_where(qn_tensor condition, qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_masked_fill(qn_tensor x, qn_tensor mask, double value); /* the value where the mask is true */
QN_API qn_tensor qn_logaddexp(qn_tensor a, qn_tensor b);                    /* log(exp(a) + exp(b)) */
QN_API qn_tensor qn_clamp(qn_tensor x, double low, double high);
QN_API qn_tensor qn_cast(qn_tensor x, qn_dtype type);
QN_API qn_tensor qn_bitcast(qn_tensor x, qn_dtype type); /* of equal size */
/* With a number; integers stay integers if it is whole, else they become f32. */
QN_API qn_tensor qn_add_scalar(qn_tensor x, double s);
QN_API qn_tensor qn_sub_scalar(qn_tensor x, double s);
QN_API qn_tensor qn_rsub_scalar(qn_tensor x, double s); /* s - x */
QN_API qn_tensor qn_mul_scalar(qn_tensor x, double s);
QN_API qn_tensor qn_div_scalar(qn_tensor x, double s);
QN_API qn_tensor qn_rdiv_scalar(qn_tensor x, double s); /* s / x */
QN_API qn_tensor qn_pow_scalar(qn_tensor x, double s); /* of integers f32 too if it is negative */
QN_API qn_tensor qn_maximum_scalar(qn_tensor x, double s);
QN_API qn_tensor qn_minimum_scalar(qn_tensor x, double s);
QN_API qn_tensor qn_eq_scalar(qn_tensor x, double s);
QN_API qn_tensor qn_ne_scalar(qn_tensor x, double s);
QN_API qn_tensor qn_lt_scalar(qn_tensor x, double s);
QN_API qn_tensor qn_le_scalar(qn_tensor x, double s);
QN_API qn_tensor qn_gt_scalar(qn_tensor x, double s);
QN_API qn_tensor qn_ge_scalar(qn_tensor x, double s);
/* Functions of one tensor; those of floats take integers as f32. */
// clang-format off
#define QN_UNARY_LIST(F)                                                                                               \
    F(neg) F(not) F(abs) F(sign) F(floor) F(ceil) F(round) F(sqrt) F(rsqrt) F(exp) F(exp2) F(expm1) F(log) F(log2)     \
    F(log1p) F(sin) F(cos) F(tanh) F(erf) F(sigmoid) F(relu) F(gelu) F(gelu_tanh) F(silu) F(softplus) F(isnan)         \
    F(isinf) F(square) F(reciprocal)
// clang-format on
#define QN_DECLARE_UNARY(name) QN_API qn_tensor qn_##name(qn_tensor x);
QN_UNARY_LIST(QN_DECLARE_UNARY)
#undef QN_DECLARE_UNARY

/* ---- movement: views, which move no data (concat, stack, repeat and pad make new tensors) ---- */

QN_API qn_tensor qn_reshape(qn_tensor x, qn_shape shape); /* one extent may be -1: what is left */
QN_API qn_tensor qn_flatten(qn_tensor x, int first, int last);
QN_API qn_tensor qn_permute(qn_tensor x, qn_axes order); /* result axis k is axis order[k] of x */
QN_API qn_tensor qn_transpose(qn_tensor x, int a, int b);
QN_API qn_tensor qn_expand(qn_tensor x, qn_shape shape); /* axes of extent 1 repeat; -1: as it is; new axes in front */
/* start, stop and step with Python's rules; QN_END: to the end of the axis, QN_BEGIN: to its beginning. */
QN_API qn_tensor qn_slice(qn_tensor x, int axis, int64_t start, int64_t stop, int64_t step);
QN_API qn_tensor qn_index(qn_tensor x, int axis, int64_t position); /* the axis goes away */
QN_API qn_tensor qn_flip(qn_tensor x, qn_axes axes);
QN_API qn_tensor qn_squeeze(qn_tensor x, qn_axes axes); /* axes of extent 1 go away; QN_ALL: all of those */
QN_API qn_tensor qn_unsqueeze(qn_tensor x, int axis);
/* Axis becomes places `stride` apart; a new last axis has the `size` elements, `dilation` apart, of each. */
QN_API qn_tensor qn_window(qn_tensor x, int axis, int64_t size, int64_t stride, int64_t dilation);
QN_API qn_tensor qn_pad(qn_tensor x, qn_shape before, qn_shape after, double value); /* negative: cuts */
QN_API qn_tensor qn_concat(const qn_tensor *tensors, int count, int axis);
QN_API qn_tensor qn_stack(const qn_tensor *tensors, int count, int axis);
QN_API void qn_split(qn_tensor x, int axis, const int64_t *sizes, int count, qn_tensor *pieces);
QN_API void qn_chunk(qn_tensor x, int axis, int count, qn_tensor *pieces);  /* equal ones; the last may be smaller */
QN_API void qn_unbind(qn_tensor x, int axis, int count, qn_tensor *pieces); /* all its positions; the axis goes away */
QN_API qn_tensor qn_repeat(qn_tensor x, qn_shape counts);
/* What leaves an axis at its end comes in at its beginning; one shift and QN_ALL: of all elements as one line. */
QN_API qn_tensor qn_roll(qn_tensor x, qn_shape shifts, qn_axes axes);
/* Of the last two axes: 0 above (tril) or below (triu) the diagonal, which may lie beside the main one. */
QN_API qn_tensor qn_tril(qn_tensor x, int64_t diagonal);
QN_API qn_tensor qn_triu(qn_tensor x, int64_t diagonal);
QN_API qn_tensor qn_diagonal(qn_tensor x, int64_t offset, int a, int b); /* of axes a and b, as a new last axis */
#define QN_END INT64_MAX
#define QN_BEGIN INT64_MIN

/* ---- reductions, scans, order ---- */

/* Over some axes (QN_AXES(0, -1)) or all (QN_ALL); keep: those axes stay as 1. Sums of integers are i64 or u64. */
QN_API qn_tensor qn_sum(qn_tensor x, qn_axes axes, bool keep);
QN_API qn_tensor qn_prod(qn_tensor x, qn_axes axes, bool keep);
QN_API qn_tensor qn_mean(qn_tensor x, qn_axes axes, bool keep);
QN_API qn_tensor qn_max(qn_tensor x, qn_axes axes, bool keep);
QN_API qn_tensor qn_min(qn_tensor x, qn_axes axes, bool keep);
QN_API qn_tensor qn_any(qn_tensor x, qn_axes axes, bool keep);
QN_API qn_tensor qn_all(qn_tensor x, qn_axes axes, bool keep);
QN_API qn_tensor qn_argmax(qn_tensor x, qn_axes axes, bool keep); /* one axis, or QN_ALL: position in row-major order */
QN_API qn_tensor qn_argmin(qn_tensor x, qn_axes axes, bool keep);
QN_API qn_tensor qn_var(qn_tensor x, qn_axes axes, double correction, bool keep); /* over count - correction */
QN_API qn_tensor qn_std(qn_tensor x, qn_axes axes, double correction, bool keep);
QN_API qn_tensor qn_logsumexp(qn_tensor x, qn_axes axes, bool keep);
QN_API qn_tensor qn_norm(qn_tensor x, double p, qn_axes axes, bool keep); /* p: 2, 1, INFINITY, 0, ... */
QN_API qn_tensor qn_cumsum(qn_tensor x, int axis);
QN_API qn_tensor qn_cumprod(qn_tensor x, int axis);
QN_API qn_tensor qn_cummax(qn_tensor x, int axis);
QN_API qn_tensor qn_cummin(qn_tensor x, int axis);
/* reverse: from the end; exclusive: up to the element before, the first one being 0, 1 or the type's least or greatest. */
QN_API qn_tensor qn_cumsum_with(qn_tensor x, int axis, bool reverse, bool exclusive);
QN_API qn_tensor qn_cumprod_with(qn_tensor x, int axis, bool reverse, bool exclusive);
QN_API qn_tensor qn_cummax_with(qn_tensor x, int axis, bool reverse, bool exclusive);
QN_API qn_tensor qn_cummin_with(qn_tensor x, int axis, bool reverse, bool exclusive);
QN_API qn_tensor qn_argsort(qn_tensor x, int axis, bool descending);                  /* stable; NaN is the greatest */
QN_API qn_tensor qn_sort(qn_tensor x, int axis, bool descending, qn_tensor *indices); /* indices or NULL */
QN_API qn_tensor qn_topk(qn_tensor x, int64_t k, int axis, bool largest, qn_tensor *indices); /* in order */

/* ---- by index: integers of any type, in range (qn_tape_set_check_indices) ---- */

QN_API qn_tensor qn_gather(qn_tensor x, int axis, qn_tensor index);
QN_API qn_tensor qn_index_select(qn_tensor x, int axis, qn_tensor index); /* the axis becomes the axes of index */
QN_API qn_tensor qn_scatter_add(qn_tensor base, int axis, qn_tensor index, qn_tensor updates);
QN_API qn_tensor qn_index_add(qn_tensor base, int axis, qn_tensor index, qn_tensor updates);
/* base with what index_select would read replaced; of equal indices the last one counts. index of rank 1. */
QN_API qn_tensor qn_index_copy(qn_tensor base, int axis, qn_tensor index, qn_tensor updates);
/* base[indices[0], indices[1], ..] = values (or += values), as in NumPy: indices of the first axes, which broadcast;
 * values broadcast to their axes and the remaining ones of base. */
QN_API qn_tensor qn_index_put(qn_tensor base, const qn_tensor *indices, int count, qn_tensor values, bool accumulate);
QN_API qn_tensor qn_one_hot(qn_tensor index, int64_t classes, qn_dtype type);

/* ---- products ---- */

QN_API qn_tensor qn_matmul(qn_tensor a, qn_tensor b); /* vectors, matrices, batches that broadcast */
QN_API qn_tensor qn_bmm(qn_tensor a, qn_tensor b);    /* [B][M][K], [B][K][N] */
/* beta * c + alpha * (a @ b); c broadcasts. addmm: matrices, baddbmm: batches of them. */
QN_API qn_tensor qn_addmm(qn_tensor c, qn_tensor a, qn_tensor b, double beta, double alpha);
QN_API qn_tensor qn_baddbmm(qn_tensor c, qn_tensor a, qn_tensor b, double beta, double alpha);
/* "bij,bjk->bik": letters name axes; one that the result lacks is summed over. `...`: axes in front of the others. */
QN_API qn_tensor qn_einsum(const char *equation, const qn_tensor *operands, int count);
QN_API qn_tensor qn_outer(qn_tensor a, qn_tensor b);
QN_API qn_tensor qn_cdist(qn_tensor a, qn_tensor b); /* Euclidean distances of rows: [..][M][D], [..][N][D] */

#ifdef __cplusplus
}
/* QN_SHAPE(2, 3, -1), QN_AXES(0, 1); rank 0 is QN_RANK_0. */
template <typename... E> inline qn_shape qn_shape_of(E... e)
{
    return qn_shape{int(sizeof...(E)), {int64_t(e)...}};
}
template <typename... E> inline qn_axes qn_axes_of(E... e)
{
    return qn_axes{int(sizeof...(E)), {int(e)...}};
}
#define QN_SHAPE(...) qn_shape_of(__VA_ARGS__)
#define QN_AXES(...) qn_axes_of(__VA_ARGS__)
#define QN_RANK_0 (qn_shape{})
#define QN_ALL (qn_axes{})
#else
#define QN_SHAPE(...) ((qn_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#define QN_AXES(...) ((qn_axes){(int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), {__VA_ARGS__}})
#define QN_RANK_0 ((qn_shape){0})
#define QN_ALL ((qn_axes){0})
#endif

#ifndef QN_NO_CALL_SITES
#include <quern/sites.h>
#endif
#endif
