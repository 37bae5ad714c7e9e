/*
 * Every operation of the tensor level, once or in each of its forms, by name: what the matrix of devices, types and
 * shapes tests, and what tests/scripts/tensor_peers.py compares with NumPy and PyTorch. A group builds its operations
 * on inputs of one type and gives them names; the script knows the same names.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TESTS_TENSOR_OPS_H
#define QUERN_TESTS_TENSOR_OPS_H

#include "ir/tile.h"

#define QN_NO_CALL_SITES
#include <quern/nn.h>

enum { MOST_OPS = 160 };

/* Shapes of the inputs: rows x columns, and how the two-dimensional ones lie in memory. */
typedef enum ops_form { FORM_PLAIN, FORM_VIEWS, FORM_ONE_ROW, FORM_EMPTY, FORM_LARGE, FORM_TYPES } ops_form;
static const char *const ops_form_names[FORM_TYPES] = {"plain", "views", "one_row", "empty", "large"};
static const int64_t ops_rows[FORM_TYPES] = {5, 5, 1, 0, 33}, ops_columns[FORM_TYPES] = {7, 7, 9, 4, 130};

typedef struct ops_inputs {
    qn_tape *tape;
    qn_dtype type;
    bool is_float, is_bool;
    int64_t rows, columns;
    qn_tensor a, b;                /* [rows][columns] */
    qn_tensor p;                   /* the same, positive: 1/2 to 2, or 1 to 8 */
    qn_tensor mask;                /* bool */
    qn_tensor row, one;            /* [columns], [1] */
    qn_tensor cube;                /* [2][rows][columns] */
    qn_tensor right;               /* [columns][6] */
    qn_tensor index;               /* i64 [rows][3] below columns */
    qn_tensor picks;               /* i64 [4] below rows */
    qn_tensor image, filter, bias; /* [2][4][6][5], [6][2][3][2], [6] */
    qn_tensor labels;              /* i64 [rows] below columns */
    qn_tensor volume;              /* [1][4][3][4][3] */
    qn_tensor deep;                /* [4][2][2][1][2]: a weight for it */
    qn_tensor gain;                /* [4]: positive, one for each channel of the image */
} ops_inputs;

typedef struct ops_outputs {
    qn_tensor tensors[MOST_OPS];
    char names[MOST_OPS][48];
    int count;
} ops_outputs;

static inline void ops_add(ops_outputs *out, const char *name, qn_tensor t)
{
    if (out->count == MOST_OPS) return;
    snprintf(out->names[out->count], sizeof(out->names[0]), "%s", name);
    out->tensors[out->count++] = t;
}

static inline double ops_number(uint64_t salt, int64_t i)
{
    uint64_t h = (salt + 1) * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 30) * 0x94d049bb133111ebu;
    return (double)(h >> 11) * 0x1p-53;
}

/* Numbers between low and high: floats in steps of 1/64, which every float holds; others whole. */
static inline qn_tensor ops_tensor(qn_tape *tape, qn_dtype type, qn_shape s, int salt, double low, double high)
{
    static char data[1 << 17];
    int64_t count = 1;
    dtype elem = (dtype)type;
    for (int k = 0; k < s.rank; k++) count *= s.extents[k];
    for (int64_t i = 0; i < count; i++) {
        double x = low + (high - low) * ops_number((uint64_t)salt, i);
        number n = {.f = floor(x * 64) / 64,
                    .i = elem == DT_BOOL ? x > (low + high) / 2 : integer_wrap(elem, (int64_t)floor(x))};
        element_write(elem, data + i * dtypes[elem].size_bytes, n);
    }
    return qn_from_memory(tape, data, type, s);
}

/* The same numbers as ops_tensor would have, as a view: every second row of a transposed tensor, backwards. */
static inline qn_tensor ops_view(qn_tape *tape, qn_dtype type, int64_t rows, int64_t columns, int salt, double low,
                                 double high)
{
    qn_tensor whole = ops_tensor(tape, type, QN_SHAPE(columns, 2 * rows), salt, low, high);
    return qn_flip(qn_slice(qn_transpose(whole, 0, 1), 0, 1, QN_END, 2), QN_AXES(1));
}

