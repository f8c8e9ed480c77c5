"""Which library a run computes with, and what its user is told, once, where there is none."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpibow import bench, evaluate, kernels, train
from tests.refusals import exits
from tests.run.processes import write_run

pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
from mpibow.kernels.onednn import library

FOUND = library.find_library()
HINT = (
    "computing with NumPy, which is slow: no libdnnl found: "
    f"pip install -e '{Path(__file__).parents[2]}[cpu]', or give its path: onednn.library=PATH"
)


@pytest.fixture(autouse=True)
def without_library(monkeypatch) -> Iterator[None]:
    """None is found; one may still be named."""
    monkeypatch.setattr(library, "find_library", lambda: None)
    kernels.onednn_set.cache_clear()
    yield
    kernels.onednn_set.cache_clear()


@pytest.fixture
def folder(here: Path) -> Path:
    write_run(here, device="auto", stop={"iterations": 3}, checkpoint={"every": "1 iterations"})
    return here


def well(main: Callable[[list[str]], None], *arguments: str) -> None:
    with exits(0):
        main(list(arguments))


def test_a_run_says_what_to_install(folder: Path, capsys):
    well(train.main, "run.yaml")
    assert capsys.readouterr().err.splitlines().count(HINT) == 1
    assert (folder / "runs/run/log.txt").read_text().count(HINT) == 1


@pytest.mark.usefixtures("folder")
def test_a_check_and_an_evaluation_say_it(capsys):
    well(train.main, "run.yaml", "--check")
    assert capsys.readouterr().err == f"{HINT}\n"
    well(train.main, "run.yaml")
    capsys.readouterr()
    well(evaluate.main, "runs/run", "data/test")
    assert capsys.readouterr().err == f"{HINT}\n"
    well(evaluate.main, "runs/run", "data/test", "--device", "numpy")  # as was asked for
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", ["train", "profile"])
def test_a_benchmark_says_it(command, capsys):
    well(bench.main, command, "logistic", "--batch-size", "2", "--seconds", "0.05")
    assert capsys.readouterr().err.splitlines().count(HINT) == 1


@pytest.mark.usefixtures("folder")
def test_numpy_by_name_is_not_commented(capsys):
    well(train.main, "run.yaml", "device=numpy")
    assert "computing with NumPy" not in capsys.readouterr().err


@pytest.mark.skipif(FOUND is None, reason="no libdnnl found: pip install -e '.[cpu]'")
def test_a_library_that_is_named_computes(folder: Path, capsys):
    assert FOUND is not None
    named = folder / "mine.so"  # a name that nobody looks for
    named.symlink_to(FOUND)
    well(train.main, "run.yaml", f"onednn.library={named}")
    said = capsys.readouterr().err
    made = library.load(str(named))
    assert f", batch 3, oneDNN {made.version}, {made.isa}; runs/run\n" in said
    assert "computing with NumPy" not in said
