"""Rows of ATen operators that compute: pointwise, folds, scans, products, pools. In: a Writer and the arguments of a node. Out: the text of an expression, or
of several. What a row cannot say raises Unsupported with the reason, and torch keeps the node.
"""

import torch

from .writer import WORDS, Unsupported, axis_set, number


# ---- kinds of rows ----


def pointwise(form, floats=False, of_bools=None):
    """`{0}` and `{1}` are operands in the type and shape of the result; of_bools: the form of bools."""

    def write(w, *args, **keywords):
        out = w.out
        if out.dtype == torch.bool:
            if of_bools is None:
                raise Unsupported("arithmetic on bools")
            return of_bools.format(*[w.operand(a, out.dtype, out.shape) for a in args])
        if floats and not out.dtype.is_floating_point:
            raise Unsupported(f"of {out.dtype}")
        alone = not any(isinstance(a, torch.fx.Node) and isinstance(w.value(a), torch.Tensor) for a in args)
        dtype = w.within(args)
        words = form.format(*[w.operand(a, dtype, out.shape, typed=alone) for a in args])
        return w.cast(words, dtype, out.dtype)

    return write


def one(name):
    """An elementwise function of the language, of floats."""
    return pointwise(name + "({0})", floats=True)


def with_alpha(sign):
    def write(w, a, b, alpha=1):
        out = w.out
        if out.dtype == torch.bool:
            raise Unsupported("arithmetic on bools")
        # Sums with a number: torch's CPU code rounds the number first.
        dtype = out.dtype if out.device.type == "cpu" else w.within((a, b))
        if alpha != 1 and out.dtype in (torch.float16, torch.bfloat16):
            dtype = torch.float32
        x, y = w.operand(a, dtype, out.shape), w.operand(b, dtype, out.shape)
        if alpha != 1:
            y = f"{w.operand(alpha, dtype)} * {y}"
        return w.cast(f"{x} {sign} {y}", dtype, out.dtype)

    return write


def comparison(sign):
    def write(w, a, b):
        meta = [w.value(x) if isinstance(x, torch.fx.Node) else x for x in (a, b)]
        common = torch.result_type(*meta)
        if common == torch.bool:
            common = torch.uint8
        shape = w.out.shape
        return f"({w.operand(a, common, shape)} {sign} {w.operand(b, common, shape)})"

    return write


def logical(sign):
    def write(w, a, b):
        return f"({w.operand(a, torch.bool, w.out.shape)} {sign} {w.operand(b, torch.bool, w.out.shape)})"

    return write


def bits(sign):
    def write(w, a, b):
        if w.out.dtype.is_floating_point:
            raise Unsupported("bits of floats")
        return f"({w.operand(a, w.out.dtype, w.out.shape)} {sign} {w.operand(b, w.out.dtype, w.out.shape)})"

    return write


def shifted(sign):
    """By a number; C and torch differ where that is no number of bits."""

    def write(w, a, b):
        if not isinstance(b, int) or isinstance(b, bool) or not 0 <= b < 8 * w.out.itemsize or w.out.dtype == torch.bool:
            raise Unsupported("a shift by this")
        return f"({w.operand(a, w.out.dtype, w.out.shape)} {sign} {b})"

    return write


# ---- pointwise rows that say more ----


def pow_scalar(w, x, exponent):
    if not w.out.dtype.is_floating_point and exponent not in (1, 2, 3):
        raise Unsupported("a power of integers")
    dtype = torch.float32 if w.out.dtype in (torch.float16, torch.bfloat16) else w.out.dtype
    named = w.let(w.operand(x, dtype))
    forms = {0.5: "sqrt({0})", -0.5: "rsqrt({0})", 1: "{0}", 2: "{0} * {0}", 3: "{0} * {0} * {0}", -1: "1 / {0}"}
    words = forms[exponent].format(named) if exponent in forms else f"pow({named}, {number(float(exponent))})"
    return w.cast(words, dtype, w.out.dtype)


