"""What rules use of whole models: above all the gain of the mean step, measured from the noise between learners.

The gain follows arXiv:2007.05105, section 3.2.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpibow.graph import Array
from mpibow.kernels import FlatKernels

from .rule import RuleSettings

CERTAIN = 80  # iterations after which the measured gain is taken whole


@dataclass(frozen=True)
class Averages:
    """n1, n2: averages over time of mean |v_i|^2 and |mean v|^2, weighted sums not yet divided by `weight`.

    They belong to the current number of learners; a single learner keeps those of two (`carried`). `count`: the
    iterations in them, up to CERTAIN.
    """

    n1: float = 0.0
    n2: float = 0.0
    weight: float = 0.0
    count: int = 0


def follow(averages: Averages, k: int, mean_square: float, square_of_mean: float, rate: float) -> Averages:
    """The averages after one more iteration, from mean |u_i|^2 and |mean u|^2 with u = -rate v; unchanged at rate 0.

    Each iteration weighs min(k / 1000, 1): about a thousand batches count, however many learners they are spread over.
    One learner gives no measure of noise.
    """
    if k == 1:
        return averages
    square = rate * rate  # inf or 0 where it leaves the range, while ** would raise
    n1, n2 = (mean_square / square, square_of_mean / square) if square else (math.nan, math.nan)
    if not (math.isfinite(n1) and math.isfinite(n2)):
        return averages
    share = min(k / 1000.0, 1.0)
    return Averages(
        n1=(1.0 - share) * averages.n1 + share * n1,
        n2=(1.0 - share) * averages.n2 + share * n2,
        weight=(1.0 - share) * averages.weight + share,
        count=min(averages.count + 1, CERTAIN),
    )


def carried(averages: Averages, before: int, after: int) -> Averages:
    """The averages of `before` learners, converted to those of `after` with the same noise and signal.

    n1 = noise + signal stays, n1 - n2 = (1 - 1 / k) noise follows k. One learner keeps those of two.
    """
    before = max(before, 2)
    after = max(after, 2)
    share = (1.0 - 1.0 / after) / (1.0 - 1.0 / before)
    return replace(averages, n2=averages.n1 - share * (averages.n1 - averages.n2))


def noise_gain(averages: Averages, k: int) -> float:
    """G = (noise + signal) / (noise / k + signal) within [1, k]; 1 for one learner and while nothing is known.

    noise = max(k / (k - 1) (n1 - n2), 0), signal = max(n2 - noise / k, 0): k steps that differ by noise alone may be
    added up (G = k), k equal steps count once (G = 1). Of G - 1 the first CERTAIN iterations take a share that
    grows from 0 to 1: a net that begins with steps k times as long may not recover (bench_sma.py --only growth).

    The paper's averages are of gradients, these of v, the sum of m^j g. With momentum m its noise is 1 / (1 - m^2)
    times a gradient's, while a signal that lasts is (1 / (1 - m))^2 times: G is that of a batch (1 + m) / (1 - m) times
    as large, and below the paper's. To divide that out would forget that a signal which turns within 1 / (1 - m)
    iterations grows less, and so find G too large just where it is too large already: LeNet's first epoch diverges
    then with 16 learners, at batch 8 and momentum 0.9.
    """
    if k == 1 or averages.weight == 0.0:
        return 1.0
    n1 = averages.n1 / averages.weight
    n2 = averages.n2 / averages.weight
    noise = max(k / (k - 1) * (n1 - n2), 0.0)
    signal = max(n2 - noise / k, 0.0)
    below = noise / k + signal
    gain = (noise + signal) / below if below > 0.0 else math.nan
    gain = min(max(gain, 1.0), float(k)) if math.isfinite(gain) else 1.0
    return 1.0 + (gain - 1.0) * min(averages.count / CERTAIN, 1.0)


class GainMeter:
    """Keeps the gain of one rank in Python's numbers. All ranks' are alike: they follow the same sums.

    `gain` is the last one that is on the host.
    """

    def load(self, k: int, fixed: float | None, gain: float, averages: Averages) -> None:
        """k learners, a gain that is fixed or, where None, measured; `gain` is the one that was used last."""
        self._k = k
        self._fixed = fixed
        self.gain = gain
        self.averages = averages

    @property
    def common(self) -> Any:
        """The factor of the sum of the steps in the common step: (gain - 1) / k, as passes take it (`extra`)."""
        used = self.gain if self._fixed is None else self._fixed
        return (used - 1.0) / self._k

    @property
    def whole(self) -> Any:
        """The factor of that sum in the mean's move: 1 / k + (gain - 1) / k."""
        return 1.0 / self._k + self.common

    def follow(self, k: int, rate: float, sums: Array, size: int, squares: Array) -> None:
        """After an iteration: `sums` (n, size or more) of the ranks' steps, sum |u|^2 at `size`.

        `squares` (chunks,) are |sum u|^2 of every chunk.
        """
        if self._fixed is None:
            self._follow(k, rate, float(sums[:, size].sum()), sum(squares.tolist()))

    def follow_alone(self, k: int, rate: float, own: Array) -> None:
        """After an iteration of learners that are all this rank's: sum |u|^2, |sum u|^2 of every chunk (chunks, 2)."""
        if self._fixed is None:
            self._follow(k, rate, *own.sum(axis=0).tolist())

    def _follow(self, k: int, rate: float, squares: float, square: float) -> None:
        self.averages = follow(self.averages, k, squares / k, square / k**2, rate)
        self.gain = noise_gain(self.averages, k)

    def state(self) -> tuple[float, Averages]:
        """The gain and the averages, to be loaded again."""
        return self.gain, self.averages

    def see(self) -> None:
        """Called after the passes that read the previous gain: begins its update and its copy to the host."""

    def seen(self) -> None:
        """Called when that is over."""


