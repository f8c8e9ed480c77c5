"""Folders of images as records: real JPEG files where they are, small ones made by Pillow everywhere."""

import os
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mpibow.data import Image as Size, RecordSet, open_records
from mpibow.data.decoded import Decoded
from tests.data import photos
from tests.datasets.scripts import Converter, flat as image, records_of as records, script, write

folder = script("folder")
convert = Converter(folder, ("--workers", "1"))
run, refusal = convert.of, convert.refusal_of


SMALL = {f"{name}/{n}.jpg": image(20 * n + i) for i, name in enumerate(("cat", "dog")) for n in range(3)}


def opened(source: Path, part: str = "train") -> RecordSet:
    return open_records(source.parent / "output" / part)


@pytest.mark.parametrize(("form", "suffix"), [("JPEG", "jpg"), ("JPEG", "JPEG"), ("PNG", "png")])
def test_bytes_are_kept(tmp_path, form, suffix):
    files = {f"{name}/{n}.{suffix}": image(10 * n + i, form) for i, name in enumerate("ab") for n in range(2)}
    source = write(tmp_path / "in", files)
    assert run(source) == 0
    assert records(source) == [(image(0, form), 0), (image(1, form), 1), (image(10, form), 0), (image(11, form), 1)]
    known = opened(source).manifest
    assert (known.form.encoding, known.class_names) == (form.lower(), ("a", "b"))
    assert known.source == "images in folders, a folder a class"
    assert list(known.sources) == ["train, 4 images"]
    assert not (tmp_path / "output" / "test").exists()


def parts_of(source: Path) -> list[str]:
    return sorted(path.name for path in (source.parent / "output").iterdir())


@pytest.mark.parametrize(
    ("train", "test"),
    [
        *(("train", name) for name in ("test", "val", "valid", "validation", "dev", "eval", "holdout", "hold-out")),
        *(("Train", "Test"), ("TRAIN", "VAL"), ("Training", "Testing"), ("training_set", "test_set")),
        *(("seg_train/seg_train", "seg_test/seg_test"), ("train2017", "val2017"), ("trainData", "testData")),
        *(("images.train", "images.test"), ("outer/one/trainset", "outer/one/testset"), ("x/train-jpg", "x/test-jpg")),
        *(("train", "valid/valid"), ("images/Train/a folder", "images/Validation"), ("trainval", "test_stg1")),
    ],
)
def test_parts(tmp_path, train, test, capsys):
    source = write(tmp_path / "in", {f"{train}/{name}": data for name, data in SMALL.items()})
    write(source, {f"{test}/cat/0.png.jpg": image(99), f"{test}/dog/deeper/still/x.jpg": image(98)})
    write(source, {"__MACOSX/train/cat/._0.jpg": b"", "notes/x.txt": b""})
    assert run(source) == 0
    assert parts_of(source) == ["test", "train"]
    assert opened(source).manifest.class_names == opened(source, "test").manifest.class_names == ("cat", "dog")
    assert [label for _, label in records(source)] == [0, 1] * 3
    assert records(source, "test") == [(image(99), 0), (image(98), 1)]
    assert f"{source / train}: train, 6 images of 2 classes (cat, dog)\n" in capsys.readouterr().out


def test_three_parts(tmp_path, capsys):
    files = {f"{part}/{c}/x.jpg": image(i) for i, part in enumerate(["train", "test", "val"]) for c in "ab"}
    source = write(tmp_path / "in", files)
    assert run(source) == 0
    assert parts_of(source) == ["test", "train", "validation"]
    assert records(source, "validation") == [(image(2), 0), (image(2), 1)]
    (tmp_path / "output").rename(tmp_path / "kept")
    assert refusal(source, capsys, "--test-folder", "dev") == f"{source}: has no folder dev (--test-folder)"
    assert refusal(source, capsys, "--test-folder=val", "--test-fraction=0.5") == (
        f"{source}/val: is the test part already; leave out --test-fraction"
    )
    assert refusal(source, capsys, "--test-folder=train", "--train-folder=train") == (
        f"{source}/train: is the folder of both train and test"
    )
    assert run(source, "--test-folder", "val") == 0
    assert f"{source}: left out: 1 folder 'test', not a part\n" in capsys.readouterr().out
    assert (parts_of(source), records(source, "test")) == (["test", "train"], [(image(2), 0), (image(2), 1)])


