"""Learners and their speed in words, as the log has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def as_sum(counts: Sequence[int]) -> str:
    """Learners by rank, as in "2 + 1"."""
    return " + ".join(map(str, counts))


def told(learners: str, rate: float, others: Mapping[str, float]) -> str:
    """The text that `learners` had `rate` images/s, beside the best of `others`, images/s by learners."""
    text = f"{learners}: {rate:,.0f} images/s"
    if not others:
        return text
    best = max(others, key=lambda name: others[name])
    return f"{text}, {rate / others[best]:.2f} times those of {best}"
