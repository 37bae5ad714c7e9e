"""`torch.compile(model, backend="quern")`: AOTAutograd's functional graphs, cut into islands that Quern fuses and computes
(island.py, aten.py) and what is left, which torch computes node by node, each with its reason.

    torch.compile(model, backend="quern", options={"strict": True})
    print(quern.explain(model, x))        # what fused, what torch keeps, why, and what it costs

Options: strict (round where eager does), smallest_island (computing nodes below which torch keeps them), measure (on CUDA: time
the forms of a program at its first call, choice.py), product_limit (multiplications up to which a product or convolution is
Quern's, instead of what was measured), leave (names of operators that torch keeps).
"""

import collections
import copy
import functools
import heapq
import operator
import os
import threading
import warnings

import torch
from torch._dynamo.backends.common import aot_autograd
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition

from . import _quern, aten, choice, island, runtime
from .aten_math import TOO_LARGE
from .writer import Unsupported

DEFAULTS = {"strict": False, "smallest_island": 2, "measure": True, "product_limit": 0, "leave": ()}
SMALL_PRODUCT, ANY_PRODUCT = 1 << 21, 1 << 62  # what is Quern's unmeasured, and where that was faster
_programs = []  # lists of `explain`, while it runs


def options_from(given, mode):
    """What the caller asked for, checked."""
    found = dict(DEFAULTS)
    if mode not in (None, "default"):
        raise ValueError(f"backend \"quern\" has no mode {mode!r}: leave it out; options are {', '.join(DEFAULTS)}")
    for name, value in (given or {}).items():
        if name not in DEFAULTS:
            raise ValueError(f"backend \"quern\" has no option {name!r}: it has {', '.join(DEFAULTS)}")
        kind = type(DEFAULTS[name])
        if kind is tuple:
            value = (value,) if isinstance(value, str) else tuple(value)
        elif type(value) is not kind:
            raise TypeError(f"option {name!r} of backend \"quern\" is a {kind.__name__}, not {value!r}")
        found[name] = value
    return found


# ---- decompositions ----

# Operators that are more to Quern than to torch: taken apart, so that their parts fuse with what is around them.
_APART = """native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward native_batch_norm
    native_batch_norm_backward _native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
    _softmax_backward_data _log_softmax_backward_data gelu_backward silu_backward threshold_backward sigmoid_backward
    tanh_backward hardtanh_backward leaky_relu_backward elu_backward hardswish_backward hardsigmoid_backward mish_backward
    softplus softplus_backward log_sigmoid_forward log_sigmoid_backward nll_loss_forward nll_loss_backward
    nll_loss2d_forward nll_loss2d_backward mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward huber_loss
    huber_loss_backward binary_cross_entropy binary_cross_entropy_backward addcmul addcdiv lerp rsub tril triu select_backward
    slice_backward upsample_nearest2d upsample_bilinear2d linalg_vector_norm logsumexp index_add softshrink hardshrink
    prelu glu glu_backward selu celu stack std var_mean sum masked_fill dot mv norm""".split()


@functools.cache
def decompositions():
    """The same table for every graph: torch takes a copy where it changes one."""
    table = dict(torch._decomp.core_aten_decompositions())
    extra = [getattr(torch.ops.aten, name) for name in _APART if hasattr(torch.ops.aten, name)]
    for target, how in torch._decomp.get_decompositions(extra).items():
        if target not in aten.OPS:
            table.setdefault(target, how)
    for target in list(table):
        # torch's attention on the CPU: the decomposition gives weights where its gradient wants sums.
        if target in _KEPT or "scaled_dot_product" in str(target):
            del table[target]
    return table


_KEPT = set(aten.first(dict.fromkeys("_softmax _log_softmax gelu silu mish hardswish hardsigmoid leaky_relu elu hardtanh baddbmm addmm roll".split())))


# ---- cutting ----


