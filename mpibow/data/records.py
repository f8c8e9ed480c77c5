"""The record file: one shard of a data set, written once, then read through a memory map.

Little-endian, no padding; u32, u64 and i32 are integers of that many bits. N records, E = 64 + all images' bytes.

    byte        size   field
    0           8      magic 89 4d 50 52 0d 0a 1a 0a ("\\x89MPR\\r\\n\\x1a\\n")
    8           u32    version, 1
    12          3 u32  shape of every raw image: channels, height, width; 0 0 0 where images are encoded
    24          8      encoding in ASCII, padded with NUL: raw, jpeg, png
    32          8      dtype of the (decoded) images, likewise: uint8, float32
    40          u64    N, at least 1
    48          u64    E, the byte at which the index starts
    56          u32    CRC32C of the index
    60          u32    CRC32C of bytes 0 to 59; it so stands for the whole file, and the manifest repeats it
    64          E-64   the images, one after the other, none empty; a raw one is its array in C order
    E           16 N   the index, a row a record: u64 byte at which its image starts, u32 CRC32C of its bytes, i32 label
    E + 16 N           the end

An image ends where the next one starts, the last one at E, so that the index tiles the file. Header and index are
checked when the file is opened, an image whenever it is read: a bit may flip at any time, and its checksum takes
a quarter of the time that reading it takes anyway.

A file is replaced, never written into: one that is cut short while it is mapped ends its readers (SIGBUS).
"""

import errno
import math
import mmap
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from google_crc32c import value as crc32c

from mpibow.errors import RecordError
from mpibow.system import open_file, reason

from .aside import file_aside, refused
from .dataset import Array, DType, Shape

MAGIC = b"\x89MPR\r\n\x1a\n"
VERSION = 1
HEADER = struct.Struct("<8sI3I8s8sQQII")
INDEX = np.dtype([("start", "<u8"), ("checksum", "<u4"), ("label", "<i4")])
ENCODINGS = ("raw", "jpeg", "png")
DTYPES: dict[str, DType] = {"uint8": np.dtype("u1"), "float32": np.dtype("<f4")}
AGAIN = "copy the file or convert the data again"


@dataclass(frozen=True)
class RecordForm:
    """The kind of images in a file: raw ones of one dtype and shape (c, h, w), or encoded ones, whose shape is ()."""

    encoding: str
    dtype: str = "uint8"
    shape: Shape = ()

    @classmethod
    def of(cls, image: Array | bytes, encoding: str, dtype: str = "uint8") -> "RecordForm":
        """An array's own form, or that of bytes in `encoding`."""
        if isinstance(image, np.ndarray):
            return cls("raw", image.dtype.name, image.shape)
        return cls(encoding, dtype)

    @property
    def size(self) -> int:
        """Bytes of one raw image."""
        return DTYPES[self.dtype].itemsize * math.prod(self.shape)

    def fault(self) -> str | None:
        """The rule that it breaks, if any."""
        if self.encoding not in ENCODINGS:
            return f"encoding must be one of {', '.join(ENCODINGS)}, got {self.encoding!r}"
        if self.dtype not in DTYPES:
            return f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}"
        if self.encoding != "raw" and self.shape:
            return f"{self.encoding} images have no common shape, got {self.shape}"
        if self.encoding == "raw" and (len(self.shape) != 3 or not all(0 < side < 2**32 for side in self.shape)):
            return f"raw images have a shape (channels, height, width), got {self.shape}"
        return None

    def __str__(self) -> str:
        return f"{self.encoding} {self.dtype} {self.shape}" if self.shape else self.encoding


