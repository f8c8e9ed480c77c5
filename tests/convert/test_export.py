"""The way back: what is exported as TFRecords or folders and converted again is the same, byte for byte."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mpibow import records
from mpibow.convert import export
from mpibow.convert.export import class_folders
from mpibow.data import RecordSet, aside, open_records, write_records
from mpibow.errors import RecordError
from tests.convert.examples import crc, example
from tests.data.photos import encode
from tests.data.sets import flip
from tests.datasets.scripts import script, stored
from tests.refusals import refusal_of, refuses

RANDOM = np.random.default_rng(5)
LABELS = [2, 0, 1, 1, 0, 2, 0, 0, 1, 2, 2]
RAW = RANDOM.integers(0, 256, (11, 3, 4, 5), dtype=np.uint8)


IMAGES = {
    "jpeg": [encode(Image.fromarray(image.transpose(1, 2, 0))) for image in RAW],
    "png": [encode(Image.fromarray(image.transpose(1, 2, 0)), "PNG") for image in RAW],
    "grey": list(RAW[:, :1]),
    "rgb": list(RAW),
    "two channels": list(RAW[:, :2]),
    "float": list(RAW.astype(np.float32) / 7),
}


def data_set(path: Path, kind: str, names: tuple[str, ...] = ("ant", "bee", "cat")) -> RecordSet:
    options = {"encoding": kind, "moments": ([1.0] * 3, [1.0] * 3)} if kind in ("jpeg", "png") else {}
    samples = zip(IMAGES[kind], LABELS, strict=True)
    write_records(path, samples, classes=3, class_names=names, shard_size=300, **options)
    return open_records(path)


def run(path: Path, to: str, *words: str) -> Path:
    output = path.parent / "exported"
    assert records.main(["export", str(path), "--to", to, "--output", str(output), *words]) == 0
    return output


def back(output: Path, name: str, *words: str) -> RecordSet:
    again = output.parent / "again"
    source = ["--train", f"{output}/*.tfrecord"] if name == "tfrecord" else ["--source", str(output)]
    assert script(name).main([*source, "--output", str(again), "--workers", "1", *words]) == 0
    return open_records(again / "train")


@pytest.mark.parametrize("kind", IMAGES)
@pytest.mark.parametrize("names", [("ant", "bee", "cat"), ("cat", "ant", "bee"), ()])
def test_tfrecord_and_back(tmp_path, kind, names, capsys):
    data = data_set(tmp_path / "set", kind, names)
    output = run(tmp_path / "set", "tfrecord")
    assert capsys.readouterr().out == f"{output}: 11 records of 3 classes\n"
    assert os.listdir(output) == ["set-00000-of-00001.tfrecord"]
    again = back(output, "tfrecord", "--name-feature", "image/class/text")
    assert stored(again) == stored(data)
    assert (again.manifest.form, again.manifest.class_names, again.classes) == (data.manifest.form, names, 3)


@pytest.mark.parametrize("kind", ["jpeg", "png", "grey", "rgb"])
def test_folder_and_back(tmp_path, kind):
    data = data_set(tmp_path / "set", kind)
    output = run(tmp_path / "set", "folder")
    suffix = "JPEG" if kind == "jpeg" else "png"
    found = sorted(path.relative_to(output).as_posix() for path in output.rglob("*.*"))
    assert found == sorted(
        ["classes.txt", *(f"{['ant', 'bee', 'cat'][label]}/{i:02d}.{suffix}" for i, label in enumerate(LABELS))]
    )
    again = back(output, "folder", *(["--encode", "raw"] if kind in ("grey", "rgb") else []))
    assert stored(again) == stored(data)  # order and labels too
    assert again.manifest.class_names == ("ant", "bee", "cat")
    assert again.manifest.form == data.manifest.form


def test_classes_that_do_not_sort_keep_their_numbers(tmp_path):
    data = data_set(tmp_path / "set", "png", ("../cat", "a  b", "bee"))
    output = run(tmp_path / "set", "folder")
    assert sorted(os.listdir(output)) == ["0_.._cat", "1_a_b", "2_bee", "classes.txt"]
    assert (output / "classes.txt").read_text() == "0_.._cat\t../cat\n1_a_b\ta b\n2_bee\tbee\n"
    again = back(output, "folder")
    assert stored(again) == stored(data)
    again = back(output, "folder", "--classes", str(output / "classes.txt"), "--overwrite")
    assert stored(again) == stored(data)
    assert again.manifest.class_names == ("../cat", "a b", "bee")


@pytest.mark.parametrize(
    ("names", "folders"),
    [
        ((), ["0", "1"]),
        (("a", "b c"), ["a", "b c"]),
        (("b", "a"), ["0_b", "1_a"]),  # would sort otherwise
        (("A", "a"), ["0_A", "1_a"]),  # one folder on some file systems
        (("a", "a"), ["0_a", "1_a"]),
        (("a/b", "c"), ["0_a_b", "1_c"]),
        ((".", ".."), ["0_.", "1_.."]),
        (("", "x"), ["0_", "1_x"]),
        (("a", "b" * 300), ["0_a", "1_" + "b" * 100]),
        (("a\tb", "c"), ["0_a_b", "1_c"]),
        ((" a", "b"), ["0__a", "1_b"]),
    ],
)
def test_names_of_folders(names, folders):
    assert class_folders(names, 2) == folders
    assert sorted(folders) == folders


@pytest.mark.parametrize("kind", ["float", "two channels"])
def test_other_arrays_become_npy(tmp_path, kind):
    data_set(tmp_path / "set", kind)
    output = run(tmp_path / "set", "folder")
    for number, label in enumerate(LABELS):
        array = np.load(output / ["ant", "bee", "cat"][label] / f"{number:02d}.npy", allow_pickle=False)
        assert array.dtype == IMAGES[kind][number].dtype
        assert np.array_equal(array, IMAGES[kind][number])


def test_tfrecord_bytes_by_hand(tmp_path):
    write_records(tmp_path / "set", [(RAW[0], 1), (RAW[1], 0)], classes=2, class_names=["x", "y"])
    output = run(tmp_path / "set", "tfrecord", "--first-label", "1")
    file, at = (output / "set-00000-of-00001.tfrecord").read_bytes(), 0
    for image, label in ((RAW[0], 1), (RAW[1], 0)):
        data = example(  # sorted by name
            image_class_label=[label + 1],
            image_class_text=[b"xy"[label : label + 1]],
            image_dtype=[b"uint8"],
            image_encoded=[image.tobytes()],
            image_format=[b"raw"],
            image_shape=[3, 4, 5],
        )
        length = struct.pack("<Q", len(data))
        frame = length + struct.pack("<I", crc(length)) + data + struct.pack("<I", crc(data))
        assert file[at : at + len(frame)] == frame
        at += len(frame)
    assert at == len(file)


@pytest.mark.parametrize("to", ["tfrecord", "folder"])
def test_what_cannot_be_exported(tmp_path, to, capsys):
    data_set(tmp_path / "set", "png")
    taken = tmp_path / "taken"
    taken.mkdir()
    words = ["export", str(tmp_path / "set"), "--to", to, "--output"]
    assert records.main([*words, str(taken)]) == 0  # it was empty
    capsys.readouterr()
    before = sorted(os.listdir(taken))
    assert records.main([*words, str(taken)]) == 3
    assert capsys.readouterr().err == f"error: {taken}: exists already; choose another name\n"
    assert sorted(os.listdir(taken)) == before
    assert records.main(["export", str(tmp_path / "no"), "--to", to, "--output", str(tmp_path / "x")]) == 3
    assert capsys.readouterr().err == (f"error: {tmp_path}/no: there is no such folder; convert the data to it first\n")
    write_records(tmp_path / "text", [(np.zeros((1, 1, 8), np.uint8), 0)], classes=1, contents={"kind": "text"})
    assert records.main(["export", str(tmp_path / "text"), "--to", to, "--output", str(tmp_path / "x")]) == 3
    assert capsys.readouterr().err == f"error: {tmp_path}/text: holds text; images with a class each can be exported\n"
    (shard, *_) = sorted((tmp_path / "set").glob("*.mpr"))
    flip(shard, 70)
    assert records.main([*words, str(tmp_path / "x")]) == 3
    assert "checksum is 0x" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["set", "taken", "text"]  # all or nothing


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    data = data_set(tmp_path / "set", "png")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with refuses(f"{tmp_path}/x: cannot be written: no space left on device", RecordError):
        export.to_folder(data, tmp_path / "x")
    monkeypatch.setattr(aside.os, "fsync", full)
    assert refusal_of(export.to_tfrecord, data, tmp_path / "x").endswith("cannot be written: no space left on device")
    assert os.listdir(tmp_path) == ["set"]
