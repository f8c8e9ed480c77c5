"""Crossbow's ImageNet files as records: of real JPEGs where they are, of made ones everywhere."""

import hashlib
import io
from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from mpibow.convert.crossbow import index
from mpibow.data import open_records
from mpibow.errors import RecordError
from tests.data.photos import encode
from tests.datasets.scripts import Converter, records, script

crossbow = script("crossbow")
convert = Converter(crossbow)
RANDOM = np.random.default_rng(8)
AGAIN = "get the file again"


def jpeg(height: int = 9, width: int = 7) -> bytes:
    return encode(Image.fromarray(RANDOM.integers(0, 256, (height, width, 3), dtype=np.uint8)))


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
    return convert.refusal(folder, capsys, *words)


def check(path: Path, images: list[tuple[bytes, int]]) -> None:
    data = open_records(path)
    assert (data.shape, data.classes, data.manifest.form.encoding) == ((), 1000, "jpeg")
    assert records(path) == images


@pytest.mark.parametrize("workers", ["1", "2"])
def test_records_are_the_same_jpegs(tmp_path, workers):
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


def test_statistics_of_some_images(tmp_path):
    assert crossbow.main([*source(tmp_path), "--statistics", "2"]) == 0
    pixels = [np.asarray(Image.open(io.BytesIO(IMAGES[number][0]))).reshape(-1, 3) for number in (0, 3)]  # of 0 to 6
    mean = np.concatenate(pixels).mean(axis=0)
    assert open_records(tmp_path / "output" / "train").mean == pytest.approx(mean)


def test_an_image_that_cannot_be_decoded_is_named(tmp_path, capsys):
    words = source(tmp_path)
    broken = IMAGES[5][0][:-200]
    write(tmp_path / "train" / "part-10", [IMAGES[4], (broken, 5), IMAGES[6]])
    for workers in ("1", "2"):
        found = refusal(tmp_path, capsys, [*words, "--workers", workers])
        assert found.startswith(f"{tmp_path}/train/part-10: record 1: cannot be decoded: ")


def test_files_of_one_name_are_told_apart(tmp_path):
    words = source(tmp_path)
    write(tmp_path / "more" / "part-2", IMAGES[:1])
    words[1] = f"{tmp_path}/[mt]*r*/part-2"
    assert crossbow.main(words) == 0
    sources = open_records(tmp_path / "output" / "train").manifest.sources
    assert sorted(sources) == [f"{tmp_path}/more/part-2", f"{tmp_path}/train/part-2"]


def test_a_folder_of_both_parts(tmp_path):
    words = source(tmp_path)
    assert crossbow.main(["--source", str(tmp_path), *words[4:]]) == 0
    check(tmp_path / "output" / "train", IMAGES[:7])
    check(tmp_path / "output" / "test", IMAGES[7:])


def test_files_to_train_and_to_test(tmp_path, capsys):
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
def test_bad_files_are_named(tmp_path, capsys, data, message):
    words = source(tmp_path)
    (tmp_path / "test" / "part-1").write_bytes(data)
    assert refusal(tmp_path, capsys, words) == f"{tmp_path}/test/part-1: {message}"


def test_truncated_at_every_byte(tmp_path):
    path = tmp_path / "a"
    whole = integers(3) + record(FAKE, 1) + record(FAKE, 2, boxes=2) + record(FAKE, 3)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(RecordError):
            index(path)
    path.write_bytes(whole)
    assert index(path)[0].labels.tolist() == [1, 2, 3]


@given(st.binary(max_size=40), st.integers(0, 100))
def test_any_bytes(tmp_path_factory, rubbish, at):
    path = tmp_path_factory.mktemp("any") / "a"
    start = integers(2) + record(FAKE, 1) + record(FAKE, 2, boxes=1)
    for data in (rubbish, start[:at] + rubbish + start[at + len(rubbish) :]):
        path.write_bytes(data)
        try:
            group, _ = index(path)
            assert (group.starts + group.sizes).max() == len(data)
        except RecordError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017