static inline ops_inputs ops_inputs_make(qn_tape *tape, qn_dtype type, ops_form form)
{
    dtype elem = (dtype)type;
    bool is_float = dtype_is_float(elem);
    double low = is_float ? -2 : dtypes[elem].kind == KIND_INT ? -8 : 0, high = is_float ? 2 : 9;
    int64_t rows = ops_rows[form], columns = ops_columns[form];
    ops_inputs in = {
        .tape = tape, .type = type, .is_float = is_float, .is_bool = elem == DT_BOOL, .rows = rows, .columns = columns};
    qn_shape s = QN_SHAPE(rows, columns);
    if (form == FORM_VIEWS) {
        in.a = ops_view(tape, type, rows, columns, 1, low, high);
        in.b = ops_view(tape, type, rows, columns, 2, low, high);
        in.p = qn_expand(ops_tensor(tape, type, QN_SHAPE(rows, 1), 3, is_float ? 0.5 : 1, is_float ? 2 : 8), s);
    } else {
        in.a = ops_tensor(tape, type, s, 1, low, high);
        in.b = ops_tensor(tape, type, s, 2, low, high);
        in.p = ops_tensor(tape, type, s, 3, is_float ? 0.5 : 1, is_float ? 2 : 8);
    }
    in.mask = ops_tensor(tape, QN_BOOL, s, 4, 0, 1);
    in.row = ops_tensor(tape, type, QN_SHAPE(columns), 5, low, high);
    in.one = ops_tensor(tape, type, QN_SHAPE(1), 6, low, high);
    in.cube = ops_tensor(tape, type, QN_SHAPE(2, rows, columns), 7, low, high);
    in.right = ops_tensor(tape, type, QN_SHAPE(columns, 6), 8, low, high);
    in.index = ops_tensor(tape, QN_I64, QN_SHAPE(rows, 3), 9, 0, (double)columns);
    in.picks = ops_tensor(tape, QN_I64, QN_SHAPE(4), 10, 0, (double)rows);
    in.image = ops_tensor(tape, type, QN_SHAPE(2, 4, 6, 5), 11, low, high);
    in.filter = ops_tensor(tape, type, QN_SHAPE(6, 2, 3, 2), 12, low, high);
    in.bias = ops_tensor(tape, type, QN_SHAPE(6), 13, low, high);
    in.labels = ops_tensor(tape, QN_I64, QN_SHAPE(rows), 14, 0, (double)columns);
    in.volume = ops_tensor(tape, type, QN_SHAPE(1, 4, 3, 4, 3), 15, low, high);
    in.deep = ops_tensor(tape, type, QN_SHAPE(4, 2, 2, 1, 2), 16, low, high);
    in.gain = ops_tensor(tape, type, QN_SHAPE(4), 17, is_float ? 0.5 : 1, is_float ? 2 : 8);
    return in;
}

/* ---- groups ---- */

static inline void ops_unary(const ops_inputs *in, ops_outputs *out)
{
    ops_add(out, "neg", qn_neg(in->a));
    ops_add(out, "abs", qn_abs(in->a));
    ops_add(out, "sign", qn_sign(in->a));
    ops_add(out, "square", qn_square(in->a));
    ops_add(out, "clamp", qn_clamp(in->a, -1, 1));
    if (!in->is_float) {
        ops_add(out, "not", qn_not(in->a));
        return;
    }
    ops_add(out, "floor", qn_floor(in->a));
    ops_add(out, "ceil", qn_ceil(in->a));
    ops_add(out, "round", qn_round(in->a));
    ops_add(out, "relu", qn_relu(in->a));
    ops_add(out, "isnan", qn_isnan(in->a));
    ops_add(out, "isinf", qn_isinf(in->a));
    ops_add(out, "sqrt", qn_sqrt(in->p));
    ops_add(out, "rsqrt", qn_rsqrt(in->p));
    ops_add(out, "reciprocal", qn_reciprocal(in->p));
    ops_add(out, "log", qn_log(in->p));
    ops_add(out, "log2", qn_log2(in->p));
    ops_add(out, "log1p", qn_log1p(in->p));
}

/* Functions that cost: a group of their own keeps kernels small. */
static inline void ops_functions(const ops_inputs *in, ops_outputs *out)
{
    ops_add(out, "exp", qn_exp(in->a));
    ops_add(out, "exp2", qn_exp2(in->a));
    ops_add(out, "expm1", qn_expm1(in->a));
    ops_add(out, "sin", qn_sin(in->a));
    ops_add(out, "cos", qn_cos(in->a));
    ops_add(out, "tanh", qn_tanh(in->a));
    ops_add(out, "erf", qn_erf(in->a));
    ops_add(out, "sigmoid", qn_sigmoid(in->a));
    ops_add(out, "gelu", qn_gelu(in->a));
    ops_add(out, "gelu_tanh", qn_gelu_tanh(in->a));
    ops_add(out, "silu", qn_silu(in->a));
    ops_add(out, "softplus", qn_softplus(in->a));
}

