"""A whole data set in a GPU's memory: only the counters of a batch are sent, and a kernel gathers the rest."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest

import numpy as np

from mpibow.cuda.device.array import PlanArray, PlanArrays
from mpibow.cuda.device.cupy_driver import Event
from mpibow.cuda.kernels.kernels import Launch, Launches
from mpibow.cuda.kernels.layout import WORD, gather
from mpibow.data import COUNTER, NamedSamples, Samples, inputs_of, row_bytes

from .feeder import DeviceSlot, Feeder, Fill, pack

STAGE = 8 << 20
REMEDY = "set data.pipeline=host"

Bind = Callable[[Sequence[Launch]], Fill]  # makes a function that enqueues launches on a stream
Tables = PlanArrays  # by name: (count, bytes of a sample) uint8 on the device


class DeviceSet:
    """The arrays of `data`, read on `threads` threads, every checksum checked, in the feeder's memory.

    `stage` bytes are read, then copied while the next are read. Raises DeviceError where they do not fit there.
    """

    def __init__(self, data: Samples, threads: int, feeder: Feeder, bind: Bind, stage: int = STAGE):
        self._bind, count = bind, data.count
        sizes = row_bytes(inputs_of(data))
        names = {} if isinstance(data, NamedSamples) else PLURAL
        self.tables = {
            name: feeder.block(f"the {names.get(name, name)} of {data.name}", count * size, REMEDY).reshape(count, size)
            for name, size in sizes.items()
        }
        rows = max(1, min(stage // max(sizes.values()), count))
        stages = [_Stage(data, rows, feeder) for _ in range(2)]
        with ThreadPoolExecutor(threads, "load") as pool:
            for i, first in enumerate(range(0, count, rows)):
                stages[i % 2].load(slice(first, min(first + rows, count)), pool, threads, self.tables)
        feeder.stream.synchronise()
        self._prepare(feeder)

    def _prepare(self, feeder: Feeder) -> None:
        """Gathers one row, so that kernels are loaded now, and not while learners are captured on other threads."""
        specs = {name: ((1, table.shape[1]), np.dtype(np.uint8)) for name, table in self.tables.items()}
        packing = pack({COUNTER: ((1, 4), np.dtype(np.uint32)), **specs}, ())
        block = feeder.block("a row that tries the gather", packing.size, REMEDY)
        self._bind(gathers(self.tables, packing.views(block)))(feeder.stream)
        feeder.stream.synchronise()

    def filling(self, slot: DeviceSlot) -> Fill:
        """A function that fills the slot's arrays by its counters, which are sent."""
        return self._bind(gathers(self.tables, slot.arrays))


PLURAL = {"image": "images", "label": "labels"}


def gathers(tables: Tables, arrays: PlanArrays) -> Launches:
    """Launches that fill `arrays` (n, ...) from the tables, by the counters among them: a row and a word in each."""
    words = [name for name, table in tables.items() if table.shape[1] == WORD]
    rows = [name for name in tables if name not in words]
    launches = []
    for row, word in zip_longest(rows, words) if rows else zip_longest(words[::2], words[1::2]):
        row, word = (word, None) if row is None else (row, word)
        y = arrays[row].reshape(len(arrays[row]), -1).view(np.uint8)
        words_of, beside = (None if word is None else _words(each[word]) for each in (tables, arrays))
        launches.append(gather(tables[row], words_of, arrays[COUNTER], y, beside))
    return launches


def _words(array: PlanArray) -> PlanArray:
    """(n, ...) of 4 bytes a row as (n,) int32, whatever they are."""
    return array.reshape(-1).view(np.int32)


class _Stage:
    """Page-locked memory for samples on their way to the device."""

    def __init__(self, data: Samples, rows: int, feeder: Feeder):
        self._data, self._feeder = data, feeder
        packing = pack(
            {name: ((rows, *shape), np.dtype(dtype)) for name, (shape, dtype) in inputs_of(data).items()}, ()
        )
        self._arrays = packing.views(feeder.memory.pinned(f"reading {data.name}", packing.size))
        self._copied: Event | None = None

    def load(self, part: slice, pool: ThreadPoolExecutor, threads: int, tables: Tables) -> None:
        """Reads the samples of `part`, and enqueues their copies to the device's tables."""
        if self._copied is not None:
            self._copied.synchronise()
        n = part.stop - part.start
        share = -(-n // threads)

        def read(first: int) -> None:
            own = slice(first, min(first + share, n))
            numbers = np.arange(part.start + own.start, part.start + own.stop)
            self._data.read(numbers, *(array[own] for array in self._arrays.values()))

        for _ in pool.map(read, range(0, n, share)):
            pass
        driver, stream = self._feeder.driver, self._feeder.stream
        for name, array in self._arrays.items():
            driver.copy(tables[name][part], array[:n], stream)
        self._copied = stream.record()
