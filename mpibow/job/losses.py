"""The losses that a program gives to `fit`, and weights of samples and of classes, as it or a config gives them."""

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from numbers import Integral, Real
from os import PathLike, fspath

import numpy as np

from mpibow.config import Config, build, show
from mpibow.config.strict import all_tags, record_of, records_of, settings_of
from mpibow.data import (
    SAMPLE_WEIGHT,
    Array,
    ArrayData,
    Dataset,
    NamedSamples,
    RecordSet,
    Samples,
    Weighed,
    numeric_array,
)
from mpibow.data.decoded import Decoded
from mpibow.data.items import Indexed
from mpibow.data.split import Divisible
from mpibow.errors import ConfigError
from mpibow.models.losses import BALANCED, CrossEntropyLoss, Loss, LossFunction, function_of
from mpibow.models.objective import Losses

from .record_kinds import classified, open_data

KINDS = records_of(Loss)
KEYS = {setting.name for kind in KINDS for setting in settings_of(kind)} | {"smoothing", "ignore"}


def losses_of(loss: Losses | Mapping[str, object] | str | None) -> tuple[Losses | None, object]:
    """The functions, or else the setting `loss` of a config. Raises ConfigError.

    Losses by the names of outputs may be functions, names and settings.
    """
    if callable(loss):
        return loss, None
    if not isinstance(loss, Mapping) or not loss:
        return None, loss
    if ("name" in loss or set(loss) <= KEYS) and not any(map(callable, loss.values())):
        return None, loss
    return {name: _function(each, f"loss.{name}") for name, each in loss.items()}, None


def of_outputs(source: object, loss: Loss) -> bool:
    """Whether a net of these data returns outputs to compare with targets: all data but images with classes."""
    of_numbers = not isinstance(loss, CrossEntropyLoss)
    if isinstance(source, str | PathLike):
        return of_numbers or not classified(open_data(fspath(source)))
    if not isinstance(source, tuple) or len(source) != 2:
        return isinstance(source, Mapping | NamedSamples) or (isinstance(source, Indexed) and of_numbers)
    inputs, targets = source
    if isinstance(inputs, Mapping) or isinstance(targets, Mapping) or of_numbers:
        return True
    found = np.asarray(targets)
    return found.ndim != 1 or not np.issubdtype(found.dtype, np.integer)


def _function(given: object, path: str) -> LossFunction:
    if callable(given):
        found: LossFunction = given
        return found
    settings = {"name": given} if isinstance(given, str) else given
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{path}: must be a function, a name or settings with a name, got {type(given).__name__}")
    kind = record_of(KINDS, settings, CrossEntropyLoss())
    if kind is None:
        raise ConfigError(f"{path}.name: must be one of {all_tags(KINDS)}, got {show(settings['name'])}")
    return function_of(build(kind, settings, path=path))


ClassWeight = Mapping[object, float] | str
SHOWN = 10  # classes that a message lists


def with_sample_weight(data: Samples, given: object) -> Samples:
    """Training data with the weights (n,) that `fit` is given. Raises ConfigError."""
    if isinstance(data, RecordSet) or not isinstance(data, Divisible):
        remedy = "; class_weight weighs its classes" if isinstance(data, RecordSet) else ""
        raise ConfigError(f"sample_weight: is for arrays and data sets with items, {data.name} is neither{remedy}")
    if isinstance(data, NamedSamples) and SAMPLE_WEIGHT in data.inputs:
        raise ConfigError(f"sample_weight: {data.name} has an array of that name; give that another name")
    found = numeric_array("sample_weight", given)
    if found.shape != (data.count,):
        raise ConfigError(
            f"sample_weight: must be one number for each of {data.name}'s {data.count:,} samples, ({data.count},), got "
            f"{found.shape}"
        )
    wrong = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if len(wrong):
        raise ConfigError(f"sample_weight: must be finite and at least 0, got {found[wrong[0]]} for sample {wrong[0]}")
    if not found.any():
        raise ConfigError(f"sample_weight: must be above 0 for some sample, got 0 for all {data.count:,}")
    _, exponent = np.frexp(found.max())  # only ratios matter: far ones are brought into float32's range
    return Weighed(data, np.ldexp(found.astype(float), -exponent * (abs(exponent) > 100)).astype(np.float32))


def with_class_weight(config: Config, given: ClassWeight, data: Samples, *, outputs: bool) -> Config:
    """`config` whose loss has the weights of classes that `fit` is given. Raises ConfigError."""
    loss = config.loss
    if outputs or isinstance(data, NamedSamples) or not isinstance(loss, CrossEntropyLoss):
        raise ConfigError(
            "class_weight: is for a classifier that is trained on cross_entropy; give sample_weight, or a loss of your "
            "own with mpibow.cross_entropy(..., weight=...)"
        )
    if loss.weight is not None:
        raise ConfigError(f"class_weight: cannot be combined with loss.weight, got {show(loss.weight)}; leave one out")
    if isinstance(given, str) and given == BALANCED:
        return replace(config, loss=replace(loss, weight=BALANCED))
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"class_weight: must be 'balanced' or weights by class such as {{0: 1.0, 1: 5.0}}, got {show(given)}; "
            "a list is loss={'weight': [...]}"
        )
    names = data.manifest.class_names if isinstance(data, RecordSet) else ()
    weights = [1.0] * data.classes
    for key, value in given.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not isfinite(value) or value < 0:
            raise ConfigError(f"class_weight: {show(key)}: must be a finite number of at least 0, got {show(value)}")
        weights[_class(key, names, data)] = float(value)
    return replace(config, loss=replace(loss, weight=tuple(weights)))


def balanced(loss: Loss, data: Samples) -> Loss:
    """`loss` with numbers for `balanced`: n / (classes * count) of the labels of `data` that the loss does not ignore.

    The classes are those that occur, as scikit-learn has it; the others have 0. Raises ConfigError.
    """
    if not isinstance(loss, CrossEntropyLoss) or not isinstance(loss.weight, str):
        return loss
    if not isinstance(data, ArrayData | RecordSet | Decoded):
        raise ConfigError(
            f"loss.weight: balanced counts the labels of arrays or of a folder of records, {data.name} is neither; "
            "give one number for each class"
        )
    labels = data.strata()
    labels = labels if loss.ignore_index is None else labels[labels != loss.ignore_index]
    if not len(labels):
        raise ConfigError(f"loss.weight: balanced counts labels, and all of {data.name}'s are ignored")
    return replace(loss, weight=tuple(balanced_weights(labels, data.classes).tolist()))


def balanced_weights(labels: Array, classes: int) -> Array:
    """n / (classes * count), (classes,) float64."""
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    occurring = counts > 0
    weights = np.zeros(classes)
    np.divide(len(labels) / occurring.sum(), counts, out=weights, where=occurring)
    return weights


def _class(key: object, names: tuple[str, ...], data: Dataset) -> int:
    """The number of a class, by its number or its name."""
    if isinstance(key, Integral) and not isinstance(key, bool) and 0 <= int(key) < data.classes:
        return int(key)
    if isinstance(key, str) and key in names:
        return names.index(key)
    listed = ", ".join(names[:SHOWN]) + ", ..." * (len(names) > SHOWN)
    known = f"classes 0 to {data.classes - 1}" + f": {listed}" * bool(names)
    raise ConfigError(f"class_weight: {show(key)} is not a class of {data.name}, which has {known}")
