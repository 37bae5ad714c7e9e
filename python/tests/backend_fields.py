"""Programs of other fields as people bring them: recurrent networks, speech, graphs, recommenders, learning by rewards, rendering, and losses with all
their options. PROGRAMS as in backend_parts.py.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

from .backend_parts import WIDTH, data, model, whole


# ---- recurrent ----


@model
def lstm_module(device):
    net, head = nn.LSTM(6, 8, num_layers=2, batch_first=True).to(device), nn.Linear(8, 3).to(device)
    return lambda x: head(net(x)[0][:, -1]), [data(3, 5, 6, device=device)]


@model
def gru_cells_with_reset(device):
    """A GRU written out whose state is put back where a mask says so."""
    wx, wh = nn.Linear(6, 24).to(device), nn.Linear(8, 24).to(device)
    done = torch.tensor([[False, True, False, False], [False, False, True, False]], device=device)

    def forward(x):
        h = torch.zeros(2, 8, device=x.device)
        for t in range(4):
            h = h.masked_fill(done[:, t, None], 0.0)
            (r, z, n), (a, b, c) = wx(x[:, t]).chunk(3, -1), wh(h).chunk(3, -1)
            z = torch.sigmoid(z + b)
            h = (1 - z) * torch.tanh(n + torch.sigmoid(r + a) * c) + z * h
        return h

    return forward, [data(2, 4, 6, device=device)]


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


# ---- losses ----


@model
def clip_loss(device):
    scale = nn.Parameter(torch.tensor(2.659, device=device))

    def forward(a, b):
        a, b = a / a.norm(dim=-1, keepdim=True), b / b.norm(dim=-1, keepdim=True)
        logits = scale.exp().clamp(max=100) * a @ b.t()
        target = torch.arange(len(logits), device=logits.device)
        return (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2

    return forward, [data(6, 12, device=device), data(6, 12, device=device)]


@model
def nt_xent(device):
    def forward(x, y):
        z = F.normalize(torch.cat([x, y]), dim=1)
        s = z @ z.t() / 0.5
        s = s.masked_fill(torch.eye(len(s), dtype=torch.bool, device=s.device), -9e15)
        positive = torch.cat([torch.diag(s, len(x)), torch.diag(s, -len(x))])
        return (-positive + torch.logsumexp(s, dim=1)).mean()

    return forward, [data(5, 12, device=device), data(5, 12, device=device)]


@model
def language_model_loss_ignoring(device):
    target = torch.tensor([3, -100, 5, 0, -100, 9], device=device)
    return lambda x: F.cross_entropy(x[:-1].float(), target[1:], ignore_index=-100, reduction="mean") + 1e-3 * x.logsumexp(-1).pow(2).mean(), [data(6, 10, device=device)]


@model
def quantile_and_dice(device):
    def forward(x, y):
        error = y - x
        quantile = torch.max(0.9 * error, -0.1 * error).mean()
        p, t = torch.sigmoid(x).flatten(1), (y > 0).float().flatten(1)
        return quantile + (1 - (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)).mean()

    return forward, [data(4, 3, 5, device=device), data(4, 3, 5, device=device, grad=False)]


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


# ---- others ----


@model
def graph_attention(device):
    """Messages along edges, with a softmax over the edges that arrive at a node."""
    source, target = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]], device=device)
    weight = nn.Parameter(torch.randn(6, device=device))

    def forward(x):
        scores = F.leaky_relu((x[source] * weight).sum(-1) + (x[target] * weight).sum(-1), 0.2)
        most = torch.full((4,), -1e9, device=device).scatter_reduce(0, target, scores, "amax")
        shares = (scores - most[target]).exp()
        sums = torch.zeros(4, device=device).index_add(0, target, shares)
        return torch.zeros_like(x).index_add(0, target, x[source] * (shares / sums[target])[:, None])

    return forward, [data(4, 6, device=device)]


@model
def quantised(device):
    """Eight bits and back, with a gradient that goes straight through."""

    def forward(x):
        scale = x.abs().amax(-1, keepdim=True) / 127
        q = (x / scale).round().clamp(-128, 127).to(torch.int8)
        return q.to(torch.float32) * scale, q.to(torch.int32).sum(-1), x + (q.float() * scale - x).detach()

    return forward, [data(4, 16, device=device)]


@model
def code_book(device):
    codes = nn.Parameter(torch.randn(8, 4, device=device))

    def forward(z):
        distances = z.pow(2).sum(1, keepdim=True) - 2 * z @ codes.t() + codes.pow(2).sum(1)
        nearest = distances.argmin(1)
        q = F.embedding(nearest, codes)
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        return z + (q - z).detach(), loss, F.one_hot(nearest, 8).float().mean(0)

    return forward, [data(6, 4, device=device)]


@model
def volume_rendering(device):
    net = nn.Sequential(nn.Linear(39, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)

    def forward(x):
        angles = (x[..., None] * 2.0 ** torch.arange(6, device=device)).flatten(-2)
        h = net(torch.cat([x, angles.sin(), angles.cos()], -1))
        alpha = 1 - torch.exp(-F.relu(h[..., 3]) * 0.1)
        passed = torch.cumprod(torch.cat([torch.ones_like(alpha[..., :1]), 1 - alpha + 1e-10], -1), -1)[..., :-1]
        return ((alpha * passed)[..., None] * h[..., :3].sigmoid()).sum(-2)

    return forward, [data(3, 5, 3, device=device)]


@model
def sinkhorn(device):
    def forward(cost):
        u, v = torch.zeros(5, device=device), torch.zeros(6, device=device)
        for _ in range(5):
            u = -torch.logsumexp(-cost + v[None], 1)
            v = -torch.logsumexp(-cost + u[:, None], 0)
        return (torch.exp(-cost + u[:, None] + v[None]) * cost).sum()

    return forward, [data(5, 6, device=device)]


@model
def moving_average_of_weights(device):
    """Parameters that are written under no_grad in the middle of a step; what is compared starts from the same ones."""
    a, b = nn.Linear(4, 4).to(device), nn.Linear(4, 4).to(device)
    before = [p.detach().clone() for p in a.parameters()]

    def forward(x):
        with torch.no_grad():
            for p, old, q in zip(a.parameters(), before, b.parameters()):
                p.copy_(old).mul_(0.9).add_(q, alpha=0.1)
        return a(x) + b(x)

    return forward, [data(2, 4, device=device)]


@model
def windows_of_a_signal(device):
    def forward(x):
        windows = F.pad(x, (2, 2)).unfold(-1, 5, 1)
        mean = F.conv1d(x[None], torch.ones(3, 1, 3, device=device) / 3, groups=3)[0]
        return (windows * torch.hann_window(5, device=device)).sum(-1), F.avg_pool1d(x[None], 3, 1, 1)[0], mean, x.diff(dim=1)

    return forward, [data(3, 10, device=device)]


@model
def decoder_layer(device):
    layer = nn.TransformerDecoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=True).to(device)
    mask = nn.Transformer.generate_square_subsequent_mask(5, device=device)
    return lambda x, memory: layer(x, memory, tgt_mask=mask, tgt_is_causal=True), [data(2, 5, 16, device=device), data(2, 6, 16, device=device)]
