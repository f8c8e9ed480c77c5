"""A job: what is trained on what, opened and checked before anything is written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from mpibow.comm.communicator import Communicator
from mpibow.config import Config
from mpibow.config.schema import Data
from mpibow.config.strict import check_options
from mpibow.data.dataset import NamedSamples, Samples
from mpibow.data.decoded import Decoded
from mpibow.data.digits import ensure_digits
from mpibow.data.ratings import ratings
from mpibow.data.readers import refuse
from mpibow.data.recordset import RecordSet, open_records
from mpibow.data.settings import Image
from mpibow.data.split import split
from mpibow.errors import ConfigError, DeviceError, ShapeError
from mpibow.graph.layout import Layout, plan_layout
from mpibow.graph.memory import zeros
from mpibow.graph.plan import Plan, choose_layout, compile_plan
from mpibow.job.checks import (
    check_augmentation,
    check_groups_match,
    check_losses,
    check_metrics,
    check_rows,
    check_sets_alike,
    described,
)
from mpibow.job.gpu import ON_GPUS, FindGpu, find_gpu
from mpibow.job.normalise import Scaling, scaling_of
from mpibow.kernels import KernelSet, find_kernels, gpu_set
from mpibow.kernels.cuda.fused import fused_plan
from mpibow.models import MODELS, OBJECTIVES
from mpibow.models.classifier import Build, Net, classifier
from mpibow.models.objective import LossNet, objective
from mpibow.models.settings import Augmentation
from mpibow.optim.muon import Muon

# What `python -m mpibow.train` does without a file: real digits, a small convolutional net, under a minute.
BUILT_IN = {
    "model": {"name": "convnet"},
    "data": {"train": "data/digits/train", "test": "data/digits/test"},
    "batch_size": 8,
    "learners": 2,
    "update": {"lr": 0.02, "momentum": 0.9, "schedule": {"name": "cosine"}},
    "stop": {"epochs": 20},
}


@dataclass(frozen=True)
class Job:
    """`build` gives the graph for a batch size: inputs named as a slot's arrays, outputs loss, accuracy and logits.

    The net of `NamedSamples` has its loss as its only output, and no scaling. `held_out` is the fraction of the
    training data that `validation` was split off as, if it was.
    """

    title: str
    config: Config
    build: Build
    train: Samples
    test: Samples | None
    scaling: Scaling | None = None
    validation: Samples | None = None
    held_out: float | None = None
    canonical: bool = False  # weights lie as they are saved, whatever the kernels want
    opened: KernelSet | None = None  # of a GPU: `on_device` opens it

    @property
    def kernels(self) -> KernelSet:
        return self.opened or kernels_of(self.config)[0]

    @property
    def precision(self) -> str:
        """What is computed in, where the config leaves it to the device, too."""
        return self.kernels.computes_in(self.config.precision)

    @cached_property
    def layout(self) -> Layout:
        """A replica's layout, as the kernels of the training plan want it, or the canonical one."""
        graph, update = self.build(self.config.batch_size, True), self.config.update
        if self.canonical:
            return plan_layout(graph, update.decay_biases)
        whole = update.clip_value is not None or isinstance(update, Muon)  # which look at a gradient's elements
        return choose_layout(graph, self.kernels, update.decay_biases, factors=not whole)

    @property
    def evaluated(self) -> dict[str, Samples]:
        """What the centre is evaluated on, by name. The first chooses: when to stop, which centre is the best."""
        found = {"validation": self.validation, "test": self.test}
        return {name: data for name, data in found.items() if data is not None}

    @property
    def chooser(self) -> str | None:
        return next(iter(self.evaluated), None)

    @property
    def weights(self) -> int:
        """How many numbers are trained."""
        return self.build(self.config.batch_size).weight_count

    def training_plan(self) -> Plan:
        return self._plan(self.config.batch_size, training=True)

    def evaluation_plan(self, batch_size: int | None = None) -> Plan:
        return self._plan(batch_size or self.config.evaluate.batch_size, training=False)

    def fused_plan(self, k: int) -> Plan:
        """That of k learners in one, on a GPU. Raises ShapeError where an operator has no such form."""
        kernels = self.kernels
        return fused_plan(self.build(self.config.batch_size, True), kernels, kernels.dtype(self.config.precision), k)

    def prepare(self, *, told: bool = False) -> str:
        """Compiles what would be compiled on first use, where anything is: other processes find it on disk.

        With `told` standard error shows it meanwhile. Returns a line for the log, '' where nothing was compiled.
        """
        if self.kernels.prepare is None:
            return ""
        from mpibow.kernels.compiled.told import compiling

        with compiling() if told else nullcontext() as watch:
            self.kernels.prepare(self.config.update.formula)
            for plan in [self.training_plan()] + [self.evaluation_plan()] * bool(self.evaluated):
                weights = zeros(plan.layout.size, plan.weight_dtype)
                plan.bind(weights, weights)
        return watch.note if watch else ""

    def slow(self) -> str:
        """A line that names what the library lacks, or has only reference code for, in training; '' for nothing."""
        if self.kernels.prepare is None:  # not the host's library
            return ""
        plan, lines = self.training_plan(), list[str]()
        if plan.reference:
            lines.append(f"NumPy computes {', '.join(plan.reference)}, for which {self.kernels.about} has no kernel")
        if found := [f"{name} ({', '.join(parts)})" for name, parts in plan.slow.items()]:
            lines.append(
                f"{self.kernels.about} has only reference code, which may be hundreds of times slower, for "
                f"{', '.join(found)}: device=numpy may be faster; compare with python -m mpibow.bench train"
            )
        return "; ".join(lines)

    def _plan(self, batch: int, *, training: bool) -> Plan:
        graph = self.build(batch, training)
        return compile_plan(
            graph, self.layout, self.kernels, self.kernels.dtype(self.config.precision), training=training
        )


