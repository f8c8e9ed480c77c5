"""Trained weights as they are stored: in a run directory, a checkpoint, a file of `Fitted.save`, or bare by name."""

import json
import warnings
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from mpibow.config import Config, build, load_mapping, show
from mpibow.config.renamed import renamed
from mpibow.config.yaml_text import parse
from mpibow.errors import CheckpointError, ConfigError
from mpibow.graph import Array, ArraysByName, Buffer, Plan
from mpibow.job import Job
from mpibow.job.document import buffers_of, loaded
from mpibow.job.starting_weights import LoadedWeights, take
from mpibow.models import Build
from mpibow.models.torchvision import COUNTED
from mpibow.ops.own import OwnOperator
from mpibow.system import JsonObject, StrPath, parse_object, read_file, reason, whole_file

from .checkpoint import FIRST, read_arrays
from .header import Header, open_checkpoint

SEAL = "mpibow.net"  # the key of a saved file's metadata
FORMAT = 1
PARTS = ("weights/", "average/", "graph/")


@dataclass(frozen=True)
class Saved:
    """The metadata of a saved file, beside its arrays: the net as JSON, settings as YAML, the run's summary."""

    format: int
    graph: JsonObject
    config: str
    summary: JsonObject | None
    input: JsonObject


@dataclass(frozen=True)
class Stored:
    """Weights and statistics by name, and what is stored beside them.

    `graph` is the net as JSON (job/document.py), `arrays` the numbers that it names, `config` the settings as YAML,
    `input` the facts about its training data (job/normalise.py). They are None or empty in a bare file of weights.
    """

    path: Path  # the checkpoint or the file
    weights: dict[str, Array]
    average: dict[str, Array] | None = None
    graph: JsonObject | None = None
    arrays: ArraysByName = field(default_factory=dict)
    config: str = ""
    summary: JsonObject | None = None
    run: Path | None = None  # the run directory, where there is one
    input: JsonObject = field(default_factory=dict)

    def graphs(self, operators: Sequence[OwnOperator] = ()) -> Build | None:
        """The net's graphs, None where none are stored; `operators` are a script's own. Raises CheckpointError."""
        if self.graph is None:
            return None
        with misfit_of(self.path):
            return loaded(self.graph, self.arrays, operators)

    def settings(self, names: Collection[str]) -> Config:
        """The settings of these names; a model or data that are none were a program's own. Raises CheckpointError."""
        with misfit_of(f"{self.path}: config"):
            given = parse(self.config, "YAML")
            if not isinstance(given, Mapping):
                raise ConfigError(f"must be a mapping of settings as YAML, got {show(self.config)}")
            chosen = {key: value for key, value in renamed(given).items() if key in names and value is not None}
            return load_mapping(chosen, model_given="model" not in chosen, data_given="data" not in chosen)

    def weights_of(self, average: bool) -> dict[str, Array]:
        """The weights, or the average of the centre. Raises ConfigError."""
        weights = self.average if average else self.weights
        if weights is None:
            raise ConfigError(f"--average: {self.path} has no average of the centre; train with ema.half_life=SAMPLES")
        return weights


@contextmanager
def misfit_of(place: object) -> Iterator[None]:
    """Errors inside are CheckpointErrors that begin with `place`, the checkpoint or file that they are of."""
    try:
        yield
    except (CheckpointError, ConfigError) as error:
        raise CheckpointError(f"{place}: {error}") from None


def read_stored(path: StrPath) -> Stored:
    """Reads a run directory's newest whole checkpoint, a checkpoint, or a safetensors file; nothing is executed.

    Raises CheckpointError where it is not there, damaged or something else.
    """
    place = Path(path)
    if not place.exists():
        raise CheckpointError(f"{place}: does not exist; give a run directory, a checkpoint or a safetensors file")
    return _of_file(place) if place.is_file() else of_checkpoint(*open_checkpoint(place, _warned))


def write_stored(path: Path, stored: Stored) -> None:
    """Writes net, weights, settings and summary to one file, which `read_stored` reads. Raises ConfigError."""
    header = {"format": FORMAT, **{name: getattr(stored, name) for name in ("graph", "config", "summary", "input")}}
    found = zip(PARTS, (stored.weights, stored.average or {}, stored.arrays), strict=True)
    arrays = {f"{part}{name}": np.asarray(array, order="C") for part, own in found for name, array in own.items()}
    try:
        with whole_file(path) as file:
            file.write(save(arrays, {SEAL: json.dumps(header)}))
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path}: cannot be written: {reason(error)}") from None


