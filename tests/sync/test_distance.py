"""The replicas' distance from their mean, beside NumPy's own norms, and in a run's entries."""

import numpy as np
import pytest

from mpibow.data import Array
from mpibow.run.session import Session
from mpibow.sync.distance import PIECE, distances, summed_up
from tests.run import tiny


def by_norms(rows: Array, mean: Array) -> list[float]:
    return [float(np.linalg.norm(row - mean) / np.linalg.norm(mean)) for row in rows]


@pytest.mark.parametrize("size", [1, PIECE - 1, PIECE, 2 * PIECE + 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distances(size, dtype):
    rows = np.random.default_rng(size).normal(1.0, 0.3, (3, size)).astype(dtype)
    mean = rows[:2].mean(axis=0)
    tolerance = 1e-5 if dtype == "float32" else 1e-12  # of sums of 65,536 squares
    assert distances(rows, mean) == pytest.approx(by_norms(rows, mean), rel=tolerance)
    assert distances(rows) == pytest.approx(by_norms(rows, rows.mean(axis=0)), rel=tolerance)


def test_by_hand():
    assert distances(np.array([[3.0, 0.0], [5.0, 0.0]])) == [0.25, 0.25]
    assert distances(np.zeros((2, 5))) == [0.0, 0.0]
    assert summed_up([0.25, 0.75]) == (0.5, 0.75)
    assert summed_up([]) is None
    assert summed_up([0.1, float("inf")]) is None


@pytest.mark.parametrize(("rule", "ranks"), [("auto", 1), ("crossbow", 1), ("auto", 2), ("ssgd", 2)])
def test_entries_have_the_distance_of_rank_0s_replicas(rule, ranks, tmp_path):
    expected = dict[int, list[float]]()

    def look(session: Session) -> None:
        if session.rank == 0 and session.iteration:
            session.settle()
            rows = session.replicas.weights
            mean = rows.mean(axis=0) if ranks == 1 else session.engine.centre
            expected[session.iteration] = by_norms(rows, mean)

    work = tiny.job(tmp_path, rule=tiny.RULES[rule], learners=2, log={"every": 1})
    tiny.replay(work, ranks, before=look)
    found = {event["iteration"]: event for event in tiny.events(tmp_path / "run", "train")}
    for iteration, norms in expected.items():
        event = found[iteration]
        assert event["distance"] == pytest.approx(np.mean(norms), rel=1e-9, abs=1e-15)
        assert event["distance_max"] == pytest.approx(max(norms), rel=1e-9, abs=1e-15)
        assert (event["distance"] > 0) == (rule != "ssgd")


def test_where_the_mean_is_under_way_the_ranks_agreement_has_it(tmp_path):
    rule = {**tiny.RULES["crossbow"], "resync": 4}
    tiny.run(tiny.job(tmp_path, rule=rule, learners=2, log={"every": 4}), 2)
    assert {event["distance"] for event in tiny.events(tmp_path / "run", "train")} == {None}
    agreed = tiny.events(tmp_path / "run", "agree")
    assert len(agreed) == 10
    assert all(0 < event["distance"] <= event["distance_max"] for event in agreed)


def test_ranks_agree_on_the_distance_of_all_replicas(tmp_path):
    """One rank with four learners has the numbers of two with two."""
    rule = {**tiny.RULES["auto"], "resync": 10}
    found = []
    for ranks in (1, 2):
        tiny.run(tiny.job(tmp_path / str(ranks), rule=rule, learners=4 // ranks), ranks)
        found.append([event["distance_max"] for event in tiny.events(tmp_path / str(ranks) / "run", "agree")])
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_every_learner_of_rank_0_has_its_own_loss(tmp_path):
    tiny.run(tiny.job(tmp_path, learners=3, log={"every": 1}))
    events = tiny.events(tmp_path / "run", "train")
    assert all(len(event["losses"]) == 3 for event in events)
    assert len({loss for event in events for loss in event["losses"]}) == 3 * len(events)
    told = [event for event in events if event["loss"] is not None]
    means = [float(np.mean(event["losses"])) for event in events]
    assert any(event["loss"] == pytest.approx(means[i]) for i, event in enumerate(told))
