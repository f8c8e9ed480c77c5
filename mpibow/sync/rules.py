"""Model averaging in place, on a rank's flat arrays, and which rule settings mean; the order of calls is in rule.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, asdict, astuple, dataclass
from functools import partial
from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.layout import Layout
from mpibow.kernels.passes import FlatKernels, Local, chunks_of
from mpibow.sync.averaging import averaging, may_spread
from mpibow.sync.gain import Averages, HostMeter, Meter, carried, noise_gain
from mpibow.sync.independent import IndependentRule
from mpibow.sync.orthogonal import Common, common_step
from mpibow.sync.rule import TAIL, OnChunks, Rows, Rule, RuleState, Zeros
from mpibow.sync.settings import Independent, Settings, Sma, Ssgd
from mpibow.sync.ssgd import SsgdRule


@dataclass
class SmaRule:
    """Synchronous model averaging; mpibow.sync.sma holds the formulas, this the same in place.

    W of learners that are pulled to it and are all this rank's is their mean by construction: updates neither read nor
    write it, `settle` makes it. After a learner was reset W follows the sums, as on several ranks, until `set_mean`.
    Where the common step is orthogonal, whose matrices are made of whole sums, it always does.
    """

    settings: Sma
    flat: FlatKernels
    initial: InitVar[Array]  # W (size,)
    zeros: Zeros | None = None  # of what is sent; flat.zeros
    orthogonal: Common | None = None  # what makes the common step so, where it may be
    uniform: bool = False
    follows: bool = True

    def __post_init__(self, initial: Array) -> None:
        self._mean, self._stale = initial, False  # _stale: the replicas have moved on since W was made of them
        size, dtype = self.mean.size, self.mean.dtype
        flat = self.flat
        self._z, self._previous = (flat.zeros(size, dtype) for _ in range(2))
        for array in (self._z, self._previous):
            flat.put(array, self.mean)
        sent = self.zeros or flat.zeros
        self._total, self._common = (sent(size + TAIL, str(dtype)) for _ in range(2))
        # Where it adds: the rows that were received, the rate of their iteration, and the sum of all |u|^2.
        self._sums, self._rate, self._square = self._total, 0.0, 0.0
        self.chunk, self.chunks = self.flat.chunk, chunks_of(size, self.flat.chunk)
        self._squares = flat.zeros(len(self.chunks), "float64")
        self._size = size
        self.rule = averaging(self.settings, 1)
        self.meter: Meter = HostMeter(flat) if flat.meter is None else flat.meter()
        self._here, self._apart = False, False  # _apart: W is not the replicas' mean, as one of them was reset
        self._own = flat.zeros((len(self.chunks), 2), "float64")
        self._load_gain(1.0, Averages())
        self._turn, self._fresh = 0, True  # _fresh: nothing is pending, so the next update overwrites the sums
        self._common_live = False
        # What the common step is of the sum of the steps, of the iteration before or of this one; no number on a GPU.
        self._late: Any = 0.0
        self._extra: Any = 0.0
        self._scale: Any = 1.0

    @property
    def gain(self) -> float:
        return self.meter.gain

    @property
    def averages(self) -> Averages:
        return Averages(*self.meter.state()[1])

    @property
    def _alone(self) -> bool:
        """Whether W is the mean of this rank's replicas, and nothing that an update makes need leave the pass."""
        return self._here and not self._apart

    @property
    def _spreads(self) -> bool:
        """Whether the common step is orthogonal."""
        return self.orthogonal is not None and self.rule.orthogonal

    @property
    def deferred(self) -> bool:
        return self._alone or not (self.rule.gain is not None and self.rule.delay == 0)

    @property
    def adds(self) -> bool:
        return not self.deferred and self.flat.meter is None

    @property
    def mean(self) -> Array:
        """W (size,)."""
        assert not self._stale, "settle() comes first"
        return self._mean

    @property
    def centre(self) -> Array:
        return self.mean if self.rule.pulled else self._z

    def begin(self, rows: Rows, k: int, keep: bool = False) -> None:
        """k learners over all ranks from here on; `keep` continues a loaded state instead of restarting."""
        z = self.centre
        if k != self.rule.k:
            known = carried(self.averages, self.rule.k, k)
            self.rule = averaging(self.settings, k)
            self._load_gain(noise_gain(known, k), known)
        here = len(rows.weights) == k  # all learners are this rank's
        at_once = self.settings.gain != "none" and self.settings.delay == 0
        self._here = here and (k == 1 or (at_once and not self._spreads))
        if not keep:
            self.flat.put(self.mean, z)
            self.flat.put(self._z, z)
            self.restart(rows)

    def _load_gain(self, gain: float, averages: Averages) -> None:
        fixed = None if self.rule.gain == "auto" else self.rule.used(1.0)
        self.meter.load(self.rule.k, fixed, gain, astuple(averages))

    def restart(self, rows: Rows) -> None:
        """w_i = W = z_prev = z; the period's counter and the pending steps are 0."""
        if not self.rule.pulled:
            self.flat.put(self.mean, self._z)
            self.flat.put(self._previous, self._z)
        self.flat.put(rows.weights, self.mean)
        if self.settings.reset_momentum:
            self.flat.put(rows.momenta, 0)
        self._turn, self._fresh, self._common_live, self._apart = 0, True, False, False

    def update(self, rows: Rows, local: Local, chunks: range) -> None:
        if self._alone:
            self._stale = True
            self.flat.sma_alone(
                rows.weights, rows.momenta, rows.gradients, self._own,
                local=local, alpha=self.rule.correction if self.rule.on(self._turn) else 0.0,
                gain=self.meter.common, chunks=chunks, factors=rows.factors,
            )  # fmt: skip
            return
        late = self._common_live and self.rule.delay == 1
        self.flat.sma_update(
            rows.weights, rows.momenta, rows.gradients, self._total[: self._size], self._squares,
            self.centre, self._common[: self._size],
            local=local, alpha=self.rule.correction if self.rule.on(self._turn) else 0.0,
            gain=self.meter.common if late else 0.0, begin=self._fresh, chunks=chunks, factors=rows.factors,
        )  # fmt: skip

    def outgoing(self) -> Array | None:
        if self._alone:
            return self._total[self._size :]
        self._fresh = self.rule.sends(self._turn)
        if not self._fresh:
            return None
        self.meter.send(self._squares, self._total, self._size)
        return self._total

    def received(self, local: Local, sums: Any = None) -> None:
        rule = self.rule
        self._late = self.meter.common if self._common_live and rule.delay == 1 else 0.0
        extra = rule.delay == 0 and rule.gain is not None
        self._extra, self._scale = (self.meter.common, self.meter.whole(rule.k)) if extra else (0.0, 1.0 / rule.k)
        if self.adds:
            self._sums, self._rate, self._square = sums, local.rate, float(sums[:, self._size].sum())
        elif rule.gain is not None:
            told = {"own": self._own} if self._alone else {"total": self._total}
            self.meter.follow(rule.k, local.rate, **told)

    def apply(self, rows: Rows, local: Local) -> Sequence[OnChunks]:
        if self._alone:
            return ()
        rule, flat, scale = self.rule, self.flat, self._scale
        if self._spreads and rule.even > 1.0:
            assert self.orthogonal is not None
            return self.orthogonal.works(
                rows.weights, self.mean, self._sums, self._squares,
                gain=self._extra, even=(rule.even - 1.0) / rule.k, scale=1.0 / rule.k,
            )  # fmt: skip
        if self.adds:
            return (partial(self._add_up, rows.weights),)
        late, extra = self._late, self._extra  # with a gain every iteration is sent
        sent = self._total[: self._size] if self._fresh else None
        common = self._common[: self._size]
        pull = rule.k * rule.alpha if rule.on(self._turn) and not rule.pulled else 0.0

        def run(chunks: range) -> None:
            if extra and sent is not None:
                flat.add_scaled(rows.weights, sent, scale=extra, chunks=chunks)
            if late:
                flat.add_scaled(self.mean, common, scale=late, chunks=chunks)
            flat.centre_update(
                self.mean, self._z, self._previous, sent,
                pull=pull, alpha=rule.alpha, momentum=rule.mu, scale=scale, chunks=chunks,
            )  # fmt: skip

        return (run,)

    def _add_up(self, weights: Array, chunks: range) -> None:
        self.flat.sma_apply(
            weights, self.mean, self._sums, self._squares, gain=self._extra, scale=self._scale, chunks=chunks
        )

    def advance(self) -> None:
        if self.adds:
            own = np.array([[self._square, sum(self._squares.tolist())]])  # known only now: the pass has added up
            self.meter.follow(self.rule.k, self._rate, own=own)
            self._total, self._common = self._common, self._total  # other ranks may still read what was sent
        elif not self._alone and self._fresh and self.rule.gain is not None and self.rule.delay == 1:
            self._total, self._common = self._common, self._total
            self._common_live = True
        self._turn += 1

    def settle(self, rows: Rows) -> None:
        if self._stale:
            self.flat.rows_mean(rows.weights, self._mean, chunks=self.chunks)
            self._stale = False

    def moved(self) -> None:
        self._apart = self._here

    def unsent(self) -> Array | None:
        return None if self._fresh else self._total[: self._size]

    def set_mean(self, mean: Array) -> float:
        own = self.flat.host(self.mean)
        if (steps := self.unsent()) is not None:
            steps = self.flat.host(steps)
            own = own + steps * steps.dtype.type(1.0 / self.rule.k)
            self._fresh = True
        size = float(np.linalg.norm(mean))
        drift = float(np.linalg.norm(own - mean)) / size if size else 0.0
        self.flat.put(self.mean, mean)
        self._apart = False
        return drift

    def shared(self) -> list[Array]:
        arrays = [self.mean] if self.rule.pulled else [self.mean, self._z, self._previous]
        return [*arrays, self._common] if self._common_live else arrays

    def state(self) -> RuleState:
        common = {} if self.rule.pulled else {"mean": self.mean, "previous": self._previous}
        if self._common_live:
            common["common"] = self._common
        own = {} if self._fresh else {"pending": self._total, "squares": self._squares}
        gain, averages = self.meter.state()
        numbers = {"turn": self._turn, "gain": gain, "averages": asdict(Averages(*averages)), "apart": self._apart}
        return RuleState(common, own, numbers)

    def load(self, centre: Array, state: RuleState) -> None:
        self._stale = False
        self.flat.put(self._z, centre)
        self.flat.put(self.mean, state.common.get("mean", centre))
        self.flat.put(self._previous, state.common.get("previous", centre))
        self._fresh, self._common_live = "pending" not in state.own, "common" in state.common
        if not self._fresh:
            self.flat.put(self._total, state.own["pending"])
            squares = state.own["squares"]
            if squares.size != self._squares.size:  # of kernels with other chunks; what counts is their sum
                squares = np.pad([squares.sum()], (0, self._squares.size - 1))
            self.flat.put(self._squares, squares)
        if self._common_live:
            self.flat.put(self._common, state.common["common"])
        self._turn, self._apart = state.numbers["turn"], state.numbers.get("apart", False)  # older checkpoints lack it
        self._load_gain(state.numbers["gain"], Averages(**state.numbers["averages"]))


RULES: Mapping[type, type[SmaRule] | type[SsgdRule] | type[IndependentRule]] = {
    Sma: SmaRule,
    Ssgd: SsgdRule,
    Independent: IndependentRule,
}


def make_rule(
    settings: Settings, flat: FlatKernels, initial: Array, zeros: Zeros | None = None, layout: Layout | None = None
) -> Rule:
    """The rule of `settings`, its centre at `initial` (size,), which it takes over; `zeros` makes what it sends.

    `layout` says which elements are a matrix's, where the common step is orthogonal.
    """
    mean = initial
    if flat.meter is not None:  # the host's array is not where the passes are
        mean = flat.zeros(initial.size, initial.dtype)
        flat.put(mean, initial)
    more = {}
    if layout is not None and may_spread(settings):
        more["orthogonal"] = common_step(layout, flat, initial.dtype)
    return RULES[type(settings)](settings, flat, mean, zeros=zeros, **more)  # type: ignore[arg-type]
