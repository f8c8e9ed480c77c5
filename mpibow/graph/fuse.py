"""Fusion: runs of nodes of which only the last one's output is used elsewhere become one node."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mpibow.graph.graph import Graph, Node, Operator

# The operator for a chain of operators, or None where they do not make one. The chain's first node gives it its
# weights and first inputs; every other node adds the inputs that are not the chain's own.
Fusion = Callable[[tuple[Operator, ...]], Operator | None]


def fuse(graph: Graph, fusions: Sequence[Fusion], longest: int) -> Graph:
    """`graph` with the longest chains of up to `longest` nodes that one of `fusions` knows replaced by one node each.

    Nodes behind the first must own no weights. The fused node has the name of the last, so its output does.
    """
    users: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            users.setdefault(name, []).append(node)
    shown = set(graph.outputs.values())
    taken: dict[str, tuple[Node, ...]] = {}  # by the name of the last node of a chain
    inside: set[str] = set()
    for node in graph.nodes:
        if node.name in inside:
            continue
        chain = [node]
        while len(chain) < longest and chain[-1].name not in shown and len(users.get(chain[-1].name, ())) == 1:
            (behind,) = users[chain[-1].name]
            if behind.weights or behind.statistics or behind.name in inside:
                break
            chain.append(behind)
        for length in range(len(chain), 1, -1):
            part = tuple(chain[:length])
            if _fused(part, fusions) is not None:
                taken[part[-1].name] = part
                inside |= {member.name for member in part}
                break
    out = Graph()
    for name in graph.inputs:
        out.input(name, graph.tensors[name].shape, graph.tensors[name].dtype)
    for node in graph.nodes:
        if node.name in taken:
            first, *others = part = taken[node.name]
            op = _fused(part, fusions)
            assert op is not None
            own = {member.name for member in part}
            inputs = first.inputs + tuple(name for other in others for name in other.inputs if name not in own)
            owner = first.owner or first.name
            node = Node(node.name, op, inputs, first.weights, first.statistics, owner)
        elif node.name in inside:
            continue
        out.append(node, graph.tensors[node.name].shape)
    for key, name in graph.outputs.items():
        out.output(key, out.tensors[name])
    return out


def _fused(chain: tuple[Node, ...], fusions: Sequence[Fusion]) -> Operator | None:
    for fusion in fusions:
        op = fusion(tuple(node.op for node in chain))
        if op is not None:
            return op
    return None
