"""What `@quern.fuse` knows: torch's functions and methods by name, as lines of the Quern language."""

from .trace import _FLOATS, _WORDS, Extent, Number, Proxy

_UNARY = {n: n for n in ("exp exp2 expm1 log log2 log1p sqrt rsqrt sin cos tanh erf sigmoid relu silu abs sign floor ceil round isnan isinf "
                         "square reciprocal").split()}  # fmt: skip
_UNARY["absolute"] = "abs"
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "div": "/", "true_divide": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
          "gt": ">", "ge": ">=", "logical_and": "&&", "logical_or": "||", "mod": "%", "remainder": "%", "subtract": "-", "multiply": "*"}  # fmt: skip
_COMPARE = {"==", "!=", "<", "<=", ">", ">=", "&&", "||"}
_REDUCE = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min", "prod": "prod", "any": "any", "all": "all",
           "logsumexp": "logsumexp"}  # fmt: skip


def _tape(args):
    for a in args:
        if isinstance(a, Proxy):
            return a._tape
        if isinstance(a, (tuple, list)):
            found = _tape(a)
            if found:
                return found
    return None


def _number(value):
    if isinstance(value, (Number, Extent)):
        return value.words
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return {"inf": "inf", "-inf": "-inf", "nan": "nan"}.get(repr(value), repr(value))
    raise TypeError(f"quern.fuse does not know what to do with a {type(value).__name__}")


def _meet(values):
    """Operands of one rank: words, rank, which axes are ones, extents."""
    rank = max(v._rank for v in values if isinstance(v, Proxy))
    words, ones, shape = [], [True] * rank, [None] * rank
    for v in values:
        if not isinstance(v, Proxy):
            words.append(_number(v))
            continue
        missing = rank - v._rank if v._rank else 0
        words.append(v._words if not missing else f"({v._words})" + "[]" * missing + "[:]" * v._rank)
        for axis in range(v._rank):
            at = axis + missing
            if not v._ones[axis]:
                ones[at] = False
                if shape[at] is None and v._shape is not None:
                    shape[at] = v._shape[axis]
    known = None if any(s is None and not o for s, o in zip(shape, ones)) else shape
    return words, rank, tuple(ones), known


def _type(values):
    order = ["bool", "u8", "i8", "i16", "i32", "i64", "bf16", "f16", "float", "double"]
    types = [v._type for v in values if isinstance(v, Proxy) and v._rank] or [v._type for v in values if isinstance(v, Proxy)]
    if len(set(types)) > 1 and not set(types) <= set(order):
        raise TypeError(f"quern.fuse: {' and '.join(sorted(set(types)))} have no type in common: convert with .to() first")
    best = max(types, key=order.index) if len(set(types)) > 1 else types[0]
    if {"f16", "bf16"} <= set(types):
        best = "float"
    wants_float = any(isinstance(v, (float, Number)) for v in values)
    return "float" if wants_float and best not in _FLOATS else best


def _binary(name, a, b):
    sign = _SIGNS[name]
    if isinstance(a, Number) and isinstance(b, Proxy) or isinstance(a, Proxy) or isinstance(b, Proxy):
        words, rank, ones, shape = _meet((a, b))
        type = "bool" if sign in _COMPARE else _type((a, b))
        if sign == "/" and type not in _FLOATS:
            type = "float"
            words = [f"float({w})" for w in words]
        return _tape((a, b)).let(f"({words[0]}) {sign} ({words[1]})", rank, type, ones, shape)
    raise TypeError(f"quern.fuse: {name} of a {type(a).__name__} and a {type(b).__name__}")


def _axes(x, dim):
    dims = range(x._rank) if dim is None else (dim if isinstance(dim, (tuple, list)) else (dim,))
    return sorted(d % x._rank if x._rank else 0 for d in dims)


def _of_one(word, x, type=None):
    """A fold or scan of a tensor without axes, which is one number."""
    if word in ("softmax", "log_softmax"):  # not a number stays none
        return _same(x, f"exp({x._words} - {x._words})" if word == "softmax" else f"{x._words} - {x._words}")
    if word in ("any", "all"):
        return _same(x, f"({x._words}) != 0", "bool")
    if word not in ("sum", "mean", "max", "min", "prod", "logsumexp", "cumsum"):
        raise TypeError(f"quern.fuse: {word} of a tensor without axes")
    return x if type in (None, x._type) else _same(x, f"{type}({x._words})", type)