class _Support(OperatorSupportBase):
    def __init__(self, gm, options):
        self.options = options
        self.reasons = {}
        self.on_gpu = any(v.is_cuda for n in gm.graph.nodes for v in island.tensors_of(n))

    def is_node_supported(self, submodules, node):
        if node.op != "call_function":
            return False
        if node not in self.reasons:
            name = str(node.target)
            left = any(word in (name, name.partition(".")[2].rpartition(".")[0], name.partition(".")[2]) for word in self.options["leave"])
            on_host = self.on_gpu and any(not v.is_cuda for v in island.tensors_of(node))
            reason = "asked for" if left else "on the host, in a program of a GPU" if on_host else None
            self.reasons[node] = reason or island.reason_against(node, self.options["product_limit"])
        return self.reasons[node] is None


def _order(graph):
    return {node: i for i, node in enumerate(graph.nodes)}


def _edges(nodes):
    """Inputs and results of a set of nodes: results are what somebody outside needs, views followed to what they show."""
    inside = set(nodes)
    inputs, results = [], []
    for node in nodes:
        for x in node.all_input_nodes:
            if x not in inside and x not in inputs:
                inputs.append(x)
    for node in nodes:
        if any(user not in inside for user in node.users):
            base = _base(node, inside)
            if base in inside and base not in results:
                results.append(base)
    return inputs, results


def _base(node, inside):
    """What a view shows, as far as it lies inside; a value itself. Several results: the item."""
    while node in inside and island.is_view(node):
        source = node.all_input_nodes[0]
        if node.target is operator.getitem and not island.is_view(source):
            break
        node = source
    return node


def _fits(nodes):
    inputs, results = _edges(nodes)
    return len(inputs) + len(results) <= island.MOST_VALUES and len(results) <= island.MOST_RESULTS


def _pieces(nodes):
    """In order, as few as can be that a tensor function can have as parameters."""
    if _fits(nodes) or len(nodes) == 1:
        return [nodes]
    half = len(nodes) // 2
    while half > 1 and nodes[half].target is operator.getitem:
        half -= 1
    return _pieces(nodes[:half]) + _pieces(nodes[half:])


def _work(nodes):
    return sum(1 for n in nodes if not island.is_view(n) and n.target not in _FREE)


_FREE = set(
    aten.first(
        dict.fromkeys(
            "full full_like zeros_like ones_like scalar_tensor arange arange.start_step clone empty.memory_format empty_permuted empty_like empty_strided new_empty new_empty_strided".split()
        )
    )
)


def _trim(nodes):
    """Without views at the edges: those of inputs that nobody inside needs, and those that only the outside needs."""
    nodes = list(nodes)
    while True:
        inside = set(nodes)
        kept = [
            n
            for n in nodes
            if any(u in inside for u in n.users) or not (island.is_view(n) and n.target is not operator.getitem)
        ]
        kept = [n for n in kept if n.target is not operator.getitem or n.all_input_nodes[0] in inside]
        if len(kept) == len(nodes):
            return nodes
        nodes = kept


def cut(gm, options, report):
    """Replaces what Quern can compute by calls of islands."""
    support = _Support(gm, options)
    partitioner = CapabilityBasedPartitioner(gm, support, allows_single_node_partition=True)
    order = _order(gm.graph)
    made = []
    for partition in partitioner.propose_partitions():
        places = {}  # what has nothing to do with each other can be in one partition, on two devices
        for node in sorted(partition.nodes, key=order.__getitem__):
            places.setdefault(next((v.device for v in island.tensors_of(node)), None), []).append(node)
        for piece in (piece for nodes in places.values() for piece in _pieces(_trim(nodes))):
            piece = _trim(piece)
            if _work(piece) < options["smallest_island"]:
                report.left(piece, f"fewer than {options['smallest_island']} computing operators together")
                continue
            made.append(piece)
    for number, piece in enumerate(made):
        _replace(gm, piece, f"island{number}", options, report)
    for node in gm.graph.nodes:
        if node.op == "call_function" and support.reasons.get(node) is not None:
            report.left([node], support.reasons[node])
    _sort(gm.graph)
    gm.graph.eliminate_dead_code()
    gm.graph.lint()
    gm.recompile()


