"""Modules of generated text: the loops of a file beside this one, behind the formulas that they are made around."""

import hashlib
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from mpibow.formulas import Formula, numba_source

HERE = Path(__file__).parent
FUTURE = "from __future__ import annotations\n"


@cache
def loops(step: Formula) -> ModuleType:
    """The module of loops.py's passes for a local step."""
    return _module(step.name, *_of_step(step), _loops("loops.py"))


@cache
def sending(step: Formula, send: Formula) -> ModuleType:
    """The module of sending.py's pass for a local step and a rule's `send`."""
    summand = send.results[1:]
    return _module(
        f"{step.name}_{send.name}",
        *_of_step(step, send),
        numba_source.function("send", send, send.arrays[:2], [0, 1] if summand else [0, 0]),
        *_of_rule(send, len(send.arrays) - 2),
        "@_inlined",
        "def gather(total, j, begin, x):",
        "    total[j] = x if begin else total[j] + x" if summand else "    return",
        _loops("sending.py"),
    )


@cache
def applying(apply: Formula) -> ModuleType:
    """The module of applying.py's pass for a rule's `apply`."""
    moves = apply.arrays[0] == "w"
    arrays = apply.arrays[moves:-1]
    return _module(
        apply.name,
        numba_source.head(apply),
        numba_source.function("moved", apply, ["w", "total"], [0]),
        numba_source.function("keep", apply, ["total", "w"], [], dict(enumerate(arrays, moves))),
        *_of_rule(apply, len(arrays)),
        _loops("applying.py"),
    )


def imported(kind: str, name: str, content: str) -> ModuleType:
    """The module with the text `content`, named after its `kind` and `name`; it is never a file."""
    title = f"{kind}_{name}_{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    sys.modules[f"mpibow_{title}"] = module = ModuleType(f"mpibow_{title}")
    exec(compile(content, HERE / f"{title}.py", "exec"), module.__dict__)
    return module


def _module(name: str, *lines: str) -> ModuleType:
    return imported("step", name, "\n".join([f'"""Written by mpibow: {name}."""\n', FUTURE, *lines]))


def _of_step(step: Formula, *others: Formula) -> list[str]:
    """The step, and the functions for its numbers of states and scalars."""
    states = range(len(step.arrays) - 2)
    scalars = range(len(step.scalars))
    return [
        numba_source.head(step, *others),
        numba_source.step(step),
        _tuples("parts", [f"states[{n}][i, a:b]" for n in states], "states, i, a, b"),
        _tuples("numbers", [f"number(scalars[i, group, {n}])" for n in scalars], "scalars, i, group, number"),
        "@_inlined",
        "def level(states, i, a, b):",
        *(f"    copied(states[{n}][0, a:b], states[{n}][i, a:b])" for n in states),
        "    return\n",
    ]


def _of_rule(half: Formula, arrays: int) -> list[str]:
    """The functions for its numbers of arrays and scalars."""
    return [
        _tuples("kept", [f"arrays[{n}][a:b]" for n in range(arrays)], "arrays, a, b"),
        _tuples("rounded", [f"number(numbers[{n}])" for n in range(len(half.scalars))], "numbers, number"),
    ]


def _tuples(name: str, elements: list[str], parameters: str) -> str:
    """The text of a function that makes a tuple of its arguments' parts."""
    return f"@_inlined\ndef {name}({parameters}):\n    return ({''.join(f'{each}, ' for each in elements)})\n"


def _loops(file: str) -> str:
    return (HERE / file).read_text("utf-8")