static inline void ops_binary(const ops_inputs *in, ops_outputs *out)
{
    qn_tensor a = in->a, b = in->b;
    ops_add(out, "maximum", qn_maximum(a, b));
    ops_add(out, "minimum", qn_minimum(a, b));
    ops_add(out, "eq", qn_eq(a, b));
    ops_add(out, "ne", qn_ne(a, b));
    ops_add(out, "lt", qn_lt(a, b));
    ops_add(out, "le", qn_le(a, b));
    ops_add(out, "gt", qn_gt(a, b));
    ops_add(out, "ge", qn_ge(a, b));
    ops_add(out, "where", qn_where(in->mask, a, b));
    if (!in->is_float) {
        ops_add(out, "and", qn_and(a, b));
        ops_add(out, "or", qn_or(a, b));
        ops_add(out, "xor", qn_xor(a, b));
    }
    if (in->is_bool) return;
    ops_add(out, "add", qn_add(a, b));
    ops_add(out, "sub", qn_sub(a, b));
    ops_add(out, "mul", qn_mul(a, b));
    ops_add(out, "add_row", qn_add(a, in->row));
    ops_add(out, "mul_one", qn_mul(in->one, a));
    ops_add(out, "add_scalar", qn_add_scalar(a, 3));
    ops_add(out, "rsub_scalar", qn_rsub_scalar(a, 3));
    ops_add(out, "mul_scalar", qn_mul_scalar(a, 2));
    ops_add(out, "lt_scalar", qn_lt_scalar(a, 1));
    ops_add(out, "ge_scalar_below", qn_ge_scalar(a, -1000));
    ops_add(out, "minimum_scalar_above", qn_minimum_scalar(a, 1000));
}

static inline void ops_divisions(const ops_inputs *in, ops_outputs *out)
{
    ops_add(out, "div", qn_div(in->a, in->p));
    ops_add(out, "floor_div", qn_floor_div(in->a, in->p));
    ops_add(out, "mod", qn_mod(in->a, in->p));
    ops_add(out, "div_scalar", qn_div_scalar(in->a, 3));
    ops_add(out, "rdiv_scalar", qn_rdiv_scalar(in->p, 3));
    if (in->is_float) {
        ops_add(out, "pow", qn_pow(in->p, in->a));
        ops_add(out, "pow_scalar", qn_pow_scalar(in->p, 1.5));
        ops_add(out, "fma", qn_fma(in->a, in->b, in->p));
    } else {
        ops_add(out, "shl", qn_shl(in->a, in->p));
        ops_add(out, "shr", qn_shr(in->a, in->p));
    }
}

static inline void ops_casts(const ops_inputs *in, ops_outputs *out)
{
    for (int t = 0; t < DT_COUNT; t++) {
        char name[48];
        snprintf(name, sizeof(name), "cast_%s", dtypes[t].text);
        /* Negative floats to unsigned types saturate here and wrap elsewhere. */
        bool plain = !in->is_float || dtypes[t].kind != KIND_UINT;
        ops_add(out, name, qn_cast(plain ? in->a : in->p, (qn_dtype)t));
    }
}

static inline void ops_movement(const ops_inputs *in, ops_outputs *out)
{
    qn_tensor a = in->a;
    int64_t R = in->rows, C = in->columns;
    ops_add(out, "reshape", qn_reshape(a, QN_SHAPE(C, R)));
    ops_add(out, "flatten", qn_flatten(in->cube, 0, 1));
    ops_add(out, "permute", qn_permute(in->cube, QN_AXES(2, 0, 1)));
    ops_add(out, "transpose", qn_transpose(a, 0, 1));
    ops_add(out, "expand", qn_expand(in->row, QN_SHAPE(R, C)));
    ops_add(out, "slice", qn_slice(a, 1, 1, -1, 2));
    ops_add(out, "flip", qn_flip(a, QN_AXES(0, 1)));
    ops_add(out, "unsqueeze", qn_unsqueeze(a, 1));
    ops_add(out, "squeeze", qn_squeeze(in->one, QN_AXES(0)));
    ops_add(out, "index", qn_index(a, 1, 2));
    ops_add(out, "window", qn_window(a, 1, 2, 2, 1));
}

