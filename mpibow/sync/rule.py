"""What a rule is: how a rank's flat arrays change around one sum, over the ranks, of one flat array.

An iteration, with u the local steps of all learners:

    update(chunks)    by all learner threads, each its chunks: local steps and corrections; sums of steps
    outgoing()        the flat array to be summed over the ranks, or None where this iteration sends nothing
    apply(sums)       the passes that make the centre of the ranks' sums, one after the other over all chunks
    advance()         those are made; where the rule `overlaps`, they are made with the next update, or before the
                      centre is read, and only the exchange is over

And between iterations, in front of all that reads or changes the centre:

    settle()          the centre is that of after the last update; what reads it earlier is an AssertionError

A pass takes any chunks, each of them once. So an update may later come bucket by bucket, as sums arrive.

What is sent, who waits for it, and when the centre is made:

    SMA, one rank               nothing is sent; `settle` makes the centre, the mean of the replicas
    SMA, several ranks          sums of steps; all wait; `apply` adds the common step to replicas and centre
    SMA with `delay: 1`         sums of steps, hidden behind the next gradients; the centre moves with the next update
    SMA as published, EA-SGD    as with `delay: 1`, once in `period` iterations
    S-SGD                       sums of gradients; all wait; one step moves all replicas, which are the centre
    independent                 nothing, until the weights are averaged
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from mpibow.graph.graph import Array
from mpibow.kernels.passes import Local, States
from mpibow.sync.gain import GainMeter
from mpibow.sync.outbox import TAIL as TAIL

OnChunks = Callable[[range], None]
Add = Callable[[Array], None]


class Rows(Protocol):
    """A rank's replicas, rows of one block. Only the local step knows which states it keeps beside the weights."""

    @property
    def weights(self) -> Array:
        """(count, size)"""
        ...

    @property
    def trained(self) -> tuple[Array, States, Array]:
        """Weights, what the local step keeps, and gradients, each (count, size), as passes take them."""
        ...

    @property
    def factors(self) -> Array:
        """Which gradients are factors (Layout.factors)."""
        ...

    def forget(self) -> None:
        """What the local step keeps is as at a start."""
        ...

    def level(self) -> None:
        """Every row keeps what the first one does."""
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

    `form` is "weights" (size,) or "sent" (size + TAIL,), of the weights' dtype, both stored in the canonical layout so
    that kernels with another layout may go on from it; or "numbers", any number of float64. `beside` names an array
    that is there whenever this one is.
    """

    ranks: Literal["all", "each"]
    form: Literal["weights", "sent", "numbers"]
    beside: str = ""


@dataclass(frozen=True)
class RuleState:
    """Arrays that all ranks share, this rank's own, by the names in `Rule.arrays`; numbers that JSON carries exactly.

    A checkpoint must have the arrays that a rule has right after `begin`; it may lack the others.
    """

    shared: Mapping[str, Array]
    own: Mapping[str, Array]
    numbers: Mapping[str, Any]


class Declared(Protocol):
    """What a rule's class declares of its `state`; run.state, which saves and restores it, reads nothing else."""

    @property
    def numbers(self) -> type:
        """A dataclass with bounds: its fields are the state's numbers."""
        ...

    @property
    def arrays(self) -> Mapping[str, Stored]:
        """Every array that the state ever has."""
        ...


class Rule(Declared, Protocol):
    """The update algorithm of one rank; see this module's docstring for the order of calls."""

    @property
    def overlaps(self) -> bool:
        """Whether an exchange may run beside the next gradients: `sums` are one row then, which no pass writes."""
        ...

    @property
    def alike(self) -> bool:
        """Whether all replicas are the centre itself, at every iteration's start."""
        ...

    @property
    def follows(self) -> bool:
        """Whether the centre follows the replicas by itself; else it is their mean after `set_mean` alone."""
        ...

    @property
    def meter(self) -> GainMeter | None:
        """What keeps the gain, where there is one."""
        ...

    @property
    def centre(self) -> Array:
        """(size,), to be read and changed after `settle`, until the next update."""
        ...

    def begin(self, k: int, keep: bool = False) -> None:
        """k learners over all ranks from here on, by a restart; `keep` goes on instead, and `load` comes next."""
        ...

    def restart(self) -> None:
        """Every replica starts again from the centre."""
        ...

    def update(self, local: Local, chunks: range) -> None: ...

    def outgoing(self) -> Array | None: ...

    def apply(self, local: Local, sums: Any) -> Sequence[OnChunks]:
        """`sums` (n, size + TAIL or more) add up to the ranks' sum, in row order; None where nothing was sent."""
        ...

    def advance(self) -> None: ...

    def settle(self) -> None: ...

    def reset(self, i: int) -> str:
        """This rank's replica i is not finite and learns nothing from this iteration: what becomes of it."""
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
        """The centre and what `state` gave; `begin(..., keep=True)` comes first."""
        ...


def gain_of(rule: Rule) -> float:
    """How much longer than the mean step the centre's is, as last known; 1 where a rule has no gain."""
    return 1.0 if rule.meter is None else rule.meter.gain


def drift_of(own: Array, mean: Array) -> float:
    """|own - mean| / |mean|, 0 where that has no length."""
    size = float(np.linalg.norm(mean))
    return float(np.linalg.norm(own - mean)) / size if size else 0.0
