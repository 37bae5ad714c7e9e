"""Programs of images as people bring them: residual, mobile and transformer networks, pyramids, pools and paddings, diffusion, detection. PROGRAMS as in
backend_parts.py.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from .backend_parts import HEADS, WIDTH, data, model, whole


# ---- networks ----


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


# ---- blocks, pools, paddings ----


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
