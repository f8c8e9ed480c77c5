"""Images where their source holds them: listed first, then read, changed and checked by several processes, in order.

A source of millions of images is listed in a few arrays; their bytes pass by in small lots.
"""

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from google_crc32c import value as crc32c

from mpibow.data import Array
from mpibow.data.aside import refused
from mpibow.errors import RecordError
from mpibow.system import open_file

from .conversion import Each, Part
from .labels import ranks, set_aside
from .recode import Recoded, evenly, moments_of

Taken = TypeVar("Taken")
LOT_COUNT, LOT_SIZE = 256, 4 << 20  # images and bytes that one task of a worker takes at the most
NAMED = 10  # files that a message names
SUM = "sha256 {} over a line an image: name, size and CRC32C of its source, with tabs between"


class Entry(NamedTuple):
    """An image's bytes [start, start + size) in `file`; `name` is its path below the folder `root`."""

    root: str
    name: str
    file: str
    start: int
    size: int
    label: int

    @property
    def where(self) -> str:
        return f"{self.root}/{self.name}"


@dataclass(frozen=True)
class ImageGroup:
    """Images that lie together: in a tar or TFRecord file, at `starts`, or in a folder, each a file of its own."""

    root: str
    title: str  # with the image's own name: its name
    file: str
    names: Sequence[object]
    starts: Array | None
    sizes: Array
    labels: Array

    def entry(self, number: int) -> Entry:
        name = self.names[number]
        file, start = (f"{self.file}/{name}", 0) if self.starts is None else (self.file, int(self.starts[number]))
        return Entry(self.root, f"{self.title}{name}", file, start, int(self.sizes[number]), int(self.labels[number]))


def group_of(path: Path, numbers: range, places: Sequence[tuple[int, int, int]]) -> ImageGroup:
    """The images of records, of these `numbers`, in a file; `places` are start, size and label of each."""
    starts, sizes, labels = np.array(places, np.int64).reshape(-1, 3).T
    return ImageGroup(
        str(path.parent), f"{path.name}: record ", str(path), numbers, starts, sizes, labels.astype(np.int32)
    )


class Entries:
    """All images of some groups, or those that `order` (n,) int64 chooses, in its order."""

    def __init__(self, groups: Iterable[ImageGroup], order: Array | None = None):
        self.groups = list(groups)
        self._firsts = [0, *accumulate(len(group.names) for group in self.groups)]
        self.order: Array = np.arange(self._firsts[-1]) if order is None else order

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Entry]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, number: int) -> Entry:
        place = int(self.order[number])
        group = bisect_right(self._firsts, place) - 1
        return self.groups[group].entry(place - self._firsts[group])

    def labels(self) -> Array:
        """(n,)"""
        return self._all([group.labels for group in self.groups])

    def sizes(self) -> Array:
        """(n,) bytes"""
        return self._all([group.sizes for group in self.groups])

    def take(self, chosen: Array) -> "Entries":
        """The entries at the positions `chosen` (m,), or where it is true (n,)."""
        return Entries(self.groups, self.order[chosen])

    def _all(self, arrays: list[Array]) -> Array:
        every = np.concatenate(arrays) if arrays else np.empty(0, np.int64)
        return every[self.order]


class RecordImage(NamedTuple):
    """An image as it goes into a record; `line` stands for its source in the checksum."""

    image: bytes | Array
    label: int
    line: str
    remark: str  # "" or, for a changed image, "name: its original kind"
    lying: bool  # by Exif's orientation


Take = Callable[[Entry], tuple[Taken, int]]  # the source's bytes and their CRC32C
Make = Callable[[Taken], Recoded[bytes] | Recoded[Array]]  # the image


def record_images(take: Take[Taken], make: Make[Taken], lot: Iterable[Entry]) -> list[RecordImage]:
    """The entries as they go into records."""
    images = []
    for entry in lot:
        data, checksum = take(entry)
        try:
            image, remark, lying = make(data)
        except RecordError as error:
            raise RecordError(f"{entry.where}: {error}") from error
        line = f"{entry.name}\t{entry.size}\t{checksum:08x}\n"
        images.append(RecordImage(image, entry.label, line, remark and f"{entry.name}: {remark}", lying))
    return images


