"""python -m mpibow.kernels: compiles all kernels for this machine now, instead of when a run first needs them."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import product
from pkgutil import walk_packages

from mpibow import kernels
from mpibow.errors import DeviceError
from mpibow.optim.adam import AdamW
from mpibow.optim.sgd import Sgd
from mpibow.sync.family import PRESETS, Family
from mpibow.sync.rehearsal import rehearse
from mpibow.system.command import prog


def modules() -> Iterator[str]:
    """The names of the modules that may have functions for numba."""
    for package in ("compiled", "onednn"):
        folder = import_module(f"{kernels.__name__}.{package}")
        yield from (found.name for found in walk_packages(folder.__path__, f"{folder.__name__}."))


def parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=prog("kernels"),
        description="Compiles all kernels for this machine in advance. Otherwise a run compiles each kernel when it "
        "first needs it.",
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser().parse_args(argv)
    try:
        chosen = kernels.onednn_set()
    except DeviceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    from mpibow.kernels.compiled.code_cache import compiling
    from mpibow.kernels.compiled.native import Native

    rules = [Family(name=name) for name, preset in PRESETS.items() if "then" not in preset]
    with compiling() as watch:
        # Another optimiser is compiled when a run first takes it.
        for update, rule, learners in product((Sgd(momentum=0.9), Sgd(), AdamW()), rules, (1, 2)):
            rehearse(chosen.flat, rule, update.step, learners, k=2, matrices=True)
        for name in modules():
            for kernel in vars(import_module(name)).values():
                for version in kernel.versions.values() if isinstance(kernel, Native) else ():
                    assert version.address
    print(watch.note(watch.functions) or "all kernels are compiled")
    return 0


if __name__ == "__main__":
    sys.exit(main())
