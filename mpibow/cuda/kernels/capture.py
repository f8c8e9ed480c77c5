"""A learner's forward and backward as one CUDA graph: captured once, launched every iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from mpibow.cuda.device.cupy_driver import CudaGraph, Event, Stream
from mpibow.cuda.device.driver import Refused
from mpibow.cuda.kernels.cudnn import Enqueue
from mpibow.errors import DeviceError

Range = Callable[[str], AbstractContextManager[object]]  # a named range in a profiler's timeline: NVTX


class Executor:
    """Bound runs on one stream. Values that change between iterations lie in device memory that they read: inputs,
    counters, weights, rates. So nothing is ever captured again, and a launch waits for nothing.

    With `timed` the events that it gives carry times. Without `graphs` the same runs are enqueued one by one: the same
    kernels on the same memory, so the same bits.
    """

    def __init__(
        self, name: str, runs: Sequence[Enqueue], stream: Stream, *, graphs: bool = True, ranges: Range = nullcontext
    ) -> None:
        self.name, self.stream, self.timed = name, stream, False
        self._runs, self._graphs, self._range = tuple(runs), graphs, ranges
        self._graph: CudaGraph | None = None

    def prepare(self) -> None:
        """Runs everything once and captures it. Before the first iteration, on inputs of any kind: libraries load
        kernels and take memory on their first call, which no capture allows. Its results are overwritten, except
        statistics: put those back. Raises DeviceError where it cannot be captured."""
        self._enqueue()
        self.stream.synchronise()
        if not self._graphs:
            return
        try:
            self._graph = self.stream.capture(self._enqueue)
        except Refused as error:
            raise DeviceError(
                f"{self.name}: CUDA cannot capture its work in a graph ({error}): graphs=false works without"
            ) from None

    def run(self) -> Event:
        """Enqueues one forward and backward; the event that it is over. Never waits."""
        assert self._graph is not None or not self._graphs, f"{self.name} is run before it is prepared"
        with self._range(self.name):
            if self._graph is not None:
                self._graph.launch(self.stream)
            else:
                self._enqueue()
            return self.stream.record(timed=self.timed)

    def _enqueue(self) -> None:
        for run in self._runs:
            run(self.stream)
