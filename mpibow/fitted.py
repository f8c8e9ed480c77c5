"""A trained net: the return value of `fit`, and of `load` for a run, a checkpoint or a saved file, anywhere."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .aten.net import TorchNet
from .config import Config
from .errors import CheckpointError, ConfigError, RecordError, raised
from .evaluate import on_host
from .graph.graph import Array, ArraysByName
from .graph.plan import Plan
from .job.document import misfit, saved
from .job.predictor import Prediction, Predictor, Sources, is_sources, plan_of, softmax
from .job.sources import in_order
from .models.classifier import Build
from .ops.own import OwnOperator
from .pytorch import copied, into_torch
from .run.results import Summary
from .run.series import read_run
from .run.stored import Stored, misfit_of, read_stored, write_stored
from .system.files import StrPath
from .system.json_text import JsonObject

if TYPE_CHECKING:
    from .export import Scaled

COMPUTES = ("device", "precision", "onednn")  # settings of the computation


@dataclass(frozen=True, repr=False)
class Fitted:
    """A trained net: predictions, the centre's weights by name, the run's summary and history.

    After `fit` every rank has one. `rank` is this process's rank, so that a script prints once: `if fitted.rank == 0`.
    """

    ended: Summary | None  # the summary of its run, None where it has not ended
    weights: dict[str, Array]
    rank: int
    make: Build  # batch size -> the graph that evaluates
    config: Config  # of the host, whatever device the run used
    folder: Path | None = None  # the run directory, where it is known
    average: dict[str, Array] | None = None  # as `weights`, of the average of the centre; None without `ema`
    input: JsonObject = field(default_factory=dict)  # the form of the training data (job/normalise.py)
    source: TorchNet | None = None  # of `from_torch`, where `fit` received one
    settings: str = ""  # of the file that it was loaded from, as YAML
    _ready: dict[tuple[int, bool], Predictor] = field(default_factory=dict, init=False, compare=False)  # the last one

    def __repr__(self) -> str:
        return f"Fitted(summary={self.ended!r}, rank={self.rank})"

    def __getstate__(self) -> dict[str, object]:
        """A copy or a pickle has no bound plan."""
        return {**vars(self), "_ready": {}}

    @property
    def summary(self) -> Summary:
        """The summary of the run. Raises ConfigError where it has not ended."""
        if self.ended is None:
            raise ConfigError("summary: the run has not ended, so that there is none; history has its events so far")
        return self.ended

    @property
    def history(self) -> list[JsonObject]:
        """The events of the run's metrics.jsonl in order. Raises ConfigError where the run directory is gone."""
        if self.folder is None:
            raise ConfigError("history: is in the run directory, and this net was loaded from a file alone")
        return list(read_run(self.folder).events)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, their numbers where they have none; () for a net of other outputs."""
        return tuple(map(str, self.input.get("class_names") or range(self.input.get("classes", 0))))

    @property
    def buffers(self) -> dict[str, Array]:
        """The arrays of a module of PyTorch that are not trained, such as masks, by their names in it."""
        return {name: each.array for name, each in self.make(1).buffers.items()}

    def weights_of(self, average: bool) -> dict[str, Array]:
        """The weights, or the average of the centre. Raises ConfigError where the run kept none."""
        weights = self.average if average else self.weights
        if weights is None:
            remedy = "train with ema={'half_life': SAMPLES}, as a command with ema.half_life=SAMPLES"
            raise ConfigError(f"average: the run kept no average of the centre; {remedy}")
        return weights

    def predict(
        self,
        images: Array | ArraysByName | Sources,
        batch_size: int = 100,
        *,
        average: bool = False,
        top: int | None = None,
        probabilities: bool = False,
        crop: bool = False,
        skip: bool = False,
    ) -> Any:
        """The net's outputs (n, ...) for samples; the host computes them.

        Samples are

        - arrays (n, ...) in the form of the training data; a net of several inputs takes them by name;
        - a path: an image, a folder of images or of records, a .npy, .npz, .csv or Parquet file, a text; or a glob,
          "photos/*.jpg";
        - a picture of Pillow, a data frame of pandas or polars with the columns of the training data, or a list of
          paths, pictures and frames.

        Files, pictures and frames are converted as in the evaluations of the training; `crop` crops images of another
        shape than the net's, if it was trained on raw ones, instead of distorting them. Raises RecordError that names
        the first file or row that cannot be read; with `skip` such ones are left out, each with a warning.

        A classifier returns logits (n, classes); with `probabilities` their softmax; with `top` a list with a
        Prediction for each sample: `sample`, its name; `classes` and `probabilities`, the `top` likeliest. A net of
        several outputs returns them by name. `average` predicts with the average of the centre.

        The net stays ready for another call of a few samples, so that changes of `weights` have no effect after the
        first one.
        """
        predictor = self.predictor(batch_size, average)
        names = predictor.classes(self.class_names)
        if (top is not None or probabilities) and not names:
            raise ConfigError(f"top, probabilities: need a classifier, the net gives {', '.join(predictor.outputs)}")
        if top is not None and not 1 <= top <= len(names):
            raise ConfigError(f"top: must be at least 1 and at most the net's {len(names)} classes, got {top}")
        columns = self.input.get("sources", {}).get("columns")
        if columns and isinstance(images, Mapping):
            images = in_order(images, [columns], "predict")
        if is_sources(images):
            from .convert.net_inputs import NetInputs  # late: Pillow's plugins take a tenth of a second
            from .convert.sample_sources import samples

            wanted = NetInputs.of(predictor, self.input, self.folder, crop)
            rows = list(predictor.each(samples(images, wanted, _leave_out if skip else raised)))
            found = {
                output: np.stack([values[output] for _, values in rows]) if rows else np.zeros((0, *shape), np.float32)
                for output, shape in predictor.outputs.items()
            }
        else:
            found = predictor(images)
            rows = [(str(n), {}) for n in range(len(next(iter(found.values()))))]
        if top is not None:
            return [Prediction.of(name, row, names, top) for (name, _), row in zip(rows, found["logits"], strict=True)]
        if probabilities:
            return softmax(found["logits"])
        return found if len(found) > 1 else next(iter(found.values()))

    def predictor(self, batch_size: int, average: bool) -> Predictor:
        """The net, ready for batches of `batch_size` samples; it is kept until another one is asked for."""
        if (ready := self._ready.get((batch_size, average))) is None:
            ready = Predictor(self.make, self.config, self.weights_of(average), batch_size)
            self._ready.clear()
            self._ready[batch_size, average] = ready
        return ready

    def to_torch(self, module: Any = None, *, scope: str = "", average: bool = False, strict: bool = True) -> Any:
        """The torch.nn.Module that `mpibow.from_torch` read, with the trained weights: a copy, or `module`, filled.

        Weights, running statistics and buffers have the module's names for them. With `scope`, such as "body.", they
        are the net's weights whose names begin with it. `average` gives the average of the centre. Raises ConfigError
        where a name or a shape differs; if not `strict`, weights of the module that the net lacks keep their values.
        """
        weights = self.weights_of(average)
        if module is None:
            if self.source is None:
                raise ConfigError(
                    "to_torch: needs the module, as to_torch(module); fit of a net of from_torch keeps it"
                )
            module = copied(self.source.module)
            strict = False
        return into_torch(module, weights, scope=scope, strict=strict, buffers=self.buffers)

    def to_onnx(self, file: StrPath, *, average: bool = False, scaling: "Scaled" = "inside") -> None:
        """Writes the net as an ONNX model for any batch size, and FILE.json about its inputs.

        The model takes samples as they were stored for training, as `predict` does, and scales them itself; with
        `scaling` "beside" it takes scaled ones, and the JSON file has mean and std. Raises ConfigError naming the
        operators that cannot be written, or where the package onnx is not installed.
        """
        from .export import export_onnx, write  # late: few programs export

        path = Path(file)
        document, arrays = saved(self.make)
        stored = Stored(path, self.weights_of(average), graph=document, arrays=arrays)
        write(export_onnx(stored, self.make, scaling=scaling), path, "onnx")

    def plan(self, batch_size: int) -> Plan:
        """The plan that evaluates batches of this size on the host."""
        return plan_of(self.make, self.config, batch_size)

    def save(self, file: StrPath) -> None:
        """Writes net, weights, settings and summary to one safetensors file, which `mpibow.load` reads anywhere.

        Raises ShapeError where the net depends on the batch size in another way than by multiples of it.
        """
        document, arrays = saved(self.make)
        summary = None if self.ended is None else self.ended.json()
        path = Path(file)
        settings = self.settings or self.config.text
        stored = Stored(path, self.weights, self.average, document, arrays, settings, summary, input=self.input)
        write_stored(path, stored)


def _leave_out(error: RecordError) -> None:
    warnings.warn(f"left out: {error}", stacklevel=4)


def load(path: StrPath, *, operators: Sequence[OwnOperator] = ()) -> Fitted:
    """The trained net of a run directory (its newest whole checkpoint), a checkpoint, or a file of `Fitted.save`.

    It needs no data, no mpirun and no GPU, and executes nothing that it reads. `operators` are the net's own, made
    by `mpibow.operator`. Raises CheckpointError where there is no such net, or not a whole one.
    """
    return of_stored(read_stored(path), operators)


def of_stored(stored: Stored, operators: Sequence[OwnOperator] = ()) -> Fitted:
    """The trained net in a stored file, with its settings of the computation alone.

    Raises CheckpointError where there is none, or its parts do not fit.
    """
    make = stored.graphs(operators)
    path = stored.path
    if make is None:
        why = "has no graph: an older mpibow made it, or the net cannot be saved (see the run's log)"
        if path.is_file():
            why = "was not written by Fitted.save; give its weights to fit(weights=...) instead"
        raise CheckpointError(f"{path}: {why}")
    config = on_host(stored.settings(COMPUTES))
    ended = None if stored.summary is None else _summary(stored.summary)
    found = Fitted(
        ended, stored.weights, 0, make, config, stored.run, stored.average, stored.input, settings=stored.config
    )
    with misfit_of(path), misfit("graph"):
        plan = found.plan(1)
    for named in filter(None, (stored.weights, stored.average)):
        plan.packed(named, str(path))
    return found


def _summary(entries: JsonObject) -> Summary:
    """The summary of a run of any version: unknown entries are left out, missing ones are None."""
    known: dict[str, Any] = {each.name: entries.get(each.name) for each in fields(Summary)}
    known["learners"] = tuple(known["learners"] or ())
    return Summary(**known)
