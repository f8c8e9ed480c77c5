"""Seconds of training until LeNet reaches 99 % on MNIST's test images, beside PyTorch on the same cores.

    python -m benchmarks.averaging.bench_accuracy [--data data/mnist] [--set device=onednn] [--output FOLDER]

Both train the same net from the same kind of start with the same schedule (launch/lenet-mnist.yaml), evaluate as
often, and do not count that. First both at batch 8. Then each at the batch that is best for it: one run for each batch
and for the rate scaled with the batch, and with its square root; what is fastest there is run with other seeds.
PyTorch's loop is torch_accuracy.py. The sides run in turn, a fresh process each; the ratio is the median of the pairs'.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.sides import (
    ROOT,
    Failed,
    Found,
    Peer,
    after,
    heading,
    machine,
    note,
    ours,
    parser_of,
    table,
    verdict,
    with_error,
    write,
)
from mpibow.data import open_records
from mpibow.errors import DivergedError

CONFIG = "launch/lenet-mnist.yaml"
BATCH, LR, TARGET = 8, 0.02, 0.55
SEARCH_SEED = 100  # none of those that are reported


@dataclass(frozen=True)
class Choice:
    batch_size: int
    lr: float


@dataclass(frozen=True)
class Reached:
    """Seconds of training and epochs to the target; None where a run ended without it."""

    seconds: float | None
    epochs: float | None
    versions: dict[str, str]
    setting: str = ""

    @property
    def cost(self) -> float:
        return self.seconds or math.inf


Side = Callable[[Choice, int, float], Reached]  # what is trained, the seed, and the seconds after which it is of no use


def choices(batches: Sequence[int]) -> Iterator[Choice]:
    """The rate that is good for batch 8 scaled with the batch, and with its square root."""
    for batch in batches:
        for power in (1.0, 0.5) if batch != BATCH else (1.0,):
            yield Choice(batch, round(LR * (batch / BATCH) ** power, 6))


def best_choice(side: Side, batches: Sequence[int]) -> Choice:
    """The fastest to the target; each run ends when it can't be that any more."""
    best, least = Choice(BATCH, LR), math.inf
    for choice in choices(batches):
        found = side(choice, SEARCH_SEED, least)
        if found.cost < least:
            best, least = choice, found.cost
    return best


def paired(mine: Sequence[Reached], peer: Sequence[Reached]) -> float | None:
    """The median of our seconds over PyTorch's; None where ours did not get there more often than not."""
    ratios = [math.inf if a.seconds is None else a.seconds / b.cost for a, b in zip(mine, peer, strict=True)]
    return None if math.isinf(median(ratios)) else median(ratios)


def cells(name: str, choice: Choice, runs: Sequence[Reached]) -> list[str]:
    each = [f"{run.seconds:.1f} ({run.epochs:.2f})" if run.seconds else "not reached" for run in runs]
    middle = median(run.cost for run in runs)
    known = [run.seconds for run in runs if run.seconds]
    mean = with_error(known, 1) if len(known) == len(runs) else ""
    last = "not reached" if math.isinf(middle) else f"{middle:.1f}"
    return [name, str(choice.batch_size), f"{choice.lr:g}", ", ".join(each), mean, last]


def mpibow(data: Path, options: argparse.Namespace) -> Side:
    def train(choice: Choice, seed: int, limit: float) -> Reached:
        with tempfile.TemporaryDirectory() as out:
            settings = [f"data.train={data / 'train'}", f"data.test={data / 'test'}", f"learners={options.learners}"]
            settings += [f"batch_size={choice.batch_size}", f"update.lr={choice.lr}", f"seed={seed}"]
            settings += [f"evaluate.every={1 / options.evaluations}", "checkpoint.every=null", "checkpoint.best=false"]
            settings += [f"stop.accuracy={options.accuracy}", f"out={out}", "name=run", *options.set]
            settings += [] if math.isinf(limit) else [f"stop.minutes={limit / 60}"]
            try:
                ours("train", CONFIG, *settings)
            except Failed as failure:
                if failure.exit_code != DivergedError.code:
                    raise
                return tell("mpibow", choice, Reached(None, None, {}))
            found = json.loads(Path(out, "run/summary.json").read_text())
        versions = {**found["versions"], "kernels": found["device"]}
        return tell("mpibow", choice, Reached(found["seconds_to_target"], found["epochs_to_target"], versions))

    return train


def pytorch(arrays: Path, options: argparse.Namespace) -> Side:
    peer = Peer(options.torch, options.kept)

    def train(choice: Choice, seed: int, limit: float) -> Reached:
        task = {**asdict(choice), "seed": seed, "accuracy": options.accuracy, "evaluations": options.evaluations}
        task |= {} if math.isinf(limit) else {"limit": limit}
        found = peer("averaging.torch_accuracy", arrays, json.dumps(task))
        reached = Reached(found["seconds"], found["epochs"], found["versions"], found["setting"])
        return tell("PyTorch", choice, reached)

    return train


def tell(name: str, choice: Choice, reached: Reached) -> Reached:
    note(f"  {', '.join(cells(name, choice, [reached])[:4])} {reached.setting}")
    return reached


