"""Losses with separate sums and counts: means over some elements, such as labels that are not ignored.

A training plan differentiates the mean over a batch: the batch's sum over its count. A sample by itself has its own
mean, which evaluation weighs by its count. Beside the loss a graph has the counts, for code that joins batches.
"""

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Array, Buffers, Kernel, Node, Op, Run, Shape, Shapes, Tensor, binds, runs

from .arithmetic import Affine, DivideBy

__all__ = ["CountedMean", "LabelCount", "counted_mean", "label_count"]


class CountedMean(Op):
    """In training y = x0 n / sum(x1), for sums x0 (n,) and counts x1 (n,): its mean is the batch's sum over its count.

    In evaluation y = x0 / x1, of each sample, or as in training where its mean is a part of a `whole` batch's loss. 0,
    without gradient, where nothing counts. The counts get no gradient.
    """

    whole: bool = False
    kind = "counted_mean"

    def infer(self, sums: Shape, counts: Shape) -> Shape:
        if len(sums) != 1 or counts != sums:
            raise ShapeError("sums and counts must both be (batch,), one of each a sample")
        return sums


class LabelCount(Op):
    """y[n] = how many of x[n, ...] are not `ignore`; with `weight`, their weights' sum, NaN where one is no class."""

    ignore: int
    weight: tuple[float, ...] | None = None
    kind = "label_count"
    integers = (0,)
    differentiable = None

    def infer(self, x: Shape) -> Shape:
        return x[:1]


def counted_mean(sums: Tensor, counts: Tensor, *, name: str | None = None) -> Tensor:
    """Losses (n,) whose mean is sum(sums) / sum(counts), both (n,): of a batch, and of a whole set in evaluation.

    Under a rule that averages gradients (ssgd) the learners compute the gradient of one large batch, even if their
    counts differ. This holds if the loss is this value, or a number times it; in a sum with other losses each batch
    has its own mean.
    """
    return CountedMean()(sums, counts, name=name)


def label_count(label: Tensor, ignore: int, weight: tuple[float, ...] | None = None) -> Tensor:
    """How many of each sample's labels count: (n, ...) -> (n,)."""
    return LabelCount(ignore, weight)(label)


def weigh(loss: Tensor, weight: Tensor) -> Tensor:
    """Losses (n,) whose mean is sum(weight * loss) / sum(weight), weights (n,) at least 0.

    For a counted mean, or a number times it, that is sum(weight * sums) / sum(weight * counts).
    """
    node, scale = _counted(loss)
    if node is None:
        return counted_mean(loss * weight, weight)
    sums, counts = (loss.graph.tensors[name] for name in node.inputs)
    return counted_mean(sums * weight, counts * weight) * scale


def counts_of(loss: Tensor) -> Tensor | None:
    """The counts (n,) that the mean of `loss` is over; None where every sample counts alike."""
    node, _ = _counted(loss)
    return None if node is None else loss.graph.tensors[node.inputs[1]]


def _counted(loss: Tensor) -> tuple[Node | None, float]:
    """The counted mean that `loss` is a number times, and that number."""
    nodes = {node.name: node for node in loss.graph.nodes}
    scale = 1.0
    node = nodes.get(loss.name)
    while node is not None:
        match node.op:
            case Affine(factor, 0.0):
                scale *= factor
            case DivideBy(number):
                scale /= number
            case _:
                break
        node = nodes.get(node.inputs[0])
    return (node if node is not None and isinstance(node.op, CountedMean) else None), scale


# The reference kernels.


@runs
def each_mean(sums: Array, counts: Array, y: Array, none: Array) -> None:
    np.equal(counts, 0, out=none)
    np.copyto(y, sums)
    np.divide(sums, counts, out=y, where=np.logical_not(none, out=none))


@runs
def batch_mean(sums: Array, counts: Array, y: Array, factor: Array) -> None:
    total = float(counts.sum(dtype=np.float64))
    factor[0] = len(y) / total if total else 0.0
    np.multiply(sums, factor, out=y)


def mean_buffers(op: CountedMean, shapes: Shapes) -> Buffers:
    if op.whole or shapes.training:
        return Buffers(saved={"factor": ((1,), FLOAT)})
    return Buffers(forward={"none": (shapes.y, "bool")})


def count_buffers(op: LabelCount, shapes: Shapes) -> Buffers:
    (x,) = shapes.x
    more = {"index": (x, "int64"), "each": (x, FLOAT)} if op.weight is not None else {}
    return Buffers(forward={"counted": (x, "bool"), **more})


@runs
def count_all(x: Array, y: Array, counted: Array, ignore: int) -> None:
    np.not_equal(x, ignore, out=counted)
    np.sum(counted, axis=tuple(range(1, x.ndim)), out=y)


@binds
def weigh_all(
    x: Array, y: Array, counted: Array, index: Array, each: Array, ignore: int, weight: tuple[float, ...]
) -> Run:
    weights = np.array((np.nan, *weight, np.nan), y.dtype)
    axes = tuple(range(1, x.ndim))

    def run() -> None:
        nonlocal each, index
        np.not_equal(x, ignore, out=counted)
        np.multiply(x, counted, out=index)  # `ignore` need not be a class
        index += 1
        weights.take(index, out=each, mode="clip")
        each *= counted
        np.sum(each, axis=axes, out=y)

    return run


KERNELS = {
    CountedMean: Kernel(
        lambda call: (batch_mean if "factor" in call.saved else each_mean)(call),
        runs(lambda dy, dx, factor: np.multiply(dy, factor, out=dx)),
        mean_buffers,
    ),
    LabelCount: Kernel(lambda call: (count_all if call.op.weight is None else weigh_all)(call), buffers=count_buffers),
}
