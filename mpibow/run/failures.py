"""How often a run has failed since its last checkpoint: a lost node or rank is worth another start, up to a limit."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpibow.errors import EXIT_STALLED, CommunicationError
from mpibow.run.directory import write

KILLED = 137  # as a shell gives for SIGKILL: for its memory, or a launcher that hung
PASSING = (CommunicationError.code, EXIT_STALLED, KILLED)
MOST = 3


def may_start_again(code: int, folder: Path) -> bool:
    """Whether the run in `folder`, which ended with `code`, may be started again; a file beside the folder counts this.

    It may after a code of PASSING, MOST times without a new checkpoint.
    """
    if code not in PASSING:
        return False
    last = max((path.parent.name for path in folder.glob("checkpoints/iteration-*/checkpoint.json")), default=None)
    file, before = folder.with_name(f"{folder.name}.failures.json"), dict[str, Any]()
    with suppress(OSError, ValueError):
        before = json.loads(file.read_text())
    failures = before["failures"] + 1 if before.get("checkpoint", "") == last else 1
    file.parent.mkdir(parents=True, exist_ok=True)
    write(file, json.dumps({"checkpoint": last, "failures": failures}) + "\n")
    return failures <= MOST
