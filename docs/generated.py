"""The parts of pages that are made from the package: the table of settings, and the Python reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from itertools import groupby
from typing import Any

import mpibow
from mpibow import ops, testing
from mpibow.config.listing import rows
from mpibow.config.schema import Config


def fill(_app: Any, page: str, source: list[str]) -> None:
    """Puts what the package has in place of a page's comment, as Sphinx reads the page."""
    for mark, make in PARTS.items():
        if mark in source[0]:
            source[0] = source[0].replace(mark, "\n".join(make()))


def settings() -> Iterator[str]:
    """A table for each first word of the settings' paths."""
    for first, group in groupby(rows(Config), lambda row: row[0].partition(".")[0]):
        yield f"\n## {first}\n\n| setting | default | meaning |\n| --- | --- | --- |"
        for path, default, text in group:
            yield f"| {code(path)} | {code(default)} | {text.replace('|', chr(92) + '|').replace('<', '&lt;')} |"


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def programs() -> Iterator[str]:
    """What `import mpibow` offers beside operators."""
    operators = {*ops.NAMES}
    yield from entries("mpibow", [name for name in mpibow.__all__ if name not in operators])


def operators() -> Iterator[str]:
    """Every module of operators, by its docstring, with its names."""
    for module in ops.FOUND:
        title = (module.__doc__ or "").splitlines()[0].rstrip(".")
        yield f"\n### {title}\n"
        yield from entries("mpibow", sorted(filter(called, module.__all__), key=str.lower))


def called(name: str) -> bool:
    """Whether a net's program calls it; the frozen record of an operator is made by the function beside it."""
    value = getattr(mpibow, name)
    return not (isinstance(value, type) and hasattr(value, "infer"))


def checks() -> Iterator[str]:
    yield from entries("mpibow.testing", testing.__all__)


def entries(module: str, names: list[str]) -> Iterator[str]:
    yield "```{eval-rst}"
    yield f".. currentmodule:: {module}\n"
    for name in names:
        value = getattr(import_module(module), name)
        kind = "autoclass" if isinstance(value, type) else "autofunction" if callable(value) else "autodata"
        yield f".. {kind}:: {module}.{name}"
        if kind == "autoclass":
            yield "   :members:"
        if kind == "autodata":
            yield "   :no-value:"
        yield ""
    yield "```"


def escape(_app: Any, _what: str, name: str, _value: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with code in backticks: `2 * x` and `f(*args)` are no markup."""
    if name == "mpibow.fit":  # the settings have a page of their own
        del lines[next(n for n, line in enumerate(lines) if line.startswith("The settings and their defaults")) :]
    lines[:] = [
        "".join(part if n % 2 else re.sub(r"([*|]|(?<=\w)_(?!\w))", r"\\\1", part) for n, part in enumerate(parts))
        for parts in (re.split(r"(`[^`]*`)", line) for line in lines)
    ]


PARTS = {
    "<!-- settings -->": settings,
    "<!-- programs -->": programs,
    "<!-- operators -->": operators,
    "<!-- checks -->": checks,
}
