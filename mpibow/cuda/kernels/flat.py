"""Launches of the passes over flat arrays; `mpibow.kernels.numpy.flat` defines them.

Arrays are as there, on the device, all float32 but for sums of squares, which are float64: `squares` (chunks,), `sums`
(chunks, 2), `norms` (k,). `step` is a record STEP in device memory: values that change from one iteration to the
next are written there, and captured graphs read them. The `scalars` (k, groups, n) of a local step, float32, lie there
too. All arrays are aligned to 16 bytes, and so are all rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mpibow.cuda.device.array import DeviceArray, PlanArray
from mpibow.kernels import Local, chunks_of

from .kernels import Constant, Grid, Launch, Launches, instance, lanes, turns

ONE: Grid = (1, 1, 1)  # a block, or a thread
CHUNK = 2048  # elements of a block: as in flat.cu
STEP = np.dtype(
    [(name, "f4") for name in ("rate", "alpha", "gain", "scale", "attention")]
    + [("begin", "i4"), *((f"number{i}", "f4") for i in range(8))],  # of a rule's formula, in its order
    align=True,
)
SPAN = np.dtype([("end", "i8"), ("group", "i8")])
Stepping = Literal["update", "sma_alone", "sgd_update"]  # passes with a local step
MOST, ARRAYS = 4, 3  # states, and a rule's arrays, that passes take
# `fixed` is taken where `measured` is 0; see mpibow.sync.gain for the others.
GAIN = np.dtype(
    [
        ("n1", "f8"),
        ("n2", "f8"),
        ("weight", "f8"),
        ("count", "i4"),
        ("measured", "i4"),
        ("fixed", "f4"),
        ("gain", "f4"),
    ],
    align=True,
)
BLOCK = np.dtype([(name, "i8") for name in ("place", "pitch", "count")])  # of ALIGNMENT elements: see flat.cu
LOSS_SCALE = np.dtype([("scale", "f4"), ("inverse", "f4"), ("good", "i4"), ("interval", "i4")], align=True)


def _extents(rows: DeviceArray) -> tuple[np.int64, np.int64, int]:
    """Elements of a row, from one row to the next, and rows."""
    k, size = rows.shape
    stride = rows.strides[0] // rows.itemsize
    assert stride % lanes("float32") == 0 or k == 1, stride
    return np.int64(size), np.int64(stride), k


@dataclass(frozen=True, eq=False)
class DeviceStep:
    """A local step as launches take it: the text of its formula, its scalars in device memory, its spans."""

    formula: str
    scalars: DeviceArray  # (rows, groups, n)
    spans: Constant  # of SPAN


def spans_of(local: Local) -> Constant:
    """A pack of elements is in one span; elements are counted from the step's first."""
    made = np.zeros(len(local.ends), SPAN)
    made["end"], made["group"] = local.ends - local.start, local.groups
    assert not (made["end"] % lanes("float32")).any(), made["end"]
    return Constant(made)


def _chunks(size: int) -> int:
    return len(chunks_of(size, CHUNK))


def _turns(size: int) -> tuple[int, int, int]:
    return turns(size, lanes("float32"))


def apply(
    text: str, weights: DeviceArray, arrays: Sequence[DeviceArray], total: DeviceArray | None, step: DeviceArray
) -> Launch:
    """`text` is that of the formula; total None where nothing was received."""
    return Launch(
        "apply", _turns(weights.shape[1]), (weights, *filled(arrays), total, step, *_extents(weights)), formula=text
    )


def filled(arrays: Sequence[DeviceArray]) -> list[DeviceArray | None]:
    """A rule's arrays, as many as its passes take."""
    assert len(arrays) <= ARRAYS, len(arrays)
    return [*arrays, *[None] * (ARRAYS - len(arrays))]


def stepped(
    kernel: Stepping,
    weights: DeviceArray,
    states: Sequence[PlanArray],
    others: Sequence[PlanArray],
    local: DeviceStep,
    norms: DeviceArray | None = None,
) -> Launch:
    """A pass with a local step, whose text for "update" is also that of `send`. `others` are what it takes behind the
    states: gradients, total, squares, a rule's arrays and the record; gradients, sums and the record; or a gradient
    (size,), a copy of the weights that is made where given, and the record.

    `norms` (k,), where given: a row whose |g|^2 is not finite makes no step, but is corrected. Extents are as
    `_extents`, and elements from one row of a state to the next behind those of the weights.
    """
    assert len(states) <= MOST, len(states)
    size, stride, k = _extents(weights)
    (kept,) = {_extents(state)[1] for state in states} or {stride}
    arrays = (weights, *states, *[None] * (MOST - len(states)), *others, local.scalars, local.spans, norms)
    extents = (size, stride, kept, k)
    if kernel == "sgd_update":
        return Launch(kernel, _turns(int(size)), (*arrays, *extents), formula=local.formula)
    return Launch(
        kernel, (_chunks(int(size)), 1, 1), (*arrays, *extents, local.scalars.shape[1]), formula=local.formula
    )


