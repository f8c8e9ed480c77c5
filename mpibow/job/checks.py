"""Checks that data fit the settings and the net."""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, starmap
from math import prod

import numpy as np

from mpibow.config import Config, show
from mpibow.data import ArrayData, Dataset, NamedArrays, NamedSamples, Samples, inputs_of, unweighed
from mpibow.data.text import Windows
from mpibow.errors import ConfigError
from mpibow.graph import ArraysByName, Graph, Node
from mpibow.metrics.metric import Measure
from mpibow.models.augmentation import Augmentation
from mpibow.models.losses import CrossEntropyLoss, Loss, ignored
from mpibow.ops import (
    BatchNorm,
    Cast,
    ClassTarget,
    Embedding,
    Expand,
    Flatten,
    Gather,
    IntegerOperation,
    MatrixFactorisation,
    Normalise,
    Permute,
    ScatterAdd,
    Slice,
    SoftmaxCrossEntropy,
    Table,
    View,
)
from mpibow.ops.integers import FROM_START
from mpibow.optim.plateau import Plateau
from mpibow.sync import Family
from mpibow.system.command import some
from mpibow.tune import Counts

from .job import Job
from .measures import directions, suggested
from .normalise import difference, meaning

FEW = 4
SHOWN = 3
SAME_NUMBERS = Cast | Expand | Flatten | Normalise | Permute | Slice | View


Part = tuple[slice, ...]  # of an array's axes
Taken = tuple[str, Part, range, int | None]  # a tensor's part, the numbers that fit, and one besides


def numbers_taken(graph: Graph) -> list[Taken]:
    """The numbers of rows and of classes that operators take, and the one besides that they ignore.

    A tensor is followed back to the input, or another node's output, whose numbers it has in any shape.
    """
    nodes = {node.name: node for node in graph.nodes}

    def origin(name: str) -> tuple[str, Part]:
        part: Part = ()
        while name in nodes and isinstance(op := nodes[name].op, SAME_NUMBERS):
            if isinstance(op, Slice) and not part:
                part = (slice(None), *starmap(slice, op.ranges[1:]))
            elif part and not isinstance(op, Cast | Normalise):  # the part is of other axes than the input's
                break
            if isinstance(op, Cast) and op.to == "bool":  # its numbers are 0 and 1
                break
            if isinstance(op, Normalise) and ({*op.mean}, {*op.std}) != ({0.0}, {1.0}):
                break
            (name,) = nodes[name].inputs
        return name, part

    def taken(node: Node) -> Iterator[Taken]:
        x = [*map(origin, node.inputs)]
        extents = [graph.tensors[name].shape for name in node.inputs]
        match node.op:
            case Embedding(count=rows):
                yield *x[0], range(rows), None
            case MatrixFactorisation(users=users, items=items):
                yield *x[0], range(users), None
                yield *x[1], range(items), None
            case SoftmaxCrossEntropy(ignore=ignore):
                yield *x[1], range(extents[0][1]), ignore
            case ClassTarget(weight=weight, ignore=ignore):
                yield *x[0], range(len(weight)), ignore
            case Gather(axis=axis):
                yield *x[1], range(extents[0][axis]), None
            case ScatterAdd(axis=axis, shape=shape):
                yield *x[1], range(shape[axis]), None
            case IntegerOperation(sign=sign) if sign == FROM_START and isinstance(table := nodes[x[1][0]].op, Table):
                extent = int(table.values[0])
                yield *x[0], range(-extent, extent), None

    return [*chain.from_iterable(map(taken, graph.nodes))]


def check_numbers(taken: Sequence[Taken], arrays: ArraysByName, source: str = "") -> None:
    """Checks that numbers are in range, as the kernels do not. Raises ConfigError, with `source` before the name."""
    for name, part, fit, ignore in taken:
        numbers = arrays.get(name, np.empty(0))
        numbers = numbers[part[: numbers.ndim]]  # of a text, all tokens
        counted = numbers if ignore is None else numbers[numbers != ignore]
        if counted.size and not fit.start <= counted.min() <= counted.max() < fit.stop:
            other = "" if ignore is None else f", the classes of the net, or be {ignore}"
            limits = f"[{fit.start}, {fit.stop}){other}, got {counted.min()} to {counted.max()}"
            raise ConfigError(f"{source}{name}: must lie in {limits}")


