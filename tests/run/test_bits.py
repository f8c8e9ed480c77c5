"""The same numbers however learners are spread over ranks, the same bits however a run goes on its way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpibow.session.session import Session
from tests.run import tiny

FOUR = {"learners": 4}
RULES = pytest.mark.parametrize("rule", tiny.RULES.values(), ids=tiny.RULES.keys())


def centres(work: tiny.Job, ranks: int) -> list[list[int]]:
    return [seen.centres for seen in tiny.replay(work, ranks)]


@RULES
def test_four_learners_give_the_same_centre_on_any_number_of_ranks(tmp_path: Path, rule: dict[str, Any]) -> None:
    one, two, four = (
        tiny.run(tiny.job(tmp_path / str(ranks), rule=rule, learners=4 // ranks), ranks).weights for ranks in (1, 2, 4)
    )
    assert tiny.distance(two, one) < 1e-10
    assert tiny.distance(four, one) < 1e-10


@pytest.mark.parametrize(
    ("rule", "apart"),
    [
        (tiny.RULES["auto"], 1e-10),
        (tiny.RULES["crossbow"], 1e-10),
        (tiny.RULES["ssgd"], 1e-10),
    ],
)
def test_batch_norm_does_not_depend_on_ranks(tmp_path: Path, rule: dict[str, Any], apart: float) -> None:
    """Its running statistics belong to the learners, the centre's are their mean."""
    one, two, uneven = (
        tiny.run(tiny.job(tmp_path / str(learners), net=tiny.normed, rule=rule, learners=learners), ranks)
        for learners, ranks in ((4, 1), (2, 2), ([3, 1], 2))
    )
    assert "batch_norm1.variance" in one.weights
    assert tiny.distance(two.weights, one.weights) < apart
    assert tiny.distance(uneven.weights, one.weights) < apart
    assert two.summary.test_loss == pytest.approx(one.summary.test_loss, rel=1e-9)


def test_unequal_ranks_give_the_same_centre(tmp_path: Path) -> None:
    one = tiny.run(tiny.job(tmp_path / "1", learners=4))
    two = tiny.run(tiny.job(tmp_path / "2", learners=[1, 3]), 2)
    assert tiny.distance(two.weights, one.weights) < 1e-10
    assert two.summary.learners == (1, 3)
    assert two.summary.accuracy == one.summary.accuracy
    assert two.summary.test_loss == pytest.approx(one.summary.test_loss, rel=1e-10)


def test_rules_do_differ(tmp_path: Path) -> None:
    found = [tiny.run(tiny.job(tmp_path / n, rule=rule, learners=3)).weights for n, rule in tiny.RULES.items()]
    assert not any(tiny.same_bits(a, b) for i, a in enumerate(found) for b in found[:i])


@RULES
def test_every_rank_holds_the_same_centre_after_every_iteration(tmp_path: Path, rule: dict[str, Any]) -> None:
    first, second = centres(tiny.job(tmp_path, rule=rule, learners=2, precision="float32"), 2)
    assert first == second
    assert len(set(first)) > 8  # and it moves, if only once a period, or where it is evaluated


@RULES
def test_overlap_changes_no_bit(tmp_path: Path, rule: dict[str, Any]) -> None:
    yes, no = (
        tiny.replay(
            tiny.job(tmp_path / str(overlap), rule=rule, learners=2, overlap=overlap, precision="float32"),
            2,
            settle=False,
        )
        for overlap in (True, False)
    )
    assert tiny.same_bits(yes[0].weights, no[0].weights)


@RULES
def test_two_runs_are_the_same_bits(tmp_path: Path, rule: dict[str, Any]) -> None:
    one, two = (
        tiny.run(tiny.job(tmp_path / name, net=tiny.normed, rule=rule, learners=2, precision="float32"), 2)
        for name in "ab"
    )
    assert tiny.same_bits(one.weights, two.weights)


def test_another_seed_is_another_run(tmp_path: Path) -> None:
    one, two = (tiny.run(tiny.job(tmp_path / str(seed), seed=seed)) for seed in (1, 2))
    assert not tiny.same_bits(one.weights, two.weights)