def _replace(gm, nodes, name, options, report):
    inputs, results = _edges(nodes)
    if not results:
        return
    try:
        if not any(island.is_tensor(x) for x in inputs):
            if inputs or any(u.op == "output" for x in results for u in x.users):
                raise Unsupported("no tensor comes in")  # its numbers change, or each call must give a fresh one
            made = island.Constant(name, nodes, results)
            report.constants.append(made)
        else:
            made = island.Island(name, inputs, nodes, results, options["strict"], options["product_limit"])
            report.islands.append(made)
    except Unsupported as reason:
        report.left(nodes, str(reason))
        return
    inside, graph = set(nodes), gm.graph
    with graph.inserting_before(nodes[-1]):  # _sort has the last word
        call = graph.call_function(made, tuple(inputs))
        call.meta["val"] = tuple(x.meta["val"] for x in results) if len(results) > 1 else results[0].meta["val"]
        places = {}
        for i, x in enumerate(results):
            if len(results) == 1:
                places[x] = call
            else:
                places[x] = graph.call_function(operator.getitem, (call, i))
                places[x].meta["val"] = x.meta["val"]
        # Views that the outside needs, of results and of inputs.
        for node in nodes:
            if node in places or not any(u not in inside for u in node.users):
                continue
            _rebuild(graph, node, places, inside)
    for node, place in places.items():
        node.replace_all_uses_with(place, delete_user_cb=lambda user: user not in inside)
    for node in reversed(nodes):
        if not node.users:
            graph.erase_node(node)


def _rebuild(graph, node, places, inside):
    if node in places or node not in inside:
        return places.get(node, node)
    for x in node.all_input_nodes:
        _rebuild(graph, x, places, inside)
    places[node] = graph.node_copy(node, lambda x: places.get(x, x))
    return places[node]


def _sort(graph):
    """Every node behind what it needs, otherwise in the order that it has. What draws random numbers keeps its order, unless an island
    stands on both sides of it."""
    nodes = list(graph.nodes)
    for chained in (True, False):
        place, before, users, last = _order(graph), {n: set(n.all_input_nodes) for n in nodes}, {n: list(n.users) for n in nodes}, None
        for n in nodes:
            if chained and n.op == "call_function" and any(word in str(n.target) for word in aten.RANDOM):
                if last is not None and last not in before[n]:
                    before[n].add(last)
                    users[last].append(n)
                last = n
        ready = [place[n] for n in nodes if not before[n]]
        heapq.heapify(ready)
        found = []
        while ready:
            n = nodes[heapq.heappop(ready)]
            found.append(n)
            for user in users[n]:
                before[user].discard(n)
                if not before[user]:
                    heapq.heappush(ready, place[user])
        if len(found) == len(nodes):
            break
    for n in found:
        if n.op != "output":
            graph.output_node().prepend(n)


# ---- what torch keeps ----

# Operators whose function in torch's Python is the same and cheaper to call than the overload: half the time of a small one.
_FUNCTIONS = """mm bmm addmm baddbmm convolution embedding cat relu sigmoid tanh exp log neg add mul sub div where _softmax
    _log_softmax native_layer_norm native_group_norm native_dropout cumsum gather select index_select rsqrt sqrt erf""".split()
_METHODS = "view permute expand transpose t unsqueeze squeeze clone contiguous".split()


def quicken(gm):
    for node in gm.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
            continue
        name = node.target._schema.name.partition("::")[2]
        if name in _FUNCTIONS:
            node.target = getattr(torch, name)
        elif name in _METHODS and not node.kwargs:
            node.op, node.target = "call_method", name


# ---- the backend ----


