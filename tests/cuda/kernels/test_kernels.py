"""How kernels are launched, and that what the CUDA sources and Python both say is the same."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mpibow.cuda.kernels import flat, layout
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


def test_numbers_that_both_say() -> None:
    assert said("each.cuh", "THREADS") == THREADS
    assert said("each.cuh", "WARP") == WARP
    assert said("chunk.cuh", "CHUNK") == flat.CHUNK
    assert (said("layout.cu", "TILE"), said("layout.cu", "ROWS")) == (layout.TILE, layout.ROWS)


def test_every_source_has_kernels_and_every_kernel_of_a_source_is_in_the_table() -> None:
    written = {
        (source, name)
        for source, text in texts().items()
        for name in re.findall(r"__global__ void\s+(?:__launch_bounds__\(\w+\) )?(\w+)\(", text)
    }
    assert written == {(source, kernel.split("<")[0]) for kernel, source in KERNELS.items()}


@pytest.mark.parametrize(
    ("count", "at_once", "blocks"), [(0, 1, 1), (1, 1, 1), (256, 1, 1), (257, 1, 2), (1025, 4, 2), (1 << 40, 4, BLOCKS)]
)
def test_grids_of_turns(count: int, at_once: int, blocks: int) -> None:
    assert turns(count, at_once) == (blocks, 1, 1)


def test_labels_that_no_kernel_is_made_for() -> None:
    assert (integer(np.zeros(2, np.int32)), integer(np.zeros(2, np.int64))) == ("int", "long long")
    with refuses(
        "labels and indices are int32 or int64 on a GPU, got uint8: convert them, or set device=onednn or device=numpy",
        ShapeError,
    ):
        integer(np.zeros(2, np.uint8))


def test_names() -> None:
    assert instance("unary", "Relu", "float") == "unary<Relu, float>"
    assert instance("sma_update") == "sma_update"
    with pytest.raises(AssertionError, match=r"^unary<Sine, float>$"):
        Launch("unary<Sine, float>", (1, 1, 1), ())
    with pytest.raises(AssertionError, match="sma_alone"):
        Launch("sma_alone", (1, 1 << 16, 1), ())
