"""python -m mpibow.records inspect: what a data set holds, and a sheet of its images."""

import json
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mpibow import records
from mpibow.data import open_records, sheet as pictures, write_records
from mpibow.data.contents import pick
from mpibow.data.sheet import GAP, LINE

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def png(size: tuple[int, int], colour: object = (1, 2, 3), mode: str = "RGB") -> bytes:
    file = BytesIO()
    Image.new(mode, size, colour).save(file, "png")
    return file.getvalue()


def encoded(folder: Path, images: list[bytes], labels: list[int], **options: object) -> Path:
    options = {"classes": max(labels) + 1, "encoding": "png", "moments": ([1.0] * 3, [2.0] * 3)} | options
    write_records(folder, zip(images, labels, strict=True), **options)
    return folder


def raw(folder: Path, images: np.ndarray, labels: list[int], **options: object) -> Path:
    write_records(folder, zip(images, labels, strict=True), **{"classes": 3} | options)
    return folder


def inspected(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    assert records.main(["inspect", *map(str, words)]) == code
    out, err = capsys.readouterr()
    return err if code else out


def test_encoded_images(tmp_path, capsys):
    images = [png((4, 3)), png((10, 5)), png((7, 20)), b"no image"]
    sizes = sorted(map(len, images[:3]))
    folder = encoded(tmp_path / "a", images, [0, 0, 2, 2], source="made up")
    total = sum(path.stat().st_size for path in folder.glob("*.mpr")) / 1e6
    assert inspected(capsys, folder) == (
        f"{folder}\n"
        "  name      a\n"
        "  records   4 png images, uint8\n"
        "  classes   3, of 0 to 2 records each\n"
        "            0: 2, 1: 0, 2: 2\n"
        "  mean      1  1  1\n"
        "  std       2  2  2\n"
        "  sizes     of 4 sampled images of 4: width 4 to 10 (median 7), height 3 to 20 (median 5), "
        f"bytes {sizes[0]} to {sizes[2]} (median {sizes[1]}), 1 cannot be read, verify --decode names them\n"
        f"  shards    1, {total:.1f} MB in all, from a-00000.mpr\n"
        "  source    made up\n"
    )


def test_many_classes(tmp_path, capsys):
    """Classes 0 to 29 with (class mod 7) + 1 records, but for 5 and 28, which have none."""
    labels = [label for label in range(30) for _ in range(label % 7 + 1) if label not in (5, 28)]
    names = [f"class {chr(ord('a') + n % 26)}{n}" for n in range(30)]
    images = np.zeros((len(labels), 1, 1, 1), np.uint8)
    folder = raw(tmp_path / "a", images, labels, classes=30, class_names=names)
    lines = inspected(capsys, folder).splitlines()
    assert lines[3:6] == [
        "  classes   30, of 0 to 7 records each",
        "            fewest  class f5: 0, class c28: 0, class a0: 1, class h7: 1, class o14: 1",
        "            most    class g6: 7, class n13: 7, class u20: 7, class b27: 7, class m12: 6",
    ]


def test_json(tmp_path, capsys):
    images = np.arange(3 * 4, dtype=np.uint8).reshape(3, 1, 2, 2)
    a = raw(tmp_path / "a", images, [0, 2, 2], class_names=["x", "y", "z"], source="s", sources={"f": "md5 0"})
    b = encoded(tmp_path / "b", [png((4, 3))], [0])
    first, second = map(json.loads, inspected(capsys, "--json", a, b).splitlines())
    assert first == {
        "path": str(a), "name": "a", "count": 3, "encoding": "raw", "dtype": "uint8", "shape": [1, 2, 2],
        "classes": 3, "class_names": ["x", "y", "z"], "class_counts": {"0": 1, "2": 2},
        "mean": [5.5], "std": [pytest.approx(images.std())], "sizes": None, "shards": 1, "first_shard": "a-00000.mpr",
        "bytes": 64 + 3 * (4 + 16), "source": "s", "sources": {"f": "md5 0"},
    }  # fmt: skip
    size = len(png((4, 3)))
    assert second["sizes"] == {
        "sampled": 1, "unreadable": 0, "width": [4, 4, 4], "height": [3, 3, 3], "bytes": [size] * 3,
    }  # fmt: skip


def drawn(file: Path) -> np.ndarray:
    with Image.open(file) as image:
        assert (image.format, image.mode) == ("PNG", "RGB")
        return np.array(image)


def test_a_sheet_of_encoded_images(tmp_path, capsys):
    """Six squares of 16 pixels, drawn eight times as large: three columns, two rows, by class."""
    labels = [2, 0, 1, 1, 0, 2]
    images = [png((16, 16), list(COLOURS.values())[label]) for label in labels]
    folder, file = encoded(tmp_path / "a", images, labels, class_names=list(COLOURS)), tmp_path / "a.png"
    assert inspected(capsys, folder, "--sheet", file).splitlines()[-1] == f"  sheet     {file}, 6 images"
    sheet = drawn(file)
    width, height = 128 + GAP, 128 + GAP + LINE
    assert sheet.shape == (2 * height + GAP, 3 * width + GAP, 3)
    for number, colour in enumerate(c for c in COLOURS.values() for _ in range(2)):
        row, column = divmod(number, 3)
        top, left = GAP + row * height, GAP + column * width
        assert (sheet[top : top + 128, left : left + 128] == colour).all()
        text = sheet[top + 128 : top + 128 + LINE, left : left + 128]
        assert (text == 255).any()
        assert (text < 128).any()  # letters
    words = [sheet[GAP + 128 : GAP + 128 + LINE, GAP + column * width :][:, :128] for column in range(3)]
    assert np.array_equal(words[0], words[1])  # red, red
    assert not np.array_equal(words[1], words[2])  # green


def test_a_sheet_of_raw_images(tmp_path, capsys):
    grey = np.array([[[[0, 100], [200, 255]]]], np.uint8)
    inspected(capsys, raw(tmp_path / "grey", grey, [0]), "--sheet", tmp_path / "grey.png")
    sheet = drawn(tmp_path / "grey.png")[GAP : GAP + 128, GAP : GAP + 128]
    assert np.array_equal(sheet[::64, ::64, 0], grey[0, 0])
    assert (sheet == sheet[..., :1]).all()
    colour = np.arange(12, dtype=np.uint8).reshape(1, 3, 2, 2) * 20
    inspected(capsys, raw(tmp_path / "colour", colour, [0]), "--sheet", tmp_path / "colour.png")
    sheet = drawn(tmp_path / "colour.png")[GAP : GAP + 128, GAP : GAP + 128]
    assert np.array_equal(sheet[::64, ::64], colour[0].transpose(1, 2, 0))


def test_floats_are_drawn_from_black_to_white(tmp_path, capsys):
    images = np.array([[[[-3, 1]]], [[[0, 2]]]], np.float32)
    inspected(capsys, raw(tmp_path / "a", images, [0, 1]), "--sheet", tmp_path / "a.png")
    sheet = drawn(tmp_path / "a.png")
    assert sheet[GAP, GAP, 0] == 0
    assert sheet[GAP, GAP + 127, 0] == 204  # (1 + 3) / 5 of 255
    assert sheet[GAP, 2 * GAP + 128, 0] == 153
    assert sheet[GAP, 2 * GAP + 128 + 127, 0] == 255
    flat = raw(tmp_path / "flat", np.full((1, 1, 1, 2), 7, np.float32), [0])
    inspected(capsys, flat, "--sheet", tmp_path / "flat.png")
    assert (drawn(tmp_path / "flat.png")[GAP : GAP + 64, GAP : GAP + 128] == 0).all()


def test_large_pictures_are_made_small_and_keep_their_proportions(tmp_path):
    folder = encoded(tmp_path / "a", [png((640, 320)), png((1, 1000))], [0, 0])
    sheet = pictures.sheet(open_records(folder), [0, 1])
    assert sheet.size == (2 * (128 + GAP) + GAP, 128 + GAP + LINE + GAP)
    pixels = np.array(sheet)
    assert (pixels[GAP : GAP + 64, GAP : GAP + 128] == (1, 2, 3)).all()
    assert (pixels[GAP + 64 : GAP + 128, GAP : GAP + 128] == 255).all()
    assert (pixels[GAP : GAP + 128, 2 * GAP + 128] == (1, 2, 3)).all()
    assert (pixels[GAP : GAP + 128, 2 * GAP + 129 :] == 255).all()


@pytest.mark.parametrize("name", ["", "two\nlines", "鳥", "a name that is far wider than any picture", "\U0001f600"])
def test_any_class_name_can_be_drawn(tmp_path, name):
    folder = raw(tmp_path / "a", np.zeros((1, 1, 4, 4), np.uint8), [0], classes=1, class_names=[name])
    assert (np.array(pictures.sheet(open_records(folder), [0]))[:, -GAP:] == 255).all()


def test_some_images_of_one_class_drawn_by_the_seed(tmp_path, capsys):
    """Image n has the grey value n, and every third is of class 1."""
    images = np.arange(90, dtype=np.uint8).reshape(-1, 1, 1, 1)
    folder = raw(tmp_path / "a", images, [n % 3 for n in range(90)], class_names=["x", "y", "0"])

    def values(*words: object) -> list[int]:
        inspected(capsys, folder, "--sheet", tmp_path / "a.png", "--samples", 4, *words)
        sheet = drawn(tmp_path / "a.png")[..., 0]
        return [
            int(sheet[GAP + row * (128 + GAP + LINE), GAP + column * (128 + GAP)])
            for row in (0, 1)
            for column in (0, 1)
        ]

    assert len(set(values())) == 4
    assert values() == values("--seed", 0) != values("--seed", 1)
    for word in ("y", "1"):
        chosen = values("--class", word)
        assert chosen == sorted(chosen)
        assert len({n for n in chosen if n % 3 == 1}) == 4
    assert {n % 3 for n in values("--class", "0")} == {2}  # a name goes before a number


def test_chosen_samples_are_all_where_there_are_fewer():
    assert pick(np.array([3, 5, 9]), 5, 0) == [3, 5, 9]
    assert sorted({n for seed in range(50) for n in pick(np.arange(5), 2, seed)}) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--sheet", "a.png", "--class", "rad"], 2, "--class: {} has no class 'rad'; did you mean 'red'?"),
        (["--sheet", "a.png", "--class", "3"], 2, "--class: {} has no class '3'; give a name or a number below 3"),
        (["--sheet", "a.png", "--class", "blue"], 3, "{}: has no records of class 'blue'"),
        (["other", "--sheet", "a.png"], 2, "--sheet: draws one data set, got 2"),
        (["--seed", "1"], 2, "--samples, --class, --seed: choose what is drawn; give the file with --sheet"),
        (["--class", "red"], 2, "--samples, --class, --seed: choose what is drawn; give the file with --sheet"),
        (["--samples", "1"], 2, "--samples, --class, --seed: choose what is drawn; give the file with --sheet"),
        (["--sheet", "no/a.png"], 3, "no/a.png: cannot be written: no such file or directory"),
    ],
)
def test_what_cannot_be_drawn(
    here: Path,
    capsys,
    words,
    code,
    message,
):
    folder = raw(here / "a", np.zeros((2, 1, 1, 1), np.uint8), [0, 1], class_names=list(COLOURS))
    assert inspected(capsys, folder, *words, code=code) == f"error: {message.format(folder)}\n"
    assert [path.name for path in here.iterdir()] == ["a"]


