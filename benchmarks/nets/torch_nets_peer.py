"""PyTorch's side of bench_nets.py: answers questions, a line of JSON each; NAME BATCH DATA.npz are its arguments."""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.sides import Found
from benchmarks.speed.torch_peer import versions
from tests.examples import torch_nets as nets

NETS: Mapping[str, Callable[[], nn.Module]] = {  # as in net_cells.py
    "gpt": partial(nets.Gpt, 64, 65, 128, 4, 4),
    "vit": partial(nets.Vit, 3, 32, 10, 4, 192, 3, 12),
    "lstm": partial(nets.LstmLanguage, 65, 200, 2),
    "unet": partial(nets.Unet, 3, 2, 32, 4),
}
LAST = ("gpt", "lstm")  # whose classes are the last axis
LEAST = 0.02  # seconds that a product is repeated


def batches(name: str, batch: int, path: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    with np.load(path) as file:
        first, target = (torch.from_numpy(file[key]) for key in file.files)
    first = first.long() if first.dtype == torch.int32 else first
    return [
        (first[i : i + batch].contiguous(), target[i : i + batch].long()) for i in range(0, len(first) - batch, batch)
    ]


def losses(name: str, net: nn.Module, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    logits = net(x)
    if name in LAST:
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), target.reshape(-1))
    return F.cross_entropy(logits, target)


class Trained:
    """One net, trained eagerly or compiled, in turns: its loss and its optimiser."""

    def __init__(
        self,
        loss: Callable[..., torch.Tensor],
        update: torch.optim.Optimizer,
        batches: list[tuple[torch.Tensor, torch.Tensor]],
        size: int,
        compiled: bool,
    ) -> None:
        self.batches, self.place, self.size = batches, 0, size
        self.loss: Callable[..., torch.Tensor] = torch.compile(loss, dynamic=False) if compiled else loss
        self.update = update

    def step(self) -> None:
        x, target = self.batches[self.place % len(self.batches)]
        self.place += 1
        self.update.zero_grad(set_to_none=True)
        self.loss(x, target).backward()
        self.update.step()

    def rate(self, seconds: float) -> float:
        """Samples a second; at least one step."""
        count, begin = 0, time.perf_counter()
        while True:
            self.step()
            count += 1
            if (elapsed := time.perf_counter() - begin) >= seconds:
                return self.size * count / elapsed


def side(name: str, batch: int, path: str, compiled: bool) -> Trained:
    net = NETS[name]().train()

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return losses(name, net, x, target)

    update = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    return Trained(loss, update, batches(name, batch, path), batch, compiled)


def alone(many: int, m: int, k: int, n: int) -> float:
    """Seconds of so many products (m, k) by (k, n), the fastest of some repeats."""
    a, b, c = torch.randn(many, m, k), torch.randn(many, k, n), torch.empty(many, m, n)
    best, begin = float("inf"), time.perf_counter()
    while True:
        start = time.perf_counter()
        torch.bmm(a, b, out=c) if many > 1 else torch.mm(a[0], b[0], out=c[0])
        now = time.perf_counter()
        best = min(best, now - start)
        if now - begin > LEAST:
            return best


def serve(about: Found, side: Callable[[bool], Trained], alone: Callable[..., float] | None = None) -> None:
    """Answers every question; a net is made when it is asked for first."""
    torch.set_flush_denormal(True)
    sides = cache(lambda threads, compiled: side(compiled))
    for line in sys.stdin:
        match json.loads(line):
            case {"about": _}:
                found = {**about, "versions": versions()}
            case {"products": products} if alone:
                torch.set_num_threads(1)
                found = [alone(*product) for product in products]
            case {"threads": threads, "compiled": compiled, "seconds": seconds}:
                torch.set_num_threads(min(threads, len(os.sched_getaffinity(0))))
                found = sides(threads, compiled).rate(seconds)
            case question:
                found = {"error": f"no answer to {question}"}
        print(json.dumps(found), flush=True)


def main() -> None:
    name, batch, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    weights = sum(weight.numel() for weight in NETS[name]().parameters())
    serve({"weights": weights}, partial(side, name, batch, path), alone)


if __name__ == "__main__":
    main()