def open_job(config: Config, scaling: Scaling | None = None) -> Job:
    """The job of a config that names its model and data. Raises ConfigError or RecordError.

    `scaling` is what another rank found data.normalise to mean, so that no image is read for it again.
    """
    assert config.model is not None
    assert config.data is not None
    net: Net | LossNet
    if config.model.name in OBJECTIVES:
        train, test, validation = _sets(config.data, lambda path: ratings(open_records(path)))
        net = named_objective(config)
    else:
        train, test, validation = _sets(config.data, open_data)
        if config.model.classes not in (None, train.classes):
            raise ConfigError(
                f"data.train: {config.data.train} has {train.classes} classes, model.classes is "
                f"{config.model.classes}: type model.classes={train.classes}, or leave it out"
            )
        net = named_net(config, train.classes)
    return make_job(
        _title(config), config, net, train, test, validation=validation, normalise=config.data.normalise,
        augmentation=config.data.augment, image=config.data.image, scaling=scaling,
    )  # fmt: skip


def _sets(data: Data, read: Callable[[str], Any]) -> tuple[Any, Any, Any]:
    """Training, test and validation data, as `read` from their folders; a fraction stays one, and None is none."""
    train, test, validation = (
        read(given) if isinstance(given, str) else given for given in (data.train, data.test, data.validation)
    )
    return train, test, validation


def _title(config: Config) -> str:
    """What a run is called: its model and its data set."""
    assert config.model is not None
    assert config.data is not None
    return f"{config.model.name}-{Path(config.data.train).resolve().parent.name}"


def named_net(config: Config, classes: int) -> Net:
    """The net that `model` names, with its options. Raises ConfigError."""
    assert config.model is not None
    if config.model.name not in MODELS:
        names = ", ".join(sorted([*MODELS, *OBJECTIVES]))
        raise ConfigError(f"model.name: must be one of {names}, got '{config.model.name}'")
    function = MODELS[config.model.name]
    return partial(function, classes=classes, **check_options("model", function, config.model.options))


def named_objective(config: Config) -> LossNet:
    """The net of OBJECTIVES that `model` names, with its options. Raises ConfigError."""
    assert config.model is not None
    name, classes = config.model.name, config.model.classes
    if classes is not None:
        raise ConfigError(f"model.classes: {name} has no classes, got {classes}; leave it out")
    return partial(OBJECTIVES[name], **check_options("model", OBJECTIVES[name], config.model.options))


def kernels_of(config: Config) -> tuple[KernelSet, str]:
    """The kernel set of `device`, and what to say of it. Raises DeviceError."""
    return find_kernels(config.device, config.precision, config.onednn.library, config.onednn.winograd)


def on_device(job: Job, comm: Communicator, find: FindGpu = find_gpu) -> tuple[Job, str]:
    """The job with this rank's GPU opened where `device` wants one, and what is to be said. Collective.

    auto takes GPUs where every rank opens one; else the host computes, and what would make it faster is said. Raises
    DeviceError where cuda is asked for by name and cannot be.
    """
    note = ""
    if job.opened is None:
        opened, note = open_kernels(job.config, comm, find)
        if opened is None:
            return job, kernels_of(job.config)[1]
        job = replace(job, opened=opened)
    return job, note


