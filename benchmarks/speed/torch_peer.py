"""PyTorch's side of bench_cpu.py: the same nets, trained as well as plain PyTorch does it, on one
made-up batch.

python -m benchmarks.speed.torch_peer about MODEL...                      versions, and how many weights each has
python -m benchmarks.speed.torch_peer speed MODEL BATCH SECONDS [compile] images/s with the best setting, as JSON
"""

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from benchmarks.sides import Found
from tests.models import torch_nets as nets

NETS: dict[str, tuple[Callable[[], nn.Module], int, tuple[int, ...]]] = {  # classes and images as in mpibow.bench
    "convnet": (partial(nets.convnet, 10), 10, (1, 8, 8)),
    "lenet": (partial(nets.lenet, 10), 10, (1, 28, 28)),
    "logistic": (partial(nets.logistic, 10), 10, (1, 28, 28)),
    "mlp": (partial(nets.mlp, 10), 10, (1, 28, 28)),
    "mlp model.hidden=[1024,1024,1024,1024]": (partial(nets.mlp, 10, 4 * [1024]), 10, (1, 28, 28)),  # 4 million weights
    "resnet20": (partial(nets.resnet_cifar, 10, 20, "identity", 32), 10, (3, 32, 32)),
    "resnet32": (partial(nets.resnet_cifar, 10, 32, "identity", 32), 10, (3, 32, 32)),
    "resnet50": (partial(nets.resnet, 1000, (3, 4, 6, 3), 4), 1000, (3, 224, 224)),
    "vgg16_cifar": (partial(nets.vgg16_cifar, 100, (0.3, 0.4, 0.5)), 100, (3, 32, 32)),
}
LAYOUTS = {"channels first": torch.contiguous_format, "channels last": torch.channels_last}


def settings() -> dict[str, tuple[int, torch.memory_format]]:
    """Threads and layout by name; all of them are tried."""
    cores = len(os.sched_getaffinity(0))
    return {
        f"{threads} thread{'s' * (threads > 1)}, {name}": (threads, layout)
        for threads in sorted({1, cores})
        for name, layout in LAYOUTS.items()
    }


def trainer(model: str, batch: int, threads: int, layout: torch.memory_format, compiled: bool) -> Callable[[], None]:
    """One step of training a new net: forward, backward, the optimiser."""
    torch.set_num_threads(threads)
    build, classes, shape = NETS[model]
    net = build().to(memory_format=layout).train()
    run: Callable[..., torch.Tensor] = torch.compile(net) if compiled else net
    # fused: one pass over each weight; foreach and the plain loop take 2 to 5 times as long on a CPU
    update = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4, fused=True)
    images = torch.randn(batch, *shape).to(memory_format=layout)
    labels = torch.randint(classes, (batch,))

    def step() -> None:
        update.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(run(images), labels).backward()
        update.step()

    return step


def rate(step: Callable[[], None], seconds: float) -> float:
    """Steps a second; at least one step."""
    count, begin = 0, time.perf_counter()
    while True:
        step()
        count += 1
        if (elapsed := time.perf_counter() - begin) >= seconds:
            return count / elapsed


def speed(model: str, batch: int, seconds: float, compiled: bool) -> Found:
    """Every setting for a quarter of the time, then the best for all of it, each after a warm-up.

    `compiled`: torch.compile is tried with the best setting as well; the answer has its rate over eager's.
    """
    tried = {name: attempt(trainer(model, batch, *each, False), seconds / 4) for name, each in settings().items()}
    best = max(tried, key=lambda name: tried[name])
    step, gain = trainer(model, batch, *settings()[best], False), None
    if compiled:
        own = trainer(model, batch, *settings()[best], True)
        rates = {own: 0.0, step: 0.0}
        own()  # compiles
        for _ in range(2):  # in turn, as the machine's speed changes
            for each in rates:
                rates[each] = max(rates[each], attempt(each, seconds / 4))
        gain = rates[own] / rates[step]
        if gain > 1:
            step, best = own, f"{best}, compiled"
        tried[best] = rates[step]
    rate(step, seconds / 4)
    reached = max(rate(step, seconds), tried[best])  # threads that wait for a busy core can fall to a hundredth
    return {"images_per_second": batch * reached, "setting": best, "compiled": gain, "steps_per_second": tried}


def attempt(step: Callable[[], None], seconds: float) -> float:
    """Steps a second after a warm-up; where one step takes all the time, that of the first is good enough to choose."""
    first = rate(step, seconds / 2)
    return first if first * seconds < 1 else rate(step, seconds)


def about(models: list[str]) -> Found:
    weights = {model: sum(weight.numel() for weight in NETS[model][0]().parameters()) for model in models}
    return {"weights": weights, "versions": versions()}


def versions() -> dict[str, str]:
    return {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


def main() -> None:
    torch.set_flush_denormal(True)
    match sys.argv[1:]:
        case ["about", *models]:
            print(json.dumps(about(models)))
        case ["speed", model, batch, seconds, *compiled]:
            print(json.dumps(speed(model, int(batch), float(seconds), compiled == ["compile"])))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
