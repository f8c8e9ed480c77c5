"""The choice of a pipeline: which reader fills the slots, and why."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from mpibow.data import dali
from mpibow.errors import ConfigError

from .damage import Damages, Intact
from .dataset import Drawn, NamedArrays, NamedSamples, Samples, inputs_of, row_bytes
from .decoded import Decoded, decoding_reader
from .readers import DirectReader, DrawingReader, Reader, Resident
from .recordset import RecordSet
from .sample_settings import Auto, Kind, Wanted
from .sample_weights import Weighed

AHEAD = 3 * 64  # samples that prefetch: auto makes ready of data read in runs: two runs under way, one being used
RAW_AHEAD = 2  # iterations, of data that are only copied
MOST_THREADS = 16  # of a rank: Python's work for each sample runs on one at a time
MIB = 1 << 20


@dataclass(frozen=True)
class Resources:
    """The resources of one rank: the package that DALI lacks ('' if none), the node's free bytes and ranks.

    `device` is None, or the bytes that are free on the rank's GPU, divided by the ranks that share it.
    """

    dali: str
    memory: int
    ranks: int
    device: int | None = None


@dataclass(frozen=True)
class PipelineChoice:
    """A pipeline, and the reason for it, for the log; `on_device`: a GPU holds or decodes the images."""

    kind: Kind
    why: str
    on_device: bool = False


def find_facts(ranks: int, device: int | None = None) -> Resources:
    return Resources(dali.available(), psutil.virtual_memory().available, ranks, device)


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


def choose(wanted: Wanted, data: Samples, facts: Sequence[Resources]) -> PipelineChoice:
    """The same pipeline for all ranks, a pure function of the `facts` of all. Raises ConfigError."""
    refuse(wanted, data)
    lacking = _lacking(facts)
    gpu = all(fact.device is not None for fact in facts)
    if wanted == "dali" and lacking:
        raise ConfigError(f"data.pipeline: dali cannot be used: {lacking}")
    if isinstance(data, Decoded):
        if wanted != "auto":
            return PipelineChoice(wanted, "as set by data.pipeline", gpu and wanted == "dali")
        if lacking:
            return PipelineChoice("host", f"dali gives the same images faster, but {lacking}")
        return PipelineChoice("dali", "NVIDIA DALI is installed on every rank", gpu)
    if wanted in ("host", "dali"):
        return PipelineChoice(wanted, "as set by data.pipeline")
    if isinstance(data, Drawn) or (isinstance(data, NamedSamples) and not (gpu and isinstance(data, NamedArrays))):
        return PipelineChoice("host", "") if wanted == "auto" else PipelineChoice(wanted, "as set by data.pipeline")
    compared = ""
    if gpu:
        fits, compared = _fits(data, [fact.device or 0 for fact in facts], "GPU memory")
        if fits:
            return PipelineChoice("resident", compared, on_device=True)
    if wanted == "resident":
        return PipelineChoice("resident", compared or "as set by data.pipeline")
    if not isinstance(data, RecordSet):
        return PipelineChoice("host", compared)  # the data are in memory
    fits, on_host = _fits(data, [fact.memory // fact.ranks for fact in facts], "memory")
    return PipelineChoice(
        "resident" if fits else "host", f"{compared}, {on_host.partition(', ')[2]}" if compared else on_host
    )


def _fits(data: Samples, free: Sequence[int], what: str) -> tuple[bool, str]:
    """Whether images, or arrays by name, take at most a quarter of what is free on every rank, and both in words."""
    need = size_of(data)
    share = min(free) // 4
    return need <= share, f"{need / MIB:,.1f} MiB, a quarter of a rank's free {what} is {share / MIB:,.1f} MiB"


def _lacking(facts: Sequence[Resources]) -> str:
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


def open_reader(choice: PipelineChoice, data: Samples, damages: Damages, threads: int) -> Reader:
    """The reader chosen, for slots of the host. Resident data are read now.

    Raises RecordError where they are damaged.
    """
    if isinstance(data, Drawn):
        return DrawingReader(data.draw, tuple(inputs_of(data)), data.threads or threads)
    if isinstance(data, NamedSamples | Weighed):
        return DirectReader(data)
    if isinstance(data, Decoded) and choice.kind == "host":
        return decoding_reader(data, damages, threads)
    if isinstance(data, Decoded):
        return dali.Dali(data.records, data.windows, data.image.size, threads=threads, damaged=damages.replaced)
    if choice.kind == "dali" and isinstance(data, RecordSet):
        return dali.Dali(data, threads=threads, damaged=damages.replaced)
    intact = Intact(data, damages)
    return DirectReader(Resident(intact, threads) if choice.kind == "resident" else intact)
