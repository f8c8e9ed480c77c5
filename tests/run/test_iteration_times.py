"""What the tuner is told of an iteration's time: by hand, on made-up clocks, and of ranks that wait for each other."""

import time
from dataclasses import replace

from mpibow.comm import Communicator
from mpibow.run import tuning
from mpibow.run.session import Session
from mpibow.run.signals import Signals
from mpibow.run.tuning import IterationTimes
from mpibow.train import iterate
from mpibow.tune import Reading
from tests.clock import Clock
from tests.comm.threads import on_threads
from tests.cuda.kernels.host import needs_compiler
from tests.cuda.simulated.gpu import simulated
from tests.cuda.simulated.test_whole_runs import work
from tests.run import tiny

LONG = {"most": 1, "window": 1000.0}  # nothing is concluded while a test runs


def test_a_rank_that_waits_for_another_knows_what_is_its_own(tmp_path):
    """Rank 1's learner sleeps; the times are those of a clock."""
    readings: dict[int, Reading] = {}

    def before(session: Session) -> None:
        if session.iteration == 0 and session.rank == 1:
            learner = session.learners.working[0]
            compute = learner.compute
            learner.compute = lambda slot: [time.sleep(0.03), compute(slot)][1]
        if session.iteration == 19 and (reading := session.tuning.reading()) is not None:
            readings[session.rank] = reading

    stop = {"epochs": None, "iterations": 20}
    tiny.watch(tmp_path, 2, learners="auto", tuner=LONG, stop=stop, before=before, settle=False)
    assert readings[0].own.seconds < readings[0].whole.seconds
    assert readings[0].own.seconds < readings[1].own.seconds


@needs_compiler
@tiny.rules("auto", "ssgd")  # where nothing is hidden behind compute
def test_a_gpus_rank_takes_from_the_devices_clock_what_it_waited(tmp_path, rule):
    """Its host has waited for nothing."""
    job = work(tmp_path, learners=1, rule=tiny.RULES[rule])

    def body(comm: Communicator) -> tuple[float, float]:
        opened = simulated(comm.rank, job.config.precision, shared=True)
        own = replace(job, config=replace(job.config, device="cuda"), device=opened)
        apart = list[float]()
        with Signals() as signals, Session(own, comm) as session:

            def measured(own: float, whole: float, counts) -> None:
                apart.append(whole - own)

            session.tuning.measured = measured  # type: ignore[method-assign]
            while not session.limit_reached():
                iterate(session, signals)
            assert session.synchroniser.waited == 0.0
            waited = session.synchroniser.seconds()[0]
            session.finish("by hand")
        return sum(apart), waited

    for apart, waited in on_threads(2, body):
        assert 0 < apart <= waited * (1 + 1e-9)


def test_a_lap_by_hand(monkeypatch):
    clock, waited = Clock(monkeypatch, tuning), [0.0]
    laps = IterationTimes(lambda: waited[0])
    clock.now = 7.0  # before the first iteration
    assert laps.lap() is None
    clock.now, waited[0] = 10.0, 0.5
    assert laps.lap() == (2.5, 3.0)
    clock.now, waited[0] = 11.0, 0.75
    with laps.aside():
        clock.now, waited[0] = 111.0, 90.75
    clock.now = 112.0
    assert laps.lap() == (1.75, 2.0)
    with laps.aside():
        clock.now = 120.0
    clock.now = 121.0
    assert laps.lap() == (1.0, 1.0)


def test_an_iteration_is_all_of_the_loop_but_what_is_only_now_and_then(tmp_path, monkeypatch):
    """Metrics take half a second, what is outside of it one; changes, talk, evaluation and checkpoints a hundred."""
    clock, found = Clock(monkeypatch, tuning), list[float]()
    done = dict.fromkeys(("change_learners", "talk", "evaluate", "save"), 0)

    def counted(name: str, function):
        def call(*args, **kwargs):
            done[name] += 1
            return function(*args, **kwargs)

        return clock.slowed(call, 100.0)

    def before(session: Session) -> None:
        if session.iteration == 0:
            for name in done:
                owner = session.synchroniser if name == "talk" else session
                setattr(owner, name, counted(name, getattr(owner, name)))
            session.reporter.trained = clock.slowed(session.reporter.trained, 0.5)  # type: ignore[method-assign]
            session.tuning.measured = lambda own, whole, _: found.append(whole)  # type: ignore[method-assign]
        if session.iteration == 5:
            session.coordinator.announce(5, (2,))
        session.talk_due = session.iteration % 4 == 0
        clock.now += 1.0

    settings = {"evaluate": {"every": 0.5}, "checkpoint": {"every": "5 iterations"}, "log": {"every": 1}}
    tiny.watch(tmp_path, learners=1, before=before, settle=False, **settings)  # type: ignore[arg-type]
    assert found == [1.5] * 39
    assert done["change_learners"] == 1
    assert min(done.values()) >= 1
    assert (done["talk"], done["evaluate"] > 3, done["save"] > 7) == (10, True, True)
