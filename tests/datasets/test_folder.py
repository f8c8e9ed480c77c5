"""Folders of images as records: real JPEG files where they are, small ones made by Pillow everywhere."""

from __future__ import annotations

import csv
import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mpibow.convert import tree
from mpibow.data.recordset import RecordSet, open_records
from mpibow.errors import RecordError
from tests.datasets.scripts import ROOT, script

folder = script("folder")
SAMPLE = ROOT.parent / "shared" / "data" / "imagenet-sample" / "imagenet-1000class-400smallest.tar"


def image(number: int, form: str = "JPEG", mode: str = "RGB", size: tuple[int, int] = (8, 6)) -> bytes:
    """Height and width 8 and 6; flat, so that a JPEG decodes to the same value."""
    data = BytesIO()
    Image.new("L", size[::-1], number).convert(mode).save(data, form)
    return data.getvalue()


def write(path: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


SMALL = {f"{name}/{n}.jpg": image(20 * n + i) for i, name in enumerate(("cat", "dog")) for n in range(3)}


def run(source: Path, *words: str) -> int:
    return folder.main(["--source", str(source), "--output", str(source.parent / "output"), "--workers", "1", *words])


def refusal(source: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The message; nothing may be left behind."""
    assert run(source, *words) == 3
    assert not list(source.parent.glob("*output*"))
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    return error.removeprefix("error: ").removesuffix("\n")


def opened(source: Path, part: str = "train") -> RecordSet:
    return open_records(source.parent / "output" / part)


def records(source: Path, part: str = "train") -> list[tuple[bytes, int]]:
    data = opened(source, part)
    return [data.record(sample) for sample in range(data.count)]


@pytest.mark.skipif(not SAMPLE.is_file(), reason="../shared/data/imagenet-sample, real JPEG files, is not there")
def test_real_images_grouped_into_classes(tmp_path: Path) -> None:
    """64 of ImageNet's images, four synsets a class."""
    with tarfile.open(SAMPLE) as archive:
        rows = list(csv.DictReader(io.TextIOWrapper(archive.extractfile("labels.csv"))))[:64]
        bytes_ = {row["file"]: archive.extractfile(row["file"]).read() for row in rows}
    source = write(tmp_path / "in", {f"{row['synset']}/{row['file']}": bytes_[row["file"]] for row in rows})
    (tmp_path / "classes.txt").write_text(
        "".join(f"{row['synset']}\tgroup {number // 4}\n" for number, row in enumerate(rows))
    )
    assert run(source, "--classes", str(tmp_path / "classes.txt"), "--workers", "2") == 0
    data = opened(source)
    assert (data.count, data.classes, data.manifest.form.encoding) == (64, 16, "jpeg")
    assert data.manifest.class_names == tuple(f"group {number}" for number in range(16))
    expected = {bytes_[row["file"]]: number // 4 for number, row in enumerate(rows)}
    assert dict(records(source)) == expected
    pixels = [np.asarray(Image.open(BytesIO(one)).convert("RGB")).reshape(-1, 3) for one in bytes_.values()]
    assert data.mean == pytest.approx(np.concatenate(pixels).mean(axis=0))
    assert data.std == pytest.approx(np.concatenate(pixels).std(axis=0))

    assert run(source, "--encode", "raw", "--size", "20x30", "--overwrite") == 0
    data = opened(source)
    assert (data.shape, data.classes) == ((3, 20, 30), 64)
    row = sorted(rows, key=lambda row: row["file"])[7]
    small = Image.open(BytesIO(bytes_[row["file"]])).convert("RGB").resize((30, 20), Image.Resampling.BILINEAR)
    assert data.record(7)[0] == np.asarray(small).transpose(2, 0, 1).tobytes()


@pytest.mark.parametrize(("form", "suffix"), [("JPEG", "jpg"), ("JPEG", "JPEG"), ("PNG", "png")])
def test_bytes_are_kept(tmp_path: Path, form: str, suffix: str) -> None:
    files = {f"{name}/{n}.{suffix}": image(10 * n + i, form) for i, name in enumerate("ab") for n in range(2)}
    source = write(tmp_path / "in", files)
    assert run(source) == 0
    assert records(source) == [(image(0, form), 0), (image(1, form), 1), (image(10, form), 0), (image(11, form), 1)]
    known = opened(source).manifest
    assert (known.form.encoding, known.class_names) == (form.lower(), ("a", "b"))
    assert known.source == "images in folders, a folder a class"
    assert list(known.sources) == ["train, 4 images"]
    assert not (tmp_path / "output" / "test").exists()


@pytest.mark.parametrize("test", ["test", "val", "validation"])
def test_parts(tmp_path: Path, test: str) -> None:
    source = write(tmp_path / "in", {f"train/{name}": data for name, data in SMALL.items()})
    write(source, {f"{test}/cow/0.png.jpg": image(99), f"{test}/dog/deeper/still/x.jpg": image(98)})
    assert run(source) == 0
    assert opened(source).classes == 3  # of both parts
    assert [label for _, label in records(source)] == [0, 2] * 3  # cat, cow, dog
    assert records(source, "test") == [(image(99), 1), (image(98), 2)]


def test_which_folder_is_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in", {f"{part}/a/x.jpg": image(i) for i, part in enumerate(["train", "test", "val"])})
    assert refusal(source, capsys) == (
        f"{source}: has the folders test, val; choose the one to test on by --test-folder"
    )
    assert refusal(source, capsys, "--test-folder", "dev") == f"{source}: has no folder dev (--test-folder)"
    assert refusal(source, capsys, "--test-folder=val", "--test-fraction=0.5") == (
        f"{source}/val: is the test part already; leave out --test-fraction"
    )
    assert run(source, "--test-folder", "val") == 0
    assert records(source, "test") == [(image(2), 0)]


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"train/x.jpg": image(1), "bus/x.jpg": image(2)})
    assert run(source) == 0
    assert records(source) == [(image(2), 0), (image(1), 1)]


def test_a_fraction_becomes_test(tmp_path: Path) -> None:
    files = {f"{name}/{n}.jpg": image(20 * n + i) for i, name in enumerate("ab") for n in range(10)}
    source = write(tmp_path / "in", files)
    assert run(source, "--test-fraction", "0.2") == 0
    test = records(source, "test")
    assert [sum(label == i for _, label in test) for i in range(2)] == [2, 2]
    assert sorted(test + records(source)) == sorted((data, int(name[0] == "b")) for name, data in files.items())
    assert opened(source).manifest.source.endswith("; test: 0.2 of every class, seed 1")
    write(source, {"a/more.jpg": image(250)})
    assert run(source, "--test-fraction", "0.2", "--overwrite") == 0
    assert len({data for data, _ in test} - {data for data, _ in records(source, "test")}) <= 1  # it is stable
    assert run(source, "--test-fraction", "0.2", "--overwrite", "--seed", "2") == 0
    assert records(source, "test") != test


MIXED = {"a/1.jpg": image(10), "a/2.png": image(20, "PNG"), "b/3.bmp": image(30, "BMP", "L"), "b/4.jpeg": image(40)}


def test_mixtures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in", MIXED)
    assert refusal(source, capsys) == (
        f"{source}: images are 2 JPEG, 1 PNG, 1 BMP, records are all JPEG or all PNG; "
        "pass --encode jpeg, --encode png (which loses nothing) or --encode raw"
    )
    for encode in ("jpeg", "png"):
        assert run(source, "--encode", encode, "--overwrite") == 0
        made = records(source)
        assert [label for _, label in made] == [0, 0, 1, 1]
        for (name, data), (one, _) in zip(MIXED.items(), made, strict=True):
            decoded = Image.open(BytesIO(one))
            assert decoded.format == encode.upper()
            assert decoded.mode == ("L" if name == "b/3.bmp" else "RGB")
            assert np.array_equal(np.asarray(decoded), np.asarray(Image.open(BytesIO(data))))
            kept = Image.open(BytesIO(data)).format == encode.upper()
            assert (one == data) == kept
            assert (name in opened(source).manifest.sources) == (not kept)
    assert run(source, "--encode", "raw", "--overwrite") == 0
    assert opened(source).shape == (3, 8, 6)
    assert [np.unique(np.frombuffer(one, np.uint8)).tolist() for one, _ in records(source)] == [[10], [20], [30], [40]]


def test_only_another_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in", {"a/1.gif": image(1, "GIF", "P")})
    assert refusal(source, capsys) == (
        f"{source}: images are 1 GIF, records are all JPEG or all PNG; "
        "pass --encode jpeg, --encode png (which loses nothing) or --encode raw"
    )


def test_raw_images_have_one_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in", {"a/1.jpg": image(1, mode="L"), "a/2.jpg": image(2, mode="L", size=(5, 4))})
    assert refusal(source, capsys, "--encode=raw") == (
        f"raw images have one size, {source}/a/1.jpg has 8x6 and {source}/a/2.jpg 5x4; pass --size HEIGHTxWIDTH"
    )
    assert run(source, "--encode=raw", "--size=3x7", "--crop") == 0
    data = opened(source)
    assert (data.shape, data.mean, data.std) == ((1, 3, 7), (1.5,), (0.5,))  # all are grey: one channel
    assert data.manifest.source == "images in folders, a folder a class; sides 3x7, cropped"


def test_an_image_of_another_kind_than_its_name_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in", {"a/1.jpg": image(1), "a/2.jpg": image(2, mode="CMYK")})
    assert run(source) == 0
    assert "1 images of train were encoded again, the manifest names them\n" in capsys.readouterr().out
    assert Image.open(BytesIO(records(source)[1][0])).mode == "RGB"
    assert opened(source).manifest.sources["a/2.jpg"].endswith(", CMYK JPEG, encoded again")


def test_damaged_images_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in", SMALL | {"cat/9.jpg": b"<html>"})
    assert refusal(source, capsys) == f"{source}/cat/9.jpg: cannot be decoded: it is no image that Pillow reads"
    noise = np.random.default_rng(1).integers(0, 256, (40, 40), dtype=np.uint8)
    whole = BytesIO()
    Image.fromarray(noise).save(whole, "JPEG")
    write(source, {"cat/9.jpg": whole.getvalue()[:-200]})
    assert refusal(source, capsys).startswith(f"{source}/cat/9.jpg: cannot be decoded: image file is truncated")
    assert refusal(source, capsys, "--encode=raw", "--size=4x4").startswith(f"{source}/cat/9.jpg: cannot be decoded: ")
    write(source, {"cat/9.jpg": b"", "dog/8.jpg": b""})
    assert refusal(source, capsys) == (f"{source}/dog/8.jpg\n{source}/cat/9.jpg: empty, no image; remove or get again")


def test_other_files_are_left_out_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(
        tmp_path / "in", SMALL | {"cat/a.txt": b"1", "cat/b.txt": b"", "dog/README": b"", "cat/.hidden": b""}
    )
    write(source, {"list.csv": b"", ".git/x.jpg": b""})
    assert run(source) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == f"{source}: 3 files are not images and are left out: 2 .txt, 1 README"
    assert opened(source).count == 6


def test_links_are_followed_once(tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "elsewhere", {"x/1.jpg": image(1)})
    source = write(tmp_path / "in", {"a/2.jpg": image(2)})
    (source / "b").symlink_to(elsewhere / "x")
    (source / "a" / "3.jpg").symlink_to(elsewhere / "x" / "1.jpg")
    (source / "a" / "round").symlink_to(source / "a")
    assert run(source) == 0
    assert records(source) == [(image(1), 1), (image(2), 0), (image(1), 0)]


def test_a_link_to_nothing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in", SMALL)
    (source / "cat" / "x.jpg").symlink_to("nowhere")
    assert refusal(source, capsys) == f"{source}/cat/x.jpg: cannot be read: no such file or directory"


def test_class_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in", SMALL | {"ant/x.jpg": image(77)})
    table = tmp_path / "classes.txt"
    table.write_text("dog\tpet\n\nant\tother\ncat\tpet\nemu\tbird\n")
    assert run(source, "--classes", str(table)) == 0
    known = opened(source).manifest
    assert known.class_names == ("pet", "other", "bird")  # as they come in the file
    assert known.source == "images in folders, a folder a class, classes.txt names classes"
    assert sorted(label for _, label in records(source)) == [0] * 6 + [1]
    os.rename(tmp_path / "output", tmp_path / "kept")
    for text, message in (
        ("dog\tpet\n", f"{source}: --classes has no line for 2 of its folders: ant, cat; add or move them"),
        ("dog pet\n", f"{table}: line 1: must be folder, tab, class, got 'dog pet'"),
        ("dog\t \n", f"{table}: line 1: must be folder, tab, class, got 'dog '"),
        ("dog\ta\ndog\tb\n", f"{table}: line 2: dog is there already, of class a"),
        ("\n", f"{table}: has no lines of folder, tab, class"),
    ):
        table.write_text(text)
        assert refusal(source, capsys, "--classes", str(table)) == message
    table.write_bytes(b"\xff")
    assert refusal(source, capsys, "--classes", str(table)).startswith(f"{table}: line 1: byte 0xff is not text")
    table.unlink()
    assert refusal(source, capsys, "--classes", str(table)) == f"{table}: cannot be read: no such file or directory"


def test_sources_without_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in"
    assert refusal(source, capsys) == f"{source}: there is no such folder"
    source.mkdir()
    assert refusal(source, capsys) == f"{source}: has no folders, a folder a class of images was expected"
    (source / "a").mkdir()
    assert refusal(source, capsys) == f"{source}: has no images in its folders"
    write(source, {"a/1.jpg": image(1)})
    assert (
        refusal(source, capsys, "--test-fraction=0.9")
        == f"{source}: --test-fraction 0.9 of 1 images is none; take more"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size=4x4"], "--size needs --encode, usually raw"),
        (["--encode=raw", "--crop"], "--crop needs --size"),
        (["--size=4", "--encode=raw"], "argument --size: must be HEIGHTxWIDTH, such as 64x64, got '4'"),
        (["--size=4x0", "--encode=raw"], "argument --size: must be at least 1, got 0"),
    ],
)
def test_options_that_do_not_fit(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    with pytest.raises(SystemExit):
        folder.main(["--source", "x", *words])
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: {message}")


def test_a_mapping_of_any_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\tb\tc\r\n")
    assert tree.mapping(tmp_path / "x") == {"a": "b\tc"}
    (tmp_path / "x").write_bytes(b"\0\n")
    with pytest.raises(RecordError):
        tree.mapping(tmp_path / "x")


def test_a_killed_converter_leaves_nothing_that_opens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in", SMALL)
    for number in range(3000):
        os.link(source / "cat" / "0.jpg", source / "cat" / f"more-{number}.jpg")
    script_ = ROOT / "datasets" / "folder.py"
    command = [sys.executable, script_, "--source", source, "--output", tmp_path / "output", "--workers", "1"]
    with subprocess.Popen(command) as converter:
        while not list(tmp_path.glob(".output.tmp-*/.train.tmp-*/*")) and converter.poll() is None:
            time.sleep(0.005)
        converter.send_signal(signal.SIGKILL)
    assert not (tmp_path / "output").exists()
    (left,) = tmp_path.glob(".output.tmp-*")
    for name in left.iterdir():
        with pytest.raises(RecordError):
            open_records(name)
    small = write(tmp_path / "small", SMALL)
    assert run(small) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        f"{left} is left from a conversion that was killed: unless one is running, remove it to free the space"
    )
    assert opened(small).count == 6
