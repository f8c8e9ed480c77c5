"""Two states of this project side by side: commits are checked out beside the working tree, folders taken as is."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def two_trees(old: str, new: str | None, base: Path) -> Iterator[tuple[Path, Path]]:
    """The folders of `old` and `new` (None is the working tree), each a commit or a folder; checkouts lie in `base`."""
    made, trees = list[Path](), list[Path]()
    try:
        for side, given in (("old", old), ("new", new)):
            there = Path(given) if given else ROOT
            if there.is_dir():
                trees.append(there.resolve())
                continue
            tree = base / side / "tree"
            subprocess.run(["git", "worktree", "add", "-q", "--detach", tree, str(given)], cwd=ROOT, check=True)
            made.append(tree)
            trees.append(tree)
        yield trees[0], trees[1]
    finally:
        for tree in made:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=False)


def environment_of(tree: Path) -> dict[str, str]:
    """That of a process which imports mpibow from `tree`, and these benchmarks; a learner is one thread."""
    return {
        **os.environ,
        "PYTHONPATH": f"{tree}{os.pathsep}{ROOT}",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
