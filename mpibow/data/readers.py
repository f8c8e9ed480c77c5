"""The choice of a pipeline: which reader fills the slots, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from mpibow.data import dali
from mpibow.data.damage import Damages, Intact
from mpibow.data.dataset import Drawn, NamedArrays, NamedSamples, Samples, inputs_of, row_bytes
from mpibow.data.decoded import Decode, Decoded
from mpibow.data.drawn import Draw
from mpibow.data.pipeline import Direct, Reader
from mpibow.data.recordset import RecordSet
from mpibow.data.resident import Resident
from mpibow.data.settings import Auto, Kind, Wanted
from mpibow.data.weighed import Weighed
from mpibow.errors import ConfigError

AHEAD = 3 * 64  # samples that prefetch: auto makes ready of data read in runs: two runs under way, one being used
RAW_AHEAD = 2  # iterations, of data that are only copied
MOST_THREADS = 16  # of a rank: Python's work for each sample runs on one at a time
MIB = 1 << 20


@dataclass(frozen=True)
class Facts:
    """The resources of one rank: the package that DALI lacks ('' if none), the node's free bytes and ranks.

    `device` is None, or the bytes that are free on the rank's GPU, divided by the ranks that share it.
    """

    dali: str
    memory: int
    ranks: int
    device: int | None = None


@dataclass(frozen=True)
class Choice:
    """A pipeline, and the reason for it, for the log; `on_device`: a GPU holds or decodes the images."""

    kind: Kind
    why: str
    on_device: bool = False


def find_facts(ranks: int, device: int | None = None) -> Facts:
    return Facts(dali.available(), psutil.virtual_memory().available, ranks, device)


def refuse(wanted: Wanted, data: Samples) -> None:
    """Raises ConfigError where `data` can't go through the requested pipeline, whatever a rank's resources."""
    if wanted == "resident" and isinstance(data, Decoded):
        raise ConfigError(
            f"data.pipeline: resident needs raw images, {data.name} has encoded ones, and every epoch takes new "
            "crops of them; set auto, host or dali"
        )
    if wanted == "resident" and isinstance(data, Drawn):
        raise ConfigError(f"data.pipeline: resident keeps samples, {data.name} has new ones in every epoch; set auto")
    if wanted == "dali" and not isinstance(data, Decoded | RecordSet):
        raise ConfigError(f"data.pipeline: dali reads records of images, {data.name} has none; set auto")


def choose(wanted: Wanted, data: Samples, facts: Sequence[Facts]) -> Choice:
    """The same pipeline for all ranks, a pure function of the `facts` of all. Raises ConfigError."""
    refuse(wanted, data)
    lacking, gpu = _lacking(facts), all(fact.device is not None for fact in facts)
    if wanted == "dali" and lacking:
        raise ConfigError(f"data.pipeline: dali cannot be used: {lacking}")
    if isinstance(data, Decoded):
        if wanted != "auto":
            return Choice(wanted, "as set by data.pipeline", gpu and wanted == "dali")
        if lacking:
            return Choice("host", f"dali gives the same images faster, but {lacking}")
        return Choice("dali", "NVIDIA DALI is installed on every rank", gpu)
    if wanted in ("host", "dali"):
        return Choice(wanted, "as set by data.pipeline")
    if isinstance(data, Drawn):
        return Choice("host", "")
    if isinstance(data, NamedSamples) and not (gpu and isinstance(data, NamedArrays)):
        return Choice("host", "") if wanted == "auto" else Choice(wanted, "as set by data.pipeline")
    on_device, compared = False, ""
    if gpu:
        on_device, compared = _fits(data, [fact.device or 0 for fact in facts], "GPU memory")
        if on_device:
            return Choice("resident", compared, on_device=True)
    if wanted == "resident":
        return Choice("resident", compared or "as set by data.pipeline")
    if not isinstance(data, RecordSet):
        return Choice("host", compared)  # the data are in memory
    fits, on_host = _fits(data, [fact.memory // fact.ranks for fact in facts], "memory")
    return Choice("resident" if fits else "host", f"{compared}, {on_host.partition(', ')[2]}" if compared else on_host)


def _fits(data: Samples, free: Sequence[int], what: str) -> tuple[bool, str]:
    """Whether images, or arrays by name, take at most a quarter of what is free on every rank, and both in words."""
    need, share = size_of(data), min(free) // 4
    return need <= share, f"{need / MIB:,.1f} MiB, a quarter of a rank's free {what} is {share / MIB:,.1f} MiB"


def _lacking(facts: Sequence[Facts]) -> str:
    """The reason why DALI can't be used, '' if it can."""
    without = [rank for rank, fact in enumerate(facts) if fact.dali]
    if not without:
        return ""
    where = f"rank {without[0]}: " if len(without) < len(facts) else ""
    return where + facts[without[0]].dali


def size_of(data: Samples) -> int:
    """Bytes of all its raw images, or arrays by name."""
    if isinstance(data, NamedSamples):
        return data.count * sum(row_bytes(data.inputs).values())
    return data.count * data.dtype.itemsize * math.prod(data.shape)


def prefetch(wanted: int | Auto, data: Samples, batch: int) -> int:
    """Iterations ahead, equal on all ranks: enough that a single learner leaves whole runs to be read."""
    if wanted != "auto":
        return wanted
    return max(RAW_AHEAD, math.ceil(AHEAD / batch)) if isinstance(data, Decoded | Drawn) else RAW_AHEAD


def threads_of(wanted: int | Auto, allowed: int, machine: int, ranks: int) -> int:
    """Threads of a rank that may use `allowed` of the node's `machine` cores, which has `ranks` ranks."""
    if wanted != "auto":
        return wanted
    own = allowed if allowed < machine else allowed // ranks
    return max(1, min(own, MOST_THREADS))


def open_reader(choice: Choice, data: Samples, damages: Damages, threads: int) -> Reader:
    """The reader chosen, for slots of the host. Resident data are read now.

    Raises RecordError where they are damaged.
    """
    if isinstance(data, Drawn):
        return Draw(data.draw, tuple(inputs_of(data)), data.threads or threads)
    if isinstance(data, NamedSamples | Weighed):
        return Direct(data)
    return READERS[_form(data), choice.kind](data, damages, threads)


def _form(data: Samples) -> str:
    return "encoded" if isinstance(data, Decoded) else "raw"


READERS: Mapping[tuple[str, Kind], Callable[[Any, Damages, int], Reader]] = {
    ("encoded", "host"): lambda data, damages, threads: Decode(data, damages, threads),
    ("encoded", "dali"): lambda data, damages, threads: dali.Dali(
        data.records, data.windows, data.image.size, threads=threads, damaged=damages.replaced
    ),
    ("raw", "dali"): lambda data, damages, threads: dali.Dali(data, threads=threads, damaged=damages.replaced),
    ("raw", "host"): lambda data, damages, threads: Direct(Intact(data, damages)),
    ("raw", "resident"): lambda data, damages, threads: Direct(Resident(Intact(data, damages), threads)),
}
