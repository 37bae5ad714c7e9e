"""Sixty small models and snippets for the torch.compile backend: pointwise, MLP, CNN, transformer, DLRM, norms, losses, RNN.

MODELS: name -> a function of the device that gives (callable, arguments); arguments and parameters that want a gradient get
one. bench/torch_backend.py times the same list at larger sizes.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

MODELS = {}
SCALE = 1  # of the sizes; the bench sets it


def model(make):
    MODELS[make.__name__] = make
    return make


def snippet(name, function, *shapes, **keywords):
    def make(device):
        return function, [_input(shape, device, **keywords) for shape in shapes]

    MODELS[name] = make


def _input(shape, device, positive=False):
    if isinstance(shape, torch.Tensor):
        return shape.to(device)
    x = torch.rand(*shape, device=device) + 0.5 if positive else torch.randn(*shape, device=device)
    return x.requires_grad_()


def big(n):
    return n * SCALE


def data(*shape, device, grad=True):
    x = torch.randn(*shape, device=device)
    return x.requires_grad_() if grad else x


def labels(count, classes, device):
    return (torch.arange(count, device=device) * 7) % classes


# ---- pointwise ----

snippet("gelu_tanh_residual", lambda x, y: F.gelu(x, approximate="tanh") + y * 0.5, (33, 65), (33, 65))
snippet("swiglu", lambda x, y: F.silu(x) * y, (4, 16, 48), (4, 16, 48))
snippet("bias_dropout_free_residual", lambda x, b, r: torch.relu(x + b) * 1.5 + r, (9, 40), (40,), (9, 40))
snippet("broadcast_both", lambda a, b: (a * b).tanh() + a, (17, 1), (1, 23))
snippet("clamp_where", lambda x: torch.where(x > 0.3, x.clamp(-1, 1), x * x), (11, 13))
snippet("powers", lambda x: x.pow(3) + x.sqrt() + x.rsqrt() + x.pow(1.7) + 1 / x, (8, 9), positive=True)
snippet("hard_ones", lambda x: F.hardswish(x) + F.hardsigmoid(x) + F.hardtanh(x) + F.relu6(x), (12, 31))
snippet("smooth_ones", lambda x: F.mish(x) + F.elu(x) + F.softplus(x) + F.selu(x) + F.celu(x), (12, 31))
snippet("logs", lambda x: x.log() + x.log1p() + x.exp().expm1() + torch.logaddexp(x, x * x), (10, 10), positive=True)
snippet("sigmoid_gate", lambda x: F.glu(x, -1) + F.logsigmoid(x[..., :8]) + F.leaky_relu(x[..., 8:], 0.2), (5, 16))
snippet("mixed_types", lambda x: (x.double() * 2).float() + (x > 0).float() + x.to(torch.bfloat16).float(), (7, 19))
snippet("sin_cos_rope", lambda x, t: torch.cat([x[..., :8] * t.cos() - x[..., 8:] * t.sin(), x[..., :8] * t.sin() + x[..., 8:] * t.cos()], -1), (2, 6, 16), (6, 8))

# ---- reductions, norms ----

snippet("softmax", lambda x: torch.softmax(x, -1), (13, 47))
snippet("log_softmax_middle", lambda x: torch.log_softmax(x, 1), (3, 11, 5))
snippet("logsumexp", lambda x: torch.logsumexp(x, 1), (13, 47))
snippet("mean_var", lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt(), (6, 33))
snippet("std_all", lambda x: x.std() + x.mean() + x.sum() * 0.01, (6, 33))
snippet("norms_l2", lambda x: x / x.norm(dim=-1, keepdim=True).clamp_min(1e-6), (6, 33))
snippet("amax_softcap", lambda x: 5 * torch.tanh((x - x.amax(-1, keepdim=True)) / 5), (7, 21))
snippet("cumsum", lambda x: x.cumsum(1) * 0.5 + x, (5, 29))
snippet("argmax_only", lambda x: x.argmax(-1) + x.argmin(-1), (9, 17))
snippet("rms_norm", lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, (12, 40), (40,))
snippet("layer_norm", lambda x, w, b: F.layer_norm(x, (40,), w, b), (4, 6, 40), (40,), (40,))
snippet("group_norm", lambda x, w, b: F.group_norm(x, 4, w, b), (3, 8, 5, 6), (8,), (8,))
snippet("instance_norm", lambda x: F.instance_norm(x), (3, 4, 7, 6))


@model
def batch_norm_training(device):
    return nn.Sequential(nn.BatchNorm2d(6), nn.ReLU()).to(device).train(), [data(4, 6, 5, 7, device=device)]


@model
def batch_norm_inference(device):
    return nn.Sequential(nn.BatchNorm1d(12), nn.Tanh()).to(device).eval(), [data(9, 12, device=device)]


# ---- losses ----

snippet("mse", lambda x, y: F.mse_loss(torch.tanh(x), y), (9, 14), (9, 14))
snippet("smooth_l1", lambda x, y: F.smooth_l1_loss(x, y) + F.huber_loss(x, y, delta=0.5), (9, 14), (9, 14))
snippet("cross_entropy", lambda x, t: F.cross_entropy(x, t), (16, 10), labels(16, 10, "cpu"))
snippet("cross_entropy_smoothed", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), (16, 10), labels(16, 10, "cpu"))
snippet("kl_div", lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"), (6, 20), (6, 20))
snippet("bce_logits", lambda x, y: F.binary_cross_entropy_with_logits(x, torch.sigmoid(y)), (6, 20), (6, 20))
snippet("cosine", lambda x, y: 1 - F.cosine_similarity(x, y).mean(), (8, 24), (8, 24))
snippet("triplet", lambda a, p, n: F.triplet_margin_loss(a, p, n), (8, 24), (8, 24), (8, 24))
snippet("hinge", lambda x: torch.relu(1 - x * torch.sign(x.detach().roll(1, 0))).mean(), (8, 24))

# ---- movement, index ----

snippet("views_around", lambda x: (x.transpose(1, 2).reshape(4, -1) * 2).view(4, 6, 5).permute(2, 0, 1).contiguous() + 1, (4, 5, 6))
snippet("slices", lambda x: x[:, ::2] * x[:, 1::2] + x[:, -1:], (7, 12))
snippet("pad_cat", lambda x: torch.cat([F.pad(x, (1, 2)), x.new_ones(5, 9)], 0).relu() * 3, (5, 6))
snippet("chunks", lambda x: sum(c * (i + 1) for i, c in enumerate(x.chunk(3, -1))), (5, 12))
snippet("masked_scores", lambda x: torch.softmax(x.masked_fill(torch.ones(9, 9, device=x.device).triu(1).bool(), float("-inf")), -1), (2, 9, 9))
snippet("gather_rows", lambda x, i: x.gather(1, i) * 2 + x[:, :3], (6, 8), torch.tensor([[1, 2, 0]] * 6))


@model
def embedding_bag_sum(device):
    layer = nn.Embedding(50, 8).to(device)
    return lambda i: (layer(i).sum(1) * 0.5).tanh(), [torch.arange(24, device=device).view(6, 4) * 2]


# ---- networks ----


@model
def mlp(device):
    return nn.Sequential(nn.Linear(big(16), big(32)), nn.GELU(), nn.Linear(big(32), 8)).to(device), [data(big(12), big(16), device=device)]


@model
def mlp_deep(device):
    layers = []
    for _ in range(4):
        layers += [nn.Linear(big(24), big(24)), nn.LayerNorm(big(24)), nn.SiLU()]
    return nn.Sequential(*layers).to(device), [data(big(8), big(24), device=device)]


@model
def mlp_loss(device):
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 5)).to(device)
    target = labels(12, 5, device)
    return lambda x: F.cross_entropy(net(x), target), [data(12, 16, device=device)]


@model
def residual_mlp(device):
    a, b = nn.Linear(20, 20).to(device), nn.Linear(20, 20).to(device)
    return lambda x: x + b(torch.tanh(a(F.layer_norm(x, (20,))))), [data(7, 20, device=device)]


@model
def autoencoder(device):
    net = nn.Sequential(nn.Linear(30, 10), nn.Tanh(), nn.Linear(10, 30)).to(device)
    return lambda x: F.mse_loss(net(x), x.detach()), [data(9, 30, device=device)]


@model
def lora_linear(device):
    w, a, b = (data(*s, device=device) for s in ((24, 16), (4, 16), (24, 4)))
    return lambda x: x @ w.T + (x @ a.T) @ b.T * 0.5, [data(10, 16, device=device)]


@model
def cnn(device):
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 16, 5))
    return net.to(device), [data(2, 3, 8, 8, device=device)]


@model
def cnn_block(device):
    c1, c2, norm = nn.Conv2d(6, 6, 3, padding=1).to(device), nn.Conv2d(6, 6, 3, padding=1).to(device), nn.GroupNorm(2, 6).to(device)
    return lambda x: torch.relu(c2(torch.relu(norm(c1(x)))) + x), [data(2, 6, 7, 7, device=device)]


@model
def conv1d_depthwise(device):
    net = nn.Sequential(nn.Conv1d(6, 6, 5, groups=6, padding=2), nn.GELU(), nn.Conv1d(6, 12, 1), nn.SiLU())
    return net.to(device), [data(3, 6, 20, device=device)]


@model
def conv_transpose_tanh(device):
    net = nn.Sequential(nn.ConvTranspose2d(4, 3, 4, stride=2, padding=1), nn.Tanh(), nn.AvgPool2d(2))
    return net.to(device), [data(2, 4, 5, 5, device=device)]


@model
def upsample_merge(device):
    c = nn.Conv2d(4, 4, 1).to(device)
    return lambda x: F.interpolate(c(x), scale_factor=2) * 0.5 + F.interpolate(x, size=(12, 10), mode="bilinear"), [data(1, 4, 6, 5, device=device)]


@model
def squeeze_excite(device):
    a, b = nn.Linear(8, 2).to(device), nn.Linear(2, 8).to(device)
    return lambda x: x * torch.sigmoid(b(torch.relu(a(x.mean((2, 3))))))[:, :, None, None], [data(3, 8, 6, 6, device=device)]


@model
def attention_plain(device):
    w = nn.Linear(16, 48).to(device)

    def forward(x):
        q, k, v = w(x).chunk(3, -1)
        return torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v

    return forward, [data(2, 9, 16, device=device)]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mask = torch.ones(t, t, device=x.device, dtype=torch.bool).tril()
        scores = (q @ k.transpose(-1, -2) / (c // self.heads) ** 0.5).masked_fill(~mask, float("-inf"))
        x = x + self.out((torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.n2(x))))


@model
def transformer_block(device):
    return Block(big(16), 2).to(device), [data(2, big(8), big(16), device=device)]


@model
def transformer_encoder_layer(device):
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).to(device)
    return layer.train(), [data(2, 6, 16, device=device)]


@model
def language_model(device):
    table, block, head = nn.Embedding(40, 16).to(device), Block(16, 2).to(device), nn.Linear(16, 40).to(device)
    words = labels(12, 40, device).view(2, 6)
    return lambda: F.cross_entropy(head(block(table(words))).flatten(0, 1), words.flatten().roll(1)), []


@model
def dlrm(device):
    tables = [nn.Embedding(30, 8).to(device) for _ in range(3)]
    bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU()).to(device)
    top = nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 1)).to(device)
    index = labels(21, 30, device).view(3, 7)

    def forward(x):
        rows = torch.stack([bottom(x)] + [t(i) for t, i in zip(tables, index)], 1)
        pairs = torch.bmm(rows, rows.transpose(1, 2))
        i, j = torch.tril_indices(4, 4, -1, device=x.device)
        return torch.sigmoid(top(torch.cat([rows[:, 0], pairs[:, i, j]], 1)))

    return forward, [data(7, 5, device=device)]


@model
def rnn_unrolled(device):
    a, b = nn.Linear(6, 10).to(device), nn.Linear(10, 10).to(device)

    def forward(x):
        h = x.new_zeros(x.shape[0], 10)
        for t in range(x.shape[1]):
            h = torch.tanh(a(x[:, t]) + b(h))
        return h

    return forward, [data(3, 4, 6, device=device)]


@model
def gru_cell(device):
    cell = nn.GRUCell(6, 8).to(device)
    return lambda x, h: cell(x, cell(x, h)), [data(3, 6, device=device), data(3, 8, device=device)]


@model
def lstm_cell(device):
    w = nn.Linear(14, 32).to(device)

    def forward(x, h, c):
        i, f, g, o = w(torch.cat([x, h], 1)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    return forward, [data(3, 6, device=device), data(3, 8, device=device), data(3, 8, device=device)]
