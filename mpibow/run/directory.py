"""The run directory: config.yaml, metrics.jsonl, log.txt, summary.json and checkpoints/, one folder a run."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from mpibow.comm.communicator import Call
from mpibow.errors import EXIT_STALLED, CommunicationError, MpibowError, OutputError
from mpibow.system import reason, refusal, whole_file

T = TypeVar("T")
ELSEWHERE = "choose another place with out=DIR"
KILLED = 137  # as a shell gives for SIGKILL: for its memory, or a launcher that hung
PASSING = (CommunicationError.code, EXIT_STALLED, KILLED)
MOST = 3  # starts without a new checkpoint between them


def create(out: Path, name: str, title: str, *, again: bool = False) -> Path:
    """A new folder in `out`: `name`, or one made of `title` and the time where it is 'auto'.

    With `again` a folder `name` may be there: of a run that came to no checkpoint.
    """
    stem = f"{title}-{time.strftime('%Y%m%d-%H%M%S')}" if name == "auto" else name
    for suffix in ("", *(f"-{i}" for i in range(2, 1000))):
        path = out / f"{stem}{suffix}"
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            if name == "auto":
                continue
            if path.is_dir() and (again or not any(path.iterdir())):
                return path
            raise MpibowError(
                f"name: {path} exists already; continue it with --resume {path}, or choose another name"
            ) from None
        except (OSError, UnicodeEncodeError) as error:
            raise OutputError(f"out: {path} cannot be made: {reason(error)}; {ELSEWHERE}") from error
    raise MpibowError(f"out: {out} is full of runs named {stem}; set name= to another name")


def latest(out: Path, name: str, pattern: str = "*") -> Path | None:
    """The run directory in `out` with the newest checkpoint: `name`, or where that is 'auto' one of this pattern."""
    folders = [out / name] if name != "auto" else list(out.glob(pattern)) if out.is_dir() else []
    found = [
        (max(p.stat().st_mtime for p in points), folder) for folder in folders if (points := list(_points(folder)))
    ]
    return max(found)[1] if found else None


def _points(folder: Path) -> Iterator[Path]:
    return folder.glob("checkpoints/iteration-*/checkpoint.json")


def write(path: Path, content: str | bytes, remedy: str = "") -> None:
    """Writes a small file whole or not at all. Raises OutputError, which ends with `remedy`."""
    with refusal(OutputError, path, remedy=remedy), whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def on_rank_0(call: Call, work: Callable[[], T]) -> T:
    """The result of `work` on rank 0, returned on every rank; where it raised there, all raise the same error."""
    outcome: list[T] | MpibowError = []
    if call(lambda comm: comm.rank) == 0:
        try:
            outcome = [work()]
        except MpibowError as error:
            outcome = error
    result = call(lambda comm: comm.share(outcome))[0]
    if isinstance(result, MpibowError):
        raise result
    return result[0]


def may_start_again(code: int, folder: Path) -> bool:
    """Whether the run in `folder`, which ended with `code`, may be started again; a file beside the folder counts this.

    It may after a code of PASSING, MOST times without a new checkpoint.
    """
    if code not in PASSING:
        return False
    last = max((path.parent.name for path in _points(folder)), default=None)
    file = folder.with_name(f"{folder.name}.failures.json")
    failures = 1
    with suppress(OSError, ValueError):
        before = json.loads(file.read_text())
        failures += before["failures"] if before.get("checkpoint", "") == last else 0
    file.parent.mkdir(parents=True, exist_ok=True)
    write(file, json.dumps({"checkpoint": last, "failures": failures}) + "\n")
    return failures <= MOST
