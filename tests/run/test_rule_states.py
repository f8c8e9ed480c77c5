"""What every rule declares of its state is saved, and comes back on resume: arrays and numbers."""

from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save as pack

from mpibow.errors import CheckpointError
from mpibow.run.session import Session
from mpibow.sync import Engine, RuleState
from mpibow.sync.state import Stored
from tests.run import tiny
from tests.run.test_header import replaced
from tests.run.test_resume import copy, point

CUTS = (25, 26, 27)  # of a period of 3: once with unsent steps at least; a gain is measured after 20
# Rules that show all that their states may have, and on how many ranks.
SLOWMO = {"name": "slowmo", "period": 3, "resync": 9}
SHOWN = {
    "pulled": (({"name": "sma"}, 1), ({**SLOWMO, "replicas": "pulled"}, 2)),
    "lagging": (({"name": "crossbow", "period": 3}, 2),),
    "reset": (({"name": "sma", "replicas": "reset"}, 2), (SLOWMO, 2)),
    "gradients": (({"name": "ssgd"}, 2),),
    "independent": (({"name": "independent", "period": 4}, 2),),
}
GAINS = {"turn", "gain", "averages", "rate"}
CHANGED = {  # the numbers that these runs change
    "pulled": {*GAINS, "apart"},
    "lagging": {"turn"},
    "reset": GAINS,
    "gradients": {"turn"},
    "independent": {"turn"},
}
CROSSBOW = SHOWN["lagging"][0][0]
OWN = "rank-0.safetensors"
States = dict[tuple[int, int], RuleState]


def work(folder: Path, rule: Mapping, learners: int = 2) -> tiny.Job:
    """In float32, which no rule's own float64 numbers are."""
    settings = {"rule": rule, "learners": learners, "precision": "float32"}
    keep = {"every": None, "keep": 100, "best": False}
    return tiny.job(folder, net=tiny.normed, stop={"epochs": None, "iterations": 28}, checkpoint=keep, **settings)


def states(job: tiny.Job, ranks: int, resume: Path | None = None, declared: set[str] | None = None) -> States:
    """By rank and iteration: as they were saved before the iterations CUTS, or as a resumed session begins with."""
    found: States = {}

    def before(session: Session) -> None:
        if resume is None and session.iteration in CUTS:
            session.settle()
            if session.iteration == CUTS[1]:
                session.engine.reset(0)
            session.save()
            (set() if declared is None else declared).update(session.engine.arrays)
        if session.iteration in CUTS or not any(rank == session.rank for rank, _ in found):
            found[session.rank, session.iteration] = deepcopy(session.engine.state())

    tiny.replay(job, ranks, before=before, resume=resume, settle=False)
    return found


@pytest.mark.parametrize("kind", SHOWN)
def test_all_that_a_rule_declares_is_saved_and_comes_back(tmp_path, kind):
    declared, arrays, changed = set[str](), set[str](), set[str]()
    for number, (rule, ranks) in enumerate(SHOWN[kind]):
        whole = tmp_path / str(number)
        saved = states(work(whole, rule), ranks, declared=declared)
        begun = [saved.pop((rank, 0)) for rank in range(ranks)]
        assert len(saved) == len(CUTS) * ranks
        for cut in CUTS:
            folder = copy(whole, tmp_path / f"{number}-{cut}")
            back = states(work(folder, rule), ranks, resume=point(folder, cut))
            for rank in range(ranks):
                before, after = saved[rank, cut], back[rank, cut]
                for a, b in ((before.shared, after.shared), (before.own, after.own)):
                    assert a.keys() == b.keys()
                    for name in a:
                        np.testing.assert_array_equal(b[name], a[name], err_msg=f"{kind}: {name}, iteration {cut}")
                assert after.numbers == before.numbers, (kind, cut)
        arrays |= {name for one in saved.values() for name in (*one.shared, *one.own)}
        first = vars(begun[0].numbers)
        changed |= {name for name in first if any(vars(one.numbers)[name] != first[name] for one in saved.values())}
    assert arrays == declared
    assert changed == CHANGED[kind]


def test_an_array_that_its_rule_does_not_declare_stops_the_save(tmp_path, monkeypatch):
    monkeypatch.setattr(Engine, "arrays", {"mean": Stored("all", "weights")})
    with pytest.raises(KeyError, match="pending"):
        states(work(tmp_path, CROSSBOW), 1)


@pytest.mark.parametrize(
    ("name", "shared"), [("mean", True), ("previous", True), ("pending", False), ("squares", False)]
)
def test_a_checkpoint_that_lacks_an_array_is_refused(tmp_path, name, shared):
    """One that the rule always has, or one of two that come together."""
    states(work(tmp_path, CROSSBOW), 1)
    path = next(path for path in map(partial(point, tmp_path), CUTS) if "pending" in load_file(path / OWN))
    file = "common.safetensors" if shared else OWN
    replaced(path, file, pack({key: array for key, array in load_file(path / file).items() if key != name}))
    with pytest.raises(CheckpointError) as caught:
        states(work(tmp_path, CROSSBOW), 1, resume=path)
    assert str(caught.value).startswith(f"{path / file}: {name}: must be ")
    assert str(caught.value).endswith(", got nothing")
