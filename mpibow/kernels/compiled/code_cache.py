"""Compiled functions on disk: read beside the package, which may be read-only, or from the user's cache.

numba's own cache ignores a folder that cannot be written, so a container's kernels would be compiled again. A file's
name has a checksum of all that its code depends on: the source, the types, numba, Python and the processor.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numba
import numpy as np
from numba.core.ccallback import CFunc
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from mpibow.kernels.cache import cache_folder
from mpibow.system.files import whole_file

PACKAGES = "mpibow.kernels", "mpibow.formulas"  # whose functions are compiled into others
PATIENCE = 60  # seconds that a process waits for another's code of one function; then it compiles its own
# Options of functions that compiled code calls, and nothing else: without what Python and C would call, which takes as
# long to compile as many of them.
PART = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


class CodeCache:
    """What numba calls to load and save the code of `function`, for each signature. Where no folder can be written, it
    saves nothing, and `lost` counts that. Processes of one machine that need the same code wait for the first."""

    lost = 0
    locked: ClassVar[set[str]] = set()  # names whose code this process is making

    def __init__(self, function: Callable[..., Any]) -> None:
        file, self._function = Path(function.__code__.co_filename), function
        self._name = f"{file.stem}.{function.__qualname__}"
        self._source = _content(
            str(file)
        )  # as it was when the function was made: the file may change before it compiles
        self._folders = (file.parent / "__pycache__", Path(numba.config.CACHE_DIR or cache_folder() / "compiled"))

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The code for these types, compiled here or elsewhere for such a processor; None if there is none."""
        target.refresh()
        name = self.file_name(signature, target.codegen())
        code = self._read(name, target)
        if code is not None:
            return code
        _lock(name)
        if (code := self._read(name, target)) is not None:  # of the process that had the lock
            release(CodeCache.locked & {name})
        return code

    def _read(self, name: str, target: Any) -> Any:
        for folder in self._folders:
            with suppress(OSError, EOFError, pickle.UnpicklingError):  # not there, or cut off
                return CompileResult._rebuild(target, *pickle.loads((folder / name).read_bytes()))
        return None

    def save_overload(self, signature: Any, code: Any) -> None:
        name = self.file_name(signature, code.codegen)
        try:
            assert not code.library.has_dynamic_globals, f"{self._name}: contains an address of this process"
            self._write(name, dumps(code._reduce()))
        finally:
            release(CodeCache.locked & {name})

    def _write(self, name: str, content: bytes) -> None:
        for folder in self._folders:
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                with whole_file(folder / name, lasting=False) as file:
                    file.write(content)
                return
        CodeCache.lost += 1

    def file_name(self, signature: Any, codegen: Any) -> str:
        function, versions = self._function, (numba.__version__, sys.implementation.cache_tag)
        code, beside = function.__code__, _beside(function.__module__) if function.__module__ else ""
        source = self._source, beside, code.co_firstlineno, code.co_code
        closure = [cell.cell_contents for cell in function.__closure__ or ()]
        depends = repr((*source, signature, codegen.magic_tuple(), versions)).encode() + dumps(closure)
        return f"{self._name}-{hashlib.sha256(depends).hexdigest()[:32]}.code"


def jit(function: Callable[..., Any]) -> Any:
    """numba.njit without the GIL, its code kept."""
    compiled: Any = numba.njit(nogil=True, no_cfunc_wrapper=True)(function)
    compiled._cache = CodeCache(function)
    return compiled


def shared(function: Callable[..., Any]) -> Any:
    """`jit` for functions that only compiled code calls."""
    compiled: Any = numba.njit(**PART)(function)
    compiled._cache = CodeCache(function)
    return compiled


def c_function(function: Callable[..., Any], signature: Any, **options: Any) -> Any:
    """numba.cfunc, its code kept."""
    compiled: Any = CFunc(function, (signature.args, signature.return_type), {}, options)
    compiled._cache = CodeCache(function)
    compiled.compile()
    return compiled


@cache
def _beside(name: str) -> str:
    """What the module is compiled with: the files of all modules that it imports from, directly or not, and the numbers
    of all of them, some of which are from elsewhere."""
    modules = {name: vars(sys.modules[name])}
    _follow(modules[name], modules)
    files = {namespace["__file__"] for namespace in modules.values() if "__file__" in namespace}
    return repr((sorted(_content(file) for file in files), [_numbers(modules[each]) for each in sorted(modules)]))


def _follow(namespace: dict[str, Any], modules: dict[str, dict[str, Any]]) -> None:
    """Enters the modules of PACKAGES that these values are from; a package has its own modules, imported or not."""
    for value in list(namespace.values()):
        if isinstance(value, ModuleType):
            name = "" if "__path__" in namespace else value.__name__
        else:
            name = str(getattr(value, "__module__", ""))
        if name.startswith(PACKAGES) and name not in modules:
            modules[name] = vars(sys.modules[name])
            _follow(modules[name], modules)


def _numbers(namespace: dict[str, Any]) -> dict[str, Any]:
    numbers = (int, float, np.generic)
    return {
        name: value
        for name, value in sorted(namespace.items())
        if isinstance(value, numbers) or (isinstance(value, tuple) and all(isinstance(each, numbers) for each in value))
    }


@cache
def _content(file: str) -> str:
    """The file's checksum; '' of a generated module, whose name has one, and which has no file."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if Path(file).exists() else ""


for _package in (Path(__file__).parents[1], Path(__file__).parents[2] / "formulas"):
    for _path in _package.rglob("*.py"):  # as they are imported: a file that is edited later is not what was compiled
        _content(str(_path))


@cache
def _locks() -> int:
    """A file of this machine whose bytes stand for functions; -1 where it cannot be opened."""
    with suppress(OSError):
        path = Path(tempfile.gettempdir()) / f"mpibow-{os.getuid()}.lock"
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    return -1


def _lock(name: str) -> None:
    """Takes the lock of a function's code. It is free when a process ends; without it some code is compiled twice."""
    end = time.monotonic() + PATIENCE
    while _locks() >= 0 and time.monotonic() < end:
        try:
            fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, zlib.crc32(name.encode()))
            CodeCache.locked.add(name)
            return
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:  # such a file system has no locks
            return


def release(names: Collection[str]) -> None:
    """Frees the locks of these functions' code."""
    for name in names:
        CodeCache.locked.discard(name)
        with suppress(OSError):
            fcntl.lockf(_locks(), fcntl.LOCK_UN, 1, zlib.crc32(name.encode()))
