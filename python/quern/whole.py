"""Operators that stay whole: torch takes interpolation apart in Python, before autograd and so before a backend's table of decompositions is asked, into
gathers forward and sums into places backward. On the CPU these are many times slower than its own kernels, whoever computes them (bilinear: forward 3 times,
with the gradient 15 times). In: nothing; while `kept()` lasts, tracing sees each as one operator with one for its gradient.

As torch.export does it for operators that are to be preserved: their Python kernels are put aside and back. Its C++ ones want sizes that are known.
"""

import contextlib
import functools
import threading

import torch

_KEYS = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
_one_at_a_time = threading.RLock()


def is_whole(target):
    return "upsample_" in str(target)


@functools.cache
def _operators():
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        if space == "aten" and "upsample_" in rest:
            packet, _, overload = rest.partition(".")
            found.append(getattr(getattr(torch.ops.aten, packet), overload or "default"))
    return found


def has_known_sizes(gm):
    """Of all that Dynamo found in a program: some sizes are data's."""
    values = torch.utils._pytree.tree_leaves([node.meta.get("example_value") for node in gm.graph.nodes])
    sizes = [n for x in values if isinstance(x, torch.Tensor) for n in x.shape]
    return all(isinstance(n, int) for n in sizes) and not any(isinstance(x, torch.SymInt) for x in values)


@contextlib.contextmanager
def kept():
    with _one_at_a_time:
        aside = [(op, {key: op.py_kernels.pop(key) for key in _KEYS if key in op.py_kernels}) for op in _operators()]
        for op, _ in aside:
            op._dispatch_cache.clear()
        try:
            yield
        finally:
            for op, kernels in aside:
                op.py_kernels.update(kernels)
                op._dispatch_cache.clear()
