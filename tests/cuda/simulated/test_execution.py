"""Which execution a GPU's learners end up in, on made-up times; that a change of it is no change of numbers."""

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from mpibow.comm import Communicator
from mpibow.run.results import Trained
from mpibow.run.session import Session
from mpibow.run.signals import Signals
from mpibow.run.timelines import recorded
from mpibow.run.tuning import Tuning
from mpibow.train import iterate
from mpibow.tune import Counts
from tests.comm.threads import on_threads
from tests.cuda.kernels.host import needs_compiler
from tests.cuda.simulated.gpu import simulated
from tests.cuda.simulated.test_whole_runs import holed, lenet, run, work
from tests.run import tiny

pytestmark = needs_compiler
SECONDS = {"streams": 0.03, "fused": 0.02}


@dataclass
class Timed:
    """A session's tuning that is told `seconds` by execution, and, of more than `most` learners, more."""

    session: Session
    real: Tuning
    seconds: dict[str, float]
    most: int = 2
    spread: float = 0.0

    def measured(self, own: float, whole: float, counts: Counts) -> None:
        blur = 1 + self.spread * (-1) ** self.session.iteration
        time = self.seconds[self.session.learners.execution] * max(max(counts) / self.most, 1.0) * blur
        self.real.measured(time, time, counts)

    def __getattr__(self, name: str):
        return getattr(self.real, name)


def train(
    out: Path, seconds: dict[str, float] | None = None, ranks: int = 1, seed: int = 0, resume: str | None = None,
    cut: int | None = None, spread: float = 0.0, room: int | None = None, free: tuple[int, ...] = (),
    **settings,
):  # fmt: skip
    """A run on made-up times; `cut`: it ends there as if it were killed; `room`: bytes for fused learners.

    `free`: what ranks say is free, by rank.
    """
    stop = {"epochs": None, "iterations": 80}
    defaults = {"learners": 2, "execution": "auto", "stop": stop, "evaluate": {"every": 10**6}, "prefetch": 1}
    job = work(out, **{**defaults, **settings})

    def body(comm: Communicator):
        opened = simulated(100 * seed + comm.rank, job.config.precision, shared=comm.size > 1)
        own = replace(job, config=replace(job.config, device="cuda"), device=opened)
        if free:
            opened.gpu.free = lambda comm: free[comm.rank]
        with Signals() as signals, Session(own, comm, resume) as session:
            if room is not None:
                opened.gpu.machine.driver.room = room
            if seconds is not None:
                session.tuning = Timed(session, session.tuning, seconds, spread=spread)
            stop = ""
            while not (stop := stop or session.limit_reached()):
                if session.iteration == cut:
                    return None
                stop = iterate(session, signals)
            return session.finish(stop)

    return on_threads(ranks, body)[0]


def ran(folder: Path) -> dict[int, str]:
    """When an execution began, as metrics.jsonl has it."""
    found = [event for event in tiny.events(folder / "run") if event["event"] in ("start", "execution")]
    return {event["iteration"]: event["execution"] for event in found}


def said(folder: Path) -> list[str]:
    lines = [line.split(" ", 2)[2] for line in (folder / "run/log.txt").read_text().splitlines() if line[:2] == "20"]
    return [line for line in lines if line.startswith(("execution: ", "tuner: ", "iteration "))]


# A window is fifteen iterations, three of them to warm up; of fused learners sixteen, as it is a quarter of a second at
# least. Then ranks ask to talk, do so, and change behind what is read ahead.
def test_given_learners_are_tried_in_both_ways_and_the_faster_one_stays(tmp_path):
    found = train(tmp_path, SECONDS)
    assert ran(tmp_path) == {0: "streams", 19: "fused", 38: "streams", 57: "fused"}
    assert said(tmp_path) == [
        "execution: streams, each learner on a stream of its own; the faster of both will be measured",
        "tuner: learners 2, streams: 200 images/s; trying fused",
        "iteration 19: learners 2 fused",
        "tuner: learners 2, fused: 300 images/s, 1.50 times those of streams; trying streams",
        "iteration 38: learners 2 streams",
        "tuner: learners 2, streams: 200 images/s, 0.67 times those of fused; trying fused",
        "iteration 57: learners 2 fused",
        "tuner: learners 2, fused: 300 images/s, 1.50 times those of streams; settled on fused",
    ]
    decided = [(e["execution"], e["settled"], e["wanted"]) for e in tiny.events(tmp_path / "run", "tuner")]
    assert decided == [("fused", False, [2]), ("streams", False, [2]), ("fused", False, [2]), ("fused", True, [2])]
    for event in tiny.events(tmp_path / "run", "tuner"):
        tried = "streams" if event["execution"] == "fused" and not event["settled"] else "fused"
        assert (event["measured"], event["whole"]) == ([2], pytest.approx(SECONDS[tried]))
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["reason"] == said(tmp_path)[-1].removeprefix("tuner: ")
    assert (summary["execution"], summary["learners"], summary["changes"], summary["settled"]) == (
        "fused",
        [2],
        0,
        None,
    )
    assert {e["execution"] for e in tiny.events(tmp_path / "run", "train") if e["iteration"] > 60} == {"fused"}
    assert "1 rank(s), learners 2 fused, batch 3, rule sma" in str(found.summary)


