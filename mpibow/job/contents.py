"""Digests of a data set's contents, by which ranks compare what they were given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from google_crc32c import extend

from mpibow.data.dataset import ArrayData, NamedArrays, Samples, inputs_of
from mpibow.data.decoded import Decoded
from mpibow.data.indexed import LabelledItems, NamedItems
from mpibow.data.items import Items
from mpibow.data.labelled import Labelled
from mpibow.data.manifest import Manifest
from mpibow.data.masks import Pictures
from mpibow.data.recordset import RecordSet
from mpibow.data.text import Windows
from mpibow.data.tokens import Tokens
from mpibow.data.weighed import Weighed
from mpibow.graph.graph import Array
from mpibow.job.sources import Rows

# The attributes that hold a data set's contents. A program's own data set is compared by its size and its inputs alone:
# to read its samples may take long, and give others each time.
CONTENTS: Mapping[type, tuple[str, ...]] = {
    RecordSet: ("manifest", "rows"),
    Decoded: ("records",),
    Labelled: ("pictures",),
    Pictures: ("records",),
    ArrayData: ("images", "labels"),
    NamedArrays: ("arrays",),
    Windows: ("stream", "tokens"),
    Tokens: ("content",),
    Weighed: ("data", "sample_weight"),
    NamedItems: ("_items",),
    LabelledItems: ("_items",),
    Items: ("source", "rows"),
    Rows: ("arrays",),
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


def _extended(crc: int, value: Any) -> int:
    if isinstance(value, np.ndarray):
        return crc_of(value, crc)
    if isinstance(value, bytes | Manifest):
        return int(extend(crc, value if isinstance(value, bytes) else repr(value).encode()))
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple):
        parts = value
    else:
        names = next((names for kind, names in CONTENTS.items() if isinstance(value, kind)), ())
        parts = tuple(getattr(value, name) for name in names)
    for part in parts:
        crc = _extended(crc, part)
    return crc
