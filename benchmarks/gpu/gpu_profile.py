"""Where a learner's pass goes on a GPU: every step of its plan by itself, in replays of a CUDA graph.

python -m benchmarks.gpu.gpu_profile resnet32 --batch-size 16 device=cuda precision=tf32     # one line of JSON
"""

import json
import tempfile
from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks.sides import Found, parser_of
from mpibow.comm import Single
from mpibow.cuda.kernels.cudnn import Enqueue, seconds_of
from mpibow.cuda.kernels.opened import Gpu
from mpibow.data import read_into
from mpibow.graph import initial_weights
from mpibow.graph.steps import Step, kind_of
from mpibow.job import Job, on_device
from mpibow.job.synthetic import made_up_job


def kinds(steps: Sequence[Step], seconds: Sequence[float]) -> dict[str, dict[str, float]]:
    """How many steps of each kind there are, and their seconds, as `mpibow.bench profile` has it."""
    found: dict[str, dict[str, float]] = {}
    for step, took in zip(steps, seconds, strict=True):
        part = found.setdefault(kind_of(step), {"count": 0, "seconds": 0.0})
        part["count"] += 1
        part["seconds"] += took
    return found


def once(gpu: Gpu, runs: Sequence[Enqueue]) -> None:
    """One pass by itself and one as a CUDA graph, for a profiler that lists kernels."""
    executor = gpu.executor("a pass", runs, gpu.machine.stream)
    executor.prepare()
    executor.run()
    gpu.machine.stream.synchronise()


def profile(job: Job, alone: bool = False) -> Found:
    """`job` has its GPU opened. `alone`: nothing is timed, a pass is run for a profiler."""
    gpu, plan = job.device.gpu, job.training_plan()
    assert gpu is not None, "device=cuda is what is profiled here"
    machine = gpu.machine
    weights, gradients = (machine.zeros(plan.layout.size, "float32", "a profile") for _ in range(2))
    machine.put(weights, initial_weights(plan.layout, job.config.seed, "float32"))
    bound, runs = gpu.bound(plan, weights, gradients)
    host = {name: np.zeros(array.shape, array.dtype) for name, array in bound.inputs.items()}
    read_into(job.train, np.arange(job.config.batch_size) % job.train.count, host)
    for name, array in bound.inputs.items():
        machine.put(array, host[name])
    if alone:
        once(gpu, runs)
        return {"steps": len(runs), "kernels": job.kernels.about}
    for run in runs:
        run(machine.stream)
    seconds = [seconds_of(partial(run, machine.stream), machine.stream) for run in bound.runs]
    parts = kinds(plan.program.steps, seconds)
    before = runs[: len(runs) - len(bound.runs)]
    if before:
        took = sum(seconds_of(partial(run, machine.stream), machine.stream) for run in before)
        parts["weights in 16 bits"] = {"count": len(before), "seconds": took}
        seconds.append(took)
    return {"parts": parts, "plan": sum(seconds), "kernels": job.kernels.about}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("model")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--once", action="store_true", help="one pass for a profiler, as ncu; nothing is timed")
    parser.add_argument("overrides", nargs="*", metavar="key.path=value")
    arguments = parser.parse_intermixed_args()
    arguments.shape = arguments.classes = arguments.device = None
    with tempfile.TemporaryDirectory() as folder:
        job, _ = on_device(made_up_job(arguments, folder), Single())
        print(json.dumps(profile(job, arguments.once)))


if __name__ == "__main__":
    main()
