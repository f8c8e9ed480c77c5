"""What batch sizes cost in epochs and seconds: LeNet to 99 % of MNIST with one learner, with auto, and with PyTorch.

    python -m benchmarks.averaging.bench_batches --only speed --torch PYTHON  # images/s; quiet machine, 12 minutes
    python -m benchmarks.averaging.bench_batches --torch PYTHON               # epochs, however busy it is; an hour
    python -m benchmarks.averaging.bench_batches --plot                       # draws benchmarks/results/batches.svg

Each run is a cell, kept in benchmarks/results/batches.json as soon as it ends; started again it does only what is
missing, and goes on with a run that was cut off: run directories are those of a sweep in runs/batches. Delete a cell,
and its run there, to have it run again. The table, benchmarks/results/batches.md, is made of what is there.
Epochs do not depend on what else the machine does, so `auto` trains with a fixed number of learners: what the tuner
settled on in `--only speed`. Cells for it are left out until that has run.
"""

import argparse
import json
import os
import shlex
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.averaging.batch_cells import Cell, Part, cells
from benchmarks.averaging.batch_page import page, points
from benchmarks.averaging.bench_accuracy import unpack
from benchmarks.sides import ROOT, Found, Peer, launched, machine, note, ours, parser_of
from mpibow.config import load_mapping
from mpibow.config.yaml_text import parse, read
from mpibow.errors import DivergedError, MpibowError
from mpibow.run.directory import write
from mpibow.sweep import grid
from mpibow.sweep.folder import SweepFolder
from mpibow.sweep.running import run_cells

RESULTS = ROOT / "benchmarks/results/batches.json"
ROUNDS, SECONDS = 3, 3.0  # of a speed cell
TRAINER = ["update.weight_decay=1e-4"]  # PyTorch's side has it


def command(cell: Cell) -> str:
    """What is typed, but for where the data are."""
    if cell.part == "speed":
        return f"python -m benchmarks.averaging.bench_batches --only speed, batch {cell.batch}"
    if cell.torch:
        return f"python -m benchmarks.averaging.torch_accuracy MNIST.npz '{cell.words[0]}'"
    return f"python -m mpibow.train {' '.join(cell.words)}"


def run(cell: Cell, options: argparse.Namespace) -> Found:
    """What came of it."""
    base = {"command": command(cell), "date": time.strftime("%Y-%m-%d")}
    if cell.part == "speed":
        return base | speed(cell.batch, Peer(options.torch))
    if cell.torch:
        return base | pytorch(cell.words[0], options.mnist, Peer(options.torch))
    diverged, events = swept(cell, options)
    return base | {"code": DivergedError.code if diverged else 0} | trained(events)


def swept(cell: Cell, options: argparse.Namespace) -> tuple[bool, list[Found]]:
    """Whether the cell's run diverged, which is a result too, and its events. `mpibow.sweep` runs it: one that is cut
    off goes on when it is asked for again."""
    data = options.mnist.resolve()
    words = [*cell.words[1:], f"data.train={data}/train", f"data.test={data}/test"]
    pairs = (word.partition("=") for word in words)
    one = grid.Cell(tuple((key, grid.AxisValue(text, parse(text, key))) for key, _, text in pairs))
    kept = SweepFolder(options.runs.resolve())
    kept.begin(ranks=1)
    own = [f"name={one.name}", f"out={kept.folder}/runs"]
    config = load_mapping(read(ROOT / cell.words[0]), [*one.overrides, *own])
    _, elsewhere, code = run_cells({one.name: (one, config)}, kept, launch=[])
    if code or elsewhere:
        raise SystemExit(f"{one.name}: another process runs it" if elsewhere else code)
    shutil.rmtree(kept.run(one.name) / "checkpoints", ignore_errors=True)
    lines = (kept.run(one.name) / "metrics.jsonl").read_text().splitlines()
    return kept.results()[one.name].diverged, [json.loads(line) for line in lines]


def trained(events: Sequence[Found]) -> Found:
    """What is kept of a run's metrics."""
    evaluations = [event for event in events if event["event"] == "evaluate"]
    speeds = [event["images_per_second"] for event in events if event["event"] == "train"]
    return {
        "accuracies": [event["accuracy"] for event in evaluations],
        "epochs": [event["epoch"] for event in evaluations],
        "images_per_second": statistics.median(speeds) if speeds else None,  # however busy the machine was
    }


