"""Rows of ATen operators that make and move: constants, views, joins, access by index. In and out as in aten_math.py.
"""

import struct

import torch

from .writer import MOST_AXES, Unsupported, WORDS, axis_set, number, same


# ---- making ----


def expand_to(w, x):
    """x as the result's type and shape."""
    words, shape = w.operand(x, w.out.dtype, w.out.shape), w.out.shape
    return words if w.rank(x) or not len(shape) else f"expand(reshape({words}, {', '.join('1' for _ in shape)}), {w.extents(shape)})"


def filled(w, value):
    out = w.out
    if not out.dim():
        return w.operand(value, out.dtype, typed=True)
    if isinstance(value, torch.fx.Node):
        raise Unsupported("a fill with a tensor")
    words = f"full({number(float(value))}, {w.extents(out.shape)})"
    return w.cast(words, torch.float32, out.dtype) if out.dtype != torch.bool else f"({words} != 0)"


def full(w, size, value, **keywords):
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1 << 24:
        raise Unsupported("a large whole number")
    if w.out.dtype == torch.float64 and float(torch.tensor(value, dtype=torch.float32)) != value:
        raise Unsupported("a fill with a number of 64 bits")
    return filled(w, value)


def like(value=None):
    def write(w, x, *args, **keywords):
        return full(w, None, args[0] if value is None else value)

    return write


def arange(w, start, end=None, step=1, **keywords):
    out = w.out
    if end is None:
        start, end = 0, start
    if out.dtype == torch.int64:
        return f"arange({w.extent(start)}, {w.extent(end)}, {w.extent(step)})"
    if not out.dtype.is_floating_point:
        raise Unsupported("a range of other integers")
    start, step = (number(float(w.known(n, "a range"))) for n in (start, step))
    return f"{WORDS[out.dtype]}(iota({w.extent(out.shape[0])})) * {step} + {start}"


def iota(w, length, *, start=0, step=1, dtype=None, **keywords):
    if dtype != torch.int64:
        raise Unsupported("a range of other integers")
    words = f"iota({w.extent(length)})"
    if step != 1:
        words = f"{words} * {w.extent(step)}"
    return words if isinstance(start, int) and start == 0 else f"{words} + {w.extent(start)}"


# ---- views ----


def view(w, x, *args, **keywords):
    return w.reshaped(w.text(x), w.out.shape, w.rank(x))


def permute(w, x, order):
    if not order:
        return w.text(x)
    return f"permute({w.text(x)}, {', '.join(str(w.axis(x, a)) for a in order)})"


def swap(w, x, a=0, b=1):
    rank = w.rank(x)
    if rank < 2:
        return w.text(x)
    order = list(range(rank))
    a, b = w.axis(x, a), w.axis(x, b)
    order[a], order[b] = b, a
    return permute(w, x, order)


def expand(w, x, *args, **keywords):
    shape = w.out.shape
    words = w.text(x)
    if not len(shape):
        return words
    if not w.rank(x):
        return f"expand(reshape({words}, {', '.join('1' for _ in shape)}), {w.extents(shape)})"
    return f"expand({words}, {w.extents(shape)})"


def part(w, x, axis, start, count, step=1):
    """A slice of one axis, in the words of an access."""
    rank = w.rank(x)
    inside = f"{start} : {count}" + (f" : {step}" if step != 1 else "")
    return f"{w.text(x)}" + "".join(f"[{inside}]" if k == axis else "[:]" for k in range(rank))


def slice_(w, x, axis=0, start=None, end=None, step=1):
    axis = w.axis(x, axis)
    start = 0 if start is None else start
    if isinstance(start, int) and start < 0:
        extent = w.shape(x)[axis]
        start = max(w.known(extent, "the start of a slice") + start, 0)
    elif isinstance(start, int) and isinstance(w.shape(x)[axis], int):
        start = min(start, w.shape(x)[axis])
    count = w.out.shape[axis]
    if isinstance(count, int) and count == 0:
        raise Unsupported("an empty slice")
    return part(w, x, axis, w.extent(start), w.extent(count), w.known(step, "a step"))


def select_one(w, x, axis, index):
    axis = w.axis(x, axis)
    if isinstance(index, int) and index < 0:
        index = w.known(w.shape(x)[axis], "a position") + index
    words = part(w, x, axis, w.extent(index), 1)
    return w.reshaped(words, w.out.shape, w.rank(x))


def split(w, x, sizes, axis=0):
    axis = w.axis(x, axis)
    extent = w.known(w.shape(x)[axis], "an axis that is split")
    if isinstance(sizes, int):
        sizes = [min(sizes, extent - at) for at in range(0, extent, sizes)]
    at, pieces = 0, []
    for size in sizes:
        size = w.known(size, "a size")
        if not size:
            raise Unsupported("an empty slice")
        pieces.append(part(w, x, axis, at, size))
        at += size
    return pieces


