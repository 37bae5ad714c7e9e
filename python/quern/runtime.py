"""What runs a compiled graph: between Dynamo, which calls it with tensors, and the graphs that backend.py has cut.

AOTAutograd's own wrapper serves every case (aliases, subclasses, effects) and costs more than small kernels do. A program
without those cases is served here: the forward graph inside a plain autograd.Function, the backward graph when its gradients
arrive, buffers that were changed copied at the end. `serve` gives None where that is not so, and torch's wrapper is taken.
"""

import os
import sys
import weakref

import torch
import torch.autograd.forward_ad as forward_ad
from torch._dynamo.output_graph import OutputGraph
from torch._functorch._aot_autograd.schemas import MutationType, OutputType
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

try:
    from torch._C._dynamo.eval_frame import set_code_exec_strategy
    from torch._dynamo.types import FrameAction, FrameExecStrategy
except ImportError:  # older than 2.7: Dynamo looks at everything
    set_code_exec_strategy = None


def leave_alone(code):
    """Dynamo does not look at frames of this code, nor at what they call. A backward pass can run in the middle of a function that it follows."""
    if set_code_exec_strategy is not None:
        set_code_exec_strategy(code, FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))


MOST_OPERATORS_ALONE = 4
_PLAIN = (torch.Tensor, int, float, complex, str, torch.dtype, torch.device, type(None))
_made = weakref.WeakKeyDictionary()  # by code: how many programs


def is_only_program(code):
    """Of its function: others, for other sizes or types, may be Quern's."""
    return _made.get(code, 0) == 1


def code_of_few_operators(gm):
    """The code of a function that is a few operators of torch's and nothing else, in a graph without breaks and of known sizes; None: it is not. Where torch's
    own are faster than Quern's and Dynamo's guards together, which can cost more than such a function, it is left alone."""
    frame, owner = sys._getframe(1), None
    while frame is not None and not isinstance(owner, OutputGraph):
        owner, frame = frame.f_locals.get("self"), frame.f_back
    if not isinstance(owner, OutputGraph):
        return None
    code = owner.root_tx.f_code
    _made[code] = _made.get(code, 0) + 1
    if owner.compile_subgraph_reason.graph_break or code.co_filename.startswith(os.path.dirname(torch.__file__)):  # torch's is every module's
        return None
    if code.co_freevars or not all(isinstance(v, _PLAIN) for v in owner.root_tx.f_locals.values()):
        return None  # closures, methods and functions of functions share their code with others
    values = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    sizes = [n for v in values if isinstance(v, torch.Tensor) for n in v.shape] + [v for v in values if isinstance(v, torch.SymInt)]
    few = sum(n.op.startswith("call_") for n in gm.graph.nodes) <= MOST_OPERATORS_ALONE
    return code if few and all(isinstance(n, int) for n in sizes) else None


def keeping_tangents(run, plain):
    """Kernels know nothing of torch's forward mode, and tangents would be lost: inside it torch's own operators run. (With a gradient torch says
    itself that an autograd.Function has none.)"""

    def call(*args):
        return (plain if forward_ad._current_level >= 0 else run)(*args)

    return call


def serve(parts, inputs, plain):
    """A function of the program's inputs, from the graphs by kind (`forward` and `backward`, or `inference`) and torch's
    description of them (`meta`); None: torch's wrapper must do it. `plain`: the program as Dynamo found it."""
    meta, count = parts.get("meta"), len(inputs)
    if meta is None or torch._C._is_any_autocast_enabled():  # graphs have their casts: they must run without autocast
        return None
    if any(is_traceable_wrapper_subclass(x) for x in inputs):
        return None
    try:
        if not _is_plain(meta, count):
            return None
        if "inference" in parts:
            return _inference(parts["inference"], meta, plain) if parts["inference"].count == count else None
        if "forward" in parts and "backward" in parts and parts["forward"].count == count:
            return _training(parts["forward"], parts["backward"], meta)
    except AttributeError:  # another version of torch
        pass
    return None


def cutting_off(run, parts, count):
    """torch's wrapper, which does what `_cutting_off` does for inputs that were no leaves when they came first."""
    try:
        if "backward" in parts and len(parts["backward"].gives) == len(parts["meta"].input_info) == count:
            return _cutting_off(run, parts["backward"], parts["meta"])
    except (AttributeError, KeyError):  # another version of torch
        pass
    return run


