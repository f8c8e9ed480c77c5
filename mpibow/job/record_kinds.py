"""Folders of records as arrays by name: images and labels, ratings, text, tables, images and masks."""

import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from mpibow import ops
from mpibow.config import show
from mpibow.data import Image, NamedSamples, RecordSet, Samples, TokenStream, open_records
from mpibow.data.columns import open_table
from mpibow.data.decoded import Decoded
from mpibow.data.digits import ensure_digits
from mpibow.data.labelled import Labelled, Masked, Pictures
from mpibow.data.ratings import FORM, ratings
from mpibow.data.text import FILE, open_text
from mpibow.errors import RecordError

from .normalise import scaling_of


@runtime_checkable
class Nameable(NamedSamples, Protocol):
    """Samples whose arrays can be renamed."""

    def called(self, names: Sequence[str]) -> NamedSamples:
        """The same samples with these names, one for each of `inputs` and in its order."""


def classified(records: RecordSet) -> bool:
    """Whether a classifier takes the records as they are: images, or rows of a table with classes."""
    about = records.manifest
    if about.kind == "table":
        return bool(about.contents.get("label"))
    return not about.kind and (records.classes > 1 or about.form != FORM)


def named(
    records: RecordSet, *, image: Image | None = None, text: TokenStream | None = None, training: bool = False
) -> NamedSamples:
    """Encoded images as `image` has it, tokens as `text`. Raises RecordError where the kind is unknown."""
    match records.manifest.kind:
        case "text":
            return open_text(records, text or TokenStream(), training=training)
        case "table":
            return open_table(records)
        case "masks":
            return Masked(Pictures(records))
        case "":
            if records.manifest.form == FORM and records.classes == 1:
                return ratings(records)
            return Labelled(records if records.shape else Decoded(records, image or Image()))
        case kind:
            raise RecordError(f"{records.folder}: holds {show(kind)}, this version reads text, table, masks")


def called(data: NamedSamples, names: Sequence[str]) -> NamedSamples:
    """The data with its inputs renamed to `names`, in their order, where there are as many."""
    if len(names) != len(data.inputs) or list(names) == list(data.inputs) or not isinstance(data, Nameable):
        return data
    return data.called(names)


def for_net(data: NamedSamples, parameters: Sequence[str]) -> NamedSamples:
    """The data with the first array renamed, where the net takes one array of another name."""
    if len(parameters) != 1 or parameters[0] in data.inputs:
        return data
    return called(data, [parameters[0], *list(data.inputs)[1:]])


def records_files(data: Samples) -> dict[str, bytes]:
    """The files of the data set that a run keeps beside its settings: the tokenizer of text."""
    tokens = getattr(data, "tokens", None)
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


def open_data(path: str) -> RecordSet:
    """The records in folder `path`; the built-in digits are converted where they are asked for and not there."""
    folder = Path(path)
    if folder.parent == Path("data/digits") and folder.name in ("train", "test") and not folder.exists():
        ensure_digits(folder.parent)
    return open_records(folder)