def _reduce(word, x, dim=None, keepdim=False, type=None, extra=""):
    if not x._rank:
        return _of_one(word, x, type)
    axes = _axes(x, dim)
    type = type or x._type
    if dim is None and not keepdim:
        words = f"{word}({x._words}{extra})"
        if word == "logsumexp":
            words = f"squeeze({word}({x._words}, axis = {_list(axes)}), axis = {_list(axes)})"
        return x._tape.let(words, 0, type, (), [])
    words = f"{word}({x._words}, axis = {_list(axes)}{extra})"
    if keepdim:
        return x._tape.let(words, x._rank, type, tuple(i in axes or o for i, o in enumerate(x._ones)), x._shape)
    kept = [i for i in range(x._rank) if i not in axes]
    shape = [x._shape[i] for i in kept] if x._shape is not None else None
    return x._tape.let(f"squeeze({words}, axis = {_list(axes)})", len(kept), type, tuple(x._ones[i] for i in kept), shape)


def _list(axes):
    return str(axes[0]) if len(axes) == 1 else "{" + ", ".join(map(str, axes)) + "}"


def _same(x, words, type=None):
    return x._tape.let(words, x._rank, type or x._type, x._ones, x._shape)


def _matmul(a, b):
    rank = max(a._rank, b._rank) if min(a._rank, b._rank) > 1 else max(a._rank, b._rank) - 1
    shape = None
    if a._shape is not None and b._shape is not None and a._rank >= b._rank >= 2:
        shape = [*a._shape[:-1], b._shape[-1]]
    return a._tape.let(f"matmul({_plain(a)}, {_plain(b)})", rank, _type((a, b)), (False,) * rank, shape)


def _plain(x):
    return x._words


def _linear(x, weight, bias=None):
    y = _matmul(x, call("transpose", (weight, -1, -2), {}))
    return y if bias is None else _binary("add", y, bias)


def _permute(x, *order):
    order = order[0] if len(order) == 1 and isinstance(order[0], (tuple, list)) else order
    order = [d % x._rank for d in order]
    shape = [x._shape[d] for d in order] if x._shape is not None else None
    words = f"permute({x._words}, {', '.join(map(str, order))})"
    return x._tape.let(words, x._rank, x._type, tuple(x._ones[d] for d in order), shape)


def _transpose(x, a=0, b=1):
    order = list(range(x._rank))
    order[a], order[b] = order[b], order[a]
    return _permute(x, *order)


def _reshape(x, *shape):
    shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    words = f"reshape({x._words}, {', '.join(_number(s) for s in shape)})"
    known = None if any(isinstance(s, int) and s < 0 for s in shape) else [s if isinstance(s, Extent) else Extent(str(s)) for s in shape]
    return x._tape.let(words, len(shape), x._type, tuple(isinstance(s, int) and s == 1 for s in shape), known)


def _unsqueeze(x, dim):
    dim = dim % (x._rank + 1)
    shape = None if x._shape is None else [*x._shape[:dim], Extent("1"), *x._shape[dim:]]
    return x._tape.let(f"unsqueeze({x._words}, axis = {dim})", x._rank + 1, x._type, (*x._ones[:dim], True, *x._ones[dim:]), shape)


def _squeeze(x, dim=None):
    axes = [i for i, one in enumerate(x._ones) if one] if dim is None else [d for d in _axes(x, dim) if x._ones[d]]
    if not axes:
        return x
    kept = [i for i in range(x._rank) if i not in axes]
    shape = None if x._shape is None else [x._shape[i] for i in kept]
    return x._tape.let(f"squeeze({x._words}, axis = {_list(axes)})", len(kept), x._type, tuple(x._ones[i] for i in kept), shape)


def _cast(x, *args, **keywords):
    wanted = next((a for a in (*args, keywords.get("dtype")) if a is not None and str(a).rpartition(".")[2] in _WORDS), None)
    if wanted is None:
        raise TypeError("quern.fuse: .to() is for types here; move tensors outside")
    type = _WORDS[str(wanted).rpartition(".")[2]]
    return x if type == x._type else _same(x, f"{type}({x._words})", type)


def _softmax(word):
    def apply(x, dim=-1, dtype=None, **ignored):
        x = x if dtype is None else _cast(x, dtype)
        return _same(x, f"{word}({x._words}, axis = {dim % x._rank})") if x._rank else _of_one(word, x)

    return apply


def _layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    axes = [x._rank - 1 - i for i in range(len(normalized_shape))]
    axes.reverse()
    middle = _binary("sub", x, _reduce("mean", x, axes, True))
    spread = _reduce("mean", _binary("mul", middle, middle), axes, True)
    y = _binary("mul", middle, _same(spread, f"rsqrt({spread._words} + {eps!r})"))
    y = y if weight is None else _binary("mul", y, weight)
    return y if bias is None else _binary("add", y, bias)


