"""A job: what is trained on what, opened and checked before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from mpibow.config import Config
from mpibow.config.strict import check_options
from mpibow.data.dataset import Dataset
from mpibow.data.digits import ensure_digits
from mpibow.data.recordset import open_records
from mpibow.errors import ConfigError, ShapeError
from mpibow.graph.layout import Layout, plan_layout
from mpibow.graph.plan import Plan, choose_layout, compile_plan
from mpibow.kernels import KernelSet, choose
from mpibow.models import MODELS
from mpibow.models.classifier import Build, Net, classifier

# What `python -m mpibow.train` does without a file: real digits, a small convolutional net, under a minute.
BUILT_IN = {
    "model": {"name": "convnet"},
    "data": {"train": "data/digits/train", "test": "data/digits/test"},
    "batch_size": 8,
    "learners": 2,
    "update": {"lr": 0.02, "momentum": 0.9, "schedule": {"name": "cosine", "epochs": 20}},
    "stop": {"epochs": 20},
}


@dataclass(frozen=True)
class Job:
    """`build` gives the graph for a batch size: inputs named as a slot's arrays, outputs loss, accuracy and logits."""

    title: str
    config: Config
    build: Build
    train: Dataset
    test: Dataset | None
    canonical: bool = False  # weights lie as they are saved, whatever the kernels want

    @property
    def kernels(self) -> KernelSet:
        return kernels_of(self.config)[0]

    @cached_property
    def layout(self) -> Layout:
        """A replica's layout, as the kernels of the training plan want it, or the canonical one."""
        graph, decay_biases = self.build(self.config.batch_size), self.config.update.decay_biases
        return plan_layout(graph, decay_biases) if self.canonical else choose_layout(graph, self.kernels, decay_biases)

    @property
    def weights(self) -> int:
        """How many numbers are trained."""
        return self.build(self.config.batch_size).weight_count

    def training_plan(self) -> Plan:
        return self._plan(self.config.batch_size, training=True)

    def evaluation_plan(self, batch_size: int | None = None) -> Plan:
        return self._plan(batch_size or self.config.evaluate.batch_size, training=False)

    def _plan(self, batch: int, *, training: bool) -> Plan:
        return compile_plan(self.build(batch), self.layout, self.kernels, self.config.precision, training=training)


def open_job(config: Config) -> Job:
    """The job of a config that names its model and data. Raises ConfigError or RecordError."""
    assert config.model is not None
    assert config.data is not None
    train = open_data(config.data.train)
    test = None if config.data.test is None else open_data(config.data.test)
    if config.model.classes not in (None, train.classes):
        raise ConfigError(
            f"data.train: {config.data.train} has {train.classes} classes, model.classes is {config.model.classes}"
        )
    net = named_net(config, train.classes)
    title = f"{config.model.name}-{Path(config.data.train).resolve().parent.name}"
    return make_job(title, config, net, train, test, standardise=config.data.normalise)


def named_net(config: Config, classes: int) -> Net:
    """The net that `model` names, with its options. Raises ConfigError."""
    assert config.model is not None
    if config.model.name not in MODELS:
        raise ConfigError(f"model.name: must be one of {', '.join(sorted(MODELS))}, got '{config.model.name}'")
    function = MODELS[config.model.name]
    return partial(function, classes=classes, **check_options("model", function, config.model.options))


def kernels_of(config: Config) -> tuple[KernelSet, str]:
    """The kernel set of `device`, and what to say of it. Raises DeviceError."""
    return choose(config.device, config.precision, config.onednn.library)


def make_job(title: str, config: Config, net: Net, train: Dataset, test: Dataset | None, *, standardise: bool) -> Job:
    """The job of a net given as a function, on data given as objects. Raises ConfigError where they don't fit."""
    if test is not None and (test.shape, test.dtype) != (train.shape, train.dtype):
        raise ConfigError(
            f"data.test: {test.name} has images {test.shape} {test.dtype}, data.train has {train.shape} {train.dtype}"
        )
    if test is not None and test.classes > train.classes:
        raise ConfigError(f"data.test: {test.name} has {test.classes} classes, data.train has {train.classes}")
    mean, std = (train.mean, train.std) if standardise else (None, None)
    job = Job(title, config, classifier(net, train.shape, str(train.dtype), mean, std), train, test)
    graph = job.build(config.batch_size)
    logits = graph.tensors[graph.outputs["logits"]]
    if logits.shape[1] < train.classes:
        raise ShapeError(
            f"{logits.name}: the net's output must be (batch, classes) with at least the {train.classes} classes of "
            f"{train.name}, got {logits.shape}"
        )
    return job


def open_data(path: str) -> Dataset:
    """The records in folder `path`; the built-in digits are converted where they are asked for and not there."""
    folder = Path(path)
    if folder.parent == Path("data/digits") and folder.name in ("train", "test") and not folder.exists():
        ensure_digits(folder.parent)
    return open_records(folder)
