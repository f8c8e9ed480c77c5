"""Validation data that are split off: so much of every class, and the same samples as the whole data set has."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpibow.data import Array, ArrayData, Image, NamedArrays, RecordSet, open_records, write_records
from mpibow.data.damage import Damages, Intact
from mpibow.data.decoded import Decoded
from mpibow.data.loading import Loading
from mpibow.data.pipeline_choice import PipelineChoice
from mpibow.data.split import held_out, split
from mpibow.errors import DamagedRecord
from tests.data.photos import MOMENTS, bars, records
from tests.data.sets import flip, read
from tests.data.test_alike import check
from tests.refusals import refuses

COUNT = 41
PIXELS = np.random.default_rng(2).integers(0, 256, (COUNT, 3, 4, 4), dtype=np.uint8)
LABELS = np.random.default_rng(3).integers(0, 4, COUNT).astype(np.int32)


def raw(folder: Path) -> RecordSet:
    """In several shards, so that a part's samples lie in all of them."""
    write_records(folder, zip(PIXELS, LABELS.tolist(), strict=True), classes=4, shard_size=400)
    return open_records(folder)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=200), st.floats(0.01, 0.99), st.integers(0, 2**32 - 1))
def test_so_much_of_every_class(strata, fraction, seed):
    labels = np.array(strata)
    held = held_out(labels, fraction, seed)
    assert held.sum() == np.floor(len(labels) * fraction + 0.5)
    for label in set(strata):
        assert abs(held[labels == label].sum() - fraction * (labels == label).sum()) < 1 + 1e-9
    assert np.array_equal(held_out(labels, fraction, seed), held)
    pieces = held_out(labels, fraction, seed, 50)
    for first in range(0, len(labels), 50):
        assert pieces[first : first + 50].sum() == np.floor(len(labels[first : first + 50]) * fraction + 0.5)


def test_every_seed_splits_in_its_own_way_and_every_version_alike():
    """Runs are resumed by later versions: these are the samples that the first one held out."""
    labels = np.arange(20) % 2
    assert np.flatnonzero(held_out(labels, 0.2, 1)).tolist() == PINNED
    seeds = {tuple(np.flatnonzero(held_out(labels, 0.2, seed))) for seed in range(20)}
    assert len(seeds) > 15
    assert {sample for split in seeds for sample in split} == set(range(20))  # everyone may be


PINNED = [7, 16, 18, 19]


@pytest.mark.parametrize("kind", ["raw", "arrays"])
def test_parts_are_the_samples_of_the_whole(kind, tmp_path):
    data = raw(tmp_path / "set") if kind == "raw" else ArrayData(PIXELS, LABELS, classes=4, name="set")
    parts, held = split(data, 0.25, 7), held_out(LABELS, 0.25, 7)
    for part, rows in zip(parts, (np.flatnonzero(~held), np.flatnonzero(held)), strict=True):
        assert (part.name, part.count, part.classes, part.shape) == ("set", len(rows), 4, (3, 4, 4))
        images, labels = read(part)
        assert np.array_equal(images, PIXELS[rows])
        assert np.array_equal(labels, LABELS[rows])
        assert np.array_equal(part.strata(), LABELS[rows])
        mean, std = PIXELS[rows].mean((0, 2, 3)), PIXELS[rows].std((0, 2, 3))
        np.testing.assert_allclose((part.mean, part.std), (mean, std), rtol=1e-12)  # its own, not the whole's
        assert abs(part.mean[0] - data.mean[0]) > 1e-6
    again, _ = split(parts[0], 0.5, 7)  # a part of a part
    rows = np.flatnonzero(~held)[~held_out(LABELS[~held], 0.5, 7)]
    assert np.array_equal(read(again)[0], PIXELS[rows])


def test_records_of_a_part_have_the_places_of_the_whole(tmp_path):
    data = raw(tmp_path / "set")
    _, part = split(data, 0.25, 7)
    for sample, record in enumerate(np.flatnonzero(held_out(LABELS, 0.25, 7)).tolist()):
        assert (part.number(sample), part.where(sample)) == (record, data.where(record))
        assert (part.label(sample), part.record(sample)) == (LABELS[record], data.record(record))
    assert data.number(5) == 5
    assert part.shard(0) is data.shard(0)  # no file is opened twice


