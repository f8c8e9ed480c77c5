"""Graphs rewritten: a chain of nodes becomes one node, frozen weights get no gradients, conversions stand for 16 bits.

A chain is fused if only its last node's output is used elsewhere. Of frozen weights, and of tensors that depend on them
alone, a plan computes no gradients; a batch norm whose weights are all frozen leaves its running statistics as they
are, and normalises by them. In mixed precision some tensors stay float32 in a plan that computes in 16 bits.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from .graph import FLOAT, Graph, Node, Op, Shape, Weight

# The operator for a chain of operators, or None if there is none. Its first inputs are those of the chain's first node;
# then come the inputs of every other node that are not the chain's own. The first node's weights keep their keys; the
# others' keys have the operator's kind in front: batch_norm.bias.
Fusion = Callable[[tuple[Op, ...]], Op | None]


def fuse(graph: Graph, fusions: Sequence[Fusion], longest: int) -> Graph:
    """`graph` with the longest chains of up to `longest` nodes that one of `fusions` accepts replaced by one node each.

    The fused node has the name of the chain's last node, and so has its output.
    """
    readers = only_readers(graph)
    taken = {}  # by the name of the last node of a chain
    inside = set()
    for node in graph.nodes:
        if node.name in inside:
            continue
        chain = [node]
        while len(chain) < longest and chain[-1].outputs == 1 and chain[-1].name in readers:
            behind = readers[chain[-1].name]
            if behind.name in inside:
                break
            chain.append(behind)
        for length in range(len(chain), 1, -1):
            part = tuple(chain[:length])
            ops = tuple(member.op for member in part)
            made = (op for fusion in fusions if (op := fusion(ops)) is not None)
            if all(op.fusible for op in ops) and (op := next(made, None)) is not None:
                taken[part[-1].name] = _joined(part, op)
                inside |= {member.name for member in part}
                break
    return rebuilt(graph, taken, inside)


def only_readers(graph: Graph) -> dict[str, Node]:
    """By a tensor's name: the node that reads it, where exactly one does, once, and it is no output."""
    users = dict[str, list[Node]]()
    for node in graph.nodes:
        for name in node.inputs:
            users.setdefault(name, []).append(node)
    shown = set(graph.outputs.values())
    return {name: nodes[0] for name, nodes in users.items() if len(nodes) == 1 and name not in shown}


def rebuilt(graph: Graph, taken: Mapping[str, Node], inside: Collection[str]) -> Graph:
    """`graph` with the nodes `taken` in place of the nodes of the same names, and without the other nodes `inside`."""
    out = Graph()
    for name in graph.inputs:
        out.input(name, graph.tensors[name].shape, graph.tensors[name].dtype)
    for node in graph.nodes:
        if node.name in taken or node.name not in inside:
            out.append(taken.get(node.name, node), *graph.made(node))
    for key, name in graph.outputs.items():
        out.output(key, out.tensors[name])
    return out


def _joined(chain: tuple[Node, ...], op: Op) -> Node:
    own = {member.name for member in chain}
    inputs = tuple(name for member in chain for name in member.inputs if name not in own)
    weights = dict[str, Weight]()
    statistics = dict[str, Weight]()
    names = dict[str, str]()
    for number, member in enumerate(chain):
        before = f"{member.op.kind}." if number else ""
        weights |= {before + key: weight for key, weight in member.weights.items()}
        statistics |= {before + key: statistic for key, statistic in member.statistics.items()}
        names |= {before + key: member.full(key) for key in (*member.weights, *member.statistics)}
    return Node(chain[-1].name, op, inputs, weights, statistics, names)


def frozen(graph: Graph, names: Collection[str]) -> Graph:
    """`graph` with these weights frozen; the same graph if there are none."""
    if not names:
        return graph
    nodes = {
        node.name: _frozen(node, names, [graph.tensors[name].shape for name in node.inputs]) for node in graph.nodes
    }
    return rebuilt(graph, nodes, ())


def _frozen(node: Node, names: Collection[str], shapes: Sequence[Shape]) -> Node:
    weights = {
        key: replace(weight, trained=False) if node.full(key) in names else weight
        for key, weight in node.weights.items()
    }
    if not weights or any(weight.trained for weight in weights.values()):
        return replace(node, weights=weights)
    op = node.op.untrained()
    return replace(node, op=op, weights=weights, statistics=op.statistics(*shapes))


WIDE = "float32"


@dataclass(frozen=True)
class Widths:
    """The types that operators read and write in a plan that computes in 16 bits.

    Outputs of `wide` are float32, those of `narrow` are of 16 bits, and if differentiable so are their inputs.
    Inputs of `wide` and `leading` after the first are float32. All other operators read and write one type: 16 bits, or
    float32 if all their inputs are float32.
    """

    wide: tuple[type, ...] = ()
    narrow: tuple[type, ...] = ()
    leading: tuple[type, ...] = ()

    def made(self, op: Op, dtypes: Sequence[str]) -> str:
        """The dtype of the output of `op`, given its inputs' dtypes."""
        said = op.dtype(*dtypes)
        if said not in (FLOAT, WIDE) or isinstance(op, Convert):
            return said
        if isinstance(op, (*self.wide, *self.narrow)):
            return WIDE if isinstance(op, self.wide) else FLOAT
        floats = [dtype for dtype in dtypes if dtype in (FLOAT, WIDE)]
        if isinstance(op, self.leading):
            floats = floats[:1]
        return WIDE if floats and set(floats) == {WIDE} else FLOAT

    def read(self, op: Op, dtypes: Sequence[str]) -> list[str]:
        """The dtypes that its inputs must have."""
        floats = {dtype for dtype in dtypes if dtype in (FLOAT, WIDE)}
        if isinstance(op, (*self.wide, *self.leading)):
            wanted = [dtypes[0], *[WIDE] * (len(dtypes) - 1)]
        elif isinstance(op, self.narrow):
            wanted = list(dtypes) if op.differentiable is None else [FLOAT] * len(dtypes)
        else:
            wanted = [FLOAT if FLOAT in floats else WIDE] * len(dtypes)
        return [to if dtype in floats else dtype for to, dtype in zip(wanted, dtypes, strict=True)]


NO_WIDTHS = Widths()


class Convert(Op):
    """y = x as `to`: float32, or FLOAT for the plan's 16 bits."""

    to: str
    kind = "convert"

    def dtype(self, *dtypes: str) -> str:
        return self.to


def mixed(graph: Graph, widths: Widths, training: bool) -> Graph:
    """`graph` for 16 bits: float inputs are float32, as data sets have them; conversions stand where types differ."""
    out = Graph()
    dtypes = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        dtypes[name] = WIDE if tensor.dtype == FLOAT else tensor.dtype
        out.input(name, tensor.shape, dtypes[name])

    def converted(name: str, to: str) -> str:
        copy = f"{name} in {'32' if to == WIDE else '16'} bits"
        if dtypes[name] == to:
            return name
        if copy not in dtypes:
            out.append(Node(copy, Convert(to), (name,)), graph.tensors[name].shape)
            dtypes[copy] = to
        return copy

    for node in graph.nodes:
        found = [dtypes[name] for name in node.inputs]
        if node.op.is_view(training):
            made = found[0]
        else:
            wanted = widths.read(node.op, found)
            node = replace(node, inputs=tuple(map(converted, node.inputs, wanted)))
            made = widths.made(node.op, wanted)
        dtypes |= dict.fromkeys(node.made, made)
        out.append(node, *graph.made(node))
    for key, name in graph.outputs.items():
        out.output(key, out.tensors[name])
    return out
