"""The files of a converter: by folder, pattern or name, in the order of their numbers; train and test of one folder."""

from pathlib import Path

import pytest

from mpibow.convert.source_files import files, parts
from mpibow.errors import RecordError
from tests.refusals import refuses


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def names(folder: Path, found: dict[str, list[Path]]) -> dict[str, list[str]]:
    return {part: [str(path.relative_to(folder)) for path in paths] for part, paths in found.items()}


def test_files(tmp_path):
    touch(tmp_path, "train/part-10", "train/part-2", "train/.hidden", "train/folder/part-1")
    two, ten = tmp_path / "train" / "part-2", tmp_path / "train" / "part-10"
    for place in (tmp_path / "train", tmp_path / "train" / "*", tmp_path / "t*" / "part-*[02]"):
        assert files(str(place)) == [two, ten]
    assert files(two) == [two]
    for place in (tmp_path / "empty", tmp_path / "train" / "*.bin"):
        with refuses(f"{place}: there are no such files; name a folder, or a pattern in quotes", RecordError):
            files(place)


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (["train", "test"], {"train": ["train"], "test": ["test"]}),
        (["train-10", "train-9", "val-0", "other"], {"train": ["train-9", "train-10"], "test": ["val-0"]}),
        (["train/b2", "train/b10", "validation/c"], {"train": ["train/b2", "train/b10"], "test": ["validation/c"]}),
        (["training.tfrecord"], {"train": ["training.tfrecord"]}),
        (["Train-1", "Train-2", "VAL"], {"train": ["Train-1", "Train-2"], "test": ["VAL"]}),
        (
            ["x_Training/a", "x_Testing/b", "x_Testing/.c", "__MACOSX/d"],
            {"train": ["x_Training/a"], "test": ["x_Testing/b"]},
        ),
    ],
)
def test_parts(tmp_path, capsys, there, found):
    touch(tmp_path, *there)
    assert names(tmp_path, parts(tmp_path)) == found
    out = f"{tmp_path}: left out, not parts by their names: other\n"
    assert capsys.readouterr().out == (out if "other" in there else "")


def test_one_file_is_to_train(tmp_path):
    touch(tmp_path, "a")
    assert parts(tmp_path / "a") == {"train": [tmp_path / "a"]}


@pytest.mark.parametrize(
    ("there", "message"),
    [
        ([], "there is no such file or folder"),
        (["test"], "has no files or folders to train on, by their names; say which by --train and --test"),
        (["train", "test-1", "val-1"], "has test-1 and val-1; say which by --train and --test"),
    ],
)
def test_parts_that_are_not_clear(tmp_path, there, message):
    touch(tmp_path / "in", *there) if there else None
    with refuses(f"{tmp_path}/in: {message}", RecordError):
        parts(tmp_path / "in")
