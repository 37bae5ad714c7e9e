"""`torch.compile(model, backend="quern")`: AOTAutograd's functional graphs, cut into islands that Quern fuses and computes
(island.py, aten.py) and what is left, which torch computes node by node, each with its reason.

    torch.compile(model, backend="quern", options={"strict": True})
    print(quern.explain(model, x))        # what fused, what torch keeps, why, and what it costs

Options: strict (round where eager does), smallest_island (computing nodes below which torch keeps them), measure (time
the forms of a program at its first call, and on the CPU those of each island, choice.py), patience (on CUDA: seconds that a first call waits for kernels, while torch's operators could run),
product_limit (multiplications up to which a product or convolution is Quern's, instead of what was measured), leave (names of operators that torch keeps).
"""

import collections
import contextlib
import copy
import functools
import operator
import os
import threading
import time
import warnings

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition

from . import _quern, aten, cells, choice, island, quick, runtime, whole
from .aten_math import TOO_LARGE
from .cut import cut

DEFAULTS = {"strict": False, "smallest_island": 2, "measure": True, "patience": 0.05, "product_limit": 0, "leave": ()}
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
            value = _operators(name, (value,) if isinstance(value, str) else value)
        elif kind is float and type(value) is int:
            value = float(value)
        elif type(value) is not kind or value != value:
            raise TypeError(f"option {name!r} of backend \"quern\" is a {kind.__name__}, not {value!r}")
        elif kind is int and value < 0:
            raise ValueError(f"option {name!r} of backend \"quern\" is not negative, as {value!r} is")
        found[name] = value
    return found


def _operators(option, names):
    """Names of operators, those of aten with and without it, and with and without the overload."""
    if not isinstance(names, (list, tuple, set)) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"option {option!r} of backend \"quern\" is a list of names, not {names!r}")
    for name in names:
        space, _, rest = name.partition(".")
        if not hasattr(torch.ops.aten, space) and not (rest and hasattr(getattr(torch.ops, space), rest.partition(".")[0])):
            raise ValueError(f"option {option!r} of backend \"quern\": torch has no operator {name!r}; names are such as 'aten.tanh.default'")
    return tuple(names)


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
def decompositions(whole_too=False):
    """The same table for every graph: torch takes a copy where it changes one. whole_too: without what whole.py keeps."""
    table = dict(torch._decomp.core_aten_decompositions())
    extra = [getattr(torch.ops.aten, name) for name in _APART if hasattr(torch.ops.aten, name)]
    for target, how in torch._decomp.get_decompositions(extra).items():
        if target not in aten.OPS or whole.is_whole(target):
            table.setdefault(target, how)
    table.update(cells.TABLE)
    for target in list(table):
        # torch's attention on the CPU: the decomposition gives weights where its gradient wants sums.
        if target in _KEPT or "scaled_dot_product" in str(target) or (whole_too and whole.is_whole(target)):
            del table[target]
    return table


_KEPT = set(aten.first(dict.fromkeys("_softmax _log_softmax gelu silu mish hardswish hardsigmoid leaky_relu elu hardtanh baddbmm addmm roll".split())))


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
        self.gives = [x is not None for x in gm.graph.output_node().args[0]]
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


_behind = []  # threads that compile what the first call did not wait for


def leave_behind(threads):
    _behind[:] = {*(thread for thread in _behind if thread.is_alive()), *threads}


def settle():
    """Waits for what is compiled behind the program's back: the next call of each program measures it."""
    while _behind:
        _behind.pop().join()


_PRODUCTS = aten.first(dict.fromkeys("mm bmm addmm baddbmm convolution convolution_backward".split()))


def _is_large(node):
    return node.target in _PRODUCTS and (island.reason_against(node, SMALL_PRODUCT) or "").startswith(TOO_LARGE)


def _cut_form(gm, options, report):
    cut(gm, options, report)
    run = quick.function_of(gm)
    names = run.__globals__
    for made in report.islands:
        made.places += [(names, name) for name, value in names.items() if value is made]
    return run


def _on_gpu(inputs):
    return any(isinstance(x, torch.Tensor) and x.is_cuda for x in inputs)


