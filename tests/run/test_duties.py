"""The duties after an iteration: which are due, and their order, which decides bits and is that of the collectives."""

from pathlib import Path

import pytest

from mpibow.run.session import Session
from tests.run import tiny

ALL = ["talk", "trained", "agree", "end_period", "follow", "epoch_ended", "evaluate", "save", "show"]


def performed(folder: Path, **settings) -> list[str]:
    """The duties of a run's first iteration, at whose end all are due."""
    calls = list[str]()

    def before(session: Session) -> None:
        def recorded(owner, name: str) -> None:
            function = getattr(owner, name)
            setattr(owner, name, lambda *args, **named: [calls.append(name), function(*args, **named)][1])

        session.talk_due = True
        recorded(session.synchroniser, "talk")
        recorded(session.average, "follow")
        recorded(session.steering, "epoch_ended")
        for name in ("agree", "end_period", "evaluate", "save"):
            recorded(session, name)
        for name in ("trained", "show"):
            recorded(session.reporter, name)

    always = {
        "log": {"every": 1}, "rule": {"name": "sma", "resync": 1}, "ema": {"half_life": 1.0, "every": 1},
        "evaluate": {"every": 0.01}, "checkpoint": tiny.keeping(1), "batch_size": tiny.COUNT,
    }  # fmt: skip
    tiny.watch(folder, iterations=1, before=before, settle=False, **{**always, **settings})
    return calls[: calls.index("show") + 1]


def test_all_in_their_order(tmp_path):
    assert performed(tmp_path) == ALL


def test_a_run_that_is_to_stop_is_not_evaluated_first(tmp_path):
    """Its last evaluation is that of `finish`."""
    stopping = {"stop": {"epochs": None, "iterations": 1, "minutes": 1e-9}}
    assert performed(tmp_path, **stopping) == [name for name in ALL if name not in ("end_period", "evaluate")]


@pytest.mark.parametrize(("setting", "missing"), [
    ({"log": {"every": 2}}, "trained"),
    ({"rule": {"name": "sma", "resync": 2}}, "agree"),
    ({"ema": None}, "follow"),
    ({"evaluate": {"every": 100}}, "evaluate"),
    ({"checkpoint": {"every": None}}, "save"),
])  # fmt: skip
def test_one_that_is_not_due_is_left_out(tmp_path, setting, missing):
    assert performed(tmp_path, **setting) == [name for name in ALL if name != missing]
