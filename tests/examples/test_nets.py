"""The nets of examples/ are short, learn alone and on two ranks, and resume with the same bits."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mpibow as mb
from mpibow.run.signals import Signals
from mpibow.session.session import Session
from tests.launching import mpirun, needs_mpi

FOLDER = Path(__file__).parents[2] / "examples"
PRINTED: dict[str, tuple[float, float]] = {  # the least and most that it may print
    "char_gpt": (0.0, 1.0),  # a loss; 2.6 is that of the text's characters by their frequency
    "lstm_classifier": (0.8, 1.0),  # an accuracy; chance is 0.25
    "unet": (0.0, 0.3),  # a loss; 0.37 is that of classes by their frequency
    "squeeze_excite": (0.6, 1.0),  # an accuracy; chance is 0.1
    "table_mlp": (0.0, 0.4),  # a loss; 1 is that of the mean
}
NETS = [*PRINTED, "tiny_vit"]
CUT, END = 7, 12  # iterations


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Runs an example, as a program in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(name: str) -> None:
        monkeypatch.setattr(sys, "argv", [str(FOLDER / f"{name}.py")])
        runpy.run_path(sys.argv[0], run_name="__main__")

    return run


@pytest.mark.parametrize("name", NETS)
def test_it_has_forty_lines(name: str) -> None:
    lines = (FOLDER / f"{name}.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 40


@pytest.mark.parametrize("name", PRINTED)
def test_alone(name: str, program: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    program(name)
    least, most = PRINTED[name]
    assert least <= float(capsys.readouterr().out) <= most


@needs_mpi
@pytest.mark.parametrize("name", PRINTED)
def test_on_two_ranks(name: str, tmp_path: Path) -> None:
    done = mpirun(2, str(FOLDER / f"{name}.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    least, most = PRINTED[name]
    assert least <= float(done.stdout) <= most


class Killed(BaseException):
    """What nothing catches: whatever is on disk stays as it is."""


@pytest.mark.parametrize("name", NETS)
def test_killed_and_resumed(name: str, program: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits as of a run that was never killed, of two learners."""
    calls, train = list[tuple[Any, Any]](), mb.fit
    with monkeypatch.context() as patched:
        patched.setattr(mb, "fit", lambda *given, **settings: calls.append((given, settings)) or Other())
        program(name)
    ((given, settings),) = calls
    settings |= {"stop": {"iterations": END}, "checkpoint": {"every": "5 iterations"}, "evaluate": {"every": 100.0}}
    whole = train(*given, **settings, out="whole")
    module = sys.modules["mpibow.train"]
    iterate = module.iterate

    def killing(session: Session, signals: Signals) -> None:
        if session.iteration == CUT:
            raise Killed
        iterate(session, signals)

    with monkeypatch.context() as patched:
        patched.setattr(module, "iterate", killing)
        with pytest.raises(Killed):
            train(*given, **settings, out="cut")
    again = train(*given, **settings, out="cut", resume="auto")
    assert again.summary.iterations == END
    assert {key: array.tobytes() for key, array in again.weights.items()} == {
        key: array.tobytes() for key, array in whole.weights.items()
    }


class Other:
    """What `fit` gives to a rank that prints nothing."""

    rank = 1