ASKED = (
    "say which are parts by --train-folder, --validation-folder and --test-folder, or that none is by --train-folder ."
)
A_CLASS = "has no folders with images, a folder a class was expected"


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ("learn/a learn/b test/a test/b", f": has the folders learn, test; {ASKED}"),
        ("train/a train/b unseen/a unseen/b", f": has the folders train, unseen; {ASKED}"),
        ("cat dog test", f": has the folders cat, dog, test; {ASKED}"),
        ("test/a test/b", f": has the folders test; {ASKED}"),
        ("train/a train/b val/a valid/a", ": has val and valid; choose the one for validation by --validation-folder"),
        ("trainA/a trainB/a testA/a", ": has trainA and trainB; choose the one for train by --train-folder"),
        ("train test", f"/train: {A_CLASS}; images in it: 1"),
        ("images/train images/val labels/train", "/images: has the folders train, val; parts come first"),
        (
            "train/images train/labels valid/images",
            ": images and masks, or other labels, are not classes: images, labels;",
        ),
        ("a/train a/test b/train", "/a: has the folders test, train; parts come first, and then classes; give"),
        ("train/a train/b test/a test/c", "/test: has images of c, "),
        ("train/a train/b test", f"/test: {A_CLASS}; images in it: 1; --source "),
        ("train/Cat train/dog test/cat test/dog", ": the folders 'Cat' and 'cat' differ in case, blanks or"),
        (
            "café cafe\u0301",
            ": the folders 'cafe\\u0301' and 'caf\\xe9' differ in case, blanks or Unicode's form alone",
        ),
        ("dog,dog_,cat", ": the folders 'dog' and 'dog ' differ in case, blanks or"),
        ("one", ": has one class alone, one; a folder a class was expected; if it is meant, list it by --classes"),
        (".", f": {A_CLASS}; images in it: 1"),
        ("images/train images/val", f"/images/train: {A_CLASS}; images in it: 1"),
    ],
)
def test_what_names_leave_open(tmp_path, capsys, places, message):
    names = [place.replace("_", " ") for place in places.split(",")] if "," in places else places.split(" ")
    source = write(tmp_path / "in", {f"{name}/x.jpg": image(1) for name in names})
    if not places.startswith("."):
        write(source, {"labels/train/x.txt": b""})  # of boxes
    assert refusal(source, capsys).startswith(f"{source}{message}")


def test_names_of_images_mean_no_part(tmp_path):
    names = ["a/train_1.jpg", "a/test_1.jpg", "b/deeper/train.jpg", "b/test/test.jpg", "b/val.jpg"]
    source = write(tmp_path / "in", {name: image(1) for name in names})
    assert run(source) == 0
    assert (opened(source).count, opened(source).manifest.class_names) == (5, ("a", "b"))


def test_folders_are_chosen(tmp_path):
    files = {f"outer/{name}/{c}/x.jpg": image(i) for i, name in enumerate(["learn", "unseen", "rest"]) for c in "ab"}
    source = write(tmp_path / "in", files)
    assert (
        run(source, "--train-folder=learn", "--validation-folder=outer/unseen", f"--test-folder={source}/outer/rest")
        == 0
    )
    assert parts_of(source) == ["test", "train", "validation"]
    assert [records(source, part)[0][0] for part in ("train", "validation", "test")] == [image(0), image(1), image(2)]
    source = write(tmp_path / "own" / "in", {"cat/x.jpg": image(1), "dog/x.jpg": image(2), "test/dog/x.jpg": image(3)})
    assert run(source, "--train-folder=.", "--test-folder=test") == 0
    assert records(source) == [(image(1), 0), (image(2), 1)]
    assert records(source, "test") == [(image(3), 1)]


def test_a_class_may_be_called_train(tmp_path):
    source = write(tmp_path / "in", {"train/x.jpg": image(1), "bus/x.jpg": image(2), "Bullet train/x.jpg": image(3)})
    assert run(source) == 0
    assert opened(source).manifest.class_names == ("Bullet train", "bus", "train")
    write(source, {"test/x.jpg": image(4)})
    assert run(source, "--train-folder=.", "--overwrite") == 0
    assert opened(source).manifest.class_names == ("Bullet train", "bus", "test", "train")


