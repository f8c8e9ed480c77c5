"""How weights start: frozen records that draw an array from (generator, shape, fan in, fan out)."""

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.random import Generator

from mpibow.errors import ConfigError
from mpibow.graph import Array, Shape

__all__ = ["Constant", "Gaussian", "He", "TruncatedNormal", "Uniform", "Xavier"]


@dataclass(frozen=True)
class Constant:
    """Every element is `value`."""

    value: float = 0.0

    def __call__(self, generator: Generator, shape: Shape, fan_in: int, fan_out: int) -> Array:
        return np.full(shape, self.value)


ZERO = Constant(0.0)
ONE = Constant(1.0)


@dataclass(frozen=True, eq=False)
class Given:
    """The elements of `array`, of as many elements."""

    array: Array

    def __call__(self, generator: Generator, shape: Shape, fan_in: int, fan_out: int) -> Array:
        return self.array.reshape(shape)


@dataclass(frozen=True)
class Uniform:
    """Uniform in [low, high)."""

    low: float = -0.05
    high: float = 0.05

    def __call__(self, generator: Generator, shape: Shape, fan_in: int, fan_out: int) -> Array:
        return generator.uniform(self.low, self.high, shape)


@dataclass(frozen=True)
class Gaussian:
    """Normal with this standard deviation and mean."""

    std: float = 0.05
    mean: float = 0.0

    def __post_init__(self) -> None:
        if self.std <= 0:
            raise ConfigError(f"std: of Gaussian(std, mean) must be above 0, got {self.std}")

    def __call__(self, generator: Generator, shape: Shape, fan_in: int, fan_out: int) -> Array:
        return generator.normal(self.mean, self.std, shape)


Mode = Literal["fan_in", "fan_out", "average"]
Distribution = Literal["uniform", "normal"]


@dataclass(frozen=True)
class Scaled:
    """Mean 0 and variance `gain` / fan, where the fan is fan_in, fan_out or their average, by `mode`."""

    mode: Mode
    distribution: Distribution
    gain: ClassVar[float]

    def __post_init__(self) -> None:
        for name, value, kind in (("mode", self.mode, Mode), ("distribution", self.distribution, Distribution)):
            if value not in (allowed := get_args(kind)):
                raise ConfigError(
                    f"{name}: of {type(self).__name__} must be one of {', '.join(allowed)}, got {value!r}"
                )

    def __call__(self, generator: Generator, shape: Shape, fan_in: int, fan_out: int) -> Array:
        fan = {"fan_in": fan_in, "fan_out": fan_out, "average": (fan_in + fan_out) / 2}[self.mode]
        if self.distribution == "normal":
            return generator.normal(0.0, sqrt(self.gain / fan), shape)
        bound = sqrt(3.0 * self.gain / fan)
        return generator.uniform(-bound, bound, shape)


@dataclass(frozen=True)
class Xavier(Scaled):
    """Variance 1 / fan; by default uniform in +-sqrt(6 / (fan in + fan out)) (Glorot and Bengio, AISTATS 2010, eq. 16).

    With mode "average" it is PyTorch's xavier_uniform_ or xavier_normal_.
    """

    mode: Mode = "average"
    distribution: Distribution = "uniform"
    gain = 1.0


@dataclass(frozen=True)
class He(Scaled):
    """Variance 2 / fan; by default normal, of standard deviation sqrt(2 / fan in) (He et al., arXiv:1502.01852).

    It is also called MSRA, and by PyTorch kaiming_normal_ and kaiming_uniform_.
    """

    mode: Mode = "fan_in"
    distribution: Distribution = "normal"
    gain = 2.0


@dataclass(frozen=True)
class TruncatedNormal:
    """Normal with standard deviation `std`; values beyond two standard deviations are drawn again."""

    std: float = 0.05

    def __call__(self, generator: Generator, shape: Shape, fan_in: int, fan_out: int) -> Array:
        values = generator.standard_normal(shape)
        while (outside := np.abs(values) > 2.0).any():
            values[outside] = generator.standard_normal(int(outside.sum()))
        return values * self.std
