"""Ratings as records: MovieLens' three ways to write them, some set aside to test, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from mpibow.data import open_records
from mpibow.data.ratings import ratings
from mpibow.errors import RecordError
from tests.datasets.scripts import script
from tests.refusals import refuses

converter = script("ratings")
ROWS = [(user, item, 0.5 * (1 + (user + item) % 10)) for user in (7, 196, 3) for item in (20, 4, 31, 1000)]
WRITTEN = {
    "u.data": [f"{user}\t{item}\t{rating:g}\t881250949" for user, item, rating in ROWS],
    "ratings.dat": [f"{user}::{item}::{rating}::978300760" for user, item, rating in ROWS],
    "ratings.csv": ["userId,movieId,rating,timestamp", *(f"{u},{i},{r},1112486027" for u, i, r in ROWS)],
}


def convert(folder: Path, source: Path, *words: str) -> int:
    return converter.main(["--source", str(source), "--output", f"{folder}/output", *words])


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("whole", [True, False], ids=["folder", "file"])
def test_every_rating_once(tmp_path, name, whole, capsys):
    """Numbered in the order of their own numbers: users 3, 7 and 196, items 4, 20, 31 and 1000."""
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / name).write_text("\n".join(WRITTEN[name]) + "\n")
    assert convert(tmp_path, tmp_path / "from" / ("" if whole else name), "--test-fraction", "0.25") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}/output/train: 9 records of 1 classes, verified",
        f"{tmp_path}/output/test: 3 records of 1 classes, verified",
        "model: {name: matrix_factorisation, users: 3, items: 4}",
    ]
    parts = [ratings(open_records(tmp_path / "output" / part)) for part in ("train", "test")]
    found = [row for part in parts for row in zip(*(part.arrays[key].tolist() for key in part.arrays), strict=True)]
    users, items = (3, 7, 196), (4, 20, 31, 1000)
    assert sorted(found) == sorted((users.index(u), items.index(i), r) for u, i, r in ROWS)
    assert [(part.name, part.count) for part in parts] == [("train", 9), ("test", 3)]
    assert {key: str(dtype) for key, (_, dtype) in parts[0].inputs.items()} == {
        "user": "int32", "item": "int32", "rating": "float32"
    }  # fmt: skip


def test_a_mark_and_quotes_lose_no_rating(tmp_path):
    (tmp_path / "u.data").write_text('\ufeff1,2,3\r"1","3","4"\r2,2,1\r2,3,5\r', newline="")
    assert convert(tmp_path, tmp_path, "--test-fraction", "0.25") == 0
    assert sum(open_records(tmp_path / "output" / part).count for part in ("train", "test")) == 4


def test_the_seed_says_which_are_for_the_test(tmp_path):
    (tmp_path / "u.data").write_text("\n".join(WRITTEN["u.data"] * 10))

    def aside(*words: str) -> list[float]:
        assert convert(tmp_path, tmp_path, *words, "--overwrite") == 0
        return ratings(open_records(tmp_path / "output/test")).arrays["rating"].tolist()

    first = aside()
    assert len(first) == 12  # a tenth
    assert aside() == first != aside("--seed", "2")


REFUSED = {
    "too few": ("1\t2\t3\n1\t2\n", "line 2: must be user, item and rating, got '1 2'"),
    "no number": ("1,2,3\n1,x,3\n", "line 2: must be user, item and rating, got '1 x 3'"),
    "no rating": ("1,2,nan\n", "line 1: must be user, item and rating, got '1 2 nan'"),
    "a name in line 1": ("x,2,3\n1,2,3\n", "line 1: must be user, item and rating, got 'x 2 3'"),
    "underscores": ("1,2,3\n1_0,2,3\n", "line 2: must be user, item and rating, got '1_0 2 3'"),
    "decimal commas": ("1;2;3,5\n", "line 1: must be user, item and rating, got '1 2 3,5'"),
    "an index": (
        ",user,item,rating\n0,1,2,3\n",
        "line 1: column 1 has no name, as pandas' index; write the file without it",
    ),
    "names alone": ("user,item,rating\n", "has no ratings"),
    "numbers first": (
        "id,user_id,item,rating\n0,1,2,3\n",
        "line 1: column 1 must be the user, got 'id'; write user, item and rating in this order",
    ),
    "item last": (
        "userId,rating,movieId\n1,2,3\n",
        "line 1: column 3 must be the rating, got 'movieId'; write user, item and rating in this order",
    ),
    "nothing": ("", "has no ratings"),
    "one": ("1,2,3\n", "--test-fraction 0.1 of 1 images is none; take more"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path, case, capsys):
    text, message = REFUSED[case]
    (tmp_path / "u.data").write_text(text)
    assert convert(tmp_path, tmp_path / "u.data") == 3
    assert capsys.readouterr().err == f"error: {tmp_path}/u.data: {message}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["u.data"]


def test_files_that_cannot_be_read(tmp_path, capsys):
    (tmp_path / "latin").write_bytes(b"1,2,3\xe9\n")
    for source, message in (
        (tmp_path / "None", f"{tmp_path}/None: cannot be read: no such file or directory"),
        (
            tmp_path / "latin",
            f"{tmp_path}/latin: line 1: byte 0xe9 is not text in UTF-8; convert the file, as iconv "
            "-f latin1 -t utf-8 'latin' does",
        ),
        (tmp_path, f"{tmp_path}: must hold one of u.data, ratings.dat, ratings.csv, it has 0; name the file"),
    ):
        assert convert(tmp_path, source) == 3
        assert capsys.readouterr().err == f"error: {message}\n"


def test_records_hold_no_more_users_than_float32_tells_apart(tmp_path, monkeypatch):
    assert np.float32(2**24) == np.float32(2**24 + 1)
    monkeypatch.setattr(converter, "MOST", 3)
    (tmp_path / "u.data").write_text("\n".join(WRITTEN["u.data"]))
    with refuses(f"{tmp_path}/u.data: has 4 items, records hold at most 3", RecordError):
        converter.convert(tmp_path, tmp_path / "output")
