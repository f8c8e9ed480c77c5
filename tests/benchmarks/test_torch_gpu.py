"""PyTorch's sides of bench_gpu.py, on the CPU, where PyTorch is installed."""

import numpy as np
import pytest

from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch = pytorch()


@pytest.fixture
def speed():
    from benchmarks.gpu import torch_gpu

    return torch_gpu


@pytest.fixture
def accuracy():
    from benchmarks.gpu import torch_gpu_accuracy

    return torch_gpu_accuracy


def test_a_rate_is_of_what_has_ended(speed):
    """A step takes a second of a clock that only `wait` moves: three to warm up, then 1, 10 and 100."""
    now, owed = [0.0], [0]

    def step() -> None:
        owed[0] += 1

    def wait() -> None:
        now[0], owed[0] = now[0] + owed[0], 0

    assert speed.rate(step, 90.0, wait, lambda: now[0]) == 1.0
    assert now[0] == 3 + 1 + 10 + 100


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_a_step_trains(speed, precision):
    side = speed.Side("cpu")
    answer = side.answer("speed", model="lenet", batch=2, setting="eager", precision=precision, seconds=0.01, keep=True)
    assert answer["images_per_second"] > 0
    assert list(side.kept) == [("lenet", 2, "eager", precision)]
    assert side.about(["lenet"])["weights"] == {"lenet": 1_111_946}


def test_the_rates_schedule(accuracy):
    task = accuracy.Task("resnet32", 512, 0.4, 140, 0.88, 1, drops=(80, 120), warm_up=5)
    rates = [accuracy.rate_at(task, epoch) for epoch in (0, 2.5, 5, 79.9, 80, 120)]
    assert rates == pytest.approx([0, 0.2, 0.4, 0.4, 0.04, 0.004])
    cosine = accuracy.Task("lenet", 8, 0.02, 5, 0.99, 1)
    assert [accuracy.rate_at(cosine, epoch) for epoch in (0, 2.5, 5)] == pytest.approx([0.02, 0.01, 0])


def test_windows_by_hand(accuracy):
    image = torch.arange(1.0, 5.0).reshape(1, 1, 2, 2).repeat(3, 1, 1, 1)  # 1 2 over 3 4, padded by one
    rows, columns = torch.tensor([1, 0, 2]), torch.tensor([1, 0, 1])
    found = accuracy.cropped(image, 1, rows, columns, torch.tensor([False, False, True]))
    assert found[:, 0].tolist() == [[[1, 2], [3, 4]], [[0, 0], [0, 1]], [[4, 3], [0, 0]]]


def test_a_run_counts_what_it_trained(accuracy):
    """Bars that LeNet learns at once; the target is met after the first epoch, or never."""
    generator = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 66), ("test", 20)):
        labels = np.arange(count) % 2
        images = generator.integers(0, 30, (count, 1, 28, 28)).astype(np.uint8)
        images[labels == 1, :, :14] += 200
        arrays |= {f"{part}_images": images, f"{part}_labels": labels}
    task = accuracy.Task("lenet", 8, 0.02, 2, 0.9, 1, crop=2, device="cpu")
    done = accuracy.train(task, arrays)
    assert done["epochs"] in (1.0, 2.0)
    assert done["accuracies"][-1] >= 0.9
    never = accuracy.train(accuracy.Task("lenet", 8, 0.0, 2, 1.1, 1, device="cpu"), arrays)
    assert (never["seconds"], never["epochs"], len(never["accuracies"])) == (None, None, 2)
