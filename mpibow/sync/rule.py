"""What a rule is: how a rank's flat arrays change around one all-reduce of one flat array.

An iteration, with u the local steps of all learners:

    update(chunks)    by all learner threads, each its chunks: local steps and corrections; sums of steps
    outgoing()        the flat array to be summed over the ranks, or None where this iteration sends nothing
    received(sums)    what the sums, one row or more, say beside the steps themselves (the gain)
    apply()           what makes the centre from the sums, to be called with chunks, one with all of them before the
                      next; where `deferred` it is one at most, called at any time before the next update of these
                      chunks, or before the centre is read
    advance()         the iteration is over

And between iterations, in front of all that reads or changes the centre:

    settle()          the centre is that of after the last update; what reads it earlier is an AssertionError
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mpibow.graph.graph import Array
from mpibow.kernels.passes import FlatKernels, Local
from mpibow.sync.gain import TAIL as TAIL
from mpibow.sync.gain import Meter

OnChunks = Callable[[range], None]
Zeros = Callable[[int, str], Array]


class Rows(Protocol):
    """A rank's replicas: weights, momenta and gradients (count, size); which gradients are factors (Layout.factors)."""

    @property
    def weights(self) -> Array: ...
    @property
    def momenta(self) -> Array: ...
    @property
    def gradients(self) -> Array: ...
    @property
    def factors(self) -> Array: ...


@dataclass(frozen=True)
class RuleState:
    """Arrays that all ranks share, this rank's own, and numbers that JSON carries exactly."""

    common: Mapping[str, Array]
    own: Mapping[str, Array]
    numbers: Mapping[str, Any]


class Rule(Protocol):
    """The update algorithm; see this module's docstring for the order of calls."""

    @property
    def flat(self) -> FlatKernels: ...
    @property
    def deferred(self) -> bool: ...
    @property
    def adds(self) -> bool:
        """Whether it adds up the ranks' rows itself (Communicator.sum), and sends another array next time."""
        ...

    @property
    def uniform(self) -> bool:
        """Whether all replicas are the centre itself, at every iteration's start."""
        ...

    @property
    def follows(self) -> bool:
        """Whether the centre follows the replicas by itself; else it is their mean after `set_mean` alone."""
        ...

    @property
    def chunk(self) -> int:
        """Elements of a chunk."""
        ...

    @property
    def chunks(self) -> range:
        """All chunks of the flat arrays, for `update` and `apply`."""
        ...

    @property
    def gain(self) -> float: ...

    @property
    def meter(self) -> Meter | None:
        """What keeps the gain, where there is one."""
        ...

    @property
    def centre(self) -> Array:
        """To be read and changed after `settle`, until the next update."""
        ...

    def begin(self, rows: Rows, k: int, keep: bool = False) -> None: ...
    def restart(self, rows: Rows) -> None: ...
    def update(self, rows: Rows, local: Local, chunks: range) -> None: ...
    def outgoing(self) -> Array | None: ...
    def received(self, local: Local, sums: Any = None) -> None: ...
    def apply(self, rows: Rows, local: Local) -> Sequence[OnChunks]: ...
    def advance(self) -> None: ...
    def settle(self, rows: Rows) -> None:
        """What `apply` left to do for the centre, once for all updates since it was read; nothing may be under way."""
        ...

    def moved(self) -> None:
        """Weights of a replica were set to the centre: W is not the replicas' mean until `set_mean`, or a restart."""
        ...

    def unsent(self) -> Array | None:
        """This rank's steps that no all-reduce has carried yet (size,), to be summed in place for `set_mean`."""
        ...

    def set_mean(self, mean: Array) -> float:
        """The centre's mean W <- mean (size,), the replicas' true one; |W - mean| / |mean|, the drift."""
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