def pytorch(task: str, data: Path, peer: Peer) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        print(f"$ {peer.python} -m benchmarks.averaging.torch_accuracy MNIST.npz {shlex.quote(task)}", flush=True)
        found = peer("averaging.torch_accuracy", unpack(data, Path(folder, "mnist.npz")), task)
    kept = {name: found[name] for name in ("accuracies", "images_per_second", "setting", "versions")}
    return {**kept, "epochs": found["evaluated"]}


def speed(batch: int, peer: Peer) -> Found:
    """Images/s of one learner, of what the tuner settles on, and of PyTorch's best setting, in turn."""
    about, rounds = machine(), []
    for _ in range(ROUNDS):
        line = ("lenet", "--batch-size", str(batch), "--seconds", str(SECONDS), *TRAINER)
        one = json.loads(ours("bench", "train", *line, "--learners", "1", "--json"))
        auto = json.loads(launched(1, "-m", "benchmarks.speed.tuner_side", *line, "learners=auto"))["phases"][0]
        torch = peer("speed.torch_peer", "speed", "lenet", batch, SECONDS)
        rounds.append({"one": one["images_per_second"], "auto": auto["images_per_second"],
                       "learners": auto["learners"][0], "settled": auto["settled"], "torch": torch["images_per_second"],
                       "setting": torch["setting"]})  # fmt: skip
        note(f"  batch {batch}: {json.dumps(rounds[-1])}")
    return {"load": about["load"], "processor": about["processor"], "cores": about["cores"]} | settled(rounds)


def settled(rounds: Sequence[Found]) -> Found:
    """The number of learners that the tuner chose most often, and medians; its own of those rounds alone."""
    learners = statistics.mode(each["learners"] for each in rounds)
    chosen = {
        "one": [each["one"] for each in rounds],
        "auto": [each["auto"] for each in rounds if each["learners"] == learners],
        "torch": [each["torch"] for each in rounds],
    }
    medians = {side: round(statistics.median(values), 1) for side, values in chosen.items()}
    return {"learners": learners, "images_per_second": medians, "rounds": list(rounds)}


def kept(path: Path) -> Found:
    return json.loads(path.read_text()) if path.exists() else {}


def missing(part: Part, found: Found, *, torch: bool) -> list[Cell]:
    """The cells that have not run; without `torch` those of ours alone."""
    return [cell for cell in cells(part, found) if cell.key not in found and (torch or not cell.torch)]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--only", choices=("batches", "speed"), default="batches", help="(default: %(default)s)")
    parser.add_argument("--mnist", type=Path, default=Path("data/mnist"), help="as datasets/mnist.py writes it")
    parser.add_argument("--torch", metavar="PYTHON", help="interpreter that has PyTorch; without it ours alone")
    parser.add_argument("--cells", type=int, default=1 << 30, metavar="N", help="run so many of what is missing")
    parser.add_argument("--list", action="store_true", help="print what is missing, and run nothing")
    parser.add_argument("--plot", action="store_true", help="draw what there is, and run nothing")
    parser.add_argument("--runs", type=Path, default=Path("runs/batches"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE.json", help="(default: %(default)s)")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT)  # of the processes that are started
    part, torch, found = options.only, options.torch is not None, kept(options.results)
    for cell in cells(part, found):
        if cell.key in found and found[cell.key]["command"] != command(cell):
            note(f"{cell.key}: was made by another command; delete it from {options.results.name} to run it again")
    if options.plot:
        from benchmarks.averaging.batch_plot import draw  # matplotlib

        try:
            print(draw(points(found), options.results.with_suffix(".svg")))
        except MpibowError as error:
            raise SystemExit(f"error: {error}") from None
        return
    if options.list:
        print(*(f"{cell.key}\n    {command(cell)}" for cell in missing(part, found, torch=torch)), sep="\n")
        return
    if part == "speed" and not torch:
        parser.error("--only speed: --torch PYTHON is needed")
    if torch and (reason := Peer(options.torch).missing()):
        parser.error(f"--torch {options.torch}: {reason}")
    for number in range(1, options.cells + 1):
        left = missing(part, found, torch=torch)  # anew: another process may have run some
        if not left:
            break
        print(f"cell {number}, {len(left)} left: {left[0].key}", flush=True)
        result = run(left[0], options)
        found = kept(options.results) | {left[0].key: result}  # another process may have added some
        write(options.results, json.dumps(found, indent=1) + "\n")
        write(options.results.with_suffix(".md"), page(found))
    print(page(found))


if __name__ == "__main__":
    main()