class RecordFile:
    """A record file, open for reading, by any number of threads. Raises RecordError where it is damaged.

    Opening it reads header and index, and leaves the map untouched: of a thousand open shards no page is held.
    """

    def __init__(self, path: Path):
        self.path = path
        with _readable(path), open_file(path) as file:
            memory = _map(file)
            self._opened = os.fstat(file.fileno())
            self.size = len(memory)
            self._take_header(file.read(HEADER.size))
            file.seek(self.end)
            self._check_index(file.read(self.count * INDEX.itemsize))
        self._index: Array = np.frombuffer(memory, INDEX, self.count, self.end)
        self._bytes: Array = np.frombuffer(memory, np.uint8)
        self._images: Array | None = None  # (count, c, h, w) where raw
        if self.form.encoding == "raw":
            shape = self.count, *self.form.shape
            self._images = np.ndarray(shape, DTYPES[self.form.dtype], memory, HEADER.size)

    def check_size(self) -> None:
        """Raises RecordError where someone has cut the file short: reading a page that is gone kills the process.

        Called before every batch, this leaves only the time of one batch for a bus error without a name. A file that
        was replaced or removed stays as it was opened.
        """
        try:
            now = self.path.stat()
        except OSError:
            return
        if os.path.samestat(now, self._opened) and now.st_size < self.size:
            raise self._damage(f"was cut short while it was read: it has {now.st_size:,} bytes, had {self.size:,}")

    @property
    def labels(self) -> Array:
        """(count,) int32, a view of the file."""
        return self._index["label"]

    def stored(self, record: int) -> tuple[Array, int]:
        """Image and label of record 0 <= `record` < count: a view of the file, (c, h, w) or bytes (n,) uint8, and int.

        Raises RecordError where the bytes are not those that were written.
        """
        start, said, label = self._index.item(record)
        if self._images is not None:
            image: Array = self._images[record]
        else:
            stop = self._index.item(record + 1)[0] if record + 1 < self.count else self.end
            image = self._bytes[start:stop]
        found = crc32c(image)
        if found != said:
            raise self._damage(f"record {record}: checksum is 0x{found:08x}, the index has 0x{said:08x}")
        return image, label

    def _take_header(self, header: bytes) -> None:
        if len(header) < HEADER.size:
            raise self._damage(f"is {self.size} bytes long, a record file has at least {HEADER.size}")
        magic, version, *shape, encoding, dtype, count, end, index_sum, header_sum = HEADER.unpack(header)
        if magic != MAGIC:
            raise self._damage(f"is not a record file: it starts with {magic!r}, not with {MAGIC!r}")
        if version != VERSION:
            raise self._damage(f"has version {version}, this mpibow reads version {VERSION}")
        found = crc32c(header[:-4])
        if found != header_sum:
            raise self._damage(f"the header's checksum is 0x{found:08x}, the header has 0x{header_sum:08x}")
        self.checksum: int = header_sum
        self.count: int = count
        self.form = RecordForm(_text(encoding), _text(dtype), tuple(shape) if any(shape) else ())
        self.end = end
        self._index_sum = index_sum
        if fault := self.form.fault():
            raise self._damage(fault)
        if count < 1 or end < HEADER.size or end + count * INDEX.itemsize != self.size:
            raise self._damage(
                f"is {self.size} bytes long, but its header has {count} records and an index at byte {end}"
            )
        if self.form.encoding == "raw" and count * self.form.size != end - HEADER.size:
            raise self._damage(f"has {end - HEADER.size} bytes of images, not {count} times {self.form.size}")

    def _check_index(self, data: bytes) -> None:
        found = crc32c(data)
        if found != self._index_sum:
            raise self._damage(f"the index's checksum is 0x{found:08x}, the header has 0x{self._index_sum:08x}")
        index = np.frombuffer(data, INDEX)
        starts = index["start"]
        labels = index["label"]
        self.label_range = int(labels.min()), int(labels.max())
        if self.form.encoding == "raw":
            right = starts == np.arange(HEADER.size, self.end, self.form.size)
        else:
            right = np.append(starts[:-1] < starts[1:], starts[-1] < self.end)
            right[0] &= starts[0] == HEADER.size
        if not right.all():
            record = int(np.argmin(right))
            raise self._damage(
                f"record {record}: starts at byte {starts[record]}, where the index leaves a gap or overlap"
            )

    def _damage(self, what: str) -> RecordError:
        return RecordError(f"{self.path}: {what}; {AGAIN}")


