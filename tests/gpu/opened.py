"""The GPU of the tests: opened once, or why not; device copies of host arrays, and launches and plans on them."""

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes  # noqa: F401  NumPy knows bfloat16 by it
import numpy as np
import pytest

from mpibow import add, batch_norm, conv2d, dense, dropout, flatten, max_pool2d, relu
from mpibow.cuda.device.find import Found
from mpibow.cuda.device.machine import Machine
from mpibow.cuda.kernels.cudnn import Cudnn, Enqueue, Handles
from mpibow.cuda.kernels.kernels import Launch
from mpibow.cuda.kernels.launcher import Launcher
from mpibow.cuda.kernels.layers import layers
from mpibow.cuda.kernels.listing import rewrite
from mpibow.cuda.kernels.opened import plan_folder
from mpibow.cuda.kernels.operands import PRECISIONS, Precision
from mpibow.cuda.kernels.plans import Planner, Target
from mpibow.cuda.kernels.table import LAUNCHED
from mpibow.errors import DeviceError
from mpibow.graph import Array, Call, Kernel, Kernels, Run, Tensor
from mpibow.kernels import cache_folder

PAGE = 4096  # bytes: a device copy lies as its host array does within one of these, so it is as well aligned
HALVES = ("float16", "bfloat16")
# The settings of a run on the GPU. How learners run is said, as what is measured is not the same bits every time.
CUDA = {"device": "cuda", "execution": "streams"}


def on_gpu(**settings) -> dict:
    """These settings, on the GPU."""
    return {**CUDA, **settings}


def by_eights(image: Tensor) -> Tensor:
    """A net with layers of every kind whose channels suit 16 bits, too."""
    x = relu(batch_norm(conv2d(image, 16, 3, padding=1, bias=False)))
    y = batch_norm(conv2d(relu(batch_norm(conv2d(x, 16, 3, padding=1, bias=False))), 16, 3, padding=1, bias=False))
    x = max_pool2d(relu(conv2d(relu(add(y, x)), 8, 3, padding=1)), 2)
    return dense(dropout(flatten(x), 0.1), 3)


@cache
def why_not() -> str:
    """Why no GPU can be used here, in one line; '' where one can."""
    from mpibow.cuda.device.cupy_driver import Driver

    try:
        driver = Driver()
        if not driver.version():
            return "no NVIDIA driver"
        if not driver.count():
            return "no GPU is visible"
        driver.use(0)
    except DeviceError as error:
        return str(error).splitlines()[0]
    return ""


def needs_gpu(*more: pytest.MarkDecorator) -> list[pytest.MarkDecorator]:
    """The `pytestmark` of a module of tests of a GPU."""
    return [pytest.mark.gpu, pytest.mark.skipif(bool(why_not()), reason=f"needs a GPU: {why_not()}"), *more]


def how_many() -> int:
    """GPUs that are visible."""
    from mpibow.cuda.device.cupy_driver import Driver

    return 0 if why_not() else Driver().count()


class Device:
    """A GPU whose memory is filled and read as bytes. `bind` makes a run of launches."""

    def __init__(self) -> None:
        from cupy.cuda import runtime

        from mpibow.cuda.device.cupy_driver import Driver

        self.driver = Driver()
        self.driver.use(0)
        self.gpu = self.driver.describe(0)
        machine = Machine(self.driver, Found(self.gpu, (0,), shared=False))
        self.stream, self.handles, self.bind = machine.stream, Handles(), Launcher(machine, cache_folder() / "kernels")
        self._runtime = runtime

    def allocate(self, size: int) -> tuple:
        """What holds the memory, and its address."""
        block = self.driver.allocate(size)
        return block, int(block.data.ptr)

    def upload(self, address: int, source: Array) -> None:
        self._runtime.memcpy(address, source.ctypes.data, source.nbytes, self._runtime.memcpyHostToDevice)
        self._runtime.streamSynchronize(0)  # of what is not page-locked the last part may still be on its way

    def download(self, target: Array, address: int) -> None:
        self._runtime.memcpy(target.ctypes.data, address, target.nbytes, self._runtime.memcpyDeviceToHost)

    def wait(self) -> None:
        self.stream.synchronise()

    def planner(self, tries: int = 1, folder: Path | None = None) -> Planner:
        """Plans are kept as a run's are, in the user's cache or in `folder`."""
        kept = plan_folder(folder or cache_folder(), self.gpu, tries)
        target = Target(kept.about[0], handle=self.handles.of(self.stream))
        return Planner(target, tries, kept)


@cache
def device() -> Device:
    return Device()


@cache
def planner() -> Planner:
    """One for all tests: what is planned once is not planned again."""
    return device().planner()


@dataclass
class _Copy:
    host: Array  # bytes
    held: Any
    address: int


