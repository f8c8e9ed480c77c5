"""The interface of a kernel set for flat arrays, and the division of the work on them into chunks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mpibow.formulas import Formula
from mpibow.graph import Array, Arrays, Shape

WHOLE = np.zeros((0, 5), np.int64)  # no gradient is kept as factors: see mpibow.graph.layout.Layout.factors
States = Arrays  # a local step's state for every row, each (k, size)
PIECE = 65536  # elements: a piece of all of a rule's arrays fits a core's cache


class StepArrays(NamedTuple):
    """What a local step reads and writes: a rank's k replicas are rows of weights, of every state, and of gradients.

    Each is (k, size). `factors` (Layout.factors) are the gradients that are kept as factors.
    """

    weights: Array
    states: States
    gradients: Array
    factors: Array = WHOLE


@dataclass(frozen=True, eq=False)
class Local:
    """One local step of a rank's rows: its formula, and its scalars for every row and group of weights.

    `rate` is the learning rate; `numbers` gives the scalars (rows, groups, scalars) float64 at a rate. Span number p of
    a row ends in front of element ends[p] and is of group groups[p]; both are int64 (spans,).

    It updates the elements from `start` on, and has states for these. `beside` are the steps of the elements behind
    them. Passes take the states of all of them in order.

    `directs` (states, gradients), where it is not None, makes a function that each thread calls once, with any chunks,
    before the step: it replaces the gradients (rows, size) by the formula's input.
    """

    formula: Formula
    rate: float
    ends: Array
    groups: Array
    numbers: Callable[[float], Array]
    directs: Callable[[States, Array], Callable[[range], None]] | None = None
    start: int = 0
    beside: tuple["Local", ...] = ()

    def parts(self, arrays: StepArrays) -> Iterator[tuple["Local", States, int]]:
        """This step and the ones beside it, with their states, and their ends in the rows."""
        states = arrays.states
        for part in (self, *self.beside):
            own = len(part.formula.arrays) - 2
            yield part, states[:own], min(int(part.ends[-1]), arrays.weights.shape[1])
            states = states[own:]

    @cached_property
    def scalars(self) -> Array:
        return self.numbers(self.rate)

    def fixed(self) -> "Local":
        """This step, its scalars computed now."""
        assert all(part.scalars is not None for part in (self, *self.beside))
        return self

    def times(self, factor: float) -> "Local":
        """The same step at `factor` times the rate."""
        return replace(self, rate=self.rate * factor, beside=tuple(part.times(factor) for part in self.beside))

    def of(self, i: int) -> "Local":
        """The step of row i alone."""
        beside = tuple(part.of(i) for part in self.beside)
        return replace(self, numbers=lambda rate: self.numbers(rate)[i : i + 1], beside=beside)


@dataclass(frozen=True, eq=False)
class Half:
    """A rule's `send` or `apply` in one iteration, with the numbers of its formula, in their order.

    A number that only a device has is given as the array that holds it.
    """

    formula: Formula
    numbers: tuple[Any, ...]

    @property
    def moves(self) -> bool:
        """Whether it gives replicas' new weights."""
        return self.formula.arrays[0] == "w"


@dataclass(frozen=True, eq=False)
class Matrix:
    """The place of a matrix in a flat array: element (i, j) at rows[i] + columns[j], int64 and both ascending.

    There are no more rows than columns.
    """

    rows: Array
    columns: Array


class FlatArrays(Protocol):
    """Flat arrays where they are computed with; `mpibow.kernels.numpy.arrays` has those of the host."""

    def zeros(self, shape: int | Shape, dtype: npt.DTypeLike) -> Array: ...

    def put(self, target: Array, source: npt.ArrayLike) -> None:
        """target <- an array, one row for all rows, or 0."""

    def host(self, array: Array) -> Array:
        """The array's content on the host."""

    def rows_sum(self, rows: Array) -> Array:
        """The sum of rows (k, size), on the host."""

    def sum_squares(self, squares: Array, out: Array) -> None:
        """out (1,) <- the sum of squares (chunks,) of passes."""

    @property
    def meter(self) -> Callable[[], Any] | None:
        """Makes the meter of the gain; None for the host's own."""


class FlatKernels(FlatArrays, Protocol):
    """One pass each over flat arrays; `mpibow.kernels.numpy.flat` documents and defines them."""

    @property
    def chunk(self) -> int:
        """Elements of a chunk. Every pass works on whole chunks, so any split over threads gives the same bits."""

    @property
    def Recorder(self) -> Callable[[], Any] | None:
        """Makes what records passes that take `do` as commands; None where they are Python's."""

    @property
    def orthogonal(self) -> Callable[..., Callable[..., None]]:
        """Makes the function that computes a thread's orthogonal matrices."""

    def update(
        self,
        step: StepArrays,
        total: Array,
        squares: Array,
        arrays: Arrays,
        *,
        local: Local,
        send: Half,
        begin: bool,
        chunks: range,
    ) -> None: ...

    def apply(self, half: Half, weights: Array, arrays: Arrays, sums: Array, squares: Array, chunks: range) -> None: ...

    def sma_alone(
        self, step: StepArrays, sums: Array, *, local: Local, alpha: float, extra: float, chunks: range
    ) -> None: ...

    def rows_mean(self, rows: Array, mean: Array, *, chunks: range) -> None: ...

    def gradient_sum(self, gradients: Array, total: Array, *, chunks: range, factors: Array = WHOLE) -> None: ...

    def sgd_update(
        self, step: StepArrays, total: Array | None = None, *, local: Local, scale: float, chunks: range
    ) -> None: ...


def chunks_of(size: int, chunk: int) -> range:
    """All chunks of a flat array of `size` elements, `chunk` of them each."""
    return range(-(-size // chunk))


def share_of(chunks: range, worker: int, workers: int) -> range:
    """The chunks that worker number `worker` of `workers` takes."""
    n = len(chunks)
    return chunks[worker * n // workers : (worker + 1) * n // workers]


def pieces(chunks: range, chunk: int) -> Iterator[range]:
    """Runs of chunks of `chunk` elements, PIECE elements in all: passes over the same arrays take turns on each run."""
    step = max(PIECE // chunk, 1)
    for start in range(0, len(chunks), step):
        yield chunks[start : start + step]
