"""Stand-ins for tensors that write down what they meet, as a tensor function of the Quern language.

A Proxy knows its rank, type and which of its axes have extent one; its extents are words. Operations become lines `let vK = ...;`.
Broadcasting, which the language wants said, is said here: missing axes are inserted, axes of extent one are made unit axes.
"""

import sys

_WORDS = {"float32": "float", "float64": "double", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int16": "i16", "int32": "i32",
          "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "bool", "float8_e4m3fn": "f8e4m3"}  # fmt: skip
_FLOATS = ("double", "float", "f16", "bf16", "f8e4m3")


def name_of(function):
    name = getattr(function, "__name__", type(function).__name__)  # modules and partial functions have none
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    return "fused_" + name


class Extent:
    """An extent, or arithmetic of extents."""

    def __init__(self, words):
        self.words = words

    def _with(self, other, sign, swapped=False):
        if isinstance(other, Proxy):
            return NotImplemented
        if isinstance(other, (float, Number)):
            return self._number()._with(other, f"({{}} {sign} {{}})", swapped)
        other = other.words if isinstance(other, Extent) else str(other)
        a, b = (other, self.words) if swapped else (self.words, other)
        return Extent(f"({a} {sign} {b})")

    def __neg__(self):
        return Extent(f"(-{self.words})")

    def __pow__(self, power):
        return self._number() ** power

    def __truediv__(self, other):
        return self._number() / other

    def __rtruediv__(self, other):
        return other / self._number()

    def _number(self):
        return Number(lambda type: f"{type}({self.words})")

    def _no_value(self, *ignored):
        raise TypeError(
            "quern.fuse: the value of an extent is not known while tracing; use it in arithmetic or shapes only, and branch on it outside"
        )

    def __eq__(self, other):
        return True if isinstance(other, Extent) and other.words == self.words else self._no_value()

    def __hash__(self):
        return hash(self.words)

    __bool__ = __index__ = __int__ = __float__ = __lt__ = __gt__ = __le__ = __ge__ = __mod__ = _no_value


for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("floordiv", "/")):
    setattr(Extent, f"__{_name}__", lambda self, other, sign=_sign: self._with(other, sign))
    setattr(Extent, f"__r{_name}__", lambda self, other, sign=_sign: self._with(other, sign, True))


class Number:
    """A float that is computed from extents or is an argument: words for the type that it is used in, float or double."""

    def __init__(self, words):
        self.words = words

    def _with(self, other, sign, swapped=False):
        if isinstance(other, Proxy):
            return NotImplemented
        other = other._number() if isinstance(other, Extent) else other
        of = other.words if isinstance(other, Number) else lambda type, words=repr(float(other)): words
        a, b = (of, self.words) if swapped else (self.words, of)
        return Number(lambda type: sign.format(a(type), b(type)))

    def __neg__(self):
        return Number(lambda type: f"(-{self.words(type)})")

    def _no_value(self, *ignored):
        raise TypeError(
            "quern.fuse: the value of a number argument is not known while tracing: take it from a closure, where it is a constant, or branch outside"
        )

    __bool__ = __float__ = __int__ = __lt__ = __gt__ = __le__ = __ge__ = __eq__ = _no_value
    __hash__ = None


for _name, _sign in (("add", "({} + {})"), ("sub", "({} - {})"), ("mul", "({} * {})"), ("truediv", "({} / {})"), ("pow", "pow({}, {})")):
    setattr(Number, f"__{_name}__", lambda self, other, sign=_sign: self._with(other, sign))
    setattr(Number, f"__r{_name}__", lambda self, other, sign=_sign: self._with(other, sign, True))


class Tape:
    def __init__(self):
        self.lines = []

    def let(self, words, rank, type, ones=None, shape=None):
        name = f"v{len(self.lines)}"
        self.lines.append(f"    let {name} = {words};")
        return Proxy(self, name, rank, type, ones or (False,) * rank, shape)


