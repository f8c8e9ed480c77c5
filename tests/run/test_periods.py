"""Steps that wait for the end of a period: exchanged at a change of learners and at the end, and by nobody else."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mpibow.graph import Array
from mpibow.run.session import Session
from tests.run import tiny
from tests.run.test_resume import until_signal

LONG = {"name": "local_sgd", "period": 500}
ALONE = {"name": "independent"}  # the centre is the replicas' mean, as that of one exchange
WAITING = {name: rule for name, rule in tiny.RULES.items() if rule.get("period", 1) > 1 and name != "independent"}
KEPT = {"every": "1000 iterations", "keep": 100, "best": False}


def work(folder: Path, rule, iterations: int = 40, **settings) -> tiny.Job:
    stop = {"epochs": None, "iterations": iterations}
    return tiny.job(folder, **{"rule": rule, "learners": 2, "stop": stop, "checkpoint": KEPT, **settings})


@pytest.mark.parametrize("rule", WAITING.values(), ids=WAITING.keys())
def test_the_end_of_a_run_ends_its_period_on_any_number_of_ranks(tmp_path, rule):
    for iterations in (38, 39, 41):
        one, two, four = (
            tiny.run(work(tmp_path / f"{iterations}-{ranks}", rule, iterations, learners=4 // ranks), ranks).weights
            for ranks in (1, 2, 4)
        )
        assert tiny.distance(two, one) < 1e-10
        assert tiny.distance(four, one) < 1e-10


def test_a_period_longer_than_the_run_is_one_exchange(tmp_path):
    """Learners that never meet are independent ones, whose mean is the centre."""
    long, alone = (tiny.run(work(tmp_path / str(n), rule), 2) for n, rule in enumerate((LONG, ALONE)))
    assert tiny.distance(long.weights, alone.weights) < 1e-10
    assert long.summary.accuracy == alone.summary.accuracy
    looks = tiny.events(tmp_path / "0/run", "evaluate")
    assert len({look["position"] for look in looks}) == len(looks), "the end is evaluated once"
    assert looks[-2]["loss"] == looks[0]["loss"] != looks[-1]["loss"], "looking exchanges nothing"


def test_a_stop_by_an_evaluation_ends_the_period_too(tmp_path):
    """Which is evaluated again, as the centre is another one."""
    patient = work(tmp_path, LONG, stop={"epochs": 100, "metric": "loss", "patience": 2})
    summary = tiny.run(patient, 2).summary
    assert summary.stopped == "stop.patience 2"
    looks = tiny.events(tmp_path / "run", "evaluate")
    assert [look["loss"] for look in looks[:-1]] == [looks[0]["loss"]] * 3
    assert looks[-1]["loss"] == summary.test_loss != looks[0]["loss"]


@pytest.mark.parametrize("rule", [LONG, WAITING["crossbow-3"], WAITING["diloco"]], ids=["long", "lagging", "outer"])
def test_learners_change_where_a_run_would_have_ended(tmp_path, rule):
    centres = list[dict[str, Array]]()

    def before(session: Session) -> None:
        if session.iteration == 5:
            session.coordinator.announce(5, (3, 2))
        session.change_learners = partial(noted, session, session.change_learners)  # type: ignore[method-assign]

    def noted(session: Session, change: Callable[..., None], *now) -> None:
        assert session.iteration == 8
        centres.append(session.plan.unpacked(session.engine.centre.copy(), session.statistics()))
        change(*now)

    tiny.replay(work(tmp_path / "changed", rule, 9), 2, before=before)
    ended = tiny.run(work(tmp_path / "ended", rule, 8), 2).weights
    assert all(tiny.same_bits(centre, ended) for centre in centres[:2])


def test_an_interrupted_run_goes_on_in_the_midst_of_its_period(tmp_path):
    whole = tiny.run(work(tmp_path / "whole", LONG, 70), 2)
    folder = tmp_path / "cut"
    assert until_signal(work(folder, LONG, 70), 17)[0].summary.iterations in (50, 51)  # when all ranks hear of it
    assert len({look["loss"] for look in tiny.events(folder / "run", "evaluate")}) == 1, "nothing was exchanged"
    resumed = tiny.run(work(folder, LONG, 70), 2, resume=folder / "run")
    assert tiny.same_bits(resumed.weights, whole.weights)
