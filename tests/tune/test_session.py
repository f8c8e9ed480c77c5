"""The tuner in whole sessions, their coordinator, pipeline and learners included, on made-up times with noise."""

from dataclasses import dataclass, field

import numpy as np

from mpibow.run.tuning import Tuning
from mpibow.tune import Counts
from tests.run import tiny
from tests.run.test_tuning import auto, on, tuner
from tests.tune.device import Curve, peak, usual

SECONDS = 0.03  # of an iteration


@dataclass
class Noisy:
    """A session's tuning that is told what `curves`, by rank, say, and noise that is the same on every rank."""

    real: Tuning
    rank: int
    curves: tuple[Curve, ...]
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def measured(self, own: float, whole: float, counts: Counts) -> None:
        times = [curve(k) * usual(self.generator) for curve, k in zip(self.curves, counts, strict=True)]
        self.real.measured(times[self.rank], max(times), counts)

    def __getattr__(self, name: str):
        return getattr(self.real, name)


def test_no_memory_for_the_fifth(tmp_path):
    """Rank 1, whose peak is at seven, finds out that a fifth learner does not fit; nobody stops, and rank 0 has its."""
    seen = tiny.replay(auto(tmp_path, 400), 2, parts=on(peak(3, SECONDS), peak(7, SECONDS), most={1: 4}, timed=Noisy))
    tiny.check_stream(seen)
    assert [max(len(slots) for slots in one.samples) for one in seen] == [5, 4]
    assert (tiny.summary(tmp_path)["learners"], tiny.summary(tmp_path)["settled"]) == ([3, 4], True)
    assert tiny.log(tmp_path).count("tuner: rank 1 has no memory for 5 learners") == 1
    said = next(reason for _, settled, reason in tuner(tmp_path) if settled)
    assert said.endswith("; settled on 3 + 4; rank 1 has memory for 4")
