"""The functions of level6.qn for PyTorch, the same arrays in the same order."""
import math

import torch
import torch.nn.functional as F


def k1(x):
    k = torch.tensor([[-1., 0, 1], [-2, 0, 2], [-1, 0, 1]], device=x.device)
    y = F.conv2d(x[:, None], torch.stack([k, k.T])[:, None], padding=1)
    return torch.sqrt((y * y).sum(1) + 1e-6)


def k2(x, k):
    return F.conv2d(F.conv2d(x[:, None], k.view(1, 1, 1, 5), padding=(0, 2)), k.view(1, 1, 5, 1), padding=(2, 0))[:, 0]


def k3(x, s):
    g = 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
    return torch.clamp(g + s * (x - g), 0, 1)


def k4(x):
    a = x.amin((2, 3), keepdim=True)
    return (x - a) / (x.amax((2, 3), keepdim=True) - a + 1e-6)


def k5(x):
    return torch.rot90(x, 1, (2, 3)).contiguous()


def k6(x):
    return F.avg_pool2d(F.pad(x[:, None], (1, 1, 1, 1), mode="reflect"), 3, 1)[:, 0]


def k7(x):
    m = F.avg_pool2d(x[:, None], 15, 1, 7)[:, 0]
    return torch.sigmoid(8 * (x - m + 0.02))


def k8(x):
    return (F.max_pool2d(x[:, None], 5, 1, 2) + F.max_pool2d(-x[:, None], 5, 1, 2))[:, 0]


def k9(x):
    return x.cumsum(2).cumsum(1)


def k10(x, m, s):
    return ((x[:, 16:-16, 16:-16] / 255 - m) / s).permute(0, 3, 1, 2).contiguous()


