"""Products of matrices: of one or of many side by side, and the fully connected layer."""

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import Array, Initialiser, Kernel, Op, Shape, Tensor, Weight, Weights, runs

from .arithmetic import expand
from .initialisers import ZERO, He
from .reshape import reshape

__all__ = ["Dense", "Matmul", "dense", "matmul"]


class Matmul(Op):
    """y[..., i, j] = sum over k of a[..., i, k] b[..., k, j]: all axes in front alike, or b of two axes only."""

    kind = "matmul"
    reads = "x"
    differentiable = (0, 1)

    def infer(self, a: Shape, b: Shape) -> Shape:
        if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
            raise ShapeError("inputs must be (..., rows, inner) and (..., inner, columns)")
        if len(b) > 2 and a[:-2] != b[:-2]:
            raise ShapeError("all axes in front of the last two must be alike")
        return (*a[:-1], b[-1])


def matmul(a: Tensor, b: Tensor, *, name: str | None = None) -> Tensor:
    """a (..., m, k), b (..., k, n) -> (..., m, n); `a @ b` as well. Axes in front of the last two are broadcast.

    A vector (k,) is a row on the left and a column on the right; the result does not have its axis.
    """
    if a.ndim == 1:
        y = matmul(reshape(a, (1, -1)), b)
        return reshape(y, y.shape[:-1] if b.ndim == 1 else (*y.shape[:-2], y.shape[-1]), name=name)
    if b.ndim == 1:
        y = matmul(a, reshape(b, (-1, 1)))
        return reshape(y, y.shape[:-1], name=name)
    if a.ndim < 2 or b.ndim < 3:
        return Matmul()(a, b, name=name)
    try:
        front = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ShapeError(f"matmul of {a.name} {a.shape}, {b.name} {b.shape}: cannot be broadcast") from None
    a = expand(a, (*front, *a.shape[-2:]))
    b = expand(b, (*front, *b.shape[-2:]))
    return Matmul()(a, b, name=name)


class Dense(Op):
    """y (n, ..., units) = x (n, ..., features) @ weight.T + bias, weight (units, features)."""

    units: int
    bias: bool
    initial: Initialiser
    initial_bias: Initialiser = ZERO
    kind = "dense"
    reads = "xw"

    def infer(self, x: Shape) -> Shape:
        if len(x) < 2:
            raise ShapeError("input must be (batch, ..., features)")
        return (*x[:-1], self.units)

    def weights(self, x: Shape) -> Weights:
        features = x[-1]
        weights = {"weight": Weight((self.units, features), self.initial, features, self.units)}
        if self.bias:
            weights["bias"] = Weight((self.units,), self.initial_bias, features, self.units, decay=False)
        return weights


def dense(
    x: Tensor,
    units: int,
    *,
    bias: bool = True,
    initial: Initialiser | None = None,
    initial_bias: Initialiser = ZERO,
    name: str | None = None,
) -> Tensor:
    """x (n, ..., features) -> (n, ..., units). Weights start as `initial` (He), the bias as `initial_bias` (0)."""
    return Dense(units, bias, He() if initial is None else initial, initial_bias)(x, name=name)


# The reference kernels.


def _rows(array: Array) -> Array:
    """(..., m, k) as one matrix."""
    return array.reshape(-1, array.shape[-1])


@runs
def matmul_forward(a: Array, b: Array, y: Array) -> None:
    left, out = (_rows(a), _rows(y)) if b.ndim == 2 else (a, y)
    np.matmul(left, b, out=out)


@runs
def matmul_backward(a: Array, b: Array, dy: Array, dx: Array | None, dx1: Array | None) -> None:
    if b.ndim == 2:
        a = _rows(a)
        dy = _rows(dy)
        dx = None if dx is None else _rows(dx)
    if dx is not None:
        np.matmul(dy, np.swapaxes(b, -1, -2), out=dx)
    if dx1 is not None:
        np.matmul(np.swapaxes(a, -1, -2), dy, out=dx1)


@runs
def dense_forward(x: Array, y: Array, weight: Array, bias: Array | bool) -> None:
    """`bias` is the array, or False."""
    y = _rows(y)
    np.matmul(_rows(x), weight.T, out=y)
    if bias is not False:
        y += bias


@runs
def dense_backward(
    x: Array, dy: Array, dx: Array | None, weight: Array, dweight: Array | None = None, dbias: Array | None = None
) -> None:
    dy = _rows(dy)
    if dweight is not None:
        np.matmul(dy.T, _rows(x), out=dweight)
    if dbias is not None:
        np.sum(dy, axis=0, out=dbias)
    if dx is not None:
        np.matmul(dy, weight, out=_rows(dx))


KERNELS = {
    Dense: Kernel(dense_forward, dense_backward, inputs_alone=True),
    Matmul: Kernel(matmul_forward, matmul_backward),
}
