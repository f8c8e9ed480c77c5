"""ImageNet in all its forms as records: made small on the spot, and from real images where they are."""

import csv
import io
import os
import tarfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mpibow.convert.imagenet import FORMS
from mpibow.data import open_records
from tests.convert.examples import example, write as write_tfrecord, write_index
from tests.data.photos import encode
from tests.datasets.scripts import ROOT, Converter, flat as image, records_of as records, script, write as files

imagenet = script("imagenet")
convert = Converter(imagenet, ("--workers", "1"))
run, refusal = convert.of, convert.refusal_of
SAMPLE = ROOT.parent / "shared" / "data" / "imagenet-sample"
A, B, C = "n00000001", "n00000005", "n00000007"
KNOWN = "imagenet_2012_validation_synset_labels.txt"


# Images by class and name, as they must come out: sorted; and those of validation by name, with their classes.
TRAIN = {
    A: {f"{A}_10.JPEG": image(1), f"{A}_2.JPEG": image(2, mode="L")},
    B: {f"{B}_1.JPEG": image(3)},
    C: {f"{C}_{n}.JPEG": image(10 + n) for n in range(3)},
}
VALIDATION = {f"ILSVRC2012_val_0000000{n}.JPEG": (image(100 + n), [C, A, B, C][n]) for n in range(4)}
LABELS = {synset: number for number, synset in enumerate(TRAIN)}
EXPECTED = [(data, LABELS[synset]) for synset, files in TRAIN.items() for data in files.values()]


def tar(files: dict[str, bytes]) -> bytes:
    file = BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, BytesIO(data))
    return file.getvalue()


def labels(path: Path, name: str = KNOWN) -> Path:
    return files(path, {name: "".join(f"{synset}\n" for _, synset in VALIDATION.values()).encode()})


def backwards(contents: dict[str, bytes]) -> dict[str, bytes]:
    """As they may lie in a tar."""
    return dict(reversed(contents.items()))


def tar_of_tars(path: Path) -> Path:
    files(path, {"ILSVRC2012_img_train.tar": tar(backwards({f"{s}.tar": tar(backwards(f)) for s, f in TRAIN.items()}))})
    files(path, {"ILSVRC2012_img_val.tar": tar(backwards({name: data for name, (data, _) in VALIDATION.items()}))})
    return labels(path)


def tars(path: Path) -> Path:
    files(path, {f"train/{synset}.tar": tar(contents) for synset, contents in TRAIN.items()})
    files(path, {f"val/{name}": data for name, (data, _) in VALIDATION.items()})
    return labels(path)


def hide(path: Path) -> Path:
    """What macOS puts beside the images."""
    for folder in (path / "VAL").iterdir():
        (folder / f"._{next(folder.iterdir()).name}").write_bytes(b"Mac OS X")
    return path


def tree(path: Path, validation: str = "val") -> Path:
    files(path, {f"train/{s}/{name}": data for s, contents in TRAIN.items() for name, data in contents.items()})
    return files(path, {f"{validation}/{synset}/{name}": data for name, (data, synset) in VALIDATION.items()})


