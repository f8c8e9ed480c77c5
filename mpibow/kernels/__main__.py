"""python -m mpibow.kernels: compiles all kernels for this machine now, instead of when a run first needs them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pkgutil import walk_packages

from mpibow import kernels
from mpibow.errors import DeviceError
from mpibow.optim.adam import AdamW
from mpibow.optim.sgd import Sgd
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
    from mpibow.kernels.compiled.command import Native
    from mpibow.kernels.compiled.told import compiling

    with compiling() as watch:
        assert chosen.prepare is not None
        for update in (Sgd(momentum=0.9), Sgd(), AdamW()):  # another one is compiled when a run first takes it
            chosen.prepare(update.formula, True)
        for name in modules():
            for found in vars(import_module(name)).values():
                if isinstance(found, Native):
                    assert found.address
    print(watch.note or "all kernels are compiled")
    return 0


if __name__ == "__main__":
    sys.exit(main())
