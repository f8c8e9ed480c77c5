"""An ONNX model as a net: a function from tensors to tensors, for `mpibow.fit`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import Signature
from typing import Any

import numpy as np

from mpibow import ops
from mpibow.aten.program import ModuleInput, OperatorCall, SourcePlace, named_inputs, signature_of
from mpibow.aten.site import ModuleArray, Value, dtype_of, refuse
from mpibow.errors import ConfigError, ShapeError
from mpibow.graph import Array, Graph, Tensor

from .nodes import NodeSite, OnnxNode
from .translations import TRANSLATIONS

Values = dict[str, Value | None]


@dataclass(frozen=True, repr=False)
class OnnxNet:
    """A net that was read from an ONNX file, with the file's weights to start from. Made by `mpibow.from_onnx`.

    It takes tensors (n, ...) by the names of the model's inputs. `fixed` is the batch size that the file was written
    for, None for any. `outputs` are the names of values of the model by the outputs' names here.
    """

    source: str
    inputs: Mapping[str, ModuleInput]  # by the values' names in the model
    weights: Mapping[str, Array]
    constants: Mapping[str, Array]
    nodes: Sequence[OnnxNode]
    outputs: Mapping[str, str]
    fixed: int | None = None

    def __repr__(self) -> str:
        count = sum(array.size for array in self.weights.values())
        return f"OnnxNet({self.source}: {len(self.nodes)} nodes, {count:,} weights)"

    @property
    def __signature__(self) -> Signature:
        return signature_of(self.inputs.values())

    def __call__(self, *inputs: Tensor, **named: Tensor) -> Tensor | dict[str, Tensor]:
        """The outputs for tensors (n, ...) of the graph that is being built: one, or several by their names."""
        given = named_inputs(self.source, [*self.inputs.values()], inputs, named)
        made = dict[str, Tensor]()
        if not given:
            raise ConfigError(f"from_onnx: {self.source} takes no input")
        first = next(iter(given.values()))
        uses = Counter(name for node in self.nodes for name in node.inputs)
        values: Values = {"": None, **self.constants, **dict(zip(self.inputs, given.values(), strict=True))}
        for name, array in self.weights.items():
            values[name] = ModuleArray(name, array, uses[name], True)
        for node in self.nodes:
            call = OperatorCall(node.name, node.operator, {}, SourcePlace("", node.name), node.types[0])
            site = NodeSite(first.graph, call, (*first.shape, 1)[0], made, node=node, fixed=self.fixed)
            try:
                results = _results(
                    site,
                    [
                        values[name] if name in values else refuse(f"its input {name} is not computed here")
                        for name in node.inputs
                    ],
                )
            except Exception as error:  # without a name: of settings that the operator's counterpart lacks
                rule = "" if isinstance(error, ShapeError | ConfigError) else "is not read with these arguments: "
                raise ConfigError(f"from_onnx: {node.operator} in node {node.name}: {rule}{error}") from error
            values |= {name: each for name, each in zip(node.made, results, strict=False) if name}
        tensors = {}
        for name, value in self.outputs.items():
            if not isinstance(output := values.get(value), Tensor):
                raise ConfigError(f"from_onnx: the output {name} of {self.source} depends on no input")
            tensors[name] = output
        return tensors if len(tensors) > 1 else next(iter(tensors.values()))


def _results(site: NodeSite, inputs: Sequence[Value | None]) -> Sequence[Value]:
    """A node's outputs: of arrays alone they are computed, else added, in the types that the model gives them."""
    node = site.node
    if all(each is None or isinstance(each, np.ndarray) for each in inputs):
        return node.fold(*inputs)
    if node.operator not in TRANSLATIONS:
        refuse("mpibow lacks it")
    if "" in node.types:
        refuse("it gives no floats, integers or bools of 32 or 64 bits")
    result: Any = TRANSLATIONS[node.operator](site, *inputs, **node.attributes)
    return [
        each if dtype_of(each) == dtype else ops.cast(site.tensor(each), dtype)
        for each, dtype in zip(result if isinstance(result, list | tuple) else [result], node.types, strict=False)
    ]


def check(net: OnnxNet) -> None:
    """Raises ConfigError where a node cannot be added, and where the net takes one batch size only."""
    for batch in (2, 3):
        net(*inputs_of(net, batch))


def inputs_of(net: OnnxNet, batch: int) -> list[Tensor]:
    """Inputs of a new graph for this batch size."""
    graph = Graph()
    return [graph.input(each.name, (batch, *each.shape), each.dtype) for each in net.inputs.values()]
