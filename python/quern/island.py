"""Islands: parts of a functional FX graph that Quern computes. In: the nodes of one, in order. Out: a tensor function in text,
compiled, and a callable that takes torch's tensors and gives fresh ones with the strides that torch was promised.

What an island gives away are computed values: views of them, and views of its inputs, are made outside by torch, for nothing.
An island of the CPU is measured at its first call: what torch's operators do faster, they do from then on (choice.py).
"""

import functools
import warnings

import torch

from . import _quern, aten, choice, quick, writer
from .writer import Unsupported

MOST_VALUES = 60  # inputs and results: a tensor function has 64 parameters
MOST_RESULTS = 16


def is_view(node):
    return node.op == "call_function" and node.target in aten.VIEWS


def is_tensor(node):
    return isinstance(node.meta.get("val"), torch.Tensor)


def check_value(value):
    if not isinstance(value, torch.Tensor):
        return
    if value.dtype not in writer.WORDS:
        raise Unsupported(f"elements of {str(value.dtype).rpartition('.')[2]}")
    if value.dim() > writer.MOST_AXES:
        raise Unsupported(f"{value.dim()} axes")
    if value.layout != torch.strided:
        raise Unsupported(f"a layout of {value.layout}")
    if any(isinstance(n, int) and n == 0 for n in value.shape):
        raise Unsupported("a tensor without elements")
    if value.is_neg():
        raise Unsupported("a tensor with its negative bit set")


def values_of(value):
    return [v for v in value if v is not None] if isinstance(value, (list, tuple)) else [value]


def tensors_of(node):
    """What it computes, of tensors."""
    return [v for v in values_of(node.meta.get("val")) if isinstance(v, torch.Tensor)]


def reason_against(node, limit):
    """Why torch keeps this node; None if Quern can have it."""
    if node.target not in aten.OPS:
        return aten.reason_unknown(node.target)
    try:
        devices = set()
        for x in [node, *node.all_input_nodes]:
            value = x.meta.get("val")
            if value is None:
                return "its shape is not known"
            for each in values_of(value):
                check_value(each)
                if isinstance(each, torch.Tensor):
                    devices.add(each.device)
        if len(devices) > 1:
            return "tensors on two devices"
        if devices and next(iter(devices)).type not in ("cpu", "cuda"):
            return f"a device of kind {next(iter(devices)).type}"
        if not any(isinstance(v, torch.Tensor) for v in values_of(node.meta["val"])):
            return "it computes no tensor"
        w = Writer(limit)
        for x in node.all_input_nodes:
            w.take(x)
        w.write(node)
    except Unsupported as reason:
        return str(reason)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:  # arguments that no row expects
        return f"arguments of another form ({type(error).__name__})"
    return None


class Writer(writer.Writer):
    def __init__(self, limit):
        super().__init__()
        self.products = {"limit": limit}
        self.parameters = []  # declarations
        self.first = []  # statements before all others

    def take(self, node):
        """An input: a tensor, or a number that torch knows at each call."""
        name, value = f"p{len(self.parameters)}", node.meta["val"]
        if isinstance(value, (list, tuple)):  # only while a node is tried: its results are written apart
            self.names[node] = [f"{name}_{i}" for i in range(len(value))]
            self.parameters.append(name)
            return
        if isinstance(value, (torch.SymInt, int)):
            self.parameters.append(f"int {name}")
            self.names[node] = name
            if isinstance(value, torch.SymInt):
                self.symbols.setdefault(str(value.node.expr), name)
            return
        if not isinstance(value, torch.Tensor):
            raise Unsupported(f"an input of {type(value).__name__}")
        extents = []
        for axis, n in enumerate(value.shape):
            if not isinstance(n, int):
                words = f"{name}_n{axis}"
                self.symbols.setdefault(str(n.node.expr), words)
            else:
                words = str(n)
            extents.append(f"[{words}]")
        self.parameters.append(f"{writer.WORDS[value.dtype]} {name}{''.join(extents) or '[1]'}")
        self.names[node] = name
        if not value.dim():
            self.first.append(f"let {name}_0 = squeeze({name}, axis = 0);")
            self.names[node] = f"{name}_0"

    def write(self, node):
        self.node = node
        keywords = {k: v for k, v in node.kwargs.items() if k not in ("layout", "pin_memory", "memory_format", "non_blocking")}
        words = aten.OPS[node.target](self, *node.args, **keywords)
        if isinstance(words, list):
            self.names[node] = [None if each is None else self.let(self.typed(each, value)) for each, value in zip(words, node.meta["val"])]
        else:
            self.names[node] = self.let(self.typed(words, node.meta["val"]))

    def typed(self, words, value):
        """As torch's type: folds and scans of small whole numbers have other rules in the language, and so have numbers without axes."""
        if is_view(self.node) or value.dtype == torch.bool or (value.dtype.is_floating_point and value.dim()):
            return words
        return f"{writer.WORDS[value.dtype]}({words})"


def dense_order(value):
    """The order of axes in which this tensor would be row-major; None if it is no permutation of one."""
    shape, strides = list(value.shape), list(value.stride())
    order = sorted(range(len(shape)), key=lambda k: (-_hint(strides[k]), k))
    expected = 1
    for k in reversed(order):
        if _hint(shape[k]) != 1:
            if _hint(strides[k]) != expected:
                return None
            expected *= _hint(shape[k])
    wide = [k for k in order if _hint(shape[k]) != 1]
    if wide == sorted(wide):
        return list(range(len(shape)))
    return order


