"""What carries the tests' arrays to a device and back, on a device that is the host: needs a C++ compiler, no GPU."""

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest

from mpibow import ops
from mpibow.cuda.kernels import flat
from mpibow.cuda.kernels.kernels import KERNELS, Constant, Launch
from mpibow.cuda.kernels.launcher import parameter
from mpibow.cuda.kernels.table import LAUNCHED
from mpibow.graph import Kernels
from mpibow.kernels import numpy as reference
from tests.cuda.kernels.host import library, needs_compiler, prepared
from tests.cuda.kernels.test_layers import NETS, graph_of, run
from tests.gpu.opened import PAGE, Mirror, apart

pytestmark = needs_compiler
prepare = prepared("flat.cu", "elementwise.cu", "factorise.cu", "loss.cu")


class OnHost:
    """As tests.gpu.opened.Device, where device memory is the host's, and poisoned."""

    stream = None
    handles = None

    def __init__(self) -> None:
        self.launched = []

    def allocate(self, size: int) -> tuple:
        block = np.full(size, 0xFF, np.uint8)
        return block, block.ctypes.data

    def upload(self, address: int, source) -> None:
        ctypes.memmove(address, source.ctypes.data, source.nbytes)

    def download(self, target, address: int) -> None:
        ctypes.memmove(target.ctypes.data, address, target.nbytes)

    def wait(self) -> None:
        pass

    def bind(self, launches: Sequence[Launch]):
        """As the launcher does, by the host's compilation."""
        values = [[value(argument) for argument in launch.arguments] for launch in launches]

        def run(stream: None) -> None:
            for launch, arguments in zip(launches, values, strict=True):
                self.launched.append(launch.kernel)
                shape = (ctypes.c_uint * 6)(*launch.grid, *launch.block)
                addresses = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
                failure = library(KERNELS[launch.kernel]).run(launch.kernel, shape, 0, addresses)
                assert not failure, failure

        return run


def value(argument):
    """What a kernel is given of it."""
    if isinstance(argument, Constant):
        return ctypes.c_uint64(argument.array.ctypes.data)
    return parameter(argument)


def launched(launches: Launch | list[Launch]) -> list[str]:
    on = OnHost()
    mirror = Mirror(on)
    one = mirror.launches(launches)
    mirror.around([one])()
    return on.launched


def test_views_of_one_array_are_one_copy():
    mirror = Mirror(OnHost())
    whole = np.zeros((5, 8), np.float32)
    row, part = whole[2], whole[1:, 4:]
    assert mirror.address(row) - mirror.address(whole) == 64
    assert mirror.address(part) - mirror.address(whole) == 48
    assert mirror.address(whole[:0]) == 0
    assert mirror.address(np.zeros(8, np.float32)) not in range(mirror.address(whole), mirror.address(whole) + 160)


@pytest.mark.parametrize("shift", [0, 4, 64, 100])
def test_copies_are_as_well_aligned(shift):
    array = np.zeros(PAGE, np.uint8)[shift:]
    assert (Mirror(OnHost()).address(array) - array.ctypes.data) % PAGE == 0


def test_weights_in_16_bits_are_copies_of_the_newest():
    mirror, weights = Mirror(OnHost()), np.ones(4, np.float32)
    place = mirror.address(weights, "bfloat16")
    assert place == mirror.address(weights, "bfloat16") != mirror.address(weights, "float32")
    weights[:] = 1 + 2.0**-9
    mirror.up()
    seen = np.ctypeslib.as_array((ctypes.c_uint16 * 4).from_address(place))
    assert seen.tolist() == [0x3F80] * 4  # 1, to the nearest and even


def test_a_launch_goes_there_and_back():
    """Elements in the middle of an array are held between -3 and 3."""
    whole = np.arange(-16, 16, dtype=np.float32).reshape(4, 8)
    expected = whole.copy()
    expected[1:3] = expected[1:3].clip(-3, 3)
    assert launched(flat.clamp(whole[1:3].reshape(-1), 3.0)) == ["clamp"]
    np.testing.assert_array_equal(whole, expected)


def test_a_plan_there_and_back():
    """All that the kernel set has of its own is on the device, the layers are NumPy's: its arena goes both ways."""
    on = OnHost()
    mirror = Mirror(on)
    own = {op: mirror.own(op) for op in (ops.Relu, ops.SoftmaxCrossEntropy) if op in LAUNCHED}
    mixed = Kernels({**reference.OPERATORS, **{op: apart(kernel, mirror) for op, kernel in own.items()}})
    graph = graph_of(NETS["plain"])
    found = run(graph, mixed, training=True, dtype="float32")
    expected = run(graph, Kernels(reference.OPERATORS), training=True, dtype="float32")
    for key in expected:
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-4, atol=1e-5, err_msg=key)
    assert {"unary<Relu, float>", "cross_entropy<float, int>"} <= set(on.launched)
