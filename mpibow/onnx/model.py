"""A trained net as an ONNX model, with the scaling of its inputs inside or left to the caller."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from mpibow.errors import ConfigError, ShapeError
from mpibow.graph.graph import Array, Graph, Node
from mpibow.models.objective import predictions
from mpibow.onnx.node_writers import WRITERS
from mpibow.onnx.writer import ModelWriter, NodeWriter
from mpibow.ops.dropout import COUNTER
from mpibow.ops.image import Normalise

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET, IR_VERSION = 18, 8


def model_of(
    make: Callable[[int], Graph],
    weights: Mapping[str, Array],
    *,
    scaled: bool = True,
    about: Mapping[str, str] | None = None,
) -> ModelProto:
    """The model of the net that `make` gives for a batch size, for any batch size; `about` is its metadata.

    It takes samples as they were stored for training, or if not `scaled` those that the net's own scaling gives.
    Raises ConfigError naming all operators that cannot be written.
    """
    two, three = make(2), make(3)
    outputs = predictions(two)
    if not outputs:
        raise ConfigError("to_onnx: this net gives losses alone, which are not written")
    writer = ModelWriter(two, three, weights)
    nodes, twins = _needed(two, outputs.values(), scaled), {node.name: node.op for node in three.nodes}
    if lacking := [node for node in nodes if type(node.op) not in WRITERS]:
        raise ConfigError("to_onnx: cannot write " + ", ".join(f"{node.op.kind} ({node.name})" for node in lacking))
    inside = {name for node in nodes for name in node.made}
    read = {name for node in nodes for name in node.inputs} | set(outputs.values())
    for name in sorted(read - inside - {COUNTER}, key=list(two.tensors).index):
        writer.values[name] = _input_name(two, name)
    inputs = [_described(writer, name, value) for name, value in writer.values.items()]
    for node in nodes:
        try:
            written = WRITERS[type(node.op)](NodeWriter(writer, node, twins[node.name]))
        except (ConfigError, ShapeError) as error:
            raise ConfigError(f"to_onnx: {node.name}: {error}") from None
        writer.values |= zip(node.made, [written] if isinstance(written, str) else written, strict=True)
    onnx, helper = writer.onnx, writer.onnx.helper
    results = []
    for name, tensor in outputs.items():
        writer.nodes.append(helper.make_node("Identity", [writer.values[tensor]], [name], name))
        results.append(_described(writer, tensor, name))
    graph = helper.make_graph(writer.nodes, "mpibow", inputs, results, [*writer.initialisers.values()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    model.producer_name = "mpibow"
    helper.set_model_props(model, dict(about or {}))
    onnx.checker.check_model(model, full_check=True)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def _needed(graph: Graph, outputs: Collection[str], scaled: bool) -> list[Node]:
    """The nodes that the outputs depend on, in order; none up to the scaling where the caller scales."""
    needed, kept = set(outputs), list[Node]()
    for node in reversed(graph.nodes):
        if needed.intersection(node.made) and (scaled or not isinstance(node.op, Normalise)):
            needed.update(node.inputs)
            kept.append(node)
    return kept[::-1]


def _input_name(graph: Graph, name: str) -> str:
    """The input's own name; that of what is scaled where this is left to the caller."""
    nodes = {node.name: node for node in graph.nodes}
    while name in nodes:
        name = nodes[name].inputs[0]
    return name


def _described(writer: ModelWriter, tensor: str, name: str) -> object:
    two, three, helper = writer.two.tensors[tensor], writer.three.tensors[tensor], writer.onnx.helper
    times = [b - a for a, b in zip(two.shape, three.shape, strict=True)]
    extents = [a if not by else "batch" if by == 1 else f"{by} batch" for by, a in zip(times, two.shape, strict=True)]
    return helper.make_tensor_value_info(name, writer.kind(two.dtype), extents)
