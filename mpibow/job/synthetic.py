"""Jobs on made-up data, for measurements: any model by its name, on the images that it is known for."""

import argparse
import math
from collections.abc import Mapping

import numpy as np

from mpibow.config import Config, load_mapping
from mpibow.data import ArrayData, NamedArrays, Shape
from mpibow.errors import ConfigError
from mpibow.models import OBJECTIVES

from .job import Job
from .opening import make_job, named_net, named_objective

IMAGENET = (1000, (3, 224, 224))
DIGITS = (10, (1, 28, 28))
CIFAR10 = (10, (3, 32, 32))
SHAPES: Mapping[str, tuple[int, Shape]] = {  # classes and images that a model is known for
    **dict.fromkeys(("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"), IMAGENET),
    **dict.fromkeys(("alexnet", "googlenet", "vgg16", "vgg_a"), IMAGENET),
    **dict.fromkeys(("resnet20", "resnet32", "resnet44", "resnet56", "resnet110"), CIFAR10),
    **dict.fromkeys(("lenet", "logistic", "mlp"), DIGITS),
    "convnet": (10, (1, 8, 8)),
    "inception_v3": (1000, (3, 299, 299)),
    "overfeat": (1000, (3, 231, 231)),
    "vgg16_cifar": (100, (3, 32, 32)),
}
TABLES: Mapping[str, int] = {"users": 5000, "items": 5000, "factors": 10}  # as large as Crossbow's example
SAMPLES = 2048


def made_up_job(arguments: argparse.Namespace, out: str) -> Job:
    """The model on made-up data, writing nothing but a run directory in `out`."""
    if arguments.model in OBJECTIVES:
        if arguments.shape or arguments.classes:
            raise ConfigError(f"--shape, --classes: {arguments.model} has neither; leave them out")
        config = _config(arguments, out, {"name": arguments.model, **TABLES})
        return make_job(arguments.model, config, named_objective(config), _ratings(), None, normalise="none")
    classes, shape = SHAPES[arguments.model]
    classes = arguments.classes or classes
    if arguments.shape:
        try:
            shape = tuple(int(extent) for extent in arguments.shape.split(","))
        except ValueError:
            raise ConfigError(f"--shape: must be channels,height,width, got '{arguments.shape}'") from None
    generator = np.random.default_rng(0)
    count = max(SAMPLES * 3072 // max(math.prod(shape), 3072), 16)
    images = generator.integers(256, size=(count, *shape), dtype=np.uint8)
    data = ArrayData(images, generator.integers(classes, size=count), classes=classes, name="made up")
    config = _config(arguments, out, {"name": arguments.model})
    return make_job(arguments.model, config, named_net(config, classes), data, None, normalise="channel")


def _ratings() -> NamedArrays:
    """One to five stars, of users and items at random."""
    generator = np.random.default_rng(0)
    user, item = (generator.integers(TABLES[key], size=100_000) for key in ("users", "items"))
    return NamedArrays({"user": user, "item": item, "rating": generator.uniform(1, 5, len(user))}, name="made up")


def settings_of(arguments: argparse.Namespace, out: str) -> dict[str, object]:
    """The settings of a measurement, which writes nothing but a run directory in `out`."""
    return {
        "batch_size": arguments.batch_size,
        "device": arguments.device or "auto",
        "learners": getattr(arguments, "learners", 1),
        "update": {"lr": 1e-4, "momentum": 0.9},
        "stop": {"iterations": 10**9},
        "checkpoint": {"every": None},
        "log": {"every": 10**9},
        "out": out,
    }


def _config(arguments: argparse.Namespace, out: str, model: Mapping[str, object]) -> Config:
    return load_mapping({"model": model, **settings_of(arguments, out)}, arguments.overrides, data_given=True)