class Proxy:
    """A tensor while tracing. `shared`: an argument, or another name shows the same elements: it cannot be changed in place."""

    def __init__(self, tape, words, rank, type, ones, shape=None, shared=False):
        self._tape, self._words, self._rank, self._type, self._ones = tape, words, rank, type, tuple(ones)
        self._shape, self._shared = shape, shared

    def _become(self, made, sign):
        """What `h += ...` does to h, for everybody who has it."""
        if self._shared:
            raise TypeError(f"quern.fuse: `{sign}` would change an argument, or what a view shows: write `y = x {sign[:-1]} ...`")
        if (made._rank, made._type, made._ones) != (self._rank, self._type, self._ones):
            raise TypeError(f"quern.fuse: `{sign}` would change the shape or the type: write `y = x {sign[:-1]} ...`")
        self._words, self._shape = made._words, self._shape or made._shape
        return self

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        from . import trace_ops

        return trace_ops.call(function.__name__, args, kwargs or {})

    def __getattr__(self, name):
        from . import trace_ops

        if name.startswith("__array"):  # NumPy asks for it
            self.__array__()
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

    def __len__(self):
        raise TypeError("quern.fuse: the length of a tensor is not known while tracing: `x.shape[0]` is a stand-in for it")

    def __setitem__(self, index, value):
        raise TypeError("quern.fuse: a tensor cannot be written to while tracing; use torch.where or torch.cat")

    def __array__(self, *ignored, **also):
        raise TypeError("quern.fuse: a tensor has no values while tracing")

    def __getitem__(self, index):
        from . import trace_ops

        return trace_ops.index(self, index)


def _operator(name, swapped=False):
    def method(self, other):
        from . import trace_ops

        return trace_ops.call(name, (other, self) if swapped else (self, other), {})

    return method


def _alone(name):
    def method(self):
        from . import trace_ops

        return trace_ops.call(name, (self,), {})

    return method


def _changing(name, sign):
    def method(self, other):
        from . import trace_ops

        return self._become(trace_ops.call(name, (self, other), {}), sign)

    return method


for _name in ("add", "sub", "mul", "matmul", "pow", "eq", "ne", "lt", "le", "gt", "ge", "floordiv", "mod", "truediv", "and", "or", "xor"):
    setattr(Proxy, f"__{_name}__", _operator(_name))
    if _name not in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Proxy, f"__r{_name}__", _operator(_name, True))
for _name, _sign in (("add", "+="), ("sub", "-="), ("mul", "*="), ("truediv", "/="), ("pow", "**="), ("mod", "%="), ("floordiv", "//="), ("and", "&="), ("or", "|="), ("xor", "^="), ("matmul", "@=")):  # fmt: skip
    setattr(Proxy, f"__i{_name}__", _changing(_name, _sign))
for _name in ("abs", "invert", "pos"):
    setattr(Proxy, f"__{_name}__", _alone(_name))
Proxy.__neg__ = lambda self: self._tape.let(f"-{self._words}", self._rank, self._type, self._ones, self._shape)
Proxy.__hash__ = None


def _is_tensor(value):
    return hasattr(value, "shape") and hasattr(value, "dtype")


def written(function, args, keywords):
    """The text for arguments like these, which of them it takes (positions or names), and what makes of its results what the function gives
    (None: that is what they are)."""
    tape, params, places = Tape(), [], []

    def stand_in(place, value):
        name = f"a{place}" if isinstance(place, int) else f"k{list(keywords).index(place)}"  # a name of its own may be a word of the language
        if _is_tensor(value):
            rank, type = len(value.shape), _WORDS.get(str(value.dtype).rpartition(".")[2])
            if type is None:
                raise TypeError(f"quern.fuse: argument `{place}` has the type {value.dtype}, which Quern has not")
            if rank == 0:  # a parameter without axes would be a number
                params.append(f"{type} {name}[{name}_n0]")
                places.append((place,))
                return Proxy(tape, f"{name}[0]", 0, type, (), [], shared=True)
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
            return Proxy(tape, words, rank, type, ones, [Extent(e) for e in extents], shared=True)
        if isinstance(value, float):
            params.append(f"double {name}")
            places.append(place)
            return Number(lambda type: name if type == "double" else f"float({name})")
        return value

    given = [stand_in(i, a) for i, a in enumerate(args)]
    named = {k: stand_in(k, v) for k, v in keywords.items()}
    if not any(isinstance(g, Proxy) for g in (*given, *named.values())):
        raise TypeError("quern.fuse: no argument is a tensor (those in lists and dictionaries are not looked for: give each as an argument)")
    result = function(*given, **named)
    many, form = (result,), None
    if isinstance(result, dict):
        many, form = tuple(result.values()), lambda made, names=tuple(result): dict(zip(names, made if len(names) > 1 else (made,)))
    elif type(result) is list or type(result) is tuple and len(result) == 1:
        many, form = result, lambda made, kind=type(result): kind(made if isinstance(made, tuple) else (made,))
    elif type(result) is tuple:
        many = result
    if not many:
        raise TypeError("quern.fuse: the function gave nothing; it must give tensors")
    for each in many:
        if not isinstance(each, Proxy):
            raise TypeError(f"quern.fuse: the function gave a {type(each).__name__}; it must give tensors")
    returns = ", ".join(each._words for each in many)
    head = f"tensor {name_of(function)}({', '.join(params)})\n{{\n"
    return head + "\n".join(tape.lines) + f"\n    return {returns};\n}}\n", places, form
