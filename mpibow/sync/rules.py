"""The rules in place: what `sma` and plain S-SGD do to a rank's flat arrays; the order of calls is in rule.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from mpibow.errors import ConfigError
from mpibow.graph.graph import Array
from mpibow.kernels.passes import FlatKernels, Local, chunks_of
from mpibow.sync.gain import Averages, follow, noise_gain
from mpibow.sync.independent import IndependentRule
from mpibow.sync.rule import TAIL, OnChunks, Rows, Rule, RuleState
from mpibow.sync.settings import Independent, Settings, Sma, Ssgd
from mpibow.sync.sma import Averaging, alpha_limit

MOST = 1 << 10  # learners of a rank that are worth asking for


@dataclass
class SmaRule:
    """Synchronous model averaging; mpibow.sync.sma holds the formulas, this the same in place."""

    settings: Sma
    flat: FlatKernels
    mean: Array  # W (size,)
    uniform: bool = False
    follows: bool = True

    def __post_init__(self) -> None:
        size, dtype = self.mean.size, self.mean.dtype
        self._z, self._previous = self.mean.copy(), self.mean.copy()
        self._total, self._common = (np.zeros(size + TAIL, dtype) for _ in range(2))
        self.chunk, self.chunks = self.flat.chunk, chunks_of(size, self.flat.chunk)
        self._squares, self._norms = (np.zeros(len(self.chunks)) for _ in range(2))  # |u_i|^2 and |sum u|^2 by chunk
        self._size = size
        self.rule = averaging(self.settings, 1)
        self.averages, self.gain = Averages(), 1.0
        self._alone, self._own = False, np.zeros((len(self.chunks), 2))
        self._turn, self._fresh = 0, True  # _fresh: nothing is pending, so the next update overwrites the sums
        self._common_live, self._common_gain, self._rate = False, 0.0, 0.0

    @property
    def deferred(self) -> bool:
        return self._alone or not (self.rule.gain is not None and self.rule.delay == 0)

    @property
    def centre(self) -> Array:
        return self.mean if self.rule.pulled else self._z

    def begin(self, rows: Rows, k: int, keep: bool = False) -> None:
        """k learners over all ranks from here on; `keep` continues a loaded state instead of restarting."""
        z = self.centre
        here = len(rows.weights) == k  # all learners are this rank's: their sums need not leave the pass
        self._alone = here and (k == 1 or (self.settings.gain != "none" and self.settings.delay == 0))
        if k != self.rule.k:
            self.rule = averaging(self.settings, k)
            if not keep:
                self.averages, self.gain = Averages(), 1.0  # n2 depends on k
        if not keep:
            np.copyto(self.mean, z)
            np.copyto(self._z, z)
            self.restart(rows)

    def restart(self, rows: Rows) -> None:
        """w_i = W = z_prev = z; the period's counter and the pending steps are 0."""
        if not self.rule.pulled:
            np.copyto(self.mean, self._z)
            np.copyto(self._previous, self._z)
        rows.weights[...] = self.mean
        if self.settings.reset_momentum:
            rows.momenta[...] = 0
        self._turn, self._fresh, self._common_live = 0, True, False

    def update(self, rows: Rows, local: Local, chunks: range) -> None:
        if self._alone:
            self.flat.sma_alone(
                rows.weights, rows.momenta, rows.gradients, self.mean, self._own,
                local=local, alpha=self.rule.correction if self.rule.on(self._turn) else 0.0,
                gain=self._gain(), chunks=chunks, factors=rows.factors,
            )  # fmt: skip
            return
        late = self._common_live and self.rule.delay == 1
        self.flat.sma_update(
            rows.weights, rows.momenta, rows.gradients, self._total[: self._size], self._squares,
            self.centre, self._common[: self._size],
            local=local, alpha=self.rule.correction if self.rule.on(self._turn) else 0.0,
            gain=self._gain() if late else 0.0, begin=self._fresh, chunks=chunks, factors=rows.factors,
        )  # fmt: skip

    def _gain(self) -> float:
        """What the common step is of the sum of the steps."""
        return (self.rule.used(self.gain) - 1.0) / self.rule.k

    def outgoing(self) -> Array | None:
        if self._alone:
            return self._total[self._size :]
        self._fresh = self.rule.sends(self._turn)
        if not self._fresh:
            return None
        self._total[self._size] = sum(self._squares.tolist())  # in chunk order, whoever computed them
        return self._total

    def received(self, local: Local) -> None:
        self._common_gain, self._rate = self._gain(), local.rate  # as it was before this iteration
        if self._alone:
            self._follow(*self._own.sum(axis=0).tolist())
        elif self.deferred:
            square = self.flat.squared_norm(self._total[: self._size]) if self.rule.gain == "auto" else 0.0
            self._follow(float(self._total[self._size]), square)

    def _follow(self, squares: float, square: float) -> None:
        """The gain after one more iteration, from sum |u_i|^2 and |sum u_i|^2."""
        k = self.rule.k
        if self.rule.gain == "auto":
            self.averages = follow(self.averages, k, squares / k, square / k**2, self._rate)
        self.gain = self.rule.used(noise_gain(self.averages, k))

    def apply(self, rows: Rows, local: Local) -> OnChunks | None:
        if self._alone:
            return None
        rule, flat, extra = self.rule, self.flat, self._common_gain
        sent = self._total[: self._size] if self._fresh else None
        if not self.deferred and sent is not None:  # with a gain every iteration is sent
            scale, norms = 1.0 / rule.k + extra, self._norms
            return lambda chunks: flat.sma_apply(
                rows.weights, self.mean, sent, norms, extra=extra, scale=scale, chunks=chunks
            )
        late = extra if self._common_live and rule.delay == 1 else 0.0
        common = self._common[: self._size]
        pull = rule.k * rule.alpha if rule.on(self._turn) and not rule.pulled else 0.0

        def run(chunks: range) -> None:
            if late:
                flat.add_scaled(self.mean, common, scale=late, chunks=chunks)
            flat.centre_update(
                self.mean, self._z, self._previous, sent,
                pull=pull, alpha=rule.alpha, momentum=rule.mu, scale=1.0 / rule.k, chunks=chunks,
            )  # fmt: skip

        return run

    def advance(self) -> None:
        if not self.deferred:  # the sums were applied, and their square found on the way
            self._follow(float(self._total[self._size]), sum(self._norms.tolist()))
        if not self._alone and self._fresh and self.rule.gain is not None and self.rule.delay == 1:
            self._total, self._common = self._common, self._total
            self._common_live = True
        self._turn += 1

    def unsent(self) -> Array | None:
        return None if self._fresh else self._total[: self._size]

    def set_mean(self, mean: Array) -> float:
        if (steps := self.unsent()) is not None:
            self.mean += steps * steps.dtype.type(1.0 / self.rule.k)
            self._fresh = True
        size = float(np.linalg.norm(mean))
        drift = float(np.linalg.norm(self.mean - mean)) / size if size else 0.0
        np.copyto(self.mean, mean)
        return drift

    def shared(self) -> list[Array]:
        arrays = [self.mean] if self.rule.pulled else [self.mean, self._z, self._previous]
        return [*arrays, self._common] if self._common_live else arrays

    def state(self) -> RuleState:
        common = {} if self.rule.pulled else {"mean": self.mean, "previous": self._previous}
        if self._common_live:
            common["common"] = self._common
        own = {} if self._fresh else {"pending": self._total, "squares": self._squares}
        return RuleState(common, own, {"turn": self._turn, "gain": self.gain, "averages": asdict(self.averages)})

    def load(self, centre: Array, state: RuleState) -> None:
        np.copyto(self._z, centre)
        np.copyto(self.mean, state.common.get("mean", centre))
        np.copyto(self._previous, state.common.get("previous", centre))
        self._fresh, self._common_live = "pending" not in state.own, "common" in state.common
        if not self._fresh:
            np.copyto(self._total, state.own["pending"])
            squares = state.own["squares"]
            if squares.size != self._squares.size:  # of kernels with other chunks; what counts is their sum
                squares = np.pad([squares.sum()], (0, self._squares.size - 1))
            np.copyto(self._squares, squares)
        if self._common_live:
            np.copyto(self._common, state.common["common"])
        self._turn, self.gain = state.numbers["turn"], state.numbers["gain"]
        self.averages = Averages(**state.numbers["averages"])


