"""More programs as people bring them, for the torch.compile backend: decoding with a cache, mobile and diffusion networks, detection, routing, graphs,
reinforcement learning, losses with all their options, and code whose results are views, tuples, whole numbers or nothing. MODELS as in backend_models.py.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

MODELS = {}
ROUGH = {"promotions", "int4_weights"}  # of 16 bits: fused operators keep f32 between them
WIDTH, HEADS = 32, 4


def model(make):
    MODELS[make.__name__] = make
    return make


def data(*shape, device, grad=True, dtype=torch.float32):
    x = torch.randn(*shape, device=device).to(dtype)
    return x.requires_grad_() if grad else x


def whole(count, end, device):
    return torch.arange(count, device=device) * 7919 % end


# ---- language models ----


class RootNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.to(torch.float32)
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class LlamaLayer(nn.Module):
    """With its cache: keys and values of earlier words come in and go out longer by the new ones."""

    def __init__(self, width=WIDTH, heads=4, groups=2):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q, self.k, self.v = nn.Linear(width, width, bias=False), nn.Linear(width, groups * self.size, bias=False), nn.Linear(width, groups * self.size, bias=False)
        self.o, self.gate, self.up, self.down = nn.Linear(width, width, bias=False), nn.Linear(width, 48, bias=False), nn.Linear(width, 48, bias=False), nn.Linear(48, width, bias=False)
        self.n1, self.n2 = RootNorm(width), RootNorm(width)
        self.register_buffer("inverse", 10000.0 ** (-torch.arange(0, self.size, 2).float() / self.size))

    def forward(self, x, places, keys, values):
        b, t, _ = x.shape
        h = self.n1(x)
        q, k, v = (f(h).view(b, t, -1, self.size).transpose(1, 2) for f in (self.q, self.k, self.v))
        angle = places[:, None].float() * self.inverse
        cos, sin = torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()
        turn = lambda y: y * cos + torch.cat((-y[..., self.size // 2 :], y[..., : self.size // 2]), -1) * sin
        keys, values = torch.cat([keys, turn(k)], 2), torch.cat([values, v], 2)
        wide = [y.repeat_interleave(self.heads // self.groups, dim=1) for y in (keys, values)]
        seen = torch.arange(keys.shape[2], device=x.device)[None] <= places[:, None]
        y = F.scaled_dot_product_attention(turn(q), *wide, attn_mask=seen)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, -1))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), keys, values


@model
def llama_with_cache(device):
    return LlamaLayer().to(device), [data(2, 3, WIDTH, device=device), torch.arange(5, 8, device=device), data(2, 2, 5, 8, device=device), data(2, 2, 5, 8, device=device)]


@model
def static_cache_decoding(device):
    """One word; its key and value are written into a cache of fixed length."""
    q, k, v = (nn.Linear(WIDTH, WIDTH).to(device) for _ in range(3))

    def forward(x, keys, values, place):
        split = lambda y: y.view(2, 1, HEADS, -1).transpose(1, 2)
        keys, values = keys.index_copy(2, place, split(k(x))), values.index_copy(2, place, split(v(x)))
        scores = split(q(x)) @ keys.transpose(2, 3) / 8**0.5
        scores = scores.masked_fill(torch.arange(12, device=device) > place, float("-inf"))
        return (scores.softmax(-1) @ values).transpose(1, 2).flatten(2), keys, values

    return forward, [data(2, 1, WIDTH, device=device), data(2, HEADS, 12, 8, device=device), data(2, HEADS, 12, 8, device=device), torch.tensor([5], device=device)]


@model
def attention_with_slopes(device):
    """ALiBi, a window of eight words, and a word that sees itself always."""
    qkv = nn.Linear(WIDTH, 3 * WIDTH).to(device)

    def forward(x):
        b, t, c = x.shape
        q, k, v = qkv(x).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        slopes = 2.0 ** (-torch.arange(1, HEADS + 1, device=device).float())
        at = torch.arange(t, device=device)
        distance = at[:, None] - at[None, :]
        scores = torch.einsum("bhid,bhjd->bhij", q, k) * c**-0.5 - slopes[:, None, None] * distance.abs()
        scores = scores.masked_fill((distance < 0) | (distance >= 8), torch.finfo(x.dtype).min)
        return torch.einsum("bhij,bhjd->bihd", scores.softmax(-1), v).flatten(2)

    return forward, [data(2, 14, WIDTH, device=device)]


@model
def multihead_modules(device):
    layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).to(device)
    padded = torch.zeros(2, 7, dtype=torch.bool, device=device)
    padded[1, 5:] = True

    def forward(x, memory):
        y, weights = layer(x, memory, memory, key_padding_mask=padded, need_weights=True)
        return y, weights.detach()

    return forward, [data(2, 5, WIDTH, device=device), data(2, 7, WIDTH, device=device)]


@model
def linear_attention_scan(device):
    """A state that decays, step by step."""
    q, k, v, g = (nn.Linear(WIDTH, 8).to(device) for _ in range(4))

    def forward(x):
        state, found = x.new_zeros(x.shape[0], 8, 8), []
        for t in range(x.shape[1]):
            now = x[:, t]
            state = torch.sigmoid(g(now))[:, :, None] * state + k(now)[:, :, None] * v(now)[:, None, :]
            found.append((q(now)[:, None, :] @ state).squeeze(1))
        return torch.stack(found, 1)

    return forward, [data(2, 5, WIDTH, device=device)]


@model
def switch_router(device):
    """One expert of four for each word, at most three words an expert, by one-hot products, and the loss that balances them."""
    gate, experts = nn.Linear(WIDTH, 4).to(device), nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4)).to(device)

    def forward(x):
        words = x.flatten(0, 1)
        share = gate(words).softmax(-1)
        most, index = share.max(-1)
        hot = F.one_hot(index, 4).float()
        place = (hot.cumsum(0) * hot).sum(-1) - 1
        kept = place < 3
        send = (hot * kept[:, None])[:, :, None] * F.one_hot(place.clamp(max=2).long(), 3).float()[:, None, :]
        inside = torch.einsum("nec,nd->ecd", send, words)
        outside = torch.stack([e(y) for e, y in zip(experts, inside)])
        made = torch.einsum("nec,ecd->nd", send * most[:, None, None], outside)
        balance = 4 * (hot.mean(0) * share.mean(0)).sum()
        return made.view_as(x), balance, kept.sum()

    return forward, [data(2, 7, WIDTH, device=device)]


@model
def checkpointed_blocks(device):
    a, b = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH)).to(device), nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).to(device)
    return lambda x: checkpoint(b, checkpoint(a, x, use_reentrant=False) + x, use_reentrant=False), [data(3, WIDTH, device=device)]


# ---- images ----


class Bottleneck(nn.Module):
    def __init__(self, width, inner, stride):
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.c2, self.n2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner)
        self.c3, self.n3 = nn.Conv2d(inner, 4 * inner, 1, bias=False), nn.BatchNorm2d(4 * inner)
        self.down = nn.Sequential(nn.Conv2d(width, 4 * inner, 1, stride, bias=False), nn.BatchNorm2d(4 * inner))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.n1(self.c1(x)))
        y = self.n3(self.c3(self.relu(self.n2(self.c2(y)))))
        y += self.down(x)
        return self.relu(y)


@model
def resnet_bottleneck(device):
    return Bottleneck(8, 4, 2).to(device).train(), [data(2, 8, 9, 9, device=device)]


@model
def resnet_bottleneck_frozen(device):
    return Bottleneck(8, 4, 2).to(device).eval(), [data(2, 8, 9, 9, device=device)]


@model
def inverted_residual(device):
    """MobileNet's, with squeeze and excitation by hard functions."""
    net = nn.Sequential(nn.Conv2d(8, 24, 1, bias=False), nn.BatchNorm2d(24), nn.Hardswish(inplace=True), nn.Conv2d(24, 24, 5, 1, 2, groups=24, bias=False), nn.BatchNorm2d(24)).to(device)
    a, b, last = nn.Conv2d(24, 6, 1).to(device), nn.Conv2d(6, 24, 1).to(device), nn.Sequential(nn.Conv2d(24, 8, 1, bias=False), nn.BatchNorm2d(8)).to(device)

    def forward(x):
        y = net(x)
        y = y * F.hardsigmoid(b(F.relu(a(F.adaptive_avg_pool2d(y, 1)))))
        return x + last(F.hardswish(y))

    return forward, [data(2, 8, 7, 7, device=device)]


