"""Metrics of numbers: outputs beside targets of the same shape."""

import math
from dataclasses import dataclass

import numpy as np

from mpibow.errors import ConfigError

from .metric import Array, Sums, ratio


@dataclass(frozen=True)
class Mse:
    """The mean of the differences' squares."""

    higher_is_better = False

    def sums(self, output: Array, target: Array) -> Sums:
        return {"sum": self.of(differences(output, target)).sum(), "count": np.array(output.size)}

    def of(self, difference: Array) -> Array:
        return np.square(difference)

    def close(self, sums: Sums) -> float:
        return ratio(sums["sum"], sums["count"])


@dataclass(frozen=True)
class Mae(Mse):
    """The mean of the differences' sizes."""

    def of(self, difference: Array) -> Array:
        return np.abs(difference)


@dataclass(frozen=True)
class Rmse(Mse):
    """The root of the mean of the differences' squares."""

    def close(self, sums: Sums) -> float:
        return math.sqrt(super().close(sums))


@dataclass(frozen=True)
class R2:
    """1 - squared differences / squared distances of the targets from their mean: the mean over a sample's numbers.

    Sums are in the machine's widest floats, as the distances are a difference of large ones. Targets that are all the
    same give 1 where every output is equal to them, else 0, as scikit-learn has it.
    """

    def sums(self, output: Array, target: Array) -> Sums:
        pair = differences(output, target), target
        missed, wide = (each.astype(np.longdouble).reshape(len(target), -1) for each in pair)
        squares = {"missed": (missed**2).sum(axis=0), "squares": (wide**2).sum(axis=0)}
        return {**squares, "sum": wide.sum(axis=0), "count": np.array(len(target))}

    def close(self, sums: Sums) -> float:
        if not sums["count"]:
            return np.nan
        spread = sums["squares"] - sums["sum"] ** 2 / sums["count"]
        missed = sums["missed"]
        alike = spread <= 8 * np.finfo(np.longdouble).eps * sums["squares"]
        share = np.where(alike, missed > 0, missed / np.where(alike, 1, spread))
        return float((1 - share).mean())


def differences(output: Array, target: Array) -> Array:
    """Raises ConfigError where shapes differ: (n,) beside (n, 1) would give n x n of them."""
    if output.shape != target.shape:
        raise ConfigError(f"output {output.shape}, target {target.shape}: must have one shape; mb.reshape the output")
    return output - target
