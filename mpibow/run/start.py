"""The start of a run: a new run directory or a checkpoint, its state, and what it takes over."""

import json
import platform
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path

import numpy as np

from mpibow.comm import Communicator
from mpibow.comm.launch import say
from mpibow.config import Config, build, plain, yaml_text
from mpibow.config.renamed import renamed
from mpibow.data import Timeline
from mpibow.data.sample_weights import checksum
from mpibow.errors import ConfigError, OutputError
from mpibow.graph import Array, ArraysByName, Layout, Plan, initial_weights
from mpibow.job import Job
from mpibow.job.document import buffers_of
from mpibow.job.normalise import input_entries
from mpibow.optim import Update
from mpibow.optim.groups import frozen_for, parts_of
from mpibow.run import directory, lock, saving
from mpibow.sync import PRESETS
from mpibow.system import JsonObject
from mpibow.tune import Counts, as_sum

from .alike import from_rank_0
from .checkpoint import read_arrays
from .header import Header, check_fits, open_checkpoint
from .state import read_centre
from .stored import check_buffers, read_first, taken_by
from .timelines import differing, replay_note, timeline_of


@dataclass(frozen=True)
class Source:
    """The run's folder, the checkpoint that it continues (its path and header) if any, and lines for the log.

    `token` recognises the run's lock of the folder (run/lock.py).
    """

    folder: Path
    checkpoint: Path | None = None
    header: Header | None = None
    notes: tuple[str, ...] = ()
    other: tuple[str, ...] = ()  # changed settings that its numbers depend on
    weights: ArraysByName = field(default_factory=dict)  # trained ones that a new run starts from, by name
    token: str = ""


@dataclass(frozen=True)
class Start:
    """The state that a process begins with: a new run's, or that of the checkpoint of `source`.

    `changed` are the differences from the checkpoint that make averaging start again from its `centre`.
    """

    source: Source
    iteration: int
    timeline: Timeline
    centre: Array  # (layout.size,)
    statistics: Array  # (statistics.size,), the centre's
    changed: tuple[str, ...] = ()
    first: Array | None = None  # (statistics.size,) of a replica that is reset; None: random weights'

    @property
    def exact(self) -> bool:
        """Whether a checkpoint is continued bit for bit, replicas included."""
        return self.source.header is not None and not self.changed

    @property
    def kept(self) -> Header | None:
        """The checkpoint's header, if averaging and the tuner continue from it; None where they begin anew."""
        return self.source.header if self.exact else None

    @property
    def facts(self) -> JsonObject:
        """The part of a start's entry for a continued run: `anew` if averaging begins anew, `other` settings."""
        return ({"anew": True} if self.changed else {}) | ({"other": self.source.other} if self.source.other else {})

    @property
    def restarts(self) -> str:
        """The log's line where averaging starts again, '' where it goes on."""
        if not self.changed or self.source.header is None:
            return ""
        rule = self.source.header.rule_settings
        preset = PRESETS.get(str(rule.get("name")), {})
        period = preset.get("period", 1) if rule.get("period", "auto") == "auto" else rule["period"]
        known = preset and rule.get("then") is None and isinstance(period, int) and period > 0
        waiting = self.source.header.rule.turn % period if known else 0
        left = f", without the steps of {waiting} iterations that waited for the end of their period" * bool(waiting)
        return f"{', '.join(self.changed)}: averaging restarts from the centre{left}, and the optimiser's states are 0"

    @property
    def learners(self) -> tuple[Counts, str]:
        """Learners by rank to begin with, and their execution on a GPU: the checkpoint's, else the timeline's."""
        if self.kept is None:
            now = self.timeline.change(self.iteration)
            return now.counts, now.execution
        before = self.timeline.change(max(self.iteration - 1, self.timeline.changes[0].iteration))
        return self.kept.counts, before.execution

    @property
    def due(self) -> tuple[bool, bool, bool]:
        """Whether the ranks were about to talk, to agree after a reset, to evaluate, when the checkpoint was made."""
        return (False, False, False) if self.source.header is None else self.source.header.due


