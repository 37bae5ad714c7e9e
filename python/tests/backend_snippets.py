"""Snippets as people paste them: whole transformers with padding, outputs that are dictionaries and dataclasses, packed sequences, packed bags, weights that
are tied, masks by boolean indices, ensembles by vmap, gradients inside the function, quantisation by hand, sorting with gradients. PROGRAMS as in backend_parts.py.
"""

import collections
import dataclasses
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from .backend_parts import data, model, whole

# ---- modules ----


@model
def whole_transformer(device):
    net = nn.Transformer(16, 2, 1, 1, 32, 0.0, batch_first=True).to(device)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2], device=device)
    mask = nn.Transformer.generate_square_subsequent_mask(4, device=device)
    return lambda a, b: net(a, b, tgt_mask=mask, src_key_padding_mask=padding, memory_key_padding_mask=padding), [data(2, 5, 16, device=device), data(2, 4, 16, device=device)]


@dataclasses.dataclass
class Output(collections.OrderedDict):
    loss: torch.Tensor = None
    logits: torch.Tensor = None
    hidden: tuple = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


class Classifier(nn.Module):
    """As a library of models has them: keywords, things that may be None, a dictionary as result."""

    def __init__(self):
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(40, 16, padding_idx=0), nn.Embedding(12, 16), nn.LayerNorm(16, eps=1e-12)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.head = nn.Linear(16, 3)

    def forward(self, ids, mask=None, labels=None, places=None, hidden_wanted=False):
        places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids) if places is None else places
        x = self.norm(self.words(ids) + self.places(places))
        kept = []
        for layer in self.layers:
            kept.append(x)
            x = x + F.gelu(layer(x))
        mask = torch.ones_like(ids) if mask is None else mask
        pooled = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        logits = self.head(pooled)
        loss = None if labels is None else F.cross_entropy(logits, labels, label_smoothing=0.1)
        return Output(loss=loss, logits=logits, hidden=tuple(kept) if hidden_wanted else None)


@model
def dictionary_of_results(device):
    net = Classifier().to(device)
    ids = whole(12, 40, device).view(2, 6)

    def forward(ids):
        made = net(ids, mask=(ids != 0).long(), labels=torch.tensor([0, 2], device=device), hidden_wanted=True)
        return made["loss"], made.logits, *made.hidden

    return forward, [ids]


@model
def tied_weights(device):
    table = nn.Embedding(20, 12).to(device)
    bias = nn.Parameter(torch.zeros(20, device=device))
    ids = whole(10, 20, device).view(2, 5)
    return lambda h: F.linear(torch.tanh(h) + table(ids), table.weight, bias).log_softmax(-1).gather(-1, ids[..., None]).mean(), [data(2, 5, 12, device=device)]


@model
def packed_sequences(device):
    net = nn.LSTM(5, 6, batch_first=True).to(device)

    def forward(x):
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 3, 1]), batch_first=True)
        out, _ = nn.utils.rnn.pad_packed_sequence(net(packed)[0], batch_first=True)
        return torch.tanh(out) * 2 + 1

    return forward, [data(3, 4, 5, device=device)]


@model
def bags_with_weights(device):
    bag = nn.EmbeddingBag(30, 8, mode="sum", include_last_offset=True).to(device)
    at, ids = torch.tensor([0, 3, 3, 7], device=device), whole(7, 30, device)
    return lambda w: torch.relu(bag(ids, at, per_sample_weights=torch.sigmoid(w))) + 1, [data(7, device=device)]


@model
def checkpointed_and_reentrant(device):
    a, b = nn.Linear(8, 8).to(device), nn.Linear(8, 8).to(device)
    return lambda x: checkpoint(lambda x: torch.tanh(b(F.gelu(a(x)))), x, use_reentrant=False) + checkpoint(a, x, use_reentrant=True), [data(4, 8, device=device)]


