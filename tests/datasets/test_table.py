"""Tables as records: columns scaled by the training rows, names numbered, and every cell that does not fit refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow import evaluate
from mpibow.comm import Single
from mpibow.config import load_mapping
from mpibow.data import open_records
from mpibow.data.columns import Columns, open_table
from mpibow.errors import ConfigError, RecordError
from mpibow.job import open_job
from tests.datasets.scripts import script
from tests.refusals import refuses

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


def test_numbers_names_and_a_target(tmp_path, capsys):
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


def test_other_rows_become_what_the_converter_made(tmp_path):
    convert(tmp_path, HOUSES)
    data = open_table(open_records(tmp_path / "out/train"))
    columns = Columns.of(data.contents)
    given = {"rooms": ["2", "3", "4", "4"], "area": [50, 70, 90, 110], "town": ["Bonn", "Köln", "Bonn", " Aachen"]}
    for name, array in columns.encode(given).items():
        assert array.tolist() == data.arrays[name].tolist()
    with refuses("row 3: town: must be one of Aachen, Bonn, Köln, got 'Ulm'", RecordError):
        columns.encode({**given, "town": ["Bonn", "Bonn", "Ulm", "Bonn"]})
    with pytest.raises(RecordError, match="rooms: is missing, the table has area, town"):
        columns.encode({"area": [1], "town": ["Bonn"]})
    with pytest.raises(RecordError, match="row 1: area: must be a finite number of float32, got '1e39'"):
        columns.encode({"area": ["1e39"], "town": ["Bonn"], "rooms": [1]})


def test_a_test_part_is_scaled_as_the_training_part(tmp_path):
    (tmp_path / "test.csv").write_text("area,town,rooms,price\n80,Ulm,1,0\n", encoding="utf-8")
    assert convert(tmp_path, HOUSES, "--test", f"{tmp_path}/test.csv") == 0
    train, test = (open_table(open_records(tmp_path / "out" / part)) for part in ("train", "test"))
    assert test.arrays["features"][0, 0] == 0  # 80 is the mean of the training rows
    assert test.arrays["categories"].tolist() == [[3]]
    assert train.contents == test.contents
    assert convert(tmp_path, HOUSES, "--test", f"{tmp_path}/source.csv", "--overwrite") == 3


def test_rows_are_split_off_by_seed(tmp_path):
    rows = "".join(f"{n},{2 * n}\n" for n in range(50))
    assert convert(tmp_path, "x,y\n" + rows, "--test-fraction", "0.2", "--no-scale") == 0
    parts = [open_table(open_records(tmp_path / "out" / part)).arrays["features"][:, 0] for part in ("train", "test")]
    assert [len(part) for part in parts] == [40, 10]
    assert sorted(np.concatenate(parts).tolist()) == [*range(50)]


def test_a_share_of_every_class_is_split_off(tmp_path):
    rows = "".join(f"{n},{'rare' if n % 25 == 0 else ('even', 'odd')[n % 2]}\n" for n in range(50))
    assert convert(tmp_path, "x,kind\n" + rows, "--test-fraction", "0.5") == 0
    for part in ("train", "test"):
        assert np.bincount(open_table(open_records(tmp_path / "out" / part)).arrays["target"]).tolist() == [12, 12, 1]


@pytest.mark.parametrize("words", [[], ["--classes"]])
def test_classes(tmp_path, words):
    convert(tmp_path, "x,bought\n1,yes\n2,no\n3,yes\n", *words)
    records = open_records(tmp_path / "out/train")
    assert records.manifest.class_names == ("no", "yes")
    assert open_table(records).arrays["target"].tolist() == [1, 0, 1]


@pytest.mark.parametrize("words", [["--classes", "--categories", "code"], ["--categories", "code,grade"]])
def test_numbers_as_classes_and_as_categories(tmp_path, words):
    convert(tmp_path, "code,grade\n10,3\n9,1\n10,2\n", *words)
    records = open_records(tmp_path / "out/train")
    assert records.manifest.class_names == ("1", "2", "3")
    assert open_table(records).arrays["categories"].tolist() == [[1], [0], [1]]  # in the order of the numbers


GAPS = "a,b,y\n1,x,1\n,y,2\n3,NA,3\n"


def test_missing_cells_are_filled(tmp_path):
    assert convert(tmp_path, GAPS, "--missing", "fill") == 0
    found = open_table(open_records(tmp_path / "out/train")).arrays
    np.testing.assert_allclose(found["features"][:, 0], [-1, 0, 1], atol=1e-6)
    assert found["categories"].tolist() == [[0], [1], [2]]  # the last one is that of cells without a value


def test_rows_with_missing_cells_are_left_out(tmp_path, capsys):
    assert convert(tmp_path, GAPS, "--missing", "drop") == 0
    assert "source.csv: 2 rows are left out: 1 have no a, as '' in line 3; 1 have no b, as 'NA' in line 4\n" in (
        capsys.readouterr().out
    )
    assert open_records(tmp_path / "out/train").count == 1


@pytest.mark.parametrize(
    ("cells", "words", "values"),
    [
        (["28,7", "1"], ["--decimal", ","], [28.7, 1]),
        (["1,000", "20"], ["--thousands", ","], [1000, 20]),
        (["1.234,5", "2"], ["--decimal", ",", "--thousands", "."], [1234.5, 2]),
        (["1 234", "1\u00a0234", "1\u202f234.5"], ["--thousands", " "], [1234, 1234, 1234.5]),
        (["1'234", "1\u2019234"], ["--thousands", "'"], [1234, 1234]),
        (["5 %", "7%"], ["--percent"], [0.05, 0.07]),
        (["5,5 %", "7%"], ["--percent", "--decimal", ","], [0.055, 0.07]),
        (["1e5", "-.5"], ["--percent"], [100000, -0.5]),
        (["-", "2"], ["--missing-values=-,x", "--missing", "drop"], [2]),
        (["-999.0", "2"], ["--missing-values=-999", "--missing", "drop"], [2]),
        (["007", "10"], [], [7, 10]),
        (["500", "1.250"], ["--decimal", "."], [500, 1.25]),
        (["500", "1.250", "1.234.567"], ["--decimal", ",", "--thousands", "."], [500, 1250, 1234567]),
        (["500", "0.250", "1.25"], [], [500, 0.25, 1.25]),
    ],
)
def test_other_notations(tmp_path, cells, words, values):
    """The manifest keeps the notation: rows converted later are read alike, and refused if they are not."""
    assert convert(tmp_path, "a,y\n" + "".join(f'"{cell}",0\n' for cell in cells), "--no-scale", *words) == 0
    data = open_table(open_records(tmp_path / "out/train"))
    assert data.arrays["features"][:, 0].tolist() == np.float32(values).tolist()
    columns = Columns.of(data.contents)
    assert columns.encode({"a": cells[-1:]})["features"].tolist() == [[np.float32(values[-1])]]
    with pytest.raises(RecordError, match="row 1: a: must be a "):
        columns.encode({"a": ["1,0.5"]})


def refused(folder: Path, capsys: pytest.CaptureFixture[str], text: str, *words: str) -> str:
    assert convert(folder, text, *words) == 3
    assert not (folder / "out").exists()
    return capsys.readouterr().err.removeprefix(f"error: {folder}/source.csv: ").rstrip("\n")


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["28,7", "3"], "line 2: a: '28,7' is not a number in this notation; pass --decimal , if it is 28.7"),
        (["4", "1,000"],
         "line 3: a: '1,000' is not a number in this notation; "
         "pass --thousands , if it is 1000, --decimal , if it is 1"),
        (["500", "1.250"], "line 3: a: '1.250' may have a decimal point or thousands; "
         "pass --decimal . if it is 1.25, --decimal , --thousands . if it is 1250"),
        (["USD 5", "USD 6.50"], "line 2: a: 'USD 5' is not a number; if it is one, write 5 in the file"),
        (["\u0665\u066a"], "line 2: a: '\u0665\u066a' is not a number; if it is one, write 0.05 in the file"),
        (["1,234.5", "3"], "line 2: a: '1,234.5' is not a number in this notation; pass --thousands , if it is 1234.5"),
        (["1 234,5", "3"],
         "line 2: a: '1 234,5' is not a number in this notation; pass --decimal , --thousands \" \" if it is 1234.5"),
        (["1\u202f234"],
         "line 2: a: '1\\u202f234' is not a number in this notation; pass --thousands \" \" if it is 1234"),
        (["1'234.5"],
         "line 2: a: \"1'234.5\" is not a number in this notation; pass --thousands \"'\" if it is 1234.5"),
        (["5%", "6 %"], "line 2: a: '5%' is not a number in this notation; pass --percent if it is 0.05"),
        (["$3.50"], "line 2: a: '$3.50' is not a number; if it is one, write 3.5 in the file"),
        (["\u22125", "3"], "line 2: a: '\u22125' is not a number; if it is one, write -5 in the file"),
        (["\u0663"], "line 2: a: '\u0663' is not a number; if it is one, write 3 in the file"),
        (["10 kg", "12 kg"], "line 2: a: '10 kg' is not a number; if it is one, write 10 in the file"),
        (["1", "n.d."], "line 3: a: 'n.d.' is not a number as '1' is (SOURCE: line 2); correct it, "
         "pass --missing-values=n.d. if it is not a value"),
        (["1,5", "-"], "line 3: a: '-' is not a number as '1,5' is with --decimal , (SOURCE: line 2); correct it, "
         "pass --missing-values=- if it is not a value"),
        (["5%", "6"], "line 2: a: '5%' is not a number as '6' is (SOURCE: line 3); correct it, "
         "pass --missing-values=5% if it is not a value"),
        (["1", "inf"], "line 3: a: 'inf' is not a number as '1' is (SOURCE: line 2); correct it, "
         "pass --missing-values=inf if it is not a value"),
        (["1", "1e39"], "line 3: a: '1e39' is beyond the numbers of records, float32"),
    ],
)  # fmt: skip
def test_what_looks_like_numbers_is_no_category(tmp_path, capsys, cells, message):
    text = "a,y\n" + "".join(f'"{cell}",0\n' for cell in cells)
    remedy = "; if these are names, pass --categories a or --leave-out a"
    assert refused(tmp_path, capsys, text) == message.replace("SOURCE", f"{tmp_path}/source.csv") + remedy
    assert convert(tmp_path, text, "--categories", "a") == 0


@pytest.mark.parametrize("cells", [["10_0", "11_1"], ["1.2.2019", "2019-06-01"], ["0x1F", "a1"], ["18-25", "26-40"]])
def test_names_with_digits(tmp_path, cells):
    assert convert(tmp_path, "a,y\n" + "".join(f"{cell},0\n" for cell in cells)) == 0
    assert Columns.of(open_records(tmp_path / "out/train").manifest.contents).categories[0].values == tuple(
        sorted(cells)
    )


@pytest.mark.parametrize("order", [1, -1])
def test_spellings_of_a_number_are_one_class(tmp_path, order, capsys):
    rows = ["0,0", "1,1", "2,2.50"][::order]
    (tmp_path / "test.csv").write_text("a,y\n3,1.0\n4,2.5\n5,10\n")
    assert convert(tmp_path, "\n".join(["a,y", *rows]), "--classes", "--test", f"{tmp_path}/test.csv") == 0
    assert " are one name\n" in capsys.readouterr().out
    train, test = (open_records(tmp_path / "out" / part) for part in ("train", "test"))
    assert train.manifest.class_names == test.manifest.class_names == ("0", "1", "2.5", "10")
    assert open_table(train).arrays["target"].tolist() == [0, 1, 2][::order]
    assert open_table(test).arrays["target"].tolist() == [1, 2, 3]


def test_codes_keep_their_zeros(tmp_path, capsys):
    text = "zip,y\n01234,0\n99999,1\n"
    assert convert(tmp_path, text, "--categories", "zip") == 0
    columns = Columns.of(open_records(tmp_path / "out/train").manifest.contents)
    assert columns.categories[0].values == ("01234", "99999")
    with pytest.raises(RecordError, match="zip: must be one of 01234, 99999, got '1234'"):
        columns.encode({"zip": ["1234"]})
    capsys.readouterr()
    assert convert(tmp_path, text, "--overwrite") == 0
    assert "line 2: zip: '01234' is read as the number 1234; pass --categories zip if it is a code\n" in (
        capsys.readouterr().out
    )
    (tmp_path / "out").rename(tmp_path / "away")
    assert refused(tmp_path, capsys, text + "1234,1\n", "--categories", "zip") == (
        f"line 4: zip: '1234' and '01234' ({tmp_path}/source.csv: line 2) are one number; write both alike"
    )


@pytest.mark.parametrize(
    ("text", "words", "note"),
    [
        ("id,y\n" + "".join(f"{n},0\n" for n in range(20)), [],
         "id: counts the rows; pass --leave-out id if it is an index"),
        ("a,y\n1.234,1\n5.678,2\n", [],
         "SOURCE: line 2: a: '1.234' has a decimal point, as all; "
         "pass --decimal , --thousands . if it means thousands"),
        ("day,y\n" + "".join(f"2019-01-{n},0\n" for n in range(10, 30)), [],
         "day: has 20 names in 20 rows; pass --leave-out day if it is free text"),
        ("a,y\n9007199254740993,1\n1,2\n", [],
         "SOURCE: line 2: a: '9007199254740993' is read as the number 9007199254740992; "
         "pass --categories a if it is a code"),
        ("a,y\nYes,1\nyes,0\n", [], "a: 'Yes' and 'yes' are two names"),
        ("a,y\n1,01\n1,02\n", [], "SOURCE: line 2: y: '01' is read as the number 1; pass --classes if it is a code"),
    ],
)  # fmt: skip
def test_what_may_not_be_meant_is_noted(tmp_path, capsys, text, words, note):
    assert convert(tmp_path, text, *words) == 0
    assert f"note: {note.replace('SOURCE', f'{tmp_path}/source.csv')}\n" in capsys.readouterr().out


NONE = "hours,sleep\n6,None\n7,Insomnia\n8,None\n"


@pytest.mark.parametrize("missing", ["error", "drop", "fill"])
def test_a_class_named_none_is_asked_about(tmp_path, capsys, missing):
    assert refused(tmp_path, capsys, NONE, "--missing", missing) == (
        "line 2: sleep: 'None' may be a class or a missing value; pass --missing-values '' if it is a class, "
        "--missing-values None if it is not a value"
    )
    assert convert(tmp_path, NONE, "--missing", missing, "--missing-values", "") == 0
    assert open_records(tmp_path / "out/train").manifest.class_names == ("Insomnia", "None")
    code = convert(tmp_path, NONE, "--missing", missing, "--missing-values", "none", "--overwrite")
    assert code == (0 if missing == "drop" else 3)
    if missing != "drop":
        assert "line 2: sleep: has no value, got 'None'; convert with --missing drop" in capsys.readouterr().err


def test_numbers_with_missing_values_as_classes(tmp_path):
    """NA among numbers is no class."""
    assert convert(tmp_path, "a,y\n1,1\n2,NA\n3,2.0\n", "--classes", "--missing", "drop") == 0
    assert open_records(tmp_path / "out/train").manifest.class_names == ("1", "2")


def test_lines_are_those_of_the_file_in_every_part(tmp_path, capsys):
    rows = [f'"{n}\n",1\n\n' for n in range(40)]
    for n in (3, 29):
        bad = "x,y\n" + "".join([*rows[:n], ",1\n", *rows[n:]])
        for seed in ("1", "2", "3"):
            assert refused(tmp_path, capsys, bad, "--test-fraction", "0.5", "--seed", seed).startswith(
                f"line {2 + 3 * n}: x: has no value, got ''"
            )


def test_names_of_columns_by_the_rules_of_csv(tmp_path):
    text = '"Price, EUR";"Area\n (m2)";"City, State"\n1;2;"A, 0"\n2;3;"B; 1"\n'
    assert convert(tmp_path, text, "--target", '"Price, EUR"', "--categories", '"City, State",Area (m2)') == 0
    columns = Columns.of(open_records(tmp_path / "out/train").manifest.contents)
    assert [each.name for each in columns.categories] == ["Area (m2)", "City, State"]
    assert columns.categories[1].values == ("A, 0", "B; 1")


@pytest.mark.parametrize("name", ["TABLE.CSV", "table.csv.gz", "t.TSV"])
def test_names_of_files(tmp_path, name):
    data = HOUSES.encode("utf-8-sig")
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data.replace(b",", b"\t"))
    assert converter.main(["--source", f"{tmp_path}/{name}", "--output", f"{tmp_path}/out"]) == 0
    assert open_records(tmp_path / "out/train").count == 4


def test_constant_columns_are_zero(tmp_path):
    assert convert(tmp_path, "a,b,y\n" + "0.1,1,0\n" * 10) == 0
    columns = Columns.of(open_records(tmp_path / "out/train").manifest.contents)
    np.testing.assert_allclose(
        columns.encode({"a": ["0.1", "0.2"], "b": [1, 2]})["features"], [[0, 0], [0.1, 1]], atol=1e-6
    )


def test_parquet(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"x": [1.0, 3.0, -999.0], "kind": ["b", "a", "a"], "y": [5, 6, 7]})
    parquet.write_table(table, tmp_path / "source.parquet")
    words = ["--source", f"{tmp_path}/source.parquet", "--output", f"{tmp_path}/out", "--target", "y"]
    assert converter.main([*words, "--missing-values=-999", "--missing=drop"]) == 0
    found = open_table(open_records(tmp_path / "out/train")).arrays
    assert (found["features"].tolist(), found["categories"].tolist()) == ([[-1], [1]], [[1], [0]])
    (tmp_path / "source.parquet").write_bytes(b"none")
    assert converter.main([*words, "--overwrite"]) == 3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"a": ["1,5", None, "2,5"], "y": [1, 2, 3]},
            "row 1: a: '1,5' is not a number in this notation; pass --decimal ,",
        ),
        ({"a": [1, 2], "y": ["x", None]}, "row 2: y: has no value, got None; convert with --missing drop"),
        ({"a": [[1], [2]], "y": [1, 2]}, "row 1: a: is a list, not a number or name; pass --leave-out a"),
        ({"a": [b"1", b"2"], "y": [1, 2]}, "row 1: a: is a bytes, not a number or name; pass --leave-out a"),
        ({"a": [1.0, float("inf")], "y": [1, 2]}, "row 2: a: inf is beyond the numbers of records, float32"),
        ({"a": [1], "y": [1], "__index_level_0__": [0]}, "column 3 has no name, as pandas' index"),
        ({"a": [], "y": []}, "has no rows"),
    ],
)
def test_parquet_that_is_refused(tmp_path, capsys, columns, message):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), tmp_path / "source.PARQUET")
    assert converter.main(["--source", f"{tmp_path}/source.PARQUET", "--output", f"{tmp_path}/out"]) == 3
    assert f"source.PARQUET: {message}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("", [], "source.csv: is empty; its first line must name the columns"),
        ("1,2\n3,4\n", [], "line 1: must name the columns, got values; add a line of names"),
        ("5.1,3.5,Iris\n4.9,3.0,Iris\n", [], "line 1: must name the columns, got values; add a line of names"),
        ("1,0,male\n0,1,female\n1,1,male\n", [], "line 1: must name the columns, got values; add a line of names"),
        ("a,a\n1,2\n", [], "line 1: every column needs a name of its own, got 'a' twice"),
        ("a,b\n1\n", [], "line 2: has 1 cells, line 1 has 2"),
        (",a,b\n0,1,2\n", [], "line 1: column 1 has no name, as pandas' index or after a last separator; "
         "pass --leave-out 'Unnamed: 0', or name the column"),
        ("a,b,\n1,2,\n", [], "line 1: column 3 has no name"),
        ("sep=;\na;Unnamed: 0\n1;2\n", [], "line 2: column 2 has no name"),
        ("a b\n1 2\n", [], "has no column beside the target a b; a comma, semicolon, tab or | separates columns"),
        ('"a,b",c\n1,2\n', ["--target", "a,b"], "has no column 'a', it has a,b, c; names with a comma are quoted, as"),
        ("a,b\n,2\n,3\n", ["--missing", "fill"], "a: has no values to train on; pass --leave-out a"),
        ("a,b\n1,2\n1,\n", ["--missing", "fill"], "line 3: b: has no value, got ''; convert with --missing drop"),
        ("a,b\n", [], "source.csv: has no rows"),
        ("a,b\n1,2\n", ["--target", "c"], "has no column 'c', it has a, b"),
        ("a\n1\n", [], "has no column beside the target a"),
        ("a,b\n,2\n1,3\n", [], "line 2: a: has no value, got ''; convert with --missing fill or --missing drop"),
        ("a,b\n1,2\n", ["--target", "a,b"], "has no column beside the target a, b"),
        ("a,b,c\n1,x,y\n", ["--target", "b,c"], "several targets must be numbers, got b, c"),
        ("a,b\nNone,2\nx,3\n", [], "line 2: a: has no value, got 'None'; convert with --missing fill or "
         "--missing drop; if 'None' is a value, pass --missing-values '' to convert"),
        ("a,b\n,2\n1,\n", ["--missing", "drop"], "no row has all values: 1 have no a, as '' in line 2; 1 have no b"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path, capsys, text, words, message):
    assert convert(tmp_path, text, *words) == 3
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_numbers_are_no_classes(here: Path):
    """Nor are categories a target."""
    convert(here, HOUSES)
    with refuses("data.train: out/train has no classes; train a net that gives losses"):
        open_job(load_mapping({"model": {"name": "mlp"}, "data": {"train": "out/train"}, "batch_size": 2}))
    for net in (lambda x: mb.dense(mb.flatten(x), 2), lambda features: mb.dense(features, 2)):
        with pytest.raises(
            ConfigError, match=r"^the data have features, categories, target, without classes; give a loss"
        ):
            mb.fit(net, "out/train", batch_size=2)
    with refuses("train: the table has categories, which the net does not take; add the argument"):
        mb.fit(lambda features: mb.dense(features, 1)[:, 0], "out/train", loss="mse_loss", batch_size=2)


@pytest.mark.parametrize(
    ("net", "loss"),
    [
        (lambda features, categories: mb.dense(features, 1)[:, 0], "mse_loss"),
        (lambda features: {"target": mb.dense(features, 1)[:, 0]}, {"target": mb.mse_loss}),
    ],
)
def test_an_output_of_some_inputs_alone_is_predicted(here: Path, net, loss):
    convert(here, HOUSES)
    fitted = mb.fit(net, "out/train", loss=loss, batch_size=2, learners=1, stop={"epochs": 1})
    np.testing.assert_allclose(fitted.predict("source.csv"), fitted.predict("out/train"), rtol=1e-6)


@pytest.mark.parametrize("loss", [None, mb.mse_loss])
def test_tables_that_were_converted_apart(here: Path, loss):
    for name, first in (("a", 0), ("b", 100)):
        (here / name).mkdir()
        convert(here / name, "x,y\n" + "".join(f"{n + first},{n if loss else 'ab'[n % 2]}\n" for n in range(8)))
    settings = {"loss": loss, "batch_size": 4}

    def net(features):
        y = mb.dense(mb.flatten(features), 2)
        return y[:, 0] if loss else y

    fitted = mb.fit(net, "a/out/train", learners=1, stop={"epochs": 1}, **settings)
    for use in (
        lambda: mb.fit(net, "a/out/train", "b/out/train", **settings),
        lambda: fitted.predict("b/out/train"),
        lambda: evaluate.evaluate(Path(fitted.summary.run), "b/out/train", Single()),
    ):
        with pytest.raises((ConfigError, RecordError), match=r"has contents\.numbers .*; convert both together"):
            use()


def test_it_trains(here: Path):
    """A regression with a category that matters, and a classifier of rows."""
    generator = np.random.default_rng(0)
    rows = [
        (x, kind, x + 5 * (kind == "b"))
        for x, kind in zip(generator.random(200), generator.choice(["a", "b"], 200), strict=True)
    ]
    convert(here, "x,kind,y\n" + "".join(f"{x},{kind},{y}\n" for x, kind, y in rows), "--test-fraction", "0.2")

    def net(features: mb.Tensor, categories: mb.Tensor) -> mb.Tensor:
        kind = mb.embedding(mb.reshape(categories, (-1,)), 2, 2)
        return mb.reshape(mb.dense(mb.concat(features, kind, axis=1), 1), (-1,))

    settings = {"batch_size": 4, "learners": 2, "stop": {"epochs": 15}, "update": {"name": "adamw", "lr": 0.03}}
    fitted = mb.fit(net, "out/train", "out/test", loss=mb.mse_loss, **settings)
    assert fitted.summary.test_loss < 0.5  # 6 is that of the mean
    convert(here, "x,kind\n" + "".join(f"{y},{kind}\n" for _, kind, y in rows), "--overwrite")
    found = mb.fit(lambda x: mb.dense(mb.flatten(x), 2), "out/train", validation=0.2, **settings)
    assert found.summary.validation_accuracy > 0.9
