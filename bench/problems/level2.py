"""PyTorch's side of level2.qn: function by function the same arrays in the same order."""
import torch
import torch.nn.functional as F


def k2(x, w, b, bias):
    y = torch.clamp(F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1) + bias, 0, 1)
    return torch.clamp(y * 2, 0, 1) / 2


def k4(x, w, b):
    return F.mish(F.mish(F.conv2d(x, w, b)))


def k6(x, w, b):
    return F.max_pool3d(F.max_pool3d(torch.softmax(F.conv3d(x, w, b), dim=1), 2), 2)


def k8(x, w, b, bias):
    return torch.sum(F.adaptive_avg_pool3d(F.max_pool3d(F.conv3d(x, w, b) / 2, 2), 1) + bias, dim=1)


def k10(x, w, b):
    return torch.tanh(torch.mean(F.hardtanh(F.max_pool2d(F.conv_transpose2d(x, w, b, padding=1), 2)), dim=(2, 3), keepdim=True))


def k12(x, w, b):
    return F.leaky_relu(F.linear(x, w, b) * 2, 0.1)


def k14(x, w):
    return torch.sum(torch.matmul(x, w.T) / 2, dim=1, keepdim=True) * 1.5


def k16(x, w, b):
    return F.hardtanh(F.mish(F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1)) + 0.5) * 2


def k18(x, w, b):
    y = torch.mean(torch.max(torch.sum(F.linear(x, w, b), dim=1, keepdim=True), dim=1, keepdim=True)[0], dim=1, keepdim=True)
    return torch.logsumexp(torch.logsumexp(y, dim=1, keepdim=True), dim=1, keepdim=True)


def k20(x, w, b, bias):
    y = F.conv_transpose3d(x, w, b, stride=2, padding=1, output_padding=1)
    z = y + bias
    z = z + y
    z = z * y
    return z + y


def k22(x, w, b):
    y = F.linear(x, w, b) * 2
    z = torch.logsumexp(torch.clamp(y + y, -10, 10), dim=1, keepdim=True)
    return z * F.mish(z)


def k24(x, w, b):
    return torch.softmax(torch.min(F.conv3d(x, w, b), dim=2)[0], dim=1)


def k26(x, a, w, b):
    y = F.conv_transpose3d(x, w, b, stride=2, padding=1, output_padding=1) + a
    return y * F.hardswish(y)


def k28(x, y, w, b):
    z = F.instance_norm(F.linear(x, w, b)[:, None, None, :])[:, 0, 0, :]
    return (z + y) * y


def k30(x, w, b, g, h):
    return F.hardtanh(F.group_norm(F.linear(x, w, b), 16, g, h), -2, 2)


def k32(x, w, b):
    return torch.min(F.conv2d(x, w, b) * 2, dim=1, keepdim=True)[0]


def k34(x, w, b, g, h):
    return F.gelu(F.layer_norm(F.conv_transpose3d(x, w, b, stride=2, padding=1), g.shape, g, h)) * 1.5


def k36(x, w, b, bias):
    return F.gelu(torch.sum(torch.min(F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1), dim=1, keepdim=True)[0], dim=2, keepdim=True)) + bias


def k38(x, w, b, scale):
    y = torch.clamp(F.conv_transpose3d(F.avg_pool3d(x, 2), w, b, stride=2, padding=1, output_padding=1), 0, 1)
    return torch.softmax(y.flatten(2), dim=2).view(y.shape) * scale


def k40(x, w, b):
    y = F.linear(x, w, b)
    return y * 0.5 + y


def k42(x, w, b, bias):
    y = torch.logsumexp(torch.mean(F.conv_transpose2d(x, w, b), dim=(2, 3), keepdim=True) + bias, dim=1, keepdim=True)
    return torch.sum(y, dim=(2, 3)) * 10


def k44(x, w, b):
    return torch.mean(torch.mean(F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1) * 0.5, dim=[2, 3], keepdim=True), dim=[2, 3], keepdim=True)


def k46(x, w, b):
    return F.avg_pool2d(torch.tanh(F.conv2d(x, w, b) - 0.5) - 0.2, 2)


def k48(x, w, b, scale, bias):
    return torch.sigmoid(torch.tanh(F.conv3d(x, w, b) * scale) * bias)


