"""examples/own_torch_module.py learns alone and on two ranks, is short, and names what it lacks."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from tests.launching import ROOT, mpirun, needs_mpi
from tests.oracle import pytorch

EXAMPLE = ROOT / "examples/own_torch_module.py"
LEAST = 0.9  # chance is 0.1


@pytest.mark.torch
def test_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytorch()
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert float(capsys.readouterr().out) > LEAST


@pytest.mark.torch
@needs_mpi
def test_on_two_ranks(tmp_path: Path) -> None:
    pytorch()
    done = mpirun(2, str(EXAMPLE), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > LEAST


def test_it_is_short_and_names_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 25
    monkeypatch.setitem(sys.modules, "torch", None)  # as where it is not installed
    with pytest.raises(SystemExit, match="pip install torch"):
        runpy.run_path(str(EXAMPLE), run_name="__main__")
