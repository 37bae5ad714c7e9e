"""What torch computes of a graph, called in torch's quicker way. In: an FX graph of ATen operators, in which islands may stand. Out: the same as a
function of its inputs, compiled to Python.
"""

import torch
from torch.fx._lazy_graph_module import _LazyGraphModule

# Operators whose function in torch's Python is the same and cheaper to call than the overload: half the time of a small one.
_FUNCTIONS = """mm bmm addmm baddbmm convolution embedding cat relu sigmoid tanh exp log neg add mul sub div where _softmax
    _log_softmax native_layer_norm native_group_norm native_dropout cumsum gather select index_select rsqrt sqrt erf""".split()
_METHODS = "view permute expand transpose t unsqueeze squeeze clone contiguous".split()


def function_of(gm):
    """What runs it, and has in its globals what it calls."""
    for node in gm.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
            continue
        name = node.target._schema.name.partition("::")[2]
        if name in _FUNCTIONS:
            node.target = getattr(torch, name)
        elif name in _METHODS and not node.kwargs:
            node.op, node.target = "call_method", name
    gm.recompile()
    _LazyGraphModule.force_recompile(gm)
    return gm.forward