class Reductions:
    """What the next iteration uses of whole models: the gain, measured or set, of k learners; `norm` = |total| / k and
    the learning `rate` of the exchange before, where the rule asks for them.

    Passes enter |sum u|^2 of every chunk in `squares` (chunks,), which is empty where nothing is made of it.
    """

    def __init__(self, settings: RuleSettings, flat: FlatKernels, chunks: int):
        self._averaging = settings.of(1)
        self.meter = GainMeter() if flat.meter is None else flat.meter()
        self.gains = self._averaging.sends == "steps" and not self._averaging.lags
        self._norms = settings.formulas.read("norm")
        self.squares = flat.zeros(chunks * (self.gains or self._norms), "float64")
        self.norm = self.rate = 0.0
        self._load(1, 1.0, Averages())

    def _load(self, k: int, gain: float, averages: Averages) -> None:
        self.k = k
        fixed = None if self._averaging.gain == "measured" else replace(self._averaging, k=k).used(1.0)
        self.meter.load(k, fixed, gain if fixed is None else fixed, averages)

    def count(self, k: int) -> None:
        """k learners from here on; the measured averages are converted."""
        if k != self.k:
            known = carried(self.meter.state()[1], self.k, k)
            self._load(k, noise_gain(known, k), known)

    def follow(self, rate: float, sums: Array, size: int, passed: bool) -> None:
        """After an exchange of `sums` (n, size or more); without `passed` no pass has filled `squares` yet."""
        if not passed and self.squares.size:
            total = sums[0, :size].astype(np.float64)
            self.squares.fill(0.0)
            self.squares[0] = np.dot(total, total)
        if self.gains:
            self.meter.follow(self.k, rate, sums, size, self.squares)
        if self._averaging.outer != "mean":
            self.rate = rate
        if self._norms:
            self.norm = math.sqrt(sum(self.squares.tolist())) / self.k

    def of_formulas(self, rate: float) -> dict[str, Any]:
        """The numbers of the rules' formulas that are made of these."""
        meter = self.meter
        return {"extra": meter.common, "whole": meter.whole, "gain": meter.gain, "norm": self.norm, "rate": rate}

    def load(self, gain: float, averages: Averages, rate: float, norm: float) -> None:
        """After a resume: the meter's state, and the other numbers."""
        self.rate = rate
        self.norm = norm
        self._load(self.k, gain, averages)
