"""What the tuner is told of an iteration's time: by hand, on made-up clocks, and of ranks that wait for each other."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpibow.comm import Communicator, on_threads
from mpibow.run.signals import Signals
from mpibow.session import Session
from mpibow.train import iterate
from mpibow.tune import Reading
from tests.kernels.cuda.host import needs_compiler
from tests.run import tiny
from tests.simulated.gpu import simulated
from tests.simulated.test_whole_runs import work

LONG = {"most": 1, "window": 1000.0}  # nothing is concluded while a test runs


def test_a_rank_that_waits_for_another_knows_what_is_its_own(tmp_path: Path) -> None:
    """Rank 1's learner sleeps; the times are those of a clock."""
    readings: dict[int, Reading] = {}

    def before(session: Session) -> None:
        if session.iteration == 0 and session.rank == 1:
            compute = session.learners[0].compute
            session.learners[0].compute = lambda slot: [time.sleep(0.03), compute(slot)][1]
        if session.iteration == 19 and (reading := session.tuning.reading()) is not None:
            readings[session.rank] = reading

    stop = {"epochs": None, "iterations": 20}
    tiny.replay(tiny.job(tmp_path, learners="auto", tuner=LONG, stop=stop), 2, before=before, settle=False)
    assert readings[0].own.seconds < readings[0].whole.seconds
    assert readings[0].own.seconds < readings[1].own.seconds


@needs_compiler
@pytest.mark.parametrize("rule", ["auto-late", "ssgd"])
def test_a_gpus_rank_takes_from_the_devices_clock_what_it_waited(tmp_path: Path, rule: str) -> None:
    """Its host has waited for nothing."""
    job = work(tmp_path, learners=1, rule=tiny.RULES[rule])

    def body(comm: Communicator) -> tuple[float, float]:
        opened = simulated(comm.rank, job.config.precision, shared=True)
        own = replace(job, config=replace(job.config, device="cuda"), opened=opened)
        apart = list[float]()
        with Signals() as signals, Session(own, comm) as session:

            def measured(own: float, whole: float, counts: Any) -> None:
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