/* Triangles, diagonals, turns: of everything that has two axes. */
static inline void ops_triangles(const ops_inputs *in, ops_outputs *out)
{
    ops_add(out, "tril", qn_tril(in->a, 0));
    ops_add(out, "tril_below", qn_tril(in->cube, -2));
    ops_add(out, "triu_above", qn_triu(in->a, 1));
    ops_add(out, "diagonal", qn_diagonal(in->a, 0, 0, 1));
    ops_add(out, "diagonal_right", qn_diagonal(in->cube, 2, 1, 2));
    ops_add(out, "diagonal_left", qn_diagonal(in->cube, -1, -1, 0));
    ops_add(out, "roll", qn_roll(in->a, QN_SHAPE(3), QN_ALL));
    ops_add(out, "roll_axes", qn_roll(in->cube, QN_SHAPE(1, -2), QN_AXES(1, 2)));
    ops_add(out, "masked_fill", qn_masked_fill(in->a, in->mask, 1));
    qn_tensor pieces[2];
    qn_unbind(in->cube, 0, 2, pieces);
    ops_add(out, "unbind_1", pieces[1]);
}

/* What makes new tensors. */
static inline void ops_joins(const ops_inputs *in, ops_outputs *out)
{
    ops_add(out, "pad", qn_pad(in->a, QN_SHAPE(1, 2), QN_SHAPE(0, 3), 1));
    ops_add(out, "pad_cut", qn_pad(in->a, QN_SHAPE(0, -1), QN_SHAPE(2, -1), 0));
    ops_add(out, "concat", qn_concat((qn_tensor[]){in->a, in->b, in->a}, 3, 1));
    ops_add(out, "concat_0", qn_concat((qn_tensor[]){in->a, in->b}, 2, 0));
    ops_add(out, "stack", qn_stack((qn_tensor[]){in->a, in->b}, 2, 1));
    ops_add(out, "repeat", qn_repeat(in->a, QN_SHAPE(2, 1, 3)));
    qn_tensor pieces[2];
    qn_chunk(in->a, 1, 2, pieces);
    ops_add(out, "chunk_0", pieces[0]);
    ops_add(out, "chunk_1", pieces[1]);
    qn_split(in->a, 1, (const int64_t[]){1, in->columns - 1}, 2, pieces);
    ops_add(out, "split_1", pieces[1]);
}

static inline void ops_sums(const ops_inputs *in, ops_outputs *out)
{
    qn_tensor a = in->a;
    ops_add(out, "sum_0", qn_sum(a, QN_AXES(0), false));
    ops_add(out, "sum_1", qn_sum(a, QN_AXES(1), true));
    ops_add(out, "sum", qn_sum(a, QN_ALL, false));
    ops_add(out, "sum_02", qn_sum(in->cube, QN_AXES(0, 2), false));
    ops_add(out, "prod_1", qn_prod(qn_slice(a, 1, 0, 3, 1), QN_AXES(1), false));
    if (!in->is_float) return;
    ops_add(out, "mean_0", qn_mean(a, QN_AXES(0), false));
    ops_add(out, "mean", qn_mean(a, QN_ALL, false));
    ops_add(out, "norm_1", qn_norm(a, 1, QN_AXES(1), false));
    ops_add(out, "norm_2", qn_norm(a, 2, QN_AXES(0), true));
    ops_add(out, "norm_0", qn_norm(a, 0, QN_AXES(1), false));
}

static inline void ops_extremes(const ops_inputs *in, ops_outputs *out)
{
    qn_tensor a = in->a;
    if (in->is_bool) {
        ops_add(out, "any_0", qn_any(a, QN_AXES(0), false));
        ops_add(out, "all_1", qn_all(a, QN_AXES(1), true));
        ops_add(out, "any", qn_any(a, QN_ALL, false));
        return;
    }
    ops_add(out, "max_0", qn_max(a, QN_AXES(0), false));
    ops_add(out, "min_1", qn_min(a, QN_AXES(1), true));
    ops_add(out, "max", qn_max(a, QN_ALL, false));
    ops_add(out, "argmax_0", qn_argmax(a, QN_AXES(0), false));
    ops_add(out, "argmin_1", qn_argmin(a, QN_AXES(1), true));
    ops_add(out, "argmax", qn_argmax(a, QN_ALL, false));
    if (!in->is_float) return;
    ops_add(out, "norm_inf", qn_norm(a, INFINITY, QN_AXES(1), false));
    ops_add(out, "var_1", qn_var(a, QN_AXES(1), 1, false));
    ops_add(out, "std_0", qn_std(qn_transpose(a, 0, 1), QN_AXES(0), 0, false));
    ops_add(out, "logsumexp_1", qn_logsumexp(a, QN_AXES(1), false));
}

