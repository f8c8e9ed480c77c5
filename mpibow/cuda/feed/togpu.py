"""The path of a slot to a learner on a GPU: by a copy of what the host has read, and a fill of the rest there."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from mpibow.cuda.device.cupy_driver import Stream
from mpibow.cuda.feed.feeder import DeviceSlot, Feeder, pack
from mpibow.data.dataset import Samples
from mpibow.data.slots import Feed, Slot, specs_of

Fill = Callable[[Stream], None]  # enqueues the launches that fill the rest of a slot


@dataclass
class GpuSlot(Slot):
    """A slot whose copy on the device, device.arrays, is what a learner reads.

    It does so in three steps that only enqueue: `await_on` its stream, its reads, and `release_after` its stream, which
    takes the place of `release`. One copy of device.block fills a plan's inputs in the layout of device.packing.
    `arrays` are the reader's, which are sent to the device.
    """

    device: DeviceSlot = field(kw_only=True)

    def await_on(self, stream: Stream) -> None:
        """Makes all work enqueued on `stream` from now on wait for the filled slot."""
        self.device.await_on(stream, 1 / self.beside)

    def release_after(self, stream: Stream) -> None:
        """Gives the slot back: only work enqueued on `stream` so far reads it."""
        self.device.release(stream)
        self.release()


class ToGpu(Feed):
    """Readers fill page-locked arrays, of `sent`, which are copied to the device; `filling` returns a fill of the rest.

    Arrays that are neither sent nor filled are the reader's to fill, on the feeder's stream, once the slot is open.
    """

    def __init__(
        self, data: Samples, feeder: Feeder, sent: Collection[str] | None = None,
        filling: Callable[[DeviceSlot], Fill] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(data)
        self._feeder, self._filling = feeder, filling
        self.sent = (*specs_of(data, 1),) if sent is None else sent
        self._fills: dict[int, Fill] = {}  # by slot

    def attach(self) -> None:
        self._feeder.attach()

    def slot(self, batch: int) -> GpuSlot:
        device = self._feeder.slot(pack(specs_of(self.data, batch), self.sent))
        if self._filling is not None:
            self._fills[id(device)] = self._filling(device)
        return GpuSlot(device.host, lambda: None, device=device)

    def renew(self, slot: Any) -> None:
        slot.device.renew()

    def deliver(self, slot: Any) -> None:
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
