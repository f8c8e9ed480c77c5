"""Images with masks as records: pairs by name, sides made alike, and what is no mask refused."""

import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mpibow as mb
from mpibow.data import inputs_of, open_records
from mpibow.data.image_header import turned
from mpibow.data.indexed import Hands
from mpibow.data.split import split
from mpibow.fitting import JobArguments
from mpibow.job.record_kinds import named
from tests.data.photos import exif
from tests.datasets.scripts import script

converter = script("folder")


def mask(number: int, sides: tuple[int, int] = (8, 12)):
    found = np.zeros(sides, np.uint8)
    found[: 2 + number % 4, 3:] = 1 + number % 2
    return found


def write(folder: Path, count: int = 8, sides: tuple[int, int] = (8, 12), mode: str = "L") -> None:
    for place in ("images", "masks"):
        (folder / place / "sub").mkdir(parents=True, exist_ok=True)
    for number in range(count):
        found = mask(number, sides)
        colours = np.stack([found * 80, 255 - found * 80, found], axis=2)
        Image.fromarray(colours).save(folder / f"images/sub/{number}.png")
        picture = Image.fromarray(found)
        if mode != "L":
            picture.putpalette([200, 0, 0, 0, 200, 0, 0, 0, 200])
        path = folder / f"masks/sub/{number}.png"
        picture.save(path, **({"bits": 4} if mode == "L;4" else {}))
        if mode == "L;4":  # Pillow writes 4 bits of palettes alone
            data = bytearray(path.read_bytes())
            data[25] = 0
            data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
            path.write_bytes(data)


def convert(folder: Path, *words: str) -> int:
    given = ["--source", f"{folder}/images", "--masks", f"{folder}/masks", "--output", f"{folder}/out"]
    return int(converter.main([*given, "--workers=1", *words]))


def read(folder: Path, part: str = "train") -> tuple:
    data = named(open_records(folder / "out" / part))
    arrays = [np.zeros((data.count, *shape), dtype) for shape, dtype in inputs_of(data).values()]
    data.read(np.arange(data.count), *arrays)
    return arrays[0], arrays[1]


@pytest.mark.parametrize("mode", ["L", "P", "L;4"])
def test_pairs(tmp_path, mode, capsys):
    write(tmp_path, mode=mode)
    assert convert(tmp_path) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "masks: 3 classes, 255 is without one"
    images, masks = read(tmp_path)
    assert (images.shape, masks.shape, masks.dtype) == ((8, 3, 8, 12), (8, 8, 12), np.int32)
    for number in range(8):
        assert masks[number].tolist() == mask(number).tolist()
        assert images[number, 0].tolist() == (mask(number) * 80).tolist()


def test_one_size_for_all_and_no_class_between_two(tmp_path):
    write(tmp_path)
    write(tmp_path, 3, sides=(16, 24))
    assert convert(tmp_path) == 3
    assert convert(tmp_path, "--size", "4x6") == 0
    images, masks = read(tmp_path)
    assert images.shape == (8, 3, 4, 6)
    assert set(np.unique(masks)) <= {0, 1, 2}
    assert convert(tmp_path, "--size", "8x8", "--crop", "--overwrite") == 0
    assert read(tmp_path)[1][5].tolist() == mask(5)[:, 2:10].tolist()
    write(tmp_path, sides=(30, 40))
    assert convert(tmp_path, "--size", "29x7", "--crop", "--overwrite") == 0  # a ratio that is rounded up


def test_parts(tmp_path, capsys):
    write(tmp_path)
    assert convert(tmp_path, "--test-fraction", "0.25") == 0
    assert [len(read(tmp_path, part)[0]) for part in ("train", "test")] == [6, 2]
    for place in ("images", "masks"):
        for part in ("train", "val"):
            (tmp_path / "apart" / place / part).mkdir(parents=True)
            for number in range(2 if part == "val" else 3):
                found = tmp_path / place / f"sub/{number}.png"
                (tmp_path / "apart" / place / part / f"{number}.png").write_bytes(found.read_bytes())
    assert convert(tmp_path / "apart") == 0
    assert [len(read(tmp_path / "apart", part)[0]) for part in ("train", "test")] == [3, 2]
    (tmp_path / "apart/images/train").rename(tmp_path / "apart/images/Training")
    (tmp_path / "apart/masks/notes.txt").touch()
    assert convert(tmp_path / "apart", "--overwrite") == 0
    assert f"{tmp_path}/apart/masks: left out: 1 .txt\n" in capsys.readouterr().out
    (tmp_path / "apart/masks/val").rename(tmp_path / "apart/masks/lav")
    assert convert(tmp_path / "apart", "--overwrite") == 3
    assert "apart/masks: has the folders lav, train; say which are parts by" in capsys.readouterr().err
    (tmp_path / "apart/images/val").rename(tmp_path / "apart/images/lav")
    assert convert(tmp_path / "apart", "--overwrite", "--test-folder=lav") == 0
    assert [len(read(tmp_path / "apart", part)[0]) for part in ("train", "test")] == [3, 2]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_and_masks_are_turned_each_by_its_own(tmp_path, capsys, orientation):
    write(tmp_path, 4)
    assert convert(tmp_path) == 0
    images, masks = read(tmp_path)
    for place in ("images", "masks"):
        for path in (tmp_path / place / "sub").iterdir():
            Image.open(path).save(path, exif=exif(orientation))
    assert convert(tmp_path, "--overwrite") == 0
    assert ("turned upright by their Exif orientation: 4" in capsys.readouterr().out) == (orientation > 1)
    found = read(tmp_path)
    assert found[0].tolist() == [
        turned(image.transpose(1, 2, 0), orientation).transpose(2, 0, 1).tolist() for image in images
    ]
    assert found[1].tolist() == [turned(each, orientation).tolist() for each in masks]
    write(tmp_path, 4)
    Image.open(tmp_path / "images/sub/2.png").save(tmp_path / "images/sub/2.png", exif=exif(orientation))
    assert convert(tmp_path, "--overwrite") == (3 if orientation > 4 else 0)
    if orientation > 4:
        message = "images have sizes from 8x12 to 12x8, records have one; pass --size HEIGHTxWIDTH"
        assert message in capsys.readouterr().err
        assert convert(tmp_path, "--overwrite", "--size=8x8") == 3
        message = "2.png: is 8x12, its image 2.png is 12x8, once each is turned by its own Exif orientation"
        assert message in capsys.readouterr().err


