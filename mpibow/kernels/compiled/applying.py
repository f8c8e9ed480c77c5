"""The pass of a rule's `apply`. generated.py puts the text of its formula in front of this one's.

That text defines the functions below; `kept` and `rounded` are those of sending.py.
"""

from typing import TYPE_CHECKING

import numpy as np

from mpibow.graph import Array, Arrays
from mpibow.kernels.compiled.steps import BLOCK, Numbers, chunk, compiled, copied, inlined, square_of

if TYPE_CHECKING:
    from mpibow.kernels.compiled.sending import kept, rounded

    def moved(w: float, total: float, arrays: Arrays, j: int, numbers: Numbers) -> float:
        """A replica's new weight, from the rule's arrays as they were."""

    def keep(total: float, w: float, arrays: Arrays, j: int, numbers: Numbers) -> None:
        """Element j of the rule's arrays becomes what the formula gives; `w` is not read."""


@inlined
def _move(w: Array, total: Array, arrays: Arrays, values: Numbers) -> None:
    for j in range(len(w)):
        w[j] = moved(w[j], total[j], arrays, j, values)


@inlined
def _keep(total: Array, arrays: Arrays, values: Numbers) -> None:
    for j in range(len(total)):
        keep(total[j], total[j], arrays, j, values)


@compiled
def apply(
    weights: Array, arrays: Arrays, sums: Array, squares: Array, values: Array, size: int, first: int, last: int
) -> None:
    made = np.zeros(BLOCK, sums.dtype)
    own = rounded(values, sums.dtype.type)
    for c in range(first, last):
        square = 0.0
        stop = min((c + 1) * chunk, size)
        for a in range(c * chunk, stop, BLOCK):
            b = min(a + BLOCK, stop)
            total = sums[0, a:b] if len(sums) == 1 else made[: b - a]
            parts = kept(arrays, a, b)
            if len(sums) > 1:
                copied(sums[0, a:b], total)
            for row in range(1, len(sums)):
                other = sums[row, a:b]
                for j in range(b - a):
                    total[j] += other[j]
            if len(squares):
                square += square_of(total)
            for i in range(len(weights)):
                _move(weights[i, a:b], total, parts, own)
            _keep(total, parts, own)
        if len(squares):
            squares[c] = square
