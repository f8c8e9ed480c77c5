"""A trained net: what `fit` gives back, and what `load` makes of a run, a checkpoint or a saved file, anywhere."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from mpibow.config import Config, dump, load_mapping
from mpibow.config.document import parse
from mpibow.config.strict import build
from mpibow.config.words import show
from mpibow.errors import CheckpointError, ConfigError
from mpibow.evaluate import on_host
from mpibow.graph.graph import FLOAT, Array
from mpibow.graph.plan import Plan, choose_layout, compile_plan
from mpibow.job import kernels_of
from mpibow.job.document import Build, loaded, saved
from mpibow.ops.own import OwnOperator
from mpibow.run import checkpoint, checkpoints
from mpibow.run.series import read_run
from mpibow.run.state import from_named
from mpibow.session.header import header_of
from mpibow.session.summary import Summary
from mpibow.system.files import read_file

SEAL = "mpibow.net"  # the key of a saved file's metadata
FORMAT = 1
COMPUTES = ("device", "precision", "onednn")  # settings that a net computes with


@dataclass(frozen=True)
class Saved:
    """What a saved file's metadata has beside the arrays: the net as JSON, settings as YAML, the run's summary."""

    format: int
    graph: Mapping[str, Any]
    config: str
    summary: Mapping[str, Any] | None


@dataclass(frozen=True, repr=False)
class Fitted:
    """A trained net: predictions, the centre's weights by name, the run's summary and history.

    After `fit` every rank has one. `rank` is this process's rank, so that a script prints once: `if fitted.rank == 0`.
    """

    ended: Summary | None  # what its run came to, None where it has not ended
    weights: dict[str, Array]
    rank: int
    make: Build  # batch size -> the graph that evaluates
    config: Config  # of the host, whatever the run computed on
    folder: Path | None = None  # the run directory, where it is known
    average: dict[str, Array] | None = None  # as `weights`, of the average of the centre; None without `ema`

    def __repr__(self) -> str:
        return f"Fitted(summary={self.ended!r}, rank={self.rank})"

    @property
    def summary(self) -> Summary:
        """What the run came to. Raises ConfigError where it has not ended."""
        if self.ended is None:
            raise ConfigError("summary: the run has not ended, so that there is none; history has its events so far")
        return self.ended

    @property
    def history(self) -> list[dict[str, Any]]:
        """The events of the run's metrics.jsonl in order. Raises ConfigError where the run directory is gone."""
        if self.folder is None:
            raise ConfigError("history: is in the run directory, and this net was loaded from a file alone")
        return [dict(event) for event in read_run(self.folder).events]

    def predict(self, images: Array, batch_size: int = 100, *, average: bool = False) -> Array:
        """Logits (n, classes) of images (n, ...) in the form that the net was trained on; the host computes them.

        `average` has the average of the centre predict.
        """
        weights = self.average if average else self.weights
        if weights is None:
            raise ConfigError("average: the run kept no average of the centre; train with ema={'half_life': SAMPLES}")
        graph, images = self.make(1), np.asarray(images)
        if "logits" not in graph.outputs:
            raise ConfigError("predict: gives the logits of a classifier, this net gives losses; use its weights")
        form, classes = graph.tensors["image"], graph.tensors[graph.outputs["logits"]].shape[1]
        if images.shape[1:] != form.shape[1:]:
            raise ConfigError(f"images: must be (n, {', '.join(map(str, form.shape[1:]))}), got {images.shape}")
        dtype = "float32" if form.dtype == FLOAT else form.dtype
        if not np.can_cast(images.dtype, dtype, "same_kind"):
            raise ConfigError(f"images: must be {dtype} as in training, got {images.dtype}")
        plan = self.plan(batch_size)
        centre, statistics = from_named(weights, plan, "weights")
        bound = plan.bind(centre, statistics=statistics)
        logits = np.zeros((len(images), classes), plan.dtype)
        for start in range(0, len(images), batch_size):
            part = images[start : start + batch_size]
            bound.inputs["image"][: len(part)] = part
            bound.run()
            logits[start : start + len(part)] = bound.outputs["logits"][: len(part)]
        return logits

    def plan(self, batch_size: int) -> Plan:
        """The plan that evaluates batches of this size on the host."""
        graph, kernels = self.make(batch_size), kernels_of(self.config)[0]
        dtype = kernels.dtype(self.config.precision)
        return compile_plan(graph, choose_layout(graph, kernels, training=False), kernels, dtype, training=False)

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes net, weights, settings and summary to one safetensors file, which `mpibow.load` reads anywhere.

        Raises ShapeError where the net depends on the batch size in another way than by multiples of it.
        """
        document, arrays = saved(self.make)
        summary = None if self.ended is None else self.ended.json()
        header = {"format": FORMAT, "graph": document, "config": dump(self.config), "summary": summary}
        named = {f"weights/{name}": array for name, array in self.weights.items()}
        named |= {f"average/{name}": array for name, array in (self.average or {}).items()}
        named |= {f"graph/{name}": array for name, array in arrays.items()}
        path = Path(file)
        aside = path.with_name(f".{path.name}.part")
        try:
            save_file(
                {name: np.ascontiguousarray(array) for name, array in named.items()}, aside, {SEAL: json.dumps(header)}
            )
            aside.replace(path)
        except (OSError, SafetensorError) as error:
            aside.unlink(missing_ok=True)
            raise ConfigError(f"{path}: cannot be written: {error}") from None


def load(path: str | os.PathLike[str], *, operators: Sequence[OwnOperator] = ()) -> Fitted:
    """The trained net of a run directory (its newest whole checkpoint), a checkpoint, or a file of `Fitted.save`.

    It needs no data, no mpirun and no GPU, and executes nothing that it reads. `operators` are those that the net's
    program made by `mpibow.operator`. Raises CheckpointError where there is no such net, or not a whole one.
    """
    place = Path(path)
    if not place.exists():
        raise CheckpointError(f"{place}: does not exist; give a run directory, a checkpoint or a saved file")
    return _of_file(place, operators) if place.is_file() else _of_run(place, operators)


def _of_run(path: Path, operators: Sequence[OwnOperator]) -> Fitted:
    folder, entries = checkpoints.find_whole(path, _warned)
    header = header_of(folder, entries)
    if header.graph is None:
        raise CheckpointError(
            f"{folder}: has no graph: an older mpibow made it, or the net can't be saved (the run's log says so)"
        )
    arrays = checkpoint.read_arrays(folder, "input") if "input.safetensors" in header.files else {}
    run = folder.resolve().parent.parent
    summary = json.loads(read_file(run / "summary.json")) if (run / "summary.json").is_file() else None
    make = _loaded(folder, header.graph, arrays, operators)
    weights = checkpoint.read_arrays(folder, "centre")
    average = checkpoint.read_arrays(folder, "average") if "average.safetensors" in header.files else None
    run_folder = run if (run / "metrics.jsonl").is_file() else None
    return _fitted(folder, make, weights, average, header.config, summary, run_folder)


def _warned(text: str) -> None:
    warnings.warn(text, stacklevel=4)


def _of_file(path: Path, operators: Sequence[OwnOperator]) -> Fitted:
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(SEAL)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from None
    if text is None:
        raise CheckpointError(f"{path}: was not written by Fitted.save; give its weights to fit(weights=...) instead")
    header = _header(path, text)
    parts = {
        part: {name.removeprefix(part): array for name, array in arrays.items() if name.startswith(part)}
        for part in ("weights/", "average/", "graph/")
    }
    make = _loaded(path, header.graph, parts["graph/"], operators)
    return _fitted(path, make, parts["weights/"], parts["average/"] or None, header.config, header.summary, None)


def _header(path: Path, text: str) -> Saved:
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise CheckpointError(f"{path}: {SEAL}: is no JSON: {error}") from None
    found = entries.get("format") if isinstance(entries, dict) else None
    if found != FORMAT:
        raise CheckpointError(f"{path}: {SEAL}: has format {show(found)}, this version reads {FORMAT}")
    try:
        return build(Saved, entries)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from None


def _loaded(
    path: Path, document: Mapping[str, Any], arrays: Mapping[str, Array], operators: Sequence[OwnOperator]
) -> Build:
    try:
        return loaded(document, arrays, operators)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None


def _fitted(
    path: Path, make: Build, weights: dict[str, Array], average: dict[str, Array] | None, settings: str,
    summary: Mapping[str, Any] | None, folder: Path | None,
) -> Fitted:  # fmt: skip
    """Checked: the weights are the graph's. Of the settings those count that say how it is computed."""
    try:
        given = parse(settings, str(path))
        if not isinstance(given, Mapping):
            raise ConfigError(f"must be a mapping of settings as YAML, got {show(settings)}")
        entries = {key: value for key, value in given.items() if key in COMPUTES}
        config = load_mapping(entries, model_given=True, data_given=True)
    except ConfigError as error:
        raise CheckpointError(f"{path}: config: {error}") from None
    ended = None if summary is None else _summary(summary)
    found = Fitted(ended, weights, 0, make, on_host(config), folder, average)
    for named in filter(None, (weights, average)):
        from_named(named, found.plan(1), str(path))
    return found


def _summary(entries: Mapping[str, Any]) -> Summary:
    """Of any version: what it has not heard of is left out, what is missing is None."""
    known: dict[str, Any] = {each.name: entries.get(each.name) for each in fields(Summary)}
    known["learners"] = tuple(known["learners"] or ())
    return Summary(**known)
