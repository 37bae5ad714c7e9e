"""Joins the JSON of bench_gpu with that of gpu_peers.py into the table of docs/performance.md.

Usage: python3 bench/gpu_table.py OURS.json PEERS.json
"""
import json
import sys

# Ratios to the best of eager and compiled PyTorch that are asked for.
PEER_BARS = {"add 2^26 f32": 1.0, "square 10000^2 f32": 1.0, "gelu 16384^2 f32": 1.0, "act 262144x1024 f32": 1.0,
             "softmax 8192x65536 f32": 1.7, "softmax 16384x16384 bf16": 1.25, "layernorm 65536x4096 bf16": 1.25,
             "layernorm (64,1024,4096) f32": 1.6, "sum 2^26 f32": 1.12, "transpose 8192^2 f32": 3.0}


def main():
    with open(sys.argv[1]) as file:
        ours = json.load(file)
    with open(sys.argv[2]) as file:
        peers = {row["name"]: row for row in json.load(file)}
    print(ours[0]["device"] + "\n")
    print("| workload | kernel | time | of copy | bar | eager | torch.compile | faster than torch | bar |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in ours[1:]:
        if not row["bytes"]:
            continue
        peer = peers.get(row["name"], {})
        compiled = min((peer[k] for k in ("compile", "max_autotune") if k in peer), default=None)
        best = min((peer[k] for k in ("eager", "compile", "max_autotune") if k in peer), default=None)
        cells = [row["name"], row["kernel"], f"{row['ns'] * 1e-3:.1f} us", f"{row['ratio']:.3f}",
                 f"{row['bar']:.2f}" if row["bar"] else "",
                 f"{peer['eager'] * 1e-3:.1f} us" if "eager" in peer else "",
                 f"{compiled * 1e-3:.1f} us" if compiled else "",
                 f"{best / row['ns']:.2f}" if best else "",
                 f"{PEER_BARS[row['name']]:.2f}" if row["name"] in PEER_BARS else ""]
        print("| " + " | ".join(cells) + " |")
    print()
    for row in ours[1:]:
        if row["bytes"]:
            continue
        extra = ""
        if row["name"] == "startup" and "startup" in peers:
            extra = f"; torch.compile {peers['startup']['compile'] * 1e-9:.2f} s"
        if row["name"] == "compile gelu" and "compile gelu" in peers:
            extra = f"; torch.compile {peers['compile gelu']['compile']:.0f} ms"
        print(f"- {row['name']}: {row['ns']:.3f} (bar {row['bar']:g}{extra})")


main()