@pytest.mark.parametrize("seconds", [{"streams": 0.02, "fused": 0.03}, {"streams": 0.02, "fused": 0.02}])
def test_streams_stay_where_fused_learners_are_no_faster(tmp_path, seconds):
    train(tmp_path, seconds, stop={"epochs": None, "iterations": 130})
    assert list(ran(tmp_path).values())[-1] == "streams"
    assert said(tmp_path)[-2].endswith("; settled on streams")
    assert json.loads((tmp_path / "run/summary.json").read_text())["execution"] == "streams"


def test_the_tuners_learners_are_tried_once_they_are_settled_on(tmp_path):
    stop, tuner = {"epochs": None, "iterations": 300}, {"watch": 0.4}
    train(tmp_path, SECONDS, learners="auto", stop=stop, tuner=tuner)
    decided = tiny.events(tmp_path / "run", "tuner")
    first = next(i for i, event in enumerate(decided) if event["settled"])
    assert (decided[first]["wanted"], "; settled on 2" in decided[first]["reason"]) == ([2], True)
    assert all("execution" not in event for event in decided[: first + 1])
    assert [event["execution"] for event in decided[first + 1 : first + 5]] == ["fused", "streams", "fused", "fused"]
    later = decided[first + 5 :]
    assert len(later) >= 2
    assert {event["reason"] for event in later} == {"learners 2: 300 images/s; staying"}  # no other speed is seen
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert (summary["execution"], summary["learners"], summary["settled"]) == ("fused", [2], True)


def test_all_ranks_change_at_the_same_iteration_and_the_numbers_are_those_of_streams(tmp_path):
    stop = {"epochs": None, "iterations": 45}
    tried = train(tmp_path / "auto", SECONDS, ranks=2, stop=stop)
    apart = run(work(tmp_path / "streams", learners=2, execution="streams", stop=stop, prefetch=1), 2)
    assert list(ran(tmp_path / "auto").values()) == ["streams", "fused", "streams"]
    assert tiny.distance(tried.weights, apart.weights) < 1e-3


def test_a_replay_runs_the_same_at_the_same_iterations(tmp_path):
    """Whatever comes when on the device, and whatever times would say."""
    stop = {"epochs": None, "iterations": 62}
    first = train(tmp_path / "first", SECONDS, stop=stop)
    timeline = recorded(tmp_path / "first/run", 1, 3)
    assert [(change.iteration, change.execution) for change in timeline.changes] == list(
        ran(tmp_path / "first").items()
    )
    again = train(tmp_path / "again", learners=f"replay({tmp_path}/first/run)", stop=stop, seed=4)
    assert tiny.same_bits(again.weights, first.weights)
    assert ran(tmp_path / "again") == ran(tmp_path / "first")
    wanted = train(tmp_path / "streams", learners=f"replay({tmp_path}/first/run)", stop=stop, execution="streams")
    assert ran(tmp_path / "streams") == {0: "streams"}
    host = tiny.run(work(tmp_path / "host", learners=f"replay({tmp_path}/first/run)", stop=stop))
    assert tiny.distance(host.weights, wanted.weights) < 1e-2
    assert not tiny.events(tmp_path / "host/run", "execution")


@pytest.mark.parametrize("cut", [30, 90])
def test_a_run_that_is_killed_goes_on_as_it_ran(tmp_path, cut):
    """What was decided is not asked again; what was not yet begins again."""
    how = {
        "checkpoint": {"every": "10 iterations", "keep": 100, "best": False},
        "stop": {"epochs": None, "iterations": 110},
    }
    train(tmp_path / "cut", SECONDS, cut=cut, **how)
    rest = train(tmp_path / "cut", SECONDS, resume=str(tmp_path / "cut/run"), seed=3, **how)
    assert rest.summary.execution == "fused"
    trial = [event for event in tiny.events(tmp_path / "cut/run", "tuner") if event["iteration"] >= cut]
    assert bool(trial) == (cut < 80)
    if cut == 90:
        whole = train(tmp_path / "whole", SECONDS, **how)
        assert tiny.same_bits(rest.weights, whole.weights)