def test_a_fraction_becomes_test(tmp_path):
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


def test_mixtures(tmp_path, capsys):
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


def test_raw_images_have_one_size(tmp_path, capsys):
    source = write(tmp_path / "in", {"a/1.jpg": image(1, mode="L"), "b/2.jpg": image(2, mode="L", size=(5, 4))})
    assert refusal(source, capsys, "--encode=raw") == (
        f"raw images have one size, {source}/a/1.jpg has 8x6 and {source}/b/2.jpg 5x4; pass --size HEIGHTxWIDTH"
    )
    assert run(source, "--encode=raw", "--size=3x7", "--crop") == 0
    data = opened(source)
    assert (data.shape, data.mean, data.std) == ((1, 3, 7), (1.5,), (0.5,))  # all are grey: one channel
    assert data.manifest.source == "images in folders, a folder a class; sides 3x7, cropped"


def test_an_image_of_another_kind_than_its_name_says(tmp_path, capsys):
    source = write(tmp_path / "in", {"a/1.jpg": image(1), "b/2.jpg": image(2, mode="CMYK")})
    assert run(source) == 0
    assert "1 images of train were encoded again, the manifest names them\n" in capsys.readouterr().out
    assert Image.open(BytesIO(records(source)[1][0])).mode == "RGB"
    assert opened(source).manifest.sources["b/2.jpg"].endswith(", CMYK JPEG, encoded again")


@pytest.mark.parametrize("encode", [None, "png", "raw"])
def test_photographs_are_turned(tmp_path, capsys, encode):
    """Kept, encoded again or decoded: all are upright."""
    pixels = np.zeros((24, 40, 3), np.uint8)
    pixels[:12, :, 0] = pixels[12:, :, 2] = 250  # red above blue, to be turned right
    kinds = [("JPEG", "RGB"), ("JPEG", "CMYK"), ("WEBP", "RGB"), ("TIFF", "RGB"), ("PNG", "RGB")]
    kinds = kinds[:2] if encode is None else kinds
    bytes_ = [photos.encode(Image.fromarray(pixels).convert(mode), form, exif=photos.exif(6)) for form, mode in kinds]
    files = {f"{name}/{n}.{kinds[n][0]}": data for n, data in enumerate(bytes_) for name in "ab"}
    source = write(tmp_path / "in", files)
    assert run(source, *(["--encode", encode] if encode else [])) == 0
    turned = sum("TIFF" not in name for name in files)  # Pillow turns those
    assert f"train: images turned upright by their Exif orientation: {turned}\n" in capsys.readouterr().out
    data = opened(source)
    assert data.shape == ((3, 40, 24) if encode == "raw" else ())
    samples = data if encode == "raw" else Decoded(data, Size(16, resize=16))
    images = np.zeros((data.count, *samples.shape), np.uint8)
    samples.read(np.arange(data.count), images, np.zeros(data.count, np.int32))
    blue, red = images[:, 2, 8, 2], images[:, 0, 8, -3]
    assert min(*blue.tolist(), *red.tolist()) > 200


def test_damaged_images_are_named(tmp_path, capsys):
    source = write(tmp_path / "in", SMALL | {"cat/9.jpg": b"<html>"})
    assert refusal(source, capsys) == f"{source}/cat/9.jpg: cannot be decoded: it is no image that Pillow reads"
    noise = np.random.default_rng(1).integers(0, 256, (40, 40), dtype=np.uint8)
    write(source, {"cat/9.jpg": photos.encode(Image.fromarray(noise))[:-200]})
    assert refusal(source, capsys).startswith(f"{source}/cat/9.jpg: cannot be decoded: image file is truncated")
    assert refusal(source, capsys, "--encode=raw", "--size=4x4").startswith(f"{source}/cat/9.jpg: cannot be decoded: ")
    write(source, {"cat/9.jpg": b"", "dog/8.jpg": b""})
    assert refusal(source, capsys) == (f"{source}/dog/8.jpg\n{source}/cat/9.jpg: empty, no image; remove or get again")


