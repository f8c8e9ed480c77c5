"""Matrix factorisation (Koren et al., Computer 42(8), 2009): a rating is the product of two learnt rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Initialiser, Op, Shape, Tensor, Weight
from mpibow.graph.kernel import Buffers, Call, Kernel, Run, Shapes
from mpibow.ops.choose import scatter
from mpibow.ops.initialisers import TruncatedNormal

__all__ = ["MatrixFactorisation", "matrix_factorisation"]


@dataclass(frozen=True)
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

    def infer(self, *shapes: Shape) -> Shape:
        user, item, rating = shapes
        if min(self.users, self.items, self.factors) < 1:
            raise ShapeError(f"{self.users} users, {self.items} items, {self.factors} factors: each must be at least 1")
        if len(user) != 1 or not user == item == rating:
            raise ShapeError("users, items and ratings must be (batch,)")
        return user

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
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


# The reference kernels: rows gathered from two tables, and their gradients scattered back.


def buffers(op: MatrixFactorisation, shapes: Shapes) -> Buffers:
    n = shapes.y[0]
    rows = {"p": ((n, op.factors), FLOAT), "q": ((n, op.factors), FLOAT)}
    kept = {"error": ((n, 1), FLOAT), "i": ((n,), "int64"), "j": ((n,), "int64")}
    return Buffers(saved=kept, forward=rows, backward={**rows, "slope": ((n, 1), FLOAT)})


def forward(call: Call) -> Run:
    (user, item, rating), y = call.x, call.y
    error, i, j = call.saved["error"], call.saved["i"], call.saved["j"]
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


def backward(call: Call) -> Run:
    dy2, error, i, j = call.dy.reshape(-1, 1), call.saved["error"], call.saved["i"], call.saved["j"]
    p, q, slope = call.scratch["p"], call.scratch["q"], call.scratch["slope"]
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
    MatrixFactorisation: Kernel(forward, backward, buffers),
}
