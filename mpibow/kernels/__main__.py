"""python -m mpibow.kernels: compiles all kernels for this machine now, instead of when a run first needs them."""

import argparse
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from itertools import product
from multiprocessing import get_context
from pkgutil import walk_packages

from mpibow import kernels
from mpibow.optim import AdamW, Sgd
from mpibow.sync import PRESETS, Family
from mpibow.sync.rehearsal import rehearse
from mpibow.system.command import main_of, parser_of
from mpibow.system.streams import as_command

MOST = 4  # processes; each takes half a GB


def modules() -> Iterator[str]:
    """The names of the modules that may have functions for numba."""
    for package in ("compiled", "onednn"):
        folder = import_module(f"{kernels.__name__}.{package}")
        yield from (found.name for found in walk_packages(folder.__path__, f"{folder.__name__}."))


def jobs() -> Iterator[Callable[[], object]]:
    """Each call compiles some functions, or loads those that are on disk."""
    flat = kernels.onednn_set().flat
    rules = [Family(name=name) for name, preset in PRESETS.items() if "then" not in preset]
    # Another optimiser is compiled when a run first takes it.
    for update, rule, learners in product((Sgd(momentum=0.9), Sgd(), AdamW()), rules, (1, 2)):
        yield partial(rehearse, flat, rule, update.step, learners, k=2, matrices=True, nodes=True)
    yield kernels.onednn_set().handoff
    from .compiled.native import Native

    for name in modules():
        for kernel in vars(import_module(name)).values():
            for version in kernel.versions.values() if isinstance(kernel, Native) else ():
                yield partial(getattr, version, "address")


def compile_from(begin: float) -> None:
    """Compiles all kernels, the first after this share of them."""
    every = [*jobs()]
    first = int(begin * len(every))
    for job in every[first:] + every[:first]:
        job()


def compile_beside(begin: float) -> int:
    """In a process of its own: leaves what others have compiled, or are compiling; how many functions are its own."""
    from .compiled.code_cache import compiling

    with open(os.devnull, "w") as nowhere, compiling(nowhere) as watch:
        compile_from(begin)
    return watch.functions


def parser() -> argparse.ArgumentParser:
    return parser_of(
        "kernels",
        "Compiles all kernels for this machine in advance. Otherwise a run compiles each kernel when it "
        "first needs it.",
    )


def compile_all(_: argparse.Namespace) -> None:
    """Compiles all kernels on several processes. Raises DeviceError where there is no oneDNN."""
    kernels.onednn_set()
    from .compiled.code_cache import compiling

    processes = min(len(os.sched_getaffinity(0)), MOST)
    with ProcessPoolExecutor(processes, get_context("fork")) as pool:
        others = pool.map(compile_beside, [number / processes for number in range(1, processes)])
        with compiling() as watch:
            compile_from(0)
            functions = watch.functions + sum(others)
    print(watch.note(functions) or "all kernels are compiled")


main = main_of(parser, compile_all)


if __name__ == "__main__":
    as_command(main)
