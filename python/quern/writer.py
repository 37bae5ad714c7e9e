"""The text of an island while it is written: names of nodes, statements before, and what rows of operators (aten_math.py, aten_moved.py) ask for:
operands in a type and a shape, extents, axes. Types and shapes are torch's own, from a node's `meta`: operands are cast and
expanded before they meet, so that no rule of promotion is asked for.
"""

import torch

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
    torch.float8_e4m3fn: "f8e4m3",
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
    if value == -(1 << 63):  # a number of the language has no sign
        return f"({value + 1} - 1)"
    return f"({value})" if value < 0 else str(value)


class Writer:
    """The text of one island so far: a name for each node, statements, and the extents that symbols stand for."""

    def __init__(self):
        self.names = {}  # node: the text of its value, or a list of those of a node with several results
        self.lines = []
        self.helpers = []  # functions before the island's
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
        return next(v for v in self.out if v is not None).dtype if isinstance(self.out, (list, tuple)) else self.out.dtype

    def axis(self, x, axis):
        """torch lets a number without axes be asked for its axis 0; the language does not."""
        rank = self.rank(x)
        if not rank:
            raise Unsupported("an axis of a number without axes")
        return axis + rank if axis < 0 else axis

    def axes(self, x, axes):
        rank = self.rank(x)
        if not rank or axes is None or (isinstance(axes, (list, tuple)) and not axes):
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

    def helper(self, parameters, words):
        """The name of a function of its own."""
        name = f"helper{len(self.helpers)}"
        self.helpers.append(f"tensor {name}({parameters}) {{ return {words}; }}\n")
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
        if have.is_floating_point and want in (torch.uint8, torch.int8, torch.int16):  # torch's wrap around, the language's end at the largest
            words = f"i32({words})"
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
