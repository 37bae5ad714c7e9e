"""What `@quern.fuse` knows: torch's functions and methods by name, as lines of the Quern language."""

import functools

from .trace import _FLOATS, _WORDS, Extent, Proxy
from .trace_meet import _axes, _axis, _list, _meet, _number, _same, _tape, _type, _with_ones, type_name

_OF_FLOATS = "exp exp2 expm1 log log2 log1p sqrt rsqrt sin cos tanh erf sigmoid silu reciprocal mish hardswish hardsigmoid relu6 softsign selu".split()  # whole numbers become floats first
_UNARY = {n: n for n in ("abs", "square")}
_UNARY["absolute"] = "abs"
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "div": "/", "true_divide": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
          "gt": ">", "ge": ">=", "logical_and": "&&", "logical_or": "||", "mod": "%", "remainder": "%", "subtract": "-", "multiply": "*",
          "divide": "/"}  # fmt: skip
_COMPARE = {"==", "!=", "<", "<=", ">", ">=", "&&", "||"}
_REDUCE = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min", "prod": "prod", "any": "any", "all": "all",
           "logsumexp": "logsumexp"}  # fmt: skip


def _binary(name, a, b):
    sign = _SIGNS[name]
    if not isinstance(a, Proxy) and not isinstance(b, Proxy):
        raise TypeError(f"quern.fuse: {name} of a {type_name(a)} and a {type_name(b)}")
    if sign in ("&&", "||"):
        words, rank, ones, shape = _meet([_truth(v) for v in (a, b)])
        return _tape((a, b)).let(f"({words[0]}) {sign} ({words[1]})", rank, "bool", ones, shape)
    type = _type((a, b))
    if type == "bool" and sign not in _COMPARE:
        if sign not in _OF_BOOLS:
            raise TypeError(f"quern.fuse: `{name}` of two tensors of bools: torch has none")
        sign, type = _OF_BOOLS[sign], "float" if sign == "/" else type
    if sign == "/" and type not in _FLOATS:
        type = "float"
    if sign == "%" and type == "double":
        raise TypeError("quern.fuse: a remainder of doubles is left to torch: Quern's rounds the quotient")
    words, rank, ones, shape = _meet((a, b), type)
    if sign == "%" and type in _FLOATS and not (isinstance(b, (int, float)) and abs(b) < float("inf")):  # by what may be infinite
        x, y = (w if isinstance(v, Proxy) else f"{type}({w})" for v, w in zip((a, b), words))
        infinite = f"where(({x}) * ({y}) < 0, {y}, {x})"
        return _tape((a, b)).let(f"where(isinf({y}) && !isinf({x}), {infinite}, ({x}) % ({y}))", rank, type, ones, shape)
    return _tape((a, b)).let(f"({words[0]}) {sign} ({words[1]})", rank, "bool" if sign in _COMPARE else type, ones, shape)


_OF_BOOLS = {"+": "||", "*": "&&", "/": "/"}


def _truth(v):
    if isinstance(v, Proxy):
        return v if v._type == "bool" else _same(v, f"({v._words}) != 0", "bool")
    return bool(v)


def _bits(sign, of_bools):
    def apply(a, b):
        type = _type((a, b))
        if type in _FLOATS:
            raise TypeError(f"quern.fuse: `{sign}` is for whole numbers and bools")
        words, rank, ones, shape = _meet((a, b), type)
        return _tape((a, b)).let(f"({words[0]}) {of_bools if type == 'bool' else sign} ({words[1]})", rank, type, ones, shape)

    return apply


def _invert(x):
    if x._type in _FLOATS:
        raise TypeError("quern.fuse: `~` is for whole numbers and bools")
    return _same(x, f"{'!' if x._type == 'bool' else '~'}({x._words})")


def _with_alpha(name):
    def apply(a, b, *, alpha=1):
        made = _binary(name, a, b if isinstance(alpha, int) and alpha == 1 else _binary("mul", b, alpha) if isinstance(b, Proxy) else b * alpha)
        if made._type != _type((a, b)):
            raise TypeError(f"quern.fuse: `{name}` with alpha = {alpha} of {_type((a, b))} is left to torch")
        return made

    return apply


