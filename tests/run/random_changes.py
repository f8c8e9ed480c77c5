"""Learners that come and go at random in processes of their own: python -m tests.run.random_changes FOLDER DELAY.

Under mpirun, on oneDNN. Fails where a sample is lost or doubled, or ranks' centres differ; prints, as JSON, how many
changes there were and the bytes by which each rank's memory has grown since all of its learners were there.
"""

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import psutil
from threadpoolctl import threadpool_limits

from mpibow import dense, flatten, relu
from mpibow.comm import Communicator, checksum, run_ranks
from mpibow.graph import Tensor
from mpibow.run.session import Session
from mpibow.run.signals import Signals
from mpibow.train import iterate
from tests.run import tiny

ITERATIONS, MOST, WARM = 500, 4, 100  # WARM: iterations with all learners that there will ever be
CHECK_EVERY = 50


def wide(image: Tensor) -> Tensor:
    """A learner takes more than a megabyte: one that is not given back shows."""
    return dense(relu(dense(flatten(image), 3000)), tiny.CLASSES)


def changes(ranks: int) -> dict[int, tuple[int, ...]]:
    generator = np.random.default_rng(ranks)
    moments = sorted(generator.choice(np.arange(WARM, ITERATIONS - 10), 150, replace=False).tolist())
    return {0: (MOST,) * ranks} | {i: tuple(generator.integers(1, MOST + 1, ranks).tolist()) for i in moments}


def body(folder: Path, rule: str, comm: Communicator, note: str) -> int:
    threadpool_limits(1)
    work = tiny.job(
        folder, net=wide, precision="float32", device="onednn", rule={"name": rule},
        update={"lr": 0.001, "momentum": 0.9}, iterations=ITERATIONS,
        evaluate={"every": 10**6},
    )  # fmt: skip
    wanted, used, last = changes(comm.size), list[int](), ITERATIONS - 1
    ticks = np.zeros((ITERATIONS * comm.size * MOST * 3 // tiny.COUNT + 9, tiny.COUNT), np.int64)
    with Signals() as signals, Session(work, comm) as session:
        take = session.pipeline.next

        def counted() -> list[tiny.Slot]:
            slots = take()
            for slot in slots:
                np.add.at(ticks, (slot.epochs, slot.samples), 1)
            return slots

        session.pipeline.next = counted  # type: ignore[method-assign]
        while not session.limit_reached():
            if session.iteration in wanted:
                session.coordinator.announce(session.iteration, wanted[session.iteration])
            if session.iteration % CHECK_EVERY == 0:
                session.settle()
                centre = checksum(session.engine.centre)
                assert len(set(session.synchroniser.talk(centre))) == 1, session.iteration
            if session.iteration in (WARM, last):
                used.append(psutil.Process().memory_info().rss)
            iterate(session, signals)
        found = sum(session.synchroniser.talk(ticks))
        begun, rest = divmod(session.position, tiny.COUNT)
        assert (found[:begun] == 1).all()
        assert (found[begun].max(), found[begun:].sum()) in [(1, rest), (0, 0)]
        grown = session.synchroniser.talk(used[1] - used[0])
        happened = session.ledger.changes
        session.settle()
    if comm.rank == 0:
        print(json.dumps({"changes": happened, "grown": grown}))
    return 0


if __name__ == "__main__":
    run_ranks(partial(body, Path(sys.argv[1]), sys.argv[2]))
