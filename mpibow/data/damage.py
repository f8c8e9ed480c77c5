"""The treatment of damaged samples: the first ends the run, or another is read in its place."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from mpibow.errors import DamagedRecord, MpibowError, RecordError

from .dataset import Array, Dataset, Derived
from .photo import why
from .recordset import RecordSet

NAMED = 5  # damaged samples, where there are too many to go on


def undecodable(data: RecordSet, sample: int, reason: str) -> DamagedRecord:
    """The damage of an image whose bytes are those that were written."""
    remedy = "convert the data again, or set data.on_corrupt=skip"
    return DamagedRecord(f"{data.where(sample)}: cannot be decoded: {reason}; {remedy}", sample)


@contextmanager
def decoding(data: RecordSet, sample: int) -> Iterator[None]:
    """Raises DamagedRecord in place of any error of a decoder: its bytes are no image."""
    try:
        yield
    except (MpibowError, MemoryError):
        raise
    except Exception as error:
        raise undecodable(data, sample, why(error)) from error


class Damages:
    """The damaged samples of one data set, met by any number of threads; more than `limit` of them are an error.

    A damaged sample is replaced by the next intact one by number, the first following the last. The choice depends
    on the data alone, so every rank, epoch and resumed run reads the same. `number` returns the number of a sample in
    messages, which differs where these are a part of a data set.
    """

    def __init__(self, data: str, count: int, limit: int, number: Callable[[int], int] = int):
        self._data = data
        self._count = count
        self._limit = limit
        self._number = number
        self._lock = threading.Lock()
        self._found = dict[int, str]()

    def replaced(self, error: DamagedRecord) -> int:
        """The number to read instead. Raises `error` where no damage is allowed, RecordError where this is too much."""
        if self._limit == 0:
            raise error
        with self._lock:
            self._found.setdefault(error.sample, str(error))
            if len(self._found) <= self._limit and len(self._found) < self._count:
                return (error.sample + 1) % self._count
            samples = ", ".join(str(self._number(sample)) for sample in sorted(self._found)[:NAMED])
        raise RecordError(
            f"data.corrupt_limit: {len(self._found)} of {self._count} samples of {self._data} are damaged, at most "
            f"{min(self._limit, self._count - 1)} are skipped: {samples}{', ...' * (len(self._found) > NAMED)}; "
            f"the last found: {error}"
        )

    def found(self) -> dict[str, str]:
        """The damage of every damaged sample found so far, by data set and number."""
        with self._lock:
            return {f"{self._data} {self._number(sample)}": text for sample, text in self._found.items()}


class Intact(Derived):
    """A data set whose damaged samples are replaced."""

    def __init__(self, data: Dataset, damages: Damages):
        super().__init__(data)
        self._damages = damages

    def read(self, samples: Array, images: Array, labels: Array, *more: Array) -> None:
        """The data set's own `read`; `more` are its further arrays (n, ...)."""
        try:
            return self.data.read(samples, images, labels, *more)
        except DamagedRecord as error:
            self._damages.replaced(error)  # which may raise it
        for row in range(len(samples)):
            number = samples[row : row + 1]
            while True:
                try:
                    self.data.read(number, *(each[row : row + 1] for each in (images, labels, *more)))
                    break
                except DamagedRecord as error:
                    number = np.array([self._damages.replaced(error)])
