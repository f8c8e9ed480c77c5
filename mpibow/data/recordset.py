"""A data set of records: a folder of shards and one manifest, written as a whole and read by sample number."""

import os
import resource
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate, chain
from pathlib import Path

import numpy as np

from mpibow.errors import DamagedRecord, RecordError
from mpibow.system import StrPath

from .aside import file_aside, folder_aside
from .dataset import Array, DType, Measured, Moments
from .manifest import AGAIN, Manifest, Shard, load, save
from .moments import RunningMoments, channel_moments
from .records import DTYPES, RecordFile, RecordForm, write_file

SHARD_SIZE = 128 << 20  # bytes: few files, and each still quick to copy
OPEN = 1000  # shards of a set that are open at once: a process has 65,530 maps (vm.max_map_count) for all it does


class RecordSet(Measured):
    """An open data set of records, a `Dataset`; any number of threads may read it.

    `shape` is () where the images are encoded: they may differ, and `encoded` returns their bytes. `shard` opens one by
    number; open files stay readable when the data set is replaced. `rows` are the records of a part (`part`), None of
    the whole.
    """

    def __init__(self, folder: Path, manifest: Manifest, shard: Callable[[int], RecordFile], rows: Array | None = None):
        self.folder = folder
        self.manifest = manifest
        self.shard = shard
        self.rows = rows
        self.name = manifest.name
        self.count = manifest.count if rows is None else len(rows)
        self.shape = manifest.form.shape
        self.dtype: DType = DTYPES[manifest.form.dtype]
        self.classes = manifest.classes
        self._firsts = [0, *accumulate(shard.count for shard in manifest.shards)]

    def moments(self) -> Moments:
        """The manifest's, of all records. A part of raw images is read for its own."""
        if self.rows is None or not self.shape:
            return self.manifest.mean, self.manifest.std
        return channel_moments(self)

    def part(self, rows: Array) -> "RecordSet":
        """Samples `rows` (n,) int64 as a data set, of the same files."""
        return RecordSet(self.folder, self.manifest, self.shard, rows if self.rows is None else self.rows[rows])

    def number(self, sample: int) -> int:
        """The sample's number in the whole data set."""
        return sample if self.rows is None else int(self.rows[sample])

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        """Copies samples (n,) int64 into images (n, *shape) of `dtype` and labels (n,) int32; checks every checksum.

        Raises DamagedRecord, naming file and record number, for the first sample that is damaged; the arrays'
        contents are undefined then.
        """
        if (kind := self.manifest.form.encoding) != "raw":
            raise RecordError(f"{self.folder}: these records hold {kind} images, give them to data.decoded.Decoded")
        assert images.shape == (len(samples), *self.shape)
        assert images.dtype == self.dtype
        found = [self.find(sample) for sample in samples.tolist()]
        for shard in dict.fromkeys(shard for shard, _ in found):
            shard.check_size()
        for row, (shard, record) in enumerate(found):
            images[row], labels[row] = self._stored(shard, record, samples[row])

    def encoded(self, sample: int) -> Array:
        """The image's bytes (n,) uint8 as they are stored, a view of the file. Raises DamagedRecord as `read` does."""
        return self._checked(sample)[0].reshape(-1).view(np.uint8)

    def record(self, sample: int) -> tuple[bytes, int]:
        """A copy of the bytes that `encoded` returns, and the label."""
        image, label = self._checked(sample)
        return image.tobytes(), label

    def label(self, sample: int) -> int:
        """The sample's label; reads no image."""
        shard, record = self.find(sample)
        return int(shard.labels[record])

    def labels(self) -> Array:
        """All labels (count,) int32, in the order of the samples; reads no image."""
        shards = map(self.shard, range(len(self.manifest.shards)))
        labels = np.concatenate([shard.labels.astype(np.int32) for shard in shards])  # copies, so that no map stays
        return labels if self.rows is None else labels[self.rows]

    strata = labels  # for `data.split`

    def where(self, sample: int) -> str:
        """File and record number, as messages name them."""
        shard, record = self.find(sample)
        return f"{shard.path}: record {record}"

    def class_name(self, label: int) -> str:
        """Its name, or its number where classes have no names."""
        names = self.manifest.class_names
        return names[label] if names else str(label)

    def _checked(self, sample: int) -> tuple[Array, int]:
        shard, record = self.find(sample)
        shard.check_size()
        return self._stored(shard, record, sample)

    def _stored(self, shard: RecordFile, record: int, sample: int) -> tuple[Array, int]:
        try:
            return shard.stored(record)
        except RecordError as error:
            raise DamagedRecord(str(error), int(sample)) from error

    def find(self, sample: int) -> tuple[RecordFile, int]:
        if not 0 <= sample < self.count:
            raise RecordError(f"{self.folder}: samples lie in [0, {self.count}), got {sample}")
        record = self.number(sample)
        number = bisect_right(self._firsts, record) - 1
        return self.shard(number), record - self._firsts[number]


