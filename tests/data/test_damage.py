"""No damage of a data set passes, crashes or takes memory: truncations, flipped bits, made-up headers, kills."""

import json
import os
import pickle
import random
import signal
import struct
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from google_crc32c import value as crc32c
from hypothesis import example, given, settings, strategies as st

from mpibow.data import RecordSet, manifest, open_records, verify, write_records
from mpibow.data.records import HEADER, INDEX, MAGIC, RecordFile
from mpibow.errors import DamagedRecord, RecordError

IMAGES = np.arange(3 * 4, dtype=np.uint8).reshape(3, 1, 2, 2)
ENCODED = [b"abc", b"d", b"efgh"]
AGAIN = "copy the file or convert the data again"


def made(folder: Path, kind: str) -> Path:
    """Three records in two shards, of two and one."""
    samples: list[tuple[np.ndarray | bytes, int]]
    if kind == "raw":
        samples = list(zip(IMAGES, [1, 0, 2], strict=True))
        write_records(folder / kind, samples, classes=3, shard_size=64 + 5)
    else:
        samples = list(zip(ENCODED, [1, 0, 2], strict=True))
        moments = [127.5], [60.0]
        write_records(folder / kind, samples, classes=3, shard_size=64 + 4, encoding="png", moments=moments)
    return folder / kind


@pytest.fixture(params=["raw", "png"])
def folder(tmp_path, request) -> Path:
    return made(tmp_path, request.param)


