"""Matrix factorisation (Koren et al., Computer 42(8), 2009): a rating is the product of two learnt rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Initialiser, Op, Shape, Tensor, Weight
from mpibow.ops.initialisers import TruncatedNormal


@dataclass(frozen=True)
class MatrixFactorisation(Op):
    """y[n] = (sum over f of user[i[n], f] item[j[n], f] - rating[n])^2: inputs i, j (integers) and rating.

    The gradients of both tables are dense: zero in the rows that the batch does not name.
    """

    users: int
    items: int
    factors: int
    initial: Initialiser
    kind: ClassVar[str] = "matrix_factorisation"
    reads: ClassVar[frozenset[str]] = frozenset("xw")
    differentiable: ClassVar[tuple[int, ...] | None] = ()

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
