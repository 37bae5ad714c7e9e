"""Cuts a functional FX graph into islands (island.py) that Quern computes, and leaves the rest to torch, node by node, each with its reason. In: a graph of AOTAutograd's, options, a report. Out: the same graph, whose islands are calls.
"""

import graphlib
import heapq
import operator

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from . import aten, island
from .writer import Unsupported


class _Support(OperatorSupportBase):
    def __init__(self, gm, options):
        self.options = options
        self.reasons = {}
        self.on_gpu = any(v.is_cuda for n in gm.graph.nodes for v in island.tensors_of(n))

    def is_node_supported(self, submodules, node):
        if node.op != "call_function":
            return False
        if node not in self.reasons:
            name = str(node.target)
            left = any(word in (name, name.partition(".")[2].rpartition(".")[0], name.partition(".")[2]) for word in self.options["leave"])
            on_host = self.on_gpu and any(not v.is_cuda for v in island.tensors_of(node))
            reason = "asked for" if left else "on the host, in a program of a GPU" if on_host else None
            self.reasons[node] = reason or island.reason_against(node, self.options["product_limit"])
        return self.reasons[node] is None


def _order(graph):
    return {node: i for i, node in enumerate(graph.nodes)}


def _edges(nodes):
    """Inputs and results of a set of nodes: results are what somebody outside needs, views followed to what they show."""
    inside = set(nodes)
    inputs, results = [], []
    for node in nodes:
        for x in node.all_input_nodes:
            if x not in inside and x not in inputs:
                inputs.append(x)
    for node in nodes:
        if any(user not in inside for user in node.users):
            base = _base(node, inside)
            if base in inside and base not in results:
                results.append(base)
    return inputs, results


def _base(node, inside):
    """What a view shows, as far as it lies inside; a value itself. Several results: the item."""
    while node in inside and island.is_view(node):
        source = node.all_input_nodes[0]
        if node.target is operator.getitem and not island.is_view(source):
            break
        node = source
    return node


def _fits(nodes):
    inputs, results = _edges(nodes)
    return len(inputs) + len(results) <= island.MOST_VALUES and len(results) <= island.MOST_RESULTS


def _pieces(nodes):
    """In order, as few as can be that a tensor function can have as parameters."""
    if _fits(nodes) or len(nodes) == 1:
        return [nodes]
    half = len(nodes) // 2
    while half > 1 and nodes[half].target is operator.getitem:
        half -= 1
    return _pieces(nodes[:half]) + _pieces(nodes[half:])


def _work(nodes):
    return sum(1 for n in nodes if not island.is_view(n) and n.target not in _FREE)


_FREE = set(
    aten.first(
        dict.fromkeys(
            "full full_like zeros_like ones_like scalar_tensor arange arange.start_step clone empty.memory_format empty_permuted empty_like empty_strided new_empty new_empty_strided".split()
        )
    )
)


def _trim(nodes):
    """Without views at the edges: those of inputs that nobody inside needs, and those that only the outside needs."""
    nodes = list(nodes)
    while True:
        inside = set(nodes)
        kept = [
            n
            for n in nodes
            if any(u in inside for u in n.users) or not (island.is_view(n) and n.target is not operator.getitem)
        ]
        kept = [n for n in kept if n.target is not operator.getitem or n.all_input_nodes[0] in inside]
        if len(kept) == len(nodes):
            return nodes
        nodes = kept


def _is_random(node):
    """Does it draw random numbers?"""
    if node.op != "call_function":
        return False
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) or any(word in str(node.target) for word in aten.RANDOM)


def _draws(nodes):
    """How many random operators each node waits for, when these draw in the order that they have."""
    found, count = {}, 0
    for node in nodes:
        count += _is_random(node)
        found[node] = count if _is_random(node) else max((found[x] for x in node.all_input_nodes), default=0)
    return found


def _keeps_draws(nodes, pieces):
    """Can random operators draw in their order, when each piece is one call?"""
    piece_of = {node: i for i, piece in enumerate(pieces) for node in piece}
    place = [piece_of.get(node, node) for node in nodes]
    before = {at: set() for at in place}
    last = None
    for node, at in zip(nodes, place):
        before[at] |= {piece_of.get(x, x) for x in node.all_input_nodes} - {at}
        if _is_random(node):
            if last is not None:
                before[at].add(last)
            last = at
    try:
        graphlib.TopologicalSorter(before).prepare()
    except graphlib.CycleError:
        return False
    return True


