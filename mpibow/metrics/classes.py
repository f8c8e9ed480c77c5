"""Metrics of classes: logits and labels, or logits and zeros or ones of the same shape, several labels a sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from mpibow.bounds import Count
from mpibow.errors import ConfigError

from .metric import Array, Sums, ratio

IGNORED = -100  # PyTorch's


@dataclass(frozen=True)
class Classes:
    """The axis of the classes, null being axis 1 or, if only that fits, the last; and the label that is left out."""

    axis: Annotated[int | None, "axis of the classes"] = None
    ignore_index: int = IGNORED
    higher_is_better: ClassVar[bool | None] = True

    def rows(self, output: Array, target: Array) -> tuple[Array, Array]:
        """Scores (rows, classes) and labels (rows,) that are not ignored. Raises ConfigError where shapes differ."""
        shape = f"output {output.shape}, target {target.shape}"
        at = self.axis
        fitting = [i for i in range(1, output.ndim) if output.shape[:i] + output.shape[i + 1 :] == target.shape]
        if at is not None and at % output.ndim in fitting:
            fitting = [at % output.ndim]
        elif at is not None or not {1, output.ndim - 1} & set(fitting):
            raise ConfigError(f"{shape}: the target must have the output's shape without the axis of the classes")
        elif 1 in fitting and output.ndim - 1 in fitting and output.ndim > 2:
            raise ConfigError(f"{shape}: the classes may be axis 1 or {output.ndim - 1}; give the option axis")
        place = 1 if 1 in fitting else fitting[-1]
        scores = np.moveaxis(output, place, -1).reshape(-1, output.shape[place])
        labels = target.reshape(-1).astype(np.int64)
        counted = labels != self.ignore_index
        scores = scores[counted]
        labels = labels[counted]
        if len(labels) and not 0 <= labels.min() <= labels.max() < scores.shape[1]:
            limits = f"[0, {scores.shape[1]}), got {labels.min()} to {labels.max()}"
            raise ConfigError(f"labels must lie in {limits}; the option ignore_index leaves one out")
        return scores, labels


@dataclass(frozen=True)
class AccuracyMetric(Classes):
    """The fraction of labels that are the likeliest class; for several labels a sample, that lie on the right side."""

    def sums(self, output: Array, target: Array) -> Sums:
        hits = self.hits(output, target)
        return {"hits": hits.sum(), "count": np.array(hits.size)}

    def close(self, sums: Sums) -> float:
        return ratio(sums["hits"], sums["count"])

    def hits(self, output: Array, target: Array) -> Array:
        """Whether each label is hit."""
        if output.shape == target.shape:  # several labels a sample, a number each
            return np.asarray(((output > 0) == (target > 0.5))[target != self.ignore_index])
        scores, labels = self.rows(output, target)
        return np.asarray(scores.argmax(axis=1) == labels)


@dataclass(frozen=True)
class TopK(AccuracyMetric):
    """The fraction of labels that are among the k likeliest classes, the first of equals first."""

    k: Count = 5

    def hits(self, output: Array, target: Array) -> Array:
        scores, labels = self.rows(output, target)
        if self.k > scores.shape[1]:
            raise ConfigError(f"k must be at most the {scores.shape[1]} classes, got {self.k}")
        own = scores[np.arange(len(labels)), labels][:, None]
        before = np.arange(scores.shape[1]) < labels[:, None]
        ahead = (~(scores <= own) | ((scores == own) & before)).sum(axis=1)
        return np.asarray(ahead < self.k)


@dataclass(frozen=True)
class Perplexity(Classes):
    """exp of the mean cross-entropy of the labels."""

    higher_is_better = False

    def sums(self, output: Array, target: Array) -> Sums:
        scores, labels = self.rows(output, target)
        top = scores.max(axis=1, keepdims=True)
        losses = np.log(np.exp(scores - top).sum(axis=1)) + top[:, 0] - scores[np.arange(len(labels)), labels]
        return {"loss": losses.sum(), "count": np.array(len(labels))}

    def close(self, sums: Sums) -> float:
        with np.errstate(over="ignore"):
            return float(np.exp(ratio(sums["loss"], sums["count"])))


@dataclass(frozen=True)
class Confusion(Classes):
    """Counts (classes, classes): a row for each label, a column for each prediction. Nothing is chosen by it."""

    higher_is_better = None

    def sums(self, output: Array, target: Array) -> Array:
        scores, labels = self.rows(output, target)
        classes = scores.shape[1]
        found = np.bincount(labels * classes + scores.argmax(axis=1), minlength=classes * classes)
        return found.reshape(classes, classes)

    def close(self, sums: Array) -> Array:
        return sums


@dataclass(frozen=True)
class Counted(Classes):
    """True and false positives and false negatives of every class, or of every label where a sample has several."""

    def sums(self, output: Array, target: Array) -> Sums:
        if output.shape == target.shape:  # several labels a sample, a number each
            axis = 1 if self.axis is None and output.ndim < 3 else self.axis
            counted = target != self.ignore_index
            place = 0 if axis is None else axis % output.ndim
            if output.ndim > 1 and not place:
                raise ConfigError(f"several labels {output.shape}: axis, along which they lie, must be 1 or more")
            labels = output.shape[place] if place else 1
            both = output > 0, target > 0.5
            predicted, wanted = (np.moveaxis(each & counted, place, -1).reshape(-1, labels) for each in both)
        else:
            scores, labels = self.rows(output, target)
            classes = np.arange(scores.shape[1])
            predicted = scores.argmax(axis=1)[:, None] == classes
            wanted = labels[:, None] == classes
        return {
            "both": (predicted & wanted).sum(axis=0),
            "predicted": predicted.sum(axis=0),
            "wanted": wanted.sum(axis=0),
        }


@dataclass(frozen=True)
class F1(Counted):
    """2 precision recall / (precision + recall): the mean over classes, of all together, or of class 1 alone.

    The mean is over the classes that labels or predictions have, as scikit-learn's.
    """

    average: Literal["macro", "micro", "binary"] = "macro"

    def sums(self, output: Array, target: Array) -> Sums:
        found = super().sums(output, target)
        labels = len(found["both"])
        if self.average == "binary" and output.shape == target.shape and labels > 1:
            raise ConfigError(f"f1: average binary is of one label, got {labels}; give macro or micro")
        return found

    def close(self, sums: Sums) -> float:
        both = 2 * sums["both"]
        either = sums["predicted"] + sums["wanted"]
        if self.average == "micro":
            return ratio(both.sum(), either.sum())
        if self.average == "binary":
            if len(both) > 2:
                raise ConfigError(f"f1: average binary is of two classes, got {len(both)}; give macro or micro")
            return ratio(both[-1], either[-1])
        return _mean(both, either)


@dataclass(frozen=True)
class MeanIou(Counted):
    """The mean over classes of intersection over union, of the classes that labels or predictions have."""

    def close(self, sums: Sums) -> float:
        return _mean(sums["both"], sums["predicted"] + sums["wanted"] - sums["both"])


def _mean(parts: Array, wholes: Array) -> float:
    there = wholes > 0
    return float((parts[there] / wholes[there]).mean()) if there.any() else np.nan


WIDEST = 120  # characters of a line: a matrix that needs more is left out
PAIRS = 10  # the most frequent confusions that are shown in its place


def confusion_table(counts: Sequence[Sequence[float]], names: Sequence[str]) -> str:
    """Counts (classes, classes), a row for each label, as text; then precision, recall and F1 of every class.

    The most frequent confusions take the place of a matrix that is too wide.
    """
    matrix = np.array(counts, np.int64)
    rows = [["label \\ predicted", *names], *([name, *map(str, row)] for name, row in zip(names, matrix, strict=True))]
    text = _aligned(rows)
    if max(map(len, text)) > WIDEST:
        text = _aligned([["label", "predicted", "samples"], *_confused(matrix, names)])
    return "\n".join([*text, "", *_aligned([["class", "precision", "recall", "f1", "samples"], *_each(matrix, names)])])


def _confused(matrix: Array, names: Sequence[str]) -> list[list[str]]:
    wrong = matrix * (1 - np.eye(len(matrix), dtype=np.int64))
    order = np.argsort(-wrong, axis=None, kind="stable")[:PAIRS]
    found = [divmod(int(place), len(matrix)) for place in order]
    return [[names[label], names[guess], f"{wrong[label, guess]:,}"] for label, guess in found if wrong[label, guess]]


def _each(matrix: Array, names: Sequence[str]) -> list[list[str]]:
    counts = np.diag(matrix), matrix.sum(axis=0), matrix.sum(axis=1)
    return [
        [name, _share(hit, guessed), _share(hit, wanted), _share(2 * hit, guessed + wanted), f"{wanted:,}"]
        for name, hit, guessed, wanted in zip(names, *counts, strict=True)
    ]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else "-"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
