"""PyTorch's side of level3.qn: function by function the same arrays in the same order."""
import torch
import torch.nn.functional as F


def norm_of(x, g, h):
    return F.batch_norm(x, None, None, g, h, training=True)


def heads_of(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


def k1(x, w1, g1, h1, w2, g2, h2, w3, g3, h3):
    y = F.relu(norm_of(F.conv2d(x, w1, padding=1), g1, h1))
    return F.relu(norm_of(F.conv2d(y, w2, padding=1), g2, h2) + norm_of(F.conv2d(x, w3), g3, h3))


def k2(x, w1, g1, h1, w2, g2, h2, w3, g3, h3, ws, m, v, mo, vo):
    a = F.relu(F.batch_norm(F.conv2d(x, w1), m, v.abs() + 1, g1, h1))
    b = F.relu(F.batch_norm(F.conv2d(a, w2, stride=2, padding=1), m, v.abs() + 1, g2, h2))
    c = F.batch_norm(F.conv2d(b, w3), mo, vo.abs() + 1, g3, h3)
    return F.relu(c + F.conv2d(x, ws, stride=2))


def k3(x, g1, h1, w1, g2, h2, w2, g3, h3, w3):
    for g, h, w in ((g1, h1, w1), (g2, h2, w2), (g3, h3, w3)):
        x = torch.cat([x, F.conv2d(F.relu(norm_of(x, g, h)), w, padding=1)], dim=1)
    return x


def k4(x, g, h, w):
    return F.avg_pool2d(F.conv2d(F.relu(norm_of(x, g, h)), w), 2)


def k5(x, w1, g1, h1, w2, g2, h2, ws, bs, we, be, w3, g3, h3):
    a = F.relu6(norm_of(F.conv2d(x, w1), g1, h1))
    b = F.relu6(norm_of(F.conv2d(a, w2, padding=2, groups=w2.shape[0]), g2, h2))
    s = torch.sigmoid(F.linear(F.relu(F.linear(b.mean(dim=(2, 3)), ws, bs)), we, be))
    return x + norm_of(F.conv2d(b * s[:, :, None, None], w3), g3, h3)


def k6(x, w1, b1, w2, b2):
    return x * torch.sigmoid(F.linear(F.relu(F.linear(x.mean(dim=(2, 3)), w1, b1)), w2, b2))[:, :, None, None]


def k7(x, g1, h1, wa, ba, wp, bp, g2, h2, w1, b1, w2, b2, heads=8):
    q, k, v = F.linear(F.layer_norm(x, g1.shape, g1, h1), wa, ba).chunk(3, dim=2)
    a = F.scaled_dot_product_attention(heads_of(q, heads), heads_of(k, heads), heads_of(v, heads), is_causal=True)
    y = x + F.linear(joined(a), wp, bp)
    m = F.linear(F.layer_norm(y, g2.shape, g2, h2), w1, b1)
    return y + F.linear(F.gelu(m, approximate="tanh"), w2, b2)


def k8(x, h0, c0, wi, wh, b):
    h, c = h0, c0
    for t in range(8):
        i, f, g, o = (F.linear(x[:, t], wi, b) + F.linear(h, wh)).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return h


def k9(x, h0, wi, bi, wh, bh):
    h = h0
    for t in range(6):
        h = torch.gru_cell(x[:, t], h, wi, wh, bi, bh)
    return h


def k10(x, wp, bp, cls, pos, g1, h1, wa, ba, wo, bo, g2, h2, w1, b1, w2, b2, P=16, heads=8):
    t = x.unfold(2, P, P).unfold(3, P, P).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
    y = torch.cat([cls.expand(x.shape[0], 1, -1), F.linear(t, wp, bp)], dim=1) + pos
    q, k, v = F.linear(F.layer_norm(y, g1.shape, g1, h1), wa, ba).chunk(3, dim=2)
    a = F.scaled_dot_product_attention(heads_of(q, heads), heads_of(k, heads), heads_of(v, heads))
    z = y + F.linear(joined(a), wo, bo)
    return z + F.linear(F.gelu(F.linear(F.layer_norm(z, g2.shape, g2, h2), w1, b1)), w2, b2)


def k11(x, wa, ba, bias, wp, bp, S=7, HEADS=3):
    B, H, W, C = x.shape
    r = torch.roll(x, (-(S // 2), -(S // 2)), (1, 2))
    t = r.view(B, H // S, S, W // S, S, C).permute(0, 1, 3, 2, 4, 5).reshape(-1, S * S, C)
    q, k, v = F.linear(t, wa, ba).chunk(3, dim=2)
    a = heads_of(q, HEADS) * (C // HEADS) ** -0.5 @ heads_of(k, HEADS).transpose(2, 3)
    y = F.linear(joined(torch.softmax(a + bias, dim=3) @ heads_of(v, HEADS)), wp, bp)
    y = y.view(B, H // S, W // S, S, S, C).permute(0, 1, 3, 2, 4, 5).reshape(B, H, W, C)
    return torch.roll(y, (S // 2, S // 2), (1, 2))


def k12(x, a, b, c):
    L, N = x.shape[2], x.shape[1]
    s = torch.cumsum(-F.softplus(a), dim=3)
    lower = torch.ones(L, L, dtype=torch.bool, device=x.device).tril()
    decay = torch.exp((s[..., :, None] - s[..., None, :]).masked_fill(~lower, float("-inf")))
    y = torch.einsum("bclhn,bcshn,bhcls,bcshp->bclhp", c, b, decay, x)
    states = torch.einsum("bclhn,bhcl,bclhp->bchpn", b, torch.exp(s[..., -1:] - s), x)
    last = torch.cumsum(F.pad(s[..., -1], (1, 0)), dim=2)
    lower = torch.ones(N + 1, N + 1, dtype=torch.bool, device=x.device).tril()
    between = torch.exp((last[..., :, None] - last[..., None, :]).masked_fill(~lower, float("-inf")))
    strict = torch.ones(N, N, device=x.device).tril(-1)
    carried = torch.einsum("bhzc,bchpn->bzhpn", between[:, :, :N, 1:] * strict, states)
    return y + torch.einsum("bclhn,bchpn,bhcl->bclhp", c, carried, torch.exp(s))


def k13(x, w1, b1, w2, b2, w3, b3):
    y = F.max_pool2d(F.relu(F.conv2d(F.relu(F.conv2d(x, w1, b1, padding=1)), w2, b2, padding=1)), 2)
    return F.max_pool2d(F.relu(F.conv2d(y, w3, b3, padding=1)), 2)


def k14(x, w1, g1, h1, w2, g2, h2, wu, bu):
    a = torch.softmax(norm_of(F.conv2d(x, w1, padding=1), g1, h1), dim=-1)
    b = torch.softmax(norm_of(F.conv2d(a, w2, padding=1), g2, h2), dim=-1)
    return torch.cat([F.conv_transpose2d(F.max_pool2d(b, 2), wu, bu, stride=2), b], dim=1)


def k15(x, w, g, h, centre):
    B, N, K = x.shape[0], x.shape[1], w.shape[1]
    a = torch.softmax(norm_of(x.flatten(0, 1) @ w, g, h), dim=1).view(B, N, K)
    v = x.transpose(1, 2) @ a - a.sum(dim=1, keepdim=True) * centre
    return F.normalize(F.normalize(v, dim=1).flatten(1), dim=1)


def k16(x, w1, g1, h1, w2, g2, h2, w3, g3, h3):
    a = F.relu(norm_of(F.conv2d(x, w1, groups=3), g1, h1))
    s = a.unflatten(1, (3, -1)).transpose(1, 2).flatten(1, 2)
    b = norm_of(F.conv2d(s, w2, padding=1, groups=w2.shape[0]), g2, h2)
    return F.relu(norm_of(F.conv2d(b, w3, groups=3), g3, h3) + x)


def k17(x, w1, b1, r3, c3, w3, b3, r5, c5, w5, b5, wp, bp):
    three = F.conv2d(F.conv2d(x, r3, c3), w3, b3, padding=1)
    five = F.conv2d(F.conv2d(x, r5, c5), w5, b5, padding=2)
    return torch.cat([F.conv2d(x, w1, b1), three, five, F.conv2d(F.max_pool2d(x, 3, stride=1, padding=1), wp, bp)], dim=1)


def k18(x, ws, bs, w1, b1, w3, b3):
    s = F.relu(F.conv2d(x, ws, bs))
    return torch.cat([F.relu(F.conv2d(s, w1, b1)), F.relu(F.conv2d(s, w3, b3, padding=1))], dim=1)


def k19(x, w1, b1, w2, b2, wa, ba, wb, bb, wc, bc):
    y = F.max_pool2d(F.relu(F.conv2d(F.max_pool2d(F.relu(F.conv2d(x, w1, b1)), 2), w2, b2)), 2).flatten(1)
    return F.linear(F.relu(F.linear(F.relu(F.linear(y, wa, ba)), wb, bb)), wc, bc)


def k20(x, w1, b1, w2, b2, w3, b3, w4, b4):
    return F.linear(F.relu(F.linear(F.relu(F.linear(F.relu(F.linear(x, w1, b1)), w2, b2)), w3, b3)), w4, b4)


def k21(x, wa, ba, heads=12):
    q, k, v = F.linear(x, wa, ba).chunk(3, dim=2)
    a = heads_of(q, heads) @ heads_of(k, heads).transpose(2, 3) * (x.shape[2] // heads) ** -0.5
    lower = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
    return joined(F.relu(a.masked_fill(~lower, float("-inf"))) @ heads_of(v, heads))


def turned(x, c, s):
    a, b = x.chunk(2, dim=3)
    return torch.cat([a * c - b * s, b * c + a * s], dim=3)


def k22(x, g1, wq, wk, wv, wo, c, s, g2, wg, wu, wd):
    D = 2 * c.shape[1]
    n = F.rms_norm(x, g1.shape, g1, 1e-5)
    q, k = turned(heads_of(F.linear(n, wq), x.shape[2] // D), c, s), turned(heads_of(F.linear(n, wk), x.shape[2] // D // 4), c, s)
    v = heads_of(F.linear(n, wv), x.shape[2] // D // 4)
    a = F.scaled_dot_product_attention(q, k.repeat_interleave(4, dim=1), v.repeat_interleave(4, dim=1), is_causal=True)
    y = x + F.linear(joined(a), wo)
    m = F.rms_norm(y, g2.shape, g2, 1e-5)
    return y + F.linear(F.silu(F.linear(m, wg)) * F.linear(m, wu), wd)


def k23(x, w, b, g, h, w1, b1, w2, b2, scale):
    y = F.conv2d(x, w, b, padding=3, groups=x.shape[1]).permute(0, 2, 3, 1)
    m = F.linear(F.gelu(F.linear(F.layer_norm(y, g.shape, g, h), w1, b1)), w2, b2) * scale
    return x + m.permute(0, 3, 1, 2)


def k24(x, h0, w1, b1, w2, b2):
    return F.linear(torch.tanh(F.linear(torch.cat([x, h0], dim=1), w1, b1)), w2, b2)
