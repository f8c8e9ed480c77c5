"""What runs CUDA kernels on the host finds out those that are wrong."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.cuda.kernels.host import Library, needs_compiler, run

pytestmark = needs_compiler

SIGNATURES = {
    "leaves_early": ["f4*"],
    "splits_a_warp": ["f4*"],
    "lacks_a_barrier": ["f4*"],
    "has_it": ["f4*"],
    "writes_behind": ["f4*", "i4"],
    "writes_const": ["const f4*"],
}


@pytest.fixture(scope="module")
def faulty() -> Library:
    return Library(Path(__file__).with_name("faulty.cu"), list(SIGNATURES))


def numbers():
    return np.arange(256, dtype=np.float32)


def launched(faulty: Library, kernel: str, *arguments, backwards: bool = False) -> None:
    launch = SimpleNamespace(kernel=kernel, grid=(1, 1, 1), block=(256, 1, 1), arguments=arguments)
    run(launch, backwards, faulty)


def test_what_kernels_take(faulty: Library):
    assert {kernel: faulty.signature(kernel) for kernel in SIGNATURES} == SIGNATURES


@pytest.mark.parametrize("kernel", ["leaves_early", "splits_a_warp"])
def test_a_barrier_that_not_all_threads_reach(faulty: Library, kernel):
    with pytest.raises(AssertionError, match=rf"^{kernel}: block 0: a barrier that some of its threads never reach$"):
        launched(faulty, kernel, numbers())


def test_a_race_gives_other_numbers_in_the_other_order(faulty: Library):
    results = []
    for kernel in ("lacks_a_barrier", "has_it"):
        for backwards in (False, True):
            x = numbers()
            launched(faulty, kernel, x, backwards=backwards)
            results.append(x.tolist())
    assert results[0] != results[1]
    assert results[2] == results[3] == numbers()[::-1].tolist()


@pytest.mark.parametrize("place", [-1, 256, 300])
def test_a_write_beyond_an_array(faulty: Library, place):
    with pytest.raises(AssertionError, match=r"^writes_behind writes beyond an array$"):
        launched(faulty, "writes_behind", numbers(), np.int32(place))


def test_a_write_to_what_is_const(faulty: Library):
    with pytest.raises(AssertionError, match=r"^writes_const writes to an argument that it takes as const$"):
        launched(faulty, "writes_const", numbers())


@pytest.mark.parametrize("argument", [np.zeros(1), np.zeros(1, np.int32), np.float32(1)])
def test_an_argument_of_another_type(faulty: Library, argument):
    with pytest.raises(AssertionError, match=re.escape("('has_it', 'f4*', ")):
        launched(faulty, "has_it", argument)
