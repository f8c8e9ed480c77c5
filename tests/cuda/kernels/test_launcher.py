"""How launches become runs: parameters as the driver reads them, modules loaded once, tables uploaded once."""

import ctypes
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from mpibow.cuda.device.array import DeviceArray
from mpibow.cuda.device.find import Found
from mpibow.cuda.device.machine import Machine
from mpibow.cuda.kernels import flat
from mpibow.cuda.kernels.kernels import KERNELS, Constant, Launch
from mpibow.cuda.kernels.launcher import Launcher
from tests.cuda.device.fakes import gpu
from tests.cuda.simulated.gpu import Simulation, numpy_of


class Loading(Simulation):
    """Notes what is loaded and launched, with the parameters' bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.log = []
        self.sizes = []

    def load(self, code: bytes) -> str:
        self.log.append(("load", code))
        return code.decode()

    def function(self, module: str, name: str) -> str:
        self.log.append(("function", module, name))
        return name

    def launch(self, function: str, grid, block, parameters: int, stream) -> None:
        addresses = (ctypes.c_void_p * len(self.sizes)).from_address(parameters)
        found = [ctypes.string_at(at, size) for at, size in zip(addresses, self.sizes, strict=True)]
        self.log.append(("launch", function, grid, block, found, stream.name))


def launcher(driver: Loading, seen: list) -> Launcher:
    def compile_(source: str, architecture: str, folder: Path | None, cuda: int, formula: str):
        seen.append((source, architecture, folder, cuda))
        return SimpleNamespace(code=source.encode(), names={kernel: f"_{kernel}" for kernel in KERNELS})

    machine = Machine(driver, Found(gpu(0), (0,), False))
    return Launcher(machine, Path("kept"), compile_)


def test_parameters_are_laid_out_once_and_modules_loaded_once():
    driver, seen = Loading(), []
    bind = launcher(driver, seen)
    machine = bind.machine
    row, norm = machine.zeros(6, "float32"), machine.zeros(1, "float64")
    run = bind([flat.clamp(row, 0.5), flat.shorten(row, norm, 2.0)])
    assert seen == [("flat.cu", "sm_90", Path("kept"), 13)]
    assert driver.log == [
        ("load", b"flat.cu"), ("function", "flat.cu", "_clamp"), ("function", "flat.cu", "_shorten"),
    ]  # fmt: skip
    driver.log.clear()
    stream = driver.stream()
    for times in (1, 2):
        driver.sizes = [8, 4, 8]
        bind([flat.clamp(row, 0.5)])(stream)
        (_, name, grid, block, found, on) = driver.log[-1]
        assert (name, grid, block, on) == ("_clamp", (1, 1, 1), (256, 1, 1), stream.name)
        assert [int.from_bytes(found[0], "little"), np.frombuffer(found[1], "f4")[0]] == [row.ptr, 0.5]
        assert int.from_bytes(found[2], "little") == 6
        assert len(driver.log) == times
    del run


def test_no_array_is_address_0_and_tables_go_to_the_device_once():
    driver = Loading()
    bind = launcher(driver, [])
    rows, wide = bind.machine.zeros((2, 16), "float32"), bind.machine.zeros(32, "float32")
    blocks = np.array([(0, 16, 16)], flat.BLOCK)
    driver.sizes = [8, 8, 8, 8, 8, 4]
    at = []
    for _ in range(2):
        bind([flat.join_rows(rows, wide, Constant(blocks.copy()))])(driver.stream())
        at.append(int.from_bytes(driver.log[-1][4][2], "little"))
    assert at[0] == at[1] != 0
    (table,) = bind.constants.values()
    assert table.ptr == at[0]
    assert numpy_of(table).tolist() == [(0, 16, 16)]
    driver.sizes = [8] * 5
    none = Launch("enter_reports", (1, 1, 1), (rows, wide, rows, None, np.int32(1)))
    driver.sizes = [8, 8, 8, 8, 4]
    bind([none])(driver.stream())
    assert int.from_bytes(driver.log[-1][4][3], "little") == 0


def test_device_arrays_are_cut_as_numpys_are():
    host = np.arange(24, dtype=np.float32).reshape(4, 6)
    block = SimpleNamespace(data=SimpleNamespace(ptr=1000))
    whole = DeviceArray.over(block, "float32", (4, 6))
    for key in (1, slice(1, 3), (2, slice(2, 5)), slice(4, 4), -1):
        mine, its = whole[key], host[key]
        assert (mine.shape, mine.strides) == (its.shape, its.strides)
        if its.size:
            assert mine.ptr - 1000 == its.ctypes.data - host.ctypes.data
        assert mine.c_contiguous == its.flags.c_contiguous
    assert whole[1:, 2:4].strides == (24, 4)
    assert whole.reshape(-1).shape == whole.reshape(24).shape == (24,)
    assert whole.reshape((2, -1)).shape == (2, 12)
    assert (whole.view("uint8").shape, whole.view("float64").shape) == ((4, 24), (4, 3))
    assert (len(whole), whole.ndim, whole.size, whole.nbytes, whole.itemsize) == (4, 2, 24, 96, 4)
