"""The commands of docs/data.md run as they are written, on small sources made here."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mpibow import records
from mpibow.data import open_records
from tests.data.photos import encode, picture
from tests.datasets import test_cifar, test_crossbow, test_mnist
from tests.datasets.scripts import ROOT, script

PLACE = "DIR"


def commands() -> list[list[str]]:
    """Of the page on data, all but downloads."""
    section = (ROOT / "docs/data.md").read_text()
    typed = re.findall(r"^((?:mpibow|python) .*)$", section, re.MULTILINE)
    lines = [shlex.split(line, comments=True) for line in typed]
    return [found for line in lines if "--download" not in line and (found := meant(line))]


def meant(words: list[str]) -> list[str]:
    """A converter's name, or records, and its arguments; nothing of other commands."""
    match words:
        case ["mpibow", "convert", name, *rest]:
            return [name, *rest]
        case ["mpibow", "records", *rest] | ["python", "-m", "mpibow.records", *rest]:
            return ["records", *rest]
        case ["python", path, *rest] if path.startswith("datasets/"):
            return [Path(path).stem, *rest]
    return []


def tree(folder: Path, *places: str) -> None:
    """Ten images a class, of two synsets, in each of the places."""
    for place in places:
        for label, name in enumerate(("n01440764", "n01443537")):
            (folder / place / name).mkdir(parents=True)
            for number in range(10):
                image = encode(picture(20, 30, seed=10 * label + number))
                (folder / place / name / f"{number}.JPEG").write_bytes(image)


@pytest.fixture
def sources(tmp_path) -> dict[str, Path]:
    """What DIR stands for, by script; and the files that commands name."""
    made = {
        name: tmp_path / "from" / name for name in ("mnist", "imagenet", "folder", "ratings", "tfrecord", "crossbow")
    }
    for folder in made.values():
        folder.mkdir(parents=True)
    test_mnist.source(made["mnist"])
    test_crossbow.source(made["crossbow"])
    (made["ratings"] / "u.data").write_text("".join(f"{1 + n % 5}\t{1 + n // 5}\t3\t0\n" for n in range(20)))
    tree(made["imagenet"], "train", "val")
    tree(made["folder"], ".")
    test_cifar.archive(tmp_path / "cifar-10-python.tar.gz", test_cifar.PYTHON)
    (tmp_path / "corpus.txt").write_text("one text of a few words\n" * 4)
    (tmp_path / "houses.csv").write_text("area,price\n" + "".join(f"{n},{2 * n}\n" for n in range(20)))
    for place, mode in (("photos", "RGB"), ("masks", "L")):
        (tmp_path / place).mkdir()
        for number in range(10):
            Image.new(mode, (30, 20), number % 2 if mode == "L" else (9, 9, number)).save(
                tmp_path / place / f"{number}.png"
            )
    pixels, labels = np.zeros((8, 6, 6), np.uint8), np.arange(8) % 4
    np.savez(tmp_path / "mnist.npz", x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    return made


def test_they_run(here: Path, sources: dict[str, Path], capsys):
    run = []
    for name, *words in commands():
        if name == "records":
            assert records.main(words) == 0
            run.append(words[0])
            continue
        run.append(name)
        if run[-1] == "tfrecord":
            export = ["export", "data/mine/train", "--to", "tfrecord", "--output", str(sources["tfrecord"] / "train")]
            assert records.main(export) == 0
        more = [] if run[-1] in ("digits", "mnist", "numpy_arrays", "ratings", "text", "table") else ["--workers=1"]
        more += ["--any-count"] * (run[-1] == "cifar")
        words = [str(sources[run[-1]]) if word == PLACE else word for word in words]
        assert script(run[-1]).main([*words, *more]) == 0, (name, capsys.readouterr().err)
    assert run == [
        *("digits", "mnist", "cifar", "imagenet", "folder", "numpy_arrays", "ratings", "text", "table", "folder"),
        *("tfrecord", "crossbow"),
        *("inspect", "verify", "export"),
    ]
    assert "image/encoded" in capsys.readouterr().out  # a feature that tfrecord.py lists
    for name in (
        "digits",
        "mnist",
        "cifar10",
        "imagenet",
        "mine",
        "arrays",
        "ratings",
        "text",
        "houses",
        "masks",
        "imagenet2019",
    ):
        assert all(open_records(Path("data", name, part)).count for part in ("train", "test")), name