def examples(path: Path, synsets: bool = True, folders: bool = False) -> Path:
    """Two files a part, written as TensorFlow's script does: labels from 1 on."""
    for part, images in (("train", EXPECTED), ("validation", [(d, LABELS[s]) for d, s in VALIDATION.values()])):
        made = [
            example(
                image_height=[8],
                image_encoded=[data],
                image_class_label=[label + 1],
                **({"image_class_synset": [list(TRAIN)[label].encode()]} if synsets else {}),
            )
            for data, label in images
        ]
        for number in range(2):
            half = made[number * len(made) // 2 : (number + 1) * len(made) // 2]
            name = f"{part}-{number:05d}-of-00002"
            write_tfrecord(path / part / name if folders else path / name, *half)
            write_index(path / "index" / f"{name}.idx", *half)
    return path


FORMS_ = {
    "tar of tars": tar_of_tars,
    "tars": tars,
    "tree": tree,
    "tree, validation": lambda path: tree(path, "validation"),
    "tree, VAL and hidden files": lambda path: hide(tree(path, "VAL")),
    "TFRecords": examples,
    "TFRecords in folders": lambda path: examples(path, folders=True),
}


@pytest.mark.parametrize("form", FORMS_)
def test_every_form_gives_the_same(tmp_path, form):
    source = FORMS_[form](tmp_path / "in")
    assert run(source) == 0
    assert records(source) == EXPECTED
    expected = [(data, LABELS[synset]) for data, synset in VALIDATION.values()]
    found = records(source, "test")
    assert found == (expected if "tree" not in form else sorted(expected, key=lambda one: one[1]))
    for part, count in (("train", 6), ("test", 4)):
        known = open_records(tmp_path / "output" / part).manifest
        assert (known.count, known.classes, known.class_names, known.form.encoding) == (count, 3, (A, B, C), "jpeg")
        assert known.source == "ImageNet (ILSVRC 2012); classes: 3 synsets, sorted"
        assert len(known.sources) == 1
        assert known.mean == pytest.approx(
            [np.mean([np.asarray(Image.open(BytesIO(d)).convert("RGB")) for d, _ in records(source, part)])] * 3
        )


@pytest.mark.skipif(not SAMPLE.is_dir(), reason="../shared/data/imagenet-sample, real images, is not there")
def test_real_images(tmp_path):
    """40 of them: from a tree, by two workers; classes are those of the whole list."""
    with tarfile.open(SAMPLE / "imagenet-1000class-400smallest.tar") as archive:
        rows = list(csv.DictReader(io.TextIOWrapper(archive.extractfile("labels.csv"))))
        rows = [row for row in rows if row["mode"] == "L"][:10] + [row for row in rows if row["mode"] == "RGB"][:30]
        images = {row["synset"]: archive.extractfile(row["file"]).read() for row in rows}
    numbers = {row["synset"]: int(row["class_index_0_based"]) for row in rows}
    expected = [(images[synset], numbers[synset]) for synset in sorted(images)]
    source = files(tmp_path / "tree", {f"train/{synset}/{synset}_1.JPEG": data for synset, data in images.items()})
    words = ["--synsets", str(SAMPLE / "synsets.txt")]
    assert run(source, *words, "--workers", "2") == 0
    assert records(source) == expected
    data = open_records(tmp_path / "output" / "train")
    assert data.classes == 1000
    assert data.manifest.class_names[:2] == ("n01440764", "n01443537")
    pixels = [np.asarray(Image.open(BytesIO(one)).convert("RGB")).reshape(-1, 3) for one in images.values()]
    assert data.mean == pytest.approx(np.concatenate(pixels).mean(axis=0))


def test_an_index_changes_nothing(tmp_path):
    source = examples(tmp_path / "in")
    assert run(source, "--index", str(source / "index")) == 0
    assert records(source) == EXPECTED


def test_tfrecords_without_synsets(tmp_path, capsys):
    source = examples(tmp_path / "in", synsets=False)
    assert run(source) == 0
    assert open_records(tmp_path / "output" / "train").manifest.class_names == ()
    assert open_records(tmp_path / "output" / "train").classes == 3
    table = files(tmp_path, {"list": f"0 {A} x\n1 {B}\n2 {C}\n3 n99999999\n".encode()}) / "list"
    assert run(source, "--overwrite", "--synsets", str(table)) == 0
    assert open_records(tmp_path / "output" / "test").manifest.class_names == (A, B, C, "n99999999")
    os.rename(tmp_path / "output", tmp_path / "kept")
    table.write_text(A)
    assert refusal(source, capsys, "--synsets", str(table)) == f"{source}: has label 3, there are 1 classes"
    source = examples(tmp_path / "in")
    table.write_text(f"{A}\nn00000002\n{C}\n")
    assert refusal(source, capsys, "--synsets", str(table)) == (
        f"{source}: label 2 is {B}, synset 2 in sorted order is n00000002; is --synsets the list of these files?"
    )


def test_images_that_not_every_decoder_reads(tmp_path, capsys):
    source = tree(tmp_path / "in")
    files(source, {f"train/{B}/{B}_2.JPEG": image(50, mode="CMYK"), f"train/{B}/{B}_3.JPEG": image(60, "PNG")})
    assert run(source) == 0
    found = records(source)
    assert [(found[number], label) for number, (_, label) in enumerate(EXPECTED[:3])] == list(
        zip(EXPECTED[:3], [0, 0, 1], strict=True)
    )
    for (data, label), grey in zip(found[3:5], (50, 60), strict=True):
        made = Image.open(BytesIO(data))
        assert (made.format, made.mode, label) == ("JPEG", "RGB", 1)
        assert np.abs(np.asarray(made).astype(int) - grey).max() <= 2
    sources = open_records(tmp_path / "output" / "train").manifest.sources
    assert [text.partition(", ")[2] for name, text in sources.items() if name.startswith(B)] == [
        "CMYK JPEG, encoded again",
        "RGB PNG, encoded again",
    ]
    assert [name for name in sources if name.startswith(B)] == [f"{B}/{B}_2.JPEG", f"{B}/{B}_3.JPEG"]
    assert "2 images of train: folders were encoded again, the manifest names them\n" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["tree", "tar of tars", "TFRecords"])
