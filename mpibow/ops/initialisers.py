"""How weights start: frozen records that draw an array from (generator, shape, fan in, fan out)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpibow.graph.graph import Array, Shape

__all__ = ["Constant", "He", "TruncatedNormal", "Uniform", "Xavier"]


@dataclass(frozen=True)
class Constant:
    """Every element is `value`."""

    value: float = 0.0

    def __call__(self, generator: np.random.Generator, shape: Shape, fan_in: int, fan_out: int) -> Array:
        return np.full(shape, self.value)


ZERO, ONE = Constant(0.0), Constant(1.0)


@dataclass(frozen=True)
class Uniform:
    """Uniform in [low, high)."""

    low: float = -0.05
    high: float = 0.05

    def __call__(self, generator: np.random.Generator, shape: Shape, fan_in: int, fan_out: int) -> Array:
        return generator.uniform(self.low, self.high, shape)


@dataclass(frozen=True)
class Xavier:
    """Uniform in +-sqrt(6 / (fan in + fan out)) (Glorot and Bengio, AISTATS 2010, eq. 16)."""

    def __call__(self, generator: np.random.Generator, shape: Shape, fan_in: int, fan_out: int) -> Array:
        bound = float(np.sqrt(6.0 / (fan_in + fan_out)))
        return generator.uniform(-bound, bound, shape)


@dataclass(frozen=True)
class He:
    """Normal with standard deviation sqrt(2 / fan in), also called MSRA (He et al., arXiv:1502.01852, eq. 10)."""

    def __call__(self, generator: np.random.Generator, shape: Shape, fan_in: int, fan_out: int) -> Array:
        return generator.normal(0.0, float(np.sqrt(2.0 / fan_in)), shape)


@dataclass(frozen=True)
class TruncatedNormal:
    """Normal with standard deviation `std`, drawn again where it falls outside two of them."""

    std: float = 0.05

    def __call__(self, generator: np.random.Generator, shape: Shape, fan_in: int, fan_out: int) -> Array:
        values = generator.standard_normal(shape)
        while (outside := np.abs(values) > 2.0).any():
            values[outside] = generator.standard_normal(int(outside.sum()))
        return values * self.std
