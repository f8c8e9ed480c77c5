"""Learners that come and go as measured times say, in whole sessions on made-up times; and how a run is repeated."""

import gc
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from mpibow.comm import Communicator, Single, binding
from mpibow.config import build, yaml_text
from mpibow.data import fixed
from mpibow.errors import ConfigError
from mpibow.graph.bound import BoundPlan
from mpibow.job.memory import Memory, copy_bytes, free_memory, learner_bytes, room_for
from mpibow.run.opening import OpenParts, Parts, open_parts
from mpibow.run.session import Session
from mpibow.run.signals import Signals
from mpibow.run.timelines import recorded
from mpibow.run.tuning import Trial, Tuning
from mpibow.system import in_words
from mpibow.train import iterate
from mpibow.tune import Cap, Counts, Decision, History, Reading, Tuner
from mpibow.tune.meter import Estimate
from tests.comm.threads import on_threads
from tests.launching import RANKS, mpirun, needs_mpi, well
from tests.refusals import refusal_of
from tests.run import tiny
from tests.run.processes import write_run
from tests.tune.device import Curve, peak, plateau

SECONDS = 0.03  # of an iteration: twelve of them make a window
TWO, THREE = peak(2, SECONDS), peak(3, SECONDS)


# Times that are made up


@dataclass
class Timed:
    """A session's tuning that is told what `curves`, by rank, say instead of what a clock says."""

    real: Tuning
    rank: int
    curves: tuple[Curve, ...]

    @property
    def asks(self) -> bool:
        return self.real.asks

    @property
    def decision(self) -> Decision | None:
        return self.real.decision

    def measured(self, own: float, whole: float, counts: Counts) -> None:
        times = [curve(k) for curve, k in zip(self.curves, counts, strict=True)]
        self.real.measured(times[self.rank], max(times), counts)

    def __getattr__(self, name: str):
        return getattr(self.real, name)


@dataclass
class Counted:
    """A session's plan that counts how often it is bound, and has no memory for more than `most` learners."""

    real: BoundPlan
    most: int = 64
    bound: int = 1  # the first learner's, before this takes the plan's place
    shorter = MappingProxyType({})

    def bind(self, *arrays, **more) -> BoundPlan:
        if self.bound == self.most:
            raise MemoryError
        self.bound += 1
        bound: BoundPlan = self.real.bind(*arrays, **more)
        return bound

    def __getattr__(self, name: str):
        return getattr(self.real, name)


def on(
    *curves: Curve, most: dict[int, int] | None = None, timed: Callable = Timed,
    opened: OpenParts = open_parts,
) -> OpenParts:  # fmt: skip
    """A session's parts with every rank's curve, and its memory where it is too small."""

    def made(job: tiny.Job, comm: Communicator, *rest) -> Parts:
        parts = opened(job, comm, *rest)
        parts.learners.plan = Counted(parts.learners.plan, (most or {}).get(comm.rank, 64))  # type: ignore[assignment]
        if parts.tuning.history is not None:  # whatever cores this machine has
            parts.tuning.history = replace(parts.tuning.history, cores=())
        return replace(parts, tuning=timed(parts.tuning, comm.rank, curves))

    return made


def auto(out: Path, iterations: int = 300, **settings) -> tiny.Job:
    return tiny.job(out, **{"learners": "auto", "iterations": iterations, "evaluate": {"every": 10**6}, **settings})


def learners(folder: Path) -> dict[int, list[int]]:
    """When learners came or went, and what there were then, as metrics.jsonl has it."""
    return {event["iteration"]: event["learners"] for event in tiny.events(folder / "run", "learners")}


def tuner(folder: Path) -> list[tuple[list[int], bool, str]]:
    return [(e["wanted"], e["settled"], e["reason"]) for e in tiny.events(folder / "run", "tuner")]


# One rank's side


def reading(own: float, whole: float | None = None, elapsed: float = 1.0) -> Reading:
    return Reading(Estimate(own, 0.0), Estimate(own if whole is None else whole, 0.0), elapsed)


def test_a_window_closes_when_all_ranks_are_sure():
    tuning = Tuning(Tuner(), History.begin(2, 4))
    for _ in range(15):
        tuning.measured(SECONDS, SECONDS, (1, 1))
    assert tuning.conclude([reading(SECONDS), None]) is None
    assert not tuning.asks  # it has asked
    decision = tuning.conclude([reading(SECONDS), reading(SECONDS / 2, SECONDS)])
    assert decision == tuning.decision
    assert decision.counts == (2, 2)
    assert decision.reason == "learners 1 + 1: 267 images/s; trying 2 + 2"
    assert tuning.reading() is None  # of what was decided nothing is known yet


def test_what_has_no_memory_is_not_tried_again():
    tuning = Tuning(Tuner(), History.begin(2, 4))
    tuning.conclude([reading(SECONDS), reading(SECONDS)])
    assert tuning.without(1, 2).counts == (2, 1)
    state = json.loads(json.dumps(tuning.state()))
    assert state["room"] == [None, 1]
    assert Tuning(Tuner(), build(History, state)).decision == tuning.decision
    elsewhere = replace(build(History, state), room=(8, 8))
    assert Tuning(Tuner(), elsewhere).decision.counts == (2, 2)


