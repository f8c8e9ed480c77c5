"""CUDA's libraries from installed packages: loaded by path, so that later loads by name find them."""

import ctypes
import ctypes.util
import importlib.util
import os
import re
from collections.abc import MutableMapping
from functools import cache
from pathlib import Path

# The queues that streams put their work into. By CUDA's default streams share eight, and wait for one another there.
CONNECTIONS = ("CUDA_DEVICE_MAX_CONNECTIONS", "32")
CUDART = "CUDNN_FRONTEND_CUDART_LIB_NAME"  # the library that cuDNN's frontend opens when it reads a plan


def find(name: str, major: int | None = None) -> str | None:
    """lib`name` of CUDA `major`, or of the newest CUDA, in NVIDIA's packages; None where they lack it."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or []) if spec else []
    found = {
        int(path.name.rsplit(".", 1)[1]): str(path)
        for folder in folders
        for path in Path(folder).glob(f"*/lib/lib{name}.so.*")
        if re.fullmatch(rf"lib{name}\.so\.\d+", path.name)
    }
    return found.get(major or max(found, default=0))


@cache
def load(name: str, major: int | None = None) -> str | None:
    """Loads it, and returns where it is. None where neither packages nor the system have it.

    NVRTC opens its builtins by name. Some of its packages carry no search path for them, so they are loaded before it.
    """
    path = find(name, major)
    if path is None:
        return _of_the_system(name)
    for beside in sorted(Path(path).parent.glob(f"lib{name}-builtins.so.{path.rsplit('.', 1)[1]}.*")):
        ctypes.CDLL(str(beside))
    ctypes.CDLL(path)
    return path


def _of_the_system(name: str) -> str | None:
    """As CuPy looks for it: Conda, the linker's folders, CUDA_PATH. Without CuPy's finder by the linker alone."""
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError:
        return ctypes.util.find_library(name)
    try:
        return str(load_nvidia_dynamic_lib(name).abs_path)
    except (DynamicLibNotFoundError, RuntimeError):
        return None


def before_cuda(environment: MutableMapping[str, str] = os.environ) -> None:
    """Sets the variable that CUDA reads when it opens; the user's own setting stays."""
    environment.setdefault(*CONNECTIONS)


def open_libraries(major: int | None = None, environment: MutableMapping[str, str] = os.environ) -> None:
    """Loads the libraries that cuDNN opens by name, of the CUDA that it is for. Missing ones are skipped: their users
    raise the error."""
    load("nvrtc", major)
    if path := load("cudart", major):
        environment.setdefault(CUDART, path)
