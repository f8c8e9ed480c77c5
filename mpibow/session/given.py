"""Reading the trained weights that a new run starts from, and the statistics that its checkpoints keep of them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path

import numpy as np

from mpibow.errors import CheckpointError, ConfigError
from mpibow.graph.graph import Array, Buffer
from mpibow.graph.plan import Plan
from mpibow.job import Job
from mpibow.job.document import buffers_of
from mpibow.job.given import Taken, take
from mpibow.models.torchvision import COUNTED
from mpibow.run.checkpoint import read_arrays
from mpibow.session.stored import read_stored

FIRST = "first_statistics"  # the array's name in a checkpoint


def taken_by(job: Job, plan: Plan) -> Taken | None:
    """The arrays that the job's net takes from the weights given to it; None where none are given.

    Raises CheckpointError where they cannot be read, ConfigError where they do not fit.
    """
    if job.given is None:
        return None
    arrays, buffers = job.given.arrays, job.build(1).buffers
    if arrays is None:
        stored = read_stored(job.given.weights.file)
        theirs = buffers_of(stored.graph, stored.arrays)
        arrays = {**stored.weights, **{name: each.array for name, each in theirs.items() if name in buffers}}
    check_buffers(buffers, arrays, f"{job.given.key}: {job.given.source}")
    arrays = {name: array for name, array in arrays.items() if name not in buffers}
    return take(job.given, arrays, {s.name: s.shape for layout in (plan.layout, plan.statistics) for s in layout.spans})


def check_buffers(ours: Mapping[str, Buffer], theirs: Mapping[str, Array], where: str) -> None:
    """Raises ConfigError, which begins with `where`, where a buffer of both has other numbers."""
    for name, buffer in ours.items():
        if name in theirs and not name.endswith(COUNTED) and not np.array_equal(buffer.array, theirs[name]):
            raise ConfigError(
                f"{where}: the buffer {name} has other numbers than the module; fill the module before from_torch: "
                "mpibow.load(RUN).to_torch(module)"
            )


def read_first(path: Path, files: Container[str], size: int) -> Array | None:
    """The statistics (size,) that replicas of checkpoint `path` started from; None for random weights'."""
    found = read_arrays(path, "input").get(FIRST) if "input.safetensors" in files else None
    if found is not None and (found.shape != (size,) or found.dtype.kind != "f"):
        got = f"{found.dtype} {list(found.shape)}"
        raise CheckpointError(f"{path / 'input'}.safetensors: {FIRST}: must be floating point [{size}], got {got}")
    return found
