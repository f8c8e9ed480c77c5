"""The progress line on a terminal."""

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
