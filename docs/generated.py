"""Writes the parts of pages that follow from the package: the table of settings, and the Python reference.

python docs/generated.py            # rewrites them, between <!-- NAME --> and <!-- end -->
python docs/generated.py --check    # fails where a page is not up to date
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import mpibow
from mpibow import ops, testing
from mpibow.config.listing import rows
from mpibow.config.schema import Config

DOCS = Path(__file__).parent


def settings() -> Iterator[str]:
    """A table for each first word of the settings' paths."""
    for first, group in groupby(rows(Config), lambda row: row[0].partition(".")[0]):
        yield f"\n## {first}\n\n| setting | default | meaning |\n| --- | --- | --- |"
        for path, default, text in group:
            yield f"| {code(path)} | {code(default)} | {text.replace('|', chr(92) + '|').replace('<', '&lt;')} |"


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def programs() -> Iterator[str]:
    """The names of `import mpibow` besides operators."""
    for name in sorted({*mpibow.__all__} - {*ops.NAMES}, key=str.lower):
        yield from entry("###", f"mb.{name}", getattr(mpibow, name))


def operators() -> Iterator[str]:
    """Every module of operators, by its docstring, with its names."""
    for module in ops.FOUND:
        title = (module.__doc__ or "").splitlines()[0].rstrip(".")
        yield f"\n### {escaped(title)}"
        for name in sorted(module.__all__, key=str.lower):
            value = getattr(mpibow, name)
            if not (isinstance(value, type) and hasattr(value, "infer")):  # the record of an operator
                yield from entry("####", f"mb.{name}", value)


def checks() -> Iterator[str]:
    for name in testing.__all__:
        yield from entry("###", f"mpibow.testing.{name}", getattr(testing, name))


def entry(level: str, name: str, value: Any) -> Iterator[str]:
    """A name with its arguments and docstring; a class with its public members."""
    yield f"\n{level} `{name}`\n"
    if callable(value) and not (isinstance(value, type) and issubclass(value, BaseException)):
        yield f"```text\n{name}{arguments(value)}\n```\n"
    text = inspect.cleandoc(value.__doc__ or "").partition("\n\nThe settings and their defaults")[0]
    yield escaped(text)
    if isinstance(value, type):
        for key, member in vars(value).items():
            if not key.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                yield from entry(f"{level}#", f"{name.removeprefix('mb.')}.{key}", member)


def arguments(value: Any) -> str:
    signature = inspect.signature(value)
    bare = [each.replace(annotation=each.empty) for each in signature.parameters.values() if each.name != "self"]
    text = str(signature.replace(parameters=bare, return_annotation=signature.empty))
    return re.sub(r"<function .* at \w+>|<factory>", "...", text)


def escaped(text: str) -> str:
    """Docstrings are plain text with code in backticks: `2 * x` and `f(*args)` are no markup."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if n % 2 else re.sub(r"([*|<]|(?<=\w)_(?!\w))", r"\\\1", part) for n, part in enumerate(parts))


PARTS = {"settings": settings, "programs": programs, "operators": operators, "checks": checks}
MARKED = re.compile(r"<!-- (\w+) -->\n.*?<!-- end -->\n", re.DOTALL)


def filled(page: str) -> str:
    """The page with its parts as the package has them."""
    return MARKED.sub(lambda mark: "\n".join([f"<!-- {mark[1]} -->", *PARTS[mark[1]](), "\n<!-- end -->\n"]), page)


def main(argv: Sequence[str] | None = None) -> int:
    outdated = [path for path in sorted(DOCS.glob("*.md")) if path.read_text() != filled(path.read_text())]
    if "--check" in (sys.argv[1:] if argv is None else argv):
        for path in outdated:
            print(f"docs/{path.name} is not up to date: python docs/generated.py")
        return min(len(outdated), 1)
    for path in outdated:
        path.write_text(filled(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
