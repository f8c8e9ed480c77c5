"""The kernel sets by name: the kernels of operators and the passes over flat arrays for each device."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from mpibow.errors import DeviceError, install
from mpibow.graph import ALIGNMENT, Kernels, Run
from mpibow.kernels import numpy as reference

from .numpy import flat
from .passes import WHOLE, FlatKernels, Half, Local, Matrix, States, StepArrays, chunks_of, share_of


@dataclass(frozen=True, kw_only=True)
class KernelSet(Kernels):
    """One library's kernels: operator -> kernel, and the passes over flat arrays.

    `about` names the library. `compiling` gives, for a plan's runs as they are before `join`, what compiles each of the
    kernels that they call; it is None where nothing is compiled. `auto` is the precision that auto means.
    `activations` is the type of activations, None where it is the precision. Weights that are frozen alike begin at
    multiples of `aligned` elements.
    """

    name: str
    flat: FlatKernels
    precisions: tuple[str, ...]
    about: str
    compiling: Callable[[Sequence[Run]], list[Callable[[], object]]] | None = None
    auto: str = "float32"
    activations: str | None = None
    aligned: int = ALIGNMENT

    def computes_in(self, precision: str) -> str:
        """The precision of a config; the device chooses it for auto."""
        return self.auto if precision == "auto" else precision

    def dtype(self, precision: str) -> str:
        """The type of activations, in a config's precision."""
        return self.activations or self.computes_in(precision)


NUMPY = KernelSet(
    name="numpy", operators=reference.OPERATORS, flat=flat, precisions=("float32", "float64"), about="NumPy"
)


@cache
def onednn_set(path: str | None = None, winograd: bool = True) -> KernelSet:
    """oneDNN's and numba's kernels, with the library at `path` or the installed one. Raises DeviceError."""
    if find_spec("numba") is None:
        raise DeviceError(f"device onednn: numba is not installed: {install('cpu')}")
    from mpibow.kernels import onednn as fast

    from .compiled import flat as compiled
    from .compiled.command import compiling, join
    from .compiled.handoff import Batch, Handoff, square
    from .compiled.words import signal, wait
    from .onednn.fusion import rewrite
    from .onednn.library import find_library, load

    found = path or find_library()
    if found is None:
        hint = f"{install('cpu')}, or give its path: onednn.library=PATH"
        raise DeviceError(f"device onednn: no libdnnl found: {hint}")
    library = load(found)
    return KernelSet(
        name="onednn",
        operators=fast.operators(library, winograd),
        fuse=rewrite,
        join=join,
        signal=lambda word, number: signal.command(word=word, number=number),
        wait=wait,
        handoff=Handoff,
        batch=Batch,
        square=lambda array, total: square.command(array=array, total=total),
        flat=compiled,
        precisions=("float32",),
        about=f"oneDNN {library.version}, {library.isa}",
        compiling=compiling,
    )


def find_kernels(device: str, precision: str, library: str | None, winograd: bool = True) -> tuple[KernelSet, str]:
    """The kernel set of `device`, and a line about it for the log: auto takes the fastest that is available.

    Raises DeviceError if a kernel set requested by name is not available.
    """
    if device == "cuda":
        raise DeviceError("device cuda: computes within a run only; ask for onednn or numpy here")
    chosen = NUMPY
    note = ""
    if device != "numpy" and (device != "auto" or precision != "float64"):
        try:
            chosen = onednn_set(library, winograd)
        except DeviceError as error:
            if device != "auto" or library is not None:
                raise
            note = f"computing with NumPy, which is slow: {str(error).removeprefix('device onednn: ')}"
    if chosen.computes_in(precision) not in chosen.precisions:
        raise DeviceError(f"device: {chosen.name} computes in {', '.join(chosen.precisions)}, precision is {precision}")
    return chosen, note


def cache_folder() -> Path:
    """The user's cache: kernels that are compiled for this machine lie there."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mpibow"