def has_plain_strides(value):
    """Also where an axis has one element, and every stride is right."""
    expected = 1
    for n, step in zip(reversed(value.shape), reversed(value.stride())):
        if isinstance(n, int) and n == 1 and isinstance(step, int) and isinstance(expected, int) and step != expected:
            return False
        expected = expected * n
    return True


def promised(value, order):
    """Of each axis that torch sees, which it is of those in that order, and the stride of one of a single element."""
    places = [order.index(k) for k in range(value.dim())]
    return [(k, step) if isinstance(n, int) and n == 1 and isinstance(step, int) else k for k, n, step in zip(places, value.shape, value.stride())]


def _hint(n):
    return n if isinstance(n, int) else n.node.hint or 7


def _size_bytes(value):
    """Of the memory that its elements lie in."""
    return (1 + sum((n - 1) * step for n, step in zip(value.shape, value.stride()))) * value.element_size()


def _copied(inputs, nodes, results):
    """The same nodes as a graph of their own, for torch."""
    graph, copies = torch.fx.Graph(), {}
    for i, x in enumerate(inputs):
        copies[x] = graph.placeholder(f"p{i}")
    for x in nodes:
        copies[x] = graph.node_copy(x, copies.__getitem__)
    made = tuple(copies[x] for x in results)
    graph.output(made if len(made) > 1 else made[0])
    return graph


class Constant:
    """What is the same at every call, such as angles of rotations: torch computes it at the first one."""

    def __init__(self, name, nodes, results):
        self.name, self.graph, self.made = name, _copied([], nodes, results), None

    def __call__(self):
        if self.made is None:
            self.made = torch.fx.GraphModule({}, self.graph).forward()
        return self.made

    @property
    def __name__(self):
        return self.name


class Island:
    """Compiled at its first call; then one call into C for each call of torch's. `form`: whose operators run, `times` what was measured."""

    def __init__(self, name, inputs, nodes, results, strict, limit, measure=False):
        self.name = name
        self.form, self.times = "quern", {}
        self.nodes = nodes
        self.input_values = [x.meta["val"] for x in inputs]
        self.result_values = [x.meta["val"] for x in results]
        if len(inputs) + len(results) > MOST_VALUES or len(results) > MOST_RESULTS:  # of one operator, which nobody can cut
            raise Unsupported(f"{len(inputs)} inputs and {len(results)} results")
        w = Writer(limit)
        for x in inputs:
            w.take(x)
        for x in nodes:
            w.write(x)
        given, self.turns = [], []  # orders of axes in which torch sees results
        for x in results:
            value, words = x.meta["val"], w.text(x)
            order = dense_order(value)
            if order is None:
                raise Unsupported("strides that overlap or leave gaps")
            is_plain = order == list(range(value.dim()))
            if not is_plain:  # made row-major in the order of its strides, and turned back as a view
                words = f"permute({words}, {', '.join(map(str, order))})"
            self.turns.append(None if is_plain and has_plain_strides(value) else promised(value, order))
            if words in w.names.values() and any(words == w.names.get(i) for i in inputs):
                words = f"{words} + {'false' if value.dtype == torch.bool else 0}"
            given.append(words)
        body = w.first + w.lines + [f"return {', '.join(given)};"]
        self.text = "".join(w.helpers) + f"tensor {name}({', '.join(w.parameters)})\n{{\n    " + "\n    ".join(body) + "\n}\n"
        self.mode = "strict " if strict else ""
        self.graph = _copied(inputs, nodes, results)
        self.places = []  # (globals, name): where the text of a graph finds it
        self.function = None
        on_host = all(v.device.type == "cpu" for v in self.input_values if isinstance(v, torch.Tensor))
        self.is_measured = measure and on_host and "cpu" in choice.DEVICES

    def compile(self):
        from .module import compile

        if self.function is None:
            function = compile(self.text, f"<torch.compile: {self.name}>")[self.mode + self.name]
            function._callable.turn(self.turns)
            self.function = function
        return self.function._callable.launch

    def prepare(self):
        """Compiles it for CUDA tensors like those it was made for, which need not be there."""
        if any(isinstance(n, torch.SymInt) for v in self.input_values if isinstance(v, torch.Tensor) for n in (*v.shape, *v.stride())):
            return
        self.compile()
        sizes = [_size_bytes(v) if isinstance(v, torch.Tensor) else 0 for v in self.input_values]
        place = next(v.device for v in self.input_values if isinstance(v, torch.Tensor))
        room = torch.empty(max(sizes), dtype=torch.uint8, device=place)  # one for all: nothing is read
        given = [room[:n].view(v.dtype).as_strided(v.shape, v.stride()) if n else v for v, n in zip(self.input_values, sizes)]
        self.function._callable.prepare(*given)

    @functools.cached_property
    def torchs(self):
        """The same in torch's operators."""
        return quick.function_of(torch.fx.GraphModule({}, self.graph))

    def ours(self, *args):
        return self.compile()(*args)

    def __call__(self, *args):
        """The first call: compiles it, and puts what runs it in the place of itself. What fails is torch's from now on, with a
        warning: a mistake of ours costs speed only."""
        try:
            if self.is_measured and (choice.postponed or choice.in_the_way()):
                return self.ours(*args)
            if self.is_measured:
                made, self.form, self.times = choice.of_island([self.mode, self.text], self.ours, self.torchs, args)
            else:
                made = self.ours(*args)
            run = self.compile() if self.form == "quern" else self.torchs
        except _quern.Error as error:
            warnings.warn(f"quern: torch computes {self.name} ({len(self.nodes)} operators) itself: {error}")
            run = self.torchs
            made = run(*args)
        for names, name in self.places:
            names[name] = run
        return made

    @property
    def __name__(self):
        return self.name