def _of_one(word, x, type=None):
    """A fold or scan of a tensor without axes, which is one number."""
    if word in ("softmax", "log_softmax"):  # not a number stays none
        return _same(x, f"exp({x._words} - {x._words})" if word == "softmax" else f"{x._words} - {x._words}")
    if word in ("any", "all"):
        return _same(x, f"({x._words}) != 0", "bool")
    if word not in ("sum", "mean", "max", "min", "prod", "logsumexp", "cumsum"):
        raise TypeError(f"quern.fuse: {word} of a tensor without axes")
    return _same(x, f"{type or x._type}({x._words})", type)


def _reduce(word, x, dim=None, keepdim=False, type=None, extra=""):
    if x._type == "bool":  # which the language does not order
        word = {"max": "any", "min": "all"}.get(word, word)
    if not x._rank:
        return _of_one(word, x, type)
    axes, dim = _axes(x, dim), None if dim == () else dim
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


def _matmul(a, b):
    rank = max(a._rank, b._rank) if min(a._rank, b._rank) > 1 else max(a._rank, b._rank) - 1
    shape = None
    if a._shape is not None and b._shape is not None and a._rank >= b._rank >= 2:
        shape = [*a._shape[:-1], b._shape[-1]]
    if a._type != b._type:
        raise TypeError(f"quern.fuse: a product of {a._type} and {b._type}: torch has none, convert one of them")
    words = f"matmul({a._words}, {b._words})"
    if a._type not in _FLOATS:  # the language's sums of small whole numbers are wider
        words = f"{a._type}({words})"
    made = _tape((a, b)).let(words, rank, a._type, (False,) * rank, shape)
    ones = [all(v._ones[axis] for v in (a, b) if v._rank >= -axis) for axis in range(-max(a._rank, b._rank), -2)]
    return _with_ones(made, [*ones, *([a._ones[-2]] if a._rank > 1 else []), *([b._ones[-1]] if b._rank > 1 else [])])


def _linear(x, weight, bias=None):
    y = _matmul(x, call("transpose", (weight, -1, -2), {}))
    return y if bias is None else _binary("add", y, bias)


def _permute(x, *order):
    order = order[0] if len(order) == 1 and isinstance(order[0], (tuple, list)) else order
    order = [_axis(d, x._rank) for d in order]
    if not order and not x._rank:
        return x
    shape = [x._shape[d] for d in order] if x._shape is not None else None
    words = f"permute({x._words}, {', '.join(map(str, order))})"
    return x._tape.let(words, x._rank, x._type, tuple(x._ones[d] for d in order), shape)


def _transpose(x, a=0, b=1):
    order = list(range(x._rank))
    a, b = _axis(a, x._rank), _axis(b, x._rank)
    if a != b:
        order[a], order[b] = b, a
    return _permute(x, *order)


def _reshape(x, *shape):
    shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if not len(shape) and all(x._ones):
        return _squeeze(x)
    words = f"reshape({x._words}, {', '.join(_number(s) for s in shape)})"
    known = None if any(isinstance(s, int) and s < 0 for s in shape) else [s if isinstance(s, Extent) else Extent(str(s)) for s in shape]
    return x._tape.let(words, len(shape), x._type, tuple(isinstance(s, int) and s == 1 for s in shape), known)


def _unsqueeze(x, dim):
    dim = _axis(dim, x._rank + 1)
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
    like = next((a._type for a in args if isinstance(a, Proxy)), None)
    wanted = next((a for a in (*args, keywords.get("dtype")) if a is not None and str(a).rpartition(".")[2] in _WORDS), None)
    if wanted is None and like is None:
        raise TypeError("quern.fuse: .to() is for types here; move tensors outside")
    type = like or _WORDS[str(wanted).rpartition(".")[2]]
    if type in ("u8", "i8", "i16") and x._type in _FLOATS:  # torch's wrap around, the language's end at the largest
        return _same(x, f"{type}(i32({x._words}))", type)
    return x if type == x._type else _same(x, f"{type}({x._words})", type)


def _softmax(word):
    def apply(x, dim=None, dtype=None):
        x = x if dtype is None else _cast(x, dtype)
        dim = _axis((0 if x._rank in (0, 1, 3) else 1) if dim is None else dim, x._rank)  # torch's old choice, which it warns of
        if x._type not in _FLOATS:
            raise TypeError(f"quern.fuse: {word} is of floats: convert with .float() first")
        return _same(x, f"{word}({x._words}, axis = {dim})") if x._rank else _of_one(word, x)

    return apply


