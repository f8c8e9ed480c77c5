"""Weights & Biases; offline, as WANDB_MODE=offline asks, its files lie in the run directory until `wandb sync`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LONGEST = 64  # characters of a run's id


class Wandb:
    """A run of the name of the run directory; one that is continued goes on there. Its x axis is samples."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], begin: int) -> None:
        import wandb

        name = folder.resolve().name
        config = {key: value for key, value in settings.items() if key != "text"}
        self._run: Any = wandb.init(
            dir=str(folder), name=name, id=re.sub(r"[^A-Za-z0-9_-]", "-", name)[-LONGEST:], config=config,
            resume="allow", settings=wandb.Settings(silent=True, console="off"),
        )  # fmt: skip
        self._run.define_metric("samples")
        self._run.define_metric("*", step_metric="samples")

    def add(self, numbers: Mapping[str, float], samples: int) -> None:
        self._run.log({**numbers, "samples": samples})

    def close(self) -> None:
        self._run.finish()