def _between_draws(nodes, pieces):
    """The same pieces, unless a call would stand on both sides of two random operators, whose numbers would be each other's: then cut where numbers are drawn."""
    nodes = list(nodes)
    if sum(map(_is_random, nodes)) < 2 or _keeps_draws(nodes, pieces):
        return pieces
    draws, found = _draws(nodes), []
    for piece in pieces:
        parts = {}
        for node in piece:
            parts.setdefault(draws[node], []).append(node)
        found += [parts[count] for count in sorted(parts)]
    return found


def cut(gm, options, report):
    """Replaces what Quern can compute by calls of islands."""
    support = _Support(gm, options)
    partitioner = CapabilityBasedPartitioner(gm, support, allows_single_node_partition=True)
    order = _order(gm.graph)
    whole, made = [], []
    for partition in partitioner.propose_partitions():
        places = {}  # what has nothing to do with each other can be in one partition, on two devices
        for node in sorted(partition.nodes, key=order.__getitem__):
            places.setdefault(next((v.device for v in island.tensors_of(node)), None), []).append(node)
        whole += [piece for nodes in places.values() for piece in _pieces(_trim(nodes))]
    for piece in map(_trim, _between_draws(gm.graph.nodes, whole)):
        if _work(piece) < options["smallest_island"]:
            report.left(piece, f"fewer than {options['smallest_island']} computing operators together")
            continue
        made.append(piece)
    for number, piece in enumerate(made):
        _replace(gm, piece, f"island{number}", options, report)
    for node in gm.graph.nodes:
        if node.op == "call_function" and support.reasons.get(node) is not None:
            report.left([node], support.reasons[node])
    _sort(gm.graph)
    gm.graph.eliminate_dead_code()
    gm.graph.lint()
    gm.recompile()


def _replace(gm, nodes, name, options, report):
    inputs, results = _edges(nodes)
    if not results:
        return
    try:
        if not any(island.is_tensor(x) for x in inputs):
            if inputs or any(u.op == "output" for x in results for u in x.users):
                raise Unsupported("no tensor comes in")  # its numbers change, or each call must give a fresh one
            made = island.Constant(name, nodes, results)
            report.constants.append(made)
        else:
            made = island.Island(name, inputs, nodes, results, options["strict"], options["product_limit"], options["measure"])
            report.islands.append(made)
    except Unsupported as reason:
        report.left(nodes, str(reason))
        return
    inside, graph = set(nodes), gm.graph
    with graph.inserting_before(nodes[-1]):  # _sort has the last word
        call = graph.call_function(made, tuple(inputs))
        call.meta["val"] = tuple(x.meta["val"] for x in results) if len(results) > 1 else results[0].meta["val"]
        places = {}
        for i, x in enumerate(results):
            if len(results) == 1:
                places[x] = call
            else:
                places[x] = graph.call_function(operator.getitem, (call, i))
                places[x].meta["val"] = x.meta["val"]
        # Views that the outside needs, of results and of inputs.
        for node in nodes:
            if node in places or not any(u not in inside for u in node.users):
                continue
            _rebuild(graph, node, places, inside)
    for node, place in places.items():
        node.replace_all_uses_with(place, delete_user_cb=lambda user: user not in inside)
    for node in reversed(nodes):
        if not node.users:
            graph.erase_node(node)


def _rebuild(graph, node, places, inside):
    if node in places or node not in inside:
        return places.get(node, node)
    for x in node.all_input_nodes:
        _rebuild(graph, x, places, inside)
    places[node] = graph.node_copy(node, lambda x: places.get(x, x))
    return places[node]


def _sort(graph):
    """Every node behind what it needs, otherwise in the order that it has; so does what draws random numbers (`_between_draws` saw to it that it can)."""
    nodes = list(graph.nodes)
    place, before, users, last = _order(graph), {n: set(n.all_input_nodes) for n in nodes}, {n: list(n.users) for n in nodes}, None
    for n in nodes:
        if _is_random(n):
            if last is not None and last not in before[n]:
                before[n].add(last)
                users[last].append(n)
            last = n
    ready = [place[n] for n in nodes if not before[n]]
    heapq.heapify(ready)
    found = []
    while ready:
        n = nodes[heapq.heappop(ready)]
        found.append(n)
        for user in users[n]:
            before[user].discard(n)
            if not before[user]:
                heapq.heappush(ready, place[user])
    assert len(found) == len(nodes), "a graph whose nodes wait for each other"
    for n in found:
        if n.op != "output":
            graph.output_node().prepend(n)