@dataclass
class SsgdRule:
    """Synchronous SGD: gradients averaged over all learners, one step that all replicas take alike."""

    settings: Ssgd
    flat: FlatKernels
    mean: Array  # (size,) the weights, the same in every row
    uniform: bool = True
    follows: bool = True
    deferred: bool = False
    gain: float = 1.0

    def __post_init__(self) -> None:
        self._size, self._k = self.mean.size, 1
        self.chunk, self.chunks = self.flat.chunk, chunks_of(self._size, self.flat.chunk)
        self._total = np.zeros(self._size + TAIL, self.mean.dtype)

    @property
    def centre(self) -> Array:
        return self.mean

    def begin(self, rows: Rows, k: int, keep: bool = False) -> None:
        """k learners over all ranks from here on; new rows take the first one's weights and momentum."""
        self._k = k
        if not keep:
            self.restart(rows)

    def restart(self, rows: Rows) -> None:
        rows.weights[...] = self.mean
        rows.momenta[1:] = rows.momenta[0]

    def update(self, rows: Rows, local: Local, chunks: range) -> None:
        self.flat.gradient_sum(rows.gradients, self._total[: self._size], chunks=chunks, factors=rows.factors)

    def outgoing(self) -> Array | None:
        self._total[self._size] = 0
        return self._total

    def received(self, local: Local) -> None:
        pass

    def apply(self, rows: Rows, local: Local) -> OnChunks:
        if self.settings.scale_lr:  # Goyal et al., arXiv:1706.02677
            local = Local(local.rate * self._k, local.momentum, local.nesterov, local.decay, local.decayed)

        def run(chunks: range) -> None:
            self.flat.sgd_update(
                rows.weights, rows.momenta, self._total[: self._size], local=local, scale=1.0 / self._k, chunks=chunks
            )
            part = slice(chunks.start * self.flat.chunk, chunks.stop * self.flat.chunk)
            np.copyto(self.mean[part], rows.weights[0, part])

        return run

    def advance(self) -> None:
        pass

    def unsent(self) -> Array | None:
        return None

    def set_mean(self, mean: Array) -> float:
        return 0.0  # the replicas are the mean, bit for bit

    def shared(self) -> list[Array]:
        return [self.mean]

    def state(self) -> RuleState:
        return RuleState({}, {}, {})

    def load(self, centre: Array, state: RuleState) -> None:
        np.copyto(self.mean, centre)