def pow_base(w, base, x):
    if not w.out.dtype.is_floating_point:
        raise Unsupported("a power of integers")
    dtype = torch.float32 if w.out.dtype in (torch.float16, torch.bfloat16) else w.out.dtype
    return w.cast(f"pow({number(float(base))}, {w.operand(x, dtype, w.out.shape)})", dtype, w.out.dtype)


def whole(w, a, b, sign):
    """Of integers by a positive number: the language's `/` and `%` round as torch's do."""
    if not isinstance(b, int) or isinstance(b, bool) or b <= 0:
        raise Unsupported("a remainder of integers by what may be negative")
    return f"{w.operand(a, w.out.dtype, w.out.shape)} {sign} {w.operand(b, w.out.dtype)}"


def divide(w, a, b, rounding_mode=None):
    if rounding_mode == "floor" and not w.out.dtype.is_floating_point:
        return whole(w, a, b, "/")
    if rounding_mode is not None:
        raise Unsupported(f"division that rounds by {rounding_mode}")
    dtype = w.within((a, b))
    return w.cast(f"{w.operand(a, dtype, w.out.shape)} / {w.operand(b, dtype, w.out.shape)}", dtype, w.out.dtype)


def remainder(w, a, b):
    if not w.out.dtype.is_floating_point:
        return whole(w, a, b, "%")
    if w.out.dtype == torch.float64:
        raise Unsupported("a remainder of doubles")  # Quern's rounds the quotient
    x, y = w.let(w.operand(a, w.out.dtype, w.out.shape)), w.let(w.operand(b, w.out.dtype, w.out.shape, typed=True))
    if not isinstance(b, torch.fx.Node):
        return f"{x} % {y}"
    return f"where(isinf({y}) && !isinf({x}), where({x} * {y} < 0, {y}, {x}), {x} % {y})"


def select(w, condition, a, b):
    out = w.out
    c = w.operand(condition, torch.bool, out.shape)
    typed = not any(isinstance(x, torch.fx.Node) for x in (a, b))
    return f"where({c}, {w.operand(a, out.dtype, out.shape, typed)}, {w.operand(b, out.dtype, out.shape, typed)})"


def clamp(w, x, low=None, high=None):
    words = w.operand(x, w.out.dtype, w.out.shape)
    if low is not None:
        words = f"maximum({words}, {w.operand(low, w.out.dtype, w.out.shape)})"
    if high is not None:
        words = f"minimum({words}, {w.operand(high, w.out.dtype, w.out.shape)})"
    return words


def sign(w, x):
    """torch's of NaN is 0."""
    words = w.text(x)
    if w.out.dtype == torch.bool:
        raise Unsupported("arithmetic on bools")
    return f"where(isnan({words}), {w.operand(0, w.out.dtype)}, sign({words}))" if w.out.dtype.is_floating_point else f"sign({words})"


def relu(w, x):
    return pointwise("relu({0})" if w.out.dtype.is_floating_point else "maximum({0}, 0)")(w, x)


def gelu(w, x, approximate="none"):
    return f"{'gelu' if approximate == 'none' else 'gelu_tanh'}({w.text(x)})"


def log_ten(w, x):
    return f"log({w.operand(x, w.out.dtype)}) * {number(0.4342944819032518)}"


def leaky(w, x, slope=0.01):
    return f"leaky_relu({w.text(x)}, {number(float(slope))})"


def elu(w, x, alpha=1, scale=1, input_scale=1):
    base = w.text(x)
    if scale == 1 and input_scale == 1:
        return f"elu({base}, {number(float(alpha))})"
    below = f"expm1(minimum({base}, 0.0) * {number(float(input_scale))}) * {number(float(alpha * scale))}"
    return f"where({base} > 0, {base} * {number(float(scale))}, {below})"


def to_copy(w, x, **keywords):
    device = keywords.get("device")
    if device is not None and torch.device(device).type != w.value(x).device.type:
        raise Unsupported("a copy to another device")
    return w.cast(w.text(x), w.dtype(x), w.out.dtype)


def convert(w, x, dtype):
    return w.cast(w.text(x), w.dtype(x), dtype)


def same_value(w, x, *args, **keywords):
    return w.cast(w.text(x), w.dtype(x), w.out.dtype)


