"""PyTorch's side of `mpibow bench net`: reads the user's module, and trains it when it is asked."""

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from functools import cache, partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import gettempdir

import torch
from torch.nn import Module
from torch.nn.functional import cross_entropy

from .errors import ConfigError, MpibowError
from .pytorch import from_torch

WARM_UP = 5  # steps


def serve(descriptor: int) -> None:
    """Answers by a pipe: the module's program and PyTorch's version; then figures, by threads and torch.compile."""
    pipe = Connection(descriptor)
    torch.set_flush_denormal(True)
    # torch.compile keeps graphs on disk, also for processors that are limited: read on whole ones, they spoil memory.
    isa = f"{torch.backends.cpu.get_cpu_capability()}-{os.environ.get('ONEDNN_MAX_CPU_ISA')}".replace(" ", "")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{gettempdir()}/mpibow-{os.getuid()}-{isa}")
    net, *arrays = pipe.recv()
    pixels, label = map(torch.from_numpy, arrays)
    batch = (pixels / pixels.max().clamp(1), label.long())

    def program() -> tuple[object, str]:
        return from_torch(module_of(net), batch[:1]).program, str(torch.__version__)

    @cache
    def step_of(threads: int, compiled: bool, last: bool) -> Callable[[], None]:
        layout = torch.channels_last if last else torch.contiguous_format
        module = module_of(net).to(memory_format=layout)
        own = batch[0].contiguous(memory_format=layout)
        if not module.training:  # parts may be in evaluation mode
            module.train()
        update = torch.optim.SGD(module.parameters(), lr=1e-4, momentum=0.9, fused=True)

        def loss(image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
            return cross_entropy(module(image), label)

        forward = torch.compile(loss, dynamic=False) if compiled else loss

        def step() -> None:
            update.zero_grad()
            forward(own, batch[1]).backward()
            update.step()

        for _ in range(WARM_UP):
            step()
        return step

    def figures(threads: int, compiled: bool, last: bool, seconds: float) -> dict[str, float]:
        torch.set_num_threads(threads)  # also those that torch.compile makes code for
        step = step_of(threads, compiled, last)
        count = 0
        begin = time.perf_counter()
        while not count or time.perf_counter() < begin + seconds:
            step()
            count += 1
        return {"images_per_second": count * len(label) / (time.perf_counter() - begin)}

    work: Callable[[], object] = program
    with suppress(EOFError):
        while True:
            try:
                pipe.send(work())
            except Exception as error:
                known = isinstance(error, MpibowError)
                pipe.send(error if known else ConfigError(f"{net}: {type(error).__name__}: {error}"))
            work = partial(figures, *pipe.recv())


def module_of(net: str) -> Module:
    """The module that FILE.py:NAME is, copied, or returns. Raises ConfigError."""
    file, _, name = net.rpartition(":")
    path = Path(file).resolve()
    if not path.is_file():
        raise ConfigError(f"{net}: must be FILE.py:NAME, and there is no file '{file}'")
    sys.path.insert(0, str(path.parent))
    found = getattr(import_module(path.stem), name)
    return deepcopy(found) if isinstance(found, Module) else found()
