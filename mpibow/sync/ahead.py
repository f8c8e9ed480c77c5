"""An exchange in buckets: what a backward pass has ended is updated and sent while the rest of it is computed.

DDP's buckets (arXiv:2006.15704) and S-Caffe's aggregation in stages, for a rule's steps as for gradients. Sums over
ranks do not depend on how the array is cut, nor local steps on their order: the bits are those of one exchange.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Protocol

from mpibow.comm.communicator import Communicator
from mpibow.graph.graph import Array
from mpibow.kernels.passes import Local
from mpibow.sync.engine import Engine
from mpibow.trace import Trace

POLL = 1e-4  # seconds between looks at the learners' progress
CANDIDATES = (1, 2, 4, 8, 16)  # numbers of buckets that are tried
ROUNDS = 7  # of them, the first of which is not timed


class Stages(Protocol):
    """The stages of the learners' backward passes: chunks of the flat array, in the order in which they are done."""

    @property
    def chunks(self) -> Sequence[Sequence[range]]: ...
    def begin(self) -> None:
        """The learners are about to begin."""

    def reached(self, b: int) -> bool:
        """Whether no learner reads the weights of stage b, or writes their gradients, any more in this iteration."""
        ...

    def finite(self, b: int) -> bool:
        """Whether losses and stage b's gradients are finite, once it is reached."""
        ...


class Ahead:
    """The exchange ahead of the backward pass's end, in `count` buckets; the last one is always sent behind it.

    It goes as far as all is finite: what follows is the caller's, as without buckets. `run` is the communication
    thread's; an iteration calls `begin`, `run` beside the learners, `stop` when they have ended, `finish`.
    """

    def __init__(self, comm: Communicator, engine: Engine, stages: Stages, chunk: int, trace: Trace) -> None:
        self._comm, self._engine, self._stages, self._chunk, self._trace = comm, engine, stages, chunk, trace
        self._claim, self._over, self._claimed = threading.Lock(), threading.Event(), 0
        self.seconds = 0.0  # that all-reduces took in this iteration
        self.count = len(stages.chunks)

    @property
    def count(self) -> int:
        return len(self._buckets)

    @count.setter
    def count(self, count: int) -> None:
        """Neighbouring stages are one bucket where there are fewer of these."""
        chunks = self._stages.chunks
        count = min(count, len(chunks))
        ends = [(b + 1) * len(chunks) // count for b in range(count)]
        self._ends = [end - 1 for end in ends]  # each bucket's last stage
        self._buckets = [
            [part for each in chunks[a:b] for part in each] for a, b in zip([0, *ends[:-1]], ends, strict=True)
        ]

    def begin(self) -> None:
        self._claimed, self.seconds = 0, 0.0
        self._over.clear()
        self._stages.begin()

    def run(self, local: Local) -> None:
        """Updates and sends each bucket but the last once it is done, until `stop`."""
        first = 0  # the first stage that is not known to be finite
        for b, end in enumerate(self._ends[:-1]):
            while not self._stages.reached(end):
                if self._over.wait(POLL):
                    return
            if not all(map(self._stages.finite, range(first, end + 1))):
                return
            with self._claim:
                if self._over.is_set():
                    return
                self._claimed = b + 1
            with self._trace.span("communication", "update"):
                for part in self._buckets[b]:
                    self._engine.update(local, part)
            self._send(b, self._engine.sending)
            first = end + 1

    def stop(self) -> list[range]:
        """The learners have ended: the chunks that are still to be updated."""
        with self._claim:
            self._over.set()
        return [part for bucket in self._buckets[self._claimed :] for part in bucket]

    def finish(self, whole: Array) -> None:
        """Sends the buckets that `run` did not, and the numbers beside the sums, at the end of the array."""
        for b in range(self._claimed, self.count):
            self._send(b, whole)

    def _send(self, b: int, whole: Array) -> None:
        begin = time.perf_counter()
        size, spans = self._engine.size, list[slice]()
        for part in self._buckets[b]:
            spans.append(slice(part.start * self._chunk, min(part.stop * self._chunk, size)))
        if b == self.count - 1:
            spans.append(slice(spans.pop().start if spans[-1].stop == size else size, None))
        with self._trace.span("communication", f"all-reduce {b + 1} of {self.count}"):
            for span in spans:
                self._comm.allreduce(whole[span])
        self.seconds += time.perf_counter() - begin


class BucketTrial:
    """Exchanges in 1 to `most` buckets take turns, an iteration each; the number with the shortest median is the best.

    Rank 0's times count, which have the others' lateness in them.
    """

    def __init__(self, most: int) -> None:
        self._times: dict[int, list[float]] = {count: [] for count in CANDIDATES if count <= most}
        self._turn = 0

    @property
    def count(self) -> int:
        """The number to be tried next."""
        return [*self._times][self._turn % len(self._times)]

    def note(self, seconds: float) -> bool:
        """The time of an iteration with that number; whether it was the last one."""
        self._times[self.count].append(seconds)
        self._turn += 1
        return self._turn == ROUNDS * len(self._times)

    @property
    def medians(self) -> dict[int, float]:
        """Seconds of an iteration, by the number of buckets."""
        return {count: median(times[1:]) for count, times in self._times.items()}


def chosen(medians: Mapping[int, float]) -> tuple[int, str]:
    """The best number, and a line about it."""
    best = min(medians, key=lambda count: medians[count])
    times = ", ".join(f"{1e3 * seconds:.1f} ms in {count}" for count, seconds in medians.items())
    return best, f"exchange in {best} bucket{'s' * (best > 1)}; an iteration takes {times}"
