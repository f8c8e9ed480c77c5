"""Runs a cell of bench_sma.py in this process: trains, and tests the centre with both kinds of statistics."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import mpibow as mb
from benchmarks.averaging.sma_arms import ANEW, BN, FULL, GN, GROWTH, LENET, MUON, NETS, RESNET, TRAIN, VALIDATION
from benchmarks.averaging.sma_cells import Cell
from mpibow.errors import DivergedError
from mpibow.fitted import Fitted
from mpibow.graph.graph import Array, Tensor
from mpibow.graph.plan import Plan, choose_layout, compile_plan
from mpibow.job import kernels_of, open_data
from mpibow.models.convnet import convnet
from mpibow.models.lenet import lenet
from mpibow.models.resnet_cifar import resnet20
from mpibow.run.state import from_named, named
from mpibow.sync import gain

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


def run(cell: Cell, data: Data, runs: Path) -> dict[str, Any]:
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
    found: dict[str, Any] = {"seconds": round(fitted.summary.seconds, 1), "gain": round(fitted.summary.gain, 2)}
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


def _branched(events: list[dict[str, Any]], cell: Cell) -> int:
    """Where the events of the branch begin, behind the trunk's."""
    return 0 if cell.trunk is None else sum(event["epoch"] <= cell.trunk["stop"]["epochs"] for event in events)


def _trunk(cell: Cell, net: Any, data: Data, runs: Path) -> Path:
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


def _fit(net: Any, data: Data, out: Path, settings: Mapping[str, Any], resume: str | None, **more: Any) -> Fitted:
    return mb.fit(net, data.train, resume=resume, out=str(out), **{**settings, **more})


def _bound(fitted: Fitted, batch: int, training: bool) -> Plan:
    graph, kernels = fitted.make(batch, training), kernels_of(fitted.config)[0]
    layout = choose_layout(graph, kernels, training=training)
    return compile_plan(graph, layout, kernels, kernels.dtype(fitted.config.precision), training=training)


def _tested(fitted: Fitted, weights: Mapping[str, Array], images: Images) -> tuple[float, float]:
    """Accuracy and loss."""
    plan = _bound(fitted, TESTED, training=False)
    centre, statistics = from_named(weights, plan, "weights")
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
    centre, statistics = from_named(fitted.weights, plan, "weights")
    statistics[:] = 0
    bound = plan.bind(centre, np.zeros_like(centre), statistics)
    for number in range(BATCHES):
        rows = slice(number * BATCH, (number + 1) * BATCH)
        bound.inputs["image"][:], bound.inputs["label"][:] = images[0][rows], images[1][rows]
        bound.run()
    statistics /= 1 - 0.9**BATCHES  # they began as 0, and moved by 0.1 a batch
    return named(plan, centre, statistics)
