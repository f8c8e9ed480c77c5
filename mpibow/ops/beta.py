"""The shares that mixup draws from, a table: so that every kernel set draws the same numbers."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import Array

SHARES = 4096  # entries: 12 bits of a random word choose one
FINE = 1 << 16  # points of the integral


def larger_shares(alpha: float) -> Array:
    """Quantiles (i + 1/2) / SHARES of max(b, 1 - b) for b of Beta(alpha, alpha): rising, in [1/2, 1], float64."""
    # P(b < x) for x <= 1/2 is proportional to the integral of z^(alpha - 1) (1 - z)^(alpha - 1) from 0 to x, which over
    # t = z^p has no pole at 0.
    p = min(alpha, 1.0)
    t = np.linspace(0.0, 0.5**p, FINE)
    density = (2.0 * t) ** (alpha / p - 1.0) * (2.0 - 2.0 * t ** (1.0 / p)) ** (alpha - 1.0)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    wanted = (np.arange(SHARES) + 0.5) / SHARES
    found: Array = np.interp(1.0 - wanted, below / below[-1], t) ** (1.0 / p)
    return 1.0 - found
