"""What learners, rules and batch sizes cost in epochs: the argument of the project, measured.

    python benchmarks/bench_sma.py --only speed --torch PYTHON      # images/s: on a quiet machine; about 12 minutes
    python benchmarks/bench_sma.py --torch PYTHON                   # all else, however busy it is; days
    python benchmarks/bench_sma.py --only batches --torch PYTHON    # MNIST: one learner, auto, PyTorch at every batch
    python benchmarks/bench_sma.py --only mnist                     # MNIST: rules over numbers of learners
    python benchmarks/bench_sma.py --only cifar                     # CIFAR-10, ResNet-20: ten epochs a cell
    python benchmarks/bench_sma.py --plot                           # draws benchmarks/results/sma.svg

Each run is a cell, kept in benchmarks/results/sma.json as soon as it ends; started again it does only what is missing,
and goes on with a run that was cut off: run directories are those of a sweep in runs/sma. Delete a cell, and its run
there, to have it run again. The tables, benchmarks/results/sma.md, are made of what is there.
Epochs do not depend on what else the machine does, so `auto` trains with a fixed number of learners: what the tuner
settled on in `--only speed`. Cells for it are left out until that has run.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_accuracy import unpack
from sides import ROOT, Peer, launched, machine, note, ours
from sma_cells import Cell, cells
from sma_page import points, tables

from mpibow.config import load_mapping
from mpibow.config.document import parse, read
from mpibow.errors import DivergedError, MpibowError
from mpibow.run.directory import write
from mpibow.sweep import grid
from mpibow.sweep.kept import Kept
from mpibow.sweep.running import run_cells

RESULTS = ROOT / "benchmarks/results/sma.json"
PARTS = ("batches", "mnist", "cifar")
ROUNDS, SECONDS = 3, 3.0  # of a speed cell
TRAINER = ["update.weight_decay=1e-4"]  # PyTorch's side has it


def command(cell: Cell) -> str:
    """What is typed, but for where the data are."""
    if cell.part == "speed":
        return f"python benchmarks/bench_sma.py --only speed, batch {cell.column}"
    if cell.torch:
        return f"python benchmarks/torch_accuracy.py MNIST.npz '{cell.words[0]}'"
    return f"python -m mpibow.train {' '.join(cell.words)}"


def run(cell: Cell, options: argparse.Namespace) -> dict[str, Any]:
    """What came of it."""
    base = {"command": command(cell), "date": time.strftime("%Y-%m-%d")}
    if cell.part == "speed":
        return base | speed(int(cell.column), Peer(options.torch))
    if cell.torch:
        return base | pytorch(cell.words[0], options.mnist, Peer(options.torch))
    diverged, events = swept(cell, options)
    return base | {"code": DivergedError.code if diverged else 0} | trained(events)


def swept(cell: Cell, options: argparse.Namespace) -> tuple[bool, list[dict[str, Any]]]:
    """Whether the cell's run diverged, which is a result too, and its events. `mpibow.sweep` runs it: one that is cut
    off goes on when it is asked for again."""
    data = (options.cifar if cell.part == "cifar" else options.mnist).resolve()
    words = [*cell.words[1:], f"data.train={data}/train", f"data.test={data}/test", *options.set]
    pairs = (word.partition("=") for word in words)
    one = grid.Cell(tuple((key, grid.Choice(text, parse(text, key))) for key, _, text in pairs))
    kept = Kept(options.runs.resolve())
    kept.begin(ranks=1)
    own = [f"name={one.name}", f"out={kept.folder}/runs"]
    config = load_mapping(read(ROOT / cell.words[0]), [*one.overrides, *own])
    outcome = run_cells({one.name: (one, config)}, kept, launch=[])
    if outcome.code or outcome.elsewhere:
        raise SystemExit(outcome.code or f"{one.name}: another process runs it")
    shutil.rmtree(kept.run(one.name) / "checkpoints", ignore_errors=True)
    lines = (kept.run(one.name) / "metrics.jsonl").read_text().splitlines()
    return kept.results()[one.name].diverged, [json.loads(line) for line in lines]


def trained(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the tables are made of, from a run's metrics: accuracies are those on the data that chose.

    Where these are validation data `test_accuracy` is the last centre's.
    """
    found = [event for event in events if event["event"] == "evaluate" and "checkpoint" not in event]
    evaluations = [event for event in found if event.get("data") == "validation"] or found
    tested = [event["accuracy"] for event in found if event not in evaluations]
    training = [event for event in events if event["event"] == "train"]
    speeds = [event["images_per_second"] for event in training]
    gains = [round(event["gain"], 3) for event in training]
    return {
        "accuracies": [event["accuracy"] for event in evaluations],
        "epochs": [event["epoch"] for event in evaluations],
        "images_per_second": statistics.median(speeds) if speeds else None,  # however busy the machine was
        "gains": gains[:: max(1, len(gains) // 10)],
        "learners": training[-1]["learners"] if training else [],
    } | ({"test_accuracy": tested[-1]} if tested else {})


def pytorch(task: str, data: Path, peer: Peer) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        print(f"$ {peer.python} benchmarks/torch_accuracy.py MNIST.npz {shlex.quote(task)}", flush=True)
        found = peer("torch_accuracy.py", unpack(data, Path(folder, "mnist.npz")), task)
    kept = {name: found[name] for name in ("accuracies", "images_per_second", "setting", "versions")}
    return {**kept, "epochs": found["evaluated"], "gains": [], "learners": []}


def speed(batch: int, peer: Peer) -> dict[str, Any]:
    """Images/s of one learner, of what the tuner settles on, and of PyTorch's best setting, in turn."""
    about, rounds = machine(), []
    for _ in range(ROUNDS):
        line = ("lenet", "--batch-size", str(batch), "--seconds", str(SECONDS), *TRAINER)
        one = json.loads(ours("bench", "train", *line, "--learners", "1", "--json"))
        auto = json.loads(launched(1, "benchmarks/tuner_side.py", *line, "learners=auto"))["phases"][0]
        torch = peer("torch_peer.py", "speed", "lenet", batch, SECONDS)
        rounds.append({"one": one["images_per_second"], "auto": auto["images_per_second"],
                       "learners": auto["learners"][0], "settled": auto["settled"], "torch": torch["images_per_second"],
                       "setting": torch["setting"]})  # fmt: skip
        note(f"  batch {batch}: {json.dumps(rounds[-1])}")
    return {"load": about["load"], "processor": about["processor"], "cores": about["cores"]} | settled(rounds)


def settled(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The number of learners that the tuner chose most often, and medians; its own of those rounds alone."""
    learners = statistics.mode(each["learners"] for each in rounds)
    chosen = {
        "one": [each["one"] for each in rounds],
        "auto": [each["auto"] for each in rounds if each["learners"] == learners],
        "torch": [each["torch"] for each in rounds],
    }
    medians = {side: round(statistics.median(values), 1) for side, values in chosen.items()}
    return {"learners": learners, "images_per_second": medians, "rounds": list(rounds)}


def kept(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def missing(parts: Sequence[str], found: Mapping[str, Any], options: argparse.Namespace) -> list[Cell]:
    """The cells that have not run, without those of seeds or of a side that are not asked for."""
    return [
        cell
        for cell in cells(parts, found)
        if cell.key not in found
        and (cell.seed == 0 or cell.seed in options.seeds)
        and (options.torch is not None or not cell.torch)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=(*PARTS, "speed"), action="append", help="a part (default: all but speed)")
    parser.add_argument("--mnist", type=Path, default=Path("data/mnist"), help="as datasets/mnist.py writes it")
    parser.add_argument("--cifar", type=Path, default=Path("data/cifar10"), help="as datasets/cifar.py writes it")
    parser.add_argument("--torch", metavar="PYTHON", help="interpreter that has PyTorch; without it ours alone")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--cells", type=int, default=1 << 30, metavar="N", help="run so many of what is missing")
    parser.add_argument("--list", action="store_true", help="print what is missing, and run nothing")
    parser.add_argument("--plot", action="store_true", help="draw what there is, and run nothing")
    parser.add_argument("--runs", type=Path, default=Path("runs/sma"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE.json", help="(default: %(default)s)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="key.path=value",
        help="any other setting; with --results of its own",
    )
    parser.add_argument(
        "--validation",
        metavar="FRACTION",
        help="have such a part of the training data choose in place of the test data, and test at the end; "
        "without --torch, with --results of its own",
    )
    options = parser.parse_args()
    if options.validation is not None:
        if options.torch is not None:
            parser.error("--validation: PyTorch's side has no validation data; leave --torch out")
        options.set.append(f"data.validation={options.validation}")
    if options.set and options.results == RESULTS:
        parser.error("--set, --validation: what has other settings is kept apart: give --results FILE.json as well")
    os.environ["PYTHONPATH"] = str(ROOT)  # of the processes that are started
    parts, found = options.only or PARTS, kept(options.results)
    for cell in cells(parts, found):
        if cell.key in found and found[cell.key]["command"] != command(cell):
            note(f"{cell.key}: was made by another command; delete it from {options.results.name} to run it again")
    if options.plot:
        from sma_plot import draw  # matplotlib

        try:
            print(draw(points(found), options.results.with_suffix(".svg")))
        except MpibowError as error:
            raise SystemExit(f"error: {error}") from None
        return
    if options.list:
        print(*(f"{cell.key}\n    {command(cell)}" for cell in missing(parts, found, options)), sep="\n")
        return
    if "speed" in parts and options.torch is None:
        parser.error("--only speed: --torch PYTHON is needed")
    if options.torch is not None and (reason := Peer(options.torch).missing()):
        parser.error(f"--torch {options.torch}: {reason}")
    for number in range(1, options.cells + 1):
        left = missing(parts, found, options)  # anew: what has run may ask for more
        if not left:
            break
        print(f"cell {number}, {len(left)} left: {left[0].key}", flush=True)
        result = run(left[0], options)
        found = kept(options.results) | {left[0].key: result}  # another process may have added some
        write(options.results, json.dumps(found, indent=1) + "\n")
        write(options.results.with_suffix(".md"), tables(found))
    print(tables(found))


if __name__ == "__main__":
    main()
