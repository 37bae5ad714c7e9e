"""What people do with PyTorch around a model: optimizers, hooks, transforms, wrappers, other kinds of tensors. Each with the backend and without, and the same
comes out of it; what falls to torch does so without an error."""

import copy
import io
import os
import signal
import threading
import unittest
import warnings

from .support import needs_torch, quern, torch
from .test_backend import compiled

if torch:
    from torch import nn
    from torch.nn import functional as F


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


class WithBuffers(nn.Module if torch else object):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(8))
        self.layer, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x):
        self.count += 1
        self.mean.lerp_(x.mean(0).detach(), 0.1)
        return self.norm(self.layer(x)) - self.mean


def normed():
    torch.manual_seed(0)
    norms = nn.utils.parametrizations
    return nn.Sequential(norms.weight_norm(nn.Linear(8, 8)), nn.Tanh(), norms.spectral_norm(nn.Linear(8, 4)))


@needs_torch
class Habits(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(5)
        self.x = torch.randn(6, 8)

    def close(self, a, b, few=1e-4):
        torch.testing.assert_close(a, b, rtol=few, atol=few, equal_nan=True)

    def same(self, function, *args, few=1e-4, **options):
        """Values, and gradients of what wants one."""
        found = []
        for f in (function, compiled(function, **options)):
            leaves = [a.detach().clone().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() and a.layout == torch.strided else a for a in args]
            results = torch.utils._pytree.tree_leaves(f(*leaves))
            wanted = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
            leaves = [a for a in leaves if isinstance(a, torch.Tensor) and a.requires_grad]
            if wanted:
                torch.autograd.backward([r.sum() for r in wanted])
            found.append([r.detach() if isinstance(r, torch.Tensor) else r for r in results] + [a.grad for a in leaves if a.grad is not None])
        self.assertEqual(len(found[0]), len(found[1]))
        for a, b in zip(*found):
            self.close(b, a, few) if isinstance(a, torch.Tensor) else self.assertEqual(a, b)

    def trained(self, make, optimizer, steps=4, with_step=True, scheduler=None):
        """Parameters and buffers after some steps, by eager and by the backend, the optimizer's step compiled too."""
        found = []
        for is_ours in (False, True):
            model = make()
            adjust = optimizer(model.parameters())
            later = scheduler(adjust) if scheduler else None

            def step():
                adjust.step()
                if later is not None:
                    later.step()

            forward, step = (compiled(model), compiled(step) if with_step else step) if is_ours else (model, step)
            for i in range(steps):
                torch.manual_seed(i)
                adjust.zero_grad()
                forward(torch.randn(6, 8)).square().mean().backward()
                step()
            found.append([p.detach() for p in model.parameters()] + list(model.buffers()))
        for a, b in zip(*found):
            self.close(b, a, 1e-3)

    def test_optimizers(self):
        optim = torch.optim
        for name, optimizer in {
            "Adam": lambda p: optim.Adam(p, 1e-2),
            "AdamW of lists": lambda p: optim.AdamW(p, 1e-2, foreach=True),
            "a rate that is a tensor": lambda p: optim.Adam(p, torch.tensor(1e-2)),
            "SGD": lambda p: optim.SGD(p, 1e-2, momentum=0.9, nesterov=True, weight_decay=0.1),
            "RMSprop": lambda p: optim.RMSprop(p, 1e-2, centered=True),
            "Adagrad": lambda p: optim.Adagrad(p, 1e-2),
        }.items():
            with self.subTest(name):
                torch._dynamo.reset()
                self.trained(net, optimizer)
        self.trained(net, lambda p: optim.Adam(p, torch.tensor(0.1)), scheduler=lambda o: optim.lr_scheduler.CosineAnnealingLR(o, 10))

    def test_buffers_and_parametrizations(self):
        self.trained(WithBuffers, lambda p: torch.optim.SGD(p, 0.1), with_step=False)
        self.trained(normed, lambda p: torch.optim.SGD(p, 0.1), with_step=False)
        found = []
        for make in (lambda m: m, compiled):
            model = WithBuffers()
            f = make(model)
            model.train()
            f(self.x)
            model.eval()
            found.append([f(self.x), model.mean, model.count, *model.norm.buffers()])
        for a, b in zip(*found):
            self.close(b, a)

    def test_states_and_copies(self):
        model = net()
        c = compiled(model)
        c(self.x)
        self.assertTrue(all(name.startswith("_orig_mod.") for name in c.state_dict()))
        memory = io.BytesIO()
        torch.save(model.state_dict(), memory)
        memory.seek(0)
        other = net()
        other.load_state_dict(torch.load(memory))
        self.close(compiled(other)(self.x), model(self.x))
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(2)
        self.close(c(self.x), model(self.x))
        self.close(copy.deepcopy(c)(self.x), model(self.x))
        inside = net()
        inside.compile(backend="quern" if "quern" in torch._dynamo.list_backends() else quern.backend.backend)
        self.close(inside(self.x), net()(self.x))

    def test_one_process_of_many(self):
        import torch.distributed as distributed

        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(29500 + os.getpid() % 400))
        distributed.init_process_group("gloo", rank=0, world_size=1)
        try:
            plain, outside, inside = net(), net(), net()
            wrapped = torch.nn.parallel.DistributedDataParallel
            for f in (plain, compiled(wrapped(outside)), wrapped(compiled(inside))):
                f(self.x).square().mean().backward()
            for a, b, c in zip(plain.parameters(), outside.parameters(), inside.parameters()):
                self.close(b.grad, a.grad)
                self.close(c.grad, a.grad)
        finally:
            distributed.destroy_process_group()

    def test_forked(self):
        """As workers of a DataLoader are: what was compiled before runs there, and gives what it gave."""
        waved = compiled(lambda x: x.sin() * 2 + x)
        wanted = waved(self.x)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(60)
                code = 0 if torch.equal(waved(self.x), wanted) else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.close(waved(self.x), wanted)

    def test_transforms(self):
        func, model = torch.func, net()
        parameters = {name: p.detach() for name, p in model.named_parameters()}

        def loss(parameters, x):
            return func.functional_call(model, parameters, (x,)).square().mean()

        wanted, found = func.grad(loss)(parameters, self.x), compiled(lambda p, x: func.grad(loss)(p, x))(parameters, self.x)
        for name in wanted:
            self.close(found[name], wanted[name])
        row = lambda r: F.softmax(r * 2, 0).cumsum(0) + r.mean()  # noqa: E731
        self.same(lambda x: func.vmap(row)(x), self.x)
        self.close(func.vmap(compiled(row))(self.x), func.vmap(row)(self.x))
        curve = lambda v: (v.sin() * v).sum()  # noqa: E731
        for name, f in {
            "hessian": lambda v: func.hessian(curve)(v),
            "jacrev": lambda v: func.jacrev(lambda u: u.exp() * u.sum())(v),
            "jacfwd": lambda v: func.jacfwd(lambda u: u.tanh() * 2)(v),
            "jvp": lambda v: func.jvp(curve, (v,), (v,))[1],
        }.items():
            with self.subTest(name):
                torch._dynamo.reset()
                self.close(compiled(f)(self.x[0]), f(self.x[0]))

    def test_precision(self):
        model = net()
        c = compiled(model)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a, b = c(self.x), model(self.x)
        self.assertEqual(a.dtype, b.dtype)
        self.close(a, b, 2e-2)

        def inside(x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = model(x)
            return y.float().softmax(-1)

        self.close(compiled(inside)(self.x), inside(self.x), 2e-2)
        scaler, adjust = torch.amp.GradScaler("cpu"), torch.optim.SGD(model.parameters(), 0.1)
        before = model[0].weight.detach().clone()
        scaler.scale(c(self.x).square().mean()).backward()
        scaler.unscale_(adjust)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(adjust)
        self.assertFalse(torch.equal(before, model[0].weight))
        self.same(lambda x: (x.to(torch.float8_e4m3fn).float() * 2).sin() + x.detach(), self.x.detach())
        torch.set_default_dtype(torch.float64)
        try:
            self.same(lambda x: x * 0.1 + torch.ones(8) * torch.pi, self.x)
        finally:
            torch.set_default_dtype(torch.float32)

    def test_hooks_and_checkpoints(self):
        from torch.utils.checkpoint import checkpoint

        model = net()
        for reentrant in (False, True):
            torch._dynamo.reset()
            self.same(lambda x: checkpoint(model, x, use_reentrant=reentrant) * 2, self.x)
            self.same(lambda x: checkpoint(compiled(model), x, use_reentrant=reentrant) * 2, self.x)
        hooked = net()
        hooked[0].register_forward_hook(lambda module, given, result: result * 2)
        hooked[1].register_forward_pre_hook(lambda module, given: (given[0] + 1,))
        hooked[3].register_full_backward_hook(lambda module, arrived, left: (arrived[0] * 3,))
        self.same(hooked, self.x)

        def followed(x):
            y = x * 2
            y.register_hook(lambda g: g * 5)
            return (y.sin() * y).sum()

        self.same(followed, self.x)
        with torch.autograd.graph.save_on_cpu():
            self.same(model, self.x)

    def test_gradients_again_and_in_part(self):
        model, other = net(), net()
        c = compiled(model)
        for _ in range(2):
            for f in (c, other):
                loss = f(self.x).square().mean()
                loss.backward(retain_graph=True)
                loss.backward()
        for a, b in zip(model.parameters(), other.parameters()):
            self.close(a.grad, b.grad)
        frozen = net()
        frozen[0].requires_grad_(False)
        compiled(frozen)(self.x).sum().backward()
        self.assertIsNone(frozen[0].weight.grad)
        self.assertIsNotNone(frozen[3].weight.grad)

        class Own(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                ctx.factor = 3
                return a * b.sigmoid()

            @staticmethod
            def backward(ctx, g):
                a, b = ctx.saved_tensors
                return g * b.sigmoid() * ctx.factor, g * a

        self.same(lambda a, b: Own.apply(a.sin(), b) * 2, self.x, self.x + 1)
        base = torch.randn(12, 8)
        self.same(lambda b: (b[::2].t().sin() * b[::2].t())[1:], base)

    def test_other_tensors(self):
        from torch.testing._internal.two_tensor import TwoTensor

        layer = nn.Linear(8, 8)
        parts = [torch.randn(3, 8), torch.randn(5, 8)]
        for layout, f in ((torch.jagged, lambda n: layer(n).sin() * 2 + 1), (torch.strided, lambda n: n.sin() * 2)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of prototypes
                nested = torch.nested.nested_tensor(parts, layout=layout)
                for a, b in zip(compiled(f)(nested).unbind(), f(nested).unbind()):
                    self.close(a, b)
        f = lambda v: v.sin() * 2 + v.mean()  # noqa: E731
        two = TwoTensor(self.x.clone(), self.x + 1)
        a, b = compiled(f)(two), f(two)
        self.close(a.a, b.a)
        self.close(a.b, b.b)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for sparse in ((self.x * (self.x > 0)).to_sparse(), self.x.to_sparse_csr()):
                v = torch.randn(8, 3)
                g = lambda s, v: (s @ v).relu() * 2 + 1  # noqa: E731
                self.close(compiled(g)(sparse, v), g(sparse, v))
        z = torch.randn(4, 5, dtype=torch.complex64)
        for g in (lambda z: torch.view_as_real((z * z.conj()).sqrt() + z.exp()) * 2 + 1, lambda z: z.abs() * z.angle() + z.real - z.imag):
            self.close(compiled(g)(z), g(z))
            self.close(compiled(g)(z.conj()), g(z.conj()))
        self.same(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2) + x.sin(), self.x)
        self.same(lambda x: x.sin() * 2 + x.sum(0), torch.randn(*[2] * 9))
        self.same(net(), self.x[:0])
        channels = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU()).to(memory_format=torch.channels_last)
        image = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
        self.assertEqual(compiled(channels)(image).stride(), channels(image).stride())

    def test_python_around_it(self):
        import numpy

        def breaks(x):
            y = x.sin() * 2
            if y.sum() > 0:
                y = y + 1
            return (y * y.exp().mean().item()).tanh()

        self.same(breaks, self.x)
        self.same(breaks, -self.x)

        def loops(x):
            rows = []
            for _ in range(5):
                x = x * 0.9 + x.tanh()
                rows.append(x.sum(1))
            return torch.stack(rows), {"last": x, "count": 3, "more": (x + 1,)}

        self.same(loops, self.x)
        scaled = compiled(lambda x, s: x * s + x.sin())
        for s in (1, 2, 2.5, 0.1, -3, True):
            self.close(scaled(self.x, s), self.x * s + self.x.sin())
        f = lambda x: torch.from_numpy(numpy.sin(x.numpy()) * 2) + x  # noqa: E731
        self.close(compiled(f)(self.x), f(self.x))
        self.close(compiled(torch.export.export(net(), (self.x,)).module())(self.x), net()(self.x))
        wrong, waved = [], compiled(lambda x: x.sin() * 2 + x)
        waved(self.x)

        def work():
            for _ in range(30):
                if not torch.allclose(waved(self.x), self.x.sin() * 2 + self.x, atol=1e-5):
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_writes(self):
        def first(v):
            v.mul_(2).add_(1)
            return v.sum(0)

        def second(v):
            v[1:3] = v[2:4].clone() * 2
            v[:, 0] += 1
            return v * 2

        for f in (first, second):
            a, b = self.x.clone(), self.x.clone()
            self.close(compiled(f)(a), f(b))
            self.close(a, b)

        def into(v, out):
            torch.add(v, v.sin(), out=out)
            return out * 2

        a, b = torch.empty(6, 8), torch.empty(6, 8)
        self.close(compiled(into)(self.x, a), into(self.x, b))
        self.close(a, b)

    def test_operators_of_higher_order(self):
        from torch._higher_order_ops.map import map as over
        from torch.nn.attention.flex_attention import flex_attention

        self.same(lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() - 1, (x,)) * 3, self.x)
        self.close(compiled(lambda x: over(lambda r: r.sin() * 2 + 1, x) * 2)(self.x), self.x.sin() * 4 + 2)
        q = torch.randn(1, 2, 16, 8)
        f = lambda q: flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + (i - j)) * 2  # noqa: E731
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.close(compiled(f)(q), f(q), 1e-3)


if __name__ == "__main__":
    unittest.main()
