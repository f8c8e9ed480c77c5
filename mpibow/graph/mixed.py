"""Mixed precision: the tensors that stay float32 in a plan that computes in 16 bits, and the conversions between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mpibow.graph.graph import FLOAT, Graph, Node, Op, Shape

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


@dataclass(frozen=True)
class Convert(Op):
    """y = x as `to`: float32, or FLOAT for the plan's 16 bits."""

    to: str
    kind = "convert"

    def infer(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def dtype(self, *dtypes: str) -> str:
        return self.to


def mixed(graph: Graph, widths: Widths, training: bool) -> Graph:
    """`graph` for 16 bits: float inputs are float32, as data sets have them; conversions stand where types differ."""
    out, dtypes = Graph(), dict[str, str]()
    for name in graph.inputs:
        tensor = graph.tensors[name]
        dtypes[name] = WIDE if tensor.dtype == FLOAT else tensor.dtype
        out.input(name, tensor.shape, dtypes[name])

    def converted(name: str, to: str) -> str:
        copy = f"{name} in {'32' if to == WIDE else '16'} bits"
        if dtypes[name] == to:
            return name
        if copy not in dtypes:
            out.append(Node(copy, Convert(to), (name,), {}, {}), graph.tensors[name].shape)
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
