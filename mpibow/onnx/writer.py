"""An ONNX model as it is written, node by node, for a graph that any batch size may have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mpibow.aten.site import need
from mpibow.formulas import Apply, Expression, Formula, Name, Number
from mpibow.graph import FLOAT, Array, Graph, Node, Shape, Tensor
from mpibow.ops.applied import WeightsAsInputs
from mpibow.ops.dropout import COUNTER

from .package import onnx_package

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

Input: TypeAlias = "str | float | np.generic | Array | Sequence[int]"  # the name of a value, or numbers
TYPES = {"f": "float32", "b": "bool", "i": "int64", "u": "int64"}  # of initialisers, by the kind of their numbers


@dataclass
class ModelWriter:
    """Collects nodes and initialisers for a net, given as graphs for batches of two and of three.

    `values` are the names in the model of the graph's tensors.
    """

    two: Graph
    three: Graph
    weights: Mapping[str, Array]
    values: dict[str, str] = field(default_factory=dict)
    nodes: list["NodeProto"] = field(default_factory=list)
    initialisers: dict[str, "TensorProto"] = field(default_factory=dict)
    onnx: ModuleType = field(default_factory=onnx_package)

    def initialiser(self, name: str, numbers: Input) -> str:
        """The name of a new initialiser, of one of TYPES; NumPy's scalars keep their type."""
        array = np.asarray(numbers)
        dtype = array.dtype if isinstance(numbers, np.generic) else TYPES[array.dtype.kind]
        self.initialisers[name] = self.onnx.numpy_helper.from_array(array.astype(dtype), name)
        return name

    def add(self, operator: str, *inputs: Input, count: int = 1, **attributes: Any) -> list[str]:
        """The names of a new node's outputs. Numbers among its inputs become initialisers."""
        name = f"{operator}_{len(self.nodes)}"
        names = [
            each if isinstance(each, str) else self.initialiser(f"{name}.{i}", each) for i, each in enumerate(inputs)
        ]
        outputs = [name] if count == 1 else [f"{name}:{i}" for i in range(count)]
        self.nodes.append(self.onnx.helper.make_node(operator, names, outputs, name, **attributes))
        return outputs

    def times(self, tensor: str) -> list[int]:
        """How many times the batch size each extent is; 0 for one of its own."""
        two, three = (graph.tensors[tensor].shape for graph in (self.two, self.three))
        times = [b - a for a, b in zip(two, three, strict=True)]
        need(
            all(by in (0, a / 2) for by, a in zip(times, two, strict=True)),
            f"{tensor} is {two} for a batch of 2, {three} of 3",
        )
        return times

    def kind(self, dtype: str) -> int:
        """ONNX's number of a type: FLOAT or a NumPy name."""
        kind: int = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype("float32" if dtype == FLOAT else dtype))
        return kind

    @cached_property
    def batch(self) -> str:
        """The batch size, (1,)."""
        return self.add("Shape", next(iter(self.values.values())), start=0, end=1)[0]


