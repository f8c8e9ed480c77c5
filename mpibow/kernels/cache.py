"""The folder of the kernels that are compiled for this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The user's cache."""
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mpibow"
