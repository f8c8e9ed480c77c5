"""What learners, rules and batch sizes cost in epochs: the argument of the project, measured.

    python benchmarks/bench_sma.py --only batches     # MNIST: batch sizes, one learner, auto, PyTorch; about two hours
    python benchmarks/bench_sma.py --only mnist       # MNIST: rules over numbers of learners, three seeds; many hours
    python benchmarks/bench_sma.py --only cifar       # CIFAR-10, ResNet-20: ten epochs a cell; about two hours

Each run is a cell, kept in benchmarks/results/sma.json as soon as it ends; started again it does only what is missing.
Delete a cell there to have it run again. The tables, benchmarks/results/sma.md, are made of what is there.
Epochs do not depend on what else the machine does, seconds do: run `--only batches` on a quiet one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/sma.json"
TABLE = RESULTS.with_suffix(".md")
LEARNERS = (1, 2, 4, 8, 16)
SEEDS = (1, 2, 3)
RULES = {  # none of them changes with the number of learners, but for the last
    "SMA, gain auto": ["rule={name: sma, gain: auto}"],
    "SMA, gain auto, delay 1": ["rule={name: sma, gain: auto, delay: 1}"],
    "SMA as published": ["rule={name: sma, gain: none, momentum: 0.9}"],
    "EA-SGD": ["rule={name: sma, gain: none, momentum: 0.0}"],
    "S-SGD": ["rule={name: ssgd}"],
    "S-SGD, rate x learners": ["rule={name: ssgd, scale_lr: true}"],
}
MNIST = ["update.momentum=0.9", "update.lr=0.003", "update.schedule={name: cosine, epochs: 6}", "stop.epochs=6"]
CIFAR = ["update.lr=0.0125", "update.schedule={name: cosine, epochs: 10}", "stop.epochs=10"]
BATCHES = (2, 4, 8, 16, 32, 64, 256)
RATE = 0.003 / 8  # a sample's, at momentum 0.9: the rate of a batch is that times its size


@dataclass(frozen=True)
class Cell:
    """One run: of which table, its row and column there, its seed, and what is typed behind `mpibow.train`."""

    part: str
    row: str
    column: str
    seed: int
    words: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{self.part} | {self.row} | {self.column} | seed {self.seed}"


def cells(part: str) -> Iterator[Cell]:
    """The cells of a part, what tells most first."""
    if part == "mnist":
        for seed in SEEDS:
            yield Cell(part, "SGD", "1", seed, ("launch/lenet-mnist.yaml", *MNIST, "learners=1", f"seed={seed}"))
            for k in (16, 4, 2, 8):
                for rule, settings in RULES.items():
                    words = ("launch/lenet-mnist.yaml", *MNIST, *settings, f"learners={k}", f"seed={seed}")
                    yield Cell(part, rule, str(k), seed, words)
    elif part == "cifar":
        yield Cell(part, "SGD", "1", 1, ("launch/resnet20-cifar10.yaml", *CIFAR, "learners=1"))
        for k in (16, 4):
            for rule in ("SMA, gain auto", "SMA, gain auto, delay 1", "SMA as published", "S-SGD"):
                words = ("launch/resnet20-cifar10.yaml", *CIFAR, *RULES[rule], f"learners={k}")
                yield Cell(part, rule, str(k), 1, words)
    else:
        for batch in BATCHES:
            for learners in ("1", "auto"):
                rate = [f"batch_size={batch}", f"update.lr={RATE * batch:g}", f"learners={learners}"]
                words = ("launch/lenet-mnist.yaml", *MNIST, *rate, "stop.accuracy=0.99")
                yield Cell(part, f"learners {learners}", str(batch), 1, words)


def run(cell: Cell, data: Mapping[str, Path]) -> dict[str, Any]:
    """Trains; what came of it."""
    of_data = data["cifar" if cell.part == "cifar" else "mnist"]
    target = [] if cell.part == "batches" else ["stop.accuracy=null"]
    with tempfile.TemporaryDirectory() as out:
        words = [
            *cell.words,
            *target,
            f"data.train={of_data}/train",
            f"data.test={of_data}/test",
            "checkpoint.every=null",
        ]
        line = [sys.executable, "-m", "mpibow.train", *words, f"out={out}", "name=cell"]
        print("$", " ".join(line), flush=True)
        found = subprocess.run(line, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
        shown = f"python -m mpibow.train {' '.join(cell.words)}"
        base = {"command": shown, "date": time.strftime("%Y-%m-%d"), "code": found.returncode}
        if found.returncode not in (0, 4):  # a run that diverges is a result too
            raise SystemExit(f"that ended with code {found.returncode}")
        events = [json.loads(line) for line in Path(out, "cell/metrics.jsonl").read_text().splitlines()]
        evaluations = [event for event in events if event["event"] == "evaluate"]
        trained = [event for event in events if event["event"] == "train"]
        return {
            **base,
            "accuracies": [event["accuracy"] for event in evaluations],
            "epochs": [event["epoch"] for event in evaluations],
            "images_per_second": statistics.median(event["images_per_second"] for event in trained),
            "gains": [round(event["gain"], 3) for event in trained[:: max(1, len(trained) // 10)]],
            "learners": trained[-1]["learners"],
        }


def tables(found: Mapping[str, Any]) -> str:
    """What there is, as text."""
    lines = [
        "# Epochs over learners, rules and batch sizes",
        "",
        "Test accuracy in % after each epoch, mean over the seeds that were run; nothing but the rule and the number "
        "of learners differs between the cells of a table. Made by `python benchmarks/bench_sma.py`.",
    ]
    titles = {"mnist": "LeNet on MNIST, batch 8", "cifar": "ResNet-20 on CIFAR-10, batch 16", "batches": "Batch sizes"}
    for part, title in titles.items():
        mine = [(key.split(" | ")[1:3], cell) for key, cell in found.items() if key.startswith(f"{part} |")]
        if not mine:
            continue
        first = next(cell for _, cell in mine)
        lines += ["", f"## {title}", "", f"`{first['command']}` and the like", "", "| | learners or batch | seeds | "
                  "accuracy | gain at the end |", "| --- | --- | --- | --- | --- |"]  # fmt: skip
        for row, column in dict.fromkeys(tuple(place) for place, _ in mine):
            group = [cell for place, cell in mine if tuple(place) == (row, column)]
            length = min(len(cell["accuracies"]) for cell in group)
            means = [statistics.mean(cell["accuracies"][i] for cell in group) for i in range(length)]
            curve = " ".join(f"{100 * mean:.2f}" for mean in means) or "diverged"
            gain = statistics.mean(cell["gains"][-1] for cell in group)
            lines.append(f"| {row} | {column} | {len(group)} | {curve} | {gain:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("mnist", "cifar", "batches"), action="append", help="a part (default: all)")
    parser.add_argument("--mnist", type=Path, default=Path("data/mnist"), help="as datasets/mnist.py writes it")
    parser.add_argument("--cifar", type=Path, default=Path("data/cifar10"), help="as datasets/cifar.py writes it")
    parser.add_argument("--cells", type=int, default=1 << 30, metavar="N", help="run so many of what is missing")
    options = parser.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    missing = [cell for part in options.only or ("cifar", "mnist", "batches") for cell in cells(part)]
    missing = [cell for cell in missing if cell.key not in found][: options.cells]
    for number, cell in enumerate(missing, 1):
        print(f"cell {number} of {len(missing)}: {cell.key}", flush=True)
        found[cell.key] = run(cell, {"mnist": options.mnist, "cifar": options.cifar})
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        TABLE.write_text(tables(found))
    print(tables(found))


if __name__ == "__main__":
    main()
