"""python -m mpibow.predict: what it prints for images, arrays, tables and records, and what for files that are none."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mpibow as mb
from mpibow.comm import Single
from mpibow.config import load_mapping
from mpibow.data import write_records
from mpibow.evaluate import evaluate
from mpibow.job import open_job
from mpibow.predict import main
from mpibow.run.saving import newest_first
from mpibow.train import train
from tests.datasets.scripts import script
from tests.frames import OwnFrame
from tests.run import tiny

NAMES = ("top", "middle", "bottom")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with records, and a run on them."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, data in (("train", tiny.images()), ("test", tiny.images(20, seed=1))):
            write_records(
                Path("data") / name, zip(data[0], data[1].tolist(), strict=True), classes=3, class_names=NAMES
            )
        settings = {
            "name": "run",
            "model": {"name": "mlp"},
            "data": {"train": "data/train", "test": "data/test"},
        }
        settings |= {"batch_size": 3, "learners": 1, "stop": {"epochs": 3}, "ema": {"half_life": 30, "every": 2}}
        train(open_job(load_mapping(settings)), Single())
        evaluate(Path("runs/run"), "data/test", Single(), predictions=Path("evaluated.csv"))
    return folder


@pytest.fixture
def here(trained: Path, tmp_path, monkeypatch) -> Path:
    """Somewhere else, with the run and its data beside."""
    for each in trained.iterdir():
        (tmp_path / each.name).symlink_to(each)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def predicted(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, str]]:
    assert main([*arguments, "--csv"]) == 0
    return list(csv.DictReader(capsys.readouterr().out.splitlines()))


def likely(rows: list[dict]) -> np.ndarray:
    """The last digit depends on how many samples a kernel gets at once."""
    return np.array([row["probability"] for row in rows], float)


def test_records_are_predicted_as_an_evaluation_predicts_them(here: Path, capsys):
    expected = list(csv.DictReader(Path("evaluated.csv").read_text().splitlines()))
    found = predicted(capsys, "runs/run", "data/test")
    assert [row["sample"] for row in found] == [f"data/test[{n}]" for n in range(20)]
    assert [row["class"] for row in found] == [NAMES[int(row["predicted"])] for row in expected]
    assert likely(found) == pytest.approx(likely(expected), abs=2e-6)


def test_so_are_arrays(here: Path, capsys):
    images, _ = tiny.images(20, seed=1)
    np.save("all.npy", images)
    np.save("one.npy", images[4])
    np.savez("named.npz", whatever=images[:2])
    expected = likely(predicted(capsys, "runs/run", "data/test"))
    mb.load("runs/run").save("net.safetensors")
    for net in ("net.safetensors", str(newest_first(Path("runs/run/checkpoints"))[0])):
        found = predicted(capsys, net, "all.npy", "one.npy", "named.npz", "--batch-size", "7")
        assert likely(found) == pytest.approx([*expected, expected[4], *expected[:2]], abs=2e-6)
        assert [row["sample"] for row in found][19:] == ["all.npy[19]", "one.npy", "named.npz[0]", "named.npz[1]"]


def test_the_likeliest_classes_are_printed(here: Path, capsys):
    image = tiny.images(20, seed=1)[0][0]
    Image.fromarray(image[0]).save("one.png")
    (each,) = mb.load("runs/run").predict("one.png", top=3)
    assert main(["runs/run", "one.png", "--top", "3"]) == 0
    pairs = zip(each.classes, each.probabilities, strict=True)
    assert capsys.readouterr().out == "one.png  " + ", ".join(f"{name} {likely:.2%}" for name, likely in pairs) + "\n"
    (row,) = predicted(capsys, "runs/run", "one.png", "--top", "2")
    assert list(row) == ["sample", "class", "probability", "class_2", "probability_2"]
    assert row["class_2"] == each.classes[1]
    assert main(["runs/run", "*.png", "--top", "3", "--out", "out.jsonl"]) == 0
    found = json.loads(Path("out.jsonl").read_text())
    assert found == {"sample": "one.png", "classes": [*each.classes], "probabilities": [*each.probabilities]}
    (other,) = predicted(capsys, "runs/run", "one.png", "--average")
    assert other["probability"] != row["probability"]


def test_images_of_another_size_and_kind_are_scaled(here: Path, capsys):
    large = np.kron(tiny.images(20, seed=1)[0][0][0], np.ones((4, 4), np.uint8))
    Image.fromarray(large).convert("RGB").save("large.png")
    Image.fromarray(np.pad(large, ((0, 0), (0, 24)))).save("wide.png")
    np.save("small.npy", large.reshape(6, 4, 6, 4).mean(axis=(1, 3)).round().astype(np.uint8)[None])
    large_row, small = predicted(capsys, "runs/run", "large.png", "small.npy")
    assert large_row["class"] == small["class"]
    whole, cropped = (likely(predicted(capsys, "runs/run", "wide.png", *more)) for more in ((), ("--crop",)))
    assert whole != cropped


def test_what_cannot_be_read_is_named_and_the_rest_predicted(here: Path, capsys):
    Path("empty").mkdir()
    Path("text.png").write_text("no image")
    np.save("wrong.npy", np.zeros((2, 1, 5, 5), np.uint8))
    np.save("floats.npy", np.zeros((2, 1, 6, 6)))
    Path("table.csv").write_text("1,2,3\n")
    Path("pandas.csv").write_text("0,1,2\n1,2,3\n")
    np.save("good.npy", tiny.images(20, seed=1)[0][:1])
    files = ["text.png", "wrong.npy", "floats.npy", "gone.png", "empty", "table.csv", "pandas.csv", "good.npy"]
    assert main(["runs/run", *files]) == 3
    found = capsys.readouterr()
    assert found.out.startswith("good.npy[0]  ")
    assert sorted(found.err.splitlines()) == sorted([
        "error: empty: has no manifest.json of records, and no images in it or below",
        "error: text.png: cannot be decoded: it is no image that Pillow reads",
        "error: wrong.npy: must be (1, 6, 6) for a sample, as in training, got (1, 5, 5)",
        "error: floats.npy: must be uint8 as in training, got float64",
        "error: gone.png: does not exist",
        "error: table.csv: has 3 numbers in a row, the net takes 36",
        "error: pandas.csv: line 1: may be a sample, or pandas' numbers of columns; write names, or 0.0 for 0",
        "error: 7 file(s) or row(s) could not be predicted",
    ])  # fmt: skip


def test_a_damaged_record_alone_is_left_out(here: Path, capsys):
    images = tiny.images(20, seed=1)
    write_records(Path("some"), zip(images[0], images[1].tolist(), strict=True), classes=3, class_names=NAMES)
    (file,) = Path("some").glob("*.mpr")
    content = file.read_bytes()
    for number in (5, 6, 19):
        content = content.replace(images[0][number].tobytes(), bytes(36))
    file.write_bytes(content)
    assert main(["runs/run", "some", "--csv"]) == 3
    found = capsys.readouterr()
    assert [f"some[{number}]" in found.out for number in range(20)] == [
        number not in (5, 6, 19) for number in range(20)
    ]
    assert found.err.endswith("error: 3 file(s) or row(s) could not be predicted\n")


@pytest.mark.parametrize("damage", [b"", b"PK", b"half"])
def test_a_damaged_archive_is_named(here: Path, damage, capsys):
    np.savez_compressed("whole.npz", image=tiny.images(20)[0])
    content = Path("whole.npz").read_bytes()
    Path("bad.npz").write_bytes(content[:100] + bytes(200) + content[300:] if damage == b"half" else damage)
    np.save("good.npy", tiny.images(20, seed=1)[0][:1])
    assert main(["runs/run", "bad.npz", "good.npy"]) == 3
    found = capsys.readouterr()
    assert found.out.startswith("good.npy[0]")
    assert found.err.startswith("error: bad.npz: cannot be read as NumPy's: ")


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (["runs/run", "a.png", "--top", "4"], 2, "--top: must be at least 1 and at most the net's 3 classes, got 4"),
    (["runs/run", "a.png", "--output", "a.txt"], 2,
     "--output: must end in .csv, .jsonl or .npz, or have a --format, got 'a.txt'"),
])  # fmt: skip
def test_bad_arguments(here: Path, arguments, code, message, capsys):
    assert main(arguments) == code
    assert capsys.readouterr() == ("", f"error: {message}\n")


def test_numbers_of_a_table_by_name_or_in_a_row(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    features = generator.standard_normal((40, 3)).astype(np.float32)
    settings = {"batch_size": 4, "learners": 1, "stop": {"epochs": 1}, "loss": mb.mse_loss}

    def net(features: mb.Tensor) -> mb.Tensor:
        return mb.reshape(mb.dense(features, 1), (-1,))

    found = mb.fit(net, (features, features.sum(axis=1)), name="row", **settings)
    Path("rows.csv").write_text("a,b,c\n" + "".join(",".join(map(str, row)) + "\n" for row in features[:5].tolist()))
    assert main([found.summary.run, "rows.csv", "--output", "out.csv"]) == 0
    rows = list(csv.DictReader(Path("out.csv").read_text().splitlines()))
    assert [row["sample"] for row in rows] == [f"rows.csv[{n}]" for n in range(2, 7)]
    np.testing.assert_allclose([float(row["prediction"]) for row in rows], found.predict(features[:5]), rtol=1e-8)
    assert main([found.summary.run, "rows.csv", "--output", "out.npz"]) == 0
    with np.load("out.npz") as arrays:
        np.testing.assert_allclose(arrays["prediction"], found.predict(features[:5]), rtol=1e-5)
        assert arrays["sample"].tolist() == [f"rows.csv[{n}]" for n in range(2, 7)]

    def two(a: mb.Tensor, code: mb.Tensor) -> dict[str, mb.Tensor]:
        seen = mb.embedding(code, 4, 20)
        return {
            "sum": mb.reshape(a, (-1, 1)) + seen,
            "first": a * mb.parameter((1,), initial=mb.Constant(2.0), name="factor"),
        }

    data = ({"a": features[:, 0], "code": np.arange(40) % 4}, {"first": features[:, 0]})
    both = mb.fit(two, data, name="two", **{**settings, "loss": {"first": mb.mse_loss}})
    Path("named.csv").write_text("code,other,a\n1,9,0.5\n3,9,-2\n")
    capsys.readouterr()
    assert main([both.summary.run, "named.csv"]) == 2
    assert capsys.readouterr().err == (
        "error: sum: is (20,) for a sample, too much for a line; write it with --output FILE.npz\n"
    )
    assert main([both.summary.run, "named.csv", "--output", "named.npz"]) == 0
    with np.load("named.npz") as arrays:
        assert arrays["sum"].shape == (2, 20)
        np.testing.assert_allclose(arrays["first"], np.array([0.5, -2.0]) * both.weights["factor.weight"], rtol=1e-6)
    capsys.readouterr()
    refused = {
        "1,2,NA\n3,4,5\n": "line 1: must be numbers, got 'NA'",
        "a,b,c\n\n1,2_0,3\n": "line 3: must be numbers, got '2_0'",
        "a,b,c\n1,2,1e39\n7,8,9\n": "line 2: must be numbers, got '1e39'",
        "a,b,c\n": "has no rows of numbers",
    }
    for text, message in refused.items():
        Path("bad.csv").write_text(text)
        assert main([found.summary.run, "bad.csv"]) == 3
        printed = capsys.readouterr()
        assert f"error: bad.csv: {message}\n" in printed.err
        assert ("bad.csv[3]  " in printed.out) == ("7,8,9" in text)
    Path("named.csv").write_text("code,other\n1,9\n")
    assert main([both.summary.run, "named.csv", "--output", "named.npz"]) == 3
    assert "error: named.csv: has columns code, other, the net takes a, code: a is missing" in capsys.readouterr().err
    frame = OwnFrame({"a": [0.5, -2.0], "other": ["x", None], "code": [1, 3]})
    np.testing.assert_allclose(
        both.predict(frame)["first"], np.array([0.5, -2]) * both.weights["factor.weight"], rtol=1e-6
    )
    with pytest.raises(mb.MpibowError, match=r"^frame: row 1: must be integers of int32, as in training, got 2.5$"):
        both.predict(OwnFrame({"a": [0.5, -2.0], "code": [1, 2.5]}))


def test_rows_are_read_in_the_notation_of_the_table(tmp_path, monkeypatch, capsys):
    """Also packed, with other columns, line ends in cells and other spellings; or not at all."""
    monkeypatch.chdir(tmp_path)
    text = "size;share;grade;y\n" + "".join(f"1.{n:03},5;{n} %;{n % 2};{n}\n" for n in range(20))
    Path("table.csv").write_text(text)
    words = ["--decimal", ",", "--thousands", ".", "--percent", "--categories", "grade", "--missing-values", "-"]
    assert script("table").main(["--source", "table.csv", "--output", "records", *words, "--missing", "fill"]) == 0

    def line(features: mb.Tensor, categories: mb.Tensor) -> mb.Tensor:
        grade = mb.reshape(mb.embedding(categories, 3, 1), (-1, 1))
        return mb.reshape(mb.dense(features, 1) + grade, (-1,))

    run = mb.fit(line, "records/train", loss=mb.mse_loss, batch_size=4, learners=1, stop={"epochs": 1}).summary.run
    capsys.readouterr()
    expected = [row["prediction"] for row in predicted(capsys, run, "records/train")]
    assert [row["prediction"] for row in predicted(capsys, run, "table.csv")] == expected
    other = '\ufeffnote\tgrade\tshare\tsize\r"\r"\t1,0\t3%\t1003,5\r'.encode()
    Path("other.TSV").write_bytes(other)
    Path("other.csv.gz").write_bytes(gzip.compress(other))
    for name in ("other.TSV", "other.csv.gz"):
        assert predicted(capsys, run, name) == [{"sample": f"{name}[2]", "prediction": expected[3]}]
    refused = {
        "size;share;grade\n\n1003.5;3%;1\n": "line 3: size: must be a number, got '1003.5'",
        "size;share;grade\n1003;3;1\n": "line 2: share: must be a percentage, got '3'",
        "size;share;grade\n1003;3%;2\n": "line 2: grade: must be one of 0, 1, got '2'",
        "size;share\n1;2%\n": "has columns size, share: grade is missing",
    }
    for text, message in refused.items():
        Path("bad.csv").write_text(text)
        assert main([run, "bad.csv"]) == 3
        assert f"error: bad.csv: {message}\n" in capsys.readouterr().err
