"""The page that bench_finetune.py makes of its cells, on figures that a hand can check; nothing is trained here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.nets import bench_finetune as bench

ROOT = Path(__file__).parents[2]


def test_the_interval_is_students(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gains of 1, 2 and 3 points: mean 2, deviation 1, half of the interval 4.303 / sqrt(3) = 2.48."""
    monkeypatch.setattr(bench, "SEEDS", (1, 2, 3))
    found = {bench.key(mode, bench.TUNED, rate): rate for mode in bench.MODES for rate in bench.RATES}
    found[bench.key("from scratch", bench.TUNED, 0.03)] = 0.9  # the best rate there
    for number, mode in enumerate(bench.MODES):
        rate = 0.03 if mode == "from scratch" else 0.3
        found |= {bench.key(mode, seed, rate): 0.5 + 0.01 * seed * number for seed in bench.SEEDS}
    page = bench.page(found)
    assert "| from scratch | 0.03 | 50.00 | 50.00 | 50.00 | 50.00 |  |" in page
    assert "| 0.3 | 51.00 | 52.00 | 53.00 | 52.00 | +2.0 [-0.5, +4.5] |" in page


def test_the_page_is_made_of_the_cells() -> None:
    found = json.loads(bench.RESULTS.read_text())
    assert bench.RESULTS.with_suffix(".md").read_text() == bench.page(found)
    assert max(map(len, bench.page(found).splitlines())) <= 120
