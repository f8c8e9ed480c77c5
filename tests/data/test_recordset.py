"""Data sets of records: all of one or nothing, and read as they were written."""

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from google_crc32c import value as crc32c

from mpibow import records
from mpibow.data import aside, manifest, open_records, verify, write_records
from mpibow.data.moments import LOT, RunningMoments
from mpibow.data.records import RecordFile, RecordForm, write_file
from mpibow.errors import RecordError
from tests.data.sets import flip, read
from tests.refusals import refusal_of, refuses

RANDOM = np.random.default_rng(1)
IMAGES = RANDOM.integers(0, 256, (10, 3, 2, 2), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
SHARD = 64 + 4 * 12  # bytes: four records each


def write(path: Path, images: object = IMAGES, labels: np.ndarray = LABELS, **options: object) -> Path:
    samples = zip(images, labels.tolist(), strict=True)
    write_records(path, samples, **{"classes": 3, "shard_size": SHARD} | options)
    return path


@pytest.fixture
def folder(tmp_path) -> Path:
    return write(tmp_path / "set", source="a test", sources={"a.bin": "md5 00"}, class_names=["x", "y", "z"])


refusal = partial(refusal_of, open_records)


def rewrite(folder: Path, **changes: object) -> None:
    """The manifest with other fields and the checksum that belongs to them."""
    path = folder / "manifest.json"
    fields = json.loads(path.read_text()) | changes
    fields.pop("checksum")
    path.write_text(json.dumps(fields | {"checksum": manifest.checksum_of(fields)}))


def test_is_shards_and_a_manifest(folder: Path):
    assert sorted(os.listdir(folder)) == ["manifest.json", *(f"set-0000{i}.mpr" for i in range(3))]
    assert os.listdir(folder.parent) == ["set"]
    assert [shard.count for shard in open_records(folder).manifest.shards] == [4, 4, 2]
    fields = json.loads((folder / "manifest.json").read_text())
    assert fields["shards"][2] == {
        "file": "set-00002.mpr",
        "size": 64 + 2 * (12 + 16),
        "count": 2,
        "checksum": RecordFile(folder / "set-00002.mpr").checksum,
    }
    kept = {key: fields[key] for key in ("format", "classes", "class_names", "source", "sources", "encoding", "shape")}
    assert kept == {
        "format": 1,
        "classes": 3,
        "class_names": ["x", "y", "z"],
        "source": "a test",
        "sources": {"a.bin": "md5 00"},
        "encoding": "raw",
        "shape": [3, 2, 2],
    }


def test_reads_any_samples_in_any_order(folder: Path):
    chosen = [9, 0, 3, 4, 7, 8, 3]
    images, labels = read(open_records(folder), chosen)
    assert np.array_equal(images, IMAGES[chosen])
    assert np.array_equal(labels, LABELS[chosen])
    assert np.array_equal(open_records(folder).labels(), LABELS)
    assert open_records(folder).record(5) == (IMAGES[5].tobytes(), 2)
    assert len(read(open_records(folder), [])[0]) == 0


def test_reads_into_rows_that_are_not_contiguous(folder: Path):
    ring, labels = np.zeros((4, 3, 2, 4), np.uint8), np.zeros(8, np.int32)
    open_records(folder).read(np.array([2, 6, 1, 9]), ring[..., ::2], labels[::2])
    assert np.array_equal(ring[..., ::2], IMAGES[[2, 6, 1, 9]])
    assert labels.tolist() == [2, 0, 0, 0, 1, 0, 0, 0]
    assert not ring[..., 1::2].any()


@pytest.mark.parametrize(
    ("shape", "dtype"), [((2, 3, 2, 2), np.float32), ((3, 3, 2, 2), np.uint8), ((2, 1, 2, 2), np.uint8)]
)
def test_images_must_have_the_set_s_shape_and_dtype(folder: Path, shape, dtype: type):
    with pytest.raises(AssertionError):
        open_records(folder).read(np.array([0, 1]), np.empty(shape, dtype), np.empty(2, np.int32))


def test_a_shard_size_changes_no_sample_and_no_moment(tmp_path):
    sets = [open_records(write(tmp_path / str(size), shard_size=size)) for size in (1, SHARD, 1 << 20)]
    assert [len(data.manifest.shards) for data in sets] == [10, 3, 1]
    for data in sets[1:]:
        assert np.array_equal(read(data, list(range(10)))[0], IMAGES)
        assert (data.mean, data.std) == (sets[0].mean, sets[0].std)


def test_moments_far_from_zero():
    values = 1e6 + RANDOM.standard_normal((50, 2, 4)) * [[1], [0.01]]
    moments = RunningMoments(2)
    for image in values:
        moments.add(image)
    mean, std = moments.found()
    assert mean == pytest.approx(values.mean(axis=(0, 2)), rel=1e-12)
    assert std == pytest.approx(values.std(axis=(0, 2)), rel=1e-6)


@pytest.mark.parametrize("images", [1, 7, LOT // 64, 3 * LOT // 64, 3 * LOT // 64 + 1])
def test_moments_of_lots(images):
    """Images of 64 bytes, in an array that is used again."""
    values = 7 + RANDOM.standard_normal((images, 2, 4))
    moments, image = RunningMoments(2), np.empty((2, 4))
    for each in values:
        image[...] = each
        moments.add(image)
    for _ in range(2):
        mean, std = moments.found()
        assert mean == pytest.approx(values.mean(axis=(0, 2)), rel=1e-14)
        assert std == pytest.approx(values.std(axis=(0, 2)), rel=1e-14)


def test_equal_values_have_std_one(tmp_path):
    assert open_records(write(tmp_path / "a", np.full_like(IMAGES, 9))).std == (1.0, 1.0, 1.0)


def test_encoded_images_are_stored_and_not_read_as_arrays(tmp_path):
    images = [bytes([number] * (number + 1)) for number in range(10)]
    moments = ([127.5] * 3, [60.0] * 3)
    data = open_records(write(tmp_path / "a", images, encoding="jpeg", moments=moments))
    assert (data.shape, data.dtype, data.mean, data.std) == ((), np.uint8, (127.5,) * 3, (60.0,) * 3)
    assert [data.record(sample) for sample in range(10)] == list(zip(images, LABELS, strict=True))
    with refuses(f"{tmp_path}/a: these records hold jpeg images, give them to data.decoded.Decoded", RecordError):
        read(data, [0])
    assert records.main(["verify", str(tmp_path / "a")]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images": [], "labels": LABELS[:0]}, "{}: there are no samples to write, a data set has at least one"),
        ({"labels": LABELS + 1}, "{}/a-00000.mpr: record 2: a label lies in [0, 3), got 3"),
        (
            {"images": [*IMAGES[:9], IMAGES[9, :1]]},
            "{}/a-00002.mpr: record 1: is raw uint8 (1, 2, 2), the file holds raw uint8 (3, 2, 2)",
        ),
        (
            {"images": IMAGES[:, 0]},
            "{}/a-00000.mpr: raw images have a shape (channels, height, width), got (2, 2)",
        ),
        (
            {"images": [b"x"] * 10, "encoding": "jpeg"},
            "{}: moments are given for encoded images only; the first image is jpeg",
        ),
    ],
)
def test_refuses_samples_that_do_not_fit(tmp_path, options, message):
    with refuses(message.format(tmp_path / "a"), RecordError):
        write(tmp_path / "a", **options)
    assert list(tmp_path.iterdir()) == []


def test_class_names_must_be_as_many_as_classes(tmp_path):
    with pytest.raises(RecordError, match=r"manifest\.json: class_names must be 3, got 1$"):
        write(tmp_path / "a", class_names=["x"])
    assert list(tmp_path.iterdir()) == []


def test_an_existing_data_set_is_kept_or_replaced_as_a_whole(folder: Path):
    with refuses(f"{folder}: exists already; overwrite it (--overwrite) or choose another name", RecordError):
        write(folder, IMAGES[:2], LABELS[:2])
    old = open_records(folder)
    write(folder, IMAGES[:2], LABELS[:2], overwrite=True)
    assert open_records(folder).count == 2
    assert os.listdir(folder.parent) == ["set"]
    assert np.array_equal(read(old, [9])[0], IMAGES[9:])  # what is open stays readable


@pytest.mark.parametrize("other", ["thesis.tex", "mnist/manifest.json", "mnist/train/shard.mpr"])
def test_overwriting_removes_nothing_but_its_own_records(folder: Path, other):
    (folder / other).parent.mkdir(parents=True, exist_ok=True)
    (folder / other).write_text("years of work")
    with refuses(f"{folder}: also holds {other}, no record file of it; remove it or choose another name", RecordError):
        write(folder, overwrite=True)
    assert (folder / other).exists()
    assert open_records(folder).count == 10


def test_overwriting_that_fails_keeps_the_old(folder: Path):
    with pytest.raises(RecordError):
        write(folder, labels=LABELS + 1, overwrite=True)
    assert open_records(folder).count == 10
    assert os.listdir(folder.parent) == ["set"]


def test_the_first_writer_wins(tmp_path):
    with pytest.raises(RecordError, match="exists already"), aside.folder_aside(tmp_path / "a") as late:  # noqa: PT012
        write(tmp_path / "a")
        (late / "b").write_text("")
    assert open_records(tmp_path / "a").count == 10
    assert os.listdir(tmp_path) == ["a"]


def test_an_empty_folder_is_taken_and_a_file_is_not(tmp_path):
    (tmp_path / "a").mkdir()
    assert open_records(write(tmp_path / "a")).count == 10
    (tmp_path / "b").write_text("")
    with pytest.raises(RecordError, match=r"b: is a file, a data set is a folder; choose another name$"):
        write(tmp_path / "b", overwrite=True)


def test_a_rename_that_fails_puts_the_old_back(folder: Path, monkeypatch):
    rename = os.rename

    def full(old: Path, new: Path) -> None:
        if (
            ".tmp-" in old.name
            and new == folder
            and not folder.exists()
            and (old / "set-00000.mpr").stat().st_size < 150
        ):
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(old, new)

    monkeypatch.setattr(os, "rename", full)
    with refuses(f"{folder}: cannot be written: no space left on device", RecordError):
        write(folder, IMAGES[:2], LABELS[:2], overwrite=True)
    assert open_records(folder).count == 10
    assert os.listdir(folder.parent) == ["set"]


def test_a_link_is_written_beside_its_target(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "set")
    with aside.folder_aside(tmp_path / "link") as folder:
        assert folder.parent == tmp_path / "disk"  # the same file system: else it could not be renamed


def test_folders_reach_the_disk_before_and_after_the_rename(tmp_path, monkeypatch):
    path, steps = tmp_path / "a", []
    fsync, rename = os.fsync, os.rename

    def synced(handle: int) -> None:
        steps.append(os.fstat(handle).st_ino)
        fsync(handle)

    def renamed(old: Path, new: Path) -> None:
        steps.append("rename")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    with aside.folder_aside(path):
        pass
    assert steps == [path.stat().st_ino, "rename", tmp_path.stat().st_ino]


def test_a_link_is_followed(folder: Path):
    link = folder.parent / "link"
    link.symlink_to(folder)
    write(link, IMAGES[:2], LABELS[:2], overwrite=True)
    assert link.is_symlink()
    assert open_records(folder).count == 2


def test_what_is_no_data_set(tmp_path):
    (tmp_path / "left").mkdir()
    (tmp_path / "file").write_text("")
    for name, message in (
        ("none", "there is no such folder; convert the data to it first"),
        (
            "left",
            "has no manifest.json, so it is not a data set; "
            f"images in a folder per class become one by: mpibow convert folder --source {tmp_path}/left",
        ),
        ("file", "is a file, not a data set; mpibow convert --help lists what reads it"),
    ):
        assert refusal(tmp_path / name) == f"{tmp_path / name}: {message}"


def test_messages_of_the_manifest(folder: Path):
    path = folder / "manifest.json"
    again = "convert the data again"
    text = path.read_text()
    said = json.loads(text)["checksum"]
    edited = json.loads(text) | {"classes": 4}
    path.write_text(json.dumps(edited))
    edited.pop("checksum")
    found = manifest.checksum_of(edited)
    assert refusal(folder) == (f"{path}: is damaged or was edited: checksum is {found}, the file has {said}; {again}")
    path.write_text("{")
    assert refusal(folder) == f"{path}: is damaged: not JSON; {again}"
    path.write_text("[" * 100_000)
    assert refusal(folder) == f"{path}: is damaged: not JSON; {again}"
    path.write_text("[]")
    assert refusal(folder) == f"{path}: is not a manifest of records: it has no field 'format'; {again}"
    path.write_text(text)
    rewrite(folder, format=2)
    assert refusal(folder) == f"{path}: format is 2, this mpibow reads 1; {again}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 11}, "count must be that of all shards, 10, got 11"),
        ({"classes": 0}, "classes must be at least 1, got 0"),
        ({"class_names": ["x"]}, "class_names must be 3, got 1"),
        ({"mean": [1.0]}, "mean and std must each have 3 channels, got 1 and 3"),
        ({"std": [1, 0, 1]}, "mean must be finite and std above 0, got "),
        ({"mean": [1, float("nan"), 1]}, "mean must be finite and std above 0, got "),
        ({"encoding": "tiff"}, "encoding must be one of raw, jpeg, png, got 'tiff'"),
        ({"shape": [3, 2]}, "raw images have a shape (channels, height, width), got (3, 2)"),
        ({"shards": []}, "count must be that of all shards, 0, got 10"),
        ({"shards": [], "count": 0}, "count must be that of all shards, 0, got 0"),
        (
            {"encoding": "jpeg", "shape": [], "mean": [], "std": []},
            "mean and std must each have 0 channels, got 0 and 0",
        ),
        *(
            ({"shards": [{"file": file, "size": 1, "count": 10, "checksum": 0}]}, "a shard's file must be a plain name")
            for file in ("../a", "a/b", "/a", "a\0", "\ud800")
        ),
        ({"shards": 3}, "does not follow format 1: TypeError"),
        ({"count": "many"}, "does not follow format 1: ValueError"),
        ({"count": float("inf")}, "does not follow format 1: OverflowError"),
        ({"dtype": []}, "dtype must be one of uint8, float32, got '[]'"),
    ],
)
def test_a_manifest_that_breaks_a_rule(folder: Path, changes, message):
    rewrite(folder, **changes)
    assert refusal(folder).startswith(f"{folder}/manifest.json: {message}")


