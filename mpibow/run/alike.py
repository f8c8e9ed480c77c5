"""All ranks begin equal: what differs between them is refused by name, and rank 0's numbers go to all."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import starmap
from pathlib import Path

import numpy as np
from google_crc32c import value as crc32c

from mpibow import __version__
from mpibow.comm import Communicator
from mpibow.config import plain
from mpibow.config.strict import join
from mpibow.errors import CommunicationError, ConfigError
from mpibow.graph import Array, ArraysByName
from mpibow.job import Job, on_device
from mpibow.job.fingerprint import Numbers, Pinned, contents_of, crc_of, differing, numbers_of, structure_of
from mpibow.system import JsonObject
from mpibow.system.command import PACKAGE, some

LONGEST = 40  # characters of a value that a message shows
SOURCES = (".py", ".cu", ".cuh")


def agreed(job: Job, comm: Communicator, counts: Sequence[int]) -> tuple[Job, list[str]]:
    """The job on this rank's device, its net and the layout of its weights as on all ranks, compiled for so many
    learners on each; and lines for the log.

    Collective. Raises CommunicationError where a rank has another mpibow, other settings, another net or other data.
    """
    job, differed = alike(job, comm)
    job, note = on_device(job, comm)
    notes = [note, *[differed] * bool(differed), job.prepare(comm, counts), job.slow()]
    if len(set(comm.share(job.layout.digest()))) == 1:
        return job, notes
    more = "the ranks' kernels need different layouts of the weights: all use the canonical one"
    return replace(job, canonical=True), [*notes, more]


def alike(job: Job, comm: Communicator) -> tuple[Job, str]:
    """The job, whose net has rank 0's numbers, and a line for the log. Collective.

    Raises CommunicationError naming the first rank that has another mpibow, other settings, another net or other data
    than rank 0; ConfigError where the net has other numbers each time that it is built.
    """
    batch = job.config.batch_size
    training = job.build(batch, True)
    numbers = numbers_of(training), numbers_of(job.build(job.config.evaluate.batch_size))
    if drawn := differing(numbers[0], numbers_of(job.build(batch, True))):
        raise ConfigError(
            f"net: has other numbers each time it is built, in {some(drawn)}; draw them once, before the function"
        )
    if comm.size == 1:
        return job, ""
    data = {name: contents_of(each) for name, each in {"train": job.train, **job.evaluated}.items()}
    compare(comm, "another mpibow", sources_of(PACKAGE), "install the same one on all nodes")
    compare(comm, "other settings", dict(_settings("", plain(job.config))), "start all ranks with the same")
    compare(comm, "another net", structure_of(training), "build the same one on all ranks")
    compare(comm, "other data", data, "give the same to all ranks")
    if len(set(comm.share(_crc_of_numbers(*numbers)))) == 1:
        return job, ""
    if job.shorter:
        raise ConfigError("net: has other numbers on other ranks, which lengths= does not take; seed them alike")
    first = comm.share(numbers if comm.rank == 0 else ({}, {}))[0]
    names = list(starmap(differing, zip(numbers, first, strict=True)))
    pinned = list(starmap(_only, zip(first, names, strict=True)))
    odd = dict.fromkeys(name for rank in comm.share(names) for part in rank for name in part)
    note = f"the ranks made different numbers in {some(list(odd))}: all use rank 0's"
    return replace(job, build=Pinned(job.build, *pinned)), note


def compare(comm: Communicator, difference: str, texts: Mapping[str, str], remedy: str) -> None:
    """Raises CommunicationError where a rank has other texts, by their names, than rank 0. Collective."""
    crcs = comm.share(crc32c(json.dumps(texts).encode()))
    if len(set(crcs)) == 1:
        return
    odd = next(rank for rank, crc in enumerate(crcs) if crc != crcs[0])
    everyone = comm.share(texts if comm.rank in (0, odd) else {})
    theirs = everyone[odd]
    first = everyone[0]
    names = [name for name in {**first, **theirs} if theirs.get(name) != first.get(name)]
    differences = [_difference(name, theirs.get(name, "missing"), first.get(name, "missing")) for name in names]
    raise CommunicationError(f"rank {odd}: has {difference} than rank 0: {some(differences)}; {remedy}")


def from_rank_0(arrays: ArraysByName, comm: Communicator) -> dict[str, Array]:
    """Rank 0's arrays by name on every rank. Collective."""
    forms = comm.share({name: (array.shape, array.dtype) for name, array in arrays.items()})[0]
    sent = {}
    for name, (shape, dtype) in forms.items():
        sent[name] = np.asarray(arrays[name], order="C") if comm.rank == 0 else np.empty(shape, dtype)
        comm.broadcast(sent[name].reshape(-1).view(np.uint8))
    return sent


def send_first(arrays: Sequence[Array], comm: Communicator) -> str:
    """Copies rank 0's first weights and statistics into every rank's; a line for the log where they differed."""
    if comm.size == 1:
        return ""
    differed = len(set(comm.share(tuple(map(crc_of, arrays))))) > 1
    for array in arrays:
        comm.broadcast(array)
    return "the ranks made different weights: all start from rank 0's" if differed else ""


def compare_state(comm: Communicator, job: Job, arrays: ArraysByName, numbers: JsonObject) -> None:
    """Raises CommunicationError where the net's numbers, or the first state of all ranks, differ. Collective."""
    if comm.size > 1:
        state = {name: crc_of(array) for name, array in arrays.items()} | dict(numbers)
        state["constants"] = _crc_of_numbers(numbers_of(job.build(job.config.batch_size, True)))
        texts = {name: str(value) for name, value in state.items()}
        compare(comm, "another state to begin with", texts, "all must read the same files, and receive what is sent")


def _crc_of_numbers(*numbers: Numbers) -> int:
    crc = 0
    for value in (value for part in numbers for settings in part.values() for value in settings.values()):
        crc = crc_of(np.array(value, np.float64), crc)
    return crc


def _only(numbers: Numbers, names: Sequence[str]) -> Numbers:
    """The numbers of these names."""
    return {
        node: {key: value for key, value in settings.items() if f"{node}.{key}" in names}
        for node, settings in numbers.items()
    }


def _difference(name: str, theirs: str, first: str) -> str:
    return f"{name} is {theirs}, on rank 0 {first}" if max(len(theirs), len(first)) <= LONGEST else name


def _settings(path: str, value: object) -> Iterator[tuple[str, str]]:
    """The settings by their paths."""
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _settings(join(path, key), each)
    else:
        yield path, str(value)


@cache
def sources_of(package: Path) -> Mapping[str, str]:
    """The version of the package, and the CRC32C of each of its source files: 30 ms, once a process."""
    paths = sorted(path for path in package.rglob("*") if path.suffix in SOURCES and "__pycache__" not in path.parts)
    crcs = {path.relative_to(package).as_posix(): f"{crc32c(path.read_bytes()):#010x}" for path in paths}
    return {"version": __version__, **crcs}