def test_images_that_cannot_be_drawn(tmp_path, capsys):
    two = raw(tmp_path / "two", np.zeros((1, 2, 4, 4), np.uint8), [0])
    text = encoded(tmp_path / "text", [png((2, 2)), b"text"], [0, 0])
    for folder, message in (
        (two, f"{two}: images have 2 channels, a sheet can draw 1 or 3"),
        (text, f"{text}/text-00000.mpr: record 1: cannot be decoded: it is no PNG image; convert the data again"),
    ):
        assert inspected(capsys, folder, "--sheet", tmp_path / "a.png", code=3) == f"error: {message}\n"
    assert not (tmp_path / "a.png").exists()


def test_other_modes_of_images_become_colours(tmp_path):
    images = [png((2, 2), 77, "L"), png((2, 2), (5, 6, 7, 255), "RGBA"), png((2, 2), 1, "1")]
    sheet = np.array(pictures.sheet(open_records(encoded(tmp_path / "a", images, [0] * 3)), [0, 1, 2]))
    first, second = sheet[GAP], sheet[GAP + 128 + GAP + LINE]
    assert [tuple(first[GAP]), tuple(first[2 * GAP + 128]), tuple(second[GAP])] == [(77,) * 3, (5, 6, 7), (255,) * 3]


@pytest.mark.parametrize(("command", "option", "message"), [
    ("inspect", "--samples=0", "--samples: must be at least 1, got 0"),
    ("inspect", "--samples=10001", "--samples: must be at most 10,000, got 10001"),
    ("inspect", "--samples=1_0", "--samples: must be an integer, got '1_0'"),
    ("inspect", f"--seed={2**64}", f"--seed: must be at most {2**64 - 1:,}, got {2**64}"),
    ("inspect", "--seed=-1", "--seed: must be at least 0, got -1"),
    ("verify", "--workers=0", "--workers: must be at least 1, got 0"),
    ("verify", "--workers=1025", "--workers: must be at most 1,024, got 1025"),
])  # fmt: skip
def test_numbers_out_of_range(capsys, command, option, message):
    with pytest.raises(SystemExit):
        records.main([command, "a", option])
    assert capsys.readouterr().err.endswith(f"argument {message}\n")
