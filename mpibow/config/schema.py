"""The settings of a run, from one YAML file and its overrides."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from mpibow.bounds import AtLeast, Below, Count, Matches, Natural, NotEmpty, Positive, Text
from mpibow.comm.pulse import Limits
from mpibow.config import yaml_text
from mpibow.data import Auto, Image, TokenStream, Wanted
from mpibow.errors import ConfigError
from mpibow.models.augmentation import Augmentation, Normalisation
from mpibow.models.losses import CrossEntropyLoss, Loss
from mpibow.optim import UPDATES, AnyUpdate, Sgd, Update
from mpibow.optim.schedules import Schedule, over
from mpibow.sync import Family, RuleSettings
from mpibow.sync.family import AnyRule, Independent
from mpibow.system import JsonObject
from mpibow.tune.tuner import Tuner

from .course import Checkpoint, Stop
from .listing import listing
from .overrides import override
from .renamed import renamed
from .strict import Rest, build, check_named, hints_of, plain
from .words import show

Device = Literal["auto", "cuda", "onednn", "numpy"]
Transport = Literal["auto", "nccl", "mpi", "staged"]
LoggerName = Literal["jsonl", "tensorboard", "wandb"]  # each has an entry in mpibow.run.loggers
RunName = Annotated[
    str, Matches(r"[A-Za-z0-9_][A-Za-z0-9._-]*", "of letters, digits, . _ - that starts with a letter, a digit or _")
]
Replay = Annotated[str, Matches(r"replay\(.+\)", "such as replay(runs/NAME)")]


@dataclass(frozen=True)
class Weights:
    """Trained weights that a net starts from, the statistics of batch norms among them; patterns are of their names."""

    file: Annotated[Text, "a run directory, a checkpoint or a safetensors file"]
    match: Annotated[Text | tuple[Text, ...], "pattern or list of patterns of the names to load, as conv*"] = "*"
    exclude: Annotated[
        Text | tuple[Text, ...], "pattern or list of patterns of the names to leave out, which start anew, as dense1.*"
    ] = ()
    strict: Annotated[bool, "refuse a file that lacks weights of the net, or that has others"] = True
    names: Annotated[Literal["auto", "mpibow", "torchvision"], "naming scheme of the file; auto detects it"] = "auto"


@dataclass(frozen=True)
class Model:
    """A model by name; other keys are options of the model function."""

    name: Annotated[Text, "the model's name, or a function of your own: mynet.py:net"]
    classes: Annotated[Annotated[int, AtLeast(2)] | None, "number of classes; null is the data's"] = None
    weights: Annotated[
        Text | Weights | None,
        "trained weights that a new run starts from: a run directory, a checkpoint or a safetensors file, or "
        "{file, match, exclude, strict, names}; null: random ones, by seed",
    ] = None
    options: Annotated[JsonObject, Rest()] = field(default_factory=dict)
    sha256: Annotated[Text | None, "checksum of the file in name; the run fills it in"] = None


@dataclass(frozen=True)
class MetricSettings:
    """A metric by name; other keys are its options."""

    name: Annotated[Text, "the metric's name"]
    output: Annotated[Text | None, "output that it is of, where the net gives several by name"] = None
    label: Annotated[Text | None, "what it is called in reports; null is its name"] = None
    options: Annotated[JsonObject, Rest()] = field(default_factory=dict)


@dataclass(frozen=True)
class Data:
    train: Annotated[Text, "training data set"]
    test: Annotated[Text | None, "test data set; with validation data, evaluated at the end only"] = None
    validation: Annotated[
        Text | Annotated[Positive, Below(1)] | None,
        "data set that decides when to stop and which checkpoint is the best, or the fraction of each class to split "
        "off the training data for this, by seed; null: the test data decide",
    ] = None
    image: Annotated[Image | None, "how encoded images become arrays"] = None
    normalise: Annotated[
        Normalisation,
        "subtract the training data's mean of each channel or pixel, and divide by each channel's standard deviation; "
        "half is x / 127.5 - 1",
    ] = "channel"
    augment: Augmentation = field(default_factory=Augmentation)
    pipeline: Annotated[
        Wanted, "how images reach the learners; on a GPU, resident keeps them in its memory, dali decodes them"
    ] = "auto"
    workers: Annotated[Auto | Count, "decoding threads per rank; auto: its share of the cores, at most 16"] = "auto"
    on_corrupt: Annotated[Literal["error", "skip"], "on a damaged sample: stop, or take the next intact one"] = "error"
    corrupt_limit: Annotated[Count, "damaged samples that a rank may skip; one more ends the run"] = 100
    text: Annotated[TokenStream | None, "how a stream of tokens becomes samples"] = None

    @property
    def most_damaged(self) -> int:
        """The most damaged samples that a rank may skip."""
        return self.corrupt_limit if self.on_corrupt == "skip" else 0


@dataclass(frozen=True)
class Evaluate:
    every: Annotated[Positive, "epochs between evaluations"] = 1.0
    batch_size: Annotated[Count, "batch size of an evaluation"] = 100
    top_k: Annotated[Annotated[int, AtLeast(2)] | None, "also report the top-k accuracy for this k; null: none"] = None


@dataclass(frozen=True)
class Ema:
    """An exponential moving average of the centre."""

    half_life: Annotated[Positive, "samples after which half of the average is left"]
    every: Annotated[Count, "iterations between updates of the average"] = 10


@dataclass(frozen=True)
class LogSettings:
    to: Annotated[
        tuple[LoggerName, ...],
        "where numbers go: jsonl is metrics.jsonl, which is always written; tensorboard writes event files beside it, "
        "wandb sends them to Weights & Biases",
    ] = ("jsonl",)
    every: Annotated[Count, "iterations between entries of training"] = 50


@dataclass(frozen=True)
class OneDnn:
    library: Annotated[Text | None, "path of a libdnnl.so of oneDNN 3; null is the installed one"] = None
    winograd: Annotated[bool, "Winograd's algorithm for 3x3 and 5x5 convolutions, where shapes allow"] = True


@dataclass(frozen=True)
class Config:
    """A run. `model` and `data` are None only where a program gives them as objects."""

    name: Annotated[RunName, "name of the run directory in out; auto is MODEL-DATA-TIME"] = "auto"
    model: Model | None = None
    data: Data | None = None
    batch_size: Annotated[Count, "samples per learner and iteration; never scaled"] = 16
    learners: Annotated[
        Auto | Count | Annotated[tuple[Count, ...], NotEmpty()] | Replay,
        "learners per rank, or a list with one number per rank; auto measures how many pay off; replay(RUN) repeats "
        "those of a run",
    ] = "auto"
    tuner: Annotated[Tuner, "how learners=auto finds their number"] = field(default_factory=Tuner)
    assignment: Annotated[
        Literal["fixed", "first_come"], "fixed: a batch belongs to one learner; first_come: the first free one takes it"
    ] = "fixed"
    rule: Annotated[AnyRule, "how the replicas are kept together"] = field(default_factory=Family)
    loss: Annotated[Loss, "the loss that is trained"] = field(default_factory=CrossEntropyLoss)
    metrics: Annotated[
        tuple[Text | MetricSettings, ...],
        "what evaluations report beside the loss: accuracy, top_k, perplexity, f1, mean_iou, confusion, mae, mse, "
        "rmse, r2; with options as {name: top_k, k: 5}",
    ] = ()
    update: Annotated[AnyUpdate, "the optimiser: a learner's local step"] = field(default_factory=Sgd)
    stop: Annotated[Stop, "when the run ends: at the first limit that is reached"] = field(default_factory=Stop)
    device: Annotated[Device, "what to compute on; auto is the fastest available, a GPU first"] = "auto"
    onednn: Annotated[OneDnn, "settings of device onednn"] = field(default_factory=OneDnn)
    precision: Annotated[
        Literal["auto", "float32", "float64", "tf32", "bf16", "fp16"],
        "arithmetic of forward and backward passes; auto is tf32 on a GPU, else float32; on a GPU float32 is exact; "
        "tf32, bf16 and fp16 need a GPU, and weights stay float32; float64 needs device numpy, and data stay float32",
    ] = "auto"
    share_gpu: Annotated[bool, "allow several ranks on one GPU; they then average by MPI"] = False
    transport: Annotated[
        Transport, "how ranks with GPUs average: by NCCL, by MPI on device memory, or through host memory"
    ] = "auto"
    graphs: Annotated[
        bool, "launch a learner's pass on a GPU as one CUDA graph; the results are bit-identical without"
    ] = True
    execution: Annotated[
        Literal["auto", "streams", "fused"],
        "learners on a GPU: each on its own stream, or all fused in the same kernels; auto measures which is faster",
    ] = "auto"
    overlap: Annotated[bool, "compute gradients while ranks communicate; false: one after the other"] = True
    buckets: Annotated[
        Auto | Count,
        "parts of an exchange: what the backward pass has ended is sent while the rest is computed; the bits are those "
        "of 1; auto measures, between nodes; it is 1 within a node; with device numpy and on GPUs nothing is cut",
    ] = "auto"
    wire: Annotated[
        Literal["float32", "bf16"],
        "what nodes send each other in sums of float32 on CPUs; bf16: half the bytes, rounded, added up in float32",
    ] = "float32"
    prefetch: Annotated[
        Auto | Count,
        "iterations to read data ahead; auto is 2, more for encoded images, texts and data sets with __getitem__",
    ] = "auto"
    on_nan: Annotated[
        Literal["stop", "reset"], "on a loss or gradient that is not finite: stop the run, or reset the replica"
    ] = "stop"
    evaluate: Annotated[Evaluate, "evaluation of the centre on the validation data, without these on the test data"] = (
        field(default_factory=Evaluate)
    )
    checkpoint: Annotated[Checkpoint, "when the state is saved"] = field(default_factory=Checkpoint)
    ema: Annotated[
        Ema | None, "an exponential moving average of the centre, evaluated and saved beside it; null is none"
    ] = None
    log: Annotated[LogSettings, "what is logged"] = field(default_factory=LogSettings)
    limits: Annotated[Limits, "how long a run without progress may last before it ends"] = field(default_factory=Limits)
    seed: Annotated[Natural, Below(2**32), "seed of weights, order and augmentation"] = 1
    out: Annotated[Text, "directory for run directories"] = "runs"

    def __post_init__(self) -> None:
        over(self.update.schedule, self.stop.epochs)  # raises ConfigError for settings that contradict each other
        self.averaging  # noqa: B018  likewise

    @cached_property
    def text(self) -> str:
        """Every setting as YAML that loads as the same config; kept, as writing it takes longer than ten iterations of
        a small net."""
        return yaml_text.write(plain(self))

    @property
    def schedule(self) -> Schedule:
        """The schedule of the rate, over the epochs of the run."""
        return over(self.update.schedule, self.stop.epochs)

    @property
    def replayed(self) -> Path | None:
        """RUN where `learners` is replay(RUN)."""
        if not isinstance(self.learners, str) or self.learners == "auto":
            return None
        return Path(self.learners.removeprefix("replay(").removesuffix(")"))

    @cached_property
    def averaging(self) -> RuleSettings:
        """The rule, completed for the optimiser."""
        return self.rule.going_with(self.update)


def load(path: Path | str | None, overrides: Sequence[str] = ()) -> Config:
    """The config of a YAML file, or of the overrides alone. Raises ConfigError."""
    return load_mapping({} if path is None else yaml_text.read(Path(path)), overrides)


def load_mapping(
    mapping: Mapping[str, object], overrides: Sequence[str] = (), *, model_given: bool = False, data_given: bool = False
) -> Config:
    """The config of nested settings with `key.path=value` overrides laid over them.

    A model or data that the program gives as objects must not be in the mapping; otherwise they are required. `update`
    and `rule` may be a program's own objects, which the config keeps unchanged. Raises ConfigError with one line for
    each problem.
    """
    known = (*UPDATES.values(), Family, Independent)
    own: JsonObject = {
        key: value
        for key, value in mapping.items()
        if key in ("update", "rule") and isinstance(value, Update | RuleSettings) and type(value) not in known
    }
    for key, value in own.items():
        scalars = {
            each.name: given
            for each in fields(value)
            if isinstance(given := getattr(value, each.name), int | float | str)
        }
        with suppress(NameError):  # of an annotation with a local name
            check_named(key, type(value), [*scalars], scalars, hints_of(type(value)))
    problems = list[str]()
    named = {key: value for key, value in mapping.items() if key not in own}
    settings = renamed(override(Config, named, overrides), lines=problems)
    if isinstance(settings.get("loss"), str):
        settings["loss"] = {"name": settings["loss"]}
    for key, given, example in (
        ("model", model_given, "{name: lenet}"),
        ("data", data_given, "{train: data/mnist/train}"),
    ):
        if given and settings.get(key) is not None:
            problems.append(f"{key}: must be null as the program gives its own, got {show(settings.pop(key))}")
        elif not given and settings.get(key) is None:
            problems.append(f"{key}: is required, as {key}: {example}")
    if isinstance(data := settings.get("data"), dict):
        if isinstance(data.get("augment"), list):
            problems.append(f"data.augment: must be as {{pad: 4, flip: true}}, got {show(data.pop('augment'))}")
        if isinstance(data.get("normalise"), bool):
            word = "channel" if data["normalise"] else "none"
            problems.append(f"data.normalise: must be a word: write {word} for {show(data.pop('normalise'))}")
    config = build(Config, settings, problems=problems)
    return replace(config, **own) if own else config


def limits_of(find: Callable[[], Config]) -> Limits:
    """The initial limits, from the config that `find` returns; all ranks raise its error later, together."""
    with suppress(ConfigError):
        return find().limits
    return Limits()


def describe() -> str:
    """Every setting on a line: path, default, rule, purpose."""
    return listing(Config)
