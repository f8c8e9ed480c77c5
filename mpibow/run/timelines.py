"""The learners of a run to come: by its settings, as its checkpoint has them, or as another run had them."""

import json
from pathlib import Path

from mpibow.config import Config, plain, yaml_text
from mpibow.config.renamed import renamed
from mpibow.data import Change, Timeline, fixed, following
from mpibow.errors import ConfigError
from mpibow.job import Job
from mpibow.system import JsonObject, read_file, refusal
from mpibow.tune import as_sum

from .header import Header

# Settings that a run's numbers depend on.
OF_NUMBERS = (
    "model",
    "data",
    "batch_size",
    "assignment",
    "rule",
    "loss",
    "update",
    "device",
    "onednn",
    "precision",
    "execution",
    "on_nan",
    "seed",
    "transport",
)


def first_timeline(config: Config, ranks: int) -> Timeline:
    """The timeline of a new run's learners, by its settings. `auto` begins with one a rank.

    Raises ConfigError where they do not fit the ranks, the rule, or a run to replay.
    """
    learners = config.learners
    batch = config.batch_size
    if config.replayed is not None:
        timeline = recorded(config.replayed, ranks, batch)
    elif isinstance(learners, tuple) and len(learners) != ranks:
        raise ConfigError(
            f"learners: must have one number for each of {ranks} rank(s), got {list(learners)}; "
            f"start {len(learners)} ranks or give {ranks} number(s)"
        )
    else:
        each = 1 if isinstance(learners, str) else learners
        timeline = fixed(batch, each if isinstance(each, tuple) else (each,) * ranks)
    for change in timeline.changes:
        config.averaging.check(sum(change.counts))
    return timeline


def replay_note(run: Path, job: Job) -> str:
    """A note with the settings that keep this run from the bits of `run`; '' for none."""
    path = run / "config.yaml"
    why = []
    other = "config.yaml, which is missing"
    if path.exists():
        other = ", ".join(differing(renamed(yaml_text.read(path)), plain(job.config)))
    if other:
        why.append(f"different {other}")
    changed = {  # where the run was resumed
        name
        for line in read_file(run / "metrics.jsonl").split(b"\n")[:-1]
        if (event := json.loads(line))["event"] == "start"
        for name in event.get("other", ())
    }
    if on_the_way := ", ".join(name for name in OF_NUMBERS if name in changed):
        why.append(f"resumed with different {on_the_way}")
    if job.config.assignment == "first_come" and not job.device.enqueues:
        why.append("assignment: first_come")
    text = f"replaying the learners of {run}, but the results will not be bit-identical: {', '.join(why)}"
    return text if why else ""


def timeline_of(header: Header, started: list[int | str], first: Timeline) -> Timeline:
    """The timeline to go on with: the checkpoint's own where the run was `started` alike, else `first` from here on.

    A replay's checkpoint has no future changes; `first` has them.
    """
    if list(header.started) == started and header.batch_size == first.batch:
        return Timeline(first.batch, header.timeline).followed(first)
    now = first.change(header.iteration)
    return fixed(first.batch, now.counts, header.iteration, header.position, now.execution).followed(first)


def recorded(run: Path, ranks: int, batch: int) -> Timeline:
    """The timeline of the run in folder `run`, for batches of `batch`.

    Raises ConfigError where there is none, and where the run was resumed with other learners or ranks, or another rule:
    it began to average anew there, which a timeline does not record.
    """
    path = run / "metrics.jsonl"
    with refusal(ConfigError, f"learners: {path}", "read", "replay(RUN) takes a run directory"):
        *lines, _ = read_file(path).split(b"\n")  # a run that was killed may end within a line
    changes = list[Change]()
    for number, line in enumerate(lines, 1):
        where = f"learners: {path}: line {number}"
        if (event := _read(line, where)) is not None:
            _follow(changes, batch, event, where)
    if not changes or changes[0].iteration != 0:
        raise ConfigError(f"learners: {path}: has no number of learners for the start of the run")
    if (had := len(changes[0].counts)) != ranks:
        raise ConfigError(f"learners: {run} had {had} rank(s), got {ranks}; start as many")
    return Timeline(batch, tuple(changes))


def differing(then: JsonObject, now: JsonObject) -> list[str]:
    """The settings that make a run's numbers differ from those of the run that it replays."""
    return [name for name in OF_NUMBERS if then.get(name) != now.get(name)]


def _follow(changes: list[Change], batch: int, event: JsonObject, where: str) -> None:
    """Adds the event's change. A run may have very many, so only the last one is read again."""
    iteration = event["iteration"]
    counts = tuple(event["learners"])
    execution = event.get("execution", "")
    if not changes:
        changes.append(Change(iteration, 0, counts, execution))
        return
    last = changes[-1]
    if event["event"] == "start" and (event.get("anew", False) or counts != last.counts):
        raise ConfigError(
            f"{where}: the run was resumed at iteration {iteration} with learners {as_sum(counts)} where it had "
            f"{as_sum(last.counts)}, or with another rule, and began to average anew: it cannot be replayed, give one "
            "that can"
        )
    if (counts, execution) == (last.counts, last.execution):  # as it was before it was resumed
        return
    if iteration < max(last.iteration, 1) or len(counts) != len(last.counts):
        raise ConfigError(f"{where} is not an event of a run")
    if iteration == last.iteration:  # resumed where learners or their execution change next: the last one holds
        changes.pop()
    changes.append(following(batch, changes[-1], iteration, counts, execution))


def _read(line: bytes, where: str) -> JsonObject | None:
    """The line's event, None if it has no learners."""
    try:
        event: JsonObject = json.loads(line)
        if event["event"] not in ("start", "learners", "execution"):
            return None
        counts = event["learners"]
        if counts and all(isinstance(k, int) and k >= 1 for k in (*counts, event["iteration"] + 1)):
            return event
    except (ValueError, KeyError, TypeError):
        pass
    raise ConfigError(f"{where} is not an event of a run")
