"""Modules written to files, such as the loops of loops.py around one formula: numba's cache requires a file."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpibow.formulas import numba_source
from mpibow.formulas.formula import Formula
from mpibow.kernels.cache import cache_folder

LOOPS = Path(__file__).with_name("loops.py")
FUTURE = "from __future__ import annotations\n"
_MADE: dict[int, tuple[Formula, Any]] = {}  # by a formula's identity: hashing a formula takes longer than many passes


def loops(formula: Formula) -> Any:
    """The module of loops.py's passes for `formula`."""
    if id(formula) not in _MADE:
        _MADE[id(formula)] = formula, imported("step", formula.name, text(formula))
    return _MADE[id(formula)][1]


def text(formula: Formula) -> str:
    """The module's text: the formula, the functions for its numbers of states and scalars, and the loops."""
    states, scalars = range(len(formula.arrays) - 2), range(len(formula.scalars))
    parts = "".join(f"states[{n}][i, a:b], " for n in states)
    numbers = "".join(f"number(scalars[i, group, {n}]), " for n in scalars)
    return "\n".join(
        [
            f'"""Written by mpibow: the local step {formula.name}."""\n', FUTURE,
            numba_source.source(formula),
            "@_inlined", "def parts(states, i, a, b):", f"    return ({parts})\n",
            "@_inlined", "def numbers(scalars, i, group, like):", "    number = like.dtype.type",
            f"    return ({numbers})\n",
            "@_inlined", "def level(states, i, a, b):",
            *(f"    copied(states[{n}][0, a:b], states[{n}][i, a:b])" for n in states), "    return\n",
            LOOPS.read_text("utf-8").replace(FUTURE, ""),
        ]
    )  # fmt: skip


def imported(kind: str, name: str, content: str) -> Any:
    """The module with the text `content`, named after its `kind` and `name`."""
    title = f"{kind}_{name}_{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    path = _written(f"{kind}s", f"{title}.py", content)
    spec = importlib.util.spec_from_file_location(f"mpibow_{title}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _written(folder_name: str, name: str, content: str) -> Path:
    """The file, in the user's cache, else in a folder of this process's own. An existing file is not touched: numba
    goes by its date."""
    for folder in (cache_folder() / folder_name, Path(tempfile.gettempdir()) / f"mpibow-{os.getpid()}"):
        path = folder / name
        with suppress(OSError):
            if not path.is_file() or path.read_text("utf-8") != content:
                folder.mkdir(parents=True, exist_ok=True)
                aside = path.with_name(f"{name}.{os.getpid()}")
                aside.write_text(content, "utf-8")
                os.replace(aside, path)
            return path
    raise OSError(f"{name}: cannot be written, neither in {cache_folder()} nor in {tempfile.gettempdir()}")
