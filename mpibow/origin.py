"""Where a run begins: a new run directory, or a checkpoint; what all ranks must agree on first."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpibow.comm.binding import allowed_cores, binding_limit, binding_warning, machine_cores
from mpibow.comm.communicator import Communicator
from mpibow.comm.launch import find_launcher
from mpibow.config import Config, document, dump
from mpibow.config.strict import plain
from mpibow.data.timeline import Timeline, fixed
from mpibow.errors import CommunicationError, ConfigError
from mpibow.graph.plan import Plan
from mpibow.job import Job
from mpibow.run import checkpoint, directory
from mpibow.run.replay import differing, recorded, resumed_with
from mpibow.tune import Counts, as_sum


@dataclass(frozen=True)
class Origin:
    """The run's folder, the checkpoint that it continues (its path and header) if any, and what is to be said."""

    folder: Path
    checkpoint: Path | None = None
    header: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    other: tuple[str, ...] = ()  # settings that its numbers depend on, and that were others before


def find_origin(job: Job, comm: Communicator, resume: str | None) -> Origin:
    """Decided by rank 0 for all. `resume`: None, a run directory, a checkpoint, or 'auto', the newest run of `out`."""
    origin: Origin = directory.on_rank_0(lambda f: f(comm), comm.rank, lambda: _find(job, resume))
    return origin


def _find(job: Job, resume: str | None) -> Origin:
    config, notes = job.config, list[str]()
    out = Path(config.out)
    start = directory.latest(out, config.name) if resume == "auto" else Path(resume) if resume else None
    if start is not None:
        path, header = checkpoint.choose(start, notes.append)
        notes.append(f"continuing {path} at iteration {header['iteration']}")
        folder, then = path.parent.parent, document.parse(header["config"], str(path))
        other = tuple(name for name in differing(then, plain(config)) if name != "rule")  # of which more is said
        if other:
            notes.append(f"with another {', '.join(other)} than before")
        return Origin(folder, path, header, tuple(notes), other)
    if resume == "auto":
        notes.append(f"nothing to resume in {out}: a new run")
    if isinstance(config.learners, str) and config.learners != "auto":
        notes += _replayed(replayed_run(config.learners), job)
    folder = directory.create(out, config.name, job.title, again=resume == "auto")
    directory.write(folder / "config.yaml", dump(config))
    return Origin(folder, notes=tuple(notes))


def learner_counts(learners: str | int | tuple[int, ...], ranks: int) -> Counts:
    """Learners by rank to begin with. Raises ConfigError where they do not fit the ranks, or a run to replay."""
    return first_timeline(learners, ranks, batch=1).changes[0].counts


def first_timeline(learners: str | int | tuple[int, ...], ranks: int, batch: int) -> Timeline:
    """What a new run's settings say of its learners. `auto` begins with one a rank."""
    if isinstance(learners, str) and learners != "auto":
        return recorded(replayed_run(learners), ranks, batch)
    counts = (1,) * ranks if learners == "auto" else (learners,) * ranks if isinstance(learners, int) else learners
    assert not isinstance(counts, str)
    if len(counts) != ranks:
        raise ConfigError(
            f"learners: must have one number for each of {ranks} rank(s), got {list(counts)}; "
            f"start {len(counts)} ranks or give {ranks} number(s)"
        )
    return fixed(batch, counts)


def replayed_run(learners: str) -> Path:
    """RUN of replay(RUN)."""
    return Path(learners.removeprefix("replay(").removesuffix(")"))


def _replayed(run: Path, job: Job) -> list[str]:
    """Why this will not be the bits of `run`, as far as settings say."""
    path, why = run / "config.yaml", list[str]()
    now = plain(job.config)
    other = ", ".join(differing(document.read(path), now)) if path.exists() else "config.yaml, as it has none"
    if other:
        why.append(f"with another {other}")
    if on_the_way := ", ".join(resumed_with(run)):
        why.append(f"which was resumed with another {on_the_way}")
    if job.config.assignment == "first_come" and job.kernels.gpu is None:
        why.append("with assignment: first_come")
    return [f"replaying {run}, {', '.join(why)}: its learners, but not its bits"] if why else []


def check_alike(comm: Communicator, text: str) -> None:
    """All ranks train the same model with the same settings, else their flat arrays must not be added up."""
    sums = comm.share(hashlib.sha256(text.encode()).hexdigest())
    odd = next((rank for rank, found in enumerate(sums) if found != sums[0]), None)
    if odd is not None:
        raise CommunicationError(f"rank {odd}: has another config or model than rank 0; start all ranks with the same")


def started(config: Config, first: Timeline) -> list[Any]:
    """With which learners a run begins that begins with `first`: a resumed run goes on where this is the same."""
    counts = list(first.changes[0].counts)
    return [config.learners, len(counts)] if isinstance(config.learners, str) else counts


def anew(header: Mapping[str, Any], config: Config, first: Timeline) -> list[str]:
    """Why averaging begins anew from a checkpoint: its run's learners or rule were others; [] where it goes on."""
    defaults = plain(type(config.rule)())  # which an older checkpoint's rule had, where it does not say
    learners, rule = header["started"] != started(config, first), {**defaults, **header["rule_settings"]}
    return [f"learners were {as_sum(header['counts'])}"] * learners + ["the rule was another"] * (
        rule != plain(config.rule)
    )


def identity(job: Job, plan: Plan) -> dict[str, Any]:
    """What a checkpoint must have in common with the run that continues it."""
    return {
        "seed": job.config.seed,
        "precision": plan.weight_dtype,  # any device goes on in its own, of weights that are these
        "layout": plan.layout.canonical().digest(),
        "train_samples": job.train.count,
    }


def core_warnings(comm: Communicator, counts: Counts) -> list[str]:
    """What every rank has to say about its cores and learners, once each."""
    own = binding_warning(allowed_cores(), machine_cores(), counts[comm.rank], comm.local_size, _launcher())
    return list(dict.fromkeys(f"warning: {text}" for text in comm.share(own) if text))


def memory_warnings(comm: Communicator, counts: Counts, room: int) -> list[str]:
    """The ranks that have more learners than there is `room` for: the system grants memory that it does not have."""
    return [
        f"warning: rank {rank} has memory for about {fitting} of its {k} learners: use fewer, or learners=auto"
        for rank, (fitting, k) in enumerate(zip(comm.share(room), counts, strict=True))
        if fitting < k
    ]


def core_limits(comm: Communicator, counts: Counts) -> list[str]:
    """The first rank that its binding keeps from more than the learners which were settled on, and how many do so."""
    own = binding_limit(allowed_cores(), machine_cores(), counts[comm.rank], comm.local_size, _launcher())
    bound = [(rank, text) for rank, text in enumerate(comm.share(own)) if text]
    more = f" ({len(bound)} ranks are)" if len(bound) > 1 else ""
    return [f"tuner: rank {rank} has {text}{more}" for rank, text in bound[:1]]


def _launcher() -> str:
    launcher = find_launcher(os.environ)
    return launcher.name if launcher else ""