def k50(x, w, b, bias):
    return (F.avg_pool3d(F.conv_transpose3d(x, w, b, stride=2, padding=1) * 0.5, 2) + bias) * 1.5


def k52(x, w, b, g, h):
    y = F.conv2d(x, w, b)
    return F.batch_norm(torch.tanh(F.softplus(y)) * y, None, None, g, h, training=True)


def k54(x, w, b, scale):
    return F.gelu(F.leaky_relu(F.conv2d(x, w, b) * scale))


def k56(x, w, b):
    return torch.sum(torch.sigmoid(F.linear(x, w, b)), dim=1, keepdim=True)


def k58(x, w, b, bias):
    y = torch.logsumexp(F.conv_transpose3d(x, w, b, stride=2, padding=1), dim=1, keepdim=True)
    return torch.clamp(y * torch.sigmoid(y + 3) / 6 - bias, -1, 1)


def k60(x, w, b, g, h):
    return F.hardswish(F.group_norm(F.silu(F.conv_transpose3d(x, w, b, stride=2, padding=1)), 4, g, h))


def k62(x, w, b, g, h):
    y = F.leaky_relu(F.group_norm(F.linear(x, w, b), w.shape[0] // 16, g, h))
    return y + y


def k64(x, w, b):
    return F.gelu(F.gelu(F.leaky_relu(F.leaky_relu(torch.logsumexp(F.linear(x, w, b), dim=1, keepdim=True)))))


def k66(x, w, b):
    return torch.softmax(F.dropout(F.linear(x, w, b), 0.0), dim=1)


def k68(x, w, b, c):
    return torch.min(F.linear(x, w, b), c) - c


def k70(x, w, b):
    y = F.linear(x, w, b)
    return torch.sigmoid(y) * 2 + y


def k72(x, w, b, g, h):
    return F.avg_pool3d(F.avg_pool3d(F.batch_norm(F.conv_transpose3d(x, w, b, stride=2, padding=1), None, None, g, h, training=True), 2), 2)


def k74(x, w, b, scale):
    y = F.leaky_relu(F.conv_transpose3d(x, w, b, stride=2, padding=1, output_padding=1), 0.2)
    return F.max_pool3d(F.leaky_relu(y * scale, 0.2), 2)


def k76(x, w, bias):
    return F.relu(F.linear(x, w) + bias)


def k78(x, w, b):
    return torch.sum(F.max_pool3d(F.max_pool3d(F.conv_transpose3d(x, w, b, stride=2, padding=2), 2), 3), dim=1, keepdim=True)


def k80(x, w, b):
    y = torch.max(F.linear(x, w, b), dim=1, keepdim=True)[0]
    return F.gelu(y - y.mean(dim=1, keepdim=True))


def k82(x, w, b, bias):
    return F.max_pool2d(torch.tanh(F.conv2d(x, w, b)) * 2 + bias, 4)


def k84(x, w, b, g, h, scale):
    return torch.softmax(scale * F.batch_norm(F.linear(x, w, b), None, None, g, h, training=True), dim=1)


def k86(x, w, b):
    return F.gelu(F.linear(x, w, b) / 10)


def k88(x, w, b, g, h, m):
    return F.silu(F.silu(F.group_norm(F.linear(x, w, b), w.shape[0] // 32, g, h)) * m)


def k90(x, w, b, a):
    return F.gelu(torch.clamp(F.leaky_relu(F.conv3d(x, w, b), 0.2) + a, -1, 1))


def k92(x, w, b, g, h):
    y = F.conv2d(x, w, b)
    return torch.logsumexp(y + F.hardswish(torch.tanh(F.group_norm(y, 16, g, h))), dim=1, keepdim=True)


def k94(x, w, b, bias, g, h):
    return F.group_norm(F.mish(F.hardtanh(F.linear(x, w, b) + bias)), w.shape[0] // 32, g, h)


def k96(x, w, b):
    return torch.clamp(F.adaptive_avg_pool3d(F.max_pool3d(F.conv_transpose3d(x, w, b, stride=2, padding=1) * 0.5, 2), 1), 0, 1)


def k98(x, w, b):
    return torch.max(F.gelu(F.avg_pool1d(F.linear(x, w, b)[:, None], 16)[:, 0]) * 2, dim=1)[0]


def k100(x, w, b):
    return torch.clamp(F.conv_transpose3d(x, w, b, stride=2, padding=1), min=-1) / 2
