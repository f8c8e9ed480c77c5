"""Opening a job: the data and the net that a config names, checked before anything is written."""

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from mpibow.config import Config
from mpibow.config.schema import Data, Model
from mpibow.config.strict import check_options
from mpibow.data import (
    SAMPLE_WEIGHT,
    Image,
    NamedSamples,
    RecordSet,
    Samples,
    TokenStream,
    Weighed,
    open_records,
    unweighed,
)
from mpibow.data.decoded import Decoded
from mpibow.data.lengths import lengths_of
from mpibow.data.pipeline_choice import refuse
from mpibow.data.ratings import ratings
from mpibow.data.split import split
from mpibow.errors import ConfigError, ShapeError
from mpibow.models import MODELS, OBJECTIVES, LossNet, Net, predictions
from mpibow.models.augmentation import Augmentation
from mpibow.models.classifier import classifier
from mpibow.models.objective import objective
from mpibow.optim.groups import check_groups

from .checks import (
    check_augmentation,
    check_classes,
    check_data,
    check_lengths,
    check_losses,
    check_metrics,
    check_sets_alike,
    described,
)
from .job import Job
from .losses import balanced
from .measures import ProgramMetric, measures_of
from .net_file import function_name, gives_losses, is_net_file, kept_files, losses_of_file, net_of_file, with_checksum
from .normalise import Scaling, scaling_of
from .record_kinds import classified, named, open_data, records_files
from .starting_weights import of_config

T = TypeVar("T")

# The job of `python -m mpibow.train` without a file: real digits, a small convolutional net, under a minute.
BUILT_IN = {
    "model": {"name": "convnet"},
    "data": {"train": "data/digits/train", "test": "data/digits/test"},
    "batch_size": 8,
    "learners": 2,
    "update": {"lr": 0.02, "momentum": 0.9, "schedule": {"name": "cosine"}},
    "stop": {"epochs": 20},
}


def open_job(config: Config, scaling: Scaling | None = None) -> Job:
    """The job of a config that names its model and data. Raises ConfigError or RecordError.

    `scaling` is another rank's result of data.normalise, so that no image is read for it again.
    """
    config = with_checksum(config)
    assert config.model is not None
    assert config.data is not None
    net: Net | LossNet
    train: Samples
    test: Samples | None
    validation: Samples | float | None
    image = config.data.image
    if of_arrays(config.model):
        own = is_net_file(config.model)
        by_name = partial(named_samples, image=image, text=config.data.text)
        read = by_name if own else lambda path: ratings(open_records(path))
        arrays, test, validation = _sets(config.data, read, partial(by_name, training=True) if own else read)
        net = named_objective(config, arrays.inputs)
        image = None
        train = arrays
    else:
        records, test, validation = _sets(config.data, open_data)
        if not classified(records):
            raise ConfigError(f"data.train: {config.data.train} has no classes; train a net that gives losses")
        if config.model.classes not in (None, records.classes):
            raise ConfigError(
                f"data.train: {config.data.train} has {records.classes} classes, model.classes is "
                f"{config.model.classes}: type model.classes={records.classes}, or leave it out"
            )
        net = named_net(config, records.classes)
        train = records
    if config.data.text and not records_files(train):
        raise ConfigError(f"data.text: is for texts, {config.data.train} holds none; leave it out")
    job = make_job(
        f"{function_name(config.model)}-{Path(config.data.train).resolve().parent.name}",
        config,
        net,
        train,
        test,
        validation=validation,
        normalise=config.data.normalise,
        augmentation=config.data.augment,
        image=image,
        scaling=scaling,
    )
    return replace(job, given=of_config(config), files={**kept_files(config), **records_files(train)})


def _sets(
    data: Data, read: Callable[[str], T], first: Callable[[str], T] | None = None
) -> tuple[T, T | None, T | float | None]:
    """Training, test and validation data, as `read` from their folders, `first` those to train on.

    A fraction stays one, and None is none.
    """
    validation = read(data.validation) if isinstance(data.validation, str) else data.validation
    return (first or read)(data.train), None if data.test is None else read(data.test), validation


def of_arrays(model: Model) -> bool:
    """Whether the model takes arrays by name and returns losses, rather than an image for logits."""
    return gives_losses(model) if is_net_file(model) else model.name in OBJECTIVES


def named_samples(path: str, *, image: Image | None, text: TokenStream | None, training: bool = False) -> NamedSamples:
    """The records in folder `path` as arrays by name; encoded images as `image` has it, and tokens as `text`."""
    return named(open_data(path), image=image, text=text, training=training)


