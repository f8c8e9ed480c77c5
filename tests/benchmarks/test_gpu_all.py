"""The launcher for a bare machine, where there is no GPU: it says what is missing, and keeps what it has done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
STUB = """#!/bin/sh
case "$*" in
*gpu_about.py*) exit 0 ;;
*pytest*test_models.py*) exec sleep 60 ;;
*pytest*test_ranks.py*) exit 1 ;;
*pytest*) echo "ran $*" ;;
*) exec {python} "$@" ;;
esac
"""


def launched(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    told = {"RESULTS": str(tmp_path / "results"), "OUT": str(tmp_path / "out"), "PYTHON": sys.executable, **environment}
    return subprocess.run(
        [str(ROOT / "benchmarks/gpu_all.sh"), *arguments], env={**os.environ, **told}, capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip


def stub(tmp_path: Path) -> str:
    """A Python that has a GPU, of whose tests one file fails and one never ends."""
    path = tmp_path / "python"
    path.write_text(STUB.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


def files(done: Path) -> list[str]:
    return [Path(line).stem for line in done.read_text().splitlines()]


def test_usage(tmp_path: Path) -> None:
    done = launched(tmp_path, "--nonsense")
    assert done.returncode == 2
    assert "install about test sanitize bench accuracy" in done.stderr
    assert not (tmp_path / "results").exists()


def test_without_a_gpu_nothing_passes(tmp_path: Path) -> None:
    done = launched(tmp_path, "test", "bench")
    assert done.returncode == 1
    assert done.stderr.count("not ready: benchmarks/gpu_all.sh about says why\n") == 2
    assert (tmp_path / "out/done.txt").read_text() == ""


def test_about_says_what_is_missing(tmp_path: Path) -> None:
    about = launched(tmp_path, "about")
    assert about.returncode == 1
    said = (tmp_path / "out/about.txt").read_text()
    assert f"Python {sys.version.split()[0]}\n" in said
    assert "numpy: " in said


def test_what_was_just_installed_finds_its_libraries(tmp_path: Path) -> None:
    """The folders are there after the installation, not before."""
    site = "lib/python{}.{}/site-packages".format(*sys.version_info)
    folder = tmp_path / f"prefix/{site}/nvidia/cu13/lib"
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
case "$*" in
*"pip install"*) mkdir -p {folder} ;;
*gpu_about.py*) echo "about sees $LD_LIBRARY_PATH" ;;
*) exec {sys.executable} "$@" ;;
esac
"""
    )
    python.chmod(0o755)
    told = {"PYTHON": str(python), "LD_LIBRARY_PATH": "/before"}
    places = ("--wheels", str(tmp_path), "--prefix", str(tmp_path / "prefix"))
    first, again = launched(tmp_path, *places, "install", "about", **told), launched(tmp_path, *places, "about", **told)
    for done in (first, again):
        assert f"about sees {tmp_path}/prefix/lib:{folder}:/before\n" in done.stdout, done.stderr


def test_a_part_that_is_cut_goes_on(tmp_path: Path) -> None:
    """What has passed is not run again; 75 says that there is more."""
    python = stub(tmp_path)
    first = launched(tmp_path, "test", PYTHON=python, LIMIT="4")
    done = tmp_path / "out/done.txt"
    assert first.returncode == 75, first.stderr
    assert "test_models.py: not enough time is left; call again\n" in first.stderr
    passed = files(done)
    assert passed == ["test_data", "test_device", "test_layers"]
    assert first.stdout.count("ran ") == len(passed)
    again = launched(tmp_path, "test", PYTHON=python, LIMIT="2")
    assert again.returncode == 75
    assert "ran " not in again.stdout
    assert files(done) == passed
    forgotten = launched(tmp_path, "--again", "install", PYTHON=python)
    assert forgotten.returncode == 0
    assert done.read_text() == ""


@pytest.fixture
def about(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import gpu_about

    return gpu_about


def test_what_is_here_and_what_is_not(about: ModuleType) -> None:
    def load(module: str) -> object:
        if module == "cupy":
            raise ImportError("libcuda.so.1: cannot open\nmore")
        return SimpleNamespace()

    lines, whole = about.told({"numpy": "numpy", "cupy": "cupy-cuda13x", "one": "no-such-package"}, load)
    assert lines[0].startswith("numpy: ")
    assert lines[1:] == [
        "cupy: ImportError: libcuda.so.1: cannot open",
        "one: here, of another package than no-such-package",
    ]
    assert not whole
