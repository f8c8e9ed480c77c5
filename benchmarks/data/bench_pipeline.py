"""Images/s of the data pipelines on one core, beside plain DALI and a PyTorch DataLoader; about ten minutes.

    python -m benchmarks.data.bench_pipeline [--source FOLDER] [--python PATH] [--rounds 7] [--json]

Encoded: JPEG files decoded, a random part resized to 224 x 224, flipped and normalised to float32. Ours are a pipeline
of records with the reader `dali` or `host`, and the training graph's own flip and normalisation. Raw: images of CIFAR's
shape from records or memory to a learner's slot. Every side is one process on the same core; they are measured in
turn, `--rounds` times. Figures are medians, ratios medians of the paired ratios. PyTorch needs Pillow, and is left out
where it is not there; DALI likewise. `--clock cpu` counts what the process computes and not what it waits for the core,
for a machine that is not quiet; that of PyTorch's workers is not seen, so they are left out.

What two learners of ResNet-32 take at batch 1, to compare raw images with:
`python -m mpibow.bench train resnet32 --batch-size 1 --learners 2`.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.sides import ROOT, Found, machine, note, parser_of, table, verdict
from mpibow.data import dali, write_records

SAMPLE = ROOT.parent / "shared/data/imagenet-sample/imagenet-1000class-400smallest.tar"
BATCH, RAW_BATCHES = 16, (4, 32)
OF_DALI, OF_TORCH, RAW = 0.95, 2.0, 200_000
PLAIN = ("plain-dali-fused", "plain-dali")
WORKERS = (0, 1)


@dataclass(frozen=True)
class Side:
    """What is measured, `count` images a turn."""

    name: str
    command: Sequence[str]
    count: int


class Process:
    """A side that waits for its turns."""

    def __init__(self, side: Side, core: int, clock: str) -> None:
        one = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        self.side, self._clock = side, clock
        self._process = subprocess.Popen(
            side.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **one}, cwd=ROOT, preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )  # fmt: skip
        self.versions: dict[str, str] = self._answer()

    def turn(self) -> float:
        """Images/s."""
        assert self._process.stdin is not None
        print(self.side.count, self._clock, file=self._process.stdin, flush=True)
        return float(self._answer())

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(self.side.command)}\n{self._process.communicate()[1].strip()}")
        return json.loads(line)


def prepare(source: Path, folder: Path) -> None:
    """The same JPEGs as files and as records, and raw records."""
    (folder / "files/all").mkdir(parents=True)
    images = list(jpegs(source))
    for number, image in enumerate(images):
        (folder / f"files/all/{number:06d}.jpg").write_bytes(image)
    samples = ((image, 0) for image in images)
    write_records(folder / "records", samples, classes=1, encoding="jpeg", moments=((0.0,) * 3, (1.0,) * 3))
    pixels = np.random.default_rng(0).integers(0, 256, (20_000, 3, 32, 32)).astype(np.uint8)
    write_records(folder / "raw", ((image, 0) for image in pixels), classes=1)


def jpegs(source: Path) -> Iterator[bytes]:
    if source.is_dir():
        yield from (path.read_bytes() for path in sorted(source.rglob("*")) if path.suffix.lower() in (".jpg", ".jpeg"))
        return
    with tarfile.open(source) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.name.lower().endswith((".jpg", ".jpeg")) else None
            if file is not None:
                yield file.read()


def sides(options: argparse.Namespace, folder: Path) -> list[Side]:
    count, workers = options.images, WORKERS if options.clock == "wall" else WORKERS[:1]
    ours = [sys.executable, "-m", "benchmarks.data.pipeline_sides"]
    found = []
    if missing := dali.available():
        note(missing)
    else:
        found += [Side("dali", [*ours, "dali", str(BATCH), str(folder)], count)]
        found += [Side(name, [*ours, name, "64", str(folder)], count) for name in PLAIN]
    if find_spec("mpibow.data.decoded") is not None:
        found.append(Side("host", [*ours, "host", str(BATCH), str(folder)], count))
    done = subprocess.run([options.python, "-c", "import torch, PIL"], capture_output=True, text=True)
    if done.returncode:
        note(f"{options.python}: {done.stderr.strip().splitlines()[-1]}")
    else:
        loader = [options.python, "-m", "benchmarks.data.torch_loader", str(folder / "files")]
        found += [Side(f"torch-{each}", [*loader, str(each)], count) for each in workers]
    for name in ("raw-records", "raw-memory"):
        for batch in RAW_BATCHES:
            found.append(Side(f"{name}-{batch}", [*ours, name, str(batch), str(folder)], options.raw_images))
    return found


def best(rounds: Sequence[Mapping[str, float]], names: Sequence[str]) -> list[float]:
    """The fastest of them in every round, [] where none was measured."""
    present = [name for name in names if name in rounds[0]]
    return [max(each[name] for name in present) for each in rounds] if present else []


def rows(rounds: Sequence[Mapping[str, float]]) -> list[Found]:
    """One for each side, and for each target: a ratio to the best of the others, or images/s."""
    made: list[Found] = [
        {"side": name, "images_per_second": median(each[name] for each in rounds),
         "least": min(each[name] for each in rounds), "most": max(each[name] for each in rounds)}
        for name in rounds[0]
    ]  # fmt: skip
    peers = {"plain DALI": (PLAIN, OF_DALI), "torch DataLoader": ([f"torch-{w}" for w in WORKERS], OF_TORCH)}
    for row in made:
        if row["side"] in ("dali", "host"):
            row["ratios"] = {}
            for peer, (names, target) in peers.items():
                if others := best(rounds, names):
                    ratio = median(each[row["side"]] / other for each, other in zip(rounds, others, strict=True))
                    wanted = target if row["side"] == "dali" else None
                    row["ratios"][peer] = {"ratio": ratio, "target": wanted, "verdict": verdict(ratio, wanted)}
        elif row["side"].startswith("raw"):
            row["target"] = RAW
            row["verdict"] = verdict(row["images_per_second"], RAW)
    return made


def shown(row: Found) -> list[str]:
    ratios = [
        f"{each['ratio']:.2f} of {peer}"
        + (f", target {each['target']:.2f}: {each['verdict']}" if each["target"] else "")
        for peer, each in row.get("ratios", {}).items()
    ]
    if "target" in row:
        ratios = [f"target {row['target']:,}: {row['verdict']}"]
    spread = f"{row['least']:,.0f} to {row['most']:,.0f}"
    return [row["side"], f"{row['images_per_second']:,.0f}", spread, "; ".join(ratios)]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--source", type=Path, default=SAMPLE, help="a folder or .tar of JPEG files")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has PyTorch and Pillow")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--images", type=int, default=2000, help="encoded images a turn")
    parser.add_argument("--raw-images", type=int, default=200_000, help="raw images a turn")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--only", nargs="+", help="sides by the beginning of their names")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.source.exists():
        raise SystemExit(f"{options.source} is not there; name JPEG files with --source")
    about = machine()
    with tempfile.TemporaryDirectory() as folder:
        prepare(options.source, Path(folder))
        wanted = tuple(options.only or [""])
        processes = [
            Process(side, options.core, options.clock)
            for side in sides(options, Path(folder))
            if side.name.startswith(wanted)
        ]
        about["versions"] = {name: text for each in processes for name, text in each.versions.items()}
        rounds = []
        for number in range(options.rounds):
            rounds.append({each.side.name: each.turn() for each in processes})
            note(f"round {number + 1}: " + ", ".join(f"{name} {rate:,.0f}" for name, rate in rounds[-1].items()))
        for each in processes:
            each.close()
    about["load"].append(round(os.getloadavg()[0], 2))
    made = rows(rounds)
    if options.json:
        print(json.dumps({"about": about, "rows": made, "rounds": rounds}, indent=1))
        return
    print(f"{about['command']}\n{about['date']}, {about['processor']}, one core, load average {about['load']}")
    print(", ".join(f"{name} {text}" for name, text in about["versions"].items()) + "\n")
    print(table(("side", "images/s", "least to most", ""), [shown(row) for row in made]))


if __name__ == "__main__":
    main()