class Mirror:
    """Device copies of whole host arrays, found by any view of them. `up` before a run, `down` after it."""

    def __init__(self, on=None) -> None:
        self._device, self._copies = on or device(), {}
        self._owners = []  # kept alive: an address must not be another array's later
        self._narrow = {}  # weights, and what they are in 16 bits

    def address(self, view: Array, dtype: str = "") -> int:
        """Where `view` lies on the device, as a Enqueue's operand of that dtype: of float32 in 16 bits its copy."""
        if dtype in HALVES and view.dtype.name == "float32":
            key = (view.ctypes.data, dtype)
            self._narrow.setdefault(key, (view, np.zeros(view.shape, dtype)))
            view = self._narrow[key][1]
        assert not dtype or view.dtype.name in (dtype, "uint8"), f"an array of {view.dtype} where {dtype} is wanted"
        if view.size == 0:
            return 0
        owner = view
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        low, high = np.lib.array_utils.byte_bounds(owner)
        if low not in self._copies or self._copies[low].host.nbytes < high - low:
            self._copies[low] = self._copy(owner, low, high)
        return self._copies[low].address + np.lib.array_utils.byte_bounds(view)[0] - low

    def _copy(self, owner: Array, low: int, high: int) -> _Copy:
        self._owners.append(owner)
        host = np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
        held, start = self._device.allocate(high - low + 2 * PAGE)
        return _Copy(host, held, start + (low - start) % PAGE)

    def up(self) -> None:
        for wide, narrow in self._narrow.values():
            narrow[...] = wide
        for copy in self._copies.values():
            self._device.upload(copy.address, copy.host)

    def down(self) -> None:
        self._device.wait()
        for copy in self._copies.values():
            self._device.download(copy.host, copy.address)

    def around(self, runs: Sequence[Callable[[], None]]) -> Run:
        """All of them on the device copies, which come from the host's arrays and go back there."""

        def run() -> None:
            self.up()
            for each in runs:
                each()
            self.down()

        return run

    def launches(self, launches: Launch | Iterable[Launch]) -> Run:
        """Own kernels with the device copies of their arguments."""
        all_ = [launches] if isinstance(launches, Launch) else launches
        run = self._device.bind([replace(each, arguments=tuple(map(self._there, each.arguments))) for each in all_])
        return lambda: run(self._device.stream)

    def _there(self, argument):
        """An array as the launcher takes it: where its copy lies. Numbers and tables are the launcher's own affair."""
        if not isinstance(argument, np.ndarray):
            return argument
        return SimpleNamespace(data=SimpleNamespace(ptr=self.address(argument)))

    def own(self, op: type) -> Kernel:
        """An operator of mpibow's own kernels, whose runs stay on the device: see `around`."""
        return LAUNCHED[op].bound(self.launches)

    def layer(self, kernel: Kernel) -> Kernel:
        """A layer of cuDNN's, whose runs stay on the device."""

        def bound(half: Callable[[Call], Enqueue], call: Call) -> Run:
            scratch = dict(call.scratch)
            if "workspace" in scratch:
                place, array = self.address(scratch["workspace"]), scratch["workspace"]
                scratch["workspace"] = SimpleNamespace(nbytes=array.nbytes, data=SimpleNamespace(ptr=place))
            run = half(replace(call, scratch=scratch))
            return lambda: run(self._device.stream)

        back = None if kernel.backward is None else partial(bound, kernel.backward)
        return Kernel(partial(bound, kernel.forward), back, kernel.buffers, kernel.formats)

    def cudnn(self, plans: Planner | None = None) -> Cudnn:
        return Cudnn(plans or planner(), self._device.handles, self.address)

    def table(self, precision: Precision, plans: Planner | None = None) -> dict[type, Kernel]:
        """The whole kernel set; runs stay on the device."""
        cudnn = {op: self.layer(kernel) for op, kernel in layers(self.cudnn(plans), precision).items()}
        return {**{op: self.own(op) for op in LAUNCHED}, **cudnn}


def apart(kernel: Kernel, mirror: Mirror) -> Kernel:
    """A kernel whose every run comes from the host and goes back there."""

    def around(half: Callable[[Call], Run]) -> Callable[[Call], Run]:
        return lambda call: mirror.around([half(call)])

    return replace(kernel, forward=around(kernel.forward), backward=kernel.backward and around(kernel.backward))


def kernels(precision: str, plans: Planner | None = None) -> Kernels:
    """The `cuda` kernel set for one plan of host arrays: all its steps run on the device, one after the other."""
    mirror = Mirror()

    def join(runs: Sequence[Run]) -> Sequence[Run]:
        return [mirror.around(runs)]

    return Kernels(mirror.table(PRECISIONS[precision], plans), fuse=rewrite, join=join)


def run_all(launches: Launch | Iterable[Launch], backwards: bool = False) -> None:
    """As tests.cuda.kernels.host.run_all, on the device, where nobody says in which order blocks run."""
    mirror = Mirror()
    run = mirror.launches(launches)
    mirror.around([run])()
