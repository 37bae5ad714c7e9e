"""PyTorch's side of level1.qn: function by function the same arrays in the same order."""
import torch
import torch.nn.functional as F


def k12(a, B):
    return torch.diag(a) @ B


def k16(A, B):
    return A.T @ B


def k18(A, B):
    return A.T @ B.T


k2 = k4 = k6 = k8 = k10 = torch.matmul


def k14(A, B):
    return torch.triu(A @ B)


def k20(x):
    return F.leaky_relu(x, 0.01)


k22 = torch.tanh


def k24(x):
    return F.log_softmax(x, dim=1)


k26, k28, k30, k32 = F.gelu, F.hardsigmoid, F.softsign, F.hardtanh


def k88(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3))))


k34 = F.instance_norm


def k36(x):
    return x / torch.sqrt(torch.mean(x * x, dim=1, keepdim=True) + 1e-5)


def k38(x):
    return x / torch.mean(torch.abs(x), dim=1, keepdim=True)


def k40(x, gain, bias):
    return F.layer_norm(x, gain.shape, gain, bias)


def k42(x):
    return F.max_pool2d(x, 4, stride=1, padding=1)


def k44(x):
    return F.avg_pool1d(x, 8, stride=1, padding=4)


def k46(x):
    return F.avg_pool3d(x, 3, stride=2, padding=1)


def k48(x):
    return torch.mean(x, dim=1)


def k52(x):
    return torch.argmin(x, dim=1)


def k50(x, w, bias):
    return F.conv2d(x, w, bias, stride=4, padding=2)


def k54(x, w):
    return F.conv3d(x, w)


k60 = k66 = k54


def k56(x, w):
    return F.conv2d(x, w)


k62 = k56


def k58(x, w):
    return F.conv_transpose3d(x, w)


k68 = k70 = k58


def k64(x, w):
    return F.conv_transpose1d(x, w)


def k72(x, w):
    return F.conv_transpose3d(x, w, stride=2, padding=(1, 2, 3), output_padding=1, groups=4)


def k74(x, w):
    return F.conv_transpose1d(x, w, dilation=3)


def k76(x, w):
    return F.conv1d(x, w, stride=3, dilation=4)


def k78(x, w):
    return F.conv_transpose2d(x, w, padding=(1, 3))


def k80(x, w):
    return F.conv2d(x, w, padding=(2, 4), dilation=(2, 3))


def k82(x, w):
    return F.conv2d(x, w, groups=x.shape[1])


k84 = k82


def k86(x, w, wp):
    return F.conv2d(F.conv2d(x, w, padding=1, groups=x.shape[1]), wp)


def k90(x):
    return torch.cumprod(x, dim=1)


def k92(x):
    return torch.cumsum(torch.cat((torch.zeros_like(x[:, :1]), x), dim=1)[:-1], dim=1)


def k94(a, b):
    return torch.mean((a - b) ** 2)


k96 = F.smooth_l1_loss


def k98(a, b):
    return F.kl_div(torch.log(a), b, reduction="batchmean")


def k100(p, t):
    return torch.mean(torch.clamp(1 - p * t, min=0))