def _layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    axes = [x._rank - 1 - i for i in range(len(normalized_shape))]
    axes.reverse()
    middle = _binary("sub", x, _reduce("mean", x, axes, True))
    spread = _reduce("mean", _binary("mul", middle, middle), axes, True)
    y = _binary("mul", middle, _same(spread, f"rsqrt({spread._words} + {_number(eps, x._type)})"))
    y = y if weight is None else _binary("mul", y, weight)
    y = y if bias is None else _binary("add", y, bias)
    return y if y._type == x._type else _same(y, f"{x._type}({y._words})", x._type)


def _rms_norm(x, normalized_shape, weight=None, eps=None):
    axes = list(range(x._rank - len(normalized_shape), x._rank))
    spread = _reduce("mean", _binary("mul", x, x), axes, True)
    y = _binary("mul", x, _same(spread, f"rsqrt({spread._words} + {_number((2.0**-52 if x._type == 'double' else 2.0**-23) if eps is None else eps, x._type)})"))
    y = y if weight is None else _binary("mul", y, weight)
    return y if y._type == x._type else _same(y, f"{x._type}({y._words})", x._type)


def _where(condition, a, b):
    type = _type((a, b))
    (c,), (x, y) = _meet((condition, a, b))[0][:1], _meet((condition, a, b), type)[0][1:]
    _, rank, ones, shape = _meet((condition, a, b))
    if not isinstance(a, Proxy) and not isinstance(b, Proxy):
        x, y = f"{type}({x})", f"{type}({y})"
    return condition._tape.let(f"where({c}, {x}, {y})", rank, type, ones, shape)


def _extreme(word):
    def apply(a, b):
        type = _type((a, b))
        words, rank, ones, shape = _meet((a, b), type)
        return _tape((a, b)).let(f"{word}({words[0]}, {words[1]})", rank, type, ones, shape)

    return apply


def _extreme_of(word):
    """torch.max and torch.min: of two tensors, or of all elements of one."""

    def apply(a, b=None, keepdim=False, dim=None):
        if isinstance(b, Proxy):
            return _extreme(word)(a, b)
        if b is not None or dim is not None:
            raise TypeError(f"quern.fuse: {word} with an axis gives positions too: use torch.a{word}")
        return _reduce(word, a)

    return apply


def _masked_fill(x, mask, value):
    """Of the type of x, whatever is filled in."""
    if _type((x, value)) != x._type:
        if not isinstance(value, (int, float)) or not abs(value) < float("inf"):
            raise TypeError(f"quern.fuse: `masked_fill` of {x._type} with a number that it has not")
        value = bool(value) if x._type == "bool" else int(value)
    return _where(mask, value, x)


def _clamp(x, min=None, max=None):
    if min is None and max is None:
        raise TypeError("quern.fuse: `clamp` has a min, a max or both")
    y = x if min is None else _extreme("max")(x, min)
    return y if max is None else _extreme("min")(y, max)


def _softplus(x, beta=1.0, threshold=20.0):
    if (beta, threshold) == (1.0, 20.0):
        return _same(x, f"softplus({x._words})")
    scaled = _binary("mul", x, float(beta))
    return _same(x, f"where({scaled._words} > {float(threshold)!r}, {x._words}, softplus({scaled._words}) / {float(beta)!r})")


def _addmm(c, a, b, *, beta=1, alpha=1):
    y = _matmul(a, b)
    y = y if alpha == 1 else _binary("mul", y, alpha)
    if beta == 0:  # c is not looked at, NaN or not
        return _binary("add", y, _same(c, f"like({c._words}, 0)"))
    return _binary("add", y, c if beta == 1 else _binary("mul", c, beta))


def _chunk(x, chunks, dim=0):
    axis = _axis(dim, x._rank)
    if x._shape is None or x._ones[axis]:
        raise TypeError("quern.fuse: chunks are of an axis whose extent is known as words and is not one: use slices")
    n = x._shape[axis]
    size = (n + (chunks - 1)) // chunks
    parts = [slice(size * i, size * (i + 1) if i < chunks - 1 else n) for i in range(chunks)]
    made = [index(x, (slice(None),) * axis + (part,)) for part in parts]
    if chunks > 2:  # where torch makes fewer of them the last one is empty, and does not fit
        last = made[-1]
        extents = [f"max({e.words}, 1)" if i == axis else e.words for i, e in enumerate(last._shape)]
        made[-1] = last._tape.let(f"reshape({last._words}, {', '.join(extents)})", last._rank, last._type, last._ones, last._shape)
    return tuple(made)