def replace(path: Path, data: bytes) -> None:
    """A new file: rewriting the old one would wait for the disk each time, and cut it under who has it mapped."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def read_all(data: RecordSet) -> list[tuple[bytes, int]]:
    found = [data.record(sample) for sample in range(data.count)]
    if data.shape:
        images, labels = np.empty((data.count, *data.shape), data.dtype), np.empty(data.count, np.int32)
        data.read(np.arange(data.count), images, labels)
        assert found == list(zip(map(bytes, images), labels.tolist(), strict=True))
    assert [data.encoded(sample).tobytes() for sample in range(data.count)] == [image for image, _ in found]
    assert [data.label(sample) for sample in range(data.count)] == data.labels().tolist() == [y for _, y in found]
    return found


def refusal(folder: Path) -> RecordError:
    with pytest.raises(RecordError) as caught:
        read_all(open_records(folder))
    return caught.value


def named(folder: Path, path: Path) -> RecordError:
    """The one damage, which opening or reading finds, and verifying as well: both name the file."""
    error = refusal(folder)
    assert str(error).startswith(f"{path}: ")
    assert list(verify.damages(folder)) == [str(error)]
    return error


def test_every_truncation_of_a_shard_is_found_and_named(folder: Path):
    for path in sorted(folder.glob("*.mpr")):
        whole = path.read_bytes()
        for size in range(len(whole)):
            replace(path, whole[:size])
            assert str(named(folder, path)).startswith(f"{path}: is {size} bytes long, ")
        replace(path, whole + b"\0")
        assert str(named(folder, path)).startswith(f"{path}: is {len(whole) + 1} bytes long, but its header has ")
        replace(path, whole)
    assert len(read_all(open_records(folder))) == 3


def test_every_flipped_bit_of_a_shard_is_found_and_named(folder: Path):
    first = 0
    for path in sorted(folder.glob("*.mpr")):
        whole = path.read_bytes()
        shard = RecordFile(path)
        ends = [*shard._index["start"].tolist()[1:], shard.end]
        for bit in range(8 * len(whole)):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            replace(path, damaged)
            error = named(folder, path)
            if 64 <= bit // 8 < shard.end:  # an image: all else can be read
                record = sum(end <= bit // 8 for end in ends)
                assert str(error).startswith(f"{path}: record {record}: checksum is 0x")
                assert isinstance(error, DamagedRecord)
                assert error.sample == first + record
            else:
                assert not isinstance(error, DamagedRecord)
                with pytest.raises(RecordError):
                    open_records(folder)
        replace(path, whole)
        first += shard.count
    assert len(read_all(open_records(folder))) == 3


def test_every_truncation_and_flipped_bit_of_a_manifest_is_found_or_means_the_same(folder: Path):
    path = folder / manifest.FILE
    whole, right = path.read_bytes(), manifest.load(folder)
    cut = [whole[:size] for size in range(len(whole) - 1)]  # the last byte is a line feed
    flipped = [
        whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :] for at in range(len(whole)) for bit in range(8)
    ]
    same = 0
    for damaged in cut + flipped:
        replace(path, damaged)
        try:
            assert manifest.load(folder) == right
            same += 1
        except RecordError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017
    assert same < 10  # white space that is another


def test_a_damaged_record_says_which_and_the_others_can_be_read(tmp_path):
    folder = made(tmp_path, "raw")
    path = folder / "raw-00000.mpr"
    data = bytearray(path.read_bytes())
    data[64 + 4] ^= 1  # record 1
    replace(path, data)
    opened = open_records(folder)
    images, labels = np.empty((2, 1, 2, 2), np.uint8), np.empty(2, np.int32)
    found, said = crc32c(bytes(data[68:72])), crc32c(IMAGES[1])
    message = f"{path}: record 1: checksum is 0x{found:08x}, the index has 0x{said:08x}; {AGAIN}"
    for attempt in (
        lambda: opened.read(np.array([2, 1]), images, labels),
        lambda: opened.encoded(1),
        lambda: opened.record(1),
    ):
        with pytest.raises(DamagedRecord) as caught:
            attempt()
        assert (str(caught.value), caught.value.sample) == (message, 1)
    again = pickle.loads(pickle.dumps(caught.value))  # as a worker process hands it over
    assert (type(again), str(again), again.sample) == (DamagedRecord, message, 1)
    opened.read(np.array([2, 0]), images, labels)
    assert np.array_equal(images, IMAGES[[2, 0]])
    assert opened.label(1) == 0  # the index is whole


def test_encoded_bytes_are_views_that_cannot_be_written(folder: Path):
    data = open_records(folder)
    for sample, image in enumerate(ENCODED if not data.shape else map(bytes, IMAGES)):
        view = data.encoded(sample)
        assert (view.tobytes(), view.dtype, view.shape) == (image, np.uint8, (len(image),))
        assert view.base is not None
        assert not view.flags.writeable
        assert np.shares_memory(view, data.encoded(sample))


@pytest.mark.parametrize("sample", [-1, 3])
def test_a_sample_out_of_range_is_no_damage(folder: Path, sample):
    data = open_records(folder)
    for attempt in (data.encoded, data.record, data.label):
        with pytest.raises(RecordError) as caught:
            attempt(sample)
        assert str(caught.value) == f"{folder}: samples lie in [0, 3), got {sample}"
        assert not isinstance(caught.value, DamagedRecord)


# Fuzzing: whatever the bytes, the reader refuses them or reads what they say, in no more memory than they take.


def fuzz(path: Path, data: bytes) -> None:
    replace(path, data)
    tracemalloc.start()
    try:
        file = RecordFile(path)
        images = [file.stored(record)[0] for record in range(file.count)]
        assert 64 + sum(image.nbytes for image in images) + 16 * file.count == len(data)
        assert file.labels.shape == (file.count,)
    except RecordError as error:
        assert str(error).startswith(f"{path}: ")  # noqa: PT017
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 1 << 20


BIG = [0, 1, 2, 3, 63, 64, 65, 72, 76, 104, 2**31, 2**32 - 1, 2**32, 2**59, 2**60, 2**63, 2**64 - 16, 2**64 - 1]
U32, U64 = (st.sampled_from([n for n in BIG if n < top]) | st.integers(0, top - 1) for top in (2**32, 2**64))
SIDE = st.sampled_from([0, 1, 2, 3, 4]) | U32
TEXT = st.sampled_from([b"raw", b"jpeg", b"png", b"uint8", b"float32", b"", b"raw\0x"]) | st.binary(max_size=8)
ROW = st.tuples(U64, U32, st.integers(-(2**31), 2**31 - 1))


@settings(max_examples=300)
@given(
    shape=st.none() | st.tuples(SIDE, SIDE, SIDE),
    encoding=st.none() | TEXT,
    dtype=st.none() | TEXT,
    count=st.none() | U64,
    end=st.none() | U64,
    rows=st.lists(st.tuples(st.integers(0, 2), ROW), max_size=3),
    cut=st.integers(-20, 20),
)
@example(shape=None, encoding=None, dtype=None, count=None, end=None, rows=[], cut=0)
@example(shape=(1, 1, 1), encoding=b"raw", dtype=None, count=2**60, end=None, rows=[], cut=0)
@example(shape=(2**32 - 1,) * 3, encoding=b"raw", dtype=b"float32", count=None, end=None, rows=[], cut=0)
@example(shape=None, encoding=None, dtype=None, count=None, end=None, rows=[(2, (2**64 - 1, 0, 0))], cut=0)
@example(shape=None, encoding=None, dtype=None, count=None, end=None, rows=[(1, (2**63, 0, 0))], cut=0)
def test_fuzz_fields_whose_checksums_are_right(
    tmp_path_factory,
    shape,
    encoding,
    dtype,
    count,
    end,
    rows,
    cut,
):
    """The deeper checks are reached: only they stand between a made-up length and the memory."""
    images = b"".join(ENCODED)
    index = np.array([(64, crc32c(b"abc"), 1), (67, crc32c(b"d"), 0), (68, crc32c(b"efgh"), 2)], INDEX)
    for row, entry in rows:
        index[row] = entry
    body = images + index.tobytes()
    body = body + bytes(cut) if cut > 0 else body[: len(body) + cut]
    at = 64 + len(images) if end is None else end
    summed = body[at - 64 :] if at >= 64 else b""
    fields = [MAGIC, 1, *(shape or (0, 0, 0)), encoding or b"png", dtype or b"uint8", 3 if count is None else count, at]
    header = HEADER.pack(*fields, crc32c(summed), 0)[:-4]
    fuzz(tmp_path_factory.getbasetemp() / "fuzz.mpr", header + struct.pack("<I", crc32c(header)) + body)


@settings(max_examples=60)
@given(st.data())
def test_fuzz_a_manifest_whose_checksum_is_right(tmp_path_factory, data: st.DataObject):
    """Whatever JSON its fields hold, opening names the manifest or the shard that does not fit it."""
    base = tmp_path_factory.getbasetemp() / "fuzzed"
    folder = base / "png"
    if not folder.exists():
        made(base, "png")
        (base / "whole.json").write_bytes((folder / manifest.FILE).read_bytes())
    fields = json.loads((base / "whole.json").read_text())
    fields.pop("checksum")
    leaf = st.none() | st.booleans() | st.sampled_from(BIG) | st.integers() | st.floats() | st.text(max_size=4)
    value = st.recursive(leaf, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=4), v, max_size=3))
    for key in data.draw(st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=2, unique=True)):
        if key == "shards" and data.draw(st.booleans()):
            shard = data.draw(st.sampled_from(fields["shards"]))
            shard[data.draw(st.sampled_from(sorted(shard)))] = data.draw(value)
        else:
            fields[key] = data.draw(value)
    text = json.dumps(fields | {"checksum": manifest.checksum_of(fields)})
    replace(folder / manifest.FILE, text.encode())
    try:
        opened = open_records(folder)
    except RecordError as error:
        assert str(error).startswith(f"{folder}/")  # noqa: PT017
    else:
        assert (opened.count, [opened.record(sample)[0] for sample in range(3)]) == (3, ENCODED)


# Kills


KILLED = """
import sys, time
import numpy as np
from mpibow.data.recordset import write_records
print("ready", flush=True)
for turn in range(10**9):
    write_records(f"{sys.argv[1]}/{turn}", ((np.full((3, 2, 2), turn % 256, np.uint8), 0) for _ in range(200)),
                  classes=3, shard_size=400)
