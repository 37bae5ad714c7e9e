"""Recurrent cells that torch has as one operator on a GPU, in terms of its other operators: their parts fuse with what is around them. The room that
torch's own leaves for the gradient (`workspace`) has what these gradients want.
"""

import torch

aten = torch.ops.aten


def _wide(*tensors):
    """In the type that is computed in: sums of 16-bit floats are floats."""
    return [t.float() if t is not None and t.dtype in (torch.float16, torch.bfloat16) else t for t in tensors]


def _gates(count, gates, bias):
    return (gates if bias is None else gates + bias).chunk(count, 1)


def _given(tensors, like):
    return tuple(t.to(like.dtype) for t in tensors)


def gru(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    given, hidden, old, first, second = _wide(input_gates, hidden_gates, hx, input_bias, hidden_bias)
    (ir, iz, ic), (hr, hz, hc) = _gates(3, given, first), _gates(3, hidden, second)
    reset, update = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
    new = torch.tanh(ic + reset * hc)
    return _given((new + update * (old - new), torch.cat((reset, update, new, old, hc), 1)), hx)


def gru_backward(grad_hy, workspace, has_bias):
    grad, room = _wide(grad_hy, workspace)
    reset, update, new, old, hc = room.chunk(5, 1)
    inner = grad * (1 - update) * (1 - new * new)
    by_reset, by_update = inner * hc * (1 - reset) * reset, grad * (old - new) * (1 - update) * update
    given, hidden = torch.cat((by_reset, by_update, inner), 1), torch.cat((by_reset, by_update, inner * reset), 1)
    biases = (given.sum(0), hidden.sum(0)) if has_bias else ()
    return _given((given, hidden, grad * update, *biases), grad_hy) + (None,) * (2 - len(biases))


def lstm(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    given, hidden, old, first, second = _wide(input_gates, hidden_gates, cx, input_bias, hidden_bias)
    i, f, g, o = (a + b for a, b in zip(_gates(4, given, first), _gates(4, hidden, second)))
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    cell = f * old + i * g
    return _given((o * torch.tanh(cell), cell, torch.cat((i, f, g, o), 1)), cx)


def lstm_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias):
    by_output, by_cell, old, cell, room = _wide(grad_hy, grad_cy, cx, cy, workspace)
    i, f, g, o = room.chunk(4, 1)
    bent = torch.tanh(cell)
    by_cell = torch.zeros_like(old) if by_cell is None else by_cell
    by_output = torch.zeros_like(old) if by_output is None else by_output
    by_cell = by_cell + by_output * o * (1 - bent * bent)
    parts = (by_cell * g * (1 - i) * i, by_cell * old * (1 - f) * f, by_cell * i * (1 - g * g), by_output * bent * (1 - o) * o)
    gates = torch.cat(parts, 1)
    return _given((gates, by_cell * f), cx) + (gates.sum(0).to(cx.dtype) if has_bias else None,)


TABLE = {
    aten._thnn_fused_gru_cell.default: gru,
    aten._thnn_fused_gru_cell_backward.default: gru_backward,
    aten._thnn_fused_lstm_cell.default: lstm,
    aten._thnn_fused_lstm_cell_backward_impl.default: lstm_backward,
}
