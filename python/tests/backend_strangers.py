"""Programs as people bring them, for the torch.compile backend: blocks of well-known models, and code that indexes, writes in place, takes views,
mixes types, hooks modules. MODELS as in backend_models.py: name -> a function of the device that gives (callable, arguments).
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

MODELS = {}
ROUGH = {"under_autocast", "mixed_types_written_out"}  # of 16 bits: fused operators keep f32 between them
WIDTH, HEADS = 32, 4


def model(make):
    MODELS[make.__name__] = make
    return make


def data(*shape, device, grad=True, dtype=torch.float32):
    x = torch.randn(*shape, device=device).to(dtype)
    return x.requires_grad_() if grad else x


# ---- language models ----


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


# ---- vision ----


@model
def vit(device):
    patch, token = nn.Conv2d(3, WIDTH, 4, 4).to(device), nn.Parameter(torch.randn(1, 1, WIDTH, device=device))
    place, norm, head = nn.Parameter(torch.randn(1, 17, WIDTH, device=device)), nn.LayerNorm(WIDTH).to(device), nn.Linear(WIDTH, 7).to(device)
    attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).to(device)

    def forward(x):
        h = patch(x).flatten(2).transpose(1, 2)
        h = torch.cat((token.expand(x.shape[0], -1, -1), h), dim=1) + place
        n = norm(h)
        return head((h + attention(n, n, n, need_weights=False)[0])[:, 0])

    return forward, [data(2, 3, 16, 16, device=device)]


@model
def unet_block(device):
    down, mid, up = nn.Conv2d(4, 8, 3, 2, 1).to(device), nn.Conv2d(8, 8, 3, padding=1).to(device), nn.ConvTranspose2d(8, 4, 2, 2).to(device)
    n1, n2, last = nn.GroupNorm(2, 8).to(device), nn.GroupNorm(4, 8).to(device), nn.Conv2d(8, 3, 1).to(device)

    def forward(x):
        h = F.silu(n1(down(x)))
        h = F.silu(n2(mid(F.interpolate(F.avg_pool2d(h, 2), scale_factor=2, mode="nearest")) + h))
        return last(torch.cat([up(h), x], 1)), F.interpolate(x, size=(7, 9), mode="bilinear", align_corners=False)

    return forward, [data(2, 4, 8, 8, device=device)]


@model
def swin_windows(device):
    """Windows cut by views, shifted by roll, with a gathered bias."""
    table, index = nn.Parameter(torch.randn(9, 2, device=device)), (torch.arange(16, device=device).view(4, 4) * 5) % 9
    qkv = nn.Linear(8, 24).to(device)

    def forward(x):
        b, h, w, c = x.shape
        s = torch.roll(x, shifts=(-1, -1), dims=(1, 2))
        s = s.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 4, c)
        q, k, v = qkv(s).reshape(s.shape[0], 4, 3, 2, 4).permute(2, 0, 3, 1, 4)
        scores = q * 0.5 @ k.transpose(-2, -1) + table[index.view(-1)].view(4, 4, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, 4, c)
        y = y.view(b, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(b, h, w, c)
        return torch.roll(y, shifts=(1, 1), dims=(1, 2)) + x

    return forward, [data(2, 4, 6, 8, device=device)]


@model
def channels_last_convolutions(device):
    net = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Hardswish(), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU6(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    return net.to(device).to(memory_format=torch.channels_last).train(), [data(2, 4, 8, 8, device=device, grad=False).to(memory_format=torch.channels_last).requires_grad_()]


@model
def gan_discriminator(device):
    net = nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 8, 4, 2, 1)), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(8, 16, 4, 2, 1, bias=False),
        nn.InstanceNorm2d(16, affine=True), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(16, 1, 4, 1, 0), nn.Flatten(0),
    ).to(device).eval()
    return lambda real, fake: F.softplus(-net(real)).mean() + F.softplus(net(fake)).mean(), [data(2, 3, 16, 16, device=device), data(2, 3, 16, 16, device=device)]


@model
def vae(device):
    encode, mean, spread, decode = nn.Linear(20, 16).to(device), nn.Linear(16, 4).to(device), nn.Linear(16, 4).to(device), nn.Sequential(nn.Linear(4, 16), nn.ReLU(inplace=True), nn.Linear(16, 20)).to(device)
    noise = torch.randn(6, 4, device=device)

    def forward(x):
        h = F.relu(encode(x.view(-1, 20)))
        mu, log_variance = mean(h), spread(h)
        z = mu + noise * torch.exp(0.5 * log_variance)
        kl = -0.5 * torch.sum(1 + log_variance - mu.pow(2) - log_variance.exp())
        return F.binary_cross_entropy_with_logits(decode(z), x.detach().sigmoid().view(-1, 20), reduction="sum") + kl, z.detach()

    return forward, [data(6, 4, 5, device=device)]


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


# ---- how people write ----


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


# ---- from other fields ----


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
