"""TensorBoard's event files, in the run directory: `tensorboard --logdir runs` shows all runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

FLUSH = 10  # seconds


class TensorBoard:
    """Steps are samples, so that runs with other numbers of learners lie over each other.

    A run that is continued at sample `begin` takes back what was written behind it.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], begin: int) -> None:
        from tensorboardX import SummaryWriter

        purge = {"purge_step": begin + 1} if begin else {}
        self._writer: Any = SummaryWriter(
            str(folder), flush_secs=FLUSH, write_to_disk=True, filename_suffix=f".{begin:012d}", **purge
        )  # without a suffix, a run that is continued within a second would write over its file
        if not begin:
            self._writer.add_text("settings", "\n".join(f"    {line}" for line in str(settings["text"]).splitlines()))

    def add(self, numbers: Mapping[str, float], samples: int) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, samples)

    def close(self) -> None:
        self._writer.close()
