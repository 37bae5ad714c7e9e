"""Quern's functions as operators of torch.library, which is how torch.compile sees them.

Schema from the parameters, fakes from the function's own shape rules, gradients as in autograd.py. Extents that are symbols
stay symbols: the rule is asked at a few sizes, and the answer is written as products and sums of the symbols where that holds
everywhere that was asked.
"""

import itertools

import torch

from . import _quern

_library = torch.library.Library("quern", "FRAGMENT")  # operators live as long as it does
_numbers = itertools.count()

_TYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "bool": torch.bool,
    "f8e4m3": torch.float8_e4m3fn,
}
_WORDS = {v: k for k, v in _TYPES.items()}


def _schema(function):
    """Parameters and results in torch's words, and whether it only changes arrays in place."""
    inputs, named, mutated = [], ["str? device=None"], 0
    results = 0
    last = max(i for i, p in enumerate(function.parameters) if p[1] in ("in", "inout"))
    for number, (name, kind, type, _) in enumerate(function.parameters):
        if kind == "in":
            inputs.append(f"Tensor {name}")
        elif kind == "inout":
            inputs.append(f"Tensor({chr(97 + mutated)}!) {name}")
            mutated += 1
        elif kind == "scalar":
            whole = type.startswith(("int", "i", "u", "bool")) or type == "long"
            inputs.append(f"{'int' if whole else 'float'}? {name}" + ("" if number < last else "=None"))
        elif kind == "out":
            results += 1
        else:
            named.append(f"Scalar? {name}=None")
    returns = "()" if not results else "Tensor" if results == 1 else "(" + ", ".join(["Tensor"] * results) + ")"
    return f"({', '.join(inputs)}, *, {', '.join(named)}) -> {returns}", results


def operator_of(function):
    """The operator of a function, registered now; None for what torch's schemas cannot say."""
    if not any(p[1] in ("in", "inout") for p in function.parameters) or function.module._text_language != "qn":
        return None
    word = "".join(c if c.isalnum() else "_" for c in function.name)
    name = f"{word}_{next(_numbers)}"
    schema, results = _schema(function)
    _library.define(name + schema, tags=(torch.Tag.needs_exact_strides,))
    run = function._callable.run

    def implementation(*args, **keywords):
        kept = {k: v for k, v in keywords.items() if v is not None}
        args = _trim(args)
        result = run(args, kept)
        if result is NotImplemented:
            with torch.no_grad():
                result = run(args, kept)
        return result if results else None

    _library.impl(name, implementation, "CompositeExplicitAutograd")
    torch.library.register_fake(f"quern::{name}", lambda *a, **k: _fake(function, a, k, results), lib=_library)
    if results and not any(p[1] == "inout" for p in function.parameters):
        _register_autograd(function, name)
    return getattr(torch.ops.quern, name).default


def _trim(args):
    args = list(args)
    while args and args[-1] is None:
        args.pop()
    return tuple(args)


# ---- fakes ----


def _fake(function, args, keywords, results):
    kept = {k: v for k, v in keywords.items() if v is not None and k != "device"}
    args = _trim(args)
    first = next(a for a in args if isinstance(a, torch.Tensor))
    made = []
    for type, extents in _shapes(function, args, kept):
        made.append(torch.empty(extents, dtype=_TYPES[type], device=first.device))
    return None if not results else made[0] if len(made) == 1 else tuple(made)


def _outlines(args, sizes):
    """Arguments as types and extents, symbols as `sizes` says."""
    return tuple(
        (_WORDS[a.dtype], tuple(_size(n, sizes) for n in a.shape)) if isinstance(a, torch.Tensor) else a for a in args
    )


def _size(extent, sizes):
    return extent if isinstance(extent, int) else sizes[str(extent.node.expr)] if sizes else int(extent)


def _symbols(args):
    """Symbolic extents by their expression, each once, with the value that torch has in mind."""
    found = {}
    for a in args:
        for extent in a.shape if isinstance(a, torch.Tensor) else ():
            if not isinstance(extent, int):
                found.setdefault(str(extent.node.expr), extent)
    return found