class Program:
    """What Dynamo calls: the graphs of one program, in the form that is fastest where that can be measured."""

    def __init__(self, gm, inputs, options):
        self.gm, self.options, self.form, self.times = gm, options, "quern", {}
        self.code = runtime.code_of_few_operators(gm)
        self.parts = parts = {}
        self.begun, self.threads = set(), []  # islands that are compiled or will be, and who compiles those of the first call
        self.waited = None  # until when the first call waits for them
        on_gpu = _on_gpu(inputs)
        self.place = "cuda" if on_gpu else "cpu"
        self.key = choice.key_of(gm, inputs, options) if options["measure"] and self.place in choice.DEVICES else None
        self.known = choice.recall(self.key) if self.key else None

        def compiler(kind):
            def compile_graph(gm, example_inputs):
                graph = parts[kind] = Graph(kind, gm, options)
                if on_gpu and self.known not in _TORCHS and not torch.cuda.is_current_stream_capturing():
                    self.threads += self.begin(graph.islands(self.known or "quern"))  # torch traces on meanwhile
                context = torch._guards.TracingContext.try_get()
                if kind != "backward" and context is not None:
                    parts["meta"] = context.fw_metadata
                return make_boxed_func(lambda *args: graph.run(*args))

            return compile_graph

        are_whole = not on_gpu and whole.has_known_sizes(gm)
        keeping = whole.kept() if are_whole else contextlib.nullcontext()
        with keeping, torch._functorch.config.patch(force_non_lazy_backward_lowering=True):  # both graphs are needed to serve them
            made = aot_autograd(
                fw_compiler=compiler("forward"),
                bw_compiler=compiler("backward"),
                inference_compiler=compiler("inference"),
                decompositions=decompositions(are_whole),
                partition_fn=min_cut_rematerialization_partition,
            )(gm, inputs)
        served = runtime.serve(parts, inputs, gm.forward)
        self.is_plain = served is not None
        self.quern = served or (runtime.keeping_tangents(made, gm.forward) if "inference" in parts else runtime.cutting_off(made, parts, len(inputs)))
        self.graphs = [parts[kind] for kind in ("forward", "backward", "inference") if kind in parts]
        self.changed = self.changes(parts.get("meta"), len(inputs))
        if self.changed is None:
            self.key = self.known = None
        self.run = (self.first if on_gpu else self.first_on_host) if self.graphs and (on_gpu or self.key) else self.quern

    def changes(self, meta, count):
        """Which inputs the program changes; None: it may change something else (tensors that it has as its own, as those of optimizers, or
        the state of somebody's operators), and cannot be run to see how long it takes."""
        if meta is None or any(graph.is_foreign for graph in self.graphs):
            return None
        changed = {i for i, info in enumerate(meta.input_info) if info.mutates_data or info.mutates_metadata}
        return changed if not changed or len(meta.input_info) == count else None

    def begin(self, islands):
        """Threads that compile those of the islands that no other does; what fails tells so at its first call."""
        waiting, stream = [made for made in dict.fromkeys(islands) if made not in self.begun], torch.cuda.current_stream()
        self.begun.update(waiting)

        def work():
            with contextlib.suppress(OSError, AttributeError):  # where cores are few, torch goes first
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
            with torch.cuda.stream(stream):
                while threading.main_thread().is_alive():  # a program that ends does not wait for what nobody will run
                    try:
                        made = waiting.pop()
                    except IndexError:  # another thread took the last one
                        return
                    try:
                        made.prepare()
                    except (_quern.Error, RuntimeError, TypeError, ValueError):
                        continue

        threads = [threading.Thread(target=work) for _ in range(min(len(waiting), os.cpu_count() or 1, 8))]
        for thread in threads:
            thread.start()
        return threads

    def compile(self, form, until=None):
        """Waits until the islands of a form are compiled, as far as they can be, or until a time has come: are they?"""
        self.threads += self.begin(self.islands(form))
        for thread in list(self.threads):
            thread.join(None if until is None else min(max(until - time.perf_counter(), 0.0), threading.TIMEOUT_MAX))
            if thread.is_alive():
                return False
        self.threads.clear()
        return True

    def select(self, form):
        self.form = form
        for graph in self.graphs:
            graph.select(form)
        self.run = self.gm.forward if form in _TORCHS else self.quern
        if form == "alone" and self.code is not None and runtime.is_only_program(self.code):
            runtime.leave_alone(self.code)

    def first(self, *args):
        """The first call on CUDA: islands are compiled side by side, and the forms are measured where that was not done before;
        while somebody records a CUDA graph, or without memory for it, nothing is. What takes longer than the caller's patience is compiled
        while torch's operators serve this call and the next ones. The form with large products takes longest to compile:
        that is done while the others run, and it is measured at the first call after."""
        self.select(self.known or "quern")
        if torch.cuda.is_current_stream_capturing():
            for thread in self.threads:
                thread.join()  # what is recorded stays as it is
            self.run = self.first
        elif self.known not in _TORCHS:
            if not self.compile(self.known or "quern", self.patience_ends()):
                return self.meanwhile(*args)
            try:
                if self.key and not self.known:
                    if choice.postponed and self.has_products:
                        self.compile("products")
                    if not self.measure(["quern", "torch"], args):
                        self.run = self.first
                    elif self.has_products:
                        self.prepare_products()
            except torch.OutOfMemoryError:
                self.select("quern")
        return (self.gm.forward if self.form in _TORCHS else self.quern)(*args)

    def first_on_host(self, *args):
        """The first call on the CPU: islands are compiled and measured as each is come to, then the program against torch's operators as Dynamo found
        them, which have more in one than what is left of them in islands' graphs. What fails there may fail at the call too, and says so then."""
        if choice.postponed or choice.in_the_way():
            return self.quern(*args)
        self.select(self.known or "quern")
        if not self.known:
            try:
                self.measure(["quern", "torch"], args)
            except Exception:
                self.select("quern")
        return (self.gm.forward if self.form in _TORCHS else self.quern)(*args)

    def patience_ends(self):
        """When the first call has waited long enough; None: never, as for who sees what autograd saves, where forms differ, and for who
        wants no other form than Quern's."""
        if choice.postponed or not self.options["measure"] or choice.has_hooks():
            return None
        if self.waited is None:
            self.waited = time.perf_counter() + self.options["patience"]
        return self.waited

    def meanwhile(self, *args):
        """Torch's operators, until the kernels are there."""
        self.run = self.first
        leave_behind(self.threads)
        try:
            return self.gm.forward(*args)
        except torch.OutOfMemoryError:
            if self.changed != set():  # half of it may be done
                raise
        self.compile(self.known or "quern")  # fused, it may need less
        return self.run(*args)

    def prepare_products(self):
        meanwhile = self.run
        behind = self.begin(self.islands("products"))
        leave_behind(behind)

        def later(*args):
            if any(thread.is_alive() for thread in behind) or torch.cuda.is_current_stream_capturing() or choice.has_hooks():
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
        on_gpu = self.place == "cuda"
        self.times, is_last = times, "products" in names or not self.has_products or not on_gpu
        guards = None
        if on_gpu and is_last and self.code is not None and runtime.is_only_program(self.code):
            place = next(x.device for x in args if isinstance(x, torch.Tensor) and x.is_cuda)
            guards = choice.guards_seconds(place, "backward" in self.parts)
        self.select(choice.best_of(times, guards, self.place))
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
                lines.append(f"measured: {_in_words(program.times)}")
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
                if made.form == "torch":
                    lines.append(f"    left to torch, which is faster there{': ' if made.times else ''}{_in_words(made.times)}")
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


def _in_words(times):
    return ", ".join(f"{_FORMS[name]} {t * 1e6:.1f} us" for name, t in times.items())


def _short(target):
    name = str(target)
    return "getitem" if target is operator.getitem else name.removeprefix("aten.").removesuffix(".default")


def explain(model, *args, options=None, gradient=True, **keywords):
    """Compiles a model (or function) for these arguments and says what fused, what torch keeps and why, and what a call costs.
    The gradient is looked at too where a parameter or argument wants one (it is added to their `.grad`)."""
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