@model
def convnext_second(device):
    """With global response normalisation and channels last inside."""
    c, n, a, b = nn.Conv2d(8, 8, 7, padding=3, groups=8).to(device), nn.LayerNorm(8, eps=1e-6).to(device), nn.Linear(8, 32).to(device), nn.Linear(32, 8).to(device)
    gain, bias = (nn.Parameter(torch.full((1, 1, 1, 32), v, device=device)) for v in (0.5, 0.1))

    def forward(x):
        y = F.gelu(a(n(c(x).permute(0, 2, 3, 1))))
        size = torch.norm(y, p=2, dim=(1, 2), keepdim=True)
        y = gain * (y * (size / (size.mean(dim=-1, keepdim=True) + 1e-6))) + bias + y
        return x + b(y).permute(0, 3, 1, 2)

    return forward, [data(2, 8, 6, 6, device=device)]


@model
def unet_decoder(device):
    up, c = nn.ConvTranspose2d(8, 4, 2, stride=2).to(device), nn.Conv2d(8, 4, 3, padding=1, padding_mode="reflect").to(device)

    def forward(x, skip):
        y = up(x)
        dy, dx = skip.shape[2] - y.shape[2], skip.shape[3] - y.shape[3]
        y = F.pad(y, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        y = F.instance_norm(c(torch.cat([skip, y], dim=1)))
        return torch.sigmoid(F.interpolate(F.leaky_relu(y, 0.1), scale_factor=2, mode="bilinear", align_corners=True))

    return forward, [data(2, 8, 4, 4, device=device), data(2, 4, 9, 10, device=device)]


@model
def feature_pyramid(device):
    lateral, smooth = (nn.ModuleList(nn.Conv2d(c, 6, k, padding=k // 2) for c in cs).to(device) for cs, k in (((3, 4), 1), ((6, 6), 3)))

    def forward(a, b):
        low, high = lateral[0](a), lateral[1](b)
        low = low + F.interpolate(high, size=low.shape[-2:], mode="nearest")
        return {"low": smooth[0](low), "high": smooth[1](high), "pool": F.max_pool2d(high, 1, stride=2)}

    return forward, [data(1, 3, 8, 8, device=device), data(1, 4, 4, 4, device=device)]


@model
def super_resolution(device):
    a, b = nn.Conv2d(3, 8, 3, padding=1).to(device), nn.Conv2d(8, 12, 3, padding=1).to(device)
    slope = nn.Parameter(torch.full((8,), 0.25, device=device))
    return lambda x: F.pixel_shuffle(b(F.prelu(a(x), slope)), 2).clamp(0, 1) + F.interpolate(x, scale_factor=2, mode="nearest"), [data(2, 3, 5, 5, device=device)]


@model
def pools_of_every_kind(device):
    def forward(x):
        a = F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)
        b, at = F.max_pool2d(x, 2, return_indices=True)
        c, d = F.adaptive_avg_pool2d(x, (3, 2)), F.adaptive_max_pool2d(x, (2, 3))
        e = F.lp_pool2d(x.abs() + 0.1, 2, 2)
        return a, b, c, d, e, F.max_pool2d(x, 3, 2, 1, dilation=2) if x.shape[2] > 6 else x, F.avg_pool1d(x.flatten(2), 3), F.max_pool3d(x[None], (1, 2, 2)), at

    return forward, [data(2, 3, 8, 7, device=device)]


@model
def paddings_of_every_kind(device):
    def forward(x):
        return [F.pad(x, (2, 1, 1, 2), mode=m) for m in ("reflect", "replicate", "circular")] + [F.pad(x, (1, -1, 0, 2), value=3.0), F.pad(x, (-1, -1))]

    return forward, [data(2, 3, 5, 6, device=device)]


@model
def standardised_weights(device):
    """A convolution whose weight has no mean and one deviation; a linear layer whose weight is a direction and a length."""
    w, v, g = data(6, 3, 3, 3, device=device), data(4, 6, device=device), data(4, 1, device=device)

    def forward(x):
        var, mean = torch.var_mean(w, dim=[1, 2, 3], keepdim=True, unbiased=False)
        y = F.group_norm(F.conv2d(x, (w - mean) * torch.rsqrt(var + 1e-5), padding=1), 2)
        return F.linear(y.mean((2, 3)), v * (g / v.norm(dim=1, keepdim=True)))

    return forward, [data(2, 3, 5, 5, device=device)]


# ---- diffusion ----


@model
def timesteps_and_modulation(device):
    """A sinusoidal embedding of the step, and a block whose norms are shifted and scaled by it."""
    embed = nn.Sequential(nn.Linear(16, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 6 * WIDTH)).to(device)
    norm, a, b, qkv = nn.LayerNorm(WIDTH, elementwise_affine=False).to(device), nn.Linear(WIDTH, 64).to(device), nn.Linear(64, WIDTH).to(device), nn.Linear(WIDTH, 3 * WIDTH).to(device)

    def forward(x, t):
        frequency = torch.exp(-math.log(10000) * torch.arange(8, device=device, dtype=torch.float32) / 8)
        angle = t[:, None].float() * frequency[None]
        s1, c1, g1, s2, c2, g2 = embed(torch.cat([angle.cos(), angle.sin()], dim=-1)).chunk(6, dim=1)
        h = norm(x) * (1 + c1.unsqueeze(1)) + s1.unsqueeze(1)
        q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in qkv(h).chunk(3, -1))
        x = x + g1.unsqueeze(1) * F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        h = norm(x) * (1 + c2.unsqueeze(1)) + s2.unsqueeze(1)
        return x + g2.unsqueeze(1) * b(F.gelu(a(h), approximate="tanh"))

    return forward, [data(2, 6, WIDTH, device=device), torch.tensor([3, 700], device=device)]


@model
def noise_schedule(device):
    """The loss of a step: noise is given, the schedule is a table that is indexed by the step."""
    net = nn.Sequential(nn.Linear(9, 16), nn.SiLU(), nn.Linear(16, 8)).to(device)
    betas = torch.linspace(1e-4, 0.02, 50, device=device, dtype=torch.float64)
    table = torch.cumprod(1 - betas, 0).float()

    def forward(x, noise, t):
        a = table.gather(-1, t).view(-1, *([1] * (x.dim() - 1)))
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        made = net(torch.cat([noisy, (t / 50)[:, None]], 1))
        snr = a / (1 - a)
        weight = torch.minimum(snr, torch.full_like(snr, 5.0)) / snr
        return (weight * F.mse_loss(made, noise, reduction="none")).mean()

    return forward, [data(4, 8, device=device), data(4, 8, device=device, grad=False), torch.tensor([3, 49, 0, 20], device=device)]


@model
def coupling_flow(device):
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8)).to(device)

    def forward(x):
        a, b = x.chunk(2, -1)
        s, t = net(a).chunk(2, -1)
        s = torch.tanh(s)
        z, log_det = torch.cat([a, b * s.exp() + t], -1), s.sum(-1)
        return -(torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(-1) + log_det).mean()

    return forward, [data(6, 8, device=device)]


