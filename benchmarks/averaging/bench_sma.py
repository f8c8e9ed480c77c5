"""What replicas buy: accuracies at equal epochs of branches from one half-trained net, and of baselines.

    python -m benchmarks.averaging.bench_sma                  # what is missing
    python -m benchmarks.averaging.bench_sma --cells 10       # so many cells
    python -m benchmarks.averaging.bench_sma --only schedules # one table: the shortest schedule as good as one learner
    python -m benchmarks.averaging.bench_sma --only resnet20  # one net; mnist: LeNet
    python -m benchmarks.averaging.bench_sma --list           # what is missing; runs nothing
    python -m benchmarks.averaging.bench_sma --plot           # draws benchmarks/results/sma.svg; runs nothing
    python -m benchmarks.averaging.bench_sma --page           # the page of what is there; runs nothing

Each run is a cell, kept in benchmarks/results/sma.json as soon as it ends; started again it runs only what is
missing. The page, benchmarks/results/sma.md, is made of what is there. All learners are of one process, and cells
count epochs, not seconds: the load of the machine changes no number. Several of these commands share the cells: one on
each core (`taskset -c 0 python -m benchmarks.averaging.bench_sma & taskset -c 1 ...`) ends sooner than one on all.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from zlib import crc32

import numpy as np

import mpibow as mb
from benchmarks.averaging.sma_arms import (
    ANEW,
    BN,
    FULL,
    GN,
    GROWTH,
    LENET,
    MUON,
    NETS,
    RESNET,
    TABLES,
    TRAIN,
    VALIDATION,
)
from benchmarks.averaging.sma_cells import Cell, cells
from benchmarks.averaging.sma_page import left_out, page
from benchmarks.averaging.sma_scaling import counts
from benchmarks.sides import ROOT, Found, note, parser_of
from mpibow.errors import DivergedError
from mpibow.fitted import Fitted
from mpibow.graph import Array, Plan, Tensor, choose_layout, compile_plan
from mpibow.job import kernels_of, open_data
from mpibow.models import Net
from mpibow.models.convnet import convnet, lenet
from mpibow.models.resnet import resnet20
from mpibow.run.directory import write
from mpibow.sync import gain

RESULTS = ROOT / "benchmarks/results/sma.json"
CERTAIN = gain.CERTAIN
Images = tuple[Array, Array]  # (n, c, h, w) uint8, labels (n,)
BATCH, BATCHES = 256, 10  # of training images, whose statistics replace the replicas' mean ones
TESTED = 500  # images of a batch in evaluation
MODELS: Mapping[str, Callable[[Tensor], Tensor]] = {
    BN: partial(convnet, classes=10, layers=3, norm="batch"),
    GN: partial(convnet, classes=10, layers=3, norm="group"),
    MUON: partial(convnet, classes=10, layers=3, norm="batch"),
    RESNET: partial(resnet20, classes=10),
    FULL: partial(resnet20, classes=10),
    LENET: partial(lenet, classes=10),
}


def asked(found: Found, only: str | None = None) -> list[Cell]:
    """The cells of a table or of a net, each once; none before the rates that they need have run."""
    names = (cell for cell in cells(found) if only in (None, cell.table, cell.also, NETS[cell.net].name))
    return list(dict.fromkeys(names))


def missing(found: Found, only: str | None = None) -> list[Cell]:
    """Those that have not run."""
    return [cell for cell in asked(found, only) if cell.key not in found]


def kept(path: Path) -> Found:
    """What came of the cells that have run, by their keys."""
    return json.loads(path.read_text()) if path.exists() else {}


def keep(path: Path, key: str, found: object) -> None:
    """Adds a cell to the results, which other processes may be adding to."""
    with _locked(path.parent):
        write(path, json.dumps(kept(path) | {key: found}, indent=1) + "\n")


class Claim:
    """The cell, or the branches of one trunk, that this process runs. The system drops it when the process ends."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._name, self._file = folder, "", -1
        folder.mkdir(parents=True, exist_ok=True)

    def first(self, cells: Sequence[Cell]) -> Cell | None:
        """The first of `cells` that no other process runs, which is claimed; None if they run all."""
        for cell in cells:
            name = f"{crc32(f'{cell.net} {cell.trunk}'.encode() if cell.trunk else cell.key.encode()):08x}.lock"
            if name == self._name:
                return cell
            file = os.open(self._folder / name, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                continue
            self.drop()
            self._name, self._file = name, file
            return cell
        return None

    def drop(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._name, self._file = "", -1


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


@dataclass(frozen=True)
class Data:
    """The first `count` images of the training set train, its last ones choose rates, the test set is the result."""

    folder: Path
    count: int = TRAIN

    @cached_property
    def train(self) -> Images:
        return _images(self.folder / "train", 0, self.count)

    @cached_property
    def validation(self) -> Images:
        return _images(self.folder / "train", -VALIDATION, VALIDATION)

    @cached_property
    def test(self) -> Images:
        return _images(self.folder / "test", 0, 10_000)


def _images(folder: Path, first: int, count: int) -> Images:
    data = open_data(str(folder))
    images, labels = np.zeros((count, *data.shape), np.uint8), np.zeros(count, np.int32)
    data.read(np.arange(first, first + count) % data.count, images, labels)
    return images, labels


def run(cell: Cell, data: Data, runs: Path) -> Found:
    """What came of it: accuracies are shares of the images, `distance` |w_i - W| / |W| over the branch, and last."""
    net, out, resume = MODELS[cell.net], runs / "cell", None
    gain.CERTAIN = CERTAIN if cell.growth is None else cell.growth
    shutil.rmtree(out, ignore_errors=True)
    if cell.trunk is not None:
        shutil.copytree(_trunk(cell, net, data, runs), out)
        resume = str(next(out.iterdir()))
    try:
        fitted = _fit(net, data, out, cell.settings, resume, checkpoint={"every": None, "best": False})
    except DivergedError:
        return {"diverged": True, "validation": 0.0}
    chooses = cell.table in ("rates", GROWTH)
    test = data.validation if chooses else data.test
    found: Found = {"seconds": round(fitted.summary.seconds, 1), "gain": round(fitted.summary.gain, 2)}
    events = [event for event in fitted.history if event["event"] == "train"]
    if distances := [event["distance"] for event in events[_branched(events, cell) :] if "distance" in event]:
        found |= {"distance": fmean(distances), "distance_last": distances[-1]}
    if fitted.config.rule.of(fitted.config.learners).gain == "measured":
        found |= {"gain_mean": round(fmean(event["gain"] for event in events), 2)}
    if chooses:
        return found | {"validation": _tested(fitted, fitted.weights, test)[0]}
    with ThreadPoolExecutor(2) as pool:
        kinds = {"mean": fitted.weights}
        if NETS[cell.net].batch_norm and cell.trunk is not None and cell.seed <= ANEW:
            kinds["anew"] = _anew(fitted, data.train)
        if fitted.average is not None:
            kinds["average"] = fitted.average
        for name, (accuracy, loss) in zip(
            kinds, pool.map(lambda weights: _tested(fitted, weights, test), kinds.values()), strict=True
        ):
            found |= {name: accuracy, f"{name}_loss": loss}
    return found


def _branched(events: list[Found], cell: Cell) -> int:
    """Where the events of the branch begin, behind the trunk's."""
    return 0 if cell.trunk is None else sum(event["epoch"] <= cell.trunk["stop"]["epochs"] for event in events)


def _trunk(cell: Cell, net: Net, data: Data, runs: Path) -> Path:
    """The folder of the half-trained net's run directory, made unless the cell before had the same."""
    out, mark, label = runs / "trunk", f"{cell.net}, {cell.trunk}", runs / "trunk.txt"
    if not (label.exists() and label.read_text() == mark):
        shutil.rmtree(out, ignore_errors=True)
        label.unlink(missing_ok=True)
        assert cell.trunk is not None
        keep = {"every": f"{cell.trunk['stop']['epochs']} epochs", "keep": 1, "best": False}
        _fit(net, data, out, cell.trunk, None, checkpoint=keep)
        label.write_text(mark)
    return out


def _fit(net: Net, data: Data, out: Path, settings: Mapping[str, object], resume: str | None, **more: object) -> Fitted:
    return mb.fit(net, data.train, resume=resume, out=str(out), **{**settings, **more})


def _bound(fitted: Fitted, batch: int, training: bool) -> Plan:
    graph, kernels = fitted.make(batch, training), kernels_of(fitted.config)[0]
    layout = choose_layout(graph, kernels, training=training)
    return compile_plan(graph, layout, kernels, kernels.dtype(fitted.config.precision), training=training)


def _tested(fitted: Fitted, weights: Mapping[str, Array], images: Images) -> tuple[float, float]:
    """Accuracy and loss."""
    plan = _bound(fitted, TESTED, training=False)
    centre, statistics = plan.packed(weights, "weights")
    bound, sums = plan.bind(centre, statistics=statistics), np.zeros(2)
    for start in range(0, len(images[1]), TESTED):
        rows = slice(start, start + TESTED)
        bound.inputs["image"][:], bound.inputs["label"][:] = images[0][rows], images[1][rows]
        bound.run()
        sums += [float(bound.outputs[name].sum(dtype=np.float64)) for name in ("accuracy", "loss")]
    accuracy, loss = (sums / len(images[1])).tolist()
    return accuracy, loss


def _anew(fitted: Fitted, images: Images) -> dict[str, Array]:
    """The weights with statistics of their own on training images, in place of the mean over replicas."""
    plan = _bound(fitted, BATCH, training=True)
    centre, statistics = plan.packed(fitted.weights, "weights")
    statistics[:] = 0
    bound = plan.bind(centre, np.zeros_like(centre), statistics)
    for number in range(BATCHES):
        rows = slice(number * BATCH, (number + 1) * BATCH)
        bound.inputs["image"][:], bound.inputs["label"][:] = images[0][rows], images[1][rows]
        bound.run()
    statistics /= 1 - 0.9**BATCHES  # they began as 0, and moved by 0.1 a batch
    return plan.unpacked(centre, statistics)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--cifar", type=Path, default=Path("data/cifar10"), metavar="DIR", help="as datasets/cifar.py writes it"
    )
    parser.add_argument(
        "--mnist", type=Path, default=Path("data/mnist"), metavar="DIR", help="as mpibow convert mnist writes it"
    )
    choices = (*TABLES, *(net.name for net in NETS.values()))
    parser.add_argument("--only", choices=choices, help="a table, or a net (default: all)")
    parser.add_argument("--cells", type=int, default=1 << 30, metavar="N", help="run so many of what is missing")
    parser.add_argument("--list", action="store_true", help="print what is missing, and run nothing")
    parser.add_argument("--page", action="store_true", help="write the page of what is there, and run nothing")
    parser.add_argument("--plot", action="store_true", help="draw accuracy over learners, and run nothing")
    parser.add_argument("--pause", type=Path, metavar="FILE", help="wait between cells as long as FILE exists")
    parser.add_argument("--runs", type=Path, default=Path("runs/sma"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE.json", help="(default: %(default)s)")
    options = parser.parse_args()
    found = kept(options.results)
    if not asked(found, options.only):
        parser.error(f"--only {options.only}: needs rates that have not run; run --only rates first")
    if options.list:
        print(*(cell.key for cell in missing(found, options.only)), sep="\n")
        return
    if options.plot:
        from benchmarks.averaging.sma_plot import draw  # matplotlib

        note(f"{draw(counts(found, BN), options.results.with_suffix('.svg'))}")
        return
    if not options.page:
        cifar, mnist = options.cifar, options.mnist
        data = {"cifar10": Data(cifar), "mnist": Data(mnist), "whole cifar10": Data(cifar, 50_000)}
        needed = {data[NETS[cell.net].data].folder for cell in missing(found, options.only)}
        for name, folder in (("cifar", cifar), ("mnist", mnist)):
            if folder in needed and not folder.is_dir():
                make = f"python -m mpibow convert {name} --source FOLDER --output {folder}"
                parser.error(f"no folder {folder}: {make}, or --{name} DIR")
        claim, runs = Claim(options.runs / "claims"), options.runs / str(os.getpid())
        runs.mkdir()
        for _ in range(options.cells):
            while left := missing(found := kept(options.results), options.only):  # anew: rates choose other cells
                waits = options.pause is not None and options.pause.exists()
                if not waits and (cell := claim.first(left)) is not None:
                    break
                time.sleep(2.0)  # another process runs what is left
            else:
                break
            begin = time.perf_counter()
            result = run(cell, data[NETS[cell.net].data], runs)
            keep(options.results, cell.key, result)
            note(f"{len(left)} left; {time.perf_counter() - begin:.1f} s: {cell.key}: {result}")
        claim.drop()
        shutil.rmtree(runs)
        found = kept(options.results)
    write(options.results.with_suffix(".md"), page(found) + left_out(missing(found)))


if __name__ == "__main__":
    main()