def test_other_files_are_left_out_and_counted(tmp_path, capsys):
    source = write(
        tmp_path / "in", SMALL | {"cat/a.txt": b"1", "cat/b.txt": b"", "dog/README": b"", "cat/.hidden": b""}
    )
    write(source, {"list.csv": b"", ".git/x.jpg": b"", "__MACOSX/cat/x.jpg": b"", "@eaDir/x.jpg": b"", "y.jpg": b""})
    write(source, {"cat/.ipynb_checkpoints/0.jpg": b"", "cat/._0.jpg": b"", "cat/Thumbs.db": b"", "docs/x.md": b""})
    (source / "empty").mkdir()
    assert run(source) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        f"{source}: left out: 1 .csv, 1 .md, 2 .txt, 1 README, 1 folder 'docs' without images, 1 folder 'empty' "
        "without images, 7 hidden, 1 image outside the class folders",
        f"{source}: train, 6 images of 2 classes (cat, dog)",
    ]
    assert (opened(source).count, opened(source).classes) == (6, 2)


def test_a_class_without_images_in_one_part(tmp_path, capsys):
    files = {f"train/{name}": data for name, data in SMALL.items()} | {
        "test/dog/0.jpg": image(3),
        "test/cat/x.txt": b"",
    }
    source = write(tmp_path / "in", files)
    assert run(source) == 0
    assert f"{source}/test: test, 1 images of 1 classes (dog), none of cat\n" in capsys.readouterr().out
    assert records(source, "test") == [(image(3), 1)]  # the number of the class in train


def test_links_are_followed_once(tmp_path, capsys):
    elsewhere = write(tmp_path / "elsewhere", {"x/1.jpg": image(1)})
    source = write(tmp_path / "in", {"a/2.jpg": image(2)})
    (source / "b").symlink_to(elsewhere / "x")
    (source / "a" / "3.jpg").symlink_to(elsewhere / "x" / "1.jpg")
    (source / "a" / "round").symlink_to(source / "a")
    (source / "a" / "up").symlink_to("..")
    (source / "self").symlink_to(".")
    assert run(source) == 0
    assert records(source) == [(image(1), 1), (image(2), 0), (image(1), 0)]
    out = capsys.readouterr().out
    assert f"{source}: left out: 1 folder 'self' without images, 3 linked again\n" in out
    (source / "c").symlink_to("b")
    assert run(source, "--overwrite") == 3
    assert capsys.readouterr().err == f"error: {source}/c: is {source}/b, by a link; remove one of them\n"


def test_a_link_to_nothing_is_named(tmp_path, capsys):
    source = write(tmp_path / "in", SMALL)
    (source / "cat" / "x.jpg").symlink_to("nowhere")
    assert refusal(source, capsys) == f"{source}/cat/x.jpg: cannot be read: no such file or directory"
    (source / "cat" / "x.jpg").unlink()
    (source / "cat" / "x.jpg").symlink_to("x.jpg")
    assert refusal(source, capsys) == f"{source}/cat/x.jpg: cannot be read: too many levels of symbolic links"


def test_class_lists(tmp_path, capsys):
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
        ("dog\tpet\n", f"{source}: --classes has no line for its folders ant, cat; add or move them"),
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


def test_sources_without_images(tmp_path, capsys):
    source = tmp_path / "in"
    assert refusal(source, capsys) == f"{source}: there is no such folder"
    source.write_bytes(b"PK")
    assert refusal(source, capsys) == f"{source}: is a file; unpack it, and give the folder"
    source.unlink()
    source.mkdir()
    assert refusal(source, capsys) == f"{source}: {A_CLASS}"
    (source / "a").mkdir()
    assert refusal(source, capsys) == f"{source}: {A_CLASS}"
    write(source, {"a/1.jpg": image(1), "b/1.jpg": image(1)})
    assert (
        refusal(source, capsys, "--test-fraction=0.9")
        == f"{source}: --test-fraction 0.9 of 2 images is none; take more"
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
def test_options_that_do_not_fit(capsys, words, message):
    with pytest.raises(SystemExit):
        folder.main(["--source", "x", *words])
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: {message}")