def _rms_norm(x, normalized_shape, weight=None, eps=None):
    axes = list(range(x._rank - len(normalized_shape), x._rank))
    spread = _reduce("mean", _binary("mul", x, x), axes, True)
    y = _binary("mul", x, _same(spread, f"rsqrt({spread._words} + {1e-6 if eps is None else eps!r})"))
    return y if weight is None else _binary("mul", y, weight)


def _where(condition, a, b):
    words, rank, ones, shape = _meet((condition, a, b))
    return condition._tape.let(f"where({', '.join(words)})", rank, _type([v for v in (a, b) if isinstance(v, Proxy)] or [0.0]) if any(
        isinstance(v, Proxy) for v in (a, b)) else "float", ones, shape)  # fmt: skip


def _extreme(word):
    def apply(a, b=None, keepdim=False, dim=None):
        if isinstance(b, Proxy) or (b is not None and not isinstance(b, int)):
            words, rank, ones, shape = _meet((a, b))
            return _tape((a, b)).let(f"{word}({words[0]}, {words[1]})", rank, _type((a, b)), ones, shape)
        if b is not None or dim is not None:
            raise TypeError(f"quern.fuse: {word} with an axis gives positions too: use torch.a{word}")
        return _reduce(word, a)

    return apply


def _clamp(x, min=None, max=None):
    y = x
    if min is not None:
        y = _extreme("max")(y, float(min) if isinstance(min, int) and y._type in _FLOATS else min)
    if max is not None:
        y = _extreme("min")(y, float(max) if isinstance(max, int) and y._type in _FLOATS else max)
    return y


def _gelu(x, approximate="none"):
    return _same(x, f"gelu{'_tanh' if approximate == 'tanh' else ''}({x._words})")


def _pow(a, b):
    if isinstance(b, (int, float)) and isinstance(a, Proxy) and b == 2:
        return _same(a, f"square({a._words})")
    if isinstance(b, (int, float)) and isinstance(a, Proxy) and b == 0.5:
        return _same(a, f"sqrt({a._words})")
    words, rank, ones, shape = _meet((a, b))
    return _tape((a, b)).let(f"pow({words[0]}, {words[1]})", rank, _type((a, b)), ones, shape)


def _var(word):
    def apply(x, dim=None, unbiased=True, keepdim=False, correction=None):
        correction = (1 if unbiased else 0) if correction is None else correction
        return _reduce(word, x, dim, keepdim, extra=f", correction = {correction}")

    return apply


def _cat(tensors, dim=0):
    first = tensors[0]
    return first._tape.let(f"concat({', '.join(t._words for t in tensors)}, axis = {dim % first._rank})", first._rank, _type(tensors))


def _stack(tensors, dim=0):
    return _cat([_unsqueeze(t, dim) for t in tensors], dim)


def _mse_loss(x, y, size_average=None, reduce=None, reduction="mean", **ignored):
    d = _binary("sub", x, y)
    d = _binary("mul", d, d)
    return d if reduction == "none" else _reduce(reduction, d)


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **ignored):
    if dropout_p:
        raise TypeError("quern.fuse: dropout is left to torch")
    words = [query._words, key._words, value._words] + ([attn_mask._words] if attn_mask is not None else [])
    options = (", causal = true" if is_causal else "") + (f", scale = {_number(scale)}" if scale is not None else "")
    return query._tape.let(f"scaled_dot_product_attention({', '.join(words)}{options})", query._rank, query._type, query._ones)


def _leaky(x, negative_slope=0.01, inplace=False):
    return _same(x, f"where({x._words} > 0, {x._words}, {float(negative_slope)!r} * {x._words})")


def _reduction(word):
    def apply(x, dim=None, keepdim=False, dtype=None):
        x = x if dtype is None else _cast(x, dtype)
        return _reduce(word, x, dim, keepdim, "bool" if word in ("any", "all") else None)

    return apply


def _flatten(x, start_dim=0, end_dim=-1):
    first, last = start_dim % x._rank, end_dim % x._rank
    rank = x._rank - (last - first)
    return x._tape.let(f"flatten({x._words}, first = {first}, last = {last})", rank, x._type)


