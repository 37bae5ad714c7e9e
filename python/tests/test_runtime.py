"""How compiled programs are run: our wrapper where a program is plain, torch's elsewhere; the forms and the choice among them."""

import gc
import os
import tempfile
import threading
import unittest
import unittest.mock
import warnings

from .support import module, needs_torch, torch
from .test_backend import compiled

if torch:
    from torch.utils.checkpoint import checkpoint


def program_of(function, *args, **options):
    """Runs it once under the backend: the compiled function, its program, its result."""
    from quern import backend

    found = []
    backend._programs.append(found)
    try:
        f = compiled(function, **options)
        result = f(*args)
    finally:
        backend._programs.pop()
    assert len(found) == 1, len(found)
    return f, found[0], result


def gradients(function, *args):
    """Results, and gradients that are not contiguous when they arrive."""
    results = [r for r in torch.utils._pytree.tree_leaves(function(*args)) if r.requires_grad]
    leaves = [a for a in args if a.requires_grad]
    return [r.detach() for r in results] + list(torch.autograd.grad([(r * r.detach().cos()).t().sum() if r.dim() == 2 else r.sum() for r in results], leaves))


@needs_torch
class Runtime(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        self.x = torch.randn(6, 8, requires_grad=True)
        self.w = torch.randn(8, 8, requires_grad=True)

    def same(self, a, b):
        for x, y in zip(a, b):
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)
        self.assertEqual(len(a), len(b))

    def test_plain_programs_are_ours(self):
        def f(x, w):
            return torch.tanh(x @ w) * x, torch.softmax(x, -1), (x > 0).sum()

        _, program, _ = program_of(f, self.x, self.w)
        self.assertTrue(program.is_plain)
        with torch.no_grad():
            _, program, found = program_of(f, self.x, self.w)
            self.assertTrue(program.is_plain)
            self.same(found, f(self.x, self.w))
        self.same(gradients(compiled(f), self.x, self.w), gradients(f, self.x, self.w))

    def test_buffers_that_change(self):
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU()).train()
        before = {k: v.clone() for k, v in net.state_dict().items()}
        wanted = gradients(net, self.x)
        after = {k: v.clone() for k, v in net.state_dict().items()}
        net.load_state_dict(before)
        f, program, _ = program_of(net, self.x)
        self.assertTrue(program.is_plain)
        net.load_state_dict(before)
        self.same(gradients(f, self.x), wanted)
        self.same(list(net.state_dict().values()), list(after.values()))

    def test_aliases_and_casts_are_torchs(self):
        def views(x):
            y = torch.sin(x) * 2
            return y, y.t()[1:]

        f, program, _ = program_of(views, self.x)
        self.assertFalse(program.is_plain)
        self.same(gradients(f, self.x), gradients(views, self.x))
        f, program, _ = program_of(lambda x: (torch.sin(x) * 2).t()[1:], self.x)  # of what nobody else has: ours
        self.assertTrue(program.is_plain)
        self.same(gradients(f, self.x), gradients(lambda x: (torch.sin(x) * 2).t()[1:], self.x))
        with torch.autocast("cpu", torch.bfloat16):
            f, program, result = program_of(lambda x, w: torch.tanh(x @ w) * 2, self.x, self.w)
            self.assertFalse(program.is_plain)
            self.assertEqual(result.dtype, torch.bfloat16)

    def test_sizes_that_change_with_gradient(self):
        def f(x, w):
            return torch.tanh(x @ w).t() * 2, torch.softmax(x, -1)

        c = compiled(f, dynamic=True)
        for rows in (3, 5, 8, 13):
            x = torch.randn(rows, 8, requires_grad=True)
            self.same(gradients(c, x, self.w), gradients(f, x, self.w))

    def test_gradients_twice_and_of_gradients(self):
        f = compiled(lambda x: torch.sin(x) * x)
        y = f(self.x)
        first = torch.autograd.grad(y.sum(), self.x, retain_graph=True)[0]
        again = torch.autograd.grad(y.sum(), self.x, create_graph=True)[0]
        self.same([first], [again])
        with self.assertRaisesRegex(RuntimeError, "no second derivative"):
            torch.autograd.grad(again.sum(), self.x)

    def test_a_state_that_is_detached(self):
        """Truncated backpropagation: autograd must not go through the state into the step before, whose graph is freed."""

        def f(x, w, state):
            return torch.tanh(x @ w + state.detach()) * 2

        found = []
        for function in (f, compiled(f), compiled(f, dynamic=True)):
            state, self.w.grad = torch.zeros(6, 8, requires_grad=True), None
            for _ in range(3):
                state = function(self.x, self.w, state)
                state.sum().backward()
            found.append([state.detach(), self.w.grad])
        self.same(found[1], found[0])
        self.same(found[2], found[0])

    def test_results_that_nobody_uses(self):
        f = compiled(lambda x, w: (torch.sin(x) * 2, torch.cos(w) * 3))
        a, _ = f(self.x, self.w)
        found = torch.autograd.grad(a.sum(), [self.x, self.w], allow_unused=True)
        torch.testing.assert_close(found[0], 2 * torch.cos(self.x))
        self.assertTrue(found[1] is None or not found[1].any())

    def test_checkpoints_hooks_and_inference_mode(self):
        from quern import choice

        def f(x, w):
            return torch.tanh(x @ w) * x

        c = compiled(f)
        self.same(gradients(lambda x, w: checkpoint(c, x, w, use_reentrant=False), self.x, self.w), gradients(f, self.x, self.w))
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
            gradients(c, self.x, self.w)
        self.assertTrue(packed)
        packed.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):  # a checkpoint counts what is saved
            self.assertIn("torch", choice.measure({"torch": (lambda: None, f)}, [self.x, self.w], set()))
        self.assertEqual((packed, choice.has_hooks()), ([], False))
        with torch.inference_mode():
            self.same([c(self.x, self.w)], [f(self.x, self.w)])

    def test_forward_mode_keeps_its_tangents(self):
        """torch's own operators run inside it; with a gradient torch refuses it, or from 2.15 on follows it too."""
        import torch.autograd.forward_ad as forward

        x = self.x.detach()
        for function in (lambda x: torch.sin(x) * x + 1, lambda x: (x.t(), torch.sin(x) * x)):  # ours, and torch's wrapper for views
            c = compiled(function)
            for _ in range(2):
                c(x)
                with forward.dual_level():
                    made = c(forward.make_dual(x, torch.ones_like(x)))
                    made = made[1] if isinstance(made, tuple) else made
                    self.same([forward.unpack_dual(made).tangent], [torch.cos(x) * x + torch.sin(x)])
                    try:
                        made = compiled(lambda x: torch.sin(x) * x)(forward.make_dual(self.x, torch.ones_like(x)))
                    except NotImplementedError as error:
                        self.assertIn("jvp", str(error))
                    else:
                        self.same([forward.unpack_dual(made).tangent.detach()], [torch.cos(x) * x + torch.sin(x)])

    def test_subclasses_that_dynamo_follows(self):
        class Named(torch.Tensor):
            pass

        x = self.x.detach().as_subclass(Named)
        c = compiled(lambda x: torch.sin(x) * 2 + x.mean())
        self.assertIsInstance(c(x), Named)
        self.same([c(x).as_subclass(torch.Tensor)], [torch.sin(self.x) * 2 + self.x.mean()])

    def test_a_backward_pass_inside_a_function_that_dynamo_follows(self):
        """A gradient penalty: the graph breaks at autograd.grad, and Dynamo must not look into our backward pass."""
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

        def f(x):
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(net(x).sum(), x)
            return ((gradient.norm(2, 1) - 1) ** 2).mean()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", message="Dynamo does not know how to trace")
            self.same([compiled(f)(self.x)], [f(self.x)])

    def test_few_operators_that_torch_does_faster(self):
        """Dynamo leaves the function alone from then on; one of many operators it does not, nor one whose sizes change."""
        from quern import choice, runtime

        def few(x):
            return torch.nn.functional.layer_norm(x, (8,)) * 2

        def many(x):
            return torch.sin(x).cos().tanh().exp() * 2 + x

        for function, is_left in ((few, True), (many, False)):
            self.assertEqual(program_of(function, self.x)[1].code is not None, is_left)
        for shared in (lambda x, of=torch.sin: of(x) * 2, (lambda of: lambda x: of(x) * 2)(torch.sin), torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Tanh())):
            self.assertIsNone(program_of(shared, self.x)[1].code)  # the same code is other functions', too
        torch._dynamo.mark_dynamic(self.x, 0)
        self.assertIsNone(program_of(few, self.x)[1].code)
        self.setUp()

        def once(x):
            return torch.nn.functional.layer_norm(x, (8,)) * 3

        f, program, _ = program_of(once, self.x)
        self.assertIs(program.code, once.__code__)
        program.select("alone")
        count = len(torch._dynamo.eval_frame._debug_get_cache_entry_list(once.__code__))
        wide = torch.randn(3, 4, 8)
        self.same([f(wide)], [once(wide)])
        self.assertEqual(len(torch._dynamo.eval_frame._debug_get_cache_entry_list(once.__code__)), count)
        self.assertIsNone(runtime.code_of_few_operators(program.gm))  # not while Dynamo compiles
        self.assertFalse(runtime.is_only_program(few.__code__))  # it was compiled again and again
        for times, guards, wanted in (
            ({"quern": 100e-6, "torch": 110e-6}, None, "quern"),
            ({"quern": 100e-6, "torch": 110e-6}, 30e-6, "alone"),
            ({"quern": 100e-6, "torch": 140e-6}, 30e-6, "quern"),
            ({"quern": 100e-6, "torch": 90e-6}, None, "torch"),
        ):
            self.assertEqual(choice.best_of(times, guards), wanted)
        with_gradient, without = (min(choice.guards_seconds("cpu", each) for _ in range(5)) for each in (True, False))
        self.assertTrue(0 < 2 * without < with_gradient < 1e-2, (without, with_gradient))  # a program for inference is not left alone for what training costs

    def test_calls_leave_nothing(self):
        """100,000 calls: memory and descriptors as before, the device's too."""
        for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
            with self.subTest(device=device):
                self.calls_leave_nothing(device)

    def calls_leave_nothing(self, device):
        q = module()
        x, out = torch.randn(4, 6, device=device), torch.empty(4, 6, device=device)
        g = torch.randn(4, 6, device=device, requires_grad=True)
        c = compiled(lambda x: torch.sin(x) * 2 + 1)

        def step():
            torch.autograd.grad(q.soft(g).sum(), g)
            c(x)

        def state():
            gc.collect()
            reserved = torch.cuda.memory_reserved() if device == "cuda" else 0
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096, len(os.listdir("/proc/self/fd")), reserved

        counts = ((lambda: q.add(x, x, out=out), 70000), (lambda: q.add(x, x), 25000), (step, 5000))
        for function, _ in counts:
            for _ in range(500):
                function()
        before = state()
        for function, count in counts:
            for _ in range(count):
                function()
        after = state()
        self.assertLess(after[0] - before[0], 4 << 20)
        self.assertEqual(after[1:], before[1:])

    def test_what_no_tensor_comes_into(self):
        """Angles from nothing but numbers: computed once; given away, they are fresh at each call."""

        def f(x):
            angle = torch.arange(8) * 0.1 + torch.arange(8).float().sqrt()
            return torch.matmul(x, torch.outer(angle, angle).cos()) * 2

        for give_away in (False, True):
            g = (lambda x: (f(x), torch.arange(8).float().sin() * 3)) if give_away else f
            c, program, first = program_of(g, self.x, leave=("aten.mul.Tensor",) if give_away else ())
            self.same(torch.utils._pytree.tree_leaves(first), torch.utils._pytree.tree_leaves(g(self.x)))
            again = torch.utils._pytree.tree_leaves(c(self.x))
            self.same(again, torch.utils._pytree.tree_leaves(g(self.x)))
            if give_away:
                self.assertNotEqual(again[1].data_ptr(), first[1].data_ptr())

    def test_forms_agree(self):
        """Whatever was chosen, the numbers are the same; a form is chosen by its times."""
        from quern import choice

        wide = torch.nn.Linear(256, 256)
        x = torch.randn(64, 256, requires_grad=True)
        f, program, _ = program_of(lambda x: torch.relu(wide(x)) * 2, x)
        self.assertEqual(sorted(program.graphs[0].forms), ["products", "quern"])
        wanted = gradients(lambda x: torch.relu(wide(x)) * 2, x)
        for form in ("quern", "products"):
            program.select(form)
            self.same(gradients(f, x), wanted)
        self.assertEqual(choice.best_of({"quern": 2.0, "products": 1.0, "torch": 0.99}), "products")
        self.assertEqual(choice.best_of({"quern": 2.0, "products": 1.0, "torch": 0.5}), "torch")
        _, program, _ = program_of(lambda x: torch.relu(wide(x)) * 2, x, product_limit=100)
        self.assertEqual(list(program.graphs[0].forms), ["quern"])

    def test_measuring_changes_nothing(self):
        from quern import choice

        net = torch.nn.Sequential(torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5)).train()
        _, program, _ = program_of(net, self.x)
        state, seed, x = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state(), self.x
        given = self.arguments(net, program)
        times = choice.measure({"quern": (lambda: None, program.quern), "torch": (lambda: None, program.gm.forward)}, given, program.changed)
        self.assertEqual(sorted(times), ["quern", "torch"])
        self.same(list(net.state_dict().values()), list(state.values()))
        self.assertTrue(torch.equal(torch.get_rng_state(), seed))
        self.assertIsNone(x.grad)

    def arguments(self, net, program):
        """The program's inputs in its order, found by what they are."""
        known = {**dict(net.named_parameters()), **dict(net.named_buffers())}
        found = []
        for node in program.gm.graph.nodes:
            if node.op == "placeholder":
                name = next((k for k in known if node.name.endswith(k.rpartition(".")[2] + "_")), None)
                found.append(known[name] if name else self.x)
        return found

    def test_what_cannot_be_run_twice_is_not_measured(self):
        """An optimizer's tensors are the program's own, and somebody's operator may count its calls."""
        from quern import backend

        weights = [torch.nn.Parameter(torch.randn(4, 5)), torch.nn.Parameter(torch.randn(7))]
        optimizer, found = torch.optim.Adam(weights, 1e-2), []
        for w in weights:
            w.grad = torch.randn_like(w)
        before = [w.detach().clone() for w in weights]
        backend._programs.append(found)
        try:
            compiled(optimizer.step)()
        finally:
            backend._programs.pop()
        self.assertTrue(found)
        for program in found:
            changes = {a for node in program.gm.graph.nodes if node.op == "get_attr" for a in [node.target]}
            self.assertTrue(program.changed is None or not changes, program.changed)
        self.assertTrue(any(program.changed is None for program in found))
        for w, old in zip(weights, before):
            self.assertLess(float((w.detach() - old).abs().max()), 0.011)
        _, program, _ = program_of(lambda x, w: torch.tanh(x @ w), self.x, self.w)
        self.assertEqual(program.changed, set())

    def test_two_devices_in_one_program(self):
        """Numbers of the host beside tensors of a GPU, which a fake one stands for: no island has both."""
        from quern import backend

        with torch._subclasses.FakeTensorMode() as mode:
            x, step = torch.empty(4, 6, device="cuda"), torch.empty(())

            def f(x, step):
                rate = (step + 1) * 0.5
                return torch.sin(x) * 2 + 1, rate * rate

            gm = torch.fx.experimental.proxy_tensor.make_fx(f)(x, step)
        report = backend.Report("inference", gm)
        backend.cut(gm, {**backend.DEFAULTS, "product_limit": 1 << 21}, report)
        self.assertEqual([[v.device.type for v in made.input_values] for made in report.islands], [["cuda"]])
        self.assertEqual({reason for _, reason in report.kept}, {"on the host, in a program of a GPU"})

    def test_islands_are_compiled_while_torch_goes_on(self):
        """On a GPU, for which the CPU is taken: those of the forward graph before the backward graph is cut."""
        from quern import backend, island

        begun, seen = threading.Event(), []

        class Cut(backend.Graph):
            def __init__(self, kind, gm, options):
                if kind == "backward":
                    seen.append(begun.wait(3))
                super().__init__(kind, gm, options)

        gm = torch.fx.symbolic_trace(lambda x: (torch.sin(x) * torch.exp(x) + 1,))
        with (
            unittest.mock.patch.object(backend, "Graph", Cut),
            unittest.mock.patch.object(backend, "_on_gpu", lambda inputs: True),
            unittest.mock.patch.object(island.Island, "prepare", lambda self: begun.set()),
            unittest.mock.patch.object(torch.cuda, "current_stream", lambda: None),
            unittest.mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: False),
        ):
            program = backend.Program(gm, [torch.ones(4, 6, requires_grad=True)], dict(backend.DEFAULTS))
            program.compile("quern")
        self.assertEqual((seen, program.threads, len(program.begun)), ([True], [], 2))

    def test_choices_are_kept(self):
        from quern import choice

        old, kept = os.environ.get("QUERN_CACHE"), choice._known
        with tempfile.TemporaryDirectory() as folder:
            os.environ["QUERN_CACHE"] = folder
            try:
                choice._known = None
                self.assertIsNone(choice.recall("key"))
                choice.remember("key", "torch", {"quern": 2e-6, "torch": 1e-6})
                choice._known = None
                self.assertEqual(choice.recall("key"), "torch")
            finally:
                choice._known = kept
                del os.environ["QUERN_CACHE"]
                if old is not None:
                    os.environ["QUERN_CACHE"] = old


if __name__ == "__main__":
    unittest.main()
