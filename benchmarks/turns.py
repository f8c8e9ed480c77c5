"""Sides that train in turn within one process: their samples/s by round, and the interval of a ratio."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import comb

from benchmarks.asked import Refused
from benchmarks.sides import note
from mpibow.bench import next_look
from mpibow.comm import Communicator, Single
from mpibow.config import load_mapping
from mpibow.data import Array, NamedArrays
from mpibow.job import Job, make_job
from mpibow.models import LossNet
from mpibow.run.session import Session
from mpibow.run.signals import Signals
from mpibow.train import iterate

Side = Callable[[float], float]  # seconds -> samples/s
Rounds = Mapping[str, Sequence[float]]  # samples/s of each side by round


class Ours:
    """A session whose samples/s, of all ranks, are measured in windows."""

    def __init__(self, session: Session, warm_up: int = 20, comm: Communicator | None = None) -> None:
        self._session, self._comm, self._signals = session, comm or Single(), Signals()  # nobody catches any
        for _ in range(warm_up):
            iterate(session, self._signals)

    def __call__(self, seconds: float) -> float:
        session, count, begin, look = self._session, 0, time.perf_counter(), 1
        while count < look or (look := next_look(session, self._comm, begin, seconds, count)):
            iterate(session, self._signals)
            count += 1
        return count * sum(session.counts) * session.config.batch_size / (time.perf_counter() - begin)


def job(
    name: str,
    losses: LossNet,
    data: Mapping[str, Array],
    batch: int,
    learners: int,
    device: str,
    out: str,
    **more: object,
) -> Job:
    """Training that writes nothing but a run directory in `out`; `more` are other settings."""
    settings = {
        "batch_size": batch, "device": device, "learners": learners, "stop": {"iterations": 10**9},
        "checkpoint": {"every": None}, "log": {"every": 10**9}, "out": out, **more,
    }  # fmt: skip
    config = load_mapping(settings, model_given=True, data_given=True)
    return make_job(name, config, losses, NamedArrays(data), None, normalise="channel")


@contextmanager
def opened(make: Callable[[str], Job]) -> Iterator[Ours]:
    """A session of the job that `make` has for a folder."""
    with tempfile.TemporaryDirectory() as folder:
        made = make(folder)
        with Session(made, Single()) as session:
            yield Ours(session, 4)
            session.settle()


def in_turn(sides: Mapping[str, Side], pairs: int, seconds: float) -> dict[str, list[float]]:
    """Figures of each side by round, every other round in reverse; a side that refuses to warm up is left out."""
    ready = dict[str, Side]()
    for name, side in sides.items():  # warm up, and compile
        try:
            side(seconds / 4)
            ready[name] = side
        except Refused as error:
            note(f"  {name} is left out: {error}")
    rounds = {name: list[float]() for name in ready}
    for number in range(pairs):
        for name in list(ready) if number % 2 else reversed(ready):
            rounds[name].append(ready[name](seconds))
    return rounds


def ratios(rounds: Rounds, one: str, other: str) -> list[float]:
    """Of each round."""
    return [a / b for a, b in zip(rounds[one], rounds[other], strict=True)]


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """The narrowest pair of order statistics, equally far from both ends, that holds the median with 95 %."""
    ranked, n = sorted(ratios), len(ratios)
    outside = [2 * sum(comb(n, i) for i in range(cut)) / 2**n for cut in range(n // 2 + 1)]  # [cut - 1], [n - cut]
    cut = max((c for c in range(1, n // 2 + 1) if outside[c] <= 0.05), default=1)
    return ranked[cut - 1], ranked[n - cut]