def broken(folder: Path, name: str) -> None:
    match name:
        case "alone":
            (folder / "masks/sub/3.png").unlink()
        case "mask alone":
            (folder / "images/sub/3.png").unlink()
        case "colours":
            Image.new("RGB", (12, 8)).save(folder / "masks/sub/3.png")
        case "sides":
            Image.new("L", (8, 12)).save(folder / "masks/sub/3.png")
        case "JPEG":
            Image.new("L", (12, 8)).save(folder / "masks/sub/3.png", "JPEG")
        case "damaged":
            (folder / "masks/sub/3.png").write_bytes(b"none")
        case "one class":
            for path in (folder / "masks/sub").iterdir():
                Image.new("L", (12, 8)).save(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alone", "images/sub/3.png: has no mask of that name in"),
        ("mask alone", "masks/sub/3.png: has no image of that name in"),
        ("colours", "masks/sub/3.png: a mask has one number a pixel, this has Pillow's mode RGB; convert colours"),
        ("sides", "masks/sub/3.png: is 12x8, its image 3.png is 8x12"),
        ("JPEG", "masks/sub/3.png: a JPEG does not keep the numbers of classes; make the mask anew, as a PNG"),
        ("damaged", "masks/sub/3.png: cannot be decoded: it is no image that Pillow reads"),
        ("one class", "masks: have one class alone"),
    ],
)
def test_what_is_refused(tmp_path, capsys, name, message):
    write(tmp_path)
    broken(tmp_path, name)
    assert convert(tmp_path) == 3
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_options_that_do_not_go_together(capsys, tmp_path):
    with pytest.raises(SystemExit):
        convert(tmp_path, "--encode", "jpeg")
    assert "--masks: images have no class folders, and are raw" in capsys.readouterr().err


def test_it_trains_on_scaled_images(here: Path):
    write(here, 24)
    convert(here, "--test-fraction", "0.25")
    fitted = mb.fit(
        lambda image: mb.conv2d(image, 3, 1), "out/train", "out/test", loss=mb.cross_entropy, batch_size=2, learners=2,
        stop={"epochs": 20}, update={"lr": 0.1},
    )  # fmt: skip
    assert fitted.summary.test_loss < 0.4  # 1 is that of the classes' frequencies
    _, masks = read(here, "test")
    assert (fitted.predict("out/test").argmax(axis=1) == masks).mean() > 0.75  # 0.67 is that of the first class alone


def test_images_with_classes_and_a_loss(here: Path):
    """A folder of records beside `loss`: raw and encoded, scaled, the label as the target."""
    for label, colour in enumerate([(250, 0, 0), (0, 250, 0)]):
        (here / f"own/{label}").mkdir(parents=True)
        for number in range(12):
            Image.new("RGB", (10, 10), (*colour[:2], 5 * number)).save(here / f"own/{label}/{number}.png")
    for encode in ("raw", "png"):
        words = ["--source", "own", "--output", encode, "--encode", encode, "--test-fraction", "0.25", "--workers=1"]
        assert converter.main(words) == 0
        fitted = mb.fit(
            lambda x: mb.dense(mb.flatten(x), 2), f"{encode}/train", f"{encode}/test", loss=mb.cross_entropy,
            image=None if encode == "raw" else {"size": 8}, batch_size=2, learners=2, stop={"epochs": 5},
            update={"lr": 0.01},
        )  # fmt: skip
        assert fitted.summary.test_loss < 0.3


def test_split_off_images_do_not_scale(here: Path):
    write(here)
    convert(here)
    arguments = JobArguments(
        net=lambda image: mb.conv2d(image, 3, 1), train="out/train", validation=0.5, loss="cross_entropy"
    )
    job = arguments.job(arguments.config({"batch_size": 2}), Hands())
    (scaling,) = (node.op for node in job.build(1).nodes if node.op.kind == "normalise")
    data = named(open_records(Path("out/train")))
    assert scaling.mean == split(data, 0.5, job.config.seed)[0].pictures.mean != data.pictures.mean
