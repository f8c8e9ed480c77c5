"""Arrays in .npy and .npz files, read a row at a time, so that they may be larger than memory; never a pickle."""

import math
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from mpibow.data import Array, DType, Shape
from mpibow.data.aside import FAULTS, refused
from mpibow.errors import RecordError
from mpibow.system import open_file

HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@dataclass(frozen=True)
class StoredArray:
    """An array in a file, as its header describes it; `key` is its name in an .npz file, '' for an .npy file."""

    path: Path
    key: str
    shape: Shape
    dtype: DType
    start: int  # byte of the file at which the values begin
    fortran: bool

    def __str__(self) -> str:
        return f"{self.path}: {self.key}" if self.key else str(self.path)

    def rows(self) -> Iterator[Array]:
        """The array's rows, each of shape[1:], read on demand."""
        if self.fortran:  # a row is strewn over all of the file
            with _reading(str(self)):
                yield from np.memmap(self.path, self.dtype, "r", self.start, self.shape, "F")
            return
        names = (f"row {row} of {self.shape[0]}" for row in range(self.shape[0]))
        for data in self._pieces(math.prod(self.shape[1:]), names):
            yield data.reshape(self.shape[1:])

    def whole(self) -> Array:
        """The whole array, in memory."""
        (data,) = self._pieces(math.prod(self.shape), ["its values"])
        return data.reshape(self.shape, order="F" if self.fortran else "C")

    def _pieces(self, count: int, names: Iterable[str]) -> Iterator[Array]:
        """All values, `count` at once."""
        with _opened(self.path, self.key) as file:
            _read(file, self.start, "its header")  # not seek: that gives up the checksum in an .npz file
            for name in names:
                yield np.frombuffer(_read(file, count * self.dtype.itemsize, name), self.dtype)
            if file.read(1):  # also compares the checksum of one in an .npz file
                raise ValueError("it goes on after its last value")


def stored(path: Path, key: str = "") -> StoredArray:
    """The array in an .npy file, or the one of this name in an .npz file.

    Raises RecordError where it is missing, where the file is none of NumPy's, and where it holds Python objects.
    """
    if key and key not in keys(path):
        raise RecordError(f"{path}: has no array {key!r}, it has {', '.join(keys(path)) or 'none'}")
    with _opened(path, key) as file:
        version = np.lib.format.read_magic(file)
        if version not in HEADERS:  # 3.0 is for names of fields
            raise ValueError(f"version {version[0]}.{version[1]} of the format is not read here")
        shape, fortran, dtype = HEADERS[version](file)
        result = StoredArray(path, key, shape, dtype, file.tell(), fortran and len(shape) > 1)
        said = dtype.itemsize * math.prod(shape)
        found = _size(path, key) - result.start
        if not dtype.hasobject and (said != found or any(side < 0 for side in shape)):
            raise ValueError(f"it has {found:,} bytes of values, its header has {said:,}")
    if dtype.hasobject or not shape:
        what = "Python objects, which are never read" if dtype.hasobject else "a single value"
        raise RecordError(f"{result}: holds {what}; save an array of numbers")
    if key and result.fortran:
        raise RecordError(f"{result}: is in Fortran's order; save it as np.ascontiguousarray(...), or as .npy")
    return result


def _size(path: Path, key: str) -> int:
    if not key:
        return path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        return archive.getinfo(f"{key}.npy").file_size


def keys(path: Path) -> list[str]:
    """The names of the arrays in an .npz file."""
    with _reading(str(path)), open_file(path) as raw, zipfile.ZipFile(raw) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def _read(file: IO[bytes], size: int, what: str) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise EOFError(f"it ends within {what}")
    return data


@contextmanager
def _opened(path: Path, key: str) -> Iterator[IO[bytes]]:
    with _reading(f"{path}: {key}" if key else str(path)), open_file(path) as raw:
        if not key:
            yield raw
            return
        with zipfile.ZipFile(raw) as archive, archive.open(f"{key}.npy") as file:
            yield file


@contextmanager
def _reading(shown: str) -> Iterator[None]:
    try:
        with refused(shown, "read"):
            yield
    except FAULTS as error:
        what = str(error).lower() or type(error).__name__
        raise RecordError(f"{shown}: is not a complete NumPy file: {what}; get the file again") from error
