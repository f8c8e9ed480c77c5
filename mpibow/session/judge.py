"""The judge: evaluates a run's centre, on the data that choose while it trains, and on test data at its end."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from mpibow.data.dataset import NamedSamples
from mpibow.data.loading import Loading
from mpibow.errors import CheckpointError
from mpibow.graph.graph import Array
from mpibow.graph.plan import Plan
from mpibow.job import Job
from mpibow.learn.scheduler import Scheduler
from mpibow.models.settings import ignored
from mpibow.run import checkpoint
from mpibow.run.evaluate import Bind, Evaluation, Evaluator, is_chance
from mpibow.run.state import read_centre
from mpibow.session.reporter import Reporter
from mpibow.session.where import Where
from mpibow.sync.synchroniser import Synchroniser
from mpibow.trace import Trace

GUESSES = 3  # evaluations, after which a line says so


def sets_told(job: Job) -> list[str]:
    """The log's line on the data sets, as "train: 54,000 samples, validation: 6,000 split off, test: 10,000"."""
    sets = [f"train: {job.train.count:,} samples"]
    for name, data in job.evaluated.items():
        sets.append(f"{name}: {data.count:,}" + " split off" * (name == "validation" and job.held_out is not None))
    warned = (
        "no validation data: test data decide when to stop, and which checkpoint is the best; set data.validation=0.1"
    )
    return [", ".join(sets)] + [warned] * (job.chooser == "test")


class Judge:
    """Every rank has one and calls it alike. It only reads. `plan` is an evaluation plan."""

    def __init__(
        self, job: Job, plan: Plan, loading: Loading, scheduler: Scheduler, synchroniser: Synchroniser,
        reporter: Reporter, trace: Trace, rank: int, bind: Bind,
    ) -> None:  # fmt: skip
        """This rank evaluates on as many threads as it has learners; `bind` is the Evaluator's."""
        assert job.chooser is not None
        self._rank = rank
        self._job, self._loading, self._scheduler = job, loading, scheduler
        self._synchroniser, self._reporter, self._trace = synchroniser, reporter, trace
        self._chooser, self._plan = job.chooser, plan
        self._evaluator = Evaluator(plan, ignored(job.config.loss), bind, job.measures)

    def evaluate(self, where: Where, centre: Array, statistics: Array, average: Array | None) -> bool:
        """Evaluates on the data that choose; True if the centre is the best so far. Its `average` chooses nothing."""
        found = self._look(where, self._chooser, centre, statistics)
        best = self._reporter.evaluated(where, self._chooser, found)
        self._guesses(found)
        if average is not None:
            self._reporter.averaged(where, self._chooser, self._look(where, self._chooser, average, statistics))
        return best

    def _guesses(self, found: Evaluation) -> None:
        """Warns once accuracies have been those of chance GUESSES times in a row."""
        ledger, train, lr = self._reporter.ledger, self._job.train, self._job.config.update.lr
        guesses = not isinstance(train, NamedSamples) and is_chance(found, train.classes)
        ledger.guessed = ledger.guessed + 1 if guesses else 0
        if ledger.guessed == GUESSES:
            self._reporter.note(
                f"warning: the accuracy is that of chance, {found.accuracy:.2%}, in {GUESSES} evaluations: lower "
                f"update.lr (now {lr:g}; try train --find-lr), and check labels and data.normalise"
            )

    def test(self, where: Where, centre: Array, statistics: Array, average: Array | None) -> None:
        """Evaluates the last centre, its average and the best checkpoint's on test data that have chosen nothing."""
        if self._job.test is None or self._chooser == "test":
            return
        self._reporter.tested(where, self._look(where, "test", centre, statistics))
        if average is not None:
            self._reporter.averaged(where, "test", self._look(where, "test", average, statistics))
        kept, best = self._job.config.checkpoint, self._reporter.ledger.best_at
        if kept.interval is None or not kept.best or best in (None, where.iteration):
            return
        path = self._reporter.folder / "checkpoints" / checkpoint.name_of(best)
        stored = self._read(path)
        if stored is not None:
            self._reporter.tested(where, self._look(where, "test", *stored), path)

    def _look(self, where: Where, name: str, centre: Array, statistics: Array) -> Evaluation:
        with self._trace.span("evaluation", "evaluate"):
            run, workers = self._scheduler.run, self._scheduler.workers(where.learners[self._rank])
            found = self._evaluator(
                self._loading.intact(name), centre, statistics, partial(run, name="evaluate"), self._synchroniser.call,
                workers=workers,
            )  # fmt: skip
        self._reporter.pause()
        return found

    def _read(self, path: Path) -> tuple[Array, Array] | None:
        """The centre of a checkpoint, and its statistics; None on all ranks if any rank can't read it."""
        stored, problem = None, ""
        try:
            stored = read_centre(path, self._plan)
        except CheckpointError as error:
            problem = str(error)
        if problem := next(filter(None, self._synchroniser.call(lambda comm: comm.share(problem))), ""):
            self._reporter.note(f"warning: {problem}; the best checkpoint is not tested")
            return None
        return stored
