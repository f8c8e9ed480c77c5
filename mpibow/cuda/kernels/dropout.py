"""Launches of dropout: 4 bits are kept for backward of every four elements.

With several replicas side by side, a sample of each is a sample here, with counters (4,) and kept bits of its own.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from mpibow.cuda.kernels.kernels import Launch, instance, kind, turns
from mpibow.graph.formats import canonical
from mpibow.graph.graph import Array
from mpibow.graph.kernel import Buffers, Call, Formats, Shapes
from mpibow.ops.philox import stream


def formats(op: Any, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    """As given, where that is canonical or has channels last."""
    last = given[0] == "acdb"
    tag = given[0] if last else canonical(shapes.y)
    return Formats((tag, "ab"), tag)


def buffers(op: Any, shapes: Shapes) -> Buffers:
    samples, features = _samples(op, shapes)
    return Buffers(saved={"kept": ((samples, -(-features // 4)), "uint8")})


def _samples(op: Any, shapes: Shapes) -> tuple[int, int]:
    """Samples of all replicas, and features of one."""
    k = getattr(op, "replicas", 1)
    return k * shapes.y[0], prod(shapes.y[1:]) // k


def _extents(call: Call) -> tuple[int, int, int, int]:
    """Samples, features, and where channels come last, how many of a replica and how many replicas; else 1 and 1."""
    (samples, features), (n, channels, *_) = _samples(call.op, call.shapes), call.shapes.y
    k = samples // n
    last = (channels // k, k) if call.shapes.formats.y == "acdb" else (1, 1)
    return samples, features, *last


def _launch(kernel: str, x: Array, kept: Array, arguments: tuple[Any, ...]) -> list[Launch]:
    return [Launch(instance(kernel, kind(x)), turns(kept.size), arguments)]


def forward(call: Call) -> list[Launch]:
    (x, counter), kept, rate = call.x, call.saved["kept"], call.op.rate
    node, threshold = np.uint32(stream(call.name)), np.uint32(round(rate * 2**32))
    scale = float(1.0 / (1.0 - rate))
    return _launch("dropout", x, kept, (x, counter, call.y, kept, node, threshold, scale, *_extents(call)))


def backward(call: Call) -> list[Launch]:
    kept, scale = call.saved["kept"], float(1.0 / (1.0 - call.op.rate))
    return _launch("dropout_back", call.dy, kept, (call.dy, kept, call.dx[0], scale, *_extents(call)))
