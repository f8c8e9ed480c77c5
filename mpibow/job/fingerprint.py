"""Digests that ranks, and a run with its checkpoint, compare: of data, of the net's structure and of its numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from google_crc32c import extend

from mpibow.data import ArrayData, NamedArrays, RecordSet, Samples, Weighed, inputs_of
from mpibow.data.decoded import Decoded
from mpibow.data.indexed import OfItems
from mpibow.data.items import Items
from mpibow.data.labelled import Labelled, Pictures
from mpibow.data.lengths import Padded
from mpibow.data.manifest import Manifest
from mpibow.data.text import Tokens, Windows
from mpibow.graph import Array, Graph
from mpibow.models import Build

from .sources import ArrayItems

# The attributes that hold a data set's contents. A program's own data set is compared by its size and its inputs alone:
# to read its samples may take long, and give others each time.
CONTENTS: Mapping[type, tuple[str, ...]] = {
    RecordSet: ("manifest", "rows"),
    Decoded: ("records",),
    Labelled: ("pictures",),
    Pictures: ("records",),
    ArrayData: ("images", "labels"),
    Padded: ("arrays", "counts"),
    NamedArrays: ("arrays",),
    Windows: ("stream", "tokens"),
    Tokens: ("content",),
    Weighed: ("data", "sample_weight"),
    OfItems: ("_items",),
    Items: ("source", "rows"),
    ArrayItems: ("arrays",),
}


def contents_of(data: Samples) -> str:
    """The number of samples, their arrays, and the CRC32C of all that is known of their contents."""
    inputs = {name: (shape, str(dtype)) for name, (shape, dtype) in inputs_of(data).items()}
    return f"{data.count:,} samples {inputs}, CRC32C {_extended(0, data):#010x}"


def crc_of(array: Array, crc: int = 0) -> int:
    """The CRC32C of an array's bytes behind those of `crc`, at some 5 GB/s."""
    view = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    view.flags.writeable = False
    return int(extend(crc, view))


def _extended(crc: int, value: object) -> int:
    if isinstance(value, np.ndarray):
        return crc_of(value, crc)
    if isinstance(value, Manifest):  # the same records may be converted again, or lie elsewhere
        value = repr([shard.checksum for shard in value.shards]).encode()
    if isinstance(value, bytes):
        return int(extend(crc, value))
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if not isinstance(value, tuple):
        names = next((names for kind, names in CONTENTS.items() if isinstance(value, kind)), ())
        value = tuple(getattr(value, name) for name in names)
    for part in value:
        crc = _extended(crc, part)
    return crc


Numbers = Mapping[str, Mapping[str, object]]  # by node and setting: a float, or a tuple of them


@dataclass(frozen=True)
class Pinned:
    """The graphs of `build`, with these numbers in training and in evaluation."""

    build: Build
    training: Numbers
    evaluation: Numbers

    def __call__(self, batch: int, training: bool = False) -> Graph:
        graph = self.build(batch, training)
        numbers = self.training if training else self.evaluation
        for n, node in enumerate(graph.nodes):
            if node.name in numbers:
                op: Any = node.op
                graph.nodes[n] = replace(node, op=replace(op, **numbers[node.name]))
        return graph


def numbers_of(graph: Graph) -> Numbers:
    """The numbers of all operators; integers are part of the structure."""
    return {
        node.name: numbers
        for node in graph.nodes
        if (numbers := {name: value for name, value in _settings(node.op).items() if _is_number(value)})
    }


def differing(one: Numbers, other: Numbers) -> list[str]:
    """The settings of `one` that are other numbers in `other`, as conv1.scale."""
    return [
        f"{name}.{key}"
        for name, settings in one.items()
        for key, value in settings.items()
        if np.array(value).tobytes() != np.array(other.get(name, {}).get(key, ())).tobytes()  # NaN is like NaN
    ]


def structure_of(graph: Graph) -> dict[str, str]:
    """Each input, operator and output in words, without the numbers and the first values of weights."""
    inputs = {name: repr((graph.tensors[name].shape, graph.tensors[name].dtype)) for name in graph.inputs}
    nodes = {
        node.name: repr(
            (
                node.op.kind,
                node.inputs,
                graph.made(node),
                [
                    (name, None if _is_number(value) else value)
                    for name, value in _settings(node.op).items()
                    if not callable(value)  # as the functions are by which weights start
                ],
                [(node.full(key), each.shape, each.decay, each.trained) for key, each in node.weights.items()],
                [(node.full(key), each.shape) for key, each in node.statistics.items()],
            )
        )
        for node in graph.nodes
    }
    return inputs | nodes | {f"output {key}": name for key, name in graph.outputs.items()}


def _settings(op: Any) -> dict[str, object]:
    return {each.name: getattr(op, each.name) for each in fields(op)}


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, tuple) and any(isinstance(each, float) for each in value))