def test_a_net_that_has_no_fused_form_stays_on_streams(tmp_path):
    train(tmp_path, net=holed, stop={"epochs": None, "iterations": 20}, test=None)
    assert said(tmp_path) == [
        "execution: streams, each learner on a stream of its own: cast1 (cast) has no form for fused learners",
    ]
    assert ran(tmp_path) == {0: "streams"}


def test_fused_learners_without_memory_are_not_tried(tmp_path):
    train(tmp_path, SECONDS, room=1000, test=None)  # which takes memory at the end
    assert ran(tmp_path) == {0: "streams"}
    (told,) = [line for line in said(tmp_path) if line.startswith("tuner: ")]
    assert told.startswith("tuner: staying with streams: rank 0: GPU 0 (NVIDIA H100, GPU-0000): ")
    assert told.endswith(": use fewer learners, or a smaller batch_size")


def test_memory_is_asked_for_before(tmp_path):
    train(tmp_path, SECONDS, ranks=2, free=(1 << 30, 1 << 12), stop={"epochs": None, "iterations": 40})
    assert ran(tmp_path) == {0: "streams"}
    (told,) = [line for line in said(tmp_path) if line.startswith("tuner: ")]
    assert told.startswith("tuner: staying with streams: rank 1: fused learners need ")
    assert told.endswith(" KiB; only 3.2 KiB may be used on GPU 0 (NVIDIA H100, GPU-0000)")


@pytest.mark.parametrize(("learners", "how"), [(1, {}), (2, {"execution": "streams"}), (2, {"execution": "fused"})])
def test_nothing_is_tried_of_one_learner_or_where_the_settings_say(tmp_path, learners, how):
    stop = {"epochs": None, "iterations": 30}
    train(tmp_path, learners=learners, stop=stop, **how)
    assert ran(tmp_path) == {0: how.get("execution", "streams")}
    assert not tiny.events(tmp_path / "run", "tuner")
    (told,) = said(tmp_path)
    assert told.startswith("execution: ")
    assert "measured" not in told


@pytest.mark.parametrize("assignment", ["fixed", "first_come"])
def test_a_gpu_says_that_nobody_comes_first(tmp_path, assignment):
    train(tmp_path, execution="streams", assignment=assignment, stop={"epochs": None, "iterations": 2})
    told = "assignment: first_come has no effect on a GPU, where the host enqueues batches in turn"
    assert (told in (tmp_path / "run/log.txt").read_text()) == (assignment == "first_come")


def test_a_change_of_execution_waits_for_nothing_and_restarts_nothing(tmp_path):
    """The same bits in whatever order streams run: replicas, momenta and the gain's averages go on."""
    weights = []
    for seed in (1, 2):
        job = work(tmp_path / str(seed), learners=2, net=lenet, prefetch=1, execution="auto")
        job = replace(job, test=None, config=replace(job.config, device="cuda"), device=simulated(seed))

        def body(comm: Communicator, job=job) -> Trained:
            with Signals() as signals, Session(job, comm) as session:
                session.tuning = Tuning(job.config.tuner)
                began, launches = [], []
                streams = job.device.gpu.machine.driver.machine.streams
                session.engine.begin = lambda *found: began.append(found)
                while not session.limit_reached():
                    if session.iteration in CHANGES:
                        session.coordinator.announce(session.iteration, (2,), CHANGES[session.iteration])
                    iterate(session, signals)
                    launches.append(sum(stream.launches for stream in streams))
                assert not began
                steps = [after - before for before, after in pairwise([0, *launches])]
                assert steps == 6 * [2] + 5 * [1] + [2] + 6 * [1] + 6 * [2]  # announced two iterations ahead
                return session.finish("by hand")

        weights.append(on_threads(1, body)[0].weights)
    assert all(tiny.same_bits(weights[0], other) for other in weights[1:])
    apart = run(work(tmp_path / "streams", learners=2, execution="streams", prefetch=1))
    assert tiny.distance(weights[0], apart.weights) < 1e-3


CHANGES = {4: "fused", 9: "streams", 10: "fused", 16: "streams"}
