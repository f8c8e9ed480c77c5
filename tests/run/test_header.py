"""A header that is whole by its checksum and wrong in content: an error that names the entry, or a run that goes on."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save as pack

from mpibow import dense, flatten
from mpibow.comm import Single
from mpibow.config import load
from mpibow.errors import CheckpointError, ConfigError
from mpibow.evaluate import evaluate
from mpibow.job import open_job
from mpibow.run.checkpoint import crc32c, read_header
from mpibow.run.header import header_of
from mpibow.train import train
from mpibow.tune import History
from mpibow.tune.history import Window
from mpibow.tune.meter import Estimate
from tests.refusals import refuses
from tests.run import tiny
from tests.run.processes import write_run

STOP = {"epochs": None, "iterations": 8}
VARY = {"counts", "due", "files", "rule", "rule_settings", "started", "timeline", "tuning"}  # with ranks and the rule
WRONG = (None, True, -1, 10**30, 1.5, "x", [], {}, [0], {"x": 1})


def net(image):
    return dense(flatten(image), 3)


def job(folder: Path, learners, **settings) -> tiny.Job:
    fixed = {"precision": "float32", "device": "numpy", "stop": STOP, "evaluate": {"every": 0.2}}
    point = {"checkpoint": {"every": "4 iterations", "best": False}, "learners": learners}
    return tiny.job(folder, net=net, **{**fixed, **point, **settings})


@pytest.fixture
def path(tmp_path) -> Path:
    """The last checkpoint of a run."""
    tiny.run(job(tmp_path, 2))
    return tmp_path / "run/checkpoints/iteration-0000000008"


# Mutations


def mutations(entry, at: tuple = ()) -> Iterator[tuple[tuple, Callable[..., None]]]:
    """Every place in `entry`, and what may be done there to the mapping or list that holds it."""
    keys = list(entry) if isinstance(entry, dict) else range(len(entry)) if isinstance(entry, list) else []
    for key in keys:
        yield (*at, key), lambda holder, key: holder.pop(key)
        for wrong in WRONG:
            yield (*at, key), lambda holder, key, wrong=wrong: holder.__setitem__(key, wrong)
        yield from mutations(entry[key], (*at, key))


def changed(header: dict, at: tuple, change: Callable[..., None]) -> dict:
    copy = holder = json.loads(json.dumps(header))
    for key in at[:-1]:
        holder = holder[key]
    change(holder, at[-1])
    return copy


@pytest.mark.parametrize(
    ("ranks", "learners", "rule", "least"),
    [(1, "auto", "auto", 900), (2, [1, 2], "crossbow", 300), (1, 2, "independent", 200)],
)
def test_every_mutation_is_refused_or_resumed(tmp_path, ranks, learners, rule, least):
    """One that is let through is resumed; the rest end with code 4, and name the file. The first run tries all entries,
    the others those that ranks, learners and the rule make other ones."""
    settings = {"rule": rule, "tuner": {"window": 1e-3, "watch": 1e-3}}
    work = job(tmp_path, learners, **settings)
    tiny.run(work, ranks)
    path = tmp_path / "run/checkpoints/iteration-0000000008"
    shutil.rmtree(path.with_name("iteration-0000000004"))
    quick = {"stop": {"epochs": None, "iterations": 9}, "checkpoint": {"every": None}, "evaluate": {"every": 1000}}
    longer = job(tmp_path, learners, **{**settings, **quick})
    header = {**read_header(path), "config": "{learners: 1}"}  # all of a config takes long to read
    refused, resumed = 0, set[tuple]()
    names = header.keys() - {"format", "crc32c"} if learners == "auto" else VARY
    for at, change in mutations({key: header[key] for key in header if key in names}):
        tiny.seal(path, lambda _, at=at, change=change: changed(header, at, change))  # type: ignore[misc]
        try:
            header_of(path, read_header(path))
            if at not in resumed:  # with the first value that is let through
                resumed.add(at)
                tiny.run(longer, ranks, resume=path)
        except CheckpointError as error:
            assert str(path) in str(error), at  # noqa: PT017
            refused += 1
        except Exception as error:
            raise AssertionError(f"{at}: {(path / 'checkpoint.json').read_text()}") from error
    assert refused > least


def replaced(path: Path, name: str, data: bytes) -> None:
    """File `name` of a checkpoint holds `data`, and the header has its checksum."""
    (path / name).write_bytes(data)
    measure = [len(data), crc32c(data)]
    tiny.seal(path, lambda header: {**header, "files": {**header["files"], name: measure}})


def test_arrays_of_other_forms(tmp_path):
    """Every array of every file dropped, cut, grown, of another type."""
    work = job(tmp_path, 2, rule="crossbow-3")
    tiny.run(work, 2)
    path = tmp_path / "run/checkpoints/iteration-0000000008"
    longer = job(tmp_path, 2, rule="crossbow-3", stop={"epochs": None, "iterations": 9})
    tried = 0
    for file in sorted(path.glob("*.safetensors")):
        whole, arrays = file.read_bytes(), load_file(file)
        for key, array in arrays.items():
            half = np.float16 if file.name != "centre.safetensors" else np.int8  # whose precision an evaluation chooses
            twice, more = np.concatenate([array, array]), array[np.newaxis]
            for other in (None, array[:-1], twice, more, array[:0], array.astype(np.int32), array.astype(half)):
                rest = {name: value for name, value in arrays.items() if name != key}
                replaced(path, file.name, pack(rest if other is None else {**rest, key: np.ascontiguousarray(other)}))
                with pytest.raises(CheckpointError) as caught:
                    tiny.run(longer, 2, resume=path)
                assert str(path) in str(caught.value), (file, key)
                tried += 1
        replaced(path, file.name, whole)
    assert tried > 70
    assert tiny.run(longer, 2, resume=path).summary.iterations == 9


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "BOOL"])
def test_arrays_of_types_that_numpy_lacks(tmp_path, path: Path, dtype):
    size = 2 if dtype == "BF16" else 1
    entry = {"dense1.bias": {"dtype": dtype, "shape": [3], "data_offsets": [0, 3 * size]}}
    text = json.dumps(entry).encode()
    replaced(path, "centre.safetensors", len(text).to_bytes(8, "little") + text + bytes(3 * size))
    with pytest.raises(CheckpointError, match=r"centre.safetensors|weights of another model"):
        tiny.run(job(tmp_path, 2), resume=path)


def test_what_a_file_lacks_is_asked_for(tmp_path, path: Path):
    tiny.seal(path, lambda header: {**header, "files": {}})
    with refuses(f"{path / 'checkpoint.json'}: files: must have centre.safetensors, got []", CheckpointError):
        tiny.run(job(tmp_path, 2), resume=path)


def test_an_entry_that_is_not_known(tmp_path, path: Path):
    tiny.seal(path, lambda header: {**header, "optimiser": {"name": "adam"}})
    message = f"{path / 'checkpoint.json'}: optimiser: is not an entry that this version reads"
    with refuses(message, CheckpointError):
        tiny.run(job(tmp_path, 2), resume=path)


def test_entries_are_named_with_rule_and_value(tmp_path, path: Path):
    tiny.seal(path, lambda header: {**header, "untold": "x", "ledger": {**header["ledger"], "images": 0.5, "y": 1}})
    with pytest.raises(CheckpointError) as caught:
        tiny.run(job(tmp_path, 2), resume=path)
    file = path / "checkpoint.json"
    assert str(caught.value).splitlines() == [
        f"{file}: ledger.images: must be an integer, got 0.5",
        f"{file}: ledger.y: is not an entry that this version reads",
        f"{file}: untold: must be an integer of at least 0, got 'x'",
    ]


def test_a_tuner_of_other_ranks(tmp_path):
    tiny.run(job(tmp_path, "auto"))
    path = tmp_path / "run/checkpoints/iteration-0000000008"
    time = Estimate(1e-3, 1e-5)
    history = asdict(History((4, 4), 3, (Window((1, 1), (time, time), time),)))
    tiny.seal(path, lambda header: {**header, "tuning": history})
    with pytest.raises(CheckpointError, match=r"tuning.windows\[0\]: must have counts of at least 1 and own of 1 rank"):
        tiny.run(job(tmp_path, "auto"), resume=path)


def test_an_evaluation_reads_a_checked_input(here: Path):
    write_run(here, data={"train": "data/train", "test": "data/test", "normalise": "pixel"}, stop={"epochs": 1})
    train(open_job(load("run.yaml")), Single())
    (path,) = Path("runs/run/checkpoints").glob("iteration-*")
    header = read_header(path)
    tried = 0
    for at, change in mutations(header["input"]):
        tiny.seal(path, lambda _, at=at, change=change: changed(header, ("input", *at), change))  # type: ignore[misc]
        try:
            evaluate(path, "data/test", Single())
        except (CheckpointError, ConfigError) as error:
            assert str(path) in str(error), at  # noqa: PT017
            tried += 1
    assert tried > 60