static inline void ops_scans(const ops_inputs *in, ops_outputs *out)
{
    ops_add(out, "cumsum_0", qn_cumsum(in->a, 0));
    ops_add(out, "cumsum_1", qn_cumsum(in->a, 1));
    ops_add(out, "cumprod_1", qn_cumprod(qn_slice(in->p, 1, 0, 3, 1), 1));
    ops_add(out, "cummax_1", qn_cummax(in->a, 1));
    ops_add(out, "cummin_0", qn_cummin(in->a, 0));
    ops_add(out, "cumsum_back", qn_cumsum_with(in->a, 1, true, false));
    ops_add(out, "cumsum_before", qn_cumsum_with(in->a, 0, false, true));
    ops_add(out, "cumsum_after", qn_cumsum_with(in->a, 1, true, true));
    ops_add(out, "cumprod_before", qn_cumprod_with(qn_slice(in->p, 1, 0, 3, 1), 1, false, true));
    ops_add(out, "cummax_back", qn_cummax_with(in->a, 1, true, false));
    ops_add(out, "cummax_before", qn_cummax_with(in->a, 1, false, true));
    ops_add(out, "cummin_after", qn_cummin_with(in->a, 0, true, true));
}

static inline void ops_sorts(const ops_inputs *in, ops_outputs *out)
{
    qn_tensor places;
    ops_add(out, "argsort_1", qn_argsort(in->a, 1, false));
    ops_add(out, "argsort_0_down", qn_argsort(in->a, 0, true));
    ops_add(out, "sort_1", qn_sort(in->a, 1, false, NULL));
    ops_add(out, "topk", qn_topk(in->a, MINIMUM(3, in->columns), 1, true, &places));
    ops_add(out, "topk_places", places);
}

static inline void ops_indices(const ops_inputs *in, ops_outputs *out)
{
    ops_add(out, "gather_1", qn_gather(in->a, 1, in->index));
    ops_add(out, "index_select_0", qn_index_select(in->a, 0, in->picks));
    ops_add(out, "embedding", qn_embedding(in->a, qn_reshape(in->picks, QN_SHAPE(2, 2))));
    ops_add(out, "one_hot", qn_one_hot(in->labels, in->columns, in->type));
    qn_tensor four = qn_expand(qn_unsqueeze(in->row, 0), QN_SHAPE(4, in->columns));
    ops_add(out, "index_copy_0", qn_index_copy(in->a, 0, in->picks, four));
    qn_tensor places[2] = {qn_unsqueeze(qn_arange(in->tape, QN_I64, 0, (double)in->rows, 1), 1), in->index};
    ops_add(out, "index_put", qn_index_put(in->a, places, 2, in->one, false));
    ops_add(out, "index_put_row", qn_index_put(in->a, &in->picks, 1, in->row, false));
    if (in->is_bool) return;
    qn_tensor updates = qn_slice(in->b, 1, 0, 3, 1);
    ops_add(out, "scatter_add_1", qn_scatter_add(in->a, 1, in->index, updates));
    qn_tensor rows = qn_concat((qn_tensor[]){in->row, in->row, in->row, in->row}, 4, 0);
    ops_add(out, "index_add_0", qn_index_add(in->a, 0, in->picks, qn_reshape(rows, QN_SHAPE(4, in->columns))));
    ops_add(out, "index_put_add", qn_index_put(in->a, places, 2, qn_slice(in->b, 1, 0, 3, 1), true));
}

static inline void ops_products(const ops_inputs *in, ops_outputs *out)
{
    ops_add(out, "matmul", qn_matmul(in->a, in->right));
    ops_add(out, "matmul_batch", qn_matmul(in->cube, in->right));
    ops_add(out, "matmul_vector", qn_matmul(in->a, in->row));
    ops_add(out, "outer", qn_outer(in->row, in->row));
    ops_add(out, "linear", qn_linear(in->a, in->right, in->bias));
    ops_add(out, "cdist", qn_cdist(in->a, in->b));
}

