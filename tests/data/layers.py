#!/usr/bin/env python3
"""Writes layers.safetensors, which test_model_layers.c reads: layers of PyTorch with their weights, inputs, outputs and
gradients, and the weights after a few steps of its optimisers. Usage: layers.py OUT. Made with torch 2.4.1, safetensors
0.8.0; run it again only to add a case. SPDX-License-Identifier: MIT"""
import sys

import torch
from safetensors.torch import save_file

torch.manual_seed(1234)
out = {}


def keep(name, tensor):
    out[name] = tensor.detach().clone().contiguous()


def layer(name, module, run, **inputs):
    """Weights under the layer's name, the rest under test/NAME/."""
    for key, value in module.state_dict().items():
        keep(f"{name}.{key}", value)
    for key, value in inputs.items():
        keep(f"test/{name}/{key}", value)
        if value.is_floating_point():
            value.requires_grad_(True)
    y = run(module, **inputs)
    g = torch.randn_like(y)
    (y * g).sum().backward()
    keep(f"test/{name}/y", y)
    keep(f"test/{name}/g", g)
    for key, value in list(inputs.items()) + list(module.named_parameters()):
        if value.grad is not None:
            keep(f"test/{name}/grad/{key}", value.grad)
    return module


def shaken(module):
    """Norms begin with ones and zeros, which would hide mistakes."""
    for p in module.parameters():
        torch.nn.init.uniform_(p, -1, 1)
    return module


class Rms(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(4))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight


def attend(mask):
    def run(module, q, k=None, v=None):
        return module(q, q if k is None else k, q if v is None else v, need_weights=False, attn_mask=mask)[0]

    return run


one = lambda module, x: module(x)
layer("linear", torch.nn.Linear(3, 4), one, x=torch.randn(2, 5, 3))
layer("plain", torch.nn.Linear(3, 2, bias=False), one, x=torch.randn(4, 3))
layer("embedding", torch.nn.Embedding(5, 3), one, x=torch.tensor([[1, 4], [1, 0]]))
layer("bag_sum", torch.nn.EmbeddingBag(6, 3, mode="sum"), one, x=torch.tensor([[1, 4, 1], [5, 0, 2]]))
layer("bag_mean", torch.nn.EmbeddingBag(6, 3, mode="mean"), lambda m, x, offsets: m(x, offsets),
      x=torch.tensor([1, 4, 1, 5, 0]), offsets=torch.tensor([0, 3, 3]))
layer("layer_norm", shaken(torch.nn.LayerNorm(4)), one, x=torch.randn(2, 3, 4))
layer("rms_norm", Rms(), one, x=torch.randn(3, 4))
norm = layer("batch_norm", shaken(torch.nn.BatchNorm1d(3)), one, x=torch.randn(4, 3, 2) * 2 + 1)
for key in ("running_mean", "running_var", "num_batches_tracked"):
    keep(f"test/batch_norm/after/{key}", getattr(norm, key))
norm.eval()
keep("test/batch_norm/eval", norm(out["test/batch_norm/x"]))
layer("attention", shaken(torch.nn.MultiheadAttention(4, 2, batch_first=True)), attend(None), q=torch.randn(2, 3, 4))
layer("causal", shaken(torch.nn.MultiheadAttention(4, 2, batch_first=True)),
      attend(torch.triu(torch.full((3, 3), float("-inf")), 1)), q=torch.randn(2, 3, 4))
layer("cross", shaken(torch.nn.MultiheadAttention(4, 2, batch_first=True)), attend(None), q=torch.randn(2, 2, 4),
      k=torch.randn(2, 3, 4), v=torch.randn(2, 3, 4))

# Steps of optimisers on a small perceptron with a table, under a schedule, clipped.
makers = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.05),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.02),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
}
x, target = torch.tensor([[0, 3], [2, 3], [1, 1]]), torch.tensor([[1.0], [0.0], [1.0]])
keep("test/train/x", x)
keep("test/train/target", target)
table, first, last = torch.nn.Embedding(4, 2), torch.nn.Linear(4, 3), torch.nn.Linear(3, 1)
net = torch.nn.ModuleDict({"table": table, "first": first, "last": last})
for key, value in net.state_dict().items():
    keep(f"train.{key}", value)
begin = {key: value.clone() for key, value in net.state_dict().items()}
for name, make in makers.items():
    net.load_state_dict(begin)
    optimizer = make(list(net.parameters()))
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.25, total_iters=2)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], milestones=[2])
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        hidden = torch.nn.functional.gelu(first(table(x).flatten(1)))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(last(hidden), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.2)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    keep(f"test/train/{name}/losses", torch.stack(losses))
    for key, value in net.state_dict().items():
        keep(f"test/train/{name}/{key}", value)
save_file(out, sys.argv[1], metadata={"format": "pt", "made by": "PyTorch"})
