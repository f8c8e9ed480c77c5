"""Jobs, a net and its data: opened, and checked before anything is written."""

from mpibow.job.choice import on_device
from mpibow.job.job import Job, kernels_of
from mpibow.job.opening import BUILT_IN, make_job, named_net, named_objective, of_arrays, open_job
from mpibow.job.record_kinds import open_data

__all__ = [
    "BUILT_IN",
    "Job",
    "kernels_of",
    "make_job",
    "named_net",
    "named_objective",
    "of_arrays",
    "on_device",
    "open_data",
    "open_job",
]