def open_records(directory: StrPath, most: int = OPEN) -> RecordSet:
    """The data set in `directory`. Raises RecordError where it is missing, not whole, or damaged in its structure.

    All shards are opened, and their structure is checked. Of more than `most`, each is when it is read, and the last
    `most` stay open.
    """
    folder = Path(directory)
    manifest = load(folder)
    shards = manifest.shards
    _allow_open_files(len(shards))
    shard = lru_cache(most)(lambda number: open_shard(folder, manifest, shards[number]))
    later = set(os.listdir(folder)) if len(shards) > most else set[str]()
    for number, each in enumerate(shards):
        if each.file not in later:  # one that is missing is refused now
            shard(number)
    return RecordSet(folder, manifest, shard)


def open_shard(folder: Path, manifest: Manifest, shard: Shard) -> RecordFile:
    """The shard, if it is the one that the manifest lists."""
    file = RecordFile(folder / shard.file)
    for what, said, found in (
        ("size", shard.size, file.size),
        ("count", shard.count, file.count),
        ("form", manifest.form, file.form),
        ("checksum", f"0x{shard.checksum:08x}", f"0x{file.checksum:08x}"),
    ):
        if said != found:
            raise RecordError(f"{file.path}: {what} is {found}, the manifest has {said}; {AGAIN}")
    least, most = file.label_range
    if least < 0 or most >= manifest.classes:
        raise RecordError(f"{file.path}: labels lie in [0, {manifest.classes}), got {least} to {most}; {AGAIN}")
    return file


def write_records(
    directory: StrPath,
    samples: Iterable[tuple[Array | bytes, int]],
    *,
    classes: int,
    name: str | None = None,
    encoding: str = "raw",
    class_names: Sequence[str] = (),
    moments: tuple[Sequence[float], Sequence[float]] | None = None,
    source: str = "",
    sources: Mapping[str, str] | None = None,
    contents: Mapping[str, object] | None = None,
    files: Mapping[str, bytes] | None = None,
    shard_size: int = SHARD_SIZE,
    overwrite: bool = False,
) -> None:
    """Writes samples (image, label), one after the other, as the data set `directory`: all of it or nothing.

    An image is an array (c, h, w), uint8 or float32, all of one shape; or bytes in `encoding`, and then `moments`
    must give mean and std per channel (of raw images they are computed). A shard ends with the record that takes it
    to `shard_size` bytes. `sources` maps the names of the files that the samples come from to their checksums.
    `contents` describes records that are no images, `files` lie beside the manifest.
    Raises RecordError where a sample does not fit, where `directory` exists and `overwrite` is false, and where it
    holds anything else than records.
    """
    target = Path(directory)
    name = name or Path(os.path.realpath(target)).name
    shards = list[Shard]()
    form = RecordForm(encoding)
    running = RunningMoments(0)
    rest = iter(samples)
    with folder_aside(target, overwrite=overwrite) as folder:
        for image, label in rest:  # the first of a shard
            if not shards:
                form = RecordForm.of(image, encoding)
                if (form.encoding == "raw") != (moments is None):
                    raise RecordError(f"{target}: moments are given for encoded images only; the first image is {form}")
                running = RunningMoments(form.shape[0] if form.shape else 0)
            file = f"{name}-{len(shards):05d}.mpr"
            with write_file(folder / file, form, classes=classes, shown=target / file) as writer:
                for image, label in chain([(image, label)], rest):  # noqa: B020
                    writer.add(image, label)
                    if isinstance(image, np.ndarray):
                        running.add(image)
                    if writer.size >= shard_size:
                        break
            shards.append(Shard(file, writer.size, writer.count, writer.checksum))
        if not shards:
            raise RecordError(f"{target}: there are no samples to write, a data set has at least one")
        mean, std = moments or running.found()
        manifest = Manifest(
            name=name,
            count=sum(shard.count for shard in shards),
            classes=classes,
            class_names=tuple(class_names),
            form=form,
            mean=tuple(map(float, mean)),
            std=tuple(map(float, std)),
            shards=tuple(shards),
            source=source,
            sources=dict(sources or {}),
            contents=dict(contents or {}),
        )
        for file, content in (files or {}).items():
            with file_aside(folder / file) as beside:
                beside.write(content)
        save(manifest, folder)


def _allow_open_files(count: int) -> None:
    """Lets the process have as many files open as it may: before Python 3.13 a map keeps its file's descriptor."""
    if sys.version_info < (3, 13) and count > 64:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(OSError, ValueError):  # opening the files then raises the error
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
