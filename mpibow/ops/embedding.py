"""Rows of trained tables: embedding, and matrix factorisation (Koren et al., Computer 42(8), 2009)."""

from math import prod

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Array, Buffers, Initialiser, Kernel, Op, Shape, Shapes, Tensor, Weight, Weights, runs

from .gather import scatter
from .initialisers import Gaussian, TruncatedNormal

__all__ = ["Embedding", "MatrixFactorisation", "embedding", "matrix_factorisation"]


class Embedding(Op):
    """y[..., :] = weight[x[...], :], x integers; a number outside [0, count) takes the nearest row."""

    count: int
    width: int
    initial: Initialiser
    kind = "embedding"
    integers = (0,)
    differentiable = ()

    def infer(self, x: Shape) -> Shape:
        if min(self.count, self.width) < 1:
            raise ShapeError(f"a table of {self.count} rows of {self.width}: both must be at least 1")
        return (*x, self.width)

    def weights(self, *inputs: Shape) -> Weights:
        return {"weight": Weight((self.count, self.width), self.initial, self.width, self.count)}


def embedding(
    x: Tensor, count: int, width: int, *, initial: Initialiser | None = None, name: str | None = None
) -> Tensor:
    """x (...) of integers in [0, count) -> (..., width). The table starts as `initial`, Gaussian(1.0) unless given.

    The numbers are checked when the data are read.
    """
    if x.dtype == FLOAT:
        raise ShapeError(f"embedding of {x.name}: numbers of rows must be integers, it is of floats")
    return Embedding(count, width, Gaussian(1.0) if initial is None else initial)(x, name=name)


class MatrixFactorisation(Op):
    """y[n] = (sum over f of user[i[n], f] item[j[n], f] - rating[n])^2: inputs i, j (integers) and rating.

    The gradients of both tables are dense: zero in the rows that the batch does not name.
    """

    users: int
    items: int
    factors: int
    initial: Initialiser
    kind = "matrix_factorisation"
    integers = (0, 1)
    reads = "xw"
    differentiable = ()

    def infer(self, user: Shape, item: Shape, rating: Shape) -> Shape:
        if min(self.users, self.items, self.factors) < 1:
            raise ShapeError(f"{self.users} users, {self.items} items, {self.factors} factors: each must be at least 1")
        if len(user) != 1 or not user == item == rating:
            raise ShapeError("users, items and ratings must be (batch,)")
        return user

    def weights(self, *inputs: Shape) -> Weights:
        return {
            "user": Weight((self.users, self.factors), self.initial, self.factors, 1),
            "item": Weight((self.items, self.factors), self.initial, self.factors, 1),
        }


def matrix_factorisation(
    user: Tensor,
    item: Tensor,
    rating: Tensor,
    *,
    users: int,
    items: int,
    factors: int,
    initial: Initialiser | None = None,
    name: str | None = None,
) -> Tensor:
    """user, item (n,) int32 and rating (n,) -> squared errors (n,). Tables start as `initial` (TruncatedNormal(0.1)).

    Indices must be in [0, users) and [0, items): like labels, they are checked where the data are read, not here.
    """
    return MatrixFactorisation(users, items, factors, TruncatedNormal(0.1) if initial is None else initial)(
        user, item, rating, name=name
    )


# The reference kernels.


@runs
def embedding_forward(x: Array, y: Array, index: Array, weight: Array) -> None:
    np.clip(x.reshape(-1), 0, len(weight) - 1, out=index, casting="unsafe")
    weight.take(index, axis=0, out=y.reshape(len(index), -1), mode="clip")


def factorisation_buffers(op: MatrixFactorisation, shapes: Shapes) -> Buffers:
    n = shapes.y[0]
    rows = {"p": ((n, op.factors), FLOAT), "q": ((n, op.factors), FLOAT)}
    return Buffers(
        saved={"error": ((n, 1), FLOAT), "i": ((n,), "int64"), "j": ((n,), "int64")},
        forward=rows,
        backward={**rows, "slope": ((n, 1), FLOAT)},
    )


@runs
def factorisation_forward(
    x: Array,
    x1: Array,
    x2: Array,
    y: Array,
    user: Array,
    item: Array,
    error: Array,
    i: Array,
    j: Array,
    p: Array,
    q: Array,
) -> None:
    np.clip(x, 0, len(user) - 1, out=i)  # a wrong index must not write elsewhere
    np.clip(x1, 0, len(item) - 1, out=j)
    user.take(i, axis=0, out=p, mode="clip")  # the other modes buffer their output
    item.take(j, axis=0, out=q, mode="clip")
    row = error[:, 0]
    np.vecdot(p, q, out=row)
    row -= x2
    np.multiply(row, row, out=y)


@runs
def factorisation_backward(
    dy: Array,
    user: Array,
    item: Array,
    duser: Array,
    ditem: Array,
    error: Array,
    i: Array,
    j: Array,
    p: Array,
    q: Array,
    slope: Array,
) -> None:
    """2 dy error, times the other's row"""
    np.multiply(error, dy.reshape(-1, 1), out=slope)
    slope *= 2
    user.take(i, axis=0, out=p, mode="clip")
    item.take(j, axis=0, out=q, mode="clip")
    p *= slope
    q *= slope
    scatter(q, i, duser)
    scatter(p, j, ditem)


KERNELS = {
    Embedding: Kernel(
        embedding_forward,
        runs(lambda dy, index, dweight: scatter(dy.reshape(len(index), -1), index, dweight)),
        lambda op, shapes: Buffers(saved={"index": ((prod(shapes.x[0]),), "int64")}),
    ),
    MatrixFactorisation: Kernel(factorisation_forward, factorisation_backward, factorisation_buffers),
}
