"""An ONNX model as it is written, node by node, for a graph that any batch size may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mpibow.aten.site import need
from mpibow.graph.graph import FLOAT, Array, Graph, Node, Shape
from mpibow.onnx.package import onnx_package
from mpibow.ops.dropout import COUNTER

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

Input: TypeAlias = "str | float | Array"  # the name of a value, or numbers
TYPES = {"f": "float32", "b": "bool", "i": "int64", "u": "int64"}  # of initialisers, by the kind of their numbers


class ModelWriter:
    """Collects nodes and initialisers for a net, given as graphs for batches of two and of three.

    `values` are the names in the model of the graph's tensors.
    """

    def __init__(self, two: Graph, three: Graph, weights: Mapping[str, Array]) -> None:
        self.onnx, self.two, self.three, self.weights = onnx_package(), two, three, weights
        self.values: dict[str, str] = {}
        self.nodes: list[NodeProto] = []
        self.initialisers: dict[str, TensorProto] = {}

    def initialiser(self, name: str, array: Array) -> str:
        """The name of a new initialiser; float64 stays where it is not a weight."""
        wide = array.dtype == np.float64 and name not in self.weights
        dtype = array.dtype if wide else TYPES[array.dtype.kind]
        self.initialisers[name] = self.onnx.numpy_helper.from_array(np.array(array, dtype), name)
        return name

    def add(self, operator: str, *inputs: Input, count: int = 1, **attributes: Any) -> list[str]:
        """The names of a new node's outputs. Arrays among its inputs become initialisers, numbers as float32."""
        name = f"{operator}_{len(self.nodes)}"
        names = [
            each
            if isinstance(each, str)
            else self.initialiser(f"{name}.{i}", each if isinstance(each, np.ndarray) else np.array(each, np.float32))
            for i, each in enumerate(inputs)
        ]
        outputs = [name] if count == 1 else [f"{name}:{i}" for i in range(count)]
        self.nodes.append(self.onnx.helper.make_node(operator, names, outputs, name, **attributes))
        return outputs

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
    """A node of the graph as it is written; its twin is its operator for a batch of three.

    `held` are the names of its weights where these are computed, by their keys.
    """

    model: ModelWriter
    node: Node
    twin: Any
    held: Mapping[str, str] = field(default_factory=dict)

    @property
    def op(self) -> Any:
        return self.node.op

    @property
    def x(self) -> list[str]:
        """Its inputs, but for the counter of random numbers."""
        return [self.model.values[name] for name in self.node.inputs if name != COUNTER]

    @property
    def shapes(self) -> list[Shape]:
        """Its inputs' shapes for a batch of two."""
        return [self.model.two.tensors[name].shape for name in self.node.inputs]

    @property
    def dtypes(self) -> list[str]:
        """Its inputs' types."""
        return [self.model.two.tensors[name].dtype for name in self.node.inputs]

    def add(self, operator: str, *inputs: Input, **attributes: Any) -> str:
        return self.model.add(operator, *inputs, **attributes)[0]

    def cast(self, x: str, dtype: str) -> str:
        """x as `dtype`, FLOAT or a NumPy name."""
        return self.add("Cast", x, to=self.model.kind(dtype))

    def weight(self, key: str) -> str:
        """A weight or statistic, which is an initialiser of its name where it is not computed."""
        name = self.node.full(key)
        return self.held[key] if key in self.held else self.model.initialiser(name, self.model.weights[name])

    def extents(self, reshaped: bool = False) -> Input:
        """The output's shape; a Reshape needs -1 alone for one extent that depends on the batch."""
        two, three = (graph.tensors[self.node.name].shape for graph in (self.model.two, self.model.three))
        times = [b - a for a, b in zip(two, three, strict=True)]
        need(
            all(2 * by == a for by, a in zip(times, two, strict=True) if by),
            f"{self.op.kind}: {two} for a batch of 2, {three} of 3",
        )
        if not any(times) or (reshaped and sum(by > 0 for by in times) == 1):
            return np.array([-1 if by else a for by, a in zip(times, two, strict=True)], np.int64)
        parts = [
            self.add("Mul", self.model.batch, np.array([by])) if by else np.array([a])
            for by, a in zip(times, two, strict=True)
        ]
        return self.add("Concat", *parts, axis=0)

    def same(self) -> Any:
        """The operator, whose settings must not depend on the batch."""
        need(self.node.op == self.twin, f"{self.op.kind}: its settings depend on the batch size")
        return self.node.op
