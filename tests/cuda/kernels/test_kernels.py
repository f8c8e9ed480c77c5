"""How kernels are launched, and that what the CUDA sources and Python both say is the same."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mpibow.cuda.kernels import flat, layout, pool
from mpibow.cuda.kernels.compile import texts
from mpibow.cuda.kernels.kernels import (
    BLOCKS,
    KERNELS,
    THREADS,
    WARP,
    Constant,
    Launch,
    instance,
    integer,
    lanes,
    turns,
    warps,
)
from mpibow.errors import ShapeError
from mpibow.ops import AdaptiveAvgPool2d, AvgPool2d, GlobalAvgPool2d
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


def test_grids_of_warps() -> None:
    assert [warps(rows)[0] for rows in (1, 8, 9, 1000)] == [1, 1, 2, 125]


def test_lanes_are_16_bytes_of_the_widest() -> None:
    assert (lanes("float32"), lanes("float16"), lanes("float16", "float32"), lanes("uint8")) == (4, 8, 4, 16)


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


def test_the_flat_passes_have_a_block_for_every_chunk() -> None:
    rows, size = np.zeros((3, 5000), np.float32), 5000
    vector, step, parts = np.zeros(size, np.float32), np.zeros(1, flat.STEP), np.zeros((3, 3))
    local = flat.DeviceStep("", np.zeros((3, 2, 3), np.float32), Constant(np.zeros(2, flat.SPAN)))
    launch = flat.sma_update(rows, (rows,), rows, vector, parts, vector, vector, step, local)
    assert (launch.grid, launch.block, launch.arguments[-4:]) == ((3, 1, 1), (256, 1, 1), (5000, 5000, 3, 2))
    first, second = flat.squared_norms(rows, parts, np.zeros(3))
    assert (first.grid, second.grid) == ((3, 3, 1), (1, 3, 1))


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("abcd", "acdb", (2, 3, 20)),
        ("acdb", "abcd", (2, 20, 3)),
        ("ab", "ba", (1, 2, 3)),
        ("abcd", "cdab", (1, 6, 20)),
        ("abcd", "abcd", (120, 1, 1)),
    ],
)
def test_reorders_are_transposes(source: str, target: str, expected: tuple[int, int, int]) -> None:
    assert layout.transposed(source, target, (2, 3, 4, 5)[: len(source)]) == expected


def test_reorders_into_blocks_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"^CUDA kernels reorder by swapping two runs of axes, got abcd to aBcd16b$"):
        layout.transposed("abcd", "aBcd16b", (2, 16, 4, 5))


def test_windows() -> None:
    given = pool.windows(AvgPool2d((3, 2), (2, 1), (1, 0), False, False), (2, 8, 6, 5), (2, 8, 3, 4))
    assert given.tolist() == ((6, 3, 3, 2, 1), (5, 4, 2, 1, 0), 8, 0)
    assert pool.windows(AdaptiveAvgPool2d((2, 3)), (2, 8, 6, 5), (2, 8, 2, 3)).tolist()[:2] == (
        (6, 2, 0, 0, 0),
        (5, 3, 0, 0, 0),
    )
    assert pool.windows(GlobalAvgPool2d(), (2, 8, 6, 5), (2, 8)).tolist()[:2] == ((6, 1, 0, 0, 0), (5, 1, 0, 0, 0))
