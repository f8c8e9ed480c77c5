"""Checkpoints: all that the next iteration reads, as safetensors and JSON with checksums, under its name or not at all.

iteration-00001234/
    centre.safetensors     the centre by weight names in canonical shapes, evaluated and exported
    common.safetensors     the arrays that the rule keeps beside it, the same on all ranks: none under sma
    average.safetensors    where `ema` is set: the average of the centre, in the same form
    input.safetensors      where data.normalise is pixel: the mean image, for evaluations
    rank-0.safetensors     that rank's replicas: weights and momenta (learners, size), statistics, its sums that wait
    checkpoint.json        everything else, and the size and CRC32C of each file; written last

checkpoint.json is a JSON object: {"format": 2, "crc32c": "89abcdef", "files": {name: [size, crc32c]}, ...}, in this
order. Its crc32c is that of all its bytes with the eight digits taken as 0.

A reader refuses entries that it does not know, and checkpoints that lack one (header.py).
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from google_crc32c import extend, value as crc32c
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from mpibow.comm.communicator import Call
from mpibow.comm.pulse import Pulse
from mpibow.errors import CheckpointError
from mpibow.graph import Array, ArraysByName
from mpibow.system import JsonObject, finite, is_full, open_file, read_file, reason, refusal, sync_folder, whole_file

from .directory import ELSEWHERE

FORMAT = 2
FIRST = "first_statistics"  # the array of input.safetensors that replicas' statistics started from
SEAL = re.compile(rb'\{\s*"format": \d+,\s*"crc32c": "([0-9a-f]{8})"')
FILE = re.compile(r"(centre|common|input|average|rank-\d+)\.safetensors")
T = TypeVar("T")


@dataclass(frozen=True)
class Snapshot:
    """A run between two iterations: `header` is JSON, `own` are this rank's arrays, `files` by name the same on all."""

    header: JsonObject
    files: Mapping[str, ArraysByName]
    own: ArraysByName


def name_of(iteration: int) -> str:
    """The folder name of the checkpoint made before `iteration`."""
    return f"iteration-{iteration:010d}"


def save(folder: Path, snapshot: Snapshot, call: Call) -> Path:
    """Writes `folder`/iteration-N on all ranks together; its name appears when every file is safe on disk.

    Raises CheckpointError on every rank where one can't write; nothing half-written stays.
    """
    rank, pulse = call(lambda comm: (comm.rank, comm.pulse))
    name = name_of(snapshot.header["iteration"])
    aside = folder / f".{name}.part"
    final = folder / name
    parts = {f"rank-{rank}": snapshot.own, **(snapshot.files if rank == 0 else {})}
    files = {f"{name}.safetensors": arrays for name, arrays in parts.items()}
    with pulse.during("checkpoint"):
        _together(call, lambda: _prepare(aside) if rank == 0 else None, aside)
        written = _together(call, lambda: {name: _write(aside / name, files[name], pulse) for name in files}, aside)
        measured = {name: measure for part in written for name, measure in part.items()}
        header = {"format": FORMAT, "crc32c": "00000000", "files": measured, **finite(snapshot.header)}
        _together(call, lambda: _finish(aside, final, header) if rank == 0 else None, aside)
    return final


def _together(call: Call, work: Callable[[], T], aside: Path) -> list[T]:
    """The results of `work` on every rank; where it failed on one, all raise and rank 0 clears up."""
    error = ""
    results = []
    try:
        results.append(work())
    except (OSError, SafetensorError) as caught:
        error = f"{aside.parent}: a checkpoint cannot be written: {reason(caught)}; {_remedy(aside.parent, caught)}"
    outcomes = call(lambda comm: comm.share((error, results)))
    failures = [f"rank {rank}: {failed}" for rank, (failed, _) in enumerate(outcomes) if failed]
    if failures:
        shutil.rmtree(aside, ignore_errors=True)
        raise CheckpointError(failures[0])
    return [result for _, each in outcomes for result in each]


def _remedy(folder: Path, error: Exception) -> str:
    """The remedy where a checkpoint in `folder` cannot be written."""
    space = "free some space" * is_full(error)
    if any(folder.glob("iteration-*/checkpoint.json")):
        return f"the checkpoints before it are complete: {space}{' and ' if space else ''}use --resume"
    return space or ELSEWHERE


def _prepare(aside: Path) -> None:
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)


def _write(path: Path, arrays: ArraysByName, pulse: Pulse) -> list[int]:
    """Writes the file; returns its size and CRC32C as read from disk."""
    save_file({name: np.asarray(array, order="C") for name, array in arrays.items()}, path)
    pulse.beat()
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    pulse.beat()
    return _measure(path)


def _measure(path: Path) -> list[int]:
    checksum = size = 0
    with open_file(path) as file:
        while block := file.read(1 << 22):
            checksum = extend(checksum, block)
            size += len(block)
    return [size, checksum]


def _finish(aside: Path, final: Path, header: JsonObject) -> None:
    data = (json.dumps(header, indent=1, allow_nan=False) + "\n").encode()
    data = data.replace(b"00000000", f"{crc32c(data):08x}".encode(), 1)
    with whole_file(aside / "checkpoint.json") as file:
        file.write(data)
    old = final.with_name(f".{final.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    aside.rename(final)
    sync_folder(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def read_header(path: Path) -> JsonObject:
    """The JSON of the checkpoint `path`, every file of it verified. Raises CheckpointError naming what is damaged."""
    file = path / "checkpoint.json"
    try:
        with refusal(CheckpointError, file, "read"):
            header = _unsealed(read_file(file))
    except (ValueError, RecursionError):
        raise CheckpointError(f"{file}: is damaged: its checksum does not match") from None
    if header.get("format") != FORMAT:
        raise CheckpointError(f"{path}: has format {header.get('format')}, this version reads {FORMAT}")
    files = header.get("files")
    if not isinstance(files, dict) or not all(
        FILE.fullmatch(name) and isinstance(each, list) and [*map(type, each)] == [int, int]
        for name, each in files.items()
    ):
        raise CheckpointError(f"{file}: files: must be a mapping of rank-0.safetensors and so on to [size, CRC32C]")
    for name, expected in files.items():
        with refusal(CheckpointError, path / name, "read"):
            found = _measure(path / name)
        if found != expected:
            raise CheckpointError(
                f"{path / name}: is damaged: {found[0]} bytes with CRC32C {found[1]:#010x}, "
                f"checkpoint.json has {expected[0]} with {expected[1]:#010x}"
            )
    return header


def _unsealed(data: bytes) -> JsonObject:
    """The content of checkpoint.json. Raises ValueError and such where its checksum is not that of its bytes."""
    seal = SEAL.match(data)
    if not seal or int(seal[1], 16) != crc32c(data[: seal.start(1)] + b"00000000" + data[seal.end(1) :]):
        raise ValueError
    # An integer of more than 64 bits is none of ours: as a float it fits no entry that counts.
    return finite(json.loads(data, parse_int=lambda digits: int(digits) if len(digits) < 20 else float(digits)))


def read_arrays(path: Path, name: str) -> dict[str, Array]:
    """The arrays of one file of a checkpoint that `read_header` has verified."""
    try:
        return dict(load_file(path / f"{name}.safetensors"))
    except (OSError, SafetensorError, AttributeError, LookupError, TypeError, ValueError) as error:  # or NumPy lacks it
        raise CheckpointError(f"{path / name}.safetensors: cannot be read: {error}") from None