# ---- detection ----


def corners(boxes):
    x, y, w, h = boxes.unbind(-1)
    return torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1)


@model
def generalised_overlap(device):
    def forward(a, b):
        a, b = corners(a.sigmoid()), corners(b.sigmoid())
        area = lambda r: (r[..., 2] - r[..., 0]) * (r[..., 3] - r[..., 1])
        top, low = torch.max(a[:, None, :2], b[None, :, :2]), torch.min(a[:, None, 2:], b[None, :, 2:])
        inside = (low - top).clamp(min=0).prod(2)
        union = area(a)[:, None] + area(b) - inside
        hull = (torch.max(a[:, None, 2:], b[None, :, 2:]) - torch.min(a[:, None, :2], b[None, :, :2])).clamp(min=0)
        whole = hull[..., 0] * hull[..., 1]
        giou = inside / union - (whole - union) / whole
        return (1 - torch.diag(giou)).sum(), giou

    return forward, [data(5, 4, device=device), data(5, 4, device=device)]


@model
def suppression_and_focal_loss(device):
    """A matrix form of non-maximum suppression, and the loss of dense detectors."""

    def forward(boxes, scores, logits, target):
        order = scores.argsort(descending=True, stable=True)
        b = boxes[order]
        top, low = torch.maximum(b[:, None, :2], b[:, :2]), torch.minimum(b[:, None, 2:], b[:, 2:])
        inside = (low - top).clamp_min(0).prod(-1)
        size = (b[:, 2:] - b[:, :2]).prod(-1)
        overlap = (inside / (size[:, None] + size - inside + 1e-6)).triu(1)
        decay = (1 - overlap.max(0).values).clamp(0)
        p, ce = torch.sigmoid(logits), F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        both = p * target + (1 - p) * (1 - target)
        loss = (0.25 * target + 0.75 * (1 - target)) * ce * (1 - both) ** 2
        return scores[order] * decay, loss.sum() / target.sum().clamp(min=1)

    start = torch.rand(6, 2, device=device)
    boxes = torch.cat([start, start + 0.2 + torch.rand(6, 2, device=device)], 1)
    return forward, [boxes.requires_grad_(), torch.linspace(0.1, 0.9, 6, device=device).roll(2).requires_grad_(), data(6, 3, device=device), (torch.rand(6, 3, device=device) > 0.5).float()]