def named_net(config: Config, classes: int) -> Net:
    """The net that `model` names, with its options. Raises ConfigError."""
    assert config.model is not None
    if is_net_file(config.model):
        return net_of_file(config.model, classes)
    if config.model.name not in MODELS:
        names = ", ".join(sorted([*MODELS, *OBJECTIVES]))
        raise ConfigError(
            f"model.name: must be one of {names}, or a function of your own as mynet.py:net, got '{config.model.name}'"
        )
    function = MODELS[config.model.name]
    return partial(function, classes=classes, **check_options("model", function, config.model.options))


def named_objective(config: Config, arrays: Collection[str] | None = None) -> LossNet:
    """The net of losses that `model` names, with its options. Raises ConfigError, also where `arrays` lack one."""
    assert config.model is not None
    if is_net_file(config.model):
        return losses_of_file(config.model, arrays)
    name = config.model.name
    classes = config.model.classes
    if classes is not None:
        raise ConfigError(f"model.classes: {name} has no classes, got {classes}; leave it out")
    return partial(OBJECTIVES[name], **check_options("model", OBJECTIVES[name], config.model.options))


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
    metrics: Sequence[ProgramMetric] = (),
) -> Job:
    """The job of a net given as a function, on data given as objects. Raises ConfigError where they don't fit.

    `validation` is data, or the fraction of `train` that is to be split off. `normalise` is as data.normalise;
    `scaling` is its result, where that is known already. `metrics` are a program's own, beside those of the config.
    """
    augmentation = augmentation or Augmentation()
    held_out = None
    if isinstance(validation, float):
        held_out = validation
        train, held = split(train, held_out, config.seed)
        validation = unweighed(held)
    if config.batch_size > train.count:
        raise ConfigError(
            f"batch_size: must be at most the {train.count:,} samples of {train.name}, got {config.batch_size:,}"
        )
    train = _decoded(train, augmentation, image)
    test, validation = (None if data is None else _decoded(data, Augmentation(), image) for data in (test, validation))
    refuse("auto" if config.data is None else config.data.pipeline, train)
    for key, data in (("data.test", test), ("data.validation", validation)):
        if data is not None:
            check_sets_alike(key, data, train)
    weight = SAMPLE_WEIGHT if isinstance(train, Weighed) else None
    samples = unweighed(train)
    classes = not isinstance(train, NamedSamples)
    if isinstance(samples, NamedSamples):
        build = objective(net, samples.inputs, weight=weight)
    else:
        loss = balanced(config.loss, samples)
        top_k = config.evaluate.top_k
        check_augmentation(augmentation, samples, config, weighed=weight is not None)
        check_classes(loss, samples)
        if top_k is not None and top_k > samples.classes:
            raise ConfigError(
                f"evaluate.top_k: must be at most the {samples.classes} classes of {train.name}, got {top_k}"
            )
        scaling = scaling or scaling_of(normalise, samples, partial(print, file=sys.stderr))
        build = classifier(
            net,
            samples.shape,
            str(samples.dtype),
            scaling.mean,
            scaling.std,
            augmentation=augmentation,
            loss=loss,
            top_k=top_k,
            weight=weight,
        )
    shorter = {}
    if (sequences := lengths_of(train)) is not None:
        shorter = {each: objective(net, sequences.inputs_at(each), weight=weight) for each in sequences.lengths[:-1]}
    job = Job(title, config, build, train, test, scaling, validation, held_out, shorter=shorter)
    graph = job.build(config.batch_size)
    if shorter:
        check_lengths(graph)
    if isinstance(samples, NamedSamples):
        check_losses(config, samples, augmentation, normalise, outputs=bool(predictions(graph)))
    else:
        logits = graph.tensors[graph.outputs["logits"]]
        if logits.shape[1] < samples.classes:
            raise ShapeError(
                f"{logits.name}: the net's output must be (batch, classes) with at least the {samples.classes} classes "
                f"of {train.name}, got {logits.shape}"
            )
    for each in (samples, *job.evaluated.values()):
        check_data(graph, each)
    check_groups(config.update.groups, graph.weight_names)
    job = replace(job, measures=measures_of(config.metrics, metrics, graph, classes=classes))
    check_metrics(config, job.evaluated, job.measures, classes=classes)
    return job


def _decoded(data: Samples, augmentation: Augmentation, image: Image | None) -> Samples:
    """Encoded records with the windows to crop. Raises ConfigError where settings need encoded records."""
    if isinstance(data, RecordSet) and not data.shape:
        return Decoded(data, image or Image(), augmentation.area, augmentation.aspect)
    for key, value in (("data.augment.area", augmentation.area), ("data.image", image)):
        if value is not None and not isinstance(data, Decoded):
            raise ConfigError(f"{key}: is for encoded images, {data.name} has {described(data)}; leave it out")
    return data