def rows_mean(rows: DeviceArray, mean: DeviceArray) -> Launch:
    return Launch("rows_mean", _turns(mean.size), (rows, mean, *_extents(rows)))


def gradient_sum(gradients: DeviceArray, total: DeviceArray, norms: DeviceArray | None = None) -> Launch:
    """`norms` (k,), where given: a row whose |g|^2 is not finite is left out."""
    return Launch("gradient_sum", _turns(total.size), (gradients, total, norms, *_extents(gradients)))


def squared_norms(rows: DeviceArray, squares: DeviceArray, norms: DeviceArray) -> Launches:
    """norms (k,) float64 <- |row|^2 of rows (k, size); squares (k, chunks) is scratch. See `finite` in the kernels."""
    size, stride, k = _extents(rows)
    chunks = _chunks(int(size))
    first = Launch("chunk_squares", (chunks, k, 1), (rows, squares, size, stride))
    return [first, sum_parts(squares.reshape(k, chunks, 1), norms.reshape(k, 1))]


def sum_parts(parts: DeviceArray, out: DeviceArray) -> Launch:
    """out (rows, width), float64 or float32 <- the sums of parts (rows, count, width), float64, over count."""
    rows, count, width = parts.shape
    kernel = instance("sum_parts", {"float64": "double", "float32": "float"}[out.dtype.name])
    return Launch(kernel, (width, rows, 1), (parts, out, count, width))


def follow_gain(
    sums: DeviceArray,
    step: DeviceArray,
    state: DeviceArray,
    common: DeviceArray,
    k: int,
    sent: DeviceArray | None = None,
) -> Launch:
    """sums (2,): sum |u_i|^2 and |sum u_i|^2 of k learners; state a GAIN, common (2,) <- (gain - 1) / k and gain / k.

    `sent` (1,) float32, where given, is the sum |u_i|^2 of all ranks.
    """
    return Launch("follow_gain", ONE, (sums, sent, step, state, common, k), ONE)


def clamp(row: DeviceArray, limit: float) -> Launch:
    return Launch("clamp", _turns(row.size), (row, float(limit), np.int64(row.size)))


def shorten(row: DeviceArray, norm: DeviceArray, limit: float) -> Launch:
    return Launch("shorten", _turns(row.size), (row, norm, float(limit), np.int64(row.size)))


def bound_norms(
    gradient: DeviceArray, norm: DeviceArray, clip_value: float | None, clip_norm: float | None, parts: DeviceArray
) -> Launches:
    """The end of a learner's backward: limits its gradient (size,), norm (1,) <- |gradient|^2 before `clip_norm`."""
    launches = [] if clip_value is None else [clamp(gradient, clip_value)]
    launches += squared_norms(gradient.reshape(1, -1), parts, norm)
    return launches if clip_norm is None else [*launches, shorten(gradient, norm, clip_norm)]


def report_batch(
    loss: DeviceArray, hits: DeviceArray | None, norm: DeviceArray, report: DeviceArray, count: int, stride: int = 1
) -> Launch:
    """report (3,) float64 <- summed loss and hits (may be None), and norm (1,), which the loss may spoil."""
    return Launch("report_batch", ONE, (loss, hits, norm, report, count, stride))


def enter_reports(reports: DeviceArray, unsent: DeviceArray, tail: DeviceArray | None, step: DeviceArray) -> Launch:
    """unsent (3,) float64 += step's attention and the sums of finite reports (k, 3); to tail (3,) float32, if given."""
    return Launch("enter_reports", ONE, (reports, step, unsent, tail, len(reports)), ONE)


def follow_scale(norms: DeviceArray, state: DeviceArray) -> Launch:
    """state, a LOSS_SCALE, after an iteration whose gradients had these squared norms (k,)."""
    return Launch("follow_scale", ONE, (norms, state, norms.size), ONE)


def join_rows(rows: DeviceArray, wide: DeviceArray, blocks: Constant) -> Launch:
    """wide <- the elements of rows (k, size) where `blocks` (size / 16,), of BLOCK, says."""
    return Launch("join_rows", turns(rows.shape[1]), (rows, wide, blocks, *_extents(rows)))


def part_rows(wide: DeviceArray, rows: DeviceArray, blocks: Constant) -> Launch:
    return Launch("part_rows", turns(rows.shape[1]), (wide, rows, blocks, *_extents(rows)))
