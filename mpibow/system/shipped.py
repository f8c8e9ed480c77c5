"""Files that come with mpibow, in a wheel and in a clone: the converters of datasets/ and the files of launch/."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
CONVERTERS = PACKAGE / "datasets"  # in a clone a link to the folder beside the package, in a wheel the folder itself
LAUNCH = PACKAGE / "launch"


def converters() -> dict[str, str]:
    """Every converter's name, and the first sentence of its docstring."""
    return {path.stem: _summary(path) for path in sorted(CONVERTERS.glob("*.py")) if not path.stem.startswith("_")}


def launch_files() -> list[str]:
    """Paths of all launch files below launch/, in the order of their names."""
    paths = sorted(path for folder in (LAUNCH, *LAUNCH.iterdir()) for path in folder.glob("*") if path.is_file())
    return [path.relative_to(LAUNCH).as_posix() for path in paths if path.suffix not in (".py", ".pyc")]


def launch_file(name: str) -> str | None:
    """The launch file of that name: a path below launch/, with or without its ending; None if there is none."""
    asked = name.removeprefix("launch/")
    return next((path for path in launch_files() if asked in (path, stem(path))), None)


def stem(path: str) -> str:
    """A launch file's path without its ending."""
    return path.rpartition(".")[0] or path


def close(word: str, names: Iterable[str]) -> str:
    """The name that is nearest to a mistyped one, or nothing."""
    return next(iter(difflib.get_close_matches(word, list(names), n=1)), "")


def _summary(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].partition(". ")[0].partition(": mpibow ")[0].rstrip(".")
