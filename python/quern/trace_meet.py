"""Where stand-ins meet: torch's rules of types, axes that broadcast, numbers as words."""

from .trace import _FLOATS, Extent, Number, Proxy

_ORDER = ["bool", "u8", "i8", "i16", "i32", "i64", "bf16", "f16", "float", "double"]
_WHOLE = {"u8": (0, 255), **{f"i{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)}}  # least and largest


def _tape(args):
    for a in args:
        if isinstance(a, Proxy):
            return a._tape
        if isinstance(a, (tuple, list)):
            found = _tape(a)
            if found:
                return found
    return None


def _number(value, type="float"):
    if isinstance(value, Number):
        return value.words("double" if type == "double" else "float")
    if isinstance(value, Extent):
        return value.words
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if type in _WHOLE and not _WHOLE[type][0] <= value <= _WHOLE[type][1]:
            raise TypeError(f"quern.fuse: the number {value} does not fit {type}")
        return str(value) if value != -(1 << 63) else f"({value + 1} - 1)"  # a number of the language has no sign
    if isinstance(value, float):
        return repr(float(value))
    if hasattr(value, "dtype"):
        raise TypeError("quern.fuse: a tensor comes from elsewhere: give it as an argument, or as a number if it is one")
    raise TypeError(f"quern.fuse does not know what to do with a {type_name(value)}")


def type_name(value):
    return type(value).__name__


def _meet(values, type=None):
    """Operands of one rank, in a type if one is named: words, rank, which axes are ones, extents."""
    rank = max(v._rank for v in values if isinstance(v, Proxy))
    words, ones, shape = [], [True] * rank, [None] * rank
    for v in values:
        if not isinstance(v, Proxy):
            words.append(_number(v, type))
            continue
        missing = rank - v._rank if v._rank else 0
        text = v._words if type in (None, v._type) else f"{type}({v._words})"
        words.append(text if not missing else f"({text})" + "[]" * missing + "[:]" * v._rank)
        for axis in range(v._rank):
            at = axis + missing
            if not v._ones[axis]:
                ones[at] = False
                if shape[at] is None and v._shape is not None:
                    shape[at] = v._shape[axis]
    known = None if any(s is None and not o for s, o in zip(shape, ones)) else shape
    return words, rank, tuple(ones), known


def _category(type):
    return 2 if type in _FLOATS else type != "bool"


def _joined(types):
    """Of tensors that count alike."""
    if len(set(types)) > 1 and not set(types) <= set(_ORDER):
        raise TypeError(f"quern.fuse: {' and '.join(sorted(set(types)))} have no type in common: convert with .to() first")
    if {"f16", "bf16"} <= set(types):
        return "double" if "double" in types else "float"
    best = max(types, key=_ORDER.index) if len(set(types)) > 1 else types[0]
    return "i16" if best == "i8" and "u8" in types else best


def _type(values):
    """torch's rule: tensors with axes decide, unless one without, or else a number, is of a higher kind (floats, whole numbers, bools)."""
    found = None
    proxies = [v for v in values if isinstance(v, Proxy)]
    numbers = {"float" if isinstance(v, (float, Number)) else "bool" if isinstance(v, bool) else "i64" for v in values if not isinstance(v, Proxy)}
    for types in ([v._type for v in proxies if v._rank], [v._type for v in proxies if not v._rank], sorted(numbers, key=_ORDER.index)[-1:]):
        if types and (found is None or _category(_joined(types)) > _category(found)):
            found = _joined(types)
    return found


def _axis(dim, rank):
    """An axis, from the end where it is negative."""
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise IndexError(f"quern.fuse: there is no axis {dim} of {rank}")
    return dim % rank if rank else 0


def _axes(x, dim):
    dims = range(x._rank) if dim is None or dim == () else (dim if isinstance(dim, (tuple, list)) else (dim,))
    found = sorted(_axis(d, x._rank) for d in dims)
    if len(set(found)) < len(found):
        raise IndexError(f"quern.fuse: an axis twice in {dim}")
    return found


def _list(axes):
    return str(axes[0]) if len(axes) == 1 else "{" + ", ".join(map(str, axes)) + "}"


def _same(x, words, type=None):
    return x._tape.let(words, x._rank, type or x._type, x._ones, x._shape)


def _with_ones(y, ones):
    """Axes that have extent one made ones, which broadcast."""
    if not any(ones):
        return y
    words = f"({y._words})" + "".join("[0]" if one else "[:]" for one in ones)
    for axis, one in enumerate(ones):
        words = f"unsqueeze({words}, axis = {axis})" if one else words
    return y._tape.let(words, y._rank, y._type, tuple(ones), y._shape)
