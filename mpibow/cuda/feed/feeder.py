"""How a GPU is fed: slots in page-locked and in device memory, filled on a stream of their own, in order by events."""

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mpibow.cuda.device.array import PlanArray
from mpibow.cuda.device.cupy_driver import Driver, Event, Stream
from mpibow.cuda.device.machine import DeviceMemory
from mpibow.graph import Array
from mpibow.system import aligned

Fill = Callable[[Stream], None]  # enqueues the launches that fill the rest of a slot
Specs = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]  # name: shape and dtype
URGENT = -1  # priority of the feeding stream: its work is short, and learners may wait for it
AT_ONCE = 4  # slots of one block of memory
REMEDY = "set prefetch lower, or a smaller batch_size"


@dataclass(frozen=True)
class Packing:
    """The offsets of a slot's arrays in its block, in bytes; the host sends the first `sent` bytes."""

    specs: Specs
    begins: Mapping[str, int]
    sent: int
    size: int

    def views(self, block: PlanArray, names: Collection[str] | None = None) -> dict[str, PlanArray]:
        """The arrays by name, those of `names` if given, in a block (size,) of bytes."""
        found = {}
        for name in self.begins if names is None else names:
            shape, dtype = self.specs[name]
            size = math.prod(shape) * dtype.itemsize
            found[name] = block[self.begins[name] : self.begins[name] + size].view(dtype).reshape(shape)
        return found


def pack(specs: Specs, sent: Collection[str]) -> Packing:
    """The arrays `specs` in a row, aligned; those that are `sent` come first, so that one copy takes them all."""
    assert set(sent) <= set(specs), (sent, list(specs))
    begins = {}
    size = 0
    border = 0
    for name in sorted(specs, key=lambda name: name not in sent):  # stable
        shape, dtype = specs[name]
        begins[name] = size
        size += aligned(math.prod(shape) * dtype.itemsize)
        border = size if name in sent else border
    return Packing(specs, begins, border, size)


class DeviceSlot:
    """One batch on the device: `arrays` by name, views of `block` (bytes,); `host`: the arrays sent, page-locked.

    Feeder lists its steps in order, each with its thread.
    """

    def __init__(self, feeder: "Feeder", packing: Packing, block: PlanArray, locked: npt.NDArray[np.uint8]):
        self._feeder, self._locked = feeder, locked
        self.packing, self.block, self.arrays = packing, block, packing.views(block)
        names = [name for name, begin in packing.begins.items() if begin < packing.sent]
        self.host: dict[str, Array] = packing.views(locked, names)
        self.ready: Event | None = None
        self._released: Event | None = None

    # On the reading thread

    def renew(self) -> None:
        """Returns when the page-locked arrays may be written: the copy of their last contents is over."""
        if self.ready is not None:
            self.ready.synchronise()

    def open(self) -> None:
        """Work enqueued on the feeding stream from now on may write to the device's arrays. Any number of times."""
        if self._released is not None:
            self._feeder.stream.wait(self._released)
            self._released = None

    def send(self) -> None:
        """Enqueues the copy of the page-locked arrays."""
        self.open()
        sent = self.packing.sent
        self._feeder.driver.copy(self.block[:sent], self._locked[:sent], self._feeder.stream)

    def seal(self) -> None:
        """All that fills the slot is enqueued."""
        self.ready = self._feeder.stream.record(timed=True)

    # On the learner's thread

    def await_on(self, stream: Stream, share: float = 1.0) -> None:
        """Work enqueued on `stream` from now on may read the device's arrays. The host does not wait.

        `share` is the learner's weight in the mean of the rank's waiting times.
        """
        assert self.ready is not None, "a slot that was never filled"
        self._feeder.waits(stream, self.ready, share)

    def release(self, stream: Stream) -> None:
        """All reads of the slot are enqueued on `stream`. The host does not wait."""
        self._released = stream.record()


class Feeder:
    """The slots of one rank on GPU number `index`, and the stream on which they are filled.

    Every batch takes these steps. R is the reading thread, which runs ahead; L a learner's, which never waits on the
    host: events put the work on the device in order.

        R  renew      the host waits until the slot's last copy is over, so that its page-locked arrays may be written
        R             the reader writes them
        R  open       the feeding stream waits for `released`: the learner before has read the slot
        R  send       the feeding stream copies what is page-locked, in one piece
        R             what else fills the slot is enqueued on the feeding stream: a gather, copies within the device
        R  seal       `ready` is recorded on the feeding stream, and the slot handed to its learner
        L  await_on   the learner's stream waits for `ready`
        L             what reads the slot is enqueued there: the copy to the plan's inputs
        L  release    `released` is recorded on the learner's stream, and the slot handed back

    A learner that reads the slot only to copy it gives it back early, and the ring turns while it computes. How far L
    runs ahead of the device is bounded by the ring: R does not hand out a slot before it was renewed.

    Events carry times, and `waited` is the time that learners' streams waited for their slots.
    """

    def __init__(self, driver: Driver, index: int, memory: DeviceMemory):
        self.driver, self.index, self.memory = driver, index, memory
        self.stream = driver.stream(URGENT)
        self._spare = list[DeviceSlot]()
        self._made = 0
        self._blocks = list[str]()
        self._pending = deque[tuple[Event, Event, float]]()  # asked, ready, share; in order
        self._waited = 0.0

    def attach(self) -> None:
        """To be called on a thread before it does anything here: the device in use is each thread's own."""
        self.driver.use(self.index)

    def block(self, name: str, size: int, remedy: str) -> PlanArray:
        """As DeviceMemory's, until the feeder is closed."""
        found = self.memory.block(name, size, remedy)
        self._blocks.append(name)
        return found

    def slot(self, packing: Packing) -> DeviceSlot:
        """A slot that nobody had before; all are packed alike. Raises DeviceError where memory does not suffice."""
        spare = self._spare
        if not spare:
            name = f"slots {self._made} to {self._made + AT_ONCE - 1}"
            blocks = self.block(name, AT_ONCE * packing.size, REMEDY).reshape(AT_ONCE, packing.size)
            self._made += AT_ONCE
            locked = self.memory.pinned(name, AT_ONCE * packing.sent).reshape(AT_ONCE, packing.sent)
            spare.extend(DeviceSlot(self, packing, blocks[i], locked[i]) for i in reversed(range(AT_ONCE)))
        return spare.pop()

    def waits(self, stream: Stream, ready: Event, share: float) -> None:
        """`stream` waits for the event `ready`."""
        self._pending.append((stream.record(timed=True), ready, share))
        stream.wait(ready)

    def waited(self) -> float:
        """Seconds that learners' streams waited for slots, as far as they are over; the mean over the learners."""
        while self._pending and self._pending[0][0].done and self._pending[0][1].done:
            asked, ready, share = self._pending.popleft()
            self._waited += share * max(0.0, self.stream.milliseconds(asked, ready)) / 1000
        return self._waited

    def close(self) -> None:
        """Waits for what is being copied, and gives the memory back. Learners must be done on the device, too."""
        self.stream.synchronise()
        for name in self._blocks:
            self.memory.release(name)
        self._blocks.clear()
        self._spare.clear()
