"""Reads CIFAR-10 and CIFAR-100, binary or pickled, from a folder, from packed files, or from the archive."""

import hashlib
import tarfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from mpibow.data import Array
from mpibow.errors import RecordError

from .cifar_files import IMAGES, LABEL_BYTES, LABELS, TITLES, VERSIONS, CifarVersion, Labels
from .conversion import file_checksum, spreader, watched
from .pickles import read_pickle
from .source_files import ENDS, Source, opened

PIXELS = 3 * 32 * 32  # three planes: red, green, blue
LARGEST = 1 << 28  # bytes of a file, unpacked; CIFAR-100's pickle to train has 155 million
VERSION_OF = {name: version for version in VERSIONS for name in version.files}  # every name is one version's only
NAMES = frozenset(name for labels in LABELS.values() for name in (labels.names_text, labels.names_pickle))
AGAIN = "get the file again"


@dataclass(frozen=True)
class Content:
    """The bytes of a published file, and the file that they came out of: itself, packed, or the archive."""

    shown: str  # in messages
    data: bytes
    source: str
    checksum: str


@dataclass(frozen=True)
class CifarBatch:
    """The images (n, 3, 32, 32) uint8 and labels (n,) int64 of one file. `md5` is that of the file, unpacked.

    It came out of the file `source` with the checksum `checksum`; see Content, whose bytes it does not keep.
    """

    images: Array
    labels: Array
    md5: str
    source: str
    checksum: str


@dataclass(frozen=True)
class Cifar:
    """A version that was read whole: its files by their published names, and the names of the classes."""

    version: CifarVersion
    batches: Mapping[str, CifarBatch]
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
        contents = dict(_members(source))
        version = _choose(source, dict.fromkeys(VERSIONS, contents), set_)
    else:
        there = {version: _files(_folder(source, version)) for version in VERSIONS}
        archives = {version: source / version.archive for version in VERSIONS if (source / version.archive).is_file()}
        version = _choose(source, {**there, **{version: version.files for version in archives}}, set_)
        if version in archives and not there[version].keys() >= version.files.keys():
            return read_cifar(archives[version], set_=set_, coarse=coarse, any_count=any_count)
        source = _folder(source, version)
        chosen = {name: path for name, path in there[version].items() if name in version.files or name in NAMES}
        packed = sum(path.suffix in ENDS for path in chosen.values())
        with spreader(max(1, min(workers, packed))) as each:
            found = watched(each(read_content, chosen.values()), len(chosen), f"{source}: read", " files")
            contents = dict(zip(chosen, found, strict=True))
    if (version.set, coarse) not in LABELS:
        raise RecordError(f"{source}: {TITLES[version.set]} has no coarse labels, CIFAR-100 has; leave out --coarse")
    labels = LABELS[version.set, coarse]
    batches = {name: batch_of(contents.pop(name), name, labels, any_count) for name in version.files}
    return Cifar(version, batches, _class_names(contents, labels))


def read_content(path: Path) -> Content:
    """The content of a file that may be packed."""
    with opened(path) as file:
        return Content(str(path), _all(str(path), file), path.name, file_checksum(path))


