"""PyTorch's sides of bench_gpu.py, on the CPU, where PyTorch is installed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch: Any = pytorch()


@pytest.fixture
def speed() -> Any:
    from benchmarks.gpu import torch_gpu

    return torch_gpu


def test_a_rate_is_of_what_has_ended(speed: Any) -> None:
    """A step takes a second of a clock that only `wait` moves: three to warm up, then 1, 10 and 100."""
    now, owed = [0.0], [0]

    def step() -> None:
        owed[0] += 1

    def wait() -> None:
        now[0], owed[0] = now[0] + owed[0], 0

    assert speed.rate(step, 90.0, wait, lambda: now[0]) == 1.0
    assert now[0] == 3 + 1 + 10 + 100


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_a_step_trains(speed: Any, precision: str) -> None:
    side = speed.Side("cpu")
    answer = side.answer("speed", model="lenet", batch=2, setting="eager", precision=precision, seconds=0.01, keep=True)
    assert answer["images_per_second"] > 0
    assert list(side.kept) == [("lenet", 2, "eager", precision)]
    assert side.about(["lenet"])["weights"] == {"lenet": 1_111_946}
