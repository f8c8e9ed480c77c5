"""What the watchdog costs: images/s with it and without it, in turn in one run; the ratio and its 95 % interval.

    python -m benchmarks.speed.bench_watchdog [--pairs 30] [--seconds 1]      # LeNet and ResNet-20: two minutes each
    mpirun -np 2 python -m benchmarks.speed.bench_watchdog --models lenet     # two ranks look at each other

The target: the interval reaches 0.99. What iterations count for the watchdog is counted in both; a line has its cost.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from functools import partial
from statistics import median

from threadpoolctl import threadpool_limits

from benchmarks import turns
from benchmarks.sides import parser_of
from mpibow.comm import Communicator, run_ranks
from mpibow.comm.launch import find_launcher, signs_of
from mpibow.comm.pulse import Pulse
from mpibow.comm.watchdog import Watchdog
from mpibow.job.synthetic import made_up_job
from mpibow.run.session import Session

TARGET = 0.99


def ratios(arguments: argparse.Namespace, model: str, comm: Communicator) -> list[float]:
    """Images/s with to without, of each pair of windows."""
    launcher = find_launcher(os.environ)
    signs = None if launcher is None or comm.size == 1 else signs_of(launcher)

    def measure(watched: bool, seconds: float) -> float:
        comm.pulse.stop()
        if watched:
            Watchdog(comm.pulse, comm.rank, comm.size, signs)
        return ours(seconds)

    with tempfile.TemporaryDirectory() as folder:
        job = made_up_job(argparse.Namespace(**vars(arguments), model=model), comm.share(folder)[0])
        with Session(job, comm) as session:
            ours = turns.Ours(session, comm=comm)
            sides = {"with": partial(measure, True), "without": partial(measure, False)}
            rounds = turns.in_turn(sides, arguments.pairs, arguments.seconds)
            session.settle()
        comm.barrier()  # rank 0's folder is every rank's
    return turns.ratios(rounds, "with", "without")


def cost_of_a_beat(times: int = 200_000) -> float:
    """Seconds of what a call of the other ranks and an iteration count, watched or not."""
    pulse, begin = Pulse(), time.perf_counter()
    for _ in range(times):
        pulse.waiting = "sum"
        pulse.waiting = ""
        pulse.beat("start")
    return (time.perf_counter() - begin) / times


def run(arguments: argparse.Namespace, comm: Communicator, note: str) -> int:
    threadpool_limits(1)
    for model in arguments.models:
        found = ratios(arguments, model, comm)
        low, high = turns.interval(found)
        if comm.rank == 0:
            met = "reached" if high >= TARGET else "missed"
            print(
                f"{model}, batch {arguments.batch_size}, {comm.size} rank(s), {len(found)} pairs: "
                f"{median(found):.4f} ({low:.4f} to {high:.4f}); {TARGET} is {met}", flush=True,
            )  # fmt: skip
    if comm.rank == 0:
        print(f"counting: {1e9 * cost_of_a_beat():.0f} ns a call or iteration")
    return 0


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--models", nargs="+", default=["lenet", "resnet20"])
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--learners", type=int, default=1, help="of a rank (1)")
    parser.add_argument("--pairs", type=int, default=30, help="of windows (30)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a window (1)")
    parser.add_argument("--device", choices=["auto", "onednn", "numpy"], help="what to compute on (auto)")
    arguments = parser.parse_args()
    arguments.shape = arguments.classes = None
    arguments.overrides = []
    if arguments.pairs < 2:
        parser.error(f"--pairs: must be at least 2, got {arguments.pairs}")
    run_ranks(partial(run, arguments))


if __name__ == "__main__":
    main()
