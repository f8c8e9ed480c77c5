"""The evaluation of a stored net: data like those of its training, and the graphs of losses and hits."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from mpibow.config import Config, show
from mpibow.data import Dataset, Image, NamedArrays, NamedSamples, RecordSet, Samples, TokenStream, open_records
from mpibow.data.aside import FAULTS, refused
from mpibow.data.decoded import Decoded
from mpibow.data.split import split
from mpibow.errors import CheckpointError, ConfigError, RecordError
from mpibow.graph import ArraysByName, Graph
from mpibow.job import named_net, named_objective
from mpibow.job.checks import check_data
from mpibow.job.normalise import Scaling, difference, input_entries
from mpibow.job.opening import named_samples
from mpibow.job.record_kinds import called
from mpibow.models import Build
from mpibow.models.classifier import classifier
from mpibow.models.objective import objective
from mpibow.ops import accuracy
from mpibow.system import JsonObject

from .header import Seen, checked
from .stored import Stored

T = TypeVar("T", bound=Samples)
OWN = ("train", "validation", "test")
NEEDED = ("model", "data", "seed", "loss", "metrics", "evaluate", "device", "precision", "onednn")  # settings


def _own(stored: Stored, config: Config, name: str, read: Callable[[str], T]) -> T:
    """The run's own data of that name, as `read` from their folder; any other name is a folder. Raises ConfigError."""
    if name not in OWN:
        return read(name)
    sources: JsonObject = stored.input.get("sources", {}) if config.data is None else vars(config.data)
    fraction = sources.get("validation") if name != "test" else None
    folder = sources.get("train" if isinstance(fraction, float) else name)
    if not isinstance(folder, str):
        lacks = "its program gave no folder of" if name in sources and config.data is None else f"{stored.path} has no"
        raise ConfigError(f"{name}: {lacks} {name} data; give a folder of records, ./{name} if that is its name")
    return split(read(folder), fraction, config.seed)[name != "train"] if isinstance(fraction, float) else read(folder)


def of_arrays(stored: Stored) -> bool:
    """Whether the net was trained on arrays by name, rather than on images with labels."""
    return "inputs" in stored.input


def samples_and_graphs(stored: Stored, config: Config, data: str, top_k: int | None) -> tuple[Samples, Build]:
    """`data`, the run's own of that name or a folder, and the graphs of losses and, for classes, hits.

    Raises ConfigError where the net was trained on other data, RecordError where they cannot be read.
    """
    found = _named(stored, config, data) if of_arrays(stored) else _classified(stored, config, data, top_k)
    if fault := difference(found[0], stored.input):
        raise ConfigError(f"{data}: {fault}")
    return found


def _named(stored: Stored, config: Config, data: str) -> tuple[NamedSamples, Build]:
    """The data as arrays by name, and the graphs of their losses. Raises ConfigError, RecordError."""
    expected = stored.input["inputs"]
    names = list(expected) if isinstance(expected, Mapping) else []
    pictures = stored.input.get("image")
    image = None if pictures is None else checked(Image, pictures, stored.path, "input.image")
    context = next(iter(expected.values()))[0] if names else []
    text = TokenStream(context[0]) if len(context) == 1 else None  # text has one axis
    records = _own(stored, config, data, lambda path: _arrays(path, image, text, names))
    found = input_entries(records, None)["inputs"]
    if found != expected:
        raise ConfigError(f"{data}: has {show(found)}, {stored.path} was trained on {show(expected)}")
    build = stored.graphs() or objective(named_objective(config), records.inputs)
    check_data(build(1), records)
    return records, build


def _arrays(path: str, image: Image | None, text: TokenStream | None, names: Sequence[str]) -> NamedSamples:
    """Records as arrays by name, called as in training, or those of an .npz file."""
    if not path.endswith(".npz"):
        return called(named_samples(path, image=image, text=text), names)
    try:
        with refused(path, "read"), np.load(path) as file:
            found = {name: file[name] for name in names if name in file}
    except FAULTS as error:
        raise RecordError(f"{path}: cannot be read: {str(error) or type(error).__name__}") from None
    if lacking := [name for name in names if name not in found]:
        raise ConfigError(f"{path}: has no array {lacking[0]}, the net takes {', '.join(names)}")
    return NamedArrays({name: found[name] for name in names}, name=path)


def _classified(stored: Stored, config: Config, data: str, top_k: int | None) -> tuple[Samples, Build]:
    """The records `data`, if they are like the training data, and the graphs that classify them."""
    path = stored.path
    expected = checked(Seen, stored.input, path, "input")
    records = _samples(_own(stored, config, data, open_records), data, path, expected)
    if (records.shape, str(records.dtype)) != (expected.shape, expected.dtype):
        raise ConfigError(
            f"{data}: has images {records.shape} {records.dtype}, {path} was trained on "
            f"{expected.shape} {expected.dtype}"
        )
    if records.classes > expected.classes:
        raise ConfigError(f"{data}: has {records.classes} classes, {path} was trained on {expected.classes}")
    top_k = top_k or config.evaluate.top_k
    if top_k is not None and top_k > expected.classes:
        raise ConfigError(f"--top-k: must be at most the {expected.classes} classes of {path}, got {top_k}")
    if found := stored.graphs():
        return records, partial(_with_top_k, found, top_k)
    net = named_net(config, expected.classes)
    scaling = Scaling.of(stored.input, partial(_mean_image, stored, expected))
    build = classifier(
        net,
        records.shape,
        str(records.dtype),
        scaling.mean,
        scaling.std,
        augmentation=None if config.data is None else config.data.augment,
        loss=config.loss,
        top_k=top_k,
    )
    return records, build


def _with_top_k(build: Build, top_k: int | None, batch: int, training: bool = False) -> Graph:
    """The graph with the output top_k for this k; None removes it."""
    graph = build(batch)
    graph.outputs.pop("top_k", None)
    if top_k is not None:
        logits = graph.tensors[graph.outputs["logits"]]
        graph.output("top_k", accuracy(logits, graph.tensors["label"], top_k, name="asked_top_k"))
    return graph


def _samples(records: RecordSet, data: str, folder: Path, expected: Seen) -> Dataset:
    """The records, decoded as in the run's own evaluations where they are encoded."""
    if records.shape:
        return records
    if expected.image is None:
        raise ConfigError(f"{data}: has encoded images, {folder} was trained on raw ones; convert them alike")
    return Decoded(records, expected.image)


def _mean_image(stored: Stored, expected: Seen) -> ArraysByName:
    """The mean image as Scaling stores it. Raises CheckpointError where it does not fit these images."""
    arrays = stored.arrays
    size = math.prod(expected.shape)
    if "mean" not in arrays or arrays["mean"].shape != (size,) or arrays["mean"].dtype != np.float64:
        raise CheckpointError(f"{stored.path / 'input.safetensors'}: mean: must be {size} numbers of float64")
    return arrays


def config_of(stored: Stored) -> Config:
    """The settings that an evaluation needs. Raises CheckpointError."""
    if not stored.input:
        raise CheckpointError(f"{stored.path}: has weights alone, and no net; give the run directory or its checkpoint")
    config = stored.settings(NEEDED)
    if stored.graph is None and config.model is None:
        raise CheckpointError(f"{stored.path}: has a net that only its program can build; use fit(...).predict there")
    return config
