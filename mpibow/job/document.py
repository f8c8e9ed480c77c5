"""A net as JSON: its inputs, its operators by name and version, its outputs. No code is saved, and none is run.

    {"inputs": {"image": {"shape": [{"batch": 1}, 1, 28, 28], "dtype": "uint8"}},
     "nodes": [{"name": "conv1", "operator": "Conv2d", "version": 1, "inputs": ["image"], "settings": {...},
                "names": {}}, ...],
     "outputs": {"logits": "dense1", ...},
     "buffers": {"mask": true, ...}}

{"batch": n} stands for n times the batch size, {"array": name} for numbers that are too many for a header, {"number":
"-inf"} for one that JSON lacks. How weights start is left out: a document comes with weights. Buffers of a module of
PyTorch are arrays named "buffer NAME", true for those in its state_dict.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, make_dataclass
from typing import Any

import numpy as np

from mpibow import ops
from mpibow.config import build, plain, show
from mpibow.config.strict import hints_of, once
from mpibow.errors import CheckpointError, ConfigError, ShapeError
from mpibow.graph import Array, ArraysByName, Buffer, Graph, Initialiser, Op, Tensor
from mpibow.models import Build
from mpibow.ops.initialisers import ZERO
from mpibow.ops.own import Own, OwnOperator
from mpibow.system import JsonObject

Document = JsonObject
LONG = 64  # numbers of a tuple that lie in the document
RECORDS: Mapping[str, type] = {
    name: record
    for module in ops.FOUND
    for name, record in vars(module).items()
    if isinstance(record, type) and is_dataclass(record) and record.__module__ == module.__name__
    if hasattr(record, "kind")
}


@dataclass(frozen=True)
class DocumentNode:
    """An operator at its place, as a document has it; `names` are its weights' where they are not NAME.key."""

    name: str
    operator: str
    version: int
    inputs: tuple[str, ...]
    settings: Mapping[str, object]
    names: Mapping[str, str]


@dataclass(frozen=True)
class DocumentInput:
    """A tensor that the caller fills; extents of `shape` are numbers or {"batch": n}."""

    shape: tuple[int | Mapping[str, int], ...]
    dtype: str


@dataclass(frozen=True)
class Net:
    """The whole document."""

    inputs: JsonObject
    nodes: tuple[DocumentNode, ...]
    outputs: Mapping[str, str]
    buffers: Mapping[str, bool]


@contextmanager
def misfit(where: str) -> Iterator[None]:
    """Turns the exceptions that a damaged document causes in our code into a CheckpointError about `where`."""
    try:
        yield
    except (ConfigError, ShapeError) as error:
        raise CheckpointError(str(error)) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where}: cannot be computed: {type(error).__name__}: {error}") from None


def saved(make: Build) -> tuple[Document, dict[str, Array]]:
    """The document of the graphs that `make` gives for a batch size, and the arrays that it names.

    Raises ShapeError where a graph depends on the batch size in another way than by multiples of it.
    """
    arrays = dict[str, Array]()
    two, three = (_encoded(make(batch), arrays) for batch in (2, 3))
    return _by_batch(two, three, ""), arrays


def loaded(document: Document, arrays: ArraysByName, operators: Sequence[OwnOperator] = ()) -> Build:
    """The graphs of a document by batch size. `operators` are a script's own, which are not in it.

    Raises CheckpointError naming what is unknown, of another version, or no document's.
    """
    with misfit("graph"):
        net = build(Net, document, path="graph")
        inputs = {name: build(DocumentInput, entry, path=f"graph.inputs.{name}") for name, entry in net.inputs.items()}
        buffers = buffers_of(document, arrays)
    own = {operator.name: operator for operator in operators}

    def make(batch: int, training: bool = False) -> Graph:
        graph = Graph()
        graph.buffers |= buffers
        for name, entry in inputs.items():
            with misfit(f"graph.inputs.{name}"):
                graph.input(name, tuple(_decoded(list(entry.shape), batch, {})), entry.dtype)
        for n, node in enumerate(net.nodes):
            with misfit(f"graph.nodes[{n}] ({node.operator})"):
                tensors = [_tensor(graph, name, f"graph.nodes[{n}].inputs") for name in node.inputs]
                settings = _decoded(node.settings, batch, arrays)
                op = _record(node, settings, [tensor.dtype for tensor in tensors], own, f"graph.nodes[{n}]")
                graph.add_all(op, *tensors, name=node.name, names=node.names)
        for name, source in net.outputs.items():
            with misfit(f"graph.outputs.{name}"):
                graph.output(name, _tensor(graph, source, f"graph.outputs.{name}"))
        return graph

    make(1)  # raises what is wrong
    return make


def buffers_of(document: Document | None, arrays: ArraysByName) -> dict[str, Buffer]:
    """The buffers of the net in a document, by name."""
    kept = (document or {}).get("buffers", {})
    return {name: Buffer(arrays[f"buffer {name}"], persistent) for name, persistent in kept.items()}


