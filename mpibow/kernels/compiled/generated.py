"""Modules of generated text, such as the loops of loops.py around one formula."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from mpibow.formulas import numba_source
from mpibow.formulas.formula import Formula

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
    """The module with the text `content`, named after its `kind` and `name`; it is never a file."""
    title = f"{kind}_{name}_{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    sys.modules[f"mpibow_{title}"] = module = ModuleType(f"mpibow_{title}")
    exec(compile(content, LOOPS.with_name(f"{title}.py"), "exec"), module.__dict__)
    return module
