"""What the tests of an operator take: one record an operator, which its module of tests.kernels.operators has."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mpibow.graph import Array
from mpibow.ops.philox import stream
from tests.kernels.cases import Case
from tests.kernels.draw import Cases
from tests.ops.test_philox import Words, plain as philox

N = 4096  # of large cases: the smallest array that a kernel could allocate, (N,) bool, is 4 KB
IMAGE = (N, 6, 5, 5)

Shapes = tuple[tuple[int, ...], ...]
Lengths = tuple[float, float, float]
Weights = Mapping[str, Array]


class Looser(NamedTuple):
    """The bound is of `floor` where max |reference| is below that, for this reason."""

    floor: float
    reason: str


# Numbers are standard normal: few of some thousand are above 4, whose rounding (2^-24 of it, 2.4e-7) is below UNIT.
# So a floor of 1 is for a result that is small beside the terms it is left of, when there are so few results that the
# largest of them is small.
SUM = Looser(1, "terms, normal numbers or products of two, may all but cancel: they are rounded, not their sum")


@dataclass(frozen=True, kw_only=True)
class Checked:
    """An operator's numbers to try, and what they should give.

    `cases` are small, for the gradient check and all comparisons; `large` ones are of a size where an array that a
    kernel allocates stands out; `random` draws cases of any shape and setting. `plain` is the operator in plain loops,
    (op, *inputs, weights) -> output; of windows of images `torch` is the same in PyTorch, (op, torch, *inputs,
    **weights) -> output: tests/torch_in compares all others with it. `lengths` are those of the longest sums in y, in
    gradients of inputs and in those of weights. Kernel sets that are no reference lack the operator where they are in
    `lacking`.
    """

    op: type
    cases: Sequence[Case]
    random: Cases | None = None
    large: Sequence[Case] = ()
    plain: Callable[..., Array] | None = None
    torch: Callable | None = None
    lengths: Callable[..., Lengths] = lambda op, shapes: (1, 1, 1)
    looser: Looser | None = None
    lacking: Sequence[str] = ()


def elementwise(f: Callable[..., float]) -> Callable[..., Array]:
    """f, number by number."""
    return lambda op, x, w: np.array([f(op, value) for value in x.ravel().tolist()]).reshape(x.shape)


def block(counter: list[int], node: str = "node") -> Words:
    """A sample's first Philox block for a node."""
    seed, epoch, low, high = counter
    return philox((0, low, high, epoch), (seed, stream(node)))
