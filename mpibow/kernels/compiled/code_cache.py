"""Compiled functions on disk: read beside the package, which may be read-only, or from the user's cache.

numba's own cache ignores a folder that cannot be written, so a container's kernels would be compiled again. A file's
name has a checksum of all that its code depends on: the source, the types, numba, Python and the processor.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.ccallback import CFunc
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from mpibow.kernels.cache import cache_folder


class CodeCache:
    """What numba calls to load and save the code of `function`, for each signature. Where no folder can be written, it
    saves nothing, and `lost` counts that."""

    lost = 0

    def __init__(self, function: Callable[..., Any]) -> None:
        file, self._function = Path(function.__code__.co_filename), function
        self._source = file.name, _content(file), function.__code__.co_firstlineno, function.__code__.co_code
        self._folders = (file.parent / "__pycache__", Path(numba.config.CACHE_DIR or cache_folder() / "compiled"))

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The code for these types, compiled here or elsewhere for such a processor; None if there is none."""
        target.refresh()
        name = self._name(signature, target.codegen())
        for folder in self._folders:
            with suppress(OSError, EOFError, pickle.UnpicklingError):  # not there, or cut off
                return CompileResult._rebuild(target, *pickle.loads((folder / name).read_bytes()))
        return None

    def save_overload(self, signature: Any, code: Any) -> None:
        assert not code.library.has_dynamic_globals, (
            f"{self._function.__qualname__}: contains an address of this process"
        )
        name, content = self._name(signature, code.codegen), dumps(code._reduce())
        for folder in self._folders:
            aside = folder / f"{name}.{uuid.uuid4().hex}"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                aside.write_bytes(content)
                aside.replace(folder / name)
                return
            except OSError:
                with suppress(OSError):
                    aside.unlink()
        CodeCache.lost += 1

    def _name(self, signature: Any, codegen: Any) -> str:
        closure = [cell.cell_contents for cell in self._function.__closure__ or ()]
        versions = numba.__version__, sys.implementation.cache_tag
        depends = repr((*self._source, signature, codegen.magic_tuple(), versions)).encode() + dumps(closure)
        return f"{self._source[0][:-3]}.{self._function.__qualname__}-{hashlib.sha256(depends).hexdigest()[:32]}.code"


def jit(function: Callable[..., Any]) -> Any:
    """numba.njit without the GIL, its code kept."""
    compiled: Any = numba.njit(nogil=True)(function)
    compiled._cache = CodeCache(function)
    return compiled


def c_function(function: Callable[..., Any], signature: Any, **options: Any) -> Any:
    """numba.cfunc, its code kept."""
    compiled: Any = CFunc(function, (signature.args, signature.return_type), {}, options)
    compiled._cache = CodeCache(function)
    compiled.compile()
    return compiled


@cache
def _content(file: Path) -> str:
    """The file's checksum; '' of a generated module, whose name has one, and which has no file."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else ""
