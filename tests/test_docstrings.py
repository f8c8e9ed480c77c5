"""Docstrings of the package: first lines are whole, and nothing points to modules that an installed copy lacks."""

import ast
import re
from pathlib import Path

import mpibow

FILES = sorted(Path(mpibow.__file__).parent.rglob("*.py"))
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef


def test_no_first_line_breaks_in_the_midst_of_a_sentence():
    broken = []
    for path in FILES:
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, DOCUMENTED)]
        paragraphs = [(ast.get_docstring(node) or "").split("\n\n") for node in nodes]
        broken += [(path.name, first) for first, *rest in paragraphs if rest and re.search(r"[\w,;(]$", first)]
    assert broken == []


def test_no_module_of_the_tests_is_named():
    assert [path.name for path in FILES if re.search(r"\btests\.[a-z_]+\.[a-z_]+", path.read_text())] == []