@pytest.mark.parametrize("field", ["name", "count", "class_names", "source", "sources", "shards", "encoding"])
def test_a_manifest_without_a_field(folder: Path, field):
    path = folder / "manifest.json"
    fields = json.loads(path.read_text())
    del fields[field], fields["checksum"]
    path.write_text(json.dumps(fields | {"checksum": manifest.checksum_of(fields)}))
    assert refusal(folder) == f"{path}: does not follow format 1: KeyError({field!r}); convert the data again"


def test_checksums_of_sources_are_text(folder: Path):
    rewrite(folder, sources={"a.bin": 7})
    assert open_records(folder).manifest.sources == {"a.bin": "7"}


def test_shards_that_are_not_the_manifest_s(folder: Path):
    again = "convert the data again"
    path = folder / "set-00001.mpr"
    with write_file(path, RecordForm("raw", "uint8", (3, 2, 2))) as writer:
        for number in range(4):
            writer.add(IMAGES[number], 0)
    said = manifest.load(folder).shards[1].checksum
    assert refusal(folder) == (f"{path}: checksum is 0x{writer.checksum:08x}, the manifest has 0x{said:08x}; {again}")
    with write_file(path, RecordForm("raw", "uint8", (3, 2, 2))) as writer:
        writer.add(IMAGES[0], 0)
    assert refusal(folder) == f"{path}: size is 92, the manifest has 176; {again}"
    path.unlink()
    assert refusal(folder) == f"{path}: cannot be read: no such file or directory"


