"""Language models, and parts of them, as people bring them: blocks of well-known ones, masks, caches, rotations, routers, experts, states. PROGRAMS as
in backend_parts.py.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from .backend_parts import HEADS, WIDTH, data, model


# ---- attention and blocks ----


class GPT2Block(nn.Module):
    """As in the usual library: a fused projection, a mask kept as a buffer, the tanh form of gelu written out."""

    def __init__(self, width, heads, longest=64):
        super().__init__()
        self.ln_1, self.ln_2, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("bias", torch.tril(torch.ones(longest, longest, dtype=torch.bool)).view(1, 1, longest, longest), persistent=False)
        self.drop = nn.Dropout(0.0)

    def forward(self, x, attention_mask=None):
        b, t, c = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in (q, k, v))
        scores = torch.matmul(q, k.transpose(-1, -2)) / torch.full([], v.size(-1) ** 0.5, dtype=v.dtype, device=v.device)
        scores = torch.where(self.bias[:, :, :t, :t], scores, torch.finfo(scores.dtype).min)
        if attention_mask is not None:
            scores = scores + (1.0 - attention_mask[:, None, None, :].to(scores.dtype)) * torch.finfo(scores.dtype).min
        y = self.drop(nn.functional.softmax(scores, dim=-1).type(v.dtype)) @ v
        x = x + self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))
        h = self.c_fc(self.ln_2(x))
        h = 0.5 * h * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * torch.pow(h, 3.0))))
        return x + self.drop(self.c_out(h))


@model
def gpt2_block(device):
    return GPT2Block(WIDTH, HEADS).to(device), [data(2, 12, WIDTH, device=device)]


@model
def gpt2_block_padded(device):
    mask = torch.ones(2, 12, dtype=torch.int64, device=device)
    mask[1, 8:] = 0
    return GPT2Block(WIDTH, HEADS).to(device), [data(2, 12, WIDTH, device=device), mask]


class BertEmbeddings(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.word, self.place, self.kind = nn.Embedding(words, width, padding_idx=0), nn.Embedding(64, width), nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(64).expand((1, -1)))

    def forward(self, ids):
        places = self.position_ids[:, : ids.shape[1]]
        kinds = torch.zeros(ids.shape, dtype=torch.long, device=ids.device)
        return self.norm(self.word(ids) + self.kind(kinds) + self.place(places))


@model
def bert(device):
    embed, layer, pool = BertEmbeddings(40, WIDTH).to(device), nn.TransformerEncoderLayer(WIDTH, HEADS, 64, dropout=0.0, activation="gelu", batch_first=True).to(device), nn.Linear(WIDTH, WIDTH).to(device)
    ids = (torch.arange(22, device=device) * 7 % 40).view(2, 11)

    def forward(scale):
        mask = ids == 0
        h = layer(embed(ids) * scale, src_key_padding_mask=mask)
        return torch.tanh(pool(h[:, 0]))

    return forward, [data(1, device=device)]


@model
def t5_attention(device):
    """Relative positions by buckets, no scaling, RMS norm in f32."""
    q, k, v, o = (nn.Linear(WIDTH, WIDTH, bias=False).to(device) for _ in range(4))
    table = nn.Embedding(8, HEADS).to(device)
    weight = nn.Parameter(torch.ones(WIDTH, device=device))

    def buckets(length):
        distance = torch.arange(length, device=device)[None, :] - torch.arange(length, device=device)[:, None]
        found = (distance > 0).to(torch.long) * 4
        n = distance.abs()
        far = 2 + (torch.log(n.float() / 2 + 1e-9) / math.log(8 / 2) * 2).to(torch.long)
        return found + torch.where(n < 2, n, torch.min(far, torch.full_like(far, 3)))

    def forward(x):
        h = weight * (x * torch.rsqrt(x.to(torch.float32).pow(2).mean(-1, keepdim=True) + 1e-6))
        split = lambda y: y.view(x.shape[0], -1, HEADS, WIDTH // HEADS).transpose(1, 2)
        scores = split(q(h)) @ split(k(h)).transpose(3, 2)
        scores = scores + table(buckets(x.shape[1])).permute(2, 0, 1).unsqueeze(0)
        y = F.softmax(scores.float(), dim=-1).type_as(scores) @ split(v(h))
        return x + o(y.transpose(1, 2).contiguous().view(x.shape))

    return forward, [data(2, 9, WIDTH, device=device)]


@model
def grouped_query_rope(device):
    """Llama's: rotation by halves with repeated angles, two heads of keys for four of queries, a float mask."""
    q, k, v = nn.Linear(WIDTH, 32, bias=False).to(device), nn.Linear(WIDTH, 16, bias=False).to(device), nn.Linear(WIDTH, 16, bias=False).to(device)
    inverse = 1.0 / (10000 ** (torch.arange(0, 8, 2, dtype=torch.int64, device=device).float() / 8))

    def rotate_half(x):
        return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)

    def forward(x):
        b, t, _ = x.shape
        a, c, d = (f(x).view(b, t, -1, 8).transpose(1, 2) for f in (q, k, v))
        angles = (inverse[None, :, None].expand(b, -1, 1) @ torch.arange(t, device=device)[None, None, :].expand(b, 1, -1).float()).transpose(1, 2)
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)
        a, c = a * cos + rotate_half(a) * sin, c * cos + rotate_half(c) * sin
        c, d = (y[:, :, None, :, :].expand(b, 2, 2, t, 8).reshape(b, 4, t, 8) for y in (c, d))
        mask = torch.full((t, t), torch.finfo(x.dtype).min, device=device).triu(1)
        weights = F.softmax(a @ c.transpose(2, 3) * 8**-0.5 + mask[None, None], dim=-1, dtype=torch.float32).to(a.dtype)
        return (weights @ d).transpose(1, 2).reshape(b, t, -1)

    return forward, [data(2, 10, WIDTH, device=device)]


