"""The examples of trained nets, which are taken up again, are short and run on two ranks."""

import subprocess
from pathlib import Path

from tests.launching import ROOT, mpirun, needs_mpi, well

FOLDER = ROOT / "examples"


def on_two_ranks(name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return well(mpirun(2, str(FOLDER / f"{name}.py"), *arguments, cwd=cwd))


@needs_mpi
def test_the_body_is_loaded_and_the_head_is_new(tmp_path):
    done = on_two_ranks("fine_tune", cwd=tmp_path)
    assert 0.85 < float(done.stdout) <= 1  # chance is 0.5
    log = done.stderr
    assert "weights from the program's arrays: 12 of the net's 14 weights and statistics are loaded" in log
    assert "frozen until epoch 5: 4,896 weights (body.conv1.weight, " in log
    assert "epoch 5.20: 4,896 weights" in log  # 13 iterations of 16 samples; there are 40


@needs_mpi
def test_another_process_loads_and_predicts(tmp_path):
    done = on_two_ranks("load_and_predict", cwd=tmp_path)
    assert 0.75 < float(done.stdout) <= 1  # chance is 0.1


@needs_mpi
def test_each_start_continues_where_the_last_one_ended(tmp_path):
    first, second = on_two_ranks("resume", "1", cwd=tmp_path), on_two_ranks("resume", cwd=tmp_path)
    assert "continuing" not in first.stderr
    assert "continuing parts/net-" in second.stderr
    assert float(first.stdout) < float(second.stdout) <= 1
    assert float(second.stdout) > 0.75  # chance is 0.1
    assert len(list((tmp_path / "parts").iterdir())) == 1
