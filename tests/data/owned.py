"""Data sets as users write them, at the top of a module, so that worker processes can open them too."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Fault = Callable[[], object]


def divide():
    return 1 // 0


@dataclass
class Pairs:
    """`count` rows of eight numbers with a label, 0 or 1; sample `bad` does `fault` instead."""

    count: int = 40
    bad: int | None = None
    fault: Fault = divide

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int):
        if number == self.bad:
            return self.fault()
        x = np.random.default_rng(number).standard_normal(8).astype(np.float32)
        return x, int(x[0] > 0)

    def columns(self) -> list[np.ndarray]:
        """All rows, and all labels."""
        return [np.array(column) for column in zip(*[self[n] for n in range(self.count)], strict=True)]


def longer():
    return np.zeros(9, np.float32), 0


def of_class_7():
    return np.zeros(8, np.float32), 7


def nothing():
    return None


def killed():
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def left():
    os._exit(3)


def noisy(sample, rng: np.random.Generator):
    x, y = sample
    return x + 0.1 * rng.standard_normal(8).astype(np.float32), y


def global_noise(sample, rng: np.random.Generator):
    """As transforms of other libraries draw."""
    x, y = sample
    return x + np.random.standard_normal(8).astype(np.float32), y  # noqa: NPY002


def numbered(sample, rng: np.random.Generator):
    """The sample's first random number, in place of its target."""
    return sample[0], rng.random()
