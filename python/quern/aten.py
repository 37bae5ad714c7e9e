"""The table of ATen operators that Quern has words for: one row of OPS for each. A row takes the Writer and the node's arguments, writes what it needs
before, and returns the expression (aten_math.py, aten_moved.py); what it cannot say raises Unsupported with the reason, and torch keeps the node.
"""

import operator

import torch

from .aten_math import (
    adaptive, add_product, bits, bmm, clamp, comparison, convert, convolution, convolution_backward, divide, elu, extreme, gelu, leaky, log_ten, logical, mean, mm, one,
    place, pointwise, pool, pow_base, pow_scalar, reduced, reduction, relu, remainder, same_value, scan, select, shifted, sign, softmax, to_copy, variance,
    variance_and_mean, with_alpha,
)
from .aten_moved import (
    arange, as_strided, cat, diagonal, diagonal_scatter, embedding, embedding_back, expand, expand_to, flip, full, gather, get_item, index, index_put,
    index_select, iota, like, linear, nearest, nearest_back, pad, permute, repeat, roll, scatter_add, scatter_value, select_one, slice_, slice_scatter, split, swap, tri, unbind,
    view,
)
from .writer import number

aten, prims = torch.ops.aten, torch.ops.prims


def first(table):
    """Rows of overloads by name: {"exp": row} for aten.exp.default."""
    found = {}
    for name, row in table.items():
        base, _, overload = name.partition(".")
        packet = getattr(aten, base, None)
        target = getattr(packet, overload or "default", None) if packet else None
        if target is not None:
            found[target] = row
    return found


