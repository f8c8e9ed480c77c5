"""PyTorch's side of bench_accuracy.py and bench_batches.py: training until LeNet reaches a test accuracy.

    python -m benchmarks.averaging.torch_accuracy DATA.npz '{"batch_size": 8, "lr": 0.02, ...}'    # Task has the keys

A plain loop with the cheapest input there is: all images on hand as one tensor, scaled once, shuffled once an epoch
in one go. The best of one thread or all cores and of channels first or last is looked for before, and evaluation is
made in large batches; neither counts.
"""

import json
import math
import sys
import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from benchmarks.sides import Found
from benchmarks.speed.torch_peer import nets, rate, settings, versions

Tensor = torch.Tensor
Sets = tuple[Tensor, Tensor, Tensor, Tensor]  # images and labels to learn from, and to test on


@dataclass(frozen=True)
class Task:
    """SGD, its rate on a cosine over `epochs`, whole after `warmup` of them; evaluated `evaluations` times an epoch."""

    batch_size: int
    lr: float
    seed: int
    epochs: int = 5
    momentum: float = 0.0
    warmup: float = 0.0
    weight_decay: float = 1e-4
    accuracy: float = 0.99
    evaluations: int = 4
    limit: float = math.inf  # seconds of training after which it is of no use

    def rate(self, epoch: float) -> float:
        """As mpibow.optim.schedules has it: a cosine, times a line from a tenth."""
        warm = 0.1 + 0.9 * epoch / self.warmup if epoch < self.warmup else 1.0
        return self.lr * warm * (1 + math.cos(math.pi * min(epoch / self.epochs, 1.0))) / 2


class Run:
    """A net in training, and the samples it has seen."""

    def __init__(self, task: Task, sets: Sets, threads: int, layout: torch.memory_format) -> None:
        torch.set_num_threads(threads)
        torch.manual_seed(task.seed)
        self.task, self.layout, self.seen = task, layout, 0
        self.train_images, self.train_labels, self.test_images, self.test_labels = sets
        self.net = nets.lenet(10).to(memory_format=layout)
        for module in self.net.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):  # ours starts so
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        self.update = torch.optim.SGD(
            self.net.parameters(), task.lr, momentum=task.momentum, weight_decay=task.weight_decay, fused=True
        )
        self.shuffle()

    def shuffle(self) -> None:
        order = torch.randperm(len(self.train_labels))
        self.images = self.train_images[order].contiguous(memory_format=self.layout)
        self.labels = self.train_labels[order]

    def step(self) -> None:
        """One batch; the last ones of an epoch that fill none are left out."""
        size, at = self.task.batch_size, self.seen % len(self.labels)
        if at + size > len(self.labels):
            self.seen, at = self.seen - at + len(self.labels), 0
            self.shuffle()
        self.update.param_groups[0]["lr"] = self.task.rate(self.seen / len(self.labels))
        self.update.zero_grad(set_to_none=True)
        logits = self.net(self.images[at : at + size])
        nn.functional.cross_entropy(logits, self.labels[at : at + size]).backward()
        self.update.step()
        self.seen += size

    def accuracy(self) -> float:
        self.net.eval()
        with torch.no_grad():
            batches = zip(self.test_images.split(1000), self.test_labels.split(1000), strict=True)
            hits = sum(int((self.net(images).argmax(1) == labels).sum()) for images, labels in batches)
        self.net.train()
        return hits / len(self.test_labels)

    def diverged(self) -> bool:
        return not all(bool(weight.isfinite().all()) for weight in self.net.parameters())


def train(task: Task, sets: Sets) -> Found:
    """Seconds and epochs to the target, None where it was not reached."""
    speeds = {name: rate(Run(task, sets, *setting).step, 1.0) for name, setting in settings().items()}
    setting = max(speeds, key=lambda name: speeds[name])
    count = len(sets[1])
    marks = [count * i // task.evaluations for i in range(task.epochs * task.evaluations + 1)]
    seconds, accuracies, epochs = 0.0, [], []
    run = Run(task, sets, *settings()[setting])
    begin = time.perf_counter()
    for _, mark in pairwise(marks):
        while run.seen + task.batch_size <= mark:
            run.step()
        seconds += time.perf_counter() - begin
        accuracies.append(run.accuracy())
        epochs.append(run.seen / count)
        if accuracies[-1] >= task.accuracy or seconds > task.limit or run.diverged():
            break
        begin = time.perf_counter()
    reached = accuracies[-1] >= task.accuracy
    return {
        "seconds": seconds if reached else None,
        "epochs": epochs[-1] if reached else None,
        "accuracies": accuracies,
        "evaluated": epochs,
        "images_per_second": run.seen / seconds,
        "setting": setting,
        "versions": versions(),
    }


def load(path: str) -> Sets:
    """Images (n, 1, 28, 28) with the training images' mean 0 and spread 1, labels (n,)."""
    with np.load(path) as arrays:
        train, test = (torch.from_numpy(arrays[f"{part}_images"]).float() for part in ("train", "test"))
        labels = [torch.from_numpy(arrays[f"{part}_labels"]).long() for part in ("train", "test")]
    mean, spread = train.mean(), train.std()
    return (train - mean) / spread, labels[0], (test - mean) / spread, labels[1]


if __name__ == "__main__":
    torch.set_flush_denormal(True)
    print(json.dumps(train(Task(**json.loads(sys.argv[2])), load(sys.argv[1]))))
