"""What bench_update.py makes of its windows, on figures that a hand can check; nothing is measured here."""

from __future__ import annotations

from benchmarks.speed import bench_update as bench


def test_the_line_has_medians_of_both_and_of_each_pairs_ratio() -> None:
    """A machine at half its speed in one pair changes no ratio."""
    rounds = {"mpibow": [1200.0, 600.0, 1000.0], "PyTorch": [400.0, 200.0, 400.0]}
    found = bench.line("lenet:8", "adamw", rounds, 2, "1 thread, channels first")
    assert found.startswith(
        "lenet:8, adamw: 1,000 images/s with 2 learner(s), PyTorch 400 (1 thread, channels first); 3.00 times ("
    )
    assert found.endswith("), 3 pairs; 2 is reached")
    even = bench.line("lenet:8", "sgd", {"mpibow": [2.0] * 2, "PyTorch": [2.0] * 2}, 2, "")
    assert even.endswith("(1.00 to 1.00), 2 pairs; 2 is missed")
