"""The range test of learning rates (Smith, WACV 2017, arXiv:1506.01186): one learner, at rates that rise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from mpibow.comm import Communicator
from mpibow.comm.launch import say
from mpibow.errors import ConfigError, install
from mpibow.figure import save
from mpibow.job import Job
from mpibow.job.job import Callback
from mpibow.optim.plateau import Smooth
from mpibow.optim.schedules import Warmup
from mpibow.run.callbacks import STOP, Event, Iteration

from .trial import Run, tried

LOWEST = 1e-6
HIGHEST = 10.0
ITERATIONS = 200
KEPT = 0.9  # of the smoothed loss, by an iteration
SKIPPED = 10  # first iterations, whose smoothed losses are too noisy
ROWS, WIDTH = 24, 40  # of the table


@dataclass(frozen=True)
class Rising(Smooth):
    """From `first` to `factor` times this within `epochs`, exponentially."""

    factor: float
    epochs: float
    first: float = 1.0

    def rate(self, epoch: float) -> float:
        return float(self.first * self.factor ** (epoch / self.epochs))


@dataclass(frozen=True, repr=False)
class RateTest:
    """The result of a range test; printed, it is a table.

    rates, losses: of each iteration. smoothed: averages of about twenty losses around it.
    steepest: the rate where the smoothed loss falls fastest; None where it does not fall.
    least: the rate where it is least; None where it does not fall.
    diverged: the rate from which on the loss rises again or is not finite; None where it does not.
    """

    optimiser: str
    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    steepest: float | None
    least: float | None
    diverged: float | None

    @property
    def suggestion(self) -> float | None:
        """A rate to begin with: a tenth of that where the loss was least, if it rises again; else the steepest."""
        if self.least is None or self.diverged is None:
            return self.steepest
        return self.least / 10

    def plot(self, file: str | Path) -> None:
        """Draws loss over rate: .png, .svg or .pdf. Raises MpibowError where matplotlib is not installed."""
        from .chart import draw

        save(draw(self), Path(file))

    def __str__(self) -> str:
        shown = [value for value in self.smoothed if math.isfinite(value)]
        low, high = (min(shown), min(max(shown), shown[0] * 2)) if shown else (0.0, 1.0)
        lines = [f"{'lr':>10}  {'loss':>10}"]
        marks = {"steepest": self.steepest, "least": self.least, "diverged": self.diverged}
        evenly = {round(n) for n in np.linspace(0, len(self.rates) - 1, min(ROWS, len(self.rates)))}
        for n in sorted(evenly | {n for n, rate in enumerate(self.rates) if rate in marks.values()}):
            part = min(max((self.smoothed[n] - low) / ((high - low) or 1.0), 0.0), 1.0) if shown else 0.0
            bar = "#" * round(WIDTH * part) if math.isfinite(self.smoothed[n]) else "not finite"
            told = [mark for mark, rate in marks.items() if rate == self.rates[n]]
            lines.append(
                f"{self.rates[n]:>10.3g}  {self.smoothed[n]:>10.4g}  {bar}{'  <- ' + ', '.join(told) if told else ''}"
            )
        return "\n".join([*lines, self.verdict])

    __repr__ = __str__

    @property
    def verdict(self) -> str:
        """The suggestion as one line."""
        if self.suggestion is None:
            ends = f"{self.rates[0]:.3g} to {self.rates[-1]:.3g}"
            return f"no suggestion: the loss fell at no rate from {ends}; check the net with fit(check=True)"
        first = f"suggestion for {self.optimiser}: update.lr={self.suggestion:.1g}, "
        if self.diverged is None:
            return f"{first}where the loss falls fastest; up to {self.rates[-1]:.2g} it does not diverge"
        return (
            f"{first}a tenth of {self.least:.2g}, where the loss is least; "
            f"it falls fastest at {self.steepest:.2g} and diverges at {self.diverged:.2g}"
        )


def range_test(
    job: Job, run: Run, *, lowest: float = LOWEST, highest: float = HIGHEST, iterations: int = ITERATIONS
) -> RateTest:
    """Trains `job` with one learner from its initial weights while the rate grows from `lowest` to `highest`.

    It ends where the loss diverges. The run that the job is for is not touched. Raises ConfigError.
    """
    if not 0 < lowest < highest < math.inf:
        raise ConfigError(f"rates: must be two numbers above 0 that rise, got {lowest:g} to {highest:g}")
    if iterations < 2 * SKIPPED:
        raise ConfigError(f"iterations: must be at least {2 * SKIPPED}, got {iterations}")
    config = job.config
    span = (iterations - 1) * config.batch_size / job.train.count
    rising = Rising(highest / lowest, span, lowest / config.update.lr)  # a fallback's and a group's rates rise as well
    update = replace(config.update, schedule=rising, warmup=Warmup())  # type: ignore[arg-type]
    found = tried(job, run, iterations=iterations, update=update, callbacks=[_until_diverged()])
    losses = [math.nan if loss is None else loss for loss in found.losses]
    if found.last is None and (not losses or math.isfinite(losses[-1])):  # the iteration that failed has no entry
        losses.append(math.nan)
    rates = [lowest * (highest / lowest) ** (n / (iterations - 1)) for n in range(len(losses))]
    return judged(config.update.name, rates, losses)


def judged(optimiser: str, rates: Sequence[float], losses: Sequence[float]) -> RateTest:
    """The result for rates (n,) and losses (n,)."""
    late = smoothed(losses)
    end = diverged_at(late)
    around = smoothed(smoothed(losses[:end])[::-1])[::-1]  # both ways, so that it does not lag behind the rate
    least = least_at(around)
    steepest = None if least is None else steepest_at(rates, around[: least + 1])
    return RateTest(
        optimiser,
        tuple(rates),
        tuple(losses),
        (*around, *late[len(around) :]),
        None if steepest is None else rates[steepest],
        None if steepest is None or least is None else rates[least],
        None if end is None else rates[end],
    )


def smoothed(losses: Sequence[float]) -> list[float]:
    """Exponential moving averages without bias towards 0; not finite from the first loss on that is not."""
    mean = share = 0.0
    found = []
    for loss in losses:
        mean = KEPT * mean + (1 - KEPT) * loss
        share = KEPT * share + 1 - KEPT
        found.append(mean / share)
    return found


def diverged_at(smooth: Sequence[float]) -> int | None:
    """The first loss that is not finite, or above the least by more than half of the fall before it.

    None where there is none. A loss that has not fallen diverges at twice the first.
    """
    if not smooth:
        return None
    start = smooth[min(SKIPPED, len(smooth) - 1)]
    least = start
    for n, loss in enumerate(smooth):
        if not math.isfinite(loss):
            return n
        if n > SKIPPED and loss > (least + 0.5 * (start - least) if least < 0.75 * start else start + abs(start)):
            return n
        if n >= SKIPPED:
            least = min(least, loss)
    return None


def least_at(smooth: Sequence[float]) -> int | None:
    """The index of the least smoothed loss; None where that is its beginning."""
    if len(smooth) <= SKIPPED:
        return None
    n = SKIPPED + int(np.argmin(smooth[SKIPPED:]))
    return n if smooth[n] < smooth[SKIPPED] else None


def steepest_at(rates: Sequence[float], smooth: Sequence[float]) -> int | None:
    """The index where the smoothed loss falls fastest over the logarithm of the rate; None where it does not fall."""
    if len(smooth) < 2:
        return None
    slopes = np.gradient(smooth, np.log(rates[: len(smooth)]))
    n = int(np.argmin(slopes[SKIPPED:])) + SKIPPED
    return n if slopes[n] < 0 else None


def _until_diverged() -> Callback:
    """A callback that ends a range test some iterations after the loss has diverged."""
    losses = []

    def find_lr(event: Event) -> object:
        if isinstance(event, Iteration) and event.loss is not None:
            losses.append(event.loss)
        return STOP if diverged_at(smoothed(losses)) is not None else None

    return find_lr


PLOT = "lr.svg"


def find_rate(job: Job, run: Run, comm: Communicator, ends: str, iterations: int) -> int:
    """Prints the table, writes PLOT where matplotlib is installed, and returns the exit code. Raises ConfigError."""
    if comm.size > 1:
        raise ConfigError(f"--find-lr: runs on one rank, got {comm.size}; start it without mpirun")
    first, _, last = ends.partition(":")
    try:
        lowest = float(first)
        highest = float(last)
    except ValueError:
        raise ConfigError(f"--find-lr-rates: must be two numbers, as 1e-6:10, got '{ends}'") from None
    found = range_test(job, run, lowest=lowest, highest=highest, iterations=iterations)
    print(found)
    if find_spec("matplotlib") is None:
        say(f"no {PLOT}: matplotlib is not installed: {install('plot')}")
        return 0
    found.plot(PLOT)
    print(PLOT)
    return 0