def _shapes(function, args, settings):
    symbols = _symbols(args)
    if not symbols:
        return function._callable.shapes(_outlines(args, None), settings)
    try:
        return _symbolic(function, args, settings, symbols)
    except _quern.Error:
        return function._callable.shapes(_outlines(args, None), settings)


def _symbolic(function, args, settings, symbols):
    """Each extent of a result as constant, sum or product of symbols; the last resort is to take the number."""
    names = list(symbols)
    hints = {n: (symbols[n].node.hint or 7) for n in names}

    def ask(sizes):
        return function._callable.shapes(_outlines(args, sizes), settings)

    points = [dict(hints)]
    for i, name in enumerate(names):
        points += [{**hints, name: hints[name] + 16}, {**hints, name: hints[name] + 48}]
    points.append({n: hints[n] + 16 * (i + 2) for i, n in enumerate(names)})
    answers = [ask(p) for p in points]
    made = []
    for number, (type, extents) in enumerate(answers[0]):
        columns = [[a[number][1][axis] for a in answers] for axis in range(len(extents))]
        made.append((type, [_fit(column, points, names, symbols) for column in columns]))
    return made


def _fit(values, points, names, symbols):
    if all(v == values[0] for v in values):
        return values[0]
    for picked in (c for k in (1, 2, 3) for c in itertools.combinations(names, k)):
        product = [1] * len(points)
        for name in picked:
            product = [p * at[name] for p, at in zip(product, points)]
        if product[0] and values[0] % product[0] == 0:
            factor = values[0] // product[0]
            if all(v == factor * p for v, p in zip(values, product)):
                extent = factor
                for name in picked:
                    extent = extent * symbols[name]
                return extent
        distance = [v - p for v, p in zip(values, product)]
        if len(set(distance)) == 1:
            extent = distance[0]
            whole = 1
            for name in picked:
                whole = whole * symbols[name]
            return whole + extent
    sums = _linear(values, points, names)
    if sums is None:
        raise _quern.Error("no rule for this extent")
    extent = sums[0]
    for name, factor in zip(names, sums[1]):
        if factor:
            extent = extent + factor * symbols[name]
    return extent


def _linear(values, points, names):
    factors = []
    for i, name in enumerate(names):
        step = points[1 + 2 * i][name] - points[0][name]
        rise = values[1 + 2 * i] - values[0]
        if rise % step:
            return None
        factors.append(rise // step)
    rest = values[0] - sum(f * points[0][n] for f, n in zip(factors, names))
    for v, at in zip(values, points):
        if v != rest + sum(f * at[n] for f, n in zip(factors, names)):
            return None
    return rest, factors


# ---- gradients ----


def _register_autograd(function, name):
    from . import autograd

    def setup(ctx, inputs, keyword_only_inputs, output):
        ctx.tensors = [i for i, a in enumerate(inputs) if isinstance(a, torch.Tensor)]
        ctx.others = [None if isinstance(a, torch.Tensor) else a for a in inputs]
        ctx.keywords = {k: v for k, v in keyword_only_inputs.items() if v is not None and k != "device"}
        ctx.save_for_backward(*[inputs[i] for i in ctx.tensors])

    def back(ctx, *grads):
        args = list(ctx.others)
        for position, tensor in zip(ctx.tensors, ctx.saved_tensors):
            args[position] = tensor
        given = _trim(args)
        signature = autograd.Signature(function, given, ctx.keywords)
        needed = [ctx.needs_input_grad[i] if i < len(ctx.needs_input_grad) else False for i in range(len(args))]
        wanted = [p[0] for p, need in zip(signature.params, needed) if need]
        found = iter(_operated(function, signature, wanted, grads))
        return tuple(next(found) if need else None for need in needed)

    def _operated(function, signature, wanted, grads):
        seeds = tuple((i, autograd._type_word(g.dtype), g.dim()) for i, g in enumerate(grads) if g is not None)
        if not seeds:
            return [None] * len(wanted)
        gradient = autograd.gradient_of(function, signature, tuple(wanted), seeds)
        values = [signature.values[p[0]] for p in signature.params]
        made = gradient._operator(*values, *[g if g.dim() else g.reshape(1) for g in grads if g is not None])
        return list(made) if isinstance(made, (tuple, list)) else [made]

    torch.library.register_autograd(f"quern::{name}", back, setup_context=setup, lib=_library)