OPS = first(
    {
        # arithmetic
        "add.Tensor": with_alpha("+"),
        "add.Scalar": with_alpha("+"),
        "sub.Tensor": with_alpha("-"),
        "sub.Scalar": with_alpha("-"),
        "rsub.Scalar": lambda w, x, s, alpha=1: with_alpha("-")(w, s, x, alpha),
        "mul.Tensor": pointwise("{0} * {1}", of_bools="({0} && {1})"),
        "mul.Scalar": pointwise("{0} * {1}"),
        "div.Tensor": divide,
        "div.Scalar": divide,
        "div.Tensor_mode": divide,
        "div.Scalar_mode": divide,
        "floor_divide": lambda w, a, b: divide(w, a, b, "floor"),
        "pow.Scalar": pow_base,
        "remainder.Scalar": remainder,
        "remainder.Tensor": remainder,
        "pow.Tensor_Scalar": pow_scalar,
        "pow.Tensor_Tensor": pointwise("pow({0}, {1})", floats=True),
        "maximum": pointwise("maximum({0}, {1})"),
        "minimum": pointwise("minimum({0}, {1})"),
        "clamp": clamp,
        "clamp.Tensor": clamp,
        "clamp_min": lambda w, x, low: clamp(w, x, low),
        "clamp_max": lambda w, x, high: clamp(w, x, None, high),
        "neg": pointwise("-{0}"),
        "abs": pointwise("abs({0})"),
        "sign": sign,
        "sgn": sign,
        "reciprocal": pointwise("1 / {0}", floats=True),
        "logaddexp": pointwise("logaddexp({0}, {1})", floats=True),
        "fma": pointwise("fma({0}, {1}, {2})", floats=True),
        # functions
        **{n: one(n) for n in "exp exp2 expm1 log log2 log1p sqrt rsqrt sin cos tanh erf sigmoid floor ceil round silu".split()},
        **{n: one(n) for n in "mish hardswish hardsigmoid".split()},
        "log10": log_ten,
        "relu": relu,
        "gelu": gelu,
        "leaky_relu": leaky,
        "elu": elu,
        "hardtanh": lambda w, x, low=-1, high=1: f"hardtanh({w.text(x)}, {number(float(low))}, {number(float(high))})",
        # truth
        **{f"{n}.{o}": comparison(s) for n, s in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items() for o in ("Tensor", "Scalar")},
        "logical_and": logical("&&"),
        "logical_or": logical("||"),
        "logical_xor": logical("!="),
        "logical_not": lambda w, x: f"!({w.cast(w.text(x), w.dtype(x), torch.bool)})",
        "bitwise_not": lambda w, x: f"{'!' if w.out.dtype == torch.bool else '~'}({w.text(x)})",
        **{f"bitwise_{n}.{o}": bits(s) for n, s in {"and": "&", "or": "|", "xor": "^"}.items() for o in ("Tensor", "Scalar")},
        **{f"{n}.{o}": shifted(s) for names, s in (("__lshift__ bitwise_left_shift", "<<"), ("__rshift__ bitwise_right_shift", ">>")) for n in names.split() for o in ("Scalar", "Tensor_Scalar")},
        "isnan": lambda w, x: f"isnan({w.operand(x, w.dtype(x))})",
        "isinf": lambda w, x: f"isinf({w.operand(x, w.dtype(x))})",
        "where.self": select,
        "masked_fill.Scalar": lambda w, x, mask, value: select(w, mask, value, x),
        # types, making
        "_to_copy": to_copy,
        "clone": same_value,
        "detach": same_value,
        "alias": same_value,
        "lift_fresh_copy": same_value,
        "copy": lambda w, x, source, non_blocking=False: expand_to(w, source),
        "full": full,
        "full_like": like(),
        "zeros_like": like(0),
        "ones_like": like(1),
        "zeros": lambda w, size, **k: full(w, size, 0),
        "ones": lambda w, size, **k: full(w, size, 1),
        "scalar_tensor": lambda w, value, **k: full(w, (), value),
        # Memory that something is written over: any numbers do.
        **{n: lambda w, *args, **k: full(w, w.out.shape, 0) for n in "empty.memory_format empty_permuted empty_like empty_strided new_empty new_empty_strided".split()},
        "arange": arange,
        "arange.start": arange,
        "arange.start_step": arange,
        # movement
        "view": view,
        "_unsafe_view": view,
        "reshape": view,
        "squeeze.dim": view,
        "squeeze.dims": view,
        "squeeze": view,
        "unsqueeze": view,
        "permute": permute,
        "transpose.int": swap,
        "t": swap,
        "expand": expand,
        "slice.Tensor": slice_,
        "select.int": select_one,
        "split.Tensor": split,
        "split_with_sizes": split,
        "unbind.int": unbind,
        "cat": cat,
        "flip": flip,
        "roll": roll,
        "as_strided": as_strided,
        "constant_pad_nd": pad,
        "repeat": repeat,
        "diagonal": diagonal,
        "diagonal_scatter": diagonal_scatter,
        "tril": tri("tril"),
        "triu": tri("triu"),
        "slice_scatter": slice_scatter,
        # by index
        "index_select": index_select,
        "index.Tensor": index,
        "_unsafe_index.Tensor": index,
        "gather": gather,
        "embedding": embedding,
        "embedding_dense_backward": embedding_back,
        "scatter_add": scatter_add,
        "scatter.value": scatter_value,
        "scatter.src": scatter_value,
        "index_put": index_put,
        "_unsafe_index_put": index_put,
        # reductions
        "sum": lambda w, x, dtype=None: reduction("sum")(w, x),
        "sum.dim_IntList": lambda w, x, dims=None, keep=False, dtype=None: reduction("sum")(w, x, dims, keep),
        "mean": mean,
        "mean.dim": mean,
        "prod": lambda w, x, dtype=None: reduction("prod")(w, x),
        "prod.dim_int": lambda w, x, dim, keep=False, dtype=None: reduction("prod")(w, x, dim, keep),
        "amax": reduction("amax"),
        "amin": reduction("amin"),
        "max": reduction("amax"),
        "min": reduction("amin"),
        "any": reduction("any"),
        "any.dim": reduction("any"),
        "any.dims": reduction("any"),
        "all": reduction("all"),
        "all.dim": reduction("all"),
        "max.dim": extreme("max"),
        "min.dim": extreme("min"),
        "argmax": place("argmax"),
        "argmin": place("argmin"),
        "var.correction": variance,
        "var_mean.correction": variance_and_mean,
        "logsumexp": lambda w, x, dims, keep=False: reduced(w, "logsumexp", w.text(x), x, dims, keep),
        "cumsum": scan("cumsum"),
        "cumprod": scan("cumprod"),
        "_softmax": softmax("softmax"),
        "_log_softmax": softmax("log_softmax"),
        # products
        "mm": mm,
        "bmm": bmm,
        "addmm": add_product("addmm"),
        "baddbmm": add_product("baddbmm"),
        "convolution": convolution,
        "convolution_backward": convolution_backward,
        "max_pool2d_with_indices": pool("max", 2),
        "max_pool3d_with_indices": pool("max", 3),
        "avg_pool1d": pool("avg", 1),
        "avg_pool2d": pool("avg", 2),
        "avg_pool3d": pool("avg", 3),
        "_adaptive_avg_pool2d": adaptive(2),
        "_adaptive_avg_pool3d": adaptive(3),
        **{f"upsample_nearest{n}d": nearest(n) for n in (1, 2, 3)},
        **{f"upsample_nearest{n}d_backward": nearest_back(n) for n in (1, 2, 3)},
        "upsample_linear1d": linear(1),
        "upsample_bilinear2d": linear(2),
        "upsample_trilinear3d": linear(3),
    }
)
OPS[operator.getitem] = get_item
OPS[prims.convert_element_type.default] = convert
OPS[prims.iota.default] = iota
if hasattr(prims, "fma"):
    OPS[prims.fma.default] = pointwise("fma({0}, {1}, {2})", floats=True)

# Index arithmetic alone: at the edge of an island it is left to torch, where it costs nothing.
VIEWS = set(
    first(
        dict.fromkeys(
            "view _unsafe_view squeeze.dim squeeze.dims squeeze unsqueeze permute transpose.int t expand slice.Tensor select.int "
            "split.Tensor split_with_sizes unbind.int detach alias diagonal".split()
        )
    )
) | {operator.getitem}

RANDOM = ("rand", "randn", "bernoulli", "dropout", "randint", "randperm", "normal", "uniform", "multinomial", "exponential")


def reason_unknown(target):
    name = str(target)
    if any(word in name for word in RANDOM):
        return "random numbers are torch's"
    return "Quern has no row for it"
