"""A working directory that was removed, names that the locale's encoding lacks: right, or one line that says so."""

import os
import sys
from importlib.util import find_spec

import pytest

from tests.launching import mpirun, needs_mpi, run, well

FIT = """
import numpy as np, mpibow as mb, sys
x, y = np.random.default_rng(0).random((20, 4), np.float32), np.arange(20) % 2
fitted = mb.fit(
    lambda image: mb.dense(image, 2), (x, y), batch_size=4, learners=1, out=sys.argv[1], name="a",
    stop={"epochs": 1}, callbacks=[lambda event: print("été")],
)
again = mb.fit(
    lambda image: mb.dense(image, 2), (x, y), batch_size=4, learners=1, name="a", stop={"epochs": 2},
    resume=fitted.summary.run,
)
assert len(mb.load(again.summary.run).history) > 1
"""


@pytest.mark.parametrize(
    "command",
    ["mpibow.train", "mpibow.evaluate runs/a test", "mpibow plot runs/a", "mpibow doctor", "mpibow.records inspect x"],
)
def test_a_working_directory_that_was_removed(tmp_path, command):
    script = f"cd {tmp_path} && mkdir gone && cd gone && rmdir {tmp_path}/gone && exec {sys.executable} -m {command}"
    done = run(["sh", "-c", script])
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: the working directory was removed; cd to another one"
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(find_spec("coverage") is not None, reason="numba imports coverage, which needs a working directory")
def test_fit_where_the_working_directory_was_removed(tmp_path):
    """With whole paths all goes well."""
    (tmp_path / "fit.py").write_text(f"import os, shutil\nos.chdir({str(tmp_path)!r})\nos.mkdir('gone')\n"
                                     f"os.chdir('gone')\nos.rmdir('../gone')\n{FIT}")  # fmt: skip
    well(run([sys.executable, str(tmp_path / "fit.py"), str(tmp_path / "runs")]))


@pytest.mark.parametrize("name", ["été-日本".encode(), b"no-utf8-\xe9"])
@pytest.mark.parametrize("variables", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}])
def test_names_beyond_ascii(tmp_path, variables, name):
    (tmp_path / "fit.py").write_text(FIT, "utf-8")
    well(run([sys.executable, "fit.py", os.fsdecode(name)], cwd=tmp_path, env=variables))
    (folder,) = (tmp_path / os.fsdecode(name)).iterdir()
    assert b"run directory " in (folder / "log.txt").read_bytes()


def test_a_locale_that_lacks_a_name(tmp_path):
    """It was asked for: Python itself takes C for UTF-8."""
    (tmp_path / "fit.py").write_text(FIT, "utf-8")
    ascii_alone = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    text = "exec(open('fit.py', encoding='utf-8').read().replace('sys.argv[1]', repr('\\xe9')))"
    done = run([sys.executable, "-c", text], cwd=tmp_path, env=ascii_alone)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("mpibow.errors.OutputError: out: \\xe9/a-")
    assert "cannot be made: the locale's encoding, ascii, lacks characters of its name: use a locale of utf-8" in last


@needs_mpi
def test_ranks_whose_message_names_a_file_that_is_no_utf8(tmp_path):
    (tmp_path / "run.py").write_text("from mpibow.train import main\nmain(['\\udce9.yaml'])\n")
    done = mpirun(2, "run.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("error: \\udce9.yaml: cannot be read: no such file or directory") == 1
