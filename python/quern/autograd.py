"""Gradients of Quern's functions under torch's autograd.

The gradient of f for seeds (what arrives at its results) is a tensor function of its own, written as text and compiled with
f's file: `grad` of the sum of results times seeds. It is fused with a recomputed forward pass, takes f's inputs and the seeds,
and has a gradient itself in the same way, so double backward works. torch is imported here, and only by those who use it.
"""

import contextlib
import threading

import torch

from . import _quern

_FLOATS = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "f8e4m3": torch.float8_e4m3fn}
_prepared = {}  # gradients that are being compiled: who does it


class Signature:
    """How a function is called: which parameters are given, in which order, with what rank."""

    def __init__(self, function, args, keywords):
        params = function.parameters
        order = [p for p in params if p[1] in ("in", "inout", "scalar")]
        known = {p[0] for p in order}
        self.values = dict(zip((p[0] for p in order), args))
        self.settings, self.place = {}, {}  # place: of host arrays, the device that both passes run on
        for name, value in keywords.items():
            if name in known:
                self.values[name] = value
            elif name == "device":
                self.place = {name: value} if value is not None else {}
            elif value is not None:
                self.settings[name] = value
        self.params = [p for p in order if p[0] in self.values]
        self.arrays = [p[0] for p in self.params if p[1] != "scalar"]
        self.result_count = sum(1 for p in params if p[1] == "out") + sum(1 for p in params if p[1] == "inout")

    def key(self):
        ranks = tuple((n, self.values[n].dim()) for n in self.arrays)
        return (ranks, tuple(p[0] for p in self.params), tuple(sorted((k, str(v)) for k, v in self.settings.items())))


def _declare(name, type, rank):
    return f"{type} {name}" + "".join(f"[{name}_n{axis}]" for axis in range(rank))


def _gradient_text(function, signature, wanted, seeds):
    """seeds: (number of the result, type, rank)."""
    base = function.name.split()[-1]
    seed = f"seed{base.count('__back')}"  # a gradient's own inputs have seeds among them
    declared, named = [], []
    for name, kind, type, _ in signature.params:
        declared.append(_declare(name, type, 0 if kind == "scalar" else signature.values[name].dim()))
        named.append(name)
    arguments = list(named) + [f"{k} = {_literal(v)}" for k, v in signature.settings.items()]
    seed_names = [f"{seed}_{number}" for number, _, _ in seeds]
    declared += [_declare(f"{seed}_{number}", type, max(rank, 1)) for number, type, rank in seeds]
    results = [f"r_{i}" for i in range(signature.result_count)]
    let = results[0] if len(results) == 1 else f"({', '.join(results)})"
    total = " + ".join(f"sum(r_{n} * {seed}_{n})" if rank else f"r_{n} * {seed}_{n}[0]" for n, _, rank in seeds)
    everything = ", ".join(named + seed_names)
    return (
        f"\ntensor {base}__seeded({', '.join(declared)})\n{{\n"
        f"    let {let} = {base}({', '.join(arguments)});\n    return {total};\n}}\n"
        f"tensor {base}__back({', '.join(declared)})\n{{\n"
        f"    return grad({base}__seeded, {', '.join(wanted)})({everything});\n}}\n"
    )


def _literal(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).rpartition(".")[2] if isinstance(value, torch.dtype) else str(value)


def gradient_of(function, signature, wanted, seeds):
    """The Function that gives the gradients of `wanted` for seeds, made once for a signature."""
    key = (signature.key(), wanted, seeds)
    found = function._gradients.get(key)
    if found is None:
        from .module import compile

        mode, _, base = function.name.rpartition(" ")
        text = function.module.text + _gradient_text(function, signature, wanted, seeds)
        module = compile(text, function.module._name)
        found = module[f"{mode} {base}__back".strip()]
        function._gradients[key] = found
    return found


def backward(function, signature, wanted, grads):
    """Gradients in the order of `wanted`; grads by result, None where nothing arrives."""
    seeds, given = [], []
    for number, grad in enumerate(grads):
        if grad is None:
            continue
        seeds.append((number, _type_word(grad.dtype), grad.dim()))
        given.append(grad if grad.dim() else grad.reshape(1))  # a parameter without axes would be a number
    if not seeds:
        return [None] * len(wanted)
    back = gradient_of(function, signature, tuple(wanted), tuple(seeds))
    values = [signature.values[p[0]] for p in signature.params]
    compiles = _prepared.pop(back, None)
    if compiles is not None:
        compiles.join()
    made = back(*values, *given, **signature.place)
    return list(made) if isinstance(made, tuple) else [made]