@pytest.mark.parametrize(
    ("free", "learner", "most", "room"),
    [(1000, 100, 64, 8), (999, 100, 64, 7), (100, 100, 64, 1), (0, 100, 64, 1), (10**6, 100, 64, 64)],
)
def test_room(free, learner, most, room):
    assert room_for(free, learner, most) == room


@pytest.mark.parametrize(("lockable", "locked", "room"), [(0, 0, 8), (500, 50, 8), (500, 100, 4), (0, 1, 1)])
def test_room_of_a_gpu_is_page_locked_memory_too(lockable, locked, room):
    assert room_for(1000, 100, 64, lockable, locked) == room


def opened(known, given: Counts, rooms: Counts | None, compares: bool = False) -> Tuning:
    state = dict(known)
    compared = state.pop("compared", False)
    history = build(History, state) if state else History.begin(len(given), 4)
    limited = None if rooms is None else replace(history, room=rooms, caps=(Cap(5, "so it is"),))
    trial = Trial(given, 4, "streams") if compares else None
    return Tuning(Tuner(most=9), limited, trial, compared=compared)


@pytest.mark.parametrize(("known", "rooms", "compares", "given", "compared"), [
    ({}, None, False, (3, 1), False),
    ({}, (8, 8), False, (1, 1), False),
    ({}, None, True, (1, 1), False),  # of one learner a rank all executions are one
    ({}, None, True, (1, 2), True),
    ({"compared": True}, None, True, (1, 2), False),
    ({}, (8, 8), True, (1, 1), True),
])  # fmt: skip
def test_what_decides_on_learners(known, rooms: Counts | None, compares, given: Counts, compared):
    tuning = opened(known, given, rooms, compares)
    assert (tuning.decision is None) == (rooms is None)
    assert tuning.compares == compared
    assert tuning.comparing == (compared and rooms is None)


def test_executions_that_were_compared_are_not_compared_again():
    """Also where a run is resumed twice."""
    state = {"compared": True}
    for _ in range(2):
        tuning = opened(state, (1, 2), None, compares=True)
        assert not tuning.compares
        state = tuning.state()


def test_what_a_learner_costs(tmp_path):
    work = auto(tmp_path)
    plan, evaluation = work.training_plan(), work.evaluation_plan()
    assert learner_bytes(plan) == plan.arena_bytes + 2 * 8 * plan.layout.size
    assert learner_bytes(plan, states=2) == learner_bytes(plan) + 2 * 8 * plan.layout.size
    assert learner_bytes(plan, evaluation) == learner_bytes(plan) + evaluation.arena_bytes
    assert learner_bytes(plan, slots=1000) == learner_bytes(plan) + 1000
    assert learner_bytes(plan, states=2, one=True) == plan.arena_bytes + 8 * plan.layout.size
    assert copy_bytes(plan, states=2) == 3 * 8 * plan.layout.size
    assert free_memory(4) < free_memory(2) < free_memory(1)


# Whole runs


@dataclass
class Tuned:
    """A run that has ended: its folder, what its ranks saw, and its plan."""

    folder: Path
    seen: list[tiny.Replay]
    plan: BoundPlan


def run_tuned(folder: Path, iterations: int, *curves: Curve, **settings) -> Tuned:
    plans = []

    def remember(session: Session) -> None:
        if session.iteration == iterations - 1:
            plans.append(session.learners.plan)

    work = auto(folder, iterations, **settings)
    return Tuned(folder, tiny.replay(work, len(curves), parts=on(*curves), before=remember), plans[0])


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> Tuned:
    """Of one rank, where two learners are the fastest."""
    return run_tuned(tmp_path_factory.mktemp("tuned"), 300, TWO, checkpoint=tiny.keeping(10))


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Tuned:
    """Of two ranks, where two learners of the first are the fastest, and three of the second."""
    return run_tuned(tmp_path_factory.mktemp("pair"), 400, TWO, THREE)