def _gelu(x, approximate="none"):
    return _same(x, f"gelu{'_tanh' if approximate == 'tanh' else ''}({x._words})")


def _pow(a, b):
    type = _type((a, b))
    if isinstance(a, Proxy) and isinstance(b, (int, float)) and b in (0.5, 1, 2, 3) and type != "bool":
        words = a._words if a._type == type else f"{type}({a._words})"
        return _same(a, {0.5: f"sqrt({words})", 1: words, 2: f"square({words})", 3: f"({words}) * ({words}) * ({words})"}[b], type)
    if type not in _FLOATS:
        raise TypeError("quern.fuse: powers of whole numbers are by 1, 2 or 3 here: convert with .float() first")
    words, rank, ones, shape = _meet((a, b), type)
    return _tape((a, b)).let(f"pow({words[0]}, {words[1]})", rank, type, ones, shape)


def _whole(name):
    """What changes no whole number."""

    def apply(x):
        if x._type == "bool":
            raise TypeError(f"quern.fuse: `{name}` of a tensor of bools: torch has none")
        return _same(x, f"{name}({x._words})" if x._type in _FLOATS else x._words)

    return apply


def _relu(x):
    return _whole("relu")(x if x._type in (*_FLOATS, "bool") else _extreme("max")(x, 0))


def _only_floats(name, row):
    @functools.wraps(row)
    def apply(x, *args, **keywords):
        if x._type not in _FLOATS:
            raise TypeError(f"quern.fuse: `{name}` is of floats: convert with .float() first")
        return row(x, *args, **keywords)

    return apply


def _var(word):
    def apply(x, dim=None, unbiased=True, keepdim=False, correction=None):
        if isinstance(dim, bool):  # x.var(False)
            dim, unbiased = None, dim
        correction = (1 if unbiased else 0) if correction is None else correction
        return _reduce(word, x, dim, keepdim, extra=f", correction = {correction}")

    return apply


def _cat(tensors, dim=0):
    first, type = tensors[0], _type(tensors)
    axis = _axis(dim, first._rank)
    words = [t._words if t._type == type else f"{type}({t._words})" for t in tensors]
    made = first._tape.let(f"concat({', '.join(words)}, axis = {axis})", first._rank, type)
    return _with_ones(made, [i != axis and one for i, one in enumerate(first._ones)])


def _stack(tensors, dim=0):
    return _cat([_unsqueeze(t, dim) for t in tensors], dim)


def _mse_loss(x, y, size_average=None, reduce=None, reduction="mean"):
    d = _binary("sub", x, y)
    d = _binary("mul", d, d)
    return d if reduction == "none" else _reduce(reduction, d)


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout_p or enable_gqa:
        raise TypeError(f"quern.fuse: {'dropout' if dropout_p else 'enable_gqa'} is left to torch")
    if isinstance(scale, (int, float)) and not scale:
        raise TypeError("quern.fuse: attention with a scale of 0, which in the language is the usual one")
    if attn_mask is not None and is_causal:
        raise TypeError("quern.fuse: attention with a mask and is_causal: torch has none")
    seen = None
    if attn_mask is not None:
        seen, attn_mask = _rows_that_see(attn_mask)
    words = [each._words for each in (query, key, value, attn_mask) if each is not None]
    options = (", causal = true" if is_causal else "") + (f", scale = {_number(scale)}" if scale is not None else "")
    made = query._tape.let(f"scaled_dot_product_attention({', '.join(words)}{options})", query._rank, query._type)
    made = _with_ones(made, [*query._ones[:-1], value._ones[-1]])
    return made if seen is None else _where(seen, made, 0.0)


def _rows_that_see(mask):
    """Which rows of a mask leave something over, and the mask with those that do not opened: torch's attention is 0 there, and so are its gradients; the
    language's is what a softmax of minus infinity is, NaN."""
    if mask._type == "bool":
        seen = _reduce("any", mask, -1, True)
        return seen, _where(seen, mask, True)
    seen = _binary("ne", METHODS["amax"](mask, -1, True), float("-inf"))
    return seen, _where(seen, mask, 0.0)