def unbind(w, x, axis=0):
    axis = w.axis(x, axis)
    extent = w.known(w.shape(x)[axis], "an axis that is split")
    shape = [n for k, n in enumerate(w.shape(x)) if k != axis]
    return [w.reshaped(part(w, x, axis, k, 1), shape, w.rank(x)) for k in range(extent)]


def get_item(w, x, index):
    found = w.names[x]
    if not isinstance(found, list) or found[index] is None:
        raise Unsupported("a result that is not made")
    return found[index]


def as_strided(w, x, size, stride, offset=None):
    """Of a row-major tensor as another one: a reshape."""
    value = w.value(x)
    step, plain = 1, value.is_contiguous() and not offset
    for n, s in zip(reversed(list(size)), reversed(list(stride))):
        plain = plain and (s == step or n == 1)
        step = step * n
    if not plain or step != value.numel():
        raise Unsupported("strides of its own")
    return w.reshaped(w.text(x), w.out.shape, w.rank(x))


def diagonal(w, x, offset=0, dim1=0, dim2=1):
    return f"diagonal({w.text(x)}, offset = {number(w.known(offset, 'an offset'))}, axis1 = {w.axis(x, dim1)}, axis2 = {w.axis(x, dim2)})"


# ---- movement ----


def cat(w, tensors, axis=0):
    real = [t for t in tensors if not (w.rank(t) == 1 and same(w.shape(t), (0,)))]
    words = [w.operand(t, w.out.dtype) for t in real]
    if not words or w.out.dim() == 0:
        raise Unsupported("a join of nothing")
    return words[0] if len(words) == 1 else f"concat({', '.join(words)}, axis = {w.axis(real[0], axis)})"


def flip(w, x, axes):
    return f"flip({w.text(x)}, axis = {axis_set(w.axes(x, axes))})" if axes and w.rank(x) else w.text(x)


