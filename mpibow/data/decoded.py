"""Encoded records as samples of one shape, and the reader that decodes them on threads."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from mpibow.data.damage import Damages
from mpibow.data.dataset import Array
from mpibow.data.photo import open_photo, take
from mpibow.data.recordset import RecordSet
from mpibow.data.settings import Image
from mpibow.data.slots import Slot
from mpibow.data.window import centre_windows, random_windows
from mpibow.errors import DamagedRecord

AGAIN = "convert the data again, or set data.on_corrupt=skip"


class Decoded:
    """The images of `records`, decoded and resized: a `Dataset` of samples (3, size, size) uint8.

    What `read` gives is what is evaluated, the centre of every image. Training takes a window of a random share of the
    image's area in `area` and of a random width / height in `aspect`; the centre as well where `area` is None.
    """

    dtype: np.dtype[np.uint8] = np.dtype(np.uint8)

    def __init__(
        self, records: RecordSet, image: Image, area: tuple[float, float] | None = None,
        aspect: tuple[float, float] = (3 / 4, 4 / 3),
    ) -> None:  # fmt: skip
        self.records, self.image, self.area, self.aspect = records, image, area, aspect
        self.name, self.count, self.classes = records.name, records.count, records.classes
        self.mean, self.std = records.mean, records.std
        self.shape = (3, image.size, image.size)

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        """Decodes samples (n,) int64 to evaluate with into images (n, 3, size, size) uint8 and labels (n,) int32.

        Raises DamagedRecord naming the one that cannot be read or decoded.
        """
        for row, sample in enumerate(samples.tolist()):
            labels[row] = self.decode(sample, images[row])

    def decode(self, sample: int, out: Array, counter: Array | None = None) -> int:
        """Decodes one sample into `out` (3, size, size) and gives its label; `counter` (4,) is there in training."""
        data = self.records.encoded(sample)
        try:
            photo = open_photo(data)
            sizes = np.array([[photo.height, photo.width]])
            windows = self.centre(sizes) if counter is None else self.windows(sizes, counter[None])
            take(photo, windows[0], out)
        except MemoryError:
            raise
        except Exception as error:  # whatever Pillow makes of bytes that are no image
            why = str(error).lower() or type(error).__name__
            raise DamagedRecord(f"{self.records.where(sample)}: cannot be decoded: {why}; {AGAIN}", sample) from error
        return self.records.label(sample)

    def centre(self, sizes: Array) -> Array:
        """The windows (n, 4) to evaluate in images of `sizes` (n, 2), height and width."""
        return centre_windows(sizes, self.image.shorter, self.image.size)

    def windows(self, sizes: Array, counter: Array) -> Array:
        """The windows (n, 4) to train on, by the random numbers of counter (n, 4)."""
        return self.centre(sizes) if self.area is None else random_windows(sizes, counter, self.area, self.aspect)


class Decode:
    """Decodes samples into slots on `threads` threads, which hold no lock while they do."""

    samples, depth = 32, 2  # one run is decoded while the one before it is delivered

    def __init__(self, data: Decoded, damages: Damages, threads: int) -> None:
        self._data, self._damages = data, damages
        self._pool = ThreadPoolExecutor(threads, "decode")
        self._runs: deque[list[Future[None]]] = deque()

    def begin(self, slots: list[Slot]) -> None:
        rows = [(slot, row) for slot in slots for row in range(len(slot.samples))]
        self._runs.append([self._pool.submit(self._fill, slot, row) for slot, row in rows])

    def end(self) -> None:
        for future in self._runs.popleft():
            future.result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _fill(self, slot: Slot, row: int) -> None:
        image, counter = slot.arrays["image"][row], slot.arrays["counter"][row]
        slot.arrays["label"][row] = self._damages.intact(
            int(slot.samples[row]), lambda sample: self._data.decode(sample, image, counter)
        )
