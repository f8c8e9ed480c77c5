"""The progress of a run: one live line on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from tqdm import tqdm

from mpibow.run.events import Lines, cannot_write
from mpibow.system.streams import is_live

PLAIN_EVERY = 10.0  # seconds between lines where the output is no terminal
FOREVER = 1e9  # seconds; the end of a longer run is not shown


class Line:
    """A tqdm bar on a terminal and in a notebook, else a line every few seconds. Notes also go to log.txt.

    With `quiet` they go there alone; without `log`, on ranks that print nothing, nowhere.
    """

    def __init__(self, log: Path | None, position: int, *, quiet: bool = False) -> None:
        self._log = None
        if log is not None:
            try:
                log.open("ab").close()
            except OSError as error:
                raise cannot_write(log, error) from error
            self._log = Lines(log, lambda: log.open("ab", buffering=0), self._say)
        self._quiet = quiet
        self._live = is_live(sys.stderr) and not quiet
        self._bar: Any = None
        self._position = position
        self._shown = 0.0

    def note(self, text: str) -> None:
        """A line that stays."""
        self._say(text)
        if self._log is not None:
            self._log.add(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")

    def _say(self, text: str) -> None:
        if not self._quiet:
            tqdm.write(text, file=sys.stderr)
            sys.stderr.flush()

    def show(self, samples: int, text: str, speed: float, end: float | None) -> None:
        """Shows progress: samples consumed, the rest as text, samples/s, and the samples at its end if known."""
        if end is not None and end - samples > FOREVER * speed:
            end = None
        if self._live:
            if self._bar is None:
                self._bar = tqdm(initial=self._position, dynamic_ncols=True)
            self._bar.bar_format = "{desc}" if end is None else "{percentage:3.0f}%|{bar:12}| {desc} eta {remaining}"
            self._bar.total = None if end is None else max(end, samples)  # beyond its total, tqdm has no remaining time
            self._bar.set_description_str(text, refresh=False)
            self._bar.update(samples - self._position)
            self._position = samples
        elif time.monotonic() - self._shown > PLAIN_EVERY:
            self._shown = time.monotonic()
            left = "" if end is None else f", eta {_clock((end - samples) / max(speed, 1e-9))}"
            self.note(text + left)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
        if self._bar is not None:
            self._bar.close()


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(max(seconds, 0))))
