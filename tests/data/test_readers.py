"""Which pipeline a run takes: a pure function of data, wish and what the ranks have; and what it then makes."""

import numpy as np
import pytest

from mpibow.data import NamedArrays, Samples, Wanted, dali, open_records, write_records
from mpibow.data.damage import Damages
from mpibow.data.pipeline_choice import (
    PipelineChoice,
    Resources,
    choose,
    find_facts,
    open_reader,
    prefetch,
    size_of,
    threads_of,
)
from mpibow.data.readers import DirectReader, DrawingReader
from tests.refusals import refuses

MISSING = "NVIDIA DALI is not installed: pip install -e '.[dali]'"
NUMBA = "numba is not installed: pip install -e '.[dali]'"
BARE = Resources(MISSING, 8000, 1)
FULL = Resources("", 8000, 1)
FASTER = "dali gives the same images faster, but "


@pytest.mark.parametrize(
    ("name", "facts", "kind", "why"),
    [
        ("encoded", [FULL], "dali", "NVIDIA DALI is installed on every rank"),
        ("encoded", [FULL, FULL], "dali", "NVIDIA DALI is installed on every rank"),
        ("encoded", [BARE], "host", FASTER + MISSING),
        ("encoded", [BARE, BARE], "host", FASTER + MISSING),
        ("encoded", [FULL, BARE], "host", f"{FASTER}rank 1: {MISSING}"),
        ("encoded", [FULL, FULL, Resources(NUMBA, 1, 1), BARE], "host", f"{FASTER}rank 2: {NUMBA}"),
        ("raw", [Resources("", 4000, 1)], "resident", "0.0 MiB, a quarter of a rank's free memory is 0.0 MiB"),
        ("raw", [Resources("", 3999, 1)], "host", "0.0 MiB, a quarter of a rank's free memory is 0.0 MiB"),
        ("raw", [Resources("", 4 << 40, 2)], "resident", "0.0 MiB, a quarter of a rank's free memory is 524,288.0 MiB"),
        ("raw", [Resources("", 8000, 2)] * 2, "resident", "0.0 MiB, a quarter of a rank's free memory is 0.0 MiB"),
        ("raw", [FULL, Resources("", 8000, 3)], "host", "0.0 MiB, a quarter of a rank's free memory is 0.0 MiB"),
        ("arrays", [FULL], "host", ""),
        ("named", [BARE], "host", ""),
    ],
)
def test_auto(data: dict[str, Samples], name, facts: list[Resources], kind, why):
    """All ranks take the same: what the least of them can."""
    assert choose("auto", data[name], facts) == PipelineChoice(kind, why)
    assert choose("auto", data[name], facts[::-1]).kind == kind


NEED, FREE = "0.0 MiB, a quarter of a rank's free GPU memory is ", "a quarter of a rank's free memory is "


def on_gpu(device: int, memory: int = 8000, missing: str = "") -> Resources:
    return Resources(missing, memory, 1, device)


@pytest.mark.parametrize(
    ("name", "facts", "choice"),
    [
        ("raw", [on_gpu(4000)], PipelineChoice("resident", f"{NEED}0.0 MiB", on_device=True)),
        ("raw", [on_gpu(4000, 0)], PipelineChoice("resident", f"{NEED}0.0 MiB", on_device=True)),
        ("raw", [on_gpu(80 << 30)] * 2, PipelineChoice("resident", f"{NEED}20,480.0 MiB", on_device=True)),
        ("raw", [on_gpu(3999)], PipelineChoice("resident", f"{NEED}0.0 MiB, {FREE}0.0 MiB")),
        ("raw", [on_gpu(80 << 30), on_gpu(3999, 8 << 30)], PipelineChoice("resident", f"{NEED}0.0 MiB, {FREE}0.0 MiB")),
        ("raw", [on_gpu(3999, 3999)], PipelineChoice("host", f"{NEED}0.0 MiB, {FREE}0.0 MiB")),
        ("raw", [on_gpu(80 << 30), FULL], PipelineChoice("resident", f"0.0 MiB, {FREE}0.0 MiB")),
        ("arrays", [on_gpu(64)], PipelineChoice("resident", f"{NEED}0.0 MiB", on_device=True)),
        ("arrays", [on_gpu(63)], PipelineChoice("host", f"{NEED}0.0 MiB")),
        ("named", [on_gpu(64)], PipelineChoice("resident", f"{NEED}0.0 MiB", on_device=True)),
        ("named", [on_gpu(63)], PipelineChoice("host", f"{NEED}0.0 MiB")),
        ("named", [on_gpu(64), FULL], PipelineChoice("host", "")),
        ("encoded", [on_gpu(1)], PipelineChoice("dali", "NVIDIA DALI is installed on every rank", on_device=True)),
        ("encoded", [on_gpu(1, missing=MISSING)], PipelineChoice("host", FASTER + MISSING)),
    ],
)
def test_auto_on_gpus(data: dict[str, Samples], name, facts: list[Resources], choice: PipelineChoice):
    """Raw images of 1,000 bytes, arrays of 16: they lie on the GPU where they are at most a quarter of what is free."""
    assert choose("auto", data[name], facts) == choose("auto", data[name], facts[::-1]) == choice


