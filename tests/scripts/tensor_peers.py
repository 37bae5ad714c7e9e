"""Compares what test_tensor_matrix wrote (QUERN_PEERS=FOLDER) with NumPy, and with PyTorch where it is installed.

Usage: tensor_peers.py FOLDER. Each folder FOLDER/TYPE-FORM holds the inputs in-NAME.npy and one file for each operation;
an operation that this script does not know is a failure, so that both lists stay the same. NumPy computes in the type of
its inputs except for f16, which goes through f32. Ends with "N passed, N failed".
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

INPUTS = ["a", "b", "p", "mask", "row", "one", "cube", "right", "index", "picks", "image", "filter", "bias", "labels"]
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
    "clamp": lambda i: torch.clamp(i.a, -1, 1),
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
}


class Inputs:
    def __init__(self, folder, change):
        for name in INPUTS:
            setattr(self, name, change(np.load(os.path.join(folder, "in-%s.npy" % name))))


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


def main():
    passed = failed = 0
    np.seterr(all="ignore")
    for place in sorted(os.listdir(sys.argv[1])):
        folder = os.path.join(sys.argv[1], place)
        given = Inputs(folder, lambda x: x)
        inputs = Inputs(folder, wide)
        tensors = Inputs(folder, lambda x: torch.from_numpy(np.ascontiguousarray(x))) if torch else None
        for file in sorted(os.listdir(folder)):
            name = file[: -len(".npy")]
            if name.startswith("in-"):
                continue
            got = np.load(os.path.join(folder, file))
            step = max(STEP.get(given.a.dtype, 0), STEP.get(got.dtype, 0))
            if name.startswith("cast_"):
                from_p = given.a.dtype.kind == "f" and got.dtype.kind == "u"
                want = (given.p if from_p else given.a).astype(got.dtype)
            elif name in OPS:
                want = OPS[name](inputs)
            else:
                print("%s: %s is not known here" % (place, name))
                failed += 1
                continue
            problem = compare(got, want, step)
            if problem:
                print("%s %s: NumPy: %s" % (place, name, problem))
            failed += problem is not None
            passed += problem is None
            if not torch or name not in TORCH:
                continue
            try:
                other = TORCH[name](tensors)
            except (RuntimeError, NotImplementedError, IndexError):  # a type or shape that PyTorch does not take
                continue
            problem = compare(got, other.numpy(), step)
            counted = got.dtype == np.uint64 and other.dtype == torch.int64  # sums of unsigned are u64, as in NumPy
            if not problem and other.numpy().dtype != got.dtype and not counted:
                problem = "type %s, should be %s" % (got.dtype, other.numpy().dtype)
            if problem:
                print("%s %s: PyTorch: %s" % (place, name, problem))
            failed += problem is not None
            passed += problem is None
    if not torch:
        print("note: skipped: the tensor level against PyTorch, which is not installed (NumPy was compared)")
    print("%d passed, %d failed" % (passed, failed))
    return failed != 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