def _type_word(dtype):
    return {torch.float32: "float", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.float8_e4m3fn: "f8e4m3"}[dtype]


class _Apply(torch.autograd.Function):
    """apply((callable, keywords or None, function, numbers or None), *args)"""

    forward = staticmethod(_quern.forward)

    @staticmethod
    def backward(ctx, *grads):
        _, keywords, function, numbers = ctx.call
        args = ctx.saved_tensors
        if numbers is not None:
            args = [tensor if tensor is not None else number for tensor, number in zip(args, numbers)]
        signature = Signature(function, args, keywords or {})
        needed = ctx.needs_input_grad[1:]
        wanted = [p[0] for p, need in zip(signature.params, needed) if need]
        found = iter(backward(function, signature, wanted, grads))
        return (None, *[next(found) if need else None for need in needed])


_direct = super(torch.autograd.Function, _Apply).apply  # without the wrapper for functorch, which costs as much as the rest
_functorch_is_on = torch._C._are_functorch_transforms_active


def apply(function, args, keywords):
    """The call with autograd following it."""
    if keywords and keywords.get("out") is not None:
        raise _quern.CallError(
            f"`{function.name}`: out= cannot be followed by autograd: leave it out, or call it under torch.no_grad()"
        )
    if not function._has_gradient and not _check(function, args, keywords):
        with torch.no_grad():  # truths and whole numbers alone
            return function(*args, **keywords or {})
    if keywords:
        args, keywords = list(args), dict(keywords)
        names = [p[0] for p in function.parameters if p[1] in ("in", "scalar")]
        for name in names[len(args) :]:
            if name not in keywords:
                break
            args.append(keywords.pop(name))
    if keywords or function._takes_numbers:
        numbers = [None if isinstance(a, torch.Tensor) else a for a in args] if function._takes_numbers else None
        call = (function._callable, keywords or None, function, numbers)
    else:
        call = function._plain_call
    if _functorch_is_on():
        return _Apply.apply(call, *args)
    return _direct(call, *args)


def _check(function, args, keywords):
    """Whether a result can have a gradient at all. That it has none is said where the function is called, not where backward comes to it."""
    if any(p[1] == "inout" for p in function.parameters):
        raise _quern.CallError(
            f"`{function.name}` changes its arrays in place, which autograd cannot follow: call it under torch.no_grad(), or write "
            f"a tensor function that calls it"
        )
    signature = Signature(function, args, keywords)
    outline = [(_type_name(v), tuple(v.shape)) if isinstance(v, torch.Tensor) else v for v in signature.values.values()]
    results = function._callable.shapes(tuple(outline), signature.settings)
    seeds = [(i, "float" if type == "f32" else type, len(e)) for i, (type, e) in enumerate(results) if type in _FLOATS]
    if not seeds:
        return False
    wanted = [n for n in signature.arrays if signature.values[n].requires_grad]
    back = gradient_of(function, signature, tuple(wanted), tuple(seeds))
    shapes = [(type, e or (1,)) for type, e in results if type in _FLOATS]
    back._callable.shapes(tuple(outline + shapes), None)
    function._has_gradient = True
    _prepare(back, [signature.values[p[0]] for p in signature.params], shapes)
    return True


def _prepare(back, values, seeds):
    """On a GPU the gradient is compiled while the function itself is: for seeds like its results."""
    place = next((v.device for v in values if isinstance(v, torch.Tensor) and v.is_cuda), None)
    if place is None or torch.cuda.is_current_stream_capturing():
        return
    given = [v.detach() if isinstance(v, torch.Tensor) else v for v in values]
    given += [torch.empty(extents, dtype=_FLOATS[type], device=place) for type, extents in seeds]
    stream = torch.cuda.current_stream(place)

    def work():
        with contextlib.suppress(_quern.Error, RuntimeError, TypeError, ValueError), torch.cuda.stream(stream):
            back._callable.prepare(*given)  # what fails tells so where it is called

    _prepared[back] = threading.Thread(target=work)
    _prepared[back].start()


def _type_name(tensor):
    return str(tensor.dtype).rpartition(".")[2]
