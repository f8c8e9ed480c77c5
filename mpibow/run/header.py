"""A checkpoint's header: every entry of checkpoint.json that a run reads, checked before its use.

Another entry is another field; entries of other names are refused.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from mpibow.bounds import AtMost, Count, Natural, NotEmpty, NotNegative, Positive
from mpibow.config import build, show, yaml_text
from mpibow.config.strict import Rest
from mpibow.data import Change, Image, Timeline
from mpibow.errors import CheckpointError, ConfigError
from mpibow.sync import RuleNumbers
from mpibow.system import JsonObject
from mpibow.tune import History

from .results import Ledger
from .saving import find_whole

T = TypeVar("T")


@dataclass(frozen=True)
class Averaged:
    """The progress of the centre's average: samples consumed, and the share of it that centres have filled."""

    position: Natural
    share: Annotated[NotNegative, AtMost(1)]


@dataclass(frozen=True)
class Header:
    """A run before `iteration`: the settings that a continued run must share, and the states of its parts.

    `counts` are learners by rank, `started` those that the run began with, `due` whether the ranks were about to talk,
    to agree after a reset, to evaluate. `rule` are the rule's numbers, `tuning` is the tuner's history, `buckets` the
    way of exchanges measured as the best, `input` the facts about the net's data, `graph` the net that evaluates
    (job/document.py), None where it can't be saved.
    `sample_weight` is the checksum of the samples' weights, None without them, `contents` the digest of the training
    data.
    """

    files: JsonObject  # verified already
    iteration: Natural
    position: Natural
    batch_size: Count
    timeline: Annotated[tuple[Change, ...], NotEmpty()]
    counts: Annotated[tuple[Count, ...], NotEmpty()]
    seed: int
    precision: str
    layout: str
    train_samples: Count
    started: Annotated[tuple[int | str, ...], NotEmpty()]
    config: str
    rule_settings: JsonObject
    rule: RuleNumbers
    input: JsonObject
    ledger: Ledger
    due: tuple[bool, bool, bool]
    metrics_bytes: Natural
    tuning: JsonObject | None
    untold: Natural
    buckets: tuple[Count, Natural] | None
    average: Averaged | None
    validation_fraction: float | None
    sample_weight: str | None
    contents: str
    graph: JsonObject | None

    def __post_init__(self) -> None:
        """Raises ConfigError where entries contradict each other."""
        ranks = len(self.counts)
        filled = ["average"] if self.average is not None and self.average.share > 0 else []
        for name in (*filled, "centre", "common", *(f"rank-{rank}" for rank in range(ranks))):
            if f"{name}.safetensors" not in self.files:
                raise ConfigError(f"files: must have {name}.safetensors, got {show(list(self.files))}")
        for n, change in enumerate(self.timeline):
            last = self.timeline[n - 1] if n else None
            if len(change.counts) != ranks or min(change.counts) < 1:
                raise ConfigError(
                    f"timeline[{n}].counts: must be {ranks} number(s) of at least 1, got {[*change.counts]}"
                )
            least, most = (last.iteration + 1, math.inf) if last else (0, self.iteration)
            if not least <= change.iteration <= most:
                raise ConfigError(f"timeline[{n}].iteration: must be within {least} and {most}, got {change.iteration}")
            position = last.before(change.iteration, self.batch_size) if last else max(change.position, 0)
            if change.position != position:
                raise ConfigError(f"timeline[{n}].position: must be {position}, got {change.position}")
        timeline = Timeline(self.batch_size, self.timeline)
        if self.position != (position := timeline.position(self.iteration)):
            raise ConfigError(f"position: must be {position}, as timeline and batch_size have it, got {self.position}")
        begun = self.timeline[0].iteration  # a run may be resumed with other learners, and saved before these come
        if self.counts != (now := timeline.counts(max(self.iteration - 1, begun))) and begun < self.iteration:
            raise ConfigError(f"counts: must be {list(now)}, as timeline has it, got {list(self.counts)}")
        if not isinstance(yaml_text.parse(self.config, "config"), Mapping):
            raise ConfigError(f"config: must be a mapping of settings as YAML, got {show(self.config)}")
        if not isinstance(self.compared, bool):
            raise ConfigError(f"tuning.compared: must be true or false, got {show(self.compared)}")
        for n, window in enumerate(self.history.windows if self.history else ()):
            if len(window.counts) != ranks or len(window.own) != ranks or min(window.counts) < 1:
                raise ConfigError(f"tuning.windows[{n}]: must have counts of at least 1 and own of {ranks} rank(s)")

    @property
    def compared(self) -> bool:
        """Whether a GPU's executions have taken turns."""
        compared: bool = (self.tuning or {}).get("compared", False)
        return compared

    @cached_property
    def history(self) -> History | None:
        """The tuner's, None where learners were given."""
        state = {key: value for key, value in (self.tuning or {}).items() if key != "compared"}
        return build(History, state, path="tuning") if state else None


@dataclass(frozen=True)
class Seen:
    """The images that a net was trained on, and their scaling (job/normalise.py); `image` where they are encoded.

    `class_names` is empty where classes have none.
    """

    shape: Annotated[tuple[Count, ...], NotEmpty()]
    dtype: str
    classes: Count
    mean: Literal["mean"] | Annotated[tuple[float, ...], NotEmpty()]
    std: Annotated[tuple[Positive, ...], NotEmpty()]
    image: Image | None = None
    class_names: tuple[str, ...] = ()
    others: Annotated[JsonObject, Rest()] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.class_names and len(self.class_names) != self.classes:
            raise ConfigError(f"class_names: must be {self.classes}, got {len(self.class_names)}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values != "mean" and len(values) != self.shape[0]:
                got = len(values)
                raise ConfigError(f"{name}: must have one number for each of {self.shape[0]} channel(s), got {got}")


def checked(kind: type[T], entries: JsonObject, path: Path, name: str = "") -> T:
    """`entries`, called `name` in the header of checkpoint `path`, as a dataclass. Raises CheckpointError."""
    try:
        return build(kind, entries, path=name)
    except ConfigError as error:
        lines = str(error).replace("is not a setting", "is not an entry that this version reads").splitlines()
        raise CheckpointError("\n".join(f"{path / 'checkpoint.json'}: {line}" for line in lines)) from None


def header_of(path: Path, entries: JsonObject) -> Header:
    """The entries of `read_header` for checkpoint `path`, checked. Raises CheckpointError naming entry, rule, value."""
    return checked(Header, {key: value for key, value in entries.items() if key not in ("format", "crc32c")}, path)


def open_checkpoint(path: Path, note: Callable[[str], None]) -> tuple[Path, Header]:
    """As find_whole."""
    found, entries = find_whole(path, note)
    return found, header_of(found, entries)


def check_fits(path: Path, header: Header, expected: JsonObject) -> None:
    """Raises CheckpointError naming the first thing in which the checkpoint and this run differ."""
    for key, value in expected.items():
        found = getattr(header, key)
        remedy = "resume with the same config"
        if found == value:
            continue
        difference = f"with {key} {found}, this run has {value}"
        if key == "layout":
            difference = "with another model, its weights have other names or shapes"
        elif key == "sample_weight":
            then, now = ("without" if each is None else "with" for each in (found, value))
            difference = f"{then} sample_weight, this run is {now}{' others' * (then == now)}"
            remedy = "pass the same sample_weight"
        elif key == "contents":
            difference = "with other training data"
            remedy = "give the same"
        raise CheckpointError(f"{path}: was made {difference}; {remedy}, or start anew without --resume")
