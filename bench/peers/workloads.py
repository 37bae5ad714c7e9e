"""README's first table in the words of others: for each bench block of table.qn what its inputs are and the same work for
NumPy, PyTorch and Triton. Sizes are those of the bench block, as Quern printed them.

A row of WORK: bench block, its words, and the shapes of its inputs (names of sizes). An input called `target` holds classes below `cols`; `gradient` rows are given the gradient of their result last.
"""
import math

WORK = [
    ("gelu", "GELU from array code", ["rows cols"]),
    ("softmax", "softmax", ["rows cols"]),
    ("softmax_long", "softmax of long rows", ["rows cols"]),
    ("layer_norm", "layer norm", ["rows cols", "cols", "cols"]),
    ("layer_norm_gradient", "layer norm and gradient", ["rows cols", "cols", "cols", "rows cols"]),
    ("cross_entropy_gradient", "cross-entropy and gradient", ["rows cols", "target"]),
    ("top_8", "the 8 largest of each row", ["rows cols"]),
    ("product_f32", "product", ["rows cols", "cols cols"]),
    ("product_bf16", "product", ["rows cols", "cols cols"]),
    ("attention", "attention, causal", ["B H L D"] * 3),
    ("attention_gradient", "attention and gradient, causal", ["B H L D"] * 4),
    ("convolution_f32", "convolution 3x3", ["B C H W", "O C 3 3"]),
    ("perceptron_step", "training step, 16 layers", ["B D", "16 D D", "B D"]),
]


def shape(text, sizes):
    return tuple(int(word) if word.isdigit() else int(sizes[word]) for word in text.split())


def input_bytes(inputs, sizes):
    width = 2 if sizes.get("T") in ("bf16", "f16") else 4
    return sum(math.prod(shape(text, sizes)) * width for text in inputs if text != "target")


def numpy_functions(np):
    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def layer_norm(x, gain, bias):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * gain + bias

    return {"gelu": lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x))),
            "softmax": softmax, "softmax_long": softmax, "layer_norm": layer_norm, "product_f32": lambda a, b: a @ b,
            "top_8": lambda x: np.sort(np.partition(x, -8)[:, -8:])[:, ::-1]}


def torch_functions(torch):
    """Each gives the tensor that is compared first."""
    F = torch.nn.functional

    def with_gradient(function, wanted):
        """The result and the gradients by the first `wanted` inputs; the last input is the gradient of the result."""
        def both(*inputs):
            leaves = [x.detach().requires_grad_() for x in inputs[:wanted]]
            with torch.enable_grad():
                result = function(*leaves, *inputs[wanted:-1])
            return (result.detach(), *torch.autograd.grad(result, leaves, inputs[-1]))
        return both

    def cross_entropy(x, target):
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            loss = F.cross_entropy(leaf, target)
        return (loss.detach(), *torch.autograd.grad(loss, [leaf]))

    def perceptron_step(x, w, target):
        leaf = w.detach().requires_grad_()
        with torch.enable_grad():
            h = x
            for layer in leaf.unbind():
                h = F.gelu(h @ layer / math.sqrt(x.shape[1]), approximate="tanh")
            loss = F.mse_loss(h, target)
        return w - 0.01 * torch.autograd.grad(loss, [leaf])[0]

    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def layer_norm(x, gain, bias):
        return F.layer_norm(x, x.shape[-1:], gain, bias)

    def softmax(x):
        return F.softmax(x, -1)

    return {"gelu": lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x))),
            "softmax": softmax, "softmax_long": softmax, "layer_norm": layer_norm,
            "layer_norm_gradient": with_gradient(layer_norm, 3), "cross_entropy_gradient": cross_entropy,
            "top_8": lambda x: x.topk(8)[0], "product_f32": torch.matmul, "product_bf16": torch.matmul,
            "attention": attention, "attention_gradient": with_gradient(attention, 3),
            "convolution_f32": lambda x, w: F.conv2d(x, w, padding=1), "perceptron_step": perceptron_step}


def triton_functions(torch, triton, tl):
    """GELU and the row softmax, as Triton's tutorials write them."""
    @triton.jit
    def gelu_kernel(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        a = tl.load(x + at, mask=at < n)
        z = 0.7978845608 * (a + 0.044715 * a * a * a)
        tl.store(out + at, 0.5 * a * (1 + (1 - 2 / (1 + tl.exp(2 * z)))), mask=at < n)

    @triton.jit
    def softmax_kernel(x, out, cols, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        row = tl.program_id(0).to(tl.int64) * cols
        a = tl.load(x + row + at, mask=at < cols, other=-float("inf")).to(tl.float32)
        e = tl.exp(a - tl.max(a, 0))
        tl.store(out + row + at, e / tl.sum(e, 0), mask=at < cols)

    def gelu(x):
        out, n = torch.empty_like(x), x.numel()
        gelu_kernel[(triton.cdiv(n, 1024),)](x, out, n, 1024)
        return out

    def softmax(x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], triton.next_power_of_2(x.shape[1]), num_warps=8)
        return out

    return {"gelu": gelu, "softmax": softmax}
