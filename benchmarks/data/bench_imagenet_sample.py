"""Learns 64 photographs of ImageNet by heart with launch/resnet50-imagenet.yaml, and resumes in the middle of an epoch.

    python -m benchmarks.data.bench_imagenet_sample [--source TAR] [--pipeline dali]     # half an hour on two cores

Two ranks. The images of the sample, one a synset, are grouped into 16 classes, four synsets in a row each, and made a
data set by datasets/folder.py. Of the launch file only data, counts, batch and stop are set otherwise. Two things are
shown: without augmentation the centre comes to 95 % of the images it was trained on; with the launch file's
augmentation a run that stopped within an epoch and was resumed ends with the same bits as one that went through.
"""

import argparse
import csv
import io
import json
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.sides import ROOT, Found, launched, machine, note, parser_of, table, write

SAMPLE = ROOT.parent / "shared/data/imagenet-sample/imagenet-1000class-400smallest.tar"
CONFIG = "launch/resnet50-imagenet.yaml"
IMAGES, GROUP, RANKS = 64, 4, 2
TARGET, EPOCHS = 0.95, 60
PLAIN = ("data.augment.area=null", "data.augment.flip=false")
CUT, END = 3, 5  # iterations: with 32 images each, 64 an epoch, the cut is within the second
PACKAGES = ("nvidia-dali-cuda130", "nvidia-dali-cuda120", "numba", "pillow")


def prepare(sample: Path, folder: Path) -> Path:
    """The data set of the sample's first images, in `folder`."""
    with tarfile.open(sample) as tar:

        def content(name: str) -> bytes:
            file = tar.extractfile(name)
            assert file is not None
            return file.read()

        rows = list(csv.DictReader(io.StringIO(content("labels.csv").decode())))[:IMAGES]
        for row in rows:
            place = folder / "source" / row["synset"]
            place.mkdir(parents=True)
            (place / row["file"]).write_bytes(content(row["file"]))
    groups = "".join(f"{row['synset']}\tgroup {number // GROUP:02d}\n" for number, row in enumerate(rows))
    (folder / "groups.txt").write_text(groups)
    words = ["--source", folder / "source", "--classes", folder / "groups.txt", "--output", folder / "data"]
    subprocess.run([sys.executable, "datasets/folder.py", *map(str, words)], cwd=ROOT, check=True)
    return folder / "data/train"


def settings(data: Path, options: argparse.Namespace) -> list[str]:
    """What every run sets: data and counts."""
    return [
        *(f"data.train={data}", f"data.pipeline={options.pipeline}", f"data.image.size={options.size}"),
        *(f"model.classes={IMAGES // GROUP}", f"learners={options.learners}", f"batch_size={options.batch}"),
    ]


def plain(data: Path) -> list[str]:
    """Without augmentation, evaluated on what is trained on, until that is known."""
    return [*PLAIN, f"data.test={data}", f"stop.accuracy={TARGET}", f"stop.epochs={EPOCHS}"]


def train(out: Path, name: str, words: Sequence[str]) -> None:
    line = ["-m", "mpibow.train", CONFIG, *words, f"out={out}", f"name={name}"]
    note(f"$ mpirun -np {RANKS} python {shlex.join(line)}")
    launched(RANKS, *line)


def evaluations(run: Path) -> list[Found]:
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [event for event in events if event["event"] == "evaluate"]


def differing(one: Path, other: Path) -> list[str]:
    """The files of arrays of two checkpoints that are not the same bytes, or only in one of them."""
    files = sorted({path.name for folder in (one, other) for path in folder.glob("*.safetensors")})
    if not files:
        raise SystemExit(f"{one} and {other} have no arrays")

    def content(path: Path) -> bytes | None:
        return path.read_bytes() if path.exists() else None

    return [name for name in files if content(one / name) != content(other / name)]


def resumed(out: Path, words: Sequence[str]) -> list[str]:
    """What differs after END iterations between a run that went through, and one that stopped at CUT; [] is right."""
    more = [*words, "data.test=null", "stop.epochs=null"]
    train(out, "whole", [*more, f"stop.iterations={END}"])
    train(out, "parts", [*more, f"stop.iterations={CUT}"])
    train(out, "parts", [*more, f"stop.iterations={END}", "--resume", "auto"])
    last = f"checkpoints/iteration-{END:010d}"
    return differing(out / "whole" / last, out / "parts" / last)


def report(about: Found, words: Sequence[str], found: Sequence[Found], other: list[str]) -> str:
    last = found[-1]
    reached = (
        f"{last['accuracy']:.1%} after {last['epoch']:g} epochs: {'met' if last['accuracy'] >= TARGET else 'missed'}"
    )
    rows = [[f"{event['epoch']:g}", f"{event['accuracy']:.1%}", f"{event['loss']:.3g}"] for event in found]
    bits = f"differ in {', '.join(other)}" if other else "are the same bytes"
    return (
        f"# {IMAGES} photographs of ImageNet, learnt by ResNet-50\n\n    {about['command']}\n\n"
        f"{about['date']}, {about['processor']}, {about['cores']} cores that were shared; commit {about['commit']}; "
        f"{', '.join(f'{name} {text}' for name, text in about['versions'].items())}.\n\n"
        f"Two ranks of `{CONFIG}` with {' '.join(words)}.\n\n"
        f"Without augmentation ({' '.join(PLAIN)}), at least {TARGET:.0%} of the images it was trained on: {reached}.\n"
        f"With it, {END} iterations in one go and resumed at {CUT}, within an epoch: all arrays of the last checkpoint "
        f"{bits}.\n\n" + table(("epoch", "accuracy on the images trained on", "loss"), rows)
    )


def versions(summary: Found) -> dict[str, str]:
    found = dict(summary["versions"])
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--source", type=Path, default=SAMPLE, help="the sample, a .tar with labels.csv in it")
    parser.add_argument("--pipeline", default="dali", choices=("dali", "host"))
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--learners", type=int, default=1, help="of each of the two ranks")
    parser.add_argument("--size", type=int, default=224, help="smaller for a trial")
    parser.add_argument("--output", type=Path, help="folder for imagenet-sample.md and .json")
    options = parser.parse_args()
    if not options.source.exists():
        raise SystemExit(f"{options.source} is not there; name it with --source")
    about = machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = prepare(options.source, folder)
        words = settings(data, options)
        train(folder, "plain", [*words, *plain(data)])
        found = evaluations(folder / "plain")
        about["versions"] = versions(json.loads((folder / "plain/summary.json").read_text()))
        other = resumed(folder, words)
    shown = [word for word in words if not word.startswith("data.train")]
    text = report(about, shown, found, other)
    print(text)
    if options.output:
        write(options.output, "imagenet-sample", text, {"about": about, "evaluations": found, "differing": other})
    if other or found[-1]["accuracy"] < TARGET:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