@model
def ensemble_by_vmap(device):
    nets = [nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 2)).to(device) for _ in range(3)]
    weights, buffers = torch.func.stack_module_state(nets)
    values, names = list(weights.values()), list(weights)
    base = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 2)).to(device)

    def forward(x, *weights):
        made = torch.vmap(lambda w: torch.func.functional_call(base, (w, buffers), (x,)))(dict(zip(names, weights)))
        return made.mean(0), made.var(0)

    return forward, [data(5, 6, device=device), *[v.detach().requires_grad_() for v in values]]


@model
def gradient_inside(device):
    """A step of the inner loop of meta learning: the gradient is part of the function."""
    net = nn.Linear(4, 3).to(device)

    def loss(w, b, x):
        return (F.linear(x, w, b).tanh() - 1).square().mean()

    def forward(x):
        dw, db = torch.func.grad(loss, (0, 1))(net.weight.detach(), net.bias.detach(), x.detach())
        return loss(net.weight - 0.1 * dw, net.bias - 0.1 * db, x)

    return forward, [data(5, 4, device=device)]


@model
def jacobians_and_tangents(device):
    def f(x):
        return torch.sin(x) * x.sum()

    def forward(x):
        return torch.func.jacrev(f)(x.detach()) @ x, torch.func.jvp(f, (x.detach(),), (torch.ones_like(x),))[1] * x

    return forward, [data(5, device=device)]


# ---- masks and losses ----


@model
def loss_of_the_masked(device):
    keep = whole(24, 3, device).view(4, 6) > 0

    def forward(x, y):
        picked = (x - y)[keep]
        return (picked.square() * 2).mean() + x[keep].abs().sum(), torch.where(keep, x, torch.nan).nanmean()

    return forward, [data(4, 6, device=device), data(4, 6, device=device)]


@model
def masked_means_and_softmaxes(device):
    keep = whole(24, 5, device).view(4, 6) > 0

    def forward(x):
        scores = x.masked_fill(~keep, torch.finfo(x.dtype).min).softmax(-1) * keep
        mean = (x * keep).sum(1) / keep.sum(1).clamp_min(1)
        spread = ((x - mean[:, None]).square() * keep).sum() / keep.sum()
        return scores, spread.sqrt(), torch.where(keep, x, 0).amax(1), F.binary_cross_entropy_with_logits(x, keep.float(), reduction="none")[keep].mean()

    return forward, [data(4, 6, device=device)]


@model
def attention_of_every_kind(device):
    keep = torch.ones(5, 5, dtype=torch.bool, device=device).tril(1)

    def forward(q, k, v):
        groups = F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True)
        bias = F.scaled_dot_product_attention(q, k, v, attn_mask=(torch.arange(5, device=device)[:, None] * -0.5).expand(5, 5), scale=0.3)
        return groups + bias, F.scaled_dot_product_attention(q, k, v, attn_mask=keep), F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

    return forward, [data(2, 4, 5, 8, device=device) for _ in range(3)]


@model
def losses_seldom_used(device):
    labels, signs = whole(6, 4, device), (whole(6, 2, device) * 2 - 1).float()

    def forward(x, y):
        p = x.softmax(-1)
        return (
            F.multi_margin_loss(x, labels),
            F.cosine_embedding_loss(x, y, signs, margin=0.2),
            F.margin_ranking_loss(x[:, 0], y[:, 0], signs, margin=0.1),
            F.soft_margin_loss(x[:, 1], signs),
            F.poisson_nll_loss(x, y.exp()),
            F.gaussian_nll_loss(x, y, p + 0.1),
            F.multilabel_soft_margin_loss(x, (y > 0).float()),
            F.hinge_embedding_loss(x[:, 2], signs),
        )

    return forward, [data(6, 4, device=device), data(6, 4, device=device)]


# ---- writing ----


@model
def einsums_of_three(device):
    def forward(a, b, c):
        return torch.einsum("bij,bjk,kl->bil", a, b, c), torch.einsum("...ij,...ij->...", a, a), torch.einsum("bij->ji", a) * 2, torch.einsum("ii->i", c) + 1

    return forward, [data(3, 4, 5, device=device), data(3, 5, 6, device=device), data(6, 6, device=device)]


