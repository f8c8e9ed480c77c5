"""Reading the trained weights that a new run starts from, and the statistics that its checkpoints keep of them."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from mpibow.errors import CheckpointError
from mpibow.graph.graph import Array
from mpibow.graph.plan import Plan
from mpibow.job import Job
from mpibow.job.given import Taken, take
from mpibow.run.checkpoint import read_arrays
from mpibow.session.stored import read_stored

FIRST = "first_statistics"  # the array's name in a checkpoint


def taken_by(job: Job, plan: Plan) -> Taken | None:
    """The arrays that the job's net takes from the weights given to it; None where none are given.

    Raises CheckpointError where they cannot be read, ConfigError where they do not fit.
    """
    if job.given is None:
        return None
    arrays = job.given.arrays
    if arrays is None:
        arrays = read_stored(job.given.weights.file).weights
    return take(job.given, arrays, {s.name: s.shape for layout in (plan.layout, plan.statistics) for s in layout.spans})


def read_first(path: Path, files: Container[str], size: int) -> Array | None:
    """The statistics (size,) that replicas of checkpoint `path` started from; None for random weights'."""
    found = read_arrays(path, "input").get(FIRST) if "input.safetensors" in files else None
    if found is not None and (found.shape != (size,) or found.dtype.kind != "f"):
        got = f"{found.dtype} {list(found.shape)}"
        raise CheckpointError(f"{path / 'input'}.safetensors: {FIRST}: must be floating point [{size}], got {got}")
    return found
