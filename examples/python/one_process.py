"""torch and Quern in one process: the same memory, the same stream, one CUDA graph, one profile.

    python examples/python/one_process.py [--quick]
"""

import torch
from timing import device, quick

import quern

q = quern.compile("""
kernel axpy(in float x[n], inout float y[n], float a, const int B = 1024) launch (cdiv(n, B))
{ int i = program(0) * B; y[i : B] += a * x[i : B]; }
tensor centred(float x[m][n]) { return x - mean(x, axis = 1); }
""")

x = torch.randn(64 if quick else 1024, 512, device=device)
y = torch.zeros_like(x)

# In place, on torch's memory, in the order of torch's stream: no copies, no waiting.
y += 1
q.axpy(x.view(-1), y.view(-1), 2.0)
y -= 1
torch.testing.assert_close(y, 2 * x)

# NumPy's view of a CPU tensor is the same memory again.
if device == "cpu":
    import numpy

    out = numpy.empty(x.shape, numpy.float32)
    q.centred(x.numpy(), out=out)
    torch.testing.assert_close(torch.from_numpy(out), q.centred(x))

# A graph of torch's with Quern's kernels in it.
if device == "cuda":
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = q.centred(x) * 2
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(z, 2 * (x - x.mean(1, keepdim=True)), rtol=1e-4, atol=1e-4)
    print("a CUDA graph of both: replayed with new contents")

# torch's profiler sees the calls by name.
with torch.profiler.profile() as profile:
    q.centred(x)
print("in torch's profile:", sorted({e.name for e in profile.events() if e.name in ("centred", "aten::empty_like")}))
print("in Quern's own:")
with quern.profile() as own:
    q.centred(x)
print("\n".join(own.key_averages().table(row_limit=3).splitlines()[:4]))
