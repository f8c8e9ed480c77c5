"""What a program gives to `fit` as data, as samples: arrays, arrays by name, folders of records."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from mpibow.data.dataset import Array, ArrayData, NamedArrays, Samples
from mpibow.data.ratings import FORM, ratings
from mpibow.errors import ConfigError
from mpibow.job.opening import open_data
from mpibow.models.supervised import TARGET

Arrays = Array | Mapping[str, Array]
Source = Samples | tuple[Arrays, Arrays] | Mapping[str, Array] | str | os.PathLike[str]


def samples_of(
    source: Source, name: str, *, parameters: Sequence[str] = (), classes: int | None = None, ignore: int | None = None
) -> Samples:
    """`parameters` are those of a net of outputs, the first of which an array of inputs is. Raises ConfigError."""
    if isinstance(source, tuple) and len(source) == 2 and parameters:
        inputs, targets = source
        given = dict(inputs) if isinstance(inputs, Mapping) else {parameters[0]: inputs}
        return NamedArrays(given | (dict(targets) if isinstance(targets, Mapping) else {TARGET: targets}), name=name)
    if isinstance(source, tuple) and len(source) == 2:
        images, labels = (np.asarray(each) for each in source)
        return ArrayData(images, labels, classes=classes, ignore=ignore, name=name)
    if isinstance(source, Mapping):
        return NamedArrays(source, name=name)
    if isinstance(source, str | os.PathLike):
        records = open_data(os.fspath(source))
        return ratings(records) if records.manifest.form == FORM and records.classes == 1 else records
    if not hasattr(source, "read"):
        kinds = "(images, labels), arrays by name, a folder of records or a data set"
        raise ConfigError(f"{name}: must be {kinds}, got {type(source).__name__}")
    return source
