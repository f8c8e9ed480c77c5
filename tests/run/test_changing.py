"""What follows from a decision: who binds what, what is announced, and what it cost; on a made-up clock."""

from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

from mpibow.comm import Communicator
from mpibow.comm.communicator import Single
from mpibow.data import fixed
from mpibow.errors import CommunicationError
from mpibow.run import changing
from mpibow.run.changing import tune
from mpibow.run.coordinator import Coordinator
from mpibow.run.session import Session
from mpibow.run.tuning import Tuning
from mpibow.tune import Decision, Reading, Tuner, decide
from tests.clock import Clock
from tests.comm.threads import on_threads
from tests.refusals import refuses
from tests.run import tiny
from tests.run.test_tuning import TWO, auto, on
from tests.tune.windows import history, window

SPAN = Tuner().looking


@dataclass
class Ranks:
    """One rank's announcer; to talk takes a second, to bind a learner five."""

    clock: Clock
    bound: int = 1
    told: list = field(default_factory=list)

    def session(self, coordinator: Coordinator, tuning: Tuning):
        """A session of which nothing but this is there."""
        reporter = SimpleNamespace(no_memory=lambda *what: self.told.append(what), tuned=lambda *_: None)
        return SimpleNamespace(
            coordinator=coordinator, tuning=tuning, rank=0, iteration=10, binding_seconds=0.0, where=None,
            reporter=reporter, synchroniser=SimpleNamespace(talk=self.talk, call=None), comm=Single(),
            learners=SimpleNamespace(bind_within=lambda _, *what: self.bind(*what)),
            job=SimpleNamespace(device=SimpleNamespace(enqueues=True)), cores_checked=(),
        )  # fmt: skip

    def talk(self, own) -> list:
        self.clock.now += 1.0
        return [own]

    def bind(self, count: int, execution: str) -> str | None:
        self.clock.now += 5.0 * max(count - self.bound, 0)
        self.bound = max(count, self.bound)
        return None


def decided(k: int, settled: bool = False) -> Decision:
    return Decision((k,), settled, f"trying {k}", SPAN)


def test_a_change_costs_what_its_learners_were_bound_for(monkeypatch):
    """However long learners were looked at before."""
    ranks, coordinator = Ranks(Clock(monkeypatch, changing)), Coordinator(fixed(4, (1,)), prefetch=2)
    session = ranks.session(coordinator, Tuning(Tuner()))
    tune(session, decided(3))
    assert coordinator.timeline().changes[-1].iteration == 13
    assert session.binding_seconds == 11.0
    for session.iteration in range(20, 2020, 20):
        tune(session, decided(3, settled=True))
    assert len(coordinator.timeline().changes) == 2
    for k, seconds in ((4, 6.0), (2, 1.0)):
        session.binding_seconds, session.iteration = 0.0, session.iteration + 20
        tune(session, decided(k))
        assert session.binding_seconds == seconds


def test_fewer_learners_that_have_no_memory_leave_those_that_there_are(monkeypatch):
    """Fused ones take new memory whatever their number: of six that run a look wants five."""
    six = window((6,), [0.1], settled=True)
    ranks, coordinator = Ranks(Clock(monkeypatch)), Coordinator(fixed(4, (6,), execution="fused"), prefetch=2)

    def bind(count: int, execution: str) -> str | None:
        assert len(ranks.told) < 9, "it asks for ever"
        return None if count == 6 else "full"

    ranks.bind = bind  # type: ignore[method-assign]
    tuning = Tuning(Tuner(), replace(history(six), calm=10))
    for pauses in (1, 2, 4):  # ever more rarely, as where a look finds nothing better
        for _ in range(12 * pauses):
            if (found := tuning.conclude([Reading(*six.own, six.whole, 60.0)])) is not None and not found.settled:
                break
        assert found == decide(tuning.history, Tuner())
        assert found.counts == (5,)
        tune(ranks.session(coordinator, tuning), found)
        assert tuning.decision == Decision((6,), True, "staying with 6: rank 0: full", Tuner().watching)
    assert ranks.told == [(0, 5, "full")] * 3
    assert len(coordinator.timeline().changes) == 1
    assert tuning.state()["room"] == (None,)


def test_ranks_that_decide_differently_are_an_error(monkeypatch):
    """Before any of them goes on; though one of them stays as it is."""

    def body(comm: Communicator, own: Decision) -> int:
        coordinator = Coordinator(fixed(4, (1, 1)), prefetch=2)
        session = Ranks(Clock(monkeypatch)).session(coordinator, Tuning(Tuner()))
        session.rank, session.synchroniser.talk = comm.rank, comm.share
        with suppress(CommunicationError) if comm.rank == 0 else nullcontext():
            tune(session, own)
        return len(coordinator.timeline().changes)

    stay, change = (Decision(counts, True, "", SPAN) for counts in ((1, 1), (2, 1)))
    assert on_threads(2, lambda comm: body(comm, change)) == [2, 2]
    fused = replace(stay, execution="fused")
    for other, words in ((change, "2 + 1"), (fused, "1 + 1 fused")):
        with refuses(
            f"rank 1: decided on learners {words}, rank 0 on 1 + 1, from the same times; start all ranks with the same "
            "Python and mpibow",
            CommunicationError,
        ):
            on_threads(2, lambda comm, other=other: body(comm, other if comm.rank else stay))


def test_a_run_tells_all_that_a_change_cost(tmp_path, monkeypatch):
    """Five seconds a learner that is new, seventy to change: also the change that comes after many looks."""
    clock = Clock(monkeypatch, changing)
    faster = [TWO]

    def slow(session: Session) -> None:
        if session.iteration == 0:
            ranks = Ranks(clock)
            bind, change = session.learners.bind, session.change_learners

            def bound(count: int, execution: str) -> None:
                ranks.bind(count, execution)
                bind(count, execution)

            def changed(*arguments) -> None:
                clock.now += 70.0
                change(*arguments)

            session.learners.bind, session.change_learners = bound, changed  # type: ignore[method-assign, assignment]
        if session.iteration == 400:
            faster[0] = lambda k: 2 * TWO(k)

    work = auto(tmp_path, 700, tuner={"watch": 0.5})
    tiny.replay(work, parts=on(lambda k: faster[0](k)), before=slow)
    looks = [event for event in tiny.events(tmp_path / "run", "tuner") if event["iteration"] < 400]
    assert sum(event["settled"] for event in looks) > 5
    seconds = [(e["learners"], e["seconds"]) for e in tiny.events(tmp_path / "run", "learners")]
    assert seconds[:5] == [([2], 75.0), ([3], 75.0), ([4], 75.0), ([3], 70.0), ([2], 70.0)]
    assert len(seconds) > 5
    assert {took for learners, took in seconds[5:] if learners[0] <= 4} == {70.0}
