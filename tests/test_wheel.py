"""The wheel alone, in an empty environment and an empty folder: every command of docs/first_steps.md."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.blocks import ROOT, blocks, commands
from tests.launching import OPEN_MPI

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]  # packages are fetched, kernels compiled, a net trained
MNIST = ROOT.parent / "shared" / "data" / "mnist"
EXTRAS = "demo,plot,completion"
SHORT = "stop.epochs=0.5"


def ends_well(command: list[str], folder: Path, **env: str) -> str:
    outer = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        command, cwd=folder, env=outer | env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def built(source: Path) -> Path:
    """From a source distribution, as `python -m build` does; in a copy, as a build leaves files behind."""
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("mpibow", "datasets", "launch"):
        shutil.copytree(
            ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.nb?")
        )
    ends_well([sys.executable, "-m", "build", str(source)], source)
    ends_well([sys.executable, "-m", "twine", "check", "--strict", *map(str, (source / "dist").iterdir())], source)
    (wheel,) = (source / "dist").glob("*.whl")
    return wheel


def installed(wheel: Path, folder: Path) -> Path:
    """The bin folder of a new environment with the wheel and nothing that it does not ask for."""
    venv.create(folder, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python")]
    ends_well([*pip, "install", "-q", "--no-compile", f"{wheel}[{EXTRAS}]"], folder)
    return folder / "bin"


def test_it_is_whole_and_takes_the_first_steps(tmp_path):
    """One test: another worker would build and install it again."""
    wheel = built(tmp_path / "source")
    check_files(wheel)
    bin_folder, folder = installed(wheel, tmp_path / "environment"), tmp_path / "work"
    folder.mkdir()
    check_package(bin_folder, folder)
    check_first_steps(bin_folder, folder)


def check_files(wheel: Path) -> None:
    """Converters and launch files are in it, and nothing of the tests."""
    held = set(zipfile.ZipFile(wheel).namelist())
    files = [path for name in ("datasets", "launch") for path in (ROOT / name).rglob("*") if path.is_file()]
    expected = {f"mpibow/{path.relative_to(ROOT)}" for path in files if "__pycache__" not in path.parts}
    assert len(expected) > 40
    assert expected | {"mpibow/py.typed", "mpibow/cuda/kernels/source/flat.cu"} <= held
    assert not [name for name in held if name.startswith(("tests/", "benchmarks/", "docs/"))]


def check_first_steps(bin_folder: Path, folder: Path) -> None:
    """As the page has them, but that MNIST's files are there already, and that half an epoch shows that it learns."""
    if not MNIST.is_dir():
        pytest.skip(f"{MNIST} is not there")
    compiled = str(ROOT / "mpibow/kernels/compiled/__pycache__")  # the same code by its names
    env = {"PATH": f"{bin_folder}:{os.environ['PATH']}", **OPEN_MPI, "NUMBA_CACHE_DIR": compiled}
    text = "".join(block.text for block in blocks(ROOT / "docs/first_steps.md") if block.language == "bash")
    typed = commands(text.replace("--download", f"--source {MNIST}").replace("name=first", f"name=first {SHORT}"))
    assert any(SHORT in line for line in typed)
    used = {line.removeprefix("mpirun -np 2 ").split()[1] for line in typed}
    assert used >= {"convert", "launch", "train", "plot", "evaluate", "predict", "export"}
    printed = {line: ends_well(["bash", "-c", line], folder, **env) for line in typed}
    (evaluated,) = (text for line, text in printed.items() if line.startswith("mpibow evaluate"))
    accuracy = re.match(r"accuracy (\d+\.\d+)%", evaluated)
    assert float(accuracy[1]) >= 97  # chance is 10
    (predicted,) = (text for line, text in printed.items() if line.startswith("mpibow predict"))
    digits = re.findall(r"^digits/7/\d+\.png +(\d) ", predicted, re.M)
    assert len(digits) == predicted.count("\n") == 1028  # sevens of the test set
    assert digits.count("7") >= 0.95 * len(digits)
    assert zipfile.ZipFile(folder / "first.pth").testzip() is None
    assert ElementTree.parse(folder / "first.svg").getroot().tag.endswith("svg")
    assert (folder / "predictions.csv").read_text().count("\n") == 10_001


def check_package(bin_folder: Path, folder: Path) -> None:
    """It is the installed one that runs."""
    shown = ends_well([str(bin_folder / "mpibow"), "--version"], folder)
    assert re.fullmatch(r"mpibow \d+\.\d+\.\d+, Python \S+\n", shown)
    where = ends_well([str(bin_folder / "python"), "-c", "import mpibow; print(mpibow.__file__)"], folder)
    assert Path(where).is_relative_to(bin_folder.parent)
    assert "train" in ends_well([str(bin_folder / "mpibow"), "completion", "bash"], folder)
    assert "pip install 'mpibow[" in ends_well([str(bin_folder / "mpibow"), "convert", "digits", "--help"], folder)
