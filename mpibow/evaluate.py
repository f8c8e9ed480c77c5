"""Evaluates a checkpoint's centre: python -m mpibow.evaluate CHECKPOINT DATA.

DATA is a folder of records, or the run's own train, validation or test data by that name.
"""

import argparse
import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from .comm.binding import allowed_cores
from .comm.communicator import Communicator
from .comm.launch import run_ranks, say
from .config import Config
from .config.schema import Device, MetricSettings
from .data.dataset import Array
from .data.decoded import Decoded
from .data.recordset import RecordSet
from .errors import CheckpointError, ConfigError
from .job import Job, kernels_of, on_device
from .job.choice import ROOMS, Rooms
from .job.measures import measures_of
from .job.predictor import plan_of, softmax
from .learn.scheduler import Scheduler
from .metrics.classes import confusion_table
from .models.losses import ignored
from .run import checkpoint, directory, saving
from .run.alike import alike, from_rank_0
from .run.evaluate import Evaluation, Evaluator
from .run.header import header_of
from .run.results import shown_metrics
from .run.stored import Stored, of_checkpoint, read_stored
from .run.stored_net import config_of, of_arrays, samples_and_graphs
from .system.command import parser_of, positive
from .system.json_text import nulled
from .system.streams import as_command

THREADS = 8  # of one rank, at the most
DEVICES = ("cuda", "onednn", "numpy")
CONFUSION, CONFUSION_OPTION = "confusion", "--confusion"  # the metric, and its name beside the run's own