def k11(x):
    return F.interpolate(x, size=(x.shape[2] // 2, x.shape[3] // 2), mode="bilinear")


def k12(x):
    return x.unfold(2, 4, 2).unfold(3, 4, 2).permute(0, 2, 3, 1, 4, 5).reshape(-1, x.shape[1] * 16)


def k13(a, b, c, s):
    n = a.shape[1] // 2
    d, e = a[:, :n] - a[:, n:], b[:, :n] - b[:, n:]
    return torch.cat([a[:, :n] + a[:, n:], d * c - e * s, b[:, :n] + b[:, n:], d * s + e * c], 1)


def k14(x, w):
    f = x.unfold(1, 512, 128) * w
    return torch.log((f * f).sum(2) + 1e-5)


def k15(x):
    return x.diff(dim=1).diff(dim=1).abs().mean(1)


def k16(a, b):
    return torch.stack([a, b], 2).reshape(a.shape[0], -1)


def k17(x, w):
    return F.conv1d(x[:, None], w.flip(0).view(1, 1, 64), padding=63)[:, 0, :x.shape[1]]


def k18(x):
    return (torch.sign(x) * torch.log1p(255 * x.clamp(-1, 1).abs()) / 5.545177444 + 1) * 127.5


def k19(x, a):
    for i in range(3):
        s = 1 << i
        x = x + a ** s * F.pad(x, (s, 0))[:, :x.shape[1]]
    return x


def k20(x):
    return torch.cos((x * 0.01).cumsum(1))


def k21(x):
    return (x - x.mean(0)) / (x.std(0) + 1e-6)


def k22(x):
    c = x - x.mean(0)
    return c.T @ c / (x.shape[0] - 1)


def k23(x):
    m = x.mean(1, keepdim=True)
    d = x - m
    v = (d * d).mean(1, keepdim=True)
    return torch.cat([m, v, (d ** 3).mean(1, keepdim=True) / v ** 1.5, (d ** 4).mean(1, keepdim=True) / (v * v)], 1)


def k24(x):
    q = x / x.sum(1, keepdim=True)
    return -(q * torch.log(q + 1e-9)).sum(1)


def k25(x):
    return x.median(1).values


def k26(x):
    m, s = x.mean(1, keepdim=True), x.std(1, keepdim=True)
    return torch.maximum(torch.minimum(x, m + 3 * s), m - 3 * s)


def k27(x):
    return (x >= x.cummax(1).values).float().sum(1)


def k28(x):
    c = x - x.mean(1, keepdim=True)
    u = c / c.norm(dim=1, keepdim=True)
    return u @ u.T


def k29(x):
    return torch.logsumexp(x, 0) - math.log(x.shape[0])


def k30(x, w):
    return (x * w.softmax(1)[:, :, None]).sum(1)


def k31(u, v):
    q = F.pad(u, (1, 1, 1, 1))
    return 2 * u - v + 0.1 * (q[:-2, 1:-1] + q[2:, 1:-1] + q[1:-1, :-2] + q[1:-1, 2:] - 4 * u)


def k32(u):
    for _ in range(2):
        u = u + 0.1 * (u.roll(1, 1) + u.roll(-1, 1) + u.roll(1, 2) + u.roll(-1, 2) - 4 * u)
    return u


def k33(u):
    q = F.pad(u, (1, 1, 1, 1, 1, 1))
    return u + 0.1 * (q[:-2, 1:-1, 1:-1] + q[2:, 1:-1, 1:-1] + q[1:-1, :-2, 1:-1] + q[1:-1, 2:, 1:-1] + q[1:-1, 1:-1, :-2] + q[1:-1, 1:-1, 2:] - 6 * u)


def k34(x, m):
    d = x[None] - x[:, None]
    r = (d * d).sum(2, keepdim=True) + 0.01
    return (d * (m[None, :, None] * torch.rsqrt(r * r * r))).sum(1)


def k35(x):
    n = F.avg_pool2d(x[None, None], 3, 1, 1, divisor_override=1)[0, 0] - x
    return torch.where(n == 3, 1.0, torch.where(n == 2, x, 0.0))


def k36(a, r):
    return 0.85 * ((a / a.sum(1, keepdim=True)) @ r) + 0.15 / a.shape[0]


def k37(x, c):
    return c[((c * c).sum(1) - 2 * x @ c.T).argmin(1)]


def k38(s, x):
    return (s[:, :, None] + x.log_softmax(2)).flatten(1).topk(8, 1).values


def k39(x, t):
    seen = torch.zeros_like(x).scatter_add(1, t, torch.ones_like(t, dtype=x.dtype))
    return torch.where(seen > 0, torch.where(x > 0, x / 1.2, x * 1.2), x)


def k40(x, t):
    m = (t > 3).float()
    return (x * m[:, :, None]).sum(1) / m.sum(1, keepdim=True).clamp(min=1)


def k41(b):
    lo = torch.maximum(b[:, None, :2], b[None, :, :2])
    hi = torch.minimum(b[:, None, 2:], b[None, :, 2:])
    a = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    i = (hi - lo).clamp(min=0).prod(2)
    o = i / (a[:, None] + a[None] - i + 1e-6)
    return torch.tril(o, -1).amax(1)


def k42(x, a, b):
    return (x[a] * x[b]).sum(1)


def k43(x, t, m):
    return torch.where(m > 0, x / t[:, None], -10000.0).softmax(1)


def k44(x):
    y = torch.relu(x - x.amax(1, keepdim=True) + 1)
    return y / y.sum(1, keepdim=True)


def k45(x, u):
    y = ((x - torch.log(-torch.log(u))) / 0.5).softmax(1)
    return torch.where(y == y.amax(1, keepdim=True), 1.0, 0.0)


def k46(x, t):
    return F.cross_entropy(x, t, label_smoothing=0.1)


def k47(x):
    s = x.abs().amax(1, keepdim=True) / 127
    return x / s


def k48(x):
    r = x.view(x.shape[0], -1, 32)
    s = r.abs().amax(2, keepdim=True) / 127
    return torch.floor(r / s + 0.5).to(torch.int8)


def k49(x, w):
    g = (x * w).sum(2, keepdim=True).softmax(1)
    return (x * g).sum(1)


def k50(x, wd, wu):
    return x + F.gelu(x @ wd) @ wu


def k51(x, m, s, p):
    z = (x[:, None] - m) * torch.exp(-s)
    return torch.logsumexp(p.log_softmax(1) - z - s - 2 * F.softplus(-z), 1)


def k52(x, w):
    a = x.mean((2, 3)) @ w + x.amax((2, 3)) @ w
    return x * torch.sigmoid(a)[:, :, None, None]


def k53(x, w):
    a = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
    return x * torch.sigmoid(F.conv2d(a, w, padding=3))


def k54(x):
    r = x.flatten(2)
    return r @ r.transpose(1, 2) / r[0].numel()


def k55(x):
    return (x[:, :, 1:] - x[:, :, :-1]).abs().mean() + (x[:, :, :, 1:] - x[:, :, :, :-1]).abs().mean()


def k56(x, t):
    q = torch.sigmoid(x)
    return (1 - (2 * (q * t).sum((1, 2)) + 1) / (q.sum((1, 2)) + t.sum((1, 2)) + 1)).mean()


def k57(a, b):
    f = lambda z: F.avg_pool2d(z[:, None], 11, 1)
    u, v = f(a), f(b)
    p, q, r = f(a * a) - u * u, f(b * b) - v * v, f(a * b) - u * v
    return ((2 * u * v + 0.0001) * (2 * r + 0.0009) / ((u * u + v * v + 0.0001) * (p + q + 0.0009))).mean()


def k58(x, f):
    a = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)[:, None] * f
    return x + torch.cat([a.sin(), a.cos()], 1)


def k59(x):
    return (x * torch.rsqrt((x * x).sum(3, keepdim=True) + 1e-6)).permute(0, 2, 3, 1).contiguous()


def k60(w, g, m, v):
    a, b = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return w - 0.001 * a / (torch.sqrt(b) + 1e-8)


def k61(a, b):
    s = torch.clamp(1.0 / torch.sqrt((a * a).sum() + (b * b).sum()), max=1.0)
    return torch.cat([a * s, b * s])


def k62(a, b):
    return torch.zeros(4096, device=a.device).scatter_add(0, a * 64 + b, torch.ones(a.shape, device=a.device))


def k63(x):
    c = torch.zeros(256, device=x.device).scatter_add(0, x, torch.ones(x.shape, device=x.device)).cumsum(0) / x.shape[0]
    return c[x] * 255
