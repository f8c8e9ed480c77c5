"""What messages tell people to type."""

from pathlib import Path

from mpibow import errors
from mpibow.errors import install

FOLDER = Path(errors.__file__).resolve().parents[1]


def test_an_extra_comes_from_the_folder_that_mpibow_runs_from(tmp_path, monkeypatch):
    monkeypatch.chdir(FOLDER)
    assert install("cuda") == "pip install -e '.[cuda]'"
    monkeypatch.chdir(tmp_path)
    assert install("cuda") == f"pip install -e '{FOLDER}[cuda]'"


def test_an_extra_of_a_copy_comes_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "mpibow/errors.py"))
    assert install("plot") == "pip install 'mpibow[plot]'"
