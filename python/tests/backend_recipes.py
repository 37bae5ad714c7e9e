"""Recipes around models: decoding with a cache of keys, routing to experts, steps of diffusion samplers, contrastive losses, filters of next tokens, values of
rollouts, quantised weights, writes by masks and indices. PROGRAMS as in backend_parts.py.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from .backend_parts import data, model, whole

# ---- language ----


def turned(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


class CachedAttention(nn.Module):
    """Rotary, with fewer heads of keys than of queries, and a cache that grows."""

    def __init__(self, width=32, heads=4, shared=2):
        super().__init__()
        self.heads, self.shared, self.each = heads, shared, width // heads
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.key, self.value = nn.Linear(width, shared * self.each, bias=False), nn.Linear(width, shared * self.each, bias=False)
        self.gain = nn.Parameter(torch.ones(width))
        self.register_buffer("rates", 1.0 / 10000 ** (torch.arange(0, self.each, 2).float() / self.each), persistent=False)

    def split(self, x, heads):
        return x.view(*x.shape[:2], heads, self.each).transpose(1, 2)

    def forward(self, x, places, cache=None, mask=None):
        x = self.gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        q, k, v = self.split(self.query(x), self.heads), self.split(self.key(x), self.shared), self.split(self.value(x), self.shared)
        with torch.no_grad():
            angles = torch.outer(places.float(), self.rates)
            angles = torch.cat((angles, angles), -1)
        q, k = (t * angles.cos() + turned(t) * angles.sin() for t in (q, k))
        if cache is not None:
            k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
        cache = (k, v)
        k, v = (t.repeat_interleave(self.heads // self.shared, 1) for t in cache)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.each)
        scores = scores if mask is None else scores + mask
        mixed = F.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v
        return self.out(mixed.transpose(1, 2).reshape(x.shape)), cache


@model
def prefill_then_decode(device):
    layer = CachedAttention().to(device)

    def forward(x):
        count = x.shape[1]
        mask = torch.full((count, count), torch.finfo(x.dtype).min, device=x.device).triu(1)
        y, cache = layer(x, torch.arange(count, device=x.device), mask=mask)
        steps = [y]
        for t in range(3):
            y, cache = layer(y[:, -1:], torch.tensor([count + t], device=x.device), cache)
            steps.append(y)
        return torch.cat(steps, 1), cache[0]

    return forward, [data(2, 5, 32, device=device)]


@model
def experts_by_scatter(device):
    gate = nn.Linear(16, 4).to(device)
    up, down = (nn.Parameter(torch.randn(4, a, b, device=device) * 0.2) for a, b in ((16, 24), (24, 16)))

    def forward(x):
        shares = gate(x).softmax(-1)
        weights, chosen = shares.topk(2)
        weights = weights / weights.sum(-1, keepdim=True)
        full = torch.zeros_like(shares).scatter(1, chosen, weights)
        mixed = sum(full[:, e, None] * (F.silu(x @ up[e]) @ down[e]) for e in range(4))
        load = F.one_hot(chosen, 4).float().sum(1).mean(0)
        return mixed, (shares.mean(0) * load).sum() * 4

    return forward, [data(9, 16, device=device)]


@model
def slopes_in_a_window(device):
    def forward(q, k, v):
        at = torch.arange(q.shape[2], device=q.device)
        away = at[:, None] - at[None]
        slopes = 2 ** (-8 * torch.arange(1, 4, device=q.device) / 3.0)
        bias = (-away.abs() * slopes[:, None, None]).masked_fill((away < 0) | (away >= 4), float("-inf"))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None]) * 2 + 1

    return forward, [data(2, 3, 7, 4, device=device) for _ in range(3)]


@model
def filters_of_next_tokens(device):
    seen = torch.tensor([[1, 2, 2], [4, 0, 1]], device=device)

    def forward(x):
        best, order = torch.sort(x, descending=True)
        gone = best.softmax(-1).cumsum(-1) > 0.7
        gone[..., 1:] = gone[..., :-1].clone()
        gone[..., 0] = False
        often = torch.gather(x, 1, seen)
        often = torch.where(often < 0, often * 1.2, often / 1.2)
        return x.masked_fill(gone.scatter(1, order, gone), -1e4), torch.where(x < torch.topk(x, 3)[0][..., -1, None], -1e4, x), x.scatter(1, seen, often)

    return forward, [data(2, 11, device=device)]


@model
def accepted_drafts(device):
    def forward(p, q, drafts):
        p, q = p.softmax(-1), q.softmax(-1)
        taken = (p.gather(-1, drafts) / q.gather(-1, drafts)).clamp(max=1)
        rest = (p - q).clamp(min=0)
        return taken, (taken > 0.5).int().cumprod(1).sum(1), rest / rest.sum(-1, keepdim=True).clamp(min=1e-9)

    return forward, [data(2, 4, 9, device=device), data(2, 4, 9, device=device), whole(8, 9, device).view(2, 4, 1)]


# ---- samplers and losses ----


@model
def steps_of_samplers(device):
    kept = torch.cumprod(1 - torch.linspace(1e-2, 0.141, 50, device=device) ** 2, 0)

    def forward(x, noise, t):
        now, before = kept[t].view(-1, 1, 1), kept[(t - 5).clamp(min=0)].view(-1, 1, 1)
        clean = ((x - (1 - now).sqrt() * noise) / now.sqrt()).clamp(-1, 1)
        spread = 0.3 * ((1 - before) / (1 - now)).sqrt() * (1 - now / before).clamp(min=0).sqrt()
        x = before.sqrt() * clean + (1 - before - spread**2).clamp(min=0).sqrt() * noise
        sigmas = torch.cat([torch.linspace(14.6 ** (1 / 7), 0.03 ** (1 / 7), 4, device=x.device) ** 7, torch.zeros(1, device=x.device)])
        for a, b in zip(sigmas[:-1], sigmas[1:]):
            x = x + (x - torch.tanh(x / (a**2 + 1) ** 0.5)) / a * (b - a)
        return x, clean

    return forward, [data(3, 4, 4, device=device), data(3, 4, 4, device=device), torch.tensor([7, 20, 49], device=device)]


@model
def contrast_with_a_queue(device):
    queue, scale = F.normalize(torch.randn(8, 20, device=device), dim=0), nn.Parameter(torch.tensor(2.6, device=device))
    same = whole(6, 3, device)

    def forward(a, b):
        a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
        scores = torch.cat([torch.einsum("nc,nc->n", a, b)[:, None], torch.einsum("nc,ck->nk", a, queue.clone().detach())], 1)
        first = F.cross_entropy(scores * scale.exp().clamp(max=100), torch.zeros(a.shape[0], dtype=torch.long, device=a.device))
        pairs = a @ a.T / 0.1
        pairs = pairs - pairs.max(1, keepdim=True)[0].detach()
        other = 1 - torch.eye(6, device=a.device)
        mask = (same[:, None] == same[None]).float() * other
        logs = pairs - torch.log((pairs.exp() * other).sum(1, keepdim=True))
        return first, -((mask * logs).sum(1) / mask.sum(1).clamp(min=1)).mean()

    return forward, [data(6, 8, device=device), data(6, 8, device=device)]


@model
def smoothed_by_hand(device):
    target = torch.tensor([1, 0, -100, 3, 2], device=device)

    def forward(x):
        logs, padded = F.log_softmax(x, -1), target.eq(-100)
        right = -logs.gather(-1, target.clamp(min=0)[:, None]).squeeze(-1).masked_fill(padded, 0.0)
        count = (~padded).sum()
        return 0.9 * right.sum() / count + 0.1 * (-logs.mean(-1)).masked_fill(padded, 0.0).sum() / count

    return forward, [data(5, 7, device=device)]


@model
def likeness_of_images(device):
    window = torch.ones(1, 1, 3, 3, device=device) / 9

    def forward(a, b):
        means = [F.conv2d(t, window, padding=1) for t in (a, b, a * a, b * b, a * b)]
        spreads = [means[2] - means[0] ** 2, means[3] - means[1] ** 2, means[4] - means[0] * means[1]]
        alike = (2 * means[0] * means[1] + 1e-4) * (2 * spreads[2] + 9e-4) / ((means[0] ** 2 + means[1] ** 2 + 1e-4) * (spreads[0] + spreads[1] + 9e-4))
        return 1 - alike.mean() + (a[..., 1:, :] - a[..., :-1, :]).abs().mean() + torch.diff(a, dim=-1).abs().mean()

    return forward, [data(2, 1, 8, 8, device=device), data(2, 1, 8, 8, device=device)]


@model
def advantages_backwards(device):
    ended = (whole(15, 5, device) == 0).float().view(5, 3)

    def forward(rewards, values):
        made, last = torch.zeros_like(rewards), 0
        for t in reversed(range(rewards.shape[0])):
            after = values[t + 1] if t + 1 < rewards.shape[0] else torch.zeros_like(values[0])
            last = rewards[t] + 0.99 * after * (1 - ended[t]) - values[t] + 0.94 * (1 - ended[t]) * last
            made[t] = last
        return (made - made.mean()) / (made.std() + 1e-8)

    return forward, [data(5, 3, device=device), data(5, 3, device=device)]


# ---- numbers and writes ----


@model
def weights_of_four_bits(device):
    code = torch.linspace(-1, 1, 16, device=device)
    packed = (whole(12, 256, device) * 37 % 256).to(torch.uint8).view(3, 4)

    def forward(largest, x):
        pairs = torch.stack([code[(packed >> 4).long()], code[(packed & 15).long()]], -1).flatten(-2)
        return x @ (pairs.view(-1, 4) * largest[:, None]).view(3, 8).T

    return forward, [data(6, device=device), data(5, 8, device=device)]


@model
def remainders(device):
    """Angles and places that wrap around: multiples, as rounded, stay inside."""

    def forward(x):
        steps = torch.arange(-30, 30, device=x.device) * 0.1
        return steps % 0.1, torch.remainder(steps, -0.3), (x * 10) % (2 * math.pi), steps.double() % 0.7

    return forward, [data(3, 8, device=device)]


@model
def writes_by_masks(device):
    def forward(x):
        y = x.clone()
        y[x > 0.5] = 0.25
        y[torch.tensor([0, 2], device=x.device)] = y[torch.tensor([1, 1], device=x.device)] * 2
        y[:, 1:3].mul_(2).add_(1)
        y.view(-1)[::3] += 5
        y.diagonal().fill_(7.0)
        y.select(1, 0).copy_(x[:, 1])
        return y.masked_scatter(y < 0, torch.arange(24.0, device=x.device).view(4, 6)), y.unfold(1, 2, 2).sum(-1)

    return forward, [data(4, 6, device=device)]