def test_a_manifest_that_says_another_count_or_shape(folder: Path):
    path = folder / "set-00000.mpr"
    rewrite(folder, shape=[3, 1, 4])
    assert refusal(folder) == (
        f"{path}: form is raw uint8 (3, 2, 2), the manifest has raw uint8 (3, 1, 4); convert the data again"
    )
    shards = json.loads((folder / "manifest.json").read_text())["shards"]
    shards[0]["count"] = 3
    rewrite(folder, shards=shards, count=9)
    assert refusal(folder) == f"{path}: count is 4, the manifest has 3; convert the data again"


def test_labels_below_zero(folder: Path):
    path = folder / "set-00002.mpr"
    data = bytearray(path.read_bytes())
    data[-4:] = b"\xff" * 4
    data[56:60] = crc32c(bytes(data[-32:])).to_bytes(4, "little")
    data[60:64] = crc32c(bytes(data[:60])).to_bytes(4, "little")
    path.write_bytes(data)
    shards = json.loads((folder / "manifest.json").read_text())["shards"]
    shards[2]["checksum"] = crc32c(bytes(data[:60]))
    rewrite(folder, shards=shards)
    assert refusal(folder) == f"{path}: labels lie in [0, 3), got -1 to 2; convert the data again"


def test_labels_beyond_the_classes(folder: Path):
    rewrite(folder, classes=2, class_names=[])
    assert refusal(folder) == (f"{folder}/set-00000.mpr: labels lie in [0, 2), got 0 to 2; convert the data again")


