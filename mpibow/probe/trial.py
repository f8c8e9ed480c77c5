"""A trial: a job trained for a few iterations by one learner, in a temporary folder; no run changes."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from mpibow.comm import Communicator, Single
from mpibow.config.course import Checkpoint, Stop
from mpibow.config.schema import LogSettings
from mpibow.data import Samples
from mpibow.errors import DivergedError
from mpibow.job import Job
from mpibow.job.job import Callback
from mpibow.optim import Update
from mpibow.run.results import Trained
from mpibow.run.signals import interruption
from mpibow.sync import Family

Run = Callable[[Job, Communicator], Trained]  # mpibow.train.train


@dataclass(frozen=True)
class Tried:
    """The mean loss of each iteration's batch, before its step; `last` is the end's net, if any.

    A loss that is not finite is None, and ends the trial.
    """

    losses: tuple[float | None, ...]
    hits: tuple[float | None, ...]  # the accuracies of training
    last: Trained | None


def tried(
    job: Job,
    run: Run,
    *,
    iterations: int,
    update: Update,
    train: Samples | None = None,
    batch_size: int | None = None,
    callbacks: Sequence[Callback] = (),
) -> Tried:
    """Trains `job` for so many iterations, from its initial weights. Raises `interruption` at a signal."""
    with TemporaryDirectory(prefix="mpibow-") as folder:
        config = replace(
            job.config,
            name="trial",
            out=folder,
            learners=1,
            rule=Family(),
            update=update,
            ema=None,
            overlap=False,
            batch_size=batch_size or job.config.batch_size,
            stop=Stop(epochs=None, iterations=iterations),
            checkpoint=Checkpoint(every=None, best=False),
            log=LogSettings(every=1),
            on_nan="stop",
        )
        alone = replace(
            job,
            title="trial",
            config=config,
            train=train or job.train,
            test=None,
            validation=None,
            held_out=None,
            callbacks=tuple(callbacks),
            files={},
            quiet=True,
        )
        last = None
        with suppress(DivergedError):
            last = run(alone, Single())
        if last is not None and last.signal:
            raise interruption(last.signal, "interrupted: nothing of the trial is kept")
        lines = (Path(folder) / "trial" / "metrics.jsonl").read_text("utf-8").splitlines()
    trained = [event for event in map(json.loads, lines) if event["event"] == "train"]
    losses = tuple(event["losses"][0] if event["losses"] else None for event in trained)
    return Tried(losses, tuple(event["accuracy"] for event in trained), last)
