"""The size of the code by package, beside the budgets of pyproject.toml (tool.mpibow.size); `make size` prints it.

python .ci/size.py             # tokens, files, and apologies (Any, casts, # fmt: skip) by package
python .ci/size.py --check     # fails where a budget is exceeded

Tokens are Python's `tokenize` without comments, docstrings, line ends and indents, so that dense lines gain nothing.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
COLUMNS = ("tokens", "files", "Any", "casts", "fmt: skip")


def docstring_lines(text: str) -> set[int]:
    lines = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
                lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def sizes(path: Path) -> Counter[str]:
    """COLUMNS of one file."""
    text = path.read_text("utf-8")
    docstrings = docstring_lines(text)
    code = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in LAYOUT and token.start[0] not in docstrings
    ]
    words = Counter(code)
    return Counter(
        {
            "tokens": len(code),
            "files": 1,
            "Any": words["Any"],
            "casts": words["cast"],
            "fmt: skip": text.count("fmt: skip"),
        }
    )


def folders(root: Path) -> dict[str, Counter[str]]:
    """The sizes of `root` by folder below it, links left out."""
    found = dict[str, Counter[str]]()
    for path in sorted(root.rglob("*.py")):
        inner = path.relative_to(root)
        if not any(part.is_symlink() for part in (path, *path.parents)):
            name = f"{root.name}/{inner.parts[0]}" if len(inner.parts) > 1 else root.name
            found.setdefault(name, Counter()).update(sizes(path))
    return found


def parts(rows: dict[str, Counter[str]], budgets: dict[str, int]) -> dict[str, Counter[str]]:
    """The sizes of each budget: of a folder, without those below it that have a budget of their own."""
    found = {name: Counter[str]() for name in budgets}
    for name, row in rows.items():
        owner = max((key for key in budgets if f"{name}/".startswith(f"{key}/")), key=len)
        found[owner].update(row)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="print and fail only where a budget is exceeded")
    arguments = parser.parse_args()
    budgets = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mpibow"]["size"]
    rows = {name: row for top in ("mpibow", "tests", "benchmarks") for name, row in folders(ROOT / top).items()}
    totals = parts(rows, budgets)
    if not arguments.check:
        print(f"{'':<24}" + "".join(f"{column:>11}" for column in COLUMNS) + f"{'budget':>11}")
        for name, row in (*sorted(rows.items()), *((f"in all: {name}", row) for name, row in totals.items())):
            budget = budgets.get(name.removeprefix("in all: "), 0) if name.startswith("in all") else 0
            print(
                f"{name:<24}"
                + "".join(f"{row[column]:>11,}" for column in COLUMNS)
                + (f"{budget:>11,}" if budget else "")
            )
    over = {name: row["tokens"] for name, row in totals.items() if row["tokens"] > budgets[name]}
    for name, tokens in over.items():
        print(f"{name}: {tokens:,} tokens, its budget is {budgets[name]:,} (pyproject.toml, tool.mpibow.size)")
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
