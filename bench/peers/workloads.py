"""The work that is compared: for each, the bench block of kernels/ that does it, its sizes, and the same in other words.

A workload is a dict: name; file and bench of Quern; settings by device; make(normal, sizes) gives the inputs from a
function that draws an array of a shape; numpy, torch, triton: functions of those inputs, or None. Names of sizes are
those of the bench block.
"""
import math

SIZES = {
    "square": {"cpu": {"n": 1 << 24}, "cuda": {"n": 1 << 26}},
    "gelu": {"cpu": {"n": 1 << 22}, "cuda": {"n": 1 << 26}},
    "add": {"cpu": {"n": 1 << 24, "T": "float"}, "cuda": {"n": 1 << 26, "T": "float"}},
    "softmax": {"cpu": {"rows": 2048, "cols": 1024}, "cuda": {"rows": 16384, "cols": 4096}},
    "layer_norm": {"cpu": {"rows": 4096, "cols": 1024}, "cuda": {"rows": 32768, "cols": 1024}},
    "sum": {"cpu": {"n": 1 << 24}, "cuda": {"n": 1 << 28}},
    "transpose": {"cpu": {"M": 2048, "N": 4096}, "cuda": {"M": 8192, "N": 8192}},
    "matmul": {"cpu": {"M": 1024, "N": 1024, "K": 1024, "T": "float"},
               "cuda": {"M": 4096, "N": 4096, "K": 4096, "T": "bf16"}},
}
FILES = {"layer_norm": "layernorm"}


def numpy_functions(np):
    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def layer_norm(x, gain, bias):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * gain + bias

    return {"square": lambda x: x * x,
            "gelu": lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x))),
            "add": lambda a, b: a + b, "softmax": softmax, "layer_norm": layer_norm, "sum": lambda x: x.sum(),
            "transpose": lambda x: np.ascontiguousarray(x.T), "matmul": lambda a, b: a @ b}


def torch_functions(torch):
    F = torch.nn.functional
    return {"square": lambda x: x * x,
            "gelu": lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x))),
            "add": lambda a, b: a + b, "softmax": lambda x: F.softmax(x, -1),
            "layer_norm": lambda x, gain, bias: F.layer_norm(x, x.shape[-1:], gain, bias), "sum": torch.sum,
            "transpose": lambda x: x.t().contiguous(), "matmul": lambda a, b: a @ b}


def triton_functions(torch, triton, tl):
    """The elementwise ones and the row softmax, as Triton's tutorials write them."""
    @triton.jit
    def map_kernel(x, y, out, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        a = tl.load(x + at, mask=at < n)
        if KIND == 0:
            r = a * a
        elif KIND == 1:
            z = 0.7978845608 * (a + 0.044715 * a * a * a)
            r = 0.5 * a * (1 + (1 - 2 / (1 + tl.exp(2 * z))))
        else:
            r = a + tl.load(y + at, mask=at < n)
        tl.store(out + at, r, mask=at < n)

    @triton.jit
    def softmax_kernel(x, out, cols, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        row = tl.program_id(0).to(tl.int64) * cols
        a = tl.load(x + row + at, mask=at < cols, other=-float("inf"))
        e = tl.exp(a - tl.max(a, 0))
        tl.store(out + row + at, e / tl.sum(e, 0), mask=at < cols)

    def elementwise(kind):
        def run(x, y=None):
            out, n = torch.empty_like(x), x.numel()
            map_kernel[(triton.cdiv(n, 1024),)](x, x if y is None else y, out, n, kind, 1024)
            return out
        return run

    def softmax(x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], triton.next_power_of_2(x.shape[1]), num_warps=8)
        return out

    return {"square": elementwise(0), "gelu": elementwise(1), "add": elementwise(2), "softmax": softmax}


def shapes(name, sizes):
    """Of the inputs."""
    if name in ("square", "gelu", "sum"):
        return [(sizes["n"],)]
    if name == "add":
        return [(sizes["n"],)] * 2
    if name == "softmax":
        return [(sizes["rows"], sizes["cols"])]
    if name == "layer_norm":
        return [(sizes["rows"], sizes["cols"]), (sizes["cols"],), (sizes["cols"],)]
    if name == "transpose":
        return [(sizes["M"], sizes["N"])]
    return [(sizes["M"], sizes["K"]), (sizes["K"], sizes["N"])]


def element_bytes(sizes):
    return 2 if sizes.get("T") in ("bf16", "f16") else 4


def input_bytes(name, sizes):
    return sum(math.prod(shape) for shape in shapes(name, sizes)) * element_bytes(sizes)
