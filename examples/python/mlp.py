"""Training an MLP whose layers are Quern functions, with torch's parameters, autograd and optimiser; beside the same in torch.

    python examples/python/mlp.py [--quick]
"""

import torch
from timing import device, quick

import quern

q = quern.compile("""
tensor layer(float x[m][k], float w[k][n], float b[n]) { return gelu(matmul(x, w) + b[][:]); }
tensor last(float x[m][k], float w[k][n], float b[n]) { return matmul(x, w) + b[][:]; }
tensor loss(float y[m][n], float target[m][n]) { return mean(square(y - target)); }
""")


class Mlp(torch.nn.Module):
    def __init__(self, sizes, ours):
        super().__init__()
        torch.manual_seed(7)
        self.ours = ours
        self.weights = torch.nn.ParameterList(torch.randn(a, b) / a**0.5 for a, b in zip(sizes, sizes[1:]))
        self.biases = torch.nn.ParameterList(torch.zeros(b) for b in sizes[1:])

    def forward(self, x):
        for i, (w, b) in enumerate(zip(self.weights, self.biases)):
            final = i + 1 == len(self.weights)
            if self.ours:
                x = q.last(x, w, b) if final else q.layer(x, w, b)
            else:
                x = x @ w + b
                x = x if final else torch.nn.functional.gelu(x)
        return x


def train(ours, steps):
    model = Mlp((16, 64, 64, 4), ours).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    torch.manual_seed(8)
    x = torch.randn(256, 16, device=device)
    target = torch.sin(x[:, :4] * 2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        y = model(x)
        loss = q.loss(y, target) if ours else torch.nn.functional.mse_loss(y, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


steps = 20 if quick else 200
ours, theirs = train(True, steps), train(False, steps)
for step in range(0, steps, max(1, steps // 5)):
    print(f"step {step:4d}  quern {ours[step]:.5f}  torch {theirs[step]:.5f}")
assert abs(ours[-1] - theirs[-1]) < 0.05 * theirs[0] and ours[-1] < ours[0]
