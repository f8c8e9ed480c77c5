"""Examples of modules of PyTorch learn, the first one on two ranks, too; they are short, and name what they lack."""

import runpy
import sys

import pytest

from tests.launching import ROOT, mpirun, needs_mpi, well
from tests.oracle import pytorch

EXAMPLE = ROOT / "examples/own_torch_module.py"
OTHERS = {
    "own_torch_operator": ("torch",),
    "small_gpt2": ("torch", "transformers"),
    "tiny_bert": ("torch", "transformers"),
}
LEAST = 0.9  # chance is 0.1


@pytest.mark.torch
def test_alone(tmp_path, monkeypatch, capsys):
    pytorch()
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert float(capsys.readouterr().out) > LEAST


@pytest.mark.torch
@needs_mpi
def test_on_two_ranks(tmp_path):
    pytorch()
    assert float(well(mpirun(2, str(EXAMPLE), cwd=tmp_path)).stdout) > LEAST


def test_it_is_short_and_names_what_it_lacks(monkeypatch):
    assert len(EXAMPLE.read_text().splitlines()) <= 25
    monkeypatch.setitem(sys.modules, "torch", None)  # as where it is not installed
    with pytest.raises(SystemExit, match="pip install torch"):
        runpy.run_path(str(EXAMPLE), run_name="__main__")


@pytest.mark.torch
@pytest.mark.parametrize("name", OTHERS)
def test_others(name, tmp_path, monkeypatch, capsys):
    pytorch()
    for package in OTHERS[name]:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / f"examples/{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed == "(1, 32, 16)\n" if name == "small_gpt2" else float(printed) > LEAST


@pytest.mark.parametrize("name", OTHERS)
def test_others_name_what_they_lack(name, monkeypatch):
    monkeypatch.setitem(sys.modules, OTHERS[name][-1], None)
    with pytest.raises(SystemExit, match=f"pip install .*{OTHERS[name][-1]}"):
        runpy.run_path(str(ROOT / f"examples/{name}.py"), run_name="__main__")