@model
def rope_interleaved_complex(device):
    """GPT-J's pairs, and the same by complex numbers, which torch keeps."""

    def forward(x):
        t = torch.arange(x.shape[1], device=device, dtype=torch.float32)
        f = torch.outer(t, 1.0 / 100 ** (torch.arange(0, x.shape[-1], 2, device=device).float() / x.shape[-1]))
        sin, cos = f.sin().repeat_interleave(2, -1), f.cos().repeat_interleave(2, -1)
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)) * torch.polar(torch.ones_like(f), f)
        return x * cos + turned * sin, torch.view_as_real(z).flatten(2)

    return forward, [data(2, 6, 8, device=device)]


@model
def sdpa_with_bias(device):
    bias = data(1, 4, 7, 7, device=device)
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=bias) * 2 + q, [data(2, 4, 7, 8, device=device) for _ in range(3)]


@model
def mamba_like(device):
    """A selective state space, step by step, with its causal convolution."""
    inner, state = 16, 4
    project, conv = nn.Linear(8, 2 * inner, bias=False).to(device), nn.Conv1d(inner, inner, 3, groups=inner, padding=2).to(device)
    x_proj, dt_proj, out = nn.Linear(inner, 2 + 2 * state, bias=False).to(device), nn.Linear(2, inner).to(device), nn.Linear(inner, 8, bias=False).to(device)
    a_log = nn.Parameter(torch.log(torch.arange(1, state + 1, device=device).float().repeat(inner, 1)))
    skip = nn.Parameter(torch.ones(inner, device=device))

    def forward(x):
        b, t, _ = x.shape
        u, z = project(x).chunk(2, dim=-1)
        u = F.silu(conv(u.transpose(1, 2))[..., :t].transpose(1, 2))
        dt, bb, cc = x_proj(u).split([2, state, state], dim=-1)
        dt = F.softplus(dt_proj(dt))
        da = torch.exp(dt.unsqueeze(-1) * -torch.exp(a_log))
        db = dt.unsqueeze(-1) * bb.unsqueeze(2) * u.unsqueeze(-1)
        h, ys = torch.zeros(b, inner, state, device=x.device), []
        for i in range(t):
            h = da[:, i] * h + db[:, i]
            ys.append((h * cc[:, i].unsqueeze(1)).sum(-1))
        return out((torch.stack(ys, 1) + u * skip) * F.silu(z))

    return forward, [data(2, 5, 8, device=device)]


@model
def mixture_of_experts(device):
    """Top-2 of four experts: weights scattered back, every expert on all rows."""
    gate, up, down = nn.Linear(16, 4, bias=False).to(device), data(4, 16, 24, device=device), data(4, 24, 16, device=device)

    def forward(x):
        probabilities = F.softmax(gate(x), dim=-1)
        top, chosen = torch.topk(probabilities, 2, dim=-1)
        top = top / top.sum(-1, keepdim=True)
        weights = torch.zeros_like(probabilities).scatter(-1, chosen, top)
        h = torch.einsum("nd,edh->enh", x, up)
        y = torch.einsum("enh,ehd->end", F.silu(h), down)
        balance = (F.one_hot(chosen, 4).float().mean((0, 1)) * probabilities.mean(0)).sum() * 4
        return torch.einsum("end,ne->nd", y, weights), balance

    return forward, [data(12, 16, device=device)]


# ---- caches, slopes, routers ----


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
