"""What is not finite, by hand: who is reset, what is said of it, and when a run ends."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mpibow.comm import Single
from mpibow.errors import DivergedError
from mpibow.kernels.numpy import flat
from mpibow.learn.learners import Result
from mpibow.learn.replica import Replicas
from mpibow.run.resets import HOPELESS, Resets
from mpibow.sync import Engine, Family
from mpibow.sync.outbox import Book, Late
from mpibow.sync.synchroniser import Synchroniser, Tally
from tests.refusals import refuses
from tests.stepping import ball_step

GOOD, BAD = Result(1.0, 2.0, True), Result(np.nan, 0.0, False)
SIZE = 4
WHAT = "iteration 7: learner 5 (rank 1): loss or gradient is not finite (loss nan)"


class LateBook(Book):
    """A book whose results come an iteration late, as a GPU's do."""

    def __init__(self, *results: Late) -> None:
        super().__init__()
        self._late = list(results)

    def late(self) -> list[Late]:
        found, self._late = self._late, []
        return found

    def spoilt(self) -> dict[int, float]:
        return {i: loss for i, (loss, _, finite) in enumerate(self._late) if not finite}


class Rank:
    """Three learners on rank 1, whose rows are 1, 2 and 3; momenta 9, statistics 8; the centre is 2."""

    def __init__(
        self, on_nan: str = "reset", settings: Family = Family(), book = None,  # noqa: B008
        scale_is_large: Callable[[], bool] = lambda: False, iteration: int = 7,
    ) -> None:  # fmt: skip
        self.replicas = Replicas(3, SIZE, "float64", np.array([0.5]), states=("momenta",))
        self.replicas.resize(3)
        self.engine = Engine(settings, flat, self.replicas, np.full(SIZE, 2.0))
        self.engine.begin(3)
        self.synchroniser = Synchroniser(
            Single(),
            self.engine,
            self.replicas,
            flat,
            lambda tasks: [task() for task in tasks],
            overlap=False,
            book=book,
        )
        self.synchroniser.book.scale_is_large = scale_is_large  # type: ignore[method-assign]
        self.replicas.weights[...] = [[1.0], [2.0], [3.0]]
        self.replicas.states["momenta"][...], self.replicas.gradients[...], self.replicas.statistics[...] = 9, np.nan, 8
        settings = SimpleNamespace(on_nan=on_nan, update=SimpleNamespace(lr=0.1))
        self.session = SimpleNamespace(
            rank=1, counts=(4, 3), iteration=iteration, config=settings, engine=self.engine, replicas=self.replicas,
            state=SimpleNamespace(flat=flat), synchroniser=self.synchroniser,
            start=SimpleNamespace(due=(False, False, False)), saver=SimpleNamespace(last=None),
        )  # fmt: skip
        self.resets = Resets(self.session)

    def rows(self) -> list[list[float]]:
        """Of every learner the first weight, momentum, gradient and statistic; nan is 7."""
        replicas = self.replicas
        blocks = (replicas.weights, replicas.states["momenta"], replicas.gradients, replicas.statistics)
        return np.nan_to_num(np.stack([block[:, 0] for block in blocks], axis=1), nan=7).tolist()


UNTOUCHED = [[1, 9, 7, 8], [2, 9, 7, 8], [3, 9, 7, 8]]


def test_finite_results_are_given_back():
    rank = Rank()
    assert rank.resets.check([GOOD, GOOD], 0.1) == [GOOD, GOOD]
    assert rank.resets.check([], 0.1) == []
    assert (rank.rows(), rank.resets.tell(), rank.resets.due) == (UNTOUCHED, [], False)


def test_a_learner_starts_again_from_the_centre():
    rank = Rank()
    assert rank.resets.check([GOOD, BAD, GOOD], 0.1) == [GOOD, GOOD]
    assert rank.rows() == [UNTOUCHED[0], [2, 0, 0, 0.5], UNTOUCHED[2]]
    assert rank.resets.due
    assert rank.resets.tell() == [f"{WHAT}; it starts again from the centre"]
    assert rank.resets.tell() == []
    assert rank.resets.due  # until the ranks have agreed