def test_dropout_does_not_depend_on_ranks(tmp_path: Path) -> None:
    one, two = (
        tiny.run(tiny.job(tmp_path / str(ranks), net=tiny.dropping, learners=4 // ranks), ranks).weights
        for ranks in (1, 2)
    )
    without = tiny.run(tiny.job(tmp_path / "without", learners=4)).weights
    assert tiny.distance(two, one) < 1e-10
    assert tiny.distance(without, one) > 1e-3


@pytest.mark.parametrize("rule", ["auto", "crossbow-3", "ssgd"])
def test_looking_changes_no_bit(tmp_path: Path, rule: str) -> None:
    """Evaluation, checkpoints and metrics only read."""

    def seen(name: str, **settings: Any) -> dict[str, Any]:
        work = tiny.job(tmp_path / name, rule=tiny.RULES[rule], learners=2, net=tiny.normed, **settings)
        return tiny.run(work, 2).weights

    quiet = seen("quiet", evaluate={"every": 1000}, log={"every": 1000})
    assert tiny.same_bits(quiet, seen("evaluated", evaluate={"every": 0.1}))
    assert tiny.same_bits(quiet, seen("saved", checkpoint={"every": "1 iteration"}))
    assert tiny.same_bits(quiet, seen("saved-less", checkpoint={"every": "7 iterations", "keep": 1, "best": False}))
    assert tiny.same_bits(quiet, seen("measured", log={"every": 1}))
    assert len(list((tmp_path / "saved-less/run/checkpoints").glob("iteration-*"))) == 1
    assert len(tiny.events(tmp_path / "saved/run", "checkpoint")) >= 40
    assert len(tiny.events(tmp_path / "evaluated/run", "evaluate")) > 35


def test_prefetch_changes_no_bit(tmp_path: Path) -> None:
    few, many = (tiny.run(tiny.job(tmp_path / str(n), prefetch=n, learners=2), 2).weights for n in (1, 9))
    assert tiny.same_bits(few, many)


def test_a_drop_of_the_rate_restarts_the_averaging(tmp_path: Path) -> None:
    drop = {"lr": 0.05, "momentum": 0.9, "schedule": {"name": "multistep", "epochs": [2], "factor": 0.5}}

    def seen(name: str, restart: Any) -> dict[str, Any]:
        rule = {"name": "crossbow", "restart": restart}
        return tiny.run(tiny.job(tmp_path / name, rule=rule, learners=2, update=drop), 2).weights

    auto, never, at = seen("auto", "auto"), seen("never", "never"), seen("at", [2.0])
    assert tiny.same_bits(auto, at)
    assert not tiny.same_bits(auto, never)


def test_a_smooth_schedule_never_restarts(tmp_path: Path) -> None:
    smooth = {"lr": 0.05, "schedule": {"name": "cosine", "epochs": 6}, "warmup": {"epochs": 1}}

    def seen(name: str, restart: str) -> dict[str, Any]:
        rule = {"name": "crossbow", "restart": restart}
        stop = {"epochs": None, "iterations": 50}
        return tiny.run(tiny.job(tmp_path / name, rule=rule, learners=2, update=smooth, stop=stop), 2).weights

    assert tiny.same_bits(seen("auto", "auto"), seen("never", "never"))


# Learners that come and go

CHANGES = {5: (3, 1), 12: (1, 1), 13: (2, 4), 30: (2, 2)}


def announce(session: Session) -> None:
    if (counts := CHANGES.get(session.iteration)) is not None:
        session.coordinator.announce(session.iteration, counts)


@pytest.mark.parametrize("rule", ["auto", "crossbow-3", "nesterov-3", "ssgd"])
@pytest.mark.parametrize("prefetch", [1, 4])
def test_learners_come_and_go(tmp_path: Path, rule: str, prefetch: int) -> None:
    def seen(name: str) -> list[tiny.Replay]:
        work = tiny.job(tmp_path / name, rule=tiny.RULES[rule], learners=2, prefetch=prefetch, net=tiny.normed)
        return tiny.replay(work, 2, before=announce)

    ranks, again = seen("a"), seen("b")
    assert ranks[0].centres == ranks[1].centres == again[0].centres
    per_rank = [[len(slots) for slots in rank.samples] for rank in ranks]
    at = [iteration + prefetch + 1 for iteration in CHANGES]
    expected = np.repeat([(2, 2), (3, 1), (1, 1), (2, 4), (2, 2)], np.diff([0, *at, 40]), axis=0)
    assert per_rank == expected.T.tolist()
    # Every sample once an epoch: the stream, cut where epochs end, is one permutation after the other.
    stream = np.concatenate([np.concatenate([*a, *b]) for a, b in zip(ranks[0].samples, ranks[1].samples, strict=True)])
    for epoch in range(len(stream) // tiny.COUNT):
        assert sorted(stream[epoch * tiny.COUNT : (epoch + 1) * tiny.COUNT]) == list(range(tiny.COUNT))
    assert len(stream) > 5 * tiny.COUNT


def test_a_change_of_learners_does_not_depend_on_ranks(tmp_path: Path) -> None:
    # Without momenta: a new learner has none, and which ones are new depends on the ranks.
    rule = {"name": "sma", "reset_momentum": True}

    def change(counts: tuple[int, ...], session: Session) -> None:
        if session.iteration == 10:
            session.coordinator.announce(10, counts)

    one = tiny.replay(tiny.job(tmp_path / "1", rule=rule, learners=4), before=lambda s: change((6,), s))
    two = tiny.replay(tiny.job(tmp_path / "2", rule=rule, learners=2), 2, before=lambda s: change((1, 5), s))
    assert tiny.distance(two[0].weights, one[0].weights) < 1e-10


@pytest.mark.parametrize("rule", ["auto", "independent"])
def test_looking_changes_no_bit_of_learners_that_come_later(tmp_path: Path, rule: str) -> None:
    def change(session: Session) -> None:
        if session.iteration == 10:
            session.coordinator.announce(10, (3,))

    seen, unseen = (
        tiny.replay(tiny.job(tmp_path / str(every), rule=tiny.RULES[rule], evaluate={"every": every}), before=change)
        for every in (0.1, 1000)
    )
    assert tiny.same_bits(seen[0].weights, unseen[0].weights)
