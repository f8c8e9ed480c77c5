"""Orders of elements along an axis, and cumulative sums."""

import numpy as np

from mpibow.graph import Kernel, Tensor, runs

from .cast import cast
from .reshape import AlongAxis, axis_of

__all__ = ["ArgSort", "CumulativeSum", "argsort", "cumsum"]


class ArgSort(AlongAxis):
    """y = the places along `axis` of the elements in rising order, equal ones as they lie: int32."""

    kind = "argsort"
    differentiable = None
    integers = (0,)
    flat = (0,)

    def dtype(self, *dtypes: str) -> str:
        return "int32"


class CumulativeSum(AlongAxis):
    """y = the sum of each element of x and all before it along `axis`."""

    kind = "cumsum"


def argsort(x: Tensor, axis: int = -1, *, name: str | None = None) -> Tensor:
    """The places along `axis` of the elements in rising order, int32; x[gather] of them is sorted."""
    return ArgSort(axis_of(x, axis))(x, name=name)


def cumsum(x: Tensor, axis: int, *, name: str | None = None) -> Tensor:
    """The sum of each element and all before it along `axis`."""
    return CumulativeSum(axis_of(x, axis))(cast(x), name=name)


# The reference kernels.


KERNELS = {
    ArgSort: Kernel(runs(lambda x, y, axis: np.copyto(y, np.argsort(x, axis=axis, kind="stable")))),
    CumulativeSum: Kernel(
        runs(lambda x, y, axis: np.cumsum(x, axis=axis, out=y)),
        runs(lambda dy, dx, axis: np.cumsum(np.flip(dy, axis), axis=axis, out=np.flip(dx, axis))),
    ),
}
