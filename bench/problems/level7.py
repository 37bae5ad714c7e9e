"""PyTorch's side of level7.qn: function by function the same arrays in the same order."""
import torch
import torch.nn.functional as F


def norm_of(x, g, h):
    return F.batch_norm(x, None, None, g, h, training=True)


def heads_of(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


def k1(x, w1, b1, w2, b2, w3, b3, w4, b4, w5, b5, wa, ba, wb, bb, wc, bc):
    y = F.max_pool2d(F.relu(F.conv2d(x, w1, b1, 4, 2)), 3, 2)
    y = F.max_pool2d(F.relu(F.conv2d(y, w2, b2, 1, 2)), 3, 2)
    y = F.relu(F.conv2d(F.relu(F.conv2d(y, w3, b3, 1, 1)), w4, b4, 1, 1))
    y = F.adaptive_avg_pool2d(F.max_pool2d(F.relu(F.conv2d(y, w5, b5, 1, 1)), 3, 2), 6).flatten(1)
    return F.linear(F.relu(F.linear(F.relu(F.linear(y, wa, ba)), wb, bb)), wc, bc)


def k2(x, w0, w1, w2, w3, w4, w5, w6, w7, b, wo, bo):
    y = x
    for i, w in enumerate((w0, w1, w2, w3, w4, w5, w6, w7)):
        y = F.relu(F.conv2d(y, w, b[i][:w.shape[0]], 1, 1))
        if i % 2:
            y = F.max_pool2d(y, 2)
    return F.linear(y.mean((2, 3)), wo, bo)


def k3(x, w, g, h):
    y = x
    for i in range(8):
        a = F.relu(norm_of(F.conv2d(y, w[2 * i], None, 1, 1), g[2 * i], h[2 * i]))
        y = F.relu(norm_of(F.conv2d(a, w[2 * i + 1], None, 1, 1), g[2 * i + 1], h[2 * i + 1]) + y)
    return y.mean((2, 3))


def k4(x, wd, wp, g, h, wo, bo):
    y = x
    for i in range(6):
        a = F.relu(norm_of(F.conv2d(y, wd[i], None, 1 + i % 2, 1, 1, x.shape[1]), g[2 * i], h[2 * i]))
        y = F.relu(norm_of(F.conv2d(a, wp[i]), g[2 * i + 1], h[2 * i + 1]))
    return F.linear(y.mean((2, 3)), wo, bo)


def k5(x, w1, w2, w3, w4, w5, w6, g, h):
    a = x
    for i, w in enumerate((w1, w2, w3, w4, w5, w6)):
        c = a.shape[1]
        a = torch.cat((a, F.conv2d(F.relu(norm_of(a, g[i][:c], h[i][:c])), w, None, 1, 1)), 1)
    return a


def k6(x, w, b):
    for i in range(16):
        x = F.relu(F.linear(x, w[i], b[i]))
    return x


def k7(x, wi, wh, b):
    p = F.linear(x, wi, b)
    h, every = torch.tanh(p[:, 0]), []
    every.append(h)
    for t in range(1, x.shape[1]):
        h = torch.tanh(p[:, t] + h @ wh.T)
        every.append(h)
    return torch.stack(every, 1)


def cell(p, h, c, wh):
    i, f, g, o = (p + h @ wh.T).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def k8(x, w1, b1, u1, w2, b2, u2, wo, bo):
    p, q = F.linear(x, w1, b1), F.linear(x, w2, b2)
    h = c = k = d = torch.zeros(x.shape[0], u1.shape[1], device=x.device)
    for t in range(x.shape[1]):
        h, c = cell(p[:, t], h, c, u1)
        k, d = cell(q[:, x.shape[1] - 1 - t], k, d, u2)
    return F.linear(torch.cat((h, k), 1), wo, bo)


def k9(x, wa, ba, wp, bp, w1, b1, w2, b2, g, h):
    y, e = x, x.shape[-1:]
    for i in range(4):
        q, k, v = F.linear(y, wa[i], ba[i]).chunk(3, 2)
        a = joined(F.scaled_dot_product_attention(heads_of(q, 8), heads_of(k, 8), heads_of(v, 8)))
        y = F.layer_norm(y + F.linear(a, wp[i], bp[i]), e, g[2 * i], h[2 * i])
        y = F.layer_norm(y + F.linear(F.relu(F.linear(y, w1[i], b1[i])), w2[i], b2[i]), e, g[2 * i + 1], h[2 * i + 1])
    return y.mean(1)


def k10(x, wa, ba, wp, bp):
    q, k, v = F.linear(x, wa, ba).chunk(3, 2)
    n = x.shape[1]
    s = heads_of(q, 12) @ heads_of(k, 12).transpose(2, 3) / (x.shape[2] / 12) ** 0.5
    s = s.masked_fill(torch.ones(n, n, device=x.device).tril() == 0, float("-inf"))
    return F.linear(joined(torch.softmax(s, 3) @ heads_of(v, 12)), wp, bp)


def k11(x, w1, g1, h1, w2, g2, h2, w3, g3, h3, w4, g4, h4, w5):
    y = F.relu(norm_of(F.conv_transpose2d(x, w1), g1, h1))
    y = F.relu(norm_of(F.conv_transpose2d(y, w2, None, 2, 1), g2, h2))
    y = F.relu(norm_of(F.conv_transpose2d(y, w3, None, 2, 1), g3, h3))
    y = F.relu(norm_of(F.conv_transpose2d(y, w4, None, 2, 1), g4, h4))
    return torch.tanh(F.conv_transpose2d(y, w5, None, 2, 1))


def k12(x, wf, wg, wr):
    y, skip = x, 0
    for i in range(8):
        d = 1 << i
        q = F.pad(y, (d, 0))
        r = F.conv1d(torch.tanh(F.conv1d(q, wf[i], dilation=d)) * torch.sigmoid(F.conv1d(q, wg[i], dilation=d)), wr[i])
        skip, y = skip + r, y + r
    return F.relu(skip)


def k13(x, w1, g1, h1, w2, g2, h2, w3, g3, h3, wa, ba, wb, bb):
    y = F.relu(norm_of(F.conv1d(x, w1), g1, h1))
    y = F.relu(norm_of(F.conv1d(y, w2), g2, h2))
    y = norm_of(F.conv1d(y, w3), g3, h3).amax(2)
    return torch.log_softmax(F.linear(F.relu(F.linear(y, wa, ba)), wb, bb), 1)


def k14(x, w0, w, b, wu):
    y = F.conv2d(x, w0, None, 1, 1)
    for i in range(4):
        y = y + F.conv2d(F.relu(F.conv2d(y, w[2 * i], b[2 * i], 1, 1)), w[2 * i + 1], b[2 * i + 1], 1, 1) * 0.1
    return F.pixel_shuffle(F.conv2d(y, wu, None, 1, 1), 3)


def k15(x, w1, w2, w3, w4, wm, wj, g, h):
    m = F.conv2d(x.mean((2, 3), keepdim=True), wm).expand(-1, -1, *x.shape[2:])
    parts = [F.conv2d(x, w1), F.conv2d(x, w2, None, 1, 6, 6), F.conv2d(x, w3, None, 1, 12, 12), F.conv2d(x, w4, None, 1, 18, 18), m]
    return F.relu(norm_of(F.conv2d(torch.cat([F.relu(p) for p in parts], 1), wj), g, h))


def k16(a, b, c, wa, wb, wc, wo, bo):
    m = F.conv2d(b, wb) + F.interpolate(F.conv2d(c, wc), scale_factor=2)
    return F.conv2d(F.conv2d(a, wa) + F.interpolate(m, scale_factor=2), wo, bo, 1, 1)


def k17(wt, t, w3, w4, w5, wo, bo):
    x = wt[t].transpose(1, 2)
    return F.linear(torch.cat([F.relu(F.conv1d(x, w)).amax(2) for w in (w3, w4, w5)], 1), wo, bo)


def k18(a, x, w1, w2):
    b = (a > 1).float() + torch.eye(a.shape[0], device=a.device)
    r = b.sum(1).rsqrt()
    n = b * r[:, None] * r
    return torch.softmax(n @ (F.relu(n @ (x @ w1)) @ w2), 1)


def k19(a, x, w, l, r):
    h = x @ w
    e = F.leaky_relu((h @ l)[:, None] + h @ r, 0.2)
    return F.elu(torch.softmax(torch.where(a > 1, e, -9e15), 1) @ h)


def squash(s):
    q = (s * s).sum(-1, keepdim=True)
    return s * q / ((1 + q) * torch.sqrt(q + 1e-8))


def k20(u):
    b = torch.zeros(*u.shape[:3], 1, device=u.device)
    v = squash(u.mean(1, keepdim=True))
    for _ in range(2):
        b = b + (u * v).sum(3, keepdim=True)
        v = squash((torch.softmax(b, 2) * u).sum(1, keepdim=True))
    return v


def k21(x, t, g1, h1, w1, b1, wt, bt, g2, h2, w2, b2):
    a = F.conv2d(F.silu(F.group_norm(x, 8, g1, h1)), w1, b1, 1, 1) + F.linear(F.silu(t), wt, bt)[:, :, None, None]
    return x + F.conv2d(F.silu(F.group_norm(a, 8, g2, h2)), w2, b2, 1, 1)


def k22(x, wg, w1, w2):
    g = torch.softmax(x @ wg.T, 1)
    h = F.gelu(torch.einsum("nd,kfd->knf", x, w1))
    return torch.einsum("knd,nk->nd", torch.einsum("knf,kdf->knd", h, w2), g)


def k23(x):
    return F.local_response_norm(x, 5, alpha=0.0001, beta=0.75, k=2)


def k24(x, wa, wb, wc, wd, g, h):
    y, e = x, x.shape[-1:]
    for i in range(4):
        t = F.layer_norm(y, e, g[2 * i], h[2 * i]).transpose(1, 2)
        y = y + (F.gelu(t @ wa[i].T) @ wb[i].T).transpose(1, 2)
        y = y + F.gelu(F.layer_norm(y, e, g[2 * i + 1], h[2 * i + 1]) @ wc[i].T) @ wd[i].T
    return y.mean(1)


def k25(x, w1, b1, w2, b2):
    def slope(y):
        return F.linear(torch.tanh(F.linear(y, w1, b1)), w2, b2)
    y = x
    for _ in range(4):
        p = slope(y)
        q = slope(y + 0.05 * p)
        r = slope(y + 0.05 * q)
        y = y + 0.1 / 6 * (p + 2 * q + 2 * r + slope(y + 0.1 * r))
    return y


def k26(x, e, w1, b1, w2, b2, wm, bm, wv, bv, wz, bz, w3, b3, w4, b4):
    a = F.relu(F.conv2d(F.relu(F.conv2d(x, w1, b1, 2, 1)), w2, b2, 2, 1))
    f = a.flatten(1)
    m, v = F.linear(f, wm, bm), F.linear(f, wv, bv)
    z = F.relu(F.linear(m + torch.exp(0.5 * v) * e, wz, bz)).view(a.shape)
    y = F.conv_transpose2d(F.relu(F.conv_transpose2d(z, w3, b3, 2, 1)), w4, b4, 2, 1)
    return (F.softplus(y) - x * y).mean() - 0.5 * (1 + v - m * m - v.exp()).mean()


def k27(x, wq, wk, wv, wg):
    q, k, v = (heads_of(x @ w.T, 8) for w in (wq, wk, wv))
    i = torch.arange(x.shape[1], device=x.device)
    d = (i[:, None] - i).float()
    decay = torch.where(d >= 0, 0.97 ** d.clamp(min=0), 0.0)
    y = (q @ k.transpose(2, 3) * decay / (x.shape[2] / 8) ** 0.5) @ v
    return joined(F.layer_norm(y, y.shape[-1:])) * F.silu(x @ wg.T)


def k28(wt, wl, t, w1, b1, w2, b2):
    v = wt[t]
    s = v.sum(1)
    pairs = 0.5 * (s * s - (v * v).sum(1)).sum(1, keepdim=True)
    return torch.sigmoid(wl[t].sum(1, keepdim=True) + pairs + F.linear(F.relu(F.linear(v.flatten(1), w1, b1)), w2, b2))
