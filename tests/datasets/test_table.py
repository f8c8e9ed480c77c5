"""Tables as records: columns scaled by the training rows, names numbered, and every cell that does not fit refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow.data.recordset import open_records
from mpibow.data.table import Columns, open_table
from mpibow.errors import RecordError
from tests.datasets.scripts import script

converter = script("table")
HOUSES = """area,town,rooms,price
50,Bonn,2,100
70,Köln,3,150
90,Bonn,4,220
110,Aachen,4,300
"""


def convert(folder: Path, text: str, *words: str) -> int:
    source = folder / "source.csv"
    source.write_text(text, encoding="utf-8")
    return int(converter.main(["--source", str(source), "--output", f"{folder}/out", *words]))


def test_numbers_names_and_a_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(tmp_path, HOUSES) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "features: 2 numbers",
        "categories: town of 3",
        "target: price",
    ]
    data = open_table(open_records(tmp_path / "out/train"))
    area = np.array([50, 70, 90, 110.0])
    np.testing.assert_allclose(data.arrays["features"][:, 0], (area - area.mean()) / area.std(), rtol=1e-6)
    assert data.arrays["categories"].tolist() == [[1], [2], [1], [0]]  # Aachen, Bonn, Köln
    assert data.arrays["target"].tolist() == [100, 150, 220, 300]


def test_other_rows_become_what_the_converter_made(tmp_path: Path) -> None:
    convert(tmp_path, HOUSES)
    data = open_table(open_records(tmp_path / "out/train"))
    columns = Columns.of(data.contents)
    given = {"rooms": ["2", "3", "4", "4"], "area": [50, 70, 90, 110], "town": ["Bonn", "Köln", "Bonn", " Aachen"]}
    for name, array in columns.encode(given).items():
        assert array.tolist() == data.arrays[name].tolist()
    with pytest.raises(RecordError) as error:
        columns.encode({**given, "town": ["Bonn", "Bonn", "Ulm", "Bonn"]})
    assert str(error.value) == "row 3: town: must be one of Aachen, Bonn, Köln, got 'Ulm'"
    with pytest.raises(RecordError, match="rooms: is missing, the table has area, town"):
        columns.encode({"area": [1], "town": ["Bonn"]})


def test_a_test_part_is_scaled_as_the_training_part(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("area,town,rooms,price\n80,Ulm,1,0\n", encoding="utf-8")
    assert convert(tmp_path, HOUSES, "--test", f"{tmp_path}/test.csv") == 0
    train, test = (open_table(open_records(tmp_path / "out" / part)) for part in ("train", "test"))
    assert test.arrays["features"][0, 0] == 0  # 80 is the mean of the training rows
    assert test.arrays["categories"].tolist() == [[3]]
    assert train.contents == test.contents


def test_rows_are_split_off_by_seed(tmp_path: Path) -> None:
    rows = "".join(f"{n},{2 * n}\n" for n in range(50))
    assert convert(tmp_path, "x,y\n" + rows, "--test-fraction", "0.2", "--no-scale") == 0
    parts = [open_table(open_records(tmp_path / "out" / part)).arrays["features"][:, 0] for part in ("train", "test")]
    assert [len(part) for part in parts] == [40, 10]
    assert sorted(np.concatenate(parts).tolist()) == [*range(50)]


@pytest.mark.parametrize(("words", "names"), [([], ("no", "yes")), (["--classes"], ("no", "yes"))])
def test_classes(tmp_path: Path, words: list[str], names: tuple[str, ...]) -> None:
    convert(tmp_path, "x,bought\n1,yes\n2,no\n3,yes\n", *words)
    records = open_records(tmp_path / "out/train")
    assert records.manifest.class_names == names
    assert open_table(records).arrays["target"].tolist() == [1, 0, 1]


def test_numbers_as_classes_and_as_categories(tmp_path: Path) -> None:
    convert(tmp_path, "code,grade\n10,3\n9,1\n10,2\n", "--classes", "--categories", "code")
    records = open_records(tmp_path / "out/train")
    assert records.manifest.class_names == ("1", "2", "3")
    assert open_table(records).arrays["categories"].tolist() == [[1], [0], [1]]  # in the order of the numbers


GAPS = "a,b,y\n1,x,1\n,y,2\n3,NA,3\n"


def test_missing_cells_are_filled(tmp_path: Path) -> None:
    assert convert(tmp_path, GAPS, "--missing", "fill") == 0
    found = open_table(open_records(tmp_path / "out/train")).arrays
    np.testing.assert_allclose(found["features"][:, 0], [-1, 0, 1], atol=1e-6)
    assert found["categories"].tolist() == [[0], [1], [2]]  # the last one is that of cells without a value


def test_rows_with_missing_cells_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(tmp_path, GAPS, "--missing", "drop") == 0
    assert "source.csv: 2 rows of train lack a value and are left out" in capsys.readouterr().out
    assert open_records(tmp_path / "out/train").count == 1


def test_parquet(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"x": [1.0, 3.0], "kind": ["b", "a"], "y": [5, 6]})
    parquet.write_table(table, tmp_path / "source.parquet")
    words = ["--source", f"{tmp_path}/source.parquet", "--output", f"{tmp_path}/out", "--target", "y"]
    assert converter.main(words) == 0
    found = open_table(open_records(tmp_path / "out/train")).arrays
    assert (found["features"].tolist(), found["categories"].tolist()) == ([[-1], [1]], [[1], [0]])
    (tmp_path / "source.parquet").write_bytes(b"none")
    assert converter.main([*words, "--overwrite"]) == 3


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("", [], "source.csv: is empty; its first line must name the columns"),
        ("1,2\n3,4\n", [], "line 1: must name the columns, got numbers; add a line of names"),
        ("a,a\n1,2\n", [], "line 1: every column needs a name of its own, got 'a'"),
        ("a,b\n1\n", [], "line 2: has 1 cells, line 1 names 2"),
        ("a,b\n", [], "source.csv: has no rows"),
        ("a,b\n1,2\n", ["--target", "c"], "has no column 'c', it has a, b"),
        ("a\n1\n", [], "has no column beside the target a"),
        ("a,b\n,2\n1,3\n", [], "row 1: a: has no value, got ''; pass --missing fill or --missing drop"),
        ("a,b\n1,2\n", ["--target", "a,b"], "has no column beside the target a, b"),
        ("a,b,c\n1,x,y\n", ["--target", "b,c"], "several targets must be numbers, got b, c"),
        ("a,b\ninf,2\n1,3\n", [], "row 1: a: must be a number, got 'inf'"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: list[str], message: str
) -> None:
    assert convert(tmp_path, text, *words) == 3
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A regression with a category that matters, and a classifier of rows."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    rows = [
        (x, kind, x + 5 * (kind == "b"))
        for x, kind in zip(generator.random(200), generator.choice(["a", "b"], 200), strict=True)
    ]
    convert(tmp_path, "x,kind,y\n" + "".join(f"{x},{kind},{y}\n" for x, kind, y in rows), "--test-fraction", "0.2")

    def net(features: mb.Tensor, categories: mb.Tensor) -> mb.Tensor:
        kind = mb.embedding(mb.reshape(categories, (-1,)), 2, 2)
        return mb.reshape(mb.dense(mb.concat(features, kind, axis=1), 1), (-1,))

    settings = {"batch_size": 4, "learners": 2, "stop": {"epochs": 15}, "update": {"name": "adamw", "lr": 0.03}}
    fitted = mb.fit(net, "out/train", "out/test", loss=mb.mse_loss, **settings)
    assert fitted.summary.test_loss < 0.5  # 6 is that of the mean
    convert(tmp_path, "x,kind\n" + "".join(f"{y},{kind}\n" for _, kind, y in rows), "--overwrite")
    found = mb.fit(lambda x: mb.dense(mb.flatten(x), 2), "out/train", validation=0.2, **settings)
    assert found.summary.validation_accuracy > 0.9
