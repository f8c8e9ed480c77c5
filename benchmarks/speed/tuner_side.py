"""One run for bench_tuner.py: trains a model on made-up data, and says how fast, with how many learners, since when.

    python -m benchmarks.speed.tuner_side resnet32 --seconds 8 learners=auto     # also under mpirun; one line of JSON

Every phase waits until the tuner has settled, `--wait` seconds at most, and is then measured for `--seconds`. With
--slowed there are three: as it is, with a busy loop on the core `--load`, and after that has ended. With --turns the
numbers of learners that it names take turns within this run, each measured for `--seconds`, `--rounds` times.
`seconds_of_changes` is what each change of learners took.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.sides import parser_of
from mpibow.bench import WARM_UP
from mpibow.comm import Communicator, run_ranks
from mpibow.comm.launch import find_launcher
from mpibow.job.synthetic import made_up_job
from mpibow.run.results import versions
from mpibow.run.session import Session
from mpibow.run.signals import Signals
from mpibow.train import iterate
from mpibow.tune import Counts

ASK_EVERY = 5  # iterations after which rank 0 says whether to go on
# Every other millisecond is its own, as on a throttled core, where it may have a real-time priority. Else it never
# sleeps, in a session of its own, as another's program: Linux shares a core between sessions, threads within them.
LOOP = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    pause = 0.001
except OSError:
    pause = 0.0
while os.getppid() == int(sys.argv[2]):
    end = time.perf_counter() + 0.001
    while time.perf_counter() < end:
        pass
    if pause:
        time.sleep(pause)
"""


class Loop:
    """Iterations until rank 0 has enough of them."""

    def __init__(self, session: Session, signals: Signals) -> None:
        self.session, self._signals = session, signals

    def until(self, enough: Callable[[], bool]) -> tuple[int, float]:
        """Samples and seconds until then."""
        begin, position, more, n = time.perf_counter(), self.session.position, np.ones(1), 0
        while more[0]:
            iterate(self.session, self._signals)
            n += 1
            if n % ASK_EVERY == 0:
                more[0] = float(not enough())
                self.session.synchroniser.call(lambda comm: comm.broadcast(more))
        return self.session.position - position, time.perf_counter() - begin

    @property
    def settled(self) -> bool:
        tuning, session = self.session.tuning, self.session
        if tuning.comparing or session.learners.execution != session.coordinator.execution:
            return False
        return tuning.decision is None or (tuning.decision.settled and tuning.decision.counts == session.counts)

    def phase(self, name: str, wait: float, seconds: float, least: float = 0.0) -> dict[str, object]:
        """`least`: seconds that the tuner is given in any case, to see that something has changed."""
        begin = time.perf_counter()
        self.until(lambda: time.perf_counter() - begin > wait or (self.settled and time.perf_counter() - begin > least))
        settled, waited, counts = self.settled, time.perf_counter() - begin, self.session.counts
        end = time.perf_counter() + seconds
        samples, took = self.until(lambda: time.perf_counter() > end)
        return {
            "name": name, "images_per_second": samples / took, "waited": waited, "settled": settled,
            "learners": counts, "later": self.session.counts, "execution": self.session.learners.execution,
        }  # fmt: skip

    def turns(self, each: Sequence[Counts], rounds: int, seconds: float) -> list[list[float]]:
        """images/s with each of these learners by rank, by round: the same process, arrays and minutes for all."""
        rates: list[list[float]] = [[] for _ in each]
        for i in range(rounds):
            turns = list(zip(each, rates, strict=True))
            for counts, found in turns if i % 2 == 0 else reversed(turns):
                self._change(counts)
                end = time.perf_counter() + seconds
                samples, took = self.until(lambda end=end: time.perf_counter() > end)  # type: ignore[misc]
                found.append(samples / took)
        return rates

    def _change(self, counts: Counts) -> None:
        if counts != self.session.counts:
            self.session.coordinator.announce(self.session.iteration, counts)
        while counts != self.session.counts:
            iterate(self.session, self._signals)
        for _ in range(WARM_UP):
            iterate(self.session, self._signals)


@contextmanager
def busy(core: int | None) -> Iterator[None]:
    """A loop that takes half of the core; it ends with this process at the latest."""
    if core is None:
        yield
        return
    line = [sys.executable, "-c", LOOP, str(core), str(os.getpid())]
    loop = subprocess.Popen(line, start_new_session=True)
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


def measure(arguments: argparse.Namespace, comm: Communicator, note: str) -> int:
    threadpool_limits(1)
    cores = sorted(arguments.cores)
    core = cores[arguments.load] if arguments.load is not None and comm.rank == 0 else None
    with tempfile.TemporaryDirectory() as folder:
        job = made_up_job(arguments, comm.share(folder)[0])
        with Signals() as signals, Session(job, comm) as session:
            loop, phases, turns = Loop(session, signals), [], []
            for _ in range(WARM_UP):
                iterate(session, signals)
            wait, seconds, least = arguments.wait, arguments.seconds, arguments.least
            if arguments.turns:
                with busy(core):
                    turns = loop.turns([tuple(each) for each in arguments.turns], arguments.rounds, seconds)
            elif arguments.slowed:
                phases.append(loop.phase("before", wait, seconds))
                with busy(core):
                    phases.append(loop.phase("slowed", wait, seconds, least))
                phases.append(loop.phase("after", wait, seconds, least))
            else:
                with busy(core):
                    phases.append(loop.phase("all", wait, seconds))
            changes = session.ledger.changes
            took = seconds_of_changes(session.reporter.folder / "metrics.jsonl") if comm.rank == 0 else []
            kernels = session.job.kernels.name
            session.settle()
        comm.barrier()  # rank 0's folder is every rank's
    if comm.rank == 0:
        about = {"changes": changes, "seconds_of_changes": took, "versions": {**versions(), "kernels": kernels}}
        print(json.dumps({"phases": phases, "turns": turns, **about}))
    return 0


def seconds_of_changes(metrics: Path) -> list[float]:
    """What each change of learners took, binding of new ones included, in their order."""
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [event["seconds"] for event in events if event["event"] == "learners"]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("model")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--device", choices=["auto", "cuda", "onednn", "numpy"], help="what to compute on (auto)")
    parser.add_argument("--seconds", type=float, default=8.0, help="to measure a phase (8)")
    parser.add_argument("--wait", type=float, default=60.0, help="for the tuner, at most (60)")
    parser.add_argument("--least", type=float, default=0.0, help="for the tuner, at least, where something changed (0)")
    parser.add_argument("--bind", help="cores of the ranks, by number, as 0,1: a core each")
    parser.add_argument("--load", type=int, metavar="CORE", help="a busy loop on this core")
    parser.add_argument("--slowed", action="store_true", help="the busy loop comes and goes")
    parser.add_argument("--turns", type=json.loads, metavar="JSON", help="learners by rank: [[1, 1], [2, 1]]")
    parser.add_argument("--rounds", type=int, default=5, help="of turns (5)")
    parser.add_argument("overrides", nargs="*", metavar="key.path=value")
    arguments = parser.parse_intermixed_args()
    arguments.shape = arguments.classes = None
    arguments.cores = os.sched_getaffinity(0)
    if arguments.bind:  # before any thread is there
        launcher, cores = (
            find_launcher(os.environ),
            [sorted(arguments.cores)[int(i)] for i in arguments.bind.split(",")],
        )
        os.sched_setaffinity(0, {cores[(launcher.rank if launcher else 0) % len(cores)]})
    run_ranks(partial(measure, arguments))


if __name__ == "__main__":
    main()