def test_it_settles_on_the_peak_and_says_why(tuned: Tuned):
    tmp_path, seen = tuned.folder, tuned.seen
    tiny.check_stream(seen)
    reasons = [
        ([2], False, "learners 1: 100 images/s; trying 2"),
        ([3], False, "learners 2: 200 images/s, 2.00 times those of 1; trying 3"),
        ([4], False, "learners 3: 177 images/s, 0.89 times those of 2; trying 4"),
        ([3], False, "learners 4: 162 images/s, 0.81 times those of 2; trying 3"),
        ([2], True, "learners 3: 177 images/s, 0.89 times those of 2; settled on 2"),
    ]
    assert tuner(tmp_path) == [*reasons, ([2], True, "learners 2: 200 images/s; staying")]
    changes = {20: [2], 40: [3], 60: [4], 80: [3], 100: [2]}  # 3 iterations to warm up, 12 of a window, 2 read ahead
    assert learners(tmp_path) == changes
    assert [len(slots) for slots in seen[0].samples] == 20 * [1] + 20 * [2] + 20 * [3] + 20 * [4] + 20 * [3] + 200 * [2]
    told = [line for line in tiny.log(tmp_path) if "learners" in line and "images/s, learners" not in line]
    pairs = zip(reasons, changes.items(), strict=True)
    assert told == [
        f"tiny: 483 weights, 1 rank(s), learners auto, now 1, batch 3, NumPy; {tmp_path}/run",
        *(text for why, (at, k) in pairs for text in (f"tuner: {why[2]}", f"iteration {at}: learners {k[0]}")),
    ]
    found = tiny.summary(tmp_path)
    assert (found["learners"], found["changes"], found["settled"]) == ([2], 5, True)
    assert found["reason"] == reasons[-1][2]  # of staying there is nothing to say


def test_every_change_tells_its_cost_and_binds_only_who_is_new(tuned: Tuned):
    assert tuned.plan.bound == 4  # learners 1 to 4 once each, though the third came twice
    events = tiny.events(tuned.folder / "run", "learners")
    assert len(events) == 5
    assert all(event["seconds"] > 0 for event in events)
    assert all(event["position"] == sum_of(learners(tuned.folder), event["iteration"]) for event in events)


def sum_of(changes: dict[int, list[int]], iteration: int) -> int:
    """Samples before `iteration`, counted one iteration after the other."""
    now, total = 1, 0
    for i in range(iteration):
        now = sum(changes.get(i, [now]))
        total += 3 * now
    return total


def test_ranks_get_what_each_is_worth_and_change_together(pair: Tuned):
    tmp_path, seen = pair.folder, pair.seen
    tiny.check_stream(seen)
    changes = learners(tmp_path)
    assert list(changes.values())[-1] == [2, 3]
    now = [1, 1]
    for i, had in enumerate(zip(*([len(slots) for slots in one.samples] for one in seen), strict=True)):
        now = changes.get(i, now)
        assert list(had) == now, i
    assert tiny.summary(tmp_path)["learners"] == [2, 3]
    for event in tiny.events(tmp_path / "run", "tuner"):
        assert event["own"] == [
            pytest.approx(curve(k)) for curve, k in zip((TWO, THREE), event["measured"], strict=True)
        ]
        assert event["whole"] == pytest.approx(max(event["own"]))
        assert event["own_error"] + [event["whole_error"]] == pytest.approx([0.0] * 3, abs=1e-9)
        assert (event["looks"], len(event["room"]), min(event["room"]) > 10) == (1, 2, True)
    assert [e["measured"] for e in tiny.events(tmp_path / "run", "tuner")][:2] == [[1, 1], [2, 2]]


def test_the_same_times_are_the_same_run(pair: Tuned, tmp_path):
    again = run_tuned(tmp_path, 400, TWO, THREE)
    assert [replay.centres for replay in again.seen] == [replay.centres for replay in pair.seen]
    assert tiny.same_bits(again.seen[0].weights, pair.seen[0].weights)


def test_a_rank_that_slows_down_loses_learners_and_gets_them_back(tmp_path):
    """Rank 1 takes twice as long from iteration 300 to 900, told to both by what they measure."""
    slow = [False]
    curve = plateau(2, SECONDS)

    def load(session: Session) -> None:
        slow[0] = 300 <= session.iteration < 900

    work = auto(tmp_path, 1700, tuner={"watch": 0.5})
    seen = tiny.replay(work, 2, parts=on(curve, lambda k: curve(k) * (1 + slow[0])), before=load)
    tiny.check_stream(seen)
    at = [event for event in tiny.events(tmp_path / "run", "tuner") if event["settled"]]
    last = {name: [e["wanted"] for e in at if begin <= e["iteration"] < end][-1] for name, begin, end in (
        ("before", 0, 300), ("slow", 300, 900), ("after", 900, 1700),
    )}  # fmt: skip
    assert last == {"before": [2, 2], "slow": [4, 2], "after": [2, 2]}
    said = next(line for line in tiny.log(tmp_path) if " ms per iteration instead of " in line)
    found = re.match(r"tuner: rank 1 takes (\S+) ms per iteration instead of 30; ", said)
    assert found is not None, said
    assert 45 < float(found[1]) <= 60  # the first of two windows may have begun before


def test_out_of_memory_on_one_rank(tmp_path):
    """Rank 1 finds out that a third learner does not fit; all go on, and it never asks for one again."""
    seen = tiny.replay(auto(tmp_path, 500), 2, parts=on(THREE, THREE, most={1: 2}))
    tiny.check_stream(seen)
    assert max(len(slots) for slots in seen[0].samples) > 3
    assert max(len(slots) for slots in seen[1].samples) == 2
    assert tiny.log(tmp_path).count("tuner: rank 1 has no memory for 3 learners") == 1
    (short,) = tiny.events(tmp_path / "run", "no_memory")
    assert (short["rank"], short["wanted"], short["reason"]) == (1, 3, "")
    rooms = [event["room"][1] for event in tiny.events(tmp_path / "run", "tuner")]
    assert {room for room in rooms if room <= 2} == {2}
    assert [room == 2 for room in rooms] == sorted(room == 2 for room in rooms)
    assert tiny.summary(tmp_path)["learners"] == [3, 2]
    assert tiny.summary(tmp_path)["settled"]
    assert any(reason.endswith("; settled on 3 + 2; rank 1 has memory for 2") for _, _, reason in tuner(tmp_path))