def _leaky(x, negative_slope=0.01):
    return _same(x, f"where({x._words} > 0, {x._words}, {float(negative_slope)!r} * {x._words})")


def _reduction(word):
    def apply(x, dim=None, keepdim=False, dtype=None):
        x = x if dtype is None else _cast(x, dtype)
        if word in ("any", "all"):
            if dim == ():
                raise TypeError(f"quern.fuse: {word} along no axes")  # all of them, or none: that changed
            made = _reduce(word, _truth(x), dim, keepdim)
            return _cast(made, "uint8") if x._type == "u8" else made  # torch's truth about bytes is a byte
        if word in ("sum", "prod") and x._type not in _FLOATS:  # of 64 bits in the language, and in torch unless it is said
            made = _reduce(word, _cast(x, "int64"), dim, keepdim)
            return made if dtype is None else _cast(made, dtype)
        if word in ("mean", "logsumexp") and x._type not in _FLOATS:
            raise TypeError(f"quern.fuse: {word} is of floats: convert with .float() first")
        return _reduce(word, x, dim, keepdim)

    return apply


def _flatten(x, start_dim=0, end_dim=-1):
    first, last = _axis(start_dim, x._rank), _axis(end_dim, x._rank)
    if not x._rank:
        return _unsqueeze(x, 0)
    rank = x._rank - (last - first)
    made = x._tape.let(f"flatten({x._words}, first = {first}, last = {last})", rank, x._type)
    return _with_ones(made, [*x._ones[:first], all(x._ones[first : last + 1]), *x._ones[last + 1 :]])


def _cumsum(x, dim, *, dtype=None):
    x = x if dtype is None else _cast(x, dtype)
    x = x if x._type in _FLOATS else _cast(x, "int64")
    axis = _axis(dim, x._rank)
    made = _same(x, f"cumsum({x._words}, axis = {axis})") if x._rank else _of_one("cumsum", x)
    return made if dtype is None else _cast(made, dtype)


def _sign(x):
    """torch's of NaN is 0."""
    if x._type == "bool":
        return _same(x, x._words)
    return _same(x, f"where(isnan({x._words}), {x._type}(0), sign({x._words}))" if x._type in _FLOATS else f"sign({x._words})")


def _position(word):
    def apply(x, dim=None, keepdim=False):
        if dim is None:
            raise TypeError(f"quern.fuse: {word} is along an axis: say dim=")
        return _reduce(word, x, dim, keepdim, "i64")

    return apply


def _glu(x, dim=-1):
    left, right = _chunk(x, 2, dim)
    return _binary("mul", left, METHODS["sigmoid"](right))


def _normalize(x, p=2.0, dim=1, eps=1e-12):
    if p != 2:
        raise TypeError(f"quern.fuse: `normalize` with p = {p} is left to torch")
    length = _reduce("sum", _binary("mul", x, x), dim, True)
    return _binary("truediv", x, _extreme("max")(_same(length, f"sqrt({length._words})"), float(eps)))


def _einsum(equation, *tensors):
    equation = equation.replace(" ", "")
    result = equation.rpartition("->")[2]
    if "->" not in equation or "." in equation or len({t._type for t in tensors}) > 1:
        raise TypeError("quern.fuse: `einsum` has a result that is written out, and tensors of one type")
    words = f'einsum("{equation}", {", ".join(t._words for t in tensors)})'
    return _tape(tensors).let(words, len(result), tensors[0]._type)


def _numel(x):
    n = Extent("1")
    for extent in x.shape:
        n = n * extent
    return n