@model
def views_that_are_written(device):
    def forward(x):
        y = x * 1
        y[:, 0] += 1
        y.t()[1].mul_(2)
        y.view(-1)[::5] = 0
        y.diagonal().copy_(x.diagonal().sin())
        y.masked_fill_(y > 2, 1.5).clamp_(min=-1)
        z = y.unflatten(1, (2, 3)).transpose(0, 1)
        return y, z.contiguous() * 2, y.chunk(2, 1)[1].add(1)

    return forward, [data(4, 6, device=device)]


@model
def scatters_in_place(device):
    at = whole(8, 5, device)

    def forward(x, y):
        a = torch.zeros(5, 3, device=device).index_add_(0, at, x)
        b = y.clone().index_copy_(0, at[:3], x[:3]).index_fill_(0, at[3:4], 0.5)
        c = torch.zeros(5, 3, device=device).scatter_reduce(0, at[:, None].expand(8, 3), x, "amax", include_self=False)
        d = torch.zeros(5, 3, device=device).index_put((at, whole(8, 3, device)), x[:, 0], accumulate=True)
        return a + b, c, d.cumsum(0)

    return forward, [data(8, 3, device=device), data(5, 3, device=device)]


@model
def sorted_with_gradients(device):
    def forward(x):
        values, at = x.sort(1, descending=True)
        top, where = x.topk(3, 1)
        sums = values.cumsum(1)
        keep = sums - values < 1.0
        nucleus = torch.where(torch.zeros_like(keep).scatter(1, at, keep), x, -1e9).softmax(1)
        return nucleus, top * 2 + where, x.median(1).values, x.kthvalue(2, 1).values, x.cummax(1).values, x.logcumsumexp(1), x.cumprod(1)

    return forward, [data(4, 7, device=device)]


@model
def dates_and_buckets(device):
    edges = torch.linspace(-1, 1, 6, device=device)

    def forward(x):
        bucket = torch.bucketize(x, edges)
        low = torch.searchsorted(edges, x.detach(), right=True)
        return F.one_hot(bucket, 7).float() * x[..., None], bucket + low, torch.histc(x.detach(), 4, -1, 1) * 2

    return forward, [data(3, 5, device=device)]


@model
def numbers_that_are_not_finite(device):
    def forward(x):
        y = torch.log(x) / (x - x.detach())
        return torch.nan_to_num(y.detach(), 0.0, 1.0, -1.0) + x, y.isfinite(), y.isnan() | y.isinf(), torch.fmax(y.detach(), x), torch.where(x > 0, x, 1.0).log().nansum(), x.sign() * x.abs().sqrt()

    return forward, [data(3, 5, device=device)]


@model
def whole_numbers_below_zero(device):
    a = torch.arange(-6, 6, device=device).view(3, 4)

    def forward(x):
        b = torch.tensor([-3, 2, 4, -1], device=device)
        return a // b, a % b, torch.fmod(a, b), a.remainder(5), a >> 1, (a & 7) ^ b, ~a, x * (a / b), torch.floor_divide(a, 4), a.float().pow(3), x.div(0.3, rounding_mode="trunc")

    return forward, [data(3, 4, device=device)]


@model
def quantised_by_hand(device):
    layer = nn.Linear(8, 6).to(device)

    def forward(x):
        scale = layer.weight.detach().abs().amax(1, keepdim=True) / 127
        quantised = (layer.weight / scale).round().clamp(-128, 127)
        weight = layer.weight + (quantised * scale - layer.weight).detach()
        steps = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7)
        return F.linear(steps, weight, layer.bias), quantised.to(torch.int8), scale.squeeze(1)

    return forward, [data(4, 8, device=device)]