/* Products by other names, and letters. */
static inline void ops_einsum(const ops_inputs *in, ops_outputs *out)
{
    qn_tensor batch = qn_expand(qn_unsqueeze(in->right, 0), QN_SHAPE(2, in->columns, 6));
    ops_add(out, "bmm", qn_bmm(in->cube, batch));
    ops_add(out, "addmm", qn_addmm(in->bias, in->a, in->right, 0.5, 2));
    ops_add(out, "baddbmm", qn_baddbmm(qn_unsqueeze(in->bias, 0), in->cube, batch, 1, -1));
    ops_add(out, "einsum_product", qn_einsum("ij,jk->ik", (qn_tensor[]){in->a, in->right}, 2));
    ops_add(out, "einsum_scores", qn_einsum("b i d, b j d -> b i j", (qn_tensor[]){in->cube, in->cube}, 2));
    ops_add(out, "einsum_turned", qn_einsum("bij->jbi", &in->cube, 1));
    ops_add(out, "einsum_sum", qn_einsum("bij->i", &in->cube, 1));
    ops_add(out, "einsum_outer", qn_einsum("i,j->ji", (qn_tensor[]){in->row, in->bias}, 2));
    ops_add(out, "einsum_three", qn_einsum("...ij,jk,k->...i", (qn_tensor[]){in->cube, in->right, in->bias}, 3));
    ops_add(out, "einsum_trace", qn_einsum("ii", (qn_tensor[]){qn_matmul(in->a, qn_transpose(in->b, 0, 1))}, 1));
    ops_add(out, "einsum_inner", qn_einsum("ij,ij", (qn_tensor[]){in->a, in->b}, 2));
}

static inline void ops_activations(const ops_inputs *in, ops_outputs *out)
{
    qn_tensor a = qn_mul_scalar(in->a, 2); /* -4 to 4: beyond all corners */
    ops_add(out, "leaky_relu", qn_leaky_relu(a, 0.1));
    ops_add(out, "elu", qn_elu(a, 1.5));
    ops_add(out, "selu", qn_selu(a));
    ops_add(out, "celu", qn_celu(a, 2));
    ops_add(out, "mish", qn_mish(a));
    ops_add(out, "hardswish", qn_hardswish(a));
    ops_add(out, "hardsigmoid", qn_hardsigmoid(a));
    ops_add(out, "hardtanh", qn_hardtanh(a, -1, 2));
    ops_add(out, "relu6", qn_relu6(qn_mul_scalar(a, 2)));
    ops_add(out, "softsign", qn_softsign(a));
    ops_add(out, "logsigmoid", qn_logsigmoid(a));
    ops_add(out, "threshold", qn_threshold(a, 1, -3));
    ops_add(out, "prelu", qn_prelu(a, in->row));
    ops_add(out, "prelu_one", qn_prelu(in->cube, in->one));
    ops_add(out, "glu", qn_glu(in->cube, 0));
    ops_add(out, "swiglu", qn_swiglu(in->cube, QN_NONE, 0));
    ops_add(out, "swiglu_two", qn_swiglu(in->a, in->b, 0));
    ops_add(out, "logaddexp", qn_logaddexp(in->a, in->b));
}

static inline void ops_norms(const ops_inputs *in, ops_outputs *out)
{
    qn_tensor mean, variance, shift = qn_slice(in->bias, 0, 0, 4, 1), none = QN_NONE;
    ops_add(
        out, "batch_norm",
        qn_batch_norm(in->image, qn_detach(shift), qn_detach(in->gain), in->gain, shift, false, 0.1, 1e-5, NULL, NULL));
    ops_add(out, "batch_norm_training",
            qn_batch_norm(in->image, shift, in->gain, in->gain, shift, true, 0.2, 1e-5, &mean, &variance));
    ops_add(out, "batch_norm_mean", mean);
    ops_add(out, "batch_norm_variance", variance);
    ops_add(out, "batch_norm_plain", qn_batch_norm(in->volume, none, none, none, none, true, 0, 1e-3, NULL, NULL));
    ops_add(out, "group_norm", qn_group_norm(in->image, 2, in->gain, shift, 1e-5));
    ops_add(out, "instance_norm", qn_instance_norm(in->image, in->gain, none, 1e-5));
}

