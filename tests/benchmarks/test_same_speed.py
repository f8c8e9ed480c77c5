"""The interval of a comparison of two commits."""

import pytest


@pytest.mark.parametrize(
    ("count", "ends"),
    [
        (1, (0, 0)),
        (5, (0, 4)),  # 94 %: all that there is
        (6, (0, 5)),  # 97 %
        (9, (1, 7)),  # 96 %
        (12, (2, 9)),  # 96 %
    ],
)
def test_an_interval_of_order_statistics(count, ends):
    from benchmarks.turns import interval

    assert interval([float(i) for i in reversed(range(count))]) == ends