# ---- folds and scans ----


def reduced(w, name, words, x, dims, keep, options=""):
    rank = w.rank(x)
    if not rank:
        return words
    axes = w.axes(x, dims)
    if len(axes) == rank and not keep:
        return f"{name}({words}{options})"
    words = f"{name}({words}, axis = {axis_set(axes)}{options})"
    return words if keep else f"squeeze({words}, axis = {axis_set(axes)})"


def reduction(name, takes_dtype=False):
    def write(w, x, dims=None, keep=False, dtype=None, **keywords):
        if name in ("any", "all"):
            words = w.cast(w.text(x), w.dtype(x), torch.bool)
        elif name in ("amax", "amin"):
            if w.dtype(x) == torch.bool:
                raise Unsupported("an extreme of bools")
            words = w.text(x)
        else:
            words = w.cast(w.text(x), w.dtype(x), w.out.dtype)
        return reduced(w, name, words, x, dims, keep)

    return write


def softmax(name):
    def write(w, x, axis, half_to_float=False):
        words = w.cast(w.text(x), w.dtype(x), w.out.dtype)
        if not w.rank(x):  # one element: all of the weight, unless it is no number
            return f"{words} - {words}" if name == "log_softmax" else f"exp({words} - {words})"
        return f"{name}({words}, axis = {w.axis(x, axis)})"

    return write


def mean(w, x, dims=None, keep=False, dtype=None):
    return reduced(w, "mean", w.cast(w.text(x), w.dtype(x), w.out.dtype), x, dims, keep)


def variance(w, x, dims=None, *, correction=1, keepdim=False):
    correction = 1 if correction is None else correction
    if not w.rank(x):  # one element differs from its mean by nothing
        return f"({w.text(x)} - {w.text(x)}) / {number(float(max(1 - correction, 0)))}"
    return reduced(w, "var", w.text(x), x, dims, keepdim, f", correction = {number(float(correction))}")


def variance_and_mean(w, x, dims=None, *, correction=1, keepdim=False):
    return [variance(w, x, dims, correction=correction, keepdim=keepdim), reduced(w, "mean", w.text(x), x, dims, keepdim)]


def extreme(name):
    """max.dim: values and places."""

    def write(w, x, axis, keep=False):
        if not w.rank(x):
            raise Unsupported("an extreme of this")
        is_truth = w.dtype(x) == torch.bool
        words = w.let(f"u8({w.text(x)})") if is_truth else w.text(x)
        made = reduced(w, "a" + name, words, x, axis, keep)
        return [f"({made} != 0)" if is_truth else made, reduced(w, "arg" + name, words, x, axis, keep)]

    return write


def place(name):
    def write(w, x, axis=None, keep=False):
        if w.dtype(x) == torch.bool or not w.rank(x) or (axis is None and keep):
            raise Unsupported("a place in this")
        if axis is None:
            return f"{name}({w.text(x) if w.rank(x) == 1 else f'flatten({w.text(x)})'})"
        return reduced(w, name, w.text(x), x, axis, keep)

    return write


def scan(name):
    def write(w, x, axis, **keywords):
        words = w.cast(w.text(x), w.dtype(x), w.out.dtype)
        return words if not w.rank(x) else f"{name}({words}, axis = {w.axis(x, axis)})"

    return write


# ---- products: small ones; the others are torch's ----

TOO_LARGE = "a large product"


def limited(w, *factors):
    """Multiplications beyond the limit are left to torch's libraries."""
    limit = w.products["limit"]
    count = 1
    for n in factors:
        count *= n if isinstance(n, int) else getattr(n.node, "hint", None) or 1 << 12
    if limit is not None and count > limit:
        raise Unsupported(f"{TOO_LARGE}, which torch's libraries do faster")
    if not w.out_dtype.is_floating_point:
        raise Unsupported("a product of integers")


def mm(w, a, b):
    limited(w, *w.shape(a), w.shape(b)[-1])
    return f"matmul({w.text(a)}, {w.text(b)})"