static inline void ops_losses(const ops_inputs *in, ops_outputs *out)
{
    qn_tensor logs = qn_log_softmax(in->a, 1), sides = qn_sub_scalar(qn_mul_scalar(qn_cast(in->mask, in->type), 2), 1);
    ops_add(out, "l1_loss", qn_l1_loss(in->a, in->b, QN_MEAN));
    ops_add(out, "smooth_l1_loss", qn_smooth_l1_loss(in->a, in->b, 0.5, QN_MEAN));
    ops_add(out, "huber_loss", qn_huber_loss(in->a, in->b, 1.5, QN_EACH));
    ops_add(out, "kl_div", qn_kl_div(logs, qn_softmax(in->b, 1), false, QN_BATCH_MEAN));
    ops_add(out, "kl_div_logs", qn_kl_div(logs, in->b, true, QN_SUM));
    ops_add(out, "nll_loss", qn_nll_loss(logs, in->labels, QN_MEAN, QN_NO_INDEX));
    ops_add(out, "nll_loss_ignore", qn_nll_loss(logs, in->labels, QN_SUM, 1));
    ops_add(out, "hinge_embedding_loss", qn_hinge_embedding_loss(in->a, sides, 1.25, QN_MEAN));
    ops_add(out, "triplet_margin_loss", qn_triplet_margin_loss(in->a, in->b, in->p, 1, 2, 1e-6, QN_MEAN));
    ops_add(out, "cosine_similarity", qn_cosine_similarity(in->a, in->b, 1, 1e-8));
}

static inline void ops_layers(const ops_inputs *in, ops_outputs *out)
{
    int64_t C = in->columns;
    ops_add(out, "softmax", qn_softmax(in->a, 1));
    ops_add(out, "softmax_0", qn_softmax(in->a, 0));
    ops_add(out, "log_softmax", qn_log_softmax(in->a, 1));
    ops_add(out, "layer_norm", qn_layer_norm(in->a, QN_SHAPE(C), in->row, QN_NONE, 1e-5));
    ops_add(out, "rms_norm", qn_rms_norm(in->a, QN_SHAPE(C), in->row, 1e-5));
    ops_add(out, "mse_loss", qn_mse_loss(in->a, in->b, QN_MEAN));
    ops_add(out, "cross_entropy", qn_cross_entropy(in->a, in->labels, QN_MEAN, -100));
    ops_add(out, "bce", qn_bce_with_logits(in->a, qn_sigmoid(in->b), QN_EACH));
    ops_add(out, "attention", qn_scaled_dot_product_attention(in->a, in->b, in->p, QN_NONE, true, 0));
}

static inline void ops_images(const ops_inputs *in, ops_outputs *out)
{
    qn_conv2d_options options = {.stride = {2, 1}, .padding = {1, 2}, .groups = 2};
    ops_add(out, "conv2d", qn_conv2d(in->image, in->filter, in->bias, &options));
    ops_add(out, "max_pool2d", qn_max_pool2d(in->image, 2, 2, NULL));
    qn_pool2d_options pool = {.stride = {1, 2}, .padding = {1, 1}};
    ops_add(out, "avg_pool2d", qn_avg_pool2d(in->image, 3, 3, &pool));
}

static inline void ops_convolutions(const ops_inputs *in, ops_outputs *out)
{
    qn_tensor line = qn_flatten(in->image, 2, 3), taps = qn_flatten(in->filter, 2, 3);
    ops_add(out, "conv1d",
            qn_conv(line, taps, in->bias, &(qn_conv_options){.stride = {2}, .dilation = {3}, .groups = 2}));
    ops_add(out, "conv3d",
            qn_conv(in->volume, in->deep, in->gain,
                    &(qn_conv_options){.stride = {1, 2, 1}, .padding = {1, 0, 1}, .groups = 2}));
    ops_add(out, "conv_transpose1d",
            qn_conv_transpose(line, qn_slice(taps, 0, 0, 4, 1), QN_NONE,
                              &(qn_conv_options){.stride = {2}, .padding = {1}}));
    qn_conv_options o = {
        .stride = {2, 3}, .padding = {1, 0}, .dilation = {1, 2}, .output_padding = {1, 2}, .groups = 2};
    ops_add(out, "conv_transpose2d",
            qn_conv_transpose(in->image, qn_slice(in->filter, 0, 0, 4, 1), qn_slice(in->bias, 0, 0, 4, 1), &o));
    ops_add(out, "conv_transpose3d",
            qn_conv_transpose(in->volume, in->deep, QN_NONE, &(qn_conv_options){.stride = {2, 1, 1}}));
}

