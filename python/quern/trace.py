"""Stand-ins for tensors that write down what they meet, as a tensor function of the Quern language.

A Proxy knows its rank, type and which of its axes have extent one; its extents are words. Operations become lines `let vK = ...;`.
Broadcasting, which the language wants said, is said here: missing axes are inserted, axes of extent one are made unit axes.
"""

import sys

_WORDS = {"float32": "float", "float64": "double", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int16": "i16", "int32": "i32",
          "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "bool", "float8_e4m3fn": "f8e4m3"}  # fmt: skip
_FLOATS = ("double", "float", "f16", "bf16", "f8e4m3")


def name_of(function):
    name = "".join(c if c.isalnum() else "_" for c in function.__name__)
    return "fused_" + name


class Extent:
    """An extent, or arithmetic of extents."""

    def __init__(self, words):
        self.words = words

    def _with(self, other, sign, swapped=False):
        other = other.words if isinstance(other, Extent) else str(other)
        a, b = (other, self.words) if swapped else (self.words, other)
        return Extent(f"({a} {sign} {b})")

    def __add__(self, other):
        return self._with(other, "+")

    def __radd__(self, other):
        return self._with(other, "+", True)

    def __sub__(self, other):
        return self._with(other, "-")

    def __rsub__(self, other):
        return self._with(other, "-", True)

    def __mul__(self, other):
        return other * self if isinstance(other, Proxy) else self._with(other, "*")

    def __rmul__(self, other):
        return self._with(other, "*", True)

    def __floordiv__(self, other):
        return self._with(other, "/")

    def __pow__(self, power):
        return Number(f"pow(float({self.words}), {float(power)!r})")

    def __truediv__(self, other):
        other = other.words if isinstance(other, Extent) else repr(float(other))
        return Number(f"(float({self.words}) / {other})")

    def __rtruediv__(self, other):
        return Number(f"({float(other)!r} / float({self.words}))")

    def _no_value(self, *ignored):
        raise TypeError("quern.fuse: the value of an extent is not known while tracing; use it in arithmetic or shapes only")

    __bool__ = __index__ = __int__ = __float__ = __lt__ = __gt__ = __le__ = __ge__ = _no_value


class Number:
    """A float that is computed from extents or is an argument."""

    def __init__(self, words):
        self.words = words

    def _with(self, other, sign, swapped=False):
        if isinstance(other, Proxy):
            return NotImplemented
        other = other.words if isinstance(other, (Number, Extent)) else repr(float(other))
        a, b = (other, self.words) if swapped else (self.words, other)
        return Number(f"({a} {sign} {b})")

    def __add__(self, o):
        return self._with(o, "+")

    def __radd__(self, o):
        return self._with(o, "+", True)

    def __sub__(self, o):
        return self._with(o, "-")

    def __rsub__(self, o):
        return self._with(o, "-", True)

    def __mul__(self, o):
        return self._with(o, "*")

    def __rmul__(self, o):
        return self._with(o, "*", True)

    def __truediv__(self, o):
        return self._with(o, "/")

    def __rtruediv__(self, o):
        return self._with(o, "/", True)

    def __neg__(self):
        return Number(f"(-{self.words})")

    def _no_value(self, *ignored):
        raise TypeError("quern.fuse: the value of a number argument is not known while tracing: pass it as a keyword of the decorated "
                        "function's closure, or branch outside")  # fmt: skip

    __bool__ = __float__ = __int__ = __lt__ = __gt__ = __le__ = __ge__ = _no_value


class Tape:
    def __init__(self):
        self.lines = []

    def let(self, words, rank, type, ones=None, shape=None):
        name = f"v{len(self.lines)}"
        self.lines.append(f"    let {name} = {words};")
        return Proxy(self, name, rank, type, ones or (False,) * rank, shape)


class Proxy:
    """A tensor while tracing."""

    def __init__(self, tape, words, rank, type, ones, shape=None):
        self._tape, self._words, self._rank, self._type, self._ones = tape, words, rank, type, tuple(ones)
        self._shape = shape

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        from . import trace_ops

        return trace_ops.call(function.__name__, args, kwargs or {})

    def __getattr__(self, name):
        from . import trace_ops

        if name.startswith("__") or name not in trace_ops.METHODS:
            raise TypeError(f"quern.fuse does not know Tensor.{name}: keep it outside the fused function")
        return lambda *args, **keywords: trace_ops.call(name, (self, *args), keywords)

    @property
    def shape(self):
        if self._shape is None:
            raise TypeError("quern.fuse: the extents of this value are not known as words; take them from an argument")
        return tuple(1 if one else extent for one, extent in zip(self._ones, self._shape))

    def size(self, axis=None):
        return self.shape if axis is None else self.shape[axis]

    @property
    def ndim(self):
        return self._rank

    def dim(self):
        return self._rank

    @property
    def dtype(self):
        names = {v: k for k, v in _WORDS.items()}
        torch = sys.modules.get("torch")
        return getattr(torch, names[self._type]) if torch else names[self._type]

    @property
    def T(self):
        from . import trace_ops

        return trace_ops.call("permute", (self, *range(self._rank - 1, -1, -1)), {})

    mT = property(lambda self: self.transpose(-1, -2))

    def __bool__(self):
        raise TypeError("quern.fuse: a branch on the value of a tensor cannot be traced; use torch.where")

    def __iter__(self):
        raise TypeError("quern.fuse: a tensor cannot be iterated over while tracing")

    def __getitem__(self, index):
        from . import trace_ops

        return trace_ops.index(self, index)


def _operator(name, swapped=False):
    def method(self, other):
        from . import trace_ops

        return trace_ops.call(name, (other, self) if swapped else (self, other), {})

    return method


for _name in ("add", "sub", "mul", "matmul", "pow", "eq", "ne", "lt", "le", "gt", "ge", "floordiv", "mod", "truediv"):
    setattr(Proxy, f"__{_name}__", _operator(_name))
    if _name in ("add", "sub", "mul", "matmul", "pow", "truediv", "floordiv", "mod"):
        setattr(Proxy, f"__r{_name}__", _operator(_name, True))
for _word, _name in (("and", "logical_and"), ("or", "logical_or")):
    setattr(Proxy, f"__{_word}__", _operator(_name))
Proxy.__neg__ = lambda self: self._tape.let(f"-{self._words}", self._rank, self._type, self._ones, self._shape)
Proxy.__hash__ = None


def _is_tensor(value):
    return hasattr(value, "shape") and hasattr(value, "dtype")


def written(function, args, keywords):
    """The text for arguments like these, and which of them it takes (positions or names)."""
    tape, params, places = Tape(), [], []

    def stand_in(place, value):
        name = f"a{place}" if isinstance(place, int) else str(place)
        if _is_tensor(value):
            rank, type = len(value.shape), _WORDS.get(str(value.dtype).rpartition(".")[2])
            if type is None:
                raise TypeError(f"quern.fuse: argument `{name}` has the type {value.dtype}, which Quern has not")
            if rank == 0:  # a parameter without axes would be a number
                params.append(f"{type} {name}[{name}_n0]")
                places.append((place,))
                return Proxy(tape, f"{name}[0]", 0, type, (), [])
            extents = [f"{name}_n{i}" for i in range(rank)]
            params.append(f"{type} {name}" + "".join(f"[{e}]" for e in extents))
            places.append(place)
            ones = tuple(int(n) == 1 for n in value.shape)
            words = name
            if any(ones):  # axes of extent one broadcast where they are made ones
                picked = "".join("[0]" if one else "[:]" for one in ones)
                words = name + picked
                for axis, one in enumerate(ones):
                    if one:
                        words = f"unsqueeze({words}, axis = {axis})"
            return Proxy(tape, words, rank, type, ones, [Extent(e) for e in extents])
        if isinstance(value, float):
            params.append(f"float {name}")
            places.append(place)
            return Number(name)
        return value

    given = [stand_in(i, a) for i, a in enumerate(args)]
    named = {k: stand_in(k, v) for k, v in keywords.items()}
    if not any(isinstance(g, Proxy) for g in (*given, *named.values())):
        raise TypeError("quern.fuse: no argument is a tensor")
    result = function(*given, **named)
    many = result if isinstance(result, (tuple, list)) else (result,)
    for each in many:
        if not isinstance(each, Proxy):
            raise TypeError(f"quern.fuse: the function gave a {type(each).__name__}; it must give tensors")
    returns = ", ".join(each._words for each in many)
    head = f"tensor {name_of(function)}({', '.join(params)})\n{{\n"
    return head + "\n".join(tape.lines) + f"\n    return {returns};\n}}\n", places
