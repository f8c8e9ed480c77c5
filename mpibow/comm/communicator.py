"""The interface between ranks: a few members, and a communicator of a single rank, which sends nothing."""

import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from mpibow.graph import Array as Array
from mpibow.graph.memory import zeros
from mpibow.tune.words import in_ranks

from .pulse import Pulse

T = TypeVar("T")
Parts = Sequence[Sequence[slice]]


class Run(Protocol):
    """A call of compiled code, as mpibow.kernels.compiled.command.Command."""

    @property
    def table(self) -> Array: ...

    def __call__(self) -> object: ...


SumInParts = Callable[[Run, Run, Array], None]
EXACT = 8  # last elements of an array from `zeros` that are never rounded: numbers beside the sums
POLL = 1e-4  # seconds between looks at what another thread writes


class Communicator(Protocol):
    """Ranks that act together. Every rank makes the same calls in the same order, on one thread at a time.

    Arrays are contiguous, of one size and dtype on all ranks, and changed in place; all ranks receive the same bits.
    A call raises CommunicationError if the ranks make different calls, or a peer is gone.
    """

    rank: int
    size: int

    @property
    def local_rank(self) -> int:
        """This rank's number among the ranks of its node; it chooses the GPU."""

    local_size: int
    narrow: bool  # whether nodes send each other bfloat16 of float32 arrays from `zeros`

    @property
    def pulse(self) -> Pulse:
        """The rank's current phase and progress; a watchdog may read it."""

    @property
    def any_thread(self) -> bool:
        """Whether a thread other than the one that opened it may call, as overlapped communication needs."""

    def allreduce(self, array: Array, stream: Any = None) -> None:
        """Sums `array` over the ranks, in place."""

    def in_parts(self, array: Array, parts: Parts) -> SumInParts:
        """A call (ready, done, steps) that sums the parts of `array` over the ranks, in place, in this order, each once
        all ranks have written it; it may be made often.

        steps[0] is the number of parts that this rank has written: `ready` is called again and again, and may raise it.
        `done` is called once part steps[1] is summed. No other call may be made until all are written.
        """

    def zeros(self, size: int, dtype: str) -> Array:
        """Zeros (size,) on the host, to be summed often. Collective: in memory shared by all ranks if possible."""

    def sum(self, array: Array) -> Array:
        """Rows (n, `array`'s size or more) that add up to the ranks' sum, in row order; further elements are padding.

        `array`, of host memory, is their first row, summed in place; or, if it is from `zeros`, the rows are the ranks'
        own: neither they nor it may be written before the next call, which needs another array.
        """

    def broadcast(self, array: Array, root: int = 0) -> None:
        """Copies `array` of rank `root` into every rank's, in place."""

    def barrier(self) -> None:
        """Returns when every rank has called it."""

    def share(self, obj: T) -> list[T]:
        """The small objects of all ranks, by rank."""

    def close(self, code: int = 0) -> None:
        """Ends the communicator, and its watchdog; a non-zero code ends every rank of the job with it, at once."""


class Call(Protocol):
    """Runs a function of the communicator, on the thread that may use it."""

    def __call__(self, function: Callable[[Communicator], T], /) -> T: ...


class InPlace:
    """Communicators whose summed arrays lie in the rank's own memory."""

    narrow = False

    def zeros(self, size: int, dtype: str) -> Array:
        return zeros(size, dtype)

    def sum(self, array: Array) -> Array:
        self.allreduce(array)
        return array[np.newaxis]

    def allreduce(self, array: Array, stream: Any = None) -> None:
        raise NotImplementedError

    def in_parts(self, array: Array, parts: Parts) -> SumInParts:
        def run(ready: Run, done: Run, steps: Array) -> None:
            for i, part in enumerate(parts):
                ready()
                while steps[0] <= i:
                    time.sleep(POLL)
                    ready()
                for span in part:
                    self.allreduce(array[span])
                done()
                steps[1] = i + 1

        return run


class Single(InPlace):
    """One rank: nothing to send."""

    rank = 0
    size = 1
    local_rank = 0
    local_size = 1
    any_thread = True

    def __init__(self, pulse: Pulse | None = None):
        self.pulse = pulse or Pulse()

    def allreduce(self, array: Array, stream: object = None) -> None:
        pass

    def broadcast(self, array: Array, root: int = 0) -> None:
        pass

    def barrier(self) -> None:
        pass

    def share(self, obj: T) -> list[T]:
        return [obj]

    def leave(self, code: int, text: str) -> list[str]:
        self.pulse.stop()
        return [text]

    def close(self, code: int = 0) -> None:
        self.pulse.stop()


def flat(array: Array) -> Array:
    """The array as one axis, without a copy: received data must reach the caller's memory."""
    assert array.flags.c_contiguous, f"communication needs a contiguous array, got strides {array.strides}"
    return array.reshape(-1)


def describe(call: str, array: Array) -> str:
    """The call in words that must be equal on all ranks."""
    return f"{call} of {array.size} {array.dtype}"


def differ(calls: list[str]) -> str:
    """The message for ranks that make different calls."""
    ranks = {call: [rank for rank, each in enumerate(calls) if each == call] for call in calls}
    return "the ranks make different calls: " + "; ".join(f"{in_ranks(these)} {call}" for call, these in ranks.items())


def checksum(array: Array) -> int:
    """A 32-bit sum of the array's bits, equal exactly where the bits are equal (but for 1 in 2^32)."""
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data)