def averaging(settings: Sma, k: int) -> Averaging:
    """The averaging of k learners. Raises ConfigError where a fixed alpha would not let it settle, with the limit."""
    gain = None if settings.gain == "none" else settings.gain
    mu = 0.9 if settings.momentum == "auto" else settings.momentum
    alpha = 1.0 / k if settings.alpha == "auto" else settings.alpha
    rule = Averaging(k, alpha, mu, settings.period, gain, settings.delay)
    limit = alpha_limit(k, mu, rule.pulled)
    if k > 1 and alpha >= limit:
        raise ConfigError(
            f"rule.alpha: must be below {limit:.4g} for {k} learners, got {alpha:g}; auto is 1 / learners"
        )
    return rule


def check_rule(settings: Settings, k: int) -> None:
    """Raises ConfigError where the rule cannot keep k learners together."""
    if isinstance(settings, Sma):
        averaging(settings, k)


def most_learners(settings: Settings, ranks: int) -> int:
    """Learners that each of `ranks` ranks may have at most, since a fixed alpha keeps no more together."""
    for each in range(1, MOST):
        try:
            check_rule(settings, (each + 1) * ranks)
        except ConfigError:
            return each
    return MOST


RULES: Mapping[type, type[SmaRule] | type[SsgdRule] | type[IndependentRule]] = {
    Sma: SmaRule,
    Ssgd: SsgdRule,
    Independent: IndependentRule,
}


def make_rule(settings: Settings, flat: FlatKernels, initial: Array) -> Rule:
    """The rule of `settings`, its centre at `initial` (size,), which it takes over."""
    return RULES[type(settings)](settings, flat, initial)  # type: ignore[arg-type]
