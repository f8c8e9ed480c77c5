"""The interface of a rule: a rank's flat arrays change around one sum, over the ranks, of one flat array.

An iteration, with u the local steps of all learners; `Rule` has each call's contract:

    update(local, chunks)   by all learner threads, each its chunks: local steps and corrections; sums of steps
    outgoing()              the flat array to be summed over the ranks, or None where this iteration sends nothing
    apply(local, sums)      gives the passes that make the centre of the ranks' sums
    advance()               the iteration is counted: the passes are made; where the rule `overlaps` they are still due

Between iterations:

    settle()                before anything reads or changes the centre; the centre then includes the last update.
                            Reading it earlier is an AssertionError
    reset(i)                after the gradients and before `update`, on the rank whose replica is not finite
    end_period()            before a restart and at the run's end, by all ranks: steps that wait are exchanged
    begin(k)                after `replicas.resize`, so that new rows start again too; `settle` comes before both

A pass takes any chunks, each of them once. So an update may later come bucket by bucket, as sums arrive.

Each rule's exchange: the data sent, the ranks that wait, and the moment when the centre is made:

    pulled, one rank            the tail alone; `settle` makes the centre, the mean of the replicas
      after a reset             as several ranks, until the next `set_mean`
      other steps and periods   as several ranks
    pulled or reset             sums of steps, once in `period` iterations; all wait; `apply` makes the outer step
      in between                nothing, but now and then the tail
    lagging                     sums of steps, hidden behind the next gradients, once in `period` iterations
    gradients                   sums of gradients; all wait; one step moves all replicas, which are the centre
    independent                 the tail alone, once in `period` iterations; `set_mean` makes the centre

One learner without an outer step of its own is its optimiser alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from mpibow.graph.graph import Array
from mpibow.kernels.passes import FlatKernels, Local, States
from mpibow.sync.gain import GainMeter
from mpibow.sync.outbox import TAIL as TAIL
from mpibow.sync.outbox import Zeros

OnChunks = Callable[[range], None]
Add = Callable[[Array], None]


class Rows(Protocol):
    """A rank's replicas, rows of one block. Only the local step determines the states kept beside the weights."""

    @property
    def weights(self) -> Array:
        """(count, size)"""
        ...

    @property
    def trained(self) -> tuple[Array, States, Array]:
        """Weights, the local step's states, and gradients, each (count, size), as passes take them.

        Under a rule whose replicas are `alike`, weights and states may be (1, size): all learners share that row.
        """
        ...

    @property
    def factors(self) -> Array:
        """The gradients that are kept as factors (Layout.factors)."""
        ...

    @property
    def shares(self) -> Array | None:
        """(count,): the share of each row's batch that counts in the mean of its loss; None if all of every batch does.

        Under a rule whose replicas are `alike`, gradients come multiplied by them.
        """
        ...

    def forget(self) -> None:
        """Resets the local step's states to those of a start."""
        ...

    def level(self) -> None:
        """Copies the first row's states to every row."""
        ...

    def reseed(self, i: int, centre: Array) -> None:
        """Row i starts again from the centre (size,)."""
        ...

    def leave_out(self, i: int) -> None:
        """Row i has learnt nothing this iteration."""
        ...


@dataclass(frozen=True)
class Stored:
    """An array of a rule's state, as a checkpoint has it: once for all ranks, which have the same, or each rank's own.

    `form` is "weights" (size,), "steps" (size,), which are 0 of frozen weights, or "sent" (size + TAIL,), of the
    weights' dtype, stored in the canonical layout so that kernels with another layout may go on from them; or
    "numbers", any number of float64. `beside` names an array that is there whenever this one is.
    """

    ranks: Literal["all", "each"]
    form: Literal["weights", "steps", "sent", "numbers"]
    beside: str = ""


UNSENT: Mapping[str, Stored] = {  # of Outbox.unsent
    "pending": Stored("each", "sent", beside="squares"),
    "squares": Stored("each", "numbers", beside="pending"),
}


@dataclass(frozen=True)
class RuleState:
    """Arrays that all ranks share, this rank's own, by the names in `Rule.arrays`; numbers that JSON carries exactly.

    A checkpoint must have the arrays that a rule has right after `begin`; it may lack the others.
    """

    shared: Mapping[str, Array]
    own: Mapping[str, Array]
    numbers: Mapping[str, Any]


class Declared(Protocol):
    """A rule's class declares these: its `state`, of which run.state, which saves and restores it, reads nothing else;
    and whether replicas are alike."""

    @property
    def numbers(self) -> type:
        """A dataclass with bounds: its fields are the state's numbers."""
        ...

    @property
    def arrays(self) -> Mapping[str, Stored]:
        """Every array that the state ever has."""
        ...

    @property
    def alike(self) -> bool:
        """Whether all replicas are the centre itself, at every iteration's start.

        Then a rank on a CPU has one copy of weights and states, which its learners share.
        """
        ...