def records(folder: Path) -> Path:
    """Records made of the project's MNIST files."""
    convert = [sys.executable, "datasets/mnist.py", "--source", "../shared/data/mnist", "--output", str(folder)]
    subprocess.run(convert, cwd=ROOT, check=True, stdout=sys.stderr)
    return folder


def unpack(data: Path, path: Path) -> Path:
    """The records as arrays, for an interpreter that has no mpibow."""
    arrays = {}
    for part in ("train", "test"):
        found = open_records(data / part)
        images, labels = np.empty((found.count, *found.shape), found.dtype), np.empty(found.count, np.int32)
        found.read(np.arange(found.count), images, labels)
        arrays |= {f"{part}_images": images, f"{part}_labels": labels}
    np.savez(path, **arrays)
    return path


def compare(mine: Side, peer: Side, pick: Sequence[Choice], seeds: Sequence[int]) -> Found:
    """Both sides with every seed, in turn."""
    runs: tuple[list[Reached], list[Reached]] = ([], [])
    for seed in seeds:
        for found, side, choice in zip(runs, (mine, peer), pick, strict=True):
            found.append(side(choice, seed, math.inf))
    kept = [[{**asdict(choice), **asdict(run)} for run in found] for choice, found in zip(pick, runs, strict=True)]
    return {"mpibow": kept[0], "torch": kept[1], "ratio": paired(*runs)}


TITLES = {"same": f"Both at batch {BATCH}", "best": "Each at its best batch"}


def page(found: Found) -> str:
    """accuracy.md from accuracy.json."""
    title = f"LeNet on MNIST to {100 * found['accuracy']:g} %, beside PyTorch"
    about = "±: the mean over seeds and its standard error. The ratio is the median of the pairs' of one seed.\n"
    parts = [f"## {name}\n\n{_table(found[part])}" for part, name in TITLES.items() if part in found]
    return "\n".join([heading(title, found["about"]), about, *parts])


def _table(found: Found) -> str:
    sides = {side: [_run(each) for each in found[side]] for side in ("mpibow", "torch")}
    picked = [sides[side][0][0] for side in sides]
    target = TARGET if picked[0] == picked[1] else None
    ratio = found["ratio"]
    end = ["" if number is None else f"{number:.2f}" for number in (ratio, target)]
    end.append(verdict(math.inf if ratio is None else ratio, target, most=True))
    mine, theirs = ([run for _, run in runs] for runs in sides.values())
    heads = ["", "batch", "rate", "seconds (epochs) to the target, by seed", "mean", "median", "ratio"]
    rows = [[*cells("mpibow", picked[0], mine), *end], [*cells("PyTorch", picked[1], theirs), "", "", ""]]
    return table([*heads, "target, at most", ""], rows)


def _run(found: Found) -> tuple[Choice, Reached]:
    given = dict(found)
    return Choice(given.pop("batch_size"), given.pop("lr")), Reached(**given)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--data", type=Path, help="folder with train and test; made of ../shared/data/mnist if not given"
    )
    parser.add_argument(
        "--only", choices=("same", "best"), help="batch 8, or each side's best batch; both if not given"
    )
    parser.add_argument(
        "--batches", nargs="+", type=int, default=[8, 16, 32, 64, 128, 256], help="to search (8 to 256)"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--learners", type=int, default=2, help="ours (2)")
    parser.add_argument("--accuracy", type=float, default=0.99)
    parser.add_argument("--evaluations", type=int, default=4, help="in an epoch (4)")
    parser.add_argument("--set", action="append", default=[], metavar="key.path=value", help="any setting of mpibow's")
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON", help="interpreter that has PyTorch (this)")
    parser.add_argument("--kept", action="store_true", help="PyTorch's malloc gives nothing back: faster than usual")
    parser.add_argument("--output", type=Path, help="folder for accuracy.md and accuracy.json")
    options = parser.parse_args()
    if reason := Peer(options.torch).missing():
        raise SystemExit(f"PyTorch is needed: {reason}")
    about = machine()
    with tempfile.TemporaryDirectory() as folder:
        data = options.data.resolve() if options.data else records(Path(folder, "mnist"))
        mine, peer = mpibow(data, options), pytorch(unpack(data, Path(folder, "mnist.npz")), options)
        found: Found = {"about": about, "accuracy": options.accuracy}
        if options.only != "best":
            note(TITLES["same"])
            same = Choice(BATCH, LR)
            found["same"] = compare(mine, peer, (same, same), options.seeds)
        if options.only != "same":
            note("the best batch for each: one run a choice")
            pick = (best_choice(mine, options.batches), best_choice(peer, options.batches))
            note(TITLES["best"])
            found["best"] = compare(mine, peer, pick, options.seeds)
    part = next(found[part] for part in TITLES if part in found)
    about["mpibow"], about["torch"] = part["mpibow"][-1]["versions"], part["torch"][-1]["versions"]
    found["about"] = after(about)
    print(page(found), end="")
    if options.output:
        write(options.output, "accuracy", page(found), found)


if __name__ == "__main__":
    main()
