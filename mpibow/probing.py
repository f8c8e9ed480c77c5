"""Short trials before `fit`: `mpibow.find_lr` and `mpibow.check`."""

from typing import Any

from .fitting import job_of_settings
from .job.sources import Source
from .models.classifier import Net
from .models.objective import LossNet, OutputNet
from .probe.check import Checked, check as check_job
from .probe.rates import HIGHEST, ITERATIONS, LOWEST, RateTest, range_test


def find_lr(
    net: Net | LossNet | OutputNet,
    train: Source,
    *,
    lowest: float = LOWEST,
    highest: float = HIGHEST,
    iterations: int = ITERATIONS,
    **settings: Any,
) -> RateTest:
    """Trains `net` for some iterations at rates from `lowest` to `highest`, and suggests one. Nothing is kept.

    One learner trains from the initial weights, with the optimiser and batch size of `settings` (as in `mpibow.fit`);
    learners, schedule and limits are ignored. The result prints as a table; its `suggestion` is a number, and
    `plot(FILE)` draws the losses (Smith, arXiv:1506.01186).
    """
    from .train import train as run  # late, as in fit

    return range_test(job_of_settings(net, train, settings), run, lowest=lowest, highest=highest, iterations=iterations)


def check(net: Net | LossNet | OutputNet, train: Source, **settings: Any) -> Checked:
    """Whether `net` can learn `train` at all: prints nothing, returns the report; `fit(check=True)` begins with it.

    `settings` are those of `mpibow.fit`. Raises ConfigError where the net does not learn eight samples, DivergedError
    where a loss is not finite.
    """
    from .train import train as run

    return check_job(job_of_settings(net, train, {**settings, "augment": None}), run)
