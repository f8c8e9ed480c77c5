"""What is trained on what: opened, and checked before anything is written."""

from mpibow.job.job import (
    BUILT_IN,
    Job,
    kernels_of,
    make_job,
    named_net,
    named_objective,
    on_device,
    open_data,
    open_job,
    open_kernels,
)

__all__ = [
    "BUILT_IN", "Job", "kernels_of", "make_job", "named_net", "named_objective", "on_device", "open_data", "open_job",
    "open_kernels",
]  # fmt: skip
