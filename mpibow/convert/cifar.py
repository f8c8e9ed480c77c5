"""Reads CIFAR-10 and CIFAR-100, binary or pickled, from a folder, from packed files, or from the archive."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpibow.convert.cifar_files import IMAGES, LABEL_BYTES, LABELS, TITLES, VERSIONS, Labels, Version
from mpibow.convert.compressed import ENDS, Source, opened
from mpibow.convert.conversion import file_checksum, progress, spreader
from mpibow.convert.pickled import read_pickle, uint8
from mpibow.data.dataset import Array
from mpibow.errors import RecordError

PIXELS = 3 * 32 * 32  # three planes: red, green, blue
LARGEST = 1 << 28  # bytes of a file, unpacked; CIFAR-100's pickle to train has 155 million
VERSION_OF = {name: version for version in VERSIONS for name in version.files}  # every name is one version's only
NAMES = frozenset(name for labels in LABELS.values() for name in (labels.names_text, labels.names_pickle))
AGAIN = "get the file again"


@dataclass(frozen=True)
class Batch:
    """The contents of one file: images (n, 3, 32, 32) uint8, labels (n,) int64. `md5` is that of the file, unpacked.

    It came out of the file `source` with the checksum `checksum`: itself, packed, or the archive.
    """

    images: Array
    labels: Array
    md5: str
    source: str
    checksum: str


@dataclass(frozen=True)
class Cifar:
    """A version that was read whole: its files by their published names, and the names of the classes."""

    version: Version
    batches: Mapping[str, Batch]
    class_names: tuple[str, ...]

    @property
    def genuine(self) -> bool:
        """Whether these are the files that the authors published."""
        return all(self.batches[name].md5 == md5 for name, md5 in self.version.files.items())


def read_cifar(
    source: Path, *, set_: str | None = None, coarse: bool = False, any_count: bool = False, workers: int = 1
) -> Cifar:
    """All of the set in `source`: an archive; or a folder that has the files, their own folder, or the archive.

    `set_` chooses where there are two. Unless `any_count`, every file must have as many images as the published one.
    Raises RecordError where there is no set, where it lacks a file, and where a file is damaged.
    """
    if source.is_file():
        return _read_archive(source, set_, coarse, any_count)
    folders = {version: _folder(source, version) for version in VERSIONS}
    there = {version: set(_files(folder)) for version, folder in folders.items()}
    archives = {version: source / version.archive for version in VERSIONS if (source / version.archive).is_file()}
    version = _choose(source, {**there, **{version: version.files for version in archives}}, set_)
    if version in archives and not there[version] >= set(version.files):
        return _read_archive(archives[version], set_, coarse, any_count)
    return _read_folder(folders[version], version, coarse, any_count, workers)


def load(task: tuple[Path, str, Labels, bool]) -> Batch:
    """The file at a path, of this published name: its labels of this kind, and whether any count is right."""
    path, name, labels, any_count = task
    with opened(path) as file:
        data = _all(str(path), file)
    return batch_of(str(path), name, data, labels, any_count, (path.name, file_checksum(path)))


def _read_folder(folder: Path, version: Version, coarse: bool, any_count: bool, workers: int) -> Cifar:
    labels, files = _labels(folder, version, coarse), _files(folder)
    tasks = [(files[name], name, labels, any_count) for name in version.files]
    packed = sum(path.suffix in ENDS for path, *_ in tasks)
    with spreader(max(1, min(workers, packed))) as each, progress(len(tasks), f"{folder}: read", " files") as bar:
        batches = {}
        for name, batch in zip(version.files, each(load, tasks), strict=True):
            batches[name] = batch
            bar.update()
    names = labels.names
    for name in (labels.names_text, labels.names_pickle):
        if (path := folder / name).is_file():
            with opened(path) as file:
                names = _names(str(path), name, _all(str(path), file), labels)
    return Cifar(version, batches, names)


def _read_archive(path: Path, set_: str | None, coarse: bool, any_count: bool) -> Cifar:
    batches: dict[str, Batch] = {}
    names: dict[str, bytes] = {}
    origin = (path.name, file_checksum(path))
    with progress(None, f"{path}: read", " files") as bar:
        for name, data in _members(path):
            if name in NAMES:
                names[name] = data
            elif set_ in (None, VERSION_OF[name].set):
                labels = _labels(path, VERSION_OF[name], coarse)
                batches[name] = batch_of(f"{path}: {name}", name, data, labels, any_count, origin)
            bar.update()
    version = _choose(path, dict.fromkeys(VERSIONS, batches), set_)
    labels = _labels(path, version, coarse)
    known = labels.names
    for name in (labels.names_text, labels.names_pickle):
        if name in names:
            known = _names(f"{path}: {name}", name, names[name], labels)
    return Cifar(version, batches, known)


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """CIFAR's files in the archive, in its order; nothing is unpacked to the disk."""
    try:
        # not as a stream ("r|"), which for a damaged length skips bytes that are not there, for years
        with opened(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                name = Path(member.name).name
                if member.isreg() and (name in NAMES or name in VERSION_OF):
                    content = archive.extractfile(member)
                    assert content is not None
                    yield name, _all(f"{path}: {name}", content)
            while file.read(1 << 20):  # to the end, where the packed file's own checksum is
                pass
    except (tarfile.TarError, ValueError, OverflowError) as error:  # the latter for lengths that no file has
        raise RecordError(f"{path}: is not a complete tar archive: {str(error).lower()}; {AGAIN}") from error


def _folder(source: Path, version: Version) -> Path:
    """The version's own folder in `source`, if it is there, else `source` itself."""
    inner = source / version.folder
    return inner if inner.is_dir() else source


def _files(folder: Path) -> dict[str, Path]:
    """CIFAR's files by their published names, also where they were packed again."""
    paths = {name: [folder / f"{name}{end}" for end in ("", ".gz", ".xz")] for name in VERSION_OF}
    return {name: path for name, tried in paths.items() for path in tried[::-1] if path.is_file()}


def _choose(place: Path, there: Mapping[Version, Collection[str]], set_: str | None) -> Version:
    """The version whose files are all there, the first one of several of one set."""
    parts = {
        version: [name for name in version.files if name in names]
        for version, names in there.items()
        if set_ in (None, version.set)
    }
    whole = {version.set: version for version in reversed(parts) if len(parts[version]) == len(version.files)}
    if len(whole) > 1:
        sets = sorted(whole)
        choice = " or ".join(f"--set {name}" for name in sets)
        raise RecordError(f"{place}: has {' and '.join(TITLES[name] for name in sets)}; choose one by {choice}")
    if whole:
        return next(iter(whole.values()))
    for version, names in parts.items():
        if names:
            lacks = ", ".join(name for name in version.files if name not in names)
            what = "get what is missing, or the archive"
            raise RecordError(f"{place}: has {names[0]}, of {version}, but no {lacks}; {what}")
    raise RecordError(
        f"{place}: has no files of {TITLES[set_] if set_ else ' or '.join(TITLES.values())}; {wanted(set_)}"
    )


def wanted(set_: str | None) -> str:
    """The message's advice where no file is found."""
    archives = [version for version in VERSIONS if set_ in (None, version.set)]
    files = "".join(f"\n  {version.archive}  {version.size:,} bytes  MD5 {version.md5}" for version in archives)
    return f"--download, or place one of these files in the folder, or what it unpacks to:{files}"


def _labels(place: Path, version: Version, coarse: bool) -> Labels:
    if (version.set, coarse) not in LABELS:
        raise RecordError(f"{place}: {TITLES[version.set]} has no coarse labels, CIFAR-100 has; leave out --coarse")
    return LABELS[version.set, coarse]


def _all(shown: str, file: Source | Any) -> bytes:
    data: bytes = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise RecordError(f"{shown}: unpacks to more than {LARGEST:,} bytes, more than any file of CIFAR; {AGAIN}")
    return data


def batch_of(shown: str, name: str, data: bytes, labels: Labels, any_count: bool, origin: tuple[str, str]) -> Batch:
    version = VERSION_OF[name]
    images, values = (_binary if version.form == "binary" else _pickled)(shown, version, labels, data)
    count, right = len(values), IMAGES[version.set][name in version.test]
    if count != right and not any_count:
        raise RecordError(f"{shown}: has {count:,} images, the published {name} has {right:,}; {AGAIN}, or --any-count")
    if count == 0:
        raise RecordError(f"{shown}: has no images; {AGAIN}")
    wrong = (values < 0) | (values >= len(labels.names))
    if wrong.any():
        record = int(wrong.argmax())
        raise RecordError(
            f"{shown}: record {record}: {labels.key} is {values[record]}, it lies in [0, {len(labels.names)}); {AGAIN}"
        )
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return Batch(images.reshape(-1, 3, 32, 32), values, md5, *origin)


def _binary(shown: str, version: Version, labels: Labels, data: bytes) -> tuple[Array, Array]:
    size = LABEL_BYTES[version.set] + PIXELS
    if len(data) % size:
        raise RecordError(
            f"{shown}: ends within record {len(data) // size}: it has {len(data):,} bytes, a record {size:,}; {AGAIN}"
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, size)
    return records[:, -PIXELS:], records[:, labels.byte].astype(np.int64)


def _pickled(shown: str, version: Version, labels: Labels, data: bytes) -> tuple[Array, Array]:
    fields = _fields(shown, data)
    try:
        images = uint8(fields.get("data"), (PIXELS,))
    except RecordError as error:
        raise RecordError(f"{shown}: 'data' {error}; {AGAIN}") from error
    values = fields.get(labels.key)
    if not isinstance(values, list) or not all(type(value) is int and abs(value) < 2**31 for value in values):
        raise RecordError(f"{shown}: {labels.key!r} is not a list of integers, as {version} has it; {AGAIN}")
    if len(values) != len(images):
        raise RecordError(f"{shown}: has {len(images):,} images, {len(values):,} {labels.key}; {AGAIN}")
    return images, np.array(values, np.int64)


def _names(shown: str, name: str, data: bytes, labels: Labels) -> tuple[str, ...]:
    text = name == labels.names_text
    names: Any = data.decode("utf-8", "replace").split() if text else _fields(shown, data).get(labels.names_key)
    right = isinstance(names, list) and all(isinstance(name, str) and name for name in names)
    if not right or not len(names) == len(set(names)) == len(labels.names):
        raise RecordError(f"{shown}: must have {len(labels.names)} different names of classes; {AGAIN} or remove it")
    return tuple(names)


def _fields(shown: str, data: bytes) -> dict[Any, Any]:
    try:
        fields = read_pickle(data)
    except RecordError as error:
        raise RecordError(f"{shown}: {error}; {AGAIN}") from error
    if not isinstance(fields, dict):
        raise RecordError(f"{shown}: is the pickle of a {type(fields).__name__}, not of a dict; {AGAIN}")
    return fields
