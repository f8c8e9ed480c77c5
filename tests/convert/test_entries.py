"""Images listed in a few arrays: their places, choices among them, and what passes while they are read."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from google_crc32c import value as crc32c

from mpibow.convert.conversion import spreader
from mpibow.convert.entries import (
    LOT_COUNT,
    LOT_SIZE,
    Entries,
    Entry,
    ImageGroup,
    file_bytes,
    limited,
    lots,
    part_of,
    refuse_empty_and_twice,
)
from mpibow.convert.recode import Recoded
from mpibow.errors import RecordError
from tests.refusals import refuses


def group(
    labels: list[int], title: str = "g/", sizes: list[int] | None = None, names: list[str] | None = None
) -> ImageGroup:
    """One of a container's, image i at byte 10 i."""
    count = len(labels)
    starts, sizes_ = 10 * np.arange(count), np.array(sizes or [5] * count)
    return ImageGroup(
        "/source", title, "/source/file", names or [f"{i}.x" for i in range(count)], starts, sizes_, np.array(labels)
    )


TWO = Entries([group([0, 1, 0]), group([2, 2], "h/")])


def names(entries: Entries) -> list[str]:
    return [entry.name for entry in entries]


def upper(data: bytes) -> Recoded[bytes]:
    """A worker's: bytes that start with x are changed."""
    if data == b"bad":
        raise RecordError("is bad")
    return Recoded(data.upper(), "small" if data.startswith(b"x") else "")


def folder(path: Path, files: dict[str, bytes]) -> Entries:
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    sizes = np.array([len(data) for data in files.values()])
    return Entries([ImageGroup(str(path.parent), "c/", str(path), list(files), None, sizes, np.arange(len(files)))])


def test_places():
    assert TWO[3] == Entry("/source", "h/0.x", "/source/file", 0, 5, 2)
    assert TWO[1] == Entry("/source", "g/1.x", "/source/file", 10, 5, 1)
    assert TWO[1].where == "/source/g/1.x"
    assert names(TWO) == ["g/0.x", "g/1.x", "g/2.x", "h/0.x", "h/1.x"]
    assert TWO.labels().tolist() == [0, 1, 0, 2, 2]


def test_choices_and_labels():
    few = TWO.take(np.array([4, 0]))
    assert (names(few), few.labels().tolist(), len(few)) == (["h/1.x", "g/0.x"], [2, 0], 2)
    assert names(few.take(np.array([False, True]))) == ["g/0.x"]
    assert names(limited(TWO, 1)) == ["g/0.x", "g/1.x", "h/0.x"]
    assert len(Entries([])) == 0


def test_lots_are_small():
    entries = [Entry("", str(i), "", 0, size, 0) for i, size in enumerate([LOT_SIZE - 1, 1, 1, LOT_SIZE + 1, 1])]
    assert [len(lot) for lot in lots(entries)] == [2, 1, 1, 1]
    assert [len(lot) for lot in lots([entries[1]] * (LOT_COUNT + 1))] == [LOT_COUNT, 1]
    assert list(lots([])) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_part(tmp_path, workers, capsys):
    files = {"a": b"one", "b": b"xtwo", "c": b"three"}
    entries = folder(tmp_path / "c", files)
    with spreader(workers) as each:
        part = part_of(entries, file_bytes, upper, each, "train", encoding="raw", statistics=1)
        assert (part.count, part.moments, part.sources) == (3, None, {})
        assert list(part.samples) == [(b"ONE", 0), (b"XTWO", 1), (b"THREE", 2)]
    lines = "".join(f"c/{name}\t{len(data)}\t{crc32c(data):08x}\n" for name, data in files.items())
    digest = hashlib.sha256(lines.encode()).hexdigest()
    assert part.sources == {
        "train, 3 images": (
            f"sha256 {digest} over a line an image: name, size and CRC32C of its source, with tabs between"
        ),
        "c/b": f"crc32c {crc32c(b'xtwo'):08x}, small, encoded again",
    }
    assert capsys.readouterr().out == "1 images of train were encoded again, the manifest names them\n"


def test_given_checksums_are_enough(tmp_path):
    entries = folder(tmp_path / "c", {"a": b"one"})
    given_ = {"a.bin": "md5 00"}
    part = part_of(entries, file_bytes, upper, map, "train", encoding="raw", statistics=1, checksums=given_)
    assert list(part.samples) == [(b"ONE", 0)]
    assert part.sources == given_


@pytest.mark.parametrize("workers", [1, 2])
def test_damage_is_named(tmp_path, workers):
    entries = folder(tmp_path / "c", {"a": b"one", "b": b"bad"})
    with pytest.raises(RecordError) as caught, spreader(workers) as each:
        list(part_of(entries, file_bytes, upper, each, "t", encoding="raw", statistics=1).samples)
    assert str(caught.value) == f"{tmp_path}/c/b: is bad"


def test_files_that_change_are_named(tmp_path):
    entries = folder(tmp_path / "c", {"a": b"one"})
    (tmp_path / "c" / "a").write_bytes(b"on")
    with refuses(f"{tmp_path}/c/a: has 2 bytes, had 3; did it change?", RecordError):
        file_bytes(entries[0])
    (tmp_path / "c" / "a").unlink()
    with refuses(f"{tmp_path}/c/a: cannot be read: no such file or directory", RecordError):
        file_bytes(entries[0])


def test_empty_images_and_names_that_are_there_twice():
    refuse_empty_and_twice(TWO)
    with refuses(
        "".join(f"/source/g/{i}.x\n" for i in range(1, 11)) + "and 2 more: empty, no image; remove or get again",
        RecordError,
    ):
        refuse_empty_and_twice(Entries([group([0] * 13, sizes=[1, *[0] * 12])]))
    with refuses("/source/g/a\n/source/g/b: appears twice under one name; pack the tar again", RecordError):
        refuse_empty_and_twice(Entries([group([0] * 5, names=list("abcab"))]))
