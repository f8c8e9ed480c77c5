"""Reads ONNX files: the package onnx inlines functions and infers types, then nodes become records."""

import os
import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from fnmatch import fnmatchcase
from functools import partial
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mpibow.aten.program import ModuleInput, lines_of
from mpibow.aten.site import WHOLE
from mpibow.errors import ConfigError
from mpibow.graph import FLOAT, Array

from .comparison import compare
from .net import OnnxNet, check
from .nodes import OnnxNode, needed
from .package import onnx_package
from .translations import EXTENTS, TRANSLATIONS

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

# Older models are converted by the package. Opsets 24 to 28 have no other meaning of the operators that are read.
OLDEST, FUNCTIONS, NEWEST = 13, 18, 28  # from FUNCTIONS on operators have bodies that can be inlined
RANDOM = ("Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
PAGE = "docs/onnx.md has the list"
FLOATS = ("bfloat16", "float16", "float32", "float64")
Shapes = Mapping[str, Sequence[int]]  # extents behind the batch, by the inputs' names


def from_onnx(
    file: str | os.PathLike[str],
    *,
    outputs: Sequence[str] = (),
    constants: Collection[str] = (),
    shapes: Shapes | None = None,
) -> OnnxNet:
    """An ONNX model as a net for `mpibow.fit`: its operators, and its initialisers as weights to start from.

    Float initialisers with at least one axis are trained, under their names, but for those that match one of the
    patterns `constants`. Batch norms and dropout are in their training forms. The first axis of each input is the
    batch, of any size; `shapes` has the extents behind it by the inputs' names where the model leaves them open.
    `outputs` are names of values in the model where the net shall end, by default the model's.

    Raises ConfigError naming all operators that mpibow lacks, each with its node; also where the outputs of two samples
    differ from those of the package onnx.
    """
    onnx = onnx_package()
    path = Path(file)
    try:
        model = onnx.load(os.fspath(path))
    except Exception as error:  # of protobuf and of the file system
        raise ConfigError(f"from_onnx: {path}: cannot be read: {error}") from None
    net = net_of(model, path.name, outputs, constants, shapes)
    check(net)
    if reason := compare(onnx, model, net):
        warnings.warn(f"from_onnx: {path.name} was not compared with the package onnx: {reason}", stacklevel=2)
    return net


def net_of(
    model: "ModelProto",
    source: str,
    outputs: Sequence[str] = (),
    constants: Collection[str] = (),
    shapes: Shapes | None = None,
) -> OnnxNet:
    """The net of a model, unchecked. Raises ConfigError naming all operators that have no counterpart."""
    reader = ModelReader(model, source)
    graph = reader.model.graph
    weights = dict[str, Array]()
    fixed = dict[str, Array]()
    for tensor in graph.initializer:
        array = reader.onnx.numpy_helper.to_array(tensor)
        name = tensor.name
        reader.types[name] = tensor.data_type
        floats = array.dtype.name in FLOATS
        trained = floats and array.ndim and not any(fnmatchcase(name, pattern) for pattern in constants)
        (weights if trained else fixed)[name] = array.astype(np.float32) if floats and array.itemsize < 4 else array
    if wrong := (shapes or {}).keys() - {each.name for each in graph.input}:
        raise ConfigError(f"from_onnx: shapes: {source} has no input {min(wrong)}")
    wanted = list(outputs) or [each.name for each in graph.output]
    nodes = needed([*map(reader.node, graph.node)], wanted)
    if missing := [name for name in wanted if not any(name in node.made for node in nodes)]:
        raise ConfigError(f"from_onnx: outputs: {source} computes no {missing[0]}")
    read = {name for node in nodes for name in node.inputs}
    inputs = [each for each in graph.input if each.name in read - weights.keys() - fixed.keys()]
    batches = {dims[0].dim_value for each in inputs if (dims := each.type.tensor_type.shape.dim)}
    if lacking := list(_lacking(nodes, {*fixed, ""})):
        lines = lines_of([f"{node.operator} in node {node.name}" for node in lacking])
        raise ConfigError(f"from_onnx: {source} uses operators that mpibow lacks ({PAGE}):\n{lines}")
    return OnnxNet(
        source,
        {each.name: reader.input(each, (shapes or {}).get(each.name)) for each in inputs},
        {name: array for name, array in weights.items() if name in read},
        fixed,
        nodes,
        {name_of(value) if len(wanted) > 1 else "output": value for value in wanted},
        max(batches, default=0) or None,
    )


def _lacking(nodes: Iterable[OnnxNode], known: set[str]) -> Iterable[OnnxNode]:
    """The nodes without a counterpart whose inputs are not all `known`, which are those that no data change."""
    for node in nodes:
        if node.operator not in RANDOM and (known.issuperset(node.inputs) or node.operator in EXTENTS):
            known.update(node.made)
        elif node.operator not in TRANSLATIONS:
            yield node


class ModelReader:
    """Makes records of a model's nodes. Raises ConfigError where the package onnx finds it damaged, or it is new."""

    def __init__(self, model: "ModelProto", source: str):
        self.onnx = onnx_package()
        self.source = source
        rule = f"from_onnx: {source}: is"
        opset = _opset(model)
        if opset > NEWEST:
            raise ConfigError(f"{rule} of opset {opset}; {OLDEST} to {NEWEST} are read")
        try:
            self.model = self._inferred(model)
        except Exception as error:  # of C++, of kinds without a name
            old = f"of opset {opset}, which the package onnx does not convert to {OLDEST}"
            raise ConfigError(f"{rule} {'no whole model' if opset >= OLDEST else old}: {error}") from None
        graph = self.model.graph
        self.types = {
            each.name: each.type.tensor_type.elem_type for each in (*graph.input, *graph.value_info, *graph.output)
        }

    def _inferred(self, model: "ModelProto") -> "ModelProto":
        """The model in an opset that is read, without functions that have no counterpart, and with all types."""
        for opset, may_fail in ((OLDEST, nullcontext()), (FUNCTIONS, suppress(Exception))):
            if _opset(model) < opset and (opset == OLDEST or not model.functions):  # conversion would drop them
                with may_fail:
                    model = self.onnx.version_converter.convert_version(model, opset)
        self._fill(model)
        known = [("", name) for name in (*TRANSLATIONS, "Range") if name != "GroupNormalization" or _opset(model) > 20]
        with suppress(Exception):  # functions that cannot be inlined are named as lacking
            model = self.onnx.inliner.inline_selected_functions(model, known, True, inline_schema_functions=True)
        inferred: ModelProto = self.onnx.shape_inference.infer_shapes(model, data_prop=True)
        return inferred

    def _fill(self, model: "ModelProto") -> None:
        """Gives nodes that are functions the defaults of their attributes: the inliner leaves them out."""
        for node in model.graph.node:
            if self.onnx.defs.has(node.op_type, node.domain):
                schema = self.onnx.defs.get_schema(node.op_type, _opset(model), node.domain)
                known = {each.name for each in node.attribute}
                usual = [each.default_value for each in schema.attributes.values() if schema.has_function]
                node.attribute.extend(each for each in usual if each.name and each.name not in known)

    def input(self, value: "ValueInfoProto", shape: Sequence[int] | None) -> ModuleInput:
        dims = value.type.tensor_type.shape.dim[1:]
        extents = tuple(shape or (each.dim_value for each in dims))
        if len(extents) != len(dims) or min(extents, default=1) < 1:
            found = ", ".join(each.dim_param or str(each.dim_value) for each in dims)
            raise ConfigError(
                f"from_onnx: the input {value.name} of {self.source} is (n, {found}); give the extents behind the "
                f"batch: shapes={{'{value.name}': (...)}}"
            )
        if not (dtype := self._dtype(value.name)):
            raise ConfigError(f"from_onnx: the input {value.name} of {self.source} is no tensor of numbers")
        return ModuleInput(name_of(value.name), extents, self._numbers(value.name).name if dtype == WHOLE else dtype)

    def node(self, node: "NodeProto") -> OnnxNode:
        attributes = ((each.name, self.onnx.helper.get_attribute_value(each)) for each in node.attribute)
        return OnnxNode(
            node.name or f"of {next(filter(None, node.output), '')}",
            f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type,
            tuple(node.input),
            tuple(node.output),
            {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes},
            tuple(self._dtype(name) if name else FLOAT for name in node.output),
            partial(self._fold, node),
        )

    def _numbers(self, name: str) -> np.dtype[Any]:
        """A value's type in the model; sequences have none."""
        kind = self.types.get(name, 0)
        return self.onnx.helper.tensor_dtype_to_np_dtype(kind) if kind else np.dtype(object)

    def _dtype(self, name: str) -> str:
        """A value's type in a graph: all integers are int32 there. Sequences and texts have none: ''."""
        numbers = self._numbers(name)
        return FLOAT if numbers.name in FLOATS else {"b": "bool", "i": WHOLE, "u": WHOLE}.get(numbers.kind, "")

    def _fold(self, node: "NodeProto", *inputs: Array | None) -> Sequence[Array]:
        """The outputs of a node for arrays, by the package's own definition."""
        helper = self.onnx.helper
        alone = self.onnx.NodeProto()
        alone.CopyFrom(node)
        feeds = {f"x{i}": array for i, array in enumerate(inputs) if array is not None}
        alone.input[:] = [f"x{i}" if f"x{i}" in feeds else "" for i in range(len(inputs))]
        alone.output[:] = [f"y{i}" for i in range(len(node.output))]
        function = helper.make_function("mpibow", "alone", [*feeds], alone.output, [alone], self.model.opset_import)
        results: Sequence[Array] = self.onnx.reference.ReferenceEvaluator(function).run(None, feeds, {})
        return results


def _opset(model: "ModelProto") -> int:
    return max((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=OLDEST)


def name_of(value: str) -> str:
    """The name of an input or an output in a program, where the model's may have signs that no name has."""
    name = re.sub(r"\W", "_", value)
    return name if name.isidentifier() and not iskeyword(name) else f"x{name}"
