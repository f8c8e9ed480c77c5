"""A module of the user's own, trained in mpibow and in PyTorch in turn, each with several settings."""

import argparse
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from multiprocessing import Pipe
from statistics import median
from tempfile import TemporaryFile
from typing import Any

from .aten.net import TorchNet
from .comm.communicator import Communicator
from .comm.launch import say
from .data.dataset import lots
from .data.decoded import Decoded
from .data.sample_settings import Image
from .errors import ConfigError, MpibowError
from .fitting import job_of_settings
from .job import Job, on_device
from .job.record_kinds import classified, open_data
from .job.synthetic import settings_of
from .system.command import PACKAGE
from .system.files import refusal

Figures = Mapping[str, Any]  # by name
Side = Callable[[float], Figures]  # of training for some seconds
BATCHES = 16  # that mpibow trains on; PyTorch trains on the first
OURS = "mpibow"
COMPILED = "torch.compile"
# This package comes first on the path, its neighbours last: the other Python has packages of its own.
START = """import sys; sys.path.insert(0, sys.argv[1])
import mpibow; sys.path.append(sys.path.pop(0))
from mpibow.torch_side import serve; serve(int(sys.argv[2]))"""


def compare(
    options: argparse.Namespace, comm: Communicator, folder: str, train: Callable[[Job, Communicator, float], Figures]
) -> Figures:
    """Images/s of all settings in every round, on samples in memory. Raises ConfigError.

    `train` measures a job for some seconds. PyTorch runs in another process: its threads stay out of this one.
    """
    if comm.size > 1:
        raise ConfigError(f"net: compares within one process, got {comm.size} ranks; leave mpirun out")
    records = open_data(options.data)
    if not classified(records):
        raise ConfigError(f"{options.data}: must have a class for each image or row, and has no classes")
    batch = options.batch_size
    data = records if records.shape else Decoded(records, Image())
    image, label = next(lots(data, BATCHES * batch))[1].values()  # in memory: neither side decodes
    counts = sorted({1, len(os.sched_getaffinity(0))})
    with torch_side(options.torch) as ask:
        say(f"PyTorch reads {options.net}")
        program, version = ask(options.net, image[:batch], label[:batch])

        def job(learners: int) -> Job:
            settings = {**settings_of(options, folder), "learners": learners}
            found, _ = on_device(job_of_settings(TorchNet(program, None), (image, label), settings), comm)
            if found.device.enqueues:
                raise ConfigError("net: PyTorch's side computes on CPUs; type --device onednn")
            return replace(found, quiet=True)

        jobs = [job(count) for count in counts]
        sides: dict[str, Side] = {f"{OURS} (learners {job.config.learners})": partial(train, job, comm) for job in jobs}
        layouts = ["", ", channels last"][: 1 + (image.ndim == 4)]
        for kind, layout, count in product(("eager", COMPILED), layouts, counts):
            side = partial(ask, count, kind == COMPILED, bool(layout))
            sides[f"PyTorch {version} ({kind}{layout}, threads {count})"] = side
        for name in [*sides]:
            say(f"warm-up: {name}")
            try:
                sides[name](0.0)
            except ConfigError as error:
                if COMPILED not in name:
                    raise
                say(f"{name} is left out: {str(error).splitlines()[0]}")
                del sides[name]
        rates = {name: list[float]() for name in sides}
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}")
            for name in [*sides][:: 1 - number % 2 * 2]:  # every other round in reverse
                rates[name].append(sides[name](options.seconds)["images_per_second"])
    about = f"net, batch {batch}, {jobs[0].kernels.about}, cores {counts[-1]}"
    return {"about": about, "rates": rates, **ratio_of_best(rates)}


@contextmanager
def torch_side(python: str) -> Iterator[Callable[..., Any]]:
    """PyTorch in a process of `python`. A question raises ConfigError where that has an error, or has ended."""
    here, there = Pipe()
    command = [python, "-c", START, str(PACKAGE.parent), str(there.fileno())]
    with TemporaryFile("w+") as said:
        with refusal(ConfigError, f"--torch: {python}", "started"):
            process = subprocess.Popen(command, pass_fds=[there.fileno()], stdout=said, stderr=said)
        there.close()

        def ask(*question: object) -> Any:
            try:
                here.send(question)
                answer = here.recv()
            except (EOFError, OSError):
                code = process.wait()
                said.seek(0)
                last = said.read().strip().rpartition("\n")[2]
                raise ConfigError(f"--torch: {python} ended with code {code}: {last}") from None
            if isinstance(answer, MpibowError):
                raise answer
            return answer

        with process, here:  # which ends it
            yield ask


def ratio_of_best(rates: Mapping[str, Sequence[float]]) -> Figures:
    """The fastest settings of both sides by their medians, and how many times as fast mpibow's are, by rounds.

    `rates` are images/s of every round, by a side's name and settings.
    """
    best = {name.startswith(OURS): name for name in sorted(rates, key=lambda name: median(rates[name]))}
    ratios = [one / other for one, other in zip(rates[best[True]], rates[best[False]], strict=True)]
    return {"best": [best[True], best[False]], "ratios": ratios}


def compare_text(found: Figures) -> str:
    best = found["best"]
    ratios = found["ratios"]
    sides = ", ".join(f"{name} {median(found['rates'][name]):,.0f} images/s" for name in best)
    times = f"{median(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f} by round)"
    return f"{found['about']}: {sides}: {times}"