@pytest.mark.parametrize("ranks", [1, 2])
def test_memory_that_runs_short_meanwhile_is_asked_for(tmp_path, ranks):
    """There was room for many when the run began; it has gone when a fourth learner is decided on."""
    asked, learner = list[int](), set[int]()

    class Short(Memory):
        def free(self, comm: Communicator) -> int:
            asked.append(comm.local_size)
            return 10**9 if len(asked) <= 3 * ranks else 40_000

    def short(session: Session) -> None:
        learner.add(session.learners.size)

    tiny.replay(
        auto(tmp_path, 300),
        ranks,
        parts=on(*[peak(7, SECONDS)] * ranks, opened=tiny.with_memory(Short())),
        before=short,
    )
    (need,) = map(in_words, learner)
    for rank in range(ranks):
        what = f"tuner: rank {rank} has no memory for 4 learners: new learners need {need}; only 31.2 KiB "
        assert f"{what}may be used" in tiny.log(tmp_path)
    assert set(asked) == {ranks}  # that share a node
    assert tiny.summary(tmp_path)["learners"] == [3] * ranks
    assert tiny.summary(tmp_path)["settled"]


def test_given_learners_without_memory_are_an_error(tmp_path):
    """None is left out in silence."""
    work = tiny.job(tmp_path, learners=1)

    with pytest.raises(MemoryError):
        tiny.replay(work, parts=on(TWO, most={0: 2}), before=tiny.announcing({3: (3,)}))


@pytest.mark.parametrize(("alpha", "most"), [(0.6, 2), (0.9, 1)])
def test_a_fixed_alpha_limits_the_learners(tmp_path, alpha, most):
    rule = {"name": "crossbow", "momentum": 0, "alpha": alpha}
    tiny.replay(auto(tmp_path, 250, rule=rule), parts=on(peak(7, SECONDS)))
    assert tiny.summary(tmp_path)["learners"] == [most]
    said = next(reason for _, settled, reason in tuner(tmp_path) if settled)
    assert said.endswith(f"; settled on {most}; rule.alpha {alpha} is stable with up to {most} learner(s) a rank")


def test_what_tuner_most_allows(tmp_path):
    tiny.replay(auto(tmp_path, 250, tuner={"most": 3}), parts=on(peak(7, SECONDS)))
    assert tiny.summary(tmp_path)["learners"] == [3]
    said = "learners 3: 300 images/s, 1.50 times those of 2; settled on 3; tuner.most is 3"
    assert next(reason for _, settled, reason in tuner(tmp_path) if settled) == said


@pytest.mark.parametrize(("allowed", "said"), [
    (1, []),  # of two ranks on two cores each has its share
    (2, ["tuner: rank 0 has 2 learners on the 2 of 16 cores that it is bound to: binding sets the limit, "
         "not the model; give it more, with taskset, the container's --cpus, or the batch system's cores per task "
         "(2 ranks are)"]),
    (4, []),
])  # fmt: skip
def test_the_log_says_where_binding_sets_the_limit(tmp_path, monkeypatch, allowed, said):
    monkeypatch.setattr(binding, "allowed_cores", lambda: allowed)
    monkeypatch.setattr(binding, "machine_cores", lambda: 2 if allowed == 1 else 16)
    monkeypatch.setattr(binding, "find_launcher", lambda _: None)
    curve = plateau(1, SECONDS) if allowed == 1 else plateau(2, SECONDS)
    tiny.replay(auto(tmp_path, 500, tuner={"watch": 0.5}), 2, parts=on(curve, curve))
    assert tiny.summary(tmp_path)["settled"]
    assert [line for line in tiny.log(tmp_path) if "cores that it is bound to" in line] == said


# Killed and resumed


@pytest.mark.parametrize("cut", [10, 50, 59, 150])
def test_resumed_in_the_middle_of_tuning(tuned: Tuned, tmp_path, cut):
    """What was measured comes back; the window under way begins again."""
    work = auto(tmp_path, checkpoint=tiny.keeping(10))
    tiny.killed(work, cut, on(TWO))
    states = []

    def look(session: Session) -> None:
        if not states:
            states.append((session.iteration, session.tuning.state(), session.tuning.decision))

    seen = tiny.replay(work, parts=on(TWO), before=look, resume="auto")
    begin = cut - cut % 10
    tiny.check_stream(seen, sum_of(learners(tuned.folder), begin))
    ((iteration, state, decision),) = states
    known = [found for found in tiny.events(tuned.folder / "run", "tuner") if found["iteration"] <= begin]
    assert iteration == begin
    assert len(state["windows"]) == len(known)
    assert list(decision.counts) == (known[-1]["wanted"] if known else [1])
    assert tuner(tmp_path)[:5] == tuner(tuned.folder)[:5]
    assert tiny.summary(tmp_path)["learners"] == [2]
    assert tiny.summary(tmp_path)["changes"] == 5