@pytest.mark.parametrize(
    ("name", "wanted", "device", "choice"),
    [
        ("raw", "resident", 4000, PipelineChoice("resident", f"{NEED}0.0 MiB", on_device=True)),
        ("raw", "resident", 3999, PipelineChoice("resident", f"{NEED}0.0 MiB")),
        ("raw", "host", 4000, PipelineChoice("host", "as set by data.pipeline")),
        ("raw", "dali", 4000, PipelineChoice("dali", "as set by data.pipeline")),
        ("encoded", "dali", 4000, PipelineChoice("dali", "as set by data.pipeline", on_device=True)),
        ("encoded", "host", 4000, PipelineChoice("host", "as set by data.pipeline")),
        ("named", "resident", 4000, PipelineChoice("resident", f"{NEED}0.0 MiB", on_device=True)),
        ("named", "resident", 63, PipelineChoice("resident", f"{NEED}0.0 MiB")),
        ("named", "host", 4000, PipelineChoice("host", "as set by data.pipeline")),
    ],
)
def test_what_is_said_on_a_gpu(data: dict[str, Samples], name, wanted: Wanted, device, choice: PipelineChoice):
    """What is said is done, on the GPU where that can be."""
    assert choose(wanted, data[name], [on_gpu(device)]) == choice
    form = "encoded" if name == "encoded" else "raw"
    assert ((form, choice.kind) in {("encoded", "dali"), ("raw", "resident")}) or not choice.on_device


def test_size(data: dict[str, Samples]):
    assert size_of(data["raw"]) == 1000
    assert size_of(NamedArrays({"user": np.zeros(4, int), "word": np.zeros((4, 3), np.uint8)})) == 4 * (4 + 3)


@pytest.mark.parametrize(
    ("name", "wanted", "message"),
    [
        ("encoded", "dali", f"data.pipeline: dali cannot be used: rank 1: {MISSING}"),
        (
            "encoded",
            "resident",
            "data.pipeline: resident needs raw images, encoded has encoded ones, and every epoch takes new "
            "crops of them; set auto, host or dali",
        ),
        ("arrays", "dali", "data.pipeline: dali reads records of images, arrays has none; set auto"),
    ],
)
def test_what_is_refused(data: dict[str, Samples], name, wanted: Wanted, message):
    with refuses(message):
        choose(wanted, data[name], [FULL, BARE])


def test_what_is_found_here():
    facts = find_facts(3)
    assert (facts.dali, facts.ranks, facts.device) == (dali.available(), 3, None)
    assert find_facts(3, 17).device == 17
    assert 1 << 20 < facts.memory < 1 << 50


@pytest.mark.parametrize(
    ("wanted", "name", "batch", "iterations"),
    [
        ("auto", "encoded", 1, 192),
        ("auto", "encoded", 16, 12),
        ("auto", "encoded", 100, 2),
        ("auto", "encoded", 1000, 2),
        ("auto", "encoded", 70, 3),
        ("auto", "raw", 1, 2),
        ("auto", "arrays", 1, 2),
        ("auto", "named", 1, 2),
        (1, "encoded", 16, 1),
        (7, "raw", 16, 7),
    ],
)
def test_prefetch(data: dict[str, Samples], wanted, name, batch, iterations):
    assert prefetch(wanted, data[name], batch) == iterations


@pytest.mark.parametrize(
    ("wanted", "allowed", "machine", "ranks", "threads"),
    [
        ("auto", 8, 8, 1, 8),
        ("auto", 8, 8, 3, 2),  # they share the node
        ("auto", 2, 8, 4, 2),  # the launcher has bound it to its own
        ("auto", 2, 2, 5, 1),
        ("auto", 64, 64, 1, 16),
        (40, 8, 8, 1, 40),
    ],
)
def test_threads(wanted, allowed, machine, ranks, threads):
    assert threads_of(wanted, allowed, machine, ranks) == threads


@pytest.mark.parametrize(
    ("kind", "name", "reader"),
    [
        ("host", "encoded", DrawingReader),
        ("host", "raw", DirectReader),
        ("resident", "raw", DirectReader),
        ("host", "arrays", DirectReader),
        ("host", "named", DirectReader),
    ],
)
def test_readers(data: dict[str, Samples], kind, name, reader: type):
    found = open_reader(PipelineChoice(kind, ""), data[name], Damages(name, data[name].count, 0), 2)
    assert type(found) is reader
    found.close()


def test_resident_reads_the_files_once(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (3000, 3, 2, 5), dtype=np.uint8)
    write_records(tmp_path / "a", zip(pixels, np.arange(3000) % 7, strict=True), classes=7)
    data = open_records(tmp_path / "a")
    resident = open_reader(PipelineChoice("resident", ""), data, Damages("a", 3000, 0), 2).data
    assert (resident.name, resident.count, resident.shape, resident.classes) == ("a", 3000, (3, 2, 5), 7)
    assert (resident.mean, resident.std, resident.dtype) == (data.mean, data.std, np.uint8)
    file = tmp_path / "a/a-00000.mpr"
    with file.open("r+b") as opened:  # what is overwritten now is not read again
        opened.write(bytes(file.stat().st_size))
    samples = np.array([2999, 0, 1024, 1023])
    images, labels = np.zeros((4, 3, 2, 5), np.uint8), np.zeros(4, np.int32)
    resident.read(samples, images, labels)
    np.testing.assert_array_equal(images, pixels[samples])
    assert labels.tolist() == (samples % 7).tolist()
