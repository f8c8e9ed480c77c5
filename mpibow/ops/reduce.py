"""Sums, means and maxima over axes."""

from collections.abc import Sequence

import numpy as np

from mpibow.graph import FLOAT, Array, Buffers, Kernel, Op, Shape, Tensor, runs

from .cast import cast
from .reshape import axis_of, check_axes, reshape

__all__ = ["ReduceMax", "ReduceMean", "ReduceSum", "amax", "mean", "sum"]

Axes = int | Sequence[int] | None


class _Reduction(Op):
    """Over `axes`, which stay with extent 1."""

    axes: tuple[int, ...]

    def infer(self, x: Shape) -> Shape:
        check_axes(self.axes, x)
        return tuple(1 if axis in self.axes else extent for axis, extent in enumerate(x))


class ReduceSum(_Reduction):
    """y = the sum of x over `axes`."""

    kind = "reduce_sum"


class ReduceMean(_Reduction):
    """y = the mean of x over `axes`."""

    kind = "reduce_mean"


class ReduceMax(_Reduction):
    """y = the largest of x over `axes`; its gradient is shared by equals, as that of PyTorch's amax."""

    kind = "reduce_max"
    reads = "xy"


def _reduced(kind: type[_Reduction], x: Tensor, axis: Axes, keepdim: bool, name: str | None) -> Tensor:
    given = range(1, x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    axes = tuple(axis_of(x, each) for each in given)
    y = kind(axes)(cast(x), name=name)
    return y if keepdim else reshape(y, [extent for i, extent in enumerate(y.shape) if i not in axes])


def sum(x: Tensor, axis: Axes = None, *, keepdim: bool = False, name: str | None = None) -> Tensor:
    """The sum over `axis`, one or several; by default over all but the first, the batch.

    A negative axis counts from the last. With `keepdim` the axes stay, with extent 1.
    """
    return _reduced(ReduceSum, x, axis, keepdim, name)


def mean(x: Tensor, axis: Axes = None, *, keepdim: bool = False, name: str | None = None) -> Tensor:
    """The mean over `axis`, as `sum`."""
    return _reduced(ReduceMean, x, axis, keepdim, name)


def amax(x: Tensor, axis: Axes = None, *, keepdim: bool = False, name: str | None = None) -> Tensor:
    """The largest over `axis`, as `sum`; equal elements share its gradient."""
    return _reduced(ReduceMax, x, axis, keepdim, name)


# The reference kernels.


@runs
def max_backward(x: Array, y: Array, dy: Array, dx: Array, count: Array, axes: tuple[int, ...]) -> None:
    np.equal(x, y, out=dx, casting="unsafe")
    np.sum(dx, axis=axes, keepdims=True, out=count)
    np.divide(dy, count, out=count)
    dx *= count


KERNELS = {
    ReduceMax: Kernel(
        runs(lambda x, y, axes: np.max(x, axis=axes, keepdims=True, out=y)),
        max_backward,
        lambda op, shapes: Buffers(backward={"count": (shapes.y, FLOAT)}),
    ),
    ReduceMean: Kernel(
        runs(lambda x, y, axes: np.mean(x, axis=axes, keepdims=True, out=y)),
        runs(lambda dy, dx: np.multiply(dy, dy.size / dx.size, out=dx)),
    ),
    ReduceSum: Kernel(
        runs(lambda x, y, axes: np.sum(x, axis=axes, keepdims=True, out=y)), runs(lambda dy, dx: np.copyto(dx, dy))
    ),
}
