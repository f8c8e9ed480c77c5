"""Curves from events, with numbers that can be checked by hand."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mpibow.errors import RecordError
from mpibow.run.series import PANELS, Curve, RunLog, clock, curves, kept, parse, read_run, seconds_at, smoothed
from tests.refusals import refuses
from tests.run import tiny


def event(kind: str, position: float, **fields) -> dict:
    return {"event": kind, "time": 1000.0, "position": position, "epoch": position / 100, **fields}


def run_of(*events: dict) -> RunLog:
    return RunLog("run", tuple(events), tuple(clock(events)))


def points(run: RunLog, panel: str, axis: str = "samples", smooth: int = 1) -> dict[str, list[tuple[float, float]]]:
    return {curve.name: list(zip(curve.x, curve.y, strict=True)) for curve in curves(run, panel, axis, smooth)}


RUN = run_of(
    event("start", 0, learners=[2, 1]),
    event("train", 30, loss=None, accuracy=None, elapsed=3.0, learners=[2, 1]),
    event("evaluate", 30, data="test", loss=1.25, accuracy=0.5, top_k_accuracy=0.9, elapsed=3.0, seconds=77.0),
    event("train", 60, loss=0.75, accuracy=0.25, elapsed=5.0, learners=[2, 1]),
    event("checkpoint", 60, seconds=88.0),
    event("learners", 60, learners=[2, 2], reason="faster"),
    event("train", 100, loss=float("nan"), accuracy=0.5, elapsed=9.0, learners=[2, 2]),
    event("evaluate", 120, data="test", loss=0.25, accuracy=0.75, top_k_accuracy=1.0, elapsed=11.0, seconds=66.0),
    event("end", 120),
)


def test_accuracy():
    assert points(RUN, "accuracy") == {
        "test": [(30, 0.5), (120, 0.75)],
        "test, top k": [(30, 0.9), (120, 1.0)],
        "training": [(60, 0.25), (100, 0.5)],
    }
    assert points(RUN, "accuracy", "epochs")["test"] == [(0.3, 0.5), (1.2, 0.75)]
    assert points(RUN, "accuracy", "seconds")["test"] == [(3, 0.5), (11, 0.75)]


def test_loss_leaves_out_what_is_not_finite():
    assert points(RUN, "loss") == {"test": [(30, 1.25), (120, 0.25)], "training": [(60, 0.75)]}


def test_images_per_second_are_of_the_time_between_two_entries():
    assert points(RUN, "speed", "seconds") == {"images/s": [(3, 10), (5, 15), (9, 10)]}
    assert points(RUN, "speed") == {"images/s": [(30, 10), (60, 15), (100, 10)]}


def test_learners_by_rank():
    every = [0, 30, 60, 60, 100]
    assert points(RUN, "learners") == {
        "rank 0": list(zip(every, [2, 2, 2, 2, 2], strict=True)),
        "rank 1": list(zip(every, [1, 1, 1, 2, 2], strict=True)),
    }
    assert [x for x, _ in points(RUN, "learners", "seconds")["rank 1"]] == [0, 3, 5, 5, 9]
    assert [(curve.name, curve.y) for curve in curves(RUN, "learners", "samples", aside=True)] == [
        ("all ranks", [3, 3, 3, 4, 4])
    ]


@pytest.mark.parametrize(
    ("counts", "names"),
    [
        ([3], ["the rank"]),
        ([2, 2, 2], ["each of 3 ranks"]),
        ([2, 1, 1, 1, 2, 3], ["ranks 0, 4", "ranks 1 to 3", "rank 5"]),
    ],
)
def test_ranks_that_are_alike_are_one_curve(counts, names):
    run = run_of(event("start", 0, learners=counts), event("train", 10, elapsed=1.0, learners=counts))
    assert list(points(run, "learners")) == names


def test_ranks_that_a_resumed_run_has_no_more():
    run = run_of(event("start", 0, learners=[1, 1]), event("start", 50, learners=[3]))
    assert points(run, "learners") == {"rank 0": [(0, 1), (50, 3)], "rank 1": [(0, 1), (50, 0)]}
    assert points(run_of(event("start", 0, learners=[1, 1])), "learners") == {}  # one moment is no line
    assert curves(run_of(event("start", 0, learners=[1])), "learners", "samples", aside=True) == []


def test_waits_are_of_the_time_between_two_entries():
    """Entries tell them since the process started: 2 s of 10, 2 s of 20, 17 s of 40; then resumed, 5 s of 10."""
    run = run_of(
        event("start", 0, elapsed=0.0),
        event("train", 10, elapsed=10.0, data_wait=0.2, sync_wait=0.0),
        event("train", 20, elapsed=20.0, data_wait=0.1, sync_wait=0.25),
        event("train", 30, elapsed=40.0, data_wait=0.425, sync_wait=0.25),
        event("start", 30, elapsed=40.0),
        event("train", 40, elapsed=50.0, data_wait=0.5, sync_wait=0.1),
        event("train", 50, elapsed=50.0, data_wait=0.5, sync_wait=0.1),  # at the same moment, as clocks show it
    )
    assert points(run, "waits") == {
        "data": [(10, 0.2), (20, 0.0), (30, 0.75), (40, 0.5)],
        "averaging": [(10, 0.0), (20, 0.5), (30, 0.25), (40, pytest.approx(0.1))],
    }


def test_what_is_hidden():
    run = run_of(
        event("train", 10, sync_hidden=None), event("train", 20, sync_hidden=0.25), event("train", 30, sync_hidden=1.0)
    )
    assert points(run, "hidden") == {"hidden": [(20, 0.25), (30, 1.0)]}
    assert points(RUN, "hidden") == {}  # of one rank


def test_the_seconds_of_events_that_have_none_lie_between_those_that_are_known():
    run = run_of(
        event("start", 0),
        event("train", 40, elapsed=4.0, loss=1.0),
        event("evaluate", 60, data="test", loss=2.0),
        event("train", 80, elapsed=10.0, loss=1.0),
        event("evaluate", 90, data="test", loss=1.5),
        event("end", 90, elapsed=12.0),
        event("evaluate", 95, data="test", loss=1.0),
    )
    assert run.known == ((0, 0), (40, 4), (80, 10), (90, 12))
    assert points(run, "loss", "seconds")["test"] == [(7, 2.0), (12, 1.5)]  # when 95 were done nobody knows
    assert points(run, "speed", "seconds") == {"images/s": [(4, 10), (10, pytest.approx(40 / 6))]}


def test_a_run_without_times_has_no_curve_over_time():
    run = run_of(event("start", 0, learners=[1]), event("evaluate", 0, data="test", loss=2.0, accuracy=0.1))
    assert run.known == ()
    assert points(run, "loss", "seconds") == {}
    assert points(run, "loss", "samples") == {"test": [(0, 2.0)]}


def test_seconds_between_what_is_known():
    known = [(0.0, 0.0), (10.0, 1.0), (30.0, 5.0)]
    assert [seconds_at(known, p) for p in (0, 5, 10, 20, 30, 31)] == [0, 0.5, 1, 3, 5, None]
    assert seconds_at([], 0) is None


def test_what_a_resumed_run_did_again_counts_once():
    events = [
        event("start", 0),
        event("train", 10, loss=1.0),
        event("train", 20, loss=0.9),
        event("start", 10),
        event("train", 20, loss=0.9),
    ]
    assert kept(events) == [events[0], events[1], events[3], events[4]]


def test_smoothing_by_hand():
    assert smoothed([4.0, 2.0, 0.0, 10.0], 2) == [4.0, 3.0, 1.0, 5.0]
    assert smoothed([], 3) == []
    run = run_of(*(event("train", i, loss=float(i)) for i in range(4)), event("evaluate", 4, data="test", loss=9.0))
    assert curves(run, "loss", "samples", 2) == [
        Curve("test", [4], [9.0]),
        Curve("training", [0, 1, 2, 3], [0.0, 0.5, 1.5, 2.5], [0.0, 1.0, 2.0, 3.0]),
    ]


@pytest.mark.parametrize(("entries", "smooth"), [(99, 1), (100, 2), (500, 10)])
def test_a_fiftieth_is_smoothed_unless_told(entries, smooth):
    run = run_of(*(event("train", i, loss=float(i % 7)) for i in range(entries)))
    assert curves(run, "loss", "samples") == curves(run, "loss", "samples", smooth)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.integers(1, 20))
def test_smoothed_values_lie_between_the_values(values, n):
    found = smoothed(values, n)
    assert len(found) == len(values)
    assert all(min(values) - 1e-6 <= value <= max(values) + 1e-6 for value in found)
    assert found[0] == values[0]
    assert smoothed(values, 1) == values


LINES = b'{"event": "start", "position": 0, "epoch": 0}\n{"event": "train", "position": 9, "epoch": 0, "loss": NaN}\n'


def test_learners_of_many_ranks():
    counts = list(range(1, 10))
    run = run_of(event("start", 0, learners=counts), event("train", 10, elapsed=1.0, learners=counts[::-1]))
    assert points(run, "learners") == {"all ranks": [(0, 45), (10, 45)]}


def test_a_line_that_is_still_being_written():
    """Cut at any byte: the lines that are whole are read."""
    whole = parse(LINES, Path("m"))
    assert [found["event"] for found in whole] == ["start", "train"]
    for end in range(len(LINES)):
        assert len(parse(LINES[:end], Path("m"))) == LINES[:end].count(b"\n")


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"{", b"\x00\x00", b"[1]", b"7", b'{"event": "train"}', b'{"position": 1, "epoch": 0}'),
        b'{"event": "train", "position": 1}',
        b'{"event": "train", "position": "x", "epoch": 0}',
        b'{"event": "train", "position": null, "epoch": 0}',
        b'{"event": "train", "position": 1, "epoch": 0, "learners": 3}',
        b'{"event": "train", "position": 1, "epoch": 0, "learners": ["2"]}',
        b'{"event": "train", "position": 1, "epoch": 0, "loss": "nan"}',
    ],
)
def test_a_line_that_is_no_event(line):
    with refuses("runs/a/metrics.jsonl: line 3 is not an event of a run; remove it to draw the others", RecordError):
        parse(LINES + line + b"\n" + LINES, Path("runs/a/metrics.jsonl"))


def test_no_run(tmp_path):
    with refuses(f"{tmp_path}/gone: there is no such run directory; give one of those in `out`, as runs/NAME"):
        read_run(tmp_path / "gone")
    with refuses(f"{tmp_path}: is not a run directory: it has no metrics.jsonl"):
        read_run(tmp_path)


def test_a_real_run_has_curves_in_every_panel(tmp_path):
    tiny.train(tmp_path, 2, learners=2, evaluate={"every": 0.5})
    run = read_run(tmp_path / "run")
    assert run.label == "run"
    summary = tiny.summary(tmp_path)
    for axis in ("samples", "epochs", "seconds"):
        found = {panel: points(run, panel, axis) for panel in PANELS}
        assert all(found.values())
        end = {"samples": summary["samples"], "epochs": summary["epochs"], "seconds": summary["seconds"]}[axis]
        assert all(0 <= x <= end + 1e-6 for panel in found.values() for curve in panel.values() for x, _ in curve)
        assert found["accuracy"]["test"][-1][1] == summary["accuracy"]
        assert len(found["speed"]["images/s"]) == 8
    seconds = [x for x, _ in points(run, "speed", "seconds")["images/s"]]
    images = sum(
        y * (b - a) for (_, y), a, b in zip(points(run, "speed")["images/s"], [0, *seconds], seconds, strict=False)
    )
    assert images == pytest.approx(480)  # what was trained in all