def test_resumed_where_it_had_settled_it_still_knows_why(tmp_path):
    tiny.killed(auto(tmp_path, checkpoint=tiny.keeping(10), tuner={"watch": 0.5}), 250, on(TWO))
    tiny.replay(auto(tmp_path, 400, tuner={"watch": 0.5}), parts=on(TWO), resume="auto")
    why = "learners 3: 177 images/s, 0.89 times those of 2; settled on 2"
    assert tiny.summary(tmp_path)["reason"] == why
    settled = [event for event in tiny.events(tmp_path / "run", "tuner") if event["settled"]]
    assert len(settled) > 2
    assert settled[0]["reason"] == why
    assert tiny.log(tmp_path).count(f"tuner: {why}") == 1
    assert not [line for line in tiny.log(tmp_path) if line.endswith("; staying")]


def test_resumed_with_another_batch_size_it_measures_anew(tmp_path):
    tiny.killed(auto(tmp_path, checkpoint=tiny.keeping(10)), 70, on(TWO))
    with Session(auto(tmp_path, batch_size=5), Single(), "auto") as session:
        assert (session.tuning.history.batch, session.tuning.history.windows) == (5, ())
    with Session(auto(tmp_path, batch_size=5, tuner={"most": 1}), Single(), "auto") as session:
        assert session.replicas.count > 1


def test_resumed_with_given_learners_averaging_restarts(tmp_path):
    tiny.killed(auto(tmp_path, checkpoint=tiny.keeping(10)), 70, on(TWO))
    given = tiny.job(tmp_path, learners=3, iterations=90, checkpoint=tiny.keeping(10))
    tiny.run(given, resume="auto")
    said = tiny.log(tmp_path)
    assert "learners were 4: averaging restarts from the centre, and the optimiser's states are 0" in said
    found = tiny.summary(tmp_path)
    assert (found["learners"], found["settled"]) == ([3], None)
    assert found["samples"] == sum_of({20: [2], 40: [3], 60: [4]}, 70) + 20 * 9
    # And back: it looks for the number anew.
    tiny.replay(auto(tmp_path, 400), parts=on(TWO), resume="auto")
    assert "learners were 3: averaging restarts from the centre, and the optimiser's states are 0" in tiny.log(tmp_path)
    assert (tiny.summary(tmp_path)["learners"], tiny.summary(tmp_path)["settled"]) == ([2], True)


def test_learners_that_the_tuner_chose_are_not_warned_of(tmp_path):
    tiny.killed(auto(tmp_path, checkpoint=tiny.keeping(10)), 100, on(peak(7, SECONDS)))
    (tmp_path / "run/log.txt").unlink()
    tiny.replay(auto(tmp_path, 110), parts=on(peak(7, SECONDS)), resume="auto")
    assert any("learners auto, now 5" in line for line in tiny.log(tmp_path))
    assert not [line for line in tiny.log(tmp_path) if line.startswith("warning: ")]


def with_room(k: int) -> OpenParts:
    """A session's parts, where there is memory for so many learners."""

    class Room(Memory):
        def fits(self, *_) -> int:
            return k

    return tiny.with_memory(Room())


def test_given_learners_that_there_is_no_memory_for_are_warned_of(tmp_path):
    tiny.watch(tmp_path, 2, learners=[2, 3], iterations=2, parts=with_room(2))
    warned = [line for line in tiny.log(tmp_path) if " memory " in line]
    assert warned == ["warning: rank 1 has memory for about 2 of its 3 learners: use fewer, or learners=auto"]


def test_resumed_where_there_is_less_memory(tmp_path):
    tiny.killed(auto(tmp_path, checkpoint=tiny.keeping(10)), 250, on(TWO))
    seen = tiny.replay(auto(tmp_path), parts=on(TWO, opened=with_room(1)), resume="auto")
    assert [len(slots) for slots in seen[0].samples] == [2] * 3 + [1] * 47
    assert tiny.summary(tmp_path)["learners"] == [1]


# Repeated bit for bit


def test_replay_of_a_tuned_run(pair: Tuned, tmp_path):
    second = tiny.replay(auto(tmp_path, 400, learners=f"replay({pair.folder}/run)"), 2)
    assert [replay.centres for replay in second] == [replay.centres for replay in pair.seen]
    assert tiny.same_bits(second[0].weights, pair.seen[0].weights)
    assert learners(tmp_path) == learners(pair.folder)
    assert tiny.summary(tmp_path)["settled"] is None
    assert tiny.summary(tmp_path)["changes"] == len(learners(pair.folder))