def find_source(job: Job, plan: Plan, comm: Communicator, resume: str | None, stack: ExitStack) -> Source:
    """Decided by rank 0 for all. `resume`: None, a run directory, a checkpoint, or 'auto', the newest run of `out`.

    `stack` gives the run directory free for others. Raises OutputError where a rank does not see it.
    """
    weights = dict[str, Array]()  # which rank 0 reads
    source = directory.on_rank_0(lambda f: f(comm), lambda: _find(job, plan, resume, weights, stack))
    hosts = comm.share((platform.node(), comm.rank == 0 or lock.sees(source.folder, source.token)))
    for rank, (host, seen) in enumerate(hosts):
        if not seen:
            raise OutputError(
                f"out: rank {rank} on host {host} does not see {source.folder}, which rank 0 made on host "
                f"{hosts[0][0]}, and each rank writes its part of a checkpoint there; set out=DIR to a directory that "
                "all nodes share"
            )
    return replace(source, weights=from_rank_0(weights, comm))


def _find(job: Job, plan: Plan, resume: str | None, weights: dict[str, Array], stack: ExitStack) -> Source:
    """Finds the source on rank 0. Enters the weights that a new run starts from in `weights`."""

    def locked(folder: Path) -> str:
        held = lock.Lock(folder, say)
        stack.callback(held.close)
        return held.token

    config = job.config
    notes = list[str]()
    out = Path(config.out)
    # The runs of a program are told apart by their title alone, which begins the names that `create` gives them.
    runs = f"{escape(job.title)}-20??????-??????*" if config.model is None else "*"
    start = directory.latest(out, config.name, runs) if resume == "auto" else Path(resume) if resume else None
    if start is not None:
        newest = next(saving.find(start), None)
        token = "" if newest is None else locked(newest.parent.parent)
        path, header = open_checkpoint(start, notes.append)
        saving.clear(path.parent)
        notes.append(f"continuing {path} at iteration {header.iteration}")
        folder = path.parent.parent
        then = renamed(yaml_text.parse(header.config, str(path)))
        if config.name not in ("auto", then.get("name"), folder.name):
            raise ConfigError(
                f"name: {config.name} is another run, and {folder} is continued; leave it out, or start anew with "
                f"model.weights={path}"
            )
        other = tuple(name for name in differing(then, plain(config)) if name != "rule")  # which has a note of its own
        if other:
            notes.append(f"settings that differ from before: {', '.join(other)}")
        if job.given is not None:
            notes.append(f"{job.given.key}: the checkpoint's weights are taken, not those of {job.given.source}")
        return Source(folder, path, header, tuple(notes), other, token=token)
    if resume == "auto":
        notes.append(f"no run to resume in {out}: starting a new one")
    if config.replayed is not None:
        notes.append(replay_note(config.replayed, job))
    taken = taken_by(job, plan)
    folder = directory.create(out, config.name, job.title, again=resume == "auto")
    token = locked(folder)
    keep_settings(folder, job, directory.ELSEWHERE)
    if taken is not None:
        weights |= {name: np.array(array, plan.weight_dtype, order="C") for name, array in taken.arrays.items()}
        directory.write(folder / "weights.json", json.dumps(taken.entries(), indent=1) + "\n", directory.ELSEWHERE)
        notes.append(taken.told)
    return Source(folder, notes=tuple(notes), token=token)


def keep_settings(folder: Path, job: Job, remedy: str = "") -> None:
    """Writes settings, and files that they name, to the run's folder. Raises OutputError, which ends with `remedy`."""
    for name, content in {**job.files, "config.yaml": job.config.text.encode()}.items():
        directory.write(folder / name, content, remedy)


