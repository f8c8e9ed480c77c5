"""docs/architecture.md: the files and names that it lists are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/architecture.md").read_text()
FOLDERS = r"(?:mpibow|tests|datasets|docs|benchmarks)/"
PATH = re.compile(rf"`({FOLDERS}[\w/.]*)`")
ROW = re.compile(rf"\| `({FOLDERS}[\w/.]+)` \| `(\w+)` \|")
CHANGED = re.compile(rf"^({FOLDERS}[\w/.]+)( \(new\))? +\| +\d+ [+-]+$", re.MULTILINE)
STAT = re.compile(r"^(\d+) files changed", re.MULTILINE)


def test_every_file_that_is_named_exists():
    named = set(PATH.findall(PAGE))
    assert len(named) > 30
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_every_step_of_a_batch_is_a_name_of_its_file():
    rows = ROW.findall(PAGE)
    assert len(rows) > 25
    missing = [
        (path, name)
        for path, name in rows
        if not re.search(rf"^ *(def|class) {name}\b", (ROOT / path).read_text(), re.MULTILINE)
    ]
    assert missing == []


def test_the_lists_of_files_are_whole_and_of_this_repository():
    """Files that are marked as new exist on the branch of the example only."""
    changed = CHANGED.findall(PAGE)
    assert len(changed) == sum(map(int, STAT.findall(PAGE))) > 0
    assert [path for path, new in changed if (ROOT / path).exists() == bool(new)] == []