def bmm(w, a, b):
    limited(w, *w.shape(a), w.shape(b)[-1])
    return f"bmm({w.text(a)}, {w.text(b)})"


def add_product(name):
    def write(w, c, a, b, *, beta=1, alpha=1):
        limited(w, *w.shape(a), w.shape(b)[-1])
        base = w.operand(c, w.out.dtype, w.out.shape)
        return f"{name}({base}, {w.text(a)}, {w.text(b)}, beta = {number(float(beta))}, alpha = {number(float(alpha))})"

    return write


def each(values, axes):
    values = list(values) if isinstance(values, (list, tuple)) else [values]
    values = values * axes if len(values) == 1 else values
    return "{" + ", ".join(map(str, values)) + "}" if axes > 1 else str(values[0])


def _convolution_words(axes, operands, stride, padding, dilation, transposed, output_padding, groups):
    if axes not in (1, 2, 3):
        raise Unsupported("a convolution of this rank")
    words = f"{', '.join(operands)}, stride = {each(stride, axes)}, padding = {each(padding, axes)}, dilation = {each(dilation, axes)}"
    if transposed:
        words += f", output_padding = {each(output_padding, axes)}"
    return f"conv{'_transpose' if transposed else ''}{axes}d({words}, groups = {groups})"


def convolution(w, x, weight, bias, *how):
    transposed = how[3]
    limited(w, *w.shape(weight), *(w.shape(x) if transposed else w.out.shape)[2:], w.shape(x)[0])
    operands = [w.text(x), w.text(weight)] + ([w.text(bias)] if bias is not None else [])
    return _convolution_words(w.rank(x) - 2, operands, *how)


def convolution_backward(w, gradient, x, weight, bias_sizes, *how_and_mask):
    """By the language's own derivative of a function that has the convolution alone."""
    *how, mask = how_and_mask
    transposed, rank = how[3], w.rank(x)
    limited(w, *w.shape(weight), *w.shape(x if transposed else gradient)[2:], w.shape(x)[0])
    operands = {"x": x, "k": weight, "g": gradient}
    parameters = ", ".join(f"{WORDS[w.dtype(each)]} {name}{''.join(f'[{name}{axis}]' for axis in range(rank))}" for name, each in operands.items())
    name = w.helper(parameters, f"sum({_convolution_words(rank - 2, ['x', 'k'], *how)} * g)")
    given = ", ".join(w.text(each) for each in operands.values())
    made = [f"grad({name}, {by})({given})" if wanted else None for by, wanted in zip("xk", mask)]
    others = axis_set(axis for axis in range(rank) if axis != 1)
    return made + [f"squeeze(sum({w.text(gradient)}, axis = {others}), axis = {others})" if mask[2] else None]


def pool(kind, axes):
    def write(w, x, size, stride=(), padding=0, *rest):
        if not w.out_dtype.is_floating_point:
            raise Unsupported("a pool of whole numbers")
        size = list(size) if isinstance(size, (list, tuple)) else [size]
        size = size * axes if len(size) == 1 else size
        words = f"{w.text(x)}, {', '.join(map(str, size))}"
        if stride is not None and (not isinstance(stride, (list, tuple)) or len(stride)):
            words += f", stride = {each(stride, axes)}"
        words += f", padding = {each(padding, axes)}"
        if kind == "max":
            if any(len(u.args) > 1 and u.args[1] == 1 for u in w.node.users):
                raise Unsupported("its gradient wants the places of the maxima")
            dilation, ceil = (list(rest) + [1, False][len(rest) :])[:2]
            return [f"max_pool{axes}d({words}, dilation = {each(dilation, axes)}, ceil_mode = {number(bool(ceil))})", None]
        ceil, include, divisor = (list(rest) + [False, True, None][len(rest) :])[:3]
        words += f", ceil_mode = {number(bool(ceil))}, count_include_pad = {number(bool(include))}"
        return f"avg_pool{axes}d({words}{f', divisor = {divisor}' if divisor else ''})"

    return write


def adaptive(axes):
    def write(w, x, size):
        return f"adaptive_avg_pool{axes}d({w.text(x)}, {w.extents(size)})"

    return write
