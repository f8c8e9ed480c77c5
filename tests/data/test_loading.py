"""What follows from how a rank reads: what that takes, what is said of it, and what is damaged."""

import numpy as np
import pytest

from mpibow.cuda.feed.togpu import held_by
from mpibow.data import Feed, NamedArrays, Samples, Slot, arrays_for
from mpibow.data.damage import Intact
from mpibow.data.loading import Loading, ReadAheadMemory
from mpibow.data.pipeline_choice import PipelineChoice
from mpibow.data.readers import DirectReader
from mpibow.errors import DamagedRecord
from tests.data.test_readers import MISSING
from tests.data.test_skip import COUNT, Broken, read


def reading(
    train: Samples, kind: str = "host", *, why: str = "", threads: int = 4, on_device: bool = False, ahead: int = 2,
) -> Loading:  # fmt: skip
    choice = PipelineChoice(kind, why, on_device)
    return Loading(train, {}, choice, 3, ahead, threads)


def test_what_reading_ahead_takes(data: dict[str, Samples]):
    """Batches of 3 images of 100 bytes, their labels and counters, 300, 12 and 48 bytes; two iterations ahead."""
    assert reading(data["raw"]).held == ReadAheadMemory(4 * 360)
    assert held_by(reading(data["raw"], "resident")) == ReadAheadMemory(4 * (512 + 256 + 256), 3 * 1024)
    on_device = reading(data["raw"], "resident", on_device=True)
    assert held_by(on_device) == ReadAheadMemory(4 * 1024, 3 * 256, 10 * (100 + 4))
    assert held_by(reading(data["raw"], "dali", on_device=True, ahead=1)) == ReadAheadMemory(3 * 1024, 2 * 512)


def test_what_the_log_says(data: dict[str, Samples]):
    encoded, raw = data["encoded"], data["raw"]
    assert reading(encoded, why=MISSING).described == f"pipeline: host with 4 threads: {MISSING}"
    assert reading(encoded, why="x", threads=1).described == "pipeline: host with 1 thread: x"
    assert reading(raw, "resident", why="x").described == "pipeline: resident: x"
    assert reading(data["arrays"]).described == ""
    assert reading(raw, "resident", why="x", on_device=True).described == "pipeline: resident on the GPU: x"
    dali = reading(encoded, "dali", why="x", on_device=True)
    assert dali.described == "pipeline: dali on the GPU with 4 threads: x"


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        (
            "host",
            "encoded",
            "set data.workers above 4 where cores are free, bind more cores to a rank, "
            "or data.pipeline=dali (pip install -e '.[dali]')",
        ),
        ("dali", "encoded", "set data.workers above 4 where cores are free, bind more cores to a rank"),
        (
            "host",
            "raw",
            "set data.pipeline=resident where memory allows, prefetch higher, or copy the data to a faster disk",
        ),
        ("resident", "raw", "set prefetch higher, or leave a core free for reading"),
        ("host", "arrays", "set prefetch higher, or leave a core free for reading"),
    ],
)
def test_remedies(data: dict[str, Samples], kind, name, text):
    assert reading(data[name], kind).remedy == text


def test_remedies_on_a_gpu(data: dict[str, Samples]):
    assert reading(data["raw"], "resident", on_device=True).remedy == "set prefetch higher"
    on_device = reading(data["encoded"], "dali", on_device=True)
    assert on_device.remedy == reading(data["encoded"], "dali").remedy


def test_damages_of_both_data_sets_are_told():
    train, test = Broken(3), Broken(5, 6)
    train.name, test.name = "train", "test"
    both = Loading(train, {"test": test}, PipelineChoice("host", ""), 2, 2, most_damaged=2)
    assert both.damaged() == {}
    assert isinstance(both.intact("test"), Intact)
    assert read(both.intact("test"), 5) == [7]
    reader, feed = both.open()
    assert (type(reader), type(feed)) == (DirectReader, Feed)
    slot = Slot(arrays_for(train, 2), lambda: None, np.array([2, 3]))
    reader.begin([slot])
    reader.end()
    assert slot.arrays["label"].tolist() == [2, 4]
    told = {"train 3": "record 3 is damaged", "test 5": "record 5 is damaged", "test 6": "record 6 is damaged"}
    assert list(both.damaged().items()) == list(told.items())


def test_without_damage_allowed_the_first_is_raised():
    alone = Loading(Broken(), {"test": Broken(COUNT - 1)}, PipelineChoice("host", ""), 2, 2)
    assert isinstance(alone.intact("test"), Intact)
    with pytest.raises(DamagedRecord):
        read(alone.intact("test"), COUNT - 1)


def test_what_is_in_memory_is_tested_as_it_is():
    named = NamedArrays({"user": np.zeros(4, int)})
    assert Loading(named, {"test": named}, PipelineChoice("host", ""), 2, 2).intact("test") is named