METHODS = {
    "matmul": _matmul, "mm": _matmul, "bmm": _matmul, "linear": _linear, "addmm": _addmm,
    "permute": _permute, "transpose": _transpose, "swapaxes": _transpose, "t": lambda x: _transpose(x, 0, 1) if x._rank == 2 else x,
    "reshape": _reshape, "view": _reshape, "flatten": _flatten, "unsqueeze": _unsqueeze, "squeeze": _squeeze, "chunk": _chunk,
    "to": _cast, "type": _cast, "type_as": _cast, "float": lambda x: _cast(x, "float32"), "double": lambda x: _cast(x, "float64"),
    "half": lambda x: _cast(x, "float16"), "bfloat16": lambda x: _cast(x, "bfloat16"), "int": lambda x: _cast(x, "int32"),
    "long": lambda x: _cast(x, "int64"), "bool": _truth, "contiguous": lambda x: x, "clone": lambda x: _same(x, x._words), "numel": _numel,
    "detach": lambda x: _same(x, f"detach({x._words})"), "softmax": _softmax("softmax"), "log_softmax": _softmax("log_softmax"),
    "layer_norm": _layer_norm, "rms_norm": _rms_norm, "where": _where, "masked_fill": _masked_fill,
    "maximum": _extreme("max"), "minimum": _extreme("min"), "max": _extreme_of("max"), "min": _extreme_of("min"), "clamp": _clamp, "clip": _clamp,
    "gelu": _gelu, "relu": _relu, "pow": _pow, "var": _var("var"), "std": _var("std"), "cat": _cat, "concat": _cat, "stack": _stack, "mse_loss": _mse_loss,
    "scaled_dot_product_attention": _attention, "leaky_relu": _leaky, "neg": lambda x: -x, "negative": lambda x: -x, "pos": lambda x: x,
    "rsub": lambda a, b: _binary("sub", b, a), "logical_not": lambda x: _same(x, f"!({_truth(x)._words})", "bool"), "softplus": _softplus,
    "cumsum": _cumsum, "sign": _sign, "invert": _invert, "bitwise_not": _invert, "and": _bits("&", "&&"), "or": _bits("|", "||"),
    "xor": _bits("^", "!="), "bitwise_and": _bits("&", "&&"), "bitwise_or": _bits("|", "||"), "bitwise_xor": _bits("^", "!="),
    **{name: (lambda name: lambda x: _same(x, f"{name}({x._words})", "bool"))(name) for name in ("isnan", "isinf")},
    **{name: _with_alpha(name) for name in ("add", "sub", "subtract")},
    "elu": lambda x, alpha=1.0: _same(x, f"elu({x._words}, alpha = {float(alpha)!r})"),
    "celu": lambda x, alpha=1.0: _same(x, f"celu({x._words}, alpha = {float(alpha)!r})"),
    "hardtanh": lambda x, min_val=-1.0, max_val=1.0: _same(x, f"hardtanh({x._words}, low = {float(min_val)!r}, high = {float(max_val)!r})"),
    "logsigmoid": lambda x: _same(x, f"logsigmoid({x._words})"), "log_sigmoid": lambda x: _same(x, f"logsigmoid({x._words})"),
    "glu": _glu, "normalize": _normalize, "einsum": _einsum, "argmax": _position("argmax"), "argmin": _position("argmin"),
    "clamp_min": lambda x, min: _clamp(x, min), "clamp_max": lambda x, max: _clamp(x, None, max),
    "zeros_like": lambda x: _same(x, f"like({x._words}, 0)"), "ones_like": lambda x: _same(x, f"like({x._words}, 1)"),
    **{name: (lambda name: lambda x, diagonal=0: _same(x, f"{name}({x._words}, diagonal = {int(diagonal)})"))(name) for name in ("tril", "triu")},
}  # fmt: skip
for _name, _word in _REDUCE.items():
    METHODS[_name] = _reduction(_word)
for _name, _word in _UNARY.items():
    METHODS[_name] = (lambda word: lambda x: _same(x, f"{word}({x._words})"))(_word)
for _name in ("floor", "ceil", "round"):
    METHODS[_name] = _whole(_name)
for _name in _OF_FLOATS:
    METHODS[_name] = (lambda word: lambda x: (lambda y: _same(y, f"{word}({y._words})"))(x if x._type in _FLOATS else _cast(x, "float32")))(_name)
for _name in "relu6 hardtanh elu celu logsigmoid log_sigmoid gelu softplus leaky_relu layer_norm rms_norm normalize glu var std".split():
    METHODS[_name] = _only_floats(_name, METHODS[_name])
for _name in _SIGNS:
    METHODS.setdefault(_name, (lambda name: lambda a, b: _binary(name, a, b))(_name))
_VIEWS = "permute transpose swapaxes t reshape view flatten unsqueeze squeeze chunk detach contiguous to type type_as float double half bfloat16".split()


