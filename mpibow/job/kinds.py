"""Folders of records as arrays by name: images and labels, ratings, text, tables, images and masks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any

from mpibow import ops
from mpibow.config.words import show
from mpibow.data import masks, ratings, table, text
from mpibow.data.dataset import Nameable, NamedSamples, Samples
from mpibow.data.decoded import Decoded
from mpibow.data.labelled import Labelled
from mpibow.data.recordset import RecordSet
from mpibow.data.settings import Image, Stream
from mpibow.data.tokens import FILE
from mpibow.errors import RecordError
from mpibow.job.normalise import scaling_of

CLASSIFIED = ("", "table")
KINDS: Mapping[str, Callable[..., NamedSamples]] = {
    "": lambda records, image, settings, training: _pictures(records, image),
    text.KIND: lambda records, image, settings, training: text.open_text(
        records, settings or Stream(), training=training
    ),
    table.KIND: lambda records, image, settings, training: table.open_table(records),
    masks.KIND: lambda records, image, settings, training: masks.Masked(masks.Pictures(records)),
}


def classified(records: RecordSet) -> bool:
    """Whether a classifier takes the records as they are: images, or rows of a table, with classes."""
    return records.manifest.kind in CLASSIFIED and (records.classes > 1 or records.manifest.form != ratings.FORM)


def named(
    records: RecordSet, *, image: Image | None = None, text: Stream | None = None, training: bool = False
) -> NamedSamples:
    """Encoded images as `image` has it, tokens as `text`. Raises RecordError where the kind is unknown."""
    kind = records.manifest.kind
    if kind not in KINDS:
        raise RecordError(f"{records.folder}: holds {show(kind)}, this version reads {', '.join(filter(None, KINDS))}")
    return KINDS[kind](records, image, text, training)


def _pictures(records: RecordSet, image: Image | None) -> NamedSamples:
    if records.manifest.form == ratings.FORM and records.classes == 1:
        return ratings.ratings(records)
    return Labelled(records if records.shape else Decoded(records, image or Image()))


def called(data: NamedSamples, names: Sequence[str]) -> NamedSamples:
    """The data with its inputs renamed to `names`, in their order, where there are as many."""
    if len(names) != len(data.inputs) or list(names) == list(data.inputs) or not isinstance(data, Nameable):
        return data
    found: NamedSamples = data.called(names)
    return found


def for_net(data: NamedSamples, parameters: Sequence[str]) -> NamedSamples:
    """The data with the first array renamed, where the net takes one array of another name."""
    if len(parameters) != 1 or parameters[0] in data.inputs:
        return data
    return called(data, [parameters[0], *list(data.inputs)[1:]])


def records_files(data: Samples) -> dict[str, bytes]:
    """The files of the data set that a run keeps beside its settings: the tokenizer of text."""
    tokens: Any = getattr(data, "tokens", None)
    return {} if tokens is None else {FILE: tokens.content}


def scaled(net: Callable[..., Any], data: NamedSamples, normalise: str) -> Callable[..., Any]:
    """The net, with the images of `data`, if it has any, scaled by `normalise` first."""
    pictures = getattr(data, "pictures", None)
    if pictures is None:
        return net
    scaling = scaling_of(normalise, pictures, partial(print, file=sys.stderr))
    image = next(iter(data.inputs))

    @wraps(net)
    def seen(**tensors: Any) -> Any:
        return net(**{**tensors, image: ops.normalise(tensors[image], scaling.mean, scaling.std)})

    return seen
