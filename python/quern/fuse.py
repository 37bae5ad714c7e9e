"""`@quern.fuse`: a Python function of torch-like operations becomes one tensor function, forward and backward fused.

    @quern.fuse
    def gelu_bias(x, bias):
        return torch.nn.functional.gelu(x + bias)

The function runs once with stand-ins for its tensors (trace.py); what they meet is written as a tensor function. Types, ranks, axes of
extent one and plain Python values are what that text depends on: the guard, made in C, is their outline. New sizes compile nothing that
was compiled before. Where torch follows what a function does itself (torch.compile, torch.func), it sees the function as it is written. What is not known raises TypeError with its name: keep it outside, or use torch.compile(backend="quern").
"""

import functools
import sys

from . import _quern, module


_MODES = ("fused", "strict", "eager")


def fuse(function=None, *, mode="fused"):
    """Decorates a function; mode: "fused", "strict" (rounds as eager does) or "eager"."""
    if mode not in _MODES:
        raise ValueError(f"quern.fuse: there is no mode {mode!r}: it has {', '.join(_MODES)}")
    if function is None:
        return functools.partial(fuse, mode=mode)
    if not callable(function):
        raise TypeError(f"quern.fuse is for functions, not for a {type(function).__name__}")
    return Fused(function, mode)


def _pick(args, keywords, place):
    if isinstance(place, tuple):  # without axes
        return _pick(args, keywords, place[0]).reshape(1)
    return args[place] if isinstance(place, int) else keywords[place]


def _is_followed():
    torch = sys.modules.get("torch")
    return torch is not None and (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())


class Fused:
    """A traced function. `texts` has what was written for each kind of arguments."""

    def __init__(self, function, mode):
        functools.update_wrapper(self, function)
        self._function = function
        self._mode = mode
        self._known = {}
        module.attach_torch()

    def __call__(self, *args, **keywords):
        if module._compiling():
            return self._function(*args, **keywords)
        try:
            key = _quern.outline(args, keywords or None)
        except (RuntimeError, TypeError):  # tensors without memory
            if not _is_followed():
                raise
            return self._function(*args, **keywords)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._trace(args, keywords)
        quern_function, places, form = found
        # None: the arguments as they are, results as they come
        made = quern_function(*args) if places is None else quern_function(*[_pick(args, keywords, p) for p in places])
        return made if form is None else form(made)

    def _trace(self, args, keywords):
        from . import trace

        text, places, form = trace.written(self._function, args, keywords)
        name = trace.name_of(self._function).removeprefix("fused_")
        name = name if name.isidentifier() else "fused"
        made = module.compile(text, f"<fused {name}>")
        prefix = "" if self._mode == "fused" else self._mode + " "
        whole = not keywords and places == list(range(len(args)))
        return made[prefix + trace.name_of(self._function)], None if whole else places, form

    @property
    def texts(self):
        return [function.module.text for function, _, _ in self._known.values()]

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)
