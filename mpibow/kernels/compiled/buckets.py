"""Buckets of an exchange without Python: one that learners have ended is updated, one that is summed is applied."""

import numpy as np

from mpibow.graph import Array

from .code_cache import jit
from .command import call, execute, swapped
from .native import integers, words
from .steps import square_of

WRITTEN, SUMMED, HOLD, TURN = range(4)  # words of an exchange: as of `sums.steps`; who updates; its turn
FREE, BUSY, ENDED = range(3)  # nobody, this exchange, nobody ahead of the learners' end any more
BEGUN, UPDATED, ADDED, APPLIED = range(4)  # times of a bucket, ns
LARGEST = 1e18  # |gradient|^2 of a weight, or of its factors, above which a bucket waits for the learners' end
MONOTONIC = 1  # clock_gettime's number of the clock of time.perf_counter


@jit
def hold(exchange: Array) -> bool:
    """Whether no bucket is being updated; none is ahead from here on."""
    place = exchange.ctypes.data + 8 * HOLD
    return swapped(place, FREE, ENDED) or exchange[HOLD] == ENDED


@jit
def update(
    gradients: Array, exchange: Array, goals: Array, reached: Array, spans: Array, table: Array, losses: Array,
    extents: Array, times: Array, clock: int,
) -> None:  # fmt: skip
    """Updates each bucket that learners have ended, as long as all is finite: chunks [first, last) of `spans` (bucket,
    first, last) by the passes of `table`.

    Learner i's word reached[i, 0] comes to goals[b] as it ends bucket b; `losses` (n, 3) are addresses of losses, and
    how many words of 32 bits they and each are; `extents` (bucket, start, stop) are weights of gradients (k, size).
    """
    hold = exchange.ctypes.data + 8 * HOLD
    while exchange[WRITTEN] < len(goals) and reached[:, 0].min() >= goals[exchange[WRITTEN]]:
        if not swapped(hold, FREE, BUSY):
            return
        b = exchange[WRITTEN]
        finite = True
        times[b, BEGUN] = now(clock)
        for i in range(len(losses) if b == 0 else 0):
            each = losses[i, 2]
            most = 0x7F800000 if losses[i, 2] == 1 else 0x7FF00000
            for word in integers(losses[i, 0], losses[i, 1])[each - 1 :: each]:
                finite = finite and word & most != most
        for e in range(len(extents)):
            if extents[e, 0] == b:
                for i in range(len(reached)):
                    finite = finite and square_of(gradients[i, extents[e, 1] : extents[e, 2]]) < LARGEST
        if finite:
            on_chunks(spans, b, table)
            times[b, UPDATED] = now(clock)
            exchange[WRITTEN] = b + 1
        swapped(hold, BUSY, FREE if finite else ENDED)  # behind all that was written


@jit
def apply(exchange: Array, spans: Array, table: Array, stages: Array, opened: Array, times: Array, clock: int) -> None:
    """Applies the bucket that is summed, by the passes of `table`, and opens its `stages` (bucket, stage)."""
    b = exchange[SUMMED]
    times[b, ADDED] = now(clock)
    on_chunks(spans, b, table)
    for s in range(len(stages)):
        if stages[s, 0] == b:
            opened[stages[s, 1], 0] = exchange[TURN]
    times[b, APPLIED] = now(clock)


@jit
def on_chunks(spans: Array, b: int, table: Array) -> None:
    """Calls recorded passes on each span of bucket b: its chunks are their last two arguments."""
    for s in range(len(spans)):
        if spans[s, 0] == b:
            for row in table:
                arguments = words(row[1], row[3])
                arguments[len(arguments) - 2] = spans[s, 1]
                arguments[len(arguments) - 1] = spans[s, 2]
            if execute(table) >= 0:
                raise MemoryError


@jit
def now(clock: int) -> int:
    """Nanoseconds; `clock` is the address of clock_gettime."""
    time = np.empty(2, np.int64)
    call(clock, MONOTONIC, time.ctypes.data, 0, 0)
    return 1_000_000_000 * time[0] + time[1]
