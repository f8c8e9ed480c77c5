"""The path of a slot from its reader to its learner: in place on a host, or by a copy to a GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from mpibow.cuda.device.driver import Stream
from mpibow.cuda.feed.feeder import DeviceSlot, Feeder, pack
from mpibow.data.dataset import COUNTER, Samples
from mpibow.data.slots import Slot, arrays_for, specs_of

Fill = Callable[[Stream], None]  # enqueues the launches that fill the rest of a slot


class Feed(Protocol):
    """A pipeline's treatment of its slots; all but `starved` and `waited` is called on its thread."""

    def attach(self) -> None:
        """The thread begins."""
        ...

    def slot(self, batch: int) -> Slot:
        """A new slot; its `release` is set by the ring. Raises DeviceError where there is no memory for it."""
        ...

    def renew(self, slot: Slot) -> None:
        """Returns once a slot that was released may be filled again."""
        ...

    def deliver(self, slot: Slot) -> None:
        """A slot is filled and goes to its learner."""
        ...

    def starved(self) -> bool:
        """Whether learners do nothing while a slot is waited for."""
        ...

    def waited(self, seconds: float) -> float:
        """Seconds that learners waited when their threads waited `seconds`."""
        ...

    def close(self) -> None:
        """Learners are done with all slots."""
        ...


class AtOnce:
    """Learners read the arrays that the reader has filled."""

    def __init__(self, data: Samples) -> None:
        self._data = data

    def attach(self) -> None:
        pass

    def slot(self, batch: int) -> Slot:
        return Slot(arrays_for(self._data, batch), lambda: None)

    def renew(self, slot: Slot) -> None:
        pass

    def deliver(self, slot: Slot) -> None:
        pass

    def starved(self) -> bool:
        return True

    def waited(self, seconds: float) -> float:
        return seconds

    def close(self) -> None:
        pass


class ToGpu:
    """Readers fill page-locked arrays, of `sent`, which are copied to the device; `filling` returns a fill of the rest.

    Arrays that are neither sent nor filled are the reader's to fill, on the feeder's stream, once the slot is open.
    """

    def __init__(
        self, data: Samples, feeder: Feeder, sent: Collection[str] | None = None,
        filling: Callable[[DeviceSlot], Fill] | None = None,
    ) -> None:  # fmt: skip
        self._data, self._feeder, self._filling = data, feeder, filling
        self.sent = (*specs_of(data, 1),) if sent is None else sent
        self._fills: dict[int, Fill] = {}  # by slot

    def attach(self) -> None:
        self._feeder.attach()

    def slot(self, batch: int) -> Slot:
        device = self._feeder.slot(pack(specs_of(self._data, batch), self.sent))
        if self._filling is not None:
            self._fills[id(device)] = self._filling(device)
        return Slot(device.host, lambda: None, on_device=device)

    def renew(self, slot: Slot) -> None:
        slot.device.renew()

    def deliver(self, slot: Slot) -> None:
        device = slot.device
        device.send()
        if self._filling is not None:
            self._fills[id(device)](self._feeder.stream)
        device.seal()

    def starved(self) -> bool:
        return self._feeder.starved()

    def waited(self, seconds: float) -> float:
        return self._feeder.waited() if self._feeder.timed else seconds

    def close(self) -> None:
        self._feeder.close()


ONLY_COUNTERS = (COUNTER,)
ALL_BUT_IMAGES = ("label", COUNTER)
