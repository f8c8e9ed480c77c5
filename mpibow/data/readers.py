"""The choice of a pipeline: which reader fills the slots, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from mpibow.data import dali
from mpibow.data.damage import Damages, Intact
from mpibow.data.dataset import NamedSamples, Samples
from mpibow.data.decoded import Decode, Decoded
from mpibow.data.pipeline import Direct, Reader
from mpibow.data.recordset import RecordSet
from mpibow.data.resident import Resident
from mpibow.data.settings import Auto, Kind, Wanted
from mpibow.errors import ConfigError

AHEAD = 3 * 64  # samples that prefetch: auto makes ready of data read in runs: two runs under way, one being used
RAW_AHEAD = 2  # iterations, of data that are only copied
MOST_THREADS = 16  # of a rank: what Python does for each sample is done by one at a time
MIB = 1 << 20


@dataclass(frozen=True)
class Facts:
    """What one rank sees: what DALI lacks ('' if nothing), the node's free bytes and ranks."""

    dali: str
    memory: int
    ranks: int


@dataclass(frozen=True)
class Choice:
    """A pipeline, and why it was taken, for the log."""

    kind: Kind
    why: str


def find_facts(ranks: int) -> Facts:
    return Facts(dali.available(), psutil.virtual_memory().available, ranks)


def refuse(wanted: Wanted, data: Samples) -> None:
    """Raises ConfigError where `data` can't go through the pipeline that is wanted, whatever a rank has."""
    if wanted == "resident" and isinstance(data, Decoded):
        raise ConfigError(
            f"data.pipeline: resident holds raw images, {data.name} has encoded ones, of which every epoch takes other "
            "windows; set auto, host or dali"
        )
    if wanted == "dali" and not isinstance(data, Decoded | RecordSet):
        raise ConfigError(f"data.pipeline: dali reads records, {data.name} is in memory; set auto")


def choose(wanted: Wanted, data: Samples, facts: Sequence[Facts]) -> Choice:
    """The same pipeline for all ranks, a pure function of the `facts` of all. Raises ConfigError."""
    refuse(wanted, data)
    lacking = _lacking(facts)
    if wanted == "dali" and lacking:
        raise ConfigError(f"data.pipeline: dali can't be taken: {lacking}")
    if wanted != "auto":
        return Choice(wanted, "as data.pipeline says")
    if isinstance(data, Decoded):
        if lacking:
            return Choice("host", f"dali gives the same images faster, but {lacking}")
        return Choice("dali", "NVIDIA DALI is installed on every rank")
    if not isinstance(data, RecordSet):
        return Choice("host", "")  # the data are in memory
    need, share = size_of(data), min(fact.memory // (4 * fact.ranks) for fact in facts)
    compared = f"{need / MIB:,.1f} MiB, a quarter of a rank's free memory is {share / MIB:,.1f} MiB"
    return Choice("resident" if need <= share else "host", compared)


def _lacking(facts: Sequence[Facts]) -> str:
    """Why DALI can't be taken, '' if it can."""
    without = [rank for rank, fact in enumerate(facts) if fact.dali]
    if not without:
        return ""
    where = f"rank {without[0]}: " if len(without) < len(facts) else ""
    return where + facts[without[0]].dali


def size_of(data: RecordSet) -> int:
    """Bytes of all its raw images."""
    return data.count * data.dtype.itemsize * math.prod(data.shape)


def prefetch(wanted: int | Auto, data: Samples, batch: int) -> int:
    """Iterations ahead, equal on all ranks: enough that a single learner leaves whole runs to be read."""
    if wanted != "auto":
        return wanted
    return max(RAW_AHEAD, math.ceil(AHEAD / batch)) if isinstance(data, Decoded) else RAW_AHEAD


def threads_of(wanted: int | Auto, allowed: int, machine: int, ranks: int) -> int:
    """Threads of a rank that may use `allowed` of the node's `machine` cores, which has `ranks` ranks."""
    if wanted != "auto":
        return wanted
    own = allowed if allowed < machine else allowed // ranks
    return max(1, min(own, MOST_THREADS))


def open_reader(choice: Choice, data: Samples, damages: Damages, threads: int, device: int | None = None) -> Reader:
    """The reader chosen. What is to be resident is read now. Raises RecordError where that is damaged."""
    if isinstance(data, NamedSamples):
        return Direct(data)
    form = "encoded" if isinstance(data, Decoded) else "raw"
    return READERS[form, choice.kind](data, damages, threads, device)


READERS: Mapping[tuple[str, Kind], Callable[[Any, Damages, int, int | None], Reader]] = {
    ("encoded", "host"): lambda data, damages, threads, device: Decode(data, damages, threads),
    ("encoded", "dali"): lambda data, damages, threads, device: dali.Dali(
        data.records, data.windows, data.image.size, threads=threads, device=device, damaged=damages.replaced
    ),
    ("raw", "dali"): lambda data, damages, threads, device: dali.Dali(
        data, threads=threads, device=device, damaged=damages.replaced
    ),
    ("raw", "host"): lambda data, damages, threads, device: Direct(Intact(data, damages)),
    ("raw", "resident"): lambda data, damages, threads, device: Direct(Resident(Intact(data, damages), threads)),
}


def described(choice: Choice, data: Samples, threads: int) -> str:
    """What the log says of it, nothing where there was no choice."""
    used = f" with {threads} thread{'s' * (threads > 1)}" * isinstance(data, Decoded)
    return f"pipeline: {choice.kind}{used}: {choice.why}" if choice.why else ""


def remedy(choice: Choice, data: Samples, threads: int) -> str:
    """What makes samples come faster."""
    if isinstance(data, Decoded):
        other = "" if choice.kind == "dali" else f", or data.pipeline=dali ({dali.INSTALL})"
        return f"set data.workers above {threads} where cores are free, bind more cores to a rank{other}"
    if choice.kind == "resident" or not isinstance(data, RecordSet):
        return "set prefetch higher, or leave learners' threads a core less"
    return "set data.pipeline=resident where memory allows, prefetch higher, or copy the data to a faster disk"
