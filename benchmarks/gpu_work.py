"""What a training step must do at least: operations of its products, bytes it moves."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass

from mpibow.diagnose.forecast import on_paper
from mpibow.job.made_up import made_up_job


@dataclass(frozen=True)
class Work:
    """Of one learner's iteration."""

    operations: float  # multiplications and additions of convolutions and dense layers
    bytes: float  # of every kernel's operands, each read or written once

    def times(self, flops: float, bandwidth: float) -> tuple[float, float]:
        """Seconds that they take at these rates."""
        return self.operations / flops, self.bytes / bandwidth


@dataclass(frozen=True)
class Reached:
    """What of a device's rates a measured speed uses; `floor` is the larger of the two times over the measured one."""

    flops: float
    bytes: float
    of_flops: float
    of_bytes: float
    floor: float


def work(model: str, batch: int, precision: str) -> Work:
    """What mpibow.diagnose.forecast lists: every kernel's products, and its operands once."""
    with tempfile.TemporaryDirectory() as folder:
        asked = argparse.Namespace(
            model=model, batch_size=batch, shape=None, classes=None, device="cuda", overrides=[f"precision={precision}"]
        )
        _, parts = on_paper(made_up_job(asked, folder))
    kernels = [kernel for part in parts for kernel in part.kernels]
    return Work(sum(kernel.operations for kernel in kernels), sum(kernel.bytes for kernel in kernels))


def reached(found: Work, batch: int, images_per_second: float, flops: float, bandwidth: float) -> Reached:
    """`found` is the work of `batch` images; the rates are the device's own."""
    iterations = images_per_second / batch
    computing, moving = found.times(flops, bandwidth)
    return Reached(
        found.operations * iterations, found.bytes * iterations, computing * iterations, moving * iterations,
        max(computing, moving) * iterations,
    )  # fmt: skip
