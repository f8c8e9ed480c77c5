"""Nodes of a user's graph that one kernel computes: found, and replaced by an operator that stands for them."""

from mpibow.graph import Graph, Node, Op
from mpibow.graph.rewrite import fuse, only_readers, rebuilt
from mpibow.ops import Add, Attention, Conv2d, Expand, Matmul, Multiply, Permute, Split
from mpibow.ops.fused import ExpandAdd, ExpandMultiply, HeadsAttention, TurnedMatmul, with_norm, with_relu
from mpibow.ops.reshape import View

HEADS = (0, 2, 1, 3)  # the axes of (n, t, heads, d) exchanged, and back


def evaluation_fusion(chain: tuple[Op, ...]) -> Op | None:
    """Convolutions in groups are not fused: their weights are reordered on the way."""
    match chain:
        case (Conv2d(groups=1), *_):
            return with_norm(chain)
    return None


def expansion(chain: tuple[Op, ...]) -> Op | None:
    match chain:
        case (Expand(), Add((1.0, 1.0))):
            return ExpandAdd()
        case (Expand(), Multiply(2)):
            return ExpandMultiply()
    return None


def rewrite(graph: Graph, training: bool) -> Graph:
    graph = turned_together(heads_together(graph))
    fusions = (with_relu, expansion)
    return fuse(graph, fusions if training else (evaluation_fusion, *fusions), longest=4)


class _Finder:
    def __init__(self, graph: Graph):
        self._graph = graph
        self._readers = only_readers(graph)
        self._made = {name: node for node in graph.nodes for name in node.made}

    def cut(self, name: str) -> tuple[str, list[Node]] | None:
        """The tensor that heads were cut out of, and the nodes that did it."""
        permute = self._made.get(name)
        if permute is None or permute.op != Permute(HEADS) or name not in self._readers:
            return None
        view = self._made.get(permute.inputs[0])
        if view is None or not isinstance(view.op, View) or view.name not in self._readers:
            return None
        source = view.inputs[0]
        n, t, *heads = view.op.shape
        if len(heads) != 2 or self._graph.tensors[source].shape != (n, t, heads[0] * heads[1]):
            return None
        return source, [view, permute]

    def joined(self, attention: Node) -> list[Node]:
        """The nodes that join its heads again, or none."""
        permute = self._readers.get(attention.name)
        if permute is None or permute.op != Permute(HEADS) or permute.name not in self._readers:
            return []
        view = self._readers[permute.name]
        n, t, heads, e = self._graph.tensors[permute.name].shape
        return [permute, view] if view.op == View((n, t, heads * e)) else []

    def split(self, sources: list[str]) -> Node | None:
        """The node that splits into exactly these three parts, of one size, read by no other node."""
        node = self._made.get(sources[0])
        if node is None or list(node.made) != sources or not self._readers.keys() >= {*sources}:
            return None
        op = node.op
        x = self._graph.tensors[node.inputs[0]].shape
        return node if isinstance(op, Split) and op.axis == len(x) - 1 and len(set(op.sizes)) == 1 else None

    def found(self, attention: Node) -> tuple[Node, list[Node]] | None:
        """The node that replaces an attention and the nodes that cut and join its heads; these nodes but the last."""
        if not isinstance(attention.op, Attention):
            return None
        parts = [cut for name in attention.inputs[:3] if (cut := self.cut(name)) is not None]
        joined = self.joined(attention)
        if len(parts) < 3 or not joined:
            return None
        sources = [source for source, _ in parts]
        inside = [node for _, nodes in parts for node in nodes]
        split = self.split(sources)
        heads = self._graph.tensors[attention.name].shape[1]
        if split is not None:
            sources = list(split.inputs)
            inside.append(split)
        op = HeadsAttention(attention.op, heads, split is not None)
        return Node(joined[1].name, op, (*sources, *attention.inputs[3:])), [*inside, attention, joined[0]]


def heads_together(graph: Graph) -> Graph:
    """Attention whose heads are cut out of (n, t, heads d) and joined again: one operator, without copies."""
    finder = _Finder(graph)
    taken = {}
    inside = set()
    for node in graph.nodes:
        if (found := finder.found(node)) is not None:
            taken[found[0].name] = found[0]
            inside |= {each.name for each in found[1]}
    return rebuilt(graph, taken, inside)


def turned_together(graph: Graph) -> Graph:
    """Products of transposed matrices: strides express the transpose, without a copy."""
    readers = only_readers(graph)
    turns = {node.name: node.inputs[0] for node in graph.nodes if _turns(node) and node.name in readers}
    taken = {}
    inside = set()
    for node in graph.nodes:
        if not isinstance(node.op, Matmul):
            continue
        a, b = node.inputs
        many = len(graph.tensors[a].shape) > len(graph.tensors[b].shape)  # its rows are one matrix in memory
        turned = (a in turns and not many, b in turns)
        if any(turned):
            inputs = tuple(turns[name] if each else name for name, each in zip(node.inputs, turned, strict=True))
            taken[node.name] = Node(node.name, TurnedMatmul(turned), inputs)
            inside |= {name for name, each in zip(node.inputs, turned, strict=True) if each}
    return rebuilt(graph, taken, inside)


def _turns(node: Node) -> bool:
    """Whether it exchanges the last two axes."""
    if not isinstance(node.op, Permute) or len(node.op.axes) < 2:
        return False
    *front, last, other = node.op.axes
    return front == list(range(len(front))) and (last, other) == (len(front) + 1, len(front))
