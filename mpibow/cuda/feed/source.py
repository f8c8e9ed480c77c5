"""The source of slots for learners on a GPU: its reader, its feed, and the memory that both take."""

from __future__ import annotations

from mpibow.cuda.feed.decoder import OnDevice
from mpibow.cuda.feed.deviceset import Bind, DeviceSet
from mpibow.cuda.feed.feeder import Feeder, Packing, pack
from mpibow.cuda.feed.togpu import ToGpu
from mpibow.data.dali import Dali
from mpibow.data.damage import Intact
from mpibow.data.dataset import COUNTER, NamedSamples, inputs_of, row_bytes
from mpibow.data.decoded import Decoded
from mpibow.data.loading import Loading, ReadAheadMemory
from mpibow.data.readers import Reader
from mpibow.data.sample_weights import Weighed
from mpibow.data.slots import Feed, specs_of


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
    return ReadAheadMemory(
        (loading.ahead + 2) * packing.size, (loading.ahead + 1) * packing.sent, loading.train.count * row
    )


def open_source(loading: Loading, feeder: Feeder, bind: Bind) -> tuple[Reader, Feed]:
    """As Loading.open; `bind` turns launches into a function that enqueues them.

    Raises DeviceError where the GPU has no memory for resident data.
    """
    data, damages, threads, sent = loading.train, loading.damages["train"], loading.threads, sent_of(loading)
    if not loading.choice.on_device:
        return loading.open()[0], ToGpu(data, feeder, sent)
    if isinstance(data, Decoded):
        decoder = OnDevice(data.windows, data.image.size, feeder)
        reader = Dali(data.records, threads=threads, decoder=decoder, device=feeder.index, damaged=damages.replaced)
        return reader, ToGpu(data, feeder, sent)
    intact = data if isinstance(data, NamedSamples | Weighed) else Intact(data, damages)
    return Reader(), ToGpu(data, feeder, sent, DeviceSet(intact, threads, feeder, bind).filling)