def start_of(source: Source, job: Job, plan: Plan, first: Timeline) -> Start:
    """The start from `source`, for the weights of `plan`; `first` has the learners that a new run would begin with.

    Raises CheckpointError where the checkpoint is another model's.
    """
    config = job.config
    header = source.header
    path = source.checkpoint
    if header is None or path is None:
        centre, statistics = (begun(layout, source.weights, plan, config) for layout in (plan.layout, plan.statistics))
        return Start(source, 0, first, centre, statistics, first=statistics.copy() if source.weights else None)
    check_fits(path, header, identity(job, plan))
    if buffers := job.build(1).buffers:
        theirs = buffers_of(header.graph, read_arrays(path, "input"))
        check_buffers(buffers, {name: each.array for name, each in theirs.items()}, str(path))
    timeline = timeline_of(header, started(config, first), first)
    changed = tuple(anew(header, config, first))
    known = read_first(path, header.files, plan.statistics.size)
    return Start(source, header.iteration, timeline, *read_centre(path, plan), changed, known)


def begun(layout: Layout, weights: ArraysByName, plan: Plan, config: Config) -> Array:
    """The flat array (layout.size,) that every replica starts from: trained weights if given, the others random."""
    new = initial_weights(layout, config.seed, plan.weight_dtype)
    return layout.packed({**layout.unpacked(new), **weights}, plan.weight_dtype) if weights else new


def lasting(job: Job, plan: Plan, first: Timeline) -> JsonObject:
    """The entries that all checkpoints of a run share, to continue or evaluate it."""
    return {
        **identity(job, plan),
        "started": started(job.config, first),
        "rule_settings": plain(job.config.averaging),
        "config": job.config.text,
        "input": input_entries(job.train, job.scaling, job.sources),
    }


def started(config: Config, first: Timeline) -> list[int | str]:
    """The learners that a run with timeline `first` begins with: a resumed run goes on where they are the same."""
    counts = first.changes[0].counts
    return [config.learners, len(counts)] if isinstance(config.learners, str) else [*counts]


def anew(header: Header, config: Config, first: Timeline) -> list[str]:
    """The reasons to begin averaging anew from a checkpoint, other learners or another rule; [] where it goes on."""
    reasons = [f"learners were {as_sum(header.counts)}"] * (list(header.started) != started(config, first))
    return reasons + ["the rule was different"] * (header.rule_settings != plain(config.averaging))


def identity(job: Job, plan: Plan) -> JsonObject:
    """The entries that a checkpoint must have in common with the run that continues it."""
    return {
        "seed": job.config.seed,
        "precision": plan.weight_dtype,  # of the weights: any device continues in its own
        "layout": plan.layout.canonical().digest(),
        "validation_fraction": job.held_out,
        "train_samples": job.train.count,
        "sample_weight": checksum(job.train),
        "contents": job.contents,
    }


def kept_states(text: str, config: Config, layout: Layout) -> tuple[str, ...]:
    """The states of `config`'s update that the run whose config is `text` (YAML) kept; others begin at 0.

    `layout` has the weights' names, which groups match. Another optimiser's are not taken over, whatever their names.
    """
    stored = dict(yaml_text.parse(text, "config").get("update") or {})
    try:
        before = build(type(config.update), stored)
    except ConfigError:  # another optimiser's settings
        return ()
    optimisers = *before.optimisers, *config.update.optimisers
    if _parts(before, layout) != _parts(config.update, layout) and any(each.counts for each in optimisers):
        return ()  # updates are counted by parts and optimisers that count, and these have changed
    kept = _states(before)
    return tuple(name for name in _states(config.update) if name in kept)


def _parts(update: Update, layout: Layout) -> list[tuple[object, ...]]:
    """Each weight's part, how long it is frozen, and its optimiser."""
    parts = parts_of(update.groups, [span.name for span in layout.spans])
    optimisers = {name: update.optimiser_of(name) for name in parts}
    return [
        (name, parts[name], frozen_for(update.groups, name), own.name, own.counts) for name, own in optimisers.items()
    ]


def _states(update: Update) -> list[str]:
    return list(dict.fromkeys(name for each in update.optimisers for name in each.states))


def fresh_states(text: str, config: Config, layout: Layout) -> str:
    """The log's line on states that the checkpoint lacks, '' where it has all."""
    kept = kept_states(text, config, layout)
    fresh = [name for name in _states(config.update) if name not in kept]
    return f"update: the checkpoint has no {', '.join(fresh)} of {config.update.name}: they begin at 0" if fresh else ""
