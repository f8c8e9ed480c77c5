"""The factors of colours, and the range of bytes."""

import pytest

from mpibow import ops
from mpibow.graph import FLOAT, Graph
from mpibow.ops.colour import factor


def test_a_factor_is_even_between_its_bounds():
    assert [factor(0.4, word) for word in (0, 1 << 31, 2**32 - 1)] == pytest.approx([0.6, 1.0, 1.4])
    assert [factor(3.0, word) for word in (0, 1 << 31, 2**32 - 1)] == pytest.approx([0.0, 2.0, 4.0])
    assert {factor(0.0, word) for word in (0, 1, 12345678, 2**32 - 1)} == {1.0}


@pytest.mark.parametrize(("dtype", "limit"), [("uint8", 255.0), ("float32", None), (FLOAT, None)])
def test_bytes_have_a_range_and_floats_have_none(dtype, limit):
    graph = Graph()
    y = ops.jitter(graph.input("image", (2, 3, 4, 4), dtype), contrast=0.4)
    assert graph.nodes[0].op == ops.Jitter(contrast=0.4, limit=limit)
    assert y.dtype == FLOAT
