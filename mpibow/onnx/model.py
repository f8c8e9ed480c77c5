"""A trained net as an ONNX model, with the scaling of its inputs inside or left to the caller."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mpibow.errors import ConfigError, ShapeError
from mpibow.graph import Array, Graph
from mpibow.models import predictions, read_by
from mpibow.ops.dropout import COUNTER
from mpibow.ops.image import Normalise

from .node_writers import WRITERS
from .nodes import needed
from .writer import ModelWriter, NodeWriter

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

OPSET = 18
IR_VERSION = 8


def model_of(
    make: Callable[[int], Graph],
    weights: Mapping[str, Array],
    *,
    scaled: bool = True,
    about: Mapping[str, str] | None = None,
) -> "ModelProto":
    """The model of the net that `make` gives for a batch size, for any batch size; `about` is its metadata.

    It takes samples as they were stored for training, or if not `scaled` those that the net's own scaling gives.
    Raises ConfigError naming all operators that cannot be written.
    """
    two = make(2)
    three = make(3)
    outputs = predictions(two)
    if not outputs:
        raise ConfigError("to_onnx: this net gives losses alone, which are not written")
    writer = ModelWriter(two, three, weights)
    first = None if scaled else next((node for node in two.nodes if isinstance(node.op, Normalise)), None)
    nodes = needed([node for node in two.nodes if node is not first], outputs.values())
    if lacking := [node for node in nodes if type(node.op) not in WRITERS]:
        raise ConfigError("to_onnx: cannot write " + ", ".join(f"{node.op.kind} ({node.name})" for node in lacking))
    inside = {name for node in nodes for name in node.made}
    read = {name for node in nodes for name in node.inputs} | set(outputs.values())
    # An input's own name; that of what is scaled where this is left to the caller.
    writer.values |= {name: read_by(two, [name])[0] for name in two.tensors if name in read - inside - {COUNTER}}
    inputs = [_described(writer, name, value) for name, value in writer.values.items()]
    twins = {node.name: node.op for node in three.nodes}
    for node in nodes:
        try:
            written = WRITERS[type(node.op)](NodeWriter(writer, node, twins[node.name]))
        except (ConfigError, ShapeError) as error:
            raise ConfigError(f"to_onnx: {node.name}: {error}") from None
        writer.values |= zip(node.made, [written] if isinstance(written, str) else written, strict=True)
    onnx = writer.onnx
    helper = onnx.helper
    results: list[ValueInfoProto] = []
    for name, tensor in outputs.items():
        writer.nodes.append(helper.make_node("Identity", [writer.values[tensor]], [name], name))
        results.append(_described(writer, tensor, name))
    graph = helper.make_graph(writer.nodes, "mpibow", inputs, results, [*writer.initialisers.values()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    model.producer_name = "mpibow"
    helper.set_model_props(model, dict(about or {}))
    onnx.checker.check_model(model, full_check=True)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def _described(writer: ModelWriter, tensor: str, name: str) -> "ValueInfoProto":
    found = writer.two.tensors[tensor]
    extents = [
        "batch" if by == 1 else f"{by} batch" if by else extent
        for by, extent in zip(writer.times(tensor), found.shape, strict=True)
    ]
    return writer.onnx.helper.make_tensor_value_info(name, writer.kind(found.dtype), extents)
