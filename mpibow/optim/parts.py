"""Formulas that several optimisers' formulas call."""

from __future__ import annotations

from typing import Any

from mpibow.formulas.functions import abs, where

# A dead unit's averages decay into denormals and stay there: 2 to 3 times the time, seen on Zen 4. So formulas make an
# average that is smaller 0; squares are averaged down to SMALL.
TINY, SMALL = 1e-30, 1e-36


def decayed(g: Any, w: Any, decay: Any) -> Any:
    """The gradient, weight decay being a part of it."""
    return where(decay != 0, g + decay * w, g)


def shrunk(u: Any, w: Any, shrink: Any) -> Any:
    """The step, weight decay standing beside the gradient."""
    return where(shrink != 0, u - shrink * w, u)


def flushed(average: Any) -> Any:
    return where(abs(average) < TINY, 0, average)


def averaged(average: Any, g: Any, kept: Any, rest: Any) -> Any:
    """An average of gradients with one more."""
    average = kept * average + rest * g
    return flushed(average)


def averaged_square(average: Any, g: Any, kept: Any, rest: Any) -> Any:
    """An average of squared gradients with one more."""
    average = kept * average + rest * (g * g)
    return where(average < SMALL, 0, average)
