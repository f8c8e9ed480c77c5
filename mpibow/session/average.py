"""The exponential moving average of a run's centre: evaluated and saved beside it."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from mpibow.config.schema import Ema
from mpibow.graph.graph import Array
from mpibow.graph.plan import Plan
from mpibow.kernels.passes import PIECE
from mpibow.run.checkpoint import read_arrays
from mpibow.run.state import from_named
from mpibow.session.header import Averaged
from mpibow.session.start import Start


class NoAverage:
    """No average: the config asks for none."""

    weights: Array | None = None

    def due(self, iteration: int) -> bool:
        return False

    def follow(self, centre: Array, position: int) -> None:
        raise AssertionError("no centre is due")

    def entry(self) -> dict[str, float] | None:
        return None


class Average:
    """a <- a + (1 - kept) / share (z - a), where the centre z enters after n more samples; kept = 0.5^(n / half_life).

    share <- kept share + 1 - kept, from 0: so the average has no bias towards the first weights, as Adam's have none
    (Kingma and Ba, ICLR 2015, section 3). `weights` (size,) are a, None before the first centre.
    """

    def __init__(self, settings: Ema, before: Averaged, weights: Array | None = None) -> None:
        self._settings, self._now, self.weights = settings, before, weights

    def due(self, iteration: int) -> bool:
        """Whether the centre enters after so many iterations."""
        return iteration % self._settings.every == 0

    def follow(self, centre: Array, position: int) -> None:
        """The centre (size,) of this position, in samples, enters."""
        kept = 0.5 ** ((position - self._now.position) / self._settings.half_life)
        share = kept * self._now.share + 1 - kept
        if self.weights is None:
            self.weights = centre.copy()
        else:
            step = self.weights.dtype.type((1 - kept) / share)
            for start in range(0, centre.size, PIECE):
                own, new = self.weights[start : start + PIECE], centre[start : start + PIECE]
                own += step * (new - own)
        self._now = Averaged(position, share)

    def entry(self) -> dict[str, float]:
        """Its entry in a checkpoint's header."""
        return asdict(self._now)


def average_of(settings: Ema | None, start: Start, plan: Plan) -> Average | NoAverage:
    """The average that the config asks for, continued from the checkpoint if there is one."""
    if settings is None:
        return NoAverage()
    header, path = start.source.header, start.source.checkpoint
    if header is None or path is None or header.average is None or header.average.share == 0:
        return Average(settings, Averaged(start.timeline.position(start.iteration), 0.0))
    weights, _ = from_named(read_arrays(path, "average"), plan, str(path))
    return Average(settings, header.average, np.ascontiguousarray(weights))