def _is_plain(meta, count):
    if meta.tokens or meta.num_intermediate_bases or meta.num_outputs_aliased or meta.num_outputs_rng_offset:
        return False
    if meta.num_graphsafe_rng_states or meta.num_backward_tokens or meta.num_opaque_objects_saved_for_bw:
        return False
    if len(meta.input_info) != count or meta.indices_of_inputs_that_requires_grad_with_mutations_in_bw:
        return False
    if any(i.output_type not in (OutputType.non_alias, OutputType.unsafe_view_alias) for i in meta.output_info):
        return False
    for info in meta.input_info:
        if info.mutation_type == MutationType.NOT_MUTATED:
            continue
        if info.mutation_type != MutationType.MUTATED_OUT_GRAPH or info.mutates_metadata or info.requires_grad:
            return False
        if info.mutates_storage_metadata or info.mutations_under_no_grad_or_inference_mode and info.requires_grad:
            return False
    return not meta.dynamic_outputs


def _update(args, indices, made):
    torch._foreach_copy_([args[i] for i in indices], list(made))


def _inference(graph, meta, plain):
    changed, count = meta.mutated_inp_runtime_indices, meta.num_mutated_inp_runtime_indices

    def call(*args):
        if forward_ad._current_level >= 0:  # as keeping_tangents does
            return plain(*args)
        made = graph.run(*args)
        if count:
            with torch.no_grad():
                _update(args, changed, made[:count])
            return made[count:]
        return made

    return call


def _training(forward_graph, backward_graph, meta):
    count, changed = meta.num_mutated_inp_runtime_indices, meta.mutated_inp_runtime_indices
    returned = meta.num_forward_returns
    saved, numbers = meta.tensors_saved_for_backwards_slice, meta.symints_saved_for_backwards_slice
    unsafe = [count + i for i in meta.unsafe_view_out_indices]
    infos = [None] * count + list(meta.output_info)
    fixed = tuple(i for i, info in enumerate(infos) if info is None or (issubclass(info.raw_type, torch.Tensor) and not info.requires_grad))
    wanted = [i for i, info in enumerate(infos) if info is not None and issubclass(info.raw_type, torch.Tensor) and info.requires_grad]
    expected = backward_graph.inputs[len(backward_graph.inputs) - len(wanted) :]
    plain = [v.is_contiguous() for v in expected]
    if not all(p or all(isinstance(n, int) for n in v.stride()) for v, p in zip(expected, plain)):
        return None  # strides that are known at each call only

    class Step(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *args):
            made = forward_graph.run(*args)
            ctx.to_save = tuple([x.detach() if x._is_view() else x for x in made[saved]])
            ctx.numbers = made[numbers]
            made = list(made[:returned])
            for i in unsafe:
                made[i] = torch.ops.aten._unsafe_view(made[i], made[i].shape)
            if fixed:
                ctx.non_differentiable = tuple([made[i] for i in fixed])
            ctx._materialize_non_diff_grads = False
            return tuple(made)

        @staticmethod
        def backward(ctx, *grads):
            given = (*ctx.numbers, *ctx.saved_tensors, *_arrived(grads, wanted, expected, plain))
            if torch.is_grad_enabled():
                return _Once.apply(backward_graph, *given)
            return tuple(backward_graph.run(*given))

    leave_alone(Step.forward.__code__)
    leave_alone(Step.backward.__code__)
    apply = _cutting_off(super(torch.autograd.Function, Step).apply, backward_graph, meta)  # without the wrapper for functorch
    if not count:
        return apply

    def call(*args):
        made = apply(*args)
        with torch.no_grad():
            _update(args, changed, made[:count])
        return made[count:]

    return call


def _cutting_off(apply, backward_graph, meta):
    """Inputs that want a gradient and get none, such as a state that the program detaches, come detached: otherwise autograd goes on
    through them to what made them, which may have been freed."""
    shown = {info.base_idx for info in meta.output_info if info.output_type != OutputType.non_alias}  # results that are views of an input
    infos = enumerate(zip(meta.input_info, backward_graph.gives))
    lost = [i for i, (info, gives) in infos if info.requires_grad and not gives and i not in shown and info.mutation_type == MutationType.NOT_MUTATED]
    if not lost:
        return apply

    def call(*args):
        args = list(args)
        for i in lost:
            args[i] = args[i].detach()
        return apply(*args)

    return call


def _arrived(grads, wanted, expected, plain):
    """Gradients with the strides that the backward graph was promised."""
    arrived = []
    for i, value, contiguous in zip(wanted, expected, plain):
        grad = grads[i]
        if contiguous:
            if not grad.is_contiguous():
                grad = grad.contiguous()
        elif grad.stride() != tuple(value.stride()):
            grad = torch.empty_strided(grad.shape, [int(n) for n in value.stride()], dtype=grad.dtype, device=grad.device).copy_(grad)
        arrived.append(grad)
    return arrived


class _Once(torch.autograd.Function):
    """A gradient that is asked for with create_graph=True: given, and refused when it is differentiated itself."""

    @staticmethod
    def forward(ctx, graph, *given):
        return tuple(graph.run(*given))

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError("a program that torch.compile made with backend \"quern\" has no second derivative: call the model without torch.compile for it")
