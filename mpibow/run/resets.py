"""Losses and gradients that are not finite: the learner is reset with a note, or the run ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from mpibow.errors import DivergedError
from mpibow.kernels.passes import FlatKernels
from mpibow.learn.learner import Result
from mpibow.sync.rule import Rule
from mpibow.sync.synchroniser import Synchroniser

HOPELESS = 20  # iterations in a row in which every learner of a rank is reset


class Resets:
    """The resets of one rank. `due`: one has moved the mean of the replicas, so the ranks must agree on it again.

    Messages name the `iteration`, the rank's learners from number `first` on, and the last checkpoint, `saved`.
    """

    def __init__(
        self, rank: int, on_nan: str, rate: float, synchroniser: Synchroniser, rule: Rule, flat: FlatKernels,
        due: bool, stood: Callable[[int], None] = lambda i: None,
    ) -> None:  # fmt: skip
        """`stood` is called with a learner that has made no step as the loss's scale was too large, and is halved."""
        self._stood = stood
        self._rank, self._stops, self._rate, self.due = rank, on_nan == "stop", rate, due
        self._synchroniser, self._rule, self._flat = synchroniser, rule, flat
        self._rescaled = synchroniser.book.scale_is_large
        self._barren, self._untold = 0, list[str]()
        self.losses = list[float]()  # of the rank's learners in the last known iteration, summed over a batch

    def check(
        self, found: Sequence[Result | None], rate: float, iteration: int, first: int, saved: Path | None
    ) -> list[Result]:
        """The finite results. A learner whose loss or gradient is not is reset, or ends the run (`on_nan`).

        On a GPU they are from the iteration before; a learner not finite made no step. No exchange may be under way.
        """
        late = [Result(loss, hits, finite, 0.0) for loss, hits, finite in self._synchroniser.book.late()]
        results, now = late or [each for each in found if each is not None], iteration - bool(late)
        if not results:
            return []
        self.losses = [result.loss for result in results]
        rescaled = not all(result.finite for result in results) and self._rescaled()
        for i, result in enumerate(results):
            if rescaled and not result.finite and not self._rule.alike:
                self._stood(i)
            if result.finite or rescaled:
                continue
            what = self._what(now, first + i, result.loss)
            if self._stops:
                raise DivergedError(f"{what}; lower update.lr (now {rate:g}), or set on_nan=reset; {_kept(saved)}")
            self._synchroniser.settle()
            self.check_centre(iteration, saved)
            self._untold.append(f"{what}; it {self._rule.reset(i)}")
            self.due = True
        finite = [result for result in results if result.finite]
        self._barren = 0 if finite or rescaled else self._barren + 1
        if self._barren == HOPELESS:
            raise DivergedError(
                f"iteration {now}: no learner of rank {self._rank} had a finite loss "
                f"in {HOPELESS} iterations; lower update.lr (now {rate:g}); {_kept(saved)}"
            )
        return [] if late else finite  # late ones were entered where they were made

    def end(self, iteration: int, first: int, saved: Path | None) -> None:
        """Checks at the run's end: a GPU's last results have come only now; a resumed run resets their learners."""
        if self._stops:
            self.check([], self._rate, iteration, first, saved)
        elif not self._rescaled():
            self._untold += [
                f"{self._what(iteration - 1, first + i, loss)}; its last step was left out"
                for i, loss in self._synchroniser.book.spoilt().items()
            ]
        self.check_centre(iteration, saved)

    def check_centre(self, iteration: int, saved: Path | None) -> None:
        """Raises DivergedError if the centre is not finite: it is of no use to reset a learner, or for a checkpoint."""
        if not np.isfinite(self._flat.host(self._rule.centre)).all():
            raise DivergedError(
                f"iteration {iteration}: the centre is not finite; lower update.lr (now {self._rate:g}); {_kept(saved)}"
            )

    def tell(self) -> list[str]:
        """The messages that the other ranks have not received yet; each is returned once."""
        untold, self._untold = self._untold, []
        return untold

    def _what(self, iteration: int, learner: int, loss: float) -> str:
        where = f"iteration {iteration}: learner {learner} (rank {self._rank})"
        return f"{where}: loss or gradient is not finite (loss {loss:g})"


def _kept(saved: Path | None) -> str:
    return f"the last checkpoint is {saved}" if saved else "there is no checkpoint yet"
