"""bench_from_torch.py: its page has the ratios of rounds, of the fastest sides; nothing is measured here."""

from __future__ import annotations

import importlib


def test_ratios_are_of_rounds() -> None:
    bench = importlib.import_module("benchmarks.nets.bench_from_torch")
    rounds = {
        "from_torch, 1": [9.0, 9.0, 9.0], "from_torch, 2": [30.0, 20.0, 10.0], "by hand, 1": [10.0, 10.0, 10.0],
        "by hand, 2": [20.0, 20.0, 20.0], "from_torch, 2, S-SGD": [8.0, 8.0, 8.0], "by hand, 2, S-SGD": [4.0, 4.0, 4.0],
        "PyTorch eager, 1": [5.0, 5.0, 4.0], "PyTorch eager, 2": [4.0, 4.0, 4.0],
    }  # fmt: skip
    assert bench.best(rounds, [side for side in rounds if side.startswith("PyTorch")]) == "PyTorch eager, 1"
    found = {"about": {"command": "c", "date": "d", "processor": "p", "cores": 2, "load": [0.1], "commit": "a"},
             "batches": {"4": {"rounds": rounds}}}  # fmt: skip
    text = bench.page(found)
    assert "| from_torch, 2 | PyTorch eager, 1 | 4.000 | 2.500 to 6.000 | 2.00 | met |" in text
    assert "| from_torch, 1 | by hand, 1 | 0.900 | 0.900 to 0.900 | 0.95 | missed |" in text
    assert "| from_torch, 2, S-SGD | by hand, 2, S-SGD | 2.000 | 2.000 to 2.000 | 0.95 | met |" in text
    assert "| from_torch, 2 | by hand, 2 | 1.000 | 0.500 to 1.500 | 0.95 | met |" in text
