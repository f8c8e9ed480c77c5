"""Data of every type, in every precision and execution: a simulated GPU learns of them what the host does."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpibow.config import load_mapping
from mpibow.data import Array, ArrayData, NamedArrays
from mpibow.graph import Tensor
from mpibow.graph.rewrite import Convert
from mpibow.job import Job, make_job
from mpibow.models.augmentation import Augmentation, ColourJitter
from mpibow.ops import (
    add,
    concat,
    dense,
    flatten,
    layer_norm,
    matrix_factorisation,
    multiply,
    normalise,
    relu,
    soft_cross_entropy,
    softmax_cross_entropy,
)
from tests.cuda.kernels.host import needs_compiler
from tests.cuda.simulated.gpu import simulated
from tests.cuda.simulated.test_whole_runs import inception, run, work
from tests.run import tiny

pytestmark = needs_compiler
APART = {"float32": 1e-3, "fp16": 0.02, "bf16": 0.15}  # of the largest weight
EXECUTIONS = ("streams", "fused")
FEW = {
    "learners": 2, "stop": {"epochs": None, "iterations": 3}, "rule": tiny.RULES["crossbow"], "update": {"lr": 0.02},
    "log": {"every": 1},
}  # fmt: skip
HOST = {}  # what it learnt, of every kind of data once

each_precision = pytest.mark.parametrize("precision", APART)


def losses(folder: Path) -> list[float]:
    return [event["loss"] for event in tiny.events(folder / "run", "train") if event["loss"] is not None]


def check(tmp_path: Path, data: str, job: Callable[..., Job], precision: str, execution: str) -> None:
    """What job(folder, **settings) learns of `data` on the GPU is what it learns on the host."""
    if data not in HOST:
        HOST[data] = tiny.run(job(tmp_path / "host", precision="float32")), losses(tmp_path / "host")
    own, apart, (host, its) = job(tmp_path, precision=precision, execution=execution), APART[precision], HOST[data]
    gpu = run(own, scale=256.0)  # its gradients fit into 16 bits from the first iteration on
    assert {event["execution"] for event in tiny.events(tmp_path / "run", "train")} == {execution}
    assert tiny.distance(gpu.weights, host.weights) < apart
    assert len(its) > 0
    assert losses(tmp_path) == pytest.approx(its, rel=apart)
    assert gpu.summary.test_loss == pytest.approx(host.summary.test_loss, rel=apart)


# Images with labels

AUGMENTED = Augmentation(pad=1, flip=True, mixup=0.4, cutout=2, jitter=ColourJitter(brightness=0.2, contrast=0.2))


# Each data type in each precision and execution, one of them augmented; the other way round where 16 bits may overflow.
IMAGES = [
    (*kind, precision, way)
    for precision in APART
    for way in EXECUTIONS
    for kind in (("uint8", AUGMENTED), ("float32", None))
] + [("uint8", None, "fp16", "fused"), ("float32", AUGMENTED, "fp16", "fused")]


@pytest.mark.parametrize(
    ("dtype", "augmentation", "precision", "execution"),
    IMAGES,
    ids=["-".join((dtype, "augmented" if more else "plain", *how)) for dtype, more, *how in IMAGES],
)
def test_images(tmp_path, dtype, precision, execution, augmentation):
    """Numbers of float32 may be more than fp16 can hold, until they are scaled."""
    sets = {"train": tiny.TRAIN, "test": tiny.TEST}
    if dtype == "float32":
        sets = {
            key: ArrayData(np.float32(1000) * data.images, data.labels, classes=tiny.CLASSES, name=data.name)
            for key, data in sets.items()
        }
        if augmentation is not None:
            augmentation = replace(augmentation, jitter=None)  # which makes 16 bits of them before
    settings = {**FEW, **sets, "net": inception, "augmentation": augmentation}
    job = lambda out, **how: work(out, **settings, **how)  # noqa: E731
    check(tmp_path, f"images {dtype} {augmentation}", job, precision, execution)


# Arrays by name


class Long(NamedArrays):
    """As NamedArrays, but its integers are int64."""

    def __init__(self, arrays: dict[str, Array], *, name: str) -> None:
        super().__init__(arrays, name=name)
        self.arrays = {key: one.astype(np.int64) if one.dtype.kind == "i" else one for key, one in self.arrays.items()}
        self.inputs = {key: (one.shape[1:], one.dtype) for key, one in self.arrays.items()}


def samples(n: int, seed: int) -> dict[str, Array]:
    """All that a net that gives its own loss may ask for."""
    generator = np.random.default_rng(seed)
    label = generator.integers(0, tiny.CLASSES, n)
    return {
        "x": generator.normal(size=(n, 2, 4)),
        "bytes": generator.integers(0, 255, (n, 3)).astype(np.uint8),
        "label": label,
        "weight": generator.uniform(0.5, 2, n),
        "target": np.eye(tiny.CLASSES)[label] * 0.7 + 0.1,
        "rating": generator.normal(size=n),
    }


def hard(x: Tensor, label: Tensor, **_: Tensor) -> Tensor:
    """Its norm is float32, what follows is not."""
    return softmax_cross_entropy(dense(relu(dense(layer_norm(flatten(x)), 8)), tiny.CLASSES), label)


def soft(x: Tensor, target: Tensor, **_: Tensor) -> Tensor:
    """A target that stays float32 beside logits of 16 bits; x goes into the net, and beside what it made."""
    seen = flatten(x)
    y = add(relu(dense(seen, 8)), seen)
    return soft_cross_entropy(dense(y, tiny.CLASSES), flatten(target))


def weighted(x: Tensor, label: Tensor, weight: Tensor, **_: Tensor) -> Tensor:
    """A loss that an input has a say in."""
    return multiply(hard(x, label), weight)


def scaled(x: Tensor, bytes: Tensor, label: Tensor, **_: Tensor) -> Tensor:
    """Of whole numbers and of others, read as they are stored."""
    y = concat(normalise(flatten(x), (0.1,) * 8, (2.0,) * 8), normalise(bytes, (120.0,) * 3, (60.0,) * 3), axis=1)
    return softmax_cross_entropy(dense(y, tiny.CLASSES), label)


def rated(label: Tensor, rating: Tensor, **_: Tensor) -> Tensor:
    """Ratings are float32 in every precision, as the tables are."""
    return matrix_factorisation(label, label, rating, users=tiny.CLASSES, items=tiny.CLASSES, factors=2)


def named(out: Path, net, arrays, **how) -> Job:
    settings = {
        "name": "run", "out": str(out), "batch_size": 4, "device": "numpy", "checkpoint": {"every": None}, **FEW, **how,
    }  # fmt: skip
    train, test = arrays(samples(40, 0), name="train"), arrays(samples(12, 1), name="test")
    config = load_mapping(settings, model_given=True, data_given=True)
    return make_job("named", config, net, train, test, normalise="none")


NETS = [(hard, NamedArrays), (soft, NamedArrays), (scaled, NamedArrays), (weighted, Long), (rated, Long)]


@pytest.mark.parametrize(
    ("net", "arrays", "execution"),
    [(*one, way) for one in NETS for way in EXECUTIONS if one[0] is not rated or way == "streams"],
)
@each_precision
def test_arrays_by_name(tmp_path, net, arrays, execution, precision):
    """Ratings have no fused form."""
    job = lambda out, **how: named(out, net, arrays, **how)  # noqa: E731
    check(tmp_path, f"{net.__name__} {arrays}", job, precision, execution)


@pytest.mark.parametrize(
    ("net", "wanted"),
    [
        (hard, ["layer_norm1 in 16 bits"]),
        (soft, ["flatten1 in 16 bits"]),
        (weighted, ["layer_norm1 in 16 bits"]),
        (rated, []),
        (scaled, []),
    ],
)
def test_only_what_must_be_is_converted_and_that_once(tmp_path, net, wanted):
    job = replace(named(tmp_path, net, NamedArrays, precision="bf16"), device=simulated(precision="bf16"))
    job = replace(job, config=replace(job.config, device="cuda"))
    assert [node.name for node in job.training_plan().graph.nodes if isinstance(node.op, Convert)] == wanted
