"""Losses and gradients that are not finite: the learner is reset with a note, or the run ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpibow.errors import DivergedError
from mpibow.learn.learners import Result

if TYPE_CHECKING:
    from .session import Session

HOPELESS = 20  # iterations in a row in which every learner of a rank is reset


class Resets:
    """The resets of one rank. `due`: one has moved the mean of the replicas, so the ranks must agree on it again."""

    def __init__(self, session: Session):
        self._session = session
        self._engine = session.engine
        self.due = session.start.due[1]
        self._stops = session.config.on_nan == "stop"
        self._rate = session.config.update.lr
        self._barren = 0
        self._untold = list[str]()
        self.left_out = 0  # learners of the last known iteration, whose losses and hits are not entered
        self.losses = list[float]()  # of the rank's learners in the last known iteration, summed over a batch

    def check(self, found: Sequence[Result | None], rate: float) -> list[Result]:
        """The finite results. A learner whose loss or gradient is not is reset, or ends the run (`on_nan`).

        On a GPU they are from the iteration before; a learner not finite made no step. No exchange may be under way.
        """
        session = self._session
        book = self._session.synchroniser.book
        late = [Result(*each) for each in book.late()]
        results = late or [each for each in found if each is not None]
        now = session.iteration - bool(late)
        finite = [result for result in results if result.finite]
        self.left_out = len(results) - len(finite)
        if not results:
            return []
        self.losses = [result.loss for result in results]
        # A large scale of the loss may be the cause, and is halved: then a learner makes no step instead.
        rescaled = self.left_out > 0 and book.scale_is_large()
        for i, result in enumerate(results):
            if rescaled and not result.finite and not self._engine.alike:
                session.replicas.stood_still(i)
            if result.finite or rescaled:
                continue
            what = self._what(now, i, result.loss)
            if self._stops:
                raise DivergedError(f"{what}; lower update.lr (now {rate:g}), or set on_nan=reset; {self._kept()}")
            session.synchroniser.settle()
            self.check_centre()
            self._untold.append(f"{what}; it {self._engine.reset(i, result.spoilt)}")
            self.due = True
        self._barren = 0 if finite or rescaled else self._barren + 1
        if self._barren == HOPELESS:
            raise DivergedError(
                f"iteration {now}: no learner of rank {session.rank} had a finite loss "
                f"in {HOPELESS} iterations; lower update.lr (now {rate:g}); {self._kept()}"
            )
        return [] if late else finite  # late ones were entered where they were made

    def end(self) -> None:
        """Checks at the run's end: a GPU's last results have come only now; a resumed run resets their learners."""
        session = self._session
        if self._stops:
            self.check([], self._rate)
        elif not session.synchroniser.book.scale_is_large():
            self._untold += [
                f"{self._what(session.iteration - 1, i, loss)}; its last step was left out"
                for i, loss in session.synchroniser.book.spoilt().items()
            ]
        self.check_centre()

    def check_centre(self) -> None:
        """Raises DivergedError if the centre is not finite: it is of no use to reset a learner, or for a checkpoint."""
        if not np.isfinite(self._session.state.flat.host(self._engine.centre)).all():
            raise DivergedError(
                f"iteration {self._session.iteration}: the centre is not finite; "
                f"lower update.lr (now {self._rate:g}); {self._kept()}"
            )

    def tell(self) -> list[str]:
        """The messages that the other ranks have not received yet; each is returned once."""
        untold = self._untold
        self._untold = []
        return untold

    def _what(self, iteration: int, i: int, loss: float) -> str:
        session = self._session
        where = f"iteration {iteration}: learner {sum(session.counts[: session.rank]) + i} (rank {session.rank})"
        return f"{where}: loss or gradient is not finite (loss {loss:g})"

    def _kept(self) -> str:
        saved = self._session.saver.last
        return f"the last checkpoint is {saved}" if saved else "there is no checkpoint yet"