def open_kernels(config: Config, comm: Communicator, find: FindGpu = find_gpu) -> tuple[KernelSet | None, str]:
    """The kernels of this rank's GPU, as `on_device` takes them, and what is to be said; None for the host's."""
    if config.device not in ("auto", "cuda") or config.precision == "float64":
        if config.device == "cuda":
            raise DeviceError(f"device: cuda computes in {', '.join(ON_GPUS)}, precision is float64")
        return None, ""
    gpu, why = find(config, comm)
    if gpu is None:
        if config.precision in ON_GPUS[1:]:
            raise DeviceError(f"precision: {config.precision} needs a GPU, and none can be used: {why}")
        return None, ""
    return gpu_set(gpu), gpu.note


def make_job(
    title: str,
    config: Config,
    net: Net | LossNet,
    train: Samples,
    test: Samples | None,
    *,
    normalise: str,
    validation: Samples | float | None = None,
    augmentation: Augmentation | None = None,
    scaling: Scaling | None = None,
    image: Image | None = None,
) -> Job:
    """The job of a net given as a function, on data given as objects. Raises ConfigError where they don't fit.

    `validation` is data, or the fraction of `train` that is to be split off. `normalise` is as data.normalise;
    `scaling` what it comes to, where that is known already.
    """
    augmentation, held_out = augmentation or Augmentation(), None
    if isinstance(validation, float):
        held_out = validation
        train, validation = split(train, held_out, config.seed)
    train = _decoded(train, augmentation, image)
    test, validation = (None if data is None else _decoded(data, Augmentation(), image) for data in (test, validation))
    refuse("auto" if config.data is None else config.data.pipeline, train)
    for key, data in (("data.test", test), ("data.validation", validation)):
        if data is not None:
            check_sets_alike(key, data, train)
    sets = {"validation": validation, "test": test}
    check_metrics(
        config, [name for name, data in sets.items() if data is not None], classes=not isinstance(train, NamedSamples)
    )
    if isinstance(train, NamedSamples):
        check_losses(config, train, augmentation)
        job = Job(title, config, objective(net, train.inputs), train, test, validation=validation, held_out=held_out)
        for found in (train, *job.evaluated.values()):
            check_rows(job.build(config.batch_size), found)
        check_groups_match(config, job.build(config.batch_size))
        return job
    loss, top_k = config.loss, config.evaluate.top_k
    check_augmentation(augmentation, train, config)
    if loss.ignore is not None and loss.ignore >= train.classes:
        raise ConfigError(f"loss.ignore: must be one of {train.name}'s {train.classes} classes, got {loss.ignore}")
    if top_k is not None and top_k > train.classes:
        raise ConfigError(f"evaluate.top_k: must be at most the {train.classes} classes of {train.name}, got {top_k}")
    scaling = scaling or scaling_of(normalise, train, partial(print, file=sys.stderr))
    build = classifier(
        net, train.shape, str(train.dtype), scaling.mean, scaling.std, augmentation=augmentation, loss=loss,
        top_k=top_k,
    )  # fmt: skip
    job = Job(title, config, build, train, test, scaling, validation, held_out)
    graph = job.build(config.batch_size)
    check_groups_match(config, graph)
    logits = graph.tensors[graph.outputs["logits"]]
    if logits.shape[1] < train.classes:
        raise ShapeError(
            f"{logits.name}: the net's output must be (batch, classes) with at least the {train.classes} classes of "
            f"{train.name}, got {logits.shape}"
        )
    return job


def _decoded(data: Samples, augmentation: Augmentation, image: Image | None) -> Samples:
    """Encoded records with the windows to be taken of them. Raises ConfigError where settings are of those alone."""
    if isinstance(data, RecordSet) and not data.shape:
        return Decoded(data, image or Image(), augmentation.area, augmentation.aspect)
    for key, value in (("data.augment.area", augmentation.area), ("data.image", image)):
        if value is not None and not isinstance(data, Decoded):
            raise ConfigError(f"{key}: is for encoded images, {data.name} has {described(data)}; leave it out")
    return data


def open_data(path: str) -> RecordSet:
    """The records in folder `path`; the built-in digits are converted where they are asked for and not there."""
    folder = Path(path)
    if folder.parent == Path("data/digits") and folder.name in ("train", "test") and not folder.exists():
        ensure_digits(folder.parent)
    return open_records(folder)
