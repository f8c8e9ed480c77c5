"""Fusion: a chain of nodes becomes one node if only the last one's output is used elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from mpibow.graph.graph import Graph, Node, Op, Weight

# The operator for a chain of operators, or None if there is none. Its first inputs are those of the chain's first node;
# then come the inputs of every other node that are not the chain's own. The first node's weights keep their keys; the
# others' keys have the operator's kind in front: batch_norm.bias.
Fusion = Callable[[tuple[Op, ...]], Op | None]


def fuse(graph: Graph, fusions: Sequence[Fusion], longest: int) -> Graph:
    """`graph` with the longest chains of up to `longest` nodes that one of `fusions` accepts replaced by one node each.

    The fused node has the name of the chain's last node, and so has its output.
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
        while (
            len(chain) < longest
            and chain[-1].outputs == 1
            and chain[-1].name not in shown
            and len(users.get(chain[-1].name, ())) == 1
        ):
            (behind,) = users[chain[-1].name]
            if behind.name in inside:
                break
            chain.append(behind)
        for length in range(len(chain), 1, -1):
            part = tuple(chain[:length])
            if _fused(part, fusions) is not None:
                taken[part[-1].name] = part
                inside |= {member.name for member in part}
                break
    nodes = dict[str, Node]()
    for name, part in taken.items():
        op = _fused(part, fusions)
        assert op is not None
        nodes[name] = _joined(part, op)
    return rebuilt(graph, nodes, inside)


def rebuilt(graph: Graph, taken: Mapping[str, Node], inside: Collection[str]) -> Graph:
    """`graph` with the nodes `taken` in place of the nodes of the same names, and without the other nodes `inside`."""
    out = Graph()
    for name in graph.inputs:
        out.input(name, graph.tensors[name].shape, graph.tensors[name].dtype)
    for node in graph.nodes:
        if node.name in taken:
            out.append(taken[node.name], *graph.made(node))
        elif node.name not in inside:
            out.append(node, *graph.made(node))
    for key, name in graph.outputs.items():
        out.output(key, out.tensors[name])
    return out


def _joined(chain: tuple[Node, ...], op: Op) -> Node:
    own = {member.name for member in chain}
    inputs = tuple(name for member in chain for name in member.inputs if name not in own)
    weights: dict[str, Weight] = {}
    statistics: dict[str, Weight] = {}
    names: dict[str, str] = {}
    for number, member in enumerate(chain):
        before = f"{member.op.kind}." if number else ""
        weights |= {before + key: weight for key, weight in member.weights.items()}
        statistics |= {before + key: statistic for key, statistic in member.statistics.items()}
        names |= {before + key: member.full(key) for key in (*member.weights, *member.statistics)}
    return Node(chain[-1].name, op, inputs, weights, statistics, names)


def _fused(chain: tuple[Node, ...], fusions: Sequence[Fusion]) -> Op | None:
    for fusion in fusions:
        op = fusion(tuple(node.op for node in chain))
        if op is not None:
            return op
    return None
