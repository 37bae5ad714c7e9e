"""How people write: code that indexes, writes in place, takes views, mixes types, hooks modules, branches, and whose results are views, tuples, whole
numbers or nothing. PROGRAMS as in backend_parts.py.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

from .backend_parts import data, model, whole


# ---- writing, views, types, modules ----


@model
def in_place_writes(device):
    def forward(x):
        y = x * 2
        y += 1
        y[:, 0] = x[:, 1] * 3
        y[1:, 2:4].mul_(0.5)
        z = torch.zeros_like(y)
        z[:, ::2] = y[:, ::2]
        z = z.relu()
        z = z.mul(1.5).add_(y, alpha=0.1)
        out = x.new_empty(x.shape[0], 3)
        for i in range(3):
            out[:, i] = z[:, i] + i
        return out, z

    return forward, [data(5, 8, device=device)]


@model
def index_work(device):
    rows, columns = torch.tensor([0, 2, -1], device=device), torch.tensor([1, 1, 3], device=device)
    parts = torch.tensor([0, 1, 0, 2, 1, 0], device=device)

    def forward(x, y):
        a = x[rows, columns] + x[:, None, rows][..., 0].sum(1)[:3]
        b = torch.zeros(3, 4, device=x.device).index_add(0, parts, x)
        c = torch.zeros(3, 4, device=x.device).scatter_add(0, parts[:, None].expand(-1, 4), y)
        d = x.index_select(1, columns) * x.take_along_dim(columns[None].expand(6, -1), 1)
        e = x.clone()
        e[rows] = y[:3]
        e.index_copy_(0, torch.tensor([1, 3], device=x.device), y[4:])
        return a, b / 2 + c, d.tanh(), e.index_fill(1, columns, 0.5) * 2

    return forward, [data(6, 4, device=device), data(6, 4, device=device)]


@model
def whole_numbers_and_truth(device):
    ids = torch.arange(24, device=device).view(4, 6) % 7

    def forward(x):
        mask = (ids != 0) & ((ids % 2 == 0) | (ids > 4))
        lengths = mask.sum(-1)
        positions = torch.cumsum(mask.long(), 1) * mask
        counts = torch.bincount(ids.flatten(), minlength=7)
        best = x.argmax(-1)
        one_hot = F.one_hot(best, 6).to(x.dtype)
        mean = (x * mask).sum(-1) / lengths.clamp(min=1)
        return mean, positions // 2, counts, one_hot * x, best.to(torch.int32) << 1, ~mask, (lengths.float() / 3).round().int()

    return forward, [data(4, 6, device=device)]


@model
def views_and_shapes(device):
    def forward(x):
        a = x.unfold(1, 3, 2).mean(-1)
        b = x.as_strided((2, 3), (12, 2)) * 2
        c = x.view(2, 2, 3, 4).movedim(1, -1).swapaxes(0, 1).flatten(1, 2).unflatten(1, (4, 2))
        d = x.T.reshape(-1)[5:17:3] + x.diagonal()
        e = torch.tensor_split(x, 3, dim=1)[1].squeeze().unsqueeze(0).expand(2, -1, -1) if x.dim() == 2 else x
        f = torch.meshgrid(x[0], x[:, 0], indexing="ij")[0] * x.sum()
        return a.exp(), b, c + 1, d, e * 3, f, x.flatten().chunk(5)[-1], torch.broadcast_to(x[0, 0], (2, 2)) * 2

    return forward, [data(4, 12, device=device)]


@model
def scalar_tensors(device):
    temperature, count = nn.Parameter(torch.tensor(0.7, device=device)), torch.tensor(3, device=device)

    def forward(x):
        s = x.sum() / temperature
        y = torch.where(s > 0, s, -s) * x.mean() + count
        return y, x * y.detach() + temperature**2, (x / count).max(), torch.stack([s, y])

    return forward, [data(3, 4, device=device)]


@model
def mixed_types_written_out(device):
    net = nn.Linear(8, 8).to(device, torch.bfloat16)

    def forward(x, h):
        y = net(x.to(torch.bfloat16)).float() + x
        return y.double().cumsum(0).float(), (h * 2 + x.half()).sum(0), (x * 1.5).to(torch.int32) + 1, torch.where(x > 0, h, torch.zeros((), device=device, dtype=h.dtype))

    return forward, [data(4, 8, device=device), data(4, 8, device=device, dtype=torch.float16)]


@model
def under_autocast(device):
    a, b, n = nn.Linear(16, 16).to(device), nn.Linear(16, 16).to(device), nn.LayerNorm(16).to(device)

    def forward(x):
        with torch.autocast(device_type=device, dtype=torch.bfloat16):
            h = F.gelu(a(n(x)))
            return F.softmax(b(h), -1) + x

    return forward, [data(4, 16, device=device)]


@model
def parts_without_gradient(device):
    teacher, student = nn.Linear(8, 8).to(device), nn.Linear(8, 8).to(device)

    def forward(x):
        with torch.no_grad():
            target = teacher(x).softmax(-1)
            target = target * 0.9 + 0.1 / 8
        y = student(x)
        return -(target * y.log_softmax(-1)).sum(-1).mean(), y.detach().std(), (y - y.detach().mean()).square().mean()

    return forward, [data(5, 8, device=device)]


@model
def hooked_module(device):
    net, seen = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)).to(device), []
    net[0].register_forward_hook(lambda module, inputs, output: output * 2)
    net[1].register_forward_pre_hook(lambda module, inputs: (inputs[0] + 0.5,))
    net[2].register_forward_hook(lambda module, inputs, output: seen.append(1))
    return net, [data(3, 8, device=device)]


@model
def containers_and_branches(device):
    def forward(batch, flag=True):
        total = {"sum": sum(v.square().mean() for v in batch.values())}
        if flag and batch["a"].shape[0] > 2:
            total["extra"] = batch["a"] @ batch["b"].t()
        return [total, (batch["a"].relu(), None, 3)]

    return lambda a, b: [t for t in torch.utils._pytree.tree_leaves(forward({"a": a, "b": b})) if isinstance(t, torch.Tensor)], [data(3, 5, device=device), data(4, 5, device=device)]


@model
def einsums(device):
    def forward(q, k, w):
        weights = torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1)
        return torch.einsum("bhij,hj->bi", weights, w), torch.einsum("bhid->bd", q) * 2, torch.einsum("hj,hk->jk", w, w).exp()

    return forward, [data(2, 3, 5, 4, device=device), data(2, 3, 5, 4, device=device), data(3, 5, device=device)]


@model
def optimizer_like(device):
    """Adam written out on detached state."""
    m, v = torch.zeros(7, 5, device=device), torch.zeros(7, 5, device=device)

    def forward(p, g):
        with torch.no_grad():
            a = torch.lerp(m, g, 0.1)
            b = v * 0.99 + 0.01 * g * g
            step = a / (1 - 0.9**3) / ((b / (1 - 0.99**3)).sqrt() + 1e-8)
            norm = torch.linalg.vector_norm(g)
            return p - 0.01 * step * torch.clamp(1.0 / (norm + 1e-6), max=1.0), norm

    return forward, [data(7, 5, device=device, grad=False), data(7, 5, device=device, grad=False)]


@model
def sorting_and_sampling(device):
    def forward(x):
        probabilities, order = torch.sort(x.softmax(-1), descending=True)
        keep = probabilities.cumsum(-1) - probabilities < 0.8
        filtered = probabilities.masked_fill(~keep, 0.0)
        values, places = x.topk(3)
        cut = torch.where(x < values[..., -1:], torch.full_like(x, float("-inf")), x)
        return filtered / filtered.sum(-1, keepdim=True), order, F.softmax(cut, -1), places, x.kthvalue(2).values

    return forward, [data(4, 9, device=device)]


@model
def no_elements(device):
    def forward(x):
        empty = x[:, :0]
        return torch.cat([x, empty], 1) * 2, empty.sum(1) + x.sum(1), empty * 3

    return forward, [data(4, 6, device=device)]


@model
def numeric_edges(device):
    x = torch.tensor([[0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-38, 88.8, -104.0]], device=device)

    def forward(w):
        y = x * w
        return torch.nan_to_num(y), y.isnan().sum(), torch.maximum(y, y.new_tensor(0.5)), F.softplus(y), torch.sigmoid(y), y.clamp(-1, 1), torch.where(y.isfinite(), y, 0.0), torch.sign(y), y.relu(), torch.expm1(y), torch.fmod(y, 3.0)

    return forward, [torch.ones(8, device=device)]


# ---- numbers, shapes, results ----


@model
def special_functions(device):
    def forward(x):
        u, p = x.tanh() * 0.9, x.abs() + 0.3
        smooth = [p.lgamma(), p.digamma(), u.erfinv(), torch.xlogy(x, p), u.atanh(), u.asin(), u.acos(), torch.atan2(x, p), torch.hypot(x, p), x.sinh(), x.cosh(), x.asinh(), p.log10(), p.log2(), p.exp2(), (p + 1).acosh()]
        kinks = [x.frac(), x.trunc(), torch.fmod(x, 0.7), torch.remainder(x, 0.7), torch.copysign(p, x), x.sign(), torch.logit(u.abs(), 0.01), torch.sinc(x), x.round(decimals=1), torch.ldexp(x, torch.ones_like(x)), torch.special.expit(x), torch.special.log_ndtr(x), torch.special.i0e(x), torch.nan_to_num(x / 0 * 0, 1.5)]
        return smooth + kinks

    return forward, [data(3, 7, device=device)]


@model
def whole_number_work(device):
    def forward(a, b):
        return a & b, a | b, a ^ b, ~a, a << 2, a >> 1, a // 3, a % 5, -a // b, torch.div(a, b, rounding_mode="trunc"), a.abs().float().sqrt().long(), (a > b).sum(), (a > b).any(1), (a * b).argmax(1), a.sum(1) * b.amax(1), a.cumsum(0), a.prod(), a.bitwise_left_shift(b % 4), a.clamp(-2, 5), a.to(torch.uint8) + 250, torch.bincount(b.flatten(), minlength=8)

    return forward, [torch.arange(-6, 6, device=device).view(3, 4), (torch.arange(12, device=device) * 5 % 7 + 1).view(3, 4)]


@model
def promotions(device):
    def forward(x, half, i, flag, scalar):
        wide = x.double()
        return x + i, x * flag, half + x, half * 2, half + scalar, i + 1.5, i / 2, i * flag, flag + flag, scalar * i, wide + x, wide.mean(0).float(), (i > 1) + x, torch.where(flag, x, i), torch.where(flag, 1.0, half), i.float().mean().to(torch.bfloat16), x.to(torch.int32) * 2, torch.tensor(2.5, device=device) * half, x > i, (half > 0).half()

    return forward, [data(4, 3, device=device), data(4, 3, device=device, dtype=torch.bfloat16), torch.arange(3, device=device), torch.tensor([[True], [False], [True], [True]], device=device), torch.tensor(0.5, device=device)]


@model
def statistics_of_rows(device):
    def forward(x):
        c = x - x.mean(1, keepdim=True)
        return x.std(1), x.var(0, unbiased=False), torch.cov(x), torch.corrcoef(x), x.median(1).values, x.kthvalue(2, 1).values, x.quantile(0.3, dim=1), x.logcumsumexp(1), x.cummax(1).values, (c**3).mean(1) / c.std(1) ** 3, x.norm(p=1), x.norm(p=float("inf"), dim=1), x.cumprod(1), torch.trapezoid(x), torch.diff(x, dim=0), x.logsumexp((0, 1))

    return forward, [data(4, 6, device=device)]


@model
def writes_by_index(device):
    at, mask = torch.tensor([2, 0, 2], device=device), torch.tensor([True, False, True, True, False], device=device)

    def forward(x, v):
        a = x.clone()
        a[at] = v * 2
        b = x.index_put((at, torch.tensor([1, 1, 0], device=device)), v[:, 0], accumulate=True)
        c = x.clone()
        c[:, 1:3] += 1
        c[1::2, ::2] = 0
        d = x.index_copy(0, at[:2], v[:2]).index_fill(1, torch.tensor([3], device=device), 9.0)
        e = torch.where(mask[:, None], x, x.flip(1)).masked_fill(~mask[:, None], 0.5)
        f = torch.take_along_dim(x, x.argsort(stable=True, dim=1), 1) + x.scatter(1, torch.full((5, 1), 2, device=device), 1.0)
        g = x.index_add(0, at, v, alpha=0.5).select_scatter(v[0], 0, 1).slice_scatter(v, 0, 2, 5)
        h = x.diagonal_scatter(torch.ones(4, device=device)) + x.scatter_reduce(0, at[:, None].expand(3, 4), v, "prod", include_self=True)
        return a, b, c, d, e, f, g, h, x[mask.nonzero().squeeze(1)], x.masked_select(mask[:, None])

    return forward, [data(5, 4, device=device), data(3, 4, device=device)]


@model
def results_of_every_kind(device):
    def forward(x, y):
        z = torch.exp(x) * y
        return x, z, z, None, {"view": z.t(), "number": x.shape[0], "inner": (z[0], [x[1:], y.detach()])}, z.sum().expand(2, 3), x.view(-1)[::2], torch.zeros(0, 3, device=device), z.unbind(0)

    return lambda x, y: torch.utils._pytree.tree_leaves([r for r in torch.utils._pytree.tree_leaves(forward(x, y)) if isinstance(r, torch.Tensor)]), [data(3, 4, device=device), data(3, 4, device=device)]


@model
def inputs_of_every_layout(device):
    def forward(a, b, c, d, e):
        return torch.tanh(a) * 2 + b, (c * 1.5 + c.mean(0)).relu(), (d + 1).exp() * d, e.sum((0, 2)) * 2 + e[0, :, 0], (a.t() @ b).sigmoid() * 2

    base = data(4, 12, device=device, grad=False)
    return forward, [base[:, 1:7].requires_grad_(), data(6, 4, device=device, grad=False).t().requires_grad_(), base[:1].expand(5, 12), data(2, 4, 3, 3, device=device, grad=False).to(memory_format=torch.channels_last).requires_grad_(), base.view(-1)[3:27].view(2, 3, 4)]


@model
def straight_through(device):
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, grad):
            return grad * 0.5

    def forward(x):
        scale = x.detach().abs().amax() / 7
        q = Round.apply(x / scale).clamp(-8, 7) * scale
        soft = (x * 3).softmax(-1)
        hard = F.one_hot(soft.argmax(-1), 6).float()
        return q, hard - soft.detach() + soft

    return forward, [data(4, 6, device=device)]


@model
def int4_weights(device):
    """Two weights in a byte, a scale and a zero for each group of eight, unpacked and multiplied."""
    packed, scale, zero = (torch.arange(32 * 8, device=device) * 37 % 256).to(torch.uint8).view(16, 16), torch.rand(16, 4, device=device) * 0.1, torch.full((16, 4), 8.0, device=device)

    def forward(x):
        w = torch.stack([packed & 15, packed >> 4], dim=-1).view(16, 4, 8).to(torch.float32)
        w = ((w - zero[..., None]) * scale[..., None]).view(16, 32).to(x.dtype)
        return F.linear(x, w)

    return forward, [data(3, 32, device=device, dtype=torch.bfloat16)]


@model
def int8_product(device):
    def forward(x, w):
        xs, ws = x.abs().amax(1, keepdim=True) / 127, w.abs().amax(1, keepdim=True) / 127
        xq, wq = (x / xs).round().clamp(-128, 127).to(torch.int8), (w / ws).round().clamp(-128, 127).to(torch.int8)
        total = (xq.to(torch.int32)[:, None, :] * wq.to(torch.int32)[None]).sum(-1)
        return total.float() * xs * ws.t(), xq

    return forward, [data(5, 16, device=device, grad=False), data(7, 16, device=device, grad=False)]


@model
def per_sample_gradients(device):
    w = data(4, 3, device=device, grad=False)

    def loss(w, x, y):
        return ((torch.tanh(x @ w) - y) ** 2).sum()

    def forward(x, y):
        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(w, x, y)
        jacobian = torch.func.jacrev(lambda v: torch.sin(v) * v.sum())(x[0])
        return each, each.flatten(1).norm(dim=1).clamp(max=1.0), jacobian

    return forward, [data(5, 4, device=device, grad=False), data(5, 3, device=device, grad=False)]


@model
def more_einsums(device):
    def forward(a, b, c):
        e = torch.einsum
        return e("ij,jk,kl->il", a, b, a), e("ii->i", a @ b), e("ii", a @ b), e("bi,bj->bij", c, c), e("...ij,...jk", c[None], b), e("bi,ji->bj", c, a), e("ij->j", a), e("ij,ij->", a, a), e("nhd,mhd->hnm", c.view(2, 3, 2), c.view(2, 3, 2)), e("ik,kj->ij", a, b).T

    return forward, [data(4, 6, device=device), data(6, 4, device=device), data(2, 6, device=device)]


@model
def branches_on_values(device):
    lin = nn.Linear(6, 6).to(device)

    def forward(x):
        y = torch.tanh(lin(x)) * 2
        if y.sum() > 0:  # a break of the graph
            y = y * 3 + 1
        else:
            y = y - 1
        count = int((y > 0).sum().item() * 0) + 2
        for _ in range(count):
            y = torch.sin(y) + x
        return y

    return forward, [data(4, 6, device=device)]


@model
def kernels_and_distances(device):
    raw = data(1, device=device)

    def forward(x, y):
        d = torch.cdist(x, y)
        k = torch.exp(-0.5 * (x[:, None] - y[None]).pow(2).sum(-1) / F.softplus(raw) ** 2)
        near = (x @ y.t() * 2 - (x * x).sum(1, keepdim=True) - (y * y).sum(1)).topk(2, dim=1)
        chol = torch.linalg.cholesky(k @ k.t() + 2 * torch.eye(5, device=device))
        return d, k, near.values, near.indices, torch.linalg.solve_triangular(chol, x, upper=False), torch.logdet(k @ k.t() + torch.eye(5, device=device))

    return forward, [data(5, 3, device=device), data(6, 3, device=device)]


@model
def stopped_gradients(device):
    """BYOL: two networks, one of which follows the other and wants no gradient."""
    online, target = (nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8)).to(device) for _ in range(2))
    predictor = nn.Linear(8, 8).to(device)
    for p in target.parameters():
        p.requires_grad_(False)

    def forward(a, b):
        with torch.no_grad():
            ta, tb = target(a), target(b)
        pa, pb = predictor(online(a)), predictor(online(b))
        both = lambda p, z: 2 - 2 * F.cosine_similarity(p, z.detach(), dim=-1)
        return (both(pa, tb) + both(pb, ta)).mean()

    return forward, [data(6, 8, device=device), data(6, 8, device=device)]


@model
def bidirectional_gru(device):
    layer, out = nn.GRU(6, 8, num_layers=2, bidirectional=True, batch_first=True).to(device), nn.Linear(16, 3).to(device)
    return lambda x: out(layer(x)[0].mean(1)), [data(2, 5, 6, device=device)]


@model
def sampled_grid(device):
    theta = nn.Linear(8, 6).to(device)

    def forward(x, h):
        grid = F.affine_grid(theta(h).view(-1, 2, 3) * 0.1 + torch.eye(2, 3, device=device), x.shape, align_corners=False)
        return F.grid_sample(x, grid, align_corners=False) * 2 + x

    return forward, [data(2, 3, 6, 6, device=device), data(2, 8, device=device)]


@model
def sparse_product(device):
    edges = torch.stack([whole(9, 5, device), whole(9, 4, device)])

    def forward(x):
        a = torch.sparse_coo_tensor(edges, torch.ones(9, device=device), (5, 4))
        return torch.sparse.mm(a, torch.tanh(x) * 2) + 1

    return forward, [data(4, 3, device=device)]