class Rule(Declared, Protocol):
    """The update algorithm of one rank; see this module's docstring for the order of calls."""

    @property
    def overlaps(self) -> bool:
        """Whether an exchange may run beside the next gradients: `sums` are one row then, which no pass writes."""
        ...

    @property
    def follows(self) -> bool:
        """Whether the centre follows the replicas by itself, so that `settle` is enough before it is read.

        Else all ranks average their weights and call `set_mean` before each evaluation, checkpoint and change of
        learners, and at the end. In between the centre may stay as it is, and the rule need not send a step.
        """
        ...

    @property
    def meter(self) -> GainMeter | None:
        """The meter of the gain, if there is one."""
        ...

    @property
    def centre(self) -> Array:
        """(size,), to be read and changed after `settle`, until the next update."""
        ...

    def begin(self, k: int, keep: bool = False) -> None:
        """k learners over all ranks from here on, by a restart; `keep` goes on instead, and `load` comes next.

        The rows are those of `replicas.resize` already, so this rank's number has changed; new ones hold no weights.
        """
        ...

    def end_period(self) -> int:
        """Ends a period of exchanges early: `outgoing`, `apply` and `advance` follow so many times, then a restart.

        0 if no step waits for an exchange. Called after `settle`, by all ranks alike, before a restart and at the end.
        """
        ...

    def restart(self) -> None:
        """Every replica starts again from the centre."""
        ...

    def update(self, local: Local, chunks: range) -> None:
        """Moves this rank's replicas by their local steps in `chunks`, and adds up what is to be sent.

        Every learner thread calls it at the same time, with chunks of its own, in one or several goes: it writes
        nothing outside them but what all threads write alike. Each chunk comes once. Where the rule overlaps, the
        passes of the last `apply` were made on these chunks just before; on others perhaps not yet.
        """
        ...

    def outgoing(self) -> Array | None:
        """The data to send in this iteration: a whole array, with TAIL elements after the sums, or the tail, or None.

        Called once, after the last `update`. All ranks must decide alike, and send as many elements: by the settings,
        k, and a count of iterations, never by what this rank's learners did. The tail's first element is the rule's,
        sum |u|^2; the synchroniser fills the others with losses, hits and this rank's request to talk. Signals and the
        tuner wait until that request has been summed: a rule that sends nothing for many iterations delays them as
        long, and should send the tail meanwhile.
        """
        ...

    def apply(self, local: Local, sums: Any) -> Sequence[OnChunks]:
        """The passes of this iteration; `sums` (n, size + TAIL or more) add up to the ranks' sum, in row order.

        Every rank calls it, every iteration; `sums` are None where nothing was sent. The centre must become the same
        bits on all ranks: a pass takes it from `sums`, and from arrays and numbers that are alike. Passes hold all
        that they need, as `advance` may come first.

        Where the rule overlaps, it is called beside the next gradients, on another thread, and writes no array itself.
        `sums` are one row, and passes run a few chunks at a time in front of the next `update`, or in `settle`: a
        pass must not read chunks that another one writes. Else learners run each pass over all chunks before the next
        one, at once; then `sums` are the arrays that the ranks sent, where they lie, and a pass does not write them.
        """
        ...

    def advance(self) -> None:
        """The exchange is over: the iteration counts, and what follows from its sums is for the next one.

        Called once an iteration, by all ranks; after the passes, or before them where the rule overlaps. A rule that
        sent `Outbox.whole` calls `Outbox.turn` here if the next update would write what is still read: by other ranks,
        where the rule does not overlap, or by this one, in an iteration to come.
        """
        ...

    def settle(self) -> None:
        """Makes the centre that of after the last update, where the passes of `apply` have not.

        Nothing is under way, and those passes are made. Ranks call it at different times, and as often as they like: it
        sends nothing, and the iterations to come give the same bits without it.
        """
        ...

    def reset(self, i: int) -> str:
        """Resets this rank's replica i, which is not finite and learns nothing from this iteration; returns a message.

        Called after `settle`, by this rank alone: the others are informed later.
        """
        ...

    def set_mean(self, mean: Array, add: Add) -> float:
        """The centre's mean W <- mean (size,), on the host, the replicas' true one; |W - mean| / |mean|, the drift.

        `add` sums an array over the ranks, in place: all of them call it alike.
        """
        ...

    def shared(self) -> list[Array]:
        """The arrays that must be the same bits on all ranks."""
        ...

    def state(self) -> RuleState:
        """All that the next iteration reads beside the replicas and the centre."""
        ...

    def load(self, centre: Array, state: RuleState) -> None:
        """Restores the centre and the return value of `state`; `begin(..., keep=True)` comes first."""
        ...


class Kind(Declared, Protocol):
    """A rule's class: its declarations and its constructor."""

    def __call__(self, settings: Any, flat: FlatKernels, rows: Rows, initial: Array, zeros: Zeros | None) -> Rule:
        """Keeps `rows` together, its centre at `initial` (size,), which it takes over.

        `zeros` makes the arrays that it sends.
        """
        ...


def gain_of(rule: Rule) -> float:
    """The ratio of the centre's step to the mean step, as last measured; 1 if a rule has no gain."""
    return 1.0 if rule.meter is None else rule.meter.gain


def drift_of(own: Array, mean: Array) -> float:
    """|own - mean| / |mean|, 0 where that has no length."""
    size = float(np.linalg.norm(mean))
    return float(np.linalg.norm(own - mean)) / size if size else 0.0