# ---- graphs, recommenders, learning by rewards ----


@model
def message_passing(device):
    """Sums, means and largest of neighbours by index, degrees by counting, a softmax over each one's edges."""
    lin, score = nn.Linear(8, 8).to(device), nn.Linear(16, 1).to(device)
    source, target = whole(20, 6, device), whole(20, 5, device)

    def forward(x):
        h = lin(x)
        degree = torch.zeros(6, device=device).scatter_add_(0, target, torch.ones(20, device=device)).clamp(min=1)
        edge = degree[source].rsqrt() * degree[target].rsqrt()
        summed = torch.zeros_like(h).index_add_(0, target, h[source] * edge[:, None])
        s = F.leaky_relu(score(torch.cat([h[source], h[target]], -1)).squeeze(-1), 0.2)
        top = torch.full((6,), -1e9, device=device).scatter_reduce(0, target, s, "amax")
        e = (s - top[target]).exp()
        weight = e / torch.zeros(6, device=device).scatter_add(0, target, e)[target]
        weighted = torch.zeros_like(h).scatter_add(0, target[:, None].expand(-1, 8), weight[:, None] * h[source])
        return F.elu(summed / degree[:, None] + weighted)

    return forward, [data(6, 8, device=device)]


@model
def bags_and_crosses(device):
    """Embedding bags of several lengths, a cross network, log-loss."""
    bag, w, b, out = nn.EmbeddingBag(30, 8, mode="sum").to(device), data(24, device=device), data(24, device=device), nn.Linear(24, 1).to(device)
    index, offsets = whole(17, 30, device), torch.tensor([0, 3, 3, 9, 12], device=device)

    def forward(x, y):
        first = torch.cat([bag(index, offsets), x], 1)
        h = first
        for _ in range(2):
            h = first * (h @ w)[:, None] + b + h
        return F.binary_cross_entropy(torch.sigmoid(out(h)).squeeze(1), y), h

    return forward, [data(5, 16, device=device), torch.tensor([0.0, 1, 1, 0, 1], device=device)]