@dataclass
class NodeWriter:
    """A node of the graph as it is written; its twin is its operator for a batch of three."""

    model: ModelWriter
    node: Node
    twin: Any

    @property
    def op(self) -> Any:
        return self.node.op

    @property
    def y(self) -> Tensor:
        """Its output for a batch of two."""
        return self.model.two.tensors[self.node.name]

    @property
    def inputs(self) -> list[str]:
        """All inputs but the counter of random numbers; the last ones may be weights that are computed."""
        return [self.model.values[name] for name in self.node.inputs if name != COUNTER]

    @property
    def x(self) -> list[str]:
        """The inputs that are no weights."""
        return self.inputs[: self.op.count] if isinstance(self.op, WeightsAsInputs) else self.inputs

    @property
    def weights(self) -> list[str]:
        """Its weights, computed or initialisers of their names, and its statistics."""
        names = map(self.node.full, (*self.node.weights, *self.node.statistics))
        return self.inputs[len(self.x) :] + [self.model.initialiser(each, self.model.weights[each]) for each in names]

    @property
    def shapes(self) -> list[Shape]:
        """Its inputs' shapes for a batch of two."""
        return [self.model.two.tensors[name].shape for name in self.node.inputs]

    @property
    def dtypes(self) -> list[str]:
        """Its inputs' types."""
        return [self.model.two.tensors[name].dtype for name in self.node.inputs]

    def __call__(self, operator: str, *inputs: Input, **attributes: Any) -> str:
        """The name of a new node's output."""
        return self.model.add(operator, *inputs, **attributes)[0]

    def cast(self, x: str, dtype: str) -> str:
        """x as `dtype`, FLOAT or a NumPy name."""
        return self("Cast", x, to=self.model.kind(dtype))

    def extents(self, reshaped: bool = False) -> Input:
        """The output's shape; a Reshape needs -1 alone for one extent that depends on the batch."""
        parts = [*zip(self.model.times(self.y.name), self.y.shape, strict=True)]
        if sum(by > 0 for by, _ in parts) <= reshaped:
            return np.array([-1 if by else extent for by, extent in parts], np.int64)
        return self(
            "Concat", *(self("Mul", self.model.batch, [by]) if by else [extent] for by, extent in parts), axis=0
        )

    def fixed(self, first: int) -> Shape:
        """Its first input's extents from this axis on, which constants are made for."""
        need(
            not any(self.model.times(self.node.inputs[0])[first:]),
            f"{self.op.kind}: an extent depends on the batch size, for which ONNX needs a number",
        )
        return self.shapes[0][first:]

    def same(self) -> Any:
        """The operator, whose settings must not depend on the batch."""
        need(self.op == self.twin, f"{self.op.kind}: its settings depend on the batch size")
        return self.op


# The functions of formulas that ONNX has under other names than theirs.
FUNCTIONS = {
    "+": "Add", "-": "Sub", "*": "Mul", "/": "Div", "<": "Less", "<=": "LessOrEqual", ">": "Greater",
    ">=": "GreaterOrEqual", "==": "Equal", "maximum": "Max", "minimum": "Min", "negative": "Neg", "power": "Pow",
}  # fmt: skip


def by_formula(w: NodeWriter, other: Formula | None = None) -> str:
    """A formula, by default the operator's, one node a function; integers alone are computed in float64: exactly."""
    used = other or w.op.half(False)
    number, kind = (np.float32, FLOAT) if FLOAT in w.dtypes else (np.float64, "float64")
    x = [name if dtype == FLOAT else w.cast(name, kind) for name, dtype in zip(w.x, w.dtypes, strict=True)]
    values: dict[str, Input] = {"x": x[0], **{f"x{i}": each for i, each in enumerate(x)}}
    values |= {name: number(getattr(w.op, name)) for name in used.scalars}

    def value(tree: Expression) -> Input:
        match tree:
            case Number(literal):
                return number(literal)
            case Name(name):
                return values[name]
            case Apply("!=", arguments):
                return w("Not", w("Equal", *map(value, arguments)))
            case Apply("log1p", (argument,)):
                x = value(argument)
                one = number(1)
                above = w("Add", x, one)  # its rounding error is taken out by the quotient (Kahan)
                log = w("Log", above)
                exact = w("Where", w("Equal", above, one), x, w("Mul", log, w("Div", x, w("Sub", above, one))))
                return w("Where", w("Equal", above, x), log, exact)  # infinity among them
            case Apply("expm1", (argument,)):
                x = value(argument)
                return w("Mul", w("Tanh", w("Mul", x, number(0.5))), w("Add", w("Exp", x), number(1)))
            case Apply("fmod", arguments):
                return w("Mod", *map(value, arguments), fmod=1)
            case Apply(function, arguments):
                return w(FUNCTIONS.get(function, function.capitalize()), *map(value, arguments))

    for name, tree in used.assignments:
        values[name] = value(tree)
    result = value(used.results[0])
    assert isinstance(result, str)
    return result if w.y.dtype == kind else w.cast(result, w.y.dtype)
