"""The exponential moving average of a run's centre: evaluated and saved beside it."""

from dataclasses import asdict, dataclass

import numpy as np

from mpibow.config.schema import Ema
from mpibow.graph import Array, Plan
from mpibow.kernels.passes import PIECE

from .checkpoint import read_arrays
from .header import Averaged
from .start import Start


@dataclass(eq=False)
class Average:
    """a <- a + (1 - kept) / share (z - a), where the centre z enters after n more samples; kept = 0.5^(n / half_life).

    share <- kept share + 1 - kept, from 0: so the average has no bias towards the first weights, as Adam's have none
    (Kingma and Ba, ICLR 2015, section 3). `weights` (size,) are a, None before the first centre; and always without
    settings: no centre is due then.
    """

    settings: Ema | None
    now: Averaged
    weights: Array | None = None

    def due(self, iteration: int) -> bool:
        """Whether the centre enters after so many iterations."""
        return self.settings is not None and iteration % self.settings.every == 0

    def follow(self, centre: Array, position: int) -> None:
        """The centre (size,) of this position, in samples, enters."""
        assert self.settings is not None, "no centre is due"
        kept = 0.5 ** ((position - self.now.position) / self.settings.half_life)
        share = kept * self.now.share + 1 - kept
        if self.weights is None:
            self.weights = centre.copy()
        else:
            step = self.weights.dtype.type((1 - kept) / share)
            for start in range(0, centre.size, PIECE):
                own = self.weights[start : start + PIECE]
                own += step * (centre[start : start + PIECE] - own)
        self.now = Averaged(position, share)

    def entry(self) -> dict[str, float] | None:
        """Its entry in a checkpoint's header."""
        return None if self.settings is None else asdict(self.now)


def average_of(settings: Ema | None, start: Start, plan: Plan) -> Average:
    """The average that the config asks for, continued from the checkpoint if there is one."""
    header = start.source.header
    path = start.source.checkpoint
    kept = None if header is None or settings is None else header.average
    if path is None or kept is None or kept.share == 0:
        return Average(settings, Averaged(start.timeline.position(start.iteration), 0.0))
    weights, _ = plan.packed(read_arrays(path, "average"), str(path))
    return Average(settings, kept, np.ascontiguousarray(weights))
