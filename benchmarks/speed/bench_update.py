"""An optimiser's training step beside PyTorch's with the same one, fused: images/s in turn; the ratio, its interval.

    python -m benchmarks.speed.bench_update --python PYTHON [--update adamw] [--nets lenet:8 resnet20:4] [--pairs 20]

PYTHON has PyTorch (`make test-torch`); it takes the faster of its threads and layouts for each net. Ours has as many
learners as there are cores, or as --learners says. Both train on made-up images: forward, backward, update.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.sides import ROOT, parser_of
from benchmarks.turns import Ours, Rounds, in_turn, interval, ratios
from mpibow.comm import Communicator, run_ranks
from mpibow.comm.binding import allowed_cores
from mpibow.job.made_up import made_up_job
from mpibow.session.session import Session

TARGET = 2.0
UPDATES = {  # ours, as PyTorch's defaults are; torch_peer.py has the other side
    "adamw": {"name": "adamw", "lr": 1e-4, "weight_decay": 0.01},
    "sgd": {"name": "sgd", "lr": 1e-4, "momentum": 0.9, "weight_decay": 1e-4},
}


class Theirs:
    """PyTorch's process, which waits for its turns; `setting` is the one that it took."""

    def __init__(self, python: str, model: str, batch: int, update: str) -> None:
        command = [python, "-m", "benchmarks.speed.torch_peer", "serve", model, str(batch), update]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.setting = str(self._answer())

    def __call__(self, seconds: float) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"PyTorch's process ended with code {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def both(options: argparse.Namespace, model: str, batch: int, comm: Communicator) -> Iterator[tuple[Ours, Theirs]]:
    """The two sides, opened."""
    made = argparse.Namespace(
        model=model, batch_size=batch, shape=None, classes=None, device=options.device, learners=options.learners,
        overrides=[f"update={json.dumps(UPDATES[options.update])}"],
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, Session(made_up_job(made, folder), comm) as session:
        theirs = Theirs(options.python, model, batch, options.update)
        try:
            yield Ours(session), theirs
        finally:
            theirs.close()
            session.settle()


def line(net: str, update: str, rounds: Rounds, learners: int, setting: str) -> str:
    """Medians of both sides, and of the ratio of each pair."""
    ours, theirs = (median(rounds[side]) for side in ("mpibow", "PyTorch"))
    each = ratios(rounds, "mpibow", "PyTorch")
    low, high = interval(each)
    return (
        f"{net}, {update}: {ours:,.0f} images/s with {learners} learner(s), PyTorch {theirs:,.0f} ({setting}); "
        f"{median(each):.2f} times ({low:.2f} to {high:.2f}), {len(each)} pairs; "
        f"{TARGET:g} is {'reached' if median(each) >= TARGET else 'missed'}"
    )


def run(options: argparse.Namespace, comm: Communicator, note: str) -> int:
    threadpool_limits(1)
    for net in options.nets:
        model, batch = net.split(":")
        with both(options, model, int(batch), comm) as (ours, theirs):
            rounds = in_turn({"mpibow": ours, "PyTorch": theirs}, options.pairs, options.seconds)
            print(line(net, options.update, rounds, options.learners, theirs.setting), flush=True)
    return 0


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch (this one)")
    parser.add_argument("--update", choices=list(UPDATES), default="adamw", help="the optimiser (adamw)")
    parser.add_argument("--nets", nargs="+", default=["lenet:8", "resnet20:4"], help="MODEL:BATCH")
    parser.add_argument("--learners", type=int, default=allowed_cores(), help="learners of ours (the cores)")
    parser.add_argument("--pairs", type=int, default=20, help="of windows (20)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a window (1)")
    parser.add_argument("--device", choices=["auto", "onednn", "numpy"], help="what to compute on (auto)")
    options = parser.parse_args()
    if options.pairs < 2:
        parser.error(f"--pairs: must be at least 2, got {options.pairs}")
    run_ranks(partial(run, options))


if __name__ == "__main__":
    main()
