"""The grid of a sweep: from `update.lr=0.01,0.02 seed=1:3` to its cells, one for every combination of values."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from mpibow.config import show
from mpibow.config.yaml_text import parse
from mpibow.errors import ConfigError

OWN = ("name", "out")  # settings that a sweep gives each run
LONGEST = 100  # characters of a name
OPENING = "[{"
CLOSING = "]}"


def text_of(value: object) -> str:
    """A setting's value as a sweep shows it."""
    return value if isinstance(value, str) else show(value, limit=1000)


@dataclass(frozen=True)
class AxisValue:
    """One value of a key, as it was typed and as YAML reads it."""

    text: str
    value: object

    def __str__(self) -> str:
        return text_of(self.value)


@dataclass(frozen=True)
class Cell:
    """One run: a value for every key."""

    chosen: tuple[tuple[str, AxisValue], ...]

    @property
    def overrides(self) -> list[str]:
        """The cell's settings as overrides of `mpibow.train`."""
        return [f"{key}={choice.text}" for key, choice in self.chosen]

    @property
    def settings(self) -> Mapping[str, object]:
        return {key: choice.value for key, choice in self.chosen}

    @property
    def name(self) -> str:
        """The name of its run directory and its file; it does not depend on the order of the typed keys."""
        pairs = sorted((key, str(choice)) for key, choice in self.chosen)
        whole = "__".join(f"{key}_{value}" for key, value in pairs) or "base"
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", whole)
        if name == whole and len(name) <= LONGEST:
            return name
        return f"{name[:LONGEST]}-{hashlib.sha256(repr(pairs).encode()).hexdigest()[:8]}"

    def __str__(self) -> str:
        return " ".join(f"{key}={choice}" for key, choice in self.chosen) or "the settings as they are"


def axis(word: str) -> tuple[str, list[AxisValue]]:
    """A key and the values that it takes in turn, from `key=value,value`, each as YAML, or `a:b`, the integers a to b.

    Raises ConfigError naming the word.
    """
    key, equals, text = word.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise ConfigError(f"'{word}': must be key.path=values, as in update.lr=0.01,0.02 or seed=1:9")
    if key in OWN:
        raise ConfigError(
            f"{key}: is set by the sweep for each run; leave it out, and choose a folder with --output DIR"
        )
    choices = [choice for part in _parts(word, text) for choice in _choices(word, part)]
    for n, choice in enumerate(choices):
        if any(choice.value == other.value and type(choice.value) is type(other.value) for other in choices[:n]):
            raise ConfigError(f"{key}: {choice} is given twice, in '{word}'")
    return key, choices


def cells(words: Sequence[str]) -> list[Cell]:
    """Every combination of the axes that `words` give, the last changing fastest; the seed changes slowest.

    Raises ConfigError.
    """
    axes = {}
    for key, choices in map(axis, words):
        if key in axes:
            raise ConfigError(f"{key}: is given twice; write all its values behind one {key}=")
        axes[key] = choices
    found = [Cell(tuple(zip(axes, chosen, strict=True))) for chosen in product(*axes.values())]
    if seeds := axes.get("seed"):
        found.sort(key=lambda cell: seeds.index(dict(cell.chosen)["seed"]))
    return found


def _parts(word: str, text: str) -> Iterable[str]:
    """`text` between the commas that stand in no bracket and no quotes."""
    depth = 0
    quote = ""
    start = 0
    for i, character in enumerate(text + ","):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in OPENING:
            depth += 1
        elif character in CLOSING:
            depth -= 1
        elif character == "," and depth == 0:
            if not (part := text[start:i].strip()):
                raise ConfigError(f"'{word}': has an empty value; write null for none")
            yield part
            start = i + 1
    if depth or quote:
        raise ConfigError(f"'{word}': has a bracket or a quote that is not closed")


def _choices(word: str, part: str) -> list[AxisValue]:
    found = re.fullmatch(r"([-+]?\d+):([-+]?\d+)", part)
    if found is None:
        return [AxisValue(part, parse(part, f"'{word}'"))]
    first, last = map(int, found.groups())
    if first > last:
        raise ConfigError(f"'{word}': must be a:b with a <= b, got {part}; both are included")
    return [AxisValue(str(value), value) for value in range(first, last + 1)]
