"""--timeline: spans as they were recorded, in a file that viewers open; and no bit of the run changes."""

import json
import threading
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from mpibow.errors import MpibowError
from mpibow.run.chrome import LIMIT, ChromeTrace, Part, ahead, as_text, check_path, chrome_trace, open_trace, rows_of
from mpibow.run.results import Trained
from mpibow.trace import SILENT, Recorder
from mpibow.train import train
from tests.comm.threads import on_threads
from tests.launching import mpirun, needs_mpi, well
from tests.refusals import refuses
from tests.run import tiny
from tests.run.processes import write_run


def traced(work: tiny.Job, path: Path, window: str, ranks: int = 2, resume: str | None = None) -> Trained:
    found = on_threads(ranks, lambda comm: train(work, comm, resume=resume, trace=open_trace(path, window)))
    return found[0]


def spans(path: Path) -> dict[tuple[int, str], list[dict]]:
    """The spans of every (rank, row) of a file, in order."""
    events = json.loads(path.read_text())["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found = {(pid, name): [] for (pid, _), name in names.items()}
    for event in events:
        if event["ph"] == "X":
            found[event["pid"], names[event["pid"], event["tid"]]].append(event)
    return found


def test_recording():
    recorder = Recorder()
    with recorder.span("a", "before"):
        recorder.on = True
    with recorder.span("a", "outer"), recorder.span("b", "inner"):
        recorder.on = False  # what has begun is still recorded
    with recorder.span("a", "after"):
        pass
    ((inner, outer),) = recorder.threads()
    assert (inner[:2], outer[:2]) == (("b", "inner"), ("a", "outer"))
    assert outer[2] <= inner[2] <= inner[3] <= outer[3]


def test_every_thread_has_a_list_of_its_own():
    recorder = Recorder()
    recorder.on = True

    def work() -> None:
        with recorder.span("a", threading.current_thread().name):
            pass

    for name in ("one", "two"):
        thread = threading.Thread(target=work, name=name)
        thread.start()
        thread.join()
    assert [[span[:2] for span in thread] for thread in recorder.threads()] == [[("a", "one")], [("a", "two")]]


def test_a_span_ends_where_what_is_inside_fails():
    recorder = Recorder()
    recorder.on = True
    with pytest.raises(ZeroDivisionError), recorder.span("a", "b"):
        _ = 1 // 0
    assert [[span[:2] for span in thread] for thread in recorder.threads()] == [[("a", "b")]]


PARTS = [
    Part(0, "near", 0, [[("iterations", "iteration 3", 2_000, 9_500)], [("data", "read", 1_000, 4_000)]]),
    Part(1, "far", 500_000, [[("learner 0", "batch", 503_000, 503_250)]]),
]


def test_the_file_event_by_event():
    trace = chrome_trace(PARTS, {"ranks": 2})
    assert (
        as_text(trace)
        == """\
{"displayTimeUnit": "ms", "otherData": {"ranks": 2}, "traceEvents": [
{"name":"process_name","ph":"M","pid":0,"tid":0,"args":{"name":"rank 0 (near)"}},
{"name":"process_sort_index","ph":"M","pid":0,"tid":0,"args":{"sort_index":0}},
{"name":"thread_name","ph":"M","pid":0,"tid":0,"args":{"name":"iterations"}},
{"name":"thread_sort_index","ph":"M","pid":0,"tid":0,"args":{"sort_index":0}},
{"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"data"}},
{"name":"thread_sort_index","ph":"M","pid":0,"tid":1,"args":{"sort_index":1}},
{"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"rank 1 (far)"}},
{"name":"process_sort_index","ph":"M","pid":1,"tid":0,"args":{"sort_index":1}},
{"name":"thread_name","ph":"M","pid":1,"tid":0,"args":{"name":"learner 0"}},
{"name":"thread_sort_index","ph":"M","pid":1,"tid":0,"args":{"sort_index":0}},
{"name":"read","cat":"data","ph":"X","ts":0.0,"dur":3.0,"pid":0,"tid":1},
{"name":"iteration 3","cat":"iterations","ph":"X","ts":1.0,"dur":7.5,"pid":0,"tid":0},
{"name":"batch","cat":"learner","ph":"X","ts":2.0,"dur":0.25,"pid":1,"tid":0}
]}
"""
    )
    assert json.loads(as_text(trace)) == trace
    empty = chrome_trace([], {})
    assert json.loads(as_text(empty)) == empty


def test_rows_from_top_to_bottom():
    """Learners by number, unknown rows last; a row of two threads is two rows."""
    one = [(row, "", 0, 1) for row in ("data", "zebra", "learner 10", "learner 2", "waiting", "data", "iterations")]
    two = [(row, "", 0, 1) for row in ("data", "communication")]
    assert rows_of([one, two]) == {
        ("iterations", 0): 0,
        ("learner 2", 0): 1,
        ("learner 10", 0): 2,
        ("waiting", 0): 3,
        ("communication", 1): 4,
        ("data", 0): 5,
        ("data", 1): 6,
        ("zebra", 0): 7,
    }
    events = chrome_trace([Part(0, "near", 0, [one, two])], {})["traceEvents"]
    assert [e["args"]["name"] for e in events if e["name"] == "thread_name"][5:7] == ["data", "data (2)"]


def test_clocks_of_other_nodes():
    clocks = [("a", [10, 20, 30]), ("a", [11, 23, 31]), ("b", [510, 521, 595]), ("c", [1, 12, 20])]
    assert ahead(clocks) == [0, 0, 501, -9]


@tiny.rules("auto", "crossbow-3", "ssgd")
def test_a_trace_changes_no_bit(tmp_path, rule):
    def work(name: str) -> tiny.Job:
        return tiny.job(tmp_path / name, net=tiny.normed, rule=rule, learners=2, precision="float32")

    path = tmp_path / "run.json"
    assert tiny.same_bits(traced(work("traced"), path, "0:100").weights, tiny.run(work("plain"), 2).weights)
    assert path.exists()


def names(found: list[dict]) -> Mapping[str, int]:
    return Counter(event["name"] for event in found)


def test_every_row_of_every_rank(tmp_path):
    """Iterations 2 to 12 of two ranks of two learners: what happened in them, as often as it did."""
    path = tmp_path / "run.json"
    rule = {"name": "crossbow", "resync": 5}
    checkpoint = {"every": "8 iterations"}
    traced(tiny.job(tmp_path, learners=2, rule=rule, checkpoint=checkpoint, evaluate={"every": 1}), path, "2:13")
    found = spans(path)
    rows = ["iterations", "learner 0", "learner 1", "synchronisation", "waiting", "communication", "data"]
    assert list(found) == [(rank, row) for rank in (0, 1) for row in [*rows, "evaluation", "checkpoint"]]
    for rank in (0, 1):
        assert names(found[rank, "iterations"]) == {f"iteration {i}": 1 for i in range(2, 13)}
        for learner in (0, 1):
            assert names(found[rank, f"learner {learner}"]) == {"batch": 11, "update": 11, "evaluate": 2}
        assert names(found[rank, "synchronisation"]) == {"update": 11, "agree": 2}  # at 5 and 10
        assert names(found[rank, "waiting"]) == {"data": 11, "averaging": 11}
        # The exchange of iteration 1 may be under way when the recording begins.
        assert names(found[rank, "communication"])["all-reduce"] in (11, 12)
        assert names(found[rank, "communication"])["call"] > 2
        assert names(found[rank, "data"]).keys() == {"read"}
        assert names(found[rank, "evaluation"]) == {"evaluate": 2}  # 57 samples are five iterations of 12
        assert names(found[rank, "checkpoint"]) == {
            "save": 3
        }  # after 8 iterations, and where an evaluation was the best
    about = json.loads(path.read_text())["otherData"]
    assert about == {"iterations": [2, 13], "ranks": 2}


def test_an_exchange_that_nothing_is_computed_beside_is_waited_for(tmp_path):
    """By the default rule, on two ranks: each all-reduce is within what its rank waited for. One waits for none."""
    for ranks in (2, 1):
        path = tmp_path / f"{ranks}.json"
        traced(tiny.job(tmp_path / str(ranks), stop={"epochs": 3}), path, "2:12", ranks=ranks)
        found = spans(path)
        for rank in range(ranks):
            waits = [event for event in found[rank, "waiting"] if event["name"] == "averaging"]
            assert len(waits) == (10 if ranks > 1 else 0)
            sent = [event for event in found[rank, "communication"] if event["name"] == "all-reduce"]
            assert len(sent) == 10
            for one, other in zip(waits, sent, strict=False):
                assert one["ts"] <= other["ts"] + 0.002
                assert other["ts"] + other["dur"] <= one["ts"] + one["dur"] + 0.002


def test_spans_of_a_row_follow_each_other(tmp_path):
    """Within microseconds of rounding; viewers take others for nested ones."""
    path = tmp_path / "run.json"
    traced(tiny.job(tmp_path, learners=3, evaluate={"every": 0.5}), path, "0:40")
    found = spans(path)
    assert min(event["ts"] for row in found.values() for event in row) == 0
    for row in found.values():
        assert all(event["dur"] >= 0 for event in row)
        assert all(a["ts"] + a["dur"] <= b["ts"] + 0.002 for a, b in pairwise(row))
    batches = [event for (_, row), events in found.items() if row.startswith("learner") for event in events]
    inside = found[0, "iterations"]
    assert all(inside[0]["ts"] - 0.002 <= event["ts"] for event in batches if event["pid"] == 0)
    reads, last = found[0, "data"], inside[-1]["ts"] + inside[-1]["dur"]
    assert all(event["ts"] <= last for event in reads)


def test_a_window_is_counted_from_where_a_run_is_resumed(tmp_path):
    path = tmp_path / "run.json"
    short = {"epochs": None, "iterations": 20}
    tiny.train(tmp_path, 2, stop=short, checkpoint={"every": "20 iterations"})
    traced(tiny.job(tmp_path), path, "3:5", resume=str(tmp_path / "run"))
    assert names(spans(path)[1, "iterations"]) == {"iteration 23": 1, "iteration 24": 1}
    log = (tmp_path / "run/log.txt").read_text()
    assert f"timeline of iterations 23 to 24: {path}, for ui.perfetto.dev or chrome://tracing\n" in log


@pytest.mark.parametrize("window", ["30:40", "30:41", "30:500"])
def test_a_run_that_ends_in_the_window(tmp_path, window):
    path = tmp_path / "run.json"
    traced(tiny.job(tmp_path), path, window, ranks=1)
    assert names(spans(path)[0, "iterations"]) == {f"iteration {i}": 1 for i in range(30, 40)}
    assert (tmp_path / "run/log.txt").read_text().count("timeline of iterations 30 to 39: ") == 1


def test_a_run_that_ends_before_the_window(tmp_path):
    path = tmp_path / "run.json"
    traced(tiny.job(tmp_path), path, "40:50", ranks=1)
    assert not path.exists()
    said = "no timeline: the run ended before its iteration 40; see --timeline-iterations\n"
    assert said in (tmp_path / "run/log.txt").read_text()


def test_where_it_cannot_be_written(tmp_path):
    """All ranks say the same."""
    path = tmp_path / "gone/run.json"
    with refuses(f"{path}: cannot be written: no such file or directory", MpibowError):
        traced(tiny.job(tmp_path), path, "0:3")


@pytest.mark.parametrize("text", ["", "3", "5:5", "6:5", "-1:4", "1:2:3", "a:b", f"7:{LIMIT + 8}"])
def test_windows_that_are_none(text):
    with refuses(f"--timeline-iterations: must be FROM:TO, 1 to 100,000 iterations, as 20:220, got '{text}'"):
        open_trace(Path("run.json"), text)


def test_options():
    assert open_trace(None, None) is SILENT
    assert isinstance(open_trace(Path("run.json"), f"7:{LIMIT + 7}"), ChromeTrace)
    with refuses("--timeline-iterations: is of a timeline, got 0:9 alone; add --timeline FILE.json"):
        open_trace(None, "0:9")


@pytest.mark.parametrize("name", [".", "none/run.json"])
def test_a_path_that_cannot_be_a_file(tmp_path, name):
    check_path(tmp_path / "run.json")
    with refuses(f"--timeline: must be a file in a folder that can be written, as run.json, got {tmp_path / name}"):
        check_path(tmp_path / name)


@needs_mpi
def test_processes_of_a_node_share_a_clock(tmp_path):
    write_run(tmp_path, stop={"epochs": None, "iterations": 30}, evaluate={"every": 1000})
    command = ["-m", "mpibow.train", "run.yaml", "--timeline", "run.json", "--timeline-iterations", "5:25"]
    done = well(mpirun(2, *command, cwd=tmp_path))
    assert "timeline of iterations 5 to 24: run.json, for ui.perfetto.dev or chrome://tracing\n" in done.stderr
    found = spans(tmp_path / "run.json")
    one, other = (found[rank, "iterations"] for rank in (0, 1))
    assert len(one) == len(other) == 20
    # Iteration i + 1 of a rank ends after the all-reduce of i, which no rank begins before its own iteration i.
    for mine, theirs in zip(one[1:], other, strict=False):
        assert theirs["ts"] < mine["ts"] + mine["dur"]
    for mine, theirs in zip(one, other[1:], strict=False):
        assert mine["ts"] < theirs["ts"] + theirs["dur"]
