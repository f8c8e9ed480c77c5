"""PyTorch's side of the benchmarks: torch_peer.py MODEL BATCH SECONDS prints {setting: images/s} as JSON.

The same nets as mpibow's, trained with SGD and momentum 0.9 on made-up data; needs `pip install torch`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch
from torch import nn

CLASSES = 10


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 5), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(1024, 1024), nn.ReLU(), nn.Dropout(0.4), nn.Linear(1024, CLASSES),
    )  # fmt: skip


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 16, CLASSES),
    )  # fmt: skip


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, CLASSES))


def logistic() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, CLASSES))


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "convnet": (convnet, (1, 8, 8)),
    "lenet": (lenet, (1, 28, 28)),
    "logistic": (logistic, (1, 28, 28)),
    "mlp": (mlp, (1, 28, 28)),
}


def images_per_second(name: str, batch: int, seconds: float, threads: int, layout: torch.memory_format) -> float:
    torch.set_num_threads(threads)
    build, shape = MODELS[name]
    net = build().to(memory_format=layout).train()
    update = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
    images = torch.randn(batch, *shape).to(memory_format=layout)
    labels = torch.randint(CLASSES, (batch,))
    loss_of = nn.CrossEntropyLoss()

    def step() -> None:
        update.zero_grad()
        loss_of(net(images), labels).backward()
        update.step()

    for _ in range(10):
        step()
    count, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        step()
        count += 1
    return count * batch / elapsed


def main() -> None:
    name, batch, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    layouts = {"channels first": torch.contiguous_format, "channels last": torch.channels_last}
    print(
        json.dumps(
            {
                f"{threads} thread(s), {layout}": images_per_second(name, batch, seconds, threads, form)
                for threads in sorted({1, os.cpu_count() or 1})
                for layout, form in layouts.items()
            }
        )
    )


if __name__ == "__main__":
    main()
