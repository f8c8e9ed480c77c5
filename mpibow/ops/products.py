"""A graph's products of matrices: which weights are factors of one, and how many operations a pass takes."""

from dataclasses import dataclass
from math import prod

from mpibow.graph import Graph, Node, Shape

from .attention import Attention
from .conv_transpose import ConvTranspose2d
from .embedding import Embedding, MatrixFactorisation
from .gru import Gru
from .leaves import Parameter
from .lstm import Lstm
from .matmul import Matmul
from .permute import Permute
from .reshape import View

TABLES = (Embedding, MatrixFactorisation)  # whose rows are looked up


@dataclass(frozen=True)
class Products:
    """`wide` are the weights of two axes or more, in the order of the graph, but for those of norms; `factors` those of
    them that a product multiplies: others are tables, or are added. `operations` are the multiplications and additions
    of a forward and a backward pass, about."""

    wide: tuple[str, ...]
    factors: frozenset[str]
    operations: float


def products_of(graph: Graph) -> Products:
    wide = {node.full(key): node for node in graph.nodes for key in _wide(node)}
    read = _multiplied(graph)
    factors = (
        name
        for name, node in wide.items()
        if not isinstance(node.op, TABLES) and (node.name in read or not isinstance(node.op, Parameter))
    )
    forward = sum(
        operations_of(node, *(graph.tensors[name].shape for name in (node.name, *node.inputs))) for node in graph.nodes
    )
    return Products(tuple(wide), frozenset(factors), 3.0 * forward)  # each of the two gradients takes as many


def _wide(node: Node) -> dict[str, Shape]:
    return {key: weight.shape for key, weight in node.weights.items() if len(weight.shape) > 1 and weight.decay}


def _multiplied(graph: Graph) -> set[str]:
    """The parameters' nodes that a product reads, as they are or permuted."""
    origins = {}
    read = set()
    for node in graph.nodes:
        if isinstance(node.op, Parameter):
            origins[node.name] = node.name
        elif isinstance(node.op, Permute | View) and node.inputs[0] in origins:
            origins[node.name] = origins[node.inputs[0]]
        elif isinstance(node.op, Matmul):
            read |= {origins[name] for name in node.inputs if name in origins}
    return read


def operations_of(node: Node, y: Shape, *x: Shape) -> float:
    """Operations of a node's forward products."""
    wide = _wide(node).values()
    match node.op:
        case Matmul():
            return 2.0 * prod(y) * x[0][-1]
        case Attention():
            return 2.0 * prod(x[0][:-1]) * x[1][-2] * (x[1][-1] + x[2][-1])
        case Embedding() | MatrixFactorisation() | Parameter():
            return 0.0
        case Lstm() | Gru():
            return 2.0 * prod(y[:-1]) * sum(map(prod, wide))
        case ConvTranspose2d():
            return 2.0 * prod(x[0]) * sum(prod(shape[1:]) for shape in wide)
    return 2.0 * prod(y) * sum(prod(shape[1:]) for shape in wide)
