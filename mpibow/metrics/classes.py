"""Metrics of classes: logits and labels, or logits and zeros or ones of the same shape, several labels a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from mpibow.bounds import Count
from mpibow.errors import ConfigError
from mpibow.metrics.metric import Array, Sums

IGNORED = -100  # PyTorch's


@dataclass(frozen=True)
class Classes:
    """The axis of the classes, null being axis 1 or, if only that fits, the last; and the label that is left out."""

    axis: Annotated[int | None, "axis of the classes"] = None
    ignore_index: int = IGNORED
    higher_is_better: ClassVar[bool | None] = True

    def rows(self, output: Array, target: Array) -> tuple[Array, Array]:
        """Scores (rows, classes) and labels (rows,) that are not ignored. Raises ConfigError where shapes differ."""
        shape, at = f"output {output.shape}, target {target.shape}", self.axis
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
        scores, labels = scores[counted], labels[counted]
        if len(labels) and not 0 <= labels.min() <= labels.max() < scores.shape[1]:
            limits = f"[0, {scores.shape[1]}), got {labels.min()} to {labels.max()}"
            raise ConfigError(f"labels must lie in {limits}; the option ignore_index leaves one out")
        return scores, labels

    def binary(self, output: Array, target: Array) -> tuple[Array, Array]:
        """Predictions and targets (n, labels) as bools, of logits and of zeros and ones of the same shape."""
        last = output.shape[-1] if output.ndim > 1 else 1
        return (output > 0).reshape(-1, last), (target > 0.5).reshape(-1, last)


def alike(output: Array, target: Array) -> bool:
    """Whether a sample has several labels: a number each."""
    return output.shape == target.shape


@dataclass(frozen=True)
class Hits(Classes):
    """The fraction of labels that are hit."""

    def hits(self, output: Array, target: Array) -> Any:
        """Whether each label is."""
        raise NotImplementedError

    def sums(self, output: Array, target: Array) -> Sums:
        hits = self.hits(output, target)
        return {"hits": hits.sum(), "count": np.array(hits.size)}

    def close(self, sums: Sums) -> Any:
        return _ratio(sums["hits"], sums["count"])


@dataclass(frozen=True)
class Accuracy(Hits):
    """The fraction of labels that are the likeliest class; for several labels a sample, that lie on the right side."""

    def hits(self, output: Array, target: Array) -> Any:
        if alike(output, target):
            predicted, wanted = self.binary(output, target)
            return predicted == wanted
        scores, labels = self.rows(output, target)
        return scores.argmax(axis=1) == labels


@dataclass(frozen=True)
class TopK(Hits):
    """The fraction of labels that are among the k likeliest classes, the first of equals first."""

    k: Count = 5

    def hits(self, output: Array, target: Array) -> Any:
        scores, labels = self.rows(output, target)
        if self.k > scores.shape[1]:
            raise ConfigError(f"k must be at most the {scores.shape[1]} classes, got {self.k}")
        own, before = scores[np.arange(len(labels)), labels][:, None], np.arange(scores.shape[1]) < labels[:, None]
        ahead = (~(scores <= own) | ((scores == own) & before)).sum(axis=1)
        return ahead < self.k


@dataclass(frozen=True)
class Perplexity(Classes):
    """exp of the mean cross-entropy of the labels."""

    higher_is_better = False

    def sums(self, output: Array, target: Array) -> Sums:
        scores, labels = self.rows(output, target)
        top = scores.max(axis=1, keepdims=True)
        losses = np.log(np.exp(scores - top).sum(axis=1)) + top[:, 0] - scores[np.arange(len(labels)), labels]
        return {"loss": losses.sum(), "count": np.array(len(labels))}

    def close(self, sums: Sums) -> Any:
        with np.errstate(over="ignore"):
            return np.exp(_ratio(sums["loss"], sums["count"]))


@dataclass(frozen=True)
class Confusion(Classes):
    """Counts (classes, classes): a row for each label, a column for each prediction. Nothing is chosen by it."""

    higher_is_better = None

    def sums(self, output: Array, target: Array) -> Array:
        scores, labels = self.rows(output, target)
        classes = scores.shape[1]
        found = np.bincount(labels * classes + scores.argmax(axis=1), minlength=classes * classes)
        return found.reshape(classes, classes)

    def close(self, sums: Array) -> Any:
        return sums


@dataclass(frozen=True)
class Counted(Classes):
    """True and false positives and false negatives of every class, or of every label where a sample has several."""

    def sums(self, output: Array, target: Array) -> Sums:
        if alike(output, target):
            predicted, wanted = self.binary(output, target)
        else:
            scores, labels = self.rows(output, target)
            classes = np.arange(scores.shape[1])
            predicted, wanted = scores.argmax(axis=1)[:, None] == classes, labels[:, None] == classes
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

    def close(self, sums: Sums) -> Any:
        both, either = 2 * sums["both"], sums["predicted"] + sums["wanted"]
        if self.average == "micro":
            return _ratio(both.sum(), either.sum())
        if self.average == "binary":
            if len(both) > 2:
                raise ConfigError(f"f1: average binary is of two classes, got {len(both)}; give macro or micro")
            return _ratio(both[-1], either[-1])
        return _mean(both, either)


@dataclass(frozen=True)
class MeanIou(Counted):
    """The mean over classes of intersection over union, of the classes that labels or predictions have."""

    def close(self, sums: Sums) -> Any:
        return _mean(sums["both"], sums["predicted"] + sums["wanted"] - sums["both"])


def _ratio(part: Any, whole: Any) -> Any:
    return float(part) / float(whole) if whole else np.nan


def _mean(parts: Array, wholes: Array) -> Any:
    there = wholes > 0
    return float((parts[there] / wholes[there]).mean()) if there.any() else np.nan