@model
def policy_and_advantages(device):
    """Advantages by a reversed scan, the clipped objective, entropy, a clipped value loss."""

    def forward(logits, values, rewards, old, actions):
        gathered, last = [], torch.zeros(3, device=device)
        for t in reversed(range(4)):
            delta = rewards[t] + 0.99 * values[t + 1].detach() - values[t].detach()
            last = delta + 0.95 * 0.99 * last
            gathered.append(last)
        advantage = torch.stack(gathered[::-1])
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        log = logits.log_softmax(-1)
        ratio = (log.gather(-1, actions[..., None]).squeeze(-1) - old).exp()
        policy = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        entropy = -(log.exp() * log).sum(-1).mean()
        clipped = old + (values[:4] - old).clamp(-0.2, 0.2)
        value = torch.max((values[:4] - advantage) ** 2, (clipped - advantage) ** 2).mean()
        return policy - 0.01 * entropy + 0.5 * value

    return forward, [data(4, 3, 5, device=device), data(5, 3, device=device), data(4, 3, device=device, grad=False), data(4, 3, device=device, grad=False), whole(12, 5, device).view(4, 3)]


@model
def distributional_values(device):
    """C51: rewards shift a distribution over a grid; its mass is put back on the grid by index."""

    def forward(logits, rewards):
        grid = torch.linspace(-2, 2, 9, device=device)
        p = logits.softmax(-1)
        moved = (rewards[:, None] + 0.9 * grid).clamp(-2, 2)
        at = (moved + 2) / 0.5
        low, high = at.floor().long(), at.ceil().long()
        low, high = torch.where((high > 0) & (low == high), low - 1, low), torch.where((low < 8) & (low == high), high + 1, high)
        m, offset = torch.zeros_like(p), torch.arange(0, p.numel(), 9, device=device)[:, None]
        m.view(-1).index_add_(0, (low + offset).view(-1), (p * (high.float() - at)).view(-1))
        m.view(-1).index_add_(0, (high + offset).view(-1), (p * (at - low.float())).view(-1))
        return m

    return forward, [data(4, 9, device=device), torch.tensor([0.3, -0.7, 1.9, 0.0], device=device)]