def check_data(graph: Graph, data: Samples) -> None:
    """`check_numbers` of all that is in memory. Raises ConfigError also where the net takes scaled ones."""
    taken = numbers_taken(graph)
    known = data.arrays if isinstance(data, NamedArrays) else {}
    if isinstance(data, Windows):
        known = dict.fromkeys(data.names, data.stream)
    elif isinstance(data, ArrayData):
        known = {"image": data.images}
    scaled = [node.name for node in graph.nodes if isinstance(node.op, Normalise)][:1]  # by the classifier
    if not isinstance(data, NamedSamples) and any(name in scaled for name, *_ in taken):
        raise ConfigError(
            "data.normalise: the net takes its input as numbers of rows, which are not to be scaled; "
            "set it to none, in fit normalise='none'"
        )
    check_numbers(taken, known, f"{data.name}.")


def check_lengths(graph: Graph) -> None:
    """Raises ConfigError where learners must be at the same layer, which batches of several lengths keep them from."""
    for node in graph.nodes:
        if isinstance(node.op, BatchNorm) and node.op.sync == "rank":
            raise ConfigError(f"lengths: {node.name} averages over a rank's learners (sync: rank); give one length")


def few_values(graph: Graph, learners: int) -> str:
    """A warning of batch norms with few values a channel in training, for so many learners a rank; '' for none."""
    found = {}
    for node in graph.nodes:
        if isinstance(node.op, BatchNorm) and not node.op.frozen:
            n, _, *positions = graph.tensors[node.name].shape
            values = n * prod(positions) * (learners if node.op.sync == "rank" else 1)
            if values < FEW:
                found[node.name] = values
    if not found:
        return ""
    shown = some([f"{name} ({values})" for name, values in found.items()], SHOWN)
    return (
        f"warning: {shown}: fewer than {FEW} values a channel in training, so their mean and variance are mostly "
        "noise; use a larger batch_size, or group_norm, batch_norm(sync='rank') or batch_norm(frozen=True) in the net"
    )


def long_iteration(config: Config, samples: int, learners: int) -> str:
    """A warning of learners whose batches are more than all `samples`; '' for none."""
    each = learners * config.batch_size
    if each <= samples:
        return ""
    return (
        f"warning: {learners} learners of batch_size {config.batch_size} read {each:,} samples in an iteration, and an "
        f"epoch has {samples:,}: use at most {samples // config.batch_size} learners, or a smaller batch_size"
    )


def long_period(config: Config, samples: int, learners: int) -> str:
    """A warning of replicas that do not meet within an epoch of so many samples; '' for none."""
    epoch = samples / (learners * config.batch_size)
    for key, rule in (("rule", config.averaging), ("rule.then", config.averaging.behind)):
        if isinstance(rule, Family) and not rule.of(learners).plain and rule.point.period > max(epoch, 1):
            return (
                f"warning: {key}.period is {rule.point.period} iterations, and an epoch has {epoch:.4g}: the centre "
                f"moves when a period ends, and not before; set {key}.period={max(int(epoch / 10), 1)}"
            )
    return ""


def poor_fits(job: Job, counts: Counts) -> list[str]:
    """Warnings of batches and of a period that do not fit `counts` learners by rank, '' for each that fits."""
    fit = (job.config, job.train.count, sum(counts))
    return [few_values(job.build(job.config.batch_size, True), min(counts)), long_iteration(*fit), long_period(*fit)]


def described(data: Samples) -> str:
    """A description of one sample."""
    if isinstance(data, NamedSamples):
        return ", ".join(f"{name} {shape} {dtype}" for name, (shape, dtype) in data.inputs.items())
    return f"{data.shape} {data.dtype}, {data.classes} classes"


def check_metrics(config: Config, evaluated: Collection[str], measures: Sequence[Measure], *, classes: bool) -> None:
    """Raises ConfigError where a metric that decides is none, or of data that are not there; `evaluated` are those that
    are."""
    schedule = config.update.schedule
    plateau = schedule.metric if isinstance(schedule, Plateau) else None
    listed = {measure.name for measure in measures}
    names = [name for name in directions(measures) if name != "accuracy" or classes or name in listed]
    for key, metric in (
        ("stop.metric", config.stop.metric),
        ("stop.accuracy", "accuracy" if config.stop.accuracy else None),
        ("update.schedule.metric", plateau),
        ("checkpoint.metric", config.checkpoint.metric),
    ):
        by_epoch = key not in ("stop.accuracy", "checkpoint.metric")
        if metric is None or (metric == "training_loss" and by_epoch):
            continue
        if metric == "accuracy" and metric not in names:
            raise ConfigError(f"{key}: accuracy is a classifier's, and this net gives losses; set it to loss")
        known = [name for name in names if name != "training_loss" or by_epoch]
        if metric not in known:
            raise ConfigError(f"{key}: {suggested(metric, known)}")
        if not evaluated or (key.startswith("update") and "validation" not in evaluated):
            remedy = "set data.validation=0.1" + f" or {key}=training_loss" * by_epoch
            raise ConfigError(f"{key}: {metric} needs validation data, and there are none; {remedy}")