class Report:
    """What became of one graph."""

    def __init__(self, kind, gm):
        self.kind = kind
        self.count = sum(1 for n in gm.graph.nodes if n.op == "call_function")
        self.islands, self.constants = [], []
        self._left = {}

    def left(self, nodes, reason):
        for node in nodes:
            if node.op == "call_function" and not island.is_view(node):
                self._left.setdefault(node.name, (str(node.target), reason))

    @property
    def kept(self):
        """(operator, reason): how often."""
        return collections.Counter(self._left.values())


_OUR_NAMESPACES = ("aten", "prims", "prim", "quern")  # whose operators do nothing but compute


class Graph:
    """One graph, cut: `run` is a function of its inputs. Islands are compiled at the first call; then the text of the graph calls
    straight into C. `forms` by name: with small products alone, and with all where that is another cut."""

    def __init__(self, kind, gm, options):
        self.inputs = [n.meta.get("val") for n in gm.graph.nodes if n.op == "placeholder"]
        self.count = len(self.inputs)
        self.is_foreign = any(getattr(n.target, "namespace", "aten") not in _OUR_NAMESPACES for n in gm.graph.nodes if n.op == "call_function")
        self.forms, self.reports = {}, {}
        limits = {"quern": options["product_limit"] or SMALL_PRODUCT}
        if options["measure"] and not options["product_limit"] and any(_is_large(n) for n in gm.graph.nodes):
            limits["products"] = ANY_PRODUCT
        for name, limit in limits.items():
            own = gm if name == "quern" and len(limits) == 1 else copy.deepcopy(gm)
            self.reports[name] = Report(kind, own)
            self.forms[name] = _cut_form(own, {**options, "product_limit": limit}, self.reports[name])
        self.select("quern")

    def islands(self, form):
        return self.reports[form if form in self.reports else "quern"].islands

    def select(self, form):
        form = form if form in self.forms else "quern"
        self.run, self.report = self.forms[form], self.reports[form]