def call(name, args, keywords):
    """torch's function or method of that name; what its line here does not take is said."""
    import inspect

    name = name.strip("_") if name.startswith("__") else name
    if keywords.get("inplace"):
        raise TypeError("quern.fuse: inplace=True changes a tensor that others may see: leave it out")
    known = METHODS.get(name)
    if known is None:
        raise TypeError(f"quern.fuse does not know torch's `{name}`: keep it outside the fused function, or use torch.compile")
    keywords = {k: v for k, v in keywords.items() if v is not None and k not in ("inplace", "_stacklevel")}
    try:
        inspect.signature(known).bind(*args, **keywords)
    except TypeError as error:
        raise TypeError(f"quern.fuse: `{name}` {error}: keep it outside the fused function, or use torch.compile") from None
    for value in (*args, *keywords.values()):
        for each in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(each, "dtype") and not isinstance(each, (Proxy, float)):
                raise TypeError("quern.fuse: a tensor comes from elsewhere: give it as an argument, or as a number if it is one")
    made = known(*args, **keywords)
    if name in _VIEWS:
        for each in (*args[:1], *(made if isinstance(made, tuple) else (made,))):
            each._shared = True
    return made


def index(x, key):
    key = key if isinstance(key, tuple) else (key,)
    if any(k is Ellipsis for k in key):
        at = next(i for i, k in enumerate(key) if k is Ellipsis)
        fill = x._rank - sum(1 for k in key if k is not None and k is not Ellipsis)
        key = key[:at] + (slice(None),) * fill + key[at + 1 :]
    if sum(1 for k in key if k is not None) > x._rank:
        raise IndexError(f"quern.fuse: too many indices for {x._rank} axes")
    if not x._rank:  # one number, which has no brackets
        for _ in key:
            x = _unsqueeze(x, 0)
        return x
    words, ones, shape, axis = "", [], [], 0
    for k in (*key, *(slice(None),) * (x._rank - sum(1 for k in key if k is not None))):
        if k is None:
            words += "[]"
            ones.append(True)
            shape.append(Extent("1"))
            continue
        extent = x._shape[axis] if x._shape is not None else None
        if isinstance(k, slice):
            part = _slice(k, extent, x._ones[axis])
            words += part[0]
            ones.append(part[2])
            shape.append(part[1])
        elif isinstance(k, (int, Extent)) and not isinstance(k, bool):
            if isinstance(k, int) and k < 0 and extent is None:
                raise TypeError("quern.fuse: an index from the end of a value whose extents are not known as words")
            words += f"[{extent.words} - {-k}]" if isinstance(k, int) and k < 0 else f"[{_number(k)}]"
        else:
            raise TypeError("quern.fuse: an index is a number, a slice, None or ...; gathering is left to torch")
        axis += 1
    made = x._tape.let(f"({x._words}){words}", len(ones), x._type, tuple(ones), None if any(s is None for s in shape) else shape)
    x._shared = made._shared = True
    return made


def _slice(k, extent, is_one):
    """Words, the extent of what is left, and whether that is one, which broadcasts."""
    start, stop = k.start, k.stop
    if start is None and stop is None and k.step in (None, 1):
        return "[:]", extent, is_one
    if k.step not in (None, 1) or extent is None:
        raise TypeError("quern.fuse: slices have step one, of tensors whose extents are known")
    if is_one:
        if not all(b is None or isinstance(b, int) for b in (start, stop)) or len(range(1)[k]) != 1:
            raise TypeError("quern.fuse: a slice without elements, or by an extent, of an axis of one")
        return "[:]", extent, True
    first, last = 0 if start is None else start, stop
    if isinstance(first, int) and (last == first + 1 if isinstance(last, int) and last != 0 else last is None and first == -1):  # one element
        return (f"[{extent.words} - {-first}]" if first < 0 else f"[{first}]") + "[]", Extent("1"), True

    def bound(value, default):
        """As Python has it: what sticks out is cut off."""
        if value is None:
            return default
        if isinstance(value, int):
            return f"max({extent.words} - {-value}, 0)" if value < 0 else f"min({value}, {extent.words})" if value else "0"
        return _number(value)

    begin, end = bound(start, "0"), bound(stop, extent.words)
    length = f"({end} - {begin})" if begin != "0" else end
    return f"[{begin} : {length}]", Extent(length), False
