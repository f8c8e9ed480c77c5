"""What a rule sees of a rank's replicas."""

from collections.abc import Sequence
from typing import Protocol

from mpibow.graph import Array
from mpibow.kernels import StepArrays


class Rows(Protocol):
    """A rank's replicas, rows of one block. Only the local step determines the states kept beside the weights."""

    @property
    def weights(self) -> Array:
        """(count, size)"""

    @property
    def trained(self) -> StepArrays:
        """The arrays of a local step, as passes take them.

        Under a rule whose replicas are `alike`, weights and states may be (1, size): all learners share that row.
        """

    @property
    def shares(self) -> Array | None:
        """(count,): the share of each row's batch that counts in the mean of its loss; None if all of every batch does.

        Under a rule whose replicas are `alike`, gradients come multiplied by them.
        """

    def forget(self) -> None:
        """Resets the local step's states to those of a start."""

    def level(self) -> None:
        """Copies the first row's states to every row."""

    def reseed(self, i: int, centre: Array, only: Sequence[tuple[int, int]] = ()) -> None:
        """Row i starts again from the centre (size,): with `only`, in these elements [start, stop)."""

    def leave_out(self, i: int, only: Sequence[tuple[int, int]] = ()) -> None:
        """Row i has learnt nothing this iteration: with `only`, in these elements."""