def test_a_limit_of_every_class(tmp_path, form):
    source = FORMS_[form](tmp_path / "in")
    assert run(source, "--limit", "1") == 0
    assert records(source) == [EXPECTED[0], EXPECTED[2], EXPECTED[3]]
    known = open_records(tmp_path / "output" / "test").manifest
    assert (known.count, known.source) == (
        3,
        "ImageNet (ILSVRC 2012), at most 1 images of a class; classes: 3 synsets, sorted",
    )


@pytest.mark.parametrize("part", ["train", "validation"])
@pytest.mark.parametrize("form", FORMS_)
def test_a_part_alone(tmp_path, form, part):
    source = FORMS_[form](tmp_path / "in")
    marks = ("train",) if part == "validation" else ("val",)
    for path in source.rglob("*"):
        if path.is_file() and any(mark in path.relative_to(source).parts[0].lower() for mark in marks):
            path.unlink()
    for path in sorted(source.rglob("*"), reverse=True):
        if path.is_dir() and not list(path.iterdir()):
            path.rmdir()
    if part == "validation" and form in ("tar of tars", "tars"):
        labels(source)
    assert run(source) == 0
    assert os.listdir(tmp_path / "output") == ["train" if part == "train" else "test"]
    found = records(source, "train" if part == "train" else "test")
    expected = EXPECTED if part == "train" else [(data, LABELS[synset]) for data, synset in VALIDATION.values()]
    assert sorted(found) == sorted(expected)


def test_validation_labels(tmp_path, capsys):
    source = tar_of_tars(tmp_path / "in")
    (source / KNOWN).unlink()
    path = source / "ILSVRC2012_img_val.tar"
    assert refusal(source, capsys) == (
        f"{path}: its images' labels are not in it; pass them by --validation-labels, a synset a line, such as {KNOWN}"
    )
    table = tmp_path / "labels"
    table.write_text(f"{A}\n{B}\n")
    assert refusal(source, capsys, "--validation-labels", str(table)) == f"{table}: has 2 labels, there are 4 images"
    table.write_text(f"{A}\n{B}\nn00000006\n{C}\n")
    assert refusal(source, capsys, "--validation-labels", str(table)) == (
        f"{table}: 1 of its synsets are not among the 3 classes: n00000006; pass a complete list by --synsets"
    )
    table.write_text("".join(f"{name} {LABELS[synset]}\n" for name, (_, synset) in VALIDATION.items()))
    files(tmp_path, {"list": f"{A}\n{B}\n{C}\n".encode()})
    assert run(source, "--validation-labels", str(table), "--synsets", str(tmp_path / "list")) == 0
    assert records(source, "test") == [(data, LABELS[synset]) for data, synset in VALIDATION.values()]


def test_what_is_not_there(tmp_path, capsys):
    source = tmp_path / "in"
    source.mkdir()
    assert refusal(source, capsys) == (
        f"{source}: holds ImageNet in no known form; place one of these there, or pass another --source:\n{FORMS}"
    )
    source.rmdir()
    assert refusal(source, capsys) == f"{source}: cannot be read: no such file or directory"
    examples(source)
    (source / "train-00000-of-00002").unlink()
    assert refusal(source, capsys) == (
        f"{source}: 1 files of the set are missing: train-00000-of-00002; get them, or convert without them: --partial"
    )
    assert run(source, "--partial") == 0
    assert records(source) == EXPECTED[3:]


def test_a_part_in_two_forms(tmp_path, capsys):
    source = tree(tar_of_tars(tmp_path / "in"))
    assert refusal(source, capsys) == (
        f"{source}: train is there several times: {source}/ILSVRC2012_img_train.tar, {source}/train/{A}; "
        "move all but one elsewhere"
    )
    source = tree(tree(tmp_path / "b"), "validation")
    assert refusal(source, capsys) == (
        f"{source}: validation is there several times: {source}/val/{A}, {source}/validation/{A}; "
        "move all but one elsewhere"
    )