class RecordWriter:
    """Adds records to a file; `write_file` makes one."""

    def __init__(self, path: Path, file: BinaryIO, form: RecordForm, classes: int):
        if fault := form.fault():
            raise RecordError(f"{path}: {fault}")
        self.path = path
        self.form = form
        self.classes = min(classes, 2**31)  # labels are i32
        self.size = 0  # bytes so far
        self.checksum = 0  # the header's, once finished
        self._file = file
        self._dtype = DTYPES[form.dtype]
        self._index = list[tuple[int, int, int]]()
        self._write(bytes(HEADER.size))  # its place; the file begins with zeros until it is finished

    @property
    def count(self) -> int:
        return len(self._index)

    def add(self, image: Array | bytes, label: int) -> None:
        """One record: an array of the form's dtype and shape, or bytes in its encoding."""
        if not self._fits(image):
            raise self._unfit(
                f"is {RecordForm.of(image, self.form.encoding, self.form.dtype)}, the file holds {self.form}"
            )
        if not 0 <= label < self.classes:
            raise self._unfit(f"a label lies in [0, {self.classes}), got {label}")
        if isinstance(image, np.ndarray) and image.dtype.kind == "f" and not np.isfinite(image).all():
            raise self._unfit("has values that are not finite")
        data = image if isinstance(image, bytes) else image.astype(self._dtype, copy=False).tobytes()
        if not data:
            raise self._unfit("is empty, an image has at least one byte")
        self._index.append((self.size, crc32c(data), label))
        self._write(data)

    def _fits(self, image: Array | bytes) -> bool:
        """Whether its form is the file's: the answer of `RecordForm.of`, in a tenth of the time."""
        if isinstance(image, np.ndarray):
            alike = image.dtype == self._dtype or image.dtype.name == self.form.dtype  # in any order of bytes
            return self.form.encoding == "raw" and image.shape == self.form.shape and alike
        return self.form.encoding != "raw"

    def finish(self) -> None:
        """Writes the index, then the header."""
        if not self._index:
            raise RecordError(f"{self.path}: has no records, a file holds at least one")
        end = self.size
        index = np.array(self._index, INDEX).tobytes()
        self._write(index)
        texts = self.form.encoding.encode(), self.form.dtype.encode()
        shape = self.form.shape or (0, 0, 0)
        header = HEADER.pack(MAGIC, VERSION, *shape, *texts, self.count, end, crc32c(index), 0)[:-4]
        self.checksum = crc32c(header)
        with refused(self.path):
            self._file.seek(0)
            self._file.write(header + struct.pack("<I", self.checksum))

    def _unfit(self, what: str) -> RecordError:
        return RecordError(f"{self.path}: record {self.count}: {what}")

    def _write(self, data: bytes) -> None:
        with refused(self.path):
            self._file.write(data)
        self.size += len(data)


@contextmanager
def write_file(
    path: Path, form: RecordForm, *, classes: int = 2**31, shown: Path | None = None
) -> Iterator[RecordWriter]:
    """A writer of the record file `path`, which is there, whole, when the block ends without an error.

    Errors name it `shown`, for a file whose folder is still to be renamed.
    """
    with file_aside(path) as file:
        writer = RecordWriter(shown or path, file, form, classes)
        yield writer
        writer.finish()


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"{path}: cannot be read: {reason(error)}"
        if error.errno == errno.EMFILE:
            what += "; raise the limit (ulimit -n), or use Python 3.13, where an open shard needs no descriptor"
        raise RecordError(what) from error


def _map(file: BinaryIO) -> mmap.mmap | bytes:
    if os.fstat(file.fileno()).st_size == 0:
        return b""  # which cannot be mapped
    if sys.version_info >= (3, 13):
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, trackfd=False)
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # keeps a file descriptor, see recordset


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode("ascii", "replace")
