"""Images/s of the whole training step for model x batch x learners, and beside it PyTorch's on the same cores.

    python benchmarks/bench_train.py [--models lenet convnet] [--batches 1 4 8 16] [--learners 1 2] [--seconds 5]

mpibow's figures come from `python -m mpibow.bench train`. PyTorch (if it is installed) trains the same model with the
same batch and SGD with momentum, with its best of one thread or all cores and of channels-last or not.
The two are measured in turn, `--repeats` times; a cell is the median, the ratio that of the paired runs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def ours(model: str, batch: int, learners: int, seconds: float) -> float:
    command = [sys.executable, "-m", "mpibow.bench", "train", model, "--batch-size", str(batch)]
    command += ["--learners", str(learners), "--seconds", str(seconds), "--json"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["images_per_second"])


def torchs(model: str, batch: int, seconds: float) -> dict[str, float]:
    """Images/s by setting; {} where PyTorch is not installed."""
    command = [sys.executable, str(ROOT / "benchmarks/torch_peer.py"), model, str(batch), str(seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        print(f"PyTorch: not measured: {reason}", file=sys.stderr)
        return {}
    return dict(json.loads(done.stdout))


def measure(model: str, batch: int, learners: list[int], seconds: float, repeats: int) -> dict[str, Any]:
    mine: dict[int, list[float]] = {k: [] for k in learners}
    peer: list[dict[str, float]] = []
    for _ in range(repeats):
        for k in learners:
            mine[k].append(ours(model, batch, k, seconds))
        peer.append(torchs(model, batch, seconds))
    row: dict[str, Any] = {f"{k} learner(s)": statistics.median(values) for k, values in mine.items()}
    if all(peer):
        best = max(peer[0], key=lambda name: statistics.median(run[name] for run in peer))
        row["PyTorch"] = statistics.median(run[best] for run in peer)
        row["setting"] = best
        top = max(learners, key=lambda k: statistics.median(mine[k]))
        row["ratio"] = statistics.median(a / run[best] for a, run in zip(mine[top], peer, strict=True))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["convnet", "lenet"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4, 8, 16])
    parser.add_argument("--learners", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, {arguments.seconds:g} s a run, medians of {arguments.repeats}")
    heads = ["model", "batch", *(f"{k} learner(s)" for k in arguments.learners), "PyTorch", "its setting", "best ratio"]
    print("| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads), flush=True)
    for model in arguments.models:
        for batch in arguments.batches:
            row = measure(model, batch, arguments.learners, arguments.seconds, arguments.repeats)
            cells = [model, str(batch), *(f"{row[f'{k} learner(s)']:,.0f}" for k in arguments.learners)]
            cells += (
                [f"{row['PyTorch']:,.0f}", row["setting"], f"{row['ratio']:.2f}"] if "PyTorch" in row else ["-"] * 3
            )
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
