"""The progress line on a terminal, and the lines in its place where there is none."""

from __future__ import annotations

import io
import re
import sys

import pytest

from mpibow.run.progress import Line


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