static inline void ops_pools(const ops_inputs *in, ops_outputs *out)
{
    qn_tensor line = qn_flatten(in->image, 2, 3);
    qn_pool_options up = {.stride = {2, 2, 2}, .padding = {1, 1, 1}, .ceil_mode = true}, alone = up;
    alone.without_padding = true;
    ops_add(out, "max_pool1d", qn_max_pool(line, QN_SHAPE(3), &(qn_pool_options){.dilation = {2}, .padding = {1}}));
    ops_add(out, "max_pool2d_up", qn_max_pool(in->image, QN_SHAPE(3, 2), &up));
    ops_add(out, "max_pool3d", qn_max_pool(in->volume, QN_SHAPE(2, 2, 2), &(qn_pool_options){.stride = {1, 2, 1}}));
    ops_add(out, "avg_pool1d", qn_avg_pool(line, QN_SHAPE(4), NULL));
    ops_add(out, "avg_pool2d_up", qn_avg_pool(in->image, QN_SHAPE(3, 2), &up));
    ops_add(out, "avg_pool2d_alone", qn_avg_pool(in->image, QN_SHAPE(3, 2), &alone));
    ops_add(out, "avg_pool3d", qn_avg_pool(in->volume, QN_SHAPE(2, 3, 2), &(qn_pool_options){.divisor = 5}));
    /* No two elements of a window are equal: to which of them a gradient goes is a matter of taste. */
    qn_tensor rising = qn_mul_scalar(qn_arange(in->tape, in->type, 0, 30, 1), 1.0 / 1024);
    ops_add(out, "adaptive_max_pool1d", qn_adaptive_max_pool(qn_add(line, rising), QN_SHAPE(7)));
    ops_add(out, "adaptive_avg_pool2d", qn_adaptive_avg_pool(in->image, QN_SHAPE(3, 3)));
    ops_add(out, "adaptive_avg_pool2d_one", qn_adaptive_avg_pool(in->image, QN_SHAPE(1, 1)));
    ops_add(out, "adaptive_max_pool3d", qn_adaptive_max_pool(in->volume, QN_SHAPE(2, 4, 1)));
    ops_add(out, "upsample_nearest", qn_upsample_nearest(in->image, QN_SHAPE(12, 10)));
    ops_add(out, "upsample_nearest_odd", qn_upsample_nearest(in->image, QN_SHAPE(11, 4)));
    ops_add(out, "upsample_linear1d", qn_upsample_linear(line, QN_SHAPE(47), false));
    ops_add(out, "upsample_bilinear2d", qn_upsample_linear(in->image, QN_SHAPE(9, 10), false));
    ops_add(out, "upsample_bilinear2d_corners", qn_upsample_linear(in->image, QN_SHAPE(11, 3), true));
    ops_add(out, "upsample_trilinear3d", qn_upsample_linear(in->volume, QN_SHAPE(5, 4, 6), false));
}

enum { OPS_FLOATS = 1, OPS_INTEGERS = 2, OPS_BOOL = 4, OPS_ANY = 7, OPS_NUMBERS = 3 };

static const struct ops_group {
    const char *name;
    void (*build)(const ops_inputs *in, ops_outputs *out);
    unsigned kinds; /* of types it takes */
    bool empty;     /* it has a meaning for tensors without elements */
} ops_groups[] = {
    {"unary", ops_unary, OPS_NUMBERS, true},
    {"functions", ops_functions, OPS_FLOATS, true},
    {"binary", ops_binary, OPS_ANY, true},
    {"divisions", ops_divisions, OPS_NUMBERS, true},
    {"casts", ops_casts, OPS_ANY, true},
    {"movement", ops_movement, OPS_ANY, true},
    {"joins", ops_joins, OPS_ANY, true},
    {"sums", ops_sums, OPS_NUMBERS, true},
    {"extremes", ops_extremes, OPS_ANY, false},
    {"scans", ops_scans, OPS_NUMBERS, true},
    {"sorts", ops_sorts, OPS_NUMBERS, true},
    {"indices", ops_indices, OPS_ANY, false},
    {"products", ops_products, OPS_FLOATS, true},
    {"layers", ops_layers, OPS_FLOATS, false},
    {"images", ops_images, OPS_FLOATS, false},
    {"triangles", ops_triangles, OPS_ANY, false},
    {"einsum", ops_einsum, OPS_FLOATS, false},
    {"activations", ops_activations, OPS_FLOATS, true},
    {"norms", ops_norms, OPS_FLOATS, false},
    {"losses", ops_losses, OPS_FLOATS, false},
    {"convolutions", ops_convolutions, OPS_FLOATS, false},
    {"pools", ops_pools, OPS_FLOATS, false},
};

static inline bool ops_takes(int group, dtype elem)
{
    unsigned kind = dtype_is_float(elem) ? OPS_FLOATS : elem == DT_BOOL ? OPS_BOOL : OPS_INTEGERS;
    return ops_groups[group].kinds & kind;
}

#endif
