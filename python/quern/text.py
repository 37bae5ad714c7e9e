"""Kernels from raw text: `quern.cuda` for CUDA, `quern.c` for C.

    k = quern.cuda(source)                                    # every __global__ function of it
    k.square(x, y, n, blocks=(n + 255) // 256, threads=256)   # on x's stream; pointers are tensors
    k["scale<float>"](x, 2.0, n, blocks=..., threads=...)     # an instance of a template

Compiled by NVRTC in a fraction of a second and kept in the cache; no nvcc, no C++ compiler, no Python headers.
"""

import os
import re
import warnings

from . import _quern
from .module import Module

_HOST = re.compile(r"\b(?:torch|at)::Tensor\s+(\w+)\s*\(|<<<|#include\s*[<\"](?:torch/|ATen/|c10/)|PYBIND11_MODULE")
_KERNEL = re.compile(r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+(\w+)\s*\(([^)]*)\)")
_KNOWN = ("-D", "-U", "-I", "-std=", "--std=", "--use_fast_math", "-use_fast_math", "--maxrregcount", "-maxrregcount", "--fmad", "-fmad",
          "--ftz", "-ftz", "--prec-", "-prec-", "-lineinfo", "--generate-line-info", "-G", "--device-debug", "--extra-device-vectorization",
          "--define-macro", "--include-path", "--restrict", "-restrict", "-default-device", "--gpu-architecture", "-arch")  # fmt: skip


class CudaModule(Module):
    """Kernels of CUDA text. A call takes the parameters of the kernel in order, and `blocks=`, `threads=`, `shared=`."""

    _text_language = "cuda"
    _options = ()

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name not in _templates(self._text):
                raise
            raise AttributeError(f'`{name}` is a template: take an instance of it by name, such as k["{name}<float>"]') from None

    def __reduce__(self):
        return cuda, (self._text, None, self._options, self._name)


def _refuse_host_code(source):
    found = _HOST.search(source)
    if not found:
        return
    line = source.count("\n", 0, found.start()) + 1
    kernel = _KERNEL.search(source)
    name, names = (kernel.group(1), [p.split()[-1].lstrip("*&") for p in kernel.group(2).split(",") if p.strip()]) if kernel else ("f_kernel", ["x", "y", "n"])
    raise _quern.SourceError(
        f"line {line}: this is host code of a PyTorch extension ({found.group(0).strip()}); quern.cuda compiles kernels alone, and Python "
        f"launches them. Remove the wrapper and write:\n"
        f"    k = quern.cuda(source)\n"
        f"    y = torch.empty_like(x)\n"
        f"    k.{name}({', '.join(names)}, blocks=(x.numel() + 255) // 256, threads=256)"
    )


def _flags(options):
    kept, dropped = [], []
    for option in options:
        (kept if option.startswith(_KNOWN) else dropped).append(option)
    if dropped:
        warnings.warn(f"quern.cuda: NVRTC has no option {', '.join(dropped)}: left out (it optimises in any case)", stacklevel=3)
    return kept


def cuda(source, functions=None, options=(), name="<cuda>"):
    """A module of the `__global__` functions of CUDA text, or of a .cu file. functions: the names that must be there; options:
    of NVRTC, such as "-DN=16" or "--use_fast_math"."""
    if "\n" not in source and source.endswith(".cu"):
        name = os.fspath(source)
        with open(name) as file:
            source = file.read()
    _refuse_host_code(source)
    flags = _flags(options)
    module = CudaModule(_quern.cuda(name, source, flags), name, source)
    module._options = tuple(flags)
    known = set(module) | {n.split("<")[0] for n in _templates(source)}
    for each in functions or ():
        if each.split("<")[0] not in known:
            raise _quern.SourceError(f"{name} has no kernel `{each}`; it has {', '.join(sorted(known)) or 'none'}")
        if "<" not in each and each in set(module):
            continue
        module[each] if "<" in each else None
    return module


def _templates(source):
    return re.findall(r"template\s*<[^>]*>\s*(?:static\s+|inline\s+)*__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+(\w+)", source)


def c(source, parameters, name=None, launch=None):
    """A function of C text as a callable on host arrays.

        k = quern.c("void scale(const float *x, float *y, float s, long n) { for (long i = 0; i < n; i++) y[i] = s * x[i]; }",
                    "in float x[n], out float y[n], float s")
        y = k(x, 2.0)

    parameters: as of a kernel; the text's function takes arrays as pointers, scalars, then every extent as `long`. launch: counts
    of programs, such as "cdiv(n, 1024)", whose numbers are then its last parameters; without one it is called once."""
    from .module import compile

    if name is None:
        found = re.search(r"\bvoid\s+(\w+)\s*\(", source)
        if not found:
            raise _quern.SourceError("the text has no function `void name(...)`: give name=")
        name = found.group(1)
    if '"""' in source:
        raise _quern.SourceError('the text cannot hold """')
    head = f" launch ({launch})" if launch else ""
    return compile(f'c {name}({parameters}){head}\n"""\n{source}\n"""\n', f"<c {name}>")[name]
