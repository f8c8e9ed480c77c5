"""Ranks and learners in words: at most eight are listed."""

import pytest

from mpibow.tune.words import as_sum, in_ranks, shortened


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((2, 1), "2 + 1"),
        ((1,) * 8, " + ".join("1" * 8)),
        ((1,) * 64, "1 x 64"),
        ((1, 2) * 32, "2 x 32 + 1 x 32"),
    ],
)
def test_learners(counts: tuple[int, ...], words: str):
    assert as_sum(counts) == words


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([3], "rank 3"),
        ([5, 0, 1, 2], "ranks 0 to 2, 5"),
        (range(64), "ranks 0 to 63"),
        (range(0, 64, 2), "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 24 more"),
    ],
)
def test_ranks(ranks: list[int], words: str):
    assert in_ranks(ranks) == words


def test_lines():
    lines = [f"rank {rank}" for rank in range(1000)]
    assert shortened(lines[:8], "ranks") == lines[:8]
    assert shortened(lines, "ranks") == [*lines[:8], "... and 992 more ranks"]
