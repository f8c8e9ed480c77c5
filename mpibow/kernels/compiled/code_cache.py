"""Compiled functions on disk: read beside the package, which may be read-only, or from the user's cache.

numba's own cache ignores a folder that cannot be written, so a container's kernels would be compiled again. A file's
name has a checksum of all that its code depends on: the source, the types, numba, Python and the processor.
"""

import fcntl
import hashlib
import os
import pickle
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TextIO, TypeVar

import numba
import numpy as np
from numba.core import event as events
from numba.core.base import BaseContext
from numba.core.ccallback import CFunc
from numba.core.codegen import Codegen
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.core.typing.templates import Signature

from mpibow.kernels import cache_folder
from mpibow.system import whole_file

F = TypeVar("F", bound=Callable[..., object])
Namespace = dict[str, object]  # of a module
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

    def __init__(self, function: Callable[..., object]):
        file = Path(function.__code__.co_filename)
        self._function = function
        self._name = f"{file.stem}.{function.__qualname__}"
        self._source = _content(file)  # as it was when the function was made: the file may change before it compiles
        self._folders = (file.parent / "__pycache__", Path(numba.config.CACHE_DIR or cache_folder() / "compiled"))

    def load_overload(self, signature: Signature, target: BaseContext) -> CompileResult | None:
        """The code for these types, compiled here or elsewhere for such a processor; None if there is none."""
        rtsys.initialize(target)  # all that loading needs; `refresh` is for compiling, and imports half of SciPy
        name = self.file_name(signature, target.codegen())
        code = self._read(name, target)
        if code is not None:
            return code
        _lock(name)
        if (code := self._read(name, target)) is not None:  # of the process that had the lock
            release(CodeCache.locked & {name})
        return code

    def _read(self, name: str, target: BaseContext) -> CompileResult | None:
        for folder in self._folders:
            with suppress(OSError, EOFError, pickle.UnpicklingError):  # not there, or cut off
                return CompileResult._rebuild(target, *pickle.loads((folder / name).read_bytes()))
        return None

    def save_overload(self, signature: Signature, code: CompileResult) -> None:
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

    def file_name(self, signature: Signature, codegen: Codegen) -> str:
        function = self._function
        versions = (numba.__version__, sys.implementation.cache_tag)
        code = function.__code__
        beside = _beside(function.__module__) if function.__module__ else ""
        source = self._source, beside, code.co_firstlineno, code.co_code
        closure = [cell.cell_contents for cell in function.__closure__ or ()]
        depends = repr((*source, signature, codegen.magic_tuple(), versions)).encode() + dumps(closure)
        return f"{self._name}-{hashlib.sha256(depends).hexdigest()[:32]}.code"


def jit(function: F) -> F:
    """numba.njit without the GIL, its code kept."""
    return _kept(numba.njit(nogil=True, no_cfunc_wrapper=True)(function), function)


def shared(function: F) -> F:
    """`jit` for functions that only compiled code calls."""
    return _kept(numba.njit(**PART)(function), function)


def c_function(function: Callable[..., object], signature: Signature, **options: object) -> CFunc:
    """numba.cfunc, its code kept."""
    compiled = _kept(CFunc(function, (signature.args, signature.return_type), {}, options), function)
    compiled.compile()
    return compiled


def _kept(compiled: Any, function: Callable[..., object]) -> Any:
    compiled._cache = CodeCache(function)
    return compiled


@cache
def _beside(name: str) -> str:
    """What the module is compiled with: the files of all modules that it imports from, directly or not, and the numbers
    of all of them, some of which are from elsewhere."""
    modules = {name: vars(sys.modules[name])}
    _follow(modules[name], modules)
    files = {Path(str(namespace["__file__"])) for namespace in modules.values() if "__file__" in namespace}
    return repr((sorted(map(_content, files)), [_numbers(modules[each]) for each in sorted(modules)]))


def _follow(namespace: Namespace, modules: dict[str, Namespace]) -> None:
    """Enters the modules of PACKAGES that these values are from; a package has its own modules, imported or not."""
    for value in list(namespace.values()):
        if isinstance(value, ModuleType):
            name = "" if "__path__" in namespace else value.__name__
        else:
            name = str(getattr(value, "__module__", ""))
        if name.startswith(PACKAGES) and name not in modules:
            modules[name] = vars(sys.modules[name])
            _follow(modules[name], modules)


def _numbers(namespace: Namespace) -> Namespace:
    numbers = (int, float, np.generic)
    return {
        name: value
        for name, value in sorted(namespace.items())
        if isinstance(value, numbers) or (isinstance(value, tuple) and all(isinstance(each, numbers) for each in value))
    }


@cache
def _content(file: Path) -> str:
    """The file's checksum; '' of a generated module, whose name has one, and which has no file."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else ""


for _package in (Path(__file__).parents[1], Path(__file__).parents[2] / "formulas"):
    for _path in _package.rglob("*.py"):  # as they are imported: a file that is edited later is not what was compiled
        _content(_path)


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


PASS = "numba:run_pass"  # an event of numba's compiler; functions loaded from disk go through no pass
LAST = "native_lowering"  # the pass that makes a function's code
TITLE = "compiling kernels for this machine"


class Compiling(events.Listener):  # type: ignore[misc]
    """A line that counts on a terminal, else one line when the first function is compiled; `note` is for the log."""

    def __init__(self, out: TextIO):
        self._out = out
        self._began = time.perf_counter()
        self._shown = False
        self.functions = 0

    def on_start(self, event: events.Event) -> None:
        if not self._shown:
            self._shown = True
            self._write("" if self._out.isatty() else f"{TITLE}: 5 to 30 seconds\n")

    def on_end(self, event: events.Event) -> None:
        if event.data["name"].startswith(LAST):
            self.functions += 1
            self._write(f"\r{TITLE}: {self.functions} functions" if self._out.isatty() else "")

    def end(self) -> None:
        """Clears the live line."""
        self._write("\r\x1b[K" if self._shown and self._out.isatty() else "")

    def note(self, functions: int) -> str:
        """A line on so many compiled functions, those of other ranks included; '' if all were on disk."""
        if not functions:
            return ""
        end = "the next run reuses them"
        if CodeCache.lost:
            end = f"{cache_folder()} cannot be written, so every run does; XDG_CACHE_HOME=DIR names another place"
        seconds = time.perf_counter() - self._began
        return f"compiled {functions} functions for this machine in {seconds:.0f} s; {end}"

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()


@contextmanager
def compiling(out: TextIO | None = None) -> Iterator[Compiling]:
    """Reports the functions that are compiled in this context."""
    watch = Compiling(out or sys.stderr)
    with events.install_listener(PASS, watch):
        try:
            yield watch
        finally:
            watch.end()
            release({*CodeCache.locked})  # of what failed
