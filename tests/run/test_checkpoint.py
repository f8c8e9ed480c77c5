"""Checkpoints: all ranks' files under one name or none, what is kept of them, and what a link names."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from google_crc32c import value as crc32c
from safetensors import SafetensorError

from mpibow.comm import Communicator, Single
from mpibow.errors import CheckpointError
from mpibow.run import checkpoint, saving
from mpibow.run.checkpoint import Snapshot, name_of, read_arrays, read_header, save
from mpibow.run.saving import find, find_whole, newest_first, prune
from tests.comm.threads import on_threads
from tests.refusals import refusal_of, refuses


def snapshot(iteration: int = 7, rank: int = 0) -> Snapshot:
    """With arrays of every kind that a run has: float32, float64, views, empty ones."""
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    return Snapshot(
        {"iteration": iteration, "rule": {"gain": 1.1}},
        {"centre": {"dense1.weight": base.T, "dense1.bias": base[:, 2]}, "common": {"mean": np.linspace(0, 1, 5)}},
        {"weights": base + rank, "none": np.zeros((0, 3))},
    )


def single(function):
    return function(Single())


def save_on(folder: Path, ranks: int, iteration: int = 7) -> list[Path]:
    def body(comm: Communicator) -> Path:
        return save(folder, snapshot(iteration, comm.rank), lambda function: function(comm))

    return on_threads(ranks, body)


def test_what_is_saved_is_read(tmp_path):
    folder = tmp_path / "a/checkpoints"
    paths = save_on(folder, 3)
    assert paths == [folder / "iteration-0000000007"] * 3
    assert sorted(path.name for path in paths[0].iterdir()) == [
        "centre.safetensors", "checkpoint.json", "common.safetensors",
        "rank-0.safetensors", "rank-1.safetensors", "rank-2.safetensors",
    ]  # fmt: skip
    header = read_header(paths[0])
    assert header["iteration"] == 7
    assert header["rule"] == {"gain": 1.1}
    expected = snapshot(7, 2)
    for name, arrays in {**expected.files, "rank-2": expected.own}.items():
        found = read_arrays(paths[0], name)
        assert found.keys() == arrays.keys()
        for key, array in arrays.items():
            assert found[key].dtype == array.dtype
            assert np.array_equal(found[key], array)
    assert list(folder.iterdir()) == [paths[0]]


def test_the_json_can_be_read_without_mpibow(tmp_path):
    path = save(tmp_path, snapshot(), single)
    data = (path / "checkpoint.json").read_bytes()
    header = json.loads(data, parse_constant=pytest.fail)
    assert header["format"] == 2
    digits = header["crc32c"].encode()
    assert digits == f"{crc32c(data.replace(digits, b'00000000', 1)):08x}".encode()
    for file in path.glob("*.safetensors"):
        assert header["files"][file.name] == [file.stat().st_size, crc32c(file.read_bytes())]


def test_any_byte_of_the_json_is_guarded(tmp_path):
    path = save(tmp_path, snapshot(), single) / "checkpoint.json"
    data, header = path.read_bytes(), read_header(path.parent)
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :])
        try:
            assert read_header(path.parent) == header  # white space behind the end says nothing
        except CheckpointError as error:
            assert str(path) in str(error)  # noqa: PT017


def test_numbers_that_json_lacks_are_left_out(tmp_path):
    numbers = {"a": float("nan"), "b": 1.5, "c": [{"d": np.float64("inf"), "e": 2}]}
    path = save(tmp_path, replace(snapshot(), header={"iteration": 7, "ledger": numbers}), single)
    json.loads((path / "checkpoint.json").read_bytes(), parse_constant=pytest.fail)
    assert read_header(path)["ledger"] == {"b": 1.5, "c": [{"e": 2}]}


def test_saving_again_replaces(tmp_path):
    first = save(tmp_path, snapshot(), single)
    (first / "rank-9.safetensors").write_bytes(b"of more ranks")
    second = save(tmp_path, snapshot(), single)
    assert first == second
    assert not (second / "rank-9.safetensors").exists()
    assert list(tmp_path.iterdir()) == [second]


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_kill_while_it_is_replaced_leaves_one(tmp_path, monkeypatch, step):
    """Before each of the two renames, and before what was replaced is removed."""
    folder = tmp_path / "checkpoints"
    first = save(folder, snapshot(), single)
    real, calls = Path.rename, iter(range(step))

    def rename(path: Path, target: Path) -> Path:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return real(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    if step == 2:
        monkeypatch.setattr(checkpoint, "sync_folder", lambda path: next(calls) if path == folder else None)
        with pytest.raises(StopIteration):
            save(folder, snapshot(), single)
    else:
        with pytest.raises(KeyboardInterrupt):
            save(folder, snapshot(), single)
    monkeypatch.undo()
    assert find_whole(tmp_path, lambda text: pytest.fail(text))[0] == first
    assert save(folder, snapshot(), single) == first
    saving.clear(folder)
    assert list(folder.iterdir()) == [first]


def test_leftovers_of_a_kill_do_no_harm(tmp_path):
    part = tmp_path / ".iteration-0000000007.part"
    part.mkdir()
    (part / "rank-1.safetensors").write_bytes(b"old")
    path = save(tmp_path, snapshot(), single)
    assert not (path / "rank-1.safetensors").exists()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_where_one_rank_cannot_write_all_raise(tmp_path, monkeypatch, failing, before, number):
    kept = save_on(tmp_path, 2, 3)[:1] if before else []
    real = checkpoint.save_file

    def full(arrays, path: Path) -> None:
        if path.name == f"rank-{failing}.safetensors":
            if number == errno.EDQUOT:  # as safetensors has it
                raise SafetensorError(f"I/O error: {os.strerror(number)} (os error {number})")
            raise OSError(number, os.strerror(number))
        real(arrays, path)

    monkeypatch.setattr(checkpoint, "save_file", full)

    def body(comm: Communicator) -> str:
        return refusal_of(
            save, tmp_path, snapshot(7, comm.rank), lambda function: function(comm), error=CheckpointError
        )

    said = on_threads(2, body)
    assert said[0] == said[1]
    assert said[0].startswith(f"rank {failing}: {tmp_path}: a checkpoint cannot be written: ")
    space = number != errno.EACCES
    assert (
        said[0].partition("; ")[2]
        == {
            (True, True): "the checkpoints before it are complete: free some space and use --resume",
            (True, False): "the checkpoints before it are complete: use --resume",
            (False, True): "free some space",
            (False, False): "choose another place with out=DIR",
        }[before, space]
    )
    assert list(tmp_path.iterdir()) == kept
    for path in kept:
        read_header(path)


def test_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="a checkpoint cannot be written: not a directory"):
        save(tmp_path / "file", snapshot(), single)


# Which ones


@pytest.fixture
def four(tmp_path) -> Path:
    for iteration in (5, 10, 100, 20):
        save(tmp_path / "checkpoints", snapshot(iteration), single)
    (tmp_path / "checkpoints/.iteration-0000000200.part").mkdir()
    (tmp_path / "checkpoints/notes.txt").write_text("")
    return tmp_path


def iterations(paths) -> list[int]:
    return [int(path.name.split("-")[1]) for path in paths]


def test_names_sort_as_numbers():
    assert sorted(map(name_of, (100, 20, 9**10)), reverse=True) == [name_of(9**10), name_of(100), name_of(20)]


def test_newest_first(four: Path):
    assert iterations(newest_first(four / "checkpoints")) == [100, 20, 10, 5]
    assert newest_first(four / "none") == []


def test_find(four: Path):
    assert iterations(find(four)) == [100, 20, 10, 5]
    assert iterations(find(four / "checkpoints" / name_of(20))) == [20, 10, 5]
    saving.point(four / "checkpoints", "best", four / "checkpoints" / name_of(10))
    assert iterations(find(four / "checkpoints/best")) == [10, 5]


@pytest.mark.parametrize("path", ["checkpoints", "none", "checkpoints/notes.txt"])
def test_find_no_checkpoint(four: Path, path):
    with refuses(
        f"{four / path}: is neither a checkpoint nor a run directory with checkpoints/ in it", CheckpointError
    ):
        list(find(four / path))


def test_choose_takes_the_first_whole_one(four: Path):
    notes: list[str] = []
    for iteration in (100, 20):
        (four / "checkpoints" / name_of(iteration) / "common.safetensors").unlink()
    path, header = find_whole(four, notes.append)
    assert header["iteration"] == 10
    assert path == four / "checkpoints" / name_of(10)
    assert notes == [
        f"{four / 'checkpoints' / name_of(iteration) / 'common.safetensors'}: cannot be read: "
        "no such file or directory; using the checkpoint before it"
        for iteration in (100, 20)
    ]


@pytest.mark.parametrize(
    ("keep", "latest", "best", "left"),
    [
        (1, 100, None, [100]), (2, 100, None, [100, 20]), (9, 100, None, [100, 20, 10, 5]), (1, 100, 5, [100, 5]),
        (1, 100, 100, [100]), (1, 20, None, [20]), (2, 10, None, [10, 5]), (1, 10, 100, [100, 10]),
    ],
)  # fmt: skip
def test_prune(four: Path, keep, latest, best, left):
    folder = four / "checkpoints"
    if best is not None:
        saving.point(folder, "best", folder / name_of(best))
    prune(folder, keep, folder / name_of(latest))
    assert iterations(newest_first(folder)) == left
    assert [path.name for path in folder.glob(".*")] == [".iteration-0000000200.part"]  # of whoever writes it
    saving.clear(folder)
    assert list(folder.glob(".*")) == []
    assert (folder / "notes.txt").exists()
    if best is not None:
        assert (folder / "best").resolve() == folder / name_of(best)


def test_a_link_moves(four: Path):
    folder = four / "checkpoints"
    for iteration in (5, 20):
        saving.point(folder, "best", folder / name_of(iteration))
    assert (folder / "best").readlink() == Path(name_of(20))  # it moves with the folder
    saving.point(folder, "best", folder / name_of(7))  # which there is not
    assert not (folder / "best").is_symlink()


def test_a_link_that_cannot_be_made(four: Path):
    folder = four / "checkpoints"
    (folder / "best").mkdir()
    with refuses(f"{folder / 'best'}: cannot be made: is a directory", CheckpointError):
        saving.point(folder, "best", folder / name_of(5))