def _encoded(graph: Graph, arrays: dict[str, Array]) -> dict[str, object]:
    arrays |= {f"buffer {name}": buffer.array for name, buffer in graph.buffers.items()}
    inputs = {name: plain(DocumentInput(graph.tensors[name].shape, graph.tensors[name].dtype)) for name in graph.inputs}
    nodes = [
        {
            "name": node.name,
            "operator": f"own {node.op.name}" if isinstance(node.op, Own) else type(node.op).__name__,
            "version": getattr(node.op, "version", 1),
            "inputs": list(node.inputs),
            "settings": dict(_settings(node.name, node.op, arrays)),
            "names": dict(node.names),
        }
        for node in graph.nodes
    ]
    kept = {name: buffer.persistent for name, buffer in graph.buffers.items()}
    return {"inputs": inputs, "nodes": nodes, "outputs": dict(graph.outputs), "buffers": kept}


def _settings(node: str, op: Op, arrays: dict[str, Array]) -> Iterator[tuple[str, object]]:
    """The settings of an operator's record. Functions are left out: a user's own operator, and initialisers."""
    for name in () if isinstance(op, Own) else form_of(type(op)).__annotations__:
        value = getattr(op, name)
        if isinstance(value, tuple) and len(value) > LONG:
            arrays[f"{node}.{name}"] = np.array(value)
            yield name, {"array": f"{node}.{name}"}
        else:
            yield name, _in_json(plain(value))


def _in_json(value: object) -> object:
    """Replaces numbers that JSON lacks, infinities and NaN, by their names."""
    if isinstance(value, dict):
        return {key: _in_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_in_json(each) for each in value]
    return {"number": str(value)} if isinstance(value, float) and not math.isfinite(value) else value


@once
def form_of(kind: Any) -> type[Any]:
    """The record without the functions that say how weights start, for `build` to check settings by."""
    hints = hints_of(kind)
    return make_dataclass(
        kind.__name__, [(f.name, hints[f.name]) for f in fields(kind) if hints[f.name] != Initialiser], frozen=True
    )


def _by_batch(two: object, three: object, path: str) -> Any:
    """`two` and `three`, of these batch sizes, as one: what differs is a multiple of the batch size."""
    if isinstance(two, dict) and isinstance(three, dict) and two.keys() == three.keys():
        return {key: _by_batch(two[key], three[key], f"{path}.{key}") for key in two}
    if isinstance(two, list) and isinstance(three, list) and len(two) == len(three):
        return [_by_batch(*pair, f"{path}[{n}]") for n, pair in enumerate(zip(two, three, strict=True))]
    if two == three:
        return two
    if isinstance(two, int) and isinstance(three, int) and two % 2 == 0 and two * 3 == three * 2:
        return {"batch": two // 2}
    raise ShapeError(f"graph{path}: is {show(two)} at batch size 2 and {show(three)} at 3; it can't be saved as a net")


def _decoded(entry: object, batch: int, arrays: ArraysByName) -> Any:
    """The settings of one batch size, with the arrays in their places."""
    if isinstance(entry, Mapping):
        if entry.keys() == {"batch"} and isinstance(entry["batch"], int):
            return entry["batch"] * batch
        if entry.keys() == {"number"} and entry["number"] in ("inf", "-inf", "nan"):
            return float(entry["number"])
        if entry.keys() == {"array"}:
            if entry["array"] not in arrays:
                raise ConfigError(f"graph: names the array {show(entry['array'])}, which is not there")
            return arrays[entry["array"]].tolist()
        return {key: _decoded(value, batch, arrays) for key, value in entry.items()}
    return [_decoded(value, batch, arrays) for value in entry] if isinstance(entry, list | tuple) else entry


def _tensor(graph: Graph, name: str, path: str) -> Tensor:
    if name not in graph.tensors:
        raise ConfigError(f"{path}: names {show(name)}, which no node before it makes")
    return graph.tensors[name]


def _record(
    node: DocumentNode, settings: Mapping[str, object], dtypes: Sequence[str], own: Mapping[str, OwnOperator], path: str
) -> Op:
    name = node.operator.removeprefix("own ")
    if name != node.operator:
        if name not in own:
            raise ConfigError(
                f"{path}: needs the operator {name} of the program that trained it: pass operators=[{name}]"
            )
        return own[name].record(*dtypes)
    kind = RECORDS.get(name)
    if kind is None:
        raise ConfigError(f"{path}.operator: {show(name)} is none of this version's operators")
    version = getattr(kind, "version", 1)
    if node.version != version:
        raise ConfigError(f"{path}.version: {name} is of version {node.version}, this mpibow has version {version}")
    given = vars(build(form_of(kind), settings, path=f"{path}.settings"))
    op: Op = kind(**given, **{f.name: ZERO for f in fields(kind) if f.name not in given})
    return op