def test_replay_of_a_run_that_looked_again(tmp_path):
    """Nothing changes: two windows of it, and 2 is held against 1, 3 and 4 once more."""
    again = {"watch": 0.5, "again": 1.0}
    first = tiny.replay(auto(tmp_path / "first", 280, tuner=again), parts=on(TWO))
    second = tiny.replay(auto(tmp_path / "again", 280, learners=f"replay({tmp_path}/first/run)"))
    assert [k for (k,) in learners(tmp_path / "first").values()] == [2, 3, 4, 3, 2, 1, 3, 4, 3, 2]
    said = "tuner: no change for 1 s or more; learners 2: 200 images/s; trying 1"
    assert tiny.log(tmp_path / "first").count(said) == 1
    assert tiny.same_bits(second[0].weights, first[0].weights)
    assert (tiny.summary(tmp_path / "first")["learners"], tiny.summary(tmp_path / "first")["settled"]) == ([2], True)


@pytest.mark.parametrize("cut", [50, 59, 100])
def test_replay_of_a_run_that_was_resumed_half_way(tmp_path, cut):
    settings = {"checkpoint": tiny.keeping(10), "net": tiny.normed}
    work = auto(tmp_path / "first", **settings)
    tiny.killed(work, cut, on(TWO))
    tiny.replay(work, parts=on(TWO), resume="auto")
    weights = tiny.run(work, resume="auto").weights  # at its end: nothing more to do
    replayed = auto(tmp_path / "again", learners=f"replay({tmp_path}/first/run)", **settings)
    tiny.killed(replayed, 130)
    assert tiny.same_bits(tiny.run(replayed, resume="auto").weights, weights)


def test_checkpoints_hold_few_of_many_changes(tmp_path):
    """Another number of learners in every iteration; resumed bit for bit, and where the run replays another."""
    settings = {"checkpoint": tiny.keeping(20), "net": tiny.normed}

    changes = {iteration: (1 + iteration % 3,) for iteration in range(200)}
    work = auto(tmp_path / "first", 200, **settings | {"learners": 1})
    (first,) = tiny.replay(work, before=tiny.announcing(changes))
    lines = "".join(json.dumps({"event": "learners", "iteration": t, "learners": [t % 2 + 1]}) + "\n"
                    for t in range(200, 3000))  # fmt: skip
    with (tmp_path / "first/run/metrics.jsonl").open("a") as file:  # as of a run that went on
        file.write(lines)
    replayed = auto(tmp_path / "again", 200, learners=f"replay({tmp_path}/first/run)", **settings)
    tiny.killed(replayed, 130)
    weights = tiny.run(replayed, resume="auto").weights
    assert tiny.same_bits(weights, first.weights)
    for name in ("first", "again"):
        for path in (tmp_path / name / "run/checkpoints").glob("iteration-*/checkpoint.json"):
            assert path.stat().st_size < 10_000, path
        assert len(learners(tmp_path / name)) > 180


def test_replay_of_a_run_that_was_killed_within_a_line(tmp_path):
    tiny.killed(auto(tmp_path, log={"every": 1}), 70, on(TWO))
    with (tmp_path / "run/metrics.jsonl").open("a") as file:
        file.write('{"event": "learners", "iteration": 100, "lear')
    timeline = recorded(tmp_path / "run", 1, 3)
    assert [(change.iteration, change.counts) for change in timeline.changes] == [
        (0, (1,)), (20, (2,)), (40, (3,)), (60, (4,)),
    ]  # fmt: skip
    assert timeline.position(70) == sum_of({change.iteration: list(change.counts) for change in timeline.changes}, 70)


def test_replay_of_given_learners(tmp_path):
    first = tiny.train(tmp_path, 2, learners=[2, 1])
    assert recorded(tmp_path / "run", 2, 3) == fixed(3, (2, 1))
    again = tiny.job(tmp_path, learners=f"replay({tmp_path}/run)", name="again")
    assert tiny.same_bits(tiny.run(again, 2).weights, first.weights)


