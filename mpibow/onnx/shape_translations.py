"""ONNX's operators that move numbers: shapes, parts, orders and types of tensors."""

from __future__ import annotations

from math import prod

import numpy as np

from mpibow import ops
from mpibow.aten.site import ModuleArray, Result, Value, dtype_of, need
from mpibow.graph.graph import Array, Tensor
from mpibow.onnx.nodes import NodeSite, Translation, single
from mpibow.ops.integers import integer

NARROW = {2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 10: "float16", 16: "bfloat16"}  # by onnx.TensorProto.DataType


def shape(site: NodeSite, x: Value) -> Array:
    return np.array(x.shape[site.get("start", 0) : site.get("end", None)], np.int64)


def reshape(site: NodeSite, x: Value, wanted: Value) -> Tensor:
    extents = site.listed("shape", wanted) or []
    if not site.get("allowzero", 0):
        extents = [x.shape[i] if extent == 0 else extent for i, extent in enumerate(extents)]
    if site.fixed and extents and extents[0] == site.fixed and x.shape[:1] == (site.batch,):
        extents[0] = site.batch
    return ops.reshape(site.tensor(x), extents)


def flatten(site: NodeSite, x: Value) -> Tensor:
    axis = site.get("axis", 1)
    return ops.reshape(site.tensor(x), (prod(x.shape[:axis]), prod(x.shape[axis:])))


def squeeze(site: NodeSite, x: Value, axes: Value | None = None) -> Tensor:
    given = site.listed("axes", axes)
    ones = [i for i, extent in enumerate(x.shape) if extent == 1]
    dropped = ones if given is None else [axis % len(x.shape) for axis in given]
    return ops.reshape(site.tensor(x), [extent for i, extent in enumerate(x.shape) if i not in dropped])


def unsqueeze(site: NodeSite, x: Value, axes: Value | None = None) -> Tensor:
    given = site.listed("axes", axes) or []
    rank, extents = len(x.shape) + len(given), list(x.shape)
    for axis in sorted(axis % rank for axis in given):
        extents.insert(axis, 1)
    return ops.reshape(site.tensor(x), extents)


def transpose(site: NodeSite, x: Value) -> Tensor:
    return ops.permute(site.tensor(x), *site.get("perm", tuple(reversed(range(len(x.shape))))))


def concat(site: NodeSite, *x: Value) -> Tensor:
    tensors = site.tensors(x)
    return ops.concat(*tensors, axis=site.get("axis", 0)) if len(tensors) > 1 else tensors[0]


def split(site: NodeSite, x: Value, sizes: Value | None = None) -> Result:
    axis = site.get("axis", 0)
    parts = site.listed("split", sizes)
    if parts is None:
        count, extent = site.get("num_outputs", len(site.node.outputs)), x.shape[axis]
        size = -(-extent // count)
        parts = [size] * (count - 1) + [extent - size * (count - 1)]
    return ops.split(site.tensor(x), parts, axis)


def sliced(
    site: NodeSite, x: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
) -> Tensor:
    y, first, last = site.tensor(x), site.listed("starts", starts) or [], site.listed("ends", ends) or []
    places = site.listed("axes", axes, range(len(first))) or []
    by = site.listed("steps", steps, [1] * len(first)) or []
    for axis, start, end, step in zip(places, first, last, by, strict=True):
        along = range(y.shape[axis])[start:end:step]
        need(len(along) > 0, f"the slice of axis {axis} is empty")
        low, high = min(along[0], along[-1]), max(along[0], along[-1])
        y = y[(slice(None),) * (axis % len(y.shape)) + (slice(low, high + 1, abs(step)),)]
        y = ops.flip(y, axis) if step < 0 else y
    return y


def expand(site: NodeSite, x: Value, wanted: Value) -> Tensor:
    return ops.expand(site.tensor(x), np.broadcast_shapes(x.shape, tuple(site.listed("shape", wanted) or ())))


def gather(site: NodeSite, x: Value, index: Value) -> Tensor:
    axis = site.get("axis", 0) % len(x.shape)
    if isinstance(index, np.ndarray) and not index.shape:
        return site.tensor(x)[(slice(None),) * axis + (int(index),)]
    if isinstance(index, np.ndarray):
        return site.aten("index", self=x, indices=[None] * axis + [index])
    need(not axis, "indices that depend on the data are of the first axis alone")
    if isinstance(x, ModuleArray) and index.shape:
        return site.aten("embedding", weight=x, indices=index)
    return site.aten("index_select", self=x, dim=0, index=_forward(site, index, x.shape[0]))


def gather_elements(site: NodeSite, x: Value, index: Value) -> Tensor:
    axis = site.get("axis", 0)
    return site.aten("gather", self=x, dim=axis, index=_forward(site, index, x.shape[axis]))


def _forward(site: NodeSite, index: Value, extent: int) -> Tensor:
    """Indices of which those below 0 count from the end, as indices from 0."""
    if isinstance(index, np.ndarray):
        return site.tensor(index % extent)
    return integer(site.tensor(index), "%", ops.constant(extent))


def pad(site: NodeSite, x: Value, pads: Value, value: Value | None = None, axes: Value | None = None) -> Tensor:
    sides, places = site.listed("pads", pads) or [], site.listed("axes", axes, range(len(x.shape))) or []
    ends = {axis % len(x.shape): (sides[i], sides[i + len(places)]) for i, axis in enumerate(places)}
    reverse = [n for axis in reversed(range(len(x.shape))) for n in ends.get(axis, (0, 0))]
    mode = {"edge": "replicate", "wrap": "circular"}.get(given := site.get("mode", "constant"), given)
    number = 0.0 if value is None else single(value, "the constant of a padding")
    return site.aten("pad", self=x, pad=reverse, mode=mode, value=number)


def cast(site: NodeSite, x: Value) -> Tensor:
    to = site.get("to", 1)
    need(to not in NARROW or dtype_of(x) == "bool", f"casts to {NARROW.get(to)}; types of a net are 32 bits wide")
    return ops.cast(site.tensor(x), site.node.types[0])


def identity(site: NodeSite, x: Value) -> Value:
    return x


TRANSLATIONS: dict[str, Translation] = {
    "Cast": cast,
    "Concat": concat,
    "Expand": expand,
    "Flatten": flatten,
    "Gather": gather,
    "GatherElements": gather_elements,
    "Identity": identity,
    "Pad": pad,
    "Reshape": reshape,
    "Shape": shape,
    "Size": lambda site, x: np.array(prod(x.shape), np.int64),
    "Slice": sliced,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": lambda site, x, repeats: site.aten("repeat", self=x, repeats=site.listed("repeats", repeats)),
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
    "Where": lambda site, c, x, y: site.aten("where", condition=c, self=x, other=y),
}
