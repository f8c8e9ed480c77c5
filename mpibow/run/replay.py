"""What a run's metrics say of its learners, and how they ran, so that another run can have the same."""

from __future__ import annotations

import json
from pathlib import Path

from mpibow.data.timeline import Counts, Timeline, fixed
from mpibow.errors import ConfigError


def recorded(run: Path, ranks: int, batch: int) -> Timeline:
    """The timeline of the run in folder `run`, for batches of `batch`. Raises ConfigError where there is none.

    A run that was resumed with other learners, or another rule, began to average anew there, which this does not say.
    """
    path = run / "metrics.jsonl"
    try:
        *lines, _ = path.read_bytes().split(b"\n")  # a run that was killed may end within a line
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"learners: {path}: cannot be read: {reason}; replay(RUN) takes a run directory") from None
    found = (_change(line, f"{path}: line {number}") for number, line in enumerate(lines, 1))
    changes = [change for change in found if change is not None]
    if not changes or changes[0][0] != 0:
        raise ConfigError(f"learners: {path}: does not say with how many learners the run began")
    (_, first, execution), *later = changes
    if len(first) != ranks:
        raise ConfigError(f"learners: {run} had {len(first)} rank(s), got {ranks}; start as many")
    timeline = fixed(batch, first, execution=execution)
    for iteration, counts, execution in later:
        last = timeline.changes[-1]
        if (counts, execution) != (last.counts, last.execution):  # the run may have been resumed, which is no change
            timeline = timeline.announce(iteration, counts, execution)
    return timeline


def _change(line: bytes, where: str) -> tuple[int, Counts, str] | None:
    try:
        event = json.loads(line)
        if event["event"] not in ("start", "learners", "execution"):
            return None
        return event["iteration"], tuple(event["learners"]), event.get("execution", "")
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"learners: {where} is no event of a run") from None