def of_checkpoint(folder: Path, header: Header) -> Stored:
    """The content of a checkpoint whose `header` was verified. Raises CheckpointError."""
    inputs, average = (
        read_arrays(folder, name) if f"{name}.safetensors" in header.files else None for name in ("input", "average")
    )
    run = folder.resolve().parent.parent
    return Stored(
        folder,
        read_arrays(folder, "centre"),
        average,
        header.graph,
        inputs or {},
        header.config,
        _summary(run / "summary.json"),
        run if (run / "metrics.jsonl").is_file() else None,
        header.input,
    )


def _summary(file: Path) -> JsonObject | None:
    if not file.is_file():
        return None
    try:
        return parse_object(read_file(file))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file}: is not JSON: {error}; remove it, the run's weights are whole") from None


def _warned(text: str) -> None:
    warnings.warn(text, stacklevel=5)


def _of_file(path: Path) -> Stored:
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(SEAL)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError, AttributeError) as error:  # the last two: types that NumPy lacks
        raise CheckpointError(f"{path}: cannot be read: {error}{_remedy(path)}") from None
    if text is None:
        return Stored(path, arrays)
    header = _header(path, text)
    weights, average, graph = (
        {name.removeprefix(part): array for name, array in arrays.items() if name.startswith(part)} for part in PARTS
    )
    return Stored(
        path, weights, average or None, header.graph, graph, header.config, header.summary, input=header.input
    )


def _remedy(path: Path) -> str:
    """The remedy for PyTorch's own files: they are pickles, that is programs, and are not read."""
    if path.suffix not in (".pt", ".pth", ".bin", ".ckpt"):
        return ""
    return (
        "; a file of torch.save is a pickle: convert it where PyTorch is, "
        "safetensors.torch.save_file(torch.load(FILE, weights_only=True), 'FILE.safetensors')"
    )


def _header(path: Path, text: str) -> Saved:
    try:
        entries = parse_object(text)
    except ValueError as error:
        raise CheckpointError(f"{path}: {SEAL}: is not JSON: {error}") from None
    if (found := entries.get("format")) != FORMAT:
        raise CheckpointError(f"{path}: {SEAL}: has format {show(found)}, this version reads {FORMAT}")
    with misfit_of(path):
        return build(Saved, entries)


def taken_by(job: Job, plan: Plan) -> LoadedWeights | None:
    """The arrays that the job's net takes from the weights given to it; None where none are given.

    Raises CheckpointError where they cannot be read, ConfigError where they do not fit.
    """
    if job.given is None:
        return None
    arrays = job.given.arrays
    buffers = job.build(1).buffers
    if arrays is None:
        stored = read_stored(job.given.weights.file)
        theirs = buffers_of(stored.graph, stored.arrays)
        arrays = {**stored.weights, **{name: each.array for name, each in theirs.items() if name in buffers}}
    check_buffers(buffers, arrays, f"{job.given.key}: {job.given.source}")
    arrays = {name: array for name, array in arrays.items() if name not in buffers}
    return take(job.given, arrays, {s.name: s.shape for layout in (plan.layout, plan.statistics) for s in layout.spans})


def check_buffers(ours: Mapping[str, Buffer], theirs: ArraysByName, where: str) -> None:
    """Raises ConfigError, which begins with `where`, where a buffer of both has other numbers."""
    for name, buffer in ours.items():
        if name in theirs and not name.endswith(COUNTED) and not np.array_equal(buffer.array, theirs[name]):
            raise ConfigError(
                f"{where}: the buffer {name} has other numbers than the module; fill the module before from_torch: "
                "mpibow.load(RUN).to_torch(module)"
            )


def read_first(path: Path, files: Container[str], size: int) -> Array | None:
    """The statistics (size,) that replicas of checkpoint `path` started from; None for random weights'."""
    found = read_arrays(path, "input").get(FIRST) if "input.safetensors" in files else None
    if found is not None and (found.shape != (size,) or found.dtype.kind != "f"):
        got = f"{found.dtype} {list(found.shape)}"
        raise CheckpointError(f"{path / 'input'}.safetensors: {FIRST}: must be floating point [{size}], got {got}")
    return found