def test_parts_in_different_forms(tmp_path):
    source = examples(tmp_path / "in")
    for path in source.glob("validation-*"):
        path.unlink()
    files(source, {f"val/{synset}/{name}": data for name, (data, synset) in VALIDATION.items()})
    assert run(source) == 0
    assert records(source) == EXPECTED
    assert sorted(records(source, "test")) == sorted((data, LABELS[synset]) for data, synset in VALIDATION.values())


def test_synsets_that_train_lacks(tmp_path, capsys):
    source = files(tree(tmp_path / "in"), {"val/n00000009/x.JPEG": image(1)})
    assert refusal(source, capsys) == (
        f"{source}/val: 1 of its synsets are not among the 3 classes: n00000009; pass a complete list by --synsets"
    )


def test_empty_and_double_images(tmp_path, capsys):
    source = files(tree(tmp_path / "in"), {f"train/{B}/{B}_0.JPEG": b"", f"train/{B}/{B}_00.JPEG": b""})
    assert refusal(source, capsys) == (
        f"{source}/train/{B}/{B}_0.JPEG\n{source}/train/{B}/{B}_00.JPEG: empty, no image; remove or get again"
    )
    source = tar_of_tars(tmp_path / "b")
    inner = tar({f"{A}_1.JPEG": image(1)})
    end = inner.index(bytes(1024))  # of the first file, whose contents are padded
    twice = inner[: -(-end // 512) * 512] + inner
    files(source, {"ILSVRC2012_img_train.tar": tar({f"{A}.tar": twice})})
    assert refusal(source, capsys, "--synsets", str(files(tmp_path, {"l": f"{A} {B}\n{C}\n{B}".encode()}) / "l")) == (
        f"{source}/ILSVRC2012_img_train.tar: {A}.tar/{A}_1.JPEG: appears twice under one name; pack the tar again"
    )
    source = tree(tmp_path / "c")
    for path in (source / "train").rglob("*.JPEG"):
        path.unlink()
    assert refusal(source, capsys) == f"{source}/train: has no images (.jpeg, .jpg, .png)"


def test_tars_that_do_not_fit(tmp_path, capsys):
    source = tar_of_tars(tmp_path / "in")
    path = source / "ILSVRC2012_img_train.tar"
    whole = path.read_bytes()
    path.write_bytes(tar({"cat.tar": b""}))
    assert refusal(source, capsys) == f"{path}: must hold tars of synsets such as n01440764.tar, holds cat.tar"
    path.write_bytes(b"\x1f\x8b" + bytes(600))
    assert refusal(source, capsys) == f"{path}: is not a tar archive; if it is compressed, unpack it first"
    path.write_bytes(whole[: len(whole) // 2 - 7])
    assert refusal(source, capsys).startswith(f"{path}: ")
    path.write_bytes(tar({f"{A}.tar": tar(TRAIN[A])[:600], f"{B}.tar": tar(TRAIN[B])}))
    assert refusal(source, capsys) == (
        f"{path}: {A}.tar: {A}_10.JPEG: has a size of {len(TRAIN[A][f'{A}_10.JPEG'])} bytes, 88 are left; "
        "get the file again"
    )


def test_a_damaged_image_is_named(tmp_path, capsys):
    source = tar_of_tars(tmp_path / "in")
    files(source, {"ILSVRC2012_img_train.tar": tar({f"{s}.tar": tar({f"{s}_1.JPEG": b"<html>"}) for s in TRAIN})})
    assert refusal(source, capsys, "--statistics=1") == (
        f"{source}/ILSVRC2012_img_train.tar: {A}.tar/{A}_1.JPEG: cannot be decoded: it is no image that Pillow reads"
    )
    noise = encode(Image.fromarray(np.random.default_rng(1).integers(0, 256, (40, 40), dtype=np.uint8)))
    source = files(tree(tmp_path / "b"), {f"train/{C}/{C}_9.JPEG": noise[:-200]})
    assert refusal(source, capsys, "--statistics=1", "--decode").startswith(
        f"{source}/train/{C}/{C}_9.JPEG: cannot be decoded: image file is truncated"
    )
    assert refusal(source, capsys).startswith(f"{source}/train/{C}/{C}_9.JPEG: cannot be decoded: ")  # by statistics
