"""How kernels are launched, and that what the CUDA sources and Python both say is the same."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

import mpibow as mb
from mpibow.cuda.kernels import elementwise, flat, layout
from mpibow.cuda.kernels.compile import texts
from mpibow.cuda.kernels.kernels import (
    BLOCKS,
    KERNELS,
    THREADS,
    WARP,
    Launch,
    instance,
    integer,
    turns,
)
from mpibow.errors import ShapeError
from tests.refusals import refuses


def said(source: str, name: str) -> int:
    found = re.search(rf"constexpr int [^;]*\b{name} = (\d+)", texts()[source])
    return int(found[1])


def test_numbers_that_both_say():
    assert said("each.cuh", "THREADS") == THREADS
    assert said("each.cuh", "WARP") == WARP
    assert said("chunk.cuh", "CHUNK") == flat.CHUNK
    assert (said("layout.cu", "TILE"), said("layout.cu", "ROWS")) == (layout.TILE, layout.ROWS)


def test_every_source_has_kernels_and_every_kernel_of_a_source_is_in_the_table():
    written = {
        (source, name)
        for source, text in texts().items()
        for name in re.findall(r"__global__ void\s+(?:__launch_bounds__\(\w+\) )?(\w+)\(", text)
    }
    assert written == {(source, kernel.split("<")[0]) for kernel, source in KERNELS.items()}


@pytest.mark.parametrize(
    ("count", "at_once", "blocks"), [(0, 1, 1), (1, 1, 1), (256, 1, 1), (257, 1, 2), (1025, 4, 2), (1 << 40, 4, BLOCKS)]
)
def test_grids_of_turns(count, at_once, blocks):
    assert turns(count, at_once) == (blocks, 1, 1)


def test_labels_that_no_kernel_is_made_for():
    assert (integer(np.zeros(2, np.int32)), integer(np.zeros(2, np.int64))) == ("int", "long long")
    with refuses(
        "labels and indices are int32 or int64 on a GPU, got uint8: convert them, or set device=onednn or device=numpy",
        ShapeError,
    ):
        integer(np.zeros(2, np.uint8))


def test_numbers_are_of_32_bits_unless_numpys():
    numbers = (3, True, 0.5, np.float64(0.1), np.int64(1 << 40), np.void(b"12"))
    made = Launch("sma_alone", (1, 1, 1), (*numbers, None)).arguments
    assert [type(each) for each in made[:3]] == [np.int32, np.int32, np.float32]
    assert [*made[3:]] == [*numbers[3:], None]
    assert [type(each) for each in made[3:6]] == [np.float64, np.int64, np.void]


def test_a_rate_of_numpys_is_a_float_for_dropout(monkeypatch):
    monkeypatch.setattr(elementwise, "_dropout_extents", lambda call: (2, 3, 1, 1))
    x = np.zeros((2, 3), np.float32)
    call = SimpleNamespace(
        x=(x, x), y=x, dy=x, dx0=x, saved={"kept": x}, op=mb.ops.Dropout(np.float64(0.5)), name="dropout1"
    )
    (forward,), (backward,) = elementwise.dropout_forward(call), elementwise.dropout_backward(call)
    assert (type(forward.arguments[6]), type(backward.arguments[3])) == (np.float32, np.float32)


def test_names():
    assert instance("unary", "Relu", "float") == "unary<Relu, float>"
    assert instance("sma_alone") == "sma_alone"
    with pytest.raises(AssertionError, match=r"^unary<Sine, float>$"):
        Launch("unary<Sine, float>", (1, 1, 1), ())
    with pytest.raises(AssertionError, match="sma_alone"):
        Launch("sma_alone", (1, 1 << 16, 1), ())
