"""Crossbow's ImageNet files as records: of real JPEGs where they are, of made ones everywhere."""

from __future__ import annotations

import csv
import hashlib
import io
import signal
import subprocess
import sys
import tarfile
import time
from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mpibow import records
from mpibow.convert.crossbow import index
from mpibow.data.recordset import open_records
from mpibow.errors import RecordError
from tests.datasets.scripts import ROOT, script

crossbow = script("crossbow")
SAMPLE = ROOT.parent / "shared" / "data" / "imagenet-sample" / "imagenet-1000class-400smallest.tar"
RANDOM = np.random.default_rng(8)
AGAIN = "get the file again"


def jpeg(height: int = 9, width: int = 7) -> bytes:
    file = io.BytesIO()
    Image.fromarray(RANDOM.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(file, "JPEG")
    return file.getvalue()


IMAGES = [(jpeg(9 + number, 7), 100 * number) for number in range(10)]


def integers(*values: int) -> bytes:
    return array("i", values).tobytes()  # in this machine's order


def record(image: bytes, label: int, boxes: int = 0) -> bytes:
    corners = array("f", [0.25] * 4 * boxes).tobytes()
    return integers(20 + 16 * boxes + len(image), label, boxes) + corners + integers(9, 7) + image


def write(path: Path, images: list[tuple[bytes, int]]) -> Path:
    """Every third image has a box, every fifth two more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = [record(*image, boxes=(number % 3 == 0) + 2 * (number % 5 == 0)) for number, image in enumerate(images)]
    path.write_bytes(integers(len(images)) + b"".join(body))
    return path


def source(folder: Path) -> list[str]:
    """Seven images to train, in two files, and three to test."""
    write(folder / "train" / "part-2", IMAGES[:4])
    write(folder / "train" / "part-10", IMAGES[4:7])
    write(folder / "test" / "part-1", IMAGES[7:])
    return ["--train", f"{folder}/train", "--test", f"{folder}/test", "--output", f"{folder}/output", "--workers", "1"]


def refusal(folder: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    """The message; nothing may be left behind."""
    assert crossbow.main(words) == 3
    assert not list(folder.glob("*output*"))
    return capsys.readouterr().err.removeprefix("error: ").removesuffix("\n")


def check(path: Path, images: list[tuple[bytes, int]]) -> None:
    data = open_records(path)
    assert (data.shape, data.classes, data.manifest.form.encoding) == ((), 1000, "jpeg")
    assert [data.record(sample) for sample in range(data.count)] == images


@pytest.mark.skipif(not SAMPLE.is_file(), reason="../shared/data/imagenet-sample, 400 JPEGs of ImageNet, is not there")
def test_imagenet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tarfile.open(SAMPLE) as tar:
        data = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}
    rows = csv.DictReader(io.StringIO(data["labels.csv"].decode()))
    images = [(data[row["file"]], int(row["class_index_0_based"])) for row in rows]
    for number in range(3):
        write(tmp_path / "old" / f"train-{number}", images[100 * number : 100 * (number + 1)])
    write(tmp_path / "old" / "val-0", images[300:])
    words = ["--train", f"{tmp_path}/old/train-*", "--test", f"{tmp_path}/old/val-0", "--output", f"{tmp_path}/output"]
    assert crossbow.main([*words, "--statistics", "60", "--workers", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "train: images turned upright by their Exif orientation: 1",
        f"{tmp_path}/output/train: 300 records of 1,000 classes, verified",
        f"{tmp_path}/output/test: 100 records of 1,000 classes, verified",
    ]
    check(tmp_path / "output" / "train", images[:300])
    check(tmp_path / "output" / "test", images[300:])
    train = open_records(tmp_path / "output" / "train")
    sample = [np.asarray(Image.open(io.BytesIO(image)).convert("RGB")).reshape(-1, 3) for image, _ in images[:300:5]]
    pixels = np.concatenate(sample).astype(float)
    assert train.mean == pytest.approx(pixels.mean(axis=0))
    assert train.std == pytest.approx(pixels.std(axis=0))
    assert 80 < min(train.mean) < max(train.mean) < 160  # all of ImageNet: 124, 116, 104 and 58, 57, 57
    assert 40 < min(train.std) < max(train.std) < 100


@pytest.mark.parametrize("workers", ["1", "2"])
def test_records_are_the_same_jpegs(tmp_path: Path, workers: str) -> None:
    assert crossbow.main([*source(tmp_path), "--workers", workers]) == 0
    check(tmp_path / "output" / "train", IMAGES[:7])  # part-2 comes before part-10
    check(tmp_path / "output" / "test", IMAGES[7:])
    manifest = open_records(tmp_path / "output" / "train").manifest
    assert manifest.source == (
        "ImageNet (Russakovsky et al., 2015), from the record files of Crossbow's release of 2019; "
        "mean and std are those of 7 and 3 of the images"
    )
    files = {path.name: path for path in (tmp_path / "train").iterdir()}
    assert manifest.sources == {name: "md5 " + hashlib.md5(files[name].read_bytes()).hexdigest() for name in files}


def test_statistics_of_some_images(tmp_path: Path) -> None:
    assert crossbow.main([*source(tmp_path), "--statistics", "2"]) == 0
    pixels = [np.asarray(Image.open(io.BytesIO(IMAGES[number][0]))).reshape(-1, 3) for number in (0, 3)]  # of 0 to 6
    mean = np.concatenate(pixels).mean(axis=0)
    assert open_records(tmp_path / "output" / "train").mean == pytest.approx(mean)


def test_an_image_that_cannot_be_decoded_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = source(tmp_path)
    broken = IMAGES[5][0][:-200]
    write(tmp_path / "train" / "part-10", [IMAGES[4], (broken, 5), IMAGES[6]])
    for workers in ("1", "2"):
        found = refusal(tmp_path, capsys, [*words, "--workers", workers])
        assert found.startswith(f"{tmp_path}/train/part-10: record 1: cannot be decoded: ")


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    words = source(tmp_path)
    write(tmp_path / "more" / "part-2", IMAGES[:1])
    words[1] = f"{tmp_path}/[mt]*r*/part-2"
    assert crossbow.main(words) == 0
    sources = open_records(tmp_path / "output" / "train").manifest.sources
    assert sorted(sources) == [f"{tmp_path}/more/part-2", f"{tmp_path}/train/part-2"]


def test_a_folder_of_both_parts(tmp_path: Path) -> None:
    words = source(tmp_path)
    assert crossbow.main(["--source", str(tmp_path), *words[4:]]) == 0
    check(tmp_path / "output" / "train", IMAGES[:7])
    check(tmp_path / "output" / "test", IMAGES[7:])


def test_files_to_train_and_to_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = source(tmp_path)
    words[1] = str(tmp_path / "t*" / "*")
    assert refusal(tmp_path, capsys, words) == (
        f"{tmp_path}/test/part-1: is both to train and to test; give other files to --train or --test"
    )


FAKE = b"\xff\xd8\xff\xe0...."
ONE = integers(1) + record(FAKE, 7, boxes=1)


def damaged(**fields: int) -> bytes:
    """`ONE` with other numbers."""
    values = {"count": 1, "length": 44, "label": 7, "boxes": 1} | fields
    return integers(*values.values()) + ONE[16:]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", f"ends within its first field; {AGAIN}"),
        (damaged(count=0), f"has 0 records by its first field, a file has 1 to 2048; {AGAIN}"),
        (damaged(count=2049), f"has 2049 records by its first field, a file has 1 to 2048; {AGAIN}"),
        (damaged(count=-1), f"has -1 records by its first field, a file has 1 to 2048; {AGAIN}"),
        (damaged(count=2), f"ends within record 1; {AGAIN}"),
        (ONE + b"\0", f"goes on for 1 bytes after its last record, 0; {AGAIN}"),
        (damaged(length=36), f"record 0: length is 36, with 1 boxes it is above 36; {AGAIN}"),
        (damaged(length=-44), f"record 0: length is -44, with 1 boxes it is above 36; {AGAIN}"),
        (damaged(length=45), f"record 0: goes on to byte 49, the file ends at 48; {AGAIN}"),
        (damaged(length=43), f"goes on for 1 bytes after its last record, 0; {AGAIN}"),
        (damaged(boxes=-1), f"record 0: length is 44, it has -1 boxes; {AGAIN}"),
        (damaged(boxes=2), f"record 0: length is 44, with 2 boxes it is above 52; {AGAIN}"),
        (damaged(boxes=2**31 - 1), f"record 0: length is 44, with 2147483647 boxes it is above 34359738372; {AGAIN}"),
        (damaged(label=1000), f"record 0: label is 1000, it lies in [0, 1000); {AGAIN}"),
        (damaged(label=-1), f"record 0: label is -1, it lies in [0, 1000); {AGAIN}"),
        (
            integers(2) + record(FAKE, 1) + record(b"GIF89a", 2),
            f"record 1: its image starts with 47 49 46 38, a JPEG with ff d8 ff; {AGAIN}",
        ),
    ],
)
def test_bad_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, message: str) -> None:
    words = source(tmp_path)
    (tmp_path / "test" / "part-1").write_bytes(data)
    assert refusal(tmp_path, capsys, words) == f"{tmp_path}/test/part-1: {message}"


def test_what_the_tests_write_is_right(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(ONE)
    found = index(path)
    assert (found.starts.tolist(), found.sizes.tolist(), found.labels.tolist()) == ([40], [8], [7])
    assert len(ONE) == 48
    path.write_bytes(integers(2048) + record(FAKE, 999) * 2048)
    assert index(path).labels.tolist() == [999] * 2048
    path.write_bytes(integers(1) + record(b"\x89PNG\r\n\x1a\n", 0))  # ImageNet has one
    assert index(path).sizes.tolist() == [8]


def test_truncated_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "a"
    whole = integers(3) + record(FAKE, 1) + record(FAKE, 2, boxes=2) + record(FAKE, 3)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(RecordError):
            index(path)
    path.write_bytes(whole)
    assert index(path).labels.tolist() == [1, 2, 3]


@given(st.binary(max_size=40), st.integers(0, 100))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, rubbish: bytes, at: int) -> None:
    path = tmp_path_factory.mktemp("any") / "a"
    start = integers(2) + record(FAKE, 1) + record(FAKE, 2, boxes=1)
    for data in (rubbish, start[:at] + rubbish + start[at + len(rubbish) :]):
        path.write_bytes(data)
        try:
            found = index(path)
            assert (found.starts + found.sizes).max() == len(data)
        except RecordError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017


def test_arguments_and_an_existing_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = source(tmp_path)
    for name in ("statistics", "workers"):
        with pytest.raises(SystemExit) as caught:
            crossbow.main([*words, f"--{name}", "0"])
        assert caught.value.code == 2
        assert capsys.readouterr().err.endswith(f"error: argument --{name}: must be at least 1, got 0\n")
    assert crossbow.main(words) == 0
    assert crossbow.main(words) == 3
    message = f"error: {tmp_path}/output: exists already; overwrite it (--overwrite) or choose another name\n"
    assert capsys.readouterr().err == message
    assert crossbow.main([*words, "--overwrite"]) == 0
    assert records.main(["verify", f"{tmp_path}/output/train", f"{tmp_path}/output/test"]) == 0


def test_a_killed_converter_leaves_nothing_that_opens(tmp_path: Path) -> None:
    words = source(tmp_path)
    write(tmp_path / "train" / "part-2", [(IMAGES[0][0], 0)] * 2048)
    for number in range(3, 30):
        (tmp_path / "train" / f"more-{number}").symlink_to("part-2")
    command = [sys.executable, ROOT / "datasets" / "crossbow.py", *words, "--statistics", "1"]
    with subprocess.Popen(command) as converter:
        while not list(tmp_path.glob(".output.tmp-*/.train.tmp-*/*")) and converter.poll() is None:
            time.sleep(0.01)
        converter.send_signal(signal.SIGKILL)
    assert converter.returncode == -signal.SIGKILL
    assert not (tmp_path / "output").exists()
    for left in tmp_path.glob(".output.tmp-*/*"):
        with pytest.raises(RecordError):
            open_records(left)
    for number in range(3, 30):
        (tmp_path / "train" / f"more-{number}").unlink()
    assert crossbow.main(words) == 0
