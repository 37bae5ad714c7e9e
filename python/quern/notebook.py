"""What notebooks show: plain text, HTML without scripts, SVG. Colours follow the page (`currentColor`), so dark ones work."""

from html import escape

_TABLE = 'style="border-collapse:collapse;color:currentColor;background:transparent"'
_CELL = 'style="border:1px solid currentColor;padding:2px 8px;text-align:left"'


def table(heads, rows):
    head = "".join(f"<th {_CELL}>{escape(str(h))}</th>" for h in heads)
    body = "".join("<tr>" + "".join(f"<td {_CELL}>{escape(str(c))}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table {_TABLE}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def module_bundle(module):
    rows = []
    for name in module:
        params = ", ".join(f"{kind} {type} {each}".replace("  ", " ") for each, kind, type, _ in module[name].parameters)
        rows.append((name, "tensor function" if module[name].is_function else "kernel", params))
    return {"text/plain": repr(module), "text/html": table(("name", "what", "parameters"), rows)}


def function_bundle(function):
    rows = [(name, kind, type, rank if rank >= 0 else "") for name, kind, type, rank in function.parameters]
    html = f"<code>{escape(function.name)}</code>" + table(("parameter", "kind", "type", "axes"), rows)
    bundle = {"text/plain": repr(function), "text/html": html}
    return bundle


def timing_bundle(timing):
    """A table, and the samples as a strip of bars."""
    rows = [("median", f"{timing.median_us:.2f} us"), ("least", f"{timing.least_us:.2f} us"), ("samples", len(timing.samples_us)),
            ("arguments and results", f"{timing.bytes / 1e6:.2f} MB, {timing.gb_per_s:.1f} GB/s"), ("device", timing.device)]  # fmt: skip
    return {"text/plain": repr(timing), "text/html": table((timing.name, ""), rows) + bars(timing.samples_us)}


def bars(samples, width=400, height=60):
    low, high, count = samples[0], samples[-1], 40
    step = (high - low) / count or 1.0
    counts = [0] * count
    for s in samples:
        counts[min(count - 1, int((s - low) / step))] += 1
    most = max(counts)
    shapes = "".join(
        f'<rect x="{i * width / count:.1f}" y="{height - c * height / most:.1f}" width="{width / count - 1:.1f}" '
        f'height="{c * height / most:.1f}" fill="currentColor" opacity="0.6"/>'
        for i, c in enumerate(counts)
        if c
    )
    text = f'<text x="0" y="{height + 14}" font-size="11" fill="currentColor">{low:.2f} us</text>'
    text += f'<text x="{width}" y="{height + 14}" font-size="11" text-anchor="end" fill="currentColor">{high:.2f} us</text>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 18}">{shapes}{text}</svg>'