def check_augmentation(settings: Augmentation, data: Dataset, config: Config, *, weighed: bool) -> None:
    """Raises ConfigError where data are no images or too small, or mixup does not fit the batch, weights or loss."""
    if settings.mixup and config.batch_size == 1:
        raise ConfigError("data.augment.mixup: mixes samples of one batch, so batch_size must be at least 2, got 1")
    if settings.mixup and weighed:
        raise ConfigError("data.augment.mixup: cannot be combined with sample_weight; leave one out")
    for key in ("ignore_index", "weight"):
        given = getattr(config.loss, key, None)
        if settings.mixup and given is not None:
            raise ConfigError(
                f"data.augment.mixup: cannot be combined with loss.{key}, got {show(given)}; leave one out"
            )
    if not settings.of_images:
        return
    if len(data.shape) != 3:
        raise ConfigError(f"data.augment: needs images (channels, height, width), {data.name} has {data.shape}")
    smallest = min(data.shape[1:])
    if settings.crop is not None and settings.crop > smallest:
        raise ConfigError(
            f"data.augment.crop: must be at most {smallest} as {data.name} has images {data.shape}, got {settings.crop}"
        )
    window = settings.crop or smallest
    if settings.pad >= window:
        raise ConfigError(
            f"data.augment.pad: must be below {window}, the smaller extent of the window that is "
            f"cropped, got {settings.pad}"
        )
    if settings.cutout is not None and settings.cutout > window:
        raise ConfigError(
            f"data.augment.cutout: must be at most {window}, the smaller extent of the images that "
            f"are trained on, got {settings.cutout}"
        )
    if settings.jitter is not None and settings.jitter.saturation and data.shape[0] != 3:
        raise ConfigError(
            f"data.augment.jitter.saturation: needs images of 3 channels, {data.name} has {data.shape}; leave it out"
        )


def check_sets_alike(key: str, data: Samples, train: Samples) -> None:
    """Raises ConfigError where the data of setting `key` can't be evaluated by a net that is trained on `train`."""
    train = unweighed(train)
    if fault := difference(data, meaning(train)):
        raise ConfigError(f"{key}: {fault}")
    if isinstance(data, NamedSamples) or isinstance(train, NamedSamples):
        if inputs_of(data) != inputs_of(train) or isinstance(data, NamedSamples) != isinstance(train, NamedSamples):
            raise ConfigError(f"{key}: {data.name} has {described(data)}, data.train has {described(train)}")
        return
    if (data.shape, data.dtype) != (train.shape, train.dtype):
        raise ConfigError(
            f"{key}: {data.name} has images {data.shape} {data.dtype}, data.train has {train.shape} {train.dtype}"
        )
    if data.classes > train.classes:
        raise ConfigError(f"{key}: {data.name} has {data.classes} classes, data.train has {train.classes}")


def check_classes(loss: Loss, train: Dataset) -> None:
    """Raises ConfigError where settings of the loss name other classes than the data have."""
    ignore = ignored(loss)
    weight = getattr(loss, "weight", None)
    if ignore is not None and ignore >= train.classes:
        raise ConfigError(f"loss.ignore_index: must be one of {train.name}'s {train.classes} classes, got {ignore}")
    if weight is not None and len(weight) != train.classes:
        raise ConfigError(
            f"loss.weight: must be one number for each of {train.name}'s {train.classes} classes, got {show(weight)}"
        )


def check_losses(
    config: Config, train: NamedSamples, augmentation: Augmentation, normalise: str, *, outputs: bool
) -> None:
    """Raises ConfigError where settings are of classes: a net of `NamedSamples` gives losses, or `outputs`."""
    for key, given in (
        ("data.augment", augmentation != Augmentation()),
        ("data.normalise", normalise not in ("channel", "none")),
        ("loss", config.loss != CrossEntropyLoss() and not outputs),
        ("evaluate.top_k", config.evaluate.top_k is not None),
        ("stop.accuracy", config.stop.accuracy is not None),
    ):
        if given:
            raise ConfigError(f"{key}: has no effect on {train.name}, which has {described(train)}; leave it out")