def evaluate(
    path: Path,
    data: str,
    comm: Communicator,
    *,
    batch_size: int | None = None,
    top_k: int | None = None,
    predictions: Path | None = None,
    device: Device | None = None,
    average: bool = False,
    confusion: bool = False,
    rooms: Rooms = ROOMS,
) -> Evaluation:
    """Loss and accuracy of the centre in checkpoint (or run directory) `path` over `data`.

    `data` is a folder of records, or one of OWN: the run's own data of that name (./test is a folder). A model of
    ratings has the loss, the mean squared error, and no accuracy. Every rank calls it and takes its share. Labels among
    the `top_k` likeliest classes are counted too; the default is the run's evaluate.top_k. `predictions` is a CSV
    file: sample, label, predicted, probability. `device` is the run's own unless given, but for a GPU's run the host:
    on cuda it is computed in the run's precision. `average` evaluates the average of the centre instead.
    The result has the metrics of the run's settings, with `confusion` the matrix too.
    """
    threadpool_limits(1)
    stored = _open(path)
    config = config_of(stored)
    if of_arrays(stored) and (top_k is not None or predictions is not None):
        raise ConfigError(
            f"--top-k, --predictions: need classes, {stored.path} was trained on arrays by name; leave them out"
        )
    records, build = samples_and_graphs(stored, config, data, top_k)
    batch_size = batch_size or config.evaluate.batch_size
    config = replace(config, evaluate=replace(config.evaluate, batch_size=batch_size))
    job, differed = alike(Job(str(stored.path), config, build, records, None), comm)
    listed = [*config.metrics, *[MetricSettings(CONFUSION, label=CONFUSION_OPTION)] * confusion]
    measures = measures_of(listed, (), job.build(batch_size), classes=not of_arrays(stored))
    job, told = _opened(job, device, comm, rooms)
    for text in filter(None, (differed, told) if comm.rank == 0 else ()):
        say(text)
    opened = job.device
    plan = plan_of(job.build, job.config, batch_size, job.kernels)
    centre, statistics = plan.packed(from_rank_0(stored.weights_of(average), comm), str(stored.path))
    scheduler = Scheduler(apart=not opened.enqueues)
    rows = []
    try:
        workers = scheduler.workers(max(1, min(allowed_cores() // comm.local_size, THREADS)))
        each = None if predictions is None else lambda *row: rows.append(row)
        result = Evaluator(plan, job.build, ignored(config.loss), opened.bind_evaluation, measures)(
            records, centre, statistics, scheduler.run, lambda function: function(comm), each, workers=workers
        )
    finally:
        scheduler.close()
        opened.close()
    if predictions is not None:
        number = records.number if isinstance(records, RecordSet | Decoded) else int
        text = _table([row for part in comm.share(rows) for row in part], number)
        directory.on_rank_0(lambda function: function(comm), partial(directory.write, predictions, text))
    return result


def on_host(config: Config) -> Config:
    """The default settings that evaluate a run of a GPU: the host's kernels, in float32."""
    precision = config.precision if config.precision in ("auto", "float64") else "float32"
    return replace(config, device="auto" if config.device == "cuda" else config.device, precision=precision)


def _opened(job: Job, device: Device | None, comm: Communicator, rooms: Rooms) -> tuple[Job, str]:
    """The job on `device`, where None is the run's own on the host, and a note to print. Collective."""
    asked = replace(job.config, device=device or job.config.device)
    if device == "cuda":
        return on_device(replace(job, config=asked), comm, rooms)
    config = on_host(asked)
    return replace(job, config=config), kernels_of(config)[1]


def _open(path: Path) -> Stored:
    """The checkpoint itself, the newest of a run directory, or a saved file.

    A damaged file is an error; no other file replaces it.
    """
    if not path.is_dir():
        return read_stored(path)
    folder = next(saving.find(path), None)
    if folder is None:
        raise CheckpointError(f"{path}: holds no checkpoint")
    return of_checkpoint(folder, header_of(folder, checkpoint.read_header(folder)))


def _names(path: Path, classes: int) -> Sequence[str]:
    """The names of the classes; numbers where they have no names, or the net has more classes than names."""
    names = _open(path).input.get("class_names") or ()
    return names if len(names) == classes else list(map(str, range(classes)))


def _table(rows: list[tuple[Array, Array, Array]], number: Callable[[int], int]) -> str:
    """CSV of all predictions in the order of the samples. `number` gives a sample's number in the whole data set."""
    samples, labels = (np.concatenate([row[i] for row in rows]) for i in (0, 1))
    likely = softmax(np.concatenate([row[2] for row in rows]))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["sample", "label", "predicted", "probability"])
    for i in np.argsort(samples):
        predicted = int(likely[i].argmax())
        writer.writerow([number(int(samples[i])), int(labels[i]), predicted, f"{likely[i, predicted]:.6f}"])
    return out.getvalue()


def parser() -> argparse.ArgumentParser:
    made = parser_of(
        "evaluate", "Evaluates a checkpoint's centre, the average model, on a data set: prints accuracy and loss."
    )
    made.add_argument(
        "checkpoint",
        type=Path,
        help="a checkpoint, as runs/NAME/checkpoints/best, or a run directory for its newest one",
    )
    made.add_argument(
        "data", help="folder of records, as data/mnist/test; train, validation or test for the run's own data"
    )
    made.add_argument("--batch-size", type=positive, help="samples per batch (default: the run's)")
    made.add_argument("--top-k", type=int, metavar="K", help="also print the top-K accuracy (default: the run's)")
    made.add_argument(
        "--device", choices=DEVICES, help="device to compute on (default: the run's; for a run on a GPU, the CPU)"
    )
    made.add_argument("--predictions", type=Path, metavar="FILE.csv", help="write the prediction for every sample")
    made.add_argument("--average", action="store_true", help="evaluate the average of the centre (a run with ema)")
    made.add_argument(
        CONFUSION_OPTION, action="store_true", help="also print which classes were taken for which, and recall by class"
    )
    made.add_argument("--json", action="store_true", help="print one JSON line")
    return made


def main(argv: list[str] | None = None) -> None:
    command = parser()
    arguments = command.parse_args(argv)
    if arguments.top_k is not None and arguments.top_k < 2:
        command.error(f"--top-k: must be at least 2, got {arguments.top_k}")
    run_ranks(partial(_run, arguments))


def _run(arguments: argparse.Namespace, comm: Communicator, note: str) -> int:
    options = {name: value for name, value in vars(arguments).items() if name not in ("checkpoint", "data", "json")}
    found = evaluate(arguments.checkpoint, arguments.data, comm, **options)
    matrix = found.metrics.get(CONFUSION_OPTION)
    metrics = {name: value for name, value in found.metrics.items() if name != CONFUSION_OPTION}
    if comm.rank == 0 and arguments.json:
        more = dict[str, object]() if found.top_k_accuracy is None else {"top_k_accuracy": found.top_k_accuracy}
        more |= ({"metrics": metrics} if metrics else {}) | ({CONFUSION: matrix} if arguments.confusion else {})
        print(json.dumps(nulled({"accuracy": found.accuracy, **more, "loss": found.loss, "samples": found.count})))
    elif comm.rank == 0:
        shown = "" if found.accuracy is None else f"accuracy {found.accuracy:.4%}, "
        shown += "" if found.top_k_accuracy is None else f"top-k {found.top_k_accuracy:.4%}, "
        shown += f"loss {found.loss:.6f}{shown_metrics(metrics)}"
        print(f"{shown}, {found.count:,} samples, {found.seconds:.1f} s")
        if matrix is not None:
            print(f"\n{confusion_table(matrix, _names(arguments.checkpoint, len(matrix)))}")
    return 0


if __name__ == "__main__":
    as_command(main)
