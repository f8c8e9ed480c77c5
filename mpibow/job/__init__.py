"""Jobs, a net and its data: opened, and checked before anything is written."""

from .choice import on_device
from .job import Job, kernels_of
from .opening import BUILT_IN, make_job, named_net, named_objective, of_arrays, open_job
from .record_kinds import open_data
