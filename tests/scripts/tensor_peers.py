"""Compares what test_tensor_matrix wrote (QUERN_PEERS=FOLDER) with NumPy, and with PyTorch where it is installed.

Usage: tensor_peers.py FOLDER. Each folder FOLDER/TYPE-FORM holds the inputs in-NAME.npy and one file for each operation;
an operation that this script does not know is a failure, so that both lists stay the same. NumPy computes in the type of
its inputs except for f16, which goes through f32; what only PyTorch has is compared with PyTorch. Files
grad-NAME-INPUT.npy are gradients of half the sum of squares of an operation. Ends with "N passed, N failed".
SPDX-License-Identifier: MIT
"""

import os
import sys

import numpy as np

try:
    import torch
    import torch.nn.functional as functional
except ImportError:
    torch = None

INPUTS = ["a", "b", "p", "mask", "row", "one", "cube", "right", "index", "picks", "image", "filter", "bias", "labels", "volume", "deep", "gain"]
STEP = {np.dtype(np.float16): 2.0**-11, np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}


def wide(x):
    """f16 is computed in f32 everywhere; sums of f32 in f64, so that only Quern's rounding counts."""
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def erf(x):
    from math import erf as one

    return np.vectorize(one, otypes=[np.float64])(x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def total(x, **how):
    """Sums of integers are i64 or u64."""
    return x.sum(dtype=(np.uint64 if x.dtype.kind == "u" else np.int64) if x.dtype.kind in "iu" else None, **how)


def product(x, **how):
    return x.prod(dtype=(np.uint64 if x.dtype.kind == "u" else np.int64) if x.dtype.kind in "iu" else None, **how)


def running(x, how, axis):
    kind = x.dtype.kind
    return how.accumulate(x, axis=axis, dtype=(np.uint64 if kind == "u" else np.int64) if kind in "iu" else None)


def scattered(i):
    out = i.a.copy()
    for r in range(i.index.shape[0]):
        for k in range(i.index.shape[1]):
            out[r, i.index[r, k]] += i.b[r, k]
    return out


def index_added(i):
    out = i.a.copy()
    for k in i.picks:
        out[k] += i.row
    return out


def windows(x, rows, columns, stride, dilation=(1, 1)):
    """[N][C][H][W] to [N][C][places][places][rows][columns]."""
    height, width = (x.shape[2] - (rows - 1) * dilation[0] - 1, x.shape[3] - (columns - 1) * dilation[1] - 1)
    out = np.empty(x.shape[:2] + (height // stride[0] + 1, width // stride[1] + 1, rows, columns), x.dtype)
    for i in range(out.shape[2]):
        for j in range(out.shape[3]):
            top, left = i * stride[0], j * stride[1]
            out[:, :, i, j] = x[:, :, top : top + rows * dilation[0] : dilation[0], left : left + columns * dilation[1] : dilation[1]]
    return out


def conv2d(i):
    x = np.pad(i.image, ((0, 0), (0, 0), (1, 1), (2, 2)))
    view = windows(x, 3, 2, (2, 1))
    halves = [np.einsum("ncijrs,ocrs->noij", view[:, 2 * g : 2 * g + 2], i.filter[3 * g : 3 * g + 3]) for g in (0, 1)]
    return np.concatenate(halves, 1) + i.bias[None, :, None, None]


def layer_norm(x, weight):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * weight


def attention(i):
    scores = i.a @ i.b.T / np.sqrt(i.a.shape[1])
    scores = np.where(np.tril(np.ones(scores.shape, bool)), scores, -np.inf)
    return softmax(scores, 1) @ i.p


def cross_entropy(i):
    log = i.a - np.log(np.exp(i.a).sum(1, keepdims=True))
    return -log[np.arange(i.a.shape[0]), i.labels].mean()


def stable_order(x, axis, down):
    if not down:
        return np.argsort(x, axis=axis, kind="stable")
    back = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    return x.shape[axis] - 1 - back


def clamp(x):
    return np.minimum(np.maximum(x, -1), 1) if x.dtype.kind != "u" else np.minimum(x, 1)


def divided(x, y):
    """Division of integers gives floats."""
    return np.true_divide(x, y)


# Everything of tests/tensor_ops.h by its name. i: the inputs, floats as f64.
OPS = {
    "neg": lambda i: -i.a,
    "abs": lambda i: np.abs(i.a),
    "sign": lambda i: np.sign(i.a),
    "square": lambda i: i.a * i.a,
    "clamp": lambda i: clamp(i.a),
    "not": lambda i: ~i.a,
    "floor": lambda i: np.floor(i.a),
    "ceil": lambda i: np.ceil(i.a),
    "round": lambda i: np.round(i.a),
    "relu": lambda i: np.maximum(i.a, 0),
    "isnan": lambda i: np.isnan(i.a),
    "isinf": lambda i: np.isinf(i.a),
    "sqrt": lambda i: np.sqrt(i.p),
    "rsqrt": lambda i: 1 / np.sqrt(i.p),
    "reciprocal": lambda i: 1 / i.p,
    "log": lambda i: np.log(i.p),
    "log2": lambda i: np.log2(i.p),
    "log1p": lambda i: np.log1p(i.p),
    "exp": lambda i: np.exp(i.a),
    "exp2": lambda i: np.exp2(i.a),
    "expm1": lambda i: np.expm1(i.a),
    "sin": lambda i: np.sin(i.a),
    "cos": lambda i: np.cos(i.a),
    "tanh": lambda i: np.tanh(i.a),
    "erf": lambda i: erf(i.a),
    "sigmoid": lambda i: sigmoid(i.a),
    "gelu": lambda i: 0.5 * i.a * (1 + erf(i.a / np.sqrt(2))),
    "gelu_tanh": lambda i: 0.5 * i.a * (1 + np.tanh(np.sqrt(2 / np.pi) * (i.a + 0.044715 * i.a**3))),
    "silu": lambda i: i.a * sigmoid(i.a),
    "softplus": lambda i: np.logaddexp(i.a, 0),
    "maximum": lambda i: np.maximum(i.a, i.b),
    "minimum": lambda i: np.minimum(i.a, i.b),
    "eq": lambda i: i.a == i.b,
    "ne": lambda i: i.a != i.b,
    "lt": lambda i: i.a < i.b,
    "le": lambda i: i.a <= i.b,
    "gt": lambda i: i.a > i.b,
    "ge": lambda i: i.a >= i.b,
    "where": lambda i: np.where(i.mask, i.a, i.b),
    "and": lambda i: i.a & i.b,
    "or": lambda i: i.a | i.b,
    "xor": lambda i: i.a ^ i.b,
    "add": lambda i: i.a + i.b,
    "sub": lambda i: i.a - i.b,
    "mul": lambda i: i.a * i.b,
    "add_row": lambda i: i.a + i.row,
    "mul_one": lambda i: i.one * i.a,
    "add_scalar": lambda i: i.a + 3,
    "rsub_scalar": lambda i: 3 - i.a,
    "mul_scalar": lambda i: i.a * 2,
    "lt_scalar": lambda i: i.a < 1,
    "ge_scalar_below": lambda i: i.a.astype(np.float64) >= -1000,
    "minimum_scalar_above": lambda i: np.minimum(i.a.astype(np.float64), 1000).astype(i.a.dtype),
    "div": lambda i: divided(i.a, i.p),
    "floor_div": lambda i: np.floor_divide(i.a, i.p),
    "mod": lambda i: np.mod(i.a, i.p),
    "div_scalar": lambda i: divided(i.a, 3),
    "rdiv_scalar": lambda i: divided(3, i.p),
    "pow": lambda i: np.power(i.p, i.a),
    "pow_scalar": lambda i: np.power(i.p, 1.5),
    "fma": lambda i: i.a * i.b + i.p,
    "shl": lambda i: i.a << (i.p % (8 * i.p.itemsize)),
    "shr": lambda i: i.a >> (i.p % (8 * i.p.itemsize)),
    "reshape": lambda i: i.a.reshape(i.a.shape[1], i.a.shape[0]),
    "flatten": lambda i: i.cube.reshape(-1, i.cube.shape[2]) if i.cube.size else i.cube.reshape(2 * i.cube.shape[1], i.cube.shape[2]),
    "permute": lambda i: i.cube.transpose(2, 0, 1),
    "transpose": lambda i: i.a.T,
    "expand": lambda i: np.broadcast_to(i.row, i.a.shape),
    "slice": lambda i: i.a[:, 1:-1:2],
    "flip": lambda i: i.a[::-1, ::-1],
    "unsqueeze": lambda i: i.a[:, None],
    "squeeze": lambda i: i.one[0],
    "index": lambda i: i.a[:, 2],
    "window": lambda i: np.stack([i.a[:, k : i.a.shape[1] - 1 + k : 2] for k in (0, 1)], -1),
    "pad": lambda i: np.pad(i.a, ((1, 0), (2, 3)), constant_values=1),
    "pad_cut": lambda i: np.pad(i.a, ((0, 2), (0, 0)))[:, 1:-1],
    "concat": lambda i: np.concatenate([i.a, i.b, i.a], 1),
    "concat_0": lambda i: np.concatenate([i.a, i.b], 0),
    "stack": lambda i: np.stack([i.a, i.b], 1),
    "repeat": lambda i: np.tile(i.a, (2, 1, 3)),
    "chunk_0": lambda i: i.a[:, : (i.a.shape[1] + 1) // 2],
    "chunk_1": lambda i: i.a[:, (i.a.shape[1] + 1) // 2 :],
    "split_1": lambda i: i.a[:, 1:],
    "sum_0": lambda i: total(i.a, axis=0),
    "sum_1": lambda i: total(i.a, axis=1, keepdims=True),
    "sum": lambda i: total(i.a),
    "sum_02": lambda i: total(i.cube, axis=(0, 2)),
    "prod_1": lambda i: product(i.a[:, :3], axis=1),
    "mean_0": lambda i: i.a.sum(0) / np.float64(i.a.shape[0]),
    "mean": lambda i: i.a.sum() / np.float64(i.a.size),
    "norm_1": lambda i: np.abs(i.a).sum(1),
    "norm_2": lambda i: np.sqrt((i.a * i.a).sum(0, keepdims=True)),
    "norm_0": lambda i: (i.a != 0).sum(1).astype(np.float64),
    "any_0": lambda i: i.a.any(0),
    "all_1": lambda i: i.a.all(1, keepdims=True),
    "any": lambda i: i.a.any(),
    "max_0": lambda i: i.a.max(0),
    "min_1": lambda i: i.a.min(1, keepdims=True),
    "max": lambda i: i.a.max(),
    "argmax_0": lambda i: i.a.argmax(0),
    "argmin_1": lambda i: i.a.argmin(1)[:, None],
    "argmax": lambda i: i.a.argmax(),
    "norm_inf": lambda i: np.abs(i.a).max(1),
    "var_1": lambda i: i.a.var(1, ddof=1),
    "std_0": lambda i: i.a.std(1),
    "logsumexp_1": lambda i: np.log(np.exp(i.a).sum(1)),
    "cumsum_0": lambda i: running(i.a, np.add, 0),
    "cumsum_1": lambda i: running(i.a, np.add, 1),
    "cumprod_1": lambda i: running(i.p[:, :3], np.multiply, 1),
    "cummax_1": lambda i: np.maximum.accumulate(i.a, axis=1),
    "cummin_0": lambda i: np.minimum.accumulate(i.a, axis=0),
    "argsort_1": lambda i: stable_order(i.a, 1, False),
    "argsort_0_down": lambda i: stable_order(i.a, 0, True),
    "sort_1": lambda i: np.sort(i.a, axis=1),
    "topk": lambda i: np.sort(i.a, axis=1)[:, ::-1][:, :3],
    "topk_places": lambda i: stable_order(i.a, 1, True)[:, :3],
    "gather_1": lambda i: np.take_along_axis(i.a, i.index, 1),
    "index_select_0": lambda i: i.a[i.picks],
    "embedding": lambda i: i.a[i.picks.reshape(2, 2)],
    "one_hot": lambda i: (i.labels[:, None] == np.arange(i.a.shape[1])).astype(i.a.dtype),
    "scatter_add_1": scattered,
    "index_add_0": index_added,
    "matmul": lambda i: i.a @ i.right,
    "matmul_batch": lambda i: i.cube @ i.right,
    "matmul_vector": lambda i: i.a @ i.row,
    "outer": lambda i: np.outer(i.row, i.row),
    "linear": lambda i: i.a @ i.right + i.bias,
    "cdist": lambda i: np.sqrt(((i.a[:, None] - i.b[None]) ** 2).sum(-1)),
    "softmax": lambda i: softmax(i.a, 1),
    "softmax_0": lambda i: softmax(i.a, 0),
    "log_softmax": lambda i: np.log(softmax(i.a, 1)),
    "layer_norm": lambda i: layer_norm(i.a, i.row),
    "rms_norm": lambda i: i.a / np.sqrt((i.a * i.a).mean(1, keepdims=True) + 1e-5) * i.row,
    "mse_loss": lambda i: ((i.a - i.b) ** 2).mean(),
    "cross_entropy": cross_entropy,
    "bce": lambda i: np.logaddexp(i.a, 0) - i.a * sigmoid(i.b),
    "attention": attention,
    "conv2d": conv2d,
    "max_pool2d": lambda i: windows(i.image, 2, 2, (2, 2)).max((4, 5)),
    "avg_pool2d": lambda i: windows(np.pad(i.image, ((0, 0), (0, 0), (1, 1), (1, 1))), 3, 3, (1, 2)).mean((4, 5)),
}

# What PyTorch has a function for, in its own types: the shape and the type of the result count too.
TORCH = {
    "gelu": lambda i: functional.gelu(i.a),
    "gelu_tanh": lambda i: functional.gelu(i.a, approximate="tanh"),
    "silu": lambda i: functional.silu(i.a),
    "softplus": lambda i: functional.softplus(i.a),
    "sigmoid": lambda i: torch.sigmoid(i.a),
    "clamp": lambda i: torch.clamp(i.a, -1 if i.a.dtype != torch.uint8 else 0, 1),
    "add": lambda i: i.a + i.b,
    "mul_one": lambda i: i.one * i.a,
    "div": lambda i: i.a / i.p,
    "floor_div": lambda i: torch.floor_divide(i.a, i.p),
    "mod": lambda i: torch.remainder(i.a, i.p),
    "where": lambda i: torch.where(i.mask, i.a, i.b),
    "add_scalar": lambda i: i.a + 3,
    "div_scalar": lambda i: i.a / 3,
    "sum_0": lambda i: i.a.sum(0),
    "sum": lambda i: i.a.sum(),
    "prod_1": lambda i: i.a[:, :3].prod(1),
    "mean_0": lambda i: i.a.mean(0),
    "var_1": lambda i: i.a.var(1),
    "std_0": lambda i: i.a.std(1, correction=0),
    "logsumexp_1": lambda i: torch.logsumexp(i.a, 1),
    "norm_2": lambda i: torch.linalg.vector_norm(i.a, 2, 0, keepdim=True),
    "norm_inf": lambda i: torch.linalg.vector_norm(i.a, float("inf"), 1),
    "norm_0": lambda i: torch.linalg.vector_norm(i.a, 0, 1),
    "argmax_0": lambda i: i.a.argmax(0),
    "argmax": lambda i: i.a.argmax(),
    "cumsum_1": lambda i: i.a.cumsum(1),
    "cummax_1": lambda i: i.a.cummax(1).values,
    "argsort_0_down": lambda i: torch.sort(i.a, dim=0, descending=True, stable=True).indices,
    "sort_1": lambda i: torch.sort(i.a, 1).values,
    "topk": lambda i: torch.topk(i.a, min(3, i.a.shape[1])).values,
    "gather_1": lambda i: torch.gather(i.a, 1, i.index),
    "scatter_add_1": lambda i: i.a.scatter_add(1, i.index, i.b[:, :3].contiguous()),
    "index_select_0": lambda i: torch.index_select(i.a, 0, i.picks),
    "index_add_0": lambda i: i.a.index_add(0, i.picks, i.row.expand(4, -1)),
    "embedding": lambda i: functional.embedding(i.picks.reshape(2, 2), i.a),
    "matmul": lambda i: i.a @ i.right,
    "matmul_batch": lambda i: i.cube @ i.right,
    "cdist": lambda i: torch.cdist(i.a, i.b, compute_mode="donot_use_mm_for_euclid_dist"),
    "window": lambda i: i.a.unfold(1, 2, 2),
    "pad": lambda i: functional.pad(i.a, (2, 3, 1, 0), value=1),
    "pad_cut": lambda i: functional.pad(i.a, (-1, -1, 0, 2)),
    "softmax": lambda i: torch.softmax(i.a, 1),
    "log_softmax": lambda i: torch.log_softmax(i.a, 1),
    "layer_norm": lambda i: functional.layer_norm(i.a, i.row.shape, i.row, None, 1e-5),
    "rms_norm": lambda i: functional.rms_norm(i.a, i.row.shape, i.row, 1e-5),
    "mse_loss": lambda i: functional.mse_loss(i.a, i.b),
    "cross_entropy": lambda i: functional.cross_entropy(i.a, i.labels),
    "bce": lambda i: functional.binary_cross_entropy_with_logits(i.a, torch.sigmoid(i.b), reduction="none"),
    "attention": lambda i: functional.scaled_dot_product_attention(i.a[None], i.b[None], i.p[None], is_causal=True)[0],
    "conv2d": lambda i: functional.conv2d(i.image, i.filter, i.bias, (2, 1), (1, 2), groups=2),
    "max_pool2d": lambda i: functional.max_pool2d(i.image, 2),
    "avg_pool2d": lambda i: functional.avg_pool2d(i.image, 3, (1, 2), (1, 1)),
    "tril": lambda i: torch.tril(i.a),
    "tril_below": lambda i: torch.tril(i.cube, -2),
    "triu_above": lambda i: torch.triu(i.a, 1),
    "diagonal": lambda i: torch.diagonal(i.a),
    "diagonal_right": lambda i: torch.diagonal(i.cube, 2, 1, 2),
    "diagonal_left": lambda i: torch.diagonal(i.cube, -1, -1, 0),
    "roll": lambda i: torch.roll(i.a, 3),
    "roll_axes": lambda i: torch.roll(i.cube, (1, -2), (1, 2)),
    "masked_fill": lambda i: i.a.masked_fill(i.mask, 1),
    "unbind_1": lambda i: torch.unbind(i.cube)[1],
    "cumsum_back": lambda i: i.a.flip(1).cumsum(1).flip(1),
    "cumsum_before": lambda i: shifted(i.a.cumsum(0), 0, 0),
    "cumsum_after": lambda i: shifted(i.a.flip(1).cumsum(1), 1, 0).flip(1),
    "cumprod_before": lambda i: shifted(i.p[:, :3].cumprod(1), 1, 1),
    "cummax_back": lambda i: i.a.flip(1).cummax(1).values.flip(1),
    "cummax_before": lambda i: shifted(i.a.cummax(1).values, 1, least(i.a.dtype)),
    "cummin_after": lambda i: shifted(i.a.flip(0).cummin(0).values, 0, greatest(i.a.dtype)).flip(0),
    "index_copy_0": lambda i: put(i.a, i.picks, i.row),
    "index_put": lambda i: i.a.index_put((torch.arange(len(i.a))[:, None], i.index), i.one),
    "index_put_row": lambda i: put(i.a, i.picks, i.row),
    "index_put_add": lambda i: i.a.index_put((torch.arange(len(i.a))[:, None], i.index), i.b[:, :3], accumulate=True),
    "bmm": lambda i: torch.bmm(i.cube, i.right.expand(2, -1, -1)),
    "addmm": lambda i: torch.addmm(i.bias, i.a, i.right, beta=0.5, alpha=2),
    "baddbmm": lambda i: torch.baddbmm(i.bias[None], i.cube, i.right.expand(2, -1, -1), alpha=-1),
    "einsum_product": lambda i: torch.einsum("ij,jk->ik", i.a, i.right),
    "einsum_scores": lambda i: torch.einsum("bid,bjd->bij", i.cube, i.cube),
    "einsum_turned": lambda i: torch.einsum("bij->jbi", i.cube),
    "einsum_sum": lambda i: torch.einsum("bij->i", i.cube),
    "einsum_outer": lambda i: torch.einsum("i,j->ji", i.row, i.bias),
    "einsum_three": lambda i: torch.einsum("...ij,jk,k->...i", i.cube, i.right, i.bias),
    "einsum_trace": lambda i: torch.einsum("ii", i.a @ i.b.T),
    "einsum_inner": lambda i: torch.einsum("ij,ij", i.a, i.b),
    "leaky_relu": lambda i: functional.leaky_relu(2 * i.a, 0.1),
    "elu": lambda i: functional.elu(2 * i.a, 1.5),
    "selu": lambda i: functional.selu(2 * i.a),
    "celu": lambda i: functional.celu(2 * i.a, 2),
    "mish": lambda i: functional.mish(2 * i.a),
    "hardswish": lambda i: functional.hardswish(2 * i.a),
    "hardsigmoid": lambda i: functional.relu6(2 * i.a + 3) / 6,
    "hardtanh": lambda i: functional.hardtanh(2 * i.a, -1, 2),
    "relu6": lambda i: functional.relu6(4 * i.a),
    "softsign": lambda i: functional.softsign(2 * i.a),
    "logsigmoid": lambda i: functional.logsigmoid(2 * i.a),
    "threshold": lambda i: functional.threshold(2 * i.a, 1, -3),
    "prelu": lambda i: functional.prelu(2 * i.a, i.row),
    "prelu_one": lambda i: functional.prelu(i.cube, i.one),
    "glu": lambda i: functional.glu(i.cube, 0),
    "swiglu": lambda i: functional.silu(i.cube[:1]) * i.cube[1:],
    "swiglu_two": lambda i: functional.silu(i.a) * i.b,
    "logaddexp": lambda i: torch.logaddexp(i.a, i.b),
    "batch_norm": lambda i: functional.batch_norm(i.image, i.bias[:4].detach(), i.gain.detach(), i.gain, i.bias[:4]),
    "batch_norm_training": lambda i: batch_norm(i)[0],
    "batch_norm_mean": lambda i: batch_norm(i)[1],
    "batch_norm_variance": lambda i: batch_norm(i)[2],
    "batch_norm_plain": lambda i: functional.batch_norm(i.volume, None, None, training=True, eps=1e-3),
    "group_norm": lambda i: functional.group_norm(i.image, 2, i.gain, i.bias[:4]),
    "instance_norm": lambda i: functional.instance_norm(i.image, weight=i.gain),
    "l1_loss": lambda i: functional.l1_loss(i.a, i.b),
    "smooth_l1_loss": lambda i: functional.smooth_l1_loss(i.a, i.b, beta=0.5),
    "huber_loss": lambda i: functional.huber_loss(i.a, i.b, reduction="none", delta=1.5),
    "kl_div": lambda i: functional.kl_div(torch.log_softmax(i.a, 1), torch.softmax(i.b, 1), reduction="batchmean"),
    "kl_div_logs": lambda i: functional.kl_div(torch.log_softmax(i.a, 1), i.b, reduction="sum", log_target=True),
    "nll_loss": lambda i: functional.nll_loss(torch.log_softmax(i.a, 1), i.labels),
    "nll_loss_ignore": lambda i: functional.nll_loss(torch.log_softmax(i.a, 1), i.labels, reduction="sum", ignore_index=1),
    "hinge_embedding_loss": lambda i: functional.hinge_embedding_loss(i.a, 2 * i.mask.to(i.a.dtype) - 1, margin=1.25),
    "triplet_margin_loss": lambda i: functional.triplet_margin_loss(i.a, i.b, i.p),
    "cosine_similarity": lambda i: functional.cosine_similarity(i.a, i.b),
    "conv1d": lambda i: functional.conv1d(i.image.flatten(2), i.filter.flatten(2), i.bias, 2, dilation=3, groups=2),
    "conv3d": lambda i: functional.conv3d(i.volume, i.deep, i.gain, (1, 2, 1), (1, 0, 1), groups=2),
    "conv_transpose1d": lambda i: functional.conv_transpose1d(i.image.flatten(2), i.filter[:4].flatten(2), None, 2, 1),
    "conv_transpose2d": lambda i: functional.conv_transpose2d(
        i.image, i.filter[:4], i.bias[:4], (2, 3), (1, 0), (1, 2), 2, (1, 2)
    ),
    "conv_transpose3d": lambda i: functional.conv_transpose3d(i.volume, i.deep, None, (2, 1, 1)),
    "max_pool1d": lambda i: functional.max_pool1d(i.image.flatten(2), 3, 3, 1, 2),
    "max_pool2d_up": lambda i: functional.max_pool2d(i.image, (3, 2), 2, 1, ceil_mode=True),
    "max_pool3d": lambda i: functional.max_pool3d(i.volume, 2, (1, 2, 1)),
    "avg_pool1d": lambda i: functional.avg_pool1d(i.image.flatten(2), 4),
    "avg_pool2d_up": lambda i: functional.avg_pool2d(i.image, (3, 2), 2, 1, ceil_mode=True),
    "avg_pool2d_alone": lambda i: functional.avg_pool2d(i.image, (3, 2), 2, 1, True, False),
    "avg_pool3d": lambda i: functional.avg_pool3d(i.volume, (2, 3, 2), divisor_override=5),
    "adaptive_max_pool1d": lambda i: functional.adaptive_max_pool1d(i.image.flatten(2) + (torch.arange(30) / 1024).to(i.image.dtype), 7),
    "adaptive_avg_pool2d": lambda i: functional.adaptive_avg_pool2d(i.image, 3),
    "adaptive_avg_pool2d_one": lambda i: functional.adaptive_avg_pool2d(i.image, 1),
    "adaptive_max_pool3d": lambda i: functional.adaptive_max_pool3d(i.volume, (2, 4, 1)),
    "upsample_nearest": lambda i: functional.interpolate(i.image, (12, 10)),
    "upsample_nearest_odd": lambda i: functional.interpolate(i.image, (11, 4)),
    "upsample_linear1d": lambda i: functional.interpolate(i.image.flatten(2), 47, mode="linear"),
    "upsample_bilinear2d": lambda i: functional.interpolate(i.image, (9, 10), mode="bilinear"),
    "upsample_bilinear2d_corners": lambda i: functional.interpolate(i.image, (11, 3), mode="bilinear", align_corners=True),
    "upsample_trilinear3d": lambda i: functional.interpolate(i.volume, (5, 4, 6), mode="trilinear"),
}
# Results that no gradient reaches, and one that PyTorch counts twice where an index stands twice.
NO_GRADIENT = {"batch_norm_mean", "batch_norm_variance", "index_put"}


def least(dtype):
    return torch.finfo(dtype).min * 2 if dtype.is_floating_point else torch.iinfo(dtype).min


def greatest(dtype):
    return torch.finfo(dtype).max * 2 if dtype.is_floating_point else torch.iinfo(dtype).max


def shifted(x, axis, first):
    """One place on, `first` in front."""
    return torch.cat([torch.full_like(x.narrow(axis, 0, 1), first), x.narrow(axis, 0, x.shape[axis] - 1)], axis)


def put(x, places, row):
    """Row after row: of equal places the last one counts."""
    x = x.clone()
    for k in places.tolist():
        x[k] = row
    return x


def batch_norm(i):
    mean, variance = i.bias[:4].detach().clone(), i.gain.detach().clone()
    return functional.batch_norm(i.image, mean, variance, i.gain, i.bias[:4], True, 0.2), mean, variance


class Inputs:
    def __init__(self, folder, change):
        for name in INPUTS:
            setattr(self, name, change(np.load(os.path.join(folder, "in-%s.npy" % name))))


def rounded_to_f8e4m3(x):
    """Three bits behind the first, the smallest step 2^-9; nothing beyond 448 is a number."""
    x = x.astype(np.float64)
    step = 2.0 ** (np.maximum(np.floor(np.log2(np.abs(x))), -6) - 3)
    y = np.rint(x / step) * step
    return np.where(np.abs(y) <= 448, y, np.nan)


def compare(got, want, step):
    """The largest difference over what rounding allows; None where shapes differ. Integers must be equal."""
    want = np.asarray(want)
    if got.shape != want.shape:
        return "shape %s, should be %s" % (got.shape, want.shape)
    if got.dtype.kind != "f":
        return None if np.array_equal(got, want.astype(got.dtype)) else "values differ"
    x, y = got.astype(np.float64), want.astype(np.float64)
    scale = np.max(np.abs(y[np.isfinite(y)]), initial=1)
    apart = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0, np.abs(x - y))
    worst = np.max(apart, initial=0)
    return None if worst <= 64 * step * scale else "differs by %.3g of %.3g" % (worst, scale)


def gradients(name, folder, dtype):
    """Of half the sum of squares of an operation, by each input, from PyTorch; {} where it has none."""
    given = Inputs(folder, lambda x: torch.from_numpy(np.ascontiguousarray(x)))
    leaves = {}
    for key in INPUTS:
        x = getattr(given, key)
        if x.dtype == dtype:
            leaves[key] = x.requires_grad_()
    y = TORCH[name](given)
    if not y.requires_grad:
        return {}
    try:
        found = torch.autograd.grad(y, list(leaves.values()), y.detach(), allow_unused=True)
    except RuntimeError:  # it has no derivative there
        return {}
    return {key: d for key, d in zip(leaves, found) if d is not None}


def compare_gradients(place, folder, files, tally):
    """Files grad-NAME-INPUT.npy beside what PyTorch finds: each of its gradients must be there."""
    for name in sorted({file[5 : file.rindex("-")] for file in files}):
        if name not in TORCH or name in NO_GRADIENT:
            continue
        for key, want in gradients(name, folder, torch.float64).items():
            path = os.path.join(folder, "grad-%s-%s.npy" % (name, key))
            got = np.load(path) if os.path.exists(path) else np.zeros(want.shape)
            tally(compare(got, want.numpy(), STEP[np.dtype(np.float64)] * 16), "%s gradient of %s by %s: PyTorch" % (place, name, key))


def main():
    passed = failed = 0
    np.seterr(all="ignore")

    def tally(problem, words):
        nonlocal passed, failed
        if problem:
            print("%s: %s" % (words, problem))
        failed += problem is not None
        passed += problem is None

    for place in sorted(os.listdir(sys.argv[1])):
        folder = os.path.join(sys.argv[1], place)
        given = Inputs(folder, lambda x: x)
        inputs = Inputs(folder, wide)
        tensors = Inputs(folder, lambda x: torch.from_numpy(np.ascontiguousarray(x))) if torch else None
        files = sorted(os.listdir(folder))
        if torch:
            compare_gradients(place, folder, [file for file in files if file.startswith("grad-")], tally)
        for file in files:
            name = file[: -len(".npy")]
            if name.startswith("in-") or name.startswith("grad-"):
                continue
            got = np.load(os.path.join(folder, file))
            step = max(STEP.get(given.a.dtype, 0), STEP.get(got.dtype, 0))
            if name.startswith("cast_"):
                from_p = given.a.dtype.kind == "f" and got.dtype.kind == "u"
                want = given.p if from_p else given.a
                want = rounded_to_f8e4m3(want) if name == "cast_f8e4m3" else want  # which a file holds as f32
                tally(compare(got, want.astype(got.dtype), step), "%s %s: NumPy" % (place, name))
            elif name in OPS:
                tally(compare(got, OPS[name](inputs), step), "%s %s: NumPy" % (place, name))
            elif name not in TORCH:
                tally("not known here", "%s %s" % (place, name))
            if not torch or name not in TORCH:
                continue
            try:
                other = TORCH[name](tensors)
            except (RuntimeError, NotImplementedError, IndexError, ValueError):  # what PyTorch does not take
                continue
            problem = compare(got, other.numpy(), step)
            counted = got.dtype == np.uint64 and other.dtype == torch.int64  # sums of unsigned are u64, as in NumPy
            if not problem and other.numpy().dtype != got.dtype and not counted:
                problem = "type %s, should be %s" % (got.dtype, other.numpy().dtype)
            tally(problem, "%s %s: PyTorch" % (place, name))
    if not torch:
        print("note: skipped: the tensor level against PyTorch, which is not installed (NumPy was compared)")
    print("%d passed, %d failed" % (passed, failed))
    return failed != 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
