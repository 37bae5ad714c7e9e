"""Sixty models and snippets at the sizes people run, for bench/torch_backend.py: pointwise, norms, losses, MLPs, CNNs, transformers,
recommenders, recurrent nets. MODELS: name -> a function of the device and a divisor of the sizes that gives (function, inputs).
SPDX-License-Identifier: MIT
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

MODELS = {}
B16 = torch.bfloat16


def model(make):
    MODELS[make.__name__] = make
    return make


def data(*shape, device, dtype=torch.float32, grad=True):
    x = torch.randn(*shape, device=device).to(dtype)
    return x.requires_grad_() if grad else x


def labels(count, classes, device):
    return (torch.arange(count, device=device) * 7919) % classes


def snippet(name, function, *shapes, dtype=torch.float32, target=None):
    """shapes: their first axis is divided; target: (rows, classes) of labels that come last."""

    def make(device, divide=1):
        args = [data(max(1, s[0] // divide) if len(s) > 1 else s[0], *s[1:], device=device, dtype=dtype) for s in shapes]
        if target:
            args.append(labels(max(1, target[0] // divide), target[1], device))
        return function, args

    MODELS[name] = make


# ---- pointwise ----

ROWS, WIDTH = 8192, 1024
snippet("gelu_residual", lambda x, y: F.gelu(x) + y * 0.5, (ROWS, WIDTH), (ROWS, WIDTH))
snippet("gelu_tanh_bf16", lambda x, b: F.gelu(x + b, approximate="tanh"), (ROWS, 4096), (4096,), dtype=B16)
snippet("swiglu_bf16", lambda x, y: F.silu(x) * y, (ROWS, 2816), (ROWS, 2816), dtype=B16)
snippet("bias_relu_residual", lambda x, b, r: torch.relu(x + b) * 1.5 + r, (ROWS, WIDTH), (WIDTH,), (ROWS, WIDTH))
snippet("chain_of_nine", lambda x: (torch.tanh(x) * 2 + x.sigmoid()).relu() - x.clamp(-1, 1) * 0.1, (ROWS, WIDTH))
snippet("hard_ones", lambda x: F.hardswish(x) + F.hardsigmoid(x) * F.relu6(x), (64, 64, 56, 56))
snippet("modulate", lambda x, s, t: F.silu(x * (1 + s) + t) + x, (16, 1024, 1152), (16, 1, 1152), (16, 1, 1152))
snippet("layer_scale_bf16", lambda x, g, r: r + g * torch.tanh(x), (ROWS, WIDTH), (WIDTH,), (ROWS, WIDTH), dtype=B16)
snippet("rope", lambda x, t: torch.cat([x[..., :32] * t.cos() - x[..., 32:] * t.sin(), x[..., :32] * t.sin() + x[..., 32:] * t.cos()], -1), (8, 16, 1024, 64), (1, 1, 1024, 32))
snippet("geglu_bf16", lambda x: F.gelu(x[..., :2048]) * x[..., 2048:], (ROWS, 4096), dtype=B16)
snippet("mish_softplus", lambda x: F.mish(x) + F.softplus(x) * F.elu(x), (ROWS, WIDTH))

# ---- norms and softmax ----

snippet("layer_norm", lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b) * 2, (ROWS, WIDTH), (WIDTH,), (WIDTH,))
snippet("layer_norm_bf16", lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b), (ROWS, WIDTH), (WIDTH,), (WIDTH,), dtype=B16)
snippet("add_layer_norm", lambda x, r, w, b: F.layer_norm(x + r, (WIDTH,), w, b), (ROWS, WIDTH), (ROWS, WIDTH), (WIDTH,), (WIDTH,))
snippet("rms_norm", lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, (ROWS, WIDTH), (WIDTH,))
snippet("rms_norm_bf16", lambda x, w: (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(B16) * w, (ROWS, 2048), (2048,), dtype=B16)
snippet("group_norm_silu", lambda x, w, b: F.silu(F.group_norm(x, 32, w, b)), (32, 320, 32, 32), (320,), (320,))
snippet("instance_norm", lambda x: F.leaky_relu(F.instance_norm(x), 0.2), (16, 64, 64, 64))
snippet("softmax_scaled", lambda x: torch.softmax(x * 0.3, -1), (ROWS, WIDTH))
snippet("masked_softmax", lambda x: torch.softmax((x / 8).masked_fill(torch.ones(512, 512, device=x.device).triu(1).bool(), float("-inf")), -1), (64, 512, 512))
snippet("normalize", lambda x, y: (F.normalize(x, dim=-1) * F.normalize(y, dim=-1)).sum(-1), (ROWS, WIDTH), (ROWS, WIDTH))


@model
def batch_norm_relu(device, divide=1):
    return nn.Sequential(nn.BatchNorm2d(64), nn.ReLU()).to(device).train(), [data(64 // divide or 1, 64, 56, 56, device=device)]


# ---- losses ----

snippet("cross_entropy", lambda x, t: F.cross_entropy(x, t), (4096, 16384), target=(4096, 16384))
snippet("cross_entropy_bf16", lambda x, t: F.cross_entropy(x.float(), t), (4096, 32000), dtype=B16, target=(4096, 32000))
snippet("cross_entropy_smoothed", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), (ROWS, WIDTH), target=(ROWS, WIDTH))
snippet("smooth_l1", lambda x, y: F.smooth_l1_loss(x, y), (ROWS, WIDTH), (ROWS, WIDTH))
snippet("mse_tanh", lambda x, y: F.mse_loss(torch.tanh(x), y), (ROWS, WIDTH), (ROWS, WIDTH))
snippet("kl_div", lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"), (ROWS, WIDTH), (ROWS, WIDTH))
snippet("bce_focal", lambda x, y: (F.binary_cross_entropy_with_logits(x, torch.sigmoid(y), reduction="none") * (1 - torch.sigmoid(x)).pow(2)).mean(), (ROWS, WIDTH), (ROWS, WIDTH))
snippet("cosine_loss", lambda x, y: 1 - F.cosine_similarity(x, y).mean(), (ROWS, WIDTH), (ROWS, WIDTH))
snippet("triplet", lambda a, p, n: F.triplet_margin_loss(a, p, n), (ROWS, 512), (ROWS, 512), (ROWS, 512))
snippet("contrastive", lambda x, y: F.cross_entropy(F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).T * 20, torch.arange(x.shape[0], device=x.device)), (2048, 256), (2048, 256))

# ---- MLPs ----


def sequential(*layers, device, dtype=torch.float32):
    return nn.Sequential(*layers).to(device, dtype)


@model
def mlp_gelu_bf16(device, divide=1):
    return sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024), device=device, dtype=B16), [data(4096 // divide, 1024, device=device, dtype=B16)]


@model
def mlp_norm(device, divide=1):
    return sequential(nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 1024), device=device), [data(4096 // divide, 1024, device=device)]


@model
def mlp_deep(device, divide=1):
    layers = []
    for _ in range(8):
        layers += [nn.Linear(512, 512), nn.LayerNorm(512), nn.SiLU()]
    return sequential(*layers, device=device), [data(2048 // divide, 512, device=device)]


@model
def mlp_classifier(device, divide=1):
    net = sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10), device=device)
    target = labels(512 // divide, 10, device)
    return lambda x: F.cross_entropy(net(x), target), [data(512 // divide, 784, device=device)]


@model
def residual_mlp_bf16(device, divide=1):
    a, b, n = (m.to(device, B16) for m in (nn.Linear(1024, 2048), nn.Linear(2048, 1024), nn.LayerNorm(1024)))
    return lambda x: x + b(F.silu(a(n(x)))), [data(4096 // divide, 1024, device=device, dtype=B16)]


@model
def autoencoder(device, divide=1):
    net = sequential(nn.Linear(1024, 128), nn.Tanh(), nn.Linear(128, 1024), device=device)
    return lambda x: F.mse_loss(net(x), x.detach()), [data(4096 // divide, 1024, device=device)]


@model
def lora_linear(device, divide=1):
    w, a, b = (data(*s, device=device, dtype=B16) for s in ((2048, 2048), (16, 2048), (2048, 16)))
    return lambda x: x @ w.T + (x @ a.T) @ b.T * 0.5, [data(4096 // divide, 2048, device=device, dtype=B16)]


# ---- convolutions ----


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.n1, self.n2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(self.n2(self.c2(torch.relu(self.n1(self.c1(x))))) + x)


@model
def conv_bn_relu(device, divide=1):
    return sequential(nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), device=device), [data(32 // divide or 1, 64, 56, 56, device=device)]


@model
def resnet_blocks(device, divide=1):
    return sequential(Residual(64), Residual(64), device=device), [data(32 // divide or 1, 64, 56, 56, device=device)]


@model
def cnn_small(device, divide=1):
    net = sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4096, 10), device=device)
    return net, [data(128 // divide, 3, 32, 32, device=device)]


@model
def mobile_block(device, divide=1):
    net = sequential(nn.Conv2d(32, 128, 1, bias=False), nn.BatchNorm2d(128), nn.ReLU6(), nn.Conv2d(128, 128, 3, padding=1, groups=128, bias=False), nn.BatchNorm2d(128), nn.ReLU6(), nn.Conv2d(128, 32, 1, bias=False), nn.BatchNorm2d(32), device=device)
    return lambda x: net(x) + x, [data(32 // divide or 1, 32, 56, 56, device=device)]


@model
def convnext_block(device, divide=1):
    c, n, a, b = (m.to(device) for m in (nn.Conv2d(96, 96, 7, padding=3, groups=96), nn.LayerNorm(96), nn.Linear(96, 384), nn.Linear(384, 96)))
    return lambda x: x + b(F.gelu(a(n(c(x).permute(0, 2, 3, 1))))).permute(0, 3, 1, 2), [data(32 // divide or 1, 96, 56, 56, device=device)]


@model
def squeeze_excite(device, divide=1):
    a, b = nn.Linear(256, 16).to(device), nn.Linear(16, 256).to(device)
    return lambda x: x * torch.sigmoid(b(torch.relu(a(x.mean((2, 3))))))[:, :, None, None], [data(32 // divide or 1, 256, 56, 56, device=device)]


@model
def diffusion_block(device, divide=1):
    n1, c1, n2, c2, t = (m.to(device) for m in (nn.GroupNorm(32, 128), nn.Conv2d(128, 128, 3, padding=1), nn.GroupNorm(32, 128), nn.Conv2d(128, 128, 3, padding=1), nn.Linear(512, 128)))
    emb = data(8, 512, device=device, grad=False)
    return lambda x: x + c2(F.silu(n2(c1(F.silu(n1(x))) + t(F.silu(emb[: x.shape[0]]))[:, :, None, None]))), [data(8 // divide or 1, 128, 64, 64, device=device)]


# ---- transformers ----


class Attention(nn.Module):
    def __init__(self, width, heads, fused):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.ones(t, t, device=x.device, dtype=torch.bool).tril()
            y = torch.softmax((q @ k.transpose(-1, -2) / (c // self.heads) ** 0.5).masked_fill(~mask, float("-inf")), -1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width, heads, fused=False):
        super().__init__()
        self.n1, self.n2, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width, heads, fused)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Root(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


class Llama(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = Root(width), Root(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)

    def rotate(self, x):
        half = x.shape[-1] // 2
        angle = torch.arange(x.shape[-2], device=x.device)[:, None] * (10000.0 ** (-torch.arange(half, device=x.device) / half))[None]
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).to(x.dtype)

    def forward(self, x):
        b, t, c = x.shape
        h = self.n1(x)
        q, k, v = (f(h).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


@model
def attention_written_out(device, divide=1):
    return Attention(512, 8, False).to(device), [data(8 // divide or 1, 256, 512, device=device)]


@model
def block(device, divide=1):
    return Block(512, 8).to(device), [data(8 // divide or 1, 256, 512, device=device)]


@model
def block_bf16(device, divide=1):
    return Block(1024, 16, True).to(device, B16), [data(8 // divide or 1, 512, 1024, device=device, dtype=B16)]


@model
def llama_block_bf16(device, divide=1):
    return Llama(1024, 16, 2816).to(device, B16), [data(4 // divide or 1, 1024, 1024, device=device, dtype=B16)]


@model
def encoder_layer(device, divide=1):
    return nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True).to(device).train(), [data(16 // divide or 1, 128, 256, device=device)]


@model
def small_language_model(device, divide=1):
    table, blocks, head = nn.Embedding(8192, 256).to(device), sequential(Block(256, 4), Block(256, 4), device=device), nn.Linear(256, 8192).to(device)
    words = labels(8 * 128, 8192, device).view(8, 128)
    return lambda: F.cross_entropy(head(blocks(table(words))).flatten(0, 1), words.flatten().roll(1)), []


@model
def vision_patches(device, divide=1):
    patch, body, head = nn.Conv2d(3, 192, 16, 16).to(device), Block(192, 3).to(device), nn.Linear(192, 100).to(device)
    return lambda x: head(body(patch(x).flatten(2).transpose(1, 2)).mean(1)), [data(32 // divide or 1, 3, 224, 224, device=device, grad=False)]


# ---- recommenders ----


@model
def dlrm_dot(device, divide=1):
    rows = 2048 // divide
    tables = nn.ModuleList(nn.Embedding(10000, 32) for _ in range(8)).to(device)
    bottom = sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, 32), nn.ReLU(), device=device)
    top = sequential(nn.Linear(32 + 36, 256), nn.ReLU(), nn.Linear(256, 1), device=device)
    index, (i, j) = labels(8 * rows, 10000, device).view(8, rows), torch.tril_indices(9, 9, -1, device=device)

    def forward(x):
        features = torch.stack([bottom(x)] + [t(k) for t, k in zip(tables, index)], 1)
        pairs = torch.bmm(features, features.transpose(1, 2))
        return torch.sigmoid(top(torch.cat([features[:, 0], pairs[:, i, j]], 1)))

    return forward, [data(rows, 13, device=device)]


@model
def deep_and_wide(device, divide=1):
    rows = 4096 // divide
    table, wide = nn.Embedding(50000, 16).to(device), nn.Embedding(50000, 1).to(device)
    top = sequential(nn.Linear(16 * 16, 128), nn.ReLU(), nn.Linear(128, 1), device=device)
    index, target = labels(rows * 16, 50000, device).view(rows, 16), (labels(rows, 2, device)).float()

    def forward():
        v = table(index)
        pairs = 0.5 * (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(1)
        return F.binary_cross_entropy_with_logits(pairs + wide(index).sum((1, 2)) + top(v.flatten(1))[:, 0], target)

    return forward, []


@model
def two_towers(device, divide=1):
    a, b = (sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64), device=device) for _ in range(2))
    return lambda x, y: F.cross_entropy(F.normalize(a(x), dim=-1) @ F.normalize(b(y), dim=-1).T * 10, torch.arange(x.shape[0], device=x.device)), [data(1024 // divide, 128, device=device), data(1024 // divide, 128, device=device)]


# ---- recurrent ----


@model
def rnn_unrolled(device, divide=1):
    a, b = nn.Linear(64, 128).to(device), nn.Linear(128, 128).to(device)

    def forward(x):
        h = x.new_zeros(x.shape[0], 128)
        for t in range(x.shape[1]):
            h = torch.tanh(a(x[:, t]) + b(h))
        return h

    return forward, [data(256 // divide, 12, 64, device=device)]


@model
def gru_steps(device, divide=1):
    cell = nn.GRUCell(64, 128).to(device)

    def forward(x):
        h = x.new_zeros(x.shape[0], 128)
        for t in range(x.shape[1]):
            h = cell(x[:, t], h)
        return h

    return forward, [data(256 // divide, 6, 64, device=device)]


@model
def lstm_steps(device, divide=1):
    w = nn.Linear(192, 512).to(device)

    def forward(x):
        h, c = x.new_zeros(x.shape[0], 128), x.new_zeros(x.shape[0], 128)
        for t in range(x.shape[1]):
            i, f, g, o = w(torch.cat([x[:, t], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h

    return forward, [data(256 // divide, 6, 64, device=device)]


@model
def gated_scan(device, divide=1):
    w = nn.Linear(256, 512).to(device)

    def forward(x):
        g, v = w(x).chunk(2, -1)
        return (torch.sigmoid(g).log().cumsum(1).exp() * torch.tanh(v)).cumsum(1)

    return forward, [data(32 // divide or 1, 256, 256, device=device)]
