"""Time to accuracy on a GPU for bench_gpu.py: our runs of train, PyTorch's loop, and the data of both."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.averaging.bench_accuracy import unpack
from benchmarks.gpu.gpu_items import Bench, Item
from benchmarks.sides import ROOT, Failed, Found, Peer, ours


@dataclass(frozen=True)
class Theirs:
    """How PyTorch trains beside ours. `drops` are epochs at which its rate falls to a tenth; without, a cosine."""

    batch_size: int
    lr: float
    epochs: int
    momentum: float = 0.0
    drops: tuple[int, ...] = ()
    warm_up: int = 0  # epochs


@dataclass(frozen=True)
class Task:
    about: str
    config: str  # ours
    model: str
    convert: str  # the script that makes the records, and of what
    source: str
    accuracy: float
    batch_size: int
    theirs: Mapping[str, Theirs]
    crop: int = 0  # PyTorch pads by so much, crops and flips, as the config does
    minutes: float = 20.0  # after which a run is given up


TASKS: Mapping[str, Task] = {
    "resnet32": Task(
        "ResNet-32 on CIFAR-10 to 88 %", "launch/resnet32-cifar10.yaml", "resnet32", "cifar.py",
        "../shared/data/cifar10", 0.88, 16,
        {
            "PyTorch-16": Theirs(16, 0.0125, 140, 0.9, (80, 120)),
            "PyTorch-512": Theirs(512, 0.4, 140, 0.9, (80, 120), warm_up=5),
        },
        crop=4,
    ),
    "lenet": Task(
        "LeNet on MNIST to 99 %", "launch/lenet-mnist.yaml", "lenet", "mnist.py", "../shared/data/mnist", 0.99, 8,
        {"PyTorch-8": Theirs(8, 0.02, 5)}, minutes=5.0,
    ),
}  # fmt: skip


def items(
    tasks: Sequence[str], seeds: Sequence[int], peer: Peer | None, folder: Path, data: Path | None
) -> Iterator[Item]:
    """One run each: in turn, seed by seed. Records and arrays are made in `folder` where they are not there."""
    for name in tasks:
        task = TASKS[name]
        for seed in seeds:
            yield Item(
                f"accuracy {name} mpibow {seed}", 30.0,
                lambda bench, _, task=task, seed=seed: mpibow(bench, task, records(task, folder, data), seed),
            )  # fmt: skip
            for side in task.theirs if peer else ():
                yield Item(
                    f"accuracy {name} {side} {seed}", 30.0,
                    lambda bench, _, task=task, side=side, seed=seed: pytorch(
                        bench, peer, task, side, records(task, folder, data), folder, seed
                    ),
                )  # fmt: skip


def records(task: Task, folder: Path, data: Path | None) -> Path:
    """Converted once."""
    made = folder / task.model
    if not (made / "test").exists():
        source = str(data / Path(task.source).name) if data else task.source
        convert = [sys.executable, f"datasets/{task.convert}", "--source", source, "--output", str(made)]
        done = subprocess.run(convert, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise Failed(convert, done.returncode, done.stderr.strip())
    return made


def mpibow(bench: Bench, task: Task, data: Path, seed: int) -> Found:
    with tempfile.TemporaryDirectory() as out:
        settings = [f"data.train={data / 'train'}", f"data.test={data / 'test'}", "learners=auto", f"seed={seed}"]
        settings += ["checkpoint.every=null", "checkpoint.best=false", f"stop.accuracy={task.accuracy}"]
        settings += [f"stop.minutes={task.minutes:g}", f"out={out}", "name=run"]
        ours("train", task.config, *settings, *bench.on("tf32"), limit=bench.left())
        found = json.loads(Path(out, "run/summary.json").read_text())
    return {
        "seconds": found["seconds_to_target"], "epochs": found["epochs_to_target"], "batch_size": task.batch_size,
        "learners": found.get("learners"), "images_per_second": found["images_per_second"],
    }  # fmt: skip


def pytorch(bench: Bench, peer: Peer | None, task: Task, side: str, data: Path, folder: Path, seed: int) -> Found:
    assert peer is not None
    how, arrays = task.theirs[side], folder / f"{task.model}.npz"
    if not arrays.exists():
        unpack(data, arrays)
    settings = {**vars(how), "model": task.model, "accuracy": task.accuracy, "crop": task.crop, "seed": seed}
    settings |= {"seconds": 60 * task.minutes, "device": "cuda" if bench.device == "cuda" else "cpu"}
    found = peer("gpu.torch_gpu_accuracy", arrays, json.dumps(settings), limit=bench.left())
    return {**found, "batch_size": how.batch_size}