def file_bytes(entry: Entry) -> tuple[bytes, int]:
    """An entry's bytes and their CRC32C. Raises RecordError where the file lacks them now."""
    with refused(entry.where, "read"), open_file(entry.file) as file:
        file.seek(entry.start)
        data = file.read(entry.size)
    if len(data) != entry.size:
        raise RecordError(f"{entry.where}: has {len(data)} bytes, had {entry.size}; did it change?")
    return data, crc32c(data)


def part_of(
    entries: Entries,
    take: Take[Taken],
    make: Make[Taken],
    each: Each,
    title: str,
    *,
    encoding: str,
    statistics: int,
    checksums: Mapping[str, str] | None = None,
) -> Part:
    """The part of these images, made by `each` while they are written.

    Mean and std of encoded images are those of `statistics` of them, evenly spaced. The manifest's sources are
    `checksums` or, where there are none, one checksum over all images, named `title`; and the images that had to be
    changed. They are complete when the last image has passed.
    """
    moments = None
    reader = partial(record_images, take, make)
    if encoding != "raw":
        chosen = entries.take(np.array(evenly(len(entries), statistics)))
        moments = moments_of(
            (made.image for lot in each(reader, lots(chosen)) for made in lot),
            each,
            total=len(chosen),
            name=lambda number: chosen[number].where,
        )
    sources = dict(checksums or {})
    samples = samples_of(each(reader, lots(entries)), title, f"{title}, {len(entries):,} images", SUM, sources)
    return Part(len(entries), samples, encoding, moments, sources)


def samples_of(
    lots: Iterable[list[RecordImage]], title: str, key: str, about: str, sources: dict[str, str]
) -> Iterator[tuple[bytes | Array, int]]:
    """In the sources' order: a sampler draws a new one every epoch, so shuffling here would only make reading slow.

    `sources` gets the checksum over all lines, as `about` describes it, unless it has some; and what was changed.
    """
    digest = hashlib.sha256()
    changed = {}
    turned = 0
    for lot in lots:
        for image, label, line, remark, lying in lot:
            turned += lying
            digest.update(line.encode("utf-8", "surrogateescape"))
            if remark:
                name, _, was = remark.rpartition(": ")
                changed[name] = f"crc32c {line.rpartition(chr(9))[2].strip()}, {was}, encoded again"
            yield image, label
    if not sources:
        sources[key] = about.format(digest.hexdigest())
    sources.update(changed)
    if changed:
        print(f"{len(changed):,} images of {title} were encoded again, the manifest names them")
    if turned:
        print(f"{title}: images turned upright by their Exif orientation: {turned:,}")


def lots(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Runs of entries, small enough that several a worker fit into memory."""
    lot = list[Entry]()
    size = 0
    for entry in entries:
        if lot and (len(lot) == LOT_COUNT or size + entry.size > LOT_SIZE):
            yield lot
            lot = []
            size = 0
        lot.append(entry)
        size += entry.size
    if lot:
        yield lot


def limited(entries: Entries, most: int) -> Entries:
    """The first `most` of every label."""
    labels = entries.labels()
    return entries.take(ranks(np.arange(len(labels)), labels) < most)


def split(entries: Entries, fraction: float, seed: int, source: object) -> dict[str, Entries]:
    """Train and test, as `labels.set_aside` chooses them by their names."""
    places = set_aside((entry.name for entry in entries), entries.labels(), fraction, seed, source)
    return {name: entries.take(chosen) for name, chosen in places.items()}


def refuse_empty_and_twice(entries: Entries) -> None:
    """Raises RecordError that names files without a byte, and names that come twice in one tar."""
    if empty := [entries[number].where for number in np.flatnonzero(entries.sizes() == 0).tolist()]:
        raise RecordError(f"{_listed(empty)}: empty, no image; remove or get again")
    twice = []
    for group in entries.groups:
        if len(set(group.names)) < len(group.names):
            names = (str(name) for name, count in Counter(group.names).items() if count > 1)
            twice += [f"{group.root}/{group.title}{name}" for name in names]
    if twice:
        raise RecordError(f"{_listed(twice)}: appears twice under one name; pack the tar again")


def _listed(names: list[str]) -> str:
    return "\n".join(names[:NAMED]) + (f"\nand {len(names) - NAMED:,} more" if len(names) > NAMED else "")
