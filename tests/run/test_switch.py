"""A rule that gives way to another at an epoch: the bits of each while it is in force, also when a run is resumed."""

from pathlib import Path

import numpy as np
import pytest

from mpibow.run.session import Session
from tests.run import tiny
from tests.run.test_resume import AT_END, check_resumed, copy, point, saving

RULE = {"name": "crossbow", "then": {"epoch": 2}}  # 57 samples, 12 an iteration: from iteration 10 on
SETTINGS = {"learners": 2, "checkpoint": AT_END, "net": tiny.normed}


def seen(folder: Path, rule: dict) -> dict[int, np.ndarray]:
    """Rank 0's replicas before every iteration."""
    found = dict[int, np.ndarray]()

    def look(session: Session) -> None:
        if session.rank == 0:
            session.settle()
            found[session.iteration] = session.replicas.weights.copy()

    tiny.watch(folder, 2, rule=rule, before=look, **SETTINGS)
    return found


def test_each_rule_is_in_force_in_its_time(tmp_path, capsys):
    both = seen(tmp_path / "both", RULE)
    assert "iteration 10: rule ssgd" in capsys.readouterr().err
    alone = seen(tmp_path / "alone", {"name": "crossbow"})
    for iteration in range(11):  # the last one's are seen before the switch
        np.testing.assert_array_equal(both[iteration], alone[iteration])
    apart = [bool((rows[0] != rows[1]).any()) for _, rows in sorted(both.items())]
    assert apart[1:11] == [True] * 10
    assert not any(apart[11:])


def test_a_resumed_run_switches_where_the_whole_one_does(tmp_path):
    check_resumed(tmp_path, 9, 10, 11, ranks=2, rule=RULE, **SETTINGS)


@pytest.mark.parametrize("cut", [9, 11])
def test_learners_share_a_copy_of_the_weights_once_resumed_behind_the_switch(tmp_path, cut):
    """To S-SGD, on one rank; before it, replicas are apart."""
    settings, one = {"rule": {"name": "crossbow", "then": {"epoch": 1}}, **SETTINGS}, set[bool]()
    whole = tiny.watch(tmp_path / "whole", before=saving(9, 11), **settings)
    folder = copy(tmp_path / "whole", tmp_path / "cut")
    resumed = tiny.watch(folder, before=lambda s: one.add(s.replicas.one), resume=point(folder, cut), **settings)
    assert one == {cut == 11}
    assert tiny.same_bits(resumed[0].weights, whole[0].weights)


def test_learners_that_come_with_the_switch(tmp_path):
    """Announced so that both begin with iteration 10."""
    one, again = (
        tiny.watch(tmp_path / name, 2, rule=RULE, before=tiny.announcing({7: (3, 1)}), **SETTINGS)
        for name in ("a", "b")
    )
    assert [len(slots) for slots in one[0].samples[9:11]] == [2, 3]
    assert one[0].centres == one[1].centres == again[0].centres
