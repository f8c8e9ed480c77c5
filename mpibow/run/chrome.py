"""--timeline: the spans of all ranks as one Chrome trace, for chrome://tracing and ui.perfetto.dev."""

import json
import os
import platform
import re
import statistics
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mpibow.comm import Communicator
from mpibow.errors import ConfigError
from mpibow.run import directory
from mpibow.system import JsonObject
from mpibow.system.process import kernel
from mpibow.trace import SILENT, Call, Recorder, Span, Trace

# From top to bottom; `learner` stands for "learner 0", "learner 1", ..., `device` for a GPU's part of each
ROWS = (
    "iterations",
    "learner",
    "device",
    "synchronisation",
    "waiting",
    "communication",
    "data",
    "evaluation",
    "checkpoint",
)
WINDOW = "20:220"  # iterations of this process: the first ones compile, and fill caches and the pipeline
LIMIT = 100_000  # iterations; some ten spans each are kept in memory
BARRIERS = 5  # to compare the clocks of nodes


@dataclass(frozen=True)
class Part:
    """The record of one rank: spans by thread. Its clock is `ahead` nanoseconds of rank 0's."""

    rank: int
    host: str
    ahead: int
    threads: Sequence[Sequence[Span]]


def chrome_trace(parts: Sequence[Part], about: JsonObject) -> JsonObject:
    """The object form of the Trace Event Format: ranks as processes, rows as threads, us since the first span."""
    zero = min((begin - part.ahead for part in parts for spans in part.threads for _, _, begin, _ in spans), default=0)
    meta = list[JsonObject]()
    events = list[JsonObject]()
    for part in parts:
        tids = rows_of(part.threads)
        seen = Counter[str]()
        meta += _meta("process", part.rank, 0, f"rank {part.rank} ({part.host})", part.rank)
        for (row, _), tid in tids.items():
            seen[row] += 1
            meta += _meta("thread", part.rank, tid, row if seen[row] == 1 else f"{row} ({seen[row]})", tid)
        events += [
            {
                "name": name,
                "cat": row.split()[0],
                "ph": "X",
                "ts": (begin - part.ahead - zero) / 1000,
                "dur": (end - begin) / 1000,
                "pid": part.rank,
                "tid": tids[row, thread],
            }
            for thread, spans in enumerate(part.threads)
            for row, name, begin, end in spans
        ]
    events.sort(key=lambda event: (event["ts"], -event["dur"], event["pid"], event["tid"]))
    return {"displayTimeUnit": "ms", "otherData": dict(about), "traceEvents": meta + events}


def rows_of(threads: Sequence[Sequence[Span]]) -> dict[tuple[str, int], int]:
    """The tid of every row of a thread, from top to bottom: spans of two threads may not overlap."""
    found = {(row, thread) for thread, spans in enumerate(threads) for row, *_ in spans}
    return {row: tid for tid, row in enumerate(sorted(found, key=_place))}


def _place(row: tuple[str, int]) -> tuple[int, str, int, int]:
    word, _, number = row[0].partition(" ")
    return ROWS.index(word) if word in ROWS else len(ROWS), word, int(number or 0), row[1]


def _meta(what: str, pid: int, tid: int, name: str, place: int) -> list[JsonObject]:
    """The events that name a process or thread, and sort it."""
    found = {f"{what}_name": {"name": name}, f"{what}_sort_index": {"sort_index": place}}
    return [{"name": key, "ph": "M", "pid": pid, "tid": tid, "args": value} for key, value in found.items()]


def ahead(clocks: Sequence[tuple[str, Sequence[int]]]) -> list[int]:
    """The lead of each rank's clock over rank 0's, from every rank's node and its times of leaving barriers.

    The processes of a node share a clock; between nodes it is the median, as good as ranks leave a barrier together.
    """
    node, first = clocks[0]
    return [
        0 if other == node else round(statistics.median(a - b for a, b in zip(times, first, strict=True)))
        for other, times in clocks
    ]


class ChromeTrace(Recorder):
    """Records iterations `first` up to `last` of this process, and then writes all ranks' spans to `path`."""

    def __init__(self, path: Path, first: int, last: int):
        super().__init__()
        self._path = path
        self._first = first
        self._last = last
        self._start: int | None = None  # the iteration that this process began with
        self._iteration = self._began = 0
        self._over = False

    def begin(self, iteration: int, call: Call) -> str:
        self._end_iteration()
        if self._start is None:
            self._start = iteration
        done = iteration - self._start
        self.on = self._first <= done < self._last
        self._iteration = iteration
        self._began = time.perf_counter_ns()
        return self._write(iteration, call) if done >= self._last and not self._over else ""

    def end(self, call: Call) -> str:
        if self._over:
            return ""
        recording = self.on
        self._end_iteration()
        self.on = False
        if not recording:
            return f"no timeline: the run ended before its iteration {self._first}; see --timeline-iterations"
        return self._write(self._iteration + 1, call)

    def _end_iteration(self) -> None:
        if self.on:
            self.add("iterations", f"iteration {self._iteration}", self._began, time.perf_counter_ns())

    def _write(self, end: int, call: Call) -> str:
        """Gathers what the ranks recorded; every rank calls it, and holds no more than one other's part at a time."""
        self._over = True
        assert self._start is not None
        rank, parts = call(self._gather)
        first = self._start + self._first
        text = as_text(chrome_trace(parts, {"iterations": [first, end], "ranks": len(parts)})) if rank == 0 else ""
        directory.on_rank_0(call, lambda: directory.write(self._path, text))
        return f"timeline of iterations {first} to {end - 1}: {self._path}, for ui.perfetto.dev or chrome://tracing"

    def _gather(self, comm: Communicator) -> tuple[int, list[Part]]:
        times = []
        for _ in range(BARRIERS):
            comm.barrier()
            times.append(time.perf_counter_ns())
        offsets = ahead(comm.share((kernel(), times)))
        own = zlib.compress(json.dumps([platform.node(), self.threads()]).encode())
        parts = []
        for rank in range(comm.size):
            packed = comm.share(own if rank == comm.rank else b"")[rank]
            if comm.rank == 0:
                host, threads = json.loads(zlib.decompress(packed))
                parts.append(Part(rank, host, offsets[rank], threads))
        return comm.rank, parts


def as_text(trace: JsonObject) -> str:
    """The trace as JSON, an event a line."""
    head = {key: value for key, value in trace.items() if key != "traceEvents"}
    events = ",\n".join(json.dumps(event, separators=(",", ":")) for event in trace["traceEvents"])
    return json.dumps(head)[:-1] + f', "traceEvents": [\n{events}\n]}}\n'


def open_trace(path: Path | None, iterations: str | None) -> Trace:
    """The trace of --timeline FILE and --timeline-iterations FROM:TO. Raises ConfigError."""
    if path is None:
        if iterations is not None:
            raise ConfigError(
                f"--timeline-iterations: is of a timeline, got {iterations} alone; add --timeline FILE.json"
            )
        return SILENT
    found = re.fullmatch(r"(\d+):(\d+)", WINDOW if iterations is None else iterations)
    first, last = map(int, found.groups()) if found else (0, 0)
    if not first < last <= first + LIMIT:
        raise ConfigError(
            f"--timeline-iterations: must be FROM:TO, 1 to {LIMIT:,} iterations, as 20:220, got '{iterations}'"
        )
    return ChromeTrace(path, first, last)


def check_path(path: Path) -> None:
    """Raises ConfigError where no file can be made: better now than when all is recorded."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"--timeline: must be a file in a folder that can be written, as run.json, got {path}")
