"""Ranks and learners in words: at most eight are listed."""

from mpibow.tune.words import as_sum, in_ranks, shortened


def test_beyond_eight():
    assert (as_sum((2, 1)), as_sum((1,) * 64), as_sum((1, 2, 2) * 3)) == ("2 + 1", "1 x 64", "2 x 6 + 1 x 3")
    assert (in_ranks([5, 0, 1]), in_ranks(range(64))) == ("ranks 0 to 1, 5", "ranks 0 to 63")
    assert in_ranks(range(0, 64, 2)) == "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 24 more"
    lines = [*"abcdefghij"]
    assert (shortened(lines[:8], "ranks"), shortened(lines, "ranks")[7:]) == (lines[:8], ["h", "... and 2 more ranks"])
