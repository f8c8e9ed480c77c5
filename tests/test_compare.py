"""`mpibow bench net`: its figures, what it refuses, and a tiny module beside PyTorch. Never how fast."""

import json
from pathlib import Path

import numpy as np
import pytest

from mpibow.bench import main
from mpibow.compare import compare_text, ratio_of_best
from mpibow.data import write_records
from mpibow.data.ratings import record_of
from tests.launching import mpirun, needs_mpi
from tests.oracle import MISSING
from tests.refusals import exits

MINE = """
print("this is no answer"); from torch import nn
net = lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
number = lambda: 3
class Named(nn.Linear):
    def forward(self, x):
        return {"logits": super().forward(x.flatten(1))}
named = Named(12, 3)
few = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
"""


@pytest.fixture
def mine(here: Path) -> Path:
    """A folder with mine.py, and with records of 3 classes and of ratings."""
    (here / "mine.py").write_text(MINE)
    images = np.random.default_rng(0).integers(256, size=(20, 3, 2, 2), dtype=np.uint8)
    write_records("data", zip(images, [0, 1, 2, 0] * 5, strict=True), classes=3, source="drawn")
    write_records("ratings", [record_of(0, 0, 1.0)], classes=1, source="drawn")
    return here


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with exits(2):
        main(["net", *arguments])
    return capsys.readouterr().err.splitlines()[-1]


def test_the_best_settings_by_medians_and_their_ratios_by_rounds():
    rates = {"mpibow (a)": [9, 8, 1], "mpibow (b)": [6, 7, 90], "PyTorch (c)": [5, 4, 6], "PyTorch (d)": [4, 2, 9]}
    found = {"about": "net", "rates": rates, **ratio_of_best(rates)}
    assert found["best"] == ["mpibow (a)", "PyTorch (c)"]
    assert found["ratios"] == [9 / 5, 2.0, 1 / 6]
    sides = "mpibow (a) 8 images/s, PyTorch (c) 5 images/s"
    assert compare_text(found) == f"net: {sides}: 1.80 times as fast (0.17 to 2.00 by round)"


def test_what_is_refused(mine: Path, capsys):
    python = mine / "python"
    python.write_text("#!/bin/sh\necho no torch >&2; exit 1")
    python.chmod(0o755)
    for arguments, told in (
        (["mine.py:net", "ratings"], "ratings: must have a class for each image or row, and has no classes"),
        (["mine.py:net", "data", "--torch", "none"], "--torch: none: cannot be started: no such file or directory"),
        (["mine.py:net", "data", "--torch", str(python)], f"--torch: {python} ended with code 1: no torch"),
        (["mine.py:net", "data", "seed=2"], "unrecognized arguments: seed=2"),
    ):
        assert refusal(capsys, *arguments).endswith(f"error: {told}")


@needs_mpi
def test_several_ranks_are_refused():
    done = mpirun(2, "-m", "mpibow.bench", "net", "mine.py:net", "data")
    told = "error: net: compares within one process, got 2 ranks; leave mpirun out\n"
    assert (done.returncode, done.stderr[: len(told)]) == (2, told)


@pytest.mark.torch
def test_a_module_beside_pytorch(mine: Path, capsys):
    pytest.importorskip("torch", reason=MISSING)
    with exits(0):
        main(["net", "mine.py:net", "data", "--rounds", "2", "--seconds", "0.01", "--json"])
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert {len(each) for each in found["rates"].values()} == {2}
    assert [name.split()[0] for name in found["best"]] == ["mpibow", "PyTorch"]
    assert min(found["ratios"]) > 0
    assert "eager, threads 1" in err
    for net, told in (
        ("mine.py", "mine.py: must be FILE.py:NAME, and there is no file ''"),
        ("none.py:net", "none.py:net: must be FILE.py:NAME, and there is no file 'none.py'"),
        ("mine.py:nett", "mine.py:nett: AttributeError: module 'mine' has no attribute 'nett'"),
        ("mine.py:number", "from_torch: module must be a torch.nn.Module, got int"),
        ("mine.py:named", "output logits: must be a tensor, got dict"),
        ("mine.py:few", "3 classes of train, got (8, 2)"),
    ):
        assert refusal(capsys, net, "data").endswith(told)
    assert "21" in refusal(capsys, "mine.py:net", "data", "--batch-size", "21")