def _members(path: Path) -> Iterator[tuple[str, Content]]:
    """CIFAR's files in the archive, in its order; nothing is unpacked to the disk."""
    checksum = file_checksum(path)
    try:
        # not as a stream ("r|"), which for a damaged length skips bytes that are not there, for years
        with opened(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for member in watched(archive, None, f"{path}: read", " files"):
                name = Path(member.name).name
                if member.isreg() and (name in NAMES or name in VERSION_OF):
                    content = archive.extractfile(member)
                    assert content is not None
                    yield name, Content(f"{path}: {name}", _all(f"{path}: {name}", content), path.name, checksum)
            while file.read(1 << 20):  # to the end, where the packed file's own checksum is
                pass
    except (tarfile.TarError, ValueError, OverflowError) as error:  # the latter for lengths that no file has
        raise RecordError(f"{path}: is not a complete tar archive: {str(error).lower()}; {AGAIN}") from error


def _folder(source: Path, version: CifarVersion) -> Path:
    """The version's own folder in `source`, if it is there, else `source` itself."""
    inner = source / version.folder
    return inner if inner.is_dir() else source


def _files(folder: Path) -> dict[str, Path]:
    """CIFAR's files by their published names, also where they were packed again."""
    paths = {name: [folder / f"{name}{end}" for end in ("", ".gz", ".xz")] for name in (*VERSION_OF, *NAMES)}
    return {name: path for name, tried in paths.items() for path in tried[::-1] if path.is_file()}


def _choose(place: Path, there: Mapping[CifarVersion, Collection[str]], set_: str | None) -> CifarVersion:
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
            raise RecordError(
                f"{place}: has {names[0]}, of {version}, but no {lacks}; get what is missing, or the archive"
            )
    raise RecordError(
        f"{place}: has no files of {TITLES[set_] if set_ else ' or '.join(TITLES.values())}; {wanted(set_)}"
    )


def wanted(set_: str | None) -> str:
    """The message's advice where no file is found."""
    archives = [version for version in VERSIONS if set_ in (None, version.set)]
    files = "".join(f"\n  {version.archive}  {version.size:,} bytes  MD5 {version.md5}" for version in archives)
    return f"--download, or place one of these files in the folder, or what it unpacks to:{files}"


def _all(shown: str, file: Source | IO[bytes]) -> bytes:
    data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise RecordError(f"{shown}: unpacks to more than {LARGEST:,} bytes, more than any file of CIFAR; {AGAIN}")
    return data


def batch_of(content: Content, name: str, labels: Labels, any_count: bool) -> CifarBatch:
    """The batch of the published file `name`. Raises RecordError where it is damaged, or has another number."""
    version = VERSION_OF[name]
    with _naming(content):
        images, values = (_binary if version.form == "binary" else _pickled)(version, labels, content.data)
        if len(values) == 0 and any_count:
            raise RecordError("has no images")
        wrong = (values < 0) | (values >= len(labels.names))
        if wrong.any():
            record = int(wrong.argmax())
            raise RecordError(f"record {record}: {labels.key} is {values[record]}, it lies in [0, {len(labels.names)})")
    count = len(values)
    right = IMAGES[version.set][name.startswith("test")]
    if count != right and not any_count:
        raise RecordError(
            f"{content.shown}: has {count:,} images, the published {name} has {right:,}; {AGAIN}, or --any-count"
        )
    md5 = hashlib.md5(content.data, usedforsecurity=False).hexdigest()
    return CifarBatch(images.reshape(-1, 3, 32, 32), values, md5, content.source, content.checksum)


@contextmanager
def _naming(content: Content, remedy: str = AGAIN) -> Iterator[None]:
    try:
        yield
    except RecordError as error:
        raise RecordError(f"{content.shown}: {error}; {remedy}") from error


def _binary(version: CifarVersion, labels: Labels, data: bytes) -> tuple[Array, Array]:
    size = LABEL_BYTES[version.set] + PIXELS
    if len(data) % size:
        raise RecordError(f"ends within record {len(data) // size}: it has {len(data):,} bytes, a record {size:,}")
    records = np.frombuffer(data, np.uint8).reshape(-1, size)
    return records[:, -PIXELS:], records[:, labels.byte].astype(np.int64)


def _pickled(version: CifarVersion, labels: Labels, data: bytes) -> tuple[Array, Array]:
    fields = _fields(data)
    images = fields.get("data")
    values = fields.get(labels.key)
    if not (isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.flags.c_contiguous) or (
        images.shape != (*images.shape[:1], PIXELS)
    ):
        raise RecordError(f"'data' is not an array of unsigned bytes in C order, of shape (n, {PIXELS})")
    if not isinstance(values, list) or not all(type(value) is int and abs(value) < 2**31 for value in values):
        raise RecordError(f"{labels.key!r} is not a list of integers, as {version} has it")
    if len(values) != len(images):
        raise RecordError(f"has {len(images):,} images, {len(values):,} {labels.key}")
    return images, np.array(values, np.int64)


def _class_names(contents: Mapping[str, Content], labels: Labels) -> tuple[str, ...]:
    names = labels.names
    for name in (labels.names_text, labels.names_pickle):
        if (content := contents.get(name)) is None:
            continue
        with _naming(content):
            stored: object = content.data.decode("utf-8", "replace").split()
            if name == labels.names_pickle:
                stored = _fields(content.data).get(labels.names_key)
        with _naming(content, f"{AGAIN} or remove it"):
            found = stored if isinstance(stored, list) else []
            names = tuple(each for each in found if isinstance(each, str) and each)
            if not len(found) == len(set(names)) == len(labels.names):
                raise RecordError(f"must have {len(labels.names)} different names of classes")
    return names


def _fields(data: bytes) -> dict[object, object]:
    fields = read_pickle(data)
    if not isinstance(fields, dict):
        raise RecordError(f"is the pickle of a {type(fields).__name__}, not of a dict")
    return fields
