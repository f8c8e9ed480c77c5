"""Texts that a user sees are plain English: machines do not say, know or tell, and nothing "is no" thing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for name in ("mpibow", "datasets") for path in (ROOT / name).glob("**/*.py"))
FAULTS = {
    "a machine that speaks or thinks": r"\b(says|knows|tells|foresees|disappoints)\b",
    "is no thing, for: is not a thing": r"\b(is|are) no (?!longer\b|more\b|gradient)[a-z]",
    "who takes what, for: needs": r"\bwhat is new takes\b|\bmay be taken\b",
    "a document that users lack": r"\bdesign (section|§)",
}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Every string of at least three words that is no docstring, with the line where it begins."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and id(node) not in docstrings and len(text.split()) >= 3:
            yield node.lineno, text


@pytest.mark.parametrize("fault", FAULTS)
def test_no_text_has_the_fault(fault: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in FILES
        for line, text in texts(path)
        if re.search(FAULTS[fault], text) and "there is no " not in text and "there are no " not in text
    ]
    assert found == []


def test_the_texts_are_found() -> None:
    assert sum(1 for path in FILES for _ in texts(path)) > 1000