def test_what_cannot_be_replayed(tmp_path):
    run = tmp_path / "run"

    def refused(ranks: int = 1) -> str:
        return refusal_of(tiny.train, tmp_path / "new", ranks, learners=f"replay({run})", error=ConfigError)

    with tiny.unchanged(tmp_path):
        assert refused() == (
            f"learners: {run}/metrics.jsonl: cannot be read: no such file or directory; "
            "replay(RUN) takes a run directory"
        )
    tiny.train(tmp_path, 2, learners=[2, 1])
    with tiny.unchanged(tmp_path):
        assert refused(1) == f"learners: {run} had 2 rank(s), got 1; start as many"
    later = '{"event": "start", "iteration": 5, "learners": [1]}\n'
    for content in ("", '{"event": "train", "iteration": 5, "learners": [1]}\n', later, later[:-1]):
        (run / "metrics.jsonl").write_text(content)
        assert refused() == f"learners: {run}/metrics.jsonl: has no number of learners for the start of the run"
    for line in ("[]", "{}", "null", "{", '{"event": "learners"}', '{"event": "start", "iteration": 0, "learners": 1}'):
        (run / "metrics.jsonl").write_text(f"{later}{line}\n{later}")
        assert refused() == f"learners: {run}/metrics.jsonl: line 2 is not an event of a run"
    first = '{"event": "start", "iteration": 0, "learners": [1]}\n'
    for line in (
        '{"event": "learners", "iteration": 0, "learners": [2]}',
        '{"event": "learners", "iteration": 7, "learners": [2, 1]}',
        '{"event": "learners", "iteration": 7, "learners": [0]}',
        '{"event": "learners", "iteration": 7, "learners": []}',
    ):
        (run / "metrics.jsonl").write_text(f"{first}{line}\n")
        assert refused() == f"learners: {run}/metrics.jsonl: line 2 is not an event of a run"
    for iteration, counts, words in ((5, [1, 1], "1 + 1"), (9, [1], "1")):
        change = '{"event": "learners", "iteration": 9, "learners": [2]}\n'
        more = json.dumps({"event": "start", "iteration": iteration, "learners": counts})
        (run / "metrics.jsonl").write_text(f"{first}{change if iteration == 9 else ''}{more}\n")
        assert refused() == (
            f"learners: {run}/metrics.jsonl: line {3 if iteration == 9 else 2}: the run was resumed at iteration "
            f"{iteration} with learners {words} where it had {2 if iteration == 9 else 1}, or with another rule, and "
            "began to average anew: it cannot be replayed, give one that can"
        )


@pytest.mark.parametrize("other", [{"learners": 1}, {"learners": 3}, {"rule": {"name": "ssgd"}}])
def test_a_run_that_began_to_average_anew_cannot_be_replayed(tmp_path, other):
    """Though it may have had as many learners before and after."""
    tiny.killed(auto(tmp_path, checkpoint=tiny.keeping(10)), 69, on(TWO))
    tiny.train(tmp_path, 1, resume="auto", **{"learners": "auto", "iterations": 70, **other})
    with pytest.raises(
        ConfigError, match=r"line \d+: the run was resumed at iteration 60 with learners . where it had 3"
    ):
        recorded(tmp_path / "run", 1, 3)


def test_learners_that_change_where_a_run_is_resumed_are_replayed(tmp_path):
    lines = [
        {"event": "start", "iteration": 0, "learners": [1]},
        {"event": "start", "iteration": 9, "learners": [1], "execution": "streams"},
        {"event": "learners", "iteration": 9, "learners": [2], "execution": "streams"},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    changes = recorded(tmp_path, 1, 4).changes
    assert [(change.iteration, change.counts, change.execution) for change in changes] == [
        (0, (1,), ""), (9, (2,), "streams"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"log": {"every": 7}}, None),
        ({"seed": 2, "batch_size": 4, "rule": {"name": "ssgd"}}, "different batch_size, rule, seed"),
        ({"assignment": "first_come"}, "different assignment, assignment: first_come"),
    ],
)
def test_a_replay_with_other_settings_is_told(tmp_path, settings, said):
    tiny.train(tmp_path / "first", learners=2)
    run = tmp_path / "first/run"
    tiny.train(tmp_path, learners=f"replay({run})", **settings)
    told = [line for line in tiny.log(tmp_path) if line.startswith("replaying ")]
    assert told == (
        [f"replaying the learners of {run}, but the results will not be bit-identical: {said}"] if said else []
    )


def test_a_replay_of_a_run_that_was_resumed_with_other_settings_is_told(tmp_path):
    """Which are those of its config.yaml from then on; where it is refused, nothing is written."""
    run, short = tmp_path / "first/run", {"epochs": None, "iterations": 20}
    job = lambda rate, more: tiny.job(  # noqa: E731
        tmp_path / "first",
        learners=2,
        stop={**short, "iterations": more},
        update={"lr": rate},
        checkpoint={"every": "10 iterations"},
    )
    tiny.run(job(0.1, 20))
    tiny.run(job(0.1, 30), resume="auto")
    assert "differ from before" not in (run / "log.txt").read_text()
    again = tiny.job(tmp_path, name="again", learners=f"replay({run})", stop=short, update={"lr": 0.1})
    tiny.run(again)
    assert "replaying" not in (tmp_path / "again/log.txt").read_text()

    tiny.run(job(0.05, 40), resume="auto")
    assert "settings that differ from before: update" in tiny.log(tmp_path / "first")
    assert [event.get("other") for event in tiny.events(run, "start")] == [None, None, ["update"]]
    assert yaml_text.read(run / "config.yaml")["update"]["lr"] == 0.05
    late = tiny.job(tmp_path, learners=f"replay({run})", stop=short, update={"lr": 0.05})
    tiny.run(late)
    said = f"replaying the learners of {run}, but the results will not be bit-identical: resumed with different update"
    assert tiny.log(tmp_path)[:2].count(said) == 1


