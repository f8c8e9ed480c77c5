"""The path of a slot from its reader to its learner."""

from __future__ import annotations

from mpibow.data.dataset import Samples
from mpibow.data.slots import Slot, arrays_for


class Feed:
    """A pipeline's treatment of its slots: here learners read the arrays that the reader has filled.

    A device with memory of its own overrides it. All but `starved` and `waited` is called on the pipeline's thread.
    """

    def __init__(self, data: Samples) -> None:
        self.data = data

    def attach(self) -> None:
        """The thread begins."""

    def slot(self, batch: int) -> Slot:
        """A new slot; its `release` is set by the ring. Raises DeviceError where there is no memory for it."""
        return Slot(arrays_for(self.data, batch), lambda: None)

    def renew(self, slot: Slot) -> None:
        """Returns once a slot that was released may be filled again."""

    def deliver(self, slot: Slot) -> None:
        """A slot is filled and goes to its learner."""

    def starved(self) -> bool:
        """Whether learners do nothing while a slot is waited for."""
        return True

    def waited(self, seconds: float) -> float:
        """Seconds that learners waited when their threads waited `seconds`."""
        return seconds

    def close(self) -> None:
        """Learners are done with all slots."""
