"""How much larger the mean step may be, measured from the noise between learners (arXiv:2007.05105, section 3.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

SILENT = 20  # iterations before the averages are trusted


@dataclass(frozen=True)
class Averages:
    """n1, n2: averages over time of mean |v_i|^2 and |mean v|^2, weighted sums not yet divided by `weight`."""

    n1: float = 0.0
    n2: float = 0.0
    weight: float = 0.0
    count: int = 0


def follow(averages: Averages, k: int, mean_square: float, square_of_mean: float, rate: float) -> Averages:
    """The averages after one more iteration, from mean |u_i|^2 and |mean u|^2 with u = -rate v; rate 0 tells nothing.

    Each iteration weighs min(k / 1000, 1): about a thousand batches count, however many learners they are spread over.
    """
    square = rate * rate  # inf or 0 where it leaves the range, while ** would raise
    n1, n2 = (mean_square / square, square_of_mean / square) if square else (math.nan, math.nan)
    if not (math.isfinite(n1) and math.isfinite(n2)):
        return averages
    share = min(k / 1000.0, 1.0)
    return Averages(
        n1=(1.0 - share) * averages.n1 + share * n1,
        n2=(1.0 - share) * averages.n2 + share * n2,
        weight=(1.0 - share) * averages.weight + share,
        count=averages.count + 1,
    )


def noise_gain(averages: Averages, k: int) -> float:
    """G = (noise + signal) / (noise / k + signal) within [1, k]; 1 for one learner and while nothing is known.

    noise = max(k / (k - 1) (n1 - n2), 0), signal = max(n2 - noise / k, 0): k steps that differ by noise alone may be
    added up (G = k), k equal steps count once (G = 1).

    The paper's averages are of gradients, these of v, the sum of m^j g. With momentum m its noise is 1 / (1 - m^2)
    times a gradient's, while a signal that lasts is (1 / (1 - m))^2 times: G is that of a batch (1 + m) / (1 - m) times
    as large, and below the paper's. To divide that out would forget that a signal which turns within 1 / (1 - m)
    iterations grows less, and so find G too large just where it is too large already: LeNet's first epoch diverges
    then with 16 learners, at batch 8 and momentum 0.9.
    """
    if k == 1 or averages.count <= SILENT or averages.weight == 0.0:
        return 1.0
    n1, n2 = averages.n1 / averages.weight, averages.n2 / averages.weight
    noise = max(k / (k - 1) * (n1 - n2), 0.0)
    signal = max(n2 - noise / k, 0.0)
    below = noise / k + signal
    gain = (noise + signal) / below if below > 0.0 else math.nan
    return min(max(gain, 1.0), float(k)) if math.isfinite(gain) else 1.0
