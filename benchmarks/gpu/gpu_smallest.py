"""The smallest programs on a GPU: python -m benchmarks.gpu.gpu_smallest nvrtc | cudnn | nccl | kinds

nvrtc fills an array by a kernel of mpibow's own, cudnn makes bfloat16 of float32, nccl adds up over one rank, and kinds
plans and runs a graph of each kind that mpibow asks cuDNN for. Each ends with an error where the numbers are wrong.
"""

import sys
import time
from collections.abc import Callable, Mapping

import numpy as np

from mpibow.comm import Single
from mpibow.cuda.device.cupy_driver import Driver
from mpibow.cuda.device.find import Found
from mpibow.cuda.device.machine import Machine
from mpibow.cuda.exchange.nccl import open_nccl
from mpibow.cuda.kernels.cudnn import Cudnn, DeviceTimer, Handles
from mpibow.cuda.kernels.elementwise import fill
from mpibow.cuda.kernels.launcher import Launcher
from mpibow.cuda.kernels.opened import cache_folder, plan_folder
from mpibow.cuda.kernels.operands import PRECISIONS
from mpibow.cuda.kernels.plans import Planner, Target
from mpibow.cuda.kernels.specs import Cast
from mpibow.errors import DeviceError

COUNT = 1024


def opened() -> Machine:
    driver = Driver()
    driver.use(0)
    return Machine(driver, Found(driver.describe(0), (0,), False))


def nvrtc(machine: Machine) -> bool:
    array = machine.zeros(COUNT, "float32")
    Launcher(machine, cache_folder() / "kernels")([fill(array, 3.0)])(machine.stream)  # type: ignore[arg-type]
    return bool((machine.host(array) == 3).all())


def planner(machine: Machine, handles: Handles) -> Planner:
    """Of the plans that cuDNN ranks first, as the tests take them."""
    kept = plan_folder(cache_folder(), machine.found.gpu, 1)
    return Planner(Target(kept.about[0], handles.of(machine.stream)), 1, kept)


def cudnn(machine: Machine) -> bool:
    handles = Handles()
    cudnn = Cudnn(planner(machine, handles), handles)
    spec = Cast(COUNT, "float32", "bfloat16", PRECISIONS["bf16"])
    x, y = machine.zeros(COUNT, "float32"), machine.zeros(2 * COUNT, "uint8")
    machine.put(x, np.arange(COUNT, dtype=np.float32) % 256)  # which bfloat16 holds
    scratch = machine.zeros(max(cudnn.workspace(spec), 1), "uint8")
    cudnn.bind(spec, {"x": x, "y": y}, scratch)(machine.stream)
    wide = machine.host(y).view(np.uint16).astype(np.uint32) << 16
    return bool((wide.view(np.float32) == np.arange(COUNT) % 256).all())


def nccl(machine: Machine) -> bool:
    array = machine.zeros(COUNT, "float32")
    machine.put(array, np.arange(COUNT, dtype=np.float32))
    comm = open_nccl(Single(), machine.stream)
    comm.allreduce(array)
    return bool((machine.host(array) == np.arange(COUNT)).all())


def kinds(machine: Machine) -> bool:
    from tests.cuda.kernels.devices import FEW

    handles, well = Handles(), True
    plans, timer = planner(machine, handles), DeviceTimer(machine.driver, machine.stream, handles.of)
    for spec in FEW:
        begin = time.perf_counter()
        try:
            plan = plans.plan(spec)
            made, seconds = time.perf_counter() - begin, timer(plan)
        except DeviceError as error:
            well = False
            print(f"{spec.kind} {spec.precision.name}: {error}")
            continue
        print(f"{spec.kind} {spec.precision.name}: {plan.made.engine}, planned in {made:.1f} s, {1e6 * seconds:.1f} us")
    return well


PROGRAMS: Mapping[str, Callable[[Machine], bool]] = {"nvrtc": nvrtc, "cudnn": cudnn, "nccl": nccl, "kinds": kinds}


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in PROGRAMS:
        print(__doc__, file=sys.stderr)
        return 2
    well = PROGRAMS[sys.argv[1]](opened())
    print("well" if well else "wrong")
    return 0 if well else 1


if __name__ == "__main__":
    raise SystemExit(main())
