"""Ranks, their learners and speed in words, as the log has them."""

from collections.abc import Mapping, Sequence


def as_sum(counts: Sequence[int]) -> str:
    """Learners by rank, as in "2 + 1"."""
    return " + ".join(map(str, counts))


def in_ranks(ranks: Sequence[int]) -> str:
    """Ranks in words: "rank 3", "ranks 0 to 3, 5"."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
    return f"rank{'s' * (len(ranks) > 1)} {words}"


def told(learners: str, rate: float, others: Mapping[str, float]) -> str:
    """The text that `learners` had `rate` images/s, beside the best of `others`, images/s by learners."""
    text = f"{learners}: {rate:,.0f} images/s"
    if not others:
        return text
    best = max(others, key=lambda name: others[name])
    return f"{text}, {rate / others[best]:.2f} times those of {best}"