METHODS = {
    "matmul": _matmul, "mm": _matmul, "bmm": _matmul, "linear": _linear, "addmm": lambda c, a, b: _binary("add", _matmul(a, b), c),
    "permute": _permute, "transpose": _transpose, "swapaxes": _transpose, "t": lambda x: _transpose(x, 0, 1) if x._rank == 2 else x,
    "reshape": _reshape, "view": _reshape, "flatten": _flatten, "unsqueeze": _unsqueeze, "squeeze": _squeeze,
    "to": _cast, "type": _cast, "float": lambda x: _cast(x, "float32"), "double": lambda x: _cast(x, "float64"),
    "half": lambda x: _cast(x, "float16"), "bfloat16": lambda x: _cast(x, "bfloat16"), "contiguous": lambda x, **k: x, "clone": lambda x, **k: x,
    "detach": lambda x: _same(x, f"detach({x._words})"), "softmax": _softmax("softmax"), "log_softmax": _softmax("log_softmax"),
    "layer_norm": _layer_norm, "rms_norm": _rms_norm, "where": _where, "masked_fill": lambda x, m, v: _where(m, v, x),
    "maximum": _extreme("max"), "minimum": _extreme("min"), "max": _extreme("max"), "min": _extreme("min"), "clamp": _clamp, "clip": _clamp,
    "gelu": _gelu, "pow": _pow, "var": _var("var"), "std": _var("std"), "cat": _cat, "concat": _cat, "stack": _stack, "mse_loss": _mse_loss,
    "scaled_dot_product_attention": _attention, "leaky_relu": _leaky, "neg": lambda x: -x, "negative": lambda x: -x,
    "rsub": lambda a, b: _binary("sub", b, a), "logical_not": lambda x: _same(x, f"!({x._words})", "bool"),
    "softplus": lambda x, beta=1.0, threshold=20.0: _same(x, f"softplus({x._words})"),
    "cumsum": lambda x, dim: _same(x, f"cumsum({x._words}, axis = {dim % x._rank})") if x._rank else _of_one("cumsum", x),
}  # fmt: skip
for _name, _word in _REDUCE.items():
    METHODS[_name] = _reduction(_word)
for _name, _word in _UNARY.items():
    METHODS[_name] = (lambda word: lambda x, *ignored, **also: _same(x, f"{word}({x._words})"))(_word)
for _name in _SIGNS:
    METHODS.setdefault(_name, (lambda name: lambda a, b, **ignored: _binary(name, a, b))(_name))


def call(name, args, keywords):
    name = name.strip("_") if name.startswith("__") else name
    if name == "relu" and keywords.get("inplace"):
        raise TypeError("quern.fuse: inplace=True changes a tensor that others may see: leave it out")
    known = METHODS.get(name)
    if known is None:
        raise TypeError(f"quern.fuse does not know torch's `{name}`: keep it outside the fused function, or use torch.compile")
    keywords = {k: v for k, v in keywords.items() if not (k in ("inplace", "out", "_stacklevel") and not v)}
    return known(*args, **keywords)


def index(x, key):
    key = key if isinstance(key, tuple) else (key,)
    if Ellipsis in [k for k in key if not isinstance(k, Proxy)]:
        at = key.index(Ellipsis)
        fill = x._rank - sum(1 for k in key if k is not None and k is not Ellipsis)
        key = key[:at] + (slice(None),) * fill + key[at + 1 :]
    words, ones, shape, axis = "", [], [], 0
    for k in (*key, *(slice(None),) * (x._rank - sum(1 for k in key if k is not None))):
        if k is None:
            words += "[]"
            ones.append(True)
            shape.append(Extent("1"))
            continue
        extent = x._shape[axis] if x._shape is not None else None
        if isinstance(k, slice) and k == slice(None):
            words += "[:]"
            ones.append(x._ones[axis])
            shape.append(extent)
        elif isinstance(k, slice):
            part = _slice(k, extent)
            words += part[0]
            ones.append(False)
            shape.append(part[1])
        elif isinstance(k, (int, Extent)):
            words += f"[{extent.words} - {-k}]" if isinstance(k, int) and k < 0 else f"[{_number(k)}]"
        else:
            raise TypeError("quern.fuse: an index is a number, a slice, None or ...; gathering is left to torch")
        axis += 1
    return x._tape.let(f"({x._words}){words}", len(ones), x._type, tuple(ones), None if any(s is None for s in shape) else shape)


def _slice(k, extent):
    def bound(value, default):
        if value is None:
            return default
        if isinstance(value, int) and value < 0:
            return f"({extent.words} - {-value})"
        return _number(value)

    if k.step not in (None, 1) or extent is None:
        raise TypeError("quern.fuse: slices have step one, of tensors whose extents are known")
    start, stop = bound(k.start, "0"), bound(k.stop, extent.words)
    length = f"({stop} - {start})" if start != "0" else stop
    return f"[{start} : {length}]", Extent(length)
