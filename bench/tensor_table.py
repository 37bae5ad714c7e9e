"""Joins the JSON of bench_tensor with that of tensor_peers.py into the table of docs/performance.md.

Usage: python3 bench/tensor_table.py OURS.json PEERS.json
"""
import json
import sys

# How many times as fast as what of PyTorch is asked for.
PEER_BARS = {"layer norm and gradient 65536x4096 bf16": ("compile", 1.3),
             "layer norm and gradient 16384^2 bf16": ("compile", 1.5),
             "cross-entropy and gradient 8192x128256 bf16": ("compile", 2.2),
             "chain of 8 16384^2 f32": ("eager", 6.0),
             "mlp d128 x 16 batch 128, 5 steps, tf32": ("best", 6.0),
             "mlp d256 x 4 batch 256, 2 steps, tf32": ("best", 10.0)}


def main():
    with open(sys.argv[1]) as file:
        ours = json.load(file)
    with open(sys.argv[2]) as file:
        peers = {row["name"]: row for row in json.load(file)}
    print(ours[0]["device"] + "\n")
    print("| workload | kernels | time | of copy | bar | torch eager | compiled | with graphs | times as fast | bar |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    costs = []
    for row in ours[1:]:
        if not row["bytes"] and not row["name"].startswith("mlp"):
            costs.append(row)
            continue
        peer = {k: v for k, v in peers.get(row["name"], {}).items() if k != "name"}
        if peer:
            peer["best"] = min(peer.values())
        against, bar = PEER_BARS.get(row["name"], ("best", None))
        cells = [row["name"], str(row["kernels"]), f"{row['ns'] * 1e-3:.1f} us",
                 f"{row['ratio']:.3f}" if row["ratio"] else "", f"{row['bar']:.2f}" if row["bar"] else ""]
        cells += [f"{peer[k] * 1e-3:.1f} us" if k in peer else "" for k in ("eager", "compile", "graphs")]
        cells += [f"{peer[against] / row['ns']:.2f} ({against})" if against in peer else "", f"{bar:.1f}" if bar else ""]
        print("| " + " | ".join(cells) + " |")
    print()
    for row in costs:
        extra = f"; torch.compile {peers[row['name']]['compile'] * 1e-9:.1f} s" if row["name"] in peers else ""
        unit = row["ns"] if "compiled" in row["name"] else row["ns"] * 1e-3
        print(f"- {row['name']}: {unit:.2f}{'' if 'compiled' in row['name'] else ' us'}{extra}")


main()