def _prepare(islands, stream=None):
    """Compiles islands in threads; what fails tells so at its first call."""
    waiting = list(dict.fromkeys(islands))
    stream = stream or torch.cuda.current_stream()

    def work():
        with torch.cuda.stream(stream):
            while threading.main_thread().is_alive():  # a program that ends does not wait for what nobody will run
                try:
                    waiting.pop().prepare()
                except IndexError:
                    return
                except (_quern.Error, RuntimeError, TypeError, ValueError):
                    continue

    threads = [threading.Thread(target=work) for _ in range(min(len(waiting), os.cpu_count() or 1, 8))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


_behind = []  # threads that compile what the first call did not wait for


def settle():
    """Waits for what is compiled behind the program's back: the next call of each program measures it."""
    while _behind:
        _behind.pop().join()


_PRODUCTS = aten.first(dict.fromkeys("mm bmm addmm baddbmm convolution".split()))


def _is_large(node):
    return node.target in _PRODUCTS and (island.reason_against(node, SMALL_PRODUCT) or "").startswith(TOO_LARGE)


def _cut_form(gm, options, report):
    cut(gm, options, report)
    quicken(gm)
    _LazyGraphModule.force_recompile(gm)
    run = gm.forward
    names = run.__globals__
    for made in report.islands:
        made.places += [(names, name) for name, value in names.items() if value is made]
    return run


class Program:
    """What Dynamo calls: the graphs of one program, in the form that is fastest where that can be measured."""

    def __init__(self, gm, inputs, options):
        self.gm, self.options, self.form, self.times = gm, options, "quern", {}
        self.code = runtime.code_of_few_operators(gm)
        self.parts = parts = {}

        def compiler(kind):
            def compile_graph(gm, example_inputs):
                graph = parts[kind] = Graph(kind, gm, options)
                context = torch._guards.TracingContext.try_get()
                if kind != "backward" and context is not None:
                    parts["meta"] = context.fw_metadata
                return make_boxed_func(lambda *args: graph.run(*args))

            return compile_graph

        with torch._functorch.config.patch(force_non_lazy_backward_lowering=True):  # both graphs are needed to serve them
            made = aot_autograd(
                fw_compiler=compiler("forward"),
                bw_compiler=compiler("backward"),
                inference_compiler=compiler("inference"),
                decompositions=decompositions(),
                partition_fn=min_cut_rematerialization_partition,
            )(gm, inputs)
        served = runtime.serve(parts, inputs, gm.forward)
        self.is_plain = served is not None
        self.quern = served or (runtime.keeping_tangents(made, gm.forward) if "inference" in parts else made)
        self.graphs = [parts[kind] for kind in ("forward", "backward", "inference") if kind in parts]
        self.changed = self.changes(parts.get("meta"), len(inputs))
        self.run, self.key, self.known = self.quern, None, None
        if self.graphs and any(isinstance(x, torch.Tensor) and x.is_cuda for x in inputs):
            self.run = self.first
            if options["measure"] and self.changed is not None:
                self.key = choice.key_of(gm, inputs, options)
                self.known = choice.recall(self.key)

    def changes(self, meta, count):
        """Which inputs the program changes; None: it may change something else (tensors that it has as its own, as those of optimizers, or
        the state of somebody's operators), and cannot be run to see how long it takes."""
        if meta is None or any(graph.is_foreign for graph in self.graphs):
            return None
        changed = {i for i, info in enumerate(meta.input_info) if info.mutates_data or info.mutates_metadata}
        return changed if not changed or len(meta.input_info) == count else None

    def select(self, form):
        self.form = form
        for graph in self.graphs:
            graph.select(form)
        self.run = self.gm.forward if form in _TORCHS else self.quern
        if form == "alone" and self.code is not None and runtime.is_only_program(self.code):
            runtime.leave_alone(self.code)

    def first(self, *args):
        """The first call on CUDA: islands are compiled side by side, and the forms are measured where that was not done before;
        while somebody records a CUDA graph, or without memory for it, nothing is. The form with large products takes longest to compile:
        that is done while the others run, and it is measured at the first call after."""
        self.select(self.known or "quern")
        if self.known not in _TORCHS and not torch.cuda.is_current_stream_capturing():
            try:
                _prepare(self.islands(self.known or "quern"))
                if self.key and not self.known:
                    if choice.postponed and self.has_products:
                        _prepare(self.islands("products"))
                    if not self.measure(["quern", "torch"], args):
                        self.run = self.first
                    elif self.has_products:
                        self.prepare_products()
            except torch.OutOfMemoryError:
                self.select("quern")
        return (self.gm.forward if self.form in _TORCHS else self.quern)(*args)

    def prepare_products(self):
        stream, meanwhile = torch.cuda.current_stream(), self.run
        behind = threading.Thread(target=lambda: _prepare(self.islands("products"), stream))
        behind.start()
        _behind.append(behind)

        def later(*args):
            if behind.is_alive() or torch.cuda.is_current_stream_capturing():
                return meanwhile(*args)
            try:
                self.measure(["quern", "products", "torch"], args)
            except torch.OutOfMemoryError:
                self.select("quern")
            return self.run(*args)

        self.run = later

    def islands(self, form):
        return [made for graph in self.graphs for made in graph.islands(form)]

    @property
    def has_products(self):
        return any("products" in graph.forms for graph in self.graphs)

    def measure(self, names, args):
        """Selects the fastest of these. False: measuring is postponed."""
        forms = {name: (lambda name=name: self.select(name), self.gm.forward if name == "torch" else self.quern) for name in names}
        times = choice.measure(forms, args, self.changed)
        if not times:
            self.select("quern")
            return False
        self.times, is_last = times, "products" in names or not self.has_products
        place = next(x.device for x in args if isinstance(x, torch.Tensor) and x.is_cuda)
        can_leave = is_last and self.code is not None and runtime.is_only_program(self.code)
        self.select(choice.best_of(times, choice.guards_seconds(place) if can_leave else None))
        if is_last:
            choice.remember(self.key, self.form, times)
        return True

    @property
    def reports(self):
        return [graph.report for graph in self.graphs]


def backend(gm, example_inputs, *, options=None, mode=None):
    """What torch.compile calls."""
    chosen = options_from(options, mode)
    try:
        program = Program(gm, example_inputs, chosen)
    except torch._dynamo.exc.TorchDynamoException:  # it wants to trace again
        raise
    except Exception as error:  # a mistake of ours costs speed only
        count, words = sum(n.op.startswith("call") for n in gm.graph.nodes), (str(error).strip().splitlines() or [""])[0]
        warnings.warn(f"quern: torch runs a program of {count} operators itself: {type(error).__name__}: {words}")
        return gm.forward
    for programs in _programs:
        programs.append(program)
    return program.quern if program.run is program.quern else lambda *args: program.run(*args)


class Explanation:
    """What `explain` found: `reports` by graph, and its text."""

    def __init__(self, programs, times):
        self.programs = programs
        self.times = times

    @property
    def reports(self):
        return [report for program in self.programs for report in program.reports]

    def __str__(self):
        lines = []
        for program in self.programs:
            if program.times:
                words = ", ".join(f"{_FORMS[name]} {t * 1e6:.1f} us" for name, t in program.times.items())
                lines.append(f"measured: {words}")
            if program.form in _TORCHS:
                lines.append(f"torch runs this program itself{', without Dynamo before it' if program.form == 'alone' else ''}: that was faster")
            elif not program.is_plain:
                lines.append("AOTAutograd's wrapper runs this program: results are views of each other, or it has casts or effects")
        for report in self.reports:
            fused = sum(len(i.nodes) for i in report.islands)
            lines.append(f"{report.kind}: {report.count} operators, {fused} of them in {len(report.islands)} islands")
            for made in report.islands:
                names = collections.Counter(_short(n.target) for n in made.nodes)
                words = ", ".join(f"{n} x{c}" if c > 1 else n for n, c in names.most_common(8))
                lines.append(f"  {made.name}: {len(made.nodes)} operators: {words}{', ...' if len(names) > 8 else ''}")
            for made in report.constants:
                lines.append(f"  {made.name}: the same at every call, computed once by torch")
            for (target, reason), count in sorted(report.kept.items(), key=lambda item: -item[1]):
                lines.append(f"  torch keeps {_short(target)} x{count}: {reason}")
        for name, seconds in self.times.items():
            lines.append(f"{name}: {seconds * 1e6:.1f} us a call")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_mimebundle_(self, include=None, exclude=None):
        from . import notebook

        return notebook.explanation_bundle(self)


_FORMS = {"quern": "Quern", "products": "with large products", "torch": "torch"}
_TORCHS = ("torch", "alone")


def _short(target):
    name = str(target)
    return "getitem" if target is operator.getitem else name.removeprefix("aten.").removesuffix(".default")


def explain(model, *args, options=None, gradient=True, **keywords):
    """Compiles a model (or function) for these arguments and says what fused, what torch keeps and why, and what a call costs.
    The gradient is looked at too where a parameter or argument wants one (it is added to their `.grad`)."""
    import time

    programs, times = [], {}
    _programs.append(programs)
    torch._dynamo.reset()
    try:
        compiled = torch.compile(model, backend=lambda gm, inputs: backend(gm, inputs, options=options))

        def run(function):
            result = function(*args, **keywords)
            tensors = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
            if gradient and tensors:
                torch.autograd.backward([t.sum() for t in tensors])

        for name, function in (("eager", model), ("quern", compiled)):
            best = None
            run(function)
            settle()
            for _ in range(7):
                start = time.perf_counter()
                run(function)
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                spent = time.perf_counter() - start
                best = spent if best is None else min(best, spent)
            times[name] = best
    finally:
        _programs.pop()
    return Explanation(programs, times)
