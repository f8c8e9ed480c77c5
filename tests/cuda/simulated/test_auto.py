"""`device: auto` on a simulated GPU: it is taken where it has all kernels of the net, else a line says why not."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import mpibow as mb
from mpibow.comm import Communicator, Single
from mpibow.config import Config
from mpibow.cuda import room
from mpibow.errors import DeviceError, ShapeError
from mpibow.graph import Tensor
from mpibow.job import on_device
from mpibow.job.choice import Rooms
from mpibow.job.device import HOST, Device
from tests.comm.threads import on_threads
from tests.cuda.kernels.host import needs_compiler
from tests.cuda.simulated.gpu import simulated
from tests.run import tiny

pytestmark = needs_compiler
CPUS = "device: CPUs compute, the GPU does not: "


def upturned(image: Tensor) -> Tensor:
    return mb.dense(mb.log_softmax(mb.flatten(mb.flip(image, 2))), tiny.CLASSES)


def found(config: Config, comm: Communicator) -> tuple[Device | None, str]:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])  # as the cores near a GPU are
    return simulated(), ""


def refused(config: Config, comm: Communicator) -> tuple[Device | None, str]:
    if config.precision == "float64":
        return room.find(config, comm)
    return None, "CUDA cannot start: a fault"


def rooms(find, present=lambda: True) -> Rooms:
    made = SimpleNamespace(find=find, present=present)
    return {"cuda": lambda: made}


def job(folder: Path, net=tiny.plain, **settings) -> tiny.Job:
    return tiny.job(folder, net=net, **{"device": "auto", "precision": "float32", **settings})


@pytest.fixture(autouse=True)
def same_cores() -> Iterator[None]:
    """The tests that follow in this process have all cores again."""
    cores = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, cores)


def test_a_gpu_with_all_kernels_is_taken(tmp_path):
    taken, note = on_device(job(tmp_path), Single(), rooms(found))
    assert (taken.kernels.name, note) == ("cuda", "")


@pytest.mark.parametrize("test", [None, tiny.TEST])
def test_operators_without_a_kernel_are_named_and_cpus_compute(tmp_path, test):
    cores = os.sched_getaffinity(0)
    kept, note = on_device(job(tmp_path, upturned, test=test, device="auto"), Single(), rooms(found))
    assert (kept.device, note.split("\n")[0]) == (HOST, f"{CPUS}device cuda has no kernel for flip, log_softmax")
    assert os.sched_getaffinity(0) == cores
    kept, _ = on_device(job(tmp_path, upturned, device="cuda"), Single(), rooms(found))
    with pytest.raises(ShapeError, match=r"^device cuda has no kernel for flip, log_softmax: set device=onednn, or"):
        kept.training_plan()
    with pytest.raises(DeviceError, match=r"^precision: bf16 needs a GPU, and none can be used: device cuda has no ke"):
        on_device(job(tmp_path, upturned, precision="bf16"), Single(), rooms(found))


@pytest.mark.parametrize(
    ("device", "precision", "there", "said"),
    [
        ("auto", "float32", True, f"{CPUS}CUDA cannot start: a fault"),
        ("auto", "float64", True, f"{CPUS}precision: a GPU computes in float32, tf32, bf16, fp16, got float64"),
        ("auto", "float32", False, ""),
        ("numpy", "float32", True, ""),
    ],
)
def test_a_gpu_that_is_not_used_has_a_line(tmp_path, device, precision, there, said):
    kept, note = on_device(job(tmp_path, device=device, precision=precision), Single(), rooms(refused, lambda: there))
    assert kept.device is HOST
    assert note.startswith(said or "computing with NumPy" if note else "")
    assert bool(said) == (CPUS in note)


def test_one_rank_without_a_gpu_keeps_all_on_cpus(tmp_path):
    """Said on all ranks, also where only one has any."""
    problems = iter(["", "no NVIDIA driver is installed"])
    find = partial(room.find, missing=lambda: next(problems))
    notes = on_threads(2, lambda comm: on_device(job(tmp_path), comm, rooms(find, lambda: comm.rank == 0))[1])
    assert all(note.startswith(CPUS) and note.endswith(": no NVIDIA driver is installed") for note in notes)
    assert notes[0] == notes[1]