"""


def test_a_writer_killed_at_any_moment_leaves_whole_data_sets_only(tmp_path):
    for turn in range(6):
        folder = tmp_path / str(turn)
        folder.mkdir()
        command = [sys.executable, "-c", KILLED, str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout.readline() == "ready\n"
            time.sleep(random.random() / 4)
            writer.send_signal(signal.SIGKILL)
        for name in os.listdir(folder):
            if not name.startswith("."):
                data = open_records(folder / name)
                assert [image for image, _ in read_all(data)] == [bytes([int(name) % 256] * 12)] * 200
            elif (folder / name / manifest.FILE).exists():  # whole, killed before it was renamed
                assert open_records(folder / name).count == 200
            else:
                assert str(refusal(folder / name)).startswith(f"{folder / name}: has no manifest.json, ")
                for path in (folder / name).glob("*.mpr"):
                    RecordFile(path)  # each shard is there with all its bytes or not at all


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="from Python 3.13 a map keeps no descriptor")
def test_too_many_open_files_says_what_to_do(tmp_path):
    images = np.zeros((80, 1, 1, 1), np.uint8)
    write_records(tmp_path / "a", zip(images, [0] * 80, strict=True), classes=1, shard_size=1)
    opening = (
        "import resource, sys; from mpibow.data.recordset import open_records; from mpibow.errors import RecordError\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))\n"
        "try: open_records(sys.argv[1])\n"
        "except RecordError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", opening, str(tmp_path / "a")], capture_output=True, text=True, check=True
    )
    file, _, rest = done.stdout.partition(": ")
    assert file.startswith(f"{tmp_path}/a/a-000")
    assert rest == (
        "cannot be read: too many open files; raise the limit (ulimit -n), or use Python 3.13, "
        "where an open shard needs no descriptor\n"
    )


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_opening_touches_no_page_of_a_shard(tmp_path):
    """Else a thousand shards take a hundred megabytes: the kernel maps what is around a page that is touched."""
    images = np.zeros((200, 3, 32, 32), np.uint8)
    write_records(tmp_path / "a", zip(images, [0] * 200, strict=True), classes=1, shard_size=8000)
    data = open_records(tmp_path / "a")
    maps, touched = Path("/proc/self/smaps").read_text().split("\n"), []
    for number, line in enumerate(maps):
        if line.endswith(".mpr") and f"{tmp_path}/a/" in line:
            touched += [int(said.split()[1]) for said in maps[number : number + 10] if said.startswith("Rss:")]
    assert touched == [0] * len(data.manifest.shards)
    assert data.labels().tolist() == [0] * 200
