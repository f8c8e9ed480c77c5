"""The device of a job: the table of those beside the host, and the choice."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from mpibow.comm import Communicator
from mpibow.config import Config
from mpibow.errors import DeviceError, ShapeError
from mpibow.formulas import Formula, Machine
from mpibow.graph import choose_layout

from .device import HOST, Device
from .job import Job, kernels_of


class Room(Protocol):
    """All that exists for one kind of device: a module."""

    def find(self, config: Config, comm: Communicator) -> tuple[Device | None, str]:
        """This rank's device, opened; or None where `device` is auto and a rank has none, and why. Collective.

        Raises DeviceError and ConfigError where the settings ask for this kind.
        """

    def present(self) -> bool:
        """Whether this machine has one, usable or not."""

    def seen(self) -> dict[str, str]:
        """A rank's devices and their libraries, in words; `problem` is why none can be used."""

    def machines(self, formula: Formula, folder: Path) -> Mapping[str, Machine]:
        """What computes a step's formula in float32 as this kind does, by name; compiled in `folder`.

        Raises AssertionError and DeviceError where it does not compile.
        """


def _cuda() -> Room:
    from mpibow.cuda import room

    return room


Rooms = Mapping[str, Callable[[], Room]]
ROOMS: Rooms = {"cuda": _cuda}  # opened when they are asked for; auto tries them in this order
NOT_HOSTS = ("tf32", "bf16", "fp16")  # precisions


def on_device(job: Job, comm: Communicator, rooms: Rooms = ROOMS) -> tuple[Job, str]:
    """The job, on a device of `rooms` that is opened where `device` asks for it; and lines for the user. Collective.

    auto takes the first of which every rank opens one that has all kernels of the net; else the host computes. Where
    a machine has a GPU that is not used a line says why, and where the host is slow one names the faster way. Raises
    DeviceError where the settings need a device and none can be used, ConfigError where they need what it lacks.
    """
    config = job.config
    cores = os.sched_getaffinity(0)
    unused = []
    if job.device is not HOST:
        return job, ""
    for name, room in rooms.items():
        if config.device not in ("auto", name):
            continue
        device, why = room().find(config, comm)
        if device is not None:
            opened = replace(job, device=device)
            if config.device == name or not (why := _lacks(opened)):
                return opened, ""
            os.sched_setaffinity(0, cores)  # opening it took those near the GPU
        if config.precision in NOT_HOSTS:
            raise DeviceError(f"precision: {config.precision} needs a GPU, and none can be used: {why}")
        if any(comm.share(room().present())):
            unused.append(f"device: CPUs compute, the GPU does not: {why}")
    return job, "\n".join(filter(None, (*unused, kernels_of(config)[1])))


def _lacks(job: Job) -> str:
    """Why the net cannot be computed by the kernels of the job's device, '' where it can."""
    try:
        job.layout  # noqa: B018  asks the kernels of training, and is kept
        if job.evaluated:
            choose_layout(job.build(job.config.evaluate.batch_size, False), job.kernels, training=False)
    except ShapeError as error:
        return str(error).partition(": set device=")[0]
    return ""