def test_a_replay_without_the_settings_of_then_is_told(tmp_path):
    tiny.train(tmp_path / "first", learners=2)
    run = tmp_path / "first/run"
    (run / "config.yaml").unlink()
    tiny.train(tmp_path, learners=f"replay({run})")
    said = "but the results will not be bit-identical: different config.yaml, which is missing"
    assert f"replaying the learners of {run}, {said}" in tiny.log(tmp_path)


# Who takes which batch


@pytest.mark.parametrize(("assignment", "taken"), [("first_come", [1, 0]), ("fixed", [0, 1])])
def test_who_begins_first_takes_the_first_batch_or_its_own(tmp_path, assignment, taken):
    """Learner 1 begins before learner 0; `taken` are the batches' numbers of learners 0 and 1."""
    found: dict[int, bytes] = {}

    def backwards(tasks: list, name: str = "batch") -> list:
        return [task() for task in reversed(tasks)][::-1]

    def compute(slot, i: int, own):
        found[i] = slot.samples.tobytes()
        return type(own).compute(own, slot)

    def before(session: Session) -> None:
        session.scheduler.run = backwards  # type: ignore[method-assign, assignment]
        for i, learner in enumerate(session.learners.working):
            learner.compute = partial(compute, i=i, own=learner)

    work = tiny.job(tmp_path, learners=2, assignment=assignment, iterations=1)
    (seen,) = tiny.replay(work, before=before)
    batches = [samples.tobytes() for samples in seen.samples[0]]
    assert [batches.index(found[i]) for i in range(2)] == taken


@pytest.mark.parametrize("ranks", [1, 2])
def test_first_come_takes_every_slot_once(tmp_path, monkeypatch, ranks):
    """With learners that differ, too, no slot is left or taken twice, and the net is learnt."""
    taken: list[bytes] = []
    from mpibow.learn.learners import Learner

    compute = Learner.compute

    def watched(self: Learner, slot):
        taken.append(slot.samples.tobytes())
        return compute(self, slot)

    monkeypatch.setattr(Learner, "compute", watched)
    stop = {"epochs": 12}
    work = tiny.job(tmp_path, learners=3, assignment="first_come", stop=stop, evaluate={"every": 10**6})
    seen = tiny.replay(work, ranks)
    tiny.check_stream(seen)
    given = [samples.tobytes() for replay in seen for slots in replay.samples for samples in slots]
    assert sorted(taken) == sorted(given)
    assert tiny.summary(tmp_path)["accuracy"] > 0.9  # chance is a third


# Random changes for long


@pytest.mark.slow
def test_800_random_changes(tmp_path):
    """No deadlock, and no object that a change leaves behind; of samples and centres see `random_changes`.

    Python counts the blocks that its objects take. A hundred and more come and go in caches, so the least of several
    counts is compared: an object that each rank kept for every change would be 400 and more.
    """
    iterations, early, late = 2000, range(1000, 1200, 20), range(1780, 1980, 20)
    generator = np.random.default_rng(2)
    moments = sorted(generator.choice(np.arange(100, iterations - 10), 800, replace=False).tolist())
    wanted = {0: (4, 4)} | {i: tuple(generator.integers(1, 5, 2).tolist()) for i in moments}
    work = tiny.job(
        tmp_path, iterations=iterations, evaluate={"every": 20}, log={"every": 40}, rule={"name": "sma", "resync": 200}
    )
    blocks = {iteration: 0 for iteration in (*early, *late)}

    def body(comm: Communicator) -> None:
        signals, barrier = Signals(), methodcaller("barrier")
        with Session(work, comm) as session:
            while not session.limit_reached():
                if session.iteration in wanted:
                    session.coordinator.announce(session.iteration, wanted[session.iteration])
                if session.iteration in blocks:
                    session.synchroniser.call(barrier)  # nobody is within a pass, which has a scratch of its own
                    if session.rank == 0:
                        gc.collect()
                        blocks[session.iteration] = sys.getallocatedblocks()
                    session.synchroniser.call(barrier)
                iterate(session, signals)

    gc.freeze()  # what other tests left is not looked through again and again
    try:
        on_threads(2, body)
    finally:
        gc.unfreeze()
    assert len(learners(tmp_path)) > 500
    assert min(blocks[i] for i in late) - min(blocks[i] for i in early) < 250, blocks


# As users start it


@needs_mpi
def test_learners_auto_on_several_ranks(tmp_path):
    write_run(tmp_path, learners="auto", device="auto", stop={"epochs": None, "iterations": 12000}, tuner={"most": 3})
    done = well(mpirun(RANKS, "-m", "mpibow.train", "run.yaml", "out=runs", cwd=tmp_path))
    found = tiny.summary(tmp_path / "runs")
    assert found["stopped"] == "stop.iterations 12000"
    assert all(1 <= k <= 3 for k in found["learners"])
    assert len(found["learners"]) == RANKS
    assert isinstance(found["settled"], bool)
    assert "tuner: learners 1 + 1" in done.stderr or RANKS != 2
    changes = tiny.events(tmp_path / "runs/run", "learners")
    assert found["changes"] == len(changes) > 0