def test_more_shards_than_files_may_be_open(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    images = np.zeros((300, 1, 1, 1), np.uint8)
    write(tmp_path / "a", images, np.zeros(300, int), shard_size=1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        assert open_records(tmp_path / "a").count == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_few_of_many_shards_are_open(tmp_path):
    """Whatever threads read, and each is checked when it is opened."""
    images = np.arange(64, dtype=np.uint8).reshape(64, 1, 1, 1)
    write(tmp_path / "a", images, np.arange(64) % 3, shard_size=1)
    data = open_records(tmp_path / "a", most=4)

    def maps() -> int:
        return Path("/proc/self/maps").read_text().count(str(tmp_path))

    assert maps() == 0
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda seed: read(data, np.random.default_rng(seed).permutation(64))[0], range(4)):
            assert sorted(found.ravel()) == list(range(64))
    assert np.array_equal(data.labels(), np.arange(64) % 3)
    assert 1 <= maps() <= 8
    flip(tmp_path / "a/a-00007.mpr", 8)
    with pytest.raises(RecordError, match=r"a-00007\.mpr: has version 0"):
        read(data, [7])
    (tmp_path / "a/a-00009.mpr").unlink()
    with pytest.raises(RecordError, match=r"a-00009\.mpr: cannot be read: no such file"):
        open_records(tmp_path / "a", most=4)


def test_inspect(folder: Path, capsys):
    assert records.main(["inspect", str(folder)]) == 0
    mean, std = ("  ".join(f"{v:.6g}" for v in f(axis=(0, 2, 3))) for f in (IMAGES.mean, IMAGES.std))
    assert capsys.readouterr().out == (
        f"{folder}\n"
        "  name      set\n"
        "  records   10 raw images, uint8 (3, 2, 2)\n"
        "  classes   3, of 3 to 4 records each\n"
        "            x: 4, y: 3, z: 3\n"
        f"  mean      {mean}\n"
        f"  std       {std}\n"
        "  shards    3, 0.0 MB in all, from set-00000.mpr\n"
        "  source    a test\n"
        "            a.bin  md5 00\n"
    )


def test_verify_says_all_that_is_wrong(folder: Path, capsys):
    assert records.main(["verify", str(folder), str(folder / "set-00002.mpr")]) == 0
    assert capsys.readouterr().out == (
        f"{folder}: 10 records, all intact\n{folder}/set-00002.mpr: 2 records, all intact\n"
    )
    flip(folder / "set-00000.mpr", 64)
    flip(folder / "set-00000.mpr", 64 + 3 * 12)
    flip(folder / "set-00001.mpr", 8)
    shutil.copy(folder / "set-00002.mpr", folder / "set-00009.mpr")
    assert records.main(["verify", str(folder), "nowhere"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    starts = [
        f"error: {folder}/set-00000.mpr: record 0: checksum is ",
        f"error: {folder}/set-00000.mpr: record 3: checksum is ",
        f"error: {folder}/set-00001.mpr: has version 0, this mpibow reads version 1; ",
        f"error: {folder}/set-00009.mpr: is not in the manifest; remove it",
        "error: nowhere: there is no such file or folder",
    ]
    assert len(err.splitlines()) == len(starts)
    for line, start in zip(err.splitlines(), starts, strict=True):
        assert line.startswith(start)


def test_verify_tells_how_far_it_is(folder: Path):
    flip(folder / "set-00000.mpr", 64)
    checked = []
    assert len(list(verify.damages(folder, checked.append))) == 1
    assert sum(checked) == verify.size(folder) == 10


def test_verify_without_a_manifest_still_reads_the_shards(folder: Path, capsys):
    (folder / "manifest.json").unlink()
    flip(folder / "set-00002.mpr", 64)
    assert records.main(["verify", str(folder)]) == 3
    first, second = capsys.readouterr().err.splitlines()
    assert "has no manifest.json" in first
    assert "set-00002.mpr: record 0: " in second


def test_verify_lists_no_more_than_twenty(tmp_path, capsys):
    folder = write(tmp_path / "a", np.zeros((30, 1, 1, 1), np.uint8), np.zeros(30, int), shard_size=1 << 20)
    path = folder / "a-00000.mpr"
    path.write_bytes(path.read_bytes()[:64] + b"\x01" * 30 + path.read_bytes()[94:])
    assert records.main(["verify", str(folder)]) == 3
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 21
    assert lines[-1] == f"error: {folder}: and 10 more"


def test_reading_checks_every_time(folder: Path):
    data = open_records(folder)
    flip(folder / "set-00001.mpr", 64 + 12)  # sample 5, through the page cache
    assert np.array_equal(read(data, [4])[0], IMAGES[4:5])
    for attempt in (lambda: read(data, [4, 5]), lambda: data.record(5)):
        with pytest.raises(RecordError, match=r"set-00001\.mpr: record 1: checksum is 0x"):
            attempt()


CUT = """
import os, sys
import numpy as np
from mpibow.data.recordset import open_records
from mpibow.errors import DamagedRecord, RecordError

data = open_records(sys.argv[1])
path = data.shard(0).path
size = path.stat().st_size
os.truncate(path, size // 2)
images, labels = np.zeros((1, *data.shape), data.dtype), np.zeros(1, np.int32)
for attempt in (lambda: data.read(np.array([data.count - 1]), images, labels), lambda: data.record(0)):
    try:
        attempt()
    except DamagedRecord:
        sys.exit("a sample that may be replaced")
    except RecordError as error:
        print(error)
"""


def test_a_file_that_is_cut_short_is_named(tmp_path):
    """In a process of its own: what it reads would be a bus error."""
    pixels = np.random.default_rng(0).integers(0, 255, (40, 3, 32, 32)).astype(np.uint8)
    write_records(tmp_path / "set", [(image, 0) for image in pixels], classes=1)
    size = (tmp_path / "set/set-00000.mpr").stat().st_size
    done = subprocess.run(
        [sys.executable, "-c", CUT, str(tmp_path / "set")], capture_output=True, text=True, timeout=720
    )
    assert done.returncode == 0, done
    assert done.stdout.splitlines() == [
        f"{tmp_path / 'set/set-00000.mpr'}: was cut short while it was read: it has {size // 2:,} bytes, had {size:,}; "
        "copy the file or convert the data again"
    ] * 2  # fmt: skip


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_was_replaced_stays_as_it_was(folder: Path, how):
    data = open_records(folder)
    path = data.shard(0).path
    path.unlink()
    if how == "replaced":
        path.write_bytes(b"short")
    assert np.array_equal(read(data, [0])[0], IMAGES[:1])
