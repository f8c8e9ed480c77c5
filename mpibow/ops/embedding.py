"""Rows of trained tables: embedding, and matrix factorisation (Koren et al., Computer 42(8), 2009)."""

from __future__ import annotations

from math import prod

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Initialiser, Op, Shape, Tensor, Weight, Weights
from mpibow.graph.kernel import Buffers, Call, Kernel, Run, Shapes
from mpibow.ops.gather import scatter
from mpibow.ops.initialisers import Gaussian, TruncatedNormal

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
        return {"weight": Weight((self.count, self.width), self.initial, self.count, self.width)}


def embedding(
    x: Tensor, count: int, width: int, *, initial: Initialiser | None = None, name: str | None = None
) -> Tensor:
    """x (...) of integers in [0, count) -> (..., width). The table starts as `initial`, Gaussian(1.0) unless given.

    The numbers are checked when the data are read.
    """
    if x.dtype == FLOAT:
        raise ShapeError(f"embedding of {x.name}: numbers of rows must be integers, it is of floats")
    return x.graph.add(Embedding(count, width, initial or Gaussian(1.0)), x, name=name)


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
    reads = frozenset("xw")
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
    op = MatrixFactorisation(users, items, factors, initial or TruncatedNormal(0.1))
    return user.graph.add(op, user, item, rating, name=name)


# The reference kernels.


def embedding_buffers(op: Embedding, shapes: Shapes) -> Buffers:
    kept = {"index": ((prod(shapes.x[0]),), "int64")}
    return Buffers(saved=kept)


def embedding_forward(call: Call) -> Run:
    x, index, table = call.x0.reshape(-1), call.saved["index"], call.w["weight"]
    y = call.y.reshape(len(index), -1)

    def run() -> None:
        np.clip(x, 0, len(table) - 1, out=index, casting="unsafe")
        table.take(index, axis=0, out=y, mode="clip")

    return run


def embedding_backward(call: Call) -> Run:
    index, table = call.saved["index"], call.dw["weight"]
    dy = call.dy.reshape(len(index), -1)
    return lambda: scatter(dy, index, table)


def factorisation_buffers(op: MatrixFactorisation, shapes: Shapes) -> Buffers:
    n = shapes.y[0]
    rows = {"p": ((n, op.factors), FLOAT), "q": ((n, op.factors), FLOAT)}
    kept = {"error": ((n, 1), FLOAT), "i": ((n,), "int64"), "j": ((n,), "int64")}
    return Buffers(saved=kept, forward=rows, backward={**rows, "slope": ((n, 1), FLOAT)})


def factorisation_forward(call: Call) -> Run:
    (user, item, rating), y = call.x, call.y
    error, i, j = call.buffers("error", "i", "j")
    p, q, users, items = call.scratch["p"], call.scratch["q"], call.w["user"], call.w["item"]
    error1 = error[:, 0]

    def run() -> None:
        nonlocal error1
        np.clip(user, 0, len(users) - 1, out=i)  # a wrong index must not write elsewhere
        np.clip(item, 0, len(items) - 1, out=j)
        users.take(i, axis=0, out=p, mode="clip")  # the other modes buffer their output
        items.take(j, axis=0, out=q, mode="clip")
        np.vecdot(p, q, out=error1)
        error1 -= rating
        np.multiply(error1, error1, out=y)

    return run


def factorisation_backward(call: Call) -> Run:
    dy2, error, i, j = call.dy.reshape(-1, 1), call.saved["error"], call.saved["i"], call.saved["j"]
    p, q, slope = call.buffers("p", "q", "slope")
    users, items, dusers, ditems = call.w["user"], call.w["item"], call.dw["user"], call.dw["item"]

    def run() -> None:  # 2 dy error, times the other's row
        nonlocal p, q, slope
        np.multiply(error, dy2, out=slope)
        slope *= 2
        users.take(i, axis=0, out=p, mode="clip")
        items.take(j, axis=0, out=q, mode="clip")
        p *= slope
        q *= slope
        scatter(q, i, dusers)
        scatter(p, j, ditems)

    return run


KERNELS = {
    Embedding: Kernel(embedding_forward, embedding_backward, embedding_buffers),
    MatrixFactorisation: Kernel(factorisation_forward, factorisation_backward, factorisation_buffers),
}
