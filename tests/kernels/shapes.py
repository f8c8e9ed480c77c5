"""Operators and shapes at random, for the comparisons of kernel sets."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from mpibow import ops
from tests.kernels.cases import INITIAL

sides = st.integers(1, 9)
channels = st.one_of(st.integers(1, 5), st.sampled_from([8, 15, 16, 17, 32, 40]))


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[ops.Conv2d, tuple[int, ...]]:
    groups = draw(st.sampled_from([1, 1, 1, 2, 4]))
    c, o = draw(channels) * groups, draw(channels) * groups
    pairs = st.tuples
    kernel = draw(pairs(st.integers(1, 5), st.integers(1, 5)))
    stride, dilation = draw(pairs(*[st.integers(1, 3)] * 2)), draw(pairs(*[st.integers(1, 2)] * 2))
    padding = draw(pairs(st.integers(0, kernel[0] // 2 + 1), st.integers(0, kernel[1] // 2 + 1)))
    op = ops.Conv2d(o, kernel, stride, padding, draw(st.booleans()), INITIAL, groups, dilation)
    return op, (draw(st.integers(1, 5)), c, draw(sides) + 2, draw(sides) + 2)


@st.composite
def pools(draw: st.DrawFn) -> tuple[Any, tuple[int, ...]]:
    kernel = draw(st.tuples(*[st.integers(1, 4)] * 2))
    stride = draw(st.tuples(*[st.integers(1, 4)] * 2))
    padding = draw(st.tuples(st.integers(0, kernel[0] // 2), st.integers(0, kernel[1] // 2)))
    ceil = draw(st.booleans())
    op = (
        ops.MaxPool2d(kernel, stride, padding, ceil)
        if draw(st.booleans())
        else ops.AvgPool2d(kernel, stride, padding, ceil, draw(st.booleans()))
    )
    return op, (draw(st.integers(1, 3)), draw(channels), draw(sides) + 3, draw(sides) + 3)
