"""ATen operators in the words of tensor functions: one row of OPS for each. In: a node of a functional FX graph. Out: the
text of an expression (or of several, for a node with several results).

A row takes the Writer and the node's arguments, writes what it needs before, and returns the expression; what it cannot say
raises Unsupported with the reason, and torch keeps the node. Types and shapes are torch's own, from the node's `meta`: operands
are cast and expanded before they meet, so that no rule of promotion is asked for.
"""

import operator

import torch

aten, prims = torch.ops.aten, torch.ops.prims

WORDS = {
    torch.float32: "float",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.bool: "bool",
}
MOST_AXES = 8


class Unsupported(Exception):
    """Why torch keeps a node."""


def number(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if value != value:
            return "nan"
        if value in (float("inf"), float("-inf")):
            return "inf" if value > 0 else "(-inf)"
        words = repr(value)
        return f"({words})" if value < 0 else words
    return f"({value})" if value < 0 else str(value)


class Writer:
    """The text of one island so far: a name for each node, statements, and the extents that symbols stand for."""

    def __init__(self):
        self.names = {}  # node: the text of its value, or a list of those of a node with several results
        self.lines = []
        self.symbols = {}  # of torch: the name that the text has for it
        self.node = None
        self.count = 0
        self.products = {"limit": None}

    # ---- facts ----

    def value(self, x):
        return x.meta["val"]

    def dtype(self, x):
        return self.value(x).dtype if isinstance(x, torch.fx.Node) else None

    def shape(self, x):
        return tuple(self.value(x).shape)

    def rank(self, x):
        return len(self.shape(x))

    @property
    def out(self):
        return self.value(self.node)

    @property
    def out_dtype(self):
        """Of its first result."""
        return (self.out[0] if isinstance(self.out, (list, tuple)) else self.out).dtype

    def axis(self, x, axis):
        rank = self.rank(x)
        return axis + rank if axis < 0 else axis

    def axes(self, x, axes):
        rank = self.rank(x)
        if axes is None or (isinstance(axes, (list, tuple)) and not axes):
            return list(range(rank))
        return sorted(self.axis(x, a) for a in (axes if isinstance(axes, (list, tuple)) else [axes]))

    # ---- text ----

    def extent(self, n):
        """An extent: a number, or what the text calls a symbol of torch."""
        if isinstance(n, int):
            return str(n)
        if isinstance(n, torch.fx.Node):
            value = n.meta["val"]
            return self.names[n] if n in self.names else self.extent(value)
        return self._expression(n.node.expr)

    def _expression(self, e):
        import sympy

        words = str(e)
        if words in self.symbols:
            return self.symbols[words]
        if isinstance(e, (int, sympy.Integer)):
            return str(int(e))
        if isinstance(e, sympy.Mul):
            return "(" + " * ".join(self._expression(a) for a in e.args) + ")"
        if isinstance(e, sympy.Add):
            return "(" + " + ".join(self._expression(a) for a in e.args) + ")"
        if type(e).__name__ == "FloorDiv":
            return f"({self._expression(e.args[0])} / {self._expression(e.args[1])})"
        raise Unsupported(f"an extent of {words}")

    def extents(self, shape):
        return ", ".join(self.extent(n) for n in shape)

    def known(self, n, what):
        """A number that does not depend on a symbol."""
        if isinstance(n, torch.fx.Node) or not isinstance(n, (int, float)):
            raise Unsupported(f"{what} that is not a number")
        return n

    def let(self, words):
        name = f"t{self.count}"
        self.count += 1
        self.lines.append(f"let {name} = {words};")
        return name

    def text(self, x):
        found = self.names[x]
        if isinstance(found, list):
            raise Unsupported("several results where one is wanted")
        return found

    def cast(self, words, have, want):
        if have == want:
            return words
        if want not in WORDS:
            raise Unsupported(f"{want}")
        if want == torch.bool:
            return f"(({words}) != 0)"
        return f"{WORDS[want]}({words})"

    def operand(self, x, dtype, shape=None, typed=False):
        """x as this type, of this shape; numbers as they are, unless nothing else would tell their type."""
        if not isinstance(x, torch.fx.Node):
            if isinstance(x, (bool, int, float)):
                if dtype.is_floating_point:
                    x = float(x)
                elif dtype == torch.bool:
                    x = bool(x)
                elif isinstance(x, float) or not torch.iinfo(dtype).min <= x <= torch.iinfo(dtype).max:
                    raise Unsupported(f"the number {x} among {dtype}")
                return f"{WORDS[dtype]}({number(x)})" if typed else number(x)
            raise Unsupported(f"an operand of {type(x).__name__}")
        value = self.value(x)
        if not isinstance(value, torch.Tensor):
            return self.extent(x)
        words = self.cast(self.text(x), value.dtype, dtype)
        if shape is not None and value.dim() and not same(value.shape, shape):
            words = f"expand({words}, {self.extents(shape)})"
        return words

    def within(self, args):
        """The type in which a pointwise operator computes: torch's is f32 for halves, which matters where a number is none of
        theirs."""
        dtype = self.out.dtype
        if dtype in (torch.float16, torch.bfloat16):
            for a in args:
                if isinstance(a, float) and a == a and abs(a) != float("inf") and float(torch.tensor(a, dtype=dtype)) != a:
                    return torch.float32
        return dtype

    def reshaped(self, words, shape, rank):
        """To the shape of a result."""
        if len(shape):
            return f"reshape({words}, {self.extents(shape)})"
        return words if not rank else f"squeeze({words}, axis = {axis_set(range(rank))})"


def same(a, b):
    return len(a) == len(b) and all(str(x) == str(y) for x, y in zip(a, b))


def axis_set(axes):
    axes = list(axes)
    return str(axes[0]) if len(axes) == 1 else "{" + ", ".join(map(str, axes)) + "}"


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


def reduced(w, name, words, x, dims, keep, options=""):
    rank = w.rank(x)
    if not rank:
        return words
    axes = w.axes(x, dims)
    if len(axes) == rank and not keep:
        return f"{name}({words}{options})"
    words = f"{name}({words}, axis = {axis_set(axes)}{options})"
    return words if keep else f"squeeze({words}, axis = {axis_set(axes)})"


# ---- rows that say more ----


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


def whole_remainder(w, a, b):
    """Of integers by a positive number: what torch's has, the sign of the number."""
    if not isinstance(b, int) or isinstance(b, bool) or b <= 0:
        raise Unsupported("a remainder of integers by what may be negative")
    x = w.let(w.operand(a, w.out.dtype, w.out.shape))
    return x, f"(({x} % {b} + {b}) % {b})"


def divide(w, a, b, rounding_mode=None):
    if rounding_mode == "floor" and not w.out.dtype.is_floating_point:
        x, rest = whole_remainder(w, a, b)
        return f"({x} - {rest}) / {b}"
    if rounding_mode is not None:
        raise Unsupported(f"division that rounds by {rounding_mode}")
    dtype = w.within((a, b))
    return w.cast(f"{w.operand(a, dtype, w.out.shape)} / {w.operand(b, dtype, w.out.shape)}", dtype, w.out.dtype)


def remainder(w, a, b):
    if not w.out.dtype.is_floating_point:
        return whole_remainder(w, a, b)[1]
    x, y = w.let(w.operand(a, w.out.dtype, w.out.shape)), w.let(w.operand(b, w.out.dtype, w.out.shape, typed=True))
    return f"{x} - floor({x} / {y}) * {y}"


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


def expand_to(w, x):
    """x as the result's type and shape."""
    words, shape = w.operand(x, w.out.dtype, w.out.shape), w.out.shape
    return words if w.rank(x) or not len(shape) else f"expand(reshape({words}, {', '.join('1' for _ in shape)}), {w.extents(shape)})"


def filled(w, value):
    out = w.out
    if not out.dim():
        return w.operand(value, out.dtype, typed=True)
    if isinstance(value, torch.fx.Node):
        raise Unsupported("a fill with a tensor")
    words = f"full({number(float(value))}, {w.extents(out.shape)})"
    return w.cast(words, torch.float32, out.dtype) if out.dtype != torch.bool else f"({words} != 0)"


def full(w, size, value, **keywords):
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1 << 24:
        raise Unsupported("a large whole number")
    if w.out.dtype == torch.float64 and float(torch.tensor(value, dtype=torch.float32)) != value:
        raise Unsupported("a fill with a number of 64 bits")
    return filled(w, value)


def like(value=None):
    def write(w, x, *args, **keywords):
        return full(w, None, args[0] if value is None else value)

    return write


def arange(w, start, end=None, step=1, **keywords):
    out = w.out
    if end is None:
        start, end = 0, start
    if out.dtype == torch.int64:
        return f"arange({w.extent(start)}, {w.extent(end)}, {w.extent(step)})"
    if not out.dtype.is_floating_point:
        raise Unsupported("a range of other integers")
    start, step = (number(float(w.known(n, "a range"))) for n in (start, step))
    return f"{WORDS[out.dtype]}(iota({w.extent(out.shape[0])})) * {step} + {start}"


def iota(w, length, *, start=0, step=1, dtype=None, **keywords):
    if dtype != torch.int64:
        raise Unsupported("a range of other integers")
    words = f"iota({w.extent(length)})"
    if step != 1:
        words = f"{words} * {w.extent(step)}"
    return words if isinstance(start, int) and start == 0 else f"{words} + {w.extent(start)}"


def view(w, x, *args, **keywords):
    return w.reshaped(w.text(x), w.out.shape, w.rank(x))


def permute(w, x, order):
    if not order:
        return w.text(x)
    return f"permute({w.text(x)}, {', '.join(str(w.axis(x, a)) for a in order)})"


def swap(w, x, a=0, b=1):
    rank = w.rank(x)
    if rank < 2:
        return w.text(x)
    order = list(range(rank))
    a, b = w.axis(x, a), w.axis(x, b)
    order[a], order[b] = b, a
    return permute(w, x, order)


def expand(w, x, *args, **keywords):
    shape = w.out.shape
    words = w.text(x)
    if not len(shape):
        return words
    if not w.rank(x):
        return f"expand(reshape({words}, {', '.join('1' for _ in shape)}), {w.extents(shape)})"
    return f"expand({words}, {w.extents(shape)})"


def part(w, x, axis, start, count, step=1):
    """A slice of one axis, in the words of an access."""
    rank = w.rank(x)
    inside = f"{start} : {count}" + (f" : {step}" if step != 1 else "")
    return f"{w.text(x)}" + "".join(f"[{inside}]" if k == axis else "[:]" for k in range(rank))


def slice_(w, x, axis=0, start=None, end=None, step=1):
    axis = w.axis(x, axis)
    start = 0 if start is None else start
    if isinstance(start, int) and start < 0:
        extent = w.shape(x)[axis]
        start = max(w.known(extent, "the start of a slice") + start, 0)
    elif isinstance(start, int) and isinstance(w.shape(x)[axis], int):
        start = min(start, w.shape(x)[axis])
    count = w.out.shape[axis]
    if isinstance(count, int) and count == 0:
        raise Unsupported("an empty slice")
    return part(w, x, axis, w.extent(start), w.extent(count), w.known(step, "a step"))


def select_one(w, x, axis, index):
    axis = w.axis(x, axis)
    if isinstance(index, int) and index < 0:
        index = w.known(w.shape(x)[axis], "a position") + index
    words = part(w, x, axis, w.extent(index), 1)
    return w.reshaped(words, w.out.shape, w.rank(x))


def split(w, x, sizes, axis=0):
    axis = w.axis(x, axis)
    extent = w.known(w.shape(x)[axis], "an axis that is split")
    if isinstance(sizes, int):
        sizes = [min(sizes, extent - at) for at in range(0, extent, sizes)]
    at, pieces = 0, []
    for size in sizes:
        size = w.known(size, "a size")
        if not size:
            raise Unsupported("an empty slice")
        pieces.append(part(w, x, axis, at, size))
        at += size
    return pieces


def unbind(w, x, axis=0):
    axis = w.axis(x, axis)
    extent = w.known(w.shape(x)[axis], "an axis that is split")
    shape = [n for k, n in enumerate(w.shape(x)) if k != axis]
    return [w.reshaped(part(w, x, axis, k, 1), shape, w.rank(x)) for k in range(extent)]


def get_item(w, x, index):
    found = w.names[x]
    if not isinstance(found, list) or found[index] is None:
        raise Unsupported("a result that is not made")
    return found[index]


def cat(w, tensors, axis=0):
    real = [t for t in tensors if not (w.rank(t) == 1 and same(w.shape(t), (0,)))]
    words = [w.operand(t, w.out.dtype) for t in real]
    if not words or w.out.dim() == 0:
        raise Unsupported("a join of nothing")
    return words[0] if len(words) == 1 else f"concat({', '.join(words)}, axis = {w.axis(real[0], axis)})"


def flip(w, x, axes):
    return f"flip({w.text(x)}, axis = {axis_set(w.axes(x, axes))})" if axes else w.text(x)


def pad(w, x, sizes, value=0):
    words, rank = w.text(x), w.rank(x)
    for k in range(len(sizes) // 2):
        before, after = (w.known(n, "a padding") for n in sizes[2 * k : 2 * k + 2])
        if before or after:
            words = f"pad({words}, {number(before)}, {number(after)}, axis = {rank - 1 - k}, value = {number(float(value))})"
    return words


def repeat(w, x, counts):
    if not w.rank(x):
        raise Unsupported("repeating one number")
    return f"repeat({w.text(x)}, {w.extents(counts)})"


def from_end(w, index, extent):
    """Negative indices count from the end."""
    words = w.let(w.cast(w.text(index), w.dtype(index), torch.int64))
    return f"where({words} < 0, {words} + {w.extent(extent)}, {words})"


def index_select(w, x, axis, index):
    axis = w.axis(x, axis)
    if not w.rank(x) or not w.rank(index):
        raise Unsupported("an index of rank 0")
    return f"index_select({w.text(x)}, {w.text(index)}, axis = {axis})"


def index(w, x, indices):
    given = [(k, i) for k, i in enumerate(indices) if i is not None]
    if any(w.dtype(i) in (torch.bool, torch.uint8) for _, i in given):
        raise Unsupported("an index of bools, whose result has an unknown size")
    if len(given) == 1:
        axis, i = given[0]
        if not w.rank(i):
            raise Unsupported("an index of rank 0")
        return f"index_select({w.text(x)}, {from_end(w, i, w.shape(x)[axis])}, axis = {axis})"
    axis, merged, line = joined(w, x, given)
    return f"index_select(reshape({w.text(x)}, {merged}), {line}, axis = {axis})"


def joined(w, x, given):
    """Indices of neighbouring axes as one into those axes as one: the axis, the extents of x, the index."""
    axes = [k for k, _ in given]
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise Unsupported("indices of axes that are not neighbours")
    shape = w.shape(x)
    places = torch.broadcast_shapes(*[w.shape(i) for _, i in given])
    if not len(places):
        raise Unsupported("an index of rank 0")
    line = None
    for k, i in given:
        words = from_end(w, i, shape[k])
        if w.rank(i) and not same(w.shape(i), places):
            words = f"expand({words}, {w.extents(places)})"
        elif not w.rank(i):
            raise Unsupported("an index of rank 0")
        line = words if line is None else w.let(f"{line} * {w.extent(shape[k])} + {words}")
    count = " * ".join(w.extent(shape[k]) for k in axes)
    extents = [w.extent(n) for n in shape[: axes[0]]] + [count] + [w.extent(n) for n in shape[axes[-1] + 1 :]]
    return axes[0], ", ".join(extents), w.let(line)


def index_put(w, x, indices, values, accumulate=False, *rest):
    given = [(k, i) for k, i in enumerate(indices) if i is not None]
    if any(w.dtype(i) in (torch.bool, torch.uint8) for _, i in given):
        raise Unsupported("an index of bools")
    if not accumulate or not w.out.dtype.is_floating_point:
        raise Unsupported("elements that are written over")
    axis, merged, line = joined(w, x, given)
    shape = w.shape(x)
    places = torch.broadcast_shapes(*[w.shape(i) for _, i in given])
    wanted = tuple(shape[:axis]) + tuple(places) + tuple(shape[axis + len(given) :])
    updates = w.operand(values, w.out.dtype, wanted)
    if not isinstance(values, torch.fx.Node) or not w.rank(values):
        updates = f"expand(reshape({updates}, {', '.join('1' for _ in wanted)}), {w.extents(wanted)})"
    added = f"index_add(reshape({w.text(x)}, {merged}), {line}, {updates}, axis = {axis})"
    return w.reshaped(added, shape, 1)


def roll(w, x, shifts, dims=()):
    shifts = list(shifts) if isinstance(shifts, (list, tuple)) else [shifts]
    dims = list(dims) if isinstance(dims, (list, tuple)) else [dims]
    if not dims:
        return f"roll({w.text(x)}, {number(w.known(shifts[0], 'a shift'))})"
    pairs = sorted((w.axis(x, d), w.known(n, "a shift")) for d, n in zip(dims, shifts))
    if len({d for d, _ in pairs}) != len(pairs):
        raise Unsupported("an axis that is rolled twice")
    return f"roll({w.text(x)}, {', '.join(number(n) for _, n in pairs)}, axis = {axis_set(d for d, _ in pairs)})"


def as_strided(w, x, size, stride, offset=None):
    """Of a row-major tensor as another one: a reshape."""
    value = w.value(x)
    step, plain = 1, value.is_contiguous() and not offset
    for n, s in zip(reversed(list(size)), reversed(list(stride))):
        plain = plain and (s == step or n == 1)
        step = step * n
    if not plain or step != value.numel():
        raise Unsupported("strides of its own")
    return w.reshaped(w.text(x), w.out.shape, w.rank(x))


def gather(w, x, axis, index, **keywords):
    if not w.rank(x):
        raise Unsupported("an index of rank 0")
    return f"gather({w.text(x)}, {w.text(index)}, axis = {w.axis(x, axis)})"


def embedding(w, table, index, *args):
    if not w.rank(index):
        raise Unsupported("an index of rank 0")
    return f"embedding({w.text(table)}, {w.text(index)})"


def embedding_back(w, grad, index, rows, padding, by_count):
    if by_count or w.dtype(grad) != torch.float32:
        raise Unsupported("this gradient of an embedding")
    width = w.extent(w.out.shape[1])
    line = w.let(f"flatten({w.text(index)})" if w.rank(index) != 1 else w.text(index))
    rows_of = w.let(f"reshape({w.text(grad)}, -1, {width})")
    if isinstance(padding, int) and padding >= 0:
        rows_of = w.let(f"where(({line} != {padding})[:][], {rows_of}, 0.0)")
    return f"index_add(zeros({w.extents(w.out.shape)}), {line}, {rows_of}, axis = 0)"


def scatter_add(w, x, axis, index, source):
    if not w.rank(x):
        raise Unsupported("an index of rank 0")
    return f"scatter_add({w.text(x)}, {w.text(index)}, {w.text(source)}, axis = {w.axis(x, axis)})"


def scatter_value(w, x, axis, index, value):
    """One place on each line: chosen by comparing positions."""
    axis = w.axis(x, axis)
    shape, given = w.shape(x), w.shape(index)
    if not same(given, [1 if k == axis else n for k, n in enumerate(shape)]):
        raise Unsupported("a scatter of several elements of a line")
    line = ", ".join(w.extent(n) if k == axis else "1" for k, n in enumerate(shape))
    position = f"expand(reshape(iota({w.extent(shape[axis])}), {line}), {w.extents(shape)})"
    hit = f"({position} == expand({w.cast(w.text(index), w.dtype(index), torch.int64)}, {w.extents(shape)}))"
    return f"where({hit}, {w.operand(value, w.out.dtype, shape)}, {w.text(x)})"


def slice_scatter(w, x, source, axis=0, start=None, end=None, step=1):
    axis = w.axis(x, axis)
    extent, size = w.known(w.shape(x)[axis], "an axis"), w.known(w.shape(source)[axis], "an axis")
    start = 0 if start is None else w.known(start, "a start")
    start = max(start + extent, 0) if start < 0 else min(start, extent)
    step = w.known(step, "a step")
    if step != 1:  # each place is a place of the source, or is not
        place = w.let(f"iota({extent}) - {start}")
        hit = w.let(f"({place} >= 0) && ({place} % {step} == 0) && ({place} / {step} < {size})")
        taken = f"index_select({w.operand(source, w.out.dtype)}, clamp({place} / {step}, 0, {size - 1}), axis = {axis})"
        line = ", ".join(str(extent) if k == axis else "1" for k in range(w.rank(x)))
        return f"where(expand(reshape({hit}, {line}), {w.extents(w.shape(x))}), {taken}, {w.text(x)})"
    pieces = [part(w, x, axis, 0, start)] if start else []
    pieces.append(w.operand(source, w.out.dtype))
    if start + size < extent:
        pieces.append(part(w, x, axis, start + size, extent - start - size))
    return pieces[0] if len(pieces) == 1 else f"concat({', '.join(pieces)}, axis = {axis})"


def diagonal(w, x, offset=0, dim1=0, dim2=1):
    return f"diagonal({w.text(x)}, offset = {number(w.known(offset, 'an offset'))}, axis1 = {w.axis(x, dim1)}, axis2 = {w.axis(x, dim2)})"


def diagonal_scatter(w, x, source, offset=0, dim1=0, dim2=1):
    """The source lies along the axis whose places its own are, and is chosen where both axes meet."""
    a, b, offset, shape = w.axis(x, dim1), w.axis(x, dim2), w.known(offset, "an offset"), w.shape(x)
    along, other = (a, b) if offset >= 0 else (b, a)
    extent, length = w.known(shape[along], "an axis"), w.known(w.shape(source)[-1], "an axis")
    rest = [k for k in range(len(shape)) if k not in (a, b)]
    order = [rest.index(k) if k in rest else len(rest) for k in range(len(shape)) if k != other]
    words = w.operand(source, w.out.dtype)
    if order != sorted(order):
        words = f"permute({words}, {', '.join(map(str, order))})"
    if length < extent:
        words = f"pad({words}, 0, {extent - length}, axis = {along - (other < along)})"
    words = f"expand(unsqueeze({words}, axis = {other}), {w.extents(shape)})"

    def places(axis):
        line = ", ".join(w.extent(n) if k == axis else "1" for k, n in enumerate(shape))
        return f"expand(reshape(iota({w.extent(shape[axis])}), {line}), {w.extents(shape)})"

    return f"where({places(a)} + {number(offset)} == {places(b)}, {words}, {w.text(x)})"


def shifted(sign):
    """By a number; C and torch differ where that is no number of bits."""

    def write(w, a, b):
        if not isinstance(b, int) or isinstance(b, bool) or not 0 <= b < 8 * w.out.itemsize or w.out.dtype == torch.bool:
            raise Unsupported("a shift by this")
        return f"({w.operand(a, w.out.dtype, w.out.shape)} {sign} {b})"

    return write


def tri(name):
    def write(w, x, diagonal=0):
        return f"{name}({w.text(x)}, {number(diagonal)})"

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
    return reduced(w, "var", w.text(x), x, dims, keepdim, f", correction = {number(float(correction))}")


def variance_and_mean(w, x, dims=None, *, correction=1, keepdim=False):
    return [variance(w, x, dims, correction=correction, keepdim=keepdim), reduced(w, "mean", w.text(x), x, dims, keepdim)]


def extreme(name):
    """max.dim: values and places."""

    def write(w, x, axis, keep=False):
        if not w.rank(x) or w.dtype(x) == torch.bool:
            raise Unsupported("an extreme of this")
        return [reduced(w, "a" + name, w.text(x), x, axis, keep), reduced(w, "arg" + name, w.text(x), x, axis, keep)]

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
    if not w.out.dtype.is_floating_point:
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


def convolution(w, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    axes = w.rank(x) - 2
    if axes not in (1, 2, 3):
        raise Unsupported("a convolution of this rank")
    limited(w, *(w.shape(weight)), *(w.shape(x) if transposed else w.out.shape)[2:], w.shape(x)[0])
    operands = [w.text(x), w.text(weight)] + ([w.text(bias)] if bias is not None else [])
    words = f"{', '.join(operands)}, stride = {each(stride, axes)}, padding = {each(padding, axes)}, dilation = {each(dilation, axes)}"
    if transposed:
        words += f", output_padding = {each(output_padding, axes)}"
    return f"conv{'_transpose' if transposed else ''}{axes}d({words}, groups = {groups})"


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


def same_value(w, x, *args, **keywords):
    return w.cast(w.text(x), w.dtype(x), w.out.dtype)


def one(name):
    """An elementwise function of the language, of floats."""
    return pointwise(name + "({0})", floats=True)


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
        **{n: one(n) for n in "exp exp2 expm1 log log2 log1p sqrt rsqrt sin cos tanh erf sigmoid floor ceil round relu silu".split()},
        **{n: one(n) for n in "mish hardswish hardsigmoid".split()},
        "log10": log_ten,
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
        "max_pool2d_with_indices": pool("max", 2),
        "max_pool3d_with_indices": pool("max", 3),
        "avg_pool1d": pool("avg", 1),
        "avg_pool2d": pool("avg", 2),
        "avg_pool3d": pool("avg", 3),
        "_adaptive_avg_pool2d": adaptive(2),
        "_adaptive_avg_pool3d": adaptive(3),
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
