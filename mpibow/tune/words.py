"""Ranks, their learners and speed in words, as the log has them."""

from collections.abc import Mapping, Sequence

from mpibow.system.command import some

LISTED = 8  # ranks that are listed one by one


def as_sum(counts: Sequence[int]) -> str:
    """Learners by rank, as in "2 + 1"; of more than LISTED ranks, how many have as many, as in "2 x 40 + 1 x 24"."""
    if len(counts) > LISTED:
        return " + ".join(f"{k} x {counts.count(k)}" for k in sorted(set(counts), reverse=True))
    return " + ".join(map(str, counts))


def shortened(lines: Sequence[str], others: str) -> list[str]:
    """Lines on ranks, or learners: at most LISTED, and the number of `others`."""
    rest = len(lines) - LISTED
    return [*lines[:LISTED], f"... and {rest:,} more {others}"] if rest > 0 else [*lines]


def in_ranks(ranks: Sequence[int]) -> str:
    """Ranks in words: "rank 3", "ranks 0 to 3, 5"."""
    runs = list[list[int]]()
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    return f"rank{'s' * (len(ranks) > 1)} {some(words, LISTED)}"


def told(learners: str, rate: float, others: Mapping[str, float]) -> str:
    """The text that `learners` had `rate` images/s, beside the best of `others`, images/s by learners."""
    text = f"{learners}: {rate:,.0f} images/s"
    if not others:
        return text
    best = max(others, key=others.__getitem__)
    return f"{text}, {rate / others[best]:.2f} times those of {best}"