def test_the_centre_is_that_of_after_the_last_update():
    """Which the rule makes only when it is asked to."""
    rank, local = Rank(), ball_step(0.1, 0.0, False, 0.0, 0)
    rank.replicas.gradients[...] = [[10.0], [20.0], [30.0]]
    rank.synchroniser.update(local, 1)
    rank.synchroniser.exchange(Tally(), local, 1)
    rank.synchroniser.receive()
    mean = rank.replicas.weights.mean(axis=0)
    rank.resets.check([BAD, GOOD, GOOD], 0.1)
    np.testing.assert_allclose(rank.replicas.weights[0], mean, rtol=1e-12)
    assert mean[0] < 0.5


def test_where_all_replicas_are_alike_a_learner_is_left_out():
    rank = Rank(settings=Family(name="ssgd"))
    rank.resets.check([GOOD, BAD, GOOD], 0.1)
    assert rank.rows() == [UNTOUCHED[0], [2, 9, 0, 0.5], UNTOUCHED[2]]
    assert rank.resets.tell() == [f"{WHAT}; it is left out"]


@pytest.mark.parametrize(
    ("saved", "end"), [(None, "there is no checkpoint yet"), (Path("a/b"), "the last checkpoint is a/b")]
)
def test_stop(saved: Path | None, end):
    rank = Rank("stop")
    rank.session.saver.last = saved
    with refuses(f"{WHAT}; lower update.lr (now 0.05), or set on_nan=reset; {end}", DivergedError):
        rank.resets.check([GOOD, BAD, BAD], 0.05)
    assert (rank.rows(), rank.resets.tell()) == (UNTOUCHED, [])


def test_late_results_are_of_the_iteration_before_and_entered_already():
    rank = Rank(book=LateBook((1.0, 2.0, True), (np.inf, 0.0, False)), iteration=8)
    assert rank.resets.check([None, None], 0.1) == []
    assert rank.resets.tell() == [f"{WHAT.replace('nan', 'inf')}; it starts again from the centre"]


def test_late_results_at_the_end():
    """They are told of; their learners are reset by who continues the run. Or they end it."""
    late = (1.0, 2.0, True), (np.nan, 0.0, False)
    rank = Rank(book=LateBook(*late), iteration=8)
    rank.resets.end()
    assert (rank.rows(), rank.resets.due) == (UNTOUCHED, False)
    assert rank.resets.tell() == [f"{WHAT}; its last step was left out"]
    with refuses(f"{WHAT}; lower update.lr (now 0.1), or set on_nan=reset; there is no checkpoint yet", DivergedError):
        Rank("stop", book=LateBook(*late), iteration=8).resets.end()


def test_a_rank_without_a_finite_loss_for_long():
    rank = Rank()
    for _ in range(HOPELESS - 1):
        assert rank.resets.check([BAD, BAD], 0.05) == []
    assert rank.resets.check([BAD, GOOD], 0.05) == [GOOD]  # counts anew
    for _ in range(HOPELESS - 1):
        rank.resets.check([BAD], 0.05)
        rank.resets.check([None], 0.05)  # nothing is known of it yet
    with refuses(
        "iteration 7: no learner of rank 1 had a finite loss in 20 iterations; lower update.lr (now 0.05); "
        "there is no checkpoint yet",
        DivergedError,
    ):
        rank.resets.check([BAD], 0.05)


def test_a_scale_that_is_too_large_resets_nobody():
    """It is halved; no number of iterations is hopeless meanwhile, and nothing is told at the end."""
    large = [True]
    rank = Rank("stop", scale_is_large=lambda: large[0])
    for _ in range(2 * HOPELESS):
        assert rank.resets.check([BAD, BAD], 0.1) == []
    assert rank.resets.check([BAD, GOOD], 0.1) == [GOOD]
    assert (rank.rows(), rank.resets.due) == (UNTOUCHED, False)
    ending = Rank(book=LateBook((np.nan, 0.0, False)), scale_is_large=lambda: large[0])
    ending.resets.end()
    assert ending.resets.tell() == []
    large[0] = False
    with pytest.raises(DivergedError):
        rank.resets.check([BAD, GOOD], 0.1)


def test_a_centre_that_is_not_finite_heals_no_learner():
    rank = Rank(settings=Family(name="ssgd"))
    rank.resets.check_centre()
    rank.engine.centre[2] = np.inf
    for wrong in (lambda: rank.resets.check([BAD], 0.05), lambda: rank.resets.end()):
        with refuses(
            "iteration 7: the centre is not finite; lower update.lr (now 0.1); there is no checkpoint yet",
            DivergedError,
        ):
            wrong()
    assert (rank.rows(), rank.resets.tell()) == (UNTOUCHED, [])
