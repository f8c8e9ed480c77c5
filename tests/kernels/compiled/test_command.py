"""Kernels with named arguments: how these are packed, checked, and kept apart in numba's cache."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mpibow.kernels.compiled.native import (
    Address,
    Doubles,
    Floats,
    Integers,
    Octets,
    Single,
    Words,
    floats,
    native,
    native_stepwise,
)
from tests.launching import well

ROOT = Path(__file__).parents[3]
ARRAYS = {
    "f": np.arange(3, dtype=np.float32), "d": np.arange(4.0), "w": np.arange(5), "i": np.arange(6, dtype=np.int32),
    "o": np.arange(7, dtype=np.uint8),
}  # fmt: skip


@native
def report(
    out: Doubles, f: Floats, d: Doubles, w: Words, i: Integers, o: Octets, at: Address, number: int, double: float,
    single: Single, yes: bool, nowhere: Address = None, none: Floats = None, two: int = 2,
) -> None:  # fmt: skip
    """Lengths and last numbers of all arrays, and the other arguments."""
    out[0], out[1], out[2], out[3], out[4] = len(f), len(d), len(w), len(i), len(o)
    out[5], out[6], out[7], out[8], out[9] = f[-1], d[-1], w[-1], i[-1], o[-1]
    out[10], out[11], out[12], out[13] = floats(at + 4, 1)[0], number, double, single
    out[14], out[15], out[16], out[17] = yes, nowhere, len(none), two


def arguments(**changed) -> dict:
    others = {"at": ARRAYS["f"], "number": -(2**62), "double": 0.1, "single": 0.1, "yes": True}
    return {"out": np.full(18, np.nan), **ARRAYS, **others, **changed}


def test_every_type_of_argument():
    given = arguments()
    report.command(**given)()
    expected = [3, 4, 5, 6, 7, 2, 3, 4, 5, 6, 1, -(2**62), 0.1, np.float32(0.1), 1, 0, 0, 2]
    np.testing.assert_array_equal(given["out"], np.array(expected, np.float64))
    given = arguments(nowhere=7, none=ARRAYS["f"], two=3, yes=False, single=np.float64(2), number=np.int32(5))
    report.command(**given)()
    np.testing.assert_array_equal(given["out"][11:], [5, 0.1, 2, 0, 7, 3, 3])


def test_integers_with_and_without_a_sign_pass_for_each_other():
    given = arguments(w=np.array([2**64 - 1], np.uint64), i=np.array([2**32 - 1], np.uint32), o=np.array([True]))
    report.command(**given)()
    np.testing.assert_array_equal(given["out"][7:10], [-1, -1, 1])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"f": ARRAYS["d"]}, "f must be an array of float32, got float64"),
        ({"i": ARRAYS["f"]}, "i must be an array of int32, got float32"),
        ({"w": ARRAYS["i"]}, "w must be an array of int64, got int32"),
        ({"o": 3}, "o must be an array of uint8, got 3"),
        ({"f": None}, "f must not be None"),
        ({"at": None}, "at must not be None"),
        ({"at": 1.5}, "at 'float' object cannot be interpreted as an integer"),
        ({"number": 1.5}, "number 'float' object cannot be interpreted as an integer"),
        ({"number": ARRAYS["w"]}, "number only integer scalar arrays can be converted to a scalar index"),
        ({"f": np.zeros((3, 2), np.float32)[:, 0]}, r"f must be contiguous, got strides \(8,\) of shape \(3,\)"),
        ({"more": 1}, "got an unexpected keyword argument 'more'"),
    ],
)
def test_an_argument_of_another_type_is_refused(changed, message):
    with pytest.raises(TypeError, match=f"^report: {message}$"):
        report.command(**arguments(**changed))


def test_an_argument_that_is_left_out_or_has_no_name_is_refused():
    with pytest.raises(TypeError, match=r"^report: missing a required (keyword-only )?argument: 'out'$"):
        report.command(**ARRAYS)
    with pytest.raises(TypeError, match=r"^report: too many positional arguments$"):
        report.command(*arguments().values())


@native_stepwise
def total(x: Floats, y: Floats) -> None:
    for i in range(len(x)):
        y[0] += x[i]


def test_a_stepwise_sum_has_the_order_of_the_source():
    x, y = np.random.default_rng(0).standard_normal(1000).astype(np.float32), np.zeros(1, np.float32)
    total.command(x=x, y=y)()
    assert y[0] == np.cumsum(x, dtype=np.float32)[-1]


MODULE = """
from typing import Literal
from mpibow.kernels.compiled.native import Floats
from mpibow.kernels.compiled.native import native
from near import scaled

@native
def first(x: Floats) -> None:
    x[0] = 1

@native
def second(x: Floats) -> None:
    x[0] = {}

@native
def third(x: Floats, by: Literal[10, 20] = 10) -> None:
    x[0] = scaled(by)
"""
NEAR = """
from far import FACTOR
from mpibow.kernels.compiled.numeric import inlined

@inlined
def scaled(x):
    return {} * FACTOR * x
"""
PROGRAM = """
import numpy
from mpibow.kernels.compiled import code_cache
code_cache.PACKAGES = (*code_cache.PACKAGES, "near")
import kernels
for kernel, versions in ((kernels.first, [{}]), (kernels.second, [{}]), (kernels.third, [{"by": 10}, {"by": 20}])):
    for version in versions:
        x = numpy.zeros(1, "f4")
        kernel.command(x=x, **version)()
        print(int(x[0]), kernel.versions[tuple(version.values())].code.cache_hits, end="; ")
"""


def test_kernels_of_the_same_arguments_are_kept_apart_on_disk(tmp_path):
    """numba's cache sees the same bytecode; and one length and date of a file, once its content has changed. A file
    that is imported counts as well, and a number that it has from a file that does not."""

    def run(second: int, scaled: int, factor: int) -> str:
        texts = {"kernels": MODULE.format(second), "near": NEAR.format(scaled), "far": f"FACTOR = {factor}"}
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text)
            os.utime(tmp_path / f"{name}.py", (1e9, 1e9))
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}", "PYTHONDONTWRITEBYTECODE": "1"}
        return well(
            subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
        ).stdout

    assert run(2, 1, 1) == "1 0; 2 0; 10 0; 20 0; "
    assert run(3, 2, 1) == "1 0; 3 0; 20 0; 40 0; "
    assert run(3, 2, 2) == "1 0; 3 0; 40 0; 80 0; "
    assert run(3, 2, 2) == "1 1; 3 1; 40 1; 80 1; "
