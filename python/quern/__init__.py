"""Quern for Python: kernels and tensor functions of .qn files as callables over torch, NumPy and other tensors.

    q = quern.load("softmax.qn")          # or quern.compile(text)
    y = q.softmax(x)                      # on x's device and stream, without copies; out= for a tensor of your own

docs/pytorch.md is the guide. Importing this loads neither torch nor NumPy and opens no device.
"""

from ._quern import CallError, DeviceError, Error, Finding, MemoryError, SourceError
from ._quern import devices, version as __version__
from .module import Function, Module, compile, load

_LATER = {
    "cuda": "text",
    "c": "text",
    "fuse": "fuse",
    "profile": "profile",
    "explain": "backend",
    "backend": "backend",
}

__all__ = [
    "CallError",
    "DeviceError",
    "Error",
    "Finding",
    "Function",
    "MemoryError",
    "Module",
    "SourceError",
    "c",
    "compile",
    "cuda",
    "devices",
    "explain",
    "fuse",
    "load",
    "profile",
]


def __dir__():
    return sorted({*globals(), *_LATER})


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module 'quern' has no attribute {name!r}")
    from importlib import import_module

    part = import_module("." + _LATER[name], __name__)
    found = part if name == _LATER[name] == "backend" else getattr(part, name)
    globals()[name] = found
    return found
