"""The path of slots to learners on a GPU: what the host has read is copied, and the rest is filled there."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from mpibow.cuda.device.cupy_driver import Stream
from mpibow.data import COUNTER, Feed, NamedSamples, Samples, Slot, Weighed, inputs_of, row_bytes, specs_of
from mpibow.data.dali import Dali
from mpibow.data.damage import Intact
from mpibow.data.decoded import Decoded
from mpibow.data.loading import Loading, ReadAheadMemory
from mpibow.data.readers import Reader

from .decoder import OnDevice
from .deviceset import Bind, DeviceSet
from .feeder import DeviceSlot, Feeder, Fill, Packing, pack


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
        self,
        data: Samples,
        feeder: Feeder,
        sent: Collection[str] | None = None,
        filling: Callable[[DeviceSlot], Fill] | None = None,
    ):
        super().__init__(data)
        self._feeder, self._filling = feeder, filling
        self.sent = (*specs_of(data, 1),) if sent is None else sent
        self._fills = dict[int, Fill]()  # by slot

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

    def waited(self, seconds: float) -> float:
        return self._feeder.waited()

    def close(self) -> None:
        self._feeder.close()


def sent_of(loading: Loading) -> tuple[str, ...]:
    """The arrays of a slot that the host sends."""
    if not loading.choice.on_device:
        return (*specs_of(loading.train, 1),)
    return (COUNTER,) if loading.choice.kind == "resident" else ("label", COUNTER)


def packing_of(loading: Loading) -> Packing:
    """The layout of a slot, and the part of it that the host sends."""
    return pack(specs_of(loading.train, loading.batch), sent_of(loading))


def held_by(loading: Loading) -> ReadAheadMemory:
    """As Loading.held, on the GPU; with the page-locked memory beside it."""
    packing, choice = packing_of(loading), loading.choice
    row = sum(row_bytes(inputs_of(loading.train)).values()) * (choice.on_device and choice.kind == "resident")
    sizes = (loading.ahead + 2) * packing.size, (loading.ahead + 1) * packing.sent, loading.train.count * row
    return ReadAheadMemory(*sizes)


def open_source(loading: Loading, feeder: Feeder, bind: Bind) -> tuple[Reader, Feed]:
    """As Loading.open; `bind` turns launches into a function that enqueues them.

    Raises DeviceError where the GPU has no memory for resident data.
    """
    data = loading.train
    damages = loading.damages["train"]
    threads = loading.threads
    sent = sent_of(loading)
    if not loading.choice.on_device:
        return loading.open()[0], ToGpu(data, feeder, sent)
    if isinstance(data, Decoded):
        decoder = OnDevice(data.windows, data.image.size, feeder)
        reader = Dali(data.records, threads=threads, decoder=decoder, device=feeder.index, damaged=damages.replaced)
        return reader, ToGpu(data, feeder, sent)
    intact = data if isinstance(data, NamedSamples | Weighed) else Intact(data, damages)
    return Reader(), ToGpu(data, feeder, sent, DeviceSet(intact, threads, feeder, bind).filling)
