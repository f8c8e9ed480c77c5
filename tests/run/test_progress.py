"""The progress line on a terminal, and the lines in its place where there is none."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from mpibow.run.output import Line


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("samples", "end", "expected"),
    [
        (250, 1000.0, r" 25%|███         | epoch 2.50 eta \d\d:\d\d"),
        (1004, 1000.0, r"100%|████████████| epoch 2.50 eta 00:00"),  # the last iteration passes it
        (250, None, "epoch 2.50"),
        (250, 1e300, "epoch 2.50"),  # stop.epochs that mean for ever
    ],
)
def test_how_far_a_run_is(monkeypatch: pytest.MonkeyPatch, samples: int, end: float | None, expected: str) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    line = Line(None, 0)
    line.show(samples, "epoch 2.50", 100.0, end)
    line.close()
    last = re.split("[\r\n]+", terminal.getvalue().rstrip())[-1]
    assert re.fullmatch(expected.replace("|", r"\|"), last.rstrip()), last


@pytest.mark.parametrize(
    ("end", "expected"),
    [(1000.0, ", eta 0:00:08"), (200.0, ", eta 0:00:00"), (1e10, ", eta 1157 days, 9:46:38"), (1e300, ""), (None, "")],
)
def test_what_is_left_in_a_log(capsys: pytest.CaptureFixture[str], end: float | None, expected: str) -> None:
    Line(None, 0).show(250, "epoch 2.50", 100.0, end)
    assert capsys.readouterr().err == f"epoch 2.50{expected}\n"


def test_below_a_cell_of_a_notebook_the_line_is_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jupyter's stream is no terminal, and writes a line again after a carriage return as one."""
    cell = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setattr(sys, "stderr", cell)
    line = Line(None, 0)
    line.show(250, "epoch 2.50", 100.0, 1000.0)
    line.show(500, "epoch 5.00", 100.0, 1000.0)
    line.close()
    assert re.search(r"\r 50%\|[█#]{6}      \| epoch 5.00 eta \d\d:\d\d", cell.getvalue())


def test_a_quiet_line_writes_the_log_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = Line(tmp_path / "log.txt", 0, quiet=True)
    line.note("a note")
    line.close()
    assert capsys.readouterr() == ("", "")
    assert (tmp_path / "log.txt").read_text().endswith(" a note\n")
