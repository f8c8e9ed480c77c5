"""Matrix factorisation of ratings (Koren, Bell and Volinsky, Computer 42(8), 2009, equation 2, not regularised)."""

from mpibow import ops
from mpibow.graph import Tensor


def matrix_factorisation(
    user: Tensor, item: Tensor, rating: Tensor, *, users: int, items: int, factors: int = 10
) -> Tensor:
    """user, item and rating (n,) -> squared errors (n,): (users + items) factors weights, and no biases.

    A rating is the product of the user's and the item's learnt row; `update.weight_decay` takes the place of lambda.
    """
    return ops.matrix_factorisation(user, item, rating, users=users, items=items, factors=factors)