def test_encoded_images(tmp_path):
    data = Decoded(records(tmp_path / "set", bars(13)), Image(8), (0.5, 1.0))
    train, held = split(data, 0.3, 1)
    rows = np.flatnonzero(held_out(data.strata(), 0.3, 1))
    assert (train.count, held.count, held.area, held.image) == (9, 4, (0.5, 1.0), Image(8))
    for got, expected in zip(read(held), read(data, rows.tolist()), strict=True):
        assert np.array_equal(got, expected)
    assert [list(train.mean), list(train.std)] == list(MOMENTS)  # of the images that were looked at to convert
    assert [held.number(sample) for sample in range(4)] == rows.tolist()


def test_arrays_by_name_have_no_classes():
    data = NamedArrays({"user": np.arange(10), "rating": np.arange(10) / 2})
    train, held = split(data, 0.3, 1)
    assert (train.count, held.count) == (7, 3)
    both = np.sort(np.concatenate([train.arrays["user"], held.arrays["user"]]))
    assert np.array_equal(both, np.arange(10))
    assert np.array_equal(held.arrays["rating"], held.arrays["user"] / 2)


class Own:
    name, count, inputs = "own", 10, {"x": ((), np.dtype(np.int32))}

    def read(self, samples: Array, *arrays: Array) -> None:
        arrays[0][...] = samples


def test_what_cannot_be_split():
    own = Own()
    with refuses(
        "data.validation: a fraction is split off records or arrays, own is neither; give validation data of their own"
    ):
        split(own, 0.1, 1)
    for wrong in (0.0, 1.0, float("nan")):
        with refuses(f"data.validation: a fraction must be above 0 and below 1, got {wrong:g}"):
            split(ArrayData(PIXELS, LABELS), wrong, 1)
    few = ArrayData(PIXELS[:3], LABELS[:3], classes=4, name="few")
    for fraction, held in ((0.1, 0), (0.9, 3)):
        with refuses(f"data.validation: must leave samples on both sides, {fraction} of few's 3 is {held}"):
            split(few, fraction, 1)


def test_damage_is_named_by_the_record(tmp_path):
    """And moments are those of the images that are whole."""
    held = held_out(LABELS, 0.25, 7)
    record = int(np.flatnonzero(~held)[6])
    path, number = raw(tmp_path / "set").where(record).split(": record ")
    flip(Path(path), 64 + int(number) * 48 + 5)
    train, validation = split(open_records(tmp_path / "set"), 0.25, 7)
    with pytest.raises(DamagedRecord, match=f"{train.where(6)}: checksum is 0x"):
        read(train)
    whole = ~held & (np.arange(COUNT) != record)
    np.testing.assert_allclose(train.mean, PIXELS[whole].mean((0, 2, 3)), rtol=1e-12)
    reading = Loading(train, {"validation": validation}, PipelineChoice("host", ""), 2, 2, most_damaged=1)
    reader, _ = reading.open()
    assert np.array_equal(read(reading.intact("validation"))[0], PIXELS[held])
    assert reading.damaged() == {}
    damages = Damages("set", train.count, 1, train.number)
    images, _ = read(Intact(train, damages))
    assert np.array_equal(images[6], PIXELS[~held][7])  # the next of the part
    (name,) = damages.found()
    assert name == f"set {record}"
    reader.close()


@pytest.mark.parametrize("kind", ["resident", pytest.param("dali", marks=pytest.mark.dali)])
def test_every_pipeline_reads_the_same_part(kind, tmp_path):
    train, _ = split(raw(tmp_path / "set"), 0.25, 7)
    check(("host", kind), train, batch=3, iterations=9)


@pytest.mark.dali
def test_dali_decodes_the_same_part(tmp_path):
    train, _ = split(Decoded(records(tmp_path / "set", bars(30)), Image(8), (0.5, 1.0)), 0.25, 7)
    check(("host", "dali"), train, batch=2, iterations=16)
