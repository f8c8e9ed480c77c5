"""The judge: evaluates a run's centre, on the data that choose while it trains, and on test data at its end."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mpibow.data import NamedSamples
from mpibow.errors import CheckpointError
from mpibow.graph import Array
from mpibow.run import checkpoint

from .evaluate import Evaluation, Evaluator, is_chance
from .state import read_centre

if TYPE_CHECKING:
    from .session import Session

GUESSES = 3  # evaluations, after which a line says so


class Judge:
    """Every rank has one and calls it alike, when the centre is settled. It only reads."""

    def __init__(self, session: "Session", evaluator: Evaluator):
        """This rank evaluates on as many threads as it has learners."""
        self._session = session
        self._evaluator = evaluator
        self._reporter = session.reporter
        assert session.job.chooser is not None
        self._chooser = session.job.chooser

    def evaluate(self) -> bool:
        """Evaluates on the data that choose; True if the centre is the best so far. Its average chooses nothing."""
        statistics = self._session.statistics()
        found = self._look(self._chooser, self._session.state.centre, statistics)
        best = self._reporter.evaluated(self._chooser, found)
        self._guesses(found)
        self._averaged(self._chooser, statistics)
        return best

    def _averaged(self, data: str, statistics: Array) -> None:
        if (average := self._session.average.weights) is not None:
            self._reporter.averaged(data, self._look(data, average, statistics))

    def _guesses(self, found: Evaluation) -> None:
        """Warns once accuracies have been those of chance GUESSES times in a row."""
        ledger = self._session.ledger
        train = self._session.job.train
        guesses = not isinstance(train, NamedSamples) and is_chance(found, train.classes)
        ledger.guessed = ledger.guessed + 1 if guesses else 0
        if ledger.guessed == GUESSES:
            self._reporter.note(
                f"warning: the accuracy is that of chance, {found.accuracy:.2%}, in {GUESSES} evaluations: lower "
                f"update.lr (now {self._session.config.update.lr:g}; try train --find-lr), and check labels and "
                "data.normalise"
            )

    def test(self) -> None:
        """Evaluates the last centre, its average and the best checkpoint's on test data that have chosen nothing."""
        session = self._session
        statistics = self._session.statistics()
        if session.job.test is None or self._chooser == "test":
            return
        last = self._look("test", session.state.centre, statistics)
        self._reporter.tested(last)
        self._averaged("test", statistics)
        kept = session.config.checkpoint
        best = session.ledger.best_at
        if kept.interval is None or not kept.best or best is None:
            return
        path = self._reporter.folder / "checkpoints" / checkpoint.name_of(best)
        if best == session.iteration:
            self._reporter.tested(last, path)
        elif (stored := self._read(path)) is not None:
            self._reporter.tested(self._look("test", *stored), path)

    def _look(self, name: str, centre: Array, statistics: Array) -> Evaluation:
        session = self._session
        with session.trace.span("evaluation", "evaluate"):
            found = self._evaluator(
                session.loading.intact(name),
                centre,
                statistics,
                partial(session.scheduler.run, name="evaluate"),
                session.synchroniser.call,
                workers=session.scheduler.workers(session.counts[session.rank]),
            )
        self._reporter.pause()
        return found

    def _read(self, path: Path) -> tuple[Array, Array] | None:
        """The centre of a checkpoint, and its statistics; None on all ranks if any rank can't read it."""
        stored = None
        problem = ""
        try:
            stored = read_centre(path, self._evaluator.plan)
        except CheckpointError as error:
            problem = str(error)
        if problem := next(filter(None, self._session.synchroniser.call(lambda comm: comm.share(problem))), ""):
            self._reporter.note(f"warning: {problem}; the best checkpoint is not tested")
            return None
        return stored
