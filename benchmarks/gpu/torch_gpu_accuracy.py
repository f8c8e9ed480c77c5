"""PyTorch's side of bench_gpu.py's time to accuracy.

    python -m benchmarks.gpu.torch_gpu_accuracy ARRAYS.npz SETTINGS     the settings are a Task's, as JSON

The images are on the device, scaled once, shuffled once an epoch; a step takes its batch, pads, crops and flips it
there, and is one CUDA graph on a GPU: what plain PyTorch can do best with a small batch. TF32, channels last.
Evaluation, once an epoch, and the capture do not count.
"""

import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from benchmarks.gpu.torch_gpu import Side, exact
from benchmarks.sides import Found
from benchmarks.speed.torch_peer import NETS

Tensor = torch.Tensor


@dataclass(frozen=True)
class Task:
    model: str
    batch_size: int
    lr: float
    epochs: int
    accuracy: float
    seed: int
    momentum: float = 0.0
    drops: tuple[int, ...] = ()
    warm_up: int = 0
    crop: int = 0
    seconds: float = math.inf  # of training, after which it is given up
    device: str = "cuda"
    weight_decay: float = 1e-4


def rate_at(task: Task, epoch: float) -> float:
    """The learning rate at a fraction of epochs: warm-up, then tenths at the drops, or a cosine to the end."""
    if epoch < task.warm_up:
        return task.lr * (epoch / task.warm_up)
    if not task.drops:
        return task.lr * (1 + math.cos(math.pi * epoch / task.epochs)) / 2
    return task.lr * 0.1 ** sum(epoch >= drop for drop in task.drops)


def cropped(images: Tensor, pad: int, rows: Tensor, columns: Tensor, flips: Tensor) -> Tensor:
    """Images (n, c, h, w) padded with 0; of each the window at its row and column (n,), flipped where `flips`."""
    n, _, height, width = images.shape
    padded = nn.functional.pad(images, (pad,) * 4)
    y = rows[:, None] + torch.arange(height, device=images.device)
    x = torch.arange(width, device=images.device)
    x = columns[:, None] + torch.where(flips[:, None], width - 1 - x, x)
    numbers = torch.arange(n, device=images.device)
    return padded[numbers[:, None, None], :, y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2)


class Run:
    def __init__(self, task: Task, arrays: Mapping[str, np.ndarray]) -> None:
        self.task, self.side = task, Side(task.device)
        exact("tf32")
        torch.manual_seed(task.seed)
        on = self.side.device
        train, test = (torch.from_numpy(arrays[f"{part}_images"]).to(on).float() for part in ("train", "test"))
        mean, spread = train.mean((0, 2, 3), keepdim=True), train.std((0, 2, 3), keepdim=True)
        self.images, self.test = ((images - mean) / spread for images in (train, test))
        self.labels, self.answers = (
            torch.from_numpy(arrays[f"{part}_labels"]).to(on).long() for part in ("train", "test")
        )
        self.net = NETS[task.model][0]().to(on, memory_format=torch.channels_last).train()
        for module in self.net.modules():
            if task.model == "lenet" and isinstance(module, nn.Conv2d | nn.Linear):  # ours starts so
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        self.rate = torch.zeros((), device=on)  # a captured step reads it
        self.update = torch.optim.SGD(
            self.net.parameters(), self.rate, task.momentum, weight_decay=task.weight_decay, fused=True
        )
        self.taken = torch.zeros(task.batch_size, dtype=torch.long, device=on)
        start = {name: value.clone() for name, value in self.net.state_dict().items()}
        self.step = self.side.captured(self._step) if on.type == "cuda" else self._step
        self.net.load_state_dict(start)
        for state in self.update.state.values():
            if state.get("momentum_buffer") is not None:
                state["momentum_buffer"].zero_()

    def _step(self) -> None:
        images, pad = self.images[self.taken], self.task.crop
        if pad:
            n, on = len(images), images.device
            rows, columns = (torch.randint(2 * pad + 1, (n,), device=on) for _ in range(2))
            images = cropped(images, pad, rows, columns, torch.rand(n, device=on) < 0.5)
        images = images.contiguous(memory_format=torch.channels_last)
        self.update.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(self.net(images), self.labels[self.taken]).backward()
        self.update.step()

    def epoch(self, number: int) -> None:
        """Every image once, but for the last ones that fill no batch."""
        size, count = self.task.batch_size, len(self.labels)
        order = torch.randperm(count, device=self.labels.device)
        for at in range(0, count - size + 1, size):
            self.rate.fill_(rate_at(self.task, number + at / count))
            self.taken.copy_(order[at : at + size])
            self.step()
        self.side.wait()

    def accuracy(self) -> float:
        self.net.eval()
        with torch.no_grad():
            batches = zip(self.test.split(1000), self.answers.split(1000), strict=True)
            hits = sum(int((self.net(images).argmax(1) == labels).sum()) for images, labels in batches)
        self.net.train()
        return hits / len(self.answers)


def train(task: Task, arrays: Mapping[str, np.ndarray]) -> Found:
    """Seconds and epochs to the target, None where it was not reached."""
    run, seconds, accuracies = Run(task, arrays), 0.0, list[float]()
    for epoch in range(task.epochs):
        begin = time.perf_counter()
        run.epoch(epoch)
        seconds += time.perf_counter() - begin
        accuracies.append(run.accuracy())
        if accuracies[-1] >= task.accuracy or seconds > task.seconds:
            break
    done, seen = accuracies[-1] >= task.accuracy, len(accuracies) * len(run.labels)
    return {
        "seconds": seconds if done else None, "epochs": float(len(accuracies)) if done else None,
        "accuracies": accuracies, "images_per_second": seen / seconds,
    }  # fmt: skip


if __name__ == "__main__":
    with np.load(sys.argv[1]) as found:
        print(json.dumps(train(Task(**json.loads(sys.argv[2])), found)))