def pad(w, x, sizes, value=0):
    words, rank = w.text(x), w.rank(x)
    for k in range(len(sizes) // 2):
        before, after = (w.known(n, "a padding") for n in sizes[2 * k : 2 * k + 2])
        if before or after:
            words = f"pad({words}, {number(before)}, {number(after)}, axis = {rank - 1 - k}, value = {number(float(value))})"
    return words


def repeat(w, x, counts):
    if not w.rank(x):
        raise Unsupported("repeating one number")
    return f"repeat({w.text(x)}, {w.extents(counts)})"


def roll(w, x, shifts, dims=()):
    shifts = list(shifts) if isinstance(shifts, (list, tuple)) else [shifts]
    dims = list(dims) if isinstance(dims, (list, tuple)) else [dims]
    if not w.rank(x):
        return w.text(x)
    if not dims:
        return f"roll({w.text(x)}, {number(w.known(shifts[0], 'a shift'))})"
    pairs = sorted((w.axis(x, d), w.known(n, "a shift")) for d, n in zip(dims, shifts))
    if len({d for d, _ in pairs}) != len(pairs):
        raise Unsupported("an axis that is rolled twice")
    return f"roll({w.text(x)}, {', '.join(number(n) for _, n in pairs)}, axis = {axis_set(d for d, _ in pairs)})"


def tri(name):
    def write(w, x, diagonal=0):
        return f"{name}({w.text(x)}, {number(diagonal)})"

    return write


def slice_scatter(w, x, source, axis=0, start=None, end=None, step=1):
    axis = w.axis(x, axis)
    extent, size = w.known(w.shape(x)[axis], "an axis"), w.known(w.shape(source)[axis], "an axis")
    start = 0 if start is None else w.known(start, "a start")
    start = max(start + extent, 0) if start < 0 else min(start, extent)
    step = w.known(step, "a step")
    if step != 1:  # each place is a place of the source, or is not
        place = w.let(f"iota({extent}) - {start}")
        hit = w.let(f"({place} >= 0) && ({place} % {step} == 0) && ({place} / {step} < {size})")
        taken = f"index_select({w.operand(source, w.out.dtype)}, clamp({place} / {step}, 0, {size - 1}), axis = {axis})"
        line = ", ".join(str(extent) if k == axis else "1" for k in range(w.rank(x)))
        return f"where(expand(reshape({hit}, {line}), {w.extents(w.shape(x))}), {taken}, {w.text(x)})"
    pieces = [part(w, x, axis, 0, start)] if start else []
    pieces.append(w.operand(source, w.out.dtype))
    if start + size < extent:
        pieces.append(part(w, x, axis, start + size, extent - start - size))
    return pieces[0] if len(pieces) == 1 else f"concat({', '.join(pieces)}, axis = {axis})"


def diagonal_scatter(w, x, source, offset=0, dim1=0, dim2=1):
    """The source lies along the axis whose places its own are, and is chosen where both axes meet."""
    a, b, offset, shape = w.axis(x, dim1), w.axis(x, dim2), w.known(offset, "an offset"), w.shape(x)
    along, other = (a, b) if offset >= 0 else (b, a)
    extent, length = w.known(shape[along], "an axis"), w.known(w.shape(source)[-1], "an axis")
    rest = [k for k in range(len(shape)) if k not in (a, b)]
    order = [rest.index(k) if k in rest else len(rest) for k in range(len(shape)) if k != other]
    words = w.operand(source, w.out.dtype)
    if order != sorted(order):
        words = f"permute({words}, {', '.join(map(str, order))})"
    if length < extent:
        words = f"pad({words}, 0, {extent - length}, axis = {along - (other < along)})"
    words = f"expand(unsqueeze({words}, axis = {other}), {w.extents(shape)})"

    def places(axis):
        line = ", ".join(w.extent(n) if k == axis else "1" for k, n in enumerate(shape))
        return f"expand(reshape(iota({w.extent(shape[axis])}), {line}), {w.extents(shape)})"

    return f"where({places(a)} + {number(offset)} == {places(b)}, {words}, {w.text(x)})"


# ---- by index ----


def from_end(w, index, extent):
    """Negative indices count from the end."""
    words = w.let(w.cast(w.text(index), w.dtype(index), torch.int64))
    return f"where({words} < 0, {words} + {w.extent(extent)}, {words})"


def index_select(w, x, axis, index):
    axis = w.axis(x, axis)
    if not w.rank(x) or not w.rank(index):
        raise Unsupported("an index of rank 0")
    return f"index_select({w.text(x)}, {w.text(index)}, axis = {axis})"


def index(w, x, indices):
    given = [(k, i) for k, i in enumerate(indices) if i is not None]
    if any(w.dtype(i) in (torch.bool, torch.uint8) for _, i in given):
        raise Unsupported("an index of bools, whose result has an unknown size")
    if len(given) == 1:
        axis, i = given[0]
        if not w.rank(i):
            raise Unsupported("an index of rank 0")
        return f"index_select({w.text(x)}, {from_end(w, i, w.shape(x)[axis])}, axis = {axis})"
    axis, merged, line = joined(w, x, given)
    return f"index_select(reshape({w.text(x)}, {merged}), {line}, axis = {axis})"


def joined(w, x, given):
    """Indices of neighbouring axes as one into those axes as one: the axis, the extents of x, the index."""
    axes = [k for k, _ in given]
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise Unsupported("indices of axes that are not neighbours")
    shape = w.shape(x)
    places = torch.broadcast_shapes(*[w.shape(i) for _, i in given])
    if not len(places):
        raise Unsupported("an index of rank 0")
    line = None
    for k, i in given:
        words = from_end(w, i, shape[k])
        if w.rank(i) and not same(w.shape(i), places):
            words = f"expand({words}, {w.extents(places)})"
        elif not w.rank(i):
            raise Unsupported("an index of rank 0")
        line = words if line is None else w.let(f"{line} * {w.extent(shape[k])} + {words}")
    count = " * ".join(w.extent(shape[k]) for k in axes)
    extents = [w.extent(n) for n in shape[: axes[0]]] + [count] + [w.extent(n) for n in shape[axes[-1] + 1 :]]
    return axes[0], ", ".join(extents), w.let(line)


def index_put(w, x, indices, values, accumulate=False, *rest):
    given = [(k, i) for k, i in enumerate(indices) if i is not None]
    if any(w.dtype(i) in (torch.bool, torch.uint8) for _, i in given):
        raise Unsupported("an index of bools")
    if not accumulate or not w.out.dtype.is_floating_point:
        raise Unsupported("elements that are written over")
    axis, merged, line = joined(w, x, given)
    shape = w.shape(x)
    places = torch.broadcast_shapes(*[w.shape(i) for _, i in given])
    wanted = tuple(shape[:axis]) + tuple(places) + tuple(shape[axis + len(given) :])
    updates = w.operand(values, w.out.dtype, wanted)
    if not isinstance(values, torch.fx.Node) or not w.rank(values):
        updates = f"expand(reshape({updates}, {', '.join('1' for _ in wanted)}), {w.extents(wanted)})"
    added = f"index_add(reshape({w.text(x)}, {merged}), {line}, {updates}, axis = {axis})"
    return w.reshaped(added, shape, 1)


def gather(w, x, axis, index, **keywords):
    if not w.rank(x):
        raise Unsupported("an index of rank 0")
    return f"gather({w.text(x)}, {w.text(index)}, axis = {w.axis(x, axis)})"


def embedding(w, table, index, *args):
    if not w.rank(index):
        raise Unsupported("an index of rank 0")
    return f"embedding({w.text(table)}, {w.text(index)})"


def embedding_back(w, grad, index, rows, padding, by_count):
    if by_count or w.dtype(grad) != torch.float32:
        raise Unsupported("this gradient of an embedding")
    width = w.extent(w.out.shape[1])
    line = w.let(f"flatten({w.text(index)})" if w.rank(index) != 1 else w.text(index))
    rows_of = w.let(f"reshape({w.text(grad)}, -1, {width})")
    if isinstance(padding, int) and padding >= 0:
        rows_of = w.let(f"where(({line} != {padding})[:][], {rows_of}, 0.0)")
    return f"index_add(zeros({w.extents(w.out.shape)}), {line}, {rows_of}, axis = 0)"


def scatter_add(w, x, axis, index, source):
    if not w.rank(x):
        raise Unsupported("an index of rank 0")
    return f"scatter_add({w.text(x)}, {w.text(index)}, {w.text(source)}, axis = {w.axis(x, axis)})"


def scatter_value(w, x, axis, index, value):
    """One place on each line: chosen by comparing positions."""
    axis = w.axis(x, axis)
    shape, given = w.shape(x), w.shape(index)
    if not same(given, [1 if k == axis else n for k, n in enumerate(shape)]):
        raise Unsupported("a scatter of several elements of a line")
    line = ", ".join(w.extent(n) if k == axis else "1" for k, n in enumerate(shape))
    position = f"expand(reshape(iota({w.extent(shape[axis])}), {line}), {w.extents(shape)})"
    hit = f"({position} == expand({w.cast(w.text(index), w.dtype(index), torch.int64)}, {w.extents(shape)}))"
    if isinstance(value, torch.fx.Node) and w.rank(value) and not same(w.shape(value), given):
        raise Unsupported("a scatter from a part of its source")  # torch reads where the index has elements, and no further
    return f"where({hit}, {w.operand(value, w.out.dtype, shape)}, {w.text(x)})"


# ---- interpolation ----


def _sizes(w, before, after):
    """Extents of the axes that are interpolated, of both sides."""
    pairs = list(zip(before, after, strict=True))
    if not all(type(n) is int for pair in pairs for n in pair):
        raise Unsupported("an interpolation of sizes that are not known")
    return pairs


def _f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def _nearest_is_ours(few, many, scale):
    """Does torch, which computes places in f32, come to those of the language?"""
    if many % few or many in (few, 2 * few):
        return True
    step = _f32(1 / scale if scale else few / many)
    return all(int(_f32(i * step)) == i // (many // few) for i in range(many))


def _check_scales(pairs, scales, is_nearest):
    """Those that a caller gives count instead of the ratio of sizes."""
    for (few, many), scale in zip(pairs, scales or [None] * len(pairs), strict=True):
        if scale and _f32(1 / scale) != _f32(few / many):
            raise Unsupported("an interpolation by another factor than that of its sizes")
        if is_nearest and not _nearest_is_ours(few, many, scale):
            raise Unsupported("an interpolation whose places round to others")


def nearest(axes):
    def write(w, x, size, *scales):
        _check_scales(_sizes(w, w.shape(x)[-axes:], size), scales, True)
        return f"upsample_nearest{axes}d({w.text(x)}, {w.extents(size)})"

    return write


def nearest_back(axes):
    """Each element has the sum of those that it became, where these are equally many."""

    def write(w, gradient, size, before, *scales):
        pairs = _sizes(w, before[-axes:], size)
        _check_scales(pairs, scales, True)
        if any(many % few for few, many in pairs):
            raise Unsupported("the gradient of an interpolation by a factor that is not whole")
        outer = list(before[: len(before) - axes])
        if len(outer) + 2 * axes > MOST_AXES:
            raise Unsupported("an interpolation of this rank")
        parts = [n for few, many in pairs for n in (few, many // few)]
        words = f"reshape({w.text(gradient)}, {w.extents(outer + parts)})"
        summed = axis_set(len(outer) + 1 + 2 * k for k in range(axes))
        return f"reshape(sum({words}, axis = {summed}), {w.extents(before)})"

    return write


def linear(axes):
    def write(w, x, size, align, *scales):
        pairs = _sizes(w, w.shape(x)[-axes:], size)
        if not align:
            _check_scales(pairs, scales, False)
        name = {1: "upsample_linear1d", 2: "upsample_bilinear2d", 3: "upsample_trilinear3d"}[axes]
        return f"{name}({w.text(x)}, {w.extents(size)}, align_corners = {number(bool(align))})"

    return write