# ---- speech ----


@model
def conformer_convolution(device):
    n, a, d, bn, b = nn.LayerNorm(WIDTH).to(device), nn.Conv1d(WIDTH, 2 * WIDTH, 1).to(device), nn.Conv1d(WIDTH, WIDTH, 5, padding=2, groups=WIDTH).to(device), nn.BatchNorm1d(WIDTH).to(device), nn.Conv1d(WIDTH, WIDTH, 1).to(device)
    return lambda x: x + b(F.silu(bn(d(F.glu(a(n(x).transpose(1, 2)), dim=1))))).transpose(1, 2), [data(2, 9, WIDTH, device=device)]


@model
def dilated_waves(device):
    a, b = nn.Conv1d(4, 8, 2, dilation=2).to(device), nn.Conv1d(4, 4, 1).to(device)

    def forward(x):
        y = a(F.pad(x, (2, 0)))
        return x + b(torch.tanh(y[:, :4]) * torch.sigmoid(y[:, 4:]))

    return forward, [data(2, 4, 11, device=device)]


@model
def fourier_mixing(device):
    w = data(3, 4, 2, device=device)

    def forward(x):
        mixed = torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real
        spectrum = torch.fft.rfft(x, dim=1)[:, :3] * torch.view_as_complex(w)
        return F.layer_norm(x + mixed, (4,)) + torch.fft.irfft(spectrum, n=x.shape[1], dim=1)

    return forward, [data(2, 6, 4, device=device)]


# ---- losses ----


@model
def every_loss(device):
    t, sign = whole(6, 5, device), torch.tensor([1.0, -1, 1, 1, -1, -1], device=device)

    def forward(x, y):
        p = y.sigmoid()
        return [
            F.cross_entropy(x, t, weight=torch.linspace(0.5, 2, 5, device=device), ignore_index=2, label_smoothing=0.1),
            F.cross_entropy(x, p / p.sum(1, keepdim=True)), F.nll_loss(x.log_softmax(1), t, reduction="sum"),
            F.binary_cross_entropy_with_logits(x, p, pos_weight=torch.full((5,), 3.0, device=device)), F.poisson_nll_loss(x, p, full=True),
            F.gaussian_nll_loss(x, y, p + 0.1), F.kl_div(x.log_softmax(1), y.log_softmax(1), log_target=True, reduction="sum"),
            F.huber_loss(x, y, delta=0.7, reduction="none"), F.smooth_l1_loss(x, y, beta=0.3), F.soft_margin_loss(x, y.detach().sign()),
            F.margin_ranking_loss(x[:, 0], y[:, 0], sign, margin=0.2), F.hinge_embedding_loss(x[:, 1], sign), F.cosine_embedding_loss(x, y, sign, margin=0.1),
            F.triplet_margin_loss(x, y, x.flip(0), p=2, swap=True), F.multi_margin_loss(x, t), F.multilabel_soft_margin_loss(x, (y > 0).float()),
            F.l1_loss(x, y, reduction="sum"),
        ]

    return forward, [data(6, 5, device=device), data(6, 5, device=device)]


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
