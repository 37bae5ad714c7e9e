"""What notebooks show: plain text, HTML without scripts, SVG. Colours follow the page (`currentColor`), so dark ones work."""

import math
from html import escape

from . import _quern

_TABLE = 'style="border-collapse:collapse;color:currentColor;background:transparent"'
_SVG = 'xmlns="http://www.w3.org/2000/svg" style="display:block;margin:8px 0;max-width:100%;height:auto"'  # one below the other, no wider than the page
_CELL = 'style="border:1px solid currentColor;padding:2px 8px;text-align:left"'


def table(heads, rows):
    def words(cell):
        return escape(str(cell)).replace("_", "_<wbr>")  # long names break there on a phone

    head = "".join(f"<th {_CELL}>{words(h)}</th>" for h in heads)
    body = "".join("<tr>" + "".join(f"<td {_CELL}>{words(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f'<div style="overflow-x:auto"><table {_TABLE}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def module_bundle(module):
    rows = []
    for name in module:
        params = ", ".join(f"{kind} {type} {each}".replace("  ", " ") for each, kind, type, _ in module[name].parameters)
        rows.append((name, "tensor function" if module[name].is_function else "kernel", params))
    return {"text/plain": repr(module), "text/html": table(("name", "what", "parameters"), rows)}


def function_bundle(function):
    rows = [(name, kind, type, rank if rank >= 0 and type else "") for name, kind, type, rank in function.parameters]
    html = f"<code>{escape(function.name)}</code>" + table(("parameter", "kind", "type", "axes"), rows)
    bundle = {"text/plain": repr(function), "text/html": html}
    return bundle


class Words(str):
    """Text of several lines that shows itself as such, in a notebook and at Python's prompt."""

    def __repr__(self):
        return str(self)

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": str(self), "text/html": f'<pre style="color:currentColor;background:transparent;overflow-x:auto">{escape(self)}</pre>'}


class Picture(str):
    """SVG text that a notebook shows as a picture; it has a background of its own, light or dark."""

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": str(self), "text/html": f'<div style="display:inline-block;max-width:100%">{self}</div>'}


def timing_bundle(timing):
    """A table, the samples as a strip of bars, and the time under the device's roof."""
    rows = [("median", f"{timing.median_us:.2f} us"), ("least", f"{timing.least_us:.2f} us"), ("samples", len(timing.samples_us)),
            ("arguments and results", f"{timing.bytes / 1e6:.2f} MB, {timing.gb_per_s:.1f} GB/s"), ("device", timing.device)]  # fmt: skip
    html = table((timing.name, ""), rows) + bars(timing.samples_us)
    try:
        html += roof(timing, timing.roofline())
    except _quern.Error:  # a device that has none, as the interpreter
        pass
    return {"text/plain": repr(timing), "text/html": html}


def roof(timing, roofline, width=400, height=180):
    """The roofline with a dot for the call, both axes by powers of ten; without a count of operations only how much of the bandwidth it is."""
    peak, bandwidth = roofline.gflop_per_s, roofline.copy_gb_per_s
    share = f"{100 * timing.gb_per_s / bandwidth:.0f} % of {bandwidth:.0f} GB/s" if bandwidth else ""
    if not timing.flops or not timing.bytes or not peak or not bandwidth:
        return f'<div style="color:currentColor">{escape(share)}</div>'
    intensity, speed = timing.flops / timing.bytes, timing.flops / timing.median_us * 1e-3
    left, right = min(-2.0, math.log10(intensity) - 0.3), max(3.0, math.log10(intensity) + 0.3)
    top = math.log10(peak) + 0.3
    bottom = min(math.log10(bandwidth) + left, math.log10(speed) - 0.3)

    def place(x, y):
        return (x - left) / (right - left) * width, height - (y - bottom) / (top - bottom) * height

    ridge = math.log10(peak / bandwidth)
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(left, left + math.log10(bandwidth)), place(ridge, math.log10(peak)), place(right, math.log10(peak))))
    x, y = place(math.log10(intensity), math.log10(speed))
    (flat_x, flat_y), (slope_x, slope_y) = place(right, math.log10(peak)), place((left + ridge) / 2, (left + ridge) / 2 + math.log10(bandwidth))
    names = f'<text x="{flat_x:.1f}" y="{flat_y - 4:.1f}" font-size="11" text-anchor="end" fill="currentColor">{peak:.4g} GFLOP/s</text>'
    names += f'<text x="{slope_x + 8:.1f}" y="{slope_y + 10:.1f}" font-size="11" fill="currentColor">{bandwidth:.4g} GB/s</text>'
    words = f"{intensity:.2g} FLOP a byte, {speed:.4g} of {min(peak, intensity * bandwidth):.4g} GFLOP/s; {share}"
    return (
        f'<svg {_SVG} width="{width}" viewBox="0 0 {width} {height + 18}"><polyline points="{line}" fill="none" stroke="currentColor"/>{names}'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="currentColor"/><text x="0" y="{height + 14}" font-size="11" fill="currentColor">{escape(words)}</text></svg>'
    )


def explanation_bundle(explanation):
    """A table of islands and one of what torch keeps."""
    islands = [(r.kind, made.name, len(made.nodes)) for r in explanation.reports for made in r.islands]
    kept = [(r.kind, str(target).removeprefix("aten."), count, reason) for r in explanation.reports for (target, reason), count in r.kept.items()]
    html = table(("graph", "island", "operators"), islands) + table(("graph", "torch keeps", "times", "why"), kept)
    html += table(("", "us a call"), [(name, f"{seconds * 1e6:.1f}") for name, seconds in explanation.times.items()])
    return {"text/plain": str(explanation), "text/html": html}


def bars(samples, width=400, height=60):
    """How often each time came; what is far beyond the others, as after a pause of the system, is counted and not drawn."""
    low, count = samples[0], 40
    far = 4 * samples[len(samples) // 2] - 3 * low
    shown = [s for s in samples if s <= max(far, samples[int(0.95 * (len(samples) - 1))])]
    high, beyond = shown[-1], len(samples) - len(shown)
    step = (high - low) / count or 1.0
    counts = [0] * count
    for s in shown:
        counts[min(count - 1, int((s - low) / step))] += 1
    most = max(counts)
    shapes = "".join(
        f'<rect x="{i * width / count:.1f}" y="{height - c * height / most:.1f}" width="{width / count - 1:.1f}" '
        f'height="{c * height / most:.1f}" fill="currentColor" opacity="0.6"/>'
        for i, c in enumerate(counts)
        if c
    )
    text = f'<text x="0" y="{height + 14}" font-size="11" fill="currentColor">{low:.2f} us</text>'
    text += f'<text x="{width}" y="{height + 14}" font-size="11" text-anchor="end" fill="currentColor">{high:.2f} us{f", {beyond} beyond" if beyond else ""}</text>'
    return f'<svg {_SVG} width="{width}" viewBox="0 0 {width} {height + 18}">{shapes}{text}</svg>'