@model
def low_rank_and_frozen(device):
    base, down, up = nn.Linear(12, 10).to(device).requires_grad_(False), nn.Parameter(torch.randn(4, 12, device=device) / 4), nn.Parameter(torch.randn(10, 4, device=device) / 4)
    return lambda x: base(x) + (x @ down.t() @ up.t()) * (8 / math.sqrt(4)), [data(3, 2, 12, device=device)]


@model
def double_precision(device):
    layer = nn.Sequential(nn.Linear(6, 6), nn.Softplus(), nn.LayerNorm(6)).to(device).double()
    return lambda x: layer(x).logsumexp(1) + torch.erf(x).sum(1), [data(4, 6, device=device, dtype=torch.float64)]


@model
def images_that_are_resized(device):
    def forward(x):
        up = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True, antialias=False)
        cubic = F.interpolate(x, size=(7, 5), mode="bicubic", align_corners=False)
        patches = F.fold(F.unfold(x, 3, padding=1) * 0.5, x.shape[-2:], 3, padding=1)
        return up, cubic, patches + F.pixel_shuffle(x, 2).mean(), F.avg_pool2d(F.pad(x, (1, 2, 0, 1), mode="reflect"), 2, ceil_mode=True, count_include_pad=False)

    return forward, [data(2, 4, 6, 6, device=device)]


@model
def channels_last_training(device):
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 4, 1), nn.GroupNorm(2, 4), nn.Hardswish(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(device).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8, device=device).contiguous(memory_format=torch.channels_last).requires_grad_()
    return net, [x]


@model
def states_in_loops(device):
    """A selective scan, step by step, with what it keeps in a list."""
    net = nn.Linear(6, 12).to(device)

    def forward(x):
        state, made = torch.zeros(x.shape[0], 6, device=device), []
        for step in x.unbind(1):
            gate, value = net(step).chunk(2, -1)
            state = torch.exp(-F.softplus(gate)) * state + value * step
            made.append(torch.einsum("bi,bi->b", state, step))
        return torch.stack(made, 1), state

    return forward, [data(3, 4, 6, device=device)]


@model
def profiled_and_named(device):
    layer = nn.Linear(6, 6).to(device)

    def forward(x):
        with torch.profiler.record_function("attention"):
            y = torch.softmax(layer(x), -1)
        with torch.autograd.profiler.record_function("mlp"):
            return (y * x).tanh().sum(-1)

    return forward, [data(4, 6, device=device)]


@model
def generators_and_dates(device):
    """Python between the operators: generators, dictionaries, named tuples, arguments with stars."""
    pair = collections.namedtuple("pair", "left right")

    def scaled(*parts, factor=2.0, **more):
        yield from (p * factor + more.get("shift", 0) for p in parts)

    def forward(x):
        both = pair(*scaled(x, x.flip(0), shift=1))
        table = {name: torch.tanh(v) for name, v in both._asdict().items()}
        table["sum"] = sum(table.values())
        return [table[k] for k in sorted(table)], max((v.sum() for v in both), key=lambda v: 0)

    return forward, [data(3, 4, device=device)]


@model
def clipped_and_scaled(device):
    """What a training loop does with gradients, in one function."""
    layer = nn.Linear(6, 4).to(device)

    def forward(x, g):
        total = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(v) for v in (x, g)]))
        factor = torch.clamp(1.0 / (total + 1e-6), max=1.0)
        return layer(x * factor), g * factor, torch.nn.utils.parameters_to_vector([x, g]).norm(), torch._foreach_norm([x.detach(), g.detach()])

    return forward, [data(3, 6, device=device), data(5, device=device)]


@model
def scalars_without_axes(device):
    temperature = nn.Parameter(torch.tensor(0.07, device=device))

    def forward(x, y):
        logits = F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).t() * temperature.exp().clamp(max=100)
        at = torch.arange(len(x), device=device)
        return (F.cross_entropy(logits, at) + F.cross_entropy(logits.t(), at)) / 2, logits.argmax(1).eq(at).float().mean(), logits.diagonal().mean() - logits.mean()

    return forward, [data(4, 8, device=device), data(4, 8, device=device)]
