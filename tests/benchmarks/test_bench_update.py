"""What bench_update.py makes of its windows, on figures that a hand can check; nothing is measured here."""

from __future__ import annotations

import pytest

from benchmarks.speed import bench_update as bench


def test_the_interval_is_of_the_ratios_geometric_mean() -> None:
    """1 and 4: logarithms 0 and 1.386, their mean's error 0.693."""
    low, high = bench.interval([1.0, 4.0])
    assert (low, high) == pytest.approx((2 * 2**-bench.ERRORS, 2 * 2**bench.ERRORS))
    assert bench.interval([3.0, 3.0, 3.0]) == pytest.approx((3.0, 3.0))


def test_the_line_has_medians_of_both_and_of_each_pairs_ratio() -> None:
    """A machine at half its speed in one pair changes no ratio."""
    pairs = [(1200.0, 400.0), (600.0, 200.0), (1000.0, 400.0)]
    found = bench.line("lenet:8", "adamw", pairs, 2, "1 thread, channels first")
    assert found.startswith(
        "lenet:8, adamw: 1,000 images/s with 2 learner(s), PyTorch 400 (1 thread, channels first); 3.00 times ("
    )
    assert found.endswith("), 3 pairs; 2 is reached")
    assert bench.line("lenet:8", "sgd", [(2.0, 2.0)] * 2, 2, "").endswith("(1.00 to 1.00), 2 pairs; 2 is missed")
